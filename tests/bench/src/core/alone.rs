//! A call's entry and exit in a program that has nothing else.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::table::{Table, section};
use crate::valgrind;

/// The cases of `tests/bench/entry.rs`.
const CASES: [&str; 2] = ["by name", "looked up before"];
const COUNTED: u64 = 50_000;

/// Prints the table.
pub(super) fn run() -> Result<()> {
    let words = "Instructions alone, of a program of its own (tests/bench/entry.rs), which has the core without its default \
                 features: other programs of the workspace have all of them. The difference between 100 000 runs and 50 000, \
                 with all statistics of the resource's node.";
    section(
        "core: enter and exit, in a program that has nothing else",
        words,
    );
    let Some(valgrind) = valgrind::on_path("valgrind") else {
        println!("valgrind is not on the path: no instruction counts.\n");
        return Ok(());
    };
    let program = build()?;
    let mut table = Table::new(&["", "instructions"]);
    for case in CASES {
        let instructions =
            |times: u64| valgrind::instructions(&valgrind, &program, &[case, &times.to_string()]);
        let count = (instructions(2 * COUNTED)? - instructions(COUNTED)?) / COUNTED as f64;
        table.row([
            format!("enter + exit, resource {case}"),
            format!("{count:.1}"),
        ]);
    }
    table.print();
    Ok(())
}

/// Builds the program.
fn build() -> Result<PathBuf> {
    // Beside this program: target/release/leapgate-bench.
    let program = std::env::current_exe().context("this program's own path")?;
    let target = program.ancestors().nth(2);
    let target = target.context("this program lies in no target folder")?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["build", "--quiet", "--locked", "--release"])
        .args(["--package", "leapgate", "--no-default-features"])
        .args(["--example", "entry", "--target-dir"])
        .arg(target)
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .output()
        .context("cargo does not run")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("the program cannot be built:\n{said}");
    }
    Ok(target.join("release/examples/entry"))
}
