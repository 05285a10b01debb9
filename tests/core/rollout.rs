//! Which state goes on when a rule changes, as in `docs/configuration.md`; and rules in shadow mode beside the same rules in
//! force.

use crate::support::{at, engine, rules};
use leapgate::backend::{LocalCounter, Past, RuleWindow};
use leapgate::config::{Value, read};
use leapgate::rule::{Counting, FlowRule, KeyPart, KeyValue, KeyedBy, MaxQueueing, Mode, WarmUp};
use leapgate::stats::Window;
use leapgate::{Decision, Engine, Entry, Outcome, Request, Rules, RulesError};
use std::collections::BTreeMap;

fn of_document(text: &str) -> Rules {
    let document = Value::from_json(text.as_bytes()).unwrap();
    read(&document).unwrap().rules
}

/// Requests a resource, from the origin `app`, with one value for each part of its keys.
fn ask(engine: &Engine, resource: &str, now: u64) -> Decision {
    let parts = engine.resource(resource).key_parts().len();
    let keys = vec![KeyValue::One(b"one"); parts];
    let request = Request::new(resource).origin("app").keys(&keys).impatient();
    engine.enter(&request, at(now))
}

/// How many of some requests pass; each ends with an error.
fn passes(engine: &Engine, resource: &str, now: u64) -> usize {
    let mut open = Vec::new();
    for _ in 0..30 {
        if let Decision::Pass(entry) = ask(engine, resource, now) {
            open.push(entry);
        }
    }
    let passed = open.len();
    // Half of them stay in flight.
    for (i, entry) in open.into_iter().enumerate() {
        if i % 2 == 0 {
            entry.exit(Outcome::Error, at(now));
        } else {
            std::mem::forget(entry);
        }
    }
    passed
}

/// A document with one rule in that list, which has these fields and the ones in `besides`.
fn document(list: &str, id: &str, fields: &str) -> String {
    let id = match id {
        "" => String::new(),
        id => format!(r#""id": "{id}", "#),
    };
    format!(r#"{{"{list}": [{{{id}{fields}}}]}}"#)
}

/// Whether a rule's state goes on when the rule changes: fewer requests pass than under a new rule.
#[track_caller]
fn goes_on(list: &str, id: (&str, &str), fields: (&str, &str), resource: (&str, &str)) -> bool {
    let (from, to) = (
        of_document(&document(list, id.0, fields.0)),
        of_document(&document(list, id.1, fields.1)),
    );
    let engine = Engine::new(from).unwrap();
    let before = passes(&engine, resource.0, 5000);
    assert!(0 < before && before < 30, "{fields:?}: {before} pass");
    engine.replace(to.clone()).unwrap();
    // A shadow rule refuses nothing: its shadow refusals are read.
    let count = |engine: &Engine| {
        let passed = passes(engine, resource.1, 5000);
        let mut shadow_blocked = 0;
        engine.store().for_each_unkeyed(|_, state| {
            shadow_blocked += state.shadow_blocked();
        });
        (passed, shadow_blocked)
    };
    let (went_on, anew) = (count(&engine), count(&Engine::new(to).unwrap()));
    if went_on.0 != anew.0 {
        assert!(went_on.0 < anew.0, "{fields:?}: {went_on:?}, {anew:?}");
        return true;
    }
    went_on.1 > anew.1
}

/// The rows of the table of the documents under this head: what changes, and whether a rule goes on that has an id of its own,
/// and one that has a default id.
fn table(head: &str) -> BTreeMap<&'static str, (bool, bool)> {
    let text = include_str!("../../docs/configuration.md");
    let start = text.find(head).unwrap();
    let rows = text[start..].lines().skip(2);
    let cells = rows.take_while(|row| row.starts_with('|')).map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let goes_on = |cell: &str| match cell {
            "goes on" => true,
            "anew" => false,
            other => panic!("{other} is neither"),
        };
        (cells[0], (goes_on(cells[1]), goes_on(cells[2])))
    });
    cells.collect()
}

const RULE: &str = r#""resource": "api", "count": 10"#;

/// For each row of the first table, fields before and after, besides the fields of [`RULE`].
const FLOW_CHANGES: [(&str, &[(&str, &str)]); 18] = [
    (
        "`count`, `burst`, `keyItems`",
        &[
            (r#""count": 10"#, r#""count": 12"#),
            (
                r#""count": 10, "key": ["path"]"#,
                r#""count": 12, "key": ["path"]"#,
            ),
            (
                r#""count": 10, "key": ["path"]"#,
                r#""count": 10, "key": ["path"], "burst": 2"#,
            ),
            (
                r#""count": 10, "key": ["path"]"#,
                r#""count": 10, "key": ["path"], "keyItems": [{"value": "one", "count": 12}]"#,
            ),
            (
                r#""count": 10, "key": ["path"]"#,
                r#""count": {"metadata": ["plans", "n"], "default": 12}, "key": ["path"]"#,
            ),
        ],
    ),
    (
        "`enforcePercent`, `exempt`",
        &[
            (
                r#""count": 10, "key": ["path"]"#,
                r#""count": 10, "key": ["path"], "enforcePercent": 99"#,
            ),
            (
                r#""count": 10, "key": ["path"]"#,
                r#""count": 10, "key": ["path"], "exempt": [{"origin": "none"}]"#,
            ),
            (
                r#""count": 10"#,
                r#""count": 10, "exempt": [{"origin": "none"}]"#,
            ),
        ],
    ),
    (
        "`mode`: from shadow to enforce and back",
        &[(r#""count": 10"#, r#""count": 10, "mode": "shadow""#)],
    ),
    (
        "`window`",
        &[
            (r#""count": 10"#, r#""count": 10, "window": "sentinel""#),
            (
                r#""count": 10, "window": "sentinel""#,
                r#""count": 10, "window": "weighted""#,
            ),
            (
                r#""count": 10, "window": "weighted""#,
                r#""count": 10, "window": "strict""#,
            ),
            (
                r#""count": 10, "key": ["path"]"#,
                r#""count": 10, "key": ["path"], "window": "weighted""#,
            ),
        ],
    ),
    (
        "rules before it or behind it",
        &[(
            r#""count": 10"#,
            r#""count": 10}, {"id": "x", "resource": "api", "count": 25"#,
        )],
    ),
    (
        "`maxQueueingTimeMs`",
        &[(
            r#""count": 10, "controlBehavior": "throttle""#,
            r#""count": 10, "controlBehavior": "throttle", "maxQueueingTimeMs": 100"#,
        )],
    ),
    (
        "`warmUpPeriodSec`, `coldFactor`",
        &[
            (
                r#""count": 10, "controlBehavior": "warmUp""#,
                r#""count": 10, "controlBehavior": "warmUp", "coldFactor": 2"#,
            ),
            (
                r#""count": 10, "controlBehavior": "warmUp""#,
                r#""count": 10, "controlBehavior": "warmUp", "warmUpPeriodSec": 20"#,
            ),
        ],
    ),
    (
        "`resource`, from one name to another",
        &[(
            r#""count": 10"#,
            r#""count": 10, "resource": "another", "instead": 1"#,
        )],
    ),
    (
        "`limitApp`, between `\"default\"` and an origin",
        &[(r#""count": 10"#, r#""count": 10, "limitApp": "app""#)],
    ),
    (
        "`resource`, to or from `\"*\"`",
        &[(
            r#""count": 10"#,
            r#""count": 10, "resource": "*", "instead": 1"#,
        )],
    ),
    (
        "`limitApp`, to or from `\"other\"`",
        &[(r#""count": 10"#, r#""count": 10, "limitApp": "other""#)],
    ),
    (
        "`intervalMs`, `sampleCount`",
        &[
            (r#""count": 10"#, r#""count": 10, "intervalMs": 2000"#),
            (r#""count": 10"#, r#""count": 10, "sampleCount": 10"#),
            (
                r#""count": 10, "key": ["path"]"#,
                r#""count": 10, "key": ["path"], "sampleCount": 10"#,
            ),
        ],
    ),
    (
        "`grade`",
        &[
            (r#""count": 10"#, r#""count": 10, "grade": "concurrency""#),
            (r#""count": 10, "grade": "concurrency""#, r#""count": 10"#),
        ],
    ),
    (
        "`controlBehavior`",
        &[
            (
                r#""count": 10"#,
                r#""count": 10, "controlBehavior": "warmUp""#,
            ),
            (
                r#""count": 10, "controlBehavior": "throttle""#,
                r#""count": 10"#,
            ),
            (
                r#""count": 10, "key": ["path"]"#,
                r#""count": 10, "key": ["path"], "controlBehavior": "throttle""#,
            ),
        ],
    ),
    (
        "`strategy`, `refResource`",
        &[
            (
                r#""count": 10"#,
                r#""count": 10, "strategy": "relate", "refResource": "other""#,
            ),
            (
                r#""count": 10, "strategy": "chain", "refResource": "sentinel_default_context""#,
                r#""count": 10"#,
            ),
        ],
    ),
    (
        "`key`, `maxKeys`",
        &[
            (r#""count": 10"#, r#""count": 10, "key": ["path"]"#),
            (
                r#""count": 10, "key": ["path"]"#,
                r#""count": 10, "key": ["method"]"#,
            ),
            (
                r#""count": 10, "key": ["path"]"#,
                r#""count": 10, "key": ["path"], "maxKeys": 8"#,
            ),
        ],
    ),
    (
        "`compat`",
        &[(r#""count": 10"#, r#""count": 10, "compat": "sentinel""#)],
    ),
    ("`id`", &[]),
];

/// The same of the second table.
const DEGRADE_CHANGES: [(&str, &[(&str, &str)]); 7] = [
    (
        "`count`, `slowRatioThreshold`, `timeWindow`, `minRequestAmount`, `probes`, `comparison`",
        &[
            ("", r#", "count": 4"#),
            ("", r#", "timeWindow": 20"#),
            ("", r#", "minRequestAmount": 2"#),
            ("", r#", "probes": 2"#),
            ("", r#", "comparison": "atLeast""#),
        ],
    ),
    (
        "`mode`: from shadow to enforce and back",
        &[("", r#", "mode": "shadow""#)],
    ),
    ("`resource`", &[("", r#", "resource": "another""#)]),
    (
        "`statIntervalMs`, `sampleCount`",
        &[
            ("", r#", "statIntervalMs": 2000"#),
            ("", r#", "sampleCount": 5"#),
        ],
    ),
    ("`grade`", &[("", r#", "grade": "errorRatio""#)]),
    ("`compat`", &[("", r#", "compat": "sentinel""#)]),
    ("`id`", &[]),
];

#[test]
fn a_flow_rule_goes_on_or_begins_anew_as_the_table_in_the_documents_says() {
    let table = table("| Changed, of a flow rule");
    let tested: Vec<&str> = FLOW_CHANGES.iter().map(|(row, _)| *row).collect();
    assert!(table.keys().all(|row| tested.contains(row)), "{table:?}");
    for (row, changes) in FLOW_CHANGES {
        let (own, default) = table[row];
        for (before, after) in changes {
            let renamed = after.contains("instead");
            let of = |fields: &str| {
                let fields = fields.replace(r#", "instead": 1"#, "");
                match renamed && fields.contains("resource") {
                    true => fields,
                    false => format!(r#""resource": "api", {fields}"#),
                }
            };
            let fields = (of(before), of(after));
            let resources = if after.contains("another") {
                ("api", "another")
            } else {
                ("api", "api")
            };
            for (from, to) in [(&fields.0, &fields.1), (&fields.1, &fields.0)] {
                if from.contains("shadow") || from.contains("refResource\": \"other") {
                    continue; // they refuse nothing
                }
                let resources = match from == &fields.0 {
                    true => resources,
                    false => (resources.1, resources.0),
                };
                for (id, expected) in [("r", own), ("", default)] {
                    let goes_on = goes_on("flowRules", (id, id), (from, to), resources);
                    assert_eq!(goes_on, expected, "{row}, id `{id}`: {from} to {to}");
                }
            }
        }
    }
    let rule = (RULE, RULE);
    assert!(!goes_on("flowRules", ("a", "b"), rule, ("api", "api")));
    assert!(!goes_on("flowRules", ("a", ""), rule, ("api", "api")));
}

#[test]
fn a_breaker_goes_on_or_begins_anew_as_the_table_in_the_documents_says() {
    let table = table("| Changed, of a degrade rule");
    let tested: Vec<&str> = DEGRADE_CHANGES.iter().map(|(row, _)| *row).collect();
    assert!(table.keys().all(|row| tested.contains(row)), "{table:?}");
    let defaults = [
        ("resource", r#""api""#),
        ("grade", r#""errorCount""#),
        ("count", "2"),
        ("timeWindow", "10"),
        ("minRequestAmount", "1"),
    ];
    let of = |more: &str| {
        let rest = defaults
            .iter()
            .filter(|(name, _)| !more.contains(&format!("\"{name}\"")));
        let rest: Vec<String> = rest
            .map(|(name, value)| format!("\"{name}\": {value}"))
            .collect();
        rest.join(", ") + &more.replace("\"errorRatio\"", "\"errorRatio\", \"count\": 0.5")
    };
    let of = |more: &str| {
        if more.contains("errorRatio") {
            of(more).replacen("\"count\": 2, ", "", 1)
        } else {
            of(more)
        }
    };
    let is_open = |engine: &Engine, resource: &str| {
        let mut shadow = 0;
        let passed = passes(engine, resource, 5000);
        engine.for_each_precheck(|report| shadow += report.shadow_blocked);
        passed == 0 || shadow == 30
    };
    for (row, changes) in DEGRADE_CHANGES {
        for (_, change) in changes {
            let resource = if change.contains("another") {
                "another"
            } else {
                "api"
            };
            for (id, expected) in [("r", table[row].0), ("", table[row].1)] {
                let rules = |more| of_document(&document("degradeRules", id, &of(more)));
                let engine = Engine::new(rules("")).unwrap();
                passes(&engine, "api", 5000);
                assert!(is_open(&engine, "api"));
                engine.replace(rules(change)).unwrap();
                assert_eq!(
                    is_open(&engine, resource),
                    expected,
                    "{row}, id `{id}`: {change}"
                );
            }
        }
    }
    for (before, after) in [("a", "b"), ("a", "")] {
        let rules = |id| of_document(&document("degradeRules", id, &of("")));
        let engine = Engine::new(rules(before)).unwrap();
        passes(&engine, "api", 5000);
        engine.replace(rules(after)).unwrap();
        assert!(!is_open(&engine, "api"));
    }
}

/// A window that counts differently from now on is as if it had always counted so.
#[test]
fn a_window_that_changes_how_it_counts_is_as_if_it_had_always_counted_so() {
    let countings = [Counting::Strict, Counting::Sentinel, Counting::Weighted];
    let mut random = fastrand::Rng::with_seed(9);
    for _ in 0..200 {
        let window = Window::new(1000, [1, 2, 5, 10][random.usize(0..4)]).unwrap();
        let of = |counting| RuleWindow::new(window, counting, LocalCounter::default(), Past::Fresh);
        let (changing, others) = (of(Counting::Strict), countings.map(of));
        let mut now = 5000;
        for _ in 0..100 {
            now += random.u64(0..400);
            let limit = leapgate::rule::Count::new(1e9).unwrap();
            let kind = random.usize(0..3);
            changing.count_as(countings[kind]);
            for window in others.iter().chain([&changing]) {
                window.advance(at(now));
                assert!(window.reserve(limit, 2, at(now)));
                window.admit(2);
            }
            for later in [0, 90, 350, 1000] {
                let later = at(now + later);
                assert_eq!(changing.sum(later), others[kind].sum(later));
            }
            let limit = leapgate::rule::Count::new(f64::from(random.u8(0..40))).unwrap();
            let has_room = |window: &RuleWindow<LocalCounter>| window.has_room(limit, 3, at(now));
            assert_eq!(has_room(&changing), has_room(&others[kind]));
        }
    }
}

/// Rules of every kind that have a state, with this count.
fn kinds(count: f64) -> Vec<FlowRule> {
    let new = || FlowRule::new("api", count).unwrap();
    let queueing = MaxQueueing::from_millis(300).unwrap();
    let by_path = || KeyedBy::new([KeyPart::Path]).unwrap();
    vec![
        new(),
        new()
            .per(1000, Some(2))
            .unwrap()
            .counting(Counting::Weighted),
        new().counting(Counting::Sentinel),
        new().concurrency(),
        new().throttle(queueing),
        new().warm_up(WarmUp::default()),
        new().warm_up_throttle(WarmUp::default(), queueing),
        new().sentinel(),
        new().sentinel().warm_up(WarmUp::default()),
        new().keyed(by_path()).unwrap(),
        new().concurrency().keyed(by_path()).unwrap(),
        new().throttle(queueing).keyed(by_path()).unwrap(),
        new().for_origin(leapgate::rule::LimitApp::Other),
        new()
            .for_origin(leapgate::rule::LimitApp::Other)
            .keyed(by_path())
            .unwrap(),
    ]
}

/// The decision about a request, in words.
fn outcome(decision: &Decision) -> String {
    match decision {
        Decision::Pass(_) => "passes".into(),
        Decision::Wait(wait, _) => format!("waits for {wait:?}"),
        Decision::Block(blocked) => {
            format!("{} refuses, for {:?}", blocked.id(), blocked.retry_after())
        }
    }
}

#[test]
fn a_rule_in_shadow_that_has_the_id_of_one_in_force_changes_no_decision() {
    let mut random = fastrand::Rng::with_seed(4);
    for (kind, real) in kinds(8.0).into_iter().enumerate() {
        for count in [0.0, 3.0, 8.0, 20.0] {
            let shadow = kinds(count).swap_remove(kind).in_mode(Mode::Shadow);
            // Another window mode has the same default id.
            let shadow = if random.bool() && !shadow.is_compat() {
                shadow.counting(Counting::Weighted)
            } else {
                shadow
            };
            let mut both = vec![real.clone(), shadow.clone()];
            if random.bool() {
                both.reverse();
            }
            let (one, both) = (engine([real.clone()]), engine(both));
            let mut open: Vec<(Entry, Entry)> = Vec::new();
            let mut now = 5000;
            for step in 0..600 {
                now += random.u64(0..60);
                if random.u8(0..4) == 0 && !open.is_empty() {
                    let (a, b) = open.swap_remove(random.usize(0..open.len()));
                    match random.u8(0..3) {
                        0 => (a.cancel(at(now)), b.cancel(at(now))),
                        1 => (drop(a), drop(b)),
                        _ => (
                            a.exit(Outcome::Success, at(now)),
                            b.exit(Outcome::Success, at(now)),
                        ),
                    };
                    continue;
                }
                let key = [KeyValue::One(if random.bool() { b"a" } else { b"b" })];
                let mut request = Request::new("api").origin("app").keys(&key);
                if random.u8(0..3) == 0 {
                    request = request.prioritized();
                }
                let [a, b] = [&one, &both].map(|engine| engine.enter(&request, at(now)));
                assert_eq!(
                    outcome(&a),
                    outcome(&b),
                    "{real:?}\n{shadow:?}\nstep {step} at {now}"
                );
                if let (
                    Decision::Pass(a) | Decision::Wait(_, a),
                    Decision::Pass(b) | Decision::Wait(_, b),
                ) = (a, b)
                {
                    open.push((a, b));
                }
            }
        }
    }
}

/// By id: how many requests a rule has let pass, has refused, and would have refused.
fn decisions(engine: &Engine) -> BTreeMap<String, [u64; 3]> {
    let mut decisions = BTreeMap::new();
    engine.store().for_each_unkeyed(|key, state| {
        let now = [state.passed(), state.blocked(), state.shadow_blocked()];
        decisions.insert(key.rule.to_string(), now);
    });
    engine.store().for_each_keyed(|key, state| {
        let now = [state.passed(), state.blocked(), state.shadow_blocked()];
        decisions.insert(key.rule.to_string(), now);
    });
    decisions
}

#[test]
fn it_says_what_it_would_have_refused_of_what_really_passes() {
    for (kind, real) in kinds(8.0).into_iter().enumerate() {
        let base = real.id().to_string();
        for same in [true, false] {
            let count = if same { 8.0 } else { 3.0 };
            let shadow = kinds(count).swap_remove(kind).in_mode(Mode::Shadow);
            let engine = engine([shadow, real.clone()]);
            let mut open = Vec::new();
            for _ in 0..30 {
                open.push(ask(&engine, "api", 5000));
            }
            let decisions = decisions(&engine);
            let [passed, blocked, _] = decisions[&base];
            let own = decisions[&format!("{base}/shadow")];
            assert_eq!(passed + blocked, 30, "{real:?}");
            // A throttle in shadow mode would have had them wait.
            if same && !real.control_behavior().is_paced() {
                assert_eq!(own, [passed, 0, blocked], "{real:?}");
            } else {
                assert!(own[0] <= passed && own[1] == 0, "{real:?}: {own:?}");
            }
        }
    }
}

#[test]
fn a_roll_out_from_shadow_to_enforce_goes_on_with_counts_and_decisions() {
    for real in kinds(8.0) {
        let shadow = real.clone().in_mode(Mode::Shadow);
        let tried = engine([shadow]);
        let mut open: Vec<Decision> = (0..30).map(|_| ask(&tried, "api", 5000)).collect();
        let [passed, _, would_block] = decisions(&tried)[real.id().as_str()];
        tried.replace(rules([real.clone()])).unwrap();
        open.extend((0..5).map(|_| ask(&tried, "api", 5000)));
        let now = decisions(&tried)[real.id().as_str()];
        assert_eq!(now, [passed, 5, would_block], "{real:?}");
    }
}

#[test]
fn ids_are_asked_for_where_two_rules_of_one_mode_have_the_same() {
    let new = || FlowRule::new("api", 1.0).unwrap();
    let shadow = || new().in_mode(Mode::Shadow);
    let named = |rule: FlowRule| rule.with_id(leapgate::rule::RuleId::new("api").unwrap());
    let wrong = [
        vec![new(), new().counting(Counting::Weighted)],
        vec![shadow(), shadow()],
        vec![shadow(), new(), shadow()],
        vec![named(new()), shadow()],
        vec![new(), named(shadow())],
        vec![new(), shadow(), FlowRule::new("api/shadow", 1.0).unwrap()],
    ];
    for flow in wrong {
        let error = Engine::new(rules(flow.clone())).map(drop).unwrap_err();
        assert!(matches!(error, RulesError::SameId { .. }), "{flow:?}");
    }
    let alike = [
        ("é", 1000, "è", 1000), // both are `_`
        ("api", 60_000, "api/60s", 1000),
    ];
    for (real, interval, tried, another) in alike {
        let of = |name, interval| {
            FlowRule::new(name, 1.0)
                .unwrap()
                .per(interval, None)
                .unwrap()
        };
        let flow = [of(real, interval), of(tried, another).in_mode(Mode::Shadow)];
        let error = Engine::new(rules(flow)).map(drop).unwrap_err();
        assert!(matches!(error, RulesError::SameId { .. }), "{tried}");
    }
    let error = Engine::new(rules([new(), new().counting(Counting::Weighted)]));
    assert_eq!(
        error.map(drop).unwrap_err().to_string(),
        "`api` is the id of an earlier rule; give one of them another `id`"
    );
    let engine = engine([shadow(), new()]);
    let resource = engine.resource("api");
    let ids: Vec<String> = resource
        .policies(at(5000))
        .map(|policy| policy.id.to_string())
        .collect();
    assert_eq!(ids, ["api/shadow", "api"]);
}

#[test]
fn other_rules_in_shadow_beside_their_like_in_force_have_names_and_states_of_their_own() {
    let engine = Engine::new(of_document(
        r#"{
            "degradeRules": [
                {"resource": "api", "grade": "errorCount", "count": 10, "minRequestAmount": 1, "timeWindow": 10},
                {"resource": "api", "grade": "errorCount", "count": 2, "minRequestAmount": 1, "timeWindow": 10, "mode": "shadow"}
            ],
            "systemRules": [{"qps": 40}, {"qps": 20, "mode": "shadow"}],
            "authorityRules": [
                {"resource": "api", "limitApp": "eve", "strategy": "black"},
                {"resource": "api", "limitApp": "app", "strategy": "black", "mode": "shadow"}
            ]
        }"#,
    ))
    .unwrap();
    let refuse = |n: usize| {
        (0..n)
            .filter(|_| {
                let request = Request::new("api").origin("app").inbound();
                match engine.enter(&request, at(5000)) {
                    Decision::Pass(entry) => {
                        entry.exit(Outcome::Error, at(5000));
                        false
                    }
                    _ => true,
                }
            })
            .count()
    };
    assert_eq!(refuse(11), 0, "what is in shadow opens nothing");
    assert_eq!(refuse(5), 5, "and what is in force is counted once");
    let mut refusals = BTreeMap::new();
    engine.for_each_precheck(|report| {
        let rule = format!("{} {}", report.kind, report.id);
        refusals.insert(rule, (report.blocked, report.shadow_blocked));
    });
    let expected = [
        ("authority api/black", (0, 0)),
        ("authority api/black/shadow", (0, 16)),
        ("breaker api/errorCount", (5, 0)),
        ("breaker api/errorCount/shadow", (0, 8)),
        ("system system/qps", (0, 0)),
        ("system system/qps/shadow", (0, 0)),
    ];
    let expected = expected.map(|(id, counts)| (id.to_string(), counts));
    assert_eq!(refusals, BTreeMap::from(expected));
}
