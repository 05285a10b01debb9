//! A part of a request in a document: what keys are made of, and what other fields take from a request.

use super::parts::name_error;
use super::value::{ConfigError, Fields, Located, Value};
use crate::rule::{Attribute, AttributeSource, BAD_PATH, JWT_PAYLOAD, KeyPart, MAX_NAME};

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
const JWT_CLAIM: usize = 5;
const FILTER_STATE: usize = 9;

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
    fields.first(&PART_KEYS).is_some()
}

/// The part that the object `at` names by these fields of it. `is_number` says what values of metadata are if their `type` is
/// not given.
pub(super) fn part_of(
    at: &Located<'_>,
    fields: &Fields<'_>,
    is_number: bool,
) -> Result<KeyPart, ConfigError> {
    let Some((i, of)) = fields.only(&PART_KEYS[..NAMED_PARTS]) else {
        return Err(at.error("is not a part of a request; use one key"));
    };
    let is_claim = i == JWT_CLAIM;
    let is_metadata = (JWT_CLAIM..FILTER_STATE).contains(&i);
    for (key, has_it) in [("type", is_metadata), ("payload", is_claim)] {
        if let Some(given) = fields.get(key).filter(|_| !has_it) {
            let name = PART_KEYS.get(i).unwrap_or(&"");
            return Err(given.error(&["does not go with `", name, "`; leave it out"].concat()));
        }
    }
    let is_number = match fields.get("type") {
        Some(kind) => kind.one_of(&[("string", false), ("number", true)])?,
        None => is_number && is_metadata,
    };
    let source = match i {
        0 => {
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
        1 => return Ok(KeyPart::Header(named(&of)?.to_ascii_lowercase().into())),
        2 => return Ok(KeyPart::Query(named(&of)?.into())),
        3 => return Ok(KeyPart::Cookie(named(&of)?.into())),
        4 => return Ok(KeyPart::Arg(index(&of)?)),
        7 => AttributeSource::TypedMetadata,
        8 => AttributeSource::RouteMetadata,
        FILTER_STATE => AttributeSource::FilterState,
        _ => AttributeSource::Metadata,
    };
    // A claim has a path only if it is nested.
    let is_name = i == FILTER_STATE || is_claim && !matches!(of.value(), Value::Array(_));
    let path = match is_name {
        true => vec![of.string()?],
        false => path(&of)?,
    };
    let payload = match fields.get("payload") {
        Some(payload) => Some(named(&payload)?),
        None => is_claim.then_some(JWT_PAYLOAD),
    };
    let attribute = Attribute::at(source, payload, &path).ok_or_else(|| of.error(BAD_PATH))?;
    Ok(KeyPart::Attribute(match is_number {
        true => attribute.as_number(),
        false => attribute,
    }))
}

/// The names of a path.
pub(super) fn path<'a>(at: &'a Located<'_>) -> Result<Vec<&'a str>, ConfigError> {
    let mut path = Vec::new();
    for at in at.array()? {
        path.push(at.string()?);
    }
    Ok(path)
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
