//! The modules that are compared, and their configurations.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use leapgate_host::Module;
use serde_json::json;

/// The route that all requests take, and that the floor knows.
pub(super) const ROUTE: &str = "bench";

/// The header that names the client of each request; a rule with a key reads it.
pub(super) const CLIENT_HEADER: &str = "x-api-key";
pub(super) const CLIENT: &str = "9b2f0c61d4";

/// The namespace of the route's metadata, which holds the client and the resource.
pub(super) const METADATA: &str = "leapgate";

/// The cluster of the store.
pub(super) const STORE: &str = "store";

/// More than any run sends.
const NO_LIMIT: u64 = 1_000_000_000_000;

/// Callbacks that cost the floor an entry each where the filter exports them too: with their
/// feature of the floor.
const EXTRA_CALLBACKS: [(&str, &str); 3] = [
    ("proxy_on_response_headers", "response_headers"),
    ("proxy_on_log", "log"),
    ("proxy_on_done", "done"),
];

/// The built modules, as files.
pub(super) struct Modules {
    /// The filter.
    pub(super) ours: PathBuf,
    /// The floor, with the callbacks that the filter exports.
    pub(super) floor: PathBuf,
    /// The SDK's empty filter.
    pub(super) empty: PathBuf,
}

impl Modules {
    /// Takes the filter from where `build.sh` put it, and builds the yardsticks.
    pub(super) fn find() -> Result<Self> {
        let ours = std::env::var_os("LEAPGATE_WASM")
            .map_or_else(|| PathBuf::from("dist/leapgate.wasm"), PathBuf::from);
        let exports = compile(&ours)
            .context("`./build.sh wasm` builds the filter, `./build.sh bench` does it by itself")?
            .exports();
        let features: Vec<&str> = EXTRA_CALLBACKS
            .into_iter()
            .filter(|(callback, _)| exports.iter().any(|export| export == callback))
            .map(|(_, feature)| feature)
            .collect();
        let built = build_yardsticks(&features)?;
        Ok(Self {
            ours,
            floor: built.join("leapgate_floor.wasm"),
            empty: built.join("leapgate_empty.wasm"),
        })
    }
}

/// Reads and compiles a module for the counting host.
pub(super) fn compile(file: &Path) -> Result<Module> {
    let wasm = std::fs::read(file).with_context(|| format!("{} cannot be read", file.display()))?;
    Module::compile(&wasm).with_context(|| file.display().to_string())
}

/// Builds `tests/floor`; the folder of the results.
fn build_yardsticks(features: &[&str]) -> Result<PathBuf> {
    // Beside this program: target/release/leapgate-bench.
    let program = std::env::current_exe().context("this program's own path")?;
    let target = program
        .ancestors()
        .nth(2)
        .context("this program lies in no target folder")?
        .join("floor");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let triple = "wasm32-unknown-unknown";
    let output = Command::new(cargo)
        .args([
            "build",
            "--quiet",
            "--locked",
            "--release",
            "--workspace",
            "--target",
            triple,
            "--features",
            &features.join(","),
        ])
        .arg("--manifest-path")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../floor/Cargo.toml"))
        .arg("--target-dir")
        .arg(&target)
        .output()
        .context("cargo does not run")?;
    if !output.status.success() {
        bail!(
            "the floor cannot be built:\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(target.join(triple).join("release"))
}

/// Whether the limit lets the benchmark's requests through.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Limit {
    /// All of them.
    Ample,
    /// One in an interval.
    Tight,
}

impl Limit {
    pub(super) fn count(self) -> u64 {
        match self {
            Self::Ample => NO_LIMIT,
            Self::Tight => 1,
        }
    }
}

/// The interval that rules have by default.
pub(super) const DEFAULT_INTERVAL_MS: u64 = 1000;

/// The floor's configuration.
pub(super) fn floor_window(limit: Limit, interval_ms: u64) -> String {
    format!("{} {interval_ms}", limit.count())
}

/// The filter's configuration: so many rules, one of them for the route.
pub(super) fn rules(number: usize, limit: Limit, interval_ms: u64) -> String {
    let rule = |resource: &str, count: u64| json!({"resource": resource, "count": count, "intervalMs": interval_ms});
    let mut rules: Vec<_> = (1..number)
        .map(|i| rule(&format!("route-{i}"), 100))
        .collect();
    // In the middle: neither first nor last is found first by luck.
    rules.insert(rules.len() / 2, rule(ROUTE, limit.count()));
    json!({"flowRules": rules}).to_string()
}

/// The path of all requests.
pub(super) const PATH: &str = "/bench";

/// The filter's configuration with 1 000 APIs of one path each, or of all paths below one, and a rule for each of them. The path
/// of the requests is one of them.
pub(super) fn apis(is_exact: bool, limit: Limit, interval_ms: u64) -> String {
    let name = |i: usize| format!("api-{i}");
    let item = |i: usize| {
        let path = match i {
            500 => PATH.to_owned(),
            i => format!("/v1/{}", name(i)),
        };
        match is_exact {
            true => json!({"pattern": path}),
            false => json!({"pattern": format!("{path}/**"), "matchStrategy": 1}),
        }
    };
    let api = |i: usize| json!({"apiName": name(i), "predicateItems": [item(i)]});
    let rule =
        |i: usize| json!({"resource": name(i), "count": limit.count(), "intervalMs": interval_ms});
    let (apis, rules): (Vec<_>, Vec<_>) = (0..1000).map(|i| (api(i), rule(i))).unzip();
    json!({"apiDefinitions": apis, "flowRules": rules}).to_string()
}

/// The key by which a rule distinguishes clients.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    Header,
    Address,
    RouteMetadata,
}

/// The filter's configuration with one rule, which limits each client for itself.
pub(super) fn keyed(key: Key, limit: Limit, interval_ms: u64) -> String {
    let key = match key {
        Key::Header => json!({"header": CLIENT_HEADER}),
        Key::Address => json!("clientIp"),
        Key::RouteMetadata => json!({"routeMetadata": [METADATA, "client"]}),
    };
    let rule =
        json!({"resource": ROUTE, "count": limit.count(), "intervalMs": interval_ms, "key": [key]});
    json!({"flowRules": [rule]}).to_string()
}

/// The filter's configuration with a rule for each client, by a header, and two rules without a key beside it.
pub(super) fn keyed_beside(limit: Limit, interval_ms: u64) -> String {
    let rule = |id: &str, limit: Limit| json!({"resource": ROUTE, "id": id, "count": limit.count(), "intervalMs": interval_ms});
    let mut keyed = rule("client", limit);
    if let Some(keyed) = keyed.as_object_mut() {
        keyed.insert("key".to_owned(), json!([{"header": CLIENT_HEADER}]));
    }
    let rules = [
        keyed,
        rule("first", Limit::Ample),
        rule("second", Limit::Ample),
    ];
    json!({"flowRules": rules}).to_string()
}

/// The filter's configuration with one rule, whose permits are leased where `is_leased`.
pub(super) fn one_rule(is_leased: bool, interval_ms: u64) -> String {
    let rule = json!({
        "resource": ROUTE, "id": ROUTE, "count": NO_LIMIT, "intervalMs": interval_ms,
        "clusterMode": is_leased, "clusterConfig": {"thresholdType": 1},
    });
    // Valgrind takes its time.
    let store =
        json!({"cluster": STORE, "protocol": "webdis", "timeoutMs": 5000, "maxWaitMs": 5000});
    let envoy = match is_leased {
        true => json!({"store": store}),
        false => json!({}),
    };
    json!({"flowRules": [rule], "envoy": envoy}).to_string()
}

/// Where the filter takes the name of the resource from, other than the route's name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum NameFrom {
    RouteMetadata,
    EnvoyGateway,
}

/// The filter's configuration with one rule, for a resource that is named so.
pub(super) fn named(from: NameFrom, interval_ms: u64) -> String {
    let (from, resource) = match from {
        NameFrom::RouteMetadata => (json!({"routeMetadata": [METADATA, "resource"]}), ROUTE),
        NameFrom::EnvoyGateway => (json!("envoyGateway"), "httproute/shop/bench"),
    };
    let rule = json!({"resource": resource, "count": NO_LIMIT, "intervalMs": interval_ms});
    json!({"flowRules": [rule], "envoy": {"resource": {"from": from}}}).to_string()
}
