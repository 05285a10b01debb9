//! Rules with a key that refuse a share of the keys, and only count the others.

use crate::support::{at, block, pass};
use fastrand::Rng;
use leapgate::backend::{Seeded, Store};
use leapgate::config::{Value, read};
use leapgate::rule::{FlowRule, KeyPart, KeyValue, KeyedBy, MaxQueueing, Mode, Ratio, RuleId};
use leapgate::{Decision, Engine, Outcome, Request, Rules};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

const CLIENTS: u64 = 1000;

fn by(percent: f64) -> KeyedBy {
    let by = KeyedBy::new([KeyPart::Header("x-client".into())]).unwrap();
    by.enforced_for(Ratio::new(percent / 100.0).unwrap())
}

fn login(count: f64, percent: f64) -> FlowRule {
    let rule = FlowRule::new("login", count).unwrap().keyed(by(percent)).unwrap();
    rule.per(60_000, None).unwrap().with_id(RuleId::new("clients").unwrap())
}

fn rules(flow: FlowRule) -> Rules {
    Rules { flow: vec![flow], ..Rules::default() }
}

/// An engine whose hash has that seed.
fn engine(seed: u64, flow: FlowRule) -> Engine<Seeded> {
    Engine::with_store(Rc::new(Store::new(Seeded([seed, 7]))), rules(flow)).unwrap()
}

fn clients() -> impl Iterator<Item = String> {
    (0..CLIENTS).map(|number| format!("client {number}"))
}

/// Those of the clients whose requests are refused by a count of 0.
fn refused(engine: &Engine<Seeded>) -> BTreeSet<String> {
    let is_refused = |client: &String| {
        let keys = [KeyValue::One(client.as_bytes())];
        matches!(engine.enter(&Request::new("login").keys(&keys), at(0)), Decision::Block(_))
    };
    clients().filter(is_refused).collect()
}

/// How the rule has decided: passed, refused, would have refused.
fn decisions(engine: &Engine<Seeded>) -> (u64, u64, u64) {
    let mut found = (0, 0, 0);
    engine.store().for_each_keyed(|_, state| {
        found = (state.passed(), state.blocked(), state.shadow_blocked());
    });
    found
}

#[test]
fn a_larger_share_has_all_keys_of_a_smaller_one() {
    for seed in 0..3 {
        let mut smaller = BTreeSet::new();
        for percent in [0.0, 0.01, 1.0, 10.0, 12.5, 50.0, 99.0, 99.99, 100.0] {
            let engine = engine(seed, login(0.0, percent));
            let refused = refused(&engine);
            assert!(refused.is_superset(&smaller), "seed {seed}, {percent} %");
            let wanted = CLIENTS as f64 * percent / 100.0;
            let off = (refused.len() as f64 - wanted).abs();
            // Four standard deviations.
            let most = 4.0 * (wanted * (1.0 - percent / 100.0)).sqrt();
            assert!(off <= most, "seed {seed}, {percent} %: {} keys", refused.len());
            let blocked = refused.len() as u64;
            assert_eq!(decisions(&engine), (0, blocked, CLIENTS - blocked));
            smaller = refused;
        }
        assert_eq!(smaller.len() as u64, CLIENTS);
    }
}

#[test]
fn the_keys_are_the_same_wherever_the_seed_is_and_after_each_update() {
    let (one, two) = (engine(3, login(0.0, 30.0)), engine(3, login(0.0, 30.0)));
    let refused_by_one = refused(&one);
    assert_eq!(refused(&two), refused_by_one, "another worker");
    one.replace(rules(login(5.0, 60.0))).unwrap();
    one.replace(rules(login(0.0, 30.0))).unwrap();
    assert_eq!(refused(&one), refused_by_one, "another configuration");
    assert_ne!(refused(&engine(4, login(0.0, 30.0))), refused_by_one, "another seed");
}

#[test]
fn an_update_of_the_share_goes_on_with_what_was_counted() {
    let engine = engine(1, login(1.0, 0.0));
    let client = clients().next().unwrap();
    let keys = [KeyValue::One(client.as_bytes())];
    let request = || Request::new("login").keys(&keys);
    for now in 0..3 {
        drop(pass(&engine, &request(), now));
    }
    assert_eq!(decisions(&engine), (1, 0, 2));
    engine.replace(rules(login(1.0, 100.0))).unwrap();
    assert_eq!(block(&engine, &request(), 3).id().as_str(), "clients");
    engine.replace(rules(login(1.0, 100.0).in_mode(Mode::Shadow))).unwrap();
    drop(pass(&engine, &request(), 4));
    assert_eq!(decisions(&engine), (1, 1, 3));
}

#[test]
fn a_throttle_lets_only_its_share_wait() {
    let queue = MaxQueueing::from_millis(60_000).unwrap();
    let refusing = refused(&engine(2, login(0.0, 40.0)));
    let throttle = engine(2, login(60.0, 40.0).throttle(queue));
    for client in clients().take(50) {
        let keys = [KeyValue::One(client.as_bytes())];
        let request = Request::new("login").keys(&keys);
        drop(pass(&throttle, &request, 0));
        let waits = matches!(throttle.enter(&request, at(0)), Decision::Wait(..));
        assert_eq!(waits, refusing.contains(&client));
    }
}

#[test]
fn too_many_keys_are_refused_unless_no_key_is() {
    let values: Vec<Vec<u8>> = (0..257_u32).map(|n| n.to_le_bytes().to_vec()).collect();
    let values: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
    let keys = [KeyValue::Each(&values)];
    let request = || Request::new("login").keys(&keys);
    block(&engine(1, login(9.0, 0.1)), &request(), 0);
    drop(pass(&engine(1, login(9.0, 0.0)), &request(), 0));
}

#[test]
fn a_refund_is_for_the_keys_that_are_refused() {
    let refusing = refused(&engine(5, login(0.0, 50.0)));
    let engine = engine(5, login(1.0, 50.0));
    for client in clients().take(50) {
        let keys = [KeyValue::One(client.as_bytes())];
        let request = || Request::new("login").keys(&keys);
        drop(pass(&engine, &request(), 0));
        let second = engine.enter(&request(), at(1));
        let is_refused = refusing.contains(&client);
        assert_eq!(matches!(second, Decision::Block(_)), is_refused);
        if let Decision::Pass(entry) = second {
            // It was let through and not charged, so nothing comes back.
            entry.exit_uncounted(&keys, Outcome::Success, at(2));
            let resource = engine.resource("login");
            let request = request();
            let left = resource.policies_for(&request, at(2)).next().unwrap().remaining;
            assert_eq!(left, 0);
        }
    }
}

/// Requests with one or two keys, under a rule of which a share of keys is refused, against a log: a request passes if each
/// of its keys that is refused has room, and then counts for these; for the others if they all have room.
#[test]
fn keys_of_both_kinds_are_decided_as_by_two_rules() {
    for seed in 0..40 {
        let mut rng = Rng::with_seed(seed);
        let refusing = refused(&engine(seed, login(0.0, 50.0)));
        let limit = rng.u64(1..4);
        let engine = engine(seed, login(limit as f64, 50.0));
        let mut used: BTreeMap<String, u64> = BTreeMap::new();
        for now in 0..60 {
            let names: BTreeSet<String> =
                (0..rng.usize(1..4)).map(|_| format!("client {}", rng.u8(..8))).collect();
            let values: Vec<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
            let keys = [KeyValue::Each(&values)];
            let has_room = |name: &String| used.get(name).copied().unwrap_or(0) < limit;
            let (enforced, shadow): (Vec<&String>, Vec<&String>) =
                names.iter().partition(|name| refusing.contains(*name));
            let passes = enforced.iter().all(|name| has_room(name));
            let counted = passes && shadow.iter().all(|name| has_room(name));
            let request = Request::new("login").keys(&keys);
            let decided = engine.enter(&request, at(now));
            assert_eq!(matches!(decided, Decision::Pass(_)), passes, "seed {seed} at {now}");
            for name in enforced.into_iter().filter(|_| passes) {
                *used.entry(name.clone()).or_default() += 1;
            }
            for name in shadow.into_iter().filter(|_| counted) {
                *used.entry(name.clone()).or_default() += 1;
            }
        }
    }
}

#[test]
fn a_document_says_which_percentage() {
    let flow = |fields: &str| {
        let json = format!(r#"{{"flowRules": [{{"resource": "login", "count": 1, {fields}}}]}}"#);
        let tree = Value::from_json(json).unwrap();
        read(&tree).map(|document| document.rules.flow).map_err(|error| error.to_string())
    };
    let key = r#""key": [{"header": "x-client"}]"#;
    let of = |percent| FlowRule::new("login", 1.0).unwrap().keyed(by(percent)).unwrap();
    for (given, percent) in [("0", 0.0), ("12.5", 12.5), ("100", 100.0), ("null", 100.0)] {
        let read = flow(&format!(r#"{key}, "enforcePercent": {given}"#)).unwrap();
        assert_eq!(read, [of(percent)]);
        assert_eq!(read[0].id().as_str(), "login/key=header:x-client");
        let share = read[0].keyed_by().unwrap().enforced_share();
        assert_eq!(share.get(), percent / 100.0);
    }
    let range = "is not a valid percentage; use a number from 0 to 100";
    let rows = [
        (format!(r#"{key}, "enforcePercent": 101"#), format!("`101` {range}")),
        (format!(r#"{key}, "enforcePercent": -1"#), format!("`-1` {range}")),
        (format!(r#"{key}, "enforcePercent": "50""#), "`50` is a string; use a number".into()),
        (r#""enforcePercent": 50"#.into(), "`50` means nothing without a `key`; add one, or leave it out".into()),
    ];
    for (fields, fault) in rows {
        assert_eq!(flow(&fields), Err(format!("flowRules[0].enforcePercent: {fault}")));
    }
}
