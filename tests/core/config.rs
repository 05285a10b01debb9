//! Documents: the rules that they make, and the sentences that refuse them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests are tests"
)]

use leapgate::config::{At, ConfigError, MAX_DOCUMENT, Value, read};
use leapgate::{
    Counting, Engine, FlowRule, Grade, LimitApp, MAX_RULES_PER_RESOURCE, Mode, RuleGeometry,
    RuleId, Rules, Target, Window,
};

fn rules(json: &str) -> Result<Rules, ConfigError> {
    read(&Value::from_json(json)?).map(|document| document.rules)
}

/// What is said of a document that is not read.
#[track_caller]
fn says(json: impl AsRef<[u8]>) -> String {
    let read = Value::from_json(json.as_ref())
        .and_then(|document| read(&document).map(|document| document.rules));
    read.expect_err("it is read").to_string()
}

/// A document of one rule, which has these fields besides a resource and a count.
fn one_rule(fields: &str) -> String {
    format!(r#"{{"flowRules": [{{"resource": "login", "count": 100{fields}}}]}}"#)
}

#[track_caller]
fn rule(fields: &str) -> FlowRule {
    let mut rules = rules(&one_rule(fields)).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(rules.flow.len(), 1);
    rules.flow.remove(0)
}

fn login() -> FlowRule {
    FlowRule::new("login", 100.0).unwrap()
}

// === Documents that are read ===

#[test]
fn an_empty_document_has_no_rules() {
    for json in [
        "{}",
        r#"{"flowRules": []}"#,
        r#"{"flowRules": null, "mode": null, "envoy": null}"#,
        "\u{feff} {}\n",
    ] {
        assert_eq!(rules(json), Ok(Rules::default()), "{json}");
    }
}

#[test]
fn a_rule_needs_a_resource_and_a_count() {
    assert_eq!(rule(""), login());
    let fraction = rules(r#"{"flowRules": [{"resource": "*", "count": 0.5}]}"#).unwrap();
    assert_eq!(fraction.flow, [FlowRule::new("*", 0.5).unwrap()]);
    assert_eq!(*fraction.flow[0].target(), Target::Each);
}

#[test]
fn each_field_does_what_it_says() {
    let per = |interval, samples| login().per(interval, samples).unwrap();
    let origin = |name: &str| login().for_origin(LimitApp::new(name).unwrap());
    let cases = [
        (
            r#""id": "burst""#,
            login().with_id(RuleId::new("burst").unwrap()),
        ),
        (r#""intervalMs": 60000"#, per(60_000, None)),
        (
            r#""intervalMs": 60000, "sampleCount": 60"#,
            per(60_000, Some(60)),
        ),
        (r#""sampleCount": 20"#, per(1000, Some(20))),
        (r#""window": "strict""#, login()),
        (
            r#""window": "sentinel""#,
            login().counting(Counting::Sentinel),
        ),
        (
            r#""window": "weighted", "intervalMs": 250"#,
            per(250, None).counting(Counting::Weighted),
        ),
        (r#""grade": "qps""#, login()),
        (r#""grade": "concurrency""#, login().concurrency()),
        (r#""controlBehavior": "reject""#, login()),
        (r#""limitApp": "default""#, login()),
        (r#""limitApp": "other""#, origin("other")),
        (r#""limitApp": "app-a""#, origin("app-a")),
        (r#""strategy": "direct""#, login()),
        (r#""refResource": """#, login()),
        (r#""mode": "enforce""#, login()),
        (r#""mode": "shadow""#, login().in_mode(Mode::Shadow)),
        (r#""compat": "sentinel""#, login().sentinel()),
        (
            r#""compat": "sentinel", "grade": "concurrency""#,
            login().concurrency().sentinel(),
        ),
        (
            r#""compat": "sentinel", "window": "sentinel", "intervalMs": 1000, "sampleCount": 2"#,
            login().sentinel(),
        ),
    ];
    for (fields, expected) in cases {
        assert_eq!(rule(&format!(", {fields}")), expected, "{fields}");
    }
}

#[test]
fn what_may_be_left_out_may_be_null() {
    let fields = [
        "id",
        "intervalMs",
        "sampleCount",
        "window",
        "grade",
        "controlBehavior",
        "limitApp",
    ];
    let more = ["strategy", "refResource", "mode", "compat", "clusterConfig"];
    let nulls: String = fields
        .iter()
        .chain(&more)
        .map(|field| format!(r#", "{field}": null"#))
        .collect();
    assert_eq!(rule(&nulls), login());
}

#[test]
fn numbers_mean_what_they_mean_in_sentinel() {
    assert_eq!(
        rule(r#", "grade": 1, "controlBehavior": 0, "strategy": 0"#),
        login()
    );
    assert_eq!(rule(r#", "grade": 0"#), login().concurrency());
    assert_eq!(
        rule(r#", "grade": 1.0, "intervalMs": 2e3"#),
        login().per(2000, None).unwrap()
    );
}

#[test]
fn a_rule_from_sentinels_dashboard_is_read() {
    let json = r#"{"flowRules": [{
        "id": 17, "app": "shop", "ip": "10.0.0.7", "port": 8719, "limitApp": "default", "resource": "GET:/pay/{id}",
        "grade": 1, "count": 20.0, "strategy": 0, "refResource": null, "controlBehavior": 0, "clusterMode": false,
        "clusterConfig": {"thresholdType": 0, "fallbackToLocalWhenFail": true, "strategy": 0, "sampleCount": 10},
        "gmtCreate": 1576296044500, "gmtModified": "2019-12-14T04:00:44.500+00:00"
    }, {
        "resource": "GET:/report", "limitApp": "", "grade": 0, "count": 4, "strategy": 0, "refResource": "",
        "controlBehavior": 0, "clusterMode": false
    }]}"#;
    let pay = FlowRule::new("GET:/pay/{id}", 20.0)
        .unwrap()
        .with_id(RuleId::new("17").unwrap());
    let report = FlowRule::new("GET:/report", 4.0).unwrap().concurrency();
    assert_eq!(rules(json).unwrap().flow, [pay, report]);
}

#[test]
fn rules_keep_their_order() {
    let json = r#"{"flowRules": [{"resource": "b", "count": 1}, {"resource": "a", "count": 2}, {"resource": "*", "count": 3}]}"#;
    let counts = |rules: Rules| {
        rules
            .flow
            .iter()
            .map(|rule| rule.count().get())
            .collect::<Vec<_>>()
    };
    assert_eq!(counts(rules(json).unwrap()), [1.0, 2.0, 3.0]);
}

#[test]
fn the_whole_document_can_be_in_shadow() {
    assert_eq!(rules(r#"{"mode": "shadow"}"#).unwrap().mode, Mode::Shadow);
    assert_eq!(rules(r#"{"mode": "enforce"}"#).unwrap().mode, Mode::Enforce);
}

#[test]
fn the_filters_own_section_is_left_as_it_is() {
    let value = Value::from_json(r#"{"envoy": {"anything": [1, 1], "anything": null}}"#).unwrap();
    let document = read(&value).unwrap();
    let Some(Value::Object(entries)) = document.envoy else {
        panic!("{document:?}")
    };
    assert_eq!(entries.len(), 2);
    assert!(
        read(&Value::from_json(r#"{"envoy": null}"#).unwrap())
            .unwrap()
            .envoy
            .is_none()
    );
}

#[test]
fn every_window_that_fits_is_read() {
    for (interval, samples) in [
        (1, 1),
        (1000, 1000),
        (Window::MAX_INTERVAL_MS, 1000),
        (7, 7),
    ] {
        let rule = rule(&format!(
            r#", "intervalMs": {interval}, "sampleCount": {samples}"#
        ));
        let window = RuleGeometry::new(interval, Some(samples)).unwrap();
        assert_eq!(
            rule.grade(),
            Grade::Qps {
                window,
                counting: Counting::Strict
            }
        );
    }
}

#[test]
fn ten_thousand_rules_of_a_dashboard_are_read() {
    let rule = |i: usize| {
        format!(
            r#"{{"id":{i},"app":"shop-frontend","ip":"10.20.30.40","port":8719,"limitApp":"default","resource":"GET:/api/v1/orders/{i}","grade":1,"count":20.0,"strategy":0,"refResource":null,"controlBehavior":0,"clusterMode":false,"clusterConfig":{{"flowId":null,"thresholdType":0,"fallbackToLocalWhenFail":true,"strategy":0,"sampleCount":10,"windowIntervalMs":1000}},"gmtCreate":1576296044500,"gmtModified":1576296044500}}"#
        )
    };
    let all: Vec<String> = (0..10_000).map(rule).collect();
    let json = format!(r#"{{"flowRules":[{}]}}"#, all.join(","));
    let rules = rules(&json).unwrap();
    assert_eq!(rules.flow.len(), 10_000);
    assert_eq!(rules.flow[9999].id().as_str(), "9999");
    assert!(Engine::new(rules).is_ok());
}

// === Documents that are refused ===

#[test]
fn what_is_no_json_is_refused() {
    let cases: [(&[u8], &str); 24] = [
        (b"", "document: `` is no document; write at least `{}`"),
        (b" \n\t", "document: `` is no document; write at least `{}`"),
        (
            b"{",
            "document: `{` breaks off on line 1, column 1 (EOF while parsing an object); close what is open",
        ),
        (
            b"{\n  \"flowRules\": [",
            "document: `\"flowRules\": [` breaks off on line 2, column 16 (EOF while parsing a list); close what is open",
        ),
        (
            b"{\"mode\": \"enf",
            "document: `{\"mode\": \"enf` breaks off on line 1, column 13 (EOF while parsing a string); close what is open",
        ),
        (
            b"{\"mode\":\n\n",
            "document: `{\"mode\":` breaks off on line 3, column 1 (EOF while parsing a value); close what is open",
        ),
        (
            b"{\n  \"flowRules\": [],\n  \"mode\" \"shadow\"\n}",
            "document: `\"mode\" \"` goes wrong on line 3, column 10 (expected `:`); correct it there",
        ),
        (
            b"{\"mode\": shadow}",
            "document: `{\"mode\": s` goes wrong on line 1, column 10 (expected value); correct it there",
        ),
        (
            b"{\"mode\": null,}",
            "document: `{\"mode\": null,}` goes wrong on line 1, column 15 (trailing comma); correct it there",
        ),
        (
            b"{mode: null}",
            "document: `{m` goes wrong on line 1, column 2 (key must be a string); correct it there",
        ),
        (
            b"{\n  // limits\n}",
            "document: `/` goes wrong on line 2, column 3 (key must be a string); correct it there",
        ),
        (
            b"{} {}",
            "document: `{} {` goes wrong on line 1, column 4 (trailing characters); correct it there",
        ),
        (
            b"{\"envoy\": tru}",
            "document: `{\"envoy\": tru}` goes wrong on line 1, column 14 (expected ident); correct it there",
        ),
        (
            b"[1 2]",
            "document: `[1 2` goes wrong on line 1, column 4 (expected `,` or `]`); correct it there",
        ),
        (
            b"[01]",
            "document: `[01` goes wrong on line 1, column 3 (invalid number); correct it there",
        ),
        (
            b"{\"envoy\": 1e999}",
            "document: `{\"envoy\": 1e999` goes wrong on line 1, column 15 (number out of range); correct it there",
        ),
        (
            b"[\"\\x\"]",
            "document: `[\"\\x` goes wrong on line 1, column 4 (invalid escape); correct it there",
        ),
        (
            b"[\"\\ud800\"]",
            "document: `[\"\\ud800\"` goes wrong on line 1, column 9 (unexpected end of hex escape); correct it there",
        ),
        (
            b"{\"envoy\": \"a\nb\"}",
            "document: `{\"envoy\": \"a` goes wrong on line 2, column 1 (control character (\\u0000-\\u001F) found while parsing a string); correct it there",
        ),
        (
            "{\"flowRules\": {\"größe, größer, am größten\" €".as_bytes(),
            "document: `: {\"größe, größer, am größten\" €` goes wrong on line 1, column 50 (expected `:`); correct it there",
        ),
        (
            b"flowRules:\n- resource: login",
            "document: `fl` goes wrong on line 1, column 2 (expected ident); correct it there",
        ),
        (
            "[é]".as_bytes(),
            "document: `[é` goes wrong on line 1, column 2 (expected value); correct it there",
        ),
        (
            b"{\n\"mode\": \"\xe9\"}",
            "document: `0xe9` on line 2 is not UTF-8; save the document as UTF-8",
        ),
        (
            b"\x00",
            "document: `\\u{0}` goes wrong on line 1, column 1 (expected value); correct it there",
        ),
    ];
    for (json, sentence) in cases {
        assert_eq!(says(json), sentence, "{}", String::from_utf8_lossy(json));
    }
}

#[test]
fn a_deep_document_is_refused() {
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    assert!(Value::from_json(nested(127)).is_ok());
    let sentence = "document: `[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[` is nested too deep on line 1, column 128; use at most 127 levels";
    assert_eq!(says(nested(5000)), sentence);
    assert_eq!(says("[".repeat(5000)), sentence);
    let objects = r#"{"envoy":"#.repeat(5000);
    assert_eq!(
        says(&objects),
        "document: `oy\":{\"envoy\":{\"envoy\":{\"envoy\":{` is nested too deep on line 1, column 1144; use at most 127 levels"
    );
}

#[test]
fn a_long_document_is_refused() {
    let padded = |length: usize| format!("{{{}}}", " ".repeat(length - 2));
    assert!(Value::from_json(padded(MAX_DOCUMENT)).is_ok());
    for length in [MAX_DOCUMENT + 1, 10_000_000] {
        let sentence =
            format!("document: `{length}` bytes are too long a document; use at most 8388608");
        assert_eq!(says(padded(length)), sentence);
    }
    // It is not looked at, whatever it is.
    assert_eq!(
        says(vec![0xff; 10_000_000]),
        "document: `10000000` bytes are too long a document; use at most 8388608"
    );
}

#[test]
fn a_document_of_the_wrong_form_is_refused() {
    let keys = "`flowRules`, `mode`, `envoy`";
    let cases = [
        ("null", "document: `null` is no value; use an object".into()),
        ("5", "document: `5` is a number; use an object".into()),
        (
            r#""{}""#,
            "document: `{}` is a string; use an object".into(),
        ),
        (
            r#"[{"resource": "login", "count": 1}]"#,
            "document: `[…]` is an array; put it in an object, under `flowRules`".into(),
        ),
        (
            r#"{"degradeRules": []}"#,
            format!("document: `degradeRules` is no key here; use one of {keys}"),
        ),
        (
            r#"{"flowrules": []}"#,
            "document: `flowrules` is no key here; use `flowRules`, or one of `mode`, `envoy`"
                .into(),
        ),
        (
            r#"{"": 1}"#,
            format!("document: `` is no key here; use one of {keys}"),
        ),
        (
            r#"{"mode": "shadow", "mode": "shadow"}"#,
            "document: `mode` is given twice; keep one of the two".into(),
        ),
        (
            r#"{"envoy": {}, "envoy": {}}"#,
            "document: `envoy` is given twice; keep one of the two".into(),
        ),
        (
            r#"{"flowRules": {}}"#,
            "flowRules: `{…}` is an object; use an array".into(),
        ),
        (
            r#"{"flowRules": "[]"}"#,
            "flowRules: `[]` is a string; use an array".into(),
        ),
        (
            r#"{"flowRules": [[]]}"#,
            "flowRules[0]: `[…]` is an array; use an object".into(),
        ),
        (
            r#"{"flowRules": [null]}"#,
            "flowRules[0]: `null` is no value; use an object".into(),
        ),
        (
            r#"{"mode": "off"}"#,
            "mode: `off` is not available; use one of `enforce`, `shadow`".into(),
        ),
        (
            r#"{"mode": 1}"#,
            "mode: `1` is not available; use one of `enforce`, `shadow`".into(),
        ),
        (
            r#"{"mode": true}"#,
            "mode: `true` is not available; use one of `enforce`, `shadow`".into(),
        ),
    ];
    for (json, sentence) in cases {
        assert_eq!(says(json), sentence, "{json}");
    }
}

#[test]
fn a_rule_without_what_it_needs_is_refused() {
    let cases = [
        ("{}", "flowRules[1]: `resource` is missing; add it"),
        (
            r#"{"resource": "a"}"#,
            "flowRules[1]: `count` is missing; add it",
        ),
        (
            r#"{"count": 1}"#,
            "flowRules[1]: `resource` is missing; add it",
        ),
        (
            r#"{"resource": null, "count": 1}"#,
            "flowRules[1].resource: `null` is no value; use a string",
        ),
        (
            r#"{"resource": "a", "count": null}"#,
            "flowRules[1].count: `null` is no value; use a number",
        ),
        (
            r#"{"resource": 5, "count": 1}"#,
            "flowRules[1].resource: `5` is a number; use a string",
        ),
        (
            r#"{"resource": "", "count": 1}"#,
            "flowRules[1].resource: `` is no name; use 1 to 256 bytes",
        ),
        (
            r#"{"resource": "a", "count": "5"}"#,
            "flowRules[1].count: `5` is a string; use a number",
        ),
        (
            r#"{"resource": "a", "count": true}"#,
            "flowRules[1].count: `true` is a boolean; use a number",
        ),
        (
            r#"{"resource": "a", "count": [1]}"#,
            "flowRules[1].count: `[…]` is an array; use a number",
        ),
        (
            r#"{"resource": "a", "count": -0.5}"#,
            "flowRules[1].count: `-0.5` is no count; use a number from 0 to 9007199254740992",
        ),
        (
            r#"{"resource": "a", "count": 9007199254740994}"#,
            "flowRules[1].count: `9007199254740994` is no count; use a number from 0 to 9007199254740992",
        ),
    ];
    for (rule, sentence) in cases {
        let json = format!(r#"{{"flowRules": [{{"resource": "a", "count": 1}}, {rule}]}}"#);
        assert_eq!(says(&json), sentence, "{rule}");
    }
    let name = "a".repeat(257);
    assert_eq!(
        says(format!(
            r#"{{"flowRules": [{{"resource": "{name}", "count": 1}}]}}"#
        )),
        format!(
            "flowRules[0].resource: `{}…` is no name; use 1 to 256 bytes",
            "a".repeat(64)
        )
    );
}

#[test]
fn a_field_of_a_rule_that_is_wrong_is_refused() {
    let whole = |range: &str| format!("is not possible; use a whole number from {range}");
    let (interval, samples) = (whole("1 to 315360000000"), whole("1 to 1000"));
    let cases = [
        ("id", "[]", "`[…]` is an array; use a string"),
        ("id", "true", "`true` is a boolean; use a string"),
        (
            "id",
            r#""""#,
            "`` is no id; use 1 to 256 characters of printable ASCII",
        ),
        (
            "id",
            r#""größe""#,
            "`größe` is no id; use 1 to 256 characters of printable ASCII",
        ),
        (
            "id",
            r#""a\nb\u202e\"""#,
            "`a\\nb\\u{202e}\"` is no id; use 1 to 256 characters of printable ASCII",
        ),
        (
            "id",
            "1.5",
            "`1.5` is not possible; use a whole number from 0 to 9007199254740992",
        ),
        ("intervalMs", "0", &format!("`0` {interval}")),
        ("intervalMs", "-1000", &format!("`-1000` {interval}")),
        ("intervalMs", "0.5", &format!("`0.5` {interval}")),
        (
            "intervalMs",
            "315360000001",
            &format!("`315360000001` {interval}"),
        ),
        (
            "intervalMs",
            r#""1000""#,
            "`1000` is a string; use a whole number from 1 to 315360000000",
        ),
        ("sampleCount", "0", &format!("`0` {samples}")),
        ("sampleCount", "1001", &format!("`1001` {samples}")),
        (
            "sampleCount",
            "4294967298",
            &format!("`4294967298` {samples}"),
        ),
        ("sampleCount", "2.5", &format!("`2.5` {samples}")),
        (
            "sampleCount",
            "false",
            "`false` is a boolean; use a whole number from 1 to 1000",
        ),
        (
            "sampleCount",
            "7",
            "`7` does not divide the 1000 ms interval; use one of 1, 2, 4, 5, 8, 10, 20, 25, 40, 50, 100",
        ),
        (
            "window",
            r#""fast""#,
            "`fast` is not available; use one of `strict`, `sentinel`, `weighted`",
        ),
        (
            "window",
            "0",
            "`0` is not available; use one of `strict`, `sentinel`, `weighted`",
        ),
        (
            "grade",
            "2",
            "`2` is not available; use one of `concurrency`, `qps`",
        ),
        (
            "grade",
            "0.5",
            "`0.5` is not available; use one of `concurrency`, `qps`",
        ),
        (
            "grade",
            r#""1""#,
            "`1` is not available; use one of `concurrency`, `qps`",
        ),
        (
            "grade",
            r#""QPS""#,
            "`QPS` is not available; use one of `concurrency`, `qps`",
        ),
        (
            "grade",
            "{}",
            "`{…}` is not available; use one of `concurrency`, `qps`",
        ),
        ("controlBehavior", "1", "`1` is not available; use `reject`"),
        ("controlBehavior", "2", "`2` is not available; use `reject`"),
        ("controlBehavior", "3", "`3` is not available; use `reject`"),
        (
            "controlBehavior",
            r#""warmUp""#,
            "`warmUp` is not available; use `reject`",
        ),
        (
            "controlBehavior",
            "[]",
            "`[…]` is not available; use `reject`",
        ),
        ("limitApp", "5", "`5` is a number; use a string"),
        ("strategy", "1", "`1` is not available; use `direct`"),
        (
            "strategy",
            r#""chain""#,
            "`chain` is not available; use `direct`",
        ),
        (
            "refResource",
            r#""pay""#,
            "`pay` is not available; leave it out",
        ),
        ("refResource", "5", "`5` is a number; use a string"),
        (
            "mode",
            r#""on""#,
            "`on` is not available; use one of `enforce`, `shadow`",
        ),
        (
            "mode",
            "0",
            "`0` is not available; use one of `enforce`, `shadow`",
        ),
        (
            "compat",
            r#""java""#,
            "`java` is not available; use `sentinel`",
        ),
        ("compat", "true", "`true` is not available; use `sentinel`"),
    ];
    for (field, value, sentence) in cases {
        let json = one_rule(&format!(r#", "{field}": {value}"#));
        assert_eq!(
            says(&json),
            format!("flowRules[0].{field}: {sentence}"),
            "{json}"
        );
    }
}

#[test]
fn fields_that_do_not_go_together_are_refused() {
    let cases = [
        (
            r#""intervalMs": 999, "sampleCount": 10"#,
            "sampleCount: `10` does not divide the 999 ms interval; use one of 1, 3, 9, 27, 37",
        ),
        (
            r#""grade": "concurrency", "window": "strict""#,
            "window: `strict` means nothing to a limit on concurrency; leave it out",
        ),
        (
            r#""grade": 0, "intervalMs": 1000"#,
            "intervalMs: `1000` means nothing to a limit on concurrency; leave it out",
        ),
        (
            r#""grade": 0, "sampleCount": "x""#,
            "sampleCount: `x` means nothing to a limit on concurrency; leave it out",
        ),
        (
            r#""compat": "sentinel", "window": "strict""#,
            "window: `strict` does not go with `compat`; use `sentinel`, or leave it out",
        ),
        (
            r#""compat": "sentinel", "intervalMs": 2000"#,
            "intervalMs: `2000` does not go with `compat`; use `1000`, or leave it out",
        ),
        (
            r#""compat": "sentinel", "intervalMs": "1000""#,
            "intervalMs: `1000` does not go with `compat`; use `1000`, or leave it out",
        ),
        (
            r#""compat": "sentinel", "sampleCount": 7"#,
            "sampleCount: `7` does not go with `compat`; use `2`, or leave it out",
        ),
    ];
    for (fields, sentence) in cases {
        assert_eq!(
            says(one_rule(&format!(", {fields}"))),
            format!("flowRules[0].{sentence}"),
            "{fields}"
        );
    }
}

/// The keys of a rule, as a sentence lists them.
const RULE_KEYS: [&str; 20] = [
    "id",
    "resource",
    "count",
    "intervalMs",
    "sampleCount",
    "window",
    "grade",
    "controlBehavior",
    "limitApp",
    "strategy",
    "refResource",
    "mode",
    "compat",
    "clusterMode",
    "clusterConfig",
    "gmtCreate",
    "gmtModified",
    "app",
    "ip",
    "port",
];

#[test]
fn an_unknown_field_is_refused_with_those_that_are_known() {
    let list = |keys: &[&str]| {
        keys.iter()
            .map(|key| format!("`{key}`"))
            .collect::<Vec<_>>()
            .join(", ")
    };
    for key in [
        "warmUpPeriodSec",
        "maxQueueingTimeMs",
        "coldFactor",
        "key",
        "burst",
        "threshold",
        "x",
        "\\u0007",
    ] {
        let shown = if key.starts_with('\\') { "\\u{7}" } else { key };
        assert_eq!(
            says(one_rule(&format!(r#", "{key}": null"#))),
            format!(
                "flowRules[0]: `{shown}` is no key here; use one of {}",
                list(&RULE_KEYS)
            )
        );
    }
    for (key, meant) in [
        ("cuont", "count"),
        ("resourse", "resource"),
        ("interval_ms", "intervalMs"),
        ("intervalSec", "intervalMs"),
        ("controlBehaviour", "controlBehavior"),
        ("limitapp", "limitApp"),
        ("Id", "id"),
    ] {
        let others: Vec<&str> = RULE_KEYS
            .into_iter()
            .filter(|known| *known != meant)
            .collect();
        assert_eq!(
            says(one_rule(&format!(r#", "{key}": 5"#))),
            format!(
                "flowRules[0]: `{key}` is no key here; use `{meant}`, or one of {}",
                list(&others)
            )
        );
    }
}

#[test]
fn a_misspelt_key_is_named_before_what_is_then_missing() {
    let sentence = says(r#"{"flowRules": [{"resorce": "login", "count": 1}]}"#);
    assert!(
        sentence.starts_with("flowRules[0]: `resorce` is no key here; use `resource`, or "),
        "{sentence}"
    );
}

#[test]
fn every_field_is_read_or_has_no_meaning_here() {
    let without_meaning = &RULE_KEYS[13..];
    for key in RULE_KEYS {
        let others = ["resource", "count"]
            .into_iter()
            .filter(|needed| *needed != key);
        let others: String = others
            .map(|needed| {
                format!(
                    r#", "{needed}": {}"#,
                    if needed == "count" { "1" } else { "\"a\"" }
                )
            })
            .collect();
        for value in [r#"{"a": [1, {"a": 2}]}"#, "[]", "-1.5"] {
            let json = format!(r#"{{"flowRules": [{{"{key}": {value}{others}}}]}}"#);
            if without_meaning.contains(&key) {
                assert!(rules(&json).is_ok(), "{json}");
            } else {
                assert!(
                    says(&json).starts_with(&format!("flowRules[0].{key}: ")),
                    "{}",
                    says(&json)
                );
            }
        }
    }
}

#[test]
fn a_field_that_stands_twice_is_refused() {
    for key in RULE_KEYS {
        let json = format!(r#"{{"flowRules": [{{"{key}": null, "{key}": 1}}]}}"#);
        assert_eq!(
            says(json),
            format!("flowRules[0]: `{key}` is given twice; keep one of the two")
        );
    }
}

#[test]
fn a_sentence_is_one_line_and_short() {
    let long = "\u{1}\\n\u{e9}`".repeat(100_000);
    for json in [
        format!(r#"{{"{long}": 1}}"#),
        format!(r#"{{"mode": "{long}"}}"#),
        format!(r#"{{"flowRules": "{long}"}}"#),
        one_rule(&format!(r#", "{long}": 1"#)),
        one_rule(&format!(r#", "id": "{long}""#)),
        one_rule(&format!(r#", "limitApp": "{long}""#)),
        one_rule(&format!(r#", "refResource": "{long}""#)),
        one_rule(r#", "intervalMs": 1e300"#),
        r#"{"flowRules": [{"resource": "a", "count": 1e300}]}"#.into(),
        long.clone(),
    ] {
        let json = json.replace('\u{1}', "\\u0001");
        let sentence = says(&json);
        assert!(
            sentence.len() < 900 && !sentence.contains(char::is_control),
            "{sentence}"
        );
    }
    assert_eq!(
        says(format!(r#"{{"mode": "{}\n"}}"#, "x".repeat(63))),
        format!(
            "mode: `{}\\n` is not available; use one of `enforce`, `shadow`",
            "x".repeat(63)
        )
    );
    assert_eq!(
        says(format!(r#"{{"mode": "{}"}}"#, "x".repeat(65))),
        format!(
            "mode: `{}…` is not available; use one of `enforce`, `shadow`",
            "x".repeat(64)
        )
    );
}

#[test]
fn rules_that_do_not_go_together_are_found_in_the_document() {
    let says = |json: &str| {
        let error = Engine::new(rules(json).unwrap())
            .err()
            .expect("they go together");
        ConfigError::from_rules(&error).to_string()
    };
    assert_eq!(
        says(
            r#"{"flowRules": [{"resource": "a", "count": 1}, {"resource": "b", "count": 1}, {"resource": "a", "count": 2}]}"#
        ),
        "flowRules[2].id: `a` is the id of an earlier rule; give one of them another `id`"
    );
    let many: Vec<String> = (0..=MAX_RULES_PER_RESOURCE)
        .map(|i| format!(r#"{{"resource": "a\nb", "count": 1, "id": "{i}"}}"#))
        .collect();
    assert_eq!(
        says(&format!(r#"{{"flowRules": [{}]}}"#, many.join(","))),
        "flowRules[64].resource: `a\\nb` has too many rules; use at most 64 for one resource"
    );
}

// === The reader ===

#[test]
fn a_tree_is_read_as_a_text_is() {
    let object = |entries: &[(&str, Value)]| {
        Value::Object(
            entries
                .iter()
                .map(|(key, value)| (key.to_string(), value.clone()))
                .collect(),
        )
    };
    let rule = object(&[
        ("resource", Value::String("login".into())),
        ("count", Value::Number(100.0)),
    ]);
    let document = object(&[("flowRules", Value::Array(vec![rule.clone()]))]);
    assert_eq!(read(&document).unwrap().rules.flow, [login()]);
    assert_eq!(Value::from_json(one_rule("")).unwrap(), document);

    // Numbers that no JSON can have.
    for (count, shown) in [
        (f64::NAN, "NaN"),
        (f64::INFINITY, "Infinity"),
        (-f64::INFINITY, "-Infinity"),
    ] {
        let rule = object(&[
            ("resource", Value::String("login".into())),
            ("count", Value::Number(count)),
        ]);
        let document = object(&[("flowRules", Value::Array(vec![rule]))]);
        let sentence = format!(
            "flowRules[0].count: `{shown}` is no count; use a number from 0 to 9007199254740992"
        );
        assert_eq!(read(&document).unwrap_err().to_string(), sentence);
    }
}

#[test]
fn a_path_leads_from_the_root_to_the_value() {
    let value = Value::from_json(r#"{"a": [{"b\n": true}]}"#).unwrap();
    for (root, path) in [("document", "a[0].b\\n"), ("envoy", "envoy.a[0].b\\n")] {
        let at = At::new(root, &value);
        let a = at.object(&["a"]).unwrap().need("a").unwrap();
        let item = a.array().unwrap().next().unwrap();
        let (key, b) = item.entries().unwrap().next().unwrap();
        assert_eq!(
            (key, b.to_string().as_str(), b.boolean()),
            ("b\n", path, Ok(true))
        );
        let error = b.number().unwrap_err();
        assert_eq!(
            (error.path(), error.message()),
            (path, "`true` is a boolean; use a number")
        );
        assert_eq!(
            a.boolean().unwrap_err().message(),
            "`[…]` is an array; use `true` or `false`"
        );
    }
}

#[test]
fn a_number_is_shown_as_one_writes_it() {
    let cases = [
        (0.0, "0"),
        (-0.0, "0"),
        (1.0, "1"),
        (-1.0, "-1"),
        (0.1, "0.1"),
        (-0.5, "-0.5"),
        (0.0001, "0.0001"),
        (0.3 - 0.1, "0.2"),
        (1.0 / 3.0, "0.33333333333333"),
        (99.999, "99.999"),
        (0.999_999_999_999_999_9, "1"),
        (123_456_789.1, "123456789.1"),
        (9_007_199_254_740_994.0, "9007199254740994"),
        (1e18, "1000000000000000000"),
        (1e19, "1e19"),
        (2.5e-7, "2.5e-7"),
        (-1e300, "-1e300"),
        (f64::MAX, "1.797693135e308"),
        (f64::MIN_POSITIVE, "2.225073859e-308"),
        (5e-324, "4.940656458e-324"),
    ];
    for (number, shown) in cases {
        let sentence = format!("document: `{shown}` is a number; use an object");
        assert_eq!(
            read(&Value::Number(number)).unwrap_err().to_string(),
            sentence,
            "{number:e}"
        );
    }
}
