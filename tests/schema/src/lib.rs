//! The readers of documents, and beside them `config.schema.json`: whatever the readers are asked about is asked of the schema, too. What
//! they accept it must accept, and what they refuse it must refuse, except for [`REASONS`].
//!
//! The crate stands in for `leapgate` and `leapgate_envoy` in their own tests, which `tests/` takes in as they are.

#![allow(clippy::unwrap_used, clippy::panic, reason = "it is a part of tests")]

pub use leapgate_core::*;
pub use leapgate_filter::*;
// Both have one.
pub use leapgate_core::backend;

use config::{ConfigError, Value};
use jsonschema::Validator;
use serde_json::Value as Json;
use settings::Settings;
use std::sync::LazyLock;

/// Why the readers refuse what the schema accepts: a part of their sentences, and a document of which it is true.
///
/// The first are of Envoy alone: the schema is for all shells. The others compare what a schema cannot compare: two places of a
/// document, or a text with a grammar. JSON Schema counts characters, and the readers count bytes.
pub static REASONS: LazyLock<Vec<(&str, String)>> = LazyLock::new(|| {
    let flow =
        |rule: &str| format!(r#"{{"flowRules": [{{"resource": "a", "count": 1, {rule}}}]}}"#);
    let exempt =
        |network: &str| format!(r#"{{"envoy": {{"exempt": [{{"clientIp": "{network}"}}]}}}}"#);
    let authority = |origins: &str| {
        format!(r#"{{"authorityRules": [{{"resource": "a", "limitApp": "{origins}"}}]}}"#)
    };
    let api = |item: &str| {
        format!(
            r#"{{"apiDefinitions": [{{"apiName": "a", "predicateItems": [{{"pattern": "/", {item}}}]}}]}}"#
        )
    };
    let headers = |from: usize, to: usize| {
        let headers = (from..to).map(|i| format!(r#""x{i}": true"#));
        headers.collect::<Vec<_>>().join(", ")
    };
    let many = (0..5).map(|i| {
        format!(
            r#"{{"pattern": "/", "headers": {{{}}}}}"#,
            headers(i * 13, i * 13 + 13)
        )
    });
    let many = many.collect::<Vec<_>>().join(", ");
    let reasons = [
        (
            "which requests in Envoy do not have",
            r#"{"paramFlowRules": [{"resource": "a", "count": 1, "paramIdx": 0}]}"#.into(),
        ),
        (
            "is not known in Envoy",
            r#"{"systemRules": [{"highestSystemLoad": 2}]}"#.into(),
        ),
        (
            "never applies in Envoy",
            flow(r#""strategy": "chain", "refResource": "b""#),
        ),
        (
            "never applies where requests have no origin",
            flow(r#""limitApp": "shop""#),
        ),
        (
            "is given twice",
            flow(r#""key": [{"header": "a"}, {"header": "A"}]"#),
        ),
        (
            "is the name of an earlier API",
            r#"{"apiDefinitions": [{"apiName": "a"}, {"apiName": "a"}]}"#.into(),
        ),
        ("does not divide the", flow(r#""sampleCount": 7"#)),
        (
            "does not go with the key",
            flow(r#""key": ["path", "host"], "keyItems": [{"value": "a", "count": 2}]"#),
        ),
        (
            "is above `atMost`",
            r#"{"flowRules": [{"resource": "a", "key": ["path"], "count": {"metadata": ["a", "b"], "default": 3, "atMost": 2}}]}"#.into(),
        ),
        (
            "is narrower than the networks that the key tells apart",
            flow(r#""key": [{"clientIp": {"v4": 24}}], "keyItems": [{"value": "10.0.0.0/25", "count": 2}]"#),
        ),
        (
            "is a network, which goes only with a key of `clientIp` alone",
            flow(r#""key": ["clientIp", "path"], "keyItems": [{"value": ["10.0.0.0/8", "a"], "count": 2}]"#),
        ),
        (
            "is not an IP address",
            flow(r#""key": ["clientIp"], "keyItems": [{"value": "office", "count": 2}]"#),
        ),
        ("is not a network", exempt("1.2.3")),
        ("has no such prefix", exempt("10.0.0.0/33")),
        ("has bits behind its prefix", exempt("10.0.0.1/8")),
        (
            "is IPv4 in the notation of IPv6",
            exempt("::ffff:10.0.0.0/104"),
        ),
        (
            "is not a valid regular expression",
            api(r#""matchStrategy": "regex", "host": "a""#).replace(r#""/""#, r#""(""#),
        ),
        (
            "is one condition too many",
            api(&format!(r#""method": "GET", "headers": {{{}}}"#, headers(0, 16))),
        ),
        (
            "is for one header or parameter too many",
            format!(r#"{{"apiDefinitions": [{{"apiName": "a", "predicateItems": [{many}]}}]}}"#),
        ),
        ("origins; use at most 10000", authority(&"a,".repeat(10_001))),
        ("is not a list of origins", authority(&"a".repeat(257))),
        (
            "is not a valid name; use 1 to 256 bytes",
            flow(&format!(r#""key": [{{"header": "{}"}}]"#, "é".repeat(129))),
        ),
        (
            "is written by the filter or by Envoy",
            r#"{"envoy": {"reply": {"headers": {"Retry-After": "1"}}}}"#.into(),
        ),
    ];
    reasons.into()
});

/// The schema.
pub static SCHEMA: LazyLock<Json> =
    LazyLock::new(|| serde_json::from_str(include_str!("../../../config.schema.json")).unwrap());

static VALIDATOR: LazyLock<Validator> = LazyLock::new(|| jsonschema::draft7::new(&SCHEMA).unwrap());

/// What is wrong with a document by the schema: nothing, or where and what.
///
/// # Errors
///
/// What is wrong with it.
pub fn by_schema(document: &Json) -> Result<(), String> {
    let error = |error| {
        format!(
            "{}: {error}",
            jsonschema::ValidationError::instance_path(&error)
        )
    };
    VALIDATOR.validate(document).map_err(error)
}

/// The tree of a document as the validator takes it. Of a key that is given twice the last value counts.
pub fn json(value: &Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Bool(value) => (*value).into(),
        Value::Number(number) => (*number).into(),
        Value::String(text) => text.as_str().into(),
        Value::Array(items) => items.iter().map(json).collect(),
        Value::Object(entries) => {
            let entries = entries
                .iter()
                .map(|(key, value)| (key.clone(), json(value)));
            Json::Object(entries.collect())
        }
    }
}

/// What the readers make of a document, wherever it is to be in force.
///
/// # Errors
///
/// The first error in it.
pub fn by_readers(document: &Value) -> Result<(Rules, Settings), ConfigError> {
    let document = leapgate_core::config::read(document)?;
    let settings = match document.envoy {
        Some(section) => {
            let section = format!(r#"{{"envoy": {}}}"#, json(section));
            leapgate_filter::config::parse(section.as_bytes())?.1
        }
        None => Settings::default(),
    };
    Ok((document.rules, settings))
}

/// Checks that the schema agrees with what the readers have said about a document.
///
/// # Panics
///
/// If it does not.
#[track_caller]
pub fn agrees(document: &Json, refused: Option<&ConfigError>) {
    let fault = match (refused.map(ToString::to_string), by_schema(document)) {
        (None, Err(error)) => format!("what the schema refuses is accepted: {error}"),
        (Some(error), Ok(())) if !REASONS.iter().any(|(reason, _)| error.contains(reason)) => {
            format!("what the schema accepts is refused: {error}")
        }
        _ => return,
    };
    let document: String = document.to_string().chars().take(900).collect();
    panic!("{fault:.500}\n{document}");
}

/// The readers.
pub mod config {
    pub use leapgate_core::config::*;

    use super::{Rules, Settings, agrees, json};

    /// `leapgate::config::read`, which does not read the section `envoy`.
    #[track_caller]
    pub fn read(document: &Value) -> Result<Document<'_>, ConfigError> {
        let read = leapgate_core::config::read(document);
        let mut document = json(document);
        if let Some(entries) = document.as_object_mut() {
            entries.remove("envoy");
        }
        agrees(&document, read.as_ref().err());
        read
    }

    /// `leapgate_envoy::config::parse`.
    #[track_caller]
    pub fn parse(text: &[u8]) -> Result<(Rules, Settings), ConfigError> {
        let parsed = leapgate_filter::config::parse(text);
        if let Ok(document) = Value::from_json(text) {
            agrees(&json(&document), parsed.as_ref().err());
        }
        parsed
    }
}
