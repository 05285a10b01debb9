//! The page of a report: one file, in which texts of a log stay texts. Real Chromium opens it in site/test/report.test.mjs.

#![cfg(feature = "program")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use leapgate_cli::check::{Target, check};
use leapgate_cli::html::html;
use leapgate_cli::replay::{Options, Replay};

const RULES: &str = r#"{"flowRules": [{"id": "r", "resource": "*", "count": 1, "intervalMs": 60000, "key": ["clientIp"]}]}"#;

/// The JSON of a report of requests with this key and this line that cannot be read.
fn report(client: &str, broken: &str) -> String {
    let checked = check(RULES.as_bytes(), Target::Envoy).unwrap();
    let mut replay = Replay::new(checked.rules, checked.settings, Options::default()).unwrap();
    for second in 0..30 {
        let line = format!(
            "{client} - - [10/Oct/2000:13:55:{second:02} -0700] \"GET /{client} HTTP/1.1\" 200 5 \"-\" \"{client}\"\n"
        );
        replay.feed(line.as_bytes()).unwrap();
    }
    replay.feed(broken.as_bytes()).unwrap();
    serde_json::to_string(&replay.finish().unwrap()).unwrap()
}

/// What the page hands to its script.
fn data(page: &str) -> &str {
    let start = r#"<script type="application/json" id="data">"#;
    let (_, rest) = page.split_once(start).expect("the report has its element");
    rest.split_once("</script>")
        .expect("the element has an end")
        .0
}

#[test]
fn the_page_has_the_report_and_all_its_parts() {
    let json = report("10.0.0.1", "");
    let page = html(&json);
    let read: serde_json::Value = serde_json::from_str(data(&page)).unwrap();
    assert_eq!(
        read,
        serde_json::from_str::<serde_json::Value>(&json).unwrap()
    );
    assert_eq!(read["refused"], 29);
    for part in [
        "function drawReport",
        "var uPlot=",
        ".u-wrap",
        ".report .chart",
        "The MIT License",
    ] {
        assert!(page.contains(part), "{part}");
    }
    for place in ["{uplot", "{report", "{version}"] {
        assert!(!page.contains(place), "{place} is left");
    }
}

#[test]
fn the_page_asks_no_network() {
    let page = html(&report("10.0.0.1", ""));
    assert!(page.contains("default-src 'none'"));
    for attribute in [" src=", " href=", "url(", "@import", "import("] {
        assert!(!page.contains(attribute), "{attribute}");
    }
}

#[test]
fn texts_of_a_log_are_no_markup() {
    let hostile = "</script><script>alert(1)</script><!--<img/src=x/onerror=alert(2)>&amp;\u{2028}\u{2029}{report}{version}";
    let json = report(hostile, hostile);
    assert!(
        json.contains("</script>"),
        "the log's text is in the report: {json}"
    );
    let page = html(&json);
    let data = data(&page);
    assert!(
        !data.contains(['<', '>', '&', '\u{2028}', '\u{2029}']),
        "{data}"
    );
    let read: serde_json::Value = serde_json::from_str(data).unwrap();
    assert_eq!(
        read,
        serde_json::from_str::<serde_json::Value>(&json).unwrap()
    );
    let plain = html(&report("10.0.0.1", ""));
    assert_eq!(
        page.matches("<script").count(),
        plain.matches("<script").count()
    );
}
