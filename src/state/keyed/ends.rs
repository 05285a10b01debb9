//! How requests end in the pages of their keys: reservations are released, calls leave, holds are settled.

use super::answers::Reserved;
use super::key::KeyHandle;
use super::page::{Found, KeyedPages};
use super::room;
use super::window::StateMut;
use crate::time::Timestamp;

impl KeyedPages {
    /// [`KeyedStates::release`](crate::backend::KeyedStates::release) in the key's page, and
    /// [`KeyedStates::leave`](crate::backend::KeyedStates::leave), with a cost of 1. Returns whether the page has changed.
    pub fn release(&self, page: &mut Vec<u8>, reserved: Reserved, cost: u64) -> bool {
        let work = &mut *self.work.borrow_mut();
        let KeyHandle { key, at, is_shared } = reserved.handle;
        let now = Timestamp::ZERO; // whatever is in the page is later
        let found = self.find(page, key, now);
        let own = found.span.clone();
        let entry = match is_shared {
            true => found.shared.clone(),
            false => found.is_own.then_some(own),
        };
        let Some(span) = entry else { return false };
        let found = Found {
            from: Some(span.clone()),
            span: span.clone(),
            is_own: !is_shared,
            is_shared,
            ..found
        };
        self.load(work, page, key, now, &found);
        if let Some(turn) = reserved.turn {
            // Since then a pacer may have been forgotten that reached further than the keys that shared before.
            let is_kept = is_shared && self.keeps_forgotten();
            if is_kept || work.pacer() != Some(turn.to) {
                return false;
            }
            work.set_line(turn.from);
        } else if reserved.is_held {
            room::give_back(&mut work.room, at as u16, cost);
        } else if let Some(mut held) = StateMut::of(&mut work.words, &mut work.slab, &work.shape) {
            // From the bucket where it was counted: taken from a newer one, it would leave too soon.
            let behind = (found.to.number as u32).wrapping_sub(at) as usize;
            if self.shape.buckets == 0 {
                *held.used = held.used.saturating_sub(1);
            } else if behind < self.shape.buckets {
                held.take_off(self.shape.before(found.to.counter, behind), cost);
            }
        }
        self.store(work, page, &span);
        true
    }

    /// [`KeyedStates::settle`](crate::backend::KeyedStates::settle) in the key's page. Returns whether the page has changed.
    pub fn settle(
        &self,
        page: &mut Vec<u8>,
        held: Reserved,
        cost: u64,
        actual: u64,
        now: Timestamp,
    ) -> bool {
        let gives_back = self.release(page, held, cost);
        if actual == 0 {
            return gives_back;
        }
        let work = &mut *self.work.borrow_mut();
        let key = held.handle.key;
        let found = self.find(page, key, now);
        self.load(work, page, key, now, &found);
        if let Some(mut held) = StateMut::of(&mut work.words, &mut work.slab, &work.shape) {
            held.settle(0, actual, found.to);
        }
        self.store(work, page, &found.span);
        true
    }
}
