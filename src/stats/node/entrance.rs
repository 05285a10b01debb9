//! The nodes of contexts, which add up what lies below them.

use crate::stats::metric_bucket::MetricBucket;
use crate::stats::node::resource::DefaultNode;
use crate::stats::node::statistic::{Node, SECOND};
use crate::time::Timestamp;
use std::cell::RefCell;
use std::rc::Rc;

/// Where calls come in: a context, or the root above them all. It counts nothing itself and adds up what is below it.
///
/// Exceptions, extremes, the previous second and loans are not added up: they read as in an empty window, as in Sentinel.
///
/// Sentinel: `EntranceNode`.
pub struct EntranceNode {
    name: Rc<str>,
    entrances: RefCell<Vec<Rc<EntranceNode>>>,
    calls: RefCell<Vec<Rc<DefaultNode>>>,
}

impl EntranceNode {
    pub(crate) fn new(name: Rc<str>) -> EntranceNode {
        EntranceNode {
            name,
            entrances: RefCell::default(),
            calls: RefCell::default(),
        }
    }

    /// The context's name, or `machine-root`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The entrances below the root; none below an entrance.
    pub fn entrances(&self) -> Vec<Rc<EntranceNode>> {
        self.entrances.borrow().clone()
    }

    /// The resources that were first entered in this context outside any other.
    pub fn children(&self) -> Vec<Rc<DefaultNode>> {
        self.calls.borrow().clone()
    }

    pub(crate) fn add_child(&self, child: Rc<DefaultNode>) {
        self.calls.borrow_mut().push(child);
    }

    pub(crate) fn add_entrance(&self, entrance: Rc<EntranceNode>) {
        self.entrances.borrow_mut().push(entrance);
    }

    fn add_up<N: std::ops::Add<Output = N> + Default>(&self, of: impl Fn(&dyn Node) -> N) -> N {
        let entrances = self
            .entrances
            .borrow()
            .iter()
            .fold(N::default(), |sum, entrance| sum + of(&**entrance));
        self.calls
            .borrow()
            .iter()
            .fold(entrances, |sum, call| sum + of(call.reading()))
    }
}

impl Node for EntranceNode {
    fn pass_qps(&self, now: Timestamp) -> f64 {
        self.add_up(|node| node.pass_qps(now))
    }

    fn block_qps(&self, now: Timestamp) -> f64 {
        self.add_up(|node| node.block_qps(now))
    }

    fn total_qps(&self, now: Timestamp) -> f64 {
        self.add_up(|node| node.total_qps(now))
    }

    fn success_qps(&self, now: Timestamp) -> f64 {
        self.add_up(|node| node.success_qps(now))
    }

    fn exception_qps(&self, _: Timestamp) -> f64 {
        0.0
    }

    fn occupied_pass_qps(&self, _: Timestamp) -> f64 {
        0.0
    }

    fn max_success_qps(&self, _: Timestamp) -> f64 {
        f64::from(SECOND.sample_count()) / SECOND.interval_seconds()
    }

    /// The average of the averages below, weighted by passes.
    fn avg_rt(&self, now: Timestamp) -> f64 {
        let passes = self.pass_qps(now);
        self.add_up(|node| node.avg_rt(now) * node.pass_qps(now))
            / if passes == 0.0 { 1.0 } else { passes }
    }

    fn min_rt(&self, _: Timestamp) -> f64 {
        MetricBucket::STATISTIC_MAX_RT as f64
    }

    fn previous_pass_qps(&self, _: Timestamp) -> f64 {
        0.0
    }

    fn previous_block_qps(&self, _: Timestamp) -> f64 {
        0.0
    }

    fn total_request(&self, now: Timestamp) -> u64 {
        self.add_up(|node| node.total_request(now))
    }

    fn total_pass(&self, now: Timestamp) -> u64 {
        self.add_up(|node| node.total_pass(now))
    }

    fn total_success(&self, _: Timestamp) -> u64 {
        0
    }

    fn total_exception(&self, _: Timestamp) -> u64 {
        0
    }

    fn block_request(&self, now: Timestamp) -> u64 {
        self.add_up(|node| node.block_request(now))
    }

    fn cur_thread_num(&self) -> u64 {
        self.add_up(|node| node.cur_thread_num())
    }

    fn waiting(&self, _: Timestamp) -> u64 {
        0
    }
}
