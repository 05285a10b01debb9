//! Decisions of who has windows and nothing else: no turns, no calls in flight, no labels of hot keys.

use super::table::Table;
use super::{Key, KeyedWindows, Place, Standing};
use crate::rule::Count;
use crate::time::Timestamp;

impl Table {
    /// The same of a key that has no window of its own.
    #[cold]
    #[inline(never)]
    fn count_shared(
        &mut self,
        key: Key,
        limit: Count,
        cost: u64,
        charges: bool,
        now: Timestamp,
    ) -> (bool, Standing) {
        let to = self.bucket(now);
        let fits = self.shared_fits(key, limit, cost, now);
        if fits && charges {
            self.sketch().charge(key, cost);
        }
        let standing = match self.shared(key, to) {
            Some((mut held, to)) => held.standing(limit, now, to),
            None => None,
        };
        let unused = Standing {
            remaining: limit.whole(),
            ..Standing::default()
        };
        (fits, standing.unwrap_or(unused))
    }
}

impl KeyedWindows {
    /// Whether `cost` more fits into `limit` in the window of `key`, and how that stands afterwards. Takes the cost if it fits
    /// and the request `charges`: else it opens no window.
    #[inline]
    pub(crate) fn count(
        &self,
        key: Key,
        limit: Count,
        cost: u64,
        charges: bool,
        now: Timestamp,
    ) -> (bool, Standing) {
        let table = &mut *self.table.borrow_mut();
        let now_in = table.bucket(now);
        let place = match table.find(key) {
            Some(slot) => Place::own(key, slot),
            None if charges => table.open(key, now),
            None => Place::shared(key),
        };
        let Some(mut held) = table.at(place) else {
            return table.count_shared(key, limit, cost, charges, now);
        };
        held.advance(now, now_in);
        let fits = held.fits(limit, cost, now, now_in);
        if fits && charges {
            *held.used += cost;
            held.commit(cost, now_in);
        }
        let standing = held.standing(limit, now, now_in);
        (fits, standing.unwrap_or_default())
    }
}
