//! Several workers of one process, which have nothing in common but two counters for each rule: each has an engine of its
//! own, as each worker of Envoy has a virtual machine of its own.
//!
//! Workers are threads that run one at a time. They switch only at calls of the host, where workers of a real host can
//! interfere. A schedule says which worker is next, so that a failure can be repeated.

use crate::support::{at, rule, rules};
use leapgate::backend::{
    Backend, BreakerKey, KeyedGeometry, KeyedWindows, Local, LocalBreaker, Past, SharedInstant,
    Snapshots, StateKey, Store, Counter,
};
use leapgate::rule::{AtMost, Cost, Counting, FlowRule, MaxQueueing, Unit};
use leapgate::{Decision, Engine, Outcome, Request, Timestamp};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Which worker is next.
enum Schedule {
    Random(fastrand::Rng),
    /// A bit for each call: the first worker's, or the second's.
    Listed(u64),
}

struct State {
    turn: usize,
    alive: Vec<bool>,
    schedule: Schedule,
    /// In milliseconds. It goes on at one call of `hurry`.
    now: u64,
    hurry: u64,
    reserved: u64,
    admitted: u64,
    latest: Option<Timestamp>,
    published: Option<Snapshots>,
    /// Whether a worker has slept since its last request.
    slept: Vec<bool>,
    passes: Vec<Span>,
    waits: usize,
    in_flight: u64,
    most_in_flight: u64,
    refused: usize,
    calls: usize,
}

/// An admitted request: when it came, and when it had its answer.
#[derive(Clone, Copy, Debug)]
struct Span {
    from: u64,
    to: u64,
}

struct Process {
    state: Mutex<State>,
    changed: Condvar,
}

impl Process {
    fn new(workers: usize, schedule: Schedule, now: u64, hurry: u64) -> Arc<Process> {
        let state = State {
            turn: 0,
            alive: vec![true; workers],
            schedule,
            now,
            hurry,
            reserved: 0,
            admitted: 0,
            latest: None,
            published: None,
            slept: vec![false; workers],
            passes: Vec::new(),
            waits: 0,
            in_flight: 0,
            most_in_flight: 0,
            refused: 0,
            calls: 0,
        };
        Arc::new(Process {
            state: Mutex::new(state),
            changed: Condvar::new(),
        })
    }

    /// One call of the host by `worker`, when it is its turn. Then it is another's.
    fn call<R>(&self, worker: usize, act: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.state.lock().unwrap();
        while state.turn != worker {
            state = self.changed.wait(state).unwrap();
        }
        let result = act(&mut state);
        state.pass_on();
        self.changed.notify_all();
        result
    }

    fn done(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

impl State {
    fn pass_on(&mut self) {
        self.calls += 1;
        let alive: Vec<usize> = (0..self.alive.len())
            .filter(|worker| self.alive[*worker])
            .collect();
        let next = match &mut self.schedule {
            Schedule::Random(random) => {
                self.now += if random.u64(0..self.hurry) == 0 {
                    random.u64(1..4)
                } else {
                    0
                };
                // Mostly the same worker goes on; now and then one is kept waiting for long.
                let same = self.alive[self.turn] && random.u8(0..3) > 0;
                if same {
                    Some(self.turn)
                } else {
                    random.choice(alive.iter().copied())
                }
            }
            Schedule::Listed(bits) => {
                self.now += u64::from((self.calls as u64).is_multiple_of(self.hurry));
                let next = (*bits & 1) as usize;
                *bits >>= 1;
                if self.alive[next] {
                    Some(next)
                } else {
                    alive.first().copied()
                }
            }
        };
        self.turn = next.unwrap_or(0);
    }
}

/// Lets the others go on if a worker has panicked, so that its panic is shown instead of a test that never ends.
struct Leaving<'a> {
    process: &'a Process,
    worker: usize,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let mut state = self
                .process
                .state
                .lock()
                .unwrap_or_else(|poisoned| poisoned.into_inner());
            state.alive[self.worker] = false;
            if state.turn == self.worker {
                state.pass_on();
            }
            self.process.changed.notify_all();
        }
    }
}

/// The counters of the process, as one worker has them.
struct Gauges {
    process: Arc<Process>,
    worker: usize,
}

impl Counter for Gauges {
    fn admitted(&self) -> Option<u64> {
        Some(self.process.call(self.worker, |state| state.admitted))
    }

    fn reserved(&self) -> u64 {
        self.process.call(self.worker, |state| state.reserved)
    }

    /// Two calls, as of a gauge: others come between.
    fn reserve(&self, n: u64) -> Option<u64> {
        self.process.call(self.worker, |state| state.reserved += n);
        Some(self.process.call(self.worker, |state| state.reserved))
    }

    fn release(&self, n: u64) {
        self.process.call(self.worker, |state| state.reserved -= n);
    }

    fn admit(&self, n: u64) {
        self.process.call(self.worker, |state| state.admitted += n);
    }

    fn latest(&self) -> &impl SharedInstant {
        self
    }

    fn published(&self) -> Option<Past> {
        if !std::mem::take(&mut self.process.done().slept[self.worker]) {
            return None;
        }
        let kept = self
            .process
            .call(self.worker, |state| state.published.clone())?;
        Some(Past::Kept(kept))
    }
}

/// How far the turns of the process's throttle reach.
impl SharedInstant for Gauges {
    fn get(&self) -> Option<Timestamp> {
        self.process.call(self.worker, |state| state.latest)
    }

    fn swap(&self, from: Option<Timestamp>, to: Option<Timestamp>) -> bool {
        self.process.call(self.worker, |state| {
            let is_from = state.latest == from;
            if is_from {
                state.latest = to;
            }
            is_from
        })
    }
}

/// What a worker knows of the past when it starts.
#[derive(Clone, Copy)]
enum Birth {
    /// With the process.
    First,
    /// Later, with an unknown past.
    Later,
    /// Later, and it continues from what another worker has published.
    Informed,
}

struct Born {
    process: Arc<Process>,
    worker: usize,
    birth: Birth,
}

impl Backend for Born {
    type Counter = Gauges;
    type Keyed = KeyedWindows;
    type Breaker = LocalBreaker;

    fn open(&self, _: &StateKey) -> (Gauges, Past) {
        let gauges = Gauges {
            process: Arc::clone(&self.process),
            worker: self.worker,
        };
        let unknown = || Past::Unknown {
            admitted: gauges.admitted().unwrap(),
        };
        let published = || {
            self.process
                .call(self.worker, |state| state.published.clone())
        };
        let past = match self.birth {
            Birth::First => Past::Fresh,
            Birth::Later => unknown(),
            Birth::Informed => published().map_or_else(unknown, Past::Kept),
        };
        (gauges, past)
    }

    fn open_keyed(&self, key: &StateKey, geometry: &KeyedGeometry) -> KeyedWindows {
        Local.open_keyed(key, geometry)
    }

    fn open_breaker(&self, _: &BreakerKey) -> LocalBreaker {
        LocalBreaker::default()
    }
}

/// The order in which a worker reads the count and the clock.
#[derive(Clone, Copy, PartialEq)]
enum Order {
    ObserveFirst,
    ClockFirst,
}

#[derive(Clone)]
struct Plan {
    limit: usize,
    interval: u64,
    /// How a window counts; `None` for a limit on calls in flight.
    counting: Option<Counting>,
    /// How long a request may wait for its turn, where they take turns: `limit` in an interval.
    queue_ms: Option<u64>,
    /// Whether requests may borrow.
    prioritized: bool,
    order: Order,
    requests: usize,
    births: Vec<Birth>,
    /// Whether workers publish what they know and rest after some of their requests.
    sleeps: bool,
}

impl Plan {
    fn rule(&self) -> FlowRule {
        let rule = rule("r", "api", self.limit as f64);
        if let Some(millis) = self.queue_ms {
            let queue = MaxQueueing::from_millis(millis).unwrap();
            return rule.per(self.interval, None).unwrap().throttle(queue);
        }
        match self.counting {
            Some(counting) => rule.per(self.interval, Some(4)).unwrap().counting(counting),
            None => rule.concurrency(),
        }
    }
}

/// One worker: so many requests, one after another.
fn work(process: &Arc<Process>, worker: usize, plan: &Plan) {
    let _leaving = Leaving { process, worker };
    let birth = plan.births[worker];
    if !matches!(birth, Birth::First) {
        (0..40 * worker).for_each(|_| process.call(worker, |_| {})); // it is born later
    }
    let store = Store::without_statistics(Born {
        process: Arc::clone(process),
        worker,
        birth,
    });
    let engine = Engine::with_store(Rc::new(store), rules([plan.rule()])).unwrap();
    let api = engine.resource("api");
    for _ in 0..plan.requests {
        let clock = || process.call(worker, |state| state.now);
        let from = match plan.order {
            Order::ObserveFirst => {
                api.observe();
                clock()
            }
            Order::ClockFirst => {
                let from = clock();
                api.observe();
                from
            }
        };
        let request = Request::new("api");
        let request = if plan.prioritized {
            request.prioritized()
        } else {
            request
        };
        match engine.enter_resource(&api, &request, at(from)) {
            Decision::Pass(entry) => {
                process.call(worker, |state| {
                    state.passes.push(Span {
                        from,
                        to: state.now,
                    });
                    state.in_flight += 1;
                    state.most_in_flight = state.most_in_flight.max(state.in_flight);
                });
                process.call(worker, |state| state.in_flight -= 1);
                entry.exit(Outcome::Success, at(from));
            }
            Decision::Wait(_, entry) => {
                let release = entry.release().as_millis();
                process.call(worker, |state| {
                    state.waits += 1;
                    state.passes.push(Span {
                        from: release,
                        to: release.max(state.now),
                    });
                });
                entry.exit(Outcome::Success, at(from));
            }
            Decision::Block(_) => process.call(worker, |state| state.refused += 1),
        }
        if plan.sleeps && from % 3 == 0 {
            fall_asleep(process, worker, &engine);
        } else if worker == 0 && !plan.sleeps {
            engine.store().for_each_state(0, 1, |state| {
                let snapshots = state.window().and_then(|window| window.snapshots());
                process.call(worker, |state| state.published = snapshots);
            });
        }
    }
    process.call(worker, |state| state.alive[worker] = false);
}

/// A worker brings its window up to date and publishes it, unless another has published one that knows of more.
fn fall_asleep(process: &Arc<Process>, worker: usize, engine: &Engine<Born>) {
    engine.store().for_each_state(0, 1, |state| {
        state.observe();
        let now = process.call(worker, |state| state.now);
        state.advance(at(now));
        let window = state.window().unwrap();
        let (Some(own), before) = (
            window.snapshots(),
            process.call(worker, |state| state.published.clone()),
        ) else {
            return;
        };
        if before
            .as_ref()
            .is_some_and(|kept| kept.counts[0] > own.counts[0])
        {
            return;
        }
        let is_told = process.call(worker, |state| {
            let is_unchanged = state.published == before;
            if is_unchanged {
                state.published = Some(own);
                state.slept[worker] = true;
            }
            is_unchanged
        });
        if is_told {
            window.rest();
        }
    });
}

fn run(schedule: Schedule, hurry: u64, plan: &Plan) -> Arc<Process> {
    let process = Process::new(plan.births.len(), schedule, 1000, hurry);
    std::thread::scope(|scope| {
        for worker in 0..plan.births.len() {
            let process = &process;
            scope.spawn(move || work(process, worker, plan));
        }
    });
    process
}

/// The most requests that lie wholly in any stretch of `interval`.
fn most_within(passes: &[Span], interval: u64) -> usize {
    let wholly = |from: u64| {
        passes
            .iter()
            .filter(|span| span.from >= from && span.to < from + interval)
            .count()
    };
    passes
        .iter()
        .map(|span| wholly(span.from))
        .max()
        .unwrap_or(0)
}

const INTERVAL: u64 = 40;
const LIMIT: usize = 4;

fn plan(counting: Counting, workers: usize) -> Plan {
    Plan {
        limit: LIMIT,
        interval: INTERVAL,
        counting: Some(counting),
        queue_ms: None,
        prioritized: false,
        order: Order::ObserveFirst,
        requests: 60,
        births: vec![Birth::First; workers],
        sleeps: false,
    }
}

/// Runs `plan` under many random schedules. Returns the most admissions of any in one interval, and how many requests passed in
/// all.
#[track_caller]
fn worst(plan: &Plan, schedules: u64) -> (usize, usize) {
    let (mut worst, mut passes, mut refused) = (0, 0, 0);
    for seed in 0..schedules {
        let process = run(
            Schedule::Random(fastrand::Rng::with_seed(seed)),
            1 + seed % 4,
            plan,
        );
        let state = process.done();
        worst = worst.max(most_within(&state.passes, INTERVAL));
        passes += state.passes.len();
        assert_eq!(
            state.admitted, state.reserved,
            "schedule {seed}: no worker keeps a reservation"
        );
        assert_eq!(state.admitted, state.passes.len() as u64, "schedule {seed}");
        refused += state.refused;
    }
    assert!(refused > 0, "too little is asked for");
    (worst, passes)
}

/// Under many schedules, this many workers never admit more than `most` in an interval.
#[track_caller]
fn let_in_at_most(most: usize, workers: usize, counting: Counting, sleeps: bool) {
    let plan = Plan {
        sleeps,
        ..plan(counting, workers)
    };
    let (worst, passes) = worst(&plan, 24);
    assert!(
        worst <= most,
        "{workers} workers, {counting:?}: {worst} in one interval"
    );
    assert!(
        passes > 24 * LIMIT,
        "{workers} workers, {counting:?}: only {passes} have passed"
    );
}

#[test]
fn workers_that_share_two_counts_never_let_in_more_than_the_limit() {
    for workers in [1, 2, 4] {
        for (counting, most) in [
            (Counting::Strict, LIMIT),
            (Counting::Sentinel, 2 * LIMIT),
            (Counting::Weighted, 2 * LIMIT),
        ] {
            let_in_at_most(most, workers, counting, false);
        }
    }
}

#[test]
fn a_worker_that_is_born_later_lets_in_no_more_than_the_limit() {
    for births in [
        [Birth::First, Birth::Later, Birth::Later],
        [Birth::First, Birth::Informed, Birth::Informed],
    ] {
        let plan = Plan {
            births: births.to_vec(),
            requests: 80,
            ..plan(Counting::Strict, 3)
        };
        let (worst, passes) = worst(&plan, 24);
        assert!(worst <= LIMIT, "{worst} in one interval");
        assert!(passes > 24 * LIMIT, "only {passes} have passed");
    }
}

/// Rings are published and taken up between any two calls of the others.
#[test]
fn workers_that_sleep_and_wake_never_let_in_more_than_the_limit() {
    for workers in [2, 4] {
        for (counting, most) in [(Counting::Strict, LIMIT), (Counting::Weighted, 2 * LIMIT)] {
            let_in_at_most(most, workers, counting, true);
        }
    }
}

/// The order matters: so these schedules find races.
#[test]
fn reading_the_clock_before_the_count_would_let_in_more_than_the_limit() {
    let plan = Plan {
        order: Order::ClockFirst,
        ..plan(Counting::Strict, 4)
    };
    assert!(worst(&plan, 24).0 > LIMIT);
}

#[test]
fn in_every_order_of_their_calls_two_workers_let_in_one_where_there_is_room_for_one() {
    let plan = Plan {
        limit: 1,
        requests: 1,
        ..plan(Counting::Strict, 2)
    };
    let mut none = 0;
    for bits in 0..1_u64 << 14 {
        // Each makes six calls until it has its answer: here are all orders of seven of each.
        if bits.count_ones() == 7 {
            let process = run(Schedule::Listed(bits), 100, &plan);
            let passes = process.done().passes.len();
            assert!(passes <= 1, "{bits:b}: {passes}");
            none += u32::from(passes == 0);
        }
    }
    assert!(
        none > 0,
        "where both reserve before either looks, both give back"
    );
}

#[test]
fn calls_in_flight_of_all_workers_never_exceed_their_limit() {
    let plan = Plan {
        limit: 2,
        counting: None,
        ..plan(Counting::Strict, 4)
    };
    for seed in 0..24 {
        let process = run(Schedule::Random(fastrand::Rng::with_seed(seed)), 2, &plan);
        let state = process.done();
        assert!(
            state.most_in_flight <= 2,
            "schedule {seed}: {} in flight",
            state.most_in_flight
        );
        assert!(
            state.passes.len() > 40 && state.refused > 0,
            "schedule {seed}: {} passed",
            state.passes.len()
        );
        assert_eq!(state.reserved, 0, "schedule {seed}: all have ended");
    }
}

#[test]
fn workers_that_share_two_counts_never_lend_more_than_the_limit() {
    let plan = Plan {
        prioritized: true,
        ..plan(Counting::Strict, 4)
    };
    let mut waits = 0;
    for seed in 0..48 {
        let schedule = Schedule::Random(fastrand::Rng::with_seed(seed));
        let process = run(schedule, 1 + seed % 4, &plan);
        let state = process.done();
        let most = most_within(&state.passes, INTERVAL);
        assert!(most <= LIMIT, "schedule {seed}: {most} in one interval");
        assert!(state.admitted <= state.reserved, "schedule {seed}");
        waits += state.waits;
    }
    assert!(waits > 500, "{waits} have waited");
}

#[test]
fn workers_that_share_an_instant_take_turns() {
    for queue_ms in [0, 25] {
        let plan = Plan {
            queue_ms: Some(queue_ms),
            ..plan(Counting::Strict, 4)
        };
        let (mut passes, mut waits) = (0, 0);
        for seed in 0..48 {
            let schedule = Schedule::Random(fastrand::Rng::with_seed(seed));
            let process = run(schedule, 1 + seed % 4, &plan);
            let state = process.done();
            let mut releases: Vec<u64> = state.passes.iter().map(|span| span.from).collect();
            releases.sort_unstable();
            let apart = releases.windows(2).map(|pair| pair[1] - pair[0]).min();
            assert!(
                apart >= Some(INTERVAL / LIMIT as u64),
                "schedule {seed}: {apart:?} ms apart"
            );
            (passes, waits) = (passes + releases.len(), waits + state.waits);
        }
        assert!(passes > 300, "{passes} have passed");
        assert_eq!(waits > 300, queue_ms > 0, "{waits} have waited");
    }
}

// ---- truly at once ----

#[derive(Default)]
struct Atomics {
    reserved: AtomicU64,
    admitted: AtomicU64,
    /// In nanoseconds; zero for none.
    latest: AtomicU64,
}

#[derive(Clone)]
struct AtOnce(Arc<Atomics>);

impl Counter for AtOnce {
    fn admitted(&self) -> Option<u64> {
        Some(self.0.admitted.load(Ordering::SeqCst))
    }

    fn reserved(&self) -> u64 {
        self.0.reserved.load(Ordering::SeqCst)
    }

    fn reserve(&self, n: u64) -> Option<u64> {
        self.0.reserved.fetch_add(n, Ordering::SeqCst);
        Some(self.0.reserved.load(Ordering::SeqCst))
    }

    fn release(&self, n: u64) {
        self.0.reserved.fetch_sub(n, Ordering::SeqCst);
    }

    fn admit(&self, n: u64) {
        self.0.admitted.fetch_add(n, Ordering::SeqCst);
    }

    fn latest(&self) -> &impl SharedInstant {
        self
    }
}

impl SharedInstant for AtOnce {
    fn get(&self) -> Option<Timestamp> {
        let nanos = self.0.latest.load(Ordering::SeqCst);
        (nanos > 0).then_some(Timestamp::from_nanos(nanos))
    }

    fn swap(&self, from: Option<Timestamp>, to: Option<Timestamp>) -> bool {
        let [from, to] = [from, to].map(|instant| instant.map_or(0, Timestamp::as_nanos));
        let order = Ordering::SeqCst;
        self.0
            .latest
            .compare_exchange(from, to, order, order)
            .is_ok()
    }
}

impl Backend for AtOnce {
    type Counter = AtOnce;
    type Keyed = KeyedWindows;
    type Breaker = LocalBreaker;

    fn open(&self, _: &StateKey) -> (AtOnce, Past) {
        (self.clone(), Past::Fresh)
    }

    fn open_keyed(&self, key: &StateKey, geometry: &KeyedGeometry) -> KeyedWindows {
        Local.open_keyed(key, geometry)
    }

    fn open_breaker(&self, _: &BreakerKey) -> LocalBreaker {
        LocalBreaker::default()
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "threads that run at once need a clock that runs"
)]
fn begin() -> Instant {
    Instant::now()
}

#[test]
fn threads_that_run_at_once_never_let_in_more_than_the_limit() {
    const INTERVAL: Duration = Duration::from_millis(20);
    for (limit, workers) in [(50, 2), (400, 4), (5, 8)] {
        let counters = AtOnce(Arc::default());
        let zero = begin();
        let spans = std::thread::scope(|scope| {
            let worker = || {
                let store = Rc::new(Store::without_statistics(counters.clone()));
                let rule = rule("r", "api", f64::from(limit))
                    .per(20, Some(10))
                    .unwrap();
                let engine = Engine::with_store(store, rules([rule])).unwrap();
                let api = engine.resource("api");
                let mut spans = Vec::new();
                loop {
                    api.observe();
                    let now = zero.elapsed();
                    if now > INTERVAL * 12 {
                        return spans;
                    }
                    let time = Timestamp::from_nanos(now.as_nanos() as u64);
                    if let Decision::Pass(entry) =
                        engine.enter_resource(&api, &Request::new("api"), time)
                    {
                        entry.exit(Outcome::Success, time);
                        spans.push(Span {
                            from: now.as_nanos() as u64,
                            to: zero.elapsed().as_nanos() as u64,
                        });
                    }
                }
            };
            let workers: Vec<_> = (0..workers).map(|_| scope.spawn(worker)).collect();
            workers
                .into_iter()
                .flat_map(|worker| worker.join().unwrap())
                .collect::<Vec<Span>>()
        });
        let most = most_within(&spans, INTERVAL.as_nanos() as u64);
        assert!(
            most <= limit as usize,
            "{workers} threads, limit {limit}: {most} in one interval"
        );
        assert!(
            spans.len() >= 2 * limit as usize,
            "{workers} threads, limit {limit}: only {} have passed",
            spans.len()
        );
    }
}

/// A request that held an estimate.
#[derive(Clone, Copy)]
struct Ran {
    span: Span,
    cost: u64,
    /// By how much it cost more than it held.
    debt: u64,
}

/// The most that requests cost that ran in any one stretch of `interval`, beyond what they were underestimated by.
fn most_cost_within(ran: &[Ran], interval: u64) -> u64 {
    let within = |from: u64| {
        let ran = ran.iter();
        let ran = ran.filter(|ran| ran.span.to >= from && ran.span.from < from + interval);
        ran.map(|ran| ran.cost - ran.debt).sum::<u64>()
    };
    let spans = ran.iter().map(|ran| ran.span);
    let starts = spans.flat_map(|span| [span.to, span.from, (span.from + 1).saturating_sub(interval)]);
    starts.map(within).max().unwrap_or(0)
}

/// One worker whose requests hold estimates, up to three at a time, and settle what they cost: at most `dearest` times the estimate.
fn hold(process: &Arc<Process>, worker: usize, counting: Counting, dearest: u64, ran: &Mutex<Vec<Ran>>) {
    let _leaving = Leaving { process, worker };
    let store = Store::without_statistics(Born {
        process: Arc::clone(process),
        worker,
        birth: Birth::First,
    });
    let cost = Cost::at_end().at_most(AtMost::Amount(u64::MAX));
    let rule = rule("r", "api", LIMIT as f64).per(INTERVAL, Some(4)).unwrap();
    let rule = rule.counting(counting).in_unit(Unit::new("tokens").unwrap()).costing(cost).unwrap();
    let engine = Engine::with_store(Rc::new(store), rules([rule])).unwrap();
    let api = engine.resource("api");
    let mut random = fastrand::Rng::with_seed(worker as u64);
    let mut open = Vec::new();
    let clock = || {
        api.observe();
        process.call(worker, |state| state.now)
    };
    for step in 0..120 {
        if open.len() < 3 && step < 100 && random.bool() {
            let (from, estimate) = (clock(), random.u64(1..4));
            let request = Request::new("api").cost_of("tokens", estimate);
            match engine.enter_resource(&api, &request, at(from)) {
                Decision::Pass(entry) => open.push((entry, from, estimate)),
                Decision::Wait(..) => panic!("nothing waits"),
                Decision::Block(_) => process.call(worker, |state| state.refused += 1),
            }
        } else if !open.is_empty() {
            let (mut entry, from, estimate) = open.swap_remove(random.usize(0..open.len()));
            let cost = random.u64(0..=estimate * dearest);
            let debt = entry.settle("tokens", cost);
            assert_eq!(debt, cost.saturating_sub(estimate));
            let to = clock();
            entry.exit(Outcome::Success, at(to));
            ran.lock().unwrap().push(Ran { span: Span { from, to }, cost, debt });
        }
    }
    process.call(worker, |state| state.alive[worker] = false);
}

#[test]
fn workers_that_share_two_counts_hold_and_settle_no_more_than_the_limit() {
    let limit = LIMIT as u64;
    let (mut settled, mut refused) = (0, 0);
    for workers in [1, 2, 4] {
        for (counting, most) in [
            (Counting::Strict, limit),
            (Counting::Sentinel, 2 * limit),
            (Counting::Weighted, 2 * limit),
        ] {
            for (seed, dearest) in (0..32).map(|seed| (seed, 1 + seed % 2)) {
                let schedule = Schedule::Random(fastrand::Rng::with_seed(seed));
                let process = Process::new(workers, schedule, 1000, 1 + seed % 4);
                let ran = Mutex::new(Vec::new());
                std::thread::scope(|scope| {
                    for worker in 0..workers {
                        let (process, ran) = (&process, &ran);
                        scope.spawn(move || hold(process, worker, counting, dearest, ran));
                    }
                });
                let (state, ran) = (process.done(), ran.into_inner().unwrap());
                let worst = most_cost_within(&ran, INTERVAL);
                assert!(worst <= most, "{workers} workers, {counting:?}, schedule {seed}: {worst} in one interval");
                let total: u64 = ran.iter().map(|ran| ran.cost).sum();
                assert_eq!((state.admitted, state.reserved), (total, total), "schedule {seed}");
                settled += ran.len();
                refused += state.refused;
            }
        }
    }
    assert!(settled > 5000 && refused > 5000, "{settled} settled, {refused} refused");
}
