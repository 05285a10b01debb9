//! What JavaScript calls for statistics alone, and for the statistics of an engine.

mod array;
mod make;
mod metric;
mod node;
mod tree;

pub use self::{array::*, make::*, metric::*, node::*, tree::*};
use crate::layout::WINDOW;
use crate::stats::*;
use crate::time::instant;
use wasm_bindgen::prelude::wasm_bindgen;

/// Where the latest rows are. They move with each call that makes rows.
#[wasm_bindgen]
pub fn stats_rows() -> *const f64 {
    rows()
}

/// Drops the object with this number.
#[wasm_bindgen]
pub fn stats_free(number: u32) {
    free(number);
}

/// Makes a row of the length of the window, in milliseconds, and the number of its buckets.
#[wasm_bindgen]
pub fn stats_window(number: u32) -> usize {
    rows_of(number, |held, rows| {
        let window = held.window()?;
        let row: [f64; WINDOW.len()] = [window.interval_ms() as f64, window.sample_count().into()];
        rows.extend(row);
        Some(())
    })
}

/// Records `n` of an event, in the current bucket of an array or a metric.
#[wasm_bindgen]
pub fn stats_add(number: u32, event_index: usize, n: f64, now: f64) {
    with(number, |held| {
        held.bucket(instant(now))?
            .add(event(event_index)?, n as u64);
        Some(())
    });
}

/// Records a response time in the current bucket.
#[wasm_bindgen]
pub fn stats_add_rt(number: u32, rt: f64, now: f64) {
    with(number, |held| {
        held.bucket(instant(now))?.add_rt(rt as u64);
        Some(())
    });
}

/// Records the number of calls in flight in the current bucket.
#[wasm_bindgen]
pub fn stats_update_concurrency(number: u32, in_flight: f64, now: f64) {
    with(number, |held| {
        let bucket = held.bucket(instant(now))?;
        bucket.update_concurrency(in_flight as u64);
        Some(())
    });
}

/// Opens the current bucket.
#[wasm_bindgen]
pub fn stats_touch(number: u32, now: f64) {
    with(number, |held| {
        match held {
            Item::Node(place) => place.statistics()?.touch(instant(now)),
            held => drop(held.bucket(instant(now))?),
        }
        Some(())
    });
}
