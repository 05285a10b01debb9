//! The circuit breakers of one resource: they let requests through, as probes if need be, and look at how calls end.

use crate::engine::api_nodes::ApiNode;
use crate::engine::blocked::Blocked;
use crate::engine::in_force::InForce;
use crate::engine::keyed::EntryExtras;
use crate::rule::{Cause, DegradeRule};
use crate::state::breaker::{Admission, Breaker, BreakerStorage, Phase};
use crate::time::Timestamp;
use std::rc::Rc;
use std::time::Duration;

/// A degrade rule on one resource.
pub(super) struct BreakerCheck<B> {
    pub(super) rule: Rc<InForce<DegradeRule>>,
    pub(super) breaker: Rc<Breaker<B>>,
}

impl<B> BreakerCheck<B> {
    fn blocked(&self, retry_after: Duration) -> Blocked {
        Blocked {
            cause: Cause::Degrade(Rc::clone(&self.rule.rule)),
            id: self.rule.id.clone(),
            retry_after: Some(retry_after),
            cost: None,
        }
    }
}

/// Those of one resource.
pub(super) struct BreakerChecks<B>(pub(super) Box<[BreakerCheck<B>]>);

/// How the breakers and the keys of a resource let a request in.
#[derive(Default)]
pub(super) struct Admissions {
    /// A bit for each breaker that looks at how the call ends.
    asked: u64,
    rest: Option<Box<EntryExtras>>,
}

impl Admissions {
    /// How the breaker, the `index`th, let it in.
    fn take(&mut self, index: usize) -> Admission {
        let Some(EntryExtras { probes, .. }) = self.rest.as_deref_mut() else {
            return Admission::Normal;
        };
        match probes.iter().position(|(of, _)| *of == index) {
            Some(at) => probes.swap_remove(at).1,
            None => Admission::Normal,
        }
    }

    /// The breakers that look at how the call ends. None does, from now on.
    #[inline]
    pub(super) fn take_asked(&mut self) -> u64 {
        std::mem::take(&mut self.asked)
    }

    /// From now on these breakers look at how the call ends.
    #[inline]
    pub(super) fn ask(&mut self, asked: u64) {
        self.asked = asked;
    }

    /// Whether neither a breaker nor a key looks at how the call ends.
    #[inline]
    pub(super) fn are_none(&self) -> bool {
        self.asked == 0 && self.rest.is_none()
    }

    /// Keeps the keys that look at how the call ends, and what it holds.
    pub(super) fn keep(&mut self, keys: Option<Box<EntryExtras>>) {
        match (&mut self.rest, keys) {
            (Some(rest), Some(keys)) => rest.keep(*keys),
            (rest @ None, keys) => *rest = keys,
            (Some(_), None) => {}
        }
    }

    /// The keys that look at how the call ends, and what it holds.
    pub(super) fn extras(&self) -> Option<&EntryExtras> {
        self.rest.as_deref()
    }

    /// The statistics of the APIs of the request.
    #[inline]
    pub(super) fn apis(&self) -> &[ApiNode] {
        self.rest.as_deref().map_or(&[], |rest| &rest.apis)
    }

    /// Keeps the statistics of the APIs of the request.
    pub(super) fn keep_apis(&mut self, apis: Vec<ApiNode>) {
        if !apis.is_empty() {
            self.rest.get_or_insert_default().apis = apis;
        }
    }

    /// Keeps what the request costs in other units than requests.
    #[cold]
    pub(super) fn keep_charged(&mut self, costs: &[(&str, u64)]) {
        let costs = costs.iter().map(|(unit, n)| ((*unit).into(), *n));
        self.rest.get_or_insert_default().charged = costs.collect();
    }

    /// What it holds, to be settled.
    pub(super) fn extras_mut(&mut self) -> Option<&mut EntryExtras> {
        self.rest.as_deref_mut()
    }
}

impl<B: BreakerStorage> BreakerChecks<B> {
    /// Which of them would let a request through: each that is enforced has to. Nothing is taken.
    pub(super) fn check(&self, admissions: &mut Admissions, now: Timestamp) -> Result<(), Blocked> {
        let mut refusal: Option<Blocked> = None;
        for (i, check) in self.0.iter().enumerate() {
            check.breaker.advance(&check.rule.rule, now);
            let Err(refused) = check.breaker.check(&check.rule.rule, now) else {
                admissions.asked |= 1 << i;
                continue;
            };
            match &mut refusal {
                Some(first) if check.rule.enforced => {
                    first.retry_after = first.retry_after.max(Some(refused.retry_after));
                }
                None if check.rule.refuse() => {
                    refusal = Some(check.blocked(refused.retry_after));
                }
                _ => {}
            }
        }
        refusal.map_or(Ok(()), Err)
    }

    /// All of them, a bit for each, if all are closed: they let any request through, and none changes by that.
    #[inline]
    pub(super) fn pass_at_once(&self, now: Timestamp) -> Option<u64> {
        let mut asked = 0;
        for (i, check) in self.0.iter().enumerate() {
            check.breaker.move_to(now);
            if check.breaker.phase() != Phase::Closed {
                return None;
            }
            asked |= 1 << i;
        }
        Some(asked)
    }

    /// Lets a request through that was checked, as a probe where need be. A breaker that has changed its mind since refuses.
    pub(super) fn reserve(
        &self,
        admissions: &mut Admissions,
        now: Timestamp,
    ) -> Result<(), Blocked> {
        for (i, check) in self.0.iter().enumerate() {
            if admissions.asked & (1 << i) == 0 {
                continue;
            }
            match check.breaker.reserve(&check.rule.rule, now) {
                Some(Admission::Normal) => {}
                Some(probe) => {
                    let rest = admissions.rest.get_or_insert_default();
                    rest.probes.push((i, probe));
                }
                None => {
                    admissions.asked &= !(1 << i);
                    if check.rule.refuse() {
                        self.give_back(std::mem::take(admissions), now);
                        return Err(check.blocked(Duration::ZERO));
                    }
                }
            }
        }
        Ok(())
    }

    /// Gives the probes of a request back that did not take place.
    pub(super) fn give_back(&self, admissions: Admissions, now: Timestamp) {
        for (i, probe) in admissions.rest.map(|rest| rest.probes).unwrap_or_default() {
            if let Some(check) = self.0.get(i) {
                check.breaker.give_back(probe, &check.rule.rule, now);
            }
        }
    }

    /// Undoes that a request was let through which a flow rule refuses: no probe is taken for it.
    pub(super) fn undo(&self, admissions: Admissions, now: Timestamp) {
        for (i, probe) in admissions.rest.map(|rest| rest.probes).unwrap_or_default() {
            if let Some(check) = self.0.get(i) {
                check.breaker.undo(probe, &check.rule.rule, now);
            }
        }
    }

    /// Ends a call without an answer: for a breaker that counts slow calls, it was slow if it has lasted
    /// that long; to others it did not take place.
    #[inline(never)]
    pub(super) fn give_up(&self, mut admissions: Admissions, rt_ms: u64, now: Timestamp) {
        for (i, check) in self.0.iter().enumerate() {
            if admissions.asked & (1 << i) == 0 {
                continue;
            }
            let (admission, rule) = (admissions.take(i), &*check.rule.rule);
            if rule.is_bad(rt_ms, false) {
                check.breaker.complete(admission, rule, rt_ms, false, now);
            } else {
                check.breaker.give_back(admission, rule, now);
            }
        }
    }

    /// Tells the breakers once how a call has ended: they count it.
    #[inline(never)]
    pub(super) fn complete(
        &self,
        admissions: &mut Admissions,
        rt_ms: u64,
        failed: bool,
        now: Timestamp,
    ) {
        let asked = std::mem::take(&mut admissions.asked);
        for (i, check) in self.0.iter().enumerate() {
            if asked & (1 << i) != 0 {
                let admission = admissions.take(i);
                check
                    .breaker
                    .complete(admission, &check.rule.rule, rt_ms, failed, now);
            }
        }
    }
}
