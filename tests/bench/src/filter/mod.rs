//! The filter beside its floor.

mod cpu;
mod envoy;
mod fuel;
mod growth;
mod idle;
mod instructions;
mod leased;
mod load;
mod modules;
mod start;
mod store;

use anyhow::Result;

pub(crate) use growth::measure as grow;
pub(crate) use load::read_response;

/// What can be printed.
pub(crate) const PARTS: [&str; 6] = ["fuel", "leased", "instructions", "cpu", "idle", "start"];

/// Prints the tables of these parts.
pub(crate) fn run(parts: &[&str]) -> Result<()> {
    let modules = modules::Modules::find()?;
    if parts.contains(&"fuel") {
        fuel::run(&modules)?;
    }
    if parts.contains(&"leased") {
        leased::run(&modules)?;
    }
    if parts.contains(&"start") {
        start::in_module(&modules)?;
    }
    if parts.iter().any(|part| !["fuel", "leased"].contains(part)) {
        let envoy = envoy::Binary::find()?;
        if parts.contains(&"instructions") {
            instructions::run(&modules, &envoy)?;
        }
        if parts.contains(&"cpu") {
            cpu::run(&modules, &envoy)?;
        }
        if parts.contains(&"idle") {
            idle::run(&modules, &envoy)?;
        }
        if parts.contains(&"start") {
            start::run(&modules, &envoy)?;
        }
    }
    Ok(())
}
