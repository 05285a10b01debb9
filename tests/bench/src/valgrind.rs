//! Instruction counts from valgrind, which has them on every machine: the counters of many are
//! closed to guests.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

/// The program of this name on the path.
pub(crate) fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

/// How many instructions a command takes from beginning to end.
pub(crate) fn instructions(valgrind: &Path, command: &Path, arguments: &[&str]) -> Result<f64> {
    let output = Command::new(valgrind)
        .args([
            "--tool=cachegrind",
            "--cache-sim=no",
            "--cachegrind-out-file=/dev/null",
        ])
        .arg(command)
        .args(arguments)
        .stdout(Stdio::null())
        .output()
        .context("valgrind does not run")?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!(
            "valgrind: {}",
            said.lines().last().unwrap_or("no reason given")
        );
    }
    // ==12345== I   refs:      342,619,056    (later versions: I refs)
    let line = said
        .lines()
        .find(|line| line.contains("refs:"))
        .context("valgrind printed no count")?;
    let digits: String = line
        .rsplit(':')
        .next()
        .unwrap_or_default()
        .chars()
        .filter(char::is_ascii_digit)
        .collect();
    digits
        .parse()
        .with_context(|| format!("valgrind's count in `{line}`"))
}
