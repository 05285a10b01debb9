//! What a flow rule decides at its threshold, and what it has decided so far.

use crate::rule::{Count, Grade};
use crate::tally::{Past, RuleWindow, Tally};
use crate::time::Timestamp;
use std::cell::Cell;
use std::time::Duration;

/// What a rule measures.
enum Measure<T> {
    /// Passes in a window.
    Passes(RuleWindow<T>),
    /// Calls in flight: the tickets that are out.
    InFlight(T),
}

/// The state of a rule on one resource: its window or its calls in flight, and how it has decided.
///
/// The count is no part of it, so that it can change while the state goes on. A decision has three steps, which let several
/// rules decide together: `has_room` for each; if all have, `reserve` for each; if all could,
/// `commit` for each.
///
/// Sentinel: `DefaultController`.
pub struct Controller<T> {
    measure: Measure<T>,
    passed: Cell<u64>,
    blocked: Cell<u64>,
    shadow_blocked: Cell<u64>,
}

impl<T: Tally> Controller<T> {
    /// The state of a rule of this grade over those counts.
    pub fn new(grade: Grade, tally: T, past: Past) -> Controller<T> {
        let measure = match grade {
            Grade::Qps { window, counting } => {
                Measure::Passes(RuleWindow::new(window.window(), counting, tally, past))
            }
            Grade::Concurrency => Measure::InFlight(tally),
        };
        Controller {
            measure,
            passed: Cell::new(0),
            blocked: Cell::new(0),
            shadow_blocked: Cell::new(0),
        }
    }

    /// The window; `None` for a limit on concurrency.
    pub fn window(&self) -> Option<&RuleWindow<T>> {
        match &self.measure {
            Measure::Passes(window) => Some(window),
            Measure::InFlight(_) => None,
        }
    }

    /// The counts.
    pub fn tally(&self) -> &T {
        match &self.measure {
            Measure::Passes(window) => window.tally(),
            Measure::InFlight(tally) => tally,
        }
    }

    /// Reads shared counts. To be called before the clock is read for the next call here that takes a time.
    #[inline]
    pub fn observe(&self) {
        if let Measure::Passes(window) = &self.measure {
            window.observe();
        }
    }

    /// Brings the window up to `now`.
    #[inline]
    pub fn advance(&self, now: Timestamp) {
        if let Measure::Passes(window) = &self.measure {
            window.advance(now);
        }
    }

    /// Whether `cost` more would be within `count`. Takes nothing.
    #[inline]
    pub(crate) fn has_room(&self, count: Count, cost: u64, now: Timestamp) -> bool {
        match &self.measure {
            Measure::Passes(window) => window.has_room(count, cost, now),
            Measure::InFlight(tally) => tally.tickets().saturating_add(cost) <= count.whole(),
        }
    }

    /// Takes tickets for `cost` if that is within `count`, else none.
    #[inline]
    pub(crate) fn reserve(&self, count: Count, cost: u64, now: Timestamp) -> bool {
        match &self.measure {
            Measure::Passes(window) => window.reserve(count, cost, now),
            Measure::InFlight(tally) => {
                let Some(taken) = tally.take(cost) else {
                    return false;
                };
                if taken > count.whole() {
                    tally.give_back(cost);
                    return false;
                }
                true
            }
        }
    }

    /// Gives back what was reserved, because another rule refused.
    pub(crate) fn give_back(&self, cost: u64) {
        self.tally().give_back(cost);
    }

    /// Records that a call in flight has ended.
    pub(crate) fn leave(&self) {
        self.tally().give_back(1);
    }

    /// Charges what was reserved. Whether the call is in flight from now on ([`Controller::leave`]).
    #[inline]
    pub(crate) fn commit(&self, cost: u64) -> bool {
        self.passed.set(self.passed.get().wrapping_add(1));
        match &self.measure {
            Measure::Passes(window) => {
                window.commit(cost);
                false
            }
            // Whatever it costs to begin, a call in flight is one.
            Measure::InFlight(tally) => match cost.checked_sub(1) {
                Some(more) => {
                    tally.give_back(more);
                    true
                }
                None => tally.take(1).is_some(),
            },
        }
    }

    /// Records that the rule has refused a request.
    pub(crate) fn block(&self) {
        self.blocked.set(self.blocked.get().wrapping_add(1));
    }

    /// Records that the rule would have refused a request.
    pub(crate) fn shadow_block(&self) {
        self.shadow_blocked
            .set(self.shadow_blocked.get().wrapping_add(1));
    }

    /// Requests that the rule has let pass and that passed.
    pub fn passed(&self) -> u64 {
        self.passed.get()
    }

    /// Requests that the rule was the first to refuse.
    pub fn blocked(&self) -> u64 {
        self.blocked.get()
    }

    /// Requests that the rule would have refused, had it not been in shadow mode.
    pub fn shadow_blocked(&self) -> u64 {
        self.shadow_blocked.get()
    }

    /// How much is left under `count`: whole passes, rounded down.
    pub(crate) fn remaining(&self, count: Count, now: Timestamp) -> u64 {
        match &self.measure {
            Measure::Passes(window) => (count.get() - window.sum(now)) as u64,
            Measure::InFlight(tally) => count.whole().saturating_sub(tally.tickets()),
        }
    }

    /// How long until a `cost` fits if nothing else came; `None` where it never can. A call in flight may end at any
    /// moment: for those it is a millisecond.
    pub(crate) fn time_to_room(&self, count: Count, cost: u64, now: Timestamp) -> Option<Duration> {
        match &self.measure {
            Measure::Passes(window) => window.time_to_room(count, cost, now),
            Measure::InFlight(_) => {
                (cost as f64 <= count.get()).then_some(Duration::from_millis(1))
            }
        }
    }

    /// How long until quota next comes back if nothing else came; zero where none is used or, of calls in flight, unknown.
    pub(crate) fn time_to_more(&self, now: Timestamp) -> Duration {
        self.window()
            .map_or(Duration::ZERO, |window| window.time_to_more(now))
    }
}
