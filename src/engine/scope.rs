//! Where a request is counted besides its resource and its origin.

use crate::stats::node::{ClusterNode, DefaultNode};
use crate::stats::tree::Context;
use std::rc::Rc;

/// The context of a request, and the statistics that it is counted in.
#[derive(Default)]
pub(super) struct Scope {
    /// `None` in the default context.
    pub(super) context: Option<Rc<Context>>,
    /// The statistics of the resource in that context.
    pub(super) node: Option<Rc<DefaultNode>>,
    /// Those of all that comes from outside, if it does.
    pub(super) inbound: Option<Rc<ClusterNode>>,
}

impl Scope {
    /// Whether a request is counted as one that has nothing but a resource.
    pub(super) fn is_default(&self) -> bool {
        self.context.is_none() && self.inbound.is_none()
    }
}

/// The call within which a request is made.
#[derive(Clone, Copy)]
pub(super) struct Within<'a> {
    /// `None` in the default context.
    pub(super) context: Option<&'a Rc<Context>>,
    /// Its own statistics.
    pub(super) node: Option<&'a Rc<DefaultNode>>,
}
