//! A limit on calls in flight: the state is their number.

use crate::state::counter::Counter;
use crate::state::terms::Terms;
use std::cell::Cell;
use std::time::Duration;

/// Calls in flight, as reservations. A call reserves its cost to begin, and holds it for as long as it lasts; one that decides as
/// Sentinel does holds 1.
pub(super) struct InFlight<T> {
    counter: T,
    compat: bool,
    /// The most calls in flight since [`InFlight::take_most`].
    most: Cell<u64>,
}

impl<T: Counter> InFlight<T> {
    pub(super) fn new(compat: bool, counter: T) -> InFlight<T> {
        InFlight {
            counter,
            compat,
            most: Cell::new(0),
        }
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
        if fits {
            self.most.set(self.most.get().max(taken));
        } else {
            self.counter.release(cost);
        }
        fits
    }

    /// Begins a call of that cost, if it may; else nothing is reserved. Returns whether it holds anything.
    #[inline]
    pub(super) fn take(&self, terms: &Terms, cost: u64) -> Option<bool> {
        let looks_first = T::IS_SHARED; // a call that is refused writes nothing that is shared
        let takes = (!looks_first || self.has_room(terms, cost)) && self.reserve(terms, cost);
        takes.then(|| self.admit(cost))
    }

    /// Releases the whole cost of a call that does not begin.
    #[inline]
    pub(super) fn release(&self, cost: u64) {
        self.counter.release(cost);
    }

    /// Begins a call whose cost was reserved. Returns whether it holds anything.
    #[inline]
    pub(super) fn admit(&self, cost: u64) -> bool {
        let held = self.held(cost);
        match cost.checked_sub(held) {
            Some(0) => {}
            Some(more) => self.counter.release(more),
            None => return self.begin(cost),
        }
        self.hold(held)
    }

    /// Begins a call for which nothing was reserved. Returns whether it holds anything.
    #[inline]
    pub(super) fn begin(&self, cost: u64) -> bool {
        let held = self.held(cost);
        self.counter.reserve(held).is_some() && self.hold(held)
    }

    fn held(&self, cost: u64) -> u64 {
        if self.compat { 1 } else { cost }
    }

    fn hold(&self, held: u64) -> bool {
        if held > 0 {
            self.counter.hold(held);
        }
        held > 0
    }

    /// Ends a call of that cost.
    #[inline]
    pub(super) fn end(&self, cost: u64) {
        let held = self.held(cost);
        if held > 0 && self.counter.unhold(held) {
            self.counter.release(held);
        }
    }

    /// The most calls that have been in flight since the last call of this method, or are now.
    pub(super) fn take_most(&self) -> u64 {
        self.most.take().max(self.counter.reserved())
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
        calls_as(false, is_settled, act)
    }

    fn calls_as(
        compat: bool,
        is_settled: bool,
        act: impl FnOnce(&InFlight<Recorder>),
    ) -> Vec<(&'static str, u64)> {
        let recorder = Recorder {
            is_settled,
            ..Recorder::default()
        };
        let in_flight = InFlight::new(compat, recorder);
        act(&in_flight);
        in_flight.counter.calls.take()
    }

    #[test]
    fn a_call_is_held_after_its_reservation_and_until_just_before_its_release() {
        let call = |in_flight: &InFlight<Recorder>| {
            assert!(in_flight.begin(3));
            in_flight.end(3);
        };
        let expected = [("reserve", 3), ("hold", 3), ("unhold", 3), ("release", 3)];
        assert_eq!(calls(false, call), expected);
    }

    #[test]
    fn a_call_holds_what_it_has_reserved_and_nothing_where_it_costs_nothing() {
        let expected = [("hold", 3), ("unhold", 3), ("release", 3)];
        let call = |in_flight: &InFlight<Recorder>| {
            assert!(in_flight.admit(3));
            in_flight.end(3);
        };
        assert_eq!(calls(false, call), expected);
        assert_eq!(calls(false, |calls| assert!(!calls.admit(0))), []);
    }

    #[test]
    fn differs_in_compat_where_a_call_holds_one_whatever_it_costs() {
        let call = |in_flight: &InFlight<Recorder>| {
            for cost in [3, 0] {
                assert!(in_flight.admit(cost));
                in_flight.end(cost);
            }
        };
        let end = [("unhold", 1), ("release", 1)];
        let three = [&[("release", 2), ("hold", 1)], &end[..]].concat();
        let none = [&[("reserve", 1), ("hold", 1)], &end[..]].concat();
        assert_eq!(calls_as(true, false, call), [three, none].concat());
    }

    #[test]
    fn a_call_that_has_been_settled_is_not_released_again() {
        assert_eq!(calls(true, |calls| calls.end(2)), [("unhold", 2)]);
    }
}
