//! What any place can do that keeps the states of keys: tables, and pages that workers share.

use super::answers::{KeyStatus, KeyVerdict, Reserved};
use super::geometry::KeyedTerms;
use super::hottest::HotKey;
use super::key::{Key, KeyHandle};
use crate::rule::Counting;
use crate::time::Timestamp;

/// The states of one rule, one per key: windows, calls in flight or turns.
///
/// Several rules decide together in three steps, as those of a [`crate::backend::Controller`]: [`KeyedStates::ask`] each; if
/// all would let the request pass, [`KeyedStates::reserve`] of each; if all could, [`KeyedStates::admit`], else
/// [`KeyedStates::release`]. A rule that is alone need not be asked.
pub trait KeyedStates {
    /// The key of these values, in the order of the rule's parts. A value that is missing (`None`) is one of its own.
    fn key(&self, parts: &mut dyn Iterator<Item = Option<&[u8]>>) -> Key;

    /// What would become of a request of that cost. Takes nothing. As [`KeyedStates::reserve`] it notes in `key` where it has
    /// found the state, so that the next step need not search for it.
    fn ask(&self, key: &mut KeyHandle, terms: &KeyedTerms, cost: u64, now: Timestamp)
    -> KeyVerdict;

    /// Takes what the request needs, if it is there, else nothing.
    fn reserve(
        &self,
        key: &mut KeyHandle,
        terms: &KeyedTerms,
        cost: u64,
        now: Timestamp,
    ) -> Option<Reserved>;

    /// The same for a request that another rule makes wait for `wait` nanoseconds: it has its turn then, if that is later than
    /// it would be. (Without this a turn lies where it would without the other rule.)
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

    /// Gives back what was reserved, because another rule refused. A turn, also one that was charged, if the request is given
    /// up before it passes: the turn is free again if no later one was taken.
    fn release(&self, reserved: Reserved, cost: u64, now: Timestamp);

    /// The request passes: charges what was reserved. Whether the call is in flight from now on ([`KeyedStates::leave`]).
    fn admit(&self, reserved: Reserved, cost: u64) -> bool;

    /// A call in flight has ended: once for each [`KeyedStates::admit`] that said so.
    fn leave(&self, reserved: Reserved);

    /// Gives back `cost` that a window was charged at the instant `charged`. Nothing where windows are shared.
    fn refund(&self, _key: Key, _cost: u64, _charged: Timestamp, _now: Timestamp) {}

    /// Has windows count in this way from now on: what has been counted stays.
    fn count_as(&self, counting: Counting);

    /// How many requests have been charged to what keys share that find no state of their own to be free.
    fn shared(&self) -> u64 {
        0
    }

    /// How a key stands. Charges nothing; a window may follow the clock to `now`, as it does in a decision.
    fn status(&self, key: Key, terms: &KeyedTerms, now: Timestamp) -> KeyStatus;

    /// The `n` hottest keys, hottest first: those with the most passes in their window, the most calls in flight or the turns
    /// that reach furthest. None where labels are not kept.
    fn top(&self, _n: usize, _now: Timestamp) -> Vec<HotKey> {
        Vec::new()
    }
}
