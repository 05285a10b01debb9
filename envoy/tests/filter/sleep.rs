//! Workers that have nothing to do: their ticks end, and they catch up when they wake.

use super::breaker::{BREAKER, End};
use super::system::system;
use super::waiting::{run, with_header};
use super::*;

impl Vm {
    fn is_asleep(&self) -> bool {
        let period = self.host.1.period.get();
        period == 0 || period > 1000 // it ticks for its gauges alone
    }
}

impl Process {
    /// Time goes on, and each machine ticks when it has asked to.
    fn wait(&self, vms: &[Vm], millis: u64) {
        run(self, vms, self.millis.get() + millis, 0);
    }

    fn forget_metrics(&self, named: impl Fn(&str) -> bool, left: i64) {
        for (_, name, value) in self.metrics.borrow_mut().iter_mut() {
            if named(name) {
                *value = left;
            }
        }
    }
}

/// Two hundred rules: a round of ticks is two.
fn many(rule: &str) -> String {
    let others: Vec<String> = (0..199)
        .map(|n| format!(r#"{{"resource": "r{n}", "count": 1}}"#))
        .collect();
    format!(r#"{{"flowRules": [{}, {rule}]}}"#, others.join(", "))
}

#[test]
fn ticks_stop_within_250_ms_of_the_last_request() {
    let documents = [
        TEN.to_owned(),
        TEN.replace("10}", r#"10, "intervalMs": 1000, "sampleCount": 1}"#),
        TEN.replace("10}", r#"10, "sampleCount": 8}"#),
        TEN.replace("10}", r#"10, "intervalMs": 20, "sampleCount": 10}"#),
        TEN.replace("10}", r#"10, "intervalMs": 3600000}"#),
        TEN.replace("10}", r#"10, "key": ["method"]}"#),
        TEN.replace(
            "10}",
            r#"10, "controlBehavior": "warmUp", "warmUpPeriodSec": 10}"#,
        ),
        TEN.replace("10}", r#"1000, "controlBehavior": "throttle"}"#),
        TEN.replace("10}", r#"10, "grade": "concurrency"}"#),
        TEN.replacen('{', r#"{"envoy": {"scope": "worker"}, "#, 1),
        TEN.replacen('{', r#"{"systemRules": [{"qps": 99, "bbr": true}], "#, 1),
        [
            &BREAKER.replace("pay", "login")[..BREAKER.len() + 1],
            ", ",
            &TEN[1..],
        ]
        .concat(),
        many(r#"{"resource": "login", "count": 10}"#),
    ];
    for document in documents {
        for silent_gauges in [false, true] {
            let process = process();
            process.silent_gauges.set(silent_gauges);
            let vms = [0; 4].map(|_| Vm::born(&process, &document));
            assert!(
                vms.iter().all(Vm::is_asleep),
                "{document}: no request has come"
            );
            for last in [5000, 5007, 5300, 9000] {
                process.millis.set(last);
                let passed = vms[0].request("login").unwrap();
                assert!(!vms[0].is_asleep(), "{document} at {last}");
                vms[0].end(passed, End::Status(200), 0);
                let begin = process.millis.get();
                while !vms[0].is_asleep() {
                    process.wait(&vms, 1);
                    let after = process.millis.get() - begin;
                    assert!(
                        after <= 250,
                        "{document}: {after} ms after the request at {last}"
                    );
                }
                assert!(
                    vms[1..].iter().all(Vm::is_asleep),
                    "{document}: no request has reached the others"
                );
            }
            let passed = process
                .metrics
                .borrow()
                .iter()
                .find_map(|(_, name, value)| {
                    let is_told = name.starts_with("leapgate.passed;rule=login");
                    is_told.then_some(*value)
                });
            assert_eq!(passed, Some(4), "{document}");
        }
    }
}

#[test]
fn ticks_go_on_while_requests_come_and_cost_a_host_call_only_when_a_worker_wakes() {
    let process = process();
    let vms = [Vm::born(&process, &TEN.replace("10}", "1000}"))];
    for _ in 0..50 {
        assert!(vms[0].request("login").is_some());
        let reads = process.reads.get();
        vms[0].request("login");
        assert_eq!(process.reads.get(), reads, "it is awake");
        process.wait(&vms, 90);
        assert!(!vms[0].is_asleep());
    }
}

/// Several workers admit ten a second together while all but the serving one sleep: as if one worker had served all requests.
#[test]
fn a_worker_that_wakes_is_as_strict_as_one_that_ticked() {
    let rows = [
        // (at, which worker serves, how many of twenty are admitted)
        (5000, 0, Some(6)),
        (5600, 1, Some(3)),
        (5999, 2, Some(1)),
        (6009, 3, Some(0)),
        (6010, 3, Some(6)),
        (6500, 2, Some(0)),
        (6609, 0, Some(0)),
        (6610, 1, Some(3)),
        (6999, 0, Some(0)),
        (7000, 2, Some(1)),
        (9000, 3, None),
        (9500, 0, Some(0)),
        (10_010, 0, None),
        (60_000, 1, None),
        (60_900, 2, Some(0)),
        (61_010, 2, None),
    ];
    for silent_gauges in [false, true] {
        let process = process();
        process.silent_gauges.set(silent_gauges);
        let vms = [0; 4].map(|_| Vm::born(&process, TEN));
        for (at, vm, passes) in rows {
            process.wait(&vms, at - process.millis.get());
            let wanted = match (at, passes) {
                (5000, _) => 6,
                (5600, _) => 3,
                _ => 20,
            };
            let passed = vms[vm].passes("login", wanted);
            assert_eq!(passed, passes.unwrap_or(10), "worker {vm} at {at}");
        }
    }
}

/// A log of all admitted requests, and what it says about another one.
#[derive(Default)]
struct Log(Vec<u64>);

impl Log {
    /// How many were let in from `begin` on.
    fn since(&self, begin: u64) -> usize {
        self.0.iter().rev().take_while(|at| **at >= begin).count()
    }
}

/// Workers serve at random, in bursts and with pauses in which they sleep: no interval holds more than the limit, and
/// whenever a request is refused, a window longer by one bucket or one round of ticks holds the limit.
#[test]
fn never_admits_more_than_the_limit_in_any_interval_nor_less_than_one_more_bucket_would_whichever_worker_sleeps()
 {
    let one = |rule: &str| format!(r#"{{"flowRules": [{rule}]}}"#);
    let rows = [
        (
            one(r#"{"resource": "login", "count": 10}"#),
            10,
            1000,
            10,
            10,
        ),
        (
            one(r#"{"resource": "login", "count": 3, "sampleCount": 4}"#),
            3,
            1000,
            250,
            100,
        ),
        (
            one(r#"{"resource": "login", "count": 5, "sampleCount": 1}"#),
            5,
            1000,
            1000,
            100,
        ),
        (
            one(r#"{"resource": "login", "count": 7, "intervalMs": 50, "sampleCount": 25}"#),
            7,
            50,
            2,
            10,
        ),
        (
            one(r#"{"resource": "login", "count": 20, "intervalMs": 10000}"#),
            20,
            10_000,
            100,
            100,
        ),
        (
            many(r#"{"resource": "login", "count": 10}"#),
            10,
            1000,
            10,
            20,
        ),
        (one(r#"{"resource": "*", "count": 10}"#), 10, 1000, 10, 10),
        (system(r#"{"qps": 10}"#), 10, 1000, 10, 10),
        (
            one(
                r#"{"resource": "login", "count": 10, "strategy": "relate", "refResource": "login"}"#,
            ),
            10,
            1000,
            10,
            10,
        ),
    ];
    for (document, limit, interval, bucket, round) in rows {
        for seed in 0..4 {
            let process = process();
            process.silent_gauges.set(seed == 3);
            let vms = [0; 4].map(|_| Vm::born(&process, &document));
            let mut random = fastrand::Rng::with_seed(seed);
            let (mut log, mut slept, mut refused) = (Log::default(), 0, 0);
            for _ in 0..2000 {
                let pause = match random.u8(0..40) {
                    0 => random.u64(0..3 * interval),
                    1..4 => random.u64(0..400),
                    _ => random.u64(0..interval / limit as u64),
                };
                process.wait(&vms, pause);
                // For a while one worker serves more often than the others.
                let busy = (process.millis.get() / 700) as usize;
                let vm = if random.bool() {
                    busy
                } else {
                    random.usize(0..4)
                } % 4;
                slept += usize::from(vms[vm].is_asleep());
                let now = process.millis.get();
                if vms[vm].request("login").is_some() {
                    log.0.push(now);
                    let within = log.since((now + 1).saturating_sub(interval));
                    assert!(within <= limit, "{document} {seed}: {within} until {now}");
                    continue;
                }
                refused += 1;
                let start = now / bucket * bucket;
                let longer = log.since(start.saturating_sub(interval + bucket.max(round)));
                assert!(
                    longer >= limit,
                    "{document} {seed}: refused at {now} after {longer}: {:?}",
                    &log.0[log.0.len().saturating_sub(limit + 1)..]
                );
            }
            assert!(
                slept > 50 && refused > 100 && log.0.len() > 200,
                "{document} {seed}: {slept} were asleep, {refused} refused"
            );
        }
    }
}

#[test]
fn two_sleepers_wake_in_either_order_and_know_the_same() {
    for order in [[1, 2], [2, 1]] {
        let process = process();
        let vms = [0; 3].map(|_| Vm::born(&process, TEN));
        assert_eq!(vms[0].passes("login", 4), 4);
        process.wait(&vms, 500);
        assert_eq!(vms[0].passes("login", 4), 4);
        process.wait(&vms, 510);
        assert!(vms.iter().all(Vm::is_asleep));
        // Four of eight have left.
        assert_eq!(vms[order[0]].passes("login", 3), 3);
        assert_eq!(vms[order[1]].passes("login", 20), 3);
        process.wait(&vms, 495);
        assert_eq!(vms[order[0]].passes("login", 20), 0);
        process.wait(&vms, 5);
        assert_eq!(vms[order[1]].passes("login", 20), 4);
    }
}

#[test]
fn a_machine_born_while_all_others_sleep_goes_on_with_what_they_have_published() {
    let process = process();
    let vms = [0; 2].map(|_| Vm::born(&process, TEN));
    assert_eq!(vms[0].passes("login", 6), 6);
    process.wait(&vms, 300);
    assert_eq!(vms[1].passes("login", 3), 3);
    process.wait(&vms, 300);
    assert!(vms.iter().all(Vm::is_asleep));
    let late = Vm::born(&process, TEN);
    assert!(late.is_asleep());
    assert_eq!(late.passes("login", 20), 1);
    process.wait(&vms, 410);
    assert_eq!(late.passes("login", 20), 6);
}

#[test]
fn a_configuration_that_comes_while_a_worker_sleeps_wakes_no_worker_and_forgets_nothing() {
    let process = process();
    let mut vms = [0; 2].map(|_| Vm::born(&process, TEN));
    assert_eq!(vms[0].passes("login", 6), 6);
    process.wait(&vms, 500);
    for vm in &mut vms {
        vm.configure(&TEN.replace("10}", "12}"));
        assert!(vm.is_asleep());
    }
    assert_eq!(vms[1].passes("login", 20), 6);
    process.wait(&vms, 510);
    assert_eq!(vms[0].passes("login", 20), 6, "six have left");
    // A configuration that comes while there is something to publish has it published at once.
    vms[0].configure(TEN);
    assert_eq!(process.metric("leapgate.passed;rule=login"), Some(18));
}

#[test]
fn a_worker_that_only_refuses_publishes_it_and_sleeps() {
    let process = process();
    let vms = [0; 2].map(|_| Vm::born(&process, TEN));
    assert_eq!(vms[0].passes("login", 10), 10);
    process.wait(&vms, 300);
    let published = process.shared.borrow().clone();
    assert_eq!(vms[1].passes("login", 7), 0);
    process.wait(&vms, 250);
    assert!(vms[1].is_asleep());
    assert_eq!(process.metric("leapgate.blocked;rule=login"), Some(7));
    assert_eq!(*process.shared.borrow(), published, "it has let nothing in");
}

#[test]
fn what_is_owed_is_paid_before_the_ticks_stop() {
    // A call in flight that ends while swaps are lost, in counters and in a page of keys.
    for rule in [
        r#"{"resource": "api", "count": 2, "grade": "concurrency"}"#,
        r#"{"resource": "api", "count": 2, "grade": "concurrency", "key": ["method"]}"#,
    ] {
        let process = process();
        process.silent_gauges.set(true);
        let document = format!(r#"{{"flowRules": [{rule}]}}"#);
        let vms = [0; 2].map(|_| Vm::born(&process, &document));
        let calls = [vms[0].request("api"), vms[0].request("api")];
        process.wait(&vms, 300);
        assert!(vms[0].is_asleep() && vms[1].request("api").is_none());
        process.contention.set(u32::MAX);
        for call in calls {
            vms[0].end(call.unwrap(), End::Status(200), 0);
        }
        process.wait(&vms[..1], 1000);
        assert!(!vms[0].is_asleep(), "it owes two");
        process.contention.set(0);
        process.wait(&vms[..1], 250);
        assert!(vms[0].is_asleep());
        let calls: Vec<_> = (0..5).filter_map(|_| vms[1].request("api")).collect();
        assert_eq!(calls.len(), 2);
    }
}

#[test]
fn ticks_go_on_until_a_borrowed_pass_has_been_counted() {
    let process = process();
    let document = r#"{"flowRules": [{"resource": "login", "id": "login", "count": 10, "sampleCount": 2}],
                       "envoy": {"prioritized": {"header": "X-Priority"}}}"#;
    let vms = [0; 2].map(|_| Vm::born(&process, document));
    assert_eq!(vms[0].passes("login", 20), 10);
    process.wait(&vms, 1100);
    with_header(&process, "x-priority", "high");
    let borrowed: Vec<_> = (0..4).filter_map(|_| vms[0].request("login")).collect();
    assert_eq!(borrowed.iter().filter(|passed| passed.is_held()).count(), 4);
    process.request_headers.borrow_mut().clear();
    process.wait(&vms, 399);
    assert!(!vms[0].is_asleep());
    process.wait(&vms, 251);
    assert!(vms[0].is_asleep());
    assert_eq!(process.resumed.borrow().len(), 4);
    for (wait, passes) in [(0, 6), (1249, 0), (1, 10)] {
        process.wait(&vms, wait);
        assert_eq!(vms[1].passes("login", 20), passes, "{wait} ms later");
    }
}

#[test]
fn a_count_that_has_fallen_while_a_worker_slept_counts_as_used_however_far_it_has_risen_since() {
    for (left, window) in [(0, 1000), (40, 1000), (40, 60_000)] {
        let process = process();
        let document = format!(
            r#"{{"flowRules": [{{"resource": "login", "id": "login", "count": 100, "intervalMs": {window}, "sampleCount": 2}}]}}"#
        );
        let vms = [0; 3].map(|_| Vm::born(&process, &document));
        // The first two know of 90, and sleep.
        assert_eq!(vms[0].passes("login", 45), 45);
        assert_eq!(vms[1].passes("login", 45), 45);
        process.wait(&vms, 300);
        let counts = |name: &str| {
            name.starts_with("leapgate.admitted;") || name.starts_with("leapgate.tickets;")
        };
        process.forget_metrics(counts, left);
        assert_eq!(vms[2].passes("login", 200), 0, "the whole window is used");
        process.wait(&vms, window + window / 2);
        assert_eq!(vms[2].passes("login", 94), 94);
        process.wait(&vms, 300);
        for vm in &vms {
            assert_eq!(vm.passes("login", 2), 2);
        }
        assert_eq!(vms[0].passes("login", 200), 0, "a hundred are in");
    }
}

#[test]
fn where_rings_cannot_be_published_ticks_go_on() {
    let process = process();
    process.no_shared_data.set(true);
    let vms = [0; 2].map(|_| Vm::born(&process, TEN));
    assert_eq!(vms[0].passes("login", 4), 4);
    for _ in 0..11 {
        process.wait(&vms, 100);
        assert!(vms.iter().all(|vm| !vm.is_asleep()));
    }
    assert_eq!(vms[1].passes("login", 20), 10, "four have left");
}

#[test]
fn without_a_clock_ticks_go_on() {
    let process = process();
    let vms = [Vm::born(&process, TEN)];
    process.no_clock.set(true);
    assert!(vms[0].request("login").is_some());
    process.wait(&vms, 1000);
    assert!(!vms[0].is_asleep(), "what it has to publish has no time");
    process.no_clock.set(false);
    process.wait(&vms, 250);
    assert!(vms[0].is_asleep());
    assert_eq!(process.metric("leapgate.passed;rule=login"), Some(1));
}

#[test]
fn a_response_that_ends_while_its_worker_sleeps_is_published() {
    let process = process();
    let document = BREAKER.replace("0.5", "0.9");
    let vms = [0; 2].map(|_| Vm::born(&process, &document));
    let long = [0; 2].map(|_| vms[0].request("pay").unwrap());
    process.wait(&vms, 5000);
    assert!(vms[0].is_asleep());
    for passed in long {
        vms[0].end(passed, End::Status(500), 0);
    }
    process.wait(&vms, 250);
    assert!(vms[0].is_asleep());
    assert!(vms[1].request("pay").is_none(), "two of two");
}

#[test]
fn a_plain_response_that_ends_while_its_worker_sleeps_wakes_no_worker() {
    let process = process();
    let vms = [Vm::born(&process, TEN)];
    let passed = vms[0].request("login").unwrap();
    process.wait(&vms, 5000);
    vms[0].end(passed, End::Status(200), 0);
    assert!(vms[0].is_asleep());
}

#[test]
fn limits_on_a_late_response_are_the_limits_at_that_moment() {
    let process = process();
    let document = TEN.replacen(
        '{',
        r#"{"envoy": {"rateLimitHeadersOn": "all", "rateLimitHeaders": "legacy"}, "#,
        1,
    );
    let vms = [0; 2].map(|_| Vm::born(&process, &document));
    let passed = vms[0].request("login").unwrap();
    process.wait(&vms, 500);
    assert_eq!(vms[1].passes("login", 4), 4);
    process.wait(&vms, 700);
    vms[0].filter.on_response(&passed, false);
    let remaining = ("x-ratelimit-remaining".to_owned(), "6".to_owned());
    assert!(process.response_headers.borrow().contains(&remaining));
}

/// One failure more than `count` opens it.
fn opens_beyond(count: usize) -> String {
    format!(
        r#"{{"degradeRules": [{{"resource": "pay", "grade": "errorCount", "count": {count}, "timeWindow": 10,
                               "minRequestAmount": 1}}]}}"#
    )
}

#[test]
fn breakers_do_not_take_old_failures_for_new_ones() {
    let rows = [
        // (how long after the first two failures a third one comes, whether the breaker opens)
        (300, true),
        (999, true),
        (2000, false),
        (60_000, false),
    ];
    for silent_gauges in [false, true] {
        for (after, opens) in rows {
            let process = process();
            process.silent_gauges.set(silent_gauges);
            let vms = [0; 3].map(|_| Vm::born(&process, &opens_beyond(2)));
            assert!(vms[0].call(End::Status(500)) && vms[0].call(End::Status(500)));
            process.wait(&vms, after - 2);
            assert!(vms[0].is_asleep());
            assert!(vms[1].call(End::Status(500)), "after {after} ms");
            for vm in &vms {
                assert_eq!(vm.request("pay").is_none(), opens, "after {after} ms");
            }
        }
    }
}

#[test]
fn a_machine_born_late_counts_the_failures_that_others_have_published() {
    let process = process();
    let vms = [Vm::born(&process, &opens_beyond(2))];
    assert!(vms[0].call(End::Status(500)) && vms[0].call(End::Status(500)));
    process.wait(&vms, 300);
    let late = Vm::born(&process, &opens_beyond(2));
    assert!(late.call(End::Status(500)));
    assert!(late.request("pay").is_none());
}

/// Calls fail now and then, in workers that sleep and wake: a breaker opens when more have failed within an interval, and
/// not when fewer have within a bucket and a tick more.
#[test]
fn a_breaker_opens_by_the_failures_within_its_interval_whichever_worker_sleeps() {
    const ALLOWED: usize = 4;
    let mut opened = 0;
    for seed in 0..400 {
        let process = process();
        let vms = [0; 4].map(|_| Vm::born(&process, &opens_beyond(ALLOWED)));
        let mut random = fastrand::Rng::with_seed(seed);
        let mut failed = Log::default();
        for _ in 0..60 {
            let pause = if random.u8(0..3) == 0 { 900 } else { 300 };
            process.wait(&vms, random.u64(0..pause));
            let vm = &vms[random.usize(0..4)];
            let Some(passed) = vm.request("pay") else {
                panic!("{seed}: it is open after {:?}", failed.0);
            };
            let fails = random.u8(0..5) < 2;
            vm.end(passed, End::Status(if fails { 500 } else { 200 }), 0);
            let now = process.millis.get();
            if fails {
                failed.0.push(now);
            }
            let is_open = vm.request("pay").is_none();
            if failed.since((now + 1).saturating_sub(1000)) > ALLOWED {
                assert!(is_open, "{seed}: {:?}", failed.0);
            }
            // Ten buckets of 100 ms and the one before them, and a tick.
            if failed.since((now / 100 * 100).saturating_sub(1000 + 100)) <= ALLOWED {
                assert!(!is_open, "{seed}: {:?}", failed.0);
            }
            if is_open {
                opened += 1;
                break;
            }
        }
    }
    assert!((50..350).contains(&opened), "{opened} of 400 have opened");
}

#[test]
fn averages_are_not_those_of_the_past_when_a_worker_wakes() {
    let rows = [
        // (how long after ten slow calls in another worker, whether a worker that has slept refuses)
        (260, true),
        (900, true),
        (1600, false),
        (60_000, false),
    ];
    for (after, refuses) in rows {
        let process = process();
        let vms = [0; 3].map(|_| Vm::born(&process, &system(r#"{"avgRt": 100}"#)));
        let calls: Vec<_> = (0..10).map(|_| vms[0].request("a").unwrap()).collect();
        process.wait(&vms, 500);
        for passed in calls {
            vms[0].ends(passed, 0);
        }
        process.wait(&vms, after);
        assert!(vms[0].is_asleep());
        assert_eq!(vms[1].request("b").is_none(), refuses, "after {after} ms");
        let late = Vm::born(&process, &system(r#"{"avgRt": 100}"#));
        assert_eq!(
            late.request("b").is_none(),
            refuses,
            "born after {after} ms"
        );
    }
}

#[test]
fn a_worker_that_wakes_estimates_as_the_busy_ones() {
    let process = process();
    let vms = [0; 3].map(|_| Vm::born(&process, &system(r#"{"bbr": true}"#)));
    let lets_in = |vm: &Vm| (0..40).filter_map(|_| vm.request("a")).collect::<Vec<_>>();
    for _ in 0..30 {
        // Four in half a second at 100 ms: 8 a second, one at a time, and one more is let in before it counts.
        let calls: Vec<_> = (0..2).map(|_| vms[0].request("a").unwrap()).collect();
        process.wait(&vms, 100);
        for passed in calls {
            vms[0].ends(passed, 0);
        }
        process.wait(&vms, 150);
    }
    assert!(vms[1].is_asleep());
    let awake = lets_in(&vms[0]).len();
    assert_eq!(lets_in(&vms[1]).len(), awake);
    process.wait(&vms, 10_000);
    // Completions of long ago do not count in today's rate.
    for vm in [&vms[0], &vms[2]] {
        assert_eq!(lets_in(vm).len(), 11);
    }
}

#[test]
fn a_sentinels_warm_up_knows_what_passed_in_the_second_before_it_woke() {
    let document = r#"{"flowRules": [{"resource": "login", "count": 90, "controlBehavior": "warmUp", "warmUpPeriodSec": 10,
                                      "compat": "sentinel"}]}"#;
    // One worker serves in all seconds but the last, and in that one it, or a worker that has slept.
    let passes = |last: usize| {
        let process = process();
        let vms = [0; 2].map(|_| Vm::born(&process, document));
        for _ in 0..12_000 {
            process.wait(&vms, 1);
            vms[0].request("login");
        }
        let second = process.millis.get() / 1000 * 1000;
        process.wait(&vms, second + 1000 - process.millis.get());
        assert!(vms[1].is_asleep());
        vms[last].passes("login", 200)
    };
    assert_eq!(passes(1), passes(0));
}
