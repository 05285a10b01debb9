//! Pages of states, against a table that is not shared, against logs, and with other workers that swap them.

#![allow(clippy::unwrap_used, reason = "these are tests")]

use crate::support::at;
use fastrand::Rng;
use leapgate::Timestamp;
use leapgate::backend::{
    KEYS_PER_PAGE, Key, KeyHandle, KeyVerdict, KeyedGeometry, KeyedPages, KeyedStates, KeyedTerms,
    KeyedWindows, Reserved,
};
use leapgate::rule::{Count, Counting, Grade, RuleGeometry};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

const SEED: [u64; 2] = [0x5eed, 0xcafe];

pub(crate) fn qps(interval_ms: u64, samples: u32, counting: Counting) -> Grade {
    let window = RuleGeometry::new(interval_ms, Some(samples)).unwrap();
    Grade::Qps { window, counting }
}

pub(crate) fn terms(count: f64) -> KeyedTerms {
    KeyedTerms::of(Count::new(count).unwrap())
}

/// Pages, and where they are kept: each with the number of its version.
pub(crate) struct Shelf {
    pub(crate) pages: KeyedPages,
    kept: RefCell<BTreeMap<usize, (u64, Vec<u8>)>>,
}

impl Shelf {
    pub(crate) fn new(geometry: KeyedGeometry) -> Shelf {
        Shelf {
            pages: KeyedPages::new(&geometry, SEED),
            kept: RefCell::default(),
        }
    }

    pub(crate) fn key(&self, number: u64) -> Key {
        self.pages.key([Some(&number.to_le_bytes()[..])])
    }

    pub(crate) fn read(&self, key: Key) -> (u64, Vec<u8>) {
        let page = self.pages.page(key);
        self.kept.borrow().get(&page).cloned().unwrap_or_default()
    }

    /// Replaces the page if it still has that version. Returns whether it did.
    pub(crate) fn swap(&self, key: Key, version: u64, bytes: Vec<u8>) -> bool {
        let mut kept = self.kept.borrow_mut();
        let place = kept.entry(self.pages.page(key)).or_default();
        let is_it = place.0 == version;
        if is_it {
            *place = (version + 1, bytes);
        }
        is_it
    }

    pub(crate) fn ask(&self, key: Key, terms: &KeyedTerms, cost: u64, now: Timestamp) -> KeyVerdict {
        self.pages.ask(&self.read(key).1, key, terms, cost, now)
    }

    pub(crate) fn reserve(&self, key: Key, terms: &KeyedTerms, cost: u64, now: Timestamp) -> Option<Reserved> {
        let (version, mut page) = self.read(key);
        let reserved = self.pages.reserve(&mut page, key, terms, cost, 0, now)?;
        assert!(self.swap(key, version, page));
        Some(reserved)
    }

    pub(crate) fn change(&self, key: Key, change: impl Fn(&mut Vec<u8>) -> bool) {
        let (version, mut page) = self.read(key);
        if change(&mut page) {
            assert!(self.swap(key, version, page));
        }
    }

    pub(crate) fn give_back(&self, reserved: Reserved, cost: u64) {
        self.change(reserved.handle.key(), |page| {
            self.pages.release(page, reserved, cost)
        });
    }

    fn leave(&self, reserved: Reserved) {
        self.give_back(reserved, 1);
    }

    pub(crate) fn bytes(&self) -> usize {
        self.kept
            .borrow()
            .values()
            .map(|(_, page)| page.len())
            .sum()
    }
}

/// Plays random requests of as many keys as a page keeps apart to one page and to a table.
fn plays_like_a_table(geometry: KeyedGeometry, count: f64, max_queueing_ns: u64, most_ms: u64) {
    let mut random = Rng::with_seed(17);
    let terms = KeyedTerms {
        max_queueing_ns,
        ..terms(count)
    };
    for _ in 0..3 {
        let roomy = KeyedGeometry {
            max_keys: 64,
            ..geometry
        };
        let (shelf, table) = (Shelf::new(geometry), KeyedWindows::new(roomy, SEED));
        let mut now = random.u64(0..10_000_000_000);
        let mut in_flight = Vec::new();
        for step in 0..700 {
            now += random.u64(0..1 + most_ms * 1_000_000) * u64::from(random.u8(0..4) == 0);
            let at = Timestamp::from_nanos(now);
            let key = shelf.key(random.u64(0..KEYS_PER_PAGE as u64));
            let cost = if random.u8(0..8) == 0 {
                random.u64(0..4)
            } else {
                1
            };
            let about = format!("step {step}, {geometry:?}, {cost} at {at:?}");
            assert_eq!(
                shelf.ask(key, &terms, cost, at),
                table.ask(&mut KeyHandle::of(key), &terms, cost, at),
                "ask: {about}"
            );
            let status = |page: &[u8]| shelf.pages.status(page, key, &terms, at);
            assert_eq!(
                status(&shelf.read(key).1),
                table.status(key, &terms, at),
                "standing: {about}"
            );
            let taken = shelf.reserve(key, &terms, cost, at);
            let expected = table.reserve(&mut KeyHandle::of(key), &terms, cost, at);
            // Before its turn there was none, or one that is over and not kept.
            let of = |taken: Option<Reserved>| {
                taken.map(|taken| (taken.wait, taken.turn.map(|turn| turn.to)))
            };
            assert_eq!(of(taken), of(expected), "reserve: {about}");
            if let (Some(taken), Some(expected)) = (taken, expected) {
                if random.u8(0..8) == 0 {
                    shelf.give_back(taken, cost);
                    table.release(expected, cost, at);
                } else if table.admit(expected, cost) {
                    in_flight.push((taken, expected, cost));
                }
            }
            if !in_flight.is_empty() && random.bool() {
                let at = random.usize(..in_flight.len());
                let (taken, expected, cost) = in_flight.swap_remove(at);
                shelf.give_back(taken, cost);
                table.leave(expected, cost);
            }
        }
    }
}

#[test]
fn a_page_decides_as_a_table_does() {
    for counting in [Counting::Strict, Counting::Sentinel, Counting::Weighted] {
        for (interval, samples, most_ms) in [(1000, 20, 40), (1000, 1, 300), (60, 3, 30)] {
            for count in [0.5, 3.0, 7.5] {
                let grade = qps(interval, samples, counting);
                plays_like_a_table(KeyedGeometry::new(grade, 4), count, 0, most_ms);
            }
        }
    }
    // Counters widen.
    let grade = qps(1000, 2, Counting::Strict);
    plays_like_a_table(KeyedGeometry::new(grade, 4), 900.0, 0, 20);
}

#[test]
fn a_page_of_calls_in_flight_decides_as_a_table_does() {
    plays_like_a_table(KeyedGeometry::new(Grade::Concurrency, 4), 5.0, 0, 40);
}

#[test]
fn a_page_of_turns_decides_as_a_table_does() {
    let grade = qps(1000, 20, Counting::Strict);
    for max_queueing in [0, 300_000_000] {
        for count in [0.4, 4.0, 30.0] {
            let geometry = KeyedGeometry::new(grade, 4).paced();
            plays_like_a_table(geometry, count, max_queueing, 300);
            plays_like_a_table(geometry.sentinel(), count, max_queueing, 300);
        }
    }
}

/// Turns as Sentinel's formula has them, whose requests cost up to `most`, of `keys` keys in one page: calls `each` with how
/// long they wait, and how long they would if no key were ever forgotten. Some are given back, at once or later.
fn dear_turns(keys: u64, most: u64, mut each: impl FnMut(Option<u64>, Option<u64>, String)) {
    let mut random = Rng::with_seed(23);
    let geometry = KeyedGeometry::new(qps(1000, 1, Counting::Strict), 4);
    let shelf = Shelf::new(geometry.paced().sentinel());
    let mut latest: BTreeMap<u64, u64> = BTreeMap::new();
    let mut waiting = Vec::new();
    let mut now = 1_000_000;
    for step in 0..30_000 {
        now += match random.u8(..40) {
            0 => 70_000,
            _ => [0, 1, 30, 300, 3000][random.usize(..5)],
        };
        // Some come often.
        let among = [keys.min(6), keys][random.usize(..2)];
        let (number, dear) = (random.u64(..among), random.u64(1..=most));
        let cost = [random.u64(1..=4), dear][random.usize(..2)];
        let (limit, queue) = ([4, 1, 25][number as usize % 3], [0, 1500][step % 2]);
        let terms = KeyedTerms {
            max_queueing_ns: queue * 1_000_000,
            ..terms(limit as f64)
        };
        let spacing = (1000.0 * cost as f64 / limit as f64).round() as u64;
        let release = |latest: &u64| now.max(latest + spacing);
        let expected = latest.get(&number).map_or(now, release) - now;
        let expected = (expected < queue.max(1)).then_some(expected);
        let taken = shelf.reserve(shelf.key(number), &terms, cost, at(now));
        let wait = taken.map(|taken| taken.wait / 1_000_000);
        each(
            wait,
            expected,
            format!("step {step}: {cost} of key {number} at {now}"),
        );
        if let (Some(wait), Some(taken)) = (wait, taken) {
            let before = latest.insert(number, now + wait);
            if random.u8(..4) == 0 {
                waiting.push((number, taken, before, now + wait));
            }
        }
        if !waiting.is_empty() && random.bool() {
            let (number, taken, before, release) =
                waiting.swap_remove(random.usize(..waiting.len()));
            shelf.give_back(taken, 1);
            if latest.get(&number) == Some(&release) {
                match before {
                    Some(before) => latest.insert(number, before),
                    None => latest.remove(&number),
                };
            }
        }
    }
    assert!(
        shelf.bytes() <= (KEYS_PER_PAGE + 3) * 16,
        "{} bytes",
        shelf.bytes()
    );
}

#[test]
fn no_key_of_a_page_gets_a_turn_earlier_than_if_none_were_ever_forgotten() {
    for (keys, most) in [
        (4, 300),
        (8, 40),
        (12, 40),
        (12, 300),
        (30, 300),
        (30, 2000),
        (100, 10),
        (100, 100_000),
    ] {
        let mut taken = 0;
        dear_turns(keys, most, |wait, expected, about| {
            if let Some(wait) = wait {
                taken += 1;
                let earliest = expected.unwrap_or(u64::MAX);
                assert!(wait >= earliest, "{about}: {wait} instead of {expected:?}");
            }
            if keys <= KEYS_PER_PAGE as u64 {
                assert_eq!(wait, expected, "{about}");
            }
        });
        assert!(taken > 300, "{keys}, {most}: {taken}");
    }
}

#[test]
fn a_page_with_room_forgets_no_line() {
    let geometry = KeyedGeometry::new(qps(1000, 1, Counting::Strict), 4);
    let shelf = Shelf::new(geometry.paced().sentinel());
    let take =
        |number, cost, now: u64| shelf.reserve(shelf.key(number), &terms(4.0), cost, at(now));
    assert!(take(0, 1, 0).is_some());
    assert!(take(1, 1, 70_000).is_some(), "after 64 intervals");
    assert!(take(0, 300, 74_999).is_none());
    assert!(take(0, 300, 75_000).is_some());
    assert_eq!(shelf.bytes(), 2 * 16);
}

#[test]
fn a_turn_that_is_given_back_leaves_what_was_forgotten_in_its_place() {
    let geometry = KeyedGeometry::new(qps(1000, 1, Counting::Strict), 4);
    let shelf = Shelf::new(geometry.paced().sentinel());
    let take = |number, cost, now: u64| {
        shelf.reserve(shelf.key(number), &terms(4.0), cost, at(1_000_000 + now))
    };
    for number in 0..8 {
        assert!(take(number, 1, 0).is_some());
    }
    // A key that shares the entry in which the pacer of the first key is kept.
    let shared = |number: u64| (shelf.key(number).hash() >> 8) % 3;
    let sharing = (8..).find(|number| shared(*number) == shared(0)).unwrap();
    let turn = take(sharing, 1, 100).unwrap();
    assert!(turn.handle.is_shared());
    let stranger = take(1000, 1, 1000).unwrap();
    assert!(
        !stranger.handle.is_shared(),
        "in the entry of the first key"
    );
    shelf.give_back(turn, 1);
    assert!(take(0, 10, 2499).is_none());
    assert!(take(0, 10, 2600).is_some());
}

#[test]
fn a_crowded_page_never_gives_a_key_more_than_its_limit() {
    let mut random = Rng::with_seed(3);
    let geometry = KeyedGeometry::new(qps(1000, 10, Counting::Strict), 4);
    let (shelf, terms) = (Shelf::new(geometry), terms(3.0));
    let mut passed: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    let mut now = 5000;
    for _ in 0..40_000 {
        now += random.u64(0..20);
        let number = random.u64(0..3 * KEYS_PER_PAGE as u64);
        let key = shelf.key(number);
        if shelf.reserve(key, &terms, 1, at(now)).is_some() {
            passed.entry(number).or_default().push(now);
        }
    }
    assert_eq!(passed.len(), 3 * KEYS_PER_PAGE, "everybody has passed");
    for (number, passed) in passed {
        for four in passed.windows(4) {
            assert!(four[3] - four[0] >= 1000, "key {number}: {four:?}");
        }
    }
}

#[test]
fn no_key_of_crowded_pages_ever_gets_more_than_its_limit_while_keys_flood_and_leave_and_come_back()
{
    for (counting, most) in [
        (Counting::Strict, 5),
        (Counting::Sentinel, 10),
        (Counting::Weighted, 10),
    ] {
        let mut random = Rng::with_seed(11);
        let geometry = KeyedGeometry::new(qps(1000, 10, counting), 8);
        let (shelf, terms) = (Shelf::new(geometry), terms(5.0));
        let mut admitted: BTreeMap<u64, Vec<(u64, u64)>> = BTreeMap::new();
        let mut was_shared: BTreeMap<u64, bool> = BTreeMap::new();
        let (mut now, mut into_own, mut out_of_own) = (5000, 0, 0);
        for step in 0..30_000 {
            let (keys, pause) = [(12, 20), (300, 2), (60, 90)][step / 3000 % 3];
            now += random.u64(0..=pause);
            let (number, cost) = (random.u64(0..keys), random.u64(1..=2));
            let Some(taken) = shelf.reserve(shelf.key(number), &terms, cost, at(now)) else {
                continue;
            };
            if random.u8(0..8) == 0 {
                shelf.give_back(taken, cost);
                continue;
            }
            match was_shared.insert(number, taken.handle.is_shared()) {
                Some(true) if !taken.handle.is_shared() => into_own += 1,
                Some(false) if taken.handle.is_shared() => out_of_own += 1,
                _ => {}
            }
            let log = admitted.entry(number).or_default();
            log.push((now, cost));
            log.retain(|(then, _)| then + 1000 > now);
            let sum: u64 = log.iter().map(|(_, cost)| cost).sum();
            assert!(
                sum <= most,
                "step {step}, key {number}, {counting:?}: {log:?}"
            );
        }
        assert!(into_own > 20 && out_of_own > 20, "{into_own}, {out_of_own}");
    }
}

#[test]
fn of_100_new_clients_95_pass_after_a_flood_of_as_many_keys_as_the_bound() {
    println!("of 1000 new clients so many pass; bound, further keys in so many times the bound");
    for (bound, times, least) in [
        (400, 1, 950),
        (10_000, 1, 990),
        (10_000, 2, 940),
        (10_000, 3, 780),
    ] {
        for spread in [0, 59_999] {
            let grade = qps(60_000, 20, Counting::Strict);
            let shelf = Shelf::new(KeyedGeometry::new(grade, bound));
            let terms = terms(5.0);
            let keys = bound as u64 * (1 + times);
            for number in 0..keys {
                let now = at(600_000 + number * spread / keys);
                shelf.reserve(shelf.key(number), &terms, 1, now);
            }
            let passes = |number: &u64| {
                let key = shelf.key(1_000_000_000 + number);
                shelf.ask(key, &terms, 1, at(600_000 + spread)) == KeyVerdict::Pass
            };
            let passed = (0..1000).filter(passes).count();
            println!("{passed}: {bound}, {times} x, in {spread} ms");
            assert!(
                passed >= least,
                "{passed} of 1000: {bound}, {times}, {spread}"
            );
        }
    }
}

#[test]
fn a_flood_frees_no_limited_key_and_takes_no_memory() {
    let geometry = KeyedGeometry::new(qps(60_000, 20, Counting::Strict), 1000);
    let (shelf, terms) = (Shelf::new(geometry), terms(2.0));
    let limited = shelf.key(u64::MAX);
    let take = |key, now| shelf.reserve(key, &terms, 1, at(now)).is_some();
    assert_eq!([0, 1, 2].map(|now| take(limited, now)), [true, true, false]);
    for number in 0..50_000 {
        take(shelf.key(number), 3 + number / 5);
        assert!(!take(limited, 3 + number / 5), "after {number} others");
    }
    // A page has eight entries of keys and three shared ones, of two words and three of counters each.
    assert_eq!(shelf.bytes(), shelf.pages.pages() * 11 * 40);
    assert_eq!(shelf.kept.borrow().len(), 250);
    assert!(take(limited, 63_000), "an interval and a bucket later");
}

#[test]
fn a_key_that_leaves_the_crowd_continues_from_what_it_counted() {
    let geometry = KeyedGeometry::new(qps(1000, 10, Counting::Strict), 4);
    let (shelf, terms) = (Shelf::new(geometry), terms(2.0));
    let take = |number, now| {
        let reserved = shelf.reserve(shelf.key(number), &terms, 1, at(now));
        reserved.map(|reserved| reserved.handle.is_shared())
    };
    for number in 0..8 {
        assert_eq!(take(number, 1000), Some(false));
    }
    assert_eq!(
        [8, 8, 8].map(|number| take(number, 1500)),
        [Some(true), Some(true), None]
    );
    let shared = |number: &u64| shelf.key(*number).hash() >> 8;
    let with = (9..)
        .find(|number| shared(number) % 3 == shared(&8) % 3)
        .unwrap();
    let apart = (9..)
        .find(|number| shared(number) % 3 != shared(&8) % 3)
        .unwrap();
    assert_eq!(take(with, 1500), None, "it shares with that one");
    assert_eq!(take(apart, 1500), Some(true), "it shares with others");
    // The windows of the first eight are over: each key gets one, with the crowd's counts in it.
    assert_eq!([8, with].map(|number| take(number, 2150)), [None, None]);
    assert_eq!(
        [8, 8, with, with, 8].map(|number| take(number, 2600)),
        [Some(false), Some(false), Some(false), Some(false), None]
    );
}

#[test]
fn calls_in_flight_of_a_crowd_are_counted_wherever_they_are() {
    let (shelf, terms) = (
        Shelf::new(KeyedGeometry::new(Grade::Concurrency, 4)),
        terms(2.0),
    );
    let take = |number| shelf.reserve(shelf.key(number), &terms, 1, at(1));
    let first: Vec<Reserved> = (0..8).map(|number| take(number).unwrap()).collect();
    let crowd = [take(8).unwrap(), take(8).unwrap()];
    assert!(crowd.iter().all(|taken| taken.handle.is_shared()));
    assert!(take(8).is_none());
    shelf.leave(first[0]);
    assert!(
        take(8).is_none(),
        "those in the shared entry may all be its own"
    );
    shelf.leave(crowd[0]);
    let own = take(8).unwrap();
    assert!(!own.handle.is_shared());
    assert!(take(8).is_none());
    shelf.leave(own);
    shelf.leave(crowd[1]);
    assert_eq!((0..3).filter(|_| take(8).is_some()).count(), 2);
}

/// Workers that are interrupted between reading the clock, the page, and swapping it.
#[test]
fn interrupted_workers_never_give_a_key_more_than_its_limit() {
    struct Worker {
        number: u64,
        /// When the clock was read, and the page, if it was.
        at: u64,
        read: Option<(u64, Vec<u8>)>,
    }
    let mut random = Rng::with_seed(5);
    for counting in [Counting::Strict, Counting::Weighted] {
        let geometry = KeyedGeometry::new(qps(100, 5, counting), 4);
        let (shelf, terms) = (Shelf::new(geometry), terms(4.0));
        // For each key, the order of what was admitted, with the instants between which it was decided.
        let mut admitted: BTreeMap<u64, Vec<(u64, u64)>> = BTreeMap::new();
        let (mut now, mut retries) = (1000, 0);
        let mut workers: Vec<Option<Worker>> = (0..4).map(|_| None).collect();
        for _ in 0..60_000 {
            now += random.u64(0..3);
            let slot = &mut workers[random.usize(0..4)];
            *slot = match slot.take() {
                None => Some(Worker {
                    number: random.u64(0..12),
                    at: now,
                    read: None,
                }),
                Some(worker) => {
                    let key = shelf.key(worker.number);
                    match worker.read {
                        None => Some(Worker {
                            read: Some(shelf.read(key)),
                            ..worker
                        }),
                        Some((version, mut page)) => {
                            let taken =
                                shelf
                                    .pages
                                    .reserve(&mut page, key, &terms, 1, 0, at(worker.at));
                            if taken.is_none() {
                                None
                            } else if shelf.swap(key, version, page) {
                                admitted
                                    .entry(worker.number)
                                    .or_default()
                                    .push((worker.at, now));
                                None
                            } else {
                                retries += 1;
                                Some(Worker {
                                    read: None,
                                    ..worker
                                })
                            }
                        }
                    }
                }
            };
        }
        assert!(retries > 300, "{retries} were overtaken");
        assert!(admitted.values().map(Vec::len).sum::<usize>() > 2000);
        let most = if counting == Counting::Strict { 4 } else { 8 };
        for (number, admitted) in admitted {
            // As a client sees it: no interval wholly contains more.
            for (i, (first, _)) in admitted.iter().enumerate() {
                let near = admitted.iter().skip(i.saturating_sub(40)).take(80);
                let count = near
                    .filter(|(from, to)| from >= first && *to < first + 100)
                    .count();
                assert!(count <= most, "key {number}: {count} from {first}");
            }
        }
    }
}

#[test]
fn a_worker_that_is_late_does_not_date_what_it_admits_back() {
    let geometry = KeyedGeometry::new(qps(100, 5, Counting::Strict), 4);
    let (shelf, terms) = (Shelf::new(geometry), terms(1.0));
    let [a, b] = [shelf.key(1), shelf.key(2)];
    let take = |key, now| shelf.reserve(key, &terms, 1, at(now)).is_some();
    assert!(take(a, 1000));
    assert!(take(b, 1119));
    // It has read the clock at 1010, and decides now: by the other worker's swap it is at least 1100.
    assert!(!take(a, 1010));
    assert!(take(b, 1300));
    assert!(take(a, 1010));
    assert!(!take(a, 1419), "it was admitted in the bucket of 1300");
    assert!(take(a, 1420));
}

#[test]
fn what_is_given_back_is_taken_off_the_bucket_that_it_was_counted_in() {
    let geometry = KeyedGeometry::new(qps(1000, 10, Counting::Strict), 4);
    let (shelf, terms) = (Shelf::new(geometry), terms(2.0));
    let key = shelf.key(1);
    let first = shelf.reserve(key, &terms, 1, at(1000)).unwrap();
    let take = |now| shelf.reserve(key, &terms, 1, at(now)).is_some();
    assert!(take(1500));
    shelf.give_back(first, 1);
    assert!(take(1600));
    assert_eq!(
        [2100, 2599, 2600, 2699, 2700].map(take),
        [false, false, true, false, true]
    );
    // An expired reservation takes nothing off.
    shelf.give_back(first, 1);
    assert!(!take(2700));
}

#[test]
fn fewer_than_one_in_a_hundred_find_their_page_full_at_the_bound() {
    let geometry = KeyedGeometry::new(qps(1000, 20, Counting::Strict), 100_000);
    assert_eq!(Shelf::new(geometry).pages.pages(), 25_000);
    println!("of 100,000: keys, find their page full, share a window with another one; by chance");
    for (keys, most_full, most_shared) in [
        (100_000, 0.9, 0.3),
        (75_000, 0.25, 0.05),
        (50_000, 0.04, 0.005),
        (25_000, 0.002, 0.001),
    ] {
        let (shelf, terms) = (Shelf::new(geometry), terms(1e6));
        let percent = |n: usize| n as f64 * 100.0 / keys as f64;
        // By page and which of its three shared windows it is.
        let mut sharing: BTreeMap<(usize, u64), usize> = BTreeMap::new();
        for number in 0..keys {
            let key = shelf.key(number);
            let taken = shelf.reserve(key, &terms, 1, at(0)).unwrap();
            if taken.handle.is_shared() {
                let which = (shelf.pages.page(key), (key.hash() >> 8) % 3);
                *sharing.entry(which).or_default() += 1;
            }
        }
        let found_full = percent(sharing.values().sum());
        let share = percent(sharing.values().filter(|keys| **keys > 1).sum());
        let full = |on_page: usize| on_page.saturating_sub(KEYS_PER_PAGE) as f64;
        let shared = |on_page: usize| match full(on_page) {
            0.0 => 0.0,
            full => full * (1.0 - (2.0_f64 / 3.0).powf(full - 1.0)),
        };
        // The Poisson distribution.
        let mean = keys as f64 / 25_000.0;
        let mut chance = (-mean).exp();
        let (mut by_chance, mut shared_by_chance) = (0.0, 0.0);
        for n in 0..60 {
            by_chance += chance * full(n) / mean * 100.0;
            shared_by_chance += chance * shared(n) / mean * 100.0;
            chance *= mean / (n + 1) as f64;
        }
        println!(
            "{keys}: {found_full:.4} % {share:.4} %; {by_chance:.4} % {shared_by_chance:.4} %"
        );
        assert!(by_chance < most_full && shared_by_chance < most_shared);
        assert!(found_full < 1.3 * by_chance + 0.01, "{keys}");
    }
}

#[test]
fn bytes_that_are_no_page_do_no_harm() {
    let mut random = Rng::with_seed(9);
    for geometry in [
        KeyedGeometry::new(qps(1000, 20, Counting::Weighted), 4),
        KeyedGeometry::new(qps(1000, 20, Counting::Strict), 4).paced(),
        KeyedGeometry::new(Grade::Concurrency, 4),
    ] {
        let pages = KeyedPages::new(&geometry, SEED);
        let terms = terms(2.0);
        for _ in 0..3000 {
            let mut page: Vec<u8> = (0..random.usize(0..600)).map(|_| random.u8(..)).collect();
            let key = pages.key([None]);
            let now = Timestamp::from_nanos(random.u64(..) >> random.u8(0..64));
            pages.ask(&page, key, &terms, 1, now);
            pages.status(&page, key, &terms, now);
            if let Some(reserved) = pages.reserve(&mut page, key, &terms, 1, 0, now) {
                pages.release(&mut page, reserved, 1);
            }
            let holding = terms.holding();
            if let Some(held) = pages.reserve(&mut page, key, &holding, 1, 0, now) {
                pages.settle_dead(&mut page, &|holder| holder % 2 == 0, now);
                pages.settle(&mut page, held, 1, random.u64(..), now);
            }
            assert!(page.len() < 3000);
        }
    }
}

#[test]
fn the_time_to_try_again_is_that_of_the_page() {
    let geometry = KeyedGeometry::new(qps(1000, 10, Counting::Strict), 4);
    let (shelf, terms) = (Shelf::new(geometry), terms(1.0));
    let key = shelf.key(1);
    assert!(shelf.reserve(key, &terms, 1, at(1050)).is_some());
    let retry_after = Some(Duration::from_millis(1000));
    assert_eq!(
        shelf.ask(key, &terms, 1, at(1100)),
        KeyVerdict::Block { retry_after }
    );
    assert_eq!(
        shelf.ask(key, &terms, 2, at(1100)),
        KeyVerdict::Block { retry_after: None }
    );
}

/// A page of one rule whose entries have room behind their counters, written as a later worker may.
#[test]
fn what_stands_in_the_room_of_an_entry_survives_decisions_that_do_not_know_it() {
    let mut random = Rng::with_seed(12);
    for geometry in [
        KeyedGeometry::new(qps(1000, 20, Counting::Strict), 1),
        KeyedGeometry::new(qps(1000, 10, Counting::Weighted), 1),
        KeyedGeometry::new(Grade::Concurrency, 1),
    ] {
        let (shelf, plain) = (Shelf::new(geometry), Shelf::new(geometry));
        let mut calls: Vec<(u64, Reserved, Reserved, u64)> = Vec::new();
        let mut rooms = BTreeMap::new();
        let mut now = 1000;
        for step in 0..4000 {
            now += random.u64(0..40);
            let (number, cost) = (random.u64(0..6), [1, 1, 2, 300][random.usize(0..4)]);
            let (key, terms) = (shelf.key(number), terms([3.0, 1000.0][step % 2]));
            let asked = shelf.ask(key, &terms, cost, at(now));
            assert_eq!(asked, plain.ask(key, &terms, cost, at(now)), "step {step}");
            let taken = shelf.reserve(key, &terms, cost, at(now));
            let expected = plain.reserve(key, &terms, cost, at(now));
            assert_eq!(taken, expected, "step {step}");
            calls.extend(taken.zip(expected).map(|(a, b)| (number, a, b, cost)));
            if !calls.is_empty() && random.u32(0..2) == 0 {
                let (number, taken, expected, cost) = calls.remove(random.usize(0..calls.len()));
                for (shelf, reserved) in [(&shelf, taken), (&plain, expected)] {
                    let give_back = |page: &mut Vec<u8>| shelf.pages.release(page, reserved, cost);
                    shelf.change(shelf.key(number), give_back);
                }
            }
            // Another worker gives an entry some words of room, and later others.
            if taken.is_some() && !rooms.contains_key(&number) && step % 7 == 0 {
                let words: Vec<u64> = (1..=random.u64(1..=8)).map(|n| step as u64 + n).collect();
                shelf.change(key, |page| give_room(page, key, &words, geometry));
                rooms.insert(number, words);
            }
            for (number, words) in &rooms {
                let (_, page) = shelf.read(shelf.key(*number));
                let found = room_of(&page, shelf.key(*number), geometry);
                assert_eq!(found.as_ref(), Some(words), "step {step}, key {number}");
            }
        }
        assert_eq!(rooms.len(), 6);
    }
}

#[test]
fn a_key_with_words_in_its_room_keeps_its_entry() {
    let geometry = KeyedGeometry::new(qps(1000, 10, Counting::Strict), 4);
    let (shelf, terms) = (Shelf::new(geometry), terms(1.0));
    let take = |number: u64, now| {
        let reserved = shelf.reserve(shelf.key(number), &terms, 1, at(now));
        reserved.map(|reserved| reserved.handle.is_shared())
    };
    for number in 0..8 {
        assert_eq!(take(number, 0), Some(false));
        // One key has room, and nothing in it.
        let words = [[5, 0], [0, 0]][usize::from(number == 3)];
        let key = shelf.key(number);
        shelf.change(key, |page| give_room(page, key, &words, geometry));
    }
    // All windows are over, and one entry can be reused: it had room, and has none now.
    assert_eq!(
        [8, 9].map(|number| take(number, 9000)),
        [Some(false), Some(true)]
    );
    let (_, page) = shelf.read(shelf.key(8));
    assert_eq!(room_of(&page, shelf.key(8), geometry), None);
    assert_eq!(room_of(&page, shelf.key(7), geometry), Some(vec![5, 0]));
    assert_eq!(take(7, 9000), Some(false), "its own is there still");
}

const ROOM: u64 = 4;

fn word_at(page: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*page.get(at..)?.first_chunk()?))
}

/// Where the entry of `key` begins in a page, and where its counters end. As drawn in the page's module.
fn entry_of(page: &[u8], key: Key, geometry: KeyedGeometry) -> Option<(usize, usize)> {
    let buckets = match geometry.grade {
        Grade::Qps { window, .. } => window.window().sample_count() as usize + 1,
        Grade::Concurrency => 1,
    };
    let is_window = matches!(geometry.grade, Grade::Qps { .. });
    let mut at = 0;
    loop {
        let (hash, head) = (word_at(page, at)?, word_at(page, at + 8)?);
        let is_narrow = is_window && head & 1 == 0;
        let counters = if is_narrow {
            buckets.div_ceil(8)
        } else {
            buckets
        };
        let end = at + 16 + counters * 8;
        if hash == key.hash() {
            return Some((at, end));
        }
        let room = if head & ROOM == 0 {
            0
        } else {
            8 + word_at(page, end)? as usize * 8
        };
        at = end + room;
    }
}

fn give_room(page: &mut Vec<u8>, key: Key, words: &[u64], geometry: KeyedGeometry) -> bool {
    let (begin, end) = entry_of(page, key, geometry).unwrap();
    page[begin + 8] |= ROOM as u8;
    let behind = page.split_off(end);
    let room = [words.len() as u64]
        .into_iter()
        .chain(words.iter().copied());
    page.extend(room.flat_map(u64::to_le_bytes));
    page.extend(behind);
    true
}

fn room_of(page: &[u8], key: Key, geometry: KeyedGeometry) -> Option<Vec<u64>> {
    let (begin, end) = entry_of(page, key, geometry)?;
    if word_at(page, begin + 8)? & ROOM == 0 {
        return None;
    }
    let words = word_at(page, end)? as usize;
    (1..=words)
        .map(|word| word_at(page, end + word * 8))
        .collect()
}
