//! The core's tests, lowest layer first: the first red one names the fault.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests are tests"
)]

mod support;

// Each stands alone, or rustfmt would sort them.
mod window;

mod leap_array;

mod metric_bucket;

mod occupy;

mod metric;

mod node;

mod rule_window;

mod authority;
mod breaker;
mod engine;
mod system;

mod keyed;

mod pages;

mod limiter;

mod guard;

mod refusal;

mod throttle;

mod warm_up;

mod priority;

mod relations;

mod key;

mod param_flow;

mod config;

mod rule_files;

mod key_config;

mod rollout;

mod uncounted;

mod model;

mod shared;

mod scenarios;

mod vectors;

mod key_vectors;

mod alloc;

mod documents;
