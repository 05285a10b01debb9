//! What JavaScript calls for limiters.

use crate::limiter::Ask;
use crate::shell::shell;
use crate::time::instant;
use wasm_bindgen::prelude::wasm_bindgen;

/// Makes a limiter of the options in the buffer. Its number; or, negative, how long the sentence in the buffer is that says
/// what is wrong.
#[wasm_bindgen]
pub fn limiter_new(bytes: usize) -> f64 {
    shell(|shell| {
        let made = shell.limiters.add(shell.buffer.bytes(bytes));
        made.map_or_else(|error| -shell.buffer.say(&error), f64::from)
    })
}

/// Drops a limiter.
#[wasm_bindgen]
pub fn limiter_free(limiter: u32) {
    shell(|shell| shell.limiters.free(limiter));
}

/// Tells about a limit: how long its id is, in the buffer; its window, in milliseconds, first in the area. Negative
/// where there is none.
#[wasm_bindgen]
pub fn limiter_about(limiter: u32, index: usize) -> f64 {
    shell(|shell| {
        let Some(limit) = shell.limiters.about(limiter, index) else {
            return -1.0;
        };
        let [to, ..] = &mut shell.buffer.area;
        *to = limit.window.window().interval_ms() as f64;
        shell.buffer.say(limit.id.as_str())
    })
}

/// Tells, in the area, how many keys have a window of their own, and how many requests were charged to what others share.
#[wasm_bindgen]
pub fn limiter_stats(limiter: u32) {
    shell(|shell| {
        let limiter = shell.limiters.get(limiter);
        let (keys, charged) = limiter.map_or((0, 0), |limiter| limiter.fill());
        let [to, shared, ..] = &mut shell.buffer.area;
        (*to, *shared) = (keys as f64, charged as f64);
    });
}

/// Counts all windows of a limiter as used up.
#[wasm_bindgen]
pub fn limiter_close(limiter: u32, now: f64) {
    shell(|shell| {
        if let Some(limiter) = shell.limiters.get(limiter) {
            limiter.close(instant(now));
        }
    });
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
    let ask = Ask {
        limiter,
        slot,
        cost,
        count,
        now,
        charges,
    };
    shell(|shell| shell.limiters.ask(&ask, &mut shell.buffer.area))
}

/// Gives back what a key was charged.
#[wasm_bindgen]
pub fn limiter_refund(limiter: u32, slot: u32, cost: f64, charged: f64, now: f64) {
    shell(|shell| {
        let key = shell.limiters.key(slot);
        let (charged, now) = (instant(charged), instant(now));
        if let Some(limiter) = shell.limiters.get(limiter) {
            limiter.refund(key, cost as u64, charged, now);
        }
    });
}

/// Forgets a key.
#[wasm_bindgen]
pub fn limiter_reset(limiter: u32, slot: u32) {
    shell(|shell| {
        let key = shell.limiters.key(slot);
        if let Some(limiter) = shell.limiters.get(limiter) {
            limiter.reset(key);
        }
    });
}

/// Refuses all that a key asks for, for so many milliseconds. Whether there was room for that.
#[wasm_bindgen]
pub fn limiter_block(limiter: u32, slot: u32, millis: f64, now: f64) -> bool {
    shell(|shell| {
        let (key, length) = (shell.limiters.key(slot), crate::time::millis(millis));
        let limiter = shell.limiters.get(limiter);
        limiter.is_some_and(|limiter| limiter.block(key, length, instant(now)))
    })
}
