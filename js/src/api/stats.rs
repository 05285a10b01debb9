//! The statistics by themselves: leap arrays, metrics, nodes, and the node tree and the counters of an engine.
//!
//! Each is known by a number. What is more than a number is told as rows of doubles ([`stats_told`]); names are told in the
//! buffer, each with its length before it.

use crate::layout::NONE;
use crate::rules::for_each_rule;
use crate::seed::LateSeed;
use crate::shell::shell;
use crate::slab::Slab;
use crate::texts::Texts;
use crate::time::instant;
use crate::tree;
use leapgate::config::{At, Fields};
use leapgate::{
    ArrayMetric, BucketLeapArray, ClusterNode, DefaultNode, Engine, EntranceNode, KeyedStates,
    MAX_SAMPLE_COUNT, Metric, MetricBucket, MetricEvent, MetricNode, Node, NodeTree, RuleGeometry,
    StatisticNode, Timestamp, Untouched, View, Window, WindowWrap,
};
use std::cell::RefCell;
use std::rc::Rc;
use wasm_bindgen::prelude::wasm_bindgen;

/// The statistics of a node, wherever it stands.
#[derive(Clone)]
enum Place {
    /// By itself, or below its resource: an origin's.
    Alone(Rc<StatisticNode>),
    Cluster(Rc<ClusterNode>),
    Default(Rc<DefaultNode>),
    Entrance(Rc<EntranceNode>),
}

impl Place {
    fn node(&self) -> &dyn Node {
        match self {
            Place::Entrance(node) => &**node,
            Place::Alone(node) => &**node,
            Place::Cluster(node) => node.statistics(),
            Place::Default(node) => node.statistics(),
        }
    }

    /// Where something is recorded; an entrance only adds up.
    fn statistics(&self) -> Option<&StatisticNode> {
        match self {
            Place::Entrance(_) => None,
            Place::Alone(node) => Some(node),
            Place::Cluster(node) => Some(node.statistics()),
            Place::Default(node) => Some(node.statistics()),
        }
    }
}

/// What has a number.
enum Held {
    Array(Box<BucketLeapArray>),
    Metric(Rc<ArrayMetric>),
    View(Rc<ArrayMetric>, View),
    Node(Place),
    Second(Place),
    Minute(Place),
}

impl Held {
    fn metric<R>(&self, read: impl FnOnce(&dyn Metric) -> R) -> Option<R> {
        Some(match self {
            Held::Metric(metric) => read(&**metric),
            Held::View(metric, view) => read(&metric.view(*view)),
            Held::Second(place) => read(&place.statistics()?.second()),
            Held::Minute(place) => read(&place.statistics()?.minute()),
            Held::Array(_) | Held::Node(_) => return None,
        })
    }

    /// The bucket in which something is recorded, opened if need be.
    fn bucket(&self, now: Timestamp) -> Option<&MetricBucket> {
        match self {
            Held::Array(array) => Some(array.current_window(now).value()),
            Held::Metric(metric) => Some(metric.current(now)),
            _ => None,
        }
    }

    fn window(&self) -> Option<Window> {
        match self {
            Held::Array(array) => Some(array.window()),
            held => held.metric(|metric| metric.window()),
        }
    }
}

#[derive(Default)]
struct Stats {
    held: Slab<Held>,
    /// What was told last.
    told: Vec<f64>,
}

thread_local! {
    static STATS: RefCell<Stats> = RefCell::default();
}

fn add(held: Held) -> f64 {
    STATS.with_borrow_mut(|stats| stats.held.add(held)).into()
}

/// What `read` makes of that which has this number. Nothing else has been handed out, so that `None` is never seen.
fn with<R>(number: u32, read: impl FnOnce(&Held) -> Option<R>) -> Option<R> {
    STATS.with_borrow(|stats| stats.held.get(number).and_then(read))
}

/// The same, of a number; not a number where there is none.
fn number(number: u32, read: impl FnOnce(&Held) -> Option<f64>) -> f64 {
    with(number, read).unwrap_or(f64::NAN)
}

/// The same, of rows that are told. How many doubles these are.
fn tell(number: u32, read: impl FnOnce(&Held, &mut Vec<f64>) -> Option<()>) -> usize {
    STATS.with_borrow_mut(|stats| {
        let mut told = std::mem::take(&mut stats.told);
        told.clear();
        stats
            .held
            .get(number)
            .and_then(|held| read(held, &mut told));
        stats.told = told;
        stats.told.len()
    })
}

fn event(index: usize) -> Option<MetricEvent> {
    MetricEvent::ALL.get(index).copied()
}

fn millis(at: Timestamp) -> f64 {
    at.as_millis() as f64
}

/// A response time, negative where there is none.
fn perhaps(rt: Option<u64>) -> f64 {
    rt.map_or(-1.0, |rt| rt as f64)
}

/// When a bucket starts, its counts in the order of events, and its extremes.
fn tell_bucket(told: &mut Vec<f64>, start: Timestamp, bucket: &MetricBucket) {
    told.push(millis(start));
    told.extend(MetricEvent::ALL.map(|event| bucket.get(event) as f64));
    told.extend([
        bucket.min_rt() as f64,
        perhaps(bucket.shortest_rt()),
        perhaps(bucket.max_rt()),
        bucket.max_concurrency() as f64,
    ]);
}

fn tell_details(told: &mut Vec<f64>, nodes: &[MetricNode]) {
    for node in nodes {
        told.push(millis(node.timestamp));
        let counts = [
            node.pass,
            node.block,
            node.success,
            node.exception,
            node.rt,
            node.occupied_pass,
            node.concurrency,
        ];
        told.extend(counts.map(|n| n as f64));
    }
}

/// Where rows are told. It moves with each telling.
#[wasm_bindgen]
pub fn stats_told() -> *const f64 {
    STATS.with_borrow(|stats| stats.told.as_ptr())
}

/// Drops what has this number.
#[wasm_bindgen]
pub fn stats_free(number: u32) {
    STATS.with_borrow_mut(|stats| drop(stats.held.take(number)));
}

// ---- what can be made ----

const GEOMETRY: [&str; 2] = ["intervalMs", "sampleCount"];
const BORROWING: [&str; 3] = ["intervalMs", "sampleCount", "untouched"];
const UNTOUCHED: [&str; 1] = ["untouched"];

/// A sentence about what is wrong.
struct Wrong(String);

impl<E: std::fmt::Display> From<E> for Wrong {
    fn from(error: E) -> Wrong {
        Wrong(error.to_string())
    }
}

fn geometry(fields: &Fields<'_>) -> Result<Window, Wrong> {
    let interval = fields.need("intervalMs")?;
    let interval_ms = interval.integer(1..=Window::MAX_INTERVAL_MS)?;
    let samples = fields.get("sampleCount");
    let sample_count = match &samples {
        Some(samples) => Some(samples.integer(1..=MAX_SAMPLE_COUNT.into())? as u32),
        None => None,
    };
    let geometry = RuleGeometry::new(interval_ms, sample_count).map_err(|error| {
        // All else has been looked at: it is the number of buckets, where one is given.
        format!("{}: {error}", samples.unwrap_or(interval))
    })?;
    Ok(geometry.window())
}

fn untouched(fields: &Fields<'_>) -> Result<Untouched, Wrong> {
    let choices = [("kept", Untouched::Kept), ("lost", Untouched::Lost)];
    match fields.get("untouched") {
        Some(given) => Ok(given.one_of(&choices)?),
        None => Ok(Untouched::Kept),
    }
}

fn array(at: &At<'_>) -> Result<Held, Wrong> {
    let window = geometry(&at.object(&GEOMETRY)?)?;
    Ok(Held::Array(Box::new(BucketLeapArray::new(window))))
}

fn metric(at: &At<'_>) -> Result<Held, Wrong> {
    let fields = at.object(&BORROWING)?;
    let (window, untouched) = (geometry(&fields)?, untouched(&fields)?);
    let metric = ArrayMetric::borrowing(window, window, untouched);
    Ok(Held::Metric(Rc::new(metric)))
}

fn node(at: &At<'_>) -> Result<Held, Wrong> {
    let node = StatisticNode::new(untouched(&at.object(&UNTOUCHED)?)?);
    Ok(Held::Node(Place::Alone(Rc::new(node))))
}

fn make(bytes: usize, of: impl FnOnce(&At<'_>) -> Result<Held, Wrong>) -> f64 {
    let options = shell(|shell| tree::read(shell.buffer.bytes(bytes)));
    match of(&At::new("options", &options)) {
        Ok(held) => add(held),
        Err(Wrong(sentence)) => -shell(|shell| shell.buffer.say(&sentence)),
    }
}

/// Makes a leap array of the options in the buffer. Its number; or, negative, how long the sentence in the buffer is that
/// says what is wrong.
#[wasm_bindgen]
pub fn array_new(bytes: usize) -> f64 {
    make(bytes, array)
}

/// The same, of a metric.
#[wasm_bindgen]
pub fn metric_new(bytes: usize) -> f64 {
    make(bytes, metric)
}

/// The same, of a node.
#[wasm_bindgen]
pub fn node_new(bytes: usize) -> f64 {
    make(bytes, node)
}

/// The same, of a coarser view of a metric.
#[wasm_bindgen]
pub fn metric_view(metric: u32, bytes: usize) -> f64 {
    let Some(metric) = with(metric, |held| match held {
        Held::Metric(metric) => Some(Rc::clone(metric)),
        _ => None,
    }) else {
        return f64::NAN;
    };
    make(bytes, |at| {
        let window = geometry(&at.object(&GEOMETRY)?)?;
        let view =
            View::sliding(metric.window(), window).map_err(|error| format!("{at}: {error}"))?;
        Ok(Held::View(metric, view))
    })
}

/// The number of a node's last second, or of its last minute.
#[wasm_bindgen]
pub fn node_window(node: u32, minute: bool) -> f64 {
    let place = with(node, |held| match held {
        Held::Node(place) => Some(place.clone()),
        _ => None,
    });
    place.map_or(f64::NAN, |place| {
        add(if minute {
            Held::Minute(place)
        } else {
            Held::Second(place)
        })
    })
}

/// Tells the length of the window in milliseconds, and into how many buckets it is cut.
#[wasm_bindgen]
pub fn stats_window(number: u32) -> usize {
    tell(number, |held, told| {
        let window = held.window()?;
        told.extend([window.interval_ms() as f64, window.sample_count().into()]);
        Some(())
    })
}

// ---- what is recorded ----

/// Records `n` of an event, in the current bucket of an array or a metric.
#[wasm_bindgen]
pub fn stats_add(number: u32, event_index: usize, n: f64, now: f64) {
    with(number, |held| {
        held.bucket(instant(now))?
            .add(event(event_index)?, n as u64);
        Some(())
    });
}

/// Records a response time there.
#[wasm_bindgen]
pub fn stats_add_rt(number: u32, rt: f64, now: f64) {
    with(number, |held| {
        held.bucket(instant(now))?.add_rt(rt as u64);
        Some(())
    });
}

/// Records there how many calls are in flight.
#[wasm_bindgen]
pub fn stats_update_concurrency(number: u32, in_flight: f64, now: f64) {
    with(number, |held| {
        let bucket = held.bucket(instant(now))?;
        bucket.update_concurrency(in_flight as u64);
        Some(())
    });
}

/// Opens the current bucket.
#[wasm_bindgen]
pub fn stats_touch(number: u32, now: f64) {
    with(number, |held| {
        match held {
            Held::Node(place) => place.statistics()?.touch(instant(now)),
            held => drop(held.bucket(instant(now))?),
        }
        Some(())
    });
}

// ---- leap arrays ----

/// Tells one bucket: 0 is the current one, which is opened; 1 the one before; 2 the valid head; 3 that of `at`, whether it
/// counts or not.
#[wasm_bindgen]
pub fn array_bucket(array: u32, which: u32, at: f64) -> usize {
    tell(array, |held, told| {
        let (Held::Array(array), at) = (held, instant(at)) else {
            return None;
        };
        let wrap = match which {
            0 => array.current_window(at),
            1 => array.previous_window(at)?,
            2 => array.valid_head(at)?,
            _ => {
                tell_bucket(told, array.window().start(at), array.window_value(at)?);
                return Some(());
            }
        };
        tell_bucket(told, wrap.start()?, wrap.value());
        Some(())
    })
}

/// Tells the buckets that count at `now`, or `all` that are still there.
#[wasm_bindgen]
pub fn array_list(array: u32, all: bool, now: f64) -> usize {
    tell(array, |held, told| {
        let Held::Array(array) = held else {
            return None;
        };
        let mut tell = |wrap: &WindowWrap<MetricBucket>| {
            tell_bucket(told, wrap.start().unwrap_or(Timestamp::ZERO), wrap.value());
        };
        if all {
            array.list_all().for_each(&mut tell);
        } else {
            array.list(instant(now)).for_each(&mut tell);
        }
        Some(())
    })
}

/// Which slot of the ring the bucket of `at` takes.
#[wasm_bindgen]
pub fn array_index(array: u32, at: f64) -> f64 {
    number(array, |held| Some(held.window()?.index(instant(at)) as f64))
}

/// When the bucket of `at` starts.
#[wasm_bindgen]
pub fn array_start(array: u32, at: f64) -> f64 {
    number(array, |held| {
        Some(millis(held.window()?.start(instant(at))))
    })
}

// ---- metrics ----

/// How often an event happened in the window.
#[wasm_bindgen]
pub fn metric_sum(metric: u32, event_index: usize, now: f64) -> f64 {
    read(metric, |metric| {
        Some(metric.sum(event(event_index)?, instant(now)) as f64)
    })
}

/// The same, per second.
#[wasm_bindgen]
pub fn metric_average(metric: u32, event_index: usize, now: f64) -> f64 {
    read(metric, |metric| {
        Some(metric.average(event(event_index)?, instant(now)))
    })
}

/// How often an event happened in the bucket of `at`.
#[wasm_bindgen]
pub fn metric_window_sum(metric: u32, event_index: usize, at: f64) -> f64 {
    read(metric, |metric| {
        Some(metric.window_sum(event(event_index)?, instant(at)) as f64)
    })
}

/// How often an event happened in the bucket before the current one.
#[wasm_bindgen]
pub fn metric_previous(metric: u32, event_index: usize, now: f64) -> f64 {
    read(metric, |metric| {
        Some(metric.previous_window_sum(event(event_index)?, instant(now)) as f64)
    })
}

/// An extreme: the most successes of a bucket, the lowest response time as Sentinel tells it, the shortest and the longest
/// one, negative for none, the most calls in flight.
#[wasm_bindgen]
pub fn metric_extreme(metric: u32, which: u32, now: f64) -> f64 {
    let now = instant(now);
    read(metric, |metric| {
        Some(match which {
            0 => metric.max_success(now) as f64,
            1 => metric.min_rt(now) as f64,
            2 => perhaps(metric.shortest_rt(now)),
            3 => perhaps(metric.max_rt(now)),
            _ => metric.max_concurrency(now) as f64,
        })
    })
}

fn read(number_of: u32, read: impl FnOnce(&dyn Metric) -> Option<f64>) -> f64 {
    number(number_of, |held| held.metric(read).flatten())
}

/// Tells what happened in each bucket.
#[wasm_bindgen]
pub fn metric_details(metric: u32, now: f64) -> usize {
    tell(metric, |held, told| {
        let details = held.metric(|metric| metric.details(instant(now)))?;
        tell_details(told, &details);
        Some(())
    })
}

/// Borrows `n` passes from the bucket of `at`.
#[wasm_bindgen]
pub fn metric_add_waiting(metric: u32, at: f64, n: f64) {
    with(metric, |held| {
        if let Held::Metric(metric) = held {
            metric.add_waiting(instant(at), n as u64);
        }
        Some(())
    });
}

/// How many borrowed passes are still to come.
#[wasm_bindgen]
pub fn metric_waiting(metric: u32, now: f64) -> f64 {
    number(metric, |held| match held {
        Held::Metric(metric) => Some(metric.waiting(instant(now)) as f64),
        _ => None,
    })
}

// ---- nodes ----

/// One of the values of a node: `js/lib/stats.js` has their names, in this order.
#[wasm_bindgen]
pub fn node_value(node: u32, which: u32, now: f64) -> f64 {
    let now = instant(now);
    number(node, |held| {
        let Held::Node(place) = held else { return None };
        let node = place.node();
        Some(match which {
            0 => node.pass_qps(now),
            1 => node.block_qps(now),
            2 => node.total_qps(now),
            3 => node.success_qps(now),
            4 => node.exception_qps(now),
            5 => node.occupied_pass_qps(now),
            6 => node.max_success_qps(now),
            7 => node.avg_rt(now),
            8 => node.min_rt(now),
            9 => node.previous_pass_qps(now),
            10 => node.previous_block_qps(now),
            11 => node.total_request(now) as f64,
            12 => node.total_pass(now) as f64,
            13 => node.total_success(now) as f64,
            14 => node.total_exception(now) as f64,
            15 => node.block_request(now) as f64,
            16 => node.cur_thread_num() as f64,
            _ => node.waiting(now) as f64,
        })
    })
}

/// Records something: `js/lib/stats.js` has the names, in this order, and what `a` and `b` are.
#[wasm_bindgen]
pub fn node_record(node: u32, what: u32, a: f64, b: f64, now: f64) {
    let (at, now, n) = (instant(a), instant(now), a as u64);
    with(node, |held| {
        let Held::Node(place) = held else { return None };
        let node = place.statistics()?;
        match what {
            0 => node.add_pass_request(n, now),
            1 => node.increase_block_qps(n, now),
            2 => node.increase_exception_qps(n, now),
            3 => node.add_occupied_pass(n, now),
            4 => node.begin(n, now),
            5 => node.add_rt_and_success(n, b as u64, now),
            6 => node.complete(n, b as u64, false, now),
            7 => node.complete(n, b as u64, true, now),
            8 => node.add_waiting_request(at, b as u64),
            9 => node.increase_thread_num(),
            _ => node.decrease_thread_num(),
        }
        Some(())
    });
}

/// For how long a request has to wait until a bucket to come can pay for it.
#[wasm_bindgen]
pub fn node_try_occupy_next(node: u32, acquire: f64, threshold: f64, now: f64) -> f64 {
    number(node, |held| {
        let Held::Node(place) = held else { return None };
        let node = place.statistics()?;
        Some(node.try_occupy_next(acquire as u64, threshold, instant(now)) as f64)
    })
}

/// Tells the seconds of the last minute: those that are news, or `raw`, all of them.
#[wasm_bindgen]
pub fn node_metrics(node: u32, raw: bool, now: f64) -> usize {
    let now = instant(now);
    tell(node, |held, told| {
        let Held::Node(place) = held else { return None };
        let node = place.statistics()?;
        let seconds = if raw {
            node.raw_metrics_in_min(now, &|_| true)
        } else {
            node.metrics(now)
        };
        tell_details(told, &seconds);
        Some(())
    })
}

// ---- the nodes of an engine ----

fn place(tree: &NodeTree, kind: u32, [name, inner]: [&str; 2]) -> Option<Place> {
    Some(match kind {
        0 => Place::Entrance(Rc::clone(tree.root())),
        1 => Place::Cluster(Rc::clone(tree.inbound())),
        2 => Place::Entrance(tree.entrance(name)?),
        3 => Place::Default(tree.default_node(name, inner)?),
        4 => Place::Cluster(tree.cluster(name)?),
        _ => Place::Alone(tree.cluster(name)?.origin(inner)?),
    })
}

fn of_engine<R>(engine: u32, read: impl FnOnce(&Engine<LateSeed>) -> R) -> Option<R> {
    shell(|shell| shell.engines.get(engine).map(read))
}

/// The number of a node: 0 is the root; 1 all inbound calls; 2 the entrance of a context; 3 a resource in a context; 4 a
/// resource; 5 a resource's origin. Their names are in the buffer, each with its length before it. Negative where there is none.
#[wasm_bindgen]
pub fn tree_node(engine: u32, kind: u32, bytes: usize) -> f64 {
    let found = shell(|shell| {
        let mut names = tree::parts(shell.buffer.bytes(bytes));
        let mut name = || std::str::from_utf8(names.next().unwrap_or_default()).unwrap_or_default();
        let names = [name(), name()];
        place(shell.engines.get(engine)?.store().tree()?, kind, names)
    });
    found.map_or(-1.0, |place| add(Held::Node(place)))
}

/// Puts names into the buffer. How many bytes these are.
fn tell_names(names: &Texts) -> f64 {
    shell(|shell| shell.buffer.tell(names.bytes()))
}

/// Tells the names of what is below a node: 0 is resources, 1 is entrances, 2 is origins.
#[wasm_bindgen]
pub fn node_names(node: u32, kind: u32) -> f64 {
    let mut names = Texts::default();
    with(node, |held| {
        let Held::Node(place) = held else { return None };
        let mut resources = |nodes: Vec<Rc<DefaultNode>>| {
            nodes.iter().for_each(|node| names.add(node.resource()));
        };
        match (place, kind) {
            (Place::Entrance(node), 0) => resources(node.children()),
            (Place::Default(node), 0) => resources(node.children()),
            (Place::Entrance(node), _) => {
                let entrances = node.entrances();
                entrances
                    .iter()
                    .for_each(|entrance| names.add(entrance.name()));
            }
            (Place::Cluster(node), _) => {
                node.origins().iter().for_each(|name| names.add(name));
            }
            _ => {}
        }
        Some(())
    });
    tell_names(&names)
}

/// Tells the names of all resources.
#[wasm_bindgen]
pub fn tree_resources(engine: u32) -> f64 {
    let mut names = Texts::default();
    of_engine(engine, |engine| {
        let resources = engine.store().tree().map(NodeTree::resources);
        resources.iter().flatten().for_each(|name| names.add(name));
    });
    tell_names(&names)
}

// ---- how rules have decided ----

/// Tells how rules have decided: in rows the requests that passed, waited, were refused, would have been in shadow mode, and
/// were charged to what keys share, the first two and the last negative where they are not counted; and in the buffer the names for each row: the rule, and the resource and
/// the origin where it is for each of them apart, empty where it is not. In no particular order, and twice where a state has
/// been replaced while calls are in flight, or authority rules share an id.
#[wasm_bindgen]
pub fn engine_counters(engine: u32) -> f64 {
    let (mut names, mut rows) = (Texts::default(), Vec::new());
    let counted = |count: Option<u64>| count.map_or(NONE, |count| count as f64);
    of_engine(engine, |engine| {
        for_each_rule(engine, &mut |rule| {
            [rule.rule, rule.resource, rule.origin]
                .iter()
                .for_each(|name| names.add(name));
            rows.extend([
                counted(rule.passed),
                counted(rule.waited),
                rule.blocked as f64,
                rule.shadow_blocked as f64,
                counted(rule.shared),
            ]);
        });
    });
    tell_rows(rows);
    tell_names(&names)
}

fn tell_rows(rows: Vec<f64>) {
    STATS.with_borrow_mut(|stats| stats.told = rows);
}

/// Tells the `n` hottest keys of each rule that has keys: in rows how hot it is, and whether its name is known; and in the
/// buffer for each row the rule and that name. Of a throttle, how far its turns reach ahead, in milliseconds.
#[wasm_bindgen]
pub fn engine_top(engine: u32, n: usize, now: f64) -> f64 {
    let (mut names, mut rows) = (Texts::default(), Vec::new());
    of_engine(engine, |engine| {
        for_each_rule(engine, &mut |rule| {
            let unit = if rule.takes_turns { 1e6 } else { 1.0 };
            for hot in rule.keys.iter().flat_map(|keys| keys.top(n, instant(now))) {
                names.add(rule.rule);
                names.add(hot.label.as_deref().unwrap_or_default());
                let is_named = u8::from(hot.label.is_some());
                rows.extend([hot.amount as f64 / unit, is_named.into()]);
            }
        });
    });
    tell_rows(rows);
    tell_names(&names)
}
