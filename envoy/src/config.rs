//! The plugin's configuration: a rules document whose section `envoy` is the filter's own.
//!
//! ```json
//! "envoy": {
//!   "scope": "process",              // "worker": each worker thread counts by itself
//!   "resource": {"from": "route"},   // {"from": "virtualHost"}, {"fixed": "login"},
//!                                    // {"from": {"routeMetadata": ["leapgate", "resource"]}},
//!                                    // {"from": "envoyGateway", "section": true}, {"from": "istio", "section": false}
//!   "origin": {"header": "x-app"},   // {"from": "peer"}: the identity in the peer's certificate
//!   "prioritized": {"header": "x-priority", "value": "high"}, // which requests may borrow; without `value`: any
//!   "exempt": [{"clientIp": "10.0.0.0/8"}], // requests that flow rules and system rules leave alone; {"origin": "batch"},
//!                                    // {"header": "x-probe", "value": "1"}
//!   "allowRouteRules": {"maxCount": 1000, "maxRules": 4}, // routes may have `flowRules` of their own in their metadata
//!   "maxWaiting": 1000,              // requests that may wait at once, in each worker thread
//!   "store": {                       // permits of rules with `clusterMode` come from here, for all machines together
//!     "cluster": "webdis",           // a cluster in Envoy's configuration
//!     "protocol": "webdis",          // "upstash", "rls"
//!     "authority": "webdis",         // the host that requests name; without it, the cluster
//!     "token": "user:password",      // of webdis; of Upstash, the token of its REST interface
//!     "keyPrefix": "leapgate:",
//!     "timeoutMs": 50,               // after which an answer is lost
//!     "maxWaitMs": 20,               // that a request waits for an answer before `whenDown` decides
//!     "whenDown": "refuse"           // "local": a window of the worker's own; "pass"
//!   },
//!   "metrics": {"holdMs": 60000},    // how long the gauges of how full limits are keep their peaks
//!   "maxResources": 1000,            // that have windows of their own without a rule; more share one
//!   "reply": {
//!     "status": 429,
//!     "format": "text",              // "json", "problem"
//!     "body": "too many requests",
//!     "headers": {"x-limited-by": "leapgate"},
//!     "breaker": {"status": 503, "body": "service unavailable"}
//!   },
//!   "errors": {                      // what counts against a resource with a breaker
//!     "status": ["5xx"],             // "4xx", 429
//!     "grpcStatus": [2, 4, 13, 14, 15]
//!   },
//!   "rateLimitHeaders": "draft",     // "legacy": x-ratelimit-*; "off"
//!   "rateLimitHeadersOn": "refused"  // "all": on passing responses too
//! }
//! ```
use crate::keys;
use crate::settings::{Settings, settings};
use leapgate::Rules;
use leapgate::config::{ConfigError, Located, Value, read};
use leapgate::rule::{Exempt, FlowRule, LimitApp, Strategy, SystemLimit};

/// Reads the plugin's configuration.
///
/// # Errors
///
/// The first thing that is wrong in it.
pub fn parse(configuration: &[u8]) -> Result<(Rules, Settings), ConfigError> {
    if configuration.trim_ascii().is_empty() {
        let fault = r#"is not a configuration; give the plugin rules: `{"flowRules": [{"resource": "*", "count": 100}]}`"#;
        return Err(ConfigError::new("document", "", fault));
    }
    // Envoy hands over a message of any other type as it is on the wire, which is no text.
    let is_wire = |byte: &u8| *byte < b' ' && !byte.is_ascii_whitespace();
    if configuration.iter().take(64).any(is_wire) {
        let fault =
            "is not JSON; give the plugin its configuration as a `google.protobuf.StringValue`";
        return Err(ConfigError::new(
            "document",
            &String::from_utf8_lossy(configuration),
            fault,
        ));
    }
    parse_value(&Value::from_json(configuration)?)
}

/// Reads the plugin's configuration from a tree.
///
/// # Errors
///
/// The first thing that is wrong in it.
pub fn parse_value(value: &Value) -> Result<(Rules, Settings), ConfigError> {
    let document = read(value)?;
    for (i, rule) in document.rules.system.iter().enumerate() {
        let measures = [
            (SystemLimit::Load, "highestSystemLoad"),
            (SystemLimit::Cpu, "highestCpuUsage"),
        ];
        if let Some((_, field)) = measures.iter().find(|(limit, _)| rule.limits(*limit)) {
            let fault = "is not known in Envoy, where a filter cannot see the machine; use `bbr`, `maxThread` or `avgRt`";
            return Err(ConfigError::new(&format!("systemRules[{i}]"), field, fault));
        }
    }
    let settings = match document.envoy {
        Some(section) => settings(&Located::new("envoy", section))?,
        None => Settings::default(),
    };
    check(&document.rules, &settings)?;
    Ok((document.rules, settings))
}

/// Refuses what rules ask of a request that no request in Envoy has, or none with these settings.
pub(crate) fn check(rules: &Rules, settings: &Settings) -> Result<(), ConfigError> {
    if !rules.param_flow.is_empty() {
        return Err(ConfigError::new(
            "document",
            "paramFlowRules",
            "limits arguments, which requests in Envoy do not have; use `flowRules` with a `key`",
        ));
    }
    for (list, i, by) in rules.keys() {
        if let Some(part) = by.parts().iter().find(|part| !keys::is_read(part)) {
            return Err(ConfigError::new(
                &format!("{list}[{i}].key"),
                &part.to_string(),
                "is an argument, which requests in Envoy do not have; use `clientIp`, a header or another part of the request",
            ));
        }
    }
    let lists = [
        ("flowRules", &rules.flow),
        ("gatewayFlowRules", &rules.gateway_flow),
    ];
    for (list, rules) in lists {
        let chain = |rule: &FlowRule| matches!(rule.strategy(), Strategy::Chain(_));
        if let Some(i) = rules.iter().position(chain) {
            let fault =
                "never applies in Envoy, where requests come in by no context; use `direct`";
            let path = format!("{list}[{i}].strategy");
            return Err(ConfigError::new(&path, "chain", fault));
        }
    }
    match settings.origin {
        None => knows_no_origin(rules, settings),
        Some(_) => Ok(()),
    }
}

/// Refuses rules about origins, where requests have none.
fn knows_no_origin(rules: &Rules, settings: &Settings) -> Result<(), ConfigError> {
    let mut exempt = rules.flow.iter().map(|rule| first_of(rule.exempt()));
    let mut flow = rules.flow.iter().map(|rule| match rule.limit_app() {
        LimitApp::Default => None,
        LimitApp::Other => Some("other"),
        LimitApp::Origin(name) => Some(&**name),
    });
    let mut authority = rules.authority.iter().map(|rule| rule.origins().next());
    let found = first("flowRules", "limitApp", &mut flow)
        .or_else(|| first("authorityRules", "limitApp", &mut authority))
        .or_else(|| first("flowRules", "exempt", &mut exempt))
        .or_else(|| Some(("envoy.exempt".into(), first_of(settings.exempt.as_ref())?)));
    let Some((path, name)) = found else {
        return Ok(());
    };
    let fault = r#"never applies where requests have no origin; say what it is: `"envoy": {"origin": {"header": "x-app"}}`"#;
    Err(ConfigError::new(&path, name, fault))
}

/// The first origin that is exempt.
fn first_of(exempt: Option<&Exempt>) -> Option<&str> {
    exempt?.origins().next()
}

/// The path of the first of these fields of a list's rules that names an origin, and the origin.
fn first<'a>(
    list: &str,
    field: &str,
    origins: &mut dyn Iterator<Item = Option<&'a str>>,
) -> Option<(String, &'a str)> {
    let (i, origin) = origins
        .enumerate()
        .find_map(|(i, origin)| Some((i, origin?)))?;
    Some((format!("{list}[{i}].{field}"), origin))
}
