//! A refusal, and what refused.

use crate::engine::prechecks::Guarded;
use crate::refusal::RefusalKind;
use crate::rule::{AuthorityRule, DegradeRule, FlowRule, RuleId, SystemLimit, SystemRule};
use std::rc::Rc;
use std::time::Duration;

/// What refused a request.
///
/// Sentinel: the subclasses of `BlockException`.
#[doc(alias = "BlockException")]
#[derive(Clone, Debug)]
pub enum Cause {
    /// A limit on the resource, or, where the rule has a key ([`FlowRule::keyed_by`]), on that key.
    #[doc(alias = "ParamFlowException")]
    Flow(Rc<FlowRule>),
    /// A circuit breaker that is not closed.
    Degrade(Rc<DegradeRule>),
    /// What the machine bears, by which measure.
    System(SystemLimit, Rc<SystemRule>),
    /// An origin that may not enter.
    Authority(Rc<AuthorityRule>),
}

impl Cause {
    /// What the refusal means to the client: how it is answered.
    pub fn kind(&self) -> RefusalKind {
        match self {
            Cause::Flow(_) | Cause::System(SystemLimit::Qps, _) => RefusalKind::Limited,
            Cause::Degrade(_) | Cause::System(..) => RefusalKind::Unavailable,
            Cause::Authority(_) => RefusalKind::Forbidden,
        }
    }
}

/// A refusal.
#[derive(Clone, Debug)]
pub struct Blocked {
    pub(super) cause: Cause,
    pub(super) id: RuleId,
    pub(super) retry_after: Option<Duration>,
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
}

impl From<crate::engine::prechecks::Refusal> for Blocked {
    fn from(refusal: crate::engine::prechecks::Refusal) -> Blocked {
        let cause = match refusal.by {
            Guarded::Authority(rule) => Cause::Authority(rule),
            Guarded::System(limit, rule) => Cause::System(limit, rule),
            Guarded::Degrade(rule) => Cause::Degrade(rule),
        };
        Blocked {
            cause,
            id: refusal.id,
            retry_after: refusal.retry_after,
        }
    }
}
