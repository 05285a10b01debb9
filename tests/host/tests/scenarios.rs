//! The scenarios in `tests/scenarios`, which all shells are held to, played on the compiled filter. `README.md` beside them says
//! what their keys mean.
//!
//! A resource is a route here, an origin is the header `x-app`, and a value of a key is what the rule's part reads of a
//! request. The filter reports times in whole seconds, and the status of rules only with an answer. A step that it cannot do is
//! left out and printed with its reason: alone if it charges nothing, else with the rest of its scenario.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "helpers of tests are tests"
)]

use leapgate_host::{Exchange, Host, Module, Plugin, Request, Vm};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::Path;
use std::rc::Rc;

/// Scenarios of which no step applies.
const LEFT_OUT: [&str; 1] = ["dear_turns"];

/// Time 0 of a scenario: where a bucket of any length begins.
const START_NS: u64 = 12 * 86_400 * 1_000_000_000;

/// A document for the filter: without the rules on arguments, which it refuses, and with the settings that answers are read by. A
/// request is exempt by a header, in scenarios that have such requests: the others are decided as without that setting.
fn document(rules: &Value, has_exempt: bool) -> Vec<u8> {
    let mut document = rules.clone();
    document.as_object_mut().unwrap().remove("paramFlowRules");
    document["envoy"] = json!({ "origin": { "header": "x-app" } });
    if has_exempt {
        document["envoy"]["exempt"] = json!([{ "header": "x-exempt" }]);
    }
    document.to_string().into_bytes()
}

fn text<'a>(arguments: &'a Value, key: &str) -> &'a str {
    arguments[key].as_str().unwrap_or("")
}

/// A time as the filter reports it.
fn seconds(millis: u64) -> u64 {
    millis.div_ceil(1000)
}

/// Where Envoy has an attribute, and its value as Envoy hands it over: a number in metadata is a double, one in typed metadata an
/// unsigned integer.
fn attribute<'a>(part: &'a str, value: &Value) -> Option<(Vec<&'a str>, Vec<u8>)> {
    let (kind, path) = part.split_once(':').unwrap_or((part, ""));
    let (mut place, path) = match kind {
        "peer" => (vec!["connection", "uri_san_peer_certificate"], ""),
        "metadata" => (vec!["metadata", "filter_metadata"], path),
        "typedMetadata" => (vec!["metadata", "typed_filter_metadata"], path),
        "routeMetadata" => (vec!["xds", "route_metadata", "filter_metadata"], path),
        "filterState" => (vec!["filter_state"], path),
        "jwtClaim" => {
            let (path, payload) = path.split_once('@').unwrap_or((path, "jwt_payload"));
            let jwt = "envoy.filters.http.jwt_authn";
            (vec!["metadata", "filter_metadata", jwt, payload], path)
        }
        _ => return None,
    };
    place.extend(path.split('/').filter(|name| !name.is_empty()));
    let bytes = match value {
        Value::Number(number) if kind == "typedMetadata" => {
            number.as_u64().unwrap().to_le_bytes().to_vec()
        }
        Value::Number(number) => number.as_f64().unwrap().to_le_bytes().to_vec(),
        value => value.as_str().unwrap().as_bytes().to_vec(),
    };
    Some((place, bytes))
}

/// A scenario as it is played.
struct Play {
    host: Rc<Host>,
    vm: Vm,
    /// The resources that have rules on arguments.
    by_arguments: BTreeSet<String>,
    /// Whether requests may be exempt.
    has_exempt: bool,
    open: BTreeMap<u64, Exchange>,
    /// Waiting requests, by when they continue, in milliseconds.
    waiting: Vec<(u64, Exchange)>,
    /// The latest refusal: its time, its request and its headers.
    refused: Option<(u64, Value, Exchange)>,
}

impl Play {
    fn new(module: &Module, scenario: &Value) -> Play {
        let rules = &scenario["rules"];
        let mut steps = scenario["steps"].as_array().unwrap().iter();
        let has_exempt = steps.any(|step| step["enter"]["exempt"] == json!(true));
        let host = Host::new();
        host.set_now_ns(START_NS);
        let mut vm = Vm::start(&host, module, Plugin::default()).unwrap();
        let configured = vm.configure(&document(rules, has_exempt)).unwrap();
        assert!(configured, "{:?}", host.log());
        let by_arguments = rules["paramFlowRules"].as_array().into_iter().flatten();
        Play {
            host,
            vm,
            by_arguments: by_arguments
                .map(|rule| text(rule, "resource").into())
                .collect(),
            has_exempt,
            open: BTreeMap::new(),
            waiting: Vec::new(),
            refused: None,
        }
    }

    /// Lets the clock run up to a time and workers tick. A waiting request continues at its time, and not a millisecond
    /// earlier.
    fn run_to(&mut self, millis: u64) {
        let dues: BTreeSet<u64> = self.waiting.iter().map(|(due, _)| *due).collect();
        for due in dues.into_iter().filter(|due| *due <= millis) {
            for (now, paused) in [(due - 1, true), (due, false)] {
                self.host.set_now_ns(START_NS + now * 1_000_000);
                self.vm.tick().unwrap();
                for (_, waits) in self.waiting.iter().filter(|(at, _)| *at == due) {
                    assert_eq!(self.vm.look_at(waits).unwrap().paused, paused, "at {now}");
                }
            }
            let (over, waiting): (Vec<_>, Vec<_>) =
                self.waiting.drain(..).partition(|(at, _)| *at == due);
            self.waiting = waiting;
            for (_, exchange) in over {
                self.vm.abort(exchange).unwrap();
            }
        }
        self.host.set_now_ns(START_NS + millis * 1_000_000);
        self.vm.tick().unwrap();
    }

    /// Why the filter cannot be asked this.
    fn why_not(&self, operation: &str, arguments: &Value) -> Option<&'static str> {
        let keys = arguments["keys"].as_object().into_iter().flatten();
        let values: Vec<(&String, &Value)> = keys.collect();
        match operation {
            "nodes" => Some("the filter keeps no statistics"),
            "exit" if !self.open.contains_key(&arguments["id"].as_u64().unwrap()) => {
                Some("its call was left out")
            }
            "exit" if !arguments["cost"].is_null() => {
                Some("a caller does not say what a request costs")
            }
            "exit" | "rules" => None,
            _ if arguments["within"].is_u64() => Some("a request is within no other one"),
            _ if !arguments["cost"].is_null() && arguments["cost"] != 1 => {
                Some("a caller does not say what a request costs")
            }
            _ if self.by_arguments.contains(text(arguments, "resource")) => {
                Some("a request has no arguments")
            }
            _ if values.iter().any(|(_, value)| value.is_array()) => {
                Some("a part of a request has one value")
            }
            "left" if !self.is_of_the_refusal(arguments) => {
                Some("the status of rules comes with an answer only")
            }
            _ => None,
        }
    }

    fn is_of_the_refusal(&self, asked: &Value) -> bool {
        self.refused.as_ref().is_some_and(|(at, of, _)| {
            *at == self.millis()
                && ["resource", "apis", "keys", "origin"]
                    .iter()
                    .all(|part| of[*part] == asked[*part])
        })
    }

    fn millis(&self) -> u64 {
        (self.host.now_ns() - START_NS) / 1_000_000
    }

    fn request(call: &Value) -> Request {
        // Each request reaches an upstream: else it would have cost nothing.
        let request = Request::to_route(text(call, "resource"));
        let mut request = request.property(&["upstream", "local_address"], "127.0.0.1:40000");
        if !text(call, "origin").is_empty() {
            request = request.header("x-app", text(call, "origin"));
        }
        if call["exempt"] == json!(true) {
            request = request.header("x-exempt", "1");
        }
        if call["path"].is_string() {
            request = request.path(text(call, "path"));
        }
        if call["method"].is_string() {
            request.headers.retain(|(name, _)| name != ":method");
            request = request.header(":method", text(call, "method"));
        }
        for (part, value) in call["keys"].as_object().into_iter().flatten() {
            if let Some((path, value)) = attribute(part, value) {
                request = request.property(&path, value);
                continue;
            }
            let value = value.as_str().unwrap();
            request = match part.split_once(':') {
                _ if part == "clientIp" || part.starts_with("clientIp:") => {
                    // As Envoy writes it: with a port.
                    let port = match value.matches(':').count() {
                        0 => format!("{value}:50000"),
                        1 => value.to_string(),
                        _ => format!("[{value}]:50000"),
                    };
                    request.property(&["source", "address"], &port)
                }
                Some(("header", name)) => request.header(name, value),
                _ => panic!("this runner knows no part `{part}`"),
            };
        }
        request
    }

    /// The answer to a request, in the words of a scenario, but with times in seconds.
    fn enter(&mut self, call: &Value) -> Value {
        let exchange = self.vm.begin(&Play::request(call)).unwrap();
        if let Some(reply) = exchange.reply.clone() {
            self.refused = Some((self.millis(), call.clone(), exchange.clone()));
            self.vm.end(exchange, Vec::new()).unwrap();
            let rule = reply.details.strip_prefix("leapgate{rule=");
            let rule = rule.and_then(|rule| rule.strip_suffix('}')).unwrap();
            let rule = rule.rsplit_once(",cost=").map_or(rule, |(rule, _)| rule);
            let retry_after = reply.header("retry-after");
            let retry_after = retry_after.map(|seconds| seconds.parse::<u64>().unwrap());
            return json!({ "block": rule, "retryAfterSeconds": retry_after });
        }
        self.refused = None;
        if exchange.paused {
            // When it goes on is seen when it does.
            self.waiting.push((0, exchange));
            return json!({ "waits": true });
        }
        match call["id"].as_u64() {
            Some(id) => drop(self.open.insert(id, exchange)),
            None => self.end(exchange, "200"),
        }
        json!("pass")
    }

    fn end(&mut self, exchange: Exchange, status: &str) {
        let headers = vec![(":status".to_owned(), status.to_owned())];
        self.vm.end(exchange, headers).unwrap();
    }

    /// Whether an answer is what the step says.
    fn check(&mut self, step: &Value, answer: Value) {
        let is = &step["is"];
        let expected = if let Some(wait) = is["waitMs"].as_u64() {
            let due = self.millis() + wait;
            if let Some((at, _)) = self.waiting.last_mut() {
                *at = due;
            }
            json!({ "waits": true })
        } else if is.is_object() {
            let millis = is["retryAfterMs"].as_u64();
            json!({ "block": is["block"], "retryAfterSeconds": millis.map(seconds) })
        } else {
            is.clone()
        };
        assert_eq!(answer, expected, "{step}");
    }

    /// The status of the rules, from the headers of the latest refusal.
    fn left(&self, step: &Value) {
        let (_, _, exchange) = self.refused.as_ref().unwrap();
        let headers = exchange.response_headers.iter();
        let found = headers.filter(|(name, _)| name == "ratelimit");
        let found: Vec<&str> = found.map(|(_, value)| value.as_str()).collect();
        let row = |row: &Value| {
            let [id, remaining, reset] = &row.as_array().unwrap()[..] else {
                panic!("{row}")
            };
            let reset = seconds(reset.as_u64().unwrap());
            let waits = remaining == 0 && reset > 0;
            let time = if waits {
                format!(";t={reset}")
            } else {
                String::new()
            };
            format!("{id};r={remaining}{time}")
        };
        let rows: Vec<String> = step["is"].as_array().unwrap().iter().map(row).collect();
        assert_eq!(found, [rows.join(", ")], "{step}");
    }

    fn step(&mut self, operation: &str, step: &Value) {
        let arguments = &step[operation];
        match operation {
            "enter" => {
                for _ in 0..arguments["times"].as_u64().unwrap_or(1) {
                    let answer = self.enter(arguments);
                    self.check(step, answer);
                }
            }
            "exit" => {
                let exchange = self
                    .open
                    .remove(&arguments["id"].as_u64().unwrap())
                    .unwrap();
                let failed = arguments["error"] == json!(true);
                self.end(exchange, if failed { "500" } else { "200" });
            }
            "left" => self.left(step),
            "rules" => {
                let accepted = self
                    .vm
                    .configure(&document(arguments, self.has_exempt))
                    .unwrap();
                assert!(accepted, "{:?}", self.host.log());
                self.vm.retire_old_roots().unwrap();
                self.refused = None; // other rules stand otherwise
            }
            other => panic!("unknown operation {other}"),
        }
    }
}

/// How many steps applied, and which did not, by the reason.
fn play(module: &Module, scenario: &Value) -> (usize, BTreeMap<&'static str, Vec<usize>>) {
    let mut play = Play::new(module, scenario);
    let mut left_out: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    let mut applied = 0;
    let steps = scenario["steps"].as_array().unwrap();
    for (number, step) in steps.iter().enumerate() {
        let mut operations = step.as_object().unwrap().keys();
        let operation = operations.find(|key| !["at", "is"].contains(&key.as_str()));
        let operation = operation.unwrap();
        play.run_to(step["at"].as_u64().unwrap());
        let Some(why) = play.why_not(operation, &step[operation]) else {
            play.step(operation, step);
            applied += 1;
            continue;
        };
        let settles = operation == "exit" && !step["exit"]["cost"].is_null();
        let charges = operation == "enter" && !step["is"]["block"].is_string() || settles;
        let is_elsewhere = play
            .by_arguments
            .contains(text(&step[operation], "resource"));
        if charges && !is_elsewhere {
            left_out.entry(why).or_default().extend(number..steps.len());
            break;
        }
        left_out.entry(why).or_default().push(number);
    }
    let last = play.waiting.iter().map(|(due, _)| *due).max();
    play.run_to(last.unwrap_or(play.millis()));
    (applied, left_out)
}

#[test]
fn the_compiled_filter_answers_every_scenario_as_it_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios");
    let files = std::fs::read_dir(folder).unwrap();
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.retain(|file| {
        file.extension()
            .is_some_and(|extension| extension == "json")
    });
    files.sort();
    assert!(files.len() >= 15, "only {} scenarios", files.len());
    let module = Module::built().unwrap();
    let mut none = Vec::new();
    for file in &files {
        let name = file.file_stem().unwrap().to_str().unwrap();
        let scenario: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        // Seen whether a test fails or not: `print!` is kept back until one does.
        let mut out = std::io::stdout().lock();
        writeln!(out, "scenario {name}").unwrap();
        let (applied, left_out) = play(&module, &scenario);
        writeln!(out, "  {applied} steps are answered as it says").unwrap();
        for (why, steps) in &left_out {
            writeln!(out, "  left out, since {why}: {steps:?}").unwrap();
        }
        if applied == 0 {
            none.push(name);
        }
    }
    assert_eq!(none, LEFT_OUT, "scenarios of which no step applies");
}
