//! The sketch that keys share when the table is full, against a naive sketch, a log of events per key, and floods.

use super::{COUNTINGS, SEED, admits, count, numbered, qps, retry, table, terms};
use crate::support::at;
use fastrand::Rng;
use leapgate::backend::{
    Key, KeyHandle, KeyStatus, KeyVerdict, KeyedGeometry, KeyedStates, KeyedTerms, KeyedWindows,
    Reserved,
};
use leapgate::rule::{Counting, Grade, RuleGeometry, RuleId};
use leapgate::{Limit, Limiter, Verdict};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// How many of each thousand new clients get their first request through in a table of `max_keys` that is full, when `further`
/// keys have come over `spread` milliseconds before.
fn newcomers_in(table: &KeyedWindows, further: u64, spread: u64, limit: f64) -> u64 {
    let max_keys = table.max_keys() as u64;
    let start = 600_000;
    // The keys of the table come again and again, or their windows would be reused.
    for number in 0..max_keys {
        table.admit_now(numbered(table, number), &terms(1e6), 1, at(start + spread));
    }
    for number in 0..further {
        let key = numbered(table, 1_000_000_000 + number);
        table.admit_now(key, &terms(limit), 1, at(start + number * spread / further));
    }
    let passes = |number: &u64| {
        let key = numbered(table, 2_000_000_000 + number);
        assert!(table.find(key).is_none(), "the table is full");
        table.ask(
            &mut KeyHandle::of(key),
            &terms(limit),
            1,
            at(start + spread),
        ) == KeyVerdict::Pass
    };
    (0..1000).filter(passes).count() as u64
}

#[test]
fn of_100_new_clients_99_pass_after_a_flood_of_as_many_keys_as_the_table_has() {
    println!(
        "of 1000 new clients so many pass; flood of so many times max_keys, spread in ms, limit"
    );
    for max_keys in [100, 1000, 20_000] {
        for seed in 0..3 {
            for spread in [0, 2999, 59_999] {
                let geometry = KeyedGeometry::new(qps(60_000, 20, Counting::Strict), max_keys);
                let table = KeyedWindows::new(geometry, [seed, 99]);
                let passed = newcomers_in(&table, max_keys as u64, spread, 5.0);
                println!("{passed}: 1 x {max_keys}, {spread}, 5");
                assert!(
                    passed >= 990,
                    "{passed} of 1000, {max_keys} keys, {spread} ms"
                );
            }
        }
    }
}

#[test]
fn a_larger_flood_shuts_out_in_proportion() {
    let passed = |times: u64, limit| {
        let table = table(qps(60_000, 20, Counting::Strict), 10_000);
        newcomers_in(&table, times * 10_000, 59_999, limit)
    };
    println!("of 1000 new clients so many pass; flood of so many times max_keys, limit");
    for (times, limit, least) in [
        (1, 1.0, 150),
        (2, 5.0, 900),
        (3, 5.0, 600),
        (4, 5.0, 200),
        (10, 100.0, 1000),
        (20, 100.0, 1000),
    ] {
        let passed = passed(times, limit);
        println!("{passed}: {times} x, {limit}");
        assert!(
            passed >= least,
            "{passed} of 1000 at {times} times, {limit}"
        );
    }
}

#[test]
fn new_clients_pass_at_once_when_the_turns_of_a_flood_are_over() {
    let paced = KeyedGeometry::new(qps(1000, 20, Counting::Strict), 1000).paced();
    for geometry in [paced, paced.sentinel()] {
        let table = KeyedWindows::new(geometry, SEED);
        let take = |number, limit, cost, now| {
            let key = numbered(&table, number);
            table.admit_now(key, &terms(limit), cost, at(now))
        };
        // Pacers of expensive requests, which are forgotten, and of 1000 keys that fill the table.
        for number in 0..3000 {
            take(number, 10.0, 10, 100_000 + number * 100);
        }
        for number in 3000..4000 {
            take(number, 1.0, 1, 1_000_000);
        }
        for number in 4000..5000 {
            take(number, 5.0, 1, 1_000_100);
        }
        let passed = |now| {
            let passes = |number: &u64| {
                let key = numbered(&table, 5000 + number);
                assert!(table.find(key).is_none());
                table.ask(&mut KeyHandle::of(key), &terms(5.0), 1, at(now)) == KeyVerdict::Pass
            };
            (0..1000).filter(passes).count()
        };
        let at_once = passed(1_000_100);
        assert!((1..100).contains(&at_once), "{at_once} of 1000");
        assert_eq!(passed(1_000_300), 1000);
    }
}

// === Against naive ones ===

/// A table of four keys that count without end, so that all others share.
struct Full {
    table: KeyedWindows,
    grade: Grade,
}

impl Full {
    fn new(grade: Grade) -> Full {
        let table = table(grade, 4);
        Full { table, grade }
    }

    /// Has the four count at `now`, in milliseconds; a key that shares.
    fn at(&self, now: u64, number: u64) -> Key {
        for own in 0..4 {
            let key = numbered(&self.table, u64::MAX - own);
            assert!(
                self.table
                    .admit_now(key, &terms(1e15), 1, at(now))
                    .is_some()
            );
        }
        let key = numbered(&self.table, number);
        assert!(self.table.find(key).is_none());
        key
    }
}

/// A naive sketch: how much was ever charged in each coarse bucket of each cell.
#[derive(Default)]
struct NaiveSketch {
    charged: BTreeMap<(usize, u64, u64), u64>,
    newest: u64,
    ahead: u64,
}

struct Coarse {
    bucket_ms: u64,
    samples: u64,
    /// Buckets in a coarse one, and coarse ones in an interval.
    coarse: u64,
    counted: u64,
}

impl NaiveSketch {
    fn cells(key: Key) -> [u64; 2] {
        let halves = [key.hash() & 0xffff_ffff, key.hash() >> 32];
        halves.map(|half| (half * 256) >> 32)
    }

    fn follow(&mut self, of: &Coarse, now: u64) {
        let number = now / of.bucket_ms + self.ahead;
        if number + of.samples <= self.newest {
            self.ahead += (self.newest - number) / of.coarse * of.coarse;
        }
        self.newest = self.newest.max(now / of.bucket_ms + self.ahead);
    }

    fn used(&self, of: &Coarse, key: Key, now: u64) -> u64 {
        let number = self.newest.max(now / of.bucket_ms + self.ahead) / of.coarse;
        let [one, other] = NaiveSketch::cells(key);
        let in_bucket = |number: u64| {
            let charged = |row, cell| self.charged.get(&(row, cell, number)).copied();
            charged(0, one)
                .unwrap_or(0)
                .min(charged(1, other).unwrap_or(0))
        };
        (number.saturating_sub(of.counted)..=number)
            .map(in_bucket)
            .sum()
    }

    fn charge(&mut self, of: &Coarse, key: Key, cost: u64) {
        let number = self.newest / of.coarse;
        let [one, other] = NaiveSketch::cells(key);
        let places = [(0, one, number), (1, other, number)];
        let charged = places.map(|place| self.charged.get(&place).copied().unwrap_or(0));
        let to = charged[0].min(charged[1]) + cost;
        for (place, charged) in places.into_iter().zip(charged) {
            self.charged.insert(place, charged.max(to));
        }
    }
}

#[test]
fn what_keys_share_is_as_a_naive_sketch_has_it() {
    let mut rng = Rng::with_seed(31);
    for (interval, samples, limit, most) in [
        (1000, 20, 7.5, 3),
        (1000, 5, 4.0, 2),
        (1000, 1, 3.0, 1),
        (60_000, 60, 1_000_000.0, 1_000_000),
        (1200, 6, 900.0, 400),
    ] {
        let counting = COUNTINGS[rng.usize(..3)];
        let full = Full::new(qps(interval, samples, counting));
        let samples = u64::from(samples);
        let coarse = samples.div_ceil(4);
        let of = Coarse {
            bucket_ms: interval / samples,
            samples,
            coarse,
            counted: samples.div_ceil(coarse),
        };
        let (mut naive, mut now, mut refused) = (NaiveSketch::default(), 10 * interval, 0);
        for step in 0..3000 {
            now = match rng.u32(..60) {
                0 => now + rng.u64(..3 * interval),
                1 => now.saturating_sub(rng.u64(..3 * interval)),
                2 => now.saturating_sub(rng.u64(..interval)),
                _ => now + rng.u64(..interval / 200 + 2),
            };
            let (number, cost) = (rng.u64(..200), rng.u64(1..=most));
            let key = full.at(now, number);
            let about = format!(
                "step {step}: {cost} of key {number} at {now}, {:?}",
                full.grade
            );
            naive.follow(&of, now);
            let used = naive.used(&of, key, now);
            let expected = used + cost <= limit as u64;
            let standing = full.table.status(key, &terms(limit), at(now));
            assert_eq!(
                standing.remaining,
                (limit as u64).saturating_sub(used),
                "{about}"
            );
            // The first bucket in which it fits.
            let starts = |bucket: u64| ((now / of.bucket_ms + bucket) * of.bucket_ms).max(now);
            let fits = |bucket: &u64| naive.used(&of, key, starts(*bucket)) + cost <= limit as u64;
            let first = (0..3 * samples).find(fits).map(starts);
            let wait = first.map(|first| Duration::from_millis(first - now));
            assert_eq!(
                retry(&full.table, key, limit, cost, at(now)),
                wait,
                "{about}"
            );
            assert_eq!(
                admits(&full.table, key, limit, cost, at(now)),
                expected,
                "{about}"
            );
            if expected {
                naive.charge(&of, key, cost);
            } else {
                refused += 1;
            }
            for later in [0, 1, interval / 3, interval] {
                let sum = naive.used(&of, key, now + later) as f64;
                assert_eq!(
                    full.table.sum(key, at(now + later)),
                    sum,
                    "{about}, {later} later"
                );
            }
        }
        assert!((30..2970).contains(&refused), "{refused}");
    }
}

/// The admissions of one key.
#[derive(Default)]
struct Admitted(VecDeque<(u64, u64)>);

impl Admitted {
    /// No interval has more than `most`.
    fn push(&mut self, now: u64, cost: u64, interval: u64, most: u64, about: &str) {
        self.0.push_back((now, cost));
        self.0.retain(|(then, _)| then + interval > now);
        let sum: u64 = self.0.iter().map(|(_, cost)| cost).sum();
        assert!(
            sum <= most,
            "{sum} of {most} in an interval: {about}, {:?}",
            self.0
        );
    }
}

/// How many keys come in a phase of a flood, and how many milliseconds lie between them at most.
fn phases(step: u64) -> (u64, u64) {
    match step / 2500 % 4 {
        0 => (30, 20),
        1 => (2000, 1),
        2 => (300, 6),
        _ => (60, 90),
    }
}

#[test]
fn no_key_ever_gets_more_than_its_limit_while_keys_flood_and_leave_and_come_back() {
    for counting in COUNTINGS {
        for (samples, limit) in [(20, 5.0), (10, 2.5), (5, 1.0), (1, 12.0)] {
            let mut rng = Rng::with_seed(41);
            let table = table(qps(1000, samples, counting), 50);
            let most = match counting {
                Counting::Strict => limit as u64,
                Counting::Sentinel | Counting::Weighted => 2 * limit as u64,
            };
            let mut admitted = BTreeMap::<u64, Admitted>::new();
            let mut was_own = BTreeMap::<u64, bool>::new();
            let (mut now, mut into_own, mut out_of_own) = (10_000, 0, 0);
            for step in 0..20_000 {
                let (keys, pause) = phases(step);
                now += rng.u64(..=pause);
                let (number, cost) = (rng.u64(..keys), rng.u64(1..=2));
                let key = numbered(&table, number);
                let terms = terms(limit);
                let taken = if rng.bool() {
                    table.admit_now(key, &terms, cost, at(now))
                } else {
                    let reserved = table.reserve(&mut KeyHandle::of(key), &terms, cost, at(now));
                    let kept = reserved.filter(|reserved| {
                        let gives_back = rng.u32(..8) == 0;
                        if gives_back {
                            table.release(*reserved, cost, at(now));
                        } else {
                            table.admit(*reserved, cost);
                        }
                        !gives_back
                    });
                    if rng.u32(..8) == 0 && kept.is_some() {
                        // A released cost is not charged again, and not given to other keys.
                        table.refund(key, cost, at(now), at(now));
                        None
                    } else {
                        kept
                    }
                };
                if let Some(taken) = taken {
                    let is_own = !taken.handle.is_shared();
                    match was_own.insert(number, is_own) {
                        Some(false) if is_own => into_own += 1,
                        Some(true) if !is_own => out_of_own += 1,
                        _ => {}
                    }
                    let about = format!("{counting:?}, key {number} at {now}, step {step}");
                    let log = admitted.entry(number).or_default();
                    log.push(now, cost, 1000, most, &about);
                }
            }
            assert!(into_own > 20 && out_of_own > 20, "{into_own}, {out_of_own}");
        }
    }
}

#[test]
fn no_key_gets_more_than_any_of_several_limits_and_nothing_while_it_is_blocked() {
    let limits = [(5, 1000, 20), (9, 3000, 10), (2, 200, 4)];
    let limit = |(count_of, interval_ms, samples): (u32, u64, u32)| Limit {
        id: RuleId::new(&interval_ms.to_string()).unwrap(),
        count: count(f64::from(count_of)),
        window: RuleGeometry::new(interval_ms, Some(samples)).unwrap(),
        counting: Counting::Strict,
    };
    let limiter = Limiter::new(limits.map(limit).to_vec(), 40, SEED).unwrap();
    let mut rng = Rng::with_seed(43);
    let mut admitted = BTreeMap::<(u64, u64), Admitted>::new();
    let mut blocked = BTreeMap::<u64, u64>::new();
    let (mut now, mut passed) = (10_000, 0);
    for step in 0..40_000 {
        let (keys, pause) = phases(step);
        now += rng.u64(..=pause);
        let (number, cost) = (rng.u64(..keys), rng.u64(1..=2));
        let key = limiter.key([Some(&number.to_le_bytes()[..])]);
        if rng.u32(..50) == 0 && limiter.block(key, Duration::from_millis(700), at(now)) {
            blocked.insert(number, now + 700);
        }
        let peeked = limiter.peek(key, cost, None, at(now), |_| ());
        let verdict = limiter.limit(key, cost, None, at(now), |_| ());
        assert_eq!(peeked, verdict, "step {step}");
        if verdict == Verdict::Pass {
            passed += 1;
            assert!(
                blocked.get(&number).is_none_or(|end| *end <= now),
                "step {step}"
            );
            for (most, interval, _) in limits {
                let log = admitted.entry((number, interval)).or_default();
                log.push(
                    now,
                    cost,
                    interval,
                    u64::from(most),
                    &format!("key {number}"),
                );
            }
        }
    }
    assert!(passed > 2000, "{passed}");
    let (keys, shared) = limiter.fill();
    assert!(keys == 40 && shared > 500, "{keys}, {shared}");
}

#[test]
fn turns_of_a_key_are_apart_while_keys_flood_and_leave_and_come_back() {
    for max_queueing_ms in [0, 300] {
        let mut rng = Rng::with_seed(47);
        let geometry = KeyedGeometry::new(qps(1000, 20, Counting::Strict), 50).paced();
        let table = KeyedWindows::new(geometry, SEED);
        let mut begun = BTreeMap::<u64, (u64, u64)>::new();
        let (mut now, mut shared, mut own) = (10_000_000_000, 0, 0);
        for step in 0..40_000 {
            let (keys, pause) = phases(step);
            now += rng.u64(..=pause * 1_000_000);
            let number = rng.u64(..keys);
            // Some keys have another count.
            let (limit, spacing) = [(10.0, 100_000_000), (2.0, 500_000_000)][number as usize % 2];
            let terms = KeyedTerms {
                max_queueing_ns: max_queueing_ms * 1_000_000,
                ..terms(limit)
            };
            let (key, instant) = (
                numbered(&table, number),
                leapgate::Timestamp::from_nanos(now),
            );
            let Some(reserved) = table.reserve(&mut KeyHandle::of(key), &terms, 1, instant) else {
                continue;
            };
            if rng.u32(..8) == 0 {
                table.release(reserved, 1, instant);
                continue;
            }
            table.admit(reserved, 1);
            if reserved.handle.is_shared() {
                shared += 1;
            } else {
                own += 1;
            }
            let begins = now + reserved.wait;
            if let Some((latest, spacing)) = begun.insert(number, (begins, spacing)) {
                assert!(begins >= latest + spacing, "step {step}, key {number}");
            }
        }
        assert!(shared > 1000 && own > 1000, "{shared}, {own}");
    }
}

// === Reservations, releases, refunds ===

#[test]
fn what_is_given_back_before_it_is_charged_is_free_and_what_is_charged_stays() {
    let full = Full::new(qps(1000, 20, Counting::Strict));
    let key = full.at(0, 1);
    let reserve = |cost| {
        full.table
            .reserve(&mut KeyHandle::of(key), &terms(3.0), cost, at(0))
    };
    let two = reserve(2).unwrap();
    assert_eq!(full.table.sum(key, at(0)), 2.0);
    assert_eq!(reserve(2), None, "what is reserved counts");
    full.table.release(two, 2, at(0));
    assert_eq!(full.table.sum(key, at(0)), 0.0);
    let three = reserve(3).unwrap();
    full.table.admit(three, 3);
    full.table.release(three, 3, at(0));
    full.table.refund(key, 3, at(0), at(0));
    full.table.reset(key);
    assert_eq!(full.table.sum(key, at(0)), 3.0, "others may have raised it");
    let status = |remaining, millis| KeyStatus {
        remaining,
        reset: Duration::from_millis(millis),
    };
    assert_eq!(full.table.status(key, &terms(3.0), at(0)), status(0, 1250));
    assert_eq!(full.table.status(key, &terms(4.0), at(0)), status(1, 1250));
    assert_eq!(full.table.shared(), 1);
}

#[test]
fn what_is_reserved_of_a_key_goes_with_it_into_a_window_of_its_own() {
    let table = table(qps(1000, 20, Counting::Strict), 1);
    let (first, key) = (numbered(&table, 1), numbered(&table, 2));
    assert!(admits(&table, first, 1.0, 1, at(0)));
    let reserved = table
        .reserve(&mut KeyHandle::of(key), &terms(1.0), 1, at(1000))
        .unwrap();
    assert!(reserved.handle.is_shared());
    // The window of the first key has left.
    assert!(!admits(&table, key, 1.0, 1, at(1100)));
    assert!(table.find(key).is_some());
    table.admit(reserved, 1);
    assert!(!admits(&table, key, 1.0, 1, at(1100)));
}

#[test]
fn as_much_can_be_reserved_of_keys_that_share_as_one_request_can() {
    let full = Full::new(Grade::Concurrency);
    let reserve = |number: u64| {
        let key = numbered(&full.table, number);
        full.table
            .reserve(&mut KeyHandle::of(key), &terms(1.0), 1, at(0))
    };
    (0..4).for_each(|number| {
        assert!(
            full.table
                .admit_now(
                    numbered(&full.table, u64::MAX - number),
                    &terms(1.0),
                    1,
                    at(0)
                )
                .is_some()
        )
    });
    let reserved: Vec<Reserved> = (0..256).map(|number| reserve(number).unwrap()).collect();
    assert_eq!(reserve(300), None);
    full.table.release(reserved[7], 1, at(0));
    let late = reserve(300).unwrap();
    assert!(full.table.admit(late, 1));
    assert_eq!(reserve(300), None, "its call is in flight");
    full.table.leave(late, 1);
    assert!(reserve(300).is_some());
}

// === Bounds ===

#[test]
fn keys_that_share_have_large_counts_and_fractions_exactly() {
    let full = Full::new(qps(1000, 20, Counting::Strict));
    let takes =
        |number, limit, cost, now| admits(&full.table, full.at(now, number), limit, cost, at(now));
    assert!(takes(1, 1e6, 999_999, 0));
    assert!(!takes(1, 1e6, 2, 0));
    assert!(takes(1, 1e6, 1, 300));
    assert!(!takes(1, 1e6, 1, 1249));
    assert!(takes(1, 1e6, 999_999, 1250));
    assert!(!takes(1, 1e6, 1, 1250));
    assert!(takes(1, 1e6, 1, 1500));
    assert!(takes(2, 9_007_199_254_740_992.0, 9_007_199_254_740_991, 0));
    assert!(!takes(2, 9_007_199_254_740_992.0, 2, 0));
    assert!(takes(3, 2.5, 2, 0) && !takes(3, 2.5, 1, 0));
    assert!(!takes(4, 0.5, 1, 0) && takes(4, 0.5, 0, 0));
}

#[test]
fn blocks_of_cells_that_have_widened_come_back() {
    let full = Full::new(qps(1000, 20, Counting::Strict));
    let key = full.at(0, 1);
    let own = full.table.wide();
    for round in 0..50 {
        let now = round * 5000;
        full.at(now, 1);
        assert!(admits(&full.table, key, 1000.0, 300, at(now)));
        assert_eq!(full.table.wide(), own + 2);
        full.at(now + 2500, 1);
        let bytes = full.table.bytes();
        assert!(admits(&full.table, key, 1000.0, 1, at(now + 2500)));
        assert_eq!((full.table.wide(), full.table.bytes()), (own, bytes));
    }
}

#[test]
fn a_clock_that_steps_back_frees_no_key_that_shares_and_holds_none_for_longer_than_a_window() {
    let full = Full::new(qps(1000, 20, Counting::Strict));
    let takes = |number, now| admits(&full.table, full.at(now, number), 1.0, 1, at(now));
    assert!(takes(1, 3_600_000));
    assert!(!takes(1, 3_599_500), "a little back, it counts on");
    assert!(!takes(1, 3_601_200));
    assert!(
        !takes(1, 5000),
        "far back, it counts for as long as it still had to"
    );
    assert!(takes(2, 5000));
    assert!(!takes(1, 5249));
    assert!(takes(1, 5250));
    assert!(!takes(2, 6249));
    assert!(takes(2, 6250));
}

#[test]
fn a_line_that_keys_share_is_pulled_back_with_the_clock() {
    let geometry = KeyedGeometry::new(qps(1000, 20, Counting::Strict), 1).paced();
    let table = KeyedWindows::new(geometry, SEED);
    let turn = |number, limit, now| {
        let key = numbered(&table, number);
        table
            .admit_now(key, &terms(limit), 1, at(now))
            .map(|taken| taken.handle.is_shared())
    };
    assert_eq!(turn(1, 0.1, 3_600_000), Some(false), "for ten seconds");
    assert_eq!(turn(2, 1.0, 3_600_000), Some(true));
    assert_eq!(turn(2, 1.0, 3_600_999), None);
    // An hour back: for no longer than the longest turn.
    assert_eq!(turn(2, 1.0, 1000), None);
    assert_eq!(turn(2, 1.0, 10_999), None);
    assert!(turn(2, 1.0, 11_000).is_some());
}

#[test]
fn a_turn_that_is_reserved_is_taken_until_it_is_given_back_and_for_good_once_it_is_committed() {
    let geometry = KeyedGeometry::new(qps(1000, 20, Counting::Strict), 1).paced();
    let table = KeyedWindows::new(geometry, SEED);
    let terms = KeyedTerms {
        max_queueing_ns: 1_000_000_000,
        ..terms(10.0)
    };
    let key = numbered(&table, 2);
    let first = numbered(&table, 1);
    assert!(table.admit_now(first, &terms, 1, at(0)).is_some());
    let reserve = || {
        table
            .reserve(&mut KeyHandle::of(key), &terms, 1, at(0))
            .unwrap()
    };
    let [one, two] = [reserve(), reserve()];
    assert!(one.handle.is_shared());
    assert_eq!([one.wait, two.wait], [0, 100_000_000]);
    table.release(two, 1, at(0));
    let again = reserve();
    assert_eq!(again.wait, 100_000_000);
    table.release(again, 1, at(0));
    table.admit(one, 1);
    table.release(one, 1, at(0));
    assert_eq!(reserve().wait, 100_000_000, "it may be another key's");
}
