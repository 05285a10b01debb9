//! The window of one rule: what it admits, what it says is left and when, and how several share two counts.

use crate::support::{Shared, at, buckets, count};
use leapgate::Timestamp;
use leapgate::backend::{Counter, LocalCounter, Past, RuleWindow, Snapshots};
use leapgate::rule::Counting;
use leapgate::stats::Window;

const ALL: [Counting; 3] = [Counting::Strict, Counting::Sentinel, Counting::Weighted];

fn local(window: Window, counting: Counting) -> RuleWindow<LocalCounter> {
    RuleWindow::new(window, counting, LocalCounter::default(), Past::Fresh)
}

/// Lets `cost` in at `now` if that is within `limit`: the steps of a decision.
#[track_caller]
fn enter<T: Counter>(window: &RuleWindow<T>, limit: f64, cost: u64, now: u64) -> bool {
    window.observe();
    window.advance(at(now));
    let reserved = window.counter().reserved();
    if !window.has_room(count(limit), cost, at(now)) || !window.reserve(count(limit), cost, at(now))
    {
        assert_eq!(
            window.counter().reserved(),
            reserved,
            "a refusal keeps no reservation: {window:?}"
        );
        return false;
    }
    window.admit(cost);
    true
}

fn fill<T: Counter>(window: &RuleWindow<T>, limit: f64, now: u64) -> usize {
    (0..10_000)
        .take_while(|_| enter(window, limit, 1, now))
        .count()
}

/// The first instant after `now` at which the window lets another in.
fn next_admission(window: &RuleWindow<LocalCounter>, limit: f64, now: u64) -> u64 {
    (now + 1..)
        .find(|now| enter(window, limit, 1, *now))
        .unwrap()
}

#[test]
fn each_way_to_count_sums_its_own_buckets() {
    // 3 at 10000, 4 at 10500 and 8 at 11250, in 2 x 500 ms; no call comes in between.
    for (now, strict, sentinel, weighted) in [
        (11_250, 15, 12, 3.0 * 0.5 + 12.0),
        (11_499, 15, 12, 3.0 * 0.002 + 12.0),
        (11_500, 12, 8, 4.0 + 8.0),
        (11_750, 12, 8, 4.0 * 0.5 + 8.0),
        (12_000, 8, 0, 8.0),
        (12_250, 8, 0, 8.0 * 0.5),
        (12_500, 0, 0, 0.0),
    ] {
        for (counting, sum) in [
            (ALL[0], f64::from(strict)),
            (ALL[1], f64::from(sentinel)),
            (ALL[2], weighted),
        ] {
            let window = local(buckets(2, 500), counting);
            for (now, n) in [(10_000, 3), (10_500, 4), (11_250, 8)] {
                assert!(enter(&window, 99.0, n, now));
            }
            assert_eq!(window.sum(at(now)), sum, "{now}: {window:?}");
        }
    }
}

#[test]
fn a_burst_at_the_end_of_a_bucket_is_followed_by_another_when_its_window_has_left() {
    for (sample_count, after) in [(1, 1), (2, 501), (4, 751), (10, 901), (20, 951)] {
        let window = local(Window::new(1000, sample_count).unwrap(), Counting::Sentinel);
        assert_eq!(fill(&window, 10.0, 10_999), 10);
        assert_eq!(
            next_admission(&window, 10.0, 10_999),
            10_999 + after,
            "{window:?}"
        );
    }
}

#[test]
fn differs_from_sentinel_strict_windows_never_admit_twice() {
    for sample_count in [1, 2, 4, 10, 20, 100, 1000] {
        let window = local(Window::new(1000, sample_count).unwrap(), Counting::Strict);
        assert_eq!(fill(&window, 10.0, 10_999), 10);
        assert_eq!(next_admission(&window, 10.0, 10_999), 12_000, "{window:?}");
    }
}

#[test]
fn a_fraction_of_a_pass_admits_nothing() {
    for counting in ALL {
        for (limit, admitted) in [(0.0, 0), (0.5, 0), (0.999, 0), (1.0, 1), (2.5, 2), (3.0, 3)] {
            assert_eq!(
                fill(&local(buckets(2, 500), counting), limit, 1000),
                admitted,
                "{counting:?} {limit}"
            );
        }
    }
}

#[test]
fn differs_from_sentinel_rates_are_not_cut() {
    let window = local(buckets(2, 500), Counting::Weighted);
    assert_eq!(fill(&window, 10.0, 1000), 10);
    // A tenth of the bucket is over at 2050: nine passes count, and one more fits. At 2049 it is 9.02 and 1: cut, it would be 9.
    assert_eq!(window.sum(at(2050)), 9.0);
    assert!(!enter(&window, 10.0, 1, 2049), "{window:?}");
    assert!(enter(&window, 10.0, 1, 2050), "{window:?}");
}

#[test]
fn a_cost_is_let_in_whole_or_not_at_all() {
    for counting in ALL {
        let window = local(buckets(10, 100), counting);
        assert!(enter(&window, 5.0, 3, 1000));
        assert!(!enter(&window, 5.0, 3, 1000), "{window:?}");
        assert!(enter(&window, 5.0, 2, 1000), "{window:?}");
        assert!(
            enter(&window, 5.0, 0, 1000),
            "nothing always fits: {window:?}"
        );
        assert!(!enter(&window, 5.0, u64::MAX, 1000), "{window:?}");
    }
}

#[test]
fn what_is_reserved_and_given_back_has_not_been() {
    for counting in ALL {
        let window = local(buckets(10, 100), counting);
        window.advance(at(1000));
        assert!(window.reserve(count(5.0), 4, at(1000)));
        assert!(
            !window.reserve(count(5.0), 2, at(1000)),
            "what is reserved may refuse others: {window:?}"
        );
        window.release(4);
        assert_eq!(
            (window.sum(at(1000)), fill(&window, 5.0, 1000)),
            (0.0, 5),
            "{window:?}"
        );
    }
}

#[test]
fn the_time_to_try_again_is_exact() {
    // 3 at 10000, 4 at 10500, 3 at 11250 under a limit of 10, in 2 x 500 ms.
    for (counting, waits) in [
        // The 3 leave at 11500, the 4 at 12000, the last 3 at 12500.
        (
            Counting::Strict,
            [
                (1, Some(250)),
                (3, Some(250)),
                (4, Some(750)),
                (7, Some(750)),
                (8, Some(1250)),
                (10, Some(1250)),
                (11, None),
            ],
        ),
        (
            Counting::Sentinel,
            [
                (1, Some(0)),
                (3, Some(0)),
                (4, Some(250)),
                (7, Some(250)),
                (8, Some(750)),
                (10, Some(750)),
                (11, None),
            ],
        ),
        // Half of the 3 that leave count at 11250; at 11417, less than 1/2 of them; at 11500, all of the 4 that leave next.
        (
            Counting::Weighted,
            [
                (1, Some(0)),
                (2, Some(84)),
                (3, Some(250)),
                (4, Some(375)),
                (7, Some(750)),
                (8, Some(917)),
                (11, None),
            ],
        ),
    ] {
        let window = local(buckets(2, 500), counting);
        for (now, n) in [(10_000, 3), (10_500, 4), (11_250, 3)] {
            assert!(enter(&window, 10.0, n, now));
        }
        for (cost, wait) in waits {
            let answer = window.time_to_room(count(10.0), cost, at(11_250));
            assert_eq!(
                answer.map(|wait| wait.as_millis()),
                wait,
                "{cost}: {window:?}"
            );
        }
    }
}

#[test]
fn the_time_to_try_again_begins_at_the_instant_that_asks() {
    for counting in ALL {
        let window = local(buckets(2, 500), counting);
        assert_eq!(fill(&window, 3.0, 20_500), 3);
        let ahead = window.time_to_room(count(3.0), 1, at(20_500)).unwrap();
        let behind = window.time_to_room(count(3.0), 1, at(20_100)).unwrap();
        assert_eq!(
            (behind - ahead).as_millis(),
            400,
            "the clock has stepped back: {window:?}"
        );
    }
}

#[test]
fn the_time_until_quota_comes_back_is_that_of_the_next_bucket_that_leaves() {
    for (counting, now, wait) in [
        (Counting::Strict, 10_000, 1500),
        (Counting::Strict, 10_700, 800),
        (Counting::Sentinel, 10_700, 300),
        (Counting::Weighted, 10_700, 301), // the first millisecond of the bucket in which it leaves bit by bit
        (Counting::Weighted, 11_200, 1),
    ] {
        let window = local(buckets(2, 500), counting);
        assert_eq!(window.time_to_more(at(now)).as_millis(), 0, "none is used");
        assert!(enter(&window, 10.0, 3, 10_000));
        assert_eq!(
            window.time_to_more(at(now)).as_millis(),
            wait,
            "{now}: {window:?}"
        );
    }
}

#[test]
fn counts_may_wrap_around() {
    for counting in ALL {
        let counter = Shared::default();
        counter.reserved.set(u64::MAX - 3);
        counter.admitted.set(u64::MAX - 3);
        let kept = Snapshots {
            newest: at(0),
            counts: vec![u64::MAX - 3; 4],
        };
        let window = RuleWindow::new(buckets(2, 500), counting, counter, Past::Kept(kept));
        let plain = local(buckets(2, 500), counting);
        for now in (0..6000).step_by(100) {
            assert_eq!(
                fill(&window, 5.0, now),
                fill(&plain, 5.0, now),
                "{now}: {window:?}"
            );
            assert_eq!(window.sum(at(now)), plain.sum(at(now)), "{now}: {window:?}");
        }
    }
}

#[test]
fn a_window_that_cannot_count_lets_nothing_in() {
    let counter = Shared::default();
    counter.broken.set(true);
    let window = RuleWindow::new(
        buckets(2, 500),
        Counting::Strict,
        counter.clone(),
        Past::Fresh,
    );
    assert!(!enter(&window, 5.0, 1, 1000));
    assert_eq!((counter.reserved.get(), counter.admitted.get()), (0, 0));
    counter.broken.set(false);
    assert!(enter(&window, 5.0, 1, 1000), "and does again when it can");
}

#[test]
fn windows_over_the_same_counts_share_what_they_let_in() {
    for counting in ALL {
        let counter = Shared::default();
        let [one, other] = [(); 2]
            .map(|()| RuleWindow::new(buckets(10, 100), counting, counter.clone(), Past::Fresh));
        let mut admitted = Vec::new();
        for now in 1000..8000 {
            for window in [&one, &other] {
                admitted.extend(enter(window, 5.0, 1, now).then_some(now));
            }
        }
        let most = admitted
            .iter()
            .map(|from| {
                admitted
                    .iter()
                    .filter(|now| (*from..from + 1000).contains(now))
                    .count()
            })
            .max();
        assert_eq!(
            most,
            Some(if counting == Counting::Strict { 5 } else { 10 }.min(most.unwrap())),
            "{counting:?}: {admitted:?}"
        );
        assert!(admitted.len() >= 30, "{counting:?}: {admitted:?}");
        assert_eq!(
            (one.sum(at(7999)), one.sum(at(7999))),
            (other.sum(at(7999)), other.sum(at(7999)))
        );
    }
}

#[test]
fn a_window_that_has_not_looked_for_a_while_counts_too_much_and_never_too_little() {
    let counter = Shared::default();
    let [busy, idle] = [(); 2].map(|()| {
        RuleWindow::new(
            buckets(10, 100),
            Counting::Strict,
            counter.clone(),
            Past::Fresh,
        )
    });
    assert!(enter(&idle, 5.0, 1, 1000));
    assert_eq!(fill(&busy, 5.0, 1000), 4);
    assert_eq!(fill(&busy, 5.0, 3000), 5);
    // The idle window last knew of one pass: to it, the nine may have just been admitted.
    assert!(!enter(&idle, 5.0, 1, 4200), "{idle:?}");
    assert!(enter(&busy, 5.0, 1, 4200), "{busy:?}");
    assert!(!enter(&idle, 5.0, 1, 5299), "{idle:?}");
    assert!(enter(&idle, 5.0, 1, 5300), "{idle:?}");
}

#[test]
fn a_window_with_an_unknown_past_counts_all_of_it_as_used() {
    // Admissions from just before, in the bucket that had begun at 1000, are part of the unknown past.
    for (counting, first) in [
        (Counting::Strict, 2100),
        (Counting::Sentinel, 2000),
        (Counting::Weighted, 2100),
    ] {
        let counter = Shared::default();
        counter.reserved.set(700);
        counter.admitted.set(700);
        let window = RuleWindow::new(
            buckets(10, 100),
            counting,
            counter.clone(),
            Past::Unknown { admitted: 700 },
        );
        assert_eq!(
            (1050..4000).find(|now| enter(&window, 5.0, 1, *now)),
            Some(first),
            "{counting:?}: {window:?}"
        );
        assert_eq!(
            fill(&window, 5.0, first),
            4,
            "{counting:?}: all of it from then on, {window:?}"
        );
    }
}

#[test]
fn the_time_to_try_again_is_exact_where_the_past_is_unknown() {
    for counting in ALL {
        let window = RuleWindow::new(
            buckets(10, 100),
            counting,
            Shared::default(),
            Past::Unknown { admitted: 0 },
        );
        window.advance(at(1000));
        let wait = window
            .time_to_room(count(5.0), 1, at(1000))
            .unwrap()
            .as_millis() as u64;
        assert!(
            !enter(&window, 5.0, 1, 1000 + wait - 1),
            "{counting:?}: {window:?}"
        );
        assert!(
            enter(&window, 5.0, 1, 1000 + wait),
            "{counting:?}: {window:?}"
        );
    }
}

#[test]
fn a_window_goes_on_with_what_another_has_kept() {
    for counting in ALL {
        for later in [0, 50, 100, 450, 900, 1000, 1100, 5000] {
            let counter = Shared::default();
            let old = RuleWindow::new(buckets(10, 100), counting, counter.clone(), Past::Fresh);
            for now in (1000..2000).step_by(50) {
                enter(&old, 7.0, 1, now);
            }
            let kept = old.snapshots().unwrap();
            assert_eq!(
                (kept.newest, kept.counts.len(), kept.counts[0]),
                (at(1900), 12, counter.admitted.get())
            );
            let new = RuleWindow::new(buckets(10, 100), counting, counter, Past::Kept(kept));
            let now = 1950 + later;
            assert_eq!(
                new.sum(at(now)),
                old.sum(at(now)),
                "{now}: {old:?}, {new:?}"
            );
            new.observe();
            new.advance(at(now));
            old.advance(at(now));
            assert_eq!(new.snapshots(), old.snapshots(), "{now}");
            assert_eq!(
                fill(&new, 7.0, now),
                7 - old.sum(at(now)).ceil() as usize,
                "{now}: {old:?}, {new:?}"
            );
        }
    }
}

#[test]
fn a_window_takes_up_what_another_has_kept_also_where_the_clock_is_younger_than_the_window() {
    for counting in ALL {
        for begin in [0, 50, 250, 1000, 70_000] {
            let counter = Shared::default();
            let busy = RuleWindow::new(buckets(10, 100), counting, counter.clone(), Past::Fresh);
            let idle = RuleWindow::new(buckets(10, 100), counting, counter, Past::Fresh);
            idle.observe();
            idle.advance(at(begin));
            for now in (begin..begin + 700).step_by(30) {
                enter(&busy, 7.0, 1, now);
            }
            for now in (begin + 700..begin + 2500).step_by(90) {
                idle.observe();
                idle.advance(at(now));
                idle.take_up(&busy.snapshots().unwrap(), 0);
                assert_eq!(
                    idle.sum(at(now)),
                    busy.sum(at(now)),
                    "{now}: {busy:?}, {idle:?}"
                );
            }
        }
    }
}

#[test]
fn what_was_kept_of_fewer_buckets_counts_the_rest_as_used() {
    let counter = Shared::default();
    counter.reserved.set(9);
    counter.admitted.set(9);
    let kept = Snapshots {
        newest: at(1900),
        counts: vec![9, 9, 8],
    };
    let window = RuleWindow::new(
        buckets(10, 100),
        Counting::Strict,
        counter,
        Past::Kept(kept),
    );
    assert_eq!(
        (1900..4000).find(|now| enter(&window, 5.0, 1, *now)),
        Some(2800),
        "when bucket 1800 is the oldest: {window:?}"
    );
    assert_eq!(fill(&window, 5.0, 2800), 3, "{window:?}");
}

#[test]
fn a_window_that_has_not_begun_has_kept_nothing() {
    let window = local(buckets(10, 100), Counting::Strict);
    assert_eq!(window.snapshots(), None);
    assert_eq!(
        (window.sum(at(5000)), window.sum(Timestamp::ZERO)),
        (0.0, 0.0)
    );
    assert_eq!(
        format!("{window:?}"),
        "Strict window of 10 x 100ms: not begun"
    );
}

#[test]
fn a_count_that_falls_counts_the_whole_window_as_used() {
    for counting in ALL {
        for filled in [&[1000, 5000][..], &[6400], &[]] {
            let counter = Shared::default();
            let window = RuleWindow::new(buckets(10, 100), counting, counter.clone(), Past::Fresh);
            assert!(filled.iter().all(|now| fill(&window, 5.0, *now) == 5));
            counter.reserved.set(counter.reserved.get() + 3); // another's, which is seen and then reset with the rest
            counter.admitted.set(counter.admitted.get() + 3);
            enter(&window, 0.0, 1, 6450);
            counter.reserved.set(0);
            counter.admitted.set(0);
            let expected = if counting == Counting::Sentinel {
                7500
            } else {
                7600
            };
            let admitted = (6500..9000).find(|now| enter(&window, 5.0, 1, *now));
            assert_eq!(
                admitted,
                Some(expected),
                "{counting:?}, {filled:?}: {window:?}"
            );
        }
    }
}

/// The count is read, then the clock. The other way round, admissions in between would be dated before they happened.
#[test]
fn what_is_observed_is_filed_after_the_buckets_that_it_opens() {
    let counter = Shared::default();
    let window = RuleWindow::new(
        buckets(2, 100),
        Counting::Strict,
        counter.clone(),
        Past::Fresh,
    );
    window.advance(at(1000));
    counter.reserved.set(4);
    counter.admitted.set(4); // somebody else's, at some time from 1000 on
    window.observe();
    window.advance(at(1100));
    assert_eq!(
        window.snapshots().unwrap().counts,
        [4, 0, 0, 0],
        "{window:?}"
    );
    window.advance(at(1200));
    assert_eq!(
        window.snapshots().unwrap().counts,
        [4, 4, 0, 0],
        "{window:?}"
    );
}

#[test]
fn a_clock_that_steps_back_is_too_strict_for_a_moment_and_never_an_amnesty() {
    for counting in ALL {
        // Back by less than an interval: as if it stood still.
        let window = local(buckets(10, 100), counting);
        assert_eq!(fill(&window, 5.0, 20_500), 5);
        assert_eq!(
            [20_499, 20_000, 19_501].map(|now| fill(&window, 5.0, now)),
            [0; 3],
            "{window:?}"
        );
        assert_eq!(window.sum(at(19_501)), 5.0, "{window:?}");
        // By more: what counted, counts for one interval more.
        assert_eq!(fill(&window, 5.0, 350), 0, "{window:?}");
        assert_eq!(
            (window.sum(at(350)), window.sum(at(0))),
            (5.0, 5.0),
            "{window:?}"
        );
        let wait = window
            .time_to_room(count(5.0), 1, at(350))
            .unwrap()
            .as_millis() as u64;
        assert!((950..=1051).contains(&wait), "{wait} ms: {window:?}");
        assert!(!enter(&window, 5.0, 1, 350 + wait - 1), "{window:?}");
        assert!(enter(&window, 5.0, 1, 350 + wait), "{window:?}");
    }
}

#[test]
fn long_after_the_start_of_a_clock_that_has_stepped_back_to_it_only_the_window_counts() {
    for counting in ALL {
        let window = local(buckets(10, 100), counting);
        (0..50).for_each(|second| assert_eq!(fill(&window, 5.0, 100_000 + second * 2000), 5));
        enter(&window, 5.0, 1, 3);
        assert_eq!(
            window.sum(at(3)),
            5.0,
            "not all of the 250 that ever passed: {window:?}"
        );
    }
}

#[test]
fn a_window_that_leaps_over_buckets_decides_as_one_that_opens_each() {
    let mut random = fastrand::Rng::with_seed(16);
    for (counting, n) in ALL.into_iter().flat_map(|how| [1, 2, 5, 60].map(|n| (how, n))) {
        let shape = buckets(n, 10);
        let (leaping, slow) = (local(shape, counting), local(shape, counting));
        let (n, mut now, mut newest, mut refused) = (u64::from(n), 1_000_000, 1_000_000, 0);
        for _ in 0..3_000 {
            let leaps = [0, 0, 0, 1, n - 1, n, n + 1, 3 * n, 1_000_000];
            now = match random.usize(..leaps.len() + 2) {
                back if back == leaps.len() => now - random.u64(..n * 10),
                back if back > leaps.len() => now - n * 10 - random.u64(..n * 20),
                leap => now + leaps[leap] * 10 + random.u64(..10),
            };
            // The slow one sees every bucket that still counts, one after the other.
            let first = (now / 10).saturating_sub(n + 2).max(newest / 10 + 1);
            (first..now / 10).for_each(|bucket| slow.advance(at(bucket * 10)));
            newest = if newest > now && newest - now < n * 10 { newest } else { now };
            let cost = random.u64(..4);
            let passes = enter(&leaping, 4.0, cost, now);
            assert_eq!(enter(&slow, 4.0, cost, now), passes, "{leaping:?}\n{slow:?}");
            assert_eq!(leaping.snapshots(), slow.snapshots(), "at {now}");
            refused += u64::from(!passes);
        }
        assert!((200..2_800).contains(&refused), "{counting:?}, {n}: {refused}");
    }
}

#[test]
fn the_last_bucket_of_the_clock_ends_with_it() {
    for counting in ALL {
        let window = local(buckets(2, 500), counting);
        window.advance(Timestamp::MAX);
        assert!(window.reserve(count(5.0), 5, Timestamp::MAX));
        window.admit(5);
        window.advance(at(0));
        assert_eq!(window.snapshots().map(|kept| kept.newest), Some(at(0)));
        assert!(!window.has_room(count(5.0), 1, at(0)), "no amnesty: {window:?}");
    }
}

#[test]
fn a_window_draws_itself() {
    let window = local(buckets(3, 100), Counting::Strict);
    for (now, n) in [(1000, 2), (1100, 3), (1250, 1)] {
        assert!(enter(&window, 9.0, n, now));
    }
    assert_eq!(
        format!("{window:?}"),
        "Strict window of 3 x 100ms: [0, 0, 2, 5] at starts up to 1200, now 6"
    );
}
