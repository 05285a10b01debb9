//! Costs of keys that are known only when a request ends.

use crate::support::{at, block, engine, pass, retry_ms, rule};
use leapgate::rule::{AtMost, Cost, FlowRule, KeyPart, KeyValue, KeyedBy, Mode, Unit};
use leapgate::{Decision, Engine, Entry, Outcome, Request, Rules};

/// At most `limit` tokens of each key, in 10 buckets of 100 ms, of which a request holds 60.
fn tokens(limit: f64) -> FlowRule {
    let by = KeyedBy::new([KeyPart::Header("x-key".into())]).unwrap();
    let rule = rule("tokens", "chat", limit).per(1000, Some(10)).unwrap();
    let rule = rule
        .keyed(by)
        .unwrap()
        .in_unit(Unit::new("tokens").unwrap());
    rule.costing(Cost::estimated(60).at_most(AtMost::Amount(u64::MAX)))
        .unwrap()
}

const A: &[KeyValue<'_>] = &[KeyValue::One(b"a")];
const B: &[KeyValue<'_>] = &[KeyValue::One(b"b")];

fn chat<'a>(keys: &'a [KeyValue<'a>]) -> Request<'a> {
    Request::new("chat").keys(keys)
}

fn settle(mut entry: Entry, n: u64, now: u64) -> u64 {
    let debt = entry.settle("tokens", n);
    entry.exit(Outcome::Success, at(now));
    debt
}

fn remaining(engine: &Engine, keys: &'static [KeyValue<'static>], now: u64) -> u64 {
    let resource = engine.resource("chat");
    let policy = resource.policies_for(&chat(keys), at(now)).last().unwrap();
    assert_eq!(policy.rule.unit(), "tokens");
    policy.remaining
}

#[test]
fn each_key_holds_for_itself_and_is_charged_at_the_end() {
    let engine = engine([tokens(100.0)]);
    let a = pass(&engine, &chat(A), 0);
    let b = pass(&engine, &chat(B), 0);
    assert!(a.holds() && b.holds());
    for now in [0, 1100, 3_600_000] {
        assert_eq!(retry_ms(&block(&engine, &chat(A), now)), Some(1000));
        assert_eq!(remaining(&engine, A, now), 40);
    }
    assert_eq!(settle(a, 12, 3_600_000), 0);
    assert_eq!(
        [A, B].map(|key| remaining(&engine, key, 3_600_000)),
        [88, 40]
    );
    assert_eq!(settle(b, 250, 3_600_000), 190);
    let blocked = block(&engine, &chat(B), 3_600_010);
    assert_eq!(retry_ms(&blocked), Some(1090));
    assert_eq!(
        [A, B].map(|key| remaining(&engine, key, 3_601_100)),
        [100, 100]
    );
}

#[test]
fn a_request_of_several_keys_holds_of_each_and_settles_each() {
    let engine = engine([tokens(100.0)]);
    let both = [KeyValue::Each(&[b"a", b"b"])];
    let request = Request::new("chat").keys(&both);
    let entry = pass(&engine, &request, 0);
    block(&engine, &chat(A), 0);
    block(&engine, &chat(B), 0);
    assert_eq!(settle(entry, 7, 0), 0);
    assert_eq!([A, B].map(|key| remaining(&engine, key, 0)), [93, 93]);
}

#[test]
fn a_refusal_by_another_rule_holds_nothing() {
    let requests = rule("requests", "chat", 1.0);
    let engine = engine([requests, tokens(100.0)]);
    settle(pass(&engine, &chat(A), 0), 10, 0);
    assert_eq!(block(&engine, &chat(A), 0).id().as_str(), "requests");
    assert_eq!(remaining(&engine, A, 0), 90);
}

#[test]
fn a_hold_that_is_dropped_is_settled_by_the_next_call_with_a_time() {
    let engine = engine([tokens(100.0)]);
    let (a, mut b) = (pass(&engine, &chat(A), 0), pass(&engine, &chat(B), 0));
    b.settle("tokens", 30);
    drop((a, b));
    // The drop may have been at any time until now.
    block(&engine, &chat(A), 9000);
    assert_eq!([A, B].map(|key| remaining(&engine, key, 10_099)), [40, 70]);
    assert_eq!(
        [A, B].map(|key| remaining(&engine, key, 10_100)),
        [100, 100]
    );
}

#[test]
fn a_call_that_is_cancelled_while_it_waits_or_does_not_count_has_cost_nothing() {
    let queue = leapgate::rule::MaxQueueing::from_millis(5000).unwrap();
    let engine = engine([rule("slow", "chat", 1.0).throttle(queue), tokens(100.0)]);
    pass(&engine, &chat(A), 0).exit_uncounted(A, Outcome::Success, at(0));
    assert_eq!(remaining(&engine, A, 0), 100);
    let Decision::Wait(_, waiting) = engine.enter(&chat(A), at(0)) else {
        panic!("passes or is refused");
    };
    assert_eq!(remaining(&engine, A, 10), 40);
    waiting.cancel(at(20));
    assert_eq!(remaining(&engine, A, 20), 100);
}

#[test]
fn a_hold_outlives_an_update_of_its_rule() {
    let engine = engine([tokens(100.0)]);
    let entry = pass(&engine, &chat(A), 0);
    let flow = vec![tokens(200.0)];
    engine
        .replace(Rules {
            flow,
            ..Rules::default()
        })
        .unwrap();
    assert_eq!(remaining(&engine, A, 10), 140);
    assert_eq!(settle(entry, 20, 10), 0);
    assert_eq!(remaining(&engine, A, 10), 180);
}

#[test]
fn a_rule_in_shadow_holds_and_settles_and_counts_its_debt() {
    let engine = engine([tokens(100.0).in_mode(Mode::Shadow)]);
    let first = pass(&engine, &chat(A), 0);
    let second = pass(&engine, &chat(A), 0);
    assert_eq!(remaining(&engine, A, 0), 40);
    assert_eq!(settle(second, 10, 0), 0, "it has not held");
    assert_eq!(settle(first, 75, 0), 15);
    assert_eq!(remaining(&engine, A, 0), 25);
}
