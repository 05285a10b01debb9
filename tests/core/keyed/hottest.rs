//! The hottest keys and their labels.

use super::{numbered, qps, strict, table, terms};
use crate::support::at;
use fastrand::Rng;
use leapgate::Timestamp;
use leapgate::backend::{HotKey, KeyedStates, KeyedTerms, KeyedWindows, MAX_LABEL, MAX_LABELS};
use leapgate::rule::{Counting, Grade};
use std::cmp::Reverse;

/// As many passes of a client as it can have.
fn no_limit() -> KeyedTerms {
    terms(1e15)
}

fn pass(table: &KeyedWindows, name: &str, times: usize, now: Timestamp) {
    for _ in 0..times {
        let key = table.key([Some(name.as_bytes())]);
        assert!(table.admit_now(key, &no_limit(), 1, now).is_some());
    }
}

fn shown(top: &[HotKey]) -> Vec<(&str, u64)> {
    top.iter()
        .map(|hot| (hot.label.as_deref().unwrap_or("?"), hot.amount))
        .collect()
}

#[test]
fn the_hottest_keys_are_those_with_the_most_passes_in_their_window() {
    let table = strict(1000);
    for (name, times) in [("a", 3), ("b", 50), ("c", 7), ("d", 1), ("e", 7)] {
        pass(&table, name, times, at(0));
    }
    let top = table.top(3, at(10));
    assert_eq!(top.len(), 3);
    assert_eq!(shown(&top)[0], ("b", 50));
    let mut seven = [shown(&top)[1], shown(&top)[2]];
    seven.sort_unstable();
    assert_eq!(seven, [("c", 7), ("e", 7)]);
    assert_eq!(table.top(0, at(10)), []);
    // One pass makes no key hot. The second one lists the key, and its label is stored when it comes again.
    let last = |top: Vec<HotKey>| shown(&top).last().map(|(name, n)| ((*name).to_owned(), *n));
    assert_eq!(
        last(table.top(usize::MAX, at(10))),
        Some(("?".to_owned(), 1))
    );
    table.key([Some(&b"d"[..])]);
    assert_eq!(
        last(table.top(usize::MAX, at(10))),
        Some(("d".to_owned(), 1))
    );
    // Passes that have left the window make no key hot.
    pass(&table, "a", 2, at(1000));
    assert_eq!(shown(&table.top(10, at(1060))), [("a", 2)]);
    assert_eq!(table.top(10, at(10_000)), []);
}

#[test]
fn the_hottest_keys_are_as_a_sorted_log_has_them() {
    let mut rng = Rng::with_seed(3);
    for counting in [Counting::Strict, Counting::Sentinel, Counting::Weighted] {
        let table = table(qps(1000, 10, counting), 5000);
        let mut now = at(5000);
        for _ in 0..30 {
            now = at(now.as_millis() + rng.u64(..150));
            for _ in 0..300 {
                let number = rng.u64(..40) * rng.u64(..40);
                table.admit_now(numbered(&table, number), &no_limit(), 1, now);
            }
            let all = (0..1600).map(|number| numbered(&table, number));
            let mut sorted: Vec<(Reverse<u64>, u64)> = all
                .map(|key| (Reverse(table.sum(key, now) as u64), key.hash()))
                .filter(|(Reverse(sum), _)| *sum > 0)
                .collect();
            sorted.sort_unstable();
            for n in [1, 7, 100, 5000] {
                let expected = sorted.iter().take(n).copied();
                let top = table.top(n, now);
                let listed = top.iter().map(|hot| (Reverse(hot.amount), hot.key.hash()));
                assert!(listed.eq(expected), "{n} at {now:?}, {counting:?}");
            }
        }
    }
}

#[test]
fn the_hottest_keys_of_calls_in_flight_are_those_with_the_most() {
    let table = table(Grade::Concurrency, 1000);
    let enter = |name: &str| {
        let key = table.key([Some(name.as_bytes())]);
        table.admit_now(key, &no_limit(), 1, at(0)).unwrap()
    };
    let mut calls: Vec<_> = (0..5).map(|_| enter("many")).collect();
    calls.extend((0..3).map(|_| enter("some")));
    enter("one");
    assert_eq!(shown(&table.top(2, at(0))), [("many", 5), ("some", 3)]);
    calls.drain(..4).for_each(|call| table.leave(call, 1));
    assert_eq!(shown(&table.top(2, at(0))), [("some", 3), ("many", 1)]);
}

#[test]
fn labels_are_the_parts_as_text_and_not_longer_than_they_may_be() {
    let table = strict(100);
    let long = "ä".repeat(100);
    let keys: [&[Option<&[u8]>]; 5] = [
        &[Some(b"10.0.0.1"), Some(b"gold")],
        &[None, Some(b"x")],
        &[Some(b"\xff")],
        &[Some(long.as_bytes())],
        &[Some(&[b'y'; 1000]), Some(b"z")],
    ];
    for (more, parts) in keys.iter().enumerate() {
        for _ in 0..10 - more {
            let key = table.key(parts.iter().copied());
            table.admit_now(key, &no_limit(), 1, at(0));
        }
    }
    let top = table.top(5, at(0));
    let labels: Vec<_> = top
        .iter()
        .map(|hot| hot.label.as_deref().unwrap())
        .collect();
    assert_eq!(
        labels,
        [
            "10.0.0.1, gold",
            "-, x",
            "\u{fffd}",
            &"ä".repeat(MAX_LABEL / 2),
            &"y".repeat(MAX_LABEL)
        ]
    );
}

#[test]
fn a_key_that_becomes_hot_takes_the_label_of_the_coolest() {
    let table = strict(10_000);
    for number in 0..1000 {
        pass(&table, &format!("warm-{number}"), 5, at(0));
    }
    let known = |top: &[HotKey]| top.iter().filter(|hot| hot.label.is_some()).count();
    assert_eq!(known(&table.top(1000, at(0))), MAX_LABELS);
    for number in 0..MAX_LABELS {
        pass(&table, &format!("hot-{number}"), 20, at(100));
    }
    let top = table.top(MAX_LABELS, at(100));
    let named = |hot: &HotKey| {
        hot.label
            .as_deref()
            .is_some_and(|label| label.starts_with("hot-"))
    };
    assert!(top.iter().all(named), "{:?}", shown(&top));
    // Keys of a window that has passed are replaced.
    for number in 0..MAX_LABELS {
        pass(&table, &format!("next-{number}"), 4, at(5000));
    }
    let top = table.top(MAX_LABELS, at(5000));
    let named = |hot: &HotKey| {
        hot.label
            .as_deref()
            .is_some_and(|label| label.starts_with("next-"))
    };
    assert!(top.iter().all(named), "{:?}", shown(&top));
    assert!(table.bytes() <= table.geometry().max_bytes());
}

#[test]
fn what_keys_share_belongs_to_no_key() {
    let table = strict(2);
    for name in ["a", "b"] {
        pass(&table, name, 3, at(0));
    }
    for number in 0..100 {
        pass(&table, &format!("other-{number}"), 9, at(0));
    }
    let top = table.top(10, at(0));
    let mut names = shown(&top);
    names.sort_unstable();
    assert_eq!(names, [("a", 3), ("b", 3)]);
}
