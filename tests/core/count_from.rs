//! Counts that requests bring along.

use crate::support::{admitted, at, block, pass, wait};
use fastrand::Rng;
use leapgate::config::{Value, read};
use leapgate::rule::{
    Attribute, AttributeSource, Count, CountFrom, FlowRule, KeyItem, KeyPart, KeyValue, KeyedBy,
    MaxQueueing,
};
use leapgate::{Decision, Engine, Request, Rules};
use std::collections::BTreeMap;

fn count(n: f64) -> Count {
    Count::new(n).unwrap()
}

fn plan(source: AttributeSource) -> Attribute {
    Attribute::new(source, &["plans", "requests"]).unwrap().as_number()
}

fn by() -> KeyedBy {
    let from = CountFrom::new(plan(AttributeSource::Metadata)).at_most(count(10.0));
    let by = KeyedBy::new([KeyPart::Header("x-client".into())]).unwrap();
    by.with_count_from(from)
}

/// At most so many requests of a client a minute, or as many as its plan says, up to 10.
fn api(own: f64, by: KeyedBy) -> FlowRule {
    let rule = FlowRule::new("api", own).unwrap().keyed(by).unwrap();
    rule.per(60_000, None).unwrap()
}

fn engine(flow: FlowRule) -> Engine {
    Engine::new(Rules { flow: vec![flow], ..Rules::default() }).unwrap()
}

fn keys<'a>(client: &'a str, plan: Option<&'a str>) -> [KeyValue<'a>; 2] {
    let plan = plan.map_or(KeyValue::Missing, |plan| KeyValue::One(plan.as_bytes()));
    [KeyValue::One(client.as_bytes()), plan]
}

/// How many of 20 requests of a client with that plan pass.
fn passes(engine: &Engine, client: &str, plan: Option<&str>) -> usize {
    admitted(engine, &Request::new("api").keys(&keys(client, plan)), 20, 0)
}

fn defaulted(engine: &Engine) -> u64 {
    let mut found = 0;
    engine.store().for_each_keyed(|_, state| found = state.defaulted());
    found
}

#[test]
fn a_request_brings_its_count_along_and_a_wrong_one_is_the_default() {
    let rows = [
        (Some("0"), 0, 0),
        (Some("1"), 1, 0),
        (Some("7"), 7, 0),
        (Some("2.9"), 2, 0),
        (Some("10"), 10, 0),
        (Some("11"), 10, 0),
        (Some("1e2"), 10, 0),
        (Some(" 7"), 7, 0),
        (None, 3, 20),
        (Some(""), 3, 20),
        (Some("-1"), 3, 20),
        (Some("many"), 3, 20),
        (Some("1e400"), 3, 20),
        (Some("1000000000000000000000"), 3, 20),
        (Some("NaN"), 3, 20),
        (Some("inf"), 3, 20),
    ];
    for (plan, expected, counted) in rows {
        let engine = engine(api(3.0, by()));
        assert_eq!(passes(&engine, "a", plan), expected, "{plan:?}");
        assert_eq!(defaulted(&engine), counted, "{plan:?}");
    }
}

#[test]
fn a_number_that_is_not_set_in_typed_metadata_is_the_default() {
    for (source, zero) in [
        (AttributeSource::Metadata, 0),
        (AttributeSource::RouteMetadata, 0),
        (AttributeSource::TypedMetadata, 3),
    ] {
        let by = KeyedBy::new([KeyPart::Header("x-client".into())]).unwrap();
        let by = by.with_count_from(CountFrom::new(plan(source)));
        let engine = engine(api(3.0, by));
        let parts = engine.resource("api").key_parts().to_vec();
        assert_eq!(parts[1], KeyPart::Attribute(plan(source)));
        assert_eq!(passes(&engine, "a", Some("0")), zero);
        assert_eq!(passes(&engine, "b", Some("5")), 5);
    }
}

#[test]
fn each_key_has_the_count_of_its_own_requests() {
    let engine = engine(api(3.0, by()));
    assert_eq!(passes(&engine, "a", Some("5")), 5);
    assert_eq!(passes(&engine, "b", Some("2")), 2);
    assert_eq!(passes(&engine, "c", None), 3);
}

#[test]
fn another_plan_goes_on_with_what_the_key_has_counted() {
    let engine = engine(api(3.0, by()));
    assert_eq!(passes(&engine, "a", Some("4")), 4);
    assert_eq!(passes(&engine, "a", Some("6")), 2);
    assert_eq!(passes(&engine, "a", Some("5")), 0);
    assert_eq!(passes(&engine, "a", None), 0);
    assert_eq!(passes(&engine, "a", Some("9")), 3);
}

#[test]
fn an_item_of_the_rule_goes_before_the_plan_and_needs_no_default() {
    let item = KeyItem {
        values: [Some("gold".into())].into(),
        count: count(15.0),
    };
    let engine = engine(api(3.0, by().with_items([item]).unwrap()));
    assert_eq!(passes(&engine, "gold", Some("1")), 15);
    assert_eq!(passes(&engine, "gold", None), 0);
    assert_eq!(defaulted(&engine), 0);
    assert_eq!(passes(&engine, "a", None), 3);
    assert_eq!(defaulted(&engine), 20);
}

#[test]
fn a_burst_is_on_top_of_a_plan() {
    let engine = engine(api(3.0, by().with_burst(2)));
    assert_eq!(passes(&engine, "a", Some("4")), 6);
    assert_eq!(passes(&engine, "b", Some("0")), 0);
    assert_eq!(passes(&engine, "c", None), 5);
    assert_eq!(passes(&engine, "d", Some("99")), 12);
}

#[test]
fn a_header_tells_the_count_of_the_request_that_asks() {
    let engine = engine(api(3.0, by()));
    let resource = engine.resource("api");
    let told = |plan| {
        let keys = keys("a", plan);
        let request = Request::new("api").keys(&keys);
        let policy = resource.policies_for(&request, at(0)).next().unwrap();
        (policy.count.get(), policy.remaining)
    };
    // Before and after the first request.
    assert_eq!((told(Some("7")), told(None)), ((7.0, 7), (3.0, 3)));
    assert_eq!(admitted(&engine, &Request::new("api").keys(&keys("a", Some("7"))), 2, 0), 2);
    assert_eq!(told(Some("7")), (7.0, 5));
    assert_eq!(told(Some("99")), (10.0, 8));
    assert_eq!(told(None), (3.0, 1));
    assert_eq!(told(Some("1")), (1.0, 0));
    assert_eq!(defaulted(&engine), 0, "nothing was decided by the default");
}

#[test]
fn calls_in_flight_and_turns_go_by_the_plan_too() {
    let calls = engine(api(3.0, by()).concurrency());
    let (large, small) = (keys("a", Some("2")), keys("a", Some("1")));
    let first = pass(&calls, &Request::new("api").keys(&large), 0);
    block(&calls, &Request::new("api").keys(&small), 0);
    drop(pass(&calls, &Request::new("api").keys(&large), 0));
    drop(first);
    drop(pass(&calls, &Request::new("api").keys(&small), 0));

    let queue = MaxQueueing::from_millis(60_000).unwrap();
    let turns = engine(api(3.0, by()).throttle(queue));
    let (fast, slow) = (keys("a", Some("10")), keys("a", Some("2")));
    drop(pass(&turns, &Request::new("api").keys(&fast), 0));
    let second = wait(&turns, &Request::new("api").keys(&fast), 0, 6000);
    let third = wait(&turns, &Request::new("api").keys(&slow), 0, 12_000);
    let fourth = wait(&turns, &Request::new("api").keys(&fast), 0, 42_000);
    drop((second, third, fourth));
}

#[test]
fn a_rule_that_takes_counts_from_requests_goes_on_when_it_no_longer_does() {
    let engine = engine(api(3.0, by()));
    assert_eq!(passes(&engine, "a", Some("5")), 5);
    let by = KeyedBy::new([KeyPart::Header("x-client".into())]).unwrap();
    let flow = vec![api(6.0, by)];
    engine.replace(Rules { flow, ..Rules::default() }).unwrap();
    assert_eq!(admitted(&engine, &Request::new("api").keys(&keys("a", None)[..1]), 20, 0), 1);
}

/// Requests of a few keys, each with a count of its own, against a log of what each key has passed.
#[test]
fn each_request_is_decided_by_its_own_count_as_in_a_log() {
    let texts = ["0", "1", "2", "3", "5", "9", "12", "-3", "1e400", "plan", ""];
    for seed in 0..60 {
        let mut rng = Rng::with_seed(seed);
        let rule = api(2.0, by()).per(1000, Some(10)).unwrap();
        let engine = engine(rule);
        let mut log: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        let (mut now, mut wrong) = (0, 0);
        for _ in 0..300 {
            now += rng.u64(..80);
            let client = rng.u8(..3).to_string();
            let plan = texts[rng.usize(..texts.len())];
            let limit = match plan {
                "-3" | "1e400" | "plan" | "" => None,
                plan => Some(plan.parse::<u64>().unwrap().min(10)),
            };
            wrong += u64::from(limit.is_none());
            let passed = log.entry(client.clone()).or_default();
            let used = passed.iter().filter(|then| now / 100 - **then / 100 <= 10).count() as u64;
            let fits = used < limit.unwrap_or(2);
            let keys = keys(&client, Some(plan));
            let decided = engine.enter(&Request::new("api").keys(&keys), at(now));
            assert_eq!(matches!(decided, Decision::Pass(_)), fits, "seed {seed} at {now}");
            if fits {
                passed.push(now);
            }
        }
        assert_eq!(defaulted(&engine), wrong);
    }
}

#[test]
fn a_document_says_where_the_count_is() {
    let flow = |count: &str, more: &str| {
        let json = format!(r#"{{"flowRules": [{{"resource": "api", "count": {count}{more}}}]}}"#);
        let tree = Value::from_json(json).unwrap();
        read(&tree).map(|document| document.rules.flow).map_err(|error| error.to_string())
    };
    let key = r#", "key": [{"header": "x-client"}]"#;
    let rule = |own, from| {
        let by = KeyedBy::new([KeyPart::Header("x-client".into())]).unwrap();
        FlowRule::new("api", own).unwrap().keyed(by.with_count_from(from)).unwrap()
    };
    let path = r#"["plans", "requests"]"#;
    let rows = [
        (
            format!(r#"{{"metadata": {path}, "default": 3, "atMost": 10}}"#),
            rule(3.0, CountFrom::new(plan(AttributeSource::Metadata)).at_most(count(10.0))),
        ),
        (
            format!(r#"{{"typedMetadata": {path}, "default": 0.5}}"#),
            rule(0.5, CountFrom::new(plan(AttributeSource::TypedMetadata))),
        ),
        (
            format!(r#"{{"routeMetadata": {path}, "default": 3, "atMost": null}}"#),
            rule(3.0, CountFrom::new(plan(AttributeSource::RouteMetadata))),
        ),
        (
            r#"{"jwtClaim": "plan", "default": 3}"#.into(),
            rule(3.0, CountFrom::new(Attribute::jwt_claim("jwt_payload", &["plan"]).unwrap().as_number())),
        ),
    ];
    for (given, expected) in rows {
        assert_eq!(expected.id().as_str(), "api/key=header:x-client");
        assert_eq!(flow(&given, key), Ok(vec![expected]));
    }
    let chosen = "is not a safe source of a count, since clients choose it; use `metadata`, `typedMetadata`, `routeMetadata` or `jwtClaim`";
    let bad = "is not a valid count; use a number from 0 to 9007199254740992";
    let rows = [
        (r#"{"header": "x-plan", "default": 3}"#, key, format!(".header: `x-plan` {chosen}")),
        (r#"{"query": "plan", "default": 3}"#, key, format!(".query: `plan` {chosen}")),
        (r#"{"metadata": ["a", "b"], "cookie": "plan", "default": 3}"#, key, format!(".cookie: `plan` {chosen}")),
        (r#"{"metadata": ["a", "b"]}"#, key, ": `default` is missing; add it".into()),
        (r#"{"default": 3}"#, key, ": `{…}` is not a part of a request; use one key".into()),
        (r#"{"metadata": ["a"], "default": 3}"#, key, ".metadata: `[…]` is not a valid path; use a namespace and 1 to 7 keys, for a claim 1 to 6 names, for the filter state one, each of 1 to 256 bytes without a zero byte".into()),
        (r#"{"metadata": ["a", "b"], "default": -1}"#, key, format!(".default: `-1` {bad}")),
        (r#"{"metadata": ["a", "b"], "default": 3, "atMost": "1"}"#, key, ".atMost: `1` is a string; use a number".into()),
        (r#"{"metadata": ["a", "b"], "default": 3, "atMost": 2}"#, key, ".default: `3` is above `atMost`; use a lower one, or raise `atMost`".into()),
        (r#"{"metadata": ["a", "b"], "default": 3}"#, "", ": `{…}` means nothing without a `key`; add one, or use a number".into()),
        (r#""many""#, key, ": `many` is a string; use a number".into()),
    ];
    for (given, more, fault) in rows {
        assert_eq!(flow(given, more), Err(format!("flowRules[0].count{fault}")), "{given}");
    }
}
