//! Snapshots of limiters, restored by other clocks.

use crate::support::{at, count};
use fastrand::Rng;
use leapgate::backend::Key;
use leapgate::rule::{Counting, RuleGeometry, RuleId};
use leapgate::{Limit, Limiter, RestoreError, Timestamp, Verdict};
use std::time::Duration;

const SEED: [u64; 2] = [0x5eed, 0xcafe];

fn limit(id: &str, limit: f64, interval_ms: u64, samples: u32) -> Limit {
    Limit {
        id: RuleId::new(id).unwrap(),
        count: count(limit),
        window: RuleGeometry::new(interval_ms, Some(samples)).unwrap(),
        counting: Counting::Strict,
    }
}

fn limiter(limits: &[Limit], max_keys: usize) -> Limiter {
    Limiter::new(limits.to_vec(), max_keys, SEED).unwrap()
}

fn key(limiter: &Limiter, name: usize) -> Key {
    limiter.key([Some(name.to_string().as_bytes())])
}

fn passes(limiter: &Limiter, name: usize, now: Timestamp) -> bool {
    limiter.limit(key(limiter, name), 1, None, now, |_| ()) == Verdict::Pass
}

fn remaining(limiter: &Limiter, name: usize, now: Timestamp) -> Vec<u64> {
    let mut left = Vec::new();
    limiter.peek(key(limiter, name), 1, None, now, |of| left.push(of.remaining));
    left
}

fn snapshot(limiter: &Limiter, now: Timestamp) -> Vec<u8> {
    let mut bytes = Vec::new();
    limiter.snapshot(now, &mut bytes);
    bytes
}

const NOW: Duration = Duration::ZERO;

#[test]
fn no_interval_has_more_than_the_limit_over_restarts() {
    for seed in 0..300 {
        let mut rng = Rng::with_seed(seed);
        let (interval, samples) = [(1000, 20), (1000, 1), (90, 3), (7000, 7)][seed as usize % 4];
        let limits = [limit("a", 10.0, interval, samples)];
        let mut current = limiter(&limits, 100);
        // The clock of each process begins elsewhere; nanoseconds of real time, and of the clock's zero.
        let (mut real, mut zero) = (0, 0_u64);
        let (mut log, mut denied) = (Vec::new(), 0);
        for step in 0..3000 {
            real += rng.u64(0..interval * 1_000_000 / 8);
            let now = Timestamp::from_nanos(real - zero);
            if step % 40 == 39 {
                let bytes = snapshot(&current, now);
                let down = match rng.u8(0..3) {
                    0 => 0,
                    1 => rng.u64(0..interval * 100_000),
                    _ => rng.u64(0..interval * 2_000_000),
                };
                real += down;
                // At its start, a clock may be nearer to its zero than the window is long.
                zero = real.saturating_sub(rng.u64(0..interval * 3_000_000));
                current = limiter(&limits, 100);
                let now = Timestamp::from_nanos(real - zero);
                current.restore(&bytes, Duration::from_nanos(down), now).unwrap();
                continue;
            }
            match passes(&current, 0, now) {
                true => log.push(real),
                false => denied += 1,
            }
        }
        let window = interval * 1_000_000;
        assert!(log.windows(11).all(|of| of[10] - of[0] >= window), "seed {seed}");
        // Not much is lost: a bucket at each restart.
        let (span, each) = (real / window, interval / u64::from(samples));
        let least = 10 * span * interval / (interval + 3 * each) / 2;
        assert!(log.len() as u64 >= least && denied > 0, "seed {seed}: {} of {least}", log.len());
    }
}

#[test]
fn a_key_goes_on_where_it_was() {
    let limits = [limit("1s", 5.0, 1000, 10), limit("60s", 300.0, 60_000, 20)];
    let before = limiter(&limits, 1000);
    for name in 0..500 {
        for _ in 0..=name % 4 {
            assert!(passes(&before, name, at(10_050)));
        }
    }
    before.block(key(&before, 7), Duration::from_millis(1500), at(10_050));
    before.block(key(&before, 8), Duration::MAX, at(10_050));
    let bytes = snapshot(&before, at(10_250));
    assert!(bytes.len() < 500 * 40, "{}", bytes.len());
    // A clock that has just begun, and another limit.
    let after = limiter(&[limit("1s", 9.0, 1000, 10), limits[1].clone()], 1000);
    after.restore(&bytes, Duration::from_millis(300), at(50)).unwrap();
    for name in (0..500).filter(|name| ![7, 8].contains(name)) {
        let used = name as u64 % 4 + 1;
        assert_eq!(remaining(&after, name, at(50)), [9 - used, 300 - used], "{name}");
        assert_eq!(remaining(&after, name, at(800)), [9, 300 - used], "{name}");
    }
    assert!(!passes(&after, 7, at(1049)));
    assert!(passes(&after, 7, at(1050)));
    assert!(!passes(&after, 8, at(1 << 40)));
    // Whatever has passed since counts no more.
    let later = limiter(&limits, 1000);
    later.restore(&bytes, Duration::from_secs(70), at(50)).unwrap();
    assert_eq!(remaining(&later, 3, at(50)), [5, 300]);
    assert_eq!(later.len(), 0);
    // Saved again, it is the same.
    let [once, again] = [(); 2].map(|()| limiter(&limits, 1000));
    once.restore(&bytes, NOW, at(50)).unwrap();
    again.restore(&snapshot(&once, at(60)), NOW, at(9_000)).unwrap();
    assert_eq!(remaining(&again, 3, at(9_000)), [1, 296]);
}

#[test]
fn what_is_held_counts_as_charged() {
    let limits = [limit("1s", 10.0, 1000, 10)];
    let before = limiter(&limits, 1);
    let held = before.hold(key(&before, 1), 6, None, at(0), |_| ());
    // Held by a key that shares, too.
    before.hold(key(&before, 2), 3, None, at(0), |_| ()).unwrap();
    let bytes = snapshot(&before, at(5000));
    let after = limiter(&limits, 1);
    after.restore(&bytes, NOW, at(77)).unwrap();
    assert_eq!(remaining(&after, 1, at(77)), [4]);
    assert_eq!(remaining(&after, 2, at(77)), [7]);
    assert_eq!(remaining(&after, 1, at(1200)), [10]);
    // The hold is of the other limiter.
    assert_eq!(after.settle(held.unwrap(), 0, at(77)), None);
}

#[test]
fn keys_that_share_have_no_more_than_before() {
    let limits = [limit("1s", 3.0, 1000, 20)];
    let before = limiter(&limits, 50);
    let all = 0..2000;
    all.clone().for_each(|name| _ = passes(&before, name, at(990)));
    let left = |limiter: &Limiter, now| all.clone().map(|name| remaining(limiter, name, now)[0]).collect::<Vec<_>>();
    let (was, bytes) = (left(&before, at(1000)), snapshot(&before, at(1000)));
    let after = limiter(&limits, 50);
    after.restore(&bytes, NOW, at(17)).unwrap();
    assert_eq!(left(&after, at(17)), was);
    assert_eq!(after.fill(), before.fill());
    assert!(left(&after, at(1400)).iter().all(|left| *left == 3));
    let later = limiter(&limits, 50);
    later.restore(&bytes, Duration::from_millis(1250), at(17)).unwrap();
    assert!(left(&later, at(17)).iter().all(|left| *left == 3));
}

#[test]
fn counts_that_have_widened_are_kept() {
    let before = limiter(&[limit("1s", 1e9, 1000, 10)], 10);
    before.limit(key(&before, 1), 70_000, None, at(500), |_| ());
    let after = limiter(&[limit("1s", 1e9, 1000, 10)], 10);
    after.restore(&snapshot(&before, at(510)), NOW, at(3)).unwrap();
    assert_eq!(remaining(&after, 1, at(3)), [999_930_000]);
}

#[test]
fn other_bytes_are_refused_and_change_nothing() {
    let limits = [limit("1s", 3.0, 1000, 20), limit("60s", 100.0, 60_000, 20)];
    let before = limiter(&limits, 10);
    for name in 0..40 {
        passes(&before, name, at(0));
    }
    before.block(key(&before, 1), Duration::from_secs(5), at(0));
    let bytes = snapshot(&before, at(0));
    let target = limiter(&limits, 10);
    let restore = |bytes: &[u8]| target.restore(bytes, NOW, at(0));
    for length in 0..bytes.len() {
        assert_eq!(restore(&bytes[..length]), Err(RestoreError::NotASnapshot), "{length}");
    }
    let longer = [&bytes[..], &[0]].concat();
    assert_eq!(restore(&longer), Err(RestoreError::NotASnapshot));
    assert_eq!(restore(b"\x07"), Err(RestoreError::Version));
    let counted = Limit { counting: Counting::Weighted, ..limits[0].clone() };
    for (others, max_keys) in [
        (vec![limits[0].clone()], 10),
        (vec![limits[1].clone(), limits[0].clone()], 10),
        (vec![limit("1s", 3.0, 1000, 10), limits[1].clone()], 10),
        (vec![counted, limits[1].clone()], 10),
        (limits.to_vec(), 11),
    ] {
        let other = limiter(&others, max_keys);
        assert_eq!(other.restore(&bytes, NOW, at(0)), Err(RestoreError::OtherLimits));
    }
    // Whatever they say, nothing traps.
    let mut rng = Rng::with_seed(7);
    for _ in 0..20_000 {
        let mut changed = bytes.clone();
        for _ in 0..rng.usize(1..4) {
            let place = rng.usize(10..changed.len());
            changed[place] = rng.u8(..);
        }
        let other = limiter(&limits, 10);
        if other.restore(&changed, NOW, at(0)).is_ok() {
            (0..40).for_each(|name| _ = passes(&other, name, at(rng.u64(0..9000))));
            snapshot(&other, at(9000));
        }
    }
    assert_eq!((target.len(), passes(&target, 1, at(0))), (0, true));
    assert_eq!(restore(&bytes), Err(RestoreError::InUse));
    let fresh = limiter(&limits, 10);
    fresh.hold(key(&fresh, 1), 0, None, at(0), |_| ()).unwrap();
    assert_eq!(fresh.restore(&bytes, NOW, at(0)), Err(RestoreError::InUse));
}

#[expect(
    clippy::disallowed_methods,
    reason = "the time that it takes is the claim"
)]
#[test]
fn many_keys_are_restored_in_a_time_that_grows_with_them() {
    let limits = [limit("1s", 3.0, 1000, 20)];
    let took = |keys: usize| {
        let before = limiter(&limits, 400_000);
        (0..keys).for_each(|name| assert!(passes(&before, name, at(0))));
        let bytes = snapshot(&before, at(0));
        let after = limiter(&limits, 400_000);
        let start = std::time::Instant::now();
        after.restore(&bytes, NOW, at(0)).unwrap();
        assert_eq!(after.len(), keys);
        start.elapsed()
    };
    let (some, many) = (took(10_000), took(160_000));
    assert!(many < some * 100 + Duration::from_millis(200), "{some:?}, {many:?}");
}
