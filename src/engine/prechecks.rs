//! The rules of a resource that are no flow rules: who may enter, what the machine can bear, and whether the resource works.

use crate::engine::keyed::Rest;
use crate::rule::authority::AuthorityRule;
use crate::rule::degrade::DegradeRule;
use crate::rule::system::{Gauges, Inbound, SystemLimit, SystemRule};
use crate::rule::{Mode, RuleId};
use crate::state::breaker::{Admission, Breaker, BreakerStorage};
use crate::time::Timestamp;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

/// What refused a request, besides flow rules.
#[derive(Clone, Debug)]
pub(crate) enum Guarded {
    Authority(Rc<AuthorityRule>),
    System(SystemLimit, Rc<SystemRule>),
    Degrade(Rc<DegradeRule>),
}

/// A refusal by one of these rules: which, its id, and how long until it may end.
pub(crate) struct Refusal {
    pub(crate) by: Guarded,
    pub(crate) id: RuleId,
    /// `None` where the same request can never pass.
    pub(crate) retry_after: Option<Duration>,
}

/// A rule in force, and how it has decided.
pub(crate) struct InForce<R> {
    pub(crate) rule: Rc<R>,
    pub(crate) id: RuleId,
    pub(crate) enforced: bool,
    blocked: Cell<u64>,
    shadow_blocked: Cell<u64>,
}

impl<R> InForce<R> {
    pub(crate) fn new(rule: R, id: RuleId, own: Mode, all: Mode) -> Rc<InForce<R>> {
        Rc::new(InForce {
            rule: Rc::new(rule),
            id,
            enforced: own == Mode::Enforce && all == Mode::Enforce,
            blocked: Cell::new(0),
            shadow_blocked: Cell::new(0),
        })
    }

    /// Records that the rule refuses. Whether the request is refused.
    fn refuse(&self) -> bool {
        let count = if self.enforced {
            &self.blocked
        } else {
            &self.shadow_blocked
        };
        count.set(count.get().wrapping_add(1));
        self.enforced
    }

    /// How many requests the rule was the first to refuse, and how many it would have refused in shadow mode.
    pub(crate) fn decisions(&self) -> (u64, u64) {
        (self.blocked.get(), self.shadow_blocked.get())
    }
}

/// A degrade rule on one resource.
pub(crate) struct Guard<B> {
    pub(crate) rule: Rc<InForce<DegradeRule>>,
    pub(crate) breaker: Rc<Breaker<B>>,
}

/// The rules of one resource that are no flow rules.
pub(crate) struct Guards<B> {
    pub(crate) authority: Box<[Rc<InForce<AuthorityRule>>]>,
    pub(crate) system: Rc<[Rc<InForce<SystemRule>>]>,
    pub(crate) breakers: Box<[Guard<B>]>,
}

/// How the breakers and the keys of a resource let a request in.
#[derive(Default)]
pub(crate) struct Admissions {
    /// A bit for each breaker that is to be told how the call ends.
    asked: u64,
    rest: Option<Box<Rest>>,
}

impl Admissions {
    /// How the breaker, the `index`th, let it in.
    fn take(&mut self, index: usize) -> Admission {
        let Some(Rest { probes, .. }) = self.rest.as_deref_mut() else {
            return Admission::Normal;
        };
        match probes.iter().position(|(of, _)| *of == index) {
            Some(at) => probes.swap_remove(at).1,
            None => Admission::Normal,
        }
    }

    /// Whether no breaker was asked, and no key is to be told.
    #[inline]
    pub(crate) fn are_none(&self) -> bool {
        self.asked == 0 && self.rest.is_none()
    }

    /// Keeps the keys that are to be told how the call ends.
    pub(crate) fn keep(&mut self, keys: Option<Box<Rest>>) {
        match (&mut self.rest, keys) {
            (Some(rest), Some(keys)) => rest.keep(*keys),
            (rest @ None, keys) => *rest = keys,
            (Some(_), None) => {}
        }
    }

    /// The keys that are to be told how the call ends.
    pub(crate) fn keys(&self) -> Option<&Rest> {
        self.rest.as_deref()
    }
}

impl<B: BreakerStorage> Guards<B> {
    /// Whether there are none.
    #[inline]
    pub(crate) fn are_none(&self) -> bool {
        self.authority.is_empty() && self.system.is_empty() && self.breakers.is_empty()
    }

    /// What refuses a request from `origin`, before any flow rule is asked: an authority rule; for a request from outside, a
    /// system rule; a breaker. Nothing is taken. Sentinel asks breakers last; none of them is charged, so that only changes
    /// which refusal is told where several refuse.
    pub(crate) fn check(
        &self,
        origin: &str,
        inbound: impl FnOnce() -> Option<Inbound>,
        gauges: &Gauges,
        cost: u64,
        now: Timestamp,
    ) -> Result<Admissions, Refusal> {
        for rule in &self.authority {
            if !rule.rule.admits(origin) && rule.refuse() {
                let by = Guarded::Authority(Rc::clone(&rule.rule));
                return Err(Refusal {
                    by,
                    id: rule.id.clone(),
                    retry_after: None,
                });
            }
        }
        if !self.system.is_empty()
            && let Some(inbound) = inbound()
        {
            self.check_system(&inbound, gauges, cost)?;
        }
        let mut admissions = Admissions::default();
        let mut refusal: Option<Refusal> = None;
        for (i, guard) in self.breakers.iter().enumerate() {
            guard.breaker.advance(&guard.rule.rule, now);
            let Err(refused) = guard.breaker.check(&guard.rule.rule, now) else {
                admissions.asked |= 1 << i;
                continue;
            };
            match &mut refusal {
                Some(first) if guard.rule.enforced => {
                    first.retry_after = first.retry_after.max(Some(refused.retry_after));
                }
                None if guard.rule.refuse() => {
                    refusal = Some(Refusal {
                        by: Guarded::Degrade(Rc::clone(&guard.rule.rule)),
                        id: guard.rule.id.clone(),
                        retry_after: Some(refused.retry_after),
                    });
                }
                _ => {}
            }
        }
        refusal.map_or(Ok(admissions), Err)
    }

    #[cold]
    fn check_system(&self, inbound: &Inbound, gauges: &Gauges, cost: u64) -> Result<(), Refusal> {
        let rules_in = |enforced| {
            self.system
                .iter()
                .filter(move |rule| rule.enforced == enforced)
        };
        for enforced in [false, true] {
            let rules = rules_in(enforced).map(|rule| &*rule.rule);
            let Some((limit, exceeded)) = SystemRule::first_exceeded(rules, inbound, gauges, cost)
            else {
                continue;
            };
            let found = rules_in(enforced).find(|rule| std::ptr::eq(&*rule.rule, exceeded));
            if let Some(rule) = found.filter(|rule| rule.refuse()) {
                return Err(Refusal {
                    by: Guarded::System(limit, Rc::clone(&rule.rule)),
                    id: rule.id.clone(),
                    // What the machine bears may change at any moment.
                    retry_after: Some(Duration::from_millis(1)),
                });
            }
        }
        Ok(())
    }

    /// Lets a request through that was checked, as a probe where need be. A breaker that has changed its mind since refuses.
    pub(crate) fn reserve(
        &self,
        admissions: &mut Admissions,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        for (i, guard) in self.breakers.iter().enumerate() {
            if admissions.asked & (1 << i) == 0 {
                continue;
            }
            match guard.breaker.reserve(&guard.rule.rule, now) {
                Some(Admission::Normal) => {}
                Some(probe) => {
                    let rest = admissions.rest.get_or_insert_default();
                    rest.probes.push((i, probe));
                }
                None => {
                    admissions.asked &= !(1 << i);
                    if guard.rule.refuse() {
                        self.give_back(std::mem::take(admissions), now);
                        return Err(Refusal {
                            by: Guarded::Degrade(Rc::clone(&guard.rule.rule)),
                            id: guard.rule.id.clone(),
                            retry_after: Some(Duration::ZERO),
                        });
                    }
                }
            }
        }
        Ok(())
    }

    /// Tells the breakers that a request did not take place.
    pub(crate) fn give_back(&self, admissions: Admissions, now: Timestamp) {
        for (i, probe) in admissions.rest.map(|rest| rest.probes).unwrap_or_default() {
            if let Some(guard) = self.breakers.get(i) {
                guard.breaker.give_back(probe, &guard.rule.rule, now);
            }
        }
    }

    /// Undoes that a request was let through which a flow rule refuses: no probe is taken for it.
    pub(crate) fn undo(&self, admissions: Admissions, now: Timestamp) {
        for (i, probe) in admissions.rest.map(|rest| rest.probes).unwrap_or_default() {
            if let Some(guard) = self.breakers.get(i) {
                guard.breaker.undo(probe, &guard.rule.rule, now);
            }
        }
    }

    /// Tells the breakers that a call has ended without an answer: to one that counts slow calls, it was slow if it has lasted
    /// that long; to others it did not take place.
    #[inline(never)]
    pub(crate) fn give_up(&self, mut admissions: Admissions, rt_ms: u64, now: Timestamp) {
        for (i, guard) in self.breakers.iter().enumerate() {
            if admissions.asked & (1 << i) == 0 {
                continue;
            }
            let (admission, rule) = (admissions.take(i), &*guard.rule.rule);
            if rule.is_bad(rt_ms, false) {
                guard.breaker.complete(admission, rule, rt_ms, false, now);
            } else {
                guard.breaker.give_back(admission, rule, now);
            }
        }
    }

    /// Tells the breakers how a call has ended.
    #[inline(never)]
    pub(crate) fn complete(
        &self,
        mut admissions: Admissions,
        rt_ms: u64,
        failed: bool,
        now: Timestamp,
    ) {
        for (i, guard) in self.breakers.iter().enumerate() {
            if admissions.asked & (1 << i) != 0 {
                let admission = admissions.take(i);
                guard
                    .breaker
                    .complete(admission, &guard.rule.rule, rt_ms, failed, now);
            }
        }
    }
}
