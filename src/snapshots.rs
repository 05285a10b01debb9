//! The values of running counts at each bucket's start: enough to continue a ring elsewhere.

use crate::time::Timestamp;
use crate::window::Window;

/// How far the running count `later` is past `earlier`; `None` if it lies before it. Serial number arithmetic (RFC 1982) over
/// 64 bits: counts wrap around, and no two that are compared are 2^63 or more apart.
#[inline]
pub(crate) const fn serial_since(later: u64, earlier: u64) -> Option<u64> {
    match later.wrapping_sub(earlier) {
        since if since < 1 << 63 => Some(since),
        _ => None,
    }
}

/// The values of one running count, or of several that are read together, at each bucket's start of a window.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Snapshots {
    /// When the newest bucket starts.
    pub newest: Timestamp,
    /// The latest known count, then its values at the start of each bucket, newest first. Several counts follow one another.
    pub counts: Vec<u64>,
}

impl Snapshots {
    fn of(&self, index: usize, window: Window) -> Option<&[u64]> {
        let length = window.sample_count() as usize + 2;
        self.counts.chunks(length).nth(index)
    }

    /// The latest known value of the count `index`.
    pub fn last(&self, index: usize, window: Window) -> Option<u64> {
        self.of(index, window)?.first().copied()
    }

    /// Its value at `start`, the start of a bucket; `None` if that is too long ago.
    pub(crate) fn at(&self, index: usize, start: Timestamp, window: Window) -> Option<u64> {
        let since = serial_since(self.newest.as_nanos(), start.as_nanos());
        let behind = since.map_or(0, |since| since / window.bucket_nanos() + 1);
        self.of(index, window)?.get(behind as usize).copied()
    }
}
