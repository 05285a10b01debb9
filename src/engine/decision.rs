//! What was decided.

use crate::engine::blocked::Blocked;
use crate::engine::entry::Entry;
use crate::state::backend::{Backend, Local};
use std::time::Duration;

/// What was decided.
#[must_use]
#[derive(Debug)]
pub enum Decision<S: Backend = Local> {
    /// Let in: the entry is to be ended when the call has ended.
    Pass(Entry<S>),
    /// Let in, but not before so much time has passed. One that is given up until then is to be told so
    /// ([`Entry::cancel`]), or dropped.
    Wait(Duration, Entry<S>),
    /// Refused; nothing was charged.
    Block(Blocked),
}
