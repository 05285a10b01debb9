//! A keyed rule on one resource: which requests it is for, and the keys of a request.

use super::controller::{KeyedController, count};
use crate::engine::cost::{Costs, Tariff};
use crate::engine::key_parts::KeyParts;
use crate::rule::{
    Count, FlowRule, Grade, KeyPart, KeyValue, KeyedBy, LimitApp, MAX_KEY_PARTS,
    MAX_KEYS_OF_REQUEST, Network, RuleId, Target,
};
use crate::state::keyed::{Key, KeyedGeometry, KeyedStates, KeyedTerms};
use crate::time::Timestamp;
use hashbrown::HashMap;
use std::cell::OnceCell;
use std::rc::Rc;

/// A keyed rule on one resource.
pub(crate) struct KeyCheck {
    kind: &'static str,
    pub(super) rule: Rc<FlowRule>,
    pub(super) id: RuleId,
    /// The rule with the states that this one looks at, if it has none of its own: that rule charges for both.
    pub(super) beside: Option<RuleId>,
    pub(super) enforced: bool,
    /// For each part, which of the request's values it is.
    pub(super) of: Box<[usize]>,
    /// `None` if it counts requests at a known cost.
    tariff: Option<Tariff>,
    /// For a key that nothing else is said of, with what may burst.
    pub(super) count: Count,
    pub(super) geometry: KeyedGeometry,
    /// Opened by the first request: the hash is seeded then, and not while rules are read.
    pub(super) opened: OnceCell<Opened>,
}

pub(crate) struct Opened {
    /// How the rule has decided.
    pub(super) state: Rc<KeyedController>,
    /// What it decides on: the same, but where that is another rule's.
    pub(super) measured: Rc<KeyedController>,
    /// The keys that have another count.
    items: HashMap<Key, Count>,
}

/// What a keyed rule sees of a request.
pub(crate) struct KeyCaller<'a> {
    /// By part of the resource's keys.
    pub(crate) values: &'a [KeyValue<'a>],
    pub(crate) resource: &'a str,
    pub(crate) origin: &'a str,
    /// Whether it has an origin that no rule of the resource names.
    pub(crate) is_other: bool,
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
            is_other: false,
            cost: 1,
            others: &[],
        }
    }
}

impl Opened {
    pub(crate) fn states(&self) -> &dyn KeyedStates {
        self.measured.states()
    }
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
        KeyCheck {
            count: with_burst(&rule, by, rule.count()),
            kind,
            of: by.parts().iter().map(|part| parts.place_of(part)).collect(),
            tariff: Tariff::of(&rule, parts),
            rule,
            id,
            beside,
            enforced,
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

    pub(super) fn applies_to(&self, caller: &KeyCaller<'_>) -> bool {
        match self.rule.limit_app() {
            LimitApp::Default => true,
            LimitApp::Origin(name) => **name == *caller.origin,
            LimitApp::Other => caller.is_other,
        }
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
        let keys = self
            .of
            .iter()
            .fold(1_usize, |keys, of| keys.saturating_mul(value(of).len()));
        if keys > MAX_KEYS_OF_REQUEST {
            return false;
        }
        for mut number in 0..keys {
            // The number of a key is made of the numbers of its values, in a mixed radix.
            let mut raw = [None; MAX_KEY_PARTS];
            for (raw, of) in raw.iter_mut().zip(&self.of) {
                let value = value(of);
                *raw = value.get(number % value.len());
                number /= value.len();
            }
            self.with_key(raw, opened, by, caller, &mut each);
        }
        true
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

/// The values of a key in the form that is hashed: of addresses, the bits that count.
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
