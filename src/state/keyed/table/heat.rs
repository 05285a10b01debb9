//! Which keys of a table are hot.

use super::Table;
use crate::state::keyed::hottest::{Labels, MAX_LABELS};
use crate::state::keyed::key::{Key, KeyHandle};
use crate::state::keyed::window::{BucketPos, LISTED};
use crate::time::Timestamp;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

impl Table {
    /// An upper bound of the heat of `key` in the bucket `to`: the sum of its window, its calls in flight, or how far its turns
    /// reach ahead, in nanoseconds. 0 if it has no state of its own.
    pub(super) fn heat_of(&mut self, key: Key, now: Timestamp, to: BucketPos) -> u64 {
        let Some(slot) = self.find(key) else {
            return 0;
        };
        if self.shape.is_paced {
            let reach = self.reach(KeyHandle::own(key, slot), now);
            return reach.map_or(0, |reach| reach.since(now).as_nanos() as u64);
        }
        self.slot(slot).map_or(0, |held| held.used_by(to))
    }

    #[inline]
    pub(crate) fn floor(&self) -> u64 {
        self.labels.floor()
    }

    pub(crate) fn labels(&mut self) -> &mut Labels {
        &mut self.labels
    }

    /// Lists the key at `place` if `heat` is enough.
    #[cold]
    #[inline(never)]
    pub(crate) fn list(&mut self, place: KeyHandle, heat: u64, now: Timestamp) {
        let to = self.bucket(now);
        let is_new = !place.is_shared && !self.labels.has(place.key);
        if is_new && self.labels.is_full() {
            let keys: [Option<Key>; MAX_LABELS] = {
                let mut keys = self.labels.keys();
                std::array::from_fn(|_| keys.next())
            };
            let heats = keys.map(|key| key.map_or(0, |key| self.heat_of(key, now, to)));
            let (at, coolest) = heats
                .into_iter()
                .enumerate()
                .min_by_key(|(_, heat)| *heat)
                .unwrap_or_default();
            self.labels.set_coolest(coolest);
            if heat < self.labels.floor() {
                return;
            }
            self.labels.remove(at);
            let displaced = keys.get(at).copied().flatten();
            let slot = displaced.and_then(|key| self.find(key));
            if let Some(mut held) = slot.and_then(|slot| self.slot(slot)) {
                held.unset(LISTED);
            }
        }
        if is_new {
            self.labels.push(place.key);
        }
        // Also for keys that share, so that this is not tried again.
        if let Some(mut held) = self.held(place) {
            held.set(LISTED);
        }
    }

    /// The `n` hottest keys that have a state of their own, hottest first, and how hot they are.
    pub(crate) fn top(&mut self, n: usize, now: Timestamp) -> Vec<(u64, Key)> {
        let to = self.bucket(now);
        let mut top = BinaryHeap::new();
        for slot in 0..self.slots {
            if self.tags.get(slot).is_none_or(|tag| *tag == 0) {
                continue;
            }
            let key = Key(self.hash_at(slot).unwrap_or(0));
            let least = top.peek().map_or(0, |Reverse((heat, _))| *heat);
            let is_full = top.len() >= n;
            let heat = self.heat_in(slot, key, if is_full { least } else { 0 }, now, to);
            if heat == 0 {
                continue;
            }
            top.push(Reverse((heat, Reverse(key.0))));
            if top.len() > n {
                top.pop();
            }
        }
        let top = top.into_sorted_vec().into_iter();
        top.map(|Reverse((heat, Reverse(hash)))| (heat, Key(hash)))
            .collect()
    }

    /// The heat of the key in `slot`; 0 if it is less than `least`.
    fn heat_in(&mut self, slot: usize, key: Key, least: u64, now: Timestamp, to: BucketPos) -> u64 {
        if self.shape.is_paced {
            return self.heat_of(key, now, to);
        }
        let Some(mut held) = self.slot(slot) else {
            return 0;
        };
        let most = held.used_by(to);
        if most < least {
            return 0;
        }
        match held.future(to) {
            None => most,
            Some(mut future) => {
                future.go_to(now);
                future.sum(now) as u64
            }
        }
    }
}
