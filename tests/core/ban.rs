//! Bans on keys that are refused too often.

use crate::support::{at, block, pass, retry_ms};
use leapgate::backend::{Seeded, Store};
use leapgate::config::{ConfigError, Value, read};
use leapgate::rule::{
    AuthorityRule, AuthorityStrategy, BanRule, Count, DegradeGrade, DegradeRule, FlowRule, KeyPart,
    KeyValue, KeyedBy, Mode, RuleError, SystemRule,
};
use leapgate::{Decision, Engine, Outcome, Request, Rules, RulesError};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

fn client() -> KeyedBy {
    KeyedBy::new([KeyPart::Header("x-client".into())]).unwrap()
}

/// Each client may pass `count` times a second.
fn limit(count: f64) -> FlowRule {
    let rule = FlowRule::new("login", count).unwrap();
    rule.keyed(client()).unwrap()
}

/// After 3 refusals in 10 s, a minute.
fn ban() -> BanRule {
    BanRule::new("login", client(), 3, 10_000, 60_000).unwrap()
}

fn engine(rules: Rules) -> Engine {
    Engine::new(rules).unwrap()
}

fn rules() -> Rules {
    Rules {
        flow: vec![limit(1.0)],
        ban: vec![ban()],
        ..Rules::default()
    }
}

/// What becomes of a request of that client: nothing, or the id of the rule that refuses it.
fn refused(engine: &Engine, client: &str, now: u64) -> Option<String> {
    let values = [KeyValue::One(client.as_bytes())];
    match engine.enter(&Request::new("login").keys(&values), at(now)) {
        Decision::Block(blocked) => Some(blocked.id().to_string()),
        Decision::Pass(entry) | Decision::Wait(_, entry) => {
            entry.exit(Outcome::Success, at(now));
            None
        }
    }
}

const BAN: &str = "login/10s/key=header:x-client/ban=60s";
const LIMIT: &str = "login/key=header:x-client";

#[test]
fn a_key_is_banned_from_its_last_refusal_that_counts_until_the_time_is_over() {
    let engine = engine(rules());
    let rows = [
        (0, None),
        (100, Some(LIMIT)),
        (200, Some(LIMIT)),
        (300, Some(LIMIT)), // the third within 10 s: from here on it is banned
        (301, Some(BAN)),
        (30_000, Some(BAN)), // prolongs nothing
        (60_299, Some(BAN)),
        (60_300, None),
        (60_301, Some(LIMIT)),
        (60_302, Some(LIMIT)),
        (62_000, None),
    ];
    for (now, expected) in rows {
        assert_eq!(refused(&engine, "a", now).as_deref(), expected, "{now} ms");
    }
    assert_eq!(refused(&engine, "b", 400), None, "another key has nothing to do with it");
}

#[test]
fn a_ban_says_how_long_it_lasts_and_is_told_as_a_limit() {
    let engine = engine(rules());
    for now in [0, 1, 2, 3] {
        refused(&engine, "a", now);
    }
    let values = [KeyValue::One(b"a")];
    let blocked = block(&engine, &Request::new("login").keys(&values), 20_003);
    assert_eq!(blocked.cause().name(), "ban");
    assert_eq!(blocked.cause().kind().status(), 429);
    assert_eq!(retry_ms(&blocked), Some(40_000));
    let mut reports = Vec::new();
    engine.for_each_precheck(|report| {
        reports.push(format!("{} {} {}", report.kind, report.id, report.blocked));
    });
    assert_eq!(reports, [format!("ban {BAN} 1")]);
}

#[test]
fn refusals_that_are_too_old_count_no_longer() {
    let engine = engine(rules());
    // Buckets of half a second: a refusal at 0 counts until 10 500.
    for now in [0, 1, 2, 10_500, 10_501] {
        refused(&engine, "a", now);
    }
    assert_eq!(refused(&engine, "a", 10_502).as_deref(), Some(LIMIT));
    assert_eq!(refused(&engine, "a", 10_503).as_deref(), Some(LIMIT));
    assert_eq!(refused(&engine, "a", 10_504).as_deref(), Some(BAN));
}

#[test]
fn what_a_breaker_or_the_machine_refuses_bans_no_client() {
    let grade = DegradeGrade::error_count(1.0).unwrap();
    let engine = engine(Rules {
        flow: vec![limit(100.0)],
        ban: vec![BanRule::new("login", client(), 1, 10_000, 60_000).unwrap()],
        degrade: vec![DegradeRule::new("login", grade, 5000).unwrap().needing(1).unwrap()],
        system: vec![SystemRule::new().with_qps(0.0).unwrap()],
        ..Rules::default()
    });
    let values = [KeyValue::One(b"a")];
    let request = || Request::new("login").keys(&values);
    assert_eq!(block(&engine, &request().inbound(), 0).cause().name(), "system");
    for _ in 0..2 {
        pass(&engine, &request(), 1).exit(Outcome::Error, at(1));
    }
    assert_eq!(block(&engine, &request(), 2).cause().name(), "degrade");
    pass(&engine, &request(), 5001).exit(Outcome::Success, at(5001));
}

#[test]
fn an_origin_that_may_not_enter_is_banned_for_trying() {
    let authority = AuthorityRule::new("login", "shop", AuthorityStrategy::White).unwrap();
    let engine = engine(Rules {
        authority: vec![authority],
        ban: vec![ban()],
        ..Rules::default()
    });
    let values = [KeyValue::One(b"a")];
    let of = |origin| Request::new("login").keys(&values).origin(origin);
    for now in [0, 1, 2] {
        assert_eq!(block(&engine, &of("thief"), now).cause().name(), "authority");
    }
    assert_eq!(block(&engine, &of("shop"), 3).cause().name(), "ban");
}

#[test]
fn in_shadow_mode_it_refuses_nothing_and_counts_what_it_would_have() {
    let engine = engine(Rules {
        ban: vec![ban().in_mode(Mode::Shadow)],
        ..rules()
    });
    for now in [0, 1, 2, 3] {
        refused(&engine, "a", now);
    }
    assert_eq!(refused(&engine, "a", 2000), None);
    let mut reports = Vec::new();
    engine.for_each_precheck(|report| reports.push((report.blocked, report.shadow_blocked)));
    assert_eq!(reports, [(0, 1)]);
}

#[test]
fn a_reload_keeps_bans_and_what_was_counted() {
    let engine = engine(rules());
    for now in [0, 1, 2, 3] {
        refused(&engine, "a", now);
    }
    for now in [10, 11, 12] {
        refused(&engine, "b", now);
    }
    engine
        .replace(Rules {
            flow: vec![limit(1.0), FlowRule::new("other", 1.0).unwrap()],
            ..rules()
        })
        .unwrap();
    assert_eq!(refused(&engine, "a", 20).as_deref(), Some(BAN));
    assert_eq!(refused(&engine, "b", 20).as_deref(), Some(LIMIT));
    assert_eq!(refused(&engine, "b", 21).as_deref(), Some(BAN));
    engine.replace(Rules { ban: vec![], ..rules() }).unwrap();
    assert_eq!(refused(&engine, "a", 2000), None);
}

#[test]
fn a_ban_and_a_limit_of_one_id_share_nothing() {
    let id = || leapgate::rule::RuleId::new("same").unwrap();
    let limit = FlowRule::new("login", 3.0).unwrap().keyed(client()).unwrap();
    let engine = engine(Rules {
        flow: vec![limit.per(10_000, None).unwrap().with_id(id())],
        ban: vec![ban().with_id(id())],
        ..Rules::default()
    });
    for now in [0, 1, 2] {
        assert_eq!(refused(&engine, "a", now), None);
    }
    assert_eq!(refused(&engine, "a", 3).as_deref(), Some("same"));
    assert_eq!(refused(&engine, "a", 10_502), None, "one refusal is no ban");
}

#[test]
fn of_several_keys_each_is_counted_once_and_banned_by_itself() {
    let engine = engine(rules());
    let send = |values: &[&[u8]], now| {
        let values = [KeyValue::Each(values)];
        match engine.enter(&Request::new("login").keys(&values), at(now)) {
            Decision::Block(blocked) => blocked.cause().name(),
            _ => "pass",
        }
    };
    assert_eq!(send(&[b"a", b"b"], 0), "pass");
    assert_eq!(send(&[b"a", b"a"], 1), "flow");
    assert_eq!(send(&[b"a"], 2), "flow");
    assert_eq!(send(&[b"a", b"b"], 3), "flow");
    assert_eq!(send(&[b"c", b"a"], 4), "ban");
    assert_eq!(send(&[b"b"], 5), "flow");
    assert_eq!(send(&[b"c"], 5), "pass");
}

/// The definition, with a log of refusals: the window is the one of a strict rule, of 20 buckets and the one that is leaving.
#[test]
fn bans_begin_and_end_as_a_naive_log_says() {
    let (count, interval, banned_for) = (4, 1000, 3000);
    for seed in 0..60 {
        let mut random = fastrand::Rng::with_seed(seed);
        let store = Rc::new(Store::new(Seeded([seed, 7])));
        let flow = limit(2.0);
        let ban = BanRule::new("login", client(), count, interval, banned_for).unwrap();
        let rules = Rules {
            flow: vec![flow],
            ban: vec![ban],
            ..Rules::default()
        };
        let engine = Engine::with_store(store, rules).unwrap();
        let mut refusals: BTreeMap<u8, VecDeque<u64>> = BTreeMap::new();
        let mut until: BTreeMap<u8, u64> = BTreeMap::new();
        let mut now = 0;
        for step in 0..600 {
            now += random.u64(..250);
            let key = random.u8(..3);
            let (bytes, mut kind) = ([key], "pass");
            let values = [KeyValue::One(&bytes)];
            match engine.enter(&Request::new("login").keys(&values), at(now)) {
                Decision::Block(blocked) => kind = blocked.cause().name(),
                Decision::Pass(entry) | Decision::Wait(_, entry) => {
                    entry.exit(Outcome::Success, at(now));
                }
            }
            let is_banned = until.get(&key).is_some_and(|until| now < *until);
            assert_eq!(kind == "ban", is_banned, "seed {seed}, step {step}, {now} ms");
            if kind == "flow" {
                let log = refusals.entry(key).or_default();
                log.push_back(now);
                let bucket = interval / 20;
                let counts = |then: &&u64| now / bucket - **then / bucket <= 20;
                if log.iter().filter(counts).count() >= count as usize {
                    until.insert(key, now + banned_for);
                }
            }
        }
        assert!(!until.is_empty(), "seed {seed}");
    }
}

#[test]
fn a_flood_of_made_up_keys_bans_no_client_that_was_never_refused() {
    for max_keys in [1, 16, 1000] {
        let by = client().with_max_keys(max_keys).unwrap();
        let engine = engine(Rules {
            flow: vec![limit(1.0)],
            ban: vec![BanRule::new("login", by, 2, 10_000, 60_000).unwrap()],
            ..Rules::default()
        });
        for number in 0..3 * max_keys {
            for _ in 0..4 {
                refused(&engine, &format!("made up {number}"), 0);
            }
        }
        let bans = |name: &str, now| {
            let keys = (0..3 * max_keys).map(|number| format!("{name} {number}"));
            keys.filter(|key| refused(&engine, key, now).is_some())
                .count()
        };
        // Keys beyond the bound are limited, and not banned; one refusal is no ban for a client either.
        assert_eq!(bans("honest", 1), 0, "{max_keys} keys");
        assert_eq!(bans("honest", 5000), 0, "{max_keys} keys");
        let banned = bans("made up", 5001);
        assert!(
            (1..=max_keys).contains(&banned),
            "{banned} of {max_keys} keys"
        );
    }
}

#[test]
fn a_ban_that_is_not_valid_is_refused() {
    let new = |count, interval_ms, ban_ms| {
        BanRule::new("login", client(), count, interval_ms, ban_ms).map(|_| ())
    };
    assert_eq!(
        new(0, 1000, 1000),
        Err(RuleError::OutOfRange {
            number: 0,
            least: 1,
            most: u32::MAX.into()
        })
    );
    assert!(new(1, 0, 1000).is_err());
    assert!(new(1, 1000, 0).is_err());
    assert!(BanRule::new("", client(), 1, 1000, 1000).is_err());
    assert!(Count::new(f64::from(u32::MAX)).is_ok());
    let twice = Engine::new(Rules {
        ban: vec![ban(), BanRule::new("login", client(), 9, 10_000, 60_000).unwrap()],
        ..Rules::default()
    });
    let error = twice.err().unwrap();
    assert!(matches!(&error, RulesError::SameId { list: "banRules", index: 1, .. }));
}

fn document(ban: &str) -> Result<Rules, ConfigError> {
    let document = format!(r#"{{"banRules": [{ban}]}}"#);
    read(&Value::from_json(&document)?).map(|document| document.rules)
}

#[test]
fn a_document_says_the_same() {
    let read = document(r#"{"resource": "login", "key": [{"header": "X-Client"}], "count": 3, "intervalMs": 10000, "banSec": 60}"#);
    assert_eq!(read.unwrap().ban, [ban()]);
    let read = document(r#"{"id": "b", "resource": "*", "key": ["clientIp"], "maxKeys": 10, "count": 1, "banSec": 2, "mode": "shadow"}"#);
    let key = KeyedBy::new([KeyPart::CLIENT_IP]).unwrap().with_max_keys(10).unwrap();
    let expected = BanRule::new("*", key, 1, 1000, 2000).unwrap();
    let expected = expected.with_id(leapgate::rule::RuleId::new("b").unwrap());
    assert_eq!(read.unwrap().ban, [expected.in_mode(Mode::Shadow)]);
    let fields = [
        (r#""key": ["clientIp"], "count": 1, "banSec": 1"#, "banRules[0]: `resource` is missing; add it"),
        (r#""resource": "a", "count": 1, "banSec": 1"#, "banRules[0]: `key` is missing; add it"),
        (r#""resource": "a", "key": ["clientIp"], "banSec": 1"#, "banRules[0]: `count` is missing; add it"),
        (r#""resource": "a", "key": ["clientIp"], "count": 1"#, "banRules[0]: `banSec` is missing; add it"),
        (
            r#""resource": "", "key": ["clientIp"], "count": 1, "banSec": 1"#,
            "banRules[0].resource: `` is not a valid name; use 1 to 256 bytes",
        ),
        (
            r#""resource": "a", "key": [], "count": 1, "banSec": 1"#,
            "banRules[0].key: `[…]` is not a valid key; use 1 to 8 parts",
        ),
        (
            r#""resource": "a", "key": ["clientIp"], "count": 0, "banSec": 1"#,
            "banRules[0].count: `0` is not possible; use a whole number from 1 to 4294967295",
        ),
        (
            r#""resource": "a", "key": ["clientIp"], "count": 1, "banSec": 0.5"#,
            "banRules[0].banSec: `0.5` is not possible; use a whole number from 1 to 315360000",
        ),
        (
            r#""resource": "a", "key": ["clientIp"], "count": 1, "intervalMs": 0, "banSec": 1"#,
            "banRules[0].intervalMs: `0` is not possible; use a whole number from 1 to 315360000000",
        ),
        (
            r#""resource": "a", "key": ["clientIp"], "count": 1, "burst": 1, "banSec": 1"#,
            "banRules[0]: `burst` is not a known key; use one of `id`, `resource`, `key`, `maxKeys`, `count`, `intervalMs`, `banSec`, `mode`",
        ),
    ];
    for (fields, sentence) in fields {
        let error = document(&format!("{{{fields}}}")).unwrap_err();
        assert_eq!(error.to_string(), sentence, "{fields}");
    }
}
