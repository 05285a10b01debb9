//! A request that enters its route and APIs: one resource that stands for all of them.
//!
//! It has the rules of each, in the order of the document, on the states that they have by themselves. So all admit the request,
//! or none is charged, as the rules of one resource decide.

use crate::api::MAX_APIS;
use crate::engine::Engine;
use crate::engine::api_nodes::ApiNode;
use crate::engine::applicable::Applicable;
use crate::engine::check::{Applies, Check};
use crate::engine::origin::Origin;
use crate::engine::request::Request;
use crate::engine::resource::{Members, Resource};
use crate::engine::scope::Scope;
use crate::engine::store::Store;
use crate::engine::table::Table;
use crate::rule::{MAX_RULES_PER_RESOURCE, ResourceMode};
use crate::state::backend::Backend;
use crate::time::Timestamp;
use std::rc::Rc;

/// How many sets of APIs are kept beside a route. A client may choose among them, by its headers, for example.
const MAX_SETS: usize = 64;

/// How many are kept in all.
const MAX_COMBINED: usize = 4096;

impl<S: Backend> Engine<S> {
    /// The resource that stands for `route` and the APIs of these names together: a request for it enters all of them, or none.
    /// Rules for `*` are for the route alone. An API without rules makes no difference, and neither does a name that stands
    /// twice.
    ///
    /// If there are more APIs with rules than [`MAX_APIS`], or more of their rules than one resource may have, it refuses
    /// requests ([`Cause::Apis`](crate::Cause::Apis)).
    pub fn resource_with(&self, route: &Rc<Resource<S>>, apis: &[&str]) -> Rc<Resource<S>> {
        if apis.is_empty() {
            return Rc::clone(route);
        }
        self.table.borrow().with_apis(&self.store, route, apis)
    }

    /// Whether any rule is for the API of that name, or measures it.
    pub fn has_api(&self, name: &str) -> bool {
        self.table.borrow().has_api(name)
    }
}

impl<S: Backend> Table<S> {
    #[inline(never)]
    fn with_apis(
        &self,
        store: &Store<S>,
        route: &Rc<Resource<S>>,
        names: &[&str],
    ) -> Rc<Resource<S>> {
        // Most requests belong to APIs that an earlier request belonged to. Their names differ, so that as many names are the same.
        let is_known = |one: &&Rc<Resource<S>>| {
            let apis = one.members.as_deref().map(|members| &members.apis);
            apis.is_some_and(|apis| {
                apis.len() == names.len() && apis.iter().all(|api| names.contains(&&*api.name))
            })
        };
        if let Some(known) = route.combined.borrow().iter().find(is_known) {
            return Rc::clone(known);
        }
        if let Some(members) = &route.members
            && let Some(route) = members.route.upgrade()
        {
            let known = members.apis.iter().map(|api| &*api.name);
            let names: Vec<&str> = known.chain(names.iter().copied()).collect();
            return self.with_apis(store, &route, &names);
        }
        let mut apis = [const { None::<Rc<Resource<S>>> }; MAX_APIS];
        let (mut count, mut is_over) = (0, false);
        for name in names {
            let Some(api) = self.api(store, name) else {
                continue;
            };
            if apis.iter().flatten().any(|known| Rc::ptr_eq(known, &api)) {
                continue;
            }
            match apis.get_mut(count) {
                Some(place) => {
                    *place = Some(api);
                    count += 1;
                }
                None => is_over = true,
            }
        }
        if is_over {
            (apis, count) = ([const { None }; MAX_APIS], 0);
        } else if count == 0 {
            return Rc::clone(route);
        }
        let is_it = |one: &&Rc<Resource<S>>| {
            let members = one.members.as_deref();
            members.is_some_and(|members| {
                let has = |api| apis.iter().flatten().any(|known| Rc::ptr_eq(known, api));
                members.apis.len() == count && members.apis.iter().all(has)
            })
        };
        let known = route.combined.borrow().iter().find(is_it).cloned();
        known.unwrap_or_else(|| self.combine(store, route, apis.into_iter().flatten().collect()))
    }

    /// The resource of an API, if it has rules.
    #[inline(never)]
    pub(super) fn api(&self, store: &Store<S>, name: &str) -> Option<Rc<Resource<S>>> {
        if let Some(known) = self.apis.borrow().get(name) {
            return Some(Rc::clone(known));
        }
        let (name, rules) = self.of_api(name)?;
        let api = Rc::new(self.make_of(store, (name, None), &rules));
        self.apis
            .borrow_mut()
            .insert(Rc::clone(name), Rc::clone(&api));
        store.opens(name, true);
        Some(api)
    }

    /// Whether an API of that name has rules.
    fn has_api(&self, name: &str) -> bool {
        self.apis.borrow().contains_key(name) || self.of_api(name).is_some()
    }

    /// The rules of an API, if it has any.
    #[inline(never)]
    fn of_api(&self, name: &str) -> Option<(&Rc<str>, Applicable)> {
        let name = self.named(name)?;
        let mut rules = Applicable::default();
        self.add_rules(name, ResourceMode::Api, &mut rules);
        let has_flow_rules = !rules.own.is_empty() || rules.measuring_only().next().is_some();
        (has_flow_rules || self.prechecks.are_for_api(name)).then_some((name, rules))
    }

    /// The resource of a route and of APIs with rules. Without APIs, there were too many.
    #[cold]
    #[inline(never)]
    fn combine(
        &self,
        store: &Store<S>,
        route: &Rc<Resource<S>>,
        apis: Box<[Rc<Resource<S>>]>,
    ) -> Rc<Resource<S>> {
        let of_route = || self.of_route(&route.name, route.further.as_ref());
        let mut rules = of_route();
        for api in &apis {
            self.add_rules(&api.name, ResourceMode::Api, &mut rules);
        }
        let is_over = apis.is_empty() || self.count_rules(&rules) > MAX_RULES_PER_RESOURCE;
        if is_over {
            rules = of_route();
        }
        let mut one = self.make_of(store, (&route.name, route.place), &rules);
        if is_over {
            one.has_others = true;
            one.prechecks.over = Some(Rc::clone(&self.prechecks.over));
        }
        one.has_others |= S::STATISTICS;
        one.is_certain = route.is_certain && apis.iter().all(|api| api.is_certain);
        one.members = Some(Box::new(Members {
            route: Rc::downgrade(route),
            apis,
            _counted: Rc::clone(&self.combined),
        }));
        let one = Rc::new(one);
        let mut known = route.combined.borrow_mut();
        let is_full = Rc::strong_count(&self.combined) > MAX_COMBINED;
        if known.len() >= MAX_SETS || is_full && !known.is_empty() {
            known.remove(0);
        }
        if !is_full || !known.is_empty() {
            known.push(Rc::clone(&one));
        }
        one
    }
}

impl<S: Backend> Resource<S> {
    /// Whether it stands for too many APIs: then it refuses requests ([`Engine::resource_with`]).
    pub fn is_over(&self) -> bool {
        self.prechecks.over.is_some()
    }

    /// How many resources it stands for; 0, if for itself alone.
    #[inline]
    pub(super) fn count_members(&self) -> usize {
        let members = self.members.as_deref();
        members.map_or(0, |members| 1 + members.apis.len())
    }

    /// The resource of the route, or of one of the APIs that it stands for. Of the route there is none once its name has lost
    /// its windows.
    #[inline(never)]
    pub(super) fn member(&self, number: usize) -> Option<Rc<Resource<S>>> {
        let members = self.members.as_deref()?;
        match number.checked_sub(1) {
            None => members.route.upgrade(),
            Some(api) => members.apis.get(api).cloned(),
        }
    }

    /// The statistics of the APIs of a request, but for one with the name of the route, in which the request is counted already.
    pub(super) fn api_nodes(
        &self,
        store: &Store<S>,
        scope: &Scope,
        origin: Option<&Origin<S>>,
        request: &Request<'_>,
    ) -> Vec<ApiNode> {
        let (Some(members), Some(tree)) = (self.members.as_deref(), store.tree()) else {
            return Vec::new();
        };
        let within = request
            .within
            .and_then(|parent| parent.node.map(|node| &**node));
        let context = scope.context.as_ref().unwrap_or(tree.default_context());
        let apis = (1..).zip(&members.apis);
        let others = apis.filter(|(_, api)| api.name != self.name);
        let node = |(member, api): (u8, &Rc<Resource<S>>)| ApiNode {
            member,
            node: tree.node(context, &api.name, within),
            origin: origin
                .and_then(|origin| origin.members.get(usize::from(member))?.statistics.clone()),
        };
        others.map(node).collect()
    }

    /// The origin called `name`, as it is known to each of the members.
    #[cold]
    #[inline(never)]
    pub(super) fn origin_of_members(
        &self,
        store: &Store<S>,
        name: &str,
        now: Option<Timestamp>,
    ) -> Rc<Origin<S>> {
        let mut members = Vec::with_capacity(MAX_APIS + 1);
        let mut is_other = 0;
        for i in 0..self.count_members() {
            let origin = match self.member(i) {
                Some(member) => member.origin(store, name, now),
                None => Rc::new(self.make_origin(store, &name.into(), None)),
            };
            is_other |= (origin.is_other & 1) << i;
            members.push(origin);
        }
        let state = |check: &Check<S>| {
            let origin = members.get(usize::from(check.member))?;
            let applies = matches!(check.applies, Applies::OtherOrigins) && origin.is_other != 0;
            let of = (&origin.name, origin.place);
            (applies && check.is_by_origin())
                .then(|| check.open(store, (&self.name, self.place), Some(of)))
        };
        Rc::new(Origin {
            name: name.into(),
            place: None,
            statistics: members.first().and_then(|route| route.statistics.clone()),
            states: self.checks.iter().map(state).collect(),
            is_other,
            members: members.into(),
        })
    }
}
