//! Rules that ask for one limit for all machines, in documents: what is read, and the sentences about what stays local.

use leapgate::config::{Value, read};
use leapgate::rule::{ClusterConfig, FlowRule, KeyPart, KeyedBy, RuleError};
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
    format!(r#"{{"flowRules": [{{"resource": "login", "count": 100, {fields}}}]}}"#)
}

/// The warnings about a document, in an engine without a store.
fn warnings(json: &str) -> Vec<String> {
    let engine = Engine::new(rules(json)).unwrap_or_else(|error| panic!("{json}: {error}"));
    engine.warnings()
}

const GLOBAL: &str = r#""clusterMode": true, "clusterConfig": {"thresholdType": 1}"#;
const NO_STORE: &str = "clusterMode: `true` needs a store, and there is none, so each node limits by itself; leave it out";

#[test]
fn a_warning_tells_of_a_window_that_is_coarse_for_want_of_a_divisor() {
    let sentence = |interval, most, samples, counted, cure| {
        format!(
            "flowRules[0].intervalMs: `{interval}` has no divisor from 10 to {most}, so its window has {samples} and may pass only {counted} of the count; use `{cure}`"
        )
    };
    let key = r#""key": ["clientIp"]"#;
    for (fields, warning) in [
        (format!(r#""intervalMs": 60013, {key}"#), sentence(60_013, 20, "1 bucket", "1/2", 60_020)),
        (format!(r#""intervalMs": 999, {key}"#), sentence(999, 20, "9 buckets", "9/10", 1000)),
        (r#""intervalMs": 60013"#.to_owned(), sentence(60_013, 100, "1 bucket", "1/2", 60_100)),
    ] {
        assert_eq!(warnings(&one_rule(&fields)), [warning], "{fields}");
    }
    for fields in [
        r#""intervalMs": 999"#,
        r#""intervalMs": 60000, "sampleCount": 1"#,
        r#""intervalMs": 7"#,
        r#""intervalMs": 60013, "window": "sentinel""#,
        r#""intervalMs": 60013, "controlBehavior": "throttle""#,
        r#""grade": "concurrency""#,
    ] {
        assert_eq!(warnings(&one_rule(fields)), [""; 0], "{fields}");
    }
}

#[test]
fn cluster_mode_is_one_limit_for_all_machines_by_the_threshold_type_1() {
    let login = || FlowRule::new("login", 100.0).unwrap();
    let of = |cluster: ClusterConfig| login().in_cluster(cluster);
    let new = ClusterConfig::new;
    let cases = [
        (r#""clusterMode": true"#, login()),
        (r#""clusterMode": true, "clusterConfig": null"#, login()),
        (r#""clusterMode": true, "clusterConfig": {}"#, login()),
        (r#""clusterMode": true, "clusterConfig": {"thresholdType": 0, "flowId": -1}"#, login()),
        (r#""clusterMode": false, "clusterConfig": {"thresholdType": 1}"#, login()),
        (r#""clusterMode": null, "clusterConfig": {"thresholdType": 1}"#, login()),
        (r#""clusterMode": false, "clusterConfig": [7]"#, login()),
        (GLOBAL, of(new())),
        (
            r#""clusterMode": true, "clusterConfig": {"thresholdType": 1, "flowId": null, "fallbackToLocalWhenFail": null}"#,
            of(new()),
        ),
        (
            r#""clusterMode": true, "clusterConfig": {"thresholdType": 1, "flowId": 9007199254740992, "fallbackToLocalWhenFail": false}"#,
            of(new().with_flow_id(1 << 53).unwrap().with_fallback(false)),
        ),
        (
            r#""clusterMode": true, "clusterConfig": {"acquireRefuseStrategy": 0, "clientOfflineTime": 2000, "fallbackToLocalWhenFail": true,
               "flowId": 7, "resourceTimeout": 2000, "resourceTimeoutStrategy": 0, "sampleCount": 10, "strategy": 0, "thresholdType": 1,
               "windowIntervalMs": 1000}"#,
            of(new().with_flow_id(7).unwrap().with_fallback(true)),
        ),
    ];
    for (fields, expected) in cases {
        assert_eq!(rules(&one_rule(fields)).flow, [expected], "{fields}");
    }
    let gateway = format!(r#"{{"gatewayFlowRules": [{{"resource": "login", "count": 100, {GLOBAL}}}]}}"#);
    assert_eq!(rules(&gateway).gateway_flow, [of(new())]);
    let hot = format!(
        r#"{{"paramFlowRules": [{{"resource": "login", "count": 100, "paramIdx": 0, {GLOBAL}}}]}}"#
    );
    let by = KeyedBy::new([KeyPart::Arg(0)]).unwrap();
    assert_eq!(rules(&hot).param_flow, [of(new()).keyed(by).unwrap()]);
}

#[test]
fn a_cluster_config_that_is_wrong_is_refused() {
    let on = |config: &str| one_rule(&format!(r#""clusterMode": true, "clusterConfig": {config}"#));
    let global = |fields: &str| on(&format!(r#"{{"thresholdType": 1, {fields}}}"#));
    let cases = [
        (one_rule(r#""clusterMode": 1"#), "clusterMode: `1` is a number; use `true` or `false`"),
        (on("7"), "clusterConfig: `7` is a number; use an object"),
        (
            on(r#"{"thresholdType": 2}"#),
            "clusterConfig.thresholdType: `2` is not possible; use a whole number from 0 to 1",
        ),
        (
            on(r#"{"thresholdtype": 1}"#),
            "clusterConfig: `thresholdtype` is not a known key; use `thresholdType`, or one of `flowId`, `fallbackToLocalWhenFail`, \
             `strategy`, `sampleCount`, `windowIntervalMs`, `resourceTimeout`, `resourceTimeoutStrategy`, `acquireRefuseStrategy`, \
             `clientOfflineTime`",
        ),
        (
            global(r#""flowId": 0"#),
            "clusterConfig.flowId: `0` is not possible; use a whole number from 1 to 9007199254740992",
        ),
        (
            global(r#""flowId": "7""#),
            "clusterConfig.flowId: `7` is a string; use a whole number from 1 to 9007199254740992",
        ),
        (
            global(r#""fallbackToLocalWhenFail": 1"#),
            "clusterConfig.fallbackToLocalWhenFail: `1` is a number; use `true` or `false`",
        ),
    ];
    for (json, sentence) in cases {
        assert_eq!(says(&json), format!("flowRules[0].{sentence}"));
    }
    let most = ClusterConfig::MAX_FLOW_ID;
    for number in [0, most + 1] {
        let error = RuleError::OutOfRange { number, least: 1, most };
        assert_eq!(ClusterConfig::new().with_flow_id(number), Err(error));
    }
}

#[test]
fn a_rule_that_asks_for_a_store_stays_local_with_one_sentence() {
    for (json, places) in [
        (one_rule(GLOBAL), &["flowRules[0]"][..]),
        (one_rule(r#""clusterMode": true, "clusterConfig": {"thresholdType": 0}"#), &[]),
        (
            format!(
                r#"{{"flowRules": [{{"resource": "a", "count": 1}}, {{"resource": "b", "count": 1, {GLOBAL}}}],
                    "paramFlowRules": [{{"resource": "a", "count": 1, "paramIdx": 0, {GLOBAL}}}],
                    "gatewayFlowRules": [{{"resource": "c", "count": 1, {GLOBAL}}}]}}"#
            ),
            &["gatewayFlowRules[0]", "paramFlowRules[0]", "flowRules[1]"],
        ),
    ] {
        let sentences: Vec<String> = places.iter().map(|at| format!("{at}.{NO_STORE}")).collect();
        assert_eq!(warnings(&json), sentences, "{json}");
    }
}

#[test]
fn differs_from_sentinel_a_rule_that_cannot_lease_stays_local() {
    let key = r#""key": ["clientIp"]"#;
    let cases = [
        (r#""grade": "concurrency""#.to_owned(), "a limit on concurrency"),
        (r#""controlBehavior": "warmUp""#.to_owned(), "`warmUp`"),
        (r#""controlBehavior": "throttle""#.to_owned(), "`throttle`"),
        (r#""controlBehavior": "warmUpThrottle""#.to_owned(), "`warmUpThrottle`"),
        (r#""strategy": "relate", "refResource": "pay""#.to_owned(), "`relate`"),
        (r#""strategy": "chain", "refResource": "web""#.to_owned(), "`chain`"),
        (r#""compat": "sentinel""#.to_owned(), "`compat`"),
        (r#""limitApp": "other""#.to_owned(), "the `limitApp` `other`"),
        (r#""cost": {"estimate": 5}"#.to_owned(), "a `cost` that is known only at the end"),
        (r#""window": "sentinel""#.to_owned(), "a `window` that is not strict"),
        (r#""window": "weighted""#.to_owned(), "a `window` that is not strict"),
        (r#""mode": "shadow""#.to_owned(), "shadow mode"),
        (format!(r#"{key}, "burst": 1"#), "a burst"),
        (
            format!(r#"{key}, "keyItems": [{{"value": "10.0.0.1", "count": 7}}]"#),
            "counts of single keys",
        ),
        (format!(r#"{key}, "enforcePercent": 99"#), "`enforcePercent`"),
    ];
    let sentence = |place: &str, what: &str| {
        format!(
            "{place}.clusterMode: `true` does not go with {what}, so each node limits by itself; leave one of the two out"
        )
    };
    for (fields, what) in cases {
        let json = one_rule(&format!("{GLOBAL}, {fields}"));
        assert_eq!(warnings(&json), [sentence("flowRules[0]", what)], "{fields}");
    }
    let plan = format!(
        r#"{{"flowRules": [{{"resource": "a", {key}, "count": {{"metadata": ["plans", "requests"], "default": 5}}, {GLOBAL}}}]}}"#
    );
    let what = "a `count` that requests bring along";
    assert_eq!(warnings(&plan), [sentence("flowRules[0]", what)]);
    let shadow = format!(r#"{{"mode": "shadow", "flowRules": [{{"resource": "a", "count": 1, {GLOBAL}}}]}}"#);
    assert_eq!(warnings(&shadow), [sentence("flowRules[0]", "shadow mode")]);
    let hot = format!(
        r#"{{"paramFlowRules": [{{"resource": "a", "count": 1, "paramIdx": 0, "burstCount": 3, {GLOBAL}}}]}}"#
    );
    assert_eq!(warnings(&hot), [sentence("paramFlowRules[0]", "a burst")]);
    for leases in [
        r#""exempt": [{"clientIp": "10.0.0.0/8"}]"#.to_owned(),
        r#""unit": "tokens", "limitApp": "app-a", "intervalMs": 60000, "sampleCount": 60"#.to_owned(),
        format!(r#"{key}, "maxKeys": 5, "burst": 0, "keyItems": [], "enforcePercent": 100"#),
    ] {
        let json = one_rule(&format!("{GLOBAL}, {leases}"));
        assert_eq!(warnings(&json), [format!("flowRules[0].{NO_STORE}")], "{leases}");
    }
}

#[test]
fn the_warnings_are_those_of_the_rules_in_force() {
    let engine = Engine::new(rules(&one_rule(GLOBAL))).unwrap();
    assert_eq!(engine.warnings(), [format!("flowRules[0].{NO_STORE}")]);
    let twice = format!(r#"{{"flowRules": [{{"resource": "a", "count": 1}}, {{"resource": "a", "count": 2, {GLOBAL}}}]}}"#);
    assert!(engine.replace(rules(&twice)).is_err());
    assert_eq!(engine.warnings(), [format!("flowRules[0].{NO_STORE}")]);
    engine.replace(Rules::default()).unwrap();
    assert_eq!(engine.warnings(), [""; 0]);
    let route = engine.resource("login");
    let own = || rules(&one_rule(GLOBAL)).flow;
    let joined = engine.resource_with_rules(&route, own()).unwrap();
    assert_eq!(joined.warnings().collect::<Vec<_>>(), [format!("flowRules[0].{NO_STORE}")]);
    assert_eq!(route.warnings().count(), 0);
}

#[test]
fn a_rule_without_a_store_limits_as_it_does_without_cluster_mode() {
    use leapgate::{Decision, Request, Timestamp};
    let engine = Engine::new(rules(&one_rule(GLOBAL))).unwrap();
    let passes = |at| matches!(engine.enter(&Request::new("login"), at), Decision::Pass(_));
    let passed = (0..150).filter(|_| passes(Timestamp::from_millis(5))).count();
    assert_eq!(passed, 100);
    assert!(engine.has_only_plain_flow_rules());
}
