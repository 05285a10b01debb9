//! How far the turns of a line reach, and for how long it keeps its slot after the latest of them.

use super::window::Shape;
use crate::state::pacer::Spacing;
use crate::time::Timestamp;

/// How far the turns of a line reach, as its word tells it: 0 is "there has been none".
#[inline]
pub(super) fn reach(word: u64) -> Option<Timestamp> {
    word.checked_sub(1).map(Timestamp::from_nanos)
}

#[inline]
pub(super) fn reach_word(reach: Option<Timestamp>) -> u64 {
    reach.map_or(0, |reach| reach.as_nanos().saturating_add(1))
}

/// The most intervals for which an idle line keeps its slot, however much requests cost. Without a bound, one request of an
/// absurd cost would fill the table with lines that are never reused.
const MOST_IDLE_INTERVALS: u64 = 64;

/// For how long a line keeps its slot after its latest turn, and what is left of it after that.
///
/// Where those behind a request pay for it, a line says when the next request may pass. Once that is over it says nothing, and
/// its slot may be reused: the time to live is 0.
///
/// With `compat` a request pays for itself: at a distance of `spacing`, which grows with its own cost, from the latest turn of
/// its key. A line matters to it until `latest + spacing`, and there is always a cost to which it still matters. So:
///
/// 1. A line keeps its slot for [`MOST_IDLE_INTERVALS`] while there is room for more of them. Where there is none, it keeps it
///    for an interval, the spacing of all costs up to the count, or for the largest spacing that a request has asked for.
/// 2. How far a line reached whose slot is reused is kept in one word for all of them, the latest: `forgotten`. A key without
///    a line goes on from there, or from what it shares where that reaches further: whether it gets a line or not.
///
/// No request passes too early: the line of its key is there, or `forgotten` is at least what it said; a turn still to come is
/// the latest of its line, whose time to live has not begun. And a key that never had a line does not pay for the others:
/// `forgotten + ttl <= now` holds from the moment when it is written, so that it delays no request whose spacing is at most the
/// time to live. Where there is no room, one that costs more than any before it may wait for its spacing once; from then on,
/// nothing is forgotten that could delay the next.
#[derive(Clone, Copy)]
pub(super) struct IdleTtl {
    /// The shortest one, and the one at present where there is no room, in nanoseconds.
    least: u64,
    nanos: u64,
}

impl IdleTtl {
    pub(super) fn new(shape: &Shape, compat: bool) -> IdleTtl {
        let window = shape.window.filter(|_| compat);
        let interval = window.map_or(0, |(window, _)| window.interval_nanos());
        IdleTtl {
            least: interval,
            nanos: interval,
        }
    }

    /// The same when a request has asked for a turn.
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

    /// Whether a slot may be reused whose line reaches to `latest`.
    pub(super) fn is_over(self, latest: Timestamp, is_full: bool, now: Timestamp) -> bool {
        let ttl = if is_full { self.nanos } else { self.most() };
        latest.plus_nanos(ttl) <= self.whole(now)
    }

    fn most(self) -> u64 {
        self.least.saturating_mul(MOST_IDLE_INTERVALS)
    }

    /// What `forgotten` says at `now`: it was at least `least` ago when it was written, and when the clock has stepped back, too.
    pub(super) fn before(self, forgotten: u64, now: Timestamp) -> u64 {
        let latest = self.whole(now).as_nanos().saturating_sub(self.least);
        forgotten.min(reach_word(Some(Timestamp::from_nanos(latest))))
    }
}
