//! User instructions per request of a real Envoy: by the processor's counters where they can be
//! had, else by valgrind, which is slow and counts as exactly.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};

use super::envoy::{Binary, Folder, LEASED, LOCAL, NO_FILTER, Running, Ticks, Variant, variants};
use super::load::Load;
use super::modules::Modules;
use crate::table::{Table, grouped, section};
use crate::valgrind::on_path;

/// A request takes milliseconds under valgrind. With the default interval there would be a bucket's
/// end between any few of them, as there never is in life; the path of a request does not depend on
/// the interval.
const INTERVAL_MS: u64 = 100_000;
/// Requests before any are counted. More change nothing under valgrind, as tried with 80 000.
const WARM_UP: u64 = 1_000;
const COUNTED: u64 = 1_200;
/// The processor's counters cost no time, and there is noise in them.
const COUNTED_BY_PERF: u64 = 40_000;
const IDLE: Duration = Duration::from_millis(400);
/// One request at a time: how many of several Envoy finds ready at once would depend on the
/// machine.
const CONNECTIONS: usize = 1;

/// Prints the table.
pub(super) fn run(modules: &Modules, envoy: &Binary) -> Result<()> {
    let title = "filter: user instructions per request in Envoy, over an Envoy without a filter";
    let Some(counter) = Counter::find() else {
        section(
            title,
            "Left out: `perf` cannot count instructions here, and valgrind is not on the path.",
        );
        return Ok(());
    };
    let by = counter.name();
    section(
        title,
        &format!(
            "Counted by {by}, without ticks; what Envoy does while idle is subtracted. Aim: 1.3 times the floor."
        ),
    );
    let variants = variants(modules, INTERVAL_MS, Ticks::Never)?;
    let folder = Folder::new()?;
    let counted = count_all(&counter, envoy, &variants, &folder)?;

    let of = |name: &str| {
        variants
            .iter()
            .zip(&counted)
            .find(|(variant, _)| variant.name == name)
            .map(|(_, counted)| *counted)
    };
    let nothing = of(NO_FILTER).context("a variant has no filter")?;
    let mut table = Table::new(&["", "instructions", "over no filter", "/ floor"]);
    for (variant, counted) in variants.iter().zip(&counted) {
        let floor = variant.floor.and_then(of);
        table.row([
            variant.name.to_owned(),
            grouped(*counted),
            grouped(counted - nothing),
            floor.map_or("-".to_owned(), |floor| {
                format!("{:.2}", (counted - nothing) / (floor - nothing))
            }),
        ]);
    }
    table.print();
    if let (Some(leased), Some(local)) = (of(LEASED), of(LOCAL)) {
        println!(
            "A leased permit, with its part of the calls to the store: {:.2} times a window of the filter's own. Aim: 1.1 times.\n",
            (leased - nothing) / (local - nothing)
        );
    }
    Ok(())
}

/// Counts all variants, under valgrind as many at a time as there are cores.
fn count_all(
    counter: &Counter,
    envoy: &Binary,
    variants: &[Variant],
    folder: &Folder,
) -> Result<Vec<f64>> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(variant) = variants.get(index) else {
                return anyhow::Ok(done);
            };
            done.push((
                index,
                count(counter, envoy, variant, folder).context(variant.name)?,
            ));
        }
    };
    let workers = match counter {
        Counter::Perf { .. } => 1,
        Counter::Valgrind { .. } => std::thread::available_parallelism().map_or(1, usize::from),
    };
    let mut all = std::thread::scope(|scope| {
        let running: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        let mut all = Vec::new();
        for worker in running {
            all.extend(worker.join().map_err(|_| anyhow!("a worker panicked"))??);
        }
        anyhow::Ok(all)
    })?;
    all.sort_by_key(|(index, _)| *index);
    Ok(all.into_iter().map(|(_, counted)| counted).collect())
}

/// Instructions per request.
fn count(counter: &Counter, envoy: &Binary, variant: &Variant, folder: &Folder) -> Result<f64> {
    let dumps = folder.path().join(format!(
        "{}.callgrind",
        variant.name.replace([' ', ','], "-")
    ));
    let mut running = Running::start(envoy, variant, folder, &counter.wrapper(&dumps), 1)?;
    running.wait(variant, Duration::from_secs(60))?;
    let mut load = Load::connect(running.port, CONNECTIONS)?;
    let times = match counter {
        Counter::Perf { .. } => COUNTED_BY_PERF,
        Counter::Valgrind { .. } => COUNTED,
    };
    load.run_times(WARM_UP.max(times / 2))?;
    counter.switch_on(running.pid())?;
    load.run_times(200)?;

    let mut meter = Meter {
        counter,
        pid: running.pid(),
        dumps: &dumps,
        dumped: 0,
    };
    let (idle, ()) = meter.measure(|| {
        std::thread::sleep(IDLE);
        Ok(())
    })?;
    let (busy, answers) = meter.measure(|| load.run_times(times))?;
    ensure!(answers.all() > 0, "no answers");
    let background = idle.instructions / idle.seconds * busy.seconds;
    Ok((busy.instructions - background) / answers.all() as f64)
}

/// What counts.
enum Counter {
    Perf(PathBuf),
    Valgrind {
        valgrind: PathBuf,
        /// Its remote control.
        vgdb: PathBuf,
    },
}

impl Counter {
    fn find() -> Option<Self> {
        if let Some(perf) = on_path("perf") {
            let trial = Command::new(&perf).args(PERF_STAT).arg("true").output();
            if trial
                .is_ok_and(|trial| perf_count(&String::from_utf8_lossy(&trial.stderr)).is_some())
            {
                return Some(Self::Perf(perf));
            }
        }
        Some(Self::Valgrind {
            valgrind: on_path("valgrind")?,
            vgdb: on_path("vgdb")?,
        })
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Perf(_) => "the processor (perf)",
            Self::Valgrind { .. } => "valgrind",
        }
    }

    /// What comes before Envoy on the command line. Valgrind writes its counts to `dumps`, with a
    /// number behind the name.
    fn wrapper(&self, dumps: &Path) -> Vec<OsString> {
        let Self::Valgrind { valgrind, .. } = self else {
            return Vec::new();
        };
        let mut out = OsString::from("--callgrind-out-file=");
        out.push(dumps);
        vec![
            valgrind.into(),
            "--tool=callgrind".into(),
            // Nothing is counted while Envoy starts and warms up, which takes a tenth of the time
            // then.
            "--instr-atstart=no".into(),
            // V8 writes code.
            "--smc-check=all-non-file".into(),
            out,
        ]
    }

    fn switch_on(&self, pid: u32) -> Result<()> {
        match self {
            Self::Perf(_) => Ok(()),
            Self::Valgrind { vgdb, .. } => remote(vgdb, pid, &["instrumentation", "on"]),
        }
    }
}

/// A command to a process under valgrind.
fn remote(vgdb: &Path, pid: u32, words: &[&str]) -> Result<()> {
    let mut command = Command::new(vgdb);
    command
        .arg(format!("--pid={pid}"))
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let status = command.status().context("vgdb does not run")?;
    ensure!(
        status.success(),
        "vgdb {} failed: {status}",
        words.join(" ")
    );
    Ok(())
}

const PERF_STAT: [&str; 5] = ["stat", "-x", ",", "-e", "instructions:u"];

/// The count in what `perf stat -x ,` prints; `None` where it has none, as on many virtual
/// machines.
fn perf_count(printed: &str) -> Option<f64> {
    let line = printed.lines().find(|line| line.contains("instructions"))?;
    line.split(',').next()?.trim().parse().ok()
}

/// What was counted, and in how long.
struct Reading {
    instructions: f64,
    seconds: f64,
}

/// The counter of one Envoy.
struct Meter<'a> {
    counter: &'a Counter,
    pid: u32,
    dumps: &'a Path,
    dumped: u32,
}

impl Meter<'_> {
    /// Counts while `action` runs.
    fn measure<T>(&mut self, action: impl FnOnce() -> Result<T>) -> Result<(Reading, T)> {
        match self.counter {
            Counter::Valgrind { vgdb, .. } => {
                remote(vgdb, self.pid, &["zero"])?;
                let begin = Instant::now();
                let result = action()?;
                let seconds = begin.elapsed().as_secs_f64();
                remote(vgdb, self.pid, &["dump"])?;
                self.dumped += 1;
                Ok((
                    Reading {
                        instructions: self.dumped_total()?,
                        seconds,
                    },
                    result,
                ))
            }
            Counter::Perf(perf) => {
                let mut perf = Command::new(perf);
                perf.args(PERF_STAT)
                    .arg("-p")
                    .arg(self.pid.to_string())
                    .stdout(Stdio::null())
                    .stderr(Stdio::piped());
                let begin = Instant::now();
                let perf = perf.spawn().context("perf does not run")?;
                // It does not say when it has begun to count.
                std::thread::sleep(Duration::from_millis(300));
                let result = action()?;
                let instructions = interrupted(perf)?;
                Ok((
                    Reading {
                        instructions,
                        seconds: begin.elapsed().as_secs_f64(),
                    },
                    result,
                ))
            }
        }
    }

    fn dumped_total(&self) -> Result<f64> {
        let mut file = self.dumps.as_os_str().to_owned();
        file.push(format!(".{}", self.dumped));
        let text = std::fs::read_to_string(&file).context("valgrind's counts")?;
        let total = text
            .lines()
            .find_map(|line| line.strip_prefix("totals: "))
            .context("valgrind's counts have no total")?;
        total.trim().parse().context("valgrind's total")
    }
}

/// Ends perf, which prints its count then.
fn interrupted(perf: Child) -> Result<f64> {
    super::envoy::send(&perf, super::envoy::Message::Interrupt);
    let output = perf.wait_with_output().context("waiting for perf")?;
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    perf_count(&printed).with_context(|| format!("perf printed no count: {printed}"))
}

#[cfg(test)]
mod tests {
    use super::perf_count;

    #[test]
    fn perf_says_a_count_or_that_it_has_none() {
        assert_eq!(
            perf_count("123456,,instructions:u,400012,100.00,,\n"),
            Some(123456.0)
        );
        assert_eq!(
            perf_count("<not supported>,,instructions:u,0,100.00,,\n"),
            None
        );
        assert_eq!(perf_count(""), None);
    }
}
