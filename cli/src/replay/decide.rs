//! The decision on a request whose time has come.

use super::counts::hash;
use super::report::RuleReport;
use super::request::Held;
use super::run::{Run, place};
use super::site::TracedPart;
use leapgate::backend::Backend;
use leapgate::rule::{Cause, Exempt, KeyPart, KeyValue};
use leapgate::{Decision, Entry, Outcome, Request, Resource, Timestamp};
use std::cmp::Ordering;

/// How many calls are in flight at most. Further ones end at once.
pub(super) const MAX_IN_FLIGHT: usize = 1 << 20;

/// How many values of keys fit on the stack: more are rare.
const FEW: usize = 16;

/// A call that ends.
pub(super) struct Exit<S: Backend> {
    pub(super) at_ms: u64,
    order: u64,
    entry: Entry<S>,
    outcome: Outcome,
}

impl<S: Backend> PartialEq for Exit<S> {
    fn eq(&self, other: &Exit<S>) -> bool {
        self.order == other.order
    }
}

impl<S: Backend> Eq for Exit<S> {}

impl<S: Backend> PartialOrd for Exit<S> {
    fn partial_cmp(&self, other: &Exit<S>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The earliest is the greatest.
impl<S: Backend> Ord for Exit<S> {
    fn cmp(&self, other: &Exit<S>) -> Ordering {
        (other.at_ms, other.order).cmp(&(self.at_ms, self.order))
    }
}

impl<S: Backend + Clone> Run<S> {
    pub(super) fn decide_before(&mut self, end_ms: u64) {
        while let Some((at, number, held)) = self.queue.take_before(end_ms) {
            self.decide(at, &held);
            self.queue.give_back(number, held);
        }
    }

    pub(super) fn decide_first(&mut self) {
        if let Some((at, number, held)) = self.queue.take_before(u64::MAX) {
            self.decide(at, &held);
            self.queue.give_back(number, held);
        }
    }

    /// Decides on a request whose time has come.
    pub(super) fn decide(&mut self, at_ms: u64, held: &Held<S>) {
        let Some(site) = &held.site else { return };
        while self.exits.peek().is_some_and(|exit| exit.at_ms <= at_ms) {
            if let Some(exit) = self.exits.pop() {
                exit.entry
                    .exit(exit.outcome, Timestamp::from_millis(exit.at_ms));
            }
        }
        let now = Timestamp::from_millis(at_ms);
        let mut values = held.values.iter();
        let (client, origin) = (values.next(), values.next());
        let mut few = [KeyValue::Missing; FEW];
        let count = site.sources.len();
        let many: Vec<KeyValue<'_>>;
        let keys = match few.get_mut(..count) {
            Some(few) => {
                few.iter_mut()
                    .zip(&mut values)
                    .for_each(|(place, value)| *place = value);
                &*few
            }
            None => {
                many = values.collect();
                &many[..]
            }
        };
        let origin = match origin {
            Some(KeyValue::One(origin)) if site.resource.by_origin() => {
                String::from_utf8_lossy(origin)
            }
            _ => "".into(),
        };
        for traced in &site.traced {
            let is_exempt = |(exempt, places): &(Exempt, Box<[usize]>)| {
                let values: Vec<_> = places
                    .iter()
                    .filter_map(|place| keys.get(*place).copied())
                    .collect();
                exempt.holds_for(&values, &origin)
            };
            if held.is_exempt || traced.exempt.as_ref().is_some_and(is_exempt) {
                continue;
            }
            if let Some(Some(trace)) = self.traces.get_mut(traced.rule) {
                trace.add(at_ms, key_of(&traced.parts, keys));
            }
        }
        let mut request = Request::new(&site.name).origin(&origin).keys(keys);
        if held.is_prioritized {
            request = request.prioritized();
        }
        if held.is_exempt {
            request = request.exempt();
        }
        if self.is_inbound {
            request = request.inbound();
        }
        for rule in &site.rules {
            if let Some(rule) = self.report.rules.get_mut(*rule) {
                rule.requests += 1;
            }
        }
        let decision = self.engine.enter_resource(&site.resource, &request, now);
        let report = &mut self.report;
        report.requests += 1;
        if report.from_ms == 0 {
            report.from_ms = at_ms;
        }
        report.to_ms = at_ms;
        report.answered429 += u64::from(held.status == 429);
        let (mut is_refused, mut waits) = (false, false);
        let passed = match decision {
            Decision::Pass(entry) => self.tracks_ends.then_some((entry, 0)),
            Decision::Wait(wait, entry) => {
                let wait_ms = wait.as_nanos().div_ceil(1_000_000) as u64;
                waits = true;
                report.waited += 1;
                report.waited_ms += wait_ms;
                report.longest_wait_ms = report.longest_wait_ms.max(wait_ms);
                Some((entry, wait_ms))
            }
            Decision::Block(blocked) => {
                is_refused = true;
                report.refused += 1;
                let (kind, id) = (blocked.cause().name(), blocked.id().as_str());
                let place = place(&self.rule_places, kind, id).unwrap_or_else(|| {
                    // That of requests of too many APIs is in no document.
                    let place = report.rules.len();
                    report.rules.push(refusal_of_apis(id.into()));
                    self.rule_places
                        .entry(id.into())
                        .or_default()
                        .push((kind, place));
                    place
                });
                if let Some(rule) = report.rules.get_mut(place) {
                    rule.refused += 1;
                }
                let parts = match blocked.cause() {
                    Cause::Flow(rule) => rule.keyed_by(),
                    Cause::Ban(rule) => rule.keyed_by(),
                    _ => None,
                };
                let parts = parts.map_or(&[][..], |by| by.parts());
                self.top
                    .add(place as u32, &label(parts, &site.resource, keys, client));
                None
            }
        };
        report.passed += u64::from(!is_refused);
        report.series.add(at_ms, is_refused, waits);
        if let Some(client) = held.client {
            self.seen.add(client);
            if is_refused {
                self.refused.add(client);
            }
        }
        if is_refused && let Some(group) = self.groups.get_mut(held.agent as usize) {
            group.requests += 1;
            if let Some(client) = held.client {
                group.clients.add(client);
            }
        }
        let Some((entry, wait_ms)) = passed else {
            return;
        };
        let order = self.report.requests;
        let at_ms = at_ms + wait_ms + u64::from(held.millis);
        let is_error = self.settings.errors.counts(held.status.into());
        let outcome = if is_error {
            Outcome::Error
        } else {
            Outcome::Success
        };
        if self.exits.len() >= MAX_IN_FLIGHT {
            self.exited_early += 1;
            return entry.exit(outcome, now);
        }
        self.exits.push(Exit {
            at_ms,
            order,
            entry,
            outcome,
        });
    }
}

/// The hash of a key as a rule tells keys apart.
fn key_of(parts: &[TracedPart], values: &[KeyValue<'_>]) -> u64 {
    let mut whole = 0_u64;
    for (place, network) in parts {
        let of_part = match values.get(*place) {
            Some(KeyValue::One(value)) => match network {
                Some(bits) => hash_of_address(value, *bits),
                None => hash(value),
            },
            _ => 1,
        };
        whole = whole.rotate_left(7).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ of_part;
    }
    whole
}

/// The hash of the first bits of an address.
fn hash_of_address(text: &[u8], (v4, v6): (u8, u8)) -> u64 {
    // The common case: the whole of an IPv4 address has one spelling.
    if v4 == 32 && !text.contains(&b':') {
        return hash(text);
    }
    let address = std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.parse::<std::net::IpAddr>().ok());
    match address.map(|address| address.to_canonical()) {
        Some(std::net::IpAddr::V4(address)) if v4 == 32 => hash(address.to_string().as_bytes()),
        Some(std::net::IpAddr::V4(address)) => {
            let mask = u32::MAX
                .checked_shl(32 - u32::from(v4.min(32)))
                .unwrap_or(0);
            hash(&(u32::from(address) & mask).to_le_bytes())
        }
        Some(std::net::IpAddr::V6(address)) => {
            let mask = u128::MAX
                .checked_shl(128 - u32::from(v6.min(128)))
                .unwrap_or(0);
            hash(&(u128::from(address) & mask).to_le_bytes())
        }
        None => hash(text),
    }
}

/// What a refused key is called in the report.
fn label<S: Backend>(
    parts: &[KeyPart],
    resource: &Resource<S>,
    values: &[KeyValue<'_>],
    client: Option<KeyValue<'_>>,
) -> Vec<u8> {
    let text = |value: Option<&KeyValue<'_>>| match value {
        Some(KeyValue::One(value)) => value.to_vec(),
        _ => b"(missing)".to_vec(),
    };
    if parts.is_empty() {
        return text(client.as_ref());
    }
    let of = |part: &KeyPart| {
        let place = resource.key_parts().iter().position(|known| known == part);
        text(place.and_then(|place| values.get(place)))
    };
    let all: Vec<Vec<u8>> = parts.iter().map(of).collect();
    all.join(&b", "[..])
}

fn refusal_of_apis(id: String) -> RuleReport {
    RuleReport {
        id,
        kind: "api",
        words: "refuses requests of more APIs than 16, or of more rules than 64".into(),
        resource: "*".into(),
        shadow: false,
        requests: 0,
        refused: 0,
        waited: 0,
        not_replayed: None,
        suggestion: None,
        no_suggestion: None,
    }
}
