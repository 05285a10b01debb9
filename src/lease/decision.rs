//! What a node decides, and what it tells its shell.

use std::time::Duration;

/// What decides while the store does not answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WhenDown {
    /// The node's own exact window, with its part of the limit. All that the node has admitted in the last window counts in it; what
    /// it admits so is told the store when it is back. Over such a time an interval holds at most twice the limit.
    Local,
    /// Nothing passes without a permit: never more than the limit.
    Refuse,
    /// Everything passes, and is told the store when it is back.
    Pass,
}

/// The decision about a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taken {
    /// It passes, and has been charged.
    Pass {
        /// How many more would, as far as the node knows.
        remaining: u64,
    },
    /// It is refused.
    Refuse {
        /// How long until it may pass; `None` if it never can.
        retry_after: Option<Duration>,
    },
    /// The store is being asked: decide again when it has answered.
    Wait,
}

/// What is to be sent to the store, at once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// By which the answer is handed in; below 2^53.
    pub token: u64,
    /// The key at the store, without the shell's prefix. Bytes that are not UTF-8 are as the requests had them.
    pub key: Vec<u8>,
    /// The request.
    pub text: String,
}

/// Whether the store answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// As before.
    None,
    /// It no longer answers: `WhenDown` decides.
    Down,
    /// It answers again.
    Up,
}

/// What a node has done so far.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Figures {
    /// The permits that it has.
    pub permits: u64,
    /// The requests that it has sent.
    pub asks: u64,
    /// The permits that it was granted.
    pub granted: u64,
    /// The requests without an answer.
    pub lost: u64,
    /// For how many milliseconds the store did not answer, before it last did.
    pub down_ms: u64,
}
