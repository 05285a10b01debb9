//! Leap arrays.

use crate::layout::*;
use crate::stats::*;
use crate::time::instant;
use leapgate::Timestamp;
use leapgate::stats::{MetricBucket, WindowWrap};
use wasm_bindgen::prelude::wasm_bindgen;

/// Makes a row of one bucket: 0 is the current one, which is opened; 1 the one before; 2 the valid head; 3 the bucket of `at`,
/// whether it counts or not.
#[wasm_bindgen]
pub fn array_bucket(array: u32, which: u32, at: f64) -> usize {
    rows_of(array, |held, rows| {
        let (Item::Array(array), at) = (held, instant(at)) else {
            return None;
        };
        let wrap = match which {
            RING_CURRENT => array.current_window(at),
            RING_PREVIOUS => array.previous_window(at)?,
            RING_VALID_HEAD => array.valid_head(at)?,
            RING_OF => {
                push_bucket(rows, array.window().start(at), array.window_value(at)?);
                return Some(());
            }
            _ => return None,
        };
        push_bucket(rows, wrap.start()?, wrap.value());
        Some(())
    })
}

/// Makes rows of the buckets that count at `now`, or of `all` that the ring keeps.
#[wasm_bindgen]
pub fn array_list(array: u32, all: bool, now: f64) -> usize {
    rows_of(array, |held, rows| {
        let Item::Array(array) = held else {
            return None;
        };
        let mut push = |wrap: &WindowWrap<MetricBucket>| {
            push_bucket(rows, wrap.start().unwrap_or(Timestamp::ZERO), wrap.value());
        };
        if all {
            array.list_all().for_each(&mut push);
        } else {
            array.list(instant(now)).for_each(&mut push);
        }
        Some(())
    })
}

/// The slot of the bucket of `at` in the ring.
#[wasm_bindgen]
pub fn array_index(array: u32, at: f64) -> f64 {
    number(array, |held| Some(held.window()?.index(instant(at)) as f64))
}

/// The start of the bucket of `at`.
#[wasm_bindgen]
pub fn array_start(array: u32, at: f64) -> f64 {
    number(array, |held| {
        Some(millis(held.window()?.start(instant(at))))
    })
}
