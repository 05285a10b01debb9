//! What a request that passed keeps until it has ended.

use crate::counts::RuleCounts;
use crate::host::Host;
use crate::inbound::Call;
use crate::outcome::Answer;
use crate::waiting::Place;
use leapgate::{Entry, Resource};
use std::rc::Rc;

/// What a request has been let in for, until it has ended.
pub struct Passed<H: Host> {
    pub(crate) resource: Rc<Resource<RuleCounts<H>>>,
    /// Dropped with this: then calls in flight are given back.
    pub(crate) entry: Option<Entry<RuleCounts<H>>>,
    /// What only some rules have requests keep, so that it costs others nothing.
    pub(crate) rest: Option<Box<Rest<H>>>,
}

/// What there is besides where more matters than the resource.
pub(crate) struct Rest<H: Host> {
    /// Where its response is to be told of them.
    pub(crate) keys: Vec<Option<Vec<u8>>>,
    pub(crate) answer: Answer,
    /// Where there are system rules: given back when it is dropped.
    pub(crate) call: Option<Call<H>>,
    /// Where it was told to wait.
    pub(crate) place: Option<Place<H>>,
    pub(crate) host: H,
}

impl<H: Host> Passed<H> {
    /// Whether the request is to be paused: it is resumed when it has waited.
    pub fn is_held(&self) -> bool {
        self.rest.as_ref().is_some_and(|rest| rest.place.is_some())
    }

    /// Where it matters how it ends, what is known of that.
    #[inline(always)]
    pub(crate) fn watched(&self) -> Option<&Rest<H>> {
        let rest = self.rest.as_deref()?;
        let is_timed = rest.call.as_ref().is_some_and(Call::is_timed);
        (is_timed || self.resource.has_breakers()).then_some(rest)
    }

    /// Gives back what it was to be released with, if it still waits. Whether it does.
    #[inline(never)]
    pub(crate) fn give_up(&mut self) -> bool {
        let Some(rest) = &mut self.rest else {
            return false;
        };
        let waits = rest.place.take().is_some_and(|place| place.leave());
        if waits && let (Some(entry), Some(now)) = (self.entry.take(), rest.host.now()) {
            entry.cancel(now);
        }
        waits
    }
}

impl<H: Host> Drop for Passed<H> {
    #[inline]
    fn drop(&mut self) {
        if self.rest.is_some() {
            self.give_up();
        }
    }
}
