//! The nodes of a resource: all contexts together, each origin, and each context.

use crate::map::HashMap;
use crate::stats::node::statistic::StatisticNode;
use crate::time::Timestamp;
use std::cell::RefCell;
use std::rc::Rc;

/// How many origins a resource keeps apart; further ones share one node.
pub const MAX_ORIGINS: usize = 1000;

/// One resource, all contexts together, and its origins apart.
///
/// Sentinel: `ClusterNode`.
#[derive(Default)]
pub struct ClusterNode {
    all: StatisticNode,
    origins: RefCell<HashMap<Rc<str>, Rc<StatisticNode>>>,
}

impl ClusterNode {
    /// All calls of the resource.
    pub fn statistics(&self) -> &StatisticNode {
        &self.all
    }

    /// The calls of one origin, if there have been any.
    #[doc(alias = "getOriginCountMap")]
    pub fn origin(&self, origin: &str) -> Option<Rc<StatisticNode>> {
        self.origins.borrow().get(origin).cloned()
    }

    /// The origins that have made calls, in no particular order.
    pub fn origins(&self) -> Vec<Rc<str>> {
        self.origins.borrow().keys().cloned().collect()
    }

    /// The node of `origin`, made if need be; beyond [`MAX_ORIGINS`], all further origins share one node, under no name.
    #[doc(alias = "getOrCreateOriginNode")]
    pub(crate) fn origin_or_new(&self, origin: &str) -> Rc<StatisticNode> {
        let mut origins = self.origins.borrow_mut();
        if let Some(node) = origins.get(origin) {
            return Rc::clone(node);
        }
        let name = if origins.len() < MAX_ORIGINS {
            origin
        } else {
            ""
        };
        Rc::clone(origins.entry(name.into()).or_default())
    }
}

/// One resource in one context: a call in the tree, with the calls below it.
///
/// Sentinel: `DefaultNode`. What is recorded here is recorded in the resource's [`ClusterNode`] too.
pub struct DefaultNode {
    resource: Rc<str>,
    own: StatisticNode,
    cluster: Rc<ClusterNode>,
    children: RefCell<Vec<Rc<DefaultNode>>>,
}

impl DefaultNode {
    pub(crate) fn new(resource: Rc<str>, cluster: Rc<ClusterNode>) -> DefaultNode {
        DefaultNode {
            resource,
            own: StatisticNode::default(),
            cluster,
            children: RefCell::default(),
        }
    }

    /// The resource's name.
    pub fn resource(&self) -> &str {
        &self.resource
    }

    /// The calls of this resource in this context.
    pub fn statistics(&self) -> &StatisticNode {
        &self.own
    }

    /// The resource in all contexts.
    pub fn cluster(&self) -> &Rc<ClusterNode> {
        &self.cluster
    }

    /// The resources that were first entered, in this context, within this one.
    pub fn children(&self) -> Vec<Rc<DefaultNode>> {
        self.children.borrow().clone()
    }

    pub(crate) fn add_child(&self, child: Rc<DefaultNode>) {
        self.children.borrow_mut().push(child);
    }

    #[inline]
    pub(crate) fn begin(&self, n: u64, now: Timestamp) {
        self.own.begin(n, now);
        self.cluster.all.begin(n, now);
    }

    #[inline]
    pub(crate) fn complete(&self, rt: u64, n: u64, failed: bool, now: Timestamp) {
        self.own.complete(rt, n, failed, now);
        self.cluster.all.complete(rt, n, failed, now);
    }

    pub(crate) fn block(&self, n: u64, now: Timestamp) {
        self.own.increase_block_qps(n, now);
        self.cluster.all.increase_block_qps(n, now);
    }

    pub(crate) fn begin_on_loan(&self, n: u64, at: Timestamp, now: Timestamp) {
        self.own.begin_on_loan(n, at, now);
        self.cluster.all.begin_on_loan(n, at, now);
    }

    pub(crate) fn begin_elsewhere(&self, now: Timestamp) {
        self.own.begin_elsewhere(now);
        self.cluster.all.begin_elsewhere(now);
    }

    pub(crate) fn abandon(&self) {
        self.own.decrease_thread_num();
        self.cluster.all.decrease_thread_num();
    }
}
