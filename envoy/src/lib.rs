//! Leapgate as an Envoy and Istio HTTP filter: windows per route that hold for the whole process.
//!
//! A thin shell over the core. Data flows one way: host callback, shell, engine, decision, shell.
//!
//! | Module | Owns |
//! |---|---|
//! | `host` | the host calls, and nothing else names one |
//! | `config` | the filter's own settings |
//! | `counts` | where the counts of a rule are kept: gauges, shared data, or the virtual machine alone |
//! | `ring` | how a virtual machine that is born late comes by the past |
//! | `reply` | what a refused request is told |
//! | `filter` | one configuration in force: a request in, a decision out |
//! | `plugin` | the proxy-wasm contexts, a line each |

pub mod config;
pub mod counts;
pub mod filter;
pub mod host;
#[cfg(target_arch = "wasm32")]
mod plugin;
pub mod reply;
pub mod ring;
