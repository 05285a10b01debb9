//! The arguments of a flow rule's state: the rule's terms, and the request.

use crate::compat::AsSentinel;
use crate::rule::{ControlBehavior, Count, Counting, FlowRule, Grade, WarmUp};
use crate::stats::occupy::OCCUPY_TIMEOUT_MS;

/// The terms of a rule. They are not part of its state, so that they can change while the state goes on.
pub(crate) struct Terms {
    pub(crate) count: Count,
    /// How the window counts.
    pub(crate) counting: Counting,
    /// In nanoseconds.
    pub(crate) interval: u64,
    pub(crate) warm_up: WarmUp,
    /// The lowest rate, in passes per interval: that of the cold rule, if it warms up.
    pub(crate) slowest: f64,
    /// In nanoseconds.
    pub(crate) max_queueing: u64,
    /// How long a request that costs 1 keeps a throttle busy, in nanoseconds; `None` if none ever passes.
    pub(crate) turn: Option<u64>,
    /// How far ahead turns can reach, in nanoseconds: the longest wait on the resource plus the spacing of the highest cost.
    pub(crate) furthest: u64,
    /// Whether it decides as Sentinel does.
    pub(crate) compat: Option<AsSentinel>,
    /// Whether requests hold an estimate until their cost is known.
    pub(crate) holds: bool,
}

impl Terms {
    /// The terms of `rule`, on a resource whose rules let no request wait for longer than `longest_wait` nanoseconds.
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
            turn: spacing(interval, count, count, 1),
            furthest: longest_wait.saturating_add(max_spacing),
            compat: AsSentinel::of(rule.is_compat()),
            holds: rule.cost().is_some(),
        }
    }
}

/// Of the terms of a rule, what says how full its limit is.
#[derive(Clone, Copy, Default)]
pub(crate) struct Bounds {
    count: f64,
    max_queueing: u64,
    pub(crate) holds: bool,
}

/// More than this counts only where the past is unknown.
const MAX_KNOWN: f64 = (1_u64 << 60) as f64;

impl Bounds {
    pub(crate) fn of(terms: &Terms) -> Bounds {
        Bounds::of_key(terms.count.get(), terms.max_queueing, terms.holds)
    }

    pub(crate) fn of_key(count: f64, max_queueing: u64, holds: bool) -> Bounds {
        Bounds {
            count,
            max_queueing,
            holds,
        }
    }

    /// How much of the limit is `used`: more than all of it only if costs are settled, which may leave a debt.
    pub(crate) fn part(self, used: f64) -> f64 {
        if self.count == 0.0 || used > MAX_KNOWN {
            return 0.0;
        }
        let part = used / self.count;
        if self.holds { part } else { part.min(1.0) }
    }

    /// How much of the longest wait that is allowed a wait of so many nanoseconds is.
    pub(crate) fn part_of_wait(self, nanos: u64) -> f64 {
        (nanos as f64 / self.max_queueing.max(1) as f64).min(1.0)
    }
}

/// For how long `rule` lets a request wait at most, in nanoseconds.
pub(crate) fn longest_wait(rule: &FlowRule) -> u64 {
    if rule.control_behavior().is_paced() {
        rule.max_queueing().as_nanos()
    } else {
        OCCUPY_TIMEOUT_MS * 1_000_000
    }
}

/// A request, as a rule sees it.
#[derive(Clone, Copy)]
pub(crate) struct Ask {
    pub(crate) cost: u64,
    /// Whether the rule counts it: not if the rule measures another resource.
    pub(crate) counts: bool,
    /// How long it waits, in nanoseconds.
    pub(crate) wait: u64,
}

impl Ask {
    /// A request that passes at once and is counted by the rule.
    #[inline]
    pub(crate) fn at_once(cost: u64) -> Ask {
        Ask {
            cost,
            counts: true,
            wait: 0,
        }
    }
}

/// How long a request can keep a pacer busy, in nanoseconds, if at least `slowest` pass in `interval`.
#[inline]
pub(super) fn max_spacing(interval: u64, count: f64, slowest: f64) -> u64 {
    if slowest >= count.max(1.0) {
        return interval;
    }
    (interval as f64 * count.max(1.0) / slowest).ceil() as u64
}

/// How long a request keeps a pacer busy, in nanoseconds, if `count` pass in `interval`, at present at `rate`. `None` if it
/// never passes.
#[inline]
pub(super) fn spacing(interval: u64, count: f64, rate: f64, cost: u64) -> Option<u64> {
    if count == 0.0 || cost as f64 > count.max(1.0) {
        return None;
    }
    // Rounded up: never faster than the rate. Exact to the nanosecond for turns of up to 104 days.
    Some((interval as f64 * cost as f64 / rate).ceil() as u64)
}
