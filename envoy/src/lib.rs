//! Leapgate as an Envoy and Istio HTTP filter: windows per route that hold for the whole process.
//!
//! A thin shell over the core. Data flows one way: host callback, shell, engine, decision, shell.
//!
//! | Module | Owns |
//! |---|---|
//! | `host` | the host calls, and nothing else names one |
//! | `settings` | the filter's own settings |
//! | `config` | the document that holds the rules and these |
//! | `names` | what metrics and places of shared data are called |
//! | `counters` | what rules have decided, as counters of Envoy's |
//! | `counts` | where the counts of a rule are kept: gauges, shared data, or the virtual machine alone |
//! | `breakers` | where a breaker keeps its state: shared data, and gauges |
//! | `outcome` | what an answer means to a breaker |
//! | `places` | which names have windows of their own, for the process |
//! | `inbound` | what all requests together do, for system rules |
//! | `keys` | the parts of a request that keyed rules name |
//! | `pages` | where the states of a rule's keys are kept: shared data, or the virtual machine alone |
//! | `ring` | how a virtual machine that has slept, or is born late, comes by the past |
//! | `caller` | what is read of a request besides its resource: its origin, and whether it may borrow |
//! | `waiting` | requests that wait, paused until their turn |
//! | `reply` | what a refused request is told |
//! | `passed` | what a request that passed keeps until it has ended |
//! | `filter` | one configuration in force: a request in, a decision out |
//! | `plugin` | the proxy-wasm contexts, a line each |

pub mod breakers;
pub mod caller;
pub mod config;
mod counters;
pub mod counts;
pub mod filter;
pub mod host;
pub mod inbound;
pub mod keys;
pub mod names;
pub mod outcome;
pub mod pages;
pub mod passed;
mod places;
#[cfg(target_arch = "wasm32")]
mod plugin;
pub mod reply;
pub mod ring;
pub mod settings;
pub mod waiting;
