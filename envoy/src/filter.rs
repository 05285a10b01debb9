//! From what a request is to what the host is to do: the filter, on any host.

use crate::config::{Format, ResourceFrom, Scope, Settings};
use crate::counts::{Counts, RuleCounts};
use crate::host::{Host, Level, LocalReply, Property};
use crate::reply;
use leapgate::config::ConfigError;
use leapgate::{Decision, Engine, Entry, Request, Resource, Rules, Store, Timestamp};
use std::cell::Cell;
use std::rc::Rc;

/// How many windows are brought up to date in one tick; the rest have their turn in the next. With more rules than that, a
/// worker that is not asked for one of them counts what the others admitted as so much more recent: too strict, never more.
const STATES_PER_TICK: usize = 128;

/// The ticks are as long as the shortest bucket, but never shorter than the kernel can keep and never so long that a window
/// which is not asked for falls behind by more than a small part of its interval.
const TICK_MS: std::ops::RangeInclusive<u64> = 10..=250;

/// The states of all filters of one root id in this virtual machine.
pub type FilterStore<H> = Store<Counts<H>>;

/// The counts of rules that outlive a configuration, for the plugin with that root id.
pub fn new_store<H: Host>(host: &H, root_id: &str, scope: Scope) -> Rc<FilterStore<H>> {
    let counts = Counts::new(host.clone(), root_id, scope == Scope::Process);
    Rc::new(Store::without_statistics(counts))
}

/// What a request has been let in for, until it has ended.
pub struct Passed<H: Host> {
    resource: Rc<Resource<RuleCounts<H>>>,
    /// Dropped with this: then calls in flight are given back.
    _entry: Entry<RuleCounts<H>>,
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
}

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
        store.set_max_resources(settings.max_resources);
        let engine = Engine::with_store(Rc::clone(&store), rules)
            .map_err(|error| ConfigError::from_rules(&error))?;
        let fixed = match &settings.resource {
            ResourceFrom::Fixed(name) => Some(engine.resource(name)),
            ResourceFrom::Route | ResourceFrom::VirtualHost => None,
        };
        store.sweep();
        let filter = Filter {
            host,
            settings,
            engine,
            fixed,
            next_state: Cell::new(0),
        };
        filter.host.set_tick_period(filter.tick_ms() as u32);
        // Windows begin now, not with their first request: what others admit until then is theirs to know.
        filter.bring_up_to_date(0, usize::MAX);
        Ok(filter)
    }

    fn tick_ms(&self) -> u64 {
        let mut shortest = *TICK_MS.end();
        self.engine.store().for_each_state(0, usize::MAX, |state| {
            if let Some(window) = state.window() {
                shortest = shortest.min(window.window().bucket_length().as_millis() as u64);
            }
        });
        shortest.max(*TICK_MS.start())
    }

    /// Observes the states from `first` to `end`, then reads the clock, then files what was observed: in this order.
    fn bring_up_to_date(&self, first: usize, end: usize) {
        let store = self.engine.store();
        store.for_each_state(first, end, |state| state.observe());
        let Some(now) = self.host.now() else { return };
        store.for_each_state(first, end, |state| {
            state.advance(now);
            state.tally().publish(state, now);
            state.tally().tell(state);
        });
    }

    /// Keeps windows up to date that nobody asks for, and tells the host's metrics.
    pub fn on_tick(&self) {
        let first = self.next_state.get();
        let end = first.saturating_add(STATES_PER_TICK);
        self.bring_up_to_date(first, end);
        self.next_state.set(if end < self.engine.store().len() {
            end
        } else {
            0
        });
    }

    fn resource(&self) -> Rc<Resource<RuleCounts<H>>> {
        if let Some(fixed) = &self.fixed {
            return Rc::clone(fixed);
        }
        let read = |property| self.host.property(property).filter(|name| !name.is_empty());
        let name = match self.settings.resource {
            ResourceFrom::Route => {
                read(Property::RouteName).or_else(|| read(Property::VirtualHostName))
            }
            _ => read(Property::VirtualHostName),
        };
        // Where there is neither, as when no route matches, such requests share the resource without a name.
        match name.as_deref().map(std::str::from_utf8) {
            Some(Ok(name)) => self.engine.resource(name),
            Some(Err(_)) => self.engine.resource(&String::from_utf8_lossy(
                name.as_deref().unwrap_or_default(),
            )),
            None => self.engine.resource(""),
        }
    }

    /// Decides on a request: what is to be kept until it has ended, if it passes; else it has been answered.
    pub fn on_request(&self) -> Option<Passed<H>> {
        let resource = self.resource();
        resource.observe();
        // Where no rule applies, time does not matter. Without a clock windows stand still, and refuse when they are full.
        let now = if resource.has_rules() {
            self.host.now()
        } else {
            None
        }
        .unwrap_or(Timestamp::ZERO);
        match self
            .engine
            .enter_resource(&resource, &Request::new(""), now)
        {
            // No rule here makes a request wait: the configuration sees to that.
            Decision::Wait(_, entry) | Decision::Pass(entry) => Some(Passed {
                resource,
                _entry: entry,
            }),
            Decision::Block(blocked) => {
                let is_grpc = self.settings.reply.format != Format::Text && self.is_grpc();
                let headers =
                    reply::headers(&self.settings, &blocked, resource.policies(now), is_grpc);
                let sent = self.host.reply(&LocalReply {
                    status: self.settings.reply.status,
                    grpc_status: reply::GRPC_RESOURCE_EXHAUSTED,
                    details: &reply::details(&blocked),
                    headers: &headers,
                    body: &reply::body(&self.settings.reply, &blocked, is_grpc),
                });
                if !sent {
                    self.host.log(
                        Level::Warn,
                        "leapgate: the host did not send a reply to a limited request",
                    );
                }
                None
            }
        }
    }

    fn is_grpc(&self) -> bool {
        self.host
            .request_header("content-type")
            .is_some_and(|value| value.starts_with(b"application/grpc"))
    }

    /// Tells a request that passed how the limits stand, if it is to be told.
    pub fn on_response(&self, passed: &Passed<H>) {
        if !self.settings.on_passed {
            return;
        }
        let Some(now) = self.host.now() else { return };
        let add = |name, value: String| {
            self.host.add_response_header(name, &value);
        };
        reply::rate_limit_headers(
            self.settings.rate_limit_headers,
            passed.resource.policies(now),
            true,
            add,
        );
    }
}
