//! Owners, what they have, and what they may have.

use crate::module::Part;
use anyhow::{Context as _, Result};
use std::fmt;

/// The owner of all that belongs to no other.
const OTHERS: &str = "others";

/// An owner in the file of budgets.
pub(crate) struct Owner {
    path: String,
    /// In bytes.
    budget: usize,
    bytes: usize,
}

/// What each owner has.
pub(crate) struct Report(Vec<Owner>);

/// The owners of a file of budgets. Empty lines and those that begin with `#` are none.
pub(crate) fn read(text: &str) -> Result<Vec<Owner>> {
    let lines = text.lines().map(str::trim);
    lines
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| {
            let owner = line.rsplit_once(' ').and_then(|(path, budget)| {
                let budget: f64 = budget.parse().ok()?;
                Some(Owner {
                    path: path.trim().to_owned(),
                    budget: (budget * 1000.0).round() as usize,
                    bytes: 0,
                })
            });
            owner.with_context(|| format!("`{line}` must be a path and kilobytes"))
        })
        .collect()
}

/// Gives each part to the owner with the longest path that the part's begins with, or to the others.
pub(crate) fn attribute(parts: &[Part], mut owners: Vec<Owner>) -> Report {
    if !owners.iter().any(|owner| owner.path == OTHERS) {
        owners.push(Owner {
            path: OTHERS.to_owned(),
            budget: 0,
            bytes: 0,
        });
    }
    for part in parts {
        let owner = owners
            .iter_mut()
            .filter(|owner| owner.path == OTHERS || owner.owns(&part.path))
            .max_by_key(|owner| (owner.path != OTHERS, owner.path.len()));
        if let Some(owner) = owner {
            owner.bytes += part.bytes;
        }
    }
    Report(owners)
}

impl Owner {
    fn owns(&self, path: &str) -> bool {
        path.strip_prefix(&self.path)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
    }
}

impl Report {
    /// A sentence for each owner that has more than its budget in this file.
    pub(crate) fn complaints(&self, file: &str) -> Vec<String> {
        let over = self.0.iter().filter(|owner| owner.bytes > owner.budget);
        over.map(|owner| {
            format!(
                "`{}` has {} bytes of the module, over its budget of {} in {file}.",
                owner.path, owner.bytes, owner.budget
            )
        })
        .collect()
    }
}

/// A table of owners, the largest first.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = |f: &mut fmt::Formatter<'_>, path: &str, bytes: usize, budget: usize| {
            let [bytes, budget] = [bytes, budget].map(|bytes| bytes as f64 / 1000.0);
            writeln!(f, "{path:<32} {bytes:>7.1} of {budget:>6.1} kB")
        };
        let mut owners: Vec<&Owner> = self.0.iter().collect();
        owners.sort_by_key(|owner| std::cmp::Reverse(owner.bytes));
        for owner in &owners {
            row(f, &owner.path, owner.bytes, owner.budget)?;
        }
        let sum = |of: fn(&Owner) -> usize| owners.iter().map(|owner| of(owner)).sum();
        row(
            f,
            "all",
            sum(|owner| owner.bytes),
            sum(|owner| owner.budget),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(path: &str, bytes: usize) -> Part {
        let path = path.to_owned();
        Part { path, bytes }
    }

    fn report(parts: &[Part], budgets: &str) -> Report {
        attribute(parts, read(budgets).unwrap())
    }

    #[test]
    fn the_longest_path_owns_a_part() {
        let parts = [part("a::b::c", 1), part("a::bc", 2), part("d", 4)];
        let report = report(&parts, "a 1.0\na::b 1.0\nothers 1.0\n");
        let bytes: Vec<usize> = report.0.iter().map(|owner| owner.bytes).collect();
        assert_eq!(bytes, [2, 1, 4]);
        assert!(report.complaints("f").is_empty());
    }

    #[test]
    fn an_owner_over_its_budget_is_complained_about() {
        let report = report(&[part("a::b", 1501)], "# kB\n\na 1.5");
        assert_eq!(
            report.complaints("f"),
            ["`a` has 1501 bytes of the module, over its budget of 1500 in f."]
        );
    }

    #[test]
    fn what_no_owner_has_is_complained_about() {
        let report = report(&[part("b", 7)], "a 1.5");
        assert_eq!(
            report.complaints("f"),
            ["`others` has 7 bytes of the module, over its budget of 0 in f."]
        );
    }

    #[test]
    fn a_line_without_a_number_is_refused() {
        let error = read("a 1.5\nb").err().unwrap();
        assert_eq!(error.to_string(), "`b` must be a path and kilobytes");
    }
}
