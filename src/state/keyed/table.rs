//! The states of one rule, and where they are.

use super::hottest::{Labels, MAX_LABELS};
use super::sketch::Sketch;
use super::window::{Bucket, Held, LISTED, SHARES, Shape, Slab};
use super::{Key, Place, Reserved, Standing};
use crate::rule::{Count, Counting};
use crate::state::pacer::Spacing;
use crate::time::Timestamp;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// The keys that a table has room for at first.
const FIRST_KEYS: usize = 8;

/// How many times as many there are after the last step, at most.
const LAST_STEP: usize = 8;

/// How many slots a new key looks at for a state that is free to be taken: this many where it belongs, and this many where
/// the hand stands.
const LOOK: usize = 8;

/// How many states the hand frees at most for one new key: more than one, so that a table empties faster than it fills.
const FREE: usize = 2;

/// The slots of a table with room for `keys`: at most four of five are taken.
pub(super) fn slots(keys: usize) -> usize {
    keys + keys.div_ceil(4)
}

/// How far the turns of a line reach, as its word tells it: 0 is "there has been none".
#[inline]
pub(super) fn reach(word: u64) -> Option<Timestamp> {
    word.checked_sub(1).map(Timestamp::from_nanos)
}

#[inline]
pub(super) fn reach_word(reach: Option<Timestamp>) -> u64 {
    reach.map_or(0, |reach| reach.as_nanos().saturating_add(1))
}

/// The most intervals for which an idle line keeps its slot, however much requests cost. Without a bound, one request of an
/// absurd cost would fill the table with lines that are never reused.
const MOST_IDLE_INTERVALS: u64 = 64;

/// For how long a line keeps its slot after its latest turn, and what is left of it after that.
///
/// Where those behind a request pay for it, a line says when the next request may pass. Once that is over it says nothing, and
/// its slot may be reused: the time to live is 0.
///
/// With `compat` a request pays for itself: at a distance of `spacing`, which grows with its own cost, from the latest turn of
/// its key. A line matters to it until `latest + spacing`, and there is always a cost to which it still matters. So:
///
/// 1. A line keeps its slot for [`MOST_IDLE_INTERVALS`] while there is room for more of them. Where there is none, it keeps it
///    for an interval, the spacing of all costs up to the count, or for the largest spacing that a request has asked for.
/// 2. How far a line reached whose slot is reused is kept in one word for all of them, the latest: `forgotten`. A key without
///    a line goes on from there, or from what it shares where that reaches further: whether it gets a line or not.
///
/// No request passes too early: the line of its key is there, or `forgotten` is at least what it said; a turn still to come is
/// the latest of its line, whose time to live has not begun. And a key that never had a line does not pay for the others:
/// `forgotten + ttl <= now` holds from the moment when it is written, so that it delays no request whose spacing is at most the
/// time to live. Where there is no room, one that costs more than any before it may wait for its spacing once; from then on,
/// nothing is forgotten that could delay the next.
#[derive(Clone, Copy)]
pub(super) struct IdleTtl {
    /// The shortest one, and the one at present where there is no room, in nanoseconds.
    least: u64,
    nanos: u64,
}

impl IdleTtl {
    pub(super) fn new(shape: &Shape, compat: bool) -> IdleTtl {
        let window = shape.window.filter(|_| compat);
        let interval = window.map_or(0, |(window, _)| window.interval_nanos());
        IdleTtl {
            least: interval,
            nanos: interval,
        }
    }

    /// The same when a request has asked for a turn.
    #[inline]
    pub(super) fn after(self, pace: &Spacing) -> IdleTtl {
        let spacing = pace.spacing_before();
        if spacing <= self.nanos {
            return self;
        }
        IdleTtl {
            nanos: spacing.min(self.most()),
            ..self
        }
    }

    /// Requests that pay for themselves come in whole milliseconds.
    fn whole(self, now: Timestamp) -> Timestamp {
        if self.least == 0 {
            return now;
        }
        Timestamp::from_millis(now.as_millis())
    }

    /// Whether a slot may be reused whose line reaches to `latest`.
    pub(super) fn is_over(self, latest: Timestamp, is_full: bool, now: Timestamp) -> bool {
        let ttl = if is_full { self.nanos } else { self.most() };
        latest.plus_nanos(ttl) <= self.whole(now)
    }

    fn most(self) -> u64 {
        self.least.saturating_mul(MOST_IDLE_INTERVALS)
    }

    /// What `forgotten` says at `now`: it was at least `least` ago when it was written, and when the clock has stepped back, too.
    fn before(self, forgotten: u64, now: Timestamp) -> u64 {
        let latest = self.whole(now).as_nanos().saturating_sub(self.least);
        forgotten.min(reach_word(Some(Timestamp::from_nanos(latest))))
    }
}

/// The windows themselves, and where they are.
pub(super) struct Table {
    shape: Shape,
    idle_ttl: IdleTtl,
    /// The word of the line that reached furthest of those whose slots were reused.
    forgotten: u64,
    max_keys: usize,
    /// How many keys this table has room for: four fifths of its slots.
    keys: usize,
    /// How many slots are taken.
    taken: usize,
    /// One per slot: 0 where it is empty.
    tags: Vec<u8>,
    /// The windows: `shape.stride` words per slot.
    words: Vec<u64>,
    slab: Slab,
    /// What the keys share that find the table full: none until the first of them is charged.
    sketch: Option<Box<Sketch>>,
    /// The slot where the search for free windows goes on.
    hand: usize,
    /// The bucket of the latest call, when it starts and how long it is.
    known: Bucket,
    known_start: u64,
    known_length: u64,
    /// The longest wait of a turn, and the furthest ahead that one has reached, in nanoseconds.
    longest_wait: u64,
    furthest: u64,
    labels: Labels,
    reclaimed: u64,
}

impl Table {
    pub(super) fn new(shape: Shape, compat: bool, max_keys: usize) -> Table {
        let mut table = Table {
            shape,
            idle_ttl: IdleTtl::new(&shape, compat),
            forgotten: 0,
            max_keys,
            keys: 0,
            taken: 0,
            tags: Vec::new(),
            words: Vec::new(),
            slab: Slab::new(max_keys),
            sketch: None,
            hand: 0,
            known: Bucket::default(),
            known_start: 0,
            // Calls in flight know no time: to them it is one long bucket.
            known_length: shape.window.map_or(u64::MAX, |(w, _)| w.bucket_nanos()),
            longest_wait: 0,
            furthest: 0,
            labels: Labels::default(),
            reclaimed: 0,
        };
        table.resize(FIRST_KEYS.min(max_keys));
        table
    }

    /// Has windows count in this way from now on.
    pub(super) fn count_as(&mut self, counting: Counting) {
        self.shape.count_as(counting);
    }

    /// Empties the table and gives it room for `keys`.
    fn resize(&mut self, keys: usize) {
        let slots = slots(keys);
        self.tags = vec![0; slots];
        self.words = vec![0; slots * self.shape.stride];
        (self.keys, self.taken, self.hand) = (keys, 0, 0);
    }

    /// The bucket of `now`.
    #[inline(always)]
    pub(super) fn bucket(&mut self, now: Timestamp) -> Bucket {
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
        let ahead = now.as_nanos().saturating_sub(self.known_start);
        let buckets = self.shape.buckets.max(1);
        let (number, counter) = if ahead / 2 < self.known_length && ahead >= self.known_length {
            // The next one, as a rule: without a division.
            let counter = self.known.counter + 1;
            let counter = if counter < buckets { counter } else { 0 };
            (self.known.number + 1, counter)
        } else {
            let number = window.number(now);
            (number, (number % buckets as u64) as usize)
        };
        self.labels.cool(number.abs_diff(self.known.number));
        self.known = Bucket { number, counter };
        self.known_start = number * self.known_length;
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
    #[inline(always)]
    pub(super) fn find(&self, key: Key) -> Option<usize> {
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

    #[inline(always)]
    pub(super) fn slot(&mut self, slot: usize) -> Option<Held<'_>> {
        let first = slot * self.shape.stride;
        let words = self.words.get_mut(first..first + self.shape.stride)?;
        Held::of(words, &mut self.slab, &self.shape)
    }

    /// The window at `place`, which has just been told; `None` where keys share.
    #[inline(always)]
    pub(super) fn at(&mut self, place: Place) -> Option<Held<'_>> {
        if place.is_shared {
            None
        } else {
            self.slot(place.at as usize)
        }
    }

    /// The window at `place`; `None` where it is gone, or keys share.
    #[inline]
    pub(super) fn held(&mut self, place: Place) -> Option<Held<'_>> {
        if place.is_shared {
            return None;
        }
        let slot = self.slot_of(place)?;
        self.slot(slot)
    }

    #[inline]
    fn slot_of(&self, place: Place) -> Option<usize> {
        let slot = place.at as usize;
        if self.tags.get(slot) == Some(&place.key.tag()) && self.hash_at(slot) == Some(place.key.0)
        {
            return Some(slot);
        }
        self.find(place.key)
    }

    /// The same, brought up to `now`, and its bucket.
    #[inline(never)]
    fn held_at(&mut self, place: Place, now: Timestamp) -> Option<(Held<'_>, Bucket)> {
        let to = self.bucket(now);
        if place.is_shared {
            return self.shared(place.key, to);
        }
        let mut held = self.held(place)?;
        held.advance(now, to);
        Some((held, to))
    }

    /// How the window at `place` stands; `None` where it is none, or gone.
    pub(super) fn standing(
        &mut self,
        place: Place,
        limit: Count,
        now: Timestamp,
    ) -> Option<Standing> {
        let (mut held, to) = self.held_at(place, now)?;
        held.standing(limit, now, to)
    }

    /// How long after `now` a `cost` would fit into `limit` if nothing else came: the first instant at which it does. `None`
    /// where it never can. A call in flight may end at any moment: for those it is a millisecond.
    pub(super) fn time_to_room(
        &mut self,
        place: Place,
        limit: Count,
        cost: u64,
        now: Timestamp,
    ) -> Option<Duration> {
        if cost as f64 > limit.get() {
            return None;
        }
        let is_window = self.shape.window.is_some();
        let wait = match self.held_at(place, now) {
            Some((mut held, to)) => held.time_to_fit(limit, cost, now, to),
            None => is_window.then_some(Duration::ZERO),
        };
        wait.or(Some(Duration::from_millis(1)))
    }

    /// Where the state of `key` is, or would be if it has none: what the keys share that find no room stands for those too,
    /// since whoever gets a state of its own goes on from there.
    pub(super) fn look_up(&self, key: Key) -> Place {
        match self.find(key) {
            Some(slot) => Place::own(key, slot),
            None => Place::shared(key),
        }
    }

    /// The word of the line at `place`; `None` where it is gone, or keys share.
    #[inline]
    fn line(&mut self, place: Place) -> Option<&mut u64> {
        if place.is_shared {
            return None;
        }
        let slot = self.slot_of(place)?;
        self.words.get_mut(slot * self.shape.stride + 1)
    }

    /// How far the turns of the line at `place` reach.
    pub(super) fn reach(&mut self, place: Place, now: Timestamp) -> Option<Timestamp> {
        if place.is_shared {
            return self.shared_reach(place.key, now);
        }
        reach(*self.line(place)?)
    }

    /// How far the turns reach at most that `key` has taken while it had no line, or before its line was forgotten. Those that
    /// it shared reach no further ahead than any turn has.
    #[cold]
    fn shared_reach(&mut self, key: Key, now: Timestamp) -> Option<Timestamp> {
        let furthest = reach_word(Some(now.plus_nanos(self.furthest)));
        let sketch = self.sketch.as_mut();
        let shared = sketch.map_or(0, |sketch| sketch.reach(key, furthest));
        reach(shared.max(self.idle_ttl.before(self.forgotten, now)))
    }

    /// The same as far as `pace` believes it. What reaches further was taken before the clock stepped back, and is pulled back.
    #[inline]
    pub(super) fn reach_within(&mut self, place: Place, pace: &Spacing) -> Option<Timestamp> {
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
    pub(super) fn take_turn(
        &mut self,
        place: Place,
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
    pub(super) fn reserve_until(
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
                Some(slot) => Place::own(key, slot),
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
    pub(super) fn pull_back_to(&mut self, key: Key, latest: Timestamp) -> Option<Timestamp> {
        let slot = self.find(key)?;
        let line = self.line(Place::own(key, slot))?;
        let reached = reach(*line)?.min(latest);
        *line = reach_word(Some(reached));
        Some(reached)
    }

    /// Gives a turn back, if no later one was taken.
    pub(super) fn give_turn_back(&mut self, place: Place, from: Option<Timestamp>, to: Timestamp) {
        if let Some(line) = self
            .line(place)
            .filter(|line| **line == reach_word(Some(to)))
        {
            *line = reach_word(from);
        }
    }

    /// The longest wait of a turn so far, in nanoseconds.
    #[inline]
    pub(super) fn longest_wait(&self) -> u64 {
        self.longest_wait
    }

    /// Whether no request waits in the line in `slot`, and its latest turn has been over for as long as it is kept.
    fn is_idle(&mut self, slot: usize, now: Timestamp) -> bool {
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

    /// Whether there is a state in `slot` in which nothing counts any more.
    fn is_free(&mut self, slot: usize, now: Timestamp, to: Bucket) -> bool {
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
            // Else the windows of a clock that has stepped far back would fill the table until it has caught up.
            held.advance(now, to);
        }
        held.is_free(to)
    }

    /// Opens a window for `key`, which has none.
    #[cold]
    #[inline(never)]
    pub(super) fn open(&mut self, key: Key, now: Timestamp) -> Place {
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
            return Place::shared(key);
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
        } else if let Some(line) = self.words.get(slot * self.shape.stride + 1) {
            self.forgotten = self.forgotten.max(*line);
        }
        self.reclaimed = self.reclaimed.wrapping_add(1);
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
        self.reclaim(slot);
        self.taken -= 1;
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

    /// Doubles the table, and takes the last steps at once: what is left behind is too small for what comes, and where memory is
    /// never given back (in WebAssembly) it would make up half of all. What is free to be taken does not come along.
    fn grow(&mut self, now: Timestamp, to: Bucket) {
        for slot in 0..self.tags.len() {
            if self.is_free(slot, now, to) {
                self.reclaim(slot);
                if let Some(tag) = self.tags.get_mut(slot) {
                    *tag = 0; // nobody searches here until all have moved
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

    /// What the keys hold that share may have been the doing of `key`: its own state goes on from there.
    fn inherit(&mut self, slot: usize, key: Key, now: Timestamp, to: Bucket) {
        if self.shape.is_paced {
            let shared = self.shared_reach(key, now);
            if let Some(line) = self.line(Place::own(key, slot)) {
                *line = reach_word(shared);
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
        let own = words.and_then(|words| Held::of(words, slab, shape));
        let (Some(mut own), Some((mut shared, at))) = (own, sketch.window(key, to.number)) else {
            return;
        };
        if *shared.used == 0 {
            return;
        }
        own.set_number(newest);
        for behind in 0..shared.shape.buckets {
            let count = shared.counter(shared.shape.before(at.counter, behind));
            // What is known of a coarse bucket may have been at its end.
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

    // === Of keys that share ===

    /// What they share, in the bucket of the latest call.
    #[cold]
    #[inline(never)]
    pub(super) fn sketch(&mut self) -> &mut Sketch {
        let (shape, max_keys) = (&self.shape, self.max_keys);
        let sketch = || Box::new(Sketch::new(shape, max_keys));
        let sketch = self.sketch.get_or_insert_with(sketch);
        sketch.follow(self.known.number);
        sketch
    }

    /// What counts of `key`, which shares, in the bucket `to`; `None` where nothing is shared, or these are no windows.
    #[cold]
    #[inline(never)]
    pub(super) fn shared(&mut self, key: Key, to: Bucket) -> Option<(Held<'_>, Bucket)> {
        self.sketch.as_mut()?.window(key, to.number)
    }

    /// At most its calls in flight.
    fn calls_shared(&self, key: Key) -> u64 {
        self.sketch
            .as_ref()
            .map_or(0, |sketch| sketch.calls_of(key))
    }

    /// Whether `cost` more of `key`, which shares, fits into `limit`.
    #[cold]
    #[inline(never)]
    pub(super) fn shared_fits(
        &mut self,
        key: Key,
        limit: Count,
        cost: u64,
        now: Timestamp,
    ) -> bool {
        let used = self.shared_sum(key, now);
        used.saturating_add(cost) <= limit.whole()
    }

    /// At most its calls in flight, where it shares and such are counted.
    pub(super) fn calls_at(&self, place: Place) -> u64 {
        if place.is_shared && self.shape.window.is_none() {
            self.calls_shared(place.key)
        } else {
            0
        }
    }

    /// At most what counts of it, or its calls in flight.
    fn shared_sum(&mut self, key: Key, now: Timestamp) -> u64 {
        let to = self.bucket(now);
        match self.shared(key, to) {
            Some((held, _)) => *held.used,
            None => self.calls_shared(key),
        }
    }

    /// As [`Table::take_turn`], of a key that shares; does not take it.
    pub(super) fn shared_turn(
        &mut self,
        key: Key,
        pace: &Spacing,
        wait: u64,
    ) -> Option<(u64, Option<Timestamp>, Timestamp)> {
        let from = self.reach_within(Place::shared(key), pace);
        let wait = pace.wait(from)?.max(wait);
        let to = pace.reach_after(wait);
        self.note_turn(pace, wait, to);
        Some((wait, from, to))
    }

    /// Charges what was reserved for a key that shares. Whether it is a call in flight from now on.
    #[cold]
    #[inline(never)]
    pub(super) fn commit_shared(&mut self, reserved: &Reserved, cost: u64) -> bool {
        let key = reserved.place.key;
        let turn = reserved.turn.map(|turn| reach_word(Some(turn.to)));
        if !reserved.place.is_shared || !self.sketch().take_back(key, turn.unwrap_or(cost)) {
            return false;
        }
        match turn {
            Some(to) => self.sketch().extend(key, to),
            None => self.sketch().charge(key, cost),
        }
        self.shape.window.is_none()
    }

    /// Calls in flight that may be this key's, beside those of its own window.
    #[inline(always)]
    pub(super) fn in_flight_elsewhere(&mut self, place: Place) -> u64 {
        if self.shape.window.is_some() || place.is_shared {
            return 0;
        }
        if !self.held(place).is_some_and(|held| held.has(SHARES)) {
            return 0;
        }
        self.shared_calls(place)
    }

    #[cold]
    #[inline(never)]
    fn shared_calls(&mut self, place: Place) -> u64 {
        let elsewhere = self.calls_shared(place.key);
        if elsewhere == 0
            && let Some(mut held) = self.held(place)
        {
            held.unset(SHARES);
        }
        elsewhere
    }

    /// The state of `key`, opened if need be and brought up to `now`, and its calls in flight that are counted elsewhere. No
    /// window where turns are taken.
    #[inline(always)]
    pub(super) fn enter(
        &mut self,
        key: Key,
        now: Timestamp,
        to: Bucket,
    ) -> (Place, u64, Option<Held<'_>>) {
        let place = match self.find(key) {
            Some(slot) => Place::own(key, slot),
            None => self.open(key, now),
        };
        let elsewhere = self.in_flight_elsewhere(place);
        let mut held = self.at(place);
        if let Some(held) = &mut held {
            held.advance(now, to);
        }
        (place, elsewhere, held)
    }

    /// At most what makes `key` hot in the bucket `to`: what counts in its window, its calls in flight, how far its turns
    /// reach ahead, in nanoseconds. 0 where it has no state of its own.
    fn heat_of(&mut self, key: Key, now: Timestamp, to: Bucket) -> u64 {
        let Some(slot) = self.find(key) else {
            return 0;
        };
        if self.shape.is_paced {
            let reach = self.reach(Place::own(key, slot), now);
            return reach.map_or(0, |reach| reach.since(now).as_nanos() as u64);
        }
        self.slot(slot).map_or(0, |held| held.used_by(to))
    }

    #[inline]
    pub(super) fn floor(&self) -> u64 {
        self.labels.floor()
    }

    pub(super) fn labels(&mut self) -> &mut Labels {
        &mut self.labels
    }

    /// Lists the key at `place`, which is as hot as that, if it is hot enough.
    #[cold]
    #[inline(never)]
    pub(super) fn list(&mut self, place: Place, heat: u64, now: Timestamp) {
        let to = self.bucket(now);
        let is_new = !place.is_shared && !self.labels.has(place.key);
        if is_new && self.labels.is_full() {
            let keys: [Option<Key>; MAX_LABELS] = {
                let mut keys = self.labels.keys();
                std::array::from_fn(|_| keys.next())
            };
            let heats = keys.map(|key| key.map_or(0, |key| self.heat_of(key, now, to)));
            let (at, coolest) = heats
                .into_iter()
                .enumerate()
                .min_by_key(|(_, heat)| *heat)
                .unwrap_or_default();
            self.labels.set_coolest(coolest);
            if heat < self.labels.floor() {
                return;
            }
            self.labels.remove(at);
            let displaced = keys.get(at).copied().flatten();
            let slot = displaced.and_then(|key| self.find(key));
            if let Some(mut held) = slot.and_then(|slot| self.slot(slot)) {
                held.unset(LISTED);
            }
        }
        if is_new {
            self.labels.push(place.key);
        }
        // What keys share is set, too, so that it does not come again.
        if let Some(mut held) = self.held(place) {
            held.set(LISTED);
        }
    }

    /// The `n` hottest keys that have a state of their own, hottest first, and how hot they are.
    pub(super) fn top(&mut self, n: usize, now: Timestamp) -> Vec<(u64, Key)> {
        let to = self.bucket(now);
        let mut top = BinaryHeap::new();
        for slot in 0..self.tags.len() {
            if self.tags.get(slot).is_none_or(|tag| *tag == 0) {
                continue;
            }
            let key = Key(self.hash_at(slot).unwrap_or(0));
            let least = top.peek().map_or(0, |Reverse((heat, _))| *heat);
            let is_full = top.len() >= n;
            let heat = self.heat_in(slot, key, if is_full { least } else { 0 }, now, to);
            if heat == 0 {
                continue;
            }
            top.push(Reverse((heat, Reverse(key.0))));
            if top.len() > n {
                top.pop();
            }
        }
        let top = top.into_sorted_vec().into_iter();
        top.map(|Reverse((heat, Reverse(hash)))| (heat, Key(hash)))
            .collect()
    }

    /// How hot the key in `slot` is; 0 where it is cooler than `least`.
    fn heat_in(&mut self, slot: usize, key: Key, least: u64, now: Timestamp, to: Bucket) -> u64 {
        if self.shape.is_paced {
            return self.heat_of(key, now, to);
        }
        let Some(mut held) = self.slot(slot) else {
            return 0;
        };
        let most = held.used_by(to);
        if most < least {
            return 0;
        }
        match held.future(to) {
            None => most,
            Some(mut future) => {
                future.go_to(now);
                future.sum(now) as u64
            }
        }
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

    pub(super) fn known(&self) -> Bucket {
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
