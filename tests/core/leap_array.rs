//! The ring, by itself: what it opens, keeps, lists and forgets.

use crate::support::{at, buckets};
use leapgate::Timestamp;
use leapgate::stats::{Bucket, BucketLeapArray, LeapArray, MetricBucket, MetricEvent, WindowWrap};
use std::cell::Cell;

fn ring(sample_count: u32, length: u64) -> BucketLeapArray {
    LeapArray::new(buckets(sample_count, length))
}

/// A ring that was touched at these instants, with one pass more each time: 1, 2, 3…
fn touched(sample_count: u32, length: u64, times: &[u64]) -> BucketLeapArray {
    let array = ring(sample_count, length);
    for (time, n) in times.iter().zip(1..) {
        add(&array, *time, n);
    }
    array
}

fn add(array: &BucketLeapArray, now: u64, n: u64) {
    array
        .current_window(at(now))
        .value()
        .add(MetricEvent::Pass, n);
}

fn passes(bucket: &MetricBucket) -> u64 {
    bucket.get(MetricEvent::Pass)
}

fn starts<'a>(wraps: impl Iterator<Item = &'a WindowWrap<MetricBucket>>) -> Vec<u64> {
    wraps
        .map(|wrap| wrap.start().unwrap().as_millis())
        .collect()
}

fn start(wrap: Option<&WindowWrap<MetricBucket>>) -> Option<u64> {
    wrap.map(|wrap| wrap.start().unwrap().as_millis())
}

fn sum(array: &BucketLeapArray, now: u64) -> u64 {
    array.values(at(now)).map(passes).sum()
}

/// The wrap of the bucket that starts at `start`.
fn wrap(array: &BucketLeapArray, start: u64) -> &WindowWrap<MetricBucket> {
    array
        .list_all()
        .find(|wrap| wrap.start() == Some(at(start)))
        .unwrap()
}

#[test]
fn a_new_ring_is_empty() {
    let array = ring(4, 250);
    assert_eq!(starts(array.list_all()), [] as [u64; 0]);
    assert_eq!(array.values(at(1000)).count(), 0);
    assert!(array.window_value(at(1000)).is_none());
    assert!(array.previous_window(at(1000)).is_none());
    assert!(array.valid_head(at(1000)).is_none());
}

#[test]
fn a_bucket_is_the_same_until_it_ends_and_new_when_the_next_begins() {
    let array = ring(2, 1000);
    let first = array.current_window(at(4000)).value();
    first.add(MetricEvent::Pass, 1);
    first.add(MetricEvent::Block, 1);
    for (now, start, pass, block) in [
        (4500, 4000, 2, 1),
        (4999, 4000, 3, 1),
        (5000, 5000, 1, 0),
        (6000, 6000, 1, 0),
    ] {
        let wrap = array.current_window(at(now));
        wrap.value().add(MetricEvent::Pass, 1);
        let found = (
            wrap.start(),
            passes(wrap.value()),
            wrap.value().get(MetricEvent::Block),
        );
        assert_eq!(found, (Some(at(start)), pass, block), "{now}: {array:?}");
    }
}

#[test]
fn a_slot_is_used_again_in_place() {
    let array = ring(2, 500);
    let first: *const MetricBucket = array.current_window(at(1000)).value();
    let slots: Vec<*const MetricBucket> = (2..40)
        .map(|bucket| std::ptr::from_ref(array.current_window(at(bucket * 500)).value()))
        .collect();
    assert!(
        slots.contains(&first),
        "the memory of the first bucket is used again"
    );
    assert!(array.list_all().count() <= 4, "{array:?}");
}

#[test]
fn the_previous_bucket_is_the_one_just_before_or_none() {
    let array = touched(2, 1000, &[4300]);
    for (now, previous) in [
        (4300, None),
        (4999, None),
        (5000, Some(4000)),
        (5999, Some(4000)),
        (6000, None),
        (15_300, None),
    ] {
        assert_eq!(
            start(array.previous_window(at(now))),
            previous,
            "{now}: {array:?}"
        );
    }
}

#[test]
fn differs_from_sentinel_a_ring_of_one_has_no_previous_bucket() {
    let array = touched(1, 1000, &[1000]);
    for now in [1000, 1300, 1999, 2000, 2500] {
        assert_eq!(
            start(array.previous_window(at(now))),
            None,
            "{now}: {array:?}"
        );
    }
}

#[test]
fn differs_from_sentinel_there_is_nothing_before_zero() {
    let array = touched(2, 500, &[0]);
    for now in [0, 1, 499] {
        assert_eq!(
            start(array.previous_window(at(now))),
            None,
            "{now}: {array:?}"
        );
    }
    assert_eq!(
        start(array.previous_window(at(500))),
        Some(0),
        "and the bucket at zero is one like any other: {array:?}"
    );
}

#[test]
fn the_valid_head_is_the_bucket_that_is_forgotten_next() {
    let array = touched(10, 100, &[0, 100, 200, 300, 400, 500, 600, 700, 800, 900]);
    for (now, head) in [
        (900, Some(0)),
        (999, Some(0)),
        (1000, Some(100)),
        (1899, Some(900)),
        (1900, None),
    ] {
        assert_eq!(start(array.valid_head(at(now))), head, "{now}: {array:?}");
    }
}

#[test]
fn only_what_was_touched_is_listed() {
    let array = touched(10, 100, &[5000, 5100, 6100]);
    assert_eq!(starts(array.list(at(6100))), [6100], "{array:?}");
}

#[test]
fn differs_from_sentinel_a_bucket_aged_one_interval_does_not_count() {
    let array = touched(2, 500, &[10_000, 10_500]);
    // At 11000 and at 11500 Sentinel counts one bucket more, unless something has refreshed its array.
    for (now, counting) in [
        (10_999, 2),
        (11_000, 1),
        (11_001, 1),
        (11_500, 0),
        (11_501, 0),
    ] {
        assert_eq!(array.list(at(now)).count(), counting, "{now}: {array:?}");
    }
}

#[test]
fn after_a_refresh_the_current_bucket_and_the_n_minus_1_before_it_count() {
    let array = ring(2, 500);
    add(&array, 10_000, 3);
    add(&array, 10_500, 4);
    assert_eq!(sum(&array, 10_999), 7);
    add(&array, 11_000, 0);
    assert_eq!(
        (array.list(at(11_000)).count(), sum(&array, 11_000)),
        (2, 4),
        "{array:?}"
    );
}

#[test]
fn differs_from_sentinel_lists_are_in_the_order_of_time() {
    let array = touched(4, 250, &[1000, 1250, 1500, 1750, 2000]);
    assert_eq!(
        starts(array.list(at(2000))),
        [1250, 1500, 1750, 2000],
        "Sentinel: 2000, 1250, 1500, 1750"
    );
    assert_eq!(
        array.values(at(2000)).map(passes).collect::<Vec<_>>(),
        [2, 3, 4, 5]
    );
}

#[test]
fn values_can_be_chosen_by_their_start() {
    let array = touched(4, 500, &[500, 1000, 1500, 2000]);
    for (from, chosen) in [(0, vec![1, 2, 3, 4]), (1500, vec![3, 4]), (2500, vec![])] {
        let values = array.values_conditional(at(2000), |start| start >= at(from));
        assert_eq!(
            values.map(passes).collect::<Vec<_>>(),
            chosen,
            "{from}: {array:?}"
        );
    }
}

#[test]
fn everything_that_is_still_there_is_listed_whether_it_counts_or_not() {
    let array = touched(2, 500, &[1000, 1500]);
    assert_eq!(starts(array.list(at(9000))), [] as [u64; 0], "{array:?}");
    assert_eq!(starts(array.list_all()), [1000, 1500], "{array:?}");
    assert!(array.is_window_deprecated(at(9000), wrap(&array, 1500)));
    assert!(!array.is_window_deprecated(at(1999), wrap(&array, 1500)));
}

#[test]
fn a_value_is_readable_until_its_slot_is_taken() {
    for (times, asked, value) in [
        (&[1000][..], 999, None),
        (&[1000], 1000, Some(1)),
        (&[1000], 1499, Some(1)),
        (&[1000], 1500, None), // not touched
        (&[1000, 1500], 1000, Some(1)),
        (&[1000, 1500, 2000], 1000, None),
        (&[1000, 1500, 2000], 1500, Some(2)),
        // Out of the window, but its slot is not reused: Sentinel would still return it.
        (&[1000, 2500], 1000, Some(1)),
        (&[1000, 1500, 2500], 1500, None),
        (&[1000, 1500, 2500], 1000, Some(1)),
        (&[1000, 3000], 1000, None),
    ] {
        let array = touched(2, 500, times);
        assert_eq!(
            array.window_value(at(asked)).map(passes),
            value,
            "{asked} after {times:?}: {array:?}"
        );
    }
}

#[test]
fn a_value_of_a_ring_of_one_is_readable_until_the_next_bucket_is_touched() {
    let array = touched(1, 1000, &[1000]);
    assert_eq!(array.window_value(at(1999)).map(passes), Some(1));
    add(&array, 2000, 5);
    assert_eq!(array.window_value(at(1999)).map(passes), None, "{array:?}");
    assert_eq!(
        array.window_value(at(2999)).map(passes),
        Some(5),
        "{array:?}"
    );
}

#[test]
fn looking_opens_nothing() {
    let array = touched(2, 500, &[1000]);
    array.list(at(5000)).for_each(drop);
    array.values(at(5000)).for_each(drop);
    array.previous_window(at(5000));
    array.valid_head(at(5000));
    array.window_value(at(5000));
    assert_eq!(starts(array.list(at(1000))), [1000], "{array:?}");
}

#[test]
fn a_clock_that_starts_at_zero_behaves_like_any_other() {
    let array = touched(2, 500, &[0, 500]);
    assert_eq!(starts(array.list(at(999))), [0, 500], "{array:?}");
    assert_eq!(start(array.valid_head(at(0))), Some(0), "{array:?}");
    add(&array, 1000, 9);
    assert_eq!(sum(&array, 1000), 11, "{array:?}");
}

#[test]
fn a_clock_that_stands_still_fills_one_bucket() {
    let array = ring(10, 100);
    (0..16).for_each(|_| add(&array, 4242, 1));
    assert_eq!(
        (starts(array.list_all()), sum(&array, 4242)),
        (vec![4200], 16)
    );
}

#[test]
fn a_clock_that_jumps_a_day_or_to_its_end_leaves_nothing_behind() {
    let array = touched(10, 100, &[1000, 1100]);
    let day = 86_400_000;
    add(&array, 1100 + day, 7);
    assert_eq!(
        (starts(array.list_all()), sum(&array, 1100 + day)),
        (vec![1100 + day], 7)
    );
    let end = array.current_window(Timestamp::MAX);
    assert_eq!(end.start(), Some(array.window().start(Timestamp::MAX)));
    end.value().add(MetricEvent::Pass, 3);
    assert_eq!(
        array.values(Timestamp::MAX).map(passes).sum::<u64>(),
        3,
        "{array:?}"
    );
}

/// Passes of 5 at 20000 and 7 at 20600; then the clock says 12300, and 100 more pass.
#[test]
fn differs_from_sentinel_a_clock_that_steps_back_is_no_amnesty() {
    let array = ring(2, 500);
    add(&array, 20_000, 5);
    add(&array, 20_600, 7);
    assert_eq!(sum(&array, 20_600), 12);
    add(&array, 12_300, 100);
    // Sentinel: 12 until 21000, since the 100 go to a bucket that is never read. sentinel-golang: 0.
    for (now, passes) in [(12_300, 112), (12_499, 112), (12_999, 112), (13_000, 0)] {
        assert_eq!(sum(&array, now), passes, "{now}: {array:?}");
    }
    add(&array, 20_600, 1);
    assert_eq!(
        sum(&array, 20_600),
        1,
        "what was left behind has gone: {array:?}"
    );
}

#[test]
fn a_clock_less_than_an_interval_behind_stays_in_the_newest_bucket() {
    for back in [1, 400, 499, 500, 999] {
        let array = touched(2, 500, &[20_100, 20_500]);
        let wrap = array.current_window(at(20_500 - back));
        assert_eq!(wrap.start(), Some(at(20_500)), "{back} back: {array:?}");
        assert_eq!(sum(&array, 20_500 - back), 3, "{back} back: {array:?}");
        assert_eq!(
            start(array.previous_window(at(20_500 - back))),
            Some(20_000),
            "{back} back: {array:?}"
        );
    }
}

#[test]
fn a_clock_an_interval_behind_takes_everything_along() {
    for back in [1000, 1001, 1500, 7000, 20_500] {
        let array = touched(2, 500, &[19_500, 20_100, 20_500]);
        let now = 20_500 - back;
        assert_eq!(
            sum(&array, now),
            5,
            "before anything is written, {back} back: {array:?}"
        );
        let wrap = array.current_window(at(now));
        let begins = now - now % 500;
        assert_eq!(
            (wrap.start(), passes(wrap.value())),
            (Some(at(begins)), 5),
            "{back} back: {array:?}"
        );
        assert_eq!(starts(array.list_all()), [begins], "{back} back: {array:?}");
        assert_eq!(
            (sum(&array, begins + 999), sum(&array, begins + 1000)),
            (5, 0),
            "{back} back: {array:?}"
        );
    }
}

/// A [`Bucket`] without any of this crate's counters.
#[derive(Default)]
struct Named(Cell<u64>);

impl Bucket for Named {
    fn open(&self, _: &Named) {
        self.0.set(0);
    }

    fn absorb(&self, older: &Named) {
        self.0.set(self.0.get() | older.0.get());
    }

    fn precede(&self, _: &Named) {
        self.0.set(0);
    }
}

#[test]
fn the_ring_knows_no_counter() {
    let array = LeapArray::<Named>::new(buckets(3, 10));
    for (now, bit) in [(100, 1), (110, 2), (120, 4), (130, 8)] {
        array.current_window(at(now)).value().0.set(bit);
    }
    let bits = |now| {
        array
            .values(at(now))
            .fold(0, |all, bucket| all | bucket.0.get())
    };
    assert_eq!(
        [bits(130), bits(140), bits(150), bits(160)],
        [2 | 4 | 8, 4 | 8, 8, 0]
    );
    assert_eq!(
        array.current_window(at(70)).value().0.get(),
        2 | 4 | 8,
        "of what counted, nothing is lost, and nothing is added"
    );
}

#[test]
fn a_ring_draws_itself() {
    let array = ring(2, 500);
    add(&array, 1000, 3);
    array
        .current_window(at(1500))
        .value()
        .add(MetricEvent::Block, 1);
    assert_eq!(
        format!("{array:?}"),
        "ring of 2 x 500ms: [ 1000.. Pass=3 ] [ 1500.. Block=1 ]"
    );
}
