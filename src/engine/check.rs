//! One flow rule without a key, on one resource.

use crate::engine::caller::Caller;
use crate::engine::cost::{Costs, Tariff};
use crate::engine::exempt::Exempted;
use crate::engine::origin::Origin;
use crate::engine::store::{ControllerOf, Store};
use crate::places::NamePlace;
use crate::rule::{ControlBehavior, FLOW, FlowRule, KeyValue, LimitApp, RuleId, Strategy, Target};
use crate::state::backend::{Backend, Shown, StateKey};
use crate::state::terms::Terms;
use crate::time::Timestamp;
use std::cell::Cell;
use std::rc::Rc;

/// One rule on one resource.
pub(super) struct Check<S: Backend> {
    pub(super) rule: Rc<FlowRule>,
    pub(super) id: RuleId,
    /// The rule with the state that this one looks at, if it has none of its own.
    pub(crate) beside: Option<RuleId>,
    /// What the rule asks, where the decision need not look for it.
    pub(super) terms: Terms,
    /// `None` if it counts requests at a known cost.
    pub(super) tariff: Option<Tariff>,
    pub(super) applies: Applies,
    /// Which member of the resource the rule is for, where it stands for a route and APIs; else 0.
    pub(super) member: u8,
    pub(super) measures: Measures,
    pub(super) enforced: bool,
    /// Which requests it leaves alone.
    pub(super) exempt: Exempted,
    /// For how long the rule would have made the request wait that is being decided on, in nanoseconds. Of rules that are
    /// not enforced.
    pub(super) shadow_wait: Cell<u64>,
    /// `None` where each origin has a state of its own ([`Origin::states`]).
    pub(super) state: Option<Rc<ControllerOf<S>>>,
}

/// Which requests a rule is for.
pub(super) enum Applies {
    All,
    Origin(Rc<str>),
    OtherOrigins,
    /// It is for another resource.
    Never,
}

/// Which requests of this resource a rule counts.
#[derive(PartialEq, Eq)]
pub(super) enum Measures {
    /// Those that it is for.
    Same,
    All,
    /// Those that come in by this context. It is for no others.
    Context(Rc<str>),
    /// Those of another resource instead.
    None,
}

impl<S: Backend> Check<S> {
    /// Whether each origin has a state of its own. (Sentinel's throttle has one for all.)
    pub(super) fn is_by_origin(&self) -> bool {
        *self.rule.limit_app() == LimitApp::Other
            && *self.rule.strategy() == Strategy::Direct
            && !(self.terms.compat.is_some()
                && self.rule.control_behavior() == ControlBehavior::Throttle)
    }

    /// Whether each resource has a state of its own.
    pub(super) fn is_of_each(&self) -> bool {
        *self.rule.target() == Target::Each && measured_elsewhere(&self.rule).is_none()
    }

    /// Its state on a resource, or for an origin there.
    pub(super) fn open(
        &self,
        store: &Store<S>,
        resource: NameAndPlace<'_>,
        origin: Option<NameAndPlace<'_>>,
    ) -> Rc<ControllerOf<S>> {
        let another = self.beside.as_ref();
        let another = another.map(|id| store.state(self.key(id, false, resource, origin), None));
        let key = self.key(&self.id, another.is_some(), resource, origin);
        let state = store.state(key, another);
        state.is_limited_to(&self.terms);
        state
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
            kind: FLOW,
            rule: id.clone(),
            is_beside,
            resource: is_of_each.then(|| Rc::clone(resource)),
            resource_place: place.filter(|_| is_of_each),
            origin: origin.map(|(name, _)| Rc::clone(name)),
            origin_place: origin.and_then(|(_, place)| place),
            grade: self.rule.grade().of_state(),
            strategy: self.rule.strategy().clone(),
            behavior: self.rule.control_behavior(),
            compat: self.terms.compat.is_some(),
            parts: Rc::new([]),
            target: Shown(self.rule.target().clone()),
        }
    }

    /// Whether the rule is for requests of that origin. (Which of them it leaves alone is asked where all rules decide together.)
    #[inline]
    pub(super) fn applies_to(&self, origin: Option<&Origin<S>>) -> bool {
        match &self.applies {
            Applies::All => true,
            Applies::Origin(name) => origin.is_some_and(|origin| origin.name == *name),
            Applies::OtherOrigins => {
                origin.is_some_and(|origin| origin.is_other >> self.member & 1 == 1)
            }
            Applies::Never => false,
        }
    }

    /// Whether the rule is for the request, and whether it counts it.
    ///
    /// Sentinel: `FlowRuleChecker.selectNodeByRequesterAndStrategy`.
    #[inline]
    pub(super) fn role(&self, caller: &Caller<'_, S>) -> (bool, bool) {
        if self.exempts(caller.keys.values, caller.keys.origin) {
            return (false, false);
        }
        let applies = self.applies_to(caller.origin);
        match &self.measures {
            Measures::Same => (applies, applies),
            Measures::All => (applies, true),
            Measures::None => (applies, false),
            Measures::Context(name) => {
                let is_in_context = **name == *caller.context;
                (applies && is_in_context, is_in_context)
            }
        }
    }

    /// Whether the rule leaves a request alone that has these values.
    #[inline]
    pub(super) fn exempts(&self, values: &[KeyValue<'_>], origin: &str) -> bool {
        self.exempt.holds(&self.rule, values, origin)
    }

    /// What a request costs under the rule, or how much it holds until its cost is known.
    #[inline]
    pub(super) fn cost(&self, costs: &Costs<'_>) -> u64 {
        match self.tariff {
            None => costs.requests,
            Some(tariff) => tariff.cost(&self.rule, costs, self.terms.count),
        }
    }

    /// Whether a request of that cost may pass at once. Reserves nothing.
    #[inline]
    pub(super) fn has_room(&self, state: &ControllerOf<S>, cost: u64, now: Timestamp) -> bool {
        if self.terms.holds {
            return state.has_room_beside_holds(&self.terms, cost, now);
        }
        state.has_room(&self.terms, cost, now)
    }

    /// For how long the request waits as far as the rule is concerned, if it waits for `wait`.
    pub(super) fn wait(&self, wait: u64) -> u64 {
        if self.enforced {
            wait
        } else {
            self.shadow_wait.get().max(wait)
        }
    }
}

pub(super) type NameAndPlace<'a> = (&'a Rc<str>, Option<NamePlace>);

/// The resource that `rule` measures instead of the one that it is for. A throttle measures nothing.
pub(super) fn measured_elsewhere(rule: &FlowRule) -> Option<&Rc<str>> {
    match rule.strategy() {
        Strategy::Relate(resource) if rule.control_behavior() != ControlBehavior::Throttle => {
            Some(resource)
        }
        _ => None,
    }
}
