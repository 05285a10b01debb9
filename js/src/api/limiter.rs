//! What JavaScript calls for limiters.

use crate::buffer::TEXT;
use crate::limiter::Ask;
use crate::shell::shell;
use crate::time::instant;
use leapgate::Hold;
use leapgate::backend::Key;
use wasm_bindgen::prelude::wasm_bindgen;

/// Makes a limiter with the options in the buffer. Returns its number; if an option is wrong, minus the length of the error message,
/// which is in the buffer.
#[wasm_bindgen]
pub fn limiter_new(bytes: usize) -> f64 {
    shell(|shell| {
        let made = shell.limiters.add(shell.buffer.bytes(bytes));
        made.map_or_else(|error| -shell.buffer.write_text(&error), f64::from)
    })
}

/// Drops a limiter.
#[wasm_bindgen]
pub fn limiter_free(limiter: u32) {
    shell(|shell| shell.limiters.free(limiter));
}

/// Writes the id of a limit into the buffer and returns its length. Negative if there is no such limit.
#[wasm_bindgen]
pub fn limiter_about(limiter: u32, index: usize) -> f64 {
    shell(|shell| {
        let Some(limit) = shell.limiters.about(limiter, index) else {
            return -1.0;
        };
        shell.buffer.write_text(limit.id.as_str())
    })
}

/// Results: how many keys have a window of their own, and how many requests were charged to windows that keys share.
#[wasm_bindgen]
pub fn limiter_stats(limiter: u32) {
    shell(|shell| {
        let limiter = shell.limiters.get(limiter);
        let (keys, charged) = limiter.map_or((0, 0), |limiter| limiter.fill());
        let [to, shared, ..] = &mut shell.buffer.results;
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

/// Decides about a request; `how` says what becomes of one that passes: `LOOK`, `CHARGE` or `HOLD` of `layout`. A `count` that is
/// not valid means the count of each limit. Returns whether the request passes; for the results see `layout`.
#[wasm_bindgen]
pub fn limiter_ask(limiter: u32, slot: u32, cost: f64, count: f64, now: f64, how: u32) -> bool {
    let ask = Ask {
        limiter,
        slot,
        cost,
        count,
        now,
        how,
    };
    shell(|shell| shell.limiters.ask(&ask, &mut shell.buffer.results))
}

/// Ends a hold: the actual cost counts from now on. Returns how much that is more than what was held; 0 if the hold has ended before.
#[wasm_bindgen]
pub fn limiter_settle(limiter: u32, index: u32, sequence: u32, actual: f64, now: f64) -> f64 {
    shell(|shell| {
        let hold = Hold { index, sequence };
        let limiter = shell.limiters.get(limiter);
        let debt = limiter.and_then(|limiter| limiter.settle(hold, actual as u64, instant(now)));
        debt.unwrap_or_default() as f64
    })
}

/// Charges what has passed of the key with this hash without asking: in the bucket of the last call for the key, or, unless it is
/// negative, at `late`.
#[wasm_bindgen]
pub fn limiter_catch_up(limiter: u32, low: u32, high: u32, cost: f64, late: f64) {
    shell(|shell| {
        let key = Key::from_hash(u64::from(high) << 32 | u64::from(low));
        if let Some(limiter) = shell.limiters.get(limiter) {
            limiter.catch_up(key, cost as u64, (late >= 0.0).then(|| instant(late)));
        }
    });
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

/// Refuses all requests of a key for so many milliseconds. Returns false if there was no room to note it.
#[wasm_bindgen]
pub fn limiter_block(limiter: u32, slot: u32, millis: f64, now: f64) -> bool {
    shell(|shell| {
        let (key, length) = (shell.limiters.key(slot), crate::time::millis(millis));
        let limiter = shell.limiters.get(limiter);
        limiter.is_some_and(|limiter| limiter.block(key, length, instant(now)))
    })
}

/// Writes a snapshot of a limiter into the buffer, with the seed of its keys. Returns its length.
#[wasm_bindgen]
pub fn limiter_snapshot(limiter: u32, now: f64) -> usize {
    shell(|shell| {
        let out = &mut shell.buffer.text;
        out.clear();
        shell.limiters.snapshot(limiter, shell.seed, now, out);
        let length = out.len();
        shell.buffer.reserve(length.max(TEXT));
        length
    })
}

/// Restores the snapshot in the buffer, taken `elapsed` milliseconds ago. Returns 0; if it cannot be restored, the length of the error
/// message, which is in the buffer.
#[wasm_bindgen]
pub fn limiter_restore(limiter: u32, bytes: usize, elapsed: f64, now: f64) -> f64 {
    shell(|shell| {
        let bytes = shell.buffer.bytes(bytes);
        match shell.limiters.restore(limiter, bytes, elapsed, now) {
            Ok(()) => 0.0,
            Err(error) => shell.buffer.write_text(&error.to_string()),
        }
    })
}
