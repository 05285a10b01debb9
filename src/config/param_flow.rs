//! Sentinel's limits on the values of a parameter, in a document.

use super::cluster;
use super::key::behavior;
use super::key_part::index;
use super::parts::{
    compat, is_concurrency, mode, name_error, number_error, refuse_pattern, rule_id,
};
use super::value::{ConfigError, Fields, Located};
use crate::rule::{
    ControlBehavior, Count, FlowRule, KeyItem, KeyPart, KeyedBy, MaxQueueing, RuleError, WarmUp,
};
use crate::window::Window;

const KEYS: [&str; 15] = [
    "id",
    "resource",
    "count",
    "grade",
    "paramIdx",
    "controlBehavior",
    "maxQueueingTimeMs",
    "burstCount",
    "durationInSec",
    "paramFlowItemList",
    "mode",
    "compat",
    "regex",
    // Sentinel's, without a meaning here.
    "limitApp",
    "hotItems",
];

const ITEM_KEYS: [&str; 3] = ["object", "count", "classType"];

const MAX_SECONDS: u64 = Window::MAX_INTERVAL_MS / 1000;

/// The names and defaults of fields that Sentinel's two kinds of rules with a key share.
pub(super) struct Names {
    pub(super) seconds: &'static str,
    pub(super) burst: &'static str,
    pub(super) max_queueing: &'static str,
    pub(super) max_queueing_ms: u64,
}

const NAMES: Names = Names {
    seconds: "durationInSec",
    burst: "burstCount",
    max_queueing: "maxQueueingTimeMs",
    max_queueing_ms: 0,
};

pub(super) fn rule(at: &Located<'_>) -> Result<FlowRule, ConfigError> {
    let fields = at.rule(&KEYS)?;
    refuse_pattern(&fields)?;
    let part = KeyPart::Arg(index(&fields.need("paramIdx")?)?);
    let by =
        KeyedBy::new([part]).map_err(|error| ConfigError::from_display(at.to_string(), &error))?;
    let items = match fields.get("paramFlowItemList") {
        Some(items) => items.list(item)?,
        None => Vec::new(),
    };
    let by = by
        .with_items(items)
        .map_err(|error| ConfigError::from_display(at.to_string(), &error))?;
    limit(at, &fields, &NAMES, Some(by))
}

/// One of Sentinel's rules with a key, or without one.
pub(super) fn limit(
    at: &Located<'_>,
    fields: &Fields<'_>,
    names: &Names,
    by: Option<KeyedBy>,
) -> Result<FlowRule, ConfigError> {
    let at_rule = |error: RuleError| ConfigError::from_display(at.to_string(), &error);
    let (resource, count) = (fields.need("resource")?, fields.need("count")?);
    let number = count.number()?;
    Count::new(number).map_err(|error| number_error(&count, &error))?;
    let integer = |key, range, default| match fields.get(key) {
        Some(given) => given.integer(range),
        None => Ok(default),
    };
    let burst = integer(names.burst, 0..=Count::MAX as u64, 0)?;
    let seconds = integer(names.seconds, 1..=MAX_SECONDS, 1)?;
    let longest = 0..=MaxQueueing::MAX_MS.into();
    let max_queueing = integer(names.max_queueing, longest, names.max_queueing_ms)?;
    let behavior = behavior(fields)?;
    let is_concurrency = is_concurrency(fields)?;
    // A rule without a key has no bursts: they are added to its count.
    let number = match (&by, behavior) {
        (None, ControlBehavior::Reject) if number > 0.0 && !is_concurrency => {
            (number + burst as f64).min(Count::MAX)
        }
        _ => number,
    };
    let mut rule = FlowRule::new(resource.string()?, number).map_err(|_| name_error(&resource))?;
    rule.id = rule_id(fields)?;
    rule.mode = mode(fields)?;
    rule.cluster = cluster::read(fields)?;
    if let Some(by) = by {
        rule.set_key(by.with_burst(burst)).map_err(at_rule)?;
    }
    match is_concurrency {
        true => rule.set_concurrency(),
        false => rule.set_window(seconds * 1000, None).map_err(at_rule)?,
    }
    if behavior == ControlBehavior::Throttle {
        let max_queueing = MaxQueueing::from_millis(max_queueing).unwrap_or_default();
        rule.set_behavior(behavior, WarmUp::default(), max_queueing);
    }
    if compat(fields)? && rule.keyed_by().is_some() {
        rule.set_sentinel();
    }
    Ok(rule)
}

fn item(at: &Located<'_>) -> Result<KeyItem, ConfigError> {
    let fields = at.object(&ITEM_KEYS)?;
    let (object, at_count) = (fields.need("object")?, fields.need("count")?);
    let count = Count::new(at_count.number()?).map_err(|error| number_error(&at_count, &error))?;
    let class = match fields.get("classType") {
        Some(class) => class.string()?,
        None => "",
    };
    let value = value(&object, class.rsplit('.').next().unwrap_or(class))?;
    Ok(KeyItem {
        values: [Some(value)].into(),
        count,
    })
}

/// A value of that class as text, as a caller passes it. Sentinel: `ParamFlowRuleUtil.parseItemValue`.
fn value(at: &Located<'_>, class: &str) -> Result<Box<str>, ConfigError> {
    let text = at.string()?;
    let not_a = |what: &str| at.error(&format!("is not a {what}; use one, or another `classType`"));
    Ok(match class.to_ascii_lowercase().as_str() {
        "int" | "integer" | "long" | "short" | "byte" => {
            let number: i64 = text.parse().map_err(|_| not_a("whole number"))?;
            number.to_string().into()
        }
        // Java writes whole numbers with `.0`, and other languages without.
        "double" | "float" => text.strip_suffix(".0").unwrap_or(text).into(),
        "boolean" if text.eq_ignore_ascii_case("true") => "true".into(),
        "boolean" => "false".into(),
        _ => text.into(),
    })
}
