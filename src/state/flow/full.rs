//! For how long a rule that is full refuses, whatever else comes.

use super::{Controller, Measure};
use crate::state::counter::Counter;
use crate::state::terms::Terms;
use crate::time::Timestamp;
use std::time::Duration;

impl<T: Counter> Controller<T> {
    /// For how long from `now` on it refuses each request of that cost, whatever else comes: nothing leaves its window before.
    /// `None` where it has room, and where what fills it may end at any moment: calls in flight, holds, turns and loans, which
    /// are given back, and a limit that rises while it warms up. The window has been advanced to `now`.
    pub(crate) fn is_full_for(&self, terms: &Terms, cost: u64, now: Timestamp) -> Option<Duration> {
        let Measure::Passes(window) = &self.measure else {
            return None;
        };
        window.count_as(terms.counting);
        if terms.holds || window.lends() || window.has_room(terms.count, cost, now) {
            return None;
        }
        Some(
            window
                .time_to_room(terms.count, cost, now)
                .unwrap_or(Duration::MAX),
        )
    }
}
