//! The statistics behind the numbers: rings of buckets, metrics over them, nodes.
//!
//! What is more than a number is told as rows of doubles.

use crate::layout::*;
use crate::slab::Slab;
use leapgate::{
    ArrayMetric, BucketLeapArray, ClusterNode, DefaultNode, EntranceNode, Metric, MetricBucket,
    MetricEvent, MetricNode, Node, StatisticNode, Timestamp, View, Window,
};
use std::cell::RefCell;
use std::rc::Rc;

/// The statistics of a node, wherever it stands.
#[derive(Clone)]
pub(crate) enum Place {
    /// By itself, or below its resource: an origin's.
    Alone(Rc<StatisticNode>),
    Cluster(Rc<ClusterNode>),
    Default(Rc<DefaultNode>),
    Entrance(Rc<EntranceNode>),
}

impl Place {
    pub(crate) fn node(&self) -> &dyn Node {
        match self {
            Place::Entrance(node) => &**node,
            Place::Alone(node) => &**node,
            Place::Cluster(node) => node.statistics(),
            Place::Default(node) => node.statistics(),
        }
    }

    /// Where something is recorded; an entrance only adds up.
    pub(crate) fn statistics(&self) -> Option<&StatisticNode> {
        match self {
            Place::Entrance(_) => None,
            Place::Alone(node) => Some(node),
            Place::Cluster(node) => Some(node.statistics()),
            Place::Default(node) => Some(node.statistics()),
        }
    }
}

/// What has a number.
pub(crate) enum Held {
    Array(Box<BucketLeapArray>),
    Metric(Rc<ArrayMetric>),
    View(Rc<ArrayMetric>, View),
    Node(Place),
    Second(Place),
    Minute(Place),
}

impl Held {
    pub(crate) fn metric<R>(&self, read: impl FnOnce(&dyn Metric) -> R) -> Option<R> {
        Some(match self {
            Held::Metric(metric) => read(&**metric),
            Held::View(metric, view) => read(&metric.view(*view)),
            Held::Second(place) => read(&place.statistics()?.second()),
            Held::Minute(place) => read(&place.statistics()?.minute()),
            Held::Array(_) | Held::Node(_) => return None,
        })
    }

    /// The bucket in which something is recorded, opened if need be.
    pub(crate) fn bucket(&self, now: Timestamp) -> Option<&MetricBucket> {
        match self {
            Held::Array(array) => Some(array.current_window(now).value()),
            Held::Metric(metric) => Some(metric.current(now)),
            _ => None,
        }
    }

    pub(crate) fn window(&self) -> Option<Window> {
        match self {
            Held::Array(array) => Some(array.window()),
            held => held.metric(|metric| metric.window()),
        }
    }
}

#[derive(Default)]
pub(crate) struct Stats {
    held: Slab<Held>,
    /// What was told last.
    told: Vec<f64>,
}

thread_local! {
    static STATS: RefCell<Stats> = RefCell::default();
}

pub(crate) fn add(held: Held) -> f64 {
    STATS.with_borrow_mut(|stats| stats.held.add(held)).into()
}

/// What `read` makes of that which has this number. Nothing else has been handed out, so that `None` is never seen.
pub(crate) fn with<R>(number: u32, read: impl FnOnce(&Held) -> Option<R>) -> Option<R> {
    STATS.with_borrow(|stats| stats.held.get(number).and_then(read))
}

/// The same, of a number; not a number where there is none.
pub(crate) fn number(number: u32, read: impl FnOnce(&Held) -> Option<f64>) -> f64 {
    with(number, read).unwrap_or(f64::NAN)
}

/// The same, of rows that are told. How many doubles these are.
pub(crate) fn tell(number: u32, read: impl FnOnce(&Held, &mut Vec<f64>) -> Option<()>) -> usize {
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

pub(crate) fn free(number: u32) {
    STATS.with_borrow_mut(|stats| drop(stats.held.take(number)));
}

pub(crate) fn told() -> *const f64 {
    STATS.with_borrow(|stats| stats.told.as_ptr())
}

pub(crate) fn event(index: usize) -> Option<MetricEvent> {
    MetricEvent::ALL.get(index).copied()
}

pub(crate) fn millis(at: Timestamp) -> f64 {
    at.as_millis() as f64
}

/// A response time, negative where there is none.
pub(crate) fn perhaps(rt: Option<u64>) -> f64 {
    rt.map_or(NONE, |rt| rt as f64)
}

/// When a bucket starts, its counts in the order of events, and its extremes.
pub(crate) fn tell_bucket(told: &mut Vec<f64>, start: Timestamp, bucket: &MetricBucket) {
    let [pass, block, exception, success, rt, occupied_pass] =
        MetricEvent::ALL.map(|event| bucket.get(event) as f64);
    let row: [f64; BUCKET.len()] = [
        millis(start),
        pass,
        block,
        exception,
        success,
        rt,
        occupied_pass,
        bucket.min_rt() as f64,
        perhaps(bucket.shortest_rt()),
        perhaps(bucket.max_rt()),
        bucket.max_concurrency() as f64,
    ];
    told.extend(row);
}

pub(crate) fn tell_details(told: &mut Vec<f64>, nodes: &[MetricNode]) {
    for node in nodes {
        let row: [f64; DETAIL.len()] = [
            millis(node.timestamp),
            node.pass as f64,
            node.block as f64,
            node.success as f64,
            node.exception as f64,
            node.rt as f64,
            node.occupied_pass as f64,
            node.concurrency as f64,
        ];
        told.extend(row);
    }
}

pub(crate) fn tell_rows(rows: Vec<f64>) {
    STATS.with_borrow_mut(|stats| stats.told = rows);
}
