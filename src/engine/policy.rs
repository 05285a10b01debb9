//! How the rules of a resource stand.

use crate::engine::caller::Caller;
use crate::engine::check::Check;
use crate::engine::keyed::KeyCaller;
use crate::engine::request::Request;
use crate::engine::resource::{Ordered, Resource};
use crate::rule::{Count, FlowRule, RuleId};
use crate::state::backend::Backend;
use crate::stats::tree::DEFAULT_CONTEXT;
use crate::time::Timestamp;
use std::time::Duration;

/// How a rule stands.
#[derive(Clone, Copy, Debug)]
pub struct Policy<'a> {
    /// The rule.
    pub rule: &'a FlowRule,
    /// Its id.
    pub id: &'a RuleId,
    /// How much it lets pass: of a rule with a key, what that key has, with what may burst.
    pub count: Count,
    /// Whole passes that are left now.
    pub remaining: u64,
    /// How long until quota comes back: a whole pass where none is left, else any. Zero where none is used or it is unknown.
    pub reset: Duration,
}

impl<S: Backend> Resource<S> {
    /// How the rules stand that apply to requests of no origin in particular and no context, in order. Rules with a key stand
    /// differently for each.
    pub fn policies(&self, now: Timestamp) -> impl Iterator<Item = Policy<'_>> {
        self.checks
            .iter()
            .filter_map(move |check| self.policy(check, now))
    }

    /// The same without the rules that leave such a request alone, and for requests with these keys the keyed rules: of several
    /// keys, the one with the least left.
    pub fn policies_for<'a>(
        &'a self,
        request: &Request<'a>,
        now: Timestamp,
    ) -> impl Iterator<Item = Policy<'a>> + use<'a, S> {
        let (keys, name, sender) = (request.keys, self.name_of(request), request.origin);
        let caller = KeyCaller {
            values: keys,
            resource: name,
            origin: "",
            is_other: 0,
            cost: 1,
            others: &[],
        };
        let order = if request.exempt { &[] } else { &*self.order };
        order.iter().filter_map(move |ordered| match ordered {
            Ordered::Plain(place) => {
                let check = self.checks.get(*place)?;
                self.policy(check, now)
                    .filter(|_| !check.exempts(keys, sender))
            }
            Ordered::Keyed(place) if S::LEASES && *place >= self.keys.checks.len() => {
                let place = place - self.keys.checks.len();
                let (check, remaining, reset) = self.keys.leases.status(place, &caller, now)?;
                Some(Policy {
                    rule: check.rule(),
                    id: check.id(),
                    count: check.rule().count(),
                    remaining,
                    reset,
                })
                .filter(|_| !check.exempts(keys, sender))
            }
            Ordered::Keyed(place) => {
                if self.keys.checks.get(*place)?.exempts(keys, sender) {
                    return None;
                }
                let (rule, id, count, status) = self.keys.status(*place, &caller, now)?;
                Some(Policy {
                    rule,
                    id,
                    count,
                    remaining: status.remaining,
                    reset: status.reset,
                })
            }
        })
    }

    #[inline]
    fn policy<'a>(&'a self, check: &'a Check<S>, now: Timestamp) -> Option<Policy<'a>> {
        let caller = Caller {
            origin: None,
            context: DEFAULT_CONTEXT,
            prioritized: false,
            keys: KeyCaller::none(),
            impatient: false,
        };
        let state = check.state.as_ref().filter(|_| check.role(&caller).0)?;
        let remaining = state.remaining(&check.terms, now);
        Some(Policy {
            rule: &check.rule,
            id: &check.id,
            count: check.rule.count(),
            remaining,
            reset: state.time_to_more(&check.terms, remaining, now),
        })
    }
}
