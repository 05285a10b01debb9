//! The keyed rules of one resource, which decide together.

use super::check::{KeyCaller, KeyCheck, Opened};
use super::controller::count;
use super::leases::{LeaseCheck, Leases};
use super::reservations::{EntryExtras, HeldKey, KeyEnd, Reservation, Reservations};
use crate::engine::held::Held;
use crate::inline_vec::InlineVec;
use crate::rule::{Count, FlowRule, LimitApp, RuleId};
use crate::state::keyed::{Key, KeyHandle, KeyStatus, KeyVerdict, Reserved};
use crate::time::Timestamp;
use std::time::Duration;

/// The keyed rules of one resource, and those with leased permits, each in order.
pub(crate) struct Keys {
    pub(crate) checks: Box<[KeyCheck]>,
    pub(crate) leases: Leases,
    are_none: bool,
}

impl Keys {
    pub(crate) fn new(checks: Vec<KeyCheck>, leases: Vec<LeaseCheck>) -> Keys {
        Keys {
            are_none: checks.is_empty() && leases.is_empty(),
            checks: checks.into(),
            leases: Leases::new(leases),
        }
    }

    /// Whether there are none.
    #[inline]
    pub(crate) fn are_none(&self) -> bool {
        self.are_none
    }

    /// Those of either kind.
    pub(crate) fn all(&self) -> impl Iterator<Item = &KeyCheck> {
        let leased = self.leases.checks().iter().map(LeaseCheck::check);
        self.checks.iter().chain(leased)
    }

    /// The origins that the rules name.
    pub(crate) fn names(&self, origin: &str) -> bool {
        self.all().any(|check| match check.rule.limit_app() {
            LimitApp::Origin(name) => **name == *origin,
            LimitApp::Default => origin == "default",
            LimitApp::Other => origin == "other",
        })
    }

    /// Resolves the keys of a request, and reserves what they need if they can all pass at once. Nothing is reserved where a
    /// rule would not have it so.
    pub(crate) fn reserve_at_once(
        &self,
        reservations: &mut Reservations,
        caller: &KeyCaller<'_>,
        now: Timestamp,
    ) -> bool {
        // A rule that looks at the states of another rule has to look before they are charged.
        let mut could = self.checks.iter().all(|check| check.beside.is_none());
        for (i, check) in self.checks.iter().enumerate() {
            if !check.applies_to(caller) {
                continue;
            }
            check.is_defaulted.set(false);
            check.charge_late(now);
            let fits = check.each_key(caller, |opened, key, count| {
                if reservations.has(i, key) {
                    return;
                }
                let cost = check.cost(caller, count);
                let (mut handle, mut reserved) = (KeyHandle::of(key), None);
                if could {
                    let (states, terms) = (opened.states(), check.terms(count));
                    reserved = states.reserve(&mut handle, &terms, cost, now);
                    // In shadow mode the request waits, perhaps: that is found out where all rules are asked.
                    could = reserved.is_some_and(|reserved| reserved.wait == 0);
                }
                reservations.list.push(Reservation {
                    check: i,
                    handle,
                    count,
                    wait: 0,
                    reserved,
                });
            });
            if check.is_defaulted.get()
                && let Some(opened) = check.opened.get()
            {
                count(&opened.state.defaulted);
            }
            if !fits {
                reservations.too_many |= 1 << i;
                could = false;
            }
        }
        if !could {
            self.release(reservations, caller, now);
        }
        could
    }

    /// What the rules say to the keys that were resolved. Takes nothing.
    pub(crate) fn ask(
        &self,
        reservations: &mut Reservations,
        caller: &KeyCaller<'_>,
        now: Timestamp,
    ) {
        let (mut wait, mut retry_after) = (0, Some(Duration::ZERO));
        let (mut refusing, mut shadow_refusing) = (0, 0);
        let mut refuse = |i: usize, enforced: bool, own: Option<Duration>| {
            if enforced {
                refusing |= 1 << i;
                retry_after = retry_after.zip(own).map(|(longest, own)| longest.max(own));
            } else {
                shadow_refusing |= 1 << i;
            }
        };
        for reservation in reservations.list.iter_mut() {
            let Some((check, opened)) = self.opened(reservation.check) else {
                continue;
            };
            let (states, terms) = (check.states(opened), check.terms(reservation.count));
            reservation.wait = 0;
            let enforced = check.enforces(reservation.handle.key());
            let cost = check.cost(caller, reservation.count);
            match states.ask(&mut reservation.handle, &terms, cost, now) {
                KeyVerdict::Pass => {}
                KeyVerdict::Wait(own) => reservation.wait = own,
                KeyVerdict::Block { retry_after } => {
                    refuse(reservation.check, enforced, retry_after)
                }
            }
            if enforced {
                wait = wait.max(reservation.wait);
            }
        }
        let mut too_many = reservations.too_many;
        while too_many != 0 {
            let i = too_many.trailing_zeros() as usize;
            too_many &= too_many - 1;
            let enforced = self.checks.get(i).is_some_and(|check| check.enforced);
            refuse(i, enforced, None);
        }
        (reservations.wait, reservations.retry_after) = (wait, retry_after);
        (reservations.refusing, reservations.shadow_refusing) = (refusing, shadow_refusing);
    }

    /// What the rules with leased permits say, as far as that is known. Takes nothing.
    pub(crate) fn ask_leases(
        &self,
        reservations: &mut Reservations,
        caller: &KeyCaller<'_>,
        now: Timestamp,
    ) {
        if !self.leases.checks().is_empty() {
            let first = self.checks.len();
            self.leases.ask(reservations, first, caller, now);
        }
    }

    /// Takes leased permits, when all other rules have reserved what they need. Where one refuses, what keys have reserved is
    /// given back.
    pub(crate) fn take_leases(
        &self,
        reservations: &mut Reservations,
        caller: &KeyCaller<'_>,
        now: Timestamp,
    ) {
        if !self.leases.checks().is_empty() {
            self.leases.take(reservations, self.checks.len(), now);
            if reservations.refusing != 0 {
                self.release(reservations, caller, now);
            }
        }
    }

    /// Reserves for a request that waits for `wait` nanoseconds what its keys need. Where another worker was faster, nothing,
    /// and the rule that lacks it refuses.
    pub(crate) fn reserve(
        &self,
        reservations: &mut Reservations,
        wait: u64,
        caller: &KeyCaller<'_>,
        now: Timestamp,
    ) -> bool {
        let (mut refusing, mut shadow_refusing) = (0, reservations.shadow_refusing);
        for reservation in reservations.list.iter_mut() {
            let Some((check, opened)) = self.opened(reservation.check) else {
                continue;
            };
            let enforced = check.enforces(reservation.handle.key());
            if !enforced && shadow_refusing >> reservation.check & 1 == 1 {
                continue;
            }
            if check.beside.is_some() {
                continue; // the other rule does
            }
            let (states, terms) = (check.states(opened), check.terms(reservation.count));
            // A turn is taken for when the request is released.
            let longest = wait.max(reservation.wait);
            let cost = check.cost(caller, reservation.count);
            reservation.reserved = match longest {
                0 => states.reserve(&mut reservation.handle, &terms, cost, now),
                wait => states.reserve_later(&mut reservation.handle, &terms, cost, wait, now),
            };
            let reserved = |reserved: Reserved| reserved.wait <= longest;
            if reservation.reserved.is_some_and(reserved) {
                continue;
            }
            if let Some(reserved) = reservation.reserved.take() {
                states.release(reserved, cost, now); // a turn later than the request can wait
            }
            if enforced {
                refusing |= 1 << reservation.check;
                break;
            }
            shadow_refusing |= 1 << reservation.check;
        }
        reservations.shadow_refusing = shadow_refusing;
        if refusing != 0 {
            self.release(reservations, caller, now);
            reservations.refusing = refusing;
        }
        refusing == 0
    }

    /// Gives back what was reserved, because another rule refused.
    pub(crate) fn release(
        &self,
        reservations: &mut Reservations,
        caller: &KeyCaller<'_>,
        now: Timestamp,
    ) {
        for reservation in reservations.list.iter_mut() {
            if let Some(reserved) = reservation.reserved.take()
                && let Some((check, opened)) = self.opened(reservation.check)
            {
                let states = opened.states();
                states.release(reserved, check.cost(caller, reservation.count), now);
            }
        }
    }

    /// Admits what was reserved. Adds the keys that look at how the call ends to the `rest` that does.
    pub(crate) fn admit(
        &self,
        reservations: &Reservations,
        mut rest: Option<Box<EntryExtras>>,
        wait: u64,
        caller: &KeyCaller<'_>,
    ) -> Option<Box<EntryExtras>> {
        let mut passed = 0_u64;
        for reservation in reservations.list.iter() {
            let Some((check, opened)) = self.opened(reservation.check) else {
                continue;
            };
            let looks_on = check.beside.is_some()
                && reservations.shadow_refusing >> reservation.check & 1 == 0;
            if reservation.reserved.is_none() && !looks_on {
                continue;
            }
            if passed >> reservation.check & 1 == 0 {
                count(&opened.state.passed);
                if reservation.wait > 0 {
                    count(&opened.state.waited);
                }
            }
            passed |= 1 << reservation.check;
            let Some(reserved) = reservation.reserved else {
                continue;
            };
            let cost = check.cost(caller, reservation.count);
            let ends = match opened.states().admit(reserved, cost) {
                true if reserved.is_held => KeyEnd::Settles,
                true => KeyEnd::Leaves,
                false if check.geometry.is_paced && wait.max(reservation.wait) > 0 => KeyEnd::Waits,
                false => continue,
            };
            rest.get_or_insert_default().keys.push(HeldKey {
                check: reservation.check,
                reserved,
                held: Held::new(cost),
                ends,
            });
        }
        if reservations.shadow_refusing != 0 {
            self.shadow_block(reservations);
        }
        rest
    }

    /// Records which rules in shadow mode would have refused.
    pub(crate) fn shadow_block(&self, reservations: &Reservations) {
        for (i, check) in self.checks.iter().enumerate() {
            if reservations.shadow_refusing >> i & 1 == 1
                && let Some(opened) = check.opened.get()
            {
                count(&opened.state.shadow_blocked);
            }
        }
    }

    /// Ends a call: its keys have one less in flight.
    pub(crate) fn leave(&self, rest: &EntryExtras) {
        for held in rest.keys.iter() {
            if held.ends == KeyEnd::Leaves
                && let Some((_, opened)) = self.opened(held.check)
            {
                opened.states().leave(held.reserved, held.held.amount);
            }
        }
    }

    /// Ends what a call holds of its keys: at an unknown time, if there is no `now`. A call that `is_waiting` still has cost
    /// nothing.
    pub(crate) fn settle(&self, rest: &EntryExtras, is_waiting: bool, now: Option<Timestamp>) {
        for held in rest.keys.iter().filter(|held| held.holds()) {
            if let Some((_, opened)) = self.opened(held.check) {
                let cost = if is_waiting { 0 } else { held.held.cost() };
                let (state, amount) = (&opened.state, held.held.amount);
                state.owe(cost.saturating_sub(amount));
                opened.measured.settle(held.reserved, amount, cost, now);
            }
        }
    }

    /// The rule of a key that looks at how a call ends.
    pub(crate) fn rule_of(&self, held: &HeldKey) -> Option<&FlowRule> {
        Some(self.checks.get(held.check)?.rule())
    }

    /// Gives up a call which was to be released at `release`. Its turn is given back if it is known to be still to
    /// come.
    pub(crate) fn give_up(&self, rest: &EntryExtras, release: Timestamp, now: Option<Timestamp>) {
        self.leave(rest);
        let Some(now) = now.filter(|now| *now < release) else {
            return;
        };
        for held in rest.keys.iter() {
            if held.ends == KeyEnd::Waits
                && let Some((_, opened)) = self.opened(held.check)
            {
                opened
                    .states()
                    .release(held.reserved, held.held.amount, now);
            }
        }
    }

    /// Gives back what windows were charged at `charged` for the keys of a request.
    pub(crate) fn refund(&self, caller: &KeyCaller<'_>, charged: Timestamp, now: Timestamp) {
        // What is held was not charged.
        let is_charged = |check: &&KeyCheck| check.enforced && check.rule.cost().is_none();
        let checks = self.checks.iter().filter(is_charged);
        for check in checks.filter(|check| check.applies_to(caller)) {
            let mut known: InlineVec<Key, 4> = InlineVec::default();
            check.for_each_key(caller, &mut |opened, key, count| {
                if !check.enforces(key) || known.iter().any(|known| *known == key) {
                    return;
                }
                known.push(key);
                let states = opened.states();
                states.refund(key, check.cost(caller, count), charged, now);
            });
        }
    }

    /// How the rule, the `index`th, stands for a request: the rule, its id and the count and status of a key; of several keys,
    /// the one of which least is left. `None` if it is not for the request.
    pub(crate) fn status(
        &self,
        index: usize,
        caller: &KeyCaller<'_>,
        now: Timestamp,
    ) -> Option<(&FlowRule, &RuleId, Count, KeyStatus)> {
        let check = self
            .checks
            .get(index)
            .filter(|check| check.applies_to(caller))?;
        check.charge_late(now);
        let mut least: Option<(Count, KeyStatus)> = None;
        check.for_each_key(caller, &mut |opened, key, count| {
            let own = opened.states().status(key, &check.terms(count), now);
            if least.is_none_or(|(_, least)| own.remaining < least.remaining) {
                least = Some((count, own));
            }
        });
        let unused = |count: Count| KeyStatus {
            remaining: count.whole(),
            reset: Duration::ZERO,
        };
        let (count, status) = if check.is_open() {
            least?
        } else {
            let count = check.count_of(caller);
            (count, unused(count))
        };
        Some((&check.rule, &check.id, count, status))
    }

    fn opened(&self, index: usize) -> Option<(&KeyCheck, &Opened)> {
        let check = self.checks.get(index)?;
        Some((check, check.opened.get()?))
    }
}
