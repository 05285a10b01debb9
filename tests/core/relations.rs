//! Rules that measure other requests than those that they are for: by resource, and by context.

use crate::support::{admitted, at, block, engine, pass, retry_ms, rule, rules, wait};
use leapgate::{
    Engine, FlowRule, LimitApp, Local, MAX_RULES_PER_RESOURCE, MaxQueueing, Mode, Outcome, Request,
    RulesError, Store, Strategy, WarmUp,
};
use std::rc::Rc;

fn orders<'a>() -> Request<'a> {
    Request::new("orders")
}

fn report<'a>() -> Request<'a> {
    Request::new("report")
}

/// Reports give way to orders: while there are `limit` of those, they wait.
fn polite(limit: f64) -> FlowRule {
    rule("polite", "report", limit).relate("orders").unwrap()
}

// ---- by resource ----

#[test]
fn a_rule_that_relates_measures_the_other_resource() {
    for rule in [polite(3.0), polite(3.0).sentinel()] {
        let engine = engine([rule]);
        assert_eq!(admitted(&engine, &report(), 20, 10_000), 20);
        assert_eq!(admitted(&engine, &orders(), 2, 10_000), 2);
        assert_eq!(admitted(&engine, &report(), 20, 10_000), 20);
        // It is not limited itself, with or without rules of its own.
        assert_eq!(admitted(&engine, &orders(), 20, 10_000), 20);
        let blocked = block(&engine, &report(), 10_000);
        assert_eq!(blocked.id().as_str(), "polite");
        assert!(retry_ms(&blocked) >= Some(1000));
        drop(pass(
            &engine,
            &report(),
            10_000 + retry_ms(&blocked).unwrap(),
        ));
    }
}

#[test]
fn what_is_refused_is_not_measured() {
    let engine = engine([polite(3.0), rule("own", "orders", 2.0)]);
    assert_eq!(admitted(&engine, &orders(), 20, 0), 2);
    assert_eq!(admitted(&engine, &report(), 20, 0), 20);
    drop(block(&engine, &report().cost(2), 0));
}

#[test]
fn whoever_asks_is_measured() {
    let app = LimitApp::new("app").unwrap();
    let engine = engine([polite(3.0).for_origin(app)]);
    assert_eq!(admitted(&engine, &orders().origin("shop"), 5, 0), 5);
    drop(block(&engine, &report().origin("app"), 0));
    drop(pass(&engine, &report().origin("shop"), 0));
    drop(pass(&engine, &report(), 0));

    // As one of those that no rule names, too; and all of them look at one window.
    let others = crate::support::engine([polite(3.0).for_origin(LimitApp::Other)]);
    assert_eq!(admitted(&others, &orders(), 5, 0), 5);
    for origin in ["app", "shop"] {
        drop(block(&others, &report().origin(origin), 0));
    }
    drop(pass(&others, &report(), 0));
}

#[test]
fn calls_in_flight_of_the_other_resource_are_measured() {
    for rule in [
        polite(2.0).concurrency(),
        polite(2.0).concurrency().sentinel(),
    ] {
        let engine = engine([rule]);
        let _own: Vec<_> = (0..5).map(|_| pass(&engine, &report(), 0)).collect();
        let first = pass(&engine, &orders(), 0);
        let second = pass(&engine, &orders().cost(7), 0);
        drop(block(&engine, &report(), 0));
        first.exit(Outcome::Success, at(1));
        drop(pass(&engine, &report(), 1));
        let third = pass(&engine, &orders(), 1);
        drop(block(&engine, &report(), 1));
        drop((second, third));
        drop(pass(&engine, &report(), 2));
    }
}

#[test]
fn a_rule_may_relate_to_its_own_resource() {
    let app = LimitApp::new("app").unwrap();
    let own = rule("own", "orders", 3.0).relate("orders").unwrap();
    let engine = engine([own.for_origin(app)]);
    assert_eq!(admitted(&engine, &orders(), 2, 0), 2);
    assert_eq!(admitted(&engine, &orders().origin("app"), 5, 0), 1);
    assert_eq!(admitted(&engine, &orders(), 5, 0), 5);
}

#[test]
fn a_rule_for_each_resource_may_relate_to_one() {
    let each = rule("each", "*", 3.0).relate("orders").unwrap();
    let engine = engine([each]);
    assert_eq!(admitted(&engine, &report(), 20, 0), 20);
    assert_eq!(admitted(&engine, &orders(), 20, 0), 3, "it is one of each");
    drop(block(&engine, &report(), 0));
    drop(block(&engine, &Request::new("other"), 0));
}

/// In Sentinel such a request passes, whatever it costs.
#[test]
fn differs_from_sentinel_a_resource_never_entered_has_a_window() {
    let there = engine([polite(3.0).sentinel()]);
    drop(pass(&there, &report().cost(4), 10_000));
    drop(pass(&there, &orders(), 10_000));
    drop(block(&there, &report().cost(4), 10_000));
    let here = engine([polite(3.0)]);
    assert_eq!(block(&here, &report().cost(4), 0).retry_after(), None);
}

#[test]
fn a_related_resource_that_was_only_refused_has_been_entered() {
    let engine = engine([polite(3.0).sentinel(), rule("none", "orders", 0.0)]);
    drop(pass(&engine, &report().cost(4), 10_000));
    drop(block(&engine, &orders(), 10_000));
    drop(block(&engine, &report().cost(4), 10_000));
}

#[test]
fn a_related_resource_lends_too() {
    let engine = engine([polite(2.0)]);
    assert_eq!(admitted(&engine, &orders(), 2, 0), 2);
    drop(block(&engine, &report(), 600));
    // Nothing is lent: what it waits for is that the other resource is used less.
    drop(wait(&engine, &report().prioritized(), 600, 410));
    drop(wait(&engine, &report().prioritized().cost(2), 600, 410));
}

#[test]
fn warming_up_by_another_resource_takes_its_passes() {
    let rule = polite(30.0).warm_up(WarmUp::default());
    let engine = engine([rule]);
    // Orders are many, and reports are looked at ten times a second.
    for now in (0..60_000).step_by(10) {
        if now % 50 == 0 {
            drop(pass(&engine, &orders(), now));
        }
        if now % 100 == 0 {
            let _ = admitted(&engine, &report(), 1, now);
        }
    }
    assert_eq!(
        admitted(&engine, &report(), 100, 60_000),
        100,
        "20 of 30, and warm"
    );
    let cold = crate::support::engine([polite(30.0).warm_up(WarmUp::default())]);
    assert_eq!(admitted(&cold, &orders(), 11, 0), 11);
    drop(block(&cold, &report(), 0));
}

#[test]
fn a_rule_that_relates_keeps_its_window_when_rules_are_replaced() {
    let engine = engine([polite(3.0)]);
    assert_eq!(admitted(&engine, &orders(), 3, 0), 3);
    engine
        .replace(rules([rule("before", "orders", 9.0), polite(4.0)]))
        .unwrap();
    drop(pass(&engine, &report(), 0));
    drop(pass(&engine, &orders(), 0));
    drop(block(&engine, &report(), 0));
    // Another resource is another window.
    let elsewhere = rule("polite", "report", 4.0).relate("mail").unwrap();
    engine.replace(rules([elsewhere])).unwrap();
    assert_eq!(admitted(&engine, &report(), 9, 0), 9);
}

#[test]
fn rules_that_measure_a_resource_are_bounded_with_its_own() {
    let polite = |i: usize| {
        let rule = rule(&i.to_string(), &format!("report-{i}"), 1.0);
        rule.relate("orders").unwrap()
    };
    let many: Vec<FlowRule> = (0..MAX_RULES_PER_RESOURCE).map(polite).collect();
    assert!(Engine::new(rules(many.clone())).is_ok());
    let mut more = many;
    more.push(rule("own", "orders", 1.0));
    assert_eq!(
        Engine::new(rules(more)).err(),
        Some(RulesError::ManyRules {
            list: "flowRules",
            resource: "orders".into(),
            index: MAX_RULES_PER_RESOURCE - 1
        })
    );
}

#[test]
fn a_measured_resource_takes_no_place_of_another() {
    let store = Store::without_statistics(Local);
    store.set_max_resources(1);
    let each = rule("each", "*", 1.0);
    let engine = Engine::with_store(Rc::new(store), rules([polite(1.0), each])).unwrap();
    assert_eq!(engine.resource("other").name(), "other");
    assert_eq!(engine.resource("one more").name(), "");
    drop(pass(&engine, &orders(), 0));
    drop(block(&engine, &orders(), 0));
    drop(block(&engine, &report(), 0));
}

#[test]
fn what_a_rule_says_of_itself() {
    let rule = polite(1.0);
    assert_eq!(*rule.strategy(), Strategy::Relate("orders".into()));
    let engine = engine([rule, super_chain()]);
    let resource = engine.resource("report");
    let ids: Vec<String> = resource
        .policies(at(0))
        .map(|policy| policy.id.to_string())
        .collect();
    assert_eq!(ids, ["polite"], "the other is for a context");
    assert_eq!(engine.resource("orders").policies(at(0)).count(), 0);
}

fn super_chain() -> FlowRule {
    rule("chain", "report", 1.0).chain("web").unwrap()
}

// ---- by context ----

#[test]
fn a_rule_for_a_context_measures_what_comes_in_by_it() {
    for store in [Store::new(Local), Store::without_statistics(Local)] {
        let flow = rule("chain", "orders", 2.0).chain("web").unwrap();
        let engine = Engine::with_store(Rc::new(store), rules([flow])).unwrap();
        let web = || orders().context("web");
        assert_eq!(admitted(&engine, &orders(), 5, 0), 5);
        assert_eq!(admitted(&engine, &orders().context("job"), 5, 0), 5);
        assert_eq!(admitted(&engine, &web(), 5, 0), 2);
        // Within a call it is the call's.
        let outer = pass(&engine, &report().context("web"), 0);
        drop(block(&engine, &orders().within(&outer), 0));
        drop(block(&engine, &orders().context("job").within(&outer), 0));
        let inner = pass(&engine, &report().within(&outer), 0);
        drop(block(&engine, &orders().within(&inner), 0));
        let job = pass(&engine, &report().context("job"), 0);
        drop(pass(&engine, &web().within(&job), 0));
        let none = pass(&engine, &report(), 0);
        drop(pass(&engine, &web().within(&none), 0));
    }
}

#[test]
fn a_rule_for_a_context_and_an_origin_measures_all_origins_there() {
    let app = LimitApp::new("app").unwrap();
    let chain = rule("chain", "orders", 3.0).chain("web").unwrap();
    let engine = engine([chain.for_origin(app)]);
    let web = || orders().context("web");
    assert_eq!(admitted(&engine, &web().origin("shop"), 5, 0), 5);
    drop(block(&engine, &web().origin("app"), 0));
    drop(pass(&engine, &orders().origin("app"), 0));
}

#[test]
fn the_context_of_calls_that_name_none_has_a_name() {
    let chain = rule("chain", "orders", 1.0)
        .chain(leapgate::DEFAULT_CONTEXT)
        .unwrap();
    let engine = engine([chain]);
    drop(pass(&engine, &orders(), 0));
    drop(block(&engine, &orders(), 0));
    drop(pass(&engine, &orders().context("web"), 0));
    assert_eq!(engine.resource("orders").policies(at(0)).count(), 1);
}

#[test]
fn calls_in_flight_in_a_context_are_told_of_their_end() {
    let chain = rule("chain", "orders", 1.0)
        .concurrency()
        .chain("web")
        .unwrap();
    let app = LimitApp::new("app").unwrap();
    let engine = engine([chain.for_origin(app)]);
    let web = || orders().context("web");
    let measured = pass(&engine, &web(), 0);
    drop(block(&engine, &web().origin("app"), 0));
    drop(measured);
    pass(&engine, &web().origin("app"), 0).exit(Outcome::Success, at(0));
    drop(pass(&engine, &web().origin("app"), 0));
}

#[test]
fn a_throttle_in_a_context_paces_what_comes_in_by_it() {
    let queue = MaxQueueing::from_millis(0).unwrap();
    let chain = rule("chain", "orders", 10.0)
        .throttle(queue)
        .chain("web")
        .unwrap();
    let engine = engine([chain]);
    let web = || orders().context("web");
    drop(pass(&engine, &web(), 0));
    drop(block(&engine, &web(), 0));
    assert_eq!(admitted(&engine, &orders(), 5, 0), 5);
    drop(pass(&engine, &web(), 100));
}

#[test]
fn a_context_beyond_the_bound_is_still_not_another() {
    let chain = rule("chain", "orders", 1.0).chain("web").unwrap();
    for store in [Store::new(Local), Store::without_statistics(Local)] {
        let engine = Engine::with_store(Rc::new(store), rules([chain.clone()])).unwrap();
        for i in 0..=leapgate::MAX_CONTEXTS {
            drop(pass(&engine, &report().context(&i.to_string()), 0));
        }
        drop(pass(&engine, &orders().context("web"), 0));
        drop(block(&engine, &orders().context("web"), 0));
        let outer = pass(&engine, &report().context("web"), 0);
        drop(block(&engine, &orders().within(&outer), 0));
    }
}

// ---- in shadow, and together ----

#[test]
fn rules_by_relation_and_context_in_shadow_refuse_nobody() {
    let chain = rule("chain", "report", 1.0).chain("web").unwrap();
    let engine = engine([
        polite(1.0).in_mode(Mode::Shadow),
        chain.in_mode(Mode::Shadow),
    ]);
    assert_eq!(admitted(&engine, &orders(), 2, 0), 2);
    let web = || report().context("web");
    assert_eq!(admitted(&engine, &web(), 3, 0), 3);
    let mut told = Vec::new();
    engine.store().for_each_state(0, 2, |state| {
        told.push((state.passed(), state.shadow_blocked()));
    });
    assert_eq!(told, [(0, 3), (1, 2)]);
}

/// A mixture of all kinds: a refusal by any of them charges none of them, whichever comes first.
#[test]
fn a_refusal_charges_no_rule_of_any_kind() {
    let queue = MaxQueueing::from_millis(1000).unwrap();
    let mixed = || {
        vec![
            rule("window", "report", 10.0),
            rule("compat", "report", 10.0).sentinel(),
            rule("even", "report", 100.0).throttle(queue),
            rule("paced", "report", 100.0).throttle(queue).sentinel(),
            rule("cold", "report", 30.0).warm_up(WarmUp::default()),
            rule("cold pace", "report", 300.0).warm_up_throttle(WarmUp::default(), queue),
            rule("flight", "report", 10.0).concurrency(),
            polite(10.0),
            rule("chain", "report", 10.0).chain("web").unwrap(),
        ]
    };
    for place in 0..=mixed().len() {
        let mut flow = mixed();
        flow.insert(place, rule("none", "report", 0.0));
        let engine = engine(flow);
        let request = || report().context("web");
        for request in [request(), request().prioritized(), request().cost(3)] {
            assert_eq!(block(&engine, &request, 10_000).id().as_str(), "none");
        }
        engine.replace(rules(mixed())).unwrap();
        // As if nothing had been: the first passes at once, the second waits for the longest turn.
        drop(pass(&engine, &request(), 10_000));
        let second = wait(&engine, &request(), 10_000, 10);
        second.cancel(at(10_000));
        let resource = engine.resource("report");
        let left: Vec<u64> = resource
            .policies(at(10_000))
            .map(|policy| policy.remaining)
            .collect();
        // (Sentinel's window has counted the second when it was let in, in the half second in which it is released.)
        assert_eq!(left, [9, 8, 0, 0, 9, 0, 10, 10], "none stands at {place}");
    }
}
