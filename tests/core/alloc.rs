//! A known path allocates nothing: neither a pass nor a refusal.

use crate::support::{at, buckets, count, rule, rules};
use leapgate::backend::{Local, LocalCounter, Past, RuleWindow, Store};
use leapgate::rule::{Counting, KeyPart, KeyValue, KeyedBy, LimitApp, MaxQueueing, Mode, WarmUp};
use leapgate::stats::{ArrayMetric, Metric, MetricEvent, Node, StatisticNode};
use leapgate::{Decision, Engine, Outcome, Request};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::rc::Rc;

thread_local! {
    /// How often this thread has asked for memory, or given it back.
    static TOUCHED: Cell<u64> = const { Cell::new(0) };
}

struct Counter;

#[global_allocator]
static COUNTER: Counter = Counter;

fn touch() {
    // A thread that ends gives memory back after it has lost its counter.
    let _ = TOUCHED.try_with(|touched| touched.set(touched.get() + 1));
}

// SAFETY: all is left to the system's allocator.
unsafe impl GlobalAlloc for Counter {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        touch();
        // SAFETY: the caller's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        touch();
        // SAFETY: the caller's.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        touch();
        // SAFETY: the caller's.
        unsafe { System.realloc(memory, layout, size) }
    }
}

/// How often memory was asked for or given back while `act` ran.
fn allocations(act: impl FnOnce()) -> u64 {
    let before = TOUCHED.get();
    act();
    TOUCHED.get() - before
}

#[test]
fn allocations_are_counted() {
    assert_eq!(allocations(|| drop(Box::new(1))), 2);
    assert_eq!(allocations(|| ()), 0);
}

/// Enters and exits through `engine`, by each way in, over many buckets. Returns passes and refusals.
fn exercise(engine: &Engine, from: u64) -> (u64, u64) {
    let (mut passes, mut blocks) = (0, 0);
    for now in (from..from + 5000).step_by(7) {
        for request in [
            Request::new("api"),
            Request::new("api").context("web").origin("app").inbound(),
            Request::new("api").context("web").origin("shop").cost(2),
            Request::new("job").origin("app"),
        ] {
            match engine.enter(&request, at(now)) {
                Decision::Pass(outer) => {
                    passes += 1;
                    if let Decision::Pass(inner) =
                        engine.enter(&Request::new("search").within(&outer), at(now))
                    {
                        inner.exit(Outcome::Error, at(now + 3));
                    }
                    if passes % 5 > 0 {
                        outer.exit(Outcome::Success, at(now + 5))
                    } else {
                        drop(outer)
                    }
                }
                Decision::Wait(..) | Decision::Block(_) => blocks += 1,
            }
        }
    }
    (passes, blocks)
}

#[test]
fn a_known_path_allocates_nothing_whether_it_passes_or_is_refused() {
    let flow = [
        rule("strict", "api", 30.0),
        rule("minute", "api", 900.0).per(60_000, Some(60)).unwrap(),
        rule("weighted", "api", 60.0).counting(Counting::Weighted),
        rule("sentinel", "api", 60.0).sentinel(),
        rule("in flight", "api", 5.0).concurrency(),
        rule("app", "api", 20.0).for_origin(LimitApp::new("app").unwrap()),
        rule("other", "api", 10.0).for_origin(LimitApp::Other),
        rule("shadow", "api", 1.0).in_mode(Mode::Shadow),
        rule("each", "*", 9.0),
    ];
    for store in [Store::new(Local), Store::without_statistics(Local)] {
        let engine = Engine::with_store(Rc::new(store), rules(flow.clone())).unwrap();
        exercise(&engine, 0); // everybody is met
        let mut counted = (0, 0);
        assert_eq!(allocations(|| counted = exercise(&engine, 10_000)), 0);
        assert!(
            counted.0 > 100 && counted.1 > 100,
            "{counted:?} passed and refused"
        );
        assert_eq!(
            allocations(|| counted = exercise(&engine, 86_400_000)),
            0,
            "after a leap"
        );
        assert_eq!(
            allocations(|| counted = exercise(&engine, 1000)),
            0,
            "after a step back"
        );
    }
}

#[test]
fn known_keys_allocate_nothing() {
    let by = |parts: &[KeyPart]| KeyedBy::new(parts).unwrap();
    let flow = [
        rule("address", "api", 5.0)
            .keyed(by(&[KeyPart::CLIENT_IP]))
            .unwrap(),
        rule("both", "api", 8.0)
            .keyed(by(&[KeyPart::CLIENT_IP, KeyPart::Path]))
            .unwrap(),
        rule("turns", "api", 8.0)
            .keyed(by(&[KeyPart::Path]))
            .unwrap()
            .throttle(MaxQueueing::from_millis(0).unwrap()),
        rule("all", "api", 90.0),
    ];
    let engine = Engine::new(rules(flow)).unwrap();
    let paths: Vec<String> = (0..20).map(|number| format!("/{number}")).collect();
    let run = |from: u64| {
        let (mut passed, mut refused) = (0, 0);
        for now in (from..from + 3000).step_by(5) {
            let path = &paths[(now / 5 * 7 % 20) as usize];
            let address = ["10.0.0.1", "2001:db8::1"][(now / 5 % 2) as usize];
            let keys = [
                KeyValue::One(address.as_bytes()),
                KeyValue::One(path.as_bytes()),
            ];
            match engine.enter(&Request::new("api").keys(&keys), at(now)) {
                Decision::Pass(entry) => {
                    passed += 1;
                    entry.exit(Outcome::Success, at(now));
                }
                Decision::Wait(..) => panic!("no request waits"),
                Decision::Block(_) => refused += 1,
            }
            let resource = engine.resource("api");
            assert_eq!(
                resource
                    .policies_for(&Request::new("api").keys(&keys), at(now))
                    .count(),
                4
            );
        }
        (passed, refused)
    };
    run(0);
    let mut counted = (0, 0);
    assert_eq!(allocations(|| counted = run(10_000)), 0);
    assert!(
        counted.0 > 20 && counted.1 > 20,
        "{counted:?} passed and refused"
    );
}

#[test]
fn a_resource_that_was_looked_up_allocates_nothing_nor_does_asking_what_is_left() {
    let engine = Engine::new(rules([
        rule("r", "api", 3.0),
        rule("in flight", "api", 2.0).concurrency(),
    ]))
    .unwrap();
    let api = engine.resource("api");
    let request = Request::new("api");
    let _ = engine.enter_resource(&api, &request, at(0));
    let mut left = 0;
    let made = allocations(|| {
        for now in (1000..3000).step_by(50) {
            if let Decision::Pass(entry) = engine.enter_resource(&api, &request, at(now)) {
                entry.exit(Outcome::Success, at(now));
            }
            left += api
                .policies(at(now))
                .map(|policy| policy.remaining)
                .sum::<u64>();
        }
    });
    assert_eq!(made, 0);
    assert!(left > 0);
}

#[test]
fn windows_and_statistics_allocate_nothing_once_they_are_made() {
    let window = RuleWindow::new(
        buckets(100, 10),
        Counting::Strict,
        LocalCounter::default(),
        Past::Fresh,
    );
    let metric = ArrayMetric::new(buckets(60, 1000));
    let node = StatisticNode::default();
    let mut total = 0.0;
    let made = allocations(|| {
        for now in (0..200_000).step_by(333).map(at) {
            window.advance(now);
            if window.has_room(count(5.0), 1, now) && window.reserve(count(5.0), 1, now) {
                window.admit(1);
            }
            let _ = (
                window.time_to_room(count(5.0), 9, now),
                window.time_to_more(now),
            );
            metric.add(MetricEvent::Pass, 1, now);
            node.begin(1, now);
            node.complete(3, 1, false, now);
            node.add_waiting_request(at(now.as_millis() + 500), 1);
            total += window.sum(now)
                + metric.average(MetricEvent::Pass, now)
                + node.avg_rt(now)
                + node.previous_pass_qps(now);
            total += node.max_success_qps(now)
                + node.min_rt(now)
                + node.try_occupy_next(1, 5.0, now) as f64;
        }
    });
    assert_eq!(made, 0);
    assert!(total > 0.0);
}

#[test]
fn waiting_and_warming_up_allocate_nothing_once_there_have_been_loans() {
    let queue = MaxQueueing::from_millis(200).unwrap();
    let engine = Engine::new(rules([
        rule("strict", "api", 30.0),
        rule("compat", "api", 60.0).sentinel(),
        rule("cold", "api", 60.0).warm_up(WarmUp::default()),
        rule("even", "mail", 20.0).throttle(queue),
        rule("cold pace", "mail", 40.0).warm_up_throttle(WarmUp::default(), queue),
        rule("polite", "api", 300.0).relate("mail").unwrap(),
        rule("chain", "mail", 300.0).chain("web").unwrap(),
    ]))
    .unwrap();
    let exercise = |from: u64| {
        let (mut waits, mut blocks) = (0, 0);
        for now in (from..from + 5000).step_by(7) {
            for request in [
                Request::new("api").prioritized(),
                Request::new("mail").context("web"),
            ] {
                match engine.enter(&request, at(now)) {
                    Decision::Pass(entry) => entry.exit(Outcome::Success, at(now)),
                    Decision::Wait(_, entry) => {
                        waits += 1;
                        match waits % 3 {
                            0 => entry.cancel(at(now)),
                            1 => drop(entry),
                            _ => entry.exit(Outcome::Success, at(now)),
                        }
                    }
                    Decision::Block(_) => blocks += 1,
                }
            }
        }
        (waits, blocks)
    };
    exercise(0);
    let mut counted = (0, 0);
    assert_eq!(allocations(|| counted = exercise(10_000)), 0);
    assert!(
        counted.0 > 50 && counted.1 > 50,
        "{counted:?} waited and refused"
    );
}

#[test]
fn an_entry_is_small_since_it_is_moved_often() {
    use leapgate::Entry;
    assert_eq!(size_of::<Entry>(), 7 * size_of::<u64>());
    assert_eq!(size_of::<Decision>(), 9 * size_of::<u64>());
}
