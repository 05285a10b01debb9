//! What JavaScript calls.

#[cfg(feature = "cli")]
pub(crate) mod cli;
#[cfg(feature = "engine")]
pub(crate) mod engine;
#[cfg(feature = "flow")]
pub(crate) mod flow;
#[cfg(feature = "limiter")]
pub(crate) mod limiter;
#[cfg(feature = "memory")]
pub(crate) mod memory;
#[cfg(feature = "replay")]
pub(crate) mod replay;
#[cfg(feature = "engine")]
pub(crate) mod rules;
#[cfg(feature = "shared")]
pub(crate) mod shared;
#[cfg(feature = "engine")]
pub(crate) mod stats;

use crate::buffer::KEYS;
use crate::shell::shell;
use wasm_bindgen::prelude::wasm_bindgen;

/// Where texts and values are, written by both sides. The place changes when the buffer grows, also for an error message.
#[wasm_bindgen]
pub fn text() -> *mut u8 {
    shell(|shell| shell.buffer.text.as_mut_ptr())
}

/// The size of the buffer, in bytes.
#[wasm_bindgen]
pub fn text_bytes() -> usize {
    shell(|shell| shell.buffer.text.len())
}

/// Makes the buffer at least this long.
#[wasm_bindgen]
pub fn text_reserve(bytes: usize) {
    shell(|shell| shell.buffer.reserve(bytes));
}

/// Makes the buffer as small as it was at first.
#[cfg(feature = "limiter")]
#[wasm_bindgen]
pub fn text_shrink() {
    shell(|shell| shell.buffer = crate::buffer::Buffer::default());
}

/// Where the results of a decision are: doubles, in the order of `layout`.
#[wasm_bindgen]
pub fn results() -> *const f64 {
    shell(|shell| shell.buffer.results.as_ptr())
}

/// How many doubles results have at most.
#[wasm_bindgen]
pub fn results_len() -> usize {
    shell(|shell| shell.buffer.results.len())
}

/// How many keys can have a number. Number 0 is for a key that is used at once.
#[wasm_bindgen]
pub fn key_slots() -> u32 {
    KEYS as u32
}

/// Sets the random seed of the key hashes: once, before the first key is hashed.
#[wasm_bindgen]
pub fn seed(a: u32, b: u32, c: u32, d: u32) {
    shell(|shell| shell.seed(a, b, c, d));
}

/// Gives the number `slot` to the key in the buffer: one text, or parts, each with its length in four bytes before it. Returns a
/// part of its hash.
#[wasm_bindgen]
pub fn key(slot: u32, bytes: usize, parts: bool) -> u32 {
    shell(|shell| shell.name_key(slot, bytes, parts))
}
