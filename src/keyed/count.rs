//! Decisions of who has windows and nothing else: no turns, no calls in flight, no labels of hot keys.

use super::{Key, KeyedWindows, Place, Standing};
use crate::rule::Count;
use crate::time::Timestamp;

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
            let remaining = limit.whole();
            let standing = Standing {
                remaining,
                ..Standing::default()
            };
            return (cost <= remaining, standing);
        };
        held.advance(now, now_in);
        let fits = held.fits(limit, cost, now, now_in);
        if fits && charges {
            *held.used += cost;
            held.commit(cost, now_in);
        }
        match held.standing(limit, now, now_in) {
            Some(standing) => (fits, standing),
            None => (fits, self.standing_by_walk(table, place, limit, now)),
        }
    }
}
