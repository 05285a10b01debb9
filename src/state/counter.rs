//! Where a rule's two running counts and the instant of its throttle are kept.
//!
//! `reserved` is raised before a request is admitted and lowered if it is not, so it is never too low; `admitted` is raised
//! after, so it is never too high. A request reserves first, and passes if the two counts then differ by at most the limit: of
//! two requests that race for the last pass, at most one passes.

use crate::snapshots::Snapshots;
use crate::time::Timestamp;
use std::cell::Cell;

/// Two running counts of one rule, which wrap around after 2^64, and the instant of its throttle.
pub trait Counter {
    /// Whether other windows may use the counts. Where none does, `admitted` is always `None`, and a request may reserve at once,
    /// without a look at whether there is room: no other window reads what is taken back.
    const IS_SHARED: bool = true;

    /// How much has been admitted so far; never too high. `None` if no other window uses the count.
    fn admitted(&self) -> Option<u64>;

    /// How much has been reserved so far and not released; never too low.
    fn reserved(&self) -> u64;

    /// Reserves `n` and returns how much is reserved in all, racing requests included. `None` if nothing could be reserved.
    fn reserve(&self, n: u64) -> Option<u64>;

    /// Releases `n` that were reserved and will not be admitted.
    fn release(&self, n: u64);

    /// Turns `n` that were reserved into admissions.
    fn admit(&self, n: u64);

    /// Records that `n` of what is reserved is held by a request or call in flight, so that other workers can settle it should
    /// this worker die. Called after the reservation.
    #[inline]
    fn hold(&self, _n: u64) {}

    /// Records that a hold of `n` ends. Called before what it reserved is released or admitted. Returns `false` if it has been
    /// settled for this worker already: then `n` have been admitted in a window, and nothing of the hold is left to release or
    /// admit.
    #[inline]
    fn unhold(&self, _n: u64) -> bool {
        true
    }

    /// How far the turns of a throttle reach.
    fn latest(&self) -> &impl SharedInstant;

    /// How warm the rule is, as published last by a worker that shares these counts; `None` if none has, or if the counts are
    /// not shared.
    fn warm_up(&self) -> Option<[u64; 4]> {
        None
    }

    /// Publishes how warm the rule is to the workers that share these counts.
    fn publish_warm_up(&self, _: [u64; 4]) {}

    /// What is known of the past, if the window may have missed something because it had no requests and was not kept up to
    /// date; `None` if it continues with what it knows. Called when a bucket begins, and after
    /// [`RuleWindow::rest`](crate::backend::RuleWindow::rest).
    fn published(&self) -> Option<Past> {
        None
    }

    /// `admitted` has fallen: all that is published of the past is void.
    fn fallen(&self) {}
}

/// An instant that several workers may share. It changes by compare-and-swap only: a worker that was overtaken reads it again.
pub trait SharedInstant {
    /// The instant; `None` if there has been none yet.
    fn get(&self) -> Option<Timestamp>;

    /// Replaces `from` by `to`. Returns whether it did: not if the instant is no longer `from`, and not if it could not be
    /// written.
    fn swap(&self, from: Option<Timestamp>, to: Option<Timestamp>) -> bool;
}

/// An instant of one worker.
#[derive(Default, Debug)]
pub struct LocalInstant(Cell<Option<Timestamp>>);

impl SharedInstant for LocalInstant {
    #[inline]
    fn get(&self) -> Option<Timestamp> {
        self.0.get()
    }

    #[inline]
    fn swap(&self, from: Option<Timestamp>, to: Option<Timestamp>) -> bool {
        let is_from = self.0.get() == from;
        if is_from {
            self.0.set(to);
        }
        is_from
    }
}

/// Counts of one worker.
#[derive(Default, Debug)]
pub struct LocalCounter {
    reserved: Cell<u64>,
    latest: LocalInstant,
}

impl Counter for LocalCounter {
    const IS_SHARED: bool = false;

    #[inline]
    fn admitted(&self) -> Option<u64> {
        None
    }

    #[inline]
    fn reserved(&self) -> u64 {
        self.reserved.get()
    }

    #[inline]
    fn reserve(&self, n: u64) -> Option<u64> {
        self.reserved.set(self.reserved.get().wrapping_add(n));
        Some(self.reserved.get())
    }

    #[inline]
    fn release(&self, n: u64) {
        self.reserved.set(self.reserved.get().wrapping_sub(n));
    }

    #[inline]
    fn admit(&self, _: u64) {}

    fn latest(&self) -> &impl SharedInstant {
        &self.latest
    }
}

/// What a window knows of the time before it was made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Past {
    /// Nothing has been admitted, ever.
    Fresh,
    /// Unknown admissions: until an interval has passed, the whole limit counts as used.
    Unknown {
        /// The present value of `admitted`.
        admitted: u64,
    },
    /// What another window over the same counts has published.
    Kept(Snapshots),
}
