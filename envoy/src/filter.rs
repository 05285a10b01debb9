//! The filter: decides on each request and says what the host does with it. Runs on any [`Host`].

mod asks;
mod refuse;
mod ticks;

use crate::apis::Apis;
use crate::asking::Asking;
use crate::backend::EnvoyBackend;
use crate::caller::Caller;
use crate::cost::Readings;
use crate::counters::Refusals;
use crate::holds::HEARTBEAT_MS;
use crate::host::{Host, Level, LocalReply, NO_PAIRS};
use crate::inbound::System;
use crate::keys::{self, Few, WrongTypes};
use crate::outcome::Answer;
use crate::passed::{Passed, Pause, Tracked};
use crate::refusals::KeptRefusals;
use crate::reply::{self, ReadsSame};
use crate::resource::{self, Remembered};
use crate::route_rules::RouteRules;
use crate::settings::{ResourceFrom, Scope, Settings};
use crate::waiting::Waiting;
use leapgate::backend::{Inbound, Store};
use leapgate::config::ConfigError;
use leapgate::rule::{ControlBehavior, Grade};
use leapgate::stats::Window;
use leapgate::{Decision, Engine, Outcome, RefusalKind, Request, Resource, Rules, Timestamp};
use refuse::{Kept, Like};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

/// A tick is as long as the shortest bucket, within these bounds. A kernel's timers keep 10 ms. With 100 ms an idle window
/// falls behind by no more than a tenth of a second, and an idle worker soon falls asleep.
const TICK_MS: std::ops::RangeInclusive<u64> = 10..=100;

/// The number of quiet ticks that stands for a sleeping worker.
const ASLEEP: u32 = u32::MAX;

/// How often a request is decided on again because its resource or its origin has got or lost a window of its own meanwhile.
/// Lists of names change far more rarely than requests come: even a second time is rare.
const MAX_DECISIONS: u32 = 8;

/// The states of all filters of one root id in this virtual machine.
pub type FilterStore<H> = Store<EnvoyBackend<H>>;

/// The states of rules, which outlive a configuration, for the plugin with this root id.
pub fn new_store<H: Host>(host: &H, root_id: &str, scope: Scope) -> Rc<FilterStore<H>> {
    let backend = EnvoyBackend::new(host.clone(), root_id, scope == Scope::Process);
    Rc::new(Store::without_statistics(backend))
}

/// How often windows are brought up to date.
fn tick_ms<H: Host>(rules: &Rules, system: Option<&System<H>>) -> u64 {
    let mut shortest = system.map_or(*TICK_MS.end(), System::bucket_ms);
    let mut keep_up_with = |window: Window| {
        shortest = shortest.min(window.bucket_length().as_millis() as u64);
    };
    for rule in rules.flow.iter().chain(&rules.gateway_flow) {
        if let Grade::Qps { window, .. } = rule.grade()
            && rule.keyed_by().is_none()
            && rule.control_behavior() != ControlBehavior::Throttle
        {
            keep_up_with(window.window());
        }
    }
    for rule in &rules.degrade {
        keep_up_with(rule.geometry().window());
    }
    shortest.clamp(*TICK_MS.start(), *TICK_MS.end())
}

/// What was decided on a request.
enum Decided<H: Host> {
    /// It passes, now or when it has waited for its turn.
    Passed(Passed<H>),
    /// It has been answered.
    Refused,
    /// It has to wait for the store.
    AwaitsStore(Rc<Resource<EnvoyBackend<H>>>, Timestamp),
}

/// A configuration in force.
pub struct Filter<H: Host> {
    host: H,
    settings: Settings,
    engine: Engine<EnvoyBackend<H>>,
    /// The resource of all requests, if the configuration names one.
    fixed: Option<Rc<Resource<EnvoyBackend<H>>>>,
    /// The APIs of requests, if the document defines any that have rules.
    apis: Option<Apis>,
    /// The rules that routes have of their own, if the settings allow any.
    route_rules: Option<RouteRules<H>>,
    remembered: Remembered<EnvoyBackend<H>>,
    /// The first state that the next tick brings up to date.
    next_state: Cell<usize>,
    system: Option<System<H>>,
    refusals: Refusals,
    /// The refusals that hold for a while, to be repeated.
    kept: KeptRefusals<Resource<EnvoyBackend<H>>, Kept<H>>,
    wrong_types: WrongTypes,
    waiting: Rc<Waiting<H>>,
    /// The requests that wait for the store, if there is one.
    asking: Option<Rc<Asking<Passed<H>>>>,
    /// For how many ticks nothing has happened. At [`ASLEEP`] there are no more ticks.
    quiet: Cell<u32>,
    /// Whether a request's resource is all that the rules need: none depends on its origin, its key or its end, and none lets
    /// it wait.
    is_plain: bool,
}

impl<H: Host> Filter<H> {
    /// The filter for these rules and settings, over the states of `store`.
    ///
    /// # Errors
    ///
    /// If the rules contradict each other. Then nothing has changed.
    pub fn new(
        host: H,
        store: Rc<FilterStore<H>>,
        rules: Rules,
        settings: Settings,
    ) -> Result<Filter<H>, ConfigError> {
        store.set_max_resources(settings.max_resources);
        store.backend().vm().hold_for(settings.hold_ms);
        let numbers = match rules.system.is_empty() {
            true => None,
            false => store.backend().inbound(),
        };
        let system = numbers.map(|numbers| System::new(&rules.system, numbers));
        if system.is_some() {
            store.set_inbound(Inbound::default());
        }
        let period_ms = tick_ms(&rules, system.as_ref());
        let definitions = Rc::clone(&rules.apis);
        store.backend().holder().expect(&rules);
        let leases = store.backend().leases();
        let before = leases.configure(settings.store.clone().map(Rc::new));
        let engine = match Engine::with_store(Rc::clone(&store), rules) {
            Ok(engine) => engine,
            Err(error) => {
                leases.configure(before);
                return Err(ConfigError::from_rules(&error));
            }
        };
        for warning in engine.warnings() {
            host.log(Level::Warn, &["leapgate: ", &warning].concat());
        }
        let asking = settings.store.is_some().then(Asking::new);
        let is_plain = settings.prioritized.is_none()
            && settings.exempt.is_none()
            && settings.allow_route_rules.is_none()
            && engine.has_only_plain_flow_rules();
        let fixed = match &settings.resource {
            ResourceFrom::Fixed(name) => Some(engine.resource(name)),
            _ => None,
        };
        let apis = Apis::new(&definitions, &engine);
        let route_rules = settings.allow_route_rules.map(RouteRules::new);
        store.sweep();
        let root = store.backend().vm().root();
        let waiting = Waiting::new(host.clone(), root, settings.max_waiting, period_ms);
        let filter = Filter {
            host,
            settings,
            engine,
            fixed,
            apis,
            route_rules,
            remembered: Remembered::new(),
            next_state: Cell::new(0),
            system,
            refusals: Refusals::default(),
            kept: KeptRefusals::default(),
            wrong_types: WrongTypes::default(),
            waiting,
            asking,
            quiet: Cell::new(0),
            is_plain,
        };
        // Windows that are open already are kept up to date, so they see what other workers admit.
        if !filter.falls_asleep() {
            filter.waiting.ask_for_ticks();
        } else {
            filter.sleep(HEARTBEAT_MS * u32::from(filter.holder().holds()));
        }
        Ok(filter)
    }

    fn resource(&self) -> Rc<Resource<EnvoyBackend<H>>> {
        let resource = match &self.fixed {
            Some(fixed) if fixed.is_certain() => Rc::clone(fixed),
            _ => self.resource_by_name(),
        };
        match &self.apis {
            None => resource,
            Some(apis) => apis.join(self.engine.store().backend().vm(), &self.engine, &resource),
        }
    }

    /// The same, without its APIs.
    fn resource_by_name(&self) -> Rc<Resource<EnvoyBackend<H>>> {
        let name = self.name();
        if self.route_rules.is_none()
            && let Some(remembered) = self.remembered.find(&name)
        {
            return remembered;
        }
        let text = String::from_utf8_lossy(&name);
        let route = self.engine.resource_at(&text, &|| self.host.now());
        match &self.route_rules {
            None => {
                drop(text);
                self.remembered.remember(name, &route);
                route
            }
            Some(own) => own.join(&self.engine, &self.settings, &text, route),
        }
    }

    /// The name of the resource of the request at hand.
    fn name(&self) -> Vec<u8> {
        let vm = self.engine.store().backend().vm();
        resource::name(vm, &self.wrong_types, &self.settings.resource)
    }

    /// Whether the decision was made with the windows of the request's own resource and origin.
    #[inline]
    fn is_current(&self, resource: &Resource<EnvoyBackend<H>>, name: &str, origin: &str) -> bool {
        resource.is_certain() || self.engine.is_current(resource, name, origin)
    }

    /// The name of the request's resource if `resource` stands for several names and a list or a key needs it; else it is not
    /// read.
    fn further_name(&self, resource: &Resource<EnvoyBackend<H>>) -> String {
        let is_asked = !resource.is_certain() || !resource.key_parts().is_empty();
        if resource.is_further() && is_asked {
            String::from_utf8_lossy(&self.name()).into_owned()
        } else {
            String::new()
        }
    }

    /// The time of a decision; where no rule applies, the clock is not read. Without a clock windows stand still, and refuse
    /// when they are full.
    fn time_for(&self, resource: &Resource<EnvoyBackend<H>>) -> Timestamp {
        let now = if resource.has_rules() {
            self.host.now()
        } else {
            None
        };
        now.unwrap_or(Timestamp::ZERO)
    }

    /// Decides on the request in this context. Returns its state if it passes, now or after it has waited; `None` if it has
    /// been refused and answered.
    pub fn on_request(&self, context: u32) -> Option<Passed<H>> {
        if self.quiet.get() > 0 {
            self.end_quiet();
        }
        if !self.is_plain {
            return self.on_tracked_request(context);
        }
        for _ in 0..MAX_DECISIONS {
            let resource = self.resource();
            let name = self.further_name(&resource);
            let like = Like {
                resource: &resource,
                name: &name,
                origin: "",
                keys: &[],
            };
            if self.refuses_again(&like) {
                return None;
            }
            let request = Request::new(&name);
            resource.observe();
            let now = self.time_for(&resource);
            let decision = self.engine.enter_resource(&resource, &request, now);
            if !self.is_current(&resource, &name, "") {
                continue;
            }
            return match decision {
                Decision::Pass(entry) | Decision::Wait(_, entry) => Some(Passed {
                    resource,
                    entry: Some(entry),
                    tracked: None,
                }),
                Decision::Block(blocked) => {
                    self.refuse(&blocked, &like, &request, now);
                    None
                }
            };
        }
        self.give_up()
    }

    /// Answers a request that could not be decided on within [`MAX_DECISIONS`].
    #[cold]
    fn give_up(&self) -> Option<Passed<H>> {
        self.host.reply(&LocalReply {
            status: 503,
            grpc_status: RefusalKind::Unavailable.grpc_status(),
            details: "leapgate{overtaken}",
            headers: &NO_PAIRS,
            body: "",
        });
        None
    }

    /// [`Filter::on_request`] where rules need more than the resource.
    #[inline(never)]
    fn on_tracked_request(&self, context: u32) -> Option<Passed<H>> {
        let decided = self.decide(context, false);
        if self.asking.is_some() {
            self.see_to_store_if_sooner();
        }
        match decided {
            Decided::Passed(passed) => Some(passed),
            Decided::Refused => None,
            Decided::AwaitsStore(resource, now) => self.pause(context, resource, now),
        }
    }

    /// Decides on the request, which may have given up waiting for the store.
    fn decide(&self, context: u32, gives_up: bool) -> Decided<H> {
        for _ in 0..MAX_DECISIONS {
            if let Some(decided) = self.try_to_decide(context, gives_up) {
                return decided;
            }
        }
        self.give_up();
        Decided::Refused
    }

    /// Decides on the request once; `None` if it has to be decided on again.
    fn try_to_decide(&self, context: u32, gives_up: bool) -> Option<Decided<H>> {
        let resource = self.resource();
        let name = self.further_name(&resource);
        let vm = self.engine.store().backend().vm();
        let caller = Caller::read(vm, &self.settings, &resource);
        let keys = match caller.exempt {
            true => Few::default(),
            false => keys::read(vm, &self.wrong_types, resource.key_parts()),
        };
        let values = keys::values(&keys);
        let like = Like {
            resource: &resource,
            name: &name,
            origin: &caller.origin,
            keys: &values,
        };
        let is_usual = !(caller.prioritized || caller.exempt || gives_up || self.waiting.is_full());
        if is_usual && self.refuses_again(&like) {
            return Some(Decided::Refused);
        }
        resource.observe_from(&caller.origin);
        if let Some(system) = &self.system {
            system.observe();
        }
        let now = self.time_for(&resource);
        let mut request = Request::new(&name).origin(&caller.origin).keys(&values);
        if caller.prioritized {
            request = request.prioritized();
        }
        if self.waiting.is_full() {
            request = request.impatient();
        }
        if caller.exempt {
            request = request.exempt();
        }
        if gives_up {
            request = request.impatient_for_store();
        }
        let mut call = None;
        if let Some(system) = self.system.as_ref().filter(|_| !caller.exempt) {
            let (entering, inbound) = system.enter(now);
            self.engine.store().set_inbound(inbound);
            request = request.inbound();
            call = Some(entering);
        }
        let decision = self.engine.enter_resource(&resource, &request, now);
        if !self.is_current(&resource, &name, &caller.origin) {
            return None;
        }
        let (entry, pause) = match decision {
            Decision::Pass(entry) => (entry, None),
            Decision::Wait(_, entry) => {
                let slot = self.waiting.hold(context, entry.release(), now);
                (entry, Some(Pause::Turn(slot)))
            }
            Decision::Block(blocked) if blocked.awaits_store() => {
                drop(values);
                return Some(Decided::AwaitsStore(resource, now));
            }
            Decision::Block(blocked) => {
                self.refuse(&blocked, &like, &request, now);
                return Some(Decided::Refused);
            }
        };
        if let Some(call) = &mut call {
            call.admit();
        }
        drop(values);
        let (keys, caller) = if self.settings.on_passed {
            (keys, caller)
        } else {
            Default::default()
        };
        let tracked = Tracked {
            keys,
            caller,
            call,
            ..self.tracked(pause)
        };
        Some(Decided::Passed(Passed {
            resource,
            entry: Some(entry),
            tracked: Some(Box::new(tracked)),
        }))
    }

    /// The state of a request that waits for this, if it waits.
    fn tracked(&self, pause: Option<Pause<H>>) -> Tracked<H> {
        Tracked {
            keys: Few::default(),
            caller: Caller::default(),
            answer: Answer::default(),
            readings: Readings::default(),
            call: None,
            pause,
            host: self.host.clone(),
        }
    }

    /// The response to an admitted request begins, and `is_all` of it if it has no body. Adds headers about its limits, if the
    /// settings want them.
    #[inline(always)]
    pub fn on_response(&self, passed: &Passed<H>, is_all: bool) {
        if let Some(tracked) = passed.tracked_to_its_end() {
            tracked.answer.begins(&self.host, is_all);
        }
        if let Some((readings, entry)) = passed.held() {
            readings.read(&self.host, entry, [true, is_all]);
        }
        if self.settings.on_passed {
            self.add_policy_headers(passed);
        }
    }

    #[inline(never)]
    fn add_policy_headers(&self, passed: &Passed<H>) {
        let has_slept = self.quiet.get() == ASLEEP;
        if has_slept {
            self.end_quiet();
            passed.resource.observe();
        }
        let Some(now) = self.host.now() else { return };
        if has_slept {
            passed.resource.advance(now);
        }
        let tracked = passed.tracked.as_deref();
        let values = tracked.map_or(Few::default(), |tracked| keys::values(&tracked.keys));
        let name = self.further_name(&passed.resource);
        let mut request = Request::new(&name).keys(&values);
        if let Some(Tracked { caller, .. }) = tracked {
            request = request.origin(&caller.origin);
            if caller.exempt {
                request = request.exempt();
            }
        }
        let mut add = |name, value: String| {
            self.host.add_response_header(name, &value);
        };
        reply::rate_limit_headers(
            self.settings.rate_limit_headers,
            &mut passed.resource.policies_for(&request, now),
            (true, &mut ReadsSame(Duration::MAX)),
            &mut add,
        );
    }

    /// The trailers of the response to an admitted request.
    pub fn on_trailers(&self, passed: &Passed<H>) {
        if passed.resource.has_breakers()
            && let Some(tracked) = passed.tracked_to_its_end()
        {
            tracked.answer.ends(&self.host);
        }
        if let Some((readings, entry)) = passed.held() {
            readings.read(&self.host, entry, [false, true]);
        }
    }

    /// An admitted request has ended, however it did.
    #[inline(always)]
    pub fn on_end(&self, passed: &mut Passed<H>) {
        if self.quiet.get() > 0 {
            self.on_late_end(passed);
        }
        if passed.tracked.is_some() {
            passed.take_over();
            if !passed.give_up() {
                self.on_end_of_tracked(passed);
            }
        }
    }

    /// A request has ended after quiet ticks. If its end changes what is published or exported, this worker must tick again.
    #[cold]
    #[inline(never)]
    fn on_late_end(&self, passed: &Passed<H>) {
        if passed.tracked.is_some() || self.engine.store().backend().vm().may_owe() {
            self.end_quiet();
        }
    }

    #[inline(never)]
    fn on_end_of_tracked(&self, passed: &mut Passed<H>) {
        let vm = self.engine.store().backend().vm();
        let settles = passed.settle(vm, &self.wrong_types);
        let tracked = passed.tracked_to_its_end();
        if tracked.is_none() && !settles {
            return;
        }
        // Without a clock its response time is not known.
        let Some(now) = self.host.now() else { return };
        let outcome = match tracked {
            Some(tracked) => tracked
                .answer
                .outcome(&self.host, &self.settings.errors, now),
            None => Some((Outcome::Success, now)),
        };
        let Some(entry) = passed.entry.take() else {
            return;
        };
        let Some((outcome, answered)) = outcome else {
            entry.exit_unanswered(now);
            return;
        };
        if let Some(call) = passed
            .tracked
            .as_mut()
            .and_then(|tracked| tracked.call.take())
        {
            call.complete(answered);
        }
        if passed.resource.has_breakers() || settles {
            entry.exit_as(outcome, answered, now);
        }
    }
}

/// The last configuration of this virtual machine is gone, but for the registry of stores: another version may follow.
impl<H: Host> Drop for Filter<H> {
    fn drop(&mut self) {
        if Rc::strong_count(self.engine.store()) <= 2 {
            self.engine.store().backend().vm().show_version(0);
        }
    }
}
