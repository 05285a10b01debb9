//! What keys share that find the table full: a count-min sketch.
//!
//! A key has a cell in each of two rows, which ones being a matter of two halves of its hash. What it does is noted in both, and
//! so is what the others do that have one of these cells. So each cell tells at least what the key has done, and the lesser of
//! the two is an upper bound that is close as long as one of them is not crowded. What is noted stays: nothing can be taken
//! off a cell that others may have raised.
//!
//! ```text
//!   a cell    windows           8 bytes: when it was written last, and a byte for each of at most five coarse buckets
//!             calls in flight   4 bytes: how many
//!             turns             8 bytes: how far they reach
//! ```
//!
//! Windows are counted strictly, in buckets of a quarter of the interval or a little more: the current one and those of a whole
//! interval before it. A charge raises each cell's current bucket to the least of both and the cost, and no further
//! (conservative update): for each bucket the lesser count remains an upper bound for each key by itself. Counts that outgrow
//! their byte widen as those of the table do. Calls in flight are added to both cells and taken off both, so that the lesser is
//! an upper bound, too, and 0 when all have ended. Turns raise both cells to how far they reach.
//!
//! What is reserved stands beside the cells until it is committed or given back.

use super::window::{NARROW, Shape, Slab};
use super::{Key, Standing};
use crate::rule::{Count, MAX_KEYS_OF_REQUEST};
use crate::time::Timestamp;
use std::time::Duration;

const ROWS: usize = 2;

/// The least cells of a row: a small table takes in a flood that is many times its size.
const LEAST_CELLS: usize = 256;

/// Into how many coarse buckets an interval is cut at most.
const COARSE: u64 = 4;

/// Those that count: the current one, too.
const COUNTERS: usize = COARSE as usize + 1;

/// What is reserved and neither committed nor given back, at most: what one request can.
const MAX_PENDING: usize = MAX_KEYS_OF_REQUEST;

/// In the word of a cell: its counters are in the slab, in the block whose number is in the low half.
const WIDE: u64 = 1 << 63;

/// Where in it the number of the coarse bucket stands in which it was written last, as far as there is room.
const STAMP: u32 = 40;
const STAMPS: u64 = (1 << 23) - 1;

/// A clock that steps back without end does not make numbers overflow.
const MAX_AHEAD: u64 = 1 << 62;

pub(super) struct Sketch {
    shape: Shape,
    /// Buckets of an interval, and how many of them make a coarse one.
    samples: u64,
    coarse: u64,
    /// How many coarse ones count.
    counters: usize,
    /// None until something is noted.
    words: Vec<u64>,
    /// How many cells a row has.
    cells: usize,
    slab: Slab,
    /// The latest bucket. It does not step back with the clock: where that has stepped back by an interval or more, the
    /// sketch goes on from here, and is so many buckets `ahead` of the clock from then on.
    newest: u64,
    ahead: u64,
    /// What is reserved: a cost, or how far a turn reaches.
    pending: Vec<(Key, u64)>,
    charged: u64,
}

/// At most what counts of one key.
struct Estimate {
    /// That of the coarse bucket of number `n` stands at `n` modulo their number.
    counts: [u64; COUNTERS],
    counters: usize,
    /// The number of the current coarse bucket.
    current: u64,
}

impl Estimate {
    fn sum(&self) -> u64 {
        self.counts.iter().fold(0, |sum, n| sum.saturating_add(*n))
    }

    /// What counts, oldest first, with the numbers of the coarse buckets.
    fn oldest_first(&self) -> impl Iterator<Item = (u64, u64)> {
        let counters = self.counters as u64;
        let oldest = (self.current + 1).saturating_sub(counters);
        (oldest..=self.current).map(move |number| {
            let count = self.counts.get((number % counters) as usize);
            (number, count.copied().unwrap_or(0))
        })
    }
}

/// The cells of a row of a table of that many keys.
fn cells(shape: &Shape, max_keys: usize) -> usize {
    let keys_per_cell = if shape.is_paced { 2 * ROWS } else { ROWS };
    max_keys.div_ceil(keys_per_cell).max(LEAST_CELLS)
}

/// The words of both rows: two calls in flight lie in one.
fn words(shape: &Shape, cells: usize) -> usize {
    match shape.window {
        None => cells,
        Some(_) => ROWS * cells,
    }
}

impl Sketch {
    pub(super) fn new(shape: Shape, max_keys: usize) -> Sketch {
        let samples = shape.buckets.saturating_sub(1).max(1) as u64;
        let coarse = samples.div_ceil(COARSE);
        let cells = cells(&shape, max_keys);
        Sketch {
            shape,
            samples,
            coarse,
            counters: samples.div_ceil(coarse) as usize + 1,
            words: Vec::new(),
            cells,
            slab: Slab::new(ROWS * cells),
            newest: 0,
            ahead: 0,
            pending: Vec::new(),
            charged: 0,
        }
    }

    /// The most bytes that it has while no counter has widened.
    pub(super) fn max_bytes(shape: &Shape, max_keys: usize) -> usize {
        let words = words(shape, cells(shape, max_keys)) * size_of::<u64>();
        words + MAX_PENDING * size_of::<(Key, u64)>()
    }

    /// How many more if all have.
    pub(super) fn max_bytes_more_if_wide(shape: &Shape, max_keys: usize) -> usize {
        let sketch = Sketch::new(*shape, max_keys);
        let block = sketch.counters * size_of::<u64>() + size_of::<u32>();
        let is_counted = shape.buckets > 0;
        if is_counted {
            ROWS * sketch.cells * block
        } else {
            0
        }
    }

    pub(super) fn bytes(&self) -> usize {
        let pending = self.pending.capacity() * size_of::<(Key, u64)>();
        self.words.capacity() * size_of::<u64>() + self.slab.bytes() + pending
    }

    /// How many cells have wide counters.
    pub(super) fn wide(&self) -> usize {
        self.slab.taken(self.counters)
    }

    /// How many times something was charged here.
    pub(super) fn charged(&self) -> u64 {
        self.charged
    }

    /// Whether nothing has been noted yet.
    pub(super) fn is_unused(&self) -> bool {
        self.words.is_empty() && self.pending.is_empty()
    }

    /// The cells of `key`.
    fn cells_of(&self, key: Key) -> [usize; ROWS] {
        let cell = |half: u64| ((half * self.cells as u64) >> 32) as usize;
        [
            cell(key.hash() & u64::from(u32::MAX)),
            self.cells + cell(key.hash() >> 32),
        ]
    }

    fn open(&mut self) {
        if self.words.is_empty() {
            self.words = vec![0; words(&self.shape, self.cells)];
        }
    }

    // === What is reserved ===

    /// Notes what is reserved. Whether there is room for that.
    pub(super) fn reserve(&mut self, key: Key, amount: u64) -> bool {
        let has_room = self.pending.len() < MAX_PENDING;
        if has_room {
            self.pending.push((key, amount));
        }
        has_room
    }

    /// Takes it off the list again. Whether it was there.
    pub(super) fn take_back(&mut self, key: Key, amount: u64) -> bool {
        let mut pending = self.pending.iter();
        let at = pending.position(|reserved| *reserved == (key, amount));
        at.map(|at| self.pending.swap_remove(at)).is_some()
    }

    fn reserved(&self, key: Key) -> impl Iterator<Item = u64> {
        let of_key = self.pending.iter().filter(move |(other, _)| *other == key);
        of_key.map(|(_, amount)| *amount)
    }

    // === Windows ===

    /// Goes on to the bucket `number` of the clock.
    pub(super) fn follow(&mut self, number: u64) {
        let behind = self.newest.saturating_sub(number + self.ahead);
        if behind >= self.samples {
            self.ahead = (self.ahead + behind).min(MAX_AHEAD);
        }
        self.newest = self.newest.max(number + self.ahead);
    }

    fn counts(&mut self, cell: usize, current: u64) -> [u64; COUNTERS] {
        let mut counts = [0; COUNTERS];
        let word = self.words.get(cell).copied().unwrap_or(0);
        // A cell so old that its stamp comes again counts once more: too strict, and no more.
        let age = current.wrapping_sub(word >> STAMP) & STAMPS;
        if age >= self.counters as u64 {
            return counts;
        }
        let counters = self.counters;
        let at = (current % counters as u64) as usize;
        let wide =
            (word & WIDE != 0).then(|| self.slab.block(word & u64::from(u32::MAX), counters));
        for (slot, count) in counts.iter_mut().enumerate().take(counters) {
            let behind = if slot > at {
                at + counters - slot
            } else {
                at - slot
            };
            if behind as u64 >= age {
                *count = match &wide {
                    Some(block) => block.get(slot).copied().unwrap_or(0),
                    None => word >> (8 * slot) & NARROW,
                };
            }
        }
        counts
    }

    fn set_counts(&mut self, cell: usize, current: u64, counts: [u64; COUNTERS]) {
        let Some(place) = self.words.get_mut(cell) else {
            return;
        };
        let block = (*place & WIDE != 0).then_some(*place & u64::from(u32::MAX));
        let word = (current & STAMPS) << STAMP;
        if counts.iter().all(|count| *count <= NARROW) {
            if let Some(block) = block {
                self.slab.give_back(block);
            }
            let bytes = counts
                .iter()
                .rev()
                .fold(0, |bytes, count| bytes << 8 | count);
            *place = word | bytes;
            return;
        }
        let block = block.unwrap_or_else(|| self.slab.take(self.counters));
        *place = word | WIDE | block;
        for (wide, count) in self.slab.block(block, self.counters).iter_mut().zip(counts) {
            *wide = count;
        }
    }

    /// What counts of `key` in the bucket `number`, of the sketch's own numbers.
    fn estimate(&mut self, key: Key, number: u64) -> Estimate {
        let current = number / self.coarse;
        let [one, other] = self.cells_of(key);
        let mut counts = self.counts(one, current);
        let others = self.counts(other, current);
        for (count, other) in counts.iter_mut().zip(others) {
            *count = (*count).min(other);
        }
        let at = (current % self.counters as u64) as usize;
        if let Some(count) = counts.get_mut(at) {
            *count = self.reserved(key).fold(*count, u64::saturating_add);
        }
        Estimate {
            counts,
            counters: self.counters,
            current,
        }
    }

    /// At most what counts of `key`, or its calls in flight, what is reserved included.
    pub(super) fn used(&mut self, key: Key) -> u64 {
        if self.shape.window.is_some() {
            return self.estimate(key, self.newest).sum();
        }
        let [one, other] = self.cells_of(key).map(|cell| self.calls(cell));
        let calls = one.min(other);
        self.reserved(key).fold(calls, u64::saturating_add)
    }

    /// The same of a window in the bucket `number` of the clock, to which it does not go.
    pub(super) fn used_at(&mut self, key: Key, number: u64) -> u64 {
        let number = self.newest.max(number + self.ahead);
        self.estimate(key, number).sum()
    }

    /// Charges `key`. A call in flight is one, whatever it costs.
    pub(super) fn charge(&mut self, key: Key, cost: u64) {
        self.open();
        self.charged = self.charged.wrapping_add(1);
        if self.shape.window.is_none() {
            return self.change_calls(key, |calls| calls.saturating_add(1));
        }
        let current = self.newest / self.coarse;
        let at = (current % self.counters as u64) as usize;
        let cells = self.cells_of(key);
        let mut rows = cells.map(|cell| self.counts(cell, current));
        let least = rows.iter().filter_map(|row| row.get(at)).min();
        let to = least.map_or(cost, |least| least.saturating_add(cost));
        for (row, cell) in rows.iter_mut().zip(cells) {
            if let Some(count) = row.get_mut(at) {
                *count = to.max(*count);
            }
            self.set_counts(cell, current, *row);
        }
    }

    /// The latest bucket of the sketch, as the clock numbers them.
    pub(super) fn number(&self) -> u64 {
        self.newest - self.ahead
    }

    /// What counts of `key`, oldest first: how much, and the latest bucket of the clock that it can be of.
    pub(super) fn history(&mut self, key: Key) -> [(u64, u64); COUNTERS] {
        let (newest, ahead, coarse) = (self.newest, self.ahead, self.coarse);
        let mut history = [(0, 0); COUNTERS];
        let estimate = self.estimate(key, newest);
        for (place, (number, count)) in history.iter_mut().zip(estimate.oldest_first()) {
            let last = (number * coarse + coarse - 1).min(newest);
            *place = (last.saturating_sub(ahead), count);
        }
        history
    }

    /// How long after `now` so much of what counts will have left.
    fn time_to_leave(&self, estimate: &Estimate, over: u64, now: Timestamp) -> Duration {
        let Some((window, _)) = self.shape.window else {
            return Duration::ZERO;
        };
        let mut left = 0_u64;
        for (number, count) in estimate.oldest_first() {
            left = left.saturating_add(count);
            if left >= over {
                let leaves = (number + self.counters as u64) * self.coarse;
                let nanos = leaves.saturating_sub(self.ahead);
                let nanos = nanos.saturating_mul(window.bucket_nanos());
                return Timestamp::from_nanos(nanos).since(now);
            }
        }
        Duration::ZERO
    }

    /// How long after `now` `cost`, which is at most `limit`, fits if nothing else comes.
    pub(super) fn time_to_fit(
        &mut self,
        key: Key,
        limit: Count,
        cost: u64,
        now: Timestamp,
    ) -> Duration {
        let estimate = self.estimate(key, self.newest);
        let over = estimate.sum().saturating_add(cost);
        match over.saturating_sub(limit.whole()) {
            0 => Duration::ZERO,
            over => self.time_to_leave(&estimate, over, now),
        }
    }

    /// How the window of `key` stands.
    pub(super) fn standing(&mut self, key: Key, limit: Count, now: Timestamp) -> Standing {
        let estimate = self.estimate(key, self.newest);
        let (used, whole) = (estimate.sum(), limit.whole());
        let over = match whole.saturating_sub(used) {
            0 if whole == 0 => 0,
            0 => used - whole + 1,
            _ => used.min(1),
        };
        let reset = match over {
            0 => Duration::ZERO,
            over => self.time_to_leave(&estimate, over, now),
        };
        Standing {
            remaining: whole.saturating_sub(used),
            reset,
        }
    }

    // === Calls in flight ===

    fn calls(&self, cell: usize) -> u64 {
        let word = self.words.get(cell / 2).copied().unwrap_or(0);
        word >> (cell % 2 * 32) & u64::from(u32::MAX)
    }

    fn change_calls(&mut self, key: Key, change: impl Fn(u32) -> u32) {
        for cell in self.cells_of(key) {
            let calls = u64::from(change(self.calls(cell) as u32));
            if let Some(word) = self.words.get_mut(cell / 2) {
                let shift = cell % 2 * 32;
                *word = *word & !(u64::from(u32::MAX) << shift) | calls << shift;
            }
        }
    }

    /// A call of `key` has ended that was charged.
    pub(super) fn leave(&mut self, key: Key) {
        self.change_calls(key, |calls| calls.saturating_sub(1));
    }

    // === Turns ===

    /// How far the turns of `key` reach at most, as the word of a line: no further than `furthest`, to which what reaches
    /// further is pulled back.
    pub(super) fn reach(&mut self, key: Key, furthest: u64) -> u64 {
        let mut least = u64::MAX;
        for cell in self.cells_of(key) {
            let Some(word) = self.words.get_mut(cell) else {
                least = 0;
                continue;
            };
            *word = (*word).min(furthest);
            least = least.min(*word);
        }
        self.reserved(key).fold(least, u64::max)
    }

    /// Has them reach to there.
    pub(super) fn extend(&mut self, key: Key, to: u64) {
        self.open();
        self.charged = self.charged.wrapping_add(1);
        for cell in self.cells_of(key) {
            if let Some(word) = self.words.get_mut(cell) {
                *word = to.max(*word);
            }
        }
    }
}
