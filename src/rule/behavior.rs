//! What happens to a request at the threshold of a flow rule, and whose requests the rule counts.

use super::parts::{MAX_INT, RuleError};
use std::rc::Rc;

/// What happens to a request at a rule's threshold.
///
/// Sentinel: `RuleConstant.CONTROL_BEHAVIOR_*`, in its order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum ControlBehavior {
    /// It is refused. A prioritized request may borrow a pass from a future bucket.
    #[default]
    Reject,
    /// It is refused, and the threshold is lower while the rule is cold: after a time of little use.
    WarmUp,
    /// It waits for its turn: requests pass one by one, evenly, at the rule's rate.
    #[doc(alias = "RateLimiter")]
    Throttle,
    /// It waits for its turn, and turns are further apart while the rule is cold.
    #[doc(alias = "WarmUpRateLimiter")]
    WarmUpThrottle,
}

impl ControlBehavior {
    /// Whether the rule can be cold.
    pub fn warms_up(self) -> bool {
        matches!(
            self,
            ControlBehavior::WarmUp | ControlBehavior::WarmUpThrottle
        )
    }

    /// Whether requests take turns.
    pub fn is_paced(self) -> bool {
        matches!(
            self,
            ControlBehavior::Throttle | ControlBehavior::WarmUpThrottle
        )
    }
}

/// How a cold rule warms up.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WarmUp {
    /// From 1 to [`WarmUp::MAX`].
    period_sec: u32,
    /// From 2 to [`WarmUp::MAX`].
    cold_factor: u32,
}

impl WarmUp {
    /// The longest period, in seconds, and the highest cold factor: Sentinel's type ends there.
    pub const MAX: u32 = MAX_INT;

    /// From a `cold_factor`th of the count to all of it in `period_sec` seconds of full use.
    ///
    /// # Errors
    ///
    /// If the period is zero, the factor below two, or either above [`WarmUp::MAX`].
    pub fn new(period_sec: u32, cold_factor: u32) -> Result<WarmUp, RuleError> {
        if !(1..=WarmUp::MAX).contains(&period_sec) {
            return Err(RuleError::BadPeriod { period_sec });
        }
        if !(2..=WarmUp::MAX).contains(&cold_factor) {
            return Err(RuleError::BadColdFactor { cold_factor });
        }
        Ok(WarmUp {
            period_sec,
            cold_factor,
        })
    }

    /// How long it takes, in seconds.
    pub fn period_sec(self) -> u32 {
        self.period_sec
    }

    /// Which part of the count a cold rule admits.
    pub fn cold_factor(self) -> u32 {
        self.cold_factor
    }
}

/// Ten seconds, from a third: Sentinel's.
impl Default for WarmUp {
    fn default() -> WarmUp {
        WarmUp {
            period_sec: 10,
            cold_factor: 3,
        }
    }
}

/// How long a request may wait for its turn; with zero it never waits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MaxQueueing {
    millis: u32,
}

impl MaxQueueing {
    /// The longest, in milliseconds: Sentinel's type ends there, after 24 days.
    pub const MAX_MS: u32 = MAX_INT;

    /// At most `millis` milliseconds.
    ///
    /// # Errors
    ///
    /// If that is more than [`MaxQueueing::MAX_MS`].
    pub fn from_millis(millis: u64) -> Result<MaxQueueing, RuleError> {
        match u32::try_from(millis) {
            Ok(millis) if millis <= MaxQueueing::MAX_MS => Ok(MaxQueueing { millis }),
            _ => Err(RuleError::LongQueue {
                max_queueing_ms: millis,
            }),
        }
    }

    /// In milliseconds.
    pub fn as_millis(self) -> u64 {
        self.millis.into()
    }

    pub(crate) fn as_nanos(self) -> u64 {
        self.as_millis() * 1_000_000
    }
}

/// Half a second: Sentinel's.
impl Default for MaxQueueing {
    fn default() -> MaxQueueing {
        MaxQueueing { millis: 500 }
    }
}

/// Whose requests a rule counts.
///
/// Sentinel: `RuleConstant.STRATEGY_*` and `refResource`.
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug)]
pub enum Strategy {
    /// The requests that the rule applies to.
    #[default]
    Direct,
    /// The requests of this other resource, of all origins: the rule's resource gives way to it.
    Relate(Rc<str>),
    /// The requests that come in by the context of this name; the rule applies only to these.
    Chain(Rc<str>),
}
