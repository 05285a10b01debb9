//! The statistics of the APIs that a request enters besides its route.

use crate::stats::node::{DefaultNode, StatisticNode};
use crate::time::Timestamp;
use std::rc::Rc;

/// The statistics of an API in the context of a request.
pub(crate) struct ApiNode {
    /// Which member of the resource the API is.
    pub(crate) member: u8,
    pub(crate) node: Rc<DefaultNode>,
    /// Those of the origin of the request, if it has one.
    pub(crate) origin: Option<Rc<StatisticNode>>,
}

impl ApiNode {
    pub(crate) fn begin(&self, n: u64, now: Timestamp) {
        self.node.begin(n, now);
        self.of_origin(|node| node.begin(n, now));
    }

    pub(crate) fn begin_on_loan(&self, n: u64, at: Timestamp, now: Timestamp) {
        self.node.begin_on_loan(n, at, now);
        self.of_origin(|node| node.begin_on_loan(n, at, now));
    }

    pub(crate) fn begin_elsewhere(&self, now: Timestamp) {
        self.node.begin_elsewhere(now);
        self.of_origin(|node| node.begin_elsewhere(now));
    }

    pub(crate) fn complete(&self, rt: u64, n: u64, failed: bool, now: Timestamp) {
        self.node.complete(rt, n, failed, now);
        self.of_origin(|node| node.complete(rt, n, failed, now));
    }

    pub(crate) fn block(&self, n: u64, now: Timestamp) {
        self.node.block(n, now);
        self.of_origin(|node| node.increase_block_qps(n, now));
    }

    pub(crate) fn abandon(&self) {
        self.node.abandon();
        self.of_origin(StatisticNode::decrease_thread_num);
    }

    fn of_origin(&self, each: impl FnOnce(&StatisticNode)) {
        if let Some(node) = &self.origin {
            each(node);
        }
    }
}
