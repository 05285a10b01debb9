//! Throttles: turns, queues, rates of any kind, and what is given back.

use crate::support::{admitted, at, block, engine, pass, retry_ms, rule, rules, wait};
use leapgate::rule::{FlowRule, LimitApp, MaxQueueing, Mode, WarmUp};
use leapgate::{Decision, Engine, Outcome, Request, Timestamp};
use std::time::Duration;

fn queue(millis: u64) -> MaxQueueing {
    MaxQueueing::from_millis(millis).unwrap()
}

/// `count` a second, one by one; a request that would wait for longer than `max_queueing_ms` is refused.
fn throttle(count: f64, max_queueing_ms: u64) -> FlowRule {
    rule("even", "mail", count).throttle(queue(max_queueing_ms))
}

fn mail<'a>() -> Request<'a> {
    Request::new("mail")
}

/// The decision about a request: its wait in nanoseconds, or `None` if it is refused.
fn asked(engine: &Engine, request: &Request<'_>, now: Timestamp) -> Option<u64> {
    match engine.enter(request, now) {
        Decision::Pass(entry) => {
            entry.exit(Outcome::Success, now);
            Some(0)
        }
        Decision::Wait(wait, entry) => {
            entry.exit(Outcome::Success, now);
            Some(wait.as_nanos() as u64)
        }
        Decision::Block(_) => None,
    }
}

// ---- Sentinel's examples ----

#[test]
fn requests_at_once_pass_a_tenth_of_a_second_apart_until_the_queue_is_full() {
    for rule in [throttle(10.0, 500), throttle(10.0, 500).sentinel()] {
        let engine = engine([rule]);
        drop(pass(&engine, &mail(), 10_000));
        for waits in [100, 200, 300, 400, 500] {
            wait(&engine, &mail(), 10_000, waits).exit(Outcome::Success, at(10_000));
        }
        for _ in 0..2 {
            assert_eq!(retry_ms(&block(&engine, &mail(), 10_000)), Some(100));
        }
    }
}

#[test]
fn a_count_of_zero_lets_nothing_pass_that_costs_anything() {
    for rule in [throttle(0.0, 500), throttle(0.0, 500).sentinel()] {
        let engine = engine([rule]);
        assert_eq!(block(&engine, &mail(), 10_000).retry_after(), None);
        drop(pass(&engine, &mail().cost(0), 10_000));
    }
}

/// In Sentinel it is a division by zero.
#[test]
fn differs_from_sentinel_a_throttle_below_one_half_paces() {
    for rule in [throttle(0.2, 10_000), throttle(0.2, 10_000).sentinel()] {
        let engine = engine([rule]);
        drop(pass(&engine, &mail(), 10_000));
        wait(&engine, &mail(), 10_000, 5000).exit(Outcome::Success, at(10_000));
        wait(&engine, &mail(), 10_000, 10_000).exit(Outcome::Success, at(10_000));
        assert_eq!(retry_ms(&block(&engine, &mail(), 10_000)), Some(5000));
    }
}

/// The wart: in Sentinel and in sentinel-golang a request pays before it passes, so that a batch of 50 which finds the pacer
/// idle delays no later request: there one of them passes after 2010 ms, or ten queue; here none passes before the batch is
/// paid.
#[test]
fn a_batch_that_finds_the_line_idle_makes_those_behind_it_wait_until_it_is_paid() {
    let per_10_s = |queue| throttle(50.0, queue).per(10_000, None).unwrap();
    let idle = engine([per_10_s(0)]);
    assert_eq!(block(&idle, &mail().cost(51), 0).retry_after(), None);
    drop(pass(&idle, &mail().cost(50), 0));
    assert_eq!(admitted(&idle, &mail(), 10, 0), 0);
    assert_eq!(retry_ms(&block(&idle, &mail(), 2010)), Some(7990));
    drop(pass(&idle, &mail(), 10_000));
    drop(block(&idle, &mail(), 10_000));

    let queueing = engine([per_10_s(2000)]);
    assert_eq!(block(&queueing, &mail().cost(51), 0).retry_after(), None);
    drop(pass(&queueing, &mail().cost(50), 0));
    assert_eq!(retry_ms(&block(&queueing, &mail(), 0)), Some(8000));
    drop(pass(&queueing, &mail(), 10_000));
    for waits in (200..=2000).step_by(200) {
        wait(&queueing, &mail(), 10_000, waits).exit(Outcome::Success, at(10_000));
    }
    drop(block(&queueing, &mail(), 10_000));
}

#[test]
fn differs_from_sentinel_a_batch_costs_later_requests() {
    let here = engine([throttle(50.0, 0)]);
    drop(pass(&here, &mail().cost(50), 10_000));
    assert_eq!(retry_ms(&block(&here, &mail(), 10_000)), Some(1000));
    assert_eq!(block(&here, &mail().cost(51), 11_000).retry_after(), None);
    drop(pass(&here, &mail(), 11_000));

    // In Sentinel the first request pays nothing and delays no later one, and a batch may cost more than the count.
    let sentinel = engine([throttle(5.0, 0).sentinel()]);
    drop(pass(&sentinel, &mail().cost(50), 10_000));
    assert_eq!(retry_ms(&block(&sentinel, &mail(), 10_000)), Some(200));
    drop(pass(&sentinel, &mail(), 10_200));
}

#[test]
fn a_cold_pace_is_that_of_full_use_when_it_is_warm() {
    let warm_up = WarmUp::new(10, 3).unwrap();
    let paced = |queue_ms| rule("even", "mail", 10.0).warm_up_throttle(warm_up, queue(queue_ms));
    for rule in [paced(1000), paced(1000).sentinel()] {
        let engine = engine([rule]);
        // Used for long enough: warm.
        let mut now = 100_000_000_000;
        while now < 130_000_000_000 {
            let _ = asked(&engine, &mail(), Timestamp::from_nanos(now));
            now += 10_000_000;
        }
        // Then the last of 11 is released 10 turns after the first.
        let mut release = |_| loop {
            now += 1_000_000;
            if let Some(wait) = asked(&engine, &mail(), Timestamp::from_nanos(now)) {
                break now + wait;
            }
        };
        let releases: Vec<u64> = (0..11).map(&mut release).collect();
        let mean = (releases[10] - releases[0]) / 10_000_000;
        assert!((90..=110).contains(&mean), "{mean} ms apart");
    }
    let engine = engine([paced(10)]);
    drop(pass(&engine, &mail(), 0));
    assert_eq!(retry_ms(&block(&engine, &mail(), 0)), Some(290));
}

#[test]
fn differs_from_sentinel_a_throttle_without_a_queue_is_kept() {
    for rule in [throttle(10.0, 0), throttle(10.0, 0).sentinel()] {
        let engine = engine([rule]);
        assert_eq!(admitted(&engine, &mail(), 5, 10_000), 1);
        assert_eq!(retry_ms(&block(&engine, &mail(), 10_099)), Some(1));
        drop(pass(&engine, &mail(), 10_100));
    }
}

/// There: to the millisecond, where the count divides a second.
#[test]
fn differs_from_sentinel_pacing_is_to_the_nanosecond() {
    let nanos = |rule: FlowRule| {
        let engine = engine([rule]);
        let now = Timestamp::from_nanos(10_000_700_000);
        let waits = (0..3).filter_map(|_| asked(&engine, &mail(), now));
        waits.collect::<Vec<_>>()
    };
    assert_eq!(nanos(throttle(200.0, 500)), [0, 5_000_000, 10_000_000]);
    let here = nanos(throttle(199.0, 500));
    assert_eq!(here, [0, 5_025_126, 10_050_252], "rounded up");
    let there = nanos(throttle(199.0, 500).sentinel());
    assert_eq!(there, [0, 5_025_126, 10_050_252]);

    // A request half a millisecond after its turn counts as one at the turn's millisecond there, and here as when it came.
    let next = |rule: FlowRule| {
        let engine = engine([rule]);
        drop(pass(&engine, &mail(), 10_000));
        let late = Timestamp::from_nanos(10_005_500_000);
        assert_eq!(asked(&engine, &mail(), late), Some(0));
        asked(&engine, &mail(), late)
    };
    assert_eq!(next(throttle(200.0, 500)), Some(5_000_000));
    assert_eq!(next(throttle(200.0, 500).sentinel()), Some(5_000_000));
    let after = |rule: FlowRule| {
        let engine = engine([rule]);
        let early = Timestamp::from_nanos(10_000_900_000);
        assert_eq!(asked(&engine, &mail(), early), Some(0));
        asked(&engine, &mail(), at(10_005))
    };
    assert_eq!(after(throttle(200.0, 500)), Some(900_000));
    assert_eq!(after(throttle(200.0, 500).sentinel()), Some(0));
}

// ---- rates ----

#[test]
fn any_rate_is_paced() {
    for (count, interval_ms, apart) in [
        (1.0, 1000, 1_000_000_000),
        (3.0, 1000, 333_333_334),
        (0.3, 1000, 3_333_333_334),
        (2.5, 1000, 400_000_000),
        (1000.0, 1000, 1_000_000),
        (1500.0, 1000, 666_667),
        (40_000.0, 1000, 25_000),
        (3e9, 1000, 1),
        (100.0, 60_000, 600_000_000),
        (0.001, 1000, 1_000_000_000_000),
        (1.0, 30 * 86_400_000, 30 * 86_400 * 1_000_000_000),
    ] {
        let rule = rule("even", "mail", count).per(interval_ms, None).unwrap();
        let engine = engine([rule.throttle(queue(MaxQueueing::MAX_MS.into()))]);
        let now = at(1_700_000_000_000);
        let mut release = 0;
        for turn in 0..4 {
            match asked(&engine, &mail(), now) {
                Some(wait) => {
                    assert_eq!(wait, release, "turn {turn} of {count} in {interval_ms} ms")
                }
                None => assert!(release > 24 * 86_400 * 1_000_000_000, "{count}: {release}"),
            }
            release += apart;
        }
    }
}

#[test]
fn a_count_that_is_hardly_one_lets_one_pass() {
    let engine = engine([throttle(1e-300, 500)]);
    drop(pass(&engine, &mail(), 0));
    let blocked = block(&engine, &mail(), 1_000_000_000);
    assert!(blocked.retry_after().unwrap() > Duration::from_secs(500 * 365 * 86_400));
    // More than one costs more than the count ever gives.
    assert_eq!(block(&engine, &mail().cost(2), 0).retry_after(), None);
}

#[test]
fn a_request_that_costs_nothing_passes_and_takes_no_turn() {
    let engine = engine([throttle(10.0, 0)]);
    drop(pass(&engine, &mail(), 0));
    drop(pass(&engine, &mail().cost(0), 50));
    drop(pass(&engine, &mail(), 100));
}

// ---- waits ----

#[test]
fn a_wait_may_be_as_long_as_the_queue_and_not_longer() {
    let engine = engine([throttle(10.0, 100)]);
    drop(pass(&engine, &mail(), 1000));
    drop(block(&engine, &mail(), 999));
    wait(&engine, &mail(), 1000, 100).exit(Outcome::Success, at(1100));
    let blocked = block(&engine, &mail(), 1000);
    assert_eq!(retry_ms(&blocked), Some(100));
    drop(block(&engine, &mail(), 1099));
    drop(wait(&engine, &mail(), 1100, 100));
}

#[test]
fn a_request_whose_turn_has_come_passes_at_once() {
    let engine = engine([throttle(10.0, 500)]);
    for now in [0, 100, 200, 1000, 1100] {
        drop(pass(&engine, &mail(), now));
    }
}

/// The retry time is exact: then the request is admitted, and a nanosecond earlier it is not.
#[test]
fn the_time_to_try_again_is_exact() {
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..200 {
        let count = f64::from(random.u32(1..50)) / 4.0;
        let rule = throttle(count, random.u64(0..700));
        let rule = if random.bool() { rule.sentinel() } else { rule };
        let now = |random: &mut fastrand::Rng| random.u64(0..300_000_000);
        let (seed, mut time) = (random.u64(..), 20_000_000_000);
        let history = |engine: &Engine| {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut time = 20_000_000_000;
            for _ in 0..20 {
                time += now(&mut random);
                let cost = random.u32(1..3);
                let _ = asked(engine, &mail().cost(cost), Timestamp::from_nanos(time));
            }
        };
        for _ in 0..20 {
            let mut random = fastrand::Rng::with_seed(seed);
            time += now(&mut random);
        }
        time = time.max(30_000_000_000);
        let tested = engine([rule.clone()]);
        history(&tested);
        let Decision::Block(blocked) = tested.enter(&mail(), Timestamp::from_nanos(time)) else {
            continue;
        };
        let again = time + blocked.retry_after().unwrap().as_nanos() as u64;
        for (then, lets_in) in [(again, true), (again - 1, false)] {
            let asks = engine([rule.clone()]);
            history(&asks);
            let asked = asked(&asks, &mail(), Timestamp::from_nanos(then));
            assert_eq!(
                asked.is_some(),
                lets_in,
                "{rule:?} at {then}, answered at {time}"
            );
        }
    }
}

#[test]
fn what_is_left_is_one_if_it_would_pass_at_once() {
    let engine = engine([throttle(10.0, 500)]);
    let left = |now| {
        let resource = engine.resource("mail");
        let policy = resource.policies(at(now)).next().unwrap();
        (policy.remaining, policy.reset.as_millis())
    };
    assert_eq!(left(0), (1, 0));
    drop(pass(&engine, &mail(), 0));
    assert_eq!(left(0), (0, 100));
    wait(&engine, &mail(), 0, 100).exit(Outcome::Success, at(200));
    assert_eq!(left(0), (0, 200));
    assert_eq!(left(150), (0, 50));
    assert_eq!(left(200), (1, 0));
}

// ---- what is given back ----

#[test]
fn only_the_request_with_the_latest_turn_gives_it_back() {
    let engine = engine([throttle(10.0, 500)]);
    drop(pass(&engine, &mail(), 0));
    let first = wait(&engine, &mail(), 0, 100);
    let second = wait(&engine, &mail(), 0, 200);
    // Another request has the turn behind it: this one stays taken.
    first.cancel(at(10));
    wait(&engine, &mail(), 10, 290).cancel(at(20));
    second.cancel(at(30));
    // Of two turns in a row, the first to be given up is lost.
    wait(&engine, &mail(), 30, 270).exit(Outcome::Success, at(400));
    let last = wait(&engine, &mail(), 30, 370);
    last.cancel(at(40));
    drop(wait(&engine, &mail(), 40, 360));
}

#[test]
fn a_turn_that_has_come_is_not_given_back() {
    let engine = engine([throttle(10.0, 500)]);
    drop(pass(&engine, &mail(), 0));
    wait(&engine, &mail(), 0, 100).cancel(at(100));
    drop(wait(&engine, &mail(), 100, 100));
}

/// The time of the drop is unknown: if the next request comes before its turn, it was in time.
#[test]
fn a_turn_that_is_dropped_is_given_back_if_that_was_surely_in_time() {
    let engine = engine([throttle(10.0, 500)]);
    drop(pass(&engine, &mail(), 0));
    drop(wait(&engine, &mail(), 0, 100));
    drop(wait(&engine, &mail(), 99, 1));
    drop(wait(&engine, &mail(), 100, 100));
}

#[test]
fn an_entry_that_has_waited_ends_like_any_other() {
    let engine = engine([
        throttle(10.0, 500),
        rule("in flight", "mail", 2.0).concurrency(),
    ]);
    let first = pass(&engine, &mail(), 0);
    let second = wait(&engine, &mail(), 0, 100);
    assert_eq!(block(&engine, &mail(), 0).id().as_str(), "in flight");
    let node = engine.store().tree().unwrap().cluster("mail").unwrap();
    second.exit(Outcome::Success, at(130));
    // The wait is a part of it.
    assert_eq!(
        leapgate::stats::Node::avg_rt(node.statistics(), at(130)),
        130.0
    );
    let third = wait(&engine, &mail(), 130, 70);
    third.cancel(at(131));
    first.exit(Outcome::Success, at(140));
    assert_eq!(leapgate::stats::Node::cur_thread_num(node.statistics()), 0);
    drop(wait(&engine, &mail(), 150, 50));
}

// ---- clocks, reloads, scopes ----

#[test]
fn a_clock_that_steps_back_pulls_the_turns_back_to_the_furthest_that_the_rule_allows() {
    for (rule, furthest) in [
        (throttle(10.0, 500), 1500), // 500 of queue, and a batch of 10
        (throttle(10.0, 500).sentinel(), 500),
    ] {
        let engine = engine([rule]);
        drop(pass(&engine, &mail(), 1_000_000));
        let retry = retry_ms(&block(&engine, &mail(), 10_000)).unwrap();
        assert!(retry <= furthest - 400, "{retry}");
        drop(block(&engine, &mail(), 10_000 + retry - 1));
        wait(&engine, &mail(), 10_000 + retry, 500).exit(Outcome::Success, at(20_000));
    }
}

#[test]
fn a_clock_that_starts_at_zero_is_like_any_other() {
    for rule in [throttle(10.0, 500), throttle(10.0, 500).sentinel()] {
        let engine = engine([rule]);
        drop(pass(&engine, &mail(), 0));
        drop(wait(&engine, &mail(), 0, 100));
    }
}

#[test]
fn differs_from_sentinel_a_reload_keeps_queues() {
    let engine = engine([throttle(10.0, 500)]);
    drop(pass(&engine, &mail(), 0));
    wait(&engine, &mail(), 0, 100).exit(Outcome::Success, at(100));
    let faster = rules([rule("before", "mail", 1000.0), throttle(100.0, 500)]);
    engine.replace(faster).unwrap();
    wait(&engine, &mail(), 0, 200).exit(Outcome::Success, at(200));
    wait(&engine, &mail(), 0, 210).exit(Outcome::Success, at(210));
    // Another behaviour is another state.
    engine.replace(rules([rule("even", "mail", 1.0)])).unwrap();
    drop(pass(&engine, &mail(), 0));
}

#[test]
fn a_throttle_paces_each_resource_and_each_origin_that_it_is_for() {
    let engine = engine([
        rule("each", "*", 10.0).throttle(queue(0)),
        throttle(10.0, 0).for_origin(LimitApp::Other),
    ]);
    for request in [
        Request::new("a"),
        Request::new("b"),
        mail(),
        mail().origin("app"),
        mail().origin("shop"),
    ] {
        drop(pass(&engine, &request, 0));
    }
    for request in [Request::new("a"), mail().origin("app")] {
        drop(block(&engine, &request, 0));
    }
}

/// Sentinel's throttle has one state for all origins. There all other origins share one pacer, though each has a window of its
/// own if a rule counts passes.
#[test]
fn differs_from_sentinel_a_throttle_for_others_is_one_for_each() {
    let others = || throttle(10.0, 0).for_origin(LimitApp::Other);
    let [here, there] = [others(), others().sentinel()].map(|rule| engine([rule]));
    for engine in [&here, &there] {
        drop(pass(engine, &mail().origin("app"), 10_000));
        drop(block(engine, &mail().origin("app"), 10_000));
    }
    drop(pass(&here, &mail().origin("shop"), 10_000));
    drop(block(&there, &mail().origin("shop"), 10_000));
}

/// Sentinel's throttle does not look at the node that it is given.
#[test]
fn a_throttle_that_relates_paces_those_that_it_is_for() {
    let engine = engine([throttle(10.0, 0).relate("orders").unwrap()]);
    drop(pass(&engine, &mail(), 0));
    drop(block(&engine, &mail(), 0));
    assert_eq!(admitted(&engine, &Request::new("orders"), 5, 0), 5);
}

#[test]
fn a_throttle_in_shadow_takes_turns_and_makes_no_request_wait() {
    let engine = engine([throttle(10.0, 150).in_mode(Mode::Shadow)]);
    for _ in 0..4 {
        drop(pass(&engine, &mail(), 0));
    }
    let mut counts = None;
    engine.store().for_each_state(0, 1, |state| {
        counts = Some((state.passed(), state.waited(), state.shadow_blocked()));
    });
    assert_eq!(counts, Some((2, 1, 2)));
}

// ---- a naive restatement ----

/// The pacer is free at an instant; a request passes then, or now, if that is later, and keeps it busy for as long as it costs.
#[test]
fn turns_are_those_of_a_naive_line() {
    let mut random = fastrand::Rng::with_seed(31);
    for round in 0..300 {
        let count = f64::from(random.u32(1..400)) / 8.0;
        let interval = random.choice([100, 1000, 60_000]).unwrap();
        let max = random.u64(0..3) * random.u64(0..interval) / 2;
        let rule = rule("even", "mail", count).per(interval, None).unwrap();
        let engine = engine([rule.throttle(queue(max))]);
        let (mut now, mut free) = (random.u64(0..2) * 1_700_000_000_000_000_000, 0);
        let mut releases: Vec<(u64, u64)> = Vec::new();
        for step in 0..100 {
            now += random.u64(0..1 + interval * 2_000_000 / (1 + count as u64));
            let cost = if random.u8(0..8) == 0 {
                random.u32(0..4)
            } else {
                1
            };
            let nanos = (f64::from(cost) * interval as f64 * 1e6 / count).ceil() as u64;
            let release = free.max(now);
            let expected = match cost {
                0 => Some(0),
                cost if f64::from(cost) > count.max(1.0) => None,
                _ if release - now > max * 1_000_000 => None,
                _ => Some(release - now),
            };
            let asked = asked(&engine, &mail().cost(cost), Timestamp::from_nanos(now));
            assert_eq!(asked, expected, "round {round}, step {step}");
            if expected.is_some() && cost > 0 {
                free = release + nanos;
                releases.push((release, nanos));
            }
        }
        assert!(
            releases
                .windows(2)
                .all(|pair| pair[1].0 >= pair[0].0 + pair[0].1)
        );
    }
}

/// Sentinel's: the state is when the latest request passed, and the next one waits for its own cost. In milliseconds.
#[test]
fn compatible_turns_are_those_of_sentinels_naive_line() {
    let mut random = fastrand::Rng::with_seed(32);
    for _ in 0..300 {
        let count = f64::from(random.u32(1..5000)) / random.choice([1.0, 4.0]).unwrap();
        let max = random.u64(1..1000);
        let engine = engine([throttle(count, max).sentinel()]);
        let in_nanos = !1000_u64.is_multiple_of((count.round() as u64).max(1)) || count > 1000.0;
        let unit = if in_nanos || count < 0.5 {
            1
        } else {
            1_000_000
        };
        let (mut now, mut latest) = (1_700_000_000_000_000_000_u64, None);
        for _ in 0..100 {
            now += random.u64(0..2_000_000_000 / (1 + count as u64));
            let cost = random.u32(1..4);
            let floored = now / unit * unit;
            let units = (1e9 / unit as f64 * f64::from(cost) / count).round() as u64;
            let expected = latest.map_or(0, |latest: u64| latest + units * unit);
            let release = expected.max(floored);
            let wait = (release - floored <= max * 1_000_000).then_some(release - floored);
            let asked = asked(&engine, &mail().cost(cost), Timestamp::from_nanos(now));
            assert_eq!(asked, wait, "{count} a second, {cost} at {now}");
            if wait.is_some() {
                latest = Some(release);
            }
        }
    }
}

// ---- requests that may not wait ----

#[test]
fn a_request_that_may_not_wait_is_refused_and_takes_no_turn() {
    for rule in [throttle(10.0, 500), throttle(10.0, 500).sentinel()] {
        let engine = engine([rule]);
        drop(pass(&engine, &mail().impatient(), 10_000));
        let blocked = block(&engine, &mail().impatient(), 10_030);
        assert_eq!(
            retry_ms(&blocked),
            Some(70),
            "when it would have had its turn"
        );
        drop(wait(&engine, &mail(), 10_030, 70));
        drop(pass(&engine, &mail().impatient(), 10_200));
    }
}

#[test]
fn a_request_that_may_not_wait_does_not_borrow_either() {
    let engine = engine([rule("r", "mail", 2.0)]);
    assert_eq!(admitted(&engine, &mail(), 9, 10_000), 2);
    let prioritized = || mail().prioritized();
    let blocked = block(&engine, &prioritized().impatient(), 10_900);
    assert_eq!(retry_ms(&blocked), Some(110));
    let entry = wait(&engine, &prioritized(), 10_900, 110);
    entry.exit(Outcome::Success, at(11_010));
}

#[test]
fn a_rule_in_shadow_mode_refuses_no_request_for_not_waiting() {
    let engine = engine([throttle(10.0, 500).in_mode(Mode::Shadow)]);
    for _ in 0..5 {
        drop(pass(&engine, &mail().impatient(), 10_000));
    }
}

#[test]
fn a_request_that_does_not_wait_charges_no_other_rule() {
    let engine = engine([rule("r", "mail", 2.0), throttle(10.0, 500)]);
    drop(pass(&engine, &mail(), 10_000));
    for _ in 0..5 {
        let blocked = block(&engine, &mail().impatient(), 10_000);
        assert_eq!(blocked.id().as_str(), "even");
    }
    wait(&engine, &mail(), 10_000, 100).exit(Outcome::Success, at(10_100));
}
