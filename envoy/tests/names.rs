//! The names of metrics, in Envoy and in Prometheus.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use leapgate_envoy::names::{label, named};
use std::collections::HashMap;

/// As Envoy writes a name for Prometheus.
fn folded(name: &str) -> String {
    let fold = |byte: u8| match byte {
        b if b.is_ascii_alphanumeric() => b as char,
        _ => '_',
    };
    name.bytes().map(fold).collect()
}

fn of(labels: &[(&str, &str)]) -> String {
    let mut text = String::new();
    for (name, value) in labels {
        label(&mut text, name, value);
    }
    named("passed", &[&text])
}

#[test]
fn ordinary_names_read_well() {
    /// Labels, the name, and what Prometheus shows of it.
    type Case = (
        &'static [(&'static str, &'static str)],
        &'static str,
        &'static str,
    );
    let cases: [Case; 8] = [
        (
            &[("rule", "login")],
            "leapgate.passed;rule=login",
            "leapgate_passed_rule_login",
        ),
        (
            &[("rule", "api_v1")],
            "leapgate.passed;rule=api_v1",
            "leapgate_passed_rule_api_v1",
        ),
        (
            &[("rule", "my-route")],
            "leapgate.passed;rule=my-route;;2d",
            "leapgate_passed_rule_my_route__2d",
        ),
        (
            &[("rule", "login/60s")],
            "leapgate.passed;rule=login/60s;;2f",
            "leapgate_passed_rule_login_60s__2f",
        ),
        (
            &[("rule", "*"), ("resource", "login")],
            "leapgate.passed;rule=*;;2a;resource=login",
            "leapgate_passed_rule____2a_resource_login",
        ),
        (
            &[("rule", "é")],
            "leapgate.passed;rule=é;;c3a9",
            "leapgate_passed_rule_____c3a9",
        ),
        (
            &[("rule", "a;b%\n"), ("resource", "")],
            "leapgate.passed;rule=a%3bb%25%0a;;252525;resource=;;0",
            "leapgate_passed_rule_a_3bb_25_0a__252525_resource___0",
        ),
        (
            &[("root", "edge"), ("rule", "resource")],
            "leapgate.passed;root=edge;rule=resource",
            "leapgate_passed_root_edge_rule_resource",
        ),
    ];
    for (labels, raw, in_prometheus) in cases {
        let name = of(labels);
        assert_eq!((name.as_str(), &*folded(&name)), (raw, in_prometheus));
    }
}

/// All values of up to three parts, and what two or three labels make of the shorter ones of them.
#[test]
fn no_two_things_have_one_name_in_prometheus() {
    const PARTS: [&str; 12] = [
        "a", "_", "-", ".", ";", "é", "%2d", "resource", "origin", "rule", "2d", "0",
    ];
    let mut values = vec![String::new()];
    let mut longest = values.clone();
    let mut shorter = 0;
    for _ in 0..3 {
        shorter = values.len();
        let longer = |value: &String| PARTS.map(|part| value.clone() + part);
        longest = longest.iter().flat_map(longer).collect();
        values.extend(longest.iter().cloned());
    }
    let mut known: HashMap<String, Vec<(&str, &str)>> = HashMap::new();
    let mut check = |labels: Vec<(&'static str, String)>| {
        let labels: Vec<(&str, &str)> = labels
            .into_iter()
            .map(|(label, value)| (label, &*value.leak()))
            .collect();
        if let Some(other) = known.insert(folded(&of(&labels)), labels.clone()) {
            assert_eq!(other, labels, "two things have one name");
        }
    };
    for value in &values {
        check(vec![("rule", value.clone())]);
    }
    for rule in &values[..shorter] {
        for of in &values[..shorter] {
            for (first, second) in [("root", "rule"), ("rule", "resource"), ("rule", "origin")] {
                check(vec![(first, rule.clone()), (second, of.clone())]);
            }
        }
    }
    for [rule, resource, origin] in values[..13]
        .iter()
        .flat_map(|a| values[..13].iter().map(move |b| [a, b]))
        .flat_map(|[a, b]| values[..13].iter().map(move |c| [a, b, c]))
    {
        check(vec![
            ("rule", rule.clone()),
            ("resource", resource.clone()),
            ("origin", origin.clone()),
        ]);
    }
    assert!(known.len() > 75_000, "{}", known.len());
}
