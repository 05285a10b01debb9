//! A request as flow rules see it.

use crate::engine::keyed::KeyCaller;
use crate::engine::origin::Origin;
use crate::state::backend::Backend;

/// A request and its caller.
pub(super) struct Caller<'a, S: Backend> {
    pub(super) origin: Option<&'a Origin<S>>,
    /// Empty where no rule of the resource asks for it.
    pub(super) context: &'a str,
    pub(super) prioritized: bool,
    pub(super) keys: KeyCaller<'a>,
    pub(super) impatient: bool,
}
