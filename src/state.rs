//! What rules remember: one file for each kind of state. Time is an argument of each call.

pub(crate) mod backend;
pub(crate) mod breaker;
pub(crate) mod flow;
pub(crate) mod keyed;
pub(crate) mod throttle;
pub(crate) mod warm_up;
pub(crate) mod window;
