//! Resources, the order of checks, entering and leaving, and replacing rules.
//!
//! A request enters a resource. All its rules are asked, in order, and none of them is charged yet; if all have room, all
//! reserve; if all could, all are charged, else all give back. A refusal by one charges none.

use crate::control::Controller;
use crate::node::{ClusterNode, DefaultNode, MAX_ORIGINS, StatisticNode};
use crate::rule::{Count, FlowRule, Grade, LimitApp, Mode, RuleId, Rules, Target};
use crate::tally::{LocalTally, Past, Tally};
use crate::time::Timestamp;
use crate::tree::{Context, NodeTree};
use hashbrown::HashMap;
use std::cell::{Cell, OnceCell, RefCell};
use std::fmt;
use std::rc::{Rc, Weak};
use std::time::Duration;

/// How many rules may apply to one resource: each costs a decision per request.
pub const MAX_RULES_PER_RESOURCE: usize = 64;

/// How many resources without rules of their own are kept apart; those that come later share one.
///
/// Sentinel: `Constants.MAX_SLOT_CHAIN_SIZE`, above which a resource is not checked at all.
pub const MAX_RESOURCES: usize = 6000;

/// What the state of a rule belongs to: the same key, the same state, whatever the rule's count and position.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct StateKey {
    /// The rule.
    pub rule: RuleId,
    /// The resource, for a rule that applies to each on a window of its own.
    pub resource: Option<Rc<str>>,
    /// The origin, for a rule that applies to each on a window of its own.
    pub origin: Option<Rc<str>>,
    /// What the rule limits, and the geometry of its window.
    pub grade: Grade,
}

/// Where the counts of rules are kept.
pub trait Tallies {
    /// The counts of one rule.
    type Tally: Tally;

    /// The counts for the state of `key`, and what is known of their past.
    fn open(&self, key: &StateKey) -> (Self::Tally, Past);
}

/// Counts that nobody shares.
#[derive(Default, Debug)]
pub struct Local;

impl Tallies for Local {
    type Tally = LocalTally;

    fn open(&self, _: &StateKey) -> (LocalTally, Past) {
        (LocalTally::default(), Past::Fresh)
    }
}

/// Why rules cannot be put in force. Those in force stay.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RulesError {
    /// Two rules have one id: name one of them otherwise.
    SameId {
        /// The id.
        id: RuleId,
        /// Where the second one stands among the flow rules.
        index: usize,
    },
    /// More rules apply to a resource than [`MAX_RULES_PER_RESOURCE`].
    ManyRules {
        /// The resource, or `*`.
        resource: String,
        /// Where the first rule too many stands among the flow rules.
        index: usize,
    },
}

impl RulesError {
    /// Where the rule that cannot be had stands among the flow rules.
    pub fn index(&self) -> usize {
        match self {
            RulesError::SameId { index, .. } | RulesError::ManyRules { index, .. } => *index,
        }
    }
}

impl fmt::Display for RulesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RulesError::SameId { id, .. } => write!(
                f,
                "`{id}` is the id of an earlier rule; give one of them another `id`"
            ),
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
    tables: RefCell<Vec<Weak<Table<S::Tally>>>>,
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
            tables: RefCell::default(),
        }
    }

    /// Keeps at most `max_resources` resources apart that have no rules of their own.
    pub fn set_max_resources(&self, max_resources: usize) {
        self.max_resources.set(max_resources);
    }

    /// Where the counts are kept.
    pub fn tallies(&self) -> &S {
        &self.tallies
    }

    /// The statistics, if they are kept.
    pub fn tree(&self) -> Option<&NodeTree> {
        self.tree.as_ref()
    }

    fn state(&self, key: StateKey) -> Rc<Controller<S::Tally>> {
        let mut states = self.states.borrow_mut();
        if let Some(state) = states.get(&key).and_then(Weak::upgrade) {
            return state;
        }
        let (tally, past) = self.tallies.open(&key);
        let state = Rc::new(Controller::new(key.grade, tally, past));
        states.insert(key, Rc::downgrade(&state));
        self.in_order.borrow_mut().push(Rc::downgrade(&state));
        state
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

    /// Forgets the states that no rule refers to any more.
    pub fn sweep(&self) {
        self.states
            .borrow_mut()
            .retain(|_, state| state.strong_count() > 0);
        self.in_order
            .borrow_mut()
            .retain(|state| state.strong_count() > 0);
        self.tables
            .borrow_mut()
            .retain(|table| table.strong_count() > 0);
    }
}

/// One rule on one resource.
struct Check<T> {
    rule: Rc<FlowRule>,
    id: RuleId,
    /// The rule's count, where the decision need not look for it.
    count: Count,
    applies: Applies,
    enforced: bool,
    /// `None` where each origin has a state of its own ([`Origin::states`]).
    state: Option<Rc<Controller<T>>>,
}

/// Which requests a rule is for.
enum Applies {
    All,
    Origin(Rc<str>),
    OtherOrigins,
}

/// Which rules refuse a request.
struct Refusal<'a, T> {
    first: &'a Check<T>,
    /// A bit for each check.
    refusing: u64,
}

/// One origin of a resource.
struct Origin<T> {
    name: Rc<str>,
    statistics: Option<Rc<StatisticNode>>,
    /// By check: the state of a rule for other origins, where it applies to this one.
    states: Box<[Option<Rc<Controller<T>>>]>,
}

/// A resource with its rules.
pub struct Resource<T> {
    name: Rc<str>,
    checks: Box<[Check<T>]>,
    origins: RefCell<HashMap<Rc<str>, Rc<Origin<T>>>>,
    /// The statistics in the context that most requests come in by.
    default_node: OnceCell<Rc<DefaultNode>>,
}

/// A set of rules in force.
struct Table<T> {
    /// The rules of each resource that any rule names, in order.
    named: HashMap<Rc<str>, Vec<usize>>,
    /// The rules for each resource that none names.
    each: Vec<usize>,
    rules: Vec<(Rc<FlowRule>, RuleId)>,
    mode: Mode,
    resources: RefCell<HashMap<Rc<str>, Rc<Resource<T>>>>,
}

/// Rules, applied to requests. `S` says where counts are kept; by default they are this engine's own.
///
/// ```
/// use leapgate::{Decision, Engine, FlowRule, Outcome, Request, Rules, Timestamp};
///
/// let at = Timestamp::from_millis;
/// let rules = Rules { flow: vec![FlowRule::new("login", 2.0)?], ..Rules::default() };
/// let engine = Engine::new(rules)?;
/// for now in [0, 10] {
///     let Decision::Pass(entry) = engine.enter(&Request::new("login"), at(now)) else { panic!() };
///     entry.exit(Outcome::Success, at(now + 5));
/// }
/// let Decision::Block(blocked) = engine.enter(&Request::new("login"), at(20)) else { panic!() };
/// assert_eq!(blocked.rule().id().as_str(), "login");
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

    /// What outlives the rules.
    pub fn store(&self) -> &Rc<Store<S>> {
        &self.store
    }

    /// The resource called `name`. Beyond the store's bound, one that all further names share.
    #[inline]
    pub fn resource(&self, name: &str) -> Rc<Resource<S::Tally>> {
        let table = self.table.borrow();
        if let Some(resource) = table.resources.borrow().get(name) {
            return Rc::clone(resource);
        }
        table.meet(&self.store, name)
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
            rules: Vec::with_capacity(rules.flow.len()),
            mode: rules.mode,
            resources: RefCell::default(),
        };
        let mut ids = hashbrown::HashSet::new();
        for (index, rule) in rules.flow.into_iter().enumerate() {
            let id = rule.id();
            if !ids.insert(id.clone()) {
                return Err(RulesError::SameId { id, index });
            }
            let of_resource = match rule.target() {
                Target::Resource(name) => table.named.entry(Rc::clone(name)).or_default(),
                Target::Each => &mut table.each,
            };
            of_resource.push(index);
            if of_resource.len() > MAX_RULES_PER_RESOURCE {
                return Err(RulesError::ManyRules {
                    resource: rule.target().as_str().into(),
                    index,
                });
            }
            table.rules.push((Rc::new(rule), id));
        }
        for name in table.named.keys() {
            table.add(store, name);
        }
        // What others over the same store have met goes on here, before they go.
        for other in store.tables.borrow().iter().filter_map(Weak::upgrade) {
            for (name, met) in other.resources.borrow().iter() {
                let known = table.resources.borrow().get(name).cloned();
                let resource = known.unwrap_or_else(|| table.meet(store, name));
                let is_for_others =
                    |check: &Check<T>| matches!(check.applies, Applies::OtherOrigins);
                if resource.checks.iter().any(is_for_others) {
                    for origin in met.origins.borrow().keys() {
                        resource.origin(store, origin);
                    }
                }
            }
        }
        let table = Rc::new(table);
        store.tables.borrow_mut().push(Rc::downgrade(&table));
        Ok(table)
    }

    /// A resource that is not known yet.
    #[cold]
    fn meet<S: Tallies<Tally = T>>(&self, store: &Store<S>, name: &str) -> Rc<Resource<T>> {
        let strangers = self
            .resources
            .borrow()
            .len()
            .saturating_sub(self.named.len());
        if strangers < store.max_resources.get() {
            return self.add(store, &name.into());
        }
        // The name under which all further ones are known is not that of a resource: none is empty.
        let others = self.resources.borrow().get("").cloned();
        others.unwrap_or_else(|| self.add(store, &"".into()))
    }

    fn add<S: Tallies<Tally = T>>(&self, store: &Store<S>, name: &Rc<str>) -> Rc<Resource<T>> {
        let rules = self.named.get(name).unwrap_or(&self.each);
        let check = |(rule, id): &(Rc<FlowRule>, RuleId)| {
            let mut check = Check {
                rule: Rc::clone(rule),
                id: id.clone(),
                count: rule.count(),
                applies: match rule.limit_app() {
                    LimitApp::Default => Applies::All,
                    LimitApp::Origin(name) => Applies::Origin(Rc::clone(name)),
                    LimitApp::Other => Applies::OtherOrigins,
                },
                enforced: rule.mode() == Mode::Enforce && self.mode == Mode::Enforce,
                state: None,
            };
            if *rule.limit_app() != LimitApp::Other {
                check.state = Some(store.state(check.key(name, None)));
            }
            check
        };
        let resource = Rc::new(Resource {
            name: Rc::clone(name),
            checks: rules
                .iter()
                .filter_map(|&i| self.rules.get(i))
                .map(check)
                .collect(),
            origins: RefCell::default(),
            default_node: OnceCell::new(),
        });
        self.resources
            .borrow_mut()
            .insert(Rc::clone(name), Rc::clone(&resource));
        resource
    }
}

impl<T: Tally> Check<T> {
    /// Records that the rule has no room. Where it is enforced, the request is refused.
    #[cold]
    fn refuse<'a>(
        &'a self,
        index: usize,
        state: &Controller<T>,
        refusal: &mut Option<Refusal<'a, T>>,
    ) {
        match refusal {
            _ if !self.enforced => state.shadow_block(),
            Some(refusal) => refusal.refusing |= 1 << index,
            None => {
                state.block();
                *refusal = Some(Refusal {
                    first: self,
                    refusing: 1 << index,
                });
            }
        }
    }

    fn key(&self, resource: &Rc<str>, origin: Option<&Rc<str>>) -> StateKey {
        StateKey {
            rule: self.id.clone(),
            resource: (*self.rule.target() == Target::Each).then(|| Rc::clone(resource)),
            origin: origin.cloned(),
            grade: self.rule.grade(),
        }
    }
}

/// What asks to be let in.
pub struct Request<'a, T: Tally = LocalTally> {
    resource: &'a str,
    context: &'a str,
    origin: &'a str,
    cost: u64,
    inbound: bool,
    within: Option<&'a Entry<T>>,
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
            inbound: false,
            within: None,
        }
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

    /// This request, as one from outside: it counts in the inbound statistics too.
    #[doc(alias = "EntryType")]
    #[must_use]
    pub fn inbound(self) -> Request<'a, T> {
        Request {
            inbound: true,
            ..self
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
    /// Refused; nothing was charged.
    Block(Blocked),
}

/// A refusal.
#[derive(Clone, Debug)]
pub struct Blocked {
    rule: Rc<FlowRule>,
    id: RuleId,
    retry_after: Option<Duration>,
}

impl Blocked {
    /// The first rule that refused, in order.
    pub fn rule(&self) -> &FlowRule {
        &self.rule
    }

    /// Its id.
    pub fn id(&self) -> &RuleId {
        &self.id
    }

    /// How long until the same request would pass if nothing else came: the longest, if several rules refuse. `None` where
    /// it never can.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
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
/// nothing.
#[must_use]
pub struct Entry<T: Tally = LocalTally> {
    resource: Rc<Resource<T>>,
    origin: Option<Rc<Origin<T>>>,
    /// By check: the limits on concurrency that this call counts against.
    held: u64,
    cost: u64,
    started: Timestamp,
    node: Option<Rc<DefaultNode>>,
    context: Option<Rc<Context>>,
    inbound: Option<Rc<ClusterNode>>,
}

impl<T: Tally> Entry<T> {
    /// Ends the call.
    #[inline]
    pub fn exit(mut self, outcome: Outcome, now: Timestamp) {
        let rt = now.millis_since(self.started);
        let failed = outcome == Outcome::Error;
        if let Some(node) = self.node.take() {
            node.complete(rt, self.cost, failed, now);
        }
        for node in self.others().into_iter().flatten() {
            node.complete(rt, self.cost, failed, now);
        }
        self.inbound = None;
        self.release();
        self.origin = None;
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

    /// Gives back what it holds of limits on concurrency.
    #[inline]
    fn release(&mut self) {
        let held = std::mem::take(&mut self.held);
        if held != 0 {
            self.resource
                .each_state(held, self.origin.as_deref(), |_, _, state| state.leave());
        }
    }
}

impl<T: Tally> Drop for Entry<T> {
    fn drop(&mut self) {
        self.release();
        if let Some(node) = self.node.take() {
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
        !self.checks.is_empty()
    }

    /// Reads the shared counts of its rules. To be called before the clock is read for [`Engine::enter_resource`].
    #[inline]
    pub fn observe(&self) {
        for state in self
            .checks
            .iter()
            .filter_map(|check| check.state.as_deref())
        {
            state.observe();
        }
    }

    /// How the rules stand that apply to requests of no origin in particular, in order.
    pub fn policies(&self, now: Timestamp) -> impl Iterator<Item = Policy<'_>> {
        self.checks.iter().filter_map(move |check| {
            let state = self.state(check, 0, None)?;
            let count = check.rule.count();
            let remaining = state.remaining(count, now);
            let reset = match remaining {
                0 => state.time_to_room(count, 1, now).unwrap_or_default(),
                _ => state.time_to_more(now),
            };
            Some(Policy {
                rule: &check.rule,
                id: &check.id,
                remaining,
                reset,
            })
        })
    }

    /// The state of the check, the `index`th, for requests of that origin; `None` where the rule is not for them.
    ///
    /// Sentinel: `FlowRuleChecker.selectNodeByRequesterAndStrategy`.
    #[inline]
    fn state<'a>(
        &self,
        check: &'a Check<T>,
        index: usize,
        origin: Option<&'a Origin<T>>,
    ) -> Option<&'a Rc<Controller<T>>> {
        match &check.applies {
            Applies::All => check.state.as_ref(),
            Applies::Origin(name) => check
                .state
                .as_ref()
                .filter(|_| origin.is_some_and(|origin| origin.name == *name)),
            Applies::OtherOrigins => origin?.states.get(index)?.as_ref(),
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

    fn enter(
        self: &Rc<Self>,
        store: &Store<impl Tallies<Tally = T>>,
        request: &Request<'_, T>,
        now: Timestamp,
    ) -> Decision<T> {
        let origin = if request.origin.is_empty() {
            None
        } else {
            Some(self.origin(store, request.origin))
        };
        let (context, node) = self.node(store.tree(), request);
        let inbound = store
            .tree()
            .filter(|_| request.inbound)
            .map(|tree| Rc::clone(tree.inbound()));
        match self.decide(origin.as_deref(), request.cost, now) {
            Ok(held) => {
                let entry = Entry {
                    resource: Rc::clone(self),
                    origin,
                    held,
                    cost: request.cost,
                    started: now,
                    node,
                    context,
                    inbound,
                };
                if let Some(node) = &entry.node {
                    node.begin(request.cost, now);
                }
                for node in entry.others().into_iter().flatten() {
                    node.begin(request.cost, now);
                }
                Decision::Pass(entry)
            }
            Err(refusal) => {
                let blocked = self.blocked(refusal, origin.as_deref(), request.cost, now);
                if let Some(node) = node {
                    node.block(request.cost, now);
                }
                let origin = origin
                    .as_ref()
                    .and_then(|origin| origin.statistics.as_deref());
                for node in [origin, inbound.as_deref().map(ClusterNode::statistics)]
                    .into_iter()
                    .flatten()
                {
                    node.increase_block_qps(request.cost, now);
                }
                Decision::Block(blocked)
            }
        }
    }

    /// Charges all rules, or none. The limits on concurrency that were charged, a bit for each check.
    #[inline]
    fn decide(
        &self,
        origin: Option<&Origin<T>>,
        cost: u64,
        now: Timestamp,
    ) -> Result<u64, Refusal<'_, T>> {
        let (mut willing, mut refusal) = (0, None);
        for (i, check) in self.checks.iter().enumerate() {
            let Some(state) = self.state(check, i, origin) else {
                continue;
            };
            state.advance(now);
            if state.has_room(check.count, cost, now) {
                willing |= 1 << i;
            } else {
                check.refuse(i, state, &mut refusal);
            }
        }
        if let Some(refusal) = refusal {
            return Err(refusal);
        }
        let mut reserved = 0;
        self.each_state(willing, origin, |i, check, state| {
            if refusal.is_some() {
                // Nothing more is taken: all of it is given back.
            } else if state.reserve(check.count, cost, now) {
                reserved |= 1 << i;
            } else {
                check.refuse(i, state, &mut refusal);
            }
        });
        if let Some(refusal) = refusal {
            self.each_state(reserved, origin, |_, _, state| state.give_back(cost));
            return Err(refusal);
        }
        let mut held = 0;
        self.each_state(reserved, origin, |i, _, state| {
            if state.commit(cost) {
                held |= 1 << i;
            }
        });
        Ok(held)
    }

    /// What the request is told that was refused.
    #[cold]
    #[inline(never)]
    fn blocked(
        &self,
        refusal: Refusal<'_, T>,
        origin: Option<&Origin<T>>,
        cost: u64,
        now: Timestamp,
    ) -> Blocked {
        let mut retry_after = Some(Duration::ZERO);
        self.each_state(refusal.refusing, origin, |_, check, state| {
            let wait = state.time_to_room(check.count, cost, now);
            retry_after = retry_after
                .zip(wait)
                .map(|(longest, wait)| longest.max(wait));
        });
        Blocked {
            rule: Rc::clone(&refusal.first.rule),
            id: refusal.first.id.clone(),
            retry_after,
        }
    }

    /// The origin called `name`, met if need be; beyond [`MAX_ORIGINS`] one that all further ones share.
    fn origin<S: Tallies<Tally = T>>(&self, store: &Store<S>, name: &str) -> Rc<Origin<T>> {
        if let Some(origin) = self.origins.borrow().get(name) {
            return Rc::clone(origin);
        }
        let is_named = |name: &str| {
            self.checks
                .iter()
                .any(|check| match check.rule.limit_app() {
                    LimitApp::Default => name == "default",
                    LimitApp::Other => name == "other",
                    LimitApp::Origin(named) => **named == *name,
                })
        };
        // One that a rule names is always known: no flood of others frees it of its rule.
        let name = if self.origins.borrow().len() < MAX_ORIGINS || is_named(name) {
            name
        } else {
            ""
        };
        if let Some(origin) = self.origins.borrow().get(name) {
            return Rc::clone(origin);
        }
        let (name, is_named): (Rc<str>, bool) = (name.into(), is_named(name));
        let state = |check: &Check<T>| {
            let applies = *check.rule.limit_app() == LimitApp::Other && !is_named;
            applies.then(|| store.state(check.key(&self.name, Some(&name))))
        };
        let origin = Rc::new(Origin {
            statistics: store
                .tree()
                .map(|tree| tree.cluster_or_new(&self.name).origin_or_new(&name)),
            states: self.checks.iter().map(state).collect(),
            name: Rc::clone(&name),
        });
        self.origins.borrow_mut().insert(name, Rc::clone(&origin));
        origin
    }

    /// The node in the request's context, made if need be, and the context where it is not the default one.
    #[inline]
    fn node(
        &self,
        tree: Option<&NodeTree>,
        request: &Request<'_, T>,
    ) -> (Option<Rc<Context>>, Option<Rc<DefaultNode>>) {
        let Some(tree) = tree else {
            return (None, None);
        };
        let parent = request.within;
        let context = match parent {
            Some(parent) => parent.context.clone(),
            None if request.context.is_empty() => None,
            None => Some(tree.context(request.context)),
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
