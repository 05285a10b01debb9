//! The report as one file that a browser shows, with plots: `cli/report/` has its page, its styles and the script that draws it.

use std::fmt::Write as _;

const PAGE: &str = include_str!("../report/report.html");

/// What stands in the page's places. The report is last: its texts, which are a log's, are not looked through for places.
const PARTS: [(&str, &str); 6] = [
    ("/*{uplot.css}*/", include_str!("../report/uPlot.min.css")),
    ("/*{report.css}*/", include_str!("../report/report.css")),
    ("{version}", env!("CARGO_PKG_VERSION")),
    ("{uplot.license}", include_str!("../report/uPlot.LICENSE")),
    (
        "/*{uplot.js}*/",
        include_str!("../report/uPlot.iife.min.js"),
    ),
    ("/*{report.js}*/", include_str!("../report/report.js")),
];

/// The page of a report, which is the JSON of a [`Report`](crate::replay::Report). It needs no other file.
pub fn html(report_json: &str) -> String {
    let page = PARTS.iter().fold(PAGE.to_owned(), |page, (place, part)| {
        page.replacen(place, part, 1)
    });
    page.replacen("{report}", &inert(report_json), 1)
}

/// JSON as it can stand in a `<script>`: nothing in it ends the element, or opens a comment. Outside of texts JSON has no such
/// characters, and in texts they may be escaped.
fn inert(json: &str) -> String {
    let mut text = String::with_capacity(json.len() + json.len() / 16);
    for character in json.chars() {
        match character {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(text, "\\u{:04x}", u32::from(character));
            }
            character => text.push(character),
        }
    }
    text
}
