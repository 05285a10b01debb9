//! What states of keys answer.

use super::key::KeyHandle;
use crate::time::Timestamp;
use std::time::Duration;

/// What would become of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyVerdict {
    /// It would pass at once.
    Pass,
    /// It would have to wait for so long, in nanoseconds.
    Wait(u64),
    /// It would be refused.
    Block {
        /// How long until it would not be, if nothing else came: the first instant at which it passes, or may wait. `None` where
        /// it never does. A call in flight may end at any moment: for those it is a millisecond.
        retry_after: Option<Duration>,
    },
}

/// A turn that was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Turn {
    /// How far turns reached before; `None` where there was none.
    pub from: Option<Timestamp>,
    /// How far they reach with it.
    pub to: Timestamp,
}

/// What was taken for a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reserved {
    /// Where the state of its key is.
    pub handle: KeyHandle,
    /// For how long it has to wait, in nanoseconds: 0 passes at once.
    pub wait: u64,
    /// Its turn, where turns are taken.
    pub turn: Option<Turn>,
}

impl Reserved {
    /// Of a request that passes at once, where no turns are taken.
    pub const fn at_once(handle: KeyHandle) -> Reserved {
        Reserved {
            handle,
            wait: 0,
            turn: None,
        }
    }
}

/// How a key stands.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct KeyStatus {
    /// How much is left: whole passes, rounded down. Where turns are taken, one if it would pass at once.
    pub remaining: u64,
    /// How long until one passes at once, or where one does, until quota next comes back, if nothing else came: zero where none
    /// is used or, of calls in flight that leave room, unknown.
    pub reset: Duration,
}
