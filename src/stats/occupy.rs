//! Borrowing: passes that are taken from buckets which have not begun.
//!
//! ```text
//!   main ring     [ 500.. pass 6 ] [ 1000.. pass 4 ]
//!   borrow ring                                      [ 1500.. promised 2 ]
//!                                          ^ now
//!   when 1500 comes, its bucket begins with 2 passes
//! ```

use crate::leap_array::LeapArray;
use crate::stats::metric_bucket::MetricBucket;
use crate::time::Timestamp;
use crate::window::Window;
use std::cell::Cell;

/// How long a borrowing request may wait: an answer of this or more is a no.
///
/// Sentinel: `OccupyTimeoutProperty`.
pub const OCCUPY_TIMEOUT_MS: u64 = 500;

/// A ring of buckets of events.
///
/// Sentinel: `BucketLeapArray`.
pub type BucketLeapArray = LeapArray<MetricBucket>;

/// Passes promised by bucket. Only buckets that have not begun count.
///
/// Sentinel: `FutureBucketLeapArray`, a whole ring of buckets; one count for each is enough.
pub struct FutureBucketLeapArray {
    window: Window,
    /// By slot: the promises of one interval ahead, and of one that has begun without its buckets being opened.
    promised: Box<[Cell<Option<Promise>>]>,
}

/// Passes of the bucket that starts then.
#[derive(Clone, Copy)]
struct Promise {
    start: Timestamp,
    passes: u64,
}

impl FutureBucketLeapArray {
    /// Nothing promised yet. `window` says how far ahead one may borrow: less than one interval.
    pub fn new(window: Window) -> FutureBucketLeapArray {
        let slots = u64::from(window.sample_count()) * 2;
        FutureBucketLeapArray {
            window,
            promised: (0..slots).map(|_| Cell::new(None)).collect(),
        }
    }

    /// Promises `n` passes of the bucket of `at`.
    pub fn add(&self, at: Timestamp, n: u64) {
        let start = self.window.start(at);
        let index = self.window.number(at) % self.promised.len() as u64;
        let Some(slot) = self.promised.get(index as usize) else {
            return;
        };
        let promised = match slot.get() {
            // A later bucket's was made before the clock stepped back: it is pulled back.
            Some(other) if other.start >= start => other.passes,
            _ => 0,
        };
        slot.set(Some(Promise {
            start,
            passes: promised.saturating_add(n),
        }));
    }

    /// How many passes are promised of buckets that begin after `now`.
    ///
    /// Sentinel: `OccupiableBucketLeapArray.currentWaiting`.
    #[doc(alias = "currentWaiting")]
    pub fn waiting(&self, now: Timestamp) -> u64 {
        self.promised
            .iter()
            .filter_map(Cell::get)
            .filter(|promise| promise.start > now)
            .map(|promise| promise.passes)
            .sum()
    }

    /// How many passes are promised of buckets that begin after `after` and not after `now`.
    fn due(&self, after: Timestamp, now: Timestamp) -> u64 {
        let due = self
            .promised
            .iter()
            .filter_map(Cell::get)
            .filter(|promise| promise.start > after && promise.start <= now);
        due.map(|promise| promise.passes).sum()
    }

    /// How many passes of the bucket that starts at `start` were promised, once: they are paid with this. With them go those
    /// that were promised before the clock stepped back to `now`, of buckets further ahead than one can borrow.
    fn take(&self, start: Timestamp, now: Timestamp) -> u64 {
        let too_far = self
            .window
            .start(now)
            .plus_nanos(self.window.interval_nanos());
        let is_due = |promise: Promise| promise.start == start || promise.start >= too_far;
        let due = self
            .promised
            .iter()
            .filter(|slot| slot.get().is_some_and(is_due));
        due.filter_map(Cell::take)
            .map(|promise| promise.passes)
            .sum()
    }
}

/// What becomes of a borrowed pass in whose bucket nothing happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoanRule {
    /// It counts in its bucket all the same.
    Exact,
    /// It is lost, as in Sentinel.
    Sentinel,
}

/// A ring of buckets from which passes may be borrowed before they begin.
///
/// Sentinel: `OccupiableBucketLeapArray`. A borrowed pass counts in the bucket that pays it, when that has begun.
pub struct OccupiableBucketLeapArray {
    main: BucketLeapArray,
    borrowed: FutureBucketLeapArray,
    loan_rule: LoanRule,
}

impl OccupiableBucketLeapArray {
    /// An empty ring, from whose buckets one may borrow less than one `ahead` in advance.
    pub fn new(window: Window, ahead: Window, loan_rule: LoanRule) -> OccupiableBucketLeapArray {
        OccupiableBucketLeapArray {
            main: LeapArray::new(window),
            borrowed: FutureBucketLeapArray::new(ahead),
            loan_rule,
        }
    }

    /// The buckets, for reading.
    pub fn main(&self) -> &BucketLeapArray {
        &self.main
    }

    /// The bucket of `now`, opened if need be, with the passes in it that were borrowed before.
    #[doc(alias = "currentWindow")]
    #[inline]
    pub fn current_window(&self, now: Timestamp) -> &MetricBucket {
        let bucket = self.open_window(now);
        if self.loan_rule == LoanRule::Sentinel {
            self.main
                .newest_start()
                .into_iter()
                .for_each(|start| bucket.pay(self.borrowed.take(start, now)));
        }
        bucket
    }

    /// The bucket of `now`, opened if need be, for what happens there and yet does not touch it: a loan that is recorded.
    /// (Sentinel writes that to the minute alone, which is another array.)
    #[inline]
    pub(crate) fn open_window(&self, now: Timestamp) -> &MetricBucket {
        let opened = |bucket: &MetricBucket, start| {
            if self.loan_rule == LoanRule::Exact {
                bucket.pay(self.borrowed.take(start, now));
            }
        };
        self.main.current_window_with(now, opened).value()
    }

    /// Borrows `n` passes from the bucket of `at`, which has not begun.
    ///
    /// Sentinel: `OccupiableBucketLeapArray.addWaiting`.
    #[doc(alias = "addWaiting")]
    pub fn add_waiting(&self, at: Timestamp, n: u64) {
        match self.main.newest_start().zip(self.main.newest_and_oldest(0)) {
            // To a clock that has stepped back a bucket seems to come that has begun.
            Some((start, (newest, _))) if self.main.window().start(at) <= start => newest.pay(n),
            _ => self.borrowed.add(at, n),
        }
    }

    /// How many borrowed passes have come due at `now` in buckets that no call has opened yet; 0 where such passes are lost.
    pub(crate) fn due(&self, now: Timestamp) -> u64 {
        if self.loan_rule == LoanRule::Sentinel {
            return 0;
        }
        // The first bucket of all pays its own; nothing was borrowed from the buckets before it.
        let first =
            || Timestamp::from_nanos(self.main.window().start(now).as_nanos().saturating_sub(1));
        self.borrowed
            .due(self.main.newest_start().unwrap_or_else(first), now)
    }

    /// How many borrowed passes are still to come at `now`.
    pub fn waiting(&self, now: Timestamp) -> u64 {
        self.borrowed.waiting(now)
    }
}
