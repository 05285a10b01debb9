//! Rules whose requests hold an estimate until their cost is known.

use super::{Controller, Measure};
use crate::state::counter::Counter;
use crate::state::terms::Terms;
use crate::time::Timestamp;

impl<T: Counter> Controller<T> {
    /// As [`Controller::has_room`], beside all that is held.
    pub(crate) fn has_room_beside_holds(&self, terms: &Terms, cost: u64, now: Timestamp) -> bool {
        self.count_as(terms.counting);
        match &self.measure {
            Measure::Passes(window) => window.has_room_beside_holds(terms.count, cost, now),
            Measure::Another(another, _) => another.has_room_beside_holds(terms, cost, now),
            Measure::InFlight(_) | Measure::Turns(_) | Measure::Warm(_) => {
                self.has_room(terms, cost, now)
            }
        }
    }

    /// Keeps the reservation of a request that passes, until [`Controller::settle`].
    pub(crate) fn hold(&self, amount: u64) {
        self.decisions.pass();
        if let Measure::Passes(window) = &self.measure {
            window.hold(amount);
        }
    }

    /// Ends a hold: `actual` counts from `now` on instead of `held`; without a `now`, from the next call with a time on.
    pub(crate) fn settle(&self, held: u64, actual: u64, now: Option<Timestamp>) {
        let Measure::Passes(window) = &self.measure else {
            return;
        };
        self.decisions.owe(actual.saturating_sub(held));
        match now {
            Some(now) => {
                window.advance(now);
                window.settle(held, actual);
            }
            None => window.settle_late(held, actual),
        }
    }

    /// How much more requests have cost than they held, so far: what was charged over the limit, if need be.
    pub fn debt(&self) -> u64 {
        self.decisions.debt()
    }
}
