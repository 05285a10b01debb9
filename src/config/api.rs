//! Definitions of APIs in a document.
//!
//! Sentinel: `ApiDefinition` and `ApiPathPredicateItem`, whose conditions are new.

use super::value::{ConfigError, Fields, Located, Value};
use crate::api::without_port;
use crate::map::HashMap;
use crate::rule::{
    ApiDefinition, FlowRule, KeyPart, MAX_API_DEFINITIONS, MAX_NAME, PredicateItem, Regex,
    ResourceMode, Target,
};
use std::rc::Rc;

/// How many headers and parameters the conditions of a document may name: each is read once for a request, at most.
const MAX_PARTS: usize = 64;

/// The number is what Sentinel's dashboard writes.
const KEYS: [&str; 3] = ["apiName", "predicateItems", "id"];

const ITEM_KEYS: [&str; 6] = [
    "pattern",
    "matchStrategy",
    "method",
    "host",
    "headers",
    "query",
];

const CONDITIONS: [&str; 4] = ["method", "host", "headers", "query"];

#[derive(Clone, Copy)]
enum Match {
    Exact,
    Prefix,
    Regex,
}

const MATCH: [(&str, Match); 3] = [
    ("exact", Match::Exact),
    ("prefix", Match::Prefix),
    ("regex", Match::Regex),
];

/// The names of the APIs of a document, each with the place of its definition.
pub(super) type ApiNames = HashMap<Rc<str>, Vec<usize>>;

/// The definitions of a document, and their names.
pub(super) fn definitions(
    fields: &Fields<'_>,
) -> Result<(Vec<ApiDefinition>, ApiNames), ConfigError> {
    let (mut names, mut parts) = (ApiNames::default(), Vec::new());
    let Some(at) = fields.get("apiDefinitions") else {
        return Ok((Vec::new(), names));
    };
    if at.array()?.len() > MAX_API_DEFINITIONS {
        return Err(at.error("has too many APIs; use at most 10000"));
    }
    let definitions = at.list(|at| {
        let fields = at.rule(&KEYS)?;
        let name = fields.need("apiName")?;
        let items = match fields.get("predicateItems") {
            Some(items) => items.list(|at| item(at, &mut parts))?,
            None => Vec::new(),
        };
        if !matches!(Target::new(name.string()?), Ok(Target::Resource(_))) {
            return Err(name.error("is not the name of an API; use 1 to 256 bytes, and not `*`"));
        }
        let definition = ApiDefinition::new(name.string()?, items)
            .map_err(|_| name.error("has too many items; use at most 1000 for one API"))?;
        let places = names.entry(Rc::clone(definition.name())).or_default();
        places.push(0);
        if places.len() > 1 {
            return Err(name.error("is the name of an earlier API; give one of them another name"));
        }
        Ok(definition)
    })?;
    Ok((definitions, names))
}

fn item(at: &Located<'_>, parts: &mut Vec<KeyPart>) -> Result<PredicateItem, ConfigError> {
    let fields = at.object(&ITEM_KEYS)?;
    let pattern = fields.need("pattern")?;
    let text = pattern.string()?;
    let strategy = match fields.get("matchStrategy") {
        Some(strategy) => strategy.one_of_numbered(&MATCH)?,
        None => Match::Exact,
    };
    let item = match strategy {
        Match::Exact => PredicateItem::exact(text),
        Match::Prefix => PredicateItem::prefix(text),
        Match::Regex => Regex::new(text).map(PredicateItem::regex),
    };
    let mut item = item.map_err(|error| ConfigError::from_display(pattern.to_string(), &error))?;
    for key in CONDITIONS {
        let Some(at) = fields.get(key) else { continue };
        if matches!(key, "headers" | "query") {
            for (name, value) in at.entries()? {
                let part = match key {
                    "query" => KeyPart::Query(name.into()),
                    _ => KeyPart::Header(name.to_ascii_lowercase().into()),
                };
                let wanted = match value.value() {
                    Value::Bool(true) => None,
                    Value::String(text) if (1..=MAX_NAME).contains(&name.len()) => Some(&**text),
                    _ => return Err(value.error(
                        "is not a value to compare with; use a name, and a text or `true` for any value",
                    )),
                };
                item = with(item, &value, part, wanted, parts)?;
            }
            continue;
        }
        let text = at.string()?;
        let part = match key {
            "method" => KeyPart::Method,
            _ if is_host(text) => KeyPart::Host,
            _ => {
                return Err(
                    at.error("is not a host; use one such as `shop.example.com`, without a port")
                );
            }
        };
        item = with(item, &at, part, Some(text), parts)?;
    }
    Ok(item)
}

fn is_host(text: &str) -> bool {
    let is_strange = |byte: u8| b"/*?# @".contains(&byte);
    !text.is_empty()
        && !text.bytes().any(is_strange)
        && without_port(text.as_bytes()).len() == text.len()
}

/// The item with one more condition, which stands at that place.
fn with(
    item: PredicateItem,
    at: &Located<'_>,
    part: KeyPart,
    value: Option<&str>,
    parts: &mut Vec<KeyPart>,
) -> Result<PredicateItem, ConfigError> {
    if item.conditions.iter().any(|(known, _)| *known == part) {
        return Err(at.error("is given twice; keep one of the two"));
    }
    if !parts.contains(&part) {
        if parts.len() == MAX_PARTS {
            return Err(at.error(
                "is for one header or parameter too many; use at most 64 of them in all APIs",
            ));
        }
        parts.push(part.clone());
    }
    item.with(part, value)
        .map_err(|_| at.error("is one condition too many; use at most 16 in one item"))
}

/// The gateway rules, each for the kind of resource that its mode names, where there is an API of that name. Elsewhere the mode
/// means nothing.
pub(super) fn by_mode(rules: Vec<(FlowRule, ResourceMode)>, apis: &ApiNames) -> Vec<FlowRule> {
    let picked =
        rules.into_iter().map(
            |(rule, mode)| match apis.contains_key(rule.target().as_str()) {
                true => rule.for_resource_mode(mode),
                false => rule,
            },
        );
    picked.collect()
}
