//! Rules. Their small types check what they are made from, once; after that a rule is right by construction.

mod actual;
mod api;
mod attribute;
pub(crate) mod authority;
mod ban;
mod behavior;
mod cluster;
mod cost;
mod count_from;
pub(crate) mod degrade;
mod exempt;
mod flow;
mod key;
mod network;
mod parts;
pub(crate) mod path;
pub(crate) mod system;

pub use actual::{Actual, CostSource, MAX_STATUSES, MAX_WEIGHT, Missing, Statuses, Weights};
pub(crate) use api::PathMatch;
pub use api::{
    ApiDefinition, MAX_API_DEFINITIONS, MAX_CONDITIONS, MAX_PATTERN, MAX_PREDICATE_ITEMS,
    PredicateItem,
};
pub(crate) use attribute::JWT_PAYLOAD;
pub use attribute::{Attribute, AttributeSource, MAX_PATH, number_of, number_text};
pub use authority::{AuthorityRule, AuthorityStrategy, MAX_LISTED_ORIGINS};
pub use ban::BanRule;
pub use behavior::{ControlBehavior, MaxQueueing, Strategy, WarmUp};
pub use cluster::ClusterConfig;
pub(crate) use cost::amount;
pub use cost::{AtMost, Cost, REQUESTS, Unit};
pub use count_from::CountFrom;
pub use degrade::{
    Comparison, DEFAULT_DEGRADE_SAMPLE_COUNT, DEFAULT_MIN_REQUEST_AMOUNT, DegradeGrade,
    DegradeRule, MAX_PROBES,
};
pub use exempt::{Exempt, Exemption, MAX_EXEMPTIONS};

pub use flow::{FlowRule, ResourceMode};
pub use key::{
    DEFAULT_MAX_KEYS, KeyItem, KeyMatch, KeyPart, KeyValue, KeyedBy, MAX_KEY_PARTS, MAX_KEYS,
    MAX_KEYS_OF_REQUEST, Regex,
};
pub use network::Cidr;
pub(crate) use network::Network;
pub(crate) use parts::{BAD_PATH, span};
pub use parts::{
    Count, Counting, DEFAULT_SAMPLE_COUNT, Grade, KEYED_SAMPLE_COUNT, LimitApp, MAX_NAME,
    MAX_RESOURCES, MAX_RULES_PER_RESOURCE, MAX_SAMPLE_COUNT, MAX_SYSTEM_RULES, Mode, Ratio,
    RuleError, RuleGeometry, RuleId, Target,
};
pub use system::{SystemLimit, SystemRule};

use crate::refusal::RefusalKind;
use std::fmt;
use std::rc::Rc;

/// The rules of one document, in order.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Rules {
    /// Limits on resources. Those of one resource are gone through in order.
    pub flow: Vec<FlowRule>,
    /// Sentinel's `paramFlowRules`: limits on the values of a parameter. They come before `flow`.
    pub param_flow: Vec<FlowRule>,
    /// Sentinel's gateway rules. They come before `param_flow`.
    pub gateway_flow: Vec<FlowRule>,
    /// Circuit breakers.
    pub degrade: Vec<DegradeRule>,
    /// Limits on all that comes from outside, together.
    pub system: Vec<SystemRule>,
    /// Which origins may enter a resource.
    pub authority: Vec<AuthorityRule>,
    /// Bans on keys that are refused too often.
    pub ban: Vec<BanRule>,
    /// The APIs that requests may belong to besides their route ([`ApiMatcher`](crate::api::ApiMatcher)).
    #[doc(alias = "apiDefinitions")]
    pub apis: Rc<[ApiDefinition]>,
    /// Whether anything refuses: in shadow mode each rule is.
    pub mode: Mode,
}

impl Rules {
    /// The keys of all rules that have one, and where the rules stand: in which list of a document, and at which place there.
    pub fn keys(&self) -> impl Iterator<Item = (&'static str, usize, &KeyedBy)> {
        let lists = [
            (GATEWAY_FLOW_RULES, &self.gateway_flow),
            (PARAM_FLOW_RULES, &self.param_flow),
            (FLOW_RULES, &self.flow),
        ];
        let flow = lists.into_iter().flat_map(|(list, rules)| {
            let keys = rules.iter().enumerate();
            keys.filter_map(move |(i, rule)| Some((list, i, rule.keyed_by()?)))
        });
        let bans = self.ban.iter().enumerate();
        flow.chain(bans.filter_map(|(i, ban)| Some((BAN_RULES, i, ban.keyed_by()?))))
    }
}

/// What refused a request.
///
/// Sentinel: the subclasses of `BlockException`.
#[doc(alias = "BlockException")]
#[derive(Clone, Debug)]
#[non_exhaustive]
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
    /// A key that was refused too often.
    Ban(Rc<BanRule>),
    /// More APIs than a request may belong to ([`MAX_APIS`](crate::api::MAX_APIS)), or more of their rules than one resource may
    /// have ([`MAX_RULES_PER_RESOURCE`]).
    Apis,
}

impl Cause {
    /// What the refusal means to the client: how it is answered.
    pub fn kind(&self) -> RefusalKind {
        match self {
            Cause::Flow(_) | Cause::Ban(_) | Cause::System(SystemLimit::Qps, _) => {
                RefusalKind::Limited
            }
            Cause::Degrade(_) | Cause::System(..) | Cause::Apis => RefusalKind::Unavailable,
            Cause::Authority(_) => RefusalKind::Forbidden,
        }
    }

    /// The kind of rule, as metrics and JavaScript name it.
    pub fn name(&self) -> &'static str {
        match self {
            Cause::Flow(_) => FLOW,
            Cause::Degrade(_) => "degrade",
            Cause::System(..) => "system",
            Cause::Authority(_) => "authority",
            Cause::Ban(_) => BAN,
            Cause::Apis => "api",
        }
    }

    /// The flow rule, if one refused.
    pub fn flow_rule(&self) -> Option<&FlowRule> {
        match self {
            Cause::Flow(rule) => Some(rule),
            _ => None,
        }
    }
}

/// The kind of flow rules, and of bans.
pub(crate) const FLOW: &str = "flow";
pub(crate) const BAN: &str = "ban";

/// The lists of rules, as a document calls them.
pub(crate) const FLOW_RULES: &str = "flowRules";
pub(crate) const PARAM_FLOW_RULES: &str = "paramFlowRules";
pub(crate) const GATEWAY_FLOW_RULES: &str = "gatewayFlowRules";
pub(crate) const DEGRADE_RULES: &str = "degradeRules";
pub(crate) const SYSTEM_RULES: &str = "systemRules";
pub(crate) const AUTHORITY_RULES: &str = "authorityRules";
pub(crate) const BAN_RULES: &str = "banRules";

/// Why rules cannot be put in force. Those in force stay.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RulesError {
    /// Two rules have one id: name one of them otherwise.
    SameId {
        /// The id.
        id: RuleId,
        /// The list in which the second one stands, as a document calls it.
        list: &'static str,
        /// Where it stands there.
        index: usize,
    },
    /// More rules apply to a resource than [`MAX_RULES_PER_RESOURCE`].
    ManyRules {
        /// The resource, or `*`.
        resource: String,
        /// The list in which the first rule too many stands, as a document calls it.
        list: &'static str,
        /// Where it stands there.
        index: usize,
    },
    /// There are more system rules than [`MAX_SYSTEM_RULES`].
    ManySystemRules {
        /// How many there are.
        rules: usize,
    },
    /// A system rule, where neither statistics are kept nor a shell counts inbound requests: leave it out.
    NoStatistics,
}

impl RulesError {
    /// Where the rule stands that cannot be had: in which list of a document, and at which place there.
    pub fn place(&self) -> (&'static str, usize) {
        match self {
            RulesError::SameId { list, index, .. } | RulesError::ManyRules { list, index, .. } => {
                (list, *index)
            }
            RulesError::ManySystemRules { .. } => (SYSTEM_RULES, MAX_SYSTEM_RULES),
            RulesError::NoStatistics => (SYSTEM_RULES, 0),
        }
    }
}

impl fmt::Display for RulesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RulesError::SameId { id, .. } => write!(
                f,
                "`{id}` is the id of an earlier rule; give one of them another `id`"
            ),
            RulesError::ManySystemRules { rules } => {
                write!(
                    f,
                    "`{rules}` system rules are too many; use at most {MAX_SYSTEM_RULES}"
                )
            }
            RulesError::NoStatistics => {
                write!(
                    f,
                    "`1` rule needs statistics, which are not kept here; leave it out"
                )
            }
            RulesError::ManyRules { resource, .. } => {
                write!(
                    f,
                    "`{resource}` has too many rules; use at most {MAX_RULES_PER_RESOURCE} for one resource"
                )
            }
        }
    }
}

impl std::error::Error for RulesError {}
