//! The tables of `docs/study.md`, between markers; and the files beside it.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::figures::Figures;
use super::plots;
use crate::table::grouped;

/// A measure of a figure as a table: a row for each structure, a column for each place on the axis.
pub(super) struct Tabled {
    figure: &'static str,
    measure: &'static str,
    /// What is in the cells.
    unit: &'static str,
    /// What stands in the heading behind each place; what the columns are.
    axis: &'static str,
}

const fn tabled(
    figure: &'static str,
    measure: &'static str,
    unit: &'static str,
    axis: &'static str,
) -> Tabled {
    Tabled {
        figure,
        measure,
        unit,
        axis,
    }
}

/// All tables, in the order in which they are printed.
pub(super) const TABLES: [Tabled; 33] = {
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

impl Tabled {
    pub(super) fn title(&self) -> String {
        format!("{}, {}", self.figure, self.measure)
    }

    /// The headings, then a row for each structure; nothing if it was not measured.
    pub(super) fn rows(&self, figures: &Figures) -> Vec<Vec<String>> {
        let curves = figures.curves(self.figure, self.measure);
        let points = curves.iter().flat_map(|curve| &curve.points);
        let mut places: Vec<f64> = points.map(|(x, _)| *x).collect();
        places.sort_by(f64::total_cmp);
        places.dedup();
        if places.is_empty() {
            return Vec::new();
        }
        let heading = |(place, x): (usize, &f64)| match place {
            0 => format!("{} {}", number(*x), self.axis),
            _ => number(*x),
        };
        let headings = places.iter().enumerate().map(heading);
        let mut rows = vec![
            std::iter::once(self.unit.to_owned())
                .chain(headings)
                .collect(),
        ];
        for curve in curves {
            let value = |x: &f64| curve.at(*x).map_or("-".to_owned(), number);
            let values = places.iter().map(value);
            rows.push(
                std::iter::once(curve.structure.clone())
                    .chain(values)
                    .collect(),
            );
        }
        rows
    }

    fn markdown(&self, figures: &Figures) -> String {
        let mut lines = Vec::new();
        for (number, row) in self.rows(figures).into_iter().enumerate() {
            lines.push(format!("| {} |\n", row.join(" | ")));
            if number == 0 {
                lines.push(format!("|---|{}\n", "---:|".repeat(row.len() - 1)));
            }
        }
        lines.concat()
    }
}

/// Two to four digits.
fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 999.5 => grouped(value),
        size if size >= 99.95 || size.fract() == 0.0 => format!("{value:.0}"),
        size if size >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

/// The figures that the document is made of.
pub(super) fn kept() -> Result<Figures> {
    let path = docs().join("study/figures.csv");
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    Figures::from_csv(&text)
}

/// Writes all that is made of the figures, and them.
pub(super) fn write(figures: &Figures) -> Result<()> {
    for (name, text) in made_of(figures)? {
        let path = docs().join(name);
        std::fs::write(&path, text).with_context(|| path.display().to_string())?;
    }
    println!("Written: docs/study.md and docs/study/.");
    Ok(())
}

/// The files that are made of the figures: names below `docs/`, and contents.
fn made_of(figures: &Figures) -> Result<Vec<(String, String)>> {
    let document = std::fs::read_to_string(docs().join("study.md")).context("docs/study.md")?;
    let mut files = vec![
        ("study/figures.csv".to_owned(), figures.to_csv()),
        ("study.md".to_owned(), with_tables(&document, figures)?),
    ];
    for plot in plots::ALL {
        files.push((format!("study/{}.svg", plot.name), plot.draw(figures)?));
    }
    Ok(files)
}

/// The document with the table of the figures behind each marker `<!-- table: FIGURE, MEASURE -->`, up to `<!-- end -->`.
fn with_tables(document: &str, figures: &Figures) -> Result<String> {
    const BEGIN: &str = "<!-- table: ";
    const END: &str = "<!-- end -->";
    let mut parts = document.split(BEGIN);
    let mut made = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (title, rest) = part.split_once(" -->").context("a marker does not end")?;
        let table = TABLES.iter().find(|table| table.title() == title);
        let table = table.with_context(|| format!("there is no table `{title}`"))?;
        let (_, rest) = rest
            .split_once(END)
            .with_context(|| format!("the table `{title}` does not end"))?;
        made += &format!("{BEGIN}{title} -->\n{}{END}{rest}", table.markdown(figures));
    }
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_two_to_four_digits() {
        let numbers = [0.0, 0.014, 1.0, 9.994, 12.34, 99.97, 123.4, 1234.5, 0.1].map(number);
        assert_eq!(
            numbers,
            [
                "0", "0.01", "1", "9.99", "12.3", "100", "123", "1 234", "0.10"
            ]
        );
    }

    #[test]
    fn the_document_its_plots_and_its_figures_belong_together() {
        for (name, text) in made_of(&kept().unwrap()).unwrap() {
            let file = std::fs::read_to_string(docs().join(&name)).unwrap();
            assert!(
                file == text,
                "docs/{name} is not made of docs/study/figures.csv; run ./build.sh bench study"
            );
        }
    }

    #[test]
    fn each_plot_is_shown() {
        let document = std::fs::read_to_string(docs().join("study.md")).unwrap();
        for plot in plots::ALL {
            assert!(
                document.contains(&format!("(study/{}.svg)", plot.name)),
                "{}",
                plot.name
            );
        }
    }

    /// The sentences of the document that compare, in its order.
    #[test]
    fn what_the_document_says_follows_from_the_figures() {
        const LEAPGATE: &str = "leapgate's window";
        const COUNTS: &str = "array: running counts";
        const LIST: &str = "list: running total";
        const POOLED: &str = "list: running total; pooled";
        const SUMMED: [&str; 2] = ["array: summed", "list: summed"];
        const TOKENS: &str = "token bucket";
        let kept = kept().unwrap();
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
            assert!(of(COUNTS) < of(LEAPGATE), "{buckets}");
            // "About as dear as the list with a total."
            let ratio = of(LEAPGATE) / of(LIST);
            assert!((0.85..1.15).contains(&ratio), "{buckets}: {ratio}");
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
        // "The pooled list is the cheaper one at a hundredth of a request in a bucket, and leapgate's window the dearest."
        let of = |structure: &str| value("rate", "instructions", structure, 0.01);
        assert!(of(POOLED) < of(COUNTS) && of(COUNTS) < of(LIST));
        let others = [COUNTS, LIST, POOLED, SUMMED[0], SUMMED[1], TOKENS];
        assert!(others.iter().all(|other| of(LEAPGATE) > of(other)));
        // "A list pays for a new bucket with an allocation."
        assert_eq!(value("rate", "allocations", LIST, 1.0), 1e6);
        for other in [LEAPGATE, COUNTS, POOLED, SUMMED[0], TOKENS] {
            assert_eq!(value("rate", "allocations", other, 1.0), 0.0, "{other}");
        }
        // After a pause.
        let of = |structure: &str| value("idle", "instructions", structure, 600.0);
        assert!(of(COUNTS) < of(SUMMED[0]) && of(SUMMED[0]) < of(POOLED));
        assert!(of(POOLED) < of(LEAPGATE) && of(LEAPGATE) < of(LIST));
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
