//! Looking ahead in a window: when a request fits, when it can borrow, when quota comes back.

use super::RuleWindow;
use crate::rule::{Count, Counting};
use crate::snapshots::serial_since;
use crate::state::counter::Counter;
use crate::stats::occupy::OCCUPY_TIMEOUT_MS;
use crate::time::Timestamp;
use std::time::Duration;

const OCCUPY_TIMEOUT: Duration = Duration::from_millis(OCCUPY_TIMEOUT_MS);

impl<T: Counter> RuleWindow<T> {
    /// How long a request of that cost would have to wait for a future bucket to pay for it; `None` for [`OCCUPY_TIMEOUT_MS`]
    /// or more. The window has been advanced to `now` and has no room.
    ///
    /// Only what has left the window by then is lent. Loans of other workers over the same counts are assumed to stay.
    ///
    /// Sentinel: `StatisticNode.tryOccupyNext`.
    #[doc(alias = "tryOccupyNext")]
    pub fn time_to_loan(&self, limit: Count, cost: u64, now: Timestamp) -> Option<Duration> {
        let wait = if self.has_sentinel_loans() {
            self.time_to_sentinels_loan(limit, cost, now)?
        } else {
            let cost = cost.saturating_add(self.lent_elsewhere());
            self.time_to_room(limit, cost, now)?
        };
        (wait < OCCUPY_TIMEOUT).then_some(wait)
    }

    /// What is reserved beyond the admissions and the loans of this window: what other workers over the same counts have lent,
    /// or are about to admit. This window does not know how long that counts.
    fn lent_elsewhere(&self) -> u64 {
        let known = self.history.last.get().wrapping_add(self.loans.total());
        serial_since(self.counter.reserved(), known).unwrap_or(0)
    }

    /// As Sentinel lends: the passes of the bucket that leaves at the next boundary, at that boundary.
    fn time_to_sentinels_loan(&self, limit: Count, cost: u64, now: Timestamp) -> Option<Duration> {
        let window = self.history.window();
        let now = self.history.reading_time(now);
        let (start, n) = (window.start(now), u64::from(window.sample_count()));
        let borrowed = self.loans.from(now.plus_nanos(1));
        if borrowed as f64 >= limit.get() {
            return None;
        }
        let base = |buckets| self.history.before(start, buckets);
        let leaving = base(n.saturating_sub(2)).wrapping_sub(base(n - 1));
        let pass = self.history.last.get().wrapping_sub(base(n - 1)) + self.loans.at(start);
        let then = (pass + borrowed)
            .saturating_add(cost)
            .saturating_sub(leaving);
        (then as f64 <= limit.get()).then(|| start.plus_nanos(window.bucket_nanos()).since(now))
    }

    /// How long after `now` a request of that cost fits or can borrow, if no other request came; `None` if it never can. The
    /// window has been advanced to `now`.
    pub(crate) fn time_to_loan_or_room(
        &self,
        limit: Count,
        cost: u64,
        now: Timestamp,
    ) -> Option<Duration> {
        let nanosecond = Duration::from_nanos(1);
        if !self.has_sentinel_loans() {
            let room = self.time_to_room(limit, cost, now)?;
            return Some(room.saturating_sub(OCCUPY_TIMEOUT - nanosecond));
        }
        // In Sentinel nothing can be borrowed exactly at a bucket's start, only just after it.
        let fits = |sum: f64| sum + cost as f64 <= limit.get();
        let lends = |at| {
            let wait = self.time_to_sentinels_loan(limit, cost, at);
            wait.is_some_and(|wait| wait < OCCUPY_TIMEOUT)
        };
        let wait = self.first_fit(
            now,
            |_| true,
            |at, sum| fits(sum) || lends(at.plus_nanos(1)),
        )?;
        let at = now.plus_nanos(wait.as_nanos() as u64);
        Some(if fits(self.sum(at)) {
            wait
        } else {
            wait + nanosecond
        })
    }

    /// How long after `now` a `cost` first fits into `limit`, if no other request came; `None` if it never does. The window has
    /// been advanced to `now`.
    pub fn time_to_room(&self, limit: Count, cost: u64, now: Timestamp) -> Option<Duration> {
        if cost as f64 > limit.get() {
            return None;
        }
        Some(self.time_until(now, |sum| sum + cost as f64 <= limit.get()))
    }

    /// How long after `now` quota next comes back, if no other request came: zero if none is used.
    pub fn time_to_more(&self, now: Timestamp) -> Duration {
        let used = self.sum(now);
        self.time_until(now, |sum| sum < used || used == 0.0)
    }

    /// How long after `asked` the sum first satisfies `fits`. It does in the end, since the sum only falls.
    fn time_until(&self, asked: Timestamp, fits: impl Fn(f64) -> bool) -> Duration {
        let then = self.first_fit(asked, &fits, |_, sum| fits(sum));
        then.unwrap_or_default()
    }

    /// How long after `asked` an instant and the sum at it first satisfy `fits`. Once true it stays true until its bucket ends.
    /// Buckets whose sum is not `possible` are skipped. `None` if it never does.
    pub(crate) fn first_fit(
        &self,
        asked: Timestamp,
        possible: impl Fn(f64) -> bool,
        fits: impl Fn(Timestamp, f64) -> bool,
    ) -> Option<Duration> {
        let now = self.history.reading_time(asked);
        let window = self.history.window();
        let start = window.start(now);
        let fits_at = |at: Timestamp| fits(at, self.sum(at));
        let boundary = |ahead: u64| start.plus_nanos(ahead.saturating_mul(window.bucket_nanos()));
        if fits_at(now) {
            return Some(Duration::ZERO);
        }
        let length = window.bucket_nanos();
        let buckets_to =
            |to: Timestamp, from: Timestamp| to.as_nanos().saturating_sub(from.as_nanos()) / length;
        let last_loan = self.loans.last_start();
        let lent = last_loan.map_or(0, |last| buckets_to(last, start));
        let newest = self.history.newest_start().unwrap_or(start);
        let (n, since_newest) = (u64::from(window.sample_count()), buckets_to(start, newest));
        let sum_at = |ahead: u64| match self.counting.get() {
            Counting::Strict if last_loan.is_none() => self.admitted_since(n, since_newest + ahead),
            Counting::Sentinel if last_loan.is_none() => {
                self.admitted_since(n - 1, since_newest + ahead)
            }
            _ => self.sum(boundary(ahead)),
        };
        // After this many boundaries nothing counts any more.
        let last = n + 1 + lent;
        let mut first = 1;
        if lent == 0 || !self.has_sentinel_loans() {
            // Binary search: the sum only falls. (Sentinel's loans begin to count when their bucket does.)
            let (mut full, mut fits) = (0, last);
            while fits - full > 1 {
                let middle = full.midpoint(fits);
                if possible(sum_at(middle)) {
                    fits = middle
                } else {
                    full = middle
                }
            }
            first = fits;
        }
        let ahead = (first..=last).find(|ahead| fits(boundary(*ahead), sum_at(*ahead)))?;
        let mut at = boundary(ahead);
        if self.counting.get() == Counting::Weighted {
            at = self.first_fit_within(boundary(ahead - 1).max(now), at, &fits_at);
        }
        Some(at.since(asked))
    }

    /// Admissions since the start of the bucket that lies `buckets` before the bucket `ahead` of the newest.
    #[cfg_attr(not(feature = "small"), inline(always))] // a search asks for it over and over
    fn admitted_since(&self, buckets: u64, ahead: u64) -> f64 {
        let base = self.history.before_bucket(buckets, ahead);
        self.history.last.get().wrapping_sub(base) as f64
    }

    /// The first whole millisecond in `(full, fits]` at which `fits_at` holds; it holds at `fits`.
    fn first_fit_within(
        &self,
        full: Timestamp,
        fits: Timestamp,
        fits_at: &impl Fn(Timestamp) -> bool,
    ) -> Timestamp {
        let (mut full, mut fits) = (full.as_millis(), fits.as_millis());
        while fits.saturating_sub(full) > 1 {
            let middle = full.midpoint(fits);
            if fits_at(Timestamp::from_millis(middle)) {
                fits = middle
            } else {
                full = middle
            }
        }
        Timestamp::from_millis(fits)
    }
}
