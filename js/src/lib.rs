//! The npm package: a thin shell over the core.
//!
//! Each function takes numbers and returns one. Everything else is in memory at places that both sides know: texts and values in a
//! buffer ([`text`]), the results of a decision in doubles ([`results`]). Limiters, engines, entries and frequent keys have numbers.
//! The functions check no arguments beyond what memory safety needs: `js/lib` does that, and the core writes the error messages
//! about options and rules.
//!
//! `api` has the functions, above the `shell` that holds all state; `layout` has every position in memory; `rules` reads rules of
//! all kinds alike.
//!
//! It is built into six modules: a small one with the feature `limiter` alone, one with `engine`, one with `flow`, for flow rules alone,
//! one with `shared`, for limits that several processes share, one with `memory`, for the store of such limits, and one with `cli`, for
//! the command line. The playground's module has the features `engine` and `replay`.

mod api;
mod buffer;
#[cfg(feature = "engine")]
mod changes;
#[cfg(feature = "cli")]
mod cli;
#[cfg(feature = "engine")]
mod engine;
#[cfg(feature = "flow")]
mod flow;
#[cfg(any(feature = "engine", feature = "flow"))]
mod keys;
#[cfg_attr(
    not(all(
        feature = "limiter",
        feature = "engine",
        feature = "flow",
        feature = "shared",
        feature = "memory",
        feature = "cli"
    )),
    allow(dead_code, reason = "each module has its part of it")
)]
mod layout;
#[cfg(feature = "shared")]
mod lease_node;
#[cfg(feature = "memory")]
mod lease_store;
#[cfg(feature = "limiter")]
mod limiter;
#[cfg(feature = "replay")]
mod replay;
#[cfg(feature = "engine")]
mod rules;
#[cfg(feature = "engine")]
mod seed;
mod shell;
#[cfg_attr(
    not(any(
        feature = "limiter",
        feature = "engine",
        feature = "flow",
        feature = "shared",
        feature = "memory"
    )),
    allow(dead_code, reason = "the command line is one program")
)]
mod slab;
#[cfg(feature = "engine")]
mod stats;
#[cfg(any(feature = "engine", feature = "flow", feature = "cli"))]
mod texts;
#[cfg(any(
    feature = "limiter",
    feature = "engine",
    feature = "flow",
    feature = "shared"
))]
mod time;
#[cfg_attr(
    not(any(feature = "limiter", feature = "engine")),
    allow(dead_code, reason = "only these take a tree")
)]
mod tree;

#[cfg(feature = "flow")]
pub use api::flow::*;
/// It takes a third of the bytes of the allocator that std brings.
#[cfg(target_family = "wasm")]
#[global_allocator]
static ALLOCATOR: talc::wasm::WasmDynamicTalc = talc::wasm::new_wasm_dynamic_allocator();

#[cfg(feature = "cli")]
pub use api::cli::*;
#[cfg(feature = "limiter")]
pub use api::limiter::*;
#[cfg(feature = "memory")]
pub use api::memory::*;
#[cfg(feature = "replay")]
pub use api::replay::*;
#[cfg(feature = "shared")]
pub use api::shared::*;
pub use api::*;
#[cfg(feature = "engine")]
pub use api::{engine::*, rules::*, stats::*};
