//! Sentinel's sliding windows and flow control for the edge: single-threaded, with time as an argument.
//!
//! ```
//! use leapgate::{Decision, Engine, FlowRule, Outcome, Request, Rules, Timestamp};
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
//! [`Counting`] says which span a rule uses. Limits hold in the clock that is handed in.
//!
//! # Modules
//!
//! A module uses only those above it.
//!
//! | Module | Owns |
//! |---|---|
//! | `shown` | values as sentences show them |
//! | `few` | a list without an allocation while it is short |
//! | `time` | [`Timestamp`] |
//! | `window` | geometry: which bucket, which slot, what still counts; every inclusive or exclusive decision |
//! | `leap_array` | the ring, reused in place; knows no counter |
//! | `snapshots` | what a running count was at each bucket's start |
//! | `metric_bucket` | what happened in one bucket |
//! | `occupy` | borrowing from buckets to come |
//! | `metric` | sums, rates and details; views of a coarser window over a finer ring |
//! | `node` | one resource's statistics: second and minute windows, calls in flight |
//! | `tree` | the nodes of all resources and the tree of calls |
//! | `rule` | rules, whose parts check themselves when they are made |
//! | `breaker` | circuit breakers: three states, one transition table |
//! | `tally` | a rule's two running counts, and the ring of what they were |
//! | `control` | what a rule decides at its threshold |
//! | `keyed` | windows, calls in flight and turns of many keys, in bounds |
//! | `system` | limits on all inbound calls together |
//! | `authority` | who may ask at all |
//! | `param_flow` | rules that limit each key for itself, on one resource |
//! | `places` | which names have windows of their own, where engines share their counts |
//! | `guard` | breakers, system rules and authority rules as a resource asks them |
//! | `refusal` | how a refusal is answered: the table of statuses for all shells |
//! | `engine` | resources, the order of checks, replacing rules |
//! | `limiter` | some limits on each of many keys: the short form |
//! | [`config`] | a document in, rules out |
//!
//! What holds for all of them: nothing reads a clock, sleeps, logs, or keeps global state; nothing is `unsafe`; nothing
//! allocates once a resource, its context, its origin and its keys are known, but for the first loans of a window, a call in
//! flight that counts for a key, and a request of more than four keys; nothing panics on input. JSON appears in `config`
//! alone.

#![forbid(unsafe_code)]

mod authority;
mod breaker;
pub mod config;
mod control;
mod engine;
mod few;
mod guard;
mod keyed;
mod leap_array;
mod limiter;
mod metric;
mod metric_bucket;
mod node;
mod occupy;
mod param_flow;
mod places;
mod refusal;
mod rule;
mod shown;
mod snapshots;
mod system;
mod tally;
mod time;
mod tree;
mod window;

pub use authority::{AuthorityRule, AuthorityStrategy, MAX_LISTED_ORIGINS};
pub use breaker::{
    Admission, Breaker, BreakerGeometry, BreakerStorage, Comparison, Counts,
    DEFAULT_DEGRADE_SAMPLE_COUNT, DEFAULT_MIN_REQUEST_AMOUNT, DegradeGrade, DegradeRule,
    LocalBreaker, MAX_PROBES, Phase, Refused, State, Ticket,
};
pub use control::Controller;
pub use engine::{
    Blocked, Cause, Decision, Engine, Entry, Local, MAX_RESOURCES, MAX_RULES_PER_RESOURCE,
    MAX_SYSTEM_RULES, Outcome, Policy, Request, Resource, Rules, RulesError, Seeded, StateKey,
    Store, Tallies,
};
pub use guard::BreakerKey;
pub use keyed::{
    Asked, HotKey, KEYS_PER_PAGE, Key, KeyedGeometry, KeyedPages, KeyedStates, KeyedTerms,
    KeyedWindows, MAX_LABEL, MAX_LABELS, Place, Reserved, Standing, Turn,
};
pub use leap_array::{Bucket, LeapArray, WindowWrap};
pub use limiter::{Left, Limit, Limiter, LimiterError, MAX_LIMITS, Verdict};
pub use metric::{ArrayMetric, Metric, MetricNode, SlidingWindowMetric, View, ViewError};
pub use metric_bucket::{MetricBucket, MetricEvent};
pub use node::{ClusterNode, DefaultNode, EntranceNode, MAX_ORIGINS, Node, StatisticNode};
pub use occupy::{
    BucketLeapArray, FutureBucketLeapArray, OCCUPY_TIMEOUT_MS, OccupiableBucketLeapArray, Untouched,
};
pub use param_flow::KeyedController;
pub use places::{Claim, NamePlace, Places};
pub use refusal::RefusalKind;
pub use rule::{
    ControlBehavior, Count, Counting, DEFAULT_MAX_KEYS, DEFAULT_SAMPLE_COUNT, FlowRule, Grade,
    KEYED_SAMPLE_COUNT, KeyItem, KeyMatch, KeyPart, KeyValue, KeyedBy, LimitApp, MAX_KEY_PARTS,
    MAX_KEYS, MAX_KEYS_OF_REQUEST, MAX_NAME, MAX_SAMPLE_COUNT, MaxQueueing, Mode, Ratio, Regex,
    RuleError, RuleGeometry, RuleId, Strategy, Target, WarmUp,
};
pub use snapshots::Snapshots;
pub use system::{Gauges, Inbound, SystemLimit, SystemRule};
pub use tally::{LocalInstant, LocalTally, Past, RuleWindow, SharedInstant, Tally};
pub use time::Timestamp;
pub use tree::{DEFAULT_CONTEXT, MAX_CONTEXTS, NodeTree};
pub use window::{Window, WindowError};

#[doc = include_str!("../docs/sentinel.md")]
pub mod _sentinel {}

/// The code in the README compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
