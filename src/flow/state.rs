//! A rule in force, and what it has counted.

use super::limit::FlowLimit;
use crate::rule::{
    Count, FLOW_RULES, FlowRule, KeyPart, KeyedBy, MAX_RULES_PER_RESOURCE, RuleId, RulesError,
};
use crate::state::counter::{LocalCounter, Past};
use crate::state::flow::Controller;
use crate::state::keyed::{KeyedGeometry, KeyedTerms, KeyedWindows};
use crate::state::terms::{Terms, longest_wait};
use std::cell::OnceCell;
use std::rc::Rc;

/// A rule in force.
pub(super) struct InForce {
    pub(super) rule: FlowRule,
    pub(super) id: RuleId,
    pub(super) terms: Terms,
    pub(super) state: State,
}

/// What a rule has counted. A rule that replaces it may go on with it.
#[derive(Clone)]
pub(super) enum State {
    One(Rc<Controller<LocalCounter>>),
    Keyed(Rc<Keyed>),
}

/// The states of the keys of a rule. The first request opens them: there is a seed then.
pub(super) struct Keyed {
    pub(super) geometry: KeyedGeometry,
    pub(super) windows: OnceCell<KeyedWindows>,
}

/// The rules in force, where those of `before` were: a rule with the state of one of these goes on with it.
pub(super) fn in_force(
    rules: Vec<FlowLimit>,
    before: &[Rc<InForce>],
) -> Result<Vec<Rc<InForce>>, RulesError> {
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
    pub(super) fn windows(&self, seed: [u64; 2]) -> &KeyedWindows {
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

    pub(super) fn key_parts(&self) -> &[KeyPart] {
        self.rule.keyed_by().map_or(&[], KeyedBy::parts)
    }

    /// What a request costs under the rule.
    pub(super) fn cost(&self, costs: &[(&str, u64)]) -> u64 {
        let unit = self.rule.unit();
        let said = costs.iter().rev().find(|(of, _)| *of == unit);
        said.map_or(1, |(_, n)| (*n).min(Count::MAX as u64))
    }

    /// The count, of a rule with a key with what may burst.
    pub(super) fn count(&self) -> Count {
        let (rule, count) = (&self.rule, self.rule.count());
        rule.keyed_by().map_or(count, |by| {
            by.bursting(count, (rule.grade(), rule.control_behavior()))
        })
    }

    pub(super) fn keyed_terms(&self) -> KeyedTerms {
        KeyedTerms {
            max_queueing_ns: self.terms.max_queueing,
            ..KeyedTerms::of(self.count())
        }
    }
}
