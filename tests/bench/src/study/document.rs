//! `docs/study.md`: its tables, its plots, and what its sentences say of its figures.

use crate::document::{Document, Tabled, tabled};
use crate::plots::Plot;

pub(crate) const DOCUMENT: Document = Document {
    name: "study",
    tables: &TABLES,
    plots: &PLOTS,
};

const TABLES: [Tabled; 33] = {
    const INSTRUCTIONS: &str = "instructions";
    const NS: &str = "ns";
    const RATIO: &str = "times the time of leapgate's";
    const WASM_NS: &str = "ns in wasm";
    const WASM_RATIO: &str = "times the time of leapgate's, in wasm";
    const BUCKETS: &str = "buckets";
    const RATE: &str = "requests a bucket";
    const GAP: &str = "windows idle";
    const KEYS: &str = "keys";
    const HELD: &str = "requests a window";
    const WORST: &str = "% of the limit in the worst interval";
    const DIFFER: &str = "% of decisions differ from the log's";
    const ADMITTED: &str = "% of what the log admits";
    [
        tabled("buckets", "instructions", INSTRUCTIONS, BUCKETS),
        tabled("buckets", "ns", NS, BUCKETS),
        tabled("buckets", "ratio", RATIO, BUCKETS),
        tabled("buckets", "wasm ns", WASM_NS, BUCKETS),
        tabled("buckets", "wasm ratio", WASM_RATIO, BUCKETS),
        tabled("rate", "instructions", INSTRUCTIONS, RATE),
        tabled("rate", "ns", NS, RATE),
        tabled("rate", "ratio", RATIO, RATE),
        tabled("rate", "wasm ns", WASM_NS, RATE),
        tabled("rate", "wasm ratio", WASM_RATIO, RATE),
        tabled(
            "rate",
            "allocations",
            "allocations in a million decisions",
            RATE,
        ),
        tabled("idle", "instructions", INSTRUCTIONS, BUCKETS),
        tabled("idle", "ratio", RATIO, BUCKETS),
        tabled("idle", "wasm ratio", WASM_RATIO, BUCKETS),
        tabled("gap", "instructions", INSTRUCTIONS, GAP),
        tabled("gap", "ratio", RATIO, GAP),
        tabled("gap", "wasm ratio", WASM_RATIO, GAP),
        tabled("refused", "instructions", INSTRUCTIONS, BUCKETS),
        tabled("refused", "ratio", RATIO, BUCKETS),
        tabled("keys", "ns", NS, KEYS),
        tabled("keys", "ratio", RATIO, KEYS),
        tabled("memory", "bytes", "bytes", HELD),
        tabled("memory", "wasm bytes", "bytes in wasm", HELD),
        tabled("accuracy", "worst adversary", WORST, BUCKETS),
        tabled("accuracy", "worst calm", WORST, BUCKETS),
        tabled("accuracy", "worst flood", WORST, BUCKETS),
        tabled("accuracy", "worst bursts", WORST, BUCKETS),
        tabled("accuracy", "differ calm", DIFFER, BUCKETS),
        tabled("accuracy", "differ flood", DIFFER, BUCKETS),
        tabled("accuracy", "differ bursts", DIFFER, BUCKETS),
        tabled("accuracy", "admitted calm", ADMITTED, BUCKETS),
        tabled("accuracy", "admitted flood", ADMITTED, BUCKETS),
        tabled("accuracy", "admitted bursts", ADMITTED, BUCKETS),
    ]
};

const PLOTS: [Plot; 6] = [
    Plot {
        name: "buckets",
        figure: "buckets",
        measure: "instructions",
        caption: "Instructions of a decision",
        x: "buckets of the window",
        linear: None,
    },
    Plot {
        name: "rate",
        figure: "rate",
        measure: "instructions",
        caption: "Instructions of a decision, 60 buckets",
        x: "requests in a bucket",
        linear: None,
    },
    Plot {
        name: "idle",
        figure: "idle",
        measure: "instructions",
        caption: "Instructions of the first decision after 1 000 idle windows",
        x: "buckets of the window",
        linear: None,
    },
    Plot {
        name: "memory",
        figure: "memory",
        measure: "bytes",
        caption: "Bytes of one key, 60 buckets",
        x: "requests in a window",
        linear: None,
    },
    Plot {
        name: "worst",
        figure: "accuracy",
        measure: "worst adversary",
        caption: "Most that an adversary gets in an interval, % of the limit",
        x: "buckets of the window",
        linear: Some((80.0, 210.0)),
    },
    Plot {
        name: "error",
        figure: "accuracy",
        measure: "differ bursts",
        caption: "Decisions that differ from the exact log's in bursty traffic, %",
        x: "buckets of the window",
        linear: None,
    },
];

#[cfg(test)]
mod tests {
    use super::DOCUMENT;

    /// The sentences of the document that compare, in its order.
    #[test]
    fn what_the_document_says_follows_from_the_figures() {
        const LEAPGATE: &str = "leapgate's window";
        const COUNTS: &str = "array: running counts";
        const LIST: &str = "list: running total";
        const POOLED: &str = "list: running total; pooled";
        const SUMMED: [&str; 2] = ["array: summed", "list: summed"];
        const TOKENS: &str = "token bucket";
        let kept = DOCUMENT.kept().unwrap();
        let value = |figure: &str, measure: &str, structure: &str, x: f64| {
            kept.value(figure, measure, structure, x).unwrap()
        };

        // "An array that keeps running counts takes the fewest instructions wherever several requests share a bucket."
        for buckets in [2.0, 6.0, 20.0, 60.0, 200.0, 600.0] {
            let of = |structure: &str| value("buckets", "instructions", structure, buckets);
            assert!(
                of(COUNTS) < of(POOLED) && of(POOLED) < of(LIST),
                "{buckets}"
            );
            // "Half to three quarters of the instructions that the list with a total does."
            let ratio = of(LEAPGATE) / of(LIST);
            assert!((0.5..0.75).contains(&ratio), "{buckets}: {ratio}");
            assert!(of(LEAPGATE) < of(POOLED), "{buckets}");
            assert!(of(TOKENS) <= of(COUNTS), "{buckets}");
            // "Times follow": in V8, too, what is added up is dearer where there are many buckets.
            if buckets >= 60.0 {
                for summed in SUMMED {
                    assert!(of(summed) > 5.0 * of(LIST), "{summed}, {buckets}");
                    assert!(value("buckets", "ratio", summed, buckets) > 4.0);
                    assert!(value("buckets", "wasm ratio", summed, buckets) > 4.0);
                }
            }
        }
        // "The pooled list is the cheapest of those with buckets at a hundredth of a request in a bucket."
        let of = |structure: &str| value("rate", "instructions", structure, 0.01);
        assert!(of(POOLED) < of(COUNTS) && of(COUNTS) < of(LIST));
        // "leapgate's window takes about three times as many, as many as an array that is summed, and half as many again as the list."
        assert!((2.5..3.2).contains(&(of(LEAPGATE) / of(POOLED))));
        assert!((0.9..1.1).contains(&(of(LEAPGATE) / of(SUMMED[0]))));
        assert!((1.35..1.6).contains(&(of(LEAPGATE) / of(LIST))));
        // "A list pays for a new bucket with an allocation."
        assert_eq!(value("rate", "allocations", LIST, 1.0), 1e6);
        for other in [LEAPGATE, COUNTS, POOLED, SUMMED[0], TOKENS] {
            assert_eq!(value("rate", "allocations", other, 1.0), 0.0, "{other}");
        }
        // After a pause.
        let of = |structure: &str| value("idle", "instructions", structure, 600.0);
        assert!(of(COUNTS) < of(SUMMED[0]) && of(SUMMED[0]) < of(POOLED));
        // "With some 180 instructions more."
        assert!((160.0..200.0).contains(&(of(LEAPGATE) - of(COUNTS))));
        let of = |x: f64| value("gap", "instructions", LIST, x);
        assert!((of(1.0) / of(1000.0) - 1.0).abs() < 0.05);
        // "A third of the list's memory when all buckets are in use", and more than the list's where few are.
        let of = |structure: &str, x: f64| value("memory", "bytes", structure, x);
        assert!(of(COUNTS, 1000.0) < 0.35 * of(POOLED, 1000.0));
        assert!(of(COUNTS, 1000.0) < 0.35 * of(LIST, 1000.0));
        assert!(of(LIST, 10.0) < of(COUNTS, 10.0) && of(POOLED, 10.0) < of(COUNTS, 10.0));
        assert!(of("log of instants", 100_000.0) > 500.0 * of(LIST, 100_000.0));
        assert!(of(TOKENS, 1.0) < 0.25 * of(LIST, 1.0));
        assert!(value("keys", "ratio", COUNTS, 10_000.0) < value("keys", "ratio", LIST, 10_000.0));
        // "Only the strict buckets and the log never admit more than the limit."
        for curve in kept.curves("accuracy", "worst adversary") {
            let holds = ["buckets: strict", "log of instants"].contains(&&*curve.structure);
            for (_, worst) in &curve.points {
                let is_as_said = if holds {
                    *worst == 100.0
                } else {
                    *worst > 190.0 && *worst <= 200.0
                };
                assert!(is_as_said, "{}: {worst}", curve.structure);
            }
        }
        // "More buckets make fewer errors", and "n in n + 1".
        for curve in kept.curves("accuracy", "differ bursts") {
            let falls = curve.points.windows(2).all(|pair| pair[0].1 > pair[1].1);
            assert!(falls, "{}", curve.structure);
        }
        for buckets in [2.0, 6.0, 20.0, 60.0, 200.0, 600.0] {
            let admitted = value("accuracy", "admitted flood", "buckets: strict", buckets);
            let says = 100.0 * buckets / (buckets + 1.0);
            assert!((admitted - says).abs() < 0.6, "{buckets}: {admitted}");
        }
        // "Below the limit, nearly nothing differs, unless buckets are few."
        for curve in kept.curves("accuracy", "differ calm") {
            assert!(curve.at(20.0).unwrap() < 0.5, "{}", curve.structure);
        }
    }
}
