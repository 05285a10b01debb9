//! What a table counts as bytes, by age and not by instant, and back from them, by another clock.

use super::Table;
use crate::rule::Count;
use crate::state::keyed::idle_ttl::reach;
use crate::state::keyed::key::{Key, KeyHandle};
use crate::state::keyed::saved::{Restoring, left, put, take, take_word};
use crate::time::Timestamp;

impl Table {
    /// Appends how many keys count something, and each of them: its hash, then the age of each bucket that counts and its count, an
    /// age in buckets and one more, and a zero; of a pacer how far its turns reach from `now`, in nanoseconds. What is held counts
    /// in the newest bucket.
    pub(crate) fn save(&mut self, now: Timestamp, out: &mut Vec<u8>) {
        let (to, at) = (self.bucket(now), out.len());
        out.extend([0; size_of::<u64>()]);
        let mut keys = 0_u64;
        for slot in 0..self.slots {
            let is_taken = self.tags.get(slot).is_some_and(|tag| *tag != 0);
            let Some(hash) = self.hash_at(slot).filter(|_| is_taken) else {
                continue;
            };
            if self.is_free(slot, now, to) {
                continue;
            }
            keys += 1;
            out.extend(hash.to_le_bytes());
            let Some(mut state) = self.slot(slot).filter(|state| !state.shape.is_paced) else {
                let word = self.words.get(slot * self.shape.stride + 1);
                let reached = reach(word.copied().unwrap_or(0)).unwrap_or(now);
                put(out, left(reached, now));
                continue;
            };
            let (shape, number) = (state.shape, state.number());
            let newest = (number % shape.buckets.max(1) as u64) as usize;
            // After the clock has stepped back, the newest bucket is the current one.
            let behind = to.number.saturating_sub(number);
            let held = state.used.saturating_sub(state.counted());
            for age in 0..shape.buckets {
                let mut count = if age == 0 { held } else { 0 };
                if let Some(back) = (age as u64).checked_sub(behind) {
                    count += state.counter(shape.before(newest, back as usize));
                }
                if count > 0 {
                    put(out, age as u64 + 1);
                    put(out, count);
                }
            }
            put(out, 0);
        }
        if let Some(head) = out.get_mut(at..at + size_of::<u64>()) {
            head.copy_from_slice(&keys.to_le_bytes());
        }
    }

    /// Makes room for so many keys in an empty table. Restored keys come in the order of their hashes: a table that grew meanwhile
    /// would search long for each.
    pub(crate) fn make_room(&mut self, keys: usize) {
        if self.taken == 0 && keys > self.keys {
            self.resize(keys.min(self.max_keys));
        }
    }

    /// Takes what [`Table::save`] has written of windows off the front, and counts it unless `at` is `None`. Their bucket was
    /// `offset` nanoseconds old. `None` if the bytes are not such.
    ///
    /// Buckets have other edges by another clock: each old bucket is dated at its end, so that it leaves up to a bucket too late.
    pub(crate) fn restore(
        &mut self,
        bytes: &mut &[u8],
        offset: u64,
        at: Option<Restoring>,
    ) -> Option<()> {
        let buckets = self.shape.buckets as u64;
        let keys = take_word(bytes)?;
        if keys > self.max_keys as u64 {
            return None;
        }
        if at.is_some() {
            self.make_room(keys as usize);
        }
        for _ in 0..keys {
            let key = Key(take_word(bytes)?);
            while let Some(age) = take(bytes)?.checked_sub(1) {
                let count = take(bytes)?.min(Count::MAX as u64);
                if age >= buckets {
                    return None;
                }
                if let Some(at) = at {
                    self.count_saved(key, self.age_now(age, offset, at), count, at.now);
                }
            }
        }
        Some(())
    }

    /// How many buckets the bucket of that age is old now.
    fn age_now(&self, age: u64, offset: u64, Restoring { elapsed, now }: Restoring) -> u64 {
        let length = self.known_length.max(1);
        let ended = match age.checked_sub(1) {
            Some(before) => offset.saturating_add(before.saturating_mul(length)),
            None => 0,
        };
        let ended = ended.saturating_add(elapsed);
        match ended.checked_sub(now.as_nanos() % length) {
            None => 0,
            // The last requests of a bucket came before its end; those of the current one until it was saved.
            Some(before) if age > 0 => before / length + 1,
            Some(before) => before.div_ceil(length),
        }
    }

    #[inline(never)]
    fn count_saved(&mut self, key: Key, age: u64, count: u64, now: Timestamp) {
        if age >= self.shape.buckets as u64 {
            return;
        }
        let to = self.bucket(now);
        let place = match self.find(key) {
            Some(slot) => KeyHandle::own(key, slot),
            None => self.open(key, now),
        };
        if let Some(mut state) = self.at(place) {
            let counter = state.shape.before(to.counter, age as usize);
            let counted = state.counter(counter);
            let sum = counted.saturating_add(count).min(Count::MAX as u64);
            state.set_counter(counter, sum);
            *state.used = state.used.saturating_add(sum - counted);
        }
    }

    /// The same for the sketch: what each of its cells counts and holds, undated.
    pub(crate) fn save_sketch(&mut self, now: Timestamp, out: &mut Vec<u8>) {
        self.bucket(now);
        match self.sketch {
            Some(_) => self.sketch().save(out),
            None => out.extend([0, 0]),
        }
    }

    /// All of a cell counts in the current bucket, unless its whole window has passed.
    pub(crate) fn restore_sketch(
        &mut self,
        bytes: &mut &[u8],
        at: Option<Restoring>,
    ) -> Option<()> {
        let (charged, mut cell) = (take(bytes)?, 0_usize);
        loop {
            let gap = usize::try_from(take(bytes)?).ok()?;
            if gap == 0 {
                break;
            }
            cell = cell.checked_add(gap)?;
            let count = take(bytes)?.min(Count::MAX as u64);
            if let Some(Restoring { elapsed, now }) = at {
                self.bucket(now);
                self.sketch().restore(cell - 1, count, elapsed);
            }
        }
        if charged > 0 && at.is_some() {
            self.sketch().count_charged(charged);
        }
        Some(())
    }
}
