//! What a replay reports. `docs/cli.md` describes its JSON.

use super::counts::{Number, Series};
use serde::Serialize;

/// What rules would have done to the traffic of a log.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The version of leapgate.
    pub version: &'static str,
    /// What the format is called.
    pub format: String,
    /// Lines that are not empty.
    pub lines: u64,
    /// Lines that were decided on.
    pub requests: u64,
    /// Of these, how many would have passed, at once or after a wait.
    pub passed: u64,
    /// How many would have been refused.
    pub refused: u64,
    /// How many would have waited for their turn first.
    pub waited: u64,
    /// For how long, together, in milliseconds.
    pub waited_ms: u64,
    /// The longest wait, in milliseconds.
    pub longest_wait_ms: u64,
    /// How many lines say that the request was answered 429 then.
    pub answered429: u64,
    /// The time of the first request, in milliseconds since 1970.
    pub from_ms: u64,
    /// The time of the last one.
    pub to_ms: u64,
    /// Lines that were not decided on.
    pub skipped: Skipped,
    /// Requests that were more than a minute behind, and were decided at the newest time.
    pub late: u64,
    /// The rules, in the order in which they are asked.
    pub rules: Vec<RuleReport>,
    /// The keys that were refused most, at most 10.
    pub keys: Vec<KeyReport>,
    /// Requests over time.
    pub series: Series,
    /// The clients.
    pub clients: Clients,
    /// What else there is to know, a sentence each.
    pub notes: Vec<String>,
}

/// Lines that were not decided on.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Skipped {
    /// How many.
    pub count: u64,
    /// The first of them, at most 5.
    pub first: Vec<SkippedLine>,
}

/// A line that was not decided on.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SkippedLine {
    /// Its number, from 1, over all files.
    pub line: u64,
    /// Why.
    pub why: String,
}

/// A rule.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RuleReport {
    /// Its id.
    pub id: String,
    /// `authority`, `ban`, `system`, `degrade`, `flow`, or `api`.
    pub kind: &'static str,
    /// What it does.
    pub words: String,
    /// What it is for.
    pub resource: String,
    /// Whether it would only have counted: it, or the document, is in shadow mode.
    pub shadow: bool,
    /// How many requests came to its resource.
    pub requests: u64,
    /// How many of them it would have been the first to refuse; in shadow mode, would have refused if it were in force.
    pub refused: u64,
    /// How many of them would have waited for it.
    pub waited: u64,
    /// Why it was not replayed; it has no numbers then.
    pub not_replayed: Option<String>,
    /// The smallest limit that refuses little.
    pub suggestion: Option<Suggestion>,
    /// Why there is none.
    pub no_suggestion: Option<String>,
}

/// The smallest limit by which a rule alone would have refused fewer than a share of the requests that came to it.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Suggestion {
    /// The share, in percent.
    #[cfg_attr(not(feature = "program"), serde(serialize_with = "whole"))]
    pub refuse_less_than: f64,
    /// The smallest count with which the rule refuses less.
    pub count: u64,
    /// How many requests it refuses with that count.
    pub refused: u64,
    /// How many it refuses with one less; `None` where the count is 0.
    pub refused_with_one_less: Option<u64>,
    /// Of how many requests: of the first ones, if there were more than are kept.
    pub requests: u64,
    /// Whether there were more.
    pub of_first: bool,
}

/// A key that was refused.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KeyReport {
    /// The rule that refused it.
    pub rule: String,
    /// The key; of a rule without one, the client's address.
    pub key: String,
    /// How often.
    pub refused: u64,
    /// By how much that may be too much: 0 unless more than 8,192 keys were refused.
    pub at_most_over: u64,
}

/// The clients, by their addresses.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Clients {
    /// Whether the log has addresses of clients.
    pub known: bool,
    /// How many there were.
    pub seen: Number,
    /// How many would have been refused at least once.
    pub refused: Number,
    /// Of the refused: those whose user agent is that of a browser.
    pub browsers: Group,
    /// Those whose user agent is that of a library, a tool or a crawler.
    pub tools: Group,
    /// Others, and those without one.
    pub others: Group,
}

/// Refused clients whose user agents look alike. A client may be in several groups.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Group {
    /// Refused requests.
    pub requests: u64,
    /// Clients.
    pub clients: Number,
}

/// As a whole number: a page has no other, and need not load what writes fractions.
#[cfg(not(feature = "program"))]
fn whole<S: serde::Serializer>(percent: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(*percent as u64)
}
