//! Passes lent from buckets that have not begun.

use crate::support::{at, buckets};
use leapgate::stats::{FutureBucketLeapArray, LoanRule, MetricEvent, OccupiableBucketLeapArray};

fn lending(sample_count: u32, length: u64, untouched: LoanRule) -> OccupiableBucketLeapArray {
    let window = buckets(sample_count, length);
    OccupiableBucketLeapArray::new(window, window, untouched)
}

fn add(array: &OccupiableBucketLeapArray, now: u64, n: u64) {
    array.current_window(at(now)).add(MetricEvent::Pass, n);
}

/// Passes that were let in at once, and what else counts: borrowed ones that have come due.
#[track_caller]
fn assert_listed(array: &OccupiableBucketLeapArray, now: u64, starts: &[u64]) {
    let listed: Vec<u64> = array
        .main()
        .list(at(now))
        .map(|wrap| wrap.start().unwrap().as_millis())
        .collect();
    assert_eq!(listed, starts, "{now}: {:?}", array.main());
}

#[test]
fn a_promise_counts_until_its_bucket_begins() {
    let promised = FutureBucketLeapArray::new(buckets(2, 500));
    promised.add(at(10_500), 4);
    promised.add(at(10_999), 2); // of the same bucket
    for (now, waiting) in [(10_000, 6), (10_499, 6), (10_500, 0), (11_000, 0)] {
        assert_eq!(promised.waiting(at(now)), waiting, "{now}");
    }
}

#[test]
fn promises_of_several_buckets_are_kept_apart() {
    let promised = FutureBucketLeapArray::new(buckets(10, 200));
    (1..10).for_each(|bucket| promised.add(at(bucket * 200), bucket));
    for (now, waiting) in [
        (0, 45),
        (199, 45),
        (200, 44),
        (1000, 6 + 7 + 8 + 9),
        (1799, 9),
        (1800, 0),
    ] {
        assert_eq!(promised.waiting(at(now)), waiting, "{now}");
    }
}

#[test]
fn a_later_promise_takes_the_slot_of_one_that_has_come_due() {
    let promised = FutureBucketLeapArray::new(buckets(2, 500));
    promised.add(at(10_500), 4);
    promised.add(at(11_500), 1);
    assert_eq!(promised.waiting(at(11_000)), 1);
}

#[test]
fn borrowing_leaves_the_current_bucket_alone() {
    let array = lending(10, 200, LoanRule::Exact);
    add(&array, 4000, 1);
    array.add_waiting(at(4200), 1);
    assert_eq!(array.waiting(at(4000)), 1);
    assert_eq!(array.current_window(at(4000)).get(MetricEvent::Pass), 1);
    assert_listed(&array, 4000, &[4000]);
}

#[test]
fn a_bucket_that_begins_pays_what_was_borrowed_from_it() {
    let array = lending(10, 200, LoanRule::Exact);
    add(&array, 4000, 1);
    array.add_waiting(at(4200), 2);
    assert_eq!(array.waiting(at(4199)), 2);
    add(&array, 4200, 0);
    assert_eq!(array.waiting(at(4200)), 0);
    assert_listed(&array, 4200, &[4000, 4200]);
}

#[test]
fn what_is_borrowed_and_paid_is_no_longer_waiting() {
    let array = lending(10, 200, LoanRule::Exact);
    for bucket in 0..10 {
        add(&array, bucket * 200, 1);
        array.add_waiting(at((bucket + 1) * 200), 1);
    }
    assert_eq!(array.waiting(at(1999)), 1);
    assert_eq!(array.waiting(at(2000)), 0);
    assert_listed(
        &array,
        1999,
        &[0, 200, 400, 600, 800, 1000, 1200, 1400, 1600, 1800],
    );
}
