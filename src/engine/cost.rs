//! What a request costs under a rule.

use crate::engine::key_parts::KeyParts;
use crate::rule::{Count, FlowRule, KeyValue, REQUESTS, amount};

/// What a request brings along that may say what it costs.
#[derive(Clone, Copy)]
pub(crate) struct Costs<'a> {
    /// In requests.
    pub(crate) requests: u64,
    /// In other units.
    pub(crate) others: &'a [(&'a str, u64)],
    /// By part of the resource's keys.
    pub(crate) values: &'a [KeyValue<'a>],
}

/// How a rule that counts anything else than requests at a known cost tells what a request costs.
#[derive(Clone, Copy)]
pub(crate) struct Tariff {
    /// Where the part that estimates the cost stands among the values of a request.
    estimate_at: Option<usize>,
}

impl Tariff {
    /// That of `rule`; `None` if it counts requests whose cost is known when they begin.
    pub(crate) fn of(rule: &FlowRule, parts: &mut KeyParts) -> Option<Tariff> {
        let cost = rule.cost();
        if rule.unit() == REQUESTS && cost.is_none() {
            return None;
        }
        let part = cost.and_then(|cost| cost.part());
        Some(Tariff {
            estimate_at: part.map(|part| parts.place_of(part)),
        })
    }

    /// What a request costs under `rule`, or, if that is known only at its end, how much it holds of that `count`. A cost that
    /// is not said is 1.
    #[inline(never)]
    pub(crate) fn cost(self, rule: &FlowRule, costs: &Costs<'_>, count: Count) -> u64 {
        let others = || costs.others.iter().rev();
        let said = match rule.unit() {
            // Each request says that, if only by default: the rule's own estimate is the better one.
            REQUESTS if rule.cost().is_some_and(|cost| cost.estimates()) => None,
            REQUESTS => Some(costs.requests),
            unit => others().find(|(of, _)| *of == unit).map(|(_, n)| *n),
        };
        let Some(cost) = rule.cost() else {
            return said.unwrap_or(1);
        };
        let value = self.estimate_at.and_then(|at| costs.values.get(at));
        let read = value.and_then(|value| amount(value.get(0)?));
        cost.held(said, read, count)
    }
}
