//! Pacers of a table (GCRA: one instant per key): how far the turns of each key reach.

use super::Table;
use super::reuse::LOOK;
use crate::state::keyed::idle_ttl::{reach, reach_word};
use crate::state::keyed::key::{Key, KeyHandle};
use crate::state::pacer::Spacing;
use crate::time::Timestamp;

impl Table {
    /// The word of the line at `place`; `None` where it is gone, or keys share.
    #[inline]
    pub(super) fn line(&mut self, place: KeyHandle) -> Option<&mut u64> {
        if place.is_shared {
            return None;
        }
        let slot = self.slot_of(place)?;
        self.words.get_mut(slot * self.shape.stride + 1)
    }

    /// How far the turns of the line at `place` reach.
    pub(crate) fn reach(&mut self, place: KeyHandle, now: Timestamp) -> Option<Timestamp> {
        if place.is_shared {
            return self.shared_reach(place.key, now);
        }
        reach(*self.line(place)?)
    }

    /// How far the turns reach at most that `key` has taken while it had no line, or before its line was forgotten. Those that
    /// it shared reach no further ahead than any turn has.
    #[cold]
    pub(super) fn shared_reach(&mut self, key: Key, now: Timestamp) -> Option<Timestamp> {
        let furthest = reach_word(Some(now.plus_nanos(self.furthest)));
        let sketch = self.sketch.as_mut();
        let shared = sketch.map_or(0, |sketch| sketch.reach(key, furthest));
        reach(shared.max(self.idle_ttl.before(self.forgotten, now)))
    }

    /// The same as far as `pace` believes it. What reaches further was taken before the clock stepped back, and is pulled back.
    #[inline]
    pub(crate) fn reach_within(&mut self, place: KeyHandle, pace: &Spacing) -> Option<Timestamp> {
        self.idle_ttl = self.idle_ttl.after(pace);
        if place.is_shared {
            return self.shared_reach(place.key, pace.now());
        }
        Table::pull_back(self.line(place)?, pace)
    }

    #[inline]
    fn pull_back(line: &mut u64, pace: &Spacing) -> Option<Timestamp> {
        let latest = reach(*line)?;
        let reached = pace.clamped(latest);
        if reached != latest {
            *line = reach_word(Some(reached));
        }
        Some(reached)
    }

    /// Takes a turn in the line at `place` for a request that waits for `wait` nanoseconds at least: how long it has to, and
    /// how far turns reached before and reach with it. `None` where that is longer than it may.
    #[inline]
    pub(crate) fn take_turn(
        &mut self,
        place: KeyHandle,
        pace: &Spacing,
        wait: u64,
    ) -> Option<(u64, Option<Timestamp>, Timestamp)> {
        self.idle_ttl = self.idle_ttl.after(pace);
        let line = self.line(place)?;
        let from = Table::pull_back(line, pace);
        let wait = pace.wait(from)?.max(wait);
        let to = pace.reach_after(wait);
        *line = reach_word(Some(to));
        self.note_turn(pace, wait, to);
        Some((wait, from, to))
    }

    #[inline]
    fn note_turn(&mut self, pace: &Spacing, wait: u64, to: Timestamp) {
        let ahead = to.since(pace.now()).as_nanos() as u64;
        self.longest_wait = self.longest_wait.max(wait);
        self.furthest = self.furthest.max(ahead);
    }

    /// Has the line of `key` reach to `end`, if there is room for it; none reaches more than `furthest` nanoseconds ahead.
    pub(crate) fn reserve_until(
        &mut self,
        key: Key,
        end: Timestamp,
        furthest: u64,
        now: Timestamp,
    ) -> bool {
        self.furthest = furthest;
        // The hand goes round once.
        for _ in 0..=self.tags.len() / LOOK {
            let place = match self.find(key) {
                Some(slot) => KeyHandle::own(key, slot),
                None => self.open(key, now),
            };
            if place.is_shared {
                continue;
            }
            if let Some(line) = self.line(place) {
                *line = reach_word(Some(end));
            }
            return true;
        }
        false
    }

    /// How far the line of `key` reaches, which is pulled back to `latest` where that is earlier.
    pub(crate) fn pull_back_to(&mut self, key: Key, latest: Timestamp) -> Option<Timestamp> {
        let slot = self.find(key)?;
        let line = self.line(KeyHandle::own(key, slot))?;
        let reached = reach(*line)?.min(latest);
        *line = reach_word(Some(reached));
        Some(reached)
    }

    /// Gives a turn back, if no later one was taken.
    pub(crate) fn release_turn(
        &mut self,
        place: KeyHandle,
        from: Option<Timestamp>,
        to: Timestamp,
    ) {
        if let Some(line) = self
            .line(place)
            .filter(|line| **line == reach_word(Some(to)))
        {
            *line = reach_word(from);
        }
    }

    /// The longest wait of a turn so far, in nanoseconds.
    #[inline]
    pub(crate) fn longest_wait(&self) -> u64 {
        self.longest_wait
    }

    /// Whether no request waits in the line in `slot`, and its latest turn has been over for as long as it is kept.
    pub(super) fn is_idle(&mut self, slot: usize, now: Timestamp) -> bool {
        let (idle_ttl, furthest) = (self.idle_ttl, self.furthest);
        let is_full = self.taken == self.max_keys;
        let Some(line) = self.words.get_mut(slot * self.shape.stride + 1) else {
            return false;
        };
        let Some(latest) = reach(*line) else {
            return true;
        };
        if is_full && latest > now.plus_nanos(furthest) {
            // As below.
            *line = reach_word(Some(now.plus_nanos(furthest)));
        }
        idle_ttl.is_over(latest, is_full, now)
    }

    /// As [`Table::take_turn`], of a key that shares; does not take it.
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
