//! Where the counts of a rule are kept, so that the limit holds for the process.
//!
//! A rule has two gauges of Envoy's, `tickets` and `admitted`: numbers that all worker threads share. Where gauges do not
//! work (a stats matcher can silence them: then they read 0 for ever), the two numbers stand in shared data and are changed by
//! compare-and-swap. Where that does not work either, or where the scope is the worker, they are this virtual machine's own.
//!
//! Names of gauges ([`crate::names`]) hold the root id, the rule's id and the window's geometry, and are the same only for the
//! same window.

use crate::breakers::BreakerPlace;
use crate::counters::{Counters, Late};
use crate::host::{Host, Put};
use crate::pair::Keeper;
use crate::ring::Published;
use crate::shared::SharedCell;
use crate::vm::Vm;
use leapgate::{
    ControlBehavior, Controller, LocalInstant, LocalTally, Past, RuleWindow, SharedInstant, Tally,
    Timestamp, Window,
};
use std::cell::Cell;

/// The counts of one rule.
pub struct RuleCounts<H> {
    keeper: Keeper<H>,
    /// Where the ring is published; `None` where no other virtual machine could go on with it.
    ring: Option<Published<H>>,
    /// How far the turns of a throttle reach.
    latest: Latest<H>,
    /// Where workers tell one another how warm the rule is, if it warms up.
    warmth: Option<SharedCell<H>>,
    counters: Counters<H>,
    /// How often it has made a request wait.
    waited: Late,
}

impl<H: Host> RuleCounts<H> {
    /// Of a rule that has decisions to tell, and counts nothing that others share.
    pub(crate) fn deciding(vm: &Vm<H>, labels: String) -> RuleCounts<H> {
        RuleCounts {
            keeper: Keeper::Local(LocalTally::default()),
            ring: None,
            latest: Latest::Local(LocalInstant::default()),
            warmth: None,
            counters: Counters::new(vm, &labels),
            waited: Late::default(),
        }
    }

    /// The counts of what has these labels, the exact ones and those to be read, and what is known of the past of its
    /// `window`; as gauges they are called `names`.
    pub(crate) fn open(
        vm: &Vm<H>,
        [exact, readable]: [String; 2],
        names: [&str; 2],
        window: Option<Window>,
        behavior: ControlBehavior,
    ) -> (RuleCounts<H>, Past) {
        // A throttle has turns, and counts nothing.
        let keeper = if window.is_some() && behavior == ControlBehavior::Throttle {
            Keeper::Local(LocalTally::default())
        } else {
            Keeper::open(vm, &exact, names)
        };
        let mut counts = RuleCounts {
            keeper,
            latest: Latest::open(vm, &exact, behavior),
            warmth: (vm.is_shared() && behavior.warms_up())
                .then(|| SharedCell::new(vm.host(), vm.name("warmth", &exact))),
            ..RuleCounts::deciding(vm, readable)
        };
        let past = match (window, counts.admitted()) {
            (Some(window), Some(admitted)) => {
                let ring = Published::new(vm, ["ring", &exact], window);
                let kept = ring.wake(&|| Some([admitted; 2]));
                if kept.is_none() && !ring.begin(admitted > 0) {
                    vm.stay_awake();
                }
                counts.ring = Some(ring);
                match kept.filter(|kept| !kept.counts.is_empty()) {
                    Some(kept) => Past::Kept(kept),
                    None if admitted == 0 => Past::Fresh,
                    None => Past::Unknown { admitted },
                }
            }
            _ => Past::Fresh,
        };
        (counts, past)
    }

    /// Two running counts that are not a rule's, called `names`, and what is known of the past of a `window` over them.
    pub(crate) fn open_as(
        vm: &Vm<H>,
        names: [&str; 2],
        window: Option<Window>,
    ) -> (RuleCounts<H>, Past) {
        let labels = [String::new(), String::new()];
        RuleCounts::open(vm, labels, names, window, ControlBehavior::Reject)
    }
}

impl<H: Host> RuleCounts<H> {
    /// Whether there may be something to be kept up to date, told or made good: while its window is asked for, and after.
    pub fn is_moving(&self, state: &Controller<RuleCounts<H>>) -> bool {
        let is_behind = |window: &RuleWindow<Self>| {
            let ring = self.ring.as_ref();
            window.lends() || ring.is_some_and(|ring| ring.is_moving(window))
        };
        self.counters.is_behind(decisions(state))
            || self.waited.is_behind(state.waited())
            || self.keeper.owes()
            || state.window().is_some_and(is_behind)
    }

    /// Tells the host's counters what has happened since the last time, and the others what is known of the window, which has
    /// been advanced to `now`; makes good what is owed. Whether nothing is left, which it can only be `at_once`.
    pub fn settle(&self, state: &Controller<RuleCounts<H>>, now: Timestamp, at_once: bool) -> bool {
        self.counters
            .tell_late(&self.waited, "waited", state.waited());
        self.counters.tell(decisions(state));
        let is_told = state
            .window()
            .is_none_or(|window| self.publish(window, now, at_once) && !window.lends());
        self.keeper.settle() && is_told
    }

    /// Tells the others what is known of the window; if `at_once`, so that it can rest. Whether they know all by now.
    pub(crate) fn publish(&self, window: &RuleWindow<Self>, now: Timestamp, at_once: bool) -> bool {
        let Some(ring) = &self.ring else { return true };
        let is_told = ring.publish(window, now, at_once);
        if at_once {
            window.rest();
        }
        is_told
    }

    /// Makes good what is owed. Whether nothing is any more.
    pub(crate) fn pay(&self) -> bool {
        self.keeper.settle()
    }
}

/// How often a rule has let pass, refused, and would have refused.
fn decisions<T: Tally>(state: &Controller<T>) -> [u64; 3] {
    [state.passed(), state.blocked(), state.shadow_blocked()]
}

impl<H: Host> Tally for RuleCounts<H> {
    const STATISTICS: bool = false;
    type Breaker = BreakerPlace<H>;

    fn latest(&self) -> &impl SharedInstant {
        &self.latest
    }

    fn warmth(&self) -> Option<[u64; 4]> {
        let (warmth, _) = self.warmth.as_ref()?.read()?;
        Some(warmth)
    }

    fn tell_warmth(&self, warmth: [u64; 4]) {
        if let Some(cell) = &self.warmth {
            // Where that fails, the others go by what they see themselves.
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
        self.keeper.admitted()
    }

    #[inline]
    fn tickets(&self) -> u64 {
        self.keeper.tickets()
    }

    #[inline]
    fn take(&self, n: u64) -> Option<u64> {
        self.keeper.take(n)
    }

    fn give_back(&self, n: u64) {
        self.keeper.give_back(n);
    }

    #[inline]
    fn commit(&self, n: u64) {
        self.keeper.commit(n);
    }
}

/// How far the turns of a throttle reach.
enum Latest<H> {
    /// For the process.
    Shared(SharedNanos<H>),
    /// In this virtual machine alone, or for a rule without turns.
    Local(LocalInstant),
}

impl<H: Host> Latest<H> {
    /// How far the turns of a rule reach that behaves so, if it takes turns.
    fn open(vm: &Vm<H>, labels: &str, behavior: ControlBehavior) -> Latest<H> {
        if !vm.is_shared() || !behavior.is_paced() {
            return Latest::Local(LocalInstant::default());
        }
        let key = vm.name("latest", labels);
        let place = SharedNanos {
            cell: SharedCell::with(vm.host(), key, [0]),
            seen: Cell::new(None),
        };
        if place.cell.read::<1>().is_some() {
            return Latest::Shared(place);
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
            Latest::Shared(place) => place.get(),
            Latest::Local(instant) => instant.get(),
        }
    }

    fn swap(&self, from: Option<Timestamp>, to: Option<Timestamp>) -> bool {
        match self {
            Latest::Shared(place) => place.swap(from, to),
            Latest::Local(instant) => instant.swap(from, to),
        }
    }
}

/// An instant in shared data: its nanoseconds; 0 where there is none yet.
struct SharedNanos<H> {
    cell: SharedCell<H>,
    /// What was read last, and its version: what stands there in that version is that. A swap needs no look of its own.
    seen: Cell<Option<([u64; 1], u32)>>,
}

impl<H: Host> SharedInstant for SharedNanos<H> {
    fn get(&self) -> Option<Timestamp> {
        let seen = self.cell.read();
        self.seen.set(seen);
        // What cannot be read is as far off as can be: nobody has a turn.
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
