//! The script for Redis, in a real one: it decides as the store in Rust does.

#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "helpers of tests are tests, and a server has a clock of its own"
)]

mod redis;
mod server;
mod traces;
