//! What has no buckets.

use std::collections::VecDeque;

use crate::{INTERVAL, Limiter};

/// The instants of all admissions in the last interval: exact.
pub struct Log {
    instants: VecDeque<u64>,
    limit: u64,
}

impl Log {
    /// An empty log.
    pub fn new(limit: u64) -> Log {
        Log {
            instants: VecDeque::new(),
            limit,
        }
    }
}

impl Limiter for Log {
    #[inline]
    fn admit(&mut self, now: u64) -> bool {
        while self
            .instants
            .front()
            .is_some_and(|&oldest| oldest + INTERVAL <= now)
        {
            self.instants.pop_front();
        }
        let passes = (self.instants.len() as u64) < self.limit;
        if passes {
            self.instants.push_back(now);
        }
        passes
    }
}

/// Two fixed windows: of the one before, as much counts as of it lies within the last interval, as if its admissions had been
/// spread evenly.
pub struct TwoWindows {
    start: u64,
    current: u64,
    previous: u64,
    limit: u64,
}

impl TwoWindows {
    /// Two empty windows. The largest limit that it can multiply is 10^8.
    pub fn new(limit: u64) -> TwoWindows {
        TwoWindows {
            start: 0,
            current: 0,
            previous: 0,
            limit: limit.min(100_000_000),
        }
    }
}

impl Limiter for TwoWindows {
    #[inline]
    fn admit(&mut self, now: u64) -> bool {
        if now - self.start >= INTERVAL {
            let start = now - now % INTERVAL;
            let is_next = start - self.start == INTERVAL;
            self.previous = if is_next { self.current } else { 0 };
            self.current = 0;
            self.start = start;
        }
        // Both sides are in parts of the interval: exact, and no division. With so small a limit they cannot wrap.
        let left = self.previous.wrapping_mul(INTERVAL - (now - self.start));
        let used = left + (self.current + 1).wrapping_mul(INTERVAL);
        let passes = used <= self.limit.wrapping_mul(INTERVAL);
        if passes {
            self.current += 1;
        }
        passes
    }
}

/// A token bucket that holds the limit and is filled by the limit in an interval, kept as one instant (GCRA).
pub struct TokenBucket {
    /// When the bucket will be full again.
    full_at: u64,
    /// What one token takes to come back.
    per_token: u64,
}

impl TokenBucket {
    /// A full bucket.
    pub fn new(limit: u64) -> TokenBucket {
        TokenBucket {
            full_at: 0,
            per_token: INTERVAL / limit.max(1),
        }
    }
}

impl Limiter for TokenBucket {
    #[inline]
    fn admit(&mut self, now: u64) -> bool {
        let full_at = self.full_at.max(now) + self.per_token;
        let passes = full_at - now <= INTERVAL;
        if passes {
            self.full_at = full_at;
        }
        passes
    }
}
