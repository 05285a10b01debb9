//! System rules: Sentinel's recorded decisions, every small set of numbers against a naive restatement, and what is better.

use crate::support::at;
use crate::vectors::{each_trace, n};
use leapgate::backend::{Gauges, Inbound};
use leapgate::rule::{FlowRule, Mode, RuleId, SystemLimit, SystemRule};
use leapgate::stats::StatisticNode;
use leapgate::{Decision, Engine, Request, Rules};
use serde_json::{Value, json};
use std::collections::HashMap;

// ---- Sentinel's recorded decisions ----

/// A system rule as Sentinel's recorder writes it: -1 means no threshold.
pub(crate) fn written(rule: &Value) -> SystemRule {
    let number = |key: &str| rule[key].as_f64().unwrap();
    SystemRule::new()
        .with_qps(number("qps"))
        .and_then(|rule| rule.with_max_thread(number("maxThread")))
        .and_then(|rule| rule.with_avg_rt(number("avgRt")))
        .and_then(|rule| rule.with_highest_system_load(number("highestSystemLoad")))
        .and_then(|rule| rule.with_highest_cpu_usage(number("highestCpuUsage")))
        .unwrap()
        .sentinel()
}

#[test]
fn compatible_system_rules_decide_as_sentinels() {
    each_trace("system", |trace, steps| {
        let rules: Vec<SystemRule> = trace["systemRules"]
            .as_array()
            .unwrap()
            .iter()
            .map(written)
            .collect();
        let (node, mut gauges) = (StatisticNode::default(), Gauges::default());
        let mut open: HashMap<u64, (u64, u64, bool)> = HashMap::new();
        while let Some(step) = steps.next() {
            let (now, arguments) = (at(step.now), step.arguments);
            let id = || n(&arguments["id"]);
            let answer = match step.operation {
                "setSystemLoad" => {
                    gauges.load = arguments.as_f64();
                    None
                }
                "setCpuUsage" => {
                    gauges.cpu = arguments.as_f64();
                    None
                }
                "enter" => {
                    let (cost, inbound) = (n(&arguments["acquire"]), arguments["type"] == "IN");
                    let numbers = Inbound::of(&node, now);
                    match SystemRule::first_exceeded(&rules, &numbers, &gauges, cost)
                        .filter(|_| inbound)
                    {
                        Some((limit, _)) => {
                            node.increase_block_qps(cost, now);
                            Some(json!({ "block": "system", "limit": limit.as_str() }))
                        }
                        None => {
                            if inbound {
                                node.begin(cost, now);
                            }
                            open.insert(id(), (step.now, cost, inbound));
                            Some(json!("pass"))
                        }
                    }
                }
                "exit" => {
                    let (began, cost, inbound) = open.remove(&id()).unwrap();
                    let failed = arguments["error"].as_bool().unwrap();
                    if inbound {
                        node.complete(step.now - began, cost, failed, now);
                    }
                    None
                }
                other => panic!("unknown operation {other}"),
            };
            steps.check(&step, answer, &node);
        }
    });
}

// ---- every small set of numbers ----

/// Thresholds, -1 for none, and flags: `[qps, threads, rt, load, cpu]`.
#[derive(Clone, Copy, Debug)]
struct Numbers([f64; 5], bool, bool);

impl Numbers {
    fn rule(self) -> SystemRule {
        let Numbers([qps, threads, rt, load, cpu], bbr, compat) = self;
        let rule = SystemRule::new()
            .with_qps(qps)
            .and_then(|rule| rule.with_max_thread(threads))
            .and_then(|rule| rule.with_avg_rt(rt))
            .and_then(|rule| rule.with_highest_system_load(load))
            .and_then(|rule| rule.with_highest_cpu_usage(cpu))
            .unwrap();
        let rule = if bbr { rule.bbr() } else { rule };
        if compat { rule.sentinel() } else { rule }
    }
}

/// The decision of a single rule, restated.
fn restated(rule: Numbers, inbound: &Inbound, load: f64, cpu: f64, cost: u64) -> &'static str {
    let Numbers([qps, threads, rt, highest_load, highest_cpu], bbr, compat) = rule;
    let estimate = inbound.max_success_qps * inbound.min_rt / 1000.0;
    let too_many = inbound.threads > 1 && inbound.threads as f64 > estimate;
    let knows_load = highest_load >= 0.0 && load >= 0.0;
    let knows_cpu = highest_cpu >= 0.0 && cpu >= 0.0;
    if qps >= 0.0 && inbound.pass_qps + cost as f64 > qps {
        "qps"
    } else if threads >= 0.0 && inbound.threads as f64 + if compat { 0.0 } else { 1.0 } > threads {
        "thread"
    } else if rt >= 0.0 && inbound.avg_rt > rt {
        "rt"
    } else if knows_load && load > highest_load && too_many {
        "load"
    } else if bbr && !knows_load && !knows_cpu && too_many {
        "bbr"
    } else if knows_cpu && cpu > highest_cpu && (too_many || !bbr) {
        "cpu"
    } else {
        "pass"
    }
}

#[test]
fn every_small_set_of_numbers_is_as_restated() {
    let known = |gauge: f64| Some(gauge).filter(|gauge| *gauge >= 0.0);
    let mut random = fastrand::Rng::with_seed(23);
    let mut said: HashMap<&str, u32> = HashMap::new();
    for _ in 0..200_000 {
        let mut pick = |from: &[f64]| from[random.usize(..from.len())];
        let thresholds = [
            pick(&[-1.0, -1.0, 0.0, 1.0, 2.5, 3.0]),
            pick(&[-1.0, -1.0, 0.0, 0.5, 1.0, 2.0, 3.0]),
            pick(&[-1.0, -1.0, 0.0, 10.0]),
            pick(&[-1.0, 0.0, 0.5, 2.0]),
            pick(&[-1.0, 0.0, 0.5, 1.0]),
        ];
        let inbound = Inbound {
            pass_qps: pick(&[0.0, 0.5, 1.0, 2.0]),
            threads: pick(&[0.0, 1.0, 2.0, 3.0, 9.0]) as u64,
            avg_rt: pick(&[0.0, 10.0, 10.5]),
            max_success_qps: pick(&[2.0, 4.0, 1000.0]),
            min_rt: pick(&[1.0, 500.0, 5000.0]),
        };
        let (load, cpu) = (pick(&[-1.0, 0.0, 0.5, 3.0]), pick(&[-1.0, 0.0, 0.5, 0.9]));
        let (cost, numbers) = (
            random.u64(0..3),
            Numbers(thresholds, random.bool(), random.bool()),
        );
        let gauges = Gauges {
            load: known(load),
            cpu: known(cpu),
        };
        let rule = numbers.rule();
        let is = SystemRule::first_exceeded([&rule], &inbound, &gauges, cost)
            .map_or("pass", |(limit, _)| limit.as_str());
        assert_eq!(
            is,
            restated(numbers, &inbound, load, cpu, cost),
            "{numbers:?} {inbound:?} {gauges:?} {cost}"
        );
        *said.entry(is).or_default() += 1;
    }
    assert!(
        said.len() == 7 && said.values().all(|times| *times > 500),
        "{said:?}"
    );
}

// ---- thresholds ----

fn exceeded(rules: &[SystemRule], inbound: Inbound, gauges: Gauges) -> Option<SystemLimit> {
    SystemRule::first_exceeded(rules, &inbound, &gauges, 1).map(|(limit, _)| limit)
}

fn threads(threads: u64) -> Inbound {
    Inbound {
        threads,
        ..Inbound::default()
    }
}

/// The first half is a wart of sentinel-golang's second: a limit of half a call lets one in.
#[test]
fn a_limit_on_calls_in_flight_refuses_the_first_too_many_of_a_resource_and_of_all() {
    let isolation = FlowRule::new("report", 10.0).unwrap().concurrency();
    let engine = Engine::new(Rules {
        flow: vec![isolation],
        ..Rules::default()
    })
    .unwrap();
    let mut entries = Vec::new();
    for i in 0..11 {
        match engine.enter(&Request::new("report"), at(i)) {
            Decision::Wait(..) => panic!("no rule here makes wait"),
            Decision::Pass(entry) => entries.push(entry),
            Decision::Block(_) => assert_eq!(i, 10, "the eleventh"),
        }
    }
    assert_eq!(entries.len(), 10);

    let ten = [SystemRule::new().with_max_thread(10.0).unwrap()];
    assert_eq!(exceeded(&ten, threads(9), Gauges::default()), None);
    assert_eq!(
        exceeded(&ten, threads(10), Gauges::default()),
        Some(SystemLimit::Thread)
    );
    // One call in flight is more than half a call. (In Go, none is fewer, and so one is let in.)
    let half = [SystemRule::new().with_max_thread(0.5).unwrap()];
    for running in [0, 1] {
        assert_eq!(
            exceeded(&half, threads(running), Gauges::default()),
            Some(SystemLimit::Thread)
        );
    }
}

#[test]
fn differs_from_sentinel_system_concurrency_counts_the_request() {
    for max in [0, 1, 2, 800] {
        let rule = SystemRule::new().with_max_thread(max as f64).unwrap();
        let most = |rule: SystemRule| {
            let rules = [rule];
            let mut running = 0;
            while exceeded(&rules, threads(running), Gauges::default()).is_none() {
                running += 1;
            }
            running
        };
        assert_eq!((most(rule.clone()), most(rule.sentinel())), (max, max + 1));
    }
}

#[test]
fn differs_from_sentinel_bbr_needs_no_load() {
    // 100 a second of 50 ms each: 5 at a time.
    let running = |threads| Inbound {
        threads,
        max_success_qps: 100.0,
        min_rt: 50.0,
        ..Inbound::default()
    };
    let nothing_known = Gauges::default();
    let always = [SystemRule::new().bbr()];
    assert_eq!(exceeded(&always, running(5), nothing_known), None);
    assert_eq!(
        exceeded(&always, running(6), nothing_known),
        Some(SystemLimit::Bbr)
    );

    let loaded = SystemRule::new().with_highest_system_load(2.0).unwrap();
    let at_load = |load| Gauges {
        load: Some(load),
        ..Gauges::default()
    };
    for (rule, unknown, low, high) in [
        (loaded.clone(), None, None, Some(SystemLimit::Load)),
        (
            loaded.bbr(),
            Some(SystemLimit::Bbr),
            None,
            Some(SystemLimit::Load),
        ),
    ] {
        let rules = [rule];
        assert_eq!(exceeded(&rules, running(6), nothing_known), unknown);
        assert_eq!(exceeded(&rules, running(6), at_load(2.0)), low);
        assert_eq!(exceeded(&rules, running(6), at_load(2.1)), high);
        assert_eq!(exceeded(&rules, running(5), at_load(2.1)), None);
    }

    let busy = SystemRule::new().with_highest_cpu_usage(0.8).unwrap();
    let at_cpu = |cpu| Gauges {
        cpu: Some(cpu),
        ..Gauges::default()
    };
    // Sentinel's refuses everything, until nothing goes on and everything is let in again.
    let rules = [busy.clone()];
    assert_eq!(
        exceeded(&rules, running(0), at_cpu(0.9)),
        Some(SystemLimit::Cpu)
    );
    let rules = [busy.bbr()];
    assert_eq!(exceeded(&rules, running(5), at_cpu(0.9)), None);
    assert_eq!(
        exceeded(&rules, running(6), at_cpu(0.9)),
        Some(SystemLimit::Cpu)
    );
    assert_eq!(exceeded(&rules, running(6), at_cpu(0.8)), None);
}

#[test]
fn differs_from_sentinel_an_empty_system_rule_switches_nothing_off() {
    let rules = [
        SystemRule::new().with_max_thread(1.0).unwrap(),
        SystemRule::new(),
    ];
    assert!(rules[1].is_empty() && !rules[0].is_empty());
    assert_eq!(
        exceeded(&rules, threads(1), Gauges::default()),
        Some(SystemLimit::Thread)
    );
    assert_eq!(exceeded(&rules[1..], threads(9), Gauges::default()), None);
}

#[test]
fn differs_from_sentinel_a_system_refusal_names_its_rule() {
    let rules = [
        SystemRule::new().with_avg_rt(10.0).unwrap(),
        SystemRule::new().with_max_thread(3.0).unwrap(),
        SystemRule::new()
            .with_max_thread(1.0)
            .and_then(|rule| rule.with_qps(1.0))
            .unwrap(),
    ];
    let named = |inbound: Inbound| {
        SystemRule::first_exceeded(&rules, &inbound, &Gauges::default(), 1)
            .map(|(limit, rule)| (limit.as_str(), rule.id().to_string()))
    };
    let slow = |running| Inbound {
        avg_rt: 11.0,
        ..threads(running)
    };
    assert_eq!(named(threads(0)), None);
    assert_eq!(named(slow(0)), Some(("rt", "system/avgRt".into())));
    // The order of limits decides, before the order of rules.
    assert_eq!(
        named(slow(1)),
        Some(("thread", "system/qps/maxThread".into()))
    );
    assert_eq!(named(slow(3)), Some(("thread", "system/maxThread".into())));
    let fast = Inbound {
        pass_qps: 0.5,
        ..slow(3)
    };
    assert_eq!(named(fast), Some(("qps", "system/qps/maxThread".into())));
}

/// The floors of the numbers: what an idle node is estimated to work off.
#[test]
fn the_estimate_of_an_idle_node_is_sentinels() {
    let node = StatisticNode::default();
    let inbound = Inbound::of(&node, at(0));
    assert_eq!((inbound.max_success_qps, inbound.min_rt), (2.0, 5000.0)); // ten calls
    for running in 0..11 {
        assert!(
            !Inbound {
                threads: running,
                ..inbound
            }
            .exceeds_estimate()
        );
    }
    assert!(
        Inbound {
            threads: 11,
            ..inbound
        }
        .exceeds_estimate()
    );
    // After one call of a millisecond: 0.002 calls, and still one is never too many.
    node.begin(1, at(0));
    node.complete(1, 1, false, at(1));
    let inbound = Inbound::of(&node, at(1));
    assert_eq!((inbound.max_success_qps, inbound.min_rt), (2.0, 1.0));
    let too_many = [0, 1, 2].map(|threads| Inbound { threads, ..inbound }.exceeds_estimate());
    assert_eq!(too_many, [false, false, true]);
}

#[test]
fn what_is_negative_is_no_threshold_and_what_is_no_number_is_refused() {
    let nothing = SystemRule::new()
        .with_qps(-1.0)
        .and_then(|rule| rule.with_max_thread(-7.5))
        .and_then(|rule| rule.with_avg_rt(f64::NEG_INFINITY))
        .and_then(|rule| rule.with_highest_system_load(-1.0))
        .and_then(|rule| rule.with_highest_cpu_usage(-0.1))
        .unwrap();
    assert_eq!(nothing, SystemRule::new());
    assert!(nothing.is_empty() && !nothing.estimates());

    let says = |rule: Result<SystemRule, leapgate::rule::RuleError>| rule.unwrap_err().to_string();
    let count =
        |n: &str| format!("`{n}` is not a valid count; use a number from 0 to 9007199254740992");
    assert_eq!(says(SystemRule::new().with_qps(f64::NAN)), count("NaN"));
    assert_eq!(
        says(SystemRule::new().with_avg_rt(f64::INFINITY)),
        count("Infinity")
    );
    assert_eq!(
        says(SystemRule::new().with_highest_cpu_usage(80.0)),
        "`80` is not a valid ratio; use a number from 0 to 1"
    );
}

#[test]
fn ids_name_what_is_limited() {
    let rule = SystemRule::new().with_qps(1.0).unwrap();
    assert_eq!(SystemRule::new().id().as_str(), "system");
    assert_eq!(rule.id().as_str(), "system/qps");
    let shadow = rule.clone().bbr().in_mode(Mode::Shadow);
    assert_eq!(shadow.id().as_str(), "system/qps/bbr", "whatever its mode");
    assert_eq!(
        rule.clone().sentinel().id().as_str(),
        "system/qps/compat=sentinel"
    );
    let mine = rule.with_id(RuleId::new("mine").unwrap());
    assert_eq!(mine.id().as_str(), "mine");
}
