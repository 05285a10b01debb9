//! The statistics behind the numbers: rings of buckets, metrics over them, nodes.
//!
//! Results of more than one number are rows of doubles; [`crate::layout`] names their columns.

use crate::layout::*;
use crate::slab::Slab;
use leapgate::Timestamp;
use leapgate::stats::{
    ArrayMetric, BucketLeapArray, ClusterNode, DefaultNode, EntranceNode, Metric, MetricBucket,
    MetricEvent, MetricNode, Node, StatisticNode, View, Window,
};
use std::cell::RefCell;
use std::rc::Rc;

/// The statistics of a node, anywhere in the tree.
#[derive(Clone)]
pub(crate) enum NodeRef {
    /// A node of its own, or the node of an origin below its resource.
    Alone(Rc<StatisticNode>),
    Cluster(Rc<ClusterNode>),
    Default(Rc<DefaultNode>),
    Entrance(Rc<EntranceNode>),
}

impl NodeRef {
    pub(crate) fn node(&self) -> &dyn Node {
        match self {
            NodeRef::Entrance(node) => &**node,
            NodeRef::Alone(node) => &**node,
            NodeRef::Cluster(node) => node.statistics(),
            NodeRef::Default(node) => node.statistics(),
        }
    }

    /// The node with records of its own; an entrance only adds up.
    pub(crate) fn statistics(&self) -> Option<&StatisticNode> {
        match self {
            NodeRef::Entrance(_) => None,
            NodeRef::Alone(node) => Some(node),
            NodeRef::Cluster(node) => Some(node.statistics()),
            NodeRef::Default(node) => Some(node.statistics()),
        }
    }
}

/// An object with a number.
pub(crate) enum Item {
    Array(Box<BucketLeapArray>),
    Metric(Rc<ArrayMetric>),
    View(Rc<ArrayMetric>, View),
    Node(NodeRef),
    Second(NodeRef),
    Minute(NodeRef),
}

impl Item {
    pub(crate) fn metric<R>(&self, read: impl FnOnce(&dyn Metric) -> R) -> Option<R> {
        Some(match self {
            Item::Metric(metric) => read(&**metric),
            Item::View(metric, view) => read(&metric.view(*view)),
            Item::Second(place) => read(&place.statistics()?.second()),
            Item::Minute(place) => read(&place.statistics()?.minute()),
            Item::Array(_) | Item::Node(_) => return None,
        })
    }

    /// The bucket to record in, opened if needed.
    pub(crate) fn bucket(&self, now: Timestamp) -> Option<&MetricBucket> {
        match self {
            Item::Array(array) => Some(array.current_window(now).value()),
            Item::Metric(metric) => Some(metric.current(now)),
            _ => None,
        }
    }

    pub(crate) fn window(&self) -> Option<Window> {
        match self {
            Item::Array(array) => Some(array.window()),
            held => held.metric(|metric| metric.window()),
        }
    }
}

#[derive(Default)]
pub(crate) struct Stats {
    held: Slab<Item>,
    /// The latest rows.
    rows: Vec<f64>,
}

thread_local! {
    static STATS: RefCell<Stats> = RefCell::default();
}

pub(crate) fn add(held: Item) -> f64 {
    STATS.with_borrow_mut(|stats| stats.held.add(held)).into()
}

/// Applies `read` to the item of this number. JavaScript only has numbers of items, so it never sees `None`.
pub(crate) fn with<R>(number: u32, read: impl FnOnce(&Item) -> Option<R>) -> Option<R> {
    STATS.with_borrow(|stats| stats.held.get(number).and_then(read))
}

/// As [`with`], for a number; NaN where there is no item.
pub(crate) fn number(number: u32, read: impl FnOnce(&Item) -> Option<f64>) -> f64 {
    with(number, read).unwrap_or(f64::NAN)
}

/// As [`with`], for rows, which JavaScript reads afterwards. Returns how many doubles they have.
pub(crate) fn rows_of(number: u32, read: impl FnOnce(&Item, &mut Vec<f64>) -> Option<()>) -> usize {
    STATS.with_borrow_mut(|stats| {
        let mut rows = std::mem::take(&mut stats.rows);
        rows.clear();
        stats
            .held
            .get(number)
            .and_then(|held| read(held, &mut rows));
        stats.rows = rows;
        stats.rows.len()
    })
}

pub(crate) fn free(number: u32) {
    STATS.with_borrow_mut(|stats| drop(stats.held.take(number)));
}

pub(crate) fn rows() -> *const f64 {
    STATS.with_borrow(|stats| stats.rows.as_ptr())
}

pub(crate) fn event(index: usize) -> Option<MetricEvent> {
    MetricEvent::ALL.get(index).copied()
}

pub(crate) fn millis(at: Timestamp) -> f64 {
    at.as_millis() as f64
}

/// A response time, negative if there is none.
pub(crate) fn or_none(rt: Option<u64>) -> f64 {
    rt.map_or(NONE, |rt| rt as f64)
}

/// When a bucket starts, its counts in the order of events, and its extremes.
pub(crate) fn push_bucket(rows: &mut Vec<f64>, start: Timestamp, bucket: &MetricBucket) {
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
        or_none(bucket.shortest_rt()),
        or_none(bucket.max_rt()),
        bucket.max_concurrency() as f64,
    ];
    rows.extend(row);
}

pub(crate) fn push_details(rows: &mut Vec<f64>, nodes: &[MetricNode]) {
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
        rows.extend(row);
    }
}

pub(crate) fn set_rows(rows: Vec<f64>) {
    STATS.with_borrow_mut(|stats| stats.rows = rows);
}
