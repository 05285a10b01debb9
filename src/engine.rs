//! Resources, the order of checks, entering and leaving, and replacing rules.
//!
//! A request enters a resource. All its rules are asked, in order, and none of them is charged yet; if all have room, all
//! reserve; if all could, all are charged, else all give back. A refusal by one charges none.
//!
//! Where rules make it wait, it waits for the longest of their waits, and all of them count it when it is released.

pub(crate) mod api_nodes;
mod applicable;
pub(crate) mod blocked;
mod breakers;
mod caller;
mod check;
mod combine;
mod cost;
pub(crate) mod decide;
pub(crate) mod decision;
pub(crate) mod enter;
pub(crate) mod entry;
mod exempt;
mod further;
mod held;
pub(crate) mod in_force;
mod key_parts;
pub(crate) mod keyed;
pub(crate) mod leased;
mod listed;
mod origin;
mod policy;
mod prechecks;
mod repeat;
pub(crate) mod request;
pub(crate) mod resource;
mod rest;
mod scope;
pub(crate) mod store;
pub(crate) mod table;

pub use blocked::Blocked;
pub use decision::Decision;
pub use entry::{Entry, Outcome};
pub use policy::Policy;
pub use repeat::Repeat;
pub use request::Request;
pub use resource::Resource;

use crate::engine::in_force::PrecheckReport;
use crate::engine::store::Store;
use crate::engine::table::Table;
use crate::rule::{Rules, RulesError};
use crate::state::backend::{Backend, Local};
use crate::time::Timestamp;
use std::cell::RefCell;
use std::rc::Rc;

/// Rules, applied to requests. `S` says where counts are kept; by default they are this engine's own.
///
/// ```
/// use leapgate::{Decision, Engine, Outcome, Request, Rules, Timestamp};
/// use leapgate::rule::FlowRule;
///
/// let at = Timestamp::from_millis;
/// let rules = Rules { flow: vec![FlowRule::new("login", 2.0)?], ..Rules::default() };
/// let engine = Engine::new(rules)?;
/// for now in [0, 10] {
///     let Decision::Pass(entry) = engine.enter(&Request::new("login"), at(now)) else { panic!() };
///     entry.exit(Outcome::Success, at(now + 5));
/// }
/// let Decision::Block(blocked) = engine.enter(&Request::new("login"), at(20)) else { panic!() };
/// assert_eq!(blocked.id().as_str(), "login");
/// assert_eq!(blocked.retry_after().map(|wait| wait.as_millis()), Some(990));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Engine<S: Backend = Local> {
    store: Rc<Store<S>>,
    table: RefCell<Rc<Table<S>>>,
}

impl Engine {
    /// An engine of its own, with statistics.
    ///
    /// # Errors
    ///
    /// Where the rules do not go together.
    pub fn new(rules: Rules) -> Result<Engine, RulesError> {
        Engine::with_store(Rc::new(Store::new(Local)), rules)
    }
}

impl<S: Backend> Engine<S> {
    /// An engine whose states and statistics are kept in `store`, which engines may share.
    ///
    /// # Errors
    ///
    /// Where the rules do not go together.
    pub fn with_store(store: Rc<Store<S>>, rules: Rules) -> Result<Engine<S>, RulesError> {
        let table = Table::new(&store, rules)?;
        Ok(Engine {
            store,
            table: RefCell::new(table),
        })
    }

    /// Puts other rules in force. Those with an id and a geometry that are in force already go on where they are; entries
    /// end on the rules that they began with.
    ///
    /// # Errors
    ///
    /// Where the rules do not go together: then the rules in force stay.
    pub fn replace(&self, rules: Rules) -> Result<(), RulesError> {
        let table = Table::new(&self.store, rules)?;
        drop(self.table.replace(table));
        self.store.sweep();
        Ok(())
    }

    /// Why rules in force do not do what they ask for, a sentence each: with the rule's place, the value and the cure. Today that is
    /// one limit for all machines ([`FlowRule::in_cluster`](crate::rule::FlowRule::in_cluster)), which needs a store and a rule
    /// that can lease from it; other such rules limit by themselves. And a strict window of fewer than 10 buckets for want of a
    /// divisor of its interval: with `n` buckets as little as `n / (n + 1)` of the count may pass.
    pub fn warnings(&self) -> Vec<String> {
        let mut all = Vec::new();
        self.for_each_warning(|warning| all.push(warning.to_owned()));
        all
    }

    /// Calls `each` with these sentences.
    pub fn for_each_warning(&self, mut each: impl FnMut(&str)) {
        for listed in &self.table.borrow().rules {
            let coarse = || listed.coarse_warning();
            if let Some(warning) = listed.warning.clone().or_else(coarse) {
                each(&warning);
            }
        }
    }

    /// Calls `each` with how the rules in force have decided that are asked before flow rules; always in the same order.
    pub fn for_each_precheck(&self, mut each: impl FnMut(PrecheckReport<'_>)) {
        self.table.borrow().prechecks.for_each(&mut each);
    }

    /// What outlives the rules.
    pub fn store(&self) -> &Rc<Store<S>> {
        &self.store
    }

    /// Whether a request's resource is all that the rules in force need: none depends on its origin, its key or its end, and
    /// none makes it wait that may not borrow.
    pub fn has_only_plain_flow_rules(&self) -> bool {
        self.table.borrow().has_only_plain_flow_rules()
    }

    /// The resource called `name`. Beyond the store's bound, one that all further names share.
    #[inline]
    pub fn resource(&self, name: &str) -> Rc<Resource<S>> {
        self.resource_at(name, &|| None)
    }

    /// The resource called `name`, if rules name it or it has been asked for: no other is made.
    pub fn known_resource(&self, name: &str) -> Option<Rc<Resource<S>>> {
        let table = self.table.borrow();
        let known = table.resources.get(name);
        known.or_else(|| table.open(&self.store, name))
    }

    /// The same as [`Engine::resource`], at the time of a `clock` that is read only where a list of names ([`Backend::places`]) is to change.
    #[inline]
    pub fn resource_at(
        &self,
        name: &str,
        clock: &dyn Fn() -> Option<Timestamp>,
    ) -> Rc<Resource<S>> {
        let table = self.table.borrow();
        if let Some(known) = table.resources.get(name) {
            return known;
        }
        table.meet(&self.store, name, clock)
    }

    /// Whether the request of that `name` and `origin`, on which `resource` has decided, was decided by the windows that are
    /// theirs. Always, where no list of names ([`Backend::places`]) says which are. Else the request is to be decided on again:
    /// what was charged for it stays charged.
    #[inline]
    pub fn is_current(&self, resource: &Resource<S>, name: &str, origin: &str) -> bool {
        let table = self.table.borrow();
        let places = self.store.backend.places(None);
        places.is_none_or(|places| table.resources.is_current(&*places, resource, name))
            && resource.is_current_for(origin)
    }

    /// Decides on a request.
    #[inline]
    pub fn enter(&self, request: &Request<'_>, now: Timestamp) -> Decision<S> {
        // Most requests are for a resource that is known, which need not be kept while it decides.
        if request.apis.is_none() {
            let table = self.table.borrow();
            let resources = table.resources.looked_at();
            if let Some(known) = resources.get(request.resource) {
                return known.enter(&self.store, request, now);
            }
        }
        self.enter_anew(request, now)
    }

    /// Decides on a request for a resource that is not known, or for APIs, too.
    #[inline(never)]
    fn enter_anew(&self, request: &Request<'_>, now: Timestamp) -> Decision<S> {
        let mut resource = self.resource(request.resource);
        if let Some(apis) = request.apis {
            resource = self.resource_with(&resource, apis);
        }
        resource.enter(&self.store, request, now)
    }

    /// Decides on a request for a resource that has been looked up before; the names in the request are not read.
    #[inline]
    pub fn enter_resource(
        &self,
        resource: &Rc<Resource<S>>,
        request: &Request<'_>,
        now: Timestamp,
    ) -> Decision<S> {
        resource.enter(&self.store, request, now)
    }
}
