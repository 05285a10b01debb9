//! The states of one keyed rule, and how it has decided.

use crate::rule::Counting;
use crate::state::keyed::{KeyedStates, Reserved};
use crate::state::terms::Bounds;
use crate::time::Timestamp;
use std::cell::{Cell, RefCell};

/// The states of one rule by key, and how it has decided.
pub struct KeyedController<K: ?Sized = dyn KeyedStates> {
    pub(super) passed: Cell<u64>,
    pub(super) waited: Cell<u64>,
    pub(super) blocked: Cell<u64>,
    pub(super) shadow_blocked: Cell<u64>,
    pub(super) defaulted: Cell<u64>,
    /// How much more requests have cost than they held.
    debt: Cell<u64>,
    /// What was settled at an unknown time: what is held, how much that is, and the actual cost.
    late: RefCell<Vec<(Reserved, u64, u64)>>,
    /// How windows count: as the rule says that asks.
    counting: Cell<Counting>,
    /// What the rule lets pass of a key that it says nothing of: only [`KeyedController::utilization`] reads it.
    bounds: Cell<Bounds>,
    states: K,
}

impl<K: KeyedStates> KeyedController<K> {
    pub(crate) fn new(states: K) -> KeyedController<K> {
        KeyedController {
            passed: Cell::new(0),
            waited: Cell::new(0),
            blocked: Cell::new(0),
            shadow_blocked: Cell::new(0),
            defaulted: Cell::new(0),
            debt: Cell::new(0),
            late: RefCell::default(),
            counting: Cell::new(Counting::Strict),
            bounds: Cell::default(),
            states,
        }
    }
}

impl<K: ?Sized> KeyedController<K> {
    /// The states.
    pub fn states(&self) -> &K {
        &self.states
    }

    /// How many requests have passed, at once or after a wait.
    pub fn passed(&self) -> u64 {
        self.passed.get()
    }

    /// How many requests it has made wait.
    pub fn waited(&self) -> u64 {
        self.waited.get()
    }

    /// How many requests it was the first to refuse.
    pub fn blocked(&self) -> u64 {
        self.blocked.get()
    }

    /// How many requests it would have refused, had it not been in shadow mode.
    pub fn shadow_blocked(&self) -> u64 {
        self.shadow_blocked.get()
    }

    /// How many requests had the rule's own count because they did not bring a valid one along.
    pub fn defaulted(&self) -> u64 {
        self.defaulted.get()
    }

    /// How much more requests have cost than they held, so far: what was charged over the limit, if need be.
    pub fn debt(&self) -> u64 {
        self.debt.get()
    }

    /// A rule with such bounds has opened the states.
    pub(super) fn is_limited_to(&self, bounds: Bounds) {
        self.bounds.set(bounds);
    }

    /// Records that a request has cost `n` more than it held.
    pub(super) fn owe(&self, n: u64) {
        self.debt.set(self.debt.get().wrapping_add(n));
    }
}

impl<K: KeyedStates + ?Sized> KeyedController<K> {
    /// How full the limit is at `now` of the key that has used most, as [`Controller::utilization`](crate::backend::Controller::utilization)
    /// says it, beside the count of keys that the rule says nothing of. As exact as [`KeyedStates::top`], and as dear.
    pub fn utilization(&self, takes_turns: bool, now: Timestamp) -> f64 {
        let used = self.states.top(1, now).first().map_or(0, |hot| hot.amount);
        match takes_turns {
            true => self.bounds.get().part_of_wait(used),
            false => self.bounds.get().part(used as f64),
        }
    }
}

impl KeyedController {
    /// Has windows count as a rule says that is about to decide.
    #[inline]
    pub(super) fn count_as(&self, counting: Counting) {
        if self.counting.get() != counting {
            self.counting.set(counting);
            self.states.count_as(counting);
        }
    }

    /// Ends a hold: `actual` counts from `now` on instead of `amount`; without a `now`, from the next call with a time on, and
    /// `amount` is held until then.
    pub(super) fn settle(&self, held: Reserved, amount: u64, actual: u64, now: Option<Timestamp>) {
        match now {
            Some(now) => self.states.settle(held, amount, actual, now),
            None => self.late.borrow_mut().push((held, amount, actual)),
        }
    }

    /// Charges what was settled at an unknown time.
    pub(super) fn charge_late(&self, now: Timestamp) {
        for (held, amount, actual) in self.late.take() {
            self.states.settle(held, amount, actual, now);
        }
    }
}

pub(super) fn count(counter: &Cell<u64>) {
    counter.set(counter.get().wrapping_add(1));
}
