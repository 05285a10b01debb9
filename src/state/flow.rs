//! The state of a flow rule: what it measures, its decisions at the threshold, and how often it has decided in which way.

mod alone;
mod full;
mod held;
mod utilization;

use crate::rule::{ControlBehavior, Counting, Grade};
use crate::state::counter::{Counter, Past, SharedInstant};
use crate::state::decisions::Decisions;
use crate::state::in_flight::InFlight;
use crate::state::terms::{Ask, Bounds, Terms};
use crate::state::throttle::Throttle;
use crate::state::warm_up::Warm;
use crate::state::window::RuleWindow;
use crate::time::Timestamp;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

/// What a rule measures, and which requests it makes wait.
#[repr(u8)] // a tag of its own is looked at sooner than one that is hidden in a variant
enum Measure<T> {
    /// Passes in a window.
    Passes(RuleWindow<T>),
    /// Calls in flight.
    InFlight(InFlight<T>),
    /// Turns of requests.
    Turns(Throttle<T>),
    /// Passes in a window, how cold the rule is, and a pacer if requests take turns.
    Warm(Box<Warm<T>>),
    /// The state of another rule, which is charged for both: nothing is reserved here.
    Another(Rc<Controller<T>>, T),
}

/// The state of a rule on one resource: its window, its turns or its calls in flight, and how it has decided.
///
/// The count and the way a window counts are not part of it, so that they can change while the state goes on. A decision has
/// three steps, so that several rules decide together: `has_room`, or `wait` if there is none, for each rule; if all have room,
/// `reserve` for each; if all could reserve, `admit` for each.
///
/// Sentinel: `TrafficShapingController`: `DefaultController`, `ThrottlingController`, `WarmUpController` and
/// `WarmUpRateLimiterController`.
pub struct Controller<T> {
    measure: Measure<T>,
    /// Whether the resource that it measures has ever been requested; kept if the rule decides as Sentinel does.
    met: Cell<bool>,
    /// What the rule lets pass that was last opened with this state: only [`Controller::utilization`] reads it.
    bounds: Cell<Bounds>,
    decisions: Decisions,
}

impl<T: Counter> Controller<T> {
    /// The state of a rule that decides on what `another` measures, and charges nothing. It has its own numbers of decisions,
    /// and an unused `counter`.
    pub(crate) fn beside(another: Rc<Controller<T>>, counter: T) -> Controller<T> {
        Controller::of(Measure::Another(another, counter))
    }

    /// The state of a rule of this grade and behaviour over the counts of `counter`; `compat`: the rule decides as Sentinel
    /// does.
    pub fn new(
        grade: Grade,
        behavior: ControlBehavior,
        compat: bool,
        counter: T,
        past: Past,
    ) -> Controller<T> {
        let measure = match (grade, behavior) {
            (Grade::Concurrency, _) => Measure::InFlight(InFlight::new(compat, counter)),
            (Grade::Qps { .. }, ControlBehavior::Throttle) => {
                Measure::Turns(Throttle::new(compat, counter))
            }
            (Grade::Qps { window, counting }, behavior) => {
                let window = RuleWindow::new(window.window(), counting, counter, past);
                let window = if compat {
                    window.with_sentinel_loans()
                } else {
                    window
                };
                match behavior {
                    ControlBehavior::Reject => Measure::Passes(window),
                    _ => Measure::Warm(Box::new(Warm::new(window, compat, behavior.is_paced()))),
                }
            }
        };
        Controller::of(measure)
    }

    fn of(measure: Measure<T>) -> Controller<T> {
        Controller {
            measure,
            met: Cell::new(false),
            bounds: Cell::default(),
            decisions: Decisions::default(),
        }
    }

    /// The window; `None` for a limit on concurrency and for a throttle, and if it belongs to another rule.
    pub fn window(&self) -> Option<&RuleWindow<T>> {
        match &self.measure {
            Measure::Passes(window) => Some(window),
            Measure::Warm(warm) => Some(&warm.window),
            Measure::InFlight(_) | Measure::Turns(..) | Measure::Another(..) => None,
        }
    }

    /// Makes the window count as the asking rule does. Each method that depends on it begins with this call.
    #[inline]
    pub(crate) fn count_as(&self, counting: Counting) {
        match &self.measure {
            Measure::Passes(window) => window.count_as(counting),
            Measure::Warm(warm) => warm.window.count_as(counting),
            Measure::InFlight(_) | Measure::Turns(..) | Measure::Another(..) => {}
        }
    }

    /// The counts.
    pub fn counter(&self) -> &T {
        match &self.measure {
            Measure::Passes(window) => window.counter(),
            Measure::Warm(warm) => warm.window.counter(),
            Measure::InFlight(in_flight) => in_flight.counter(),
            Measure::Turns(throttle) => throttle.counter(),
            Measure::Another(_, counter) => counter,
        }
    }

    /// Reads shared counts. To be called before the clock is read for the next call here that takes a time.
    #[inline]
    pub fn observe(&self) {
        match &self.measure {
            Measure::Passes(window) => window.observe(),
            Measure::Warm(warm) => warm.window.observe(),
            // The other rule stands on the same resource, and is observed with it.
            Measure::InFlight(_) | Measure::Turns(..) | Measure::Another(..) => {}
        }
    }

    /// Brings the window up to `now`.
    #[inline]
    pub fn advance(&self, now: Timestamp) {
        match &self.measure {
            Measure::Passes(window) => window.advance(now),
            Measure::Warm(warm) => warm.advance(now),
            Measure::InFlight(_) | Measure::Turns(..) => {}
            Measure::Another(another, _) => another.advance_beside(now),
        }
    }

    #[cold]
    #[inline(never)]
    fn advance_beside(&self, now: Timestamp) {
        self.advance(now);
    }

    /// Whether nothing counts at `now`, so that another name can get the state. Counts that have changed since the last reading
    /// count.
    pub(crate) fn is_idle(&self, now: Timestamp) -> bool {
        self.count_as(Counting::Strict);
        match &self.measure {
            Measure::Passes(window) => window.is_idle(now),
            Measure::InFlight(in_flight) => in_flight.is_idle(),
            Measure::Turns(throttle) => throttle.is_idle(now),
            Measure::Warm(warm) => warm.is_idle(now),
            // The other rule's state decides.
            Measure::Another(..) => true,
        }
    }

    /// Whether all use here can be charged to another state, too: not calls in flight, which end only here, and not loans,
    /// which count for longer than what is charged now.
    pub(crate) fn can_be_left(&self) -> bool {
        match &self.measure {
            Measure::InFlight(in_flight) => in_flight.is_idle(),
            Measure::Turns(..) | Measure::Another(..) => true,
            Measure::Passes(_) | Measure::Warm(_) => {
                self.counter().admitted() == Some(self.counter().reserved())
            }
        }
    }

    /// Charges all that has been used of `further`, a state of the same rule, here too. Returns whether that was done.
    pub(crate) fn take_along(&self, further: &Self, now: Timestamp) -> bool {
        if let Measure::Another(..) = self.measure {
            return true;
        }
        if !further.can_be_left() {
            return false;
        }
        further.count_as(Counting::Strict);
        let (own, other) = (self.counter(), further.counter());
        let used = further.window().map_or(0, |window| window.most_used(now));
        if used > MAX_TAKEN_ALONG {
            return false;
        }
        let charged = used == 0 || own.reserve(used).is_some();
        if charged && used > 0 {
            own.admit(used);
        }
        let latest = own.latest().get();
        let is_behind = other.latest().get() > latest;
        charged && (!is_behind || own.latest().swap(latest, other.latest().get()))
    }

    /// Records that the resource it measures has been requested.
    pub(crate) fn meet(&self) {
        self.met.set(true);
    }

    /// Whether the resource it measures has ever been requested.
    pub(crate) fn is_met(&self) -> bool {
        match &self.measure {
            Measure::Another(another, _) => another.is_met(),
            _ => self.met.get(),
        }
    }

    /// Whether a request of that cost may pass at once. Reserves nothing.
    #[inline]
    pub(crate) fn has_room(&self, terms: &Terms, cost: u64, now: Timestamp) -> bool {
        match &self.measure {
            Measure::Passes(window) => {
                window.count_as(terms.counting);
                window.has_room(terms.count, cost, now)
            }
            Measure::InFlight(in_flight) => in_flight.has_room(terms, cost),
            Measure::Turns(throttle) => throttle.has_room(terms, cost, now),
            Measure::Warm(warm) => warm.has_room(terms, cost, now),
            Measure::Another(another, _) => another.has_room_beside(terms, cost, now),
        }
    }

    /// The same for a rule that decides on another rule's state. Out of line: a recursive function is not inlined, and most
    /// rules decide on their own state.
    #[cold]
    #[inline(never)]
    fn has_room_beside(&self, terms: &Terms, cost: u64, now: Timestamp) -> bool {
        match &self.measure {
            Measure::Warm(warm) => warm.has_room_beside(terms, cost, now),
            _ => self.has_room(terms, cost, now),
        }
    }

    /// How long a request that may not pass at once has to wait, in nanoseconds; `None` if it is refused. Reserves nothing.
    #[cold]
    pub(crate) fn wait(
        &self,
        terms: &Terms,
        cost: u64,
        prioritized: bool,
        now: Timestamp,
    ) -> Option<u64> {
        self.count_as(terms.counting);
        match &self.measure {
            Measure::Passes(window) if prioritized && !terms.holds => {
                let wait = window.time_to_loan(terms.count, cost, now)?;
                Some(wait.as_nanos() as u64)
            }
            Measure::Passes(_) | Measure::InFlight(_) => None,
            Measure::Turns(throttle) => throttle.wait(terms, cost, now),
            Measure::Warm(warm) => warm.wait(terms, cost, now),
            Measure::Another(another, _) => another.wait(terms, cost, prioritized, now),
        }
    }

    /// Records that a request is held back: it waits, or is refused. (So a rule that warms up is in use, however little
    /// passes.) A rule that decides on another rule's state records nothing.
    #[inline]
    pub(crate) fn note_held_back(&self, now: Timestamp) {
        if let Measure::Warm(warm) = &self.measure {
            warm.note_held_back(now);
        }
    }

    /// Reserves what a request that passes at once needs, if it is there, else nothing. The window counts as the rule does
    /// ([`Controller::count_as`]): it does after [`Controller::has_room`].
    #[inline]
    pub(crate) fn reserve_at_once(&self, terms: &Terms, cost: u64, now: Timestamp) -> bool {
        match &self.measure {
            Measure::Passes(window) => window.reserve(terms.count, cost, now),
            Measure::InFlight(in_flight) => in_flight.reserve(terms, cost),
            Measure::Turns(..) | Measure::Warm(_) => self.reserve(terms, Ask::at_once(cost), now),
            Measure::Another(..) => true,
        }
    }

    /// Reserves what a request needs, if it is there, else nothing.
    #[inline(never)]
    pub(crate) fn reserve(&self, terms: &Terms, ask: Ask, now: Timestamp) -> bool {
        match &self.measure {
            Measure::Passes(_) | Measure::InFlight(_) if !ask.counts => true,
            Measure::Passes(window) if ask.wait > 0 => {
                window.count_as(terms.counting);
                window.lend(terms.count, ask.cost, now.plus_nanos(ask.wait), now)
            }
            Measure::Passes(_) | Measure::InFlight(_) => {
                self.count_as(terms.counting);
                self.reserve_at_once(terms, ask.cost, now)
            }
            Measure::Turns(throttle) => throttle.reserve(terms, ask, now),
            Measure::Warm(warm) => {
                warm.window.count_as(terms.counting);
                warm.reserve(terms, ask, now)
            }
            Measure::Another(..) => true,
        }
    }

    /// Releases what was just reserved, because another rule refused.
    #[cold]
    pub(crate) fn release(&self, ask: Ask, now: Timestamp) {
        match &self.measure {
            Measure::Passes(_) | Measure::InFlight(_) if !ask.counts => {}
            Measure::Passes(window) => window.release_after(ask.cost, ask.wait, now),
            Measure::InFlight(in_flight) => in_flight.release(ask.cost),
            Measure::Turns(throttle) => throttle.release(ask.cost),
            Measure::Warm(warm) => warm.release(ask, now),
            Measure::Another(..) => {}
        }
    }

    /// Charges the reservation of a request that passes at once. Returns whether the call is in flight from now on
    /// ([`Controller::leave`]).
    #[inline]
    pub(crate) fn admit_at_once(&self, cost: u64) -> bool {
        self.decisions.pass();
        match &self.measure {
            Measure::Passes(window) => {
                window.admit(cost);
                false
            }
            Measure::InFlight(in_flight) => in_flight.admit(cost),
            Measure::Turns(..) | Measure::Another(..) => false,
            Measure::Warm(warm) => {
                warm.admit(cost);
                false
            }
        }
    }

    /// Charges a reservation. Returns whether the call is in flight from now on.
    pub(crate) fn admit(&self, ask: Ask) -> bool {
        let is_lent = ask.wait > 0
            && match &self.measure {
                Measure::Passes(_) => true,
                Measure::Warm(warm) => warm.lends(),
                Measure::InFlight(_) | Measure::Turns(..) | Measure::Another(..) => false,
            };
        if ask.counts && !is_lent {
            return self.admit_at_once(ask.cost);
        }
        self.decisions.pass();
        false
    }

    /// Counts a request that the rule measures but does not limit. Returns whether the call is in flight from now on.
    pub(crate) fn charge(&self, ask: Ask, now: Timestamp) -> bool {
        match &self.measure {
            Measure::Passes(window) => window.charge(ask.cost, ask.wait, now),
            Measure::Warm(warm) => warm.window.charge(ask.cost, ask.wait, now),
            Measure::InFlight(in_flight) => return in_flight.begin(ask.cost),
            Measure::Turns(..) | Measure::Another(..) => {}
        }
        false
    }

    /// Records that a call in flight of that cost has ended at `now`.
    #[inline]
    pub(crate) fn leave(&self, cost: u64, now: Timestamp) {
        match &self.measure {
            Measure::InFlight(in_flight) => in_flight.end(cost),
            _ => self.look(now),
        }
    }

    /// Opens the current bucket, as Sentinel does when it records the end of a call.
    #[inline(never)]
    fn look(&self, now: Timestamp) {
        if self.window().is_some_and(RuleWindow::has_sentinel_loans) {
            self.advance(now);
        }
    }

    /// Records that a call was given up: at an unknown time, if there is no `now`. If it was to wait until `release`, and that
    /// is still to come, its loan is given back, and its turn, if no later one was taken.
    #[inline(never)]
    pub(crate) fn give_up(&self, cost: u64, release: Option<Timestamp>, now: Option<Timestamp>) {
        let window = match &self.measure {
            Measure::InFlight(in_flight) => return in_flight.end(cost),
            Measure::Turns(throttle) => return throttle.give_up(cost, release, now),
            Measure::Warm(warm) if !warm.lends() => return warm.give_turn_up(cost, release, now),
            Measure::Warm(warm) => &warm.window,
            Measure::Passes(window) => window,
            Measure::Another(..) => return,
        };
        match (release, now) {
            (None, _) => {}
            (Some(release), None) => window.give_up(cost, release),
            (Some(release), Some(now)) => {
                self.advance(now);
                if now < release {
                    window.take_back(cost, release);
                }
            }
        }
    }

    /// Gives back what a window was charged for a request that passed at `charged`, after it had waited, if `waited`.
    pub(crate) fn refund(&self, cost: u64, charged: Timestamp, waited: bool, now: Timestamp) {
        let window = match &self.measure {
            Measure::Passes(window) => window,
            Measure::Warm(warm) if warm.lends() => &warm.window,
            Measure::Warm(_) | Measure::InFlight(_) | Measure::Turns(..) | Measure::Another(..) => {
                return;
            }
        };
        // Whether one of Sentinel's loans has ever counted is unknown.
        if waited && window.has_sentinel_loans() {
            return;
        }
        self.advance(now);
        window.refund(cost, charged);
    }

    /// Records that the rule has made a request wait.
    pub(crate) fn waits(&self) {
        self.decisions.wait();
    }

    /// Records that the rule has refused a request.
    pub(crate) fn block(&self) {
        self.decisions.block();
    }

    /// Records that the rule would have refused a request.
    pub(crate) fn shadow_block(&self) {
        self.decisions.shadow_block();
    }

    /// Requests that the rule has let pass and that passed.
    pub fn passed(&self) -> u64 {
        self.decisions.passed()
    }

    /// Requests that have passed after this rule made them wait, or would have, had it not been in shadow mode.
    pub fn waited(&self) -> u64 {
        self.decisions.waited()
    }

    /// Requests that the rule was the first to refuse.
    pub fn blocked(&self) -> u64 {
        self.decisions.blocked()
    }

    /// Requests that the rule would have refused, had it not been in shadow mode.
    pub fn shadow_blocked(&self) -> u64 {
        self.decisions.shadow_blocked()
    }

    /// How much is left: whole passes, rounded down. If requests take turns, 1 if a request would pass at once.
    pub(crate) fn remaining(&self, terms: &Terms, now: Timestamp) -> u64 {
        self.count_as(terms.counting);
        match &self.measure {
            Measure::Passes(window) if terms.holds => {
                (terms.count.get() - window.sum_with_holds(now)) as u64
            }
            Measure::Passes(window) => (terms.count.get() - window.sum(now)) as u64,
            Measure::InFlight(in_flight) => in_flight.remaining(terms),
            Measure::Turns(throttle) => throttle.remaining(terms, now),
            Measure::Warm(warm) => warm.remaining(terms, now),
            Measure::Another(another, _) => another.remaining(terms, now),
        }
    }

    /// How long until a request of that cost is admitted, to pass or to wait, if no other request came; `None` if it never is.
    /// A call in flight may end at any moment: for a limit on them it is a millisecond.
    pub(crate) fn time_to_room(
        &self,
        terms: &Terms,
        cost: u64,
        prioritized: bool,
        now: Timestamp,
    ) -> Option<Duration> {
        self.count_as(terms.counting);
        match &self.measure {
            Measure::Passes(window) if terms.holds => {
                window.time_to_room_beside_holds(terms.count, cost, now)
            }
            Measure::Passes(window) if prioritized => {
                window.time_to_loan_or_room(terms.count, cost, now)
            }
            Measure::Passes(window) => window.time_to_room(terms.count, cost, now),
            Measure::InFlight(_) => InFlight::<T>::time_to_room(terms, cost),
            Measure::Turns(throttle) => throttle.time_to_room(terms, cost, now),
            Measure::Warm(warm) => warm.time_to_room(terms, cost, now),
            Measure::Another(another, _) => another.time_to_room(terms, cost, prioritized, now),
        }
    }

    /// How long until a request passes at once, or if it does, until quota next comes back, if no other request came; zero if
    /// none is used, and for calls in flight, whose end is unknown.
    pub(crate) fn time_to_more(&self, terms: &Terms, remaining: u64, now: Timestamp) -> Duration {
        if let Measure::Another(another, _) = &self.measure {
            return another.time_to_more(terms, remaining, now);
        }
        self.count_as(terms.counting);
        match &self.measure {
            Measure::Turns(throttle) => return throttle.time_to_pass(terms, now),
            Measure::Warm(warm) if !warm.lends() => return warm.time_to_pass(terms, now),
            _ => {}
        }
        match (remaining, self.window()) {
            (0, _) => self.time_to_room(terms, 1, false, now).unwrap_or_default(),
            (_, Some(window)) => window.time_to_more(now),
            (_, None) => Duration::ZERO,
        }
    }
}

/// A window that seems to hold more than this has an unknown past: charging it would make the shared counts leap by as much.
const MAX_TAKEN_ALONG: u64 = 1 << 32;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::{FlowRule, WarmUp};
    use crate::state::counter::LocalCounter;

    fn ms(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    /// A rule that warms up and has been in full use for a second: how many requests pass at once four intervals later, if only
    /// `idle` happens in between.
    fn remaining_after(idle: impl Fn(&Controller<LocalCounter>, &Terms, Timestamp)) -> u64 {
        let rule = FlowRule::new("r", 100.0).unwrap();
        let rule = rule.warm_up(WarmUp::new(1, 3).unwrap());
        let terms = Terms::new(&rule, 0);
        let state = Controller::new(
            rule.grade(),
            rule.control_behavior(),
            false,
            LocalCounter::default(),
            Past::Fresh,
        );
        for now in (0..2000).step_by(5).map(ms) {
            state.advance(now);
            if state.has_room(&terms, 1, now) && state.reserve_at_once(&terms, 1, now) {
                state.admit_at_once(1);
            } else {
                state.note_held_back(now);
            }
        }
        for now in (2000..6000).step_by(100).map(ms) {
            state.advance(now);
            idle(&state, &terms, now);
        }
        state.advance(ms(6000));
        state.remaining(&terms, ms(6000))
    }

    #[test]
    fn asking_how_long_to_wait_keeps_no_rule_warm() {
        let untouched = remaining_after(|_, _, _| {});
        let asked = remaining_after(|state, terms, now| {
            state.has_room(terms, 1, now);
            assert_eq!(state.wait(terms, 1, false, now), None);
            state.time_to_room(terms, 1, false, now);
        });
        let held_back = remaining_after(|state, terms, now| {
            state.has_room(terms, 1, now);
            state.note_held_back(now);
        });
        assert_eq!((untouched, asked), (33, 33));
        assert!(held_back > 33, "{held_back}");
    }
}
