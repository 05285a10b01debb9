//! Nodes.

use crate::layout::*;
use crate::stats::*;
use crate::time::instant;
use wasm_bindgen::prelude::wasm_bindgen;

/// The number of a node's last second, or of its last minute.
#[wasm_bindgen]
pub fn node_window(node: u32, minute: bool) -> f64 {
    let place = with(node, |held| match held {
        Item::Node(place) => Some(place.clone()),
        _ => None,
    });
    place.map_or(f64::NAN, |place| {
        add(if minute {
            Item::Minute(place)
        } else {
            Item::Second(place)
        })
    })
}

/// One of the values of a node: the `VALUE_…` of `layout`.
#[wasm_bindgen]
pub fn node_value(node: u32, which: u32, now: f64) -> f64 {
    let now = instant(now);
    number(node, |held| {
        let Item::Node(place) = held else { return None };
        let node = place.node();
        Some(match which {
            VALUE_PASS_QPS => node.pass_qps(now),
            VALUE_BLOCK_QPS => node.block_qps(now),
            VALUE_TOTAL_QPS => node.total_qps(now),
            VALUE_SUCCESS_QPS => node.success_qps(now),
            VALUE_EXCEPTION_QPS => node.exception_qps(now),
            VALUE_OCCUPIED_PASS_QPS => node.occupied_pass_qps(now),
            VALUE_MAX_SUCCESS_QPS => node.max_success_qps(now),
            VALUE_AVG_RT => node.avg_rt(now),
            VALUE_MIN_RT => node.min_rt(now),
            VALUE_PREVIOUS_PASS_QPS => node.previous_pass_qps(now),
            VALUE_PREVIOUS_BLOCK_QPS => node.previous_block_qps(now),
            VALUE_TOTAL_REQUEST => node.total_request(now) as f64,
            VALUE_TOTAL_PASS => node.total_pass(now) as f64,
            VALUE_TOTAL_SUCCESS => node.total_success(now) as f64,
            VALUE_TOTAL_EXCEPTION => node.total_exception(now) as f64,
            VALUE_BLOCK_REQUEST => node.block_request(now) as f64,
            VALUE_CUR_THREAD_NUM => node.cur_thread_num() as f64,
            VALUE_WAITING => node.waiting(now) as f64,
            _ => return None,
        })
    })
}

/// Records one of the `RECORD_…` of `layout`; `js/lib/statistics.js` names the arguments `a` and `b` of each.
#[wasm_bindgen]
pub fn node_record(node: u32, what: u32, a: f64, b: f64, now: f64) {
    let (at, now, n) = (instant(a), instant(now), a as u64);
    with(node, |held| {
        let Item::Node(place) = held else { return None };
        let node = place.statistics()?;
        match what {
            RECORD_PASS_REQUEST => node.add_pass_request(n, now),
            RECORD_BLOCK_QPS => node.increase_block_qps(n, now),
            RECORD_EXCEPTION_QPS => node.increase_exception_qps(n, now),
            RECORD_OCCUPIED_PASS => node.add_occupied_pass(n, now),
            RECORD_BEGIN => node.begin(n, now),
            RECORD_RT_AND_SUCCESS => node.add_rt_and_success(n, b as u64, now),
            RECORD_COMPLETE => node.complete(n, b as u64, false, now),
            RECORD_COMPLETE_FAILED => node.complete(n, b as u64, true, now),
            RECORD_WAITING_REQUEST => node.add_waiting_request(at, b as u64),
            RECORD_THREAD_MORE => node.increase_thread_num(),
            RECORD_THREAD_LESS => node.decrease_thread_num(),
            _ => return None,
        }
        Some(())
    });
}

/// How long a request has to wait until a later bucket has room for it.
#[wasm_bindgen]
pub fn node_try_occupy_next(node: u32, acquire: f64, threshold: f64, now: f64) -> f64 {
    number(node, |held| {
        let Item::Node(place) = held else { return None };
        let node = place.statistics()?;
        Some(node.try_occupy_next(acquire as u64, threshold, instant(now)) as f64)
    })
}

/// Makes rows of the seconds of the last minute: the seconds since the last call, or if `raw`, all of them.
#[wasm_bindgen]
pub fn node_metrics(node: u32, raw: bool, now: f64) -> usize {
    let now = instant(now);
    rows_of(node, |held, rows| {
        let Item::Node(place) = held else { return None };
        let node = place.statistics()?;
        let seconds = if raw {
            node.raw_metrics_in_min(now, &|_| true)
        } else {
            node.metrics(now)
        };
        push_details(rows, &seconds);
        Some(())
    })
}
