//! Decisions on windows alone, for the limiter: no turns, no calls in flight, no labels of hot keys.

use super::answers::KeyStatus;
use super::key::{Key, KeyHandle};
use super::table::Table;
use super::window::{BucketPos, StateMut};
use super::windows::KeyedWindows;
use crate::rule::Count;
use crate::time::Timestamp;

impl Table {
    /// The same for a key that shares, and how much then counts for it.
    #[cold]
    #[inline(never)]
    fn count_shared(
        &mut self,
        key: Key,
        limit: Count,
        cost: u64,
        charges: bool,
        now: Timestamp,
    ) -> (bool, Option<(StateMut<'_>, BucketPos)>) {
        let to = self.bucket(now);
        let used = self.shared(key, to).map_or(0, |(held, _)| *held.used);
        let fits = used.saturating_add(cost) <= limit.whole();
        if fits && charges {
            self.sketch().charge(key, cost);
        }
        (fits, self.shared(key, to))
    }
}

impl KeyedWindows {
    /// Whether `cost` more fits into `limit` in the window of `key`, and the window's status afterwards. Charges the cost if it
    /// fits and the request `charges`: else it opens no window.
    #[inline]
    pub(crate) fn count(
        &self,
        key: Key,
        limit: Count,
        cost: u64,
        charges: bool,
        now: Timestamp,
    ) -> (bool, KeyStatus) {
        let table = &mut *self.table.borrow_mut();
        let now_in = table.bucket(now);
        let place = match table.find(key) {
            Some(slot) => KeyHandle::own(key, slot),
            None if charges => table.open(key, now),
            None => KeyHandle::shared(key),
        };
        let (fits, held) = if place.is_shared {
            table.count_shared(key, limit, cost, charges, now)
        } else {
            let mut held = table.at(place);
            let fits = held.as_mut().is_some_and(|held| {
                held.advance(now, now_in);
                let fits = held.fits(limit, cost, now, now_in);
                if fits && charges {
                    *held.used += cost;
                    held.admit(cost, now_in);
                }
                fits
            });
            (fits, held.map(|held| (held, now_in)))
        };
        let status = held.and_then(|(mut held, to)| held.status(limit, now, to));
        let unused = KeyStatus {
            remaining: limit.whole(),
            ..KeyStatus::default()
        };
        (fits, status.unwrap_or(unused))
    }
}
