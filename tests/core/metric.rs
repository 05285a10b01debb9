//! Sums, rates and details; views of a coarser window over a finer ring.

use crate::support::{at, buckets};
use leapgate::Timestamp;
use leapgate::stats::{
    ArrayMetric, LoanRule, Metric, MetricEvent, MetricNode, View, ViewError, Window, WindowError,
};
use std::fmt::Debug;

fn metric(sample_count: u32, length: u64) -> ArrayMetric {
    ArrayMetric::new(buckets(sample_count, length))
}

/// A pass in each bucket of `ring` from its start to `now`, twice as many in each as in the one before.
fn doubling(ring: Window, now: u64) -> ArrayMetric {
    let metric = ArrayMetric::new(ring);
    let length = ring.bucket_length().as_millis() as u64;
    let newest = now - now % length;
    for behind in (0..u64::from(ring.sample_count())).rev() {
        metric.add(
            MetricEvent::Pass,
            1 << (u64::from(ring.sample_count()) - behind),
            at(newest - behind * length),
        );
    }
    metric
}

/// Which buckets a sum over `doubling` is made of: the first start and the last.
fn range(ring: Window, now: u64, sum: u64) -> (u64, u64) {
    let length = ring.bucket_length().as_millis() as u64;
    let newest = now - now % length;
    let behind = |bit: u32| newest - (u64::from(ring.sample_count()) - u64::from(bit)) * length;
    let (first, last) = (sum.trailing_zeros(), sum.ilog2());
    assert_eq!(
        sum.count_ones(),
        last - first + 1,
        "the buckets of {sum:b} do not follow one another"
    );
    (behind(first), behind(last))
}

#[test]
fn one_bucket_sums_to_what_happened_in_it() {
    let metric = metric(2, 500);
    let now = at(1_700_000_000_000);
    for (event, n) in [
        (MetricEvent::Pass, 9),
        (MetricEvent::Block, 2),
        (MetricEvent::Success, 9),
        (MetricEvent::Exception, 6),
    ] {
        (0..n).for_each(|_| metric.add(event, 1, now));
    }
    metric.current(now).add_rt(21);
    let sums = (
        metric.pass(now),
        metric.block(now),
        metric.success(now),
        metric.exception(now),
        metric.rt(now),
    );
    assert_eq!(sums, (9, 2, 9, 6, 21), "{metric:?}");
}

#[test]
fn details_can_be_chosen_by_their_start() {
    let metric = metric(4, 500);
    for (now, n) in [(500, 1), (1000, 2), (1500, 3), (2000, 4)] {
        metric.add(MetricEvent::Pass, n, at(now));
    }
    let now = at(2000);
    let passes = |from: u64| -> Vec<u64> {
        metric
            .details_on_condition(now, &|start| start >= at(from))
            .iter()
            .map(|node| node.pass)
            .collect()
    };
    assert_eq!(
        metric
            .details(now)
            .iter()
            .map(|node| node.pass)
            .collect::<Vec<_>>(),
        [1, 2, 3, 4]
    );
    assert_eq!(
        (passes(0), passes(1500), passes(2500)),
        (vec![1, 2, 3, 4], vec![3, 4], vec![])
    );
}

#[test]
fn details_report_all_that_happened_in_a_bucket() {
    let metric = metric(2, 500);
    let now = at(1000);
    for (event, n) in MetricEvent::ALL.into_iter().zip([5, 4, 1, 7, 0, 2]) {
        metric.add(event, n, now);
    }
    [12, 8, 100, 5]
        .into_iter()
        .for_each(|rt| metric.current(now).add_rt(rt));
    metric.current(now).update_concurrency(3);
    metric.current(at(1500)); // touched, and nothing happens
    let node = MetricNode {
        timestamp: at(1000),
        pass: 5,
        block: 4,
        success: 7,
        exception: 1,
        rt: 17, // 125 / 7
        occupied_pass: 2,
        concurrency: 3,
    };
    let nothing = MetricNode {
        timestamp: at(1500),
        pass: 0,
        block: 0,
        success: 0,
        exception: 0,
        rt: 0,
        occupied_pass: 0,
        concurrency: 0,
    };
    assert_eq!(metric.details(at(1500)), [node, nothing], "{metric:?}");
    assert!(!node.is_empty() && nothing.is_empty());
}

#[test]
fn the_response_time_of_a_bucket_without_completions_is_their_sum() {
    let metric = metric(2, 500);
    metric.current(at(0)).add_rt(30);
    metric.current(at(0)).add_rt(12);
    assert_eq!(metric.details(at(0))[0].rt, 42);
}

#[test]
fn differs_from_sentinel_concurrency_is_reported() {
    let metric = metric(2, 500);
    for (now, in_flight) in [(1000, 3), (1100, 7), (1200, 2), (1500, 4)] {
        metric.current(at(now)).update_concurrency(in_flight);
    }
    let readings: Vec<u64> = metric
        .details(at(1500))
        .iter()
        .map(|node| node.concurrency)
        .collect();
    assert_eq!(
        (
            readings,
            metric.max_concurrency(at(1500)),
            metric.max_concurrency(at(2000))
        ),
        (vec![7, 4], 7, 4)
    );
}

#[test]
fn floors_are_sentinels_and_nothing_is_distinguished() {
    let metric = metric(2, 500);
    let idle = at(5000);
    assert_eq!((metric.max_success(idle), metric.min_rt(idle)), (1, 5000));
    assert_eq!(
        (metric.shortest_rt(idle), metric.max_rt(idle)),
        (None, None)
    );
    metric.current(idle).add_rt(0);
    assert_eq!(
        (
            metric.min_rt(idle),
            metric.shortest_rt(idle),
            metric.max_rt(idle)
        ),
        (1, Some(0), Some(0))
    );
    metric.current(at(5500)).add_rt(9000);
    assert_eq!(
        (metric.min_rt(at(5500)), metric.max_rt(at(5500))),
        (1, Some(9000))
    );
    assert_eq!(
        (metric.min_rt(at(6000)), metric.max_rt(at(6000))),
        (5000, Some(9000)),
        "above 5000 it is 5000"
    );
    assert_eq!(
        metric.average(MetricEvent::Success, at(9000)),
        0.0,
        "and no rate of nothing is NaN"
    );
}

#[test]
fn max_success_is_that_of_the_best_bucket() {
    let metric = metric(3, 100);
    for (now, n) in [(0, 4), (100, 9), (200, 2)] {
        metric.add(MetricEvent::Success, n, at(now));
    }
    for (now, most) in [(299, 9), (399, 9), (400, 2), (500, 1)] {
        assert_eq!(metric.max_success(at(now)), most, "{now}: {metric:?}");
    }
}

#[test]
fn rates_are_sums_over_the_interval_in_seconds() {
    for (window, seconds) in [
        (buckets(2, 500), 1.0),
        (buckets(5, 5), 0.025),
        (buckets(60, 1000), 60.0),
    ] {
        let metric = ArrayMetric::new(window);
        metric.add(MetricEvent::Pass, 4, at(70_000));
        assert_eq!(
            metric.average(MetricEvent::Pass, at(70_000)),
            4.0 / seconds,
            "{window:?}"
        );
    }
}

#[test]
fn the_previous_bucket_is_a_count_and_not_a_rate() {
    let metric = metric(4, 250);
    metric.add(MetricEvent::Pass, 6, at(1000));
    metric.add(MetricEvent::Block, 2, at(1249));
    for (now, pass, block) in [
        (1000, 0, 0),
        (1249, 0, 0),
        (1250, 6, 2),
        (1499, 6, 2),
        (1500, 0, 0),
        (9000, 0, 0),
    ] {
        let previous = (
            metric.previous_window_pass(at(now)),
            metric.previous_window_block(at(now)),
        );
        assert_eq!(previous, (pass, block), "{now}: {metric:?}");
    }
}

#[test]
fn the_sum_of_a_bucket_is_readable_while_the_ring_reaches_it_and_then_zero() {
    let metric = metric(2, 500);
    for bucket in 0..20 {
        metric.add(MetricEvent::Pass, bucket + 1, at(bucket * 500));
    }
    for (asked, passes) in [
        (9500, 20),
        (9999, 20),
        (9499, 19),
        (9000, 19),
        (10_000, 0),
        (99_000, 0),
        (0, 0),
        (4000, 0),
        (7500, 0),
    ] {
        assert_eq!(
            metric.window_sum(MetricEvent::Pass, at(asked)),
            passes,
            "{asked}: {metric:?}"
        );
    }
}

#[test]
fn a_bucket_of_a_view_that_has_left_the_ring_in_part_has_no_more_than_what_is_left() {
    let metric = metric(4, 100);
    (0..100).for_each(|bucket| metric.add(MetricEvent::Pass, 1, at(bucket * 100)));
    let view = metric.view(View::sliding(metric.window(), buckets(1, 400)).unwrap());
    for asked in (0..10_000).step_by(100) {
        assert!(
            view.window_sum(MetricEvent::Pass, at(asked)) <= 4,
            "{asked}: {metric:?}"
        );
    }
}

/// Steady passes, one each 10 ms: what is read each millisecond, on average, at least and at most.
fn read_of_100_per_second(sample_count: u32) -> (f64, u64, u64) {
    let metric = metric(sample_count, 1000 / u64::from(sample_count));
    let mut read = Vec::new();
    for now in 0..20_000 {
        if now % 10 == 0 {
            metric.add(MetricEvent::Pass, 1, at(now));
        }
        if now >= 10_000 {
            read.push(metric.pass(at(now)));
        }
    }
    let mean = read.iter().sum::<u64>() as f64 / read.len() as f64;
    (
        mean,
        *read.iter().min().unwrap(),
        *read.iter().max().unwrap(),
    )
}

#[test]
fn a_steady_rate_is_read_low_by_half_a_bucket_on_average() {
    for (sample_count, read) in [
        (1, (50.5, 1, 100)),
        (2, (75.5, 51, 100)),
        (4, (88.0, 76, 100)),
        (10, (95.5, 91, 100)),
        (20, (98.0, 96, 100)),
    ] {
        assert_eq!(
            read_of_100_per_second(sample_count),
            read,
            "{sample_count} buckets"
        );
    }
}

#[test]
fn a_view_counts_the_buckets_that_golangs_counts() {
    let now = 1_578_416_556_900;
    for (view, ring, now, first, last) in [
        (
            (4, 2000),
            (20, 10_000),
            now,
            1_578_416_555_000,
            1_578_416_556_500,
        ),
        (
            (2, 1000),
            (20, 10_000),
            now,
            1_578_416_556_000,
            1_578_416_556_500,
        ),
        (
            (1, 2000),
            (10, 10_000),
            now,
            1_578_416_555_000,
            1_578_416_556_000,
        ),
        (
            (1, 10_000),
            (10, 20_000),
            now,
            1_578_416_548_000,
            1_578_416_556_000,
        ),
        (
            (2, 1000),
            (20, 10_000),
            1_578_416_556_500,
            1_578_416_556_000,
            1_578_416_556_500,
        ),
        // Not reusable for sentinel-golang, though every bucket lines up.
        (
            (3, 1500),
            (20, 10_000),
            now,
            1_578_416_555_500,
            1_578_416_556_500,
        ),
        (
            (2, 8000),
            (20, 10_000),
            now,
            1_578_416_549_000,
            1_578_416_556_500,
        ),
    ] {
        let ring = Window::new(ring.1, ring.0).unwrap();
        let window = Window::new(view.1, view.0).unwrap();
        let metric = doubling(ring, now);
        let sum = metric
            .view(View::sliding(ring, window).unwrap())
            .pass(at(now));
        assert_eq!(
            range(ring, now, sum),
            (first, last),
            "{view:?} over {ring:?}: {metric:?}"
        );
    }
}

/// A view of a window over a ring, both as sample count and interval, or the error.
#[derive(PartialEq, Debug)]
enum Fit {
    Yes,
    NoWindow(WindowError),
    No(ViewError),
}

fn fit(view: (u32, u64), ring: (u32, u64)) -> Fit {
    let windows =
        Window::new(view.1, view.0).and_then(|view| Ok((Window::new(ring.1, ring.0)?, view)));
    match windows.map(|(ring, view)| View::sliding(ring, view)) {
        Err(error) => Fit::NoWindow(error),
        Ok(Err(error)) => Fit::No(error),
        Ok(Ok(made)) => {
            assert_eq!(made.window(), Window::new(view.1, view.0).unwrap());
            Fit::Yes
        }
    }
}

#[test]
fn every_view_that_fits_is_to_be_had_and_no_other() {
    let uneven = |interval_ms, sample_count| {
        Fit::NoWindow(WindowError::Uneven {
            interval_ms,
            sample_count,
        })
    };
    let misaligned = |bucket_ms, ring_bucket_ms| {
        Fit::No(ViewError::Misaligned {
            bucket_ms,
            ring_bucket_ms,
        })
    };
    let too_long = |interval_ms, ring_interval_ms| {
        Fit::No(ViewError::TooLong {
            interval_ms,
            ring_interval_ms,
        })
    };
    for (view, ring, is) in [
        ((2, 1000), (20, 10_000), Fit::Yes),
        ((1, 1000), (100, 10_000), Fit::Yes),
        ((2, 8000), (20, 10_000), Fit::Yes), // sentinel-golang wants 10 s to be a multiple of 8 s
        ((20, 10_000), (20, 10_000), Fit::Yes),
        ((3, 1000), (20, 10_000), uneven(1000, 3)),
        ((2, 1000), (10, 10_000), misaligned(500, 1000)),
        ((2, 3000), (10, 10_000), misaligned(1500, 1000)),
        ((2, 1000), (21, 10_000), uneven(10_000, 21)),
        ((4, 2001), (20, 10_000), uneven(2001, 4)),
        ((2, 2002), (20, 10_000), misaligned(1001, 500)),
        ((4, 200_000), (20, 10_000), too_long(200_000, 10_000)),
        ((1, 10_500), (20, 10_000), too_long(10_500, 10_000)),
        ((0, 0), (20, 10_000), Fit::NoWindow(WindowError::NoInterval)),
    ] {
        assert_eq!(fit(view, ring), is, "{view:?} over {ring:?}");
    }
}

#[test]
fn a_view_that_does_not_fit_names_the_nearest_that_do() {
    let says = |view: (u32, u64), ring: (u32, u64)| {
        View::sliding(
            Window::new(ring.1, ring.0).unwrap(),
            Window::new(view.1, view.0).unwrap(),
        )
        .unwrap_err()
        .to_string()
    };
    assert_eq!(
        says((2, 3000), (10, 10_000)),
        "buckets of `1500` ms are not made of whole buckets of 1000 ms; use 1000 or 2000 ms"
    );
    assert_eq!(
        says((2, 1000), (10, 10_000)),
        "buckets of `500` ms are not made of whole buckets of 1000 ms; use 1000 ms"
    );
    assert_eq!(
        says((4, 200_000), (20, 10_000)),
        "`200000` ms is more than the ring of 10000 ms holds; use at most that"
    );
}

/// What happened, and when: what views are held against.
struct Log(Vec<(u64, MetricEvent, u64)>);

#[test]
fn every_geometry_that_fits_sums_what_happened_in_its_range() {
    let mut random = fastrand::Rng::with_seed(15);
    for (ring_count, length) in [(1, 3), (2, 2), (3, 1), (4, 3), (6, 2), (12, 1)] {
        let ring = buckets(ring_count, length);
        let metric = ArrayMetric::new(ring);
        let mut log = Log(Vec::new());
        let mut now = random.u64(0..5);
        for _ in 0..400 {
            now += random.u64(0..=length + 1);
            if random.u8(0..30) == 0 {
                now += u64::from(ring_count) * length;
            }
            let event = random
                .choice([MetricEvent::Pass, MetricEvent::Block, MetricEvent::Success])
                .unwrap();
            metric.add(event, 1, at(now));
            log.0.push((now, event, 1));
            let ahead = now + random.u64(0..=2 * length);
            for view_buckets in 1..=ring_count {
                for ring_buckets in 1..=ring_count / view_buckets {
                    let window = buckets(view_buckets, length * u64::from(ring_buckets));
                    let view = metric.view(View::sliding(ring, window).unwrap());
                    // Aligned to the ring's buckets: the range ends with the current bucket of the ring.
                    let end = ahead / length * length + length;
                    let first = end.saturating_sub(window.interval_ms());
                    for event in [MetricEvent::Pass, MetricEvent::Block, MetricEvent::Success] {
                        let counts = log
                            .0
                            .iter()
                            .filter(|(time, of, _)| *of == event && (first..end).contains(time));
                        assert_eq!(
                            view.sum(event, at(ahead)),
                            counts.map(|(_, _, n)| n).sum::<u64>(),
                            "{event:?} at {ahead} in {window:?} over {metric:?}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn the_details_of_a_view_are_of_its_own_buckets() {
    let metric = metric(20, 500);
    for half_second in 0..8 {
        let now = at(4000 + half_second * 500);
        metric.add(MetricEvent::Pass, half_second, now);
        metric.add(MetricEvent::Success, 1, now);
        metric.current(now).add_rt(10 * half_second);
        metric.current(now).update_concurrency(half_second);
    }
    let view = metric.view(View::sliding(metric.window(), buckets(3, 1000)).unwrap());
    let rows: Vec<_> = view
        .details(at(7999))
        .iter()
        .map(|n| (n.timestamp.as_millis(), n.pass, n.rt, n.concurrency))
        .collect();
    assert_eq!(
        rows,
        [(5000, 5, 25, 3), (6000, 9, 45, 5), (7000, 13, 65, 7)],
        "{metric:?}"
    );
    assert_eq!(view.max_concurrency(at(7999)), 7);
    assert_eq!(
        (view.shortest_rt(at(7999)), view.max_rt(at(7999))),
        (Some(20), Some(70))
    );
}

/// sentinel-golang's buckets of the future do not count; here they do, since only a clock that has stepped back can have
/// filled them.
#[test]
fn passes_of_a_future_that_a_clock_has_stepped_back_from_count() {
    let metric = metric(20, 500);
    (0..500).for_each(|i| metric.add(MetricEvent::Pass, 1, at(50_000 + 1000 + i)));
    (0..2000).for_each(|_| metric.add(MetricEvent::Pass, 1, at(50_000)));
    let view = metric.view(View::sliding(metric.window(), buckets(2, 1000)).unwrap());
    assert_eq!(view.pass(at(50_000)), 2500, "{metric:?}");
}

#[test]
fn a_pass_that_is_due_counts_whether_its_bucket_was_opened_or_not() {
    let metric = metric(2, 500);
    metric.add(MetricEvent::Pass, 6, at(10_000));
    metric.add_waiting(at(10_500), 2);
    for (now, passes, waiting) in [
        (10_000, 6, 2),
        (10_499, 6, 2),
        (10_500, 8, 0),
        (10_999, 8, 0),
        (11_000, 2, 0),
        (11_500, 0, 0),
    ] {
        assert_eq!(
            (metric.pass(at(now)), metric.waiting(at(now))),
            (passes, waiting),
            "{now}: {metric:?}"
        );
    }
    metric.current(at(10_500));
    assert_eq!(
        (metric.pass(at(10_500)), metric.waiting(at(10_500))),
        (8, 0),
        "{metric:?}"
    );
    assert_eq!(
        metric
            .details(at(10_500))
            .iter()
            .map(|node| node.pass)
            .collect::<Vec<_>>(),
        [6, 2],
        "{metric:?}"
    );
    assert_eq!(metric.previous_window_pass(at(11_000)), 2, "{metric:?}");
}

#[test]
fn differs_from_sentinel_an_untouched_loan_counts() {
    for (untouched, passes) in [(LoanRule::Exact, 3), (LoanRule::Sentinel, 0)] {
        let metric = ArrayMetric::borrowing(buckets(2, 500), buckets(2, 500), untouched);
        metric.add(MetricEvent::Pass, 6, at(10_100));
        metric.add_waiting(at(10_500), 3);
        metric.current(at(11_100)); // nothing has happened in the half second that lent
        assert_eq!(metric.pass(at(11_100)), passes, "{untouched:?}: {metric:?}");
        assert_eq!(metric.pass(at(11_500)), 0, "{untouched:?}: {metric:?}");
    }
}

/// In Sentinel's own test sixteen threads borrow; here they come one by one.
#[test]
fn a_bucket_that_begins_holds_what_was_borrowed_from_it_and_what_is_its_own() {
    for (own, borrowed, next) in [(1, 2, 0), (16, 16, 0), (1, 2, 5)] {
        let metric = metric(10, 200);
        metric.add(MetricEvent::Pass, own, at(4000));
        metric.add_waiting(at(4200), borrowed);
        assert_eq!(
            (metric.pass(at(4000)), metric.waiting(at(4000))),
            (own, borrowed),
            "{metric:?}"
        );
        metric.add(MetricEvent::Pass, next, at(4200));
        assert_eq!(
            (metric.pass(at(4200)), metric.waiting(at(4200))),
            (own + borrowed + next, 0),
            "{metric:?}"
        );
        assert_eq!(metric.details(at(4200)).len(), 2, "{metric:?}");
    }
}

#[test]
fn a_whole_interval_of_borrowing_is_all_paid() {
    let metric = metric(10, 200);
    for bucket in 0..10 {
        metric.add(MetricEvent::Pass, 1, at(bucket * 200));
        metric.add_waiting(at((bucket + 1) * 200), 1);
    }
    // Sentinel: 19, with the bucket that is aged exactly one interval instead of the loan that has just come due.
    assert_eq!(metric.pass(at(1999)), 19, "{metric:?}");
    assert_eq!(metric.pass(at(2000)), 9 * 2 + 1, "{metric:?}");
}

#[test]
fn a_loan_outlives_a_clock_that_steps_back() {
    let metric = metric(2, 500);
    metric.add(MetricEvent::Pass, 6, at(90_000));
    metric.add_waiting(at(90_500), 2);
    metric.current(at(20_100));
    assert_eq!(metric.pass(at(20_100)), 6, "{metric:?}");
    metric.current(at(20_500)); // the next bucket pays: the one that was to pay does not come
    assert_eq!(
        (metric.pass(at(20_500)), metric.waiting(at(20_500))),
        (8, 0),
        "{metric:?}"
    );
}

#[test]
fn a_loan_from_a_bucket_that_has_begun_counts_at_once() {
    let metric = metric(2, 500);
    metric.add(MetricEvent::Pass, 6, at(20_500));
    metric.add_waiting(at(20_500), 2); // of a clock that says 20300 again
    assert_eq!(metric.pass(at(20_300)), 8, "{metric:?}");
}

/// All readings of [`Metric`] at an instant, except for the lists, which show touched buckets.
fn readings(metric: &dyn Metric, now: Timestamp) -> impl PartialEq + Debug + use<> {
    let length = metric.window().bucket_length().as_millis() as u64;
    let back = |buckets: u64| at(now.as_millis().saturating_sub(buckets * length));
    (
        MetricEvent::ALL.map(|event| metric.sum(event, now)),
        MetricEvent::ALL.map(|event| metric.previous_window_sum(event, now)),
        MetricEvent::ALL.map(|event| [0, 1].map(|behind| metric.window_sum(event, back(behind)))),
        (
            metric.max_success(now),
            metric.shortest_rt(now),
            metric.max_rt(now),
            metric.min_rt(now),
            metric.max_concurrency(now),
        ),
    )
}

#[test]
fn reading_ahead_equals_reading_after_a_touch() {
    for seed in 0..24 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (count, length) = random.choice([(1, 10), (2, 10), (3, 5), (10, 3)]).unwrap();
        let window = buckets(count, length);
        let (looked_at, touched) = (ArrayMetric::new(window), ArrayMetric::new(window));
        let interval = u64::from(count) * length;
        let mut now = random.u64(0..3) * 1000;
        let mut newest = now;
        touched.current(at(now));
        for step in 0..600 {
            now = match random.u8(0..20) {
                0 => {
                    looked_at.current(at(now)); // a look is no memory of how late it has been
                    newest.saturating_sub(random.u64(0..interval))
                }
                1 => now + interval + random.u64(0..=length),
                2..8 => now + random.u64(0..=length),
                _ => now,
            };
            newest = newest.max(now - now % length);
            touched.current(at(now));
            assert_eq!(
                readings(&looked_at, at(now)),
                readings(&touched, at(now)),
                "seed {seed}, step {step}, {now}: {touched:?}"
            );
            let (event, n) = (random.choice(MetricEvent::ALL).unwrap(), random.u64(1..9));
            for metric in [&looked_at, &touched] {
                match step % 8 {
                    0 => metric.current(at(now)).add_rt(n),
                    1 => metric.current(at(now)).update_concurrency(n),
                    2 if count > 1 => {
                        metric.add_waiting(at(now + length * (1 + n % (u64::from(count) - 1))), n)
                    }
                    3 | 4 => {}
                    _ => metric.add(event, n, at(now)),
                }
            }
        }
    }
}

#[test]
fn sums_are_the_same_before_and_after_a_clock_that_has_stepped_far_back_is_followed() {
    let metric = metric(3, 100);
    for (now, n) in [(5000, 1), (5100, 2), (5200, 4), (5300, 8)] {
        metric.add(MetricEvent::Pass, n, at(now));
    }
    assert_eq!(metric.pass(at(250)), 14, "{metric:?}");
    metric.current(at(250));
    assert_eq!(metric.pass(at(250)), 14, "{metric:?}");
    for (now, passes) in [(0, 14), (299, 14), (499, 14), (500, 0)] {
        assert_eq!(metric.pass(at(now)), passes, "{now}: {metric:?}");
    }
}
