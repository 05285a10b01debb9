//! Where a breaker keeps its state and its counts.

use super::transitions::{CallCounts, State};
use crate::snapshots::Snapshots;
use std::cell::Cell;

/// Where a breaker keeps what workers may share: its state and its two running counts.
///
/// A shell keeps the state in shared data ([`State::pack`]) and the counts in two counters.
pub trait BreakerStorage {
    /// The state, as far as is known here. It may be behind the truth: a change is made by [`BreakerStorage::replace`].
    fn load(&self) -> State;

    /// The state as it is now; from now on it is known here.
    fn reload(&self) -> State {
        self.load()
    }

    /// A rule that decides by this state has come into force, or a request is about to be decided on by it.
    fn in_use(&self) {}

    /// Puts `next` in the place of `current`. `false` where something else is there, or the change could not be made; after
    /// that it is known here what is there.
    fn replace(&self, current: State, next: State) -> bool;

    /// The counts, with those of other workers.
    fn counts(&self) -> CallCounts;

    /// Counts one completed call, and says what the counts are then.
    fn add(&self, bad: bool) -> CallCounts;

    /// What another breaker over these counts has kept of their totals and of the bad ones, where this one may have missed
    /// something: it was not asked for, and not kept up to date. Called when a bucket begins, and first when the breaker is
    /// made.
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
