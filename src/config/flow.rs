//! Flow rules in a document.

use super::cost;
use super::count_from;
use super::exempt::read_exempt;
use super::key;
use super::parts::{
    BEHAVIORS, as_sentinel, compat, counting, geometry, is_concurrency, is_number, mode,
    name_error, refuse_pattern, rule_id, window_error,
};
use super::value::{ConfigError, Fields, Located, Value};
use crate::rule::{ControlBehavior, FlowRule, LimitApp, MaxQueueing, WarmUp};

const KEYS: [&str; 25] = [
    "id",
    "resource",
    "count",
    "intervalMs",
    "sampleCount",
    "window",
    "grade",
    "controlBehavior",
    "warmUpPeriodSec",
    "coldFactor",
    "maxQueueingTimeMs",
    "limitApp",
    "strategy",
    "refResource",
    "key",
    "keyItems",
    "maxKeys",
    "burst",
    "enforcePercent",
    "exempt",
    "unit",
    "cost",
    "mode",
    "compat",
    "regex",
];

pub(super) fn rule(at: &Located<'_>) -> Result<FlowRule, ConfigError> {
    let fields = at.rule(&KEYS)?;
    refuse_pattern(&fields)?;
    let (resource, count) = (fields.need("resource")?, fields.need("count")?);
    let name = resource.string()?;
    let (own, from) = count_from::read(&count)?;
    let mut rule = FlowRule::new(name, own.get()).map_err(|_| name_error(&resource))?;
    if let Some(id) = rule_id(&fields)? {
        rule = rule.with_id(id);
    }
    rule = with_strategy(rule, &fields)?;
    let is_keyed = fields.get("key").is_some();
    if from.is_some() && !is_keyed {
        return Err(count.error("means nothing without a `key`; add one, or use a number"));
    }
    rule = key::with_key(rule, from, &fields)?;
    if let Some(limit_app) = fields.get("limitApp") {
        let name = limit_app.string()?;
        // Sentinel's blank name means all origins.
        let name = if name.is_empty() { "default" } else { name };
        rule = rule.for_origin(LimitApp::new(name).map_err(|_| name_error(&limit_app))?);
    }
    if let Some(exempt) = fields.get("exempt") {
        rule = rule.exempting(read_exempt(&exempt)?);
    }
    rule = rule.in_mode(mode(&fields)?);
    let concurrency = is_concurrency(&fields)?;
    let compat = compat(&fields)?;
    let behavior = behavior(concurrency, &fields)?;
    if is_keyed {
        key::goes_with(concurrency, behavior, &fields)?;
    }
    rule = match (concurrency, compat && !is_keyed) {
        (true, _) => without_window(rule, &fields)?,
        (false, true) => rule,
        (false, false) => with_window(rule, at, &fields)?,
    };
    rule = with_behavior(rule, behavior, &fields)?;
    if compat && let Some(cost) = fields.get("cost") {
        return Err(cost.error("does not go with `compat`; leave one of the two out"));
    }
    rule = cost::with_cost(rule, concurrency, &fields)?;
    if !compat {
        return Ok(rule);
    }
    if is_keyed {
        return Ok(rule.sentinel());
    }
    as_sentinel(
        &fields,
        &[
            ("window", Value::String("sentinel".into())),
            ("intervalMs", Value::Number(1000.0)),
            ("sampleCount", Value::Number(2.0)),
        ],
    )?;
    Ok(rule.sentinel())
}

fn with_strategy(rule: FlowRule, fields: &Fields<'_>) -> Result<FlowRule, ConfigError> {
    let strategies = [
        ("direct", None),
        ("relate", Some(true)),
        ("chain", Some(false)),
    ];
    let strategy = fields.get("strategy");
    let chosen = match &strategy {
        Some(strategy) => strategy
            .one_of_numbered(&strategies)?
            .map(|relates| (relates, strategy)),
        None => None,
    };
    let reference = match fields.get("refResource") {
        Some(reference) => Some((reference.string()?, reference)),
        None => None,
    };
    match (chosen, reference.filter(|(name, _)| !name.is_empty())) {
        (None, None) => Ok(rule),
        (None, Some(_)) if is_number(strategy.as_ref()) => Ok(rule),
        (None, Some((_, reference))) => Err(reference.error(
            "means nothing to `direct`; use the `strategy` `relate` or `chain`, or leave it out",
        )),
        (Some((_, strategy)), None) => Err(strategy.error("needs a `refResource`; add it")),
        (Some((relates, _)), Some((name, reference))) => {
            let rule = if relates {
                rule.relate(name)
            } else {
                rule.chain(name)
            };
            rule.map_err(|_| name_error(&reference))
        }
    }
}

/// What happens at the threshold. Sentinel's limits on concurrency ignore it.
fn behavior(concurrency: bool, fields: &Fields<'_>) -> Result<ControlBehavior, ConfigError> {
    let Some(behavior) = fields.get("controlBehavior") else {
        return Ok(ControlBehavior::Reject);
    };
    match behavior.one_of_numbered(&BEHAVIORS)? {
        ControlBehavior::Reject => Ok(ControlBehavior::Reject),
        _ if concurrency && is_number(Some(&behavior)) => Ok(ControlBehavior::Reject),
        _ if concurrency => {
            Err(behavior.error("means nothing to a limit on concurrency; leave it out"))
        }
        chosen => Ok(chosen),
    }
}

fn with_behavior(
    rule: FlowRule,
    behavior: ControlBehavior,
    fields: &Fields<'_>,
) -> Result<FlowRule, ConfigError> {
    let (warms_up, throttles) = match behavior {
        ControlBehavior::Reject => (false, false),
        ControlBehavior::WarmUp => (true, false),
        ControlBehavior::Throttle => (false, true),
        ControlBehavior::WarmUpThrottle => (true, true),
    };
    let name = BEHAVIORS.iter().find(|(_, known)| *known == behavior);
    let name = name.map_or("", |(name, _)| name);
    // A whole number; its default if it is left out or the behaviour does not use it.
    let field = |key, used: bool, least: u64, most: u32, default: u64| {
        let Some(given) = fields.get(key) else {
            return Ok(default);
        };
        match given.integer(if used { least } else { 0 }..=most.into())? {
            value if used || value == default => Ok(value),
            _ if is_number(fields.get("controlBehavior").as_ref()) => Ok(default),
            _ => Err(given.error(&format!("means nothing to `{name}`; leave it out"))),
        }
    };
    let default = WarmUp::default();
    let (period, factor) = (default.period_sec().into(), default.cold_factor().into());
    let period = field("warmUpPeriodSec", warms_up, 1, WarmUp::MAX, period)?;
    let factor = field("coldFactor", warms_up, 2, WarmUp::MAX, factor)?;
    let millis = MaxQueueing::default().as_millis();
    let millis = field(
        "maxQueueingTimeMs",
        throttles,
        0,
        MaxQueueing::MAX_MS,
        millis,
    )?;
    if throttles {
        let window = ["window", "sampleCount"].into_iter();
        if let Some(given) = window.filter_map(|key| fields.get(key)).next() {
            let fault = format!("means nothing to `{name}`; leave it out");
            return Err(given.error(&fault));
        }
    }
    // Both are in range.
    let warm_up = WarmUp::new(period as u32, factor as u32).unwrap_or_default();
    let max_queueing = MaxQueueing::from_millis(millis).unwrap_or_default();
    Ok(match behavior {
        ControlBehavior::Reject => rule,
        ControlBehavior::WarmUp => rule.warm_up(warm_up),
        ControlBehavior::Throttle => rule.throttle(max_queueing),
        ControlBehavior::WarmUpThrottle => rule.warm_up_throttle(warm_up, max_queueing),
    })
}

fn with_window(
    rule: FlowRule,
    at: &Located<'_>,
    fields: &Fields<'_>,
) -> Result<FlowRule, ConfigError> {
    let (interval_ms, sample_count) = geometry(fields, "intervalMs")?;
    let rule = rule
        .per(interval_ms, sample_count)
        .map_err(|error| window_error(at, fields, &error))?;
    Ok(match counting(fields)? {
        Some(counting) => rule.counting(counting),
        None => rule,
    })
}

fn without_window(rule: FlowRule, fields: &Fields<'_>) -> Result<FlowRule, ConfigError> {
    match ["window", "intervalMs", "sampleCount"]
        .into_iter()
        .find_map(|key| fields.get(key))
    {
        Some(given) => Err(given.error("means nothing to a limit on concurrency; leave it out")),
        None => Ok(rule.concurrency()),
    }
}
