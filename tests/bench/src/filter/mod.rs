//! The filter beside its floor.

mod cpu;
mod envoy;
mod fuel;
mod instructions;
mod load;
mod modules;

use anyhow::Result;

/// What can be printed.
pub(crate) const PARTS: [&str; 3] = ["fuel", "instructions", "cpu"];

/// Prints the tables of these parts.
pub(crate) fn run(parts: &[&str]) -> Result<()> {
    let modules = modules::Modules::find()?;
    if parts.contains(&"fuel") {
        fuel::run(&modules)?;
    }
    if parts.contains(&"instructions") || parts.contains(&"cpu") {
        let envoy = envoy::Binary::find()?;
        if parts.contains(&"instructions") {
            instructions::run(&modules, &envoy)?;
        }
        if parts.contains(&"cpu") {
            cpu::run(&modules, &envoy)?;
        }
    }
    Ok(())
}
