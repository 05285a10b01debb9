//! Holds: what requests in flight have reserved of a window whose cost is known only when they end.
//!
//! A hold is a reservation that is not yet an admission: it counts in full, for all workers, however long its request lasts.
//! Settled, the actual cost is admitted in the bucket of that instant, and the rest of the reservation is released.
//!
//! **No interval holds more than the limit of the cost of requests that ran in it**, in a strict window, if no estimate is too
//! low and the limit does not fall. Take an interval as long as the window, or shorter, and the last request that was let in by its
//! end, at `t`. Each request that ran in the interval until `t` was then either held, with an estimate that is not too low, or
//! had been settled within the interval: less than a window before `t`, so that its actual cost counted at `t`. Both counted
//! when the last request was let in, so together, with its own estimate, they are within the limit. Requests let in later do
//! not run in the interval. (If no request was let in during it, all that ran in it were held when the last one before it was let
//! in.) Nothing is ever given back to an old bucket: it would make room in intervals that the request did run in.
//!
//! Where estimates are too low, the sum is larger by what requests of the interval cost beyond them, and no more: that is
//! charged, too, over the limit if need be.

use super::RuleWindow;
use crate::rule::Count;
use crate::state::counter::Counter;
use crate::state::history::RunningCount;
use crate::time::Timestamp;
use std::time::Duration;

/// How soon a request may try again that only holds keep from passing: their end is unknown.
const HOLD_RETRY: Duration = Duration::from_secs(1);

impl<T: Counter> RuleWindow<T> {
    /// What has been admitted, and what is held or about to be admitted by any worker.
    pub(super) fn most(&self) -> u64 {
        let (reserved, last) = (self.counter.reserved(), self.history.last.get());
        if reserved.is_behind(last) {
            last
        } else {
            reserved
        }
    }

    /// Whether `cost` more fits into `limit` beside all that is held. The window has been advanced to `now`. Reserves nothing.
    pub fn has_room_beside_holds(&self, limit: Count, cost: u64, now: Timestamp) -> bool {
        self.fits(self.most(), limit, cost, now)
    }

    /// How much is held or about to be admitted by any worker, also where the ring is not up to date.
    pub(crate) fn held(&self) -> u64 {
        let last = self.history.last.get();
        let admitted = self.counter.admitted().unwrap_or(last);
        let most = self.most();
        if most.is_behind(admitted) {
            0
        } else {
            most.wrapping_sub(admitted)
        }
    }

    /// How much counts at `now`, what is held included. Changes nothing.
    pub fn sum_with_holds(&self, now: Timestamp) -> f64 {
        self.load(self.most(), now)
    }

    /// How long after `now` a `cost` first fits into `limit`, as far as that is known: beside holds, whose end is unknown, not
    /// before a second has passed. `None` if it never fits. The window has been advanced to `now`.
    pub fn time_to_room_beside_holds(
        &self,
        limit: Count,
        cost: u64,
        now: Timestamp,
    ) -> Option<Duration> {
        let wait = self.time_to_room(limit, cost, now)?;
        Some(if self.most() == self.history.last.get() {
            wait
        } else {
            wait.max(HOLD_RETRY)
        })
    }

    /// Keeps a reservation: it is held from now on.
    pub fn hold(&self, amount: u64) {
        self.counter.hold(amount);
    }

    /// Ends a hold: `actual` counts from now on instead of `held`. The window has been observed and advanced to the present.
    pub fn settle(&self, held: u64, actual: u64) {
        let charged = self.end_hold(held, actual);
        if charged > 0 {
            self.admit(charged);
        }
    }

    /// As [`RuleWindow::settle`], at an unknown time: the cost counts from the next call with a time on, and is held until
    /// then.
    pub fn settle_late(&self, held: u64, actual: u64) {
        let charged = self.end_hold(held, actual);
        self.late.set(self.late.get().wrapping_add(charged));
        self.current.forget();
    }

    /// Changes a reservation of `held` into one of what is to be charged, which it returns: the actual cost, as far as it could
    /// be reserved and no other worker has charged it.
    fn end_hold(&self, held: u64, actual: u64) -> u64 {
        let (mine, debt) = match self.counter.unhold(held) {
            true => (held, actual.saturating_sub(held)),
            // Another worker has charged the estimate.
            false => (0, actual.saturating_sub(held)),
        };
        if debt > 0 {
            return match self.counter.reserve(debt) {
                Some(_) => mine + debt,
                None => mine,
            };
        }
        let charged = actual.min(mine);
        if mine > charged {
            self.counter.release(mine - charged);
        }
        charged
    }

    /// Charges what was settled at an unknown time. The window has been advanced to the present.
    pub(super) fn charge_late(&self) {
        let late = self.late.take();
        if late > 0 {
            self.admit(late);
        }
    }
}
