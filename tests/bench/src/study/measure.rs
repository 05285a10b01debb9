//! Nanoseconds, instructions and memory of the cases; natively, and in V8.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use leapgate_study::cases::{self, Case, Run, Structure};
use serde_json::{Value, json};

use crate::figures::Figures;
use crate::parallel;
use crate::statistics::{median, ratio};
use crate::valgrind;

const NANOS_PER_BATCH: f64 = 1e5;
/// Decisions under valgrind: a multiple of what comes in a bucket.
const COUNTED: u64 = 18_000;

/// Nanoseconds of each case, by round.
pub(super) fn time(cases: &[Case], rounds: usize) -> Result<Vec<Vec<f64>>> {
    let mut running = Vec::new();
    for case in cases {
        let mut run = make(case)?;
        nanos(&mut *run, case, 2000)?;
        let batch = (NANOS_PER_BATCH / nanos(&mut *run, case, 2000)?.max(0.1)) as u64;
        running.push((case, run, batch.max(100), Vec::with_capacity(rounds)));
    }
    for _ in 0..rounds {
        for (case, run, batch, times) in &mut running {
            times.push(nanos(&mut **run, case, *batch)?);
        }
    }
    Ok(running.into_iter().map(|(.., times)| times).collect())
}

fn make(case: &Case) -> Result<Box<dyn Run>> {
    let mut run = case.make().with_context(|| case.name())?;
    run.run(case.to_fill());
    Ok(run)
}

fn nanos(run: &mut dyn Run, case: &Case, times: u64) -> Result<f64> {
    run.prepare();
    let times = run.batch().unwrap_or(times);
    let begin = Instant::now();
    let as_meant = run.run(times);
    let nanos = begin.elapsed().as_nanos() as f64;
    ensure!(
        as_meant == times,
        "{}: {as_meant} of {times} decisions were as meant",
        case.name()
    );
    Ok(nanos / times as f64)
}

/// Adds the medians, and the medians of each round's ratio to leapgate's window at the same place.
pub(super) fn add_times(figures: &mut Figures, prefix: &str, cases: &[Case], times: &[Vec<f64>]) {
    for (case, nanos) in cases.iter().zip(times) {
        let reference = cases.iter().zip(times).find(|(other, _)| {
            other.structure == Structure::Leapgate
                && other.figure == case.figure
                && other.x == case.x
        });
        let mut add = |measure: &str, value| {
            let measure = format!("{prefix}{measure}");
            figures.add(case.figure, &measure, case.structure.name(), case.x, value);
        };
        add("ns", median(nanos));
        if let Some((_, reference)) = reference {
            add("ratio", ratio(nanos, reference));
        }
    }
}

/// What valgrind runs: makes some limiters of a case, decides so many times with each, and ends with all of them in memory.
pub(crate) fn decide(name: &str, times: &str, count: &str) -> Result<()> {
    let mut cases = cases::all();
    cases.extend(cases::held());
    let case = cases.iter().find(|case| case.name() == name);
    let case = case.with_context(|| format!("there is no case `{name}`"))?;
    let times: u64 = times.parse().context("a number of times")?;
    for _ in 0..count.parse().context("a number of limiters")? {
        if case.figure == "memory" {
            std::mem::forget(case.hold());
            continue;
        }
        let mut run = make(case)?;
        run.prepare();
        if times > 0 {
            run.run(times);
        }
        std::mem::forget(run);
    }
    std::process::exit(0);
}

/// What valgrind counts.
#[derive(Clone, Copy)]
enum Counted {
    Instructions,
    Allocations,
    Bytes,
}

impl Counted {
    fn measure(self) -> &'static str {
        match self {
            Self::Instructions => "instructions",
            Self::Allocations => "allocations",
            Self::Bytes => "bytes",
        }
    }
}

/// Adds what valgrind counts: instructions of a decision, allocations of a million where the rate varies, and the bytes of
/// limiters that are `held`. Each is the difference between a process that does it and one that does not.
pub(super) fn count(
    figures: &mut Figures,
    valgrind: &Path,
    cases: &[Case],
    held: &[Case],
) -> Result<()> {
    let program = std::env::current_exe().context("this program's own path")?;
    let of = |what| move |case| (what, case);
    let timed = cases.iter().filter(|case| !case.is_of_caches());
    let rates = cases.iter().filter(|case| case.figure == "rate");
    let jobs: Vec<(Counted, &Case)> = timed
        .map(of(Counted::Instructions))
        .chain(rates.map(of(Counted::Allocations)))
        .chain(held.iter().map(of(Counted::Bytes)))
        .collect();
    let counted = parallel::map(&jobs, |(what, case)| {
        let name = case.name();
        let batch = case.make().and_then(|run| run.batch()).unwrap_or(COUNTED);
        let run = |times: u64, count: u64| {
            let (times, count) = (times.to_string(), count.to_string());
            let arguments = ["study", "decide", &name, &times, &count];
            let counted = match what {
                Counted::Instructions => valgrind::instructions(valgrind, &program, &arguments),
                Counted::Allocations => valgrind::allocations(valgrind, &program, &arguments),
                Counted::Bytes => valgrind::bytes_in_use(valgrind, &program, &arguments),
            };
            counted.with_context(|| name.clone())
        };
        let decisions = || Ok((run(batch, 1)? - run(0, 1)?) / batch as f64);
        match what {
            Counted::Instructions => decisions(),
            Counted::Allocations => Ok(decisions()? * 1e6),
            Counted::Bytes => Ok(run(0, 1)? - run(0, 0)?),
        }
    })?;
    for ((what, case), value) in jobs.iter().zip(counted) {
        let structure = case.structure.name();
        figures.add(case.figure, what.measure(), structure, case.x, value);
    }
    Ok(())
}

/// Requests in a window whose memory is measured in wasm.
const HELD_IN_WASM: f64 = 1000.0;

/// Adds what V8 takes; its name and version.
pub(super) fn in_node(
    figures: &mut Figures,
    module: &Path,
    cases: &[Case],
    held: &[Case],
    rounds: usize,
) -> Result<String> {
    let places = |all: &[Case], some: &[&Case]| -> Vec<usize> {
        let place = |case: &&Case| all.iter().position(|other| other.name() == case.name());
        some.iter().filter_map(place).collect()
    };
    let held: Vec<&Case> = held.iter().filter(|case| case.x == HELD_IN_WASM).collect();
    let work = json!({
        "cases": places(&cases::all(), &cases.iter().collect::<Vec<_>>()),
        "held": places(&cases::held(), &held),
        "rounds": rounds,
    });
    let mut node = Command::new("node")
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../study/run.mjs"))
        .arg(module)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("node does not run")?;
    let mut input = node.stdin.take().context("node's standard input")?;
    input.write_all(work.to_string().as_bytes())?;
    drop(input);
    let output = node.wait_with_output()?;
    ensure!(output.status.success(), "node: {}", output.status);
    let answer: Value = serde_json::from_slice(&output.stdout).context("node's answer")?;
    let numbers = |value: &Value| -> Option<Vec<f64>> {
        value.as_array()?.iter().map(Value::as_f64).collect()
    };
    let times: Option<Vec<Vec<f64>>> = answer
        .get("times")
        .and_then(Value::as_array)
        .and_then(|times| times.iter().map(numbers).collect());
    let times = times.context("node's answer has no times")?;
    let bytes = answer.get("bytes").and_then(numbers);
    let bytes = bytes.context("node's answer has no bytes")?;
    add_times(figures, "wasm ", cases, &times);
    for (case, bytes) in held.iter().zip(bytes) {
        figures.add("memory", "wasm bytes", case.structure.name(), case.x, bytes);
    }
    let version = |name| {
        let version = answer.pointer(name).and_then(Value::as_str);
        version.unwrap_or_default().to_owned()
    };
    Ok(format!(
        "Node {}, V8 {}",
        version("/version/node"),
        version("/version/v8")
    ))
}
