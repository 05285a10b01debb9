//! What was measured, as rows of a CSV file: the tables and plots are made from it, on any machine.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context as _, Result, ensure};

const HEADING: &str = "figure,measure,structure,x,value";

/// All figures: by figure and measure, the curve of each structure, in the order in which they came.
#[derive(Default, PartialEq, Debug)]
pub(crate) struct Figures {
    curves: BTreeMap<(String, String), Vec<Curve>>,
}

/// The values of one structure.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Curve {
    pub(crate) structure: String,
    /// In the order of x.
    pub(crate) points: Vec<(f64, f64)>,
}

impl Curve {
    /// The value at `x`. A curve of one point is the same everywhere: what has no buckets costs the same for each number of them.
    pub(crate) fn at(&self, x: f64) -> Option<f64> {
        match self.points.as_slice() {
            [(_, value)] => Some(*value),
            points => points
                .iter()
                .find(|point| point.0 == x)
                .map(|point| point.1),
        }
    }
}

impl Figures {
    /// Adds a value, rounded to four digits.
    pub(crate) fn add(&mut self, figure: &str, measure: &str, structure: &str, x: f64, value: f64) {
        let curves = self
            .curves
            .entry((figure.to_owned(), measure.to_owned()))
            .or_default();
        let place = curves
            .iter()
            .position(|curve| curve.structure == structure)
            .unwrap_or_else(|| {
                curves.push(Curve {
                    structure: structure.to_owned(),
                    points: Vec::new(),
                });
                curves.len() - 1
            });
        if let Some(curve) = curves.get_mut(place) {
            curve.points.push((x, rounded(value)));
            curve.points.sort_by(|a, b| a.0.total_cmp(&b.0));
        }
    }

    /// The curves of a measure of a figure; none if it was not measured.
    pub(crate) fn curves(&self, figure: &str, measure: &str) -> &[Curve] {
        let key = (figure.to_owned(), measure.to_owned());
        self.curves.get(&key).map_or(&[], Vec::as_slice)
    }

    /// One value.
    #[cfg(test)]
    pub(crate) fn value(
        &self,
        figure: &str,
        measure: &str,
        structure: &str,
        x: f64,
    ) -> Result<f64> {
        self.curves(figure, measure)
            .iter()
            .find(|curve| curve.structure == structure)
            .and_then(|curve| curve.at(x))
            .with_context(|| format!("{figure}, {measure}, {structure}: there is no value at {x}"))
    }

    /// As text.
    pub(crate) fn to_csv(&self) -> String {
        let mut text = format!("{HEADING}\n");
        for ((figure, measure), curves) in &self.curves {
            for Curve { structure, points } in curves {
                for (x, value) in points {
                    let _ = writeln!(text, "{figure},{measure},{structure},{x},{value}");
                }
            }
        }
        text
    }

    /// From text.
    pub(crate) fn from_csv(text: &str) -> Result<Self> {
        let mut lines = text.lines();
        ensure!(
            lines.next() == Some(HEADING),
            "the first line is not `{HEADING}`"
        );
        let mut figures = Self::default();
        for line in lines {
            let [figure, measure, structure, x, value] =
                *line.split(',').collect::<Vec<_>>().as_slice()
            else {
                anyhow::bail!("`{line}` does not have five fields");
            };
            let number = |field: &str| {
                field
                    .parse()
                    .with_context(|| format!("`{field}` in `{line}` is not a number"))
            };
            figures.add(figure, measure, structure, number(x)?, number(value)?);
        }
        Ok(figures)
    }
}

/// Four digits are more than any of these figures is good for.
fn rounded(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_as_it_was_written() {
        let mut figures = Figures::default();
        figures.add("buckets", "ns", "b", 600.0, 1.0 / 3.0);
        figures.add("buckets", "ns", "b", 2.0, 123_456.0);
        figures.add("buckets", "ns", "a", 0.01, 0.0);
        let csv = figures.to_csv();
        assert_eq!(
            csv,
            "figure,measure,structure,x,value\nbuckets,ns,b,2,123500\nbuckets,ns,b,600,0.3333\nbuckets,ns,a,0.01,0\n"
        );
        assert_eq!(Figures::from_csv(&csv).unwrap(), figures);
        assert_eq!(figures.value("buckets", "ns", "b", 600.0).unwrap(), 0.3333);
        let error = figures.value("buckets", "ns", "b", 3.0).unwrap_err();
        assert_eq!(error.to_string(), "buckets, ns, b: there is no value at 3");
    }

    #[test]
    fn a_line_that_is_not_a_figure_is_named() {
        let says = |text: &str| Figures::from_csv(text).unwrap_err().to_string();
        assert_eq!(
            says(""),
            "the first line is not `figure,measure,structure,x,value`"
        );
        let line = |line| says(&format!("{HEADING}\n{line}\n"));
        assert_eq!(line("a,b,c"), "`a,b,c` does not have five fields");
        assert_eq!(
            line("a,b,c,1,much"),
            "`much` in `a,b,c,1,much` is not a number"
        );
    }
}
