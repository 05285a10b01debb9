//! What JavaScript calls for limits that several processes share.

use crate::lease_node::{Options, Take, moment};
use crate::shell::{Shell, shell};
use wasm_bindgen::prelude::wasm_bindgen;

/// Makes a node, whose id is in the buffer; `when_down` is a position in `WHEN_DOWN` of `layout`, and `random` a random number below
/// 2^53. Returns its number, negative if there is no such window.
#[wasm_bindgen]
pub fn shared_new(
    bytes: usize,
    limit: f64,
    window_ms: f64,
    buckets: u32,
    when_down: u32,
    max_keys: u32,
    random: f64,
) -> f64 {
    let options = Options {
        bytes,
        limit,
        window_ms,
        buckets,
        when_down,
        max_keys,
        random,
    };
    shell(|shell| {
        let Shell {
            nodes,
            buffer,
            seed,
            ..
        } = shell;
        nodes.add(&options, buffer, *seed).map_or(-1.0, f64::from)
    })
}

/// Drops a node: what it has leased counts as used.
#[wasm_bindgen]
pub fn shared_free(node: u32) {
    shell(|shell| shell.nodes.free(node));
}

/// Takes permits for a request, which may wait for the store or not. For the answer and the results see `layout`.
#[wasm_bindgen]
pub fn shared_take(node: u32, slot: u32, cost: f64, monotonic: f64, wall: f64, waits: bool) -> u32 {
    let take = Take {
        node,
        slot,
        cost,
        now: moment(monotonic, wall),
        waits,
    };
    shell(|shell| shell.nodes.take(&take, &mut shell.buffer))
}

/// Gives back permits of a request that turns out not to count.
#[wasm_bindgen]
pub fn shared_give_back(node: u32, slot: u32, cost: f64) {
    shell(|shell| shell.nodes.give_back(node, slot, cost));
}

/// The answer to a message is in the buffer. Returns what it changes, as in `layout`; if it is not an answer, the error message is in the
/// buffer, and its length the first result.
#[wasm_bindgen]
pub fn shared_answered(node: u32, token: f64, bytes: usize, monotonic: f64, wall: f64) -> u32 {
    let now = moment(monotonic, wall);
    shell(|shell| {
        shell
            .nodes
            .answered(node, token, bytes, now, &mut shell.buffer)
    })
}

/// There is no answer to a message. Returns what that changes, as in `layout`.
#[wasm_bindgen]
pub fn shared_lost(node: u32, token: f64, monotonic: f64, wall: f64) -> u32 {
    shell(|shell| shell.nodes.lost(node, token, moment(monotonic, wall)))
}

/// Writes the next message that is due, as `shared_take` does. Returns whether there is one.
#[wasm_bindgen]
pub fn shared_due(node: u32, monotonic: f64, wall: f64) -> bool {
    let now = moment(monotonic, wall);
    shell(|shell| shell.nodes.due(node, now, &mut shell.buffer))
}

/// Makes all that a node has leased due to be given back.
#[wasm_bindgen]
pub fn shared_close(node: u32) {
    shell(|shell| shell.nodes.close(node));
}

/// When the next message is due, by the monotonic clock; negative if none is.
#[wasm_bindgen]
pub fn shared_next_due(node: u32) -> f64 {
    shell(|shell| {
        let node = shell.nodes.get_mut(node);
        let due = node.and_then(|node| node.next_due());
        due.map_or(-1.0, |due| due as f64)
    })
}

/// Results: what a node has done, in the order of `FIGURES` of `layout`.
#[wasm_bindgen]
pub fn shared_figures(node: u32) {
    shell(|shell| shell.nodes.figures(node, &mut shell.buffer.results));
}
