//! Documents: the rules read from them, and the sentences that refuse them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests are tests"
)]

use leapgate::config::{ConfigError, KEYS, Located, MAX_DOCUMENT, Value, read};
use leapgate::rule::{
    AuthorityRule, AuthorityStrategy, Comparison, Counting, DegradeGrade, DegradeRule, FlowRule,
    Grade, LimitApp, MAX_LISTED_ORIGINS, MAX_RULES_PER_RESOURCE, MAX_SYSTEM_RULES, MaxQueueing,
    Mode, RuleGeometry, RuleId, SystemRule, Target, WarmUp,
};
use leapgate::stats::Window;
use leapgate::{Engine, Rules};
use std::collections::BTreeSet;

fn rules(json: &str) -> Result<Rules, ConfigError> {
    read(&Value::from_json(json)?).map(|document| document.rules)
}

/// The error for a document.
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

fn warm_up(period_sec: u32, cold_factor: u32) -> WarmUp {
    WarmUp::new(period_sec, cold_factor).unwrap()
}

fn queue(millis: u64) -> MaxQueueing {
    MaxQueueing::from_millis(millis).unwrap()
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
        r#"{"degradeRules": [], "systemRules": [], "authorityRules": null}"#,
        "\u{feff} {}\n",
    ] {
        assert_eq!(rules(json), Ok(Rules::default()), "{json}");
    }
}

#[test]
fn the_address_of_a_schema_changes_no_decision() {
    let rule = r#""flowRules": [{"resource": "login", "count": 5}]"#;
    let without = rules(&format!("{{{rule}}}")).unwrap();
    for schema in [
        r#""https://example.com/config.schema.json""#,
        r#""""#,
        "null",
    ] {
        let json = format!(r#"{{"$schema": {schema}, {rule}}}"#);
        assert_eq!(rules(&json).as_ref(), Ok(&without), "{json}");
    }
    for (schema, sentence) in [
        ("7", "$schema: `7` is a number; use a string"),
        ("true", "$schema: `true` is a boolean; use a string"),
        (r#"["a"]"#, "$schema: `[…]` is an array; use a string"),
        (
            r#"{"a": 1}"#,
            "$schema: `{…}` is an object; use a string",
        ),
    ] {
        assert_eq!(says(format!(r#"{{"$schema": {schema}}}"#)), sentence);
    }
    assert_eq!(
        says(r#"{"$schema": "a", "$schema": "b"}"#),
        "document: `$schema` is given twice; keep one of the two"
    );
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
        (
            r#""controlBehavior": "warmUp", "warmUpPeriodSec": 60, "coldFactor": 5"#,
            login().warm_up(warm_up(60, 5)),
        ),
        (
            r#""controlBehavior": "warmUp""#,
            login().warm_up(WarmUp::default()),
        ),
        (
            r#""controlBehavior": "throttle", "maxQueueingTimeMs": 0"#,
            login().throttle(queue(0)),
        ),
        (
            r#""controlBehavior": "throttle", "intervalMs": 60000"#,
            per(60_000, None).throttle(queue(500)),
        ),
        (
            r#""controlBehavior": "warmUpThrottle", "warmUpPeriodSec": 1, "maxQueueingTimeMs": 2147483647"#,
            login().warm_up_throttle(warm_up(1, 3), queue(2_147_483_647)),
        ),
        (
            r#""controlBehavior": "warmUp", "window": "weighted", "sampleCount": 10"#,
            per(1000, Some(10))
                .counting(Counting::Weighted)
                .warm_up(WarmUp::default()),
        ),
        (r#""limitApp": "default""#, login()),
        (r#""limitApp": "other""#, origin("other")),
        (r#""limitApp": "app-a""#, origin("app-a")),
        (r#""strategy": "direct""#, login()),
        (
            r#""strategy": "relate", "refResource": "pay""#,
            login().relate("pay").unwrap(),
        ),
        (
            r#""strategy": "chain", "refResource": "web", "grade": "concurrency""#,
            login().concurrency().chain("web").unwrap(),
        ),
        (r#""refResource": """#, login()),
        (r#""mode": "enforce""#, login()),
        (r#""mode": "shadow""#, login().in_mode(Mode::Shadow)),
        (r#""compat": "sentinel""#, login().sentinel()),
        (
            r#""compat": "sentinel", "controlBehavior": "throttle", "maxQueueingTimeMs": 200"#,
            login().throttle(queue(200)).sentinel(),
        ),
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
        "warmUpPeriodSec",
        "coldFactor",
        "maxQueueingTimeMs",
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
fn numbered_behaviors_and_strategies_mean_what_they_mean_in_sentinel() {
    assert_eq!(
        rule(r#", "controlBehavior": 1, "warmUpPeriodSec": 20"#),
        login().warm_up(warm_up(20, 3))
    );
    assert_eq!(
        rule(r#", "controlBehavior": 2, "maxQueueingTimeMs": 20"#),
        login().throttle(queue(20))
    );
    assert_eq!(
        rule(r#", "controlBehavior": 3"#),
        login().warm_up_throttle(warm_up(10, 3), queue(500))
    );
    assert_eq!(
        rule(r#", "strategy": 1, "refResource": "pay""#),
        login().relate("pay").unwrap()
    );
    assert_eq!(
        rule(r#", "strategy": 2, "refResource": "web""#),
        login().chain("web").unwrap()
    );
}

#[test]
fn what_sentinel_writes_and_does_not_use_is_read() {
    let defaults = r#", "warmUpPeriodSec": 10, "maxQueueingTimeMs": 500, "coldFactor": 3"#;
    assert_eq!(rule(defaults), login());
    assert_eq!(
        rule(
            r#", "controlBehavior": 0, "warmUpPeriodSec": 0, "maxQueueingTimeMs": 7, "strategy": 0, "refResource": "pay""#
        ),
        login()
    );
    assert_eq!(
        rule(r#", "grade": 0, "controlBehavior": 2, "maxQueueingTimeMs": 7"#),
        login().concurrency()
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
        (b"", "document: `` is not a document; write at least `{}`"),
        (
            b" \n\t",
            "document: `` is not a document; write at least `{}`",
        ),
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
            format!("document: `{length}` bytes are too many for a document; use at most 8388608");
        assert_eq!(says(padded(length)), sentence);
    }
    // Its value is ignored.
    assert_eq!(
        says(vec![0xff; 10_000_000]),
        "document: `10000000` bytes are too many for a document; use at most 8388608"
    );
}

#[test]
fn a_document_of_the_wrong_form_is_refused() {
    let rest: Vec<String> = KEYS[1..].iter().map(|key| format!("`{key}`")).collect();
    let rest = rest.join(", ");
    let keys = format!("`flowRules`, {rest}");
    let cases = [
        (
            "null",
            "document: `null` is not a value; use an object".into(),
        ),
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
            r#"{"isolation": []}"#,
            format!("document: `isolation` is not a known key; use one of {keys}"),
        ),
        (
            r#"{"flowrules": []}"#,
            format!("document: `flowrules` is not a known key; use `flowRules`, or one of {rest}"),
        ),
        (
            r#"{"": 1}"#,
            format!("document: `` is not a known key; use one of {keys}"),
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
            r#"{"degradeRules": {}}"#,
            "degradeRules: `{…}` is an object; use an array".into(),
        ),
        (
            r#"{"systemRules": {"qps": 5}}"#,
            "systemRules: `{…}` is an object; use an array".into(),
        ),
        (
            r#"{"authorityRules": [{}, 5]}"#,
            "authorityRules[0]: `resource` is missing; add it".into(),
        ),
        (
            r#"{"systemRules": [{}, 5]}"#,
            "systemRules[1]: `5` is a number; use an object".into(),
        ),
        (
            r#"{"flowRules": [[]]}"#,
            "flowRules[0]: `[…]` is an array; use an object".into(),
        ),
        (
            r#"{"flowRules": [null]}"#,
            "flowRules[0]: `null` is not a value; use an object".into(),
        ),
        (
            r#"{"mode": "off"}"#,
            "mode: `off` is not a valid value; use one of `enforce`, `shadow`".into(),
        ),
        (
            r#"{"mode": 1}"#,
            "mode: `1` is not a valid value; use one of `enforce`, `shadow`".into(),
        ),
        (
            r#"{"mode": true}"#,
            "mode: `true` is not a valid value; use one of `enforce`, `shadow`".into(),
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
            "flowRules[1].resource: `null` is not a value; use a string",
        ),
        (
            r#"{"resource": "a", "count": null}"#,
            "flowRules[1].count: `null` is not a value; use a number",
        ),
        (
            r#"{"resource": 5, "count": 1}"#,
            "flowRules[1].resource: `5` is a number; use a string",
        ),
        (
            r#"{"resource": "", "count": 1}"#,
            "flowRules[1].resource: `` is not a valid name; use 1 to 256 bytes",
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
            "flowRules[1].count: `-0.5` is not a valid count; use a number from 0 to 9007199254740992",
        ),
        (
            r#"{"resource": "a", "count": 9007199254740994}"#,
            "flowRules[1].count: `9007199254740994` is not a valid count; use a number from 0 to 9007199254740992",
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
            "flowRules[0].resource: `{}…` is not a valid name; use 1 to 256 bytes",
            "a".repeat(64)
        )
    );
}

#[test]
fn a_field_of_a_rule_that_is_wrong_is_refused() {
    let whole = |range: &str| format!("is not possible; use a whole number from {range}");
    let (interval, samples) = (whole("1 to 315360000000"), whole("1 to 1000"));
    let from_zero = whole("0 to 2147483647");
    let cases = [
        ("id", "[]", "`[…]` is an array; use a string"),
        ("id", "true", "`true` is a boolean; use a string"),
        (
            "id",
            r#""""#,
            "`` is not a valid id; use 1 to 256 characters of printable ASCII",
        ),
        (
            "id",
            r#""größe""#,
            "`größe` is not a valid id; use 1 to 256 characters of printable ASCII",
        ),
        (
            "id",
            r#""a\nb\u202e\"""#,
            "`a\\nb\\u{202e}\"` is not a valid id; use 1 to 256 characters of printable ASCII",
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
            "`fast` is not a valid value; use one of `strict`, `sentinel`, `weighted`",
        ),
        (
            "window",
            "0",
            "`0` is not a valid value; use one of `strict`, `sentinel`, `weighted`",
        ),
        (
            "grade",
            "2",
            "`2` is not a valid value; use one of `concurrency`, `qps`",
        ),
        (
            "grade",
            "0.5",
            "`0.5` is not a valid value; use one of `concurrency`, `qps`",
        ),
        (
            "grade",
            r#""1""#,
            "`1` is not a valid value; use one of `concurrency`, `qps`",
        ),
        (
            "grade",
            r#""QPS""#,
            "`QPS` is not a valid value; use one of `concurrency`, `qps`",
        ),
        (
            "grade",
            "{}",
            "`{…}` is not a valid value; use one of `concurrency`, `qps`",
        ),
        (
            "controlBehavior",
            "4",
            "`4` is not a valid value; use one of `reject`, `warmUp`, `throttle`, `warmUpThrottle`",
        ),
        (
            "controlBehavior",
            r#""warmup""#,
            "`warmup` is not a valid value; use one of `reject`, `warmUp`, `throttle`, `warmUpThrottle`",
        ),
        (
            "controlBehavior",
            "[]",
            "`[…]` is not a valid value; use one of `reject`, `warmUp`, `throttle`, `warmUpThrottle`",
        ),
        ("warmUpPeriodSec", "-1", &format!("`-1` {from_zero}")),
        (
            "warmUpPeriodSec",
            "20",
            "`20` means nothing to `reject`; leave it out",
        ),
        (
            "warmUpPeriodSec",
            r#""10""#,
            "`10` is a string; use a whole number from 0 to 2147483647",
        ),
        ("coldFactor", "2.5", &format!("`2.5` {from_zero}")),
        (
            "coldFactor",
            "2",
            "`2` means nothing to `reject`; leave it out",
        ),
        (
            "maxQueueingTimeMs",
            "2147483648",
            &format!("`2147483648` {from_zero}"),
        ),
        (
            "maxQueueingTimeMs",
            "0",
            "`0` means nothing to `reject`; leave it out",
        ),
        ("limitApp", "5", "`5` is a number; use a string"),
        ("strategy", "1", "`1` needs a `refResource`; add it"),
        (
            "strategy",
            r#""chain""#,
            "`chain` needs a `refResource`; add it",
        ),
        (
            "strategy",
            "3",
            "`3` is not a valid value; use one of `direct`, `relate`, `chain`",
        ),
        (
            "refResource",
            r#""pay""#,
            "`pay` means nothing to `direct`; use the `strategy` `relate` or `chain`, or leave it out",
        ),
        ("refResource", "5", "`5` is a number; use a string"),
        (
            "mode",
            r#""on""#,
            "`on` is not a valid value; use one of `enforce`, `shadow`",
        ),
        (
            "mode",
            "0",
            "`0` is not a valid value; use one of `enforce`, `shadow`",
        ),
        (
            "compat",
            r#""java""#,
            "`java` is not a valid value; use `sentinel`",
        ),
        (
            "compat",
            "true",
            "`true` is not a valid value; use `sentinel`",
        ),
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
            r#""controlBehavior": "warmUp", "warmUpPeriodSec": 0"#,
            "warmUpPeriodSec: `0` is not possible; use a whole number from 1 to 2147483647",
        ),
        (
            r#""controlBehavior": 3, "coldFactor": 1"#,
            "coldFactor: `1` is not possible; use a whole number from 2 to 2147483647",
        ),
        (
            r#""controlBehavior": "throttle", "coldFactor": 2"#,
            "coldFactor: `2` means nothing to `throttle`; leave it out",
        ),
        (
            r#""controlBehavior": "warmUp", "maxQueueingTimeMs": 100"#,
            "maxQueueingTimeMs: `100` means nothing to `warmUp`; leave it out",
        ),
        (
            r#""controlBehavior": "throttle", "window": "strict""#,
            "window: `strict` means nothing to `throttle`; leave it out",
        ),
        (
            r#""controlBehavior": "warmUpThrottle", "sampleCount": 10"#,
            "sampleCount: `10` means nothing to `warmUpThrottle`; leave it out",
        ),
        (
            r#""controlBehavior": "throttle", "grade": "concurrency""#,
            "controlBehavior: `throttle` means nothing to a limit on concurrency; leave it out",
        ),
        (
            r#""strategy": "relate", "refResource": """#,
            "strategy: `relate` needs a `refResource`; add it",
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

/// Keys that Sentinel writes into rules of every kind. The first two mean something to flow rules alone, the others nothing here.
const SENTINEL_KEYS: [&str; 7] = [
    "clusterMode",
    "clusterConfig",
    "gmtCreate",
    "gmtModified",
    "app",
    "ip",
    "port",
];

/// The keys of a rule, as a sentence lists them.
fn with_sentinels(keys: &[&'static str]) -> Vec<&'static str> {
    [keys, &SENTINEL_KEYS].concat()
}

/// The keys of a flow rule that have a meaning.
const RULE_KEYS: [&str; 25] = [
    "id",
    "resource",
    "count",
    "intervalMs",
    "sampleCount",
    "window",
    "grade",
    "controlBehavior",
    "warmUpPeriodSec",
    "coldFactor",
    "maxQueueingTimeMs",
    "limitApp",
    "strategy",
    "refResource",
    "key",
    "keyItems",
    "maxKeys",
    "burst",
    "enforcePercent",
    "exempt",
    "unit",
    "cost",
    "mode",
    "compat",
    "regex",
];

#[test]
fn an_unknown_field_is_refused_with_those_that_are_known() {
    let list = |keys: &[&str]| {
        keys.iter()
            .map(|key| format!("`{key}`"))
            .collect::<Vec<_>>()
            .join(", ")
    };
    for key in ["per", "threshold", "x", "\\u0007"] {
        let shown = if key.starts_with('\\') { "\\u{7}" } else { key };
        assert_eq!(
            says(one_rule(&format!(r#", "{key}": null"#))),
            format!(
                "flowRules[0]: `{shown}` is not a known key; use one of {}",
                list(&with_sentinels(&RULE_KEYS))
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
        let others: Vec<&str> = with_sentinels(&RULE_KEYS)
            .into_iter()
            .filter(|known| *known != meant)
            .collect();
        assert_eq!(
            says(one_rule(&format!(r#", "{key}": 5"#))),
            format!(
                "flowRules[0]: `{key}` is not a known key; use `{meant}`, or one of {}",
                list(&others)
            )
        );
    }
}

#[test]
fn a_misspelt_key_is_named_before_what_is_then_missing() {
    let sentence = says(r#"{"flowRules": [{"resorce": "login", "count": 1}]}"#);
    assert!(
        sentence.starts_with("flowRules[0]: `resorce` is not a known key; use `resource`, or "),
        "{sentence}"
    );
}

#[test]
fn every_field_is_read_or_has_no_meaning_here() {
    for key in with_sentinels(&RULE_KEYS) {
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
            let is_inert = SENTINEL_KEYS.contains(&key) && key != "clusterMode";
            if is_inert || (key, value) == ("exempt", "[]") {
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
    for key in with_sentinels(&RULE_KEYS) {
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
            "mode: `{}\\n` is not a valid value; use one of `enforce`, `shadow`",
            "x".repeat(63)
        )
    );
    assert_eq!(
        says(format!(r#"{{"mode": "{}"}}"#, "x".repeat(65))),
        format!(
            "mode: `{}…` is not a valid value; use one of `enforce`, `shadow`",
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
    let many = vec![r#"{"qps": 5}"#; MAX_SYSTEM_RULES];
    let many = |more| format!(r#"{{"systemRules": [{}{more}]}}"#, many.join(","));
    Engine::new(rules(&many("")).unwrap()).unwrap();
    assert_eq!(
        says(&many(r#", {"maxThread": 9}, {"avgRt": 5}"#)),
        "systemRules[64]: `66` system rules are too many; use at most 64"
    );
}

// === Degrade rules ===

/// A document of one degrade rule, which has these fields besides a resource, a count and a time.
fn one_breaker(fields: &str) -> String {
    format!(r#"{{"degradeRules": [{{"resource": "pay", "count": 1, "timeWindow": 10{fields}}}]}}"#)
}

fn pay(grade: DegradeGrade) -> DegradeRule {
    DegradeRule::new("pay", grade, 10_000).unwrap()
}

fn slow(max_rt_ms: f64, ratio: f64) -> DegradeGrade {
    DegradeGrade::slow_ratio(max_rt_ms, ratio).unwrap()
}

#[test]
fn each_field_of_a_degrade_rule_does_what_it_says() {
    let slowest = || pay(slow(1.0, 1.0));
    let errors = || pay(DegradeGrade::error_count(1.0).unwrap());
    let ratio = || pay(DegradeGrade::error_ratio(1.0).unwrap());
    let per = |interval, samples| slowest().per(interval, samples).unwrap();
    let cases = [
        ("", slowest()),
        (r#", "grade": "slowRatio""#, slowest()),
        (r#", "grade": "errorRatio""#, ratio()),
        (r#", "grade": "errorCount""#, errors()),
        (r#", "grade": 0"#, slowest()),
        (r#", "grade": 1"#, ratio()),
        (r#", "grade": 2"#, errors()),
        (r#", "slowRatioThreshold": 0.25"#, pay(slow(1.0, 0.25))),
        (
            r#", "grade": 0, "slowRatioThreshold": 0"#,
            pay(slow(1.0, 0.0)),
        ),
        (
            r#", "grade": "errorCount", "slowRatioThreshold": 1"#,
            errors(),
        ),
        (r#", "grade": 2, "slowRatioThreshold": 0.5"#, errors()),
        (r#", "grade": 1, "slowRatioThreshold": -7"#, ratio()),
        (
            r#", "minRequestAmount": 20"#,
            slowest().needing(20).unwrap(),
        ),
        (r#", "statIntervalMs": 60000"#, per(60_000, None)),
        (r#", "sampleCount": 4"#, per(1000, Some(4))),
        (
            r#", "statIntervalMs": 1050, "sampleCount": 21"#,
            per(1050, Some(21)),
        ),
        (r#", "probes": 3"#, slowest().with_probes(3).unwrap()),
        (r#", "comparison": "above""#, slowest()),
        (
            r#", "comparison": "atLeast""#,
            slowest().comparing(Comparison::AtLeast),
        ),
        (
            r#", "id": "slow""#,
            slowest().with_id(RuleId::new("slow").unwrap()),
        ),
        (r#", "id": 7"#, slowest().with_id(RuleId::new("7").unwrap())),
        (r#", "mode": "enforce""#, slowest()),
        (r#", "mode": "shadow""#, slowest().in_mode(Mode::Shadow)),
        (r#", "compat": "sentinel""#, slowest().sentinel()),
        (
            r#", "compat": "sentinel", "statIntervalMs": 2500, "sampleCount": 1, "probes": 1, "comparison": "above""#,
            per(2500, Some(1)).sentinel(),
        ),
    ];
    for (fields, expected) in cases {
        let rules = rules(&one_breaker(fields)).unwrap_or_else(|error| panic!("{fields}: {error}"));
        assert_eq!(rules.degrade, [expected], "{fields}");
    }
}

#[test]
fn the_time_of_a_degrade_rule_is_in_seconds() {
    let millis = |seconds: &str| {
        let json = format!(
            r#"{{"degradeRules": [{{"resource": "*", "count": 0, "timeWindow": {seconds}}}]}}"#
        );
        rules(&json).map(|rules| rules.degrade[0].time_window_ms())
    };
    assert_eq!(millis("1"), Ok(1000));
    assert_eq!(millis("315360000"), Ok(Window::MAX_INTERVAL_MS));
    let parts = ["0.001", "0.5", "0.3", "2.0006"].map(millis);
    assert_eq!(parts, [Ok(1), Ok(500), Ok(300), Ok(2001)]);
    for (seconds, shown) in [
        ("0", "0"),
        ("-1", "-1"),
        ("0.0004", "0.0004"),
        ("315360001", "315360001"),
    ] {
        assert_eq!(
            millis(seconds).unwrap_err().to_string(),
            format!(
                "degradeRules[0].timeWindow: `{shown}` is not possible; use a number of seconds from 0.001 to 315360000"
            )
        );
    }
}

#[test]
fn degrade_rules_from_sentinels_dashboard_are_read() {
    let json = r#"{"degradeRules": [{
        "id": 4, "app": "shop", "ip": "10.0.0.7", "port": 8719, "resource": "GET:/pay/{id}", "limitApp": "default",
        "count": 200.0, "timeWindow": 10, "grade": 0, "minRequestAmount": 5, "slowRatioThreshold": 0.5,
        "statIntervalMs": 1000, "gmtCreate": 1576296044500, "gmtModified": "2019-12-14T04:00:44.500+00:00"
    }, {
        "id": null, "app": "shop", "ip": null, "port": null, "resource": "GET:/pay/{id}", "limitApp": null,
        "count": 0.2, "timeWindow": 30, "grade": 1, "minRequestAmount": 10, "slowRatioThreshold": null,
        "statIntervalMs": 60000, "gmtCreate": null, "gmtModified": null
    }, {
        "count": 20.0, "grade": 2, "limitApp": "default", "minRequestAmount": 5, "resource": "GET:/pay/{id}",
        "slowRatioThreshold": 1.0, "statIntervalMs": 20000, "timeWindow": 5,
        "clusterMode": false, "clusterConfig": {"thresholdType": 0}
    }, {"count": 100, "resource": "GET:/old", "timeWindow": 3}]}"#;
    let rule = |grade, time| DegradeRule::new("GET:/pay/{id}", grade, time).unwrap();
    let id = RuleId::new("4").unwrap();
    let ratio = DegradeGrade::error_ratio(0.2).unwrap();
    let ratio = rule(ratio, 30_000).needing(10).unwrap();
    let count = rule(DegradeGrade::error_count(20.0).unwrap(), 5000);
    let expected = [
        rule(slow(200.0, 0.5), 10_000).with_id(id),
        ratio.per(60_000, None).unwrap(),
        count.per(20_000, None).unwrap(),
        DegradeRule::new("GET:/old", slow(100.0, 1.0), 3000).unwrap(),
    ];
    assert_eq!(rules(json).unwrap().degrade, expected);
}

#[test]
fn what_a_degrade_rule_may_leave_out_may_be_null() {
    let nulls: String = with_sentinels(&DEGRADE_RULE_KEYS)
        .iter()
        .filter(|key| !["resource", "count", "timeWindow"].contains(key))
        .map(|key| format!(r#", "{key}": null"#))
        .collect();
    let read = rules(&one_breaker(&nulls)).unwrap();
    assert_eq!(read.degrade, [pay(slow(1.0, 1.0))]);
}

#[test]
fn a_degrade_rule_that_is_wrong_is_refused() {
    let cases = [
        ("{}", ": `resource` is missing; add it"),
        (
            r#"{"resource": "a", "timeWindow": 1}"#,
            ": `count` is missing; add it",
        ),
        (
            r#"{"resource": "a", "count": 1}"#,
            ": `timeWindow` is missing; add it",
        ),
        (
            r#"{"resource": 5, "count": 1, "timeWindow": 1}"#,
            ".resource: `5` is a number; use a string",
        ),
        (
            r#"{"resource": "", "count": 1, "timeWindow": 1}"#,
            ".resource: `` is not a valid name; use 1 to 256 bytes",
        ),
        (
            r#"{"resource": "a", "count": "1", "timeWindow": 1}"#,
            ".count: `1` is a string; use a number",
        ),
        (
            r#"{"resource": "a", "count": null, "timeWindow": 1}"#,
            ".count: `null` is not a value; use a number",
        ),
        (
            r#"{"resource": "a", "count": -1, "timeWindow": 1}"#,
            ".count: `-1` is not a valid count; use a number from 0 to 9007199254740992",
        ),
        (
            r#"{"resource": "a", "count": -1, "timeWindow": 1, "slowRatioThreshold": 2}"#,
            ".count: `-1` is not a valid count; use a number from 0 to 9007199254740992",
        ),
        (
            r#"{"resource": "a", "count": 1.5, "timeWindow": 1, "grade": 1}"#,
            ".count: `1.5` is not a valid ratio; use a number from 0 to 1",
        ),
        (
            r#"{"resource": "a", "count": 1e300, "timeWindow": 1, "grade": 2}"#,
            ".count: `1e300` is not a valid count; use a number from 0 to 9007199254740992",
        ),
        (
            r#"{"resource": "a", "count": 1, "timeWindow": null}"#,
            ".timeWindow: `null` is not a value; use a number",
        ),
        (
            r#"{"resource": "a", "count": 1, "timeWindow": "10s"}"#,
            ".timeWindow: `10s` is a string; use a number",
        ),
    ];
    for (rule, sentence) in cases {
        let json = format!(r#"{{"degradeRules": [{rule}]}}"#);
        assert_eq!(says(&json), format!("degradeRules[0]{sentence}"), "{rule}");
    }
    let whole = |range: &str| format!("is not possible; use a whole number from {range}");
    let (interval, samples) = (whole("1 to 315360000000"), whole("1 to 1000"));
    let (amount, probes) = (whole("1 to 9007199254740992"), whole("1 to 100"));
    let grades = "use one of `slowRatio`, `errorRatio`, `errorCount`";
    let cases = [
        ("grade", "3", format!("`3` is not a valid value; {grades}")),
        (
            "grade",
            r#""rt""#,
            format!("`rt` is not a valid value; {grades}"),
        ),
        (
            "slowRatioThreshold",
            "1.5",
            "`1.5` is not a valid ratio; use a number from 0 to 1".into(),
        ),
        (
            "slowRatioThreshold",
            "-1",
            "`-1` is not a valid ratio; use a number from 0 to 1".into(),
        ),
        (
            "slowRatioThreshold",
            r#""1""#,
            "`1` is a string; use a number".into(),
        ),
        ("minRequestAmount", "0", format!("`0` {amount}")),
        ("minRequestAmount", "-5", format!("`-5` {amount}")),
        (
            "minRequestAmount",
            "true",
            "`true` is a boolean; use a whole number from 1 to 9007199254740992".into(),
        ),
        ("statIntervalMs", "0", format!("`0` {interval}")),
        ("statIntervalMs", "0.5", format!("`0.5` {interval}")),
        ("sampleCount", "0", format!("`0` {samples}")),
        ("sampleCount", "1001", format!("`1001` {samples}")),
        (
            "sampleCount",
            "7",
            "`7` does not divide the 1000 ms interval; use one of 1, 2, 4, 5, 8, 10, 20, 25, 40, 50, 100"
                .into(),
        ),
        ("probes", "0", format!("`0` {probes}")),
        ("probes", "101", format!("`101` {probes}")),
        (
            "comparison",
            r#"">=""#,
            "`>=` is not a valid value; use one of `above`, `atLeast`".into(),
        ),
        (
            "comparison",
            "0",
            "`0` is not a valid value; use one of `above`, `atLeast`".into(),
        ),
        ("id", "{}", "`{…}` is an object; use a string".into()),
        (
            "mode",
            r#""off""#,
            "`off` is not a valid value; use one of `enforce`, `shadow`".into(),
        ),
        (
            "compat",
            r#""golang""#,
            "`golang` is not a valid value; use `sentinel`".into(),
        ),
    ];
    for (field, value, sentence) in cases {
        assert_eq!(
            says(one_breaker(&format!(r#", "{field}": {value}"#))),
            format!("degradeRules[0].{field}: {sentence}")
        );
    }
}

#[test]
fn fields_of_a_degrade_rule_that_do_not_go_together_are_refused() {
    let cases = [
        (
            r#""grade": "errorCount", "slowRatioThreshold": 0.5"#,
            "slowRatioThreshold: `0.5` means nothing to a grade of errors; leave it out",
        ),
        (
            r#""grade": "errorRatio", "slowRatioThreshold": 7"#,
            "slowRatioThreshold: `7` means nothing to a grade of errors; leave it out",
        ),
        (
            r#""grade": 2, "slowRatioThreshold": "0.5""#,
            "slowRatioThreshold: `0.5` is a string; use a number",
        ),
        (
            r#""statIntervalMs": 999, "sampleCount": 10"#,
            "sampleCount: `10` does not divide the 999 ms interval; use one of 1, 3, 9, 27, 37",
        ),
        (
            r#""compat": "sentinel", "sampleCount": 10"#,
            "sampleCount: `10` does not go with `compat`; use `1`, or leave it out",
        ),
        (
            r#""compat": "sentinel", "probes": 2"#,
            "probes: `2` does not go with `compat`; use `1`, or leave it out",
        ),
        (
            r#""compat": "sentinel", "comparison": "atLeast""#,
            "comparison: `atLeast` does not go with `compat`; use `above`, or leave it out",
        ),
    ];
    for (fields, sentence) in cases {
        assert_eq!(
            says(one_breaker(&format!(", {fields}"))),
            format!("degradeRules[0].{sentence}")
        );
    }
}

// === System rules ===

#[track_caller]
fn system(fields: &str) -> SystemRule {
    let json = format!(r#"{{"systemRules": [{{{fields}}}]}}"#);
    let mut rules = rules(&json).unwrap_or_else(|error| panic!("{fields}: {error}"));
    assert_eq!(rules.system.len(), 1);
    rules.system.remove(0)
}

#[test]
fn each_field_of_a_system_rule_does_what_it_says() {
    let new = SystemRule::new;
    let cases = [
        ("", new()),
        (r#""qps": 5000"#, new().with_qps(5000.0).unwrap()),
        (r#""maxThread": 800"#, new().with_max_thread(800.0).unwrap()),
        (r#""avgRt": 2.5"#, new().with_avg_rt(2.5).unwrap()),
        (
            r#""highestSystemLoad": 16.5"#,
            new().with_highest_system_load(16.5).unwrap(),
        ),
        (
            r#""highestCpuUsage": 0.9"#,
            new().with_highest_cpu_usage(0.9).unwrap(),
        ),
        (r#""bbr": true"#, new().bbr()),
        (r#""bbr": false"#, new()),
        (
            r#""qps": 0, "maxThread": 0, "avgRt": -0.5"#,
            new().with_qps(0.0).unwrap().with_max_thread(0.0).unwrap(),
        ),
        (r#""id": "all""#, new().with_id(RuleId::new("all").unwrap())),
        (r#""id": 3"#, new().with_id(RuleId::new("3").unwrap())),
        (r#""mode": "shadow""#, new().in_mode(Mode::Shadow)),
        (r#""compat": "sentinel""#, new().sentinel()),
    ];
    for (fields, expected) in cases {
        assert_eq!(system(fields), expected, "{fields}");
    }
}

#[test]
fn system_rules_from_sentinels_dashboard_are_read() {
    let dashboard = r#""id": 9, "app": "shop", "ip": "10.0.0.7", "port": 8719, "highestSystemLoad": -1.0, "avgRt": -1,
        "maxThread": -1, "qps": 500.0, "highestCpuUsage": -1.0, "gmtCreate": 1576296044500, "gmtModified": null"#;
    let qps = SystemRule::new().with_qps(500.0).unwrap();
    assert_eq!(system(dashboard), qps.with_id(RuleId::new("9").unwrap()));
    let file = r#""avgRt": 10, "highestCpuUsage": 0.8, "highestSystemLoad": -1.0, "limitApp": null, "maxThread": -1, "qps": -1.0"#;
    let rt = SystemRule::new().with_avg_rt(10.0).unwrap();
    assert_eq!(system(file), rt.with_highest_cpu_usage(0.8).unwrap());
    let none = r#""qps": -1, "maxThread": -1, "avgRt": -1, "highestSystemLoad": -1, "highestCpuUsage": -1"#;
    assert_eq!(system(none), SystemRule::new());
    let nulls: Vec<String> = with_sentinels(&SYSTEM_RULE_KEYS)
        .iter()
        .map(|key| format!(r#""{key}": null"#))
        .collect();
    assert_eq!(system(&nulls.join(",")), SystemRule::new());
}

#[test]
fn a_field_of_a_system_rule_that_is_wrong_is_refused() {
    let no_count = "is not a valid count; use a number from 0 to 9007199254740992";
    let no_ratio = "is not a valid ratio; use a number from 0 to 1";
    let mut cases = vec![
        ("highestCpuUsage", "80", format!("`80` {no_ratio}")),
        ("bbr", "1", "`1` is a number; use `true` or `false`".into()),
        (
            "bbr",
            r#""true""#,
            "`true` is a string; use `true` or `false`".into(),
        ),
        (
            "id",
            r#""""#,
            "`` is not a valid id; use 1 to 256 characters of printable ASCII".into(),
        ),
        (
            "mode",
            "false",
            "`false` is not a valid value; use one of `enforce`, `shadow`".into(),
        ),
        (
            "compat",
            "1",
            "`1` is not a valid value; use `sentinel`".into(),
        ),
    ];
    for field in ["qps", "maxThread", "avgRt", "highestSystemLoad"] {
        cases.push((field, "1e16", format!("`10000000000000000` {no_count}")));
    }
    for field in [
        "qps",
        "maxThread",
        "avgRt",
        "highestSystemLoad",
        "highestCpuUsage",
    ] {
        cases.push((field, r#""1""#, "`1` is a string; use a number".into()));
        cases.push((field, "true", "`true` is a boolean; use a number".into()));
    }
    for (field, value, sentence) in cases {
        assert_eq!(
            says(format!(r#"{{"systemRules": [{{"{field}": {value}}}]}}"#)),
            format!("systemRules[0].{field}: {sentence}")
        );
    }
}

// === Authority rules ===

/// A document of one authority rule, which has these fields besides a resource and origins.
fn one_list(fields: &str) -> String {
    format!(r#"{{"authorityRules": [{{"resource": "admin", "limitApp": "ops,ci"{fields}}}]}}"#)
}

#[test]
fn each_field_of_an_authority_rule_does_what_it_says() {
    let list = |strategy| AuthorityRule::new("admin", "ops,ci", strategy).unwrap();
    let white = || list(AuthorityStrategy::White);
    let black = || list(AuthorityStrategy::Black);
    let nulls: String = with_sentinels(&AUTHORITY_RULE_KEYS)
        .iter()
        .filter(|key| !["resource", "limitApp"].contains(key))
        .map(|key| format!(r#", "{key}": null"#))
        .collect();
    let cases = [
        ("", white()),
        (r#", "strategy": "white""#, white()),
        (r#", "strategy": "black""#, black()),
        (r#", "strategy": 0"#, white()),
        (r#", "strategy": 1"#, black()),
        (
            r#", "id": "admins""#,
            white().with_id(RuleId::new("admins").unwrap()),
        ),
        (r#", "mode": "shadow""#, white().in_mode(Mode::Shadow)),
        (&nulls, white()),
    ];
    for (fields, expected) in cases {
        let rules = rules(&one_list(fields)).unwrap_or_else(|error| panic!("{fields}: {error}"));
        assert_eq!(rules.authority, [expected], "{fields}");
    }
    let json = r#"{"authorityRules": [{"resource": "*", "limitApp": " ops ,,ci"}]}"#;
    let each = AuthorityRule::new("*", "ci,ops", AuthorityStrategy::White).unwrap();
    assert_eq!(rules(json).unwrap().authority, [each]);
}

#[test]
fn authority_rules_from_sentinels_dashboard_are_read() {
    let json = r#"{"authorityRules": [
        {"id": 2, "app": "shop", "ip": "10.0.0.7", "port": 8719, "limitApp": "appA,appB", "resource": "GET:/admin",
         "strategy": 1, "gmtCreate": 1576296044500, "gmtModified": 1576296044500},
        {"limitApp": "appA", "resource": "GET:/admin", "strategy": 0}
    ]}"#;
    let rule = |origins, strategy| AuthorityRule::new("GET:/admin", origins, strategy).unwrap();
    let black = rule("appA,appB", AuthorityStrategy::Black).with_id(RuleId::new("2").unwrap());
    let white = rule("appA", AuthorityStrategy::White);
    assert_eq!(rules(json).unwrap().authority, [black, white]);
}

#[test]
fn an_authority_rule_that_is_wrong_is_refused() {
    let long = "a".repeat(257);
    let no_list = "is not a list of origins; use names of 1 to 256 bytes, separated by commas";
    let cases = [
        ("{}".into(), ": `resource` is missing; add it".into()),
        (
            r#"{"resource": "a"}"#.into(),
            ": `limitApp` is missing; add it".into(),
        ),
        (
            r#"{"resource": [], "limitApp": "a"}"#.into(),
            ".resource: `[…]` is an array; use a string".into(),
        ),
        (
            r#"{"resource": "", "limitApp": ""}"#.into(),
            ".resource: `` is not a valid name; use 1 to 256 bytes".into(),
        ),
        (
            r#"{"resource": "a", "limitApp": ["a"]}"#.into(),
            ".limitApp: `[…]` is an array; use a string".into(),
        ),
        (
            r#"{"resource": "a", "limitApp": ""}"#.into(),
            format!(".limitApp: `` {no_list}"),
        ),
        (
            r#"{"resource": "a", "limitApp": " , "}"#.into(),
            format!(".limitApp: ` , ` {no_list}"),
        ),
        (
            format!(r#"{{"resource": "a", "limitApp": "b,{long}"}}"#),
            format!(".limitApp: `b,{}…` {no_list}", "a".repeat(62)),
        ),
    ];
    for (rule, sentence) in cases {
        let json = format!(r#"{{"authorityRules": [{rule}]}}"#);
        assert_eq!(says(&json), format!("authorityRules[0]{sentence}"));
    }
    let cases = [
        (
            "strategy",
            "2",
            "`2` is not a valid value; use one of `white`, `black`",
        ),
        (
            "strategy",
            r#""deny""#,
            "`deny` is not a valid value; use one of `white`, `black`",
        ),
        ("id", "true", "`true` is a boolean; use a string"),
        (
            "mode",
            "1",
            "`1` is not a valid value; use one of `enforce`, `shadow`",
        ),
    ];
    for (field, value, sentence) in cases {
        assert_eq!(
            says(one_list(&format!(r#", "{field}": {value}"#))),
            format!("authorityRules[0].{field}: {sentence}")
        );
    }
}

#[test]
fn two_hundred_thousand_names_of_origins_are_read_and_one_rule_has_ten_thousand() {
    // Neither in order nor each once.
    let name = |i: usize| format!("app-{:x}", i.wrapping_mul(0x9e37_79b9) % 150_000);
    let names: Vec<String> = (0..20 * MAX_LISTED_ORIGINS).map(name).collect();
    let rule = |names: &[String]| {
        format!(
            r#"{{"resource": "admin", "limitApp": "{}"}}"#,
            names.join(",")
        )
    };
    let document = |lists: Vec<String>| format!(r#"{{"authorityRules": [{}]}}"#, lists.join(","));
    let lists = names.chunks(MAX_LISTED_ORIGINS).map(rule);
    let rules = rules(&document(lists.collect())).unwrap().authority;
    assert_eq!(rules.len(), 20);
    for (rule, names) in rules.iter().zip(names.chunks(MAX_LISTED_ORIGINS)) {
        let listed: BTreeSet<&str> = names.iter().map(String::as_str).collect();
        assert!(
            rule.origins().eq(listed.iter().copied()),
            "in order, each once"
        );
        assert!(listed.iter().all(|name| rule.admits(name)));
        assert!(!rule.admits("app"));
    }
    let shown: String = names.join(",").chars().take(64).collect();
    for many in [MAX_LISTED_ORIGINS + 1, names.len()] {
        assert_eq!(
            says(document(vec![rule(&names[..many])])),
            format!(
                "authorityRules[0].limitApp: `{shown}…` names {many} origins; use at most 10000"
            )
        );
    }
}

// === The keys of all three ===

const DEGRADE_RULE_KEYS: [&str; 18] = [
    "id",
    "resource",
    "grade",
    "count",
    "slowRatioThreshold",
    "timeWindow",
    "minRequestAmount",
    "statIntervalMs",
    "sampleCount",
    "probes",
    "comparison",
    "mode",
    "compat",
    "regex",
    "passCount",
    "cut",
    "rtSlowRequestAmount",
    "limitApp",
];

const SYSTEM_RULE_KEYS: [&str; 12] = [
    "id",
    "qps",
    "maxThread",
    "avgRt",
    "highestSystemLoad",
    "highestCpuUsage",
    "bbr",
    "mode",
    "compat",
    "regex",
    "resource",
    "limitApp",
];

const AUTHORITY_RULE_KEYS: [&str; 6] = ["id", "resource", "limitApp", "strategy", "mode", "regex"];

#[test]
fn every_field_of_the_other_rules_is_read_or_has_no_meaning_here() {
    let cases: [(&str, &[&str], usize, &str); 3] = [
        (
            "degradeRules",
            &DEGRADE_RULE_KEYS,
            14,
            r#""resource": "a", "count": 1, "timeWindow": 1"#,
        ),
        ("systemRules", &SYSTEM_RULE_KEYS, 10, ""),
        (
            "authorityRules",
            &AUTHORITY_RULE_KEYS,
            6,
            r#""resource": "a", "limitApp": "a""#,
        ),
    ];
    for (list, keys, read, needed) in cases {
        let keys = with_sentinels(keys);
        let listed: Vec<String> = keys.iter().map(|key| format!("`{key}`")).collect();
        assert_eq!(
            says(format!(r#"{{"{list}": [{{"x": null}}]}}"#)),
            format!(
                "{list}[0]: `x` is not a known key; use one of {}",
                listed.join(", ")
            )
        );
        for (i, key) in keys.iter().enumerate() {
            assert_eq!(
                says(format!(r#"{{"{list}": [{{"{key}": null, "{key}": 1}}]}}"#)),
                format!("{list}[0]: `{key}` is given twice; keep one of the two")
            );
            let others: Vec<&str> = needed
                .split(", ")
                .filter(|field| !field.is_empty() && !field.starts_with(&format!("\"{key}\"")))
                .collect();
            for value in [r#"{"a": [1, {"a": 2}]}"#, "[]"] {
                let field = format!(r#""{key}": {value}"#);
                let fields = [others.clone(), vec![&field]].concat().join(", ");
                let json = format!(r#"{{"{list}": [{{{fields}}}]}}"#);
                if i < read {
                    let sentence = says(&json);
                    assert!(
                        sentence.starts_with(&format!("{list}[0].{key}: ")),
                        "{sentence}"
                    );
                } else {
                    assert!(rules(&json).is_ok(), "{json}");
                }
            }
        }
    }
}

/// In Sentinel a wrong rule is left out, with a line in the log.
#[test]
fn differs_from_sentinel_a_wrong_rule_refuses_the_document() {
    let right = r#"{"resource": "login", "count": 1, "grade": 1}"#;
    for (wrong, fault) in [
        (
            r#""count": -1"#,
            "count: `-1` is not a valid count; use a number from 0 to 9007199254740992",
        ),
        (
            r#""count": 1, "strategy": 1"#,
            "strategy: `1` needs a `refResource`; add it",
        ),
        (
            r#""count": 1, "controlBehavior": 1, "warmUpPeriodSec": 0"#,
            "warmUpPeriodSec: `0` is not possible; use a whole number from 1 to 2147483647",
        ),
    ] {
        let json = format!(r#"{{"flowRules": [{right}, {{"resource": "pay", {wrong}}}]}}"#);
        assert_eq!(says(json), format!("flowRules[1].{fault}"));
    }
}

/// In Sentinel both apply; here they would be one window under one name.
#[test]
fn differs_from_sentinel_rules_that_differ_in_their_count_alone_need_ids() {
    let both = |id: &str| {
        let rule = |count, id| format!(r#"{{"resource": "login", "count": {count}{id}}}"#);
        let json = format!(r#"{{"flowRules": [{}, {}]}}"#, rule(1, ""), rule(2, id));
        Engine::new(rules(&json).unwrap())
    };
    let error = ConfigError::from_rules(&both("").err().unwrap());
    assert_eq!(
        error.to_string(),
        "flowRules[1].id: `login` is the id of an earlier rule; give one of them another `id`"
    );
    assert!(both(r#", "id": "looser""#).is_ok());
}

#[test]
fn a_pattern_for_resources_is_refused() {
    let cases = [
        ("flowRules", r#""resource": "/a.*", "count": 1"#),
        (
            "degradeRules",
            r#""resource": "/a.*", "count": 1, "timeWindow": 1"#,
        ),
        ("systemRules", r#""qps": 1"#),
        ("authorityRules", r#""resource": "/a.*", "limitApp": "a""#),
    ];
    for (list, rest) in cases {
        let with = |regex: &str| format!(r#"{{"{list}": [{{{rest}, "regex": {regex}}}]}}"#);
        assert!(rules(&with("false")).is_ok(), "{list}");
        assert!(rules(&with("null")).is_ok(), "{list}");
        let cure = "name each resource in a rule of its own, or all of them as `*`";
        assert_eq!(
            says(with("true")),
            format!("{list}[0].regex: `true` is not supported; {cure}")
        );
        assert_eq!(
            says(with("0")),
            format!("{list}[0].regex: `0` is a number; use `true` or `false`")
        );
    }
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
            "flowRules[0].count: `{shown}` is not a valid count; use a number from 0 to 9007199254740992"
        );
        assert_eq!(read(&document).unwrap_err().to_string(), sentence);
    }
}

#[test]
fn a_path_leads_from_the_root_to_the_value() {
    let value = Value::from_json(r#"{"a": [{"b\n": true}]}"#).unwrap();
    for (root, path) in [("document", "a[0].b\\n"), ("envoy", "envoy.a[0].b\\n")] {
        let at = Located::new(root, &value);
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
