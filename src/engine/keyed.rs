//! Flow rules that limit each key for itself, on one resource.
//!
//! They are asked with the other flow rules, in the order of both, and as those all are charged, or none. What a request has
//! for their parts it brings along ([`crate::Request::keys`]); where a part has several values it is asked about once for
//! each, and charged once for those that are the same.
//!
//! A request that another rule makes wait counts for its keys when that is decided, and takes its turn in theirs when it is
//! released.
//!
//! Sentinel: `ParamFlowSlot` and `ParamFlowChecker`.

use crate::inline_vec::Few;
use crate::rule::{
    Count, Counting, FlowRule, Grade, KeyPart, KeyValue, KeyedBy, LimitApp, MAX_KEY_PARTS,
    MAX_KEYS_OF_REQUEST, Network, RuleId, Target,
};
use crate::state::breaker::Admission;
use crate::state::keyed::{Asked, Key, KeyedGeometry, KeyedStates, KeyedTerms, Reserved, Standing};
use crate::time::Timestamp;
use hashbrown::HashMap;
use std::cell::{Cell, OnceCell};
use std::rc::Rc;
use std::time::Duration;

/// The states of one rule by key, and how it has decided.
pub struct KeyedController<K: ?Sized = dyn KeyedStates> {
    passed: Cell<u64>,
    waited: Cell<u64>,
    blocked: Cell<u64>,
    shadow_blocked: Cell<u64>,
    /// How windows count: as the rule says that asks.
    counting: Cell<Counting>,
    states: K,
}

impl<K: KeyedStates> KeyedController<K> {
    pub(crate) fn new(states: K) -> KeyedController<K> {
        KeyedController {
            passed: Cell::new(0),
            waited: Cell::new(0),
            blocked: Cell::new(0),
            shadow_blocked: Cell::new(0),
            counting: Cell::new(Counting::Strict),
            states,
        }
    }
}

impl<K: ?Sized> KeyedController<K> {
    /// The states.
    pub fn states(&self) -> &K {
        &self.states
    }

    /// How many requests have passed, those included that were told to wait.
    pub fn passed(&self) -> u64 {
        self.passed.get()
    }

    /// How many requests it has told to wait.
    pub fn waited(&self) -> u64 {
        self.waited.get()
    }

    /// How many requests it was the first to refuse.
    pub fn blocked(&self) -> u64 {
        self.blocked.get()
    }

    /// How many requests it would have refused, had it not been in shadow mode.
    pub fn shadow_blocked(&self) -> u64 {
        self.shadow_blocked.get()
    }
}

impl KeyedController {
    /// Has windows count as a rule says that is about to decide.
    #[inline]
    fn count_as(&self, counting: Counting) {
        if self.counting.get() != counting {
            self.counting.set(counting);
            self.states.count_as(counting);
        }
    }
}

fn count(counter: &Cell<u64>) {
    counter.set(counter.get().wrapping_add(1));
}

/// A keyed rule on one resource.
pub(crate) struct KeyCheck {
    rule: Rc<FlowRule>,
    id: RuleId,
    /// The rule whose states it looks at, where it has none of its own: there that one charges for both.
    beside: Option<RuleId>,
    enforced: bool,
    /// How many of the resource's other rules stand before it.
    place: usize,
    /// For each part, which of the request's values it is.
    of: Box<[usize]>,
    /// For a key that nothing else is said of, with what may burst.
    count: Count,
    geometry: KeyedGeometry,
    /// Opened by the first request: the hash is seeded then, and not while rules are read.
    opened: OnceCell<Opened>,
}

struct Opened {
    /// How the rule has decided.
    state: Rc<KeyedController>,
    /// What it decides on: the same, but where that is another rule's.
    measured: Rc<KeyedController>,
    /// The keys that have another count.
    items: HashMap<Key, Count>,
}

/// Who asks.
pub(crate) struct KeyCaller<'a> {
    /// By part of the resource's keys.
    pub(crate) values: &'a [KeyValue<'a>],
    pub(crate) resource: &'a str,
    pub(crate) origin: &'a str,
    /// Whether it has an origin that no rule of the resource names.
    pub(crate) is_other: bool,
    pub(crate) cost: u64,
}

impl KeyCaller<'_> {
    /// Nobody, for no resource.
    pub(crate) fn nobody() -> Self {
        KeyCaller {
            values: &[],
            resource: "",
            origin: "",
            is_other: false,
            cost: 1,
        }
    }
}

/// A key of a request, under the check of this number.
#[derive(Clone, Copy)]
struct Hold {
    check: usize,
    key: Key,
    count: Count,
    /// For how long its rule makes the request wait, in nanoseconds.
    wait: u64,
    reserved: Option<Reserved>,
}

/// What the rules say to the keys of a request, and what is reserved for them.
pub(crate) struct Holds {
    holds: Few<Hold, 4>,
    /// The longest wait, in nanoseconds, of rules that are enforced.
    pub(crate) wait: u64,
    /// A bit for each check.
    refusing: u64,
    shadow_refusing: u64,
    /// How long until those that refuse no longer do.
    retry_after: Option<Duration>,
}

/// A key that is to be told how a call ends, or that it never began.
#[derive(Clone, Copy)]
pub(crate) struct HeldKey {
    check: usize,
    reserved: Reserved,
    /// Whether the call is in flight. Else it waits for its turn.
    in_flight: bool,
}

/// What most calls have not. (The entry of each would be longer for it.)
#[derive(Default)]
pub(crate) struct Rest {
    /// The keys that are to be told.
    keys: Few<HeldKey, 1>,
    /// By breaker: how it let a probe in.
    pub(crate) probes: Vec<(usize, Admission)>,
}

impl Rest {
    /// Goes on with the keys of another one.
    pub(crate) fn keep(&mut self, other: Rest) {
        self.keys = other.keys;
    }
}

/// The keyed rules of one resource.
#[derive(Default)]
pub(crate) struct Keys {
    checks: Box<[KeyCheck]>,
    /// What they look at, each part once.
    parts: Box<[KeyPart]>,
}

impl Opened {
    fn states(&self) -> &dyn KeyedStates {
        self.measured.states()
    }
}

impl KeyCheck {
    /// The rule on a resource, before which so many of its other rules stand: what it is called, and the rule whose states it
    /// looks at.
    pub(crate) fn new(
        rule: Rc<FlowRule>,
        (id, beside): (RuleId, Option<RuleId>),
        enforced: bool,
        place: usize,
    ) -> KeyCheck {
        let nothing = KeyedBy::nothing();
        let by = rule.keyed_by().unwrap_or(&nothing);
        let geometry = KeyedGeometry {
            grade: rule.grade().of_state(),
            is_paced: rule.control_behavior().is_paced(),
            max_keys: by.max_keys(),
            compat: rule.is_compat(),
        };
        KeyCheck {
            count: with_burst(&rule, by, rule.count()),
            rule,
            id,
            beside,
            enforced,
            place,
            of: Box::default(),
            geometry,
            opened: OnceCell::new(),
        }
    }

    /// Records that it was the first to refuse: the rule, and its id.
    pub(crate) fn block(&self) -> (Rc<FlowRule>, RuleId) {
        if let Some(opened) = self.opened.get() {
            count(&opened.state.blocked);
        }
        (Rc::clone(&self.rule), self.id.clone())
    }

    fn by(&self) -> Option<&KeyedBy> {
        self.rule.keyed_by()
    }

    pub(crate) fn rule(&self) -> &FlowRule {
        &self.rule
    }

    pub(crate) fn id(&self) -> &RuleId {
        &self.id
    }

    pub(crate) fn beside(&self) -> Option<&RuleId> {
        self.beside.as_ref()
    }

    pub(crate) fn geometry(&self) -> KeyedGeometry {
        self.geometry
    }

    /// Goes on with these states: decisions are counted in `state`, and made on what is `measured`.
    pub(crate) fn open(&self, state: Rc<KeyedController>, measured: Rc<KeyedController>) {
        // The resource and the origin are the caller's, not an item's: for those an item is looked up by its values alone.
        let items = self.by().into_iter().flat_map(KeyedBy::items);
        let items = items.map(|item| {
            let mut values = [None; MAX_KEY_PARTS];
            for (value, text) in values.iter_mut().zip(&item.values) {
                *value = text.as_ref().map(|text| text.as_bytes());
            }
            let parts = self.by().map_or(&[][..], KeyedBy::parts);
            let mut networks = [const { None }; MAX_KEY_PARTS];
            let values = written(parts, &values, &mut networks);
            let mut values = values.iter().copied().take(parts.len());
            let key = measured.states().key(&mut values);
            let count = self
                .by()
                .map_or(item.count, |by| with_burst(&self.rule, by, item.count));
            (key, count)
        });
        let items = items.collect();
        let _ = self.opened.set(Opened {
            state,
            measured,
            items,
        });
    }

    pub(crate) fn is_open(&self) -> bool {
        self.opened.get().is_some()
    }

    fn applies_to(&self, caller: &KeyCaller<'_>) -> bool {
        match self.rule.limit_app() {
            LimitApp::Default => true,
            LimitApp::Origin(name) => **name == *caller.origin,
            LimitApp::Other => caller.is_other,
        }
    }

    /// What a request costs. Sentinel's limits on calls in flight do not look at it.
    fn cost(&self, caller: &KeyCaller<'_>) -> u64 {
        match self.geometry.grade {
            Grade::Concurrency if self.geometry.compat => 1,
            _ => caller.cost,
        }
    }

    fn terms(&self, count: Count) -> KeyedTerms {
        KeyedTerms {
            count,
            max_queueing_ns: self.rule.max_queueing().as_nanos(),
        }
    }

    /// Tells `each` of the keys of a request and their counts. `false` where there are more than [`MAX_KEYS_OF_REQUEST`].
    fn each_key(&self, caller: &KeyCaller<'_>, mut each: impl FnMut(&Opened, Key, Count)) -> bool {
        let (Some(opened), Some(by)) = (self.opened.get(), self.by()) else {
            return true;
        };
        opened.measured.count_as(self.rule.grade().counting());
        let value = |of: &usize| caller.values.get(*of).copied().unwrap_or_default();
        // Most keys have one part.
        if let [of] = &*self.of {
            let value = value(of);
            let keys = value.len();
            for number in 0..keys.min(MAX_KEYS_OF_REQUEST) {
                self.tell([value.get(number)], opened, by, caller, &mut each);
            }
            return keys <= MAX_KEYS_OF_REQUEST;
        }
        let keys = self
            .of
            .iter()
            .fold(1_usize, |keys, of| keys.saturating_mul(value(of).len()));
        if keys > MAX_KEYS_OF_REQUEST {
            return false;
        }
        for mut number in 0..keys {
            // The number of a key is those of its values, in a system of many bases.
            let mut raw = [None; MAX_KEY_PARTS];
            for (raw, of) in raw.iter_mut().zip(&self.of) {
                let value = value(of);
                *raw = value.get(number % value.len());
                number /= value.len();
            }
            self.tell(raw, opened, by, caller, &mut each);
        }
        true
    }

    /// Tells `each` of the key of these values, if the rule is for it.
    #[inline]
    fn tell<const N: usize>(
        &self,
        raw: [Option<&[u8]>; N],
        opened: &Opened,
        by: &KeyedBy,
        caller: &KeyCaller<'_>,
        each: &mut impl FnMut(&Opened, Key, Count),
    ) {
        let raw = raw.get(..by.parts().len()).unwrap_or(&raw);
        if self.geometry.compat && raw.iter().any(Option::is_none) {
            return;
        }
        if let Some(pattern) = by.pattern() {
            let first = raw.first().copied().flatten();
            if !first.is_some_and(|value| pattern.matches(value)) {
                return;
            }
        }
        let states = opened.states();
        let mut networks = [const { None }; N];
        let values = written(by.parts(), raw, &mut networks);
        let values = || values.iter().copied().take(raw.len());
        // One table for all resources that the rule is for, and for all origins.
        let resource = (*self.rule.target() == Target::Each).then_some(caller.resource);
        let origin = (*self.rule.limit_app() == LimitApp::Other).then_some(caller.origin);
        let is_plain = resource.is_none() && origin.is_none();
        let own = (is_plain || !opened.items.is_empty()).then(|| states.key(&mut values()));
        let item = own.and_then(|own| opened.items.get(&own));
        let key = own.filter(|_| is_plain).unwrap_or_else(|| {
            let names = [resource, origin].into_iter().flatten();
            let names = names.map(|name| Some(name.as_bytes()));
            states.key(&mut names.chain(values()))
        });
        each(opened, key, item.copied().unwrap_or(self.count));
    }
}

/// The count of a key with what may burst. What admits nothing has no bursts, and neither have a throttle and a limit on calls
/// in flight.
///
/// Sentinel: `ParamFlowChecker.passDefaultLocalCheck`, which is the only one of its three checks that looks at the burst.
fn with_burst(rule: &FlowRule, by: &KeyedBy, count: Count) -> Count {
    let has_none = rule.grade() == Grade::Concurrency || rule.control_behavior().is_paced();
    if count.get() == 0.0 || has_none {
        return count;
    }
    Count::nearest(count.get() + by.burst() as f64)
}

/// The values of a key as they are told apart: of addresses, the bits that count.
#[inline]
fn written<'v, const N: usize>(
    parts: &[KeyPart],
    values: &[Option<&'v [u8]>],
    networks: &'v mut [Option<Network>; N],
) -> [Option<&'v [u8]>; N] {
    let mut written = [None; N];
    let places = written.iter_mut().zip(networks);
    for ((part, value), (written, network)) in parts.iter().zip(values).zip(places) {
        *written = *value;
        if let (KeyPart::ClientIp { v4, v6 }, Some(text)) = (part, value) {
            *network = Network::of(text, *v4, *v6);
            *written = network.as_ref().map(Network::bytes).or(*value);
        }
    }
    written
}

impl Default for Holds {
    fn default() -> Holds {
        Holds {
            holds: Few::default(),
            wait: 0,
            refusing: 0,
            shadow_refusing: 0,
            retry_after: Some(Duration::ZERO),
        }
    }
}

impl Holds {
    /// Whether the key is known, under the check of this number.
    fn has(&self, check: usize, key: Key) -> bool {
        let mut holds = self.holds.iter();
        holds.any(|hold| hold.check == check && hold.key == key)
    }

    /// Whether any rule refuses.
    pub(crate) fn refuse(&self) -> bool {
        self.refusing != 0
    }

    /// How long until those that refuse no longer do: the longest. `None` for never.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }
}

impl Keys {
    /// These rules, in order.
    pub(crate) fn new(checks: Vec<KeyCheck>) -> Keys {
        let mut parts: Vec<KeyPart> = Vec::new();
        let mut checks = checks;
        for check in &mut checks {
            let rule = Rc::clone(&check.rule);
            let of = rule.keyed_by().into_iter().flat_map(KeyedBy::parts);
            let of = of.map(|part| {
                let known = parts.iter().position(|known| known == part);
                known.unwrap_or_else(|| {
                    parts.push(part.clone());
                    parts.len() - 1
                })
            });
            check.of = of.collect();
        }
        Keys {
            checks: checks.into(),
            parts: parts.into(),
        }
    }

    /// Whether there are none.
    #[inline]
    pub(crate) fn are_none(&self) -> bool {
        self.checks.is_empty()
    }

    pub(crate) fn parts(&self) -> &[KeyPart] {
        &self.parts
    }

    pub(crate) fn checks(&self) -> &[KeyCheck] {
        &self.checks
    }

    /// The origins that the rules name.
    pub(crate) fn names(&self, origin: &str) -> bool {
        self.checks
            .iter()
            .any(|check| match check.rule.limit_app() {
                LimitApp::Origin(name) => **name == *origin,
                LimitApp::Default => origin == "default",
                LimitApp::Other => origin == "other",
            })
    }

    /// What the rules say to a request. Takes nothing.
    pub(crate) fn ask(&self, caller: &KeyCaller<'_>, now: Timestamp) -> Holds {
        let mut holds = Holds::default();
        for (i, check) in self.checks.iter().enumerate() {
            if !check.applies_to(caller) {
                continue;
            }
            let mut refuses = false;
            let mut retry_after = Some(Duration::ZERO);
            let fits = check.each_key(caller, |opened, key, count| {
                if holds.has(i, key) {
                    return;
                }
                let (states, terms) = (opened.states(), check.terms(count));
                let wait = match states.ask(key, &terms, check.cost(caller), now) {
                    Asked::Pass => 0,
                    Asked::Wait(wait) => wait,
                    Asked::Block { retry_after: own } => {
                        refuses = true;
                        retry_after = retry_after.zip(own).map(|(a, b)| a.max(b));
                        return;
                    }
                };
                if check.enforced {
                    holds.wait = holds.wait.max(wait);
                }
                holds.holds.push(Hold {
                    check: i,
                    key,
                    count,
                    wait,
                    reserved: None,
                });
            });
            if !fits {
                (refuses, retry_after) = (true, None);
            }
            if refuses && check.enforced {
                holds.refusing |= 1 << i;
                holds.retry_after = holds
                    .retry_after
                    .zip(retry_after)
                    .map(|(longest, own)| longest.max(own));
            } else if refuses {
                holds.shadow_refusing |= 1 << i;
            }
        }
        holds
    }

    /// Reserves for a request that passes at once what its keys need, without asking first. Nothing, where a rule that is
    /// enforced would not have it so.
    pub(crate) fn reserve_at_once(
        &self,
        holds: &mut Holds,
        caller: &KeyCaller<'_>,
        now: Timestamp,
    ) -> bool {
        // One that looks at another's states has to before those are charged.
        if self.checks.iter().any(|check| check.beside.is_some()) {
            return false;
        }
        for (i, check) in self.checks.iter().enumerate() {
            if !check.applies_to(caller) {
                continue;
            }
            let (mut could, cost) = (true, check.cost(caller));
            let fits = check.each_key(caller, |opened, key, count| {
                if !could || holds.has(i, key) {
                    return;
                }
                let states = opened.states();
                let reserved = states.reserve(key, &check.terms(count), cost, now);
                could = reserved.is_some_and(|reserved| reserved.wait == 0);
                holds.holds.push(Hold {
                    check: i,
                    key,
                    count,
                    wait: 0,
                    reserved,
                });
            });
            // In shadow mode it waits, perhaps: that is found out where all are asked.
            if !(could && fits) {
                self.give_back(holds, caller, now);
                return false;
            }
        }
        true
    }

    /// Reserves for a request that waits for `wait` nanoseconds what its keys need. Where somebody else was faster, nothing,
    /// and the rule that lacks it refuses.
    pub(crate) fn reserve(
        &self,
        holds: &mut Holds,
        wait: u64,
        caller: &KeyCaller<'_>,
        now: Timestamp,
    ) -> bool {
        let (mut refusing, mut shadow_refusing) = (0, holds.shadow_refusing);
        for hold in holds.holds.iter_mut() {
            let Some((check, opened)) = self.opened(hold.check) else {
                continue;
            };
            if shadow_refusing >> hold.check & 1 == 1 {
                continue;
            }
            if check.beside.is_some() {
                continue; // the other rule does
            }
            let (states, terms) = (opened.states(), check.terms(hold.count));
            opened.measured.count_as(check.rule.grade().counting());
            // A turn is taken for when the request is released.
            let longest = wait.max(hold.wait);
            let cost = check.cost(caller);
            hold.reserved = match longest {
                0 => states.reserve(hold.key, &terms, cost, now),
                wait => states.reserve_later(hold.key, &terms, cost, wait, now),
            };
            let reserved = |reserved: Reserved| reserved.wait <= longest;
            if hold.reserved.is_some_and(reserved) {
                continue;
            }
            if let Some(reserved) = hold.reserved.take() {
                states.give_back(reserved, cost, now); // a turn later than the request can wait
            }
            if check.enforced {
                refusing |= 1 << hold.check;
                break;
            }
            shadow_refusing |= 1 << hold.check;
        }
        holds.shadow_refusing = shadow_refusing;
        if refusing != 0 {
            self.give_back(holds, caller, now);
            holds.refusing = refusing;
        }
        refusing == 0
    }

    /// Gives back what was reserved, because another rule refused.
    pub(crate) fn give_back(&self, holds: &mut Holds, caller: &KeyCaller<'_>, now: Timestamp) {
        for hold in holds.holds.iter_mut() {
            if let Some(reserved) = hold.reserved.take()
                && let Some((check, opened)) = self.opened(hold.check)
            {
                let states = opened.states();
                states.give_back(reserved, check.cost(caller), now);
            }
        }
    }

    /// Charges what was reserved: the keys that are to be told how the call ends.
    pub(crate) fn commit(
        &self,
        holds: &Holds,
        wait: u64,
        caller: &KeyCaller<'_>,
    ) -> Option<Box<Rest>> {
        let (mut rest, mut passed): (Option<Box<Rest>>, u64) = (None, 0);
        for hold in holds.holds.iter() {
            let Some((check, opened)) = self.opened(hold.check) else {
                continue;
            };
            let looks_on = check.beside.is_some() && holds.shadow_refusing >> hold.check & 1 == 0;
            if hold.reserved.is_none() && !looks_on {
                continue;
            }
            if passed >> hold.check & 1 == 0 {
                count(&opened.state.passed);
                if hold.wait > 0 {
                    count(&opened.state.waited);
                }
            }
            passed |= 1 << hold.check;
            let Some(reserved) = hold.reserved else {
                continue;
            };
            let in_flight = opened.states().commit(reserved, check.cost(caller));
            if in_flight || check.geometry.is_paced && wait.max(hold.wait) > 0 {
                rest.get_or_insert_default().keys.push(HeldKey {
                    check: hold.check,
                    reserved,
                    in_flight,
                });
            }
        }
        if holds.shadow_refusing != 0 {
            self.shadow_block(holds);
        }
        rest
    }

    /// Records which rules in shadow mode would have refused.
    pub(crate) fn shadow_block(&self, holds: &Holds) {
        for (i, check) in self.checks.iter().enumerate() {
            if holds.shadow_refusing >> i & 1 == 1
                && let Some(opened) = check.opened.get()
            {
                count(&opened.state.shadow_blocked);
            }
        }
    }

    /// The first rule that refuses, if it stands before the resource's `other`th other rule.
    pub(crate) fn first_refusing(&self, holds: &Holds, other: Option<usize>) -> Option<&KeyCheck> {
        let check = self.checks.get(holds.refusing.trailing_zeros() as usize)?;
        (other.is_none_or(|other| check.place <= other)).then_some(check)
    }

    /// Tells the keys that a call has ended.
    pub(crate) fn leave(&self, rest: &Rest) {
        for held in rest.keys.iter().filter(|held| held.in_flight) {
            if let Some((_, opened)) = self.opened(held.check) {
                opened.states().leave(held.reserved);
            }
        }
    }

    /// Tells the keys that a call of that cost is given up, which was to be released at `release`. Its turn is given back
    /// where it is known to be still to come.
    pub(crate) fn give_up(
        &self,
        rest: &Rest,
        cost: u64,
        release: Timestamp,
        now: Option<Timestamp>,
    ) {
        self.leave(rest);
        let Some(now) = now.filter(|now| *now < release) else {
            return;
        };
        for held in rest.keys.iter().filter(|held| !held.in_flight) {
            if let Some((_, opened)) = self.opened(held.check) {
                opened.states().give_back(held.reserved, cost, now);
            }
        }
    }

    /// Gives back what windows were charged at `charged` for the keys of a request.
    pub(crate) fn refund(&self, caller: &KeyCaller<'_>, charged: Timestamp, now: Timestamp) {
        let checks = self.checks.iter().filter(|check| check.enforced);
        for check in checks.filter(|check| check.applies_to(caller)) {
            let mut told: Few<Key, 4> = Few::default();
            check.each_key(caller, |opened, key, _| {
                if told.iter().any(|known| *known == key) {
                    return;
                }
                told.push(key);
                let states = opened.states();
                states.refund(key, check.cost(caller), charged, now);
            });
        }
    }

    /// How the rules stand that are for a request, in order: how many other rules stand before it, the rule and its id; of
    /// several keys, the one of which least is left.
    pub(crate) fn standings<'a>(
        &'a self,
        caller: KeyCaller<'a>,
        now: Timestamp,
    ) -> impl Iterator<Item = (usize, &'a FlowRule, &'a RuleId, Count, Standing)> {
        self.checks.iter().filter_map(move |check| {
            if !check.applies_to(&caller) {
                return None;
            }
            let mut least: Option<(Count, Standing)> = None;
            check.each_key(&caller, |opened, key, count| {
                let own = opened.states().standing(key, &check.terms(count), now);
                if least.is_none_or(|(_, least)| own.remaining < least.remaining) {
                    least = Some((count, own));
                }
            });
            let unused = || Standing {
                remaining: check.count.whole(),
                reset: Duration::ZERO,
            };
            let (count, standing) = if check.is_open() {
                least?
            } else {
                (check.count, unused())
            };
            Some((check.place, &*check.rule, &check.id, count, standing))
        })
    }

    fn opened(&self, index: usize) -> Option<(&KeyCheck, &Opened)> {
        let check = self.checks.get(index)?;
        Some((check, check.opened.get()?))
    }
}
