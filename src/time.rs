//! An instant of the caller's clock.

use core::time::Duration;

const NANOS_PER_MILLI: u64 = 1_000_000;

/// An instant: time since the zero of the clock that the caller uses throughout.
///
/// Kept in nanoseconds, because pacing needs them; read and written in milliseconds at most boundaries. The clock's zero is
/// visible in results, since buckets are aligned to it. Any clock will do, as long as it is always the same: if a host has a
/// monotonic clock, use that.
///
/// The range ends 584 years after zero; constructors saturate there, and a clock at its end stands still.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The clock's zero: an instant like any other.
    pub const ZERO: Timestamp = Timestamp(0);
    /// The last instant that can be represented.
    pub const MAX: Timestamp = Timestamp(u64::MAX);

    /// The instant `nanos` nanoseconds after the clock's zero.
    #[inline]
    pub const fn from_nanos(nanos: u64) -> Timestamp {
        Timestamp(nanos)
    }

    /// The instant `millis` milliseconds after the clock's zero, at most [`Timestamp::MAX`].
    #[inline]
    pub const fn from_millis(millis: u64) -> Timestamp {
        Timestamp(millis.saturating_mul(NANOS_PER_MILLI))
    }

    /// Nanoseconds since the clock's zero.
    #[inline]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Whole milliseconds since the clock's zero, rounded down.
    #[inline]
    pub const fn as_millis(self) -> u64 {
        self.0 / NANOS_PER_MILLI
    }

    /// How long after `earlier` this is; zero if it is not later.
    #[inline]
    pub const fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// How many whole milliseconds after `earlier` this is; zero if it is not later.
    #[inline]
    pub(crate) const fn millis_since(self, earlier: Timestamp) -> u64 {
        self.0.saturating_sub(earlier.0) / NANOS_PER_MILLI
    }

    /// The instant `nanos` later, or [`Timestamp::MAX`].
    #[inline]
    pub(crate) const fn plus_nanos(self, nanos: u64) -> Timestamp {
        Timestamp(self.0.saturating_add(nanos))
    }
}
