//! The permits of one rule, and how it has decided.

use crate::lease::{Taken, WhenDown};
use crate::rule::{
    ClusterConfig, ControlBehavior, Counting, FlowRule, Grade, KeyedBy, LimitApp, Mode, Strategy,
};
use crate::state::leased::Leased;
use crate::time::Timestamp;
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

/// What the latest decision has said of its key.
struct Latest {
    key: Vec<u8>,
    at: Timestamp,
    said: Said,
}

/// What a decision says of a key.
#[derive(Clone, Copy)]
enum Said {
    Nothing,
    /// So much is left.
    Left(u64),
    /// Requests of that cost are refused for so long; `None` for ever.
    Refused(u64, Option<Duration>),
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
                said: Said::Nothing,
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
        let said = match taken {
            Taken::Pass { remaining } => Said::Left(remaining),
            Taken::Refuse { retry_after } => Said::Refused(cost, retry_after),
            Taken::Wait => Said::Nothing,
        };
        let mut latest = self.latest.borrow_mut();
        latest.key.clear();
        latest.key.extend_from_slice(key);
        (latest.at, latest.said) = (now, said);
        taken
    }

    /// Takes back the charge of a request that has just passed.
    pub(super) fn give_back(&self, key: &[u8], cost: u64, now: Timestamp) {
        self.leased.give_back(key, cost, now);
        self.latest.borrow_mut().said = Said::Nothing;
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
        match latest.said {
            Said::Refused(least, retry_after)
                if cost >= least && latest.key == key && self.terms.get() == terms =>
            {
                let Some(retry_after) = retry_after else {
                    return Some(None);
                };
                let left = retry_after.checked_sub(now.since(latest.at));
                left.filter(|left| !left.is_zero()).map(Some)
            }
            _ => None,
        }
    }

    /// How much is left for a key, and how long until there is more, as far as the latest decision was about that key and less
    /// than `interval` ago.
    pub(super) fn left(
        &self,
        key: &[u8],
        interval: Duration,
        now: Timestamp,
    ) -> Option<(u64, Duration)> {
        let latest = self.latest.borrow();
        let passed = now.since(latest.at);
        if latest.key != key || passed >= interval {
            return None;
        }
        match latest.said {
            Said::Left(left) => Some((left, Duration::ZERO)),
            Said::Refused(_, retry_after) => {
                let reset = retry_after.unwrap_or(interval).checked_sub(passed)?;
                Some((0, reset))
            }
            Said::Nothing => None,
        }
    }
}

/// What keeps a rule, in a document in mode `all`, from leasing permits: a setting, as a document calls it. Permits are of strict
/// windows, are spent at once, and have one limit for all keys.
pub(super) fn not_leased(rule: &FlowRule, all: Mode) -> Option<&'static str> {
    let by = rule.keyed_by();
    let is = |is: bool, what| is.then_some(what);
    let has = |has: &dyn Fn(&KeyedBy) -> bool, what| is(by.is_some_and(has), what);
    match rule.control_behavior() {
        ControlBehavior::Reject => {}
        ControlBehavior::Throttle => return Some("`throttle`"),
        ControlBehavior::WarmUp => return Some("`warmUp`"),
        ControlBehavior::WarmUpThrottle => return Some("`warmUpThrottle`"),
    }
    is(rule.grade() == Grade::Concurrency, "a limit on concurrency")
        .or(is(rule.is_compat(), "`compat`"))
        .or(is(
            rule.grade().counting() != Counting::Strict,
            "a `window` that is not `strict`",
        ))
        .or(is(*rule.strategy() != Strategy::Direct, "a `strategy`"))
        .or(is(
            *rule.limit_app() == LimitApp::Other,
            "the `limitApp` `other`",
        ))
        .or(is(
            rule.cost().is_some(),
            "a `cost` that is known only at the end",
        ))
        .or(has(&|by| by.burst() > 0, "bursts"))
        .or(has(&|by| !by.items().is_empty(), "counts of single keys"))
        .or(has(
            &|by| by.count_from().is_some(),
            "a `count` that requests bring along",
        ))
        .or(has(
            &|by| by.enforced_share().get() < 1.0,
            "`enforcePercent`",
        ))
        .or(is(
            rule.mode() == Mode::Shadow || all == Mode::Shadow,
            "shadow mode",
        ))
}
