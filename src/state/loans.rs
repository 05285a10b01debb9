//! What a rule's window has lent.

use crate::time::Timestamp;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

/// Passes admitted before the bucket in which they count has begun, by bucket.
///
/// The loans of a rule's window, by bucket. There are few: as many buckets as begin while a request may wait.
#[derive(Default)]
pub(crate) struct Loans {
    /// In the order of time.
    loans: RefCell<VecDeque<Loan>>,
    total: Cell<u64>,
}

/// The loans of one bucket.
struct Loan {
    start: Timestamp,
    passes: u64,
    /// How many of them were given up, at an unknown time.
    given_up: u64,
}

impl Loans {
    /// All passes on loan.
    #[inline]
    pub(crate) fn total(&self) -> u64 {
        self.total.get()
    }

    /// Lends `n` passes of the bucket that starts at `start`.
    pub(crate) fn add(&self, start: Timestamp, n: u64) {
        if n == 0 {
            return;
        }
        let mut loans = self.loans.borrow_mut();
        self.total.set(self.total.get().saturating_add(n));
        match loans.binary_search_by_key(&start, |loan| loan.start) {
            Ok(i) => {
                if let Some(loan) = loans.get_mut(i) {
                    loan.passes = loan.passes.saturating_add(n);
                }
            }
            Err(i) => loans.insert(
                i,
                Loan {
                    start,
                    passes: n,
                    given_up: 0,
                },
            ),
        }
    }

    /// Takes back `n` passes of the bucket that starts at `start`. Returns how many were still on loan.
    pub(crate) fn remove(&self, start: Timestamp, n: u64) -> u64 {
        let mut loans = self.loans.borrow_mut();
        let found = loans.binary_search_by_key(&start, |loan| loan.start);
        let Some(loan) = found.ok().and_then(|i| loans.get_mut(i)) else {
            return 0;
        };
        let n = n.min(loan.passes);
        loan.passes -= n;
        self.total.set(self.total.get().saturating_sub(n));
        n
    }

    /// Records that `n` passes of the bucket that starts at `start` were given up. Whether that was in time, before the bucket
    /// began, is decided by the next call with a time: see [`Loans::take_given_up`].
    pub(crate) fn give_up(&self, start: Timestamp, n: u64) {
        let mut loans = self.loans.borrow_mut();
        let found = loans.binary_search_by_key(&start, |loan| loan.start);
        if let Some(loan) = found.ok().and_then(|i| loans.get_mut(i)) {
            loan.given_up = loan.given_up.saturating_add(n);
        }
    }

    /// Takes back the passes that were given up in time: those of buckets that begin after `now`. Returns how many. The rest
    /// stays on loan.
    pub(crate) fn take_given_up(&self, now: Timestamp) -> u64 {
        let mut taken_back = 0;
        for loan in self.loans.borrow_mut().iter_mut() {
            let n = std::mem::take(&mut loan.given_up).min(loan.passes);
            if loan.start > now {
                loan.passes -= n;
                taken_back += n;
            }
        }
        self.total.set(self.total.get().saturating_sub(taken_back));
        taken_back
    }

    /// Removes the loans of buckets that start before `end`, and returns how many passes they were.
    pub(crate) fn take_before(&self, end: Timestamp) -> u64 {
        if self.total() == 0 {
            return 0;
        }
        let mut loans = self.loans.borrow_mut();
        let due = loans.partition_point(|loan| loan.start < end);
        let taken = loans.drain(..due).map(|loan| loan.passes).sum();
        self.total.set(self.total.get().saturating_sub(taken));
        taken
    }

    /// How many passes are on loan from the buckets starting at `first` or later.
    pub(crate) fn from(&self, first: Timestamp) -> u64 {
        let loans = self.loans.borrow();
        let passes = loans.iter().rev().take_while(|loan| loan.start >= first);
        passes.map(|loan| loan.passes).sum()
    }

    /// How many passes are on loan from the bucket starting at `start`.
    pub(crate) fn at(&self, start: Timestamp) -> u64 {
        let loans = self.loans.borrow();
        let found = loans.binary_search_by_key(&start, |loan| loan.start);
        found
            .ok()
            .and_then(|i| loans.get(i))
            .map_or(0, |loan| loan.passes)
    }

    /// When the last bucket with a loan starts.
    pub(crate) fn last_start(&self) -> Option<Timestamp> {
        self.loans.borrow().back().map(|loan| loan.start)
    }
}
