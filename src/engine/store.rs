//! What outlives a set of rules: the registry of their states.

use crate::engine::in_force::Ids;
use crate::engine::keyed::{KeyCheck, KeyedController};
use crate::engine::leased::{LeaseController, LeaseTerms};
use crate::lease::Terms;
use crate::map::HashMap;
use crate::places::NamePlace;
use crate::rule::system::{Gauges, Inbound};
use crate::rule::{
    ClusterConfig, DEFAULT_MAX_KEYS, FLOW, FlowRule, KeyedBy, MAX_RESOURCES, RuleId,
};
use crate::state::backend::{Backend, BreakerKey, Shown, StateKey};
use crate::state::breaker::{Breaker, BreakerStorage};
use crate::state::flow::Controller;
use crate::state::keyed::KeyedGeometry;
use crate::state::leased::{Leasing, NotLeased};
use crate::stats::tree::{Context, MAX_CONTEXTS, NodeTree};
use crate::window::Window;
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

pub(super) type ControllerOf<S> = Controller<<S as Backend>::Counter>;
pub(super) type BreakerOf<S> = Breaker<<S as Backend>::Breaker>;

/// The states of rules with a key, by what they belong to.
type KeyedStatesOf<K> = HashMap<(StateKey, KeyedGeometry), Weak<KeyedController<K>>>;

/// The permits of rules: what they belong to, what they are called at the store, and which of them a rule's id has opened last.
#[derive(Default)]
struct LeasesOf {
    ids: Ids,
    all: Vec<(StateKey, String, Weak<LeaseController>)>,
}

/// The names that a set of rules has met: the rules that replace it go on with them.
pub(super) trait Known<S: Backend> {
    /// Others over the same store open the resource, or the API, of that name: it is opened here, too, if rules name it. So a state
    /// lasts as long as any rules in force have it, whichever of them was asked first.
    fn follow(&self, store: &Store<S>, name: &str, is_api: bool);

    /// The resources, and where their places are.
    fn resources(&self) -> Vec<(Rc<str>, Option<NamePlace>)>;

    /// The APIs.
    fn apis(&self) -> Vec<Rc<str>>;

    /// The origins of a resource that still have their places.
    fn origins(&self, resource: &str) -> Vec<Rc<str>>;
}

/// What outlives a set of rules: the states of rules by their key, and the statistics.
///
/// Engines that share a store share the windows of rules with the same id and geometry.
pub struct Store<S: Backend> {
    pub(super) backend: S,
    tree: Option<NodeTree>,
    pub(super) max_resources: Cell<usize>,
    states: RefCell<HashMap<StateKey, Weak<ControllerOf<S>>>>,
    /// The same, in the order in which they were made.
    in_order: RefCell<Vec<Weak<ControllerOf<S>>>>,
    keyed: RefCell<KeyedStatesOf<S::Keyed>>,
    leases: RefCell<LeasesOf>,
    pub(super) tables: RefCell<Vec<Weak<dyn Known<S>>>>,
    breakers: RefCell<HashMap<BreakerKey, Weak<BreakerOf<S>>>>,
    /// The same, in the order in which they were made.
    breakers_in_order: RefCell<Vec<Weak<BreakerOf<S>>>>,
    pub(super) gauges: Cell<Gauges>,
    pub(super) inbound: Cell<Option<Inbound>>,
    /// The contexts, where no statistics are kept.
    contexts: RefCell<HashMap<Rc<str>, Rc<Context>>>,
}

impl<S: Backend> Store<S> {
    /// A store that keeps the statistics of every resource.
    pub fn new(backend: S) -> Store<S> {
        Store {
            tree: Some(NodeTree::new()),
            ..Store::without_statistics(backend)
        }
    }

    /// A store that keeps no statistics, only what the rules need.
    pub fn without_statistics(backend: S) -> Store<S> {
        Store {
            backend,
            tree: None,
            max_resources: Cell::new(MAX_RESOURCES),
            states: RefCell::default(),
            in_order: RefCell::default(),
            keyed: RefCell::default(),
            leases: RefCell::default(),
            tables: RefCell::default(),
            breakers: RefCell::default(),
            breakers_in_order: RefCell::default(),
            gauges: Cell::default(),
            inbound: Cell::default(),
            contexts: RefCell::default(),
        }
    }

    /// Engines that are made from now on keep at most `max_resources` resources apart that have no rules of their own.
    pub fn set_max_resources(&self, max_resources: usize) {
        self.max_resources.set(max_resources);
    }

    /// Where the counts are kept.
    pub fn backend(&self) -> &S {
        &self.backend
    }

    /// The statistics, if they are kept.
    pub fn tree(&self) -> Option<&NodeTree> {
        self.tree.as_ref().filter(|_| S::STATISTICS)
    }

    /// The state of that key, beside which there is `another`, or none.
    pub(super) fn state(
        &self,
        key: StateKey,
        another: Option<Rc<ControllerOf<S>>>,
    ) -> Rc<ControllerOf<S>> {
        let mut states = self.states.borrow_mut();
        if let Some(state) = states.get(&key).and_then(Weak::upgrade) {
            return state;
        }
        let (counter, past) = self.backend.open(&key);
        let controller = match another {
            Some(another) => Controller::beside(another, counter),
            None => Controller::new(key.grade, key.behavior, key.compat, counter, past),
        };
        let state = Rc::new(controller);
        states.insert(key, Rc::downgrade(&state));
        self.in_order.borrow_mut().push(Rc::downgrade(&state));
        state
    }

    /// Opens the states of a keyed rule: existing ones, or, if there are none, new ones where `anew` says so.
    #[inline(never)]
    pub(super) fn open_keyed(&self, check: &KeyCheck, anew: bool) {
        let Some(state) = self.keyed_state(check, check.id(), anew) else {
            return;
        };
        let measured = match check.beside() {
            None => Some(Rc::clone(&state)),
            Some(id) => self.keyed_state(check, id, anew),
        };
        if let Some(measured) = measured {
            check.open(state, measured);
        }
    }

    /// The states of a keyed rule under that id.
    fn keyed_state(
        &self,
        check: &KeyCheck,
        id: &RuleId,
        anew: bool,
    ) -> Option<Rc<KeyedController<S::Keyed>>> {
        let key = StateKey {
            kind: check.kind(),
            is_beside: check.beside().is_some_and(|beside| beside != id),
            ..key_of(check.rule(), id)
        };
        let mut keyed = self.keyed.borrow_mut();
        let place = (key, check.geometry());
        let known = keyed.get(&place).and_then(Weak::upgrade);
        if known.is_some() || !anew {
            return known;
        }
        let state = KeyedController::new(self.backend.open_keyed(&place.0, &place.1));
        let state = Rc::new(state);
        keyed.insert(place, Rc::downgrade(&state));
        Some(state)
    }

    /// The permits of a rule that can lease them, with this window.
    pub(super) fn lease(
        &self,
        (rule, id): (&FlowRule, &RuleId),
        cluster: &ClusterConfig,
        window: Window,
    ) -> Result<Rc<LeaseController>, NotLeased> {
        let (key, name) = (key_of(rule, id), cluster.name(id));
        let leases = &mut *self.leases.borrow_mut();
        let known = leases.ids.number(id).and_then(|at| leases.all.get(at));
        if let Some((of, called, state)) = known
            && (of, called) == (&key, &name)
            && let Some(state) = state.upgrade()
        {
            return Ok(state);
        }
        let terms = LeaseTerms::of(rule);
        let leasing = Leasing {
            name: &name,
            terms: Terms::new(terms.limit, window),
            when_down: terms.when_down,
            max_keys: rule.keyed_by().map_or(DEFAULT_MAX_KEYS, KeyedBy::max_keys),
        };
        let leased = self.backend.lease(&key, &leasing)?;
        let state = Rc::new(LeaseController::new(leased, terms));
        leases.ids.put(id, leases.all.len());
        leases.all.push((key, name, Rc::downgrade(&state)));
        Ok(state)
    }

    /// Calls `each` with the permits of rules, and what they belong to.
    pub fn for_each_lease(&self, mut each: impl FnMut(&StateKey, &LeaseController)) {
        for (key, _, state) in &self.leases.borrow().all {
            if let Some(state) = state.upgrade() {
                each(key, &state);
            }
        }
    }

    /// Whether no set of rules is in force over it yet.
    pub(super) fn is_new(&self) -> bool {
        let tables = self.tables.borrow();
        tables.iter().all(|table| table.strong_count() == 0)
    }

    /// Whether others have counted for a rule with this id, which has no key.
    pub(super) fn is_open_elsewhere(&self, rule: &FlowRule, id: &RuleId) -> bool {
        rule.keyed_by().is_none() && self.backend.is_open_elsewhere(&key_of(rule, id))
    }

    /// A set of rules opens the resource, or the API, of that name: the others follow.
    pub(super) fn opens(&self, name: &str, is_api: bool) {
        let tables = self.tables.borrow();
        let tables = tables.iter().filter_map(Weak::upgrade);
        tables.for_each(|table| table.follow(self, name, is_api));
    }

    pub(super) fn breaker(&self, key: BreakerKey) -> Rc<BreakerOf<S>> {
        let mut breakers = self.breakers.borrow_mut();
        if let Some(breaker) = breakers.get(&key).and_then(Weak::upgrade) {
            breaker.storage().in_use();
            return breaker;
        }
        let storage = self.backend.open_breaker(&key);
        let breaker = Rc::new(Breaker::with_storage(key.geometry, storage));
        breakers.insert(key, Rc::downgrade(&breaker));
        let mut in_order = self.breakers_in_order.borrow_mut();
        in_order.push(Rc::downgrade(&breaker));
        breaker
    }

    /// How many breakers there are.
    pub fn breakers(&self) -> usize {
        self.breakers_in_order.borrow().len()
    }

    /// Calls `each` with the breakers from `first` up to, not including, `end`, in the order in which they were made. A
    /// breaker with shared counts is kept up to date by [`Breaker::observe`] on each, a reading of the clock, and
    /// [`Breaker::move_to`].
    pub fn for_each_breaker(&self, first: usize, end: usize, each: impl FnMut(Rc<BreakerOf<S>>)) {
        let breakers = self.breakers_in_order.borrow();
        let chosen = breakers.iter().take(end).skip(first);
        chosen.filter_map(Weak::upgrade).for_each(each);
    }

    /// Sets the numbers of all inbound calls together, for system rules, where no statistics are kept. Until the first call, there
    /// can be no system rules.
    pub fn set_inbound(&self, inbound: Inbound) {
        self.inbound.set(Some(inbound));
    }

    /// Sets the machine's load, for system rules.
    ///
    /// Sentinel: `SystemStatusListener`, which reads it from the machine.
    pub fn set_gauges(&self, gauges: Gauges) {
        self.gauges.set(gauges);
    }

    /// The context called `name`, made if need be; beyond [`MAX_CONTEXTS`], one without a name that all further contexts share.
    pub(super) fn context(&self, name: &str) -> Rc<Context> {
        if let Some(tree) = self.tree() {
            return tree.context(name);
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
        let context = || Rc::new(Context::uncounted(name));
        Rc::clone(contexts.entry(name.into()).or_insert_with(context))
    }

    /// How many states there are.
    pub fn len(&self) -> usize {
        self.in_order.borrow().len()
    }

    /// Whether there is no state at all.
    pub fn is_empty(&self) -> bool {
        self.in_order.borrow().is_empty()
    }

    /// Calls `each` with the states from `first` up to, not including, `end`, in the order in which they were made. Shared
    /// windows are kept up to date by [`Controller::observe`] on each, a reading of the clock, and [`Controller::advance`]:
    /// one that is not asked for a while does not fall behind counts that others raise.
    pub fn for_each_state(&self, first: usize, end: usize, mut each: impl FnMut(&ControllerOf<S>)) {
        let states = self.in_order.borrow();
        for state in states
            .iter()
            .take(end)
            .skip(first)
            .filter_map(Weak::upgrade)
        {
            each(&state);
        }
    }

    /// Calls `each` with the states of rules without a key, and what they belong to, in no particular order.
    pub fn for_each_unkeyed(&self, mut each: impl FnMut(&StateKey, &ControllerOf<S>)) {
        for (key, state) in self.states.borrow().iter() {
            if let Some(state) = state.upgrade() {
                each(key, &state);
            }
        }
    }

    /// Calls `each` with the states of keyed flow rules that have been asked for, and what they belong to.
    pub fn for_each_keyed(&self, mut each: impl FnMut(&StateKey, &KeyedController<S::Keyed>)) {
        for ((key, _), state) in self.keyed.borrow().iter() {
            if let Some(state) = state.upgrade().filter(|_| key.kind == FLOW) {
                each(key, &state);
            }
        }
    }

    /// Forgets the states that no rule refers to any more.
    pub fn sweep(&self) {
        self.keyed
            .borrow_mut()
            .retain(|_, state| state.strong_count() > 0);
        let leases = &mut *self.leases.borrow_mut();
        leases.all.retain(|(.., state)| state.strong_count() > 0);
        leases.ids = Ids::default();
        for (at, (key, ..)) in leases.all.iter().enumerate() {
            leases.ids.put(&key.rule, at);
        }
        self.states
            .borrow_mut()
            .retain(|_, state| state.strong_count() > 0);
        self.in_order
            .borrow_mut()
            .retain(|state| state.strong_count() > 0);
        self.tables
            .borrow_mut()
            .retain(|table| table.strong_count() > 0);
        self.breakers
            .borrow_mut()
            .retain(|_, breaker| breaker.strong_count() > 0);
        self.breakers_in_order
            .borrow_mut()
            .retain(|breaker| breaker.strong_count() > 0);
    }
}

/// The identity of the states of a flow rule with this id that has one table for all its keys.
fn key_of(rule: &FlowRule, id: &RuleId) -> StateKey {
    StateKey {
        kind: FLOW,
        rule: id.clone(),
        is_beside: false,
        resource: None,
        resource_place: None,
        origin: None,
        origin_place: None,
        grade: rule.grade().of_state(),
        strategy: rule.strategy().clone(),
        behavior: rule.control_behavior(),
        compat: rule.is_compat(),
        parts: rule
            .keyed_by()
            .map_or_else(|| Rc::new([]) as _, KeyedBy::shared_parts),
        target: Shown(rule.target().clone()),
    }
}
