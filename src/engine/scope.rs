//! Where a request is counted besides its resource and its origin.

use crate::stats::node::{ClusterNode, DefaultNode};
use crate::stats::tree::{Context, DEFAULT_CONTEXT};
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
    /// The name of the context.
    pub(super) fn context_name(&self) -> &str {
        self.context
            .as_deref()
            .map_or(DEFAULT_CONTEXT, Context::name)
    }
}
