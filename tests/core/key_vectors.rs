//! Sentinel's recorded answers about hot parameters and gateway rules, replayed.
//!
//! Where it paces, or counts calls in flight, every answer is ours. Where it counts passes, it has a bucket of tokens for each
//! value, and we a window: there we are held to a naive restatement of that. (`tests/oracle/check.py` restates the bucket.)

use crate::support::at;
use crate::vectors::{Steps, each_trace, n, outcome};
use leapgate::config::{Value as Tree, read};
use leapgate::rule::{ControlBehavior, FlowRule, Grade, KeyMatch, KeyPart, KeyValue};
use leapgate::{Decision, Engine, Entry, Request, Rules};
use serde_json::{Value, json};
use std::collections::HashMap;

/// The rules of a trace, which decide as Sentinel's, called by their places.
fn rules(list: &str, written: &Value) -> Rules {
    let rules = written.as_array().unwrap().iter().enumerate();
    let rules = rules.map(|(place, rule)| {
        let mut rule = rule.clone();
        rule["compat"] = json!("sentinel");
        rule["id"] = json!(place.to_string());
        rule
    });
    let document = json!({ list: rules.collect::<Value>() }).to_string();
    read(&Tree::from_json(document).unwrap()).unwrap().rules
}

/// A value as text. Java distinguishes numbers of different types; here the caller chooses the text.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        Value::Bool(value) => Some(value.to_string()),
        Value::Object(typed) => typed.values().next().map(|number| match number.as_i64() {
            Some(number) => number.to_string(),
            None => number.as_f64().unwrap().to_string(),
        }),
        other => panic!("no value: {other}"),
    }
}

/// The values of a part: several where there is a list.
fn texts(value: &Value) -> Vec<Option<String>> {
    match value {
        Value::Array(values) => values.iter().map(text).collect(),
        value => vec![text(value)],
    }
}

/// A naive restatement of one rule: which values were admitted, when, at what cost.
struct Naive {
    limit: Limit,
    count: f64,
    burst: f64,
    items: HashMap<String, f64>,
    /// In milliseconds.
    interval: u64,
    buckets: u64,
    has_key: bool,
    queue: u64,
    passes: Vec<(String, u64, u64)>,
    turns: HashMap<String, u64>,
    in_flight: HashMap<u64, Vec<String>>,
}

#[derive(Clone, Copy, PartialEq)]
enum Limit {
    Passes,
    Turns,
    InFlight,
}

impl Naive {
    /// A hot-parameter rule as Sentinel writes it.
    fn new(rule: &Value) -> Naive {
        let items = rule["paramFlowItemList"].as_array().unwrap().iter();
        let items = items.map(|item| {
            let object = item["object"].as_str().unwrap();
            let is_double = item["classType"].as_str().unwrap().contains("Double");
            let object = if is_double {
                object.trim_end_matches(".0")
            } else {
                object
            };
            (object.into(), item["count"].as_f64().unwrap())
        });
        Naive {
            limit: match (n(&rule["grade"]), n(&rule["controlBehavior"])) {
                (0, _) => Limit::InFlight,
                (_, 2) => Limit::Turns,
                _ => Limit::Passes,
            },
            count: rule["count"].as_f64().unwrap(),
            burst: rule["burstCount"].as_f64().unwrap(),
            items: items.collect(),
            interval: n(&rule["durationInSec"]) * 1000,
            buckets: if rule["paramIdx"].is_null() { 100 } else { 20 },
            has_key: !rule["paramIdx"].is_null(),
            queue: n(&rule["maxQueueingTimeMs"]),
            passes: Vec::new(),
            turns: HashMap::new(),
            in_flight: HashMap::new(),
        }
    }

    fn count(&self, value: &str) -> f64 {
        let count = self.items.get(value).copied().unwrap_or(self.count);
        match self.limit {
            Limit::Passes if count > 0.0 => count + self.burst,
            _ => count,
        }
    }

    /// How long a request waits; `None` if it is refused.
    fn ask(&self, value: &str, cost: u64, now: u64) -> Option<u64> {
        let count = self.count(value);
        let fits = |sum: u64| (sum as f64 <= count).then_some(0);
        match self.limit {
            Limit::Passes => {
                // The buckets of the interval, and the one that is leaving.
                let bucket = self.interval / self.buckets;
                let counts = |at: u64| at / bucket + self.buckets >= now / bucket;
                let passes = self.passes.iter();
                let passes = passes.filter(|(of, at, _)| of == value && counts(*at));
                fits(passes.map(|(_, _, cost)| cost).sum::<u64>() + cost)
            }
            Limit::InFlight => {
                let held = self.in_flight.values().flatten();
                fits(held.filter(|of| *of == value).count() as u64 + 1)
            }
            Limit::Turns if count == 0.0 => None,
            Limit::Turns => {
                let cost = (self.interval as f64 * cost as f64 / count).round() as u64;
                let turn = self.turns.get(value).map_or(now, |last| last + cost);
                let wait = turn.saturating_sub(now);
                (wait == 0 || wait < self.queue).then_some(wait)
            }
        }
    }

    fn take(&mut self, values: &[String], id: u64, (cost, wait): (u64, u64), now: u64) {
        // A rule without a key counts a request that waits when it is released.
        let counted = if self.has_key { now } else { now + wait };
        for value in values {
            match self.limit {
                Limit::Passes => self.passes.push((value.clone(), counted, cost)),
                Limit::Turns => drop(self.turns.insert(value.clone(), now + wait)),
                Limit::InFlight => self.in_flight.entry(id).or_default().push(value.clone()),
            }
        }
    }

    /// The most that was admitted for a value within an interval, as a multiple of its limit.
    fn most(&self) -> f64 {
        let of_value = |(value, start, _): &(String, u64, u64)| {
            let within = |at: &u64| (*start..start + self.interval).contains(at);
            let passes = self.passes.iter();
            let passes = passes.filter(|(of, at, _)| of == value && within(at));
            passes.map(|(_, _, cost)| *cost as f64).sum::<f64>() / self.count(value)
        };
        self.passes.iter().map(of_value).fold(0.0, f64::max)
    }
}

/// How Sentinel and we have answered one trace.
struct Replay<'a> {
    engine: Engine,
    /// For each rule, the values that it looks at in each call.
    ours: Vec<Naive>,
    resources: Vec<&'a str>,
    open: HashMap<u64, Entry>,
    /// Whether Sentinel always answers as we do.
    is_exact: bool,
}

impl<'a> Replay<'a> {
    fn new(rules: Rules, written: &'a Value) -> Replay<'a> {
        let written = written.as_array().unwrap();
        let ours: Vec<Naive> = written.iter().map(Naive::new).collect();
        let of = |rule: &Value| rule["resource"].as_str().unwrap().to_string();
        let several = (1..written.len()).any(|i| of(&written[i]) == of(&written[i - 1]));
        Replay {
            is_exact: !several && ours.iter().all(|rule| rule.limit != Limit::Passes),
            engine: Engine::new(rules).unwrap(),
            ours,
            resources: written
                .iter()
                .map(|rule| rule["resource"].as_str().unwrap())
                .collect(),
            open: HashMap::new(),
        }
    }

    /// Enters with those keys; `of` are the values that each rule looks at.
    fn enter(
        &mut self,
        steps: &Steps<'_>,
        step: &crate::vectors::Step<'_>,
        (resource, keys): (&str, &[KeyValue<'_>]),
        of: &dyn Fn(usize) -> Vec<Option<String>>,
    ) {
        let (id, cost) = (n(&step.arguments["id"]), n(&step.arguments["acquire"]));
        let request = Request::new(resource).cost(cost as u32).keys(keys);
        let answer = match self.engine.enter(&request, at(step.now)) {
            Decision::Pass(entry) => {
                self.open.insert(id, entry);
                json!("pass")
            }
            Decision::Wait(wait, entry) => {
                self.open.insert(id, entry);
                json!({ "wait": wait.as_millis() as u64 })
            }
            Decision::Block(blocked) => {
                let rule: u64 = blocked.id().as_str().parse().unwrap();
                json!({ "block": "paramFlow", "rule": rule })
            }
        };
        let mut asked = Vec::new();
        for (place, rule) in self.ours.iter().enumerate() {
            if self.resources[place] == resource {
                let values = of(place).into_iter().flatten();
                let mut values: Vec<String> = values.filter(|value| value != "$NM").collect();
                values.sort();
                values.dedup();
                let mut waits = values.iter().map(|value| rule.ask(value, cost, step.now));
                let wait = waits.try_fold(0, |longest, wait| Some(wait?.max(longest)));
                asked.push((place, values, wait));
            }
        }
        let longest = asked
            .iter()
            .try_fold(0, |longest, (_, _, wait)| Some((*wait)?.max(longest)));
        let restated = match longest {
            Some(0) => json!("pass"),
            Some(wait) => json!({ "wait": wait }),
            None => {
                let first = asked.iter().find(|(_, _, wait)| wait.is_none());
                json!({ "block": "paramFlow", "rule": first.unwrap().0 })
            }
        };
        assert_eq!(
            answer, restated,
            "{}, trace {}: ours, and restated, at {}",
            steps.name, steps.number, step.whole
        );
        if let Some(wait) = longest {
            for (place, values, _) in &asked {
                self.ours[*place].take(values, id, (cost, wait), step.now);
            }
        }
        if self.is_exact {
            steps.check(step, Some(answer), &step.now);
        }
    }

    fn exit(&mut self, step: &crate::vectors::Step<'_>) {
        let id = n(&step.arguments["id"]);
        for rule in &mut self.ours {
            rule.in_flight.remove(&id);
        }
        // It may be one that we have refused.
        if let Some(entry) = self.open.remove(&id) {
            entry.exit(outcome(step.arguments), at(step.now));
        }
    }

    /// Asserts that we never admitted too much.
    fn end(&self) {
        for rule in &self.ours {
            assert!(rule.most() <= 1.0, "{} times the count", rule.most());
        }
    }
}

#[test]
fn hot_parameters_are_paced_and_held_in_flight_as_sentinels_and_counted_in_windows() {
    each_trace("param_flow", |trace, steps| {
        let written = &trace["paramFlowRules"];
        let rules = rules("paramFlowRules", written);
        let resource = written[0]["resource"].as_str().unwrap();
        let parts: Vec<i32> = written
            .as_array()
            .unwrap()
            .iter()
            .map(|rule| rule["paramIdx"].as_i64().unwrap() as i32)
            .collect();
        let mut replay = Replay::new(rules, written);
        while let Some(step) = steps.next() {
            if step.operation == "exit" {
                replay.exit(&step);
                continue;
            }
            let args = step.arguments["args"].as_array().unwrap();
            let arg =
                |index: i32| KeyPart::arg_of(index, args.len()).map_or(&Value::Null, |i| &args[i]);
            let engine_parts: Vec<KeyPart> = replay.engine.resource(resource).key_parts().to_vec();
            let owned: Vec<Vec<Option<String>>> = engine_parts
                .iter()
                .map(|part| match part {
                    KeyPart::Arg(index) => texts(arg(*index)),
                    other => panic!("{other} is not an argument"),
                })
                .collect();
            let lists = lists(&owned);
            let keys: Vec<KeyValue<'_>> = lists.iter().map(|list| key(list)).collect();
            let of = |place: usize| texts(arg(parts[place]));
            replay.enter(steps, &step, (resource, &keys), &of);
        }
        replay.end();
    });
}

fn lists(owned: &[Vec<Option<String>>]) -> Vec<Vec<&[u8]>> {
    let mut lists = Vec::new();
    for values in owned {
        let values = values.iter().flatten();
        lists.push(values.map(|value| value.as_bytes()).collect());
    }
    lists
}

fn key<'a>(list: &'a [&'a [u8]]) -> KeyValue<'a> {
    match list {
        [] => KeyValue::Missing,
        [one] => KeyValue::One(one),
        each => KeyValue::Each(each),
    }
}

/// A request's value of a part, as a gateway reads it.
fn read_part(part: &KeyPart, request: &Value) -> Option<String> {
    let header = |name: &str| {
        let mut headers = request["headers"].as_object().unwrap().iter();
        headers
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .and_then(|(_, value)| text(value))
    };
    match part {
        KeyPart::ClientIp { .. } => text(&request["ip"]),
        KeyPart::Host => header("host"),
        KeyPart::Header(name) => header(name),
        KeyPart::Query(name) => text(&request["params"][&**name]),
        KeyPart::Cookie(name) => text(&request["cookies"][&**name]),
        other => panic!("no gateway reads {other}"),
    }
}

/// Sentinel's arguments for the rules of a resource, where all values match a pattern that `matches_all`.
/// `GatewayParamParser.parseParameterFor`.
fn parse(rules: &[&FlowRule], request: &Value, matches_all: impl Fn(&KeyMatch) -> bool) -> Value {
    let mut args = Vec::new();
    for by in rules.iter().filter_map(|rule| rule.keyed_by()) {
        let Some(part) = by.parts().first() else {
            continue;
        };
        let value = read_part(part, request);
        let is_for = |value: &str| {
            by.pattern()
                .is_none_or(|pattern| matches_all(pattern) || pattern.matches(value.as_bytes()))
        };
        args.push(match value {
            Some(value) if !is_for(&value) => json!("$NM"),
            value => json!(value),
        });
    }
    if args.len() < rules.len() {
        args.push(json!("$D"));
    }
    args.into()
}

#[test]
fn gateway_rules_read_and_decide_as_sentinels_and_count_in_windows() {
    each_trace("gateway", |trace, steps| {
        let written = trace["gatewayRules"].as_array().unwrap();
        let rules = rules("gatewayFlowRules", &trace["gatewayRules"]);
        let flow = rules.gateway_flow.clone();
        let of_resource = |resource: &str| -> Vec<(usize, &FlowRule)> {
            let rules = flow.iter().enumerate();
            rules
                .filter(|(i, _)| written[*i]["resource"] == resource)
                .collect()
        };
        // In our order: Sentinel keeps them in none.
        let converted: Value = written
            .iter()
            .map(|rule| {
                json!({
                    "resource": rule["resource"], "grade": rule["grade"], "count": rule["count"],
                    "controlBehavior": rule["controlBehavior"], "durationInSec": rule["intervalSec"],
                    "burstCount": rule["burst"], "maxQueueingTimeMs": rule["maxQueueingTimeoutMs"],
                    "paramFlowItemList": [], "paramIdx": (!rule["paramItem"].is_null()).then_some(0),
                })
            })
            .collect();
        let mut replay = Replay::new(rules.clone(), &converted);
        let mut request = &Value::Null;
        while let Some(step) = steps.next() {
            match step.operation {
                "parse" => {
                    request = &step.arguments["request"];
                    let resource = step.arguments["resource"].as_str().unwrap();
                    let own = of_resource(resource);
                    // To Sentinel a prefix is declared, and matches everything.
                    let answer = parse(
                        &own.iter().map(|(_, rule)| *rule).collect::<Vec<_>>(),
                        request,
                        |pattern| matches!(pattern, KeyMatch::Prefix(_)),
                    );
                    let both_modes = own.iter().any(|(i, _)| {
                        let item = !written[*i]["paramItem"].is_null();
                        item && written[*i]["resourceMode"] != step.arguments["resourceMode"]
                    });
                    // Rules of the other mode under one name switch all of them off.
                    let answer = if both_modes { json!([]) } else { answer };
                    steps.check(&step, Some(answer), &resource);
                }
                "enter" => {
                    let resource = step.arguments["resource"].as_str().unwrap();
                    let parts = replay.engine.resource(resource).key_parts().to_vec();
                    let owned: Vec<Vec<Option<String>>> = parts
                        .iter()
                        .map(|part| vec![read_part(part, request)])
                        .collect();
                    let lists = lists(&owned);
                    let keys: Vec<KeyValue<'_>> = lists.iter().map(|list| key(list)).collect();
                    let of = |place: usize| match flow[place]
                        .keyed_by()
                        .filter(|by| !by.parts().is_empty())
                    {
                        Some(_) => texts(&parse(&[&flow[place]], request, |_| false)),
                        None => vec![Some("$D".into())],
                    };
                    replay.enter(steps, &step, (resource, &keys), &of);
                }
                _ => replay.exit(&step),
            }
        }
        replay.end();
    });
}

#[test]
fn a_gateway_rule_without_an_item_is_plain() {
    let rules = rules(
        "gatewayFlowRules",
        &json!([
            {"resource": "a", "count": 2, "burst": 3},
            {"resource": "b", "count": 2, "controlBehavior": 2},
        ]),
    );
    let [plain, paced] = &rules.gateway_flow[..] else {
        panic!()
    };
    assert!(plain.keyed_by().is_none());
    assert_eq!(
        (plain.count().get(), plain.control_behavior()),
        (5.0, ControlBehavior::Reject)
    );
    // Sentinel's turns belong to keys.
    assert!(paced.keyed_by().is_some_and(|by| by.parts().is_empty()));
    assert!(matches!(paced.grade(), Grade::Qps { .. }));
}
