//! Ways to keep a sliding window, side by side: what `./build.sh bench study` measures, natively and as WebAssembly.
//!
//! | Module | Holds |
//! |---|---|
//! | [`array`] | buckets in an array: leapgate's own window, and a ring that is summed at each read, as in Sentinel |
//! | [`list`] | buckets in a linked list: with a running total, summed at each read, with nodes from a pool |
//! | [`others`] | what has no buckets: the log of instants, the estimate from two windows, the token bucket |
//! | [`cases`] | the workloads on which time and memory are measured |
//! | [`accuracy`] | the traffic on which decisions are compared, and the adversary |
//!
//! Time is an argument, in nanoseconds, and never goes back.

pub mod accuracy;
pub mod array;
pub mod cases;
pub mod list;
pub mod others;
#[cfg(target_family = "wasm")]
mod wasm;

#[cfg(test)]
mod tests;

/// The window of all that is measured: a minute, as bucket counts up to 600 divide it.
pub const INTERVAL: u64 = 60_000_000_000;

/// One limit on one key.
pub trait Limiter {
    /// Decides about one request, and records it if it is admitted.
    fn admit(&mut self, now: u64) -> bool;
}

/// Which buckets count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Buckets {
    /// The length of a bucket, in nanoseconds.
    pub length: u64,
    /// How many count: the current one and those before it.
    pub counting: usize,
}

impl Buckets {
    /// A window of `buckets` buckets, and one more: no interval of the window's length holds more than the limit.
    pub fn strict(buckets: u32) -> Buckets {
        Buckets {
            counting: buckets as usize + 1,
            ..Buckets::sentinel(buckets)
        }
    }

    /// A window of `buckets` buckets, the current one among them, as Sentinel counts.
    pub fn sentinel(buckets: u32) -> Buckets {
        Buckets {
            length: INTERVAL / u64::from(buckets),
            counting: buckets as usize,
        }
    }

    /// When the bucket of `now` starts.
    #[inline]
    pub fn start(self, now: u64) -> u64 {
        now - now % self.length
    }

    /// When the oldest bucket starts that counts in the bucket starting at `start`.
    #[inline]
    pub fn oldest(self, start: u64) -> u64 {
        start.saturating_sub(self.length * (self.counting as u64 - 1))
    }
}
