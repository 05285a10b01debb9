//! Metrics.

use crate::layout::*;
use crate::stats::*;
use crate::time::instant;
use leapgate::stats::Metric;
use wasm_bindgen::prelude::wasm_bindgen;

/// How often an event happened in the window.
#[wasm_bindgen]
pub fn metric_sum(metric: u32, event_index: usize, now: f64) -> f64 {
    read(metric, |metric| {
        Some(metric.sum(event(event_index)?, instant(now)) as f64)
    })
}

/// The same, per second.
#[wasm_bindgen]
pub fn metric_average(metric: u32, event_index: usize, now: f64) -> f64 {
    read(metric, |metric| {
        Some(metric.average(event(event_index)?, instant(now)))
    })
}

/// How often an event happened in the bucket of `at`.
#[wasm_bindgen]
pub fn metric_window_sum(metric: u32, event_index: usize, at: f64) -> f64 {
    read(metric, |metric| {
        Some(metric.window_sum(event(event_index)?, instant(at)) as f64)
    })
}

/// How often an event happened in the bucket before the current one.
#[wasm_bindgen]
pub fn metric_previous(metric: u32, event_index: usize, now: f64) -> f64 {
    read(metric, |metric| {
        Some(metric.previous_window_sum(event(event_index)?, instant(now)) as f64)
    })
}

/// One of the `EXTREME_…` of `layout`. Response times are negative if nothing has completed.
#[wasm_bindgen]
pub fn metric_extreme(metric: u32, which: u32, now: f64) -> f64 {
    let now = instant(now);
    read(metric, |metric| {
        Some(match which {
            EXTREME_MAX_SUCCESS => metric.max_success(now) as f64,
            EXTREME_MIN_RT => metric.min_rt(now) as f64,
            EXTREME_SHORTEST_RT => or_none(metric.shortest_rt(now)),
            EXTREME_MAX_RT => or_none(metric.max_rt(now)),
            EXTREME_MAX_CONCURRENCY => metric.max_concurrency(now) as f64,
            _ => return None,
        })
    })
}

fn read(number_of: u32, read: impl FnOnce(&dyn Metric) -> Option<f64>) -> f64 {
    number(number_of, |held| held.metric(read).flatten())
}

/// Makes a row of each bucket.
#[wasm_bindgen]
pub fn metric_details(metric: u32, now: f64) -> usize {
    rows_of(metric, |held, rows| {
        let details = held.metric(|metric| metric.details(instant(now)))?;
        push_details(rows, &details);
        Some(())
    })
}

/// Borrows `n` passes from the bucket of `at`.
#[wasm_bindgen]
pub fn metric_add_waiting(metric: u32, at: f64, n: f64) {
    with(metric, |held| {
        if let Item::Metric(metric) = held {
            metric.add_waiting(instant(at), n as u64);
        }
        Some(())
    });
}

/// The number of borrowed passes that are not due yet.
#[wasm_bindgen]
pub fn metric_waiting(metric: u32, now: f64) -> f64 {
    number(metric, |held| match held {
        Item::Metric(metric) => Some(metric.waiting(instant(now)) as f64),
        _ => None,
    })
}
