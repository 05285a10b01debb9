//! What metrics are called, and places of shared data: no two things have one name, in Envoy and in Prometheus.
//!
//! ```text
//!   in Envoy                                            in Prometheus
//!   leapgate.passed;rule=login                          leapgate_passed_rule_login
//!   leapgate.passed;rule=login/60s;;2f                  leapgate_passed_rule_login_60s__2f
//!   leapgate.passed;rule=api_v1;resource=my-route;;2d   leapgate_passed_rule_api_v1_resource_my_route__2d
//! ```
//!
//! Envoy's Prometheus endpoint writes `_` for each byte but letters and digits. Where that loses something, a code stands
//! behind the value, after two semicolons: in hexadecimal, what each `_` is. It is left out where the value is words with
//! single `_` between them, none of which is a label. So a folded name can be read back, from its end: the code says how
//! many `_` its value has, and a value without a code has no label in it.

/// The labels, in the order in which a name has them. None of them is a word of a value without a code.
const LABELS: [&str; 9] = [
    "root",
    "rule",
    "resource",
    "place",
    "origin",
    "originplace",
    "relate",
    "chain",
    "window",
];

/// The name of `what`, with its labels.
pub fn named(what: &str, labels: &[&str]) -> String {
    let mut name = ["leapgate.", what].concat();
    labels.iter().for_each(|label| name.push_str(label));
    name
}

/// Appends a label. Of the value, the semicolon, which ends it, is written as in a URL, and so are control characters.
pub fn label(labels: &mut String, label: &str, value: &str) {
    labels.push_str(&[";", label, "="].concat());
    let start = labels.len();
    for byte in value.chars() {
        match byte {
            ';' | '%' | '\0'..' ' | '\x7f' => {
                labels.push('%');
                hex(labels, byte as u8);
            }
            c => labels.push(c),
        }
    }
    let written = labels.get(start..).unwrap_or_default();
    if is_plain(written) {
        return;
    }
    let mut code = String::from(";;");
    for byte in written.bytes().filter(|byte| !byte.is_ascii_alphanumeric()) {
        hex(&mut code, byte);
    }
    if code.len() == 2 {
        code.push('0'); // nothing is written, and so nothing is lost
    }
    labels.push_str(&code);
}

/// Whether a value can be read back from what Prometheus shows of it.
fn is_plain(value: &str) -> bool {
    let is_one = value.bytes().all(|byte| byte != b'_');
    let is_label = |word: &[u8]| LABELS.iter().any(|label| label.as_bytes() == word);
    value.as_bytes().split(|byte| *byte == b'_').all(|word| {
        !word.is_empty()
            && word.iter().all(u8::is_ascii_alphanumeric)
            && (is_one || !is_label(word))
    })
}

fn hex(text: &mut String, byte: u8) {
    for digit in [byte >> 4, byte & 15] {
        text.push(char::from(match digit {
            0..=9 => b'0' + digit,
            _ => b'a' - 10 + digit,
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
                for (first, second) in [("root", "rule"), ("rule", "resource"), ("rule", "origin")]
                {
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
}
