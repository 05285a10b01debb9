//! Rules with a key in documents: the rules read from them, and the sentences that refuse them.

use leapgate::config::{Value, read};
use leapgate::rule::{
    Attribute, AttributeSource, ClusterConfig, Count, FlowRule, KeyItem, KeyMatch, KeyPart, KeyedBy, LimitApp, MaxQueueing, Mode, Regex,
    RuleId,
};
use leapgate::{Engine, Rules};

fn rules(json: &str) -> Rules {
    let document = Value::from_json(json).unwrap_or_else(|error| panic!("{json}: {error}"));
    let read = read(&document).map(|document| document.rules);
    read.unwrap_or_else(|error| panic!("{json}: {error}"))
}

#[track_caller]
fn says(json: &str) -> String {
    let read = Value::from_json(json).and_then(|document| read(&document).map(|d| d.rules));
    read.expect_err("it is read").to_string()
}

/// A document of one rule with these fields besides a resource and a count.
fn one_rule(fields: &str) -> String {
    format!(r#"{{"flowRules": [{{"resource": "login", "count": 100{fields}}}]}}"#)
}

fn by(parts: impl Into<Vec<KeyPart>>) -> KeyedBy {
    KeyedBy::new(parts).unwrap()
}

fn attribute(source: AttributeSource, path: &[&str]) -> Attribute {
    Attribute::new(source, path).unwrap()
}

fn login(by: KeyedBy) -> FlowRule {
    FlowRule::new("login", 100.0).unwrap().keyed(by).unwrap()
}

fn item(values: &[Option<&str>], count: f64) -> KeyItem {
    KeyItem {
        values: values.iter().map(|value| value.map(Box::from)).collect(),
        count: Count::new(count).unwrap(),
    }
}

fn queue(millis: u64) -> MaxQueueing {
    MaxQueueing::from_millis(millis).unwrap()
}

#[test]
fn each_part_is_read() {
    let cases = [
        (r#""clientIp""#, KeyPart::CLIENT_IP),
        (r#"{"clientIp": {}}"#, KeyPart::CLIENT_IP),
        (
            r#"{"clientIp": {"v4": 24, "v6": 56}}"#,
            KeyPart::ClientIp { v4: 24, v6: 56 },
        ),
        (
            r#"{"clientIp": {"v4": 0, "v6": 128}}"#,
            KeyPart::ClientIp { v4: 0, v6: 128 },
        ),
        (
            r#"{"header": "X-Api-Key"}"#,
            KeyPart::Header("x-api-key".into()),
        ),
        (r#"{"query": "User"}"#, KeyPart::Query("User".into())),
        (
            r#"{"cookie": "sid", "query": null}"#,
            KeyPart::Cookie("sid".into()),
        ),
        (r#""path""#, KeyPart::Path),
        (r#""method""#, KeyPart::Method),
        (r#""host""#, KeyPart::Host),
        (r#"{"arg": 0}"#, KeyPart::Arg(0)),
        (r#"{"arg": -2}"#, KeyPart::Arg(-2)),
        (r#""peer""#, KeyPart::Peer),
    ];
    for (part, expected) in cases {
        let read = rules(&one_rule(&format!(r#", "key": [{part}]"#)));
        assert_eq!(read.flow, [login(by([expected]))], "{part}");
    }
}

#[test]
fn each_attribute_is_read_as_text_or_as_a_number() {
    use AttributeSource::{FilterState, Metadata, RouteMetadata, TypedMetadata};
    let claim = |path: &[&str]| Attribute::jwt_claim("jwt_payload", path).unwrap();
    let jwt = "envoy.filters.http.jwt_authn";
    let cases = [
        (r#"{"jwtClaim": "sub"}"#, claim(&["sub"]), "jwtClaim:sub"),
        (
            r#"{"jwtClaim": ["sub"], "payload": null}"#,
            claim(&["sub"]),
            "jwtClaim:sub",
        ),
        (
            r#"{"jwtClaim": ["org", "id"], "payload": "pl", "type": "number"}"#,
            attribute(Metadata, &[jwt, "pl", "org", "id"]).as_number(),
            "jwtClaim:org/id@pl",
        ),
        (
            r#"{"jwtClaim": "https://shop.example/tenant"}"#,
            claim(&["https://shop.example/tenant"]),
            "jwtClaim:https://shop.example/tenant",
        ),
        (
            r#"{"metadata": ["io.example", "a~/b"], "type": "string"}"#,
            attribute(Metadata, &["io.example", "a~/b"]),
            "metadata:io.example/a~/b",
        ),
        (
            r#"{"typedMetadata": ["envoy.ai.token_usage", "total_tokens"], "type": "number"}"#,
            attribute(TypedMetadata, &["envoy.ai.token_usage", "total_tokens"]).as_number(),
            "typedMetadata:envoy.ai.token_usage/total_tokens",
        ),
        (
            r#"{"routeMetadata": ["envoy-gateway", "resources", "0", "name"]}"#,
            attribute(RouteMetadata, &["envoy-gateway", "resources", "0", "name"]),
            "routeMetadata:envoy-gateway/resources/0/name",
        ),
        (
            r#"{"filterState": "my.key"}"#,
            attribute(FilterState, &["my.key"]),
            "filterState:my.key",
        ),
    ];
    for (part, expected, text) in cases {
        let read = rules(&one_rule(&format!(r#", "key": [{part}]"#)));
        let expected = KeyPart::Attribute(expected);
        assert_eq!(expected.to_string(), text);
        assert_eq!(read.flow, [login(by([expected]))], "{part}");
    }
}

#[test]
fn an_attribute_that_is_wrong_is_refused() {
    let long = "x".repeat(257);
    let path = "`[…]` is not a valid path; use a namespace and 1 to 7 keys, for a claim 1 to 6 names, for the filter state one, each of 1 to 256 bytes without a zero byte";
    let of = |what: &str| format!("{what}: {path}");
    let cases = [
        (r#"{"metadata": "a"}"#, "metadata: `a` is a string; use an array".into()),
        (r#"{"metadata": ["a"]}"#, of("metadata")),
        (
            r#"{"routeMetadata": ["1", "2", "3", "4", "5", "6", "7", "8", "9"]}"#,
            of("routeMetadata"),
        ),
        (
            r#"{"jwtClaim": []}"#,
            of("jwtClaim"),
        ),
        (
            r#"{"jwtClaim": ["1", "2", "3", "4", "5", "6", "7"]}"#,
            of("jwtClaim"),
        ),
        (r#"{"jwtClaim": 7}"#, "jwtClaim: `7` is a number; use a string".into()),
        (r#"{"filterState": ["a"]}"#, "filterState: `[…]` is an array; use a string".into()),
        (
            r#"{"typedMetadata": ["a", 0]}"#,
            "typedMetadata[1]: `0` is a number; use a string".into(),
        ),
        (
            r#"{"metadata": ["a", ""]}"#,
            of("metadata"),
        ),
        (
            &format!(r#"{{"jwtClaim": "sub", "payload": "{long}"}}"#),
            format!("payload: `{}…` is not a valid name; use 1 to 256 bytes", &long[..64]),
        ),
        (
            r#"{"metadata": ["a", "b\u0000c"]}"#,
            of("metadata"),
        ),
        (r#"{"filterState": ""}"#, of("filterState").replace("[…]", "")),
        (r#"{"jwtClaim": "a\u0000b"}"#, of("jwtClaim").replace("[…]", r"a\u{0}b")),
        (
            r#"{"metadata": ["a", "b"], "type": "u64"}"#,
            "type: `u64` is not a valid value; use one of `string`, `number`".into(),
        ),
        (
            r#"{"metadata": ["a", "b"], "payload": "jwt"}"#,
            "payload: `jwt` does not go with `metadata`; leave it out".into(),
        ),
        (
            r#"{"filterState": "a", "type": "number"}"#,
            "type: `number` does not go with `filterState`; leave it out".into(),
        ),
        (
            r#"{"header": "a", "type": "number"}"#,
            "type: `number` does not go with `header`; leave it out".into(),
        ),
    ];
    for (part, sentence) in cases {
        let fields = format!(r#", "key": ["path", {part}]"#);
        assert_eq!(says(&one_rule(&fields)), format!("flowRules[0].key[1].{sentence}"));
    }
    let again = r#", "key": [{"jwtClaim": "sub"}, {"metadata": ["envoy.filters.http.jwt_authn", "jwt_payload", "sub"]}]"#;
    assert_eq!(
        says(&one_rule(again)),
        "flowRules[0].key[1]: `{…}` is given twice; keep one of the two"
    );
}

#[test]
fn each_field_of_a_rule_with_a_key_does_what_it_says() {
    let path = || by([KeyPart::Path]);
    let rule = || login(path());
    let two = || by([KeyPart::CLIENT_IP, KeyPart::Host]);
    let cases = [
        (
            r#""key": null, "keyItems": null, "maxKeys": null, "burst": null"#,
            FlowRule::new("login", 100.0).unwrap(),
        ),
        (
            r#""key": ["path"], "burst": 7"#,
            login(path().with_burst(7)),
        ),
        (
            r#""key": ["path"], "maxKeys": 16777216"#,
            login(path().with_max_keys(1 << 24).unwrap()),
        ),
        (
            r#""key": ["path"], "keyItems": [{"value": "/a", "count": 0.5}, {"value": ["/b"], "count": 0}, {"value": [null], "count": 1}]"#,
            login(
                path()
                    .with_items([
                        item(&[Some("/a")], 0.5),
                        item(&[Some("/b")], 0.0),
                        item(&[None], 1.0),
                    ])
                    .unwrap(),
            ),
        ),
        (
            r#""key": ["clientIp", "host"], "keyItems": [{"value": ["10.0.0.1", null], "count": 9}]"#,
            login(
                two()
                    .with_items([item(&[Some("10.0.0.1"), None], 9.0)])
                    .unwrap(),
            ),
        ),
        (r#""key": ["path"], "keyItems": []"#, rule()),
        (
            r#""key": ["path"], "intervalMs": 60000"#,
            rule().per(60_000, None).unwrap(),
        ),
        (
            r#""key": ["path"], "sampleCount": 100"#,
            rule().per(1000, Some(100)).unwrap(),
        ),
        (
            r#""key": ["path"], "window": "weighted""#,
            rule().counting(leapgate::rule::Counting::Weighted),
        ),
        (
            r#""key": ["path"], "grade": "concurrency""#,
            rule().concurrency(),
        ),
        (
            r#""key": ["path"], "grade": 0, "controlBehavior": 2"#,
            rule().concurrency(),
        ),
        (
            r#""key": ["path"], "controlBehavior": "throttle", "maxQueueingTimeMs": 0, "burst": 0"#,
            rule().throttle(queue(0)),
        ),
        (
            r#""key": ["path"], "limitApp": "ops""#,
            rule().for_origin(LimitApp::new("ops").unwrap()),
        ),
        (
            r#""key": ["path"], "mode": "shadow", "id": "x""#,
            rule()
                .in_mode(Mode::Shadow)
                .with_id(RuleId::new("x").unwrap()),
        ),
        (
            r#""key": ["path"], "compat": "sentinel", "intervalMs": 5000"#,
            rule().per(5000, None).unwrap().sentinel(),
        ),
        (r#""key": ["path"], "strategy": 0"#, rule()),
    ];
    for (fields, expected) in cases {
        assert_eq!(
            rules(&one_rule(&format!(", {fields}"))).flow,
            [expected],
            "{fields}"
        );
    }
    let each = rules(r#"{"flowRules": [{"resource": "*", "count": 1, "key": ["path"]}]}"#);
    assert_eq!(each.flow[0].id().as_str(), "*/key=path");
}

#[test]
fn a_key_that_is_wrong_is_refused() {
    let no_part = "is not a part of a request; use `clientIp`, `path`, `method`, `host`, `peer`, or an object: `{\"header\": \"x-api-key\"}`";
    let range = "use a whole number from -2147483647 to 2147483647";
    let long = format!(
        r#"["path", {}"host"]"#,
        r#"{"arg": 1}, {"arg": 2}, {"arg": 3}, {"arg": 4}, {"arg": 5}, {"arg": 6}, {"arg": 7}, "#
    );
    let cases: [(&str, String); 26] = [
        (r#""key": "path""#, "key: `path` is a string; use an array".into()),
        (r#""key": []"#, "key: `[…]` is not a valid key; use 1 to 8 parts".into()),
        (&format!(r#""key": {long}"#), "key: `[…]` is not a valid key; use 1 to 8 parts".into()),
        (r#""key": ["ip"]"#, format!("key[0]: `ip` {no_part}")),
        (r#""key": ["path", "header"]"#, format!("key[1]: `header` {no_part}")),
        (r#""key": [7]"#, "key[0]: `7` is a number; use an object".into()),
        (r#""key": [{}]"#, "key[0]: `{…}` is not a part of a request; use one key".into()),
        (r#""key": [{"header": "a", "query": "b"}]"#, "key[0]: `{…}` is not a part of a request; use one key".into()),
        (r#""key": [{"headers": "a"}]"#, "key[0]: `headers` is not a known key; use `header`, or one of `clientIp`, `query`, `cookie`, `arg`, `jwtClaim`, `metadata`, `typedMetadata`, `routeMetadata`, `filterState`, `payload`, `type`".into()),
        (r#""key": [{"header": ""}]"#, "key[0].header: `` is not a valid name; use 1 to 256 bytes".into()),
        (r#""key": [{"cookie": 1}]"#, "key[0].cookie: `1` is a number; use a string".into()),
        (r#""key": [{"clientIp": 24}]"#, "key[0].clientIp: `24` is a number; use an object".into()),
        (r#""key": [{"clientIp": {"v4": 33}}]"#, "key[0].clientIp.v4: `33` is not possible; use a whole number from 0 to 32".into()),
        (r#""key": [{"clientIp": {"v6": 129}}]"#, "key[0].clientIp.v6: `129` is not possible; use a whole number from 0 to 128".into()),
        (r#""key": [{"arg": 0.5}]"#, format!("key[0].arg: `0.5` is not possible; {range}")),
        (r#""key": [{"arg": -1e10}]"#, format!("key[0].arg: `-10000000000` is not possible; {range}")),
        (r#""key": ["path", "host", "path"]"#, "key[2]: `path` is given twice; keep one of the two".into()),
        (r#""keyItems": []"#, "keyItems: `[…]` means nothing without a `key`; add one, or leave it out".into()),
        (r#""maxKeys": 5"#, "maxKeys: `5` means nothing without a `key`; add one, or leave it out".into()),
        (r#""burst": 5"#, "burst: `5` means nothing without a `key`; add one, or leave it out".into()),
        (r#""key": ["path"], "maxKeys": 0"#, "maxKeys: `0` is not possible; use a whole number from 1 to 16777216".into()),
        (r#""key": ["path"], "burst": -1"#, "burst: `-1` is not possible; use a whole number from 0 to 9007199254740992".into()),
        (r#""key": ["path"], "burst": 1, "controlBehavior": "throttle""#, "burst: `1` means nothing to `throttle`; leave it out".into()),
        (r#""key": ["path"], "burst": 1, "grade": "concurrency""#, "burst: `1` means nothing to a limit on concurrency; leave it out".into()),
        (r#""key": ["path"], "controlBehavior": "warmUp""#, "controlBehavior: `warmUp` does not go with a `key`; use `reject` or `throttle`".into()),
        (r#""key": ["path"], "strategy": "relate", "refResource": "b""#, "strategy: `relate` does not go with a `key`; leave one of them out".into()),
    ];
    for (fields, sentence) in cases {
        assert_eq!(
            says(&one_rule(&format!(", {fields}"))),
            format!("flowRules[0].{sentence}")
        );
    }
}

/// Parts are held against one another only where there are few enough for a key.
#[test]
fn a_key_of_too_many_parts_is_refused_for_their_number_and_not_for_what_they_are() {
    let too_many = "flowRules[0].key: `[…]` is not a valid key; use 1 to 8 parts";
    let twice = [r#""path""#; 9];
    let hundred_thousand: Vec<String> =
        (0..100_000).map(|i| format!(r#"{{"arg": {i}}}"#)).collect();
    for parts in [twice.join(","), hundred_thousand.join(",")] {
        assert_eq!(says(&one_rule(&format!(r#", "key": [{parts}]"#))), too_many);
    }
}

#[test]
fn an_item_that_is_wrong_is_refused() {
    let cases = [
        (r#"["path"]"#, "{}", ": `value` is missing; add it"),
        (
            r#"["path"]"#,
            r#"{"value": "a"}"#,
            ": `count` is missing; add it",
        ),
        (
            r#"["path"]"#,
            r#"{"value": "a", "count": -1}"#,
            ".count: `-1` is not a valid count; use a number from 0 to 9007199254740992",
        ),
        (
            r#"["path"]"#,
            r#"{"value": null, "count": 1}"#,
            ".value: `null` is not a value; use a string",
        ),
        (
            r#"["path"]"#,
            r#"{"value": ["a", "b"], "count": 1}"#,
            ".value: `[…]` does not go with the key; use one value for each part, 1 in all",
        ),
        (
            r#"["path", "host"]"#,
            r#"{"value": ["a"], "count": 1}"#,
            ".value: `[…]` does not go with the key; use one value for each part, 2 in all",
        ),
        (
            r#"["path", "host"]"#,
            r#"{"value": "a", "count": 1}"#,
            ".value: `a` does not go with the key; use an array of one value for each part, 2 in all",
        ),
        (
            r#"["path", "host"]"#,
            r#"{"value": ["a", 1], "count": 1}"#,
            ".value[1]: `1` is a number; use a string",
        ),
        (
            r#"["clientIp"]"#,
            r#"{"value": "10.0.0", "count": 1}"#,
            ".value: `10.0.0` is not an IP address; use one such as `10.0.0.1`",
        ),
        (
            r#"["path"]"#,
            r#"{"value": "a", "count": 1, "burst": 1}"#,
            ": `burst` is not a known key; use one of `value`, `count`",
        ),
    ];
    for (key, item, sentence) in cases {
        let json = one_rule(&format!(r#", "key": {key}, "keyItems": [{item}]"#));
        assert_eq!(says(&json), format!("flowRules[0].keyItems[0]{sentence}"));
    }
}

// === Sentinel's lists ===

fn hot(index: i32) -> FlowRule {
    let rule = FlowRule::new("search", 5.0).unwrap();
    rule.keyed(by([KeyPart::Arg(index)])).unwrap()
}

/// A document of one hot-parameter rule with these fields besides the required ones.
fn one_hot(fields: &str) -> String {
    format!(
        r#"{{"paramFlowRules": [{{"resource": "search", "count": 5, "paramIdx": 0{fields}}}]}}"#
    )
}

#[test]
fn each_field_of_a_hot_parameter_rule_does_what_it_says() {
    let with = |by: KeyedBy| FlowRule::new("search", 5.0).unwrap().keyed(by).unwrap();
    let arg = || by([KeyPart::Arg(0)]);
    let items = |texts: &[(&str, f64)]| {
        let items = texts
            .iter()
            .map(|(text, count)| item(&[Some(text)], *count));
        arg().with_items(items.collect::<Vec<_>>()).unwrap()
    };
    let cases = [
        ("", hot(0)),
        (
            r#", "grade": 1, "controlBehavior": 0, "maxQueueingTimeMs": 0, "burstCount": 0, "durationInSec": 1"#,
            hot(0),
        ),
        (r#", "grade": 0, "durationInSec": 60"#, hot(0).concurrency()),
        (
            r#", "durationInSec": 60"#,
            hot(0).per(60_000, None).unwrap(),
        ),
        (r#", "burstCount": 3"#, with(arg().with_burst(3))),
        (r#", "controlBehavior": 2"#, hot(0).throttle(queue(0))),
        (
            r#", "controlBehavior": "throttle", "maxQueueingTimeMs": 400"#,
            hot(0).throttle(queue(400)),
        ),
        (
            r#", "compat": "sentinel", "mode": "shadow", "id": 7"#,
            hot(0)
                .sentinel()
                .in_mode(Mode::Shadow)
                .with_id(RuleId::new("7").unwrap()),
        ),
        (
            r#", "paramFlowItemList": [{"object": "a", "count": 9, "classType": "java.lang.String"}, {"object": "+7", "count": 0, "classType": "int"},
               {"object": "-1", "count": 1, "classType": "java.lang.Long"}, {"object": "1.0", "count": 2, "classType": "double"},
               {"object": "0.1", "count": 3, "classType": "java.lang.Float"}, {"object": "TRUE", "count": 4, "classType": "boolean"},
               {"object": "no", "count": 5, "classType": "java.lang.Boolean"}, {"object": "", "count": 6, "classType": ""}, {"object": "c", "count": 7}]"#,
            with(items(&[
                ("a", 9.0),
                ("7", 0.0),
                ("-1", 1.0),
                ("1", 2.0),
                ("0.1", 3.0),
                ("true", 4.0),
                ("false", 5.0),
                ("", 6.0),
                ("c", 7.0),
            ])),
        ),
        (
            r#", "limitApp": "default", "clusterMode": true, "clusterConfig": {"flowId": 1, "thresholdType": 1}, "hotItems": {}, "paramFlowItemList": []"#,
            hot(0).in_cluster(ClusterConfig::new().with_flow_id(1).unwrap()),
        ),
    ];
    for (fields, expected) in cases {
        assert_eq!(rules(&one_hot(fields)).param_flow, [expected], "{fields}");
    }
    let negative =
        rules(r#"{"paramFlowRules": [{"resource": "search", "count": 5, "paramIdx": -1}]}"#);
    assert_eq!(negative.param_flow, [hot(-1)]);
    assert_eq!(hot(-1).id().as_str(), "search/key=arg:-1");
}

#[test]
fn a_hot_parameter_rule_that_is_wrong_is_refused() {
    let document = |rule: &str| format!(r#"{{"paramFlowRules": [{rule}]}}"#);
    for (rule, sentence) in [
        ("{}", ": `paramIdx` is missing; add it"),
        (r#"{"paramIdx": 0}"#, ": `resource` is missing; add it"),
        (
            r#"{"paramIdx": 0, "resource": "a"}"#,
            ": `count` is missing; add it",
        ),
        (
            r#"{"paramIdx": 0, "resource": "", "count": 1}"#,
            ".resource: `` is not a valid name; use 1 to 256 bytes",
        ),
        (
            r#"{"paramIdx": null, "resource": "a", "count": 1}"#,
            ".paramIdx: `null` is not a value; use a number",
        ),
    ] {
        assert_eq!(
            says(&document(rule)),
            format!("paramFlowRules[0]{sentence}")
        );
    }
    let behaviors =
        "is not a valid value; use one of `reject`, `warmUp`, `throttle`, `warmUpThrottle`";
    let cases = [
        (
            "paramIdx",
            "1.5",
            "`1.5` is not possible; use a whole number from -2147483647 to 2147483647".into(),
        ),
        (
            "grade",
            "2",
            "`2` is not a valid value; use one of `concurrency`, `qps`".into(),
        ),
        (
            "durationInSec",
            "0",
            "`0` is not possible; use a whole number from 1 to 315360000".into(),
        ),
        (
            "burstCount",
            "-1",
            "`-1` is not possible; use a whole number from 0 to 9007199254740992".into(),
        ),
        (
            "maxQueueingTimeMs",
            "1e10",
            "`10000000000` is not possible; use a whole number from 0 to 2147483647".into(),
        ),
        ("controlBehavior", "7", format!("`7` {behaviors}")),
        (
            "controlBehavior",
            "1",
            "`1` does not go with a `key`; use `reject` or `throttle`".into(),
        ),
        (
            "controlBehavior",
            "3",
            "`3` does not go with a `key`; use `reject` or `throttle`".into(),
        ),
        (
            "compat",
            r#""java""#,
            "`java` is not a valid value; use `sentinel`".into(),
        ),
        (
            "paramFlowItemList",
            "{}",
            "`{…}` is an object; use an array".into(),
        ),
    ];
    for (field, value, sentence) in cases {
        let rule = match field {
            "paramIdx" => document(&format!(
                r#"{{"resource": "a", "count": 1, "paramIdx": {value}}}"#
            )),
            _ => one_hot(&format!(r#", "{field}": {value}"#)),
        };
        let sentence: String = sentence;
        assert_eq!(
            says(&rule),
            format!("paramFlowRules[0].{field}: {sentence}")
        );
    }
    let cases = [
        ("{}", ": `object` is missing; add it"),
        (r#"{"object": "a"}"#, ": `count` is missing; add it"),
        (
            r#"{"object": 7, "count": 1}"#,
            ".object: `7` is a number; use a string",
        ),
        (
            r#"{"object": "a", "count": 1, "classType": "int"}"#,
            ".object: `a` is not a whole number; use one, or another `classType`",
        ),
        (
            r#"{"object": "a", "count": -1}"#,
            ".count: `-1` is not a valid count; use a number from 0 to 9007199254740992",
        ),
        (
            r#"{"object": "a", "count": 1, "classType": 1}"#,
            ".classType: `1` is a number; use a string",
        ),
    ];
    for (item, sentence) in cases {
        let json = one_hot(&format!(r#", "paramFlowItemList": [{item}]"#));
        assert_eq!(
            says(&json),
            format!("paramFlowRules[0].paramFlowItemList[0]{sentence}")
        );
    }
}

fn route(by: Option<KeyedBy>) -> FlowRule {
    let rule = FlowRule::new("route", 5.0).unwrap();
    match by {
        Some(by) => rule.keyed(by).unwrap(),
        None => rule,
    }
}

/// A document of one gateway rule, which has these fields besides a resource and a count.
fn one_route(fields: &str) -> String {
    format!(r#"{{"gatewayFlowRules": [{{"resource": "route", "count": 5{fields}}}]}}"#)
}

#[test]
fn each_field_of_a_gateway_rule_does_what_it_says() {
    let header = || by([KeyPart::Header("x-tier".into())]);
    let item = |fields: &str| format!(r#", "paramItem": {{{fields}}}"#);
    let tier = |fields: &str| {
        item(&format!(
            r#""parseStrategy": 2, "fieldName": "X-Tier"{fields}"#
        ))
    };
    let matching = |pattern| route(Some(header().matching(pattern)));
    let regex = |text: &str| KeyMatch::Regex(Regex::new(text).unwrap());
    let cases = [
        (String::new(), route(None)),
        (r#", "resourceMode": 0, "grade": 1, "intervalSec": 1, "controlBehavior": 0, "burst": 0, "maxQueueingTimeoutMs": 500, "paramItem": null"#.into(), route(None)),
        (r#", "resourceMode": 1, "intervalSec": 60"#.into(), route(None).per(60_000, None).unwrap()),
        (r#", "burst": 3"#.into(), FlowRule::new("route", 8.0).unwrap()),
        (r#", "burst": 3, "grade": 0"#.into(), route(None).concurrency()),
        (r#", "burst": 3, "controlBehavior": 2, "maxQueueingTimeoutMs": 9"#.into(), route(None).throttle(queue(9))),
        (r#", "resourceMode": "customApiName", "controlBehavior": "throttle""#.into(), route(None).throttle(queue(500))),
        (item(r#""parseStrategy": 0"#), route(Some(by([KeyPart::CLIENT_IP])))),
        (item(r#""parseStrategy": "clientIp", "index": 0"#), route(Some(by([KeyPart::CLIENT_IP])))),
        (item(r#""parseStrategy": 1, "fieldName": null"#), route(Some(by([KeyPart::Host])))),
        (item(r#""parseStrategy": 1, "pattern": "A.b""#), route(Some(by([KeyPart::Host]).matching(KeyMatch::Exact("a.b".into()))))),
        (tier(""), route(Some(header()))),
        (tier(r#", "pattern": "", "matchStrategy": 2"#), route(Some(header()))),
        (tier(r#", "pattern": "Gold""#), matching(KeyMatch::Exact("Gold".into()))),
        (tier(r#", "pattern": "a", "matchStrategy": 0"#), matching(KeyMatch::Exact("a".into()))),
        (tier(r#", "pattern": "a", "matchStrategy": "prefix""#), matching(KeyMatch::Prefix("a".into()))),
        (tier(r#", "pattern": "v[12]", "matchStrategy": 2"#), matching(regex("v[12]"))),
        (tier(r#", "pattern": "a", "matchStrategy": 3"#), matching(KeyMatch::Contains("a".into()))),
        (item(r#""parseStrategy": 3, "fieldName": "user""#), route(Some(by([KeyPart::Query("user".into())])))),
        (item(r#""parseStrategy": "cookie", "fieldName": "sid""#), route(Some(by([KeyPart::Cookie("sid".into())])))),
        (item(r#""parseStrategy": 0"#) + r#", "burst": 2, "intervalSec": 2, "mode": "shadow", "id": "x""#,
         route(Some(by([KeyPart::CLIENT_IP]).with_burst(2))).per(2000, None).unwrap().in_mode(Mode::Shadow).with_id(RuleId::new("x").unwrap())),
        (item(r#""parseStrategy": 4, "fieldName": "sid""#) + r#", "compat": "sentinel""#, route(Some(by([KeyPart::Cookie("sid".into())]))).sentinel()),
    ];
    for (fields, expected) in cases {
        assert_eq!(
            rules(&one_route(&fields)).gateway_flow,
            [expected],
            "{fields}"
        );
    }
}

#[test]
fn a_gateway_rule_that_is_wrong_is_refused() {
    let cases = [
        (
            r#""resourceMode": 2"#,
            "resourceMode: `2` is not a valid value; use one of `route`, `customApiName`",
        ),
        (
            r#""grade": "x""#,
            "grade: `x` is not a valid value; use one of `concurrency`, `qps`",
        ),
        (
            r#""intervalSec": 0.5"#,
            "intervalSec: `0.5` is not possible; use a whole number from 1 to 315360000",
        ),
        (
            r#""burst": "1""#,
            "burst: `1` is a string; use a whole number from 0 to 9007199254740992",
        ),
        (
            r#""maxQueueingTimeoutMs": -1"#,
            "maxQueueingTimeoutMs: `-1` is not possible; use a whole number from 0 to 2147483647",
        ),
        (
            r#""controlBehavior": "warmUp""#,
            "controlBehavior: `warmUp` does not go with a `key`; use `reject` or `throttle`",
        ),
        (
            r#""paramItem": []"#,
            "paramItem: `[…]` is an array; use an object",
        ),
        (
            r#""paramItem": {}"#,
            "paramItem: `parseStrategy` is missing; add it",
        ),
        (
            r#""paramItem": {"parseStrategy": 5}"#,
            "paramItem.parseStrategy: `5` is not a valid value; use one of `clientIp`, `host`, `header`, `urlParam`, `cookie`",
        ),
        (
            r#""paramItem": {"parseStrategy": 2}"#,
            "paramItem: `fieldName` is missing; add it",
        ),
        (
            r#""paramItem": {"parseStrategy": 3, "fieldName": ""}"#,
            "paramItem.fieldName: `` is not a valid name; use 1 to 256 bytes",
        ),
        (
            r#""paramItem": {"parseStrategy": 0, "matchStrategy": 4}"#,
            "paramItem.matchStrategy: `4` is not a valid value; use one of `exact`, `prefix`, `regex`, `contains`",
        ),
        (
            r#""paramItem": {"parseStrategy": 0, "pattern": 7}"#,
            "paramItem.pattern: `7` is a number; use a string",
        ),
        (
            r#""paramItem": {"parseStrategy": 0, "pattern": "a", "strategy": 0}"#,
            "paramItem: `strategy` is not a known key; use one of `parseStrategy`, `fieldName`, `pattern`, `matchStrategy`, `index`",
        ),
        (
            r#""paramItem": {"parseStrategy": 0, "pattern": "(", "matchStrategy": 2}"#,
            "paramItem.pattern: `(` is not a valid regular expression (found open group without closing ')'); correct it",
        ),
    ];
    for (fields, sentence) in cases {
        assert_eq!(
            says(&one_route(&format!(", {fields}"))),
            format!("gatewayFlowRules[0].{sentence}")
        );
    }
}

#[test]
fn every_field_of_sentinels_lists_is_read_or_has_no_meaning_here() {
    let inert = [
        "clusterMode",
        "clusterConfig",
        "gmtCreate",
        "gmtModified",
        "app",
        "ip",
        "port",
    ];
    let cases: [(&str, &[&str], &str, &str); 2] = [
        (
            "paramFlowRules",
            &[
                "id",
                "resource",
                "count",
                "grade",
                "paramIdx",
                "controlBehavior",
                "maxQueueingTimeMs",
                "burstCount",
                "durationInSec",
                "paramFlowItemList",
                "mode",
                "compat",
                "regex",
            ],
            "hotItems",
            r#""resource": "a", "count": 1, "paramIdx": 0"#,
        ),
        (
            "gatewayFlowRules",
            &[
                "id",
                "resource",
                "resourceMode",
                "count",
                "grade",
                "intervalSec",
                "controlBehavior",
                "burst",
                "maxQueueingTimeoutMs",
                "paramItem",
                "mode",
                "compat",
            ],
            "gatewayId",
            r#""resource": "a", "count": 1"#,
        ),
    ];
    for (list, read, last, needed) in cases {
        let all: Vec<&str> = read
            .iter()
            .chain(&["limitApp", last])
            .chain(&inert)
            .copied()
            .collect();
        let listed: Vec<String> = all.iter().map(|key| format!("`{key}`")).collect();
        assert_eq!(
            says(&format!(r#"{{"{list}": [{{"x": null}}]}}"#)),
            format!(
                "{list}[0]: `x` is not a known key; use one of {}",
                listed.join(", ")
            )
        );
        for key in all {
            let others: Vec<&str> = needed
                .split(", ")
                .filter(|field| !field.starts_with(&format!("\"{key}\"")))
                .collect();
            let fields = [
                others.join(", "),
                format!(r#""{key}": {{"a": [1, {{"a": 2}}]}}"#),
            ];
            let json = format!(r#"{{"{list}": [{{{}}}]}}"#, fields.join(", "));
            if read.contains(&key) || key == "clusterMode" {
                let sentence = says(&json);
                let path = format!("{list}[0].{key}");
                assert!(sentence.starts_with(&path), "{sentence}");
            } else {
                rules(&json);
            }
        }
        assert!(says(&format!(r#"{{"{list}": {{}}}}"#)).ends_with("is an object; use an array"));
        assert_eq!(rules(&format!(r#"{{"{list}": null}}"#)), Rules::default());
    }
}

#[test]
fn two_of_sentinels_rules_with_one_id_are_found_in_their_list() {
    let same = |list: &str, rule: &str| {
        let rules = rules(&format!(r#"{{"{list}": [{rule}, {rule}]}}"#));
        let error = Engine::new(rules).err().expect("they go together");
        leapgate::config::ConfigError::from_rules(&error).to_string()
    };
    let cure = "is the id of an earlier rule; give one of them another `id`";
    assert_eq!(
        same(
            "paramFlowRules",
            r#"{"resource": "a", "count": 1, "paramIdx": 0}"#
        ),
        format!("paramFlowRules[1].id: `a/key=arg:0` {cure}")
    );
    assert_eq!(
        same("gatewayFlowRules", r#"{"resource": "a", "count": 1}"#),
        format!("gatewayFlowRules[1].id: `a` {cure}")
    );
}
