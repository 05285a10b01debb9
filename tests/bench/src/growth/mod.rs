//! What a request costs and what memory is in use, as rules, buckets, keys and workers grow: `docs/growth.md`.

mod document;
mod native;

use anyhow::{Context as _, Result};

use crate::figures::Figures;
use crate::filter;
use crate::table::section;

pub(crate) use document::DOCUMENT;

pub(crate) const RULES: [u32; 5] = [1, 10, 100, 1000, 10_000];
pub(crate) const BUCKETS: [u32; 6] = [2, 6, 20, 60, 200, 600];
pub(crate) const KEYS: [u32; 7] = [1, 10, 100, 1000, 10_000, 100_000, 1_000_000];
pub(crate) const WORKERS: [u32; 4] = [1, 2, 4, 8];

/// Measures all of it, prints the tables and makes the document anew.
pub(crate) fn run() -> Result<()> {
    let mut figures = Figures::default();
    native::measure(&mut figures)?;
    filter::grow(&mut figures)?;
    section(
        "growth: what a request costs, and what memory is in use",
        "Natively, instructions; in the filter, wasm operators executed, by a host that counts; of workers, CPU time of a real Envoy.",
    );
    DOCUMENT.print(&figures);
    DOCUMENT.write(&figures)
}

/// Makes the document anew of the figures that are there: after a change of its words or of a plot.
pub(crate) fn draw() -> Result<()> {
    DOCUMENT.write(&DOCUMENT.kept()?)
}

/// What valgrind runs.
pub(crate) fn enter(figure: &str, curve: &str, number: &str, times: &str) -> Result<()> {
    let number = number.parse().context("a number of rules or buckets")?;
    native::enter(
        figure,
        curve,
        number,
        times.parse().context("a number of times")?,
    )
}
