//! A hash table with open addressing and linear probing: a byte of each hash in one array, the states in another.

mod heat;
mod reuse;
mod saved;
mod sharing;
mod turns;
mod usual;

use super::answers::KeyStatus;
use super::hottest::Labels;
use super::idle_ttl::IdleTtl;
use super::key::{HAS_SHORT_WAYS, Key, KeyHandle};
use super::sketch::Sketch;
use super::window::{BucketPos, Shape, Slab, StateMut};
use crate::rule::{Count, Counting};
use crate::time::Timestamp;
use std::time::Duration;

/// The keys that a table has room for at first.
const FIRST_KEYS: usize = 8;

/// How many tags a search compares at a time.
pub(super) const AT_A_TIME: usize = 8;

/// A one in each byte.
const EACH_BYTE: u64 = 0x0101_0101_0101_0101;

/// The highest bit of each byte of `word` that is zero; behind the first such byte, perhaps of some more.
#[inline]
fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(EACH_BYTE) & !word & EACH_BYTE << 7
}

/// The slots of a table with room for `keys`: at most four of five are taken.
pub(super) fn slots(keys: usize) -> usize {
    keys + keys.div_ceil(4)
}

/// The windows themselves, and where they are.
pub(super) struct Table {
    shape: Shape,
    idle_ttl: IdleTtl,
    /// The latest word of all pacers whose slots were reused ([`IdleTtl`]).
    forgotten: u64,
    max_keys: usize,
    /// How many keys this table has room for: four fifths of its slots.
    keys: usize,
    /// How many slots are taken.
    taken: usize,
    slots: usize,
    /// One per slot: 0 where it is empty. Behind them a few that are none.
    tags: Vec<u8>,
    /// The windows: `shape.stride` words per slot.
    words: Vec<u64>,
    slab: Slab,
    /// The sketch that keys share when the table is full; made when the first of them is charged.
    sketch: Option<Box<Sketch>>,
    /// The CLOCK hand: the slot where the next search for reusable states begins.
    hand: usize,
    /// The bucket of the latest call, its start and its length.
    known: BucketPos,
    known_start: u64,
    known_length: u64,
    /// The word of the newest bucket of a usual window that is up to date ([`Table::usual`]).
    usual: u64,
    /// The longest wait for a turn, and the furthest ahead that any turn has reached, in nanoseconds.
    longest_wait: u64,
    furthest: u64,
    labels: Labels,
    reclaimed: u64,
    /// Whether shared entries may count something for keys that have states of their own: calls in flight, or what is held.
    counts_elsewhere: bool,
}

impl Table {
    #[inline(never)]
    pub(super) fn new(shape: Shape, compat: bool, max_keys: usize) -> Table {
        let mut table = Table {
            shape,
            idle_ttl: IdleTtl::new(&shape, compat),
            forgotten: 0,
            max_keys,
            keys: 0,
            taken: 0,
            slots: 0,
            tags: Vec::new(),
            words: Vec::new(),
            slab: Slab::new(max_keys),
            sketch: None,
            hand: 0,
            known: BucketPos::default(),
            known_start: 0,
            // Calls in flight do not depend on time: one long bucket.
            known_length: shape.window.map_or(u64::MAX, |(w, _)| w.bucket_nanos()),
            usual: 0,
            longest_wait: 0,
            furthest: 0,
            labels: Labels::default(),
            reclaimed: 0,
            counts_elsewhere: shape.window.is_none(),
        };
        table.usual = table.usual_word();
        table.resize(FIRST_KEYS.min(max_keys));
        table
    }

    /// Makes windows count in this way from now on.
    pub(super) fn count_as(&mut self, counting: Counting) {
        self.shape.count_as(counting);
        self.usual = self.usual_word();
    }

    /// Empties the table and gives it room for `keys`.
    #[inline(never)]
    fn resize(&mut self, keys: usize) {
        let slots = slots(keys);
        self.slots = slots;
        self.tags = vec![0; slots + AT_A_TIME];
        self.words = vec![0; slots * self.shape.stride];
        (self.keys, self.taken, self.hand) = (keys, 0, 0);
    }

    /// The bucket of `now`.
    #[cfg_attr(not(feature = "small"), inline(always))]
    pub(super) fn bucket(&mut self, now: Timestamp) -> BucketPos {
        if now.as_nanos().wrapping_sub(self.known_start) >= self.known_length {
            self.roll(now);
        }
        self.known
    }

    /// Moves on to the bucket of `now`; the floor of hot keys sinks with each bucket.
    #[inline(never)]
    fn roll(&mut self, now: Timestamp) {
        let Some((window, _)) = self.shape.window else {
            return;
        };
        let before = self.known;
        let ahead = now.as_nanos().saturating_sub(self.known_start);
        if ahead / 2 < self.known_length && ahead >= self.known_length {
            // Usually the next one: without a division.
            let counter = before.counter + 1;
            self.known = BucketPos {
                number: before.number + 1,
                counter: if counter < self.shape.buckets {
                    counter
                } else {
                    0
                },
            };
            self.known_start += self.known_length;
        } else {
            let number = window.number(now);
            let counter = (number % self.shape.buckets.max(1) as u64) as usize;
            self.known = BucketPos { number, counter };
            self.known_start = number * self.known_length;
        }
        self.labels.cool(self.known.number.abs_diff(before.number));
        self.usual = self.usual_word();
    }

    #[inline]
    fn after(&self, slot: usize) -> usize {
        if slot + 1 >= self.slots { 0 } else { slot + 1 }
    }

    #[inline]
    fn hash_at(&self, slot: usize) -> Option<u64> {
        self.words.get(slot * self.shape.stride).copied()
    }

    /// The first slot with the tag of `key` on its probe sequence: that of the key, if its hash is there. `None` if there is none
    /// before the end of the table, and perhaps if there is one just before it.
    #[cfg_attr(not(feature = "small"), inline(always))]
    fn first_with_tag(&self, key: Key) -> Option<usize> {
        let mut slot = key.home(self.slots);
        loop {
            let tags = self.tags.get(slot..slot.wrapping_add(AT_A_TIME));
            let tags = tags.and_then(<[u8]>::first_chunk)?;
            let tags = u64::from_le_bytes(*tags);
            let equal = zero_bytes(tags ^ u64::from_le_bytes([key.tag(); AT_A_TIME]));
            if equal != 0 {
                return Some(slot + equal.trailing_zeros() as usize / 8);
            }
            if zero_bytes(tags) != 0 {
                return None;
            }
            slot += AT_A_TIME;
        }
    }

    /// The slot of `key`, by linear probing: the tags are compared first.
    #[cfg_attr(not(feature = "small"), inline(always))]
    pub(super) fn find(&self, key: Key) -> Option<usize> {
        let first = HAS_SHORT_WAYS.then(|| self.first_with_tag(key)).flatten();
        match first {
            Some(slot) if self.hash_at(slot) == Some(key.0) => Some(slot),
            _ => self.find_further(key),
        }
    }

    /// The same, one slot after another.
    #[inline(never)]
    fn find_further(&self, key: Key) -> Option<usize> {
        let (tag, mut slot) = (key.tag(), key.home(self.slots));
        loop {
            // At least one slot of five is empty, so that the search ends.
            match self.tags.get(slot) {
                None | Some(0) => return None,
                Some(found) if *found == tag && self.hash_at(slot) == Some(key.0) => {
                    return Some(slot);
                }
                Some(_) => slot = self.after(slot),
            }
        }
    }

    #[cfg_attr(not(feature = "small"), inline(always))]
    pub(super) fn slot(&mut self, slot: usize) -> Option<StateMut<'_>> {
        let first = slot * self.shape.stride;
        let words = self.words.get_mut(first..first + self.shape.stride)?;
        StateMut::of(words, &mut self.slab, &self.shape)
    }

    /// The window at `place`, which was just found; `None` if the key shares.
    #[cfg_attr(not(feature = "small"), inline(always))]
    pub(super) fn at(&mut self, place: KeyHandle) -> Option<StateMut<'_>> {
        if place.is_shared {
            None
        } else {
            self.slot(place.at as usize)
        }
    }

    /// The window at `place`; `None` if it is gone, or if the key shares.
    #[inline]
    pub(super) fn held(&mut self, place: KeyHandle) -> Option<StateMut<'_>> {
        if place.is_shared {
            return None;
        }
        let slot = self.slot_of(place)?;
        self.slot(slot)
    }

    /// The slot of a key: where its state was found before, if it is still there.
    #[inline]
    pub(super) fn slot_of(&self, place: KeyHandle) -> Option<usize> {
        let slot = place.at as usize;
        if self.tags.get(slot) == Some(&place.key.tag()) && self.hash_at(slot) == Some(place.key.0)
        {
            return Some(slot);
        }
        self.find(place.key)
    }

    /// The same, brought up to `now`, and its bucket.
    #[inline(never)]
    fn held_at(&mut self, place: KeyHandle, now: Timestamp) -> Option<(StateMut<'_>, BucketPos)> {
        let to = self.bucket(now);
        if place.is_shared {
            return self.shared(place.key, to);
        }
        let mut held = self.held(place)?;
        held.advance(now, to);
        Some((held, to))
    }

    /// The status of the window at `place`; `None` if there is none, or it is gone.
    pub(super) fn status(
        &mut self,
        place: KeyHandle,
        limit: Count,
        now: Timestamp,
    ) -> Option<KeyStatus> {
        let elsewhere = self.elsewhere(place);
        let (mut held, to) = self.held_at(place, now)?;
        held.status(limit, elsewhere, now, to)
    }

    /// How long after `now` a `cost` first fits into `limit`, if no other request came; `None` if it never does. A call in
    /// flight may end at any moment: for a limit on them it is a millisecond.
    pub(super) fn time_to_room(
        &mut self,
        place: KeyHandle,
        limit: Count,
        cost: u64,
        now: Timestamp,
    ) -> Option<Duration> {
        if cost as f64 > limit.get() {
            return None;
        }
        let is_window = self.shape.window.is_some();
        let elsewhere = self.elsewhere(place);
        let wait = match self.held_at(place, now) {
            Some((mut held, to)) => held.time_to_fit(limit, (cost, elsewhere), now, to),
            None => is_window.then_some(Duration::ZERO),
        };
        wait.or(Some(Duration::from_millis(1)))
    }

    /// Where the state of `key` is. A key without one is treated as one that shares, since a new state continues from the
    /// shared entries.
    #[inline(never)]
    pub(super) fn look_up(&self, key: Key) -> KeyHandle {
        match self.find(key) {
            Some(slot) => KeyHandle::own(key, slot),
            None => KeyHandle::shared(key),
        }
    }

    /// The state of `key`, opened if it has none and brought up to `now`, and what shared entries count for it besides.
    /// No window if requests take turns.
    #[cfg_attr(not(feature = "small"), inline(always))]
    pub(super) fn enter(
        &mut self,
        key: Key,
        slot: Option<usize>,
        now: Timestamp,
        to: BucketPos,
    ) -> (KeyHandle, u64, Option<StateMut<'_>>) {
        let place = match slot {
            Some(slot) => KeyHandle::own(key, slot),
            None => self.open(key, now),
        };
        let elsewhere = self.elsewhere(place);
        let mut held = self.at(place);
        if let Some(held) = &mut held {
            held.advance(now, to);
        }
        (place, elsewhere, held)
    }

    pub(super) fn len(&self) -> usize {
        self.taken
    }

    pub(super) fn charged_to_shared(&self) -> u64 {
        self.sketch.as_ref().map_or(0, |sketch| sketch.charged())
    }

    pub(super) fn reclaimed(&self) -> u64 {
        self.reclaimed
    }

    pub(super) fn wide(&self) -> usize {
        let shared = self.sketch.as_ref().map_or(0, |sketch| sketch.wide());
        self.slab.taken(self.shape.buckets) + shared
    }

    pub(super) fn known(&self) -> BucketPos {
        self.known
    }

    /// When the bucket of the latest call starts.
    pub(super) fn known_start(&self) -> Timestamp {
        Timestamp::from_nanos(self.known_start)
    }

    pub(super) fn bytes(&self) -> usize {
        let states = self.tags.capacity() + self.words.capacity() * size_of::<u64>();
        let shared = self.sketch.as_ref().map_or(0, |sketch| sketch.bytes());
        states + self.slab.bytes() + shared + self.labels.bytes()
    }
}
