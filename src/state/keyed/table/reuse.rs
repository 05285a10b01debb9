//! How a table finds room for a new key: it reuses slots in which nothing counts any more, or grows.
//!
//! Two searches, both bounded: along the probe sequence of the new key, and by a hand that goes round the table as in the CLOCK
//! algorithm, a few slots for each new key.

use super::Table;
use crate::state::keyed::idle_ttl::reach_word;
use crate::state::keyed::key::{Key, KeyHandle};
use crate::state::keyed::window::{BucketPos, HOLDS, SHARES, StateMut};
use crate::time::Timestamp;

/// A table grows to its bound in one step from an eighth of it: the small tables that are left behind would otherwise take as
/// much memory again (see [`Table::grow`]).
const LAST_STEP: usize = 8;

/// How many slots a new key examines for a state that can be reused: this many along its probe sequence, and this many at the
/// hand. Both searches are the cost of a new key in a full table, so that there are few.
pub(super) const LOOK: usize = 8;

/// How many states the hand frees at most for one new key. One would only keep up with new keys: with two, a table empties
/// faster than it fills.
const FREE: usize = 2;

impl Table {
    /// Whether `slot` has a state in which nothing counts any more.
    pub(super) fn is_free(&mut self, slot: usize, now: Timestamp, to: BucketPos) -> bool {
        if self.tags.get(slot).is_none_or(|tag| *tag == 0) {
            return false;
        }
        if self.shape.is_paced {
            return self.is_idle(slot, now);
        }
        let is_full = self.taken == self.max_keys;
        let Some(mut held) = self.slot(slot) else {
            return false;
        };
        if is_full && held.number() > to.number {
            // Else, after the clock has stepped far back, old windows would fill the table until it has caught up.
            held.advance(now, to);
        }
        held.is_free(to)
    }

    /// Opens a state for `key`, which has none.
    #[cold]
    #[inline(never)]
    pub(crate) fn open(&mut self, key: Key, now: Timestamp) -> KeyHandle {
        let to = self.bucket(now);
        let slot = match self.free_slot_for(key, now, to) {
            Some(slot) => Some(slot),
            None => {
                self.sweep(now, to);
                if self.taken >= self.keys && self.keys < self.max_keys {
                    self.grow(now, to);
                }
                (self.taken < self.keys).then(|| {
                    self.taken += 1;
                    self.empty_slot_for(key)
                })
            }
        };
        let Some(slot) = slot else {
            return KeyHandle::shared(key);
        };
        let first = slot * self.shape.stride;
        if let Some(tag) = self.tags.get_mut(slot) {
            *tag = key.tag();
        }
        if let Some(words) = self.words.get_mut(first..first + self.shape.stride) {
            words.fill(0);
            if let Some(hash) = words.first_mut() {
                *hash = key.0;
            }
        }
        if let Some(mut held) = self.slot(slot) {
            held.set_number(to.number);
        }
        if self.sketch.is_some() || self.forgotten > 0 {
            self.inherit(slot, key, now, to);
        }
        KeyHandle::own(key, slot)
    }

    /// A reusable state, emptied, in a slot on the probe sequence of `key`.
    fn free_slot_for(&mut self, key: Key, now: Timestamp, to: BucketPos) -> Option<usize> {
        let mut slot = key.home(self.slots);
        for _ in 0..LOOK {
            if self.tags.get(slot).is_none_or(|tag| *tag == 0) {
                return None;
            }
            if self.is_free(slot, now, to) {
                self.reclaim(slot);
                return Some(slot);
            }
            slot = self.after(slot);
        }
        None
    }

    /// Clears a state in which nothing counts any more, so that its slot can be reused.
    fn reclaim(&mut self, slot: usize) {
        if let Some(mut held) = self.slot(slot) {
            held.clear();
        } else if let Some(pacer) = self.words.get(slot * self.shape.stride + 1) {
            self.forgotten = self.forgotten.max(*pacer);
        }
        self.reclaimed = self.reclaimed.wrapping_add(1);
    }

    fn empty_slot_for(&self, key: Key) -> usize {
        let mut slot = key.home(self.slots);
        while self.tags.get(slot).is_some_and(|tag| *tag != 0) {
            slot = self.after(slot);
        }
        slot
    }

    /// Moves the hand on and frees the reusable states that it finds.
    fn sweep(&mut self, now: Timestamp, to: BucketPos) {
        let mut freed = 0;
        for _ in 0..LOOK {
            if freed == FREE {
                return;
            }
            if self.is_free(self.hand, now, to) {
                self.remove(self.hand);
                freed += 1; // another one may have moved here
            } else {
                self.hand = self.after(self.hand);
            }
        }
    }

    /// Empties a slot, and moves back later states of the probe sequence (deletion without tombstones).
    fn remove(&mut self, slot: usize) {
        self.reclaim(slot);
        self.taken -= 1;
        let (slots, stride) = (self.slots, self.shape.stride);
        let (mut hole, mut next) = (slot, self.after(slot));
        while let Some(tag) = self.tags.get(next).copied().filter(|tag| *tag != 0) {
            let home = self.hash_at(next).map_or(0, |hash| Key(hash).home(slots));
            let from_home = |at: usize| (at + slots - home) % slots;
            if from_home(hole) < from_home(next) {
                let first = next * stride;
                self.words.copy_within(first..first + stride, hole * stride);
                if let Some(moved) = self.tags.get_mut(hole) {
                    *moved = tag;
                }
                hole = next;
            }
            next = self.after(next);
        }
        if let Some(tag) = self.tags.get_mut(hole) {
            *tag = 0;
        }
    }

    /// Doubles the table, and takes the last steps at once: in WebAssembly, where memory is never returned, the old tables, too
    /// small to be reused, would make up half of it. Reusable states are dropped.
    fn grow(&mut self, now: Timestamp, to: BucketPos) {
        for slot in 0..self.slots {
            if self.is_free(slot, now, to) {
                self.reclaim(slot);
                if let Some(tag) = self.tags.get_mut(slot) {
                    *tag = 0; // no search comes here until all have moved
                }
            }
        }
        let tags = std::mem::take(&mut self.tags);
        let words = std::mem::take(&mut self.words);
        self.resize(if self.keys >= self.max_keys / LAST_STEP {
            self.max_keys
        } else {
            self.keys * 2
        });
        let stride = self.shape.stride;
        for (_, old) in tags
            .iter()
            .zip(words.chunks_exact(stride))
            .filter(|(tag, _)| **tag != 0)
        {
            let key = Key(old.first().copied().unwrap_or(0));
            let slot = self.empty_slot_for(key);
            if let Some(tag) = self.tags.get_mut(slot) {
                *tag = key.tag();
            }
            if let Some(new) = self.words.get_mut(slot * stride..(slot + 1) * stride) {
                new.copy_from_slice(old);
            }
            self.taken += 1;
        }
    }

    /// Shared entries may count requests of `key`: its own state continues from them.
    pub(super) fn inherit(&mut self, slot: usize, key: Key, now: Timestamp, to: BucketPos) {
        if self.shape.is_paced {
            let shared = self.shared_reach(key, now);
            if let Some(pacer) = self.pacer(KeyHandle::own(key, slot)) {
                *pacer = reach_word(shared);
            }
            return;
        }
        if self.shape.window.is_none() {
            let shares = self.calls_shared(key) > 0;
            if let Some(mut held) = self.slot(slot).filter(|_| shares) {
                held.set(SHARES);
            }
            return;
        }
        let Table {
            sketch: Some(sketch),
            words,
            slab,
            shape,
            ..
        } = self
        else {
            return;
        };
        sketch.follow(to.number);
        let (times, newest) = (sketch.times(), sketch.number());
        let (first, buckets) = (slot * shape.stride, shape.buckets as u64);
        let words = words.get_mut(first..first + shape.stride);
        let own = words.and_then(|words| StateMut::of(words, slab, shape));
        let (Some(mut own), Some((mut shared, at))) = (own, sketch.window(key, to.number)) else {
            return;
        };
        if *shared.used == 0 {
            return;
        }
        own.set_number(newest);
        if shared.has(HOLDS) {
            own.set(HOLDS);
        }
        for behind in 0..shared.shape.buckets {
            let count = shared.counter(shared.shape.before(at.counter, behind));
            // The requests of a coarse bucket may have come at its end.
            let ends = at.number.wrapping_add(1).wrapping_sub(behind as u64);
            let number = ends.wrapping_mul(times).wrapping_sub(1).min(newest);
            if count > 0 && newest.wrapping_sub(number) < buckets {
                let counter = (number % buckets) as usize;
                let counted = own.counter(counter).saturating_add(count);
                own.set_counter(counter, counted);
                *own.used = own.used.saturating_add(count);
            }
        }
    }
}
