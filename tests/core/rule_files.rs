//! Rules as Sentinel, its dashboard and its users write them: each file of `tests/rules` as it is, under its key.

use super::support::rules;
use leapgate::config::{Value, read};
use leapgate::rule::{
    AuthorityRule, AuthorityStrategy, ClusterConfig, Count, DegradeGrade, DegradeRule, FlowRule, KeyItem,
    KeyMatch, KeyPart, KeyedBy, LimitApp, MaxQueueing, RuleId, SystemRule, WarmUp,
};
use leapgate::{Engine, Rules};

/// The rules of a file, which go together.
#[track_caller]
fn load(key: &str, file: &str) -> Rules {
    let path = format!("{}/tests/rules/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let document = Value::from_json(format!("{{\"{key}\": {text}}}"))
        .unwrap_or_else(|error| panic!("{file}: {error}"));
    let rules = read(&document)
        .unwrap_or_else(|error| panic!("{file}: {error}"))
        .rules;
    Engine::new(rules.clone()).unwrap_or_else(|error| panic!("{file}: {error}"));
    rules
}

fn flow(resource: &str, count: f64) -> FlowRule {
    FlowRule::new(resource, count).unwrap()
}

fn id(id: &str) -> RuleId {
    RuleId::new(id).unwrap()
}

fn origin(name: &str) -> LimitApp {
    LimitApp::new(name).unwrap()
}

fn queue(millis: u64) -> MaxQueueing {
    MaxQueueing::from_millis(millis).unwrap()
}

fn warm(period_sec: u32) -> WarmUp {
    WarmUp::new(period_sec, 3).unwrap()
}

fn slow(resource: &str, max_rt_ms: f64, ratio: f64, seconds: u64) -> DegradeRule {
    let grade = DegradeGrade::slow_ratio(max_rt_ms, ratio).unwrap();
    DegradeRule::new(resource, grade, seconds * 1000).unwrap()
}

fn error_ratio(resource: &str, ratio: f64, seconds: u64) -> DegradeRule {
    let grade = DegradeGrade::error_ratio(ratio).unwrap();
    DegradeRule::new(resource, grade, seconds * 1000).unwrap()
}

fn error_count(resource: &str, count: f64, seconds: u64) -> DegradeRule {
    let grade = DegradeGrade::error_count(count).unwrap();
    DegradeRule::new(resource, grade, seconds * 1000).unwrap()
}

#[test]
fn flow_rules_that_sentinel_has_written_are_read() {
    let expected = rules([
        flow("GET:/orders", 20.0),
        flow("GET:/report", 4.0).concurrency(),
        flow("POST:/pay", 100.5).warm_up(warm(60)),
        flow("POST:/mail", 10.0).throttle(queue(2000)),
        flow("POST:/sms", 10.0).warm_up_throttle(warm(10), queue(500)),
        flow("GET:/stock", 7.0).relate("POST:/stock").unwrap(),
        flow("com.shop.Stock:get(java.lang.String)", 8.0)
            .chain("web")
            .unwrap(),
        flow("GET:/orders", 5.0).for_origin(origin("app-a")),
        flow("GET:/orders", 1.0).for_origin(LimitApp::Other),
        flow("GET:/cart", 50.0).in_cluster(
            ClusterConfig::new()
                .with_flow_id(111)
                .unwrap()
                .with_fallback(true),
        ),
    ]);
    assert_eq!(load("flowRules", "flow.json"), expected);
    assert_eq!(load("flowRules", "flow_nulls.json"), expected);
}

#[test]
fn degrade_rules_that_sentinel_has_written_are_read() {
    let expected = Rules {
        degrade: vec![
            slow("GET:/orders", 200.0, 0.5, 10)
                .per(30_000, None)
                .unwrap(),
            error_ratio("GET:/orders", 0.2, 30).needing(20).unwrap(),
            error_count("GET:/orders", 3.0, 5)
                .per(60_000, None)
                .unwrap(),
            slow("POST:/pay", 100.0, 1.0, 3),
        ],
        ..Rules::default()
    };
    assert_eq!(load("degradeRules", "degrade.json"), expected);
    assert_eq!(load("degradeRules", "degrade_nulls.json"), expected);
}

#[test]
fn system_rules_that_sentinel_has_written_are_read() {
    let new = SystemRule::new;
    let load_of = |load| new().with_highest_system_load(load).unwrap();
    let cpu = |rule: SystemRule| rule.with_highest_cpu_usage(0.8).unwrap();
    let rt = || new().with_avg_rt(300.0).unwrap();
    let threads = |rule: SystemRule| rule.with_max_thread(64.0).unwrap();
    let qps = || new().with_qps(500.0).unwrap();
    let system = |system| Rules {
        system,
        ..Rules::default()
    };
    let expected = system(vec![qps(), cpu(load_of(16.0)), threads(rt())]);
    assert_eq!(load("systemRules", "system.json"), expected);
    assert_eq!(load("systemRules", "system_nulls.json"), expected);
    // Sentinel keeps a rule for each threshold, and reports these.
    let lowest = vec![load_of(16.0), cpu(new()), rt(), threads(new()), qps()];
    assert_eq!(load("systemRules", "system_lowest.json"), system(lowest));
}

#[test]
fn authority_rules_that_sentinel_has_written_are_read() {
    let expected = Rules {
        authority: vec![
            AuthorityRule::new("GET:/admin", "ops,ci", AuthorityStrategy::White).unwrap(),
            AuthorityRule::new("GET:/orders", "crawler", AuthorityStrategy::Black).unwrap(),
        ],
        ..Rules::default()
    };
    assert_eq!(load("authorityRules", "authority.json"), expected);
    assert_eq!(load("authorityRules", "authority_nulls.json"), expected);
}

/// The key made of this part.
fn by(part: KeyPart) -> KeyedBy {
    KeyedBy::new([part]).unwrap()
}

#[test]
fn rules_for_hot_parameters_that_sentinel_has_written_are_read() {
    let item = |value: &str, count: f64| KeyItem {
        values: [Some(value.into())].into(),
        count: Count::new(count).unwrap(),
    };
    let items = [item("1001", 500.0), item("gold", 50.0)];
    let product = by(KeyPart::Arg(0)).with_items(items).unwrap();
    let expected = [
        flow("getProduct", 5.0)
            .keyed(product.with_burst(3))
            .unwrap()
            .per(60_000, None)
            .unwrap(),
        flow("getProduct", 2.0)
            .keyed(by(KeyPart::Arg(1)))
            .unwrap()
            .concurrency(),
        flow("sendMail", 10.0)
            .keyed(by(KeyPart::Arg(-1)))
            .unwrap()
            .per(1000, None)
            .unwrap()
            .throttle(queue(500)),
    ];
    for file in ["param_flow.json", "param_flow_nulls.json"] {
        assert_eq!(load("paramFlowRules", file).param_flow, expected, "{file}");
    }
}

#[test]
fn rules_of_a_gateway_that_sentinel_has_written_are_read() {
    let header = by(KeyPart::Header("x-client".into()));
    let expected = [
        flow("orders_route", 10.0).per(1000, None).unwrap(),
        flow("orders_route", 2.0)
            .keyed(by(KeyPart::CLIENT_IP).with_burst(2))
            .unwrap()
            .per(2000, None)
            .unwrap(),
        flow("orders_route", 10.0)
            .keyed(header.matching(KeyMatch::Contains("gold".into())))
            .unwrap()
            .per(1000, None)
            .unwrap()
            .throttle(queue(600)),
        flow("admin_api", 5.0)
            .keyed(by(KeyPart::Query("user".into())))
            .unwrap()
            .per(1000, None)
            .unwrap(),
    ];
    for file in ["gateway.json", "gateway_nulls.json"] {
        let read = load("gatewayFlowRules", file).gateway_flow;
        assert_eq!(read, expected, "{file}");
    }
}

#[test]
fn rules_of_sentinels_dashboard_are_read() {
    let orders = || flow("GET:/orders/{id}", 20.0).with_id(id("17"));
    let expected = rules([
        orders(),
        flow("GET:/report", 4.0)
            .concurrency()
            .chain("web")
            .unwrap()
            .for_origin(origin("app-a"))
            .with_id(id("18")),
        flow("POST:/mail", 10.0)
            .throttle(queue(300))
            .with_id(id("19")),
    ]);
    assert_eq!(load("flowRules", "dashboard_flow.json"), expected);

    let paced = flow("POST:/mail", 10.0)
        .warm_up_throttle(warm(30), queue(300))
        .relate("POST:/sms")
        .unwrap()
        .with_id(id("20"));
    let expected = rules([orders(), paced]);
    assert_eq!(load("flowRules", "dashboard_flow_nacos.json"), expected);

    let resource = "GET:/orders/{id}";
    let ratio = error_ratio(resource, 0.25, 30).needing(10).unwrap();
    let expected = vec![
        slow(resource, 200.0, 0.5, 10).with_id(id("17")),
        ratio.per(60_000, None).unwrap().with_id(id("18")),
        error_count(resource, 3.0, 5).with_id(id("19")),
    ];
    let read = load("degradeRules", "dashboard_degrade.json");
    assert_eq!(read.degrade, expected);

    let qps = SystemRule::new().with_qps(500.0).unwrap();
    let cpu = SystemRule::new().with_highest_cpu_usage(0.8).unwrap();
    let read = load("systemRules", "dashboard_system.json");
    assert_eq!(read.system, [qps.with_id(id("3")), cpu.with_id(id("4"))]);
}

#[test]
fn rules_that_users_have_written_are_read() {
    let expected = rules([
        flow("list", 20.0),
        flow("http://www.example.com", 0.0),
        flow("/stock", 1.0),
        flow("ping", 5.0),
    ]);
    assert_eq!(load("flowRules", "short_flow.json"), expected);

    // From before 1.8, as 1.8 reads them.
    let expected = [
        slow("GET:/orders", 20.0, 1.0, 10),
        error_ratio("GET:/stock", 0.5, 10),
        slow("orders_route", 10.0, 1.0, 5).needing(1).unwrap(),
    ];
    let read = load("degradeRules", "old_degrade.json");
    assert_eq!(read.degrade, expected);
}

/// The dashboard numbers the rules of each kind from 1.
#[test]
fn rules_of_two_kinds_may_have_one_number() {
    let rules = Rules {
        degrade: load("degradeRules", "dashboard_degrade.json").degrade,
        ..load("flowRules", "dashboard_flow.json")
    };
    assert!(Engine::new(rules).is_ok());
}
