//! Pacers of a table (GCRA: one instant per key): how far the turns of each key reach.

use super::Table;
use super::reuse::LOOK;
use crate::state::keyed::idle_ttl::{reach, reach_word};
use crate::state::keyed::key::{Key, KeyHandle};
use crate::state::pacer::Spacing;
use crate::time::Timestamp;

impl Table {
    /// The word of the pacer at `place`; `None` if it is gone, or if the key shares.
    #[inline]
    pub(super) fn pacer(&mut self, place: KeyHandle) -> Option<&mut u64> {
        if place.is_shared {
            return None;
        }
        let slot = self.slot_of(place)?;
        self.words.get_mut(slot * self.shape.stride + 1)
    }

    /// How far the turns of the pacer at `place` reach.
    pub(crate) fn reach(&mut self, place: KeyHandle, now: Timestamp) -> Option<Timestamp> {
        if place.is_shared {
            return self.shared_reach(place.key, now);
        }
        reach(*self.pacer(place)?)
    }

    /// An upper bound of how far the turns of `key` reach that it took without a pacer of its own, or before its pacer was
    /// forgotten. Shared turns reach no further ahead than any turn has.
    #[cold]
    pub(super) fn shared_reach(&mut self, key: Key, now: Timestamp) -> Option<Timestamp> {
        let furthest = reach_word(Some(now.plus_nanos(self.furthest)));
        let sketch = self.sketch.as_mut();
        let shared = sketch.map_or(0, |sketch| sketch.reach(key, furthest));
        reach(shared.max(self.idle_ttl.before(self.forgotten, now)))
    }

    /// The same, at most as far as `pace` allows: a turn that reaches further was taken before the clock stepped back, and is
    /// pulled back.
    #[inline]
    pub(crate) fn reach_within(&mut self, place: KeyHandle, pace: &Spacing) -> Option<Timestamp> {
        self.idle_ttl = self.idle_ttl.after(pace);
        if place.is_shared {
            return self.shared_reach(place.key, pace.now());
        }
        Table::pull_back(self.pacer(place)?, pace)
    }

    #[inline]
    fn pull_back(pacer: &mut u64, pace: &Spacing) -> Option<Timestamp> {
        let latest = reach(*pacer)?;
        let reached = pace.clamped(latest);
        if reached != latest {
            *pacer = reach_word(Some(reached));
        }
        Some(reached)
    }

    /// Takes a turn of the pacer at `place` for a request that waits for at least `wait` nanoseconds. Returns how long it
    /// waits, and how far turns reached before and reach with it; `None` if it may not wait that long.
    #[inline]
    pub(crate) fn take_turn(
        &mut self,
        place: KeyHandle,
        pace: &Spacing,
        wait: u64,
    ) -> Option<(u64, Option<Timestamp>, Timestamp)> {
        self.idle_ttl = self.idle_ttl.after(pace);
        let pacer = self.pacer(place)?;
        let from = Table::pull_back(pacer, pace);
        let wait = pace.wait(from)?.max(wait);
        let to = pace.reach_after(wait);
        *pacer = reach_word(Some(to));
        self.note_turn(pace, wait, to);
        Some((wait, from, to))
    }

    #[inline]
    fn note_turn(&mut self, pace: &Spacing, wait: u64, to: Timestamp) {
        let ahead = to.since(pace.now()).as_nanos() as u64;
        self.longest_wait = self.longest_wait.max(wait);
        self.furthest = self.furthest.max(ahead);
    }

    /// Makes the pacer of `key` reach to `end`, if there is room for it; no pacer reaches more than `furthest` nanoseconds
    /// ahead.
    pub(crate) fn reserve_until(
        &mut self,
        key: Key,
        end: Timestamp,
        furthest: u64,
        now: Timestamp,
    ) -> bool {
        self.furthest = furthest;
        // Enough steps for one round of the hand.
        for _ in 0..=self.slots / LOOK {
            let place = match self.find(key) {
                Some(slot) => KeyHandle::own(key, slot),
                None => self.open(key, now),
            };
            if place.is_shared {
                continue;
            }
            if let Some(pacer) = self.pacer(place) {
                *pacer = reach_word(Some(end));
            }
            return true;
        }
        false
    }

    /// How far the pacer of `key` reaches, pulled back to `latest` if that is earlier.
    pub(crate) fn pull_back_to(&mut self, key: Key, latest: Timestamp) -> Option<Timestamp> {
        let slot = self.find(key)?;
        let pacer = self.pacer(KeyHandle::own(key, slot))?;
        let reached = reach(*pacer)?.min(latest);
        *pacer = reach_word(Some(reached));
        Some(reached)
    }

    /// Gives back a turn, if no later one was taken.
    pub(crate) fn release_turn(
        &mut self,
        place: KeyHandle,
        from: Option<Timestamp>,
        to: Timestamp,
    ) {
        if let Some(pacer) = self
            .pacer(place)
            .filter(|pacer| **pacer == reach_word(Some(to)))
        {
            *pacer = reach_word(from);
        }
    }

    /// The longest wait of a turn so far, in nanoseconds.
    #[inline]
    pub(crate) fn longest_wait(&self) -> u64 {
        self.longest_wait
    }

    /// Whether no request waits for the pacer in `slot`, and its time to live after the latest turn is over.
    pub(super) fn is_idle(&mut self, slot: usize, now: Timestamp) -> bool {
        let (idle_ttl, furthest) = (self.idle_ttl, self.furthest);
        let is_full = self.taken == self.max_keys;
        let Some(pacer) = self.words.get_mut(slot * self.shape.stride + 1) else {
            return false;
        };
        let Some(latest) = reach(*pacer) else {
            return true;
        };
        if is_full && latest > now.plus_nanos(furthest) {
            // As below.
            *pacer = reach_word(Some(now.plus_nanos(furthest)));
        }
        idle_ttl.is_over(latest, is_full, now)
    }

    /// [`Table::take_turn`] for a key that shares, without taking it.
    pub(crate) fn shared_turn(
        &mut self,
        key: Key,
        pace: &Spacing,
        wait: u64,
    ) -> Option<(u64, Option<Timestamp>, Timestamp)> {
        let from = self.reach_within(KeyHandle::shared(key), pace);
        let wait = pace.wait(from)?.max(wait);
        let to = pace.reach_after(wait);
        self.note_turn(pace, wait, to);
        Some((wait, from, to))
    }
}
