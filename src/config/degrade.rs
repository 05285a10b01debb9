//! Degrade rules in a document.

use super::parts::{
    as_sentinel, compat, geometry, is_number, mode, name_error, number_error, refuse_pattern,
    rule_id, window_error,
};
use super::value::{ConfigError, Fields, Located, Value};
use crate::rule::{Comparison, DegradeGrade, DegradeRule, MAX_PROBES};
use crate::rule::{Count, RuleError};
use crate::window::Window;

const KEYS: [&str; 18] = [
    "id",
    "resource",
    "grade",
    "count",
    "slowRatioThreshold",
    "timeWindow",
    "minRequestAmount",
    "statIntervalMs",
    "sampleCount",
    "probes",
    "comparison",
    "mode",
    "compat",
    "regex",
    // Sentinel's, without a meaning here.
    "passCount",
    "cut",
    "rtSlowRequestAmount",
    "limitApp",
];

/// Seconds, of which Sentinel has whole ones, to the millisecond.
fn time_window_ms(at: &Located<'_>) -> Result<u64, ConfigError> {
    let millis = (at.number()? * 1000.0).round();
    if (1.0..=Window::MAX_INTERVAL_MS as f64).contains(&millis) {
        return Ok(millis as u64);
    }
    let most = Window::MAX_INTERVAL_MS / 1000;
    Err(at.error(&format!(
        "is not possible; use a number of seconds from 0.001 to {most}"
    )))
}

pub(super) fn rule(at: &Located<'_>) -> Result<DegradeRule, ConfigError> {
    let fields = at.rule(&KEYS)?;
    refuse_pattern(&fields)?;
    let resource = fields.need("resource")?;
    let name = resource.string()?;
    let grade = grade(&fields)?;
    let millis = time_window_ms(&fields.need("timeWindow")?)?;
    // The time is in range, as is every number below.
    let mut rule = DegradeRule::new(name, grade, millis).map_err(|_| name_error(&resource))?;
    if let Some(id) = rule_id(&fields)? {
        rule = rule.with_id(id);
    }
    rule = rule.in_mode(mode(&fields)?);
    if compat(&fields)? {
        let only = [
            ("sampleCount", Value::Number(1.0)),
            ("probes", Value::Number(1.0)),
            ("comparison", Value::String("above".into())),
        ];
        as_sentinel(&fields, &only)?;
        rule = rule.sentinel();
    }
    let (interval_ms, sample_count) = geometry(&fields, "statIntervalMs")?;
    rule = rule
        .per(interval_ms, sample_count)
        .map_err(|error| window_error(at, &fields, &error))?;
    if let Some(least) = fields.get("minRequestAmount") {
        rule = rule
            .needing(least.integer(1..=Count::MAX as u64)?)
            .map_err(|error| number_error(&least, &error))?;
    }
    if let Some(probes) = fields.get("probes") {
        rule = rule
            .with_probes(probes.integer(1..=MAX_PROBES.into())? as u32)
            .map_err(|error| number_error(&probes, &error))?;
    }
    Ok(match fields.get("comparison") {
        Some(comparison) => rule.comparing(comparison.one_of(&[
            ("above", Comparison::Above),
            ("atLeast", Comparison::AtLeast),
        ])?),
        None => rule,
    })
}

fn grade(fields: &Fields<'_>) -> Result<DegradeGrade, ConfigError> {
    type OfErrors = fn(f64) -> Result<DegradeGrade, RuleError>;
    let grades: [(&str, Option<OfErrors>); 3] = [
        ("slowRatio", None),
        ("errorRatio", Some(DegradeGrade::error_ratio)),
        ("errorCount", Some(DegradeGrade::error_count)),
    ];
    let grade = fields.get("grade");
    let of_errors = match &grade {
        Some(grade) => grade.one_of_numbered(&grades)?,
        None => None,
    };
    let at = fields.need("count")?;
    let count = at.number()?;
    let slow = fields.get("slowRatioThreshold");
    let ratio = match &slow {
        Some(slow) => slow.number()?,
        None => 1.0,
    };
    match (of_errors, &slow) {
        (Some(_), Some(slow)) if ratio != 1.0 && !is_number(grade.as_ref()) => {
            Err(slow.error("means nothing to a grade of errors; leave it out"))
        }
        (Some(of_errors), _) => of_errors(count).map_err(|error| number_error(&at, &error)),
        (None, slow) => DegradeGrade::slow_ratio(count, ratio).map_err(|error| {
            let ratio = slow.filter(|_| matches!(error, RuleError::BadRatio { .. }));
            number_error(&ratio.unwrap_or(at), &error)
        }),
    }
}
