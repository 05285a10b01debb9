//! The npm package: a thin shell over the core.
//!
//! A call takes numbers and returns one. What is more than a number lies in memory at a place that JavaScript knows: texts and
//! trees in a buffer ([`text`]), what a decision told in an area of doubles ([`area`]). Limiters and engines are known by a number,
//! and so are keys that are asked about often. Nothing here checks what JavaScript hands in beyond what memory needs: `js/lib`
//! does, and the sentences about options are the core's.
//!
//! Two modules are made of this: one of the feature `limiter` alone, which is small, and one of `engine`.

mod api;
mod buffer;
#[cfg(feature = "engine")]
mod engine;
#[cfg_attr(
    not(all(feature = "limiter", feature = "engine")),
    allow(dead_code, reason = "each module has its part of it")
)]
mod layout;
#[cfg(feature = "limiter")]
mod limiter;
#[cfg(feature = "engine")]
mod rules;
#[cfg(feature = "engine")]
mod seed;
mod shell;
mod slab;
#[cfg(feature = "engine")]
mod stats;
#[cfg(feature = "engine")]
mod texts;
mod time;
mod tree;

#[cfg(feature = "limiter")]
pub use api::limiter::*;
pub use api::*;
#[cfg(feature = "engine")]
pub use api::{engine::*, rules::*, stats::*};
