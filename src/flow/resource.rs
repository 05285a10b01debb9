//! A resource and its rules, and the requests for it.

use super::state::{InForce, State};
use crate::rule::{Count, FlowRule, KeyPart, KeyValue, RuleId};
use crate::state::keyed::{KeyStatus, KeyedStates};
use crate::time::Timestamp;
use std::rc::Rc;
use std::time::Duration;

/// A resource with its rules.
pub struct FlowResource {
    pub(super) rules: Box<[OfResource]>,
    pub(super) parts: Box<[KeyPart]>,
}

/// A rule of a resource, and for each part of its key, which of the request's values it is.
pub(super) struct OfResource {
    pub(super) rule: Rc<InForce>,
    pub(super) of: Box<[usize]>,
}

/// A request for a resource.
#[derive(Clone, Copy, Default)]
pub struct FlowRequest<'a> {
    /// The values of the parts of its keys, as in [`Request::keys`](crate::Request::keys).
    pub keys: &'a [KeyValue<'a>],
    /// What it costs, by unit; 1 where it does not say.
    pub costs: &'a [(&'a str, u64)],
    /// Whether it is refused where it would have to wait.
    pub impatient: bool,
}

/// How a rule stands for a request.
#[derive(Clone, Copy)]
pub struct FlowPolicy {
    /// Which rule of the resource it is.
    pub index: usize,
    /// How much it lets pass: of a rule with a key, with what may burst.
    pub count: Count,
    /// Whole passes that are left now.
    pub remaining: u64,
    /// How long until quota comes back, as in [`Policy::reset`](crate::Policy::reset).
    pub reset: Duration,
}

impl FlowResource {
    /// What its rules tell requests apart by, each part once ([`Resource::key_parts`](crate::Resource::key_parts)).
    pub fn key_parts(&self) -> &[KeyPart] {
        &self.parts
    }

    /// Its rules and their ids, in the order of the document.
    pub fn rules(&self) -> impl Iterator<Item = (&FlowRule, &RuleId)> {
        self.rules.iter().map(|of| (&of.rule.rule, &of.rule.id))
    }

    /// Calls `each` with how the rules stand for such a request, in order; of several keys, as for the one with the least left.
    pub fn for_each_policy(
        &self,
        request: &FlowRequest<'_>,
        now: Timestamp,
        mut each: impl FnMut(FlowPolicy),
    ) {
        for (index, OfResource { rule, of }) in self.rules.iter().enumerate() {
            let (count, mut least) = (rule.count(), None::<KeyStatus>);
            match &rule.state {
                State::One(state) => {
                    let remaining = state.remaining(&rule.terms, now);
                    let reset = state.time_to_more(&rule.terms, remaining, now);
                    least = Some(KeyStatus { remaining, reset });
                }
                State::Keyed(keyed) => match keyed.windows.get() {
                    None => {
                        let (remaining, reset) = (count.whole(), Duration::ZERO);
                        least = Some(KeyStatus { remaining, reset });
                    }
                    Some(windows) => {
                        rule.each_key(windows, of, request, |key| {
                            let own = windows.status(key.key(), &rule.keyed_terms(), now);
                            if least.is_none_or(|least| own.remaining < least.remaining) {
                                least = Some(own);
                            }
                        });
                    }
                },
            }
            if let Some(KeyStatus { remaining, reset }) = least {
                each(FlowPolicy {
                    index,
                    count,
                    remaining,
                    reset,
                });
            }
        }
    }
}
