//! What asks to be let in.

use crate::engine::cost::Costs;
use crate::engine::scope::Within;
use crate::rule::{Count, KeyValue, REQUESTS};
use crate::stats::tree::DEFAULT_CONTEXT;

/// What a request does not wait for, in bits.
const FOR_TURN: u8 = 1;
const FOR_STORE: u8 = 2;

/// What asks to be let in.
pub struct Request<'a> {
    pub(super) resource: &'a str,
    pub(super) context: &'a str,
    pub(super) origin: &'a str,
    pub(super) cost: u64,
    /// In other units than requests. Boxed: most requests have none, and dropping an empty list takes longer.
    #[expect(clippy::box_collection)]
    pub(super) other_costs: Option<Box<Vec<(&'a str, u64)>>>,
    pub(super) prioritized: bool,
    pub(super) impatient: u8,
    pub(super) inbound: bool,
    pub(super) exempt: bool,
    pub(super) within: Option<Within<'a>>,
    pub(super) keys: &'a [KeyValue<'a>],
    pub(super) apis: Option<&'a [&'a str]>,
}

impl<'a> Request<'a> {
    /// A request for `resource`, at a cost of one, from no origin in particular.
    #[inline]
    pub fn new(resource: &'a str) -> Request<'a> {
        Request {
            resource,
            context: "",
            origin: "",
            cost: 1,
            other_costs: None,
            prioritized: false,
            impatient: 0,
            inbound: false,
            exempt: false,
            within: None,
            keys: &[],
            apis: None,
        }
    }

    /// This request, with these values for the parts of the resource's keys ([`Resource::key_parts`](crate::Resource::key_parts)), in their order. What is
    /// not said is missing.
    #[doc(alias = "args")]
    #[must_use]
    pub fn keys(self, keys: &'a [KeyValue<'a>]) -> Request<'a> {
        Request { keys, ..self }
    }

    /// This request, which belongs to the APIs of these names, too: it enters all of them and its resource, or none
    /// ([`Engine::resource_with`](crate::Engine::resource_with), which says which names count). An
    /// [`ApiMatcher`](crate::api::ApiMatcher) finds them.
    #[must_use]
    pub fn also(self, apis: &'a [&'a str]) -> Request<'a> {
        Request {
            apis: Some(apis),
            ..self
        }
    }

    /// This request, in a context of its own.
    #[must_use]
    pub fn context(self, context: &'a str) -> Request<'a> {
        Request { context, ..self }
    }

    /// This request, from that origin.
    #[must_use]
    pub fn origin(self, origin: &'a str) -> Request<'a> {
        Request { origin, ..self }
    }

    /// This request, at that cost.
    #[doc(alias = "acquireCount")]
    #[doc(alias = "batchCount")]
    #[must_use]
    pub fn cost(self, cost: u32) -> Request<'a> {
        Request {
            cost: cost.into(),
            ..self
        }
    }

    /// This request, at a cost of `n` in that unit, for the rules that count it ([`FlowRule::in_unit`](crate::rule::FlowRule::in_unit)).
    /// What is not said is 1, and at most 2^53 counts. Where a rule knows the cost only at the end ([`FlowRule::costing`](crate::rule::FlowRule::costing)), it
    /// is an estimate, better than the rule's own. In [`REQUESTS`] it is the request's [`cost`](Request::cost).
    #[must_use]
    pub fn cost_of(mut self, unit: &'a str, n: u64) -> Request<'a> {
        let n = n.min(Count::MAX as u64);
        if unit == REQUESTS {
            self.cost = n;
        } else {
            self.other_costs.get_or_insert_default().push((unit, n));
        }
        self
    }

    /// What it costs in other units than requests.
    pub(super) fn other_costs(&self) -> &[(&'a str, u64)] {
        self.other_costs.as_deref().map_or(&[], Vec::as_slice)
    }

    /// What it costs, as its caller says.
    pub(super) fn costs(&self) -> Costs<'_> {
        Costs {
            requests: self.cost,
            others: self.other_costs(),
            values: self.keys,
        }
    }

    /// This request, as one that may borrow: where a rule that rejects has no room for it, it waits until a bucket to
    /// come can pay for it, if that is in less than [`OCCUPY_TIMEOUT_MS`](crate::stats::OCCUPY_TIMEOUT_MS).
    ///
    /// Sentinel: `SphU.entryWithPriority`.
    #[doc(alias = "entryWithPriority")]
    #[must_use]
    pub fn prioritized(self) -> Request<'a> {
        Request {
            prioritized: true,
            ..self
        }
    }

    /// This request, as one that does not wait: where it would have to, it is refused, and nothing is charged. The time to
    /// try again is then when it would have had its turn.
    #[must_use]
    pub fn impatient(self) -> Request<'a> {
        Request {
            impatient: self.impatient | FOR_TURN,
            ..self
        }
    }

    /// This request, as one that no longer waits for the store of leased permits ([`Blocked::awaits_store`](crate::Blocked::awaits_store)):
    /// where there are none, it is decided by what the rule says for a store that does not answer.
    #[must_use]
    pub fn impatient_for_store(self) -> Request<'a> {
        Request {
            impatient: self.impatient | FOR_STORE,
            ..self
        }
    }

    /// Whether it does not wait for its turn.
    pub(super) fn is_impatient(&self) -> bool {
        self.impatient & FOR_TURN != 0
    }

    /// Whether it does not wait for the store.
    pub(super) fn is_impatient_for_store(&self) -> bool {
        self.impatient & FOR_STORE != 0
    }

    /// This request, as one from outside: it counts in the inbound statistics too.
    #[doc(alias = "EntryType")]
    #[must_use]
    pub fn inbound(self) -> Request<'a> {
        Request {
            inbound: true,
            ..self
        }
    }

    /// This request, as one that limits leave alone, such as a health check: flow rules, system rules and bans neither refuse nor
    /// count it, and it is in no inbound statistics. Circuit breakers and authority rules hold for it.
    #[must_use]
    pub fn exempt(self) -> Request<'a> {
        Request {
            exempt: true,
            ..self
        }
    }

    /// Whether it has nothing but a resource and what it costs, as far as rules without a key are concerned.
    #[inline]
    pub(super) fn is_plain(&self) -> bool {
        self.origin.is_empty()
            && self.context.is_empty()
            && self.within.is_none()
            && !(self.prioritized | self.inbound | self.exempt)
    }

    /// Whether it is a request from outside that counts there.
    pub(super) fn is_inbound(&self) -> bool {
        self.inbound && !self.exempt
    }

    /// By which context it comes in.
    pub(super) fn context_name(&self) -> &'a str {
        match self.within {
            Some(Within { context, .. }) => {
                context.map_or(DEFAULT_CONTEXT, |context| context.name())
            }
            None if self.context.is_empty() => DEFAULT_CONTEXT,
            None => self.context,
        }
    }
}
