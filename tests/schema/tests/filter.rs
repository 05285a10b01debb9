//! The filter's tests of its settings, with a reader that asks the schema, too.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    dead_code,
    missing_docs
)]
extern crate leapgate_schema as leapgate;
extern crate leapgate_schema as leapgate_envoy;

#[rustfmt::skip]
#[path = "../../../envoy/tests/config.rs"]
mod config;
#[rustfmt::skip]
#[path = "../../../envoy/tests/store_settings.rs"]
mod store_settings;
