//! CPU time per request of a real Envoy, over an Envoy without a filter.
//!
//! All Envoys run at once, on one core; the load comes from another, and goes to one Envoy at a
//! time, in rounds. What a filter costs is the median of the differences that each round gives: the
//! machine's mood is the same on both sides of it.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::envoy::{Binary, Folder, NO_FILTER, Running, Ticks, Variant, variants};
use super::load::Load;
use super::modules::{DEFAULT_INTERVAL_MS, Limit, Modules};
use crate::statistics::{difference, differences, median, quantile, ratio};
use crate::table::{Table, section};

const ROUNDS: usize = 21;
const PER_ROUND: Duration = Duration::from_millis(100);
/// V8 compiles what runs often once more, better.
pub(super) const WARM_UP: Duration = Duration::from_millis(400);
const IDLE: Duration = Duration::from_millis(1500);
const CONNECTIONS: usize = 16;

/// Prints the table.
pub(super) fn run(modules: &Modules, envoy: &Binary) -> Result<()> {
    let cores = cores::first_two();
    let placed = match cores {
        Some(_) => "Envoy with one worker on one core, the load on another.",
        None => "One core for Envoy and the load: the figures are rough.",
    };
    section(
        "filter: CPU per request in Envoy, over an Envoy without a filter",
        &format!(
            "{placed} {ROUNDS} interleaved rounds of {} ms, {CONNECTIONS} connections.\n\
             Medians of the rounds' differences; the quartiles say how far to trust them. Aim: 1.3 times the floor.",
            PER_ROUND.as_millis()
        ),
    );

    let variants = variants(modules, DEFAULT_INTERVAL_MS, Ticks::AsAsked)?;
    let folder = Folder::new()?;
    if let Some((first, _)) = cores {
        cores::stay_on(first)?;
    }
    let mut running = Vec::new();
    for variant in &variants {
        running.push(Running::start(envoy, variant, &folder, &[], 1)?);
    }
    if let Some((_, second)) = cores {
        cores::stay_on(second)?;
    }
    let mut loads = Vec::new();
    for (running, variant) in running.iter_mut().zip(&variants) {
        running.wait(variant, Duration::from_secs(60))?;
        let mut load = Load::connect(running.port, CONNECTIONS)?;
        load.run_for(WARM_UP)?;
        loads.push(load);
    }

    let before = running
        .iter()
        .map(|running| cpu_seconds(running.pid()))
        .collect::<Result<Vec<_>>>()?;
    let begin = Instant::now();
    std::thread::sleep(IDLE);
    let after = running
        .iter()
        .map(|running| cpu_seconds(running.pid()))
        .collect::<Result<Vec<_>>>()?;
    let idle = differences(&after, &before)
        .into_iter()
        .map(|seconds| seconds / begin.elapsed().as_secs_f64());
    let idle: Vec<f64> = idle.collect();

    let mut micros = vec![Vec::with_capacity(ROUNDS); variants.len()];
    for _ in 0..ROUNDS {
        for (((variant, running), load), micros) in variants
            .iter()
            .zip(&running)
            .zip(&mut loads)
            .zip(&mut micros)
        {
            micros.push(round(variant, running, load).context(variant.name)?);
        }
    }
    print(&variants, &micros, &idle)
}

/// One turn of one variant: microseconds of CPU per request.
pub(super) fn round(variant: &Variant, running: &Running, load: &mut Load) -> Result<f64> {
    let before = cpu_seconds(running.pid())?;
    let answers = load.run_for(PER_ROUND)?;
    let spent = cpu_seconds(running.pid())? - before;
    let (as_meant, other) = match variant.limit {
        Limit::Ample => (answers.passed, answers.refused),
        Limit::Tight => (answers.refused, answers.passed),
    };
    // A tight limit lets one a second through.
    ensure!(
        other <= 2 && as_meant > other,
        "{answers:?}: not what was to be measured"
    );
    Ok(spent * 1e6 / answers.all() as f64)
}

fn print(variants: &[Variant], micros: &[Vec<f64>], idle: &[f64]) -> Result<()> {
    let of = |name: &str| {
        variants
            .iter()
            .zip(micros)
            .find(|(variant, _)| variant.name == name)
            .map(|(_, micros)| micros)
    };
    let nothing = of(NO_FILTER).context("a variant has no filter")?;
    let mut table = Table::new(&[
        "",
        "us/request",
        "/ no filter",
        "over no filter",
        "quartiles",
        "/ floor",
        "idle, % of a core",
    ]);
    for ((variant, micros), idle) in variants.iter().zip(micros).zip(idle) {
        let over = differences(micros, nothing);
        let floor = variant
            .floor
            .and_then(of)
            .map(|floor| difference(floor, nothing));
        table.row([
            variant.name.to_owned(),
            format!("{:.2}", median(micros)),
            format!("{:.2}", ratio(micros, nothing)),
            format!("{:.2}", difference(micros, nothing)),
            format!(
                "{:.2} .. {:.2}",
                quantile(&over, 0.25),
                quantile(&over, 0.75)
            ),
            floor.map_or("-".to_owned(), |floor| {
                format!("{:.2}", median(&over) / floor)
            }),
            format!("{:.2}", idle * 100.0),
        ]);
    }
    table.print();
    Ok(())
}

/// CPU time that a process has used, in all its threads.
pub(super) fn cpu_seconds(pid: u32) -> Result<f64> {
    // The scheduler's own account, in nanoseconds, where the kernel keeps one.
    let threads =
        std::fs::read_dir(format!("/proc/{pid}/task")).context("the process's threads")?;
    let nanos = threads
        .filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("schedstat")).ok())
        .filter_map(|line| line.split(' ').next()?.parse::<u64>().ok());
    match nanos.sum::<u64>() {
        0 => ticks(pid),
        nanos => Ok(nanos as f64 / 1e9),
    }
}

/// The same from `/proc/<pid>/stat`, in hundredths of a second on every Linux there is.
fn ticks(pid: u32) -> Result<f64> {
    let stat =
        std::fs::read_to_string(format!("/proc/{pid}/stat")).context("the process's times")?;
    // The command's name, in brackets, may hold spaces: the 14th and 15th field are the 12th and
    // 13th after it.
    let fields = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace();
    let times: Vec<f64> = fields
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse().ok())
        .collect();
    ensure!(times.len() == 2, "no times in `{stat}`");
    Ok(times.iter().sum::<f64>() / 100.0)
}

/// Which cores a process may use.
#[cfg(target_os = "linux")]
mod cores {
    use anyhow::{Context as _, Result};
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    /// Two cores that this program may use; `None` where there are not two.
    pub(super) fn first_two() -> Option<(usize, usize)> {
        let allowed = sched_getaffinity(None).ok()?;
        let mut cores = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core));
        Some((cores.next()?, cores.next()?))
    }

    /// Keeps this thread, and the processes that it starts, on one core.
    pub(super) fn stay_on(core: usize) -> Result<()> {
        let mut cores = CpuSet::new();
        cores.set(core);
        sched_setaffinity(None, &cores).with_context(|| format!("staying on core {core}"))
    }
}

#[cfg(not(target_os = "linux"))]
mod cores {
    pub(super) fn first_two() -> Option<(usize, usize)> {
        None
    }

    pub(super) fn stay_on(_: usize) -> anyhow::Result<()> {
        Ok(())
    }
}
