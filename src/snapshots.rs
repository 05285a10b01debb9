//! What a running count was at each bucket's start: enough to go on with a ring elsewhere.

use crate::time::Timestamp;
use crate::window::Window;

/// What a running count was at each bucket start of a window: enough to go on with it elsewhere.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Snapshots {
    /// When the newest bucket starts.
    pub newest: Timestamp,
    /// What the count was at the start of each bucket, oldest first; the newest bucket's is last.
    pub at_start: Vec<u64>,
    /// What the count was last known to be.
    pub last: u64,
}

impl Snapshots {
    /// What the count was known to be when the bucket of `window` began that starts at `start`; `None` where that is longer
    /// ago than these reach.
    pub(crate) fn at(&self, start: Timestamp, window: Window) -> Option<u64> {
        let Some(since) = self.newest.as_nanos().checked_sub(start.as_nanos()) else {
            return Some(self.last);
        };
        let behind = (since / window.bucket_nanos()) as usize;
        let index = self.at_start.len().checked_sub(behind.saturating_add(1))?;
        self.at_start.get(index).copied()
    }
}

/// The later of two values of one running count, which may have wrapped around between them.
pub(crate) fn later(one: u64, other: u64) -> u64 {
    if one.wrapping_sub(other) < 1 << 63 {
        one
    } else {
        other
    }
}
