//! Which rules a request meets, in the order in which they are asked, and what each does.
//!
//! Which rules apply is what the engine says of the request's resource and its APIs; it is made of the same rules.

use crate::words::{self, Ids, Reach};
use leapgate::api::ApiMatcher;
use leapgate::backend::{Local, Store};
use leapgate::rule::{Count, Exempt, FlowRule, KeyPart, KeyValue, LimitApp, Mode, Target};
use leapgate::{Engine, Request, Rules, Timestamp};
use leapgate_envoy::keys;
use leapgate_envoy::settings::{OriginFrom, ResourceFrom, Settings};
use std::fmt::Write as _;
use std::rc::Rc;

/// A request to be explained.
#[derive(Clone, Default, Debug)]
pub struct Asked {
    /// The resource: in Envoy commonly the name of its route.
    pub resource: String,
    /// The method.
    pub method: Option<String>,
    /// The path, with the query.
    pub path: Option<String>,
    /// The host.
    pub host: Option<String>,
    /// The client's address.
    pub client: Option<String>,
    /// The origin, if no header says it.
    pub origin: Option<String>,
    /// Headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// Values of other parts of keys, by the names that they have in ids: `jwtClaim:sub`, `arg:0`.
    pub keys: Vec<(String, String)>,
}

impl Asked {
    fn header(&self, name: &str) -> Option<&str> {
        let named = self.headers.iter().find(|(known, _)| known == name);
        named.map(|(_, value)| &**value)
    }

    /// The value of a part, as the filter reads it.
    fn part(&self, part: &KeyPart) -> Option<Vec<u8>> {
        let name = part.to_string();
        if let Some((_, value)) = self.keys.iter().find(|(known, _)| *known == name) {
            return Some(value.clone().into_bytes());
        }
        let text = |text: &Option<String>| text.clone().map(String::into_bytes);
        let path = || Some(self.path.as_ref()?.as_bytes());
        match part {
            KeyPart::ClientIp { .. } => text(&self.client),
            KeyPart::Header(name) => self.header(name).map(|value| value.as_bytes().to_vec()),
            KeyPart::Query(name) => keys::query(path()?, name),
            KeyPart::Cookie(name) => keys::cookie(self.header("cookie")?.as_bytes(), name),
            KeyPart::Path => Some(keys::path(path()?)),
            KeyPart::Method => text(&self.method),
            KeyPart::Host => {
                let host = self.host.as_deref().or_else(|| self.header("host"));
                Some(keys::authority(host?.as_bytes().to_vec()))
            }
            _ => None,
        }
        .filter(|value| !value.is_empty())
    }
}

/// A rule that a request meets, or does not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Met {
    /// Its id.
    pub id: String,
    /// `authority`, `ban`, `system`, `degrade` or `flow`.
    pub kind: &'static str,
    /// Where it stands: `flowRules[0]`.
    pub place: String,
    /// What it does; or, of one that does not apply, why.
    pub words: String,
}

/// What becomes of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Explanation {
    /// The resource that it enters.
    pub resource: String,
    /// The APIs that have rules, and that it belongs to.
    pub apis: Vec<String>,
    /// The rules that it meets, in the order in which they are asked.
    pub rules: Vec<Met>,
    /// The rules that it does not meet.
    pub others: Vec<Met>,
}

/// Explains a request.
///
/// # Errors
///
/// If the rules do not go together: a sentence.
pub fn explain(
    rules: &Rules,
    settings: &Settings,
    reach: Reach,
    asked: &Asked,
) -> Result<Explanation, String> {
    let engine = Engine::with_store(Rc::new(Store::new(Local)), rules.clone());
    let engine =
        engine.map_err(|error| leapgate::config::ConfigError::from_rules(&error).to_string())?;
    let name = match &settings.resource {
        ResourceFrom::Fixed(name) => name.to_string(),
        _ => asked.resource.clone(),
    };
    let matcher = ApiMatcher::new(rules.apis.iter().filter(|api| engine.has_api(api.name())));
    let path = asked.path.clone().unwrap_or_default();
    let found = matcher.find(path.as_bytes(), &|part| asked.part(part));
    let found: Vec<&str> = match asked.path {
        Some(_) => found.names().to_vec(),
        None => Vec::new(),
    };
    let resource = engine.resource_with(&engine.resource(&name), &found);
    let mut applying = Vec::new();
    resource.for_each_rule(&mut |id, _| applying.push(id.to_string()));
    let applied = applying.clone();
    let origin = origin(settings, asked);
    let values: Vec<Option<Vec<u8>>> = resource
        .key_parts()
        .iter()
        .map(|part| asked.part(part))
        .collect();
    let values: Vec<KeyValue<'_>> = values
        .iter()
        .map(|value| value.as_deref().map_or(KeyValue::Missing, KeyValue::One))
        .collect();
    let request = Request::new(&name).origin(&origin).keys(&values);
    // Tables of keys are opened by the first request.
    let _ = engine.enter_resource(&resource, &request, Timestamp::ZERO);
    let policies: Vec<_> = resource.policies_for(&request, Timestamp::ZERO).collect();
    let mut explanation = Explanation {
        resource: name.clone(),
        apis: found.iter().map(|api| (*api).to_owned()).collect(),
        rules: Vec::new(),
        others: Vec::new(),
    };
    let exempt = settings
        .exempt
        .as_ref()
        .is_some_and(|exempt| holds(exempt, asked, &origin));
    let ids = Ids::new(rules);
    let all_shadow = rules.mode == Mode::Shadow;
    let mut sort = |kind: &'static str,
                    place: String,
                    (id, mode): (String, Mode),
                    target: &Target,
                    words: String,
                    not: Option<String>| {
        let id = ids.of(kind, id, mode);
        let is_for = kind == "system" || applying.contains(&id);
        let why = match (is_for, not) {
            (true, not) => not,
            (false, _) => Some(not_for(target, &name, rules)),
        };
        let is_shadow = all_shadow && mode == Mode::Enforce;
        let (list, words) = match why {
            Some(why) => (&mut explanation.others, why),
            None if is_shadow => (
                &mut explanation.rules,
                words + "; the document is in shadow mode: nothing is refused",
            ),
            None => (&mut explanation.rules, words),
        };
        list.push(Met {
            id,
            kind,
            place,
            words,
        });
    };
    for (i, rule) in rules.authority.iter().enumerate() {
        let called = (rule.id().to_string(), rule.mode());
        let admits = match rule.admits(&origin) {
            true => "; it admits this one",
            false => "; it does not admit this one",
        };
        sort(
            "authority",
            format!("authorityRules[{i}]"),
            called,
            rule.target(),
            words::authority(rule) + admits,
            None,
        );
    }
    let is_exempt = || exempt.then(|| "the request is exempt by `envoy.exempt`".to_owned());
    for (i, rule) in rules.ban.iter().enumerate() {
        let called = (rule.id().to_string(), rule.mode());
        sort(
            "ban",
            format!("banRules[{i}]"),
            called,
            rule.target(),
            words::ban(rule),
            is_exempt(),
        );
    }
    for (i, rule) in rules.system.iter().enumerate() {
        let called = (rule.id().to_string(), rule.mode());
        sort(
            "system",
            format!("systemRules[{i}]"),
            called,
            &Target::Each,
            words::system(rule),
            is_exempt(),
        );
    }
    for (i, rule) in rules.degrade.iter().enumerate() {
        let called = (rule.id().to_string(), rule.mode());
        sort(
            "degrade",
            format!("degradeRules[{i}]"),
            called,
            rule.target(),
            words::degrade(rule),
            None,
        );
    }
    let lists = [
        ("gatewayFlowRules", &rules.gateway_flow),
        ("paramFlowRules", &rules.param_flow),
        ("flowRules", &rules.flow),
    ];
    let names_it = |rule: &&FlowRule| {
        matches!(rule.limit_app(), LimitApp::Origin(name) if **name == *origin)
            && applied.contains(&ids.of("flow", rule.id().to_string(), rule.mode()))
    };
    let is_named = lists
        .iter()
        .flat_map(|(_, rules)| rules.iter())
        .any(|rule| names_it(&rule));
    for (list, rules) in lists {
        for (i, rule) in rules.iter().enumerate() {
            let id = ids.of("flow", rule.id().to_string(), rule.mode());
            let policy = policies.iter().find(|policy| policy.id.as_str() == id);
            let mut words = words::flow(
                rule,
                policy.map_or(rule.count(), |policy| without_burst(rule, policy.count)),
                reach,
            );
            if let Some(key) = key(rule, asked) {
                let _ = write!(words, "; this one's is {key}");
            }
            let not = is_exempt().or_else(|| leaves_alone(rule, asked, &origin, is_named));
            sort(
                "flow",
                format!("{list}[{i}]"),
                (rule.id().to_string(), rule.mode()),
                rule.target(),
                words,
                not,
            );
        }
    }
    Ok(explanation)
}

/// The request's origin.
fn origin(settings: &Settings, asked: &Asked) -> String {
    let of_header = match &settings.origin {
        Some(OriginFrom::Header(name)) => asked.header(name),
        _ => None,
    };
    asked
        .origin
        .as_deref()
        .or(of_header)
        .unwrap_or_default()
        .into()
}

fn holds(exempt: &Exempt, asked: &Asked, origin: &str) -> bool {
    let values: Vec<Option<Vec<u8>>> = exempt.parts().iter().map(|part| asked.part(part)).collect();
    let values: Vec<KeyValue<'_>> = values
        .iter()
        .map(|value| value.as_deref().map_or(KeyValue::Missing, KeyValue::One))
        .collect();
    exempt.holds_for(&values, origin)
}

/// Why a rule of the request's resource does not limit it.
fn leaves_alone(rule: &FlowRule, asked: &Asked, origin: &str, is_named: bool) -> Option<String> {
    if rule
        .exempt()
        .is_some_and(|exempt| holds(exempt, asked, origin))
    {
        return Some("the request is exempt from it".into());
    }
    match rule.limit_app() {
        LimitApp::Origin(name) if **name != *origin => {
            return Some(format!("it is for requests of the origin `{name}`"));
        }
        LimitApp::Other if origin.is_empty() => {
            return Some("it is for requests of other origins, and this one has none".into());
        }
        LimitApp::Other if is_named => {
            return Some(format!(
                "it is for origins that no other rule names, and one names `{origin}`"
            ));
        }
        _ => {}
    }
    let by = rule.keyed_by()?;
    let (matching, first) = (by.pattern()?, by.parts().first()?);
    let fits = asked
        .part(first)
        .is_some_and(|value| matching.matches(&value));
    (!fits).then(|| format!("{} does not match `{matching}`", words::part(first)))
}

/// The count of a key without what may burst.
fn without_burst(rule: &FlowRule, count: Count) -> Count {
    let burst = rule.keyed_by().map_or(0, |by| by.burst());
    Count::new(count.get() - burst as f64).unwrap_or(count)
}

/// The key of a request, in words.
fn key(rule: &FlowRule, asked: &Asked) -> Option<String> {
    let shown = |part: &KeyPart| match asked.part(part) {
        Some(value) => format!("`{}`", String::from_utf8_lossy(&value).escape_debug()),
        None => "missing, which is a key of its own".into(),
    };
    let parts: Vec<String> = rule.keyed_by()?.parts().iter().map(shown).collect();
    Some(parts.join(", "))
}

/// Why a rule is not for the request's resource.
fn not_for(target: &Target, name: &str, rules: &Rules) -> String {
    match target {
        Target::Each => format!(
            "it is for resources that no other rule of its kind names, and one names `{name}`"
        ),
        Target::Resource(of) if rules.apis.iter().any(|api| api.name() == of) => {
            format!("the request does not belong to the API `{of}`")
        }
        Target::Resource(of) => format!("it is for the resource `{of}`"),
    }
}

/// The explanation in words; with `all`, what does not apply, too.
pub fn text(explanation: &Explanation, all: bool) -> String {
    let mut text = String::new();
    let apis: Vec<String> = explanation
        .apis
        .iter()
        .map(|api| format!("`{api}`"))
        .collect();
    let belongs = match apis.len() {
        0 => String::new(),
        1 => format!(" that belongs to the API {}", apis.concat()),
        _ => format!(" that belongs to the APIs {}", apis.join(", ")),
    };
    let _ = match explanation.rules.len() {
        0 => writeln!(
            text,
            "A request for `{}`{belongs} meets no rule: it passes.",
            explanation.resource
        ),
        1 => writeln!(
            text,
            "A request for `{}`{belongs} meets 1 rule:",
            explanation.resource
        ),
        n => writeln!(
            text,
            "A request for `{}`{belongs} meets {n} rules, in this order:",
            explanation.resource
        ),
    };
    for (i, rule) in explanation.rules.iter().enumerate() {
        let _ = writeln!(
            text,
            "{:>3}. {} ({}): {}",
            i + 1,
            rule.id,
            rule.place,
            rule.words
        );
    }
    if explanation.rules.len() > 1 {
        text += "It passes if none of them refuses; the first that does is the one that is told, and then nothing is charged.\n";
    }
    if all && !explanation.others.is_empty() {
        text += "What does not apply:\n";
        for rule in &explanation.others {
            let _ = writeln!(text, "  -  {} ({}): {}", rule.id, rule.place, rule.words);
        }
    }
    text
}
