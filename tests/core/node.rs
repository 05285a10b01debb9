//! One resource's statistics: rates of the last second, totals of the last minute, calls in flight, loans.

use crate::support::at;
use leapgate::stats::{LoanRule, Metric, MetricNode, Node, OCCUPY_TIMEOUT_MS, StatisticNode};

/// At 50100: 3 passes, 2 refusals, completions of 1, 1 and 4 in 12, 8 and 100 ms, and a failure.
fn busy() -> StatisticNode {
    let node = StatisticNode::default();
    let now = at(50_100);
    node.add_pass_request(3, now);
    node.increase_block_qps(2, now);
    for (rt, n) in [(12, 1), (8, 1), (100, 4)] {
        node.add_rt_and_success(rt, n, now);
    }
    node.increase_exception_qps(1, now);
    node
}

#[test]
fn an_idle_node_says_what_sentinels_says() {
    let node = StatisticNode::default();
    for now in [at(0), at(700), at(1_700_000_000_000)] {
        let rates = [
            node.pass_qps(now),
            node.block_qps(now),
            node.total_qps(now),
            node.success_qps(now),
            node.exception_qps(now),
        ];
        assert_eq!(rates, [0.0; 5]);
        assert_eq!(
            (
                node.avg_rt(now),
                node.min_rt(now),
                node.max_success_qps(now)
            ),
            (0.0, 5000.0, 2.0)
        );
        assert_eq!(
            (
                node.previous_pass_qps(now),
                node.previous_block_qps(now),
                node.occupied_pass_qps(now)
            ),
            (0.0, 0.0, 0.0)
        );
        assert_eq!(
            [
                node.total_request(now),
                node.total_pass(now),
                node.total_success(now)
            ],
            [0; 3]
        );
        assert_eq!(
            [
                node.total_exception(now),
                node.block_request(now),
                node.cur_thread_num(),
                node.waiting(now)
            ],
            [0; 4]
        );
    }
}

#[test]
fn a_busy_second_reads_as_in_sentinel() {
    let (node, now) = (busy(), at(50_100));
    let rates = [
        node.pass_qps(now),
        node.block_qps(now),
        node.total_qps(now),
        node.success_qps(now),
        node.exception_qps(now),
    ];
    assert_eq!(rates, [3.0, 2.0, 5.0, 6.0, 1.0], "{node:?}");
    assert_eq!(
        (
            node.avg_rt(now),
            node.min_rt(now),
            node.max_success_qps(now)
        ),
        (20.0, 8.0, 12.0),
        "{node:?}"
    );
}

#[test]
fn half_a_second_on_both_halves_count_and_then_only_the_minute_remembers() {
    let node = busy();
    node.add_rt_and_success(5, 1, at(50_600));
    assert_eq!(
        (
            node.success_qps(at(50_600)),
            node.max_success_qps(at(50_600))
        ),
        (7.0, 12.0),
        "{node:?}"
    );
    let now = at(51_600);
    assert_eq!(
        (
            node.pass_qps(now),
            node.total_request(now),
            node.total_pass(now)
        ),
        (0.0, 5, 3),
        "{node:?}"
    );
    assert_eq!(
        (
            node.total_success(now),
            node.total_exception(now),
            node.block_request(now)
        ),
        (7, 1, 2),
        "{node:?}"
    );
    assert_eq!(
        (node.previous_pass_qps(now), node.previous_block_qps(now)),
        (3.0, 2.0),
        "{node:?}"
    );
    assert_eq!(node.previous_pass_qps(at(52_000)), 0.0, "{node:?}");
    for (now, passes) in [(109_999, 3), (110_000, 0)] {
        assert_eq!(node.total_pass(at(now)), passes, "{now}: {node:?}");
    }
}

#[test]
fn the_metric_log_is_reported_each_second_once() {
    let node = busy();
    node.add_rt_and_success(5, 1, at(50_600));
    assert_eq!(
        node.metrics(at(50_999)),
        [],
        "the current second is not over"
    );
    let second = MetricNode {
        timestamp: at(50_000),
        pass: 3,
        block: 2,
        success: 7,
        exception: 1,
        rt: 17, // 125 / 7
        occupied_pass: 0,
        concurrency: 0,
    };
    assert_eq!(node.metrics(at(52_000)), [second], "{node:?}");
    assert_eq!(node.metrics(at(52_000)), [], "a second time");
    node.add_pass_request(1, at(53_000));
    node.touch(at(54_000)); // in which nothing happens
    node.add_pass_request(1, at(55_500));
    let starts = |now| {
        node.metrics(at(now))
            .iter()
            .map(|node| node.timestamp.as_millis())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        (starts(55_999), starts(56_000), starts(57_000)),
        (vec![53_000], vec![55_000], vec![]),
        "{node:?}"
    );
}

#[test]
fn the_metric_log_reports_a_second_at_zero() {
    let node = StatisticNode::default();
    node.add_pass_request(1, at(0));
    assert_eq!(node.metrics(at(1000)).len(), 1, "{node:?}");
}

#[test]
fn the_raw_minute_can_be_asked_for_any_of_its_seconds() {
    let node = StatisticNode::default();
    for second in 0..90 {
        node.add_pass_request(second, at(second * 1000));
    }
    let passes = |from: u64| -> Vec<u64> {
        node.raw_metrics_in_min(at(89_999), &|start| start >= at(from))
            .iter()
            .map(|node| node.pass)
            .collect()
    };
    assert_eq!(passes(0), (30..90).collect::<Vec<_>>(), "{node:?}");
    assert_eq!(passes(88_000), [88, 89], "{node:?}");
}

#[test]
fn three_seconds_after_the_last_of_300_calls_only_the_minute_remembers() {
    let node = StatisticNode::default();
    for call in 0..300 {
        let begins = 10_000 + call % 10;
        node.begin(1, at(begins));
        node.complete(call % 7, 1, call % 3 == 0, at(begins + call % 7));
    }
    let now = at(13_020);
    assert_eq!(
        (
            node.cur_thread_num(),
            node.pass_qps(now),
            node.success_qps(now)
        ),
        (0, 0.0, 0.0),
        "{node:?}"
    );
    assert_eq!(
        (
            node.total_request(now),
            node.total_success(now),
            node.total_exception(now)
        ),
        (300, 300, 100),
        "{node:?}"
    );
    assert_eq!(node.min_rt(now), 5000.0, "{node:?}");
}

#[test]
fn a_call_is_in_flight_from_its_beginning_to_its_end_whatever_it_costs() {
    let node = StatisticNode::default();
    node.begin(5, at(1000));
    node.begin(1, at(1010));
    assert_eq!(
        (node.cur_thread_num(), node.pass_qps(at(1010))),
        (2, 6.0),
        "{node:?}"
    );
    node.complete(30, 5, false, at(1030));
    node.complete(30, 1, true, at(1040));
    assert_eq!(
        (
            node.cur_thread_num(),
            node.success_qps(at(1040)),
            node.exception_qps(at(1040))
        ),
        (0, 6.0, 1.0),
        "{node:?}"
    );
    assert_eq!(node.second().max_concurrency(at(1040)), 2, "{node:?}");
    assert_eq!(
        node.avg_rt(at(1040)),
        10.0,
        "60 ms for 6 completions: {node:?}"
    );
}

#[test]
fn differs_from_sentinel_calls_in_flight_are_never_negative() {
    let node = StatisticNode::default();
    node.decrease_thread_num();
    assert_eq!(node.cur_thread_num(), 0);
    node.increase_thread_num();
    assert_eq!(node.cur_thread_num(), 1, "and the next one is counted");
}

#[test]
fn the_second_and_the_minute_are_whole_metrics() {
    let node = busy();
    let now = at(50_100);
    assert_eq!((node.second().pass(now), node.minute().pass(now)), (3, 3));
    assert_eq!(
        (
            node.second().window().interval_ms(),
            node.second().window().sample_count()
        ),
        (1000, 2)
    );
    assert_eq!(
        (
            node.minute().window().interval_ms(),
            node.minute().window().sample_count()
        ),
        (60_000, 60)
    );
    assert_eq!(
        (
            node.second().details(now).len(),
            node.minute().details(now).len()
        ),
        (1, 1)
    );
    assert_eq!(node.second().details(now)[0].timestamp, at(50_000));
}

/// The minute is aligned to whole seconds in either half of a second, as a ring of its own would be.
#[test]
fn the_minute_holds_sixty_whole_seconds() {
    let node = StatisticNode::default();
    for half in 0..400 {
        node.add_pass_request(1, at(half * 500));
    }
    // In the first half of a second, 59 whole seconds and one half of one have passed.
    for (now, passes) in [
        (199_000, 120),
        (199_499, 120),
        (199_500, 120),
        (200_000, 118),
        (200_499, 118),
        (200_999, 118),
    ] {
        assert_eq!(node.total_pass(at(now)), passes, "{now}: {node:?}");
    }
}

#[test]
fn what_leaves_at_the_next_boundary_can_be_borrowed_now() {
    let node = StatisticNode::default();
    node.add_pass_request(4, at(10_100));
    node.add_pass_request(6, at(10_600));
    for (now, acquire, wait) in [
        (10_600, 1, 400),
        (10_700, 1, 300),
        (10_999, 1, 1),
        (10_700, 4, 300),
        (10_700, 5, OCCUPY_TIMEOUT_MS),
    ] {
        assert_eq!(
            node.try_occupy_next(acquire, 10.0, at(now)),
            wait,
            "{acquire} at {now}: {node:?}"
        );
    }
}

#[test]
fn what_stays_after_the_next_boundary_cannot_be_borrowed_nor_anything_at_a_boundary() {
    let node = StatisticNode::default();
    node.add_pass_request(10, at(20_600));
    assert_eq!(
        node.try_occupy_next(1, 10.0, at(20_600)),
        OCCUPY_TIMEOUT_MS,
        "nothing leaves: {node:?}"
    );
    let node = StatisticNode::default();
    node.add_pass_request(10, at(30_100));
    for (now, wait) in [(30_100, 500), (30_499, 500), (30_500, 500), (30_600, 400)] {
        assert_eq!(
            node.try_occupy_next(1, 10.0, at(now)),
            wait,
            "{now}: {node:?}"
        );
    }
}

#[test]
fn no_more_is_lent_than_the_threshold() {
    let node = StatisticNode::default();
    node.add_pass_request(10, at(30_100));
    for borrowed in 0..10 {
        assert_eq!(
            (
                node.waiting(at(30_700)),
                node.try_occupy_next(1, 10.0, at(30_700))
            ),
            (borrowed, 300),
            "{node:?}"
        );
        node.add_waiting_request(at(31_000), 1);
    }
    assert_eq!(
        node.try_occupy_next(1, 10.0, at(30_700)),
        OCCUPY_TIMEOUT_MS,
        "{node:?}"
    );
}

/// Ten passes in 30000..30500, and at 30700 one borrowed of 31000.
fn lending(untouched: LoanRule) -> StatisticNode {
    let node = StatisticNode::new(untouched);
    node.add_pass_request(10, at(30_100));
    node.add_waiting_request(at(31_000), 1);
    node.add_occupied_pass(1, at(30_700));
    node
}

#[test]
fn a_loan_counts_in_the_minute_at_once_and_in_the_second_when_it_is_due() {
    let node = lending(LoanRule::Exact);
    let now = at(30_700);
    assert_eq!(
        (node.waiting(now), node.pass_qps(now), node.total_pass(now)),
        (1, 10.0, 11),
        "{node:?}"
    );
    let now = at(31_000);
    assert_eq!(
        (node.waiting(now), node.pass_qps(now), node.total_pass(now)),
        (0, 1.0, 11),
        "{node:?}"
    );
    node.touch(now);
    assert_eq!(
        (node.waiting(now), node.pass_qps(now), node.total_pass(now)),
        (0, 1.0, 11),
        "{node:?}"
    );
}

#[test]
fn differs_from_sentinel_occupied_pass_qps_is_reported() {
    let node = lending(LoanRule::Exact);
    for (now, rate) in [(30_700, 1.0), (31_000, 1.0), (31_499, 1.0), (31_500, 0.0)] {
        assert_eq!(
            node.occupied_pass_qps(at(now)),
            rate,
            "Sentinel: 0.0; {now}: {node:?}"
        );
    }
}

#[test]
fn the_metric_log_reports_loans_in_the_second_that_made_them() {
    let node = lending(LoanRule::Exact);
    let logged: Vec<_> = node
        .metrics(at(32_000))
        .iter()
        .map(|n| (n.timestamp.as_millis(), n.pass, n.occupied_pass))
        .collect();
    assert_eq!(logged, [(30_000, 11, 1)], "{node:?}");
}

/// Recording a loan, and looking at the minute, touches the second window neither here nor in Sentinel.
#[test]
fn a_loan_that_is_recorded_does_not_touch_the_bucket_in_which_another_comes_due() {
    for (untouched, passes) in [(LoanRule::Exact, 1.0), (LoanRule::Sentinel, 0.0)] {
        let node = lending(untouched);
        node.add_occupied_pass(1, at(31_100));
        node.total_pass(at(31_100));
        assert_eq!(node.pass_qps(at(31_600)), passes, "{untouched:?}: {node:?}");
    }
    let node = lending(LoanRule::Sentinel);
    node.add_occupied_pass(1, at(31_100));
    node.touch(at(31_200)); // but this does
    assert_eq!(node.pass_qps(at(31_600)), 1.0, "{node:?}");
}

#[test]
fn a_clock_a_little_behind_loses_nothing() {
    let node = StatisticNode::default();
    node.add_pass_request(4, at(70_000));
    node.add_pass_request(2, at(69_300));
    node.begin(1, at(69_999));
    assert_eq!(
        (
            node.pass_qps(at(69_300)),
            node.pass_qps(at(70_000)),
            node.total_pass(at(70_000))
        ),
        (7.0, 7.0, 7),
        "{node:?}"
    );
}

#[test]
fn a_clock_far_behind_takes_the_minute_along() {
    let node = StatisticNode::default();
    node.add_pass_request(4, at(170_000));
    node.add_pass_request(2, at(10_000));
    assert_eq!(
        (
            node.total_pass(at(10_000)),
            node.total_pass(at(69_999)),
            node.total_pass(at(70_000))
        ),
        (6, 6, 0),
        "{node:?}"
    );
}
