//! What rules remember: one file for each kind of state. Time is an argument of each call.

pub(crate) mod backend;
pub(crate) mod breaker;
pub(crate) mod counter;
mod decisions;
pub(crate) mod flow;
mod history;
mod in_flight;
pub(crate) mod keyed;
pub(crate) mod leased;
mod loans;
pub(crate) mod pacer;
pub(crate) mod terms;
mod throttle;
mod warm_up;
pub(crate) mod window;
