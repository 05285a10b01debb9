//! The keys of a request, each resolved once: what is reserved for them while it is decided, and what they look at while its call
//! lasts.

use crate::engine::api_nodes::ApiNode;
use crate::engine::held::Held;
use crate::inline_vec::InlineVec;
use crate::rule::Count;
use crate::state::breaker::Admission;
use crate::state::keyed::{Key, KeyHandle, Reserved};
use std::time::Duration;

/// A key of a request, under the check of this number.
#[derive(Clone, Copy)]
pub(super) struct Reservation {
    pub(super) check: usize,
    /// The key, and where its state was found.
    pub(super) handle: KeyHandle,
    pub(super) count: Count,
    /// For how long its rule makes the request wait, in nanoseconds.
    pub(super) wait: u64,
    pub(super) reserved: Option<Reserved>,
}

/// What the rules say to the keys of a request, and what is reserved for them.
pub(crate) struct Reservations {
    pub(super) list: InlineVec<Reservation, 4>,
    /// The longest wait, in nanoseconds, of rules that are enforced.
    pub(crate) wait: u64,
    /// A bit for each check, and behind them for each with leased permits.
    pub(super) refusing: u64,
    pub(super) shadow_refusing: u64,
    /// A bit for each check under which the request has too many keys.
    pub(super) too_many: u64,
    /// How long until no rule refuses any more.
    pub(super) retry_after: Option<Duration>,
}

/// A key that looks at how a call ends, or whether it began.
#[derive(Clone, Copy)]
pub(crate) struct HeldKey {
    pub(super) check: usize,
    pub(super) reserved: Reserved,
    /// What the request costs the key, or holds of it until its cost is known.
    pub(crate) held: Held,
    pub(super) ends: KeyEnd,
}

/// How a key looks at the end of a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyEnd {
    /// It is in flight.
    Leaves,
    /// It holds an estimate of its cost.
    Settles,
    /// It waits for its turn.
    Waits,
}

impl HeldKey {
    /// Whether it holds an estimate of the cost.
    pub(crate) fn holds(&self) -> bool {
        self.ends == KeyEnd::Settles
    }
}

/// Keys in flight, holds, APIs and breaker probes. Boxed: most entries have none.
#[derive(Default)]
pub(crate) struct EntryExtras {
    /// The keys that look at how the call ends.
    pub(crate) keys: InlineVec<HeldKey, 1>,
    /// By check without a key: what the request holds until its cost is known.
    pub(crate) holds: Vec<(usize, Held)>,
    /// Whether no flow rule has counted the call.
    is_exempt: bool,
    /// The statistics of the APIs of the request, where statistics are kept.
    pub(crate) apis: Vec<ApiNode>,
    /// By breaker: how it let a probe in.
    pub(crate) probes: Vec<(usize, Admission)>,
    /// By unit: what windows were charged in other units than requests.
    pub(crate) charged: Vec<(Box<str>, u64)>,
}

impl EntryExtras {
    /// Of a call that no flow rule has counted.
    pub(crate) fn exempt() -> EntryExtras {
        EntryExtras {
            is_exempt: true,
            ..EntryExtras::default()
        }
    }

    pub(crate) fn is_exempt(&self) -> bool {
        self.is_exempt
    }

    /// Whether any rule holds an estimate of the cost.
    pub(crate) fn holds(&self) -> bool {
        !self.holds.is_empty() || self.keys.iter().any(HeldKey::holds)
    }

    /// Goes on with what flow rules have said in another one.
    pub(crate) fn keep(&mut self, other: EntryExtras) {
        self.keys = other.keys;
        self.holds = other.holds;
        self.is_exempt = other.is_exempt;
    }
}

impl Default for Reservations {
    fn default() -> Reservations {
        Reservations {
            list: InlineVec::default(),
            wait: 0,
            refusing: 0,
            shadow_refusing: 0,
            too_many: 0,
            retry_after: Some(Duration::ZERO),
        }
    }
}

impl Reservations {
    /// Whether the key is known, under the check of this number.
    pub(super) fn has(&self, check: usize, key: Key) -> bool {
        let mut list = self.list.iter();
        list.any(|known| known.check == check && known.handle.key() == key)
    }

    /// The rule with that bit refuses, for so long; `None` for ever.
    pub(super) fn refuse(&mut self, bit: usize, own: Option<Duration>) {
        self.refusing |= 1 << bit;
        let longest = self.retry_after.zip(own);
        self.retry_after = longest.map(|(longest, own)| longest.max(own));
    }

    /// The rules that refuse: a bit for each.
    pub(crate) fn refusing(&self) -> u64 {
        self.refusing
    }

    /// How long until no rule refuses any more. `None` for never.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }
}
