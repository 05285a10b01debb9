//! From what a request is to what the host is to do: the filter, on any host.

use crate::backend::Counts;
use crate::caller::Caller;
use crate::counts::RuleCounts;
use crate::host::{Host, Kind, Level, LocalReply, MetricId, Property};
use crate::inbound::System;
use crate::names::label;
use crate::outcome::Answer;
use crate::passed::{Passed, Rest};
use crate::settings::{Format, ResourceFrom, Scope, Settings};
use crate::waiting::Waiting;
use crate::{keys, reply};
use leapgate::config::ConfigError;
use leapgate::{
    Blocked, ControlBehavior, Decision, Engine, Grade, Inbound, KeyValue, LimitApp, Policy,
    RefusalKind, Request, Resource, RuleId, Rules, Store, Timestamp, Window,
};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// How many windows are brought up to date in one tick; the rest have their turn in the next. With more rules than that, a
/// worker that is not asked for one of them counts what the others admitted as so much more recent: too strict, never more.
const STATES_PER_TICK: usize = 128;

/// The ticks are as long as the shortest bucket, but never shorter than the kernel can keep and never so long that a window
/// which is not asked for falls behind by more than a small part of its interval, or a worker that has nothing to do ticks on.
const TICK_MS: std::ops::RangeInclusive<u64> = 10..=100;

/// For so long nothing is to happen before a worker sleeps: one that is asked more often has not to wake for each request.
/// With two of the longest ticks that is less than a quarter of a second.
const QUIET_MS: u64 = 100;

/// How many quiet ticks there have been of a worker that sleeps.
const ASLEEP: u32 = u32::MAX;

/// How often a request is decided on again because its resource or its origin has got or lost a place of its own meanwhile.
const MAX_DECISIONS: u32 = 8;

/// The states of all filters of one root id in this virtual machine.
pub type FilterStore<H> = Store<Counts<H>>;

/// The counts of rules that outlive a configuration, for the plugin with that root id.
pub fn new_store<H: Host>(host: &H, root_id: &str, scope: Scope) -> Rc<FilterStore<H>> {
    let counts = Counts::new(host.clone(), root_id, scope == Scope::Process);
    Rc::new(Store::without_statistics(counts))
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

/// A configuration in force.
pub struct Filter<H: Host> {
    host: H,
    settings: Settings,
    engine: Engine<Counts<H>>,
    /// Where the name of the resource is the same for all requests.
    fixed: Option<Rc<Resource<RuleCounts<H>>>>,
    /// Which states have their turn in the next tick.
    next_state: Cell<usize>,
    system: Option<System<H>>,
    /// What the metrics of breakers and system rules have been told.
    told: RefCell<Vec<Told>>,
    waiting: Rc<Waiting<H>>,
    /// How many ticks nothing has happened for, until [`ASLEEP`]: then there are none.
    quiet: Cell<u32>,
    /// Whether nothing but its resource matters of a request: no rule asks who sends it or how it ends, or makes it wait.
    is_plain: bool,
}

/// The metrics of one rule that is no flow rule, `blocked` and `shadow_blocked`, and what they were told.
type Told = ([MetricId; 2], [u64; 2]);

impl<H: Host> Filter<H> {
    /// The filter for those rules and settings, over the states of `store`.
    ///
    /// # Errors
    ///
    /// Where the rules do not go together. Then nothing has changed.
    pub fn new(
        host: H,
        store: Rc<FilterStore<H>>,
        rules: Rules,
        settings: Settings,
    ) -> Result<Filter<H>, ConfigError> {
        let is_plain = settings.prioritized.is_none()
            && rules.authority.is_empty()
            && rules.system.is_empty()
            && rules.degrade.is_empty()
            && rules.flow.iter().chain(&rules.gateway_flow).all(|rule| {
                *rule.limit_app() == LimitApp::Default
                    && !rule.control_behavior().is_paced()
                    && rule.keyed_by().is_none()
            });
        store.set_max_resources(settings.max_resources);
        let numbers = match rules.system.is_empty() {
            true => None,
            false => store.tallies().inbound(),
        };
        let system = numbers.map(|numbers| System::new(&rules.system, numbers));
        if system.is_some() {
            store.set_inbound(Inbound::default());
        }
        let period_ms = tick_ms(&rules, system.as_ref());
        let engine = Engine::with_store(Rc::clone(&store), rules)
            .map_err(|error| ConfigError::from_rules(&error))?;
        let fixed = match &settings.resource {
            ResourceFrom::Fixed(name) => Some(engine.resource(name)),
            ResourceFrom::Route | ResourceFrom::VirtualHost => None,
        };
        store.sweep();
        let root = store.tallies().vm().root();
        let waiting = Waiting::new(host.clone(), root, settings.max_waiting, period_ms);
        let filter = Filter {
            host,
            settings,
            engine,
            fixed,
            next_state: Cell::new(0),
            system,
            told: RefCell::default(),
            waiting,
            quiet: Cell::new(0),
            is_plain,
        };
        // Windows begin now, not with their first request: what others admit until then is theirs to know.
        if !filter.falls_asleep() {
            filter.waiting.ask_for_ticks();
        }
        Ok(filter)
    }

    /// Observes those of the states from `first` to `end` that are moving, then reads the clock, then files what was observed:
    /// in this order. Then the others are told, and the host's metrics, and what is owed is made good. Whether nothing of that
    /// is left to do, which it can only be `at_once`.
    fn bring_up_to_date(&self, first: usize, end: usize, at_once: bool) -> bool {
        let store = self.engine.store();
        store.for_each_state(first, end, |state| {
            if state.tally().is_moving(state) {
                state.observe();
            }
        });
        store.for_each_breaker(first, end, |breaker| {
            if breaker.storage().is_moving(&breaker) {
                breaker.observe();
            }
            breaker.storage().keep_shown();
        });
        if let Some(system) = &self.system {
            system.observe();
        }
        let Some(now) = self.host.now() else {
            return false;
        };
        let mut is_settled = true;
        store.for_each_state(first, end, |state| {
            if state.tally().is_moving(state) {
                state.advance(now);
                is_settled &= state.tally().settle(state, now, at_once);
            }
        });
        if first == 0 {
            store.for_each_keyed(|key, state| {
                is_settled &= state.states().settle(&self.host, key, state)
            });
        }
        store.for_each_breaker(first, end, |breaker| {
            if breaker.storage().is_moving(&breaker) {
                breaker.move_to(now);
                is_settled &= breaker.storage().settle(&breaker, now, at_once);
            }
        });
        if let Some(system) = &self.system {
            is_settled &= system.keep_up(now, at_once);
        }
        self.tell();
        is_settled
    }

    /// Does all that is left to do and ends the ticks, if it could be done. Whether it could.
    fn falls_asleep(&self) -> bool {
        let is_settled = self.bring_up_to_date(0, usize::MAX, true);
        let sleeps = is_settled && self.may_sleep();
        if sleeps {
            self.quiet.set(ASLEEP);
        }
        sleeps
    }

    /// Whether no request waits here, and a worker that has slept can learn what it has missed.
    fn may_sleep(&self) -> bool {
        self.waiting.is_empty() && self.engine.store().tallies().vm().may_sleep()
    }

    /// Something happens: if this worker sleeps, it wakes.
    #[cold]
    #[inline(never)]
    fn stir(&self) {
        if self.quiet.replace(0) == ASLEEP {
            self.engine.store().tallies().vm().wake();
            self.waiting.ask_for_ticks();
        }
    }

    /// Tells the host's metrics what breakers and system rules have refused since the last time.
    fn tell(&self) {
        let mut told = self.told.borrow_mut();
        let mut index = 0;
        // They are always the same, in the same order.
        self.engine
            .for_each_guard(|kind, id, blocked, shadow_blocked| {
                if index == told.len()
                    && let Some(metrics) = self.metrics(kind, id)
                {
                    told.push((metrics, [0; 2]));
                }
                let Some((metrics, told)) = told.get_mut(index) else {
                    return;
                };
                index += 1;
                let now = [blocked, shadow_blocked];
                for ((metric, now), told) in metrics.iter().zip(now).zip(told) {
                    let more = now.wrapping_sub(*told) as i64;
                    if more > 0 {
                        self.host.add(*metric, more);
                    }
                    *told = now;
                }
            });
    }

    fn metrics(&self, kind: &str, id: &RuleId) -> Option<[MetricId; 2]> {
        let mut rule = String::new();
        label(&mut rule, "rule", id.as_str());
        let vm = self.engine.store().tallies().vm();
        let counter = |what: &str| {
            let name = vm.name(&[kind, what].concat(), &rule);
            self.host.define_metric(Kind::Counter, &name)
        };
        Some([counter("_blocked")?, counter("_shadow_blocked")?])
    }

    /// Lets those go on whose turn it is, keeps windows up to date that nobody asks for, and tells the host's metrics.
    /// When there has been nothing to do for a while, the ticks end.
    pub fn on_tick(&self) {
        if !self.waiting.on_tick() {
            return;
        }
        let quiet = self.quiet.get().saturating_add(1);
        if quiet > self.waiting.ticks_in(QUIET_MS) && self.may_sleep() {
            if self.falls_asleep() {
                self.host.set_tick_period(0);
            }
            return;
        }
        self.quiet.set(quiet);
        let first = self.next_state.get();
        let end = first.saturating_add(STATES_PER_TICK);
        self.bring_up_to_date(first, end, false);
        let store = self.engine.store();
        self.next_state
            .set(if end < store.len().max(store.breakers()) {
                end
            } else {
                0
            });
    }

    fn resource(&self) -> Rc<Resource<RuleCounts<H>>> {
        match &self.fixed {
            Some(fixed) if fixed.is_certain() => Rc::clone(fixed),
            _ => self.with_name(|name| self.engine.resource_at(name, &|| self.host.now())),
        }
    }

    /// The name of the resource of the request at hand.
    fn with_name<R>(&self, with: impl FnOnce(&str) -> R) -> R {
        if let ResourceFrom::Fixed(name) = &self.settings.resource {
            return with(name);
        }
        let read = |property| self.host.property(property).filter(|name| !name.is_empty());
        let name = match self.settings.resource {
            ResourceFrom::Route => {
                read(Property::RouteName).or_else(|| read(Property::VirtualHostName))
            }
            _ => read(Property::VirtualHostName),
        };
        // Where there is neither, as when no route matches, such requests share the resource without a name.
        with(&String::from_utf8_lossy(
            name.as_deref().unwrap_or_default(),
        ))
    }

    /// Whether that was decided by the windows of the request's own resource and origin.
    #[inline]
    fn is_current(&self, resource: &Resource<RuleCounts<H>>, name: &str, origin: &str) -> bool {
        resource.is_certain() || self.engine.is_current(resource, name, origin)
    }

    /// The name of the resource of the request at hand, where the resource stands for further names and a list or a key asks
    /// for it; else it is not read.
    fn further_name(&self, resource: &Resource<RuleCounts<H>>) -> String {
        let is_asked = !resource.is_certain() || !resource.key_parts().is_empty();
        if resource.is_further() && is_asked {
            self.with_name(str::to_owned)
        } else {
            String::new()
        }
    }

    /// Where no rule applies, time does not matter. Without a clock windows stand still, and refuse when they are full.
    fn time_for(&self, resource: &Resource<RuleCounts<H>>) -> Timestamp {
        let now = if resource.has_rules() {
            self.host.now()
        } else {
            None
        };
        now.unwrap_or(Timestamp::ZERO)
    }

    /// Decides on the request in that context: what is to be kept until it has ended, if it passes, now or when it has
    /// waited; else it has been answered.
    pub fn on_request(&self, context: u32) -> Option<Passed<H>> {
        if self.quiet.get() > 0 {
            self.stir();
        }
        if !self.is_plain {
            return self.on_request_of_somebody(context);
        }
        for _ in 0..MAX_DECISIONS {
            let resource = self.resource();
            let name = self.further_name(&resource);
            resource.observe();
            let now = self.time_for(&resource);
            let decision = self
                .engine
                .enter_resource(&resource, &Request::new(""), now);
            if !self.is_current(&resource, &name, "") {
                continue;
            }
            return match decision {
                Decision::Pass(entry) | Decision::Wait(_, entry) => Some(Passed {
                    resource,
                    entry: Some(entry),
                    rest: None,
                }),
                Decision::Block(blocked) => {
                    self.refuse(&blocked, &mut resource.policies(now));
                    None
                }
            };
        }
        self.give_up()
    }

    /// Answers a request that could not be decided on.
    #[cold]
    fn give_up(&self) -> Option<Passed<H>> {
        self.host.reply(&LocalReply {
            status: 503,
            grpc_status: RefusalKind::Unavailable.grpc_status(),
            details: "leapgate{overtaken}",
            headers: &[],
            body: "",
        });
        None
    }

    /// The same, where more matters than its resource.
    #[inline(never)]
    fn on_request_of_somebody(&self, context: u32) -> Option<Passed<H>> {
        for _ in 0..MAX_DECISIONS {
            if let Some(decided) = self.decide(context) {
                return decided;
            }
        }
        self.give_up()
    }

    /// Decides on it; `None` where that is to be done again.
    fn decide(&self, context: u32) -> Option<Option<Passed<H>>> {
        let resource = self.resource();
        let name = self.further_name(&resource);
        let keys = keys::read(&self.host, resource.key_parts());
        let caller = Caller::read(&self.host, &self.settings, &resource);
        resource.observe_from(&caller.origin);
        if let Some(system) = &self.system {
            system.observe();
        }
        let now = self.time_for(&resource);
        let values = self::values(&keys);
        let mut request = Request::new(&name).origin(&caller.origin).keys(&values);
        if caller.prioritized {
            request = request.prioritized();
        }
        if self.waiting.is_full() {
            request = request.impatient();
        }
        let mut call = None;
        if let Some(system) = &self.system {
            let (asking, inbound) = system.ask(now);
            self.engine.store().set_inbound(inbound);
            request = request.inbound();
            call = Some(asking);
        }
        let decision = self.engine.enter_resource(&resource, &request, now);
        if !self.is_current(&resource, &name, &caller.origin) {
            return None;
        }
        let (entry, place) = match decision {
            Decision::Pass(entry) => (entry, None),
            Decision::Wait(_, entry) => {
                let place = self.waiting.hold(context, entry.release(), now);
                (entry, Some(place))
            }
            Decision::Block(blocked) => {
                self.refuse(&blocked, &mut resource.policies_for(&request, now));
                return Some(None);
            }
        };
        if let Some(call) = &mut call {
            call.passes();
        }
        drop(values);
        let keys = if self.settings.on_passed {
            keys
        } else {
            Vec::new()
        };
        let rest = Rest {
            keys,
            answer: Answer::default(),
            call,
            place,
            host: self.host.clone(),
        };
        Some(Some(Passed {
            resource,
            entry: Some(entry),
            rest: Some(Box::new(rest)),
        }))
    }

    /// Answers a request that was refused, and tells it how the rules stand.
    #[inline(never)]
    fn refuse(&self, blocked: &Blocked, policies: &mut dyn Iterator<Item = Policy<'_>>) {
        let is_grpc = self.settings.reply.format != Format::Text && self.is_grpc();
        let headers = reply::headers(&self.settings, blocked, policies, is_grpc);
        let (status, grpc_status) = reply::statuses(&self.settings.reply, blocked.cause().kind());
        let sent = self.host.reply(&LocalReply {
            status,
            grpc_status,
            details: &reply::details(blocked),
            headers: &headers,
            body: &reply::body(&self.settings.reply, blocked, is_grpc),
        });
        if !sent {
            self.host.log(
                Level::Warn,
                "leapgate: the host did not send a reply to a limited request",
            );
        }
    }

    fn is_grpc(&self) -> bool {
        self.host
            .request_header("content-type")
            .is_some_and(|value| value.starts_with(b"application/grpc"))
    }

    /// The response to a request that passed begins, and ends if that `is_all`: tells how the limits stand, if that is to be
    /// told.
    #[inline(always)]
    pub fn on_response(&self, passed: &Passed<H>, is_all: bool) {
        if let Some(rest) = passed.watched() {
            rest.answer.begins(&self.host, is_all);
        }
        if self.settings.on_passed {
            self.tell_policies(passed);
        }
    }

    #[inline(never)]
    fn tell_policies(&self, passed: &Passed<H>) {
        let has_slept = self.quiet.get() == ASLEEP;
        if has_slept {
            self.stir();
            passed.resource.observe();
        }
        let Some(now) = self.host.now() else { return };
        if has_slept {
            passed.resource.advance(now);
        }
        let keys = passed.rest.as_ref().map_or(&[][..], |rest| &rest.keys);
        let (name, values) = (self.further_name(&passed.resource), values(keys));
        let request = Request::new(&name).keys(&values);
        let mut add = |name, value: String| {
            self.host.add_response_header(name, &value);
        };
        reply::rate_limit_headers(
            self.settings.rate_limit_headers,
            &mut passed.resource.policies_for(&request, now),
            true,
            &mut add,
        );
    }

    /// The trailers of the response to a request that passed.
    pub fn on_trailers(&self, passed: &Passed<H>) {
        if passed.resource.has_breakers()
            && let Some(rest) = passed.watched()
        {
            rest.answer.ends(&self.host);
        }
    }

    /// A request that passed is over, however it ended.
    #[inline(always)]
    pub fn on_end(&self, passed: &mut Passed<H>) {
        if self.quiet.get() > 0 {
            self.ends_late(passed);
        }
        if passed.rest.is_some() && !passed.give_up() {
            self.on_end_of_watched(passed);
        }
    }

    /// The same, where nothing has happened for a while. If its end is news to anybody, it has to be told.
    #[cold]
    #[inline(never)]
    fn ends_late(&self, passed: &Passed<H>) {
        if passed.rest.is_some() || self.engine.store().tallies().vm().may_owe() {
            self.stir();
        }
    }

    #[inline(never)]
    fn on_end_of_watched(&self, passed: &mut Passed<H>) {
        let Some(rest) = passed.watched() else { return };
        // Without a clock nothing can be said of how long it took.
        let Some(now) = self.host.now() else { return };
        let outcome = rest.answer.outcome(&self.host, &self.settings.errors, now);
        let Some(entry) = passed.entry.take() else {
            return;
        };
        let Some((outcome, answered)) = outcome else {
            entry.exit_unanswered(now);
            return;
        };
        if let Some(call) = passed.rest.as_mut().and_then(|rest| rest.call.take()) {
            call.completes(answered);
        }
        if passed.resource.has_breakers() {
            entry.exit_as(outcome, answered, now);
        }
    }
}

/// What was read of a request, as the engine takes it.
fn values(keys: &[Option<Vec<u8>>]) -> Vec<KeyValue<'_>> {
    keys.iter()
        .map(|key| key.as_deref().map_or(KeyValue::Missing, KeyValue::One))
        .collect()
}
