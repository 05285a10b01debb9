//! The keyed rules of one resource, which decide together.

use super::check::{KeyCaller, KeyCheck, Opened};
use super::controller::count;
use super::holds::{EntryExtras, HeldKey, Hold, Holds};
use crate::inline_vec::InlineVec;
use crate::rule::{Count, FlowRule, LimitApp, RuleId};
use crate::state::keyed::{Key, KeyHandle, KeyStatus, KeyVerdict, Reserved};
use crate::time::Timestamp;
use std::time::Duration;

/// The keyed rules of one resource, in order.
#[derive(Default)]
pub(crate) struct Keys(pub(crate) Box<[KeyCheck]>);

impl Keys {
    /// Whether there are none.
    #[inline]
    pub(crate) fn are_none(&self) -> bool {
        self.0.is_empty()
    }

    /// The origins that the rules name.
    pub(crate) fn names(&self, origin: &str) -> bool {
        self.0.iter().any(|check| match check.rule.limit_app() {
            LimitApp::Origin(name) => **name == *origin,
            LimitApp::Default => origin == "default",
            LimitApp::Other => origin == "other",
        })
    }

    /// Resolves the keys of a request, and reserves what they need if they can all pass at once. Nothing is reserved where a
    /// rule would not have it so.
    pub(crate) fn reserve_at_once(
        &self,
        holds: &mut Holds,
        caller: &KeyCaller<'_>,
        now: Timestamp,
    ) -> bool {
        // A rule that looks at the states of another rule has to look before they are charged.
        let mut could = self.0.iter().all(|check| check.beside.is_none());
        for (i, check) in self.0.iter().enumerate() {
            if !check.applies_to(caller) {
                continue;
            }
            check.is_defaulted.set(false);
            let fits = check.each_key(caller, |opened, key, count| {
                if holds.has(i, key) {
                    return;
                }
                let cost = check.cost(caller, count);
                let (mut handle, mut reserved) = (KeyHandle::of(key), None);
                if could {
                    let (states, terms) = (opened.states(), check.terms(count));
                    reserved = states.reserve(&mut handle, &terms, cost, now);
                    // In shadow mode the request waits, perhaps: that is found out where all rules are asked.
                    could = reserved.is_some_and(|reserved| reserved.wait == 0);
                }
                holds.holds.push(Hold {
                    check: i,
                    handle,
                    count,
                    wait: 0,
                    reserved,
                });
            });
            if check.is_defaulted.get()
                && let Some(opened) = check.opened.get()
            {
                count(&opened.state.defaulted);
            }
            if !fits {
                holds.too_many |= 1 << i;
                could = false;
            }
        }
        if !could {
            self.release(holds, caller, now);
        }
        could
    }

    /// What the rules say to the keys that were resolved. Takes nothing.
    pub(crate) fn ask(&self, holds: &mut Holds, caller: &KeyCaller<'_>, now: Timestamp) {
        let (mut wait, mut retry_after) = (0, Some(Duration::ZERO));
        let (mut refusing, mut shadow_refusing) = (0, 0);
        let mut refuse = |i: usize, enforced: bool, own: Option<Duration>| {
            if enforced {
                refusing |= 1 << i;
                retry_after = retry_after.zip(own).map(|(longest, own)| longest.max(own));
            } else {
                shadow_refusing |= 1 << i;
            }
        };
        for hold in holds.holds.iter_mut() {
            let Some((check, opened)) = self.opened(hold.check) else {
                continue;
            };
            let (states, terms) = (check.states(opened), check.terms(hold.count));
            hold.wait = 0;
            let enforced = check.enforces(hold.handle.key());
            let cost = check.cost(caller, hold.count);
            match states.ask(&mut hold.handle, &terms, cost, now) {
                KeyVerdict::Pass => {}
                KeyVerdict::Wait(own) => hold.wait = own,
                KeyVerdict::Block { retry_after } => refuse(hold.check, enforced, retry_after),
            }
            if enforced {
                wait = wait.max(hold.wait);
            }
        }
        let mut too_many = holds.too_many;
        while too_many != 0 {
            let i = too_many.trailing_zeros() as usize;
            too_many &= too_many - 1;
            let enforced = self.0.get(i).is_some_and(|check| check.enforced);
            refuse(i, enforced, None);
        }
        (holds.wait, holds.retry_after) = (wait, retry_after);
        (holds.refusing, holds.shadow_refusing) = (refusing, shadow_refusing);
    }

    /// Reserves for a request that waits for `wait` nanoseconds what its keys need. Where another worker was faster, nothing,
    /// and the rule that lacks it refuses.
    pub(crate) fn reserve(
        &self,
        holds: &mut Holds,
        wait: u64,
        caller: &KeyCaller<'_>,
        now: Timestamp,
    ) -> bool {
        let (mut refusing, mut shadow_refusing) = (0, holds.shadow_refusing);
        for hold in holds.holds.iter_mut() {
            let Some((check, opened)) = self.opened(hold.check) else {
                continue;
            };
            let enforced = check.enforces(hold.handle.key());
            if !enforced && shadow_refusing >> hold.check & 1 == 1 {
                continue;
            }
            if check.beside.is_some() {
                continue; // the other rule does
            }
            let (states, terms) = (check.states(opened), check.terms(hold.count));
            // A turn is taken for when the request is released.
            let longest = wait.max(hold.wait);
            let cost = check.cost(caller, hold.count);
            hold.reserved = match longest {
                0 => states.reserve(&mut hold.handle, &terms, cost, now),
                wait => states.reserve_later(&mut hold.handle, &terms, cost, wait, now),
            };
            let reserved = |reserved: Reserved| reserved.wait <= longest;
            if hold.reserved.is_some_and(reserved) {
                continue;
            }
            if let Some(reserved) = hold.reserved.take() {
                states.release(reserved, cost, now); // a turn later than the request can wait
            }
            if enforced {
                refusing |= 1 << hold.check;
                break;
            }
            shadow_refusing |= 1 << hold.check;
        }
        holds.shadow_refusing = shadow_refusing;
        if refusing != 0 {
            self.release(holds, caller, now);
            holds.refusing = refusing;
        }
        refusing == 0
    }

    /// Gives back what was reserved, because another rule refused.
    pub(crate) fn release(&self, holds: &mut Holds, caller: &KeyCaller<'_>, now: Timestamp) {
        for hold in holds.holds.iter_mut() {
            if let Some(reserved) = hold.reserved.take()
                && let Some((check, opened)) = self.opened(hold.check)
            {
                let states = opened.states();
                states.release(reserved, check.cost(caller, hold.count), now);
            }
        }
    }

    /// Admits what was reserved. Adds the keys that look at how the call ends to the `rest` that does.
    pub(crate) fn admit(
        &self,
        holds: &Holds,
        mut rest: Option<Box<EntryExtras>>,
        wait: u64,
        caller: &KeyCaller<'_>,
    ) -> Option<Box<EntryExtras>> {
        let mut passed = 0_u64;
        for hold in holds.holds.iter() {
            let Some((check, opened)) = self.opened(hold.check) else {
                continue;
            };
            let looks_on = check.beside.is_some() && holds.shadow_refusing >> hold.check & 1 == 0;
            if hold.reserved.is_none() && !looks_on {
                continue;
            }
            if passed >> hold.check & 1 == 0 {
                count(&opened.state.passed);
                if hold.wait > 0 {
                    count(&opened.state.waited);
                }
            }
            passed |= 1 << hold.check;
            let Some(reserved) = hold.reserved else {
                continue;
            };
            let cost = check.cost(caller, hold.count);
            let in_flight = opened.states().admit(reserved, cost);
            if in_flight || check.geometry.is_paced && wait.max(hold.wait) > 0 {
                rest.get_or_insert_default().keys.push(HeldKey {
                    check: hold.check,
                    reserved,
                    cost,
                    in_flight,
                });
            }
        }
        if holds.shadow_refusing != 0 {
            self.shadow_block(holds);
        }
        rest
    }

    /// Records which rules in shadow mode would have refused.
    pub(crate) fn shadow_block(&self, holds: &Holds) {
        for (i, check) in self.0.iter().enumerate() {
            if holds.shadow_refusing >> i & 1 == 1
                && let Some(opened) = check.opened.get()
            {
                count(&opened.state.shadow_blocked);
            }
        }
    }

    /// Ends a call: its keys have one less in flight.
    pub(crate) fn leave(&self, rest: &EntryExtras) {
        for held in rest.keys.iter().filter(|held| held.in_flight) {
            if let Some((_, opened)) = self.opened(held.check) {
                opened.states().leave(held.reserved);
            }
        }
    }

    /// Gives up a call which was to be released at `release`. Its turn is given back if it is known to be still to
    /// come.
    pub(crate) fn give_up(&self, rest: &EntryExtras, release: Timestamp, now: Option<Timestamp>) {
        self.leave(rest);
        let Some(now) = now.filter(|now| *now < release) else {
            return;
        };
        for held in rest.keys.iter().filter(|held| !held.in_flight) {
            if let Some((_, opened)) = self.opened(held.check) {
                opened.states().release(held.reserved, held.cost, now);
            }
        }
    }

    /// Gives back what windows were charged at `charged` for the keys of a request.
    pub(crate) fn refund(&self, caller: &KeyCaller<'_>, charged: Timestamp, now: Timestamp) {
        let checks = self.0.iter().filter(|check| check.enforced);
        for check in checks.filter(|check| check.applies_to(caller)) {
            let mut known: InlineVec<Key, 4> = InlineVec::default();
            check.for_each_key(caller, &mut |opened, key, count| {
                if !check.enforces(key) || known.iter().any(|known| *known == key) {
                    return;
                }
                known.push(key);
                let states = opened.states();
                states.refund(key, check.cost(caller, count), charged, now);
            });
        }
    }

    /// How the rule, the `index`th, stands for a request: the rule, its id and the count and status of a key; of several keys,
    /// the one of which least is left. `None` if it is not for the request.
    pub(crate) fn status(
        &self,
        index: usize,
        caller: &KeyCaller<'_>,
        now: Timestamp,
    ) -> Option<(&FlowRule, &RuleId, Count, KeyStatus)> {
        let check = self.0.get(index).filter(|check| check.applies_to(caller))?;
        let mut least: Option<(Count, KeyStatus)> = None;
        check.for_each_key(caller, &mut |opened, key, count| {
            let own = opened.states().status(key, &check.terms(count), now);
            if least.is_none_or(|(_, least)| own.remaining < least.remaining) {
                least = Some((count, own));
            }
        });
        let unused = |count: Count| KeyStatus {
            remaining: count.whole(),
            reset: Duration::ZERO,
        };
        let (count, status) = if check.is_open() {
            least?
        } else {
            let count = check.count_of(caller);
            (count, unused(count))
        };
        Some((&check.rule, &check.id, count, status))
    }

    fn opened(&self, index: usize) -> Option<(&KeyCheck, &Opened)> {
        let check = self.0.get(index)?;
        Some((check, check.opened.get()?))
    }
}
