//! Where the actual cost of a request is read, in a document.

use super::key_part::named;
use super::value::{ConfigError, Fields, Located, Value};
use crate::rule::{
    Actual, Attribute, AttributeSource, BAD_PATH, CostSource, MAX_STATUSES, MAX_WEIGHT, Missing,
    Statuses, Weights,
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
    let names = ACTUAL_KEYS.iter().take(SOURCES);
    let mut given = names.filter_map(|name| fields.get(name).map(|at| (*name, at)));
    let (Some((name, of)), None) = (given.next(), given.next()) else {
        return Err(at.error(
            "does not name one source; use one of `metadata`, `typedMetadata`, `header`, `trailer`, `bytes`, `status`",
        ));
    };
    let weights = fields.get("weights");
    let source = match name {
        "metadata" => AttributeSource::Metadata,
        "typedMetadata" => AttributeSource::TypedMetadata,
        _ => {
            if let Some(weights) = weights {
                let fault = format!("does not go with `{name}`; leave it out");
                return Err(weights.error(&fault));
            }
            return Ok(match name {
                "header" => Actual::of(vec![CostSource::Header(header(&of)?)]),
                "trailer" => Actual::of(vec![CostSource::Trailer(header(&of)?)]),
                "bytes" => Actual::of(bytes(&of)?),
                _ => Actual::listed(read_statuses(&of)?),
            });
        }
    };
    let mut path = Vec::new();
    for name in of.array()? {
        path.push(name.string()?);
    }
    let (actual, fault) = match weights {
        None => {
            let attribute = Attribute::at(source, None, &path).map(Attribute::as_number);
            let source = attribute.map(CostSource::Attribute);
            (source.map(|source| Actual::of(vec![source])), BAD_PATH)
        }
        Some(weights) => (
            Actual::weighted_at(source, path, weights_of(&weights)?),
            "is not a valid path; use 1 to 6 names of 1 to 256 bytes without a zero byte",
        ),
    };
    actual.ok_or_else(|| of.error(fault))
}

fn weights_of(at: &Located<'_>) -> Result<Weights, ConfigError> {
    let fields = at.object(&WEIGHT_KEYS)?;
    let weight = |key| match fields.get(key) {
        Some(at) => match at.number()? {
            weight if (0.0..=MAX_WEIGHT).contains(&weight) => Ok(Some(weight)),
            _ => Err(at.error("is not a valid weight; use a number from 0 to 1000000")),
        },
        None => Ok(None),
    };
    let weights = Weights {
        input: weight("input")?,
        cached: weight("cached")?,
        output: weight("output")?,
    };
    if weights == Weights::default() {
        return Err(at.error("weighs nothing; use `input`, `cached` or `output`"));
    }
    Ok(weights)
}

fn header(at: &Located<'_>) -> Result<Box<str>, ConfigError> {
    Ok(named(at)?.to_ascii_lowercase().into())
}

fn bytes(at: &Located<'_>) -> Result<Vec<CostSource>, ConfigError> {
    let (received, sent) = (CostSource::BytesReceived, CostSource::BytesSent);
    Ok(
        match at.one_of(&[("received", 0), ("sent", 1), ("total", 2)])? {
            0 => vec![received],
            1 => vec![sent],
            _ => vec![received, sent],
        },
    )
}

/// A list of statuses: numbers, as text or not, and classes of them, `5xx` and `4xx`.
///
/// # Errors
///
/// If it is not an array of such statuses, or has too many of them.
pub fn read_statuses(at: &Located<'_>) -> Result<Statuses, ConfigError> {
    let mut statuses = Vec::new();
    for status in at.array()? {
        if statuses.len() == MAX_STATUSES {
            let fault = format!("is one status too many; use at most {MAX_STATUSES}");
            return Err(status.error(&fault));
        }
        let code = match status.value() {
            Value::String(text) => match (&**text, text.parse()) {
                ("4xx", _) => {
                    statuses.push(400..=499);
                    continue;
                }
                ("5xx", _) => {
                    statuses.push(500..=599);
                    continue;
                }
                (_, Ok(code @ 200..=599)) => code,
                _ => {
                    return Err(status.error("is not a valid status; use `5xx`, `4xx` or a number"));
                }
            },
            _ => status.integer(200..=599)?,
        };
        statuses.push(code..=code);
    }
    Statuses::new(statuses).map_err(|error| ConfigError::from_display(at.to_string(), &error))
}
