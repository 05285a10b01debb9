//! A plain ring: a count per bucket, all of them added up at each decision. What most limiters with
//! buckets do, Sentinel's leap array among them.

use std::cell::Cell;

pub(super) struct SummedRing {
    buckets: Vec<Bucket>,
    bucket_nanos: u64,
}

#[derive(Default)]
struct Bucket {
    start: Cell<u64>,
    passes: Cell<u64>,
}

impl SummedRing {
    pub(super) fn new(interval_nanos: u64, buckets: u64) -> Self {
        Self {
            buckets: (0..buckets).map(|_| Bucket::default()).collect(),
            bucket_nanos: interval_nanos / buckets,
        }
    }

    /// Decides and records; the window is the current bucket and the n - 1 before it.
    #[inline]
    pub(super) fn try_pass(&self, now: u64, limit: u64) -> bool {
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
