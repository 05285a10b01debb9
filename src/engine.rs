//! Resources, the order of checks, entering and leaving, and replacing rules.
//!
//! A request enters a resource. All its rules are asked, in order, and none of them is charged yet; if all have room, all
//! reserve; if all could, all are charged, else all give back. A refusal by one charges none.
//!
//! Where rules make it wait, it waits for the longest of their waits, and all of them count it when it is released.

pub(crate) mod keyed;
pub(crate) mod prechecks;

use crate::engine::keyed::{Holds, KeyCaller, KeyCheck, KeyedController, Keys, Rest};
use crate::engine::prechecks::{Admissions, BreakerKey, Guard, Guarded, Guards, InForce};
use crate::places::{Apart, NamePlace, Placed, Places};
use crate::refusal::RefusalKind;
use crate::rule::authority::AuthorityRule;
use crate::rule::system::{Gauges, Inbound, SystemLimit, SystemRule};
use crate::rule::{
    ControlBehavior, Count, FlowRule, Grade, KeyPart, KeyValue, KeyedBy, LimitApp, Mode, RuleId,
    Strategy, Target,
};
use crate::rule::{DegradeRule, MAX_RESOURCES, MAX_RULES_PER_RESOURCE, MAX_SYSTEM_RULES};
use crate::state::breaker::{Breaker, BreakerStorage, LocalBreaker, Phase};
use crate::state::flow::{Ask, Controller, Terms};
use crate::state::keyed::{KeyedGeometry, KeyedStates, KeyedWindows};
use crate::state::window::{LocalTally, Past, Tally};
use crate::stats::node::{ClusterNode, DefaultNode, MAX_ORIGINS, StatisticNode};
use crate::stats::occupy::OCCUPY_TIMEOUT_MS;
use crate::stats::tree::{Context, DEFAULT_CONTEXT, MAX_CONTEXTS, NodeTree};
use crate::time::Timestamp;
use hashbrown::{HashMap, HashSet};
use std::cell::{Cell, OnceCell, RefCell};
use std::fmt;
use std::rc::{Rc, Weak};
use std::time::Duration;

/// How often a decision is made again whose turn somebody else has taken.
const MAX_ATTEMPTS: u32 = 8;

/// The rules of one document, in order.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Rules {
    /// Limits on resources. Those of one resource are gone through in order.
    pub flow: Vec<FlowRule>,
    /// Those that Sentinel keeps in a list of its own: limits on the values of a parameter. They stand before those of `flow`.
    pub param_flow: Vec<FlowRule>,
    /// Those of Sentinel's gateways. They stand before those of `param_flow`.
    pub gateway_flow: Vec<FlowRule>,
    /// Circuit breakers.
    pub degrade: Vec<DegradeRule>,
    /// Limits on all that comes from outside, together.
    pub system: Vec<SystemRule>,
    /// Which origins may enter a resource.
    pub authority: Vec<AuthorityRule>,
    /// Whether anything refuses: in shadow mode each rule is.
    pub mode: Mode,
}

/// What the state of a rule belongs to: the same key, the same state, whatever the rule's count and position.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct StateKey {
    /// The rule.
    pub rule: RuleId,
    /// Whether it has no counts of its own, but looks at those of another rule: one in shadow mode, with the default id of one
    /// in force.
    pub is_beside: bool,
    /// The resource, for a rule that applies to each on a window of its own.
    pub resource: Option<Rc<str>>,
    /// Where a list says so, the place of the resource: the state is that of whichever resource has it.
    pub resource_place: Option<NamePlace>,
    /// The origin, for a rule that applies to each on a window of its own.
    pub origin: Option<Rc<str>>,
    /// The same for the origin, in the list of the resource.
    pub origin_place: Option<NamePlace>,
    /// What the rule limits, and the geometry of its window. How that counts is no part of the state: it is
    /// [`Counting::Strict`](crate::rule::Counting::Strict) here.
    pub grade: Grade,
    /// Whose requests it counts.
    pub strategy: Strategy,
    /// What happens at its threshold.
    pub behavior: ControlBehavior,
    /// Whether it decides as Sentinel does.
    pub compat: bool,
    /// By what it tells requests apart; empty where it limits all together.
    pub parts: Rc<[KeyPart]>,
}

/// Where the counts of rules are kept.
pub trait Tallies {
    /// The counts of one rule.
    type Tally: Tally;
    /// The counts of one rule that limits each key for itself.
    type Keyed: KeyedStates + 'static;

    /// The counts for the state of `key`, and what is known of their past.
    fn open(&self, key: &StateKey) -> (Self::Tally, Past);

    /// The counts for the states of `key`, a rule with a key. Called by the first request that the rule is for.
    fn open_keyed(&self, key: &StateKey, geometry: &KeyedGeometry) -> Self::Keyed;

    /// Where the breaker of `key` keeps its state.
    fn open_breaker(&self, key: &BreakerKey) -> <Self::Tally as Tally>::Breaker;

    /// The list of the resources that have windows of their own, or of the origins of the resource that is known by this name
    /// and place; `None` where each engine decides for itself which have.
    fn places(&self, _of: Option<(&str, Option<NamePlace>)>) -> Option<Rc<dyn Places>> {
        None
    }
}

type BreakerOf<T> = Breaker<<T as Tally>::Breaker>;

/// Counts that nobody shares. The hash of keys is known to all: where clients choose their keys, take [`Seeded`].
#[derive(Default, Debug)]
pub struct Local;

impl Tallies for Local {
    type Tally = LocalTally;
    type Keyed = KeyedWindows;

    fn open(&self, _: &StateKey) -> (LocalTally, Past) {
        (LocalTally::default(), Past::Fresh)
    }

    fn open_keyed(&self, key: &StateKey, geometry: &KeyedGeometry) -> KeyedWindows {
        Seeded([0; 2]).open_keyed(key, geometry)
    }

    fn open_breaker(&self, _: &BreakerKey) -> LocalBreaker {
        LocalBreaker::default()
    }
}

/// Counts that nobody shares, and keys whose hash nobody can guess: these are two random numbers, of the host.
#[derive(Debug)]
pub struct Seeded(pub [u64; 2]);

impl Tallies for Seeded {
    type Tally = LocalTally;
    type Keyed = KeyedWindows;

    fn open(&self, key: &StateKey) -> (LocalTally, Past) {
        Local.open(key)
    }

    fn open_keyed(&self, _: &StateKey, geometry: &KeyedGeometry) -> KeyedWindows {
        KeyedWindows::new(*geometry, self.0)
    }

    fn open_breaker(&self, key: &BreakerKey) -> LocalBreaker {
        Local.open_breaker(key)
    }
}

/// Why rules cannot be put in force. Those in force stay.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RulesError {
    /// Two rules have one id: name one of them otherwise.
    SameId {
        /// The id.
        id: RuleId,
        /// The list in which the second one stands, as a document calls it.
        list: &'static str,
        /// Where it stands there.
        index: usize,
    },
    /// More rules apply to a resource than [`MAX_RULES_PER_RESOURCE`].
    ManyRules {
        /// The resource, or `*`.
        resource: String,
        /// The list in which the first rule too many stands, as a document calls it.
        list: &'static str,
        /// Where it stands there.
        index: usize,
    },
    /// There are more system rules than [`MAX_SYSTEM_RULES`].
    ManySystemRules {
        /// How many there are.
        rules: usize,
    },
    /// A system rule, where no statistics are kept and nobody tells what comes from outside: leave it out.
    NoStatistics,
}

impl RulesError {
    /// Where the rule stands that cannot be had: in which list of a document, and at which place there.
    pub fn place(&self) -> (&'static str, usize) {
        match self {
            RulesError::SameId { list, index, .. } | RulesError::ManyRules { list, index, .. } => {
                (list, *index)
            }
            RulesError::ManySystemRules { .. } => (SYSTEM_RULES, MAX_SYSTEM_RULES),
            RulesError::NoStatistics => (SYSTEM_RULES, 0),
        }
    }
}

/// The lists of rules, as a document calls them.
const FLOW_RULES: &str = "flowRules";
const PARAM_FLOW_RULES: &str = "paramFlowRules";
const GATEWAY_FLOW_RULES: &str = "gatewayFlowRules";
const DEGRADE_RULES: &str = "degradeRules";
const SYSTEM_RULES: &str = "systemRules";
const AUTHORITY_RULES: &str = "authorityRules";

impl fmt::Display for RulesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RulesError::SameId { id, .. } => write!(
                f,
                "`{id}` is the id of an earlier rule; give one of them another `id`"
            ),
            RulesError::ManySystemRules { rules } => {
                write!(
                    f,
                    "`{rules}` system rules are too many; use at most {MAX_SYSTEM_RULES}"
                )
            }
            RulesError::NoStatistics => {
                write!(
                    f,
                    "`1` is too many where no statistics are kept; leave it out"
                )
            }
            RulesError::ManyRules { resource, .. } => {
                write!(
                    f,
                    "`{resource}` has too many rules; use at most {MAX_RULES_PER_RESOURCE} for one resource"
                )
            }
        }
    }
}

impl std::error::Error for RulesError {}

/// The states of rules with a key, by what they belong to.
type KeyedStatesOf<K> = HashMap<(StateKey, KeyedGeometry), Weak<KeyedController<K>>>;

/// What outlives a set of rules: the states of rules by their key, and the statistics.
///
/// Engines that share a store share the windows of rules with the same id and geometry.
pub struct Store<S: Tallies> {
    tallies: S,
    tree: Option<NodeTree>,
    max_resources: Cell<usize>,
    states: RefCell<HashMap<StateKey, Weak<Controller<S::Tally>>>>,
    /// The same, in the order in which they were made.
    in_order: RefCell<Vec<Weak<Controller<S::Tally>>>>,
    keyed: RefCell<KeyedStatesOf<S::Keyed>>,
    tables: RefCell<Vec<Weak<Table<S::Tally>>>>,
    breakers: RefCell<HashMap<BreakerKey, Weak<BreakerOf<S::Tally>>>>,
    /// The same, in the order in which they were made.
    breakers_in_order: RefCell<Vec<Weak<BreakerOf<S::Tally>>>>,
    gauges: Cell<Gauges>,
    inbound: Cell<Option<Inbound>>,
    /// The contexts, where no statistics are kept.
    contexts: RefCell<HashMap<Rc<str>, Rc<Context>>>,
}

impl<S: Tallies> Store<S> {
    /// A store that keeps the statistics of every resource.
    pub fn new(tallies: S) -> Store<S> {
        Store {
            tree: Some(NodeTree::new()),
            ..Store::without_statistics(tallies)
        }
    }

    /// A store that keeps no statistics, only what the rules need.
    pub fn without_statistics(tallies: S) -> Store<S> {
        Store {
            tallies,
            tree: None,
            max_resources: Cell::new(MAX_RESOURCES),
            states: RefCell::default(),
            in_order: RefCell::default(),
            keyed: RefCell::default(),
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
    pub fn tallies(&self) -> &S {
        &self.tallies
    }

    /// The statistics, if they are kept.
    pub fn tree(&self) -> Option<&NodeTree> {
        self.tree.as_ref().filter(|_| S::Tally::STATISTICS)
    }

    /// The state of that key, beside which there is `another`, or none.
    fn state(
        &self,
        key: StateKey,
        another: Option<Rc<Controller<S::Tally>>>,
    ) -> Rc<Controller<S::Tally>> {
        let mut states = self.states.borrow_mut();
        if let Some(state) = states.get(&key).and_then(Weak::upgrade) {
            return state;
        }
        let (tally, past) = self.tallies.open(&key);
        let controller = match another {
            Some(another) => Controller::beside(another, tally),
            None => Controller::new(key.grade, key.behavior, key.compat, tally, past),
        };
        let state = Rc::new(controller);
        states.insert(key, Rc::downgrade(&state));
        self.in_order.borrow_mut().push(Rc::downgrade(&state));
        state
    }

    /// Opens the states of a keyed rule: those that are there, or, `anew`, others.
    fn open_keyed(&self, check: &KeyCheck, anew: bool) {
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
        let rule = check.rule();
        let key = StateKey {
            rule: id.clone(),
            is_beside: check.beside().is_some_and(|beside| beside != id),
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
        };
        let mut keyed = self.keyed.borrow_mut();
        let place = (key, check.geometry());
        let known = keyed.get(&place).and_then(Weak::upgrade);
        if known.is_some() || !anew {
            return known;
        }
        let state = KeyedController::new(self.tallies.open_keyed(&place.0, &place.1));
        let state = Rc::new(state);
        keyed.insert(place, Rc::downgrade(&state));
        Some(state)
    }

    fn breaker(&self, key: BreakerKey) -> Rc<BreakerOf<S::Tally>> {
        let mut breakers = self.breakers.borrow_mut();
        if let Some(breaker) = breakers.get(&key).and_then(Weak::upgrade) {
            breaker.storage().in_use();
            return breaker;
        }
        let storage = self.tallies.open_breaker(&key);
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

    /// Tells `each` of the breakers from `first` up to, not including, `end`, in the order in which they were made. Those
    /// whose counts are shared are kept up to date by [`Breaker::observe`] on each, a reading of the clock, and
    /// [`Breaker::move_to`].
    pub fn for_each_breaker(
        &self,
        first: usize,
        end: usize,
        each: impl FnMut(Rc<BreakerOf<S::Tally>>),
    ) {
        let breakers = self.breakers_in_order.borrow();
        let chosen = breakers.iter().take(end).skip(first);
        chosen.filter_map(Weak::upgrade).for_each(each);
    }

    /// Tells what all inbound calls together do, for system rules, where no statistics are kept. Until somebody does, there
    /// can be no system rules.
    pub fn set_inbound(&self, inbound: Inbound) {
        self.inbound.set(Some(inbound));
    }

    /// Tells what the machine's load is, for system rules.
    ///
    /// Sentinel: `SystemStatusListener`, which reads it from the machine.
    pub fn set_gauges(&self, gauges: Gauges) {
        self.gauges.set(gauges);
    }

    /// The context called `name`, made if need be; beyond [`MAX_CONTEXTS`] one that those who come later share, under no name.
    fn context(&self, name: &str) -> Rc<Context> {
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

    /// Tells `each` of the states from `first` up to, not including, `end`, in the order in which they were made. Shared
    /// windows are kept up to date by [`Controller::observe`] on each, a reading of the clock, and [`Controller::advance`]:
    /// one that is not asked for a while does not fall behind counts that others raise.
    pub fn for_each_state(
        &self,
        first: usize,
        end: usize,
        mut each: impl FnMut(&Controller<S::Tally>),
    ) {
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

    /// Tells `each` of the states of the rules without a key, and what they belong to, in no particular order.
    pub fn for_each_unkeyed(&self, mut each: impl FnMut(&StateKey, &Controller<S::Tally>)) {
        for (key, state) in self.states.borrow().iter() {
            if let Some(state) = state.upgrade() {
                each(key, &state);
            }
        }
    }

    /// Tells `each` of the states of the rules with a key that have been asked for, and what they belong to.
    pub fn for_each_keyed(&self, mut each: impl FnMut(&StateKey, &KeyedController<S::Keyed>)) {
        for ((key, _), state) in self.keyed.borrow().iter() {
            if let Some(state) = state.upgrade() {
                each(key, &state);
            }
        }
    }

    /// Forgets the states that no rule refers to any more.
    pub fn sweep(&self) {
        self.keyed
            .borrow_mut()
            .retain(|_, state| state.strong_count() > 0);
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

/// One rule on one resource.
struct Check<T> {
    rule: Rc<FlowRule>,
    id: RuleId,
    /// The rule whose state it looks at, where it has none of its own.
    beside: Option<RuleId>,
    /// What the rule asks, where the decision need not look for it.
    terms: Terms,
    applies: Applies,
    counts: Counts,
    enforced: bool,
    /// For how long the rule would have made the request wait that is being decided on, in nanoseconds. Of rules that are
    /// not enforced.
    shadow_wait: Cell<u64>,
    /// `None` where each origin has a state of its own ([`Origin::states`]).
    state: Option<Rc<Controller<T>>>,
}

/// Which requests a rule is for.
enum Applies {
    All,
    Origin(Rc<str>),
    OtherOrigins,
    /// It is for another resource.
    Nobody,
}

/// Which requests of this resource a rule counts.
#[derive(PartialEq, Eq)]
enum Counts {
    /// Those that it is for.
    Same,
    All,
    /// Those that come in by this context. It is for no others.
    Context(Rc<str>),
    /// Those of another resource instead.
    None,
}

/// Which rules refuse a request.
struct Refusal<'a, T> {
    first: First<'a, T>,
    /// A bit for each check.
    refusing: u64,
    /// How long until the rules with a key let it in that refuse. `None` for never.
    keys_retry_after: Option<Duration>,
}

/// The first rule that refuses a request.
enum First<'a, T> {
    Check(&'a Check<T>),
    /// One with a key.
    Key(&'a KeyCheck),
}

/// A request that has been let in.
struct Admitted<'a, T> {
    /// The rules that are to be told how it ends: a bit for each check.
    held: u64,
    /// In nanoseconds.
    wait: u64,
    /// The first rule that lends it a pass.
    lender: Option<&'a Check<T>>,
    /// The keys that are to be told how it ends.
    keys: Option<Box<Rest>>,
}

/// Where a request comes in: its origin, the statistics in its context, the context, and those of all that comes from outside.
type Whereabouts<T> = (
    Option<Rc<Origin<T>>>,
    Option<Rc<DefaultNode>>,
    Option<Rc<Context>>,
    Option<Rc<ClusterNode>>,
);

impl<T> Admitted<'_, T> {
    /// One that passes at once.
    fn at_once(held: u64) -> Self {
        Admitted {
            held,
            wait: 0,
            lender: None,
            keys: None,
        }
    }
}

/// Who asks, and for what.
struct Caller<'a, T> {
    origin: Option<&'a Origin<T>>,
    /// Empty where no rule of the resource asks for it.
    context: &'a str,
    cost: u64,
    prioritized: bool,
    keys: KeyCaller<'a>,
    impatient: bool,
}

/// One origin of a resource.
struct Origin<T> {
    name: Rc<str>,
    /// Where its place is in the list of the resource.
    place: Option<NamePlace>,
    statistics: Option<Rc<StatisticNode>>,
    /// Whether no rule of the resource names it.
    is_other: bool,
    /// By check: the state of a rule that has one for each other origin, where it applies to this one.
    states: Box<[Option<Rc<Controller<T>>>]>,
}

/// A resource with its rules.
pub struct Resource<T: Tally> {
    name: Rc<str>,
    /// Where its place is in the list of resources.
    place: Option<NamePlace>,
    /// The list of its origins, where they have windows of their own.
    origin_places: Option<Rc<dyn Places>>,
    /// Whether its windows and those of its origins are theirs for good, and no list says otherwise.
    is_certain: bool,
    checks: Box<[Check<T>]>,
    guards: Guards<T::Breaker>,
    keys: Keys,
    origins: Apart<Origin<T>>,
    /// The statistics in the context that most requests come in by.
    default_node: OnceCell<Rc<DefaultNode>>,
    /// Whether any rule counts other requests than those that it is for.
    by_relation: bool,
    /// Whether any rule takes turns.
    may_wait: bool,
    /// Whether any other rules apply than flow rules without a key.
    is_guarded: bool,
    /// Whether any rule is for one context alone.
    by_context: bool,
    /// Whether any rule asks where a request comes from.
    by_origin: bool,
    /// By check: the rules that are told of the end of each call. Sentinel looks at a window then.
    told_of_ends: u64,
}

/// A set of rules in force.
struct Table<T: Tally> {
    /// The rules of each resource that any rule names, in order.
    named: HashMap<Rc<str>, Vec<usize>>,
    /// The rules for each resource that none names.
    each: Vec<usize>,
    /// By resource: the rules that measure it, and are for another.
    measuring: HashMap<Rc<str>, Vec<usize>>,
    /// How many resources are named in one way or the other.
    known: usize,
    /// How many others are kept apart.
    max_resources: usize,
    rules: Vec<Listed>,
    degrade: ByTarget<DegradeRule>,
    authority: ByTarget<AuthorityRule>,
    system: Rc<[Rc<InForce<SystemRule>>]>,
    mode: Mode,
    resources: Apart<Resource<T>>,
}

/// A flow rule, as it is called.
struct Listed {
    rule: Rc<FlowRule>,
    id: RuleId,
    /// Its default id, which is that of a rule in force: it looks at the state of that one.
    beside: Option<RuleId>,
}

impl Listed {
    fn new(rule: FlowRule) -> Listed {
        Listed {
            id: rule.id(),
            rule: Rc::new(rule),
            beside: None,
        }
    }

    /// Of two rules with one id: where one of them is the other in shadow mode, and their id is a default one, that one is called
    /// otherwise from now on. How.
    fn part_from(&mut self, earlier: &mut Listed) -> Option<RuleId> {
        let is_parted = self.rule.mode() != earlier.rule.mode()
            && self.rule.has_default_id()
            && earlier.rule.has_default_id()
            && self.rule.counts_as(&earlier.rule);
        let shadow = match self.rule.mode() {
            _ if !is_parted || earlier.beside.is_some() => return None,
            Mode::Shadow => self,
            Mode::Enforce => earlier,
        };
        let id = shadow.id.in_shadow();
        shadow.beside = Some(std::mem::replace(&mut shadow.id, id.clone()));
        Some(id)
    }
}

/// The rules of one kind, by the resource that they are for.
struct ByTarget<R> {
    named: HashMap<Rc<str>, Vec<Rc<InForce<R>>>>,
    /// For each resource that none of the kind names.
    each: Vec<Rc<InForce<R>>>,
}

impl<R> Default for ByTarget<R> {
    fn default() -> ByTarget<R> {
        ByTarget {
            named: HashMap::new(),
            each: Vec::new(),
        }
    }
}

impl<R> ByTarget<R> {
    fn of(&self, resource: &str) -> &[Rc<InForce<R>>] {
        self.named.get(resource).unwrap_or(&self.each)
    }

    fn all(&self) -> impl Iterator<Item = &Rc<InForce<R>>> {
        self.named.values().flatten().chain(&self.each)
    }

    /// Adds a rule, the `index`th of `list`.
    fn add(
        &mut self,
        target: &Target,
        rule: Rc<InForce<R>>,
        list: &'static str,
        index: usize,
    ) -> Result<(), RulesError> {
        let of_resource = match target {
            Target::Resource(name) => self.named.entry(Rc::clone(name)).or_default(),
            Target::Each => &mut self.each,
        };
        of_resource.push(rule);
        if of_resource.len() > MAX_RULES_PER_RESOURCE {
            return Err(RulesError::ManyRules {
                resource: target.as_str().into(),
                list,
                index,
            });
        }
        Ok(())
    }
}

/// Ids that are taken, and by the how manieth rule: none is given twice in one list.
#[derive(Default)]
struct Ids(HashMap<RuleId, usize>);

impl Ids {
    /// The default ids of rules in force, of rules whose modes and ids these are, and whether the ids were given.
    #[inline(never)]
    fn in_force(rules: &mut dyn Iterator<Item = (Mode, RuleId, bool)>) -> Ids {
        let mut ids = Ids::default();
        for (mode, id, given) in rules {
            if mode == Mode::Enforce && !given {
                ids.0.insert(id, 0);
            }
        }
        ids
    }

    /// What a rule is called beside those: otherwise, where it is in shadow mode and its default id is among them.
    #[inline(never)]
    fn beside(&self, (mode, id, given): (Mode, RuleId, bool)) -> (Mode, RuleId) {
        if mode == Mode::Shadow && !given && self.0.contains_key(&id) {
            return (mode, id.in_shadow());
        }
        (mode, id)
    }

    /// Takes an id for the `number`th rule, which stands in that list at that place.
    fn take(
        &mut self,
        id: &RuleId,
        number: usize,
        (list, index): (&'static str, usize),
    ) -> Result<(), RulesError> {
        match self.0.insert(id.clone(), number) {
            None => Ok(()),
            Some(_) => Err(RulesError::SameId {
                id: id.clone(),
                list,
                index,
            }),
        }
    }
}

impl<T: Tally> Placed for Origin<T> {
    fn name(&self) -> &Rc<str> {
        &self.name
    }

    fn place(&self) -> Option<NamePlace> {
        self.place
    }

    /// The clock of a request has been read: what is observed now would be filed too early.
    fn keep_up(&self, _: &dyn Fn() -> Option<Timestamp>) {}

    fn is_idle(&self, now: Timestamp) -> bool {
        self.states.iter().flatten().all(|state| state.is_idle(now))
    }

    fn can_be_left(&self, _: Timestamp) -> bool {
        self.states
            .iter()
            .flatten()
            .all(|state| state.can_be_left())
    }

    fn take_along(&self, further: &Self, now: Timestamp) -> bool {
        let pairs = self.states.iter().zip(&further.states);
        pairs
            .filter_map(|(own, further)| own.as_ref().zip(further.as_ref()))
            .all(|(own, further)| own.take_along(further, now))
    }
}

impl<T: Tally> Resource<T> {
    /// The states that are its own.
    fn own_states(&self) -> impl Iterator<Item = &Controller<T>> {
        let own = self.checks.iter().filter(|check| check.is_of_each());
        own.filter_map(|check| check.state.as_deref())
    }

    fn own_breakers(&self) -> impl Iterator<Item = &BreakerOf<T>> {
        let breakers = self.guards.breakers.iter();
        let own = breakers.filter(|guard| *guard.rule.rule.target() == Target::Each);
        own.map(|guard| &*guard.breaker)
    }
}

impl<T: Tally> Placed for Resource<T> {
    fn name(&self) -> &Rc<str> {
        &self.name
    }

    fn place(&self) -> Option<NamePlace> {
        self.place
    }

    fn keep_up(&self, clock: &dyn Fn() -> Option<Timestamp>) {
        self.observe();
        clock().into_iter().for_each(|now| self.advance(now));
    }

    /// The origins that it tells apart are not all known here.
    fn is_idle(&self, now: Timestamp) -> bool {
        self.origin_places.is_none()
            && self.own_states().all(|state| state.is_idle(now))
            && self.own_breakers().all(|breaker| breaker.is_idle(now))
    }

    fn can_be_left(&self, _: Timestamp) -> bool {
        self.origin_places.is_none()
            && self.own_states().all(Controller::can_be_left)
            && self.own_breakers().all(|breaker| {
                breaker.reload();
                breaker.phase() == Phase::Closed
            })
    }

    fn take_along(&self, further: &Self, now: Timestamp) -> bool {
        let mut pairs = self.own_states().zip(further.own_states());
        further.can_be_left(now) && pairs.all(|(own, further)| own.take_along(further, now))
    }
}

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
pub struct Engine<S: Tallies = Local> {
    store: Rc<Store<S>>,
    table: RefCell<Rc<Table<S::Tally>>>,
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

impl<S: Tallies> Engine<S> {
    /// An engine whose states and statistics are kept in `store`, with those of other engines.
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
    /// Where the rules do not go together: then those in force stay.
    pub fn replace(&self, rules: Rules) -> Result<(), RulesError> {
        let table = Table::new(&self.store, rules)?;
        drop(self.table.replace(table));
        self.store.sweep();
        Ok(())
    }

    /// Tells `each` how the authority rules, system rules and breakers in force have decided: of which of these kinds the rule is
    /// (`authority`, `system`, `breaker`), its id, how many requests it was the first to refuse, and how many it would have
    /// refused, had it not been in shadow mode.
    pub fn for_each_guard(&self, mut each: impl FnMut(&'static str, &RuleId, u64, u64)) {
        let table = self.table.borrow();
        let mut tell = |kind, id: &RuleId, (blocked, shadow_blocked): (u64, u64)| {
            each(kind, id, blocked, shadow_blocked);
        };
        table
            .authority
            .all()
            .for_each(|rule| tell("authority", &rule.id, rule.decisions()));
        table
            .system
            .iter()
            .for_each(|rule| tell("system", &rule.id, rule.decisions()));
        table
            .degrade
            .all()
            .for_each(|rule| tell("breaker", &rule.id, rule.decisions()));
    }

    /// What outlives the rules.
    pub fn store(&self) -> &Rc<Store<S>> {
        &self.store
    }

    /// The resource called `name`. Beyond the store's bound, one that all further names share.
    #[inline]
    pub fn resource(&self, name: &str) -> Rc<Resource<S::Tally>> {
        self.resource_at(name, &|| None)
    }

    /// The same, at the time of a `clock` that is read only where a list of names ([`Tallies::places`]) is to change.
    #[inline]
    pub fn resource_at(
        &self,
        name: &str,
        clock: &dyn Fn() -> Option<Timestamp>,
    ) -> Rc<Resource<S::Tally>> {
        let table = self.table.borrow();
        if let Some(known) = table.resources.get(name) {
            return known;
        }
        table.meet(&self.store, name, clock)
    }

    /// Whether the request of that `name` and `origin`, on which `resource` has decided, was decided by the windows that are
    /// theirs. Always, where no list of names ([`Tallies::places`]) says which are. Else the request is to be decided on again:
    /// what was charged for it stays charged.
    #[inline]
    pub fn is_current(&self, resource: &Resource<S::Tally>, name: &str, origin: &str) -> bool {
        let table = self.table.borrow();
        let places = self.store.tallies.places(None);
        places.is_none_or(|places| table.resources.is_current(&*places, resource, name))
            && resource.is_current_for(origin)
    }

    /// Decides on a request.
    #[inline]
    pub fn enter(&self, request: &Request<'_, S::Tally>, now: Timestamp) -> Decision<S::Tally> {
        self.resource(request.resource)
            .enter(&self.store, request, now)
    }

    /// Decides on a request for a resource that has been looked up before; the name in the request is not read.
    #[inline]
    pub fn enter_resource(
        &self,
        resource: &Rc<Resource<S::Tally>>,
        request: &Request<'_, S::Tally>,
        now: Timestamp,
    ) -> Decision<S::Tally> {
        resource.enter(&self.store, request, now)
    }
}

impl<T: Tally> Table<T> {
    fn new<S: Tallies<Tally = T>>(
        store: &Store<S>,
        rules: Rules,
    ) -> Result<Rc<Table<T>>, RulesError> {
        let mut table = Table {
            named: HashMap::new(),
            each: Vec::new(),
            measuring: HashMap::new(),
            known: 0,
            max_resources: store.max_resources.get(),
            rules: Vec::new(),
            degrade: ByTarget::default(),
            authority: ByTarget::default(),
            system: Rc::new([]),
            mode: rules.mode,
            resources: Apart::default(),
        };
        table.put_guards(store, rules.degrade, rules.system, rules.authority)?;
        let mut ids = Ids::default();
        let lists = [
            (GATEWAY_FLOW_RULES, rules.gateway_flow),
            (PARAM_FLOW_RULES, rules.param_flow),
            (FLOW_RULES, rules.flow),
        ];
        let flow_rules_start = lists.iter().take(2).map(|(_, rules)| rules.len()).sum();
        let rules = lists.into_iter().flat_map(|(list, rules)| {
            let rules = rules.into_iter().enumerate();
            rules.map(move |(place, rule)| (list, place, rule))
        });
        for (index, (list, place, rule)) in rules.enumerate() {
            let mut listed = Listed::new(rule);
            if let Some(earlier) = ids.0.get(&listed.id)
                && let Some(earlier) = table.rules.get_mut(*earlier)
                && let Some(id) = listed.part_from(earlier)
            {
                ids.take(&id, index, (list, place))?;
                if listed.beside.is_none() {
                    ids.0.insert(listed.id.clone(), index);
                }
            } else {
                ids.take(&listed.id, index, (list, place))?;
            }
            let rule = Rc::clone(&listed.rule);
            let of_resource = match rule.target() {
                Target::Resource(name) => table.named.entry(Rc::clone(name)).or_default(),
                Target::Each => &mut table.each,
            };
            of_resource.push(index);
            if of_resource.len() > MAX_RULES_PER_RESOURCE {
                return Err(RulesError::ManyRules {
                    resource: rule.target().as_str().into(),
                    list,
                    index: place,
                });
            }
            if let Strategy::Chain(context) = rule.strategy() {
                store.context(context); // one that a rule names is known before others come
            }
            if let Some(measured) = measured_elsewhere(&rule) {
                let measuring = table.measuring.entry(Rc::clone(measured)).or_default();
                measuring.push(index);
            }
            table.rules.push(listed);
        }
        for (name, measuring) in &table.measuring {
            let rules = table.named.get(name).unwrap_or(&table.each).len() + measuring.len();
            if let (true, Some(&index)) = (rules > MAX_RULES_PER_RESOURCE, measuring.last()) {
                let resource = name.as_ref().into();
                return Err(RulesError::ManyRules {
                    resource,
                    list: FLOW_RULES,
                    // Only those of this list measure others.
                    index: index.saturating_sub(flow_rules_start),
                });
            }
        }
        let measured = table.measuring.keys();
        let guarded = table
            .degrade
            .named
            .keys()
            .chain(table.authority.named.keys());
        let named: HashSet<&Rc<str>> = table.named.keys().chain(measured).chain(guarded).collect();
        for name in named {
            table.resources.keep(table.make(store, name, None));
        }
        table.known = table.resources.len();
        // What others over the same store have met goes on here, before they go.
        for other in store.tables.borrow().iter().filter_map(Weak::upgrade) {
            for met in other.resources.all() {
                if has_lost(store.tallies.places(None), met.place) {
                    continue;
                }
                let known = table.resources.get(&met.name);
                let resource = known.unwrap_or_else(|| table.meet(store, &met.name, &|| None));
                let is_for_others =
                    |check: &Check<T>| matches!(check.applies, Applies::OtherOrigins);
                if resource.checks.iter().any(is_for_others) {
                    for origin in met.origins.all() {
                        if !has_lost(met.origin_places.clone(), origin.place) {
                            resource.origin(store, &origin.name, None);
                        }
                    }
                }
            }
        }
        let table = Rc::new(table);
        store.tables.borrow_mut().push(Rc::downgrade(&table));
        Ok(table)
    }

    /// Puts the rules in force that are no flow rules.
    fn put_guards<S: Tallies<Tally = T>>(
        &mut self,
        store: &Store<S>,
        degrade: Vec<DegradeRule>,
        system: Vec<SystemRule>,
        authority: Vec<AuthorityRule>,
    ) -> Result<(), RulesError> {
        if store.tree().is_none() && store.inbound.get().is_none() && !system.is_empty() {
            return Err(RulesError::NoStatistics);
        }
        if system.len() > MAX_SYSTEM_RULES {
            let rules = system.len();
            return Err(RulesError::ManySystemRules { rules });
        }
        let mut ids = Ids::default();
        let in_force = Ids::in_force(&mut degrade.iter().map(DegradeRule::called));
        // A breaker in shadow mode has a state of its own: it may be open where the other one is closed.
        for (index, rule) in degrade.into_iter().enumerate() {
            let ((mode, id), target) = (in_force.beside(rule.called()), rule.target().clone());
            ids.take(&id, index, (DEGRADE_RULES, index))?;
            let rule = InForce::new(rule, id, mode, self.mode);
            self.degrade.add(&target, rule, DEGRADE_RULES, index)?;
        }
        // Authority and system rules keep no state: two with one id may be told apart by what they are.
        let in_force = Ids::in_force(&mut authority.iter().map(AuthorityRule::called));
        for (index, rule) in authority.into_iter().enumerate() {
            let ((mode, id), target) = (in_force.beside(rule.called()), rule.target().clone());
            let rule = InForce::new(rule, id, mode, self.mode);
            self.authority.add(&target, rule, AUTHORITY_RULES, index)?;
        }
        let in_force = Ids::in_force(&mut system.iter().map(SystemRule::called));
        let in_force = |rule: SystemRule| {
            let (mode, id) = in_force.beside(rule.called());
            InForce::new(rule, id, mode, self.mode)
        };
        self.system = system.into_iter().map(in_force).collect();
        Ok(())
    }

    /// The rules of a resource that are no flow rules.
    fn guards<S: Tallies<Tally = T>>(
        &self,
        store: &Store<S>,
        name: &Rc<str>,
        place: Option<NamePlace>,
    ) -> Guards<T::Breaker> {
        let guard = |rule: &Rc<InForce<DegradeRule>>| Guard {
            rule: Rc::clone(rule),
            breaker: store.breaker(BreakerKey {
                rule: rule.id.clone(),
                resource: Rc::clone(name),
                place,
                each: *rule.rule.target() == Target::Each,
                geometry: rule.rule.geometry(),
            }),
        };
        Guards {
            authority: self.authority.of(name).into(),
            system: Rc::clone(&self.system),
            breakers: self.degrade.of(name).iter().map(guard).collect(),
        }
    }

    /// A resource that is not known yet.
    #[cold]
    fn meet<S: Tallies<Tally = T>>(
        &self,
        store: &Store<S>,
        name: &str,
        clock: &dyn Fn() -> Option<Timestamp>,
    ) -> Rc<Resource<T>> {
        let bound = self.max_resources;
        let make = |name: &Rc<str>, place| self.make(store, name, place);
        if let Some(places) = store.tallies.places(None) {
            if !self.has_states_of_each() {
                return self.resources.further(&make);
            }
            return self.resources.meet(&*places, bound, name, clock, &make);
        }
        if self.resources.len().saturating_sub(self.known) < bound {
            return self.resources.keep(make(&name.into(), None));
        }
        self.resources.further(&make)
    }

    /// Whether resources that no rule names have states of their own. (Those of keys are told apart by names.)
    fn has_states_of_each(&self) -> bool {
        let rules = self.each.iter().filter_map(|&i| self.rules.get(i));
        let mut plain = rules.filter(|listed| listed.rule.keyed_by().is_none());
        plain.next().is_some() || !self.degrade.each.is_empty()
    }

    /// The resource of that name, by the rules that are for it.
    #[inline(never)]
    fn make<S: Tallies<Tally = T>>(
        &self,
        store: &Store<S>,
        name: &Rc<str>,
        place: Option<NamePlace>,
    ) -> Resource<T> {
        let own = self.named.get(name).unwrap_or(&self.each);
        let measuring = self.measuring.get(name).map_or(&[][..], Vec::as_slice);
        let rule = |&i: &usize| self.rules.get(i);
        let longest_wait = own
            .iter()
            .filter_map(rule)
            .map(|listed| longest_wait(&listed.rule));
        let longest_wait = longest_wait.max().unwrap_or_default();
        let check = |Listed { rule, id, beside }: &Listed, is_own: bool| {
            let counts = match (rule.strategy(), measured_elsewhere(rule)) {
                (Strategy::Chain(context), _) => Counts::Context(Rc::clone(context)),
                (_, Some(measured)) if measured == name => Counts::All,
                (_, Some(_)) => Counts::None,
                (_, None) => Counts::Same,
            };
            let mut check = Check {
                rule: Rc::clone(rule),
                id: id.clone(),
                beside: beside.clone(),
                terms: Terms::new(rule, longest_wait),
                applies: match rule.limit_app() {
                    _ if !is_own => Applies::Nobody,
                    LimitApp::Default => Applies::All,
                    LimitApp::Origin(name) => Applies::Origin(Rc::clone(name)),
                    LimitApp::Other => Applies::OtherOrigins,
                },
                counts,
                enforced: rule.mode() == Mode::Enforce && self.mode == Mode::Enforce,
                shadow_wait: Cell::new(0),
                state: None,
            };
            if !check.is_by_origin() {
                check.state = Some(check.open(store, (name, place), None));
            }
            check
        };
        let strangers = measuring.iter().filter(|i| !own.contains(i));
        let is_keyed = |listed: &&Listed| listed.rule.keyed_by().is_some();
        let (mut keys, mut others) = (Vec::new(), 0);
        for Listed { rule, id, beside } in own.iter().filter_map(rule) {
            if rule.keyed_by().is_none() {
                others += 1;
                continue;
            }
            let enforced = rule.mode() == Mode::Enforce && self.mode == Mode::Enforce;
            let name = (id.clone(), beside.clone());
            let check = KeyCheck::new(Rc::clone(rule), name, enforced, others);
            store.open_keyed(&check, false);
            keys.push(check);
        }
        let keys = Keys::new(keys);
        let checks: Box<[Check<T>]> = own
            .iter()
            .filter_map(rule)
            .filter(|rule| !is_keyed(rule))
            .map(|rule| check(rule, true))
            .chain(strangers.filter_map(rule).map(|rule| check(rule, false)))
            .collect();
        let told_of_ends = checks.iter().enumerate().filter(|(_, check)| {
            check.terms.compat && matches!(check.rule.grade(), Grade::Qps { .. })
        });
        let guards = self.guards(store, name, place);
        let has_origins = checks.iter().any(Check::is_by_origin);
        let is_further = name.is_empty() && self.has_states_of_each();
        let has_places = is_further && store.tallies.places(None).is_some();
        let of = Some((&**name, place)).filter(|_| has_origins);
        let origin_places = of.and_then(|of| store.tallies.places(Some(of)));
        Resource {
            name: Rc::clone(name),
            place,
            is_certain: !has_places && place.is_none() && origin_places.is_none(),
            origin_places,
            told_of_ends: told_of_ends.fold(0, |told, (i, _)| told | 1 << i),
            may_wait: checks
                .iter()
                .any(|check| check.rule.control_behavior().is_paced()),
            by_relation: checks.iter().any(|check| check.counts != Counts::Same),
            by_context: checks
                .iter()
                .any(|check| matches!(check.counts, Counts::Context(_))),
            by_origin: !guards.authority.is_empty()
                || checks.iter().any(|check| {
                    matches!(check.applies, Applies::Origin(_) | Applies::OtherOrigins)
                }),
            checks,
            is_guarded: !guards.are_none() || !keys.are_none(),
            guards,
            keys,
            origins: Apart::default(),
            default_node: OnceCell::new(),
        }
    }
}

type NameAndPlace<'a> = (&'a Rc<str>, Option<NamePlace>);

/// Whether a name that had that place in a list has lost it.
fn has_lost(places: Option<Rc<dyn Places>>, place: Option<NamePlace>) -> bool {
    let had = places.zip(place);
    had.is_some_and(|(places, place)| places.at(place.index as usize) != Some(place))
}

/// The resource that `rule` measures instead of the one that it is for. A throttle measures nothing.
fn measured_elsewhere(rule: &FlowRule) -> Option<&Rc<str>> {
    match rule.strategy() {
        Strategy::Relate(resource) if rule.control_behavior() != ControlBehavior::Throttle => {
            Some(resource)
        }
        _ => None,
    }
}

/// For how long `rule` lets a request wait at most, in nanoseconds.
fn longest_wait(rule: &FlowRule) -> u64 {
    if rule.control_behavior().is_paced() {
        rule.max_queueing().as_nanos()
    } else {
        OCCUPY_TIMEOUT_MS * 1_000_000
    }
}

impl<T: Tally> Check<T> {
    /// Whether each origin has a state of its own. (Sentinel's throttle has one for all.)
    fn is_by_origin(&self) -> bool {
        *self.rule.limit_app() == LimitApp::Other
            && *self.rule.strategy() == Strategy::Direct
            && !(self.terms.compat && self.rule.control_behavior() == ControlBehavior::Throttle)
    }

    /// Whether each resource has a state of its own.
    fn is_of_each(&self) -> bool {
        *self.rule.target() == Target::Each && measured_elsewhere(&self.rule).is_none()
    }

    /// Its state on a resource, or for an origin there.
    fn open<S: Tallies<Tally = T>>(
        &self,
        store: &Store<S>,
        resource: NameAndPlace<'_>,
        origin: Option<NameAndPlace<'_>>,
    ) -> Rc<Controller<T>> {
        let another = self.beside.as_ref();
        let another = another.map(|id| store.state(self.key(id, false, resource, origin), None));
        let key = self.key(&self.id, another.is_some(), resource, origin);
        store.state(key, another)
    }

    fn key(
        &self,
        id: &RuleId,
        is_beside: bool,
        (resource, place): NameAndPlace<'_>,
        origin: Option<NameAndPlace<'_>>,
    ) -> StateKey {
        let is_of_each = self.is_of_each();
        StateKey {
            rule: id.clone(),
            is_beside,
            resource: is_of_each.then(|| Rc::clone(resource)),
            resource_place: place.filter(|_| is_of_each),
            origin: origin.map(|(name, _)| Rc::clone(name)),
            origin_place: origin.and_then(|(_, place)| place),
            grade: self.rule.grade().of_state(),
            strategy: self.rule.strategy().clone(),
            behavior: self.rule.control_behavior(),
            compat: self.terms.compat,
            parts: Rc::new([]),
        }
    }

    /// Whether the rule is for requests of that origin.
    #[inline]
    fn applies_to(&self, origin: Option<&Origin<T>>) -> bool {
        match &self.applies {
            Applies::All => true,
            Applies::Origin(name) => origin.is_some_and(|origin| origin.name == *name),
            Applies::OtherOrigins => origin.is_some_and(|origin| origin.is_other),
            Applies::Nobody => false,
        }
    }

    /// Whether the rule is for the request, and whether it counts it.
    ///
    /// Sentinel: `FlowRuleChecker.selectNodeByRequesterAndStrategy`.
    #[inline]
    fn role(&self, caller: &Caller<'_, T>) -> (bool, bool) {
        let applies = self.applies_to(caller.origin);
        match &self.counts {
            Counts::Same => (applies, applies),
            Counts::All => (applies, true),
            Counts::None => (applies, false),
            Counts::Context(name) => {
                let is_in_context = **name == *caller.context;
                (applies && is_in_context, is_in_context)
            }
        }
    }

    /// For how long the request waits as far as the rule is concerned, if it waits for `wait`.
    fn wait(&self, wait: u64) -> u64 {
        if self.enforced {
            wait
        } else {
            self.shadow_wait.get().max(wait)
        }
    }
}

/// What asks to be let in.
pub struct Request<'a, T: Tally = LocalTally> {
    resource: &'a str,
    context: &'a str,
    origin: &'a str,
    cost: u64,
    prioritized: bool,
    impatient: bool,
    inbound: bool,
    within: Option<&'a Entry<T>>,
    keys: &'a [KeyValue<'a>],
}

impl<'a, T: Tally> Request<'a, T> {
    /// A request for `resource`, at a cost of one, from no origin in particular.
    #[inline]
    pub fn new(resource: &'a str) -> Request<'a, T> {
        Request {
            resource,
            context: "",
            origin: "",
            cost: 1,
            prioritized: false,
            impatient: false,
            inbound: false,
            within: None,
            keys: &[],
        }
    }

    /// This request, with these values for the parts of the resource's keys ([`Resource::key_parts`]), in their order. What is
    /// not said is missing.
    #[doc(alias = "args")]
    #[must_use]
    pub fn keys(self, keys: &'a [KeyValue<'a>]) -> Request<'a, T> {
        Request { keys, ..self }
    }

    /// This request, in a context of its own.
    #[must_use]
    pub fn context(self, context: &'a str) -> Request<'a, T> {
        Request { context, ..self }
    }

    /// This request, from that origin.
    #[must_use]
    pub fn origin(self, origin: &'a str) -> Request<'a, T> {
        Request { origin, ..self }
    }

    /// This request, at that cost.
    #[doc(alias = "acquireCount")]
    #[doc(alias = "batchCount")]
    #[must_use]
    pub fn cost(self, cost: u32) -> Request<'a, T> {
        Request {
            cost: cost.into(),
            ..self
        }
    }

    /// This request, as one that may borrow: where a rule that rejects has no room for it, it is told to wait until a bucket to
    /// come can pay for it, if that is in less than [`OCCUPY_TIMEOUT_MS`].
    ///
    /// Sentinel: `SphU.entryWithPriority`.
    #[doc(alias = "entryWithPriority")]
    #[must_use]
    pub fn prioritized(self) -> Request<'a, T> {
        Request {
            prioritized: true,
            ..self
        }
    }

    /// This request, as one that does not wait: where it would be told to, it is refused, and nothing is charged. The time to
    /// try again is then when it would have had its turn.
    #[must_use]
    pub fn impatient(self) -> Request<'a, T> {
        Request {
            impatient: true,
            ..self
        }
    }

    /// This request, as one from outside: it counts in the inbound statistics too.
    #[doc(alias = "EntryType")]
    #[must_use]
    pub fn inbound(self) -> Request<'a, T> {
        Request {
            inbound: true,
            ..self
        }
    }

    /// By which context it comes in.
    fn context_name(&self) -> &'a str {
        match self.within {
            Some(parent) => parent
                .context
                .as_deref()
                .map_or(DEFAULT_CONTEXT, Context::name),
            None if self.context.is_empty() => DEFAULT_CONTEXT,
            None => self.context,
        }
    }

    /// This request, made while `entry` is open, and in its context.
    #[must_use]
    pub fn within(self, entry: &'a Entry<T>) -> Request<'a, T> {
        Request {
            within: Some(entry),
            ..self
        }
    }
}

/// What was decided.
#[must_use]
#[derive(Debug)]
pub enum Decision<T: Tally = LocalTally> {
    /// Let in: the entry is to be ended when the call has ended.
    Pass(Entry<T>),
    /// Let in, but not before so much time has passed. One that is given up until then is to be told so
    /// ([`Entry::cancel`]), or dropped.
    Wait(Duration, Entry<T>),
    /// Refused; nothing was charged.
    Block(Blocked),
}

/// What refused a request.
///
/// Sentinel: the subclasses of `BlockException`.
#[doc(alias = "BlockException")]
#[derive(Clone, Debug)]
pub enum Cause {
    /// A limit on the resource, or, where the rule has a key ([`FlowRule::keyed_by`]), on that key.
    #[doc(alias = "ParamFlowException")]
    Flow(Rc<FlowRule>),
    /// A circuit breaker that is not closed.
    Degrade(Rc<DegradeRule>),
    /// What the machine bears, by which measure.
    System(SystemLimit, Rc<SystemRule>),
    /// An origin that may not enter.
    Authority(Rc<AuthorityRule>),
}

impl Cause {
    /// What the refusal means to the client: how it is answered.
    pub fn kind(&self) -> RefusalKind {
        match self {
            Cause::Flow(_) | Cause::System(SystemLimit::Qps, _) => RefusalKind::Limited,
            Cause::Degrade(_) | Cause::System(..) => RefusalKind::Unavailable,
            Cause::Authority(_) => RefusalKind::Forbidden,
        }
    }
}

/// A refusal.
#[derive(Clone, Debug)]
pub struct Blocked {
    cause: Cause,
    id: RuleId,
    retry_after: Option<Duration>,
}

impl Blocked {
    /// The first rule that refused: of authority rules, system rules, breakers and flow rules, in this order.
    pub fn cause(&self) -> &Cause {
        &self.cause
    }

    /// Its id.
    pub fn id(&self) -> &RuleId {
        &self.id
    }

    /// How long until the same request would be let in if nothing else came, to pass or to wait: the longest, if several rules
    /// refuse. `None` where it never can.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }
}

impl From<crate::engine::prechecks::Refusal> for Blocked {
    fn from(refusal: crate::engine::prechecks::Refusal) -> Blocked {
        let cause = match refusal.by {
            Guarded::Authority(rule) => Cause::Authority(rule),
            Guarded::System(limit, rule) => Cause::System(limit, rule),
            Guarded::Degrade(rule) => Cause::Degrade(rule),
        };
        Blocked {
            cause,
            id: refusal.id,
            retry_after: refusal.retry_after,
        }
    }
}

/// How a call ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// As it should.
    Success,
    /// With an error.
    Error,
}

/// A call in flight.
///
/// Ended once, with an outcome. Dropped without one, it gives back what it holds of limits on concurrency and records
/// nothing; and if it is still waiting, what it would have been released with ([`Entry::cancel`]), as far as the next
/// decision can tell. (A turn that it has taken for a key is spent then.)
#[must_use]
pub struct Entry<T: Tally = LocalTally> {
    resource: Rc<Resource<T>>,
    origin: Option<Rc<Origin<T>>>,
    /// By check: the rules that are to be told how this call ends.
    held: u64,
    /// How the breakers let it in.
    admissions: Admissions,
    cost: u64,
    started: Timestamp,
    /// When its wait is over.
    release: Timestamp,
    node: Option<Rc<DefaultNode>>,
    context: Option<Rc<Context>>,
    inbound: Option<Rc<ClusterNode>>,
}

impl<T: Tally> Entry<T> {
    /// Ends the call.
    #[inline]
    pub fn exit(self, outcome: Outcome, now: Timestamp) {
        self.exit_as(outcome, now, now);
    }

    /// Ends the call, which was answered earlier: its response time is that to `answered`.
    #[inline]
    pub fn exit_as(mut self, outcome: Outcome, answered: Timestamp, now: Timestamp) {
        let rt = answered.millis_since(self.started);
        let failed = outcome == Outcome::Error;
        if T::STATISTICS {
            if let Some(node) = self.node.take() {
                node.complete(rt, self.cost, failed, now);
            }
            for node in self.others().into_iter().flatten() {
                node.complete(rt, self.cost, failed, now);
            }
            self.inbound = None;
        }
        if !self.admissions.are_none() {
            let admissions = std::mem::take(&mut self.admissions);
            if let Some(keys) = admissions.keys() {
                self.resource.keys.leave(keys);
            }
            self.resource.guards.complete(admissions, rt, failed, now);
        }
        let held = std::mem::take(&mut self.held);
        if held != 0 {
            let tell = |_, _: &_, state: &Rc<Controller<T>>| state.leave(now);
            self.resource.each_state(held, self.origin.as_deref(), tell);
        }
        self.origin = None;
    }

    /// Ends a call that turns out not to count: what windows were charged for it goes back, as far as it counts there still; while
    /// it is waiting, it is given up ([`Entry::cancel`]). `keys` are those of its request.
    ///
    /// Turns that have been taken, counts that are shared, and rules in shadow mode, which may not have charged it, stay as they
    /// are. Statistics tell of a call as any other.
    pub fn exit_uncounted(self, keys: &[KeyValue<'_>], outcome: Outcome, now: Timestamp) {
        if now < self.release {
            return self.cancel(now);
        }
        self.resource.refund(&self, keys, now);
        self.exit(outcome, now);
    }

    /// Ends a call that nobody has waited for to be answered. It has no outcome, and no response time but that it was not
    /// shorter than this: a breaker that counts slow calls counts it if that is slow already. Else it is as if it were
    /// cancelled.
    pub fn exit_unanswered(mut self, now: Timestamp) {
        if !self.admissions.are_none() {
            let admissions = std::mem::take(&mut self.admissions);
            let lasted = now.millis_since(self.started);
            self.resource.guards.give_up(admissions, lasted, now);
        }
        self.give_up(Some(now));
    }

    /// Gives the call up. While it is still waiting, that gives back what it would have been released with: what it borrowed,
    /// and its turn, if no later one was taken. Later, it is as if it were dropped.
    pub fn cancel(mut self, now: Timestamp) {
        self.give_up(Some(now));
    }

    /// Records that the call has begun.
    #[inline(always)] // else the entry is kept in memory for its sake
    fn begin(&self) {
        if !T::STATISTICS {
            return;
        }
        if let Some(node) = &self.node {
            node.begin(self.cost, self.started);
        }
        for node in self.others().into_iter().flatten() {
            node.begin(self.cost, self.started);
        }
    }

    /// Records that the call has begun on a pass that `lender` lends it.
    ///
    /// Sentinel: `DefaultController.canPass`, which records it on the rule's node alone: there the other nodes never see that
    /// pass.
    #[cold]
    fn begin_on_loan(&self, tree: Option<&NodeTree>, lender: &Check<T>) {
        if !T::STATISTICS {
            return;
        }
        let (n, now) = (self.cost, self.started);
        let others = || self.others().into_iter().flatten();
        if lender.terms.compat {
            if let Some(node) = &self.node {
                node.begin_elsewhere(now);
            }
            others().for_each(|node| node.begin_elsewhere(now));
            let measured = match (&lender.counts, &lender.applies, &self.node) {
                (Counts::Context(_), _, Some(node)) => {
                    return node.statistics().lend(n, self.release, now);
                }
                (Counts::Same, Applies::All, Some(node)) => Some(Rc::clone(node.cluster())),
                (Counts::Same, _, _) => {
                    let origin = self.origin.as_deref();
                    if let Some(node) = origin.and_then(|origin| origin.statistics.as_ref()) {
                        node.lend(n, self.release, now);
                    }
                    None
                }
                _ => measured_elsewhere(&lender.rule)
                    .zip(tree)
                    .and_then(|(measured, tree)| tree.cluster(measured)),
            };
            if let Some(measured) = measured {
                measured.statistics().lend(n, self.release, now);
            }
            return;
        }
        if let Some(node) = &self.node {
            node.begin_on_loan(n, self.release, now);
        }
        others().for_each(|node| node.begin_on_loan(n, self.release, now));
    }

    /// When it may go on: when it was let in, or when its wait is over.
    pub fn release(&self) -> Timestamp {
        self.release
    }

    /// The statistics besides the resource's own.
    fn others(&self) -> [Option<&StatisticNode>; 2] {
        [
            self.origin
                .as_ref()
                .and_then(|origin| origin.statistics.as_deref()),
            self.inbound.as_deref().map(ClusterNode::statistics),
        ]
    }

    /// Gives back what it holds, at a time that nobody knows, if there is no `now`.
    #[inline]
    fn give_up(&mut self, now: Option<Timestamp>) {
        if !self.admissions.are_none() {
            let admissions = std::mem::take(&mut self.admissions);
            let Resource { guards, keys, .. } = &*self.resource;
            if let Some(held) = admissions.keys() {
                keys.give_up(held, self.cost, self.release, now);
            }
            guards.give_back(admissions, now.unwrap_or(self.started));
        }
        let held = std::mem::take(&mut self.held);
        if held != 0 {
            let release = (self.release > self.started).then_some(self.release);
            let give_up =
                |_, _: &_, state: &Rc<Controller<T>>| state.give_up(self.cost, release, now);
            self.resource
                .each_state(held, self.origin.as_deref(), give_up);
        }
    }
}

impl<T: Tally> Drop for Entry<T> {
    fn drop(&mut self) {
        self.give_up(None);
        if T::STATISTICS
            && let Some(node) = self.node.take()
        {
            node.abandon();
            for node in self.others().into_iter().flatten() {
                node.decrease_thread_num();
            }
        }
    }
}

impl<T: Tally> fmt::Debug for Entry<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "entry to {} since {} ms",
            self.resource.name,
            self.started.as_millis()
        )
    }
}

/// How a rule stands.
#[derive(Clone, Copy, Debug)]
pub struct Policy<'a> {
    /// The rule.
    pub rule: &'a FlowRule,
    /// Its id.
    pub id: &'a RuleId,
    /// How much it lets pass: of a rule with a key, what that key has, with what may burst.
    pub count: Count,
    /// Whole passes that are left now.
    pub remaining: u64,
    /// How long until quota comes back: a whole pass where none is left, else any. Zero where none is used or it is unknown.
    pub reset: Duration,
}

impl<T: Tally> Resource<T> {
    /// The name, empty for the resource that stands for all beyond the bound.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether any rule applies.
    pub fn has_rules(&self) -> bool {
        !self.checks.is_empty() || self.is_guarded
    }

    /// What its rules tell requests apart by, each part once. A shell reads them and hands the values in, in this order
    /// ([`Request::keys`]).
    pub fn key_parts(&self) -> &[KeyPart] {
        self.keys.parts()
    }

    /// The flow rules that are for it, and those that measure it: first those that limit each key for itself.
    pub fn flow_rules(&self) -> impl Iterator<Item = &FlowRule> {
        let keyed = self.keys.checks().iter().map(KeyCheck::rule);
        keyed.chain(self.checks.iter().map(|check| &*check.rule))
    }

    /// Whether any breaker is to be told how calls end: by [`Entry::exit`].
    pub fn has_breakers(&self) -> bool {
        !self.guards.breakers.is_empty()
    }

    /// Whether [`Engine::is_current`] is always true of it.
    #[inline]
    pub fn is_certain(&self) -> bool {
        self.is_certain
    }

    /// Whether it stands for names that have no windows of their own.
    pub fn is_further(&self) -> bool {
        self.name.is_empty()
    }

    /// Whether any rule asks where a request comes from: if none does, its origin changes nothing.
    pub fn by_origin(&self) -> bool {
        self.by_origin
    }

    /// As [`Resource::observe`], for a request from `origin`: the windows of its own that it has under rules for other origins
    /// are read, too.
    pub fn observe_from(&self, origin: &str) {
        self.observe();
        let states = |origin: &Rc<Origin<T>>| {
            let states = origin.states.iter().flatten();
            states.for_each(|state| state.observe());
        };
        if !origin.is_empty() {
            // One beyond the bound is met under no name.
            let known = self.origins.get(origin);
            known.or_else(|| self.origins.get("")).as_ref().map(states);
        }
    }

    /// Reads the shared counts of its rules and the state of its breakers, for a request of no origin in particular. To be
    /// called before the clock is read for [`Engine::enter_resource`].
    #[inline]
    pub fn observe(&self) {
        for guard in &self.guards.breakers {
            guard.breaker.reload();
        }
        for state in self
            .checks
            .iter()
            .filter_map(|check| check.state.as_deref())
        {
            state.observe();
        }
    }

    /// Brings the windows of its rules up to `now`, for [`Resource::policies`] of a resource that was not asked for a while.
    pub fn advance(&self, now: Timestamp) {
        let states = self.checks.iter().filter_map(|check| check.state.as_ref());
        states.for_each(|state| state.advance(now));
    }

    /// How the rules stand that apply to requests of no origin in particular and no context, in order. Rules with a key stand
    /// differently for each.
    pub fn policies(&self, now: Timestamp) -> impl Iterator<Item = Policy<'_>> {
        self.checks
            .iter()
            .filter_map(move |check| self.policy(check, now))
    }

    /// The same, and for requests with those keys the rules with a key: of several keys, the one of which least is left.
    pub fn policies_for<'a>(
        &'a self,
        request: &Request<'a, T>,
        now: Timestamp,
    ) -> impl Iterator<Item = Policy<'a>> + use<'a, T> {
        let (keys, name) = (request.keys, self.name_of(request));
        let caller = KeyCaller {
            values: keys,
            resource: name,
            origin: "",
            is_other: false,
            cost: 1,
        };
        let (mut keyed, mut place) = (self.keys.statuses(caller, now).peekable(), 0);
        // In the order of both: a keyed rule knows how many of the others stand before it.
        std::iter::from_fn(move || {
            loop {
                let next = keyed.next_if(|(before, ..)| *before <= place);
                if let Some((_, rule, id, count, status)) = next {
                    return Some(Policy {
                        rule,
                        id,
                        count,
                        remaining: status.remaining,
                        reset: status.reset,
                    });
                }
                let check = self.checks.get(place)?;
                place += 1;
                if let Some(policy) = self.policy(check, now) {
                    return Some(policy);
                }
            }
        })
    }

    #[inline]
    fn policy<'a>(&'a self, check: &'a Check<T>, now: Timestamp) -> Option<Policy<'a>> {
        let caller = Caller {
            origin: None,
            context: DEFAULT_CONTEXT,
            cost: 1,
            prioritized: false,
            keys: KeyCaller::nobody(),
            impatient: false,
        };
        let state = check.state.as_ref().filter(|_| check.role(&caller).0)?;
        let remaining = state.remaining(&check.terms, now);
        Some(Policy {
            rule: &check.rule,
            id: &check.id,
            count: check.rule.count(),
            remaining,
            reset: state.time_to_more(&check.terms, remaining, now),
        })
    }

    /// The state of the check, the `index`th, for requests of that origin; `None` where there is none for it.
    #[inline]
    fn state<'a>(
        &self,
        check: &'a Check<T>,
        index: usize,
        origin: Option<&'a Origin<T>>,
    ) -> Option<&'a Rc<Controller<T>>> {
        match &check.state {
            Some(state) => Some(state),
            None => origin?.states.get(index)?.as_ref(),
        }
    }

    /// Tells `each` of the states of the checks in `chosen`, a bit for each, in order.
    #[inline]
    fn each_state<'a>(
        &'a self,
        chosen: u64,
        origin: Option<&Origin<T>>,
        mut each: impl FnMut(usize, &'a Check<T>, &Rc<Controller<T>>),
    ) {
        let mut rest = chosen;
        while rest != 0 {
            let i = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            if let Some(check) = self.checks.get(i)
                && let Some(state) = self.state(check, i, origin)
            {
                each(i, check, state);
            }
        }
    }

    /// Gives back what windows were charged for a call.
    fn refund(&self, call: &Entry<T>, keys: &[KeyValue<'_>], now: Timestamp) {
        let origin = call.origin.as_deref();
        let caller = Caller {
            origin,
            context: call
                .context
                .as_deref()
                .map_or(DEFAULT_CONTEXT, Context::name),
            cost: call.cost,
            prioritized: false,
            keys: KeyCaller {
                values: keys,
                resource: &self.name,
                origin: origin.map_or("", |origin| &*origin.name),
                is_other: origin.is_some_and(|origin| origin.is_other),
                cost: call.cost,
            },
            impatient: false,
        };
        let waited = call.release > call.started;
        for (i, check) in self.checks.iter().enumerate() {
            let (applies, counts) = check.role(&caller);
            if counts
                && (check.enforced || !applies)
                && let Some(state) = self.state(check, i, origin)
            {
                state.refund(call.cost, call.release, waited, now);
            }
        }
        if !self.name.is_empty() {
            self.keys.refund(&caller.keys, call.started, now);
        }
    }

    fn enter(
        self: &Rc<Self>,
        store: &Store<impl Tallies<Tally = T>>,
        request: &Request<'_, T>,
        now: Timestamp,
    ) -> Decision<T> {
        let origin = if request.origin.is_empty() {
            None
        } else {
            Some(self.origin(store, request.origin, Some(now)))
        };
        let (context, node) = self.node(store, request);
        let inbound = store
            .tree()
            .filter(|_| request.inbound)
            .map(|tree| Rc::clone(tree.inbound()));
        let may_wait = self.may_wait || request.prioritized;
        let passes = if self.is_guarded {
            None
        } else {
            self.pass_at_once(origin.as_deref(), request.cost, may_wait, now)
        };
        let Some(held) = passes else {
            let whereabouts = (origin, node, context, inbound);
            return self.enter_slowly(whereabouts, store, request, now);
        };
        let entry = Entry {
            resource: Rc::clone(self),
            origin,
            held,
            admissions: Admissions::default(),
            cost: request.cost,
            started: now,
            release: now,
            node,
            context,
            inbound,
        };
        entry.begin();
        Decision::Pass(entry)
    }

    /// What becomes of a request that flow rules alone do not let pass at once.
    #[cold]
    #[inline(never)]
    fn enter_slowly(
        self: &Rc<Self>,
        whereabouts: Whereabouts<T>,
        store: &Store<impl Tallies<Tally = T>>,
        request: &Request<'_, T>,
        now: Timestamp,
    ) -> Decision<T> {
        let origin = whereabouts.0.as_deref();
        let decided = if self.is_guarded {
            self.decide_guarded(&whereabouts, store, request, now)
        } else {
            self.decide(origin, request, None, now)
                .map(|admitted| (admitted, Admissions::default()))
        };
        let (admitted, admissions) = match decided {
            Ok(admitted) => admitted,
            Err(blocked) => return self.block(blocked, &whereabouts, request, now),
        };
        let Admitted {
            held, wait, lender, ..
        } = admitted;
        let (origin, node, context, inbound) = whereabouts;
        let entry = Entry {
            resource: Rc::clone(self),
            origin,
            held,
            admissions,
            cost: request.cost,
            started: now,
            release: now.plus_nanos(wait),
            node,
            context,
            inbound,
        };
        match lender {
            None => entry.begin(),
            Some(lender) => entry.begin_on_loan(store.tree(), lender),
        }
        match wait {
            0 => Decision::Pass(entry),
            wait => Decision::Wait(Duration::from_nanos(wait), entry),
        }
    }

    /// Asks the rules that are no flow rules, and then those.
    fn decide_guarded(
        &self,
        (origin, _, _, inbound): &Whereabouts<T>,
        store: &Store<impl Tallies<Tally = T>>,
        request: &Request<'_, T>,
        now: Timestamp,
    ) -> Result<(Admitted<'_, T>, Admissions), Blocked> {
        let (origin, cost) = (origin.as_deref(), request.cost);
        let inbound = || match inbound {
            Some(node) => Some(Inbound::of(node.statistics(), now)),
            None => store.inbound.get().filter(|_| request.inbound),
        };
        let gauges = store.gauges.get();
        let asked = self
            .guards
            .check(request.origin, inbound, &gauges, cost, now);
        let mut admissions = asked?;
        // Before anything is charged: where breakers are shared, somebody else may have taken the probe since they were asked.
        self.guards.reserve(&mut admissions, now)?;
        let may_wait = self.may_wait || request.prioritized;
        let decided = if !self.keys.are_none() {
            self.decide_keyed(origin, store, request, may_wait, now)
        } else if let Some(held) = self.pass_at_once(origin, cost, may_wait, now) {
            Ok(Admitted::at_once(held))
        } else {
            self.decide(origin, request, None, now)
        };
        let mut admitted = match decided {
            Ok(admitted) => admitted,
            Err(blocked) => {
                self.guards.undo(admissions, now);
                return Err(blocked);
            }
        };
        admissions.keep(admitted.keys.take());
        Ok((admitted, admissions))
    }

    /// Charges all flow rules, or none, where some have a key.
    fn decide_keyed(
        &self,
        origin: Option<&Origin<T>>,
        store: &Store<impl Tallies<Tally = T>>,
        request: &Request<'_, T>,
        may_wait: bool,
        now: Timestamp,
    ) -> Result<Admitted<'_, T>, Blocked> {
        for check in self.keys.checks().iter().filter(|check| !check.is_open()) {
            store.open_keyed(check, true);
        }
        let caller = self.key_caller(origin, request);
        let mut holds = Holds::default();
        // Most pass at once. What becomes of the others is decided together.
        if self.keys.reserve_at_once(&mut holds, &caller, now) {
            if let Some(held) = self.pass_at_once(origin, request.cost, may_wait, now) {
                let keys = self.keys.admit(&holds, 0, &caller);
                return Ok(Admitted {
                    keys,
                    ..Admitted::at_once(held)
                });
            }
            self.keys.release(&mut holds, &caller, now);
        }
        self.decide(origin, request, Some(&mut holds), now)
    }

    /// The name of the resource of a request. Keys are told apart by it beyond the bound, too: they have one of their own.
    fn name_of<'a>(&'a self, request: &Request<'a, T>) -> &'a str {
        if self.name.is_empty() {
            request.resource
        } else {
            &self.name
        }
    }

    fn key_caller<'a>(
        &'a self,
        origin: Option<&Origin<T>>,
        request: &Request<'a, T>,
    ) -> KeyCaller<'a> {
        KeyCaller {
            values: request.keys,
            resource: self.name_of(request),
            origin: request.origin,
            is_other: origin.is_some_and(|origin| origin.is_other),
            cost: request.cost,
        }
    }

    /// Records that a request was refused.
    fn block(
        &self,
        blocked: Blocked,
        (origin, node, _, inbound): &Whereabouts<T>,
        request: &Request<'_, T>,
        now: Timestamp,
    ) -> Decision<T> {
        if !T::STATISTICS {
            return Decision::Block(blocked);
        }
        if let Some(node) = node {
            node.block(request.cost, now);
        }
        let origin = origin
            .as_ref()
            .and_then(|origin| origin.statistics.as_deref());
        let inbound = inbound.as_deref().map(ClusterNode::statistics);
        for node in [origin, inbound].into_iter().flatten() {
            node.increase_block_qps(request.cost, now);
        }
        Decision::Block(blocked)
    }

    /// Charges all flow rules, or none, of a request that may not pass at once.
    fn decide(
        &self,
        origin: Option<&Origin<T>>,
        request: &Request<'_, T>,
        keys: Option<&mut Holds>,
        now: Timestamp,
    ) -> Result<Admitted<'_, T>, Blocked> {
        let is_plain =
            !self.by_relation && !self.may_wait && !request.prioritized && self.keys.are_none();
        let refusal = is_plain.then(|| self.refusal(origin, request.cost, now));
        let refusal = match refusal.flatten() {
            Some(refusal) => refusal,
            None => {
                let caller = Caller {
                    origin,
                    context: if self.by_context {
                        request.context_name()
                    } else {
                        ""
                    },
                    cost: request.cost,
                    prioritized: request.prioritized,
                    keys: self.key_caller(origin, request),
                    impatient: request.impatient,
                };
                match self.decide_together(&caller, keys, now) {
                    Ok(admitted) => return Ok(admitted),
                    Err(refusal) => refusal,
                }
            }
        };
        Err(self.blocked(refusal, origin, request, now))
    }

    /// Which rules refuse a request that none of them may make wait. `None` where all have room after all.
    fn refusal(
        &self,
        origin: Option<&Origin<T>>,
        cost: u64,
        now: Timestamp,
    ) -> Option<Refusal<'_, T>> {
        let (mut refusing, mut first) = (0, None);
        let mut shadow_refusing = 0;
        for (i, check) in self.checks.iter().enumerate() {
            let applies = check.applies_to(origin);
            let Some(state) = self.state(check, i, origin).filter(|_| applies) else {
                continue;
            };
            state.advance(now);
            if state.has_room(&check.terms, cost, now) {
                continue;
            }
            if check.enforced {
                refusing |= 1 << i;
                first = first.or(Some(check));
            } else {
                shadow_refusing |= 1 << i;
            }
        }
        let first = first?;
        self.each_state(refusing | shadow_refusing, origin, |_, check, state| {
            state.wait(&check.terms, cost, false, now);
        });
        self.each_state(shadow_refusing, origin, |_, _, state| state.shadow_block());
        Some(Refusal {
            first: First::Check(first),
            refusing,
            keys_retry_after: Some(Duration::ZERO),
        })
    }

    /// Charges all rules, if all let the request pass at once: those that are to be told how it ends, a bit for each check.
    /// Else none, and [`Resource::decide`] says what becomes of it.
    #[inline(always)] // here is where every request comes through
    fn pass_at_once(
        &self,
        origin: Option<&Origin<T>>,
        cost: u64,
        may_wait: bool,
        now: Timestamp,
    ) -> Option<u64> {
        if self.by_relation {
            return None;
        }
        // Most have one rule, which needs no other's consent.
        if let [check] = &*self.checks
            && check.enforced
        {
            let applies = check.applies_to(origin);
            let Some(state) = self.state(check, 0, origin).filter(|_| applies) else {
                return Some(0);
            };
            state.advance(now);
            let takes = state.has_room(&check.terms, cost, now)
                && state.reserve_at_once(&check.terms, cost, now);
            return takes.then(|| u64::from(state.commit_at_once(cost)) | self.told_of_ends);
        }
        let (mut willing, mut refusing) = (0, 0);
        for (i, check) in self.checks.iter().enumerate() {
            if !check.applies_to(origin) {
                continue;
            }
            if let Some(state) = self.state(check, i, origin) {
                state.advance(now);
                if state.has_room(&check.terms, cost, now) {
                    willing |= 1 << i;
                } else if check.enforced || may_wait {
                    return None;
                } else {
                    refusing |= 1 << i;
                }
            }
        }
        let (mut reserved, mut could) = (0, true);
        self.each_state(willing, origin, |i, check, state| {
            // Where one could not, nothing more is taken: all of it is given back.
            state.count_as(check.terms.counting); // another check may have asked the same window
            could = could && state.reserve_at_once(&check.terms, cost, now);
            reserved |= u64::from(could) << i;
        });
        if !could {
            self.each_state(reserved, origin, |_, _, state| {
                state.give_back(Ask::at_once(cost), now);
            });
            return None;
        }
        let mut held = reserved & self.told_of_ends;
        self.each_state(reserved, origin, |i, _, state| {
            if state.commit_at_once(cost) {
                held |= 1 << i;
            }
        });
        if refusing != 0 {
            // Rules in shadow mode, and none that would lend.
            self.each_state(refusing, origin, |_, check, state| {
                state.wait(&check.terms, cost, false, now);
                state.shadow_block();
            });
        }
        Some(held)
    }

    /// Charges all flow rules, or none.
    fn decide_together(
        &self,
        caller: &Caller<'_, T>,
        keys: Option<&mut Holds>,
        now: Timestamp,
    ) -> Result<Admitted<'_, T>, Refusal<'_, T>> {
        let (mut attempts, mut none) = (0, Holds::default());
        let keys = keys.unwrap_or(&mut none);
        loop {
            attempts += 1;
            if let Some(decided) = self.try_to_decide(caller, keys, attempts < MAX_ATTEMPTS, now) {
                return decided;
            }
        }
    }

    /// Charges all rules, or none. `None` where somebody else was faster to take a turn and one may try `again`.
    fn try_to_decide(
        &self,
        caller: &Caller<'_, T>,
        keys: &mut Holds,
        again: bool,
        now: Timestamp,
    ) -> Option<Result<Admitted<'_, T>, Refusal<'_, T>>> {
        let cost = caller.cost;
        // A bit for each check, in each of these. `measured` are those that count the request and are not for it.
        let (mut willing, mut counting, mut measured) = (0, 0, 0);
        let (mut waiting, mut refusing, mut shadow_refusing) = (0_u64, 0_u64, 0_u64);
        if !self.keys.are_none() {
            self.keys.ask(keys, &caller.keys, now);
        }
        let (mut wait, mut first) = (keys.wait, None);
        for (i, check) in self.checks.iter().enumerate() {
            let Some(state) = self.state(check, i, caller.origin) else {
                continue;
            };
            let (applies, counts) = check.role(caller);
            let bit = 1 << i;
            match (applies, counts) {
                (true, true) => counting |= bit,
                (true, false) if check.terms.compat && !state.is_met() => continue,
                (true, false) => {}
                (false, true) => {
                    measured |= bit;
                    state.advance(now);
                    state.meet();
                    continue;
                }
                (false, false) => continue,
            }
            state.advance(now);
            if state.has_room(&check.terms, cost, now) {
                willing |= bit;
                continue;
            }
            match state.wait(&check.terms, cost, caller.prioritized, now) {
                Some(own) if !(caller.impatient && check.enforced && own > 0) => {
                    willing |= bit;
                    waiting |= bit;
                    if check.enforced {
                        wait = wait.max(own);
                    } else {
                        check.shadow_wait.set(own);
                    }
                }
                _ if check.enforced => {
                    refusing |= bit;
                    first = first.or(Some((i, check)));
                }
                _ => shadow_refusing |= bit,
            }
        }
        let ask = |i: usize, check: &Check<T>| Ask {
            cost,
            counts: counting >> i & 1 == 1,
            wait: if waiting >> i & 1 == 1 {
                check.wait(wait)
            } else {
                wait
            },
        };
        let (mut reserved, mut overtaken) = (0, false);
        if refusing == 0 && !keys.refuse() {
            self.each_state(willing, caller.origin, |i, check, state| {
                if refusing != 0 || overtaken {
                    // Nothing more is taken: all of it is given back.
                } else if state.reserve(&check.terms, ask(i, check), now) {
                    reserved |= 1 << i;
                } else if again && check.rule.control_behavior().is_paced() {
                    overtaken = true;
                } else if check.enforced {
                    refusing |= 1 << i;
                    first = Some((i, check));
                } else {
                    shadow_refusing |= 1 << i;
                }
            });
            if refusing == 0 && !overtaken {
                overtaken = !self.keys.reserve(keys, wait, &caller.keys, now) && again;
            }
            if refusing != 0 || overtaken || keys.refuse() {
                self.each_state(reserved, caller.origin, |i, check, state| {
                    state.give_back(ask(i, check), now);
                });
                if overtaken {
                    return None;
                }
            }
        }
        if shadow_refusing != 0 {
            self.each_state(shadow_refusing, caller.origin, |_, _, state| {
                state.shadow_block();
            });
        }
        let place = first.map(|(place, _)| place);
        let first_key = self.keys.first_refusing(keys, place).map(First::Key);
        let first = first_key.or(first.map(|(_, check)| First::Check(check)));
        if let Some(first) = first {
            self.keys.shadow_block(keys);
            return Some(Err(Refusal {
                first,
                refusing,
                keys_retry_after: keys.retry_after(),
            }));
        }
        let mut held = (reserved | measured) & self.told_of_ends;
        if wait > 0 {
            held = reserved | measured;
        }
        let mut lender = None;
        self.each_state(reserved, caller.origin, |i, check, state| {
            if state.commit(ask(i, check)) {
                held |= 1 << i;
            }
            if waiting >> i & 1 == 1 {
                state.waits();
                if check.enforced && !check.rule.control_behavior().is_paced() {
                    lender = lender.or(Some(check));
                }
            }
        });
        if measured != 0 {
            self.each_state(measured, caller.origin, |i, check, state| {
                if state.charge(ask(i, check), now) {
                    held |= 1 << i;
                }
            });
        }
        Some(Ok(Admitted {
            held,
            wait,
            lender,
            keys: match self.keys.are_none() {
                true => None,
                false => self.keys.admit(keys, wait, &caller.keys),
            },
        }))
    }

    /// What the request is told that was refused.
    #[cold]
    #[inline(never)]
    fn blocked(
        &self,
        refusal: Refusal<'_, T>,
        origin: Option<&Origin<T>>,
        request: &Request<'_, T>,
        now: Timestamp,
    ) -> Blocked {
        let mut retry_after = refusal.keys_retry_after;
        self.each_state(refusal.refusing, origin, |_, check, state| {
            if matches!(refusal.first, First::Check(first) if std::ptr::eq(check, first)) {
                state.block();
            }
            let (terms, cost, prioritized) = (&check.terms, request.cost, request.prioritized);
            let turn = if request.impatient {
                state.wait(terms, cost, prioritized, now)
            } else {
                None
            };
            let wait = match turn {
                Some(turn) => Some(Duration::from_nanos(turn)),
                None => state.time_to_room(terms, cost, prioritized, now),
            };
            retry_after = retry_after
                .zip(wait)
                .map(|(longest, wait)| longest.max(wait));
        });
        let (rule, id) = match refusal.first {
            First::Check(check) => (Rc::clone(&check.rule), check.id.clone()),
            First::Key(check) => check.block(),
        };
        Blocked {
            cause: Cause::Flow(rule),
            id,
            retry_after,
        }
    }

    /// The origin called `name`, met if need be; beyond [`MAX_ORIGINS`] one that all further ones share.
    fn origin<S: Tallies<Tally = T>>(
        &self,
        store: &Store<S>,
        name: &str,
        now: Option<Timestamp>,
    ) -> Rc<Origin<T>> {
        if let Some(origin) = self.origins.get(name) {
            return origin;
        }
        let make = |name: &Rc<str>, place| self.make_origin(store, name, place);
        // One that a rule names is always known: no flood of others frees it of its rule.
        if self.names_origin(name) {
            return self.origins.keep(make(&name.into(), None));
        }
        if let Some(places) = &self.origin_places {
            let clock = || now;
            return self
                .origins
                .meet(&**places, MAX_ORIGINS, name, &clock, &make);
        }
        if self.origins.len() < MAX_ORIGINS {
            return self.origins.keep(make(&name.into(), None));
        }
        self.origins.further(&make)
    }

    /// Whether a rule names that origin.
    fn names_origin(&self, name: &str) -> bool {
        self.checks.iter().any(|check| match &check.applies {
            Applies::All => name == "default",
            Applies::OtherOrigins => name == "other",
            Applies::Origin(named) => &**named == name,
            Applies::Nobody => false,
        }) || self.keys.names(name)
    }

    #[inline(never)]
    fn make_origin<S: Tallies<Tally = T>>(
        &self,
        store: &Store<S>,
        name: &Rc<str>,
        place: Option<NamePlace>,
    ) -> Origin<T> {
        let is_named = self.names_origin(name);
        let state = |check: &Check<T>| {
            let applies = matches!(check.applies, Applies::OtherOrigins) && !is_named;
            (applies && check.is_by_origin())
                .then(|| check.open(store, (&self.name, self.place), Some((name, place))))
        };
        Origin {
            statistics: store
                .tree()
                .map(|tree| tree.cluster_or_new(&self.name).origin_or_new(name)),
            states: self.checks.iter().map(state).collect(),
            is_other: !is_named,
            name: Rc::clone(name),
            place,
        }
    }

    /// Whether a request of that origin was decided by the windows that are its own.
    fn is_current_for(&self, origin: &str) -> bool {
        let places = self.origin_places.as_deref();
        let Some(places) = places.filter(|_| !origin.is_empty()) else {
            return true;
        };
        let known = self.origins.get(origin).or_else(|| self.origins.get(""));
        known.is_none_or(|known| self.origins.is_current(places, &known, origin))
    }

    /// The node in the request's context, made if need be, and the context where it is not the default one.
    #[inline]
    fn node(
        &self,
        store: &Store<impl Tallies<Tally = T>>,
        request: &Request<'_, T>,
    ) -> (Option<Rc<Context>>, Option<Rc<DefaultNode>>) {
        let parent = request.within;
        let context = match parent {
            Some(parent) => parent.context.clone(),
            None if request.context.is_empty() => None,
            None => Some(store.context(request.context)),
        };
        let Some(tree) = store.tree() else {
            return (context, None);
        };
        let within = parent.and_then(|parent| parent.node.as_deref());
        let node = match &context {
            Some(context) => tree.node(context, &self.name, within),
            None => {
                let make = || tree.node(tree.default_context(), &self.name, within);
                Rc::clone(self.default_node.get_or_init(make))
            }
        };
        (context, Some(node))
    }
}
