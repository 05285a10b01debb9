//! The comparison is fair: each limiter decides as its definition says, which is written down here without any cleverness.

use leapgate::rule::Counting;

use crate::accuracy::{LIMIT, Traffic, Way, admitted, adversary, decide, worst_interval};
use crate::cases::{self, BUCKETS};
use crate::{Buckets, INTERVAL, Limiter, array, list, others};

const START: u64 = 7 * INTERVAL;

/// Requests in groups, at the edges of buckets and windows, and after gaps; never going back.
fn trace(random: &mut fastrand::Rng, length: u64) -> Vec<u64> {
    let mut now = START;
    let mut instants = Vec::new();
    for _ in 0..400 {
        now += match random.u8(0..8) {
            0 => 0,
            1 => random.u64(0..=length),
            2 => length - now % length,
            3 => length - now % length - 1,
            4 => INTERVAL - now % length,
            5 => INTERVAL - 1,
            6 => random.u64(0..3 * INTERVAL),
            _ => random.u64(0..=length / 10),
        };
        instants.extend(std::iter::repeat_n(now, random.usize(1..4)));
    }
    instants
}

/// Decides by the list of all admissions ever: `counts(then, now)` says how much of one counts, in parts of [`INTERVAL`].
fn naive(instants: &[u64], limit: u64, counts: impl Fn(u64, u64) -> u64) -> Vec<bool> {
    let mut passed: Vec<u64> = Vec::new();
    let decide = |now: &u64| {
        let sum: u64 = passed.iter().map(|then| counts(*then, *now)).sum();
        let passes = sum + INTERVAL <= limit * INTERVAL;
        if passes {
            passed.push(*now);
        }
        passes
    };
    instants.iter().map(decide).collect()
}

/// Calls `check` with random traces: the buckets, a limit and the instants.
fn on_traces(check: impl Fn(u32, u64, &[u64])) {
    for seed in 0..60 {
        let mut random = fastrand::Rng::with_seed(seed);
        let buckets = BUCKETS[random.usize(..BUCKETS.len())];
        let limit = random.u64(1..20);
        check(
            buckets,
            limit,
            &trace(&mut random, INTERVAL / u64::from(buckets)),
        );
    }
}

#[test]
fn arrays_and_lists_of_the_same_buckets_decide_alike_and_as_defined() {
    on_traces(|n, limit, instants| {
        for (buckets, counting) in [
            (Buckets::strict(n), Counting::Strict),
            (Buckets::sentinel(n), Counting::Sentinel),
        ] {
            let defined = naive(instants, limit, |then, now| {
                let age = now / buckets.length - then / buckets.length;
                u64::from(age < buckets.counting as u64) * INTERVAL
            });
            let ring = array::SummedRing::new(buckets.length, buckets.counting);
            let limiters: [(&str, Box<dyn Limiter>); 6] = [
                (
                    "leapgate's window",
                    Box::new(array::Leapgate::new(n, counting, limit).unwrap()),
                ),
                (
                    "running counts",
                    Box::new(array::RunningCounts::new(buckets, limit)),
                ),
                ("summed array", Box::new(array::Summed { ring, limit })),
                ("list", Box::new(list::Totalled::new(buckets, limit))),
                ("pooled list", Box::new(list::Pooled::new(buckets, limit))),
                ("summed list", Box::new(list::Summed::new(buckets, limit))),
            ];
            for (name, mut limiter) in limiters {
                let decided = decide(&mut *limiter, instants);
                assert!(decided.contains(&true) && decided.contains(&false));
                assert_eq!(decided, defined, "{name}, {n} buckets, {counting:?}");
            }
        }
    });
}

#[test]
fn the_log_is_exact() {
    on_traces(|_, limit, instants| {
        let defined = naive(instants, limit, |then, now| {
            u64::from(now - then < INTERVAL) * INTERVAL
        });
        let decided = decide(&mut others::Log::new(limit), instants);
        assert_eq!(decided, defined);
        assert!(worst_interval(&admitted(instants, &decided)) <= limit);
    });
}

#[test]
fn the_estimate_is_that_of_two_windows() {
    on_traces(|_, limit, instants| {
        let defined = naive(instants, limit, |then, now| {
            match now / INTERVAL - then / INTERVAL {
                0 => INTERVAL,
                1 => INTERVAL - now % INTERVAL,
                _ => 0,
            }
        });
        assert_eq!(
            decide(&mut others::TwoWindows::new(limit), instants),
            defined
        );
    });
}

#[test]
fn the_token_bucket_holds_the_limit_and_is_filled_by_it_in_an_interval() {
    on_traces(|_, limit, instants| {
        // In whole nanoseconds for a token, as the instant is kept.
        let per_token = INTERVAL / limit;
        let (mut level, mut last) = (limit * per_token, START);
        let decide_naively = |now: &u64| {
            level = (level + (now - last)).min(INTERVAL);
            last = *now;
            let passes = level >= per_token;
            if passes {
                level -= per_token;
            }
            passes
        };
        let defined: Vec<bool> = instants.iter().map(decide_naively).collect();
        assert_eq!(
            decide(&mut others::TokenBucket::new(limit), instants),
            defined
        );
    });
}

#[test]
fn the_worst_interval_is_half_open() {
    let at = |instants: &[u64]| worst_interval(instants);
    assert_eq!(at(&[]), 0);
    assert_eq!(at(&[5, 5 + INTERVAL]), 1);
    assert_eq!(at(&[5, 4 + INTERVAL, 4 + INTERVAL]), 3);
    assert_eq!(at(&[0, 5, 5, INTERVAL, INTERVAL + 4, 3 * INTERVAL]), 4);
}

#[test]
fn only_the_strict_window_and_the_log_hold_the_limit_against_the_adversary() {
    for way in Way::ALL {
        let worst = adversary(&|| way.limiter(20), 20).unwrap();
        match way {
            Way::Strict | Way::Log => assert_eq!(worst, LIMIT, "{way:?}"),
            _ => assert!(
                worst > LIMIT * 18 / 10 && worst <= 2 * LIMIT,
                "{way:?}: {worst}"
            ),
        }
    }
}

#[test]
fn the_strict_window_holds_the_limit_under_random_traffic() {
    for traffic in Traffic::ALL {
        let instants = traffic.instants(3);
        for buckets in BUCKETS {
            let mut limiter = Way::Strict.limiter(buckets).unwrap();
            let decisions = decide(&mut *limiter, &instants);
            let worst = worst_interval(&admitted(&instants, &decisions));
            assert!(worst <= LIMIT, "{traffic:?}, {buckets} buckets: {worst}");
        }
    }
}

#[test]
fn what_is_measured_is_what_is_meant() {
    for case in cases::all().iter().chain(&cases::held()) {
        let mut run = case.make().unwrap();
        for _ in 0..2 {
            run.prepare();
            let times = run.batch().unwrap_or(300);
            assert_eq!(run.run(times), times, "{}", case.name());
        }
    }
}
