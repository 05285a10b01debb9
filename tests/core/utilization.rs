//! How full the limits of rules with a key are, for dashboards.

use crate::support::at;
use leapgate::backend::{Seeded, Store};
use leapgate::rule::{Cost, FlowRule, KeyPart, KeyValue, KeyedBy, MaxQueueing};
use leapgate::{Decision, Engine, Outcome, Request, Rules, Timestamp};
use std::rc::Rc;

/// An engine of one rule, for each value of the first argument.
fn engine(rule: FlowRule) -> Engine<Seeded> {
    let key = KeyedBy::new([KeyPart::Arg(0)]).unwrap();
    let rules = Rules {
        flow: vec![rule.keyed(key).unwrap()],
        ..Rules::default()
    };
    Engine::with_store(Rc::new(Store::new(Seeded([1, 2]))), rules).unwrap()
}

/// Requests of these keys, which go on.
fn enter(engine: &Engine<Seeded>, keys: &[&str], now: Timestamp) -> Vec<Decision<Seeded>> {
    let enter = |key: &&str| {
        let values = [KeyValue::One(key.as_bytes())];
        engine.enter(&Request::new("a").keys(&values), now)
    };
    keys.iter().map(enter).collect()
}

fn utilization(engine: &Engine<Seeded>, takes_turns: bool, now: Timestamp) -> f64 {
    let mut found = f64::NAN;
    let store = engine.store();
    store.for_each_keyed(|_, state| found = state.utilization(takes_turns, now));
    found
}

#[test]
fn it_is_that_of_the_key_that_has_used_most() {
    let engine = engine(FlowRule::new("a", 4.0).unwrap());
    drop(enter(&engine, &["x", "y", "y", "y"], at(0)));
    assert_eq!(utilization(&engine, false, at(10)), 0.75);
    drop(enter(&engine, &["y", "y", "y"], at(20)));
    assert_eq!(utilization(&engine, false, at(30)), 1.0);
    assert_eq!(utilization(&engine, false, at(5000)), 0.0);
}

#[test]
fn calls_in_flight_and_turns_are_parts_of_their_limits() {
    let calls = engine(FlowRule::new("a", 5.0).unwrap().concurrency());
    let open = enter(&calls, &["x", "x", "y"], at(0));
    assert_eq!(utilization(&calls, false, at(0)), 0.4);
    for decision in open {
        let Decision::Pass(entry) = decision else {
            panic!("a call was refused");
        };
        entry.exit(Outcome::Success, at(1));
    }
    assert_eq!(utilization(&calls, false, at(1)), 0.0);

    let rule = FlowRule::new("a", 10.0).unwrap();
    let turns = engine(rule.throttle(MaxQueueing::from_millis(400).unwrap()));
    let _waiting = enter(&turns, &["x", "x", "x", "y"], at(0));
    assert_eq!(utilization(&turns, true, at(0)), 0.75);
}

#[test]
fn a_debt_is_more_than_full() {
    let rule = FlowRule::new("a", 10.0).unwrap();
    let engine = engine(rule.costing(Cost::at_end()).unwrap());
    for decision in enter(&engine, &["x"], at(0)) {
        let Decision::Pass(mut entry) = decision else {
            panic!("a call was refused");
        };
        entry.settle("requests", 25);
        entry.exit(Outcome::Success, at(1));
    }
    assert_eq!(utilization(&engine, false, at(2)), 2.5);
}
