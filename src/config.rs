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
//!     "controlBehavior": "reject",  // "warmUp", "throttle", "warmUpThrottle", or 0 to 3
//!     "warmUpPeriodSec": 10,     // where it warms up: how long that takes
//!     "coldFactor": 3,           // and which part of the count a cold rule admits
//!     "maxQueueingTimeMs": 500,  // where it throttles: how long a request may wait; 0: not at all
//!     "limitApp": "default",     // "other", or an origin
//!     "strategy": "direct",      // "relate", "chain", or 0 to 2
//!     "refResource": null,       // the resource that "relate" measures; the context that "chain" is for
//!     "key": ["clientIp"],       // each combination of values for itself; {"clientIp": {"v4": 24, "v6": 56}},
//!                                // {"header": "x-api-key"}, {"query": "user"}, {"cookie": "sid"}, "path", "method", "host",
//!                                // {"arg": 0}: a value that the caller hands in, below 0 counted from the end
//!     "keyItems": [{"value": "10.0.0.1", "count": 1000}],  // another count; of several parts [.., null], null: missing
//!     "maxKeys": 100000,         // how many keys are kept apart
//!     "burst": 0,                // added to the count of each key
//!     "mode": "enforce",         // "shadow": decide and count, let through
//!     "compat": null             // "sentinel": window "sentinel", 2 buckets in 1000 ms
//!   }],
//!   "paramFlowRules": [{         // Sentinel's: limits on the values of a parameter
//!     "resource": "search",
//!     "paramIdx": 0,             // which of the values that the caller hands in; below 0 counted from the end
//!     "count": 5,
//!     "grade": "qps",            // or 1; "concurrency" or 0
//!     "durationInSec": 1,        // the window
//!     "burstCount": 0,           // added to the count of each value
//!     "controlBehavior": "reject",  // or 0; "throttle" or 2
//!     "maxQueueingTimeMs": 0,    // where it throttles
//!     "paramFlowItemList": [{"object": "gold", "count": 100, "classType": "String"}],
//!     "id": "search-user",
//!     "mode": "enforce",
//!     "compat": null             // "sentinel": a missing value passes; turns in whole milliseconds
//!   }],
//!   "gatewayFlowRules": [{       // Sentinel's: limits on parts of a request that comes in by a gateway
//!     "resource": "route",
//!     "resourceMode": "route",   // or 0; "customApiName" or 1: it means nothing here
//!     "count": 5,
//!     "grade": "qps",            // or 1; "concurrency" or 0
//!     "intervalSec": 1,          // the window
//!     "burst": 0,                // added to the count of each value
//!     "controlBehavior": "reject",  // or 0; "throttle" or 2
//!     "maxQueueingTimeoutMs": 500,  // where it throttles
//!     "paramItem": {             // without one, all requests together
//!       "parseStrategy": "header",  // "clientIp", "host", "header", "urlParam", "cookie", or 0 to 4
//!       "fieldName": "X-Tier",   // of a header, a parameter or a cookie
//!       "pattern": "gold",       // only those values; without one, all
//!       "matchStrategy": "exact" // "prefix", "regex", "contains", or 0 to 3
//!     },
//!     "id": "tiers",
//!     "mode": "enforce",
//!     "compat": null             // "sentinel": a missing value passes; turns in whole milliseconds
//!   }],
//!   "degradeRules": [{
//!     "resource": "pay",         // "*": each that no other degrade rule names
//!     "grade": "slowRatio",      // or 0; "errorRatio" or 1, "errorCount" or 2
//!     "count": 200,              // the slowest call that is not slow, in ms; the ratio of errors; their number
//!     "slowRatioThreshold": 0.5, // of "slowRatio"; by default 1
//!     "timeWindow": 10,          // how many seconds the circuit stays broken
//!     "minRequestAmount": 5,     // fewer calls in the window break nothing
//!     "statIntervalMs": 1000,    // the window
//!     "sampleCount": 10,         // by default the interval's largest divisor up to 10
//!     "probes": 1,               // how many calls must then succeed
//!     "comparison": "above",     // "atLeast": the threshold itself is too much
//!     "id": "pay-slow",
//!     "mode": "enforce",
//!     "compat": null             // "sentinel": 1 bucket, 1 probe, "above"
//!   }],
//!   "systemRules": [{            // all inbound calls together
//!     "qps": 5000,               // a threshold that is negative is none
//!     "maxThread": 800,
//!     "avgRt": 300,
//!     "highestSystemLoad": 16,
//!     "highestCpuUsage": 0.9,    // from 0 to 1
//!     "bbr": false,              // true: no more in flight than the machine is estimated to work off
//!     "id": "all",
//!     "mode": "enforce",
//!     "compat": null             // "sentinel": "maxThread" does not count the call that asks
//!   }],
//!   "authorityRules": [{
//!     "resource": "admin",       // "*": each that no other authority rule names
//!     "limitApp": "ops,ci",      // origins
//!     "strategy": "white",       // or 0: only those; "black" or 1: all but those
//!     "id": "admins",
//!     "mode": "enforce"
//!   }],
//!   "mode": "enforce",           // "shadow": no rule refuses
//!   "envoy": {}                  // the filter's own settings
//! }
//! ```
//!
//! Where a behaviour or a strategy does not use a field, the field may stand there with its default; and with any value where
//! the behaviour or the strategy is a number: so Sentinel writes rules. (In `paramFlowRules` and `gatewayFlowRules`, in any
//! case.) The same goes for a numbered behaviour of a limit on
//! concurrency, and for a `slowRatioThreshold` where errors are counted.
//!
//! A key that may be left out may be `null`. Accepted, whatever the value, since they mean nothing here: Sentinel's
//! `clusterMode`, `clusterConfig`, `gmtCreate`, `gmtModified`, `app`, `ip`, `port`; `limitApp` of all rules but flow and authority rules;
//! `passCount`, `cut` and `rtSlowRequestAmount` of degrade rules, from before 1.8; and `resource` of system rules. Sentinel's
//! `regex`, of any rule, may be `false`.

mod authority;
mod degrade;
mod gateway;
#[cfg(feature = "json")]
mod json;
mod key;
mod limiter;
mod param_flow;
mod system;
mod value;

#[cfg(feature = "json")]
pub use json::MAX_DOCUMENT;
pub use limiter::{LimiterOptions, read_limiter};
pub use value::{At, ConfigError, Fields, Value};

use crate::rule::{
    ControlBehavior, Count, Counting, FlowRule, LimitApp, MAX_NAME, MAX_SAMPLE_COUNT, MaxQueueing,
    Mode, RuleError, RuleId, WarmUp,
};
use crate::rule::{Rules, RulesError};
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

const KEYS: [&str; 8] = [
    "flowRules",
    "paramFlowRules",
    "gatewayFlowRules",
    "degradeRules",
    "systemRules",
    "authorityRules",
    "mode",
    "envoy",
];

const FLOW_RULE_KEYS: [&str; 28] = [
    "id",
    "resource",
    "count",
    "intervalMs",
    "sampleCount",
    "window",
    "grade",
    "controlBehavior",
    "warmUpPeriodSec",
    "coldFactor",
    "maxQueueingTimeMs",
    "limitApp",
    "strategy",
    "refResource",
    "key",
    "keyItems",
    "maxKeys",
    "burst",
    "mode",
    "compat",
    "regex",
    // Sentinel's, without a meaning here.
    "clusterMode",
    "clusterConfig",
    "gmtCreate",
    "gmtModified",
    "app",
    "ip",
    "port",
];

const BEHAVIORS: [(&str, ControlBehavior); 4] = [
    ("reject", ControlBehavior::Reject),
    ("warmUp", ControlBehavior::WarmUp),
    ("throttle", ControlBehavior::Throttle),
    ("warmUpThrottle", ControlBehavior::WarmUpThrottle),
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
    Ok(Document {
        rules: Rules {
            mode: mode(&fields)?,
            flow: list(&fields, "flowRules", flow_rule)?,
            param_flow: list(&fields, "paramFlowRules", param_flow::rule)?,
            gateway_flow: list(&fields, "gatewayFlowRules", gateway::rule)?,
            degrade: list(&fields, "degradeRules", degrade::rule)?,
            system: list(&fields, "systemRules", system::rule)?,
            authority: list(&fields, "authorityRules", authority::rule)?,
        },
        envoy: value::find(document, "envoy").filter(|envoy| **envoy != Value::Null),
    })
}

fn list<'a, R>(
    fields: &Fields<'a>,
    key: &'a str,
    rule: impl Fn(&At<'_>) -> Result<R, ConfigError>,
) -> Result<Vec<R>, ConfigError> {
    match fields.get(key) {
        Some(rules) => rules.array()?.map(|at| rule(&at)).collect(),
        None => Ok(Vec::new()),
    }
}

fn flow_rule(at: &At<'_>) -> Result<FlowRule, ConfigError> {
    let fields = at.object(&FLOW_RULE_KEYS)?;
    no_pattern(&fields)?;
    let (resource, count) = (fields.need("resource")?, fields.need("count")?);
    let mut rule =
        FlowRule::new(resource.string()?, count.number()?).map_err(|error| match error {
            RuleError::BadCount { .. } => no_number(&count, &error),
            _ => no_name(&resource),
        })?;
    if let Some(id) = rule_id(&fields)? {
        rule = rule.with_id(id);
    }
    rule = with_strategy(rule, &fields)?;
    let is_keyed = fields.get("key").is_some();
    rule = key::with_key(rule, &fields)?;
    if let Some(limit_app) = fields.get("limitApp") {
        let name = limit_app.string()?;
        // Sentinel's blank one is everybody.
        let name = if name.is_empty() { "default" } else { name };
        rule = rule.for_origin(LimitApp::new(name).map_err(|_| no_name(&limit_app))?);
    }
    rule = rule.in_mode(mode(&fields)?);
    let concurrency = is_concurrency(&fields)?;
    let compat = compat(&fields)?;
    let behavior = behavior(concurrency, &fields)?;
    if is_keyed {
        key::goes_with(concurrency, behavior, &fields)?;
    }
    rule = match (concurrency, compat && !is_keyed) {
        (true, _) => without_window(rule, &fields)?,
        (false, true) => rule,
        (false, false) => with_window(rule, at, &fields)?,
    };
    rule = with_behavior(rule, behavior, &fields)?;
    if !compat {
        return Ok(rule);
    }
    if is_keyed {
        return Ok(rule.sentinel());
    }
    as_sentinel(
        &fields,
        &[
            ("window", Value::String("sentinel".into())),
            ("intervalMs", Value::Number(1000.0)),
            ("sampleCount", Value::Number(2.0)),
        ],
    )?;
    Ok(rule.sentinel())
}

fn with_strategy(rule: FlowRule, fields: &Fields<'_>) -> Result<FlowRule, ConfigError> {
    let strategies = [
        ("direct", None),
        ("relate", Some(true)),
        ("chain", Some(false)),
    ];
    let strategy = fields.get("strategy");
    let chosen = match &strategy {
        Some(strategy) => strategy
            .one_of_numbered(&strategies)?
            .map(|relates| (relates, strategy)),
        None => None,
    };
    let reference = match fields.get("refResource") {
        Some(reference) => Some((reference.string()?, reference)),
        None => None,
    };
    match (chosen, reference.filter(|(name, _)| !name.is_empty())) {
        (None, None) => Ok(rule),
        (None, Some(_)) if is_number(strategy.as_ref()) => Ok(rule),
        (None, Some((_, reference))) => Err(reference.wrong(
            "means nothing to `direct`; use the `strategy` `relate` or `chain`, or leave it out",
        )),
        (Some((_, strategy)), None) => Err(strategy.wrong("needs a `refResource`; add it")),
        (Some((relates, _)), Some((name, reference))) => {
            let rule = if relates {
                rule.relate(name)
            } else {
                rule.chain(name)
            };
            rule.map_err(|_| no_name(&reference))
        }
    }
}

/// Whether it is written as Sentinel writes it.
fn is_number(at: Option<&At<'_>>) -> bool {
    at.is_some_and(|at| matches!(at.value(), Value::Number(_)))
}

fn is_concurrency(fields: &Fields<'_>) -> Result<bool, ConfigError> {
    match fields.get("grade") {
        Some(grade) => grade.one_of_numbered(&[("concurrency", true), ("qps", false)]),
        None => Ok(false),
    }
}

/// What happens at the threshold. Sentinel's limits on concurrency do not look at it.
fn behavior(concurrency: bool, fields: &Fields<'_>) -> Result<ControlBehavior, ConfigError> {
    let Some(behavior) = fields.get("controlBehavior") else {
        return Ok(ControlBehavior::Reject);
    };
    match behavior.one_of_numbered(&BEHAVIORS)? {
        ControlBehavior::Reject => Ok(ControlBehavior::Reject),
        _ if concurrency && is_number(Some(&behavior)) => Ok(ControlBehavior::Reject),
        _ if concurrency => {
            Err(behavior.wrong("means nothing to a limit on concurrency; leave it out"))
        }
        chosen => Ok(chosen),
    }
}

fn with_behavior(
    rule: FlowRule,
    behavior: ControlBehavior,
    fields: &Fields<'_>,
) -> Result<FlowRule, ConfigError> {
    let (warms_up, throttles) = match behavior {
        ControlBehavior::Reject => (false, false),
        ControlBehavior::WarmUp => (true, false),
        ControlBehavior::Throttle => (false, true),
        ControlBehavior::WarmUpThrottle => (true, true),
    };
    let name = BEHAVIORS.iter().find(|(_, known)| *known == behavior);
    let name = name.map_or("", |(name, _)| name);
    // A whole number; its default where it is left out, or where the behaviour does not use it.
    let field = |key, used: bool, least: u64, most: u32, default: u64| {
        let Some(given) = fields.get(key) else {
            return Ok(default);
        };
        match given.integer(if used { least } else { 0 }..=most.into())? {
            value if used || value == default => Ok(value),
            _ if is_number(fields.get("controlBehavior").as_ref()) => Ok(default),
            _ => Err(given.wrong(&format!("means nothing to `{name}`; leave it out"))),
        }
    };
    let default = WarmUp::default();
    let (period, factor) = (default.period_sec().into(), default.cold_factor().into());
    let period = field("warmUpPeriodSec", warms_up, 1, WarmUp::MAX, period)?;
    let factor = field("coldFactor", warms_up, 2, WarmUp::MAX, factor)?;
    let millis = MaxQueueing::default().as_millis();
    let millis = field(
        "maxQueueingTimeMs",
        throttles,
        0,
        MaxQueueing::MAX_MS,
        millis,
    )?;
    if throttles {
        let window = ["window", "sampleCount"].into_iter();
        if let Some(given) = window.filter_map(|key| fields.get(key)).next() {
            let fault = format!("means nothing to `{name}`; leave it out");
            return Err(given.wrong(&fault));
        }
    }
    // Both are in range.
    let warm_up = WarmUp::new(period as u32, factor as u32).unwrap_or_default();
    let max_queueing = MaxQueueing::from_millis(millis).unwrap_or_default();
    Ok(match behavior {
        ControlBehavior::Reject => rule,
        ControlBehavior::WarmUp => rule.warm_up(warm_up),
        ControlBehavior::Throttle => rule.throttle(max_queueing),
        ControlBehavior::WarmUpThrottle => rule.warm_up_throttle(warm_up, max_queueing),
    })
}

fn mode(fields: &Fields<'_>) -> Result<Mode, ConfigError> {
    match fields.get("mode") {
        Some(mode) => mode.one_of(&MODES),
        None => Ok(Mode::default()),
    }
}

/// Whether the rule decides as Sentinel does.
fn compat(fields: &Fields<'_>) -> Result<bool, ConfigError> {
    match fields.get("compat") {
        Some(compat) => compat.one_of(&[("sentinel", true)]),
        None => Ok(false),
    }
}

/// That a rule which decides as Sentinel does has nothing else in these fields, where it has them.
fn as_sentinel(fields: &Fields<'_>, only: &[(&'static str, Value)]) -> Result<(), ConfigError> {
    for (key, only) in only {
        if let Some(given) = fields.get(key).filter(|given| given.value() != only) {
            return Err(given.wrong(&format!(
                "does not go with `compat`; use `{}`, or leave it out",
                only.shown()
            )));
        }
    }
    Ok(())
}

/// That the resource is a name: Sentinel's `regex` makes a pattern of it, which is not to be had here.
fn no_pattern(fields: &Fields<'_>) -> Result<(), ConfigError> {
    match fields.get("regex") {
        Some(regex) if regex.boolean()? => Err(regex.wrong(
            "is not available; name each resource in a rule of its own, or all of them as `*`",
        )),
        _ => Ok(()),
    }
}

fn rule_id(fields: &Fields<'_>) -> Result<Option<RuleId>, ConfigError> {
    let Some(at) = fields.get("id") else {
        return Ok(None);
    };
    let id = match at.value() {
        // Sentinel's dashboard numbers rules.
        Value::Number(_) => RuleId::new(&at.integer(0..=Count::MAX as u64)?.to_string()),
        _ => RuleId::new(at.string()?),
    };
    id.map(Some).map_err(|_| {
        at.wrong(&format!(
            "is no id; use 1 to {MAX_NAME} characters of printable ASCII"
        ))
    })
}

fn no_name(at: &At<'_>) -> ConfigError {
    at.wrong(&format!("is no name; use 1 to {MAX_NAME} bytes"))
}

/// What is no count, or no ratio.
fn no_number(at: &At<'_>, error: &RuleError) -> ConfigError {
    at.wrong(match error {
        RuleError::BadRatio { .. } => "is no ratio; use a number from 0 to 1",
        _ => "is no count; use a number from 0 to 9007199254740992",
    })
}

/// The length of a window, which `key` says, and its number of buckets.
fn geometry<'a>(fields: &Fields<'a>, key: &'a str) -> Result<(u64, Option<u32>), ConfigError> {
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

fn no_window(at: &At<'_>, fields: &Fields<'_>, error: &RuleError) -> ConfigError {
    let samples = fields.get("sampleCount");
    let at = samples.as_ref().unwrap_or(at);
    match error {
        RuleError::Window(error) => ConfigError::said(at.to_string(), error),
        _ => at.wrong("makes no window; leave it out"),
    }
}

fn with_window(rule: FlowRule, at: &At<'_>, fields: &Fields<'_>) -> Result<FlowRule, ConfigError> {
    let (interval_ms, sample_count) = geometry(fields, "intervalMs")?;
    let rule = rule
        .per(interval_ms, sample_count)
        .map_err(|error| no_window(at, fields, &error))?;
    Ok(match counting(fields)? {
        Some(counting) => rule.counting(counting),
        None => rule,
    })
}

fn counting(fields: &Fields<'_>) -> Result<Option<Counting>, ConfigError> {
    let countings = [
        ("strict", Counting::Strict),
        ("sentinel", Counting::Sentinel),
        ("weighted", Counting::Weighted),
    ];
    let window = fields.get("window");
    window.map(|at| at.one_of(&countings)).transpose()
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

impl ConfigError {
    /// Where in the document the rule is that does not go with the others.
    pub fn from_rules(error: &RulesError) -> ConfigError {
        let field = match error {
            RulesError::SameId { .. } => ".id",
            RulesError::ManyRules { .. } => ".resource",
            RulesError::ManySystemRules { .. } | RulesError::NoStatistics => "",
        };
        let (list, index) = error.place();
        ConfigError::said(format!("{list}[{index}]{field}"), error)
    }
}
