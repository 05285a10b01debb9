//! An explanation names the rules that the engine asks, in the engine's order.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests are tests"
)]

use leapgate::rule::{KeyValue, Mode};
use leapgate::{Decision, Engine, Request, Rules, Timestamp};
use leapgate_cli::check::{Target, check};
use leapgate_cli::explain::{Asked, Explanation, explain, text};
use leapgate_cli::words::Reach;

/// Each rule of it refuses the first request, or would.
const STRICT: &str = r#"{
    "apiDefinitions": [{"apiName": "auth", "predicateItems": [{"pattern": "/login", "method": "POST"}]}],
    "authorityRules": [{"resource": "login", "id": "banned-app", "limitApp": "app", "strategy": "black"}],
    "systemRules": [{"qps": 0, "id": "all"}],
    "gatewayFlowRules": [
        {"resource": "login", "id": "gateway", "count": 0},
        {"resource": "login", "id": "tiers", "count": 0, "paramItem": {"parseStrategy": "header", "fieldName": "x-tier", "pattern": "gold"}}],
    "flowRules": [
        {"resource": "auth", "id": "of-api", "count": 0},
        {"resource": "login", "id": "clients", "count": 0, "key": ["clientIp"]},
        {"resource": "login", "id": "app-only", "count": 0, "limitApp": "app"},
        {"resource": "login", "id": "others", "count": 0, "limitApp": "other"},
        {"resource": "login", "id": "not-office", "count": 0, "exempt": [{"clientIp": "10.0.0.0/8"}]},
        {"resource": "login", "id": "plain", "count": 0},
        {"resource": "api", "id": "api", "count": 0},
        {"resource": "*", "id": "each", "count": 0}],
    "envoy": {"origin": {"header": "x-app"}}
}"#;

fn asked(change: impl FnOnce(&mut Asked)) -> Asked {
    let mut asked = Asked {
        resource: "login".into(),
        path: Some("/login?next=/".into()),
        method: Some("POST".into()),
        client: Some("10.0.0.1".into()),
        ..Asked::default()
    };
    change(&mut asked);
    asked
}

fn explained(document: &str, asked: &Asked) -> Explanation {
    let checked = check(document.as_bytes(), Target::Envoy).unwrap();
    explain(&checked.rules, &checked.settings, Reach::Workers, asked).unwrap()
}

/// The rules that are met, but for authority rules that admit the request.
fn ids(explanation: &Explanation) -> Vec<&str> {
    let rules = explanation
        .rules
        .iter()
        .filter(|rule| !rule.words.ends_with("it admits this one"));
    rules.map(|rule| &*rule.id).collect()
}

/// The rules that refuse a request, in the order in which the engine names them: one that has refused is put in shadow mode.
fn refusals(document: &str, asked: &Asked) -> Vec<String> {
    let mut rules: Rules = check(document.as_bytes(), Target::Envoy).unwrap().rules;
    let mut found = Vec::new();
    loop {
        let engine = Engine::new(rules.clone()).unwrap();
        let apis: &[&str] = if asked.path.is_some() && asked.method.as_deref() == Some("POST") {
            &["auth"]
        } else {
            &[]
        };
        let resource = engine.resource_with(&engine.resource(&asked.resource), apis);
        let tier = asked.headers.iter().find(|(name, _)| name == "x-tier");
        let of = |part: &leapgate::rule::KeyPart| match part.to_string().as_str() {
            "clientIp" | "clientIp:32:128" => asked.client.as_ref().map(String::as_bytes),
            "header:x-tier" => tier.map(|(_, value)| value.as_bytes()),
            _ => asked.client.as_ref().map(String::as_bytes),
        };
        let values: Vec<KeyValue<'_>> = resource
            .key_parts()
            .iter()
            .map(|part| of(part).map_or(KeyValue::Missing, KeyValue::One))
            .collect();
        let origin = asked.headers.iter().find(|(name, _)| name == "x-app");
        let origin = origin.map_or("", |(_, value)| value);
        let request = Request::new(&asked.resource)
            .keys(&values)
            .origin(origin)
            .inbound();
        let Decision::Block(blocked) =
            engine.enter_resource(&resource, &request, Timestamp::from_millis(5))
        else {
            return found;
        };
        let id = blocked.id().to_string();
        for rule in rules
            .authority
            .iter_mut()
            .filter(|rule| rule.id().as_str() == id)
        {
            *rule = rule.clone().in_mode(Mode::Shadow);
        }
        for rule in rules
            .system
            .iter_mut()
            .filter(|rule| rule.id().as_str() == id)
        {
            *rule = rule.clone().in_mode(Mode::Shadow);
        }
        for rule in rules.gateway_flow.iter_mut().chain(&mut rules.flow) {
            if rule.id().as_str() == id {
                *rule = rule.clone().in_mode(Mode::Shadow);
            }
        }
        found.push(id);
    }
}

#[test]
fn the_rules_are_those_that_the_engine_asks_in_its_order() {
    let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let requests = [
        asked(|_| {}),
        asked(|asked| asked.path = None),
        asked(|asked| asked.method = Some("GET".into())),
        asked(|asked| asked.client = Some("192.0.2.1".into())),
        asked(|asked| asked.headers.push(header("x-app", "app"))),
        asked(|asked| asked.headers.push(header("x-app", "ops"))),
        asked(|asked| asked.headers.push(header("x-tier", "gold"))),
        asked(|asked| asked.resource = "api".into()),
        asked(|asked| asked.resource = "unknown".into()),
    ];
    for asked in &requests {
        let explanation = explained(STRICT, asked);
        assert_eq!(ids(&explanation), refusals(STRICT, asked), "{asked:?}");
        assert_eq!(
            explanation.rules.len() + explanation.others.len(),
            12,
            "{asked:?}"
        );
    }
}

#[test]
fn a_rule_is_explained_in_words() {
    let document = r#"{"flowRules": [
        {"resource": "r", "id": "a", "count": 5},
        {"resource": "r", "id": "b", "count": 100, "intervalMs": 10000, "key": [{"header": "x-api-key"}, "path"], "burst": 10},
        {"resource": "r", "id": "c", "count": 20, "grade": "concurrency"},
        {"resource": "r", "id": "d", "count": 4, "controlBehavior": "throttle"},
        {"resource": "r", "id": "e", "count": 10, "window": "sentinel", "mode": "shadow"},
        {"resource": "r", "id": "f", "count": 9, "key": ["clientIp"], "keyItems": [{"value": "10.0.0.1", "count": 1000}]}],
        "degradeRules": [{"resource": "r", "id": "g", "count": 200, "slowRatioThreshold": 0.5, "timeWindow": 10}],
        "banRules": [{"resource": "r", "id": "h", "key": ["clientIp"], "count": 10, "intervalMs": 60000, "banSec": 600}]}"#;
    let asked = asked(|asked| asked.resource = "r".into());
    let explanation = explained(document, &asked);
    assert_eq!(
        text(&explanation, true),
        "A request for `r` meets 8 rules, in this order:\n  \
           1. h (banRules[0]): a ban of 10 min after 10 refusals in any minute; keyed by the client's address (of IPv6 the first 64 bits)\n  \
           2. g (degradeRules[0]): a circuit breaker: refuses all for 10 s once more than 50 % of the calls of 1 s took longer than 200 ms, of at least 5 calls; then one probe decides\n  \
           3. a (flowRules[0]): at most 5 requests in any second, over all workers\n  \
           4. b (flowRules[1]): at most 100 requests in any 10 s, over all workers; keyed by the header x-api-key and the path: each has its own 100 and may use 10 more at once; this one's is missing, which is a key of its own, `/login`\n  \
           5. c (flowRules[2]): at most 20 requests in flight at once, over all workers\n  \
           6. d (flowRules[3]): one request every 250 ms, over all workers; the others wait for their turn, for 500 ms at most, and are refused beyond that\n  \
           7. e (flowRules[4]): 10 requests in 1 s of its window, over all workers, and at most twice as many in any second; in shadow mode: it counts, and refuses nothing\n  \
           8. f (flowRules[5]): at most 1,000 requests in any second, over all workers; keyed by the client's address (of IPv6 the first 64 bits): each has its own 1,000; this one's is `10.0.0.1`\n\
         It passes if none of them refuses; the first that does is the one that is told, and then nothing is charged.\n"
    );
}

#[test]
fn why_a_rule_does_not_apply_is_told() {
    let explanation = explained(STRICT, &asked(|asked| asked.method = Some("GET".into())));
    let told: Vec<(&str, &str)> = explanation
        .others
        .iter()
        .map(|rule| (&*rule.id, &*rule.words))
        .collect();
    assert_eq!(
        told,
        [
            ("tiers", "the header x-tier does not match `=gold`"),
            ("of-api", "the request does not belong to the API `auth`"),
            ("app-only", "it is for requests of the origin `app`"),
            (
                "others",
                "it is for requests of other origins, and this one has none"
            ),
            ("not-office", "the request is exempt from it"),
            ("api", "it is for the resource `api`"),
            (
                "each",
                "it is for resources that no other rule of its kind names, and one names `login`"
            ),
        ]
    );
}
