//! How full limits are, for dashboards.

use super::{Controller, Measure};
use crate::state::counter::Counter;
use crate::state::terms::{Bounds, Terms};
use crate::time::Timestamp;

impl<T: Counter> Controller<T> {
    /// A rule of these terms has opened the state.
    pub(crate) fn is_limited_to(&self, terms: &Terms) {
        self.bounds.set(Bounds::of(terms));
    }

    /// How full the limit is at `now`: 1 is full, and more than 1 is debt. Of calls in flight it is the highest number since
    /// the last call of this method, of turns the longest wait since then, as a part of the longest one that is allowed. A
    /// past that is unknown, and refuses requests, is not counted here.
    pub fn utilization(&self, now: Timestamp) -> f64 {
        self.utilization_within(self.bounds.get(), now)
    }

    fn utilization_within(&self, bounds: Bounds, now: Timestamp) -> f64 {
        let used = match &self.measure {
            Measure::Passes(window) if bounds.holds => window.sum(now) + window.held() as f64,
            Measure::Passes(window) => window.sum(now),
            Measure::InFlight(in_flight) => in_flight.take_most() as f64,
            Measure::Turns(throttle) => return bounds.part_of_wait(throttle.take_longest()),
            Measure::Warm(warm) => match warm.take_longest() {
                Some(longest) => return bounds.part_of_wait(longest),
                None => warm.window.sum(now),
            },
            Measure::Another(another, _) => return another.utilization_within(bounds, now),
        };
        bounds.part(used)
    }
}
