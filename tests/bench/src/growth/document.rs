//! `docs/growth.md`: its tables, its plots, and what its sentences say of its figures.

use crate::document::{Document, Tabled, tabled};
use crate::plots::Plot;

pub(crate) const DOCUMENT: Document = Document {
    name: "growth",
    tables: &TABLES,
    plots: &PLOTS,
};

const TABLES: [Tabled; 8] = [
    tabled("rules", "cost", "instructions; operators", "rules"),
    tabled("rules", "bytes", "bytes of a rule", "rules"),
    tabled("buckets", "cost", "instructions; operators", "buckets"),
    tabled("buckets", "bytes", "bytes of a rule", "buckets"),
    tabled("keys", "cost", "instructions; operators", "keys"),
    tabled("keys", "ns", "ns", "keys"),
    tabled("keys", "bytes", "bytes of a key", "keys"),
    tabled("workers", "us", "µs of CPU", "workers"),
];

const fn plot(
    name: &'static str,
    figure: &'static str,
    measure: &'static str,
    caption: &'static str,
) -> Plot {
    Plot {
        name,
        figure,
        measure,
        caption,
        x: figure,
        linear: None,
    }
}

const COST: &str = "Instructions natively, wasm operators in the filter";
const PLOTS: [Plot; 8] = [
    plot("rules", "rules", "cost", COST),
    plot("rules-memory", "rules", "bytes", "Bytes of each rule"),
    plot("buckets", "buckets", "cost", COST),
    plot("buckets-memory", "buckets", "bytes", "Bytes of one rule"),
    plot("keys", "keys", "cost", COST),
    plot(
        "keys-time",
        "keys",
        "ns",
        "Nanoseconds of a decision, natively",
    ),
    plot("keys-memory", "keys", "bytes", "Bytes of each key"),
    plot(
        "workers",
        "workers",
        "us",
        "Microseconds of CPU of a request in Envoy",
    ),
];

#[cfg(test)]
mod tests {
    use super::DOCUMENT;

    /// The largest of a curve's values, of those from `x` on, and the smallest.
    fn range(figure: &str, measure: &str, curve: &str, from: f64) -> (f64, f64) {
        let kept = DOCUMENT.kept().unwrap();
        let curves = kept.curves(figure, measure);
        let found = curves.iter().find(|known| known.structure == curve);
        let values = found.unwrap().points.iter().filter(|(x, _)| *x >= from);
        values.fold((0.0, f64::INFINITY), |(most, least), (_, value)| {
            (value.max(most), value.min(least))
        })
    }

    fn is_flat(figure: &str, measure: &str, curve: &str, from: f64, within: f64) {
        let (most, least) = range(figure, measure, curve, from);
        assert!(
            most <= least * (1.0 + within),
            "{figure}, {measure}, {curve}: {least} to {most}"
        );
    }

    fn value(figure: &str, measure: &str, curve: &str, x: f64) -> f64 {
        DOCUMENT
            .kept()
            .unwrap()
            .value(figure, measure, curve, x)
            .unwrap()
    }

    const COSTS: [&str; 4] = [
        "native: admitted",
        "native: refused",
        "filter: admitted",
        "filter: refused",
    ];

    /// The sentences of the document, in its order.
    #[test]
    fn what_the_document_says_follows_from_the_figures() {
        const MILLION: f64 = 1_000_000.0;
        // "From 1 to 10,000 rules a request costs the same, within some per cent."
        for curve in COSTS {
            is_flat("rules", "cost", curve, 1.0, 0.06);
        }
        // "The memory of a rule does not depend on the number of rules."
        for curve in [
            "native: asked for",
            "native: asked for; no statistics",
            "native: not asked for",
        ] {
            is_flat("rules", "bytes", curve, 10.0, 0.15);
        }
        for curve in ["filter: asked for", "filter: not asked for"] {
            is_flat("rules", "bytes", curve, 1000.0, 0.25);
        }
        // "Natively most of it is the statistics."
        let of = |curve| value("rules", "bytes", curve, 1000.0);
        let without = of("native: asked for; no statistics");
        assert!(of("native: asked for") > 2.0 * without);
        // "Its window is made with the first request": one that no request has asked for takes a fraction.
        assert!(of("filter: not asked for") < 0.5 * of("filter: asked for"));
        // "A request reads one number, not each bucket's", and "some per cent at most".
        for curve in COSTS {
            is_flat("buckets", "cost", curve, 2.0, 0.06);
        }
        // "By 8 bytes for each."
        let of = |x| value("buckets", "bytes", "native: not asked for", x);
        let each = (of(600.0) - of(200.0)) / 400.0;
        assert!((each - 8.0).abs() < 0.1, "{each}");
        // "Natively the instructions are those of a hash and a look into one place of a table, however large it is."
        for curve in ["native: admitted", "native: refused"] {
            is_flat("keys", "cost", curve, 1.0, 0.25);
        }
        // "With few keys each comes often, and that is cheaper", and "from there on the curves are flat".
        for curve in ["filter: admitted", "filter: refused"] {
            let of = |x| value("keys", "cost", curve, x);
            assert!(of(10.0) < of(1000.0), "{curve}");
            is_flat("keys", "cost", curve, 1000.0, 0.15);
        }
        // "Time grows with the keys, although the instructions do not."
        let of = |x| value("keys", "ns", "native: admitted", x);
        assert!(of(MILLION) > 2.0 * of(1000.0));
        // "A key takes the same whether there are a thousand or a million of them; a table for a few is larger than they are."
        is_flat("keys", "bytes", "native: asked for", 1000.0, 0.1);
        is_flat("keys", "bytes", "filter: asked for", 1000.0, 0.1);
        let of = |x| value("keys", "bytes", "native: asked for", x);
        assert!(of(1.0) > 2.0 * of(1000.0));
        // "Eight workers do not cost a multiple of one."
        let none = |workers| value("workers", "us", "no filter", workers);
        for curve in ["1 rule", "a key"] {
            let of = |workers| none(workers) + value("workers", "us", curve, workers);
            assert!(of(8.0) < 3.0 * of(1.0), "{curve}");
        }
    }
}
