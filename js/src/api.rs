//! What JavaScript calls.

#[cfg(feature = "engine")]
pub(crate) mod engine;
#[cfg(feature = "limiter")]
pub(crate) mod limiter;
#[cfg(feature = "engine")]
pub(crate) mod rules;
#[cfg(feature = "engine")]
pub(crate) mod stats;

use crate::buffer::KEYS;
use crate::shell::shell;
use wasm_bindgen::prelude::wasm_bindgen;

/// Where texts and trees are put, by both sides. It moves when it grows, and when a sentence is put there.
#[wasm_bindgen]
pub fn text() -> *mut u8 {
    shell(|shell| shell.buffer.text.as_mut_ptr())
}

/// How many bytes there is room for.
#[wasm_bindgen]
pub fn text_bytes() -> usize {
    shell(|shell| shell.buffer.text.len())
}

/// Makes room for so many bytes.
#[wasm_bindgen]
pub fn text_reserve(bytes: usize) {
    shell(|shell| shell.buffer.reserve(bytes));
}

/// Where a decision tells what it found, in doubles. Of a limiter: the index of the limit that refuses, negative where the key
/// is blocked; the time to try again in milliseconds, negative for never; then for each limit its count, what is left and when
/// quota comes back, in milliseconds from now.
#[wasm_bindgen]
pub fn area() -> *const f64 {
    shell(|shell| shell.buffer.area.as_ptr())
}

/// How many doubles these are at most.
#[wasm_bindgen]
pub fn area_doubles() -> usize {
    shell(|shell| shell.buffer.area.len())
}

/// How many keys can be known by a number; 0 is for one that is used at once.
#[wasm_bindgen]
pub fn key_slots() -> u32 {
    KEYS as u32
}

/// Takes the random numbers that hashes begin with. To be called before the first key is told, and once.
#[wasm_bindgen]
pub fn seed(a: u32, b: u32, c: u32, d: u32) {
    shell(|shell| shell.seed(a, b, c, d));
}

/// Gives the number `slot` to the key in the buffer: one text, or parts, each with its length in four bytes before it. A part of
/// its hash.
#[wasm_bindgen]
pub fn key(slot: u32, bytes: usize, parts: bool) -> u32 {
    shell(|shell| shell.name_key(slot, bytes, parts))
}
