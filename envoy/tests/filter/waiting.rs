//! Requests that wait, that borrow, and that say where they come from.

use super::*;

/// A turn every 25 ms.
const PACED: &str = r#"{"flowRules": [{"resource": "login", "count": 40, "controlBehavior": "throttle",
                                        "maxQueueingTimeMs": 500}]}"#;

/// Ten a second, and important requests may borrow.
const LENDING: &str = r#"{"flowRules": [{"resource": "login", "id": "login", "count": 10, "sampleCount": 10}],
                          "envoy": {"prioritized": {"header": "X-Priority", "value": "high"}}}"#;

/// Time goes on to `until`, and each machine ticks when it has asked to. Returns the resumed requests: how long after `since`
/// each was.
pub(super) fn run(process: &Process, vms: &[Vm], until: u64, since: u64) -> Vec<u64> {
    process.resumed.borrow_mut().clear();
    while process.millis.get() < until {
        process.millis.set(process.millis.get() + 1);
        for vm in vms {
            let ticks = &vm.host.1;
            if ticks.period.get() > 0 && ticks.next.get() <= process.millis.get() {
                ticks
                    .next
                    .set(process.millis.get() + u64::from(ticks.period.get()));
                vm.filter.on_tick();
            }
        }
    }
    let resumed = process.resumed.borrow();
    resumed.iter().map(|(at, _)| at - since).collect()
}

pub(super) fn with_header(process: &Process, name: &str, value: &str) {
    process
        .request_headers
        .replace([(name.into(), value.into())].into());
}

fn held(passed: &[Option<Passed<Fake>>]) -> usize {
    passed
        .iter()
        .flatten()
        .filter(|passed| passed.is_held())
        .count()
}

#[test]
fn throttled_requests_go_on_one_by_one_each_in_its_own_turn() {
    let process = process();
    let vms = [Vm::born(&process, PACED)];
    let passed: Vec<_> = (0..5).map(|_| vms[0].request("login")).collect();
    assert_eq!((passed.iter().flatten().count(), held(&passed)), (5, 4));
    assert_eq!(process.metric("leapgate.waiting"), Some(4));
    assert_eq!(run(&process, &vms, 6000, 5000), [25, 50, 75, 100]);
    assert_eq!(process.metric("leapgate.waiting"), Some(0));
    assert_eq!(*process.recorded.borrow(), [25, 50, 75, 100]);
    assert_eq!(
        process.metric("leapgate.waited;rule=login/throttle;;2f"),
        Some(4)
    );
}

#[test]
fn ticks_come_when_a_request_is_due_and_else_as_seldom_as_before() {
    let process = process();
    let vms = [Vm::born(&process, PACED)];
    let period = || vms[0].host.1.period.get();
    assert!(vms[0].request("login").is_some());
    assert_eq!(period(), 100);
    process.millis.set(5025);
    let passed: Vec<_> = (0..3).map(|_| vms[0].request("login")).collect();
    assert_eq!(period(), 25);
    run(&process, &vms, 5050, 5000);
    assert_eq!(period(), 25);
    run(&process, &vms, 5075, 5000);
    assert_eq!(period(), 100);
    drop(passed);
}

#[test]
fn a_request_that_comes_later_and_is_due_earlier_continues_earlier() {
    let process = process();
    let document = r#"{"flowRules": [{"resource": "slow", "count": 1, "controlBehavior": "throttle", "maxQueueingTimeMs": 5000},
                                     {"resource": "fast", "count": 40, "controlBehavior": "throttle"}]}"#;
    let vms = [Vm::born(&process, document)];
    let routes = ["slow", "slow", "fast", "fast", "fast"];
    let _passed = routes.map(|route| vms[0].request(route));
    assert_eq!(run(&process, &vms, 7000, 5000), [25, 50, 1000]);
    let resumed: Vec<u32> = process
        .resumed
        .borrow()
        .iter()
        .map(|(_, context)| *context)
        .collect();
    assert_eq!(resumed, [4, 5, 2]);
}

#[test]
fn windows_are_kept_up_to_date_while_others_wait() {
    let process = process();
    let document = r#"{"flowRules": [{"resource": "login", "count": 1, "controlBehavior": "throttle", "maxQueueingTimeMs": 5000},
                                     {"resource": "api", "count": 10}]}"#;
    let vms = [Vm::born(&process, document)];
    let _passed: Vec<_> = (0..4).map(|_| vms[0].request("login")).collect();
    assert_eq!(vms[0].passes("api", 3), 3);
    assert_eq!(run(&process, &vms, 5040, 5000), [0; 0]);
    assert_eq!(process.metric("leapgate.passed;rule=api"), Some(3));
    assert_eq!(run(&process, &vms, 9000, 5000), [1000, 2000, 3000]);
}

#[test]
fn four_workers_take_turns_with_one_another() {
    let process = process();
    let vms = [0; 4].map(|_| Vm::born(&process, PACED));
    let mut random = fastrand::Rng::with_seed(3);
    let (mut kept, mut passes, mut refused) = (Vec::new(), Vec::new(), 0);
    for _ in 0..4000 {
        let now = process.millis.get();
        passes.extend(run(&process, &vms, now + random.u64(0..4), 0));
        let vm = &vms[random.usize(0..4)];
        match vm.request("login") {
            Some(passed) if passed.is_held() => kept.push(passed),
            Some(_) => passes.push(process.millis.get()),
            None => refused += 1,
        }
    }
    passes.extend(run(&process, &vms, process.millis.get() + 600, 0));
    assert!(refused > 1000, "that was no overload");
    passes.sort_unstable();
    let gaps = passes.windows(2).map(|pair| pair[1] - pair[0]);
    assert_eq!(gaps.clone().min(), Some(25));
    assert!(
        gaps.clone().max().unwrap() <= 30,
        "turns were lost: {:?}",
        gaps.max()
    );
}

#[test]
fn no_two_workers_take_the_same_turn_wherever_one_is_interrupted() {
    for interrupted_at in 0..12 {
        let process = process();
        let first = Vm::born(&process, PACED);
        let second = Rc::new(Vm::born(&process, PACED));
        let (calls, taken) = (Rc::new(Cell::new(0)), Rc::new(RefCell::new(Vec::new())));
        let probe = {
            let (calls, taken, second) = (Rc::clone(&calls), Rc::clone(&taken), Rc::clone(&second));
            move || {
                calls.set(calls.get() + 1);
                if calls.get() == interrupted_at + 1 {
                    let passed = second.request("login");
                    taken.borrow_mut().push(passed);
                }
            }
        };
        process.probe.replace(Some(Rc::new(probe)));
        let passed = first.request("login");
        process.probe.replace(None);
        taken.borrow_mut().extend([passed, second.request("login")]);
        let taken = taken.take();
        let machines = [first];
        let mut resumed = run(&process, &machines, 5200, 5000);
        process.millis.set(5000);
        second.filter.on_tick();
        process.millis.set(5200);
        let before = process.resumed.borrow().len();
        second.filter.on_tick();
        resumed.extend(vec![0; process.resumed.borrow().len() - before]);
        assert_eq!(
            taken.iter().flatten().count(),
            taken.len(),
            "{interrupted_at}"
        );
        assert_eq!(
            held(&taken),
            taken.len() - 1,
            "at call {interrupted_at} two had the same turn"
        );
        assert_eq!(resumed.len(), taken.len() - 1);
        let place =
            process.shared("leapgate.latest;rule=login/throttle;;2f;window=1000ms_100_throttle");
        assert_eq!(
            place,
            5_000_000_000 + 25_000_000 * taken.len() as u64,
            "{interrupted_at}"
        );
    }
}

#[test]
fn where_swaps_are_lost_for_good_a_throttle_refuses() {
    let process = process();
    let vm = Vm::born(&process, PACED);
    process.contention.set(1_000_000);
    assert!(vm.request("login").is_none());
    process.contention.set(0);
    assert!(vm.request("login").is_some());
}

#[test]
fn without_shared_data_each_worker_paces_alone_and_the_log_says_so() {
    let process = process();
    process.no_shared_data.set(true);
    let vms = [0; 2].map(|_| Vm::born(&process, PACED));
    assert_eq!(
        process.warnings()[0],
        "leapgate: rule=login/throttle;;2f;window=1000ms_100_throttle: shared data does not work here: it paces each worker thread alone"
    );
    let passed = [vms[0].request("login"), vms[1].request("login")];
    assert_eq!((passed.iter().flatten().count(), held(&passed)), (2, 0));
}

#[test]
fn beyond_the_bound_a_request_is_refused_and_takes_no_turn() {
    let process = process();
    let document = PACED.replacen("}]}", r#", "id": "pace"}], "envoy": {"maxWaiting": 2}}"#, 1);
    let vms = [Vm::born(&process, &document)];
    let mut passed: Vec<_> = (0..5).map(|_| vms[0].request("login")).collect();
    assert_eq!((passed.iter().flatten().count(), held(&passed)), (3, 2));
    let (status, details, headers, _) = process.replies.borrow()[0].clone();
    assert_eq!((status, details.as_str()), (429, "leapgate{rule=pace}"));
    assert_eq!(headers[1], ("retry-after".into(), "1".into()));
    assert_eq!(run(&process, &vms, 5025, 5000), [25]);
    passed.push(vms[0].request("login"));
    assert_eq!(
        run(&process, &vms, 5400, 5000),
        [50, 75],
        "the next turn was free"
    );
    assert_eq!(process.metric("leapgate.blocked;rule=pace"), Some(2));
}

#[test]
fn where_no_request_may_wait_a_throttle_lets_one_pass_at_a_time() {
    let process = process();
    let document = PACED.replacen("}]}", r#"}], "envoy": {"maxWaiting": 0}}"#, 1);
    let vm = Vm::born(&process, &document);
    for (now, passes) in [(5000, 1), (5024, 0), (5025, 1), (5030, 0)] {
        process.millis.set(now);
        assert_eq!(vm.passes("login", 2), passes, "at {now}");
    }
}

#[test]
fn a_client_that_leaves_while_it_waits_gives_its_turn_back() {
    let process = process();
    let vms = [Vm::born(&process, PACED)];
    let mut passed: Vec<_> = (0..3).map(|_| vms[0].request("login")).collect();
    drop(passed.pop());
    assert_eq!(process.metric("leapgate.waiting"), Some(1));
    passed.push(vms[0].request("login"));
    passed.push(vms[0].request("login"));
    assert_eq!(run(&process, &vms, 6000, 5000), [25, 50, 75]);
    assert_eq!(process.metric("leapgate.waiting"), Some(0));
}

#[test]
fn a_request_that_the_host_does_not_resume_is_answered() {
    let process = process();
    process.resumes_nobody.set(true);
    let vms = [Vm::born(&process, PACED)];
    let passed = [vms[0].request("login"), vms[0].request("login")];
    assert_eq!(run(&process, &vms, 5100, 5000), [0; 0]);
    let (status, details, _, _) = process.replies.borrow()[0].clone();
    assert_eq!((status, details.as_str()), (503, "leapgate{not resumed}"));
    assert_eq!(
        process.warnings(),
        [
            "leapgate: the host did not resume a request that has waited \
          (may the module call `proxy_set_effective_context` and `proxy_continue_stream`?)"
        ]
    );
    assert_eq!(process.metric("leapgate.waiting"), Some(0));
    drop(passed);
}

#[test]
fn calls_in_flight_are_held_while_they_wait_and_until_they_end() {
    let process = process();
    let document = r#"{"flowRules": [{"resource": "login", "count": 40, "controlBehavior": "throttle"},
                                     {"resource": "login", "count": 2, "grade": "concurrency"}]}"#;
    let vms = [Vm::born(&process, document)];
    let mut passed: Vec<_> = (0..3).map(|_| vms[0].request("login")).collect();
    assert_eq!((passed.iter().flatten().count(), held(&passed)), (2, 1));
    run(&process, &vms, 5100, 5000);
    let in_flight = || process.metric("leapgate.in_flight;rule=login/concurrency;;2f");
    assert_eq!(in_flight(), Some(2), "one of them has waited");
    passed.clear();
    assert_eq!(in_flight(), Some(0));
    passed = vec![vms[0].request("login"), vms[0].request("login")];
    drop(passed.pop());
    assert_eq!(in_flight(), Some(1), "one has left while it waited");
}

#[test]
fn a_shadow_throttle_holds_no_request() {
    let process = process();
    let document = PACED.replacen("}]}", r#", "mode": "shadow"}]}"#, 1);
    let vm = Vm::born(&process, &document);
    let passed: Vec<_> = (0..30).map(|_| vm.request("login")).collect();
    assert_eq!((passed.iter().flatten().count(), held(&passed)), (30, 0));
    vm.filter.on_tick();
    let counts = ["passed", "waited", "shadow_blocked"]
        .map(|what| process.metric(&format!("leapgate.{what};rule=login/throttle;;2f")));
    assert_eq!(counts, [Some(21), Some(20), Some(9)]);
}

#[test]
fn a_prioritized_request_waits_where_others_are_refused() {
    let process = process();
    let vms = [Vm::born(&process, LENDING)];
    assert_eq!(vms[0].passes("login", 20), 10);
    process.millis.set(5700);
    with_header(&process, "x-priority", "low");
    assert!(vms[0].request("login").is_none());
    with_header(&process, "x-priority", "high");
    let passed: Vec<_> = (0..12).map(|_| vms[0].request("login")).collect();
    assert_eq!((passed.iter().flatten().count(), held(&passed)), (10, 10));
    assert_eq!(run(&process, &vms, 7000, 5000), [1100; 10]);
    assert_eq!(process.metric("leapgate.waited;rule=login"), Some(10));
}

#[test]
fn a_shadow_rule_lends_and_holds_no_request() {
    let process = process();
    let document = LENDING.replacen(r#""count": 10,"#, r#""count": 10, "mode": "shadow","#, 1);
    let vm = Vm::born(&process, &document);
    with_header(&process, "x-priority", "high");
    let passed: Vec<_> = (0..15).map(|_| vm.request("login")).collect();
    assert_eq!((passed.iter().flatten().count(), held(&passed)), (15, 0));
}

#[test]
fn any_value_of_the_header_will_do_where_none_is_named() {
    let process = process();
    let document = LENDING.replacen(r#", "value": "high""#, "", 1);
    let vm = Vm::born(&process, &document);
    assert_eq!(vm.passes("login", 20), 10);
    process.millis.set(5700);
    assert!(vm.request("login").is_none());
    with_header(&process, "x-priority", "");
    assert!(vm.request("login").is_some_and(|passed| passed.is_held()));
}

#[test]
fn what_one_worker_lends_the_others_count_from_that_moment_on() {
    let process = process();
    let vms = [0; 2].map(|_| Vm::born(&process, LENDING));
    assert_eq!(vms[0].passes("login", 20), 10);
    run(&process, &vms, 5750, 0);
    with_header(&process, "x-priority", "high");
    let borrowed: Vec<_> = (0..6).map(|_| vms[0].request("login")).collect();
    assert_eq!(held(&borrowed), 6);
    let more: Vec<_> = (0..6).map(|_| vms[1].request("login")).collect();
    assert_eq!(held(&more), 4, "four are left to lend");
    drop(more);
    with_header(&process, "x-priority", "low");
    run(&process, &vms, 6200, 0);
    assert_eq!(vms[1].passes("login", 20), 4, "six are lent");
}

/// As quota leaves the window bucket by bucket, each request gets what the others have left.
#[test]
fn workers_lend_one_after_another_what_comes_free_little_by_little() {
    let process = process();
    let vms = [0; 4].map(|_| Vm::born(&process, LENDING));
    for bucket in 0..5 {
        run(&process, &vms, 5010 + 100 * bucket, 0);
        assert_eq!(vms[0].passes("login", 2), 2);
    }
    run(&process, &vms, 6090, 0);
    with_header(&process, "x-priority", "high");
    let passed: Vec<_> = (0..8).map(|i| vms[i % 4].request("login")).collect();
    assert_eq!(held(&passed), 8);
    let resumed = run(&process, &vms, 7000, 5000);
    assert_eq!(resumed, [1100, 1100, 1200, 1200, 1300, 1300, 1400, 1400]);
}

#[test]
fn a_client_that_leaves_while_it_waits_gives_back_what_it_has_borrowed() {
    let process = process();
    let vms = [0; 2].map(|_| Vm::born(&process, LENDING));
    assert_eq!(vms[0].passes("login", 20), 10);
    run(&process, &vms, 5750, 0);
    with_header(&process, "x-priority", "high");
    let borrowed: Vec<_> = (0..6).map(|_| vms[0].request("login")).collect();
    drop(borrowed);
    with_header(&process, "x-priority", "low");
    run(&process, &vms, 6200, 0);
    assert_eq!(vms[1].passes("login", 20), 10);
}

/// The time at which it left is known, though no request comes until its turn has passed.
#[test]
fn what_was_given_back_in_time_does_not_count_however_late_the_next_one_comes() {
    let process = process();
    let vm = Vm::born(&process, LENDING);
    assert_eq!(vm.passes("login", 20), 10);
    process.millis.set(5750);
    with_header(&process, "x-priority", "high");
    let borrowed: Vec<_> = (0..6).map(|_| vm.request("login")).collect();
    assert_eq!(held(&borrowed), 6);
    drop(borrowed);
    with_header(&process, "x-priority", "low");
    process.millis.set(6150);
    assert_eq!(vm.passes("login", 20), 10);
}

#[test]
fn no_interval_over_four_workers_holds_more_than_the_limit_whichever_worker_borrows() {
    let process = process();
    let vms = [0; 4].map(|_| Vm::born(&process, LENDING));
    let mut random = fastrand::Rng::with_seed(11);
    let (mut kept, mut passes, mut waited) = (Vec::new(), Vec::new(), 0);
    for _ in 0..20_000 {
        let now = process.millis.get();
        passes.extend(run(&process, &vms, now + random.u64(0..5), 0));
        let value = if random.u8(0..4) == 0 { "high" } else { "low" };
        with_header(&process, "x-priority", value);
        match vms[random.usize(0..4)].request("login") {
            Some(passed) if passed.is_held() => {
                waited += 1;
                kept.push(passed);
            }
            Some(_) => passes.push(process.millis.get()),
            None => {}
        }
        if random.u8(0..8) == 0 && !kept.is_empty() {
            kept.swap_remove(random.usize(0..kept.len()));
        }
    }
    passes.sort_unstable();
    for window in passes.windows(11) {
        assert!(
            window[10] - window[0] >= 1000,
            "11 within {} ms",
            window[10] - window[0]
        );
    }
    assert!(waited > 100, "{waited} have borrowed");
    let allowed = (passes[passes.len() - 1] - passes[0]) / 100;
    assert!(
        passes.len() as u64 * 100 >= allowed * 85,
        "{} of {allowed}",
        passes.len()
    );
}

#[test]
fn a_warm_up_is_cold_at_first_and_for_all_workers() {
    let process = process();
    let document = r#"{"flowRules": [{"resource": "login", "count": 90, "controlBehavior": "warmUp", "warmUpPeriodSec": 10}]}"#;
    let vms = [0; 4].map(|_| Vm::born(&process, document));
    let passes: usize = vms.iter().map(|vm| vm.passes("login", 40)).sum();
    assert_eq!(passes, 30, "a third of the count");
}

/// One worker has slept since the rule was warm, and wakes when the others have begun again.
#[test]
fn a_worker_that_has_slept_is_as_cold_as_the_others() {
    let process = process();
    let document = r#"{"flowRules": [{"resource": "login", "count": 90, "controlBehavior": "warmUp", "warmUpPeriodSec": 10}]}"#;
    let vms = [0; 2].map(|_| Vm::born(&process, document));
    for _ in 0..30_000 {
        run(&process, &vms, process.millis.get() + 1, 0);
        vms.iter().for_each(|vm| drop(vm.request("login")));
    }
    let most = |vms: &[&Vm]| {
        let passes = |vm: &&Vm| vm.passes("login", 100);
        vms.iter().map(passes).sum::<usize>()
    };
    run(&process, &vms, process.millis.get() + 1010, 0);
    assert_eq!(most(&[&vms[0], &vms[1]]), 90, "it is warm");
    run(&process, &vms, process.millis.get() + 60_000, 0);
    assert_eq!(most(&[&vms[0]]), 30, "it is cold again");
    run(&process, &vms, process.millis.get() + 500, 0);
    assert!(most(&[&vms[1]]) <= 1, "a worker that has slept knows");
}

#[test]
fn what_relates_to_a_resource_counts_its_passes_in_all_workers() {
    let process = process();
    let document = r#"{"flowRules": [{"resource": "read", "count": 5, "strategy": "relate", "refResource": "write"}]}"#;
    let vms = [0; 2].map(|_| Vm::born(&process, document));
    assert_eq!(vms[0].passes("read", 9), 9, "no request writes");
    assert_eq!(vms[0].passes("write", 4), 4);
    assert_eq!(vms[1].passes("read", 9), 9);
    assert_eq!(vms[1].passes("write", 3), 3);
    assert_eq!([&vms[0], &vms[1]].map(|vm| vm.passes("read", 9)), [0, 0]);
    process.millis.set(6010);
    assert_eq!(vms[0].passes("read", 9), 9);
}

const BY_ORIGIN: &str = r#"{"flowRules": [{"resource": "login", "count": 3, "limitApp": "shop"},
                                          {"resource": "login", "count": 2, "limitApp": "other"},
                                          {"resource": "api", "count": 100}],
                            "envoy": {"origin": {"header": "X-App"}}}"#;

#[test]
fn each_origin_has_its_limit_in_all_workers_together() {
    let process = process();
    let vms = [0; 2].map(|_| Vm::born(&process, BY_ORIGIN));
    for (origin, limit) in [("shop", 3), ("a", 2), ("b", 2), ("a", 0), ("", 40)] {
        with_header(&process, "x-app", origin);
        let passes: usize = vms.iter().map(|vm| vm.passes("login", 20)).sum();
        assert_eq!(passes, limit, "{origin}");
    }
    process.millis.set(6010);
    with_header(&process, "x-app", "a");
    assert_eq!(
        vms.iter().map(|vm| vm.passes("login", 20)).sum::<usize>(),
        2
    );
}

#[test]
fn no_interval_holds_more_than_the_limit_of_an_origin() {
    let process = process();
    let vms = [0; 4].map(|_| Vm::born(&process, BY_ORIGIN));
    with_header(&process, "x-app", "a");
    let mut random = fastrand::Rng::with_seed(5);
    let mut passes = Vec::new();
    for _ in 0..20_000 {
        process.millis.set(process.millis.get() + random.u64(0..30));
        if vms[random.usize(0..4)].request("login").is_some() {
            passes.push(process.millis.get());
        }
    }
    assert!(
        passes
            .windows(3)
            .all(|window| window[2] - window[0] >= 1000)
    );
    let allowed = (passes[passes.len() - 1] - passes[0]) / 500;
    assert!(
        passes.len() as u64 * 10 >= allowed * 9,
        "{} of {allowed}",
        passes.len()
    );
}

#[test]
fn a_request_is_asked_where_it_comes_from_only_where_a_rule_wants_to_know() {
    let process = process();
    let vm = Vm::born(&process, BY_ORIGIN);
    assert_eq!(vm.passes("api", 5), 5);
    assert_eq!(vm.passes("elsewhere", 5), 5);
    assert_eq!(process.asked.borrow().len(), 0);
    assert_eq!(vm.passes("login", 5), 5);
    assert_eq!(process.asked.borrow().len(), 5);
    let vm = Vm::born(&process, LENDING);
    assert_eq!(vm.passes("elsewhere", 5), 5);
    assert_eq!(process.asked.borrow().len(), 5);
}

#[test]
fn the_peer_is_named_by_the_uri_of_its_certificate_or_else_the_subject() {
    let process = process();
    let document = r#"{"authorityRules": [{"resource": "login", "limitApp": "spiffe://cluster.local/ns/a/sa/b, CN=c", "strategy": "black"}],
                       "envoy": {"origin": {"from": "peer"}}}"#;
    let vm = Vm::born(&process, document);
    let cases = [
        (
            Some((Property::PeerUri, "spiffe://cluster.local/ns/a/sa/b")),
            false,
        ),
        (
            Some((Property::PeerUri, "spiffe://cluster.local/ns/a/sa/c")),
            true,
        ),
        (Some((Property::PeerSubject, "CN=c")), false),
        (None, true),
    ];
    for (peer, passes) in cases {
        process
            .peer
            .replace(peer.map(|(what, name)| (what, name.into())));
        assert_eq!(vm.request("login").is_some(), passes, "{peer:?}");
    }
    let (status, details, headers, body) = process.replies.borrow()[0].clone();
    assert_eq!(
        (status, details.as_str(), body.as_str()),
        (403, "leapgate{rule=login/black}", "forbidden")
    );
    assert_eq!(
        headers,
        [("cache-control".to_owned(), "no-store".to_owned())]
    );
}

#[test]
fn an_origin_that_is_too_long_is_none_that_a_rule_names() {
    let process = process();
    let name = "a".repeat(256);
    let document = format!(
        r#"{{"authorityRules": [{{"resource": "login", "limitApp": "{name}", "strategy": "black"}}],
             "envoy": {{"origin": {{"header": "x-app"}}}}}}"#
    );
    let vm = Vm::born(&process, &document);
    for (origin, passes) in [(name.clone(), false), (format!("{name}b"), true)] {
        with_header(&process, "x-app", &origin);
        assert_eq!(vm.request("login").is_some(), passes);
    }
}

#[test]
fn a_shadow_list_of_origins_refuses_no_request() {
    let process = process();
    let document = r#"{"authorityRules": [{"resource": "login", "limitApp": "a", "strategy": "black", "mode": "shadow"}],
                       "envoy": {"origin": {"header": "x-app"}}}"#;
    let vm = Vm::born(&process, document);
    with_header(&process, "x-app", "a");
    assert!(vm.request("login").is_some());
}
