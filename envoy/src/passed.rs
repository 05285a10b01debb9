//! What an admitted request keeps until it ends.

use crate::asking::Place;
use crate::backend::EnvoyBackend;
use crate::caller::Caller;
use crate::cost::Readings;
use crate::host::Host;
use crate::inbound::Call;
use crate::keys::{Few, WrongTypes};
use crate::outcome::Answer;
use crate::vm::Vm;
use crate::waiting::Slot;
use leapgate::{Entry, Resource};
use std::rc::Rc;

/// An admitted request, until it ends.
pub struct Passed<H: Host> {
    pub(crate) resource: Rc<Resource<EnvoyBackend<H>>>,
    /// Dropping it releases calls in flight.
    pub(crate) entry: Option<Entry<EnvoyBackend<H>>>,
    /// Boxed: most requests have none.
    pub(crate) tracked: Option<Box<Tracked<H>>>,
}

/// The state of a request that only some configurations need.
pub(crate) struct Tracked<H: Host> {
    /// The values of its key; empty unless its response gets headers about its limits.
    pub(crate) keys: Few<Option<Vec<u8>>>,
    /// The default unless its response gets those headers.
    pub(crate) caller: Caller,
    pub(crate) answer: Answer,
    pub(crate) readings: Readings,
    /// Set if there are system rules. Dropping it releases what the request holds.
    pub(crate) call: Option<Call<H>>,
    /// What it waits for, if it does.
    pub(crate) pause: Option<Pause<H>>,
    pub(crate) host: H,
}

/// What a paused request waits for.
pub(crate) enum Pause<H: Host> {
    /// Its turn: its slot in the queue.
    Turn(Slot<H>),
    /// The store: it has not been decided on yet.
    Store(Place<Passed<H>>),
}

impl<H: Host> Passed<H> {
    /// Whether the request is paused until its turn, or until the store has answered.
    #[inline]
    pub fn is_held(&self) -> bool {
        self.tracked
            .as_ref()
            .is_some_and(|tracked| tracked.pause.is_some())
    }

    /// Takes over what has been decided while the request waited for the store.
    #[inline]
    pub fn take_over(&mut self) {
        if let Some(tracked) = &self.tracked
            && let Some(Pause::Store(place)) = &tracked.pause
            && let Some(decided) = place.decided()
        {
            *self = decided;
        }
    }

    /// The tracked state of a request whose end is counted, by a breaker or by its response time.
    #[inline(always)]
    pub(crate) fn tracked_to_its_end(&self) -> Option<&Tracked<H>> {
        let tracked = self.tracked.as_deref()?;
        let is_timed = tracked.call.as_ref().is_some_and(Call::is_timed);
        (is_timed || self.resource.has_breakers()).then_some(tracked)
    }

    /// What has been read of a request that holds an estimate of its cost, and its entry.
    #[inline]
    pub(crate) fn held(&self) -> Option<(&Readings, &Entry<EnvoyBackend<H>>)> {
        let readings = &self.tracked.as_deref()?.readings;
        let entry = self.entry.as_ref().filter(|entry| entry.holds())?;
        Some((readings, entry))
    }

    /// Tells the rules that hold an estimate what the request has cost, and reads their counts. Returns whether there are any.
    pub(crate) fn settle(&mut self, vm: &Vm<H>, wrong: &WrongTypes) -> bool {
        let (Some(entry), Some(tracked)) = (&mut self.entry, &self.tracked) else {
            return false;
        };
        let holds = entry.holds();
        if holds {
            tracked.readings.settle(vm, wrong, entry);
            entry.observe();
        }
        holds
    }

    /// Cancels the request if it still waits, and returns whether it did. One that has waited for the store in vain has not passed.
    #[inline]
    pub(crate) fn give_up(&mut self) -> bool {
        self.is_held() && self.leave()
    }

    #[cold]
    #[inline(never)]
    fn leave(&mut self) -> bool {
        let Some(tracked) = &mut self.tracked else {
            return false;
        };
        let waits = match tracked.pause.take() {
            None => false,
            Some(Pause::Turn(slot)) => slot.leave(),
            Some(Pause::Store(place)) => {
                place.leave();
                true
            }
        };
        if waits && let (Some(entry), Some(now)) = (self.entry.take(), tracked.host.now()) {
            entry.cancel(now);
        }
        waits
    }
}

impl<H: Host> Drop for Passed<H> {
    #[inline]
    fn drop(&mut self) {
        self.give_up();
    }
}
