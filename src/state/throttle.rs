//! A throttle: requests take turns, and each waits for its own.

use crate::compat::AsSentinel;
use crate::state::counter::Counter;
use crate::state::pacer::{Pacer, Spacing, is_free};
use crate::state::terms::{Ask, Terms};
use crate::time::Timestamp;
use std::time::Duration;

/// A throttle over one pacer. How far its turns reach is kept in the counter, where workers can share it.
pub(super) struct Throttle<T> {
    pacer: Pacer,
    compat: Option<AsSentinel>,
    counter: T,
}

impl<T: Counter> Throttle<T> {
    pub(super) fn new(is_compat: bool, counter: T) -> Throttle<T> {
        Throttle {
            pacer: Pacer::default(),
            compat: AsSentinel::of(is_compat),
            counter,
        }
    }

    pub(super) fn counter(&self) -> &T {
        &self.counter
    }

    /// Whether no turn that was taken is still to come at `now`.
    pub(super) fn is_idle(&self, now: Timestamp) -> bool {
        // In Sentinel the latest turn never expires: how long it delays a request depends on that request's cost.
        self.compat.is_none() && is_free(self.counter.latest(), now)
    }

    /// Whether the turn of a request has come; a request without cost needs none.
    #[inline(never)]
    pub(super) fn has_room(&self, terms: &Terms, cost: u64, now: Timestamp) -> bool {
        cost == 0 || self.wait(terms, cost, now) == Some(0)
    }

    /// How long a request has to wait for its turn, in nanoseconds; `None` if that is too long. Reserves nothing.
    #[inline]
    pub(super) fn wait(&self, terms: &Terms, cost: u64, now: Timestamp) -> Option<u64> {
        let spacing = Spacing::new(terms, cost, now);
        self.pacer.turn(self.counter.latest(), spacing)
    }

    /// Takes the turn of a request that may not wait, if it has come; a request without cost needs none.
    pub(super) fn take(&self, terms: &Terms, cost: u64, now: Timestamp) -> bool {
        self.reserve(terms, Ask::at_once(cost), now)
    }

    /// Takes the turn of a request, if that is still the turn it asks for.
    pub(super) fn reserve(&self, terms: &Terms, ask: Ask, now: Timestamp) -> bool {
        let spacing = || Spacing::new(terms, ask.cost, now);
        self.pacer.reserve(self.counter.latest(), ask, spacing)
    }

    /// Gives back the turn that was just taken.
    pub(super) fn release(&self, cost: u64) {
        if cost > 0 {
            self.pacer.release(self.counter.latest());
        }
    }

    /// Gives up the turn of a request that was to wait until `release`: see [`Pacer::give_up`].
    pub(super) fn give_up(&self, cost: u64, release: Option<Timestamp>, now: Option<Timestamp>) {
        if let Some(release) = release.filter(|_| cost > 0) {
            self.pacer.give_up(self.counter.latest(), release, now);
        }
    }

    /// See [`Pacer::take_longest`].
    pub(super) fn take_longest(&self) -> u64 {
        self.pacer.take_longest()
    }

    /// 1 if a request would pass at once, else 0.
    pub(super) fn remaining(&self, terms: &Terms, now: Timestamp) -> u64 {
        u64::from(self.wait(terms, 1, now) == Some(0))
    }

    /// How long until a request of that cost is admitted, to pass or to wait, if no other request came.
    pub(super) fn time_to_room(
        &self,
        terms: &Terms,
        cost: u64,
        now: Timestamp,
    ) -> Option<Duration> {
        let spacing = Spacing::new(terms, cost, now)?;
        Some(
            self.pacer
                .time_to_queue(self.counter.latest(), &spacing, now),
        )
    }

    /// How long until a request passes at once, if no other request came; zero if none ever does.
    pub(super) fn time_to_pass(&self, terms: &Terms, now: Timestamp) -> Duration {
        let spacing = Spacing::new(terms, 1, now);
        spacing.map_or(Duration::ZERO, |spacing| {
            self.pacer
                .time_to_pass(self.counter.latest(), &spacing, now)
        })
    }
}
