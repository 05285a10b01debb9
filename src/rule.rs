//! Rules. Their small types check what they are made from, once; after that a rule is right by construction.

pub(crate) mod authority;
pub(crate) mod degrade;
mod flow;
mod key;
mod parts;
pub(crate) mod system;

pub use authority::{AuthorityRule, AuthorityStrategy, MAX_LISTED_ORIGINS};
pub use degrade::{
    Comparison, DEFAULT_DEGRADE_SAMPLE_COUNT, DEFAULT_MIN_REQUEST_AMOUNT, DegradeGrade,
    DegradeRule, MAX_PROBES,
};
pub use flow::{ControlBehavior, FlowRule, MaxQueueing, Strategy, WarmUp};
pub(crate) use key::Network;
pub use key::{
    DEFAULT_MAX_KEYS, KeyItem, KeyMatch, KeyPart, KeyValue, KeyedBy, MAX_KEY_PARTS, MAX_KEYS,
    MAX_KEYS_OF_REQUEST, Regex,
};
pub(crate) use parts::span;
pub use parts::{
    Count, Counting, DEFAULT_SAMPLE_COUNT, Grade, KEYED_SAMPLE_COUNT, LimitApp, MAX_NAME,
    MAX_RESOURCES, MAX_RULES_PER_RESOURCE, MAX_SAMPLE_COUNT, MAX_SYSTEM_RULES, Mode, Ratio,
    RuleError, RuleGeometry, RuleId, Target,
};
pub use system::{SystemLimit, SystemRule};
