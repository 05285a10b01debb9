//! What requests cost in the filter, and what memory it takes, as rules, buckets, keys and workers grow: for `docs/growth.md`.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use leapgate_host::{Host, Request};
use serde_json::json;

use super::cpu::{WARM_UP, round};
use super::envoy::{Binary, Folder, LOCAL, NO_FILTER, Running, Ticks, Variant, variants};
use super::fuel::{measure as of_requests, start};
use super::load::Load;
use super::modules::{CLIENT_HEADER, DEFAULT_INTERVAL_MS, Limit, Modules, ROUTE, rules};
use crate::figures::Figures;
use crate::growth::{BUCKETS, KEYS, RULES, WORKERS};
use crate::statistics::{differences, median, quantile};

/// More keys take the host minutes.
const MOST_KEYS: u32 = 100_000;
/// All keys are asked for within it.
const KEYED_INTERVAL_MS: u64 = 600_000;
const COUNTED: u32 = 2000;
const ROUNDS: usize = 41;
const CONNECTIONS: usize = 32;
const KINDS: [(Limit, &str); 2] = [
    (Limit::Ample, "filter: admitted"),
    (Limit::Tight, "filter: refused"),
];

/// Adds all of it.
pub(crate) fn measure(figures: &mut Figures) -> Result<()> {
    let modules = Modules::find()?;
    for x in RULES {
        for (limit, curve) in KINDS {
            let configuration = rules(x as usize, limit, DEFAULT_INTERVAL_MS);
            let fuel = of_requests(&modules.ours, &configuration, limit)?.fuel();
            figures.add("rules", "cost", curve, x.into(), fuel);
        }
    }
    for x in RULES.into_iter().filter(|x| *x >= 1000) {
        let [not_asked, asked] =
            [false, true].map(|is_asked| bytes_of_rules(&modules, x, is_asked));
        figures.add(
            "rules",
            "bytes",
            "filter: not asked for",
            x.into(),
            not_asked?,
        );
        figures.add("rules", "bytes", "filter: asked for", x.into(), asked?);
    }
    for x in BUCKETS {
        for (limit, curve) in KINDS {
            let rule = json!({"resource": ROUTE, "count": limit.count(), "intervalMs": 60_000, "sampleCount": x});
            let configuration = json!({"flowRules": [rule]}).to_string();
            let fuel = of_requests(&modules.ours, &configuration, limit)?.fuel();
            figures.add("buckets", "cost", curve, x.into(), fuel);
        }
    }
    for x in KEYS.into_iter().filter(|x| *x <= MOST_KEYS) {
        for (limit, curve) in KINDS {
            let (fuel, bytes) = of_keys(&modules, x, limit)?;
            figures.add("keys", "cost", curve, x.into(), fuel);
            // Of fewer, the VM's memory, which has whole pages, would say more than they.
            if limit == Limit::Ample && x >= 1000 {
                figures.add("keys", "bytes", "filter: asked for", x.into(), bytes);
            }
        }
    }
    of_workers(figures, &modules)
}

/// What a VM's memory has grown by for each rule, each with one request or none.
fn bytes_of_rules(modules: &Modules, number: u32, is_asked: bool) -> Result<f64> {
    let size = |number: u32| -> Result<usize> {
        let host = Host::new();
        let configuration = rules(number as usize, Limit::Ample, DEFAULT_INTERVAL_MS);
        let mut vm = start(&host, &modules.ours, &configuration)?;
        for i in 1..number {
            if is_asked {
                vm.request(&Request::to_route(&format!("route-{i}")))?;
            }
        }
        Ok(vm.memory_size())
    };
    Ok((size(number)? as f64 - size(1)? as f64) / f64::from(number))
}

/// Fuel of a request of one of so many keys, all of which have come; and the bytes of a key, in the VM and in shared data.
fn of_keys(modules: &Modules, number: u32, limit: Limit) -> Result<(f64, f64)> {
    let rule = json!({
        "resource": ROUTE, "count": limit.count(), "intervalMs": KEYED_INTERVAL_MS, "key": [{"header": CLIENT_HEADER}],
        "maxKeys": number.max(1000),
    });
    let host = Host::new();
    let mut vm = start(
        &host,
        &modules.ours,
        &json!({"flowRules": [rule]}).to_string(),
    )?;
    let request = |i: u32| Request::to_route(ROUTE).header(CLIENT_HEADER, &format!("client-{i}"));
    let stored = || -> usize {
        let keys = host.shared_keys(VM_ID);
        let sizes = keys.iter().filter_map(|key| host.shared_data(VM_ID, key));
        sizes.map(|(value, _)| value.len()).sum()
    };
    vm.request(&Request::to_route(ROUTE))?;
    let before = vm.memory_size() + stored();
    for i in 0..number {
        if i % 10 == 0 {
            host.advance_ms(1);
        }
        vm.request(&request(i))?;
    }
    let bytes = (vm.memory_size() + stored() - before) as f64 / f64::from(number);
    let (mut fuel, mut counted) = (0, 0);
    for turn in 0..COUNTED {
        host.advance_ms(1);
        // A prime, so that neighbours do not follow each other.
        let before = vm.cost();
        let refused = vm
            .request(&request(
                (u64::from(turn) * 7919 % u64::from(number)) as u32,
            ))?
            .reply
            .is_some();
        // Some keys share a window where many come.
        if refused == (limit == Limit::Tight) {
            fuel += vm.cost().since(&before).fuel;
            counted += 1;
        }
    }
    ensure!(
        counted > COUNTED * 9 / 10,
        "{number} keys: {counted} of {COUNTED} requests were decided as they should"
    );
    Ok((fuel as f64 / f64::from(counted), bytes))
}

/// That of the VMs that `start` starts.
const VM_ID: &str = "leapgate";

/// Adds the CPU time of a request in Envoys of so many workers, over an Envoy of as many without a filter: medians of rounds' differences, and
/// their quartiles.
fn of_workers(figures: &mut Figures, modules: &Modules) -> Result<()> {
    const BY_HEADER: &str = "leapgate, by a header, admitted";
    let envoy = Binary::find()?;
    let mut chosen = variants(modules, DEFAULT_INTERVAL_MS, Ticks::AsAsked)?;
    chosen.retain(|variant| [NO_FILTER, LOCAL, BY_HEADER].contains(&variant.name));
    for workers in WORKERS {
        let micros = rounds(&envoy, &chosen, workers)?;
        let of = |name: &str| {
            let place = chosen.iter().position(|variant| variant.name == name);
            let micros = place.and_then(|place| micros.get(place));
            micros.with_context(|| format!("`{name}` was measured"))
        };
        let nothing = of(NO_FILTER)?;
        let mut add =
            |curve: &str, value| figures.add("workers", "us", curve, workers.into(), value);
        add("no filter", median(nothing));
        for (name, curve) in [(LOCAL, "1 rule"), (BY_HEADER, "a key")] {
            let over = differences(of(name)?, nothing);
            add(curve, median(&over));
            add(&format!("{curve}: lower quartile"), quantile(&over, 0.25));
            add(&format!("{curve}: upper quartile"), quantile(&over, 0.75));
        }
    }
    Ok(())
}

/// Microseconds of CPU per request of each variant, by round: the Envoys run at once, and the load goes to one at a time.
fn rounds(envoy: &Binary, variants: &[Variant], workers: u32) -> Result<Vec<Vec<f64>>> {
    let folder = Folder::new()?;
    let mut running = Vec::new();
    for variant in variants {
        let mut started = Running::start(envoy, variant, &folder, &[], workers)?;
        started.wait(variant, Duration::from_secs(60))?;
        let mut load = Load::connect(started.port, CONNECTIONS)?;
        load.run_for(WARM_UP)?;
        running.push((variant, started, load, Vec::with_capacity(ROUNDS)));
    }
    for _ in 0..ROUNDS {
        for (variant, running, load, micros) in &mut running {
            micros.push(round(variant, running, load).context(variant.name)?);
        }
    }
    Ok(running.into_iter().map(|(.., micros)| micros).collect())
}
