//! Whether a document is right for where it is to run: the sentence that is logged there, and what was read.

use crate::paper::Paper;
use leapgate::config::{ConfigError, Value, read};
use leapgate::rule::RuleError;
use leapgate::{Engine, Rules};
use leapgate_envoy::config::{parse, parse_value};
use leapgate_envoy::filter::{Filter, new_store};
use leapgate_envoy::settings::Settings;

/// Where a document is to run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// The filter, which refuses what no request in Envoy has.
    Envoy,
    /// The npm package.
    Js,
    /// The crate.
    Rust,
}

/// A document that is right.
#[derive(Debug)]
pub struct Checked {
    /// Its rules.
    pub rules: Rules,
    /// The filter's settings; for another target than [`Target::Envoy`] the filter's defaults.
    pub settings: Settings,
    /// Why rules do not do what they ask for, a sentence each.
    pub warnings: Vec<String>,
    /// That its `$schema` is of another version.
    pub schema: Option<String>,
}

/// Checks a document.
///
/// # Errors
///
/// The sentence with which the target refuses it.
pub fn check(document: &[u8], target: Target) -> Result<Checked, String> {
    if looks_like_yaml(document) {
        let fault = "looks like YAML; give the rules alone, the JSON that Envoy's configuration has under `configuration.value`";
        return Err(ConfigError::new("document", first_line(document), fault).to_string());
    }
    if target == Target::Envoy {
        let value = Value::from_json(document).ok();
        return match value.as_ref().and_then(refused_expression) {
            Some(sentence) => Err(sentence),
            None => check_for_envoy(document, value.as_ref()).map_err(|error| error.to_string()),
        };
    }
    check_alone(document).map_err(|error| error.to_string())
}

/// Without the filter.
fn check_alone(document: &[u8]) -> Result<Checked, ConfigError> {
    let value = Value::from_json(document)?;
    let rules = read(&value)?.rules;
    let engine = Engine::new(rules.clone()).map_err(|error| ConfigError::from_rules(&error))?;
    Ok(Checked {
        rules,
        settings: Settings::default(),
        warnings: engine.warnings(),
        schema: schema_warning(&value),
    })
}

/// The filter itself reads it, and is made.
fn check_for_envoy(document: &[u8], value: Option<&Value>) -> Result<Checked, ConfigError> {
    let (rules, settings) = parse(document)?;
    let host = Paper::default();
    let store = new_store(&host, "leapgate", settings.scope);
    Filter::new(host.clone(), store, rules.clone(), settings.clone())?;
    Ok(Checked {
        rules,
        settings,
        warnings: host.warnings(),
        schema: value.and_then(schema_warning),
    })
}

/// The error of the first regular expression, if nothing is wrong before it: the filter is built without expressions, and this
/// program with them. Which of two faults is read first is the reader's to say, so it is given the document with another fault
/// in the place of the expression.
fn refused_expression(document: &Value) -> Option<String> {
    let (path, text) = first_expression(document)?;
    let mut faulty = document.clone();
    *at(&mut faulty, &path)? = Value::Bool(true);
    let error = parse_value(&faulty).err()?;
    let path = path.iter().fold(String::new(), |path, step| match step {
        Step::Key(key) if path.is_empty() => (*key).into(),
        Step::Key(key) => format!("{path}.{key}"),
        Step::Item(i) => format!("{path}[{i}]"),
    });
    (error.path() == path).then(|| format!("{path}: {}", RuleError::NoRegex { regex: text }))
}

/// A step on the way to a value.
#[derive(Clone, Copy)]
enum Step {
    Key(&'static str),
    Item(usize),
}

fn at<'a>(value: &'a mut Value, path: &[Step]) -> Option<&'a mut Value> {
    path.iter()
        .try_fold(value, |value, step| match (value, step) {
            (Value::Object(entries), Step::Key(key)) => {
                let mut entries = entries.iter_mut();
                entries.find_map(|(name, value)| (name == key).then_some(value))
            }
            (Value::Array(items), Step::Item(i)) => items.get_mut(*i),
            _ => None,
        })
}

/// The first regular expression that is read, and where it stands.
fn first_expression(document: &Value) -> Option<(Vec<Step>, String)> {
    use Step::{Item, Key};
    let [apis, rules] = ["apiDefinitions", "gatewayFlowRules"];
    let mut of_apis = items(member(document, apis)).enumerate();
    let of_api = of_apis.find_map(|(i, api)| {
        let mut items = items(member(api, "predicateItems")).enumerate();
        let (j, text) = items.find_map(|(j, item)| Some((j, expression(item)?)))?;
        Some((
            vec![
                Key(apis),
                Item(i),
                Key("predicateItems"),
                Item(j),
                Key("pattern"),
            ],
            text,
        ))
    });
    of_api.or_else(|| {
        let mut of_rules = items(member(document, rules)).enumerate();
        of_rules.find_map(|(i, rule)| {
            let text = expression(member(rule, "paramItem")?)?;
            Some((
                vec![Key(rules), Item(i), Key("paramItem"), Key("pattern")],
                text,
            ))
        })
    })
}

/// The pattern of an item if it is an expression, by Sentinel's number or by its name.
fn expression(item: &Value) -> Option<String> {
    let is_gateway = member(item, "parseStrategy").is_some();
    let is_expression = match member(item, "matchStrategy")? {
        Value::Number(n) => *n == 2.0,
        Value::String(name) => name == "regex",
        _ => false,
    };
    match member(item, "pattern")? {
        Value::String(text) if is_expression && !(is_gateway && text.is_empty()) => {
            Some(text.clone())
        }
        _ => None,
    }
}

fn member<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    match value {
        Value::Object(entries) => entries.iter().find(|(name, _)| name == key).map(|(_, v)| v),
        _ => None,
    }
}

fn items(value: Option<&Value>) -> impl Iterator<Item = &Value> {
    match value {
        Some(Value::Array(items)) => items.iter(),
        _ => [].iter(),
    }
}

/// That the document's `$schema` names another version than this one.
fn schema_warning(document: &Value) -> Option<String> {
    let Some(Value::String(schema)) = member(document, "$schema") else {
        return None;
    };
    let own = env!("CARGO_PKG_VERSION");
    let is_version = |part: &&str| {
        let numbers = part.strip_prefix('v').unwrap_or(part);
        numbers.split('.').count() == 3 && numbers.split('.').all(|n| n.parse::<u32>().is_ok())
    };
    let mut parts = schema.split(['/', '@']);
    let version = parts.find(is_version)?;
    let version = version.strip_prefix('v').unwrap_or(version);
    (version != own).then(|| {
        format!("$schema: `{version}` is another version of leapgate than this one, {own}; what the two accept may differ")
    })
}

/// Whether it is a YAML file, as Envoy's own configuration commonly is: JSON that is meant to be a document begins with a brace.
fn looks_like_yaml(document: &[u8]) -> bool {
    let first = first_line(document);
    let key = first.split(':').next().unwrap_or_default();
    let is_key = |name: &str| {
        !name.is_empty()
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
    };
    first == "---" || first.contains(':') && is_key(key.trim_start_matches("- "))
}

/// The first line that says something.
fn first_line(document: &[u8]) -> &str {
    let head = document.get(..4096).unwrap_or(document);
    let mut lines = head.split(|byte| *byte == b'\n');
    let line = lines.find(|line| {
        let line = line.trim_ascii();
        !line.is_empty() && !line.starts_with(b"#")
    });
    let line = line.map(<[u8]>::trim_ascii).unwrap_or_default();
    std::str::from_utf8(line).unwrap_or_default()
}

/// What was read, in one line: `2 flow rules, 1 circuit breaker`.
pub fn summary(rules: &Rules) -> String {
    let counts = [
        (rules.flow.len(), "flow rule"),
        (rules.gateway_flow.len(), "gateway flow rule"),
        (rules.param_flow.len(), "hot-parameter rule"),
        (rules.degrade.len(), "circuit breaker"),
        (rules.system.len(), "system rule"),
        (rules.authority.len(), "authority rule"),
        (rules.ban.len(), "ban rule"),
        (rules.apis.len(), "API definition"),
    ];
    let named = counts.iter().filter(|(n, _)| *n > 0);
    let all: Vec<String> = named
        .map(|(n, name)| crate::text::count(*n as u64, name))
        .collect();
    match all.is_empty() {
        true => "no rules, so nothing is limited".into(),
        false => all.join(", "),
    }
}
