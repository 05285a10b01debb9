//! A set of rules in force, compiled: the rules of each resource.

use crate::engine::applicable::Applicable;
use crate::engine::check::{Applies, Check, Measures, measured_elsewhere};
use crate::engine::cost::Tariff;
use crate::engine::exempt::Exempted;
use crate::engine::in_force::{Ids, Targets};
use crate::engine::key_parts::KeyParts;
use crate::engine::keyed::{KeyCheck, Keys, LeaseCheck};
use crate::engine::listed::Listed;
use crate::engine::prechecks::PrecheckRules;
use crate::engine::resource::{Ordered, Resource};
use crate::engine::rest::Rests;
use crate::engine::store::{Known, Store};
use crate::map::HashMap;
use crate::places::{Apart, NamePlace, Places};
use crate::rule::{
    Exempt, FLOW, FLOW_RULES, FlowRule, GATEWAY_FLOW_RULES, Grade, LimitApp,
    MAX_RULES_PER_RESOURCE, Mode, PARAM_FLOW_RULES, REQUESTS, ResourceMode, Rules, RulesError,
    Strategy,
};
use crate::state::backend::Backend;
use crate::state::terms::{Terms, longest_wait};
use crate::time::Timestamp;
use std::cell::{Cell, OnceCell, RefCell};
use std::rc::{Rc, Weak};

/// A set of rules in force.
pub(super) struct Table<S: Backend> {
    by: Targets,
    /// By resource: the rules that measure it, and are for another.
    measuring: HashMap<Rc<str>, Vec<usize>>,
    /// How many of the resources that rules name are open.
    opened: Cell<usize>,
    /// How many others are kept apart.
    max_resources: usize,
    pub(super) rules: Vec<Listed>,
    pub(super) prechecks: PrecheckRules,
    pub(super) mode: Mode,
    pub(super) resources: Apart<Resource<S>>,
    /// The APIs that have rules and that requests have belonged to.
    pub(super) apis: RefCell<HashMap<Rc<str>, Rc<Resource<S>>>>,
    /// Shared by the resources that stand for a route and APIs.
    pub(super) combined: Rc<()>,
    rests: Rc<Rests<S>>,
    /// For how long any rule lets a request wait at most, in nanoseconds. A request that belongs to several resources takes its
    /// turns in all of them when it is released.
    longest_wait: u64,
}

impl<S: Backend> Table<S> {
    pub(super) fn new(store: &Store<S>, mut rules: Rules) -> Result<Rc<Table<S>>, RulesError> {
        let mut table = Table {
            by: Targets::default(),
            measuring: HashMap::default(),
            opened: Cell::default(),
            max_resources: store.max_resources.get(),
            rules: Vec::new(),
            prechecks: PrecheckRules::new(store, &mut rules)?,
            mode: rules.mode,
            resources: Apart::default(),
            apis: RefCell::default(),
            combined: Rc::default(),
            rests: Rc::default(),
            longest_wait: 0,
        };

        let (mut ids, apis) = (Ids::default(), rules.apis);
        let opens_late = store.backend.opens_late();
        let lists = [
            (GATEWAY_FLOW_RULES, rules.gateway_flow),
            (PARAM_FLOW_RULES, rules.param_flow),
            (FLOW_RULES, rules.flow),
        ];
        let flow_rules_start = lists.iter().take(2).map(|(_, rules)| rules.len()).sum();
        let all_flow_rules = lists.iter().map(|(_, rules)| rules.len()).sum();
        table.rules.reserve_exact(all_flow_rules);
        table.by.named.reserve(all_flow_rules);
        ids.reserve(all_flow_rules);
        for (list, rules) in lists {
            for (place, rule) in rules.into_iter().enumerate() {
                let listed = Listed::new(store, rule, table.mode, (list, place));
                table.add(store, listed, &mut ids, (list, place))?;
            }
        }
        for (name, measuring) in &table.measuring {
            let modes = [ResourceMode::Route, ResourceMode::Api].into_iter();
            // Each is compared with the others: too many are refused before that.
            let modes = modes.filter(|_| measuring.len() <= MAX_RULES_PER_RESOURCE);
            let rules = modes.map(|mode| {
                let mut rules = Applicable::default();
                table.add_rules(name, mode, &mut rules);
                rules.own.len() + measuring.len()
            });
            let rules = rules.max().unwrap_or(measuring.len());
            if let (true, Some(&index)) = (rules > MAX_RULES_PER_RESOURCE, measuring.last()) {
                let resource = name.as_ref().into();
                return Err(RulesError::ManyRules {
                    resource,
                    list: FLOW_RULES,
                    // Only rules of this list measure others.
                    index: index.saturating_sub(flow_rules_start),
                });
            }
        }
        // A breaker counts what other workers observe from now on: what it misses before it is open, it never learns.
        let is_new = opens_late && store.is_new();
        let is_late = |name: &str| {
            opens_late
                && !table.prechecks.have_breaker(name)
                && !(is_new && table.is_open_elsewhere(store, name))
        };
        let measured = table.measuring.keys();
        let named = table.by.named.keys().chain(measured);
        for name in named.chain(table.prechecks.named().flat_map(HashMap::keys)) {
            if !is_late(name) && table.resources.get(name).is_none() {
                table.open(store, name);
            }
        }
        for api in apis.iter().filter(|api| !is_late(api.name())) {
            table.api(store, api.name());
        }
        // What others over the same store have met goes on here, before they go.
        for other in store.tables.borrow().iter().filter_map(Weak::upgrade) {
            for name in other.apis() {
                table.api(store, &name);
            }
            for (name, place) in other.resources() {
                if has_lost(store.backend.places(None), place) {
                    continue;
                }
                let known = table.resources.get(&name);
                let resource = known.unwrap_or_else(|| table.meet(store, &name, &|| None));
                let is_for_others =
                    |check: &Check<S>| matches!(check.applies, Applies::OtherOrigins);
                if resource.checks.iter().any(is_for_others) {
                    for origin in other.origins(&name) {
                        resource.origin(store, &origin, None);
                    }
                }
            }
        }
        let table = Rc::new(table);
        let known: Rc<dyn Known<S>> = Rc::clone(&table) as _;
        store.tables.borrow_mut().push(Rc::downgrade(&known));
        Ok(table)
    }

    /// Adds a rule, which stands in that list at that place.
    #[inline(never)]
    fn add(
        &mut self,
        store: &Store<S>,
        mut listed: Listed,
        ids: &mut Ids,
        at: (&'static str, usize),
    ) -> Result<(), RulesError> {
        let index = self.rules.len();
        if let Some(earlier) = ids.number(&listed.id)
            && let Some(earlier) = self.rules.get_mut(earlier)
            && let Some(id) = listed.part_from(earlier)
        {
            ids.take(&id, index, at)?;
            if listed.rule.mode() == Mode::Enforce {
                ids.put(&listed.id, index);
            }
        } else {
            ids.take(&listed.id, index, at)?;
        }
        let rule = Rc::clone(&listed.rule);
        self.by.add(rule.target(), index, at)?;
        if let Strategy::Chain(context) = rule.strategy() {
            store.context(context); // one that a rule names is known before others come
        }
        if let Some(measured) = measured_elsewhere(&rule) {
            let measuring = self.measuring.entry(Rc::clone(measured)).or_default();
            measuring.push(index);
        }
        self.longest_wait = self.longest_wait.max(longest_wait(&rule));
        self.rules.push(listed);
        Ok(())
    }

    /// Whether others have counted for a rule of the resource of that name.
    fn is_open_elsewhere(&self, store: &Store<S>, name: &str) -> bool {
        let numbers = self.by.named.get(name).into_iter().flatten();
        let mut rules = numbers.filter_map(|number| self.rules.get(*number));
        rules.any(|listed| store.is_open_elsewhere(&listed.rule, &listed.id))
    }

    /// The name, if rules name a resource so in one way or the other.
    #[inline(never)]
    pub(super) fn named(&self, name: &str) -> Option<&Rc<str>> {
        let maps = [&self.by.named, &self.measuring].into_iter();
        let mut maps = maps.chain(self.prechecks.named());
        let (name, _) = maps.find_map(|named| named.get_key_value(name))?;
        Some(name)
    }

    /// The resource of that name, which is not known yet, if rules name it.
    #[inline(never)]
    pub(super) fn open(&self, store: &Store<S>, name: &str) -> Option<Rc<Resource<S>>> {
        let resource = self.make(store, self.named(name)?, None);
        self.opened.set(self.opened.get() + 1);
        let resource = self.resources.keep(resource);
        store.opens(name, false);
        Some(resource)
    }

    /// A resource that is not known yet.
    #[cold]
    pub(super) fn meet(
        &self,
        store: &Store<S>,
        name: &str,
        clock: &dyn Fn() -> Option<Timestamp>,
    ) -> Rc<Resource<S>> {
        if let Some(named) = self.open(store, name) {
            return named;
        }
        let bound = self.max_resources;
        let make = |name: &Rc<str>, place| self.make(store, name, place);
        if S::PLACES
            && let Some(places) = store.backend.places(None)
        {
            if !self.has_states_of_each() {
                return self.resources.further(&make);
            }
            return self.resources.meet(&*places, bound, name, clock, &make);
        }
        if self.resources.len().saturating_sub(self.opened.get()) < bound {
            return self.resources.keep(make(&name.into(), None));
        }
        self.resources.further(&make)
    }

    /// Whether a request's resource is all that the rules need.
    pub(super) fn has_only_plain_flow_rules(&self) -> bool {
        let mut rules = self.rules.iter().map(|listed| &listed.rule);
        self.prechecks.are_none()
            && self.rules.iter().all(|listed| listed.leased.is_none())
            && rules.all(|rule| {
                *rule.limit_app() == LimitApp::Default
                    && !rule.control_behavior().is_paced()
                    && rule.keyed_by().is_none()
                    && rule.cost().is_none()
                    && rule.exempt().is_none()
            })
    }

    /// Whether resources that no rule names have states of their own. (Keys are told apart by the real name.)
    fn has_states_of_each(&self) -> bool {
        let rules = self.by.each.iter().filter_map(|&i| self.rules.get(i));
        let mut plain = rules.filter(|listed| !listed.is_keyed());
        plain.next().is_some() || self.prechecks.have_states_of_each()
    }

    /// The resource of that name, by the rules that are for it.
    #[inline(never)]
    fn make(&self, store: &Store<S>, name: &Rc<str>, place: Option<NamePlace>) -> Resource<S> {
        self.make_of(store, (name, place), &self.of_route(name, None))
    }

    /// Adds the rules for a route or an API of that name. A rule for `*` is for routes that no other rule names.
    pub(super) fn add_rules(&self, name: &Rc<str>, mode: ResourceMode, to: &mut Applicable) {
        let is_for = |i: &&usize| {
            let rule = self.rules.get(**i).map(|listed| &listed.rule);
            rule.is_some_and(|rule| rule.resource_mode().is_none_or(|of| of == mode))
        };
        let named = self.by.named.get(name).map_or(&[][..], Vec::as_slice);
        let own = match named.iter().any(|i| is_for(&i)) {
            false if mode == ResourceMode::Route => &*self.by.each,
            _ => named,
        };
        let measuring = self.measuring.get(name).map_or(&[][..], Vec::as_slice);
        let name = (Rc::clone(name), mode);
        to.add(name, own.iter().filter(is_for).copied(), measuring);
    }

    /// The rules that are for a route of that name, and `further` ones behind them.
    pub(super) fn of_route(&self, name: &Rc<str>, further: Option<&Rc<Vec<Listed>>>) -> Applicable {
        let mut rules = Applicable::default();
        self.add_rules(name, ResourceMode::Route, &mut rules);
        if let Some(further) = further {
            let numbers = self.rules.len()..self.rules.len() + further.len();
            rules.own.extend(numbers.map(|number| (number, 0)));
            rules.further = Some(Rc::clone(further));
        }
        rules
    }

    /// The rule of that number: one of the document, or a further one.
    fn listed<'a>(&'a self, rules: &'a Applicable, number: usize) -> Option<&'a Listed> {
        let further = || rules.further.as_ref()?.get(number - self.rules.len());
        self.rules.get(number).or_else(further)
    }

    /// The most rules of one kind among these.
    pub(super) fn count_rules(&self, rules: &Applicable) -> usize {
        let is_keyed = |(i, _): &&(usize, u8)| {
            let listed = self.listed(rules, *i);
            listed.is_some_and(Listed::is_keyed)
        };
        let keyed = rules.own.iter().filter(is_keyed).count();
        let plain = rules.own.len() - keyed + rules.measuring_only().count();
        let breakers = self.prechecks.count_breakers(&rules.names);
        keyed.max(plain).max(breakers)
    }

    /// The resource of that name, by these rules.
    #[inline(never)]
    pub(super) fn make_of(
        &self,
        store: &Store<S>,
        (name, place): (&Rc<str>, Option<NamePlace>),
        rules: &Applicable,
    ) -> Resource<S> {
        let own = rules.own.iter();
        let own = || {
            own.clone()
                .filter_map(|(i, member)| Some((self.listed(rules, *i)?, *member)))
        };
        let mut parts = KeyParts::default();
        let check = |listed: &Listed, member: Option<u8>, parts: &mut KeyParts| {
            let Listed {
                rule, id, beside, ..
            } = listed;
            let measures = match (rule.strategy(), measured_elsewhere(rule)) {
                (Strategy::Chain(context), _) => Measures::Context(Rc::clone(context)),
                (_, Some(measured)) if rules.has(measured) => Measures::All,
                (_, Some(_)) => Measures::None,
                (_, None) => Measures::Same,
            };
            let mut check = Check {
                rule: Rc::clone(rule),
                id: id.clone(),
                beside: beside.clone(),
                terms: Terms::new(rule, self.longest_wait),
                tariff: Tariff::of(rule, parts),
                applies: match rule.limit_app() {
                    _ if member.is_none() => Applies::Never,
                    LimitApp::Default => Applies::All,
                    LimitApp::Origin(name) => Applies::Origin(Rc::clone(name)),
                    LimitApp::Other => Applies::OtherOrigins,
                },
                member: member.unwrap_or(0),
                measures,
                enforced: rule.mode() == Mode::Enforce && self.mode == Mode::Enforce,
                exempt: Exempted::default(),
                shadow_wait: Cell::new(0),
                state: None,
            };
            if !check.is_by_origin() {
                check.state = Some(check.open(store, (name, place), None));
            }
            check
        };
        let (mut order, mut checks) = (Vec::new(), Vec::new());
        let (mut keys, mut leases) = (Vec::new(), Vec::new());
        let keyed = own().filter(|(listed, _)| listed.is_keyed() && listed.leased.is_none());
        let keyed = keyed.count();
        for (listed, member) in own() {
            if !listed.is_keyed() {
                order.push(Ordered::Plain(checks.len()));
                checks.push(check(listed, Some(member), &mut parts));
                continue;
            }
            let enforced = listed.rule.mode() == Mode::Enforce && self.mode == Mode::Enforce;
            let names = (listed.id.clone(), listed.beside.clone());
            let mut check =
                KeyCheck::new(FLOW, Rc::clone(&listed.rule), names, enforced, &mut parts);
            check.member = member;
            if let Some(state) = listed.leased.as_ref().filter(|_| S::LEASES) {
                order.push(Ordered::Keyed(keyed + leases.len()));
                leases.push(LeaseCheck::new(check, state));
                continue;
            }
            store.open_keyed(&check, false);
            order.push(Ordered::Keyed(keys.len()));
            keys.push(check);
        }
        let measuring = rules.measuring_only().filter_map(|i| self.rules.get(i));
        checks.extend(measuring.map(|rule| check(rule, None, &mut parts)));
        let prechecks = self
            .prechecks
            .of(store, (name, place), &rules.names, &mut parts);
        for check in &mut checks {
            check.exempt = Exempted::of(&check.rule, &mut parts);
        }
        let leased = leases.iter_mut().map(LeaseCheck::check_mut);
        for check in keys.iter_mut().chain(leased) {
            check.exempt = Exempted::of(check.rule(), &mut parts);
        }
        let is_leased = !leases.is_empty();
        let (keys, checks) = (Keys::new(keys, leases), Box::<[Check<S>]>::from(checks));
        let notify_on_exit = checks.iter().enumerate().filter(|(_, check)| {
            check.terms.compat.is_some() && matches!(check.rule.grade(), Grade::Qps { .. })
        });
        let has_origins = checks.iter().any(Check::is_by_origin);
        let is_further = name.is_empty() && self.has_states_of_each();
        let has_places = is_further && store.backend.places(None).is_some();
        let of = Some((&**name, place)).filter(|_| has_origins);
        let origin_places = of.filter(|_| S::PLACES);
        let origin_places = origin_places.and_then(|of| store.backend.places(Some(of)));
        Resource {
            name: Rc::clone(name),
            place,
            is_certain: !has_places && place.is_none() && origin_places.is_none(),
            origin_places,
            notify_on_exit: notify_on_exit.fold(0, |bits, (i, _)| bits | 1 << i),
            charges_units: keys.all().any(|key| charges_unit(key.rule()))
                || checks.iter().any(|check| charges_unit(&check.rule)),
            may_wait: checks
                .iter()
                .any(|check| check.rule.control_behavior().is_paced()),
            by_request: is_leased
                || checks.iter().any(|check| {
                    check.measures != Measures::Same
                        || check.tariff.is_some()
                        || !check.exempt.is_none()
                }),
            by_context: checks
                .iter()
                .any(|check| matches!(check.measures, Measures::Context(_))),
            by_origin: prechecks.by_origin()
                || keys.all().map(KeyCheck::rule).any(|rule| {
                    *rule.limit_app() != LimitApp::Default || is_exempt_by_origin(rule)
                })
                || checks
                    .iter()
                    .map(|check| &*check.rule)
                    .any(is_exempt_by_origin)
                || checks.iter().any(|check| {
                    matches!(check.applies, Applies::Origin(_) | Applies::OtherOrigins)
                }),
            checks,
            has_others: !prechecks.are_none() || !keys.are_none(),
            prechecks,
            order: order.into(),
            key_parts: parts.0.into(),
            keys,
            origins: Apart::default(),
            is_counted: store.tree().is_some(),
            rests: Rc::clone(&self.rests),
            default_node: OnceCell::new(),
            members: None,
            combined: RefCell::default(),
            further: rules.further.clone(),
        }
    }
}

fn charges_unit(rule: &FlowRule) -> bool {
    rule.unit() != REQUESTS && rule.cost().is_none()
}

fn is_exempt_by_origin(rule: &FlowRule) -> bool {
    rule.exempt().is_some_and(Exempt::is_by_origin)
}

impl<S: Backend> Known<S> for Table<S> {
    fn follow(&self, store: &Store<S>, name: &str, is_api: bool) {
        if is_api {
            self.api(store, name);
        } else if self.resources.get(name).is_none() {
            self.open(store, name);
        }
    }

    fn resources(&self) -> Vec<(Rc<str>, Option<NamePlace>)> {
        let all = self.resources.all();
        all.into_iter()
            .map(|met| (Rc::clone(&met.name), met.place))
            .collect()
    }

    fn apis(&self) -> Vec<Rc<str>> {
        self.apis.borrow().keys().cloned().collect()
    }

    fn origins(&self, resource: &str) -> Vec<Rc<str>> {
        let Some(met) = self.resources.get(resource) else {
            return Vec::new();
        };
        let all = met.origins.all().into_iter();
        let places = || met.origin_places.clone().filter(|_| S::PLACES);
        let kept = all.filter(|origin| !has_lost(places(), origin.place));
        kept.map(|origin| Rc::clone(&origin.name)).collect()
    }
}

/// Whether a name that had that place in a list has lost it.
pub(super) fn has_lost(places: Option<Rc<dyn Places>>, place: Option<NamePlace>) -> bool {
    let had = places.zip(place);
    had.is_some_and(|(places, place)| places.at(place.index as usize) != Some(place))
}
