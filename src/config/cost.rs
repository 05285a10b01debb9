//! What a rule counts, in a document: its unit, and a cost that is known only when a request ends.

use super::actual::actual;
use super::key_part::{names_part, part_fields, part_of};
use super::value::{ConfigError, Fields, Located, Value};
use crate::rule::{AtMost, Cost, Count, FlowRule, MAX_NAME, Ratio, RuleError, Unit, number_of};

const COST_KEYS: [&str; 3] = ["estimate", "actual", "missing"];
const ESTIMATE_KEYS: [&str; 2] = ["default", "atMost"];

/// The rule gets the unit and the cost that the fields describe.
pub(super) fn read_cost(
    rule: &mut FlowRule,
    concurrency: bool,
    fields: &Fields<'_>,
) -> Result<(), ConfigError> {
    if let Some(at) = fields.get("unit") {
        if concurrency {
            return Err(at.error("means nothing to a limit on concurrency; leave it out"));
        }
        rule.set_unit(Unit::new(at.string()?).map_err(|_| {
            at.error(&format!(
                "is not a valid unit; use 1 to {MAX_NAME} characters of printable ASCII"
            ))
        })?);
    }
    let Some(at) = fields.get("cost") else {
        return Ok(());
    };
    rule.set_cost(cost(&at)?).map_err(|error| match error {
        RuleError::NotHeld { what } => at.error(&format!(
            "does not go with `{what}`; leave one of the two out"
        )),
        error => ConfigError::from_display(at.to_string(), &error),
    })
}

fn cost(at: &Located<'_>) -> Result<Cost, ConfigError> {
    let fields = at.object(&COST_KEYS)?;
    let mut cost = Cost::at_end();
    if let Some(at) = fields.get("estimate") {
        estimate(&at, &mut cost)?;
    }
    cost.actual = actual(&fields)?;
    Ok(cost)
}

#[inline(never)]
fn estimate(at: &Located<'_>, cost: &mut Cost) -> Result<(), ConfigError> {
    let whole = |at: &Located<'_>| at.integer(1..=Count::MAX as u64).map(Some);
    if let Value::Number(_) = at.value() {
        cost.estimate = whole(at)?;
        return Ok(());
    }
    let fields = part_fields(at, &ESTIMATE_KEYS)?;
    if let Some(default) = fields.get("default") {
        cost.estimate = whole(&default)?;
    }
    if names_part(&fields) {
        cost.part = Some(part_of(at, &fields, true)?);
    }
    if let Some(most) = fields.get("atMost") {
        cost.at_most = Some(at_most(&most)?);
    }
    Ok(())
}

/// A number, or a share of the count: `"50%"`.
fn at_most(at: &Located<'_>) -> Result<AtMost, ConfigError> {
    let Value::String(text) = at.value() else {
        return Ok(AtMost::Amount(at.integer(1..=Count::MAX as u64)?));
    };
    let percent = text
        .strip_suffix('%')
        .and_then(|text| number_of(text.as_bytes()));
    let share = percent.map(|percent: f64| Ratio::new(percent / 100.0));
    match share {
        Some(Ok(share)) if share.get() > 0.0 => Ok(AtMost::Share(share)),
        _ => Err(at.error(
            "is not a share of the count; use one such as `50%`, above 0 and at most `100%`",
        )),
    }
}
