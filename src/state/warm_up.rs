//! A rule that warms up: a window that says how much it is used, how cold it is, and a line where its requests take turns.

mod state;

use crate::state::counter::Tally;
use crate::state::terms::{Ask, Terms};
use crate::state::throttle::{Line, Pace, take_turn, turn};
use crate::state::window::{RuleWindow, count};
use crate::time::Timestamp;
pub(super) use state::Warmth;
use std::time::Duration;

/// How many seconds are looked at for one in which a request may queue.
const MAX_SECONDS_AHEAD: u64 = 1000;

pub(super) struct Warm<T> {
    pub(super) window: RuleWindow<T>,
    pub(super) warmth: Warmth,
    pub(super) line: Option<Line>,
}

impl<T: Tally> Warm<T> {
    /// What a turn costs at `now`.
    pub(super) fn pace(&self, terms: &Terms, cost: u64, now: Timestamp) -> Option<Pace> {
        let rate = self.warmth.rate_then(terms, &self.window, now);
        Pace::at_rate(terms, rate, cost, now)
    }

    #[inline(never)]
    pub(super) fn advance(&self, now: Timestamp) {
        self.window.advance(now);
        self.warmth.advance(&self.window, now);
    }

    /// Counts a pass that was reserved. Those that take turns have reserved none.
    pub(super) fn commit(&self, cost: u64) {
        if self.line.is_some() {
            count(&self.window, cost);
        } else {
            self.window.commit(cost);
        }
    }

    #[inline(never)]
    pub(super) fn has_room(&self, terms: &Terms, rate: f64, cost: u64, now: Timestamp) -> bool {
        if let Some(line) = &self.line {
            let pace = Pace::at_rate(terms, rate, cost, now);
            return turn(line, self.window.tally(), pace) == Some(0);
        }
        let limit = self.warmth.limit(terms, &self.window, rate, cost, now);
        limit.is_some_and(|limit| self.window.has_room(limit, cost, now))
    }

    pub(super) fn reserve(&self, terms: &Terms, ask: Ask, now: Timestamp) -> bool {
        if let Some(line) = &self.line {
            let pace = || self.pace(terms, ask.cost, now);
            return take_turn(line, self.window.tally(), ask, pace);
        }
        if !ask.counts {
            return true;
        }
        let rate = self.warmth.rate(terms, &self.window, now);
        let limit = self.warmth.limit(terms, &self.window, rate, ask.cost, now);
        limit.is_some_and(|limit| match ask.wait {
            0 => self.window.reserve(limit, ask.cost, now),
            wait => self.window.lend(limit, ask.cost, now.plus_nanos(wait), now),
        })
    }

    pub(super) fn time_to_room(
        &self,
        terms: &Terms,
        cost: u64,
        now: Timestamp,
    ) -> Option<Duration> {
        if let Some(line) = &self.line {
            return self.time_to_queue(line, terms, cost, now);
        }
        let fastest = self.warmth.fastest_then(terms, &self.window);
        self.window.first_fit(
            now,
            |sum| self.warmth.fits(terms, fastest, sum, cost),
            |at, sum| {
                let rate = self.warmth.rate_then(terms, &self.window, at);
                self.warmth.fits(terms, rate, sum, cost)
            },
        )
    }

    /// When a request may queue depends in Sentinel on what it costs itself, and that on the second.
    pub(super) fn time_to_queue(
        &self,
        line: &Line,
        terms: &Terms,
        cost: u64,
        now: Timestamp,
    ) -> Option<Duration> {
        let latest = self.window.tally().latest();
        let second = now.as_millis() / 1000;
        let mut at = now;
        for ahead in 1..MAX_SECONDS_AHEAD {
            let pace = self.pace(terms, cost, at)?;
            let then = now
                .plus_nanos(line.time_to_queue(latest, &pace, now).as_nanos() as u64)
                .max(at);
            let next = Timestamp::from_millis((second + ahead) * 1000);
            if !terms.compat || then < next {
                return Some(then.since(now));
            }
            at = next;
        }
        Some(at.since(now))
    }
}
