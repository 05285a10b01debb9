//! Sentinel's sliding windows and flow control for the edge: single-threaded, with time as an argument.
//!
//! ```
//! use leapgate::rule::FlowRule;
//! use leapgate::{Decision, Engine, Outcome, Request, Rules, Timestamp};
//!
//! let rules = Rules { flow: vec![FlowRule::new("login", 100.0)?], ..Rules::default() };
//! let engine = Engine::new(rules)?;
//!
//! let now = Timestamp::from_millis(5); // from whatever clock, as long as it is one
//! match engine.enter(&Request::new("login"), now) {
//!     Decision::Pass(entry) => entry.exit(Outcome::Success, Timestamp::from_millis(17)),
//!     Decision::Wait(wait, entry) => println!("{wait:?} from now, {entry:?} may go on"), // prioritized, or throttled
//!     Decision::Block(blocked) => println!("{}: try again in {:?}", blocked.id(), blocked.retry_after()),
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`_sentinel`] is for readers who know Sentinel: a glossary, and each deliberate difference with the test that shows it.
//!
//! # The ring
//!
//! An interval is cut into `n` buckets, aligned to the clock's zero, and the buckets lie in a ring whose slots are used again:
//!
//! ```text
//!                 n = 4 buckets of 250 ms
//!
//!     time   |  1000  |  1250  |  1500  |  1750  |  2000  |
//!     slot   |   0    |   1    |   2    |   3    |   0    |
//!                     |<------- Sentinel: n -------- now ->|     the current bucket and the n - 1 before it
//!            |<---------- strict: n + 1 ------------ now ->|     and the one that is leaving
//! ```
//!
//! With Sentinel's span a burst at the end of the bucket that leaves and another just after it has left fit into less than one
//! interval: up to twice the limit. With one bucket more the span is never shorter than the interval, so there is **never
//! more than the limit in any interval, at any alignment**; in exchange, n / (n + 1) of it passes in the long run at
//! saturation. Buckets cost no time (a sum is the difference of two running counts), so there are a hundred by default.
//!
//! [`rule::Counting`] says which span a rule uses. Limits hold in the clock that is handed in.
//!
//! # Modules
//!
//! - [`rule`]: the kinds of rules and what they are made of; each part checks itself once, when it is made.
//! - [`api`]: which APIs a request belongs to, by its path, method, host, headers and query.
//! - [`config`]: a document in, rules out.
//! - [`stats`]: Sentinel's statistics, and the leap array by itself.
//! - [`lease`]: one limit for all machines: leases from a store, its half and a node's.
//! - [`flow`]: flow rules alone, in less code.
//! - [`backend`]: where counts are kept; needed only to share limits between workers.
//!
//! Nothing in here reads a clock, sleeps, logs or keeps global state; nothing is `unsafe`; nothing panics on input. Nothing
//! allocates once a resource, its context, its origin and its keys are known, but for the first loans of a window, a call in
//! flight that counts for a key, a request that holds an estimate of its cost, says what it costs in another unit than requests or has
//! more than four keys, the origin and the statistics of a request that enters APIs, and calls with a context, an origin or a wait
//! while more of them are in flight than ever before.

// For developers of this crate: a module uses only those above it, and no file uses itself in a circle
// (`tests/core/layers.rs`). JSON appears in `config` alone.
//
// | Module | Owns |
// |---|---|
// | `text` | values as sentences show them |
// | `compat` | whether rules decide as Sentinel does |
// | `inline_vec` | a small vector: no allocation while it is short |
// | `map` | the maps of names |
// | `time` | `Timestamp` |
// | `window` | geometry: which bucket, which slot, what still counts; every inclusive or exclusive decision |
// | `leap_array` | the ring, reused in place, and Sentinel's leap array over it; knows no counter |
// | `snapshots` | what a running count was at each bucket's start |
// | `stats` | Sentinel's statistics: sums and rates of one resource, the nodes of all, the tree of calls |
// | `lease` | permits of one limit for all machines: the store's half and a node's |
// | `refusal` | how a refusal is answered: the table of statuses for all shells |
// | `rule` | the kinds of rules, and the lists of a document |
// | `api` | which APIs a request belongs to |
// | `places` | which names have windows of their own, where engines share their counts |
// | `state` | what rules remember: windows, pacers, breakers, tables of keys |
// | `engine` | resources, the order of checks, replacing rules |
// | `backend` | what a shell needs that keeps counts elsewhere |
// | `limiter` | some limits on each of many keys: the short form |
// | `flow` | flow rules alone: the short form of an engine |
// | `config` | a document in, rules out |

#![forbid(unsafe_code)]

pub mod api;
pub mod backend;
mod compat;
pub mod config;
mod engine;
pub mod flow;
mod inline_vec;
mod leap_array;
pub mod lease;
mod limiter;
mod map;
mod places;
mod refusal;
pub mod rule;
mod snapshots;
mod state;
pub mod stats;
mod text;
mod time;
mod window;

pub use engine::{Blocked, Decision, Engine, Entry, Outcome, Policy, Repeat, Request, Resource};
pub use limiter::{Hold, Left, Limit, Limiter, LimiterError, Verdict, snapshot::RestoreError};
pub use refusal::RefusalKind;
pub use rule::{Cause, Rules, RulesError};
pub use time::Timestamp;

#[doc = include_str!("../docs/sentinel.md")]
pub mod _sentinel {}

/// The code in the README compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
