//! Where the actual cost of a request is read, in a document.

use super::key_part::{named, path};
use super::value::{ConfigError, Fields, Located, Value};
use crate::rule::{
    Actual, AttributeSource, BAD_PATH, CostSource, MAX_WEIGHT, Missing, Statuses, Weights,
    number_of,
};

/// The sources, of which an object names one, and what goes with metadata besides.
const ACTUAL_KEYS: [&str; SOURCES + 1] = [
    "metadata",
    "typedMetadata",
    "header",
    "trailer",
    "bytes",
    "status",
    "weights",
];

const SOURCES: usize = 6;

/// The first source that is not metadata.
const HEADER: usize = 2;

const WEIGHT_KEYS: [&str; 3] = ["input", "cached", "output"];

/// The fields `actual` and `missing` of a cost.
pub(super) fn actual(fields: &Fields<'_>) -> Result<Option<Actual>, ConfigError> {
    let missing = fields.get("missing");
    let Some(at) = fields.get("actual") else {
        return match missing {
            Some(missing) => {
                Err(missing.error("means nothing without an `actual`; add one, or leave it out"))
            }
            None => Ok(None),
        };
    };
    let actual = actual_of(&at)?;
    Ok(Some(match missing {
        Some(missing) => actual.or(substitute(&missing)?),
        None => actual,
    }))
}

fn substitute(at: &Located<'_>) -> Result<Missing, ConfigError> {
    match at.value() {
        Value::Number(0.0) => Ok(Missing::Zero),
        Value::String(name) if name == "estimate" => Ok(Missing::Estimate),
        Value::String(name) if name == "bytes" => Ok(Missing::Bytes),
        _ => Err(at.error("is not a valid value; use `estimate`, `bytes` or 0")),
    }
}

fn actual_of(at: &Located<'_>) -> Result<Actual, ConfigError> {
    let fields = at.object(&ACTUAL_KEYS)?;
    let Some((i, of)) = fields.only(&ACTUAL_KEYS[..SOURCES]) else {
        return Err(at.error(
            "does not name one source; use one of `metadata`, `typedMetadata`, `header`, `trailer`, `bytes`, `status`",
        ));
    };
    let weights = match fields.get("weights") {
        Some(given) if i >= HEADER => {
            return Err(given.error("goes with metadata alone; leave it out"));
        }
        Some(given) => Some(weights_of(&given)?),
        None => None,
    };
    let metadata = match i {
        0 => AttributeSource::Metadata,
        1 => AttributeSource::TypedMetadata,
        5 => return Ok(Actual::listed(read_statuses(&of)?)),
        _ => return Ok(Actual::of(sources(&of, i)?)),
    };
    let path = path(&of)?;
    let (actual, fault) = match weights {
        None => (Actual::at(metadata, &path), BAD_PATH),
        Some(weights) => (
            Actual::weighted_at(metadata, path, weights),
            "is not a valid path; use 1 to 6 names of 1 to 256 bytes without a zero byte",
        ),
    };
    actual.ok_or_else(|| of.error(fault))
}

/// A header, a trailer, or bytes.
fn sources(at: &Located<'_>, i: usize) -> Result<Vec<CostSource>, ConfigError> {
    let mut sources = Vec::with_capacity(2);
    if i == 4 {
        let which = at.one_of(&[
            ("received", Some(true)),
            ("sent", Some(false)),
            ("total", None),
        ])?;
        if which != Some(false) {
            sources.push(CostSource::BytesReceived);
        }
        if which != Some(true) {
            sources.push(CostSource::BytesSent);
        }
        return Ok(sources);
    }
    let name = named(at)?.to_ascii_lowercase().into();
    sources.push(match i {
        HEADER => CostSource::Header(name),
        _ => CostSource::Trailer(name),
    });
    Ok(sources)
}

fn weights_of(at: &Located<'_>) -> Result<Weights, ConfigError> {
    let fields = at.object(&WEIGHT_KEYS)?;
    let mut weights = [None; 3];
    for (weight, key) in weights.iter_mut().zip(WEIGHT_KEYS) {
        let Some(at) = fields.get(key) else { continue };
        *weight = Some(at.number()?);
        if !weight.is_some_and(|weight| (0.0..=MAX_WEIGHT).contains(&weight)) {
            return Err(at.error("is not a valid weight; use a number from 0 to 1000000"));
        }
    }
    if weights == [None; 3] {
        return Err(at.error("weighs nothing; use `input`, `cached` or `output`"));
    }
    let [input, cached, output] = weights;
    Ok(Weights {
        input,
        cached,
        output,
    })
}

/// A list of statuses: numbers, as text or not, and classes of them, `5xx` and `4xx`.
///
/// # Errors
///
/// If it is not an array of such statuses, or has too many of them.
pub fn read_statuses(at: &Located<'_>) -> Result<Statuses, ConfigError> {
    let statuses = at.list(|at| {
        let Value::String(text) = at.value() else {
            let code = at.integer(200..=599)? as u16;
            return Ok([code, code]);
        };
        match (&**text, number_of(text.as_bytes())) {
            ("4xx", _) => Ok([400, 499]),
            ("5xx", _) => Ok([500, 599]),
            (_, Some(code)) if (200.0..=599.0).contains(&code) && code.trunc() == code => {
                Ok([code as u16; 2])
            }
            _ => Err(at.error("is not a valid status; use `5xx`, `4xx` or a number")),
        }
    })?;
    let many = |_| at.error("has too many statuses; use at most 32");
    Statuses::new(statuses).map_err(many)
}
