//! The core's files stand in layers: a module uses only those above it, and no file uses itself in a circle.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The files below `src` but for `lib.rs`, by the path of their module, and their code without comments.
fn modules() -> BTreeMap<Vec<String>, String> {
    let (mut modules, mut folders) = (BTreeMap::new(), vec![Path::new(ROOT).join("src")]);
    while let Some(folder) = folders.pop() {
        for file in std::fs::read_dir(folder).unwrap() {
            let file: PathBuf = file.unwrap().path();
            if file.is_dir() {
                folders.push(file);
                continue;
            }
            if file.extension().is_none_or(|ending| ending != "rs") {
                continue;
            }
            let text = std::fs::read_to_string(&file).unwrap();
            let code = text.lines().map(|line| line.split("//").next().unwrap());
            let code = code.collect::<Vec<_>>().join("\n");
            let path = file.strip_prefix(Path::new(ROOT).join("src")).unwrap();
            let path = path.with_extension("");
            let path = path.iter().map(|part| part.to_str().unwrap().to_string());
            modules.insert(path.collect(), code);
        }
    }
    modules.remove(&vec!["lib".to_string()]);
    modules
}

/// The paths that a `use` item names, its braces taken apart.
fn named(item: &str) -> Vec<String> {
    let Some((before, rest)) = item.split_once('{') else {
        return vec![item.trim().to_string()];
    };
    let body = rest.rsplit_once('}').unwrap().0;
    let (mut depth, mut parts) = (0, vec![String::new()]);
    for c in body.chars() {
        depth += i32::from(c == '{') - i32::from(c == '}');
        if c == ',' && depth == 0 {
            parts.push(String::new());
        } else {
            parts.last_mut().unwrap().push(c);
        }
    }
    let parts = parts.iter().filter(|part| !part.trim().is_empty());
    parts
        .flat_map(|part| named(part))
        .map(|part| format!("{}{part}", before.trim()))
        .collect()
}

/// The paths that the code of a module names: in `use` items, and `crate::…` wherever it stands.
fn paths(code: &str) -> Vec<String> {
    let mut paths = Vec::new();
    let mut at = 0;
    for line in code.split_inclusive('\n') {
        let item = line.trim_start_matches("pub(crate) ").trim_start_matches("pub ");
        if item.starts_with("use ") {
            let from = at + line.len() - item.len() + "use ".len();
            paths.extend(named(code[from..].split(';').next().unwrap()));
        }
        at += line.len();
    }
    for (at, _) in code.match_indices("crate::") {
        let is_path = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
        let rest = &code[at..];
        let end = rest.find(|c| !is_path(c)).unwrap_or(rest.len());
        paths.push(rest[..end].trim_end_matches(':').to_string());
    }
    paths
}

/// The file that a path in the code of module `own` leads to: the longest part of it that is a module.
fn file_of<'a>(
    path: &str,
    own: &[String],
    modules: &'a BTreeMap<Vec<String>, String>,
) -> Option<&'a Vec<String>> {
    let mut parts: Vec<String> = path.split("::").map(|part| part.trim().into()).collect();
    let mut whole: Vec<String> = match parts.first()?.as_str() {
        "crate" => Vec::new(),
        "super" => own.split_last()?.1.to_vec(),
        "self" => own.to_vec(),
        // A child of this module, perhaps.
        _ => {
            parts.insert(0, String::new());
            own.to_vec()
        }
    };
    for part in parts.drain(1..) {
        if part == "super" {
            whole.pop();
        } else {
            whole.push(part);
        }
    }
    while !whole.is_empty() {
        if let Some((found, _)) = modules.get_key_value(&whole) {
            return (found.as_slice() != own).then_some(found);
        }
        whole.pop();
    }
    None
}

/// Which file uses which.
fn uses() -> BTreeMap<Vec<String>, BTreeSet<Vec<String>>> {
    let modules = modules();
    let used = |own: &Vec<String>, code: &str| {
        let paths = paths(code).into_iter();
        paths
            .filter_map(|path| file_of(&path, own, &modules).cloned())
            .collect()
    };
    let uses = modules.iter();
    uses.map(|(own, code)| (own.clone(), used(own, code)))
        .collect()
}

#[test]
fn a_module_uses_only_those_above_it_in_the_table() {
    let manual = include_str!("../../src/lib.rs");
    let (_, rows) = manual.split_once("// |---|---|\n").unwrap();
    let rows = rows.lines().take_while(|line| line.starts_with("// |"));
    let name = |row: &'static str| row.split('`').nth(1);
    let table: Vec<&str> = rows.filter_map(name).collect();
    let place = |module: &str| table.iter().position(|row| *row == module).unwrap();

    let declared = manual.lines().filter_map(|line| {
        let line = line.strip_prefix("pub ").unwrap_or(line);
        line.strip_prefix("mod ")?.strip_suffix(';')
    });
    let (mut declared, mut listed): (Vec<&str>, _) = (declared.collect(), table.clone());
    declared.sort_unstable();
    listed.sort_unstable();
    assert_eq!(listed, declared, "each module has a row, and only one");

    let (uses, mut count) = (uses(), 0);
    for (own, used) in &uses {
        for other in used {
            let (below, above) = (&own[0], &other[0]);
            let stands_above = place(above) <= place(below);
            assert!(stands_above, "{own:?} uses {other:?}, which is not above it");
            count += 1;
        }
    }
    assert!(count > 100, "only {count} uses");
}

#[test]
fn no_file_uses_itself_in_a_circle() {
    let mut uses = uses();
    // A file that uses no remaining file is not in a circle, and is removed.
    while let Some(free) = uses
        .iter()
        .find(|(_, used)| !used.iter().any(|other| uses.contains_key(other)))
        .map(|(own, _)| own.clone())
    {
        uses.remove(&free);
    }
    let left = uses.iter().map(|(own, used)| {
        let used = used.iter().filter(|other| uses.contains_key(*other));
        let used = used.map(|other| other.join("/")).collect::<Vec<_>>();
        format!("{} uses {}", own.join("/"), used.join(", "))
    });
    let left = left.collect::<Vec<_>>().join("\n");
    assert!(left.is_empty(), "in circles, or using them:\n{left}");
}

#[test]
fn no_file_is_longer_than_600_lines() {
    for path in modules().keys() {
        let file = Path::new(ROOT).join("src").join(path.join("/"));
        let text = std::fs::read_to_string(file.with_extension("rs")).unwrap();
        let lines = text.lines().count();
        assert!(lines <= 600, "{} has {lines} lines", path.join("/"));
    }
}
