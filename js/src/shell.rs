//! The state behind the numbers.

use crate::buffer::Buffer;
#[cfg(feature = "cli")]
use crate::cli::Program;
#[cfg(feature = "engine")]
use crate::engine::Engines;
#[cfg(feature = "flow")]
use crate::flow::Flows;
#[cfg(feature = "shared")]
use crate::lease_node::Nodes;
#[cfg(feature = "memory")]
use crate::lease_store::Stores;
#[cfg(feature = "limiter")]
use crate::limiter::Limiters;
#[cfg(any(feature = "limiter", feature = "engine"))]
use crate::tree;
use leapgate::backend::Key;
use std::cell::RefCell;

thread_local! {
    static SHELL: RefCell<Shell> = RefCell::default();
}

/// Calls never nest: nothing here calls JavaScript.
pub(crate) fn shell<R>(act: impl FnOnce(&mut Shell) -> R) -> R {
    SHELL.with_borrow_mut(act)
}

#[derive(Default)]
pub(crate) struct Shell {
    pub(crate) buffer: Buffer,
    pub(crate) seed: [u64; 2],
    #[cfg(feature = "cli")]
    pub(crate) program: Program,
    #[cfg(feature = "replay")]
    pub(crate) replay: Option<crate::replay::Replay>,
    #[cfg(feature = "flow")]
    pub(crate) flows: Flows,
    #[cfg(feature = "shared")]
    pub(crate) nodes: Nodes,
    #[cfg(feature = "memory")]
    pub(crate) stores: Stores,
    #[cfg(feature = "limiter")]
    pub(crate) limiters: Limiters,
    #[cfg(feature = "engine")]
    pub(crate) engines: Engines,
}

impl Shell {
    pub(crate) fn seed(&mut self, a: u32, b: u32, c: u32, d: u32) {
        let word = |high, low| u64::from(high) << 32 | u64::from(low);
        self.seed = [word(a, b), word(c, d)];
        #[cfg(feature = "engine")]
        self.engines.seed.set(self.seed);
    }

    #[cfg_attr(
        not(any(
            feature = "limiter",
            feature = "engine",
            feature = "flow",
            feature = "shared"
        )),
        allow(unused_variables, reason = "a store has no keys with numbers")
    )]
    pub(crate) fn name_key(&mut self, slot: u32, bytes: usize, parts: bool) -> u32 {
        let text = self.buffer.bytes(bytes);
        #[cfg(any(feature = "limiter", feature = "engine"))]
        let key = if parts {
            Key::of_parts(self.seed, tree::parts(text).map(Some))
        } else {
            Key::of_parts(self.seed, [Some(text)])
        };
        // It only tells recent keys apart: nodes hash keys themselves.
        #[cfg(not(any(feature = "limiter", feature = "engine")))]
        let key = Key::from_hash(mixed(self.seed, text));
        #[cfg(feature = "limiter")]
        self.limiters.name_key(slot, key);
        #[cfg(feature = "engine")]
        self.engines.name_key(slot, text, parts);
        #[cfg(feature = "flow")]
        self.flows.name_key(slot, text, parts);
        #[cfg(feature = "shared")]
        self.nodes.name_key(slot, text, parts);
        key.hash() as u32
    }
}

/// A hash that is shorter than that of keys, and weaker.
#[cfg(not(any(feature = "limiter", feature = "engine")))]
fn mixed([seed, _]: [u64; 2], text: &[u8]) -> u64 {
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = text.iter().fold(seed, mix);
    hash ^ hash >> 32
}
