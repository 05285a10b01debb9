//! System rules: over all requests of the process.

use super::*;

impl Vm {
    pub(super) fn ends(&self, mut passed: Passed<Fake>, millis: u64) {
        let process = &self.host.0;
        process.millis.set(process.millis.get() + millis);
        process.response.set(Some((200, 0)));
        self.filter.on_response(&passed, false);
        self.filter.on_end(&mut passed);
    }
}

pub(super) fn system(rule: &str) -> String {
    format!(r#"{{"systemRules": [{rule}]}}"#)
}

#[test]
fn four_workers_and_all_routes_pass_the_systems_limit_together() {
    let process = process();
    let vms = [0; 4].map(|_| Vm::born(&process, &system(r#"{"qps": 10}"#)));
    let passes = |route: &str| -> usize {
        (0..5)
            .flat_map(|_| &vms)
            .map(|vm| vm.passes(route, 1))
            .sum()
    };
    assert_eq!((passes("a"), passes("b")), (10, 0));
    for (later, more) in [(1000, 0), (1009, 0), (1010, 10)] {
        process.millis.set(5000 + later);
        assert_eq!(passes("c"), more, "after {later} ms");
    }
    let (status, details, ..) = process.replies.borrow()[0].clone();
    assert_eq!(
        (status, details.as_str()),
        (429, "leapgate{rule=system/qps}")
    );
    vms[0].filter.on_tick();
    assert!(process.metric("leapgate.system_blocked;rule=system/qps;;2f") > Some(0));
}

#[test]
fn what_another_rule_refuses_is_no_pass_of_the_system() {
    let document =
        r#"{"systemRules": [{"qps": 10}], "flowRules": [{"resource": "a", "count": 2}]}"#;
    let vm = Vm::born(&process(), document);
    assert_eq!(vm.passes("a", 9), 2);
    assert_eq!(vm.passes("b", 9), 8);
}

#[test]
fn no_second_over_four_workers_holds_more_than_the_systems_limit() {
    let process = process();
    let vms = [0; 4].map(|_| Vm::born(&process, &system(r#"{"qps": 10}"#)));
    let mut random = fastrand::Rng::with_seed(11);
    let mut admitted = Vec::new();
    for _ in 0..20_000 {
        process.millis.set(process.millis.get() + random.u64(0..4));
        let vm = &vms[random.usize(0..4)];
        if random.u8(0..8) == 0 {
            vm.filter.on_tick();
        }
        if vm.request("any").is_some() {
            admitted.push(process.millis.get());
        }
    }
    for window in admitted.windows(11) {
        assert!(window[10] - window[0] >= 1000, "11 within: {window:?}");
    }
    let allowed = (admitted[admitted.len() - 1] - admitted[0]) / 100;
    assert!(admitted.len() as u64 * 100 >= allowed * 95);
}

/// Whatever comes between two host calls, never one request too many passes.
#[test]
fn a_race_for_the_last_pass_or_seat_has_at_most_one_winner() {
    for rule in [r#"{"qps": 1}"#, r#"{"maxThread": 1}"#] {
        for calls in 0.. {
            let process = process();
            let vm = Vm::born(&process, &system(rule));
            let other = Rc::new(Vm::born(&process, &system(rule)));
            let others: Rc<RefCell<Vec<Passed<Fake>>>> = Rc::default();
            let (weak, kept) = (Rc::downgrade(&other), Rc::clone(&others));
            process.meanwhile.replace(Some((
                calls,
                Box::new(move || {
                    kept.borrow_mut()
                        .extend(weak.upgrade().unwrap().request("b"))
                }),
            )));
            let own = vm.request("a");
            let came_between = process.meanwhile.take().is_none();
            let passed = usize::from(own.is_some()) + others.borrow().len();
            assert!(passed <= 1, "{rule} after {calls} calls: {passed}");
            if !came_between {
                assert!(calls > 1, "it came between {calls} times");
                break;
            }
        }
    }
}

#[test]
fn calls_in_flight_of_all_routes_are_limited_together_and_given_back_however_they_end() {
    let process = process();
    let vms = [0; 2].map(|_| Vm::born(&process, &system(r#"{"maxThread": 2}"#)));
    let in_flight = || process.metric("leapgate.inbound_in_flight");
    let first = vms[0].request("a").unwrap();
    let second = vms[1].request("b").unwrap();
    assert_eq!(in_flight(), Some(2));
    assert!(vms[0].request("c").is_none());
    assert_eq!(in_flight(), Some(2), "a refusal holds nothing");
    vms[0].ends(first, 5);
    assert_eq!(in_flight(), Some(1));
    drop(second);
    assert_eq!(in_flight(), Some(0));
    assert!(vms[0].request("c").is_some());
}

#[test]
fn the_average_response_time_is_that_of_all_workers_for_a_second() {
    let process = process();
    let vms = [0; 2].map(|_| Vm::born(&process, &system(r#"{"avgRt": 100}"#)));
    for (vm, millis) in [(0, 50), (1, 151)] {
        let passed = vms[vm].request("a").unwrap();
        vms[vm].ends(passed, millis);
    }
    // 50 and 151 ms are 100.5 on average.
    assert!(vms.iter().all(|vm| vm.request("b").is_none()));
    let passed = {
        process.millis.set(5999);
        assert!(vms[0].request("b").is_none());
        process.millis.set(6000);
        vms[0].request("b").unwrap()
    };
    vms[0].ends(passed, 100);
    assert!(vms[1].request("b").is_some(), "100 is not above 100");
}

#[test]
fn bbr_holds_calls_in_flight_to_the_best_rate_times_the_shortest_response() {
    let process = process();
    let vms = [0; 2].map(|_| Vm::born(&process, &system(r#"{"bbr": true}"#)));
    // Two floors at rest: 1 in half a second times 5 s.
    let passed: Vec<_> = (0..20).filter_map(|_| vms[0].request("a")).collect();
    assert_eq!(passed.len(), 11);
    drop(passed);
    // 10 in half a second at 100 ms: 20 a second, two at a time. A third is let in before it counts.
    let calls: Vec<_> = (0..10).map(|_| vms[0].request("a").unwrap()).collect();
    process.millis.set(5100);
    for passed in calls {
        vms[0].ends(passed, 0);
    }
    vms.iter().for_each(|vm| vm.filter.on_tick());
    for vm in &vms {
        let passed: Vec<_> = (0..20).filter_map(|_| vm.request("a")).collect();
        assert_eq!(passed.len(), 3);
    }
}

#[test]
fn whichever_gauge_of_the_system_is_silent_its_limits_hold_and_the_log_names_it() {
    let cases = [
        (r#"{"qps": 2}"#, "inbound_passes_tickets"),
        (r#"{"qps": 2}"#, "inbound_passes_admitted"),
        (r#"{"maxThread": 2}"#, "inbound_in_flight"),
        (r#"{"avgRt": 100}"#, "inbound_completed"),
        (r#"{"avgRt": 100}"#, "inbound_response_ms"),
    ];
    for (rule, gauge) in cases {
        let process = process();
        process.excluded.replace(Some(gauge.into()));
        let vms = [0; 2].map(|_| Vm::born(&process, &system(rule)));
        process.warned_of(&format!("leapgate.{gauge}"), 2, IN_SHARED_DATA);
        let first = vms.each_ref().map(|vm| vm.request("a").unwrap());
        let third: usize = vms.iter().map(|vm| vm.passes("a", 1)).sum();
        if rule.contains("avgRt") {
            for (vm, passed) in vms.iter().zip(first) {
                vm.ends(passed, 101);
            }
        } else {
            assert_eq!(third, 0, "{rule} without {gauge}");
            if rule.contains("maxThread") {
                drop(first);
                assert!(vms.iter().all(|vm| vm.request("a").is_some()));
                continue;
            }
        }
        let passes: usize = vms.iter().map(|vm| vm.passes("a", 9)).sum();
        assert_eq!(passes, 0, "{rule} without {gauge}");
        process.millis.set(7000);
        let passes: usize = vms.iter().map(|vm| vm.passes("a", 1)).sum();
        assert_eq!(passes, 2, "{rule} without {gauge}");
    }
}

#[test]
fn a_machine_born_late_goes_on_with_the_passes_that_another_has_published() {
    let process = process();
    let document = system(r#"{"qps": 10}"#);
    let vm = Vm::born(&process, &document);
    assert_eq!(vm.passes("a", 6), 6);
    vm.filter.on_tick();
    process.millis.set(5900);
    let late = Vm::born(&process, &document);
    assert_eq!(late.passes("a", 10), 4);
    process.millis.set(6010);
    assert_eq!(late.passes("a", 10), 6);
}

#[test]
fn a_reload_keeps_what_the_system_has_counted() {
    let process = process();
    let mut vm = Vm::born(&process, &system(r#"{"qps": 10, "maxThread": 3}"#));
    let passed = vm.request("a").unwrap();
    assert_eq!(vm.passes("a", 5), 5);
    vm.configure(&system(r#"{"qps": 7, "maxThread": 2}"#));
    let second = vm.request("a").unwrap();
    assert!(vm.request("a").is_none());
    drop((passed, second));
    assert_eq!(process.metric("leapgate.inbound_in_flight"), Some(0));
    assert_eq!(vm.passes("a", 5), 0);
}

#[test]
fn a_system_rule_in_shadow_refuses_nothing_and_counts_what_it_would_have() {
    let process = process();
    let rule = r#"{"id": "dry", "qps": 2, "mode": "shadow"}"#;
    let vm = Vm::born(&process, &system(rule));
    assert_eq!(vm.passes("a", 5), 5);
    vm.filter.on_tick();
    assert_eq!(
        process.metric("leapgate.system_shadow_blocked;rule=dry"),
        Some(3)
    );
    assert_eq!(process.metric("leapgate.system_blocked;rule=dry"), Some(0));
}
