//! Circuit breakers: fed by answers, one for the process.

use super::*;
use std::rc::Weak;

/// Opens when both of two completions were errors; stays open for ten seconds.
pub(super) const BREAKER: &str = r#"{"degradeRules": [
    {"resource": "pay", "grade": "errorRatio", "count": 0.5, "timeWindow": 10, "minRequestAmount": 2}
]}"#;

const SLOW: &str = r#"{"degradeRules": [
    {"resource": "pay", "grade": "slowRatio", "count": 100, "slowRatioThreshold": 0.5, "timeWindow": 10, "minRequestAmount": 2}
]}"#;

/// How an answer ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    /// With that status.
    Status(u64),
    /// Broken off, with these flags.
    Flagged(u64),
    /// A gRPC answer of headers alone.
    GrpcHeaders(u8),
    /// A gRPC answer whose status is in the trailers.
    GrpcTrailers(u8),
    /// The client has left before there was any.
    Left,
}

impl Vm {
    /// The request ends like that, `millis` after it was let in.
    pub(super) fn end(&self, mut passed: Passed<Fake>, end: End, millis: u64) {
        let process = &self.host.0;
        process.millis.set(process.millis.get() + millis);
        process.response.set(match end {
            End::Status(status) => Some((status, 0)),
            End::Flagged(flags) => Some((200, flags)),
            End::GrpcHeaders(_) | End::GrpcTrailers(_) => Some((200, 0)),
            End::Left => None,
        });
        process.grpc_status.replace(match end {
            End::GrpcHeaders(status) | End::GrpcTrailers(status) => status.to_string(),
            _ => String::new(),
        });
        if !matches!(end, End::Left) {
            self.filter
                .on_response(&passed, matches!(end, End::GrpcHeaders(_)));
        }
        if matches!(end, End::GrpcTrailers(_)) {
            self.filter.on_trailers(&passed);
        }
        self.filter.on_end(&mut passed);
    }

    pub(super) fn call(&self, end: End) -> bool {
        match self.request("pay") {
            Some(passed) => {
                self.end(passed, end, 1);
                true
            }
            None => false,
        }
    }

    /// Whether a breaker opens when all calls end like that.
    fn opens_on(document: &str, end: End, millis: u64) -> bool {
        let vm = Vm::born(&process(), document);
        for _ in 0..2 {
            let passed = vm.request("pay").unwrap();
            vm.end(passed, end, millis);
        }
        vm.request("pay").is_none()
    }
}

#[test]
fn what_an_answer_means_to_a_breaker() {
    let cases = [
        (End::Status(500), true),
        (End::Status(503), true),
        (End::Status(599), true),
        (End::Status(200), false),
        (End::Status(404), false),
        (End::Status(429), false),
        (End::Status(101), false),
        (End::Flagged(0x4), true),
        (End::Flagged(0x10), true),
        (End::Flagged(0x40), true),
        (End::Flagged(0x80_0000), true),
        (End::Flagged(0x4000), false),
        (End::GrpcHeaders(14), true),
        (End::GrpcHeaders(5), false),
        (End::GrpcTrailers(13), true),
        (End::GrpcTrailers(0), false),
        (End::GrpcTrailers(200), false),
        (End::Left, false),
    ];
    for (end, opens) in cases {
        assert_eq!(Vm::opens_on(BREAKER, end, 1), opens, "{end:?}");
    }
}

#[test]
fn which_answers_are_errors_can_be_said() {
    let document = BREAKER.replacen(
        '{',
        r#"{"envoy": {"errors": {"status": ["4xx", 502], "grpcStatus": [5]}}, "#,
        1,
    );
    let cases = [
        (End::Status(404), true),
        (End::Status(502), true),
        (End::Status(500), false),
        (End::GrpcHeaders(5), true),
        (End::GrpcHeaders(14), false),
    ];
    for (end, opens) in cases {
        assert_eq!(Vm::opens_on(&document, end, 1), opens, "{end:?}");
    }
}

#[test]
fn a_call_has_taken_as_long_as_it_lasted_and_a_tunnel_as_long_as_its_upgrade() {
    let opens = |end, millis| Vm::opens_on(SLOW, end, millis);
    assert!(!opens(End::Status(200), 100));
    assert!(opens(End::Status(200), 101));
    assert!(opens(End::Status(500), 101));
    assert!(
        !opens(End::Left, 100),
        "it is not known how long it would have taken"
    );
    assert!(opens(End::Left, 101), "longer than this");
    let vm = Vm::born(&process(), SLOW);
    let tunnels = [0; 2].map(|_| vm.request("pay").unwrap());
    vm.host.0.response.set(Some((101, 0)));
    for passed in &tunnels {
        vm.filter.on_response(passed, false);
    }
    vm.host.0.millis.set(vm.host.0.millis.get() + 60_000);
    for mut passed in tunnels {
        vm.filter.on_end(&mut passed);
    }
    assert!(vm.request("pay").is_some(), "an upgrade was quick");
}

#[test]
fn a_breaker_opened_by_one_machine_refuses_in_the_others_at_once_and_says_when_to_come_back() {
    let process = process();
    let vms = [0; 3].map(|_| Vm::born(&process, BREAKER));
    assert!(vms[0].call(End::Status(500)));
    assert!(vms[1].call(End::Status(500)), "it takes both");
    for vm in &vms {
        assert!(vm.request("pay").is_none());
    }
    let (status, details, headers, body) = process.replies.borrow()[0].clone();
    assert_eq!(status, 503);
    assert_eq!(details, "leapgate{rule=pay/errorRatio}");
    assert_eq!(body, "service unavailable");
    assert_eq!(
        headers,
        [("cache-control", "no-store"), ("retry-after", "10")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
    );
    assert_eq!(
        process.metric("leapgate.breaker_state;rule=pay/errorRatio;;2f"),
        Some(1)
    );
    for vm in &vms {
        vm.filter.on_tick();
    }
    assert_eq!(
        process.metric("leapgate.breaker_blocked;rule=pay/errorRatio;;2f"),
        Some(3)
    );
}

#[test]
fn all_machines_together_send_one_probe_and_its_end_is_known_to_all() {
    for (end, open) in [(End::Status(500), true), (End::Status(200), false)] {
        let process = process();
        let vms = [0; 4].map(|_| Vm::born(&process, BREAKER));
        assert!(vms[0].call(End::Status(500)) && vms[0].call(End::Status(500)));
        process.millis.set(20_000);
        let mut probes: Vec<_> = vms
            .iter()
            .cycle()
            .take(12)
            .filter_map(|vm| vm.request("pay"))
            .collect();
        assert_eq!(probes.len(), 1);
        assert_eq!(
            process.metric("leapgate.breaker_state;rule=pay/errorRatio;;2f"),
            Some(2)
        );
        vms[0].end(probes.remove(0), end, 1);
        for vm in &vms {
            assert_eq!(vm.request("pay").is_none(), open, "after {end:?}");
        }
        assert_eq!(
            process.metric("leapgate.breaker_state;rule=pay/errorRatio;;2f"),
            Some(open.into())
        );
    }
}

#[test]
fn a_probe_whose_client_leaves_is_given_back_and_another_takes_its_place_later() {
    let process = process();
    let vms = [0; 2].map(|_| Vm::born(&process, BREAKER));
    assert!(vms[0].call(End::Status(500)) && vms[0].call(End::Status(500)));
    process.millis.set(20_000);
    assert!(vms[1].call(End::Left));
    assert_eq!(
        process.metric("leapgate.breaker_state;rule=pay/errorRatio;;2f"),
        Some(1)
    );
    assert!(vms[0].request("pay").is_none());
    process.millis.set(30_001);
    assert!(vms[0].call(End::Status(200)));
    assert!(vms[1].call(End::Status(200)));
    assert_eq!(
        process.metric("leapgate.breaker_state;rule=pay/errorRatio;;2f"),
        Some(0)
    );
}

/// Whatever another virtual machine does between two host calls of this one, there is one probe, and nothing is left in flight.
#[test]
fn one_probe_whatever_another_machine_does_in_between() {
    let document = r#"{
        "flowRules": [
            {"resource": "pay", "grade": "concurrency", "count": 10},
            {"resource": "pay", "count": 100, "intervalMs": 600000, "id": "all"}
        ],
        "degradeRules": [{"resource": "pay", "grade": "errorRatio", "count": 0.5, "timeWindow": 10, "minRequestAmount": 2}]
    }"#;
    let mut overtaken = 0;
    for calls in 0.. {
        let process = process();
        let (vm, other) = (
            Vm::born(&process, document),
            Rc::new(Vm::born(&process, document)),
        );
        assert!(vm.call(End::Status(500)) && vm.call(End::Status(500)));
        process.millis.set(20_000);
        let others: Rc<RefCell<Vec<Passed<Fake>>>> = Rc::default();
        let (weak, kept): (Weak<Vm>, _) = (Rc::downgrade(&other), Rc::clone(&others));
        process.meanwhile.replace(Some((
            calls,
            Box::new(move || {
                kept.borrow_mut()
                    .extend(weak.upgrade().unwrap().request("pay"))
            }),
        )));
        let own = vm.request("pay");
        let came_between = process.meanwhile.take().is_none();
        assert_eq!(
            usize::from(own.is_some()) + others.borrow().len(),
            if came_between { 1 } else { own.iter().count() },
            "after {calls} calls"
        );
        // A request that was overtaken is refused, and no rule charges it.
        let passed = 2 + usize::from(own.is_some()) + others.borrow().len();
        assert_eq!(
            process.metric("leapgate.admitted;rule=all;window=600000ms_100"),
            Some(passed as i64),
            "after {calls} calls"
        );
        overtaken += u32::from(own.is_none());
        drop(own);
        others.borrow_mut().clear();
        assert_eq!(
            process.metric("leapgate.in_flight;rule=pay/concurrency;;2f"),
            Some(0),
            "after {calls} calls"
        );
        if !came_between {
            assert!(calls > 3 && overtaken > 0, "it came between {calls} times");
            return;
        }
    }
}

#[test]
fn completions_are_counted_once_whatever_another_machine_does_in_between() {
    let counts = r#"{"degradeRules": [
        {"resource": "pay", "grade": "errorCount", "count": 1, "timeWindow": 10, "minRequestAmount": 1}
    ]}"#;
    for calls in 0.. {
        let process = process();
        let (vm, other) = (
            Vm::born(&process, counts),
            Rc::new(Vm::born(&process, counts)),
        );
        let (mut passed, mut others) = (vm.request("pay").unwrap(), other.request("pay").unwrap());
        let weak = Rc::downgrade(&other);
        process.response.set(Some((500, 0)));
        process.meanwhile.replace(Some((
            calls,
            Box::new(move || weak.upgrade().unwrap().filter.on_end(&mut others)),
        )));
        vm.filter.on_end(&mut passed);
        if process.meanwhile.take().is_some() {
            assert!(calls > 3, "it came between {calls} times");
            return;
        }
        // Two errors are above one: the worker that counted last has seen both.
        assert!(vm.request("pay").is_none(), "after {calls} calls");
        assert!(other.request("pay").is_none(), "after {calls} calls");
        assert_eq!(
            process.metric("leapgate.breaker_state;rule=pay/errorCount;;2f"),
            Some(1)
        );
    }
}

#[test]
fn what_others_completed_is_not_taken_for_recent_where_ticks_come() {
    let process = process();
    let vms = [0; 2].map(|_| Vm::born(&process, BREAKER));
    assert!(vms[0].call(End::Status(500)));
    for _ in 0..12 {
        vms[1].filter.on_tick();
        process.millis.set(process.millis.get() + 100);
    }
    assert!(vms[1].call(End::Status(500)));
    assert!(
        vms[1].request("pay").is_some(),
        "the first error left the window"
    );
}

#[test]
fn a_machine_born_late_knows_that_a_breaker_is_open() {
    let process = process();
    let vm = Vm::born(&process, BREAKER);
    assert!(vm.call(End::Status(500)) && vm.call(End::Status(500)));
    let late = Vm::born(&process, BREAKER);
    assert!(late.request("pay").is_none());
    assert_eq!(
        process.metric("leapgate.breaker_state;rule=pay/errorRatio;;2f"),
        Some(1)
    );
}

#[test]
fn where_shared_data_is_new_a_breaker_begins_closed_and_its_gauge_says_so() {
    let process = process();
    let vm = Vm::born(&process, BREAKER);
    assert!(vm.call(End::Status(500)) && vm.call(End::Status(500)));
    process.shared.borrow_mut().clear(); // another `vm_id`
    let other = Vm::born(&process, BREAKER);
    assert_eq!(
        process.metric("leapgate.breaker_state;rule=pay/errorRatio;;2f"),
        Some(0)
    );
    assert!(other.request("pay").is_some());
}

#[test]
fn a_reload_keeps_a_breaker_open() {
    let process = process();
    let mut vm = Vm::born(&process, BREAKER);
    assert!(vm.call(End::Status(500)) && vm.call(End::Status(500)));
    vm.configure(&BREAKER.replace("0.5", "0.6"));
    assert!(vm.request("pay").is_none());
    vm.configure(&BREAKER.replace("errorRatio", "errorCount"));
    assert!(vm.request("pay").is_some(), "another breaker");
}

/// With an id, so that its metrics keep their names when its window changes.
const PAY: &str = r#"{"degradeRules": [
    {"id": "pay", "resource": "pay", "grade": "errorRatio", "count": 0.5, "timeWindow": 10, "minRequestAmount": 2}
]}"#;

fn with_window(millis: u64) -> String {
    PAY.replace(
        "\"timeWindow\"",
        &format!("\"statIntervalMs\": {millis}, \"timeWindow\""),
    )
}

impl Process {
    /// The gauge of the breaker `pay`.
    fn shown(&self) -> Option<i64> {
        self.metric("leapgate.breaker_state;rule=pay")
    }
}

#[test]
fn a_breaker_whose_window_is_changed_and_changed_back_while_it_is_open_is_open_and_shows_it() {
    for (is_old_one_in_use, machines) in [(false, 1), (true, 1), (false, 3), (true, 3)] {
        let process = process();
        let mut vms: Vec<Vm> = (0..machines).map(|_| Vm::born(&process, PAY)).collect();
        let under_way: Vec<_> = vms.iter().filter_map(|vm| vm.request("pay")).collect();
        assert!(vms[0].call(End::Status(500)) && vms[0].call(End::Status(500)));
        assert_eq!(process.shown(), Some(1));
        if !is_old_one_in_use {
            under_way.into_iter().for_each(drop);
        }
        for vm in &mut vms {
            vm.configure(&with_window(2000));
        }
        assert_eq!(process.shown(), Some(0), "another window begins closed");
        assert!(vms.iter().all(|vm| vm.request("pay").is_some()));
        for vm in &mut vms {
            vm.configure(PAY);
        }
        assert_eq!(process.shown(), Some(1));
        let passed = vms.iter().filter(|vm| vm.request("pay").is_some()).count();
        assert_eq!(passed, 0, "of {machines} requests");
        process.millis.set(process.millis.get() + 10_000);
        assert!(vms[0].call(End::Status(200)), "a probe");
        assert_eq!(process.shown(), Some(0));
        assert!(vms.iter().all(|vm| vm.request("pay").is_some()));
    }
}

#[test]
fn breakers_whose_names_read_alike_do_not_take_each_others_state_for_theirs() {
    let alike = |ids: &[&str]| {
        let rule = |id: &&str| {
            let named = format!("\"id\": \"{id}\", \"resource\": \"{id}\"");
            let list = PAY.split(['[', ']']).nth(1).unwrap();
            list.replace(r#""id": "pay", "resource": "pay""#, &named)
        };
        let rules: Vec<String> = ids.iter().map(rule).collect();
        format!(r#"{{"degradeRules": [{}]}}"#, rules.join(", "))
    };
    let process = process();
    let mut vms = [0; 2].map(|_| Vm::born(&process, &alike(&["a.b"])));
    let fails = |vm: &Vm, route| {
        let passed = vm.request(route).unwrap();
        vm.end(passed, End::Status(500), 1);
    };
    fails(&vms[0], "a.b");
    fails(&vms[0], "a.b");
    for vm in &mut vms {
        vm.configure(&alike(&["a.b", "a_b", "a/b"]));
    }
    let passed = |route| vms.iter().map(|vm| vm.passes(route, 100)).sum::<usize>();
    assert_eq!(["a.b", "a_b", "a/b"].map(passed), [0, 200, 200]);
    fails(&vms[1], "a_b");
    fails(&vms[1], "a_b");
    assert_eq!(["a.b", "a_b", "a/b"].map(passed), [0, 0, 200]);
}

#[test]
fn a_breaker_that_was_replaced_shows_nothing_more() {
    let process = process();
    let mut vm = Vm::born(&process, PAY);
    let other = Vm::born(&process, PAY);
    let under_way: Vec<_> = (0..2).map(|_| vm.request("pay").unwrap()).collect();
    vm.configure(&with_window(2000));
    for passed in under_way {
        vm.end(passed, End::Status(500), 1);
    }
    assert!(other.request("pay").is_none(), "the one that was replaced");
    assert_eq!(process.shown(), Some(0));
    assert!(vm.request("pay").is_some());
}

/// A host may go on with what it has of a configuration without a word, as long as that still drains.
#[test]
fn a_breaker_that_is_asked_again_without_a_new_configuration_is_shown_again() {
    let process = process();
    let vm = Vm::born(&process, PAY);
    assert!(vm.call(End::Status(500)) && vm.call(End::Status(500)));
    let replace = |vm: &Vm| {
        let (rules, settings) = config::parse(with_window(2000).as_bytes()).unwrap();
        Filter::new(vm.host.clone(), Rc::clone(&vm.store), rules, settings).unwrap()
    };
    let other = replace(&vm);
    assert_eq!(process.shown(), Some(0));
    assert!(vm.request("pay").is_none());
    assert_eq!(process.shown(), Some(1), "asked");
    other.on_tick();
    assert_eq!(process.shown(), Some(1), "the other one is not");
    drop(other);
    let other = replace(&vm);
    assert_eq!(process.shown(), Some(0));
    drop(other);
    vm.filter.on_tick();
    assert_eq!(process.shown(), Some(1), "the other one has gone");
}

#[test]
fn a_configuration_that_only_one_machine_tried_is_shown_until_the_next_tick_of_another() {
    let process = process();
    let vm = Vm::born(&process, PAY);
    assert!(vm.call(End::Status(500)) && vm.call(End::Status(500)));
    drop(Vm::born(&process, &with_window(2000))); // and Envoy refused the rest of the update
    vm.filter.on_tick();
    assert_eq!(process.shown(), Some(1));
}

/// Whatever another virtual machine does between two host calls of this one.
#[test]
fn a_breaker_shows_its_state_whatever_another_machine_does_in_between() {
    for calls in 0.. {
        let process = process();
        let vm = Vm::born(&process, PAY);
        let other = Rc::new(Vm::born(&process, PAY));
        assert!(vm.call(End::Status(500)));
        let last = vm.request("pay").unwrap();
        let weak = Rc::downgrade(&other);
        process.meanwhile.replace(Some((
            calls,
            Box::new(move || {
                // Unknown to this machine, another one probes long after, and closes the breaker.
                let other = weak.upgrade().unwrap();
                other.host.0.millis.set(60_000);
                other.call(End::Status(200));
                other.host.0.millis.set(5001);
            }),
        )));
        vm.end(last, End::Status(500), 1);
        let came_between = process.meanwhile.take().is_none();
        process.millis.set(5002);
        let is_open = other.request("pay").is_none();
        assert_eq!(vm.request("pay").is_none(), is_open, "after {calls} calls");
        assert_eq!(process.shown(), Some(is_open.into()), "after {calls} calls");
        if !came_between {
            assert!(calls > 3, "it came between {calls} times");
            return;
        }
    }
}

#[test]
fn a_closed_or_open_breaker_costs_a_request_one_look_at_a_gauge_and_none_at_shared_data() {
    let process = process();
    let vms = [0; 2].map(|_| Vm::born(&process, PAY));
    let reads = || {
        let before = process.reads.get();
        vms[0].passes("pay", 10);
        process.reads.get() - before
    };
    reads();
    assert_eq!(reads(), 0, "closed");
    assert!(vms[1].call(End::Status(500)) && vms[1].call(End::Status(500)));
    assert_eq!(reads(), 1, "it has opened");
    assert_eq!(reads(), 0, "open");
    process.millis.set(20_000);
    let _probe = vms[1].request("pay").unwrap();
    reads();
    assert_eq!(reads(), 0, "half-open");
}

#[test]
fn a_breaker_holds_for_the_process_where_gauges_are_silent_and_for_the_worker_where_nothing_is_shared()
 {
    for (no_shared_data, refused) in [(false, true), (true, false)] {
        let process = process();
        process.silent_gauges.set(true);
        process.no_shared_data.set(no_shared_data);
        let vms = [0; 2].map(|_| Vm::born(&process, BREAKER));
        assert!(vms[0].call(End::Status(500)) && vms[0].call(End::Status(500)));
        assert!(vms[0].request("pay").is_none());
        assert_eq!(vms[1].request("pay").is_none(), refused);
    }
}

#[test]
fn whichever_gauge_of_a_breaker_is_silent_it_holds_for_the_process_and_the_log_names_it() {
    let each_looks_up =
        "each request to its resource reads the state of the breaker from shared data";
    for (gauge, now) in [
        ("completed", IN_SHARED_DATA),
        ("bad", IN_SHARED_DATA),
        ("changes", each_looks_up),
    ] {
        let process = process();
        process
            .excluded
            .replace(Some(format!("leapgate.breaker_{gauge};")));
        let vms = [0; 4].map(|_| Vm::born(&process, PAY));
        let name =
            format!("leapgate.breaker_{gauge};rule=pay;resource=pay;window=errorRatio_1000ms_10");
        process.warned_of(&name, 4, now);
        assert!(vms[0].call(End::Status(500)) && vms[1].call(End::Status(500)));
        let passes: Vec<usize> = vms.iter().map(|vm| vm.passes("pay", 50)).collect();
        assert_eq!(passes, [0; 4], "without {gauge}");
        assert_eq!(process.shown(), Some(1), "without {gauge}");
        process.millis.set(20_000);
        let probes: usize = vms.iter().map(|vm| vm.passes("pay", 50)).sum();
        assert_eq!(probes, 1, "without {gauge}");
    }
}

#[test]
fn a_breaker_does_not_depend_on_the_gauge_that_shows_it() {
    let process = process();
    process
        .excluded
        .replace(Some("leapgate.breaker_state".into()));
    let vms = [0; 4].map(|_| Vm::born(&process, PAY));
    assert!(vms[0].call(End::Status(500)) && vms[1].call(End::Status(500)));
    assert!(vms.iter().all(|vm| vm.passes("pay", 50) == 0));
    assert_eq!(process.warnings(), Vec::<String>::new());
}

#[test]
fn a_breaker_of_each_resource_is_one_of_each() {
    let process = process();
    let vm = Vm::born(&process, &BREAKER.replace(r#""pay""#, r#""*""#));
    assert!(vm.call(End::Status(500)) && vm.call(End::Status(500)));
    assert!(vm.request("pay").is_none());
    assert!(vm.request("other").is_some());
    let state = |resource| {
        process.metric(&format!(
            "leapgate.breaker_state;rule=*/errorRatio;;2a2f;resource={resource}"
        ))
    };
    assert_eq!((state("pay"), state("other")), (Some(1), Some(0)));
}

#[test]
fn a_breaker_in_shadow_refuses_nothing_and_counts_what_it_would_have() {
    let process = process();
    let document = BREAKER.replace(r#""grade""#, r#""id": "dry", "mode": "shadow", "grade""#);
    let vm = Vm::born(&process, &document);
    for _ in 0..5 {
        assert!(vm.call(End::Status(500)));
    }
    vm.filter.on_tick();
    vm.filter.on_tick();
    assert_eq!(process.metric("leapgate.breaker_state;rule=dry"), Some(1));
    assert_eq!(
        process.metric("leapgate.breaker_shadow_blocked;rule=dry"),
        Some(3)
    );
    assert_eq!(process.metric("leapgate.breaker_blocked;rule=dry"), Some(0));
}

#[test]
fn a_breakers_reply_can_be_the_operators_and_is_no_quota() {
    let bodies = [
        (
            r#"{"format": "problem", "breaker": {"status": 500, "body": "later"}}"#,
            500,
            r#"{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","title":"Temporary reduced capacity","status":500,"detail":"later"}"#,
        ),
        (
            r#"{"format": "json"}"#,
            503,
            r#"{"status":503,"error":"service unavailable","rule":"pay/errorRatio","retryAfterSeconds":10}"#,
        ),
    ];
    for (reply, status, body) in bodies {
        let process = process();
        let section = format!(r#"{{"envoy": {{"reply": {reply}}}, "#);
        let vm = Vm::born(&process, &BREAKER.replacen('{', &section, 1));
        assert!(vm.call(End::Status(500)) && vm.call(End::Status(500)));
        assert!(vm.request("pay").is_none());
        let (told_status, _, _, told_body) = process.replies.borrow()[0].clone();
        assert_eq!((told_status, told_body.as_str()), (status, body));
    }
}
