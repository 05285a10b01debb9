//! Costs that are known only when a request ends: it holds an estimate until then.

use crate::support::{Workers, at, block, engine, pass, retry_ms, rule};
use leapgate::rule::{AtMost, Cost, FlowRule, KeyPart, KeyValue, Unit};
use leapgate::{Decision, Entry, Outcome, Request};

/// At most `limit` tokens in 10 buckets of 100 ms, of which a request holds its estimate.
fn tokens(limit: f64, cost: Cost) -> FlowRule {
    let rule = rule("tokens", "chat", limit).per(1000, Some(10)).unwrap();
    let rule = rule.in_unit(Unit::new("tokens").unwrap());
    rule.costing(cost).unwrap()
}

/// A cost of which a request may hold the whole count.
fn estimated(estimate: u64) -> Cost {
    Cost::estimated(estimate).at_most(AtMost::Amount(u64::MAX))
}

fn chat<'a>() -> Request<'a> {
    Request::new("chat")
}

fn settle(mut entry: Entry, n: u64, now: u64) -> u64 {
    let debt = entry.settle("tokens", n);
    entry.exit(Outcome::Success, at(now));
    debt
}

#[test]
fn what_is_held_counts_in_full_however_long_its_request_lasts() {
    let engine = engine([tokens(100.0, estimated(60))]);
    let held = pass(&engine, &chat(), 0);
    for now in [0, 999, 1100, 5000, 3_600_000] {
        let policy = |now| {
            let resource = engine.resource("chat");
            let policy = resource.policies(at(now)).next().unwrap();
            (policy.remaining, policy.rule.unit().to_owned())
        };
        block(&engine, &chat(), now);
        assert_eq!(policy(now), (40, "tokens".into()), "at {now} ms");
    }
    assert_eq!(settle(held, 10, 3_600_000), 0);
    let _ = pass(&engine, &chat().cost_of("tokens", 90), 3_600_000);
}

#[test]
fn the_actual_cost_counts_from_the_end_of_the_request_on() {
    let engine = engine([tokens(100.0, estimated(60))]);
    let held = pass(&engine, &chat(), 0);
    settle(held, 50, 5050);
    // The bucket of 5000 ms has left the window, and the one before it that is leaving, at 6100 ms.
    for (now, room) in [(5050, 50), (6099, 50), (6100, 100)] {
        let resource = engine.resource("chat");
        resource.advance(at(now));
        assert_eq!(
            resource.policies(at(now)).next().unwrap().remaining,
            room,
            "at {now} ms"
        );
        settle(pass(&engine, &chat().cost_of("tokens", room), now), 0, now);
    }
}

#[test]
fn more_than_was_held_is_charged_over_the_limit_and_blocks_until_it_has_left() {
    let engine = engine([tokens(100.0, estimated(60))]);
    let held = pass(&engine, &chat(), 0);
    assert_eq!(settle(held, 250, 50), 190);
    let blocked = block(&engine, &chat().cost_of("tokens", 1), 60);
    assert_eq!(retry_ms(&blocked), Some(1040));
    block(&engine, &chat().cost_of("tokens", 1), 1099);
    let _ = pass(&engine, &chat().cost_of("tokens", 100), 1100);
}

#[test]
fn a_request_that_only_holds_keep_from_passing_may_try_again_in_a_second() {
    let engine = engine([tokens(100.0, estimated(60))]);
    let held = pass(&engine, &chat(), 0);
    assert_eq!(retry_ms(&block(&engine, &chat(), 10)), Some(1000));
    settle(held, 60, 500);
    // No hold is left: the ring says exactly when.
    assert_eq!(retry_ms(&block(&engine, &chat(), 700)), Some(900));
    let _held = pass(&engine, &chat().cost_of("tokens", 40), 1000);
    assert_eq!(retry_ms(&block(&engine, &chat(), 1000)), Some(1000));
}

#[test]
fn a_hold_that_is_dropped_is_settled_at_its_estimate_by_the_next_call_with_a_time() {
    let engine = engine([tokens(100.0, estimated(60))]);
    drop(pass(&engine, &chat(), 0));
    // The drop may have been at any time until now.
    block(&engine, &chat(), 9000);
    block(&engine, &chat(), 10_099);
    let _ = pass(&engine, &chat(), 10_100);
}

#[test]
fn a_call_that_is_cancelled_while_it_waits_has_cost_nothing() {
    let slow =
        rule("slow", "chat", 1.0).throttle(leapgate::rule::MaxQueueing::from_millis(5000).unwrap());
    let engine = engine([tokens(100.0, estimated(60)), slow]);
    settle(pass(&engine, &chat(), 0), 0, 0);
    let Decision::Wait(_, waiting) = engine.enter(&chat(), at(0)) else {
        panic!("passes");
    };
    block(&engine, &chat(), 10);
    waiting.cancel(at(20));
    let Decision::Wait(_, waiting) = engine.enter(&chat(), at(30)) else {
        panic!("passes or is refused");
    };
    waiting.cancel(at(6000)); // later: it has cost its estimate
    block(&engine, &chat(), 6000);
}

#[test]
fn a_request_takes_of_all_units_or_of_none() {
    let requests = rule("requests", "chat", 3.0);
    let engine = engine([requests, tokens(100.0, estimated(40))]);
    let remaining = |now| {
        let resource = engine.resource("chat");
        resource
            .policies(at(now))
            .map(|policy| policy.remaining)
            .collect::<Vec<_>>()
    };
    let first = pass(&engine, &chat(), 0);
    let second = pass(&engine, &chat(), 0);
    assert_eq!(block(&engine, &chat(), 0).id().as_str(), "tokens");
    assert_eq!(remaining(0), [1, 20]);
    settle(first, 5, 0);
    settle(second, 5, 0);
    assert_eq!(remaining(0), [1, 90]);
    let third = pass(&engine, &chat(), 0);
    assert_eq!(block(&engine, &chat(), 0).id().as_str(), "requests");
    assert_eq!(remaining(0), [0, 50]);
    settle(third, 5, 0);
}

#[test]
fn an_estimate_comes_from_the_caller_or_from_the_request_or_from_the_rule() {
    let by_header = Cost::estimated(7).read_from(KeyPart::Header("x-max-tokens".into()));
    let engine = engine([tokens(100.0, by_header)]);
    let resource = engine.resource("chat");
    assert_eq!(
        resource.key_parts(),
        [KeyPart::Header("x-max-tokens".into())]
    );
    let held = |request: &Request<'_>| {
        let entry = pass(&engine, request, 0);
        let policy = resource.policies(at(0)).next().unwrap();
        settle(entry, 0, 0);
        100 - policy.remaining
    };
    let rows: [(&[KeyValue<'_>], u64); 7] = [
        (&[], 7),
        (&[KeyValue::Missing], 7),
        (&[KeyValue::One(b"30")], 30),
        (&[KeyValue::One(b"0")], 1),
        (&[KeyValue::One(b"-4")], 7),
        (&[KeyValue::One(b"1e400")], 7),
        (&[KeyValue::One(b"1000000000")], 50), // half of the count
    ];
    for (values, expected) in rows {
        assert_eq!(held(&chat().keys(values)), expected, "{values:?}");
    }
    assert_eq!(
        held(&chat().keys(&[KeyValue::One(b"30")]).cost_of("tokens", 12)),
        12
    );
}

#[test]
fn a_unit_whose_cost_is_known_is_charged_at_once() {
    let bytes = rule("bytes", "upload", 1000.0).in_unit(Unit::new("bytes").unwrap());
    let engine = engine([bytes]);
    let upload = |n| Request::new("upload").cost_of("bytes", n);
    drop(pass(&engine, &upload(900), 0));
    block(&engine, &upload(101), 0);
    drop(pass(&engine, &upload(99), 0));
    drop(pass(&engine, &Request::new("upload").cost(50), 0)); // a cost that is not said is 1
    block(&engine, &upload(1), 0);
}

#[test]
fn a_call_that_does_not_count_gives_all_of_its_hold_back() {
    let engine = engine([tokens(100.0, estimated(60))]);
    pass(&engine, &chat(), 0).exit_uncounted(&[], Outcome::Success, at(5));
    let _ = pass(&engine, &chat().cost_of("tokens", 100), 5);
}

#[test]
fn a_call_whose_client_has_left_has_cost_what_it_says_or_its_estimate() {
    for (said, left) in [(Some(7), 93), (None, 40)] {
        let engine = engine([tokens(100.0, estimated(60))]);
        let mut entry = pass(&engine, &chat(), 0);
        if let Some(n) = said {
            entry.settle("tokens", n);
        }
        entry.exit_unanswered(at(5000));
        let _ = pass(&engine, &chat().cost_of("tokens", left), 5000);
        block(&engine, &chat().cost_of("tokens", 1), 5000);
        let _ = pass(&engine, &chat().cost_of("tokens", 100 - left), 6100); // nothing is held any more
    }
}

#[test]
fn a_prioritized_request_borrows_nothing_where_others_hold() {
    let engine = engine([tokens(100.0, estimated(60))]);
    settle(pass(&engine, &chat(), 0), 60, 0);
    block(&engine, &chat().prioritized(), 900);
}

#[test]
fn a_refusal_for_holds_writes_nothing() {
    let workers = Workers::default();
    let engine = workers.engine([tokens(100.0, estimated(60))]);
    let _held = pass(&engine, &chat(), 0);
    let changes = workers.only().changes.get();
    block(&engine, &chat(), 5);
    block(&engine, &chat(), 5000);
    assert_eq!(workers.only().changes.get(), changes);
}

#[test]
fn a_worker_that_was_idle_settles_late_in_the_bucket_of_that_instant() {
    let workers = Workers::default();
    let idle = workers.engine([tokens(100.0, estimated(60))]);
    let busy = workers.engine([tokens(100.0, estimated(60))]);
    let room = |engine: &leapgate::Engine<Workers>, now| {
        let resource = engine.resource("chat");
        resource.observe();
        resource.advance(at(now));
        resource.policies(at(now)).next().unwrap().remaining
    };
    let mut held = pass(&idle, &chat(), 0);
    for now in (0..5000).step_by(50) {
        block(&busy, &chat(), now);
    }
    held.settle("tokens", 50);
    idle.resource("chat").observe();
    held.exit(Outcome::Success, at(5050));
    for (now, expected) in [(5050, 50), (6099, 50), (6100, 100)] {
        assert_eq!(
            (room(&idle, now), room(&busy, now)),
            (expected, expected),
            "at {now} ms"
        );
    }
}
