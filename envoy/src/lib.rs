//! Leapgate as an Envoy and Istio HTTP filter: windows per route that hold for the whole process.
//!
//! A thin shell over the core. Data flows one way: host callback, shell, engine, decision, shell.
//!
//! | Module | Owns |
//! |---|---|
//! | `host` | the host calls, and nothing else names one |
//! | `names` | what metrics and places of shared data are called |
//! | `shared` | numbers in shared data, changed by compare-and-swap |
//! | `vm` | what all that a virtual machine keeps has in common: host, names, the seed of hashes, sleep |
//! | `gauges` | gauges that count |
//! | `pair` | two running counts: gauges, shared data, or the virtual machine alone |
//! | `counters` | what rules have decided, as counters of Envoy's |
//! | `ring` | how a virtual machine that has slept, or is born late, comes by the past |
//! | `breakers` | where a breaker keeps its state: shared data, and gauges |
//! | `counts` | where the counts of a rule are kept |
//! | `inbound` | what all requests together do, for system rules |
//! | `places` | which names have windows of their own, for the process |
//! | `outcome` | what an answer means to a breaker |
//! | `settings` | the filter's own settings |
//! | `config` | the document that holds the rules and these |
//! | `reply` | what a refused request is told |
//! | `pages` | where the states of a rule's keys are kept: shared data, or the virtual machine alone |
//! | `backend` | what opens all these for the engine |
//! | `keys` | the parts of a request that keyed rules name |
//! | `caller` | what is read of a request besides its resource: its origin, and whether it may borrow |
//! | `waiting` | requests that wait, paused until their turn |
//! | `passed` | what a request that passed keeps until it has ended |
//! | `filter` | one configuration in force: a request in, a decision out |
//! | `plugin` | the proxy-wasm callbacks, a few lines each |
//!
//! A module uses only those above it.

pub mod backend;
pub mod breakers;
pub mod caller;
pub mod config;
mod counters;
pub mod counts;
pub mod filter;
mod gauges;
pub mod host;
pub mod inbound;
pub mod keys;
pub mod names;
pub mod outcome;
pub mod pages;
mod pair;
pub mod passed;
mod places;
#[cfg(target_arch = "wasm32")]
mod plugin;
pub mod reply;
pub mod ring;
pub mod settings;
mod shared;
pub mod vm;
pub mod waiting;
