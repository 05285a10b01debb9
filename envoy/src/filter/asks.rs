//! Requests that wait for the store: when they are decided on again, and by what.

use super::{Decided, Filter};
use crate::asking::Ticket;
use crate::backend::EnvoyBackend;
use crate::host::{Answer, Host};
use crate::leases::Leases;
use crate::passed::{Passed, Pause};
use crate::waiting::resume;
use leapgate::{Resource, Timestamp};
use std::rc::Rc;

const NANOS_PER_MILLI: u64 = 1_000_000;

impl<H: Host> Filter<H> {
    pub(super) fn leases(&self) -> &Rc<Leases<H>> {
        self.engine.store().backend().leases()
    }

    /// Pauses a request that has to wait for the store. If as many wait as may, it is decided on without the store.
    #[cold]
    pub(super) fn pause(
        &self,
        context: u32,
        resource: Rc<Resource<EnvoyBackend<H>>>,
        now: Timestamp,
    ) -> Option<Passed<H>> {
        let leases = self.leases();
        let asking = self.asking.as_ref();
        let Some(asking) = asking.filter(|asking| asking.len() < self.settings.max_waiting) else {
            return match self.decide(context, true) {
                Decided::Passed(passed) => Some(passed),
                _ => None,
            };
        };
        let nanos = leases.max_wait_ms() * NANOS_PER_MILLI;
        let deadline = Timestamp::from_nanos(now.as_nanos().saturating_add(nanos));
        let place = asking.pause(context, leases.awaited(), deadline);
        self.see_to_store();
        Some(Passed {
            resource,
            entry: None,
            tracked: Some(Box::new(self.tracked(Some(Pause::Store(place))))),
        })
    }

    /// Takes the answer to a call. Returns the message to the store that it answers, for [`Filter::on_answered`] of each
    /// configuration that shares states with this one.
    pub fn on_answer(&self, call: u32, answer: Answer) -> Option<u64> {
        self.leases().answered(call, answer)
    }

    /// Decides again on the requests that have waited for the answer to this message.
    pub fn on_answered(&self, message: u64) {
        self.decide_again(&|ticket| ticket.token.get() == message, false);
        self.see_to_store();
    }

    /// Sends what is due, and decides on the requests that have waited for as long as they may.
    pub(super) fn keep_store_up(&self) {
        let Some(now) = self.host.now() else { return };
        for message in self.leases().keep_up(now) {
            self.decide_again(&|ticket| ticket.token.get() == message, false);
        }
        self.decide_again(&|ticket| ticket.deadline <= now, true);
        self.see_to_store();
    }

    /// Sets the tick that the store needs next, if that is before the one that is set.
    #[inline]
    pub(super) fn see_to_store_if_sooner(&self) {
        if self.waiting.is_before_store_due(self.leases().due()) {
            self.see_to_store();
        }
    }

    /// Sets the tick that the store needs next.
    pub(super) fn see_to_store(&self) {
        let (Some(asking), Some(now)) = (&self.asking, self.host.now()) else {
            return;
        };
        let due = self
            .leases()
            .due()
            .into_iter()
            .chain(asking.first_deadline());
        self.waiting.set_store_due(due.min(), now);
    }

    fn decide_again(&self, is_meant: &dyn Fn(&Ticket<Passed<H>>) -> bool, gives_up: bool) {
        let Some(asking) = &self.asking else { return };
        for ticket in asking.take(is_meant) {
            // A request that has ended has left.
            if !self.host.attend(ticket.context) {
                continue;
            }
            match self.decide(ticket.context, gives_up) {
                Decided::Passed(passed) => {
                    let is_held = passed.is_held();
                    ticket.decided.replace(Some(passed));
                    if !is_held {
                        resume(&self.host, ticket.context);
                    }
                }
                Decided::Refused => {}
                Decided::AwaitsStore(..) => {
                    ticket.token.set(self.leases().awaited());
                    asking.put_back(ticket);
                }
            }
        }
    }
}
