//! Where a circuit breaker keeps its state, so that there is one for the process.
//!
//! Completions are two running counts, `completed` and `bad`, which all worker threads share (gauges, as a rule's counts
//! are). The state is a value in shared data that changes by compare-and-swap alone: of those who race for a probe one gets
//! it. A third gauge, `state`, says whether there is anything to look up: while it reads closed or open as is known, a
//! request pays for one reading of it and no more.
//!
//! What a virtual machine knows of the state is as old as its latest request to the resource, or its latest tick.

use crate::counts::{Counts, Keeper};
use crate::host::{Host, Kind, Level, MetricId, Put};
use crate::ring::Published;
use leapgate::{
    Breaker, BreakerKey, BreakerStorage, LocalBreaker, Phase, Snapshots, State, Timestamp,
};
use std::cell::Cell;
use std::fmt::Write;

/// Where one breaker keeps its state and its counts.
pub enum BreakerPlace<H> {
    /// In the process.
    Process(Shared<H>),
    /// In this virtual machine.
    Worker(LocalBreaker),
}

/// A state that the process shares.
pub struct Shared<H> {
    host: H,
    counts: Keeper<H>,
    /// Where the state stands in shared data.
    key: String,
    /// The number of the state in [`number`]; `None` where gauges do not work.
    state: Option<MetricId>,
    /// What stood there when it was last looked up, and its version.
    known: Cell<(State, u32)>,
    /// Where the ring of completions is published.
    ring: Published<H>,
}

/// What the gauge says of a state: 0 closed, 1 open, 2 half-open.
fn number(state: State) -> i64 {
    match state.phase() {
        Phase::Closed => 0,
        Phase::Open { .. } => 1,
        Phase::HalfOpen { .. } => 2,
    }
}

fn packed(state: State) -> Vec<u8> {
    state.pack().iter().flat_map(|n| n.to_le_bytes()).collect()
}

fn unpacked(bytes: &[u8]) -> Option<State> {
    let mut words = [0; 4];
    if bytes.len() != 32 {
        return None;
    }
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_le_bytes(bytes.try_into().ok()?);
    }
    State::unpack(words)
}

impl<H: Host> BreakerPlace<H> {
    /// The place of the breaker of `key`.
    pub(crate) fn open(counts: &Counts<H>, key: &BreakerKey) -> BreakerPlace<H> {
        let parts = [key.rule.as_str(), &key.resource];
        let (window, mut name) = (key.geometry.window(), counts.exact_name_of(&parts));
        // Writing to a string cannot fail.
        let _ = write!(
            name,
            ".{}.{}ms_{}{}",
            key.geometry.grade(),
            window.interval_ms(),
            window.sample_count(),
            if key.geometry.is_sentinel() {
                ".compat"
            } else {
                ""
            }
        );
        let keeper = counts.keeper(&name, ["completed", "bad"]);
        if matches!(keeper, Keeper::Local(_)) {
            return BreakerPlace::Worker(LocalBreaker::default());
        }
        let parts = parts.get(..if key.each { 2 } else { 1 });
        let gauge = counts.readable_name_of(parts.unwrap_or_default()) + ".state";
        let host = counts.host().clone();
        let state = matches!(keeper, Keeper::Gauges { .. })
            .then(|| host.define_metric(Kind::Gauge, &gauge))
            .flatten();
        let shared = Shared {
            counts: keeper,
            ring: Published::new(counts, &name, window),
            key: name + ".breaker",
            state,
            known: Cell::new((State::new(leapgate::Counts::default()), 0)),
            host,
        };
        let closed = State::new(shared.counts());
        let is_new = shared
            .host
            .share(&shared.key, &packed(closed), Put::IfAbsent);
        if let (true, Some(state)) = (is_new, state) {
            // Whatever it said was of a state that is gone.
            let stale = shared.host.read(state).unwrap_or(0) as i64;
            shared.host.add(state, stale.wrapping_neg());
        }
        if !shared.look_up() {
            let why = "shared data does not work here: the breaker is each worker thread's own";
            let line = format!("leapgate: {}: {why}", shared.key);
            shared.host.log(Level::Warn, &line);
            return BreakerPlace::Worker(LocalBreaker::default());
        }
        BreakerPlace::Process(shared)
    }
}

impl<H: Host> Shared<H> {
    /// Looks the state up. Whether that could be done; else what was known goes on.
    fn look_up(&self) -> bool {
        let found = self.host.shared(&self.key);
        let found = found.and_then(|value| Some((unpacked(&value.bytes)?, value.cas)));
        if let Some(found) = found {
            self.known.set(found);
        }
        found.is_some()
    }

    fn counts(&self) -> leapgate::Counts {
        // Of the two, `bad` is read first and raised last: no ratio is higher than it is.
        let (total, bad) = self.counts.pair().unwrap_or_default();
        leapgate::Counts { total, bad }
    }

    fn reload(&self) {
        let known = self.known.get().0;
        let reads_known = |state| self.host.read(state) == Some(number(known) as u64);
        // It may have changed meanwhile and changed back: closed again, with less to remember, or open again, for longer. Who
        // then decides on a change by what is known is told otherwise by the swap that fails. Half-open, it changes without
        // the gauge.
        let is_known =
            !matches!(known.phase(), Phase::HalfOpen { .. }) && self.state.is_some_and(reads_known);
        if !is_known {
            self.look_up();
        }
    }

    fn replace(&self, current: State, next: State) -> bool {
        let (known, version) = self.known.get();
        // A host takes version 0 for any.
        let is_replaced = known == current
            && version != 0
            && self
                .host
                .share(&self.key, &packed(next), Put::IfVersion(version));
        let change = number(next) - number(current);
        if let (true, Some(state), true) = (is_replaced, self.state, change != 0) {
            self.host.add(state, change);
        }
        self.look_up();
        is_replaced
    }

    fn add(&self, bad: bool) -> leapgate::Counts {
        self.counts.raise(1, bad.into());
        self.counts()
    }
}

/// A breaker whose completions may be those of the process.
type BreakerOf<H> = Breaker<BreakerPlace<H>>;

impl<H: Host> BreakerPlace<H> {
    /// Whether there may be something to be kept up to date, published or made good: while the breaker is asked, and after.
    pub(crate) fn is_moving(&self, breaker: &BreakerOf<H>) -> bool {
        match self {
            BreakerPlace::Process(Shared { ring, counts, .. }) => {
                ring.is_moving(breaker) || counts.owes()
            }
            BreakerPlace::Worker(_) => false,
        }
    }

    /// Tells the others what is known of the window, which has been moved to `now`, and makes good what is owed. Whether
    /// nothing is left, which it can only be `at_once`.
    pub(crate) fn settle(&self, breaker: &BreakerOf<H>, now: Timestamp, at_once: bool) -> bool {
        match self {
            BreakerPlace::Process(Shared { ring, counts, .. }) => {
                counts.settle() & ring.publish(breaker, now, at_once)
            }
            BreakerPlace::Worker(_) => true,
        }
    }
}

impl<H: Host> BreakerStorage for BreakerPlace<H> {
    #[inline]
    fn load(&self) -> State {
        match self {
            BreakerPlace::Process(shared) => shared.known.get().0,
            BreakerPlace::Worker(local) => local.load(),
        }
    }

    fn reload(&self) -> State {
        if let BreakerPlace::Process(shared) = self {
            shared.reload();
        }
        self.load()
    }

    fn replace(&self, current: State, next: State) -> bool {
        match self {
            BreakerPlace::Process(shared) => shared.replace(current, next),
            BreakerPlace::Worker(local) => local.replace(current, next),
        }
    }

    fn counts(&self) -> leapgate::Counts {
        match self {
            BreakerPlace::Process(shared) => shared.counts(),
            BreakerPlace::Worker(local) => local.counts(),
        }
    }

    fn add(&self, bad: bool) -> leapgate::Counts {
        match self {
            BreakerPlace::Process(shared) => shared.add(bad),
            BreakerPlace::Worker(local) => local.add(bad),
        }
    }

    fn published(&self) -> Option<Snapshots> {
        let BreakerPlace::Process(shared) = self else {
            return None;
        };
        let now = || {
            let counts = shared.counts();
            Some([counts.total, counts.bad])
        };
        shared.ring.wake(&now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leapgate::Timestamp;

    #[test]
    fn a_state_comes_back_as_it_was_packed_and_nothing_else_is_one() {
        let retry_at = Timestamp::from_millis(1500).as_nanos();
        let open = State::unpack([1 | 7 << 32, retry_at, 3, 2]).unwrap();
        assert_eq!(unpacked(&packed(open)), Some(open));
        assert_eq!(unpacked(&packed(open)[..31]), None);
        assert_eq!(unpacked(&[9; 32]), None);
    }
}
