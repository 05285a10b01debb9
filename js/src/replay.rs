//! A replay from what JavaScript hands over.

use crate::seed::LateSeed;
use leapgate::config::Value;
use leapgate_cli::leapgate_envoy::config::parse_value;
use leapgate_cli::replay::{Format, Options};

/// A replay whose counts are kept as those of engines, so that the module has the code that decides once. The hash of its keys has no
/// secret: the same log makes the same report.
pub(crate) type Replay = leapgate_cli::replay::Replay<LateSeed>;

/// The replay of `[document, fields, routes]`: the rules; where values stand in lines, or null; pairs of a path and a resource.
pub(crate) fn made(given: &Value) -> Result<Replay, String> {
    let Value::Array(given) = given else {
        return Err("a replay has a document and options".into());
    };
    let (rules, settings) =
        parse_value(given.first().unwrap_or(&Value::Null)).map_err(|error| error.to_string())?;
    let mut options = Options::default();
    if let Some(Value::String(fields)) = given.get(1) {
        let format = Format::of_fields(fields);
        options.format = Some(format.map_err(|error| format!("fields: {error}"))?);
    }
    if let Some(Value::Array(pairs)) = given.get(2) {
        let routes = pairs.iter().filter_map(|pair| match pair {
            Value::Array(pair) => match pair.as_slice() {
                [Value::String(path), Value::String(name)] => Some((path.clone(), name.clone())),
                _ => None,
            },
            _ => None,
        });
        options.routes = routes.collect();
    }
    Replay::with_backend(LateSeed::default(), rules, settings, options)
        .map_err(|error| error.to_string())
}

/// The report as JSON.
pub(crate) fn report(replay: Option<Replay>) -> Result<String, String> {
    let report = replay.ok_or("no replay has begun")?.finish()?;
    serde_json::to_string(&report).map_err(|error| error.to_string())
}
