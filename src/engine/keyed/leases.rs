//! The rules of one resource whose permits are leased from a store. They decide last: nothing is taken for a request that another
//! rule refuses.

use super::check::{KeyCaller, KeyCheck};
use super::reservations::Reservations;
use crate::engine::leased::{LeaseController, LeaseTerms};
use crate::lease::{Taken, escape_part};
use crate::rule::{KeyMatch, KeyPart, KeyedBy, MAX_KEYS_OF_REQUEST, Network, Target};
use crate::time::Timestamp;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

/// For how many bytes of keys there is room between two requests.
const MAX_KEPT: usize = 4096;

/// A rule with leased permits, on one resource.
pub(crate) struct LeaseCheck {
    check: KeyCheck,
    state: Rc<LeaseController>,
    terms: LeaseTerms,
}

/// The rules of one resource with leased permits, in order.
#[derive(Default)]
pub(crate) struct Leases {
    checks: Box<[LeaseCheck]>,
    /// Whether the request that is being decided on no longer waits for the store.
    gives_up: Cell<bool>,
    /// Whether it has to wait for the store.
    awaits: Cell<bool>,
    /// Its keys.
    asked: Cell<AskedKeys>,
}

/// The keys of a request, under all checks.
#[derive(Default)]
struct AskedKeys {
    bytes: Vec<u8>,
    keys: Vec<AskedKey>,
}

/// A key of a request, under the check of this number.
#[derive(Clone, Copy)]
struct AskedKey {
    check: usize,
    /// Its end among the bytes of all keys; it begins where the key before it ends.
    end: usize,
    cost: u64,
    passes: bool,
}

impl AskedKeys {
    fn clear(&mut self) {
        if self.bytes.capacity() > MAX_KEPT {
            self.bytes = Vec::new();
        }
        self.bytes.clear();
        self.keys.clear();
    }

    fn end(&self, number: Option<usize>) -> usize {
        let key = number.and_then(|number| self.keys.get(number));
        key.map_or(0, |key| key.end)
    }

    fn bytes_of(&self, number: usize) -> &[u8] {
        let (begin, end) = (self.end(number.checked_sub(1)), self.end(Some(number)));
        self.bytes.get(begin..end).unwrap_or_default()
    }

    /// Adds the key that was written last, unless it is among those from the `first` on.
    fn add(&mut self, check: usize, cost: u64, first: usize) {
        let begin = self.end(self.keys.len().checked_sub(1));
        let new = self.bytes.get(begin..).unwrap_or_default();
        if (first..self.keys.len()).any(|known| self.bytes_of(known) == new) {
            return self.bytes.truncate(begin);
        }
        let end = self.bytes.len();
        self.keys.push(AskedKey {
            check,
            end,
            cost,
            passes: false,
        });
    }
}

impl LeaseCheck {
    /// The rule, as a check that has no states of its own.
    pub(crate) fn new(check: KeyCheck, state: &Rc<LeaseController>) -> LeaseCheck {
        LeaseCheck {
            terms: LeaseTerms::of(check.rule()),
            state: Rc::clone(state),
            check,
        }
    }

    pub(crate) fn check(&self) -> &KeyCheck {
        &self.check
    }

    pub(crate) fn check_mut(&mut self) -> &mut KeyCheck {
        &mut self.check
    }

    /// Records that it was the first to refuse. Returns what the request costs.
    pub(crate) fn block(&self, caller: &KeyCaller<'_>) -> u64 {
        self.state.block();
        self.check.cost(caller, self.check.rule().count())
    }

    /// Adds the keys of a request, each as it is called at the store. Returns `false` if there are too many.
    fn add_keys(&self, number: usize, caller: &KeyCaller<'_>, asked: &mut AskedKeys) -> bool {
        let rule = self.check.rule();
        let parts = rule.keyed_by().map_or(&[][..], KeyedBy::parts);
        let pattern = rule.keyed_by().and_then(KeyedBy::pattern);
        let cost = self.check.cost(caller, rule.count());
        let (keys, first) = (self.check.count_keys(caller), asked.keys.len());
        if keys > MAX_KEYS_OF_REQUEST {
            return false;
        }
        for key in 0..keys {
            let values = self.check.values_of(caller, key);
            let is_for = |pattern: &KeyMatch| {
                let value = values.first().copied().flatten();
                value.is_some_and(|value| pattern.matches(value))
            };
            if !pattern.is_none_or(is_for) {
                continue;
            }
            // One count for each resource that the rule is for.
            if *rule.target() == Target::Each {
                escape_part(&mut asked.bytes, Some(caller.resource.as_bytes()));
            }
            for (part, value) in parts.iter().zip(values) {
                match (part, value) {
                    (KeyPart::ClientIp { v4, v6 }, Some(text)) => {
                        let network = Network::text_of(text, *v4, *v6);
                        let text = network.as_deref().map_or(text, str::as_bytes);
                        escape_part(&mut asked.bytes, Some(text));
                    }
                    _ => escape_part(&mut asked.bytes, value),
                }
            }
            asked.add(number, cost, first);
        }
        true
    }
}

impl Leases {
    pub(crate) fn new(checks: Vec<LeaseCheck>) -> Leases {
        Leases {
            checks: checks.into(),
            ..Leases::default()
        }
    }

    pub(crate) fn checks(&self) -> &[LeaseCheck] {
        &self.checks
    }

    /// A request is to be decided on, which may have given up waiting for the store.
    #[inline]
    pub(crate) fn begin(&self, gives_up: bool) {
        self.gives_up.set(gives_up);
    }

    /// Whether the request that was decided on last has to wait for the store.
    #[inline]
    pub(crate) fn await_store(&self) -> bool {
        self.awaits.get()
    }

    /// Takes the permits of a request under the only rule, for its only key; `None` where there are more of either, or none.
    pub(crate) fn take_only(
        &self,
        caller: &KeyCaller<'_>,
        waits: bool,
        now: Timestamp,
    ) -> Option<(&LeaseCheck, Taken)> {
        let [lease] = &*self.checks else {
            return None;
        };
        if lease.check.count_keys(caller) != 1 || !lease.check.applies_to(caller) {
            return None;
        }
        let mut asked = self.asked.take();
        asked.clear();
        lease.add_keys(0, caller, &mut asked);
        let (key, cost) = (asked.bytes_of(0), asked.keys.first().map(|key| key.cost));
        let taken = cost.map(|cost| {
            if let Some(retry_after) = lease.state.refused_for(lease.terms, key, cost, now) {
                return Taken::Refuse { retry_after };
            }
            let taken = lease.state.take(lease.terms, key, cost, waits, now);
            if let Taken::Pass { .. } = taken {
                lease.state.pass();
            }
            taken
        });
        self.asked.set(asked);
        Some((lease, taken?))
    }

    /// Resolves the keys of a request, and which of them are known to be refused. The rules have the bits from `first` on.
    #[inline(never)]
    pub(super) fn ask(
        &self,
        reservations: &mut Reservations,
        first: usize,
        caller: &KeyCaller<'_>,
        now: Timestamp,
    ) {
        self.awaits.set(false);
        let mut asked = self.asked.take();
        asked.clear();
        for (i, lease) in self.checks.iter().enumerate() {
            if !lease.check.applies_to(caller) {
                continue;
            }
            let own = asked.keys.len();
            if !lease.add_keys(i, caller, &mut asked) {
                reservations.refuse(first + i, None);
                continue;
            }
            for key in own..asked.keys.len() {
                let cost = asked.keys.get(key).map_or(0, |key| key.cost);
                let (state, bytes) = (&lease.state, asked.bytes_of(key));
                if let Some(own) = state.refused_for(lease.terms, bytes, cost, now) {
                    reservations.refuse(first + i, own);
                }
            }
        }
        self.asked.set(asked);
    }

    /// Takes the permits of a request that all other rules let in; none of them if a rule refuses it, or if it has to wait for the
    /// store.
    #[inline(never)]
    pub(super) fn take(&self, reservations: &mut Reservations, first: usize, now: Timestamp) {
        let mut asked = self.asked.take();
        let (waits, mut awaiting) = (!self.gives_up.get(), 0);
        for number in 0..asked.keys.len() {
            let Some(AskedKey { check, cost, .. }) = asked.keys.get(number).copied() else {
                break;
            };
            let Some(lease) = self.checks.get(check) else {
                break;
            };
            let key = asked.bytes_of(number);
            match lease.state.take(lease.terms, key, cost, waits, now) {
                Taken::Pass { .. } => {
                    let key = asked.keys.get_mut(number);
                    key.into_iter().for_each(|key| key.passes = true);
                }
                Taken::Wait => awaiting |= 1 << (first + check),
                Taken::Refuse { retry_after } => {
                    reservations.refuse(first + check, retry_after);
                    break;
                }
            }
        }
        if reservations.refusing == 0 {
            reservations.refusing = awaiting;
            self.awaits.set(awaiting != 0);
        }
        let mut counted = None;
        for (number, key) in asked.keys.iter().enumerate() {
            let Some(lease) = self.checks.get(key.check).filter(|_| key.passes) else {
                continue;
            };
            if reservations.refusing != 0 {
                lease.state.give_back(asked.bytes_of(number), key.cost, now);
            } else if counted != Some(key.check) {
                counted = Some(key.check);
                lease.state.pass();
            }
        }
        self.asked.set(asked);
    }

    /// How the rule, the `index`th, stands for a request: of several keys, the one of which least is left.
    pub(crate) fn status(
        &self,
        index: usize,
        caller: &KeyCaller<'_>,
        now: Timestamp,
    ) -> Option<(&KeyCheck, u64, Duration)> {
        let lease = self.checks.get(index)?;
        let rule = lease.check.rule();
        let mut asked = AskedKeys::default();
        if !lease.check.applies_to(caller) || !lease.add_keys(0, caller, &mut asked) {
            return None;
        }
        // What is unknown is taken to be unused.
        let (mut remaining, mut reset) = (rule.count().whole(), Duration::ZERO);
        for key in 0..asked.keys.len() {
            match lease.state.left(asked.bytes_of(key), now) {
                Some(left) if left.0 < remaining => (remaining, reset) = left,
                _ => {}
            }
        }
        (!asked.keys.is_empty()).then_some((&lease.check, remaining, reset))
    }
}
