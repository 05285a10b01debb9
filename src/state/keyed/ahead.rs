//! Passes that a worker takes ahead of the requests of a hot key, so that most of these need no page.
//!
//! A request that finds its key's page counts in it, and with it a few passes for the next requests of that key. These are spent in
//! the worker, in the same bucket only. No interval has more than the limit:
//!
//! 1. A pass is charged before it is spent: each swap of a page leaves at most the limit counted, passes that are not spent among it.
//! 2. It is spent in the bucket that it was charged in, or never. So the requests of each bucket are at most what is counted in it,
//!    and those of any buckets together at most what all workers see.
//! 3. It is given back to that bucket at most once, and is not spent after that: in the next swap for a request of the key, or when
//!    the bucket is over.
//!
//! What is not spent yet is missing to other workers. That is bounded: passes are taken ahead only where [`PARTS`] times as many
//! would fit, so it is less than a hundredth of what is left. A limit of less than that knows none.
//!
//! A key is hot if it comes several times in one bucket: the second request takes what it costs ahead once, and each further one that
//! needs the page twice as often, up to [`MOST_AHEAD`] times.

use super::answers::{KeyVerdict, Reserved};
use super::geometry::KeyedTerms;
use super::key::{Key, KeyHandle};
use super::page::KeyedPages;
use crate::rule::Count;
use crate::time::Timestamp;
use std::cell::RefCell;

/// For how many requests passes are taken ahead at a time, at most.
const MOST_AHEAD: u64 = 16;

/// What is taken ahead is at most this part of what is left.
const PARTS: u64 = 128;

/// How many keys can have passes: a power of two.
const LINES: usize = 64;

/// The passes that one worker has taken ahead for the keys of one rule.
#[derive(Default)]
pub struct PassesAhead {
    /// None before a key comes, then [`LINES`] of them.
    lines: RefCell<Vec<Line>>,
}

/// The passes of one key.
#[derive(Clone, Copy)]
struct Line {
    handle: KeyHandle,
    /// The limit that they were taken under.
    count: Count,
    /// The bucket that they are charged in.
    from: Timestamp,
    until: Timestamp,
    /// How many are not spent.
    left: u64,
    /// For how many requests to take some the next time in this bucket.
    next: u64,
}

impl Line {
    fn is_current(&self, now: Timestamp) -> bool {
        (self.from..self.until).contains(&now)
    }

    /// The passes that are not spent, as a reservation of so many.
    fn unspent(&self) -> Option<(Reserved, u64)> {
        (self.left > 0).then_some((Reserved::at_once(self.handle), self.left))
    }
}

impl PassesAhead {
    fn with_line<R>(&self, key: Key, with: impl FnOnce(&mut Line) -> Option<R>) -> Option<R> {
        let mut lines = self.lines.borrow_mut();
        let line = lines.get_mut(key.home(LINES))?;
        with(line)
    }

    /// The line of the key, if it has one.
    fn with_own<R>(&self, key: Key, with: impl FnOnce(&mut Line) -> Option<R>) -> Option<R> {
        self.with_line(key, |line| match line.handle.key == key {
            true => with(line),
            false => None,
        })
    }

    /// Spends passes of the key for a request at that cost, if there are as many.
    #[inline]
    pub fn spend(
        &self,
        key: Key,
        terms: &KeyedTerms,
        cost: u64,
        now: Timestamp,
    ) -> Option<Reserved> {
        self.with_own(key, |line| {
            let are_its = line.is_current(now) && line.count == terms.count && !terms.holds;
            line.left = line.left.checked_sub(cost).filter(|_| are_its)?;
            Some(Reserved::at_once(line.handle))
        })
    }

    /// What the key's worker has not spent and is to give back with the next swap of the key's page, if any, and for how many
    /// requests to take passes ahead in that swap.
    pub fn for_swap(&self, key: Key, now: Timestamp) -> (Option<(Reserved, u64)>, u64) {
        let known = self.with_own(key, |line| {
            let next = if line.is_current(now) { line.next } else { 0 };
            Some((line.unspent(), next))
        });
        known.unwrap_or_default()
    }

    /// The page of the key has been swapped: what was to be given back has been, and what was `taken` is there for the requests after
    /// this one. Returns what is to be given back of another key's, whose bucket is over.
    pub fn swapped(
        &self,
        key: Key,
        taken: Option<Taken>,
        terms: &KeyedTerms,
    ) -> Option<(Reserved, u64)> {
        let before = self.with_own(key, |line| {
            line.left = 0;
            Some(*line)
        });
        let taken = taken?;
        let line = Line {
            handle: taken.handle,
            count: terms.count,
            from: taken.from,
            until: taken.until,
            left: taken.ahead,
            next: match before {
                Some(before) if before.from == taken.from => (2 * before.next).min(MOST_AHEAD),
                _ => 1,
            },
        };
        if self.lines.borrow().is_empty() {
            self.lines.replace(vec![Line { left: 0, ..line }; LINES]);
        }
        self.with_line(key, |place| {
            // Passes of another key that can be spent stay.
            let stays = place.left > 0 && place.is_current(taken.from);
            let over = std::mem::replace(place, if stays { *place } else { line });
            over.unspent().filter(|_| !stays)
        })
    }

    /// How many passes of the key can be spent at `now`.
    pub fn left(&self, key: Key, now: Timestamp) -> u64 {
        let left = |line: &mut Line| line.is_current(now).then_some(line.left);
        self.with_own(key, left).unwrap_or(0)
    }

    /// Takes out one line whose bucket is over at `now`, or any where `at_once`: what is to be given back.
    pub fn take_over(&self, at_once: bool, now: Timestamp) -> Option<(Reserved, u64)> {
        let mut lines = self.lines.borrow_mut();
        let is_over = |line: &&mut Line| line.left > 0 && (at_once || !line.is_current(now));
        let line = lines.iter_mut().find(is_over)?;
        let unspent = line.unspent();
        line.left = 0;
        unspent
    }

    /// Whether any passes are not spent.
    pub fn are_left(&self) -> bool {
        self.lines.borrow().iter().any(|line| line.left > 0)
    }
}

/// The passes that a swap of a page takes ahead.
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    handle: KeyHandle,
    from: Timestamp,
    until: Timestamp,
    /// How many passes besides the request's cost.
    ahead: u64,
}

impl KeyedPages {
    /// [`KeyedPages::reserve`] for a request that passes at once, and for so many more `ahead` at the same cost, or none. Nothing is known of what was
    /// taken (`None` beside the reservation) where the key has no window of its own whose newest bucket is that of `now`, or the limit is small.
    pub fn reserve_ahead(
        &self,
        page: &mut Vec<u8>,
        key: Key,
        terms: &KeyedTerms,
        (cost, ahead): (u64, u64),
        now: Timestamp,
    ) -> Option<(Reserved, Option<Taken>)> {
        let ahead = cost.saturating_mul(ahead);
        let most = cost.saturating_add(ahead.saturating_mul(PARTS));
        let fits = ahead > 0 && self.ask(page, key, terms, most, now) == KeyVerdict::Pass;
        let mut ahead = if fits { ahead } else { 0 };
        let reserved = self.reserve(page, key, terms, cost.saturating_add(ahead), 0, now)?;
        let bucket = self.bucket_of(now);
        let bucket = bucket.filter(|(number, ..)| {
            let handle = reserved.handle;
            let is_its_own = !handle.is_shared && !reserved.is_held;
            is_its_own && handle.at == *number as u32 && terms.count.whole() > PARTS
        });
        if bucket.is_none() && ahead > 0 {
            self.release(page, reserved, ahead);
            ahead = 0;
        }
        let taken = bucket.map(|(_, from, until)| Taken {
            handle: reserved.handle,
            from,
            until,
            ahead,
        });
        Some((reserved, taken))
    }

    /// The number of the bucket of `now` and its bounds, where windows count.
    fn bucket_of(&self, now: Timestamp) -> Option<(u64, Timestamp, Timestamp)> {
        let (window, _) = self.shape.window.filter(|_| self.shape.buckets > 0)?;
        let number = window.number(now);
        let from = Timestamp::from_nanos(number.checked_mul(window.bucket_nanos())?);
        Some((number, from, from.plus_nanos(window.bucket_nanos())))
    }
}
