//! Where the states of rules are opened.

use crate::places::{NamePlace, Places};
use crate::rule::degrade::BreakerGeometry;
use crate::rule::{ControlBehavior, Grade, KeyPart, RuleId, Strategy};
use crate::state::breaker::{BreakerStorage, LocalBreaker};
use crate::state::counter::{Counter, LocalCounter, Past};
use crate::state::keyed::{KeyedGeometry, KeyedStates, KeyedWindows};
use std::rc::Rc;

/// What the state of a rule belongs to: the same key, the same state, whatever the rule's count and position.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct StateKey {
    /// The kind of rule: two rules of one kind have two ids.
    pub kind: &'static str,
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

/// What the state of a breaker belongs to.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct BreakerKey {
    /// The rule.
    pub rule: RuleId,
    /// The resource.
    pub resource: Rc<str>,
    /// Where a list says so, the place of the resource: the state is that of whichever resource has it.
    pub place: Option<NamePlace>,
    /// Whether the rule is for each resource that none names.
    pub each: bool,
    /// What is counted, in which window.
    pub geometry: BreakerGeometry,
}

/// Where the counts of rules are kept.
pub trait Backend: 'static {
    /// The counts of one rule.
    type Counter: Counter;
    /// The counts of one rule that limits each key for itself.
    type Keyed: KeyedStates + 'static;
    /// Where a breaker keeps its state.
    type Breaker: BreakerStorage;

    /// Whether Sentinel's statistics may be kept beside such counts. A shell that never keeps them has no code for them.
    const STATISTICS: bool = true;

    /// The counts for the state of `key`, and what is known of their past.
    fn open(&self, key: &StateKey) -> (Self::Counter, Past);

    /// The counts for the states of `key`, a rule with a key. Called by the first request that the rule is for.
    fn open_keyed(&self, key: &StateKey, geometry: &KeyedGeometry) -> Self::Keyed;

    /// Where the breaker of `key` keeps its state.
    fn open_breaker(&self, key: &BreakerKey) -> Self::Breaker;

    /// The list of the resources that have windows of their own, or of the origins of the resource that is known by this name
    /// and place; `None` where each engine decides for itself which have.
    fn places(&self, _of: Option<(&str, Option<NamePlace>)>) -> Option<Rc<dyn Places>> {
        None
    }
}

/// Counts that nobody shares. The hash of keys is known to all: where clients choose their keys, take [`Seeded`].
#[derive(Default, Debug)]
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

/// Counts that nobody shares, and keys whose hash nobody can guess: these are two random numbers, of the host.
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
