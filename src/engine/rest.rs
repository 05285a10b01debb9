//! What only some calls in flight have.

use crate::engine::breakers::Admissions;
use crate::engine::origin::Origin;
use crate::engine::scope::Scope;
use crate::state::backend::Backend;
use crate::time::Timestamp;
use std::cell::RefCell;
use std::rc::Rc;

/// How many are kept for calls to come.
const MAX_KEPT: usize = 1024;

/// What only some calls have.
pub(super) struct Rest<S: Backend> {
    pub(super) origin: Option<Rc<Origin<S>>>,
    /// When its wait is over.
    pub(super) release: Timestamp,
    pub(super) scope: Scope,
    /// How keys let it in, and breakers by a probe.
    pub(super) admissions: Admissions,
}

/// Those that calls have given back, to be used again: a known path allocates nothing.
pub(super) struct Rests<S: Backend>(RefCell<Kept<S>>);

/// The boxes are what is used again: an entry has one of them.
type Kept<S> = Vec<Box<Rest<S>>>;

impl<S: Backend> Default for Rests<S> {
    fn default() -> Rests<S> {
        Rests(RefCell::default())
    }
}

impl<S: Backend> Rests<S> {
    /// Keeps what a call has.
    pub(super) fn keep(&self, rest: Rest<S>) -> Box<Rest<S>> {
        let used = self.0.borrow_mut().pop();
        match used {
            Some(mut used) => {
                *used = rest;
                used
            }
            None => Box::new(rest),
        }
    }

    /// Takes it back, when the call has ended.
    pub(super) fn give_back(&self, mut used: Box<Rest<S>>) {
        used.origin = None;
        used.scope = Scope::default();
        used.admissions = Admissions::default();
        let mut kept = self.0.borrow_mut();
        if kept.len() < MAX_KEPT {
            kept.push(used);
        }
    }
}
