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
//!     "count": 100,              // with a key: {"metadata": ["plans", "requests"], "default": 100, "atMost": 1000}
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
//!                                // "peer", {"jwtClaim": "sub", "payload": "jwt_payload"}, {"metadata": ["namespace", "key"]},
//!                                // {"typedMetadata": […]}, {"routeMetadata": […]}, {"filterState": "name"}; "type": "number",
//!                                // {"arg": 0}: a value that the caller hands in, below 0 counted from the end
//!     "keyItems": [{"value": "10.0.0.1", "count": 1000}],  // another count; of several parts [.., null], null: missing
//!     "maxKeys": 100000,         // how many keys are kept apart
//!     "burst": 0,                // added to the count of each key
//!     "enforcePercent": 100,     // the share of keys that is refused; for the others the rule is in shadow mode
//!     "exempt": [{"clientIp": "10.0.0.0/8"}],  // requests that are neither refused nor counted; {"origin": "batch"},
//!                                // {"header": "x-probe", "value": "1"}
//!     "clusterMode": false,      // true: as `clusterConfig` says
//!     "clusterConfig": {
//!       "thresholdType": 0,      // 1: one limit for all machines, where there is a store
//!       "flowId": null,          // the number that its count has there; by default the rule's id
//!       "fallbackToLocalWhenFail": null  // true: without the store a local limit; false: none
//!     },
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
//!     "resourceMode": "route",   // or 0; "customApiName" or 1: which one it is for, where an API has that name
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
//!   "banRules": [{               // after so many refusals, no more requests of a key for a time
//!     "resource": "login",       // "*": each that no other ban rule names
//!     "key": ["clientIp"],
//!     "maxKeys": 100000,
//!     "count": 10,               // refusals, by flow rules and authority rules
//!     "intervalMs": 1000,
//!     "banSec": 600,
//!     "id": "bans",
//!     "mode": "enforce"
//!   }],
//!   "apiDefinitions": [{         // requests that rules name together, whatever their routes
//!     "apiName": "login",
//!     "predicateItems": [{       // alternatives
//!       "pattern": "/login",     // on the decoded path; what else is given must hold, too
//!       "matchStrategy": "exact",  // or 0; "prefix" or 1: "/product/**"; "regex" or 2
//!       "method": "POST",
//!       "host": "shop.example.com",
//!       "headers": {"x-app": "ios"},  // true: any value
//!       "query": {"debug": true}
//!     }]
//!   }],
//!   "mode": "enforce",           // "shadow": no rule refuses
//!   "envoy": {},                 // the filter's own settings
//!   "$schema": null              // the address of `config.schema.json`, for editors; it means nothing here
//! }
//! ```
//!
//! Where a behaviour or a strategy does not use a field, the field may stand there with its default; and with any value where
//! the behaviour or the strategy is a number: so Sentinel writes rules. (In `paramFlowRules` and `gatewayFlowRules`, in any
//! case.) The same goes for a numbered behaviour of a limit on
//! concurrency, and for a `slowRatioThreshold` where errors are counted.
//!
//! Rules of `paramFlowRules` and `gatewayFlowRules` have `clusterMode` and `clusterConfig`, too.
//!
//! A key that may be left out may be `null`. Accepted, whatever the value, since they mean nothing here: Sentinel's
//! `gmtCreate`, `gmtModified`, `app`, `ip`, `port`; of other rules, `clusterMode` and `clusterConfig`; the other fields of
//! `clusterConfig`, and all of it where `clusterMode` is `false`; `limitApp` of all rules but flow and authority rules;
//! `passCount`, `cut` and `rtSlowRequestAmount` of degrade rules, from before 1.8; and `resource` of system rules. Sentinel's
//! `regex`, of any rule, may be `false`.

mod actual;
mod api;
mod cluster;
mod cost;
mod count_from;
mod degrade;
mod exempt;
mod flow;
mod gateway;
#[cfg(feature = "json")]
mod json;
mod key;
mod key_part;
mod limiter;
mod param_flow;
mod parts;
mod value;

pub use actual::read_statuses;
pub use exempt::read_exempt;
#[cfg(feature = "json")]
pub use json::MAX_DOCUMENT;
pub use key_part::read_part;
pub use limiter::{LimiterOptions, read_limiter};
pub use value::{ConfigError, Fields, Located, Value};

use crate::rule::{
    AuthorityRule, AuthorityStrategy, BanRule, MAX_NAME, RuleError, Rules, RulesError, SystemRule,
    Target,
};
use crate::window::Window;
use key::keyed_by;
use parts::{compat, mode, name_error, number_error, refuse_pattern, rule_id};
use value::DOCUMENT;

/// What a document says.
#[derive(Clone, Debug)]
pub struct Document<'a> {
    /// The rules.
    pub rules: Rules,
    /// The section `envoy`, unread: the filter's own settings.
    pub envoy: Option<&'a Value>,
}

/// The keys of a document: its lists of rules, its settings, and the address of its schema.
pub const KEYS: &[&str] = &[
    "flowRules",
    "paramFlowRules",
    "gatewayFlowRules",
    "degradeRules",
    "systemRules",
    "authorityRules",
    "banRules",
    "apiDefinitions",
    "mode",
    "envoy",
    "$schema",
];

/// Reads a document.
///
/// Rules that are right each by itself may still not go together: an [`Engine`](crate::Engine) says so, and
/// [`ConfigError::from_rules`] says where.
///
/// # Errors
///
/// The first error in it.
pub fn read(document: &Value) -> Result<Document<'_>, ConfigError> {
    let at = Located::new(DOCUMENT, document);
    if let Value::Array(_) = document {
        return Err(at.error("is an array; put it in an object, under `flowRules`"));
    }
    let fields = at.object(KEYS)?;
    if let Some(schema) = fields.get("$schema") {
        schema.string()?;
    }
    let (apis, names) = api::definitions(&fields)?;
    let gateway = list(&fields, "gatewayFlowRules", gateway::rule)?;
    Ok(Document {
        rules: Rules {
            mode: mode(&fields)?,
            flow: list(&fields, "flowRules", flow::rule)?,
            param_flow: list(&fields, "paramFlowRules", param_flow::rule)?,
            gateway_flow: api::by_mode(gateway, &names),
            degrade: list(&fields, "degradeRules", degrade::rule)?,
            system: list(&fields, "systemRules", system_rule)?,
            authority: list(&fields, "authorityRules", authority_rule)?,
            ban: list(&fields, "banRules", ban_rule)?,
            apis: apis.into(),
        },
        envoy: value::find(document, "envoy").filter(|envoy| **envoy != Value::Null),
    })
}

fn list<'a, R>(
    fields: &Fields<'a>,
    key: &'a str,
    rule: fn(&Located<'_>) -> Result<R, ConfigError>,
) -> Result<Vec<R>, ConfigError> {
    match fields.get(key) {
        Some(rules) => rules.list(rule),
        None => Ok(Vec::new()),
    }
}

impl ConfigError {
    /// The error, with the place of the rule that does not go with the others.
    pub fn from_rules(error: &RulesError) -> ConfigError {
        let field = match error {
            RulesError::SameId { .. } => ".id",
            RulesError::ManyRules { .. } => ".resource",
            RulesError::ManySystemRules { .. } | RulesError::NoStatistics => "",
        };
        let (list, index) = error.place();
        ConfigError::from_display(format!("{list}[{index}]{field}"), error)
    }
}

// ---- the small kinds of rules ----

const SYSTEM_KEYS: [&str; 12] = [
    "id",
    "qps",
    "maxThread",
    "avgRt",
    "highestSystemLoad",
    "highestCpuUsage",
    "bbr",
    "mode",
    "compat",
    "regex",
    // Sentinel's, without a meaning here.
    "resource",
    "limitApp",
];

type WithThreshold = fn(SystemRule, f64) -> Result<SystemRule, RuleError>;

const THRESHOLDS: [(&str, WithThreshold); 5] = [
    ("qps", SystemRule::with_qps),
    ("maxThread", SystemRule::with_max_thread),
    ("avgRt", SystemRule::with_avg_rt),
    ("highestSystemLoad", SystemRule::with_highest_system_load),
    ("highestCpuUsage", SystemRule::with_highest_cpu_usage),
];

fn system_rule(at: &Located<'_>) -> Result<SystemRule, ConfigError> {
    let fields = at.rule(&SYSTEM_KEYS)?;
    refuse_pattern(&fields)?;
    let mut rule = SystemRule::new().in_mode(mode(&fields)?);
    if let Some(id) = rule_id(&fields)? {
        rule = rule.with_id(id);
    }
    for (key, with) in THRESHOLDS {
        if let Some(given) = fields.get(key) {
            rule = with(rule, given.number()?).map_err(|error| number_error(&given, &error))?;
        }
    }
    if let Some(bbr) = fields.get("bbr")
        && bbr.boolean()?
    {
        rule = rule.bbr();
    }
    Ok(if compat(&fields)? {
        rule.sentinel()
    } else {
        rule
    })
}

const AUTHORITY_KEYS: [&str; 6] = ["id", "resource", "limitApp", "strategy", "mode", "regex"];

fn authority_rule(at: &Located<'_>) -> Result<AuthorityRule, ConfigError> {
    let fields = at.rule(&AUTHORITY_KEYS)?;
    refuse_pattern(&fields)?;
    let (resource, origins) = (fields.need("resource")?, fields.need("limitApp")?);
    let name = resource.string()?;
    Target::new(name).map_err(|_| name_error(&resource))?;
    let strategy = match fields.get("strategy") {
        Some(strategy) => strategy.one_of_numbered(&[
            ("white", AuthorityStrategy::White),
            ("black", AuthorityStrategy::Black),
        ])?,
        None => AuthorityStrategy::White,
    };
    let mut rule = AuthorityRule::new(name, origins.string()?, strategy).map_err(|error| {
        origins.error(&match error {
            RuleError::OutOfRange { number, most, .. } => {
                format!("names {number} origins; use at most {most}")
            }
            _ => format!(
                "is not a list of origins; use names of 1 to {MAX_NAME} bytes, separated by commas"
            ),
        })
    })?;
    if let Some(id) = rule_id(&fields)? {
        rule = rule.with_id(id);
    }
    Ok(rule.in_mode(mode(&fields)?))
}

const BAN_KEYS: [&str; 8] = [
    "id",
    "resource",
    "key",
    "maxKeys",
    "count",
    "intervalMs",
    "banSec",
    "mode",
];

fn ban_rule(at: &Located<'_>) -> Result<BanRule, ConfigError> {
    let fields = at.object(&BAN_KEYS)?;
    let (resource, key) = (fields.need("resource")?, fields.need("key")?);
    let by = keyed_by(&key, &fields)?;
    let count = fields.need("count")?.integer(1..=u32::MAX.into())? as u32;
    let interval_ms = match fields.get("intervalMs") {
        Some(interval) => interval.integer(1..=Window::MAX_INTERVAL_MS)?,
        None => 1000,
    };
    let seconds = fields
        .need("banSec")?
        .integer(1..=Window::MAX_INTERVAL_MS / 1000)?;
    // The numbers are in range.
    let rule = BanRule::new(resource.string()?, by, count, interval_ms, seconds * 1000);
    let mut rule = rule.map_err(|_| name_error(&resource))?;
    if let Some(id) = rule_id(&fields)? {
        rule = rule.with_id(id);
    }
    Ok(rule.in_mode(mode(&fields)?))
}
