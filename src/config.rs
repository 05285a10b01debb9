//! Rules from a document: a JSON text ([`Value::from_json`]), or a tree that a shell fills by itself.
//!
//! Keys are Sentinel's, so that rules carried over from it load unchanged; so are numbers where it writes numbers
//! (`"grade": 1`). What is unknown, given twice, of the wrong type or impossible is refused, and with it the whole document:
//! a [`ConfigError`] is one sentence with the path, the value and the cure.
//!
//! ```json
//! {
//!   "flowRules": [{
//!     "resource": "login",       // "*": each resource that no other flow rule names, on its own window
//!     "count": 100,
//!     "id": "login-burst",       // by default made of the resource and of what differs from the defaults
//!     "intervalMs": 1000,
//!     "sampleCount": 100,        // by default the interval's largest divisor up to 100
//!     "window": "strict",        // "sentinel", "weighted"
//!     "grade": "qps",            // or 1; "concurrency" or 0, which has no window
//!     "controlBehavior": "reject",
//!     "limitApp": "default",     // "other", or an origin
//!     "strategy": "direct",
//!     "refResource": null,
//!     "mode": "enforce",         // "shadow": decide and count, let through
//!     "compat": null             // "sentinel": window "sentinel", 2 buckets in 1000 ms
//!   }],
//!   "mode": "enforce",           // "shadow": no rule refuses
//!   "envoy": {}                  // the filter's own settings
//! }
//! ```
//!
//! A key that may be left out may be `null`. Accepted, whatever the value, since they mean nothing here: Sentinel's
//! `clusterMode`, `clusterConfig`, `gmtCreate`, `gmtModified`, `app`, `ip`, `port`.

#[cfg(feature = "json")]
mod json;
mod value;

#[cfg(feature = "json")]
pub use json::MAX_DOCUMENT;
pub use value::{At, ConfigError, Fields, Value};

use crate::engine::RulesError;
use crate::rule::{
    Count, Counting, FlowRule, LimitApp, MAX_NAME, MAX_SAMPLE_COUNT, Mode, RuleError, RuleId, Rules,
};
use crate::window::Window;
use value::DOCUMENT;

/// What a document says.
#[derive(Clone, Debug)]
pub struct Document<'a> {
    /// The rules.
    pub rules: Rules,
    /// The section `envoy`, unread: the filter's own settings.
    pub envoy: Option<&'a Value>,
}

const KEYS: [&str; 3] = ["flowRules", "mode", "envoy"];

const FLOW_RULE_KEYS: [&str; 20] = [
    "id",
    "resource",
    "count",
    "intervalMs",
    "sampleCount",
    "window",
    "grade",
    "controlBehavior",
    "limitApp",
    "strategy",
    "refResource",
    "mode",
    "compat",
    // Sentinel's, without a meaning here.
    "clusterMode",
    "clusterConfig",
    "gmtCreate",
    "gmtModified",
    "app",
    "ip",
    "port",
];

const MODES: [(&str, Mode); 2] = [("enforce", Mode::Enforce), ("shadow", Mode::Shadow)];

/// Reads a document.
///
/// Rules that are right each by itself may still not go together: an [`Engine`](crate::Engine) says so, and
/// [`ConfigError::from_rules`] says where.
///
/// # Errors
///
/// The first thing that is wrong in it.
pub fn read(document: &Value) -> Result<Document<'_>, ConfigError> {
    let at = At::new(DOCUMENT, document);
    if let Value::Array(_) = document {
        return Err(at.wrong("is an array; put it in an object, under `flowRules`"));
    }
    let fields = at.object(&KEYS)?;
    let mut rules = Rules::default();
    if let Some(mode) = fields.get("mode") {
        rules.mode = mode.one_of(&MODES)?;
    }
    if let Some(flow_rules) = fields.get("flowRules") {
        for rule in flow_rules.array()? {
            rules.flow.push(flow_rule(&rule)?);
        }
    }
    Ok(Document {
        rules,
        envoy: value::find(document, "envoy").filter(|envoy| **envoy != Value::Null),
    })
}

fn flow_rule(at: &At<'_>) -> Result<FlowRule, ConfigError> {
    let fields = at.object(&FLOW_RULE_KEYS)?;
    let (resource, count) = (fields.need("resource")?, fields.need("count")?);
    let mut rule =
        FlowRule::new(resource.string()?, count.number()?).map_err(|error| match error {
            RuleError::BadCount { .. } => {
                count.wrong("is no count; use a number from 0 to 9007199254740992")
            }
            _ => no_name(&resource),
        })?;
    if let Some(id) = fields.get("id") {
        rule = rule.with_id(rule_id(&id)?);
    }
    if let Some(behavior) = fields.get("controlBehavior") {
        behavior.one_of_numbered(&[("reject", ())])?;
    }
    if let Some(strategy) = fields.get("strategy") {
        strategy.one_of_numbered(&[("direct", ())])?;
    }
    if let Some(reference) = fields.get("refResource")
        && !reference.string()?.is_empty()
    {
        return Err(reference.wrong("is not available; leave it out"));
    }
    if let Some(limit_app) = fields.get("limitApp") {
        let name = limit_app.string()?;
        // Sentinel's blank one is everybody.
        let name = if name.is_empty() { "default" } else { name };
        rule = rule.for_origin(LimitApp::new(name).map_err(|_| no_name(&limit_app))?);
    }
    if let Some(mode) = fields.get("mode") {
        rule = rule.in_mode(mode.one_of(&MODES)?);
    }
    let concurrency = match fields.get("grade") {
        Some(grade) => grade.one_of_numbered(&[("concurrency", true), ("qps", false)])?,
        None => false,
    };
    let compat = match fields.get("compat") {
        Some(compat) => compat.one_of(&[("sentinel", true)])?,
        None => false,
    };
    rule = match (concurrency, compat) {
        (true, _) => without_window(rule, &fields)?,
        (false, true) => rule,
        (false, false) => with_window(rule, at, &fields)?,
    };
    if compat {
        as_sentinel(rule, &fields)
    } else {
        Ok(rule)
    }
}

fn rule_id(at: &At<'_>) -> Result<RuleId, ConfigError> {
    let id = match at.value() {
        // Sentinel's dashboard numbers rules.
        Value::Number(_) => RuleId::new(&at.integer(0..=Count::MAX as u64)?.to_string()),
        _ => RuleId::new(at.string()?),
    };
    id.map_err(|_| {
        at.wrong(&format!(
            "is no id; use 1 to {MAX_NAME} characters of printable ASCII"
        ))
    })
}

fn no_name(at: &At<'_>) -> ConfigError {
    at.wrong(&format!("is no name; use 1 to {MAX_NAME} bytes"))
}

fn with_window(rule: FlowRule, at: &At<'_>, fields: &Fields<'_>) -> Result<FlowRule, ConfigError> {
    let interval_ms = match fields.get("intervalMs") {
        Some(interval) => interval.integer(1..=Window::MAX_INTERVAL_MS)?,
        None => 1000,
    };
    let samples = fields.get("sampleCount");
    let sample_count = match samples {
        Some(samples) => Some(samples.integer(1..=MAX_SAMPLE_COUNT.into())? as u32),
        None => None,
    };
    let rule = rule.per(interval_ms, sample_count).map_err(|error| {
        let at = samples.as_ref().unwrap_or(at);
        match error {
            RuleError::Window(error) => ConfigError::said(at.to_string(), &error),
            _ => at.wrong("makes no window; leave it out"),
        }
    })?;
    Ok(match fields.get("window") {
        Some(window) => rule.counting(window.one_of(&[
            ("strict", Counting::Strict),
            ("sentinel", Counting::Sentinel),
            ("weighted", Counting::Weighted),
        ])?),
        None => rule,
    })
}

fn without_window(rule: FlowRule, fields: &Fields<'_>) -> Result<FlowRule, ConfigError> {
    match ["window", "intervalMs", "sampleCount"]
        .into_iter()
        .find_map(|key| fields.get(key))
    {
        Some(given) => Err(given.wrong("means nothing to a limit on concurrency; leave it out")),
        None => Ok(rule.concurrency()),
    }
}

fn as_sentinel(rule: FlowRule, fields: &Fields<'_>) -> Result<FlowRule, ConfigError> {
    let window = [
        ("window", Value::String("sentinel".into())),
        ("intervalMs", Value::Number(1000.0)),
        ("sampleCount", Value::Number(2.0)),
    ];
    for (key, only) in &window {
        if let Some(given) = fields.get(key).filter(|given| given.value() != only) {
            return Err(given.wrong(&format!(
                "does not go with `compat`; use `{}`, or leave it out",
                only.shown()
            )));
        }
    }
    Ok(rule.sentinel())
}

impl ConfigError {
    /// Where in the document the rule is that does not go with the others.
    pub fn from_rules(error: &RulesError) -> ConfigError {
        let field = match error {
            RulesError::SameId { .. } => "id",
            RulesError::ManyRules { .. } => "resource",
        };
        ConfigError::said(format!("flowRules[{}].{field}", error.index()), error)
    }
}
