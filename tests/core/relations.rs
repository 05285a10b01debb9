//! Rules that measure other requests than they limit: by resource, and by context.

use crate::support::{admitted, at, block, engine, pass, retry_ms, rule, rules, wait};
use leapgate::backend::{Local, Store};
use leapgate::rule::{
    FlowRule, LimitApp, MAX_RULES_PER_RESOURCE, MaxQueueing, Mode, Strategy, WarmUp,
};
use leapgate::{Decision, Engine, Entry, Outcome, Request, RulesError};
use std::collections::HashMap;
use std::rc::Rc;

fn orders<'a>() -> Request<'a> {
    Request::new("orders")
}

fn report<'a>() -> Request<'a> {
    Request::new("report")
}

/// Reports give way to orders: while there are `limit` orders, reports wait.
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
fn requests_of_all_origins_are_measured() {
    let app = LimitApp::new("app").unwrap();
    let engine = engine([polite(3.0).for_origin(app)]);
    assert_eq!(admitted(&engine, &orders().origin("shop"), 5, 0), 5);
    drop(block(&engine, &report().origin("app"), 0));
    drop(pass(&engine, &report().origin("shop"), 0));
    drop(pass(&engine, &report(), 0));

    // Also for origins that no rule names; all of them look at one window.
    let others = crate::support::engine([polite(3.0).for_origin(LimitApp::Other)]);
    assert_eq!(admitted(&others, &orders(), 5, 0), 5);
    for origin in ["app", "shop"] {
        drop(block(&others, &report().origin(origin), 0));
    }
    drop(pass(&others, &report(), 0));
}

#[test]
fn calls_in_flight_of_the_other_resource_are_measured() {
    // Sentinel looks at no cost of a call that has begun.
    for (rule, cost) in [
        (polite(2.0).concurrency(), 1),
        (polite(2.0).concurrency().sentinel(), 7),
    ] {
        let engine = engine([rule]);
        let _own: Vec<_> = (0..5).map(|_| pass(&engine, &report(), 0)).collect();
        let first = pass(&engine, &orders(), 0);
        let second = pass(&engine, &orders().cost(cost), 0);
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

/// In Sentinel such a request passes at any cost.
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
        .chain(leapgate::stats::DEFAULT_CONTEXT)
        .unwrap();
    let engine = engine([chain]);
    drop(pass(&engine, &orders(), 0));
    drop(block(&engine, &orders(), 0));
    drop(pass(&engine, &orders().context("web"), 0));
    assert_eq!(engine.resource("orders").policies(at(0)).count(), 1);
}

#[test]
fn calls_in_flight_in_a_context_are_released_at_their_end() {
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
        for i in 0..=leapgate::stats::MAX_CONTEXTS {
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
fn rules_by_relation_and_context_in_shadow_refuse_no_request() {
    let chain = rule("chain", "report", 1.0).chain("web").unwrap();
    let engine = engine([
        polite(1.0).in_mode(Mode::Shadow),
        chain.in_mode(Mode::Shadow),
    ]);
    assert_eq!(admitted(&engine, &orders(), 2, 0), 2);
    let web = || report().context("web");
    assert_eq!(admitted(&engine, &web(), 3, 0), 3);
    let mut counts = Vec::new();
    engine.store().for_each_state(0, 2, |state| {
        counts.push((state.passed(), state.shadow_blocked()));
    });
    assert_eq!(counts, [(0, 3), (1, 2)]);
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

// ---- a naive restatement ----

/// A restated rule. `reference` is a resource for a relation, and a context for a chain.
#[derive(Clone, Debug)]
struct Words {
    resource: &'static str,
    limit_app: &'static str,
    strategy: &'static str,
    reference: &'static str,
    concurrency: bool,
    count: u64,
}

/// A call: when it passed, in half seconds, and from where.
#[derive(Clone, Debug)]
struct Call {
    half_second: u64,
    resource: &'static str,
    context: &'static str,
    origin: &'static str,
    cost: u64,
}

impl Words {
    fn random(random: &mut fastrand::Rng) -> Words {
        let strategy = random.choice(["direct", "relate", "chain", "chain"]);
        let strategy = strategy.unwrap();
        let references: &[&str] = match strategy {
            "relate" => &["a", "b", "c"],
            _ => &["web", "job"],
        };
        let limit_apps = ["default", "default", "other", "x", "y"];
        Words {
            resource: ["a", "b"][random.usize(..2)],
            limit_app: limit_apps[random.usize(..limit_apps.len())],
            strategy,
            reference: references[random.usize(..references.len())],
            concurrency: random.u8(..3) == 0,
            count: random.u64(0..4),
        }
    }

    fn rule(&self, id: usize) -> FlowRule {
        let rule = rule(&id.to_string(), self.resource, self.count as f64)
            .for_origin(LimitApp::new(self.limit_app).unwrap());
        let rule = match self.concurrency {
            true => rule.concurrency(),
            false => rule.per(1000, Some(2)).unwrap(),
        };
        match self.strategy {
            "relate" => rule.relate(self.reference).unwrap(),
            "chain" => rule.chain(self.reference).unwrap(),
            _ => rule,
        }
    }

    fn applies(&self, all: &[Words], call: &Call) -> bool {
        let named = |rule: &Words| rule.resource == call.resource && rule.limit_app == call.origin;
        let origin = match self.limit_app {
            "default" => true,
            "other" => !call.origin.is_empty() && !all.iter().any(named),
            name => name == call.origin,
        };
        let context = self.strategy != "chain" || self.reference == call.context;
        self.resource == call.resource && origin && context
    }

    /// Whether the rule counts a call against the one that asks.
    fn counts(&self, call: &Call, asks: &Call) -> bool {
        match (self.strategy, self.limit_app) {
            ("relate", _) => call.resource == self.reference,
            ("chain", _) => call.resource == self.resource && call.context == self.reference,
            (_, "default") => call.resource == self.resource,
            _ => call.resource == self.resource && call.origin == asks.origin,
        }
    }

    fn refuses(&self, all: &[Words], passed: &[Call], open: &[Call], asks: &Call) -> bool {
        let in_window = |call: &&Call| call.half_second + 2 >= asks.half_second;
        let counted = |calls: &[Call]| -> Vec<Call> {
            let counted = calls.iter().filter(|call| self.counts(call, asks));
            counted.cloned().collect()
        };
        let used: u64 = match self.concurrency {
            true => counted(open).iter().map(|call| call.cost).sum(),
            false => {
                let passed = counted(passed);
                passed.iter().filter(in_window).map(|call| call.cost).sum()
            }
        };
        self.applies(all, asks) && used + asks.cost > self.count
    }
}

#[test]
fn the_requests_that_rules_apply_to_and_measure_are_as_restated() {
    let mut random = fastrand::Rng::with_seed(35_36);
    let mut refused: HashMap<(&str, &str, bool), u32> = HashMap::new();
    for round in 0..600 {
        let count = random.usize(1..6);
        let all: Vec<Words> = (0..count).map(|_| Words::random(&mut random)).collect();
        let rules: Vec<FlowRule> = (0..count).map(|id| all[id].rule(id)).collect();
        let engine = engine(rules);
        let (mut passed, mut open): (Vec<Call>, Vec<Call>) = (Vec::new(), Vec::new());
        let mut entries = Vec::new();
        let mut now = random.u64(0..2000);
        for step in 0..60 {
            now += random.u64(0..250);
            if !open.is_empty() && random.u8(..3) == 0 {
                let which = random.usize(..open.len());
                open.remove(which);
                let entry: Entry = entries.remove(which);
                match random.bool() {
                    true => entry.exit(Outcome::Success, at(now)),
                    false => drop(entry),
                }
                continue;
            }
            let asks = Call {
                half_second: now / 500,
                resource: ["a", "b", "c"][random.usize(..3)],
                context: ["", "web", "job"][random.usize(..3)],
                origin: ["", "x", "y", "z"][random.usize(..4)],
                cost: random.u64(1..3),
            };
            let request = Request::new(asks.resource)
                .context(asks.context)
                .origin(asks.origin)
                .cost(asks.cost as u32);
            let first = all
                .iter()
                .position(|rule| rule.refuses(&all, &passed, &open, &asks));
            let what = || format!("round {round}, step {step} at {now}: {asks:?} under {all:#?}");
            match (engine.enter(&request, at(now)), first) {
                (Decision::Pass(entry), None) => {
                    passed.push(asks.clone());
                    open.push(asks);
                    entries.push(entry);
                }
                (Decision::Block(blocked), Some(first)) => {
                    assert_eq!(blocked.id().as_str(), first.to_string(), "{}", what());
                    let rule = &all[first];
                    let kind = (rule.strategy, rule.limit_app, rule.concurrency);
                    *refused.entry(kind).or_default() += 1;
                }
                (decision, first) => panic!("{decision:?}, and not {first:?}: {}", what()),
            }
        }
    }
    // Each strategy, each kind of origin, and both grades have refused.
    assert!(
        refused.len() == 3 * 4 * 2 && refused.values().all(|times| *times > 10),
        "{refused:?}"
    );
}
