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
        let mut fits = cost <= limit.whole();
        let mut standing = None;
        if let Some(mut held) = table.at(place) {
            held.advance(now, now_in);
            fits = held.fits(limit, cost, now, now_in);
            if fits && charges {
                *held.used += cost;
                held.commit(cost, now_in);
            }
            standing = held.standing(limit, now, now_in);
        }
        let standing = standing.unwrap_or(Standing {
            remaining: limit.whole(),
            ..Standing::default()
        });
        (fits, standing)
    }
}
