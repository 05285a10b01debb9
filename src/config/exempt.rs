//! Exempt requests in a document.

use super::key::network;
use super::key_part::named;
use super::value::{ConfigError, Located};
use crate::rule::{Exempt, Exemption, MAX_EXEMPTIONS, MAX_NAME};

const KEYS: [&str; 4] = ["clientIp", "header", "origin", "value"];

/// Reads a list of exemptions: `{"clientIp": "10.0.0.0/8"}`, `{"header": "x-probe", "value": "1"}`, `{"origin": "batch"}`.
///
/// # Errors
///
/// The first thing that is wrong in it.
pub fn read_exempt(at: &Located<'_>) -> Result<Exempt, ConfigError> {
    Exempt::new(at.list(exemption)?).map_err(|_| {
        at.error(&format!(
            "has too many exemptions; use at most {MAX_EXEMPTIONS}"
        ))
    })
}

fn exemption(at: &Located<'_>) -> Result<Exemption, ConfigError> {
    let fields = at.object(&KEYS)?;
    let given = |key| fields.get(key);
    let value = given("value");
    let exemption = match (given("clientIp"), given("header"), given("origin")) {
        (Some(client), None, None) => Exemption::ClientIp(network(&client)?),
        (None, Some(header), None) => {
            let name = named(&header)?.to_ascii_lowercase().into();
            let value = match &value {
                Some(value) => Some(value_of(value)?.into()),
                None => None,
            };
            return Ok(Exemption::Header { name, value });
        }
        (None, None, Some(origin)) => Exemption::Origin(named(&origin)?.into()),
        _ => {
            return Err(
                at.error("is not an exemption; use one of `clientIp`, `header` and `origin`")
            );
        }
    };
    match value {
        Some(value) => Err(value.error("goes only with a `header`; leave it out")),
        None => Ok(exemption),
    }
}

/// The value of a header. An empty one is the same as none.
fn value_of<'a>(at: &Located<'a>) -> Result<&'a str, ConfigError> {
    let value = at.string()?;
    if value.is_empty() || value.len() > MAX_NAME {
        return Err(at.error(&format!(
            "is not a valid value; use 1 to {MAX_NAME} bytes, or leave it out for any value"
        )));
    }
    Ok(value)
}
