//! Requests that enter their route and APIs: all of them, or none.

use crate::support::{at, block, pass, retry_ms, rule, rules};
use leapgate::api::MAX_APIS;
use leapgate::rule::{
    ApiDefinition, AuthorityRule, AuthorityStrategy, BanRule, DegradeGrade, DegradeRule, FlowRule,
    KeyPart, KeyValue, KeyedBy, LimitApp, MAX_RULES_PER_RESOURCE, MaxQueueing, Mode, ResourceMode,
    RuleId,
};
use leapgate::stats::{Node, StatisticNode};
use leapgate::{Cause, Decision, Engine, Outcome, RefusalKind, Request, Rules, RulesError};
use std::rc::Rc;

fn engine(flow: impl Into<Vec<FlowRule>>) -> Engine {
    Engine::new(rules(flow)).unwrap()
}

/// A request for the route of that name, and for these APIs.
fn to<'a>(route: &'a str, apis: &'a [&'a str]) -> Request<'a> {
    Request::new(route).also(apis)
}

/// Enters and exits: the id of the rule that refuses, or `None`.
fn refused(engine: &Engine, request: &Request<'_>, now: u64) -> Option<String> {
    match engine.enter(request, at(now)) {
        Decision::Pass(entry) => {
            entry.exit(Outcome::Success, at(now));
            None
        }
        Decision::Wait(wait, _) => panic!("has to wait at {now} ms for {wait:?}"),
        Decision::Block(blocked) => Some(blocked.id().to_string()),
    }
}

/// How many of `n` requests pass.
fn admits(engine: &Engine, request: &Request<'_>, n: usize, now: u64) -> usize {
    let passes = (0..n).filter(|_| refused(engine, request, now).is_none());
    passes.count()
}

#[test]
fn differs_from_sentinel_a_refusal_by_one_charges_none() {
    let engine = engine([
        rule("r", "route", 3.0),
        rule("a", "api", 1.0),
        rule("b", "other", 9.0),
    ]);
    assert_eq!(refused(&engine, &to("route", &["api", "other"]), 0), None);
    for _ in 0..5 {
        assert_eq!(
            refused(&engine, &to("route", &["api", "other"]), 0),
            Some("a".into())
        );
    }
    assert_eq!(admits(&engine, &to("route", &[]), 9, 0), 2);
    assert_eq!(
        refused(&engine, &to("route", &["other"]), 0),
        Some("r".into())
    );
    assert_eq!(admits(&engine, &to("elsewhere", &["other"]), 9, 0), 8);
}

#[test]
fn the_first_rule_of_the_document_that_refuses_is_named() {
    let engine = engine([
        rule("first", "b", 0.0),
        rule("second", "route", 0.0),
        rule("third", "a", 0.0),
    ]);
    assert_eq!(
        refused(&engine, &to("route", &["a", "b"]), 0),
        Some("first".into())
    );
    assert_eq!(
        refused(&engine, &to("route", &["a"]), 0),
        Some("second".into())
    );
    assert_eq!(refused(&engine, &to("x", &["a"]), 0), Some("third".into()));
}

#[test]
fn names_that_are_met_twice_are_entered_once() {
    let engine = engine([rule("l", "login", 4.0)]);
    assert_eq!(refused(&engine, &to("login", &["login", "login"]), 0), None);
    assert_eq!(refused(&engine, &to("x", &["login", "login"]), 0), None);
    assert_eq!(refused(&engine, &to("login", &[]), 0), None);
    assert_eq!(refused(&engine, &to("x", &["login"]), 0), None);
    assert_eq!(
        refused(&engine, &to("login", &["login"]), 0),
        Some("l".into())
    );
}

#[test]
fn an_api_without_rules_makes_no_difference() {
    let engine = engine([rule("r", "route", 1.0)]);
    let route = engine.resource("route");
    assert!(Rc::ptr_eq(
        &engine.resource_with(&route, &["a", "b", ""]),
        &route
    ));
    assert!(!engine.has_api("a"));
    assert_eq!(refused(&engine, &to("x", &["a"]), 0), None);
}

#[test]
fn rules_for_each_resource_are_for_routes() {
    let mut all = rules([rule("each", "*", 2.0), rule("a", "api", 9.0)]);
    all.authority = vec![AuthorityRule::new("*", "bad", AuthorityStrategy::Black).unwrap()];
    let engine = Engine::new(all).unwrap();
    // The route's window is its own, with and without the API.
    assert_eq!(refused(&engine, &to("r1", &["api"]), 0), None);
    assert_eq!(refused(&engine, &to("r1", &[]), 0), None);
    assert_eq!(
        refused(&engine, &to("r1", &["api"]), 0),
        Some("each".into())
    );
    assert_eq!(admits(&engine, &to("r2", &["api"]), 9, 0), 2);
    assert_eq!(admits(&engine, &to("r3", &["api"]), 9, 0), 2);
    assert_eq!(admits(&engine, &to("r4", &["api"]), 9, 0), 2);
    assert_eq!(admits(&engine, &to("r5", &["api"]), 9, 0), 2);
    assert_eq!(refused(&engine, &to("r6", &["api"]), 0), Some("a".into()));
}

#[test]
fn a_mode_picks_the_route_or_the_api() {
    let of = |id: &str, count, mode| rule(id, "login", count).for_resource_mode(mode);
    let mut all = rules([rule("both", "login", 7.0), rule("each", "*", 1.0)]);
    all.gateway_flow = vec![
        of("route", 2.0, ResourceMode::Route),
        of("api", 3.0, ResourceMode::Api),
    ];
    let engine = Engine::new(all.clone()).unwrap();
    assert_eq!(admits(&engine, &to("login", &[]), 9, 0), 2);
    assert_eq!(refused(&engine, &to("login", &[]), 0), Some("route".into()));
    assert_eq!(admits(&engine, &to("a", &["login"]), 1, 0), 1);
    assert_eq!(admits(&engine, &to("b", &["login"]), 1, 0), 1);
    assert_eq!(
        refused(&engine, &to("login", &["login"]), 0),
        Some("route".into())
    );
    assert_eq!(admits(&engine, &to("c", &["login"]), 9, 0), 1);
    assert_eq!(
        refused(&engine, &to("d", &["login"]), 0),
        Some("api".into())
    );
    // A route is not named by a rule for an API alone: it falls under the rule for each.
    all.flow.remove(0);
    all.gateway_flow.remove(0);
    let engine = Engine::new(all).unwrap();
    assert_eq!(admits(&engine, &to("login", &[]), 9, 0), 1);
    assert_eq!(refused(&engine, &to("login", &[]), 0), Some("each".into()));
}

#[test]
fn a_rule_of_an_api_tells_keys_apart_as_it_does_alone() {
    let by = || KeyedBy::new([KeyPart::CLIENT_IP]).unwrap();
    let path = || KeyedBy::new([KeyPart::Path]).unwrap();
    let engine = engine([
        rule("api", "login", 2.0).keyed(by()).unwrap(),
        rule("route", "route", 9.0).keyed(path()).unwrap(),
        rule("each", "*", 3.0).keyed(by()).unwrap(),
    ]);
    // The parts of all rules, in the order of the document.
    let route = engine.resource("route");
    let both = engine.resource_with(&route, &["login"]);
    assert_eq!(both.key_parts(), [KeyPart::CLIENT_IP, KeyPart::Path]);
    assert_eq!(both.name(), "route");
    let keys = |ip: &'static str| [KeyValue::One(ip.as_bytes()), KeyValue::One(b"/")];
    assert_eq!(
        refused(&engine, &to("route", &["login"]).keys(&keys("10.0.0.1")), 0),
        None
    );
    // The same key by another route, of which there is one window for each client.
    let other = [KeyValue::One(b"10.0.0.1")];
    assert_eq!(
        refused(&engine, &to("r1", &["login"]).keys(&other), 0),
        None
    );
    assert_eq!(
        refused(&engine, &to("r2", &["login"]).keys(&other), 0),
        Some("api".into())
    );
    assert_eq!(
        refused(&engine, &to("login", &[]).keys(&other), 0),
        Some("api".into())
    );
    assert_eq!(admits(&engine, &to("r1", &[]).keys(&other), 9, 0), 2);
    assert_eq!(admits(&engine, &to("r2", &[]).keys(&other), 9, 0), 3);
    let another = [KeyValue::One(b"10.0.0.2")];
    assert_eq!(
        refused(&engine, &to("r2", &["login"]).keys(&another), 0),
        None
    );
    // Of the route's own key.
    let rest = [KeyValue::One(b"/")];
    assert_eq!(admits(&engine, &to("route", &[]).keys(&rest), 20, 0), 8);
}

#[test]
fn origins_are_others_by_the_rules_of_each_resource() {
    let app = |rule: FlowRule, name| rule.for_origin(LimitApp::new(name).unwrap());
    let engine = engine([
        app(rule("a", "api", 1.0), "a"),
        app(rule("api-other", "api", 2.0), "other"),
        app(rule("b", "route", 4.0), "b"),
        app(rule("route-other", "route", 3.0), "other"),
    ]);
    // To the route, `a` is another origin, and `b` is one to the API.
    let of = |origin| to("route", &["api"]).origin(origin);
    assert_eq!(admits(&engine, &of("a"), 9, 0), 1);
    assert_eq!(refused(&engine, &of("a"), 0), Some("a".into()));
    assert_eq!(admits(&engine, &to("route", &[]).origin("a"), 9, 0), 2);
    assert_eq!(refused(&engine, &of("b"), 0), None);
    assert_eq!(refused(&engine, &of("b"), 0), None);
    assert_eq!(refused(&engine, &of("b"), 0), Some("api-other".into()));
    assert_eq!(admits(&engine, &to("route", &[]).origin("b"), 9, 0), 2);
    // Each other origin has a window in both.
    assert_eq!(admits(&engine, &of("c"), 9, 0), 2);
    assert_eq!(admits(&engine, &of("d"), 9, 0), 2);
    assert_eq!(admits(&engine, &to("x", &["api"]).origin("c"), 9, 0), 0);
    assert_eq!(admits(&engine, &to("route", &[]).origin("c"), 9, 0), 1);
}

#[test]
fn keyed_rules_for_other_origins_look_at_their_own_resource() {
    let app = |id: &str, resource: &str, count, name| {
        let by = KeyedBy::new([KeyPart::CLIENT_IP]).unwrap();
        let rule = rule(id, resource, count).for_origin(LimitApp::new(name).unwrap());
        rule.keyed(by).unwrap()
    };
    let engine = engine([
        app("a", "api", 1.0, "a"),
        app("api-other", "api", 2.0, "other"),
        app("route-other", "route", 3.0, "other"),
    ]);
    let keys = [KeyValue::One(b"10.0.0.1")];
    let of = |origin| to("route", &["api"]).origin(origin).keys(&keys);
    assert_eq!(admits(&engine, &of("a"), 9, 0), 1);
    assert_eq!(
        admits(&engine, &to("route", &[]).origin("a").keys(&keys), 9, 0),
        2
    );
    assert_eq!(admits(&engine, &of("b"), 9, 0), 2);
}

#[test]
fn breakers_of_all_look_at_how_a_call_ends() {
    let breaker = |resource: &str| {
        let grade = DegradeGrade::error_count(1.0).unwrap();
        let rule = DegradeRule::new(resource, grade, 1000).unwrap();
        rule.needing(1).unwrap()
    };
    let all = Rules {
        degrade: vec![breaker("api"), breaker("route")],
        ..rules([rule("f", "api", 2.0)])
    };
    let engine = Engine::new(all).unwrap();
    let fail = |request: &Request<'_>| pass(&engine, request, 0).exit(Outcome::Error, at(0));
    fail(&to("route", &["api"]));
    fail(&to("route", &["api"]));
    // Both have opened.
    let id = |request: &Request<'_>| refused(&engine, request, 10);
    assert!(id(&to("x", &["api"])).is_some_and(|id| id.starts_with("api/")));
    assert!(id(&to("route", &[])).is_some_and(|id| id.starts_with("route/")));
    assert!(id(&to("route", &["api"])).is_some_and(|id| id.starts_with("api/")));
    assert_eq!(id(&to("x", &[])), None);
}

#[test]
fn an_authority_rule_of_an_api_comes_in_the_order_of_the_document() {
    let only = |resource: &str, id: &str| {
        let rule = AuthorityRule::new(resource, "ops", AuthorityStrategy::White).unwrap();
        rule.with_id(RuleId::new(id).unwrap())
    };
    let all = Rules {
        authority: vec![only("b", "b"), only("route", "route"), only("a", "a")],
        ..Rules::default()
    };
    let engine = Engine::new(all).unwrap();
    assert_eq!(
        refused(&engine, &to("route", &["a", "b"]).origin("dev"), 0),
        Some("b".into())
    );
    assert_eq!(
        refused(&engine, &to("route", &["a"]).origin("dev"), 0),
        Some("route".into())
    );
    assert_eq!(
        refused(&engine, &to("x", &["a"]).origin("dev"), 0),
        Some("a".into())
    );
    assert_eq!(
        refused(&engine, &to("route", &["a", "b"]).origin("ops"), 0),
        None
    );
}

#[test]
fn a_refusal_counts_for_the_bans_of_all_that_the_request_enters() {
    let by = || KeyedBy::new([KeyPart::CLIENT_IP]).unwrap();
    let ban = |resource| BanRule::new(resource, by(), 2, 1000, 60_000).unwrap();
    let all = Rules {
        ban: vec![ban("route"), ban("login")],
        ..rules([rule("a", "login", 0.0)])
    };
    let engine = Engine::new(all).unwrap();
    let keys = [KeyValue::One(b"10.0.0.1")];
    for _ in 0..2 {
        assert_eq!(
            refused(&engine, &to("route", &["login"]).keys(&keys), 0),
            Some("a".into())
        );
    }
    for request in [
        to("route", &[]),
        to("x", &["login"]),
        to("route", &["login"]),
    ] {
        let id = refused(&engine, &request.keys(&keys), 1).unwrap();
        assert!(id.contains("/ban=60s"), "{id}");
    }
}

#[test]
fn a_rule_that_measures_an_api_counts_the_requests_that_belong_to_it() {
    let engine = engine([rule("gives-way", "report", 2.0).relate("orders").unwrap()]);
    assert!(engine.has_api("orders"));
    assert_eq!(admits(&engine, &to("route", &["orders"]), 2, 0), 2);
    assert_eq!(
        refused(&engine, &to("report", &[]), 0),
        Some("gives-way".into())
    );
    // One that belongs to both is measured and limited.
    assert_eq!(
        refused(&engine, &to("report", &["orders"]), 0),
        Some("gives-way".into())
    );
    assert_eq!(refused(&engine, &to("orders", &["report"]), 1200), None);
    assert_eq!(refused(&engine, &to("report", &["orders"]), 1200), None);
    assert_eq!(
        refused(&engine, &to("report", &["orders"]), 1200),
        Some("gives-way".into())
    );
}

#[test]
fn limits_on_calls_in_flight_are_given_back_by_all() {
    let of = |id: &str, resource: &str, count| rule(id, resource, count).concurrency();
    let by = KeyedBy::new([KeyPart::CLIENT_IP]).unwrap();
    let engine = engine([
        of("r", "route", 2.0),
        of("a", "api", 1.0),
        of("k", "api", 1.0).keyed(by).unwrap(),
    ]);
    let keys = [KeyValue::One(b"10.0.0.1")];
    let request = to("route", &["api"]).keys(&keys);
    let call = pass(&engine, &request, 0);
    block(&engine, &request, 1);
    call.exit(Outcome::Success, at(2));
    let call = pass(&engine, &request, 3);
    drop(call);
    let call = pass(&engine, &request, 4);
    call.cancel(at(5));
    let call = pass(&engine, &request, 6);
    call.exit_uncounted(&keys, Outcome::Success, at(7));
    drop(pass(&engine, &request, 8));
}

#[test]
fn a_turn_that_one_rule_makes_long_is_one_for_all_that_share_its_queue() {
    // `slow` makes a request wait for longer than a request of `fast` alone could: its turn counts there all the same.
    let queue = |millis| MaxQueueing::from_millis(millis).unwrap();
    let engine = engine([
        rule("slow", "route", 0.2).throttle(queue(10_000)),
        rule("fast", "api", 10.0).throttle(queue(500)),
    ]);
    let both = to("route", &["api"]);
    let first = pass(&engine, &both, 0);
    let second = crate::support::wait(&engine, &both, 0, 5000);
    // The next turn of `fast` is after that one, in 5.1 s. A request that can wait for half a second is refused.
    let blocked = block(&engine, &to("x", &["api"]), 0);
    assert_eq!(retry_ms(&blocked), Some(4600));
    drop((first, second));
}

#[test]
fn too_many_apis_are_refused_and_counted() {
    let names: Vec<String> = (0..=MAX_APIS).map(|i| format!("a{i}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let limits = || {
        names
            .iter()
            .map(|name| rule(name, name, 5.0))
            .collect::<Vec<_>>()
    };
    let engine = engine(limits());
    let report = |engine: &Engine| {
        let mut reports = Vec::new();
        engine.for_each_precheck(|report| {
            reports.push((
                report.kind,
                report.id.to_string(),
                report.blocked,
                report.shadow_blocked,
            ));
        });
        reports
    };
    assert_eq!(report(&engine), []);
    assert_eq!(refused(&engine, &to("x", &names[..MAX_APIS]), 0), None);
    // A name that no rule is for does not count, and neither does one that stands twice.
    let more = [&names[..MAX_APIS], &["unknown", "a0"]].concat();
    assert_eq!(refused(&engine, &to("x", &more), 0), None);
    let Decision::Block(blocked) = engine.enter(&to("x", &names), at(0)) else {
        panic!("let in")
    };
    assert_eq!(
        (blocked.id().as_str(), blocked.retry_after()),
        ("apis", None)
    );
    assert!(matches!(blocked.cause(), Cause::Apis));
    assert_eq!(
        (blocked.cause().name(), blocked.cause().kind()),
        ("api", RefusalKind::Unavailable)
    );
    assert_eq!(report(&engine), [("api", "apis".into(), 1, 0)]);
    // Nothing was charged for it.
    assert_eq!(admits(&engine, &to("x", &["a16"]), 9, 0), 5);

    let mut shadow = rules(limits());
    shadow.mode = Mode::Shadow;
    shadow.apis = [ApiDefinition::new("a0", []).unwrap()].into();
    let engine = Engine::new(shadow).unwrap();
    assert_eq!(report(&engine), [("api", "apis".into(), 0, 0)]);
    assert_eq!(refused(&engine, &to("x", &names), 0), None);
    assert_eq!(report(&engine), [("api", "apis".into(), 0, 1)]);
}

#[test]
fn too_many_rules_of_apis_together_are_refused_and_counted() {
    let half = MAX_RULES_PER_RESOURCE / 2;
    let by = || KeyedBy::new([KeyPart::CLIENT_IP]).unwrap();
    for keyed in [false, true] {
        let of = |resource: &'static str, count: usize| {
            (0..count).map(move |i| {
                let rule = rule(&format!("{resource}{i}"), resource, 5.0);
                if keyed {
                    rule.keyed(by()).unwrap()
                } else {
                    rule
                }
            })
        };
        let engine = engine(
            of("a", half)
                .chain(of("b", half))
                .chain(of("c", 1))
                .collect::<Vec<_>>(),
        );
        assert_eq!(refused(&engine, &to("x", &["a", "b"]), 0), None);
        for _ in 0..3 {
            assert_eq!(
                refused(&engine, &to("x", &["a", "b", "c"]), 0),
                Some("apis".into())
            );
        }
        assert_eq!(
            refused(&engine, &to("a", &["b", "c"]), 0),
            Some("apis".into())
        );
        assert_eq!(admits(&engine, &to("x", &["c"]), 9, 0), 5);
    }
}

#[test]
fn rules_of_one_name_are_bounded_however_they_come_to_it() {
    let each: Vec<FlowRule> = (0..MAX_RULES_PER_RESOURCE)
        .map(|i| rule(&format!("e{i}"), "*", 1.0))
        .collect();
    let mut all = rules(each);
    all.flow
        .push(rule("m", "other", 1.0).relate("login").unwrap());
    all.gateway_flow = vec![rule("api", "login", 1.0).for_resource_mode(ResourceMode::Api)];
    let error = Engine::new(all).err();
    assert!(matches!(error, Some(RulesError::ManyRules { resource, .. }) if resource == "login"));
}

#[test]
fn an_entry_ends_on_the_rules_that_it_began_with() {
    let limits = |count| {
        rules([
            rule("r", "route", count).concurrency(),
            rule("a", "api", count).concurrency(),
        ])
    };
    let engine = Engine::new(limits(1.0)).unwrap();
    let request = to("route", &["api"]);
    let call = pass(&engine, &request, 0);
    engine.replace(limits(2.0)).unwrap();
    let second = pass(&engine, &request, 1);
    block(&engine, &request, 1);
    engine
        .replace(rules([rule("r", "route", 2.0).concurrency()]))
        .unwrap();
    block(&engine, &request, 1);
    call.exit(Outcome::Success, at(2));
    drop(second);
    assert_eq!(admits(&engine, &request, 3, 3), 3);
    // One that was looked up goes on with the old rules.
    let old = engine.resource_with(&engine.resource("route"), &["api"]);
    engine.replace(limits(0.0)).unwrap();
    assert!(matches!(
        engine.enter_resource(&old, &Request::new(""), at(4)),
        Decision::Pass(_)
    ));
    block(&engine, &request, 4);
}

#[test]
fn a_looked_up_resource_is_the_same_whatever_the_order_of_the_names() {
    let engine = engine(["a", "b", "c"].map(|name| rule(name, name, 5.0)));
    let route = engine.resource("route");
    let one = engine.resource_with(&route, &["a", "b"]);
    assert!(Rc::ptr_eq(
        &one,
        &engine.resource_with(&route, &["b", "a", "unknown", "b"])
    ));
    assert!(!Rc::ptr_eq(
        &one,
        &engine.resource_with(&route, &["b", "c"])
    ));
    assert!(!Rc::ptr_eq(
        &one,
        &engine.resource_with(&engine.resource("b"), &["a"])
    ));
    // More APIs beside those that it stands for already.
    let three = engine.resource_with(&one, &["c"]);
    assert!(Rc::ptr_eq(
        &three,
        &engine.resource_with(&route, &["a", "b", "c"])
    ));
}

#[test]
fn sets_of_apis_are_kept_up_to_a_bound_and_decide_alike_beyond_it() {
    let names: Vec<String> = (0..14).map(|i| format!("a{i}")).collect();
    let engine = engine(
        names
            .iter()
            .map(|name| rule(name, name, 10_000.0))
            .collect::<Vec<_>>(),
    );
    for set in 1..1_u32 << 10 {
        let chosen: Vec<&str> = (0..14)
            .filter(|i| set >> i & 1 == 1)
            .map(|i| names[i].as_str())
            .collect();
        for route in ["r1", "r2", "r3", "r4", "r5", "r6"] {
            assert_eq!(refused(&engine, &to(route, &chosen), 0), None);
        }
    }
    // Each name was in half of the sets.
    let left = |name: &str| {
        let resource = engine.resource(name);
        resource.policies(at(0)).next().unwrap().remaining
    };
    assert_eq!(left("a0"), 10_000 - 6 * 512);
    assert_eq!(left("a9"), 10_000 - 6 * 512);
    assert_eq!(left("a10"), 10_000);
}

#[test]
fn all_nodes_count_a_request_once() {
    let by = KeyedBy::new([KeyPart::CLIENT_IP]).unwrap();
    let engine = engine([
        rule("l", "login", 2.0),
        rule("k", "k", 9.0).keyed(by).unwrap(),
        rule("r", "quiet", 9.0),
    ]);
    let tree = engine.store().tree().unwrap();
    let numbers = |node: &StatisticNode| {
        (
            node.pass_qps(at(0)),
            node.block_qps(at(0)),
            node.success_qps(at(0)),
            node.cur_thread_num(),
        )
    };
    let of = |name: &str| numbers(tree.cluster(name).unwrap().statistics());
    let request = || to("route", &["login", "k"]).origin("app").inbound();
    let call = pass(&engine, &request(), 0);
    for name in ["route", "login", "k"] {
        assert_eq!(of(name), (1.0, 0.0, 0.0, 1), "{name}");
        assert_eq!(
            numbers(&tree.cluster(name).unwrap().origin("app").unwrap()),
            (1.0, 0.0, 0.0, 1),
            "{name}"
        );
    }
    assert!(tree.cluster("quiet").is_none());
    assert_eq!(numbers(tree.inbound().statistics()), (1.0, 0.0, 0.0, 1));
    call.exit(Outcome::Success, at(0));
    drop(pass(&engine, &request(), 0));
    assert_eq!(refused(&engine, &request(), 0), Some("l".into()));
    for name in ["route", "login", "k"] {
        assert_eq!(of(name), (2.0, 1.0, 1.0, 0), "{name}");
    }
    assert_eq!(numbers(tree.inbound().statistics()), (2.0, 1.0, 1.0, 0));
    // In a context of its own, and below the call that it is made in.
    let outer = pass(&engine, &Request::new("outer").context("web"), 0);
    let inner = pass(&engine, &to("inner", &["k"]).within(&outer), 0);
    let of_context = tree
        .root()
        .entrances()
        .into_iter()
        .find(|entrance| entrance.name() == "web")
        .unwrap();
    let outer_node = of_context
        .children()
        .into_iter()
        .find(|node| node.resource() == "outer")
        .unwrap();
    let below: Vec<String> = outer_node
        .children()
        .iter()
        .map(|node| node.resource().to_string())
        .collect();
    assert_eq!(below, ["inner", "k"]);
    drop((inner, outer));
    // An API with the name of its route.
    let before = of("login");
    drop(pass(&engine, &to("login", &["login"]), 1500));
    let node = tree.cluster("login").unwrap();
    assert_eq!(node.statistics().pass_qps(at(1500)), 1.0);
    assert_eq!(before.3, node.statistics().cur_thread_num());
}

/// The model: each resource has a log of what it has admitted, and a request passes if all have room.
#[test]
fn all_or_none_as_a_log_of_each_resource_has_it() {
    let mut random = fastrand::Rng::with_seed(16);
    let names = ["a", "b", "c", "d", "route"];
    let (mut passes, mut refusals) = (0, 0);
    for _ in 0..60 {
        // One bucket of a second: what counts is what is in the bucket, and the one before (a strict window).
        let limits: Vec<u64> = names.iter().map(|_| random.u64(1..12)).collect();
        let flow: Vec<FlowRule> = names
            .iter()
            .zip(&limits)
            .map(|(name, limit)| rule(name, name, *limit as f64).per(1000, Some(4)).unwrap())
            .collect();
        let engine = engine(flow.clone());
        let mut log: Vec<Vec<u64>> = vec![Vec::new(); names.len()];
        let mut now = 0;
        for _ in 0..300 {
            now += random.u64(0..200);
            if random.u8(..50) == 0 {
                let mut shuffled = flow.clone();
                random.shuffle(&mut shuffled);
                engine.replace(rules(shuffled)).unwrap();
                engine.replace(rules(flow.clone())).unwrap();
            }
            let route = random.usize(..names.len());
            let apis: Vec<&str> = names.iter().copied().filter(|_| random.bool()).collect();
            let entered: Vec<usize> = (0..names.len())
                .filter(|i| *i == route || apis.contains(&names[*i]))
                .collect();
            let count = |i: usize| {
                let first = (now / 250).saturating_sub(4) * 250;
                log[i].iter().filter(|at| **at >= first).count() as u64
            };
            let full = entered.iter().find(|i| count(**i) >= limits[**i]);
            let expected = full.map(|i| names[*i].to_string());
            assert_eq!(
                refused(&engine, &to(names[route], &apis), now),
                expected,
                "{now} {entered:?}"
            );
            if expected.is_none() {
                entered.iter().for_each(|i| log[*i].push(now));
                passes += 1;
            } else {
                refusals += 1;
            }
        }
    }
    assert!(
        passes > 2000 && refusals > 2000,
        "{passes} passes, {refusals} refusals"
    );
}
