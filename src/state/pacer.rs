//! The generic cell rate algorithm (GCRA, as virtual scheduling): requests pass one by one, each in its turn.
//!
//! ```text
//!   10 a second         |---- a ----|---- b ----|---- c ----|
//!                       ^           ^           ^           ^
//!                  a passes    b waits for  c waits for   the pacer is free
//!                  at once     its turn     its turn
//! ```
//!
//! The state is one instant: when the pacer is free again. A request keeps it busy for as long as it costs. Sentinel stores
//! when the latest request passed, and the next one waits for its own cost, so that a batch which finds the pacer idle delays
//! no later request. If all requests cost the same, both decide alike.

use crate::rule::Count;
use crate::state::counter::SharedInstant;
use crate::state::terms::{Ask, Terms, max_spacing, spacing};
use crate::time::Timestamp;
use std::cell::Cell;
use std::time::Duration;

const NANOS_PER_MILLI: u64 = 1_000_000;

/// Each worker that shares a throttle reads the clock for itself. Turns that reach too far ahead by less than this come from a
/// worker that read it later, not from a clock that stepped back. (A second is longer than a worker takes from reading the
/// clock to deciding.)
const SLACK_NANOS: u64 = 1_000_000_000;

/// The spacing of a request's turn, under a rule and at an instant; in nanoseconds.
#[derive(Clone, Copy)]
pub(crate) struct Spacing {
    /// How long the request keeps the pacer busy.
    cost: u64,
    charge: Charge,
    max_queueing: u64,
    /// How far ahead turns can reach. A turn that reaches further was taken before the clock stepped back.
    furthest: u64,
    now: Timestamp,
}

/// Which requests wait for a request's cost.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Charge {
    /// Later requests: GCRA.
    After,
    /// The request itself, before it passes, as in Sentinel.
    Before,
}

impl Spacing {
    /// The spacing of a request of that cost under a throttle. `None` if it never passes.
    pub(super) fn new(terms: &Terms, cost: u64, now: Timestamp) -> Option<Spacing> {
        let count = terms.count.get();
        if terms.compat.is_none() {
            if cost == 1 {
                return Some(Spacing::charged_after(terms, terms.turn?, now));
            }
            return Spacing::at_rate(terms, count, cost, now);
        }
        // Sentinel: `ThrottlingController.canPass`: in milliseconds where the count divides a second, else in nanoseconds. (A
        // count below one half is a division by zero there.)
        let millis = 1000_u64.checked_rem(count.round() as u64) == Some(0) && count <= 1000.0;
        (count > 0.0).then(|| {
            if millis {
                let cost_ms = (1000.0 * cost as f64 / count).round();
                Spacing::in_millis(terms, cost_ms as u64, now)
            } else {
                let cost = (1e6 * 1000.0 * cost as f64 / count).round();
                Spacing::charged_before(terms, cost as u64, now)
            }
        })
    }

    /// The spacing of a request of that cost at `rate` passes in the rule's interval. `None` if it never passes.
    pub(super) fn at_rate(terms: &Terms, rate: f64, cost: u64, now: Timestamp) -> Option<Spacing> {
        if terms.compat.is_some() {
            // Sentinel: `WarmUpRateLimiterController.canPass`.
            let cost_ms = (cost as f64 / rate * 1000.0).round();
            return (!rate.is_nan()).then(|| Spacing::in_millis(terms, cost_ms as u64, now));
        }
        let cost = spacing(terms.interval, terms.count.get(), rate, cost)?;
        Some(Spacing::charged_after(terms, cost, now))
    }

    /// A spacing of so many nanoseconds, for which later requests wait.
    fn charged_after(terms: &Terms, cost: u64, now: Timestamp) -> Spacing {
        Spacing {
            cost,
            charge: Charge::After,
            max_queueing: terms.max_queueing,
            furthest: terms.furthest,
            now,
        }
    }

    /// The spacing of a request of that cost at `count` passes in `interval`, if no request waits for longer than
    /// `longest_wait`. `None` if it never passes.
    #[inline]
    pub(crate) fn evenly(
        interval: u64,
        count: Count,
        (max_queueing, longest_wait): (u64, u64),
        cost: u64,
        now: Timestamp,
    ) -> Option<Spacing> {
        let count = count.get();
        Some(Spacing {
            cost: spacing(interval, count, count, cost)?,
            charge: Charge::After,
            max_queueing,
            furthest: longest_wait.saturating_add(max_spacing(interval, count, count)),
            now,
        })
    }

    /// The spacing by which Sentinel paces the values of a hot parameter: in whole milliseconds, by the whole part of the
    /// count, and a wait must be shorter than the longest one.
    ///
    /// Sentinel: `ParamFlowChecker.passThrottleLocalCheck`.
    pub(crate) fn of_hot_parameter(
        interval: u64,
        count: Count,
        (max_queueing, longest_wait): (u64, u64),
        cost: u64,
        now: Timestamp,
    ) -> Option<Spacing> {
        let interval_ms = (interval / NANOS_PER_MILLI) as f64;
        let cost_ms = (interval_ms * cost as f64 / count.whole() as f64).round();
        (count.whole() > 0).then(|| Spacing {
            cost: (cost_ms as u64).saturating_mul(NANOS_PER_MILLI),
            charge: Charge::Before,
            max_queueing: max_queueing.saturating_sub(NANOS_PER_MILLI),
            furthest: longest_wait,
            now: Timestamp::from_millis(now.as_millis()),
        })
    }

    /// Sentinel's spacing in whole milliseconds.
    fn in_millis(terms: &Terms, cost_ms: u64, now: Timestamp) -> Spacing {
        let cost = cost_ms.saturating_mul(NANOS_PER_MILLI);
        Spacing::charged_before(terms, cost, Timestamp::from_millis(now.as_millis()))
    }

    fn charged_before(terms: &Terms, cost: u64, now: Timestamp) -> Spacing {
        Spacing {
            cost,
            charge: Charge::Before,
            max_queueing: terms.max_queueing,
            furthest: terms.furthest,
            now,
        }
    }

    /// How far turns reach, at most as far as the rule allows: if `latest` lies further ahead, the clock has stepped back, and
    /// turns are pulled back.
    #[inline]
    pub(crate) fn clamped(&self, latest: Timestamp) -> Timestamp {
        let furthest = self.now.plus_nanos(self.furthest);
        if latest <= furthest.plus_nanos(SLACK_NANOS) {
            latest
        } else {
            furthest
        }
    }

    /// How long after the latest turn the request is released at the earliest, in nanoseconds: 0 if later requests wait for its
    /// cost.
    #[inline]
    pub(crate) fn spacing_before(&self) -> u64 {
        match self.charge {
            Charge::After => 0,
            Charge::Before => self.cost,
        }
    }

    /// When the request comes.
    pub(crate) fn now(&self) -> Timestamp {
        self.now
    }

    /// How far turns reach once a request that waits for `wait` nanoseconds has taken its own.
    #[inline]
    pub(crate) fn reach_after(&self, wait: u64) -> Timestamp {
        let release = self.now.plus_nanos(wait);
        match self.charge {
            Charge::After => release.plus_nanos(self.cost),
            Charge::Before => release,
        }
    }

    /// How long the request has to wait, in nanoseconds, while turns reach to `latest`; `None` if that is longer than it may
    /// wait.
    #[inline]
    pub(crate) fn wait(&self, latest: Option<Timestamp>) -> Option<u64> {
        let release = self.release(latest);
        self.admits(release)
            .then(|| release.as_nanos() - self.now.as_nanos())
    }

    /// How long after `now` the request would be admitted, to pass or to wait, if no other request came.
    pub(crate) fn time_to_queue(&self, latest: Option<Timestamp>, now: Timestamp) -> Duration {
        let release = self.release(latest).as_nanos();
        Timestamp::from_nanos(release.saturating_sub(self.max_queueing)).since(now)
    }

    /// How long after `now` the request would pass at once, if no other request came.
    pub(crate) fn time_to_pass(&self, latest: Option<Timestamp>, now: Timestamp) -> Duration {
        self.release(latest).since(now)
    }

    /// When a request that comes now is released, while turns reach to `latest`.
    #[inline]
    fn release(&self, latest: Option<Timestamp>) -> Timestamp {
        let free = match self.charge {
            Charge::After => latest,
            Charge::Before => latest.map(|latest| latest.plus_nanos(self.cost)),
        };
        free.map_or(self.now, |free| free.max(self.now))
    }

    /// Whether a request may wait until `release`; the longest wait itself is allowed.
    fn admits(&self, release: Timestamp) -> bool {
        release.as_nanos() - self.now.as_nanos() <= self.max_queueing
    }
}

/// A turn that was taken.
#[derive(Clone, Copy)]
struct Slot {
    /// How far turns reached before, and with it.
    from: Option<Timestamp>,
    to: Timestamp,
    release: Timestamp,
}

/// Whether turns reach no further than `now`.
pub(super) fn is_free(instant: &impl SharedInstant, now: Timestamp) -> bool {
    instant.get().is_none_or(|latest| latest <= now)
}

/// The turns of one rule. The instant to which they reach is kept elsewhere, where it can be shared.
#[derive(Default)]
pub(super) struct Pacer {
    /// The latest turn that was taken here: only this one can be given back.
    slot: Cell<Option<Slot>>,
    /// Whether that turn was given up, at an unknown time.
    given_up: Cell<bool>,
    /// The longest wait for a turn since [`Pacer::take_longest`], in nanoseconds.
    longest: Cell<u64>,
}

impl Pacer {
    /// How far turns reach, without a turn that was given up in time.
    fn latest(&self, instant: &impl SharedInstant, spacing: &Spacing) -> Option<Timestamp> {
        if self.given_up.take()
            && let Some(slot) = self.slot.take()
            && slot.release > spacing.now
        {
            instant.swap(Some(slot.to), slot.from);
        }
        let latest = instant.get()?;
        let reached = spacing.clamped(latest);
        if reached != latest {
            instant.swap(Some(latest), Some(reached));
        }
        Some(reached)
    }

    /// How long the request has to wait, in nanoseconds; `None` if that is longer than it may wait.
    #[inline]
    fn wait(&self, instant: &impl SharedInstant, spacing: &Spacing) -> Option<u64> {
        spacing.wait(self.latest(instant, spacing))
    }

    /// How long a request has to wait for its turn, in nanoseconds; `None` if that is longer than it may wait, or if it has no
    /// spacing, since it never passes.
    #[inline]
    pub(super) fn turn(
        &self,
        instant: &impl SharedInstant,
        spacing: Option<Spacing>,
    ) -> Option<u64> {
        self.wait(instant, &spacing?)
    }

    /// Takes the turn of a request; a request without cost needs none.
    pub(super) fn reserve(
        &self,
        instant: &impl SharedInstant,
        ask: Ask,
        spacing: impl FnOnce() -> Option<Spacing>,
    ) -> bool {
        ask.cost == 0 || spacing().is_some_and(|spacing| self.take(instant, &spacing, ask.wait))
    }

    /// Takes the turn of a request that waits for `wait` nanoseconds: its own wait, or a longer one because of another rule.
    /// Fails if another worker was faster.
    fn take(&self, instant: &impl SharedInstant, spacing: &Spacing, wait: u64) -> bool {
        let from = self.latest(instant, spacing);
        let (free, release) = (spacing.release(from), spacing.now.plus_nanos(wait));
        if free > release {
            return false;
        }
        let to = spacing.reach_after(wait);
        if !instant.swap(from, Some(to)) {
            return false;
        }
        self.slot.set(Some(Slot { from, to, release }));
        let waits = free.as_nanos() - spacing.now.as_nanos();
        self.longest.set(self.longest.get().max(waits));
        true
    }

    /// The longest wait for a turn since the last call of this method, in nanoseconds.
    pub(super) fn take_longest(&self) -> u64 {
        self.longest.take()
    }

    /// Gives back the turn that was taken last, at once.
    pub(super) fn release(&self, instant: &impl SharedInstant) {
        self.given_up.set(false);
        if let Some(slot) = self.slot.take() {
            instant.swap(Some(slot.to), slot.from);
        }
    }

    /// Gives back the turn of a request that was to be released at `release`, if no later turn was taken and it is still to
    /// come. At an unknown time (`None`) the next call decides.
    pub(super) fn give_up(
        &self,
        instant: &impl SharedInstant,
        release: Timestamp,
        now: Option<Timestamp>,
    ) {
        if self.slot.get().is_none_or(|slot| slot.release != release) {
            return;
        }
        match now {
            Some(now) if now < release => self.release(instant),
            Some(_) => {}
            None => self.given_up.set(true),
        }
    }

    /// How long after `now` the request would be admitted, to pass or to wait, if no other request came.
    pub(super) fn time_to_queue(
        &self,
        instant: &impl SharedInstant,
        spacing: &Spacing,
        now: Timestamp,
    ) -> Duration {
        spacing.time_to_queue(self.latest(instant, spacing), now)
    }

    /// How long after `now` the request would pass at once, if no other request came.
    pub(super) fn time_to_pass(
        &self,
        instant: &impl SharedInstant,
        spacing: &Spacing,
        now: Timestamp,
    ) -> Duration {
        spacing.time_to_pass(self.latest(instant, spacing), now)
    }
}
