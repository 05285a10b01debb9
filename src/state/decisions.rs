//! How a rule has decided so far.

use std::cell::Cell;

/// How often a rule has decided in each way. Counts wrap around after 2^64.
#[derive(Default)]
pub(crate) struct Decisions {
    passed: Cell<u64>,
    waited: Cell<u64>,
    blocked: Cell<u64>,
    shadow_blocked: Cell<u64>,
    debt: Cell<u64>,
}

impl Decisions {
    /// Records that the rule has let a request pass, and that it passed.
    #[inline]
    pub(crate) fn pass(&self) {
        count(&self.passed);
    }

    /// Records that the rule has made a request wait.
    pub(crate) fn wait(&self) {
        count(&self.waited);
    }

    /// Records that the rule was the first to refuse a request.
    pub(crate) fn block(&self) {
        count(&self.blocked);
    }

    /// Records that the rule would have refused a request, had it not been in shadow mode.
    pub(crate) fn shadow_block(&self) {
        count(&self.shadow_blocked);
    }

    /// Records that requests have cost `n` more than they held.
    pub(crate) fn owe(&self, n: u64) {
        self.debt.set(self.debt.get().wrapping_add(n));
    }

    /// How much more requests have cost than they held, so far.
    pub(crate) fn debt(&self) -> u64 {
        self.debt.get()
    }

    /// Requests that the rule has let pass and that passed.
    pub(crate) fn passed(&self) -> u64 {
        self.passed.get()
    }

    /// Requests that have passed after this rule made them wait, or would have, had it not been in shadow mode.
    pub(crate) fn waited(&self) -> u64 {
        self.waited.get()
    }

    /// Requests that the rule was the first to refuse.
    pub(crate) fn blocked(&self) -> u64 {
        self.blocked.get()
    }

    /// Requests that the rule would have refused, had it not been in shadow mode.
    pub(crate) fn shadow_blocked(&self) -> u64 {
        self.shadow_blocked.get()
    }
}

#[inline]
fn count(counter: &Cell<u64>) {
    counter.set(counter.get().wrapping_add(1));
}
