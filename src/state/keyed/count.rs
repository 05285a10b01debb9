//! Decisions on windows alone, for the limiter: no turns, no calls in flight, no labels of hot keys.

use super::answers::KeyStatus;
use super::key::{Key, KeyHandle};
use super::table::Table;
use super::window::{BucketPos, HOLDS, StateMut};
use super::windows::KeyedWindows;
use crate::rule::{Count, Counting};
use crate::time::Timestamp;

/// What a decision does with the cost of a request that passes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Charges {
    Nothing,
    AtOnce,
    /// It is held until then.
    WhenSettled,
}

impl Table {
    /// The same for a key that shares, and how much then counts for it.
    #[cold]
    #[inline(never)]
    fn count_shared(
        &mut self,
        key: Key,
        limit: Count,
        cost: u64,
        charges: Charges,
        now: Timestamp,
    ) -> (bool, Option<(StateMut<'_>, BucketPos)>) {
        let to = self.bucket(now);
        let used = self.shared(key, to).map_or(0, |(held, _)| *held.used);
        let fits = used.saturating_add(cost) <= limit.whole();
        match charges {
            Charges::AtOnce if fits => self.sketch().charge(key, cost),
            Charges::WhenSettled if fits => self.hold_shared(key, cost),
            _ => {}
        }
        (fits, self.shared(key, to))
    }
}

impl KeyedWindows {
    /// Whether `cost` more fits into `limit` in the window of `key`, the window's status afterwards, and where it is. Charges or
    /// holds the cost if it fits, as `charges` says; if that is nothing, it opens no window.
    #[inline]
    pub(crate) fn count(
        &self,
        key: Key,
        limit: Count,
        cost: u64,
        charges: Charges,
        now: Timestamp,
    ) -> (bool, KeyStatus, KeyHandle) {
        let table = &mut *self.table.borrow_mut();
        let now_in = table.bucket(now);
        let place = match table.find(key) {
            Some(slot) => KeyHandle::own(key, slot),
            None if charges != Charges::Nothing => table.open(key, now),
            None => KeyHandle::shared(key),
        };
        let elsewhere = table.elsewhere(place);
        let (fits, held) = if place.is_shared {
            table.count_shared(key, limit, cost, charges, now)
        } else {
            let mut held = table.at(place);
            let fits = held.as_mut().is_some_and(|held| {
                held.advance(now, now_in);
                let fits = held.fits(limit, cost.saturating_add(elsewhere), now, now_in);
                if fits && charges == Charges::AtOnce {
                    *held.used += cost;
                    held.admit(cost, now_in);
                } else if fits && charges == Charges::WhenSettled {
                    *held.used += cost;
                    held.set(HOLDS);
                }
                fits
            });
            (fits, held.map(|held| (held, now_in)))
        };
        let status = held.and_then(|(mut held, to)| held.status(limit, elsewhere, now, to));
        let unused = KeyStatus {
            remaining: limit.whole(),
            ..KeyStatus::default()
        };
        (fits, status.unwrap_or(unused), place)
    }

    /// How long only calls for this key change what is left in its window, if `now` is the time of the latest call: to the end of
    /// the bucket. `None` in a weighted window, in one that keys share, and while something is held.
    #[inline]
    pub(crate) fn steady_until(&self, place: KeyHandle) -> Option<Timestamp> {
        let table = &mut *self.table.borrow_mut();
        let ends = table
            .known_start()
            .plus_nanos(self.shape.window?.0.bucket_nanos());
        let held = table.at(place)?;
        let is_steady = self.shape.window?.1 != Counting::Weighted && !held.has(HOLDS);
        is_steady.then_some(ends)
    }

    /// Charges what has passed of `key` while its window was steady ([`KeyedWindows::steady_until`]), to the newest bucket. Does
    /// nothing if the window has been reused since: all of it had left.
    pub(crate) fn catch_up(&self, key: Key, cost: u64) {
        let Some(place) = self.find(key) else {
            return;
        };
        let table = &mut *self.table.borrow_mut();
        let known = table.known();
        if let Some(mut held) = table.at(place) {
            *held.used = held.used.saturating_add(cost);
            held.admit(cost, known);
        }
    }
}
