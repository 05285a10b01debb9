//! Ways to keep a window, side by side: the study of `docs/study.md`.

mod document;
mod measure;

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use leapgate_study::accuracy::{
    LIMIT, Traffic, Way, admitted, adversary, decide as decisions_of, worst_interval,
};
use leapgate_study::cases::Structure::{self, List};
use leapgate_study::cases::{self, BUCKETS, Case, USUAL};

use crate::figures::Figures;
use crate::table::section;
use crate::valgrind;

pub(crate) use document::DOCUMENT;
pub(crate) use measure::decide;

/// How much is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// What the document is made of.
    Full,
    /// A point of each figure.
    Quick,
    /// One point for some structures: a test, whose build has a lot to do under valgrind.
    Smoke,
}

/// The structures of [`Extent::Smoke`].
const SMOKE: [Structure; 3] = [Structure::Leapgate, List, Structure::TokenBucket];

impl Extent {
    fn has(self, case: &Case) -> bool {
        match self {
            Self::Full => true,
            Self::Quick => case.is_usual(),
            Self::Smoke => match case.figure {
                "buckets" => SMOKE.contains(&case.structure) && case.is_usual(),
                figure => figure == "memory" && case.structure == List && case.is_usual(),
            },
        }
    }

    fn rounds(self) -> usize {
        match self {
            Self::Full => 101,
            Self::Quick | Self::Smoke => 5,
        }
    }
}

/// Prints the tables. If all is measured, also writes `docs/study/figures.csv`, and makes the plots and the document's tables of
/// it.
pub(crate) fn run(extent: Extent) -> Result<()> {
    let module = std::env::var_os("LEAPGATE_STUDY_WASM").map(PathBuf::from);
    let module = module.context(
        "LEAPGATE_STUDY_WASM does not name the study's module; `./build.sh bench study` sees to it",
    )?;
    let is_wanted = |case: &Case| extent.has(case);
    let cases: Vec<Case> = cases::all().into_iter().filter(is_wanted).collect();
    let held: Vec<Case> = cases::held().into_iter().filter(is_wanted).collect();
    let (is_full, rounds) = (extent == Extent::Full, extent.rounds());

    let mut figures = Figures::default();
    let times = measure::time(&cases, rounds)?;
    measure::add_times(&mut figures, "", &cases, &times);
    let node = measure::in_node(&mut figures, &module, &cases, &held, rounds)?;
    let remark = match valgrind::on_path("valgrind") {
        Some(valgrind) => {
            measure::count(&mut figures, &valgrind, &cases, &held)?;
            ""
        }
        None => "\nvalgrind is not on the path: no instructions, no allocations, no native bytes.",
    };
    compare(&mut figures, if is_full { &BUCKETS } else { &[USUAL] })?;

    section(
        "study: ways to keep a window",
        &format!(
            "WebAssembly in {node}. Ratios are to leapgate's window, in the same rounds.{remark}"
        ),
    );
    DOCUMENT.print(&figures);
    if !is_full {
        println!("docs/study.md stays as it is: not all of it was measured.");
        return Ok(());
    }
    ensure!(
        remark.is_empty(),
        "docs/study.md stays as it is: {}",
        remark.trim_start()
    );
    DOCUMENT.write(&figures)
}

/// Makes the document anew of the figures that are there: after a change of its words or of a plot.
pub(crate) fn draw() -> Result<()> {
    DOCUMENT.write(&DOCUMENT.kept()?)
}

/// Adds what each way to decide admits, and how its decisions differ from the exact log's.
fn compare(figures: &mut Figures, buckets: &[u32]) -> Result<()> {
    const OF_LIMIT: f64 = 100.0 / LIMIT as f64;
    let traffic = Traffic::ALL.map(|traffic| {
        let instants = traffic.instants(1);
        let exact = Way::Log.limiter(1);
        let exact = exact.map(|mut log| decisions_of(&mut *log, &instants));
        (traffic.name(), instants, exact.unwrap_or_default())
    });
    for way in Way::ALL {
        let counts = if way.has_buckets() { buckets } else { &[USUAL] };
        for &buckets in counts {
            let mut add = |measure: &str, value| {
                figures.add("accuracy", measure, way.name(), f64::from(buckets), value);
            };
            let new = || way.limiter(buckets);
            let worst = adversary(&new, buckets).context("buckets divide the interval")?;
            add("worst adversary", worst as f64 * OF_LIMIT);
            for (name, instants, exact) in &traffic {
                let mut limiter = new().context("buckets divide the interval")?;
                let decided = decisions_of(&mut *limiter, instants);
                let passed = admitted(instants, &decided);
                let differ = decided
                    .iter()
                    .zip(exact)
                    .filter(|(one, other)| one != other);
                let of_all = 100.0 / instants.len() as f64;
                let of_exact = 100.0 / admitted(instants, exact).len() as f64;
                add(
                    &format!("worst {name}"),
                    worst_interval(&passed) as f64 * OF_LIMIT,
                );
                add(&format!("differ {name}"), differ.count() as f64 * of_all);
                add(&format!("admitted {name}"), passed.len() as f64 * of_exact);
            }
        }
    }
    Ok(())
}
