//! Flow rules in a document.

use super::cluster;
use super::cost;
use super::count_from;
use super::exempt::read_exempt;
use super::key;
use super::parts::{
    BEHAVIORS, as_sentinel, compat, counting, geometry, is_concurrency, is_number, mode,
    name_error, refuse_pattern, rule_id, window_error,
};
use super::value::{ConfigError, Fields, Located, Value};
use crate::rule::{ControlBehavior, CountFrom, FlowRule, LimitApp, MaxQueueing, Strategy, WarmUp};

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
    fill(&mut rule, at, &fields, &count, from)?;
    Ok(rule)
}

/// The rule gets all but its resource and its count.
#[inline(never)]
fn fill(
    rule: &mut FlowRule,
    at: &Located<'_>,
    fields: &Fields<'_>,
    count: &Located<'_>,
    from: Option<CountFrom>,
) -> Result<(), ConfigError> {
    rule.id = rule_id(fields)?;
    read_strategy(rule, fields)?;
    let is_keyed = fields.get("key").is_some();
    if from.is_some() && !is_keyed {
        return Err(count.error("means nothing without a `key`; add one, or use a number"));
    }
    key::read_key(rule, from, fields)?;
    if let Some(limit_app) = fields.get("limitApp") {
        let name = limit_app.string()?;
        // Sentinel's blank name means all origins.
        let name = if name.is_empty() { "default" } else { name };
        rule.limit_app = LimitApp::new(name).map_err(|_| name_error(&limit_app))?;
    }
    if let Some(exempt) = fields.get("exempt") {
        rule.set_exempt(read_exempt(&exempt)?);
    }
    rule.mode = mode(fields)?;
    rule.cluster = cluster::read(fields)?;
    let concurrency = is_concurrency(fields)?;
    let compat = compat(fields)?;
    let behavior = behavior(concurrency, fields)?;
    if is_keyed {
        key::goes_with(concurrency, behavior, fields)?;
    }
    match (concurrency, compat && !is_keyed) {
        (true, _) => refuse_window(rule, fields)?,
        (false, true) => {}
        (false, false) => read_window(rule, at, fields)?,
    }
    read_behavior(rule, behavior, fields)?;
    if compat && let Some(cost) = fields.get("cost") {
        return Err(cost.error("does not go with `compat`; leave one of the two out"));
    }
    cost::read_cost(rule, concurrency, fields)?;
    if !compat {
        return Ok(());
    }
    if !is_keyed {
        as_sentinel(
            fields,
            &[
                ("window", Value::String("sentinel".into())),
                ("intervalMs", Value::Number(1000.0)),
                ("sampleCount", Value::Number(2.0)),
            ],
        )?;
    }
    rule.set_sentinel();
    Ok(())
}

fn read_strategy(rule: &mut FlowRule, fields: &Fields<'_>) -> Result<(), ConfigError> {
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
        (None, None) => Ok(()),
        (None, Some(_)) if is_number(strategy.as_ref()) => Ok(()),
        (None, Some((_, reference))) => Err(reference.error(
            "means nothing to `direct`; use the `strategy` `relate` or `chain`, or leave it out",
        )),
        (Some((_, strategy)), None) => Err(strategy.error("needs a `refResource`; add it")),
        (Some((relates, _)), Some((name, reference))) => {
            let set = if relates {
                rule.set_strategy("relate", Strategy::Relate, name)
            } else {
                rule.set_strategy("chain", Strategy::Chain, name)
            };
            set.map_err(|_| name_error(&reference))
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

fn read_behavior(
    rule: &mut FlowRule,
    behavior: ControlBehavior,
    fields: &Fields<'_>,
) -> Result<(), ConfigError> {
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
    if throttles && let Some((_, given)) = fields.first(&["window", "sampleCount"]) {
        let fault = format!("means nothing to `{name}`; leave it out");
        return Err(given.error(&fault));
    }
    // Both are in range.
    // Both are the default if the behaviour does not use them.
    let warm_up = WarmUp::new(period as u32, factor as u32).unwrap_or_default();
    let max_queueing = MaxQueueing::from_millis(millis).unwrap_or_default();
    if behavior != ControlBehavior::Reject {
        rule.set_behavior(behavior, warm_up, max_queueing);
    }
    Ok(())
}

fn read_window(
    rule: &mut FlowRule,
    at: &Located<'_>,
    fields: &Fields<'_>,
) -> Result<(), ConfigError> {
    let (interval_ms, sample_count) = geometry(fields, "intervalMs")?;
    rule.set_window(interval_ms, sample_count)
        .map_err(|error| window_error(at, fields, &error))?;
    if let Some(counting) = counting(fields)? {
        rule.set_counting(counting);
    }
    Ok(())
}

fn refuse_window(rule: &mut FlowRule, fields: &Fields<'_>) -> Result<(), ConfigError> {
    match fields.first(&["window", "intervalMs", "sampleCount"]) {
        Some((_, given)) => {
            Err(given.error("means nothing to a limit on concurrency; leave it out"))
        }
        None => {
            rule.set_concurrency();
            Ok(())
        }
    }
}
