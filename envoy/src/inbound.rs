//! What all requests of the process do together, for system rules: each that the filter sees comes from outside.
//!
//! | Number | Kept in |
//! |---|---|
//! | passes within a second | two gauges and a ring, as a rule's: no second holds more than a limit on it |
//! | calls in flight | a gauge that a request raises before it is decided on: no more than a limit on it |
//! | average response time | gauges of completions and of their milliseconds; two buckets of half a second, as in Sentinel |
//! | best rate | the same completions |
//! | shortest response time | shared data, by compare-and-swap where a call beats it; read on ticks |
//!
//! The last three may miss calls that complete at the same moment. A virtual machine that has slept, or starts late, takes up
//! what other workers have published of them. Only the numbers that a rule needs are counted.

use crate::counts::RuleCounts;
use crate::holds::{Counts, Holder, Holds};
use crate::host::Host;
use crate::ring::{Published, Ring};
use crate::shared::SharedCell;
use crate::vm::Vm;
use leapgate::Timestamp;
use leapgate::backend::{Counter, Inbound, Past, RuleWindow, Snapshots};
use leapgate::rule::{Counting, DEFAULT_SAMPLE_COUNT, SystemLimit, SystemRule};
use leapgate::stats::Window;
use std::cell::Cell;
use std::rc::Rc;

/// Response times are averaged over two buckets of this many milliseconds, as in Sentinel.
const BUCKET_MS: u64 = 500;

/// The shortest response time if no call has completed, in milliseconds, as in Sentinel (`statistic.max.rt`).
const MAX_RT: u64 = 5000;

/// The numbers of a process, as one virtual machine has them. They outlive a configuration.
pub struct Numbers<H: Host> {
    passes: RuleWindow<RuleCounts<H>>,
    in_flight: RuleCounts<H>,
    completed: RuleWindow<RuleCounts<H>>,
    millis: RuleWindow<RuleCounts<H>>,
    /// Where the rings of these two are published together; `None` if each virtual machine has its own.
    times: Option<Published<H>>,
    shortest: Shortest<H>,
}

/// The rings of completions and of their milliseconds are published together: their quotient would be wrong if they were of
/// different instants.
impl<H: Host> Ring for Numbers<H> {
    fn counts(&self) -> Option<[u64; 2]> {
        let completed = self.completed.counter().admitted()?;
        Some([completed, self.millis.counter().admitted()?])
    }

    fn known(&self) -> [u64; 2] {
        [self.completed.admitted(), self.millis.admitted()]
    }

    fn snapshots(&self) -> Option<Snapshots> {
        let mut both = self.completed.snapshots()?;
        both.counts
            .extend_from_slice(&self.millis.snapshots()?.counts);
        Some(both)
    }
}

impl<H: Host> Numbers<H> {
    /// Opens the numbers; `None` if there are no such windows.
    pub(crate) fn new(vm: &Vm<H>, holder: &Rc<Holder<H>>) -> Option<Numbers<H>> {
        let (second, halves) = (
            Window::new(1000, DEFAULT_SAMPLE_COUNT).ok()?,
            Window::new(1000, 2).ok()?,
        );
        let now = vm.host().now().unwrap_or(Timestamp::ZERO);
        let names = ["inbound_passes_tickets", "inbound_passes_admitted"];
        let (counter, past) = RuleCounts::open_unlabelled(vm, names, Some(second));
        let passes = RuleWindow::new(second, Counting::Strict, counter, past);
        let (in_flight, _) = RuleCounts::open_unlabelled(vm, ["inbound_in_flight"; 2], None);
        let in_flight = in_flight.holding(Holds::new(holder, Counts::Inbound, ""));
        let average = |name: &'static str| {
            let (counter, _) = RuleCounts::open_unlabelled(vm, [name; 2], None);
            // The past is unknown and counts as empty.
            let last = counter.admitted().unwrap_or(0);
            let past = Past::Kept(Snapshots {
                newest: halves.start(now),
                counts: vec![last; 4],
            });
            RuleWindow::new(halves, Counting::Sentinel, counter, past)
        };
        let (completed, millis) = (average("inbound_completed"), average("inbound_response_ms"));
        let is_shared = completed.counter().admitted().is_some();
        let times = || Published::new(vm, ["inbound_times", ""], halves);
        Some(Numbers {
            passes,
            in_flight,
            completed,
            millis,
            times: is_shared.then(times),
            shortest: Shortest {
                cell: vm.is_shared().then(|| {
                    let key = vm.name("inbound_shortest", "");
                    SharedCell::with(vm.host(), key, Minima::default().words())
                }),
                known: Cell::default(),
            },
        })
    }
}

impl<H: Host> Numbers<H> {
    fn advance(&self, needs: Needs, now: Timestamp) {
        if needs.passes {
            self.passes.advance(now);
        }
        if needs.times {
            self.completed.advance(now);
            self.millis.advance(now);
            if self.times.as_ref().is_some_and(|times| !times.is_awake()) {
                self.wake(needs);
            }
        }
    }

    /// Takes up what others have published while this virtual machine slept.
    #[cold]
    fn wake(&self, needs: Needs) {
        let times = self.times.as_ref();
        if let Some(kept) = times.and_then(|times| times.wake(&|| self.counts())) {
            self.completed.take_up(&kept, 0);
            self.millis.take_up(&kept, 1);
        }
        if needs.estimate {
            self.shortest.refresh();
        }
    }
}

/// The numbers that the system rules in force need.
#[derive(Clone, Copy)]
struct Needs {
    passes: bool,
    in_flight: bool,
    times: bool,
    estimate: bool,
}

/// The system rules in force, over the numbers of the process.
pub struct System<H: Host> {
    numbers: Rc<Numbers<H>>,
    needs: Needs,
}

impl<H: Host> System<H> {
    /// These rules, over these numbers.
    pub fn new(rules: &[SystemRule], numbers: Rc<Numbers<H>>) -> System<H> {
        let is_limited = |limit| rules.iter().any(|rule| rule.limits(limit));
        let estimate = is_limited(SystemLimit::Bbr);
        System {
            numbers,
            needs: Needs {
                passes: is_limited(SystemLimit::Qps),
                in_flight: estimate || is_limited(SystemLimit::Thread),
                times: estimate || is_limited(SystemLimit::Rt),
                estimate,
            },
        }
    }

    /// How long the shortest bucket is, in milliseconds.
    pub fn bucket_ms(&self) -> u64 {
        if self.needs.passes {
            1000 / u64::from(DEFAULT_SAMPLE_COUNT)
        } else {
            BUCKET_MS
        }
    }

    /// Reads the shared numbers. To be called before the clock is read.
    pub fn observe(&self) {
        if self.needs.passes {
            self.numbers.passes.observe();
        }
        if self.needs.times {
            self.numbers.completed.observe();
            self.numbers.millis.observe();
        }
    }

    /// Dates what was observed before `now`, publishes it to other workers and makes changes that are owed. Returns whether
    /// nothing is left, which can only be so if `at_once`.
    pub fn keep_up(&self, now: Timestamp, at_once: bool) -> bool {
        let numbers = &*self.numbers;
        numbers.advance(self.needs, now);
        if self.needs.estimate {
            numbers.shortest.refresh();
        }
        let mut is_settled = true;
        if self.needs.passes {
            is_settled &= numbers
                .passes
                .counter()
                .publish(&numbers.passes, now, at_once);
        }
        if let (true, Some(times)) = (self.needs.times, &numbers.times) {
            is_settled &= times.publish(numbers, now, at_once);
        }
        for window in [&numbers.passes, &numbers.completed, &numbers.millis] {
            is_settled &= window.counter().pay_owed();
        }
        is_settled & numbers.in_flight.pay_owed()
    }

    /// A request that is to be decided on, and the numbers that system rules compare with their limits, which do not include
    /// it.
    pub fn enter(&self, now: Timestamp) -> (Call<H>, Inbound) {
        let (numbers, needs) = (&self.numbers, self.needs);
        numbers.advance(needs, now);
        let take = |counter: &RuleCounts<H>| counter.reserve(1).map(|taken| taken.wrapping_sub(1));
        let ticket = needs
            .passes
            .then(|| take(numbers.passes.counter()))
            .flatten();
        let in_flight = needs.in_flight.then(|| take(&numbers.in_flight)).flatten();
        let mut inbound = Inbound {
            // A number that cannot be counted is as high as can be: the request is refused.
            pass_qps: if needs.passes {
                ticket.map_or(f64::MAX, |taken| numbers.passes.load(taken, now))
            } else {
                0.0
            },
            threads: if needs.in_flight {
                in_flight.unwrap_or(u64::MAX)
            } else {
                0
            },
            ..Inbound::default()
        };
        if needs.times {
            let completed = numbers.completed.sum(now);
            if completed > 0.0 {
                inbound.avg_rt = numbers.millis.sum(now) / completed;
            }
        }
        if needs.estimate {
            inbound.max_success_qps = best_half(&numbers.completed) * 2.0;
            inbound.min_rt = numbers.shortest.get(now) as f64;
        }
        let call = Call {
            numbers: Rc::clone(numbers),
            needs,
            has_ticket: ticket.is_some(),
            is_in_flight: in_flight.is_some(),
            is_held: false,
            began: now,
        };
        (call, inbound)
    }
}

/// The most completions in a bucket of a window that has been advanced, at least one.
fn best_half<H: Host>(completed: &RuleWindow<RuleCounts<H>>) -> f64 {
    let Some(kept) = completed.snapshots() else {
        return 1.0;
    };
    let [last, start, before, ..] = *kept.counts else {
        return 1.0;
    };
    let (current, earlier) = (last.wrapping_sub(start), start.wrapping_sub(before));
    current.max(earlier).max(1) as f64
}

/// A request that is being decided on or is in flight. Dropping it releases what it holds.
pub struct Call<H: Host> {
    numbers: Rc<Numbers<H>>,
    needs: Needs,
    has_ticket: bool,
    is_in_flight: bool,
    /// Whether it has been admitted, and is held in flight.
    is_held: bool,
    began: Timestamp,
}

impl<H: Host> Call<H> {
    /// The request is admitted.
    pub fn admit(&mut self) {
        if std::mem::take(&mut self.has_ticket) {
            self.numbers.passes.admit(1);
        }
        self.is_held = self.is_in_flight;
        if self.is_held {
            self.numbers.in_flight.hold(1);
        }
    }

    /// Whether its response time is counted.
    pub fn is_timed(&self) -> bool {
        self.needs.times
    }

    /// The request has been answered.
    pub fn complete(&self, now: Timestamp) {
        if self.needs.times {
            let millis = now.since(self.began).as_millis() as u64;
            self.numbers.advance(self.needs, now); // it counts in the bucket of its end
            self.numbers.millis.admit(millis);
            self.numbers.completed.admit(1);
            if self.needs.estimate {
                self.numbers.shortest.record(millis, now);
            }
        }
    }
}

impl<H: Host> Drop for Call<H> {
    fn drop(&mut self) {
        if self.has_ticket {
            self.numbers.passes.counter().release(1);
        }
        if self.is_in_flight && (!self.is_held || self.numbers.in_flight.unhold(1)) {
            self.numbers.in_flight.release(1);
        }
    }
}

/// The shortest response times of a bucket, which has this number, and of the one before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Minima {
    bucket: u64,
    current: u64,
    before: u64,
}

impl Default for Minima {
    fn default() -> Minima {
        Minima {
            bucket: 0,
            current: MAX_RT,
            before: MAX_RT,
        }
    }
}

impl Minima {
    fn of([bucket, current, before]: [u64; 3]) -> Minima {
        Minima {
            bucket,
            current,
            before,
        }
    }

    fn words(self) -> [u64; 3] {
        [self.bucket, self.current, self.before]
    }

    /// The same minima in the bucket `to`; unchanged if that bucket is over already.
    fn moved(self, to: u64) -> Minima {
        let before = match to.checked_sub(self.bucket) {
            None | Some(0) => return self,
            Some(1) => self.current,
            Some(_) => MAX_RT,
        };
        Minima {
            bucket: to,
            current: MAX_RT,
            before,
        }
    }

    fn and(self, other: Minima) -> Minima {
        let bucket = self.bucket.max(other.bucket);
        let (one, other) = (self.moved(bucket), other.moved(bucket));
        Minima {
            bucket,
            current: one.current.min(other.current),
            before: one.before.min(other.before),
        }
    }
}

/// The shortest response time of the process.
struct Shortest<H> {
    /// Shared data; `None` if each virtual machine has its own.
    cell: Option<SharedCell<H>>,
    known: Cell<Minima>,
}

impl<H: Host> Shortest<H> {
    fn get(&self, now: Timestamp) -> u64 {
        let known = self.known.get().moved(now.as_millis() / BUCKET_MS);
        known.current.min(known.before).max(1)
    }

    /// Takes up the response times of other workers.
    fn refresh(&self) {
        if let Some((shared, _)) = self.cell.as_ref().and_then(SharedCell::read) {
            self.known.set(self.known.get().and(Minima::of(shared)));
        }
    }

    /// Records a response time.
    fn record(&self, millis: u64, now: Timestamp) {
        let mut known = self.known.get().moved(now.as_millis() / BUCKET_MS);
        if millis >= known.current {
            self.known.set(known);
            return;
        }
        known.current = millis;
        self.known.set(known);
        let merged = |shared| known.and(Minima::of(shared)).words();
        if let Some(shared) = self.cell.as_ref().and_then(|cell| cell.change(merged)) {
            self.known.set(Minima::of(shared));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn halves(bucket: u64, current: u64, before: u64) -> Minima {
        Minima {
            bucket,
            current,
            before,
        }
    }

    #[test]
    fn the_shortest_of_a_bucket_is_that_of_the_one_before_it_when_the_next_begins() {
        let known = halves(7, 20, 30);
        let cases = [
            (6, known),
            (7, known),
            (8, halves(8, MAX_RT, 20)),
            (9, halves(9, MAX_RT, MAX_RT)),
        ];
        for (to, expected) in cases {
            assert_eq!(known.moved(to), expected, "in bucket {to}");
        }
        assert_eq!(known.and(halves(8, 25, 10)), halves(8, 25, 10));
        assert_eq!(halves(8, 25, 10).and(known), halves(8, 25, 10));
        assert_eq!(known.and(halves(7, 25, 10)), halves(7, 20, 10));
    }
}
