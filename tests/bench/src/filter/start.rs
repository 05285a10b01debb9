//! What a configuration costs with few rules and with many: until the first answer, in memory, and how long a request waits while
//! it is replaced.

use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use leapgate_host::{Cost, Host, Request};
use serde_json::json;

use super::cpu::cpu_seconds;
use super::envoy::{Binary, Folder, Running, Variant, listeners};
use super::load::{REQUEST, read_response};
use super::modules::{Modules, ROUTE};
use crate::statistics::median;
use crate::table::{Table, grouped, section};

const RULES: [usize; 4] = [0, 1, 1_000, 10_000];
const UPDATES: usize = 5;
/// The workers of the second start.
const WORKERS: u32 = 4;
const PATIENCE: Duration = Duration::from_secs(120);
/// After it Envoy drops the configuration that was replaced: it drains for a second.
const REST: Duration = Duration::from_millis(1500);

/// The filter's configuration of that version; none without rules.
fn rules(number: usize, version: usize) -> Option<String> {
    let rule = |i| match i {
        0 => json!({"resource": ROUTE, "count": 1_000_000_000}),
        i => json!({"resource": format!("route-{i}"), "count": 100 + version}),
    };
    let rules: Vec<_> = (0..number).map(rule).collect();
    (number > 0).then(|| json!({"flowRules": rules}).to_string())
}

/// What one Envoy has cost.
struct Measured {
    /// Seconds of CPU until the first answer.
    cpu: f64,
    /// Resident bytes then, and after all updates.
    memory: [f64; 2],
    /// The longest wait of a request during each update, in milliseconds.
    waits: Vec<f64>,
}

/// Prints what configurations cost inside the module.
pub(super) fn in_module(modules: &Modules) -> Result<()> {
    section(
        "filter: start and updates, inside the module",
        &format!(
            "Exact, by a host that counts: fuel of the first configuration, of each of {UPDATES} updates after a request for one resource, and of the end\n\
             of what was replaced; the VM's memory over that with one rule; and what stands in the process before the request."
        ),
    );
    let mut table = Table::new(&[
        "rules",
        "fuel/rule, first",
        "host calls",
        "fuel/rule, update",
        "host calls",
        "fuel/rule, end",
        "bytes/rule",
        "after updates",
        "metrics",
        "shared data",
    ]);
    let mut of_one = [0; 2];
    for number in [1, 1_000, 10_000] {
        let configuration = |version| rules(number, version).unwrap_or_default();
        let host = Host::new();
        let mut vm = super::fuel::start(&host, &modules.ours, &configuration(0))?;
        let first = vm.cost();
        let (metrics, shared) = (host.metrics().len(), host.shared_keys("leapgate").len());
        let started = vm.memory_size();
        vm.request(&Request::to_route(ROUTE))?;
        let (mut update, mut end) = (Cost::default(), Cost::default());
        for version in 1..=UPDATES {
            let before = vm.cost();
            ensure!(
                vm.configure(configuration(version).as_bytes())?,
                "{:?}",
                host.log()
            );
            update.add(&vm.cost().since(&before));
            let before = vm.cost();
            vm.retire_old_roots()?;
            end.add(&vm.cost().since(&before));
        }
        let memory = [started, vm.memory_size()];
        if number == 1 {
            of_one = memory;
        }
        let each = |fuel: u64, times: usize| grouped(fuel as f64 / (times * number) as f64);
        let more = |[memory, of_one]: [usize; 2]| match number {
            1 => String::new(),
            _ => grouped(memory.saturating_sub(of_one) as f64 / number as f64),
        };
        table.row([
            number.to_string(),
            each(first.fuel, 1),
            first.host_calls().to_string(),
            each(update.fuel, UPDATES),
            (update.host_calls() / UPDATES as u64).to_string(),
            each(end.fuel, UPDATES),
            more([memory[0], of_one[0]]),
            more([memory[1], of_one[1]]),
            metrics.to_string(),
            shared.to_string(),
        ]);
    }
    table.print();
    Ok(())
}

/// Prints the table.
pub(super) fn run(modules: &Modules, envoy: &Binary) -> Result<()> {
    section(
        "filter: start and updates",
        &format!(
            "An Envoy until its first answer; then {UPDATES} updates by LDS, while a client asks without pause. Only one resource of all\n\
             that have rules is asked for. A rule's memory in a VM is what {} further VMs hold more than with one rule.\n\
             Without a filter the client waits where Envoy exchanges the listener.",
            WORKERS - 1
        ),
    );
    let mut table = Table::new(&[
        "rules",
        "CPU s, 1 worker",
        &format!("{WORKERS} workers"),
        "MiB, 1 worker",
        &format!("{WORKERS} workers"),
        "bytes/rule and VM",
        "longest wait ms, median",
        "worst",
        "MiB after updates",
    ]);
    let folder = Folder::new()?;
    let mut of_one = 0.0;
    for number in RULES {
        let one = measure(modules, envoy, &folder, number, 1)?;
        let more = measure(modules, envoy, &folder, number, WORKERS)?;
        let [before, after] = one.memory;
        let further = (more.memory[0] - before) / f64::from(WORKERS - 1);
        if number == 1 {
            of_one = further;
        }
        let mib = |bytes: f64| format!("{:.1}", bytes / f64::from(1 << 20));
        table.row([
            number.to_string(),
            format!("{:.2}", one.cpu),
            format!("{:.2}", more.cpu),
            mib(before),
            mib(more.memory[0]),
            match number {
                0 | 1 => String::new(),
                _ => format!("{:.0}", (further - of_one) / number as f64),
            },
            format!("{:.1}", median(&one.waits)),
            format!(
                "{:.1}",
                one.waits
                    .iter()
                    .fold(0.0, |most: f64, wait| most.max(*wait))
            ),
            mib(after),
        ]);
    }
    table.print();
    Ok(())
}

fn measure(
    modules: &Modules,
    envoy: &Binary,
    folder: &Folder,
    number: usize,
    workers: u32,
) -> Result<Measured> {
    let variant = |version| Variant::of_rules(&modules.ours, rules(number, version).as_deref());
    let file = folder.path().join("listeners.json");
    let bootstrap = json!({
        "node": {"id": "bench", "cluster": "bench"},
        "dynamic_resources": {"lds_config": {"path_config_source": {"path": file}}},
    });
    let put = |port, version: usize| -> Result<()> {
        // Envoy watches for a rename: it never reads half a file.
        let new = file.with_extension("new");
        let body = version.to_string();
        std::fs::write(&new, listeners(port, &variant(version), &body).to_string())?;
        std::fs::rename(&new, &file).context("exchanging the listeners")
    };
    let configuration = |port| {
        put(port, 0)?;
        Ok(bootstrap.to_string())
    };
    let words = ["--drain-time-s", "1"];
    let mut running = Running::start_with(envoy, &configuration, folder, (&[], &words), workers)?;
    running.wait(&variant(0), PATIENCE)?;
    let cpu = cpu_seconds(running.pid())?;
    let started = resident(running.pid())?;
    let mut waits = Vec::new();
    if workers == 1 {
        let mut client = Client::connect(running.port)?;
        for version in 1..=UPDATES {
            put(running.port, version)?;
            waits.push(client.longest_wait(&version.to_string())?);
        }
    }
    Ok(Measured {
        cpu,
        memory: [started, resident(running.pid())?],
        waits,
    })
}

/// Resident bytes of a process.
fn resident(pid: u32) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next());
    let kib: f64 = kib.context("the process's memory")?.parse()?;
    Ok(kib * 1024.0)
}

/// A client that asks again as soon as it is answered.
struct Client {
    port: u16,
    connection: TcpStream,
    buffer: Vec<u8>,
}

impl Client {
    fn connect(port: u16) -> Result<Self> {
        let connection = connect(port)?;
        Ok(Self {
            port,
            connection,
            buffer: Vec::new(),
        })
    }

    /// The longest wait of a request in milliseconds, until answers have had this body for a while.
    fn longest_wait(&mut self, body: &str) -> Result<f64> {
        let (begin, mut longest, mut updated) = (Instant::now(), Duration::ZERO, None::<Instant>);
        while updated.is_none_or(|updated| updated.elapsed() < REST) {
            ensure!(
                begin.elapsed() < PATIENCE,
                "the update does not come into force"
            );
            let sent = Instant::now();
            // A connection of the listener that was replaced is closed: then the request is sent again on a new one.
            while self.ask().is_err() {
                ensure!(sent.elapsed() < PATIENCE, "no answer");
                self.connection = connect(self.port)?;
            }
            longest = longest.max(sent.elapsed());
            if updated.is_none() && self.buffer.ends_with(format!("\r\n\r\n{body}").as_bytes()) {
                updated = Some(Instant::now());
            }
        }
        Ok(longest.as_secs_f64() * 1000.0)
    }

    fn ask(&mut self) -> Result<u16> {
        use std::io::Write as _;
        self.connection.write_all(REQUEST)?;
        read_response(&mut self.connection, &mut self.buffer)
    }
}

fn connect(port: u16) -> Result<TcpStream> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).context("connecting")?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}
