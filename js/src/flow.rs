//! The engines of flow rules alone, and their calls in flight, behind the numbers.

use crate::buffer::KEYS;
use crate::keys::{Form, KeyText, costs, with_key};
use crate::layout::*;
use crate::slab::Slab;
use crate::time::ceiled;
use crate::tree;
use leapgate::Timestamp;
use leapgate::config::ConfigError;
use leapgate::flow::{FlowCall, FlowEngine, FlowLimit, FlowRequest, FlowResource, FlowTerms};
use leapgate::rule::{
    ControlBehavior, Counting, FlowRule, Grade, KeyPart, MaxQueueing, REQUESTS, RuleError, RuleId,
    WarmUp,
};
use std::rc::Rc;
use std::time::Duration;

/// A resource that JavaScript knows by number.
struct KnownResource {
    resource: Rc<FlowResource>,
    /// What its rules count, in the order of the costs in the results.
    units: Vec<Box<str>>,
}

/// An engine, and its resources that JavaScript knows by number.
struct Slot {
    engine: FlowEngine,
    resources: Vec<KnownResource>,
    /// Since a restart the counts of before are lost, in windows of at most this length.
    closed: Option<(Timestamp, Duration)>,
}

/// A request, by numbers.
pub(crate) struct Call {
    pub(crate) engine: u32,
    pub(crate) resource: u32,
    pub(crate) key: u32,
    pub(crate) flags: u32,
    pub(crate) now: Timestamp,
}

pub(crate) struct Flows {
    slots: Slab<Slot>,
    calls: Slab<FlowCall>,
    keys: Vec<KeyText>,
}

impl Default for Flows {
    fn default() -> Flows {
        Flows {
            slots: Slab::default(),
            calls: Slab::default(),
            keys: vec![KeyText::default(); KEYS],
        }
    }
}

/// A rule, which `js/lib/flow-rules.js` has checked: numbers in the order of `FLOW_RULE`, negative where they are not said, and then
/// its texts, each with its length before it: the resource, the id, the unit, and the parts of its key.
fn rule_of(bytes: &mut &[u8]) -> Result<FlowLimit, RuleError> {
    let mut numbers = [NONE; FLOW_RULE.len()];
    for number in &mut numbers {
        *number = tree::take_number(bytes).unwrap_or(NONE);
    }
    let [
        count,
        interval_ms,
        sample_count,
        window,
        behavior,
        warm_up_sec,
        cold_factor,
        max_queueing_ms,
        max_keys,
        burst,
        parts,
    ] = numbers;
    let mut text = || tree::take_str(bytes).unwrap_or_default();
    let said = |number: f64| (number >= 0.0).then_some(number);
    let (resource, id, unit) = (text(), text(), text());
    let mut key = Vec::new();
    for _ in 0..parts.max(0.0) as u32 {
        key.push(part_of(text()));
    }
    let default = WarmUp::default();
    let terms = FlowTerms {
        resource,
        id,
        unit,
        count,
        window: said(interval_ms).map(|interval_ms| {
            let sample_count = said(sample_count).map(|count| count as u32);
            (interval_ms as u64, sample_count)
        }),
        counting: match window as i32 {
            1 => Counting::Sentinel,
            2 => Counting::Weighted,
            _ => Counting::Strict,
        },
        behavior: match behavior as i32 {
            1 => ControlBehavior::WarmUp,
            2 => ControlBehavior::Throttle,
            3 => ControlBehavior::WarmUpThrottle,
            _ => ControlBehavior::Reject,
        },
        warm_up: WarmUp::new(
            said(warm_up_sec).map_or(default.period_sec(), |sec| sec as u32),
            said(cold_factor).map_or(default.cold_factor(), |factor| factor as u32),
        )?,
        max_queueing: match said(max_queueing_ms) {
            Some(millis) => MaxQueueing::from_millis(millis as u64)?,
            None => MaxQueueing::default(),
        },
        key,
        max_keys: said(max_keys).map(|keys| keys as usize),
        burst: burst.max(0.0) as u64,
    };
    terms.limit()
}

/// The part of a key that is written so, as `Display` writes it.
fn part_of(text: &str) -> KeyPart {
    match text.split_once(':') {
        Some(("header", name)) => KeyPart::Header(name.into()),
        Some(("query", name)) => KeyPart::Query(name.into()),
        Some(("cookie", name)) => KeyPart::Cookie(name.into()),
        Some((_, index)) => KeyPart::Arg(index.parse().unwrap_or_default()),
        None if text == "method" => KeyPart::Method,
        None if text == "host" => KeyPart::Host,
        None => KeyPart::Path,
    }
}

/// The rules in the buffer; an error where these make none, which `js/lib/flow-rules.js` has excluded.
fn rules_of(mut bytes: &[u8]) -> Result<Vec<FlowLimit>, ConfigError> {
    let mut rules = Vec::new();
    while !bytes.is_empty() {
        let rule = rule_of(&mut bytes);
        rules.push(rule.map_err(|_| ConfigError::new("flowRules", "", "is not a list of rules"))?);
    }
    Ok(rules)
}

/// How long a rule remembers a charge at most.
fn memory(rule: &FlowRule) -> Duration {
    match rule.grade() {
        Grade::Qps { window, .. } => window.window().interval() + window.window().bucket_length(),
        Grade::Concurrency => Duration::ZERO,
    }
}

impl Flows {
    pub(crate) fn add(&mut self, bytes: &[u8]) -> Result<u32, ConfigError> {
        let engine = FlowEngine::new(rules_of(bytes)?);
        Ok(self.slots.add(Slot {
            engine: engine.map_err(|error| ConfigError::from_rules(&error))?,
            resources: Vec::new(),
            closed: None,
        }))
    }

    pub(crate) fn replace(&mut self, engine: u32, bytes: &[u8]) -> Result<(), ConfigError> {
        let rules = rules_of(bytes)?;
        let Some(slot) = self.slots.get_mut(engine) else {
            return Ok(());
        };
        let replaced = slot.engine.replace(rules);
        replaced.map_err(|error| ConfigError::from_rules(&error))?;
        slot.resources.clear();
        Ok(())
    }

    pub(crate) fn free(&mut self, engine: u32) {
        drop(self.slots.take(engine));
    }

    pub(crate) fn close(&mut self, engine: u32, now: Timestamp) {
        if let Some(slot) = self.slots.get_mut(engine) {
            let mut longest = Duration::ZERO;
            slot.engine
                .for_each_rule(|rule| longest = longest.max(memory(rule)));
            slot.closed = Some((now, longest));
        }
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

    /// As `engine_resource` describes.
    pub(crate) fn register(&mut self, engine: u32, number: u32, name: &str) -> Option<f64> {
        let slot = self.slots.get_mut(engine)?;
        let resource = slot.engine.resource(name);
        let mut about = 0;
        let mut units: Vec<Box<str>> = vec![REQUESTS.into()];
        for (rule, _) in resource.rules() {
            about |= HAS_RULES;
            if rule.grade() == Grade::Concurrency {
                about |= IS_OPEN;
            }
            if units.iter().all(|known| **known != *rule.unit()) {
                units.push(rule.unit().into());
            }
        }
        slot.resources.truncate(number as usize);
        slot.resources.push(KnownResource { resource, units });
        Some(about.into())
    }

    fn known(&self, engine: u32, resource: u32) -> Option<&KnownResource> {
        self.slots.get(engine)?.resources.get(resource as usize)
    }

    pub(crate) fn units(&self, engine: u32, resource: u32) -> &[Box<str>] {
        self.known(engine, resource)
            .map_or(&[], |known| &known.units)
    }

    pub(crate) fn part(&self, engine: u32, resource: u32, index: usize) -> Option<String> {
        let known = self.known(engine, resource)?;
        Some(known.resource.key_parts().get(index)?.to_string())
    }

    /// The id of a rule of the resource, its unit and the length of its window in milliseconds.
    pub(crate) fn rule(
        &self,
        engine: u32,
        resource: u32,
        index: usize,
    ) -> Option<(&RuleId, &str, Option<u64>)> {
        let (rule, id) = self.known(engine, resource)?.resource.rules().nth(index)?;
        let interval_ms = match rule.grade() {
            Grade::Qps { window, .. } => Some(window.window().interval_ms()),
            Grade::Concurrency => None,
        };
        Some((id, rule.unit(), interval_ms))
    }

    pub(crate) fn enter(
        &mut self,
        call: &Call,
        seed: [u64; 2],
        results: &mut [f64; RESULTS_LEN],
    ) -> Option<f64> {
        let slot = self.slots.get(call.engine)?;
        let known = slot.resources.get(call.resource as usize)?;
        let resource = &known.resource;
        let key = self.keys.get(call.key as usize);
        let costs = match call.flags & COSTED {
            0 => Vec::new(),
            _ => costs(&known.units, results),
        };
        let left = slot.closed.and_then(|(since, longest)| {
            let memory = resource.rules().map(|(rule, _)| memory(rule)).max()?;
            let passed = call.now.as_nanos().saturating_sub(since.as_nanos());
            memory
                .min(longest)
                .checked_sub(Duration::from_nanos(passed))
        });
        let left = left.filter(|left| !left.is_zero());
        let (row, policies) = results.split_first_chunk_mut::<DECISION_LEN>()?;
        let mut policies = policies.as_chunks_mut::<POLICY_LEN>().0.iter_mut();
        row[DECISION_POLICIES] = 0.0;
        row[DECISION_WAIT] = 0.0;
        row[DECISION_RULES] = resource.rules().count() as f64;
        let looks = call.flags & LOOKS != 0;
        let decided = with_key(key.filter(|_| call.flags & KEYED != 0), |values| {
            let request = FlowRequest {
                keys: values,
                costs: &costs,
                impatient: call.flags & CAN_WAIT == 0,
            };
            let decided =
                (!looks && left.is_none()).then(|| resource.enter(&request, seed, call.now));
            resource.for_each_policy(&request, call.now, |policy| {
                if let Some(to) = policies.next() {
                    row[DECISION_POLICIES] += 1.0;
                    to[POLICY_RULE] = policy.index as f64;
                    to[POLICY_COUNT] = policy.count.get();
                    to[POLICY_REMAINING] = if left.is_some() {
                        0.0
                    } else {
                        policy.remaining as f64
                    };
                    to[POLICY_RESET] = ceiled(left.unwrap_or(policy.reset));
                }
            });
            decided
        });
        Some(match decided {
            Some(Ok(entered)) if call.flags & ENDS != 0 => {
                entered.exit(call.now);
                ENDED
            }
            Some(Ok(entered)) => {
                let wait = entered.release().as_nanos() - call.now.as_nanos();
                row[DECISION_WAIT] = ceiled(Duration::from_nanos(wait));
                self.calls.add(entered).into()
            }
            Some(Err(refusal)) => {
                let refusing = resource.rules().nth(refusal.index);
                row[DECISION_REFUSING] = refusal.index as f64;
                row[DECISION_COUNT] = refusing.map_or(NONE, |(rule, _)| rule.count().get());
                row[DECISION_RETRY_AFTER] = refusal.retry_after.map_or(NONE, ceiled);
                REFUSED
            }
            None if looks => ENDED,
            None => {
                row[DECISION_REFUSING] = NONE;
                row[DECISION_COUNT] = NONE;
                row[DECISION_RETRY_AFTER] = left.map_or(NONE, ceiled);
                REFUSED
            }
        })
    }

    pub(crate) fn exit(&mut self, call: u32, how: u32, now: Timestamp) {
        let Some(call) = self.calls.take(call) else {
            return;
        };
        match how {
            DROP => call.give_up(None),
            CANCEL | UNANSWERED => call.give_up(Some(now)),
            _ => call.exit(now),
        }
    }

    pub(crate) fn refund(&mut self, call: u32, now: Timestamp) {
        if let Some(call) = self.calls.take(call) {
            call.refund(now);
        }
    }
}
