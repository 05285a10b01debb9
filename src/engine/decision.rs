//! What was decided.

use crate::engine::entry::Entry;
use crate::engine::prechecks::Guarded;
use crate::refusal::RefusalKind;
use crate::rule::DegradeRule;
use crate::rule::authority::AuthorityRule;
use crate::rule::system::{SystemLimit, SystemRule};
use crate::rule::{Count, FlowRule, RuleId};
use crate::state::window::{LocalTally, Tally};
use std::rc::Rc;
use std::time::Duration;

/// What was decided.
#[must_use]
#[derive(Debug)]
pub enum Decision<T: Tally = LocalTally> {
    /// Let in: the entry is to be ended when the call has ended.
    Pass(Entry<T>),
    /// Let in, but not before so much time has passed. One that is given up until then is to be told so
    /// ([`Entry::cancel`]), or dropped.
    Wait(Duration, Entry<T>),
    /// Refused; nothing was charged.
    Block(Blocked),
}

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
