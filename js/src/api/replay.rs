//! What JavaScript calls to replay a log: one at a time.

use crate::replay::{made, report};
use crate::shell::shell;
use crate::tree;
use wasm_bindgen::prelude::wasm_bindgen;

/// Begins a replay, whose document and options are in the buffer; one that has begun is dropped. Returns 0; if something is wrong, minus the
/// length of the sentence, which is in the buffer.
#[wasm_bindgen]
pub fn replay_new(bytes: usize) -> f64 {
    shell(|shell| {
        let made = made(&tree::read(shell.buffer.bytes(bytes)));
        let made = made.map(|replay| shell.replay = Some(replay));
        shell.buffer.told(made)
    })
}

/// More of the log is in the buffer. Returns as `replay_new`.
#[wasm_bindgen]
pub fn replay_feed(bytes: usize) -> f64 {
    shell(|shell| {
        let bytes = shell.buffer.bytes(bytes);
        let fed = shell
            .replay
            .as_mut()
            .map_or(Ok(()), |replay| replay.feed(bytes));
        shell.buffer.told(fed)
    })
}

/// The log has come to its end: writes the JSON of the report into the buffer, and returns its length; or as `replay_new`.
#[wasm_bindgen]
pub fn replay_finish() -> f64 {
    shell(|shell| match report(shell.replay.take()) {
        Ok(json) => shell.buffer.write_text(&json),
        Err(sentence) => shell.buffer.told(Err(sentence)),
    })
}

/// Drops the replay that has begun.
#[wasm_bindgen]
pub fn replay_drop() {
    shell(|shell| shell.replay = None);
}
