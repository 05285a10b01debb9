//! The scenarios in `tests/scenarios`, which all shells are held to. `README.md` beside them says what their keys mean.

use crate::support::{at, retry_ms};
use crate::vectors::{dump, value_of};
use leapgate::api::ApiMatcher;
use leapgate::backend::Local;
use leapgate::config::{Value as Tree, read};
use leapgate::rule::{KeyPart, KeyValue, REQUESTS};
use leapgate::stats::{DefaultNode, NodeTree};
use leapgate::{Decision, Engine, Entry, Outcome, Request, Resource, Rules, Timestamp};
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

fn rules(document: &Value) -> Rules {
    let tree = Tree::from_json(document.to_string()).unwrap();
    read(&tree).unwrap().rules
}

/// The names of the APIs that a request enters too.
fn apis(arguments: &Value) -> Vec<&str> {
    let names = arguments["apis"].as_array().into_iter().flatten();
    names.map(|name| name.as_str().unwrap()).collect()
}

/// The resource of a request, with its APIs.
fn resource_of(engine: &Engine, arguments: &Value) -> Rc<Resource<Local>> {
    let route = engine.resource(text(arguments, "resource"));
    engine.resource_with(&route, &apis(arguments))
}

/// A request's values of the parts of a resource's keys.
fn keys(engine: &Engine, arguments: &Value) -> Vec<Vec<String>> {
    let resource = resource_of(engine, arguments);
    let values = |part: &KeyPart| match &arguments["keys"][part.to_string()] {
        Value::Null => Vec::new(),
        Value::String(value) => vec![value.clone()],
        Value::Number(value) => vec![value.to_string()],
        values => serde_json::from_value(values.clone()).unwrap(),
    };
    resource.key_parts().iter().map(values).collect()
}

/// Calls `each` with the keys as they are handed in.
fn with_keys<R>(keys: &[Vec<String>], each: impl FnOnce(&[KeyValue<'_>]) -> R) -> R {
    let mut lists: Vec<Vec<&[u8]>> = Vec::new();
    for values in keys {
        lists.push(values.iter().map(String::as_bytes).collect());
    }
    let mut values = Vec::new();
    for list in &lists {
        values.push(match list[..] {
            [] => KeyValue::Missing,
            [one] => KeyValue::One(one),
            _ => KeyValue::Each(list),
        });
    }
    each(&values)
}

fn text<'a>(arguments: &'a Value, key: &str) -> &'a str {
    arguments[key].as_str().unwrap_or("")
}

/// What a request costs, by unit: a number is one of requests.
fn costs(cost: &Value) -> Vec<(&str, u64)> {
    match cost {
        Value::Null => Vec::new(),
        Value::Number(n) => vec![(REQUESTS, n.as_u64().unwrap())],
        by_unit => {
            let by_unit = by_unit.as_object().unwrap().iter();
            by_unit
                .map(|(unit, n)| (unit.as_str(), n.as_u64().unwrap()))
                .collect()
        }
    }
}

/// A scenario as it is played.
struct Play<'a> {
    scenario: &'a Value,
    engine: Engine,
    /// The APIs of the first document.
    apis: ApiMatcher,
    open: HashMap<u64, Entry>,
}

impl Play<'_> {
    fn enter(&mut self, call: &Value, now: Timestamp) -> Value {
        let apis = apis(call);
        if let Some(path) = call["path"].as_str() {
            let method = call["method"].as_str().unwrap_or("GET");
            let read = |part: &KeyPart| (*part == KeyPart::Method).then(|| method.into());
            let found = self.apis.find(path.as_bytes(), &read);
            let found: BTreeSet<&str> = found.names().iter().copied().collect();
            let named: BTreeSet<&str> = apis.iter().copied().collect();
            assert_eq!(found, named, "the APIs of {method} {path}");
        }
        let request = Request::new(text(call, "resource"))
            .also(&apis)
            .context(text(call, "context"))
            .origin(text(call, "origin"));
        let costs = costs(&call["cost"]).into_iter();
        let request = costs.fold(request, |request, (unit, n)| request.cost_of(unit, n));
        let request = if call["inbound"] == json!(true) {
            request.inbound()
        } else {
            request
        };
        let request = if call["exempt"] == json!(true) {
            request.exempt()
        } else {
            request
        };
        let decision = with_keys(&keys(&self.engine, call), |keys| {
            let request = request.keys(keys);
            match call["within"].as_u64() {
                Some(outer) => self.engine.enter(&request.within(&self.open[&outer]), now),
                None => self.engine.enter(&request, now),
            }
        });
        match decision {
            Decision::Pass(entry) => {
                match call["id"].as_u64() {
                    Some(id) => drop(self.open.insert(id, entry)),
                    None => entry.exit(Outcome::Success, now),
                }
                json!("pass")
            }
            Decision::Wait(wait, entry) => {
                if let Some(id) = call["id"].as_u64() {
                    drop(self.open.insert(id, entry));
                }
                json!({ "waitMs": wait.as_millis() as u64 })
            }
            Decision::Block(blocked) => {
                json!({ "block": blocked.id().as_str(), "retryAfterMs": retry_ms(&blocked) })
            }
        }
    }

    fn left(&self, asked: &Value, now: Timestamp) -> Value {
        let resource = resource_of(&self.engine, asked);
        let row = |policy: leapgate::Policy<'_>| {
            json!([
                policy.id.as_str(),
                policy.remaining,
                policy.reset.as_millis() as u64
            ])
        };
        with_keys(&keys(&self.engine, asked), |keys| {
            let request = Request::new("").keys(keys).origin(text(asked, "origin"));
            resource.policies_for(&request, now).map(row).collect()
        })
    }

    /// The values of the requested nodes; asserts that there are no others.
    fn nodes(&self, asked: &Value, now: Timestamp) -> Value {
        let tree = self.engine.store().tree().unwrap();
        let values = self.scenario["values"].as_array().unwrap();
        let mut places = BTreeSet::new();
        let rows = asked.as_array().unwrap().iter().map(|row| {
            let mut place = row.as_object().unwrap().clone();
            place.remove("values");
            let place = Value::Object(place);
            places.insert(place.to_string());
            let shown = dump(tree, &place, |node| {
                values
                    .iter()
                    .map(|value| value_of(node, value.as_str().unwrap(), now))
                    .collect()
            });
            let mut row = place;
            row["values"] = shown;
            row
        });
        let rows = rows.collect();
        assert_eq!(
            places,
            self.all_places(tree),
            "nodes that are there, and nodes that are asked for"
        );
        rows
    }

    fn all_places(&self, tree: &NodeTree) -> BTreeSet<String> {
        let mut places = vec![json!({ "root": {} }), json!({ "inbound": {} })];
        let mut resources = BTreeSet::new();
        for entrance in tree.root().entrances() {
            let context = entrance.name();
            places.push(json!({ "entrance": { "context": context } }));
            let mut below: Vec<Rc<DefaultNode>> = entrance.children();
            while let Some(node) = below.pop() {
                places.push(
                    json!({ "default": { "context": context, "resource": node.resource() } }),
                );
                resources.insert(node.resource().to_string());
                below.extend(node.children());
            }
        }
        let steps = self.scenario["steps"].as_array().unwrap();
        let origins: BTreeSet<&str> = steps
            .iter()
            .map(|step| text(&step["enter"], "origin"))
            .collect();
        for resource in resources {
            let cluster = tree.cluster(&resource).unwrap();
            places.push(json!({ "cluster": { "resource": resource } }));
            for origin in origins
                .iter()
                .filter(|origin| cluster.origin(origin).is_some())
            {
                places.push(json!({ "origin": { "resource": resource, "origin": origin } }));
            }
        }
        places.iter().map(Value::to_string).collect()
    }

    fn step(&mut self, step: &Value) -> Option<Value> {
        let now = at(step["at"].as_u64().unwrap());
        let keys: Vec<&str> = step
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .filter(|key| !["at", "is"].contains(key))
            .collect();
        let [operation] = keys[..] else {
            panic!("one operation, not {keys:?}")
        };
        let arguments = &step[operation];
        match operation {
            "enter" => {
                let answers: Vec<Value> = (0..arguments["times"].as_u64().unwrap_or(1))
                    .map(|_| self.enter(arguments, now))
                    .collect();
                let odd = answers.iter().find(|answer| **answer != step["is"]);
                Some(odd.unwrap_or(&step["is"]).clone())
            }
            "exit" => {
                let outcome = if arguments["error"] == json!(true) {
                    Outcome::Error
                } else {
                    Outcome::Success
                };
                let id = arguments["id"].as_u64().unwrap();
                let mut entry = self.open.remove(&id).unwrap();
                for (unit, n) in costs(&arguments["cost"]) {
                    entry.settle(unit, n);
                }
                entry.exit(outcome, now);
                None
            }
            "rules" => {
                self.engine.replace(rules(arguments)).unwrap();
                None
            }
            "left" => Some(self.left(arguments, now)),
            "nodes" => Some(self.nodes(&step["is"], now)),
            other => panic!("unknown operation {other}"),
        }
    }
}

#[test]
fn every_scenario_is_answered_as_it_says() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/scenarios");
    let mut played = 0;
    for file in std::fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path())
    {
        if file.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let scenario: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        let rules = rules(&scenario["rules"]);
        let mut play = Play {
            scenario: &scenario,
            apis: ApiMatcher::new(rules.apis.iter()),
            engine: Engine::new(rules).unwrap(),
            open: HashMap::new(),
        };
        for (number, step) in scenario["steps"].as_array().unwrap().iter().enumerate() {
            let answer = play.step(step);
            if let (Some(Value::Array(rows)), Some(Value::Array(expected))) =
                (&answer, step.get("is"))
            {
                for (row, expected) in rows.iter().zip(expected) {
                    assert_eq!(
                        row,
                        expected,
                        "{}, step {number} at {}",
                        file.display(),
                        step["at"]
                    );
                }
            }
            assert_eq!(
                answer.as_ref(),
                step.get("is"),
                "{}, step {number}: {step}",
                file.display()
            );
        }
        assert!(
            play.open.is_empty(),
            "{}: calls that do not end",
            file.display()
        );
        played += 1;
    }
    assert!(played >= 14, "only {played} scenarios");
}
