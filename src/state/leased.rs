//! Permits that are leased from a store, as rules use them.

use crate::lease::{Taken, Terms, WhenDown};
use crate::time::Timestamp;

/// The permits of a rule whose limit is one for all machines: a [`Node`](crate::lease::Node), and the shell that carries its messages.
pub trait Leased {
    /// Decides about a request of that cost for a key, and charges it if it passes. `key` has the key's parts as
    /// [`escape_part`](crate::lease::escape_part) writes them; it is empty for a rule without a key. A request that no longer
    /// `waits` for the store is never told to.
    fn take(&self, key: &[u8], cost: u64, now: Timestamp, waits: bool) -> Taken;

    /// Takes back the charge of a request that has just passed here, and that another rule has refused.
    fn give_back(&self, key: &[u8], cost: u64, now: Timestamp);

    /// The rule has another limit from now on, or something else decides while the store does not answer (`None`: what the
    /// store's settings say).
    fn change(&self, limit: u64, when_down: Option<WhenDown>);

    /// Whether the store does not answer.
    fn is_down(&self) -> bool {
        false
    }

    /// How many requests the rule has let pass so far, and how many it was the first to refuse: for a shell that exports them.
    fn export(&self, _decided: [u64; 2]) {}
}

/// What a rule leases.
#[derive(Clone, Copy, Debug)]
pub struct Leasing<'a> {
    /// The name of its count at the store: rules with the same name and the same window share it.
    pub name: &'a str,
    /// The limit, and its window.
    pub terms: Terms,
    /// What decides while the store does not answer; `None` if the store's settings say it.
    pub when_down: Option<WhenDown>,
    /// How many keys are kept apart.
    pub max_keys: usize,
}

/// Why a rule that asks for one limit for all machines has its own on each. The sentence is: `clusterMode` is `true`, which …,
/// so each node limits by itself; …
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotLeased {
    /// What `true` lacks: `needs a store`.
    pub why: &'static str,
    /// What to do about it: `leave it out`.
    pub cure: &'static str,
}
