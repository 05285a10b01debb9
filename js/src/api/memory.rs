//! What JavaScript calls for stores in memory.

use crate::lease_store::Ask;
use crate::shell::shell;
use wasm_bindgen::prelude::wasm_bindgen;

/// Makes a store.
#[wasm_bindgen]
pub fn store_new() -> u32 {
    shell(|shell| shell.stores.add())
}

/// Drops a store.
#[wasm_bindgen]
pub fn store_free(store: u32) {
    shell(|shell| shell.stores.free(store));
}

/// Answers the request that is behind the key in the buffer. Returns the length of the answer; if it is not a request, minus the length
/// of the error message.
#[wasm_bindgen]
pub fn store_lease(
    store: u32,
    key_bytes: usize,
    text_bytes: usize,
    now_ms: f64,
    uptime_ms: f64,
) -> f64 {
    let ask = Ask {
        store,
        key_bytes,
        text_bytes,
        now_ms,
        uptime_ms,
    };
    shell(|shell| shell.stores.lease(&ask, &mut shell.buffer))
}

/// Writes what is known of a key into the buffer; the first result is when nothing of it counts any more. Returns its length, negative if
/// nothing is known.
#[wasm_bindgen]
pub fn store_snapshot(store: u32, key_bytes: usize) -> f64 {
    shell(|shell| shell.stores.snapshot(store, key_bytes, &mut shell.buffer))
}

/// Knows what is behind the key in the buffer. Returns whether that is possible.
#[wasm_bindgen]
pub fn store_restore(store: u32, key_bytes: usize, text_bytes: usize, over_at_ms: f64) -> bool {
    let ask = Ask {
        store,
        key_bytes,
        text_bytes,
        now_ms: 0.0,
        uptime_ms: 0.0,
    };
    shell(|shell| shell.stores.restore(&ask, over_at_ms, &shell.buffer))
}
