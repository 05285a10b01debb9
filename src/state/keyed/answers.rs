//! The answers of the states of keys.

use super::key::KeyHandle;
use crate::time::Timestamp;
use std::time::Duration;

/// The decision about a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyVerdict {
    /// It would pass at once.
    Pass,
    /// It would have to wait this long, in nanoseconds.
    Wait(u64),
    /// It would be refused.
    Block {
        /// How long until the request would pass or could wait, if no other request came; `None` if it never can. A call in
        /// flight may end at any moment: for a limit on them it is a millisecond.
        retry_after: Option<Duration>,
    },
}

/// A turn that was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Turn {
    /// How far turns reached before; `None` if there was no turn.
    pub from: Option<Timestamp>,
    /// How far they reach with it.
    pub to: Timestamp,
}

/// A reservation for a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reserved {
    /// Where the state of its key is.
    pub handle: KeyHandle,
    /// How long the request has to wait, in nanoseconds; 0: it passes at once.
    pub wait: u64,
    /// The request's turn, if requests take turns.
    pub turn: Option<Turn>,
    /// Whether it is held until it is settled ([`KeyedTerms::holds`](super::KeyedTerms::holds)).
    pub is_held: bool,
}

impl Reserved {
    /// The reservation of a request that passes at once and takes no turn.
    pub const fn at_once(handle: KeyHandle) -> Reserved {
        Reserved {
            handle,
            wait: 0,
            turn: None,
            is_held: false,
        }
    }
}

/// The status of a key.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct KeyStatus {
    /// How much is left: whole passes, rounded down. If requests take turns, 1 if a request would pass at once.
    pub remaining: u64,
    /// How long until a request passes at once, or if it does, until quota next comes back, if no other request came: zero if
    /// none is used, and for calls in flight that leave room, whose end is unknown.
    pub reset: Duration,
}
