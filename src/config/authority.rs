//! Authority rules in a document.

use super::{At, ConfigError, mode, no_name, no_pattern};
use crate::rule::authority::{AuthorityRule, AuthorityStrategy};
use crate::rule::{MAX_NAME, RuleError, Target};

const KEYS: [&str; 13] = [
    "id",
    "resource",
    "limitApp",
    "strategy",
    "mode",
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

pub(super) fn rule(at: &At<'_>) -> Result<AuthorityRule, ConfigError> {
    let fields = at.object(&KEYS)?;
    no_pattern(&fields)?;
    let (resource, origins) = (fields.need("resource")?, fields.need("limitApp")?);
    let name = resource.string()?;
    Target::new(name).map_err(|_| no_name(&resource))?;
    let strategy = match fields.get("strategy") {
        Some(strategy) => strategy.one_of_numbered(&[
            ("white", AuthorityStrategy::White),
            ("black", AuthorityStrategy::Black),
        ])?,
        None => AuthorityStrategy::White,
    };
    let mut rule = AuthorityRule::new(name, origins.string()?, strategy).map_err(|error| {
        origins.wrong(&match error {
            RuleError::OutOfRange { number, most, .. } => {
                format!("names {number} origins; use at most {most}")
            }
            _ => format!(
                "is no list of origins; use names of 1 to {MAX_NAME} bytes, separated by commas"
            ),
        })
    })?;
    if let Some(id) = super::rule_id(&fields)? {
        rule = rule.with_id(id);
    }
    Ok(rule.in_mode(mode(&fields)?))
}
