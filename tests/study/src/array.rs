//! Buckets in an array.

use std::cell::Cell;

use leapgate::Timestamp;
use leapgate::backend::{LocalCounter, Past, RuleWindow};
use leapgate::rule::{Count, Counting};
use leapgate::stats::Window;

use crate::{INTERVAL, Limiter};

/// leapgate's own window: a ring of the running count's values at bucket starts. What counts is one subtraction.
pub struct RunningCounts {
    window: RuleWindow<LocalCounter>,
    limit: Count,
}

impl RunningCounts {
    /// A window of so many buckets; `None` if they do not divide it.
    pub fn new(buckets: u32, counting: Counting, limit: u64) -> Option<RunningCounts> {
        let window = Window::new(INTERVAL / 1_000_000, buckets).ok()?;
        Some(RunningCounts {
            window: RuleWindow::new(window, counting, LocalCounter::default(), Past::Fresh),
            limit: Count::new(limit as f64).ok()?,
        })
    }
}

impl Limiter for RunningCounts {
    #[inline]
    fn admit(&mut self, now: u64) -> bool {
        let now = Timestamp::from_nanos(now);
        self.window.advance(now);
        let passes = self.window.reserve(self.limit, 1, now);
        if passes {
            self.window.admit(1);
        }
        passes
    }
}

/// A plain ring: a count for each bucket, all of them added up at each decision. What most limiters with buckets do, Sentinel's
/// leap array among them.
pub struct SummedRing {
    buckets: Vec<Bucket>,
    bucket_nanos: u64,
}

#[derive(Default)]
struct Bucket {
    start: Cell<u64>,
    passes: Cell<u64>,
}

impl SummedRing {
    /// A ring of so many buckets, all of which count.
    pub fn new(bucket_nanos: u64, buckets: usize) -> SummedRing {
        SummedRing {
            buckets: (0..buckets).map(|_| Bucket::default()).collect(),
            bucket_nanos,
        }
    }

    /// Decides and records; the window is the current bucket and those before it.
    #[inline]
    pub fn try_pass(&self, now: u64, limit: u64) -> bool {
        let index = now / self.bucket_nanos;
        let start = index * self.bucket_nanos;
        let Some(current) = self.buckets.get(index as usize % self.buckets.len()) else {
            return false;
        };
        if current.start.get() != start {
            current.start.set(start);
            current.passes.set(0);
        }
        let oldest = (start + self.bucket_nanos)
            .saturating_sub(self.bucket_nanos * self.buckets.len() as u64);
        let valid = self
            .buckets
            .iter()
            .filter(|bucket| bucket.start.get() >= oldest);
        let passes: u64 = valid.map(|bucket| bucket.passes.get()).sum();
        if passes >= limit {
            return false;
        }
        current.passes.set(current.passes.get() + 1);
        true
    }
}

/// A [`SummedRing`] with its limit.
pub struct Summed {
    /// The ring.
    pub ring: SummedRing,
    /// How much may pass.
    pub limit: u64,
}

impl Limiter for Summed {
    #[inline]
    fn admit(&mut self, now: u64) -> bool {
        self.ring.try_pass(now, self.limit)
    }
}
