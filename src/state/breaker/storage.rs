//! Where a breaker keeps its state and its counts.

use super::transitions::{CallCounts, State};
use crate::snapshots::Snapshots;
use std::cell::Cell;

/// Where a breaker keeps its state and its two running counts, which workers may share.
///
/// A shell keeps the state in shared data ([`State::pack`]) and the counts in two counters.
pub trait BreakerStorage {
    /// The state, as far as this worker knows it. It may be stale: changes are made by [`BreakerStorage::replace`].
    fn load(&self) -> State;

    /// The state as it is now; [`BreakerStorage::load`] returns it from now on.
    fn reload(&self) -> State {
        self.load()
    }

    /// A rule that decides by this state has come into force, or a request is about to be decided on by it.
    fn in_use(&self) {}

    /// Compare-and-swap: replaces `current` by `next`. Returns `false` if the state is another one, which
    /// [`BreakerStorage::load`] returns from then on, or if the change could not be made.
    fn replace(&self, current: State, next: State) -> bool;

    /// The counts, other workers' included.
    fn counts(&self) -> CallCounts;

    /// Counts one completed call, and returns the counts with it.
    fn add(&self, bad: bool) -> CallCounts;

    /// What another breaker over these counts has published of them, total and bad, if this one may have missed something: it
    /// had no requests and was not kept up to date. Called when the breaker is made and when a bucket begins.
    fn published(&self) -> Option<Snapshots> {
        None
    }
}

/// A state and counts of one worker alone.
#[derive(Debug)]
pub struct LocalBreaker {
    state: Cell<State>,
    counts: Cell<CallCounts>,
}

impl Default for LocalBreaker {
    fn default() -> LocalBreaker {
        LocalBreaker {
            state: Cell::new(State::new(CallCounts::default())),
            counts: Cell::default(),
        }
    }
}

impl BreakerStorage for LocalBreaker {
    #[inline]
    fn load(&self) -> State {
        self.state.get()
    }

    #[inline]
    fn replace(&self, _: State, next: State) -> bool {
        self.state.set(next);
        true
    }

    #[inline]
    fn counts(&self) -> CallCounts {
        self.counts.get()
    }

    #[inline]
    fn add(&self, bad: bool) -> CallCounts {
        self.counts.set(self.counts.get().plus_one(bad));
        self.counts.get()
    }
}
