//! Geometry: which bucket, which slot, what still counts.

use crate::support::{at, buckets};
use leapgate::Timestamp;
use leapgate::stats::{Window, WindowError};
use std::time::Duration;

#[test]
fn an_instant_falls_in_the_slot_and_bucket_that_sentinel_names() {
    for (window, time, slot, start) in [
        (buckets(20, 500), 1_576_296_044_907, 9, 1_576_296_044_500),
        (buckets(20, 500), 1_596_199_310_801, 1, 1_596_199_310_500),
        (buckets(2, 500), 1188, 0, 1000),
        (buckets(2, 500), 1500, 1, 1500),
        (buckets(1, 1000), 999, 0, 0),
        (buckets(3, 1), 5, 2, 5),
    ] {
        assert_eq!(
            (window.index(at(time)), window.start(at(time))),
            (slot, at(start)),
            "{time} in {window:?}"
        );
    }
}

#[test]
fn a_bucket_40_s_old_no_longer_counts_in_10_s() {
    assert!(buckets(20, 500).is_deprecated(at(1_576_296_004_907), at(1_576_296_044_907)));
}

#[test]
fn every_instant_lies_in_exactly_one_bucket_and_buckets_follow_one_another() {
    for (sample_count, length) in [(1, 1), (1, 3), (2, 1), (2, 5), (3, 4), (7, 2)] {
        let window = buckets(sample_count, length);
        let starts = (0..30).map(|i| at(i * length));
        for time in (0..20 * length).map(at) {
            let holding: Vec<_> = starts
                .clone()
                .filter(|start| window.contains(*start, time))
                .collect();
            assert_eq!(holding, [window.start(time)], "{time:?} in {window:?}");
            let number = time.as_millis() / length;
            assert_eq!(
                window.index(time) as u64,
                number % u64::from(sample_count),
                "{time:?} in {window:?}"
            );
        }
    }
}

#[test]
fn exactly_as_many_buckets_count_as_the_window_has() {
    for (sample_count, length) in [(1, 4), (2, 3), (3, 1), (10, 2)] {
        let window = buckets(sample_count, length);
        for time in (50..90).map(at) {
            let counting: Vec<u64> = (0..100 / length)
                .map(|i| i * length)
                .filter(|start| !window.is_deprecated(at(*start), time))
                .collect();
            let newest = window.start(time).as_millis();
            let expected: Vec<u64> = (0..u64::from(sample_count))
                .rev()
                .map(|behind| newest - behind * length)
                .collect();
            assert_eq!(counting, expected, "{time:?} in {window:?}");
        }
    }
}

#[test]
fn geometry_is_exact_to_the_end_of_the_clock() {
    let window = buckets(20, 500);
    let last = u64::MAX / 500_000_000;
    assert_eq!(window.index(Timestamp::MAX), (last % 20) as usize);
    assert_eq!(
        window.start(Timestamp::MAX),
        Timestamp::from_nanos(last * 500_000_000)
    );
    assert!(window.contains(window.start(Timestamp::MAX), Timestamp::MAX));
    assert!(!window.is_deprecated(window.start(Timestamp::MAX), Timestamp::MAX));
    assert!(window.is_deprecated(Timestamp::ZERO, Timestamp::MAX));
    assert!(
        window.is_deprecated(Timestamp::MAX, Timestamp::ZERO),
        "it has not begun"
    );
}

#[test]
fn a_nanosecond_before_a_boundary_is_before_it() {
    let window = buckets(2, 500);
    assert_eq!(window.start(Timestamp::from_nanos(999_999_999)), at(500));
    assert_eq!(window.start(Timestamp::from_nanos(1_000_000_000)), at(1000));
}

#[test]
fn a_window_returns_its_parts() {
    let window = Window::new(10_000, 20).unwrap();
    assert_eq!(
        (window.interval(), window.bucket_length()),
        (Duration::from_secs(10), Duration::from_millis(500))
    );
    assert_eq!(
        (
            window.interval_ms(),
            window.sample_count(),
            window.interval_seconds()
        ),
        (10_000, 20, 10.0)
    );
    assert_eq!(Window::new(25, 5).unwrap().interval_seconds(), 0.025);
}

#[test]
fn what_is_no_window_is_refused() {
    for (interval_ms, sample_count, error) in [
        (0, 0, WindowError::NoInterval),
        (0, 1, WindowError::NoInterval),
        (1000, 0, WindowError::NoBuckets),
        (
            1000,
            3,
            WindowError::Uneven {
                interval_ms: 1000,
                sample_count: 3,
            },
        ),
        (
            1,
            2,
            WindowError::Uneven {
                interval_ms: 1,
                sample_count: 2,
            },
        ),
        (
            Window::MAX_INTERVAL_MS + 1,
            1,
            WindowError::TooLong {
                interval_ms: Window::MAX_INTERVAL_MS + 1,
            },
        ),
    ] {
        assert_eq!(
            Window::new(interval_ms, sample_count),
            Err(error),
            "{interval_ms} ms in {sample_count}"
        );
    }
    assert!(Window::new(Window::MAX_INTERVAL_MS, 1).is_ok());
    assert!(Window::new(1, 1).is_ok());
}

#[test]
fn the_finest_sample_count_is_a_divisor_and_none_up_to_the_bound_is_larger() {
    for interval in 1..400_u64 {
        for most in [1, 2, 20, 100] {
            let finest = u64::from(Window::finest_sample_count(interval, most));
            assert_eq!(interval % finest, 0, "{interval} ms");
            let larger = (finest + 1..=u64::from(most).min(interval)).find(|n| interval % n == 0);
            assert_eq!(larger, None, "{interval} ms, at most {most}");
        }
    }
}

#[test]
fn the_clock_saturates_at_its_end() {
    assert_eq!(at(u64::MAX), Timestamp::MAX);
    assert_eq!(at(7).since(at(9)), Duration::ZERO);
    assert_eq!(at(9).since(at(7)), Duration::from_millis(2));
    assert_eq!(Timestamp::from_nanos(1_999_999).as_millis(), 1);
}
