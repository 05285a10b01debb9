//! Refusals that may be repeated: the same rule refuses the same request until an instant, whatever else comes.
//!
//! A repeated refusal admits nothing, so it is never more than the limit. It takes no look at any window.

use crate::engine::blocked::Blocked;
use crate::engine::keyed::KeyedController;
use crate::engine::request::Request;
use crate::engine::resource::Resource;
use crate::engine::store::{ControllerOf, Store};
use crate::rule::Cause;
use crate::state::backend::Backend;
use crate::time::Timestamp;
use std::rc::{Rc, Weak};
use std::time::Duration;

/// A refusal that may be repeated until an instant ([`Resource::repeat`]).
pub struct Repeat<S: Backend> {
    until: Timestamp,
    by: By<S>,
}

/// The state in which the refusals of a rule are counted. It goes with the rule.
enum By<S: Backend> {
    Plain(Weak<ControllerOf<S>>),
    Keyed(Weak<KeyedController>),
}

impl<S: Backend> Repeat<S> {
    /// Before this instant no request like the one that was refused passes.
    pub fn until(&self) -> Timestamp {
        self.until
    }

    /// Counts one more refusal by the same rule. `false` if the rule is no longer in force: then the request is to be decided on.
    pub fn refuse(&self) -> bool {
        match &self.by {
            By::Plain(state) => state.upgrade().map(|state| state.block()).is_some(),
            By::Keyed(state) => state.upgrade().map(|state| state.block()).is_some(),
        }
    }
}

impl<S: Backend> Resource<S> {
    /// Until when it refuses each request like this one, which it has refused at `now`. Such a request has the same keys,
    /// origin and costs, and the name of the same resource.
    ///
    /// `None` where it may pass sooner, or where more is recorded of it than that its rule has refused it:
    /// - what fills the rule may end at any moment: calls in flight, costs that are settled, turns, loans, leased permits;
    /// - the limit rises by itself: the rule warms up;
    /// - a rule in shadow mode, a ban, a breaker or a system rule looks at the request, too, or statistics are kept;
    /// - the request may borrow, or does not wait where others do; or rules decide as Sentinel does.
    ///
    /// What is given back sooner than it leaves its window ([`Entry::exit_uncounted`](crate::Entry::exit_uncounted), or a
    /// reservation of another worker that another rule then refused) makes room before that instant: repeating is too strict
    /// then, and never too lenient.
    pub fn repeat(
        &self,
        store: &Store<S>,
        request: &Request<'_>,
        blocked: &Blocked,
        now: Timestamp,
    ) -> Option<Repeat<S>> {
        let Cause::Flow(rule) = blocked.cause() else {
            return None;
        };
        let is_usual = !request.prioritized && !request.exempt && request.impatient == 0;
        if !is_usual || store.tree().is_some() || !self.only_refuses() {
            return None;
        }
        let origin =
            (!request.origin.is_empty()).then(|| self.origin(store, request.origin, Some(now)));
        let origin = origin.as_deref();
        let mut checks = self.checks.iter().enumerate();
        let (wait, by) = match checks.find(|(_, check)| Rc::ptr_eq(&check.rule, rule)) {
            Some((i, check)) => {
                let state = self.state(check, i, origin)?;
                let cost = check.cost(&request.costs());
                let wait = state.is_full_for(&check.terms, cost, now)?;
                (wait, By::Plain(Rc::downgrade(state)))
            }
            None => {
                let mut keyed = self.keys.checks.iter();
                let check = keyed.find(|check| std::ptr::eq(check.rule(), &**rule))?;
                let caller = self.key_caller(origin, request);
                (
                    check.is_full_for(&caller, now)?,
                    By::Keyed(check.counted()?),
                )
            }
        };
        let nanos = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX);
        (wait > Duration::ZERO).then(|| Repeat {
            until: now.plus_nanos(nanos),
            by,
        })
    }
}

impl<S: Backend> Resource<S> {
    /// Whether it records nothing of a request that a window refuses but that one rule did, and asks nothing else than flow rules
    /// and authority rules.
    fn only_refuses(&self) -> bool {
        let mut plain = self.checks.iter();
        self.prechecks.are_steady()
            && (!S::LEASES || self.keys.leases.checks().is_empty())
            && self.keys.checks.iter().all(|check| check.only_refuses())
            && plain.all(|check| {
                let warms_up = check.rule.control_behavior().warms_up();
                check.enforced && check.terms.compat.is_none() && !warms_up
            })
    }
}
