//! Flow rules alone: the short form of an [`Engine`](crate::Engine), in a quarter of its code.
//!
//! The states of the rules are the engine's, and several rules decide together in the same three steps: each is asked, and if none
//! refuses, each reserves, and then each admits; else all give back. What is left out is all that other rules, statistics and shared counts need.

mod call;
mod limit;

pub use call::{FlowCall, FlowRefusal};
pub use limit::{FlowLimit, FlowTerms};

use crate::rule::{
    Count, FLOW_RULES, FlowRule, KeyPart, KeyValue, KeyedBy, MAX_RULES_PER_RESOURCE, RuleId,
    RulesError,
};
use crate::state::counter::{LocalCounter, Past};
use crate::state::flow::Controller;
use crate::state::keyed::{KeyStatus, KeyedGeometry, KeyedStates, KeyedTerms, KeyedWindows};
use crate::state::terms::{Terms, longest_wait};
use crate::time::Timestamp;
use std::cell::{OnceCell, RefCell};
use std::rc::{Rc, Weak};
use std::time::Duration;

/// Flow rules of named resources: limits on rates and on calls in flight, for all requests or for each key, throttles, and rules that warm
/// up. For the rest of a document there is an [`Engine`](crate::Engine), which decides alike.
///
/// ```
/// use leapgate::{FlowEngine, FlowRequest, FlowTerms, Timestamp};
///
/// let engine = FlowEngine::new(vec![FlowTerms::of("login").limit()?])?;
/// let login = engine.resource("login");
/// let seed = [17, 4]; // random numbers, of the host
/// let enter = |millis| login.enter(&FlowRequest::default(), seed, Timestamp::from_millis(millis));
/// assert!(enter(0).is_ok());
/// assert_eq!(enter(10).err().and_then(|refusal| refusal.retry_after).map(|wait| wait.as_millis()), Some(1000));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct FlowEngine {
    rules: RefCell<Vec<Rc<InForce>>>,
    /// Those that were in force before, and on which calls may still be in flight.
    past: RefCell<Vec<Weak<InForce>>>,
}

/// A rule in force.
pub(super) struct InForce {
    rule: FlowRule,
    id: RuleId,
    terms: Terms,
    state: State,
}

/// What a rule has counted. A rule that replaces it may go on with it.
#[derive(Clone)]
enum State {
    One(Rc<Controller<LocalCounter>>),
    Keyed(Rc<Keyed>),
}

/// The states of the keys of a rule. The first request opens them: there is a seed then.
struct Keyed {
    geometry: KeyedGeometry,
    windows: OnceCell<KeyedWindows>,
}

/// A resource with its rules.
pub struct FlowResource {
    rules: Box<[OfResource]>,
    parts: Box<[KeyPart]>,
}

/// A rule of a resource, and for each part of its key, which of the request's values it is.
struct OfResource {
    rule: Rc<InForce>,
    of: Box<[usize]>,
}

/// A request for a resource.
#[derive(Clone, Copy, Default)]
pub struct FlowRequest<'a> {
    /// The values of the parts of its keys, as in [`Request::keys`](crate::Request::keys).
    pub keys: &'a [KeyValue<'a>],
    /// What it costs, by unit; 1 where it does not say.
    pub costs: &'a [(&'a str, u64)],
    /// Whether it is refused where it would have to wait.
    pub impatient: bool,
}

/// How a rule stands for a request.
#[derive(Clone, Copy)]
pub struct FlowPolicy {
    /// Which rule of the resource it is.
    pub index: usize,
    /// How much it lets pass: of a rule with a key, with what may burst.
    pub count: Count,
    /// Whole passes that are left now.
    pub remaining: u64,
    /// How long until quota comes back, as in [`Policy::reset`](crate::Policy::reset).
    pub reset: Duration,
}

impl FlowEngine {
    /// An engine with these rules. Their ids are compared one by one: a thousand rules take milliseconds, and ten times as many a
    /// hundred times as long.
    ///
    /// # Errors
    ///
    /// Where the rules do not go together.
    pub fn new(rules: Vec<FlowLimit>) -> Result<FlowEngine, RulesError> {
        Ok(FlowEngine {
            rules: RefCell::new(in_force(rules, &[])?),
            past: RefCell::default(),
        })
    }

    /// Puts other rules in force. Those with an id and a geometry that are in force, or have calls in flight, go on where they are;
    /// resources that were looked up before stay as they were.
    ///
    /// # Errors
    ///
    /// Where the rules do not go together: then the rules in force stay.
    pub fn replace(&self, rules: Vec<FlowLimit>) -> Result<(), RulesError> {
        let mut known: Vec<_> = self.rules.borrow().clone();
        known.extend(self.past.borrow().iter().filter_map(Weak::upgrade));
        let rules = in_force(rules, &known)?;
        let known = known.iter().map(Rc::downgrade).collect();
        drop(self.rules.replace(rules));
        let past = &mut *self.past.borrow_mut();
        *past = known;
        past.retain(|rule| rule.strong_count() > 0);
        Ok(())
    }

    /// The rules in force.
    pub fn for_each_rule(&self, mut each: impl FnMut(&FlowRule)) {
        let rules = self.rules.borrow();
        rules.iter().for_each(|rule| each(&rule.rule));
    }

    /// The resource called `name`, with the rules that are in force now.
    pub fn resource(&self, name: &str) -> Rc<FlowResource> {
        let mut parts: Vec<KeyPart> = Vec::new();
        let mut place_of = |part: &KeyPart| {
            parts
                .iter()
                .position(|known| known == part)
                .unwrap_or_else(|| {
                    parts.push(part.clone());
                    parts.len() - 1
                })
        };
        let rules = self.rules.borrow();
        let rules = rules
            .iter()
            .filter(|rule| rule.rule.target().as_str() == name);
        let rules = rules.map(|rule| OfResource {
            of: rule.key_parts().iter().map(&mut place_of).collect(),
            rule: Rc::clone(rule),
        });
        Rc::new(FlowResource {
            rules: rules.collect(),
            parts: parts.into(),
        })
    }
}

/// The rules in force, where those of `before` were: a rule with the state of one of these goes on with it.
fn in_force(rules: Vec<FlowLimit>, before: &[Rc<InForce>]) -> Result<Vec<Rc<InForce>>, RulesError> {
    let longest = rules
        .iter()
        .map(|limit| longest_wait(&limit.0))
        .max()
        .unwrap_or(0);
    let mut all: Vec<Rc<InForce>> = Vec::new();
    for (index, FlowLimit(rule)) in rules.into_iter().enumerate() {
        let (id, list) = (rule.id(), FLOW_RULES);
        if all.iter().any(|known| known.id == id) {
            return Err(RulesError::SameId { id, list, index });
        }
        let is_beside = |known: &&Rc<InForce>| known.rule.target() == rule.target();
        if all.iter().filter(is_beside).count() == MAX_RULES_PER_RESOURCE {
            let resource = rule.target().as_str().into();
            return Err(RulesError::ManyRules {
                resource,
                list,
                index,
            });
        }
        let known = before
            .iter()
            .find(|known| known.id == id && known.goes_on_as(&rule));
        all.push(Rc::new(InForce {
            state: known.map_or_else(|| State::new(&rule), |known| known.state.clone()),
            terms: Terms::new(&rule, longest),
            id,
            rule,
        }));
    }
    Ok(all)
}

impl State {
    fn new(rule: &FlowRule) -> State {
        let (grade, behavior) = (rule.grade(), rule.control_behavior());
        match rule.keyed_by() {
            None => State::One(Rc::new(Controller::new(
                grade.of_state(),
                behavior,
                false,
                LocalCounter::default(),
                Past::Fresh,
            ))),
            Some(by) => State::Keyed(Rc::new(Keyed {
                geometry: KeyedGeometry {
                    is_paced: behavior.is_paced(),
                    ..KeyedGeometry::new(grade.of_state(), by.max_keys())
                },
                windows: OnceCell::new(),
            })),
        }
    }
}

impl Keyed {
    fn windows(&self, seed: [u64; 2]) -> &KeyedWindows {
        self.windows
            .get_or_init(|| KeyedWindows::new(self.geometry, seed))
    }
}

impl InForce {
    /// Whether a rule with the same id goes on with this one's state.
    fn goes_on_as(&self, rule: &FlowRule) -> bool {
        let by = |rule: &FlowRule| rule.keyed_by().map(KeyedBy::max_keys);
        self.rule.grade().of_state() == rule.grade().of_state()
            && self.rule.control_behavior() == rule.control_behavior()
            && by(&self.rule) == by(rule)
            && self.key_parts() == rule.keyed_by().map_or(&[][..], KeyedBy::parts)
    }

    fn key_parts(&self) -> &[KeyPart] {
        self.rule.keyed_by().map_or(&[], KeyedBy::parts)
    }

    /// What a request costs under the rule.
    fn cost(&self, costs: &[(&str, u64)]) -> u64 {
        let unit = self.rule.unit();
        let said = costs.iter().rev().find(|(of, _)| *of == unit);
        said.map_or(1, |(_, n)| (*n).min(Count::MAX as u64))
    }

    /// The count, of a rule with a key with what may burst.
    fn count(&self) -> Count {
        let (rule, count) = (&self.rule, self.rule.count());
        rule.keyed_by()
            .map_or(count, |by| rule.with_burst(by, count))
    }

    fn keyed_terms(&self) -> KeyedTerms {
        KeyedTerms {
            max_queueing_ns: self.terms.max_queueing,
            ..KeyedTerms::of(self.count())
        }
    }
}

impl FlowResource {
    /// What its rules tell requests apart by, each part once ([`Resource::key_parts`](crate::Resource::key_parts)).
    pub fn key_parts(&self) -> &[KeyPart] {
        &self.parts
    }

    /// Its rules and their ids, in the order of the document.
    pub fn rules(&self) -> impl Iterator<Item = (&FlowRule, &RuleId)> {
        self.rules.iter().map(|of| (&of.rule.rule, &of.rule.id))
    }

    /// Calls `each` with how the rules stand for such a request, in order; of several keys, as for the one with the least left.
    pub fn for_each_policy(
        &self,
        request: &FlowRequest<'_>,
        now: Timestamp,
        mut each: impl FnMut(FlowPolicy),
    ) {
        for (index, OfResource { rule, of }) in self.rules.iter().enumerate() {
            let (count, mut least) = (rule.count(), None::<KeyStatus>);
            match &rule.state {
                State::One(state) => {
                    let remaining = state.remaining(&rule.terms, now);
                    let reset = state.time_to_more(&rule.terms, remaining, now);
                    least = Some(KeyStatus { remaining, reset });
                }
                State::Keyed(keyed) => match keyed.windows.get() {
                    None => {
                        let (remaining, reset) = (count.whole(), Duration::ZERO);
                        least = Some(KeyStatus { remaining, reset });
                    }
                    Some(windows) => {
                        rule.each_key(windows, of, request, |key| {
                            let own = windows.status(key.key(), &rule.keyed_terms(), now);
                            if least.is_none_or(|least| own.remaining < least.remaining) {
                                least = Some(own);
                            }
                        });
                    }
                },
            }
            if let Some(KeyStatus { remaining, reset }) = least {
                each(FlowPolicy {
                    index,
                    count,
                    remaining,
                    reset,
                });
            }
        }
    }
}
