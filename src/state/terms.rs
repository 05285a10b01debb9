//! What a flow rule asks of its state, and what the state learns of a request.

use crate::rule::{ControlBehavior, Count, Counting, FlowRule, Grade, WarmUp};

/// What a rule asks of its state. It is no part of the state, so that it can change while the state goes on.
pub(crate) struct Terms {
    pub(crate) count: Count,
    /// How the window counts.
    pub(crate) counting: Counting,
    /// In nanoseconds.
    pub(crate) interval: u64,
    pub(crate) warm_up: WarmUp,
    /// How much passes in an interval at least: where it warms up, when it is cold.
    pub(crate) slowest: f64,
    /// In nanoseconds.
    pub(crate) max_queueing: u64,
    /// How far ahead turns can reach, in nanoseconds: the longest wait on the resource, and what a request can cost.
    pub(crate) furthest: u64,
    /// Whether it decides as Sentinel does.
    pub(crate) compat: bool,
}

impl Terms {
    /// What `rule` asks, on a resource where no rule lets a request wait for longer than `longest_wait` nanoseconds.
    pub(crate) fn new(rule: &FlowRule, longest_wait: u64) -> Terms {
        let count = rule.count().get();
        let interval = match rule.grade() {
            Grade::Qps { window, .. } => window.window().interval_nanos(),
            Grade::Concurrency => 0,
        };
        let slowest = match rule.control_behavior() {
            ControlBehavior::Reject | ControlBehavior::Throttle => count,
            ControlBehavior::WarmUp | ControlBehavior::WarmUpThrottle => {
                count / f64::from(rule.warming_up().cold_factor())
            }
        };
        let max_spacing = if rule.is_compat() {
            0
        } else {
            max_spacing(interval, count, slowest)
        };
        Terms {
            count: rule.count(),
            counting: rule.grade().counting(),
            interval,
            warm_up: rule.warming_up(),
            slowest,
            max_queueing: rule.max_queueing().as_nanos(),
            furthest: longest_wait.saturating_add(max_spacing),
            compat: rule.is_compat(),
        }
    }
}

/// A request, as a rule sees it.
#[derive(Clone, Copy)]
pub(crate) struct Ask {
    pub(crate) cost: u64,
    /// Whether the rule counts it: not where the rule measures another resource.
    pub(crate) counts: bool,
    /// For how long it waits, in nanoseconds.
    pub(crate) wait: u64,
}

impl Ask {
    /// A request that passes at once, of a rule that counts it.
    #[inline]
    pub(crate) fn at_once(cost: u64) -> Ask {
        Ask {
            cost,
            counts: true,
            wait: 0,
        }
    }
}

/// For how long a request keeps a line busy at most where at least `slowest` pass in `interval`, in nanoseconds.
#[inline]
pub(super) fn max_spacing(interval: u64, count: f64, slowest: f64) -> u64 {
    if slowest >= count.max(1.0) {
        return interval;
    }
    (interval as f64 * count.max(1.0) / slowest).ceil() as u64
}
