//! A refusal: the rule that refuses, and how long it does.

use crate::rule::{Cause, RuleId};
use std::time::Duration;

/// A refusal.
#[derive(Clone, Debug)]
pub struct Blocked {
    pub(super) cause: Cause,
    pub(super) id: RuleId,
    pub(super) retry_after: Option<Duration>,
    /// `None` unless a flow rule refused.
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

    /// What the request costs under the flow rule that refused it, in the rule's unit, or how much it would hold; `None` if a rule
    /// of another kind refused it.
    pub fn cost(&self) -> Option<u64> {
        self.cost
    }
}
