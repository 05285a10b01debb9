//! Refunds for requests that turn out not to count.

use super::key::Key;
use super::windows::KeyedWindows;
use crate::time::Timestamp;

impl KeyedWindows {
    /// Gives back the `cost` that `key` was charged at `charged`: from that bucket, and if it counts less, from earlier ones. A
    /// cost that has left the window is not given back again. Only windows are refunded, not turns or calls in flight, and not
    /// shared entries of a full table.
    ///
    /// If `charged` is later than the charge, quota comes back too early by the difference.
    pub fn refund(&self, key: Key, cost: u64, charged: Timestamp, now: Timestamp) {
        let (false, Some((window, _))) = (self.shape.is_paced, self.shape.window) else {
            return;
        };
        let table = &mut *self.table.borrow_mut();
        let (place, to) = (table.look_up(key), table.bucket(now));
        // Shared entries stay charged: other keys may have raised them as far.
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

    /// Empties the window of `key`. Charges from before it had a window of its own stay in the shared entries, which do not
    /// distinguish keys.
    pub fn reset(&self, key: Key) {
        let (false, Some(place)) = (self.shape.is_paced, self.find(key)) else {
            return;
        };
        if let Some(mut held) = self.table.borrow_mut().held(place) {
            held.clear();
        }
    }
}
