//! The short form: several limits on each of many keys, and what can be done about a key.

use crate::support::{at, count};
use fastrand::Rng;
use leapgate::backend::{
    Key, KeyHandle, KeyVerdict, KeyedGeometry, KeyedStates, KeyedTerms, KeyedWindows,
};
use leapgate::config::{Value, read_limiter};
use leapgate::rule::{Counting, Grade, RuleGeometry, RuleId};
use leapgate::{Left, Limit, Limiter, LimiterError, Timestamp, Verdict};
use std::collections::BTreeMap;
use std::time::Duration;

const SEED: [u64; 2] = [0x5eed, 0xcafe];
const COUNTINGS: [Counting; 3] = [Counting::Strict, Counting::Sentinel, Counting::Weighted];

fn limit(id: &str, limit: f64, interval_ms: u64, samples: u32) -> Limit {
    Limit {
        id: RuleId::new(id).unwrap(),
        count: count(limit),
        window: RuleGeometry::new(interval_ms, Some(samples)).unwrap(),
        counting: Counting::Strict,
    }
}

fn limiter(limits: &[Limit]) -> Limiter {
    Limiter::new(limits.to_vec(), 1000, SEED).unwrap()
}

fn key(limiter: &Limiter, name: &str) -> Key {
    limiter.key([Some(name.as_bytes())])
}

fn ask(limiter: &Limiter, key: Key, cost: u64, now: Timestamp) -> Verdict {
    limiter.limit(key, cost, None, now, |_| ())
}

fn passes(limiter: &Limiter, key: Key, tries: usize, now: u64) -> usize {
    let pass = |_: &usize| ask(limiter, key, 1, at(now)) == Verdict::Pass;
    (0..tries).filter(pass).count()
}

fn left(limiter: &Limiter, key: Key, now: u64) -> Vec<Left> {
    let mut left = Vec::new();
    limiter.peek(key, 1, None, at(now), |of| left.push(of));
    left
}

fn remaining(limiter: &Limiter, key: Key, now: u64) -> Vec<u64> {
    left(limiter, key, now)
        .iter()
        .map(|of| of.remaining)
        .collect()
}

// === All or none ===

#[test]
fn a_refusal_charges_no_limit() {
    let limiter = limiter(&[
        limit("second", 2.0, 1000, 10),
        limit("minute", 3.0, 60_000, 20),
    ]);
    let key = key(&limiter, "a");
    assert_eq!(passes(&limiter, key, 5, 0), 2);
    assert_eq!(remaining(&limiter, key, 0), [0, 1]);
    assert_eq!(passes(&limiter, key, 5, 1100), 1);
    assert_eq!(remaining(&limiter, key, 1100), [1, 0]);
    let refused = Verdict::Block {
        index: Some(1),
        retry_after: Some(Duration::from_millis(61_900)),
    };
    assert_eq!(ask(&limiter, key, 1, at(1100)), refused);
}

#[test]
fn the_first_limit_that_refuses_is_named_with_the_longest_time() {
    let limiter = limiter(&[
        limit("minute", 5.0, 60_000, 20),
        limit("second", 1.0, 1000, 10),
    ]);
    let key = key(&limiter, "a");
    assert_eq!(passes(&limiter, key, 2, 0), 1);
    let block = |index, millis: Option<u64>| Verdict::Block {
        index: Some(index),
        retry_after: millis.map(Duration::from_millis),
    };
    assert_eq!(ask(&limiter, key, 1, at(0)), block(1, Some(1100)));
    assert_eq!(ask(&limiter, key, 5, at(0)), block(0, None));
    assert_eq!(ask(&limiter, key, 6, at(0)), block(0, None));
}

/// What passed in the windows of several limits, as lists.
#[test]
fn decides_as_a_log_of_what_passed() {
    let mut random = Rng::with_seed(11);
    for round in 0..40 {
        let samples = [1, 2, 5, 10, 20][round % 5];
        let limits = [
            limit("a", 1.0 + random.f64() * 10.0, 1000, samples),
            limit("b", 20.0, 4000, 20),
        ];
        let limiter = limiter(&limits);
        let mut logs: BTreeMap<u64, Vec<(u64, u64)>> = BTreeMap::new();
        let mut now = random.u64(0..10_000);
        for _ in 0..500 {
            now += if random.u8(..) < 16 {
                random.u64(0..3000)
            } else {
                random.u64(0..120)
            };
            let (name, cost) = (random.u64(0..4), random.u64(0..4));
            let key = limiter.key([Some(&name.to_le_bytes()[..])]);
            let log = logs.entry(name).or_default();
            let sum = |limit: &Limit, log: &[(u64, u64)], now: u64| -> u64 {
                let (window, bucket) =
                    (limit.window.window(), limit.window.window().bucket_length());
                let bucket = bucket.as_millis() as u64;
                let oldest = (now / bucket).saturating_sub(u64::from(window.sample_count()));
                let counts = |event: &&(u64, u64)| event.0 / bucket >= oldest;
                log.iter().filter(counts).map(|event| event.1).sum()
            };
            let fits = |log: &[(u64, u64)], now| {
                limits
                    .iter()
                    .all(|of| sum(of, log, now) as f64 + cost as f64 <= of.count.get())
            };
            let expected = fits(log, now);
            let peeked = limiter.peek(key, cost, None, at(now), |_| ());
            let mut statuses = Vec::new();
            let verdict = limiter.limit(key, cost, None, at(now), |of| statuses.push(of));
            assert_eq!(verdict, peeked, "{name} at {now} ms");
            assert_eq!(verdict == Verdict::Pass, expected, "{name} at {now} ms");
            if expected {
                log.push((now, cost));
            }
            for (of, limit) in statuses.iter().zip(&limits) {
                let used = sum(limit, log, now);
                assert_eq!(of.remaining, (limit.count.get() - used as f64) as u64);
                let back = now + of.reset.as_millis() as u64;
                let whole = (of.remaining == 0).then_some(limit.count.get() - 1.0);
                let is_back = |now| match whole {
                    Some(room) => sum(limit, log, now) as f64 <= room,
                    None => used == 0 || sum(limit, log, now) < used,
                };
                assert!(is_back(back), "{back} ms");
                assert!(back == now || !is_back(back - 1), "{back} ms");
            }
            if let Verdict::Block { retry_after, .. } = verdict {
                let Some(wait) = retry_after else {
                    assert!(limits.iter().any(|of| cost as f64 > of.count.get()));
                    continue;
                };
                let retry = now + wait.as_millis() as u64;
                assert!(fits(log, retry), "{retry} ms");
                assert!(!fits(log, retry - 1), "{retry} ms");
            }
        }
    }
}

#[test]
fn what_is_left_is_what_a_walk_through_the_buckets_says() {
    let mut random = Rng::with_seed(5);
    for counting in COUNTINGS {
        for samples in [1, 2, 7, 8, 16, 20, 25, 50] {
            let window = RuleGeometry::new(2800 / 7 * samples, Some(samples as u32)).unwrap();
            let geometry = KeyedGeometry::new(Grade::Qps { window, counting }, 10);
            let windows = KeyedWindows::new(geometry, SEED);
            let (key, mut now) = (windows.key([Some(&b"a"[..])]), 0);
            let most = if samples > 16 { 2000.0 } else { 30.0 };
            let (terms, limit) = (KeyedTerms::of(count(most)), most);
            for _ in 0..500 {
                now += random.u64(0..500);
                if random.u8(..) < 8 {
                    now = now.saturating_sub(random.u64(0..40_000));
                }
                let cost = random.u64(0..if samples > 16 { 400 } else { 6 });
                let passes = windows.admit_now(key, &terms, cost, at(now)).is_some();
                let sum = |after: Duration| {
                    windows.sum(
                        key,
                        Timestamp::from_nanos(at(now).as_nanos() + after.as_nanos() as u64),
                    )
                };
                let one = Duration::from_millis(1);
                let first = |wait: Duration, is: &dyn Fn(f64) -> bool| {
                    assert!(is(sum(wait)), "{counting:?} {samples} {now}: {wait:?}");
                    assert!(
                        wait.is_zero() || !is(sum(wait - one)),
                        "{counting:?} {samples} {now}: {wait:?}"
                    );
                };
                let wait = windows.wait(key, terms.count, cost, at(now)).unwrap();
                first(wait, &|sum| sum + cost as f64 <= limit);
                let asked = match wait {
                    Duration::ZERO => KeyVerdict::Pass,
                    wait => KeyVerdict::Block {
                        retry_after: Some(wait),
                    },
                };
                assert_eq!(
                    windows.ask(&mut KeyHandle::of(key), &terms, cost, at(now)),
                    asked
                );
                assert!(passes || asked != KeyVerdict::Pass);
                let standing = windows.status(key, &terms, at(now));
                let used = sum(Duration::ZERO);
                assert_eq!(standing.remaining, (limit - used) as u64);
                match standing.remaining {
                    0 => first(standing.reset, &|sum| sum + 1.0 <= limit),
                    _ => first(standing.reset, &|sum| used == 0.0 || sum < used),
                }
            }
        }
    }
}

// === Refund, reset, block, close ===

#[test]
fn a_refund_is_taken_from_the_bucket_of_the_charge() {
    let limiter = limiter(&[limit("a", 300.0, 1000, 10)]);
    let key = key(&limiter, "a");
    // More than a byte holds, so that the counters are wide.
    ask(&limiter, key, 290, at(0));
    ask(&limiter, key, 10, at(950));
    let rows = [
        (1, 950, 950, 1),   // of the newest
        (20, 950, 950, 21), // 9 of the newest, then older ones
        (5, 500, 960, 26),  // of a bucket where nothing is, so of the one before
        (0, 0, 960, 26),
        (1000, 100, 960, 300),
        (1000, 2000, 960, 300),
    ];
    for (cost, charged, now, left) in rows {
        limiter.refund(key, cost, at(charged), at(now));
        assert_eq!(
            remaining(&limiter, key, now),
            [left],
            "{cost} of {charged} ms"
        );
    }
    assert_eq!(passes(&limiter, key, 400, 960), 300);
    limiter.refund(key, 1, at(0), at(2100));
    assert_eq!(remaining(&limiter, key, 2100), [300]);
    ask(&limiter, key, 7, at(3000));
    limiter.refund(key, 7, at(1000), at(3000));
    assert_eq!(
        remaining(&limiter, key, 3000),
        [293],
        "what has left is not given back"
    );
}

#[test]
fn exact_refunds_never_let_more_than_the_limit_count() {
    let mut random = Rng::with_seed(3);
    let limiter = limiter(&[limit("a", 10.0, 1000, 20)]);
    let (key, mut now) = (key(&limiter, "a"), 0);
    let mut counted: Vec<u64> = Vec::new();
    let mut open: Vec<u64> = Vec::new();
    for _ in 0..20_000 {
        now += random.u64(0..100);
        if ask(&limiter, key, 1, at(now)) == Verdict::Pass {
            if random.bool() {
                open.push(now)
            } else {
                counted.push(now)
            }
        }
        if random.u8(..) < 100 && !open.is_empty() {
            let charged = open.swap_remove(random.usize(..open.len()));
            limiter.refund(key, 1, at(charged), at(now));
        }
        // What is open counts as long as it is open; what is refunded never did.
        let since = now.saturating_sub(999);
        let within = counted.iter().chain(&open).filter(|event| **event >= since);
        assert!(within.count() <= 10, "{now} ms");
    }
    assert!(counted.len() > 5000);
}

#[test]
fn a_reset_forgets_one_key() {
    let limiter = limiter(&[limit("a", 1.0, 1000, 10), limit("b", 2.0, 5000, 10)]);
    let [a, b] = ["a", "b"].map(|name| key(&limiter, name));
    for key in [a, b] {
        assert_eq!(passes(&limiter, key, 3, 0), 1);
    }
    limiter.block(a, Duration::from_secs(5), at(0));
    limiter.reset(a);
    assert_eq!(
        [a, b].map(|key| remaining(&limiter, key, 0)),
        [[1, 2], [0, 1]]
    );
    assert_eq!(passes(&limiter, a, 3, 0), 1);
    limiter.reset(key(&limiter, "unknown"));
    assert_eq!(limiter.len(), 2);
}

#[test]
fn a_block_holds_until_its_end_and_no_longer_than_it_was_set_for() {
    let limiter = limiter(&[limit("a", 5.0, 1000, 10)]);
    let (a, b) = (key(&limiter, "a"), key(&limiter, "b"));
    let held = |millis| Verdict::Block {
        index: None,
        retry_after: Some(Duration::from_millis(millis)),
    };
    limiter.block(a, Duration::from_millis(500), at(100_000));
    let rows = [
        (100_000, held(500)),
        (100_499, held(1)),
        (40, held(500)), // the clock has stepped back
        (539, held(1)),
        (540, Verdict::Pass),
        (100_000, Verdict::Pass),
    ];
    for (now, verdict) in rows {
        assert_eq!(
            limiter.peek(a, 1, None, at(now), |_| ()),
            verdict,
            "{now} ms"
        );
        assert_eq!(ask(&limiter, a, 1, at(now)), verdict, "{now} ms");
        assert_eq!(limiter.peek(b, 1, None, at(now), |_| ()), Verdict::Pass);
    }
    limiter.block(a, Duration::MAX, Timestamp::MAX);
    assert_eq!(
        ask(&limiter, a, 1, Timestamp::MAX),
        Verdict::Pass,
        "the clock has no later time"
    );
}

#[test]
fn a_clock_that_steps_back_makes_no_block_longer_than_the_longest() {
    let limiter = limiter(&[limit("a", 1000.0, 1000, 10)]);
    let [a, b, c] = ["a", "b", "c"].map(|name| key(&limiter, name));
    limiter.block(a, Duration::from_millis(500), at(100_000));
    limiter.block(b, Duration::from_millis(2000), at(100_000));
    let blocked = |key, now| match ask(&limiter, key, 1, at(now)) {
        Verdict::Pass => 0,
        Verdict::Block { retry_after, .. } => retry_after.unwrap().as_millis(),
    };
    let rows = [
        (100_100, [400, 1900, 0]),
        (40, [2000, 2000, 0]),
        (1040, [1000, 1000, 0]),
        (2039, [1, 1, 0]),
        (2040, [0, 0, 0]),
        (0, [0, 0, 0]), // what is over stays over
    ];
    for (now, left) in rows {
        assert_eq!([a, b, c].map(|key| blocked(key, now)), left, "{now} ms");
    }
    limiter.block(b, Duration::from_millis(100), at(3000));
    assert_eq!([a, b].map(|key| blocked(key, 3000)), [0, 100]);
    limiter.block(b, Duration::ZERO, at(3001));
    assert_eq!(blocked(b, 3001), 0, "a block of no length takes one back");
}

#[test]
fn blocks_have_a_bound_and_make_room_when_they_end() {
    let limiter = Limiter::new(vec![limit("a", 5.0, 1000, 10)], 500, SEED).unwrap();
    let block = |number: u64, millis, now| {
        let key = limiter.key([Some(&number.to_le_bytes()[..])]);
        limiter.block(key, Duration::from_millis(millis), at(now))
    };
    assert!((0..500).all(|number| block(number, 1000 + number, 0)));
    assert!(!block(500, 1000, 0));
    assert!(block(7, 3000, 0), "one that is blocked already");
    assert!(!block(500, 1000, 999));
    assert!(block(500, 1000, 1000));
}

#[test]
fn a_limiter_that_is_closed_opens_when_its_windows_have_passed() {
    let limiter = limiter(&[limit("a", 5.0, 1000, 10), limit("b", 9.0, 3000, 10)]);
    let key = key(&limiter, "a");
    limiter.close(at(50));
    assert_eq!(passes(&limiter, key, 3, 50), 0);
    assert_eq!(passes(&limiter, key, 3, 3349), 0);
    assert_eq!(passes(&limiter, key, 3, 3350), 3);
    limiter.close(at(100_000));
    assert_eq!(
        passes(&limiter, key, 3, 9000),
        0,
        "the clock has stepped back"
    );
    assert_eq!(passes(&limiter, key, 3, 12_299), 0);
    assert_eq!(passes(&limiter, key, 3, 12_300), 3);
}

#[test]
fn a_peek_opens_no_window() {
    let limiter = limiter(&[limit("a", 5.0, 1000, 10)]);
    assert_eq!(remaining(&limiter, key(&limiter, "a"), 0), [5]);
    assert!(limiter.is_empty());
}

#[test]
fn a_peek_beyond_the_bound_sees_the_window_that_is_shared() {
    let limiter = Limiter::new(vec![limit("a", 5.0, 1000, 10)], 1, SEED).unwrap();
    assert_eq!(passes(&limiter, key(&limiter, "a"), 9, 0), 5);
    let late = key(&limiter, "b");
    assert_eq!(passes(&limiter, late, 2, 0), 2);
    assert_eq!(remaining(&limiter, late, 0), [3]);
    limiter.reset(late);
    assert_eq!(
        remaining(&limiter, late, 0),
        [3],
        "others may have taken them"
    );
}

// === What cannot be ===

#[test]
fn a_limiter_has_some_limits_and_each_its_own_id() {
    let limits = |n: usize| -> Vec<Limit> {
        (0..n)
            .map(|id| limit(&id.to_string(), 1.0, 1000, 10))
            .collect()
    };
    let says = |limits| Limiter::new(limits, 10, SEED).unwrap_err().to_string();
    assert_eq!(says(limits(0)), "`0` limits are not possible; use 1 to 8");
    assert_eq!(says(limits(9)), "`9` limits are not possible; use 1 to 8");
    assert!(Limiter::new(limits(Limiter::MAX_LIMITS), 10, SEED).is_ok());
    let twice = LimiterError::SameId {
        id: RuleId::new("a").unwrap(),
        index: 1,
    };
    assert_eq!(
        Limiter::check(&[limit("a", 1.0, 1000, 10), limit("a", 2.0, 500, 10)]),
        Err(twice)
    );
}

// === Options ===

fn options(json: &str) -> Result<(Vec<Limit>, usize), String> {
    let read = read_limiter(&Value::from_json(json).unwrap());
    read.map(|options| (options.limits, options.max_keys))
        .map_err(|error| error.to_string())
}

#[test]
fn options_are_one_limit_or_several() {
    let one = options(r#"{"limit": 100, "windowMs": 60000}"#).unwrap();
    assert_eq!(one, (vec![limit("60s", 100.0, 60_000, 20)], 100_000));
    let weighted = Limit {
        counting: Counting::Weighted,
        ..limit("x", 0.5, 250, 5)
    };
    let several = options(
        r#"{"maxKeys": 5, "now": null, "limits": [
            {"limit": 0.5, "windowMs": 250, "sampleCount": 5, "id": "x", "window": "weighted"},
            {"limit": 7, "windowMs": 999}
        ]}"#,
    );
    assert_eq!(
        several,
        Ok((vec![weighted, limit("999ms", 7.0, 1000, 20)], 5))
    );
}

/// The window that `windowMs` has by default.
fn default_window(window_ms: u64) -> RuleGeometry {
    let json = format!(r#"{{"limit": 1, "windowMs": {window_ms}}}"#);
    options(&json).unwrap().0[0].window
}

#[test]
fn a_window_without_a_good_divisor_has_nearly_equal_buckets() {
    for (window_ms, [ring_ms, samples]) in [
        // As divisors are: at least 10 of them, or buckets of 1 ms.
        (60_000, [60_000, 20]),
        (999_999, [999_999, 13]),
        (7, [7, 7]),
        (19, [19, 19]),
        // Up to as many milliseconds longer as there are buckets.
        (60_013, [60_020, 20]),
        (1009, [1020, 20]),
        (23, [24, 12]),
        (315_359_999_998, [315_360_000_000, 20]),
    ] {
        let window = default_window(window_ms).window();
        let is = [window.interval_ms(), window.sample_count().into()];
        assert_eq!(is, [ring_ms, samples], "{window_ms}");
    }
    for window_ms in 62..5000 {
        let window = default_window(window_ms).window();
        let span = window.interval_ms() as f64 + window.bucket_length().as_millis() as f64;
        assert!(window.interval_ms() >= window_ms, "{window_ms}");
        assert!(window_ms as f64 / span >= 0.9, "{window_ms}");
    }
    // A number of buckets that is given divides the window, as ever.
    let uneven = options(r#"{"limit": 1, "windowMs": 60013, "sampleCount": 20}"#).unwrap_err();
    assert_eq!(
        uneven,
        "options.sampleCount: `20` does not divide the 60013 ms interval; use one of 1"
    );
}

#[test]
fn a_window_of_prime_length_holds_in_any_interval_and_passes_nine_tenths() {
    for window_ms in [23, 61, 997, 60_013] {
        let options = options(&format!(r#"{{"limit": 100, "windowMs": {window_ms}}}"#));
        let limiter = limiter(&options.unwrap().0);
        let (client, mut rng) = (key(&limiter, "a"), Rng::with_seed(window_ms));
        let (mut log, mut now) = (Vec::new(), 0.0);
        // Five requests where one passes.
        while now < window_ms as f64 * 50.0 {
            now += rng.f64() * window_ms as f64 / 250.0;
            let at = Timestamp::from_nanos((now * 1e6) as u64);
            if ask(&limiter, client, 1, at) == Verdict::Pass {
                log.push(at.as_nanos());
            }
        }
        let in_less_than_a_window = |pair: &[u64]| pair[100] - pair[0] < window_ms * 1_000_000;
        assert!(!log.windows(101).any(in_less_than_a_window), "{window_ms}");
        let part = log.len() as f64 / (50.0 * 100.0);
        assert!(part >= if window_ms < 62 { 0.88 } else { 0.9 }, "{window_ms}: {part}");
    }
}

#[test]
fn a_sentence_says_what_is_wrong_in_options() {
    let rows = [
        ("[]", "options: `[…]` is an array; use an object"),
        ("{}", "options: `limit` is missing; add it"),
        (r#"{"limit": 1}"#, "options: `windowMs` is missing; add it"),
        (
            r#"{"limit": 1, "windowMs": null}"#,
            "options.windowMs: `null` is not a value; use a whole number from 1 to 315360000000",
        ),
        (
            r#"{"limits": [{"limit": 1, "windowMs": 10, "maxKeys": 5}]}"#,
            "options.limits[0]: `maxKeys` is not a known key; use one of `limit`, `windowMs`, `window`, `sampleCount`, `id`",
        ),
        (
            r#"{"limits": [], "id": "a"}"#,
            "options.id: `a` stands beside `limits`; put it into one of them",
        ),
        (
            r#"{"limits": 5}"#,
            "options.limits: `5` is a number; use an array",
        ),
        (
            r#"{"limits": []}"#,
            "options.limits: `0` limits are not possible; use 1 to 8",
        ),
        (
            r#"{"limits": [{"limit": 1, "windowMs": 10}, {"limit": 2, "windowMs": 10}]}"#,
            "options.limits[1].id: `10ms` is the id of another limit; use one of its own",
        ),
    ];
    for (json, sentence) in rows {
        assert_eq!(options(json), Err(sentence.to_string()), "{json}");
    }
}

// === What a shell lets pass without asking ===

fn steady_until(limiter: &Limiter, key: Key, now: u64) -> Option<Timestamp> {
    left(limiter, key, now).first()?.steady_until
}

#[test]
fn what_is_left_is_steady_to_the_end_of_the_bucket_unless_other_calls_may_change_it() {
    for counting in COUNTINGS {
        let mut one = limit("1s", 5.0, 1000, 10);
        one.counting = counting;
        let limiter = Limiter::new(vec![one], 1, SEED).unwrap();
        let (own, shared) = (key(&limiter, "own"), key(&limiter, "shared"));
        assert_eq!(steady_until(&limiter, own, 120), None);
        ask(&limiter, own, 1, at(120));
        let wanted = (counting != Counting::Weighted).then_some(at(200));
        assert_eq!(steady_until(&limiter, own, 120), wanted);
        assert_eq!(steady_until(&limiter, own, 199), wanted);
        ask(&limiter, shared, 1, at(120));
        assert_eq!(steady_until(&limiter, shared, 120), None);
        let hold = limiter.hold(own, 1, None, at(130), |_| ()).unwrap();
        assert_eq!(steady_until(&limiter, own, 130), None);
        limiter.cancel(hold, at(130));
        assert_eq!(steady_until(&limiter, own, 130), wanted);
        limiter.block(shared, Duration::from_millis(20), at(130));
        assert_eq!(steady_until(&limiter, own, 149), None);
        assert_eq!(steady_until(&limiter, own, 150), wanted);
    }
}

#[test]
fn what_has_passed_without_asking_is_charged_to_its_bucket_or_late() {
    let limiter = limiter(&[limit("1s", 10.0, 1000, 10)]);
    let key = key(&limiter, "a");
    ask(&limiter, key, 1, at(120));
    limiter.catch_up(key, 4, None);
    assert_eq!(remaining(&limiter, key, 950), [5]);
    assert_eq!(remaining(&limiter, key, 1199), [5]);
    assert_eq!(remaining(&limiter, key, 1200), [10]);
    ask(&limiter, key, 9, at(2000));
    limiter.catch_up(key, 4, Some(at(2500)));
    assert_eq!(remaining(&limiter, key, 3099), [0]);
    assert_eq!(remaining(&limiter, key, 3100), [6]);
    assert_eq!(remaining(&limiter, key, 3600), [10]);
}

#[test]
fn what_has_passed_without_asking_is_forgotten_with_its_window() {
    let limiter = Limiter::new(vec![limit("1s", 5.0, 1000, 10)], 1, SEED).unwrap();
    let (old, new) = (key(&limiter, "old"), key(&limiter, "new"));
    ask(&limiter, old, 1, at(0));
    ask(&limiter, new, 1, at(5000));
    limiter.catch_up(old, 3, None);
    assert_eq!(remaining(&limiter, new, 5000), [4]);
    assert_eq!(remaining(&limiter, old, 5000), [5]);
}
