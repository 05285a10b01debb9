//! How requests end in the pages of their keys: reservations are released, calls leave, holds are settled.

use super::answers::Reserved;
use super::key::{Key, KeyHandle};
use super::page::{Found, KEYS_PER_PAGE, KeyedPages, MOST_ENTRIES};
use super::room::{self, WORD, word};
use super::window::{SHARES, StateMut};
use crate::time::Timestamp;

impl KeyedPages {
    /// [`KeyedStates::release`](crate::backend::KeyedStates::release) in the key's page, and
    /// [`KeyedStates::leave`](crate::backend::KeyedStates::leave). Returns whether the page has changed.
    pub fn release(&self, page: &mut Vec<u8>, reserved: Reserved, cost: u64) -> bool {
        let work = &mut *self.work.borrow_mut();
        let KeyHandle { key, at, is_shared } = reserved.handle;
        let now = Timestamp::ZERO; // whatever is in the page is later
        let Some(found) = self.entry(page, key, is_shared, now) else {
            return false;
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
                *held.used = held.used.saturating_sub(cost);
            } else if behind < self.shape.buckets {
                held.take_off(self.shape.before(found.to.counter, behind), cost);
            }
        }
        self.store(work, page, &found.span);
        true
    }

    /// The own or the shared entry of `key`, if it is there.
    fn entry(&self, page: &[u8], key: Key, is_shared: bool, now: Timestamp) -> Option<Found> {
        let found = self.find(page, key, now);
        let span = match is_shared {
            true => found.shared.clone()?,
            false => found.is_own.then(|| found.span.clone())?,
        };
        Some(Found {
            from: Some(span.clone()),
            span,
            is_own: !is_shared,
            is_shared,
            ..found
        })
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

    /// Settles at its estimates what dead workers hold in the page, from `now` on; `is_dead` tells of a holder
    /// ([`KeyedPages::holder_of`]) whether it is. Returns whether the page has changed.
    pub fn settle_dead(
        &self,
        page: &mut Vec<u8>,
        is_dead: &dyn Fn(u16) -> bool,
        now: Timestamp,
    ) -> bool {
        let (mut at, mut entries) = (0, Vec::new());
        while let (Some(hash), Some(head)) = (word(page, at), word(page, at + WORD)) {
            let Some(size) = self
                .size(page, at, head)
                .filter(|_| entries.len() < MOST_ENTRIES)
            else {
                break;
            };
            let is_shared = entries.len() >= KEYS_PER_PAGE;
            // Of a shared entry, any key that uses it.
            let key = Key(if is_shared { hash << 8 } else { hash });
            let room = match self.has_room(head) {
                true => self.room(page, at, head),
                false => &[],
            };
            entries.push((key, is_shared, room::held_by_dead(room, is_dead)));
            at += size;
        }
        let mut has_changed = false;
        for (key, is_shared, dead) in &entries {
            // What is held in a shared entry counts for each key that has shared it. So does what is charged in its place.
            let of_key = |(other, is_other_shared, _): &&(Key, bool, u64)| {
                !is_shared && *is_other_shared && other.shared() == key.shared()
            };
            let mut elsewhere = entries.iter().filter(of_key).map(|of| of.2).sum();
            if *dead == 0 && elsewhere == 0 {
                continue;
            }
            let Some(found) = self.entry(page, *key, *is_shared, now) else {
                continue;
            };
            let work = &mut *self.work.borrow_mut();
            self.load(work, page, *key, now, &found);
            room::take_of_dead(&mut work.room, is_dead);
            if let Some(mut state) = StateMut::of(&mut work.words, &mut work.slab, &work.shape) {
                if !state.has(SHARES) {
                    elsewhere = 0;
                }
                state.settle(*dead, dead.saturating_add(elsewhere), found.to);
            }
            self.store(work, page, &found.span);
            has_changed = true;
        }
        has_changed
    }

    /// How the pages name the worker with this id.
    pub fn holder_of(id: u64) -> u16 {
        room::holder_of(id)
    }
}
