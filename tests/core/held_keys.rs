//! What requests hold of their keys' windows until their costs are known: tables and pages, against a naive log, and with workers
//! that are interrupted between reading a page and swapping it.

use crate::pages::{Shelf, qps, terms};
use crate::support::at;
use fastrand::Rng;
use leapgate::Timestamp;
use leapgate::backend::{
    KEYS_PER_PAGE, Key, KeyHandle, KeyVerdict, KeyedGeometry, KeyedPages, KeyedStates,
    KeyedWindows, Reserved,
};
use leapgate::rule::{Counting, Grade};
use leapgate::stats::Window;
use std::collections::BTreeMap;
use std::time::Duration;

const SEED: [u64; 2] = [0x5eed, 0xcafe];
const COUNTINGS: [Counting; 3] = [Counting::Strict, Counting::Sentinel, Counting::Weighted];

/// The states of keys by number, whose requests hold.
trait Holding {
    fn ask(&self, number: u64, limit: f64, cost: u64, now: Timestamp) -> KeyVerdict;
    fn hold(&self, number: u64, limit: f64, cost: u64, now: Timestamp) -> Option<Reserved>;
    fn charge(&self, number: u64, limit: f64, cost: u64, now: Timestamp) -> bool;
    fn settle(&self, held: Reserved, cost: u64, actual: u64, now: Timestamp);
    fn remaining(&self, number: u64, limit: f64, now: Timestamp) -> u64;
}

fn key(number: u64) -> Key {
    Key::of_parts(SEED, [Some(&number.to_le_bytes()[..])])
}

impl Holding for KeyedWindows {
    fn ask(&self, number: u64, limit: f64, cost: u64, now: Timestamp) -> KeyVerdict {
        let mut handle = KeyHandle::of(key(number));
        KeyedStates::ask(self, &mut handle, &terms(limit).holding(), cost, now)
    }

    fn hold(&self, number: u64, limit: f64, cost: u64, now: Timestamp) -> Option<Reserved> {
        let mut handle = KeyHandle::of(key(number));
        let reserved = self.reserve(&mut handle, &terms(limit).holding(), cost, now)?;
        assert!(
            self.admit(reserved, cost),
            "it looks at how the request ends"
        );
        Some(reserved)
    }

    fn charge(&self, number: u64, limit: f64, cost: u64, now: Timestamp) -> bool {
        self.admit_now(key(number), &terms(limit), cost, now)
            .is_some()
    }

    fn settle(&self, held: Reserved, cost: u64, actual: u64, now: Timestamp) {
        KeyedStates::settle(self, held, cost, actual, now);
    }

    fn remaining(&self, number: u64, limit: f64, now: Timestamp) -> u64 {
        self.status(key(number), &terms(limit), now).remaining
    }
}

impl Holding for Shelf {
    fn ask(&self, number: u64, limit: f64, cost: u64, now: Timestamp) -> KeyVerdict {
        Shelf::ask(self, key(number), &terms(limit).holding(), cost, now)
    }

    fn hold(&self, number: u64, limit: f64, cost: u64, now: Timestamp) -> Option<Reserved> {
        self.reserve(key(number), &terms(limit).holding(), cost, now)
    }

    fn charge(&self, number: u64, limit: f64, cost: u64, now: Timestamp) -> bool {
        self.reserve(key(number), &terms(limit), cost, now)
            .is_some()
    }

    fn settle(&self, held: Reserved, cost: u64, actual: u64, now: Timestamp) {
        self.change(held.handle.key(), |page| {
            self.pages.settle(page, held, cost, actual, now)
        });
    }

    fn remaining(&self, number: u64, limit: f64, now: Timestamp) -> u64 {
        let (key, terms) = (key(number), terms(limit));
        self.pages
            .status(&self.read(key).1, key, &terms, now)
            .remaining
    }
}

/// Tables and pages with room for as many keys of their own as a page keeps apart.
fn both(grade: Grade) -> [Box<dyn Holding>; 2] {
    let windows = KeyedWindows::new(KeyedGeometry::new(grade, 64), SEED);
    [
        Box::new(windows),
        Box::new(Shelf::new(KeyedGeometry::new(grade, 4))),
    ]
}

/// What one key has been charged, by bucket, and what is held of it.
#[derive(Clone, Default)]
struct Log {
    charged: Vec<(u64, u64)>,
    held: Vec<(u64, Reserved)>,
}

impl Log {
    fn sum(&self, window: Window, counting: Counting, now: Timestamp) -> f64 {
        let length = window.bucket_length().as_nanos() as u64;
        let (number, n) = (now.as_nanos() / length, u64::from(window.sample_count()));
        let of = |ages: std::ops::Range<u64>| -> u64 {
            let counts = |charge: &&(u64, u64)| ages.contains(&(number - charge.0));
            self.charged
                .iter()
                .filter(counts)
                .map(|charge| charge.1)
                .sum()
        };
        match counting {
            Counting::Strict => of(0..n + 1) as f64,
            Counting::Sentinel => of(0..n) as f64,
            Counting::Weighted => {
                let left = length - now.as_nanos() % length;
                of(0..n) as f64 + of(n..n + 1) as f64 * left as f64 / length as f64
            }
        }
    }

    fn held(&self) -> u64 {
        self.held.iter().map(|held| held.0).sum()
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Hold(u64),
    Charge(u64),
    /// Of the oldest hold.
    Settle(u64),
    /// Of the newest.
    Cancel,
    Wait(u64),
}

/// Plays steps of (key, step) to states and to logs, which decide alike.
fn plays_like_a_log(
    states: &dyn Holding,
    grade: Grade,
    limit: f64,
    steps: impl IntoIterator<Item = (u64, Step)>,
) {
    let Grade::Qps { window, counting } = grade else {
        panic!("a window is wanted")
    };
    let window = window.window();
    let bucket = |now: Timestamp| now.as_nanos() / window.bucket_length().as_nanos() as u64;
    let mut logs: BTreeMap<u64, Log> = BTreeMap::new();
    let mut now = at(1000);
    for (number, (of, step)) in steps.into_iter().enumerate() {
        let log = logs.entry(of).or_default();
        let asked_at = now;
        let about =
            || format!("step {number}, {counting:?} {window:?}: {step:?} of {of} at {asked_at:?}");
        log.charged
            .retain(|charge| charge.0 + u64::from(window.sample_count()) >= bucket(now));
        let used = log.sum(window, counting, now) + log.held() as f64;
        match step {
            Step::Wait(nanos) => now = Timestamp::from_nanos(now.as_nanos() + nanos),
            Step::Hold(cost) | Step::Charge(cost) => {
                let fits = used + cost as f64 <= limit;
                let asked = states.ask(of, limit, cost, now);
                assert_eq!(asked == KeyVerdict::Pass, fits, "{}", about());
                if let KeyVerdict::Block { retry_after } = asked {
                    assert_eq!(retry_after.is_some(), cost as f64 <= limit, "{}", about());
                    // As the ring alone says, and beside holds 1 s at least.
                    let least = Duration::from_secs(u64::from(log.held() > 0));
                    if let Some(wait) = retry_after {
                        assert!(wait >= least, "{wait:?}: {}", about());
                        let then = Timestamp::from_nanos(now.as_nanos() + wait.as_nanos() as u64);
                        let fits = |at| log.sum(window, counting, at) + cost as f64 <= limit;
                        assert!(fits(then), "{wait:?}: {}", about());
                        let before = Timestamp::from_nanos(then.as_nanos() - 1_000_000);
                        assert!(wait <= least || !fits(before), "{wait:?}: {}", about());
                    }
                }
                if matches!(step, Step::Charge(_)) {
                    assert_eq!(states.charge(of, limit, cost, now), fits, "{}", about());
                    log.charged.extend(fits.then_some((bucket(now), cost)));
                } else {
                    let held = states.hold(of, limit, cost, now);
                    assert_eq!(held.is_some(), fits, "{}", about());
                    log.held.extend(held.map(|held| (cost, held)));
                }
            }
            Step::Settle(actual) if !log.held.is_empty() => {
                let (cost, held) = log.held.remove(0);
                states.settle(held, cost, actual, now);
                log.charged.push((bucket(now), actual));
            }
            Step::Cancel => {
                if let Some((cost, held)) = log.held.pop() {
                    states.settle(held, cost, 0, now);
                }
            }
            Step::Settle(_) => {}
        }
        let used = log.sum(window, counting, now) + log.held() as f64;
        let remaining = (limit - used).max(0.0) as u64;
        assert_eq!(states.remaining(of, limit, now), remaining, "{}", about());
    }
}

const MS: u64 = 1_000_000;

#[test]
fn every_short_history_of_holds_is_as_the_log_has_it() {
    let bucket = 1000 * MS;
    let steps = [
        Step::Hold(1),
        Step::Hold(3),
        Step::Charge(2),
        Step::Settle(0),
        Step::Settle(2),
        Step::Settle(5),
        Step::Cancel,
        Step::Wait(bucket / 2),
        Step::Wait(2 * bucket),
    ];
    let length = if cfg!(debug_assertions) { 5 } else { 6 };
    for counting in COUNTINGS {
        let grade = qps(2000, 2, counting);
        for history in 0..steps.len().pow(length) {
            let mut rest = history;
            let history: Vec<(u64, Step)> = (0..length)
                .map(|_| {
                    let step = steps[rest % steps.len()];
                    rest /= steps.len();
                    (0, step)
                })
                .collect();
            for states in both(grade) {
                plays_like_a_log(&*states, grade, 4.0, history.iter().copied());
            }
        }
    }
}

#[test]
fn long_histories_of_holds_are_as_the_logs_have_them() {
    let mut random = Rng::with_seed(31);
    let each = if cfg!(debug_assertions) {
        10_000
    } else {
        60_000
    };
    let mut steps_played = 0;
    for counting in COUNTINGS {
        for (interval, samples, limit, most) in [
            (1000, 20, 20.0, 6),
            (60_000, 4, 1000.0, 300),
            (90, 3, 7.5, 3),
        ] {
            let grade = qps(interval, samples, counting);
            for states in both(grade) {
                let mut next = || {
                    let step = match random.u8(..16) {
                        0..5 => Step::Hold(random.u64(0..=most)),
                        5 => Step::Charge(random.u64(0..=most)),
                        // More than was held, now and then.
                        6..11 => Step::Settle(random.u64(0..=most + 1)),
                        11 => Step::Cancel,
                        12 => Step::Wait(random.u64(0..3 * interval) * MS),
                        _ => Step::Wait(random.u64(0..interval / 10 * MS)),
                    };
                    (random.u64(0..KEYS_PER_PAGE as u64), step)
                };
                let steps: Vec<(u64, Step)> = (0..each).map(|_| next()).collect();
                steps_played += steps.len();
                plays_like_a_log(&*states, grade, limit, steps);
            }
        }
    }
    println!("{steps_played} steps");
}

/// A request that has held: when it was let in, when it was settled, and what it has cost.
#[derive(Clone, Copy, Debug)]
struct Run {
    from: u64,
    to: u64,
    cost: u64,
}

/// The most that requests have cost which ran in one interval, even in part.
fn most_in_an_interval(runs: &[Run], interval: u64) -> u64 {
    // It ends just when a request is let in: a later interval has no other request, an earlier one not this one.
    let ran_until = |end: u64| {
        let ran = runs
            .iter()
            .filter(|run| run.from <= end && run.to + interval > end);
        ran.map(|run| run.cost).sum()
    };
    runs.iter()
        .map(|run| ran_until(run.from))
        .max()
        .unwrap_or(0)
}

/// Keys that come and go, and hold, some of them in shared entries: no interval has more than the limit of any key.
fn never_has_more_than_the_limit(states: &dyn Holding, keys: u64, seed: u64) {
    let mut random = Rng::with_seed(seed);
    let limit = 12;
    let mut runs: BTreeMap<u64, Vec<Run>> = BTreeMap::new();
    let mut open: Vec<(u64, u64, u64, Reserved)> = Vec::new();
    let (mut now, mut shared, mut own) = (5000, 0, 0);
    for step in 0..20_000 {
        now += [0, 1, 20, 200][random.usize(..4)]
            * u64::from(step % 5000 > 4000 || random.u8(..8) == 0);
        let number = random.u64(..keys);
        let estimate = random.u64(1..=5);
        if random.u8(..5) < 3 {
            if let Some(held) = states.hold(number, limit as f64, estimate, at(now)) {
                *if held.handle.is_shared() {
                    &mut shared
                } else {
                    &mut own
                } += 1;
                open.push((number, now, estimate, held));
            }
        } else if !open.is_empty() {
            let (number, from, estimate, held) = open.swap_remove(random.usize(..open.len()));
            let cost = random.u64(0..=estimate);
            states.settle(held, estimate, cost, at(now));
            runs.entry(number).or_default().push(Run {
                from,
                to: now,
                cost,
            });
        }
    }
    for (number, from, estimate, held) in open {
        states.settle(held, estimate, estimate, at(now));
        runs.entry(number).or_default().push(Run {
            from,
            to: now,
            cost: estimate,
        });
    }
    assert!(
        shared > 300 && own > 300,
        "{shared} in shared entries, {own} in others"
    );
    for (number, runs) in runs {
        let most = most_in_an_interval(&runs, 1000);
        assert!(most <= limit, "key {number}: {most}");
    }
}

#[test]
fn no_key_of_a_crowd_has_more_than_its_limit_in_any_interval_while_others_hold() {
    let geometry = KeyedGeometry::new(qps(1000, 10, Counting::Strict), 4);
    for seed in 0..4 {
        never_has_more_than_the_limit(&KeyedWindows::new(geometry, SEED), 40, seed);
        never_has_more_than_the_limit(&Shelf::new(geometry), 40, seed);
    }
}

/// A hold of one of several workers: the id of the worker, the key, what is held, and since when.
type Held = (u64, u64, Reserved, u64);

/// What a worker does that is interrupted between reading the clock, the page, and swapping it.
struct Work {
    number: u64,
    /// When the clock was read, and the page, if it was.
    at: u64,
    read: Option<(u64, Vec<u8>)>,
    does: Does,
}

#[derive(Clone, Copy)]
enum Does {
    Hold,
    /// At this cost.
    Settle(Held, u64),
    /// Settles what dead workers hold.
    SettleDead,
}

/// What is held for each request of these workers.
const ESTIMATE: u64 = 3;

impl Work {
    /// Does one step of the worker with this id: reads, or swaps what it has decided if no other has been faster. Returns the
    /// work if there is more to do; else how it has ended: with a hold, or with whether the page has changed.
    fn goes_on(
        mut self: Box<Self>,
        shelf: &Shelf,
        id: u64,
        dead: &[(u64, u64)],
    ) -> Result<Option<Reserved>, Box<Work>> {
        let key = key(self.number);
        let Some((version, mut page)) = self.read.take() else {
            self.read = Some(shelf.read(key));
            return Err(self);
        };
        let (mut made, now) = (None, at(self.at));
        let changes = match self.does {
            Does::Hold => {
                let terms = terms(10.0).holding();
                shelf.pages.hold_as(Some(id));
                made = shelf
                    .pages
                    .reserve(&mut page, key, &terms, ESTIMATE, 0, now);
                made.is_some()
            }
            Does::Settle((_, _, held, _), cost) => {
                assert!(shelf.pages.settle(&mut page, held, ESTIMATE, cost, now));
                true
            }
            Does::SettleDead => {
                // Others know of a death only when it is long past.
                let known = || dead.iter().filter(|(_, when)| *when <= self.at);
                let is_dead = |holder| known().any(|(id, _)| KeyedPages::holder_of(*id) == holder);
                shelf.pages.settle_dead(&mut page, &is_dead, now)
            }
        };
        if !changes || shelf.swap(key, version, page) {
            return Ok(made);
        }
        Err(self)
    }
}

#[test]
fn interrupted_workers_that_die_never_hold_and_settle_more_than_the_limit_in_any_interval() {
    let mut random = Rng::with_seed(6);
    let shelf = Shelf::new(KeyedGeometry::new(qps(100, 5, Counting::Strict), 4));
    let mut runs: BTreeMap<u64, Vec<Run>> = BTreeMap::new();
    let mut open: Vec<Held> = Vec::new();
    let mut workers: Vec<(u64, Option<Box<Work>>)> = (1..=4).map(|id| (id, None)).collect();
    let mut dead: Vec<(u64, u64)> = Vec::new();
    let (mut now, mut retries, mut deaths, mut after_deaths) = (1000, 0, 0, 0);
    for step in 0..200_000 {
        now += random.u64(0..3);
        let (id, work) = &mut workers[random.usize(0..4)];
        let Some(doing) = work.take() else {
            let end = random.usize(0..open.len() + 6);
            let does = match (random.u8(..16), open.get(end)) {
                (0, _) => Does::SettleDead,
                (_, Some((of, ..))) if of == id => {
                    Does::Settle(open.swap_remove(end), random.u64(0..=ESTIMATE))
                }
                _ => Does::Hold,
            };
            let number = match &does {
                Does::Settle((_, number, ..), _) => *number,
                _ => random.u64(0..12),
            };
            *work = Some(Box::new(Work {
                number,
                at: now,
                read: None,
                does,
            }));
            continue;
        };
        if step % 500 == 0 {
            // It dies here, with all that it holds, which has run until now.
            let ended = |held: Held| {
                (
                    held.1,
                    Run {
                        from: held.3,
                        to: now,
                        cost: ESTIMATE,
                    },
                )
            };
            if let Does::Settle(held, _) = doing.does {
                open.push(held);
            }
            for (number, run) in open.extract_if(.., |held| held.0 == *id).map(ended) {
                runs.entry(number).or_default().push(run);
                after_deaths += 1;
            }
            deaths += 1;
            dead.push((*id, now));
            *id = 4 + deaths;
            continue;
        }
        let (number, from) = (doing.number, doing.at);
        let ends = match doing.does {
            Does::Settle(held, cost) => Some((held, cost)),
            _ => None,
        };
        match doing.goes_on(&shelf, *id, &dead) {
            Err(again) => {
                retries += u32::from(again.read.is_none());
                *work = Some(again);
            }
            Ok(Some(held)) => open.push((*id, number, held, now)),
            Ok(None) => {
                // It has run from when it was let in, at the latest, until its end was read from the clock, at least.
                if let Some((held, cost)) = ends {
                    let run = Run {
                        from: held.3,
                        to: from,
                        cost,
                    };
                    runs.entry(number).or_default().push(run);
                }
            }
        }
    }
    assert!(retries > 1000, "{retries} were overtaken");
    assert!(
        after_deaths > 300,
        "{after_deaths} holds of {deaths} dead workers"
    );
    assert!(runs.values().map(Vec::len).sum::<usize>() > 5000);
    for (number, runs) in runs {
        let most = most_in_an_interval(&runs, 100);
        assert!(most <= 10, "key {number}: {most}");
    }
}

#[test]
fn a_request_that_only_holds_keep_from_passing_changes_nothing() {
    let shelf = Shelf::new(KeyedGeometry::new(qps(1000, 10, Counting::Strict), 4));
    assert!(shelf.hold(1, 5.0, 4, at(0)).is_some());
    let before = shelf.read(key(1));
    assert!(shelf.hold(1, 5.0, 2, at(3000)).is_none());
    assert!(!shelf.charge(1, 5.0, 2, at(3000)));
    assert_eq!(shelf.read(key(1)), before);
    let retry_after = Some(Duration::from_secs(1));
    assert_eq!(
        shelf.ask(key(1), &terms(5.0), 2, at(3000)),
        KeyVerdict::Block { retry_after }
    );
    let retry_after = None; // not even alone
    assert_eq!(
        shelf.ask(key(1), &terms(5.0), 6, at(3000)),
        KeyVerdict::Block { retry_after }
    );
}

#[test]
fn a_hold_takes_16_bytes_of_an_entry_and_none_once_it_is_settled() {
    let shelf = Shelf::new(KeyedGeometry::new(qps(1000, 20, Counting::Strict), 4));
    assert!(shelf.charge(1, 9.0, 1, at(0)));
    assert_eq!(shelf.bytes(), 40);
    let held = shelf.hold(1, 9.0, 2, at(0)).unwrap();
    let other = shelf.hold(1, 9.0, 3, at(0)).unwrap();
    assert_eq!(shelf.bytes(), 56);
    Holding::settle(&shelf, held, 2, 1, at(10));
    assert_eq!((shelf.bytes(), shelf.remaining(1, 9.0, at(10))), (56, 4));
    Holding::settle(&shelf, other, 3, 0, at(10));
    assert_eq!((shelf.bytes(), shelf.remaining(1, 9.0, at(10))), (40, 7));
}

#[test]
fn a_table_whose_keys_have_windows_of_their_own_takes_no_bytes_for_holds() {
    let hold = |holds: bool| {
        let table = KeyedWindows::new(
            KeyedGeometry::new(qps(1000, 20, Counting::Strict), 1000),
            SEED,
        );
        for number in 0..1000 {
            match holds {
                true => assert!(table.hold(number, 5.0, 2, at(0)).is_some()),
                false => assert!(table.charge(number, 5.0, 2, at(0))),
            }
        }
        table.bytes()
    };
    assert_eq!(hold(true), hold(false));
}

#[test]
fn shared_entries_of_a_table_take_8_bytes_a_key_for_holds() {
    let table = KeyedWindows::new(
        KeyedGeometry::new(qps(1000, 20, Counting::Strict), 1000),
        SEED,
    );
    for number in 0..1001 {
        assert!(table.charge(number, 5.0, 1, at(0)));
    }
    let (before, more) = (table.bytes(), table.geometry().max_bytes_more_if_held());
    assert!(table.hold(2000, 5.0, 2, at(0)).unwrap().handle.is_shared());
    assert_eq!((table.bytes() - before, more), (8000, 8000));
}

#[test]
fn no_flood_takes_the_window_of_a_key_that_holds() {
    let grade = qps(1000, 10, Counting::Strict);
    let (table, shelf) = (
        KeyedWindows::new(KeyedGeometry::new(grade, 8), SEED),
        Shelf::new(KeyedGeometry::new(grade, 4)),
    );
    for states in [&table as &dyn Holding, &shelf] {
        let held = states.hold(0, 5.0, 4, at(0)).unwrap();
        assert!(!held.handle.is_shared());
        for number in 1..10_000 {
            states.charge(number, 5.0, 1, at(number * 3));
        }
        assert_eq!(states.remaining(0, 5.0, at(40_000)), 1);
        states.settle(held, 4, 2, at(40_000));
        assert_eq!(states.remaining(0, 5.0, at(41_099)), 3);
        assert_eq!(states.remaining(0, 5.0, at(41_100)), 5);
    }
}

#[test]
fn a_hold_of_a_key_that_shared_counts_in_the_window_that_the_key_gets_later() {
    let grade = qps(1000, 10, Counting::Strict);
    let (table, shelf) = (
        KeyedWindows::new(KeyedGeometry::new(grade, 8), SEED),
        Shelf::new(KeyedGeometry::new(grade, 4)),
    );
    for states in [&table as &dyn Holding, &shelf] {
        for number in 0..8 {
            assert!(states.charge(number, 5.0, 1, at(0)));
        }
        let shared = states.hold(9, 5.0, 3, at(0)).unwrap();
        assert!(shared.handle.is_shared());
        // All windows are over, and the key gets one of its own.
        let own = states.hold(9, 5.0, 1, at(5000)).unwrap();
        assert!(!own.handle.is_shared());
        assert_eq!(states.remaining(9, 5.0, at(5000)), 1);
        assert!(states.hold(9, 5.0, 2, at(5000)).is_none());
        let asked = states.ask(9, 5.0, 2, at(5000));
        let retry_after = Some(Duration::from_secs(1));
        assert_eq!(asked, KeyVerdict::Block { retry_after });
        states.settle(shared, 3, 2, at(5000));
        assert_eq!(states.remaining(9, 5.0, at(5000)), 2);
        states.settle(own, 1, 0, at(5000));
        assert_eq!(states.remaining(9, 5.0, at(5000)), 3);
        assert_eq!(states.remaining(9, 5.0, at(6100)), 5);
    }
}

#[test]
fn more_than_was_held_is_charged_over_the_limit_and_blocks_until_it_has_left() {
    for states in both(qps(1000, 10, Counting::Strict)) {
        let held = states.hold(1, 5.0, 2, at(0)).unwrap();
        states.settle(held, 2, 1_000_000, at(50));
        assert_eq!(states.remaining(1, 5.0, at(1099)), 0);
        let retry_after = Some(Duration::from_millis(1000));
        assert_eq!(
            states.ask(1, 5.0, 1, at(100)),
            KeyVerdict::Block { retry_after }
        );
        assert_eq!(states.remaining(1, 5.0, at(1100)), 5);
        // An absurd cost counts as the largest count, and leaves as any other.
        let held = states.hold(1, 5.0, 2, at(2000)).unwrap();
        states.settle(held, 2, u64::MAX, at(2000));
        let held = states.hold(1, 5.0, 0, at(2000));
        assert!(held.is_none());
        assert_eq!(states.remaining(1, 9e15, at(2000)), 0);
        assert_eq!(states.remaining(1, 5.0, at(3100)), 5);
    }
}

#[test]
fn more_workers_than_an_entry_has_words_for_share_the_last() {
    let shelf = Shelf::new(KeyedGeometry::new(qps(1000, 20, Counting::Strict), 4));
    let hold = |worker| {
        shelf.pages.hold_as(Some(worker));
        shelf.hold(1, 99.0, 2, at(0)).unwrap()
    };
    let held: Vec<Reserved> = (0..12).map(hold).collect();
    assert_eq!(shelf.bytes(), 40 + 9 * 8);
    assert_eq!(shelf.remaining(1, 99.0, at(0)), 75);
    // What the first worker holds is told apart, what the last one holds is not.
    for (worker, left) in [(0, true), (11, false)] {
        let is_dead = |holder| holder == KeyedPages::holder_of(worker);
        let mut page = shelf.read(key(1)).1;
        assert_eq!(shelf.pages.settle_dead(&mut page, &is_dead, at(0)), left);
    }
    for held in held {
        Holding::settle(&shelf, held, 2, 1, at(0));
    }
    assert_eq!((shelf.bytes(), shelf.remaining(1, 99.0, at(0))), (40, 87));
}

#[test]
fn what_dead_workers_hold_is_settled_at_its_estimate_once() {
    let shelf = Shelf::new(KeyedGeometry::new(qps(1000, 10, Counting::Strict), 4));
    let hold = |worker, number, cost| {
        shelf.pages.hold_as(Some(worker));
        shelf.hold(number, 9.0, cost, at(0)).unwrap()
    };
    let (dead, alive) = (hold(7, 1, 3), hold(8, 1, 2));
    let other = hold(7, 2, 5);
    // These find their page full, and share.
    for number in 3..=8 {
        assert!(shelf.charge(number, 9.0, 1, at(0)));
    }
    let shared = hold(7, 9, 4);
    assert!(shared.handle.is_shared());
    let settle_dead = |now| {
        let is_dead = |holder| holder == KeyedPages::holder_of(7);
        let mut has_changed = false;
        let (version, mut page) = shelf.read(key(1));
        if shelf.pages.settle_dead(&mut page, &is_dead, at(now)) {
            has_changed = shelf.swap(key(1), version, page);
        }
        has_changed
    };
    assert!(settle_dead(50));
    assert!(!settle_dead(60));
    let left = |now| [1, 2, 9].map(|number| shelf.remaining(number, 9.0, at(now)));
    assert_eq!(left(60), [4, 4, 5]);
    assert_eq!(left(1099), [4, 4, 5]);
    assert_eq!(left(1100), [7, 9, 9]);
    // One that was only slow: it costs what it has cost, too.
    shelf.pages.hold_as(Some(9));
    let later = shelf.hold(1, 9.0, 1, at(1100)).unwrap();
    Holding::settle(&shelf, dead, 3, 2, at(1100));
    assert_eq!(left(1100), [4, 9, 9], "what others hold stays");
    for (held, cost) in [(alive, 2), (later, 1), (other, 5), (shared, 4)] {
        Holding::settle(&shelf, held, cost, 0, at(1100));
    }
    assert_eq!(left(1100), [7, 9, 9]);
}
