//! What running counts were at each bucket's start: enough to go on with a ring elsewhere.

use crate::time::Timestamp;
use crate::window::Window;

/// What one running count, or several that go together, were at each bucket start of a window.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Snapshots {
    /// When the newest bucket starts.
    pub newest: Timestamp,
    /// What the count was last known to be, and then what it was at the start of each bucket, newest first. Of several
    /// counts, one after the other.
    pub counts: Vec<u64>,
}

impl Snapshots {
    fn of(&self, index: usize, window: Window) -> Option<&[u64]> {
        let length = window.sample_count() as usize + 2;
        self.counts.chunks(length).nth(index)
    }

    /// What the count of that index was last known to be.
    pub fn last(&self, index: usize, window: Window) -> Option<u64> {
        self.of(index, window)?.first().copied()
    }

    /// What it was known to be when the bucket began that starts at `start`; `None` where that is longer ago than these reach.
    pub(crate) fn at(&self, index: usize, start: Timestamp, window: Window) -> Option<u64> {
        let behind = match self.newest.as_nanos().wrapping_sub(start.as_nanos()) {
            later if later >= 1 << 63 => 0,
            since => since / window.bucket_nanos() + 1,
        };
        self.of(index, window)?.get(behind as usize).copied()
    }
}
