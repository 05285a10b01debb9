//! What the documentation says is tested, is.

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

/// The identifiers that follow `before` in the code of a line.
fn following<'a>(line: &'a str, before: &'a str) -> impl Iterator<Item = &'a str> {
    let code = line.split("//").next().unwrap_or("");
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    code.match_indices(before).map(move |(at, _)| {
        let rest = &code[at + before.len()..];
        &rest[..rest.find(|c| !is_name(c)).unwrap_or(rest.len())]
    })
}

#[test]
fn a_module_uses_only_those_above_it_in_the_table() {
    let manual = include_str!("../../src/lib.rs");
    let (_, rows) = manual.split_once("//! # Modules\n").unwrap();
    let (rows, _) = rows.split_once("#![forbid").unwrap();
    let name = |row: &'static str| row.strip_prefix("//! | ")?.split('`').nth(1);
    let table: Vec<&str> = rows.lines().filter_map(name).collect();
    let place = |module: &str| table.iter().position(|row| *row == module);

    let declared = manual.lines().filter_map(|line| {
        let line = line.strip_prefix("pub ").unwrap_or(line);
        line.strip_prefix("mod ")?.strip_suffix(';')
    });
    let (mut declared, mut listed): (Vec<&str>, _) = (declared.collect(), table.clone());
    declared.sort_unstable();
    listed.sort_unstable();
    assert_eq!(listed, declared, "each module has a row, and only one");

    let mut uses = 0;
    for (file, text) in sources("src") {
        let path = file.strip_prefix(Path::new(ROOT).join("src")).unwrap();
        let module = path.iter().next().unwrap().to_str().unwrap();
        let module = module.strip_suffix(".rs").unwrap_or(module);
        if module == "lib" {
            continue;
        }
        let own = place(module).unwrap();
        // From a file beside `lib.rs`, `super` is the crate; deeper down it takes two of them.
        let above = if path.iter().count() == 1 {
            "super::"
        } else {
            "super::super::"
        };
        for (number, line) in text.lines().enumerate() {
            let at = format!("{}:{}: {line}", path.display(), number + 1);
            for used in following(line, "crate::") {
                let used = place(used).unwrap_or_else(|| panic!("{at}: name the module"));
                assert!(used <= own, "{at}: {} is not above {module}", table[used]);
                uses += 1;
            }
            for used in following(line, above).filter_map(place) {
                assert!(used <= own, "{at}: {} is not above {module}", table[used]);
            }
        }
    }
    assert!(uses > 100, "only {uses} uses");
}

/// A name says what the test claims; a number is one of a list that is somewhere else.
#[test]
fn no_test_is_called_after_the_number_of_an_example() {
    for (file, text) in sources("tests/core") {
        let numbered = text.lines().find(|line| line.starts_with("fn example_"));
        assert_eq!(numbered, None, "{}", file.display());
    }
}
