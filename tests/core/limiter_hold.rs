//! The short form's holds: an estimate of a request's cost, until that is known.

use crate::support::{at, count};
use fastrand::Rng;
use leapgate::backend::Key;
use leapgate::rule::{Counting, RuleGeometry, RuleId};
use leapgate::{Hold, Left, Limit, Limiter, Verdict};
use std::collections::BTreeMap;
use std::time::Duration;

const SEED: [u64; 2] = [0x5eed, 0xcafe];

fn limit(id: &str, limit: f64, interval_ms: u64) -> Limit {
    Limit {
        id: RuleId::new(id).unwrap(),
        count: count(limit),
        window: RuleGeometry::new(interval_ms, Some(10)).unwrap(),
        counting: Counting::Strict,
    }
}

fn limiter(limits: &[Limit]) -> Limiter {
    Limiter::new(limits.to_vec(), 1000, SEED).unwrap()
}

fn key(limiter: &Limiter, name: &str) -> Key {
    limiter.key([Some(name.as_bytes())])
}

fn hold(limiter: &Limiter, key: Key, estimate: u64, now: u64) -> Result<Hold, Verdict> {
    limiter.hold(key, estimate, None, at(now), |_| ())
}

fn remaining(limiter: &Limiter, key: Key, now: u64) -> Vec<u64> {
    let mut left = Vec::new();
    limiter.peek(key, 1, None, at(now), |of: Left| left.push(of.remaining));
    left
}

fn refused(index: usize, millis: impl Into<Option<u64>>) -> Verdict {
    Verdict::Block {
        index: Some(index),
        retry_after: millis.into().map(Duration::from_millis),
    }
}

#[test]
fn an_estimate_is_held_until_the_actual_cost_is_charged_in_its_place() {
    let limiter = limiter(&[limit("tokens", 1000.0, 1000)]);
    let a = key(&limiter, "a");
    let held = hold(&limiter, a, 900, 0).unwrap();
    for now in [0, 1100, 3_600_000] {
        assert_eq!(remaining(&limiter, a, now), [100], "{now} ms");
        assert_eq!(hold(&limiter, a, 101, now), Err(refused(0, 1000)));
    }
    // With nothing left, the status tells when to ask again, too.
    let rest = hold(&limiter, a, 100, 3_600_000).unwrap();
    assert_eq!(hold(&limiter, a, 1, 3_600_000), Err(refused(0, 1000)));
    assert!(limiter.cancel(rest, at(3_600_000)));
    assert_eq!(limiter.settle(held, 412, at(3_600_000)), Some(0));
    assert_eq!(remaining(&limiter, a, 3_601_099), [588]);
    assert_eq!(remaining(&limiter, a, 3_601_100), [1000]);
}

#[test]
fn a_request_holds_of_all_limits_or_of_none() {
    let limiter = limiter(&[limit("second", 10.0, 1000), limit("minute", 12.0, 60_000)]);
    let a = key(&limiter, "a");
    let held = hold(&limiter, a, 8, 0).unwrap();
    assert_eq!(hold(&limiter, a, 3, 0), Err(refused(0, 1000)));
    assert_eq!(limiter.settle(held, 6, at(2000)), Some(0));
    assert_eq!(remaining(&limiter, a, 4000), [10, 6]);
    assert_eq!(hold(&limiter, a, 7, 4000), Err(refused(1, 62_000)));
    assert_eq!(remaining(&limiter, a, 4000), [10, 6], "nothing is held");
    let more = hold(&limiter, a, 6, 4000).unwrap();
    // The rings alone would admit this one now, and the other when what was settled has left the minute.
    assert_eq!(hold(&limiter, a, 4, 4000), Err(refused(1, 1000)));
    assert_eq!(hold(&limiter, a, 7, 4000), Err(refused(0, 62_000)));
    assert!(limiter.cancel(more, at(4000)));
    assert_eq!(remaining(&limiter, a, 4000), [10, 6]);
}

#[test]
fn more_than_was_held_is_told_and_charged_over_the_limit() {
    let limiter = limiter(&[limit("tokens", 100.0, 1000)]);
    let a = key(&limiter, "a");
    let held = hold(&limiter, a, 60, 0).unwrap();
    assert_eq!(limiter.settle(held, 250, at(50)), Some(190));
    assert_eq!(hold(&limiter, a, 1, 60), Err(refused(0, 1040)));
    assert_eq!(hold(&limiter, a, 101, 60), Err(refused(0, None)));
    assert_eq!(remaining(&limiter, a, 1100), [100]);
}

#[test]
fn a_hold_ends_once() {
    let limiter = limiter(&[limit("tokens", 100.0, 1000)]);
    let (a, b) = (key(&limiter, "a"), key(&limiter, "b"));
    let first = hold(&limiter, a, 60, 0).unwrap();
    assert_eq!(limiter.settle(first, 10, at(0)), Some(0));
    let second = hold(&limiter, b, 50, 0).unwrap();
    assert_eq!(second.index, first.index, "its place is used again");
    assert_eq!(limiter.settle(first, 99, at(0)), None);
    assert!(!limiter.cancel(first, at(0)));
    let unknown = Hold {
        index: 7,
        sequence: 1,
    };
    assert_eq!(limiter.settle(unknown, 99, at(0)), None);
    assert_eq!([a, b].map(|key| remaining(&limiter, key, 0)), [[90], [50]]);
    assert!(limiter.cancel(second, at(0)));
    assert!(!limiter.cancel(second, at(0)));
    assert_eq!(remaining(&limiter, b, 0), [100]);
}

#[test]
fn a_reset_leaves_what_is_held_and_a_blocked_key_holds_nothing_more() {
    let limiter = limiter(&[limit("tokens", 100.0, 1000)]);
    let a = key(&limiter, "a");
    let held = hold(&limiter, a, 60, 0).unwrap();
    limiter.limit(a, 30, None, at(0), |_| ());
    assert_eq!(remaining(&limiter, a, 0), [10]);
    limiter.reset(a);
    assert_eq!(remaining(&limiter, a, 0), [40]);
    limiter.block(a, Duration::from_secs(5), at(0));
    let blocked = Verdict::Block {
        index: None,
        retry_after: Some(Duration::from_secs(5)),
    };
    assert_eq!(hold(&limiter, a, 1, 0), Err(blocked));
    assert_eq!(limiter.settle(held, 20, at(0)), Some(0));
    assert_eq!(remaining(&limiter, a, 0), [80]);
}

#[test]
fn a_count_of_its_own_bounds_what_a_request_may_hold() {
    let limiter = limiter(&[limit("tokens", 100.0, 1000)]);
    let a = key(&limiter, "a");
    let hold = |estimate, of: f64| limiter.hold(a, estimate, Some(count(of)), at(0), |_| ());
    let held = hold(150, 200.0).unwrap();
    assert_eq!(hold(51, 200.0), Err(refused(0, 1000)));
    assert_eq!(limiter.settle(held, 150, at(0)), Some(0));
    assert_eq!(remaining(&limiter, a, 0), [0]);
}

/// Keys of a table that is too small for them, which hold, are charged and are refunded.
#[test]
fn no_interval_has_more_than_a_limit_of_what_ran_in_it_whatever_else_is_done() {
    let mut random = Rng::with_seed(4);
    for max_keys in [8, 1000] {
        let limits = [limit("second", 12.0, 1000), limit("five", 30.0, 5000)];
        let limiter = Limiter::new(limits.to_vec(), max_keys, SEED).unwrap();
        // From when to when, and at what cost.
        let mut runs: BTreeMap<u64, Vec<(u64, u64, u64)>> = BTreeMap::new();
        let mut open: Vec<(u64, u64, u64, Hold)> = Vec::new();
        let mut now = 10_000;
        for _ in 0..40_000 {
            now += [0, 3, 100, 900][random.usize(..4)] * u64::from(random.u8(..8) == 0);
            let (name, cost) = (random.u64(0..40), random.u64(1..5));
            let key = limiter.key([Some(&name.to_le_bytes()[..])]);
            match random.u8(..10) {
                0 => {
                    if limiter.limit(key, cost, None, at(now), |_| ()) == Verdict::Pass {
                        runs.entry(name).or_default().push((now, now, cost));
                    }
                }
                1..5 => {
                    if let Ok(held) = limiter.hold(key, cost, None, at(now), |_| ()) {
                        open.push((name, now, cost, held));
                    }
                }
                5 => limiter.refund(key, 0, at(now), at(now)),
                _ if open.is_empty() => {}
                _ => {
                    let (name, from, estimate, held) = open.swap_remove(random.usize(..open.len()));
                    let cost = random.u64(0..=estimate);
                    assert_eq!(limiter.settle(held, cost, at(now)), Some(0));
                    runs.entry(name).or_default().push((from, now, cost));
                }
            }
        }
        assert_eq!(limiter.fill().1 > 100, max_keys == 8);
        for (name, runs) in runs {
            for (limit, interval) in [(12, 1000), (30, 5000)] {
                for (end, ..) in &runs {
                    let ran = |run: &&(u64, u64, u64)| run.0 <= *end && run.1 + interval > *end;
                    let sum: u64 = runs.iter().filter(ran).map(|run| run.2).sum();
                    assert!(sum <= limit, "key {name}, until {end} ms: {sum} of {limit}");
                }
            }
        }
    }
}
