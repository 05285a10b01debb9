//! What the breakers of an engine do, for JavaScript.

use crate::texts::Texts;
use leapgate::backend::{BreakerKey, BreakerStorage, CallCounts, LocalBreaker, Phase, State};
use leapgate::rule::RuleId;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// The changes of state that JavaScript has not read yet. It reads them after each call that may make some.
#[derive(Default)]
pub(crate) struct Changes {
    are_kept: Cell<bool>,
    all: RefCell<Vec<Change>>,
}

struct Change {
    resource: Rc<str>,
    rule: RuleId,
    from: &'static str,
    to: &'static str,
}

pub(crate) fn name_of(phase: Phase) -> &'static str {
    match phase {
        Phase::Closed => "closed",
        Phase::Open { .. } => "open",
        Phase::HalfOpen { .. } => "halfOpen",
    }
}

impl Changes {
    /// Writes them out, and forgets them. Further ones are kept if `are_kept`.
    pub(crate) fn take(&self, are_kept: bool, texts: &mut Texts) {
        self.are_kept.set(are_kept);
        for change in self.all.take() {
            texts.add(&change.resource);
            texts.add(change.rule.as_str());
            texts.add(change.from);
            texts.add(change.to);
        }
    }

    /// A change that is undone before it was read has not happened: another rule has refused the probe.
    fn note(&self, change: Change) {
        let mut all = self.all.borrow_mut();
        let undone = all.iter().position(|earlier| {
            (earlier.from, earlier.to) == (change.to, change.from)
                && earlier.rule == change.rule
                && earlier.resource == change.resource
        });
        match undone {
            Some(at) => drop(all.remove(at)),
            None => all.push(change),
        }
    }
}

/// The state and counts of a breaker, which tells of its changes.
pub(crate) struct ToldBreaker {
    local: LocalBreaker,
    resource: Rc<str>,
    rule: RuleId,
    changes: Rc<Changes>,
}

impl ToldBreaker {
    pub(crate) fn new(key: &BreakerKey, changes: Rc<Changes>) -> ToldBreaker {
        ToldBreaker {
            local: LocalBreaker::default(),
            resource: Rc::clone(&key.resource),
            rule: key.rule.clone(),
            changes,
        }
    }

    /// The resource that it guards, and its rule.
    pub(crate) fn place(&self) -> (&str, &str) {
        (&self.resource, self.rule.as_str())
    }
}

impl BreakerStorage for ToldBreaker {
    fn load(&self) -> State {
        self.local.load()
    }

    fn replace(&self, current: State, next: State) -> bool {
        let (from, to) = (name_of(current.phase()), name_of(next.phase()));
        if self.changes.are_kept.get() && from != to {
            self.changes.note(Change {
                resource: Rc::clone(&self.resource),
                rule: self.rule.clone(),
                from,
                to,
            });
        }
        self.local.replace(current, next)
    }

    fn counts(&self) -> CallCounts {
        self.local.counts()
    }

    fn add(&self, bad: bool) -> CallCounts {
        self.local.add(bad)
    }
}
