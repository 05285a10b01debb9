//! Tables on a terminal.

/// Rows of text under headings; the first column is flush left, the others flush right.
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(headings: &[&str]) -> Self {
        Self {
            rows: vec![
                headings
                    .iter()
                    .map(|heading| (*heading).to_owned())
                    .collect(),
            ],
        }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    pub(crate) fn print(&self) {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.rows
                .iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .max()
        };
        let widths: Vec<usize> = (0..columns)
            .map(|column| width(column).unwrap_or(0))
            .collect();
        for (number, row) in self.rows.iter().enumerate() {
            let cells = row
                .iter()
                .zip(&widths)
                .enumerate()
                .map(|(column, (cell, width))| match column {
                    0 => format!("{cell:<width$}"),
                    _ => format!("{cell:>width$}"),
                });
            println!("{}", cells.collect::<Vec<_>>().join("  ").trim_end());
            if number == 0 {
                println!(
                    "{}",
                    "-".repeat(widths.iter().sum::<usize>() + 2 * columns.saturating_sub(1))
                );
            }
        }
        println!();
    }
}

/// A heading, and what stands below it in words.
pub(crate) fn section(title: &str, words: &str) {
    println!("== {title}");
    println!("{words}\n");
}

/// A number with a space at each thousand.
pub(crate) fn grouped(number: f64) -> String {
    let digits = format!("{:.0}", number.abs());
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    if number <= -0.5 {
        format!("-{text}")
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::grouped;

    #[test]
    fn thousands_stand_apart() {
        let groups = [0.4, 999.6, 12_345.0, -1_234_567.0].map(grouped);
        assert_eq!(groups, ["0", "1 000", "12 345", "-1 234 567"]);
    }
}
