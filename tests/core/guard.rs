//! Authority rules, system rules and breakers in the engine, with flow rules beside them.

use crate::support::{admitted, at, block, pass, retry_ms, rule};
use crate::vectors::{each_trace, n, outcome};
use leapgate::backend::{Gauges, Inbound, Phase, Store};
use leapgate::rule::{
    AuthorityRule, AuthorityStrategy, Counting, DegradeGrade, DegradeRule, KeyPart, KeyValue,
    KeyedBy, MaxQueueing, Mode, RuleId, SystemLimit, SystemRule,
};
use leapgate::{Blocked, Cause, Decision, Engine, Entry, Outcome, Request, Rules, RulesError};
use serde_json::json;
use std::collections::HashMap;
use std::rc::Rc;

/// A breaker that opens for two seconds when more than half of at least two calls failed.
fn breaker(resource: &str) -> DegradeRule {
    let grade = DegradeGrade::error_ratio(0.5).unwrap();
    DegradeRule::new(resource, grade, 2000)
        .unwrap()
        .needing(2)
        .unwrap()
}

#[track_caller]
fn guarded(rules: Rules) -> Engine {
    Engine::new(rules).unwrap()
}

fn kind(blocked: &Blocked) -> &'static str {
    blocked.cause().name()
}

/// Two calls that fail: the breaker opens.
#[track_caller]
fn fail_twice(engine: &Engine, resource: &str, now: u64) {
    let request = Request::new(resource);
    for entry in [pass(engine, &request, now), pass(engine, &request, now)] {
        entry.exit(Outcome::Error, at(now));
    }
}

/// How the rule called `id` has decided: refusals, and refusals that shadow mode kept it from.
fn decisions(engine: &Engine, id: &str) -> (u64, u64) {
    let mut found = None;
    engine.for_each_precheck(|report| {
        if report.id.as_str() == id {
            found = Some((report.blocked, report.shadow_blocked));
        }
    });
    found.unwrap()
}

#[test]
fn a_breaker_opens_probes_and_closes() {
    let engine = guarded(Rules {
        degrade: vec![breaker("pay")],
        ..Rules::default()
    });
    fail_twice(&engine, "pay", 100);
    let blocked = block(&engine, &Request::new("pay"), 600);
    assert_eq!(
        (kind(&blocked), blocked.id().as_str()),
        ("degrade", "pay/errorRatio")
    );
    assert_eq!(retry_ms(&blocked), Some(1500));
    let probe = pass(&engine, &Request::new("pay"), 2100);
    block(&engine, &Request::new("pay"), 2100);
    probe.exit(Outcome::Success, at(2150));
    pass(&engine, &Request::new("pay"), 2150).exit(Outcome::Success, at(2160));
    assert_eq!(decisions(&engine, "pay/errorRatio"), (2, 0));
    pass(&engine, &Request::new("other"), 2150).exit(Outcome::Error, at(2160));
}

#[test]
fn a_refusal_by_a_breaker_charges_no_flow_rule() {
    let engine = guarded(Rules {
        degrade: vec![breaker("pay")],
        flow: vec![rule("r", "pay", 3.0)],
        ..Rules::default()
    });
    fail_twice(&engine, "pay", 100);
    assert_eq!(admitted(&engine, &Request::new("pay"), 5, 200), 0);
    // One of three is left, according to the flow rule, not the breaker.
    let remaining = engine
        .resource("pay")
        .policies(at(200))
        .next()
        .unwrap()
        .remaining;
    assert_eq!(remaining, 1);
}

/// In Sentinel breakers come last, and here first, so that nothing is reserved for a request that they refuse. If several rules
/// refuse, the reported rule differs.
#[test]
fn differs_from_sentinel_breakers_are_checked_before_limits() {
    let engine = guarded(Rules {
        degrade: vec![breaker("pay")],
        flow: vec![rule("two", "pay", 2.0)],
        ..Rules::default()
    });
    fail_twice(&engine, "pay", 100);
    let blocked = block(&engine, &Request::new("pay"), 100);
    assert_eq!(kind(&blocked), "degrade");
}

#[test]
fn a_refusal_by_a_flow_rule_takes_no_probe() {
    let engine = guarded(Rules {
        degrade: vec![breaker("pay")],
        flow: vec![rule("r", "pay", 2.0).per(10_000, None).unwrap()],
        ..Rules::default()
    });
    fail_twice(&engine, "pay", 100);
    assert_eq!(kind(&block(&engine, &Request::new("pay"), 2100)), "flow");
    let probe = pass(&engine, &Request::new("pay"), 10_200);
    probe.exit(Outcome::Success, at(10_200));
    pass(&engine, &Request::new("pay"), 10_200).exit(Outcome::Success, at(10_200));
}

#[test]
fn a_probe_that_is_dropped_leaves_its_place() {
    let engine = guarded(Rules {
        degrade: vec![breaker("pay")],
        ..Rules::default()
    });
    fail_twice(&engine, "pay", 100);
    drop(pass(&engine, &Request::new("pay"), 2100));
    assert_eq!(
        retry_ms(&block(&engine, &Request::new("pay"), 2200)),
        Some(1900)
    );
    pass(&engine, &Request::new("pay"), 4100).exit(Outcome::Success, at(4100));
}

#[test]
fn a_probe_that_is_dropped_makes_room_for_another() {
    let engine = guarded(Rules {
        degrade: vec![breaker("pay").with_probes(2).unwrap()],
        ..Rules::default()
    });
    fail_twice(&engine, "pay", 100);
    pass(&engine, &Request::new("pay"), 2100).exit(Outcome::Success, at(2100));
    let second = pass(&engine, &Request::new("pay"), 2100);
    drop(block(&engine, &Request::new("pay"), 2100));
    drop(second);
    pass(&engine, &Request::new("pay"), 2100).exit(Outcome::Success, at(2100));
    let _both = [2100, 2100].map(|now| pass(&engine, &Request::new("pay"), now));
}

#[test]
fn a_refusal_by_several_breakers_names_the_first_and_the_longest_time() {
    let open_for = |id: &str, millis| {
        let grade = DegradeGrade::error_ratio(0.5).unwrap();
        let rule = DegradeRule::new("pay", grade, millis).unwrap();
        rule.needing(2).unwrap().with_id(RuleId::new(id).unwrap())
    };
    let engine = guarded(Rules {
        degrade: vec![
            open_for("middle", 2000),
            open_for("long", 3000),
            open_for("short", 1000),
        ],
        ..Rules::default()
    });
    fail_twice(&engine, "pay", 100);
    let blocked = block(&engine, &Request::new("pay"), 600);
    assert_eq!(
        (blocked.id().as_str(), retry_ms(&blocked)),
        ("middle", Some(2500))
    );
    drop(block(&engine, &Request::new("pay"), 3099));
    drop(pass(&engine, &Request::new("pay"), 3100));
}

#[test]
fn differs_from_sentinel_a_reload_keeps_breakers() {
    let engine = guarded(Rules {
        degrade: vec![breaker("pay")],
        ..Rules::default()
    });
    fail_twice(&engine, "pay", 100);
    let rules = || Rules {
        degrade: vec![breaker("other"), breaker("pay").needing(9).unwrap()],
        ..Rules::default()
    };
    engine.replace(rules()).unwrap();
    assert_eq!(kind(&block(&engine, &Request::new("pay"), 200)), "degrade");
    engine.replace(Rules::default()).unwrap();
    engine.replace(rules()).unwrap();
    pass(&engine, &Request::new("pay"), 200).exit(Outcome::Success, at(200));
}

#[test]
fn a_breaker_for_each_resource_has_a_state_for_each() {
    let engine = guarded(Rules {
        degrade: vec![breaker("*"), breaker("own")],
        ..Rules::default()
    });
    fail_twice(&engine, "a", 100);
    assert_eq!(
        block(&engine, &Request::new("a"), 200).id().as_str(),
        "*/errorRatio"
    );
    fail_twice(&engine, "b", 200);
    fail_twice(&engine, "own", 200);
    assert_eq!(
        block(&engine, &Request::new("own"), 200).id().as_str(),
        "own/errorRatio"
    );
}

#[test]
fn an_authority_rule_refuses_for_good_and_first() {
    let rule = |limit_app, strategy| AuthorityRule::new("admin", limit_app, strategy).unwrap();
    let engine = guarded(Rules {
        authority: vec![
            rule("ops, ci", AuthorityStrategy::White),
            rule("ci", AuthorityStrategy::Black),
        ],
        degrade: vec![breaker("admin")],
        ..Rules::default()
    });
    fail_twice(&engine, "admin", 0);
    for (origin, is) in [
        ("ops", "degrade"),
        ("ci", "authority"),
        ("shop", "authority"),
        ("", "degrade"),
    ] {
        let blocked = block(&engine, &Request::new("admin").origin(origin), 10);
        assert_eq!(kind(&blocked), is, "{origin}");
        assert_eq!(
            blocked.retry_after().is_none(),
            is == "authority",
            "{origin}"
        );
    }
    assert_eq!(decisions(&engine, "admin/black"), (1, 0));
    assert_eq!(decisions(&engine, "admin/white"), (1, 0));
}

#[test]
fn a_system_rule_limits_what_comes_from_outside() {
    let system = vec![SystemRule::new().with_max_thread(2.0).unwrap()];
    let engine = guarded(Rules {
        system,
        ..Rules::default()
    });
    let open: Vec<_> = ["a", "b"]
        .map(|name| pass(&engine, &Request::new(name).inbound(), 0))
        .into();
    let blocked = block(&engine, &Request::new("c").inbound(), 0);
    assert!(
        matches!(blocked.cause(), Cause::System(SystemLimit::Thread, _)),
        "{blocked:?}"
    );
    pass(&engine, &Request::new("c"), 0).exit(Outcome::Success, at(0));
    drop(open);
    pass(&engine, &Request::new("c").inbound(), 0).exit(Outcome::Success, at(0));
}

#[test]
fn in_shadow_mode_each_of_them_counts_and_refuses_nothing() {
    let rules = |own: Mode, all: Mode| Rules {
        authority: vec![
            AuthorityRule::new("pay", "shop", AuthorityStrategy::Black)
                .unwrap()
                .in_mode(own),
        ],
        system: vec![SystemRule::new().with_max_thread(1.0).unwrap().in_mode(own)],
        degrade: vec![breaker("pay").in_mode(own)],
        mode: all,
        ..Rules::default()
    };
    for (own, all) in [(Mode::Shadow, Mode::Enforce), (Mode::Enforce, Mode::Shadow)] {
        let engine = guarded(rules(own, all));
        fail_twice(&engine, "pay", 0);
        let request = || Request::new("pay").origin("shop").inbound();
        let first = pass(&engine, &request(), 10);
        pass(&engine, &request(), 10).exit(Outcome::Error, at(10));
        first.exit(Outcome::Success, at(10));
        let mut counted = Vec::new();
        engine.for_each_precheck(|report| {
            counted.push((report.blocked, report.shadow_blocked));
        });
        assert_eq!(counted, [(0, 2), (0, 1), (0, 2)]);
    }
}

#[test]
fn rules_that_do_not_go_together_are_refused_by_place() {
    let same = Engine::new(Rules {
        degrade: vec![breaker("a"), breaker("a")],
        ..Rules::default()
    })
    .err()
    .unwrap();
    assert_eq!(same.place(), ("degradeRules", 1));
    assert_eq!(
        same.to_string(),
        "`a/errorRatio` is the id of an earlier rule; give one of them another `id`"
    );
    let store = Rc::new(Store::without_statistics(leapgate::backend::Local));
    let rules = Rules {
        system: vec![SystemRule::new().with_qps(1.0).unwrap()],
        ..Rules::default()
    };
    let error = Engine::with_store(store, rules).err().unwrap();
    assert_eq!(error, RulesError::NoStatistics);
}

#[test]
fn compatible_breakers_and_system_rules_decide_as_sentinels_in_the_engine() {
    for component in ["breaker", "system"] {
        each_trace(component, |trace, steps| {
            let rules = match component {
                "breaker" => Rules {
                    degrade: vec![crate::breaker::written(&trace["degradeRule"])],
                    ..Rules::default()
                },
                _ => Rules {
                    system: trace["systemRules"]
                        .as_array()
                        .unwrap()
                        .iter()
                        .map(crate::system::written)
                        .collect(),
                    ..Rules::default()
                },
            };
            let engine = guarded(rules);
            let mut gauges = Gauges::default();
            let mut open: HashMap<u64, Entry> = HashMap::new();
            while let Some(step) = steps.next() {
                let (now, arguments) = (at(step.now), step.arguments);
                let answer = match step.operation {
                    "enter" => {
                        // The trace of a breaker has one resource, and calls that come from within.
                        let resource = arguments["resource"].as_str().unwrap_or("service");
                        let request = Request::new(resource).cost(n(&arguments["acquire"]) as u32);
                        let request = if arguments["type"] == "IN" {
                            request.inbound()
                        } else {
                            request
                        };
                        Some(match engine.enter(&request, now) {
                            Decision::Pass(entry) => {
                                open.insert(n(&arguments["id"]), entry);
                                json!("pass")
                            }
                            Decision::Wait(..) => panic!("no rule here makes wait"),
                            Decision::Block(blocked) => match blocked.cause() {
                                Cause::System(limit, _) => {
                                    json!({ "block": "system", "limit": limit.as_str() })
                                }
                                _ => json!({ "block": kind(&blocked) }),
                            },
                        })
                    }
                    "exit" => {
                        open.remove(&n(&arguments["id"]))
                            .unwrap()
                            .exit(outcome(arguments), now);
                        None
                    }
                    "setSystemLoad" => {
                        gauges.load = arguments.as_f64();
                        engine.store().set_gauges(gauges);
                        None
                    }
                    "setCpuUsage" => {
                        gauges.cpu = arguments.as_f64();
                        engine.store().set_gauges(gauges);
                        None
                    }
                    other => panic!("unknown operation {other}"),
                };
                let inbound = engine.store().tree().unwrap().inbound();
                steps.check(&step, answer, inbound.statistics());
            }
        });
    }
}

// ---- all kinds together ----

/// Rules of every kind for one resource, each of which refuses now and then; but for one that warms up, which looks at what it
/// has held back.
fn every_kind(random: &mut fastrand::Rng) -> Rules {
    let queue = MaxQueueing::from_millis(random.u64(0..200)).unwrap();
    let mut flow = |id: &str, least: u32, most: u32| {
        rule(id, "api", random.u32(8 * least..8 * most) as f64 / 8.0)
    };
    let mut flow = vec![
        flow("strict", 4, 20),
        flow("weighted", 4, 20).counting(Counting::Weighted),
        flow("in flight", 3, 9).concurrency(),
        flow("even", 10, 60).throttle(queue),
    ];
    random.shuffle(&mut flow);
    flow.truncate(random.usize(1..4));
    let slow = DegradeGrade::slow_ratio(random.u32(5..200).into(), 0.5).unwrap();
    let slow = DegradeRule::new("api", slow, random.u64(50..2000)).unwrap();
    let failed = DegradeGrade::error_count(random.u32(1..4).into()).unwrap();
    let failed = DegradeRule::new("api", failed, random.u64(50..2000)).unwrap();
    Rules {
        flow,
        degrade: vec![slow, failed.with_probes(2).unwrap()],
        system: vec![
            SystemRule::new()
                .with_qps(random.u32(8..20).into())
                .unwrap(),
            SystemRule::new().with_max_thread(6.0).unwrap(),
            SystemRule::new().with_avg_rt(150.0).unwrap(),
        ],
        authority: vec![AuthorityRule::new("api", "x", AuthorityStrategy::Black).unwrap()],
        ..Rules::default()
    }
}

/// Two engines, one of which gets only the requests that the other admits: they decide alike, to the end.
#[test]
fn what_any_kind_of_rule_refuses_might_as_well_not_have_come() {
    let mut refused: HashMap<&str, u32> = HashMap::new();
    for seed in 0..300 {
        let mut random = fastrand::Rng::with_seed(seed);
        let rules = every_kind(&mut random);
        let [all, admitted] = [guarded(rules.clone()), guarded(rules)];
        let mut open: Vec<[Entry; 2]> = Vec::new();
        let mut now = random.u64(0..5000);
        for step in 0..200 {
            now += random.u64(0..60);
            if !open.is_empty() && random.bool() {
                let outcome = [Outcome::Success, Outcome::Success, Outcome::Error];
                let outcome = random.choice(outcome).unwrap();
                for entry in open.remove(random.usize(..open.len())) {
                    entry.exit(outcome, at(now));
                }
                continue;
            }
            let origin = ["", "", "", "x"][random.usize(..4)];
            let inbound = random.u8(..4) > 0;
            let ask = || {
                let request = Request::new("api").origin(origin);
                if inbound { request.inbound() } else { request }
            };
            let first = match all.enter(&ask(), at(now)) {
                Decision::Block(blocked) => {
                    *refused.entry(kind(&blocked)).or_default() += 1;
                    continue;
                }
                let_in => let_in,
            };
            match (first, admitted.enter(&ask(), at(now))) {
                (Decision::Pass(one), Decision::Pass(other)) => open.push([one, other]),
                (Decision::Wait(for_one, one), Decision::Wait(for_other, other))
                    if for_one == for_other =>
                {
                    open.push([one, other]);
                }
                unlike => panic!("seed {seed}, step {step} at {now}: {unlike:?}"),
            }
        }
    }
    assert!(
        refused.len() == 4 && refused.values().all(|times| *times > 200),
        "{refused:?}"
    );
}

/// Opens when both of two calls were slower than 100 ms.
fn slow_breaker() -> DegradeRule {
    let grade = DegradeGrade::slow_ratio(100.0, 0.5).unwrap();
    DegradeRule::new("pay", grade, 2000)
        .unwrap()
        .needing(2)
        .unwrap()
}

#[test]
fn a_call_that_the_client_did_not_wait_for_was_slow_if_it_was_slow_by_then() {
    for (lasted, opens) in [(100, false), (101, true)] {
        let engine = guarded(Rules {
            degrade: vec![slow_breaker(), breaker("pay")],
            ..Rules::default()
        });
        let request = Request::new("pay");
        for entry in [pass(&engine, &request, 0), pass(&engine, &request, 0)] {
            entry.exit_unanswered(at(lasted));
        }
        // The breaker on errors did not count these calls: the next two are its first.
        let next = engine.enter(&request, at(lasted));
        assert_eq!(matches!(next, Decision::Block(_)), opens, "{lasted} ms");
    }
}

#[test]
fn a_call_whose_caller_gave_up_has_failed_at_once_and_is_in_flight_until_it_ends() {
    let engine = guarded(Rules {
        flow: vec![rule("in flight", "pay", 4.0).concurrency()],
        degrade: vec![breaker("pay"), slow_breaker().with_id(RuleId::new("slow").unwrap())],
        ..Rules::default()
    });
    let request = Request::new("pay").cost(2);
    let mut calls = [pass(&engine, &request, 0), pass(&engine, &request, 0)];
    for call in &mut calls {
        call.fail(at(150));
    }
    let blocked = block(&engine, &request, 150);
    assert_eq!((kind(&blocked), retry_ms(&blocked)), ("degrade", Some(2000)));
    assert_eq!(decisions(&engine, "slow"), (0, 0), "one refusal counts once");
    let full = block(&engine, &request, 2150);
    assert_eq!((kind(&full), retry_ms(&full)), ("flow", Some(1)));
    let [first, second] = calls;
    first.exit(Outcome::Success, at(2200));
    drop(second);
    // Their ends were no outcomes of probes.
    let states = || {
        let mut states = Vec::new();
        let known = engine.known_resource("pay").unwrap();
        known.for_each_rule(&mut |id, phase| states.push((id.to_string(), phase)));
        states
    };
    let open = Some(Phase::Open { retry_at: at(2150) });
    let expected = [("in flight", None), ("pay/errorRatio", open), ("slow", open)];
    assert_eq!(states(), expected.map(|(id, phase)| (id.to_owned(), phase)));
    let mut probe = pass(&engine, &request, 2200);
    probe.fail(at(2210));
    probe.fail(at(2220));
    probe.exit(Outcome::Success, at(2300));
    assert_eq!(retry_ms(&block(&engine, &request, 2300)), Some(1910));
}

#[test]
fn a_resource_that_is_looked_up_is_not_made() {
    let engine = guarded(Rules {
        degrade: vec![breaker("*")],
        ..Rules::default()
    });
    assert!(engine.known_resource("pay").is_none());
    assert!(engine.known_resource("pay").is_none());
    assert_eq!(engine.store().breakers(), 0);
    drop(pass(&engine, &Request::new("pay"), 0));
    assert!(engine.known_resource("pay").is_some());
}

#[test]
fn a_call_that_the_client_did_not_wait_for_is_no_longer_in_flight_for_its_key() {
    let by_method = KeyedBy::new([KeyPart::Method]).unwrap();
    let rule = rule("one", "pay", 1.0).concurrency();
    let engine = guarded(Rules {
        flow: vec![rule.keyed(by_method).unwrap()],
        ..Rules::default()
    });
    let keys = [KeyValue::One(b"GET")];
    let request = Request::new("pay").keys(&keys);
    for now in [0, 10] {
        pass(&engine, &request, now).exit_unanswered(at(now + 5));
    }
}

#[test]
fn a_slow_probe_that_the_client_did_not_wait_for_decides_and_a_quick_one_is_given_back() {
    for (lasted, retry_after) in [(50, 2000), (150, 2000)] {
        let engine = guarded(Rules {
            degrade: vec![slow_breaker()],
            ..Rules::default()
        });
        let request = Request::new("pay");
        for entry in [pass(&engine, &request, 0), pass(&engine, &request, 0)] {
            entry.exit(Outcome::Success, at(101));
        }
        let probe = pass(&engine, &request, 2101);
        probe.exit_unanswered(at(2101 + lasted));
        let blocked = block(&engine, &request, 2101 + lasted);
        assert_eq!(retry_ms(&blocked), Some(retry_after));
        drop(pass(&engine, &request, 2101 + lasted + retry_after));
    }
}

#[test]
fn a_call_that_goes_on_after_its_answer_has_the_response_time_of_its_answer() {
    let engine = guarded(Rules {
        degrade: vec![slow_breaker()],
        ..Rules::default()
    });
    let request = Request::new("pay");
    for entry in [pass(&engine, &request, 0), pass(&engine, &request, 0)] {
        entry.exit_as(Outcome::Success, at(100), at(5000));
    }
    drop(pass(&engine, &request, 5000));
}

#[test]
fn without_statistics_system_rules_decide_on_the_numbers_handed_in() {
    let store = Rc::new(Store::without_statistics(leapgate::backend::Local));
    store.set_inbound(Inbound::default());
    let rules = Rules {
        system: vec![SystemRule::new().with_max_thread(3.0).unwrap()],
        ..Rules::default()
    };
    let engine = Engine::with_store(Rc::clone(&store), rules).unwrap();
    let inbound = Request::new("any").inbound();
    drop(pass(&engine, &inbound, 0));
    store.set_inbound(Inbound {
        threads: 3,
        ..Inbound::default()
    });
    assert_eq!(kind(&block(&engine, &inbound, 0)), "system");
    drop(pass(&engine, &Request::new("any"), 0)); // not from outside
}
