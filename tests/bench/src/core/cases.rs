//! What is measured.
//!
//! Every case hides its subject from the compiler before each run: state that a loop could keep in
//! registers is read and written as in a program where requests arrive one by one. The clock is an
//! argument, and goes on by 10 µs per run.

use std::cell::Cell;
use std::hint::black_box;
use std::num::NonZeroU32;
use std::rc::Rc;
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, ensure};
use governor::clock::Clock;
use governor::nanos::Nanos;
use governor::{Quota, RateLimiter};
use leapgate::backend::{Local, LocalCounter, Past, RuleWindow, Store};
use leapgate::rule::{Count, Counting, FlowRule};
use leapgate::stats::Window;
use leapgate::{Decision, Engine, Outcome, Request, Rules, Timestamp};
use leapgate_study::array::SummedRing;

use super::behaviors;

/// Runs so many times; the number that passed.
pub(crate) type Run = Box<dyn FnMut(u64) -> u64>;

/// Something to measure.
pub(super) struct Case {
    pub(super) name: String,
    pub(super) group: Group,
    /// How often it runs under valgrind.
    pub(super) counted: u64,
    pub(super) make: Box<dyn Fn() -> Result<Run> + Sync>,
}

/// Which table a case stands in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Group {
    Window,
    Entry,
    Behavior,
}

impl Group {
    pub(super) const ALL: [Self; 3] = [Self::Window, Self::Entry, Self::Behavior];

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Window => "core: one decision of a window, with its record",
            Self::Entry => "core: enter and exit",
            Self::Behavior => "core: enter and exit under each kind of rule",
        }
    }

    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Window => "Aim: 2 ns, the same for any number of buckets.",
            Self::Entry => "With all statistics of the resource's node. Aim: 25 ns.",
            Self::Behavior => {
                "With all statistics; the resource was looked up before. A request that is refused or waits is marked so."
            }
        }
    }

    /// The case that the others are compared with.
    pub(super) fn reference(self) -> &'static str {
        match self {
            Self::Window => "governor",
            Self::Entry => "sentinel-core",
            Self::Behavior => behaviors::PLAIN,
        }
    }
}

const INTERVAL_MS: u64 = 60_000;
pub(super) const STEP_NANOS: u64 = 10_000;
/// A clock that has run for a day.
pub(super) const START_NANOS: u64 = 86_400_000_000_000;
pub(crate) const NO_LIMIT: f64 = 1e15;

/// All of them, in the order of the tables.
pub(super) fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |name: String, group, counted, make: Box<dyn Fn() -> Result<Run> + Sync>| {
        cases.push(Case {
            name,
            group,
            counted,
            make,
        });
    };
    for (mode, counting) in [
        ("strict", Counting::Strict),
        ("sentinel", Counting::Sentinel),
        ("weighted", Counting::Weighted),
    ] {
        for buckets in [2, 10, 60, 600] {
            let make = move || window(counting, buckets, STEP_NANOS, NO_LIMIT);
            add(
                format!("{mode}, {buckets} buckets"),
                Group::Window,
                100_000,
                Box::new(make),
            );
        }
    }
    // Each decision finds its bucket to be a new one: the dearest there is, short of a gap.
    let per_bucket = || {
        window(
            Counting::Strict,
            600,
            INTERVAL_MS * 1_000_000 / 600,
            NO_LIMIT,
        )
    };
    add(
        "strict, 600 buckets, one decision each".to_owned(),
        Group::Window,
        100_000,
        Box::new(per_bucket),
    );
    let full = || window(Counting::Strict, 600, STEP_NANOS, 0.0);
    add(
        "strict, 600 buckets, refused".to_owned(),
        Group::Window,
        100_000,
        Box::new(full),
    );
    for buckets in [2, 10, 60, 600] {
        add(
            format!("summed ring, {buckets} buckets"),
            Group::Window,
            20_000,
            Box::new(move || Ok(summed(buckets))),
        );
    }
    add(
        "governor".to_owned(),
        Group::Window,
        100_000,
        Box::new(governor),
    );
    add(
        "the loop around each of these".to_owned(),
        Group::Window,
        100_000,
        Box::new(|| Ok(nothing())),
    );

    add(
        "enter + exit".to_owned(),
        Group::Entry,
        50_000,
        Box::new(enter_exit),
    );
    add(
        "enter + exit, resource looked up before".to_owned(),
        Group::Entry,
        50_000,
        Box::new(enter_exit_resource),
    );
    add(
        "enter + exit, without statistics".to_owned(),
        Group::Entry,
        50_000,
        Box::new(enter_exit_without_statistics),
    );
    add(
        "enter, refused".to_owned(),
        Group::Entry,
        50_000,
        Box::new(refused),
    );
    add(
        "sentinel-core".to_owned(),
        Group::Entry,
        5_000,
        Box::new(sentinel_core),
    );
    cases.extend(behaviors::all());
    cases
}

/// The bare window: what a rule asks and writes.
fn window(counting: Counting, buckets: u32, step: u64, limit: f64) -> Result<Run> {
    let window = RuleWindow::new(
        Window::new(INTERVAL_MS, buckets)?,
        counting,
        LocalCounter::default(),
        Past::Fresh,
    );
    let limit = Count::new(limit)?;
    let mut now = START_NANOS;
    Ok(Box::new(move |times| {
        let mut passed = 0;
        for _ in 0..times {
            now += step;
            let at = Timestamp::from_nanos(now);
            let window = black_box(&window);
            window.advance(at);
            if window.reserve(limit, 1, at) {
                window.admit(1);
                passed += 1;
            }
        }
        passed
    }))
}

/// What all cases have in common: the clock, and what hides the subject from the compiler.
fn nothing() -> Run {
    let subject = Cell::new(0);
    let mut now = START_NANOS;
    Box::new(move |times| {
        for _ in 0..times {
            now += STEP_NANOS;
            black_box(&subject).set(now);
        }
        times
    })
}

fn summed(buckets: u64) -> Run {
    let ring = SummedRing::new(INTERVAL_MS * 1_000_000 / buckets, buckets as usize);
    let mut now = START_NANOS;
    Box::new(move |times| {
        let mut passed = 0;
        for _ in 0..times {
            now += STEP_NANOS;
            passed += u64::from(black_box(&ring).try_pass(now, NO_LIMIT as u64));
        }
        passed
    })
}

/// A clock for governor that costs a load: only the algorithm is compared.
#[derive(Default, Clone)]
pub(super) struct SetClock(Cell<u64>);

impl SetClock {
    #[inline]
    pub(super) fn set(&self, now: u64) {
        self.0.set(now);
    }
}

impl Clock for SetClock {
    type Instant = Nanos;

    fn now(&self) -> Nanos {
        Nanos::new(self.0.get())
    }
}

fn governor() -> Result<Run> {
    // Ten times what the steps of the clock ask for: everything passes.
    let quota = Quota::per_second(NonZeroU32::new(1_000_000).context("not zero")?);
    let limiter = RateLimiter::direct_with_clock(quota, SetClock::default());
    let mut now = START_NANOS;
    Ok(Box::new(move |times| {
        let mut passed = 0;
        for _ in 0..times {
            now += STEP_NANOS;
            let limiter = black_box(&limiter);
            limiter.clock().set(now);
            passed += u64::from(limiter.check().is_ok());
        }
        passed
    }))
}

/// One strict rule with 100 buckets, the default, for the resource that is asked for.
fn rules(count: f64) -> Result<Rules> {
    Ok(Rules {
        flow: vec![FlowRule::new("login", count)?],
        ..Rules::default()
    })
}

fn engine(count: f64) -> Result<Engine> {
    Engine::new(rules(count)?).map_err(to_anyhow)
}

/// The error holds names that are not shared between threads.
pub(crate) fn to_anyhow(error: leapgate::RulesError) -> anyhow::Error {
    anyhow!("{error}")
}

fn enter_exit() -> Result<Run> {
    let engine = engine(NO_LIMIT)?;
    Ok(entering(engine))
}

fn enter_exit_without_statistics() -> Result<Run> {
    let engine = Engine::with_store(Rc::new(Store::without_statistics(Local)), rules(NO_LIMIT)?)
        .map_err(to_anyhow)?;
    Ok(entering(engine))
}

fn refused() -> Result<Run> {
    let engine = engine(0.0)?;
    Ok(entering(engine))
}

/// Enters `login`, and exits.
pub(crate) fn entering(engine: Engine) -> Run {
    let mut now = START_NANOS;
    Box::new(move |times| {
        let mut passed = 0;
        for _ in 0..times {
            now += STEP_NANOS;
            let decision = black_box(&engine).enter(
                &Request::new(black_box("login")),
                Timestamp::from_nanos(now),
            );
            if let Decision::Pass(entry) = decision {
                entry.exit(
                    Outcome::Success,
                    Timestamp::from_nanos(now + STEP_NANOS / 2),
                );
                passed += 1;
            }
        }
        passed
    })
}

fn enter_exit_resource() -> Result<Run> {
    let engine = engine(NO_LIMIT)?;
    let resource = engine.resource("login");
    let mut now = START_NANOS;
    Ok(Box::new(move |times| {
        let mut passed = 0;
        for _ in 0..times {
            now += STEP_NANOS;
            let decision = black_box(&engine).enter_resource(
                black_box(&resource),
                &Request::new(""),
                Timestamp::from_nanos(now),
            );
            if let Decision::Pass(entry) = decision {
                entry.exit(
                    Outcome::Success,
                    Timestamp::from_nanos(now + STEP_NANOS / 2),
                );
                passed += 1;
            }
        }
        passed
    }))
}

/// The Rust port of Sentinel; it reads the system's clock, which cannot be taken out.
fn sentinel_core() -> Result<Run> {
    use sentinel_core::{EntryBuilder, flow};

    let rule = flow::Rule {
        resource: "login".to_owned(),
        threshold: NO_LIMIT,
        stat_interval_ms: 1000,
        ..flow::Rule::default()
    };
    flow::load_rules(vec![Arc::new(rule)]);
    ensure!(
        !flow::get_rules_of_resource(&"login".to_owned()).is_empty(),
        "sentinel-core did not take its rule"
    );
    Ok(Box::new(move |times| {
        let mut passed = 0;
        for _ in 0..times {
            if let Ok(entry) = EntryBuilder::new(black_box("login").to_owned()).build() {
                entry.exit();
                passed += 1;
            }
        }
        passed
    }))
}
