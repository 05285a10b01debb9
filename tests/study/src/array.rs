//! Buckets in an array.

use std::cell::Cell;

use leapgate::Timestamp;
use leapgate::backend::{LocalCounter, Past, RuleWindow};
use leapgate::rule::{Count, Counting};
use leapgate::stats::Window;

use crate::{Buckets, INTERVAL, Limiter};

/// leapgate's own window: [`RunningCounts`], and all that its rules need: counts that workers share, requests that wait, refunds, a
/// clock that goes back.
pub struct Leapgate {
    window: RuleWindow<LocalCounter>,
    limit: Count,
}

impl Leapgate {
    /// A window of so many buckets; `None` if they do not divide it.
    pub fn new(buckets: u32, counting: Counting, limit: u64) -> Option<Leapgate> {
        let window = Window::new(INTERVAL / 1_000_000, buckets).ok()?;
        Some(Leapgate {
            window: RuleWindow::new(window, counting, LocalCounter::default(), Past::Fresh),
            limit: Count::new(limit as f64).ok()?,
        })
    }
}

impl Limiter for Leapgate {
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

/// A ring of the running count's values at bucket starts, and nothing else. What counts is one subtraction.
pub struct RunningCounts {
    /// By the bucket's number: how much had been admitted before it began.
    at_start: Box<[u64]>,
    admitted: u64,
    /// The value when the oldest bucket that counts began.
    base: u64,
    /// When the newest bucket started, and its place.
    start: u64,
    newest: usize,
    length: u64,
    limit: u64,
}

impl RunningCounts {
    /// An empty window.
    pub fn new(buckets: Buckets, limit: u64) -> RunningCounts {
        RunningCounts {
            at_start: vec![0; buckets.counting].into(),
            admitted: 0,
            base: 0,
            start: 0,
            newest: 0,
            length: buckets.length,
            limit,
        }
    }

    #[cold]
    #[inline(never)]
    fn move_on(&mut self, now: u64) {
        let steps = (now - self.start) / self.length;
        self.start += steps * self.length;
        if steps >= self.at_start.len() as u64 {
            self.at_start.fill(self.admitted);
        } else {
            for _ in 0..steps {
                self.newest = self.after(self.newest);
                if let Some(at_start) = self.at_start.get_mut(self.newest) {
                    *at_start = self.admitted;
                }
            }
        }
        let oldest = self.at_start.get(self.after(self.newest));
        self.base = oldest.copied().unwrap_or_default();
    }

    fn after(&self, place: usize) -> usize {
        if place + 1 < self.at_start.len() {
            place + 1
        } else {
            0
        }
    }
}

impl Limiter for RunningCounts {
    #[inline]
    fn admit(&mut self, now: u64) -> bool {
        if now - self.start >= self.length {
            self.move_on(now);
        }
        let passes = self.admitted - self.base < self.limit;
        self.admitted += u64::from(passes);
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
