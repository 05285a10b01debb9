//! Passes that workers take ahead, against logs of what they have admitted.

#![allow(clippy::unwrap_used, reason = "these are tests")]

use crate::pages::{Shelf, qps, terms};
use fastrand::Rng;
use leapgate::Timestamp;
use leapgate::backend::{Key, KeyedGeometry, KeyedTerms, PassesAhead, Reserved};
use leapgate::rule::Counting;

const WINDOW_MS: u64 = 1000;

/// Decides as a worker does that takes passes ahead; before each of its swaps, `meanwhile` may have others swap the page. Returns
/// whether the request passes, and whether it needed the page.
fn decide(
    shelf: &Shelf,
    worker: &PassesAhead,
    key: Key,
    terms: &KeyedTerms,
    cost: u64,
    now: Timestamp,
    meanwhile: &mut dyn FnMut(),
) -> (bool, bool) {
    if worker.spend(key, terms, cost, now).is_some() {
        return (true, false);
    }
    let (unspent, ahead) = worker.for_swap(key, now);
    loop {
        let (version, mut page) = shelf.read(key);
        if let Some((reserved, unspent)) = unspent {
            shelf.pages.release(&mut page, reserved, unspent);
        }
        let amounts = (cost, ahead);
        let Some((_, taken)) = shelf.pages.reserve_ahead(&mut page, key, terms, amounts, now)
        else {
            return (false, true);
        };
        meanwhile();
        if shelf.swap(key, version, page) {
            give_back(shelf, worker.swapped(key, taken, terms));
            return (true, true);
        }
    }
}

fn give_back(shelf: &Shelf, unspent: Option<(Reserved, u64)>) {
    if let Some((reserved, unspent)) = unspent {
        shelf.give_back(reserved, unspent);
    }
}

fn give_all_back(shelf: &Shelf, worker: &PassesAhead, now: Timestamp) {
    while let Some(unspent) = worker.take_over(true, now) {
        give_back(shelf, Some(unspent));
    }
    assert!(!worker.are_left());
}

/// The most that was admitted in any interval of a window's length.
fn most_in_any_interval(admitted: &[(u64, u64)]) -> u64 {
    let (mut most, mut sum, mut first) = (0, 0, 0);
    for (at, cost) in admitted {
        sum += cost;
        while admitted[first].0 + WINDOW_MS * 1_000_000 <= *at {
            sum -= admitted[first].1;
            first += 1;
        }
        most = most.max(sum);
    }
    most
}

#[test]
fn workers_that_take_passes_ahead_never_admit_more_than_the_limit_in_any_interval() {
    let mut random = Rng::with_seed(20);
    for counting in [Counting::Strict, Counting::Sentinel, Counting::Weighted] {
        for round in 0..12 {
            let count = random.u64(150..4000);
            let terms = terms(count as f64);
            let samples = [1, 2, 20, 50][random.usize(0..4)];
            let shelf = Shelf::new(KeyedGeometry::new(qps(WINDOW_MS, samples, counting), 4));
            let workers = [(); 4].map(|()| PassesAhead::default());
            // Some share a line of a worker, and all share a page.
            let keys = [0, 1, 2].map(|number| shelf.key(number));
            let (mut now, mut log) = (random.u64(0..5_000_000_000), vec![Vec::new(); 3]);
            let mut spent = 0;
            for _ in 0..20_000 {
                // Three times the limit, with pauses, some of them longer than the window.
                now += match random.u16(0..4000) {
                    0 => random.u64(0..3_000_000_000),
                    1..20 => random.u64(0..80_000_000),
                    _ => random.u64(0..2 * WINDOW_MS * 1_000_000 / count / 3),
                };
                let at = Timestamp::from_nanos(now);
                let (worker, of) = (random.usize(0..4), random.usize(0..40).saturating_sub(37));
                let cost = random.u64(0..16).saturating_sub(12).max(1);
                let mut others = Vec::new();
                let (passes, by_page) =
                    decide(&shelf, &workers[worker], keys[of], &terms, cost, at, &mut || {
                        // Another worker is faster.
                        if random.u8(0..8) == 0 && others.is_empty() {
                            let other = &workers[(worker + 1) % 4];
                            let passes = decide(&shelf, other, keys[of], &terms, 1, at, &mut || {});
                            others.push(passes.0);
                        }
                    });
                log[of].extend(others.into_iter().filter(|passes| *passes).map(|_| (now, 1)));
                if passes {
                    log[of].push((now, cost));
                    spent += u32::from(!by_page);
                }
                if random.u16(0..500) == 0 {
                    // A tick, or the worker falls asleep.
                    let (worker, at_once) = (&workers[random.usize(0..4)], random.bool());
                    while let Some(unspent) = worker.take_over(at_once, at) {
                        give_back(&shelf, Some(unspent));
                    }
                }
            }
            for log in &log {
                let most = most_in_any_interval(log);
                // Of the other ways to count, the bound is that of the counted buckets: the leaving one counts in part or not.
                let bound = match counting {
                    Counting::Strict => count,
                    _ => 2 * count,
                };
                assert!(most <= bound, "{counting:?} {round}: {most} of {count}");
            }
            assert!(samples > 20 || spent > 100, "{counting:?} {round}: {spent} of {count}, {samples}");
            // Nothing is lost and nothing is given twice: what counts is what was admitted.
            let at = Timestamp::from_nanos(now);
            workers.iter().for_each(|worker| give_all_back(&shelf, worker, at));
            let length = WINDOW_MS * 1_000_000 / u64::from(samples);
            let oldest = (now / length).saturating_sub(samples.into()) * length;
            for (key, log) in keys.iter().zip(&log) {
                let counts = log.iter().filter(|(at, _)| *at >= oldest);
                let counted: u64 = counts.map(|(_, cost)| cost).sum();
                let status = shelf.pages.status(&shelf.read(*key).1, *key, &terms, at);
                if counting == Counting::Strict {
                    assert_eq!(status.remaining, count.saturating_sub(counted), "{round}");
                }
            }
        }
    }
}

#[test]
fn a_flood_over_four_workers_gets_99_of_a_hundred_and_reads_few_pages() {
    let shelf = Shelf::new(KeyedGeometry::new(qps(WINDOW_MS, 20, Counting::Strict), 4));
    let (terms, key) = (terms(10_000.0), shelf.key(7));
    let workers = [(); 4].map(|()| PassesAhead::default());
    let mut random = Rng::with_seed(21);
    let (mut passed, mut reads) = (0, 0);
    for step in 0..40_000 {
        let worker = &workers[random.usize(0..4)];
        let now = Timestamp::from_nanos(step * 25_000);
        let (passes, reads_page) = decide(&shelf, worker, key, &terms, 1, now, &mut || {});
        passed += u32::from(passes);
        reads += u32::from(passes && reads_page);
    }
    assert!((9_900..=10_000).contains(&passed), "{passed}");
    assert!(reads < 3_000, "{reads}");
}

#[test]
fn a_key_that_comes_once_in_a_bucket_and_a_small_limit_take_nothing_ahead() {
    let shelf = Shelf::new(KeyedGeometry::new(qps(WINDOW_MS, 20, Counting::Strict), 4));
    let worker = PassesAhead::default();
    for (count, ms_between) in [(128.0, 1), (1_000_000.0, 50)] {
        let (terms, key) = (terms(count), shelf.key(ms_between));
        for step in 0..100 {
            let now = Timestamp::from_millis(step * ms_between);
            let decided = decide(&shelf, &worker, key, &terms, 1, now, &mut || {});
            assert_eq!(decided, (true, true), "{count} {step}");
            assert!(!worker.are_left());
        }
    }
}

#[test]
fn passes_taken_under_another_limit_are_not_spent() {
    let shelf = Shelf::new(KeyedGeometry::new(qps(WINDOW_MS, 20, Counting::Strict), 4));
    let (worker, key, now) = (PassesAhead::default(), shelf.key(1), Timestamp::ZERO);
    let (wide, narrow) = (terms(1000.0), terms(3.0));
    for passed in 0..3 {
        let decided = decide(&shelf, &worker, key, &wide, 1, now, &mut || {});
        assert_eq!(decided, (true, passed < 2));
    }
    let decided = decide(&shelf, &worker, key, &wide, 1, now, &mut || {});
    assert_eq!((decided, worker.left(key, now)), ((true, true), 2));
    assert!(!decide(&shelf, &worker, key, &narrow, 1, now, &mut || {}).0);
    give_all_back(&shelf, &worker, now);
    let status = shelf.pages.status(&shelf.read(key).1, key, &wide, now);
    assert_eq!(status.remaining, 996);
}
