//! A decision of a rule that stands alone: no other has a say, so its steps are one.

use super::{Controller, Measure};
use crate::state::counter::Counter;
use crate::state::terms::Terms;
use crate::time::Timestamp;

impl<T: Counter> Controller<T> {
    /// Lets a request of that cost pass at once, if it may and no other rule has a say: the steps of a decision in one visit,
    /// from [`Controller::advance`] to [`Controller::admit_at_once`], whose answer it gives. `None` if the request may not pass;
    /// then nothing is charged.
    #[inline]
    pub(crate) fn pass_alone(&self, terms: &Terms, cost: u64, now: Timestamp) -> Option<bool> {
        let held = match &self.measure {
            Measure::Passes(window) => {
                window.advance(now);
                window.count_as(terms.counting);
                window.take(terms.count, cost, now).then_some(false)
            }
            Measure::InFlight(in_flight) => in_flight.take(terms, cost),
            Measure::Turns(throttle) => throttle.take(terms, cost, now).then_some(false),
            Measure::Warm(_) | Measure::Another(..) => {
                return self.pass_in_steps(terms, cost, now);
            }
        };
        if held.is_some() {
            self.decisions.pass();
        }
        held
    }

    /// The same, step by step.
    #[inline(never)]
    fn pass_in_steps(&self, terms: &Terms, cost: u64, now: Timestamp) -> Option<bool> {
        self.advance(now);
        let takes = self.has_room(terms, cost, now) && self.reserve_at_once(terms, cost, now);
        takes.then(|| self.admit_at_once(cost))
    }
}
