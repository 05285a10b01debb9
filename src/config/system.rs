//! System rules in a document.

use super::{At, ConfigError, compat, mode, no_number, no_pattern};
use crate::rule::RuleError;
use crate::rule::system::SystemRule;

const KEYS: [&str; 19] = [
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
    "clusterMode",
    "clusterConfig",
    "gmtCreate",
    "gmtModified",
    "app",
    "ip",
    "port",
];

type With = fn(SystemRule, f64) -> Result<SystemRule, RuleError>;

const THRESHOLDS: [(&str, With); 5] = [
    ("qps", SystemRule::with_qps),
    ("maxThread", SystemRule::with_max_thread),
    ("avgRt", SystemRule::with_avg_rt),
    ("highestSystemLoad", SystemRule::with_highest_system_load),
    ("highestCpuUsage", SystemRule::with_highest_cpu_usage),
];

pub(super) fn rule(at: &At<'_>) -> Result<SystemRule, ConfigError> {
    let fields = at.object(&KEYS)?;
    no_pattern(&fields)?;
    let mut rule = SystemRule::new().in_mode(mode(&fields)?);
    if let Some(id) = super::rule_id(&fields)? {
        rule = rule.with_id(id);
    }
    for (key, with) in THRESHOLDS {
        if let Some(given) = fields.get(key) {
            rule = with(rule, given.number()?).map_err(|error| no_number(&given, &error))?;
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
