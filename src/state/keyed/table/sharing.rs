//! The sketch that keys share when the table is full.

use super::Table;
use crate::rule::Count;
use crate::state::keyed::answers::Reserved;
use crate::state::keyed::idle_ttl::reach_word;
use crate::state::keyed::key::{Key, KeyHandle};
use crate::state::keyed::sketch::Sketch;
use crate::state::keyed::window::{BucketPos, SHARES, StateMut};
use crate::time::Timestamp;

impl Table {
    /// The sketch, in the bucket of the latest call.
    #[cold]
    #[inline(never)]
    pub(crate) fn sketch(&mut self) -> &mut Sketch {
        let (shape, max_keys) = (&self.shape, self.max_keys);
        let sketch = || Box::new(Sketch::new(shape, max_keys));
        let sketch = self.sketch.get_or_insert_with(sketch);
        sketch.follow(self.known.number);
        sketch
    }

    /// The window of `key`, which shares, in the bucket `to`; `None` if nothing is shared, or if the states are not windows.
    #[cold]
    #[inline(never)]
    pub(crate) fn shared(&mut self, key: Key, to: BucketPos) -> Option<(StateMut<'_>, BucketPos)> {
        self.sketch.as_mut()?.window(key, to.number)
    }

    /// An upper bound of its calls in flight.
    pub(super) fn calls_shared(&self, key: Key) -> u64 {
        self.sketch
            .as_ref()
            .map_or(0, |sketch| sketch.calls_of(key))
    }

    /// Whether `cost` more of `key`, which shares, fits into `limit`.
    #[cold]
    #[inline(never)]
    pub(crate) fn shared_fits(
        &mut self,
        key: Key,
        limit: Count,
        cost: u64,
        now: Timestamp,
    ) -> bool {
        let used = self.shared_sum(key, now);
        used.saturating_add(cost) <= limit.whole()
    }

    /// An upper bound of its calls in flight, if it shares and calls in flight are counted.
    pub(crate) fn calls_at(&self, place: KeyHandle) -> u64 {
        if place.is_shared && self.shape.window.is_none() {
            self.calls_shared(place.key)
        } else {
            0
        }
    }

    /// An upper bound of its sum, or of its calls in flight.
    fn shared_sum(&mut self, key: Key, now: Timestamp) -> u64 {
        let to = self.bucket(now);
        match self.shared(key, to) {
            Some((held, _)) => *held.used,
            None => self.calls_shared(key),
        }
    }

    /// Charges the reservation of a key that shares, or holds it. Returns whether it has an end: it is held, or a call in flight.
    #[cold]
    #[inline(never)]
    pub(crate) fn charge_shared(&mut self, reserved: &Reserved, cost: u64) -> bool {
        let key = reserved.handle.key;
        let turn = reserved.turn.map(|turn| reach_word(Some(turn.to)));
        if !reserved.handle.is_shared || !self.sketch().take_back(key, turn.unwrap_or(cost)) {
            return false;
        }
        match turn {
            _ if reserved.is_held => self.hold_shared(key, cost),
            Some(to) => self.sketch().extend(key, to),
            None => self.sketch().charge(key, cost),
        }
        reserved.is_held || self.shape.window.is_none()
    }

    /// Holds `cost` for a key that shares.
    #[cold]
    pub(crate) fn hold_shared(&mut self, key: Key, cost: u64) {
        self.counts_elsewhere = true;
        self.sketch().hold(key, cost);
    }

    /// Calls in flight in shared entries that may be this key's, or what is held there, besides those in its own state.
    #[cfg_attr(not(feature = "small"), inline(always))]
    pub(crate) fn elsewhere(&mut self, place: KeyHandle) -> u64 {
        if !self.counts_elsewhere || place.is_shared {
            return 0;
        }
        if !self.held(place).is_some_and(|held| held.has(SHARES)) {
            return 0;
        }
        self.counted_elsewhere(place)
    }

    #[cold]
    #[inline(never)]
    fn counted_elsewhere(&mut self, place: KeyHandle) -> u64 {
        let is_window = self.shape.window.is_some();
        let sketch = self.sketch.as_ref();
        let elsewhere = sketch.map_or(0, |sketch| match is_window {
            true => sketch.held_of(place.key),
            false => sketch.calls_of(place.key),
        });
        if elsewhere == 0
            && let Some(mut held) = self.held(place)
            && !(is_window && *held.used > held.counted())
        {
            held.unset(SHARES);
        }
        elsewhere
    }
}
