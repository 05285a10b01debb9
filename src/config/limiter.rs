//! The options of a `Limiter`.

use super::parts::{counting, geometry, number_error, rule_id, window_error};
use super::value::{ConfigError, Fields, Located, Value};
use crate::limiter::{Limit, Limiter, LimiterError};
use crate::rule::{Count, Counting, MAX_KEYS, RuleGeometry, RuleId, span};
use crate::window::Window;

/// How many keys have a window of their own unless the options say.
const DEFAULT_MAX_KEYS: usize = 100_000;

const LIMIT_KEYS: [&str; 5] = ["limit", "windowMs", "window", "sampleCount", "id"];
const KEYS: [&str; 8] = [
    "limit",
    "windowMs",
    "window",
    "sampleCount",
    "id",
    "limits",
    "maxKeys",
    // Read by the shell: the caller's clock.
    "now",
];

/// The options of a limiter, read and checked.
#[derive(Clone, PartialEq, Debug)]
pub struct LimiterOptions {
    /// The limits of a [`Limiter`].
    pub limits: Vec<Limit>,
    /// How many keys have a window of their own.
    pub max_keys: usize,
}

/// Reads the options of a [`Limiter`].
///
/// ```json
/// {
///   "limit": 100,
///   "windowMs": 60000,
///   "window": "strict",   // "sentinel", "weighted"
///   "sampleCount": 20,    // by default `RuleGeometry::covering`
///   "id": "60s",          // by default the length of the window
///   "maxKeys": 100000
/// }
/// ```
///
/// Or several limits, all of which must let a request pass: `{"limits": [{"limit": 10, "windowMs": 1000}, …]}`.
///
/// # Errors
///
/// The first error in it.
pub fn read_limiter(options: &Value) -> Result<LimiterOptions, ConfigError> {
    let at = Located::new("options", options);
    let fields = at.object(&KEYS)?;
    let limits = match fields.get("limits") {
        None => vec![limit(&at, &fields)?],
        Some(limits) => {
            if let Some(given) = LIMIT_KEYS.iter().find_map(|key| fields.get(key)) {
                return Err(given.error("stands beside `limits`; put it into one of them"));
            }
            let read = limits.list(|at| limit(at, &at.object(&LIMIT_KEYS)?))?;
            Limiter::check(&read).map_err(|error| match &error {
                LimiterError::LimitCount { .. } => {
                    ConfigError::from_display(limits.to_string(), &error)
                }
                LimiterError::SameId { index, .. } => {
                    ConfigError::from_display(format!("{limits}[{index}].id"), &error)
                }
            })?;
            read
        }
    };
    let max_keys = match fields.get("maxKeys") {
        Some(keys) => keys.integer(1..=MAX_KEYS as u64)? as usize,
        None => DEFAULT_MAX_KEYS,
    };
    Ok(LimiterOptions { limits, max_keys })
}

fn limit(at: &Located<'_>, fields: &Fields<'_>) -> Result<Limit, ConfigError> {
    let given = fields.need("limit")?;
    let count = Count::new(given.number()?).map_err(|error| number_error(&given, &error))?;
    let interval_ms = fields.need("windowMs")?;
    let interval_ms = interval_ms.integer(1..=Window::MAX_INTERVAL_MS)?;
    let (_, sample_count) = geometry(fields, "windowMs")?;
    let window = match sample_count {
        None => RuleGeometry::covering(interval_ms),
        Some(samples) => RuleGeometry::new(interval_ms, Some(samples)),
    };
    let window = window.map_err(|error| window_error(at, fields, &error))?;
    Ok(Limit {
        id: rule_id(fields)?.unwrap_or_else(|| RuleId::made_of(&span(interval_ms))),
        count,
        window,
        counting: counting(fields)?.unwrap_or(Counting::Strict),
    })
}
