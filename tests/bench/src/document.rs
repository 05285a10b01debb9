//! Documents that are made of figures: their tables, between markers, and the files beside them.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::figures::Figures;
use crate::plots::Plot;
use crate::table::{Table, grouped};

/// A measure of a figure as a table: a row for each structure, a column for each place on the axis.
pub(crate) struct Tabled {
    figure: &'static str,
    measure: &'static str,
    /// What is in the cells.
    unit: &'static str,
    /// What stands in the heading behind each place; what the columns are.
    axis: &'static str,
}

pub(crate) const fn tabled(
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

impl Tabled {
    pub(crate) fn title(&self) -> String {
        format!("{}, {}", self.figure, self.measure)
    }

    /// The headings, then a row for each structure; nothing if it was not measured.
    pub(crate) fn rows(&self, figures: &Figures) -> Vec<Vec<String>> {
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

/// `docs/NAME.md`, of the figures in `docs/NAME/figures.csv`.
pub(crate) struct Document {
    pub(crate) name: &'static str,
    /// In the order in which they are printed.
    pub(crate) tables: &'static [Tabled],
    pub(crate) plots: &'static [Plot],
}

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

impl Document {
    /// Prints all tables that have figures.
    pub(crate) fn print(&self, figures: &Figures) {
        for table in self.tables {
            let mut rows = table.rows(figures).into_iter();
            let Some(headings) = rows.next() else {
                continue;
            };
            println!("{}", table.title());
            let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
            let mut printed = Table::new(&headings);
            rows.for_each(|row| printed.row(row));
            printed.print();
        }
    }

    /// The figures that the document is made of.
    pub(crate) fn kept(&self) -> Result<Figures> {
        let path = docs().join(self.name).join("figures.csv");
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        Figures::from_csv(&text)
    }

    /// Writes all that is made of the figures, and them.
    pub(crate) fn write(&self, figures: &Figures) -> Result<()> {
        let name = self.name;
        for (file, text) in self.made_of(figures)? {
            let path = docs().join(file);
            if let Some(folder) = path.parent() {
                std::fs::create_dir_all(folder)?;
            }
            std::fs::write(&path, text).with_context(|| path.display().to_string())?;
        }
        println!("Written: docs/{name}.md and docs/{name}/.");
        Ok(())
    }

    /// The files that are made of the figures: names below `docs/`, and contents.
    fn made_of(&self, figures: &Figures) -> Result<Vec<(String, String)>> {
        let name = self.name;
        let file = format!("{name}.md");
        let document = std::fs::read_to_string(docs().join(&file)).context(file.clone())?;
        let mut files = vec![
            (format!("{name}/figures.csv"), figures.to_csv()),
            (file, self.with_tables(&document, figures)?),
        ];
        for plot in self.plots {
            files.push((format!("{name}/{}.svg", plot.name), plot.draw(figures)?));
        }
        Ok(files)
    }

    /// The document with the table of the figures behind each marker `<!-- table: FIGURE, MEASURE -->`, up to `<!-- end -->`.
    fn with_tables(&self, document: &str, figures: &Figures) -> Result<String> {
        const BEGIN: &str = "<!-- table: ";
        const END: &str = "<!-- end -->";
        let mut parts = document.split(BEGIN);
        let mut made = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (title, rest) = part.split_once(" -->").context("a marker does not end")?;
            let table = self.tables.iter().find(|table| table.title() == title);
            let table = table.with_context(|| format!("there is no table `{title}`"))?;
            let (_, rest) = rest
                .split_once(END)
                .with_context(|| format!("the table `{title}` does not end"))?;
            made += &format!("{BEGIN}{title} -->\n{}{END}{rest}", table.markdown(figures));
        }
        Ok(made)
    }
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

    const ALL: [&Document; 2] = [&crate::study::DOCUMENT, &crate::growth::DOCUMENT];

    #[test]
    fn a_document_its_plots_and_its_figures_belong_together() {
        for document in ALL {
            for (name, text) in document.made_of(&document.kept().unwrap()).unwrap() {
                let file = std::fs::read_to_string(docs().join(&name)).unwrap();
                let of = document.name;
                assert!(
                    file == text,
                    "docs/{name} is not made of docs/{of}/figures.csv; run ./build.sh bench {of}"
                );
            }
        }
    }

    #[test]
    fn each_plot_is_shown() {
        for document in ALL {
            let of = document.name;
            let text = std::fs::read_to_string(docs().join(format!("{of}.md"))).unwrap();
            for plot in document.plots {
                let shown = format!("({of}/{}.svg)", plot.name);
                assert!(text.contains(&shown), "{shown}");
            }
        }
    }
}
