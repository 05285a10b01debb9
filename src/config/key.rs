//! The key of a rule in a document.

use super::key_part::read_part;
use super::parts::{BEHAVIORS, number_error};
use super::value::{ConfigError, Fields, Located, Value};
use crate::rule::{
    Cidr, ControlBehavior, Count, CountFrom, FlowRule, KeyItem, KeyPart, KeyedBy, MAX_KEY_PARTS,
    MAX_KEYS, Network, Ratio, RuleError,
};

const ITEM_KEYS: [&str; 2] = ["value", "count"];

/// The rule gets the key that the fields describe, if there is one, whose `count` its requests bring along.
pub(super) fn read_key(
    rule: &mut FlowRule,
    count: Option<CountFrom>,
    fields: &Fields<'_>,
) -> Result<(), ConfigError> {
    let Some(key) = fields.get("key") else {
        return match fields.first(&["keyItems", "maxKeys", "burst", "enforcePercent"]) {
            Some((_, given)) => {
                Err(given.error("means nothing without a `key`; add one, or leave it out"))
            }
            None => Ok(()),
        };
    };
    let mut by = keyed_by(&key, fields)?;
    if let Some(items) = fields.get("keyItems") {
        let items = items.list(|at| item(at, &by))?;
        // `item` has checked that each has as many values as there are parts.
        by = by
            .with_items(items)
            .map_err(|_| key.error("does not go with `keyItems`; use as many values as parts"))?;
    }
    if let Some(burst) = fields.get("burst") {
        by = by.with_burst(burst.integer(0..=Count::MAX as u64)?);
    }
    if let Some(at) = fields.get("enforcePercent") {
        let share = Ratio::new(at.number()? / 100.0);
        by = by.enforced_for(
            share.map_err(|_| at.error("is not a valid percentage; use a number from 0 to 100"))?,
        );
    }
    if let Some(count) = count {
        by = by.with_count_from(count);
    }
    // Its strategy may forbid it.
    let strategy = fields.get("strategy").unwrap_or(key);
    rule.set_key(by)
        .map_err(|error| ConfigError::from_display(strategy.to_string(), &error))
}

/// The parts of a `key`, and how many keys are kept apart.
pub(super) fn keyed_by(key: &Located<'_>, fields: &Fields<'_>) -> Result<KeyedBy, ConfigError> {
    let mut by = KeyedBy::new(key.list(read_part)?).map_err(|_| {
        key.error(&format!(
            "is not a valid key; use 1 to {MAX_KEY_PARTS} parts"
        ))
    })?;
    // Quadratic, but there are only a few parts.
    let parts = by.parts();
    if let Some(again) =
        (1..parts.len()).find(|i| parts.iter().take(*i).any(|p| parts.get(*i) == Some(p)))
    {
        let again = key.array()?.nth(again);
        let at = again.as_ref().unwrap_or(key);
        return Err(at.error("is given twice; keep one of the two"));
    }
    if let Some(max_keys) = fields.get("maxKeys") {
        let most = max_keys.integer(1..=MAX_KEYS as u64)? as usize;
        by = by
            .with_max_keys(most)
            .map_err(|error| number_error(&max_keys, &error))?;
    }
    Ok(by)
}

fn item(at: &Located<'_>, by: &KeyedBy) -> Result<KeyItem, ConfigError> {
    let fields = at.object(&ITEM_KEYS)?;
    let (value, at_count) = (fields.need("value")?, fields.need("count")?);
    let parts = by.parts();
    let values = match value.value() {
        Value::Array(_) => {
            let (values, wanted) = (value.array()?, parts.len());
            if values.len() != wanted {
                return Err(value.error(&format!(
                    "does not go with the key; use one value for each part, {wanted} in all"
                )));
            }
            let mut read = Vec::with_capacity(wanted);
            for (at, part) in values.zip(parts) {
                read.push(match at.value() {
                    Value::Null => None,
                    _ => Some(text(&at, part, wanted)?),
                });
            }
            read.into()
        }
        _ => match parts {
            [part] => [Some(text(&value, part, 1)?)].into(),
            parts => {
                let wanted = parts.len();
                return Err(value.error(&format!(
                    "does not go with the key; use an array of one value for each part, {wanted} in all"
                )));
            }
        },
    };
    let count = Count::new(at_count.number()?).map_err(|error| number_error(&at_count, &error))?;
    let item = KeyItem { values, count };
    by.network_of(&item)
        .map_err(|error| network_error(&value, &error))?;
    Ok(item)
}

/// A value of a part, of so many parts in all.
fn text(at: &Located<'_>, part: &KeyPart, parts: usize) -> Result<Box<str>, ConfigError> {
    let text = at.string()?;
    match part {
        KeyPart::ClientIp { .. } if text.contains('/') && parts == 1 => {
            network(at)?;
        }
        KeyPart::ClientIp { v4, v6 } if Network::of(text.as_bytes(), *v4, *v6).is_none() => {
            return Err(at.error(if text.contains('/') {
                "is a network, which goes only with a key of `clientIp` alone; use an address such as `10.0.0.1`"
            } else {
                "is not an IP address; use one such as `10.0.0.1`"
            }));
        }
        _ => {}
    }
    Ok(text.into())
}

/// A network of addresses.
pub(super) fn network(at: &Located<'_>) -> Result<Cidr, ConfigError> {
    Cidr::new(at.string()?).map_err(|error| network_error(at, &error))
}

fn network_error(at: &Located<'_>, error: &RuleError) -> ConfigError {
    at.error(match error {
        RuleError::BadCidr { fault, .. } => fault,
        _ => "is not a network; use one such as `10.0.0.0/8`",
    })
}

/// Checks that a flow rule with a key has a behaviour that goes with it.
pub(super) fn goes_with(
    concurrency: bool,
    behavior: ControlBehavior,
    fields: &Fields<'_>,
) -> Result<(), ConfigError> {
    match fields.get("burst") {
        Some(burst) if behavior.is_paced() && burst.number()? != 0.0 => {
            Err(burst.error("means nothing to `throttle`; leave it out"))
        }
        Some(burst) if concurrency && burst.number()? != 0.0 => {
            Err(burst.error("means nothing to a limit on concurrency; leave it out"))
        }
        _ => without_warm_up(behavior, fields),
    }
}

fn without_warm_up(behavior: ControlBehavior, fields: &Fields<'_>) -> Result<(), ConfigError> {
    let warms_up = matches!(
        behavior,
        ControlBehavior::WarmUp | ControlBehavior::WarmUpThrottle
    );
    match fields.get("controlBehavior") {
        Some(given) if warms_up => {
            Err(given.error("does not go with a `key`; use `reject` or `throttle`"))
        }
        _ => Ok(()),
    }
}

/// The behaviour of one of Sentinel's rules with a key: `reject` or `throttle`.
pub(super) fn behavior(fields: &Fields<'_>) -> Result<ControlBehavior, ConfigError> {
    let Some(given) = fields.get("controlBehavior") else {
        return Ok(ControlBehavior::Reject);
    };
    let behavior = given.one_of_numbered(&BEHAVIORS)?;
    without_warm_up(behavior, fields)?;
    Ok(behavior)
}
