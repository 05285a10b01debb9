//! What each kind of rule costs: a call's entry and exit, through the whole engine, on one resource that was looked up before.

use std::hint::black_box;

use anyhow::{Context as _, Result};
use leapgate::rule::{
    AuthorityRule, AuthorityStrategy, Counting, DegradeGrade, DegradeRule, FlowRule, LimitApp,
    MaxQueueing, SystemRule, WarmUp,
};
use leapgate::{Decision, Engine, Outcome, Request, Rules, Timestamp};

use super::cases::{Case, Group, NO_LIMIT, Run, START_NANOS, STEP_NANOS, to_anyhow};

/// What the others are compared with.
pub(super) const PLAIN: &str = "reject, strict";

/// What is asked, and how it is to be answered.
type Ask = fn() -> Request<'static>;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Answer {
    Pass,
    Wait,
    Block,
}

/// All cases, in the order of the table. A rule that is not a flow rule stands beside a plain one.
pub(super) fn all() -> Vec<Case> {
    use Answer::{Block, Pass, Wait};
    let mut cases = Vec::new();
    let mut add = |name: &str, rules: fn() -> Result<Rules>, ask: Ask, answer| {
        cases.push(Case {
            name: name.to_owned(),
            group: Group::Behavior,
            counted: 50_000,
            make: Box::new(move || entering(rules()?, ask, answer)),
        });
    };
    let ask: Ask = || Request::new("login");
    let urgent: Ask = || Request::new("login").prioritized();
    let from_a: Ask = || Request::new("login").origin("app-a");
    let by_web: Ask = || Request::new("login").context("web");
    let inbound: Ask = || Request::new("login").inbound();

    add(PLAIN, || flow(Ok), ask, Pass);
    let sentinel = || flow(|rule| Ok(rule.counting(Counting::Sentinel)));
    add("reject, sentinel", sentinel, ask, Pass);
    let weighted = || flow(|rule| Ok(rule.counting(Counting::Weighted)));
    add("reject, weighted", weighted, ask, Pass);
    let compat = || flow(|rule| Ok(rule.sentinel()));
    add("reject, compat", compat, ask, Pass);
    add("reject, refused", || of(0.0, Ok), ask, Block);
    add("reject, prioritized", || flow(Ok), urgent, Pass);
    add("reject, prioritized, waits", || of(FULL, Ok), urgent, Wait);
    let concurrency = || flow(|rule| Ok(rule.concurrency()));
    add("concurrency", concurrency, ask, Pass);
    // Five microseconds a turn, and ten between requests; then the other way round.
    let on_time = || of(2e5, |rule| Ok(rule.throttle(queue()?)));
    add("throttle", on_time, ask, Pass);
    let early = || of(5e4, |rule| Ok(rule.throttle(queue()?)));
    add("throttle, waits", early, ask, Wait);
    let warm_up = || of(1e8, |rule| Ok(rule.warm_up(WarmUp::default())));
    add("warm-up", warm_up, ask, Pass);
    let cold = || {
        of(1e6, |rule| {
            Ok(rule.warm_up_throttle(WarmUp::default(), queue()?))
        })
    };
    add("warm-up throttle", cold, ask, Pass);
    let origin = || flow(|rule| Ok(rule.for_origin(LimitApp::new("app-a")?)));
    add("an origin's", origin, from_a, Pass);
    let other = || flow(|rule| Ok(rule.for_origin(LimitApp::Other)));
    add("other origins'", other, from_a, Pass);
    add("relate", || flow(|rule| Ok(rule.relate("pay")?)), ask, Pass);
    add(
        "chain",
        || flow(|rule| Ok(rule.chain("web")?)),
        by_web,
        Pass,
    );

    let closed = || breaker(1.0);
    add("and a breaker, closed", closed, ask, Pass);
    add("and a breaker, open", || breaker(0.0), ask, Block);
    let qps = || system(SystemRule::new().with_qps(NO_LIMIT)?);
    add("from outside", || flow(Ok), inbound, Pass);
    add(
        "from outside, and a system rule on passes",
        qps,
        inbound,
        Pass,
    );
    let bbr = || system(SystemRule::new().bbr());
    add("from outside, and a system rule, bbr", bbr, inbound, Pass);
    let authority = || {
        let rule = AuthorityRule::new("login", "app-a,app-b,app-c", AuthorityStrategy::White)?;
        Ok(Rules {
            authority: vec![rule],
            ..flow(Ok)?
        })
    };
    add("and an authority rule", authority, from_a, Pass);
    cases
}

/// What fills a window at one go, and is much more than is ever lent.
const FULL: f64 = 1e9;

fn queue() -> Result<MaxQueueing> {
    Ok(MaxQueueing::from_millis(MaxQueueing::MAX_MS.into())?)
}

fn of(count: f64, rule: impl FnOnce(FlowRule) -> Result<FlowRule>) -> Result<Rules> {
    Ok(Rules {
        flow: vec![rule(FlowRule::new("login", count)?)?],
        ..Rules::default()
    })
}

fn flow(rule: impl FnOnce(FlowRule) -> Result<FlowRule>) -> Result<Rules> {
    of(NO_LIMIT, rule)
}

/// Beside a plain rule, a breaker that stays open for a day after more than so many errors.
fn breaker(errors: f64) -> Result<Rules> {
    let rule = DegradeRule::new("login", DegradeGrade::error_count(errors)?, 86_400_000)?;
    Ok(Rules {
        degrade: vec![rule.needing(1)?],
        ..flow(Ok)?
    })
}

fn system(rule: SystemRule) -> Result<Rules> {
    Ok(Rules {
        system: vec![rule],
        ..flow(Ok)?
    })
}

/// Checks each answer: else another decision would be timed.
fn entering(rules: Rules, ask: Ask, answer: Answer) -> Result<Run> {
    let first = rules.flow.first().context("one flow rule")?;
    let full = first.count().get() == FULL;
    let engine = Engine::new(rules).map_err(to_anyhow)?;
    let resource = engine.resource("login");
    // One call fails, which opens a breaker that opens so easily, and fills the window that is to be full.
    let (start, cost) = (
        Timestamp::from_nanos(START_NANOS),
        if full { FULL as u32 } else { 1 },
    );
    if let Decision::Pass(entry) = engine.enter_resource(&resource, &ask().cost(cost), start) {
        entry.exit(Outcome::Error, start);
    }
    // What fills it leaves soon, and is waited for until then.
    let (mut now, step) = match full {
        true => (START_NANOS + 600_000_000, STEP_NANOS / 100),
        false => (START_NANOS, STEP_NANOS),
    };
    Ok(Box::new(move |times| {
        let mut answered = 0;
        for _ in 0..times {
            now += step;
            let decision = black_box(&engine).enter_resource(
                black_box(&resource),
                &ask(),
                Timestamp::from_nanos(now),
            );
            let (is, entry) = match decision {
                Decision::Pass(entry) => (Answer::Pass, Some(entry)),
                Decision::Wait(_, entry) => (Answer::Wait, Some(entry)),
                Decision::Block(_) => (Answer::Block, None),
            };
            if let Some(entry) = entry {
                entry.exit(Outcome::Success, Timestamp::from_nanos(now + step / 2));
            }
            answered += u64::from(is == answer);
        }
        assert_eq!(answered, times, "{answer:?} of all");
        answered
    }))
}
