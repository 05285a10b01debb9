//! Flow rules with a key: which requests they distinguish, and how they decide together with other rules.

use crate::support::{at, block, engine, pass, retry_ms, rules, wait};
use leapgate::backend::{
    BreakerKey, Key, KeyHandle, KeyStatus, KeyVerdict, KeyedGeometry, KeyedStates, KeyedTerms,
    KeyedWindows, Local, LocalBreaker, LocalCounter, Past, Reserved, Seeded, StateKey, Store,
    Backend,
};
use leapgate::config::{Value as Tree, read};
use leapgate::rule::{
    Counting, DegradeGrade, DegradeRule, FlowRule, KeyItem, KeyPart, KeyValue, KeyedBy, LimitApp,
    MAX_KEYS_OF_REQUEST, MaxQueueing, Mode, RuleId,
};
use leapgate::{Decision, Engine, Outcome, Request, Rules, Timestamp};
use std::cell::RefCell;
use std::rc::Rc;

const API_KEY: &str = "x-api-key";

fn header() -> KeyPart {
    KeyPart::Header(API_KEY.into())
}

/// A limit for each API key.
fn per_key(limit: f64) -> FlowRule {
    FlowRule::new("api", limit).unwrap().keyed(by()).unwrap()
}

fn by() -> KeyedBy {
    KeyedBy::new([header()]).unwrap()
}

fn called(rule: FlowRule, id: &str) -> FlowRule {
    rule.with_id(RuleId::new(id).unwrap())
}

fn item(values: &[Option<&str>], count: f64) -> KeyItem {
    KeyItem {
        values: values.iter().map(|value| value.map(Box::from)).collect(),
        count: leapgate::rule::Count::new(count).unwrap(),
    }
}

fn one(value: &str) -> [KeyValue<'_>; 1] {
    [KeyValue::One(value.as_bytes())]
}

/// How many of `tries` requests with these keys pass at once, at one instant.
#[track_caller]
fn admits<S: leapgate::backend::Backend>(
    engine: &Engine<S>,
    keys: &[KeyValue<'_>],
    tries: usize,
    now: u64,
) -> usize {
    crate::support::admitted(engine, &Request::new("api").keys(keys), tries, now)
}

#[test]
fn each_key_has_a_window_of_its_own() {
    let engine = engine([per_key(2.0)]);
    for key in ["gold", "silver", ""] {
        assert_eq!(admits(&engine, &one(key), 3, 0), 2, "{key}");
    }
    let blocked = block(&engine, &Request::new("api").keys(&one("gold")), 400);
    assert_eq!(blocked.id().as_str(), "api/key=header:x-api-key");
    // Twenty buckets, and the one that is leaving.
    assert_eq!(retry_ms(&blocked), Some(650));
    assert_eq!(admits(&engine, &one("gold"), 3, 1049), 0);
    assert_eq!(admits(&engine, &one("gold"), 3, 1050), 2);
}

#[test]
fn a_missing_part_is_a_value_of_its_own() {
    let engine = engine([per_key(2.0)]);
    assert_eq!(admits(&engine, &[KeyValue::Missing], 5, 0), 2);
    assert_eq!(admits(&engine, &[], 5, 0), 0, "nothing said is missing");
    assert_eq!(admits(&engine, &[KeyValue::Each(&[])], 5, 0), 0);
    assert_eq!(
        admits(&engine, &one(""), 5, 0),
        2,
        "an empty one is another"
    );
}

#[test]
fn differs_from_sentinel_a_missing_value_is_limited() {
    let missing = [KeyValue::Missing];
    assert_eq!(admits(&engine([per_key(2.0)]), &missing, 5, 0), 2);
    assert_eq!(
        admits(&engine([per_key(2.0).sentinel()]), &missing, 5, 0),
        5
    );
    let engine = engine([per_key(2.0).sentinel()]);
    assert_eq!(
        admits(&engine, &one("gold"), 5, 0),
        2,
        "one that is there is not"
    );
}

#[test]
fn each_combination_of_values_has_a_window() {
    let parts = [header(), KeyPart::Path];
    let rule = FlowRule::new("api", 1.0).unwrap();
    let engine = engine([rule.keyed(KeyedBy::new(parts).unwrap()).unwrap()]);
    let keys: [[KeyValue<'_>; 2]; 6] = [
        [KeyValue::One(b"a"), KeyValue::One(b"b")],
        [KeyValue::One(b"ab"), KeyValue::One(b"")],
        [KeyValue::One(b""), KeyValue::One(b"ab")],
        [KeyValue::One(b"a"), KeyValue::Missing],
        [KeyValue::Missing, KeyValue::One(b"a")],
        [KeyValue::Missing, KeyValue::Missing],
    ];
    for keys in &keys {
        assert_eq!(admits(&engine, keys, 2, 0), 1, "{keys:?}");
    }
}

#[test]
fn parts_are_read_once_for_all_rules() {
    let two = KeyedBy::new([KeyPart::Path, header()]).unwrap();
    let rule = FlowRule::new("api", 3.0).unwrap().keyed(two).unwrap();
    let engine = engine([per_key(2.0), rule, FlowRule::new("api", 100.0).unwrap()]);
    let resource = engine.resource("api");
    assert_eq!(resource.key_parts(), [header(), KeyPart::Path]);
    assert!(resource.has_rules());
    assert!(engine.resource("other").key_parts().is_empty());
    let keys = |key: &'static str, path: &'static str| {
        [key, path].map(|value| KeyValue::One(value.as_bytes()))
    };
    assert_eq!(admits(&engine, &keys("a", "/"), 5, 0), 2);
    assert_eq!(admits(&engine, &keys("b", "/"), 5, 0), 2);
}

#[test]
fn a_key_may_have_another_count() {
    let items = [
        item(&[Some("gold")], 4.0),
        item(&[Some("closed")], 0.0),
        item(&[None], 1.0),
    ];
    let by = by().with_items(items).unwrap().with_burst(1);
    let rule = FlowRule::new("api", 2.0).unwrap().keyed(by).unwrap();
    let engine = engine([rule]);
    let cases = [
        (KeyValue::One(b"silver"), 3),
        (KeyValue::One(b"gold"), 5),
        (KeyValue::One(b"closed"), 0), // and no burst
        (KeyValue::Missing, 2),
    ];
    for (key, expected) in cases {
        assert_eq!(admits(&engine, &[key], 9, 0), expected, "{key:?}");
    }
    let blocked = block(&engine, &Request::new("api").keys(&one("closed")), 0);
    assert_eq!(blocked.retry_after(), None);
}

#[test]
fn a_limit_on_the_calls_in_flight_of_a_key_has_no_burst() {
    let items = [item(&[Some("gold")], 4.0)];
    let by = by().with_items(items).unwrap().with_burst(3);
    let rule = FlowRule::new("api", 2.0).unwrap().keyed(by).unwrap();
    for rule in [rule.clone().concurrency(), rule.concurrency().sentinel()] {
        let engine = engine([rule]);
        for (key, expected) in [("silver", 2), ("gold", 4)] {
            let open: Vec<_> = (0..9)
                .filter_map(
                    |_| match engine.enter(&Request::new("api").keys(&one(key)), at(0)) {
                        Decision::Pass(entry) => Some(entry),
                        _ => None,
                    },
                )
                .collect();
            assert_eq!(open.len(), expected, "{key}");
        }
    }
}

#[test]
fn addresses_are_distinguished_by_their_first_bits() {
    let per = |v4, v6| {
        let by = KeyedBy::new([KeyPart::ClientIp { v4, v6 }]).unwrap();
        engine([FlowRule::new("api", 1.0).unwrap().keyed(by).unwrap()])
    };
    // The first request takes all; whether the second has its own limit.
    let cases: [(u8, u8, &str, &str, bool); 12] = [
        (32, 64, "10.0.0.1", "10.0.0.2", true),
        (32, 64, "10.0.0.1", "10.0.0.1:4711", false),
        (32, 64, "10.0.0.1", "::ffff:10.0.0.1", false),
        (24, 64, "10.0.0.1", "10.0.0.255", false),
        (24, 64, "10.0.0.1", "10.0.1.1", true),
        (0, 64, "10.0.0.1", "200.0.0.1", false),
        (32, 64, "2001:db8::1", "2001:db8::ffff:1", false),
        (32, 64, "2001:db8::1", "2001:db8:0:1::1", true),
        (32, 128, "2001:db8::1", "2001:db8::2", true),
        (32, 64, "2001:db8::1", "[2001:db8::2]:443", false),
        (0, 0, "10.0.0.1", "2001:db8::1", true),
        (255, 255, "unix", "unix2", true),
    ];
    for (v4, v6, first, second, own) in cases {
        let engine = per(v4, v6);
        assert_eq!(admits(&engine, &one(first), 2, 0), 1, "{first}");
        let admitted = admits(&engine, &one(second), 2, 0);
        assert_eq!(
            admitted,
            usize::from(own),
            "{first} and {second}, {v4}:{v6}"
        );
    }
    let by = KeyedBy::new([KeyPart::ClientIp { v4: 24, v6: 64 }]).unwrap();
    let by = by.with_items([item(&[Some("192.0.2.7")], 3.0)]).unwrap();
    let engine = engine([FlowRule::new("api", 1.0).unwrap().keyed(by).unwrap()]);
    assert_eq!(
        admits(&engine, &one("192.0.2.200"), 5, 0),
        3,
        "the bits of an item count, too"
    );
}

#[test]
fn a_list_is_asked_about_each_of_its_values() {
    let engine = engine([per_key(2.0)]);
    let list = |values: &'static [&'static [u8]]| [KeyValue::Each(values)];
    assert_eq!(admits(&engine, &list(&[b"a", b"b"]), 1, 0), 1);
    assert_eq!(admits(&engine, &one("b"), 1, 0), 1);
    let blocked = block(&engine, &Request::new("api").keys(&list(&[b"a", b"b"])), 0);
    assert_eq!(retry_ms(&blocked), Some(1050));
    assert_eq!(
        admits(&engine, &one("a"), 5, 0),
        1,
        "a refused list charges nothing"
    );
    assert_eq!(
        admits(&engine, &list(&[b"c", b"c"]), 5, 0),
        2,
        "what is the same is charged once"
    );
}

#[test]
fn differs_from_sentinel_a_refused_list_charges_nothing() {
    // Sentinel: `ParamFlowChecker.passLocalCheck` takes for `a` before it refuses for `b`.
    let engine = engine([per_key(1.0).sentinel()]);
    assert_eq!(admits(&engine, &one("b"), 1, 0), 1);
    assert_eq!(admits(&engine, &[KeyValue::Each(&[b"a", b"b"])], 1, 0), 0);
    assert_eq!(admits(&engine, &one("a"), 1, 0), 1);
}

#[test]
fn lists_of_several_parts_are_multiplied_within_bounds() {
    let by = KeyedBy::new([header(), KeyPart::Arg(0)]).unwrap();
    let engine = engine([FlowRule::new("api", 1.0).unwrap().keyed(by).unwrap()]);
    let numbers: Vec<[u8; 1]> = (0..=255).map(|number| [number]).collect();
    let values: Vec<&[u8]> = numbers.iter().map(|number| &number[..]).collect();
    let keys = |n: usize, m: usize| [KeyValue::Each(&values[..n]), KeyValue::Each(&values[..m])];
    assert_eq!(admits(&engine, &keys(2, 3), 1, 0), 1);
    let alone = |n: u8, m: u8| [n, m].map(|number| &numbers[usize::from(number)][..]);
    for (n, m) in [(0, 0), (1, 2), (1, 0)] {
        let [n, m] = alone(n, m);
        assert_eq!(
            admits(&engine, &[KeyValue::One(n), KeyValue::One(m)], 1, 0),
            0
        );
    }
    let [n, m] = alone(2, 0);
    assert_eq!(
        admits(&engine, &[KeyValue::One(n), KeyValue::One(m)], 1, 0),
        1
    );
    assert_eq!(
        admits(&engine, &keys(16, 16), 1, 5000),
        1,
        "{MAX_KEYS_OF_REQUEST} keys"
    );
    let request = keys(16, 17);
    let blocked = block(&engine, &Request::new("api").keys(&request), 9000);
    assert_eq!(blocked.retry_after(), None);
}

#[test]
fn all_rules_are_charged_or_none() {
    let plain = || called(FlowRule::new("api", 3.0).unwrap(), "plain");
    for rules in [
        vec![called(per_key(2.0), "keyed"), plain()],
        vec![plain(), called(per_key(2.0), "keyed")],
    ] {
        let engine = engine(rules);
        assert_eq!(admits(&engine, &one("a"), 5, 0), 2, "the key refuses");
        assert_eq!(admits(&engine, &one("b"), 5, 0), 1, "the others refuse");
        // No key was charged for refused requests.
        assert_eq!(
            admits(&engine, &one("b"), 5, 1005),
            0,
            "the bucket is leaving"
        );
        assert_eq!(
            admits(&engine, &one("b"), 5, 1010),
            1,
            "{}",
            "of three, a's two are gone"
        );
        assert_eq!(admits(&engine, &one("b"), 5, 1050), 1);
    }
}

#[test]
fn the_first_rule_in_order_is_named_with_the_longest_wait() {
    let minute = || {
        let minute = FlowRule::new("api", 1.0).unwrap();
        called(minute.per(60_000, None).unwrap(), "minute")
    };
    let keyed = || called(per_key(1.0), "keyed");
    for (rules, first) in [
        (vec![keyed(), minute()], "keyed"),
        (vec![minute(), keyed()], "minute"),
    ] {
        let engine = engine(rules);
        assert_eq!(admits(&engine, &one("a"), 1, 0), 1);
        let blocked = block(&engine, &Request::new("api").keys(&one("a")), 0);
        assert_eq!(blocked.id().as_str(), first);
        assert_eq!(retry_ms(&blocked), Some(60_600));
        let blocked = block(&engine, &Request::new("api").keys(&one("b")), 0);
        assert_eq!(blocked.id().as_str(), "minute", "the only one that refuses");
    }
}

#[test]
fn lists_of_sentinel_stand_before_flow_rules() {
    let engine = Engine::new(Rules {
        flow: vec![called(FlowRule::new("api", 0.0).unwrap(), "flow")],
        param_flow: vec![called(per_key(0.0), "param")],
        gateway_flow: vec![called(per_key(0.0), "gateway")],
        ..Rules::default()
    });
    let blocked = block(&engine.unwrap(), &Request::new("api").keys(&one("a")), 0);
    assert_eq!(blocked.id().as_str(), "gateway");
}

#[test]
fn how_a_rule_has_decided_is_counted() {
    let engine = engine([
        per_key(1.0),
        called(per_key(0.0).in_mode(Mode::Shadow), "shadow"),
    ]);
    admits(&engine, &one("a"), 3, 0);
    let mut counts = Vec::new();
    engine.store().for_each_keyed(|key, state| {
        let decided = [state.passed(), state.blocked(), state.shadow_blocked()];
        counts.push((key.rule.to_string(), decided, state.states().len()));
    });
    counts.sort();
    assert_eq!(
        counts,
        [
            ("api/key=header:x-api-key".into(), [1, 2, 0], 1),
            ("shadow".into(), [0, 0, 3], 1),
        ]
    );
    let resource = engine.store().tree().unwrap().cluster("api").unwrap();
    use leapgate::stats::Node;
    assert_eq!(resource.statistics().block_request(at(0)), 2);
}

#[test]
fn a_shadow_rule_refuses_nothing_and_counts_what_it_would_have_let_in() {
    let shadow = called(per_key(1.0).in_mode(Mode::Shadow), "shadow");
    let engine = engine([shadow.clone()]);
    assert_eq!(admits(&engine, &one("a"), 5, 0), 5);
    let all = Engine::new(Rules {
        mode: Mode::Shadow,
        ..rules([per_key(0.0)])
    });
    assert_eq!(admits(&all.unwrap(), &one("a"), 5, 0), 5);
    // Its shadow passes count once it is enforced.
    engine
        .replace(rules([shadow.in_mode(Mode::Enforce)]))
        .unwrap();
    assert_eq!(admits(&engine, &one("a"), 5, 0), 0);
    assert_eq!(admits(&engine, &one("b"), 5, 0), 1);
}

#[test]
fn calls_in_flight_are_limited_by_key_and_end_once() {
    let engine = engine([per_key(2.0).concurrency()]);
    let (a, b) = (one("a"), one("b"));
    let request = |key| Request::new("api").keys(key);
    let first = pass(&engine, &request(&a), 0);
    let second = pass(&engine, &request(&a), 0);
    let other = pass(&engine, &request(&b), 0);
    assert_eq!(retry_ms(&block(&engine, &request(&a), 5)), Some(1));
    first.exit(Outcome::Success, at(9));
    let third = pass(&engine, &request(&a), 10);
    drop(second);
    let fourth = pass(&engine, &request(&a), 11);
    third.cancel(at(12));
    let fifth = pass(&engine, &request(&a), 13);
    block(&engine, &request(&a), 14);
    drop((fourth, fifth, other));
    assert_eq!(admits(&engine, &a, 2, 15), 2, "each of them ends at once");
}

#[test]
fn differs_from_sentinel_a_call_in_flight_of_a_key_costs_what_it_costs() {
    let costs = |rule: FlowRule| {
        let engine = engine([rule]);
        let key = one("a");
        [3, 2].map(|cost| {
            let request = Request::new("api").keys(&key).cost(cost);
            matches!(engine.enter(&request, at(0)), Decision::Pass(_))
        })
    };
    assert_eq!(costs(per_key(2.0).concurrency()), [false, true]);
    assert_eq!(costs(per_key(2.0).concurrency().sentinel()), [true, true]);
}

fn queue(millis: u64) -> MaxQueueing {
    MaxQueueing::from_millis(millis).unwrap()
}

#[test]
fn each_key_takes_turns_of_its_own() {
    let engine = engine([per_key(10.0).throttle(queue(200))]);
    let (a, b) = (one("a"), one("b"));
    let request = |key| Request::new("api").keys(key);
    let _first = pass(&engine, &request(&a), 0);
    let _second = wait(&engine, &request(&a), 0, 100);
    let third = wait(&engine, &request(&a), 0, 200);
    assert_eq!(retry_ms(&block(&engine, &request(&a), 0)), Some(100));
    let _other = pass(&engine, &request(&b), 0);
    third.cancel(at(50));
    let fourth = wait(&engine, &request(&a), 50, 150);
    fourth.exit(Outcome::Success, at(60));
    let _fifth = wait(&engine, &request(&a), 150, 150);
}

#[test]
fn a_turn_is_taken_for_when_the_request_is_released() {
    let keyed = || called(per_key(10.0).throttle(queue(1000)), "keyed");
    let slow = || {
        called(
            FlowRule::new("api", 2.0).unwrap().throttle(queue(5000)),
            "slow",
        )
    };
    let key = one("a");
    let request = Request::new("api").keys(&key);
    for rules in [[keyed(), slow()], [slow(), keyed()]] {
        let engine = engine(rules);
        let _first = pass(&engine, &request, 0);
        // The slow pacer makes it wait for longer than its key's: its turn in both is then.
        let _second = wait(&engine, &request, 0, 500);
        let _third = wait(&engine, &request, 0, 1000);
        engine.replace(crate::support::rules([keyed()])).unwrap();
        let _fourth = wait(&engine, &request, 500, 600);
    }
    // And the other way round: a request that waits for its key counts elsewhere when it is released.
    let strict = called(
        FlowRule::new("api", 1.0)
            .unwrap()
            .per(1000, Some(10))
            .unwrap(),
        "strict",
    );
    let engine = engine([keyed(), strict]);
    let _first = pass(&engine, &request, 0);
    assert_eq!(block(&engine, &request, 1050).id().as_str(), "strict");
    let _second = pass(&engine, &request, 1100);
}

#[test]
fn a_window_of_a_key_bounds_what_another_rule_makes_wait() {
    let slow = called(
        FlowRule::new("api", 10.0).unwrap().throttle(queue(5000)),
        "slow",
    );
    let engine = engine([called(per_key(3.0), "keyed"), slow]);
    let key = one("a");
    let request = Request::new("api").keys(&key);
    let _first = pass(&engine, &request, 0);
    let _second = wait(&engine, &request, 0, 100);
    let _third = wait(&engine, &request, 0, 200);
    let blocked = block(&engine, &request, 0);
    assert_eq!(
        (blocked.id().as_str(), retry_ms(&blocked)),
        ("keyed", Some(1050))
    );
    let other = one("b");
    let _fourth = wait(&engine, &Request::new("api").keys(&other), 0, 300);
}

#[test]
fn other_rules_with_the_same_id_and_key_go_on_where_they_are() {
    let items = |count| by().with_items([item(&[Some("gold")], count)]).unwrap();
    let with = |rule: FlowRule, by| called(rule.keyed(by).unwrap(), "keyed");
    let rule = |count| FlowRule::new("api", count).unwrap();
    let engine = engine([with(rule(2.0), items(3.0))]);
    assert_eq!(admits(&engine, &one("a"), 5, 0), 2);
    assert_eq!(admits(&engine, &one("gold"), 5, 0), 3);
    let held = with(rule(2.0), by()).concurrency();
    // A higher count, another exception, a burst, a rule before it.
    engine
        .replace(rules([rule(100.0), with(rule(3.0), items(5.0))]))
        .unwrap();
    assert_eq!(admits(&engine, &one("a"), 5, 0), 1);
    assert_eq!(admits(&engine, &one("gold"), 5, 0), 2);
    engine
        .replace(rules([with(rule(3.0), by().with_burst(2))]))
        .unwrap();
    assert_eq!(admits(&engine, &one("a"), 5, 0), 2);
    // Another key, or another number of keys: other windows.
    let path = KeyedBy::new([KeyPart::Path]).unwrap();
    engine.replace(rules([with(rule(3.0), path)])).unwrap();
    assert_eq!(admits(&engine, &one("a"), 5, 0), 3);
    let few = by().with_max_keys(5).unwrap();
    engine.replace(rules([with(rule(3.0), few)])).unwrap();
    assert_eq!(admits(&engine, &one("a"), 5, 0), 3);
    // Calls end on the rules that they began with.
    engine.replace(rules([held.clone()])).unwrap();
    let key = one("a");
    let open = pass(&engine, &Request::new("api").keys(&key), 0);
    engine.replace(rules([rule(1.0), held])).unwrap();
    assert_eq!(admits(&engine, &one("a"), 1, 0), 1);
    open.exit(Outcome::Success, at(5));
    assert_eq!(admits(&engine, &one("a"), 1, 5000), 1);
}

#[test]
fn a_rule_for_each_resource_distinguishes_resources_in_one_table() {
    let each = FlowRule::new("*", 1.0).unwrap().keyed(by()).unwrap();
    let engine = engine([each, FlowRule::new("named", 100.0).unwrap()]);
    let key = one("a");
    let enter = |resource| engine.enter(&Request::new(resource).keys(&key), at(0));
    let passes = |resource| matches!(enter(resource), Decision::Pass(_));
    assert_eq!(["x", "x", "y", "y"].map(passes), [true, false, true, false]);
    assert_eq!(["named", "named"].map(passes), [true, true]);
    let mut tables = Vec::new();
    engine
        .store()
        .for_each_keyed(|_, state| tables.push(state.states().len()));
    assert_eq!(tables, [2]);
    assert_eq!(engine.resource("x").key_parts(), [header()]);
}

#[test]
fn a_rule_may_be_for_an_origin() {
    let of = |app| per_key(1.0).for_origin(LimitApp::new(app).unwrap());
    let engine = engine([of("ops"), called(of("other"), "others")]);
    let key = one("a");
    let passes = |origin| {
        let request = Request::new("api").keys(&key).origin(origin);
        matches!(engine.enter(&request, at(0)), Decision::Pass(_))
    };
    assert_eq!(["ops", "ops"].map(passes), [true, false]);
    assert_eq!(
        ["ci", "ci", "web"].map(passes),
        [true, false, true],
        "each other one apart"
    );
    assert_eq!(["", "", ""].map(passes), [true; 3], "no origin, no rule");
    let plain = FlowRule::new("api", 0.0).unwrap();
    let plain = plain.for_origin(LimitApp::Other);
    engine.replace(rules([of("ops"), plain])).unwrap();
    // A resource that a rule with a key names is not one of the others.
    let (used, unused) = (one("a"), one("b"));
    let of_ops = |keys| Request::new("api").keys(keys).origin("ops");
    let _ = pass(&engine, &of_ops(&unused), 0);
    let blocked = block(&engine, &of_ops(&used), 0);
    assert_eq!(blocked.id().as_str(), of("ops").id().as_str());
    assert_eq!(
        block(&engine, &Request::new("api").origin("ci"), 0)
            .id()
            .as_str(),
        "api/app=other"
    );
}

#[test]
fn a_breaker_that_refuses_charges_no_key() {
    let breaker = DegradeRule::new("api", DegradeGrade::error_count(0.0).unwrap(), 1000).unwrap();
    let engine = Engine::new(Rules {
        degrade: vec![breaker.needing(1).unwrap()],
        ..rules([per_key(3.0).per(10_000, None).unwrap()])
    });
    let engine = engine.unwrap();
    let key = one("a");
    let request = Request::new("api").keys(&key);
    pass(&engine, &request, 0).exit(Outcome::Error, at(0));
    for _ in 0..9 {
        assert_eq!(
            block(&engine, &request, 500).id().as_str(),
            "api/errorCount"
        );
    }
    pass(&engine, &request, 1000).exit(Outcome::Success, at(1000));
    assert_eq!(admits(&engine, &key, 5, 1000), 1);
}

#[test]
fn standings_are_those_of_the_requests_keys_in_order() {
    let plain = || FlowRule::new("api", 9.0).unwrap();
    let minute = called(plain().per(60_000, None).unwrap(), "minute");
    let items = by().with_items([item(&[Some("gold")], 50.0)]).unwrap();
    let keyed = called(plain().keyed(items).unwrap(), "keyed");
    let engine = engine([minute, keyed, called(plain(), "second")]);
    let resource = engine.resource("api");
    let stand = |keys: &[KeyValue<'_>], now| {
        let row = |policy: leapgate::Policy<'_>| {
            (
                policy.id.to_string(),
                policy.remaining,
                policy.reset.as_millis(),
            )
        };
        resource
            .policies_for(&Request::new("api").keys(keys), at(now))
            .map(row)
            .collect::<Vec<_>>()
    };
    let expect =
        |rows: [(&str, u64, u128); 3]| rows.map(|(id, left, reset)| (id.to_string(), left, reset));
    let before = stand(&one("a"), 0);
    assert_eq!(
        before,
        expect([("minute", 9, 0), ("keyed", 9, 0), ("second", 9, 0)])
    );
    assert_eq!(admits(&engine, &one("a"), 2, 0), 2);
    let after = [
        ("minute", 7, 60_600),
        ("keyed", 7, 1050),
        ("second", 7, 1010),
    ];
    assert_eq!(stand(&one("a"), 0), expect(after));
    let gold = [("minute", 7, 60_600), ("keyed", 50, 0), ("second", 7, 1010)];
    assert_eq!(stand(&one("gold"), 0), expect(gold));
    let both = [KeyValue::Each(&[b"gold", b"a"])];
    assert_eq!(
        stand(&both, 0),
        expect(after),
        "the one of which least is left"
    );
    let ids: Vec<String> = resource
        .policies(at(0))
        .map(|policy| policy.id.to_string())
        .collect();
    assert_eq!(ids, ["minute", "second"]);
}

#[test]
fn a_seed_of_the_host_distinguishes_keys_as_well() {
    let store = Rc::new(Store::new(Seeded([4, 2])));
    let engine = Engine::with_store(store, rules([per_key(1.0)])).unwrap();
    assert_eq!(admits(&engine, &one("a"), 3, 0), 1);
    assert_eq!(admits(&engine, &one("b"), 3, 0), 1);
}

#[test]
fn a_flood_of_keys_leaves_those_that_have_a_window_alone() {
    let rule = FlowRule::new("api", 2.0).unwrap();
    let engine = engine([rule.keyed(by().with_max_keys(4).unwrap()).unwrap()]);
    assert_eq!(admits(&engine, &one("first"), 3, 0), 2);
    let admitted: usize = (0..10_000)
        .map(|i| admits(&engine, &one(&i.to_string()), 1, 0))
        .sum();
    // Three more windows, and two rows of 256 cells that all others share: each pass raises one at least.
    assert!(admitted <= 3 + 2 * 2 * 256, "{admitted}");
    assert_eq!(admits(&engine, &one("first"), 3, 1049), 0, "and no amnesty");
}

#[test]
fn every_window_mode_goes_with_a_key() {
    let modes = [Counting::Strict, Counting::Sentinel, Counting::Weighted];
    // Full at 475, in buckets of 50 ms: when half of the interval's end has gone, and at its end.
    for (counting, expected) in modes.into_iter().zip([[0, 0, 4], [0, 4, 0], [0, 2, 2]]) {
        let engine = engine([per_key(4.0).counting(counting)]);
        assert_eq!(admits(&engine, &one("a"), 9, 475), 4);
        let later = [1449, 1475, 1500].map(|now| admits(&engine, &one("a"), 9, now));
        assert_eq!(later, expected, "{counting:?}");
    }
}

/// The document of a hot-parameter rule.
fn hot(fields: &str) -> Engine {
    let json = format!(r#"{{"paramFlowRules": [{{"resource": "api", "paramIdx": 0, {fields}}}]}}"#);
    Engine::new(read(&Tree::from_json(json).unwrap()).unwrap().rules).unwrap()
}

fn number(object: &Tree, key: &str) -> Option<u64> {
    let Tree::Object(entries) = object else {
        return None;
    };
    entries.iter().find_map(|(name, value)| match value {
        Tree::Number(number) if name == key => Some(*number as u64),
        _ => None,
    })
}

/// Sentinel's bucket of tokens for a value. `ParamFlowChecker.passDefaultLocalCheck`.
struct Tokens {
    count: u64,
    most: u64,
    interval: u64,
    /// Since when, and how many are left.
    filled: Option<(u64, u64)>,
}

impl Tokens {
    fn admits(&mut self, tries: usize, now: u64) -> usize {
        (0..tries).filter(|_| self.takes(now)).count()
    }

    fn takes(&mut self, now: u64) -> bool {
        let (mut since, mut rest) = self.filled.unwrap_or((now, self.most));
        if now - since > self.interval {
            let more = (now - since) * self.count / self.interval;
            (since, rest) = (now, self.most.min(rest + more));
        }
        if rest > 0 {
            self.filled = Some((since, rest - 1));
        }
        rest > 0
    }
}

/// Sentinel's worked examples: what it admits, and what a window admits.
#[test]
fn differs_from_sentinel_hot_parameters_are_counted_in_windows() {
    type Row<'a> = (&'a str, &'a [(u64, usize, usize, usize)]);
    let rows: [Row<'_>; 6] = [
        // (when, how many try, how many Sentinel admits, how many we do)
        (r#""count": 5"#, &[(0, 6, 5, 5), (3000, 6, 5, 5)]),
        (
            r#""count": 5, "burstCount": 3"#,
            &[
                (0, 9, 8, 8),
                (1002, 9, 5, 0),
                (2004, 9, 5, 8),
                (4004, 9, 8, 8),
                (5006, 9, 5, 0),
            ],
        ),
        (
            r#""count": 5"#,
            &[
                (0, 10, 5, 5),
                (500, 10, 0, 0),
                (1000, 10, 0, 0),
                (1001, 10, 5, 0),
                (2001, 10, 0, 5),
                (2002, 10, 5, 0),
                (2003, 10, 0, 0),
                (3500, 10, 5, 5),
                (9999, 10, 5, 5),
            ],
        ),
        (
            r#""count": 5, "durationInSec": 60"#,
            &[
                (0, 6, 5, 5),
                (1000, 6, 0, 0),
                (11_000, 6, 0, 0),
                (41_000, 6, 0, 0),
                (71_000, 6, 5, 5),
            ],
        ),
        // 19 within 2 ms of Sentinel's, and of a window never more than 10 in a second.
        (
            r#""count": 10"#,
            &[
                (0, 1, 1, 1),
                (1000, 9, 9, 9),
                (1001, 10, 10, 0),
                (2050, 20, 10, 10),
            ],
        ),
        (
            r#""count": 25000"#,
            &[(0, 1, 1, 1), (86_400_000, 1, 1, 1), (259_200_000, 1, 1, 1)],
        ),
    ];
    for (fields, steps) in rows {
        let engine = hot(fields);
        let fields_of = Tree::from_json(format!("{{{fields}}}")).unwrap();
        let field = |key, default| number(&fields_of, key).unwrap_or(default);
        let count = field("count", 0);
        let mut sentinel = Tokens {
            count,
            most: count + field("burstCount", 0),
            interval: field("durationInSec", 1) * 1000,
            filled: None,
        };
        for (now, tries, sentinels, ours) in steps {
            assert_eq!(
                sentinel.admits(*tries, *now),
                *sentinels,
                "Sentinel: {fields} at {now}"
            );
            assert_eq!(
                admits(&engine, &one("a"), *tries, *now),
                *ours,
                "{fields} at {now}"
            );
        }
    }
}

#[test]
fn a_batch_takes_what_is_left_of_a_keys_window() {
    let engine = hot(r#""count": 100, "burstCount": 10"#);
    let key = one("a");
    let request = |cost| Request::new("api").keys(&key).cost(cost);
    assert_eq!(block(&engine, &request(130), 0).retry_after(), None);
    for (cost, left) in [(60, 50), (20, 30)] {
        pass(&engine, &request(cost), 5).exit(Outcome::Success, at(5));
        let resource = engine.resource("api");
        let policy = resource.policies_for(&request(1), at(5)).next().unwrap();
        assert_eq!(policy.remaining, left);
    }
}

#[test]
fn turns_without_a_queue_are_those_of_sentinel() {
    for compat in ["", r#", "compat": "sentinel""#] {
        let engine = hot(&format!(r#""count": 5, "controlBehavior": 2{compat}"#));
        let rows = [(0, 1), (199, 0), (200, 1), (350, 0), (400, 1)];
        for (now, admitted) in rows {
            assert_eq!(
                admits(&engine, &one("a"), 1, now),
                admitted,
                "at {now}{compat}"
            );
        }
    }
}

#[test]
fn the_longest_wait_of_a_key_is_one_but_to_sentinel() {
    let rows = [
        (400, "", 3),
        (400, r#", "compat": "sentinel""#, 2),
        (401, "", 3),
        (401, r#", "compat": "sentinel""#, 3),
    ];
    for (queue, compat, expected) in rows {
        let fields =
            format!(r#""count": 5, "controlBehavior": 2, "maxQueueingTimeMs": {queue}{compat}"#);
        let engine = hot(&fields);
        let key = one("a");
        let enter = |_: &i32| engine.enter(&Request::new("api").keys(&key), at(0));
        let admitted = (0..5)
            .filter(|i| !matches!(enter(i), Decision::Block(_)))
            .count();
        assert_eq!(admitted, expected, "{fields}");
    }
}

#[test]
fn differs_from_sentinel_a_negative_index_is_of_each_call() {
    let rows = [
        (0, 2, Some(0)),
        (1, 2, Some(1)),
        (2, 2, None),
        (-1, 2, Some(1)),
        (-2, 2, Some(0)),
        (-3, 2, None),
        (-1, 0, None),
        (0, 0, None),
        (i32::MIN, 5, None),
        (i32::MAX, 5, None),
    ];
    for (index, len, expected) in rows {
        assert_eq!(KeyPart::arg_of(index, len), expected, "{index} of {len}");
    }
}

fn gateway(rules: &str) -> Engine {
    let json = format!(r#"{{"gatewayFlowRules": [{rules}]}}"#);
    Engine::new(read(&Tree::from_json(json).unwrap()).unwrap().rules).unwrap()
}

#[test]
fn a_gateway_rule_is_for_values_that_match() {
    let rule = |strategy: &str, pattern: &str| {
        gateway(&format!(
            r#"{{"resource": "api", "count": 1, "paramItem": {{"parseStrategy": 2, "fieldName": "X-Tier", "pattern": "{pattern}",
               "matchStrategy": "{strategy}"}}}}"#
        ))
    };
    let cases = [
        ("exact", "gold", "gold", "golden"),
        ("contains", "ol", "gold", "gld"),
        ("prefix", "go", "gold", "ago"),
        ("regex", "v[12]", "v1", "v12"),
        ("regex", "a|ab", "ab", "abc"),
        ("regex", r"\\d+", "42", "42\n"),
    ];
    for (strategy, pattern, is_for, is_not) in cases {
        let engine = rule(strategy, pattern);
        assert_eq!(
            admits(&engine, &one(is_for), 5, 0),
            1,
            "{strategy} {pattern}"
        );
        assert_eq!(
            admits(&engine, &one(is_not), 5, 0),
            5,
            "{strategy} {pattern}"
        );
        assert_eq!(
            admits(&engine, &[KeyValue::Missing], 5, 0),
            5,
            "nothing to match"
        );
        assert_eq!(
            admits(&engine, &[KeyValue::One(b"\xff")], 5, 0),
            5,
            "no text"
        );
    }
    // A blank pattern is none.
    let engine = rule("exact", "");
    assert_eq!(admits(&engine, &one("any"), 5, 0), 1);
    assert_eq!(admits(&engine, &[KeyValue::Missing], 5, 0), 1);
}

#[test]
fn differs_from_sentinel_a_prefix_is_matched() {
    // Sentinel: `GatewayRegexCache` and `GatewayParamParser` know exact, contains and regex.
    let engine = gateway(
        r#"{"resource": "api", "count": 1, "paramItem": {"parseStrategy": 0, "pattern": "10.0.", "matchStrategy": 1}}"#,
    );
    assert_eq!(admits(&engine, &one("10.0.0.1"), 3, 0), 1);
    assert_eq!(admits(&engine, &one("10.1.0.1"), 3, 0), 3);
}

#[test]
fn differs_from_sentinel_gateway_rules_of_both_modes_apply() {
    // Sentinel: `GatewayParamParser.parseParameterFor` reads nothing where one of them is of the other mode.
    let engine = gateway(
        r#"{"resource": "api", "resourceMode": 1, "count": 1, "paramItem": {"parseStrategy": 0}},
           {"resource": "api", "resourceMode": 0, "count": 5, "paramItem": {"parseStrategy": 1}}"#,
    );
    assert_eq!(
        engine.resource("api").key_parts(),
        [KeyPart::CLIENT_IP, KeyPart::Host]
    );
    let keys = [KeyValue::One(b"10.0.0.1"), KeyValue::One(b"a.example")];
    assert_eq!(admits(&engine, &keys, 9, 0), 1);
}

#[test]
fn a_host_is_matched_in_lower_case() {
    let engine = gateway(
        r#"{"resource": "api", "count": 1, "paramItem": {"parseStrategy": "host", "pattern": "A.example"}}"#,
    );
    assert_eq!(admits(&engine, &one("a.example"), 3, 0), 1);
    assert_eq!(admits(&engine, &one("b.example"), 3, 0), 3);
}

/// The steps with keys: `h`ashed, `a`sked, `r`eserved, `g`iven back (released), `c`harged (admitted), `s`tatus read. In
/// capitals where the state had to be searched for.
type Steps = Rc<RefCell<String>>;

/// States that record the calls to them.
struct Noting(Steps);

struct Noted {
    states: KeyedWindows,
    steps: Steps,
}

impl Noted {
    fn note(&self, step: char, key: KeyHandle) {
        let step = if key.is_new() {
            step.to_ascii_uppercase()
        } else {
            step
        };
        self.steps.borrow_mut().push(step);
    }
}

impl KeyedStates for Noted {
    fn key(&self, parts: &mut dyn Iterator<Item = Option<&[u8]>>) -> Key {
        self.steps.borrow_mut().push('h');
        self.states.key(parts)
    }

    fn ask(
        &self,
        key: &mut KeyHandle,
        terms: &KeyedTerms,
        cost: u64,
        now: Timestamp,
    ) -> KeyVerdict {
        self.note('a', *key);
        self.states.ask(key, terms, cost, now)
    }

    fn reserve(
        &self,
        key: &mut KeyHandle,
        terms: &KeyedTerms,
        cost: u64,
        now: Timestamp,
    ) -> Option<Reserved> {
        self.note('r', *key);
        self.states.reserve(key, terms, cost, now)
    }

    fn release(&self, reserved: Reserved, cost: u64, now: Timestamp) {
        self.note('g', reserved.handle);
        self.states.release(reserved, cost, now);
    }

    fn admit(&self, reserved: Reserved, cost: u64) -> bool {
        self.note('c', reserved.handle);
        self.states.admit(reserved, cost)
    }

    fn leave(&self, reserved: Reserved, cost: u64) {
        self.states.leave(reserved, cost);
    }

    fn count_as(&self, counting: Counting) {
        self.states.count_as(counting);
    }

    fn status(&self, key: Key, terms: &KeyedTerms, now: Timestamp) -> KeyStatus {
        self.steps.borrow_mut().push('s');
        self.states.status(key, terms, now)
    }
}

impl Backend for Noting {
    type Counter = LocalCounter;
    type Keyed = Noted;
    type Breaker = LocalBreaker;

    fn open(&self, key: &StateKey) -> (LocalCounter, Past) {
        Local.open(key)
    }

    fn open_keyed(&self, _: &StateKey, geometry: &KeyedGeometry) -> Noted {
        Noted {
            states: KeyedWindows::new(*geometry, [1, 2]),
            steps: Rc::clone(&self.0),
        }
    }

    fn open_breaker(&self, key: &BreakerKey) -> LocalBreaker {
        Local.open_breaker(key)
    }
}

/// The steps with the keys of one request after another, and how many rules then report their status.
fn steps(flow: impl Into<Vec<FlowRule>>, keys: &[KeyValue<'_>]) -> Vec<String> {
    let steps = Steps::default();
    let engine =
        Engine::with_store(Rc::new(Store::new(Noting(Rc::clone(&steps)))), rules(flow)).unwrap();
    let request = Request::new("api").keys(keys);
    let mut rows = Vec::new();
    for _ in 0..2 {
        let _ = engine.enter(&request, at(0));
        rows.push(std::mem::take(&mut *steps.borrow_mut()));
    }
    let resource = engine.resource("api");
    let rules = resource.policies_for(&request, at(0)).count();
    rows.push(format!("{rules}: {}", steps.take()));
    rows
}

#[test]
fn a_key_is_hashed_and_searched_for_once_in_a_decision() {
    let plain = |id: &str| called(FlowRule::new("api", 9.0).unwrap(), id);
    let done = steps([per_key(1.0)], &one("gold"));
    assert_eq!(done, ["hRc", "hRa", "1: hs"]);
    // Of a list each key, and each once; the second key has no room.
    let both = [KeyValue::Each(&[b"gold", b"red", b"gold"])];
    let done = steps([per_key(1.0)], &both);
    assert_eq!(done, ["hRhRhcc", "hRhhaA", "1: hshshs"]);
    // However many rules without a key stand beside it.
    let beside = [plain("a"), per_key(1.0), plain("b"), plain("c")];
    assert_eq!(steps(beside, &one("gold")), ["hRc", "hRa", "4: hs"]);
    // A rule without a key refuses: the key is asked once more where its state was found.
    let beside = [
        called(FlowRule::new("api", 1.0).unwrap(), "a"),
        per_key(9.0),
    ];
    assert_eq!(steps(beside, &one("gold")), ["hRc", "hRga", "2: hs"]);
}
