//! Rules of a resource that stand in no document.

use crate::support::{at, rule, rules};
use leapgate::rule::{FlowRule, KeyPart, KeyValue, KeyedBy, MAX_RULES_PER_RESOURCE, RuleId};
use leapgate::{Decision, Engine, Outcome, Request, Resource, RulesError};
use std::rc::Rc;

/// How many of `n` requests pass, which end at once, and which rule has refused the last one.
fn admits(engine: &Engine, resource: &Rc<Resource<leapgate::backend::Local>>, n: usize, now: u64) -> (usize, String) {
    let (mut passes, mut last) = (0, String::new());
    for _ in 0..n {
        let keys = [KeyValue::One(b"alice")];
        match engine.enter_resource(resource, &Request::new("").keys(&keys), at(now)) {
            Decision::Pass(entry) => {
                entry.exit(Outcome::Success, at(now));
                passes += 1;
            }
            Decision::Wait(wait, _) => panic!("has to wait for {wait:?}"),
            Decision::Block(blocked) => last = blocked.id().to_string(),
        }
    }
    (passes, last)
}

#[test]
fn a_request_is_charged_by_the_rules_of_the_document_and_the_further_ones_or_by_none() {
    let engine = Engine::new(rules([rule("r", "route", 5.0)])).unwrap();
    let route = engine.resource("route");
    let by_client = KeyedBy::new([KeyPart::Header("x".into())]).unwrap();
    for own in [rule("own", "route", 2.0), rule("own", "route", 2.0).keyed(by_client).unwrap()] {
        let now = if own.keyed_by().is_some() { 5000 } else { 0 };
        let joined = engine.resource_with_rules(&route, vec![own]).unwrap();
        assert_eq!(admits(&engine, &joined, 9, now), (2, "own".into()));
        assert_eq!(admits(&engine, &route, 9, now), (3, "r".into()));
        assert_eq!(admits(&engine, &joined, 9, now), (0, "r".into()));
    }
}

#[test]
fn a_further_rule_goes_on_as_long_as_a_resource_with_it_is_kept() {
    let engine = Engine::new(rules([])).unwrap();
    let route = engine.resource("route");
    let first = engine.resource_with_rules(&route, vec![rule("own", "route", 2.0)]).unwrap();
    assert_eq!(admits(&engine, &first, 9, 0).0, 2);
    let others = vec![rule("other", "route", 9.0), rule("own", "route", 3.0)];
    let second = engine.resource_with_rules(&route, others).unwrap();
    drop(first);
    assert_eq!(admits(&engine, &second, 9, 0), (1, "own".into()));
    assert_eq!(admits(&engine, &route, 9, 0).0, 9);
}

#[test]
fn a_route_with_further_rules_and_an_api_admit_a_request_together_or_not_at_all() {
    let engine = Engine::new(rules([rule("a", "api", 4.0), rule("r", "route", 9.0)])).unwrap();
    let own = vec![rule("own", "route", 3.0)];
    let joined = engine.resource_with_rules(&engine.resource("route"), own).unwrap();
    let both = engine.resource_with(&joined, &["api"]);
    assert_eq!(admits(&engine, &both, 9, 0), (3, "own".into()));
    let without = engine.resource_with(&engine.resource("route"), &["api"]);
    assert_eq!(admits(&engine, &without, 9, 0), (1, "a".into()));
    assert_eq!(admits(&engine, &joined, 9, 0), (0, "own".into()));
    assert_eq!(admits(&engine, &engine.resource("route"), 9, 0), (5, "r".into()));
}

#[test]
fn further_rules_have_ids_of_their_own_and_a_bounded_number() {
    let engine = Engine::new(rules([rule("r", "route", 1.0), rule("x", "elsewhere", 1.0)])).unwrap();
    let route = engine.resource("route");
    let error = |own: Vec<FlowRule>| engine.resource_with_rules(&route, own).err();
    let same = |id: &str, index| {
        let (id, list) = (RuleId::new(id).unwrap(), "flowRules");
        Some(RulesError::SameId { id, list, index })
    };
    assert_eq!(error(vec![rule("own", "route", 1.0), rule("x", "route", 1.0)]), same("x", 1));
    assert_eq!(error(vec![rule("own", "route", 1.0), rule("own", "route", 2.0)]), same("own", 1));
    let many = |n: usize| (0..n).map(|i| rule(&format!("own{i}"), "route", 1.0)).collect();
    assert_eq!(error(many(MAX_RULES_PER_RESOURCE - 1)), None);
    let resource = String::from("route");
    let too_many = RulesError::ManyRules { resource, list: "flowRules", index: MAX_RULES_PER_RESOURCE - 1 };
    assert_eq!(error(many(MAX_RULES_PER_RESOURCE)), Some(too_many));
}
