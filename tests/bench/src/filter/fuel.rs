//! What a request costs inside the module, counted by a host that executes it operator by operator.
//! The same on every machine.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

use anyhow::{Result, ensure};
use leapgate_host::{Cost, Host, Plugin, Request, Vm};

use super::modules::{
    CLIENT, CLIENT_HEADER, DEFAULT_INTERVAL_MS, Key, Limit, METADATA, Modules, NameFrom, PATH,
    ROUTE, apis, compile, floor_window, keyed, keyed_beside, named, rules,
};
use crate::table::{Table, grouped, section};

/// Requests that are counted, and the time between two of them: two seconds, so that every bucket
/// of a window begins twice.
const REQUESTS: u32 = 2000;
const MS_BETWEEN: u64 = 1;
/// Ticks that are counted.
const TICKS: u32 = 200;

/// What the counted requests cost, on average.
pub(super) struct PerRequest {
    cost: Cost,
    requests: f64,
}

impl PerRequest {
    pub(super) fn fuel(&self) -> f64 {
        self.cost.fuel as f64 / self.requests
    }

    fn estimated_instructions(&self) -> f64 {
        self.cost.estimated_instructions() / self.requests
    }

    fn by_name(&self, counts: &BTreeMap<String, u64>) -> String {
        let each = counts.iter().map(|(name, count)| {
            let name = name
                .trim_start_matches("proxy_on_")
                .trim_start_matches("proxy_");
            format!("{name} {:.1}", *count as f64 / self.requests)
        });
        each.collect::<Vec<_>>().join(", ")
    }
}

/// Prints the tables.
pub(super) fn run(modules: &Modules) -> Result<()> {
    section(
        "filter: inside the module, per request",
        "Exact, by a host that counts. Fuel is wasm operators executed; a host call that returns bytes enters the VM once more.\n\
         The floor has the filter's callbacks, and no host call that its window does not need. What all this costs in Envoy is\n\
         estimated with fixed weights; the next tables measure it. Aim: 1.3 times the floor.",
    );
    let floor = |limit: Limit| {
        measure(
            &modules.floor,
            &floor_window(limit, DEFAULT_INTERVAL_MS),
            limit,
        )
    };
    let ours = |number: usize, limit: Limit| {
        measure(
            &modules.ours,
            &rules(number, limit, DEFAULT_INTERVAL_MS),
            limit,
        )
    };
    let by = |key: Key, limit: Limit| {
        measure(
            &modules.ours,
            &keyed(key, limit, DEFAULT_INTERVAL_MS),
            limit,
        )
    };
    let beside = |limit: Limit| {
        let configuration = keyed_beside(limit, DEFAULT_INTERVAL_MS);
        measure(&modules.ours, &configuration, limit)
    };
    let by_name = |from: NameFrom| {
        let configuration = named(from, DEFAULT_INTERVAL_MS);
        measure(&modules.ours, &configuration, Limit::Ample)
    };
    let api = |is_exact: bool| {
        let configuration = apis(is_exact, Limit::Ample, DEFAULT_INTERVAL_MS);
        measure(&modules.ours, &configuration, Limit::Ample)
    };
    let rows = [
        ("floor, admitted", 0, floor(Limit::Ample)?),
        ("leapgate, 1 rule, admitted", 0, ours(1, Limit::Ample)?),
        (
            "leapgate, 1 000 rules, admitted",
            0,
            ours(1000, Limit::Ample)?,
        ),
        ("floor, refused", 3, floor(Limit::Tight)?),
        ("leapgate, 1 rule, refused", 3, ours(1, Limit::Tight)?),
        (
            "leapgate, 1 000 rules, refused",
            3,
            ours(1000, Limit::Tight)?,
        ),
        (
            "leapgate, by a header, admitted",
            0,
            by(Key::Header, Limit::Ample)?,
        ),
        (
            "leapgate, by a header, refused",
            3,
            by(Key::Header, Limit::Tight)?,
        ),
        (
            "leapgate, by the address, admitted",
            0,
            by(Key::Address, Limit::Ample)?,
        ),
        (
            "leapgate, by the address, refused",
            3,
            by(Key::Address, Limit::Tight)?,
        ),
        (
            "leapgate, by a header and two rules, admitted",
            0,
            beside(Limit::Ample)?,
        ),
        (
            "leapgate, by a header and two rules, refused",
            3,
            beside(Limit::Tight)?,
        ),
        ("leapgate, an exact API of 1 000, admitted", 0, api(true)?),
        ("leapgate, a prefix API of 1 000, admitted", 0, api(false)?),
        (
            "leapgate, by a route's metadata, admitted",
            0,
            by(Key::RouteMetadata, Limit::Ample)?,
        ),
        (
            "leapgate, named by metadata, admitted",
            0,
            by_name(NameFrom::RouteMetadata)?,
        ),
        (
            "leapgate, named by Envoy Gateway, admitted",
            0,
            by_name(NameFrom::EnvoyGateway)?,
        ),
        (
            "empty filter of the SDK",
            0,
            measure(&modules.empty, "", Limit::Ample)?,
        ),
    ];
    let mut table = Table::new(&[
        "",
        "fuel",
        "host calls",
        "with bytes",
        "entries",
        "instructions, about",
        "/ floor",
    ]);
    for (name, floor, row) in &rows {
        let floor = rows
            .get(*floor)
            .map_or(f64::NAN, |(_, _, floor)| floor.estimated_instructions());
        let average = |count: u64| format!("{:.2}", count as f64 / row.requests);
        table.row([
            (*name).to_owned(),
            format!("{:.1}", row.fuel()),
            average(row.cost.host_calls()),
            average(row.cost.calls_with_bytes),
            average(row.cost.vm_entries()),
            grouped(row.estimated_instructions()),
            format!("{:.2}", row.estimated_instructions() / floor),
        ]);
    }
    table.print();
    let of = |wanted: &str| {
        let row = rows.iter().find(|(name, _, _)| *name == wanted);
        row.map_or(f64::NAN, |(_, _, row)| row.estimated_instructions())
    };
    let by_route = of("leapgate, 1 rule, admitted");
    println!(
        "An API of 1 000 over the route's name: exact {:.2} times, prefix {:.2} times the instructions. Aim: 1.5 times.\n",
        of("leapgate, an exact API of 1 000, admitted") / by_route,
        of("leapgate, a prefix API of 1 000, admitted") / by_route,
    );
    for (name, _, row) in &rows {
        println!(
            "{name}\n  calls: {}\n  fuel:  {}",
            row.by_name(&row.cost.calls),
            row.by_name(&row.cost.fuel_by_entry)
        );
    }
    println!();
    path(modules)?;
    ticks(modules)
}

/// Where, between host calls, the fuel of one request goes.
fn path(modules: &Modules) -> Result<()> {
    println!(
        "fuel of the request callback up to each host call, of one admitted request inside a bucket"
    );
    let rows = [
        (
            "floor",
            &modules.floor,
            floor_window(Limit::Ample, DEFAULT_INTERVAL_MS),
        ),
        (
            "leapgate, 1 rule",
            &modules.ours,
            rules(1, Limit::Ample, DEFAULT_INTERVAL_MS),
        ),
    ];
    for (name, module, configuration) in rows {
        let host = Host::new();
        let mut vm = start(&host, module, &configuration)?;
        vm.request(&Request::to_route(ROUTE))?;
        let before = vm.cost();
        let steps = Rc::new(RefCell::new(String::new()));
        let seen = Rc::clone(&steps);
        host.before_each_call(move |call| {
            seen.borrow_mut().push_str(&format!(
                "{} {}, ",
                call.name.trim_start_matches("proxy_"),
                call.fuel
            ));
        });
        vm.request(&Request::to_route(ROUTE))?;
        let all = vm
            .cost()
            .since(&before)
            .fuel_by_entry
            .get("proxy_on_request_headers")
            .copied()
            .unwrap_or(0);
        println!("{name}\n  {}end {all}", steps.borrow());
    }
    println!();
    Ok(())
}

/// What a VM costs while nothing comes.
fn ticks(modules: &Modules) -> Result<()> {
    section(
        "filter: per tick",
        "Of a worker that has a request before each. One that has none does not tick (`idle` measures that).",
    );
    let mut table = Table::new(&["", "every ms", "fuel", "host calls"]);
    let rows = [
        (
            "floor",
            &modules.floor,
            floor_window(Limit::Ample, DEFAULT_INTERVAL_MS),
        ),
        (
            "leapgate, 1 rule",
            &modules.ours,
            rules(1, Limit::Ample, DEFAULT_INTERVAL_MS),
        ),
        (
            "leapgate, 1 000 rules",
            &modules.ours,
            rules(1000, Limit::Ample, DEFAULT_INTERVAL_MS),
        ),
    ];
    for (name, module, configuration) in rows {
        let host = Host::new();
        let mut vm = start(&host, module, &configuration)?;
        let mut cost = Cost::default();
        for _ in 0..TICKS {
            vm.request(&Request::to_route(ROUTE))?;
            host.advance_ms(vm.tick_period_ms().into());
            let before = vm.cost();
            vm.tick()?;
            cost.add(&vm.cost().since(&before));
        }
        let average = |count: u64| format!("{:.1}", count as f64 / f64::from(TICKS));
        table.row([
            name.to_owned(),
            vm.tick_period_ms().to_string(),
            average(cost.fuel),
            average(cost.host_calls()),
        ]);
    }
    table.print();
    Ok(())
}

pub(super) fn start(host: &Rc<Host>, file: &Path, configuration: &str) -> Result<Vm> {
    let module = compile(file)?;
    // The SDK's empty filter imports all there is, through methods that it never calls.
    let imports = module
        .imports()
        .into_iter()
        .filter_map(|import| import.strip_prefix("env.").map(str::to_owned));
    let plugin = Plugin {
        unimplemented: imports.collect(),
        ..Plugin::default()
    };
    let mut vm = Vm::start(host, &module, plugin)?;
    let accepted = vm.configure(configuration.as_bytes())?;
    ensure!(
        accepted,
        "{} refused its configuration: {:?}",
        file.display(),
        host.log()
    );
    Ok(vm)
}

pub(super) fn measure(module: &Path, configuration: &str, limit: Limit) -> Result<PerRequest> {
    let host = Host::new();
    let mut vm = start(&host, module, configuration)?;
    let mut request = Request::to_route(ROUTE)
        .path(PATH)
        .header(CLIENT_HEADER, CLIENT)
        .property(&["source", "address"], "203.0.113.7:40404");
    let resource = ["envoy-gateway", "resources", "0"];
    for (place, key, value) in [
        (&[METADATA][..], "client", CLIENT),
        (&[METADATA], "resource", ROUTE),
        (&resource, "kind", "HTTPRoute"),
        (&resource, "namespace", "shop"),
        (&resource, "name", ROUTE),
    ] {
        let route = &["xds", "route_metadata", "filter_metadata"];
        request = request.property(&[route, place, &[key]].concat(), value);
    }
    // Work that happens once is not a cost of a request, and a tight limit has used its one pass.
    for _ in 0..REQUESTS {
        host.advance_ms(MS_BETWEEN);
        vm.request(&request)?;
    }
    let (mut cost, mut requests) = (Cost::default(), 0_u32);
    for _ in 0..REQUESTS {
        host.advance_ms(MS_BETWEEN);
        let before = vm.cost();
        let refused = vm.request(&request)?.reply.is_some();
        // A tight limit admits one request a second, which is not what is measured.
        if refused == (limit == Limit::Tight) {
            requests += 1;
            cost.add(&vm.cost().since(&before));
        }
    }
    ensure!(
        requests > REQUESTS * 9 / 10,
        "{}: {requests} of {REQUESTS} were decided as they should",
        module.display()
    );
    Ok(PerRequest {
        cost,
        requests: requests.into(),
    })
}
