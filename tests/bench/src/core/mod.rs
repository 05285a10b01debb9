//! The core beside its peers: nanoseconds and instructions, in interleaved rounds.

mod alone;
mod behaviors;
mod cases;
mod keyed;

use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result};

use crate::parallel;
use crate::statistics::{median, ratio};
use crate::table::{Table, section};
use crate::valgrind;
use cases::{Case, Group};
pub(crate) use cases::{NO_LIMIT, Run, entering, to_anyhow};
pub(crate) use keyed::{count_alone, time_alone};

/// Rounds, and how long each case runs in one of them: shorter than a scheduler's slice, so that on a busy machine most batches
/// run undisturbed, and the median is such a batch.
const ROUNDS: usize = 301;
const NANOS_PER_BATCH: f64 = 2e5;

/// What was found out about a case.
struct Figures {
    /// By round.
    nanos: Vec<f64>,
    /// `None` without valgrind.
    instructions: Option<f64>,
}

/// Prints the tables.
pub(crate) fn run() -> Result<()> {
    let cases = cases::all();
    let nanos = time(&cases)?;
    let (instructions, remark) = match valgrind::on_path("valgrind") {
        Some(valgrind) => (
            count(&valgrind, &cases)?.into_iter().map(Some).collect(),
            "",
        ),
        None => (
            vec![None; cases.len()],
            "\nvalgrind is not on the path: no instruction counts.",
        ),
    };
    let figures = nanos
        .into_iter()
        .zip(instructions)
        .map(|(nanos, instructions)| Figures {
            nanos,
            instructions,
        });
    let all: Vec<(&Case, Figures)> = cases.iter().zip(figures).collect();

    for group in Group::ALL {
        let words = "Medians of interleaved rounds; ratios are medians of each round's ratio. Peers are \
                     built like the core, with overflow checks.";
        section(
            group.title(),
            &format!("{}\n{words}{remark}", group.words()),
        );
        let reference = all.iter().find(|(case, _)| case.name == group.reference());
        let (_, reference) = reference.context("the group's reference is a case")?;
        let in_nanos = format!("ns / {}", group.reference());
        let mut headings = vec!["", "ns", &in_nanos, "instructions", "ratio"];
        if group == Group::Behavior {
            headings.push("added to a plain rule's");
        }
        let mut table = Table::new(&headings);
        for (case, figures) in all.iter().filter(|(case, _)| case.group == group) {
            let counts = figures.instructions.zip(reference.instructions);
            let shown = |number: Option<f64>, digits| {
                number.map_or("-".to_owned(), |number| format!("{number:.digits$}"))
            };
            let mut row = vec![
                case.name.clone(),
                format!("{:.2}", median(&figures.nanos)),
                format!("{:.2}", ratio(&figures.nanos, &reference.nanos)),
                shown(figures.instructions, 1),
                shown(counts.map(|(count, to)| count / to), 2),
            ];
            if group == Group::Behavior {
                row.push(shown(counts.map(|(count, to)| count - to), 1));
            }
            table.row(row);
        }
        table.print();
    }
    alone::run()?;
    keyed::run()
}

/// Prints the table of an entry and exit in a program that has nothing else.
pub(crate) fn run_alone() -> Result<()> {
    alone::run()
}

/// Prints the table of limits per key alone.
pub(crate) fn run_keyed() -> Result<()> {
    keyed::run()
}

/// Runs one case so many times, for valgrind.
pub(crate) fn repeat(name: &str, times: u64) -> Result<()> {
    let cases = cases::all();
    let case = cases
        .iter()
        .find(|case| case.name == name)
        .with_context(|| format!("no case `{name}`"))?;
    std::hint::black_box((case.make)()?(times));
    Ok(())
}

/// Makes so many decisions of a peer of the table of limits per key, for valgrind.
pub(crate) fn repeat_keyed(peer: &str, keys: usize, rate: u64, times: usize) -> Result<()> {
    keyed::repeat(peer, keys, rate, times)
}

/// Nanoseconds per run of each case, round by round.
fn time(cases: &[Case]) -> Result<Vec<Vec<f64>>> {
    let mut running = Vec::new();
    for case in cases {
        let mut run = (case.make)().with_context(|| case.name.clone())?;
        // The first run warms up, the second measures how many fill a batch.
        nanos(&mut run, 2000);
        let batch = (NANOS_PER_BATCH / nanos(&mut run, 2000).max(0.1)) as u64;
        running.push((run, batch.max(100), Vec::with_capacity(ROUNDS)));
    }
    for _ in 0..ROUNDS {
        for (run, batch, times) in &mut running {
            times.push(nanos(run, *batch));
        }
    }
    Ok(running.into_iter().map(|(_, _, times)| times).collect())
}

fn nanos(run: &mut Run, times: u64) -> f64 {
    let begin = Instant::now();
    std::hint::black_box(run(times));
    begin.elapsed().as_nanos() as f64 / times as f64
}

/// Instructions per run of each case: the difference between a process that runs it 2 N times and
/// one that does N times.
fn count(valgrind: &Path, cases: &[Case]) -> Result<Vec<f64>> {
    let program = std::env::current_exe().context("this program's own path")?;
    let count_case = |case: &Case| -> Result<f64> {
        let instructions = |times: u64| {
            valgrind::instructions(
                valgrind,
                &program,
                &["repeat", &case.name, &times.to_string()],
            )
        };
        Ok((instructions(2 * case.counted)? - instructions(case.counted)?) / case.counted as f64)
    };
    // Two processes of a second each.
    parallel::map(cases, |case| {
        count_case(case).with_context(|| case.name.clone())
    })
}
