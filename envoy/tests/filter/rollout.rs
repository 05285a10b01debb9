//! From shadow to enforce, and from one window mode to another.

use super::*;

const SHADOW: &str =
    r#"{"flowRules": [{"resource": "login", "count": 10, "mode": "shadow" WINDOW KEY}]}"#;

fn document(mode: &str, window: &str, key: &str) -> String {
    let window = format!(r#", "window": "{window}""#);
    SHADOW
        .replace("shadow", mode)
        .replace(" WINDOW", &window)
        .replace(" KEY", key)
}

#[test]
fn a_roll_out_from_shadow_to_enforce_and_to_another_window_goes_on_with_counts_and_metrics() {
    for key in ["", r#", "key": ["method"]"#] {
        let process = process();
        let mut vms: Vec<Vm> = (0..2)
            .map(|_| Vm::born(&process, &document("shadow", "strict", key)))
            .collect();
        let passes: usize = vms.iter().map(|vm| vm.passes("login", 4)).sum();
        assert_eq!(passes, 8);
        vms.iter_mut()
            .for_each(|vm| vm.configure(&document("enforce", "strict", key)));
        vms.push(Vm::born(&process, &document("enforce", "strict", key)));
        let passes: usize = vms.iter().map(|vm| vm.passes("login", 4)).sum();
        assert_eq!(passes, 2, "{key}");
        for window in ["sentinel", "weighted", "strict"] {
            vms.iter_mut()
                .for_each(|vm| vm.configure(&document("enforce", window, key)));
            vms.push(Vm::born(&process, &document("enforce", window, key)));
            let passes: usize = vms.iter().map(|vm| vm.passes("login", 1)).sum();
            assert_eq!(passes, 0, "{window}{key}");
        }
        process.millis.set(6060);
        assert_eq!(vms[0].passes("login", 20), 10);
        vms.iter().for_each(|vm| vm.filter.on_tick());
        let names: Vec<String> = process
            .metrics
            .borrow()
            .iter()
            .filter(|(_, name, _)| name.starts_with("leapgate.passed;"))
            .map(|(_, name, value)| format!("{name} {value}"))
            .collect();
        let label = if key.is_empty() {
            "login"
        } else {
            "login/key=method;;2f3d"
        };
        assert_eq!(
            names,
            [format!("leapgate.passed;rule={label};resource=login 20")]
        );
    }
}

#[test]
fn a_rule_in_shadow_that_has_the_id_of_one_in_force_counts_no_request_twice() {
    let rules = |key: &str| {
        format!(
            r#"{{"flowRules": [{{"resource": "login", "count": 10{key}}},
                              {{"resource": "login", "count": 6, "mode": "shadow", "window": "weighted"{key}}}]}}"#
        )
    };
    for key in ["", r#", "key": ["method"]"#] {
        let process = process();
        let vms: Vec<Vm> = (0..3).map(|_| Vm::born(&process, &rules(key))).collect();
        let passes: usize = (0..5)
            .flat_map(|_| &vms)
            .map(|vm| vm.passes("login", 1))
            .sum();
        assert_eq!(passes, 10);
        vms.iter().for_each(|vm| vm.filter.on_tick());
        let labels = match key {
            "" => ["login", "login/shadow;;2f"],
            _ => ["login/key=method;;2f3d", "login/key=method/shadow;;2f3d2f"],
        };
        let [real, shadow] = labels.map(|label| {
            ["passed", "blocked", "shadow_blocked"]
                .map(|what| process.metric(&format!("leapgate.{what};rule={label}")))
        });
        assert_eq!(real, [Some(10), Some(5), Some(0)], "{key}");
        assert_eq!(shadow, [Some(6), Some(0), Some(9)], "{key}");
        if key.is_empty() {
            for what in ["tickets", "admitted"] {
                let name = format!("leapgate.{what};rule=login;window=1000ms_100");
                assert_eq!(process.metric(&name), Some(10));
            }
            let gauges = process.metrics.borrow();
            let counts = gauges
                .iter()
                .filter(|(kind, name, _)| *kind == Kind::Gauge && name.contains(";window="));
            assert_eq!(counts.count(), 2, "what is in shadow has none of its own");
        }
    }
}
