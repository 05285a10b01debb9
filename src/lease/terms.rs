//! What is leased: a limit, its window, and how long a lease lasts.

use crate::window::Window;

/// The shortest and the longest time of a lease by default, in milliseconds.
const TTL_MS: [u64; 2] = [50, 3000];

/// The most buckets of a window.
const MAX_BUCKETS: u64 = 1000;

/// A limit of all nodes together, in a strict window. Times are in milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Terms {
    limit: u64,
    interval_ms: u64,
    buckets: u64,
}

impl Terms {
    /// The highest limit, and the highest of all numbers in texts: doubles hold it, and what is larger is not rounded to it.
    pub const MAX_LIMIT: u64 = (1 << 53) - 1;

    /// At most `limit` in any interval of the window; a limit above [`Terms::MAX_LIMIT`] is that.
    pub fn new(limit: u64, window: Window) -> Terms {
        Terms {
            limit: limit.min(Terms::MAX_LIMIT),
            interval_ms: window.interval_ms(),
            buckets: window.sample_count().into(),
        }
    }

    /// Terms that arrived at a store; `None` if they are not possible.
    pub(super) fn checked(limit: u64, interval_ms: u64, buckets: u64) -> Option<Terms> {
        let window = Window::new(interval_ms, u32::try_from(buckets).ok()?).ok()?;
        (limit <= Terms::MAX_LIMIT && buckets <= MAX_BUCKETS).then(|| Terms::new(limit, window))
    }

    /// The same window with another limit.
    pub fn with_limit(self, limit: u64) -> Terms {
        let limit = limit.min(Terms::MAX_LIMIT);
        Terms { limit, ..self }
    }

    /// How much passes in the window.
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// The length of the window.
    pub const fn interval_ms(&self) -> u64 {
        self.interval_ms
    }

    /// How many buckets the window has.
    pub const fn buckets(&self) -> u64 {
        self.buckets
    }

    /// The length of a bucket.
    pub(super) const fn bucket_ms(&self) -> u64 {
        match self.interval_ms / self.buckets {
            0 => 1,
            length => length,
        }
    }

    /// The bucket of that time, since the clock's zero.
    pub(super) const fn number(&self, at_ms: u64) -> u64 {
        at_ms / self.bucket_ms()
    }

    /// The oldest bucket that counts at that time: one more than the window has, the one that is leaving.
    pub(super) const fn oldest(&self, at_ms: u64) -> u64 {
        self.number(at_ms).saturating_sub(self.buckets)
    }

    /// When that bucket counts no more.
    pub(super) const fn leaves(&self, number: u64) -> u64 {
        (number + self.buckets + 1).saturating_mul(self.bucket_ms())
    }

    /// How long a lease lasts by default: a twentieth of the window, from 50 ms to 3 s.
    pub const fn ttl_ms(&self) -> u64 {
        let part = self.interval_ms / 20;
        if part < TTL_MS[0] {
            TTL_MS[0]
        } else if part > TTL_MS[1] {
            TTL_MS[1]
        } else {
            part
        }
    }

    /// The longest that a lease may last, where answers take long: four times the default.
    pub const fn longest_ttl_ms(&self) -> u64 {
        4 * self.ttl_ms()
    }

    /// How long anything of a key can count after it was last used: a window, a bucket and the longest lease.
    pub const fn memory_ms(&self) -> u64 {
        self.interval_ms + self.bucket_ms() + self.longest_ttl_ms()
    }
}
