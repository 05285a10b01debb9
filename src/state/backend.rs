//! Where the states of rules are opened.

use crate::places::{NamePlace, Places};
use crate::rule::degrade::BreakerGeometry;
use crate::rule::{ControlBehavior, Grade, KeyPart, RuleId, Strategy, Target};
use crate::state::breaker::{BreakerStorage, LocalBreaker};
use crate::state::counter::{Counter, LocalCounter, Past};
use crate::state::keyed::{KeyedGeometry, KeyedStates, KeyedWindows};
use crate::state::leased::{Leased, Leasing, NotLeased};
use std::hash::{Hash, Hasher};
use std::rc::Rc;

/// The identity of a rule's state: the same key, the same state, whatever the rule's count and position.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct StateKey {
    /// The kind of rule: two rules of one kind have two ids.
    pub kind: &'static str,
    /// The rule.
    pub rule: RuleId,
    /// Whether it decides on the counts of another rule instead of its own: a rule in shadow mode with the default id of a rule
    /// in force.
    pub is_beside: bool,
    /// The resource, for a rule that applies to each on a window of its own.
    pub resource: Option<Rc<str>>,
    /// The place of the resource, if it has one in a list: the state belongs to the place, whichever resource has it.
    pub resource_place: Option<NamePlace>,
    /// The origin, for a rule that applies to each on a window of its own.
    pub origin: Option<Rc<str>>,
    /// The place of the origin, in the list of the resource.
    pub origin_place: Option<NamePlace>,
    /// What the rule limits, and the geometry of its window. How the window counts is not part of the state: it is always
    /// [`Counting::Strict`](crate::rule::Counting::Strict).
    pub grade: Grade,
    /// Whose requests it counts.
    pub strategy: Strategy,
    /// What happens at its threshold.
    pub behavior: ControlBehavior,
    /// Whether it decides as Sentinel does.
    pub compat: bool,
    /// The parts of its key; empty if it limits all requests together.
    pub parts: Rc<[KeyPart]>,
    /// The resource that the rule names, for metrics.
    pub target: Shown,
}

/// The resource that a rule names, `*` for each. It is not part of an identity: any two are equal.
#[derive(Clone, Debug)]
pub struct Shown(pub Target);

impl PartialEq for Shown {
    fn eq(&self, _: &Shown) -> bool {
        true
    }
}

impl Eq for Shown {}

impl Hash for Shown {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

/// The identity of a breaker's state.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct BreakerKey {
    /// The rule.
    pub rule: RuleId,
    /// The resource.
    pub resource: Rc<str>,
    /// The place of the resource, if it has one in a list: the state belongs to the place, whichever resource has it.
    pub place: Option<NamePlace>,
    /// Whether the rule is for each resource that no other rule names.
    pub each: bool,
    /// What is counted, in which window.
    pub geometry: BreakerGeometry,
}

/// A store for the counts of rules.
pub trait Backend: 'static {
    /// The counts of one rule.
    type Counter: Counter;
    /// The counts of one rule that limits each key for itself.
    type Keyed: KeyedStates + 'static;
    /// Where a breaker keeps its state.
    type Breaker: BreakerStorage;

    /// Whether Sentinel's statistics may be kept beside such counts. A shell that never keeps them contains no code for them.
    const STATISTICS: bool = true;

    /// Whether the states of a resource that rules name are opened by the first request for it, and not when the rules come into
    /// force: then they cost nothing until it is asked for. Other workers may have admitted requests by then, so what
    /// [`Backend::open`] knows of the past has to be as right then as it is at the start. (Resources with a breaker are opened
    /// at once.)
    fn opens_late(&self) -> bool {
        false
    }

    /// Whether others have counted for the state of `key`. The first rules of a store open such states at once, even if the backend
    /// [opens late](Backend::opens_late): what others know of the past may be gone before a request comes.
    fn is_open_elsewhere(&self, _: &StateKey) -> bool {
        false
    }

    /// The counts for the state of `key`, and what is known of their past.
    fn open(&self, key: &StateKey) -> (Self::Counter, Past);

    /// The counts for the states of `key`, a rule with a key. Called by the first request that the rule is for.
    fn open_keyed(&self, key: &StateKey, geometry: &KeyedGeometry) -> Self::Keyed;

    /// Where the breaker of `key` keeps its state.
    fn open_breaker(&self, key: &BreakerKey) -> Self::Breaker;

    /// Whether rules may lease permits. A shell that never leases contains no code for it.
    const LEASES: bool = false;

    /// The permits of the rule of `key`, whose limit is to be one for all machines. They are those of all its keys, resources and
    /// origins, so the last two are not said. A rule that replaces another one goes on with the permits of that one.
    ///
    /// # Errors
    ///
    /// Why there are none: the limit is local then. By default, because there is no store. (Without [`Backend::LEASES`] there is
    /// always an error.)
    fn lease(&self, _key: &StateKey, _leasing: &Leasing<'_>) -> Result<Rc<dyn Leased>, NotLeased> {
        Err(NotLeased {
            why: "needs a store, and there is none",
            cure: "leave it out",
        })
    }

    /// Whether there may be lists of names. A shell that has none contains no code for them.
    const PLACES: bool = false;

    /// The list of the resources with windows of their own, or of the origins of the resource with this name and place; `None`
    /// if each engine decides for itself. (Without [`Backend::PLACES`] there is always none.)
    fn places(&self, _of: Option<(&str, Option<NamePlace>)>) -> Option<Rc<dyn Places>> {
        None
    }
}

/// Counts that are not shared. The hash of keys is public: if clients choose their keys, use [`Seeded`].
#[derive(Clone, Default, Debug)]
pub struct Local;

impl Backend for Local {
    type Counter = LocalCounter;
    type Keyed = KeyedWindows;
    type Breaker = LocalBreaker;

    fn open(&self, _: &StateKey) -> (LocalCounter, Past) {
        (LocalCounter::default(), Past::Fresh)
    }

    fn open_keyed(&self, key: &StateKey, geometry: &KeyedGeometry) -> KeyedWindows {
        Seeded([0; 2]).open_keyed(key, geometry)
    }

    fn open_breaker(&self, _: &BreakerKey) -> LocalBreaker {
        LocalBreaker::default()
    }
}

/// Counts that are not shared, and a seeded hash of keys that clients cannot guess: two random numbers, from the host.
#[derive(Debug)]
pub struct Seeded(pub [u64; 2]);

impl Backend for Seeded {
    type Counter = LocalCounter;
    type Keyed = KeyedWindows;
    type Breaker = LocalBreaker;

    fn open(&self, key: &StateKey) -> (LocalCounter, Past) {
        Local.open(key)
    }

    fn open_keyed(&self, _: &StateKey, geometry: &KeyedGeometry) -> KeyedWindows {
        KeyedWindows::new(*geometry, self.0)
    }

    fn open_breaker(&self, key: &BreakerKey) -> LocalBreaker {
        Local.open_breaker(key)
    }
}
