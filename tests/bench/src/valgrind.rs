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
    let options = [
        "--tool=cachegrind",
        "--cache-sim=no",
        "--cachegrind-out-file=/dev/null",
    ];
    // ==12345== I   refs:      342,619,056    (later versions: I refs)
    number_after("refs:", &said(valgrind, &options, command, arguments)?)
}

/// How often a command allocates from beginning to end.
pub(crate) fn allocations(valgrind: &Path, command: &Path, arguments: &[&str]) -> Result<f64> {
    // ==12345==   total heap usage: 1,062 allocs, 20 frees, 90,713 bytes allocated
    number_after(
        "total heap usage:",
        &said(valgrind, &MEMCHECK, command, arguments)?,
    )
}

/// How many bytes of the heap a command has when it ends.
pub(crate) fn bytes_in_use(valgrind: &Path, command: &Path, arguments: &[&str]) -> Result<f64> {
    // ==12345==     in use at exit: 89,312 bytes in 1,042 blocks
    number_after(
        "in use at exit:",
        &said(valgrind, &MEMCHECK, command, arguments)?,
    )
}

const MEMCHECK: [&str; 3] = [
    "--tool=memcheck",
    "--leak-check=no",
    "--undef-value-errors=no",
];

/// What valgrind says about a command.
fn said(valgrind: &Path, options: &[&str], command: &Path, arguments: &[&str]) -> Result<String> {
    let output = Command::new(valgrind)
        .args(options)
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
    Ok(said.into_owned())
}

/// The first number after a word.
fn number_after(word: &str, said: &str) -> Result<f64> {
    let rest = said.lines().find_map(|line| line.split_once(word));
    let (_, rest) = rest.with_context(|| format!("valgrind printed no `{word}`"))?;
    let digits: String = rest
        .trim_start()
        .chars()
        .take_while(|digit| digit.is_ascii_digit() || *digit == ',')
        .filter(char::is_ascii_digit)
        .collect();
    digits
        .parse()
        .with_context(|| format!("valgrind's count in `{rest}`"))
}
