//! Numbers in places of shared data, changed by compare-and-swap.

use crate::host::{Host, Put};
use std::cell::Cell;

/// How often a compare-and-swap is tried before the request is refused.
const MAX_SWAPS: u32 = 32;

/// Two numbers in a place of shared data, changed by compare-and-swap.
pub(crate) struct Swapped<H> {
    host: H,
    key: String,
    /// Changes of tickets and of admissions that could not be made yet: made with the next one.
    owed: Cell<(i64, i64)>,
}

pub(crate) fn pair(tickets: u64, admitted: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    let (first, second) = bytes.split_at_mut(8);
    first.copy_from_slice(&tickets.to_le_bytes());
    second.copy_from_slice(&admitted.to_le_bytes());
    bytes
}

pub(crate) fn unpair(bytes: &[u8]) -> Option<(u64, u64)> {
    let (first, second) = bytes.split_at_checked(8)?;
    Some((
        u64::from_le_bytes(first.try_into().ok()?),
        u64::from_le_bytes(second.try_into().ok()?),
    ))
}

impl<H: Host> Swapped<H> {
    /// What stands at `key`.
    pub(crate) fn new(host: H, key: String) -> Swapped<H> {
        let owed = Cell::new((0, 0));
        Swapped { host, key, owed }
    }

    /// Whether changes are owed that could not be made.
    pub(crate) fn owes(&self) -> bool {
        self.owed.get() != (0, 0)
    }

    pub(crate) fn read(&self) -> Option<(u64, u64)> {
        unpair(&self.host.shared(&self.key)?.bytes)
    }

    /// The tickets after the change; `None` where it could not be made.
    pub(crate) fn change(&self, tickets: i64, admitted: i64) -> Option<u64> {
        let owed = self.owed.get();
        for _ in 0..MAX_SWAPS {
            let value = self.host.shared(&self.key)?;
            let (old_tickets, old_admitted) = unpair(&value.bytes)?;
            let new_tickets = old_tickets.wrapping_add_signed(tickets.wrapping_add(owed.0));
            let new_admitted = old_admitted.wrapping_add_signed(admitted.wrapping_add(owed.1));
            if self.host.share(
                &self.key,
                &pair(new_tickets, new_admitted),
                Put::IfVersion(value.cas),
            ) {
                self.owed.set((0, 0));
                return Some(new_tickets);
            }
        }
        None
    }

    pub(crate) fn change_or_owe(&self, tickets: i64, admitted: i64) {
        if self.change(tickets, admitted).is_none() {
            let (owed_tickets, owed_admitted) = self.owed.get();
            self.owed.set((
                owed_tickets.wrapping_add(tickets),
                owed_admitted.wrapping_add(admitted),
            ));
        }
    }
}
