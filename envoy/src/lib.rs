//! Leapgate as an Envoy and Istio HTTP filter: windows per route that hold for the whole process.
//!
//! A thin shell over the core. Data flows one way: host callback, shell, engine, decision, shell.
//!
//! | Module | Owns |
//! |---|---|
//! | `host` | the host calls, and nothing else names one |
//! | `names` | what metrics and places of shared data are called |
//! | `shared` | a cell of words in shared data, replaced by compare-and-swap |
//! | `vm` | one virtual machine: its host, the names of what it shares, the seed of hashes, sleep |
//! | `gauges` | Envoy's gauges as counters that workers share |
//! | `holds` | what each virtual machine holds, and that others give it back after its death |
//! | `key_holds` | the same of keys, which is in their pages |
//! | `pair` | two running counts: in gauges, in shared data, or the virtual machine's own |
//! | `counters` | the counters that Envoy exports for each rule |
//! | `peaks` | how full each limit was, for dashboards |
//! | `ring` | how virtual machines publish the past of a window to one another |
//! | `breakers` | where a breaker keeps its state: shared data, and gauges |
//! | `counts` | the counts of a rule |
//! | `inbound` | what all requests together do, for system rules |
//! | `places` | which names have windows of their own, for the process |
//! | `outcome` | what an answer means to a breaker |
//! | `keys` | the parts of a request that keyed rules name |
//! | `settings` | the filter's own settings |
//! | `resource` | what a request's resource is called |
//! | `metadata` | the values in a route's metadata, as Envoy serializes it |
//! | `rls` | envoyproxy/ratelimit as a store |
//! | `store` | how a store is asked for permits, and what its answers mean |
//! | `config` | the plugin's configuration: rules and settings in one document |
//! | `reply` | the reply to a refused request, and headers about limits |
//! | `pages` | where the states of a rule's keys are kept: shared data, or the virtual machine alone |
//! | `leases` | the permits of rules that are leased from the store |
//! | `backend` | the engine's backend, which opens all these |
//! | `caller` | what is read of a request besides its resource: its origin, and whether it may borrow |
//! | `route_rules` | the rules that a route has of its own, in its metadata |
//! | `apis` | which APIs a request belongs to besides its route |
//! | `refusals` | refusals that hold for a while, to be repeated |
//! | `waiting` | requests that wait, paused until their turn |
//! | `asking` | requests that wait for the store |
//! | `cost` | what a request that has ended has cost |
//! | `passed` | what an admitted request keeps until it ends |
//! | `filter` | one configuration in force: a request in, a decision out |
//! | `plugin` | the proxy-wasm contexts, a line each |
//!
//! A module uses only those above it.

mod apis;
mod asking;
pub mod backend;
pub mod breakers;
pub mod caller;
pub mod config;
mod cost;
mod counters;
pub mod counts;
pub mod filter;
mod gauges;
mod holds;
pub mod host;
pub mod inbound;
mod key_holds;
pub mod keys;
mod leases;
pub mod metadata;
pub mod names;
pub mod outcome;
pub mod pages;
mod pair;
pub mod passed;
mod peaks;
mod places;
#[cfg(all(target_arch = "wasm32", feature = "plugin"))]
mod plugin;
mod refusals;
pub mod reply;
mod resource;
pub mod ring;
pub mod rls;
mod route_rules;
pub mod settings;
mod shared;
mod store;
pub mod vm;
pub mod waiting;

/// It takes a third of the bytes of the allocator that std brings. The library leaves the choice to the module that it is in.
#[cfg(all(target_family = "wasm", feature = "plugin"))]
#[global_allocator]
static ALLOCATOR: talc::wasm::WasmDynamicTalc = talc::wasm::new_wasm_dynamic_allocator();
