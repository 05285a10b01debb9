//! Every way to count, against a log of all admissions: first every short sequence of calls at the edges of buckets, under
//! clocks that go on, leap and step back; then long random ones.
//!
//! The log knows nothing of rings and running counts. It sums what it has to, one entry after another.

use crate::support::{at, buckets, count, rule};
use leapgate::backend::{LocalCounter, Past, RuleWindow, Store};
use leapgate::rule::{Count, Counting};
use leapgate::stats::Window;
use leapgate::{Decision, Engine, Request, Rules, Timestamp};
use std::rc::Rc;
use std::time::Duration;

const ALL: [Counting; 3] = [Counting::Strict, Counting::Sentinel, Counting::Weighted];

/// The last whole millisecond of the clock.
const END: u64 = Timestamp::MAX.as_millis();

/// A limit, in eighths: fractions are exact.
#[derive(Clone, Copy, Debug)]
struct Eighths(u64);

impl Eighths {
    fn count(self) -> Count {
        count(self.0 as f64 / 8.0)
    }
}

/// Admissions, by the bucket that they count in. Times and lengths in milliseconds.
#[derive(Debug)]
struct Model {
    counting: Counting,
    buckets: u64,
    length: u64,
    newest: Option<u64>,
    log: Vec<(u64, u64)>,
}

impl Model {
    fn new(window: Window, counting: Counting) -> Model {
        let length = window.interval_ms() / u64::from(window.sample_count());
        Model {
            counting,
            buckets: window.sample_count().into(),
            length,
            newest: None,
            log: Vec::new(),
        }
    }

    fn interval(&self) -> u64 {
        self.buckets * self.length
    }

    /// Whether what counts in the bucket `start` is among the last `buckets` of them at the bucket `current`.
    fn is_among(&self, buckets: u64, start: u64, current: u64) -> bool {
        start <= current && start + buckets * self.length > current
    }

    fn advance(&mut self, now: u64) {
        let start = now - now % self.length;
        match self.newest {
            Some(newest) if now < newest && newest - now < self.interval() => return,
            Some(newest) if now < newest => {
                // What counts, and what has just left, counts from here on.
                let mut log = std::mem::take(&mut self.log);
                log.retain(|(bucket, _)| self.is_among(self.buckets + 1, *bucket, newest));
                self.log = log.iter().map(|(_, cost)| (start, *cost)).collect();
            }
            _ => {
                let mut log = std::mem::take(&mut self.log);
                log.retain(|(bucket, _)| self.is_among(self.buckets + 2, *bucket, start));
                self.log = log;
            }
        }
        self.newest = Some(start);
    }

    /// The sum at `now`, in parts of which a bucket's length makes one.
    fn sum(&self, now: u64) -> u64 {
        let now = self.newest.map_or(now, |newest| now.max(newest));
        let current = now - now % self.length;
        let last = |buckets| -> u64 {
            self.log
                .iter()
                .filter(|(bucket, _)| self.is_among(buckets, *bucket, current))
                .map(|(_, cost)| cost)
                .sum()
        };
        let (counting, with_leaving) = (last(self.buckets), last(self.buckets + 1));
        match self.counting {
            Counting::Strict => with_leaving * self.length,
            Counting::Sentinel => counting * self.length,
            Counting::Weighted => {
                counting * self.length + (with_leaving - counting) * (self.length - (now - current))
            }
        }
    }

    /// Whether the clock ends before anything leaves.
    fn clock_ends(&self, now: u64) -> bool {
        self.newest.map_or(now, |newest| now.max(newest)) + (self.buckets + 2) * self.length > END
    }

    fn fits(&self, limit: Eighths, cost: u64, now: u64) -> bool {
        8 * (self.sum(now) + cost * self.length) <= limit.0 * self.length
    }

    /// Lets `cost` in if it fits.
    fn enter(&mut self, limit: Eighths, cost: u64, now: u64) -> bool {
        self.advance(now);
        let fits = self.fits(limit, cost, now);
        if fits {
            self.log.push((self.newest.unwrap(), cost));
        }
        fits
    }

    #[track_caller]
    fn check_sum(&self, sum: f64, now: u64, on: &dyn std::fmt::Debug) {
        let expected = self.sum(now) as f64 / self.length as f64;
        assert!(
            (sum - expected).abs() < 1e-6,
            "sum {sum} at {now}, expected {expected}\n{on:?}\n{self:?}"
        );
    }

    /// Whether `wait` is the time until `cost` fits, if nothing else comes.
    #[track_caller]
    fn check_wait(
        &self,
        limit: Eighths,
        cost: u64,
        now: u64,
        wait: Option<Duration>,
        on: &dyn std::fmt::Debug,
    ) {
        if self.clock_ends(now) {
            return;
        }
        let Some(wait) = wait else {
            return assert!(
                8 * cost > limit.0,
                "never, at {now}, for {cost} of {limit:?}\n{on:?}\n{self:?}"
            );
        };
        assert_eq!(wait.subsec_nanos() % 1_000_000, 0, "{wait:?} at {now}");
        let wait = wait.as_millis() as u64;
        let fits = |wait| self.fits(limit, cost, now + wait);
        assert!(
            fits(wait),
            "{wait} ms at {now} is too early for {cost} of {limit:?}\n{on:?}\n{self:?}"
        );
        assert!(
            wait == 0 || !fits(wait - 1),
            "{wait} ms at {now} is late for {cost} of {limit:?}\n{on:?}\n{self:?}"
        );
    }

    /// Whether `wait` is the time until the sum first falls.
    #[track_caller]
    fn check_more(&self, now: u64, wait: Duration, on: &dyn std::fmt::Debug) {
        if self.clock_ends(now) {
            return;
        }
        let (used, wait) = (self.sum(now), wait.as_millis() as u64);
        let more = |wait| used == 0 || self.sum(now + wait) < used;
        assert!(
            more(wait),
            "{wait} ms at {now}: nothing has come back\n{on:?}\n{self:?}"
        );
        assert!(
            wait == 0 || !more(wait - 1),
            "{wait} ms at {now}: something has come back before\n{on:?}\n{self:?}"
        );
    }
}

/// Admissions by elapsed time: the sum of the clock's steps forward. A step back takes no time.
#[derive(Default)]
struct Elapsed {
    now: Option<u64>,
    elapsed: u64,
    stepped_far: bool,
    passes: Vec<(u64, u64)>,
}

impl Elapsed {
    fn reach(&mut self, now: u64, interval: u64) {
        let before = self.now.unwrap_or(now);
        self.elapsed += now.saturating_sub(before);
        self.stepped_far |= before.saturating_sub(now) >= interval;
        self.now = Some(now);
    }

    /// The most in any stretch of time shorter than `interval`, at any alignment.
    fn most(&self, interval: u64) -> u64 {
        let (mut most, mut sum, mut first) = (0, 0, 0);
        for (elapsed, cost) in &self.passes {
            sum += cost;
            while self.passes[first].0 + interval <= *elapsed {
                sum -= self.passes[first].1;
                first += 1;
            }
            most = most.max(sum);
        }
        most
    }

    /// The guarantee of each way to count.
    #[track_caller]
    fn check(&self, window: Window, counting: Counting, limit: Eighths, on: &dyn std::fmt::Debug) {
        let times = match counting {
            Counting::Strict => 1,
            // A single bucket that has been taken along by a clock leaves a moment later.
            _ if window.sample_count() == 1 && self.stepped_far => return,
            _ => 2,
        };
        let most = self.most(window.interval_ms());
        assert!(
            8 * most <= times * limit.0,
            "{most} of {limit:?} in an interval: {:?}\n{on:?}",
            self.passes
        );
    }
}

/// A window under test, its model, and what both were asked.
struct Run {
    window: Window,
    limit: Eighths,
    rule: RuleWindow<LocalCounter>,
    model: Model,
    elapsed: Elapsed,
}

impl Run {
    fn new(window: Window, counting: Counting, limit: Eighths) -> Run {
        let rule = RuleWindow::new(window, counting, LocalCounter::default(), Past::Fresh);
        Run {
            window,
            limit,
            rule,
            model: Model::new(window, counting),
            elapsed: Elapsed::default(),
        }
    }

    #[track_caller]
    fn enter(&mut self, cost: u64, now: u64) {
        let (limit, rule) = (self.limit, &self.rule);
        self.elapsed.reach(now, self.window.interval_ms());
        rule.advance(at(now));
        let passes = rule.has_room(limit.count(), cost, at(now));
        assert_eq!(
            rule.reserve(limit.count(), cost, at(now)),
            passes,
            "{cost} at {now}: {rule:?}"
        );
        if passes {
            rule.admit(cost);
            self.elapsed.passes.push((self.elapsed.elapsed, cost));
        }
        let expected = self.model.enter(limit, cost, now);
        assert_eq!(
            passes, expected,
            "{cost} of {limit:?} at {now}\n{rule:?}\n{:?}",
            self.model
        );
        for ahead in [0, 1, self.model.length, self.window.interval_ms()] {
            let then = (now + ahead).min(END);
            self.model.check_sum(rule.sum(at(then)), then, rule);
        }
        self.model.check_wait(
            limit,
            cost,
            now,
            rule.time_to_room(limit.count(), cost, at(now)),
            rule,
        );
        self.model.check_more(now, rule.time_to_more(at(now)), rule);
        self.elapsed
            .check(self.window, self.model.counting, limit, &rule);
    }
}

/// Where the clock may be next: on either side of the edges, leaping and stepping back, by little and by more than an interval.
fn moves(now: u64, window: Window) -> Vec<u64> {
    let (interval, length) = (
        window.interval_ms(),
        window.interval_ms() / u64::from(window.sample_count()),
    );
    let edge = now - now % length + length;
    let mut moves = vec![
        now,
        edge - 1,
        edge,
        edge + 1,
        now + interval - 1,
        now + interval,
        now + interval + length,
    ];
    moves.extend(
        [1, length, interval - 1, interval, interval + length + 1]
            .map(|back| now.saturating_sub(back)),
    );
    moves.sort_unstable();
    moves.dedup();
    moves
}

/// A time and a cost.
type Call = (u64, u64);

/// Calls `visit` with every sequence of `depth` calls, each a time and a cost of 1 or 2.
fn every_sequence(first: u64, window: Window, depth: usize, visit: &mut dyn FnMut(&[Call])) {
    fn extend(calls: &mut Vec<Call>, window: Window, depth: usize, visit: &mut dyn FnMut(&[Call])) {
        if depth == 0 {
            return visit(calls);
        }
        for now in moves(calls.last().unwrap().0, window) {
            for cost in [1, 2] {
                calls.push((now, cost));
                extend(calls, window, depth - 1, visit);
                calls.pop();
            }
        }
    }
    for cost in [1, 2] {
        extend(&mut vec![(first, cost)], window, depth - 1, visit);
    }
}

/// Instants to begin at: zero, on both sides of an edge, far from zero, and where the clock ends.
fn beginnings(window: Window) -> [u64; 5] {
    let far = 1_700_000_000_000 / window.interval_ms() * window.interval_ms();
    [0, 1, far - 1, far, END - window.interval_ms() * 4]
}

#[track_caller]
fn replay_every_sequence(counting: Counting) {
    let mut sequences = 0;
    for sample_count in 1..=3 {
        let window = buckets(sample_count, 3);
        let mut replay = |limit, first, depth| {
            every_sequence(first, window, depth, &mut |calls| {
                sequences += 1;
                let mut run = Run::new(window, counting, limit);
                calls.iter().for_each(|(now, cost)| run.enter(*cost, *now));
            });
        };
        let [zero, one, before_edge, edge, end] = beginnings(window);
        for limit in [8, 16, 28].map(Eighths) {
            [zero, one, before_edge, edge, end]
                .into_iter()
                .for_each(|first| replay(limit, first, 3));
        }
        [zero, before_edge]
            .into_iter()
            .for_each(|first| replay(Eighths(16), first, 4));
    }
    assert!(sequences > 100_000, "{sequences}");
}

#[test]
fn every_short_sequence_of_a_strict_window_is_as_the_log_says() {
    replay_every_sequence(Counting::Strict);
}

#[test]
fn every_short_sequence_of_a_sentinel_window_is_as_the_log_says() {
    replay_every_sequence(Counting::Sentinel);
}

#[test]
fn every_short_sequence_of_a_weighted_window_is_as_the_log_says() {
    replay_every_sequence(Counting::Weighted);
}

/// The next instant of a random clock: mostly on, often standing still, at times on an edge, now and then far ahead or back.
fn wander(random: &mut fastrand::Rng, now: u64, window: Window) -> u64 {
    let (interval, length) = (
        window.interval_ms(),
        window.interval_ms() / u64::from(window.sample_count()),
    );
    let next = match random.u8(0..100) {
        0..30 => now,
        30..40 => now - now % length + length - random.u64(0..2),
        40..43 => now + interval - 1 + random.u64(0..3),
        43 => now + 86_400_000,
        44 => now + interval + random.u64(0..2 * length),
        45..48 => now.saturating_sub(random.u64(0..length + 1)),
        48 => now.saturating_sub(random.u64(0..interval)),
        49 => now.saturating_sub(interval + random.u64(0..2 * interval)),
        _ => now + random.u64(0..length.div_ceil(2) + 1),
    };
    next.min(END)
}

#[test]
fn long_random_sequences_are_as_the_log_says() {
    for seed in 0..45 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (sample_count, length) = random
            .choice([(1, 7), (2, 500), (3, 4), (10, 100), (60, 1000), (100, 10)])
            .unwrap();
        let window = buckets(sample_count, length);
        let limit = Eighths(random.u64(4..400));
        let mut run = Run::new(window, ALL[seed as usize % 3], limit);
        let mut now = random.choice(beginnings(window)).unwrap();
        for _ in 0..1500 {
            now = wander(&mut random, now, window);
            let cost = if random.u8(0..8) == 0 {
                random.u64(0..6)
            } else {
                1
            };
            let before = run.elapsed.passes.len();
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run.enter(cost, now)))
                .unwrap_or_else(|_| {
                    panic!("seed {seed}, after {before} passes, {window:?} {limit:?}")
                });
        }
    }
}

#[test]
fn the_clock_may_stand_at_its_very_end() {
    for counting in ALL {
        for sample_count in [1, 2, 10] {
            let window = buckets(sample_count, 100);
            let rule = RuleWindow::new(window, counting, LocalCounter::default(), Past::Fresh);
            let mut admitted = 0;
            for now in [END - 1, END]
                .into_iter()
                .map(at)
                .chain([Timestamp::MAX; 20])
            {
                rule.advance(now);
                if rule.has_room(count(3.0), 1, now) && rule.reserve(count(3.0), 1, now) {
                    rule.admit(1);
                    admitted += 1;
                }
                let _ = (
                    rule.time_to_room(count(3.0), 1, now),
                    rule.time_to_more(now),
                    rule.sum(now),
                );
            }
            assert_eq!(admitted, 3, "{rule:?}");
        }
    }
}

/// An engine of one rule, held against the log: decisions, what remains, and when to try again.
fn run_engine(
    window: Window,
    counting: Counting,
    limit: Eighths,
    calls: impl IntoIterator<Item = Call>,
) {
    let rule = rule("r", "api", limit.count().get())
        .per(window.interval_ms(), Some(window.sample_count()))
        .unwrap();
    let rules = Rules {
        flow: vec![rule.counting(counting)],
        ..Rules::default()
    };
    let engine = Engine::with_store(
        Rc::new(Store::without_statistics(leapgate::backend::Local)),
        rules,
    )
    .unwrap();
    let api = engine.resource("api");
    let (mut model, mut elapsed) = (Model::new(window, counting), Elapsed::default());
    for (now, cost) in calls {
        elapsed.reach(now, window.interval_ms());
        let expected = model.enter(limit, cost, now);
        let request = Request::new("api").cost(cost as u32);
        match engine.enter_resource(&api, &request, at(now)) {
            Decision::Pass(_) => {
                assert!(expected, "let in: {cost} of {limit:?} at {now}: {model:?}");
                elapsed.passes.push((elapsed.elapsed, cost));
            }
            Decision::Wait(wait, _) => panic!("has to wait for {wait:?}"),
            Decision::Block(blocked) => {
                assert!(
                    !expected,
                    "refused: {cost} of {limit:?} at {now}: {model:?}"
                );
                model.check_wait(limit, cost, now, blocked.retry_after(), &blocked);
            }
        }
        let policy = api.policies(at(now)).next().unwrap();
        let left = (limit.0 * model.length).saturating_sub(8 * model.sum(now)) / (8 * model.length);
        assert_eq!(policy.remaining, left, "at {now}: {model:?}");
        match left {
            0 if limit.0 < 8 => {} // not even one fits, ever
            0 => model.check_wait(limit, 1, now, Some(policy.reset), &policy),
            _ => model.check_more(now, policy.reset, &policy),
        }
        elapsed.check(window, counting, limit, &model);
    }
}

#[test]
fn every_short_sequence_of_an_engine_is_as_the_log_says() {
    for counting in ALL {
        for sample_count in 1..=3 {
            let window = buckets(sample_count, 3);
            for first in beginnings(window) {
                every_sequence(first, window, 3, &mut |calls| {
                    run_engine(window, counting, Eighths(16), calls.iter().copied());
                });
            }
        }
    }
}

#[test]
fn long_random_sequences_of_an_engine_are_as_the_log_says() {
    for seed in 0..30 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (sample_count, length) = random
            .choice([(1, 1000), (2, 500), (10, 100), (20, 3), (100, 600)])
            .unwrap();
        let window = buckets(sample_count, length);
        let mut now = random.choice(beginnings(window)).unwrap();
        let limit = Eighths(random.u64(8..200));
        let calls: Vec<Call> = (0..1000)
            .map(|_| {
                now = wander(&mut random, now, window);
                (
                    now,
                    if random.u8(0..8) == 0 {
                        random.u64(0..6)
                    } else {
                        1
                    },
                )
            })
            .collect();
        std::panic::catch_unwind(|| run_engine(window, ALL[seed as usize % 3], limit, calls))
            .unwrap_or_else(|_| panic!("seed {seed}, {window:?} {limit:?}"));
    }
}

/// Three rules of different lengths and ways to count, and a limit on calls in flight that end at once.
fn several(random: &mut fastrand::Rng) -> Rules {
    let mut flow = vec![rule("in flight", "api", 6.0).concurrency()];
    for (i, (interval, sample_count)) in [(1000, 10), (400, 4), (3000, 3)].into_iter().enumerate() {
        let limit = random.u64(8..80) as f64 / 8.0;
        let rule = rule(&i.to_string(), "api", limit)
            .per(interval, Some(sample_count))
            .unwrap();
        flow.push(rule.counting(random.choice(ALL).unwrap()));
    }
    random.shuffle(&mut flow);
    Rules {
        flow,
        ..Rules::default()
    }
}

/// Calls under a clock that goes on.
fn calls(random: &mut fastrand::Rng, number: usize) -> Vec<Call> {
    let mut now = random.u64(0..10_000);
    let call = |_| {
        now += if random.bool() { 0 } else { random.u64(0..300) };
        (now, random.u64(1..4))
    };
    (0..number).map(call).collect()
}

fn enter(engine: &Engine, (now, cost): Call) -> Decision {
    engine.enter(&Request::new("api").cost(cost as u32), at(now))
}

#[test]
fn the_time_to_try_again_is_exact_where_several_rules_refuse() {
    let mut waits = 0;
    for seed in 0..200 {
        let mut random = fastrand::Rng::with_seed(seed);
        let rules = several(&mut random);
        let calls = calls(&mut random, 40);
        for refused in 0..calls.len() {
            let again = || {
                let engine = Engine::new(rules.clone()).unwrap();
                let last = calls[..=refused]
                    .iter()
                    .map(|call| enter(&engine, *call))
                    .last();
                (engine, last.unwrap())
            };
            let (engine, Decision::Block(blocked)) = again() else {
                continue;
            };
            let (now, cost) = calls[refused];
            let Some(wait) = blocked.retry_after() else {
                let day = now + 86_400_000;
                assert!(
                    matches!(enter(&engine, (day, cost)), Decision::Block(_)),
                    "seed {seed}, {refused}: {blocked:?}"
                );
                continue;
            };
            waits += 1;
            let then = now + wait.as_millis() as u64;
            assert!(
                matches!(enter(&engine, (then - 1, cost)), Decision::Block(_)),
                "seed {seed}, {refused}: {blocked:?}"
            );
            let passes = matches!(enter(&again().0, (then, cost)), Decision::Pass(_));
            assert!(passes, "seed {seed}, {refused}: {blocked:?}");
        }
    }
    assert!(waits > 1000, "{waits}");
}

#[test]
fn what_is_refused_might_as_well_not_have_come() {
    for seed in 0..100 {
        let mut random = fastrand::Rng::with_seed(seed);
        let rules = several(&mut random);
        let (all, admitted) = (
            Engine::new(rules.clone()).unwrap(),
            Engine::new(rules).unwrap(),
        );
        let left = |engine: &Engine, now| -> Vec<u64> {
            engine
                .resource("api")
                .policies(at(now))
                .map(|policy| policy.remaining)
                .collect()
        };
        for call in calls(&mut random, 200) {
            if matches!(enter(&all, call), Decision::Pass(_)) {
                assert!(
                    matches!(enter(&admitted, call), Decision::Pass(_)),
                    "seed {seed}, {call:?}"
                );
            }
            assert_eq!(
                left(&all, call.0),
                left(&admitted, call.0),
                "seed {seed}, {call:?}"
            );
        }
    }
}

/// What passes in a hundred intervals of a clock that never tires, as a share of what the limit allows.
fn share_at_saturation(window: Window, counting: Counting, limit: f64) -> f64 {
    let rule = RuleWindow::new(window, counting, LocalCounter::default(), Past::Fresh);
    let (mut admitted, end) = (0, 100 * window.interval_ms());
    for now in 0..end {
        rule.advance(at(now));
        while rule.has_room(count(limit), 1, at(now)) && rule.reserve(count(limit), 1, at(now)) {
            rule.admit(1);
            admitted += 1;
        }
    }
    f64::from(admitted) / (limit * 100.0)
}

#[test]
fn at_saturation_a_strict_window_of_n_buckets_admits_n_of_n_plus_1_and_the_others_all() {
    for sample_count in [1, 2, 10, 50] {
        let window = Window::new(100, sample_count).unwrap();
        let n = f64::from(sample_count);
        for (counting, share) in [
            (Counting::Strict, n / (n + 1.0)),
            (Counting::Sentinel, 1.0),
            (Counting::Weighted, 1.0),
        ] {
            let found = share_at_saturation(window, counting, 200.0);
            assert!(
                (found - share).abs() < 0.012,
                "{counting:?}, {sample_count} buckets: {found}, expected {share}"
            );
        }
    }
}

/// Under a random load of a steady rate: how far the sum of a weighted window lies from the number of passes in the interval
/// up to now, on average, as a share of that number's mean.
fn mean_error(counting: Counting, sample_count: u32, per_second: f64) -> f64 {
    let window = Window::new(1000, sample_count).unwrap();
    let rule = RuleWindow::new(window, counting, LocalCounter::default(), Past::Fresh);
    let mut random = fastrand::Rng::with_seed(1);
    let mut log: std::collections::VecDeque<f64> = std::collections::VecDeque::new();
    let (mut now, mut errors, mut true_sums, mut reads) = (0.0, 0.0, 0.0, 0.0);
    while now < 120_000.0 {
        now += -(1.0 - random.f64()).ln() * 1000.0 / per_second;
        let time = Timestamp::from_nanos((now * 1e6) as u64);
        rule.advance(time);
        assert!(rule.reserve(count(1e9), 1, time));
        rule.admit(1);
        log.push_back(now);
        let read_at = now + random.f64() * 1000.0 / per_second;
        while log.front().is_some_and(|first| *first <= read_at - 1000.0) {
            log.pop_front();
        }
        if now > 2000.0 {
            errors +=
                (rule.sum(Timestamp::from_nanos((read_at * 1e6) as u64)) - log.len() as f64).abs();
            true_sums += log.len() as f64;
            reads += 1.0;
        }
    }
    errors / reads / (true_sums / reads)
}

/// The figures that the documentation states.
#[test]
fn a_weighted_window_lies_close_to_a_true_log() {
    for (sample_count, per_second, bound) in [
        (2, 100.0, 0.025),
        (10, 100.0, 0.012),
        (100, 100.0, 0.004),
        (10, 1000.0, 0.004),
    ] {
        let weighted = mean_error(Counting::Weighted, sample_count, per_second);
        let sentinel = mean_error(Counting::Sentinel, sample_count, per_second);
        let strict = mean_error(Counting::Strict, sample_count, per_second);
        println!(
            "mean error against a log at {per_second} a second in {sample_count} buckets: weighted {:.2} %, sentinel {:.2} %, strict {:.2} %",
            100.0 * weighted,
            100.0 * sentinel,
            100.0 * strict,
        );
        assert!(
            weighted < bound,
            "{sample_count} buckets at {per_second} a second: {weighted}"
        );
        assert!(
            weighted < sentinel,
            "{sample_count} buckets: {weighted}, and as Sentinel counts {sentinel}"
        );
    }
}
