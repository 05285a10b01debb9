//! A count-min sketch, which the keys that find the table full share.
//!
//! A key has a cell in each of two rows, chosen by the two halves of its hash. Its use is added to both, and so is that of
//! other keys with one of these cells. So each cell is an upper bound of the key's use, and the lesser of the two is close
//! while one of them is not crowded. Nothing is taken off a cell, since other keys may have raised it.
//!
//! ```text
//!   a cell    windows           8 bytes: when it was written last, and a byte for each of at most five coarse buckets
//!             calls in flight   4 bytes: what they cost
//!             turns             8 bytes: how far they reach
//! ```
//!
//! Windows are counted strictly, in buckets of a quarter of the interval or a little more: the current one and those of a whole
//! interval before it. The use of a key is read as a window of such buckets. A charge raises each cell's current bucket only to
//! the lesser of both plus the cost (conservative update): for each bucket the lesser count remains an upper bound for each key
//! by itself. Counts that outgrow their byte widen as those of the table do. Calls in flight are added to both cells and taken
//! off both, so that the lesser is an upper bound, too, and 0 when all have ended. Turns raise both cells to the instant that
//! they reach.
//!
//! Reservations stand beside the cells until they are charged, held or released. What keys hold is added to both of their cells
//! and taken off both when it is settled, as calls in flight are: 8 bytes for each cell, none before a key that shares holds.

use super::key::Key;
use super::saved::put;
use super::window::{BucketPos, FLAGS, HOLDS, Shape, Slab, StateMut, WIDE};
use crate::rule::{Counting, MAX_KEYS_OF_REQUEST};
use crate::time::Timestamp;
use crate::window::Window;
use std::num::{NonZeroU32, NonZeroU64};

const ROWS: usize = 2;

/// The fewest cells of a row, so that a small table withstands a flood of many times its size.
const LEAST_CELLS: usize = 256;

/// Into how many coarse buckets an interval is cut at most.
const COARSE: NonZeroU32 = NonZeroU32::MIN.saturating_add(3);

/// How many coarse buckets count: the current one, too.
const COUNTERS: usize = COARSE.get() as usize + 1;

/// The most reservations that are neither charged nor released: as many as one request can make.
const MAX_PENDING: usize = MAX_KEYS_OF_REQUEST;

/// In the word of a cell: a byte for each counter, or the block of the slab with the counters.
const COUNTED: u64 = (1 << STAMP) - 1;

/// The position, in the word, of the number of the coarse bucket of its latest write, as far as there is room.
const STAMP: u32 = 40;
const STAMPS: u64 = (1 << 23) - 1;

/// The position, in the word, of the flag for wide counters.
const IS_WIDE: u32 = 63;

/// The most buckets that the sketch may be ahead of the clock, so that numbers do not wrap however often the clock steps back.
const MAX_AHEAD: u64 = 1 << 58;

pub(super) struct Sketch {
    /// The shape of the states; for windows, of coarse ones.
    shape: Shape,
    /// How many of the table's buckets an interval has, and how many make a coarse one.
    samples: u64,
    times: NonZeroU64,
    words: Vec<u64>,
    /// How many cells a row has.
    cells: usize,
    slab: Slab,
    /// The words of the window that was read last.
    latest_window: [u64; 4],
    /// The table's latest bucket. It does not step back with the clock: after a step of an interval or more, the sketch
    /// continues from here, and is `ahead` of the clock from then on, by a number of whole coarse buckets.
    newest: u64,
    ahead: u64,
    /// The reservations and their number: a cost each, or how far a turn reaches.
    pending: [(Key, u64); MAX_PENDING],
    reservations: usize,
    /// What is held in each cell, once anything was.
    held: Vec<u64>,
    charged: u64,
}

/// The layout of the cells for a table of such states: the shape of their windows, how many of the table's buckets make a
/// coarse one, and how many cells a row has.
fn layout(shape: &Shape, max_keys: usize) -> (Shape, NonZeroU64, usize) {
    let keys_per_cell = if shape.is_paced { 2 * ROWS } else { ROWS };
    let cells = max_keys.div_ceil(keys_per_cell).max(LEAST_CELLS);
    match shape.window.filter(|_| shape.buckets > 0) {
        None => (*shape, NonZeroU64::MIN, cells),
        Some((window, _)) => {
            let (window, times) = window.coarser(COARSE);
            (Shape::of(window, Counting::Strict), times, cells)
        }
    }
}

/// The words of both rows: two calls in flight lie in one.
fn words(shape: &Shape, cells: usize) -> usize {
    match shape.window {
        None => cells,
        Some(_) => cells.saturating_mul(ROWS),
    }
}

impl Sketch {
    pub(super) fn new(shape: &Shape, max_keys: usize) -> Sketch {
        let samples = shape.buckets.saturating_sub(1) as u64;
        let (shape, times, cells) = layout(shape, max_keys);
        Sketch {
            shape,
            samples,
            times,
            words: vec![0; words(&shape, cells)],
            cells,
            slab: Slab::new(cells.saturating_mul(ROWS).saturating_add(1)),
            latest_window: [0; 4],
            newest: 0,
            ahead: 0,
            pending: [(Key(0), 0); MAX_PENDING],
            reservations: 0,
            held: Vec::new(),
            charged: 0,
        }
    }

    /// The most bytes of a sketch while no counter has widened.
    pub(super) fn max_bytes(shape: &Shape, max_keys: usize) -> usize {
        let (shape, _, cells) = layout(shape, max_keys);
        size_of::<Sketch>() + words(&shape, cells) * size_of::<u64>()
    }

    /// How many more bytes it has once a key that shares has held something.
    pub(super) fn max_bytes_more_if_held(shape: &Shape, max_keys: usize) -> usize {
        let (shape, _, cells) = layout(shape, max_keys);
        if shape.buckets > 0 {
            ROWS * cells * size_of::<u64>()
        } else {
            0
        }
    }

    /// How many more bytes it has if all counters have widened.
    pub(super) fn max_bytes_more_if_wide(shape: &Shape, max_keys: usize) -> usize {
        let (shape, _, cells) = layout(shape, max_keys);
        let block = shape.buckets * size_of::<u64>() + size_of::<u32>();
        if shape.buckets > 0 {
            (ROWS * cells + 1) * block
        } else {
            0
        }
    }

    pub(super) fn bytes(&self) -> usize {
        let words = (self.words.capacity() + self.held.capacity()) * size_of::<u64>();
        size_of::<Sketch>() + words + self.slab.bytes()
    }

    /// How many blocks hold wide counters.
    pub(super) fn wide(&self) -> usize {
        self.slab.taken(self.shape.buckets)
    }

    /// How many times something was charged here.
    pub(super) fn charged(&self) -> u64 {
        self.charged
    }

    /// The cells of `key`.
    fn cells_of(&self, key: Key) -> [usize; ROWS] {
        let cell = |half: u64| ((half * self.cells as u64) >> 32) as usize;
        [
            cell(key.hash() & u64::from(u32::MAX)),
            self.cells.wrapping_add(cell(key.hash() >> 32)),
        ]
    }

    // === Reservations ===

    /// Adds a reservation. Returns whether there was room for it.
    pub(super) fn reserve(&mut self, key: Key, amount: u64) -> bool {
        let Some(place) = self.pending.get_mut(self.reservations) else {
            return false;
        };
        *place = (key, amount);
        self.reservations = self.reservations.saturating_add(1);
        true
    }

    /// Removes a reservation. Returns whether it was there.
    pub(super) fn take_back(&mut self, key: Key, amount: u64) -> bool {
        let pending = self.pending.get_mut(..self.reservations);
        let pending = pending.unwrap_or_default();
        let at = pending
            .iter()
            .position(|reserved| *reserved == (key, amount));
        let (Some(at), Some(last)) = (at, pending.last().copied()) else {
            return false;
        };
        if let Some(place) = pending.get_mut(at) {
            *place = last;
        }
        self.reservations = self.reservations.saturating_sub(1);
        true
    }

    fn reserved(&self, key: Key) -> impl Iterator<Item = u64> {
        let pending = self.pending.iter().take(self.reservations);
        let of_key = pending.filter(move |(other, _)| *other == key);
        of_key.map(|(_, amount)| *amount)
    }

    #[inline(never)]
    fn cost_reserved(&self, key: Key) -> u64 {
        self.reserved(key).fold(0, u64::saturating_add)
    }

    // === What is held ===

    /// Holds `cost` for `key`.
    pub(super) fn hold(&mut self, key: Key, cost: u64) {
        if self.held.is_empty() {
            self.held = vec![0; self.cells.saturating_mul(ROWS)];
        }
        for cell in self.cells_of(key) {
            if let Some(held) = self.held.get_mut(cell) {
                *held = held.saturating_add(cost);
            }
        }
    }

    /// Gives back what `key` has held.
    pub(super) fn give_back(&mut self, key: Key, cost: u64) {
        for cell in self.cells_of(key) {
            if let Some(held) = self.held.get_mut(cell) {
                *held = held.saturating_sub(cost);
            }
        }
    }

    /// An upper bound of what `key` holds here.
    pub(super) fn held_of(&self, key: Key) -> u64 {
        let held = self.cells_of(key).map(|cell| self.held.get(cell));
        held.into_iter().flatten().min().copied().unwrap_or(0)
    }

    // === Windows ===

    /// How many of the table's buckets make one here.
    pub(super) fn times(&self) -> u64 {
        self.times.get()
    }

    /// The coarse bucket `number`; its counter is the number modulo [`COUNTERS`].
    fn bucket(&self, number: u64) -> BucketPos {
        BucketPos {
            number,
            counter: (number % self.shape.buckets.max(1) as u64) as usize,
        }
    }

    /// The current coarse bucket.
    fn current(&self) -> BucketPos {
        self.bucket(self.newest / self.times)
    }

    /// The number of the table's latest bucket by the clock.
    pub(super) fn number(&self) -> u64 {
        self.newest.wrapping_sub(self.ahead)
    }

    /// Moves on to the table's bucket of that number.
    pub(super) fn follow(&mut self, number: u64) {
        let behind = self.newest.saturating_sub(number.wrapping_add(self.ahead));
        if behind >= self.samples && self.ahead < MAX_AHEAD {
            let whole = behind.wrapping_sub(behind % self.times);
            self.ahead = self.ahead.wrapping_add(whole);
        }
        self.newest = self.newest.max(number.wrapping_add(self.ahead));
    }

    /// Brings a cell up to the newest bucket, and raises that to at least `least`. Returns its counters.
    #[inline(never)]
    fn visit(&mut self, cell: usize, least: u64) -> [u64; COUNTERS] {
        let (mut counts, to) = ([0; COUNTERS], self.current());
        let Some(word) = self.words.get_mut(cell) else {
            return counts;
        };
        // A cell so old that its stamp has wrapped around counts once more: too strict, never too lenient.
        let age = to.number.wrapping_sub(*word >> STAMP) & STAMPS;
        let written = to.number.wrapping_sub(age) << FLAGS;
        let mut words = [0, written | *word >> IS_WIDE, 0, *word & COUNTED];
        let Some(mut held) = StateMut::of(&mut words, &mut self.slab, &self.shape) else {
            return counts;
        };
        held.advance(Timestamp::ZERO, to);
        if held.counter(to.counter) < least {
            held.set_counter(to.counter, least);
        }
        for (counter, count) in counts.iter_mut().enumerate().take(self.shape.buckets) {
            *count = held.counter(counter);
        }
        let [_, newest, _, counters] = words;
        *word = (newest & WIDE) << IS_WIDE | (to.number & STAMPS) << STAMP | counters;
        counts
    }

    /// An upper bound of the use of `key`, as a window of the table's bucket `number`, reservations included; `None` if the
    /// states are not windows.
    pub(super) fn window(&mut self, key: Key, number: u64) -> Option<(StateMut<'_>, BucketPos)> {
        if self.shape.buckets == 0 {
            return None;
        }
        self.follow(number);
        let [one, other] = self.cells_of(key).map(|cell| self.visit(cell, 0));
        let (reserved, on_hold) = (self.cost_reserved(key), self.held_of(key));
        let current = self.current().counter;
        let now = self.bucket(self.number() / self.times);
        // After the clock has stepped back, it numbers buckets differently.
        let turned = self.shape.steps(now.counter, current);
        let mut held = StateMut::of(&mut self.latest_window, &mut self.slab, &self.shape)?;
        held.clear();
        *held.newest = if on_hold > 0 { HOLDS } else { 0 };
        *held.used = on_hold;
        held.set_number(now.number);
        for counter in 0..held.shape.buckets {
            let from = held.shape.after(counter, turned);
            let mut count = one.get(from).min(other.get(from)).copied().unwrap_or(0);
            if from == current {
                count = count.saturating_add(reserved);
            }
            held.set_counter(counter, count);
            *held.used = held.used.saturating_add(count);
        }
        Some((held, now))
    }

    /// Charges `key`.
    pub(super) fn charge(&mut self, key: Key, cost: u64) {
        self.charged = self.charged.wrapping_add(1);
        if self.shape.window.is_none() {
            let cost = u32::try_from(cost).unwrap_or(u32::MAX);
            return self.change_calls(key, |calls| calls.saturating_add(cost));
        }
        let current = self.current().counter;
        let cells = self.cells_of(key);
        let counts = cells.map(|cell| self.visit(cell, 0));
        let least = counts.iter().filter_map(|counts| counts.get(current)).min();
        let to = least.map_or(cost, |least| least.saturating_add(cost));
        for cell in cells {
            self.visit(cell, to);
        }
    }

    // === Snapshots ===

    /// Appends how many times something was charged here, then each cell that counts or holds anything: how far it is from the one
    /// before, and how much; and a zero.
    pub(super) fn save(&mut self, out: &mut Vec<u8>) {
        put(out, self.charged);
        let mut from = 0;
        for cell in 0..self.words.len() {
            let held = self.held.get(cell).copied().unwrap_or(0);
            let counts = self.visit(cell, 0).into_iter();
            let sum = counts.fold(held, u64::saturating_add);
            if sum > 0 {
                put(out, (cell + 1 - from) as u64);
                put(out, sum);
                from = cell + 1;
            }
        }
        put(out, 0);
    }

    /// Raises the current bucket of a cell to what was saved of it so many nanoseconds ago.
    pub(super) fn restore(&mut self, cell: usize, count: u64, elapsed: u64) {
        let spans = |(window, _): (Window, _)| window.interval_nanos() + window.bucket_nanos();
        if elapsed < self.shape.window.map_or(0, spans) {
            self.visit(cell, count);
        }
    }

    /// Counts charges that were restored.
    pub(super) fn count_charged(&mut self, charged: u64) {
        self.charged = self.charged.wrapping_add(charged);
    }

    // === Calls in flight ===

    /// An upper bound of the calls in flight of `key`, reservations included.
    pub(super) fn calls_of(&self, key: Key) -> u64 {
        let [one, other] = self.cells_of(key).map(|cell| self.calls(cell));
        one.min(other).saturating_add(self.cost_reserved(key))
    }

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

    /// Records that a charged call of `key` has ended. A cell that is full stays full: it does not know by how much.
    pub(super) fn leave(&mut self, key: Key, cost: u64) {
        let cost = u32::try_from(cost).unwrap_or(u32::MAX);
        self.change_calls(key, |calls| match calls {
            u32::MAX => u32::MAX,
            calls => calls.saturating_sub(cost),
        });
    }

    // === Turns ===

    /// An upper bound of how far the turns of `key` reach, as the word of a pacer. Cells that reach further than `furthest` are
    /// pulled back to it.
    pub(super) fn reach(&mut self, key: Key, furthest: u64) -> u64 {
        let mut least = u64::MAX;
        for cell in self.cells_of(key) {
            if let Some(word) = self.words.get_mut(cell) {
                *word = (*word).min(furthest);
                least = least.min(*word);
            }
        }
        self.reserved(key).fold(least, u64::max)
    }

    /// Makes the turns of `key` reach to `to`.
    pub(super) fn extend(&mut self, key: Key, to: u64) {
        self.charged = self.charged.wrapping_add(1);
        for cell in self.cells_of(key) {
            if let Some(word) = self.words.get_mut(cell) {
                *word = to.max(*word);
            }
        }
    }
}
