//! The engines, and the calls in flight, behind the numbers.

use crate::shell::{KEYS, ceiled, instant};
use crate::{shell, tree};
use leapgate::backend::{Gauges, LocalCounter, Seeded, Store};
use leapgate::config::{ConfigError, read};
use leapgate::rule::{FlowRule, Grade, KeyValue, MAX_RULES_PER_RESOURCE, RuleId};
use leapgate::{
    Blocked, Cause, Decision, Engine, Entry, Outcome, RefusalKind, Request, Resource, Rules,
    Timestamp,
};
use std::cell::OnceCell;
use std::rc::Rc;
use std::time::Duration;
use wasm_bindgen::prelude::wasm_bindgen;

/// How many resources without rules of their own an engine keeps apart. The statistics of each take 43 kB, and Workers have 128 MB.
const MAX_RESOURCES: usize = 1000;

/// What is told first: how many policies, how many rules there are to know, which of them refuses, its count, when to try again,
/// how long to wait.
const TOLD: usize = 6;

/// What is told of each policy: its rule, its count, what is left, when quota comes back.
const PER_POLICY: usize = 4;

/// What is told about a rule, behind all that: its window, its kind, and the HTTP status of its refusals.
const ABOUT: usize = 3;

/// What is told, in doubles.
pub(crate) const AREA: usize = TOLD + PER_POLICY * MAX_RULES_PER_RESOURCE + ABOUT;

/// What a request says about itself: a bit each.
const PRIORITIZED: u32 = 1;
const INBOUND: u32 = 2;
/// It waits where a rule says so. Else it is refused there.
const CAN_WAIT: u32 = 4;
/// It ends at once.
const ENDS: u32 = 8;
/// It has the key that is told.
const KEYED: u32 = 16;
/// It wants to know how the rules stand, and nothing else.
const LOOKS: u32 = 32;

/// Nothing has this number.
const NONE: f64 = -1.0;

/// What is decided where there is no entry.
const REFUSED: f64 = -1.0;
const ENDED: f64 = -2.0;

/// Things by number.
pub(crate) struct Slab<T> {
    slots: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab {
            slots: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Slab<T> {
    pub(crate) fn add(&mut self, thing: T) -> u32 {
        if let Some(free) = self.free.pop()
            && let Some(place) = self.slots.get_mut(free as usize)
        {
            *place = Some(thing);
            return free;
        }
        self.slots.push(Some(thing));
        (self.slots.len() - 1) as u32
    }

    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        self.slots.get(number as usize)?.as_ref()
    }

    fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.slots.get_mut(number as usize)?.as_mut()
    }

    pub(crate) fn take(&mut self, number: u32) -> Option<T> {
        let taken = self.slots.get_mut(number as usize)?.take()?;
        self.free.push(number);
        Some(taken)
    }
}

/// Which kind of rule it is: what `cause` says of a refusal.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Flow = 0,
    Degrade = 1,
    System = 2,
    Authority = 3,
}

/// A rule that JavaScript knows by its place in the resource's list of these.
struct Told {
    kind: Kind,
    /// Of its refusals: a system rule has one for `qps` and another for the rest, and is two to JavaScript.
    status: u16,
    id: RuleId,
    /// Of a flow rule that counts passes.
    interval_ms: Option<u64>,
}

/// A resource that JavaScript knows by number.
struct Met {
    resource: Rc<Resource<LocalCounter>>,
    rules: Vec<Told>,
}

impl Met {
    fn told(&mut self, kind: Kind, status: u16, id: &RuleId, rule: Option<&FlowRule>) -> usize {
        let known = |told: &Told| told.kind == kind && told.status == status && told.id == *id;
        if let Some(place) = self.rules.iter().position(known) {
            return place;
        }
        let interval_ms = rule.and_then(interval_ms);
        self.rules.push(Told {
            kind,
            status,
            id: id.clone(),
            interval_ms,
        });
        self.rules.len() - 1
    }

    /// The rule that refuses, and its count.
    fn refuses(&mut self, blocked: &Blocked) -> (usize, f64) {
        let (kind, rule) = match blocked.cause() {
            Cause::Flow(rule) => (Kind::Flow, Some(rule)),
            Cause::Degrade(_) => (Kind::Degrade, None),
            Cause::System(..) => (Kind::System, None),
            Cause::Authority(_) => (Kind::Authority, None),
        };
        let count = rule.map_or(NONE, |rule| rule.count().get());
        let status = blocked.cause().kind().status();
        let rule = rule.map(|rule| &**rule);
        (self.told(kind, status, blocked.id(), rule), count)
    }

    /// For how long all of its windows count as used up.
    fn closed_for(&self, closed: Closed, now: Timestamp) -> Option<Duration> {
        let longest = longest(self.resource.flow_rules()).min(closed.longest);
        let passed = now.as_nanos().saturating_sub(closed.since.as_nanos());
        let left = longest.saturating_sub(Duration::from_nanos(passed));
        (!left.is_zero()).then_some(left)
    }
}

/// What nobody knows any more: what was counted until `since`, in windows of which the longest was so long.
#[derive(Clone, Copy)]
struct Closed {
    since: Timestamp,
    longest: Duration,
}

/// For how long something counts at most in the windows of these rules.
fn longest<'a>(rules: impl Iterator<Item = &'a FlowRule>) -> Duration {
    let window = |rule: &FlowRule| match rule.grade() {
        Grade::Qps { window, .. } => {
            let window = window.window();
            window.interval() + window.bucket_length()
        }
        Grade::Concurrency => Duration::ZERO,
    };
    rules.map(window).max().unwrap_or_default()
}

fn interval_ms(rule: &FlowRule) -> Option<u64> {
    match rule.grade() {
        Grade::Qps { window, .. } => Some(window.window().interval_ms()),
        Grade::Concurrency => None,
    }
}

/// An engine, which opens with its first decision: only then is there a seed.
struct Slot {
    rules: Rules,
    open: OnceCell<Option<Engine<Seeded>>>,
    resources: Vec<Met>,
    closed: Option<Closed>,
}

impl Slot {
    fn open(&self, seed: [u64; 2]) -> Option<&Engine<Seeded>> {
        let open = || opened(&self.rules, seed);
        self.open.get_or_init(open).as_ref()
    }
}

/// What a request has for the parts of a resource's keys.
#[derive(Clone, Default)]
struct KeyText {
    bytes: Vec<u8>,
    form: Form,
}

/// How its texts lie.
#[derive(Clone, Copy, Default)]
enum Form {
    /// One text, for the one part.
    #[default]
    One,
    /// A text for each part, each with its length before it.
    Parts,
    /// For each part how many texts there are, in four bytes, and those, each with its length before it.
    Lists,
}

pub(crate) struct Engines {
    slots: Slab<Slot>,
    entries: Slab<Entry>,
    pub(crate) seed: [u64; 2],
    keys: Vec<KeyText>,
}

impl Default for Engines {
    fn default() -> Engines {
        Engines {
            slots: Slab::default(),
            entries: Slab::default(),
            seed: [0; 2],
            keys: vec![KeyText::default(); KEYS],
        }
    }
}

fn rules_of(bytes: &[u8]) -> Result<Rules, ConfigError> {
    let tree = tree::read(bytes);
    Ok(read(&tree)?.rules)
}

/// Whether the rules go together.
fn check(rules: &Rules) -> Result<(), ConfigError> {
    let store = Rc::new(Store::new(Seeded([0; 2])));
    let tried = Engine::with_store(store, rules.clone());
    tried
        .map(drop)
        .map_err(|error| ConfigError::from_rules(&error))
}

impl Engines {
    fn add(&mut self, bytes: &[u8]) -> Result<u32, ConfigError> {
        let rules = rules_of(bytes)?;
        check(&rules)?;
        Ok(self.slots.add(Slot {
            rules,
            open: OnceCell::new(),
            resources: Vec::new(),
            closed: None,
        }))
    }

    fn replace(&mut self, engine: u32, bytes: &[u8]) -> Result<(), ConfigError> {
        let rules = rules_of(bytes)?;
        let Some(slot) = self.slots.get_mut(engine) else {
            return Ok(());
        };
        match slot.open.get() {
            Some(Some(open)) => open
                .replace(rules.clone())
                .map_err(|error| ConfigError::from_rules(&error))?,
            _ => check(&rules)?,
        }
        slot.rules = rules;
        slot.resources.clear();
        Ok(())
    }

    /// The engine of that number, once it is seeded.
    pub(crate) fn open(&self, engine: u32) -> Option<&Engine<Seeded>> {
        self.slots.get(engine)?.open(self.seed)
    }

    pub(crate) fn name_key(&mut self, slot: u32, text: &[u8], parts: bool) {
        let form = if parts { Form::Parts } else { Form::One };
        self.put_key(slot, text, form);
    }

    fn put_key(&mut self, slot: u32, text: &[u8], form: Form) {
        if let Some(key) = self.keys.get_mut(slot as usize) {
            key.form = form;
            key.bytes.clear();
            key.bytes.extend_from_slice(text);
        }
    }

    /// Gives a resource a number: the next one, or 0, and then all others are forgotten. What there is to know of it.
    fn meet(&mut self, engine: u32, number: u32, name: &str) -> Option<f64> {
        let slot = self.slots.get_mut(engine)?;
        let open = slot.open(self.seed)?;
        let resource = open.resource(name);
        let is_open = resource.has_breakers()
            || resource
                .flow_rules()
                .any(|rule| rule.grade() == Grade::Concurrency);
        let about = u8::from(resource.has_rules()) | u8::from(is_open) << 1;
        slot.resources.truncate(number as usize);
        slot.resources.push(Met {
            resource,
            rules: Vec::new(),
        });
        Some(about.into())
    }

    fn met(&self, engine: u32, resource: u32) -> Option<&Met> {
        self.slots.get(engine)?.resources.get(resource as usize)
    }

    fn enter(&mut self, call: &Call<'_>, area: &mut [f64; AREA]) -> Option<f64> {
        let slot = self.slots.get_mut(call.engine)?;
        let open = || opened(&slot.rules, self.seed);
        let engine = slot.open.get_or_init(open).as_ref()?;
        let met = slot.resources.get_mut(call.resource as usize)?;
        let key = self.keys.get(call.key as usize);
        let key = key.filter(|_| call.flags & KEYED != 0);
        let outer = self.entries.get(call.within);
        let (told, policies) = area.split_at_mut(TOLD);
        let [count, known, refuses, limit, retry, waits, ..] = told else {
            return None;
        };
        let left = slot
            .closed
            .and_then(|closed| met.closed_for(closed, call.now));
        let mut policies = policies.chunks_exact_mut(PER_POLICY);
        *count = 0.0;
        let decision = with_key(key, |values| {
            let decision = if left.is_some() || call.flags & LOOKS != 0 {
                None
            } else {
                let request = call.request(outer).keys(values);
                Some(engine.enter_resource(&met.resource, &request, call.now))
            };
            let resource = Rc::clone(&met.resource);
            for policy in resource.policies_for(&Request::new("").keys(values), call.now) {
                let status = RefusalKind::Limited.status();
                let place = met.told(Kind::Flow, status, policy.id, Some(policy.rule));
                let (remaining, reset) = match left {
                    None => (policy.remaining, policy.reset),
                    Some(left) => (0, left),
                };
                if let Some([rule, limit, left, comes_back]) = policies.next() {
                    *count += 1.0;
                    *rule = place as f64;
                    *limit = policy.count.get();
                    *left = remaining as f64;
                    *comes_back = ceiled(reset);
                }
            }
            decision
        });
        let (wait, entry) = match decision {
            Some(Decision::Pass(entry)) => (0.0, entry),
            Some(Decision::Wait(wait, entry)) => (ceiled(wait), entry),
            Some(Decision::Block(blocked)) => {
                let (place, of) = met.refuses(&blocked);
                (*refuses, *limit) = (place as f64, of);
                *retry = blocked.retry_after().map_or(NONE, ceiled);
                *known = met.rules.len() as f64;
                return Some(REFUSED);
            }
            None if call.flags & LOOKS != 0 => {
                *known = met.rules.len() as f64;
                return Some(ENDED);
            }
            None => {
                (*refuses, *limit) = (NONE, NONE);
                *retry = left.map_or(NONE, ceiled);
                *known = met.rules.len() as f64;
                return Some(REFUSED);
            }
        };
        *known = met.rules.len() as f64;
        *waits = wait;
        if call.flags & ENDS != 0 {
            entry.exit(Outcome::Success, call.now);
            return Some(ENDED);
        }
        Some(self.entries.add(entry).into())
    }
}

/// An engine over a store of its own. The rules have been tried: they go together.
#[cold]
fn opened(rules: &Rules, seed: [u64; 2]) -> Option<Engine<Seeded>> {
    let store = Rc::new(Store::new(Seeded(seed)));
    store.set_max_resources(MAX_RESOURCES);
    Engine::with_store(store, rules.clone()).ok()
}

/// Tells `each` of the values of a key.
fn with_key<R>(key: Option<&KeyText>, each: impl FnOnce(&[KeyValue<'_>]) -> R) -> R {
    let Some(KeyText { bytes, form }) = key else {
        return each(&[]);
    };
    match form {
        Form::One => each(&[KeyValue::One(bytes)]),
        Form::Parts => each(&tree::parts(bytes).map(KeyValue::One).collect::<Vec<_>>()),
        Form::Lists => {
            let lists = tree::lists(bytes);
            let values: Vec<_> = lists.iter().map(|list| KeyValue::Each(list)).collect();
            each(&values)
        }
    }
}

/// What asks to be let in.
struct Call<'a> {
    engine: u32,
    resource: u32,
    key: u32,
    cost: u32,
    flags: u32,
    /// The entry within which it is made; none has the number if there is none.
    within: u32,
    origin: &'a str,
    context: &'a str,
    now: Timestamp,
}

impl<'a> Call<'a> {
    fn request(&self, outer: Option<&'a Entry>) -> Request<'a> {
        let mut request = Request::new("")
            .origin(self.origin)
            .context(self.context)
            .cost(self.cost);
        if self.flags & PRIORITIZED != 0 {
            request = request.prioritized();
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

/// Makes an engine of the rules in the buffer. Its number; or, negative, how long the sentence in the buffer is that says what
/// is wrong.
#[wasm_bindgen]
pub fn engine_new(bytes: usize) -> f64 {
    shell(|shell| {
        let made = shell
            .engines
            .add(shell.text.get(..bytes).unwrap_or_default());
        made.map_or_else(|error| -shell.say(&error.to_string()), f64::from)
    })
}

/// Puts the rules in the buffer in force, and forgets the numbers of resources. 0; or, negative, how long the sentence in the
/// buffer is that says what is wrong: then the rules in force stay.
#[wasm_bindgen]
pub fn engine_replace(engine: u32, bytes: usize) -> f64 {
    shell(|shell| {
        let text = shell.text.get(..bytes).unwrap_or_default();
        let replaced = shell.engines.replace(engine, text);
        replaced.map_or_else(|error| -shell.say(&error.to_string()), |()| 0.0)
    })
}

/// Drops an engine. Calls in flight go on.
#[wasm_bindgen]
pub fn engine_free(engine: u32) {
    shell(|shell| drop(shell.engines.slots.take(engine)));
}

/// Counts all windows of an engine as used up, until they have passed.
#[wasm_bindgen]
pub fn engine_close(engine: u32, now: f64) {
    shell(|shell| {
        if let Some(slot) = shell.engines.slots.get_mut(engine) {
            let Rules {
                flow,
                param_flow,
                gateway_flow,
                ..
            } = &slot.rules;
            slot.closed = Some(Closed {
                since: instant(now),
                longest: longest(flow.iter().chain(param_flow).chain(gateway_flow)),
            });
        }
    });
}

/// Tells the load of the machine and how busy its processor is, for system rules: negative where nobody knows.
#[wasm_bindgen]
pub fn engine_gauges(engine: u32, load: f64, cpu: f64) {
    let known = |number: f64| (number >= 0.0).then_some(number);
    let (load, cpu) = (known(load), known(cpu));
    shell(|shell| {
        let Engines { slots, seed, .. } = &shell.engines;
        if let Some(open) = slots.get(engine).and_then(|slot| slot.open(*seed)) {
            open.store().set_gauges(Gauges { load, cpu });
        }
    });
}

/// Gives the number `number`, the next one, to the resource whose name is in the buffer; with 0 those that had one lose it. A bit
/// for what there is to know: 1, whether it has rules; 2, whether any of them has to be told how calls end.
#[wasm_bindgen]
pub fn engine_resource(engine: u32, number: u32, bytes: usize) -> f64 {
    shell(|shell| {
        let name = text_of(&shell.text, 0, bytes);
        shell.engines.meet(engine, number, name).unwrap_or(NONE)
    })
}

/// Tells the part of the resource's keys at this place: how long its name is, in the buffer. Negative where there is none.
#[wasm_bindgen]
pub fn engine_part(engine: u32, resource: u32, index: usize) -> f64 {
    shell(|shell| {
        let met = shell.engines.met(engine, resource);
        let part = met.and_then(|met| met.resource.key_parts().get(index));
        let name = part.map(ToString::to_string);
        name.map_or(NONE, |name| shell.say(&name))
    })
}

/// Tells about a rule that a decision has named: how long its id is, in the buffer; last in the area, its window in
/// milliseconds, negative where it has none, its kind, and the HTTP status of its refusals.
#[wasm_bindgen]
pub fn engine_rule(engine: u32, resource: u32, rule: usize) -> f64 {
    shell(|shell| {
        let met = shell.engines.met(engine, resource);
        let Some(told) = met.and_then(|met| met.rules.get(rule)) else {
            return NONE;
        };
        let [.., interval_ms, kind, status] = &mut shell.area;
        *interval_ms = told.interval_ms.map_or(NONE, |interval| interval as f64);
        *kind = f64::from(told.kind as u8);
        *status = told.status.into();
        let id = told.id.clone();
        shell.say(id.as_str())
    })
}

/// Takes the key in the buffer, for the next call, as number 0: for each part how many values it has, and these, each number in
/// four bytes and each value with its length before it.
#[wasm_bindgen]
pub fn key_lists(bytes: usize) {
    shell(|shell| {
        let text = shell.text.get(..bytes).unwrap_or_default();
        shell.engines.put_key(0, text, Form::Lists);
    });
}

/// Decides. In the buffer lie the origin and, behind it, the context. Tells in the area: how many policies; how many rules of the
/// resource have been named; where it refuses, by which rule, negative for none, of which count, and when to try again in
/// milliseconds, negative for never; where it does not, how long to wait. Then for each policy its rule, its count, what is
/// left, and when quota comes back in milliseconds from now.
///
/// The number of the entry; -1 where it is refused; -2 where it has ended.
#[wasm_bindgen]
#[allow(clippy::too_many_arguments)] // JavaScript has them all at hand
pub fn engine_enter(
    engine: u32,
    resource: u32,
    key: u32,
    cost: u32,
    flags: u32,
    within: u32,
    origin_bytes: usize,
    context_bytes: usize,
    now: f64,
) -> f64 {
    shell(|shell| {
        let call = Call {
            engine,
            resource,
            key,
            cost,
            flags,
            within,
            origin: text_of(&shell.text, 0, origin_bytes),
            context: text_of(&shell.text, origin_bytes, context_bytes),
            now: instant(now),
        };
        let decided = shell.engines.enter(&call, &mut shell.area);
        decided.unwrap_or(REFUSED)
    })
}

/// Ends a call: 0, as it should; 1, with an error; 2, it is given up; 3, nobody knows when or how; 4, nobody has waited for its
/// answer.
#[wasm_bindgen]
pub fn engine_exit(entry: u32, how: u32, now: f64) {
    let now = instant(now);
    let Some(entry) = shell(|shell| shell.engines.entries.take(entry)) else {
        return;
    };
    match how {
        0 => entry.exit(Outcome::Success, now),
        1 => entry.exit(Outcome::Error, now),
        2 => entry.cancel(now),
        4 => entry.exit_unanswered(now),
        _ => drop(entry),
    }
}

/// Ends a call that turns out not to count, with an error or without one. `flags` says whether it has that key.
#[wasm_bindgen]
pub fn engine_refund(entry: u32, key: u32, flags: u32, failed: bool, now: f64) {
    let now = instant(now);
    shell(|shell| {
        let Engines { entries, keys, .. } = &mut shell.engines;
        let Some(entry) = entries.take(entry) else {
            return;
        };
        let outcome = if failed {
            Outcome::Error
        } else {
            Outcome::Success
        };
        let key = keys.get(key as usize).filter(|_| flags & KEYED != 0);
        with_key(key, |values| entry.exit_uncounted(values, outcome, now));
    });
}

/// What JavaScript has put there, which is text.
fn text_of(text: &[u8], at: usize, bytes: usize) -> &str {
    let bytes = text.get(at..).and_then(|rest| rest.get(..bytes));
    std::str::from_utf8(bytes.unwrap_or_default()).unwrap_or_default()
}
