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

    /// Releases the whole cost of a call that does not begin.
    #[inline]
    pub(super) fn release(&self, cost: u64) {
        self.counter.release(cost);
    }

    /// Begins a call whose cost was reserved: a call in flight counts as 1, whatever it cost. Returns whether it is counted.
    #[inline]
    pub(super) fn admit(&self, cost: u64) -> bool {
        let is_counted = match cost.checked_sub(1) {
            Some(0) => true,
            Some(more) => {
                self.counter.release(more);
                true
            }
            None => self.counter.reserve(1).is_some(),
        };
        if is_counted {
            self.counter.hold(1);
        }
        is_counted
    }

    /// Ends a call in flight.
    #[inline]
    pub(super) fn end(&self) {
        if self.counter.unhold(1) {
            self.counter.release(1);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::counter::{LocalInstant, SharedInstant};
    use std::cell::RefCell;

    /// A counter that records what is called, and whose holds have been settled already if `is_settled`.
    #[derive(Default)]
    struct Recorder {
        calls: RefCell<Vec<(&'static str, u64)>>,
        is_settled: bool,
        latest: LocalInstant,
    }

    impl Recorder {
        fn record(&self, call: &'static str, n: u64) {
            self.calls.borrow_mut().push((call, n));
        }
    }

    impl Counter for Recorder {
        fn admitted(&self) -> Option<u64> {
            None
        }

        fn reserved(&self) -> u64 {
            0
        }

        fn reserve(&self, n: u64) -> Option<u64> {
            self.record("reserve", n);
            Some(n)
        }

        fn release(&self, n: u64) {
            self.record("release", n);
        }

        fn admit(&self, _: u64) {}

        fn hold(&self, n: u64) {
            self.record("hold", n);
        }

        fn unhold(&self, n: u64) -> bool {
            self.record("unhold", n);
            !self.is_settled
        }

        fn latest(&self) -> &impl SharedInstant {
            &self.latest
        }
    }

    fn calls(is_settled: bool, act: impl FnOnce(&InFlight<Recorder>)) -> Vec<(&'static str, u64)> {
        let in_flight = InFlight::new(Recorder {
            is_settled,
            ..Recorder::default()
        });
        act(&in_flight);
        in_flight.counter.calls.take()
    }

    #[test]
    fn a_call_is_held_after_its_reservation_and_until_just_before_its_release() {
        let call = |in_flight: &InFlight<Recorder>| {
            in_flight.admit(0);
            in_flight.end();
        };
        let expected = [("reserve", 1), ("hold", 1), ("unhold", 1), ("release", 1)];
        assert_eq!(calls(false, call), expected);
    }

    #[test]
    fn a_call_that_has_been_settled_is_not_released_again() {
        assert_eq!(calls(true, InFlight::end), [("unhold", 1)]);
    }
}
