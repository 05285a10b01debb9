//! The interface of the states of keys: tables, and pages that workers share.

use super::answers::{KeyStatus, KeyVerdict, Reserved};
use super::geometry::KeyedTerms;
use super::hottest::HotKey;
use super::key::{Key, KeyHandle};
use crate::rule::Counting;
use crate::time::Timestamp;

/// The states of one rule, one per key: windows, calls in flight or turns.
///
/// Several rules decide together in three steps, like a [`crate::backend::Controller`]: [`KeyedStates::ask`] for each; if all
/// would let the request pass, [`KeyedStates::reserve`] for each; if all could, [`KeyedStates::admit`], else
/// [`KeyedStates::release`]. A single rule can skip the first step.
pub trait KeyedStates {
    /// The key of these values, in the order of the rule's parts. A missing value (`None`) is a value of its own.
    fn key(&self, parts: &mut dyn Iterator<Item = Option<&[u8]>>) -> Key;

    /// The decision about a request of that cost. Reserves nothing. Like [`KeyedStates::reserve`], it notes in `key` where it
    /// has found the state, so that the next step need not search for it.
    fn ask(&self, key: &mut KeyHandle, terms: &KeyedTerms, cost: u64, now: Timestamp)
    -> KeyVerdict;

    /// Reserves what the request needs, if it is there, else nothing.
    fn reserve(
        &self,
        key: &mut KeyHandle,
        terms: &KeyedTerms,
        cost: u64,
        now: Timestamp,
    ) -> Option<Reserved>;

    /// The same for a request that waits for `wait` nanoseconds because of another rule: its turn is then, if that is later
    /// than here. (By default the turn is the one without the other rule.)
    fn reserve_later(
        &self,
        key: &mut KeyHandle,
        terms: &KeyedTerms,
        cost: u64,
        _wait: u64,
        now: Timestamp,
    ) -> Option<Reserved> {
        self.reserve(key, terms, cost, now)
    }

    /// Releases a reservation, because another rule refused. Also releases a turn that was charged, if the request is given up
    /// before it passes: the turn is free again if no later one was taken.
    fn release(&self, reserved: Reserved, cost: u64, now: Timestamp);

    /// The request passes: charges the reservation, or holds it. Returns whether the states have to know when the request ends:
    /// because it holds ([`KeyedStates::settle`]), or because it is in flight from now on ([`KeyedStates::leave`]).
    fn admit(&self, reserved: Reserved, cost: u64) -> bool;

    /// Records that a call in flight of that cost has ended: once for each [`KeyedStates::admit`] of it that returned true.
    fn leave(&self, reserved: Reserved, cost: u64);

    /// A request that has held `cost` has ended: gives that back, and charges the `actual` cost at `now`, even if it is more and
    /// exceeds the limit. Once for each [`KeyedStates::admit`] of a reservation that is held. (By default nothing is held.)
    ///
    /// # Why no interval has too much
    ///
    /// In a strict window with a limit that does not fall, whose requests hold upper bounds of their costs, no interval of the
    /// window's length has more than the limit of the cost of requests that ran in it, even in part. Take the last admission
    /// among them. If it was in the interval, each of the others was, at that instant, either held still, and counted with its
    /// upper bound, or settled since the interval began: its charge is dated at its end, which is less than a window ago, so that
    /// it counted with its cost. If it was before the interval, each ran until the interval began at least, and all were held at
    /// that instant. In both cases the admission has found that all of them fit together. So a hold has no time-out, and its
    /// rest does not go back to the bucket of its admission: the cost of a request is dated when it has ended, never earlier.
    ///
    /// A cost that was underestimated adds the difference at most, once for each request in flight.
    fn settle(&self, _held: Reserved, _cost: u64, _actual: u64, _now: Timestamp) {}

    /// Gives back the `cost` that a window was charged at `charged`; nothing if windows are shared.
    fn refund(&self, _key: Key, _cost: u64, _charged: Timestamp, _now: Timestamp) {}

    /// Makes windows count in this way from now on: what has been counted stays.
    fn count_as(&self, counting: Counting);

    /// How many requests have been charged to shared entries, because no state was free for their key.
    fn shared(&self) -> u64 {
        0
    }

    /// The status of a key. Charges nothing; a window may follow the clock to `now`, as in a decision.
    fn status(&self, key: Key, terms: &KeyedTerms, now: Timestamp) -> KeyStatus;

    /// The `n` hottest keys, hottest first: by passes in the window, by calls in flight, or by how far turns reach. Empty if
    /// labels are not kept.
    fn top(&self, _n: usize, _now: Timestamp) -> Vec<HotKey> {
        Vec::new()
    }
}
