//! Borrowing: passes taken from buckets that have not begun.
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

/// How long a borrowing request may wait, in milliseconds: a wait of this or more is not possible.
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
#[derive(Clone)]
pub struct FutureBucketLeapArray {
    window: Window,
    /// By slot: the promises of one interval ahead, and of one that has begun without its buckets being opened.
    promised: Box<[Cell<Option<Promise>>]>,
    /// Whether anything has ever been promised: most rings lend nothing.
    lends: Cell<bool>,
}

/// Promised passes of one bucket.
#[derive(Clone, Copy)]
struct Promise {
    start: Timestamp,
    passes: u64,
}

impl FutureBucketLeapArray {
    /// Nothing promised yet. Passes may be borrowed up to one interval of `window` ahead, exclusive.
    pub fn new(window: Window) -> FutureBucketLeapArray {
        let slots = u64::from(window.sample_count()) * 2;
        FutureBucketLeapArray {
            window,
            promised: (0..slots).map(|_| Cell::new(None)).collect(),
            lends: Cell::new(false),
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
            // The promise of a later bucket was made before the clock stepped back: it is pulled back.
            Some(other) if other.start >= start => other.passes,
            _ => 0,
        };
        self.lends.set(true);
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

    /// How many passes are promised of buckets that begin after `after` and at `now` at the latest.
    #[inline]
    fn due(&self, after: Timestamp, now: Timestamp) -> u64 {
        if !self.lends.get() {
            return 0;
        }
        let due = self
            .promised
            .iter()
            .filter_map(Cell::get)
            .filter(|promise| promise.start > after && promise.start <= now);
        due.map(|promise| promise.passes).sum()
    }

    /// Takes the promised passes of the bucket that starts at `start`, to be paid; also passes promised before the clock
    /// stepped back to `now`, of buckets too far ahead to borrow from.
    #[inline]
    fn take(&self, start: Timestamp, now: Timestamp) -> u64 {
        if !self.lends.get() {
            return 0;
        }
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

/// What happens to a borrowed pass if nothing happens in its bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoanRule {
    /// It counts in its bucket all the same.
    Exact,
    /// It is lost, as in Sentinel.
    Sentinel,
}

/// A ring of buckets from which passes may be borrowed before they begin.
///
/// Sentinel: `OccupiableBucketLeapArray`. A borrowed pass counts in the bucket that pays for it, once that has begun.
#[derive(Clone)]
pub struct OccupiableBucketLeapArray {
    main: BucketLeapArray,
    borrowed: FutureBucketLeapArray,
    loan_rule: LoanRule,
}

impl OccupiableBucketLeapArray {
    /// An empty ring, from whose buckets passes may be borrowed less than one `ahead` in advance.
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

    /// The bucket of `now`, opened if need be, for an event that does not touch it: a recorded loan. (Sentinel records that in
    /// its minute array only.)
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
        match self.main.newest_start().zip(self.main.newest()) {
            // After the clock has stepped back, a bucket that has begun seems to be still to come.
            Some((start, newest)) if self.main.window().start(at) <= start => newest.pay(n),
            _ => self.borrowed.add(at, n),
        }
    }

    /// How many borrowed passes have come due at `now` in buckets that no call has opened yet; 0 if such passes are lost.
    pub(crate) fn due(&self, now: Timestamp) -> u64 {
        if self.loan_rule == LoanRule::Sentinel {
            return 0;
        }
        // The very first bucket pays its own loans; nothing was borrowed from earlier buckets.
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
