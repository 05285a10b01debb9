//! A call's entry and exit in a program that has nothing else: `./build.sh bench core` counts its instructions.
//!
//! An example of the core, so that it is built without the features that other members of the workspace ask for.

use std::hint::black_box;

use leapgate::rule::FlowRule;
use leapgate::{Decision, Engine, Outcome, Request, Rules, Timestamp};

const STEP_NANOS: u64 = 10_000;
/// A clock that has run for a day.
const START_NANOS: u64 = 86_400_000_000_000;
const NO_LIMIT: f64 = 1e15;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let case = arguments.next().ok_or("a case")?;
    let times: u64 = arguments.next().ok_or("a number of times")?.parse()?;
    let rules = Rules {
        flow: vec![FlowRule::new("login", NO_LIMIT)?],
        ..Rules::default()
    };
    let engine = Engine::new(rules)?;
    let passed = match case.as_str() {
        "by name" => by_name(&engine, times),
        "looked up before" => looked_up(&engine, times),
        _ => return Err(format!("no case `{case}`").into()),
    };
    if passed != times {
        return Err(format!("{passed} of {times} passed").into());
    }
    Ok(())
}

fn by_name(engine: &Engine, times: u64) -> u64 {
    let (mut now, mut passed) = (START_NANOS, 0);
    for _ in 0..times {
        now += STEP_NANOS;
        let request = Request::new(black_box("login"));
        let decision = black_box(engine).enter(&request, Timestamp::from_nanos(now));
        passed += exit(decision, now);
    }
    passed
}

fn looked_up(engine: &Engine, times: u64) -> u64 {
    let resource = engine.resource("login");
    let (mut now, mut passed) = (START_NANOS, 0);
    for _ in 0..times {
        now += STEP_NANOS;
        let (engine, resource) = (black_box(engine), black_box(&resource));
        let request = Request::new("");
        let decision = engine.enter_resource(resource, &request, Timestamp::from_nanos(now));
        passed += exit(decision, now);
    }
    passed
}

#[inline(always)]
fn exit(decision: Decision, now: u64) -> u64 {
    let Decision::Pass(entry) = decision else {
        return 0;
    };
    entry.exit(
        Outcome::Success,
        Timestamp::from_nanos(now + STEP_NANOS / 2),
    );
    1
}
