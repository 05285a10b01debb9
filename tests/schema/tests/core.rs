//! The core's tests of documents, with readers that ask the schema, too. The files are formatted where they stand.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    dead_code,
    missing_docs
)]
extern crate leapgate_schema as leapgate;

#[rustfmt::skip]
#[path = "../../core/actual.rs"]
mod actual;
#[rustfmt::skip]
#[path = "../../core/api_config.rs"]
mod api_config;
#[rustfmt::skip]
#[path = "../../core/ban.rs"]
mod ban;
#[rustfmt::skip]
#[path = "../../core/cluster_config.rs"]
mod cluster_config;
#[rustfmt::skip]
#[path = "../../core/config.rs"]
mod config;
#[rustfmt::skip]
#[path = "../../core/count_from.rs"]
mod count_from;
#[rustfmt::skip]
#[path = "../../core/enforce_percent.rs"]
mod enforce_percent;
#[rustfmt::skip]
#[path = "../../core/exempt.rs"]
mod exempt;
#[rustfmt::skip]
#[path = "../../core/key_config.rs"]
mod key_config;
#[rustfmt::skip]
#[path = "../../core/lease_engine.rs"]
mod lease_engine;
#[rustfmt::skip]
#[path = "../../core/networks.rs"]
mod networks;
#[rustfmt::skip]
#[path = "../../core/param_flow.rs"]
mod param_flow;
#[rustfmt::skip]
#[path = "../../core/rollout.rs"]
mod rollout;
#[rustfmt::skip]
#[path = "../../core/support.rs"]
mod support;
