//! Calls that turn out not to count: their charge is refunded.

use crate::support::{at, engine, pass, rule, rules, wait};
use fastrand::Rng;
use leapgate::rule::{Counting, KeyPart, KeyValue, KeyedBy, LimitApp, MaxQueueing, Mode, Unit, WarmUp};
use leapgate::{Decision, Engine, Entry, Outcome, Request, Rules};

const KEYS: [KeyValue<'_>; 1] = [KeyValue::One(b"a")];

fn request<'a>() -> Request<'a> {
    Request::new("api").keys(&KEYS)
}

fn remaining(engine: &Engine, now: u64) -> Vec<u64> {
    let resource = engine.resource("api");
    let policies = resource.policies_for(&request(), at(now));
    policies.map(|policy| policy.remaining).collect()
}

fn uncounted(entry: Entry, now: u64) {
    entry.exit_uncounted(&KEYS, Outcome::Success, at(now));
}

#[test]
fn a_call_that_does_not_count_leaves_every_window_as_if_it_had_not_come() {
    let by_key = KeyedBy::new([KeyPart::Arg(0)]).unwrap();
    let of_ten = |id: &str| rule(id, "api", 10.0);
    let both = [(); 2].map(|()| {
        engine([
            of_ten("keyed").keyed(by_key.clone()).unwrap(),
            of_ten("strict"),
            of_ten("sentinel").counting(Counting::Sentinel),
            of_ten("weighted").counting(Counting::Weighted),
            of_ten("long").per(60_000, Some(60)).unwrap(),
            of_ten("in flight").concurrency(),
        ])
    });
    for engine in &both {
        pass(engine, &request().cost(2), 1000).exit(Outcome::Success, at(1000));
    }
    let [engine, without] = both;
    let entry = pass(&engine, &request().cost(3), 1005);
    assert_eq!(remaining(&engine, 1100)[..2], [5, 5]);
    pass(&engine, &request(), 1095).exit_uncounted(&KEYS, Outcome::Error, at(1095));
    uncounted(entry, 1100);
    for now in [1100, 1300, 2500] {
        assert_eq!(remaining(&engine, now), remaining(&without, now), "{now}");
    }
}

#[test]
fn a_rule_that_warms_up_has_room_again_and_stays_as_warm() {
    let engine = engine([rule("warm", "api", 10.0).warm_up(WarmUp::new(1, 2).unwrap())]);
    let entry = pass(&engine, &request().cost(3), 1000);
    let [left] = remaining(&engine, 1000)[..] else {
        panic!("one rule")
    };
    uncounted(entry, 1000);
    assert_eq!(remaining(&engine, 1000), [left + 3]);
}

#[test]
fn what_has_left_a_window_does_not_come_back_once_more() {
    let engine = engine([rule("api", "api", 10.0)]);
    let entry = pass(&engine, &request().cost(10), 1000);
    pass(&engine, &request().cost(8), 2500).exit(Outcome::Success, at(2500));
    uncounted(entry, 2600);
    assert_eq!(remaining(&engine, 2600), [2]);
}

#[test]
fn a_rule_for_one_origin_gives_back_what_it_charged_that_origin() {
    let origin = |name: &str| LimitApp::new(name).unwrap();
    let engine = engine([
        rule("app", "api", 1.0).for_origin(origin("app")),
        rule("others", "api", 1.0).for_origin(LimitApp::Other),
        rule("measured", "pay", 5.0).relate("api").unwrap(),
    ]);
    for name in ["app", "x"] {
        let asked = || request().origin(name);
        let entry = pass(&engine, &asked(), 1000);
        let Decision::Block(_) = engine.enter(&asked(), at(1000)) else {
            panic!("{name} has one pass")
        };
        uncounted(entry, 1000);
        pass(&engine, &asked(), 1000).exit(Outcome::Success, at(1000));
    }
    let pay = |cost| Request::new("pay").cost(cost);
    assert!(matches!(
        engine.enter(&pay(4), at(1000)),
        Decision::Block(_)
    ));
    pass(&engine, &pay(3), 1000).exit(Outcome::Success, at(1000));
}

#[test]
fn what_waits_is_given_up_and_what_has_waited_gives_back_what_it_was_released_with() {
    let engine = engine([rule("api", "api", 2.0).per(1000, Some(10)).unwrap()]);
    pass(&engine, &request().cost(2), 1000).exit(Outcome::Success, at(1000));
    uncounted(wait(&engine, &request().prioritized(), 1900, 200), 1950);
    let entry = wait(&engine, &request().prioritized(), 1950, 150);
    assert_eq!(remaining(&engine, 2100), [1]);
    uncounted(entry, 2130);
    assert_eq!(remaining(&engine, 2130), [2]);
}

#[test]
fn what_a_clock_that_steps_back_has_put_elsewhere_stays() {
    let engine = engine([rule("api", "api", 10.0)]);
    pass(&engine, &request(), 2000).exit(Outcome::Success, at(2000));
    let entry = pass(&engine, &request().cost(3), 1985);
    uncounted(entry, 2005);
    assert_eq!(remaining(&engine, 2005), [6]);
}

#[test]
fn sentinels_loans_stay() {
    let engine = engine([rule("api", "api", 2.0).sentinel()]);
    pass(&engine, &request().cost(2), 700).exit(Outcome::Success, at(700));
    let entry = wait(&engine, &request().prioritized(), 1400, 100);
    uncounted(entry, 1510);
    assert_eq!(remaining(&engine, 1510), [1]);
}

#[test]
fn turns_and_rules_in_shadow_mode_keep_it() {
    let throttle = rule("turns", "api", 10.0).throttle(MaxQueueing::from_millis(0).unwrap());
    let engine = engine([throttle, rule("shadow", "api", 5.0).in_mode(Mode::Shadow)]);
    uncounted(pass(&engine, &request(), 1000), 1000);
    assert_eq!(remaining(&engine, 1000), [0, 4]);
}

#[test]
fn a_list_of_values_gives_back_to_each_what_it_was_charged_once() {
    let by_key = KeyedBy::new([KeyPart::Arg(0)]).unwrap();
    let engine = engine([rule("keyed", "api", 5.0).keyed(by_key).unwrap()]);
    let values: [&[u8]; 3] = [b"a", b"b", b"a"];
    let keys = [KeyValue::Each(&values)];
    pass(&engine, &request(), 1000).exit(Outcome::Success, at(1000));
    let entry = pass(&engine, &Request::new("api").keys(&keys).cost(2), 1000);
    assert_eq!(remaining(&engine, 1000), [2]);
    entry.exit_uncounted(&keys, Outcome::Success, at(1000));
    assert_eq!(remaining(&engine, 1000), [4]);
}

/// A naive window of buckets of 100 ms: its charges, by bucket.
struct Naive {
    buckets: u64,
    limit: u64,
    charged: Vec<(u64, u64)>,
}

impl Naive {
    fn admits(&self, cost: u64, now: u64) -> bool {
        let counts = |(bucket, _): &&(u64, u64)| bucket + self.buckets >= now / 100;
        let counted: u64 = self.charged.iter().filter(counts).map(|(_, n)| n).sum();
        counted + cost <= self.limit
    }
}

#[test]
fn calls_that_count_and_those_alone_are_never_more_than_the_limit_in_any_window() {
    let by_key = || KeyedBy::new([KeyPart::Arg(0)]).unwrap();
    let mut refunded = 0;
    for seed in 0..60 {
        let mut random = Rng::with_seed(seed);
        let (limit, buckets) = (random.u64(1..12), random.u64(1..8));
        let mut api = rule("api", "api", limit as f64)
            .per(buckets * 100, Some(buckets as u32))
            .unwrap();
        // Sentinel's window is a bucket shorter than the strict one that guarantees the limit.
        let strict = random.bool();
        if !strict {
            api = api.counting(Counting::Sentinel);
        }
        if strict && random.bool() {
            api = api.keyed(by_key()).unwrap();
        }
        let engine = Engine::new(Rules { ..rules([api]) }).unwrap();
        let mut naive = Naive {
            buckets: buckets - u64::from(!strict),
            limit,
            charged: Vec::new(),
        };
        let mut open: Vec<(Entry, u64, u64)> = Vec::new();
        let mut now = 1000;
        for step in 0..400 {
            now += random.u64(0..80) * random.u64(0..2);
            if !open.is_empty() && random.u8(0..3) == 0 {
                let (entry, bucket, cost) = open.swap_remove(random.usize(..open.len()));
                if random.bool() {
                    uncounted(entry, now);
                    let of = |charge: &(u64, u64)| *charge == (bucket, cost);
                    let place = naive.charged.iter().position(of).unwrap();
                    naive.charged.swap_remove(place);
                    refunded += 1;
                } else {
                    entry.exit(Outcome::Success, at(now));
                }
                continue;
            }
            let cost = random.u64(1..4);
            match engine.enter(&request().cost(cost as u32), at(now)) {
                Decision::Pass(entry) => {
                    assert!(naive.admits(cost, now), "seed {seed}, step {step}: lets in");
                    naive.charged.push((now / 100, cost));
                    open.push((entry, now / 100, cost));
                }
                Decision::Block(_) => {
                    assert!(
                        !naive.admits(cost, now),
                        "seed {seed}, step {step}: refuses"
                    );
                }
                Decision::Wait(..) => panic!("nothing waits"),
            }
        }
    }
    assert!(refunded > 1000, "only {refunded} did not count");
}

#[test]
fn what_was_charged_in_other_units_comes_back_in_them() {
    let by_key = || KeyedBy::new([KeyPart::Arg(0)]).unwrap();
    let tokens = |id: &str| rule(id, "api", 100.0).in_unit(Unit::new("tokens").unwrap());
    let both = [(); 2].map(|()| {
        engine([
            rule("requests", "api", 9.0),
            tokens("tokens"),
            tokens("of a key").keyed(by_key()).unwrap(),
        ])
    });
    for engine in &both {
        drop(pass(engine, &request().cost(2).cost_of("tokens", 30), 1000));
    }
    let [engine, without] = both;
    for asked in [
        request().cost_of("tokens", 60),
        request().cost(3),
        request().cost_of("tokens", 0).cost_of("other", 9),
    ] {
        let entry = pass(&engine, &asked, 1005);
        assert_ne!(remaining(&engine, 1005), remaining(&without, 1005));
        uncounted(entry, 1006);
        assert_eq!(remaining(&engine, 1006), remaining(&without, 1006));
    }
}

#[test]
fn a_loan_in_another_unit_that_is_given_up_comes_back_in_it() {
    let tokens = rule("tokens", "api", 100.0).in_unit(Unit::new("tokens").unwrap());
    let engine = engine([tokens.per(1000, Some(10)).unwrap()]);
    drop(pass(&engine, &request().cost_of("tokens", 100), 1000));
    let asked = request().cost_of("tokens", 60).cost(3).prioritized();
    wait(&engine, &asked, 1900, 200).cancel(at(1950));
    wait(&engine, &asked, 1960, 140).exit_uncounted(&KEYS, Outcome::Error, at(1970));
    assert_eq!(remaining(&engine, 2150), [100]);
}
