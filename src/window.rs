//! Where an instant falls in a ring of buckets.
//!
//! An interval is cut into `sample_count` buckets of equal length, aligned to the clock's zero:
//!
//! ```text
//!   slot        0        1        0        1
//!          |--------|--------|--------|--------|
//!          0       500     1000     1500     2000 ms      interval 1000 ms, 2 buckets
//!                               ^ 1188 falls in the bucket that starts at 1000, in slot 0;
//!                                 the buckets that started at 500 and at 1000 count
//! ```
//!
//! Every decision about edges is made in this file. A bucket covers `[start, start + length)`.

use crate::time::Timestamp;
use core::num::{NonZeroU32, NonZeroU64};
use core::time::Duration;
use std::fmt;

const NANOS_PER_MILLI: u64 = 1_000_000;

/// The geometry of a sliding window: an interval cut into buckets.
///
/// Sentinel: `LeapArray(sampleCount, intervalInMs)` and its index arithmetic, which is done in 64 bits here.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Window {
    /// `sample_count * bucket_length`, in nanoseconds; at most [`Window::MAX_INTERVAL_MS`].
    interval: u64,
    /// In nanoseconds, a whole number of milliseconds, at least one.
    bucket_length: u64,
    /// At least one.
    sample_count: u32,
}

/// Why a window cannot be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum WindowError {
    /// The interval is zero: a window has a length.
    NoInterval,
    /// The interval is longer than [`Window::MAX_INTERVAL_MS`].
    TooLong {
        /// The interval that was asked for.
        interval_ms: u64,
    },
    /// No bucket at all: one is the least.
    NoBuckets,
    /// The buckets would not be whole milliseconds: take a divisor of the interval.
    Uneven {
        /// The interval that was asked for.
        interval_ms: u64,
        /// The bucket count that does not divide it.
        sample_count: u32,
    },
}

impl fmt::Display for WindowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            WindowError::NoInterval => write!(f, "`0` is not a valid interval; use at least 1 ms"),
            WindowError::TooLong { interval_ms } => {
                write!(
                    f,
                    "`{interval_ms}` ms is too long; use at most {} (ten years)",
                    Window::MAX_INTERVAL_MS
                )
            }
            WindowError::NoBuckets => write!(f, "`0` is not a valid bucket count; use at least 1"),
            WindowError::Uneven {
                interval_ms,
                sample_count,
            } => {
                write!(
                    f,
                    "`{sample_count}` does not divide the {interval_ms} ms interval; use one of "
                )?;
                for (i, divisor) in divisors(interval_ms, 100).enumerate() {
                    write!(f, "{}{divisor}", if i == 0 { "" } else { ", " })?;
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for WindowError {}

/// The divisors of `interval_ms` up to `most`, in ascending order.
fn divisors(interval_ms: u64, most: u64) -> impl DoubleEndedIterator<Item = u64> {
    (1..=most.min(interval_ms)).filter(move |d| interval_ms.is_multiple_of(*d))
}

impl Window {
    /// The longest interval: ten years, in milliseconds.
    pub const MAX_INTERVAL_MS: u64 = 10 * 365 * 24 * 3600 * 1000;

    /// A window of `interval_ms` milliseconds in `sample_count` buckets.
    ///
    /// # Errors
    ///
    /// If the interval is zero or longer than [`Window::MAX_INTERVAL_MS`], if there is no bucket, or if the buckets would not
    /// be whole milliseconds.
    pub const fn new(interval_ms: u64, sample_count: u32) -> Result<Window, WindowError> {
        if interval_ms == 0 {
            return Err(WindowError::NoInterval);
        }
        if interval_ms > Window::MAX_INTERVAL_MS {
            return Err(WindowError::TooLong { interval_ms });
        }
        if sample_count == 0 {
            return Err(WindowError::NoBuckets);
        }
        if !interval_ms.is_multiple_of(sample_count as u64) {
            return Err(WindowError::Uneven {
                interval_ms,
                sample_count,
            });
        }
        let interval = interval_ms * NANOS_PER_MILLI;
        Ok(Window {
            interval,
            bucket_length: interval / sample_count as u64,
            sample_count,
        })
    }

    /// A window of `sample_count` buckets of one or more milliseconds each, for the crate's own constants.
    pub(crate) const fn of_buckets(sample_count: u32, bucket_ms: u32) -> Window {
        let sample_count = if sample_count == 0 { 1 } else { sample_count };
        let bucket_ms = if bucket_ms == 0 { 1 } else { bucket_ms };
        let bucket_length = bucket_ms as u64 * NANOS_PER_MILLI;
        Window {
            interval: bucket_length * sample_count as u64,
            bucket_length,
            sample_count,
        }
    }

    /// A window of at most `most` buckets, each made of whole buckets of this one, and how many: as long as this window, or a
    /// little longer.
    pub(crate) fn coarser(self, most: NonZeroU32) -> (Window, NonZeroU64) {
        let times = self.sample_count.div_ceil(most.get());
        let times = NonZeroU32::new(times).unwrap_or(NonZeroU32::MIN);
        let sample_count = self.sample_count.div_ceil(times.get());
        // Less than twice the interval: does not wrap.
        let bucket_length = self.bucket_length.wrapping_mul(times.get().into());
        let coarser = Window {
            interval: bucket_length.wrapping_mul(sample_count.into()),
            bucket_length,
            sample_count,
        };
        (coarser, times.into())
    }

    /// The largest divisor of `interval_ms` that is at most `most`: as many buckets as fit evenly.
    pub fn finest_sample_count(interval_ms: u64, most: u32) -> u32 {
        divisors(interval_ms, most.into())
            .next_back()
            .and_then(|d| u32::try_from(d).ok())
            .unwrap_or(1)
    }

    /// [`RuleGeometry::covering`](crate::rule::RuleGeometry::covering), of up to `most` buckets.
    pub(crate) fn covering(interval_ms: u64, most: u32) -> Result<Window, WindowError> {
        let finest = Window::finest_sample_count(interval_ms, most);
        if finest >= most / 2 || interval_ms < most.into() {
            return Window::new(interval_ms, finest);
        }
        let bucket_ms = interval_ms.div_ceil(most.into());
        let samples = interval_ms.div_ceil(bucket_ms);
        Window::new(bucket_ms * samples, samples as u32)
    }

    /// The whole span.
    pub const fn interval(&self) -> Duration {
        Duration::from_nanos(self.interval)
    }

    /// The whole span, in milliseconds.
    pub const fn interval_ms(&self) -> u64 {
        self.interval / NANOS_PER_MILLI
    }

    /// The whole span, in seconds: a count divided by it is a rate.
    ///
    /// Sentinel: `LeapArray.getIntervalInSecond`.
    pub fn interval_seconds(&self) -> f64 {
        self.interval_ms() as f64 / 1000.0
    }

    /// How many buckets the interval is cut into.
    pub const fn sample_count(&self) -> u32 {
        self.sample_count
    }

    /// The span of one bucket.
    #[doc(alias = "windowLengthInMs")]
    #[doc(alias = "bucketLengthInMs")]
    pub const fn bucket_length(&self) -> Duration {
        Duration::from_nanos(self.bucket_length)
    }

    pub(crate) const fn interval_nanos(&self) -> u64 {
        self.interval
    }

    pub(crate) const fn bucket_nanos(&self) -> u64 {
        self.bucket_length
    }

    /// The number of the bucket of `at`, since the clock's zero.
    pub(crate) const fn number(&self, at: Timestamp) -> u64 {
        at.as_nanos() / self.bucket_length
    }

    /// Which slot of a ring of `sample_count` the bucket of `at` takes.
    ///
    /// Sentinel: `LeapArray.calculateTimeIdx`.
    #[doc(alias = "calculateTimeIdx")]
    pub const fn index(&self, at: Timestamp) -> usize {
        (self.number(at) % self.sample_count as u64) as usize
    }

    /// When the bucket of `at` starts: `at - at mod length`.
    ///
    /// Sentinel: `LeapArray.calculateWindowStart`.
    #[doc(alias = "calculateWindowStart")]
    pub const fn start(&self, at: Timestamp) -> Timestamp {
        Timestamp::from_nanos(at.as_nanos() - at.as_nanos() % self.bucket_length)
    }

    /// Whether `at` lies in the bucket that starts at `start`: the start is inside, the end is not.
    ///
    /// Sentinel: `WindowWrap.isTimeInWindow`.
    #[doc(alias = "isTimeInWindow")]
    #[inline]
    pub const fn contains(&self, start: Timestamp, at: Timestamp) -> bool {
        at.as_nanos() >= start.as_nanos() && at.as_nanos() - start.as_nanos() < self.bucket_length
    }

    /// The length of the bucket that starts at `start`, in nanoseconds, or what is left of the clock: so `at` lies in it where
    /// `at - start`, wrapped around, is less.
    pub(crate) const fn length_from(&self, start: Timestamp) -> u64 {
        let left = (u64::MAX - start.as_nanos()).saturating_add(1);
        if self.bucket_length < left {
            self.bucket_length
        } else {
            left
        }
    }

    /// Whether the bucket that starts at `start` no longer, or not yet, counts at `now`.
    ///
    /// Exactly the buckets with `start(now) - interval < start <= start(now)` count. Sentinel keeps a bucket aged exactly one
    /// interval for one more millisecond (`>` instead of `>=`), which its users cannot see: its reads first reuse the only slot
    /// that can hold such a bucket.
    ///
    /// Sentinel: `LeapArray.isWindowDeprecated`.
    #[doc(alias = "isWindowDeprecated")]
    pub const fn is_deprecated(&self, start: Timestamp, now: Timestamp) -> bool {
        let current = self.start(now).as_nanos();
        start.as_nanos() > current || current - start.as_nanos() >= self.interval
    }

    /// When the oldest bucket that counts at `now` starts, at the clock's zero at the earliest.
    pub(crate) const fn oldest_start(&self, now: Timestamp) -> Timestamp {
        let end = self.start(now).as_nanos();
        Timestamp::from_nanos(end.saturating_sub(self.interval - self.bucket_length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn a_bucket_starts_where_sentinel_starts_it() {
        let window = Window::new(10_000, 20).unwrap();
        assert_eq!(window.index(ms(1_576_296_044_907)), 9);
        assert_eq!(window.start(ms(1_576_296_044_907)), ms(1_576_296_044_500));
        assert!(window.is_deprecated(ms(1_576_296_004_907), ms(1_576_296_044_907)));
    }

    #[test]
    fn a_bucket_is_half_open() {
        let window = Window::new(1000, 2).unwrap();
        for (at, inside) in [(499, false), (500, true), (999, true), (1000, false)] {
            assert_eq!(window.contains(ms(500), ms(at)), inside, "{at}");
        }
    }

    #[test]
    fn a_bucket_counts_for_one_interval_from_its_start() {
        let window = Window::new(1000, 2).unwrap();
        for (now, deprecated) in [(999, true), (1000, false), (1999, false), (2000, true)] {
            assert_eq!(window.is_deprecated(ms(1000), ms(now)), deprecated, "{now}");
        }
    }

    #[test]
    fn the_index_is_computed_in_64_bits() {
        let window = Window::new(10_000, 20).unwrap();
        assert_eq!(
            window.index(Timestamp::MAX),
            (u64::MAX / 500_000_000 % 20) as usize
        );
    }

    #[test]
    fn the_finest_cut_is_the_largest_divisor() {
        for (interval, most, is) in [
            (1000, 100, 100),
            (999, 100, 37),
            (7, 100, 7),
            (101, 100, 1),
            (60_000, 20, 20),
        ] {
            assert_eq!(
                Window::finest_sample_count(interval, most),
                is,
                "{interval}"
            );
        }
    }

    #[test]
    fn errors_name_the_value_and_the_cure() {
        let says = |interval, samples| Window::new(interval, samples).unwrap_err().to_string();
        assert_eq!(says(0, 1), "`0` is not a valid interval; use at least 1 ms");
        assert_eq!(
            says(1000, 0),
            "`0` is not a valid bucket count; use at least 1"
        );
        assert_eq!(
            says(1000, 7),
            "`7` does not divide the 1000 ms interval; use one of 1, 2, 4, 5, 8, 10, 20, 25, 40, 50, 100"
        );
        assert_eq!(
            says(u64::MAX, 1),
            "`18446744073709551615` ms is too long; use at most 315360000000 (ten years)"
        );
    }
}
