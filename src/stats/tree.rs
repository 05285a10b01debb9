//! The nodes of every resource, and the tree of calls that they make.

use crate::map::HashMap;
use crate::stats::node::{ClusterNode, DefaultNode, EntranceNode};
use std::cell::{OnceCell, RefCell};
use std::rc::Rc;

/// The context of a call that names none.
///
/// Sentinel: `Constants.CONTEXT_DEFAULT_NAME`.
pub const DEFAULT_CONTEXT: &str = "sentinel_default_context";

/// How many contexts are kept apart; further ones share one entrance, under no name.
///
/// Sentinel: `Constants.MAX_CONTEXT_NAME_SIZE`, above which calls are not checked at all.
pub const MAX_CONTEXTS: usize = 2000;

/// One way in: its entrance and the resources that were entered by it.
pub(crate) struct Context {
    entrance: Rc<EntranceNode>,
    nodes: RefCell<HashMap<Rc<str>, Rc<DefaultNode>>>,
}

impl Context {
    /// A context outside the tree: only a name.
    pub(crate) fn uncounted(name: &str) -> Context {
        Context {
            entrance: Rc::new(EntranceNode::new(name.into())),
            nodes: RefCell::default(),
        }
    }

    /// Its name.
    pub(crate) fn name(&self) -> &str {
        self.entrance.name()
    }
}

/// The statistics of all resources.
///
/// Sentinel: `Constants.ROOT`, `Constants.ENTRY_NODE`, `ClusterBuilderSlot`, `NodeSelectorSlot` and `ContextUtil`, which are
/// global there.
pub struct NodeTree {
    root: Rc<EntranceNode>,
    inbound: Rc<ClusterNode>,
    clusters: RefCell<HashMap<Rc<str>, Rc<ClusterNode>>>,
    default_context: OnceCell<Rc<Context>>,
    contexts: RefCell<HashMap<Rc<str>, Rc<Context>>>,
}

impl NodeTree {
    pub(crate) fn new() -> NodeTree {
        NodeTree {
            root: Rc::new(EntranceNode::new("machine-root".into())),
            inbound: Rc::default(),
            clusters: RefCell::default(),
            default_context: OnceCell::new(),
            contexts: RefCell::default(),
        }
    }

    /// The node above all contexts.
    pub fn root(&self) -> &Rc<EntranceNode> {
        &self.root
    }

    /// All inbound calls, whatever the resource.
    ///
    /// Sentinel: `Constants.ENTRY_NODE`, `__total_inbound_traffic__`.
    pub fn inbound(&self) -> &Rc<ClusterNode> {
        &self.inbound
    }

    /// A resource in all contexts; `None` if it has never been entered.
    pub fn cluster(&self, resource: &str) -> Option<Rc<ClusterNode>> {
        self.clusters.borrow().get(resource).cloned()
    }

    /// The resources that have been entered, in no particular order.
    ///
    /// Sentinel: `ClusterBuilderSlot.getClusterNodeMap`.
    #[doc(alias = "getClusterNodeMap")]
    pub fn resources(&self) -> Vec<Rc<str>> {
        self.clusters.borrow().keys().cloned().collect()
    }

    /// The entrance of a context; `None` if no call has come in by it and no rule is for it.
    pub fn entrance(&self, context: &str) -> Option<Rc<EntranceNode>> {
        self.find_context(context)
            .map(|context| Rc::clone(&context.entrance))
    }

    /// A resource in one context; `None` if it has never been entered there.
    pub fn default_node(&self, context: &str, resource: &str) -> Option<Rc<DefaultNode>> {
        self.find_context(context)?
            .nodes
            .borrow()
            .get(resource)
            .cloned()
    }

    fn find_context(&self, name: &str) -> Option<Rc<Context>> {
        if name == DEFAULT_CONTEXT {
            self.default_context.get().cloned()
        } else {
            self.contexts.borrow().get(name).cloned()
        }
    }

    /// The context called `name`, made if need be; beyond [`MAX_CONTEXTS`], all further contexts share one, under no name.
    pub(crate) fn context(&self, name: &str) -> Rc<Context> {
        if name == DEFAULT_CONTEXT {
            return Rc::clone(self.default_context());
        }
        let mut contexts = self.contexts.borrow_mut();
        if let Some(context) = contexts.get(name) {
            return Rc::clone(context);
        }
        let name = if contexts.len() < MAX_CONTEXTS {
            name
        } else {
            ""
        };
        Rc::clone(
            contexts
                .entry(name.into())
                .or_insert_with(|| self.new_context(name)),
        )
    }

    /// The context of calls that name none.
    pub(crate) fn default_context(&self) -> &Rc<Context> {
        self.default_context
            .get_or_init(|| self.new_context(DEFAULT_CONTEXT))
    }

    fn new_context(&self, name: &str) -> Rc<Context> {
        let entrance = Rc::new(EntranceNode::new(name.into()));
        self.root.add_entrance(Rc::clone(&entrance));
        Rc::new(Context {
            entrance,
            nodes: RefCell::default(),
        })
    }

    /// The node of a resource in all contexts, made if need be.
    pub(crate) fn cluster_or_new(&self, resource: &Rc<str>) -> Rc<ClusterNode> {
        let mut clusters = self.clusters.borrow_mut();
        match clusters.get(resource) {
            Some(cluster) => Rc::clone(cluster),
            None => Rc::clone(clusters.entry(Rc::clone(resource)).or_default()),
        }
    }

    /// The node of a resource in a context, made if need be: below the call within which it is entered, or else below the
    /// entrance.
    pub(crate) fn node(
        &self,
        context: &Context,
        resource: &Rc<str>,
        within: Option<&DefaultNode>,
    ) -> Rc<DefaultNode> {
        if let Some(node) = context.nodes.borrow().get(resource) {
            return Rc::clone(node);
        }
        let node = Rc::new(DefaultNode::new(
            Rc::clone(resource),
            self.cluster_or_new(resource),
        ));
        match within {
            Some(parent) => parent.add_child(Rc::clone(&node)),
            None => context.entrance.add_child(Rc::clone(&node)),
        }
        context
            .nodes
            .borrow_mut()
            .insert(Rc::clone(resource), Rc::clone(&node));
        node
    }
}
