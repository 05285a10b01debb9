//! The npm package: a thin shell over the core.
//!
//! A call takes numbers and returns one. What is more than a number lies in memory at a place that JavaScript knows: texts and
//! trees in a buffer ([`text`]), what a decision told in an area of doubles ([`area`]). Limiters are known by a number, and so
//! are keys that are asked about often. Nothing here checks what JavaScript hands in beyond what memory needs: `js/lib` does,
//! and the sentences about options are the core's.

mod shell;
mod tree;

use shell::{Shell, instant};
use std::cell::RefCell;
use wasm_bindgen::prelude::wasm_bindgen;

thread_local! {
    static SHELL: RefCell<Shell> = RefCell::new(Shell::default());
}

/// Calls never nest: nothing here calls JavaScript.
fn shell<R>(act: impl FnOnce(&mut Shell) -> R) -> R {
    SHELL.with_borrow_mut(act)
}

/// Where texts and trees are put, by both sides. It moves when it grows, and when a sentence is put there.
#[wasm_bindgen]
pub fn text() -> *mut u8 {
    shell(|shell| shell.text.as_mut_ptr())
}

/// How many bytes there is room for.
#[wasm_bindgen]
pub fn text_bytes() -> usize {
    shell(|shell| shell.text.len())
}

/// Makes room for so many bytes.
#[wasm_bindgen]
pub fn text_reserve(bytes: usize) {
    shell(|shell| shell.reserve(bytes));
}

/// Where a decision tells what it found, in doubles: the index of the limit that refuses, negative where the key is blocked;
/// the time to try again in milliseconds, negative for never; then for each limit its count, what is left and when quota
/// comes back, in milliseconds from now.
#[wasm_bindgen]
pub fn area() -> *const f64 {
    shell(|shell| shell.area.as_ptr())
}

/// How many doubles these are at most.
#[wasm_bindgen]
pub fn area_doubles() -> usize {
    shell(|shell| shell.area.len())
}

/// How many keys can be known by a number; 0 is for one that is used at once.
#[wasm_bindgen]
pub fn key_slots() -> u32 {
    shell::KEYS as u32
}

/// Takes the random numbers that hashes begin with. To be called before the first key is told, and once.
#[wasm_bindgen]
pub fn seed(a: u32, b: u32, c: u32, d: u32) {
    shell(|shell| shell.seed(a, b, c, d));
}

/// Makes a limiter of the options in the buffer. Its number; or, negative, how long the sentence in the buffer is that says
/// what is wrong.
#[wasm_bindgen]
pub fn limiter_new(bytes: usize) -> f64 {
    shell(|shell| shell.limiter_new(bytes))
}

/// Drops a limiter.
#[wasm_bindgen]
pub fn limiter_free(limiter: u32) {
    shell(|shell| shell.limiter_free(limiter));
}

/// Tells about a limit: how long its id is, in the buffer; its window, in milliseconds, first in the area. Negative
/// where there is none.
#[wasm_bindgen]
pub fn limiter_about(limiter: u32, index: usize) -> f64 {
    shell(|shell| shell.limiter_about(limiter, index))
}

/// Counts all windows of a limiter as used up.
#[wasm_bindgen]
pub fn limiter_close(limiter: u32, now: f64) {
    shell(|shell| shell.with(limiter, |open| open.close(instant(now))));
}

/// Gives the number `slot` to the key in the buffer: one text, or parts, each with its length in four bytes before it.
#[wasm_bindgen]
pub fn key(slot: u32, bytes: usize, parts: bool) {
    shell(|shell| shell.name_key(slot, bytes, parts));
}

/// Decides and tells; charges if it passes and `charges` says so. A `count` that is no count is that of each limit. Whether it
/// passes.
#[wasm_bindgen]
pub fn limiter_ask(
    limiter: u32,
    slot: u32,
    cost: f64,
    count: f64,
    now: f64,
    charges: bool,
) -> bool {
    shell(|shell| shell.ask(limiter, slot, (cost, count), now, charges))
}

/// Gives back what a key was charged.
#[wasm_bindgen]
pub fn limiter_refund(limiter: u32, slot: u32, cost: f64, charged: f64, now: f64) {
    shell(|shell| {
        let key = shell.key(slot);
        let (charged, now) = (instant(charged), instant(now));
        shell.with(limiter, |open| open.refund(key, cost as u64, charged, now));
    });
}

/// Forgets a key.
#[wasm_bindgen]
pub fn limiter_reset(limiter: u32, slot: u32) {
    shell(|shell| {
        let key = shell.key(slot);
        shell.with(limiter, |open| open.reset(key));
    });
}

/// Refuses all that a key asks for, for so many milliseconds. Whether there was room for that.
#[wasm_bindgen]
pub fn limiter_block(limiter: u32, slot: u32, millis: f64, now: f64) -> bool {
    shell(|shell| {
        let (key, length) = (shell.key(slot), shell::millis(millis));
        let block = |open: &leapgate::Limiter| open.block(key, length, instant(now));
        shell.with(limiter, block).unwrap_or(false)
    })
}
