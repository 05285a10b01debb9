//! The report as a terminal shows it.

use super::report::{Report, RuleReport};
use crate::text::{count, grouped, percent};
use std::fmt::Write as _;

/// The report in words.
pub fn text(report: &Report) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{} ({}), {} of them skipped",
        count(report.lines, "line"),
        report.format,
        grouped(report.skipped.count)
    );
    let _ = writeln!(
        text,
        "{}: {} pass, {} refused ({}), {} wait",
        count(report.requests, "request"),
        grouped(report.passed),
        grouped(report.refused),
        percent(report.refused, report.requests),
        grouped(report.waited)
    );
    for rule in &report.rules {
        write_rule(&mut text, rule);
    }
    for note in &report.notes {
        let _ = writeln!(text, "note: {note}");
    }
    text
}

fn write_rule(text: &mut String, rule: &RuleReport) {
    let _ = match &rule.not_replayed {
        Some(why) => writeln!(text, "{}: not replayed: {why}", rule.id),
        None => writeln!(
            text,
            "{}: {} of {} refused",
            rule.id,
            grouped(rule.refused),
            count(rule.requests, "request")
        ),
    };
}
