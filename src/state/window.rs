//! The window of one rule: a running count, and a ring of its values at bucket starts.
//!
//! A window is not a sum of buckets here but a difference of two running counts:
//!
//! ```text
//!   admitted so far          17     23     23     31         now 34
//!   at the start of bucket  [ 4 ]  [ 5 ]  [ 6 ]  [ 7 ]
//!                             ^                            strict, 3 buckets: 34 - 17 = 17 since bucket 4 began
//!                                    ^                     as Sentinel counts: 34 - 23 = 11 since bucket 5 began
//! ```
//!
//! So a decision costs the same with 2 buckets and with 600, and virtual machines can share a window if they share two counters
//! ([`Counter`]): each keeps its own ring of values of `admitted`.
//!
//! In a shared window `admitted` is read *before* the clock ([`RuleWindow::observe`]): a value that was read late but filed
//! under an earlier bucket would hide what was admitted in between.

mod ahead;
mod held;

use crate::compat::AsSentinel;
use crate::rule::{Count, Counting};
use crate::snapshots::Snapshots;
use crate::state::counter::{Counter, Past};
use crate::state::history::{History, RunningCount};
use crate::state::loans::Loans;
use crate::stats::occupy::LoanRule;
use crate::time::Timestamp;
use crate::window::Window;
use std::cell::Cell;
use std::fmt;

/// More than any count: the assumed use while the past is unknown.
const FULL: u64 = 1 << 62;

/// How much of the leaving bucket's passes still counts at `now`, in the bucket that starts at `start`: in proportion to the
/// time left in that bucket. A clock behind the bucket is taken to stand at its start.
#[inline]
fn kept_part(leaving: u64, start: Timestamp, now: Timestamp, window: Window) -> f64 {
    let elapsed = now.as_nanos().saturating_sub(start.as_nanos());
    leaving as f64 * (window.bucket_nanos() - elapsed) as f64 / window.bucket_nanos() as f64
}

/// The newest bucket of a window, in cells of their own: what a decision reads stays in registers.
#[derive(Default)]
struct Current {
    start: Cell<u64>,
    /// [`Window::length_from`] its start; 0 while there is none, so that no instant lies in it.
    length: Cell<u64>,
    /// `admitted` when the oldest bucket that counts in full began.
    base: Cell<u64>,
    /// Admissions in the bucket before that one.
    leaving: Cell<u64>,
}

impl Current {
    /// Whether `now` lies in it.
    #[inline]
    fn contains(&self, now: Timestamp) -> bool {
        now.as_nanos().wrapping_sub(self.start.get()) < self.length.get()
    }

    #[inline]
    fn is_known(&self) -> bool {
        self.length.get() > 0
    }

    /// The next call with a time has to look at the ring.
    fn forget(&self) {
        self.length.set(0);
    }
}

/// The window of one rule.
///
/// A request that is admitted now but released later, because it waits, is a loan: it counts from now until the bucket of its
/// release leaves the window. So no interval holds more than the limit, waiting requests included.
pub struct RuleWindow<T> {
    /// How the rule that asks counts. (Two rules with different ways to count may share a window: [`RuleWindow::count_as`].)
    counting: Cell<Counting>,
    /// Whether loans are Sentinel's: they count once their bucket has begun, and only if a request comes during it.
    loan_rule: LoanRule,
    loans: Loans,
    /// The latest known value of `admitted`, and its past.
    history: History<u64>,
    /// A copy of the history's newest bucket: a decision reads only this.
    current: Current,
    /// What was settled at an unknown time, and is to be charged by the next call with a time.
    late: Cell<u64>,
    counter: T,
}

impl<T: Counter> RuleWindow<T> {
    /// A window over the counts of `counter`.
    pub fn new(window: Window, counting: Counting, counter: T, past: Past) -> RuleWindow<T> {
        let (initial, last) = match &past {
            Past::Fresh => (0, 0),
            Past::Unknown { admitted } => (admitted.wrapping_sub(FULL), *admitted),
            Past::Kept(kept) => {
                let last = kept.last(0, window).unwrap_or(0);
                (last.wrapping_sub(FULL), last)
            }
        };
        let window = RuleWindow {
            counting: Cell::new(counting),
            loan_rule: LoanRule::Exact,
            loans: Loans::default(),
            history: History::new(window, initial, last),
            current: Current::default(),
            late: Cell::new(0),
            counter,
        };
        if let Past::Kept(kept) = &past {
            window.history.restore(kept.newest);
            window.take_up(kept, 0);
        }
        window
    }

    /// This window, lending as Sentinel does: a loan counts once its bucket has begun, and only if a request comes during it.
    #[must_use]
    pub fn with_sentinel_loans(self) -> RuleWindow<T> {
        RuleWindow {
            loan_rule: LoanRule::Sentinel,
            ..self
        }
    }

    /// Counts in this way from now on: what has been counted stays.
    #[inline]
    pub fn count_as(&self, counting: Counting) {
        if self.counting.get() != counting {
            self.counting.set(counting);
            self.count_anew();
        }
    }

    #[cold]
    #[inline(never)]
    fn count_anew(&self) {
        // A loan that was given up has to be settled by the next call with a time.
        if self.current.is_known() {
            self.refresh();
        }
    }

    #[inline]
    pub(crate) fn has_sentinel_loans(&self) -> bool {
        AsSentinel::of(self.loan_rule == LoanRule::Sentinel).is_some()
    }

    /// The geometry.
    pub fn window(&self) -> Window {
        self.history.window()
    }

    /// What has been admitted so far, as far as this window knows, without loans.
    #[inline]
    pub fn admitted(&self) -> u64 {
        self.history.last.get()
    }

    /// The counts.
    pub fn counter(&self) -> &T {
        &self.counter
    }

    /// Reads what has been admitted. To be called before the clock is read for the next call here that takes a time.
    #[inline]
    pub fn observe(&self) {
        if T::IS_SHARED {
            self.history.seen.set(self.counter.admitted());
        }
    }

    /// Brings the ring up to `now` and files what was observed before.
    #[inline]
    pub fn advance(&self, now: Timestamp) {
        if !self.current.contains(now) {
            self.move_to(now);
        }
        if T::IS_SHARED
            && let Some(seen) = self.history.seen.take()
        {
            if seen.is_behind(self.history.last.get()) {
                self.forget(seen);
            }
            self.history.last.set(seen);
        }
    }

    #[cold]
    #[inline(never)]
    fn move_to(&self, now: Timestamp) {
        // All that was admitted or observed before this call lies before `now`: the new buckets begin with it.
        let before = self.history.newest_start();
        self.take_back_given_up(now);
        if self.lends() {
            self.move_to_paying(now);
        } else {
            self.history.move_to(now);
        }
        if self.history.newest_start() < before {
            // The clock has stepped back by an interval or more: like the rest of the window, loans are counted now.
            let lent = self.loans.take_before(Timestamp::MAX);
            self.pay(lent, true);
        }
        match self.counter.published() {
            None => self.refresh(),
            // All that was known here is in there ([`RuleWindow::rest`]).
            Some(Past::Kept(kept)) => self.take_up(&kept, 0),
            Some(_) => self.forget(self.history.last.get()),
        }
        self.charge_late();
    }

    /// Moves the ring, and counts each loan in the bucket of its release.
    #[inline(never)]
    fn move_to_paying(&self, now: Timestamp) {
        let current = self.history.window().start(now);
        self.history.move_to_with(now, move |start, began| {
            let gone_by = self.loans.take_before(start);
            self.pay(gone_by, !self.has_sentinel_loans());
            self.history.begin(began);
            let due = self.loans.take_before(start.plus_nanos(1));
            self.pay(due, !self.has_sentinel_loans() || start == current);
        });
    }

    /// Records that all this window knows is published: the next call with a time reads what other workers have published by
    /// then.
    pub fn rest(&self) {
        self.current.forget();
    }

    /// Takes over what another window over the same counts has published, and keeps all that was known here; `index` selects
    /// the count.
    pub fn take_up(&self, kept: &Snapshots, index: usize) {
        self.history
            .take_up(|start, window| kept.at(index, start, window));
        // What was observed may be older than this.
        if let (Some(newest), Some(seen)) = (self.history.at_start(0), self.history.seen.get())
            && !newest.get().is_behind(seen)
        {
            self.history.seen.set(Some(newest.get()));
        }
        self.refresh();
    }

    /// Counts `n` passes of a loan, or forgets them.
    fn pay(&self, n: u64, counts: bool) {
        if n == 0 || !counts {
            return;
        }
        if self.has_sentinel_loans() && self.counter.reserve(n).is_none() {
            return;
        }
        self.counter.admit(n);
        self.history
            .last
            .set(self.history.last.get().wrapping_add(n));
        // What was observed is older than this.
        self.history
            .seen
            .set(self.history.seen.get().map(|seen| seen.wrapping_add(n)));
    }

    /// Takes back the loans that were given up in time.
    fn take_back_given_up(&self, now: Timestamp) {
        if self.loans.total() > 0 {
            let given_up = self.loans.take_given_up(now);
            self.release_loan(given_up);
        }
    }

    fn release_loan(&self, n: u64) {
        // A loan of Sentinel's kind has reserved nothing yet.
        if n > 0 && !self.has_sentinel_loans() {
            self.counter.release(n);
        }
    }

    /// Records that `admitted` has fallen to `seen`: it was reset, and what was admitted before is unknown. Until an interval
    /// has passed, the whole window counts as used.
    #[cold]
    #[inline(never)]
    fn forget(&self, seen: u64) {
        self.history.reset(seen.wrapping_sub(FULL));
        self.counter.fallen();
        self.refresh();
    }

    /// Copies what a decision needs from the ring.
    fn refresh(&self) {
        let n = self.history.window().sample_count() as usize;
        let at = |behind| self.history.at_start(behind).map_or(0, Cell::get);
        let base = at(if self.counting.get() == Counting::Strict {
            n
        } else {
            n - 1
        });
        let Some(start) = self.history.newest_start() else {
            return;
        };
        self.current.start.set(start.as_nanos());
        self.current.base.set(base);
        self.current.leaving.set(base.wrapping_sub(at(n)));
        let length = self.history.window().length_from(start);
        self.current.length.set(length);
    }

    /// Whether nothing counts at `now`. Admissions of other workers since the last observation count, too. Changes nothing.
    pub(crate) fn is_idle(&self, now: Timestamp) -> bool {
        let last = self.history.last.get();
        let reads_last = || {
            self.counter
                .admitted()
                .is_none_or(|admitted| admitted == last)
                && self.counter.reserved() == last
        };
        self.loans.total() == 0 && self.sum(now) == 0.0 && reads_last()
    }

    /// An upper bound of what counts at `now`, including what other workers are about to admit; at most the largest count.
    /// Changes nothing.
    pub(crate) fn most_used(&self, now: Timestamp) -> u64 {
        self.sum_with_holds(now).ceil().min(Count::MAX) as u64
    }

    /// Whether there are loans: they count when [`RuleWindow::advance`] reaches the buckets of their releases.
    pub fn lends(&self) -> bool {
        self.loans.total() > 0
    }

    /// How much counts at `now`, loans included. Changes nothing.
    pub fn sum(&self, now: Timestamp) -> f64 {
        self.load(self.history.last.get(), now)
    }

    /// How much counts at `now`, if this much has been `admitted`. Changes nothing.
    pub fn load(&self, admitted: u64, now: Timestamp) -> f64 {
        let now = self.history.reading_time(now);
        let window = self.history.window();
        let (start, n) = (window.start(now), u64::from(window.sample_count()));
        let base = |buckets| self.history.before(start, buckets);
        match self.counting.get() {
            Counting::Strict => {
                (admitted.wrapping_sub(base(n))).saturating_add(self.lent(start, n)) as f64
            }
            Counting::Sentinel => {
                (admitted.wrapping_sub(base(n - 1))).saturating_add(self.lent(start, n - 1)) as f64
            }
            Counting::Weighted => {
                let full = self.lent(start, n - 1);
                let leaving = base(n - 1).wrapping_sub(base(n)) + (self.lent(start, n) - full);
                admitted.wrapping_sub(base(n - 1)) as f64
                    + full as f64
                    + kept_part(leaving, start, now, window)
            }
        }
    }

    /// The loans that count in the bucket starting at `start`: of the buckets from `behind` before it on.
    fn lent(&self, start: Timestamp, behind: u64) -> u64 {
        if self.loans.total() == 0 {
            return 0;
        }
        if self.has_sentinel_loans() {
            return self.loans.at(start);
        }
        let behind = behind.saturating_mul(self.history.window().bucket_nanos());
        let first = start.as_nanos().saturating_sub(behind);
        self.loans.from(Timestamp::from_nanos(first))
    }

    /// Whether `cost` more fits into `limit`. The window has been advanced to `now`. Reserves nothing.
    #[inline]
    pub fn has_room(&self, limit: Count, cost: u64, now: Timestamp) -> bool {
        let lent = if self.has_sentinel_loans() {
            0
        } else {
            self.loans.total()
        };
        let counted = self.history.last.get().wrapping_add(lent);
        self.fits(counted, limit, cost, now)
    }

    /// Whether `counted`, with `cost` more, is within the limit.
    #[inline]
    fn fits(&self, counted: u64, limit: Count, cost: u64, now: Timestamp) -> bool {
        let Current {
            start,
            base,
            leaving,
            ..
        } = &self.current;
        if !self.current.is_known() {
            return false;
        }
        let sum = counted.wrapping_sub(base.get());
        match self.counting.get() {
            Counting::Weighted => {
                let start = Timestamp::from_nanos(start.get());
                let kept = kept_part(leaving.get(), start, now, self.history.window());
                sum as f64 + kept + cost as f64 <= limit.get()
            }
            _ => sum.saturating_add(cost) <= limit.whole(),
        }
    }

    /// Reserves `cost` if it fits into `limit`; else, or if it could not be counted, nothing. The window has been advanced to
    /// `now`.
    #[inline]
    pub fn reserve(&self, limit: Count, cost: u64, now: Timestamp) -> bool {
        let Some(taken) = self.counter.reserve(cost) else {
            return false;
        };
        let fits = self.fits(taken, limit, 0, now);
        if !fits {
            self.counter.release(cost);
        }
        fits
    }

    /// Admits `cost` if it fits into `limit`; else, or if it could not be counted, nothing. The window has been advanced to
    /// `now`.
    #[inline]
    pub(super) fn take(&self, limit: Count, cost: u64, now: Timestamp) -> bool {
        let looks_first = T::IS_SHARED; // a request that is refused writes nothing that is shared
        let takes =
            (!looks_first || self.has_room(limit, cost, now)) && self.reserve(limit, cost, now);
        if takes {
            self.admit(cost);
        }
        takes
    }

    /// Releases a reservation that will not be admitted.
    pub fn release(&self, cost: u64) {
        self.counter.release(cost);
    }

    /// Reserves the cost of a request that is admitted now and released at `at`, if it fits into `limit` by then; else, or if
    /// it could not be counted, nothing. The window has been advanced to `now`.
    pub fn lend(&self, limit: Count, cost: u64, at: Timestamp, now: Timestamp) -> bool {
        let at = self.history.reading_time(at.max(now));
        if !self.has_sentinel_loans() {
            let Some(taken) = self.counter.reserve(cost) else {
                return false;
            };
            let admitted = taken.wrapping_sub(self.loans.total());
            if self.load(admitted, at) > limit.get() {
                self.counter.release(cost);
                return false;
            }
        }
        let start = self.history.window().start(at);
        if self.has_sentinel_loans() && self.history.newest_start() == Some(start) {
            // The request is released within the current bucket, and counts there.
            let counted = self.counter.reserve(cost).is_some();
            if counted {
                self.admit(cost);
            }
            return counted;
        }
        self.loans.add(start, cost);
        true
    }

    /// Takes back the loan of a request to be released at `at`, if that is still to come.
    pub fn take_back(&self, cost: u64, at: Timestamp) {
        let start = self.history.window().start(self.history.reading_time(at));
        let taken_back = self.loans.remove(start, cost);
        self.release_loan(taken_back);
    }

    /// Releases what was just reserved for a request, or the loan of one that waits for `wait` nanoseconds.
    pub(super) fn release_after(&self, cost: u64, wait: u64, now: Timestamp) {
        if wait == 0 {
            self.release(cost);
        } else {
            self.take_back(cost, now.plus_nanos(wait));
        }
    }

    /// As [`RuleWindow::take_back`], at an unknown time: the next call with a time decides whether that was before the bucket
    /// began.
    pub fn give_up(&self, cost: u64, at: Timestamp) {
        let start = self.history.window().start(self.history.reading_time(at));
        self.loans.give_up(start, cost);
        self.current.forget();
    }

    /// Turns a reservation into admissions.
    #[inline]
    pub fn admit(&self, cost: u64) {
        self.counter.admit(cost);
        if T::IS_SHARED {
            self.history.seen.set(None); // it is older than this
        }
        self.history
            .last
            .set(self.history.last.get().wrapping_add(cost));
    }

    /// Counts a pass, whether or not there is room.
    pub(super) fn count(&self, cost: u64) {
        if self.counter.reserve(cost).is_some() {
            self.admit(cost);
        }
    }

    /// Counts a request that waits for `wait` nanoseconds, whether or not there is room.
    pub(super) fn charge(&self, cost: u64, wait: u64, now: Timestamp) {
        if wait > 0 {
            self.lend(Count::nearest(Count::MAX), cost, now.plus_nanos(wait), now);
        } else {
            self.count(cost);
        }
    }

    /// Gives back the `cost` of a request that passed at `charged`, as far as it still counts; nothing if the counts are
    /// shared. The window has been advanced to the present.
    pub(crate) fn refund(&self, cost: u64, charged: Timestamp) {
        let (window, newest) = (self.history.window(), self.history.newest_start());
        let (Some(newest), None) = (newest, self.counter.admitted()) else {
            return;
        };
        let since = newest
            .as_nanos()
            .saturating_sub(window.start(charged).as_nanos());
        let behind = since / window.bucket_nanos();
        if behind > u64::from(window.sample_count()) {
            return;
        }
        let began = |behind: u64| self.history.at_start(behind as usize);
        let ended = match behind.checked_sub(1) {
            Some(next) => began(next).map_or(0, Cell::get),
            None => self.history.last.get(),
        };
        let counted = ended.wrapping_sub(began(behind).map_or(ended, Cell::get));
        let back = cost.min(counted);
        for later in (0..behind).filter_map(began) {
            later.set(later.get().wrapping_sub(back));
        }
        self.counter.release(back);
        self.history
            .last
            .set(self.history.last.get().wrapping_sub(back));
        self.refresh();
    }

    /// All that another window over the same counts needs to continue this one; `None` before the first bucket.
    pub fn snapshots(&self) -> Option<Snapshots> {
        self.history.snapshots(&[|admitted| admitted])
    }
}

impl<T: Counter> fmt::Debug for RuleWindow<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let window = self.history.window();
        write!(
            f,
            "{:?} window of {} x {:?}: ",
            self.counting.get(),
            window.sample_count(),
            window.bucket_length()
        )?;
        match self.snapshots() {
            None => f.write_str("not begun"),
            Some(kept) => {
                let (last, at_start) = kept.counts.split_first().unwrap_or((&0, &[]));
                let at_start: Vec<&u64> = at_start.iter().rev().collect();
                let newest = kept.newest.as_millis();
                write!(f, "{at_start:?} at starts up to {newest}, now {last}")
            }
        }
    }
}
