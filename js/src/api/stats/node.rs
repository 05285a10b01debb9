//! Nodes.

use crate::stats::*;
use crate::time::instant;
use wasm_bindgen::prelude::wasm_bindgen;

/// The number of a node's last second, or of its last minute.
#[wasm_bindgen]
pub fn node_window(node: u32, minute: bool) -> f64 {
    let place = with(node, |held| match held {
        Held::Node(place) => Some(place.clone()),
        _ => None,
    });
    place.map_or(f64::NAN, |place| {
        add(if minute {
            Held::Minute(place)
        } else {
            Held::Second(place)
        })
    })
}

/// One of the values of a node: `js/lib/stats.js` has their names, in this order.
#[wasm_bindgen]
pub fn node_value(node: u32, which: u32, now: f64) -> f64 {
    let now = instant(now);
    number(node, |held| {
        let Held::Node(place) = held else { return None };
        let node = place.node();
        Some(match which {
            0 => node.pass_qps(now),
            1 => node.block_qps(now),
            2 => node.total_qps(now),
            3 => node.success_qps(now),
            4 => node.exception_qps(now),
            5 => node.occupied_pass_qps(now),
            6 => node.max_success_qps(now),
            7 => node.avg_rt(now),
            8 => node.min_rt(now),
            9 => node.previous_pass_qps(now),
            10 => node.previous_block_qps(now),
            11 => node.total_request(now) as f64,
            12 => node.total_pass(now) as f64,
            13 => node.total_success(now) as f64,
            14 => node.total_exception(now) as f64,
            15 => node.block_request(now) as f64,
            16 => node.cur_thread_num() as f64,
            _ => node.waiting(now) as f64,
        })
    })
}

/// Records something: `js/lib/stats.js` has the names, in this order, and what `a` and `b` are.
#[wasm_bindgen]
pub fn node_record(node: u32, what: u32, a: f64, b: f64, now: f64) {
    let (at, now, n) = (instant(a), instant(now), a as u64);
    with(node, |held| {
        let Held::Node(place) = held else { return None };
        let node = place.statistics()?;
        match what {
            0 => node.add_pass_request(n, now),
            1 => node.increase_block_qps(n, now),
            2 => node.increase_exception_qps(n, now),
            3 => node.add_occupied_pass(n, now),
            4 => node.begin(n, now),
            5 => node.add_rt_and_success(n, b as u64, now),
            6 => node.complete(n, b as u64, false, now),
            7 => node.complete(n, b as u64, true, now),
            8 => node.add_waiting_request(at, b as u64),
            9 => node.increase_thread_num(),
            _ => node.decrease_thread_num(),
        }
        Some(())
    });
}

/// For how long a request has to wait until a bucket to come can pay for it.
#[wasm_bindgen]
pub fn node_try_occupy_next(node: u32, acquire: f64, threshold: f64, now: f64) -> f64 {
    number(node, |held| {
        let Held::Node(place) = held else { return None };
        let node = place.statistics()?;
        Some(node.try_occupy_next(acquire as u64, threshold, instant(now)) as f64)
    })
}

/// Tells the seconds of the last minute: those that are news, or `raw`, all of them.
#[wasm_bindgen]
pub fn node_metrics(node: u32, raw: bool, now: f64) -> usize {
    let now = instant(now);
    tell(node, |held, told| {
        let Held::Node(place) = held else { return None };
        let node = place.statistics()?;
        let seconds = if raw {
            node.raw_metrics_in_min(now, &|_| true)
        } else {
            node.metrics(now)
        };
        tell_details(told, &seconds);
        Some(())
    })
}
