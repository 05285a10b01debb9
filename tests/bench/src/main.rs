//! The figures of this project, as tables. `./build.sh bench` prints them all.
//!
//! - `core`: one window decision, a whole entry and exit and a decision for one of many keys, beside peers that run in the
//!   same rounds; `core keyed`: the last of these alone; `core alone`: entry and exit in a program that has nothing else.
//! - `filter`: what a request costs in the filter, beside the floor (`tests/floor`): exactly, by a host that counts, and in
//!   a real Envoy, by instructions and CPU time; `filter leased`: a leased permit beside a window of the filter's own; `filter
//!   start`: CPU and memory until the first answer, and how long requests wait during updates.
//! - `growth`: what a request costs, and what memory is in use, as rules, buckets, keys and workers grow; it makes `docs/growth.md`.
//!   `growth draw`: makes the document anew, without measuring.
//! - `study`: ways to keep a window (`tests/study`), and what `docs/study.md` is made of; `study quick`: a tenth of it, which leaves
//!   the document as it is; `study draw`: makes the document anew, without measuring. Not
//!
//! Ratios come from measurements that lie next to each other in time, and are what to look at: a
//! shared machine's nanoseconds move by a fifth from hour to hour, its ratios hardly.
#![allow(
    clippy::disallowed_methods,
    reason = "a benchmark reads the clock and waits for processes; nothing here decides on requests"
)]

mod core;
mod document;
mod figures;
mod filter;
mod flood;
mod growth;
mod parallel;
mod plots;
mod soak;
mod statistics;
mod study;
mod table;
mod valgrind;

use anyhow::{Context as _, Result, bail};
use study::Extent;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] => {
            core::run()?;
            filter::run(&filter::PARTS)
        }
        ["core"] => core::run(),
        ["core", "keyed"] => core::run_keyed(),
        ["core", "alone"] => core::run_alone(),
        ["filter"] => filter::run(&filter::PARTS),
        ["filter", parts @ ..] if parts.iter().all(|part| filter::PARTS.contains(part)) => {
            filter::run(parts)
        }
        ["growth"] => growth::run(),
        ["growth", "draw"] => growth::draw(),
        // What valgrind runs.
        ["growth", "enter", figure, curve, number, times] => {
            growth::enter(figure, curve, number, times)
        }
        ["study"] => study::run(Extent::Full),
        ["study", "quick"] => study::run(Extent::Quick),
        ["study", "smoke"] => study::run(Extent::Smoke),
        ["study", "draw"] => study::draw(),
        // What valgrind runs.
        ["study", "decide", case, times, count] => study::decide(case, times, count),
        // What `tests/envoy/bench_fleet.py` runs.
        ["flood", ports, connections, seconds] => flood::run(
            ports,
            connections.parse().context("a number of connections")?,
            seconds.parse().context("a number of seconds")?,
        ),
        // What `tests/envoy/soak.py` runs.
        ["soak", port, sources @ ..] => soak::run(port, sources),
        // What valgrind runs.
        ["repeat", "keyed", peer, keys, rate, times] => core::repeat_keyed(
            peer,
            keys.parse().context("a number of keys")?,
            rate.parse().context("a number of requests")?,
            times.parse().context("a number of times")?,
        ),
        ["repeat", case, times] => core::repeat(case, times.parse().context("a number of times")?),
        _ => bail!(
            "unknown: `{}`; use `core`, `core keyed`, `core alone`, `study`, `study quick`, `growth`, `filter`, or `filter` with some of {:?}",
            words.join(" "),
            filter::PARTS
        ),
    }
}
