//! Authority rules: Sentinel's recorded decisions, its warts, and what is refused.

use crate::support::at;
use crate::vectors::{each_trace, flow_rule, n};
use leapgate::rule::{AuthorityRule, AuthorityStrategy, Mode, RuleId, Target};
use leapgate::{Decision, Engine, Entry, Outcome, Request, Rules};
use serde_json::{Value, json};
use std::collections::HashMap;

fn white(limit_app: &str) -> AuthorityRule {
    AuthorityRule::new("admin", limit_app, AuthorityStrategy::White).unwrap()
}

fn black(limit_app: &str) -> AuthorityRule {
    AuthorityRule::new("admin", limit_app, AuthorityStrategy::Black).unwrap()
}

// ---- Sentinel's recorded decisions ----

/// An authority rule as Sentinel's recorder writes it, and what it says of an origin, in so many words.
struct Written<'a> {
    resource: &'a str,
    limit_app: &'a str,
    white: bool,
}

impl<'a> Written<'a> {
    fn new(rule: &'a Value) -> Written<'a> {
        Written {
            resource: rule["resource"].as_str().unwrap(),
            limit_app: rule["limitApp"].as_str().unwrap(),
            white: n(&rule["strategy"]) == 0,
        }
    }

    fn rule(&self) -> AuthorityRule {
        let strategy = match self.white {
            true => AuthorityStrategy::White,
            false => AuthorityStrategy::Black,
        };
        AuthorityRule::new(self.resource, self.limit_app, strategy).unwrap()
    }

    /// With Sentinel's wart: names are what stands between the commas, space included.
    fn admits_in_sentinel(&self, origin: &str) -> bool {
        origin.is_empty() || self.limit_app.split(',').any(|name| name == origin) == self.white
    }
}

/// What Sentinel's window of passes has room for, restated: two half seconds, in a log.
struct Passes {
    count: f64,
    log: Vec<u64>,
}

impl Passes {
    fn pass(&mut self, now: u64) -> bool {
        let counting = self.log.iter().filter(|then| now / 500 - **then / 500 < 2);
        let has_room = counting.count() as f64 + 1.0 <= self.count;
        if has_room {
            self.log.push(now);
        }
        has_room
    }
}

/// Two warts of Sentinel's show in some of the traces: a second rule for a resource is ignored, and names are not trimmed.
/// There, what Sentinel said of authority is what the wart makes of it, and what is said here is held against a log.
#[test]
fn authority_rules_decide_as_sentinels_but_for_its_warts() {
    each_trace("authority", |trace, steps| {
        let list = |key: &str| trace[key].as_array().unwrap().clone();
        let (authority, flow) = (list("authorityRules"), list("flowRules"));
        let written: Vec<Written<'_>> = authority.iter().map(Written::new).collect();
        let rules: Vec<AuthorityRule> = written.iter().map(Written::rule).collect();
        let wart = written.iter().enumerate().any(|(i, rule)| {
            rule.limit_app.contains(' ') || written[..i].iter().any(|r| r.resource == rule.resource)
        });

        let mut logs: HashMap<&str, Passes> = HashMap::new();
        let number = |(i, rule): (usize, &Value)| {
            let id = RuleId::new(&i.to_string()).unwrap();
            flow_rule(rule["resource"].as_str().unwrap(), rule).with_id(id)
        };
        for rule in &flow {
            let count = rule["count"].as_f64().unwrap();
            let passes = Passes {
                count,
                log: Vec::new(),
            };
            let before = logs.insert(rule["resource"].as_str().unwrap(), passes);
            assert!(
                before.is_none() && rule["limitApp"] == "default" && rule["grade"] == 1,
                "{rule}"
            );
        }
        let engine = Engine::new(Rules {
            flow: flow.iter().enumerate().map(number).collect(),
            ..Rules::default()
        })
        .unwrap();

        let mut open: HashMap<u64, Entry> = HashMap::new();
        while let Some(step) = steps.next() {
            let (now, arguments) = (at(step.now), step.arguments);
            let id = n(&arguments["id"]);
            let answer = match step.operation {
                "exit" => {
                    // Where a wart shows, Sentinel has calls in flight that were refused here.
                    assert!(wart || open.contains_key(&id));
                    if let Some(entry) = open.remove(&id) {
                        entry.exit(Outcome::Success, now);
                    }
                    None
                }
                "enter" => {
                    let text = |key: &str| arguments[key].as_str().unwrap();
                    let (resource, origin) = (text("resource"), text("origin"));
                    let of_resource = Target::new(resource).unwrap();
                    let admitted = rules
                        .iter()
                        .filter(|rule| *rule.target() == of_resource)
                        .all(|rule| rule.admits(origin));
                    // Held against Sentinel's own answer, with its warts.
                    let first = written.iter().find(|rule| rule.resource == resource);
                    let in_sentinel = first.is_none_or(|rule| rule.admits_in_sentinel(origin));
                    assert_eq!(
                        in_sentinel,
                        step.whole["is"] != json!({ "block": "authority" }),
                        "{}",
                        step.whole
                    );
                    Some(if admitted {
                        let request = Request::new(resource)
                            .origin(origin)
                            .context(text("context"));
                        match engine.enter(&request, now) {
                            Decision::Wait(..) => panic!("no rule here makes wait"),
                            Decision::Pass(entry) => {
                                open.insert(id, entry);
                                json!("pass")
                            }
                            Decision::Block(blocked) => {
                                let rule: u64 = blocked.id().as_str().parse().unwrap();
                                json!({ "block": "flow", "rule": rule })
                            }
                        }
                    } else {
                        json!({ "block": "authority" })
                    })
                }
                other => panic!("unknown operation {other}"),
            };
            if !wart {
                steps.check(&step, answer, &rules);
            } else if let Some(answer) = answer {
                let text = |key: &str| arguments[key].as_str().unwrap();
                let (resource, origin) = (text("resource"), text("origin"));
                let may = written
                    .iter()
                    .filter(|rule| rule.resource == resource)
                    .all(|rule| {
                        let mut names = rule.limit_app.split(',').map(str::trim);
                        origin.is_empty() || names.any(|name| name == origin) == rule.white
                    });
                let has_room = may
                    && logs
                        .get_mut(resource)
                        .is_none_or(|passes| passes.pass(step.now));
                let expected = match (may, has_room) {
                    (false, _) => json!({ "block": "authority" }),
                    (true, false) => {
                        json!({ "block": "flow", "rule": flow.iter().position(|rule| rule["resource"] == resource) })
                    }
                    (true, true) => json!("pass"),
                };
                assert_eq!(answer, expected, "{}", step.whole);
            }
        }
    });
}

// ---- what is better ----

#[test]
fn differs_from_sentinel_all_authority_rules_apply() {
    let rules = [black("mallory"), black("eve"), white("alice,bob,eve")];
    let may = |origin: &str| rules.iter().all(|rule| rule.admits(origin));
    assert_eq!(
        ["alice", "bob", "eve", "mallory", "carol"].map(may),
        [true, true, false, false, false]
    );
}

#[test]
fn differs_from_sentinel_names_in_authority_rules_are_trimmed() {
    let rule = white(" app ,\tops,, ci");
    assert_eq!(rule.origins().collect::<Vec<_>>(), ["app", "ci", "ops"]);
    assert!(["app", "ops", "ci"].map(|origin| rule.admits(origin)) == [true; 3]);
    // What asks is compared as it is.
    assert!([" app", "ops ", " "].map(|origin| rule.admits(origin)) == [false; 3]);
}

// ---- details ----

#[test]
fn names_are_compared_whole() {
    let (white, black) = (white("app12,app,Ops"), black("app12,app,Ops"));
    for (origin, listed) in [
        ("app", true),
        ("app12", true),
        ("Ops", true),
        ("app1", false),
        ("ap", false),
        ("ops", false),
        ("app12,app", false),
        ("default", false),
        ("other", false),
    ] {
        assert_eq!(
            (white.admits(origin), black.admits(origin)),
            (listed, !listed),
            "{origin}"
        );
    }
}

#[test]
fn a_request_without_an_origin_passes() {
    assert!(white("app").admits("") && black("app").admits(""));
}

#[test]
fn default_and_other_are_names_here() {
    let rule = white("default,other");
    assert_eq!(
        ["default", "other", "app"].map(|origin| rule.admits(origin)),
        [true, true, false]
    );
}

#[test]
fn impossible_rules_are_refused() {
    let says = |resource: &str, limit_app: &str| {
        AuthorityRule::new(resource, limit_app, AuthorityStrategy::White)
            .unwrap_err()
            .to_string()
    };
    for nobody in ["", " ", ",", " , ,"] {
        assert_eq!(
            says("admin", nobody),
            "`` is not a valid name; use at least one character"
        );
    }
    assert_eq!(
        says("", "app"),
        "`` is not a valid name; use at least one character"
    );
    assert_eq!(
        says("admin", &format!("app,{}", "a".repeat(257))),
        "`257` bytes are too many for a name; use at most 256"
    );
}

#[test]
fn ids_name_the_resource_and_the_strategy() {
    assert_eq!(white("app").id().as_str(), "admin/white");
    let shadow = black("app").in_mode(Mode::Shadow);
    assert_eq!(shadow.id().as_str(), "admin/black", "whatever its mode");
    let mine = black("app").with_id(RuleId::new("mine").unwrap());
    assert_eq!(mine.id().as_str(), "mine");
    let each = AuthorityRule::new("*", "app", AuthorityStrategy::Black).unwrap();
    assert_eq!(
        (each.target(), each.id().as_str()),
        (&Target::Each, "*/black")
    );
}
