//! Refunds: what a key was charged for requests that turn out not to count.

use super::key::Key;
use super::windows::KeyedWindows;
use crate::time::Timestamp;

impl KeyedWindows {
    /// Gives back `cost` that `key` was charged at the instant `charged`: from that bucket, and where less is counted there,
    /// from those before it. What has left the window is not given back once more. Only windows give back, not turns or calls in
    /// flight, and not what keys share because the table is full.
    ///
    /// Where `charged` is not the instant of the charge but a later one, quota comes back too early by as much.
    pub fn refund(&self, key: Key, cost: u64, charged: Timestamp, now: Timestamp) {
        let (false, Some((window, _))) = (self.shape.is_paced, self.shape.window) else {
            return;
        };
        let table = &mut *self.table.borrow_mut();
        let (place, to) = (table.look_up(key), table.bucket(now));
        // What keys share stays charged: others may have raised it as far.
        let Some(mut held) = table.held(place) else {
            return;
        };
        held.advance(now, to);
        let newest = held.newest_counter(to);
        let behind = held.number().saturating_sub(window.number(charged));
        let mut left = cost;
        for steps in behind..held.shape.buckets as u64 {
            let counter = held.shape.before(newest, steps as usize);
            let counted = held.counter(counter);
            let back = counted.min(left);
            held.set_counter(counter, counted - back);
            held.release(back);
            left -= back;
            if left == 0 {
                return;
            }
        }
    }

    /// Forgets what counts in the window of `key`. What was charged to it while it had none of its own stays: it cannot be told
    /// from what others have.
    pub fn reset(&self, key: Key) {
        let (false, Some(place)) = (self.shape.is_paced, self.find(key)) else {
            return;
        };
        if let Some(mut held) = self.table.borrow_mut().held(place) {
            held.clear();
        }
    }
}
