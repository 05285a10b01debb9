//! Rules whose limit is one for all machines: what the engine asks of leased permits, and what it does with their answers.

use crate::support::{at, block, pass, retry_ms, rule, rules};
use leapgate::backend::{
    Backend, BreakerKey, KeyedGeometry, KeyedWindows, Leased, Leasing, Local, LocalBreaker,
    LocalCounter, NotLeased, Past, StateKey, Store,
};
use leapgate::lease::{Taken, WhenDown};
use leapgate::rule::{ClusterConfig, FlowRule, KeyPart, KeyValue, KeyedBy, Mode};
use leapgate::stats::Node as _;
use leapgate::{Blocked, Engine, Outcome, Request, Rules, Timestamp};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

/// The permits of all rules by the name of their key, and what was asked of them. A key without an answer waits.
#[derive(Clone, Default)]
struct Permits(Rc<RefCell<Known>>);

#[derive(Default)]
struct Known {
    answers: HashMap<String, Answer>,
    said: Vec<String>,
}

#[derive(Clone, Copy)]
enum Answer {
    Left(u64),
    Refused(Option<u64>),
}

impl Permits {
    fn answer(&self, key: &str, answer: Answer) {
        self.0.borrow_mut().answers.insert(key.into(), answer);
    }

    fn left(&self, key: &str) -> u64 {
        match self.0.borrow().answers[key] {
            Answer::Left(left) => left,
            Answer::Refused(_) => 0,
        }
    }

    /// What was said since the last call.
    fn said(&self) -> Vec<String> {
        std::mem::take(&mut self.0.borrow_mut().said)
    }
}

/// The permits of one rule.
struct OfRule(Permits, String);

impl OfRule {
    fn key(&self, key: &[u8]) -> String {
        format!("{}{}", self.1, std::str::from_utf8(key).unwrap())
    }

    fn say(&self, what: String) {
        self.0.0.borrow_mut().said.push(what);
    }
}

impl Leased for OfRule {
    fn take(&self, key: &[u8], cost: u64, now: Timestamp, waits: bool) -> Taken {
        let key = self.key(key);
        let gives_up = if waits { "" } else { ", gives up" };
        self.say(format!("take {cost} of {key} at {}{gives_up}", now.as_millis()));
        match self.0.0.borrow_mut().answers.get_mut(&key) {
            Some(Answer::Left(left)) if *left >= cost => {
                *left -= cost;
                Taken::Pass { remaining: *left }
            }
            Some(Answer::Refused(millis)) => Taken::Refuse {
                retry_after: millis.map(Duration::from_millis),
            },
            _ if waits => Taken::Wait,
            _ => Taken::Pass { remaining: 0 },
        }
    }

    fn give_back(&self, key: &[u8], cost: u64, now: Timestamp) {
        let key = self.key(key);
        self.say(format!("give back {cost} of {key} at {}", now.as_millis()));
        if let Some(Answer::Left(left)) = self.0.0.borrow_mut().answers.get_mut(&key) {
            *left += cost;
        }
    }

    fn change(&self, limit: u64, when_down: Option<WhenDown>) {
        self.say(format!("{} is {limit} now, {when_down:?}", self.1));
    }
}

impl Backend for Permits {
    type Counter = LocalCounter;
    type Keyed = KeyedWindows;
    type Breaker = LocalBreaker;

    fn open(&self, key: &StateKey) -> (LocalCounter, Past) {
        Local.open(key)
    }

    fn open_keyed(&self, key: &StateKey, geometry: &KeyedGeometry) -> KeyedWindows {
        Local.open_keyed(key, geometry)
    }

    fn open_breaker(&self, key: &BreakerKey) -> LocalBreaker {
        Local.open_breaker(key)
    }

    fn lease(&self, key: &StateKey, leasing: &Leasing<'_>) -> Result<Rc<dyn Leased>, NotLeased> {
        let Leasing { name, terms, when_down, max_keys } = leasing;
        let (limit, interval, buckets) = (terms.limit(), terms.interval_ms(), terms.buckets());
        let of_rule = OfRule(self.clone(), (*name).to_owned());
        let rule = &key.rule;
        of_rule.say(format!(
            "{rule} leases {name}: {limit} in {interval} ms of {buckets}, {when_down:?}, {max_keys} keys"
        ));
        Ok(Rc::new(of_rule))
    }
}

fn leased(id: &str, resource: &str, limit: f64) -> FlowRule {
    rule(id, resource, limit).in_cluster(ClusterConfig::new())
}

fn fleet(rules: Rules) -> (Permits, Engine<Permits>) {
    let permits = Permits::default();
    let store = Rc::new(Store::new(permits.clone()));
    let engine = Engine::with_store(store, rules).unwrap();
    (permits, engine)
}

/// The same, after the rules have been opened.
fn opened(flow: impl Into<Vec<FlowRule>>) -> (Permits, Engine<Permits>) {
    let (permits, engine) = fleet(rules(flow));
    permits.said();
    (permits, engine)
}

/// Enters, and expects to wait for the store.
#[track_caller]
fn awaits(engine: &Engine<Permits>, request: &Request<'_>, now: u64) -> Blocked {
    let blocked = block(engine, request, now);
    assert!(blocked.awaits_store(), "{blocked:?}");
    assert_eq!(blocked.cost(), None);
    blocked
}

/// Enters, and expects to be refused.
#[track_caller]
fn refused(engine: &Engine<Permits>, request: &Request<'_>, now: u64) -> Blocked {
    let blocked = block(engine, request, now);
    assert!(!blocked.awaits_store(), "{blocked:?}");
    blocked
}

fn login() -> Request<'static> {
    Request::new("login")
}

fn client(text: &[u8]) -> [KeyValue<'_>; 1] {
    [KeyValue::One(text)]
}

fn by(part: KeyPart) -> KeyedBy {
    KeyedBy::new([part]).unwrap()
}

fn header(name: &str) -> KeyPart {
    KeyPart::Header(name.into())
}

#[test]
fn a_rule_says_what_it_leases() {
    let of = |cluster: ClusterConfig| rule("a", "login", 100.0).in_cluster(cluster);
    let cluster = ClusterConfig::new;
    let cases = [
        (of(cluster()), "a leases a: 100 in 1000 ms of 100, None, 100000 keys"),
        (
            of(cluster().with_flow_id(7).unwrap().with_fallback(true)),
            "a leases 7: 100 in 1000 ms of 100, Some(Local), 100000 keys",
        ),
        (
            of(cluster().with_fallback(false)).per(60_000, Some(60)).unwrap(),
            "a leases a: 100 in 60000 ms of 60, Some(Pass), 100000 keys",
        ),
        (
            of(cluster()).keyed(by(KeyPart::CLIENT_IP).with_max_keys(500).unwrap()).unwrap(),
            "a leases a: 100 in 1000 ms of 20, None, 500 keys",
        ),
        (
            FlowRule::new("login", 2.5).unwrap().in_cluster(cluster()),
            "login leases login: 2 in 1000 ms of 100, None, 100000 keys",
        ),
    ];
    for (rule, said) in cases {
        let (permits, engine) = fleet(rules([rule]));
        assert_eq!(permits.said(), [said]);
        assert_eq!(engine.warnings(), [""; 0]);
    }
}

#[test]
fn a_leased_rule_admits_by_its_permits_alone() {
    let (permits, engine) = opened([leased("a", "login", 1.0)]);
    permits.answer("a", Answer::Left(3));
    for now in [0, 0, 5] {
        pass(&engine, &login(), now).exit(Outcome::Success, at(now));
    }
    permits.answer("a", Answer::Refused(Some(40)));
    let blocked = refused(&engine, &login(), 6);
    assert_eq!(
        (blocked.id().as_str(), retry_ms(&blocked), blocked.cost()),
        ("a", Some(40), Some(1))
    );
    assert_eq!(
        permits.said(),
        ["take 1 of a at 0", "take 1 of a at 0", "take 1 of a at 5", "take 1 of a at 6"]
    );
}

#[test]
fn a_known_refusal_is_not_asked_again_before_its_time() {
    let (permits, engine) = opened([leased("a", "login", 10.0)]);
    permits.answer("a", Answer::Refused(Some(40)));
    let two = || login().cost(2);
    assert_eq!(retry_ms(&refused(&engine, &two(), 100)), Some(40));
    permits.answer("a", Answer::Left(1));
    assert_eq!(retry_ms(&refused(&engine, &two(), 139)), Some(1));
    assert_eq!(retry_ms(&refused(&engine, &two().cost(3), 139)), Some(1));
    assert_eq!(permits.said(), ["take 2 of a at 100"]);
    let _entry = pass(&engine, &login(), 139); // one that costs less may pass
    permits.answer("a", Answer::Refused(None));
    assert_eq!(retry_ms(&refused(&engine, &login(), 140)), None);
    assert_eq!(retry_ms(&refused(&engine, &login(), 1_000_000)), None);
    assert_eq!(permits.said(), ["take 1 of a at 139", "take 1 of a at 140"]);
}

#[test]
fn a_request_that_finds_no_permits_awaits_the_store_and_counts_nowhere() {
    let local = rule("b", "login", 1.0);
    let shadow = rule("c", "login", 0.0).in_mode(Mode::Shadow);
    let (permits, engine) = opened([leased("a", "login", 10.0), local, shadow]);
    for now in 0..9 {
        assert_eq!(awaits(&engine, &login(), now).id().as_str(), "a");
    }
    permits.answer("a", Answer::Left(1));
    let entry = pass(&engine, &login(), 9); // nothing was charged
    entry.exit(Outcome::Success, at(9));
    let tree = engine.store().tree().unwrap().cluster("login").unwrap();
    assert_eq!(tree.statistics().block_qps(at(9)), 0.0);
    let mut counts = Vec::new();
    engine.store().for_each_unkeyed(|key, state| {
        counts.push((key.rule.to_string(), state.passed(), state.blocked(), state.shadow_blocked()));
    });
    counts.sort();
    assert_eq!(counts, [("b".into(), 1, 0, 0), ("c".into(), 0, 0, 1)]);
    engine.store().for_each_lease(|key, state| {
        assert_eq!((key.rule.as_str(), state.passed(), state.blocked()), ("a", 1, 0));
    });
}

#[test]
fn a_request_that_gives_up_on_the_store_is_decided_by_the_permits() {
    let (permits, engine) = opened([leased("a", "login", 10.0)]);
    awaits(&engine, &login(), 0);
    let _entry = pass(&engine, &login().impatient_for_store(), 20);
    permits.answer("a", Answer::Refused(Some(200)));
    let blocked = refused(&engine, &login().impatient_for_store(), 21);
    assert_eq!(retry_ms(&blocked), Some(200));
    assert_eq!(
        permits.said(),
        ["take 1 of a at 0", "take 1 of a at 20, gives up", "take 1 of a at 21, gives up"]
    );
    permits.answer("a", Answer::Left(0));
    awaits(&engine, &login(), 300); // each request says it for itself
}

#[test]
fn nothing_is_taken_for_a_request_that_another_rule_refuses() {
    let (permits, engine) = opened([leased("a", "login", 10.0), rule("b", "login", 0.0)]);
    permits.answer("a", Answer::Left(5));
    assert_eq!(refused(&engine, &login(), 0).id().as_str(), "b");
    assert_eq!(permits.said(), [""; 0]);
    let keyed = rule("b", "login", 0.0).keyed(by(header("x"))).unwrap();
    let (permits, engine) = opened([leased("a", "login", 10.0), keyed]);
    permits.answer("a", Answer::Left(5));
    assert_eq!(refused(&engine, &login(), 0).id().as_str(), "b");
    assert_eq!(permits.said(), [""; 0]);
}

#[test]
fn a_refusal_by_permits_charges_no_other_rule() {
    let keyed = || rule("k", "login", 1.0).keyed(by(header("x"))).unwrap();
    let all = [rule("u", "login", 1.0), keyed(), leased("a", "login", 9.0), leased("b", "login", 9.0)];
    let (permits, engine) = opened(all);
    permits.answer("a", Answer::Left(9));
    permits.answer("b", Answer::Refused(Some(7)));
    let blocked = refused(&engine, &login(), 0);
    assert_eq!((blocked.id().as_str(), retry_ms(&blocked)), ("b", Some(7)));
    assert_eq!(
        permits.said(),
        ["take 1 of a at 0", "take 1 of b at 0", "give back 1 of a at 0"]
    );
    permits.answer("b", Answer::Left(9));
    let _entry = pass(&engine, &login(), 7);
    assert_eq!((permits.left("a"), permits.left("b")), (8, 8));
    assert_eq!(refused(&engine, &login(), 8).id().as_str(), "u");
}

#[test]
fn a_request_that_waits_for_one_store_asks_the_others_and_takes_nothing() {
    let (permits, engine) = opened([leased("a", "login", 9.0), leased("b", "login", 9.0)]);
    permits.answer("b", Answer::Left(9));
    assert_eq!(awaits(&engine, &login(), 0).id().as_str(), "a");
    assert_eq!(
        permits.said(),
        ["take 1 of a at 0", "take 1 of b at 0", "give back 1 of b at 0"]
    );
    permits.answer("b", Answer::Refused(Some(5)));
    assert_eq!(refused(&engine, &login(), 1).id().as_str(), "b"); // a refusal needs no wait
}

#[test]
fn the_first_rule_of_the_document_that_refuses_is_named() {
    let orders = [
        ([leased("a", "login", 9.0), rule("b", "login", 0.0)], "a"),
        ([rule("b", "login", 0.0), leased("a", "login", 9.0)], "b"),
    ];
    for (order, first) in orders {
        let (permits, engine) = opened([&order[..], &[rule("c", "pay", 1.0)]].concat());
        permits.answer("a", Answer::Refused(Some(3000)));
        // The permits are asked by a request that only they refuse.
        engine.replace(rules([leased("a", "login", 9.0)])).unwrap();
        assert_eq!(retry_ms(&refused(&engine, &login(), 0)), Some(3000));
        engine.replace(rules(order)).unwrap();
        let blocked = refused(&engine, &login(), 1000);
        assert_eq!((blocked.id().as_str(), retry_ms(&blocked)), (first, None));
        permits.said();
    }
}

#[test]
fn a_keys_name_at_the_store_is_made_of_its_parts_as_text() {
    let two = KeyedBy::new([KeyPart::CLIENT_IP, header("x-tenant")]).unwrap();
    let (permits, engine) = opened([leased("a", "login", 9.0).keyed(two).unwrap()]);
    let cases: [(&[u8], KeyValue<'_>, &str); 6] = [
        (b"203.0.113.7:4711", KeyValue::One(b"shop"), "a:203.0.113.7:shop"),
        (b"::ffff:203.0.113.7", KeyValue::One(b""), "a:203.0.113.7:"),
        (b"[2001:db8::1]:80", KeyValue::Missing, "a:2001%3Adb8%3A%3A/64:%"),
        (b"2001:db8:0:0:1::", KeyValue::One(b"%"), "a:2001%3Adb8%3A%3A/64:%25"),
        (b"unix", KeyValue::One(b"a:b"), "a:unix:a%3Ab"),
        ("münchen".as_bytes(), KeyValue::Each(&[]), "a:münchen:%"),
    ];
    for (ip, tenant, name) in cases {
        let values = [KeyValue::One(ip), tenant];
        awaits(&engine, &login().keys(&values), 0);
        assert_eq!(permits.said(), [format!("take 1 of {name} at 0")]);
    }
    let networks = KeyPart::ClientIp { v4: 24, v6: 128 };
    let (permits, engine) = opened([leased("a", "login", 9.0).keyed(by(networks)).unwrap()]);
    for (ip, name) in [("203.0.113.7", "a:203.0.113.0/24"), ("2001:db8::1", "a:2001%3Adb8%3A%3A1")] {
        awaits(&engine, &login().keys(&client(ip.as_bytes())), 0);
        assert_eq!(permits.said(), [format!("take 1 of {name} at 0")]);
    }
}

#[test]
fn a_request_takes_once_for_each_of_its_keys_or_for_none() {
    let (permits, engine) = opened([leased("a", "login", 9.0).keyed(by(header("x"))).unwrap()]);
    for key in ["a:1", "a:2"] {
        permits.answer(key, Answer::Left(5));
    }
    let values: [&[u8]; 3] = [b"1", b"2", b"1"];
    let _entry = pass(&engine, &login().keys(&[KeyValue::Each(&values)]), 0);
    assert_eq!(permits.said(), ["take 1 of a:1 at 0", "take 1 of a:2 at 0"]);
    permits.answer("a:2", Answer::Refused(Some(4)));
    refused(&engine, &login().keys(&[KeyValue::Each(&values)]), 1);
    assert_eq!((permits.left("a:1"), permits.left("a:2")), (4, 0));
    permits.said();
    let many: Vec<Vec<u8>> = (0..257).map(|i: u32| i.to_string().into_bytes()).collect();
    let many: Vec<&[u8]> = many.iter().map(Vec::as_slice).collect();
    let blocked = refused(&engine, &login().keys(&[KeyValue::Each(&many)]), 2);
    assert_eq!((retry_ms(&blocked), permits.said()), (None, Vec::new()));
}

#[test]
fn each_resource_of_a_rule_for_all_has_a_count_by_its_own_name() {
    let keyed = leased("k", "*", 9.0).keyed(by(header("x"))).unwrap();
    let (permits, engine) = opened([leased("a", "*", 9.0), keyed]);
    for resource in ["login", "a:b"] {
        awaits(&engine, &Request::new(resource).keys(&client(b"1")), 0);
    }
    assert_eq!(
        permits.said(),
        ["take 1 of a:login at 0", "take 1 of k:login:1 at 0", "take 1 of a:a%3Ab at 0", "take 1 of k:a%3Ab:1 at 0"]
    );
}
