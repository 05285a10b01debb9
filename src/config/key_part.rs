//! A part of a request in a document: what keys are made of, and what other fields take from a request.

use super::parts::name_error;
use super::value::{ConfigError, Fields, Located, Value};
use crate::rule::{Attribute, AttributeSource, JWT_PAYLOAD, KeyPart, MAX_NAME, RuleError};

const PARTS: [(&str, KeyPart); 5] = [
    ("clientIp", KeyPart::CLIENT_IP),
    ("path", KeyPart::Path),
    ("method", KeyPart::Method),
    ("host", KeyPart::Host),
    ("peer", KeyPart::Peer),
];

/// The keys of an object that names a part: one of the first [`NAMED_PARTS`], and what the part needs besides.
const PART_KEYS: [&str; NAMED_PARTS + 2] = [
    "clientIp",
    "header",
    "query",
    "cookie",
    "arg",
    "jwtClaim",
    "metadata",
    "typedMetadata",
    "routeMetadata",
    "filterState",
    "payload",
    "type",
];

const NAMED_PARTS: usize = 10;

const PREFIX_KEYS: [&str; 2] = ["v4", "v6"];

/// The part of a request that a value names: a string, or an object of one part, whose value is text unless its `type` says
/// otherwise.
///
/// # Errors
///
/// If it names none.
pub fn read_part(at: &Located<'_>) -> Result<KeyPart, ConfigError> {
    let Value::String(name) = at.value() else {
        return part_of(at, &part_fields(at, &[])?, false);
    };
    let part = PARTS.iter().find(|(known, _)| known == name);
    part.map(|(_, part)| part.clone()).ok_or_else(|| {
        at.error("is not a part of a request; use `clientIp`, `path`, `method`, `host`, `peer`, or an object: `{\"header\": \"x-api-key\"}`")
    })
}

/// The fields of an object that names a part and may have `more` keys.
pub(super) fn part_fields<'b>(
    at: &'b Located<'_>,
    more: &'b [&'b str],
) -> Result<Fields<'b>, ConfigError> {
    at.known([&PART_KEYS, more])
}

/// Whether an object with these fields names a part.
pub(super) fn names_part(fields: &Fields<'_>) -> bool {
    PART_KEYS.iter().any(|key| fields.get(key).is_some())
}

/// The part that the object `at` names by these fields of it. `is_number` says what values of metadata are if their `type` is
/// not given.
pub(super) fn part_of(
    at: &Located<'_>,
    fields: &Fields<'_>,
    is_number: bool,
) -> Result<KeyPart, ConfigError> {
    let names = PART_KEYS.iter().take(NAMED_PARTS);
    let mut given = names.filter_map(|name| fields.get(name).map(|at| (*name, at)));
    let (Some((name, of)), None) = (given.next(), given.next()) else {
        return Err(at.error("is not a part of a request; use one key"));
    };
    let is_metadata = ["jwtClaim", "metadata", "typedMetadata", "routeMetadata"].contains(&name);
    for (key, goes_with_it) in [("type", is_metadata), ("payload", name == "jwtClaim")] {
        if let Some(given) = fields.get(key).filter(|_| !goes_with_it) {
            return Err(given.error(&format!("does not go with `{name}`; leave it out")));
        }
    }
    let is_number = match fields.get("type") {
        Some(kind) => kind.one_of(&[("string", false), ("number", true)])?,
        None => is_number,
    };
    let source = match name {
        "clientIp" => {
            let lengths = of.object(&PREFIX_KEYS)?;
            let length = |key, most: u8, default: u8| match lengths.get(key) {
                Some(length) => Ok(length.integer(0..=most.into())? as u8),
                None => Ok(default),
            };
            return Ok(KeyPart::ClientIp {
                v4: length("v4", 32, 32)?,
                v6: length("v6", 128, 64)?,
            });
        }
        "header" => return Ok(KeyPart::Header(named(&of)?.to_ascii_lowercase().into())),
        "query" => return Ok(KeyPart::Query(named(&of)?.into())),
        "cookie" => return Ok(KeyPart::Cookie(named(&of)?.into())),
        "arg" => return Ok(KeyPart::Arg(index(&of)?)),
        "typedMetadata" => AttributeSource::TypedMetadata,
        "routeMetadata" => AttributeSource::RouteMetadata,
        "filterState" => AttributeSource::FilterState,
        _ => AttributeSource::Metadata,
    };
    let is_claim = name == "jwtClaim";
    // A claim has a path only if it is nested.
    let is_name = source == AttributeSource::FilterState
        || is_claim && !matches!(of.value(), Value::Array(_));
    let names = match is_name {
        true => vec![name_in_path(&of)?],
        false => path(&of)?,
    };
    let attribute = match fields.get("payload") {
        Some(payload) => Attribute::jwt_claim(name_in_path(&payload)?, &names),
        None if is_claim => Attribute::jwt_claim(JWT_PAYLOAD, &names),
        None => Attribute::new(source, &names),
    };
    match attribute {
        Ok(attribute) if is_number => Ok(KeyPart::Attribute(attribute.as_number())),
        Ok(attribute) => Ok(KeyPart::Attribute(attribute)),
        Err(RuleError::BadPath { least, most, .. }) => {
            let fault = format!("is not a valid path; use {least} to {most} names");
            Err(of.error(&fault))
        }
        Err(error) => Err(ConfigError::from_display(of.to_string(), &error)),
    }
}

/// The names of a path.
fn path<'a>(at: &'a Located<'_>) -> Result<Vec<&'a str>, ConfigError> {
    let mut names = Vec::new();
    for at in at.array()? {
        names.push(name_in_path(&at)?);
    }
    Ok(names)
}

/// A name in a path, which Envoy separates from the next one by a zero byte.
fn name_in_path<'a>(at: &Located<'a>) -> Result<&'a str, ConfigError> {
    let name = named(at)?;
    if name.contains('\0') {
        return Err(at.error("is not a valid name; leave out the zero byte"));
    }
    Ok(name)
}

/// The name of a header, a parameter or a cookie.
pub(super) fn named<'a>(at: &Located<'a>) -> Result<&'a str, ConfigError> {
    let name = at.string()?;
    if name.is_empty() || name.len() > MAX_NAME {
        return Err(name_error(at));
    }
    Ok(name)
}

/// The index of a value that the caller passes.
pub(super) fn index(at: &Located<'_>) -> Result<i32, ConfigError> {
    let number = at.number()?;
    if number.trunc() == number && number.abs() <= f64::from(i32::MAX) {
        return Ok(number as i32);
    }
    let most = i32::MAX;
    Err(at.error(&format!(
        "is not possible; use a whole number from -{most} to {most}"
    )))
}
