//! A rule that warms up: a window that measures its use, how cold it is, and a pacer if its requests take turns.

mod state;

use crate::state::counter::Counter;
use crate::state::pacer::{Pacer, Spacing, is_free};
use crate::state::terms::{Ask, Terms};
use crate::state::window::RuleWindow;
use crate::time::Timestamp;
use state::WarmUpState;
use std::time::Duration;

/// How many seconds are searched for one in which a request may queue.
const MAX_SECONDS_AHEAD: u64 = 1000;

pub(super) struct Warm<T> {
    pub(super) window: RuleWindow<T>,
    state: WarmUpState,
    pacer: Option<Pacer>,
}

impl<T: Counter> Warm<T> {
    /// A rule over that window; `is_paced`: its requests take turns.
    pub(super) fn new(window: RuleWindow<T>, compat: bool, is_paced: bool) -> Warm<T> {
        Warm {
            window,
            state: WarmUpState::new(compat),
            pacer: is_paced.then(Pacer::default),
        }
    }

    /// Whether a waiting request has a loan of the window. (A request that takes a turn is counted at once: the window measures
    /// how much the rule is used.)
    pub(super) fn lends(&self) -> bool {
        self.pacer.is_none()
    }

    /// Whether the state is idle at `now`: nothing counts, and no turn is still to come.
    pub(super) fn is_idle(&self, now: Timestamp) -> bool {
        // In Sentinel the latest turn never expires: how long it delays a request depends on that request's cost.
        let latest = self.window.counter().latest();
        let is_free = self.pacer.is_none() || !self.state.is_sentinel() && is_free(latest, now);
        is_free && self.window.is_idle(now)
    }

    #[inline(never)]
    pub(super) fn advance(&self, now: Timestamp) {
        self.window.advance(now);
        self.state.advance(&self.window, now);
    }

    /// What a turn costs at `now`.
    fn spacing(&self, terms: &Terms, cost: u64, now: Timestamp) -> Option<Spacing> {
        let rate = self.state.rate_then(terms, &self.window, now);
        Spacing::at_rate(terms, rate, cost, now)
    }

    /// Whether a request of that cost may pass at once.
    pub(super) fn has_room(&self, terms: &Terms, cost: u64, now: Timestamp) -> bool {
        self.window.count_as(terms.counting);
        let rate = || self.state.rate(terms, &self.window, now);
        cost == 0 || self.has_room_at(terms, rate(), cost, now)
    }

    /// The same for another rule that decides on this state: how warm the rule is follows from its own terms.
    pub(super) fn has_room_beside(&self, terms: &Terms, cost: u64, now: Timestamp) -> bool {
        self.window.count_as(terms.counting);
        let rate = || self.state.rate_then(terms, &self.window, now);
        cost == 0 || self.has_room_at(terms, rate(), cost, now)
    }

    #[inline(never)]
    fn has_room_at(&self, terms: &Terms, rate: f64, cost: u64, now: Timestamp) -> bool {
        if let Some(pacer) = &self.pacer {
            let spacing = Spacing::at_rate(terms, rate, cost, now);
            return pacer.turn(self.window.counter().latest(), spacing) == Some(0);
        }
        let limit = self.state.limit(terms, &self.window, rate, cost, now);
        limit.is_some_and(|limit| self.window.has_room(limit, cost, now))
    }

    /// How long a request has to wait for its turn, in nanoseconds; `None` if that is too long, or if the rule has no turns.
    pub(super) fn wait(&self, terms: &Terms, cost: u64, now: Timestamp) -> Option<u64> {
        let pacer = self.pacer.as_ref()?;
        pacer.turn(
            self.window.counter().latest(),
            self.spacing(terms, cost, now),
        )
    }

    /// Records that a request is held back.
    pub(super) fn note_held_back(&self, now: Timestamp) {
        self.state.note_held_back(now);
    }

    /// Reserves what a request needs, if it is there.
    pub(super) fn reserve(&self, terms: &Terms, ask: Ask, now: Timestamp) -> bool {
        if let Some(pacer) = &self.pacer {
            let spacing = || self.spacing(terms, ask.cost, now);
            return pacer.reserve(self.window.counter().latest(), ask, spacing);
        }
        if !ask.counts {
            return true;
        }
        let rate = self.state.rate(terms, &self.window, now);
        let limit = self.state.limit(terms, &self.window, rate, ask.cost, now);
        limit.is_some_and(|limit| match ask.wait {
            0 => self.window.reserve(limit, ask.cost, now),
            wait => self.window.lend(limit, ask.cost, now.plus_nanos(wait), now),
        })
    }

    /// Gives back what was just reserved.
    pub(super) fn release(&self, ask: Ask, now: Timestamp) {
        match &self.pacer {
            _ if ask.cost == 0 => {}
            Some(pacer) => pacer.release(self.window.counter().latest()),
            None if !ask.counts => {}
            None => self.window.release_after(ask.cost, ask.wait, now),
        }
    }

    /// Counts a reserved pass. If requests take turns, no pass was reserved.
    pub(super) fn admit(&self, cost: u64) {
        if self.pacer.is_some() {
            self.window.count(cost);
        } else {
            self.window.admit(cost);
        }
    }

    /// Gives up the turn of a request that was to wait until `release`: see [`Pacer::give_up`].
    pub(super) fn give_turn_up(
        &self,
        cost: u64,
        release: Option<Timestamp>,
        now: Option<Timestamp>,
    ) {
        let release = release.filter(|_| cost > 0);
        if let (Some(pacer), Some(release)) = (&self.pacer, release) {
            pacer.give_up(self.window.counter().latest(), release, now);
        }
    }

    /// See [`Pacer::take_longest`]; `None` if requests take no turns.
    pub(super) fn take_longest(&self) -> Option<u64> {
        self.pacer.as_ref().map(Pacer::take_longest)
    }

    /// How much is left: whole passes, rounded down; if requests take turns, 1 if a request would pass at once.
    pub(super) fn remaining(&self, terms: &Terms, now: Timestamp) -> u64 {
        let rate = self.state.rate_then(terms, &self.window, now);
        if self.pacer.is_some() {
            return u64::from(self.has_room_at(terms, rate, 1, now));
        }
        let sum = self.window.sum(now);
        let one = u64::from(self.state.fits(terms, rate, sum, 1));
        ((rate - sum) as u64).max(one)
    }

    /// How long until a request of that cost is admitted, to pass or to wait, if no other request came; `None` if it never is.
    pub(super) fn time_to_room(
        &self,
        terms: &Terms,
        cost: u64,
        now: Timestamp,
    ) -> Option<Duration> {
        if let Some(pacer) = &self.pacer {
            return self.time_to_queue(pacer, terms, cost, now);
        }
        let fastest = self.state.fastest_then(terms, &self.window);
        self.window.first_fit(
            now,
            |sum| self.state.fits(terms, fastest, sum, cost),
            |at, sum| {
                let rate = self.state.rate_then(terms, &self.window, at);
                self.state.fits(terms, rate, sum, cost)
            },
        )
    }

    /// In Sentinel, when a request may queue depends on its spacing, and the spacing on the second.
    fn time_to_queue(
        &self,
        pacer: &Pacer,
        terms: &Terms,
        cost: u64,
        now: Timestamp,
    ) -> Option<Duration> {
        let latest = self.window.counter().latest();
        let second = now.as_millis() / 1000;
        let mut at = now;
        for ahead in 1..MAX_SECONDS_AHEAD {
            let spacing = self.spacing(terms, cost, at)?;
            let then = now
                .plus_nanos(pacer.time_to_queue(latest, &spacing, now).as_nanos() as u64)
                .max(at);
            let next = Timestamp::from_millis((second + ahead) * 1000);
            if terms.compat.is_none() || then < next {
                return Some(then.since(now));
            }
            at = next;
        }
        Some(at.since(now))
    }
    /// How long until a request passes at once, if no other request came; zero if none ever does, or if requests take no turns.
    pub(super) fn time_to_pass(&self, terms: &Terms, now: Timestamp) -> Duration {
        let turn = self.pacer.as_ref().zip(self.spacing(terms, 1, now));
        turn.map_or(Duration::ZERO, |(pacer, spacing)| {
            pacer.time_to_pass(self.window.counter().latest(), &spacing, now)
        })
    }
}
