//! A limit on calls in flight: the state is their number.

use crate::state::counter::Counter;
use crate::state::terms::Terms;
use std::time::Duration;

/// Calls in flight, as reservations. A call reserves its cost to begin, and holds one for as long as it lasts.
pub(super) struct InFlight<T> {
    counter: T,
}

impl<T: Counter> InFlight<T> {
    pub(super) fn new(counter: T) -> InFlight<T> {
        InFlight { counter }
    }

    pub(super) fn counter(&self) -> &T {
        &self.counter
    }

    /// Whether no call is in flight.
    pub(super) fn is_idle(&self) -> bool {
        self.counter.reserved() == 0
    }

    /// Whether a call of that cost may begin. Reserves nothing.
    #[inline]
    pub(super) fn has_room(&self, terms: &Terms, cost: u64) -> bool {
        self.counter.reserved().saturating_add(cost) <= terms.count.whole()
    }

    /// Reserves the cost of a call, if it may begin; else nothing.
    #[inline]
    pub(super) fn reserve(&self, terms: &Terms, cost: u64) -> bool {
        let Some(taken) = self.counter.reserve(cost) else {
            return false;
        };
        let fits = taken <= terms.count.whole();
        if !fits {
            self.counter.release(cost);
        }
        fits
    }

    /// Releases `n`: the whole cost of a call that does not begin, or 1 for a call that has ended.
    #[inline]
    pub(super) fn release(&self, n: u64) {
        self.counter.release(n);
    }

    /// Begins a call whose cost was reserved: a call in flight counts as 1, whatever it cost. Returns whether it is counted.
    #[inline]
    pub(super) fn admit(&self, cost: u64) -> bool {
        match cost.checked_sub(1) {
            Some(more) => {
                self.counter.release(more);
                true
            }
            None => self.counter.reserve(1).is_some(),
        }
    }

    /// How many more calls may begin.
    pub(super) fn remaining(&self, terms: &Terms) -> u64 {
        terms.count.whole().saturating_sub(self.counter.reserved())
    }

    /// How long until a call of that cost may begin: a call in flight may end at any moment, so a millisecond. `None` if it
    /// never may.
    pub(super) fn time_to_room(terms: &Terms, cost: u64) -> Option<Duration> {
        (cost as f64 <= terms.count.get()).then_some(Duration::from_millis(1))
    }
}
