//! Turns of many keys, against a log of turns per key, Sentinel's answers and floods.

use super::{SEED, numbered, qps, terms};
use crate::support::at;
use crate::vectors::each_trace;
use fastrand::Rng;
use leapgate::Timestamp;
use leapgate::backend::{
    Key, KeyHandle, KeyStatus, KeyVerdict, KeyedGeometry, KeyedStates, KeyedTerms, KeyedWindows,
    MAX_LABELS, Reserved,
};
use leapgate::rule::{Counting, Grade};
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

const SECOND: u64 = 1_000_000_000;

fn paced(interval_ms: u64, max_keys: usize) -> KeyedGeometry {
    KeyedGeometry::new(qps(interval_ms, 1, Counting::Strict), max_keys).paced()
}

fn throttle(interval_ms: u64, max_keys: usize) -> KeyedWindows {
    KeyedWindows::new(paced(interval_ms, max_keys), SEED)
}

fn queueing(limit: f64, max_queueing_ms: u64) -> KeyedTerms {
    KeyedTerms {
        max_queueing_ns: max_queueing_ms * 1_000_000,
        ..terms(limit)
    }
}

/// How long a request waits, in milliseconds; `None` if it is refused.
fn turn(table: &KeyedWindows, key: Key, terms: KeyedTerms, cost: u64, now: u64) -> Option<u64> {
    let reserved = table.reserve(&mut KeyHandle::of(key), &terms, cost, at(now))?;
    assert!(!table.admit(reserved, cost), "no call in flight");
    assert_eq!(reserved.wait % 1_000_000, 0);
    Some(reserved.wait / 1_000_000)
}

/// The turns of one key, in order: when each begins and when the next may.
#[derive(Clone, Default)]
struct Log(VecDeque<(u64, u64)>);

impl Log {
    /// How long a request at `now` waits, and its turn.
    fn asks(
        &mut self,
        spacing: u64,
        max_queueing: u64,
        furthest: u64,
        now: u64,
    ) -> Option<(u64, u64)> {
        let (_, free) = self.0.back().copied().unwrap_or_default();
        if free > now + furthest + SECOND {
            // The clock has stepped back.
            self.0.clear();
            self.0.push_back((now, now + furthest));
        }
        let (_, free) = self.0.back().copied().unwrap_or_default();
        let begin = free.max(now);
        (begin - now <= max_queueing).then_some((begin, begin + spacing))
    }
}

struct Model {
    interval: u64,
    longest_wait: u64,
}

impl Model {
    /// The answer of the naive log.
    fn asks(&self, log: &mut Log, terms: &KeyedTerms, cost: u64, now: u64) -> Option<(u64, u64)> {
        let limit = terms.count.get();
        if limit == 0.0 || cost as f64 > limit.max(1.0) {
            return None;
        }
        let apart = |cost: f64| (self.interval as f64 * cost / limit).ceil() as u64;
        let furthest = self.longest_wait.max(terms.max_queueing_ns) + apart(limit.max(1.0));
        log.asks(apart(cost as f64), terms.max_queueing_ns, furthest, now)
    }
}

#[test]
fn each_key_has_turns_of_its_own() {
    let table = throttle(1000, 8);
    let (one, other) = (numbered(&table, 1), numbered(&table, 2));
    let terms = queueing(5.0, 400);
    let waits = |key, now| {
        let mut waits = Vec::new();
        while let Some(wait) = turn(&table, key, terms, 1, now) {
            waits.push(wait);
        }
        waits
    };
    assert_eq!(waits(one, 0), [0, 200, 400]);
    assert_eq!(waits(other, 100), [0, 200, 400]);
    assert_eq!(
        waits(one, 200),
        [400],
        "as long as the queue exactly it may wait"
    );
    let asked = |now| table.ask(&mut KeyHandle::of(one), &terms, 1, at(now));
    let blocked = |millis| KeyVerdict::Block {
        retry_after: Some(Duration::from_millis(millis)),
    };
    assert_eq!(asked(200), blocked(200));
    assert_eq!(asked(399), blocked(1));
    assert_eq!(asked(400), KeyVerdict::Wait(400_000_000));
    let status = |remaining, millis| KeyStatus {
        remaining,
        reset: Duration::from_millis(millis),
    };
    assert_eq!(table.status(one, &terms, at(500)), status(0, 300));
    assert_eq!(table.status(one, &terms, at(800)), status(1, 0));
    assert_eq!(
        table.status(numbered(&table, 3), &terms, at(0)),
        status(1, 0)
    );
}

#[test]
fn a_throttle_takes_fractions_and_divides_by_nothing() {
    let table = throttle(1000, 8);
    let key = |number| numbered(&table, number);
    let waits = |number, terms: KeyedTerms, cost| {
        let turn = table.reserve(&mut KeyHandle::of(key(number)), &terms, cost, at(0));
        turn.map(|turn| turn.wait)
    };
    assert_eq!(waits(1, queueing(3.0, 1000), 1), Some(0));
    assert_eq!(
        waits(1, queueing(3.0, 1000), 1),
        Some(333_333_334),
        "rounded up"
    );
    assert_eq!(waits(2, queueing(0.25, 4000), 1), Some(0));
    assert_eq!(
        waits(2, queueing(0.25, 4000), 1),
        Some(4 * SECOND),
        "one in four seconds"
    );
    assert_eq!(waits(2, queueing(0.25, 4000), 1), None);
    // A batch delays later requests; a request that costs more than the count never passes, and one without cost needs no turn.
    assert_eq!(waits(3, queueing(4.0, 1000), 4), Some(0));
    assert_eq!(waits(3, queueing(4.0, 1000), 1), Some(SECOND));
    assert_eq!(waits(3, queueing(4.0, 1000), 0), Some(0));
    let never = KeyVerdict::Block { retry_after: None };
    assert_eq!(
        table.ask(
            &mut KeyHandle::of(key(3)),
            &queueing(4.0, 1000),
            5,
            at(10_000)
        ),
        never
    );
    assert_eq!(
        table.ask(&mut KeyHandle::of(key(4)), &queueing(0.0, 1000), 1, at(0)),
        never
    );
    assert_eq!(
        table.ask(&mut KeyHandle::of(key(4)), &queueing(0.0, 1000), 0, at(0)),
        KeyVerdict::Pass
    );
    for (number, limit) in [(5, 1e-300), (6, 9_007_199_254_740_992.0)] {
        assert_eq!(waits(number, queueing(limit, 0), 1), Some(0));
        assert!(
            table.ask(
                &mut KeyHandle::of(key(number)),
                &queueing(limit, 0),
                1,
                at(0)
            ) != KeyVerdict::Pass
        );
    }
}

#[test]
fn a_turn_that_is_given_back_is_free_unless_a_later_one_was_taken() {
    for geometry in [paced(1000, 8), paced(1000, 8).sentinel()] {
        let table = KeyedWindows::new(geometry, SEED);
        let (key, terms) = (numbered(&table, 1), queueing(10.0, 1000));
        let take = |now| {
            table
                .reserve(&mut KeyHandle::of(key), &terms, 1, at(now))
                .unwrap()
        };
        let waits = |reserved: Reserved| reserved.wait / 1_000_000;
        let first = take(1000);
        table.release(first, 1, at(1000));
        let first = take(1000);
        assert_eq!(waits(first), 0);
        let second = take(1000);
        table.admit(second, 1);
        table.release(second, 1, at(1050));
        let second = take(1050);
        assert_eq!(waits(second), 50, "where it was");
        let third = take(1050);
        table.release(second, 1, at(1060));
        assert_eq!(waits(take(1060)), 240, "behind the third: {third:?}");
    }
}

#[test]
fn a_request_that_another_rule_makes_wait_has_its_turn_when_it_passes() {
    let table = throttle(1000, 8);
    let (key, terms) = (numbered(&table, 1), queueing(10.0, 300));
    let later = table
        .reserve_later(&mut KeyHandle::of(key), &terms, 1, 5 * SECOND, at(0))
        .unwrap();
    assert_eq!(later.wait, 5 * SECOND);
    let retry_after = Some(Duration::from_millis(4800));
    assert_eq!(
        table.ask(&mut KeyHandle::of(key), &terms, 1, at(0)),
        KeyVerdict::Block { retry_after }
    );
    assert_eq!(
        table.ask(&mut KeyHandle::of(key), &terms, 1, at(4800)),
        KeyVerdict::Wait(300_000_000)
    );
    // Its own turn, where that is later.
    assert_eq!(
        table
            .reserve_later(&mut KeyHandle::of(key), &terms, 1, 1, at(4900))
            .map(|turn| turn.wait),
        Some(200_000_000)
    );
}

#[test]
fn turns_are_as_the_logs_have_them_while_the_clock_steps_back_and_forth() {
    let mut rng = Rng::with_seed(5);
    let steps = if cfg!(debug_assertions) {
        20_000
    } else {
        200_000
    };
    for (interval_ms, limits) in [
        (1000, [10.0, 3.0, 0.4]),
        (60_000, [7.5, 600.0, 1.0]),
        (1, [1.0, 3.0, 0.001]),
    ] {
        let table = throttle(interval_ms, 64);
        let mut model = Model {
            interval: interval_ms * 1_000_000,
            longest_wait: 0,
        };
        let mut logs: BTreeMap<u64, Log> = BTreeMap::new();
        let mut now = 1_000_000 * SECOND;
        // Each key comes once at first, so that no later key takes the pacer of another.
        for number in 0..5 {
            let first = queueing(1.0, 0);
            let reserved = table.reserve(
                &mut KeyHandle::of(numbered(&table, number)),
                &first,
                1,
                Timestamp::from_nanos(now),
            );
            table.admit(reserved.unwrap(), 1);
            logs.entry(number)
                .or_default()
                .0
                .push_back((now, now + model.interval));
        }
        for step in 0..steps {
            let apart = model.interval / 5;
            now = match rng.u32(..60) {
                0 => now + rng.u64(..apart * 50),
                1 => now.saturating_sub(rng.u64(..apart * 5)),
                2 => now.saturating_sub(rng.u64(..apart * 50 + 5 * SECOND)),
                _ => now + rng.u64(..apart),
            };
            let number = rng.u64(..5);
            let limit = limits[number as usize % 3];
            let terms = queueing(limit, [0, interval_ms, interval_ms * 3][step % 3]);
            let cost = rng.u64(1..4);
            let about = format!("step {step}: {cost} of key {number} at {now}, {terms:?}");
            let log = logs.entry(number).or_default();
            let expected = model.asks(log, &terms, cost, now);
            let (key, instant) = (numbered(&table, number), Timestamp::from_nanos(now));
            let wait = expected.map(|(begin, _)| begin - now);
            let mut handle = KeyHandle::of(key);
            match table.ask(&mut handle, &terms, cost, instant) {
                KeyVerdict::Pass => assert_eq!(wait, Some(0), "{about}"),
                KeyVerdict::Wait(nanos) => assert_eq!(wait, Some(nanos), "{about}"),
                KeyVerdict::Block { retry_after: None } => {
                    assert!(cost as f64 > limit.max(1.0), "{about}");
                }
                KeyVerdict::Block {
                    retry_after: Some(after),
                } => {
                    assert_eq!(wait, None, "{about}");
                    let then = now + after.as_nanos() as u64;
                    let mut later = log.clone();
                    let early = model.asks(&mut later, &terms, cost, then - 1);
                    assert!(early.is_none(), "too late: {about}");
                    let mut later = log.clone();
                    let on_time = model.asks(&mut later, &terms, cost, then);
                    assert!(on_time.is_some(), "too early: {about}");
                }
            }
            let reserved = table.reserve(&mut handle, &terms, cost, instant);
            assert_eq!(reserved.map(|reserved| reserved.wait), wait, "{about}");
            let (Some(reserved), Some((begin, end))) = (reserved, expected) else {
                continue;
            };
            model.longest_wait = model.longest_wait.max(begin - now);
            if rng.u32(..4) == 0 {
                table.release(reserved, cost, instant);
            } else {
                table.admit(reserved, cost);
                log.0.push_back((begin, end));
            }
        }
        assert_eq!(table.shared(), 0);
    }
}

/// Sentinel's answers and ours in traces with a single rule, which paces.
fn replay(component: &str) {
    each_trace(component, |trace, steps| {
        let [rule] = &trace["paramFlowRules"].as_array().unwrap()[..] else {
            return steps.skip();
        };
        let is_alone = trace["gatewayRules"]
            .as_array()
            .is_none_or(|rules| rules.len() == 1);
        if rule["grade"] != 1 || rule["controlBehavior"] != 2 || !is_alone {
            return steps.skip();
        }
        let seconds = rule["durationInSec"].as_u64().unwrap();
        let table = KeyedWindows::new(paced(seconds * 1000, 1000).sentinel(), SEED);
        let mut index = rule["paramIdx"].as_i64().unwrap();
        while let Some(step) = steps.next() {
            let enter = step.arguments;
            let is_other = enter
                .get("resource")
                .is_some_and(|resource| *resource != rule["resource"]);
            if step.operation != "enter" || is_other {
                continue;
            }
            let args = enter["args"].as_array().unwrap();
            if index < 0 {
                // Fixed for good by the first call; if that has no such argument, the argument is always missing.
                let from_end = index + args.len() as i64;
                index = if from_end < 0 { -index } else { from_end };
            }
            let value = usize::try_from(index)
                .ok()
                .and_then(|index| args.get(index));
            let Some(value) = value.filter(|value| !value.is_null()) else {
                steps.check(&step, Some("pass".into()), &"no value, no limit");
                continue;
            };
            let text = match value {
                Value::String(text) => text.clone(),
                Value::Object(typed) => typed.values().next().unwrap().to_string(),
                other => other.to_string(),
            };
            let items = rule["paramFlowItemList"].as_array().unwrap();
            let item = items.iter().find(|item| item["object"] == text.as_str());
            let limit = item.unwrap_or(rule)["count"].as_f64().unwrap();
            let terms = queueing(limit, rule["maxQueueingTimeMs"].as_u64().unwrap());
            let key = table.key([Some(text.as_bytes())]);
            let acquire = enter["acquire"].as_u64().unwrap();
            let is = match turn(&table, key, terms, acquire, step.now) {
                None => serde_json::json!({"block": "paramFlow", "rule": 0}),
                Some(0) => "pass".into(),
                Some(wait) => serde_json::json!({"wait": wait}),
            };
            steps.check(&step, Some(is), &table);
        }
    });
}

#[test]
fn hot_parameters_are_paced_as_sentinel_paces_them() {
    replay("param_flow");
    replay("gateway");
}

/// Row by row what the recorded traces and Sentinel's tests have of 5 a second.
#[test]
fn sentinel_paces_hot_parameters_with_a_queue_that_is_never_full() {
    let compat = || KeyedWindows::new(paced(1000, 8).sentinel(), SEED);
    let passed = |queue, times: &[u64]| {
        let (table, terms) = (compat(), queueing(5.0, queue));
        let key = numbered(&table, 1);
        let turns = times.iter().map(|now| turn(&table, key, terms, 1, *now));
        turns.collect::<Vec<_>>()
    };
    assert_eq!(
        passed(0, &[0, 199, 200, 350, 400]),
        [Some(0), None, Some(0), None, Some(0)]
    );
    assert_eq!(passed(400, &[0; 5]), [Some(0), Some(200), None, None, None]);
    assert_eq!(
        passed(401, &[0; 5]),
        [Some(0), Some(200), Some(400), None, None]
    );
}

#[test]
fn newcomers_take_no_line_that_is_still_too_soon_for_its_key() {
    for geometry in [paced(1000, 2), paced(1000, 2).sentinel()] {
        let table = KeyedWindows::new(geometry, SEED);
        let terms = queueing(5.0, 0);
        let turn = |number, now| turn(&table, numbered(&table, number), terms, 1, now);
        assert_eq!([1, 2].map(|number| turn(number, 1000)), [Some(0); 2]);
        for number in 3..100 {
            turn(number, 1150);
        }
        assert_eq!([1, 2].map(|number| turn(number, 1199)), [None; 2]);
        assert_eq!([1, 2].map(|number| turn(number, 1200)), [Some(0); 2]);
    }
}

#[test]
fn differs_from_sentinel_a_hot_value_may_wait_as_long_as_the_queue() {
    let waits = |geometry| {
        let table = KeyedWindows::new(geometry, SEED);
        let key = numbered(&table, 1);
        [0; 3].map(|now| turn(&table, key, queueing(5.0, 200), 1, now))
    };
    assert_eq!(waits(paced(1000, 8)), [Some(0), Some(200), None]);
    assert_eq!(waits(paced(1000, 8).sentinel()), [Some(0), None, None]);
}

#[test]
fn differs_from_sentinel_hot_values_are_paced_to_the_nanosecond() {
    let waits = |geometry, limit| {
        let table = KeyedWindows::new(geometry, SEED);
        let key = numbered(&table, 1);
        [(); 2].map(|()| {
            let reserved = table.reserve(&mut KeyHandle::of(key), &queueing(limit, 1000), 1, at(0));
            reserved.map(|reserved| reserved.wait)
        })
    };
    let (here, there) = (paced(1000, 8), paced(1000, 8).sentinel());
    assert_eq!(waits(here, 3.0), [Some(0), Some(333_333_334)]);
    assert_eq!(waits(there, 3.0), [Some(0), Some(333_000_000)]);
    // 3000 a second: there, nothing is limited.
    assert_eq!(waits(here, 3000.0), [Some(0), Some(333_334)]);
    assert_eq!(waits(there, 3000.0), [Some(0), Some(0)]);
    // Half a pass a second: there, none at all.
    assert_eq!(waits(here, 0.5), [Some(0), None]);
    assert_eq!(waits(there, 0.5), [None, None]);
}

#[test]
fn a_flood_of_keys_gives_no_turn_back() {
    let table = throttle(1000, 1000);
    let (limited, terms) = (numbered(&table, u64::MAX), queueing(1.0, 0));
    let mut latest = None;
    for number in 0..100_000_u64 {
        let now = number / 10;
        turn(&table, numbered(&table, number), queueing(0.5, 0), 1, now);
        if turn(&table, limited, terms, 1, now).is_some() {
            assert!(latest.is_none_or(|latest| now - latest >= 1000), "{now}");
            latest = Some(now);
        }
        assert!(table.len() <= 1000);
    }
    assert!(table.shared() > 0 && latest.is_some());
    assert!(table.bytes() <= table.geometry().max_bytes());
}

#[test]
fn pacers_are_reused_when_no_request_waits_for_them() {
    let table = throttle(1000, 100);
    let terms = queueing(10.0, 1000);
    for number in 0..100 {
        assert_eq!(
            turn(&table, numbered(&table, number), terms, 1, 5000),
            Some(0)
        );
    }
    let newcomer = |number, now| {
        let reserved = table.reserve(
            &mut KeyHandle::of(numbered(&table, number)),
            &terms,
            1,
            at(now),
        );
        reserved.unwrap().handle.is_shared()
    };
    assert!(newcomer(1000, 5099), "each has passed less than a turn ago");
    for number in 2000..2100 {
        assert!(!newcomer(number, 5200), "{number}");
    }
    // The clock steps back by an hour: the pacers can be reused as soon as their longest wait is over.
    let table = throttle(1000, 100);
    for number in 0..100 {
        turn(&table, numbered(&table, number), terms, 1, 3_600_000);
    }
    for number in 100..200 {
        turn(&table, numbered(&table, number), terms, 1, 1000);
    }
    for number in 200..300 {
        turn(&table, numbered(&table, number), terms, 1, 1200);
    }
    let own = (200..300).filter(|number| table.find(numbered(&table, *number)).is_some());
    assert_eq!(own.count(), 100);
}

#[test]
fn the_hottest_keys_of_a_throttle_have_the_turns_that_reach_furthest() {
    let table = throttle(1000, 1000);
    let terms = queueing(10.0, 10_000);
    let name = |number: u64| format!("client-{number}");
    for number in 0..200 {
        for _ in 0..=number % 50 {
            let key = table.key([Some(name(number).as_bytes())]);
            turn(&table, key, terms, 1, 0);
        }
    }
    let top = table.top(4, at(100));
    let labels: Vec<_> = top
        .iter()
        .map(|hot| hot.label.as_deref().unwrap())
        .collect();
    for hot in ["client-49", "client-99", "client-149", "client-199"] {
        assert!(labels.contains(&hot), "{labels:?}");
    }
    assert!(top.iter().all(|hot| hot.amount == 4_900_000_000));
    assert_eq!(
        table.top(1000, at(100)).len(),
        196,
        "the others' turns are over"
    );
    let known = table.top(1000, at(100));
    assert!(known.iter().filter(|hot| hot.label.is_some()).count() <= MAX_LABELS);
}

#[test]
fn calls_in_flight_cannot_be_paced() {
    let table = KeyedWindows::new(KeyedGeometry::new(Grade::Concurrency, 8).paced(), SEED);
    let key = numbered(&table, 1);
    let reserved = table
        .reserve(&mut KeyHandle::of(key), &queueing(1.0, 1000), 1, at(0))
        .unwrap();
    assert_eq!(reserved, Reserved::at_once(reserved.handle));
    assert!(table.admit(reserved, 1));
}

/// Sentinel's formula for keys that are never forgotten: when the latest request of each was released.
#[derive(Default)]
struct Unforgetting(BTreeMap<u64, u64>);

impl Unforgetting {
    /// How long a request at `now` waits, in milliseconds; `None` if it is refused.
    fn asks(&self, key: u64, limit: u64, queue: u64, cost: u64, now: u64) -> Option<u64> {
        let spacing = (1000.0 * cost as f64 / limit as f64).round() as u64;
        let release = self
            .0
            .get(&key)
            .map_or(now, |latest| now.max(latest + spacing));
        let wait = release - now;
        (wait < queue.max(1)).then_some(wait)
    }

    /// A turn is given back: the request to be released at `release`, unless a later one was taken.
    fn give_back(&mut self, key: u64, before: Option<u64>, release: u64) {
        if self.0.get(&key) == Some(&release) {
            match before {
                Some(before) => self.0.insert(key, before),
                None => self.0.remove(&key),
            };
        }
    }
}

/// How many requests were held back by their key's latest one, by what had become of that one's turn.
type HeldBack = BTreeMap<&'static str, u32>;

/// A crowd of keys with counts of their own, whose requests cost up to `most`, in a table of `max_keys`, in turn slowly and in
/// floods. Some turns are given back, at once or later. Calls `each` for each request with the answer, the answer for keys that
/// are never forgotten, and whether the key has a pacer.
fn crowd(
    max_keys: usize,
    most: u64,
    mut each: impl FnMut(Option<u64>, Option<u64>, bool, String),
) -> (KeyedWindows, HeldBack) {
    let mut rng = Rng::with_seed(11);
    let (mut waiting, mut held_back) = (Vec::new(), HeldBack::new());
    let mut had_a_line = BTreeMap::new();
    let table = KeyedWindows::new(paced(1000, max_keys).sentinel(), SEED);
    let mut model = Unforgetting::default();
    let mut now = 1_000_000;
    let steps = if cfg!(debug_assertions) {
        30_000
    } else {
        300_000
    };
    for step in 0..steps {
        now += [0, 0, 1, 30, 300, 3000][rng.usize(..6)] / [1, 100][step / 3000 % 2];
        // Some keys come often, most are new.
        let among = [4, 40, 4000][rng.usize(..3)];
        let number = rng.u64(..among);
        let dear = rng.u64(1..=most);
        let cost = [rng.u64(1..=4), dear][rng.usize(..2)];
        let (limit, queue) = ([4, 1, 25][number as usize % 3], [0, 1500][step % 2]);
        let expected = model.asks(number, limit, queue, cost, now);
        let terms = queueing(limit as f64, queue);
        let key = numbered(&table, number);
        let is_kept = table.find(key).is_some();
        let taken = table.reserve(&mut KeyHandle::of(key), &terms, cost, at(now));
        let wait = taken.map(|taken| taken.wait / 1_000_000);
        let about = format!("step {step}: {cost} of key {number} at {now}, {limit} a second");
        let has_line = table.find(key).is_some();
        each(wait, expected, has_line, about);
        if expected != Some(0) {
            let by = match had_a_line.get(&number) {
                Some(true) if is_kept => "in its line",
                Some(true) if has_line => "forgotten, in a new line",
                Some(true) => "forgotten, sharing",
                _ if has_line => "shared, in a new line",
                _ => "shared",
            };
            *held_back.entry(by).or_default() += 1;
        }
        if let (Some(taken), Some(wait)) = (taken, wait) {
            let fate = rng.u32(..8);
            if fate == 0 {
                table.release(taken, cost, at(now));
                continue;
            }
            table.admit(taken, cost);
            had_a_line.insert(number, has_line);
            let before = model.0.insert(number, now + wait);
            if fate == 1 {
                waiting.push((number, taken, before, now + wait));
            }
        }
        if !waiting.is_empty() && rng.bool() {
            let (number, taken, before, release) = waiting.swap_remove(rng.usize(..waiting.len()));
            table.release(taken, 1, at(now));
            model.give_back(number, before, release);
        }
    }
    assert!(table.reclaimed() > 1000, "{}", table.reclaimed());
    (table, held_back)
}

#[test]
fn no_key_gets_a_turn_earlier_than_if_none_were_ever_forgotten() {
    let mut held_back = HeldBack::new();
    for (max_keys, most) in [
        (4, 10),
        (16, 40),
        (16, 100_000),
        (200, 250),
        (1000, 40),
        (1000, 1_000_000),
    ] {
        let mut taken = 0;
        let (_, by) = crowd(max_keys, most, |wait, expected, _, about| {
            taken += u32::from(wait.is_some());
            if let Some(wait) = wait {
                let earliest = expected.unwrap_or(u64::MAX);
                assert!(wait >= earliest, "{about}: {wait} instead of {expected:?}");
            }
        });
        assert!(taken > 3000, "{max_keys}, {most}: {taken}");
        for (what, requests) in by {
            *held_back.entry(what).or_default() += requests;
        }
    }
    assert_eq!(held_back.len(), 5, "{held_back:?}");
    assert!(
        held_back.values().all(|requests| *requests > 100),
        "{held_back:?}"
    );
}

#[test]
fn turns_in_a_table_with_room_are_those_of_keys_that_are_never_forgotten() {
    let (table, _) = crowd(1 << 14, 64, |wait, expected, is_own, about| {
        assert_eq!(wait, expected, "{about}");
        assert!(is_own, "{about}");
    });
    assert!(table.len() < 2000, "{} lines are kept", table.len());
}

/// A batch of 10 at 4 a second has to wait for 2.5 s, and passes as often among new keys as alone.
#[test]
fn a_batch_of_more_than_the_count_passes_as_often_among_strangers_as_alone() {
    let passes = |max_keys, strangers_ms: u64| {
        let table = KeyedWindows::new(paced(1000, max_keys).sentinel(), SEED);
        let (key, terms) = (numbered(&table, 1), queueing(4.0, 0));
        let mut passed = Vec::new();
        for now in (1_000_000..1_100_000).step_by(50) {
            if now % strangers_ms == 0 {
                turn(&table, numbered(&table, now), terms, 1, now);
            }
            if turn(&table, key, terms, 10, now).is_some() {
                passed.push(now);
            }
        }
        passed
    };
    let alone = passes(8, u64::MAX);
    assert_eq!(alone.len(), 40);
    for (max_keys, strangers_ms) in [(8, 1000), (1000, 1000), (1000, 100)] {
        assert_eq!(passes(max_keys, strangers_ms), alone, "{max_keys} keys");
    }
    let crowded = passes(2, 100).len();
    assert!(
        (1..=40).contains(&crowded),
        "in a full table: {crowded} times"
    );
}

#[test]
fn a_new_key_with_an_expensive_batch_waits_at_most_once_for_forgotten_pacers() {
    let table = KeyedWindows::new(paced(1000, 8).sentinel(), SEED);
    let terms = queueing(4.0, 0);
    let mut passed = Vec::new();
    for now in (1_000_000..1_060_000).step_by(100) {
        turn(&table, numbered(&table, now), terms, 1, now - now % 300);
        // Each expensive batch comes from another key.
        if turn(&table, numbered(&table, now / 5000), terms, 10, now).is_some() {
            passed.push(now);
        }
    }
    assert_eq!(passed[..2], [1_000_000, 1_002_500]);
    assert!(passed.len() >= 23, "{passed:?}");
    // However much one request costs, other pacers are reused after 64 intervals.
    turn(&table, numbered(&table, 1), terms, u64::MAX, 2_000_000);
    for number in 0..100 {
        let stranger = numbered(&table, 5000 + number);
        turn(&table, stranger, terms, 1, 2_000_000 + number * 10_000);
    }
    let newcomer = numbered(&table, 9999);
    assert_eq!(turn(&table, newcomer, terms, 1, 3_100_000), Some(0));
    assert!(table.find(newcomer).is_some(), "it has a line of its own");
}
