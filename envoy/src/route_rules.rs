//! The rules that a route has of its own: `{"leapgate": {"flowRules": […]}}` in its metadata.
//!
//! They join the rules that the document has for the route's resource: all admit a request, or none is charged. So they can only
//! make its limits stricter. Their ids begin with `route:` and the name of the resource, and no other route can have them.
//!
//! Envoy does not tell a filter that metadata has changed, so it is read again, at most once a second for each resource. While it
//! is the same, nothing else happens. A rule that is found again unchanged, whatever became of others, goes on where it is.

use crate::backend::EnvoyBackend;
use crate::config;
use crate::host::{Host, Level};
use crate::metadata;
use crate::settings::{AllowedRules, Settings};
use leapgate::backend::Key;
use leapgate::config::{ConfigError, Value, read};
use leapgate::rule::{
    DEFAULT_MAX_KEYS, FlowRule, KeyedBy, LimitApp, RuleId, Strategy, number_text,
};
use leapgate::{Engine, Resource, Timestamp};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

const METADATA: &str = "xds\0route_metadata";

/// For how long what was read holds.
const FRESH: Duration = Duration::from_secs(1);

/// The longest list of rules, serialized or as text, in bytes.
const MAX_LENGTH: usize = 16 * 1024;

/// How many resources are known at once. If there are more, those without rules of their own are read again, or else all: then a
/// window that is a worker's alone begins anew.
const MAX_RESOURCES: usize = 10_000;

/// How many faults are logged in a configuration. All are counted.
const MAX_LOGGED: u32 = 1000;

/// After how many changes of rules the states are forgotten that no rule uses any more.
const SWEEP: u32 = 1024;

type ResourceOf<H> = Rc<Resource<EnvoyBackend<H>>>;

/// What is known of each resource, sorted by name. The pairs are small, since a new one moves those behind it.
type KnownRoutes<H> = Vec<(Box<str>, Box<Known<H>>)>;

/// The rules that routes have of their own.
pub(crate) struct RouteRules<H: Host> {
    allowed: AllowedRules,
    known: RefCell<KnownRoutes<H>>,
    logged: Cell<u32>,
    changes: Cell<u32>,
}

/// What is known of one resource.
struct Known<H: Host> {
    read: Timestamp,
    /// A hash of the rules as they were read, and of what was wrong with them.
    content: u64,
    fault: u64,
    /// The resource as the document has it, and with the rules of the route; `None` if it has none.
    resources: Option<[ResourceOf<H>; 2]>,
}

impl<H: Host> Known<H> {
    /// The resource with the rules of the route; `None` if `route` is another resource than the one that they have joined.
    fn of(&self, route: &ResourceOf<H>) -> Option<ResourceOf<H>> {
        match &self.resources {
            None => Some(Rc::clone(route)),
            Some([of, joined]) => Rc::ptr_eq(of, route).then(|| Rc::clone(joined)),
        }
    }
}

impl<H: Host> RouteRules<H> {
    pub(crate) fn new(allowed: AllowedRules) -> RouteRules<H> {
        RouteRules {
            allowed,
            known: RefCell::default(),
            logged: Cell::new(0),
            changes: Cell::new(0),
        }
    }

    /// The resource of the request at hand, which is called `name` and is that of its `route`: with the rules that the route has of
    /// its own.
    #[inline(never)]
    pub(crate) fn join(
        &self,
        engine: &Engine<EnvoyBackend<H>>,
        settings: &Settings,
        name: &str,
        route: ResourceOf<H>,
    ) -> ResourceOf<H> {
        let host = engine.store().backend().vm().host();
        // Without a clock they are read once.
        let now = host.now().unwrap_or(Timestamp::ZERO);
        let mut known = self.known.borrow_mut();
        let place = known.binary_search_by(|(known, _)| (**known).cmp(name));
        let before = match place {
            Ok(at) => known.get_mut(at).map(|(_, known)| known),
            Err(_) => None,
        };
        if let Some(known) = &before
            && now.since(known.read) < FRESH
            && let Some(joined) = known.of(&route)
        {
            return joined;
        }
        let metadata = host.property_at(METADATA).unwrap_or_default();
        let found = metadata::find(&metadata, "leapgate");
        let found = found.and_then(|own| metadata::find(own, "flowRules"));
        let found = found.unwrap_or_default();
        let content = hash(found);
        let mut fault = 0;
        if let Some(known) = before {
            fault = known.fault;
            if known.content == content
                && let Some(joined) = known.of(&route)
            {
                known.read = now;
                return joined;
            }
        }
        let mut renewed = Known {
            read: now,
            content,
            fault,
            resources: None,
        };
        let joined = self.rules(found, name, settings).and_then(|rules| {
            if rules.is_empty() {
                return Ok(None);
            }
            let joined = engine.resource_with_rules(&route, rules);
            let joined = joined.map_err(|error| ConfigError::from_rules(&error))?;
            Ok(Some([Rc::clone(&route), joined]))
        });
        match joined {
            Ok(resources) => renewed.resources = resources,
            Err(error) => self.tell(engine, name, &error, &mut renewed),
        }
        let joined = renewed.of(&route).unwrap_or(route);
        // The states that go on are in use until here.
        match place.map(|at| known.get_mut(at)) {
            Ok(Some((_, known))) => **known = renewed,
            _ => {
                if known.len() >= MAX_RESOURCES {
                    known.retain(|(_, known)| known.resources.is_some());
                    if known.len() >= MAX_RESOURCES {
                        known.clear();
                    }
                }
                let at = known.partition_point(|(known, _)| **known < *name);
                known.insert(at, (name.into(), Box::new(renewed)));
            }
        }
        let changes = self.changes.get().wrapping_add(1);
        self.changes.set(changes);
        if changes.is_multiple_of(SWEEP) {
            engine.store().sweep();
        }
        joined
    }

    /// Counts and logs what is wrong, once for each resource and fault.
    #[cold]
    fn tell(
        &self,
        engine: &Engine<EnvoyBackend<H>>,
        name: &str,
        error: &ConfigError,
        known: &mut Known<H>,
    ) {
        let vm = engine.store().backend().vm();
        let [path, message] = [error.path(), error.message()];
        let line = [
            "leapgate: the rules in the metadata of route ",
            name,
            " are not in force: ",
            path,
            ": ",
            message,
        ];
        let line = line.concat();
        let fault = hash(line.as_bytes());
        if std::mem::replace(&mut known.fault, fault) == fault {
            return;
        }
        vm.count("route_rules_rejected");
        if self.logged.get() < MAX_LOGGED {
            self.logged.set(self.logged.get() + 1);
            vm.host().log(Level::Warn, &line);
        }
    }

    /// The rules of the route: a serialized value, a list or the same as JSON text.
    fn rules(
        &self,
        found: &[u8],
        name: &str,
        settings: &Settings,
    ) -> Result<Vec<FlowRule>, ConfigError> {
        let wrong = |value: &str, fault: &str| Err(ConfigError::new("flowRules", value, fault));
        if found.is_empty() {
            return Ok(Vec::new());
        }
        if found.len() > MAX_LENGTH {
            return wrong(
                &found.len().to_string(),
                "bytes are too many; use at most 16384",
            );
        }
        let mut value = match metadata::value(found) {
            Some(Value::String(text)) => Value::from_json(text.as_bytes())?,
            Some(value) => value,
            None => return wrong("…", "is nested too deeply; use a list of rules"),
        };
        if let Value::Array(rules) = &mut value {
            let (count, most) = (rules.len(), self.allowed.max_rules);
            if count > most {
                return Err(too_much("flowRules", &count.to_string(), most as u64));
            }
            for (i, rule) in rules.iter_mut().enumerate() {
                let Value::Object(fields) = rule else {
                    continue;
                };
                if fields.iter().any(|(key, _)| key == "resource") {
                    let fault = "is always that of the route; leave it out";
                    return Err(ConfigError::new(&path(i, ""), "resource", fault));
                }
                fields.push(("resource".into(), Value::String(name.into())));
            }
        }
        let document = Value::Object(vec![("flowRules".into(), value)]);
        let rules = read(&document)?.rules;
        config::check(&rules, settings)?;
        let mut allowed = Vec::new();
        for (i, rule) in rules.flow.into_iter().enumerate() {
            allowed.push(self.allow(i, rule, name)?);
        }
        Ok(allowed)
    }

    /// The rule, the `i`th of a route, under its full id, if a route may have it.
    fn allow(&self, i: usize, rule: FlowRule, name: &str) -> Result<FlowRule, ConfigError> {
        let most = highest_count(&rule);
        let max_count = self.allowed.max_count;
        if most > max_count as f64 {
            return Err(too_much(&path(i, ".count"), &number_text(most), max_count));
        }
        let wrong = if rule.control_behavior().is_paced() {
            Some(["controlBehavior", "reject"])
        } else if *rule.strategy() != Strategy::Direct {
            Some(["strategy", "direct"])
        } else if *rule.limit_app() != LimitApp::Default {
            Some(["limitApp", "default"])
        } else {
            None
        };
        if let Some([field, only]) = wrong {
            let fault = ["is not possible in metadata of a route; use `", only, "`"].concat();
            return Err(ConfigError::new(&path(i, ""), field, &fault));
        }
        let max_keys = rule.keyed_by().map_or(0, KeyedBy::max_keys);
        if max_keys > DEFAULT_MAX_KEYS {
            let shown = max_keys.to_string();
            return Err(too_much(
                &path(i, ".maxKeys"),
                &shown,
                DEFAULT_MAX_KEYS as u64,
            ));
        }
        // What stands behind the last slash is the rule's own, so that no two routes make the same id.
        let id = rule.id();
        let is_default = |own: &&str| own.is_empty() || own.starts_with('/');
        let own = id.as_str().strip_prefix(name).filter(is_default);
        let own = own.unwrap_or(id.as_str());
        let own = own.trim_start_matches('/').replace('/', ".");
        let own = if own.is_empty() { "1s" } else { &own };
        let id = RuleId::new(&["route:", name, "/", own].concat());
        let id = id.map_err(|_| {
            let fault = "makes no valid id behind the name of the route; use printable ASCII, at most 249 bytes for both";
            ConfigError::new(&path(i, ".id"), own, fault)
        })?;
        Ok(rule.with_id(id))
    }
}

/// The path of a rule, or of a field of it.
fn path(rule: usize, field: &str) -> String {
    ["flowRules[", &rule.to_string(), "]", field].concat()
}

fn too_much(path: &str, value: &str, most: u64) -> ConfigError {
    let fault = "is more than a route may have; use at most ";
    ConfigError::new(path, value, &[fault, &most.to_string()].concat())
}

/// The most that a rule admits of any key.
fn highest_count(rule: &FlowRule) -> f64 {
    let mut most = rule.count().get();
    if let Some(by) = rule.keyed_by() {
        for item in by.items() {
            most = most.max(item.count.get());
        }
        if let Some(from) = by.count_from() {
            most = most.max(from.most().get());
        }
        most += by.burst() as f64;
    }
    most
}

fn hash(bytes: &[u8]) -> u64 {
    Key::of_parts([0; 2], [Some(bytes)]).hash()
}
