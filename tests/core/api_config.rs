//! Definitions of APIs in documents: those read from them, and the sentences that refuse them.

use leapgate::config::{Value, read};
use leapgate::rule::{ApiDefinition, FlowRule, KeyPart, PredicateItem, Regex, ResourceMode};
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

/// A document with one API of one item with these fields.
fn one_item(fields: &str) -> String {
    format!(r#"{{"apiDefinitions": [{{"apiName": "a", "predicateItems": [{{{fields}}}]}}]}}"#)
}

fn exact(path: &str) -> PredicateItem {
    PredicateItem::exact(path).unwrap()
}

fn api(name: &str, items: impl Into<Vec<PredicateItem>>) -> ApiDefinition {
    ApiDefinition::new(name, items).unwrap()
}

#[test]
fn each_field_of_an_item_does_what_it_says() {
    let with = |part: KeyPart, value| exact("/a").with(part, value).unwrap();
    let header = |name: &str| KeyPart::Header(name.into());
    let regex = PredicateItem::regex(Regex::new("/a+").unwrap());
    let cases = [
        (r#""pattern": "/a""#, exact("/a")),
        (
            r#""pattern": "/a", "matchStrategy": 0, "method": null, "host": null, "headers": null, "query": null"#,
            exact("/a"),
        ),
        (r#""pattern": "/a", "matchStrategy": "exact""#, exact("/a")),
        (
            r#""pattern": "/a/**", "matchStrategy": 1"#,
            PredicateItem::prefix("/a/**").unwrap(),
        ),
        (
            r#""pattern": "/**", "matchStrategy": "prefix""#,
            PredicateItem::prefix("/**").unwrap(),
        ),
        (r#""pattern": "/a+", "matchStrategy": 2"#, regex.clone()),
        (r#""pattern": "/a+", "matchStrategy": "regex""#, regex),
        (
            r#""pattern": "/a", "method": "POST""#,
            with(KeyPart::Method, Some("POST")),
        ),
        (
            r#""pattern": "/a", "host": "Shop.example.com""#,
            with(KeyPart::Host, Some("Shop.example.com")),
        ),
        (
            r#""pattern": "/a", "host": "[2001:db8::1]""#,
            with(KeyPart::Host, Some("[2001:db8::1]")),
        ),
        (
            r#""pattern": "/a", "headers": {"X-App": "iOS"}"#,
            with(header("x-app"), Some("iOS")),
        ),
        (
            r#""pattern": "/a", "headers": {"x-app": true}"#,
            with(header("x-app"), None),
        ),
        (r#""pattern": "/a", "headers": {}"#, exact("/a")),
        (
            r#""pattern": "/a", "query": {"Deep": "", "b": true}"#,
            with(KeyPart::Query("Deep".into()), Some(""))
                .with(KeyPart::Query("b".into()), None)
                .unwrap(),
        ),
    ];
    for (fields, expected) in cases {
        assert_eq!(
            *rules(&one_item(fields)).apis,
            [api("a", [expected])],
            "{fields}"
        );
    }
}

#[test]
fn definitions_that_sentinel_has_written_are_read() {
    let text = include_str!("../rules/api_definitions.json");
    let expected = [
        api(
            "product_api",
            [
                exact("/ahas"),
                PredicateItem::prefix("/product/**").unwrap(),
            ],
        ),
        api(
            "another_customized_api",
            [PredicateItem::prefix("/**").unwrap()],
        ),
        api(
            "numbers",
            [PredicateItem::regex(Regex::new(r"/id/\d+").unwrap())],
        ),
    ];
    assert_eq!(
        *rules(&format!(r#"{{"apiDefinitions": {text}}}"#)).apis,
        expected
    );
    for nothing in [
        r#""predicateItems": null"#,
        r#""predicateItems": []"#,
        r#""id": "x""#,
    ] {
        let read = rules(&format!(
            r#"{{"apiDefinitions": [{{"apiName": "a", {nothing}}}]}}"#
        ));
        assert_eq!(*read.apis, [api("a", [])]);
    }
}

#[test]
fn each_mistake_is_one_sentence_with_the_place_the_value_and_the_cure() {
    let pattern = "is not a pattern of paths; use one such as `/login`, or `/product/**` with `matchStrategy` 1";
    let value = "is not a value to compare with; use a name, and a text or `true` for any value";
    let host = "is not a host; use one such as `shop.example.com`, without a port";
    let rows = [
        (r#""pattern": "login""#, format!(".pattern: `login` {pattern}")),
        (r#""pattern": """#, format!(".pattern: `` {pattern}")),
        (r#""pattern": "/a/**""#, format!(".pattern: `/a/**` {pattern}")),
        (r#""pattern": "/a", "matchStrategy": 1"#, format!(".pattern: `/a` {pattern}")),
        (r#""pattern": 1"#, ".pattern: `1` is a number; use a string".into()),
        (r#""method": "POST""#, ": `pattern` is missing; add it".into()),
        (r#""pattern": "a(", "matchStrategy": 2"#, ".pattern: `a(` is not a valid regular expression (found open group without closing ')'); correct it".into()),
        (r#""pattern": "/a", "matchStrategy": 3"#, ".matchStrategy: `3` is not a valid value; use one of `exact`, `prefix`, `regex`".into()),
        (r#""pattern": "/a", "method": ["GET"]"#, ".method: `[…]` is an array; use a string".into()),
        (r#""pattern": "/a", "host": "a:80""#, format!(".host: `a:80` {host}")),
        (r#""pattern": "/a", "host": "*.a""#, format!(".host: `*.a` {host}")),
        (r#""pattern": "/a", "host": """#, format!(".host: `` {host}")),
        (r#""pattern": "/a", "headers": "x""#, ".headers: `x` is a string; use an object".into()),
        (r#""pattern": "/a", "headers": {"x": 1}"#, format!(".headers.x: `1` {value}")),
        (r#""pattern": "/a", "headers": {"x": false}"#, format!(".headers.x: `false` {value}")),
        (r#""pattern": "/a", "query": {"": "x"}"#, format!(".query.: `x` {value}")),
        (r#""pattern": "/a", "headers": {"x": "1", "X": "2"}"#, ".headers.X: `2` is given twice; keep one of the two".into()),
        (r#""pattern": "/a", "header": {}"#,
            ": `header` is not a known key; use `headers`, or one of `pattern`, `matchStrategy`, `method`, `host`, `query`".into()),
    ];
    for (fields, expected) in rows {
        let place = "apiDefinitions[0].predicateItems[0]";
        assert_eq!(says(&one_item(fields)), format!("{place}{expected}"));
    }
    let conditions: Vec<String> = (0..17).map(|i| format!(r#""x{i}": true"#)).collect();
    assert_eq!(
        says(&one_item(&format!(
            r#""pattern": "/a", "headers": {{{}}}"#,
            conditions.join(",")
        ))),
        "apiDefinitions[0].predicateItems[0].headers.x16: `true` is one condition too many; use at most 16 in one item"
    );
}

#[test]
fn names_of_apis_differ_and_their_number_is_bounded() {
    let document = |apis: &str| format!(r#"{{"apiDefinitions": {apis}}}"#);
    let name = "is not the name of an API; use 1 to 256 bytes, and not `*`";
    let rows = [
        (r#"{}"#, "apiDefinitions: `{…}` is an object; use an array".to_string()),
        (r#"[{}]"#, "apiDefinitions[0]: `apiName` is missing; add it".into()),
        (r#"[{"apiName": ""}]"#, format!("apiDefinitions[0].apiName: `` {name}")),
        (r#"[{"apiName": "*"}]"#, format!("apiDefinitions[0].apiName: `*` {name}")),
        (r#"[{"apiName": "a"}, {"apiName": "b"}, {"apiName": "a"}]"#,
            "apiDefinitions[2].apiName: `a` is the name of an earlier API; give one of them another name".into()),
    ];
    for (apis, expected) in rows {
        assert_eq!(says(&document(apis)), expected);
    }
    let many = |count: usize, of: &dyn Fn(usize) -> String| {
        let list: Vec<String> = (0..count).map(of).collect();
        list.join(",")
    };
    let apis = |count| {
        format!(
            "[{}]",
            many(count, &|i| format!(r#"{{"apiName": "a{i}"}}"#))
        )
    };
    assert_eq!(rules(&document(&apis(10_000))).apis.len(), 10_000);
    assert_eq!(
        says(&document(&apis(10_001))),
        "apiDefinitions: `[…]` has too many APIs; use at most 10000"
    );
    let items = many(1001, &|_| r#"{"pattern": "/a"}"#.into());
    assert_eq!(
        says(&document(&format!(
            r#"[{{"apiName": "a", "predicateItems": [{items}]}}]"#
        ))),
        "apiDefinitions[0].apiName: `a` has too many items; use at most 1000 for one API"
    );
    let parts = |count| {
        let item = |i| format!(r#"{{"pattern": "/a", "headers": {{"x{i}": true}}}}"#);
        format!(
            r#"[{{"apiName": "a", "predicateItems": [{}]}}]"#,
            many(count, &item)
        )
    };
    assert_eq!(rules(&document(&parts(64))).apis.len(), 1);
    assert_eq!(
        says(&document(&parts(65))),
        "apiDefinitions[0].predicateItems[64].headers.x64: `true` is for one header or parameter too many; use at most 64 of them in all APIs"
    );
}

#[test]
fn a_mode_picks_between_a_route_and_an_api_of_one_name() {
    let document = |apis: &str| {
        rules(&format!(
            r#"{{"gatewayFlowRules": [{{"resource": "a", "count": 1}}, {{"resource": "a", "count": 1, "resourceMode": 1}},
                {{"resource": "b", "count": 1, "resourceMode": 1}}],
                "flowRules": [{{"resource": "a", "count": 2, "id": "both"}}], "apiDefinitions": [{apis}]}}"#
        ))
    };
    let rule = |resource| FlowRule::new(resource, 1.0).unwrap();
    let named = document(r#"{"apiName": "a"}"#);
    let expected = [
        rule("a").for_resource_mode(ResourceMode::Route),
        rule("a").for_resource_mode(ResourceMode::Api),
        rule("b"),
    ];
    assert_eq!(named.gateway_flow, expected);
    assert_eq!(named.flow[0].resource_mode(), None);
    let ids: Vec<String> = named
        .gateway_flow
        .iter()
        .map(|rule| rule.id().to_string())
        .collect();
    assert_eq!(ids, ["a", "a/api", "b"]);
    assert!(Engine::new(named).is_ok());
    // Without such an API the mode means nothing: these are two rules of one id.
    let error = Engine::new(document(""))
        .err()
        .map(|error| error.to_string());
    assert_eq!(
        error.as_deref(),
        Some("`a` is the id of an earlier rule; give one of them another `id`")
    );
}
