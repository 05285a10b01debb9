//! One bucket and its contents.

use leapgate::stats::{Bucket, MetricBucket, MetricEvent};

#[test]
fn events_are_in_sentinels_order() {
    assert_eq!(
        format!("{:?}", MetricEvent::ALL),
        "[Pass, Block, Exception, Success, Rt, OccupiedPass]"
    );
    for (i, event) in MetricEvent::ALL.into_iter().enumerate() {
        assert_eq!(event as usize, i, "{event:?}");
    }
}

#[test]
fn events_are_counted_apart() {
    let bucket = MetricBucket::default();
    for _ in 0..20 {
        for (event, n) in MetricEvent::ALL.into_iter().zip(1..) {
            bucket.add(event, n);
        }
    }
    assert_eq!(
        MetricEvent::ALL.map(|event| bucket.get(event)),
        [20, 40, 60, 80, 100, 120],
        "{bucket:?}"
    );
}

#[test]
fn the_lowest_response_time_is_sentinels_and_none_is_distinguished() {
    let bucket = MetricBucket::default();
    for (rt, min, shortest, longest, sum) in [
        (None, 5000, None, None, 0),
        (Some(9000), 5000, Some(9000), Some(9000), 9000), // not clamped, but for the lowest
        (Some(7), 7, Some(7), Some(9000), 9007),
        (Some(0), 0, Some(0), Some(9000), 9007),
        (Some(8), 0, Some(0), Some(9000), 9015),
    ] {
        rt.into_iter().for_each(|rt| bucket.add_rt(rt));
        let found = (
            bucket.min_rt(),
            bucket.shortest_rt(),
            bucket.max_rt(),
            bucket.get(MetricEvent::Rt),
        );
        assert_eq!(
            found,
            (min, shortest, longest, sum),
            "after {rt:?}: {bucket:?}"
        );
    }
}

#[test]
fn the_highest_concurrency_is_kept() {
    let bucket = MetricBucket::default();
    for in_flight in (0..120).chain((0..50).rev()) {
        bucket.update_concurrency(in_flight);
    }
    assert_eq!(bucket.max_concurrency(), 119);
}

#[test]
fn a_bucket_that_is_opened_again_holds_nothing() {
    let bucket = MetricBucket::default();
    MetricEvent::ALL
        .into_iter()
        .for_each(|event| bucket.add(event, 3));
    bucket.add_rt(8);
    bucket.update_concurrency(4);
    bucket.open(&bucket);
    assert_eq!(
        MetricEvent::ALL.map(|event| bucket.get(event)),
        [0; 6],
        "{bucket:?}"
    );
    assert_eq!(
        (
            bucket.shortest_rt(),
            bucket.max_rt(),
            bucket.max_concurrency()
        ),
        (None, None, 0)
    );
}

#[test]
fn a_bucket_that_takes_in_another_holds_both() {
    let (one, other) = (MetricBucket::default(), MetricBucket::default());
    for (bucket, n, rt) in [(&one, 1, 9000), (&other, 10, 7)] {
        MetricEvent::ALL
            .into_iter()
            .for_each(|event| bucket.add(event, n));
        bucket.add_rt(rt);
        bucket.update_concurrency(n);
    }
    one.absorb(&other);
    assert_eq!(
        MetricEvent::ALL.map(|event| one.get(event)),
        [11, 11, 11, 11, 9018, 11],
        "{one:?}"
    );
    assert_eq!(
        (one.shortest_rt(), one.max_rt(), one.max_concurrency()),
        (Some(7), Some(9000), 10)
    );
}
