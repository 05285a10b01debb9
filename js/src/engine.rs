//! The engines, and the calls in flight, behind the numbers.

use crate::buffer::KEYS;
use crate::keys::{Form, KeyText, costs, with_key};
use crate::layout::*;
use crate::rules::{self, RuleInfo};
use crate::seed::LateSeed;
use crate::slab::Slab;
use crate::time::ceiled;
use crate::tree;
use leapgate::backend::Store;
use leapgate::config::{ConfigError, read};
use leapgate::rule::{Count, RuleId};
use leapgate::{Blocked, Decision, Engine, Entry, Outcome, Request, Resource, Rules, Timestamp};
use std::rc::Rc;
use std::time::Duration;

/// How many resources without rules of their own an engine keeps apart. The statistics of each take 43 kB, and Workers have 128 MB.
const MAX_RESOURCES: usize = 1000;

/// Units by number.
type Units = Rc<[Box<str>]>;

/// A resource that JavaScript knows by number.
pub(crate) struct KnownResource {
    pub(crate) resource: Rc<Resource<LateSeed>>,
    /// The same, unless it stands for APIs too: it keeps the windows of the route.
    _route: Rc<Resource<LateSeed>>,
    /// What its rules count, in the order of the costs in the results.
    pub(crate) units: Units,
    pub(crate) rules: Vec<RuleInfo>,
}

impl KnownResource {
    /// The index of a rule in the results.
    fn index_of(&mut self, rule: RuleInfo<&RuleId, &str>) -> usize {
        if let Some(place) = self.rules.iter().position(|known| rule.is(known)) {
            return place;
        }
        self.rules.push(rule.owned());
        self.rules.len() - 1
    }

    /// How long all windows of the resource count as used up.
    fn closed_for(&self, closed: Closed, now: Timestamp) -> Option<Duration> {
        let longest = rules::memory(self.resource.flow_rules()).min(closed.longest);
        let passed = now.as_nanos().saturating_sub(closed.since.as_nanos());
        let left = longest.saturating_sub(Duration::from_nanos(passed));
        (!left.is_zero()).then_some(left)
    }
}

/// A restart: the counts up to `since` are lost, in windows of at most this length.
#[derive(Clone, Copy)]
struct Closed {
    since: Timestamp,
    longest: Duration,
}

/// An engine, and its resources that JavaScript knows by number.
struct Slot {
    engine: Engine<LateSeed>,
    /// How long its flow rules remember a charge at most.
    longest: Duration,
    resources: Vec<KnownResource>,
    closed: Option<Closed>,
}

/// A call in flight.
struct Open {
    entry: Entry<LateSeed>,
    /// The units of its resource, if the call holds an estimate of its cost.
    units: Option<Units>,
}

pub(crate) struct Engines {
    slots: Slab<Slot>,
    entries: Slab<Open>,
    pub(crate) seed: LateSeed,
    keys: Vec<KeyText>,
}

impl Default for Engines {
    fn default() -> Engines {
        Engines {
            slots: Slab::default(),
            entries: Slab::default(),
            seed: LateSeed::default(),
            keys: vec![KeyText::default(); KEYS],
        }
    }
}

/// The rules, and how long they remember a charge at most.
#[inline(never)]
fn rules_of(bytes: &[u8]) -> Result<(Rules, Duration), ConfigError> {
    let tree = tree::read(bytes);
    let rules = read(&tree)?.rules;
    let longest = rules::longest_memory(&rules);
    Ok((rules, longest))
}

impl Engines {
    pub(crate) fn add(&mut self, bytes: &[u8]) -> Result<u32, ConfigError> {
        let (rules, longest) = rules_of(bytes)?;
        let store = Store::new(self.seed.for_engine());
        store.set_max_resources(MAX_RESOURCES);
        let engine = Engine::with_store(Rc::new(store), rules);
        Ok(self.slots.add(Slot {
            engine: engine.map_err(|error| ConfigError::from_rules(&error))?,
            longest,
            resources: Vec::new(),
            closed: None,
        }))
    }

    pub(crate) fn replace(&mut self, engine: u32, bytes: &[u8]) -> Result<(), ConfigError> {
        let (rules, longest) = rules_of(bytes)?;
        let Some(slot) = self.slots.get_mut(engine) else {
            return Ok(());
        };
        let replaced = slot.engine.replace(rules);
        replaced.map_err(|error| ConfigError::from_rules(&error))?;
        slot.longest = longest;
        slot.resources.clear();
        Ok(())
    }

    pub(crate) fn get(&self, engine: u32) -> Option<&Engine<LateSeed>> {
        Some(&self.slots.get(engine)?.engine)
    }

    pub(crate) fn name_key(&mut self, slot: u32, text: &[u8], parts: bool) {
        let form = if parts { Form::Parts } else { Form::One };
        self.put_key(slot, text, form);
    }

    pub(crate) fn put_key(&mut self, slot: u32, text: &[u8], form: Form) {
        if let Some(key) = self.keys.get_mut(slot as usize) {
            key.put(text, form);
        }
    }

    /// Gives a resource, with the APIs that are named behind it, a number: the next one, or 0, and then all other resources are
    /// forgotten. Returns the bits of `engine_resource`.
    pub(crate) fn register(&mut self, engine: u32, number: u32, names: &[&str]) -> Option<f64> {
        let slot = self.slots.get_mut(engine)?;
        let (name, apis) = names.split_first()?;
        let route = slot.engine.resource(name);
        let resource = slot.engine.resource_with(&route, apis);
        let bit = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
        let about = bit(resource.has_rules(), HAS_RULES)
            | bit(rules::needs_exit(&resource), IS_OPEN)
            | bit(rules::holds(&resource), HOLDS);
        slot.resources.truncate(number as usize);
        slot.resources.push(KnownResource {
            units: rules::units(&resource),
            resource,
            _route: route,
            rules: Vec::new(),
        });
        Some(about.into())
    }

    pub(crate) fn known(&self, engine: u32, resource: u32) -> Option<&KnownResource> {
        self.slots.get(engine)?.resources.get(resource as usize)
    }

    pub(crate) fn enter(
        &mut self,
        call: &Call<'_>,
        results: &mut [f64; RESULTS_LEN],
    ) -> Option<f64> {
        let slot = self.slots.get_mut(call.engine)?;
        let known = slot.resources.get_mut(call.resource as usize)?;
        let key = self.keys.get(call.key as usize);
        let key = key.filter(|_| call.flags & KEYED != 0);
        let outer = self.entries.get(call.within).map(|outer| &outer.entry);
        let units = Rc::clone(&known.units);
        let costs = match call.flags & COSTED {
            0 => Vec::new(),
            _ => costs(&units, results),
        };
        let (decision_row, policies) = results.split_first_chunk_mut::<DECISION_LEN>()?;
        let left = slot
            .closed
            .and_then(|closed| known.closed_for(closed, call.now))
            .filter(|_| call.flags & EXEMPT == 0);
        let mut policies = policies.as_chunks_mut::<POLICY_LEN>().0.iter_mut();
        decision_row[DECISION_POLICIES] = 0.0;
        let decision = with_key(key, |values| {
            let decision = if left.is_some() || call.flags & LOOKS != 0 {
                None
            } else {
                let mut request = call.request(outer).keys(values);
                for (unit, n) in &costs {
                    request = request.cost_of(unit, *n);
                }
                let decision = slot
                    .engine
                    .enter_resource(&known.resource, &request, call.now);
                Some(Decided::of(decision, call, &costs))
            };
            let resource = Rc::clone(&known.resource);
            let about = call.request(outer).keys(values);
            for policy in resource.policies_for(&about, call.now) {
                let place = known.index_of(RuleInfo::of_policy(&policy));
                let (remaining, reset) = match left {
                    None => (policy.remaining, policy.reset),
                    Some(left) => (0, left),
                };
                if let Some(to) = policies.next() {
                    decision_row[DECISION_POLICIES] += 1.0;
                    to[POLICY_RULE] = place as f64;
                    to[POLICY_COUNT] = policy.count.get();
                    to[POLICY_REMAINING] = remaining as f64;
                    to[POLICY_RESET] = ceiled(reset);
                }
            }
            decision
        });
        decision_row[DECISION_WAIT] = 0.0;
        let decided = match decision {
            Some(Decided::Entered(wait, entry)) => {
                decision_row[DECISION_WAIT] = wait;
                let units = entry.holds().then_some(units);
                self.entries.add(Open { entry, units }).into()
            }
            Some(Decided::Ended) => ENDED,
            Some(Decided::Refused(blocked)) => {
                let (rule, count) = RuleInfo::of_refusal(&blocked);
                decision_row[DECISION_REFUSING] = known.index_of(rule) as f64;
                decision_row[DECISION_COUNT] = count.map_or(NONE, Count::get);
                decision_row[DECISION_RETRY_AFTER] = blocked.retry_after().map_or(NONE, ceiled);
                REFUSED
            }
            None if call.flags & LOOKS != 0 => ENDED,
            None => {
                decision_row[DECISION_REFUSING] = NONE;
                decision_row[DECISION_COUNT] = NONE;
                decision_row[DECISION_RETRY_AFTER] = left.map_or(NONE, ceiled);
                REFUSED
            }
        };
        decision_row[DECISION_RULES] = known.rules.len() as f64;
        Some(decided)
    }

    pub(crate) fn free(&mut self, engine: u32) {
        drop(self.slots.take(engine));
    }

    pub(crate) fn close(&mut self, engine: u32, now: Timestamp) {
        if let Some(slot) = self.slots.get_mut(engine) {
            slot.closed = Some(Closed {
                since: now,
                longest: slot.longest,
            });
        }
    }

    /// Says what a call has cost, in the costs among `results`.
    pub(crate) fn settle(&mut self, entry: u32, results: &[f64]) {
        if let Some(Open { entry, units }) = self.entries.get_mut(entry)
            && let Some(units) = units
        {
            settle(entry, &costs(units, results));
        }
    }

    /// Ends a call. Returns whether it held an estimate of its cost.
    pub(crate) fn exit(&mut self, entry: u32, how: u32, now: Timestamp) -> bool {
        let Some(Open { entry, units }) = self.entries.take(entry) else {
            return false;
        };
        match how {
            EXIT => entry.exit(Outcome::Success, now),
            EXIT_WITH_ERROR => entry.exit(Outcome::Error, now),
            CANCEL => entry.cancel(now),
            UNANSWERED => entry.exit_unanswered(now),
            DROP => drop(entry),
            _ => {}
        }
        units.is_some()
    }

    /// Tells the breakers that a call has failed, while it goes on.
    pub(crate) fn fail(&mut self, entry: u32, now: Timestamp) {
        if let Some(open) = self.entries.get_mut(entry) {
            open.entry.fail(now);
        }
    }

    pub(crate) fn refund(
        &mut self,
        entry: u32,
        (key, flags): (u32, u32),
        failed: bool,
        now: Timestamp,
    ) {
        let Some(Open { entry, .. }) = self.entries.take(entry) else {
            return;
        };
        let outcome = if failed {
            Outcome::Error
        } else {
            Outcome::Success
        };
        let key = self.keys.get(key as usize).filter(|_| flags & KEYED != 0);
        with_key(key, |values| entry.exit_uncounted(values, outcome, now));
    }
}

/// What became of a request.
enum Decided {
    /// It waits for so many milliseconds, and its call begins.
    Entered(f64, Entry<LateSeed>),
    /// It was let in, and has ended.
    Ended,
    Refused(Blocked),
}

impl Decided {
    /// A call that ends at once costs what its caller says: without that, its estimate.
    fn of(decision: Decision<LateSeed>, call: &Call<'_>, costs: &[(&str, u64)]) -> Decided {
        let (wait, mut entry) = match decision {
            Decision::Block(blocked) => return Decided::Refused(blocked),
            Decision::Pass(entry) => (0.0, entry),
            Decision::Wait(wait, entry) => (ceiled(wait), entry),
        };
        if call.flags & ENDS == 0 {
            return Decided::Entered(wait, entry);
        }
        settle(&mut entry, costs);
        entry.exit(Outcome::Success, call.now);
        Decided::Ended
    }
}

fn settle(entry: &mut Entry<LateSeed>, costs: &[(&str, u64)]) {
    for (unit, n) in costs {
        entry.settle(unit, *n);
    }
}

/// A request to be admitted.
pub(crate) struct Call<'a> {
    pub(crate) engine: u32,
    pub(crate) resource: u32,
    pub(crate) key: u32,
    pub(crate) flags: u32,
    /// The number of the entry within which the call is made; a number that no entry has means none.
    pub(crate) within: u32,
    pub(crate) origin: &'a str,
    pub(crate) context: &'a str,
    pub(crate) now: Timestamp,
}

impl<'a> Call<'a> {
    fn request(&self, outer: Option<&'a Entry<LateSeed>>) -> Request<'a> {
        let mut request = Request::new("").origin(self.origin).context(self.context);
        if self.flags & PRIORITIZED != 0 {
            request = request.prioritized();
        }
        if self.flags & EXEMPT != 0 {
            request = request.exempt();
        }
        if self.flags & INBOUND != 0 {
            request = request.inbound();
        }
        if self.flags & CAN_WAIT == 0 {
            request = request.impatient();
        }
        match outer {
            Some(outer) => request.within(outer),
            None => request,
        }
    }
}
