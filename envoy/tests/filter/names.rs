//! The names of metrics and of places in shared data.

use super::*;
use std::collections::HashSet;

/// All names that a filter of that root id has made, once requests have come to some routes.
fn names(root_id: &str, document: &str) -> HashSet<String> {
    let process = process();
    let host = Fake(Rc::clone(&process), Rc::default());
    let (rules, settings) = config::parse(document.as_bytes()).unwrap();
    let store = new_store(&host, root_id, settings.scope);
    let filter = Filter::new(host.clone(), Rc::clone(&store), rules, settings).unwrap();
    let vm = Vm {
        store,
        filter,
        host,
    };
    for route in ["a", "b", "rule"] {
        vm.passes(route, 3);
    }
    vm.filter.on_tick();
    let metrics = process.metrics.borrow();
    let metrics = metrics.iter().map(|(_, name, _)| name.clone());
    let shared = process.shared.borrow();
    let shared = shared.keys().map(|key| format!("shared data {key}"));
    metrics.chain(shared).collect()
}

fn flow(rule: &str) -> String {
    format!(r#"{{"flowRules": [{rule}], "envoy": {{"maxResources": 2}}}}"#)
}

#[test]
fn filters_of_different_root_ids_have_no_name_in_common() {
    let kinds = [
        r#"{"flowRules": [{"resource": "*", "count": 2}]}"#,
        r#"{"flowRules": [{"resource": "a", "count": 2}]}"#,
        r#"{"flowRules": [{"resource": "a", "count": 2, "controlBehavior": "warmUp"}]}"#,
        r#"{"flowRules": [{"resource": "a", "count": 2, "controlBehavior": "throttle"}]}"#,
        r#"{"flowRules": [{"resource": "a", "count": 2, "key": ["path"]}]}"#,
        r#"{"degradeRules": [{"resource": "*", "grade": "errorRatio", "count": 1, "timeWindow": 1}]}"#,
        r#"{"systemRules": [{"qps": 2, "bbr": true}]}"#,
    ];
    let roots = ["leapgate", "a", "*", "rule", "a;rule=a", "b_rule_a"];
    for document in kinds {
        let mut all = HashSet::new();
        for root in roots {
            let names = names(root, document);
            assert!(names.len() > 2, "{names:?}");
            for name in names {
                assert!(all.insert(name.clone()), "{name} is another filter's too");
            }
        }
    }
}

#[test]
fn rules_and_what_they_count_apart_have_no_name_in_common() {
    let rules = [
        flow(r#"{"resource": "*", "count": 2, "id": "a"}"#),
        flow(r#"{"resource": "a", "count": 2, "id": "a;resource=a"}"#),
        flow(r#"{"resource": "a", "count": 2, "id": "a_resource_a"}"#),
        flow(r#"{"resource": "a", "count": 2, "id": "a.resource.a"}"#),
    ];
    let mut all = HashSet::new();
    for document in rules {
        let of_no_rule = [
            "leapgate.info;version=0.1.0;;2e2e",
            "leapgate.names_changes",
            "shared data leapgate.names",
            "shared data leapgate.seed",
        ];
        let names = names("leapgate", &document).into_iter();
        for name in names.filter(|name| !of_no_rule.contains(&&**name)) {
            assert!(all.insert(name.clone()), "{name} is another rule's too");
        }
    }
}

#[test]
fn rules_of_two_kinds_with_one_id_are_counted_apart() {
    let process = process();
    let document = r#"{"flowRules": [{"resource": "a", "count": 1, "id": "1"}],
                       "systemRules": [{"qps": 2, "id": "1"}],
                       "degradeRules": [{"resource": "a", "grade": "errorRatio", "count": 0.5, "timeWindow": 1, "id": "1"}]}"#;
    let vm = Vm::born(&process, document);
    assert_eq!((vm.passes("a", 3), vm.passes("b", 3)), (1, 1));
    vm.filter.on_tick();
    let blocked = ["blocked", "system_blocked", "breaker_blocked"]
        .map(|what| process.metric(&format!("leapgate.{what};rule=1")));
    assert_eq!(blocked, [Some(2), Some(2), Some(0)]);
}
