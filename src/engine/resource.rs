//! A resource with its rules.

use crate::engine::check::{Applies, Check};
use crate::engine::keyed::{KeyCheck, Keys};
use crate::engine::listed::Listed;
use crate::engine::origin::Origin;
use crate::engine::prechecks::Prechecks;
use crate::engine::rest::Rests;
use crate::engine::store::{BreakerOf, ControllerOf, Store};
use crate::places::{Apart, NamePlace, Placed, Places};
use crate::rule::{FlowRule, KeyPart, RuleId, Target};
use crate::state::backend::Backend;
use crate::state::breaker::Phase;
use crate::state::flow::Controller;
use crate::stats::node::{DefaultNode, MAX_ORIGINS};
use crate::time::Timestamp;
use std::cell::{OnceCell, RefCell};
use std::rc::{Rc, Weak};

/// A flow rule of a resource: its place among the rules without a key, or among the keyed ones and behind them those with leased
/// permits.
#[derive(Clone, Copy)]
pub(super) enum Ordered {
    Plain(usize),
    Keyed(usize),
}

/// A resource with its rules.
pub struct Resource<S: Backend> {
    pub(super) name: Rc<str>,
    /// Where its place is in the list of resources.
    pub(super) place: Option<NamePlace>,
    /// The list of its origins, where they have windows of their own.
    pub(super) origin_places: Option<Rc<dyn Places>>,
    /// Whether no list of names can take its windows away, nor those of its origins.
    pub(super) is_certain: bool,
    pub(super) checks: Box<[Check<S>]>,
    /// The flow rules that are for it, keyed or not, in the order of the document.
    pub(super) order: Box<[Ordered]>,
    pub(super) key_parts: Box<[KeyPart]>,
    pub(super) prechecks: Prechecks<S>,
    pub(super) keys: Keys,
    pub(super) origins: Apart<Origin<S>>,
    /// Whether statistics are kept.
    pub(super) is_counted: bool,
    /// What only some calls have, to be used again. Shared by the resources of a document.
    pub(super) rests: Rc<Rests<S>>,
    /// The statistics in the context that most requests come in by.
    pub(super) default_node: OnceCell<Rc<DefaultNode>>,
    /// Whether any rule without a key counts requests that it is not for, or looks at more of a request than its origin and its cost in
    /// requests, or whether permits are leased.
    pub(super) by_request: bool,
    /// Whether any rule charges another unit than requests at once.
    pub(super) charges_units: bool,
    /// Whether any rule takes turns.
    pub(super) may_wait: bool,
    /// Whether any other rules apply than flow rules without a key.
    pub(super) has_others: bool,
    /// Whether any rule is for one context alone.
    pub(super) by_context: bool,
    /// Whether any rule asks where a request comes from.
    pub(super) by_origin: bool,
    /// What it stands for, if that is a route and APIs together.
    pub(super) members: Option<Box<Members<S>>>,
    /// Those that stand for it and for APIs together: they go when it goes.
    pub(super) combined: RefCell<Vec<Rc<Resource<S>>>>,
    /// Its rules that stand in no document.
    pub(super) further: Option<Rc<Vec<Listed>>>,
    /// Bit i: check i advances its window when a call exits, as Sentinel's `StatisticSlot` reads it then.
    pub(super) notify_on_exit: u64,
}

/// The members of a resource that stands for a route and APIs together.
pub(super) struct Members<S: Backend> {
    /// The route, beside which it is kept.
    pub(super) route: Weak<Resource<S>>,
    /// The APIs. None, if they are too many.
    pub(super) apis: Box<[Rc<Resource<S>>]>,
    /// Shared by all such resources of a document, and so the number of them.
    pub(super) _counted: Rc<()>,
}

impl<S: Backend> Resource<S> {
    /// The name, empty for the resource that stands for all beyond the bound.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether any rule applies.
    pub fn has_rules(&self) -> bool {
        !self.checks.is_empty() || self.has_others
    }

    /// What its rules tell requests apart by, each part once. A shell reads them and hands the values in, in this order
    /// ([`Request::keys`](crate::Request::keys)).
    pub fn key_parts(&self) -> &[KeyPart] {
        &self.key_parts
    }

    /// The flow rules that are for it or measure it, keyed ones first.
    pub fn flow_rules(&self) -> impl Iterator<Item = &FlowRule> {
        let keyed = self.keys.all().map(KeyCheck::rule);
        keyed.chain(self.checks.iter().map(|check| &*check.rule))
    }

    /// The warnings ([`Engine::warnings`](crate::Engine::warnings)) about its rules that stand in no document
    /// ([`Engine::resource_with_rules`](crate::Engine::resource_with_rules)).
    pub fn warnings(&self) -> impl Iterator<Item = &str> {
        let further = self.further.iter().flat_map(|further| further.iter());
        further.filter_map(|listed| listed.warning.as_deref())
    }

    /// Whether any breaker looks at how calls end: by [`Entry::exit`](crate::Entry::exit).
    pub fn has_breakers(&self) -> bool {
        !self.prechecks.breakers.0.is_empty()
    }

    /// Calls `each` with the ids of its rules, and with the state of those that are circuit breakers. (System rules are for all
    /// resources together.)
    pub fn for_each_rule(&self, each: &mut dyn FnMut(&RuleId, Option<Phase>)) {
        self.keys.all().for_each(|check| each(check.id(), None));
        for check in &self.checks {
            if !matches!(check.applies, Applies::Never) {
                each(&check.id, None);
            }
        }
        self.prechecks.for_each_rule(each);
    }

    /// Whether [`Engine::is_current`](crate::Engine::is_current) is always true of it.
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
        self.observe_origin(origin);
        for i in 0..self.count_members() {
            if let Some(member) = self.member(i) {
                member.observe_origin(origin);
            }
        }
    }

    /// Reads the windows that the origin has of its own.
    fn observe_origin(&self, origin: &str) {
        let states = |origin: &Rc<Origin<S>>| {
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
    /// called before the clock is read for [`Engine::enter_resource`](crate::Engine::enter_resource).
    #[inline]
    pub fn observe(&self) {
        for check in &self.prechecks.breakers.0 {
            check.breaker.reload();
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

    /// The state of the check, the `index`th, for requests of that origin; `None` where there is none for it.
    #[inline]
    pub(super) fn state<'a>(
        &self,
        check: &'a Check<S>,
        index: usize,
        origin: Option<&'a Origin<S>>,
    ) -> Option<&'a Rc<ControllerOf<S>>> {
        match &check.state {
            Some(state) => Some(state),
            None => origin?.states.get(index)?.as_ref(),
        }
    }

    /// Calls `each` with the states of the checks in `chosen`, a bit for each, in order.
    #[inline]
    pub(super) fn each_state<'a>(
        &'a self,
        chosen: u64,
        origin: Option<&Origin<S>>,
        mut each: impl FnMut(usize, &'a Check<S>, &Rc<ControllerOf<S>>),
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

    /// The origin called `name`, met if need be; beyond [`MAX_ORIGINS`] one that all further ones share.
    pub(super) fn origin(
        &self,
        store: &Store<S>,
        name: &str,
        now: Option<Timestamp>,
    ) -> Rc<Origin<S>> {
        if let Some(origin) = self.origins.get(name) {
            return origin;
        }
        if self.members.is_some() {
            return self.origin_of_members(store, name, now);
        }
        let make = |name: &Rc<str>, place| self.make_origin(store, name, place);
        // One that a rule names is always known: no flood of others frees it of its rule.
        if self.names_origin(name) {
            return self.origins.keep(make(&name.into(), None));
        }
        if S::PLACES
            && let Some(places) = &self.origin_places
        {
            let clock = || now;
            return self
                .origins
                .meet(&**places, MAX_ORIGINS, name, &clock, &make);
        }
        // One that is exempt keeps its name, or a refund would not know it.
        if self.origins.len() < MAX_ORIGINS || self.exempts_origin(name) {
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
            Applies::Never => false,
        }) || self.keys.names(name)
    }

    /// Whether a rule leaves requests of that origin alone.
    fn exempts_origin(&self, name: &str) -> bool {
        self.flow_rules()
            .filter_map(FlowRule::exempt)
            .any(|exempt| exempt.origins().any(|exempt| exempt == name))
    }

    #[inline(never)]
    pub(super) fn make_origin(
        &self,
        store: &Store<S>,
        name: &Rc<str>,
        place: Option<NamePlace>,
    ) -> Origin<S> {
        let is_named = self.names_origin(name);
        let state = |check: &Check<S>| {
            let applies = matches!(check.applies, Applies::OtherOrigins) && !is_named;
            (applies && check.is_by_origin())
                .then(|| check.open(store, (&self.name, self.place), Some((name, place))))
        };
        let is_other = u32::from(!is_named);
        Origin {
            statistics: store
                .tree()
                .map(|tree| tree.cluster_or_new(&self.name).origin_or_new(name)),
            states: self.checks.iter().map(state).collect(),
            is_other,
            members: Box::default(),
            name: Rc::clone(name),
            place,
        }
    }

    /// Whether a request of that origin was decided by the windows that are its own.
    pub(super) fn is_current_for(&self, origin: &str) -> bool {
        if !S::PLACES {
            return true;
        }
        let mut members = 0..self.count_members();
        if members.any(|i| {
            self.member(i)
                .is_some_and(|member| !member.is_current_for(origin))
        }) {
            return false;
        }
        let places = self.origin_places.as_deref();
        let Some(places) = places.filter(|_| !origin.is_empty()) else {
            return true;
        };
        let known = self.origins.get(origin).or_else(|| self.origins.get(""));
        known.is_none_or(|known| self.origins.is_current(places, &known, origin))
    }
}

impl<S: Backend> Resource<S> {
    /// The states that are its own.
    fn own_states(&self) -> impl Iterator<Item = &ControllerOf<S>> {
        let own = self.checks.iter().filter(|check| check.is_of_each());
        own.filter_map(|check| check.state.as_deref())
    }

    fn own_breakers(&self) -> impl Iterator<Item = &BreakerOf<S>> {
        let breakers = self.prechecks.breakers.0.iter();
        let own = breakers.filter(|guard| *guard.rule.rule.target() == Target::Each);
        own.map(|guard| &*guard.breaker)
    }
}

impl<S: Backend> Placed for Resource<S> {
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

    /// This worker may not know all origins that the rules tell apart.
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
