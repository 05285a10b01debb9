//! The table of modules in `src/lib.rs` is what the sources do.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The name of each module, and of the modules that its code uses.
fn uses() -> BTreeMap<String, BTreeSet<String>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let files = |folder: &Path| {
        std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
    };
    let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let (folders, mut sources): (Vec<_>, Vec<_>) = files(&folder).partition(|path| path.is_dir());
    sources.extend(folders.iter().flat_map(|folder| files(folder)));
    for path in sources {
        assert!(
            path.is_file(),
            "{}: read the files in this folder, too",
            path.display()
        );
        // A file in a folder belongs to the module that the folder is called after.
        let module = path.strip_prefix(&folder).unwrap().iter().next().unwrap();
        let name = Path::new(module)
            .file_stem()
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned();
        if name != "lib" {
            let text = std::fs::read_to_string(&path).unwrap();
            let (code, _) = text.split_once("#[cfg(test)]").unwrap_or((&text, ""));
            let code = code.lines().map(|line| line.split("//").next().unwrap());
            let code: String = code.flat_map(|line| [line, "\n"]).collect();
            uses.entry(name).or_default().extend(used(&code));
        }
    }
    uses
}

/// The modules in `crate::module` and `use crate::{module, module::Item}`.
fn used(code: &str) -> BTreeSet<String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let first = |path: &str| path.split(|c| !is_name(c)).next().unwrap().to_owned();
    let mut names = BTreeSet::new();
    for (at, root) in code.match_indices("crate::") {
        let path = &code[at + root.len()..];
        match path.strip_prefix('{') {
            None => drop(names.insert(first(path))),
            Some(list) => {
                let (list, _) = list.split_once("};").unwrap();
                assert!(!list.contains('{'), "{list}: give each module a line");
                names.extend(list.split(',').map(str::trim).map(first));
            }
        }
    }
    names.remove("");
    names
}

/// A way from the last of `way` back to one that is on it.
fn circle(uses: &BTreeMap<String, BTreeSet<String>>, way: &mut Vec<String>) -> Option<String> {
    let last = way.last().unwrap().clone();
    for next in &uses[&last] {
        if let Some(first) = way.iter().position(|module| module == next) {
            let files = way.iter().skip(first).chain([next]);
            let files: Vec<String> = files.map(|module| format!("{module}.rs")).collect();
            return Some(files.join(" uses "));
        }
        way.push(next.clone());
        let found = circle(uses, way);
        if found.is_some() {
            return found;
        }
        way.pop();
    }
    None
}

#[test]
fn no_files_use_each_other_in_a_circle() {
    let uses = uses();
    assert!(uses.values().map(BTreeSet::len).sum::<usize>() > 40);
    for module in uses.keys() {
        assert_eq!(circle(&uses, &mut vec![module.clone()]), None);
    }
}

#[test]
fn a_module_uses_only_those_above_it_in_the_table() {
    let manual = include_str!("../src/lib.rs");
    let name = |row: &'static str| row.strip_prefix("//! | `")?.split('`').next();
    let table: Vec<&str> = manual.lines().filter_map(name).collect();
    let declared = manual.lines().filter_map(|line| {
        let line = line.strip_prefix("pub ").unwrap_or(line);
        line.strip_prefix("mod ")?.strip_suffix(';')
    });
    let (mut declared, mut listed): (Vec<&str>, _) = (declared.collect(), table.clone());
    declared.sort_unstable();
    listed.sort_unstable();
    assert_eq!(listed, declared, "each module has a row, and only one");
    for (module, uses) in uses() {
        let above = table.iter().take_while(|row| **row != module);
        let above: BTreeSet<String> = above.map(ToString::to_string).collect();
        let below: Vec<&String> = uses.difference(&above).collect();
        assert_eq!(below, [""; 0], "`{module}` uses what is not above it");
    }
}
