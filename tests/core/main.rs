//! The core's tests: a file for each part of it. Where several are red, the one of the lowest layer names the fault.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests are tests"
)]

automod::dir!("tests/core");
