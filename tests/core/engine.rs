//! Resources, several rules together, replacing rules, and bounds.

use crate::support::{
    Shared, Workers, admitted, at, block, engine, pass, retry_ms, rule, rules, wait,
};
use leapgate::backend::{
    Backend, BreakerKey, Controller, KeyedGeometry, KeyedWindows, Local, LocalBreaker, LocalCounter,
    Past, StateKey, Store,
};
use leapgate::rule::{
    AuthorityRule, AuthorityStrategy, Counting, FlowRule, KeyPart, KeyValue, KeyedBy, LimitApp,
    MAX_RULES_PER_RESOURCE, Mode,
};
use leapgate::stats::{
    DEFAULT_CONTEXT, MAX_CONTEXTS, MAX_ORIGINS, Metric, Node, StatisticNode,
};
use leapgate::{
    Blocked, Cause, Decision, Engine, Entry, Outcome, Request, Rules, RulesError, Timestamp,
};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

fn per_minute(id: &str, resource: &str, limit: f64) -> FlowRule {
    rule(id, resource, limit).per(60_000, Some(60)).unwrap()
}

fn for_origin(id: &str, resource: &str, limit: f64, origin: &str) -> FlowRule {
    rule(id, resource, limit).for_origin(LimitApp::new(origin).unwrap())
}

/// What the state of each rule has counted, in the order in which they were made: passed, blocked, shadow-blocked.
fn counted(engine: &Engine) -> Vec<(u64, u64, u64)> {
    let mut counted = Vec::new();
    let row =
        |state: &Controller<LocalCounter>| (state.passed(), state.blocked(), state.shadow_blocked());
    engine
        .store()
        .for_each_state(0, engine.store().len(), |state| counted.push(row(state)));
    counted
}

/// What is left under each rule of a resource.
fn remaining(engine: &Engine, resource: &str, now: u64) -> Vec<u64> {
    engine
        .resource(resource)
        .policies(at(now))
        .map(|policy| policy.remaining)
        .collect()
}

#[test]
fn states_are_opened_with_the_identity_of_their_rule() {
    let engine = engine([
        for_origin("others", "api", 1.0, "other"),
        rule("each", "*", 5.0),
    ]);
    admitted(&engine, &Request::new("api").origin("app"), 3, 1000);
    admitted(&engine, &Request::new("api").origin("shop"), 1, 1000);
    admitted(&engine, &Request::new("job"), 4, 1000);
    let mut states = Vec::new();
    engine.store().for_each_unkeyed(|key, state| {
        let name = |name: &Option<Rc<str>>| name.as_deref().unwrap_or("-").to_string();
        let of = [key.rule.to_string(), name(&key.resource), name(&key.origin)];
        states.push((of, state.passed(), state.blocked()));
    });
    states.sort();
    let of = |names: [&str; 3]| names.map(String::from);
    assert_eq!(
        states,
        [
            (of(["each", "job", "-"]), 4, 0),
            (of(["others", "-", "app"]), 1, 2),
            (of(["others", "-", "shop"]), 1, 0),
        ]
    );
}

// ---- one rule ----

#[test]
fn a_limit_admits_as_many_as_it_says_and_refuses_the_next() {
    for (limit, admits) in [(0.0, 0), (0.5, 0), (1.0, 1), (2.5, 2), (10.0, 10)] {
        for rule in [
            rule("r", "api", limit),
            rule("r", "api", limit).sentinel(),
            rule("r", "api", limit).concurrency(),
        ] {
            let engine = engine([rule]);
            let entries: Vec<_> = (0..admits)
                .map(|_| pass(&engine, &Request::new("api"), 1000))
                .collect();
            let blocked = block(&engine, &Request::new("api"), 1000);
            assert_eq!((blocked.id().as_str(), count_of(&blocked)), ("r", limit));
            assert_eq!(
                retry_ms(&blocked).is_some(),
                limit >= 1.0,
                "{limit}: {blocked:?}"
            );
            drop(entries);
        }
    }
}

/// Of a limit of 10 and of 8, in flight: 9 and 7 may be there before.
#[test]
fn the_last_one_that_fits_passes() {
    let engine = engine([
        rule("qps", "api", 10.0).sentinel(),
        rule("threads", "job", 8.0).concurrency(),
    ]);
    assert_eq!(admitted(&engine, &Request::new("api"), 20, 1000), 10);
    let _open: Vec<_> = (0..8)
        .map(|_| pass(&engine, &Request::new("job"), 1000))
        .collect();
    block(&engine, &Request::new("job"), 1000);
}

/// Sentinel's `RequestLimiter`: the passes of ten buckets of 100 ms, and one more.
#[test]
fn a_limit_below_what_has_passed_refuses_until_that_has_left() {
    let limit = |count| {
        rule("r", "api", count)
            .per(1000, Some(10))
            .unwrap()
            .counting(Counting::Sentinel)
    };
    let engine = engine([limit(100.0)]);
    let api = |cost| Request::new("api").cost(cost);
    drop(pass(&engine, &api(9), 10_000));
    engine.replace(rules([limit(10.0)])).unwrap();
    drop(pass(&engine, &api(1), 10_000));
    engine.replace(rules([limit(100.0)])).unwrap();
    drop(pass(&engine, &api(2), 10_000));
    engine.replace(rules([limit(10.0)])).unwrap();
    assert_eq!(retry_ms(&block(&engine, &api(1), 10_000)), Some(1000));
    drop(pass(&engine, &api(3), 11_000));
    drop(pass(&engine, &api(1), 11_000));
    assert_eq!(remaining(&engine, "api", 11_000), [6]);
}

#[test]
fn a_resource_without_rules_passes() {
    let engine = engine([rule("r", "api", 1.0)]);
    assert!(engine.resource("api").has_rules() && !engine.resource("job").has_rules());
    assert_eq!(admitted(&engine, &Request::new("job"), 1000, 0), 1000);
    assert_eq!(engine.resource("job").policies(at(0)).count(), 0);
}

#[test]
fn what_costs_more_than_the_limit_can_never_pass() {
    let engine = engine([rule("r", "api", 5.5)]);
    let blocked = block(&engine, &Request::new("api").cost(6), 1000);
    assert_eq!(blocked.retry_after(), None);
    drop(pass(&engine, &Request::new("api").cost(5), 1000));
    assert_eq!(
        retry_ms(&block(&engine, &Request::new("api").cost(5), 1000)),
        Some(1010),
        "a bucket of 10 ms, and the second"
    );
}

#[test]
fn remaining_passes_are_rounded_down_and_reset_says_when_more_come() {
    let engine = engine([
        rule("r", "api", 5.5),
        rule("in flight", "api", 3.0).concurrency(),
    ]);
    let policies = |now| -> Vec<(String, u64, u128)> {
        let api = engine.resource("api");
        api.policies(at(now))
            .map(|policy| {
                (
                    policy.id.to_string(),
                    policy.remaining,
                    policy.reset.as_millis(),
                )
            })
            .collect()
    };
    let expected = |qps, reset, in_flight, soon| {
        vec![
            ("r".to_string(), qps, reset),
            ("in flight".to_string(), in_flight, soon),
        ]
    };
    assert_eq!(policies(1000), expected(5, 0, 3, 0));
    let open = pass(&engine, &Request::new("api"), 1000);
    assert_eq!(policies(1000), expected(4, 1010, 2, 0));
    drop(open);
    drop(pass(&engine, &Request::new("api").cost(3), 1500));
    drop(pass(&engine, &Request::new("api"), 1500));
    assert_eq!(policies(1500), expected(0, 510, 3, 0));
    assert_eq!(policies(2010), expected(1, 500, 3, 0));
    assert_eq!(policies(9000), expected(5, 0, 3, 0));
}

// ---- several ----

#[test]
fn differs_from_sentinel_a_refusal_charges_no_rule() {
    let engine = engine([
        rule("second", "api", 10.0),
        per_minute("minute", "api", 3.0),
        rule("late", "api", 10.0),
    ]);
    assert_eq!(admitted(&engine, &Request::new("api"), 3, 1000), 3);
    for now in 1000..1005 {
        assert_eq!(
            block(&engine, &Request::new("api"), now).id().as_str(),
            "minute"
        );
        assert_eq!(remaining(&engine, "api", now), [7, 0, 7]);
    }
    assert_eq!(counted(&engine), [(3, 0, 0), (3, 5, 0), (3, 0, 0)]);
}

#[test]
fn a_refusal_leaves_calls_in_flight_as_they_are() {
    let engine = engine([
        rule("in flight", "api", 2.0).concurrency(),
        rule("second", "api", 1.0),
    ]);
    drop(pass(&engine, &Request::new("api"), 1000));
    (0..9).for_each(|_| {
        assert_eq!(
            block(&engine, &Request::new("api"), 1000).id().as_str(),
            "second"
        )
    });
    let one = pass(&engine, &Request::new("api"), 3000);
    let other = pass(&engine, &Request::new("api"), 5000);
    assert_eq!(
        block(&engine, &Request::new("api"), 7000).id().as_str(),
        "in flight"
    );
    drop((one, other));
}

#[test]
fn a_refusal_names_the_first_rule_that_refuses_and_the_longest_time() {
    let engine = engine([
        rule("second", "api", 1.0),
        per_minute("minute", "api", 1.0),
        rule("half", "api", 1.0).per(500, Some(1)).unwrap(),
    ]);
    drop(pass(&engine, &Request::new("api"), 1000));
    let blocked = block(&engine, &Request::new("api"), 1200);
    assert_eq!(
        (blocked.id().as_str(), retry_ms(&blocked)),
        ("second", Some(61_000 + 1000 - 1200))
    );
    block(&engine, &Request::new("api"), 61_999);
    drop(pass(&engine, &Request::new("api"), 62_000));
}

/// In Sentinel rules for `default` come last, and a dashboard shows another rule than the order of the list suggests.
#[test]
fn differs_from_sentinel_rules_are_checked_in_the_order_of_the_list() {
    let (all, one) = (
        rule("all", "api", 0.0),
        for_origin("one", "api", 0.0, "app"),
    );
    for (rules, first) in [([all.clone(), one.clone()], "all"), ([one, all], "one")] {
        let engine = engine(rules.map(FlowRule::sentinel));
        let blocked = block(&engine, &Request::new("api").origin("app"), 1000);
        assert_eq!(blocked.id().as_str(), first);
    }
}

#[test]
fn no_retry_time_if_any_rule_can_never_let_the_request_pass() {
    let engine = engine([rule("small", "api", 1.0), rule("none", "api", 0.0)]);
    let blocked = block(&engine, &Request::new("api"), 1000);
    assert_eq!(
        (blocked.id().as_str(), blocked.retry_after()),
        ("none", None)
    );
    let blocked = block(&engine, &Request::new("api").cost(2), 1000);
    assert_eq!(
        (blocked.id().as_str(), blocked.retry_after()),
        ("small", None)
    );
}

/// Counts that other engines could share, by the id of their rule.
#[derive(Default)]
struct ByRule(RefCell<HashMap<String, Shared>>);

impl Backend for ByRule {
    type Counter = Shared;
    type Keyed = KeyedWindows;
    type Breaker = LocalBreaker;

    fn open(&self, key: &StateKey) -> (Shared, Past) {
        let mut counters = self.0.borrow_mut();
        (
            counters.entry(key.rule.to_string()).or_default().clone(),
            Past::Fresh,
        )
    }

    fn open_keyed(&self, key: &StateKey, geometry: &KeyedGeometry) -> KeyedWindows {
        Local.open_keyed(key, geometry)
    }

    fn open_breaker(&self, _: &BreakerKey) -> LocalBreaker {
        LocalBreaker::default()
    }
}

#[test]
fn where_one_rule_cannot_reserve_what_the_others_have_is_given_back() {
    let store = Rc::new(Store::new(ByRule::default()));
    let flow = [
        rule("first", "api", 5.0),
        rule("in flight", "api", 5.0).concurrency(),
        rule("last", "api", 5.0),
    ];
    let engine = Engine::with_store(store, rules(flow)).unwrap();
    let counter = |id: &str| engine.store().backend().0.borrow()[id].clone();
    let reserved = || ["first", "in flight", "last"].map(|id| counter(id).reserved.get());
    // Other workers have reserved, and have not admitted a request yet.
    counter("last").reserved.set(5);
    assert_eq!(
        block(&engine, &Request::new("api"), 1000).id().as_str(),
        "last"
    );
    assert_eq!(reserved(), [0, 0, 5]);
    counter("last").reserved.set(0);
    counter("last").broken.set(true);
    assert_eq!(
        block(&engine, &Request::new("api"), 1000).id().as_str(),
        "last"
    );
    assert_eq!(reserved(), [0, 0, 0]);
    counter("last").broken.set(false);
    let entry = pass(&engine, &Request::new("api").cost(2), 1000);
    assert_eq!(reserved(), [2, 2, 2]);
    entry.exit(Outcome::Success, at(1000));
    assert_eq!(reserved(), [2, 0, 2]);
    assert_eq!(counter("first").admitted.get(), 2);
}

#[test]
fn where_one_rule_cannot_lend_what_the_others_have_lent_is_taken_back() {
    let store = Rc::new(Store::new(ByRule::default()));
    let tenths = |id| rule(id, "api", 5.0).per(1000, Some(10)).unwrap();
    let engine = Engine::with_store(store, rules([tenths("first"), tenths("last")])).unwrap();
    let counter = |id: &str| engine.store().backend().0.borrow()[id].clone();
    let reserved = || ["first", "last"].map(|id| counter(id).reserved.get());
    let urgent = |cost| Request::new("api").cost(cost).prioritized();
    drop(pass(&engine, &Request::new("api").cost(5), 1000));
    let before = reserved();
    counter("last").broken.set(true);
    drop(block(&engine, &urgent(5), 1700));
    assert_eq!(reserved(), before);
    // All of it is still there to be lent.
    counter("last").broken.set(false);
    drop(wait(&engine, &urgent(5), 1700, 400));
}

#[test]
fn two_rules_of_one_name_are_refused_and_so_are_more_rules_than_a_resource_may_have() {
    let same = Engine::new(rules([
        rule("a", "api", 1.0),
        rule("b", "api", 1.0),
        rule("a", "job", 1.0),
    ]))
    .err()
    .unwrap();
    assert!(
        matches!(&same, RulesError::SameId { id, index: 2, .. } if id.as_str() == "a"),
        "{same:?}"
    );
    assert_eq!(
        (same.place(), same.to_string().as_str()),
        (
            ("flowRules", 2),
            "`a` is the id of an earlier rule; give one of them another `id`"
        )
    );
    for resource in ["api", "*"] {
        let many = |n: usize| {
            rules(
                (0..n)
                    .map(|i| rule(&i.to_string(), resource, 1.0))
                    .collect::<Vec<_>>(),
            )
        };
        let engine = Engine::new(many(MAX_RULES_PER_RESOURCE)).unwrap();
        assert_eq!(
            admitted(&engine, &Request::new("api"), 3, 0),
            1,
            "all 64 are asked"
        );
        let error = Engine::new(many(MAX_RULES_PER_RESOURCE + 1)).err().unwrap();
        assert_eq!(
            error,
            RulesError::ManyRules {
                resource: resource.into(),
                list: "flowRules",
                index: MAX_RULES_PER_RESOURCE
            }
        );
    }
}

/// The count of the flow rule that refused.
#[track_caller]
fn count_of(blocked: &Blocked) -> f64 {
    match blocked.cause() {
        Cause::Flow(rule) => rule.count().get(),
        other => panic!("{other:?}"),
    }
}

// ---- shadow ----

#[test]
fn a_shadow_rule_counts_what_it_would_refuse_and_refuses_nothing() {
    let engine = engine([
        rule("try", "api", 2.0).in_mode(Mode::Shadow),
        rule("real", "api", 5.0),
    ]);
    assert_eq!(admitted(&engine, &Request::new("api"), 5, 1000), 5);
    assert_eq!(
        counted(&engine),
        [(2, 0, 3), (5, 0, 0)],
        "charged for what it would have let pass"
    );
    assert_eq!(
        block(&engine, &Request::new("api"), 1000).id().as_str(),
        "real"
    );
    assert_eq!(counted(&engine), [(2, 0, 4), (5, 1, 0)]);
}

#[test]
fn a_shadow_rule_is_not_charged_for_what_another_refuses() {
    let engine = engine([
        rule("try", "api", 9.0).in_mode(Mode::Shadow),
        rule("real", "api", 2.0),
    ]);
    assert_eq!(admitted(&engine, &Request::new("api"), 9, 1000), 2);
    assert_eq!(
        (counted(&engine), remaining(&engine, "api", 1000)),
        (vec![(2, 0, 0), (2, 7, 0)], vec![7, 0])
    );
}

#[test]
fn a_shadow_rule_on_calls_in_flight_holds_only_what_it_let_in() {
    let engine = engine([rule("try", "api", 1.0).concurrency().in_mode(Mode::Shadow)]);
    let [one, other] = [(); 2].map(|()| pass(&engine, &Request::new("api"), 1000));
    assert_eq!(counted(&engine), [(1, 0, 1)]);
    other.exit(Outcome::Success, at(1001));
    assert_eq!(
        remaining(&engine, "api", 1001),
        [0],
        "the one that it let in is still there"
    );
    one.exit(Outcome::Success, at(1002));
    assert_eq!(remaining(&engine, "api", 1002), [1]);
}

#[test]
fn in_a_shadow_document_nothing_is_refused_and_all_is_counted() {
    let flow = vec![
        rule("one", "api", 1.0),
        rule("none", "api", 0.0),
        rule("in flight", "api", 1.0).concurrency(),
    ];
    let engine = Engine::new(Rules {
        flow,
        mode: Mode::Shadow,
        ..Rules::default()
    })
    .unwrap();
    let _open: Vec<_> = (0..3)
        .map(|_| pass(&engine, &Request::new("api"), 1000))
        .collect();
    assert_eq!(counted(&engine), [(1, 0, 2), (0, 0, 3), (1, 0, 2)]);
}

// ---- each resource ----

#[test]
fn a_rule_for_each_gives_every_unnamed_resource_a_window_of_its_own() {
    let engine = engine([rule("each", "*", 2.0), rule("named", "api", 5.0)]);
    assert_eq!(
        admitted(&engine, &Request::new("api"), 9, 1000),
        5,
        "it is named, and has no other rule"
    );
    for resource in ["job", "search", "job/1"] {
        assert_eq!(
            admitted(&engine, &Request::new(resource), 9, 1000),
            2,
            "{resource}"
        );
        assert_eq!(
            block(&engine, &Request::new(resource), 1000).id().as_str(),
            "each"
        );
    }
}

#[test]
fn an_engine_goes_on_with_its_own_bound_on_resources_when_another_one_is_made_over_its_store() {
    let store = Rc::new(Store::without_statistics(Local));
    let engine = |max_resources| {
        store.set_max_resources(max_resources);
        let rules = rules([rule("each", "*", 2.0)]);
        Engine::with_store(Rc::clone(&store), rules).unwrap()
    };
    let (wide, narrow) = (engine(3), engine(1));
    let passed =
        |engine: &Engine<Local>, resource: &str| admitted(engine, &Request::new(resource), 9, 1000);
    assert_eq!(
        ["a", "b", "c", "d", "e"].map(|name| passed(&wide, name)),
        [2, 2, 2, 2, 0]
    );
    assert_eq!(["f", "g", "h"].map(|name| passed(&narrow, name)), [2, 0, 0]);
}

#[test]
fn differs_from_sentinel_resources_beyond_the_bound_are_limited() {
    let store = Rc::new(Store::new(Local));
    store.set_max_resources(3);
    let engine = Engine::with_store(
        store,
        rules([rule("each", "*", 2.0), rule("named", "api", 5.0)]),
    )
    .unwrap();
    for resource in ["a", "b", "c"] {
        assert_eq!(
            admitted(&engine, &Request::new(resource), 9, 1000),
            2,
            "{resource}"
        );
    }
    let strangers: Vec<usize> = (0..1000)
        .map(|i| admitted(&engine, &Request::new(&format!("stranger {i}")), 1, 1000))
        .collect();
    assert_eq!(strangers.iter().sum::<usize>(), 2, "all of them together");
    assert_eq!(
        (engine.resource("d").name(), engine.resource("e").name()),
        ("", "")
    );
    assert_eq!(
        admitted(&engine, &Request::new("a"), 9, 3000),
        2,
        "those that came first are as they were"
    );
    assert_eq!(
        admitted(&engine, &Request::new("api"), 9, 3000),
        5,
        "and a resource with rules of its own always is"
    );
    assert!(engine.store().len() <= 5, "{}", engine.store().len());
}

// ---- calls in flight ----

#[test]
fn a_call_counts_with_its_cost_from_its_entry_to_its_end() {
    let engine = engine([rule("r", "api", 3.0).concurrency()]);
    let (one, two) = (Request::new("api"), Request::new("api").cost(2));
    let first = pass(&engine, &one, 1000);
    let second = pass(&engine, &two, 1000);
    assert_eq!(remaining(&engine, "api", 99_000), [0], "time frees nothing");
    assert_eq!(retry_ms(&block(&engine, &one, 99_000)), Some(1));
    let never = block(&engine, &Request::new("api").cost(4), 99_000);
    assert_eq!(never.retry_after(), None);
    drop(first); // not ended: given back all the same
    block(&engine, &two, 99_000);
    second.exit(Outcome::Error, at(99_000));
    let third = pass(&engine, &two, 99_000);
    assert_eq!(remaining(&engine, "api", 99_000), [1]);
    block(&engine, &two, 99_000);
    third.exit(Outcome::Success, at(99_000));
    assert_eq!(remaining(&engine, "api", 99_000), [3]);
}

#[test]
fn a_call_that_costs_nothing_takes_no_place() {
    let engine = engine([rule("r", "api", 2.0).concurrency()]);
    let full = pass(&engine, &Request::new("api").cost(2), 1000);
    let open: Vec<_> = (0..3)
        .map(|_| pass(&engine, &Request::new("api").cost(0), 1000))
        .collect();
    assert_eq!(remaining(&engine, "api", 1000), [0]);
    drop(open);
    block(&engine, &Request::new("api"), 1000);
    drop(full);
    assert_eq!(remaining(&engine, "api", 1000), [2]);
}

#[test]
fn differs_from_sentinel_a_call_in_flight_costs_what_it_costs() {
    let rules = [rule("r", "api", 3.0), rule("r", "api", 3.0).sentinel()];
    let passes = rules.map(|rule| {
        let engine = engine([rule.concurrency()]);
        let two = Request::new("api").cost(2);
        let _first = pass(&engine, &two, 0);
        matches!(engine.enter(&two, at(0)), Decision::Pass(_))
    });
    assert_eq!(passes, [false, true]);
}

#[test]
fn calls_in_flight_never_cost_more_than_the_limit_and_give_all_of_it_back() {
    let key = [KeyValue::One(b"a")];
    let by = || KeyedBy::new([KeyPart::Header("x-key".into())]).unwrap();
    for keyed in [false, true] {
        for seed in 0..200 {
            let mut random = fastrand::Rng::with_seed(seed);
            let limit = random.u32(1..12);
            let in_flight = rule("in flight", "api", limit.into()).concurrency();
            let in_flight = match keyed {
                true => in_flight.keyed(by()).unwrap(),
                false => in_flight,
            };
            let window = rule("window", "api", 40.0);
            let engine = engine([in_flight, window]);
            let (mut open, mut used) = (Vec::new(), 0);
            for now in (0..400).map(|step| step * 20) {
                if random.bool() {
                    let cost = random.u32(0..6);
                    let request = Request::new("api").cost(cost).keys(&key);
                    match engine.enter(&request, at(now)) {
                        Decision::Pass(entry) => {
                            open.push((entry, cost));
                            used += cost;
                        }
                        Decision::Block(blocked) if blocked.id().as_str() == "in flight" => {
                            assert!(used + cost > limit, "{keyed} {seed}: {used} + {cost}");
                        }
                        _ => {}
                    }
                    assert!(used <= limit, "{keyed} {seed}: {used} of {limit}");
                } else if !open.is_empty() {
                    let (entry, cost): (Entry, _) = open.swap_remove(random.usize(..open.len()));
                    used -= cost;
                    match random.u8(0..5) {
                        0 => entry.exit(Outcome::Success, at(now)),
                        1 => entry.exit_uncounted(&key, Outcome::Error, at(now)),
                        2 => entry.exit_unanswered(at(now)),
                        3 => entry.cancel(at(now)),
                        _ => drop(entry),
                    }
                }
            }
            drop(open);
            let all = Request::new("api").cost(limit).keys(&key);
            drop(pass(&engine, &all, 99_000));
        }
    }
}

#[test]
fn an_entry_that_is_dropped_is_no_longer_in_flight_and_has_not_completed() {
    let engine = engine([rule("r", "api", 1.0).concurrency()]);
    drop(pass(
        &engine,
        &Request::new("api").origin("app").inbound(),
        1000,
    ));
    let tree = engine.store().tree().unwrap();
    assert_eq!(tree.resources(), ["api".into()]);
    let cluster = tree.cluster("api").unwrap();
    assert_eq!(cluster.origins(), ["app".into()]);
    let origin = cluster.origin("app").unwrap();
    let entrance = tree
        .default_node(leapgate::stats::DEFAULT_CONTEXT, "api")
        .unwrap();
    let now = at(1000);
    for node in [
        cluster.statistics(),
        &*origin,
        entrance.statistics(),
        tree.inbound().statistics(),
    ] {
        assert_eq!(
            (
                node.cur_thread_num(),
                node.pass_qps(now),
                node.success_qps(now)
            ),
            (0, 1.0, 0.0),
            "{node:?}"
        );
    }
    drop(pass(&engine, &Request::new("api"), 1000));
}

// ---- contexts ----

/// All that a node says at an instant.
fn told(node: &StatisticNode, now: Timestamp) -> String {
    let rates = [
        node.pass_qps(now),
        node.block_qps(now),
        node.success_qps(now),
        node.exception_qps(now),
        node.avg_rt(now),
        node.min_rt(now),
    ];
    let minute = node.minute().details(now);
    format!("{node:?} {rates:?} {} {minute:?}", node.cur_thread_num())
}

#[test]
fn each_context_and_all_together_count_what_they_would_count_apart() {
    let contexts = [DEFAULT_CONTEXT, "web", "job"];
    for seed in 0..300 {
        let mut random = fastrand::Rng::with_seed(seed);
        let engine = engine([rule("r", "api", 4.0)]);
        let models = contexts.map(|_| StatisticNode::default());
        let all = StatisticNode::default();
        // What has been read is counted apart from then on, and so is what has a second context: each seed does so at other times.
        let (read_from, others_from) = (random.usize(..70), random.usize(..70));
        let (first, mut open, mut now) = (random.usize(..3), Vec::new(), 86_400_000_u64);
        for step in 0..60 {
            now += [0, 3, 90, 400, 1100, 70_000][random.usize(..6)];
            now -= [0, 300][usize::from(random.u8(..20) == 0)];
            if random.bool() || open.is_empty() {
                let i = if step < others_from { first } else { random.usize(..3) };
                let request = Request::new("api").context(contexts[i]).cost(2);
                let both = [&models[i], &all];
                match engine.enter(&request, at(now)) {
                    Decision::Pass(entry) => {
                        both.into_iter().for_each(|node| node.begin(2, at(now)));
                        open.push((entry, i, now));
                    }
                    _ => {
                        both.into_iter().for_each(|node| node.increase_block_qps(2, at(now)));
                    }
                }
            } else {
                let (entry, i, began) = open.swap_remove(random.usize(..open.len()));
                let (both, rt) = ([&models[i], &all], now.saturating_sub(began));
                let outcomes = [None, Some(Outcome::Success), Some(Outcome::Error)];
                match outcomes[random.usize(..3)] {
                    None => {
                        drop(entry);
                        both.into_iter().for_each(StatisticNode::decrease_thread_num);
                    }
                    Some(outcome) => {
                        let failed = outcome == Outcome::Error;
                        entry.exit(outcome, at(now));
                        both.into_iter().for_each(|node| node.complete(rt, 2, failed, at(now)));
                    }
                }
            }
            let tree = engine.store().tree().unwrap();
            let cluster = tree.cluster("api").unwrap();
            let is = told(cluster.statistics(), at(now));
            assert_eq!(is, told(&all, at(now)), "seed {seed}, step {step}");
            for (context, model) in contexts.iter().zip(&models) {
                let node = tree.default_node(context, "api").filter(|_| step >= read_from);
                if let Some(node) = node {
                    let is = told(node.statistics(), at(now));
                    assert_eq!(is, told(model, at(now)), "seed {seed}, step {step}, {context}");
                }
            }
        }
    }
}

#[test]
fn what_a_caller_records_for_all_contexts_is_in_no_context_and_the_other_way_round() {
    for is_met in [false, true] {
        let engine = engine([]);
        let tree = engine.store().tree().unwrap();
        let enter = || drop(pass(&engine, &Request::new("api"), 1000));
        let node = || tree.default_node(DEFAULT_CONTEXT, "api").unwrap();
        if is_met {
            enter();
        } else {
            // A request by another way in makes the node of all contexts.
            drop(pass(&engine, &Request::new("api").context("web"), 1000));
        }
        let cluster = tree.cluster("api").unwrap();
        cluster.statistics().increase_exception_qps(3, at(1000));
        enter();
        node().statistics().increase_block_qps(5, at(1000));
        let of = |node: &StatisticNode| (node.total_exception(at(1000)), node.block_request(at(1000)));
        assert_eq!(of(cluster.statistics()), (3, 0));
        assert_eq!(of(node().statistics()), (0, 5));
    }
}

// ---- origins ----

#[test]
fn a_rule_is_for_everybody_for_one_origin_or_for_each_other_apart() {
    let flow = [
        for_origin("app", "api", 3.0, "app"),
        for_origin("other", "api", 1.0, "other"),
        for_origin("all", "api", 8.0, "default"),
    ];
    for (origins, passes) in [
        (&["app"][..], &[3][..]),
        (&["shop"], &[1]),
        (&["shop", "web", "shop"], &[1, 1, 0]), // each other origin has a window of its own
        (&[""], &[8]),                          // no origin at all is no other one
        (&["other"], &[8]),                     // nor is one that is called so
        (&["default"], &[8]),
        (&["App"], &[1]),
        (&["app", "", "shop"], &[3, 5, 0]),
    ] {
        let engine = engine(flow.clone());
        let found: Vec<usize> = origins
            .iter()
            .map(|origin| admitted(&engine, &Request::new("api").origin(origin), 9, 1000))
            .collect();
        assert_eq!(found, passes, "{origins:?}");
    }
}

#[test]
fn an_origin_that_only_another_resource_names_is_an_other_one() {
    let engine = engine([
        for_origin("app", "job", 3.0, "app"),
        for_origin("other", "api", 1.0, "other"),
    ]);
    assert_eq!(
        admitted(&engine, &Request::new("api").origin("app"), 9, 1000),
        1
    );
}

#[test]
fn differs_from_sentinel_origins_are_bounded() {
    let engine = engine([
        for_origin("app", "api", 3.0, "app"),
        for_origin("other", "api", 1.0, "other"),
    ]);
    for i in 0..MAX_ORIGINS {
        assert_eq!(
            admitted(
                &engine,
                &Request::new("api").origin(&format!("origin {i}")),
                2,
                1000
            ),
            1,
            "{i}"
        );
    }
    let strangers = (0..50).map(|i| {
        admitted(
            &engine,
            &Request::new("api").origin(&format!("stranger {i}")),
            1,
            1000,
        )
    });
    assert_eq!(strangers.sum::<usize>(), 1, "all of them together");
    assert_eq!(
        admitted(&engine, &Request::new("api").origin("app"), 9, 1000),
        3,
        "a flood frees no origin of its rule"
    );
    assert_eq!(engine.store().len(), MAX_ORIGINS + 2);
    let cluster = engine.store().tree().unwrap().cluster("api").unwrap();
    assert!(cluster.origin("origin 0").is_some() && cluster.origin("stranger 0").is_none());
    let origins = cluster.origins();
    assert_eq!(origins.len(), MAX_ORIGINS + 1);
    assert!(origins.contains(&"".into()));
}

// ---- contexts ----

#[test]
fn differs_from_sentinel_contexts_beyond_the_bound_are_limited() {
    let engine = engine([rule("r", "api", 1e9)]);
    for i in 0..MAX_CONTEXTS + 50 {
        let name = format!("context {i}");
        let outer = pass(&engine, &Request::new("api").context(&name), 1000);
        pass(&engine, &Request::new("job").within(&outer), 1000).exit(Outcome::Success, at(1000));
        outer.exit(Outcome::Success, at(1000));
    }
    let tree = engine.store().tree().unwrap();
    for resource in ["api", "job"] {
        let cluster = tree.cluster(resource).unwrap();
        let all = (MAX_CONTEXTS + 50) as u64;
        assert_eq!(
            (
                cluster.statistics().total_pass(at(1000)),
                cluster.statistics().total_success(at(1000))
            ),
            (all, all)
        );
        assert_eq!(cluster.statistics().cur_thread_num(), 0);
    }
    assert!(
        tree.root().entrances().len() <= MAX_CONTEXTS + 1,
        "{}",
        tree.root().entrances().len()
    );
    assert!(
        tree.entrance(leapgate::stats::DEFAULT_CONTEXT).is_none(),
        "no call has come in by it"
    );
    engine.replace(rules([rule("r", "api", 0.0)])).unwrap();
    let last = format!("context {}", MAX_CONTEXTS + 49);
    drop(block(&engine, &Request::new("api").context(&last), 1000));
}

// ---- replacing rules ----

#[test]
fn a_rule_goes_on_where_it_is_when_its_count_changes_or_another_comes_before_it() {
    let engine = engine([rule("r", "api", 3.0)]);
    assert_eq!(admitted(&engine, &Request::new("api"), 9, 1000), 3);
    engine.replace(rules([rule("r", "api", 5.0)])).unwrap();
    assert_eq!(admitted(&engine, &Request::new("api"), 9, 1100), 2);
    engine
        .replace(rules([
            rule("first", "job", 1.0),
            rule("before", "api", 9.0),
            rule("r", "api", 6.0),
        ]))
        .unwrap();
    assert_eq!(admitted(&engine, &Request::new("api"), 9, 1200), 1);
    engine.replace(rules([rule("r", "api", 2.0)])).unwrap();
    assert_eq!(
        (
            admitted(&engine, &Request::new("api"), 9, 2009),
            remaining(&engine, "api", 2009)
        ),
        (0, vec![0])
    );
    assert_eq!(admitted(&engine, &Request::new("api"), 9, 3300), 2);
}

#[test]
fn a_rule_of_another_geometry_or_another_name_begins_anew() {
    for other in [
        rule("r", "api", 3.0).per(2000, None).unwrap(),
        rule("r", "api", 3.0).per(1000, Some(10)).unwrap(),
        rule("other", "api", 3.0),
    ] {
        let engine = engine([rule("r", "api", 3.0)]);
        assert_eq!(admitted(&engine, &Request::new("api"), 9, 1000), 3);
        engine.replace(rules([other.clone()])).unwrap();
        assert_eq!(
            admitted(&engine, &Request::new("api"), 9, 1000),
            3,
            "{other:?}"
        );
        assert_eq!(engine.store().len(), 1, "the other state is forgotten");
    }
}

#[test]
fn the_windows_of_each_resource_and_of_each_origin_go_on_too() {
    let flow = [
        rule("each", "*", 2.0),
        for_origin("other", "api", 1.0, "other"),
    ];
    let engine = engine(flow.clone());
    let job = Request::new("job");
    let shop = Request::new("api").origin("shop");
    assert_eq!(
        (
            admitted(&engine, &job, 9, 1000),
            admitted(&engine, &shop, 9, 1000)
        ),
        (2, 1)
    );
    let mut more = flow.to_vec();
    more.insert(0, rule("first", "search", 9.0));
    engine.replace(rules(more)).unwrap();
    assert_eq!(
        (
            admitted(&engine, &job, 9, 1000),
            admitted(&engine, &shop, 9, 1000)
        ),
        (0, 0),
        "no fresh window for free"
    );
}

#[test]
fn shadow_is_put_on_and_off_without_losing_count() {
    let engine = engine([rule("r", "api", 2.0)]);
    assert_eq!(admitted(&engine, &Request::new("api"), 9, 1000), 2);
    engine
        .replace(rules([rule("r", "api", 2.0).in_mode(Mode::Shadow)]))
        .unwrap();
    assert_eq!(admitted(&engine, &Request::new("api"), 9, 1000), 9);
    engine.replace(rules([rule("r", "api", 2.0)])).unwrap();
    assert_eq!(admitted(&engine, &Request::new("api"), 9, 1000), 0);
    assert_eq!(counted(&engine), [(2, 7 + 9, 9)]);
}

#[test]
fn entries_end_on_the_rules_that_they_began_with() {
    let engine = engine([
        rule("r", "api", 2.0).concurrency(),
        rule("gone", "api", 9.0).concurrency(),
    ]);
    let [old, older] = [(); 2].map(|()| pass(&engine, &Request::new("api"), 1000));
    engine
        .replace(rules([
            rule("new", "api", 9.0),
            rule("r", "api", 2.0).concurrency(),
        ]))
        .unwrap();
    assert_eq!(
        remaining(&engine, "api", 1000),
        [9, 0],
        "those in flight are in flight"
    );
    block(&engine, &Request::new("api"), 1000);
    old.exit(Outcome::Success, at(1000));
    assert_eq!(remaining(&engine, "api", 1000), [9, 1]);
    drop(older);
    assert_eq!(remaining(&engine, "api", 1000), [9, 2]);
    engine.replace(rules([])).unwrap();
    assert_eq!(
        engine.store().len(),
        0,
        "and what no rule refers to is forgotten"
    );
}

#[test]
fn rules_that_do_not_go_together_change_nothing() {
    let engine = engine([rule("r", "api", 3.0)]);
    assert_eq!(admitted(&engine, &Request::new("api"), 2, 1000), 2);
    engine
        .replace(rules([rule("r", "api", 9.0), rule("r", "job", 9.0)]))
        .unwrap_err();
    assert_eq!(
        (
            admitted(&engine, &Request::new("api"), 9, 1000),
            admitted(&engine, &Request::new("job"), 9, 1000)
        ),
        (1, 9)
    );
}

#[test]
fn statistics_outlive_rules() {
    let engine = engine([rule("r", "api", 3.0)]);
    assert_eq!(
        admitted(&engine, &Request::new("api").context("web"), 9, 1000),
        3
    );
    engine.replace(rules([])).unwrap();
    assert_eq!(
        admitted(&engine, &Request::new("api").context("web"), 9, 1000),
        9
    );
    let tree = engine.store().tree().unwrap();
    let node = tree.cluster("api").unwrap();
    assert_eq!(
        (
            node.statistics().total_pass(at(1000)),
            node.statistics().block_request(at(1000))
        ),
        (12, 6)
    );
    assert_eq!(tree.entrance("web").unwrap().children().len(), 1);
}

// ---- several engines ----

#[test]
fn engines_over_one_store_share_windows_and_statistics() {
    let store = Rc::new(Store::new(Local));
    let flow = [
        rule("r", "api", 5.0),
        rule("each", "*", 2.0),
        rule("in flight", "report", 1.0).concurrency(),
    ];
    let one = Engine::with_store(Rc::clone(&store), rules(flow.clone())).unwrap();
    let other = Engine::with_store(Rc::clone(&store), rules(flow)).unwrap();
    assert_eq!(
        (
            admitted(&one, &Request::new("api"), 3, 1000),
            admitted(&other, &Request::new("api"), 9, 1000)
        ),
        (3, 2)
    );
    assert_eq!(
        (
            admitted(&other, &Request::new("job"), 1, 1000),
            admitted(&one, &Request::new("job"), 9, 1000)
        ),
        (1, 1)
    );
    let open = pass(&one, &Request::new("report"), 1000);
    block(&other, &Request::new("report"), 1000);
    open.exit(Outcome::Success, at(1000));
    drop(pass(&other, &Request::new("report"), 1000));
    assert_eq!(
        store
            .tree()
            .unwrap()
            .cluster("api")
            .unwrap()
            .statistics()
            .total_request(at(1000)),
        12
    );
    drop(one);
    assert_eq!(
        admitted(&other, &Request::new("api"), 9, 1000),
        0,
        "and outlive one another"
    );
}

#[test]
fn a_store_without_statistics_decides_the_same() {
    let store = Rc::new(Store::without_statistics(Local));
    let engine = Engine::with_store(
        store,
        rules([
            rule("r", "api", 2.0),
            rule("in flight", "api", 1.0).concurrency(),
        ]),
    )
    .unwrap();
    assert!(engine.store().tree().is_none());
    let open = pass(
        &engine,
        &Request::new("api").context("web").origin("app").inbound(),
        1000,
    );
    block(&engine, &Request::new("api").within(&open), 1000);
    open.exit(Outcome::Success, at(1000));
    drop(pass(&engine, &Request::new("api"), 1000));
    assert_eq!(
        block(&engine, &Request::new("api"), 1000).id().as_str(),
        "r"
    );
}

#[test]
fn a_resource_that_was_looked_up_decides_as_its_name_does() {
    let engine = engine([rule("r", "api", 2.0)]);
    let api = engine.resource("api");
    let request = Request::new("whatever");
    let passes = (0..5).filter(|_| {
        matches!(
            engine.enter_resource(&api, &request, at(1000)),
            leapgate::Decision::Pass(_)
        )
    });
    assert_eq!((api.name(), passes.count()), ("api", 2));
    block(&engine, &Request::new("api"), 1000);
}

#[test]
fn differs_from_sentinel_a_response_time_is_never_negative() {
    let engine = engine([rule("r", "api", 2.0)]);
    pass(&engine, &Request::new("api"), 5000).exit(Outcome::Success, at(4000));
    let node = engine.store().tree().unwrap().cluster("api").unwrap();
    assert_eq!(
        (
            node.statistics().avg_rt(at(5000)),
            node.statistics().total_success(at(5000))
        ),
        (0.0, 1)
    );
}

#[test]
fn only_rules_about_origins_make_a_resource_ask_for_one() {
    let authority = AuthorityRule::new("admin", "ops", AuthorityStrategy::White).unwrap();
    let keyed = |resource: &str, of: LimitApp| {
        let by = KeyedBy::new([KeyPart::Path]).unwrap();
        rule(resource, resource, 1.0).for_origin(of).keyed(by).unwrap()
    };
    let shop = || LimitApp::new("shop").unwrap();
    let engine = Engine::new(Rules {
        flow: vec![
            rule("named", "a", 1.0).for_origin(shop()),
            rule("other", "b", 1.0).for_origin(LimitApp::Other),
            rule("all", "c", 1.0),
            keyed("keyed", shop()),
            keyed("keyed-other", LimitApp::Other),
            keyed("keyed-all", LimitApp::Default),
        ],
        authority: vec![authority],
        ..Rules::default()
    })
    .unwrap();
    let asks = ["a", "b", "c", "admin", "else"].map(|name| engine.resource(name).by_origin());
    assert_eq!(asks, [true, true, false, true, false]);
    let ruled = ["a", "b", "c", "admin", "else"].map(|name| engine.resource(name).has_rules());
    assert_eq!(ruled, [true, true, true, true, false]);
    let keyed = ["keyed", "keyed-other", "keyed-all"];
    assert_eq!(keyed.map(|name| engine.resource(name).by_origin()), [true, true, false]);
}

/// Admissions of other workers are read before the clock for each window that decides: an origin's own, too.
#[test]
fn the_windows_of_an_origin_are_observed_with_the_others() {
    let process = Workers::default();
    let workers =
        [0; 2].map(|_| process.engine([rule("r", "api", 3.0).for_origin(LimitApp::Other)]));
    let admitted = |worker: &Engine<Workers>, origin: &str, now| {
        let api = worker.resource("api");
        let enter = |_: &usize| {
            api.observe_from(origin);
            let request = Request::new("").origin(origin);
            matches!(
                worker.enter_resource(&api, &request, at(now)),
                Decision::Pass(_)
            )
        };
        (0..9).filter(enter).count()
    };
    for (worker, origin, now, passes) in [
        (0, "a", 10_000, 3),
        (1, "a", 10_000, 0),
        (1, "b", 10_000, 3),
        // The first worker has heard of what the second admits to b.
        (0, "b", 10_000, 0),
        (0, "a", 11_010, 3),
        (0, "b", 11_010, 3),
        (1, "a", 12_000, 0),
        (0, "b", 12_010, 0),
        (0, "b", 12_020, 3),
    ] {
        assert_eq!(
            admitted(&workers[worker], origin, now),
            passes,
            "{origin} at {now}"
        );
    }
}
