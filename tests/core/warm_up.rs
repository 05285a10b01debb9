//! Warming up: a cold rule admits a part of its count, and gets warm by being used.

use crate::support::{admitted, at, block, engine, pass, retry_ms, rule, rules};
use leapgate::{Counting, Decision, Engine, FlowRule, MaxQueueing, Mode, Outcome, Request, WarmUp};
use std::time::Duration;

fn warm_up(period_sec: u32, cold_factor: u32) -> WarmUp {
    WarmUp::new(period_sec, cold_factor).unwrap()
}

/// `count` a second; from a third of it in ten seconds.
fn warming(count: f64) -> FlowRule {
    rule("r", "api", count).warm_up(warm_up(10, 3))
}

fn api<'a>() -> Request<'a> {
    Request::new("api")
}

/// How many of those pass in each second that come every few milliseconds.
fn per_second(engine: &Engine, seconds: std::ops::Range<u64>, every: usize) -> Vec<usize> {
    let in_second = |second: u64| {
        let instants = (second * 1000..second * 1000 + 1000).step_by(every);
        instants.map(|now| admitted(engine, &api(), 1, now)).sum()
    };
    seconds.map(in_second).collect()
}

// ---- Sentinel's examples ----

/// Example 41: what Sentinel admits in each second.
#[test]
fn example_41_a_compatible_rule_in_full_use_gets_warm_as_sentinels() {
    let engine = engine([warming(10.0).sentinel()]);
    assert_eq!(
        per_second(&engine, 10_000..10_014, 10),
        [3, 3, 3, 3, 3, 4, 4, 4, 5, 5, 6, 7, 10, 10]
    );
}

/// Example 41, counted at each bucket instead of each second: the same curve, a little earlier.
#[test]
fn example_41_a_rule_in_full_use_gets_warm() {
    let engine = engine([warming(10.0)]);
    assert_eq!(
        per_second(&engine, 10_000..10_016, 10),
        [3, 3, 3, 3, 4, 4, 4, 5, 6, 7, 10, 10, 10, 10, 10, 10]
    );
}

/// Example 40, with what came before it: a rule that has been in full use for 10 seconds is warm, a cold one is not.
#[test]
fn example_40_a_warm_rule_admits_its_count_and_a_cold_one_a_part() {
    for rule in [warming(10.0), warming(10.0).sentinel()] {
        let engine = engine([rule]);
        assert_eq!(admitted(&engine, &api(), 20, 100_000), 3);
        assert_eq!(per_second(&engine, 101..116, 10).pop(), Some(10));
    }
}

/// Example 42: in Sentinel nothing passes in 200 seconds of counts below the cold factor. (Requests come 20 times a second,
/// so that a window of 1010 ms makes it 20 in 21.)
#[test]
fn differs_from_sentinel_a_count_below_the_cold_factor_warms_up() {
    let in_200_s = |rule: FlowRule| {
        let engine = engine([rule]);
        let admitted = per_second(&engine, 10_000..10_200, 50);
        admitted.iter().sum::<usize>()
    };
    for (count, here, there) in [
        (1.0, 191, 0),
        (2.0, 373, 0),
        (2.9, 371, 0),
        (3.0, 549, 574),
        (4.0, 730, 761),
    ] {
        let (is_here, is_there) = (
            in_200_s(warming(count)),
            in_200_s(warming(count).sentinel()),
        );
        assert_eq!((is_here, is_there), (here, there), "{count} a second");
    }
}

/// The other half of example 42: there the first second of such a clock admits 10.
#[test]
fn differs_from_sentinel_a_clock_that_starts_at_zero_starts_cold() {
    for rule in [warming(10.0), warming(10.0).sentinel()] {
        let engine = engine([rule]);
        assert_eq!(per_second(&engine, 0..4, 10), [3; 4]);
    }
}

/// Sentinel takes the next number up: a third of 117 is else less than 39.
#[test]
fn a_rate_that_is_a_whole_number_is_not_cut() {
    for (count, cold) in [(117.0, 39), (159.0, 53), (234.0, 78)] {
        for rule in [warming(count), warming(count).sentinel()] {
            assert_eq!(admitted(&engine([rule]), &api(), 200, 10_000), cold);
        }
    }
}

// ---- what is mended ----

/// In Sentinel ten seconds bring ten seconds' tokens, and take one second's passes.
#[test]
fn differs_from_sentinel_what_was_used_is_taken_as_what_time_brings() {
    let after_a_burst = |rule: FlowRule| {
        let engine = engine([rule]);
        per_second(&engine, 10_000..10_015, 10);
        // Warm, and in full use in one second of two: five a second.
        for second in (10_016..10_056).step_by(2) {
            per_second(&engine, second..second + 1, 10);
        }
        per_second(&engine, 10_056..10_057, 10)
    };
    assert_eq!(after_a_burst(warming(10.0)), [10]);
    assert_eq!(after_a_burst(warming(10.0).sentinel()), [3]);
}

/// In Sentinel a rule whose tokens come to stand exactly at the line gets none, and never gets cold.
#[test]
fn differs_from_sentinel_a_rule_at_the_line_gets_cold() {
    // Two tokens lie below the line: two seconds without a request bring them, and no more than those.
    let rule = || rule("r", "api", 2.0).warm_up(warm_up(1, 2));
    let idle = |rule: FlowRule| {
        let engine = engine([rule]);
        per_second(&engine, 10_000..10_030, 10);
        // One request a second: it takes one and time brings two, up to the line.
        for second in 10_030..10_040 {
            let _ = admitted(&engine, &api(), 1, second * 1000);
        }
        admitted(&engine, &api(), 2, 10_200_000)
    };
    assert_eq!(idle(rule()), 1);
    assert!(idle(rule().sentinel()) <= 2);
}

/// In Sentinel no token can lie above the line of such a rule, and the rate is not a number.
#[test]
fn differs_from_sentinel_a_short_warm_up_is_a_number() {
    let short = || rule("r", "api", 1.0).warm_up(warm_up(1, 3));
    assert_eq!(admitted(&engine([short()]), &api(), 2, 10_000), 1);
    let there = engine([short().sentinel()]);
    assert_eq!(admitted(&there, &api(), 2, 10_000), 0);
    assert_eq!(block(&there, &api(), 10_000).retry_after(), None);
}

// ---- claims ----

#[test]
fn a_count_of_zero_lets_nothing_pass() {
    for rule in [warming(0.0), warming(0.0).sentinel()] {
        let engine = engine([rule]);
        assert_eq!(block(&engine, &api(), 10_000).retry_after(), None);
    }
    drop(pass(&engine([warming(0.0)]), &api().cost(0), 10_000));
}

#[test]
fn a_rule_gets_cold_in_as_long_as_it_takes_to_get_warm() {
    for (idle_ms, expected) in [
        (2000, 30),
        (4900, 30),
        (7500, 15),
        (10_000, 10),
        (60_000, 10),
    ] {
        let engine = engine([warming(30.0)]);
        per_second(&engine, 0..30, 10);
        assert_eq!(
            admitted(&engine, &api(), 40, 29_990 + idle_ms),
            expected,
            "after {idle_ms} ms"
        );
    }
}

#[test]
fn a_rule_that_is_used_more_than_a_cold_one_would_be_stays_warm() {
    let engine = engine([warming(30.0)]);
    per_second(&engine, 0..30, 10);
    // 20 a second: less than its count, more than a third of it.
    per_second(&engine, 30..200, 50);
    let full = per_second(&engine, 200..201, 10);
    assert!(full >= vec![29], "{full:?}");
    // 5 a second.
    per_second(&engine, 203..240, 200);
    assert_eq!(admitted(&engine, &api(), 40, 241_500), 10);
}

#[test]
fn into_an_empty_window_one_passes_whatever_part_of_the_count_it_costs() {
    let engine = engine([warming(30.0)]);
    drop(block(&engine, &api().cost(31), 0));
    drop(pass(&engine, &api().cost(30), 0));
    let blocked = block(&engine, &api().cost(30), 0);
    assert_eq!(retry_ms(&blocked), Some(1010));
    drop(block(&engine, &api().cost(30), 1009));
    drop(pass(&engine, &api().cost(30), 1010));
}

#[test]
fn any_window_warms_up() {
    for (interval_ms, samples, counting) in [
        (60_000, Some(60), Counting::Strict),
        (60_000, Some(6), Counting::Weighted),
        (100, Some(1), Counting::Strict),
        (10_000, None, Counting::Sentinel),
    ] {
        let rule = rule("r", "api", 90.0).per(interval_ms, samples).unwrap();
        let period = 10 * interval_ms.div_ceil(1000) as u32;
        let engine = engine([rule.counting(counting).warm_up(warm_up(period, 3))]);
        let of = |from: u64| {
            let span = from..from + 2 * interval_ms;
            let step = (interval_ms / 200).max(1) as usize;
            let passes: usize = span
                .step_by(step)
                .map(|now| admitted(&engine, &api(), 2, now))
                .sum();
            passes as u64 / 2
        };
        let cold = of(0);
        let pairs = 3 * u64::from(period) * 1000 / (2 * interval_ms);
        let passes: Vec<u64> = (1..pairs).map(|pair| of(pair * 2 * interval_ms)).collect();
        let warm = passes[passes.len() - 1];
        assert!(
            (14..=38).contains(&cold),
            "{interval_ms} ms, {samples:?}: {cold} when cold"
        );
        assert!(
            (44..=95).contains(&warm),
            "{interval_ms} ms, {samples:?}: {warm} when warm"
        );
        assert!(warm > 2 * cold);
    }
}

#[test]
fn the_time_to_try_again_is_exact() {
    let mut random = fastrand::Rng::with_seed(5);
    let mut told = 0;
    for round in 0..120 {
        let count = f64::from(random.u32(1..80)) / 2.0;
        let rule = rule("r", "api", count)
            .per(
                1000,
                random.choice([Some(1), Some(4), Some(20), None]).unwrap(),
            )
            .unwrap()
            .counting(
                random
                    .choice([Counting::Strict, Counting::Sentinel, Counting::Weighted])
                    .unwrap(),
            )
            .warm_up(warm_up(random.u32(1..10), random.u32(2..6)));
        let rule = if random.bool() { rule.sentinel() } else { rule };
        let (seed, steps) = (random.u64(..), random.usize(1..400));
        let history = || {
            let mut random = fastrand::Rng::with_seed(seed);
            let (engine, mut now) = (engine([rule.clone()]), 100_000);
            for _ in 0..steps {
                now += random.u64(0..2000 / (1 + count as u64));
                let _ = admitted(&engine, &api(), 1, now);
            }
            (engine, now + random.u64(0..100), random.u32(1..3))
        };
        let (engine, now, cost) = history();
        let Decision::Block(blocked) = engine.enter(&api().cost(cost), at(now)) else {
            continue;
        };
        let lets_in = |then| {
            let (engine, now, _) = history();
            drop(block(&engine, &api().cost(cost), now));
            admitted(&engine, &api().cost(cost), 1, then) == 1
        };
        match retry_ms(&blocked) {
            Some(wait) => {
                told += 1;
                assert!(lets_in(now + wait), "round {round}: {rule:?}, in {wait} ms");
                assert!(
                    wait == 0 || !lets_in(now + wait - 1),
                    "round {round}: {rule:?}, {wait}"
                );
            }
            None => assert!(
                (0..3000).step_by(7).all(|wait| !lets_in(now + wait)),
                "round {round}: {rule:?}"
            ),
        }
    }
    assert!(told > 30, "{told}");
}

#[test]
fn a_clock_that_steps_back_neither_warms_nor_cools_for_ever() {
    for rule in [warming(30.0), warming(30.0).sentinel()] {
        let engine = engine([rule]);
        per_second(&engine, 1000..1030, 10);
        // Back: it goes on from there, as warm as it was.
        let _ = admitted(&engine, &api(), 1, 500_000);
        let full = per_second(&engine, 502..505, 10);
        assert!(full[2] >= 20, "{full:?}");
        // And gets cold there.
        assert_eq!(admitted(&engine, &api(), 40, 560_000), 10);
    }
}

#[test]
fn differs_from_sentinel_a_reload_keeps_how_warm_a_rule_is() {
    let engine = engine([warming(30.0)]);
    per_second(&engine, 0..30, 10);
    engine.replace(rules([warming(300.0)])).unwrap();
    let warm = admitted(&engine, &api(), 400, 32_000);
    assert!(warm > 290, "{warm}");
    // A cold rule stays cold, whatever its count becomes.
    let engine = crate::support::engine([warming(30.0)]);
    drop(pass(&engine, &api(), 0));
    engine.replace(rules([warming(300.0)])).unwrap();
    assert_eq!(admitted(&engine, &api(), 400, 2000), 100);
    let longer = rule("r", "api", 300.0).warm_up(warm_up(100, 3));
    engine.replace(rules([longer])).unwrap();
    assert!((100..=102).contains(&admitted(&engine, &api(), 400, 5000)));

    let engine = crate::support::engine([warming(30.0).sentinel()]);
    per_second(&engine, 100..130, 10);
    engine.replace(rules([warming(300.0).sentinel()])).unwrap();
    let full = per_second(&engine, 130..133, 2);
    assert!(full[2] > 200, "{full:?}");
}

#[test]
fn a_warm_up_in_shadow_refuses_nobody() {
    let engine = engine([warming(30.0).in_mode(Mode::Shadow)]);
    assert_eq!(admitted(&engine, &api(), 50, 0), 50);
    engine.store().for_each_state(0, 1, |state| {
        assert_eq!((state.passed(), state.shadow_blocked()), (10, 40));
    });
}

#[test]
fn a_cold_throttle_paces_slower() {
    let queue = MaxQueueing::from_millis(0).unwrap();
    let engine = engine([rule("r", "api", 10.0).warm_up_throttle(warm_up(10, 3), queue)]);
    drop(pass(&engine, &api(), 0));
    assert_eq!(retry_ms(&block(&engine, &api(), 0)), Some(300));
    drop(block(&engine, &api(), 299));
    drop(pass(&engine, &api(), 300));
    let seconds = per_second(&engine, 1..16, 10);
    assert_eq!(seconds[..3], [4, 4, 3]);
    assert!(seconds.is_sorted_by(|a, b| *a <= b + 1), "{seconds:?}");
    assert!((9..=10).contains(&seconds[14]), "{seconds:?}");
    // It gets cold again.
    drop(pass(&engine, &api(), 60_000));
    assert_eq!(retry_ms(&block(&engine, &api(), 60_000)), Some(300));
}

#[test]
fn a_cold_throttle_below_one_a_second_passes() {
    let queue = MaxQueueing::from_millis(100_000).unwrap();
    let engine = engine([rule("r", "api", 0.5).warm_up_throttle(warm_up(10, 4), queue)]);
    drop(pass(&engine, &api(), 0));
    let Decision::Wait(wait, entry) = engine.enter(&api(), at(0)) else {
        panic!()
    };
    assert_eq!(wait, Duration::from_secs(8));
    entry.exit(Outcome::Success, at(0));
}

// ---- a naive restatement ----

/// Tokens, as the curve is told in Sentinel: counted, not as a part of all.
struct Naive {
    count: f64,
    interval_ms: f64,
    bucket_ms: u64,
    buckets: u64,
    cold_factor: f64,
    warning: f64,
    max: f64,
    tokens: f64,
    /// The bucket in which they were counted, and the passes since.
    counted: Option<(u64, u64)>,
    /// When, and how much.
    passes: Vec<(u64, u64)>,
    held_back: Option<u64>,
}

impl Naive {
    fn sum(&self, now: u64) -> u64 {
        let counts = |at: u64| at / self.bucket_ms + self.buckets >= now / self.bucket_ms;
        let counting = self.passes.iter().filter(|(at, _)| counts(*at));
        counting.map(|(_, cost)| cost).sum()
    }

    fn rate(&self) -> f64 {
        let part = (self.tokens - self.warning) / (self.max - self.warning);
        self.count / (1.0 + (self.cold_factor - 1.0) * part.max(0.0))
    }

    fn refill(&mut self, now: u64) {
        let bucket = now / self.bucket_ms;
        let Some((counted, used)) = self.counted else {
            (self.tokens, self.counted) = (self.max, Some((bucket, 0)));
            return;
        };
        if counted == bucket {
            return;
        }
        let cold = (self.count / self.cold_factor).floor().max(1.0);
        let held_back = self
            .held_back
            .is_some_and(|then| ((now - then) as f64) < self.interval_ms);
        let sum = self.sum(now) as f64;
        self.tokens = (self.tokens - used as f64).max(0.0);
        let most = if held_back {
            self.tokens
        } else if sum < cold {
            self.max
        } else {
            self.tokens.max(self.warning)
        };
        let elapsed_ms = ((bucket - counted) * self.bucket_ms) as f64;
        self.tokens = (self.tokens + elapsed_ms * self.count / self.interval_ms).min(most);
        self.counted = Some((bucket, 0));
    }

    fn enter(&mut self, now: u64, cost: u64) -> bool {
        self.refill(now);
        let sum = self.sum(now);
        let fits = cost == 0
            || (sum + cost) as f64 <= self.rate()
            || sum == 0 && cost as f64 <= self.count;
        if fits {
            self.passes.push((now, cost));
            if let Some((_, used)) = &mut self.counted {
                *used += cost;
            }
        } else {
            self.held_back = Some(now);
        }
        fits
    }
}

#[test]
fn warming_up_is_that_of_naive_tokens() {
    let mut random = fastrand::Rng::with_seed(6);
    let (mut passed, mut refused) = (0, 0);
    for round in 0..200 {
        let (count, period, cold) = (
            f64::from(random.u32(2..300)) / 4.0 + 0.13,
            random.u32(1..20),
            random.u32(2..7),
        );
        let (buckets, bucket_ms) = random
            .choice([(100, 10), (10, 100), (1, 1000), (20, 500), (4, 50)])
            .unwrap();
        let interval_ms = buckets * bucket_ms;
        let rule = rule("r", "api", count)
            .per(interval_ms, Some(buckets as u32))
            .unwrap();
        let engine = engine([rule.warm_up(warm_up(period, cold))]);
        let c = f64::from(cold);
        let intervals = f64::from(period) * 1000.0 / interval_ms as f64;
        let warning = intervals * count / (c - 1.0);
        let mut naive = Naive {
            count,
            interval_ms: interval_ms as f64,
            bucket_ms,
            buckets,
            cold_factor: c,
            warning,
            max: warning + 2.0 * intervals * count / (1.0 + c),
            tokens: 0.0,
            counted: None,
            passes: Vec::new(),
            held_back: None,
        };
        let mut now = random.u64(0..5000);
        let mut load = 1.0;
        for step in 0..600 {
            if random.u8(0..100) == 0 {
                load = random.choice([0.05, 0.3, 1.0, 3.0]).unwrap();
            }
            now += random.u64(0..2 + (2.0 * interval_ms as f64 / (count * load)) as u64);
            let cost = if random.u8(0..10) == 0 {
                random.u64(0..4)
            } else {
                1
            };
            let expected = naive.enter(now, cost);
            let is = admitted(&engine, &api().cost(cost as u32), 1, now) == 1;
            assert_eq!(
                is, expected,
                "round {round}, step {step}: {cost} of {count} at {now}"
            );
            if is { passed += 1 } else { refused += 1 }
        }
    }
    assert!(
        passed > 10_000 && refused > 10_000,
        "{passed} passed, {refused} refused"
    );
}
