//! Permits that rules lease from the store: a node for each rule, and its messages on their way.
//!
//! Each virtual machine has nodes of its own. So nothing of a lease is shared, and what a machine held that dies expires at the
//! store. A machine without requests never asks.

use crate::counters::{Counters, LazyCounter};
use crate::host::{Answer, GrpcCall, Host, Kind, Level, MetricId};
use crate::rls::{METHOD, SERVICE, Service};
use crate::settings::{Protocol, StoreSettings};
use crate::store::{self, Fault};
use crate::vm::Vm;
use leapgate::Timestamp;
use leapgate::backend::{Leased, Leasing, NotLeased, StateKey};
use leapgate::lease::{self, AnswerError, Change, Message, Moment, Node, Taken, WhenDown};
use once_cell::unsync::OnceCell;
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

/// How long after its time-out a call that has no answer is given up, in milliseconds. Its answer comes at the time-out at the
/// latest, but for calls of a configuration that has ended.
const GRACE_MS: u64 = 1000;

/// How many messages one tick sends; the others follow in the next ticks. Many keys whose leases end together must not fill the
/// cluster's circuit breaker.
const CALLS_PER_TICK: u32 = 64;

/// How often the time-out may double: an answer to a worker that is overloaded takes several turns of its event loop.
const MAX_DOUBLINGS: u32 = 3;

/// How much of a gRPC message is read, in bytes.
const MAX_MESSAGE: usize = 4096;

/// The metrics of a rule besides its permits.
const FIGURES: [&str; 6] = [
    "lease_asks",
    "lease_granted",
    "lease_lost",
    "lease_down_ms",
    "lease_downs",
    "lease_ups",
];

/// All that is leased in one virtual machine.
pub(crate) struct Leases<H: Host> {
    vm: Rc<Vm<H>>,
    settings: RefCell<Option<Rc<StoreSettings>>>,
    rules: RefCell<Vec<Weak<Permits<H>>>>,
    /// The messages on their way, oldest first. There are as many as Envoy lets through to the cluster, so that they may be looked
    /// through.
    flights: RefCell<Vec<Flight<H>>>,
    /// When a rule has something to send at the earliest, in milliseconds of the clock.
    due: Cell<u64>,
    /// The message whose answer the latest decision waits for.
    awaited: Cell<u64>,
    /// The causes that were logged since the store last answered, a bit each.
    causes: Cell<u32>,
    /// How often the time-out has doubled.
    doublings: Cell<u32>,
    latency: OnceCell<MetricId>,
}

/// The permits of a rule.
pub(crate) struct Permits<H: Host> {
    leases: Rc<Leases<H>>,
    me: Weak<Permits<H>>,
    node: RefCell<Node>,
    /// Where the store is envoyproxy/ratelimit: the rule there.
    service: Option<RefCell<Service>>,
    when_down: Cell<Option<WhenDown>>,
    counters: Counters<H>,
    figures: [LazyCounter; FIGURES.len()],
    /// How often the store was there no more, and again.
    changes: Cell<[u64; 2]>,
    /// The gauge of permits, and what of it is this machine's.
    permits: OnceCell<MetricId>,
    shown: Cell<u64>,
    label: String,
}

/// A message on its way.
struct Flight<H: Host> {
    /// By which the host answers.
    call: u32,
    of: Weak<Permits<H>>,
    message: Message,
    with_script: bool,
    sent: Moment,
    /// When it is given up, in milliseconds of the clock.
    ends: u64,
}

impl<H: Host> Leases<H> {
    /// Nothing is leased.
    pub(crate) fn new(vm: &Rc<Vm<H>>) -> Rc<Leases<H>> {
        Rc::new(Leases {
            vm: Rc::clone(vm),
            settings: RefCell::default(),
            rules: RefCell::default(),
            flights: RefCell::default(),
            due: Cell::new(u64::MAX),
            awaited: Cell::new(0),
            causes: Cell::new(0),
            doublings: Cell::new(0),
            latency: OnceCell::new(),
        })
    }

    /// From now on this is the store. Returns what was.
    pub(crate) fn configure(&self, store: Option<Rc<StoreSettings>>) -> Option<Rc<StoreSettings>> {
        let when_down = store.as_ref().map(|store| store.when_down);
        let before = self.settings.replace(store);
        if let Some(default) = when_down {
            self.each_rule(|rule| {
                let when_down = rule.when_down.get().unwrap_or(default);
                rule.node.borrow_mut().set_when_down(when_down);
            });
        }
        before
    }

    /// The permits of the rule with this key.
    ///
    /// # Errors
    ///
    /// If there is no store, or none that has such a window.
    pub(crate) fn open(
        self: &Rc<Self>,
        key: &StateKey,
        leasing: &Leasing<'_>,
        label: String,
    ) -> Result<Rc<Permits<H>>, NotLeased> {
        let settings = self.settings.borrow().clone();
        let store = settings.ok_or(NotLeased {
            why: "needs a store, and there is none",
            cure: "add `envoy.store`",
        })?;
        let service = match store.protocol {
            Protocol::Rls => {
                let parts = key.parts.iter();
                let parts = parts.map(|part| part.to_string().into_boxed_str());
                let interval_ms = leasing.terms.interval_ms();
                let domain = store.key_prefix.trim_end_matches(':');
                let service = Service::new(domain, leasing.name, parts.collect(), interval_ms);
                Some(RefCell::new(service.ok_or(NotLeased {
                    why: "needs a window that envoyproxy/ratelimit has",
                    cure: "use one of a minute, an hour, a day, a week, 30 or 365 days",
                })?))
            }
            Protocol::Webdis | Protocol::Upstash => None,
        };
        let [id, _] = self.vm.random();
        let node = Node::new(
            id,
            leasing.name,
            leasing.terms,
            leasing.when_down.unwrap_or(store.when_down),
            leasing.max_keys,
            self.vm.random(),
        );
        let permits = Rc::new_cyclic(|me| Permits {
            leases: Rc::clone(self),
            me: Weak::clone(me),
            node: RefCell::new(node),
            service,
            when_down: Cell::new(leasing.when_down),
            counters: Counters::new(&self.vm, &label),
            figures: Default::default(),
            changes: Cell::default(),
            permits: OnceCell::new(),
            shown: Cell::new(0),
            label,
        });
        let mut rules = self.rules.borrow_mut();
        rules.retain(|rule| rule.strong_count() > 0);
        rules.push(Rc::downgrade(&permits));
        Ok(permits)
    }

    fn each_rule(&self, mut each: impl FnMut(&Permits<H>)) {
        let rules = self.rules.borrow().clone();
        rules
            .iter()
            .filter_map(Weak::upgrade)
            .for_each(|rule| each(&rule));
    }

    /// The message whose answer the latest decision waits for.
    pub(crate) fn awaited(&self) -> u64 {
        self.awaited.get()
    }

    /// For how long a request waits for the store.
    pub(crate) fn max_wait_ms(&self) -> u64 {
        let settings = self.settings.borrow();
        settings
            .as_ref()
            .map_or(0, |store| store.max_wait_ms.into())
    }

    /// When [`Leases::keep_up`] is to be called next.
    pub(crate) fn due(&self) -> Option<Timestamp> {
        let flights = self.flights.borrow();
        let first = flights.first().map_or(u64::MAX, |flight| flight.ends);
        let due = self.due.get().min(first);
        (due < u64::MAX).then(|| Timestamp::from_millis(due))
    }

    /// A rule has something to send then.
    fn is_due(&self, at: Option<u64>) {
        self.due
            .set(at.map_or(self.due.get(), |at| self.due.get().min(at)));
    }

    /// Both clocks. Without a wall clock the other one stands for it.
    fn moment(&self, monotonic: Timestamp) -> Moment {
        Moment {
            monotonic,
            wall: self.vm.host().wall().unwrap_or(monotonic),
        }
    }

    /// Sends what is to be sent although no request came, and gives calls up whose answer never came. Returns the messages that
    /// have been answered so.
    pub(crate) fn keep_up(&self, now: Timestamp) -> Vec<u64> {
        let now_ms = now.as_millis();
        let now = self.moment(now);
        let mut over = Vec::new();
        let ended = {
            let mut flights = self.flights.borrow_mut();
            let going = flights.partition_point(|flight| flight.ends <= now_ms);
            flights.drain(..going).collect::<Vec<_>>()
        };
        for flight in ended {
            over.push(flight.message.token);
            if let Some(rule) = flight.of.upgrade() {
                rule.lose(flight.message.token, &Fault::Status(504), now);
            }
        }
        if self.due.get() > now_ms {
            return over;
        }
        self.due.set(u64::MAX);
        let mut sent = 0;
        self.each_rule(|rule| {
            while sent < CALLS_PER_TICK {
                let message = rule.node.borrow_mut().due(now);
                let Some(message) = message else { break };
                rule.send(message, now);
                sent += 1;
            }
            self.is_due(rule.node.borrow().next_due());
        });
        over
    }

    /// Takes the answer to a call. Returns the message that it answers.
    pub(crate) fn answered(&self, call: u32, answer: Answer) -> Option<u64> {
        let flight = {
            let mut flights = self.flights.borrow_mut();
            let index = flights.iter().position(|flight| flight.call == call)?;
            flights.remove(index)
        };
        let (host, token) = (self.vm.host(), flight.message.token);
        let rule = flight.of.upgrade()?;
        let now = self.moment(host.now()?);
        let (heard, expires_ms) = match answer {
            Answer::Http(size) => {
                let heard = store::read(host, size).and_then(|answer| {
                    match rule.node.borrow().expects(token, &answer) {
                        true => Ok(answer),
                        false => Err(Fault::Wrong(AnswerError::foreign(&answer).message())),
                    }
                });
                (heard, None)
            }
            Answer::Grpc(size) => rule.read(size, flight.sent, now),
            Answer::GrpcFailed(status) => (Err(Fault::Status(status)), None),
        };
        match heard {
            Err(Fault::UnknownScript) if !flight.with_script => {
                let flight = Flight {
                    with_script: true,
                    ..flight
                };
                return match self.send(&rule, flight, now) {
                    true => None,
                    false => Some(token),
                };
            }
            Err(fault) => rule.lose(token, &fault, now),
            Ok(answer) => {
                let took = now.monotonic.since(flight.sent.monotonic);
                let took = took.as_millis() as u64;
                self.record(took);
                let settings = self.settings.borrow();
                let timeout_ms = settings.as_ref().map_or(0, |store| store.timeout_ms.into());
                if took < timeout_ms / 2 {
                    self.doublings.set(0);
                }
                rule.hear(token, &answer, expires_ms, now);
            }
        }
        self.is_due(rule.node.borrow().next_due());
        Some(token)
    }

    /// Sends a message of that rule. Returns whether its answer is to come.
    fn send(&self, rule: &Permits<H>, flight: Flight<H>, now: Moment) -> bool {
        let token = flight.message.token;
        let settings = self.settings.borrow().clone();
        let Some(store) = settings else {
            // The rule has outlived its store.
            rule.node.borrow_mut().lost(token, now);
            return false;
        };
        let host = self.vm.host();
        let timeout_ms = store.timeout_ms << self.doublings.get();
        let (with_script, message) = (flight.with_script, &flight.message);
        let sent = match &rule.service {
            None => store::send(host, &store, with_script, message, timeout_ms),
            Some(service) => {
                match service
                    .borrow()
                    .ask(&flight.message, rule.node.borrow().is_down(), now)
                {
                    Ok(message) => host
                        .call_grpc(&GrpcCall {
                            cluster: &store.cluster,
                            service: SERVICE,
                            method: METHOD,
                            message: &message,
                            timeout_ms,
                        })
                        .map_err(Fault::NotSent),
                    Err(answer) => {
                        rule.hear(token, &answer, Some(0), now);
                        return false;
                    }
                }
            }
        };
        match &sent {
            Err(fault) => rule.lose(token, fault, now),
            Ok(call) => {
                let limit = GRACE_MS + u64::from(timeout_ms);
                let ends = now.monotonic.as_millis().saturating_add(limit);
                let flight = Flight {
                    call: *call,
                    ends,
                    ..flight
                };
                self.flights.borrow_mut().push(flight);
            }
        }
        sent.is_ok()
    }

    /// Records how long an answer took.
    fn record(&self, millis: u64) {
        let latency = self.latency.get_or_try_init(|| {
            let name = self.vm.name("store_ms", "");
            self.vm
                .host()
                .define_metric(Kind::Histogram, &name)
                .ok_or(())
        });
        if let Ok(latency) = latency {
            self.vm.host().record(*latency, millis);
        }
    }

    /// Logs why the store does not answer, once for each cause until it does.
    #[cold]
    fn log_fault(&self, fault: &Fault) {
        let (causes, cause) = (self.causes.get(), fault.cause());
        let settings = self.settings.borrow();
        if let Some(store) = settings.as_ref().filter(|_| causes & cause == 0) {
            self.causes.set(causes | cause);
            let line = [
                "leapgate: ",
                &fault.sentence(store),
                "; until it answers, `whenDown` decides",
            ];
            self.vm.host().log(Level::Warn, &line.concat());
        }
    }

    /// Logs that the store answers again.
    #[cold]
    fn log_recovery(&self) {
        let settings = self.settings.borrow();
        let had_fault = self.causes.replace(0) != 0;
        if let Some(store) = settings.as_ref().filter(|_| had_fault) {
            let line = [
                "leapgate: envoy.store: `",
                &store.cluster,
                "` answers again",
            ];
            self.vm.host().log(Level::Info, &line.concat());
        }
    }
}

impl<H: Host> Permits<H> {
    /// Sends a message. Returns whether its answer is to come.
    #[cold]
    #[inline(never)]
    fn send(&self, message: Message, now: Moment) -> bool {
        let flight = Flight {
            call: 0,
            of: Weak::clone(&self.me),
            message,
            with_script: false,
            sent: now,
            ends: 0,
        };
        self.leases.send(self, flight, now)
    }

    /// What the message of envoyproxy/ratelimit at hand has answered, and until when its permits last.
    fn read(
        &self,
        size: usize,
        sent: Moment,
        now: Moment,
    ) -> (Result<lease::Answer, Fault>, Option<u64>) {
        let Some(service) = &self.service else {
            return (Err(Fault::Nonsense("gRPC".into())), None);
        };
        let host = self.leases.vm.host();
        let message = host.answer_message(size.min(MAX_MESSAGE));
        let limit = self.node.borrow().terms().limit();
        let heard = service
            .borrow_mut()
            .heard(&message.unwrap_or_default(), limit, sent, now);
        match heard {
            Err(sentence) => (Err(Fault::Wrong(sentence)), None),
            Ok(heard) => {
                if let Some(warning) = heard.warning {
                    self.leases.vm.warn(&self.label, &warning);
                }
                (Ok(heard.answer), Some(heard.expires_ms))
            }
        }
    }

    fn hear(&self, token: u64, answer: &lease::Answer, expires_ms: Option<u64>, now: Moment) {
        let heard = self.node.borrow_mut().heard(token, answer, expires_ms, now);
        self.count(heard);
        if heard == Change::Up {
            self.leases.log_recovery();
        }
    }

    /// There will be no answer to a message.
    fn lose(&self, token: u64, fault: &Fault, now: Moment) {
        let lost = self.node.borrow_mut().lost(token, now);
        self.count(lost);
        if matches!(fault, Fault::Status(504)) {
            let doublings = &self.leases.doublings;
            doublings.set((doublings.get() + 1).min(MAX_DOUBLINGS));
        }
        if self.node.borrow().is_down() {
            self.leases.log_fault(fault);
        }
        self.leases.is_due(self.node.borrow().next_due());
    }

    fn count(&self, change: Change) {
        let [downs, ups] = self.changes.get();
        match change {
            Change::None => {}
            Change::Down => self.changes.set([downs + 1, ups]),
            Change::Up => self.changes.set([downs, ups + 1]),
        }
    }

    /// What follows from a decision that is not only a permit spent.
    #[inline(never)]
    fn follow(
        &self,
        (mut taken, message): (Taken, Option<Message>),
        key: &[u8],
        cost: u64,
        now: Moment,
    ) -> Taken {
        let is_asked = message.is_none_or(|message| self.send(message, now));
        if taken == Taken::Wait {
            let awaited = self.node.borrow().awaited(key);
            match awaited.filter(|_| is_asked) {
                Some(token) => self.leases.awaited.set(token),
                None => {
                    // No answer is to come.
                    let (given_up, message) = self.node.borrow_mut().give_up(key, cost, now);
                    taken = given_up;
                    message.into_iter().for_each(|message| {
                        self.send(message, now);
                    });
                }
            }
        }
        self.leases.is_due(self.node.borrow().next_due());
        taken
    }

    /// Exports how the rule has decided, and what it has leased.
    fn export(&self, decided: [u64; 2]) {
        self.counters.export([decided[0], decided[1], 0]);
        let figures = self.node.borrow().figures();
        let [downs, ups] = self.changes.get();
        let now = [
            figures.asks,
            figures.granted,
            figures.lost,
            figures.down_ms,
            downs,
            ups,
        ];
        for ((lazy, what), now) in self.figures.iter().zip(FIGURES).zip(now) {
            self.counters.export_lazy(lazy, what, now);
        }
        let more = figures.permits.wrapping_sub(self.shown.get()) as i64;
        if more == 0 {
            return;
        }
        let vm = &self.leases.vm;
        let gauge = self.permits.get_or_try_init(|| {
            let name = vm.name("lease_permits", &self.label);
            vm.host().define_metric(Kind::Gauge, &name).ok_or(())
        });
        if let Ok(gauge) = gauge {
            vm.host().add(*gauge, more);
            self.shown.set(figures.permits);
        }
    }
}

impl<H: Host> Leased for Permits<H> {
    #[inline]
    fn take(&self, key: &[u8], cost: u64, now: Timestamp, waits: bool) -> Taken {
        let now = self.leases.moment(now);
        let (decided, is_plain) = {
            let mut node = self.node.borrow_mut();
            let decided = match waits {
                true => node.take(key, cost, now),
                false => node.give_up(key, cost, now),
            };
            (decided, waits && !node.is_down())
        };
        match decided {
            (taken, None) if is_plain && taken != Taken::Wait => taken,
            decided => self.follow(decided, key, cost, now),
        }
    }

    fn give_back(&self, key: &[u8], cost: u64, _: Timestamp) {
        self.node.borrow_mut().give_back(key, cost);
    }

    fn change(&self, limit: u64, when_down: Option<WhenDown>) {
        self.when_down.set(when_down);
        let settings = self.leases.settings.borrow();
        let default = settings.as_ref().map(|store| store.when_down);
        let mut node = self.node.borrow_mut();
        node.set_limit(limit);
        if let Some(when_down) = when_down.or(default) {
            node.set_when_down(when_down);
        }
    }

    fn is_down(&self) -> bool {
        self.node.borrow().is_down()
    }

    fn export(&self, decided: [u64; 2]) {
        Permits::export(self, decided);
    }
}

/// What a machine shows of its permits ends with them.
impl<H: Host> Drop for Permits<H> {
    fn drop(&mut self) {
        if let Some(gauge) = self.permits.get() {
            let shown = i64::try_from(self.shown.get()).unwrap_or(0);
            self.leases.vm.host().add(*gauge, -shown);
        }
    }
}
