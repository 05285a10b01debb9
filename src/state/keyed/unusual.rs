//! Decisions in one step or two about all states that are not usual windows: wide, weighted or held windows, windows that begin or that
//! no request has asked for lately, calls in flight, turns, and keys that share.

use super::answers::Reserved;
use super::geometry::KeyedTerms;
use super::key::{Key, KeyHandle};
use super::table::Table;
use super::window::{HOLDS, LISTED};
use super::windows::KeyedWindows;
use crate::time::Timestamp;

impl KeyedWindows {
    /// [`KeyedWindows::admit_now`] for all states that are not usual windows ([`Table::usual`]).
    #[inline(never)]
    pub(super) fn admit_unusual(
        &self,
        table: &mut Table,
        key: Key,
        terms: &KeyedTerms,
        cost: u64,
        now: Timestamp,
    ) -> Option<Reserved> {
        let (floor, now_in) = (table.floor(), table.known());
        let slot = table.find(key);
        let (place, elsewhere, held) = table.enter(key, slot, now, now_in);
        let Some(mut held) = held else {
            if place.is_shared {
                return self.admit_shared(table, place, terms.count, cost, now);
            }
            let at_once = KeyedTerms::of(terms.count);
            return self.take_turn(table, place, &at_once, cost, 0, now);
        };
        if !held.fits(terms.count, cost.saturating_add(elsewhere), now, now_in) {
            return None;
        }
        *held.used += cost;
        held.admit(cost, now_in);
        let heat = *held.used;
        if heat >= floor && !held.has(LISTED) {
            self.list(table, place, heat, now);
        }
        Some(Reserved::at_once(place))
    }

    /// [`KeyedStates::reserve_later`](super::states::KeyedStates::reserve_later) for all states that are not usual windows ([`Table::usual`]).
    #[inline(never)]
    pub(super) fn reserve_unusual(
        &self,
        table: &mut Table,
        key: &mut KeyHandle,
        terms: &KeyedTerms,
        (cost, wait): (u64, u64),
        now: Timestamp,
    ) -> Option<Reserved> {
        let now_in = table.known();
        let slot = table.slot_of(*key);
        let (place, elsewhere, held) = table.enter(key.key, slot, now, now_in);
        *key = place;
        let Some(mut held) = held else {
            if place.is_shared {
                return self.reserve_shared(table, place, terms, cost, wait, now);
            }
            return self.take_turn(table, place, terms, cost, wait, now);
        };
        if !held.fits(terms.count, cost.saturating_add(elsewhere), now, now_in) {
            return None;
        }
        *held.used += cost;
        let mut reserved = Reserved::at_once(place);
        if terms.holds && self.shape.window.is_some() {
            held.set(HOLDS);
            reserved.is_held = true;
        }
        Some(reserved)
    }
}
