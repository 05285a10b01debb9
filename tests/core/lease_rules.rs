//! Rules whose limit is one for all machines: what the engine asks of leased permits, and what it does with their answers.

use crate::permits::{Answer, Permits};
use crate::support::{at, block, pass, retry_ms, rule, rules, wait};
use leapgate::backend::Store;
use leapgate::rule::{
    ApiDefinition, BanRule, ClusterConfig, DegradeGrade, DegradeRule, Exempt, Exemption, FlowRule,
    KeyMatch, KeyPart, KeyValue, KeyedBy, LimitApp, MaxQueueing, Mode, PredicateItem, RuleId, Unit,
};
use leapgate::stats::Node as _;
use leapgate::{Blocked, Decision, Engine, Outcome, Request, Rules};
use std::net::{IpAddr, Ipv6Addr};
use std::rc::Rc;

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
fn an_ipv6_address_is_called_as_rfc_5952_writes_it() {
    let whole = KeyPart::ClientIp { v4: 32, v6: 128 };
    let (permits, engine) = opened([leased("a", "login", 9.0).keyed(by(whole)).unwrap()]);
    let mut random = fastrand::Rng::with_seed(13);
    let special = ["::", "::1", "1::", "1:0:0:2::", "0:1:0:0:2:0:0:3", "1:0:2:0:3:0:4:0", "fe80::a0b:10"];
    let special = special.map(|text| text.parse().unwrap());
    let mut any = || Ipv6Addr::from([(); 8].map(|()| random.choice([0, 0, 1, 0xf0, 0xabcd]).unwrap()));
    for address in special.into_iter().chain((0..2000).map(|_| any())) {
        let text = match address.to_canonical() {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => address.to_string().replace(':', "%3A"),
        };
        awaits(&engine, &login().keys(&client(address.to_string().as_bytes())), 0);
        assert_eq!(permits.said(), [format!("take 1 of a:{text} at 0")]);
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

#[test]
fn apis_and_their_route_take_permits_together_or_not_at_all() {
    let api = |name: &str, path: &str| {
        ApiDefinition::new(name, [PredicateItem::exact(path).unwrap()]).unwrap()
    };
    let (permits, engine) = fleet(Rules {
        flow: vec![leased("route", "web", 9.0), leased("api", "login", 9.0), leased("each", "*", 9.0)],
        apis: [api("login", "/login")].into(),
        ..Rules::default()
    });
    permits.said();
    let request = || Request::new("web").also(&["login"]);
    permits.answer("route", Answer::Left(2));
    assert_eq!(awaits(&engine, &request(), 0).id().as_str(), "api");
    permits.answer("api", Answer::Left(1));
    permits.said();
    let _entry = pass(&engine, &request(), 1);
    assert_eq!(permits.said(), ["take 1 of route at 1", "take 1 of api at 1"]);
    permits.answer("api", Answer::Refused(Some(9)));
    assert_eq!(refused(&engine, &request(), 2).id().as_str(), "api");
    assert_eq!(permits.left("route"), 1);
    // A rule for all is for routes that no other rule names, by the name of the route.
    permits.answer("each:shop", Answer::Refused(Some(9)));
    permits.said();
    assert_eq!(refused(&engine, &Request::new("shop"), 50).id().as_str(), "each");
    assert_eq!(permits.said(), ["take 1 of each:shop at 50"]);
    let both = Request::new("shop").also(&["login"]);
    assert_eq!(refused(&engine, &both, 50).id().as_str(), "each"); // known: the API is not asked
    assert_eq!(permits.said(), [""; 0]);
}

#[test]
fn a_rule_takes_permits_for_the_requests_that_it_is_for() {
    let only = |pattern: &str| by(header("x")).matching(KeyMatch::Prefix(pattern.into()));
    let exempt = Exempt::new([Exemption::Origin("batch".into())]).unwrap();
    let (permits, engine) = opened([
        leased("a", "login", 9.0).for_origin(LimitApp::new("app").unwrap()),
        leased("k", "login", 9.0).keyed(only("gold")).unwrap(),
        leased("t", "login", 9.0).in_unit(Unit::new("tokens").unwrap()).exempting(exempt),
    ]);
    assert!(engine.resource("login").by_origin());
    let gold = client(b"gold-1");
    for (request, said) in [
        (login(), vec!["take 1 of t at 0"]),
        (login().cost(3).cost_of("tokens", 40), vec!["take 40 of t at 0"]),
        (login().origin("app").cost(3), vec!["take 3 of a at 0", "take 1 of t at 0"]),
        (login().keys(&gold).origin("other"), vec!["take 1 of k:gold-1 at 0", "take 1 of t at 0"]),
    ] {
        awaits(&engine, &request, 0);
        assert_eq!(permits.said(), said);
    }
    for request in [login().origin("batch"), login().exempt()] {
        let _entry = pass(&engine, &request, 0);
        assert_eq!(permits.said(), [""; 0]);
    }
}

#[test]
fn a_replaced_rule_goes_on_with_its_permits() {
    let (permits, engine) = opened([leased("a", "login", 9.0)]);
    permits.answer("a", Answer::Refused(None));
    assert_eq!(retry_ms(&refused(&engine, &login(), 0)), None);
    let local = ClusterConfig::new().with_fallback(true);
    engine.replace(rules([rule("a", "login", 20.0).in_cluster(local)])).unwrap();
    permits.answer("a", Answer::Left(5));
    pass(&engine, &login(), 1).exit(Outcome::Success, at(1)); // what was refused for ever is asked again
    assert_eq!(
        permits.said(),
        ["take 1 of a at 0", "a is 20 now, Some(Local)", "take 1 of a at 1"]
    );
    // Rules that cannot be in force change nothing.
    let twice = rules([leased("a", "login", 7.0), leased("a", "pay", 7.0)]);
    assert!(engine.replace(twice).is_err());
    pass(&engine, &login(), 2).exit(Outcome::Success, at(2));
    assert_eq!(permits.said(), ["take 1 of a at 2"]);
    let named = ClusterConfig::new().with_flow_id(7).unwrap();
    engine.replace(rules([rule("a", "login", 20.0).in_cluster(named)])).unwrap();
    engine.replace(rules([leased("a", "login", 9.0).per(2000, None).unwrap()])).unwrap();
    assert_eq!(
        permits.said(),
        [
            "a leases 7: 20 in 1000 ms of 100, None, 100000 keys",
            "a leases a: 9 in 2000 ms of 100, None, 100000 keys"
        ]
    );
    engine.replace(Rules::default()).unwrap();
    engine.store().for_each_lease(|key, _| panic!("{key:?} is kept"));
}

#[test]
fn engines_over_one_store_spend_the_same_permits() {
    let (permits, engine) = opened([leased("a", "login", 9.0)]);
    let other = Engine::with_store(Rc::clone(engine.store()), rules([leased("a", "login", 9.0)]));
    assert_eq!(permits.said(), [""; 0]);
    permits.answer("a", Answer::Left(2));
    let _entries = [pass(&engine, &login(), 0), pass(&other.unwrap(), &login(), 0)];
    assert_eq!(permits.left("a"), 0);
}

#[test]
fn a_rule_in_shadow_beside_a_leased_one_counts_by_itself() {
    let global = || FlowRule::new("login", 9.0).unwrap().in_cluster(ClusterConfig::new());
    let (permits, engine) = opened([global(), FlowRule::new("login", 1.0).unwrap().in_mode(Mode::Shadow)]);
    permits.answer("login", Answer::Left(9));
    for _ in 0..3 {
        pass(&engine, &login(), 0).exit(Outcome::Success, at(0));
    }
    let mut counts = Vec::new();
    engine.store().for_each_unkeyed(|key, state| {
        counts.push((key.rule.to_string(), key.is_beside, state.passed(), state.shadow_blocked()));
    });
    assert_eq!(counts, [("login/shadow".into(), false, 1, 2)]);
    // Where the rule in shadow asks for permits, it takes none.
    let (permits, engine) = opened([global().in_mode(Mode::Shadow)]);
    let _entry = pass(&engine, &login(), 0);
    assert_eq!(permits.said(), [""; 0]);
    assert_eq!(
        engine.warnings(),
        ["flowRules[0].clusterMode: `true` does not go with shadow mode, so each node limits by itself; leave one of the two out"]
    );
}

#[test]
fn a_refusal_by_permits_counts_for_bans_and_a_wait_for_the_store_does_not() {
    let ban = BanRule::new("login", by(header("x")), 1, 1000, 60_000).unwrap();
    let (permits, engine) = fleet(Rules {
        flow: vec![leased("a", "login", 9.0)],
        ban: vec![ban],
        ..Rules::default()
    });
    let gold = client(b"gold");
    let request = || login().keys(&gold);
    for now in 0..3 {
        awaits(&engine, &request(), now);
    }
    permits.answer("a", Answer::Refused(Some(5)));
    assert_eq!(refused(&engine, &request(), 3).cause().name(), "flow");
    permits.answer("a", Answer::Left(9));
    assert_eq!(refused(&engine, &request(), 10).cause().name(), "ban");
}

#[test]
fn a_wait_for_the_store_takes_no_probe_of_a_breaker() {
    let breaker = DegradeRule::new("login", DegradeGrade::error_count(0.0).unwrap(), 1000).unwrap();
    let (permits, engine) = fleet(Rules {
        flow: vec![leased("a", "login", 9.0)],
        degrade: vec![breaker.needing(1).unwrap()],
        ..Rules::default()
    });
    permits.answer("a", Answer::Left(1));
    pass(&engine, &login(), 0).exit(Outcome::Error, at(0));
    assert_eq!(refused(&engine, &login(), 500).cause().name(), "degrade");
    awaits(&engine, &login(), 1000); // the breaker would have let a probe in
    permits.answer("a", Answer::Left(9));
    pass(&engine, &login(), 1001).exit(Outcome::Success, at(1001));
    pass(&engine, &login(), 1002).exit(Outcome::Success, at(1002));
}

#[test]
fn a_request_that_waits_for_its_turn_takes_its_permits_when_it_is_decided() {
    let mail = rule("t", "login", 1.0).throttle(MaxQueueing::from_millis(5000).unwrap());
    let (permits, engine) = opened([mail, leased("a", "login", 9.0)]);
    permits.answer("a", Answer::Left(2));
    let _first = pass(&engine, &login(), 0);
    let second = wait(&engine, &login(), 0, 1000);
    assert_eq!(permits.left("a"), 0);
    second.cancel(at(10)); // a permit is spent, whatever becomes of the request
    assert_eq!(permits.left("a"), 0);
    awaits(&engine, &login(), 20);
    permits.answer("a", Answer::Left(1));
    let _third = wait(&engine, &login(), 20, 980); // the one that awaited the store took no turn
}

#[test]
fn a_policy_says_what_is_known_of_a_key() {
    let (permits, engine) = opened([leased("a", "login", 9.0).keyed(by(header("x"))).unwrap()]);
    let policy = |key: &'static [u8], now| {
        let resource = engine.resource("login");
        let keys = client(key);
        let request = login().keys(&keys);
        let policies = resource.policies_for(&request, at(now));
        let all: Vec<_> = policies
            .map(|policy| {
                let id = policy.id.to_string();
                (id, policy.count.get(), policy.remaining, policy.reset.as_millis())
            })
            .collect();
        let [(id, count, remaining, reset)] = <[_; 1]>::try_from(all).unwrap();
        assert_eq!((id.as_str(), count), ("a", 9.0));
        (remaining, reset)
    };
    assert_eq!(policy(b"1", 0), (9, 0));
    permits.answer("a:1", Answer::Left(4));
    let keys = client(b"1");
    let _entry = pass(&engine, &login().keys(&keys), 0);
    assert_eq!((policy(b"1", 0), policy(b"2", 0)), ((3, 0), (9, 0)));
    assert_eq!((policy(b"1", 999), policy(b"1", 1000)), ((3, 0), (9, 0)));
    permits.answer("a:1", Answer::Refused(Some(400)));
    refused(&engine, &login().keys(&keys), 2000);
    assert_eq!((policy(b"1", 2000), policy(b"1", 2300)), ((0, 400), (0, 100)));
    assert_eq!(policy(b"1", 2401), (9, 0));
}

#[test]
fn what_a_call_gave_back_is_not_leased_again() {
    let (permits, engine) = opened([leased("a", "login", 9.0)]);
    permits.answer("a", Answer::Left(2));
    pass(&engine, &login(), 0).exit_uncounted(&[], Outcome::Success, at(1));
    assert_eq!(permits.left("a"), 1); // like other counts that are shared
}

#[test]
fn only_a_rule_with_permits_makes_the_engine_look_at_more_than_the_resource() {
    let local = ["local", "none"].map(|id| rule(id, id, 5.0));
    let (_, engine) = opened(local);
    assert!(engine.has_only_plain_flow_rules());
    let (_, engine) = opened([leased("a", "login", 9.0)]);
    assert!(!engine.has_only_plain_flow_rules());
    let names: Vec<_> = engine.resource("login").flow_rules().map(FlowRule::id).collect();
    assert_eq!(names, [RuleId::new("a").unwrap()]);
}

#[test]
fn rules_of_a_route_lease_as_those_of_a_document_do() {
    let (permits, engine) = opened([rule("d", "web", 9.0)]);
    let route = engine.resource("web");
    let joined = engine.resource_with_rules(&route, vec![leased("r", "web", 5.0)]).unwrap();
    assert_eq!(permits.said(), ["r leases r: 5 in 1000 ms of 100, None, 100000 keys"]);
    let Decision::Block(blocked) = engine.enter_resource(&joined, &Request::new("web"), at(0)) else {
        panic!("let in");
    };
    assert!(blocked.awaits_store());
    let _entry = pass(&engine, &Request::new("web"), 0);
}
