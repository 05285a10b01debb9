//! One origin of a resource.

use crate::engine::store::ControllerOf;
use crate::places::{NamePlace, Placed};
use crate::state::backend::Backend;
use crate::stats::node::StatisticNode;
use crate::time::Timestamp;
use std::rc::Rc;

/// One origin of a resource.
pub(super) struct Origin<S: Backend> {
    pub(super) name: Rc<str>,
    /// Where its place is in the list of the resource.
    pub(super) place: Option<NamePlace>,
    pub(super) statistics: Option<Rc<StatisticNode>>,
    /// Whether no rule of the resource names it: a bit for each of [`Origin::members`], or one.
    pub(super) is_other: u32,
    /// By check: the state of a rule that has one for each other origin, where it applies to this one.
    pub(super) states: Box<[Option<Rc<ControllerOf<S>>>]>,
    /// Where the resource stands for a route and APIs: the origin of each.
    pub(super) members: Box<[Rc<Origin<S>>]>,
}

impl<S: Backend> Placed for Origin<S> {
    fn name(&self) -> &Rc<str> {
        &self.name
    }

    fn place(&self) -> Option<NamePlace> {
        self.place
    }

    /// The clock of a request has been read: what is observed now would be filed too early.
    fn keep_up(&self, _: &dyn Fn() -> Option<Timestamp>) {}

    fn is_idle(&self, now: Timestamp) -> bool {
        self.states.iter().flatten().all(|state| state.is_idle(now))
    }

    fn can_be_left(&self, _: Timestamp) -> bool {
        self.states
            .iter()
            .flatten()
            .all(|state| state.can_be_left())
    }

    fn take_along(&self, further: &Self, now: Timestamp) -> bool {
        let pairs = self.states.iter().zip(&further.states);
        pairs
            .filter_map(|(own, further)| own.as_ref().zip(further.as_ref()))
            .all(|(own, further)| own.take_along(further, now))
    }
}
