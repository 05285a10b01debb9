//! Envoy processes: one per variant, on 127.0.0.1, each with a listener that answers by itself.

use std::ffi::OsString;
use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use super::load::Load;
use super::modules::{
    CLIENT, CLIENT_HEADER, Key, Limit, METADATA, Modules, NameFrom, ROUTE, STORE, apis, compile,
    floor_window, keyed, keyed_beside, named, one_rule, rules,
};
use super::store;

/// The Envoy to run.
pub(super) struct Binary(PathBuf);

impl Binary {
    pub(super) fn find() -> Result<Self> {
        let path = std::env::var_os("ENVOY").map(PathBuf::from);
        let path =
            path.context("ENVOY does not name an Envoy binary; `./build.sh bench` sees to it")?;
        ensure!(path.is_file(), "ENVOY: there is no file {}", path.display());
        Ok(Self(path))
    }
}

/// One way to configure Envoy.
pub(super) struct Variant {
    pub(super) name: &'static str,
    /// The name of its floor, if it has one.
    pub(super) floor: Option<&'static str>,
    /// The filter before the router, if any.
    filter: Option<Value>,
    pub(super) limit: Limit,
    /// The port of the store that it leases from, if it does.
    store: Option<u16>,
}

pub(super) const NO_FILTER: &str = "no filter";
pub(super) const LOCAL: &str = "leapgate, 1 rule, admitted";
pub(super) const LEASED: &str = "leapgate, 1 leased rule, admitted";
const FLOOR: &str = "floor, admitted";
const FLOOR_REFUSED: &str = "floor, refused";

/// Whether filters are ticked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ticks {
    /// As they ask for.
    AsAsked,
    /// Never: what they do on ticks would blur what requests cost.
    Never,
}

/// All variants, the one without a filter first, with windows of this interval.
pub(super) fn variants(modules: &Modules, interval_ms: u64, ticks: Ticks) -> Result<Vec<Variant>> {
    let no_tick = |module| match ticks {
        Ticks::AsAsked => Ok(None),
        Ticks::Never => capabilities(module, &[ON_TICK]).map(Some),
    };
    let (for_floor, for_ours) = (no_tick(&modules.floor)?, no_tick(&modules.ours)?);
    let for_restricted = match ticks {
        Ticks::AsAsked => capabilities(&modules.ours, &[ON_RESPONSE])?,
        Ticks::Never => capabilities(&modules.ours, &[ON_RESPONSE, ON_TICK])?,
    };
    let floor = |limit| {
        Some(wasm(
            &modules.floor,
            &floor_window(limit, interval_ms),
            for_floor.as_ref(),
        ))
    };
    let ours = |number, limit| {
        Some(wasm(
            &modules.ours,
            &rules(number, limit, interval_ms),
            for_ours.as_ref(),
        ))
    };
    let restricted = wasm(
        &modules.ours,
        &rules(1, Limit::Ample, interval_ms),
        Some(&for_restricted),
    );
    let by = |key, limit| {
        Some(wasm(
            &modules.ours,
            &keyed(key, limit, interval_ms),
            for_ours.as_ref(),
        ))
    };
    let beside = |limit| {
        Some(wasm(
            &modules.ours,
            &keyed_beside(limit, interval_ms),
            for_ours.as_ref(),
        ))
    };
    let by_name = |from| {
        Some(wasm(
            &modules.ours,
            &named(from, interval_ms),
            for_ours.as_ref(),
        ))
    };
    let api = |is_exact| {
        let configuration = apis(is_exact, Limit::Ample, interval_ms);
        Some(wasm(&modules.ours, &configuration, for_ours.as_ref()))
    };
    let native_by_header = |limit| Some(native_by_header(limit, interval_ms));
    let native = |limit| Some(native(limit, interval_ms));

    let admitted = |name, filter| Variant {
        name,
        floor: Some(FLOOR),
        filter,
        limit: Limit::Ample,
        store: None,
    };
    let refused = |name, filter| Variant {
        name,
        floor: Some(FLOOR_REFUSED),
        filter,
        limit: Limit::Tight,
        store: None,
    };
    let leased = wasm(
        &modules.ours,
        &one_rule(true, interval_ms),
        for_ours.as_ref(),
    );
    Ok(vec![
        Variant {
            name: NO_FILTER,
            floor: None,
            filter: None,
            limit: Limit::Ample,
            store: None,
        },
        admitted("native local_ratelimit, admitted", native(Limit::Ample)),
        admitted(
            "empty filter of the SDK",
            Some(wasm(&modules.empty, "", None)),
        ),
        admitted(FLOOR, floor(Limit::Ample)),
        admitted(LOCAL, ours(1, Limit::Ample)),
        Variant {
            store: Some(store::serve()?),
            ..admitted(LEASED, Some(leased))
        },
        admitted("leapgate, 1 000 rules, admitted", ours(1000, Limit::Ample)),
        admitted("leapgate, an exact API of 1 000, admitted", api(true)),
        admitted("leapgate, a prefix API of 1 000, admitted", api(false)),
        admitted("leapgate, 1 rule, restricted, admitted", Some(restricted)),
        refused("native local_ratelimit, refused", native(Limit::Tight)),
        refused(FLOOR_REFUSED, floor(Limit::Tight)),
        refused("leapgate, 1 rule, refused", ours(1, Limit::Tight)),
        admitted(
            "native, wildcard header, admitted",
            native_by_header(Limit::Ample),
        ),
        admitted(
            "leapgate, by a header, admitted",
            by(Key::Header, Limit::Ample),
        ),
        admitted(
            "leapgate, by the address, admitted",
            by(Key::Address, Limit::Ample),
        ),
        admitted(
            "leapgate, by a route's metadata, admitted",
            by(Key::RouteMetadata, Limit::Ample),
        ),
        admitted(
            "leapgate, named by metadata, admitted",
            by_name(NameFrom::RouteMetadata),
        ),
        admitted(
            "leapgate, named by Envoy Gateway, admitted",
            by_name(NameFrom::EnvoyGateway),
        ),
        refused(
            "native, wildcard header, refused",
            native_by_header(Limit::Tight),
        ),
        refused(
            "leapgate, by a header, refused",
            by(Key::Header, Limit::Tight),
        ),
        refused(
            "leapgate, by a header and two rules, refused",
            beside(Limit::Tight),
        ),
        refused(
            "leapgate, by the address, refused",
            by(Key::Address, Limit::Tight),
        ),
    ])
}

const ON_TICK: &str = "proxy_on_tick";
/// It decorates responses, if that is configured: limits hold without it.
const ON_RESPONSE: &str = "proxy_on_response_headers";

/// All that a module imports and exports, but for these.
fn capabilities(module: &Path, without: &[&str]) -> Result<Value> {
    let module = compile(module)?;
    let imports = module
        .imports()
        .into_iter()
        .filter_map(|import| import.split_once('.').map(|(_, name)| name.to_owned()));
    let names = imports
        .chain(module.exports())
        .filter(|name| !without.contains(&name.as_str()));
    Ok(Value::Object(names.map(|name| (name, json!({}))).collect()))
}

fn wasm(module: &Path, configuration: &str, allowed: Option<&Value>) -> Value {
    let mut vm = json!({
        "vm_id": "bench",
        "runtime": "envoy.wasm.runtime.v8",
        "code": {"local": {"filename": module}},
    });
    if let (Some(allowed), Some(vm)) = (allowed, vm.as_object_mut()) {
        vm.insert(
            "capability_restriction_config".to_owned(),
            json!({"allowed_capabilities": allowed}),
        );
    }
    json!({
        "name": "envoy.filters.http.wasm",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm",
            "config": {
                "name": "bench",
                "root_id": "bench",
                "configuration": {"@type": "type.googleapis.com/google.protobuf.StringValue", "value": configuration},
                "vm_config": vm,
            },
        },
    })
}

fn native(limit: Limit, interval_ms: u64) -> Value {
    let always = json!({"default_value": {"numerator": 100}});
    // A bucket counts in 32 bits.
    let tokens = limit.count().min(u64::from(u32::MAX) / 2);
    json!({
        "name": "envoy.filters.http.local_ratelimit",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit",
            "stat_prefix": "bench",
            "token_bucket": {"max_tokens": tokens, "tokens_per_fill": tokens, "fill_interval": format!("{}s", interval_ms as f64 / 1000.0)},
            "filter_enabled": always,
            "filter_enforced": always,
        },
    })
}

/// A bucket for each value of the header, as Envoy's own filter has it.
fn native_by_header(limit: Limit, interval_ms: u64) -> Value {
    let mut filter = native(Limit::Ample, interval_ms);
    let bucket = native(limit, interval_ms)
        .pointer("/typed_config/token_bucket")
        .cloned();
    if let Some(Value::Object(config)) = filter.get_mut("typed_config") {
        config.insert(
            "descriptors".to_owned(),
            json!([{"entries": [{"key": "client"}], "token_bucket": bucket}]),
        );
        let by_header =
            json!({"request_headers": {"header_name": CLIENT_HEADER, "descriptor_key": "client"}});
        config.insert("rate_limits".to_owned(), json!([{"actions": [by_header]}]));
        config.insert(
            "always_consume_default_token_bucket".to_owned(),
            json!(false),
        );
    }
    filter
}

impl Variant {
    /// The filter with this configuration, which lets the benchmark's requests pass, or no filter.
    pub(super) fn of_rules(module: &Path, configuration: Option<&str>) -> Self {
        Self {
            name: "leapgate",
            floor: None,
            filter: configuration.map(|configuration| wasm(module, configuration, None)),
            limit: Limit::Ample,
            store: None,
        }
    }
}

/// A listener of this variant, which answers with this body.
fn listener(port: u16, variant: &Variant, body: &str) -> Value {
    let filter = variant.filter.as_ref();
    let router = json!({
        "name": "envoy.filters.http.router",
        "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"},
    });
    let filters: Vec<&Value> = filter.into_iter().chain([&router]).collect();
    let route = json!({
        "name": ROUTE,
        "match": {"prefix": "/"},
        "metadata": {"filter_metadata": {
            METADATA: {"client": CLIENT, "resource": ROUTE},
            "envoy-gateway": {"resources": [{"kind": "HTTPRoute", "namespace": "shop", "name": ROUTE}]},
        }},
        "direct_response": {"status": 200, "body": {"inline_string": body}},
    });
    let manager = json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "bench",
        "route_config": {"virtual_hosts": [{"name": "bench", "domains": ["*"], "routes": [route]}]},
        "http_filters": filters,
    });
    let chain = json!({"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]});
    let address = json!({"socket_address": {"address": "127.0.0.1", "port_value": port}});
    json!({"name": "bench", "address": address, "filter_chains": [chain]})
}

/// The same as an answer of LDS.
pub(super) fn listeners(port: u16, variant: &Variant, body: &str) -> Value {
    let mut listener = listener(port, variant, body);
    if let Some(fields) = listener.as_object_mut() {
        let kind = "type.googleapis.com/envoy.config.listener.v3.Listener";
        fields.insert("@type".to_owned(), json!(kind));
    }
    json!({"resources": [listener]})
}

/// Envoy's whole configuration. No admin interface, and no cluster but that of a store: nothing but what is measured.
fn configuration(port: u16, variant: &Variant) -> Value {
    let store = |port| {
        let endpoint =
            json!({"address": {"socket_address": {"address": "127.0.0.1", "port_value": port}}});
        json!({"name": STORE, "load_assignment": {"cluster_name": STORE, "endpoints": [{"lb_endpoints": [{"endpoint": endpoint}]}]}})
    };
    let clusters: Vec<_> = variant.store.into_iter().map(store).collect();
    let listener = listener(port, variant, "ok\n");
    json!({"static_resources": {"listeners": [listener], "clusters": clusters}})
}

/// A folder for the run's files, which goes with it.
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn new() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("leapgate-bench-{}", std::process::id()));
        std::fs::create_dir_all(&path).with_context(|| format!("making {}", path.display()))?;
        Ok(Self(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Left behind at worst, among other temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A running Envoy; it is stopped when this is dropped, and by the kernel should this program be
/// killed.
pub(super) struct Running {
    child: Child,
    pub(super) port: u16,
    log: PathBuf,
}

impl Running {
    /// Starts Envoy for a variant, with so many workers. `wrapper` comes before it on the command line.
    pub(super) fn start(
        binary: &Binary,
        variant: &Variant,
        folder: &Folder,
        wrapper: &[OsString],
        workers: u32,
    ) -> Result<Self> {
        let whole = |port| Ok(configuration(port, variant).to_string());
        Self::start_with(binary, &whole, folder, (wrapper, &[]), workers)
    }

    /// Starts Envoy with the configuration that it has for its port. Further words stand before and behind its command line.
    pub(super) fn start_with(
        binary: &Binary,
        configuration: &dyn Fn(u16) -> Result<String>,
        folder: &Folder,
        (wrapper, words_behind): (&[OsString], &[&str]),
        workers: u32,
    ) -> Result<Self> {
        let port = free_port()?;
        let file = |extension: &str| folder.path().join(format!("{port}.{extension}"));
        let (config, log) = (file("json"), file("log"));
        std::fs::write(&config, configuration(port)?).context("writing Envoy's configuration")?;

        let mut line = wrapper.to_vec();
        line.push(binary.0.clone().into());
        let mut words = line.iter();
        let mut command = Command::new(words.next().context("an empty command line")?);
        // Without hot restart there is no base id to collide with other Envoys of this machine.
        command
            .args(words)
            .args([
                "--concurrency",
                &workers.to_string(),
                "--disable-hot-restart",
                "--log-level",
                "error",
                "-c",
            ])
            .arg(&config)
            .args(words_behind);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).context("making Envoy's log")?);
        end_with_this_program(&mut command);
        let child = command.spawn().context("Envoy does not start")?;
        Ok(Self { child, port, log })
    }

    /// Waits until it answers as the variant should.
    pub(super) fn wait(&mut self, variant: &Variant, patience: Duration) -> Result<()> {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().context("asking for Envoy's state")? {
                bail!(
                    "{}: Envoy ended with {status}:\n{}",
                    variant.name,
                    self.last_words()
                );
            }
            let answered = Load::connect(self.port, 1).and_then(|mut load| load.run_times(3));
            match answered {
                Ok(answers) if (answers.refused > 0) == (variant.limit == Limit::Tight) => {
                    return Ok(());
                }
                Ok(answers) => bail!(
                    "{}: answered wrongly: {answers:?}\n{}",
                    variant.name,
                    self.last_words()
                ),
                Err(_) if begin.elapsed() < patience => {
                    std::thread::sleep(Duration::from_millis(50))
                }
                Err(error) => bail!(
                    "{}: no answer: {error:#}\n{}",
                    variant.name,
                    self.last_words()
                ),
            }
        }
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn last_words(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines
            .get(lines.len().saturating_sub(8)..)
            .unwrap_or_default()
            .join("\n")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        send(&self.child, Message::Terminate);
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(3) {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        // An error here cannot be reported: the run's outcome stands.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port that was free a moment ago.
fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no port is free")?;
    Ok(listener.local_addr().context("the port's number")?.port())
}

/// A signal to a process.
#[derive(Clone, Copy)]
pub(super) enum Message {
    Terminate,
    Interrupt,
}

/// Sends a signal to a child. For a child that has ended it does nothing.
#[cfg(target_os = "linux")]
pub(super) fn send(child: &Child, message: Message) {
    use rustix::process::{Pid, Signal, kill_process};
    let signal = match message {
        Message::Terminate => Signal::TERM,
        Message::Interrupt => Signal::INT,
    };
    let _ = kill_process(Pid::from_child(child), signal);
}

#[cfg(target_os = "linux")]
#[allow(
    unsafe_code,
    reason = "there is no safe way to run something between fork and exec"
)]
fn end_with_this_program(command: &mut Command) {
    use rustix::process::{Signal, set_parent_process_death_signal};
    use std::os::unix::process::CommandExt as _;
    // SAFETY: one system call, which allocates nothing and takes no lock.
    unsafe {
        command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?));
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn send(_: &Child, _: Message) {}

#[cfg(not(target_os = "linux"))]
fn end_with_this_program(_: &mut Command) {}
