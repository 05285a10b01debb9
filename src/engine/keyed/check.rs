//! A keyed rule on one resource: which requests it is for, and the keys of a request.

use super::controller::{KeyedController, count};
use crate::engine::cost::{Costs, Tariff};
use crate::engine::exempt::Exempted;
use crate::engine::key_parts::KeyParts;
use crate::map::HashMap;
use crate::rule::{
    ControlBehavior, Count, FlowRule, Grade, KeyPart, KeyValue, KeyedBy, LimitApp, MAX_KEY_PARTS,
    MAX_KEYS_OF_REQUEST, Network, RuleId, Target,
};
use crate::state::keyed::{Key, KeyedGeometry, KeyedStates, KeyedTerms};
use crate::state::terms::Bounds;
use crate::time::Timestamp;
use std::cell::{Cell, OnceCell};
use std::rc::Rc;

/// How many shares of keys there are.
const SHARES: f64 = 4_294_967_296.0;

/// A keyed rule on one resource.
pub(crate) struct KeyCheck {
    kind: &'static str,
    pub(super) rule: Rc<FlowRule>,
    pub(super) id: RuleId,
    /// The rule with the states that this one looks at, if it has none of its own: that rule charges for both.
    pub(super) beside: Option<RuleId>,
    pub(super) enforced: bool,
    /// Keys whose hash has a lower number than this in 32 of its bits are refused, if the rule is enforced.
    share: u64,
    /// Which member of the resource the rule is for, where it stands for a route and APIs; else 0.
    pub(crate) member: u8,
    /// For each part, which of the request's values it is.
    pub(super) of: Box<[usize]>,
    /// Which requests it leaves alone.
    pub(crate) exempt: Exempted,
    /// `None` if it counts requests at a known cost.
    tariff: Option<Tariff>,
    /// For a key that nothing else is said of, with what may burst.
    count: Count,
    /// Which of the request's values says it instead, if a request does.
    count_at: Option<usize>,
    /// Whether the keys that were resolved last have this count because a request did not say theirs.
    pub(super) is_defaulted: Cell<bool>,
    pub(super) geometry: KeyedGeometry,
    /// Opened by the first request: the hash is seeded then, and not while rules are read.
    pub(super) opened: OnceCell<Opened>,
}

pub(crate) struct Opened {
    /// How the rule has decided.
    pub(super) state: Rc<KeyedController>,
    /// What it decides on: the same, but where that is another rule's.
    pub(super) measured: Rc<KeyedController>,
    /// The keys that have another count, and the networks whose keys have one.
    items: HashMap<Key, Count>,
    /// The lengths of those networks, a bit for each: of IPv4 and of IPv6.
    lengths: [u128; 2],
}

/// What a keyed rule sees of a request.
pub(crate) struct KeyCaller<'a> {
    /// By part of the resource's keys.
    pub(crate) values: &'a [KeyValue<'a>],
    pub(crate) resource: &'a str,
    pub(crate) origin: &'a str,
    /// Whether it has an origin that no rule of the resource names: a bit for each member, where the resource stands for a route
    /// and APIs.
    pub(crate) is_other: u32,
    pub(crate) cost: u64,
    /// Its costs in other units than requests.
    pub(crate) others: &'a [(&'a str, u64)],
}

impl<'a> KeyCaller<'a> {
    /// What it costs, as its caller says.
    pub(crate) fn costs(&self) -> Costs<'a> {
        Costs {
            requests: self.cost,
            others: self.others,
            values: self.values,
        }
    }

    /// No request, for no resource.
    pub(crate) fn none() -> Self {
        KeyCaller {
            values: &[],
            resource: "",
            origin: "",
            is_other: 0,
            cost: 1,
            others: &[],
        }
    }
}

impl Opened {
    pub(crate) fn states(&self) -> &dyn KeyedStates {
        self.measured.states()
    }

    /// The count of the longest network that contains this one.
    fn item_of(&self, network: &Network) -> Option<&Count> {
        let [v4, v6] = self.lengths;
        let mut lengths = if network.is_v4() { v4 } else { v6 };
        while lengths != 0 {
            let length = 127 - lengths.leading_zeros();
            lengths ^= 1 << length;
            let around = network.cut(length as u8);
            let item = network_key(self.states(), &around, length as u8);
            let item = self.items.get(&item);
            if item.is_some() {
                return item;
            }
        }
        None
    }
}

/// What a network is looked up by: no key of one part is made of two values. That of one IPv6 address is its key.
fn network_key(states: &dyn KeyedStates, network: &Network, length: u8) -> Key {
    let values = [Some(network.bytes()), Some(&[length][..])];
    let many = if length == 128 { 1 } else { 2 };
    states.key(&mut values.into_iter().take(many))
}

impl KeyCheck {
    /// The rule, or a part of a rule of that `kind`, on a resource whose keys have these `parts`: its id, and the rule with the
    /// states that it looks at.
    #[inline(never)]
    pub(crate) fn new(
        kind: &'static str,
        rule: Rc<FlowRule>,
        (id, beside): (RuleId, Option<RuleId>),
        enforced: bool,
        parts: &mut KeyParts,
    ) -> KeyCheck {
        let nothing = KeyedBy::nothing();
        let by = rule.keyed_by().unwrap_or(&nothing);
        let geometry = KeyedGeometry {
            grade: rule.grade().of_state(),
            is_paced: rule.control_behavior().is_paced(),
            max_keys: by.max_keys(),
            compat: rule.is_compat(),
        };
        // The parts of the key come first.
        let of = by.parts().iter().map(|part| parts.place_of(part));
        let of = of.collect();
        let share = (by.enforced_share().get() * SHARES) as u64;
        KeyCheck {
            count: by.bursting(rule.count(), kind_of(&rule)),
            count_at: by.count_from().map(|from| {
                let part = KeyPart::Attribute(from.attribute().clone());
                parts.place_of(&part)
            }),
            is_defaulted: Cell::new(false),
            kind,
            exempt: Exempted::default(),
            of,
            tariff: Tariff::of(&rule, parts),
            rule,
            id,
            beside,
            enforced: enforced && share > 0,
            share,
            member: 0,
            geometry,
            opened: OnceCell::new(),
        }
    }

    /// Records that it was the first to refuse: the rule, and its id.
    pub(crate) fn block(&self) -> (Rc<FlowRule>, RuleId) {
        if let Some(opened) = self.opened.get() {
            count(&opened.state.blocked);
        }
        self.called()
    }

    /// The rule, and its id.
    pub(crate) fn called(&self) -> (Rc<FlowRule>, RuleId) {
        (Rc::clone(&self.rule), self.id.clone())
    }

    fn by(&self) -> Option<&KeyedBy> {
        self.rule.keyed_by()
    }

    pub(crate) fn rule(&self) -> &FlowRule {
        &self.rule
    }

    pub(crate) fn kind(&self) -> &'static str {
        self.kind
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
        // The resource and the origin come from the request, not from an item: an item is looked up by its values alone.
        let mut lengths = [0; 2];
        let items = self.by().into_iter().flat_map(KeyedBy::items);
        let items = items.map(|item| {
            let count = self.by().map_or(item.count, |by| {
                by.bursting(item.count, kind_of(&self.rule))
            });
            let network = self.by().and_then(|by| by.network_of(item).ok()?);
            if let Some(cidr) = network {
                let (network, length) = (cidr.network(), cidr.prefix_length());
                let [v4, v6] = &mut lengths;
                let lengths = if network.is_v4() { v4 } else { v6 };
                *lengths |= 1_u128.checked_shl(length.into()).unwrap_or(0);
                return (network_key(measured.states(), network, length), count);
            }
            let mut values = [None; MAX_KEY_PARTS];
            for (value, text) in values.iter_mut().zip(&item.values) {
                *value = text.as_ref().map(|text| text.as_bytes());
            }
            let parts = self.by().map_or(&[][..], KeyedBy::parts);
            let networks = networks::<MAX_KEY_PARTS>(parts, &values);
            let values = written(&values, &networks);
            let mut values = values.iter().copied().take(parts.len());
            (measured.states().key(&mut values), count)
        });
        let items = items.collect();
        let most = self.rule.max_queueing().as_nanos();
        state.is_limited_to(Bounds::of_key(
            self.count.get(),
            most,
            self.tariff.is_some(),
        ));
        let _ = self.opened.set(Opened {
            state,
            measured,
            items,
            lengths,
        });
    }

    pub(crate) fn is_open(&self) -> bool {
        self.opened.get().is_some()
    }

    pub(super) fn applies_to(&self, caller: &KeyCaller<'_>) -> bool {
        let applies = match self.rule.limit_app() {
            LimitApp::Default => true,
            LimitApp::Origin(name) => **name == *caller.origin,
            LimitApp::Other => caller.is_other >> self.member & 1 == 1,
        };
        applies && !self.exempts(caller.values, caller.origin)
    }

    /// Whether the rule refuses requests of that key, and does not only count them.
    pub(super) fn enforces(&self, key: Key) -> bool {
        self.enforced && u64::from((key.hash() >> 8) as u32) < self.share
    }

    /// Whether the rule refuses requests of every key.
    pub(super) fn enforces_all(&self) -> bool {
        self.enforced && self.share as f64 >= SHARES
    }

    /// Whether the rule leaves a request alone that has these values.
    pub(crate) fn exempts(&self, values: &[KeyValue<'_>], origin: &str) -> bool {
        self.exempt.holds(&self.rule, values, origin)
    }

    /// What a request costs a key with that `count`, or how much it holds until its cost is known. Sentinel's limits on calls in
    /// flight do not look at it.
    #[inline]
    pub(crate) fn cost(&self, caller: &KeyCaller<'_>, count: Count) -> u64 {
        match (self.geometry.grade, self.tariff) {
            (Grade::Concurrency, _) if self.geometry.compat => 1,
            (_, None) => caller.cost,
            (_, Some(tariff)) => tariff.cost(&self.rule, &caller.costs(), count),
        }
    }

    /// Charges what was settled at an unknown time.
    #[inline]
    pub(super) fn charge_late(&self, now: Timestamp) {
        if self.tariff.is_some()
            && let Some(opened) = self.opened.get()
        {
            opened.measured.charge_late(now);
        }
    }

    pub(crate) fn terms(&self, count: Count) -> KeyedTerms {
        KeyedTerms {
            count,
            max_queueing_ns: self.rule.max_queueing().as_nanos(),
            holds: self.rule.cost().is_some(),
        }
    }

    /// The states that the rule decides on: windows count as it says.
    #[inline]
    pub(super) fn states<'o>(&self, opened: &'o Opened) -> &'o dyn KeyedStates {
        opened.measured.count_as(self.rule.grade().counting());
        opened.states()
    }

    /// The count of a key that nothing is said of in the rule.
    #[inline]
    pub(super) fn count_of(&self, caller: &KeyCaller<'_>) -> Count {
        match self.count_at {
            None => self.count,
            Some(at) => self.said_count(caller.values.get(at).copied()),
        }
    }

    #[inline(never)]
    fn said_count(&self, value: Option<KeyValue<'_>>) -> Count {
        let by = self.by().and_then(|by| Some((by, by.count_from()?)));
        let said = by.zip(value).and_then(|((by, from), value)| {
            let count = from.read(value.get(0)?)?;
            Some(by.bursting(count, kind_of(&self.rule)))
        });
        said.unwrap_or_else(|| {
            self.is_defaulted.set(true);
            self.count
        })
    }

    /// Calls `each` with the keys of a request and their counts. `false` where there are more than [`MAX_KEYS_OF_REQUEST`].
    pub(super) fn each_key(
        &self,
        caller: &KeyCaller<'_>,
        mut each: impl FnMut(&Opened, Key, Count),
    ) -> bool {
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
                self.with_key([value.get(number)], opened, by, caller, &mut each);
            }
            return keys <= MAX_KEYS_OF_REQUEST;
        }
        let keys = self.count_keys(caller);
        if keys > MAX_KEYS_OF_REQUEST {
            return false;
        }
        for number in 0..keys {
            self.with_key(
                self.values_of(caller, number),
                opened,
                by,
                caller,
                &mut each,
            );
        }
        true
    }

    /// How many keys a request has: one for each combination of its values.
    #[inline]
    pub(super) fn count_keys(&self, caller: &KeyCaller<'_>) -> usize {
        count_keys(&self.of, caller.values)
    }

    /// The values of the key of that number.
    #[inline]
    pub(super) fn values_of<'a>(
        &self,
        caller: &KeyCaller<'a>,
        number: usize,
    ) -> [Option<&'a [u8]>; MAX_KEY_PARTS] {
        values_of(&self.of, caller.values, number)
    }

    /// [`KeyCheck::each_key`], out of line: it is long, and most callers are not hot.
    #[inline(never)]
    pub(crate) fn for_each_key(
        &self,
        caller: &KeyCaller<'_>,
        each: &mut dyn FnMut(&Opened, Key, Count),
    ) -> bool {
        self.each_key(caller, each)
    }

    /// Calls `each` with the key of these values, if the rule is for it.
    #[inline]
    fn with_key<const N: usize>(
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
        let networks = networks::<N>(by.parts(), raw);
        let values = written(raw, &networks);
        let values = || values.iter().copied().take(raw.len());
        // One table for all resources that the rule is for, and for all origins.
        let resource = (*self.rule.target() == Target::Each).then_some(caller.resource);
        let origin = (*self.rule.limit_app() == LimitApp::Other).then_some(caller.origin);
        let is_plain = resource.is_none() && origin.is_none();
        let own = (is_plain || !opened.items.is_empty()).then(|| states.key(&mut values()));
        let item = own.and_then(|own| opened.items.get(&own));
        let item = match networks.first() {
            Some(Some(network)) if item.is_none() => opened.item_of(network),
            _ => item,
        };
        let key = own.filter(|_| is_plain).unwrap_or_else(|| {
            let names = [resource, origin].into_iter().flatten();
            let names = names.map(|name| Some(name.as_bytes()));
            states.key(&mut names.chain(values()))
        });
        each(
            opened,
            key,
            item.copied().unwrap_or_else(|| self.count_of(caller)),
        );
    }
}

/// What bursts depend on.
fn kind_of(rule: &FlowRule) -> (Grade, ControlBehavior) {
    (rule.grade(), rule.control_behavior())
}

/// How many keys a request has that are made of these `of` its values: one for each combination.
#[inline]
pub(crate) fn count_keys(of: &[usize], values: &[KeyValue<'_>]) -> usize {
    let value = |of: &usize| values.get(*of).copied().unwrap_or_default();
    of.iter()
        .fold(1, |keys: usize, of| keys.saturating_mul(value(of).len()))
}

/// The values of the key of that number.
#[inline]
pub(crate) fn values_of<'a>(
    of: &[usize],
    values: &[KeyValue<'a>],
    mut number: usize,
) -> [Option<&'a [u8]>; MAX_KEY_PARTS] {
    // The number of a key is made of the numbers of its values, in a mixed radix.
    let mut raw = [None; MAX_KEY_PARTS];
    for (raw, of) in raw.iter_mut().zip(of) {
        let value = values.get(*of).copied().unwrap_or_default();
        *raw = value.get(number % value.len());
        number /= value.len();
    }
    raw
}

/// The networks of the clients' addresses among the values of a key.
#[inline]
fn networks<const N: usize>(parts: &[KeyPart], values: &[Option<&[u8]>]) -> [Option<Network>; N] {
    let mut networks = [const { None }; N];
    for ((part, value), network) in parts.iter().zip(values).zip(&mut networks) {
        if let (KeyPart::ClientIp { v4, v6 }, Some(text)) = (part, value) {
            *network = Network::of(text, *v4, *v6);
        }
    }
    networks
}

/// The values of a key in the form that is hashed: of addresses, the bits that count.
#[inline]
fn written<'v, const N: usize>(
    values: &[Option<&'v [u8]>],
    networks: &'v [Option<Network>; N],
) -> [Option<&'v [u8]>; N] {
    let mut written = [None; N];
    for ((value, network), written) in values.iter().zip(networks).zip(&mut written) {
        *written = network.as_ref().map(Network::bytes).or(*value);
    }
    written
}
