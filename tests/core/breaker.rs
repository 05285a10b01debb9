//! Circuit breakers: Sentinel's recorded decisions, every short sequence of events against a naive restatement, the worked
//! examples, and what is shared.

use crate::support::at;
use crate::vectors::{each_trace, n};
use leapgate::backend::{
    Admission, Breaker, BreakerStorage, CallCounts, LocalBreaker, Phase, Snapshots, State,
};
use leapgate::rule::{
    Comparison, DegradeGrade, DegradeRule, MAX_PROBES, Mode, RuleError, RuleGeometry, RuleId,
};
use leapgate::stats::Window;
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

fn slow(max_rt_ms: f64, ratio: f64, time_window_ms: u64) -> DegradeRule {
    let grade = DegradeGrade::slow_ratio(max_rt_ms, ratio).unwrap();
    DegradeRule::new("pay", grade, time_window_ms).unwrap()
}

fn error_ratio(ratio: f64, time_window_ms: u64) -> DegradeRule {
    let grade = DegradeGrade::error_ratio(ratio).unwrap();
    DegradeRule::new("pay", grade, time_window_ms).unwrap()
}

fn error_count(count: f64, time_window_ms: u64) -> DegradeRule {
    let grade = DegradeGrade::error_count(count).unwrap();
    DegradeRule::new("pay", grade, time_window_ms).unwrap()
}

/// A breaker and its rule.
struct Circuit<S = LocalBreaker> {
    rule: DegradeRule,
    breaker: Breaker<S>,
}

impl Circuit {
    fn of(rule: DegradeRule) -> Circuit {
        let breaker = Breaker::new(rule.geometry());
        Circuit { rule, breaker }
    }
}

impl<S: BreakerStorage> Circuit<S> {
    /// A request, as the engine would ask: checked without taking anything, then let in.
    fn enter(&self, now: u64) -> Option<Admission> {
        self.breaker.advance(&self.rule, at(now));
        let before = self.breaker.state();
        let check = self.breaker.check(&self.rule, at(now));
        assert_eq!(self.breaker.state(), before, "a check takes nothing");
        let admission = self.breaker.reserve(&self.rule, at(now));
        assert_eq!(admission.is_some(), check.is_ok());
        admission
    }

    fn complete(&self, admission: Admission, rt: u64, failed: bool, now: u64) {
        self.breaker
            .complete(admission, &self.rule, rt, failed, at(now));
    }

    fn give_back(&self, admission: Admission, now: u64) {
        self.breaker.give_back(admission, &self.rule, at(now));
    }

    /// A call that ends at once. Returns whether it was let in.
    fn call(&self, rt: u64, failed: bool, now: u64) -> bool {
        match self.enter(now) {
            Some(admission) => {
                self.complete(admission, rt, failed, now);
                true
            }
            None => false,
        }
    }

    fn phase(&self) -> &'static str {
        match self.breaker.phase() {
            Phase::Closed => "closed",
            Phase::Open { .. } => "open",
            Phase::HalfOpen { .. } => "half-open",
        }
    }

    fn retry_after(&self, now: u64) -> Option<u64> {
        let refused = self.breaker.check(&self.rule, at(now)).err()?;
        Some(refused.retry_after.as_millis() as u64)
    }
}

// ---- Sentinel's recorded decisions ----

/// A degrade rule, as Sentinel's recorder writes it.
pub(crate) fn written(rule: &Value) -> DegradeRule {
    let number = |key: &str| rule[key].as_f64().unwrap();
    let grade = match n(&rule["grade"]) {
        0 => DegradeGrade::slow_ratio(number("count"), number("slowRatioThreshold")),
        1 => DegradeGrade::error_ratio(number("count")),
        2 => DegradeGrade::error_count(number("count")),
        other => panic!("unknown grade {other}"),
    };
    DegradeRule::new("service", grade.unwrap(), n(&rule["timeWindow"]) * 1000)
        .unwrap()
        .needing(n(&rule["minRequestAmount"]))
        .unwrap()
        .per(n(&rule["statIntervalMs"]), None)
        .unwrap()
        .sentinel()
}

#[test]
fn a_compatible_breaker_decides_as_sentinels() {
    each_trace("breaker", |trace, steps| {
        let circuit = Circuit::of(written(&trace["degradeRule"]));
        let mut open: HashMap<u64, (Admission, u64)> = HashMap::new();
        while let Some(step) = steps.next() {
            let (now, id) = (step.now, n(&step.arguments["id"]));
            let answer = match step.operation {
                "enter" => Some(match circuit.enter(now) {
                    Some(admission) => {
                        open.insert(id, (admission, now));
                        json!("pass")
                    }
                    None => json!({ "block": "degrade" }),
                }),
                "exit" => {
                    let (admission, began) = open.remove(&id).unwrap();
                    let failed = step.arguments["error"].as_bool().unwrap();
                    circuit.complete(admission, now - began, failed, now);
                    None
                }
                other => panic!("unknown operation {other}"),
            };
            steps.check(&step, answer, &circuit.breaker);
        }
    });
}

// ---- the state machine against a naive restatement ----

/// A rule by its numbers, in whole ones: the ratio is `threshold.0 / threshold.1`.
#[derive(Clone, Copy, Debug)]
struct Numbers {
    grade: char,
    threshold: (u64, u64),
    min: u64,
    interval: u64,
    buckets: u64,
    time_window: u64,
    probes: usize,
    at_least: bool,
    sentinel: bool,
}

const MAX_RT: u64 = 50;

impl Numbers {
    fn rule(&self) -> DegradeRule {
        let ratio = self.threshold.0 as f64 / self.threshold.1 as f64;
        let rule = match self.grade {
            's' => slow(MAX_RT as f64, ratio, self.time_window),
            'r' => error_ratio(ratio, self.time_window),
            'c' => error_count(ratio, self.time_window),
            other => panic!("unknown grade {other}"),
        };
        let rule = rule
            .needing(self.min)
            .unwrap()
            .per(self.interval, Some(self.buckets as u32))
            .unwrap()
            .with_probes(self.probes as u32)
            .unwrap();
        let rule = rule.comparing(if self.at_least {
            Comparison::AtLeast
        } else {
            Comparison::Above
        });
        if self.sentinel { rule.sentinel() } else { rule }
    }
}

enum NaivePhase {
    Closed,
    Open {
        retry: u64,
    },
    HalfOpen {
        out: Vec<usize>,
        succeeded: usize,
        latest: u64,
        /// When it was to be retried while open.
        retry: u64,
    },
}

/// A breaker that keeps a log of what completed and a list of its probes.
struct Naive {
    rule: Numbers,
    log: Vec<(u64, bool)>,
    phase: NaivePhase,
}

impl Naive {
    fn new(rule: Numbers) -> Naive {
        Naive {
            rule,
            log: Vec::new(),
            phase: NaivePhase::Closed,
        }
    }

    /// When a request would be let in, if nothing else happened.
    fn when(&self, now: u64) -> u64 {
        match &self.phase {
            NaivePhase::Closed => now,
            NaivePhase::Open { retry } => now.max(*retry),
            NaivePhase::HalfOpen { .. } if self.rule.sentinel => now + 1,
            NaivePhase::HalfOpen { out, succeeded, .. }
                if out.is_empty() || out.len() + succeeded < self.rule.probes =>
            {
                now
            }
            NaivePhase::HalfOpen { latest, .. } => now.max(latest + self.rule.time_window),
        }
    }

    fn enter(&mut self, call: usize, now: u64) -> bool {
        if self.when(now) > now {
            return false;
        }
        match &mut self.phase {
            NaivePhase::Closed => {}
            NaivePhase::Open { retry } => {
                self.phase = NaivePhase::HalfOpen {
                    out: vec![call],
                    succeeded: 0,
                    latest: now,
                    retry: *retry,
                }
            }
            NaivePhase::HalfOpen {
                out,
                succeeded,
                latest,
                ..
            } => {
                if out.len() + *succeeded >= self.rule.probes {
                    out.clear(); // expired
                }
                out.push(call);
                *latest = now;
            }
        }
        true
    }

    fn open(&mut self, retry: u64) {
        self.phase = NaivePhase::Open { retry };
    }

    fn give_back(&mut self, call: usize, now: u64) {
        if let NaivePhase::HalfOpen {
            out,
            succeeded,
            retry,
            ..
        } = &mut self.phase
            && let Some(i) = out.iter().position(|probe| *probe == call)
        {
            out.remove(i);
            if self.rule.sentinel {
                let retry = *retry;
                self.open(retry);
            } else if out.is_empty() && *succeeded == 0 {
                self.open(now + self.rule.time_window);
            }
        }
    }

    fn complete(&mut self, call: usize, rt: u64, failed: bool, now: u64) {
        let bad = match self.rule.grade {
            's' => rt > MAX_RT,
            _ => failed,
        };
        self.log.push((now, bad));
        match &mut self.phase {
            NaivePhase::Open { .. } => {}
            NaivePhase::Closed => {
                if self.trips(now) {
                    self.open(now + self.rule.time_window);
                }
            }
            NaivePhase::HalfOpen { out, succeeded, .. } => {
                let own = out.iter().position(|probe| *probe == call);
                if own.is_none() && !self.rule.sentinel {
                    return;
                }
                if bad {
                    return self.open(now + self.rule.time_window);
                }
                if let Some(i) = own {
                    out.remove(i);
                }
                *succeeded += 1;
                if self.rule.sentinel || *succeeded == self.rule.probes {
                    self.log.clear();
                    self.phase = NaivePhase::Closed;
                }
            }
        }
    }

    fn trips(&self, now: u64) -> bool {
        let Numbers {
            threshold: (of, whole),
            interval,
            buckets,
            ..
        } = self.rule;
        let counts = |then: u64| match self.rule.sentinel {
            true => then / interval == now / interval,
            false => now / (interval / buckets) - then / (interval / buckets) <= buckets,
        };
        let recent: Vec<bool> = self
            .log
            .iter()
            .filter(|(then, _)| counts(*then))
            .map(|(_, bad)| *bad)
            .collect();
        let (total, bad) = (
            recent.len() as u64,
            recent.iter().filter(|bad| **bad).count() as u64,
        );
        let (measured, threshold) = match self.rule.grade {
            'c' => (bad * whole, of),
            _ => (bad * whole, of * total),
        };
        let never_above = match self.rule.grade {
            's' => of == whole,
            'r' => of == whole && !self.rule.sentinel,
            _ => false,
        };
        let equal = never_above || (self.rule.at_least && !self.rule.sentinel);
        total >= self.rule.min
            && bad > 0
            && (measured > threshold || (equal && measured == threshold))
    }

    fn phase(&self) -> &'static str {
        match self.phase {
            NaivePhase::Closed => "closed",
            NaivePhase::Open { .. } => "open",
            NaivePhase::HalfOpen { .. } => "half-open",
        }
    }
}

/// What can happen. Calls in flight are in the order in which they were let in.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Op {
    Enter,
    /// The oldest call, or else the newest, ends: failed or not, slow or not.
    End {
        newest: bool,
        failed: bool,
        slow: bool,
    },
    /// The newest call does not take place.
    GiveBack,
    Pass(u64),
}

/// Both, side by side.
struct Pair {
    circuit: Circuit,
    naive: Naive,
    calls: Vec<(usize, Admission)>,
    entered: usize,
    now: u64,
    done: Vec<Op>,
}

impl Pair {
    fn new(numbers: Numbers, begins: u64) -> Pair {
        Pair {
            circuit: Circuit::of(numbers.rule()),
            naive: Naive::new(numbers),
            calls: Vec::new(),
            entered: 0,
            now: begins,
            done: Vec::new(),
        }
    }

    fn apply(&mut self, op: Op) {
        self.done.push(op);
        match op {
            Op::Enter => {
                let when = self.naive.when(self.now);
                let refused = (when > self.now).then(|| when - self.now);
                assert_eq!(
                    self.circuit.retry_after(self.now),
                    refused,
                    "{:?} {:?}",
                    self.naive.rule,
                    self.done
                );
                let admission = self.circuit.enter(self.now);
                let let_in = self.naive.enter(self.entered, self.now);
                assert_eq!(
                    admission.is_some(),
                    let_in,
                    "{:?} {:?}",
                    self.naive.rule,
                    self.done
                );
                if let Some(admission) = admission {
                    self.calls.push((self.entered, admission));
                }
                self.entered += 1;
            }
            Op::End {
                newest,
                failed,
                slow,
            } => {
                let (call, admission) =
                    self.calls
                        .remove(if newest { self.calls.len() - 1 } else { 0 });
                let rt = if slow { MAX_RT + 1 } else { MAX_RT };
                self.circuit.complete(admission, rt, failed, self.now);
                self.naive.complete(call, rt, failed, self.now);
            }
            Op::GiveBack => {
                let (call, admission) = self.calls.pop().unwrap();
                self.circuit.give_back(admission, self.now);
                self.naive.give_back(call, self.now);
            }
            Op::Pass(ms) => self.now += ms,
        }
        assert_eq!(
            self.circuit.phase(),
            self.naive.phase(),
            "{:?} {:?}",
            self.naive.rule,
            self.done
        );
    }

    fn replay(numbers: Numbers, ops: &[Op]) -> Pair {
        let mut pair = Pair::new(numbers, 10_000);
        ops.iter().for_each(|op| pair.apply(*op));
        pair
    }
}

/// How many events long the longest sequences are: one more where the code is optimised.
const DEPTH: usize = if cfg!(debug_assertions) { 7 } else { 8 };

/// Every sequence of at most this many events, except for sequences in which a call ends that has not begun.
fn exhaust(numbers: Numbers, ops: &mut Vec<Op>, depth: usize) -> u64 {
    let pair = Pair::replay(numbers, ops);
    if depth == 0 {
        return 1;
    }
    let mut events = vec![
        Op::Enter,
        Op::Pass(numbers.interval / numbers.buckets),
        Op::Pass(numbers.time_window),
    ];
    for newest in [false, true] {
        if pair.calls.len() > usize::from(newest) {
            for (failed, slow) in [(false, false), (true, false), (false, true)] {
                events.push(Op::End {
                    newest,
                    failed,
                    slow,
                });
            }
        }
    }
    if !pair.calls.is_empty() {
        events.push(Op::GiveBack);
    }
    let mut sequences = 0;
    for event in events {
        ops.push(event);
        sequences += exhaust(numbers, ops, depth - 1);
        ops.pop();
    }
    sequences
}

const SMALL: Numbers = Numbers {
    grade: 'r',
    threshold: (1, 2),
    min: 1,
    interval: 1000,
    buckets: 2,
    time_window: 1500,
    probes: 1,
    at_least: false,
    sentinel: false,
};

#[test]
fn every_short_sequence_is_as_restated() {
    let rules = [
        SMALL,
        Numbers { probes: 2, ..SMALL },
        Numbers { min: 2, ..SMALL },
        Numbers {
            grade: 's',
            threshold: (1, 1),
            ..SMALL
        },
        Numbers {
            grade: 'c',
            threshold: (0, 1),
            ..SMALL
        },
        Numbers {
            grade: 'c',
            threshold: (1, 1),
            at_least: true,
            probes: 3,
            ..SMALL
        },
        Numbers {
            sentinel: true,
            ..SMALL
        },
        Numbers {
            grade: 's',
            threshold: (1, 1),
            sentinel: true,
            ..SMALL
        },
    ];
    for numbers in rules {
        let sequences = exhaust(numbers, &mut Vec::new(), DEPTH);
        assert!(sequences > 50_000, "{sequences}");
    }
}

/// The half-open state in more depth: every sequence after the breaker has opened and its time has come.
#[test]
fn every_sequence_from_half_open_is_as_restated() {
    let fail = Op::End {
        newest: true,
        failed: true,
        slow: true,
    };
    for probes in [1, 2, 3] {
        for (grade, sentinel) in [('r', false), ('s', false), ('r', true)] {
            let numbers = Numbers {
                grade,
                probes,
                sentinel,
                threshold: (1, 2),
                ..SMALL
            };
            // One call from before is still in flight.
            let mut ops = vec![
                Op::Enter,
                Op::Enter,
                fail,
                Op::Pass(numbers.time_window),
                Op::Enter,
            ];
            assert_eq!(Pair::replay(numbers, &ops).circuit.phase(), "half-open");
            exhaust(numbers, &mut ops, DEPTH - 2);
        }
    }
}

#[test]
fn long_random_sequences_are_as_restated() {
    let mut random = fastrand::Rng::with_seed(20_261_121);
    let mut visited = HashMap::new();
    for _ in 0..1500 {
        let interval = [1000, 2000, 60_000][random.usize(..3)];
        let numbers = Numbers {
            grade: ['s', 'r', 'c'][random.usize(..3)],
            threshold: [(0, 1), (1, 5), (1, 2), (7, 10), (1, 1), (3, 1)][random.usize(..6)],
            min: random.u64(1..6),
            interval,
            buckets: [1, 2, 5, 10][random.usize(..4)],
            time_window: random.u64(1..3000),
            probes: random.usize(1..5),
            at_least: random.bool(),
            sentinel: random.u8(..4) == 0,
        };
        let threshold = match (numbers.grade, numbers.threshold) {
            ('s' | 'r', (3, 1)) => (3, 10),
            (_, threshold) => threshold,
        };
        let numbers = Numbers {
            threshold,
            ..numbers
        };
        let mut pair = Pair::new(numbers, random.u64(..100_000));
        for _ in 0..150 {
            let bad = random.u8(..3) == 0;
            let longest = [3, 300, 3000][random.usize(..3)];
            let op = match random.u8(..10) {
                0..=3 => Op::Enter,
                4..=7 if !pair.calls.is_empty() => Op::End {
                    newest: random.bool(),
                    failed: bad,
                    slow: bad,
                },
                8 if !pair.calls.is_empty() && random.u8(..4) == 0 => Op::GiveBack,
                _ => Op::Pass(random.u64(..longest)),
            };
            pair.apply(op);
            *visited.entry(pair.circuit.phase()).or_insert(0) += 1;
        }
    }
    assert!(
        visited.values().all(|times| *times > 5000) && visited.len() == 3,
        "{visited:?}"
    );
}

// ---- the worked examples of Sentinel's tests ----

/// As Sentinel has it, and as it is here, where that is the same.
fn both(rule: DegradeRule) -> [Circuit; 2] {
    [Circuit::of(rule.clone()), Circuit::of(rule.sentinel())]
}

#[test]
fn opens_where_all_calls_are_slow_and_lets_a_probe_in_when_its_time_is_over() {
    let rule = slow(10.0, 1.0, 5000)
        .needing(3)
        .unwrap()
        .per(5000, None)
        .unwrap();
    for circuit in both(rule) {
        for now in [100_000, 100_020, 100_040] {
            assert!(circuit.call(20, false, now));
        }
        assert!(!circuit.call(20, false, 100_060));
        assert!(!circuit.call(20, false, 101_040));
        assert!(circuit.enter(105_040).is_some());
    }
}

#[test]
fn opens_exactly_above_the_ratio_or_at_it_as_the_rule_says() {
    let rule = slow(50.0, 0.8, 1000)
        .needing(10)
        .unwrap()
        .per(20_000, None)
        .unwrap();
    let first_ten = |circuit: &Circuit| {
        (0..10).for_each(|i| assert!(circuit.call(if i < 7 { 51 } else { 50 }, false, 100_000 + i)))
    };
    for circuit in both(rule.clone()) {
        first_ten(&circuit);
        for i in 1..=6 {
            assert_eq!(circuit.phase(), "closed", "{i}");
            assert!(circuit.call(60, false, 100_100 + i));
        }
        assert_eq!(circuit.phase(), "open"); // 13 of 16
        let probe = circuit.enter(101_106).unwrap();
        circuit.complete(probe, 60, false, 101_166);
        assert_eq!(circuit.phase(), "open");
        assert!(circuit.call(50, false, 102_166));
        assert_eq!(circuit.phase(), "closed");
    }
    // At the threshold, as in Go and Rust: 12 of 15.
    let circuit = Circuit::of(rule.comparing(Comparison::AtLeast));
    first_ten(&circuit);
    (1..=4).for_each(|i| assert!(circuit.call(60, false, 100_100 + i)));
    assert_eq!(circuit.phase(), "closed");
    assert!(circuit.call(60, false, 100_105));
    assert_eq!(circuit.phase(), "open");
}

#[test]
fn lets_one_probe_in_at_the_retry_time_and_not_before() {
    let rule = slow(50.0, 0.6, 5000).needing(5).unwrap();
    for circuit in both(rule) {
        for (rt, now) in [
            (51, 100_040),
            (51, 100_080),
            (51, 100_120),
            (50, 100_160),
            (10, 100_190),
        ] {
            assert!(circuit.call(rt, false, now));
        }
        assert_eq!(circuit.phase(), "closed"); // 3 of 5 is not above 0.6
        assert!(circuit.call(60, false, 100_200));
        assert_eq!(
            circuit.breaker.phase(),
            Phase::Open {
                retry_at: at(105_200)
            }
        );
        assert!(circuit.enter(105_199).is_none());
        assert_eq!(circuit.retry_after(105_199), Some(1));
        let probe = circuit.enter(105_200).unwrap();
        assert!(circuit.enter(105_200).is_none(), "a second caller");
        circuit.complete(probe, 20, false, 105_220);
        assert_eq!(circuit.phase(), "closed");
    }
}

#[test]
fn opens_above_a_ratio_of_errors_once_there_are_enough_calls() {
    let failed = [true, false, true, false];
    for circuit in both(error_ratio(0.5, 1000).needing(4).unwrap()) {
        for failed in failed {
            assert!(circuit.call(1, failed, 100_000));
        }
        assert_eq!(circuit.phase(), "closed"); // 2 of 4
    }
    for circuit in both(error_ratio(0.5, 1000).needing(4).unwrap()) {
        (0..4).for_each(|i| assert!(circuit.call(1, i > 0, 100_000)));
        assert_eq!(circuit.phase(), "open"); // 3 of 4
    }
    for circuit in both(error_ratio(0.5, 1000).needing(4).unwrap()) {
        (0..3).for_each(|_| assert!(circuit.call(1, true, 100_000)));
        assert_eq!(circuit.phase(), "closed"); // 3 of 3, and 4 are needed
    }
    let go = error_ratio(0.5, 1000)
        .needing(4)
        .unwrap()
        .comparing(Comparison::AtLeast);
    let go = Circuit::of(go);
    for failed in failed {
        assert!(go.call(1, failed, 100_000));
    }
    assert_eq!(go.phase(), "open"); // 2 of 4
}

/// The wart: Sentinel's window tumbles at 201000, and six errors in 5 ms leave it closed.
#[test]
fn errors_on_both_sides_of_an_edge_open_it_and_leave_sentinels_closed() {
    let errors = [200_997, 200_998, 200_999, 201_000, 201_001, 201_002];
    let [here, sentinel] = both(error_count(3.0, 1000).needing(1).unwrap());
    for now in errors {
        assert!(sentinel.call(1, true, now));
    }
    assert_eq!(sentinel.phase(), "closed");
    assert!(sentinel.call(1, true, 201_003));
    assert_eq!(sentinel.phase(), "open");

    let let_in = errors.map(|now| here.call(1, true, now));
    assert_eq!(let_in, [true, true, true, true, false, false]);
    assert_eq!(
        here.breaker.phase(),
        Phase::Open {
            retry_at: at(202_000)
        }
    );
}

#[test]
fn what_was_counted_before_it_closed_is_forgotten() {
    let rule = error_ratio(0.2, 10_000)
        .needing(1)
        .unwrap()
        .per(20_000, None)
        .unwrap();
    for circuit in both(rule) {
        let opened = 100_000;
        assert!(circuit.call(1, false, opened));
        assert!(circuit.call(1, true, opened));
        assert!(!circuit.call(1, false, opened));
        assert!(!circuit.call(1, false, opened + 5000));
        assert!(circuit.call(1, true, opened + 10_000));
        assert_eq!(circuit.phase(), "open");
        assert!(!circuit.call(1, false, opened + 19_999));
        assert!(circuit.call(1, false, opened + 20_000));
        assert_eq!(circuit.phase(), "closed");
        for i in 0..8 {
            assert!(circuit.call(1, i == 6, opened + 20_001 + i), "{i}");
        }
        assert_eq!(circuit.phase(), "closed");
    }
}

/// Two slow breakers on one resource, of which the second stays open longer.
fn two_slow() -> [DegradeRule; 2] {
    let rule = |time_window| slow(50.0, 0.8, time_window).needing(5).unwrap();
    [rule(2000), rule(4000)]
}

/// The wart: in Sentinel the first breaker goes half-open for each request that the second refuses. Here nothing is taken
/// before all rules have room.
#[test]
fn of_two_breakers_the_one_that_could_retry_waits_for_the_one_that_is_open() {
    let circuits = two_slow().map(Circuit::of);
    let call = |rt, now| {
        let admissions: Vec<_> = match circuits
            .iter()
            .all(|circuit| circuit.breaker.check(&circuit.rule, at(now)).is_ok())
        {
            true => circuits
                .iter()
                .map(|circuit| circuit.enter(now).unwrap())
                .collect(),
            false => return false,
        };
        for (circuit, admission) in circuits.iter().zip(admissions) {
            circuit.complete(admission, rt, false, now);
        }
        true
    };
    (0..5).for_each(|i| assert!(call(100, 100_000 + i)));
    assert_eq!(circuits.each_ref().map(Circuit::phase), ["open", "open"]);
    let states = circuits.each_ref().map(|circuit| circuit.breaker.state());
    (0..10).for_each(|i| assert!(!call(10, 103_004 + i)));
    assert_eq!(
        circuits.each_ref().map(|circuit| circuit.breaker.state()),
        states
    );
    (0..10).for_each(|i| assert!(call(10, 106_004 + i)));
    assert_eq!(
        circuits.each_ref().map(Circuit::phase),
        ["closed", "closed"]
    );

    // As Sentinel goes about it, with the same result.
    let circuits = two_slow().map(|rule| Circuit::of(rule.sentinel()));
    let call = |rt, now| {
        let mut admissions = Vec::new();
        for circuit in &circuits {
            match circuit.enter(now) {
                Some(admission) => admissions.push(admission),
                None => {
                    for (circuit, admission) in circuits.iter().zip(admissions) {
                        assert_eq!(circuit.phase(), "half-open");
                        circuit.give_back(admission, now);
                    }
                    return false;
                }
            }
        }
        for (circuit, admission) in circuits.iter().zip(admissions) {
            circuit.complete(admission, rt, false, now);
        }
        true
    };
    (0..5).for_each(|i| assert!(call(100, 100_000 + i)));
    (0..10).for_each(|i| assert!(!call(10, 103_004 + i)));
    assert_eq!(
        circuits.each_ref().map(|circuit| circuit.breaker.phase()),
        [102_004, 104_004].map(|retry| Phase::Open {
            retry_at: at(retry)
        })
    );
    (0..10).for_each(|i| assert!(call(10, 106_004 + i)));
    assert_eq!(
        circuits.each_ref().map(Circuit::phase),
        ["closed", "closed"]
    );
}

/// A breaker that is half-open, with a probe out, and a call in flight from before it opened.
fn half_open(rule: DegradeRule) -> (Circuit, Admission, Admission) {
    let circuit = Circuit::of(rule.needing(1).unwrap());
    let straggler = circuit.enter(100_000).unwrap();
    assert!(circuit.call(1, true, 100_000));
    let probe = circuit.enter(101_000).unwrap();
    assert_eq!(circuit.phase(), "half-open");
    (circuit, straggler, probe)
}

/// The wart: in Sentinel an old call that succeeds closes the breaker while the probe is out.
#[test]
fn an_old_call_that_succeeds_does_not_close_it_and_closes_sentinels() {
    let (sentinel, straggler, _probe) = half_open(error_ratio(0.5, 1000).sentinel());
    sentinel.complete(straggler, 1001, false, 101_001);
    assert_eq!(sentinel.phase(), "closed");

    let (here, straggler, probe) = half_open(error_ratio(0.5, 1000));
    here.complete(straggler, 1001, false, 101_001);
    assert_eq!(here.phase(), "half-open");
    here.complete(probe, 2, true, 101_002);
    assert_eq!(
        here.breaker.phase(),
        Phase::Open {
            retry_at: at(102_002)
        }
    );
}

/// The wart: while half-open, Go lets every request through until so many probes have succeeded.
#[test]
fn closes_after_as_many_probes_as_the_rule_says_and_lets_no_more_in() {
    let (circuit, _, probe) = half_open(error_ratio(0.5, 1000).with_probes(10).unwrap());
    circuit.complete(probe, 1, false, 101_001);
    for i in 2..10 {
        assert!(circuit.call(1, false, 101_000 + i));
        assert_eq!(circuit.phase(), "half-open", "{i}");
    }
    let tenth = circuit.enter(101_010).unwrap();
    assert!(circuit.enter(101_010).is_none(), "ten are enough");
    circuit.complete(tenth, 1, false, 101_011);
    assert_eq!(circuit.phase(), "closed");

    let (circuit, _, probe) = half_open(error_ratio(0.5, 1000).with_probes(2).unwrap());
    circuit.complete(probe, 1, false, 101_001);
    assert!(matches!(
        circuit.breaker.phase(),
        Phase::HalfOpen {
            out: 0,
            succeeded: 1,
            ..
        }
    ));
    assert!(circuit.call(1, true, 101_002));
    assert_eq!(circuit.phase(), "open");
    let _probe = circuit.enter(102_002).unwrap();
    assert!(matches!(
        circuit.breaker.phase(),
        Phase::HalfOpen {
            out: 1,
            succeeded: 0,
            ..
        }
    ));
}

// ---- differences from Sentinel ----

/// However failures lie, so many within one interval open it; in Sentinel they need to be on one side of an edge.
#[test]
fn differs_from_sentinel_breaker_windows_slide() {
    for first in 100_000..101_000 {
        let circuit = Circuit::of(error_count(3.0, 1000).needing(1).unwrap());
        let let_in = [0, 300, 600, 999].map(|after| circuit.call(1, true, first + after));
        assert_eq!(
            (let_in, circuit.phase()),
            ([true; 4], "open"),
            "from {first}"
        );
    }
    // And one bucket more than an interval is never counted.
    for first in 100_000..101_000 {
        let circuit = Circuit::of(error_count(0.0, 1000).needing(2).unwrap());
        circuit.call(1, false, first);
        circuit.call(1, true, first + 1100);
        assert_eq!(circuit.phase(), "closed", "from {first}");
    }
}

#[test]
fn differs_from_sentinel_only_a_probe_decides() {
    for failed in [false, true] {
        let (circuit, straggler, probe) = half_open(error_ratio(0.5, 1000));
        circuit.complete(straggler, 1001, failed, 101_001);
        assert_eq!(circuit.phase(), "half-open");
        circuit.complete(probe, 1, !failed, 101_002);
        assert_eq!(circuit.phase(), if failed { "closed" } else { "open" });
    }
    // A probe of an earlier time, too, is a straggler.
    let (circuit, _, old) = half_open(error_ratio(0.5, 1000).with_probes(2).unwrap());
    assert!(circuit.call(1, true, 101_000));
    let probe = circuit.enter(102_000).unwrap();
    circuit.complete(old, 1, true, 102_001);
    assert_eq!(circuit.phase(), "half-open");
    circuit.complete(probe, 1, false, 102_002);
    assert!(circuit.call(1, false, 102_003));
    assert_eq!(circuit.phase(), "closed");
}

#[test]
fn differs_from_sentinel_a_lost_probe_expires() {
    let (circuit, _, lost) = half_open(error_ratio(0.5, 1000));
    assert_eq!(circuit.retry_after(101_400), Some(600));
    assert!(circuit.enter(101_999).is_none());
    let probe = circuit.enter(102_000).unwrap();
    assert!(circuit.enter(102_999).is_none());
    // It comes back after all: it has been replaced.
    circuit.complete(lost, 1001, false, 102_001);
    assert_eq!(circuit.phase(), "half-open");
    circuit.complete(probe, 2, false, 102_002);
    assert_eq!(circuit.phase(), "closed");

    // One that is late, and has not been replaced, still decides.
    let (circuit, _, late) = half_open(error_ratio(0.5, 1000));
    circuit.complete(late, 9000, false, 110_000);
    assert_eq!(circuit.phase(), "closed");

    let (sentinel, _, _lost) = half_open(error_ratio(0.5, 1000).sentinel());
    assert!(sentinel.enter(100_000_000).is_none());
    assert_eq!(sentinel.retry_after(100_000_000), Some(1));
}

#[test]
fn differs_from_sentinel_a_refused_probe_has_a_retry_time() {
    let (circuit, _, probe) = half_open(error_ratio(0.5, 1000));
    circuit.give_back(probe, 101_003);
    assert_eq!(
        circuit.breaker.phase(),
        Phase::Open {
            retry_at: at(102_003)
        }
    );
    assert!(circuit.enter(102_002).is_none());
    assert!(circuit.enter(102_003).is_some());

    let (sentinel, _, probe) = half_open(error_ratio(0.5, 1000).sentinel());
    sentinel.give_back(probe, 101_003);
    assert!(sentinel.enter(101_003).is_some());

    // Where others are out, its place is free, and nothing else has changed.
    let (circuit, _, first) = half_open(error_ratio(0.5, 1000).with_probes(2).unwrap());
    let second = circuit.enter(101_001).unwrap();
    assert!(circuit.enter(101_002).is_none());
    circuit.give_back(second, 101_002);
    assert!(circuit.call(1, false, 101_002));
    circuit.complete(first, 3, false, 101_003);
    assert_eq!(circuit.phase(), "closed");
}

#[test]
fn differs_from_sentinel_several_probes_must_succeed() {
    let (circuit, _, first) = half_open(error_ratio(0.5, 1000).with_probes(3).unwrap());
    let second = circuit.enter(101_000).unwrap();
    let third = circuit.enter(101_000).unwrap();
    assert!(circuit.enter(101_000).is_none());
    circuit.complete(third, 1, false, 101_001);
    assert!(
        circuit.enter(101_001).is_none(),
        "one that succeeded is not replaced"
    );
    circuit.complete(first, 1, false, 101_001);
    assert_eq!(circuit.phase(), "half-open");
    circuit.complete(second, 2, true, 101_002);
    assert_eq!(
        circuit.breaker.phase(),
        Phase::Open {
            retry_at: at(102_002)
        }
    );
}

#[test]
fn differs_from_sentinel_an_error_ratio_of_one_can_be_reached() {
    let [here, sentinel] = both(error_ratio(1.0, 1000));
    for circuit in [&here, &sentinel] {
        (0..5).for_each(|i| assert!(circuit.call(1, true, 100_000 + i)));
    }
    assert_eq!((here.phase(), sentinel.phase()), ("open", "closed"));
}

#[test]
fn differs_from_sentinel_slow_is_above_the_threshold() {
    for (max_rt, rt, here_is, sentinel_is) in [
        (50.5, 51, "open", "closed"),
        (50.4, 51, "open", "open"),
        (0.5, 1, "open", "closed"),
        (50.0, 50, "closed", "closed"),
    ] {
        let [here, sentinel] = both(slow(max_rt, 0.0, 1000).needing(1).unwrap());
        assert!(here.call(rt, false, 0) && sentinel.call(rt, false, 0));
        assert_eq!(
            (here.phase(), sentinel.phase()),
            (here_is, sentinel_is),
            "{max_rt} {rt}"
        );
    }
}

// ---- details ----

#[test]
fn nothing_opens_it_where_nothing_went_wrong() {
    for rule in [slow(0.0, 0.0, 1), error_ratio(0.0, 1), error_count(0.0, 1)] {
        let circuit = Circuit::of(rule.needing(1).unwrap().comparing(Comparison::AtLeast));
        (0..100).for_each(|now| assert!(circuit.call(0, false, now)));
        assert_eq!(circuit.phase(), "closed");
        assert!(circuit.call(1, true, 100));
        assert_eq!(circuit.phase(), "open");
    }
}

/// A success may bring up the number of calls that are needed.
#[test]
fn each_completion_is_looked_at() {
    for circuit in both(error_ratio(0.5, 1000)) {
        (0..4).for_each(|now| assert!(circuit.call(1, true, now)));
        assert_eq!(circuit.phase(), "closed");
        assert!(circuit.call(1, false, 5));
        assert_eq!(circuit.phase(), "open");
    }
}

/// While it is open completions are counted, and change nothing.
#[test]
fn an_open_breaker_counts_and_does_not_decide() {
    let circuit = Circuit::of(error_count(0.0, 1000).needing(1).unwrap());
    let calls: Vec<_> = (0..3).map(|i| circuit.enter(i).unwrap()).collect();
    for (i, call) in (10..).zip(calls) {
        circuit.complete(call, 1, true, i);
    }
    assert_eq!(circuit.breaker.phase(), Phase::Open { retry_at: at(1010) });
    assert_eq!(
        circuit.breaker.counts(at(12)),
        CallCounts { total: 3, bad: 3 }
    );
    // The first bucket leaves with everything in it.
    assert_eq!(circuit.breaker.counts(at(1099)).bad, 3);
    assert_eq!(circuit.breaker.counts(at(1100)).bad, 0);
}

#[test]
fn a_clock_that_starts_at_zero_is_like_any_other() {
    let circuit = Circuit::of(error_count(0.0, 1000).needing(1).unwrap());
    assert!(circuit.call(1, true, 0));
    assert!(circuit.enter(999).is_none());
    assert!(circuit.call(1, false, 1000));
    assert_eq!(circuit.phase(), "closed");
}

#[test]
fn a_clock_that_steps_back_keeps_no_breaker_open_for_longer_than_its_rule() {
    let day = 86_400_000;
    let circuit = Circuit::of(error_count(0.0, 5000).needing(1).unwrap());
    assert!(circuit.call(1, true, 10 * day));
    assert_eq!(circuit.retry_after(day), Some(5000));
    assert!(circuit.enter(day).is_none());
    assert_eq!(
        circuit.breaker.phase(),
        Phase::Open {
            retry_at: at(day + 5000)
        }
    );
    // Nor a lost probe.
    assert!(circuit.enter(day + 4999).is_none());
    let _lost = circuit.enter(day + 5000).unwrap();
    assert!(circuit.enter(2000).is_none());
    assert!(circuit.enter(6999).is_none());
    assert!(circuit.enter(7000).is_some());
}

#[test]
fn a_clock_that_steps_back_forgets_no_failure() {
    for back in [1, 500, 999, 1000, 5000, 99_000] {
        let circuit = Circuit::of(error_count(3.0, 5000).needing(1).unwrap());
        for now in [100_000, 100_500, 100_900] {
            assert!(circuit.call(1, true, now));
        }
        assert!(circuit.call(1, true, 100_900 - back));
        assert_eq!(circuit.phase(), "open", "{back}");
    }
}

/// What a rule may change while the state goes on.
#[test]
fn a_rule_may_change_around_its_state() {
    let rule = error_ratio(0.5, 60_000)
        .needing(1)
        .unwrap()
        .with_probes(3)
        .unwrap();
    let mut circuit = Circuit::of(rule);
    assert!(circuit.call(1, true, 0));
    // It stays open for as long as the new rule says, at most.
    circuit.rule = error_ratio(0.9, 1000).with_probes(3).unwrap();
    assert_eq!(circuit.rule.geometry(), circuit.breaker.geometry());
    assert_eq!(circuit.retry_after(10), Some(1000));
    assert!(circuit.enter(10).is_none());
    assert!(circuit.call(1, false, 1010));
    assert!(circuit.call(1, false, 1011));
    assert_eq!(circuit.phase(), "half-open");
    // Two have succeeded, and one is enough now: the next one closes it.
    circuit.rule = error_ratio(0.9, 1000);
    assert!(circuit.call(1, false, 1012));
    assert_eq!(circuit.phase(), "closed");
}

#[test]
fn what_the_state_belongs_to() {
    let rule = error_ratio(0.5, 1000);
    let same = [
        error_ratio(0.9, 60_000),
        error_ratio(0.5, 1000)
            .needing(9)
            .unwrap()
            .with_probes(7)
            .unwrap()
            .comparing(Comparison::AtLeast),
        error_ratio(0.5, 1000).per(1000, Some(10)).unwrap(),
    ];
    for other in same {
        assert_eq!(other.geometry(), rule.geometry());
        assert_eq!(other.id(), rule.id());
    }
    let others = [
        error_count(1.0, 1000),
        slow(1.0, 1.0, 1000),
        error_ratio(0.5, 1000).per(2000, None).unwrap(),
        error_ratio(0.5, 1000).per(1000, Some(5)).unwrap(),
        error_ratio(0.5, 1000).sentinel(),
    ];
    for other in others {
        assert_ne!(other.geometry(), rule.geometry());
        assert_ne!(other.id(), rule.id());
    }
}

#[test]
fn ids_name_the_resource_the_grade_and_the_geometry() {
    let id = |rule: DegradeRule| rule.id().to_string();
    assert_eq!(id(slow(200.0, 0.5, 10_000)), "pay/slowRatio");
    assert_eq!(
        id(error_ratio(0.5, 1).per(60_000, Some(60)).unwrap()),
        "pay/errorRatio/60s/60buckets"
    );
    assert_eq!(
        id(error_count(5.0, 1).per(1500, None).unwrap().sentinel()),
        "pay/errorCount/1500ms/compat=sentinel"
    );
    let shadow = error_count(5.0, 1).in_mode(Mode::Shadow);
    assert_eq!(id(shadow), "pay/errorCount", "whatever its mode");
    assert_eq!(
        id(error_count(5.0, 1).with_id(RuleId::new("mine").unwrap())),
        "mine"
    );
}

#[test]
fn the_defaults_are_stated() {
    let rule = error_ratio(0.5, 1000);
    assert_eq!(rule.min_request_amount(), 5);
    assert_eq!(rule.probes(), 1);
    assert_eq!(rule.comparison(), Comparison::Above);
    assert_eq!(rule.geometry().window(), Window::new(1000, 10).unwrap());
    for (interval, samples) in [(60_000, 10), (999, 9), (7, 7), (101, 1)] {
        let window = rule
            .clone()
            .per(interval, None)
            .unwrap()
            .geometry()
            .window();
        assert_eq!(window.sample_count(), samples, "{interval}");
    }
    // Compatible rules always are.
    let rule = rule.with_probes(3).unwrap().comparing(Comparison::AtLeast);
    let rule = rule.sentinel().per(2000, Some(20)).unwrap();
    assert_eq!(
        (rule.probes(), rule.comparison(), rule.geometry().window()),
        (1, Comparison::Above, Window::new(2000, 1).unwrap())
    );
}

#[test]
fn impossible_rules_are_refused() {
    let says = |error: Result<DegradeRule, RuleError>| error.unwrap_err().to_string();
    let grade = |grade: Result<DegradeGrade, RuleError>| grade.unwrap_err().to_string();
    let rule = || error_ratio(0.5, 1000);
    assert_eq!(
        grade(DegradeGrade::error_ratio(1.5)),
        "`1.5` is not a valid ratio; use a number from 0 to 1"
    );
    assert_eq!(
        grade(DegradeGrade::slow_ratio(1.0, f64::NAN)),
        "`NaN` is not a valid ratio; use a number from 0 to 1"
    );
    assert_eq!(
        grade(DegradeGrade::slow_ratio(-1.0, 0.5)),
        "`-1` is not a valid count; use a number from 0 to 9007199254740992"
    );
    assert_eq!(
        grade(DegradeGrade::error_count(f64::INFINITY)),
        "`Infinity` is not a valid count; use a number from 0 to 9007199254740992"
    );
    assert_eq!(
        says(DegradeRule::new("", rule().grade(), 1)),
        "`` is not a valid name; use at least one character"
    );
    assert_eq!(
        says(DegradeRule::new("pay", rule().grade(), 0)),
        "`0` is not possible; use a whole number from 1 to 315360000000"
    );
    assert_eq!(
        says(rule().needing(0)),
        "`0` is not possible; use a whole number from 1 to 9007199254740992"
    );
    assert_eq!(
        says(rule().with_probes(0)),
        "`0` is not possible; use a whole number from 1 to 100"
    );
    assert_eq!(
        says(rule().with_probes(257)),
        "`257` is not possible; use a whole number from 1 to 100"
    );
    assert_eq!(
        says(rule().per(1000, Some(7))),
        RuleGeometry::new(1000, Some(7)).unwrap_err().to_string()
    );
    assert!(rule().with_probes(MAX_PROBES.into()).is_ok());
}

// ---- what is shared ----

#[test]
fn a_state_is_four_words() {
    let mut random = fastrand::Rng::with_seed(5);
    for _ in 0..1000 {
        let mut words = [(); 4].map(|()| random.u64(..));
        words[0] = words[0] & !0xff | random.u64(..3);
        let state = State::unpack(words).unwrap();
        assert_eq!(State::unpack(state.pack()), Some(state));
    }
    assert_eq!(State::unpack([3, 0, 0, 0]), None);
    let (circuit, _, _probe) = half_open(error_ratio(0.5, 1000));
    let state = circuit.breaker.state();
    assert_eq!(State::unpack(state.pack()), Some(state));
    assert_eq!(
        State::unpack([0; 4]),
        Some(State::new(CallCounts::default())),
        "nothing yet is closed"
    );
}

/// What several virtual machines share.
#[derive(Default)]
struct Shared {
    words: Cell<[u64; 4]>,
    counts: Cell<CallCounts>,
    published: RefCell<Option<Snapshots>>,
}

/// One machine's view of it: it sees a change when its own swap fails, or when it reloads.
struct Machine {
    shared: Rc<Shared>,
    known: Cell<[u64; 4]>,
}

impl BreakerStorage for Machine {
    fn load(&self) -> State {
        State::unpack(self.known.get()).unwrap()
    }

    fn reload(&self) -> State {
        self.known.set(self.shared.words.get());
        self.load()
    }

    fn replace(&self, current: State, next: State) -> bool {
        let is_there = self.shared.words.get() == current.pack();
        if is_there {
            self.shared.words.set(next.pack());
        }
        self.reload();
        is_there
    }

    fn counts(&self) -> CallCounts {
        self.shared.counts.get()
    }

    fn add(&self, bad: bool) -> CallCounts {
        self.shared.counts.set(self.counts().plus_one(bad));
        self.counts()
    }

    fn published(&self) -> Option<Snapshots> {
        self.shared.published.borrow().clone()
    }
}

fn machines(rule: &DegradeRule) -> [Circuit<Machine>; 4] {
    let shared = Rc::new(Shared::default());
    [(); 4].map(|()| Circuit {
        rule: rule.clone(),
        breaker: Breaker::with_storage(
            rule.geometry(),
            Machine {
                shared: Rc::clone(&shared),
                known: Cell::new([0; 4]),
            },
        ),
    })
}

fn observe(machines: &[Circuit<Machine>]) {
    machines
        .iter()
        .for_each(|machine| machine.breaker.observe());
}

#[test]
fn a_machine_that_takes_up_what_another_published_neither_forgets_failures_nor_takes_old_ones_for_new()
 {
    let rule = error_count(1.0, 1000).needing(1).unwrap();
    for (later, phase) in [
        (300, "open"),
        (999, "open"),
        (1100, "closed"),
        (9000, "closed"),
    ] {
        for is_born_late in [false, true] {
            let machines = machines(&rule);
            assert!(machines[0].call(1, true, 100_000));
            machines[0].breaker.observe();
            machines[0].breaker.move_to(at(100_100));
            let shared = &machines[0].breaker.storage().shared;
            shared.published.replace(machines[0].breaker.snapshots());
            let storage = Machine {
                shared: Rc::clone(shared),
                known: Cell::new(shared.words.get()),
            };
            let late = Circuit {
                rule: rule.clone(),
                breaker: Breaker::with_storage(rule.geometry(), storage),
            };
            let other = if is_born_late { &late } else { &machines[1] };
            assert!(other.call(1, true, 100_000 + later));
            assert_eq!(other.phase(), phase, "{later} ms later, {is_born_late}");
        }
    }
}

#[test]
fn machines_that_share_a_breaker_open_it_together_and_send_one_probe() {
    let machines = machines(&error_count(3.0, 1000).needing(4).unwrap());
    for (i, machine) in machines.iter().enumerate() {
        assert!(machine.call(1, true, 100_000 + i as u64));
    }
    observe(&machines);
    assert_eq!(machines.each_ref().map(Circuit::phase), ["open"; 4]);

    // All of them think that it is open, and ask when its time has come.
    let mut probes: Vec<_> = machines
        .iter()
        .filter_map(|machine| machine.breaker.reserve(&machine.rule, at(101_003)))
        .collect();
    assert_eq!(probes.len(), 1);
    // The probe may end elsewhere than it began.
    machines[2].complete(probes.pop().unwrap(), 1, false, 101_004);
    observe(&machines);
    assert_eq!(machines.each_ref().map(Circuit::phase), ["closed"; 4]);
    // What was counted before is forgotten everywhere.
    for machine in &machines {
        assert_eq!(machine.breaker.counts(at(101_005)), CallCounts::default());
    }
}

/// Machines that share only the state and the counts, at random: never more probes than the rule allows.
#[test]
fn machines_that_race_never_send_more_probes_than_one_would() {
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..300 {
        let probes = random.usize(1..4);
        let rule = error_ratio(0.5, 1000)
            .needing(1)
            .unwrap()
            .with_probes(probes as u32)
            .unwrap();
        let machines = machines(&rule);
        assert!(machines[0].call(1, true, 100_000));
        let (mut out, mut now) = (Vec::new(), 100_000);
        observe(&machines);
        let mut succeeded = 0;
        loop {
            now += random.u64(..200);
            let machine = &machines[random.usize(..4)];
            if random.bool() {
                out.extend(machine.breaker.reserve(&rule, at(now)));
                assert!(out.len() + succeeded <= probes);
            } else if let Some(probe) = out.pop() {
                machine.complete(probe, 1, false, now);
                succeeded += 1;
                if succeeded == probes {
                    assert_eq!(machine.phase(), "closed");
                    break;
                }
            }
            if now > 101_900 {
                break; // they may expire from now on
            }
        }
    }
}

/// A machine without requests observes now and then, and counts nothing that is older than the window.
#[test]
fn what_others_count_leaves_the_window_in_time() {
    let [busy, idle, ..] = machines(&error_count(3.0, 1000).needing(1).unwrap());
    let look = |now| {
        idle.breaker.observe();
        idle.breaker.advance(&idle.rule, at(now));
    };
    look(99_999);
    for now in [100_000, 100_050, 100_099] {
        busy.call(1, true, now);
    }
    look(100_099);
    assert_eq!(idle.breaker.counts(at(100_099)).bad, 3);
    look(101_100);
    assert_eq!(idle.breaker.counts(at(101_100)).bad, 0);
    idle.call(1, true, 101_101);
    assert_eq!(idle.phase(), "closed");
}
