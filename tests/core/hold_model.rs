//! Holds beside a naive log of requests.

use crate::support::{at, engine, rule};
use leapgate::rule::{AtMost, Cost, Counting, Unit};
use leapgate::{Decision, Engine, Entry, Outcome, Request};

const LIMIT: u64 = 6;
/// Three buckets of 10 ms.
const INTERVAL: u64 = 30;
const BUCKET: u64 = 10;

/// A request that was let in.
struct Logged {
    from: u64,
    /// What it held.
    estimate: u64,
    /// What it costs in the end.
    cost: u64,
    to: Option<u64>,
}

/// An engine with one rule, and all that it has decided since what is older than a window.
struct Beside {
    engine: Engine,
    counting: Counting,
    now: u64,
    open: Vec<Entry>,
    /// By place in `open`, the requests in flight.
    in_flight: Vec<Logged>,
    ended: Vec<Logged>,
    /// Costs of entries that were dropped: they count from the next call with a time on.
    dropped: Vec<Logged>,
}

impl Beside {
    fn new(counting: Counting) -> Beside {
        let cost = Cost::at_end().at_most(AtMost::Amount(u64::MAX));
        let rule = rule("r", "api", LIMIT as f64).per(INTERVAL, Some(3)).unwrap();
        let rule = rule.counting(counting).in_unit(Unit::new("tokens").unwrap());
        Beside {
            engine: engine([rule.costing(cost).unwrap()]),
            counting,
            now: 1000,
            open: Vec::new(),
            in_flight: Vec::new(),
            ended: Vec::new(),
            dropped: Vec::new(),
        }
    }

    fn land_dropped(&mut self) {
        let now = self.now;
        self.ended.extend(self.dropped.drain(..).map(|logged| Logged { to: Some(now), ..logged }));
    }

    /// What counts now: what is held, and what was settled in the buckets of the window.
    fn used(&self) -> u64 {
        let buckets = if self.counting == Counting::Strict { 3 } else { 2 };
        let oldest = self.now / BUCKET - buckets;
        let settled = self.ended.iter().filter(|logged| logged.to.unwrap() / BUCKET >= oldest);
        let held = self.in_flight.iter().map(|logged| logged.estimate);
        settled.map(|logged| logged.cost).sum::<u64>() + held.sum::<u64>()
    }

    fn enter(&mut self, estimate: u64, cost: u64) {
        self.land_dropped();
        let fits = self.used() + estimate.min(LIMIT) <= LIMIT;
        let request = Request::new("api").cost_of("tokens", estimate);
        match self.engine.enter(&request, at(self.now)) {
            Decision::Pass(entry) => {
                assert!(fits, "let in at {} ms", self.now);
                self.open.push(entry);
                let (from, estimate) = (self.now, estimate.min(LIMIT));
                self.in_flight.push(Logged { from, estimate, cost, to: None });
            }
            Decision::Wait(..) => panic!("nothing waits"),
            Decision::Block(blocked) => {
                assert!(!fits, "refused at {} ms", self.now);
                let wait = blocked.retry_after().unwrap().as_millis() as u64;
                assert!(wait > 0 && (self.in_flight.is_empty() || wait >= 1000), "{wait} ms");
            }
        }
        let resource = self.engine.resource("api");
        let policy = resource.policies(at(self.now)).next().unwrap();
        assert_eq!(policy.remaining, LIMIT.saturating_sub(self.used()), "at {} ms", self.now);
    }

    fn settle(&mut self, place: usize) {
        if place >= self.open.len() {
            return;
        }
        self.land_dropped();
        let mut logged = self.in_flight.swap_remove(place);
        let mut entry = self.open.swap_remove(place);
        entry.settle("tokens", logged.cost);
        entry.exit(Outcome::Success, at(self.now));
        logged.to = Some(self.now);
        self.ended.push(logged);
    }

    fn drop_entry(&mut self, place: usize) {
        if place >= self.open.len() {
            return;
        }
        drop(self.open.swap_remove(place));
        let mut logged = self.in_flight.swap_remove(place);
        logged.cost = logged.estimate;
        self.dropped.push(logged);
    }

    /// The most that requests cost, beyond what they were underestimated by, that ran in the interval that ends now.
    fn cost_of_the_last_interval(&self) -> u64 {
        let ran = self.ended.iter().chain(&self.in_flight).chain(&self.dropped);
        let ran = ran.filter(|logged| logged.from <= self.now && logged.to.is_none_or(|to| to + INTERVAL > self.now));
        ran.map(|logged| logged.cost.min(logged.estimate)).sum()
    }

    fn check(&mut self) {
        let most = if self.counting == Counting::Strict { LIMIT } else { 2 * LIMIT };
        let cost = self.cost_of_the_last_interval();
        assert!(cost <= most, "{cost} at {} ms", self.now);
        let horizon = self.now.saturating_sub(3 * INTERVAL);
        self.ended.retain(|logged| logged.to.unwrap() > horizon);
    }
}

#[test]
fn every_short_sequence_of_holds_and_settles_agrees_with_a_log() {
    let length = if cfg!(debug_assertions) { 5 } else { 7 };
    let acts: [fn(&mut Beside); 8] = [
        |it| it.enter(2, 1),
        |it| it.enter(4, 9),
        |it| it.enter(9, 3),
        |it| it.settle(0),
        |it| it.settle(1),
        |it| it.drop_entry(0),
        |it| it.now += BUCKET,
        |it| it.now += INTERVAL + BUCKET,
    ];
    for sequence in 0..acts.len().pow(length) {
        let mut beside = Beside::new(Counting::Strict);
        let mut rest = sequence;
        for _ in 0..length {
            acts[rest % acts.len()](&mut beside);
            beside.check();
            rest /= acts.len();
        }
    }
}

#[test]
fn random_holds_and_settles_never_exceed_the_limit_in_any_interval() {
    let steps = if cfg!(debug_assertions) { 300_000 } else { 10_000_000 };
    let mut random = fastrand::Rng::with_seed(12);
    for (counting, dearest, share) in [(Counting::Strict, 1, 2), (Counting::Strict, 3, 4), (Counting::Sentinel, 1, 4)] {
        let mut beside = Beside::new(counting);
        for _ in 0..steps / share {
            match random.u8(0..8) {
                0..3 => {
                    let estimate = random.u64(1..=4);
                    beside.enter(estimate, random.u64(0..=estimate * dearest));
                }
                3..6 => beside.settle(random.usize(0..3)),
                6 => beside.drop_entry(random.usize(0..8)),
                _ => beside.now += [1, 3, 10, 15, 29, 41, 500][random.usize(0..7)],
            }
            beside.check();
        }
    }
}
