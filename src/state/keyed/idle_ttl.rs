//! How far the turns of a pacer reach, and how long it keeps its slot after the latest of them.

use super::window::Shape;
use crate::compat::AsSentinel;
use crate::state::pacer::Spacing;
use crate::time::Timestamp;

/// How far the turns of a pacer reach, from its word: 0 means that there was none yet.
#[inline]
pub(super) fn reach(word: u64) -> Option<Timestamp> {
    word.checked_sub(1).map(Timestamp::from_nanos)
}

#[inline]
pub(super) fn reach_word(reach: Option<Timestamp>) -> u64 {
    reach.map_or(0, |reach| reach.as_nanos().saturating_add(1))
}

/// The most intervals for which an idle pacer keeps its slot, however much requests cost. Without a bound, one request of an
/// absurd cost would fill the table with pacers that are never reused.
const MOST_IDLE_INTERVALS: u64 = 64;

/// How long an idle pacer keeps its slot after its latest turn, and what is kept of it after that.
///
/// If later requests pay for a request (GCRA), a pacer holds the instant at which the next one may pass. Once that is over, its
/// slot may be reused: the time to live is 0.
///
/// With `compat` a request pays for itself: it keeps a distance of `spacing`, which grows with its own cost, from the latest
/// turn of its key. A pacer delays it until `latest + spacing`, and there is always a cost that it still delays. So:
///
/// 1. A pacer keeps its slot for [`MOST_IDLE_INTERVALS`] while there is room for more pacers. In a full table it keeps it for
///    one interval, the spacing of all costs up to the count, or for the largest spacing of any request so far.
/// 2. When a slot is reused, the instant that its pacer reached is kept in one word for all, the latest: `forgotten`. A key
///    without a pacer continues from there, or from its shared cells if they reach further, whether it gets a pacer or not.
///
/// No request passes too early: either the pacer of its key is there, or `forgotten` is at least as late; and a turn still to
/// come is the latest of its pacer, whose time to live has not begun. Nor does a key that never had a pacer pay for others:
/// `forgotten + ttl <= now` holds from the moment it is written, so that it delays no request whose spacing is at most the time
/// to live. In a full table, a request that costs more than any before it may wait for its spacing once; from then on, no pacer
/// is forgotten that could delay the next.
#[derive(Clone, Copy)]
pub(super) struct IdleTtl {
    /// The shortest time to live, and the present one in a full table, in nanoseconds.
    least: u64,
    nanos: u64,
}

impl IdleTtl {
    pub(super) fn new(shape: &Shape, compat: bool) -> IdleTtl {
        let window = shape.window.filter(|_| AsSentinel::of(compat).is_some());
        let interval = window.map_or(0, |(window, _)| window.interval_nanos());
        IdleTtl {
            least: interval,
            nanos: interval,
        }
    }

    /// The time to live after a request has asked for this turn.
    #[inline]
    pub(super) fn after(self, pace: &Spacing) -> IdleTtl {
        let spacing = pace.spacing_before();
        if spacing <= self.nanos {
            return self;
        }
        IdleTtl {
            nanos: spacing.min(self.most()),
            ..self
        }
    }

    /// Requests that pay for themselves come in whole milliseconds.
    fn whole(self, now: Timestamp) -> Timestamp {
        if self.least == 0 {
            return now;
        }
        Timestamp::from_millis(now.as_millis())
    }

    /// Whether the slot of a pacer that reaches to `latest` may be reused.
    pub(super) fn is_over(self, latest: Timestamp, is_full: bool, now: Timestamp) -> bool {
        let ttl = if is_full { self.nanos } else { self.most() };
        latest.plus_nanos(ttl) <= self.whole(now)
    }

    fn most(self) -> u64 {
        self.least.saturating_mul(MOST_IDLE_INTERVALS)
    }

    /// `forgotten` at `now`: it lay at least `least` in the past when it was written, and does so after the clock has stepped
    /// back, too.
    pub(super) fn before(self, forgotten: u64, now: Timestamp) -> u64 {
        let latest = self.whole(now).as_nanos().saturating_sub(self.least);
        forgotten.min(reach_word(Some(Timestamp::from_nanos(latest))))
    }
}
