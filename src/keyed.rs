//! A bounded set of windows, one per key, for one rule.
//!
//! A key (a client's address, a header, a combination of such) is known by a seeded 64-bit hash of its parts. Two keys of one
//! hash share a window: stricter for both, never more than the limit for either. The windows lie in a table of fixed bounds:
//!
//! ```text
//!   tags      [ 3f ][    ][ a1 ][ 07 ][    ]  one byte per slot, none where the slot is empty: a search reads only these
//!   windows   [ .. ][    ][ .. ][ .. ][    ]  of each slot:
//!                |
//!                +-- hash              8 bytes
//!                    newest bucket     8 bytes, with two flags
//!                    what counts       8 bytes: the running sum; of a limit on concurrency, the calls in flight
//!                    counters          1 byte per bucket, n + 1 of them, rounded up to 8 bytes
//! ```
//!
//! # Memory
//!
//! With the default of 20 buckets a window takes 48 bytes, and with 60 it takes 88. At most four slots of five are
//! taken, so at its bound the table has 1.25 slots of 49 bytes for each key: **62 bytes per key** ([`KeyedWindows::bytes`]).
//! It begins small and doubles until it has room for `max_keys`, never past; while it doubles, both tables are there.
//!
//! A bucket that counts more than 255 does not fit its byte: the counters of that key then *widen* into a block of 8 bytes
//! per bucket in a slab beside the table (168 bytes more for 20 buckets), which goes back when the whole window has left. The
//! slab doubles as needed, and has at most as many blocks as there are windows. Widening saves what is counted, exactly.
//!
//! # When the table is full
//!
//! A window that nothing counts in any more is free to be taken, and is looked for only when a key comes that is not known: in
//! the slots where it would be searched for, and in a few more where a hand stands that goes round the table. There is no
//! timer. While each of the `max_keys` windows counts something, a new key shares one of [`OVERFLOW_WINDOWS`] windows, which
//! one being a matter of its hash. So a flood of keys makes limits stricter for the keys that come with it; it takes no window
//! from a key that has one, and no memory. A key that gets a window of its own later goes on from what its shared one has
//! counted: leaving the crowd gives no quota back.
//!
//! # Time
//!
//! Each window follows the clock as a [`crate::RuleWindow`] does. One sum is kept, of all buckets, and a bucket that leaves is
//! subtracted from it: each bucket once, so that a decision costs the same with 2 buckets and with 60.
//!
//! Of a clock that has stepped back by an interval or more, a window hears when its key comes next; in a full table, also when
//! a new key looks at it, so that the keys of a time that may never come again do not hold the table. What had expired and was
//! taken does not come back with the clock.

use crate::rule::{Count, Counting, Grade};
use crate::time::Timestamp;
use crate::window::Window;
use siphasher::sip::SipHasher13;
use std::cell::RefCell;
use std::fmt;
use std::hash::Hasher;
use std::time::Duration;

/// How many buckets a window per key has at most unless its rule says: there they cost memory.
pub const KEYED_SAMPLE_COUNT: u32 = 20;

/// How many windows the keys share that find the table full.
pub const OVERFLOW_WINDOWS: usize = 256;

/// The most keys of one rule that can be kept apart.
pub const MAX_KEYS: usize = 1 << 24;

/// The keys that a table has room for at first.
const FIRST_KEYS: usize = 8;

/// How many slots a new key looks at for a window that is free to be taken: this many where it belongs, and this many where
/// the hand stands.
const LOOK: usize = 8;

/// How many windows the hand frees at most for one new key: more than one, so that a table empties faster than it fills.
const FREE: usize = 2;

/// Words of a window before its counters: the hash, the newest bucket and the flags, what counts.
const HEADER: usize = 3;

/// The largest count that fits a narrow counter.
const NARROW: u64 = u8::MAX as u64;

/// A flag beside the number of the newest bucket: the counters are in the slab.
const WIDE: u64 = 1;

/// A flag beside it: calls in flight of this key may be among those of its overflow window.
const SHARES: u64 = 2;

/// How far the number of a bucket is shifted to make room for the flags. A bucket is at least a millisecond long, so that its
/// number has at most 45 bits.
const FLAGS: u32 = 2;

/// Who is limited, as far as a table of keys is concerned: a hash.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Key(u64);

impl Key {
    /// The key that has this hash. It should be as hard to guess as those of [`KeyedWindows::key`].
    pub const fn from_hash(hash: u64) -> Key {
        Key(hash)
    }

    /// The hash.
    pub const fn hash(self) -> u64 {
        self.0
    }

    /// One of 255, never 0, and independent of [`Key::home`].
    #[inline]
    fn tag(self) -> u8 {
        (self.0 as u8).max(1)
    }

    /// Where the search for this key begins among `slots`, which are fewer than 2^32.
    #[inline]
    fn home(self, slots: usize) -> usize {
        (((self.0 >> 32) * slots as u64) >> 32) as usize
    }

    /// Which of the overflow windows is this key's.
    fn overflow(self) -> usize {
        (self.0 >> 8) as usize % OVERFLOW_WINDOWS
    }
}

/// Where the window of a key is. It is good for one decision; from a reservation until that is given back, has ended or has
/// left the window, it stays good whatever happens to other keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    key: Key,
    /// Where it was when it was told. It may have moved since.
    at: u32,
    is_shared: bool,
}

impl Place {
    fn own(key: Key, slot: usize) -> Place {
        Place {
            key,
            at: slot as u32,
            is_shared: false,
        }
    }

    /// The key.
    pub fn key(self) -> Key {
        self.key
    }

    /// Whether the window is one of those that keys share because the table was full.
    pub fn is_shared(self) -> bool {
        self.is_shared
    }
}

/// What the windows of one table have in common.
#[derive(Clone, Copy)]
struct Shape {
    /// `None` for a limit on concurrency.
    window: Option<(Window, Counting)>,
    /// Buckets that are counted: those of the window and the one that is leaving.
    buckets: usize,
    /// Words per window.
    stride: usize,
}

impl Shape {
    fn new(grade: Grade) -> Shape {
        let window = match grade {
            Grade::Qps { window, counting } => Some((window.window(), counting)),
            Grade::Concurrency => None,
        };
        let buckets = window.map_or(0, |(window, _)| window.sample_count() as usize + 1);
        Shape {
            window,
            buckets,
            stride: HEADER + buckets.div_ceil(8),
        }
    }

    /// The counter `steps`, at most one round, after that of `counter`.
    #[inline]
    fn after(&self, counter: usize, steps: usize) -> usize {
        let after = counter + steps;
        if after >= self.buckets {
            after - self.buckets
        } else {
            after
        }
    }

    /// The counter `steps`, at most one round, before that of `counter`.
    #[inline]
    fn before(&self, counter: usize, steps: usize) -> usize {
        self.after(counter, self.buckets - steps)
    }
}

/// The bucket of an instant.
#[derive(Clone, Copy, Default)]
struct Bucket {
    number: u64,
    /// Which counter it takes.
    counter: usize,
}

/// Counters that have outgrown a byte, in blocks of one word per bucket.
#[derive(Default)]
struct Slab {
    words: Vec<u64>,
    free: Vec<u32>,
}

impl Slab {
    fn take(&mut self, buckets: usize) -> u64 {
        if let Some(block) = self.free.pop() {
            return block.into();
        }
        let block = self.words.len() / buckets.max(1);
        self.words.resize(self.words.len() + buckets, 0);
        // So that giving back allocates nothing.
        self.free.reserve(block + 1);
        block as u64
    }

    fn give_back(&mut self, block: u64) {
        self.free.extend(u32::try_from(block));
    }

    fn block(&mut self, block: u64, buckets: usize) -> &mut [u64] {
        let first = block as usize * buckets;
        self.words
            .get_mut(first..first + buckets)
            .unwrap_or_default()
    }

    fn taken(&self, buckets: usize) -> usize {
        self.words.len() / buckets.max(1) - self.free.len()
    }
}

/// One window of the table, taken apart.
struct Held<'a> {
    shape: Shape,
    /// The number of the newest bucket, and the flags.
    newest: &'a mut u64,
    /// What counts in all buckets, reservations included; or the calls in flight.
    used: &'a mut u64,
    /// A byte each, or in the first word the block of the slab where they are.
    counters: &'a mut [u64],
    slab: &'a mut Slab,
}

impl<'a> Held<'a> {
    #[inline]
    fn of(words: &'a mut [u64], slab: &'a mut Slab, shape: Shape) -> Option<Held<'a>> {
        match words {
            [_, newest, used, counters @ ..] => Some(Held {
                shape,
                newest,
                used,
                counters,
                slab,
            }),
            _ => None,
        }
    }

    #[inline]
    fn number(&self) -> u64 {
        *self.newest >> FLAGS
    }

    #[inline]
    fn has(&self, flag: u64) -> bool {
        *self.newest & flag != 0
    }

    #[inline]
    fn set_number(&mut self, number: u64) {
        *self.newest = number << FLAGS | *self.newest & (WIDE | SHARES);
    }

    fn block(&mut self) -> &mut [u64] {
        let block = self.counters.first().copied().unwrap_or(0);
        self.slab.block(block, self.shape.buckets)
    }

    #[inline]
    fn counter(&mut self, counter: usize) -> u64 {
        if self.has(WIDE) {
            return self.block().get(counter).copied().unwrap_or(0);
        }
        let word = self.counters.get(counter / 8).copied().unwrap_or(0);
        word >> (counter % 8 * 8) & NARROW
    }

    #[inline]
    fn set_counter(&mut self, counter: usize, to: u64) {
        if to > NARROW && !self.has(WIDE) {
            self.widen();
        }
        if self.has(WIDE) {
            if let Some(word) = self.block().get_mut(counter) {
                *word = to;
            }
        } else if let Some(word) = self.counters.get_mut(counter / 8) {
            let shift = counter % 8 * 8;
            *word = *word & !(NARROW << shift) | to << shift;
        }
    }

    #[cold]
    fn widen(&mut self) {
        let buckets = self.shape.buckets;
        let block = self.slab.take(buckets);
        for (counter, wide) in self.slab.block(block, buckets).iter_mut().enumerate() {
            let word = self.counters.get(counter / 8).copied().unwrap_or(0);
            *wide = word >> (counter % 8 * 8) & NARROW;
        }
        if let Some(first) = self.counters.first_mut() {
            *first = block;
        }
        *self.newest |= WIDE;
    }

    /// What all counters hold together.
    fn counted(&mut self) -> u64 {
        const LOW: u64 = 0x00ff_00ff_00ff_00ff;
        const ADD: u64 = 0x0001_0001_0001_0001;
        if self.has(WIDE) {
            return self.block().iter().sum();
        }
        let sum = |word: &u64| ((word & LOW) + (word >> 8 & LOW)).wrapping_mul(ADD) >> 48;
        self.counters.iter().map(sum).sum()
    }

    /// Empties all counters, which are narrow again. What is reserved stays.
    fn clear(&mut self) {
        *self.used = self.used.saturating_sub(self.counted());
        if self.has(WIDE) {
            self.slab
                .give_back(self.counters.first().copied().unwrap_or(0));
            *self.newest &= !WIDE;
        }
        self.counters.fill(0);
    }

    /// The counter of the newest bucket.
    #[inline]
    fn newest_counter(&self, known: Bucket) -> usize {
        let number = self.number();
        if number == known.number {
            known.counter
        } else {
            (number % self.shape.buckets.max(1) as u64) as usize
        }
    }

    /// Brings the window up to `now`, which lies in the bucket `to`.
    #[inline]
    fn advance(&mut self, now: Timestamp, to: Bucket) {
        if self.number() != to.number {
            self.move_to(now, to);
        }
    }

    #[inline(never)]
    fn move_to(&mut self, now: Timestamp, to: Bucket) {
        let Some((window, _)) = self.shape.window else {
            return;
        };
        let number = self.number();
        if let Some(steps) = to.number.checked_sub(number) {
            if steps >= self.shape.buckets as u64 {
                self.clear();
            } else {
                for behind in 0..steps as usize {
                    let counter = self.shape.before(to.counter, behind);
                    *self.used = self.used.saturating_sub(self.counter(counter));
                    self.set_counter(counter, 0);
                }
            }
        } else {
            let behind = (number * window.bucket_nanos()).saturating_sub(now.as_nanos());
            if behind < window.interval_nanos() {
                return;
            }
            let gathered = self.counted();
            self.clear();
            *self.used += gathered;
            self.set_counter(to.counter, gathered);
        }
        self.set_number(to.number);
    }

    /// Whether nothing counts here any more in the bucket `to`.
    #[inline]
    fn is_free(&mut self, to: Bucket) -> bool {
        if *self.used == 0 {
            return true;
        }
        if self.shape.window.is_none() || to.number == self.number() {
            return false;
        }
        let steps = to.number.checked_sub(self.number());
        steps.is_some_and(|steps| steps >= self.shape.buckets as u64)
            && *self.used == self.counted()
    }

    /// Whether `cost` more fits, of a window that has been advanced to `now`.
    #[inline]
    fn fits(&mut self, limit: Count, cost: u64, now: Timestamp, known: Bucket) -> bool {
        match self.shape.window {
            None | Some((_, Counting::Strict)) => self.used.saturating_add(cost) <= limit.whole(),
            Some((window, counting)) => {
                let leaving = self.leaving(known);
                let full = self.used.saturating_sub(leaving);
                if counting == Counting::Sentinel {
                    return full.saturating_add(cost) <= limit.whole();
                }
                let elapsed = now
                    .as_nanos()
                    .saturating_sub(self.number() * window.bucket_nanos());
                full as f64 + kept_part(leaving, elapsed, window) + cost as f64 <= limit.get()
            }
        }
    }

    /// Charges what was reserved.
    #[inline]
    fn commit(&mut self, cost: u64, known: Bucket) {
        if self.shape.window.is_none() {
            // Whatever it costs to begin, a call in flight is one.
            *self.used = self.used.saturating_sub(cost).saturating_add(1);
            return;
        }
        let counter = self.newest_counter(known);
        let count = self.counter(counter).saturating_add(cost);
        self.set_counter(counter, count);
    }

    /// What was counted in the bucket that is leaving.
    #[inline]
    fn leaving(&mut self, known: Bucket) -> u64 {
        let leaving = self.shape.after(self.newest_counter(known), 1);
        self.counter(leaving)
    }

    /// What will count from the newest bucket on, if nothing else comes.
    fn future(&mut self, known: Bucket) -> Option<Future<'_, 'a>> {
        let (window, counting) = self.shape.window?;
        let counter = self.newest_counter(known);
        let leaving = self.shape.after(counter, 1);
        let full = self.used.saturating_sub(self.counter(leaving));
        Some(Future {
            window,
            counting,
            start: Timestamp::from_nanos(self.number() * window.bucket_nanos()),
            ahead: 0,
            full,
            leaving,
            held: self,
        })
    }
}

/// How much of the passes of the leaving bucket still counts when `elapsed` nanoseconds of the newest one have gone.
#[inline]
fn kept_part(leaving: u64, elapsed: u64, window: Window) -> f64 {
    let left = window.bucket_nanos().saturating_sub(elapsed);
    leaving as f64 * left as f64 / window.bucket_nanos() as f64
}

/// A window as it will be some buckets from now.
struct Future<'h, 'a> {
    held: &'h mut Held<'a>,
    window: Window,
    counting: Counting,
    /// When the newest bucket starts.
    start: Timestamp,
    /// How many buckets after it we are.
    ahead: u64,
    /// What counts without the leaving bucket.
    full: u64,
    /// The counter of the leaving bucket.
    leaving: usize,
}

impl Future<'_, '_> {
    fn boundary(&self, ahead: u64) -> Timestamp {
        self.start
            .plus_nanos(ahead.saturating_mul(self.window.bucket_nanos()))
    }

    /// One bucket on.
    fn step(&mut self) {
        self.ahead += 1;
        self.leaving = self.held.shape.after(self.leaving, 1);
        self.full = self.full.saturating_sub(self.leaving());
    }

    /// On to the bucket of `at`; nothing is left after a whole round.
    fn go_to(&mut self, at: Timestamp) {
        let number = self.window.number(at.max(self.start));
        let ahead = number - self.window.number(self.start);
        while self.ahead < ahead.min(self.held.shape.buckets as u64) {
            self.step();
        }
        self.ahead = ahead;
    }

    fn leaving(&mut self) -> u64 {
        if self.ahead >= self.held.shape.buckets as u64 {
            return 0;
        }
        self.held.counter(self.leaving)
    }

    /// What counts at `at`, in the bucket where we are.
    fn sum(&mut self, at: Timestamp) -> f64 {
        let leaving = self.leaving();
        match self.counting {
            Counting::Strict => self.full.saturating_add(leaving) as f64,
            Counting::Sentinel => self.full as f64,
            Counting::Weighted => {
                let elapsed = at.since(self.boundary(self.ahead)).as_nanos() as u64;
                self.full as f64 + kept_part(leaving, elapsed, self.window)
            }
        }
    }

    /// How long after `asked` what counts first satisfies `fits`, which it does in the end.
    fn time_until(mut self, asked: Timestamp, fits: impl Fn(f64) -> bool) -> Duration {
        let now = asked.max(self.start);
        self.go_to(now);
        if fits(self.sum(now)) {
            return Duration::ZERO;
        }
        for _ in 0..self.held.shape.buckets {
            let within = (self.full, self.leaving());
            let full_at = self.boundary(self.ahead);
            self.step();
            let at = self.boundary(self.ahead);
            if !fits(self.sum(at)) {
                continue;
            }
            if self.counting != Counting::Weighted {
                return at.since(asked);
            }
            let sum = |millis| {
                let elapsed = Timestamp::from_millis(millis).since(full_at).as_nanos() as u64;
                within.0 as f64 + kept_part(within.1, elapsed, self.window)
            };
            let (mut full, mut first) = (full_at.max(now).as_millis(), at.as_millis());
            while first.saturating_sub(full) > 1 {
                let middle = full.midpoint(first);
                if fits(sum(middle)) {
                    first = middle
                } else {
                    full = middle
                }
            }
            return Timestamp::from_millis(first).since(asked);
        }
        self.boundary(self.ahead).since(asked)
    }
}

/// The windows themselves, and where they are.
struct Table {
    shape: Shape,
    max_keys: usize,
    /// How many keys this table has room for: four fifths of its slots.
    keys: usize,
    /// How many slots are taken.
    taken: usize,
    /// One per slot: 0 where it is empty.
    tags: Vec<u8>,
    /// The windows: `shape.stride` words per slot.
    words: Vec<u64>,
    /// The shared windows; none until the table has its size.
    overflow: Vec<u64>,
    slab: Slab,
    /// The slot where the search for free windows goes on.
    hand: usize,
    /// The bucket of the latest call, when it starts and how long it is.
    known: Bucket,
    known_start: u64,
    known_length: u64,
    overflowed: u64,
    reclaimed: u64,
}

impl Table {
    fn new(shape: Shape, max_keys: usize) -> Table {
        let mut table = Table {
            shape,
            max_keys,
            keys: 0,
            taken: 0,
            tags: Vec::new(),
            words: Vec::new(),
            overflow: Vec::new(),
            slab: Slab::default(),
            hand: 0,
            known: Bucket::default(),
            known_start: 0,
            // Calls in flight know no time: to them it is one long bucket.
            known_length: shape.window.map_or(u64::MAX, |(w, _)| w.bucket_nanos()),
            overflowed: 0,
            reclaimed: 0,
        };
        table.resize(FIRST_KEYS.min(max_keys));
        table
    }

    /// Empties the table and gives it room for `keys`.
    fn resize(&mut self, keys: usize) {
        let slots = keys + keys.div_ceil(4);
        self.tags = vec![0; slots];
        self.words = vec![0; slots * self.shape.stride];
        (self.keys, self.taken, self.hand) = (keys, 0, 0);
        if keys == self.max_keys && self.overflow.is_empty() {
            self.overflow = vec![0; OVERFLOW_WINDOWS * self.shape.stride];
        }
    }

    /// The bucket of `now`.
    #[inline]
    fn bucket(&mut self, now: Timestamp) -> Bucket {
        if now.as_nanos().wrapping_sub(self.known_start) >= self.known_length {
            self.learn(now);
        }
        self.known
    }

    #[inline(never)]
    fn learn(&mut self, now: Timestamp) {
        let Some((window, _)) = self.shape.window else {
            return;
        };
        let number = window.number(now);
        let counter = (number % self.shape.buckets.max(1) as u64) as usize;
        self.known = Bucket { number, counter };
        self.known_start = window.start(now).as_nanos();
    }

    #[inline]
    fn after(&self, slot: usize) -> usize {
        if slot + 1 >= self.tags.len() {
            0
        } else {
            slot + 1
        }
    }

    #[inline]
    fn hash_at(&self, slot: usize) -> Option<u64> {
        self.words.get(slot * self.shape.stride).copied()
    }

    /// The slot of `key`.
    #[inline]
    fn find(&self, key: Key) -> Option<usize> {
        let (tag, mut slot) = (key.tag(), key.home(self.tags.len()));
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

    #[inline]
    fn slot(&mut self, slot: usize) -> Option<Held<'_>> {
        let first = slot * self.shape.stride;
        let words = self.words.get_mut(first..first + self.shape.stride)?;
        Held::of(words, &mut self.slab, self.shape)
    }

    fn shared(&mut self, index: usize) -> Option<Held<'_>> {
        let first = index * self.shape.stride;
        let words = self.overflow.get_mut(first..first + self.shape.stride)?;
        Held::of(words, &mut self.slab, self.shape)
    }

    /// The window at `place`; `None` where it is gone.
    #[inline]
    fn held(&mut self, place: Place) -> Option<Held<'_>> {
        if place.is_shared {
            return self.shared(place.at as usize);
        }
        let slot = place.at as usize;
        if self.tags.get(slot) == Some(&place.key.tag()) && self.hash_at(slot) == Some(place.key.0)
        {
            return self.slot(slot);
        }
        let slot = self.find(place.key)?;
        self.slot(slot)
    }

    /// Whether there is a window in `slot` in which nothing counts any more.
    fn is_free(&mut self, slot: usize, now: Timestamp, to: Bucket) -> bool {
        if self.tags.get(slot).is_none_or(|tag| *tag == 0) {
            return false;
        }
        let is_full = self.taken == self.max_keys;
        let Some(mut held) = self.slot(slot) else {
            return false;
        };
        if is_full && held.number() > to.number {
            // Else the windows of a clock that has stepped far back would fill the table until it has caught up.
            held.advance(now, to);
        }
        held.is_free(to)
    }

    /// Opens a window for `key`, which has none.
    #[cold]
    #[inline(never)]
    fn open(&mut self, key: Key, now: Timestamp) -> Place {
        let to = self.bucket(now);
        let slot = match self.free_slot_for(key, now, to) {
            Some(slot) => Some(slot),
            None => {
                self.sweep(now, to);
                if self.taken >= self.keys && self.keys < self.max_keys {
                    self.grow(to);
                }
                (self.taken < self.keys).then(|| {
                    self.taken += 1;
                    self.empty_slot_for(key)
                })
            }
        };
        let Some(slot) = slot else {
            self.overflowed = self.overflowed.wrapping_add(1);
            let at = key.overflow();
            if let Some(mut held) = self.shared(at) {
                held.advance(now, to);
            }
            return Place {
                key,
                at: at as u32,
                is_shared: true,
            };
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
        self.inherit(slot, key, now, to);
        Place::own(key, slot)
    }

    /// A window free to be taken, emptied, in a slot where `key` would be searched for.
    fn free_slot_for(&mut self, key: Key, now: Timestamp, to: Bucket) -> Option<usize> {
        let mut slot = key.home(self.tags.len());
        for _ in 0..LOOK {
            if self.tags.get(slot).is_none_or(|tag| *tag == 0) {
                return None;
            }
            if self.is_free(slot, now, to) {
                self.slot(slot)?.clear();
                self.reclaimed = self.reclaimed.wrapping_add(1);
                return Some(slot);
            }
            slot = self.after(slot);
        }
        None
    }

    fn empty_slot_for(&self, key: Key) -> usize {
        let mut slot = key.home(self.tags.len());
        while self.tags.get(slot).is_some_and(|tag| *tag != 0) {
            slot = self.after(slot);
        }
        slot
    }

    /// Moves the hand on and frees what it finds.
    fn sweep(&mut self, now: Timestamp, to: Bucket) {
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

    /// Empties a slot, and moves those that were searched for across it.
    fn remove(&mut self, slot: usize) {
        if let Some(mut held) = self.slot(slot) {
            held.clear();
        }
        self.taken -= 1;
        self.reclaimed = self.reclaimed.wrapping_add(1);
        let (slots, stride) = (self.tags.len(), self.shape.stride);
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

    /// Doubles the table, as far as it may. What is free to be taken does not come along.
    fn grow(&mut self, to: Bucket) {
        let tags = std::mem::take(&mut self.tags);
        let mut words = std::mem::take(&mut self.words);
        self.resize((self.keys * 2).min(self.max_keys));
        let stride = self.shape.stride;
        for (_, old) in tags
            .iter()
            .zip(words.chunks_exact_mut(stride))
            .filter(|(tag, _)| **tag != 0)
        {
            let Some(mut held) = Held::of(old, &mut self.slab, self.shape) else {
                continue;
            };
            if held.is_free(to) {
                held.clear();
                self.reclaimed = self.reclaimed.wrapping_add(1);
                continue;
            }
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

    /// What the overflow window of `key` holds may have been its doing: its own window goes on from there.
    fn inherit(&mut self, slot: usize, key: Key, now: Timestamp, to: Bucket) {
        let Some(mut shared) = self.shared(key.overflow()) else {
            return;
        };
        shared.advance(now, to);
        if *shared.used == 0 {
            return;
        }
        if shared.shape.window.is_none() {
            if let Some(held) = self.slot(slot) {
                *held.newest |= SHARES;
            }
            return;
        }
        let number = shared.number();
        for counter in 0..self.shape.buckets {
            let count = self
                .shared(key.overflow())
                .map_or(0, |mut shared| shared.counter(counter));
            if let Some(mut held) = self.slot(slot)
                && count > 0
            {
                held.set_number(number);
                held.set_counter(counter, count);
                *held.used = held.used.saturating_add(count);
            }
        }
    }

    /// Calls in flight that may be this key's, beside those of its own window.
    #[inline]
    fn in_flight_elsewhere(&mut self, place: Place) -> u64 {
        if self.shape.window.is_some() || place.is_shared {
            return 0;
        }
        if !self.held(place).is_some_and(|held| held.has(SHARES)) {
            return 0;
        }
        let elsewhere = self
            .shared(place.key.overflow())
            .map_or(0, |held| *held.used);
        if elsewhere == 0
            && let Some(held) = self.held(place)
        {
            *held.newest &= !SHARES;
        }
        elsewhere
    }

    /// Whether `cost` more is within `limit`; takes it if `takes`.
    #[inline]
    fn fits(&mut self, place: Place, limit: Count, cost: u64, now: Timestamp, takes: bool) -> bool {
        let to = self.bucket(now);
        let elsewhere = self.in_flight_elsewhere(place);
        let Some(mut held) = self.held(place) else {
            return false;
        };
        held.advance(now, to);
        let fits = held.fits(limit, cost.saturating_add(elsewhere), now, to);
        if fits && takes {
            *held.used += cost;
        }
        fits
    }
}

/// The windows, or the calls in flight, of the keys of one rule.
///
/// The count is no part of it and an argument of each call, so that it can change, and be another one for some keys. A decision
/// has the steps of a [`crate::Controller`]: the key's window is found or opened ([`KeyedWindows::place`]); if it
/// [has room](KeyedWindows::has_room), [`KeyedWindows::reserve`]; if every rule could, [`KeyedWindows::commit`]. A rule that is
/// alone does it in one step, which costs a third less ([`KeyedWindows::admit`]).
///
/// Sentinel: `ParameterMetric`, which forgets the least recently used value when it is full, and so its limit.
///
/// ```
/// use leapgate::{Count, Counting, Grade, KeyedWindows, RuleGeometry, Timestamp};
///
/// let grade = Grade::Qps { window: RuleGeometry::new(1000, Some(20))?, counting: Counting::Strict };
/// let clients = KeyedWindows::new(grade, 100_000, [17, 4]); // random numbers, of the host
/// let (limit, now) = (Count::new(1.0)?, Timestamp::from_millis(5));
/// let admit = |client: &str| {
///     let place = clients.place(clients.key([Some(client.as_bytes())]), now);
///     let admits = clients.has_room(place, limit, 1, now) && clients.reserve(place, limit, 1, now);
///     admits.then(|| clients.commit(place, 1)).is_some()
/// };
/// assert_eq!(["10.0.0.1", "10.0.0.1", "10.0.0.2"].map(admit), [true, false, true]);
/// # Ok::<(), leapgate::RuleError>(())
/// ```
#[doc(alias = "ParameterMetric")]
#[doc(alias = "CacheMap")]
pub struct KeyedWindows {
    seed: [u64; 2],
    shape: Shape,
    table: RefCell<Table>,
}

impl KeyedWindows {
    /// No keys yet, and room for `max_keys` of them: at least one, at most [`MAX_KEYS`].
    ///
    /// Who knows `seed` can make keys that share a window or crowd the table: take random numbers, and tell nobody.
    pub fn new(grade: Grade, max_keys: usize, seed: [u64; 2]) -> KeyedWindows {
        let shape = Shape::new(grade);
        KeyedWindows {
            seed,
            shape,
            table: RefCell::new(Table::new(shape, max_keys.clamp(1, MAX_KEYS))),
        }
    }

    /// The key made of those parts, in order. A part that is missing (`None`) is a value of its own, other than an empty one.
    ///
    /// The hash is SipHash-1-3: whoever finds two parts of one hash can spend another one's quota, and this is the one of the
    /// fast hashes that was made to withstand those who look for them, as long as the seed is secret. Each part goes into it
    /// with its length before it; a key of one part, the common case, has a seed of its own instead.
    #[inline]
    pub fn key<'a>(&self, parts: impl IntoIterator<Item = Option<&'a [u8]>>) -> Key {
        let [k0, k1] = self.seed;
        let mut parts = parts.into_iter();
        let (first, second) = (parts.next(), parts.next());
        if let (Some(Some(only)), None) = (first, second) {
            return Key(SipHasher13::new_with_keys(k0, !k1).hash(only));
        }
        let mut hasher = SipHasher13::new_with_keys(k0, k1);
        for part in [first, second].into_iter().flatten().chain(parts) {
            match part {
                None => hasher.write_u64(0),
                Some(bytes) => {
                    hasher.write_u64(bytes.len() as u64 + 1);
                    hasher.write(bytes);
                }
            }
        }
        Key(hasher.finish())
    }

    /// The whole decision of a rule that is alone: takes `cost` if that is within `limit`, and charges it. Says whether it has,
    /// and where. As [`KeyedWindows::place`], [`KeyedWindows::reserve`] and [`KeyedWindows::commit`], in one search.
    #[inline]
    pub fn admit(&self, key: Key, limit: Count, cost: u64, now: Timestamp) -> (Place, bool) {
        let table = &mut *self.table.borrow_mut();
        let place = match table.find(key) {
            Some(slot) => Place::own(key, slot),
            None => table.open(key, now),
        };
        let (to, elsewhere) = (table.bucket(now), table.in_flight_elsewhere(place));
        let held = if place.is_shared {
            table.shared(place.at as usize)
        } else {
            table.slot(place.at as usize)
        };
        let Some(mut held) = held else {
            return (place, false);
        };
        held.advance(now, to);
        let fits = held.fits(limit, cost.saturating_add(elsewhere), now, to);
        if fits {
            *held.used += cost;
            held.commit(cost, to);
        }
        (place, fits)
    }

    /// Where the window of `key` is: it is opened if need be, and brought up to `now`.
    #[inline]
    pub fn place(&self, key: Key, now: Timestamp) -> Place {
        let table = &mut *self.table.borrow_mut();
        let Some(slot) = table.find(key) else {
            return table.open(key, now);
        };
        let to = table.bucket(now);
        if let Some(mut held) = table.slot(slot) {
            held.advance(now, to);
        }
        Place::own(key, slot)
    }

    /// Where the window of `key` is, if it has one of its own. Changes nothing.
    pub fn find(&self, key: Key) -> Option<Place> {
        let slot = self.table.borrow().find(key)?;
        Some(Place::own(key, slot))
    }

    /// Whether `cost` more would be within `limit`. Takes nothing.
    #[inline]
    pub fn has_room(&self, place: Place, limit: Count, cost: u64, now: Timestamp) -> bool {
        let table = &mut *self.table.borrow_mut();
        table.fits(place, limit, cost, now, false)
    }

    /// Takes room for `cost` if that is within `limit`, else none.
    #[inline]
    pub fn reserve(&self, place: Place, limit: Count, cost: u64, now: Timestamp) -> bool {
        let table = &mut *self.table.borrow_mut();
        table.fits(place, limit, cost, now, true)
    }

    /// Gives back what was reserved, because another rule refused.
    pub fn give_back(&self, place: Place, cost: u64) {
        if let Some(held) = self.table.borrow_mut().held(place) {
            *held.used = held.used.saturating_sub(cost);
        }
    }

    /// Charges what was reserved. Whether the call is in flight from now on ([`KeyedWindows::leave`]).
    #[inline]
    pub fn commit(&self, place: Place, cost: u64) -> bool {
        let table = &mut *self.table.borrow_mut();
        let known = table.known;
        let Some(mut held) = table.held(place) else {
            return false;
        };
        held.commit(cost, known);
        self.shape.window.is_none()
    }

    /// Records that a call in flight has ended.
    pub fn leave(&self, place: Place) {
        if self.shape.window.is_none() {
            self.give_back(place, 1);
        }
    }

    /// How much counts at `now`, what is reserved included. Changes nothing.
    pub fn sum(&self, place: Place, now: Timestamp) -> f64 {
        let table = &mut *self.table.borrow_mut();
        let (known, elsewhere) = (table.known, table.in_flight_elsewhere(place));
        let Some(mut held) = table.held(place) else {
            return 0.0;
        };
        let in_flight = held.used.saturating_add(elsewhere);
        held.future(known).map_or(in_flight as f64, |mut future| {
            future.go_to(now);
            future.sum(now)
        })
    }

    /// How much is left under `limit`: whole passes, rounded down.
    pub fn remaining(&self, place: Place, limit: Count, now: Timestamp) -> u64 {
        (limit.get() - self.sum(place, now)) as u64
    }

    /// How long after `now` a `cost` would fit into `limit` if nothing else came: the first instant at which it does. `None`
    /// where it never can. A call in flight may end at any moment: for those it is a millisecond.
    pub fn time_to_room(
        &self,
        place: Place,
        limit: Count,
        cost: u64,
        now: Timestamp,
    ) -> Option<Duration> {
        if cost as f64 > limit.get() {
            return None;
        }
        let fits = |sum| sum + cost as f64 <= limit.get();
        Some(
            self.time_until(place, now, fits)
                .unwrap_or(Duration::from_millis(1)),
        )
    }

    /// How long after `now` quota next comes back if nothing else came: zero where none is used or, of calls in flight,
    /// unknown.
    pub fn time_to_more(&self, place: Place, now: Timestamp) -> Duration {
        let used = self.sum(place, now);
        self.time_until(place, now, |sum| sum < used || used == 0.0)
            .unwrap_or(Duration::ZERO)
    }

    /// `None` for calls in flight.
    fn time_until(
        &self,
        place: Place,
        now: Timestamp,
        fits: impl Fn(f64) -> bool,
    ) -> Option<Duration> {
        self.shape.window?;
        let table = &mut *self.table.borrow_mut();
        let known = table.known;
        let until = |mut held: Held<'_>| Some(held.future(known)?.time_until(now, fits));
        Some(table.held(place).and_then(until).unwrap_or(Duration::ZERO))
    }

    /// How many keys have a window, those included that have expired and are not taken yet.
    pub fn len(&self) -> usize {
        self.table.borrow().taken
    }

    /// Whether no key has a window.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many keys can have a window of their own.
    pub fn max_keys(&self) -> usize {
        self.table.borrow().max_keys
    }

    /// How many times a key has been given a shared window, because the table was full.
    pub fn overflowed(&self) -> u64 {
        self.table.borrow().overflowed
    }

    /// How many windows have been taken from keys in which nothing counted any more.
    pub fn reclaimed(&self) -> u64 {
        self.table.borrow().reclaimed
    }

    /// How many windows have wide counters.
    pub fn wide(&self) -> usize {
        self.table.borrow().slab.taken(self.shape.buckets)
    }

    /// How many bytes are allocated.
    pub fn bytes(&self) -> usize {
        let table = self.table.borrow();
        let words =
            table.words.capacity() + table.overflow.capacity() + table.slab.words.capacity();
        table.tags.capacity() + words * size_of::<u64>() + table.slab.free.capacity() * 4
    }
}

impl fmt::Debug for KeyedWindows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table = self.table.borrow();
        f.debug_struct("KeyedWindows")
            .field("keys", &table.taken)
            .field("max_keys", &table.max_keys)
            .field("overflowed", &table.overflowed)
            .finish_non_exhaustive()
    }
}
