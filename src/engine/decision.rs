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
    /// Admitted, but not before so much time has passed. A caller that gives the request up until then cancels the entry
    /// ([`Entry::cancel`]) or drops it.
    Wait(Duration, Entry<S>),
    /// Refused; nothing was charged.
    Block(Blocked),
}
