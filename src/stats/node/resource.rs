//! The nodes of a resource: all contexts together, each origin, and each context.

use crate::map::HashMap;
use crate::stats::node::statistic::{Own, StatisticNode};
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
    /// Empty while the resource has no other context: what it would hold is what the resource's node holds.
    own: Own,
    cluster: Rc<ClusterNode>,
    children: RefCell<Vec<Rc<DefaultNode>>>,
}

impl DefaultNode {
    pub(crate) fn new(resource: Rc<str>, cluster: Rc<ClusterNode>) -> DefaultNode {
        DefaultNode {
            resource,
            own: cluster.all.own(),
            cluster,
            children: RefCell::default(),
        }
    }

    /// The resource's name.
    pub fn resource(&self) -> &str {
        &self.resource
    }

    /// The calls of this resource in this context. From the first time on that they are asked for, they are recorded beside those
    /// of all contexts, even while there is no other.
    pub fn statistics(&self) -> &StatisticNode {
        self.own.get_or_init(|| self.cluster.all.copy())
    }

    /// The same, to be read only.
    pub(super) fn reading(&self) -> &StatisticNode {
        self.own.get().unwrap_or(&self.cluster.all)
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
        if let Some(own) = self.own.get() {
            own.record_begin(n, now);
        }
        self.cluster.all.record_begin(n, now);
    }

    #[inline]
    pub(crate) fn complete(&self, rt: u64, n: u64, failed: bool, now: Timestamp) {
        if let Some(own) = self.own.get() {
            own.record_complete(rt, n, failed, now);
        }
        self.cluster.all.record_complete(rt, n, failed, now);
    }

    pub(crate) fn block(&self, n: u64, now: Timestamp) {
        if let Some(own) = self.own.get() {
            own.record_block(n, now);
        }
        self.cluster.all.record_block(n, now);
    }

    pub(crate) fn begin_on_loan(&self, n: u64, at: Timestamp, now: Timestamp) {
        self.statistics().begin_on_loan(n, at, now);
        self.cluster.all.begin_on_loan(n, at, now);
    }

    pub(crate) fn begin_elsewhere(&self, now: Timestamp) {
        self.statistics().begin_elsewhere(now);
        self.cluster.all.begin_elsewhere(now);
    }

    pub(crate) fn abandon(&self) {
        if let Some(own) = self.own.get() {
            own.record_end();
        }
        self.cluster.all.record_end();
    }
}
