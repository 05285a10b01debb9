//! A request that passes by a leased permit beside one that passes by a window of the filter's own, by the host that counts.

use anyhow::{Result, ensure};
use leapgate::lease::Store;
use leapgate_host::{Answer, Cost, Host, Request, Vm};

use super::fuel::start;
use super::modules::{Modules, ROUTE, one_rule};
use super::store::as_webdis;
use crate::table::{Table, grouped, section};

const REQUESTS: u64 = 20_000;
const MS_BETWEEN: u64 = 1;

/// Windows of which a lease has some, 100 and more permits at a request each millisecond: it is sized by demand.
const INTERVALS_MS: [u64; 3] = [400, 4000, 40_000];

/// Prints the table.
pub(super) fn run(modules: &Modules) -> Result<()> {
    section(
        "filter: a leased permit beside a window of the filter's own, per admitted request",
        "Counted as above, with all calls to the store and its answers. Aim: 1.1 times at a lease of 100.",
    );
    let mut table = Table::new(&[
        "",
        "permits of a lease",
        "fuel",
        "host calls",
        "entries",
        "instructions, about",
        "/ local",
    ]);
    for interval_ms in INTERVALS_MS {
        let mut local = f64::NAN;
        for is_leased in [false, true] {
            let (cost, calls) = measure(modules, is_leased, interval_ms)?;
            let average = |count: u64| format!("{:.2}", count as f64 / REQUESTS as f64);
            let instructions = cost.estimated_instructions() / REQUESTS as f64;
            if !is_leased {
                local = instructions;
            }
            let kind = if is_leased { "leased" } else { "local" };
            table.row([
                format!("{kind}, {interval_ms} ms"),
                match calls {
                    0 => "-".to_owned(),
                    calls => grouped(REQUESTS as f64 / calls as f64),
                },
                average(cost.fuel),
                average(cost.host_calls()),
                average(cost.vm_entries()),
                grouped(instructions),
                format!("{:.3}", instructions / local),
            ]);
        }
    }
    table.print();
    Ok(())
}

/// What the requests cost together, and how many calls there were. The first quarter as many are not counted: demand is not known
/// yet.
fn measure(modules: &Modules, is_leased: bool, interval_ms: u64) -> Result<(Cost, u64)> {
    let host = Host::new();
    let mut vm = start(&host, &modules.ours, &one_rule(is_leased, interval_ms))?;
    let mut store = Store::default();
    let (mut cost, mut calls) = (Cost::default(), 0);
    for number in 0..REQUESTS + REQUESTS / 4 {
        host.advance_ms(MS_BETWEEN);
        let before = vm.cost();
        let exchange = vm.request(&Request::to_route(ROUTE))?;
        let asked = answer(&mut vm, &mut store, host.wall_ns() / 1_000_000)?;
        if number < REQUESTS / 4 {
            continue;
        }
        ensure!(exchange.reply.is_none(), "request {number} was refused");
        cost.add(&vm.cost().since(&before));
        calls += asked;
    }
    Ok((cost, calls))
}

/// Answers all calls; how many there were.
fn answer(vm: &mut Vm, store: &mut Store, now_ms: u64) -> Result<u64> {
    let mut calls = 0;
    for call in vm.outgoing() {
        let body = as_webdis(store, &call.body, now_ms)?;
        vm.answer(call.token, Answer::http(200, &body))?;
        calls += 1;
    }
    Ok(calls)
}
