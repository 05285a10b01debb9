//! How flow rules decide on a request together.

use crate::engine::blocked::Blocked;
use crate::engine::caller::Caller;
use crate::engine::check::Check;
use crate::engine::held::Held;
use crate::engine::keyed::{EntryExtras, KeyCheck, LeaseCheck, Reservations};
use crate::engine::origin::Origin;
use crate::engine::request::Request;
use crate::engine::resource::{Ordered, Resource};
use crate::rule::Cause;
use crate::state::backend::Backend;
use crate::state::terms::Ask;
use crate::time::Timestamp;
use std::rc::Rc;
use std::time::Duration;

/// How often a decision is made again if another request has taken its turn. Each failure is a request that went on, so a request that
/// fails so often is one of a crowd: refusing it is right.
const MAX_ATTEMPTS: u32 = 8;

/// Which rules refuse a request.
pub(super) struct Refusal<'a, S: Backend> {
    first: First<'a, S>,
    /// A bit for each check without a key.
    refusing: u64,
    /// How long until the keyed rules that refuse let it in. `None` for never.
    keys_retry_after: Option<Duration>,
}

/// The first rule that refuses a request.
enum First<'a, S: Backend> {
    Check(&'a Check<S>),
    Keyed(&'a KeyCheck),
    Leased(&'a LeaseCheck),
}

/// A request that has been let in.
pub(super) struct Admitted<'a, S: Backend> {
    /// The rules that look at how it ends: a bit for each check.
    pub(super) held: u64,
    /// In nanoseconds.
    pub(super) wait: u64,
    /// The first rule that lends it a pass.
    pub(super) lender: Option<&'a Check<S>>,
    /// The keys that look at how it ends, and what it holds.
    pub(super) extras: Option<Box<EntryExtras>>,
}

impl<S: Backend> Admitted<'_, S> {
    /// One that flow rules leave alone.
    pub(super) fn exempt() -> Self {
        Admitted {
            extras: Some(Box::new(EntryExtras::exempt())),
            ..Admitted::at_once(0)
        }
    }

    /// One that passes at once.
    pub(super) fn at_once(held: u64) -> Self {
        Admitted {
            held,
            wait: 0,
            lender: None,
            extras: None,
        }
    }
}

impl<S: Backend> Resource<S> {
    /// Charges all flow rules, or none, of a request that may not pass at once.
    pub(super) fn decide(
        &self,
        origin: Option<&Origin<S>>,
        request: &Request<'_>,
        keys: Option<&mut Reservations>,
        now: Timestamp,
    ) -> Result<Admitted<'_, S>, Blocked> {
        let is_plain =
            !self.by_request && !self.may_wait && !request.prioritized && self.keys.are_none();
        let refusal = is_plain.then(|| self.refusal(origin, request.cost, now));
        let refusal = match refusal.flatten() {
            Some(refusal) => refusal,
            None => {
                let caller = Caller {
                    origin,
                    context: if self.by_context {
                        request.context_name()
                    } else {
                        ""
                    },
                    prioritized: request.prioritized,
                    keys: self.key_caller(origin, request),
                    impatient: request.is_impatient(),
                };
                match self.decide_together(&caller, keys, now) {
                    Ok(admitted) => return Ok(admitted),
                    Err(refusal) => refusal,
                }
            }
        };
        Err(self.blocked(refusal, origin, request, now))
    }

    /// Which rules refuse a request that none of them may make wait. `None` where all have room after all.
    fn refusal(
        &self,
        origin: Option<&Origin<S>>,
        cost: u64,
        now: Timestamp,
    ) -> Option<Refusal<'_, S>> {
        let mut refusing = 0;
        let mut shadow_refusing = 0;
        for (i, check) in self.checks.iter().enumerate() {
            let applies = check.applies_to(origin);
            let Some(state) = self.state(check, i, origin).filter(|_| applies) else {
                continue;
            };
            state.advance(now);
            if state.has_room(&check.terms, cost, now) {
                continue;
            }
            if check.enforced {
                refusing |= 1 << i;
            } else {
                shadow_refusing |= 1 << i;
            }
        }
        let first = self.first_refusing(refusing, 0)?;
        self.each_state(refusing | shadow_refusing, origin, |_, _, state| {
            state.note_held_back(now);
        });
        self.each_state(shadow_refusing, origin, |_, _, state| state.shadow_block());
        Some(Refusal {
            first,
            refusing,
            keys_retry_after: Some(Duration::ZERO),
        })
    }

    /// Charges all rules if all admit the request at once. Returns the rules that look at how it ends: a bit for each check.
    /// Else none, and [`Resource::decide`] says what becomes of it.
    #[cfg_attr(not(feature = "small"), inline(always))] // here is where every request comes through
    pub(super) fn pass_at_once(
        &self,
        origin: Option<&Origin<S>>,
        cost: u64,
        may_wait: bool,
        now: Timestamp,
    ) -> Option<u64> {
        if self.by_request {
            return None;
        }
        // Most have one rule, which needs no other's consent.
        if let [check] = &*self.checks
            && check.enforced
        {
            let applies = check.applies_to(origin);
            let Some(state) = self.state(check, 0, origin).filter(|_| applies) else {
                return Some(0);
            };
            let passes = state.pass_alone(&check.terms, cost, now);
            return passes.map(|held| u64::from(held) | self.notify_on_exit);
        }
        self.pass_together(origin, cost, may_wait, now)
    }

    /// The same where several rules decide. Out of line: most requests need no registers for it.
    #[inline(never)]
    fn pass_together(
        &self,
        origin: Option<&Origin<S>>,
        cost: u64,
        may_wait: bool,
        now: Timestamp,
    ) -> Option<u64> {
        let (mut willing, mut refusing) = (0, 0);
        for (i, check) in self.checks.iter().enumerate() {
            if !check.applies_to(origin) {
                continue;
            }
            if let Some(state) = self.state(check, i, origin) {
                state.advance(now);
                if state.has_room(&check.terms, cost, now) {
                    willing |= 1 << i;
                } else if check.enforced || may_wait {
                    return None;
                } else {
                    refusing |= 1 << i;
                }
            }
        }
        let (mut reserved, mut could) = (0, true);
        self.each_state(willing, origin, |i, check, state| {
            // Where one could not, nothing more is taken: all of it is given back.
            state.count_as(check.terms.counting); // another check may have asked the same window
            could = could && state.reserve_at_once(&check.terms, cost, now);
            reserved |= u64::from(could) << i;
        });
        if !could {
            self.each_state(reserved, origin, |_, _, state| {
                state.release(Ask::at_once(cost), now);
            });
            return None;
        }
        let mut held = reserved & self.notify_on_exit;
        self.each_state(reserved, origin, |i, _, state| {
            if state.admit_at_once(cost) {
                held |= 1 << i;
            }
        });
        if refusing != 0 {
            // Rules in shadow mode, and none that would lend.
            self.each_state(refusing, origin, |_, _, state| {
                state.note_held_back(now);
                state.shadow_block();
            });
        }
        Some(held)
    }

    /// Charges all flow rules, or none.
    fn decide_together(
        &self,
        caller: &Caller<'_, S>,
        keys: Option<&mut Reservations>,
        now: Timestamp,
    ) -> Result<Admitted<'_, S>, Refusal<'_, S>> {
        let (mut attempts, mut none) = (0, Reservations::default());
        let keys = keys.unwrap_or(&mut none);
        loop {
            attempts += 1;
            if let Some(decided) = self.try_to_decide(caller, keys, attempts < MAX_ATTEMPTS, now) {
                return decided;
            }
        }
    }

    /// Charges all rules, or none. `None` if another request was faster to take a turn and this one may try `again`.
    fn try_to_decide(
        &self,
        caller: &Caller<'_, S>,
        keys: &mut Reservations,
        again: bool,
        now: Timestamp,
    ) -> Option<Result<Admitted<'_, S>, Refusal<'_, S>>> {
        let costs = caller.keys.costs();
        // A bit for each check, in each of these. `measured` are the checks that count the request and are not for it.
        let (mut willing, mut counting, mut measured) = (0, 0, 0);
        let (mut waiting, mut refusing, mut shadow_refusing) = (0_u64, 0_u64, 0_u64);
        if !self.keys.are_none() {
            self.keys.ask(keys, &caller.keys, now);
            if S::LEASES {
                self.keys.ask_leases(keys, &caller.keys, now);
            }
        }
        let mut wait = keys.wait;
        for (i, check) in self.checks.iter().enumerate() {
            let Some(state) = self.state(check, i, caller.origin) else {
                continue;
            };
            let (applies, counts) = check.role(caller);
            let bit = 1 << i;
            match (applies, counts) {
                (true, true) => counting |= bit,
                (true, false) if check.terms.compat.is_some() && !state.is_met() => continue,
                (true, false) => {}
                (false, true) => {
                    measured |= bit;
                    state.advance(now);
                    state.meet();
                    continue;
                }
                (false, false) => continue,
            }
            state.advance(now);
            let cost = check.cost(&costs);
            if check.has_room(state, cost, now) {
                willing |= bit;
                continue;
            }
            state.note_held_back(now);
            match state.wait(&check.terms, cost, caller.prioritized, now) {
                Some(own) if !(caller.impatient && check.enforced && own > 0) => {
                    willing |= bit;
                    waiting |= bit;
                    if check.enforced {
                        wait = wait.max(own);
                    } else {
                        check.shadow_wait.set(own);
                    }
                }
                _ if check.enforced => {
                    refusing |= bit;
                }
                _ => shadow_refusing |= bit,
            }
        }
        let ask = |i: usize, check: &Check<S>| Ask {
            cost: check.cost(&costs),
            counts: counting >> i & 1 == 1,
            wait: if check.terms.holds {
                0 // a hold counts from now on
            } else if waiting >> i & 1 == 1 {
                check.wait(wait)
            } else {
                wait
            },
        };
        let (mut reserved, mut overtaken) = (0, false);
        if refusing == 0 && keys.refusing() == 0 {
            self.each_state(willing, caller.origin, |i, check, state| {
                if refusing != 0 || overtaken {
                    // Nothing more is taken: all of it is given back.
                } else if state.reserve(&check.terms, ask(i, check), now) {
                    reserved |= 1 << i;
                } else if again && check.rule.control_behavior().is_paced() {
                    overtaken = true;
                } else if check.enforced {
                    refusing |= 1 << i;
                } else {
                    shadow_refusing |= 1 << i;
                }
            });
            if refusing == 0 && !overtaken && !self.keys.are_none() {
                overtaken = !self.keys.reserve(keys, wait, &caller.keys, now) && again;
                if S::LEASES && !overtaken && keys.refusing() == 0 {
                    self.keys.take_leases(keys, &caller.keys, now);
                }
            }
            if refusing != 0 || overtaken || keys.refusing() != 0 {
                self.each_state(reserved, caller.origin, |i, check, state| {
                    state.release(ask(i, check), now);
                });
                if overtaken {
                    return None;
                }
            }
        }
        let awaits_store = || S::LEASES && self.keys.leases.await_store();
        if shadow_refusing != 0 && !awaits_store() {
            self.each_state(shadow_refusing, caller.origin, |_, _, state| {
                state.shadow_block();
            });
        }
        if let Some(first) = self.first_refusing(refusing, keys.refusing()) {
            if !awaits_store() {
                self.keys.shadow_block(keys);
            }
            return Some(Err(Refusal {
                first,
                refusing,
                keys_retry_after: keys.retry_after(),
            }));
        }
        let mut held = (reserved | measured) & self.notify_on_exit;
        if wait > 0 {
            held = reserved | measured;
        }
        let (mut lender, mut rest) = (None, None);
        self.each_state(reserved, caller.origin, |i, check, state| {
            if check.terms.holds && check.beside.is_none() {
                let amount = check.cost(&costs);
                state.hold(amount);
                held &= !(1 << i);
                let extras: &mut Box<EntryExtras> = rest.get_or_insert_default();
                extras.holds.push((i, Held::new(amount)));
            } else if state.admit(ask(i, check)) {
                held |= 1 << i;
            }
            if waiting >> i & 1 == 1 {
                state.waits();
                if check.enforced && !check.rule.control_behavior().is_paced() {
                    lender = lender.or(Some(check));
                }
            }
        });
        if measured != 0 {
            self.each_state(measured, caller.origin, |i, check, state| {
                if state.charge(ask(i, check), now) {
                    held |= 1 << i;
                }
            });
        }
        Some(Ok(Admitted {
            held,
            wait,
            lender,
            extras: match self.keys.are_none() {
                true => rest,
                false => self.keys.admit(keys, rest, wait, &caller.keys),
            },
        }))
    }

    /// The first rule of the document that refuses, of the rules in these masks: a bit for each check without a key, and for each keyed one.
    fn first_refusing(&self, refusing: u64, keyed: u64) -> Option<First<'_, S>> {
        if refusing | keyed == 0 {
            return None;
        }
        self.order.iter().find_map(|ordered| match *ordered {
            Ordered::Plain(i) if refusing >> i & 1 == 1 => self.checks.get(i).map(First::Check),
            Ordered::Keyed(i) if keyed >> i & 1 == 1 => self.keyed(i),
            _ => None,
        })
    }

    /// The keyed rule of that number; behind them are those with leased permits.
    #[cold]
    fn keyed(&self, number: usize) -> Option<First<'_, S>> {
        let (keyed, leased) = (&self.keys.checks, self.keys.leases.checks());
        match keyed.get(number) {
            Some(check) => Some(First::Keyed(check)),
            None if S::LEASES => leased.get(number - keyed.len()).map(First::Leased),
            None => None,
        }
    }

    /// The refusal: the first rule that refuses, and when the request would pass.
    #[cold]
    #[inline(never)]
    fn blocked(
        &self,
        refusal: Refusal<'_, S>,
        origin: Option<&Origin<S>>,
        request: &Request<'_>,
        now: Timestamp,
    ) -> Blocked {
        let mut retry_after = refusal.keys_retry_after;
        self.each_state(refusal.refusing, origin, |_, check, state| {
            if matches!(refusal.first, First::Check(first) if std::ptr::eq(check, first)) {
                state.block();
            }
            let (terms, cost) = (&check.terms, check.cost(&request.costs()));
            let prioritized = request.prioritized;
            let turn = if request.is_impatient() {
                state.wait(terms, cost, prioritized, now)
            } else {
                None
            };
            let wait = match turn {
                Some(turn) => Some(Duration::from_nanos(turn)),
                None => state.time_to_room(terms, cost, prioritized, now),
            };
            retry_after = retry_after
                .zip(wait)
                .map(|(longest, wait)| longest.max(wait));
        });
        let (rule, id, cost) = match refusal.first {
            First::Check(check) => {
                let cost = check.cost(&request.costs());
                (Rc::clone(&check.rule), check.id.clone(), cost)
            }
            First::Keyed(check) => {
                let (rule, id) = check.block();
                let cost = check.cost(&self.key_caller(origin, request), rule.count());
                (rule, id, cost)
            }
            First::Leased(lease) => {
                let (rule, id) = lease.check().called();
                let is_refused = !self.keys.leases.await_store();
                let cost = is_refused.then(|| lease.block(&self.key_caller(origin, request)));
                return Blocked {
                    cause: Cause::Flow(rule),
                    id,
                    retry_after,
                    cost,
                };
            }
        };
        Blocked {
            cause: Cause::Flow(rule),
            id,
            retry_after,
            cost: Some(cost),
        }
    }
}
