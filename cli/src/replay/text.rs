//! The report as a terminal shows it.

use super::report::{Clients, Report, RuleReport};
use super::{Number, Series};
use crate::text::{count, grouped, percent, span};
use std::fmt::Write as _;

/// How many bars a line of time has at most.
const BARS: usize = 60;

/// The report in words.
pub fn text(report: &Report) -> String {
    if report.lines == 0 {
        return "The log has no lines.\n".into();
    }
    let mut text = String::new();
    write_lines(&mut text, report);
    if report.requests > 0 {
        let _ = writeln!(
            text,
            "\n{} pass, {} would have been refused ({}){}.",
            grouped(report.passed),
            grouped(report.refused),
            percent(report.refused, report.requests),
            match report.waited {
                0 => String::new(),
                n => format!(
                    "; {} would have waited first, for {} on average and {} at most",
                    grouped(n),
                    span(report.waited_ms / n),
                    span(report.longest_wait_ms)
                ),
            }
        );
    }
    text += "\nRules, in the order in which they are asked:\n";
    report
        .rules
        .iter()
        .for_each(|rule| write_rule(&mut text, rule));
    if report.refused > 0 {
        write_time(&mut text, &report.series);
        text += "\nRefused most often:\n";
        for key in &report.keys {
            let over = match key.at_most_over {
                0 => String::new(),
                n => format!(" (at most {} too many)", grouped(n)),
            };
            let _ = writeln!(
                text,
                "  {:>9}{over}  {}  by {}",
                grouped(key.refused),
                shown(&key.key),
                key.rule
            );
        }
        write_clients(&mut text, &report.clients, report.refused);
    }
    if !report.notes.is_empty() {
        text += "\nNote:\n";
        for note in &report.notes {
            let _ = writeln!(text, "  {note}");
        }
    }
    text
}

fn write_lines(text: &mut String, report: &Report) {
    let _ = write!(
        text,
        "{} of the format `{}`",
        count(report.lines, "line"),
        report.format
    );
    if report.requests > 0 {
        let _ = write!(
            text,
            ", over {}",
            rough_span(report.to_ms.saturating_sub(report.from_ms))
        );
    }
    let skipped = &report.skipped;
    let _ = match skipped.count {
        0 => writeln!(text, "."),
        1 => writeln!(text, "; 1 was skipped:"),
        n => writeln!(text, "; {} were skipped, the first of them:", grouped(n)),
    };
    for line in &skipped.first {
        let _ = writeln!(text, "  line {}: {}", line.line, line.why);
    }
}

fn write_rule(text: &mut String, rule: &RuleReport) {
    let _ = writeln!(text, "  {} ({}): {}", rule.id, rule.kind, rule.words);
    if let Some(why) = &rule.not_replayed {
        let _ = writeln!(text, "      not replayed: {why}");
        return;
    }
    let verb = if rule.shadow {
        "would be refused if it were in force"
    } else {
        "refused"
    };
    let _ = write!(
        text,
        "      {} of {} {verb} ({})",
        grouped(rule.refused),
        count(rule.requests, "request"),
        percent(rule.refused, rule.requests)
    );
    let _ = match rule.waited {
        0 => writeln!(text),
        n => writeln!(text, ", {} wait", grouped(n)),
    };
    if let Some(found) = &rule.suggestion {
        let of = match found.of_first {
            true => format!(" of the first {}", grouped(found.requests)),
            false => String::new(),
        };
        let less = match found.refused_with_one_less {
            Some(refused) => format!(
                "; with {}, {}",
                grouped(found.count.saturating_sub(1)),
                grouped(refused)
            ),
            None => String::new(),
        };
        let _ = writeln!(
            text,
            "      the smallest count that refuses fewer than {} %{of}, by itself: {} (it refuses {}{less})",
            found.refuse_less_than,
            grouped(found.count),
            grouped(found.refused)
        );
    } else if let Some(why) = &rule.no_suggestion {
        let _ = writeln!(text, "      no smallest count: {why}");
    }
}

/// Requests and refusals over time, a bar for each bin.
fn write_time(text: &mut String, series: &Series) {
    let together = series.requests.len().div_ceil(BARS).max(1);
    let bars = |bins: &[u64], most: u64| -> String {
        let heights = bins.chunks(together).map(|bins| bins.iter().sum::<u64>());
        heights.map(|n| bar(n, most)).collect()
    };
    let most = |bins: &[u64]| {
        bins.chunks(together)
            .map(|bins| bins.iter().sum::<u64>())
            .max()
            .unwrap_or(0)
    };
    let _ = writeln!(
        text,
        "\nOver time, a bar is {}:",
        rough_span(series.width_ms * together as u64)
    );
    for (name, bins) in [
        ("requests", &series.requests),
        ("refused", &series.refused),
        ("waited", &series.waited),
    ] {
        let most = most(bins);
        if most > 0 {
            let _ = writeln!(
                text,
                "  {name:<9} {}  up to {}",
                bars(bins, most),
                grouped(most)
            );
        }
    }
}

fn bar(n: u64, most: u64) -> char {
    const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    match n {
        0 => ' ',
        n => *HEIGHTS
            .get((n * 8).div_ceil(most.max(1)).clamp(1, 8) as usize - 1)
            .unwrap_or(&'█'),
    }
}

fn write_clients(text: &mut String, clients: &Clients, refused: u64) {
    if !clients.known {
        text.push_str("\nThe log has no addresses of clients.\n");
        return;
    }
    let _ = writeln!(
        text,
        "\n{} of {} would have been refused at least once. By their user agents, which anybody can choose:",
        number(clients.refused),
        match clients.seen.count {
            1 => "1 client".into(),
            _ => format!("{} clients", number(clients.seen)),
        }
    );
    let groups = [
        ("look like browsers", clients.browsers),
        ("say that they are tools or crawlers", clients.tools),
        ("say neither", clients.others),
    ];
    for (what, group) in groups {
        let _ = writeln!(
            text,
            "  {:>9} {what}, with {} of the refusals",
            number(group.clients),
            percent(group.requests, refused)
        );
    }
}

fn number(number: Number) -> String {
    match number.estimated {
        true => format!("about {}", grouped(number.count)),
        false => grouped(number.count),
    }
}

/// A key without what would move a cursor.
fn shown(key: &str) -> String {
    key.chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

/// A span in its largest unit, to a tenth.
fn rough_span(ms: u64) -> String {
    let units = [
        (86_400_000.0, "days"),
        (3_600_000.0, "h"),
        (60_000.0, "min"),
        (1000.0, "s"),
    ];
    let unit = units.into_iter().find(|(length, _)| ms as f64 >= *length);
    match unit {
        Some((length, unit)) => format!("{} {unit}", (ms as f64 / length * 10.0).round() / 10.0),
        None => format!("{ms} ms"),
    }
}
