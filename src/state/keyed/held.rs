//! What requests hold of their keys' windows until their costs are known, in a table.
//!
//! A key's own window needs no bytes for it: the running sum is larger than what the counters count by that much. So a window
//! that holds is not reused. Keys that share hold in the cells of the sketch.

use super::key::KeyHandle;
use super::window::HOLDS;
use super::windows::KeyedWindows;
use crate::time::Timestamp;

impl KeyedWindows {
    /// Gives back what a key has `held` where its handle says, in a shared entry or in its own window, and charges the `actual`
    /// cost at `now`.
    pub(crate) fn settle_at(&self, handle: KeyHandle, held: u64, actual: u64, now: Timestamp) {
        let KeyHandle { key, is_shared, .. } = handle;
        let table = &mut *self.table.borrow_mut();
        let to = table.bucket(now);
        let mut own = held;
        if is_shared {
            table.sketch().give_back(key, held);
            own = 0;
        }
        let place = match table.slot_of(handle) {
            Some(slot) => KeyHandle::own(key, slot),
            None if actual == 0 => return,
            None => table.open(key, now),
        };
        let elsewhere = table.elsewhere(place);
        match table.at(place) {
            Some(mut window) => {
                window.advance(now, to);
                if !window.settle(own, actual, to) && elsewhere == 0 {
                    window.unset(HOLDS);
                }
            }
            None if !self.shape.is_paced => table.sketch().charge(key, actual),
            None => {}
        }
    }
}
