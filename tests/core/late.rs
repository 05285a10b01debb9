//! Resources that are opened by their first request, where the backend says so.

use crate::support::{at, block, pass, rule, rules};
use leapgate::backend::{
    Backend, BreakerKey, KeyedGeometry, KeyedWindows, Local, LocalBreaker, LocalCounter, Past,
    StateKey, Store,
};
use leapgate::rule::{
    DegradeGrade, DegradeRule, FlowRule, KeyPart, KeyValue, KeyedBy, LimitApp,
};
use leapgate::{Engine, Request, Rules, RulesError};
use std::rc::Rc;

/// Counts of this engine, opened late. Others have counted for the rules with these ids.
struct Late(&'static [&'static str]);

impl Backend for Late {
    type Counter = LocalCounter;
    type Keyed = KeyedWindows;
    type Breaker = LocalBreaker;

    fn opens_late(&self) -> bool {
        true
    }

    fn is_open_elsewhere(&self, key: &StateKey) -> bool {
        self.0.contains(&key.rule.as_str())
    }

    fn open(&self, key: &StateKey) -> (LocalCounter, Past) {
        Local.open(key)
    }

    fn open_keyed(&self, key: &StateKey, geometry: &KeyedGeometry) -> KeyedWindows {
        Local.open_keyed(key, geometry)
    }

    fn open_breaker(&self, key: &BreakerKey) -> LocalBreaker {
        Local.open_breaker(key)
    }
}

fn late(rules: Rules) -> Engine<Late> {
    late_beside(&[], rules)
}

fn late_beside(others: &'static [&'static str], rules: Rules) -> Engine<Late> {
    let store = Store::without_statistics(Late(others));
    Engine::with_store(Rc::new(store), rules).unwrap()
}

/// The rules whose states are open, in order.
fn open(engine: &Engine<Late>) -> Vec<String> {
    let mut all = Vec::new();
    let store = engine.store();
    store.for_each_unkeyed(|key, _| all.push(key.rule.to_string()));
    all.sort();
    all
}

fn three() -> Vec<FlowRule> {
    let relating = rule("c", "c", 1.0).relate("b").unwrap();
    vec![rule("a", "a", 1.0), rule("b", "b", 1.0), relating]
}

#[test]
fn a_state_is_opened_by_the_first_request_that_its_rule_counts() {
    let engine = late(rules(three()));
    assert_eq!(open(&engine), [""; 0]);
    drop(pass(&engine, &Request::new("unlimited"), 0));
    assert_eq!(open(&engine), [""; 0]);
    drop(pass(&engine, &Request::new("a"), 0));
    assert_eq!(open(&engine), ["a"]);
    assert_eq!(block(&engine, &Request::new("a"), 1).id().as_str(), "a");
    // Another rule measures it.
    drop(pass(&engine, &Request::new("b"), 2));
    assert_eq!(open(&engine), ["a", "b", "c"]);
    assert_eq!(block(&engine, &Request::new("c"), 3).id().as_str(), "c");
    assert!(engine.known_resource("unnamed").is_none());
}

#[test]
fn the_first_rules_open_at_once_what_is_open_elsewhere() {
    let engine = late_beside(&["b", "c"], rules([rule("a", "a", 1.0), rule("b", "b", 1.0)]));
    assert_eq!(open(&engine), ["b"]);
    // Later ones do not: those that know of it are there.
    engine.replace(rules(three())).unwrap();
    assert_eq!(open(&engine), ["b", "c"], "a rule that measures `b`");
    engine.replace(rules([rule("c", "c", 1.0)])).unwrap();
    let later = late_beside(&["c"], rules([rule("a", "a", 1.0)]));
    later.replace(rules([rule("c", "c", 1.0)])).unwrap();
    assert_eq!(open(&later), [""; 0]);
}

#[test]
fn what_is_open_stays_open_and_goes_on_when_rules_are_replaced_and_nothing_else_is_opened() {
    let engine = late(rules(three()));
    drop(pass(&engine, &Request::new("a"), 0));
    for count in [3.0, 2.0, 5.0] {
        let mut all = three();
        all[0] = rule("a", "a", count);
        engine.replace(rules(all)).unwrap();
        assert_eq!(open(&engine), ["a"], "{count}");
    }
    for now in 1..5 {
        drop(pass(&engine, &Request::new("a"), now));
    }
    assert_eq!(block(&engine, &Request::new("a"), 5).id().as_str(), "a");
    engine.replace(rules(three()[1..].to_vec())).unwrap();
    assert_eq!(open(&engine), [""; 0]);
}

/// Requests may come by rules that were replaced, for as long as their listener drains.
#[test]
fn what_is_opened_under_rules_that_were_replaced_goes_on_when_they_are_gone() {
    let store = Rc::new(Store::without_statistics(Late(&[])));
    let engine = |flow: Vec<FlowRule>| Engine::with_store(Rc::clone(&store), rules(flow)).unwrap();
    let (old, new) = (engine(three()), engine(three()));
    drop(pass(&old, &Request::new("a"), 0));
    drop(pass(&old, &Request::new("route").also(&["b"]), 0));
    assert_eq!(open(&new), ["a", "b", "c"]);
    drop(old);
    store.sweep();
    assert_eq!(block(&new, &Request::new("a"), 1).id().as_str(), "a");
    let to_api = Request::new("route").also(&["b"]);
    assert_eq!(block(&new, &to_api, 1).id().as_str(), "b");
}

#[test]
fn origins_keys_and_apis_go_on_when_rules_are_replaced() {
    let by = KeyedBy::new(vec![KeyPart::Method]).unwrap();
    let all = || {
        let others = rule("others", "a", 1.0).for_origin(LimitApp::new("other").unwrap());
        let keyed = rule("keyed", "k", 1.0).keyed(by.clone()).unwrap();
        rules([others, keyed, rule("api", "api", 1.0)])
    };
    let engine = late(all());
    let keys = [KeyValue::One(b"GET")];
    let requests = [
        Request::new("a").origin("app"),
        Request::new("k").keys(&keys),
        Request::new("route").also(&["api"]),
    ];
    for request in &requests {
        drop(pass(&engine, request, 0));
    }
    engine.replace(all()).unwrap();
    for (request, id) in requests.iter().zip(["others", "keyed", "api"]) {
        assert_eq!(block(&engine, request, 1).id().as_str(), id);
    }
}

#[test]
fn a_resource_with_a_breaker_is_open_from_the_start() {
    let mut all = rules(three());
    let errors = DegradeGrade::error_ratio(0.5).unwrap();
    all.degrade = vec![DegradeRule::new("b", errors, 1000).unwrap()];
    let engine = late(all);
    assert_eq!((open(&engine).len(), engine.store().breakers()), (2, 1));
}

#[test]
fn the_bound_on_resources_without_rules_counts_none_that_has_any() {
    let store = Rc::new(Store::without_statistics(Late(&[])));
    store.set_max_resources(1);
    let each = [rule("each", "*", 1.0), rule("a", "a", 1.0)];
    let engine = Engine::with_store(store, rules(each)).unwrap();
    for name in ["own", "a", "further"] {
        drop(pass(&engine, &Request::new(name), 0));
    }
    let further = engine.resource("another");
    assert!(further.is_further() && !engine.resource("own").is_further());
    let is_full = engine.enter_resource(&further, &Request::new("another"), at(1));
    assert!(matches!(is_full, leapgate::Decision::Block(_)));
}

#[test]
fn an_api_has_rules_before_it_is_open() {
    let engine = late(rules(three()));
    assert!(engine.has_api("a") && engine.has_api("b") && !engine.has_api("d"));
    assert_eq!(open(&engine), [""; 0]);
}

#[test]
fn rules_that_measure_one_resource_are_too_many_however_many_there_are() {
    for n in [65, 20_000] {
        let flow = |i: usize| rule(&i.to_string(), &format!("r{i}"), 1.0);
        let flow: Vec<_> = (0..n).map(|i| flow(i).relate("one").unwrap()).collect();
        let store = Rc::new(Store::without_statistics(Late(&[])));
        let error = Engine::with_store(store, rules(flow)).err();
        let error = error.expect("they are too many");
        assert_eq!(error.place(), ("flowRules", n - 1));
        assert!(matches!(error, RulesError::ManyRules { .. }));
    }
}
