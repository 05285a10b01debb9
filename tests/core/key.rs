//! Rules with a key: how they are made, what they are called, and what cannot be made.

use leapgate::rule::{
    Attribute, AttributeSource, ControlBehavior, Count, FlowRule, Grade, KeyItem, KeyMatch, KeyPart, KeyValue, KeyedBy,
    MAX_KEY_PARTS, MAX_KEYS, MaxQueueing, Regex, RuleError, WarmUp, number_of, number_text,
};

fn api() -> FlowRule {
    FlowRule::new("api", 5.0).unwrap()
}

fn by(parts: &[KeyPart]) -> KeyedBy {
    KeyedBy::new(parts).unwrap()
}

fn keyed() -> FlowRule {
    api().keyed(by(&[KeyPart::Path])).unwrap()
}

fn buckets(rule: &FlowRule) -> u32 {
    match rule.grade() {
        Grade::Qps { window, .. } => window.window().sample_count(),
        Grade::Concurrency => 0,
    }
}

#[test]
fn an_id_names_the_key_and_its_differences_from_the_defaults() {
    let header = KeyPart::Header("x-tier".into());
    let queue = MaxQueueing::from_millis(0).unwrap();
    let rule = |by| api().keyed(by).unwrap();
    let gold = by(std::slice::from_ref(&header)).matching(KeyMatch::Exact("gold".into()));
    let digits = KeyMatch::Regex(Regex::new(r"\d+").unwrap());
    let item = KeyItem {
        values: [Some("a".into())].into(),
        count: Count::new(9.0).unwrap(),
    };
    let cases = [
        (rule(by(&[KeyPart::CLIENT_IP])), "api/key=clientIp"),
        (
            rule(by(&[KeyPart::ClientIp { v4: 24, v6: 56 }])),
            "api/key=clientIp:24:56",
        ),
        (
            rule(by(&[
                header,
                KeyPart::Query("q".into()),
                KeyPart::Cookie("sid".into()),
            ])),
            "api/key=header:x-tier,query:q,cookie:sid",
        ),
        (
            rule(by(&[
                KeyPart::Path,
                KeyPart::Method,
                KeyPart::Host,
                KeyPart::Arg(-1),
            ])),
            "api/key=path,method,host,arg:-1",
        ),
        (rule(gold), "api/key=header:x-tier=gold"),
        (
            rule(by(&[KeyPart::Host]).matching(digits)),
            "api/key=host~\\d+",
        ),
        (
            rule(by(&[KeyPart::Host]).matching(KeyMatch::Prefix("a".into()))),
            "api/key=host^a",
        ),
        (
            rule(by(&[KeyPart::Host]).matching(KeyMatch::Contains("a".into()))),
            "api/key=host*a",
        ),
        (
            rule(by(&[KeyPart::Path]).with_max_keys(5).unwrap().with_burst(9)),
            "api/key=path/keys=5",
        ),
        (
            rule(by(&[KeyPart::Path]).with_items([item]).unwrap()),
            "api/key=path",
        ),
        (keyed().per(60_000, None).unwrap(), "api/60s/key=path"),
        (
            keyed().per(1000, Some(100)).unwrap(),
            "api/100buckets/key=path",
        ),
        (keyed().concurrency(), "api/concurrency/key=path"),
        (keyed().throttle(queue), "api/throttle/queue=0ms/key=path"),
        (keyed().sentinel(), "api/key=path/compat=sentinel"),
    ];
    for (rule, id) in cases {
        assert_eq!(rule.id().as_str(), id);
    }
}

#[test]
fn a_window_per_key_has_twenty_buckets_unless_it_is_said() {
    assert_eq!(buckets(&keyed()), 20);
    assert_eq!(buckets(&keyed().per(60_000, None).unwrap()), 20);
    assert_eq!(buckets(&keyed().per(7000, None).unwrap()), 20);
    assert_eq!(buckets(&keyed().per(7, None).unwrap()), 7);
    assert_eq!(buckets(&keyed().per(1000, Some(100)).unwrap()), 100);
    let said = api().per(1000, Some(10)).unwrap();
    let path = || by(&[KeyPart::Path]);
    assert_eq!(buckets(&said.keyed(path()).unwrap()), 10);
    let minute = api().per(60_000, None).unwrap();
    assert_eq!(buckets(&minute.keyed(path()).unwrap()), 20);
    assert_eq!(buckets(&keyed().sentinel()), 20);
}

#[test]
fn what_is_no_key_is_refused() {
    let bad = |result: Result<KeyedBy, RuleError>| result.unwrap_err().to_string();
    assert_eq!(
        bad(KeyedBy::new([])),
        "`0` is not possible; use a whole number from 1 to 8"
    );
    assert!(KeyedBy::new(vec![KeyPart::Path; MAX_KEY_PARTS]).is_ok());
    assert_eq!(
        bad(KeyedBy::new(vec![KeyPart::Path; MAX_KEY_PARTS + 1])),
        "`9` is not possible; use a whole number from 1 to 8"
    );
    let item = KeyItem {
        values: [None].into(),
        count: Count::new(1.0).unwrap(),
    };
    assert_eq!(
        bad(by(&[KeyPart::Path, KeyPart::Host]).with_items([item])),
        "`1` is not possible; use a whole number from 2 to 2"
    );
    assert!(by(&[KeyPart::Path]).with_max_keys(MAX_KEYS).is_ok());
    for (keys, shown) in [(0, "0"), (MAX_KEYS + 1, "16777217")] {
        assert_eq!(
            bad(by(&[KeyPart::Path]).with_max_keys(keys)),
            format!("`{shown}` is not possible; use a whole number from 1 to 16777216")
        );
    }
}

#[cfg(feature = "regex")]
#[test]
fn what_is_no_regular_expression_is_refused() {
    let regex = |text: &str| Regex::new(text).map(drop).unwrap_err().to_string();
    assert!(regex("a)b").starts_with("`a)b` is not a valid regular expression ("));
    assert!(regex(")|(").ends_with("; correct it"));
    assert!(regex(&"(a{1000}){1000}".repeat(9)).contains("is not a valid regular expression"));
}

#[test]
fn a_key_goes_with_neither_a_warm_up_nor_a_strategy() {
    let path = || by(&[KeyPart::Path]);
    let refused = |rule: FlowRule| rule.keyed(path()).unwrap_err().to_string();
    let cure = "does not go with a `key`; leave one of them out";
    let queue = MaxQueueing::default();
    let cases = [
        (api().warm_up(WarmUp::default()), "warmUp"),
        (
            api().warm_up_throttle(WarmUp::default(), queue),
            "warmUpThrottle",
        ),
        (api().relate("b").unwrap(), "relate"),
        (api().chain("b").unwrap(), "chain"),
    ];
    for (rule, what) in cases {
        assert_eq!(refused(rule), format!("`{what}` {cure}"));
    }
    let related = [keyed().relate("b"), keyed().chain("b")];
    for (rule, what) in related.into_iter().zip(["relate", "chain"]) {
        assert_eq!(rule.unwrap_err().to_string(), format!("`{what}` {cure}"));
    }
    for rule in [
        keyed().warm_up(WarmUp::default()),
        keyed().warm_up_throttle(WarmUp::default(), queue),
    ] {
        assert_eq!(rule, keyed());
    }
    let behavior = keyed().throttle(queue).control_behavior();
    assert_eq!(behavior, ControlBehavior::Throttle);
}

#[cfg(not(feature = "regex"))]
#[test]
fn without_the_feature_a_regular_expression_is_refused() {
    assert_eq!(
        Regex::new("v[12]").unwrap_err().to_string(),
        "`v[12]` is a regular expression, which this build does not support; use another match strategy"
    );
}

#[cfg(feature = "regex")]
#[test]
fn a_pattern_is_for_whole_values() {
    let regex = |text: &str| KeyMatch::Regex(Regex::new(text).unwrap());
    let cases = [
        (KeyMatch::Exact("a".into()), "a", true),
        (KeyMatch::Exact("a".into()), "A", false),
        (KeyMatch::Prefix("ab".into()), "abc", true),
        (KeyMatch::Prefix("ab".into()), "a", false),
        (KeyMatch::Contains("bc".into()), "abcd", true),
        (KeyMatch::Contains("bc".into()), "b", false),
        (KeyMatch::Contains("".into()), "", true),
        (regex("gold|gol"), "gol", true),
        (regex("gold|gol"), "golds", false),
        (regex("gol|gold"), "gold", true),
        (regex("^a$"), "a", true),
        (regex("a"), "a\n", false),
        (regex(""), "", true),
    ];
    for (pattern, value, expected) in cases {
        assert_eq!(
            pattern.matches(value.as_bytes()),
            expected,
            "{pattern} {value}"
        );
    }
    assert_eq!(KeyValue::default(), KeyValue::Missing);
}

/// What `number_of` takes, any f64 that a shell hands in becomes by way of `number_text`: the same number, or none.
#[test]
fn a_number_is_handed_in_as_text_and_what_is_no_count_is_none() {
    let same = [0.0, 1.0, 0.5, 42.0, 1e15, 9_007_199_254_740_991.0, 0.000_1, 1234.5678];
    for number in same {
        let text = number_text(number);
        assert_eq!(number_of(text.as_bytes()), Some(number), "{text}");
    }
    let none = [-1.0, -0.5, f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
    for number in none {
        let text = number_text(number);
        assert_eq!(number_of(text.as_bytes()), None, "{text}");
    }
    let texts = [
        ("007", Some(7.0)),
        ("3.25", Some(3.25)),
        ("0.33333333333333333333333333333333", Some(0.333_333_333_333_333)),
        (&"9".repeat(400), None),
        ("1e400", None),
        ("1e3", Some(1000.0)),
        ("1.5E-1", Some(0.15)),
        ("1e+21", Some(1e21)),
        ("0e999999", None),
        ("1e999999999999", None),
        ("1e", None),
        ("e1", None),
        ("1e1.5", None),
        ("", None),
        (".", None),
        (".5", None),
        ("5.", None),
        ("1.2.3", None),
        ("+1", None),
        ("-0", None),
        (" 1 ", Some(1.0)),
        ("1 1", None),
        ("0x10", None),
        ("inf", None),
        ("nan", None),
        ("many", None),
        ("٣", None),
    ];
    for (text, number) in texts {
        assert_eq!(number_of(text.as_bytes()), number, "{text}");
    }
}

#[test]
fn the_path_of_an_attribute_has_bounds() {
    use AttributeSource::{FilterState, Metadata, RouteMetadata, TypedMetadata};
    let fault = "is not a valid path; use a namespace and 1 to 7 keys, for a claim 1 to 6 names, for the filter state one, each of 1 to 256 bytes without a zero byte";
    let says = |made: Result<Attribute, RuleError>| made.unwrap_err().to_string();
    let (long, longest) = ("x".repeat(257), "x".repeat(256));
    let bad: [&[&str]; 6] = [&[], &["a"], &["a", ""], &["a", &long], &["a", "b\0c"], &["a"; 9]];
    for (path, source) in bad.iter().zip([Metadata, RouteMetadata, TypedMetadata].iter().cycle()) {
        let shown = path.join("/").replace('\0', r"\u{0}");
        assert_eq!(says(Attribute::new(*source, path)), format!("`{shown}` {fault}"));
    }
    let two = says(Attribute::new(FilterState, &["a", "b"]));
    assert_eq!(two, format!("`a/b` {fault}"));
    let bad: [&[&str]; 4] = [&[], &[""], &["a"; 7], &["a\0b"]];
    for path in bad {
        let shown = path.join("/").replace('\0', r"\u{0}");
        assert_eq!(says(Attribute::jwt_claim("jwt_payload", path)), format!("`{shown}` {fault}"));
    }
    assert!(Attribute::jwt_claim("", &["sub"]).is_err());
    assert!(Attribute::new(Metadata, &[&*longest; 8]).is_ok());
    assert!(Attribute::jwt_claim("pl", &[&*longest; 6]).is_ok());
}
