//! Borrowing: a prioritized request waits for a bucket to come, and no interval holds more than the limit for it.

use crate::support::{
    Shared, Workers, admitted, at, block, count, engine, pass, retry_ms, rule, wait,
};
use leapgate::backend::{LocalCounter, Past, RuleWindow};
use leapgate::rule::{
    Counting, DegradeGrade, DegradeRule, FlowRule, LimitApp, MaxQueueing, Mode, WarmUp,
};
use leapgate::stats::{Node, OCCUPY_TIMEOUT_MS, Window};
use leapgate::{Blocked, Cause, Decision, Engine, Outcome, Request, Rules, Timestamp};
use std::time::Duration;

fn api<'a>() -> Request<'a> {
    Request::new("api")
}

fn urgent<'a>() -> Request<'a> {
    api().prioritized()
}

/// `limit` a second in a strict window of 10 buckets.
fn strict(limit: f64) -> FlowRule {
    rule("strict", "api", limit).per(1000, Some(10)).unwrap()
}

/// Enters, expects to wait, and leaves at once, which does not matter.
#[track_caller]
fn lends(engine: &Engine, request: &Request<'_>, now: u64, waits: u64) {
    wait(engine, request, now, waits).exit(Outcome::Success, at(now));
}

/// The time in milliseconds after which a refused request may try again.
fn retry(blocked: &Blocked) -> u64 {
    let wait = blocked.retry_after().unwrap();
    wait.as_nanos().div_ceil(1_000_000) as u64
}

// ---- Sentinel's examples ----

#[test]
fn a_compatible_rule_lends_what_leaves_at_the_next_boundary() {
    let full = |at_100: u32, at_600: u32| {
        let engine = engine([rule("r", "api", 10.0).sentinel()]);
        for (cost, now) in [(at_100, 10_100), (at_600, 10_600)] {
            if cost > 0 {
                drop(pass(&engine, &api().cost(cost), now));
            }
        }
        engine
    };
    for (now, cost, waits) in [
        (10_600, 1, 400),
        (10_700, 1, 300),
        (10_999, 1, 1),
        (10_700, 4, 300),
    ] {
        lends(&full(4, 6), &urgent().cost(cost), now, waits);
    }
    drop(block(&full(4, 6), &urgent().cost(5), 10_700));
    // Nothing leaves at the next boundary, or the wait is the whole timeout.
    drop(block(&full(0, 10), &urgent(), 10_600));
    drop(block(&full(10, 0), &urgent(), 10_100));
    drop(block(&full(10, 0), &urgent(), 10_500));
    lends(&full(10, 0), &urgent(), 10_600, 400);
}

/// In Sentinel `occupiedPassQps` is 0 there.
#[test]
fn a_loan_counts_in_the_half_second_that_pays() {
    let engine = engine([rule("r", "api", 10.0).sentinel()]);
    drop(pass(&engine, &api().cost(10), 30_100));
    let loan = wait(&engine, &urgent(), 30_700, 300);
    let node = engine.store().tree().unwrap().cluster("api").unwrap();
    let node = node.statistics();
    assert_eq!(
        (
            node.waiting(at(30_700)),
            node.pass_qps(at(30_700)),
            node.occupied_pass_qps(at(30_700))
        ),
        (1, 10.0, 1.0)
    );
    loan.exit(Outcome::Success, at(30_800));
    assert_eq!(
        (node.pass_qps(at(31_000)), node.waiting(at(31_000))),
        (1.0, 0)
    );
    assert_eq!(node.total_pass(at(31_000)), 11);
    assert_eq!(admitted(&engine, &api(), 10, 31_000), 9);
}

// ---- strict ----

#[test]
fn a_prioritized_request_waits_until_what_it_needs_has_left_the_window() {
    let engine = engine([strict(10.0)]);
    drop(pass(&engine, &api().cost(6), 0));
    drop(pass(&engine, &api().cost(4), 450));
    // The bucket of 0 leaves at 1100, that of 400 at 1500.
    assert_eq!(retry(&block(&engine, &urgent(), 600)), 1);
    lends(&engine, &urgent(), 601, 499);
    lends(&engine, &urgent().cost(5), 650, 450);
    // What else there is leaves at 1500.
    assert_eq!(retry(&block(&engine, &urgent(), 650)), 351);
    drop(block(&engine, &api(), 1099));
    drop(block(&engine, &api(), 1100));
    lends(&engine, &urgent().cost(4), 1100, 400);
    drop(block(&engine, &urgent(), 1500));
    // The loans of 1100 leave at 2200, the loans of 1500 at 2600.
    drop(block(&engine, &api(), 2199));
    assert_eq!(admitted(&engine, &api(), 10, 2200), 6);
}

#[test]
fn differs_from_sentinel_a_loan_never_exceeds_the_limit() {
    let burst = |rule: FlowRule| {
        let engine = engine([rule]);
        drop(pass(&engine, &api().cost(10), 10_490));
        let Decision::Wait(wait, entry) = engine.enter(&urgent().cost(10), at(10_999)) else {
            panic!()
        };
        drop(entry);
        wait
    };
    // Ten at 10490 and ten at 11000: twenty in 510 ms.
    assert_eq!(
        burst(rule("r", "api", 10.0).sentinel()),
        Duration::from_millis(1)
    );
    // A strict window of two halves lets go of them at 11500, and no earlier instant will do.
    let halves = rule("r", "api", 10.0).per(1000, Some(2)).unwrap();
    let engine = engine([halves]);
    drop(pass(&engine, &api().cost(10), 10_490));
    drop(block(&engine, &urgent(), 10_999));
    lends(&engine, &urgent().cost(10), 11_001, 499);
}

#[test]
fn differs_from_sentinel_a_request_can_borrow_at_the_start_of_a_bucket() {
    let engine = engine([strict(10.0)]);
    drop(pass(&engine, &api().cost(10), 0));
    lends(&engine, &urgent(), 700, 400);
    let compatible = crate::support::engine([rule("r", "api", 10.0).sentinel()]);
    drop(pass(&compatible, &api().cost(10), 10_000));
    let blocked = block(&compatible, &urgent(), 10_500);
    assert_eq!(blocked.retry_after(), Some(Duration::from_nanos(1)));
    lends(&compatible, &urgent(), 10_501, 499);
}

#[test]
fn a_loan_counts_from_the_moment_it_is_made() {
    let engine = engine([strict(10.0)]);
    drop(pass(&engine, &api().cost(5), 0));
    drop(pass(&engine, &api().cost(5), 300));
    lends(&engine, &urgent().cost(3), 900, 200);
    let left = |now| {
        let resource = engine.resource("api");
        resource.policies(at(now)).next().unwrap().remaining
    };
    assert_eq!(left(900), 0);
    assert_eq!(left(1100), 2, "8 of 10: the loan, and what came at 300");
    assert_eq!(left(1400), 7);
    assert_eq!(left(2199), 7);
    assert_eq!(left(2200), 10);
}

#[test]
fn a_request_that_is_not_prioritized_does_not_borrow() {
    let engine = engine([strict(1.0)]);
    drop(pass(&engine, &urgent(), 0));
    drop(block(&engine, &api(), 1050));
    lends(&engine, &urgent(), 1050, 50);
}

#[test]
fn the_other_ways_to_count_lend_too() {
    for (counting, now, waits) in [(Counting::Sentinel, 999, 1), (Counting::Weighted, 1010, 90)] {
        let engine = engine([strict(10.0).counting(counting)]);
        drop(pass(&engine, &api().cost(10), 0));
        lends(&engine, &urgent().cost(10), now, waits);
        // It is counted in its bucket, and leaves as that does.
        drop(block(&engine, &api(), now + waits));
    }
}

#[test]
fn nothing_is_lent_of_calls_in_flight_nor_while_warming_up() {
    let in_flight = engine([rule("r", "api", 1.0).concurrency()]);
    let _first = pass(&in_flight, &urgent(), 0);
    drop(block(&in_flight, &urgent(), 0));
    let warming = engine([strict(3.0).warm_up(WarmUp::default())]);
    drop(pass(&warming, &urgent(), 0));
    drop(block(&warming, &urgent(), 1050));
}

#[test]
fn a_request_that_costs_more_than_the_limit_is_never_lent_to() {
    let engine = engine([strict(3.0)]);
    assert_eq!(block(&engine, &urgent().cost(4), 0).retry_after(), None);
}

// ---- given back ----

#[test]
fn a_loan_that_is_given_up_in_time_is_given_back() {
    for rule in [strict(1.0), strict(1.0).counting(Counting::Sentinel)] {
        let engine = engine([rule]);
        drop(pass(&engine, &api(), 10_000));
        let now = 10_999;
        let Decision::Wait(wait, entry) = engine.enter(&urgent(), at(now)) else {
            panic!()
        };
        drop(block(&engine, &urgent(), now));
        entry.cancel(at(now));
        let Decision::Wait(again, entry) = engine.enter(&urgent(), at(now)) else {
            panic!()
        };
        assert_eq!(again, wait);
        // Dropped, at an unknown time: the next request comes before its bucket.
        drop(entry);
        let Decision::Wait(_, entry) = engine.enter(&urgent(), at(now)) else {
            panic!()
        };
        let release = entry.release().as_millis();
        // And now after it: whether it was in time is unknown.
        drop(entry);
        drop(block(&engine, &api(), release));
    }
    let compatible = engine([rule("r", "api", 1.0).sentinel()]);
    drop(pass(&compatible, &api(), 10_000));
    for _ in 0..3 {
        wait(&compatible, &urgent(), 10_600, 400).cancel(at(10_700));
    }
    lends(&compatible, &urgent(), 10_600, 400);
    drop(block(&compatible, &api(), 11_000));
}

#[test]
fn a_loan_whose_bucket_has_begun_is_not_given_back() {
    let engine = engine([strict(1.0)]);
    drop(pass(&engine, &api(), 0));
    wait(&engine, &urgent(), 1050, 50).cancel(at(1100));
    drop(block(&engine, &api(), 1100));
}

/// Sentinel's node forgets a loan if nothing happens in its half second. A call that ends there is enough.
#[test]
fn a_compatible_loan_counts_if_a_request_comes() {
    let lend = || {
        let engine = engine([rule("r", "api", 2.0).sentinel()]);
        let first = pass(&engine, &api().cost(2), 10_000);
        lends(&engine, &urgent().cost(2), 10_600, 400);
        (engine, first)
    };
    let (engine, first) = lend();
    first.exit(Outcome::Success, at(11_100));
    assert_eq!(admitted(&engine, &api(), 2, 11_500), 0);
    let (engine, first) = lend();
    assert_eq!(admitted(&engine, &api(), 2, 11_500), 2);
    drop(first);
}

#[test]
fn a_clock_that_steps_back_counts_what_is_lent() {
    let engine = engine([strict(10.0)]);
    drop(pass(&engine, &api().cost(10), 100_000));
    lends(&engine, &urgent().cost(4), 100_950, 150);
    drop(block(&engine, &api(), 50_000));
    drop(block(&engine, &api(), 51_099));
    assert_eq!(admitted(&engine, &api(), 20, 51_100), 10);
}

// ---- several rules ----

#[test]
fn the_wait_is_the_longest_and_all_count_at_its_end() {
    let engine = engine([
        strict(10.0),
        rule("even", "api", 10.0).throttle(MaxQueueing::from_millis(500).unwrap()),
        rule("wide", "api", 11.0).per(1000, Some(10)).unwrap(),
    ]);
    drop(pass(&engine, &api(), 0));
    // The throttle alone makes it wait; the windows count it in the bucket of its release.
    lends(&engine, &api(), 0, 100);
    lends(&engine, &api(), 0, 200);
    let left = |now| {
        let resource = engine.resource("api");
        let left = resource.policies(at(now)).map(|policy| policy.remaining);
        left.collect::<Vec<_>>()
    };
    assert_eq!(left(0), [7, 0, 8]);
    assert_eq!(left(1099), [7, 1, 8]);
    assert_eq!(left(1100), [8, 1, 9]);
    assert_eq!(left(1199), [8, 1, 9]);
    assert_eq!(left(1300), [10, 1, 11]);
}

#[test]
fn of_several_waits_it_is_the_longest_whichever_comes_first() {
    let half_a_second = MaxQueueing::from_millis(500).unwrap();
    let slow = || rule("slow", "api", 5.0).throttle(half_a_second);
    let fast = || rule("fast", "api", 10.0).throttle(half_a_second);
    for flow in [[slow(), fast()], [fast(), slow()]] {
        let engine = engine(flow);
        drop(pass(&engine, &api(), 0));
        lends(&engine, &api(), 0, 200);
        lends(&engine, &api(), 0, 400);
        assert_eq!(block(&engine, &api(), 0).id().as_str(), "slow");
    }
}

#[test]
fn a_turn_is_that_of_the_longest_wait() {
    let engine = engine([
        strict(2.0),
        rule("even", "api", 20.0).throttle(MaxQueueing::from_millis(50).unwrap()),
    ]);
    drop(pass(&engine, &api().cost(2), 0));
    // Its own turn would be at once: it is when the loan is released.
    lends(&engine, &urgent(), 700, 400);
    let blocked = block(&engine, &urgent(), 700);
    assert_eq!(blocked.id().as_str(), "even");
    assert_eq!(retry_ms(&blocked), Some(400));
}

#[test]
fn differs_from_sentinel_a_priority_wait_skips_no_rule() {
    let rules = |compat: bool| {
        let first = rule("first", "api", 1.0).sentinel();
        let second = rule("second", "api", 0.0).sentinel();
        if compat {
            [first, second]
        } else {
            [strict(1.0), rule("second", "api", 0.0)]
        }
    };
    // In Sentinel rules after the one that lends are not checked; here they are, of every kind.
    for compat in [true, false] {
        let [first, second] = rules(compat);
        let engine = engine([first.clone()]);
        drop(pass(&engine, &api(), 10_000));
        engine
            .replace(crate::support::rules([first, second]))
            .unwrap();
        assert_eq!(block(&engine, &urgent(), 10_999).id().as_str(), "second");
    }
    // Not a breaker either (issue 3604).
    for rule in [strict(1.0), strict(1.0).sentinel()] {
        let errors = DegradeGrade::error_count(0.0).unwrap();
        let breaker = DegradeRule::new("api", errors, 60_000).unwrap();
        let engine = Engine::new(Rules {
            degrade: vec![breaker.needing(1).unwrap()],
            ..crate::support::rules([rule])
        });
        let engine = engine.unwrap();
        pass(&engine, &api(), 10_000).exit(Outcome::Error, at(10_000));
        let blocked = block(&engine, &urgent(), 10_999);
        assert!(matches!(blocked.cause(), Cause::Degrade(_)), "{blocked:?}");
    }
}

#[test]
fn a_refusal_by_another_rule_lends_nothing() {
    let engine = engine([
        strict(1.0),
        rule("even", "api", 100.0).throttle(MaxQueueing::from_millis(500).unwrap()),
        rule("in flight", "api", 1.0).concurrency(),
    ]);
    let first = pass(&engine, &api(), 0);
    for _ in 0..5 {
        assert_eq!(block(&engine, &urgent(), 1050).id().as_str(), "in flight");
    }
    first.exit(Outcome::Success, at(1050));
    lends(&engine, &urgent(), 1050, 50);
}

#[test]
fn a_rule_in_shadow_lends_and_makes_no_request_wait() {
    let engine = engine([strict(1.0).in_mode(Mode::Shadow)]);
    drop(pass(&engine, &api(), 0));
    drop(pass(&engine, &urgent(), 1050));
    drop(pass(&engine, &urgent(), 1050));
    let mut counts = None;
    engine.store().for_each_state(0, 1, |state| {
        counts = Some((state.passed(), state.waited(), state.shadow_blocked()));
    });
    assert_eq!(counts, Some((2, 1, 1)));
}

// ---- statistics ----

#[test]
fn differs_from_sentinel_a_loan_is_recorded_on_all_nodes() {
    let request = || urgent().context("web").origin("app").inbound();
    let passes = |rule: FlowRule| {
        let engine = engine([rule]);
        drop(pass(&engine, &request(), 10_000));
        let Decision::Wait(_, entry) = engine.enter(&request(), at(10_999)) else {
            panic!()
        };
        entry.exit(Outcome::Success, at(10_999));
        let tree = engine.store().tree().unwrap();
        let cluster = tree.cluster("api").unwrap();
        let default_node = tree.default_node("web", "api").unwrap();
        let nodes: [&dyn Node; 4] = [
            cluster.statistics(),
            default_node.statistics(),
            &*cluster.origin("app").unwrap(),
            tree.inbound().statistics(),
        ];
        let rates = |node: &dyn Node| {
            let then = at(11_400);
            let minute = (node.total_pass(then), node.cur_thread_num());
            (minute, node.pass_qps(then), node.occupied_pass_qps(then))
        };
        nodes.map(rates)
    };
    let sentinels = passes(rule("r", "api", 1.0).sentinel());
    assert_eq!(sentinels[0], ((2, 0), 1.0, 1.0));
    for node in &sentinels[1..] {
        assert_eq!(*node, ((1, 0), 0.0, 0.0));
    }
    let here = rule("r", "api", 1.0).per(1000, Some(2)).unwrap();
    for node in passes(here.counting(Counting::Sentinel)) {
        assert_eq!(node, ((2, 0), 1.0, 1.0));
    }
}

#[test]
fn a_compatible_loan_is_recorded_on_the_node_that_the_rule_measures() {
    let waiting = |rule: FlowRule| {
        let engine = engine([rule.sentinel()]);
        let request = || urgent().context("web").origin("app");
        drop(pass(&engine, &request(), 10_000));
        drop(pass(&engine, &Request::new("pay").origin("app"), 10_000));
        let Decision::Wait(_, entry) = engine.enter(&request(), at(10_999)) else {
            panic!()
        };
        entry.exit(Outcome::Success, at(10_999));
        let tree = engine.store().tree().unwrap();
        let cluster = tree.cluster("api").unwrap();
        let now = at(10_999);
        [
            cluster.statistics().waiting(now),
            cluster.origin("app").unwrap().waiting(now),
            tree.default_node("web", "api")
                .unwrap()
                .statistics()
                .waiting(now),
            tree.cluster("pay").unwrap().statistics().waiting(now),
        ]
    };
    let one = || rule("r", "api", 1.0);
    assert_eq!(waiting(one()), [1, 0, 0, 0]);
    let app = LimitApp::new("app").unwrap();
    assert_eq!(waiting(one().for_origin(app)), [0, 1, 0, 0]);
    assert_eq!(waiting(one().for_origin(LimitApp::Other)), [0, 1, 0, 0]);
    assert_eq!(waiting(one().chain("web").unwrap()), [0, 0, 1, 0]);
    assert_eq!(waiting(one().relate("pay").unwrap()), [0, 0, 0, 1]);
}

// ---- windows by themselves ----

#[test]
fn a_window_lends_and_takes_back() {
    let window = Window::new(1000, 10).unwrap();
    let window = RuleWindow::new(
        window,
        Counting::Strict,
        LocalCounter::default(),
        Past::Fresh,
    );
    let two = count(2.0);
    window.advance(at(0));
    assert!(window.reserve(two, 2, at(0)));
    window.admit(2);
    window.advance(at(650));
    let wait = window.time_to_loan(two, 1, at(650)).unwrap();
    assert_eq!(wait, Duration::from_millis(450));
    assert!(!window.lend(two, 1, at(1099), at(650)), "too early");
    assert!(window.lend(two, 1, at(1100), at(650)));
    assert!(window.lend(two, 1, at(1100), at(650)));
    assert!(!window.lend(two, 1, at(1100), at(650)), "too much");
    assert_eq!(window.sum(at(650)), 4.0);
    window.take_back(1, at(1100));
    assert_eq!(window.sum(at(650)), 3.0);
    window.give_up(1, at(1100));
    assert_eq!(window.sum(at(650)), 3.0, "not known yet");
    window.advance(at(700));
    assert_eq!(window.sum(at(700)), 2.0);
}

/// To a clock that has stepped back a little, the newest bucket is the current one.
#[test]
fn what_is_released_while_the_clock_is_behind_counts_in_the_newest_bucket() {
    let window = Window::new(1000, 10).unwrap();
    let window = RuleWindow::new(
        window,
        Counting::Strict,
        LocalCounter::default(),
        Past::Fresh,
    );
    window.advance(at(5000));
    window.advance(at(4500));
    assert!(window.lend(count(2.0), 1, at(4600), at(4500)));
    assert!(window.lend(count(2.0), 1, at(4600), at(4500)));
    window.take_back(1, at(4600));
    window.advance(at(5500));
    assert_eq!((window.sum(at(6099)), window.sum(at(6100))), (1.0, 0.0));
}

/// An observation from before a loan came due does not include it.
#[test]
fn a_loan_that_comes_due_in_a_shared_window_is_counted_once() {
    let shared = Shared::default();
    let window = Window::new(1000, 10).unwrap();
    let window = RuleWindow::new(window, Counting::Strict, shared.clone(), Past::Fresh);
    let two = count(2.0);
    window.advance(at(0));
    assert!(window.reserve(two, 2, at(0)));
    window.admit(2);
    window.advance(at(1050));
    assert!(window.lend(two, 1, at(1100), at(1050)));
    assert_eq!((shared.reserved.get(), shared.admitted.get()), (3, 2));
    window.observe();
    window.advance(at(1100));
    assert_eq!((shared.reserved.get(), shared.admitted.get()), (3, 3));
    assert_eq!(window.sum(at(1100)), 1.0);
    window.observe();
    window.advance(at(1300));
    assert_eq!(window.sum(at(1300)), 1.0);
    assert_eq!(window.sum(at(2200)), 0.0);
}

/// A worker knows how much other workers have lent, but not until when: it lends only what is left.
#[test]
fn a_worker_lends_beside_what_others_have_lent() {
    let process = Workers::default();
    let workers = [0; 2].map(|_| process.engine([strict(6.0)]));
    let enter = |worker: &Engine<Workers>, now| {
        let api = worker.resource("api");
        api.observe();
        let request = Request::new("").prioritized();
        worker.enter_resource(&api, &request, at(now))
    };
    for now in [5010, 5110, 5210] {
        for _ in 0..2 {
            let Decision::Pass(entry) = enter(&workers[0], now) else {
                panic!("refused at {now}")
            };
            entry.exit(Outcome::Success, at(now));
            let api = workers[1].resource("api");
            api.observe();
            workers[1]
                .store()
                .for_each_state(0, 9, |state| state.advance(at(now)));
        }
    }
    let waits = |worker: &Engine<Workers>| match enter(worker, 6050) {
        Decision::Wait(wait, entry) => {
            entry.exit(Outcome::Success, at(7000));
            Some(wait.as_millis())
        }
        Decision::Pass(_) => panic!("it passes"),
        Decision::Block(_) => None,
    };
    let answers = [0, 1, 1, 0, 1, 0, 1].map(|i| waits(&workers[i]));
    assert_eq!(
        answers,
        [
            Some(50),
            Some(50),
            Some(150),
            Some(150),
            Some(250),
            Some(250),
            None
        ]
    );
}

// ---- a naive restatement ----

/// A log of what was let in: when it is released, and what it costs.
#[derive(Default)]
struct Log(Vec<(u64, u64)>);

impl Log {
    /// What counts at `now`: all that is released in the current bucket or the `n` before it, or later.
    fn counted(&self, now: u64, bucket_ms: u64, n: u64) -> u64 {
        let counts = |release: &u64| release / bucket_ms + n >= now / bucket_ms;
        let counting = self.0.iter().filter(|(release, _)| counts(release));
        counting.map(|(_, cost)| cost).sum()
    }

    /// When a request is released, if it is let in.
    fn enter(&mut self, ask: (u64, u64, bool), limit: u64, bucket_ms: u64, n: u64) -> Option<u64> {
        let (now, cost, prioritized) = ask;
        let fits = |at: &u64| self.counted(*at, bucket_ms, n) + cost <= limit;
        let boundaries = (now / bucket_ms + 1..).map(|bucket| bucket * bucket_ms);
        let mut lent = boundaries.take_while(|at| prioritized && at - now < OCCUPY_TIMEOUT_MS);
        let release = if fits(&now) {
            Some(now)
        } else {
            lent.find(fits)
        }?;
        self.0.push((release, cost));
        Some(release)
    }

    /// The most that any interval holds.
    fn most(&self, interval_ms: u64) -> u64 {
        let held = |from: u64| {
            let inside = self
                .0
                .iter()
                .filter(|(at, _)| (from..from + interval_ms).contains(at));
            inside.map(|(_, cost)| cost).sum()
        };
        self.0.iter().map(|(at, _)| held(*at)).max().unwrap_or(0)
    }
}

#[test]
fn loans_are_those_of_a_naive_log_and_no_interval_holds_more_than_the_limit() {
    let mut random = fastrand::Rng::with_seed(41);
    let (mut lent, mut refused) = (0, 0);
    for round in 0..400 {
        let n = random.u64(1..12);
        let bucket_ms = random.choice([1, 7, 100, 250, 600]).unwrap();
        let limit = random.u64(1..12);
        let rule = rule("r", "api", limit as f64);
        let engine = engine([rule.per(n * bucket_ms, Some(n as u32)).unwrap()]);
        let (mut now, mut log) = (random.u64(0..2) * 1_700_000_000_000, Log::default());
        for step in 0..150 {
            now += random.u64(0..1 + 3 * n * bucket_ms / limit);
            let cost = if random.u8(0..6) == 0 {
                random.u64(0..4)
            } else {
                1
            };
            let prioritized = random.bool();
            let request = api().cost(cost as u32);
            let request = if prioritized {
                request.prioritized()
            } else {
                request
            };
            let expected = log.enter((now, cost, prioritized), limit, bucket_ms, n);
            let release = match engine.enter(&request, at(now)) {
                Decision::Pass(_) => Some(now),
                Decision::Wait(wait, entry) => {
                    lent += 1;
                    entry.exit(Outcome::Success, at(now));
                    Some(now + wait.as_millis() as u64)
                }
                Decision::Block(blocked) => {
                    refused += 1;
                    check_retry(
                        &log,
                        &blocked,
                        (now, cost, prioritized),
                        limit,
                        bucket_ms,
                        n,
                    );
                    None
                }
            };
            assert_eq!(
                release, expected,
                "round {round}, step {step}: {cost} of {limit} at {now}, {n} x {bucket_ms}"
            );
        }
        assert!(log.most(n * bucket_ms) <= limit, "round {round}");
    }
    assert!(
        lent > 500 && refused > 500,
        "{lent} lent, {refused} refused"
    );
}

/// The retry time is exact: then the request is admitted, and a millisecond earlier it is not.
fn check_retry(
    log: &Log,
    blocked: &Blocked,
    (now, cost, prioritized): (u64, u64, bool),
    limit: u64,
    bucket_ms: u64,
    n: u64,
) {
    let lets_in = |at| {
        let mut log = Log(log.0.clone());
        log.enter((at, cost, prioritized), limit, bucket_ms, n)
            .is_some()
    };
    match blocked.retry_after() {
        None => assert!(cost > limit),
        Some(wait) => {
            let then = now + wait.as_nanos().div_ceil(1_000_000) as u64;
            assert!(
                lets_in(then) && !lets_in(then - 1),
                "{cost} at {now}: {wait:?}"
            );
        }
    }
}

/// Several rules and a throttle at once: however a request is admitted, no window is overrun, counted by when requests are
/// released, and no two turns are closer than the pace.
#[test]
fn mixed_rules_keep_all_their_promises_by_the_time_of_release() {
    let mut random = fastrand::Rng::with_seed(42);
    let mut waits = 0;
    for round in 0..300 {
        let windows: Vec<(u64, u64, u64)> = (0..random.usize(1..4))
            .map(|_| {
                (
                    random.u64(1..8),
                    random.choice([10, 50, 125]).unwrap(),
                    random.u64(2..10),
                )
            })
            .collect();
        let mut flow: Vec<FlowRule> = windows
            .iter()
            .enumerate()
            .map(|(i, (n, bucket_ms, limit))| {
                let rule = rule(&i.to_string(), "api", *limit as f64);
                rule.per(n * bucket_ms, Some(*n as u32)).unwrap()
            })
            .collect();
        let pace_ms = random.choice([5, 20, 40]).unwrap();
        let queue = MaxQueueing::from_millis(random.u64(0..300)).unwrap();
        flow.push(rule("even", "api", 1000.0 / pace_ms as f64).throttle(queue));
        let engine: Engine = engine(flow);
        let (mut now, mut log) = (5000, Log::default());
        for _ in 0..200 {
            now += random.u64(0..60);
            let request = if random.bool() { urgent() } else { api() };
            match engine.enter(&request, at(now)) {
                Decision::Pass(_) => log.0.push((now, 1)),
                Decision::Wait(wait, entry) => {
                    waits += 1;
                    let release = now + wait.as_millis() as u64;
                    assert_eq!(entry.release(), Timestamp::from_millis(release));
                    match random.u8(0..4) {
                        // Some give up at once, and count no more.
                        0 => entry.cancel(at(now)),
                        1 => drop(entry),
                        _ => {
                            log.0.push((release, 1));
                            entry.exit(Outcome::Success, at(now));
                        }
                    }
                }
                Decision::Block(blocked) => assert!(blocked.retry_after().is_some()),
            }
        }
        for (n, bucket_ms, limit) in windows {
            assert!(log.most(n * bucket_ms) <= limit, "round {round}");
        }
        let mut releases: Vec<u64> = log.0.iter().map(|(at, _)| *at).collect();
        releases.sort_unstable();
        let apart = releases.windows(2).map(|pair| pair[1] - pair[0]);
        assert!(
            apart.min().is_none_or(|least| least >= pace_ms),
            "round {round}"
        );
    }
    assert!(waits > 1000, "{waits} waited");
}
