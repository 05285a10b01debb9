//! Tests that the documentation names exist.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::path::{Path, PathBuf};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The sources in `folder` and the folders in it, and their texts.
fn sources(folder: &str) -> Vec<(PathBuf, String)> {
    let (mut files, mut folders) = (Vec::new(), vec![Path::new(ROOT).join(folder)]);
    while let Some(folder) = folders.pop() {
        for file in std::fs::read_dir(folder).unwrap() {
            let file = file.unwrap().path();
            if file.is_dir() {
                folders.push(file);
            } else if file.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&file).unwrap();
                files.push((file, text));
            }
        }
    }
    files
}

/// The names that begin with `differs_from_sentinel_`, in order, each once.
fn names<'a>(text: &'a str, before: &str) -> Vec<&'a str> {
    let begins = format!("{before}differs_from_sentinel_");
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut names: Vec<&str> = text
        .match_indices(&begins)
        .map(|(i, _)| &text[i + before.len()..])
        .map(|rest| &rest[..rest.find(|c| !is_name(c)).unwrap_or(rest.len())])
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

#[test]
fn every_deliberate_difference_from_sentinel_is_listed_and_has_a_test_of_its_name() {
    let tests: String = sources("tests/core")
        .into_iter()
        .map(|(_, text)| text)
        .collect();
    let listed = include_str!("../../docs/sentinel.md");
    assert_eq!(names(listed, "`"), names(&tests, "fn "));
    assert!(names(listed, "`").len() > 5);
}

/// A test's name is its claim, not a number in a list elsewhere.
#[test]
fn no_test_is_called_after_the_number_of_an_example() {
    for (file, text) in sources("tests/core") {
        let numbered = text.lines().find(|line| line.starts_with("fn example_"));
        assert_eq!(numbered, None, "{}", file.display());
    }
}
