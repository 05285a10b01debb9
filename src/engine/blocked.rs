//! A refusal: the rule that refuses, and how long it does.

use crate::rule::{Cause, RuleId};
use std::time::Duration;

/// A refusal.
#[derive(Clone, Debug)]
pub struct Blocked {
    pub(super) cause: Cause,
    pub(super) id: RuleId,
    pub(super) retry_after: Option<Duration>,
    /// `None` unless a flow rule refused. One that awaits the store has not.
    pub(super) cost: Option<u64>,
}

impl Blocked {
    /// The first rule that refused: of authority rules, system rules, breakers and flow rules, in this order.
    pub fn cause(&self) -> &Cause {
        &self.cause
    }

    /// Its id.
    pub fn id(&self) -> &RuleId {
        &self.id
    }

    /// How long until the same request would be let in if nothing else came, to pass or to wait: the longest, if several rules
    /// refuse. `None` where it never can.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Whether the request is not refused, but has to wait for the store of a rule with leased permits: nothing was charged or
    /// counted. It is to be entered again when the store has answered, or has not for too long
    /// ([`Request::impatient_for_store`](crate::Request::impatient_for_store)). A caller that does not wait refuses it.
    pub fn awaits_store(&self) -> bool {
        self.cost.is_none() && matches!(self.cause, Cause::Flow(_))
    }

    /// What the request costs under the flow rule that refused it, in the rule's unit, or how much it would hold; `None` if a rule
    /// of another kind refused it.
    pub fn cost(&self) -> Option<u64> {
        self.cost
    }
}
