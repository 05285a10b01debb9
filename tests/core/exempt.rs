//! Requests that rules leave alone.

use crate::support::{admitted, at, block, pass, wait};
use fastrand::Rng;
use leapgate::config::{Value, read};
use leapgate::rule::{
    AuthorityRule, AuthorityStrategy, BanRule, Cidr, DegradeGrade, DegradeRule, Exempt, Exemption,
    FlowRule, KeyPart, KeyValue, KeyedBy, LimitApp, MAX_EXEMPTIONS, MaxQueueing, Mode, RuleError,
    SystemRule, WarmUp,
};
use leapgate::stats::Node;
use leapgate::{Decision, Engine, Outcome, Request, Rules};

fn near(cidr: &str) -> Exemption {
    Exemption::ClientIp(Cidr::new(cidr).unwrap())
}

fn header(name: &str, value: Option<&str>) -> Exemption {
    let value = value.map(Box::from);
    Exemption::Header {
        name: name.into(),
        value,
    }
}

fn origin(name: &str) -> Exemption {
    Exemption::Origin(name.into())
}

fn exempt(exemptions: impl Into<Vec<Exemption>>) -> Exempt {
    Exempt::new(exemptions).unwrap()
}

/// One request a minute, but for probes.
fn login(count: f64) -> FlowRule {
    let rule = FlowRule::new("login", count)
        .unwrap()
        .per(60_000, None)
        .unwrap();
    rule.exempting(exempt([header("x-probe", Some("1"))]))
}

fn engine(flow: impl Into<Vec<FlowRule>>) -> Engine {
    let rules = Rules {
        flow: flow.into(),
        ..Rules::default()
    };
    Engine::new(rules).unwrap()
}

/// A request with the values of the resource's parts.
fn request<'a>(values: &'a [KeyValue<'a>]) -> Request<'a> {
    Request::new("login").keys(values)
}

const PROBE: [KeyValue<'static>; 1] = [KeyValue::One(b"1")];
const OTHER: [KeyValue<'static>; 1] = [KeyValue::One(b"2")];

#[test]
fn each_exemption_holds_for_what_it_says() {
    let all = [
        near("10.0.0.0/8"),
        near("2001:db8::/32"),
        header("x-probe", Some("1")),
        header("x-probe", Some("2")),
        header("x-internal", None),
        origin("batch"),
    ];
    let all = exempt(all);
    let ip = KeyPart::CLIENT_IP;
    let parts = [
        ip,
        KeyPart::Header("x-probe".into()),
        KeyPart::Header("x-internal".into()),
    ];
    assert_eq!(all.parts(), parts);
    let none = KeyValue::Missing;
    let one = |text: &'static str| KeyValue::One(text.as_bytes());
    let two: [&[u8]; 2] = [b"10.0.0.1", b"10.0.0.2"];
    let mixed: [&[u8]; 2] = [b"10.0.0.1", b"11.0.0.1"];
    let rows = [
        ([none, none, none], "", false),
        ([one("10.9.9.9"), none, none], "", true),
        ([one("10.9.9.9:443"), none, none], "", true),
        ([one("::ffff:10.9.9.9"), none, none], "", true),
        ([one("2001:db8::1"), none, none], "", true),
        ([one("11.0.0.1"), none, none], "", false),
        ([one("office"), none, none], "", false),
        ([KeyValue::Each(&two), none, none], "", true),
        ([KeyValue::Each(&mixed), none, none], "", false),
        ([KeyValue::Each(&[]), none, none], "", false),
        ([none, one("1"), none], "", true),
        ([none, one("2"), none], "", true),
        ([none, one("3"), none], "", false),
        ([none, one("11"), none], "", false),
        ([none, one(""), none], "", false),
        ([none, none, one("x")], "", true),
        ([none, none, one("")], "", false),
        ([none, none, none], "batch", true),
        ([none, none, none], "batches", false),
        ([one("11.0.0.1"), one("3"), none], "other", false),
    ];
    for (values, sender, expected) in rows {
        assert_eq!(
            all.holds_for(&values, sender),
            expected,
            "{values:?} {sender}"
        );
        let rule = FlowRule::new("login", 0.0).unwrap().exempting(all.clone());
        let engine = engine([rule]);
        assert_eq!(engine.resource("login").key_parts(), parts);
        let asked = request(&values).origin(sender);
        assert_eq!(
            admitted(&engine, &asked, 1, 0) == 1,
            expected,
            "{values:?} {sender}"
        );
    }
    assert!(!exempt([]).holds_for(&[], ""));
}

#[test]
fn a_rule_of_any_kind_neither_refuses_nor_counts_what_is_exempt() {
    let queue = MaxQueueing::from_millis(0).unwrap();
    let header = || KeyedBy::new([KeyPart::Header("x-probe".into())]).unwrap();
    let plain = || login(1.0);
    let rows: Vec<(&str, FlowRule)> = vec![
        ("window", plain()),
        (
            "weighted",
            plain().counting(leapgate::rule::Counting::Weighted),
        ),
        ("sentinel", plain().sentinel()),
        ("concurrency", plain().concurrency()),
        ("throttle", plain().throttle(queue)),
        ("warm-up", plain().warm_up(WarmUp::default())),
        (
            "warm-up throttle",
            plain().warm_up_throttle(WarmUp::default(), queue),
        ),
        ("key", plain().keyed(header()).unwrap()),
        (
            "key, concurrency",
            plain().keyed(header()).unwrap().concurrency(),
        ),
        (
            "key, throttle",
            plain().keyed(header()).unwrap().throttle(queue),
        ),
        ("origin", plain().for_origin(LimitApp::new("shop").unwrap())),
        ("other", plain().for_origin(LimitApp::new("other").unwrap())),
    ];
    for (name, rule) in rows {
        let sender = if name == "origin" { "shop" } else { "app" };
        let engine = engine([rule]);
        let mut open = Vec::new();
        for now in 0..20 {
            open.push(pass(&engine, &request(&PROBE).origin(sender), now));
        }
        // All that is admitted is there still.
        let taken = pass(&engine, &request(&OTHER).origin(sender), 20);
        block(&engine, &request(&OTHER).origin(sender), 21);
        open.push(pass(&engine, &request(&PROBE).origin(sender), 22));
        drop(open);
        block(&engine, &request(&OTHER).origin(sender), 23);
        drop(taken);
    }
}

#[test]
fn requests_of_a_resource_that_a_rule_measures_are_exempt_from_it_too() {
    let probes = || exempt([header("x-probe", Some("1"))]);
    let relate = FlowRule::new("login", 1.0)
        .unwrap()
        .relate("orders")
        .unwrap();
    let engine = engine([relate.per(60_000, None).unwrap().exempting(probes())]);
    let orders = |values| Request::new("orders").keys(values);
    assert_eq!(
        engine.resource("orders").key_parts(),
        [KeyPart::Header("x-probe".into())]
    );
    drop(pass(&engine, &orders(&PROBE), 0));
    drop(pass(&engine, &request(&OTHER), 0));
    drop(pass(&engine, &orders(&OTHER), 0));
    block(&engine, &request(&OTHER), 0);
    drop(pass(&engine, &request(&PROBE), 0));
}

#[test]
fn a_chain_leaves_alone_what_is_exempt() {
    let chain = FlowRule::new("login", 1.0).unwrap().chain("web").unwrap();
    let engine = engine([chain.exempting(exempt([header("x-probe", Some("1"))]))]);
    for now in 0..3 {
        drop(pass(&engine, &request(&PROBE).context("web"), now));
    }
    drop(pass(&engine, &request(&OTHER).context("web"), 4));
    block(&engine, &request(&OTHER).context("web"), 5);
    drop(pass(&engine, &request(&OTHER).context("mail"), 5));
}

#[test]
fn other_rules_of_the_resource_stay_all_or_none() {
    let id = |id| leapgate::rule::RuleId::new(id).unwrap();
    let all = FlowRule::new("login", 3.0)
        .unwrap()
        .per(60_000, None)
        .unwrap();
    let keyed = KeyedBy::new([KeyPart::Header("x-probe".into())]).unwrap();
    let keyed = login(2.0).keyed(keyed).unwrap();
    let engine = engine([
        login(1.0).with_id(id("plain")),
        keyed.with_id(id("keyed")),
        all.with_id(id("all")),
    ]);
    let refused = |values| block(&engine, &request(values), 0).id().to_string();
    drop(pass(&engine, &request(&OTHER), 0));
    assert_eq!(refused(&OTHER), "plain");
    drop(pass(&engine, &request(&PROBE), 0));
    drop(pass(&engine, &request(&PROBE), 0));
    assert_eq!(refused(&PROBE), "all");
    assert_eq!(refused(&OTHER), "plain");
    // What was refused was not charged: `keyed` has room for one.
    let resource = engine.resource("login");
    let told = |values| {
        let request = request(values);
        let told = resource.policies_for(&request, at(0));
        told.map(|policy| (policy.id.to_string(), policy.remaining))
            .collect::<Vec<_>>()
    };
    let [plain, keyed, all] = ["plain", "keyed", "all"].map(String::from);
    assert_eq!(told(&OTHER), [(plain, 0), (keyed, 1), (all.clone(), 0)]);
    assert_eq!(told(&PROBE), [(all, 0)]);
}

#[test]
fn the_rules_of_an_exempt_origin_are_not_told() {
    let rule = FlowRule::new("login", 1.0).unwrap();
    let engine = engine([rule.exempting(exempt([origin("batch")]))]);
    let resource = engine.resource("login");
    assert!(resource.by_origin());
    assert!(resource.key_parts().is_empty());
    let told = |sender| {
        resource
            .policies_for(&Request::new("").origin(sender), at(0))
            .count()
    };
    assert_eq!((told("batch"), told("shop"), told("")), (0, 1, 1));
    assert_eq!(resource.policies(at(0)).count(), 1);
}

#[test]
fn in_shadow_mode_an_exempt_request_is_no_shadow_block() {
    let engine = engine([login(1.0).in_mode(Mode::Shadow)]);
    for values in [PROBE, OTHER, PROBE, OTHER, PROBE] {
        drop(pass(&engine, &request(&values), 0));
    }
    let mut counted = Vec::new();
    engine.store().for_each_unkeyed(|_, state| {
        counted.push((state.passed(), state.blocked(), state.shadow_blocked()));
    });
    assert_eq!(counted, [(1, 0, 1)]);
}

#[test]
fn a_call_that_turns_out_not_to_count_gives_back_nothing_that_was_not_counted() {
    let keyed = KeyedBy::new([KeyPart::Header("x-other".into())]).unwrap();
    let keyed = || login(1.0).keyed(keyed.clone()).unwrap();
    for (rule, probe, other) in [
        (login(1.0), vec![PROBE[0]], vec![OTHER[0]]),
        (
            keyed(),
            vec![KeyValue::Missing, PROBE[0]],
            vec![KeyValue::Missing, OTHER[0]],
        ),
    ] {
        let engine = engine([rule]);
        drop(pass(&engine, &request(&other), 0));
        pass(&engine, &request(&probe), 0).exit_uncounted(&probe, Outcome::Success, at(1));
        block(&engine, &request(&other), 2);
        let exempt = request(&other).exempt();
        pass(&engine, &exempt, 2).exit_uncounted(&other, Outcome::Success, at(3));
        block(&engine, &request(&other), 4);
    }
}

#[test]
fn a_flood_of_origins_takes_no_exemption_from_one_that_has_it() {
    let rule = FlowRule::new("login", 1.0)
        .unwrap()
        .per(60_000, None)
        .unwrap();
    let engine = engine([rule.exempting(exempt([origin("batch")]))]);
    drop(pass(&engine, &Request::new("login"), 0));
    for number in 0..7000 {
        let name = format!("app{number}");
        let _ = engine.enter(&Request::new("login").origin(&name), at(0));
    }
    let entry = pass(&engine, &Request::new("login").origin("batch"), 0);
    entry.exit_uncounted(&[], Outcome::Success, at(1));
    block(&engine, &Request::new("login"), 2);
}

#[test]
fn a_client_address_is_one_part_whatever_part_of_it_is_a_key() {
    let narrow = KeyedBy::new([KeyPart::ClientIp { v4: 24, v6: 48 }]).unwrap();
    let office = exempt([near("10.0.0.7")]);
    let plain = FlowRule::new("login", 1.0).unwrap().exempting(office);
    let keyed = FlowRule::new("login", 1.0).unwrap().keyed(narrow).unwrap();
    let engine = engine([plain, keyed]);
    let resource = engine.resource("login");
    assert_eq!(resource.key_parts(), [KeyPart::ClientIp { v4: 24, v6: 48 }]);
    let [a, b] = [b"10.0.0.7", b"10.0.1.8"].map(|client| [KeyValue::One(client)]);
    drop(pass(&engine, &request(&b), 0));
    assert_eq!(block(&engine, &request(&b), 0).id().as_str(), "login");
    drop(pass(&engine, &request(&a), 0));
    assert_eq!(
        block(&engine, &request(&a), 0).id().as_str(),
        "login/key=clientIp:24:48"
    );
}

#[test]
fn a_request_that_a_shell_calls_exempt_passes_flow_rules_system_rules_and_bans() {
    let keyed = || KeyedBy::new([KeyPart::Header("x-client".into())]).unwrap();
    let rules = Rules {
        flow: vec![
            FlowRule::new("login", 1.0)
                .unwrap()
                .per(60_000, None)
                .unwrap(),
            FlowRule::new("login", 1.0).unwrap().keyed(keyed()).unwrap(),
        ],
        system: vec![SystemRule::new().with_max_thread(1.0).unwrap()],
        ban: vec![BanRule::new("login", keyed(), 2, 60_000, 60_000).unwrap()],
        ..Rules::default()
    };
    let engine = Engine::new(rules).unwrap();
    let values = [KeyValue::One(b"a")];
    let plain = || request(&values).inbound();
    let mut open = Vec::new();
    for now in 0..5 {
        open.push(pass(&engine, &plain().exempt(), now));
    }
    let node = engine.store().tree().unwrap().inbound().statistics();
    assert_eq!(
        node.cur_thread_num(),
        0,
        "no inbound call that system rules look at"
    );
    open.push(pass(&engine, &plain(), 5));
    assert_eq!(block(&engine, &plain(), 6).cause().name(), "system");
    open.pop();
    for now in [7, 8] {
        assert_eq!(block(&engine, &plain(), now).cause().name(), "flow");
    }
    assert_eq!(block(&engine, &plain(), 9).cause().name(), "ban");
    let exempt = plain().exempt();
    open.push(pass(&engine, &exempt, 10));
    let resource = engine.resource("login");
    assert_eq!(resource.policies_for(&exempt, at(10)).count(), 0);
    assert_eq!(resource.policies_for(&plain(), at(10)).count(), 2);
}

#[test]
fn an_exempt_request_passes_where_there_are_only_plain_rules() {
    let engine = engine([FlowRule::new("login", 1.0).unwrap()]);
    for now in 0..3 {
        drop(pass(&engine, &Request::new("login").exempt(), now));
    }
    drop(pass(&engine, &Request::new("login"), 3));
    block(&engine, &Request::new("login"), 4);
    drop(pass(&engine, &Request::new("login").exempt(), 4));
}

#[test]
fn breakers_and_authority_rules_hold_for_an_exempt_request() {
    let grade = DegradeGrade::error_count(0.0).unwrap();
    let rules = Rules {
        flow: vec![FlowRule::new("login", 9.0).unwrap()],
        degrade: vec![
            DegradeRule::new("login", grade, 5000)
                .unwrap()
                .needing(1)
                .unwrap(),
        ],
        authority: vec![AuthorityRule::new("login", "thief", AuthorityStrategy::Black).unwrap()],
        ..Rules::default()
    };
    let engine = Engine::new(rules).unwrap();
    let exempt = || Request::new("login").exempt();
    assert_eq!(
        block(&engine, &exempt().origin("thief"), 0).cause().name(),
        "authority"
    );
    pass(&engine, &exempt(), 0).exit(Outcome::Error, at(1));
    assert_eq!(block(&engine, &exempt(), 2).cause().name(), "degrade");
    // A probe ends as any other.
    pass(&engine, &exempt(), 5002).exit(Outcome::Success, at(5003));
    drop(pass(&engine, &exempt(), 5004));
}

#[test]
fn a_refusal_of_an_exempt_request_bans_no_key() {
    let keyed = KeyedBy::new([KeyPart::Header("x-client".into())]).unwrap();
    let rules = Rules {
        authority: vec![AuthorityRule::new("login", "thief", AuthorityStrategy::Black).unwrap()],
        ban: vec![BanRule::new("login", keyed, 1, 60_000, 60_000).unwrap()],
        ..Rules::default()
    };
    let engine = Engine::new(rules).unwrap();
    let values = [KeyValue::One(b"a")];
    let request = || request(&values);
    block(&engine, &request().origin("thief").exempt(), 0);
    drop(pass(&engine, &request(), 1));
    block(&engine, &request().origin("thief"), 2);
    assert_eq!(block(&engine, &request(), 3).cause().name(), "ban");
}

#[test]
fn an_exempt_request_does_not_wait_and_takes_no_turn() {
    let queue = MaxQueueing::from_millis(10_000).unwrap();
    let rule = FlowRule::new("login", 1.0).unwrap().throttle(queue);
    let engine = engine([rule.exempting(exempt([header("x-probe", Some("1"))]))]);
    drop(pass(&engine, &request(&OTHER), 0));
    let waits = wait(&engine, &request(&OTHER), 0, 1000);
    drop(pass(&engine, &request(&PROBE), 0));
    let next = wait(&engine, &request(&OTHER), 0, 2000);
    waits.cancel(at(1));
    next.cancel(at(1));
}

#[test]
fn an_exemption_changes_neither_the_id_nor_the_counts_of_a_rule() {
    let with = login(1.0);
    assert_eq!(with.id().as_str(), "login/60s");
    let without = || {
        FlowRule::new("login", 1.0)
            .unwrap()
            .per(60_000, None)
            .unwrap()
    };
    let engine = engine([without()]);
    drop(pass(&engine, &request(&[]), 0));
    let rules = |flow| Rules {
        flow: vec![flow],
        ..Rules::default()
    };
    engine.replace(rules(with)).unwrap();
    block(&engine, &request(&OTHER), 1);
    drop(pass(&engine, &request(&PROBE), 1));
    engine.replace(rules(without())).unwrap();
    block(&engine, &request(&[]), 1);
    assert_eq!(without().exempting(exempt([])), without());
}

#[test]
fn a_shadow_rule_with_other_exemptions_has_no_window_in_common() {
    let flow = vec![
        login(5.0),
        FlowRule::new("login", 1.0)
            .unwrap()
            .per(60_000, None)
            .unwrap()
            .in_mode(Mode::Shadow),
    ];
    let error = Engine::new(Rules {
        flow,
        ..Rules::default()
    })
    .err()
    .unwrap();
    assert_eq!(
        error.to_string(),
        "`login/60s` is the id of an earlier rule; give one of them another `id`"
    );
    let flow = vec![login(5.0), login(1.0).in_mode(Mode::Shadow)];
    assert!(
        Engine::new(Rules {
            flow,
            ..Rules::default()
        })
        .is_ok()
    );
}

#[test]
fn what_is_wrong_with_a_list_of_exemptions_is_said() {
    let flow = |list: &str| {
        let json =
            format!(r#"{{"flowRules": [{{"resource": "login", "count": 1, "exempt": {list}}}]}}"#);
        let tree = Value::from_json(json).unwrap();
        read(&tree)
            .map(|document| document.rules.flow)
            .map_err(|error| error.to_string())
    };
    let rule = || FlowRule::new("login", 1.0).unwrap();
    let all = r#"[{"clientIp": "10.0.0.0/8"}, {"clientIp": "10.0.0.7"}, {"header": "X-Probe", "value": "1"}, {"header": "x-internal", "value": null}, {"origin": "batch"}]"#;
    let expected = exempt([
        near("10.0.0.0/8"),
        near("10.0.0.7/32"),
        header("x-probe", Some("1")),
        header("x-internal", None),
        origin("batch"),
    ]);
    assert_eq!(flow(all), Ok(vec![rule().exempting(expected)]));
    assert_eq!(flow("[]"), Ok(vec![rule()]));
    assert_eq!(flow("null"), Ok(vec![rule()]));
    let which = "is not an exemption; use one of `clientIp`, `header` and `origin`";
    let many = vec![r#"{"origin": "a"}"#; MAX_EXEMPTIONS + 1].join(",");
    let rows = [
        (r#"{"origin": "a"}"#, ": `{…}` is an object; use an array".to_string()),
        (r#"["10.0.0.0/8"]"#, "[0]: `10.0.0.0/8` is a string; use an object".into()),
        ("[{}]", format!("[0]: `{{…}}` {which}")),
        (r#"[{"value": "1"}]"#, format!("[0]: `{{…}}` {which}")),
        (r#"[{"origin": "a", "header": "b"}]"#, format!("[0]: `{{…}}` {which}")),
        (r#"[{"origin": "a"}, {"path": "/"}]"#, "[1]: `path` is not a known key; use one of `clientIp`, `header`, `origin`, `value`".into()),
        (r#"[{"origin": "a", "value": "1"}]"#, "[0].value: `1` goes only with a `header`; leave it out".into()),
        (r#"[{"clientIp": "::1", "value": "1"}]"#, "[0].value: `1` goes only with a `header`; leave it out".into()),
        (r#"[{"clientIp": "10.0.0.1/8"}]"#, "[0].clientIp: `10.0.0.1/8` has bits behind its prefix; use the first address of the network".into()),
        (r#"[{"clientIp": "office"}]"#, "[0].clientIp: `office` is not a network; use one such as `10.0.0.0/8`".into()),
        (r#"[{"clientIp": {"v4": 24}}]"#, "[0].clientIp: `{…}` is an object; use a string".into()),
        (r#"[{"header": ""}]"#, "[0].header: `` is not a valid name; use 1 to 256 bytes".into()),
        (r#"[{"header": "a", "value": ""}]"#, "[0].value: `` is not a valid value; use 1 to 256 bytes, or leave it out for any value".into()),
        (r#"[{"header": "a", "value": 1}]"#, "[0].value: `1` is a number; use a string".into()),
        (r#"[{"origin": ""}]"#, "[0].origin: `` is not a valid name; use 1 to 256 bytes".into()),
        (&format!("[{many}]"), ": `[…]` has too many exemptions; use at most 256".into()),
    ];
    for (list, fault) in rows {
        assert_eq!(
            flow(list),
            Err(format!("flowRules[0].exempt{fault}")),
            "{list}"
        );
    }
    let bad = Exempt::new([origin("")]).unwrap_err();
    assert_eq!(bad, RuleError::EmptyName);
}

/// Rules, each with a limit in a window of ten buckets of 100 ms, a key or none, and what is exempt from it; and what each has
/// admitted: when, and for which key.
struct Naive {
    limit: u64,
    is_keyed: bool,
    spared: u8,
    enforced: bool,
    admitted: Vec<(u64, u8)>,
}

impl Naive {
    fn is_exempt(&self, client: u8) -> bool {
        self.spared >> client & 1 == 1
    }

    fn has_room(&self, client: u8, now: u64) -> bool {
        let counts = |&&(then, of): &&(u64, u8)| {
            (!self.is_keyed || of == client) && now / 100 - then / 100 <= 10
        };
        (self.admitted.iter().filter(counts).count() as u64) < self.limit
    }
}

#[test]
fn rules_with_and_without_keys_decide_as_a_log_without_the_exempt_requests() {
    for seed in 0..300 {
        let mut rng = Rng::with_seed(seed);
        let (mut naive, mut flow) = (Vec::new(), Vec::new());
        for number in 0..rng.usize(1..4) {
            let of = Naive {
                limit: rng.u64(..4),
                is_keyed: rng.bool(),
                spared: rng.u8(..16),
                enforced: rng.u8(..4) > 0,
                admitted: Vec::new(),
            };
            let rule = FlowRule::new("login", of.limit as f64).unwrap();
            let by = KeyedBy::new([KeyPart::Header("x-client".into())]).unwrap();
            let rule = if of.is_keyed {
                rule.keyed(by).unwrap()
            } else {
                rule
            };
            let names = (0..4).filter(|client| of.is_exempt(*client));
            // A header, an address or an origin says the same.
            let names = names.map(|client| match rng.u8(..3) {
                0 => header("x-client", Some(&client.to_string())),
                1 => near(&format!("10.0.0.{client}")),
                _ => origin(&client.to_string()),
            });
            let rule = rule.exempting(exempt(names.collect::<Vec<_>>()));
            let mode = if of.enforced {
                Mode::Enforce
            } else {
                Mode::Shadow
            };
            let id = leapgate::rule::RuleId::new(&number.to_string()).unwrap();
            let rule = rule.per(1000, Some(10)).unwrap();
            flow.push(rule.in_mode(mode).with_id(id));
            naive.push(of);
        }
        let engine = engine(flow);
        let parts: Vec<KeyPart> = engine.resource("login").key_parts().to_vec();
        let mut now = 0;
        for _ in 0..60 {
            now += rng.u64(..150);
            let client = rng.u8(..4);
            let (name, address) = (client.to_string(), format!("10.0.0.{client}"));
            let values: Vec<_> = parts
                .iter()
                .map(|part| match part {
                    KeyPart::ClientIp { .. } => KeyValue::One(address.as_bytes()),
                    _ => KeyValue::One(name.as_bytes()),
                })
                .collect();
            let passes = naive
                .iter()
                .all(|rule| !rule.enforced || rule.is_exempt(client) || rule.has_room(client, now));
            if passes {
                for rule in &mut naive {
                    if !rule.is_exempt(client) && rule.has_room(client, now) {
                        rule.admitted.push((now, client));
                    }
                }
            }
            let asked = request(&values).origin(&name);
            let decided = engine.enter(&asked, at(now));
            assert_eq!(
                matches!(decided, Decision::Pass(_)),
                passes,
                "seed {seed}, client {client} at {now}"
            );
            if let Decision::Pass(entry) = decided {
                entry.exit(Outcome::Success, at(now));
            }
        }
    }
}

#[test]
fn a_request_that_enters_an_api_is_exempt_from_the_rules_of_either_by_themselves() {
    let api = FlowRule::new("chat", 1.0).unwrap();
    let api = api.exempting(exempt([header("x-probe", Some("1"))]));
    let route = FlowRule::new("llm", 2.0).unwrap();
    let route = route.exempting(exempt([near("10.0.0.0/8")]));
    let engine = engine([api, route]);
    let one = engine.resource_with(&engine.resource("llm"), &["chat"]);
    let enter = |probe: &str, address: &str| {
        let values: Vec<_> = (one.key_parts().iter())
            .map(|part| match part {
                KeyPart::Header(_) => KeyValue::One(probe.as_bytes()),
                _ => KeyValue::One(address.as_bytes()),
            })
            .collect();
        match engine.enter_resource(&one, &Request::new("llm").keys(&values), at(0)) {
            Decision::Block(blocked) => blocked.id().to_string(),
            _ => "pass".into(),
        }
    };
    assert_eq!(enter("1", "10.0.0.1"), "pass");
    assert_eq!(enter("2", "10.0.0.1"), "pass", "it counts for the API alone");
    assert_eq!(enter("2", "10.0.0.1"), "chat");
    assert_eq!(enter("1", "11.0.0.1"), "pass", "it counts for the route alone");
    assert_eq!(enter("1", "11.0.0.1"), "pass");
    assert_eq!(enter("1", "11.0.0.1"), "llm");
    assert_eq!(enter("1", "10.0.0.1"), "pass");
}
