//! Sentinel's own answers, replayed. `tests/oracle/README.md` describes the traces.
//!
//! All files `<component>*.jsonl` in `tests/vectors` and the folders in it are replayed, whatever their number of traces; another
//! folder can be named in `LEAPGATE_VECTORS`. Nothing here may fit one recording alone: where an answer of ours may differ from
//! Sentinel's, a rule says when, and by how much.
//!
//! Most of Sentinel's reads open the current bucket first, which decides whether a borrowed pass counts. Reads here change
//! nothing, so the replay opens the bucket wherever Sentinel does, and only there.

use crate::support::at;
use leapgate::rule::{Counting, FlowRule, Grade, LimitApp, MaxQueueing, RuleId, Strategy, WarmUp};
use leapgate::stats::{
    ArrayMetric, BucketLeapArray, DefaultNode, LoanRule, Metric, MetricBucket, MetricEvent,
    MetricNode, Node, NodeTree, StatisticNode, Window, WindowWrap,
};
use leapgate::{Decision, Engine, Entry, Outcome, Request, Rules};
use serde_json::{Map, Value, json};
use std::collections::{HashMap, HashSet};
use std::fmt::Debug;
use std::path::{Path, PathBuf};

/// Replays every trace of `component`: `replay` is given the trace and returns what it was replayed on, for the message.
pub(crate) fn each_trace(component: &str, replay: impl Fn(&Value, &mut Steps<'_>)) {
    let folder = std::env::var_os("LEAPGATE_VECTORS").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/vectors"),
        PathBuf::from,
    );
    let mut replayed = 0;
    for file in recorded(&folder) {
        let name = file.file_name().unwrap().to_str().unwrap();
        if !name.starts_with(component) || !name.ends_with(".jsonl") {
            continue;
        }
        let name = file.to_str().unwrap();
        for (number, line) in std::fs::read_to_string(&file).unwrap().lines().enumerate() {
            let trace: Value = serde_json::from_str(line).unwrap();
            let steps = trace["steps"].as_array().unwrap();
            assert!(!steps.is_empty(), "{name}, trace {number} has no step");
            let mut steps = Steps {
                name,
                number,
                steps,
                done: 0,
            };
            replay(&trace, &mut steps);
            assert_eq!(
                steps.done,
                steps.steps.len(),
                "{name}, trace {number} was not replayed to its end"
            );
            replayed += 1;
        }
    }
    assert!(
        replayed > 0,
        "no trace of {component} in {}",
        folder.display()
    );
}

/// The files of a folder and the folders in it, in order.
fn recorded(folder: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder).unwrap();
    let mut files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    let below = |file: PathBuf| match file.is_dir() {
        true => recorded(&file),
        false => vec![file],
    };
    files.into_iter().flat_map(below).collect()
}

/// The steps of one trace, one after another.
pub(crate) struct Steps<'a> {
    pub(crate) name: &'a str,
    pub(crate) number: usize,
    steps: &'a [Value],
    done: usize,
}

/// One step: its time, its operation and the operation's arguments.
pub(crate) struct Step<'a> {
    pub(crate) now: u64,
    pub(crate) operation: &'a str,
    pub(crate) arguments: &'a Value,
    pub(crate) whole: &'a Value,
}

impl<'a> Steps<'a> {
    /// Leaves the rest out.
    pub(crate) fn skip(&mut self) {
        self.done = self.steps.len();
    }

    pub(crate) fn next(&mut self) -> Option<Step<'a>> {
        let whole = self.steps.get(self.done)?;
        self.done += 1;
        let (operation, arguments) = whole
            .as_object()
            .unwrap()
            .iter()
            .find(|(key, _)| !["t", "is"].contains(&key.as_str()))
            .unwrap();
        Some(Step {
            now: whole["t"].as_u64().unwrap(),
            operation,
            arguments,
            whole,
        })
    }

    /// Holds what we answer to the step just made against what Sentinel did.
    pub(crate) fn check(&self, step: &Step<'_>, answer: Option<Value>, on: &dyn Debug) {
        self.compare(step, answer, step.whole.get("is"), on);
    }

    /// The same against what Sentinel would have answered without a wart.
    pub(crate) fn compare(
        &self,
        step: &Step<'_>,
        answer: Option<Value>,
        is: Option<&Value>,
        on: &dyn Debug,
    ) {
        assert!(
            answer.as_ref() == is,
            "{}, trace {}, step {}: {}\n  Sentinel: {}\n  here:     {}\n  {on:?}",
            self.name,
            self.number,
            self.done - 1,
            step.whole,
            is.map_or("nothing".into(), Value::to_string),
            answer.map_or("nothing".into(), |answer| answer.to_string()),
        );
    }
}

pub(crate) fn n(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

fn geometry(trace: &Value) -> Window {
    Window::new(n(&trace["intervalMs"]), n(&trace["sampleCount"]) as u32).unwrap()
}

fn start_and_pass(wrap: &WindowWrap<MetricBucket>) -> Value {
    json!({ "start": wrap.start().unwrap().as_millis(), "pass": wrap.value().get(MetricEvent::Pass) })
}

#[test]
fn leap_array_answers_as_sentinels() {
    each_trace("leap_array", |trace, steps| {
        let array = BucketLeapArray::new(geometry(trace));
        while let Some(step) = steps.next() {
            let now = at(step.now);
            let answer = match step.operation {
                "currentWindow" => {
                    let wrap = array.current_window(now);
                    wrap.value()
                        .add(MetricEvent::Pass, n(&step.arguments["addPass"]));
                    start_and_pass(wrap)
                }
                "list" => {
                    array.current_window(now);
                    array.list(now).map(start_and_pass).collect()
                }
                "windowValue" => array
                    .window_value(at(n(&step.arguments["at"])))
                    .map(|bucket| bucket.get(MetricEvent::Pass))
                    .into(),
                "previousWindow" => {
                    array.current_window(now);
                    array.previous_window(now).map(start_and_pass).into()
                }
                other => panic!("unknown operation {other}"),
            };
            steps.check(&step, Some(answer), &array);
        }
    });
}

fn detail(node: &MetricNode) -> Value {
    json!({
        "timestamp": node.timestamp.as_millis(), "pass": node.pass, "block": node.block, "success": node.success,
        "exception": node.exception, "rt": node.rt, "occupiedPass": node.occupied_pass,
    })
}

#[test]
fn array_metric_answers_as_sentinels() {
    each_trace("array_metric", |trace, steps| {
        let window = geometry(trace);
        let metric = match trace["enableOccupy"].as_bool().unwrap() {
            true => ArrayMetric::borrowing(window, window, LoanRule::Sentinel),
            false => ArrayMetric::new(window),
        };
        while let Some(step) = steps.next() {
            let (now, argument) = (at(step.now), step.arguments);
            if !["addWaiting", "waiting"].contains(&step.operation) {
                metric.current(now);
            }
            let add = |event| {
                metric.add(event, n(argument), now);
                None
            };
            let answer = match step.operation {
                "addPass" => add(MetricEvent::Pass),
                "addBlock" => add(MetricEvent::Block),
                "addSuccess" => add(MetricEvent::Success),
                "addException" => add(MetricEvent::Exception),
                "addOccupiedPass" => add(MetricEvent::OccupiedPass),
                "addRt" => {
                    metric.current(now).add_rt(n(argument));
                    None
                }
                "addWaiting" => {
                    metric.add_waiting(at(n(&argument["at"])), n(&argument["count"]));
                    None
                }
                "pass" => Some(metric.pass(now).into()),
                "block" => Some(metric.block(now).into()),
                "success" => Some(metric.success(now).into()),
                "exception" => Some(metric.exception(now).into()),
                "rt" => Some(metric.rt(now).into()),
                "minRt" => Some(metric.min_rt(now).into()),
                "maxSuccess" => Some(metric.max_success(now).into()),
                "previousWindowPass" => Some(metric.previous_window_pass(now).into()),
                "occupiedPass" => Some(metric.occupied_pass(now).into()),
                "waiting" => Some(metric.waiting(now).into()),
                "details" => Some(metric.details(now).iter().map(detail).collect()),
                other => panic!("unknown operation {other}"),
            };
            steps.check(&step, answer, &metric);
        }
    });
}

#[test]
fn statistic_node_answers_as_sentinels() {
    each_trace("statistic_node", |_, steps| {
        let node = StatisticNode::new(LoanRule::Sentinel);
        while let Some(step) = steps.next() {
            let (now, argument) = (at(step.now), step.arguments);
            match step.operation {
                "passQps" | "blockQps" | "totalQps" | "successQps" | "exceptionQps"
                | "maxSuccessQps" | "avgRt" | "minRt" => {
                    node.touch(now);
                }
                // Refused outright, where as much is borrowed as may be, before the current second is looked at.
                "tryOccupyNext" if node.waiting(now) < n(&argument["threshold"]) => node.touch(now),
                _ => {} // of the minute, of calls in flight or of loans; what is added opens the bucket by itself
            }
            steps.check(&step, operate(&node, &step), &node);
        }
    });
}

/// The answer of an operation; `None` if it records something.
fn operate(node: &StatisticNode, step: &Step<'_>) -> Option<Value> {
    let (now, argument) = (at(step.now), step.arguments);
    match step.operation {
        "addPassRequest" => node.add_pass_request(n(argument), now),
        "increaseBlockQps" => node.increase_block_qps(n(argument), now),
        "increaseExceptionQps" => node.increase_exception_qps(n(argument), now),
        "addRtAndSuccess" => {
            node.add_rt_and_success(n(&argument["rt"]), n(&argument["success"]), now)
        }
        "increaseThreadNum" => node.increase_thread_num(),
        "decreaseThreadNum" => node.decrease_thread_num(),
        "addOccupiedPass" => node.add_occupied_pass(n(argument), now),
        "addWaitingRequest" => {
            node.add_waiting_request(at(n(&argument["at"])), n(&argument["acquire"]))
        }
        "tryOccupyNext" => {
            let threshold = argument["threshold"].as_f64().unwrap();
            return Some(
                node.try_occupy_next(n(&argument["acquire"]), threshold, now)
                    .into(),
            );
        }
        value => return Some(value_of(node, value, now)),
    }
    None
}

/// The values of a node by Sentinel's names.
const VALUES: [&str; 18] = [
    "passQps",
    "blockQps",
    "totalQps",
    "successQps",
    "exceptionQps",
    "avgRt",
    "minRt",
    "curThreadNum",
    "totalRequest",
    "totalPass",
    "totalSuccess",
    "blockRequest",
    "totalException",
    "previousPassQps",
    "previousBlockQps",
    "maxSuccessQps",
    "occupiedPassQps",
    "waiting",
];

pub(crate) fn value_of(node: &dyn Node, value: &str, now: leapgate::Timestamp) -> Value {
    match value {
        "passQps" => node.pass_qps(now).into(),
        "blockQps" => node.block_qps(now).into(),
        "totalQps" => node.total_qps(now).into(),
        "successQps" => node.success_qps(now).into(),
        "exceptionQps" => node.exception_qps(now).into(),
        "avgRt" => node.avg_rt(now).into(),
        "minRt" => node.min_rt(now).into(),
        "curThreadNum" => node.cur_thread_num().into(),
        "totalRequest" => node.total_request(now).into(),
        "totalPass" => node.total_pass(now).into(),
        "totalSuccess" => node.total_success(now).into(),
        "blockRequest" => node.block_request(now).into(),
        "totalException" => node.total_exception(now).into(),
        "previousPassQps" => node.previous_pass_qps(now).into(),
        "previousBlockQps" => node.previous_block_qps(now).into(),
        "maxSuccessQps" => node.max_success_qps(now).into(),
        "occupiedPassQps" => node.occupied_pass_qps(now).into(),
        "waiting" => node.waiting(now).into(),
        other => panic!("unknown value {other}"),
    }
}

/// A flow rule, as Sentinel's recorder writes it.
pub(crate) fn flow_rule(resource: &str, written: &Value) -> FlowRule {
    let rule = FlowRule::new(resource, written["count"].as_f64().unwrap()).unwrap();
    let rule = match n(&written["grade"]) {
        0 => rule.concurrency(),
        1 => rule,
        other => panic!("unknown grade {other}"),
    };
    let behavior = written["controlBehavior"].as_u64().unwrap_or(0);
    let warm_up = || WarmUp::new(n(&written["warmUpPeriodSec"]) as u32, 3).unwrap();
    let max_queueing = || MaxQueueing::from_millis(n(&written["maxQueueingTimeMs"])).unwrap();
    let rule = match behavior {
        0 => rule,
        1 => rule.warm_up(warm_up()),
        2 => rule.throttle(max_queueing()),
        3 => rule.warm_up_throttle(warm_up(), max_queueing()),
        other => panic!("unknown behaviour {other}"),
    };
    let reference = || written["refResource"].as_str().unwrap();
    let rule = match written["strategy"].as_u64().unwrap_or(0) {
        0 => rule,
        1 => rule.relate(reference()).unwrap(),
        2 => rule.chain(reference()).unwrap(),
        other => panic!("unknown strategy {other}"),
    };
    let limit_app = LimitApp::new(written["limitApp"].as_str().unwrap_or("default")).unwrap();
    rule.for_origin(limit_app).sentinel()
}

pub(crate) fn outcome(exit: &Value) -> Outcome {
    if exit["error"].as_bool().unwrap() {
        Outcome::Error
    } else {
        Outcome::Success
    }
}

fn decides_as_sentinel(component: &str) {
    each_trace(component, |trace, steps| {
        let rules = Rules {
            flow: vec![flow_rule("service", &trace["flowRule"])],
            ..Rules::default()
        };
        let engine = Engine::new(rules).unwrap();
        let mut open: HashMap<u64, Entry> = HashMap::new();
        while let Some(step) = steps.next() {
            let (now, id) = (at(step.now), n(&step.arguments["id"]));
            let answer = match step.operation {
                "enter" => {
                    let cost = n(&step.arguments["acquire"]) as u32;
                    let request = Request::new("service").cost(cost);
                    let request = match step.arguments["prioritized"].as_bool().unwrap() {
                        true => request.prioritized(),
                        false => request,
                    };
                    match engine.enter(&request, now) {
                        Decision::Pass(entry) => {
                            open.insert(id, entry);
                            Some(json!("pass"))
                        }
                        Decision::Wait(wait, entry) => {
                            open.insert(id, entry);
                            Some(json!({ "wait": wait.as_millis() as u64 }))
                        }
                        Decision::Block(_) => Some(json!({ "block": "flow" })),
                    }
                }
                "exit" => {
                    open.remove(&id).unwrap().exit(outcome(step.arguments), now);
                    None
                }
                other => panic!("unknown operation {other}"),
            };
            let node = engine.store().tree().unwrap().cluster("service").unwrap();
            steps.check(&step, answer, node.statistics());
        }
    });
}

#[test]
fn a_compatible_flow_rule_decides_as_sentinels() {
    decides_as_sentinel("flow_reject");
}

#[test]
fn a_compatible_limit_on_concurrency_decides_as_sentinels() {
    decides_as_sentinel("flow_concurrency");
}

#[test]
fn a_compatible_rule_lends_as_sentinels() {
    decides_as_sentinel("flow_priority");
}

#[test]
fn a_compatible_throttle_paces_as_sentinels() {
    decides_as_sentinel("flow_throttle");
}

#[test]
fn a_compatible_warm_up_decides_as_sentinels() {
    decides_as_sentinel("flow_warm_up");
}

#[test]
fn compatible_rules_by_origin_relation_and_context_decide_as_sentinels() {
    origin_relate_chain(&|rule, _| Some(rule));
}

/// Until the resource that a rule measures is first entered, Sentinel lets every request pass, at any cost: there the default
/// differs, and such rules are left out until then.
#[test]
fn rules_by_origin_relation_and_context_decide_as_sentinels_where_windows_are() {
    origin_relate_chain(&|rule, entered| {
        let counts = FlowRule::new(rule.target().as_str(), rule.count().get()).unwrap();
        let counts = match rule.grade() {
            Grade::Concurrency => counts.concurrency(),
            Grade::Qps { .. } => counts
                .per(1000, Some(2))
                .unwrap()
                .counting(Counting::Sentinel),
        };
        let counts = match rule.strategy() {
            Strategy::Direct => counts,
            Strategy::Relate(name) if !entered.contains(&**name) => return None,
            Strategy::Relate(name) => counts.relate(name).unwrap(),
            Strategy::Chain(name) => counts.chain(name).unwrap(),
        };
        Some(
            counts
                .for_origin(rule.limit_app().clone())
                .with_id(rule.id()),
        )
    });
}

/// Replays on what `as_other` makes of the rules when these resources have been entered.
fn origin_relate_chain(as_other: &dyn Fn(FlowRule, &HashSet<&str>) -> Option<FlowRule>) {
    each_trace("origin_relate_chain", |trace, steps| {
        let rules = |entered: &HashSet<&str>| {
            let flow = trace["flowRules"].as_array().unwrap().iter().enumerate();
            let rule = |(i, rule): (usize, &Value)| {
                let id = RuleId::new(&i.to_string()).unwrap();
                let rule = flow_rule(rule["resource"].as_str().unwrap(), rule).with_id(id);
                as_other(rule, entered)
            };
            Rules {
                flow: flow.filter_map(rule).collect(),
                ..Rules::default()
            }
        };
        let mut entered = HashSet::new();
        let engine = Engine::new(rules(&entered)).unwrap();
        let mut open: HashMap<u64, Entry> = HashMap::new();
        while let Some(step) = steps.next() {
            let (now, arguments) = (at(step.now), step.arguments);
            let id = n(&arguments["id"]);
            let answer = match step.operation {
                "enter" => {
                    let text = |key: &str| arguments[key].as_str().unwrap();
                    if entered.insert(text("resource")) {
                        engine.replace(rules(&entered)).unwrap();
                    }
                    let request = Request::new(text("resource"))
                        .context(text("context"))
                        .origin(text("origin"))
                        .cost(n(&arguments["acquire"]) as u32);
                    match engine.enter(&request, now) {
                        Decision::Pass(entry) => {
                            open.insert(id, entry);
                            Some(json!("pass"))
                        }
                        Decision::Wait(wait, _) => panic!("waits for {wait:?}"),
                        Decision::Block(blocked) => {
                            let rule: u64 = blocked.id().as_str().parse().unwrap();
                            Some(json!({ "block": "flow", "rule": rule }))
                        }
                    }
                }
                "exit" => {
                    open.remove(&id).unwrap().exit(outcome(arguments), now);
                    None
                }
                other => panic!("unknown operation {other}"),
            };
            steps.check(&step, answer, &step.now);
        }
    });
}

/// The resources below a node, by name, nested.
fn below(children: &[std::rc::Rc<DefaultNode>]) -> Value {
    let nested =
        |node: &std::rc::Rc<DefaultNode>| (node.resource().to_string(), below(&node.children()));
    Value::Object(children.iter().map(nested).collect::<Map<_, _>>())
}

/// The node that a dump names, if it exists, shown by `show`.
pub(crate) fn dump(tree: &NodeTree, place: &Value, show: impl Fn(&dyn Node) -> Value) -> Value {
    let (kind, names) = place.as_object().unwrap().iter().next().unwrap();
    let name = |key: &str| names[key].as_str().unwrap();
    let shown = match kind.as_str() {
        "default" => tree
            .default_node(name("context"), name("resource"))
            .map(|node| show(node.statistics())),
        "cluster" => tree
            .cluster(name("resource"))
            .map(|node| show(node.statistics())),
        "origin" => tree
            .cluster(name("resource"))
            .and_then(|node| node.origin(name("origin")))
            .map(|node| show(&*node)),
        "entrance" => tree.entrance(name("context")).map(|node| show(&*node)),
        "inbound" => Some(show(tree.inbound().statistics())),
        "root" => Some(show(&**tree.root())),
        other => panic!("unknown kind of node {other}"),
    };
    shown.unwrap_or(Value::Null)
}

/// Borrowed passes that Sentinel's node of the resource does not report. It loses a pass if no request reads the node in the
/// half second that pays for it, while such passes count here; and its `occupiedPassQps` is always 0, while here it is the
/// passes borrowed in the last second.
#[derive(Default)]
struct Borrowed {
    loans: Vec<Loan>,
    /// The nodes that were read, and the start of the half second.
    looks: HashSet<(String, u64)>,
}

struct Loan {
    resource: String,
    passes: u64,
    /// When the half second starts in which it was borrowed, and the one that pays for it.
    taken: u64,
    due: u64,
}

impl Borrowed {
    fn half(now: u64) -> u64 {
        now - now % 500
    }

    fn look(&mut self, resource: &str, now: u64) {
        self.looks.insert((resource.into(), Borrowed::half(now)));
    }

    /// How many of the resource's passes that count now fulfil a condition on the start of a half second.
    fn sum(&self, resource: &str, now: u64, start: impl Fn(&Loan) -> Option<u64>) -> f64 {
        let half = Borrowed::half(now);
        let counts = |loan: &&Loan| {
            let start = start(loan);
            loan.resource == resource && (start == Some(half) || start == Some(half - 500))
        };
        let passes = self.loans.iter().filter(counts).map(|loan| loan.passes);
        passes.sum::<u64>() as f64
    }

    /// Sentinel's values of the node of a resource, plus the passes that it does not report.
    fn added_to(&self, is: &Value, resource: &str, now: u64) -> Value {
        let is_seen = |loan: &Loan| self.looks.contains(&(loan.resource.clone(), loan.due));
        let lost = self.sum(resource, now, |loan| (!is_seen(loan)).then_some(loan.due));
        let occupied = self.sum(resource, now, |loan| Some(loan.taken));
        let mut is = is.clone();
        for (rate, more) in [
            ("passQps", lost),
            ("totalQps", lost),
            ("occupiedPassQps", occupied),
        ] {
            is[rate] = (is[rate].as_f64().unwrap() + more).into();
        }
        is
    }
}

#[test]
fn the_node_tree_reports_what_sentinels_does_and_the_borrowed_passes_that_it_omits() {
    each_trace("node_tree", |trace, steps| {
        let mut borrowed = Borrowed::default();
        let mut resources: HashMap<u64, String> = HashMap::new();
        let written = trace["flowRules"].as_array().unwrap();
        let rule = |(i, rule): (usize, &Value)| {
            let id = RuleId::new(&i.to_string()).unwrap();
            flow_rule(rule["resource"].as_str().unwrap(), rule).with_id(id)
        };
        let flow = written.iter().enumerate().map(rule).collect();
        let engine = Engine::new(Rules {
            flow,
            ..Rules::default()
        })
        .unwrap();
        let tree = engine.store().tree().unwrap();
        let mut open: HashMap<u64, Entry> = HashMap::new();
        while let Some(step) = steps.next() {
            let (now, arguments) = (at(step.now), step.arguments);
            let answer = match step.operation {
                "enter" => {
                    let text = |key: &str| arguments[key].as_str().unwrap();
                    let request = Request::new(text("resource"))
                        .context(text("context"))
                        .origin(text("origin"))
                        .cost(n(&arguments["acquire"]) as u32);
                    let request = match arguments["prioritized"].as_bool() {
                        Some(true) => request.prioritized(),
                        _ => request,
                    };
                    let request = if text("type") == "IN" {
                        request.inbound()
                    } else {
                        request
                    };
                    let decision = match arguments["parent"].as_u64() {
                        Some(parent) => engine.enter(&request.within(&open[&parent]), now),
                        None => engine.enter(&request, now),
                    };
                    borrowed.look(text("resource"), step.now);
                    resources.insert(n(&arguments["id"]), text("resource").into());
                    match decision {
                        Decision::Pass(entry) => {
                            open.insert(n(&arguments["id"]), entry);
                            Some(json!("pass"))
                        }
                        Decision::Wait(wait, entry) => {
                            open.insert(n(&arguments["id"]), entry);
                            borrowed.loans.push(Loan {
                                resource: text("resource").into(),
                                passes: n(&arguments["acquire"]),
                                taken: Borrowed::half(step.now),
                                due: Borrowed::half(step.now + wait.as_millis() as u64),
                            });
                            Some(json!({ "wait": wait.as_millis() as u64 }))
                        }
                        Decision::Block(blocked) => {
                            let rule: u64 = blocked.id().as_str().parse().unwrap();
                            Some(json!({ "block": "flow", "rule": rule }))
                        }
                    }
                }
                "exit" => {
                    borrowed.look(&resources[&n(&arguments["id"])], step.now);
                    let entry = open.remove(&n(&arguments["id"])).unwrap();
                    entry.exit(outcome(arguments), now);
                    None
                }
                "dump" => Some(dump(tree, arguments, |node| {
                    VALUES
                        .iter()
                        .map(|value| (value.to_string(), value_of(node, value, now)))
                        .collect()
                })),
                "tree" => {
                    let entrance = tree.entrance(arguments["context"].as_str().unwrap());
                    Some(entrance.map_or(Value::Null, |entrance| below(&entrance.children())))
                }
                other => panic!("unknown operation {other}"),
            };
            if let Some(resource) = step.arguments["cluster"]["resource"].as_str() {
                borrowed.look(resource, step.now);
                if let is @ Value::Object(_) = &step.whole["is"] {
                    let is = borrowed.added_to(is, resource, step.now);
                    steps.compare(&step, answer, Some(&is), &now);
                    continue;
                }
            }
            steps.check(&step, answer, &now);
        }
    });
}
