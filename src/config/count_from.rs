//! The count of a rule in a document: a number, or a place in a request.

use super::key_part::{part_fields, part_of};
use super::parts::number_error;
use super::value::{ConfigError, Located, Value};
use crate::rule::{Count, CountFrom, KeyPart};

/// The parts of a request that a client chooses, or that are no count.
const CHOSEN: [&str; 5] = ["clientIp", "header", "query", "cookie", "arg"];

/// The rule's own count, and where requests bring theirs along.
pub(super) fn read(at: &Located<'_>) -> Result<(Count, Option<CountFrom>), ConfigError> {
    if !matches!(at.value(), Value::Object(_)) {
        return Ok((count(at)?, None));
    }
    let fields = part_fields(at, &["default", "atMost"])?;
    if let Some((_, chosen)) = fields.first(&CHOSEN) {
        return Err(chosen.error("is not a safe source of a count, since clients choose it; use `metadata`, `typedMetadata`, `routeMetadata` or `jwtClaim`"));
    }
    let KeyPart::Attribute(attribute) = part_of(at, &fields, true)? else {
        return Err(at.error("is not a count; use a number"));
    };
    let default = fields.need("default")?;
    let own = count(&default)?;
    let mut from = CountFrom::new(attribute);
    if let Some(at_most) = fields.get("atMost") {
        let most = count(&at_most)?;
        if own > most {
            return Err(default.error("is above `atMost`; use a lower one, or raise `atMost`"));
        }
        from = from.at_most(most);
    }
    Ok((own, Some(from)))
}

fn count(at: &Located<'_>) -> Result<Count, ConfigError> {
    Count::new(at.number()?).map_err(|error| number_error(at, &error))
}
