//! A request for a resource, decided by all its rules together, and the call that it becomes.

use super::resource::{FlowRequest, FlowResource, OfResource};
use super::state::{InForce, State};
use crate::engine::keyed::{count_keys, values_of};
use crate::rule::MAX_KEYS_OF_REQUEST;
use crate::state::counter::LocalCounter;
use crate::state::flow::Controller;
use crate::state::keyed::{KeyHandle, KeyVerdict, KeyedStates, KeyedWindows, Reserved};
use crate::state::terms::Ask;
use crate::time::Timestamp;
use std::rc::Rc;
use std::time::Duration;

/// What a request asks of a rule, for one of its keys if the rule has one.
struct Asked {
    /// Which rule of the resource it is.
    index: usize,
    cost: u64,
    /// `None` if the rule has none.
    key: Option<KeyHandle>,
    /// What it has reserved for its key.
    reserved: Option<Reserved>,
    /// Whether the rule counts calls in flight.
    is_in_flight: bool,
}

/// Why a request is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowRefusal {
    /// The first rule that refuses: which of the resource.
    pub index: usize,
    /// How long until the same request would be let in, as in [`Blocked::retry_after`](crate::Blocked::retry_after).
    pub retry_after: Option<Duration>,
}

impl FlowRefusal {
    /// Another rule, or another key of the same, refuses for so long.
    fn add(refusal: &mut Option<FlowRefusal>, index: usize, own: Option<Duration>) {
        let known = refusal.unwrap_or(FlowRefusal {
            index,
            retry_after: own,
        });
        let both = known.retry_after.zip(own);
        *refusal = Some(FlowRefusal {
            index: known.index.min(index),
            retry_after: both.map(|(longest, own)| longest.max(own)),
        });
    }
}

/// A call in flight, to be ended once: by [`FlowCall::exit`], [`FlowCall::give_up`] or [`FlowCall::refund`].
#[must_use]
pub struct FlowCall {
    resource: Rc<FlowResource>,
    asked: Vec<Asked>,
    started: Timestamp,
    /// When its wait is over.
    release: Timestamp,
}

impl InForce {
    /// Calls `each` with the keys of a request under the rule. `false` if there are too many of them.
    pub(super) fn each_key(
        &self,
        windows: &KeyedWindows,
        of: &[usize],
        request: &FlowRequest<'_>,
        mut each: impl FnMut(KeyHandle),
    ) -> bool {
        windows.count_as(self.terms.counting);
        let keys = count_keys(of, request.keys);
        if keys > MAX_KEYS_OF_REQUEST {
            return false;
        }
        for number in 0..keys {
            let raw = values_of(of, request.keys, number);
            each(KeyHandle::of(windows.key(raw.into_iter().take(of.len()))));
        }
        true
    }

    /// What the rule says to a request. Takes nothing.
    fn ask(&self, asked: &mut Asked, impatient: bool, now: Timestamp) -> KeyVerdict {
        match (&self.state, &mut asked.key) {
            (State::One(state), _) => {
                state.advance(now);
                if state.has_room(&self.terms, asked.cost, now) {
                    return KeyVerdict::Pass;
                }
                state.note_held_back(now);
                match state.wait(&self.terms, asked.cost, false, now) {
                    Some(own) if !(impatient && own > 0) => KeyVerdict::Wait(own),
                    _ => KeyVerdict::Block {
                        retry_after: self.retry_after(state, asked.cost, impatient, now),
                    },
                }
            }
            (State::Keyed(keyed), Some(key)) => match keyed.windows.get() {
                Some(windows) => windows.ask(key, &self.keyed_terms(), asked.cost, now),
                None => KeyVerdict::Pass,
            },
            (State::Keyed(_), None) => KeyVerdict::Pass,
        }
    }

    /// How long a rule without a key refuses a request.
    fn retry_after(
        &self,
        state: &Controller<LocalCounter>,
        cost: u64,
        impatient: bool,
        now: Timestamp,
    ) -> Option<Duration> {
        let turn = state.wait(&self.terms, cost, false, now);
        match turn.filter(|_| impatient) {
            Some(turn) => Some(Duration::from_nanos(turn)),
            None => state.time_to_room(&self.terms, cost, false, now),
        }
    }

    /// Reserves what a request needs that waits for `wait` nanoseconds, if it is there, else nothing.
    fn reserve(&self, asked: &mut Asked, wait: u64, now: Timestamp) -> bool {
        match (&self.state, &mut asked.key) {
            (State::One(state), _) => state.reserve(&self.terms, asked.ask(wait), now),
            (State::Keyed(keyed), Some(key)) => keyed.windows.get().is_some_and(|windows| {
                let terms = self.keyed_terms();
                let reserved = windows.reserve_later(key, &terms, asked.cost, wait, now);
                asked.reserved = reserved.filter(|reserved| reserved.wait <= wait);
                if let (Some(late), None) = (reserved, asked.reserved) {
                    windows.release(late, asked.cost, now); // a turn later than the request can wait
                }
                asked.reserved.is_some()
            }),
            (State::Keyed(_), None) => true,
        }
    }

    /// Gives back what was reserved.
    fn release(&self, asked: &Asked, wait: u64, now: Timestamp) {
        match &self.state {
            State::One(state) => state.release(asked.ask(wait), now),
            State::Keyed(keyed) => {
                if let (Some(windows), Some(reserved)) = (keyed.windows.get(), asked.reserved) {
                    windows.release(reserved, asked.cost, now);
                }
            }
        }
    }

    /// Charges what was reserved.
    fn admit(&self, asked: &mut Asked, wait: u64) {
        asked.is_in_flight = match &self.state {
            State::One(state) => state.admit(asked.ask(wait)),
            State::Keyed(keyed) => keyed
                .windows
                .get()
                .zip(asked.reserved)
                .is_some_and(|(windows, reserved)| windows.admit(reserved, asked.cost)),
        };
    }
}

impl Asked {
    fn ask(&self, wait: u64) -> Ask {
        Ask {
            wait,
            ..Ask::at_once(self.cost)
        }
    }
}

impl FlowResource {
    /// Decides about a request: all rules are charged, or none. The call begins at [`FlowCall::release`]. `seed` is that
    /// of the key hashes, the same in all calls.
    ///
    /// # Errors
    ///
    /// If a rule refuses.
    pub fn enter(
        self: &Rc<Self>,
        request: &FlowRequest<'_>,
        seed: [u64; 2],
        now: Timestamp,
    ) -> Result<FlowCall, FlowRefusal> {
        let (mut all, mut wait, mut refusal) = (Vec::new(), 0, None);
        for (index, of) in self.rules.iter().enumerate() {
            if !of.resolve(index, request, seed, &mut all) {
                FlowRefusal::add(&mut refusal, index, None);
            }
        }
        for asked in &mut all {
            let Some(OfResource { rule, .. }) = self.rules.get(asked.index) else {
                continue;
            };
            match rule.ask(asked, request.impatient, now) {
                KeyVerdict::Pass => {}
                KeyVerdict::Wait(own) => wait = wait.max(own),
                KeyVerdict::Block { retry_after } => {
                    FlowRefusal::add(&mut refusal, asked.index, retry_after);
                }
            }
        }
        if let Some(refusal) = refusal {
            return Err(refusal);
        }
        self.reserve(&mut all, request.impatient, wait, now)?;
        for asked in &mut all {
            if let Some(of) = self.rules.get(asked.index) {
                of.rule.admit(asked, wait);
            }
        }
        Ok(FlowCall {
            resource: Rc::clone(self),
            asked: all,
            started: now,
            release: now.plus_nanos(wait),
        })
    }

    /// Reserves what each rule needs; where one cannot, nothing.
    fn reserve(
        &self,
        all: &mut [Asked],
        impatient: bool,
        wait: u64,
        now: Timestamp,
    ) -> Result<(), FlowRefusal> {
        // Keys come last.
        let mut fails = |is_keyed: bool| {
            let mut chosen = all.iter_mut().enumerate();
            chosen.find_map(|(at, asked)| {
                let of = self.rules.get(asked.index)?;
                let takes = asked.key.is_some() != is_keyed || of.rule.reserve(asked, wait, now);
                (!takes).then_some((at, asked.index, asked.cost))
            })
        };
        let (failed, many) = match fails(false) {
            None => (fails(true), usize::MAX),
            failed => (failed, failed.map_or(0, |(at, ..)| at)),
        };
        let Some((_, index, cost)) = failed else {
            return Ok(());
        };
        for (at, asked) in all.iter().enumerate() {
            if let Some(of) = self.rules.get(asked.index)
                && (asked.key.is_some() || at < many)
            {
                of.rule.release(asked, wait, now);
            }
        }
        let rule = self.rules.get(index).map(|of| &of.rule);
        let retry_after = rule.map_or(Some(Duration::ZERO), |rule| match &rule.state {
            State::One(state) => rule.retry_after(state, cost, impatient, now),
            State::Keyed(_) => Some(Duration::ZERO),
        });
        Err(FlowRefusal { index, retry_after })
    }
}

impl OfResource {
    /// Adds what a request asks of the rule, the `index`th, to `all`. `false` if it has too many keys.
    fn resolve(
        &self,
        index: usize,
        request: &FlowRequest<'_>,
        seed: [u64; 2],
        all: &mut Vec<Asked>,
    ) -> bool {
        let (rule, first) = (&self.rule, all.len());
        let new = |key| Asked {
            index,
            cost: rule.cost(request.costs),
            key,
            reserved: None,
            is_in_flight: false,
        };
        let State::Keyed(keyed) = &rule.state else {
            all.push(new(None));
            return true;
        };
        rule.each_key(keyed.windows(seed), &self.of, request, |key| {
            let key = Some(key);
            if !all.iter().skip(first).any(|known| known.key == key) {
                all.push(new(key));
            }
        })
    }
}

impl FlowCall {
    /// When it may begin: when it was let in, or when its wait is over.
    pub fn release(&self) -> Timestamp {
        self.release
    }

    /// Ends the call.
    pub fn exit(self, now: Timestamp) {
        self.for_each(|rule, asked| match &rule.state {
            _ if !asked.is_in_flight => {}
            State::One(state) => state.leave(asked.cost, now),
            State::Keyed(keyed) => {
                if let (Some(windows), Some(reserved)) = (keyed.windows.get(), asked.reserved) {
                    windows.leave(reserved, asked.cost);
                }
            }
        });
    }

    /// Gives the call up, as [`Entry::cancel`](crate::Entry::cancel); without a `now`, at an unknown time, as dropping an entry.
    pub fn give_up(self, now: Option<Timestamp>) {
        let release = (self.release > self.started).then_some(self.release);
        let is_waiting = now.is_some_and(|now| now < self.release);
        self.for_each(|rule, asked| match &rule.state {
            State::One(state) => {
                if asked.is_in_flight || release.is_some() {
                    state.give_up(asked.cost, release, now);
                }
            }
            State::Keyed(keyed) => {
                if let (Some(windows), Some(reserved)) = (keyed.windows.get(), asked.reserved) {
                    if asked.is_in_flight {
                        windows.leave(reserved, asked.cost);
                    } else if let Some(now) = now.filter(|_| is_waiting && keyed.geometry.is_paced)
                    {
                        windows.release(reserved, asked.cost, now);
                    }
                }
            }
        });
    }

    /// Ends a call that turns out not to count, as [`Entry::exit_uncounted`](crate::Entry::exit_uncounted).
    pub fn refund(self, now: Timestamp) {
        if now < self.release {
            return self.give_up(Some(now));
        }
        let waited = self.release > self.started;
        self.for_each(|rule, asked| match (&rule.state, asked.key) {
            (State::One(state), _) => state.refund(asked.cost, self.release, waited, now),
            (State::Keyed(keyed), Some(key)) => {
                if let Some(windows) = keyed.windows.get() {
                    windows.refund(key.key(), asked.cost, self.started, now);
                }
            }
            (State::Keyed(_), None) => {}
        });
        self.exit(now);
    }

    fn for_each(&self, mut each: impl FnMut(&InForce, &Asked)) {
        for asked in &self.asked {
            if let Some(of) = self.resource.rules.get(asked.index) {
                each(&of.rule, asked);
            }
        }
    }
}
