//! `leapgate-size MODULE SYMBOLS BUDGETS` prints how many bytes of a module belong to each owner in BUDGETS, and fails if an
//! owner has more than its budget. Each byte of the module has exactly one owner.
//!
//! SYMBOLS is what `wasm-opt --symbolmap` writes: a function's number and its name, as the module itself has no names. BUDGETS has a
//! line for each owner, `leapgate::config 57.0`: a path and kilobytes (1,000 bytes). The longest path that a function's name begins
//! with owns it. Generic code of other crates belongs to the type of ours that it was made for, and is theirs otherwise.

mod budgets;
mod module;
mod names;

use anyhow::{Context as _, Result, bail};
use std::fs;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<()> {
    let [module, symbols, budgets] = arguments else {
        bail!("use: leapgate-size MODULE SYMBOLS BUDGETS");
    };
    let names = names::read(&text(symbols)?);
    let bytes = fs::read(module).with_context(|| module.clone())?;
    let parts = module::parts(&bytes, &names).with_context(|| module.clone())?;
    let owners = budgets::read(&text(budgets)?).with_context(|| budgets.clone())?;
    let report = budgets::attribute(&parts, owners);
    print!("{report}");
    let complaints = report.complaints(budgets);
    if !complaints.is_empty() {
        bail!(complaints.join("\n"));
    }
    Ok(())
}

fn text(file: &str) -> Result<String> {
    fs::read_to_string(file).with_context(|| file.to_owned())
}
