//! How full limits were: a gauge for each rule, which falls by itself.

use super::waiting::{run, with_header};
use super::*;

/// For one second each peak is kept, and an eighth of it more at most.
const HELD: u64 = 1000;
const SLOT: u64 = HELD / 8;

/// A document with these rules, whose gauges keep their peaks for a second.
fn held(rules: &str) -> String {
    format!(r#"{{{rules}, "envoy": {{"metrics": {{"holdMs": {HELD}}}}}}}"#)
}

fn window(count: u64) -> String {
    held(&format!(
        r#""flowRules": [{{"resource": "login", "count": {count}, "intervalMs": 200}}]"#
    ))
}

impl Process {
    fn wait_for(&self, vms: &[Vm], millis: u64) {
        run(self, vms, self.millis.get() + millis, 0);
    }

    fn utilization(&self) -> Option<i64> {
        self.metric("leapgate.utilization_percent;rule=login")
    }
}

impl Vm {
    fn next_tick(&self) -> u32 {
        self.host.1.period.get()
    }
}

fn born(process: &Rc<Process>, n: usize, document: &str) -> Vec<Vm> {
    (0..n).map(|_| Vm::born(process, document)).collect()
}

#[test]
fn utilization_is_there_with_the_first_request_and_names_rule_and_resource() {
    let process = process();
    let vm = Vm::born(&process, &window(10));
    let name = "leapgate.utilization_percent;rule=login/200ms;;2f;resource=login";
    let document = window(10).replace("200}", r#"200, "id": "login"}"#);
    let other = Vm::born(&process, &document);
    assert_eq!((process.metric(name), process.utilization()), (None, None));
    assert_eq!((vm.next_tick(), other.next_tick()), (0, 0));
    assert_eq!((vm.passes("login", 1), other.passes("login", 1)), (1, 1));
    let vms = [vm, other];
    process.wait_for(&vms, 50);
    assert_eq!(process.metric(name), Some(10));
    assert_eq!(process.utilization(), Some(10));
}

#[test]
fn utilization_is_the_peak_and_falls_to_zero_and_ticks_end() {
    let process = process();
    let document = window(10).replace("200}", r#"200, "id": "login"}"#);
    let vms = born(&process, 2, &document);
    assert_eq!(vms[0].passes("login", 7), 7);
    process.wait_for(&vms, 50);
    assert_eq!(process.utilization(), Some(70));
    let begun = process.millis.get();
    while process.utilization() == Some(70) {
        process.wait_for(&vms, 1);
    }
    let held = process.millis.get() - begun;
    // Seven were in the window for 200 ms more.
    assert!((HELD..=200 + HELD + SLOT + 10).contains(&held), "{held}");
    assert_eq!(process.utilization(), Some(0));
    process.wait_for(&vms, 2 * HELD);
    assert!(vms.iter().all(|vm| vm.next_tick() == 0));
    let reads = process.clock_reads.get();
    process.wait_for(&vms, 60_000);
    assert_eq!(process.clock_reads.get(), reads, "nothing has ticked");
}

#[test]
fn a_lower_peak_shows_when_the_higher_one_ends() {
    let process = process();
    let document = window(10).replace("200}", r#"200, "id": "login"}"#);
    let vms = born(&process, 1, &document);
    vms[0].passes("login", 9);
    process.wait_for(&vms, HELD / 2);
    vms[0].passes("login", 4);
    let mut seen = Vec::new();
    for _ in 0..3000 {
        process.wait_for(&vms, 1);
        let now = process.utilization().unwrap();
        if seen.last() != Some(&now) {
            seen.push(now);
        }
    }
    assert_eq!(seen, [90, 40, 0]);
}

#[test]
fn a_refused_request_is_100_and_one_that_another_rule_refuses_is_not() {
    let process = process();
    let rules = r#""flowRules": [{"resource": "login", "count": 100, "id": "login"}, {"resource": "login", "count": 0, "id": "none"},
                                 {"resource": "dry", "count": 0, "id": "dry", "mode": "shadow"}]"#;
    let vms = born(&process, 1, &held(rules));
    assert_eq!(vms[0].passes("login", 1) + vms[0].passes("dry", 1), 1);
    process.wait_for(&vms, 300);
    let of = |rule: &str| process.metric(&format!("leapgate.utilization_percent;rule={rule}"));
    assert_eq!(
        (of("login"), of("none"), of("dry")),
        (Some(0), Some(100), Some(100))
    );
}

#[test]
fn the_fullest_worker_wins_whoever_looks_first_and_between_any_two_host_calls() {
    for order in [[0, 1], [1, 0]] {
        for calls in 0.. {
            let process = process();
            let document = r#"{"flowRules": [{"resource": "login", "id": "login", "count": 10}],
                               "envoy": {"scope": "worker", "metrics": {"holdMs": 1000}}}"#;
            let vms: Vec<_> = born(&process, 2, document)
                .into_iter()
                .map(Rc::new)
                .collect();
            vms[order[0]].passes("login", 3);
            vms[order[1]].passes("login", 8);
            process.millis.set(process.millis.get() + 100);
            let other = Rc::clone(&vms[1]);
            process
                .meanwhile
                .replace(Some((calls, Box::new(move || other.filter.on_tick()))));
            vms[0].filter.on_tick();
            let came = process.meanwhile.take().is_none();
            vms[1].filter.on_tick();
            process.millis.set(process.millis.get() + SLOT);
            vms[0].filter.on_tick();
            assert_eq!(
                process.utilization(),
                Some(80),
                "{order:?} after {calls} calls"
            );
            if !came {
                assert!(calls > 3, "it came between {calls} times");
                break;
            }
        }
    }
}

#[test]
fn a_worker_that_dies_or_starts_leaves_no_peak_standing() {
    let document = window(10).replace("200}", r#"200, "id": "login"}"#);
    for successor in [false, true] {
        let process = process();
        let mut vms = born(&process, 2, &document);
        vms[0].passes("login", 10);
        vms[1].passes("login", 1); // it is awake, and refuses
        process.wait_for(&vms, 20);
        assert_eq!(process.utilization(), Some(100));
        if successor {
            vms = born(&process, 1, &document); // it takes over what it finds
        } else {
            vms.remove(0);
        }
        process.wait_for(&vms, 200 + HELD + 2 * SLOT);
        assert_eq!(process.utilization(), Some(0), "{successor}");
        process.wait_for(&vms, HELD);
        assert!(vms.iter().all(|vm| vm.next_tick() == 0));
    }
}

#[test]
fn a_rule_that_is_gone_is_empty_and_one_that_another_worker_still_has_is_not() {
    let process = process();
    let document = window(10).replace("200}", r#"200, "id": "login"}"#);
    let (old, other) = (Vm::born(&process, &document), Vm::born(&process, &document));
    old.passes("login", 10);
    other.passes("login", 1);
    process.wait_for(std::slice::from_ref(&other), 20);
    assert_eq!(process.utilization(), Some(100));
    old.filter.on_tick();
    drop(old);
    assert_eq!(process.utilization(), Some(0));
    let others = [other];
    process.wait_for(&others, SLOT);
    others[0].passes("login", 1);
    process.wait_for(&others, 20);
    assert_eq!(
        process.utilization(),
        Some(100),
        "the other one still keeps it"
    );
    drop(others);
    assert_eq!(process.utilization(), Some(0));
}

#[test]
fn calls_in_flight_count_at_their_most_and_for_as_long_as_they_last() {
    let process = process();
    let rules = r#""flowRules": [{"resource": "login", "id": "login", "count": 4, "grade": "concurrency"}]"#;
    let vms = born(&process, 1, &held(rules));
    let calls: Vec<_> = (0..3).map(|_| vms[0].request("login").unwrap()).collect();
    drop(calls); // before any tick
    process.wait_for(&vms, 100);
    assert_eq!(process.utilization(), Some(75));
    process.wait_for(&vms, 3 * HELD);
    assert_eq!(process.utilization(), Some(0));
    let call = vms[0].request("login");
    process.wait_for(&vms, 20 * HELD);
    assert_eq!(process.utilization(), Some(25), "it lasts");
    drop(call);
    process.wait_for(&vms, 3 * HELD);
    assert_eq!(process.utilization(), Some(0));
}

#[test]
fn a_throttle_is_as_full_as_its_longest_wait() {
    let process = process();
    let rules = r#""flowRules": [{"resource": "login", "id": "login", "count": 10, "controlBehavior": "throttle", "maxQueueingTimeMs": 400}]"#;
    let vms = born(&process, 1, &held(rules));
    let waiting: Vec<_> = (0..3).map(|_| vms[0].request("login").unwrap()).collect();
    process.wait_for(&vms, 150);
    assert_eq!(process.utilization(), Some(50), "200 of 400 ms");
    drop(waiting);
    process.wait_for(&vms, 3 * HELD);
    assert_eq!(process.utilization(), Some(0));
}

#[test]
fn a_keyed_rule_is_as_full_as_its_fullest_key() {
    let process = process();
    let rules = r#""flowRules": [{"resource": "login", "id": "login", "count": 10, "key": [{"header": "x-user"}]}]"#;
    let vms = born(&process, 1, &held(rules));
    for (user, times) in [("ann", 2), ("bob", 6), ("eve", 1)] {
        for _ in 0..times {
            with_header(&process, "x-user", user);
            assert!(vms[0].request("login").is_some());
        }
    }
    process.wait_for(&vms, 300);
    assert_eq!(process.utilization(), Some(60));
    process.wait_for(&vms, 3 * HELD);
    assert_eq!(process.utilization(), Some(0));
    assert_eq!(vms[0].next_tick(), 0);
}

#[test]
fn a_debt_is_more_than_100_and_an_unknown_past_is_not_shown() {
    let process = process();
    let rules = r#""flowRules": [{"resource": "login", "id": "login", "count": 10, "unit": "tokens",
                                  "cost": {"estimate": 1, "actual": {"header": "x-cost"}}}]"#;
    let vms = born(&process, 1, &held(rules));
    let properties = || process.properties.borrow_mut();
    properties().insert("upstream\0local_address".into(), b"1.2.3.4:5".to_vec());
    properties().insert("header x-cost".into(), b"25".to_vec());
    let mut passed = vms[0].request("login").unwrap();
    vms[0].filter.on_response(&passed, true);
    vms[0].filter.on_end(&mut passed);
    process.wait_for(&vms, 100);
    assert_eq!(process.utilization(), Some(250));
    process.shared.borrow_mut().clear();
    let late = Vm::born(&process, &held(rules));
    process.wait_for(std::slice::from_ref(&late), 100);
    assert!(
        process.utilization() <= Some(250),
        "{:?}",
        process.utilization()
    );
}

#[test]
fn where_shared_data_or_its_gauge_does_not_work_nothing_else_changes() {
    let document = window(10).replace("200}", r#"200, "id": "login"}"#);
    for (no_shared_data, excluded) in [(true, None), (false, Some("utilization_percent;"))] {
        let process = process();
        process.no_shared_data.set(no_shared_data);
        process.excluded.replace(excluded.map(str::to_owned));
        let vms = born(&process, 2, &document);
        assert_eq!(vms[0].passes("login", 20), 10);
        process.wait_for(&vms, 3 * HELD);
        assert_eq!(process.utilization(), Some(0));
        assert_eq!(vms[0].passes("login", 20), 10);
    }
}

#[test]
fn the_version_is_1_while_a_worker_has_a_configuration() {
    let process = process();
    let version = || process.metric("leapgate.info;version=0.1.0;;2e2e");
    let (old, new) = (Vm::born(&process, TEN), born(&process, 1, TEN));
    assert_eq!(version(), Some(1));
    drop(old);
    new[0].passes("login", 1);
    process.wait_for(&new, 400);
    assert_eq!(
        version(),
        Some(1),
        "the other worker has said so when it fell asleep"
    );
    drop(new);
    assert_eq!(version(), Some(0));
}

#[test]
fn a_worker_that_has_missed_what_others_settled_shows_no_debt() {
    let process = process();
    let rules = r#""flowRules": [{"resource": "login", "id": "login", "count": 10, "unit": "tokens",
                                  "cost": {"estimate": 1, "actual": {"header": "x-cost"}}}]"#;
    let vms = born(&process, 2, &held(rules));
    let properties = || process.properties.borrow_mut();
    properties().insert("upstream\0local_address".into(), b"1.2.3.4:5".to_vec());
    properties().insert("header x-cost".into(), b"1".to_vec());
    let call = |vm: &Vm| {
        let mut passed = vm.request("login").unwrap();
        vm.filter.on_response(&passed, true);
        vm.filter.on_end(&mut passed);
    };
    vms.iter().for_each(call);
    for _ in 0..20 {
        process.wait_for(&vms, 1100);
        (0..6).for_each(|_| call(&vms[0]));
        process.wait_for(&vms, 100);
        assert_eq!(process.utilization(), Some(60));
    }
}
