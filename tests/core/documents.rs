//! What the documentation says is tested, is.

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
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/core");
    let (mut tests, mut folders) = (String::new(), vec![folder.into()]);
    while let Some(folder) = folders.pop() {
        for file in std::fs::read_dir::<std::path::PathBuf>(folder).unwrap() {
            let file = file.unwrap().path();
            if file.is_dir() {
                folders.push(file);
            } else if file.extension().is_some_and(|extension| extension == "rs") {
                tests += &std::fs::read_to_string(file).unwrap();
            }
        }
    }
    let listed = include_str!("../../src/lib.rs");
    assert_eq!(names(listed, "`"), names(&tests, "fn "));
    assert!(names(listed, "`").len() > 5);
}
