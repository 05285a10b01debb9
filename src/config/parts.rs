//! What several kinds of rules have in a document.

use super::value::{ConfigError, Fields, Located, Value};
use crate::rule::{
    ControlBehavior, Count, Counting, MAX_NAME, MAX_SAMPLE_COUNT, Mode, RuleError, RuleId,
};
use crate::window::Window;

pub(super) const BEHAVIORS: [(&str, ControlBehavior); 4] = [
    ("reject", ControlBehavior::Reject),
    ("warmUp", ControlBehavior::WarmUp),
    ("throttle", ControlBehavior::Throttle),
    ("warmUpThrottle", ControlBehavior::WarmUpThrottle),
];
pub(super) const MODES: [(&str, Mode); 2] = [("enforce", Mode::Enforce), ("shadow", Mode::Shadow)];

/// Whether it is a number, as Sentinel writes it.
pub(super) fn is_number(at: Option<&Located<'_>>) -> bool {
    at.is_some_and(|at| matches!(at.value(), Value::Number(_)))
}

pub(super) fn is_concurrency(fields: &Fields<'_>) -> Result<bool, ConfigError> {
    match fields.get("grade") {
        Some(grade) => grade.one_of_numbered(&[("concurrency", true), ("qps", false)]),
        None => Ok(false),
    }
}

pub(super) fn mode(fields: &Fields<'_>) -> Result<Mode, ConfigError> {
    match fields.get("mode") {
        Some(mode) => mode.one_of(&MODES),
        None => Ok(Mode::default()),
    }
}

/// Whether the rule decides as Sentinel does.
pub(super) fn compat(fields: &Fields<'_>) -> Result<bool, ConfigError> {
    match fields.get("compat") {
        Some(compat) if !cfg!(feature = "sentinel") => {
            Err(compat.error("is not supported by this build; leave it out"))
        }
        Some(compat) => compat.one_of(&[("sentinel", true)]),
        None => Ok(false),
    }
}

/// Checks that these fields of a rule that decides as Sentinel does have no other values than `only`.
pub(super) fn as_sentinel(
    fields: &Fields<'_>,
    only: &[(&'static str, Value)],
) -> Result<(), ConfigError> {
    for (key, only) in only {
        if let Some(given) = fields.get(key).filter(|given| given.value() != only) {
            return Err(given.error(&format!(
                "does not go with `compat`; use `{}`, or leave it out",
                only.shown()
            )));
        }
    }
    Ok(())
}

/// Checks that the resource is a name: Sentinel's `regex` would make it a pattern, which is not supported.
pub(super) fn refuse_pattern(fields: &Fields<'_>) -> Result<(), ConfigError> {
    match fields.get("regex") {
        Some(regex) if regex.boolean()? => Err(regex.error(
            "is not supported; name each resource in a rule of its own, or all of them as `*`",
        )),
        _ => Ok(()),
    }
}

pub(super) fn rule_id(fields: &Fields<'_>) -> Result<Option<RuleId>, ConfigError> {
    let Some(at) = fields.get("id") else {
        return Ok(None);
    };
    let id = match at.value() {
        // Sentinel's dashboard numbers rules.
        Value::Number(_) => RuleId::new(&at.integer(0..=Count::MAX as u64)?.to_string()),
        _ => RuleId::new(at.string()?),
    };
    id.map(Some).map_err(|_| {
        at.error(&format!(
            "is not a valid id; use 1 to {MAX_NAME} characters of printable ASCII"
        ))
    })
}

pub(super) fn name_error(at: &Located<'_>) -> ConfigError {
    at.error(&format!("is not a valid name; use 1 to {MAX_NAME} bytes"))
}

/// The error for a number that is not a valid count or ratio.
pub(super) fn number_error(at: &Located<'_>, error: &RuleError) -> ConfigError {
    at.error(match error {
        RuleError::BadRatio { .. } => "is not a valid ratio; use a number from 0 to 1",
        _ => "is not a valid count; use a number from 0 to 9007199254740992",
    })
}

/// The length of a window, which stands under `key`, and its number of buckets.
pub(super) fn geometry<'a>(
    fields: &Fields<'a>,
    key: &'a str,
) -> Result<(u64, Option<u32>), ConfigError> {
    let interval_ms = match fields.get(key) {
        Some(interval) => interval.integer(1..=Window::MAX_INTERVAL_MS)?,
        None => 1000,
    };
    let sample_count = match fields.get("sampleCount") {
        Some(samples) => Some(samples.integer(1..=MAX_SAMPLE_COUNT.into())? as u32),
        None => None,
    };
    Ok((interval_ms, sample_count))
}

pub(super) fn window_error(
    at: &Located<'_>,
    fields: &Fields<'_>,
    error: &RuleError,
) -> ConfigError {
    let samples = fields.get("sampleCount");
    let at = samples.as_ref().unwrap_or(at);
    match error {
        RuleError::Window(error) => ConfigError::from_display(at.to_string(), error),
        _ => at.error("does not make a window; leave it out"),
    }
}

pub(super) fn counting(fields: &Fields<'_>) -> Result<Option<Counting>, ConfigError> {
    let countings = [
        ("strict", Counting::Strict),
        ("sentinel", Counting::Sentinel),
        ("weighted", Counting::Weighted),
    ];
    let window = fields.get("window");
    window.map(|at| at.one_of(&countings)).transpose()
}
