//! Refusals that may be repeated: until when the same request is refused by the same rule.

use crate::support::{at, block, pass};
use leapgate::backend::{Local, Store};
use leapgate::config::{Value, read};
use leapgate::rule::KeyValue;
use leapgate::{Decision, Engine, Repeat, Request};
use std::rc::Rc;

#[track_caller]
fn engine(document: &str) -> Engine<Local> {
    let rules = read(&Value::from_json(document).unwrap()).unwrap().rules;
    Engine::with_store(Rc::new(Store::without_statistics(Local)), rules).unwrap()
}

/// Until when a request that is refused now is refused, in milliseconds; `None` if it is decided on each time.
#[track_caller]
fn until(engine: &Engine<Local>, request: &Request<'_>, now: u64) -> Option<u64> {
    repeat(engine, request, now).map(|repeat| repeat.until().as_millis())
}

#[track_caller]
fn repeat(engine: &Engine<Local>, request: &Request<'_>, now: u64) -> Option<Repeat<Local>> {
    let resource = engine.resource("r");
    let Decision::Block(blocked) = engine.enter_resource(&resource, request, at(now)) else {
        panic!("it passes at {now} ms");
    };
    resource.repeat(engine.store(), request, &blocked, at(now))
}

fn requests(rules: &str) -> Engine<Local> {
    engine(&format!(r#"{{"flowRules": [{rules}]}}"#))
}

#[test]
fn a_window_that_is_full_refuses_until_its_oldest_bucket_leaves() {
    for (window, leaves) in [("strict", 1100), ("sentinel", 1000), ("weighted", 1050)] {
        let rule = format!(
            r#"{{"resource": "r", "count": 2, "intervalMs": 1000, "sampleCount": 10, "window": "{window}"}}"#
        );
        let engine = requests(&rule);
        for now in [30, 60] {
            drop(pass(&engine, &Request::new("r"), now));
        }
        let first = until(&engine, &Request::new("r"), 100).unwrap();
        for now in [101, 500, 999, first - 1] {
            assert_eq!(until(&engine, &Request::new("r"), now), Some(first));
        }
        drop(pass(&engine, &Request::new("r"), first));
        assert_eq!(first, leaves, "{window}");
    }
}

#[test]
fn a_limit_of_nothing_refuses_for_ever() {
    for rule in [
        r#"{"resource": "r", "count": 0}"#,
        r#"{"resource": "r", "count": 0, "key": [{"arg": 0}]}"#,
    ] {
        let engine = requests(rule);
        let repeat = repeat(&engine, &Request::new("r"), 5).unwrap();
        assert!(repeat.until() > at(1 << 40));
    }
}

#[test]
fn a_key_that_is_full_refuses_until_its_own_window_has_room() {
    let engine = requests(
        r#"{"resource": "r", "count": 1, "sampleCount": 10, "key": [{"arg": 0}]}, {"resource": "r", "id": "all", "count": 9}"#,
    );
    let of = |key: &'static [u8]| [KeyValue::One(key)];
    for (key, now) in [(of(b"a"), 30), (of(b"b"), 430)] {
        drop(pass(&engine, &Request::new("r").keys(&key), now));
    }
    let until = |key: &[KeyValue<'_>], now| until(&engine, &Request::new("r").keys(key), now);
    assert_eq!(until(&of(b"a"), 450), Some(1100));
    assert_eq!(until(&of(b"b"), 450), Some(1500));
    let both: [&[u8]; 2] = [b"a", b"b"];
    assert_eq!(until(&[KeyValue::Each(&both)], 450), Some(1500));
}

#[test]
fn a_repeated_refusal_counts_under_the_rule_that_refuses_while_it_is_in_force() {
    for rules in [r#"{"resource": "r", "id": "free", "count": 9}, {"resource": "r", "id": "full", "count": 1}"#, r#"{"resource": "r", "id": "full", "count": 1, "key": [{"arg": 0}]}, {"resource": "r", "id": "free", "count": 9}"#] {
        let engine = requests(rules);
        drop(pass(&engine, &Request::new("r"), 0));
        let repeat = repeat(&engine, &Request::new("r"), 1).unwrap();
        let blocked = || {
            let (mut all, store) = (Vec::new(), engine.store());
            store.for_each_state(0, usize::MAX, |state| all.push(state.blocked()));
            store.for_each_keyed(|_, state| all.push(state.blocked()));
            all
        };
        let counts = |n| [0, n]; // plain ones stand first
        assert_eq!(blocked(), counts(1));
        assert!(repeat.refuse() && repeat.refuse());
        assert_eq!(blocked(), counts(3));
        engine
            .replace(leapgate::Rules::default())
            .expect("no rules go together");
        assert!(!repeat.refuse(), "the rule is gone");
    }
}

#[test]
fn what_may_end_at_any_moment_or_is_recorded_elsewhere_is_decided_on_each_time() {
    let rows = [
        // What fills the limit may end, or it rises.
        r#""flowRules": [{"resource": "r", "count": 1, "grade": "concurrency"}]"#,
        r#""flowRules": [{"resource": "r", "count": 1, "grade": "concurrency", "key": [{"arg": 0}]}]"#,
        r#""flowRules": [{"resource": "r", "count": 1, "controlBehavior": "throttle", "maxQueueingTimeMs": 0}]"#,
        r#""flowRules": [{"resource": "r", "count": 1, "controlBehavior": "warmUp", "warmUpPeriodSec": 10}]"#,
        r#""flowRules": [{"resource": "r", "unit": "tokens", "count": 1, "cost": {"estimate": 1}}]"#,
        r#""flowRules": [{"resource": "r", "unit": "tokens", "count": 1, "cost": {"estimate": 1}, "key": [{"arg": 0}]}]"#,
        // Others look at it, too.
        r#""flowRules": [{"resource": "r", "count": 1}, {"resource": "r", "count": 1, "mode": "shadow", "id": "s"}]"#,
        r#""flowRules": [{"resource": "r", "count": 1}, {"resource": "r", "count": 1, "key": [{"arg": 0}], "mode": "shadow", "id": "s"}]"#,
        r#""flowRules": [{"resource": "r", "count": 1}, {"resource": "r", "count": 1, "key": [{"arg": 0}], "enforcePercent": 50, "id": "s"}]"#,
        r#""flowRules": [{"resource": "r", "count": 1}], "banRules": [{"resource": "r", "key": [{"arg": 0}], "count": 9, "banSec": 1}]"#,
        r#""flowRules": [{"resource": "r", "count": 1}], "degradeRules": [{"resource": "r", "grade": "errorCount", "count": 9, "timeWindow": 1}]"#,
        r#""flowRules": [{"resource": "r", "count": 1}], "authorityRules": [{"resource": "r", "limitApp": "x", "strategy": "black", "mode": "shadow"}]"#,
        r#""flowRules": [{"resource": "r", "count": 1, "compat": "sentinel"}]"#,
    ];
    for lists in rows {
        let engine = engine(&format!("{{{lists}}}"));
        let entry = pass(&engine, &Request::new("r"), 0);
        let resource = engine.resource("r");
        let Decision::Block(blocked) = engine.enter_resource(&resource, &Request::new("r"), at(1))
        else {
            panic!("{lists} lets it pass");
        };
        let repeat = resource.repeat(engine.store(), &Request::new("r"), &blocked, at(1));
        assert!(repeat.is_none(), "{lists}");
        drop(entry);
    }
}

#[test]
fn a_request_that_may_borrow_or_does_not_wait_is_decided_on_each_time_and_so_is_one_in_statistics() {
    let rule = r#"{"resource": "r", "count": 1, "intervalMs": 60000}"#;
    let full = requests(rule);
    drop(pass(&full, &Request::new("r"), 0));
    assert!(until(&full, &Request::new("r"), 1).is_some());
    assert_eq!(until(&full, &Request::new("r").prioritized(), 1), None);
    assert_eq!(until(&full, &Request::new("r").impatient(), 1), None);
    assert_eq!(until(&full, &Request::new("r").impatient_for_store(), 1), None);
    let document = format!(r#"{{"flowRules": [{rule}]}}"#);
    let rules = read(&Value::from_json(&document).unwrap()).unwrap().rules;
    let with = Engine::new(rules).unwrap();
    drop(pass(&with, &Request::new("r"), 0));
    let blocked = block(&with, &Request::new("r"), 1);
    let resource = with.resource("r");
    assert!(resource.repeat(with.store(), &Request::new("r"), &blocked, at(1)).is_none());
}
