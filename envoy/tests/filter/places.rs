//! Names that no rule knows: which of them have windows of their own is decided once for the process.

use super::*;

fn with_origin(process: &Process, origin: &str) {
    let mut headers = process.request_headers.borrow_mut();
    headers.insert("x-app".into(), origin.into());
}

fn born(process: &Rc<Process>, workers: usize, document: &str) -> Vec<Vm> {
    (0..workers).map(|_| Vm::born(process, document)).collect()
}

const FIFTY: &str =
    r#"{"flowRules": [{"resource": "*", "count": 50}], "envoy": {"maxResources": 10}}"#;

#[test]
fn a_route_beyond_the_bound_has_no_second_window_in_another_worker() {
    let process = process();
    let vms = born(&process, 4, FIFTY);
    let mut passed = [0; 40];
    for round in 0..30 {
        for (worker, vm) in vms.iter().enumerate() {
            for i in 0..40 {
                // Each worker meets the routes in an order of its own.
                let route = (i * 7 + worker * 10 + round) % 40;
                passed[route] += vm.passes(&format!("route-{route}"), 1);
            }
        }
    }
    let own = passed.iter().filter(|passed| **passed == 50).count();
    let further: usize = passed.iter().filter(|passed| **passed != 50).sum();
    assert_eq!((own, further), (10, 50), "{passed:?}");
}

const EACH_ORIGIN: &str = r#"{"flowRules": [{"resource": "api", "count": 5, "limitApp": "other"}],
                              "envoy": {"origin": {"header": "x-app"}}}"#;

#[test]
fn an_origin_beyond_the_bound_has_no_second_window_in_another_worker() {
    let process = process();
    let vms = born(&process, 2, EACH_ORIGIN);
    let mut passed = vec![0; 1100];
    for (worker, vm) in vms.iter().enumerate() {
        for i in 0..1100 {
            let origin = (i + worker * 550) % 1100;
            with_origin(&process, &format!("app-{origin}"));
            passed[origin] += vm.passes("api", 4);
        }
    }
    let own = passed.iter().filter(|passed| **passed == 5).count();
    let further: usize = passed.iter().filter(|passed| **passed < 5).sum();
    assert_eq!((own, further), (1000, 5));
}

#[test]
fn a_breaker_beyond_the_bound_is_the_same_one_in_all_workers() {
    let process = process();
    let document = r#"{"degradeRules": [{"resource": "*", "grade": "errorCount", "count": 3, "timeWindow": 10,
                       "minRequestAmount": 1}], "envoy": {"maxResources": 2}}"#;
    let vms = born(&process, 2, document);
    let call = |vm: &Vm, route: &str| {
        process.response.set(Some((500, 0)));
        let passed = vm.request(route);
        passed
            .map(|mut passed| vm.filter.on_end(&mut passed))
            .is_some()
    };
    // The first worker has met `a` and `b`, the second one would keep `c` and `d` apart.
    for (vm, routes) in [(&vms[0], ["a", "b"]), (&vms[1], ["c", "d"])] {
        routes.iter().for_each(|route| assert!(call(vm, route)));
    }
    for _ in 0..2 {
        assert!(call(&vms[0], "c"));
    }
    for (vm, route, passes) in [
        (0, "c", false),
        (1, "c", false),
        (1, "d", false),
        (0, "d", false),
        (1, "a", true),
    ] {
        assert_eq!(call(&vms[vm], route), passes, "{route} in worker {vm}");
    }
}

#[test]
fn the_keys_of_a_route_beyond_the_bound_have_one_window_each() {
    let process = process();
    let document = r#"{"flowRules": [{"resource": "*", "count": 3, "key": [{"header": "x-app"}]}],
                       "envoy": {"maxResources": 2}}"#;
    let vms = born(&process, 4, document);
    with_origin(&process, "me");
    for route in ["a", "b", "c", "d", "e"] {
        let passed: usize = vms.iter().map(|vm| vm.passes(route, 2)).sum();
        assert_eq!(passed, 3, "{route}");
    }
}

const TWO: &str = r#"{"flowRules": [{"resource": "*", "count": 2}], "envoy": {"maxResources": 2}}"#;

#[test]
fn a_name_keeps_its_place_until_nothing_counts_and_a_full_list_wants_it() {
    let process = process();
    let vms = born(&process, 2, TWO);
    // When, in which worker, which route, and how many of three requests pass.
    let rows = [
        (0, 0, "a", 2),
        (0, 1, "b", 2),
        (0, 0, "c", 2), // shares
        (0, 1, "d", 0), // shares with it
        (500, 0, "e", 0),
        (1009, 0, "e", 0),
        (1010, 0, "e", 2), // nothing counts any more: it has the place of `a` or `b`
        (1010, 1, "e", 0),
        (1010, 1, "d", 2), // and so has this
        (1010, 0, "a", 2), // has lost it, and shares
        (1010, 1, "b", 0), // with this one
        (1010, 1, "a", 0),
        (1500, 0, "d", 0),
    ];
    for (after, worker, route, passes) in rows {
        process.millis.set(5000 + after);
        vms.iter().for_each(|vm| vm.filter.on_tick());
        assert_eq!(
            vms[worker].passes(route, 3),
            passes,
            "{route} in worker {worker} after {after} ms"
        );
    }
}

#[test]
fn a_name_that_gets_a_place_takes_along_what_it_may_have_used_without_one() {
    let process = process();
    let vms = born(&process, 2, TWO);
    let tick = |after: u64| {
        process.millis.set(5000 + after);
        vms.iter().for_each(|vm| vm.filter.on_tick());
    };
    assert_eq!(vms[0].passes("a", 1) + vms[0].passes("b", 1), 2);
    tick(990);
    assert_eq!(vms[1].passes("c", 1), 1); // of the two that the further names have
    tick(1020);
    // `a` and `b` are idle: `c` gets a place in which one is used.
    assert_eq!(vms[0].passes("c", 2), 1);
    assert_eq!(vms[1].passes("d", 3), 1); // as the further names have used one
    tick(2010);
    assert_eq!(vms[0].passes("c", 3), 0);
    tick(2040);
    assert_eq!(vms[0].passes("c", 3), 2);
}

#[test]
fn a_virtual_machine_that_is_born_late_gives_away_places_of_names_that_it_has_never_met() {
    let process = process();
    let old = Vm::born(&process, TWO);
    assert_eq!(old.passes("a", 3) + old.passes("b", 3), 4);
    old.filter.on_tick();
    drop(old);
    let vm = Vm::born(&process, TWO);
    process.millis.set(6500);
    let passed: Vec<usize> = (0..4).map(|_| vm.passes("c", 1)).collect();
    assert_eq!(passed, [1, 1, 0, 0]);
    process.millis.set(8000);
    // All but the first request have been counted where `c` is alone.
    assert_eq!(vm.passes("c", 2) + vm.passes("d", 2), 4);
    assert_eq!(vm.passes("c", 1) + vm.passes("d", 1), 0);
}

#[test]
fn metrics_are_bounded_for_the_process_however_many_names_come_and_go() {
    let process = process();
    let vms = born(&process, 4, TWO);
    let mut series = Vec::new();
    for round in 0..50 {
        process.millis.set(5000 + round * 2000);
        for vm in &vms {
            vm.passes(&format!("route-{round}"), 3);
            vm.passes(&format!("other-{round}"), 3);
            vm.filter.on_tick();
        }
        series.push(process.metrics.borrow().len());
    }
    assert_eq!(series[10], series[49], "{series:?}");
    // Two places and the further names, each with three gauges and three counters; how often lists have changed and refusals were
    // repeated, and the version.
    assert!(series[49] <= 3 * 6 + 3, "{:?}", process.metrics.borrow());
}

#[test]
fn with_the_scope_of_a_worker_each_decides_alone() {
    let process = process();
    let document = r#"{"flowRules": [{"resource": "*", "count": 2}], "envoy": {"maxResources": 2, "scope": "worker"}}"#;
    let vms = born(&process, 2, document);
    for (worker, routes) in [(0, ["a", "b"]), (1, ["c", "d"])] {
        for route in routes {
            assert_eq!(vms[worker].passes(route, 3), 2);
        }
    }
    assert!(process.shared.borrow().is_empty());
}

#[test]
fn an_origin_gets_the_place_of_one_in_whose_window_nothing_counts() {
    let process = process();
    let vms = born(&process, 2, EACH_ORIGIN);
    let passes = |vm: &Vm, origin: &str, n| {
        with_origin(&process, origin);
        vm.passes("api", n)
    };
    for made_up in 0..1001 {
        assert_eq!(passes(&vms[0], &format!("made-up-{made_up}"), 1), 1);
    }
    let rows = [
        (0, "me", 4), // of the five that the further names have
        (0, "you", 0),
        (3000, "me", 5),
        (3000, "you", 5),
        (3000, "made-up-900", 5),
    ];
    for (after, origin, passed) in rows {
        process.millis.set(5000 + after);
        vms.iter().for_each(|vm| vm.filter.on_tick());
        let both = passes(&vms[1], origin, 3) + passes(&vms[0], origin, 3);
        assert_eq!(both, passed, "{origin} after {after} ms");
    }
}

/// How many places another name has had before.
fn reused_places(process: &Process) -> usize {
    let shared = process.shared.borrow();
    let (list, _) = shared.get("leapgate.names").unwrap();
    let places = list.chunks(8).skip(1);
    let is_reused = |word: &&[u8]| word.first().is_some_and(|first| first & 0b100 != 0);
    places.filter(is_reused).count()
}

/// Calls, with the number of their name.
type InFlight = Rc<RefCell<Vec<(usize, Passed<Fake>)>>>;

#[test]
fn no_more_calls_of_a_name_are_in_flight_than_its_limit_while_places_change_hands() {
    let mut reused = 0;
    for seed in 0..200 {
        let mut random = fastrand::Rng::with_seed(seed);
        let process = process();
        let document = r#"{"flowRules": [{"resource": "*", "count": 2, "grade": "concurrency"}], "envoy": {"maxResources": 2}}"#;
        let vms: Rc<Vec<Vm>> = Rc::new(born(&process, 3, document));
        let names = ["a", "b", "c", "d"];
        let in_flight: InFlight = Rc::default();
        for step in 0..400 {
            let name = random.usize(0..names.len());
            let (worker, others_name) = (random.usize(0..3), random.usize(0..names.len()));
            let (vms_too, too) = (Rc::clone(&vms), Rc::clone(&in_flight));
            let meanwhile = move || {
                let vm = &vms_too[(worker + 1) % 3];
                let route = vm.host.0.route.replace(names[others_name].into());
                let passed = vm.request(names[others_name]);
                too.borrow_mut()
                    .extend(passed.map(|passed| (others_name, passed)));
                vm.host.0.route.replace(route);
            };
            process
                .meanwhile
                .replace(Some((random.u32(0..20), Box::new(meanwhile))));
            let passed = vms[worker].request(names[name]);
            process.meanwhile.take();
            in_flight
                .borrow_mut()
                .extend(passed.map(|passed| (name, passed)));
            for (name, text) in names.iter().enumerate() {
                let calls = in_flight
                    .borrow()
                    .iter()
                    .filter(|(of, _)| *of == name)
                    .count();
                assert!(calls <= 2, "seed {seed}, step {step}: {calls} of {text}");
            }
            while random.u8(0..3) > 0 && !in_flight.borrow().is_empty() {
                let ends = random.usize(0..in_flight.borrow().len());
                drop(in_flight.borrow_mut().swap_remove(ends));
            }
        }
        reused += reused_places(&process);
    }
    assert!(
        reused > 100,
        "places have changed hands {reused} times: the test looks at nothing"
    );
}

/// Whatever other workers do between any two host calls of a request, a name has one limit. (`Process::meanwhile` lets another
/// worker act after this many more host calls, unseen by the request.)
#[test]
fn no_name_has_two_limits_while_places_change_hands() {
    let mut reused = 0;
    for seed in 0..400 {
        let mut random = fastrand::Rng::with_seed(seed);
        let process = process();
        let vms: Rc<Vec<Vm>> = Rc::new(born(
            &process,
            3,
            r#"{"flowRules": [{"resource": "*", "count": 3, "intervalMs": 100, "sampleCount": 10}],
                "envoy": {"maxResources": 2}}"#,
        ));
        let names = ["a", "b", "c", "d"];
        let admitted: Rc<RefCell<Vec<(u64, usize)>>> = Rc::default();
        for _ in 0..120 {
            // Mostly one or two names are requested, so that others fall idle.
            let favourite = random.usize(0..names.len());
            process.millis.set(process.millis.get() + random.u64(0..60));
            if random.bool() {
                vms[random.usize(0..3)].filter.on_tick();
            }
            for _ in 0..random.usize(1..6) {
                let name = if random.u8(0..4) == 0 {
                    random.usize(0..names.len())
                } else {
                    favourite
                };
                let (worker, other) = (random.usize(0..3), random.usize(0..2));
                let (vms_too, admitted_too) = (Rc::clone(&vms), Rc::clone(&admitted));
                let others_name = if random.bool() {
                    name
                } else {
                    random.usize(0..names.len())
                };
                let meanwhile = move || {
                    let vm = &vms_too[(worker + 1 + other) % 3];
                    let now = vm.host.0.millis.get();
                    let route = vm.host.0.route.replace(names[others_name].into());
                    for _ in 0..3 {
                        if vm.request(names[others_name]).is_some() {
                            admitted_too.borrow_mut().push((now, others_name));
                        }
                    }
                    vm.host.0.route.replace(route);
                };
                let calls = random.u32(0..30);
                process
                    .meanwhile
                    .replace(Some((calls, Box::new(meanwhile))));
                if vms[worker].request(names[name]).is_some() {
                    let now = process.millis.get();
                    admitted.borrow_mut().push((now, name));
                }
                process.meanwhile.take();
            }
        }
        let admitted = admitted.borrow();
        for (name, text) in names.iter().enumerate() {
            let mut times: Vec<u64> = admitted
                .iter()
                .filter(|(_, of)| *of == name)
                .map(|(at, _)| *at)
                .collect();
            times.sort_unstable();
            for window in times.windows(4) {
                assert!(
                    window[3] - window[0] >= 100,
                    "seed {seed}, {text}: {window:?}"
                );
            }
        }
        reused += reused_places(&process);
    }
    assert!(
        reused > 200,
        "places have changed hands {reused} times: the test looks at nothing"
    );
}
