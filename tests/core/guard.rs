//! Authority rules, system rules and breakers in the engine, with flow rules beside them.

use crate::support::{admitted, at, block, pass, retry_ms, rule};
use crate::vectors::{each_trace, n, outcome};
use leapgate::{
    AuthorityRule, AuthorityStrategy, Blocked, Cause, Decision, DegradeGrade, DegradeRule, Engine,
    Entry, Gauges, Mode, Outcome, Request, Rules, RulesError, Store, SystemLimit, SystemRule,
};
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
    match blocked.cause() {
        Cause::Flow(_) => "flow",
        Cause::Degrade(_) => "degrade",
        Cause::System(..) => "system",
        Cause::Authority(_) => "authority",
    }
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
    engine.for_each_guard(|rule, blocked, shadow| {
        if rule.as_str() == id {
            found = Some((blocked, shadow));
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
    // One of three is left, and it is not the breaker that says so.
    let remaining = engine
        .resource("pay")
        .policies(at(200))
        .next()
        .unwrap()
        .remaining;
    assert_eq!(remaining, 1);
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
fn replacing_rules_keeps_the_state_of_a_breaker() {
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
        engine.for_each_guard(|_, blocked, shadow| counted.push((blocked, shadow)));
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
    let store = Rc::new(Store::without_statistics(leapgate::Local));
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
