//! Makes statistics that are not part of an engine, from options.

use crate::shell::shell;
use crate::stats::{Item, NodeRef, add, with};
use crate::tree;
use leapgate::config::{Fields, Located};
use leapgate::rule::{MAX_SAMPLE_COUNT, RuleGeometry};
use leapgate::stats::{
    ArrayMetric, BucketLeapArray, LoanRule, Metric, StatisticNode, View, Window,
};
use std::rc::Rc;
use wasm_bindgen::prelude::wasm_bindgen;

const GEOMETRY: [&str; 2] = ["intervalMs", "sampleCount"];
const BORROWING: [&str; 3] = ["intervalMs", "sampleCount", "untouched"];
const UNTOUCHED: [&str; 1] = ["untouched"];

/// A sentence that names the wrong option, its value and the cure.
struct Sentence(String);

impl<E: std::fmt::Display> From<E> for Sentence {
    fn from(error: E) -> Sentence {
        Sentence(error.to_string())
    }
}

fn geometry(fields: &Fields<'_>) -> Result<Window, Sentence> {
    let interval = fields.need("intervalMs")?;
    let interval_ms = interval.integer(1..=Window::MAX_INTERVAL_MS)?;
    let samples = fields.get("sampleCount");
    let sample_count = match &samples {
        Some(samples) => Some(samples.integer(1..=MAX_SAMPLE_COUNT.into())? as u32),
        None => None,
    };
    let geometry = RuleGeometry::new(interval_ms, sample_count).map_err(|error| {
        // All other options are checked: the number of buckets is wrong, if it is given.
        format!("{}: {error}", samples.unwrap_or(interval))
    })?;
    Ok(geometry.window())
}

fn untouched(fields: &Fields<'_>) -> Result<LoanRule, Sentence> {
    let choices = [("kept", LoanRule::Exact), ("lost", LoanRule::Sentinel)];
    match fields.get("untouched") {
        Some(given) => Ok(given.one_of(&choices)?),
        None => Ok(LoanRule::Exact),
    }
}

fn array(at: &Located<'_>) -> Result<Item, Sentence> {
    let window = geometry(&at.object(&GEOMETRY)?)?;
    Ok(Item::Array(Box::new(BucketLeapArray::new(window))))
}

fn metric(at: &Located<'_>) -> Result<Item, Sentence> {
    let fields = at.object(&BORROWING)?;
    let (window, untouched) = (geometry(&fields)?, untouched(&fields)?);
    let metric = ArrayMetric::borrowing(window, window, untouched);
    Ok(Item::Metric(Rc::new(metric)))
}

fn node(at: &Located<'_>) -> Result<Item, Sentence> {
    let node = StatisticNode::new(untouched(&at.object(&UNTOUCHED)?)?);
    Ok(Item::Node(NodeRef::Alone(Rc::new(node))))
}

fn make(bytes: usize, of: impl FnOnce(&Located<'_>) -> Result<Item, Sentence>) -> f64 {
    let options = shell(|shell| tree::read(shell.buffer.bytes(bytes)));
    match of(&Located::new("options", &options)) {
        Ok(held) => add(held),
        Err(Sentence(sentence)) => -shell(|shell| shell.buffer.write_text(&sentence)),
    }
}

/// Makes a leap array with the options in the buffer. Returns its number; if an option is wrong, minus the length of the error
/// message, which is in the buffer.
#[wasm_bindgen]
pub fn array_new(bytes: usize) -> f64 {
    make(bytes, array)
}

/// The same for a metric.
#[wasm_bindgen]
pub fn metric_new(bytes: usize) -> f64 {
    make(bytes, metric)
}

/// The same for a node.
#[wasm_bindgen]
pub fn node_new(bytes: usize) -> f64 {
    make(bytes, node)
}

/// The same for a coarser view of a metric.
#[wasm_bindgen]
pub fn metric_view(metric: u32, bytes: usize) -> f64 {
    let Some(metric) = with(metric, |held| match held {
        Item::Metric(metric) => Some(Rc::clone(metric)),
        _ => None,
    }) else {
        return f64::NAN;
    };
    make(bytes, |at| {
        let window = geometry(&at.object(&GEOMETRY)?)?;
        let view =
            View::sliding(metric.window(), window).map_err(|error| format!("{at}: {error}"))?;
        Ok(Item::View(metric, view))
    })
}
