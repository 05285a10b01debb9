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

use leapgate::backend::{NamePlace, StateKey};
use leapgate::rule::{ControlBehavior, Grade, Strategy};
use leapgate::stats::Window;
use std::rc::Rc;

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

/// The labels of a rule, and of the resource that it is for, if it is for one.
pub(crate) fn rule_labels(rule: &str, resource: Option<&str>) -> String {
    let mut labels = String::new();
    label(&mut labels, "rule", rule);
    if let Some(resource) = resource {
        label(&mut labels, "resource", resource);
    }
    labels
}

/// The labels under which the decisions for `key` are shown: the rule, and what it counts apart. There are no more of them than
/// places: a name that comes into a place of another one is shown with the further names.
pub(crate) fn labels(key: &StateKey) -> String {
    let shown = |name: &Option<Rc<str>>, place: Option<NamePlace>| match place {
        Some(place) if place.is_reused => Some("".into()),
        _ => name.clone(),
    };
    let resource = shown(&key.resource, key.resource_place);
    let resource = resource.as_deref().unwrap_or(key.target.0.as_str());
    let mut labels = rule_labels(key.rule.as_str(), Some(resource));
    if let Some(origin) = shown(&key.origin, key.origin_place) {
        label(&mut labels, "origin", &origin);
    }
    labels
}

/// Appends the label of a name, or, where it has one, of its place.
pub(crate) fn label_of_name(
    labels: &mut String,
    [name, place]: [&str; 2],
    value: &str,
    has_place: Option<NamePlace>,
) {
    match has_place {
        None => label(labels, name, value),
        Some(NamePlace { index, .. }) => label(labels, place, &index.to_string()),
    }
}

/// The labels of what `key` counts: no two keys have the same, but for names that have the same place in turn.
pub(crate) fn exact_labels(key: &StateKey) -> String {
    let mut labels = String::new();
    if key.kind != "flow" {
        label(&mut labels, "kind", key.kind);
    }
    label(&mut labels, "rule", key.rule.as_str());
    if let Some(resource) = &key.resource {
        label_of_name(
            &mut labels,
            ["resource", "place"],
            resource,
            key.resource_place,
        );
    }
    if let Some(origin) = &key.origin {
        label_of_name(
            &mut labels,
            ["origin", "originplace"],
            origin,
            key.origin_place,
        );
    }
    match &key.strategy {
        Strategy::Direct => {}
        Strategy::Relate(measured) => label(&mut labels, "relate", measured),
        Strategy::Chain(context) => label(&mut labels, "chain", context),
    }
    let mut window = String::new();
    if let Grade::Qps { window: of, .. } = key.grade {
        window = window_of(of.window());
    }
    window.push_str(match key.behavior {
        ControlBehavior::Reject => "",
        ControlBehavior::WarmUp => "_warmUp",
        ControlBehavior::Throttle => "_throttle",
        ControlBehavior::WarmUpThrottle => "_warmUpThrottle",
    });
    if key.compat {
        window.push_str("_compat");
    }
    if !window.is_empty() {
        label(&mut labels, "window", window.trim_start_matches('_'));
    }
    labels
}

/// A geometry, as names have it.
pub(crate) fn window_of(window: Window) -> String {
    format!("{}ms_{}", window.interval_ms(), window.sample_count())
}
