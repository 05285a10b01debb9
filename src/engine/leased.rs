//! The permits of one rule, and how it has decided.

use crate::lease::{Taken, WhenDown};
use crate::rule::{
    ClusterConfig, ControlBehavior, Counting, FlowRule, Grade, KeyedBy, LimitApp, Mode, Strategy,
};
use crate::state::leased::{Leased, NotLeased};
use crate::time::Timestamp;
use crate::window::Window;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

/// The permits of one rule that are leased from a store, and how it has decided.
pub struct LeaseController {
    leased: Rc<dyn Leased>,
    /// What the permits were told last.
    terms: Cell<LeaseTerms>,
    passed: Cell<u64>,
    blocked: Cell<u64>,
    latest: RefCell<Latest>,
}

/// The terms of a rule that may change while its permits go on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct LeaseTerms {
    pub(super) limit: u64,
    pub(super) interval: Duration,
    pub(super) when_down: Option<WhenDown>,
}

impl LeaseTerms {
    /// Those of `rule`.
    pub(super) fn of(rule: &FlowRule) -> LeaseTerms {
        let falls_back = rule.cluster().and_then(ClusterConfig::falls_back);
        LeaseTerms {
            limit: rule.count().whole(),
            interval: match rule.grade() {
                Grade::Qps { window, .. } => window.window().interval(),
                Grade::Concurrency => Duration::ZERO,
            },
            when_down: falls_back.map(|falls_back| match falls_back {
                true => WhenDown::Local,
                false => WhenDown::Pass,
            }),
        }
    }
}

/// The latest decision.
struct Latest {
    key: Vec<u8>,
    at: Timestamp,
    cost: u64,
    /// A wait for the store says nothing of the key.
    taken: Taken,
}

impl LeaseController {
    pub(super) fn new(leased: Rc<dyn Leased>, terms: LeaseTerms) -> LeaseController {
        LeaseController {
            leased,
            terms: Cell::new(terms),
            passed: Cell::new(0),
            blocked: Cell::new(0),
            latest: RefCell::new(Latest {
                key: Vec::new(),
                at: Timestamp::ZERO,
                cost: 0,
                taken: Taken::Wait,
            }),
        }
    }

    /// The permits.
    pub fn leased(&self) -> &Rc<dyn Leased> {
        &self.leased
    }

    /// How many requests have passed.
    pub fn passed(&self) -> u64 {
        self.passed.get()
    }

    /// How many requests it was the first to refuse.
    pub fn blocked(&self) -> u64 {
        self.blocked.get()
    }

    pub(super) fn pass(&self) {
        self.passed.set(self.passed.get().wrapping_add(1));
    }

    pub(super) fn block(&self) {
        self.blocked.set(self.blocked.get().wrapping_add(1));
    }

    /// Decides about a request under a rule of these terms, and charges it if it passes.
    pub(super) fn take(
        &self,
        terms: LeaseTerms,
        key: &[u8],
        cost: u64,
        waits: bool,
        now: Timestamp,
    ) -> Taken {
        if self.terms.replace(terms) != terms {
            self.leased.change(terms.limit, terms.when_down);
        }
        let taken = self.leased.take(key, cost, now, waits);
        // Without the store a refusal tells nothing about the next request: there may be an answer by then.
        let is_refused = matches!(taken, Taken::Refuse { .. });
        let said = match is_refused && (!waits || self.leased.is_down()) {
            true => Taken::Wait,
            false => taken,
        };
        let mut latest = self.latest.borrow_mut();
        latest.key.clear();
        latest.key.extend_from_slice(key);
        (latest.at, latest.cost, latest.taken) = (now, cost, said);
        taken
    }

    /// Takes back the charge of a request that has just passed.
    pub(super) fn give_back(&self, key: &[u8], cost: u64, now: Timestamp) {
        self.leased.give_back(key, cost, now);
        self.latest.borrow_mut().taken = Taken::Wait;
    }

    /// How long the latest decision has said that a request is refused, if it was about that key: then the permits need not be
    /// asked. `Some(None)` for ever.
    pub(super) fn refused_for(
        &self,
        terms: LeaseTerms,
        key: &[u8],
        cost: u64,
        now: Timestamp,
    ) -> Option<Option<Duration>> {
        let latest = self.latest.borrow();
        let Taken::Refuse { retry_after } = latest.taken else {
            return None;
        };
        let is_same = latest.key == key && self.terms.get() == terms;
        let passed = now.since(latest.at);
        let lasts = retry_after.is_none_or(|retry_after| retry_after > passed);
        (is_same && cost >= latest.cost && lasts)
            .then(|| retry_after.map(|retry_after| retry_after.saturating_sub(passed)))
    }

    /// How much is left for a key, and how long until there is more, as far as the latest decision was about that key and less
    /// than a window ago.
    pub(super) fn left(&self, key: &[u8], now: Timestamp) -> Option<(u64, Duration)> {
        let latest = self.latest.borrow();
        let (passed, interval) = (now.since(latest.at), self.terms.get().interval);
        if latest.key != key || passed >= interval {
            return None;
        }
        match latest.taken {
            Taken::Pass { remaining } => Some((remaining, Duration::ZERO)),
            Taken::Refuse { retry_after } => {
                let retry_after = retry_after.unwrap_or(interval);
                (retry_after > passed).then(|| (0, retry_after.saturating_sub(passed)))
            }
            Taken::Wait => None,
        }
    }
}

/// The window of a rule that can lease permits, in a document in mode `all`. Permits are of strict windows, are spent at once, and
/// all keys have the same limit.
pub(super) fn window_to_lease(rule: &FlowRule, all: Mode) -> Result<Window, NotLeased> {
    let by = rule.keyed_by();
    let has = |has: &dyn Fn(&KeyedBy) -> bool| by.is_some_and(has);
    let why = match (rule.grade(), rule.control_behavior(), rule.strategy()) {
        (Grade::Concurrency, ..) => "does not go with a limit on concurrency",
        (_, ControlBehavior::WarmUp, _) => "does not go with `warmUp`",
        (_, ControlBehavior::Throttle, _) => "does not go with `throttle`",
        (_, ControlBehavior::WarmUpThrottle, _) => "does not go with `warmUpThrottle`",
        (_, _, Strategy::Relate(_)) => "does not go with `relate`",
        (_, _, Strategy::Chain(_)) => "does not go with `chain`",
        _ if rule.is_compat() => "does not go with `compat`",
        _ if *rule.limit_app() == LimitApp::Other => "does not go with the `limitApp` `other`",
        _ if rule.cost().is_some() => "does not go with a `cost` that is known only at the end",
        _ if has(&|by| by.burst() > 0) => "does not go with a burst",
        _ if has(&|by| !by.items().is_empty()) => "does not go with counts of single keys",
        _ if has(&|by| by.count_from().is_some()) => {
            "does not go with a `count` that requests bring along"
        }
        _ if has(&|by| by.enforced_share().get() < 1.0) => "does not go with `enforcePercent`",
        _ if rule.mode() == Mode::Shadow || all == Mode::Shadow => "does not go with shadow mode",
        (
            Grade::Qps {
                window,
                counting: Counting::Strict,
            },
            ..,
        ) => return Ok(window.window()),
        _ => "does not go with a `window` that is not strict",
    };
    let cure = "leave one of the two out";
    Err(NotLeased { why, cure })
}
