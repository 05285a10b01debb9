//! Where the module puts what it tells, and the numbers that stand for things, on both sides: `js/lib/layout.js` has the same.

#[cfg(feature = "engine")]
use leapgate::MAX_RULES_PER_RESOURCE;

/// How many keys have a number. JavaScript remembers their texts.
pub(crate) const KEYS: usize = 4096;

/// What is told of a limiter's decision first: which limit refuses, and when to try again.
pub(crate) const VERDICT_LEN: usize = 2;

/// What is told of each limit: its count, what is left, when quota comes back.
pub(crate) const LIMIT_LEN: usize = 3;

/// What is told first: how many policies, how many rules there are to know, which of them refuses, its count, when to try again,
/// how long to wait.
pub(crate) const DECISION_LEN: usize = 6;

/// What is told of each policy: its rule, its count, what is left, when quota comes back.
pub(crate) const POLICY_LEN: usize = 4;

/// What is told about a rule, behind all that: its window, and the HTTP status of its refusals.
#[cfg(feature = "engine")]
const RULE_LEN: usize = 2;

/// What is told of a decision, in doubles.
#[cfg(feature = "engine")]
pub(crate) const AREA: usize = DECISION_LEN + POLICY_LEN * MAX_RULES_PER_RESOURCE + RULE_LEN;
#[cfg(not(feature = "engine"))]
pub(crate) const AREA: usize = VERDICT_LEN + LIMIT_LEN * leapgate::MAX_LIMITS;

/// What a request says about itself: a bit each.
pub(crate) const PRIORITIZED: u32 = 1;
pub(crate) const INBOUND: u32 = 2;
/// It waits where a rule says so. Else it is refused there.
pub(crate) const CAN_WAIT: u32 = 4;
/// It ends at once.
pub(crate) const ENDS: u32 = 8;
/// It has the key that is told.
pub(crate) const KEYED: u32 = 16;
/// It wants to know how the rules stand, and nothing else.
pub(crate) const LOOKS: u32 = 32;

/// Nothing has this number.
pub(crate) const NONE: f64 = -1.0;

/// What is decided where there is no entry.
pub(crate) const REFUSED: f64 = -1.0;
pub(crate) const ENDED: f64 = -2.0;

/// How a call ends; any other number drops it.
pub(crate) const EXIT: u32 = 0;
pub(crate) const EXIT_WITH_ERROR: u32 = 1;
pub(crate) const CANCEL: u32 = 2;
pub(crate) const UNANSWERED: u32 = 4;
