//! What functions are called, and to which path a name belongs.

use std::collections::HashMap;

/// The crates whose types own the generic code that is made for them.
const OURS: [&str; 2] = ["leapgate", "leapgate_envoy"];

/// The names of functions by their numbers, from the file that `wasm-opt --symbolmap` writes.
pub(crate) fn read(symbols: &str) -> HashMap<u32, String> {
    symbols
        .lines()
        .filter_map(|line| {
            let (number, name) = line.split_once(':')?;
            Some((number.parse().ok()?, path(name)))
        })
        .collect()
}

/// The path that owns the function of this name, which the compiler has mangled: the first one in it that is ours, or else the
/// first one. A name without a path is a path of one word.
pub(crate) fn path(mangled: &str) -> String {
    // A function that wasm-opt has made of several is called after one of them.
    let mangled = mangled.find("_R").map_or(mangled, |at| &mangled[at..]);
    let name = format!("{:#}", rustc_demangle::demangle(mangled));
    let paths: Vec<&str> = name
        .split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'))
        .map(|path| path.trim_matches(':'))
        .filter(|path| path.contains("::"))
        .collect();
    let is_ours = |path: &&&str| OURS.contains(&path.split("::").next().unwrap_or_default());
    let path = paths.iter().find(is_ours).or(paths.first());
    path.map_or(name.clone(), |path| (*path).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_of_ours_is_owned_by_its_module() {
        assert_eq!(
            path("_RNvNtNtCs7uPF7u3Sjgk_8leapgate6config4flow4read"),
            "leapgate::config::flow::read"
        );
    }

    #[test]
    fn generic_code_is_owned_by_the_type_of_ours_that_it_was_made_for() {
        // <alloc::vec::Vec<leapgate::rule::Flow>>::push
        let push = "_RNvMs_NtCs1_5alloc3vecINtB4_3VecNtNtCs2_8leapgate4rule4FlowE4push";
        assert_eq!(path(push), "leapgate::rule::Flow");
    }

    #[test]
    fn code_of_others_is_owned_by_the_first_path_in_its_name() {
        // <u32 as core::fmt::Display>::fmt
        assert_eq!(
            path("_RNvXNtCs1_4core3fmtmNtB2_7Display3fmt"),
            "core::fmt::Display"
        );
    }

    #[test]
    fn a_function_that_was_made_of_several_is_owned_as_one_of_them() {
        assert_eq!(
            path("byn$mgfn-shared$_RNvNtCs1_8leapgate4rule4read"),
            "leapgate::rule::read"
        );
    }

    #[test]
    fn a_name_without_a_path_is_its_own() {
        assert_eq!(path("malloc"), "malloc");
    }
}
