//! What a worker does besides requests: it resumes those that wait, keeps idle windows up to date, publishes, and falls asleep.

use super::{ASLEEP, Filter};
use crate::holds::Holder;
use crate::host::Host;
use crate::names::rule_labels;

/// How many windows one tick brings up to date; the others follow in the next ticks: requests of the
/// same thread wait for a tick to end. With more rules, a worker dates what other workers admitted later than it was: it may be too strict,
/// never too lenient.
const STATES_PER_TICK: usize = 128;

/// How long a worker must be idle before it sleeps, so that one with frequent requests does not wake for each of them. With
/// the two longest ticks around it this stays below a quarter of a second.
const QUIET_MS: u64 = 100;

impl<H: Host> Filter<H> {
    /// Observes the states from `first` to `end` that are in use, then reads the clock, then dates what was observed: in this
    /// order. Then it publishes to other workers, exports metrics and makes changes that are owed. Returns whether nothing is
    /// left to do, which can only be so if `at_once`.
    pub(super) fn bring_up_to_date(&self, first: usize, end: usize, at_once: bool) -> bool {
        let store = self.engine.store();
        store.for_each_state(first, end, |state| {
            if state.counter().is_moving(state) {
                state.observe();
            }
        });
        store.for_each_breaker(first, end, |breaker| {
            if breaker.storage().is_moving(&breaker) {
                breaker.observe();
            }
            breaker.storage().refresh_gauge();
        });
        if let Some(system) = &self.system {
            system.observe();
        }
        let Some(now) = self.host.now() else {
            return false;
        };
        let vm = store.backend().vm();
        let mut is_settled = true;
        store.for_each_state(first, end, |state| {
            is_settled &= state.counter().tick(vm, state, now, at_once);
        });
        if first == 0 {
            store.for_each_lease(|_, rule| {
                rule.leased().export([rule.passed(), rule.blocked()]);
            });
            store.for_each_keyed(|key, state| {
                is_settled &= state.states().export(vm, key, state, now, at_once)
            });
        }
        store.for_each_breaker(first, end, |breaker| {
            if breaker.storage().is_moving(&breaker) {
                breaker.move_to(now);
                is_settled &= breaker.storage().settle(&breaker, now, at_once);
            }
        });
        if let Some(system) = &self.system {
            is_settled &= system.keep_up(now, at_once);
        }
        self.export_refusals();
        vm.export_repeated();
        is_settled
    }

    /// Does all that is left to do. If that succeeds, the worker sleeps; returns whether it does.
    pub(super) fn falls_asleep(&self) -> bool {
        let vm = self.engine.store().backend().vm();
        vm.show_version(1);
        vm.forget_look();
        let is_settled = self.bring_up_to_date(0, usize::MAX, true);
        let sleeps = is_settled && self.may_sleep();
        if sleeps {
            self.kept.clear();
            self.quiet.set(ASLEEP);
        }
        sleeps
    }

    /// Looks how full limits are, if a worker that sleeps has been woken for that, and does nothing else. Returns whether it was.
    fn looks(&self) -> bool {
        let store = self.engine.store();
        let vm = store.backend().vm();
        let Some(now) = self.host.now().filter(|now| vm.look() <= now.as_millis()) else {
            return false;
        };
        vm.forget_look();
        store.for_each_state(0, usize::MAX, |state| {
            state.counter().look(vm, state, (false, now), true);
        });
        store.for_each_keyed(|_, state| state.states().look(vm, 0.0, now, true));
        self.sleep(self.holder().watch(true));
        true
    }

    /// Sets the next tick of a worker that sleeps: after so many milliseconds, unless it is 0, and when a gauge of how full a limit
    /// is has to fall.
    pub(super) fn sleep(&self, period_ms: u32) {
        let (look, now) = (self.engine.store().backend().vm().look(), self.host.now());
        let look = now.map_or(0, |now| look.saturating_sub(now.as_millis()).max(1));
        let periods = [period_ms, u32::try_from(look).unwrap_or(0)].into_iter();
        let periods = periods.filter(|period| *period > 0);
        self.host.set_tick_period(periods.min().unwrap_or(0));
    }

    /// What this virtual machine holds, and its watch over others.
    pub(super) fn holder(&self) -> &Holder<H> {
        self.engine.store().backend().holder()
    }

    /// Whether no request waits here, and a worker that has slept can read what it has missed.
    pub(super) fn may_sleep(&self) -> bool {
        self.waiting.is_empty() && self.engine.store().backend().vm().may_sleep()
    }

    /// Ends the quiet: a sleeping worker wakes.
    #[cold]
    #[inline(never)]
    pub(super) fn end_quiet(&self) {
        if self.quiet.replace(0) == ASLEEP {
            self.engine.store().backend().vm().wake();
            self.holder().wake();
            self.waiting.ask_for_ticks();
        }
    }

    /// Exports what the rules have refused that are asked before flow rules.
    pub(super) fn export_refusals(&self) {
        let vm = self.engine.store().backend().vm();
        let mut rule = 0;
        // The rules are always the same, in the same order.
        self.engine.for_each_precheck(|report| {
            let now = [report.blocked, report.shadow_blocked];
            let labels = || rule_labels(report.id.as_str(), report.resource);
            self.refusals.export(vm, rule, (report.kind, &labels), now);
            rule += 1;
        });
    }

    /// Resumes the requests whose turn it is, keeps idle windows up to date and exports metrics. After a while without
    /// anything to do, the ticks end.
    pub fn on_tick(&self) {
        if self.asking.is_some() {
            self.keep_store_up();
        }
        if !self.waiting.on_tick() {
            return;
        }
        if self.quiet.get() == ASLEEP && self.looks() {
            return;
        }
        let quiet = self.quiet.get().saturating_add(1);
        if quiet > self.waiting.ticks_in(QUIET_MS) && self.may_sleep() {
            let sleeps = self.falls_asleep();
            let period_ms = self.holder().watch(sleeps);
            if sleeps {
                self.sleep(period_ms);
            }
            return;
        }
        self.quiet.set(quiet);
        let first = self.next_state.get();
        let end = first.saturating_add(STATES_PER_TICK);
        self.bring_up_to_date(first, end, false);
        self.holder().watch(false);
        let store = self.engine.store();
        self.next_state
            .set(if end < store.len().max(store.breakers()) {
                end
            } else {
                0
            });
    }
}
