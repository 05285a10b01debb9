//! The counters and the hottest keys of an engine's rules.

use crate::layout::{COUNTERS, HOT_KEY, NONE};
use crate::rules::{RuleReport, for_each_rule};
use crate::shell::shell;
use crate::stats::set_rows;
use crate::texts::Texts;
use crate::time::instant;
use leapgate::backend::{KeyedStates, Phase};
use wasm_bindgen::prelude::wasm_bindgen;

/// Makes a row for each rule, with the columns `COUNTERS` of `layout`, negative where a rule does not count it; the buffer has
/// five names for each row: rule, resource and origin, the last two empty where the rule is not for each of them apart; the kind of rule, empty
/// for flow rules, and the resource that it names. The order is arbitrary; a rule may have several rows (`rules::for_each_rule`). Unless
/// `now` is negative, there is a row of the kind `state` for each circuit breaker, too, and how full limits are is looked up.
#[wasm_bindgen]
pub fn engine_counters(engine: u32, now: f64) -> f64 {
    let (mut names, mut rows) = (Texts::default(), Vec::new());
    let counted = |count: Option<u64>| count.map_or(NONE, |count| count as f64);
    shell(|shell| {
        let Some(engine) = shell.engines.get(engine) else {
            return;
        };
        let now = (now >= 0.0).then(|| instant(now));
        let each = &mut |rule: &RuleReport<'_>| {
            [
                rule.rule,
                rule.resource,
                rule.origin,
                rule.kind,
                rule.target,
            ]
            .iter()
            .for_each(|name| names.add(name));
            let row: [f64; COUNTERS.len()] = [
                counted(rule.passed),
                counted(rule.waited),
                rule.blocked as f64,
                rule.shadow_blocked as f64,
                counted(rule.shared),
                counted(rule.defaulted),
                counted(rule.debt),
                counted(rule.in_flight),
                rule.part.unwrap_or(NONE),
            ];
            rows.extend(row);
        };
        for_each_rule(engine, now, each);
        let breakers = match now {
            Some(_) => engine.store().breakers(),
            None => 0,
        };
        engine.store().for_each_breaker(0, breakers, |breaker| {
            let (resource, rule) = breaker.storage().place();
            each(&RuleReport {
                kind: "state",
                rule,
                target: resource,
                blocked: match breaker.phase() {
                    Phase::Closed => 0,
                    Phase::Open { .. } => 1,
                    Phase::HalfOpen { .. } => 2,
                },
                ..RuleReport::default()
            });
        });
    });
    set_rows(rows);
    shell(|shell| shell.buffer.write(names.bytes()))
}

/// Makes a row for each of the `n` hottest keys of each rule with keys, with the columns `HOT_KEY` of `layout`; the buffer has
/// two names for each row: the rule and the key. The amount of a throttle is how far its turns reach ahead, in milliseconds.
#[wasm_bindgen]
pub fn engine_top(engine: u32, n: usize, now: f64) -> f64 {
    let (mut names, mut rows) = (Texts::default(), Vec::new());
    shell(|shell| {
        let Some(engine) = shell.engines.get(engine) else {
            return;
        };
        for_each_rule(engine, None, &mut |rule| {
            let unit = if rule.takes_turns { 1e6 } else { 1.0 };
            for hot in rule.keys.iter().flat_map(|keys| keys.top(n, instant(now))) {
                names.add(rule.rule);
                names.add(hot.label.as_deref().unwrap_or_default());
                let is_named = u8::from(hot.label.is_some());
                let row: [f64; HOT_KEY.len()] = [hot.amount as f64 / unit, is_named.into()];
                rows.extend(row);
            }
        });
    });
    set_rows(rows);
    shell(|shell| shell.buffer.write(names.bytes()))
}
