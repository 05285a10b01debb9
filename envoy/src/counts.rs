//! Where the counts of a rule are kept, so that the limit holds for the process.
//!
//! A rule has two running counts, `tickets` and `admitted`, in a pair that all worker threads share (`pair.rs`), and a
//! ring of what they were at each bucket's start, which workers publish to one another ([`crate::ring`]).
//!
//! Names of gauges ([`crate::names`]) hold the root id, the rule's id and the window's geometry, and are the same only for the
//! same window.

use crate::counters::{Counters, LazyCounter};
use crate::holds::Holds;
use crate::host::{Host, Put};
use crate::pair::PairCell;
use crate::peaks::Peaks;
use crate::ring::Published;
use crate::shared::SharedCell;
use crate::vm::Vm;
use leapgate::Timestamp;
use leapgate::backend::{
    Controller, Counter, LocalCounter, LocalInstant, Past, RuleWindow, SharedInstant,
};
use leapgate::rule::ControlBehavior;
use leapgate::stats::Window;
use std::cell::Cell;

/// The counts of one rule.
pub struct RuleCounts<H: Host> {
    pair: PairCell<H>,
    /// Where the ring is published; `None` if the counts are this virtual machine's own.
    ring: Option<Published<H>>,
    /// The latest turn that a throttle has given away.
    latest: Latest<H>,
    /// How warm the rule is, shared by the workers; `None` if it does not warm up.
    warmth: Option<SharedCell<H>>,
    counters: Counters<H>,
    /// How many requests have waited.
    waited: LazyCounter,
    /// How full the limit was.
    peaks: Peaks<H>,
    /// What this virtual machine holds of the counts; `None` if no other one shares them.
    holds: Option<Holds<H>>,
}

impl<H: Host> RuleCounts<H> {
    /// Counts that this virtual machine does not share, with counters of the decisions.
    pub(crate) fn local(vm: &Vm<H>, labels: String) -> RuleCounts<H> {
        RuleCounts {
            pair: PairCell::Local(LocalCounter::default()),
            ring: None,
            latest: Latest::Local(LocalInstant::default()),
            warmth: None,
            counters: Counters::new(vm, &labels),
            peaks: Peaks::new(vm, &labels),
            waited: LazyCounter::default(),
            holds: None,
        }
    }

    /// These counts, of which requests may hold something until they end.
    pub(crate) fn holding(mut self, holds: Holds<H>) -> RuleCounts<H> {
        let is_shared = matches!(self.pair, PairCell::Gauges { .. });
        self.holds = is_shared.then_some(holds);
        self
    }

    /// Opens the counts with these labels (exact ones for shared numbers, readable ones for counters), and what is known of
    /// the past of their `window`. As gauges they are called `names`.
    pub(crate) fn open(
        vm: &Vm<H>,
        [exact, readable]: [String; 2],
        names: [&str; 2],
        window: Option<Window>,
        behavior: ControlBehavior,
    ) -> (RuleCounts<H>, Past) {
        // A throttle gives turns and counts no requests.
        let pair = if window.is_some() && behavior == ControlBehavior::Throttle {
            PairCell::Local(LocalCounter::default())
        } else {
            PairCell::open(vm, &exact, names)
        };
        let mut counts = RuleCounts {
            pair,
            latest: Latest::open(vm, &exact, behavior),
            warmth: (vm.is_shared() && behavior.warms_up())
                .then(|| SharedCell::new(vm.host(), vm.name("warmth", &exact))),
            ..RuleCounts::local(vm, readable)
        };
        let past = match (window, counts.admitted()) {
            (Some(window), Some(admitted)) => {
                let ring = Published::new(vm, ["ring", &exact], window);
                let kept = ring.wake(&|| Some([admitted; 2]));
                if kept.is_none() && !ring.begin(admitted > 0) {
                    vm.stay_awake();
                }
                counts.ring = Some(ring);
                match kept {
                    Some(kept) if !kept.counts.is_empty() => Past::Kept(kept),
                    None if admitted == 0 => Past::Fresh,
                    // A ring with later counts: they have fallen since, or risen while it was read.
                    _ => Past::Unknown { admitted },
                }
            }
            _ => Past::Fresh,
        };
        (counts, past)
    }

    /// Opens two running counts that belong to no rule, and what is known of the past of their `window`.
    pub(crate) fn open_unlabelled(
        vm: &Vm<H>,
        names: [&str; 2],
        window: Option<Window>,
    ) -> (RuleCounts<H>, Past) {
        let labels = [String::new(), String::new()];
        RuleCounts::open(vm, labels, names, window, ControlBehavior::Reject)
    }
}

impl<H: Host> RuleCounts<H> {
    /// Whether a tick has work to do: dating what was observed, publishing, exporting or making changes that are owed.
    pub fn is_moving(&self, state: &Controller<RuleCounts<H>>) -> bool {
        let is_behind = |window: &RuleWindow<Self>| {
            let ring = self.ring.as_ref();
            window.lends() || ring.is_some_and(|ring| ring.is_moving(window))
        };
        self.counters.is_behind(decisions(state))
            || self.waited.is_behind(state.waited())
            || self.pair.owes()
            || state.window().is_some_and(is_behind)
    }

    /// Brings everything up to `now`, on a tick; `at_once` if the worker is about to sleep. Returns whether nothing is left, which
    /// can only be so if `at_once`.
    pub fn tick(
        &self,
        vm: &Vm<H>,
        state: &Controller<RuleCounts<H>>,
        now: Timestamp,
        at_once: bool,
    ) -> bool {
        let is_moving = self.is_moving(state);
        if !is_moving && !at_once && !self.peaks.is_due(vm, now.as_millis()) {
            return true;
        }
        let (mut refused, mut is_settled) = (false, true);
        if is_moving {
            state.advance(now);
            refused = self.counters.has_refused(decisions(state));
            is_settled = self.settle(state, now, at_once);
        }
        self.look(vm, state, (refused, now), at_once);
        is_settled
    }

    /// Records how full the limit is: full, if it has `refused` a request.
    pub fn look(
        &self,
        vm: &Vm<H>,
        state: &Controller<RuleCounts<H>>,
        (refused, now): (bool, Timestamp),
        sleeps: bool,
    ) {
        let part = state.utilization(now).max(f64::from(refused));
        self.peaks.keep(vm, part, now.as_millis(), sleeps);
    }

    /// Exports the decisions, publishes the window, which has been advanced to `now`, to other workers, and makes changes that
    /// are owed. Returns whether nothing is left, which can only be so if `at_once`.
    fn settle(&self, state: &Controller<RuleCounts<H>>, now: Timestamp, at_once: bool) -> bool {
        self.counters
            .export_lazy(&self.waited, "waited", state.waited());
        self.counters.export(decisions(state));
        let is_published = state
            .window()
            .is_none_or(|window| self.publish(window, now, at_once) && !window.lends());
        self.pair.settle() && is_published
    }

    /// Publishes the window to other workers; if `at_once`, the window then rests. Returns whether they can read all of it.
    pub(crate) fn publish(&self, window: &RuleWindow<Self>, now: Timestamp, at_once: bool) -> bool {
        let Some(ring) = &self.ring else { return true };
        let is_published = ring.publish(window, now, at_once);
        if at_once {
            window.rest();
        }
        is_published
    }

    /// Makes changes that are owed. Returns whether none is left.
    pub(crate) fn pay_owed(&self) -> bool {
        self.pair.settle()
    }
}

/// How many requests a rule has passed, blocked, and would have blocked.
fn decisions<T: Counter>(state: &Controller<T>) -> [u64; 3] {
    [state.passed(), state.blocked(), state.shadow_blocked()]
}

impl<H: Host> Counter for RuleCounts<H> {
    fn latest(&self) -> &impl SharedInstant {
        &self.latest
    }

    fn warm_up(&self) -> Option<[u64; 4]> {
        let (warmth, _) = self.warmth.as_ref()?.read()?;
        Some(warmth)
    }

    fn publish_warm_up(&self, warmth: [u64; 4]) {
        if let Some(cell) = &self.warmth {
            // If that fails, the other workers use what they have observed themselves.
            cell.put(warmth, Put::Always);
        }
    }

    fn published(&self) -> Option<Past> {
        let now = || Some([self.admitted()?; 2]);
        let kept = self.ring.as_ref()?.wake(&now)?;
        Some(match kept.counts.is_empty() {
            true => Past::Unknown { admitted: 0 },
            false => Past::Kept(kept),
        })
    }

    fn fallen(&self) {
        self.ring.iter().for_each(Published::invalidate);
    }

    #[inline]
    fn admitted(&self) -> Option<u64> {
        self.pair.admitted()
    }

    #[inline]
    fn reserved(&self) -> u64 {
        self.pair.reserved()
    }

    #[inline]
    fn reserve(&self, n: u64) -> Option<u64> {
        self.pair.reserve(n)
    }

    fn release(&self, n: u64) {
        self.pair.release(n);
    }

    #[inline]
    fn admit(&self, n: u64) {
        self.pair.admit(n);
    }

    fn hold(&self, n: u64) {
        if let Some(holds) = &self.holds {
            holds.hold(n);
        }
    }

    fn unhold(&self, n: u64) -> bool {
        self.holds.as_ref().is_none_or(|holds| holds.unhold(n))
    }
}

/// The latest turn that a throttle has given away.
enum Latest<H> {
    /// For the process.
    Shared(InstantCell<H>),
    /// For this virtual machine, or for a rule that gives no turns.
    Local(LocalInstant),
}

impl<H: Host> Latest<H> {
    /// Opens the latest turn of a rule with this behavior.
    fn open(vm: &Vm<H>, labels: &str, behavior: ControlBehavior) -> Latest<H> {
        if !vm.is_shared() || !behavior.is_paced() {
            return Latest::Local(LocalInstant::default());
        }
        let key = vm.name("latest", labels);
        let instant = InstantCell {
            cell: SharedCell::with(vm.host(), key, [0]),
            seen: Cell::new(None),
        };
        if instant.cell.read::<1>().is_some() {
            return Latest::Shared(instant);
        }
        vm.warn(
            labels,
            "shared data does not work here: it paces each worker thread alone",
        );
        Latest::Local(LocalInstant::default())
    }
}

impl<H: Host> SharedInstant for Latest<H> {
    fn get(&self) -> Option<Timestamp> {
        match self {
            Latest::Shared(instant) => instant.get(),
            Latest::Local(instant) => instant.get(),
        }
    }

    fn swap(&self, from: Option<Timestamp>, to: Option<Timestamp>) -> bool {
        match self {
            Latest::Shared(instant) => instant.swap(from, to),
            Latest::Local(instant) => instant.swap(from, to),
        }
    }
}

/// An instant in shared data: its nanoseconds; 0 if there has been none yet.
struct InstantCell<H> {
    cell: SharedCell<H>,
    /// The words that were read last, and their version. With it a swap needs no read of its own.
    seen: Cell<Option<([u64; 1], u32)>>,
}

impl<H: Host> SharedInstant for InstantCell<H> {
    fn get(&self) -> Option<Timestamp> {
        let seen = self.cell.read();
        self.seen.set(seen);
        // An instant that cannot be read is infinitely late: no request gets a turn.
        let nanos = seen.map_or(u64::MAX, |([nanos], _)| nanos);
        (nanos > 0).then(|| Timestamp::from_nanos(nanos))
    }

    fn swap(&self, from: Option<Timestamp>, to: Option<Timestamp>) -> bool {
        let nanos = |instant: Option<Timestamp>| instant.map_or(0, Timestamp::as_nanos);
        let Some((seen, version)) = self.seen.take().or_else(|| self.cell.read()) else {
            return false;
        };
        seen == [nanos(from)] && self.cell.put([nanos(to)], Put::IfVersion(version))
    }
}
