//! Natively: what valgrind counts of an engine, and keyed windows.

use std::path::Path;
use std::rc::Rc;

use anyhow::{Context as _, Result, bail};
use leapgate::backend::{Local, Store};
use leapgate::rule::FlowRule;
use leapgate::{Engine, Request, Rules, Timestamp};

use super::{BUCKETS, KEYS, RULES};
use crate::core::{NO_LIMIT, count_alone, entering, time_alone, to_anyhow};
use crate::figures::Figures;
use crate::{parallel, valgrind};

/// Entries under valgrind.
const COUNTED: u64 = 20_000;
const INTERVAL_MS: u64 = 60_000;

/// The names of the curves; `enter` is given one of them.
const ADMITTED: &str = "native: admitted";
const REFUSED: &str = "native: refused";
const ASKED: &str = "native: asked for";
const NO_STATISTICS: &str = "native: asked for; no statistics";
const NOT_ASKED: &str = "native: not asked for";

/// So many rules, each for its own resource: one of them for `login`, amid the others.
fn with_rules(number: u32, count: f64) -> Result<Vec<FlowRule>> {
    let flow = (0..number as usize).map(|i| FlowRule::new(&name(i, number as usize), count));
    Ok(flow.collect::<Result<_, _>>()?)
}

/// The name of a resource: that of one amid the others is `login`.
fn name(i: usize, number: usize) -> String {
    match i {
        i if i == number / 2 => "login".to_owned(),
        i => format!("route-{i}"),
    }
}

/// One rule, whose window has so many buckets.
fn with_buckets(number: u32, count: f64) -> Result<Vec<FlowRule>> {
    Ok(vec![
        FlowRule::new("login", count)?.per(INTERVAL_MS, Some(number))?,
    ])
}

fn engine(flow: Vec<FlowRule>, has_statistics: bool) -> Result<Engine> {
    let rules = Rules {
        flow,
        ..Rules::default()
    };
    let made = if has_statistics {
        Engine::new(rules)
    } else {
        Engine::with_store(Rc::new(Store::without_statistics(Local)), rules)
    };
    made.map_err(to_anyhow)
}

/// What valgrind runs: enters an engine of `rules` or `buckets` so many times; or enters each resource of it once, or none, and
/// ends with the engine in memory.
pub(super) fn enter(figure: &str, curve: &str, number: u32, times: u64) -> Result<()> {
    let count = if curve == REFUSED { 0.0 } else { NO_LIMIT };
    let rules = match figure {
        "rules" => with_rules(number, count)?,
        "buckets" => with_buckets(number, count)?,
        _ => bail!("nothing grows by `{figure}`"),
    };
    let resources = rules.len();
    let engine = engine(rules, curve != NO_STATISTICS)?;
    match curve {
        ADMITTED | REFUSED => {
            entering(engine)(times);
        }
        _ => {
            if curve != NOT_ASKED {
                let now = Timestamp::from_millis(86_400_000);
                for i in 0..resources {
                    let _ = engine.enter(&Request::new(&name(i, resources)), now);
                }
            }
            std::mem::forget(engine);
        }
    }
    std::process::exit(0);
}

/// One thing that is counted.
struct Job {
    figure: &'static str,
    measure: &'static str,
    curve: &'static str,
    x: u32,
}

/// Adds what an engine costs.
pub(super) fn measure(figures: &mut Figures) -> Result<()> {
    let valgrind = valgrind::on_path("valgrind")
        .context("valgrind is not on the path: it counts the instructions of docs/growth.md")?;
    let mut jobs = Vec::new();
    for (figure, numbers) in [("rules", &RULES[..]), ("buckets", &BUCKETS[..])] {
        for &x in numbers {
            for (measure, curve) in [
                ("cost", ADMITTED),
                ("cost", REFUSED),
                ("bytes", ASKED),
                ("bytes", NO_STATISTICS),
                ("bytes", NOT_ASKED),
            ] {
                jobs.push(Job {
                    figure,
                    measure,
                    curve,
                    x,
                });
            }
        }
    }
    for x in KEYS {
        for curve in [ADMITTED, REFUSED] {
            jobs.push(Job {
                figure: "keys",
                measure: "cost",
                curve,
                x,
            });
        }
    }
    let counted = parallel::map(&jobs, |job| count(&valgrind, job))?;
    for (job, value) in jobs.iter().zip(counted) {
        figures.add(job.figure, job.measure, job.curve, job.x.into(), value);
    }
    for x in KEYS {
        let (nanos, bytes) = time_alone(x as usize)?;
        figures.add("keys", "ns", ADMITTED, x.into(), nanos);
        figures.add("keys", "bytes", ASKED, x.into(), bytes);
    }
    Ok(())
}

fn count(valgrind: &Path, job: &Job) -> Result<f64> {
    let Job {
        figure,
        measure,
        curve,
        x,
    } = *job;
    if figure == "keys" {
        return count_alone(valgrind, x as usize, curve == REFUSED);
    }
    let program = std::env::current_exe().context("this program's own path")?;
    let run = |figure: &str, number: u32, times: u64| {
        let (number, times) = (number.to_string(), times.to_string());
        let arguments = ["growth", "enter", figure, curve, &number, &times];
        match measure {
            "cost" => valgrind::instructions(valgrind, &program, &arguments),
            _ => valgrind::bytes_in_use(valgrind, &program, &arguments),
        }
    };
    Ok(match (measure, figure) {
        ("cost", _) => (run(figure, x, 2 * COUNTED)? - run(figure, x, COUNTED)?) / COUNTED as f64,
        // Of each rule beyond the first; of one rule, all that an engine without rules has not.
        ("bytes", "rules") if x > 1 => (run(figure, x, 0)? - run(figure, 1, 0)?) / f64::from(x - 1),
        _ => run(figure, x, 0)? - run("rules", 0, 0)?,
    })
}
