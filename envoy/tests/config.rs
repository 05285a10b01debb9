//! The filter's own settings: how they are read, and the sentences for errors in them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use leapgate::Rules;
use leapgate::config::KEYS;
use leapgate::rule::{Attribute, AttributeSource, FlowRule};
use leapgate_envoy::config::parse;
use leapgate_envoy::settings::{
    AllowedRules, Format, OriginFrom, Prioritized, RateLimitHeaders, ResourceFrom, Scope, Settings,
};

/// The settings of a section.
#[track_caller]
fn read(section: &str) -> Settings {
    match parse(format!(r#"{{"envoy": {section}}}"#).as_bytes()) {
        Ok((_, settings)) => settings,
        Err(error) => panic!("{error}"),
    }
}

#[track_caller]
fn says(configuration: &str) -> String {
    parse(configuration.as_bytes())
        .expect_err("it is read")
        .to_string()
}

/// The error for a section.
#[track_caller]
fn section_says(section: &str) -> String {
    says(&format!(r#"{{"envoy": {section}}}"#))
}

#[test]
fn all_settings_may_be_left_out() {
    for configuration in ["{}", r#"{"envoy": null}"#, r#"{"envoy": {}}"#] {
        assert_eq!(
            parse(configuration.as_bytes()),
            Ok((Rules::default(), Settings::default()))
        );
    }
    let nulls = r#"{"scope": null, "resource": null, "origin": null, "prioritized": null, "maxWaiting": null, "maxResources": null, "metrics": null, "reply": null, "errors": null, "rateLimitHeaders": null, "rateLimitHeadersOn": null}"#;
    assert_eq!(read(nulls), Settings::default());
    assert_eq!(
        read(
            r#"{"reply": {"status": null, "format": null, "body": null, "headers": null, "breaker": null}}"#
        ),
        Settings::default()
    );
}

#[test]
fn the_defaults_can_be_written_down() {
    let all = r#"{
        "scope": "process",
        "resource": {"from": "route"},
        "origin": null,
        "prioritized": null,
        "maxWaiting": 1000,
        "metrics": {"holdMs": 60000},
        "maxResources": 1000,
        "reply": {"status": 429, "format": "text", "body": "too many requests", "headers": {},
            "breaker": {"status": 503, "body": "service unavailable"}},
        "errors": {"status": ["5xx"], "grpcStatus": [2, 4, 13, 14, 15]},
        "rateLimitHeaders": "draft",
        "rateLimitHeadersOn": "refused"
    }"#;
    assert_eq!(read(all), Settings::default());
}

#[test]
fn each_setting_does_what_it_says() {
    let with = |change: fn(&mut Settings)| {
        let mut settings = Settings::default();
        change(&mut settings);
        settings
    };
    let cases = [
        (r#"{"scope": "worker"}"#, with(|s| s.scope = Scope::Worker)),
        (
            r#"{"resource": {"from": "virtualHost"}}"#,
            with(|s| s.resource = ResourceFrom::VirtualHost),
        ),
        (
            r#"{"resource": {"from": "envoyGateway", "section": null}}"#,
            with(|s| s.resource = ResourceFrom::EnvoyGateway { section: false }),
        ),
        (
            r#"{"resource": {"from": "istio", "section": true}}"#,
            with(|s| s.resource = ResourceFrom::Istio { section: true }),
        ),
        (
            r#"{"resource": {"from": {"routeMetadata": ["leapgate", "resource"]}}}"#,
            with(|s| {
                s.resource = ResourceFrom::Attribute(
                    Attribute::new(AttributeSource::RouteMetadata, &["leapgate", "resource"])
                        .unwrap(),
                )
            }),
        ),
        (
            r#"{"resource": {"fixed": "login"}}"#,
            with(|s| s.resource = ResourceFrom::Fixed("login".into())),
        ),
        (
            r#"{"resource": {"from": null, "fixed": "a"}}"#,
            with(|s| s.resource = ResourceFrom::Fixed("a".into())),
        ),
        (
            r#"{"origin": {"header": "X-App"}}"#,
            with(|s| s.origin = Some(OriginFrom::Header("x-app".into()))),
        ),
        (
            r#"{"origin": {"from": "peer", "header": null}}"#,
            with(|s| s.origin = Some(OriginFrom::Peer)),
        ),
        (
            r#"{"prioritized": {"header": "X-Priority", "value": "high"}}"#,
            with(|s| {
                s.prioritized = Some(Prioritized {
                    header: "x-priority".into(),
                    value: Some("high".into()),
                });
            }),
        ),
        (
            r#"{"prioritized": {"header": "x-priority", "value": null}}"#,
            with(|s| {
                s.prioritized = Some(Prioritized {
                    header: "x-priority".into(),
                    value: None,
                });
            }),
        ),
        (
            r#"{"allowRouteRules": {"maxCount": 1000}}"#,
            with(|s| {
                s.allow_route_rules = Some(AllowedRules {
                    max_count: 1000,
                    max_rules: 4,
                });
            }),
        ),
        (r#"{"maxWaiting": 0}"#, with(|s| s.max_waiting = 0)),
        (r#"{"maxWaiting": 10000}"#, with(|s| s.max_waiting = 10_000)),
        (
            r#"{"metrics": {"holdMs": 1000}}"#,
            with(|s| s.hold_ms = 1000),
        ),
        (
            r#"{"metrics": {"holdMs": 3600000}}"#,
            with(|s| s.hold_ms = 3_600_000),
        ),
        (r#"{"metrics": {"holdMs": null}}"#, with(|_| ())),
        (r#"{"maxResources": 1}"#, with(|s| s.max_resources = 1)),
        (
            r#"{"maxResources": 10000}"#,
            with(|s| s.max_resources = 10_000),
        ),
        (
            r#"{"reply": {"status": 400}}"#,
            with(|s| s.reply.status = 400),
        ),
        (
            r#"{"reply": {"status": 599}}"#,
            with(|s| s.reply.status = 599),
        ),
        (
            r#"{"reply": {"breaker": {"status": 500}}}"#,
            with(|s| s.reply.breaker_status = 500),
        ),
        (
            r#"{"reply": {"breaker": {"body": "later"}}}"#,
            with(|s| s.reply.breaker_body = "later".into()),
        ),
        (
            r#"{"reply": {"format": "json"}}"#,
            with(|s| s.reply.format = Format::Json),
        ),
        (
            r#"{"reply": {"format": "problem", "body": "é\n"}}"#,
            with(|s| {
                s.reply.format = Format::Problem;
                s.reply.body = "é\n".into();
            }),
        ),
        (
            r#"{"reply": {"body": ""}}"#,
            with(|s| s.reply.body = String::new()),
        ),
        (
            r#"{"reply": {"headers": {"X-Limited-By": "leapgate", "a!": "a\tb, \"~\\", "b": ""}}}"#,
            with(|s| {
                let headers = [
                    ("x-limited-by", "leapgate"),
                    ("a!", "a\tb, \"~\\"),
                    ("b", ""),
                ];
                s.reply.headers = headers
                    .map(|(name, value)| (name.into(), value.into()))
                    .into();
            }),
        ),
        (
            r#"{"rateLimitHeaders": "legacy"}"#,
            with(|s| s.rate_limit_headers = RateLimitHeaders::Legacy),
        ),
        (
            r#"{"rateLimitHeaders": "off"}"#,
            with(|s| s.rate_limit_headers = RateLimitHeaders::Off),
        ),
        (
            r#"{"rateLimitHeadersOn": "all"}"#,
            with(|s| s.on_passed = true),
        ),
    ];
    for (section, settings) in cases {
        assert_eq!(read(section), settings, "{section}");
    }
}

#[test]
fn rules_and_settings_come_from_one_document() {
    let configuration = br#"{
        "flowRules": [{"resource": "login", "count": 100, "limitApp": "default"}, {"resource": "*", "count": 1000}],
        "envoy": {"scope": "worker"}
    }"#;
    let (rules, settings) = parse(configuration).unwrap();
    assert_eq!(
        rules.flow,
        [
            FlowRule::new("login", 100.0).unwrap(),
            FlowRule::new("*", 1000.0).unwrap()
        ]
    );
    assert_eq!(settings.scope, Scope::Worker);
}

#[test]
fn the_error_for_a_plugin_without_configuration_says_how_to_add_one() {
    for nothing in ["", " \n"] {
        assert_eq!(
            says(nothing),
            r#"document: `` is not a configuration; give the plugin rules: `{"flowRules": [{"resource": "*", "count": 100}]}`"#
        );
    }
}

#[test]
fn the_error_for_a_serialized_message_names_the_type_to_use() {
    // google.protobuf.Struct {"mode": "shadow"}
    let wire = "\n\u{12}\n\u{4}mode\u{12}\n\u{1a}\u{6}shadow";
    let fault = "is not JSON; give the plugin its configuration as a `google.protobuf.StringValue`";
    assert!(says(wire).ends_with(fault), "{}", says(wire));
}

#[test]
fn what_is_wrong_with_the_rules_is_said_here_too() {
    let keys = KEYS.iter().filter(|key| **key != "envoy");
    let keys: Vec<String> = keys.map(|key| format!("`{key}`")).collect();
    let keys = keys.join(", ");
    let cases = [
        (
            "{",
            "document: `{` breaks off on line 1, column 1 (EOF while parsing an object); close what is open",
        ),
        (
            r#"{"envoi": {}}"#,
            &format!("document: `envoi` is not a known key; use `envoy`, or one of {keys}"),
        ),
        (
            r#"{"flowRules": [{"resource": "a"}], "envoy": 5}"#,
            "flowRules[0]: `count` is missing; add it",
        ),
        (
            r#"{"flowRules": [{"resource": "a", "count": 1}, {"resource": "b", "count": 1, "limitApp": "other"}]}"#,
            r#"flowRules[1].limitApp: `other` never applies where requests have no origin; say what it is: `"envoy": {"origin": {"header": "x-app"}}`"#,
        ),
        (
            r#"{"systemRules": [{"qps": 5}, {"maxThread": 5, "highestSystemLoad": 2}]}"#,
            "systemRules[1]: `highestSystemLoad` is not known in Envoy, where a filter cannot see the machine; use `bbr`, `maxThread` or `avgRt`",
        ),
        (
            r#"{"flowRules": [{"resource": "a", "count": 1, "exempt": [{"clientIp": "::/0"}, {"origin": "shop"}]}]}"#,
            r#"flowRules[0].exempt: `shop` never applies where requests have no origin; say what it is: `"envoy": {"origin": {"header": "x-app"}}`"#,
        ),
        (
            r#"{"flowRules": [{"resource": "a", "count": 1}], "envoy": {"exempt": [{"origin": "shop"}]}}"#,
            r#"envoy.exempt: `shop` never applies where requests have no origin; say what it is: `"envoy": {"origin": {"header": "x-app"}}`"#,
        ),
        (
            r#"{"envoy": {"exempt": [{"clientIp": "10.0.0.1/8"}]}}"#,
            "envoy.exempt[0].clientIp: `10.0.0.1/8` has bits behind its prefix; use the first address of the network",
        ),
        (
            r#"{"systemRules": [{"highestCpuUsage": 0.8, "bbr": true}]}"#,
            "systemRules[0]: `highestCpuUsage` is not known in Envoy, where a filter cannot see the machine; use `bbr`, `maxThread` or `avgRt`",
        ),
        (
            r#"{"degradeRules": [{"resource": "a", "grade": "errorRatio", "count": 2, "timeWindow": 1}]}"#,
            "degradeRules[0].count: `2` is not a valid ratio; use a number from 0 to 1",
        ),
        (
            r#"{"flowRules": [{"resource": "b", "count": 1, "limitApp": "shop\n"}], "envoy": {}}"#,
            r#"flowRules[0].limitApp: `shop\n` never applies where requests have no origin; say what it is: `"envoy": {"origin": {"header": "x-app"}}`"#,
        ),
        (
            r#"{"authorityRules": [{"resource": "b", "limitApp": "shop", "strategy": "black"}]}"#,
            r#"authorityRules[0].limitApp: `shop` never applies where requests have no origin; say what it is: `"envoy": {"origin": {"header": "x-app"}}`"#,
        ),
        (
            r#"{"flowRules": [{"resource": "b", "count": 1, "strategy": "chain", "refResource": "entry"}]}"#,
            "flowRules[0].strategy: `chain` never applies in Envoy, where requests come in by no context; use `direct`",
        ),
        (
            r#"{"paramFlowRules": [{"resource": "a", "count": 1, "paramIdx": 0}]}"#,
            "document: `paramFlowRules` limits arguments, which requests in Envoy do not have; use `flowRules` with a `key`",
        ),
        (
            r#"{"flowRules": [{"resource": "a", "count": 1, "key": ["path", {"arg": 0}]}]}"#,
            "flowRules[0].key: `arg:0` is an argument, which requests in Envoy do not have; use `clientIp`, a header or another part of the request",
        ),
    ];
    for (configuration, sentence) in cases {
        assert_eq!(says(configuration), sentence, "{configuration}");
    }
}

#[test]
fn the_document_in_the_readme_is_accepted() {
    let readme = include_str!("../../README.md");
    let document = readme
        .split_once("```json\n")
        .and_then(|(_, rest)| rest.split_once("```"));
    let (document, _) = document.expect("there is none");
    let (rules, _) = parse(document.as_bytes()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(rules.flow.len(), 6);
}

#[test]
fn a_setting_that_is_wrong_is_refused() {
    let keys = "`scope`, `resource`, `origin`, `prioritized`, `exempt`, `allowRouteRules`, `maxWaiting`, `maxResources`, `metrics`, `store`, `reply`, `errors`, `rateLimitHeaders`, `rateLimitHeadersOn`";
    let max = "is not possible; use a whole number from 1 to 10000";
    let from = "is not a valid value; use one of `route`, `virtualHost`, `envoyGateway`, `istio`";
    let fixed = "is not the name of one resource; use 1 to 256 bytes, and not `*`";
    let headers = "is not a valid value; use one of `draft`, `legacy`, `off`";
    let cases = [
        ("5", "envoy: `5` is a number; use an object".into()),
        ("[]", "envoy: `[…]` is an array; use an object".into()),
        (r#"{"cluster": {}}"#, format!("envoy: `cluster` is not a known key; use one of {keys}")),
        (
            r#"{"replay": {}}"#,
            format!("envoy: `replay` is not a known key; use `reply`, or one of {}", keys.replace("`reply`, ", "")),
        ),
        (r#"{"scope": null, "scope": "worker"}"#, "envoy: `scope` is given twice; keep one of the two".into()),
        (r#"{"scope": "vm"}"#, "envoy.scope: `vm` is not a valid value; use one of `process`, `worker`".into()),
        (r#"{"scope": 0}"#, "envoy.scope: `0` is not a valid value; use one of `process`, `worker`".into()),
        (r#"{"resource": "route"}"#, "envoy.resource: `route` is a string; use an object".into()),
        (r#"{"resource": {}}"#, "envoy.resource: `{…}` names no resource; use `{\"from\": \"route\"}`".into()),
        (
            r#"{"resource": {"header": "x-api"}}"#,
            "envoy.resource: `header` is not a known key; use one of `from`, `fixed`, `section`".into(),
        ),
        (r#"{"resource": {"from": "routeMetadata"}}"#, format!("envoy.resource.from: `routeMetadata` {from}")),
        (
            r#"{"resource": {"from": {"routeMetadata": ["leapgate"]}}}"#,
            "envoy.resource.from.routeMetadata: `[…]` is not a valid path; use a namespace and 1 to 7 keys, for a claim 1 to 6 names, for the filter state one, each of 1 to 256 bytes without a zero byte".into(),
        ),
        (
            r#"{"resource": {"from": {"header": "x-api"}}}"#,
            "envoy.resource.from: `{…}` is chosen by clients; use metadata: `{\"routeMetadata\": [\"leapgate\", \"resource\"]}`".into(),
        ),
        (
            r#"{"resource": {"from": "route", "section": false}}"#,
            "envoy.resource.section: `false` means something only with `envoyGateway` and `istio`; leave it out".into(),
        ),
        (
            r#"{"resource": {"from": "istio", "section": "all"}}"#,
            "envoy.resource.section: `all` is a string; use `true` or `false`".into(),
        ),
        (r#"{"resource": {"from": 1}}"#, format!("envoy.resource.from: `1` {from}")),
        (r#"{"allowRouteRules": {}}"#, "envoy.allowRouteRules: `maxCount` is missing; add it".into()),
        (
            r#"{"allowRouteRules": {"maxCount": -1}}"#,
            "envoy.allowRouteRules.maxCount: `-1` is not possible; use a whole number from 0 to 9007199254740992".into(),
        ),
        (
            r#"{"allowRouteRules": {"maxCount": 9, "maxRules": 17}}"#,
            "envoy.allowRouteRules.maxRules: `17` is not possible; use a whole number from 1 to 16".into(),
        ),
        (
            r#"{"allowRouteRules": {"maxCount": 9}, "resource": {"fixed": "a"}}"#,
            "envoy.allowRouteRules: `{…}` needs resources that belong to routes; use `\"resource\": {\"from\": \"route\"}`, or their metadata".into(),
        ),
        (
            r#"{"allowRouteRules": {"maxCount": 9}, "resource": {"from": {"metadata": ["a", "b"]}}}"#,
            "envoy.allowRouteRules: `{…}` needs resources that belong to routes; use `\"resource\": {\"from\": \"route\"}`, or their metadata".into(),
        ),
        (
            r#"{"resource": {"from": "route", "fixed": "a"}}"#,
            "envoy.resource.fixed: `a` does not go with `from`; keep one of the two".into(),
        ),
        (r#"{"resource": {"fixed": 5}}"#, "envoy.resource.fixed: `5` is a number; use a string".into()),
        (r#"{"resource": {"fixed": ""}}"#, format!("envoy.resource.fixed: `` {fixed}")),
        (r#"{"resource": {"fixed": "*"}}"#, format!("envoy.resource.fixed: `*` {fixed}")),
        (r#"{"origin": "x-app"}"#, "envoy.origin: `x-app` is a string; use an object".into()),
        (r#"{"origin": {}}"#, "envoy.origin: `{…}` names no origin; use `{\"header\": \"x-app\"}`".into()),
        (
            r#"{"origin": {"property": "a"}}"#,
            "envoy.origin: `property` is not a known key; use one of `from`, `header`".into(),
        ),
        (
            r#"{"origin": {"from": "client"}}"#,
            "envoy.origin.from: `client` is not a valid value; use `peer`".into(),
        ),
        (
            r#"{"origin": {"from": "peer", "header": "a"}}"#,
            "envoy.origin.header: `a` does not go with `from`; keep one of the two".into(),
        ),
        (
            r#"{"origin": {"header": "x app"}}"#,
            "envoy.origin.header: `x app` is not a valid header name; use letters, digits and hyphens".into(),
        ),
        (
            r#"{"prioritized": {"value": "high"}}"#,
            "envoy.prioritized: `{…}` names no header; use `{\"header\": \"x-priority\"}`".into(),
        ),
        (
            r#"{"prioritized": {"header": ":path"}}"#,
            "envoy.prioritized.header: `:path` is not a valid header name; use letters, digits and hyphens".into(),
        ),
        (
            r#"{"prioritized": {"header": "a", "value": " b"}}"#,
            "envoy.prioritized.value: ` b` is not a valid header value; use up to 4096 printable ASCII characters, no space around them".into(),
        ),
        (
            r#"{"metrics": {"holdMs": 999}}"#,
            "envoy.metrics.holdMs: `999` is not possible; use a whole number from 1000 to 3600000".into(),
        ),
        (
            r#"{"metrics": {"hold": 1000}}"#,
            "envoy.metrics: `hold` is not a known key; use `holdMs`".into(),
        ),
        (
            r#"{"metrics": 60000}"#,
            "envoy.metrics: `60000` is a number; use an object".into(),
        ),
        (
            r#"{"maxWaiting": 10001}"#,
            "envoy.maxWaiting: `10001` is not possible; use a whole number from 0 to 10000".into(),
        ),
        (r#"{"maxResources": 0}"#, format!("envoy.maxResources: `0` {max}")),
        (r#"{"maxResources": 10001}"#, format!("envoy.maxResources: `10001` {max}")),
        (r#"{"maxResources": 1.5}"#, format!("envoy.maxResources: `1.5` {max}")),
        (
            r#"{"maxResources": "5"}"#,
            "envoy.maxResources: `5` is a string; use a whole number from 1 to 10000".into(),
        ),
        (r#"{"reply": 429}"#, "envoy.reply: `429` is a number; use an object".into()),
        (
            r#"{"reply": {"code": 429}}"#,
            "envoy.reply: `code` is not a known key; use one of `status`, `format`, `body`, `headers`, `breaker`".into(),
        ),
        (
            r#"{"reply": {"status": 200}}"#,
            "envoy.reply.status: `200` is not possible; use a whole number from 400 to 599".into(),
        ),
        (
            r#"{"reply": {"status": "429"}}"#,
            "envoy.reply.status: `429` is a string; use a whole number from 400 to 599".into(),
        ),
        (
            r#"{"reply": {"format": "html"}}"#,
            "envoy.reply.format: `html` is not a valid value; use one of `text`, `json`, `problem`".into(),
        ),
        (r#"{"reply": {"body": {}}}"#, "envoy.reply.body: `{…}` is an object; use a string".into()),
        (r#"{"reply": {"headers": []}}"#, "envoy.reply.headers: `[…]` is an array; use an object".into()),
        (
            r#"{"reply": {"breaker": {"status": 200}}}"#,
            "envoy.reply.breaker.status: `200` is not possible; use a whole number from 400 to 599".into(),
        ),
        (
            r#"{"reply": {"breaker": {"format": "json"}}}"#,
            "envoy.reply.breaker: `format` is not a known key; use one of `status`, `body`".into(),
        ),
        (
            r#"{"errors": {"codes": []}}"#,
            "envoy.errors: `codes` is not a known key; use one of `status`, `grpcStatus`".into(),
        ),
        (r#"{"errors": {"status": "5xx"}}"#, "envoy.errors.status: `5xx` is a string; use an array".into()),
        (
            r#"{"errors": {"status": ["6xx"]}}"#,
            "envoy.errors.status[0]: `6xx` is not a valid status; use `5xx`, `4xx` or a number".into(),
        ),
        (
            r#"{"errors": {"status": [500, 99]}}"#,
            "envoy.errors.status[1]: `99` is not possible; use a whole number from 200 to 599".into(),
        ),
        (
            r#"{"errors": {"grpcStatus": [0]}}"#,
            "envoy.errors.grpcStatus[0]: `0` is not possible; use a whole number from 1 to 16".into(),
        ),
        (r#"{"rateLimitHeaders": true}"#, format!("envoy.rateLimitHeaders: `true` {headers}")),
        (r#"{"rateLimitHeaders": "ietf"}"#, format!("envoy.rateLimitHeaders: `ietf` {headers}")),
        (
            r#"{"rateLimitHeadersOn": "passed"}"#,
            "envoy.rateLimitHeadersOn: `passed` is not a valid value; use one of `refused`, `all`".into(),
        ),
    ];
    for (section, sentence) in cases {
        assert_eq!(section_says(section), sentence, "{section}");
    }
}

#[test]
fn a_header_that_cannot_be_sent_is_refused() {
    let taken = "is written by the filter or by Envoy; leave it out";
    let name = "is not a valid header name; use letters, digits and hyphens";
    let value = "is not a valid header value; use up to 4096 printable ASCII characters, no space around them";
    let cases = [
        (r#""": "a""#, format!(": `` {name}")),
        (r#"":status": "200""#, format!(": `:status` {name}")),
        (r#""x y": "a""#, format!(": `x y` {name}")),
        (r#""x\r\ny": "a""#, format!(": `x\\r\\ny` {name}")),
        (r#""größe": "a""#, format!(": `größe` {name}")),
        (r#""Retry-After": "1""#, format!(": `retry-after` {taken}")),
        (r#""ratelimit": "1""#, format!(": `ratelimit` {taken}")),
        (
            r#""RateLimit-Policy": "1""#,
            format!(": `ratelimit-policy` {taken}"),
        ),
        (
            r#""X-RateLimit-Limit": "1""#,
            format!(": `x-ratelimit-limit` {taken}"),
        ),
        (
            r#""content-length": "1""#,
            format!(": `content-length` {taken}"),
        ),
        (
            r#""cache-control": "no-cache""#,
            format!(": `cache-control` {taken}"),
        ),
        (
            r#""content-type": "1""#,
            format!(": `content-type` {taken}"),
        ),
        (r#""grpc-status": "1""#, format!(": `grpc-status` {taken}")),
        (
            r#""transfer-encoding": "chunked""#,
            format!(": `transfer-encoding` {taken}"),
        ),
        (
            r#""X-A": "1", "x-a": "1""#,
            ": `x-a` is given twice; keep one of the two".into(),
        ),
        (r#""x-a": 5"#, ".x-a: `5` is a number; use a string".into()),
        (
            r#""x-a": null"#,
            ".x-a: `null` is not a value; use a string".into(),
        ),
        (
            r#""x-a": "b\r\nc: d""#,
            format!(".x-a: `b\\r\\nc: d` {value}"),
        ),
        (r#""x-a": "\u0000""#, format!(".x-a: `\\u{{0}}` {value}")),
        (r#""x-a": "é""#, format!(".x-a: `é` {value}")),
        (r#""x-a": " b""#, format!(".x-a: ` b` {value}")),
    ];
    for (header, sentence) in cases {
        let section = format!(r#"{{"reply": {{"headers": {{{header}}}}}}}"#);
        assert_eq!(
            section_says(&section),
            format!("envoy.reply.headers{sentence}"),
            "{header}"
        );
    }
}

#[test]
fn what_is_too_much_for_a_reply_is_refused() {
    let body = |length: usize| format!(r#"{{"reply": {{"body": "{}"}}}}"#, "b".repeat(length));
    assert_eq!(read(&body(16_384)).reply.body.len(), 16_384);
    let shown = "b".repeat(64);
    assert_eq!(
        section_says(&body(16_385)),
        format!("envoy.reply.body: `{shown}…` is too long; use at most 16384 bytes")
    );

    let value = |length: usize| {
        format!(
            r#"{{"reply": {{"headers": {{"a": "{}"}}}}}}"#,
            "b".repeat(length)
        )
    };
    assert_eq!(read(&value(4096)).reply.headers[0].1.len(), 4096);
    assert!(section_says(&value(4097)).starts_with(&format!(
        "envoy.reply.headers.a: `{shown}…` is not a valid header value"
    )));

    let name = |length: usize| {
        format!(
            r#"{{"reply": {{"headers": {{"{}": ""}}}}}}"#,
            "b".repeat(length)
        )
    };
    assert_eq!(read(&name(256)).reply.headers[0].0.len(), 256);
    assert!(section_says(&name(257)).starts_with(&format!(
        "envoy.reply.headers: `{shown}…` is not a valid header name"
    )));

    let headers = |count: usize| {
        let headers: Vec<String> = (0..count).map(|i| format!(r#""x-{i}": """#)).collect();
        format!(r#"{{"reply": {{"headers": {{{}}}}}}}"#, headers.join(", "))
    };
    assert_eq!(read(&headers(32)).reply.headers.len(), 32);
    assert_eq!(
        section_says(&headers(33)),
        "envoy.reply.headers: `x-32` is one header too many; use at most 32"
    );
}
