//! Rules as JavaScript sees them, whatever their kind.

use crate::seed::LateSeed;
use leapgate::backend::{Counter, KeyedController, KeyedWindows, StateKey};
use leapgate::rule::{ControlBehavior, Count, FlowRule, Grade, REQUESTS, RuleId};
use leapgate::{Blocked, Engine, Policy, RefusalKind, Resource, Rules, Timestamp};
use std::rc::Rc;
use std::time::Duration;

/// A rule that a decision names.
pub(crate) struct RuleInfo<Id = RuleId, Text = Box<str>> {
    pub(crate) id: Id,
    /// What it counts.
    pub(crate) unit: Text,
    /// The kind of rule, as `cause` names it.
    pub(crate) cause: &'static str,
    /// The HTTP status of its refusals: a system rule has one for `qps` and another for the rest, and is two to JavaScript.
    pub(crate) status: u16,
    /// The length of the window, of a rule that counts passes in one.
    pub(crate) interval_ms: Option<u64>,
}

impl<'a> RuleInfo<&'a RuleId, &'a str> {
    pub(crate) fn of_policy(policy: &Policy<'a>) -> Self {
        RuleInfo {
            id: policy.id,
            unit: policy.rule.unit(),
            cause: "flow",
            status: RefusalKind::Limited.status(),
            interval_ms: interval_ms(policy.rule),
        }
    }

    /// The rule that refuses, and its count, if it has one.
    pub(crate) fn of_refusal(blocked: &'a Blocked) -> (Self, Option<Count>) {
        let (cause, rule) = (blocked.cause(), blocked.cause().flow_rule());
        let info = RuleInfo {
            id: blocked.id(),
            unit: rule.map_or(REQUESTS, FlowRule::unit),
            cause: cause.name(),
            status: cause.kind().status(),
            interval_ms: rule.and_then(interval_ms),
        };
        (info, rule.map(|rule| rule.count()))
    }

    pub(crate) fn is(&self, known: &RuleInfo) -> bool {
        self.cause == known.cause && self.status == known.status && *self.id == known.id
    }

    pub(crate) fn owned(self) -> RuleInfo {
        RuleInfo {
            id: self.id.clone(),
            unit: self.unit.into(),
            cause: self.cause,
            status: self.status,
            interval_ms: self.interval_ms,
        }
    }
}

fn interval_ms(rule: &FlowRule) -> Option<u64> {
    match rule.grade() {
        Grade::Qps { window, .. } => Some(window.window().interval_ms()),
        Grade::Concurrency => None,
    }
}

/// What the rules of a resource count, each unit once: requests first.
pub(crate) fn units(resource: &Resource<LateSeed>) -> Rc<[Box<str>]> {
    let mut units: Vec<Box<str>> = vec![REQUESTS.into()];
    for rule in resource.flow_rules() {
        if units.iter().all(|known| **known != *rule.unit()) {
            units.push(rule.unit().into());
        }
    }
    units.into()
}

/// Whether a rule knows the cost of a request only when it ends.
pub(crate) fn holds(resource: &Resource<LateSeed>) -> bool {
    resource.flow_rules().any(|rule| rule.cost().is_some())
}

/// Whether a rule needs to know how calls end.
pub(crate) fn needs_exit(resource: &Resource<LateSeed>) -> bool {
    let counts_calls = |rule: &FlowRule| rule.grade() == Grade::Concurrency;
    resource.has_breakers() || resource.flow_rules().any(counts_calls)
}

/// How long a pass counts at most in the windows of these rules.
pub(crate) fn memory<'a>(rules: impl Iterator<Item = &'a FlowRule>) -> Duration {
    let window = |rule: &FlowRule| match rule.grade() {
        Grade::Qps { window, .. } => {
            let window = window.window();
            window.interval() + window.bucket_length()
        }
        Grade::Concurrency => Duration::ZERO,
    };
    rules.map(window).max().unwrap_or_default()
}

pub(crate) fn longest_memory(rules: &Rules) -> Duration {
    let sentinels = rules.param_flow.iter().chain(&rules.gateway_flow);
    memory(rules.flow.iter().chain(sentinels))
}

/// How a rule has decided since it began. What it does not count is `None`.
#[derive(Default)]
pub(crate) struct RuleReport<'a> {
    /// The kind of rule: empty for flow rules.
    pub(crate) kind: &'static str,
    pub(crate) rule: &'a str,
    /// The resource that the rule names; empty for all together.
    pub(crate) target: &'a str,
    /// The resource and the origin, where the rule is for each of them apart; else empty.
    pub(crate) resource: &'a str,
    pub(crate) origin: &'a str,
    pub(crate) passed: Option<u64>,
    pub(crate) waited: Option<u64>,
    pub(crate) blocked: u64,
    pub(crate) shadow_blocked: u64,
    /// What was charged to states that keys share.
    pub(crate) shared: Option<u64>,
    /// What was decided by the rule's own count because the request did not bring one along.
    pub(crate) defaulted: Option<u64>,
    /// How much more requests have cost than they held.
    pub(crate) debt: Option<u64>,
    /// The calls in flight, under a limit on them without a key.
    pub(crate) in_flight: Option<u64>,
    /// How full its limit is, where a time has been given: 1 is full.
    pub(crate) part: Option<f64>,
    /// The states of its keys.
    pub(crate) keys: Option<&'a KeyedWindows>,
    /// Whether these are turns, in nanoseconds.
    pub(crate) takes_turns: bool,
}

impl<'a> RuleReport<'a> {
    fn of_state(key: &'a StateKey) -> RuleReport<'a> {
        RuleReport {
            rule: key.rule.as_str(),
            target: key.target.0.as_str(),
            resource: key.resource.as_deref().unwrap_or_default(),
            origin: key.origin.as_deref().unwrap_or_default(),
            takes_turns: key.behavior == ControlBehavior::Throttle,
            ..RuleReport::default()
        }
    }
}

/// Reports each rule, in no particular order; twice where a state has been replaced while calls are in flight, or authority rules
/// share an id.
/// With a time `now`, how full their limits are is looked up, too.
pub(crate) fn for_each_rule(
    engine: &Engine<LateSeed>,
    now: Option<Timestamp>,
    each: &mut dyn FnMut(&RuleReport<'_>),
) {
    engine.store().for_each_unkeyed(|key, state| {
        let counts_calls = key.grade == Grade::Concurrency;
        each(&RuleReport {
            in_flight: counts_calls.then(|| state.counter().reserved()),
            part: now.map(|now| state.utilization(now)),
            passed: Some(state.passed()),
            waited: Some(state.waited()),
            blocked: state.blocked(),
            shadow_blocked: state.shadow_blocked(),
            debt: Some(state.debt()),
            ..RuleReport::of_state(key)
        });
    });
    let keyed = |key: &StateKey, state: &KeyedController<KeyedWindows>| {
        let report = RuleReport::of_state(key);
        each(&RuleReport {
            part: now.map(|now| state.utilization(report.takes_turns, now)),
            passed: Some(state.passed()),
            waited: Some(state.waited()),
            blocked: state.blocked(),
            shadow_blocked: state.shadow_blocked(),
            shared: Some(state.states().shared()),
            defaulted: Some(state.defaulted()),
            debt: Some(state.debt()),
            keys: Some(state.states()),
            ..report
        });
    };
    engine.store().for_each_keyed(keyed);
    engine.for_each_precheck(|report| {
        each(&RuleReport {
            kind: report.kind,
            rule: report.id.as_str(),
            target: report.resource.unwrap_or_default(),
            blocked: report.blocked,
            shadow_blocked: report.shadow_blocked,
            ..RuleReport::default()
        });
    });
}
