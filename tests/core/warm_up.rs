//! Warming up: a cold rule admits a part of its count, and gets warm by being used.

use crate::support::{Workers, admitted, at, block, engine, pass, retry_ms, rule, rules};
use leapgate::rule::{Counting, FlowRule, MaxQueueing, Mode, WarmUp};
use leapgate::{Decision, Engine, Outcome, Request};
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

/// How many requests, one every few milliseconds, pass in each second.
fn per_second(engine: &Engine, seconds: std::ops::Range<u64>, every: usize) -> Vec<usize> {
    let in_second = |second: u64| {
        let instants = (second * 1000..second * 1000 + 1000).step_by(every);
        instants.map(|now| admitted(engine, &api(), 1, now)).sum()
    };
    seconds.map(in_second).collect()
}

// ---- Sentinel's examples ----

/// What Sentinel admits in each second.
#[test]
fn a_compatible_rule_in_full_use_gets_warm_as_sentinels() {
    let engine = engine([warming(10.0).sentinel()]);
    assert_eq!(
        per_second(&engine, 10_000..10_014, 10),
        [3, 3, 3, 3, 3, 4, 4, 4, 5, 5, 6, 7, 10, 10]
    );
}

/// Counted at each bucket instead of each second, as Sentinel does: the same curve, a little earlier.
#[test]
fn a_rule_in_full_use_gets_warm() {
    let engine = engine([warming(10.0)]);
    assert_eq!(
        per_second(&engine, 10_000..10_016, 10),
        [3, 3, 3, 3, 4, 4, 4, 5, 6, 7, 10, 10, 10, 10, 10, 10]
    );
}

/// A rule that has been in full use for 10 seconds is warm, a cold one is not.
#[test]
fn a_warm_rule_admits_its_count_and_a_cold_one_a_part() {
    for rule in [warming(10.0), warming(10.0).sentinel()] {
        let engine = engine([rule]);
        assert_eq!(admitted(&engine, &api(), 20, 100_000), 3);
        assert_eq!(per_second(&engine, 101..116, 10).pop(), Some(10));
    }
}

/// How many of 20 a second pass in 200 seconds.
fn in_200_s(rule: FlowRule) -> usize {
    let engine = engine([rule]);
    per_second(&engine, 10_000..10_200, 50).iter().sum()
}

/// Nothing passes of counts below the cold factor, which is 3.
#[test]
fn a_compatible_count_below_the_cold_factor_admits_nothing_as_sentinels() {
    for (count, there) in [(1.0, 0), (2.0, 0), (2.9, 0), (3.0, 574), (4.0, 761)] {
        let passed = in_200_s(warming(count).sentinel());
        assert_eq!(passed, there, "{count} a second");
    }
}

/// With a window of 1010 ms, 20 of 21 requests, one every 50 ms, pass.
#[test]
fn differs_from_sentinel_a_count_below_the_cold_factor_warms_up() {
    for (count, here) in [(1.0, 191), (2.0, 373), (2.9, 371), (3.0, 549), (4.0, 730)] {
        assert_eq!(in_200_s(warming(count)), here, "{count} a second");
    }
}

/// In Sentinel the first second of such a clock admits 10.
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

/// In Sentinel a rule whose tokens are exactly at the warning line gets none, and never gets cold.
#[test]
fn differs_from_sentinel_a_rule_at_the_line_gets_cold() {
    // Two tokens lie below the line: two seconds without a request bring just these.
    let rule = || rule("r", "api", 2.0).warm_up(warm_up(1, 2));
    let idle = |rule: FlowRule| {
        let engine = engine([rule]);
        per_second(&engine, 10_000..10_030, 10);
        // One request a second: it takes one and time brings two, up to the line.
        for second in 10_030..10_041 {
            let _ = admitted(&engine, &api(), 1, second * 1000);
        }
        admitted(&engine, &api(), 2, 10_200_000)
    };
    assert_eq!(idle(rule()), 1);
    assert_eq!(idle(rule().sentinel()), 2);
}

/// In Sentinel only what passes takes tokens, and less than the cold rate takes none that time does not bring back at once.
#[test]
fn differs_from_sentinel_held_back_requests_show_that_a_rule_is_used() {
    // A third of the count admits one of these in a second, and the count three.
    let of_the_last_ten_seconds = |rule: FlowRule| {
        let engine = engine([rule]);
        let instants = (0..600).map(|i| 10_000_000 + i * 100);
        let admitted = instants.map(|now| admitted(&engine, &api().cost(300), 1, now));
        admitted.skip(500).sum::<usize>()
    };
    assert_eq!(of_the_last_ten_seconds(warming(1000.0)), 27);
    assert_eq!(of_the_last_ten_seconds(warming(1000.0).sentinel()), 10);
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

/// Refused requests are use, too: for less than one interval after one, a rule gets no colder, however little has passed.
#[test]
fn a_rule_that_has_held_back_gets_no_colder_for_an_interval() {
    for (again, passes) in [(1999, 16), (2000, 1)] {
        let engine = engine([rule("r", "api", 1000.0).warm_up(warm_up(10, 3))]);
        drop(pass(&engine, &api().cost(332), 1000));
        drop(block(&engine, &api().cost(2), 1000));
        assert_eq!(admitted(&engine, &api(), 50, again), passes, "{again}");
    }
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
    let mut checked = 0;
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
                checked += 1;
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
    assert!(checked > 30, "{checked}");
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
    // A cold rule stays cold when its count changes.
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
fn a_warm_up_in_shadow_refuses_no_request() {
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

/// Tokens as in Sentinel's curve: a number, not a fraction of all.
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

    /// How long a request waits for its turn, in nanoseconds, if turns are taken until `free`, and how long its own is; `None`
    /// if it may not wait that long.
    fn queue(&mut self, now: u64, cost: u64, free: u64, most: u64) -> Option<(u64, u64)> {
        if cost == 0 {
            return Some((0, 0));
        }
        self.refill(now);
        let turn = (self.interval_ms * 1e6 * cost as f64 / self.rate()).ceil() as u64;
        let wait = free.saturating_sub(now * 1_000_000);
        let never = cost as f64 > self.count.max(1.0);
        if wait > 0 || never {
            self.held_back = Some(now);
        }
        if never || wait > most {
            return None;
        }
        self.passes.push((now, cost));
        if let Some((_, used)) = &mut self.counted {
            *used += cost;
        }
        Some((wait, turn))
    }
}

/// A rule that is to warm up, how, and both restated.
fn naive(random: &mut fastrand::Rng) -> (FlowRule, WarmUp, Naive) {
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
    let c = f64::from(cold);
    let intervals = f64::from(period) * 1000.0 / interval_ms as f64;
    let warning = intervals * count / (c - 1.0);
    let naive = Naive {
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
    (rule, warm_up(period, cold), naive)
}

/// A cost that is mostly one.
fn some_cost(random: &mut fastrand::Rng) -> u64 {
    match random.u8(0..10) {
        0 => random.u64(0..4),
        _ => 1,
    }
}

/// Tokens say how long a turn is, and turns lie one behind another.
#[test]
fn cold_turns_are_those_of_naive_tokens_in_a_naive_line() {
    let mut random = fastrand::Rng::with_seed(7);
    let (mut passed, mut waited, mut refused) = (0, 0, 0);
    for round in 0..200 {
        let (rule, warm_up, mut naive) = naive(&mut random);
        let queue = MaxQueueing::from_millis(random.choice([0, 50, 3000]).unwrap()).unwrap();
        let engine = engine([rule.warm_up_throttle(warm_up, queue)]);
        let (mut now, mut load, mut free) = (random.u64(0..5000), 1.0, 0);
        for step in 0..400 {
            if random.u8(0..100) == 0 {
                load = random.choice([0.05, 0.3, 1.0, 3.0]).unwrap();
            }
            now += random.u64(0..2 + (2.0 * naive.interval_ms / (naive.count * load)) as u64);
            let cost = some_cost(&mut random);
            let expected = naive.queue(now, cost, free, queue.as_millis() * 1_000_000);
            let is = match engine.enter(&api().cost(cost as u32), at(now)) {
                Decision::Pass(entry) => Some((0, entry)),
                Decision::Wait(wait, entry) => Some((wait.as_nanos() as u64, entry)),
                Decision::Block(_) => None,
            };
            let what = || format!("round {round}, step {step}: {cost} at {now}, {expected:?}");
            match (is, expected) {
                (None, None) => refused += 1,
                // A fraction of all tokens and a number of tokens may differ in the last place.
                (Some((wait, entry)), Some((naive, turn))) if wait.abs_diff(naive) <= 2 => {
                    entry.exit(Outcome::Success, at(now));
                    free = free.max(now * 1_000_000 + wait + turn);
                    if wait == 0 { passed += 1 } else { waited += 1 }
                }
                (is, _) => panic!("{is:?}: {}", what()),
            }
        }
    }
    assert!(
        passed.min(waited).min(refused) > 5000,
        "{passed} passed, {waited} waited, {refused} refused"
    );
}

#[test]
fn warming_up_is_that_of_naive_tokens() {
    let mut random = fastrand::Rng::with_seed(6);
    let (mut passed, mut refused) = (0, 0);
    for round in 0..200 {
        let (rule, warm_up, mut naive) = naive(&mut random);
        let engine = engine([rule.warm_up(warm_up)]);
        let mut now = random.u64(0..5000);
        let mut load = 1.0;
        for step in 0..600 {
            if random.u8(0..100) == 0 {
                load = random.choice([0.05, 0.3, 1.0, 3.0]).unwrap();
            }
            now += random.u64(0..2 + (2.0 * naive.interval_ms / (naive.count * load)) as u64);
            let cost = some_cost(&mut random);
            let expected = naive.enter(now, cost);
            let is = admitted(&engine, &api().cost(cost as u32), 1, now) == 1;
            assert_eq!(
                is, expected,
                "round {round}, step {step}: {cost} of {} at {now}",
                naive.count
            );
            if is { passed += 1 } else { refused += 1 }
        }
    }
    assert!(
        passed > 10_000 && refused > 10_000,
        "{passed} passed, {refused} refused"
    );
}

// ---- several workers ----

/// How many of `tries` at `now` the worker admits.
fn shared(worker: &Engine<Workers>, tries: usize, now: u64) -> usize {
    let api = worker.resource("api");
    let enter = |_: &usize| {
        api.observe();
        let request = Request::new("");
        matches!(
            worker.enter_resource(&api, &request, at(now)),
            Decision::Pass(_)
        )
    };
    (0..tries).filter(enter).count()
}

/// Ticks: windows are brought up to date without a request.
fn tick(workers: &[Engine<Workers>], now: u64) {
    for worker in workers {
        worker.store().for_each_state(0, 99, |state| {
            state.observe();
            state.advance(at(now));
        });
    }
}

/// However requests are spread, four workers admit in each second as much as one would, but for requests between two ticks.
#[test]
fn workers_get_warm_together_as_one_does() {
    for rule in [warming(90.0), warming(90.0).sentinel()] {
        let alone = engine([rule.clone()]);
        let expected = per_second(&alone, 10..26, 5);
        let process = Workers::default();
        let workers = [0; 4].map(|_| process.engine([rule.clone()]));
        let mut random = fastrand::Rng::with_seed(2);
        let in_second = |second: u64| -> usize {
            let instants = (second * 1000..second * 1000 + 1000).step_by(5);
            let passes = instants.map(|now| {
                tick(&workers, now);
                // Mostly the first: the others sleep.
                let i = if random.u8(0..8) == 0 {
                    random.usize(0..4)
                } else {
                    0
                };
                shared(&workers[i], 1, now)
            });
            passes.sum()
        };
        let passes: Vec<usize> = (10..26).map(in_second).collect();
        for (second, (passes, expected)) in passes.iter().zip(&expected).enumerate() {
            assert!(
                passes.abs_diff(*expected) <= 2,
                "second {second}: {passes} instead of {expected}"
            );
        }
    }
}

/// A worker that was warm, and has slept while the others got cold, does not wake warm when they have begun again.
#[test]
fn a_worker_that_has_slept_is_as_cold_as_the_others() {
    for rule in [warming(90.0), warming(90.0).sentinel()] {
        let process = Workers::default();
        let workers = [0; 2].map(|_| process.engine([rule.clone()]));
        for now in (10_000..40_000).step_by(5) {
            for worker in &workers {
                shared(worker, 1, now);
            }
        }
        for now in (40_000..200_000).step_by(100) {
            tick(&workers, now);
        }
        let all = |first: usize, now| {
            tick(&workers, now);
            shared(&workers[first], 200, now) + shared(&workers[1 - first], 200, now)
        };
        assert!((30..=31).contains(&all(0, 200_000)));
        tick(&workers, 200_600);
        assert!(shared(&workers[1], 200, 200_600) <= 1, "{rule:?}");
    }
}

#[test]
fn a_worker_that_is_born_late_is_as_warm_as_the_others() {
    for rule in [warming(90.0), warming(90.0).sentinel()] {
        let at_the_end = |is_late: bool| {
            let process = Workers::default();
            let old = process.engine([rule.clone()]);
            for now in (10_000..40_000).step_by(5) {
                shared(&old, 1, now);
            }
            let worker = if is_late {
                process.engine([rule.clone()])
            } else {
                old
            };
            // The window of a new worker counts earlier admissions as just made.
            for now in (40_000..42_000).step_by(100) {
                tick(std::slice::from_ref(&worker), now);
            }
            shared(&worker, 200, 42_000)
        };
        let (old, young) = (at_the_end(false), at_the_end(true));
        assert!(
            old > 40 && old.abs_diff(young) <= 2,
            "{young} instead of {old}"
        );
    }
}

/// A value that is not a fraction of all tokens, or lies ahead, was not published by a worker with the same clock.
#[test]
fn nonsense_about_warmth_is_not_believed() {
    for coldness in [f64::NAN, -1.0, 2.0, f64::INFINITY] {
        let process = Workers::default();
        let worker = process.engine([warming(90.0)]);
        worker.store().for_each_state(0, 9, |state| {
            state
                .counter()
                .warmth
                .set(Some([coldness.to_bits(), 1, 0, 0]))
        });
        assert_eq!(shared(&worker, 200, 10_000), 30);
    }
    // Another worker has counted passes that are not known here yet: that does not make the rule warm.
    let process = Workers::default();
    let worker = process.engine([warming(90.0)]);
    let published = [1.0_f64.to_bits(), at(9990).as_nanos(), 1000, 0];
    worker
        .store()
        .for_each_state(0, 9, |state| state.counter().warmth.set(Some(published)));
    assert_eq!(shared(&worker, 200, 10_000), 30);
    let process = Workers::default();
    let worker = process.engine([warming(90.0)]);
    let ahead = at(20_000).as_nanos();
    worker.store().for_each_state(0, 9, |state| {
        state.counter().warmth.set(Some([0, ahead, 0, 0]))
    });
    assert_eq!(shared(&worker, 200, 10_000), 30);
}
