//! For how long a keyed rule that is full refuses, whatever else comes.

use super::check::{KeyCaller, KeyCheck};
use super::controller::{KeyedController, count};
use crate::rule::{ControlBehavior, Grade};
use crate::time::Timestamp;
use std::rc::{Rc, Weak};
use std::time::Duration;

impl KeyCheck {
    /// Whether it refuses every request that is over a limit of its keys, and records nothing of it but that.
    pub(crate) fn only_refuses(&self) -> bool {
        self.enforces_all() && !self.is_defaulted.get()
    }

    /// For how long from `now` on it refuses each request with these keys, whatever else comes; `None` where they have room, and
    /// where what fills it may end at any moment.
    pub(crate) fn is_full_for(&self, caller: &KeyCaller<'_>, now: Timestamp) -> Option<Duration> {
        let is_window = matches!(self.rule.grade(), Grade::Qps { .. })
            && self.rule.control_behavior() == ControlBehavior::Reject;
        if !is_window || self.geometry.compat || self.rule.cost().is_some() {
            return None;
        }
        let mut longest = None;
        let fits = self.for_each_key(caller, &mut |opened, key, count| {
            if self.cost(caller, count) != 1 {
                return;
            }
            let status = opened.states().status(key, &self.terms(count), now);
            let own = match (status.remaining, count.whole()) {
                (_, 0) => Some(Duration::MAX),
                (0, _) => Some(status.reset).filter(|reset| !reset.is_zero()),
                _ => None,
            };
            longest = longest.max(own);
        });
        if fits { longest } else { Some(Duration::MAX) }
    }

    /// The states in which its decisions are counted.
    pub(crate) fn counted(&self) -> Option<Weak<KeyedController>> {
        Some(Rc::downgrade(&self.opened.get()?.state))
    }
}

impl KeyedController {
    /// Records that a rule was the first to refuse.
    pub(crate) fn block(&self) {
        count(&self.blocked);
    }
}
