//! Limits of Sentinel's gateways, in a document.
//!
//! Sentinel: `GatewayFlowRule` and `GatewayParamFlowItem`; `GatewayRuleConverter` makes hot-parameter rules of them.

use super::key::behavior;
use super::key_part::named;
use super::param_flow::{Names, limit};
use super::parts::{compat, is_concurrency};
use super::value::{ConfigError, Located};
use crate::rule::{ControlBehavior, FlowRule, KeyMatch, KeyPart, KeyedBy, Regex, ResourceMode};

const KEYS: [&str; 14] = [
    "id",
    "resource",
    "resourceMode",
    "count",
    "grade",
    "intervalSec",
    "controlBehavior",
    "burst",
    "maxQueueingTimeoutMs",
    "paramItem",
    "mode",
    "compat",
    // Sentinel's, without a meaning here.
    "limitApp",
    "gatewayId",
];

const ITEM_KEYS: [&str; 5] = [
    "parseStrategy",
    "fieldName",
    "pattern",
    "matchStrategy",
    // The index of its value among the others, which Sentinel writes itself.
    "index",
];

const NAMES: Names = Names {
    seconds: "intervalSec",
    burst: "burst",
    max_queueing: "maxQueueingTimeoutMs",
    max_queueing_ms: 500,
};

#[derive(Clone, Copy)]
enum Parse {
    ClientIp,
    Host,
    Header,
    UrlParam,
    Cookie,
}

const PARSE: [(&str, Parse); 5] = [
    ("clientIp", Parse::ClientIp),
    ("host", Parse::Host),
    ("header", Parse::Header),
    ("urlParam", Parse::UrlParam),
    ("cookie", Parse::Cookie),
];

#[derive(Clone, Copy)]
enum Match {
    Exact,
    Prefix,
    Regex,
    Contains,
}

const MATCH: [(&str, Match); 4] = [
    ("exact", Match::Exact),
    ("prefix", Match::Prefix),
    ("regex", Match::Regex),
    ("contains", Match::Contains),
];

/// A rule, and the kind of resource that it names.
pub(super) fn rule(at: &Located<'_>) -> Result<(FlowRule, ResourceMode), ConfigError> {
    let fields = at.rule(&KEYS)?;
    let resource_mode = match fields.get("resourceMode") {
        Some(resource_mode) => resource_mode.one_of_numbered(&[
            ("route", ResourceMode::Route),
            ("customApiName", ResourceMode::Api),
        ])?,
        None => ResourceMode::Route,
    };
    let compat = compat(&fields)?;
    let by = match fields.get("paramItem") {
        Some(item) => Some(key(&item, compat)?),
        // Sentinel gives such a rule one key for all requests, and paces them as it paces keys.
        None if compat && behavior(&fields)? == ControlBehavior::Throttle => {
            Some(KeyedBy::nothing())
        }
        None if compat && is_concurrency(&fields)? => Some(KeyedBy::nothing()),
        None => None,
    };
    Ok((limit(at, &fields, &NAMES, by)?, resource_mode))
}

fn key(at: &Located<'_>, compat: bool) -> Result<KeyedBy, ConfigError> {
    let fields = at.object(&ITEM_KEYS)?;
    let parse = fields.need("parseStrategy")?.one_of_numbered(&PARSE)?;
    let name = || named(&fields.need("fieldName")?);
    let part = match parse {
        // To Sentinel an address is a text.
        Parse::ClientIp if compat => KeyPart::ClientIp { v4: 32, v6: 128 },
        Parse::ClientIp => KeyPart::CLIENT_IP,
        Parse::Host => KeyPart::Host,
        Parse::Header => KeyPart::Header(name()?.to_ascii_lowercase().into()),
        Parse::UrlParam => KeyPart::Query(name()?.into()),
        Parse::Cookie => KeyPart::Cookie(name()?.into()),
    };
    let is_host = part == KeyPart::Host && !compat;
    let by =
        KeyedBy::new([part]).map_err(|error| ConfigError::from_display(at.to_string(), &error))?;
    let strategy = match fields.get("matchStrategy") {
        Some(strategy) => strategy.one_of_numbered(&MATCH)?,
        None => Match::Exact,
    };
    let Some(pattern) = fields.get("pattern") else {
        return Ok(by);
    };
    let text = pattern.string()?;
    // Sentinel's blank pattern means no pattern.
    if text.is_empty() {
        return Ok(by);
    }
    // Hosts are compared in lower case.
    let lower = is_host.then(|| text.to_ascii_lowercase());
    let literal: Box<str> = lower.as_deref().unwrap_or(text).into();
    Ok(by.matching(match strategy {
        Match::Exact => KeyMatch::Exact(literal),
        Match::Prefix => KeyMatch::Prefix(literal),
        Match::Contains => KeyMatch::Contains(literal),
        Match::Regex => KeyMatch::Regex(
            Regex::new(text)
                .map_err(|error| ConfigError::from_display(pattern.to_string(), &error))?,
        ),
    }))
}
