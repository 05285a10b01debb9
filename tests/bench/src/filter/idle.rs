//! CPU time of a real Envoy that has nothing to do, over an Envoy without a filter.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::cpu::cpu_seconds;
use super::envoy::{Binary, Folder, NO_FILTER, Running, Ticks, variants};
use super::load::Load;
use super::modules::{DEFAULT_INTERVAL_MS, Modules};
use crate::statistics::{difference, median};
use crate::table::{Table, section};

const WORKERS: u32 = 4;
const ROUNDS: usize = 5;
const PER_ROUND: Duration = Duration::from_millis(1500);
/// Enough that every worker has some.
const CONNECTIONS: usize = 32;
/// The workers sleep by then.
const REST: Duration = Duration::from_millis(500);

const NAMES: [&str; 3] = [
    NO_FILTER,
    "leapgate, 1 rule, admitted",
    "leapgate, 1 000 rules, admitted",
];

/// Prints the table.
pub(super) fn run(modules: &Modules, envoy: &Binary) -> Result<()> {
    section(
        "filter: CPU of an Envoy that is idle, over an Envoy without a filter",
        &format!(
            "{WORKERS} workers, which have all had requests. Medians of {ROUNDS} interleaved rounds of {} ms. Aim: 1.5 ms a second more.",
            PER_ROUND.as_millis()
        ),
    );
    let variants = variants(modules, DEFAULT_INTERVAL_MS, Ticks::AsAsked)?;
    let chosen: Vec<_> = variants
        .iter()
        .filter(|variant| NAMES.contains(&variant.name))
        .collect();
    ensure!(chosen.len() == NAMES.len(), "a variant has another name");
    let folder = Folder::new()?;
    let mut running = Vec::new();
    for variant in &chosen {
        let mut envoy = Running::start(envoy, variant, &folder, &[], WORKERS)?;
        envoy.wait(variant, Duration::from_secs(60))?;
        Load::connect(envoy.port, CONNECTIONS)?.run_for(REST)?;
        running.push(envoy);
    }
    std::thread::sleep(REST);
    let mut millis = vec![Vec::with_capacity(ROUNDS); chosen.len()];
    for _ in 0..ROUNDS {
        for (envoy, millis) in running.iter().zip(&mut millis) {
            let (begin, before) = (Instant::now(), cpu_seconds(envoy.pid())?);
            std::thread::sleep(PER_ROUND);
            let spent = cpu_seconds(envoy.pid())? - before;
            millis.push(spent * 1000.0 / begin.elapsed().as_secs_f64());
        }
    }
    let mut table = Table::new(&["", "ms/s", "over no filter"]);
    for (variant, own) in chosen.iter().zip(&millis) {
        table.row([
            variant.name.trim_end_matches(", admitted").to_owned(),
            format!("{:.2}", median(own)),
            format!("{:.2}", difference(own, millis.first().unwrap_or(own))),
        ]);
    }
    table.print();
    Ok(())
}
