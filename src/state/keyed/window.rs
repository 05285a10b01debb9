//! One window of a table: its words, and what they mean.

use crate::rule::{Count, Counting, Grade};
use crate::time::Timestamp;
use crate::window::Window;

/// Words of a window before its counters: the hash, the newest bucket with the flags, and the sum.
const HEADER: usize = 3;

/// The largest count that fits a narrow counter.
pub(super) const NARROW: u64 = u8::MAX as u64;

/// A flag beside the number of the newest bucket: the counters are in the slab.
pub(super) const WIDE: u64 = 1;

/// A flag beside it: shared entries may count calls in flight of this key.
pub(super) const SHARES: u64 = 2;

/// The same flag of a window: something is or was held for its key, in the window itself or in shared entries.
pub(super) const HOLDS: u64 = SHARES;

/// The flags of windows beside whose counters something may be held: in a page, the key has room for it then ([`LISTED`]).
pub(super) const MAY_HOLD: u64 = HOLDS | LISTED;

/// A flag beside it: the key is listed, that is, its label is kept.
pub(super) const LISTED: u64 = 4;

/// How far the number of a bucket is shifted to make room for the flags. A bucket is at least a millisecond long, so that its
/// number has at most 45 bits.
pub(super) const FLAGS: u32 = 3;

/// Words of a pacer: the hash, and how far its turns reach.
const PACER: usize = 2;

/// The shape of all states of one table.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    /// `None` for a limit on concurrency.
    pub(super) window: Option<(Window, Counting)>,
    /// Whether requests take turns, and nothing is counted.
    pub(super) is_paced: bool,
    /// Buckets with a counter: the buckets of the window and the one that is leaving.
    pub(super) buckets: usize,
    /// Words per window.
    pub(super) stride: usize,
}

impl Shape {
    pub(super) fn new(grade: Grade, is_paced: bool) -> Shape {
        let window = match grade {
            Grade::Qps { window, counting } => Some((window.window(), counting)),
            Grade::Concurrency => None,
        };
        let is_paced = is_paced && window.is_some();
        let counted = window.filter(|_| !is_paced);
        let buckets = counted.map_or(0, |(window, _)| window.sample_count() as usize + 1);
        Shape {
            window,
            is_paced,
            buckets,
            stride: if is_paced {
                PACER
            } else {
                HEADER + buckets.div_ceil(8)
            },
        }
    }

    pub(super) fn count_as(&mut self, to: Counting) {
        if let Some((_, counting)) = &mut self.window {
            *counting = to;
        }
    }

    /// The shape of such windows.
    pub(super) fn of(window: Window, counting: Counting) -> Shape {
        let buckets = window.sample_count() as usize + 1;
        Shape {
            window: Some((window, counting)),
            is_paced: false,
            buckets,
            stride: HEADER + buckets.div_ceil(8),
        }
    }

    /// The counter `steps`, at most one round, after that of `counter`.
    #[inline]
    pub(super) fn after(&self, counter: usize, steps: usize) -> usize {
        let after = counter + steps;
        if after >= self.buckets {
            after - self.buckets
        } else {
            after
        }
    }

    /// How many steps it is from the counter `from` to the counter `to`.
    #[inline]
    pub(super) fn steps(&self, from: usize, to: usize) -> usize {
        if to >= from {
            to - from
        } else {
            to + self.buckets - from
        }
    }

    /// The counter `steps`, at most one round, before that of `counter`.
    #[inline]
    pub(super) fn before(&self, counter: usize, steps: usize) -> usize {
        self.after(counter, self.buckets - steps)
    }
}

/// The bucket of an instant.
#[derive(Clone, Copy, Default)]
pub(super) struct BucketPos {
    pub(super) number: u64,
    /// Its counter.
    pub(super) counter: usize,
}

/// Counters that have outgrown a byte, in blocks of one word per bucket.
pub(super) struct Slab {
    words: Vec<u64>,
    free: Vec<u32>,
    /// How many blocks there are at most.
    most: usize,
}

impl Slab {
    pub(super) fn new(most: usize) -> Slab {
        Slab {
            words: Vec::new(),
            free: Vec::new(),
            most,
        }
    }

    /// Gives all blocks back.
    pub(super) fn clear(&mut self) {
        self.words.clear();
        self.free.clear();
    }

    fn take(&mut self, buckets: usize) -> u64 {
        if let Some(block) = self.free.pop() {
            return block.into();
        }
        let block = self.words.len() / buckets.max(1);
        if self.words.len() == self.words.capacity() {
            let more = block.clamp(4, self.most.saturating_sub(block).max(4));
            self.words.reserve_exact(more * buckets);
            // So that giving a block back allocates nothing.
            self.free.reserve_exact(block + more);
        }
        self.words.resize(self.words.len() + buckets, 0);
        block as u64
    }

    fn release(&mut self, block: u64) {
        self.free.extend(u32::try_from(block));
    }

    fn block(&mut self, block: u64, buckets: usize) -> &mut [u64] {
        let first = block as usize * buckets;
        self.words
            .get_mut(first..first + buckets)
            .unwrap_or_default()
    }

    pub(super) fn taken(&self, buckets: usize) -> usize {
        self.words.len() / buckets.max(1) - self.free.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.words.capacity() * size_of::<u64>() + self.free.capacity() * size_of::<u32>()
    }
}

/// One window of the table, as references to its parts.
pub(super) struct StateMut<'a> {
    pub(super) shape: &'a Shape,
    /// The number of the newest bucket, and the flags.
    pub(super) newest: &'a mut u64,
    /// The sum of all buckets, with reservations and what is held; or the calls in flight.
    pub(super) used: &'a mut u64,
    /// A byte each, or, if they are wide, their block of the slab in the first word.
    pub(super) counters: &'a mut [u64],
    slab: &'a mut Slab,
}

impl<'a> StateMut<'a> {
    #[cfg_attr(not(feature = "small"), inline(always))]
    pub(super) fn of(
        words: &'a mut [u64],
        slab: &'a mut Slab,
        shape: &'a Shape,
    ) -> Option<StateMut<'a>> {
        match words {
            [_, newest, used, counters @ ..] => Some(StateMut {
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
    pub(super) fn number(&self) -> u64 {
        *self.newest >> FLAGS
    }

    #[inline]
    pub(super) fn has(&self, flag: u64) -> bool {
        *self.newest & flag != 0
    }

    #[inline]
    pub(super) fn set(&mut self, flag: u64) {
        *self.newest |= flag;
    }

    #[inline]
    pub(super) fn unset(&mut self, flag: u64) {
        *self.newest &= !flag;
    }

    #[inline]
    pub(super) fn set_number(&mut self, number: u64) {
        *self.newest = number << FLAGS | *self.newest & (WIDE | SHARES | LISTED);
    }

    fn block(&mut self) -> &mut [u64] {
        let block = self.counters.first().copied().unwrap_or(0);
        self.slab.block(block, self.shape.buckets)
    }

    #[inline]
    pub(super) fn counter(&mut self, counter: usize) -> u64 {
        if self.has(WIDE) {
            return self.block().get(counter).copied().unwrap_or(0);
        }
        let word = self.counters.get(counter / 8).copied().unwrap_or(0);
        word >> (counter % 8 * 8) & NARROW
    }

    #[inline]
    pub(super) fn set_counter(&mut self, counter: usize, to: u64) {
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
        self.set(WIDE);
    }

    /// The counters as stored: in bytes, or a word each if they are wide.
    pub(super) fn counters(&mut self) -> &[u64] {
        if self.has(WIDE) {
            self.block()
        } else {
            self.counters
        }
    }

    /// Restores an empty window from such counters and the word of the newest bucket.
    pub(super) fn restore(&mut self, newest: u64, counters: impl Iterator<Item = u64>) {
        *self.newest = newest & !WIDE;
        if newest & WIDE == 0 {
            let words = self.counters.iter_mut().zip(counters);
            words.for_each(|(word, kept)| *word = kept);
        } else {
            for (counter, count) in counters.enumerate() {
                // At most the largest count: bytes that are not a valid page could add up to too much.
                self.set_counter(counter, count.min(Count::MAX as u64));
            }
        }
        *self.used = self.counted();
    }

    /// Takes a charged cost off a counter again.
    pub(super) fn take_off(&mut self, counter: usize, cost: u64) {
        let counted = self.counter(counter);
        let cost = cost.min(counted);
        self.set_counter(counter, counted - cost);
        *self.used = self.used.saturating_sub(cost);
    }

    /// The sum of all counters.
    pub(super) fn counted(&mut self) -> u64 {
        if self.has(WIDE) {
            return self.block().iter().sum();
        }
        self.counters.iter().map(|word| sum_of_bytes(*word)).sum()
    }

    /// Empties all counters, which are narrow again. Reservations and what is held stay.
    pub(super) fn clear(&mut self) {
        *self.used = self.used.saturating_sub(self.counted());
        if self.has(WIDE) {
            self.slab
                .release(self.counters.first().copied().unwrap_or(0));
            self.unset(WIDE);
        }
        self.counters.fill(0);
    }

    /// The counter of the newest bucket.
    #[inline]
    pub(super) fn newest_counter(&self, known: BucketPos) -> usize {
        let number = self.number();
        if number == known.number {
            known.counter
        } else {
            (number % self.shape.buckets.max(1) as u64) as usize
        }
    }

    /// Brings the window up to `now`, which lies in the bucket `to`.
    #[cfg_attr(not(feature = "small"), inline(always))]
    pub(super) fn advance(&mut self, now: Timestamp, to: BucketPos) {
        if self.number() != to.number {
            self.move_to(now, to);
        }
    }

    #[inline(never)]
    fn move_to(&mut self, now: Timestamp, to: BucketPos) {
        let Some((window, _)) = self.shape.window else {
            return;
        };
        let number = self.number();
        if let Some(steps) = to.number.checked_sub(number) {
            if steps >= self.shape.buckets as u64 {
                self.clear();
            } else {
                let (steps, end) = (steps as usize, to.counter + 1);
                let first = end.saturating_sub(steps);
                self.empty(first, end);
                if end < steps {
                    let buckets = self.shape.buckets;
                    self.empty(buckets - (steps - end), buckets);
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

    /// Empties the counters from `first` to before `end`.
    #[inline]
    fn empty(&mut self, first: usize, end: usize) {
        let (mut left, mut at) = (0, first);
        if self.has(WIDE) {
            let counters = self.block().get_mut(first..end);
            left = counters.into_iter().flatten().map(std::mem::take).sum();
            at = end;
        }
        while at < end {
            // The bytes of one word.
            let bytes = (8 - at % 8).min(end - at);
            let mask = u64::MAX >> (64 - 8 * bytes) << (at % 8 * 8);
            if let Some(word) = self.counters.get_mut(at / 8) {
                left += sum_of_bytes(*word & mask);
                *word &= !mask;
            }
            at += bytes;
        }
        *self.used = self.used.saturating_sub(left);
    }

    /// Releases a reservation; the counters stay.
    pub(super) fn release(&mut self, cost: u64) {
        let counted = self.counted();
        *self.used = self.used.saturating_sub(cost).max(counted);
    }

    /// An upper bound of the sum in the bucket `to`.
    pub(super) fn used_by(&self, to: BucketPos) -> u64 {
        let age = to.number.saturating_sub(self.number());
        if self.shape.window.is_some() && age >= self.shape.buckets as u64 && !self.has(HOLDS) {
            return 0;
        }
        *self.used
    }

    /// Whether nothing counts here any more in the bucket `to`.
    #[inline]
    pub(super) fn is_free(&mut self, to: BucketPos) -> bool {
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

    /// Whether `cost` more fits. The window has been advanced to `now`.
    #[cfg_attr(not(feature = "small"), inline(always))]
    pub(super) fn fits(
        &mut self,
        limit: Count,
        cost: u64,
        now: Timestamp,
        known: BucketPos,
    ) -> bool {
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

    /// Gives back what is `held`, and charges the `actual` cost to the newest bucket, which counts at most the largest count: no
    /// limit exceeds it. Returns whether anything is held still.
    pub(super) fn settle(&mut self, held: u64, actual: u64, known: BucketPos) -> bool {
        let counted = self.counted();
        let beside = self.used.saturating_sub(counted).saturating_sub(held);
        let counter = self.newest_counter(known);
        let before = self.counter(counter);
        let actual = actual.min((Count::MAX as u64).saturating_sub(before));
        self.set_counter(counter, before.saturating_add(actual));
        *self.used = counted.saturating_add(actual).saturating_add(beside);
        beside > 0
    }

    /// Charges a reservation.
    #[cfg_attr(not(feature = "small"), inline(always))]
    pub(super) fn admit(&mut self, cost: u64, known: BucketPos) {
        if self.shape.window.is_none() {
            return; // a call in flight is in no bucket
        }
        let counter = self.newest_counter(known);
        let count = self.counter(counter).saturating_add(cost);
        self.set_counter(counter, count);
    }

    /// The count of the leaving bucket.
    #[inline]
    fn leaving(&mut self, known: BucketPos) -> u64 {
        let leaving = self.shape.after(self.newest_counter(known), 1);
        self.counter(leaving)
    }

    /// The window from the newest bucket on, if no other request comes.
    pub(super) fn future(&mut self, known: BucketPos) -> Option<Future<'_, 'a>> {
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

/// The sum of the bytes of a word.
#[inline]
fn sum_of_bytes(word: u64) -> u64 {
    const LOW: u64 = 0x00ff_00ff_00ff_00ff;
    const ADD: u64 = 0x0001_0001_0001_0001;
    ((word & LOW) + (word >> 8 & LOW)).wrapping_mul(ADD) >> 48
}

/// How much of the leaving bucket's passes still counts when `elapsed` nanoseconds of the newest bucket have passed.
#[inline]
pub(super) fn kept_part(leaving: u64, elapsed: u64, window: Window) -> f64 {
    let left = window.bucket_nanos().saturating_sub(elapsed);
    leaving as f64 * left as f64 / window.bucket_nanos() as f64
}

/// A window as it will be some buckets from now.
pub(super) struct Future<'h, 'a> {
    held: &'h mut StateMut<'a>,
    window: Window,
    counting: Counting,
    /// When the newest bucket starts.
    start: Timestamp,
    /// How many buckets after the newest one this is.
    ahead: u64,
    /// The sum without the leaving bucket.
    full: u64,
    /// The counter of the leaving bucket.
    leaving: usize,
}

impl Future<'_, '_> {
    fn boundary(&self, ahead: u64) -> Timestamp {
        self.start
            .plus_nanos(ahead.saturating_mul(self.window.bucket_nanos()))
    }

    /// Moves on by one bucket.
    fn step(&mut self) {
        self.ahead += 1;
        self.leaving = self.held.shape.after(self.leaving, 1);
        self.full = self.full.saturating_sub(self.leaving());
    }

    /// Moves on to the bucket of `at`; after a whole round nothing is left.
    pub(super) fn go_to(&mut self, at: Timestamp) {
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

    /// The sum at `at`, in the present bucket.
    pub(super) fn sum(&mut self, at: Timestamp) -> f64 {
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
}
