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
//!     Decision::Block(blocked) => println!("{}: try again in {:?}", blocked.id(), blocked.retry_after()),
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
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
//! # Glossary
//!
//! | Word | Here | Sentinel (Java) | sentinel-golang |
//! |---|---|---|---|
//! | window | an interval and its buckets: [`Window`] | interval and sample count | same |
//! | bucket | a part of a window, `[start, start + length)` | window | bucket |
//! | leap array | the ring of buckets: [`LeapArray`] | `LeapArray` | `LeapArray` |
//! | pass, block | let in, refused | pass, block | pass, block |
//! | success | completed, with an error or without | success | complete |
//! | exception | completed with an error | exception | error |
//! | resource | what rules limit; in Envoy, a route | resource | resource |
//! | origin | who asks: [`LimitApp`] | origin | – |
//! | context | by what entrance a call came in | context | – |
//! | entry | a call in flight: [`Entry`] | `Entry` | `SentinelEntry` |
//! | shadow | decides and counts, refuses nothing | – | – |
//!
//! # Modules
//!
//! A module uses only those above it.
//!
//! | Module | Owns |
//! |---|---|
//! | `time` | [`Timestamp`] |
//! | `window` | geometry: which bucket, which slot, what still counts; every inclusive or exclusive decision |
//! | `leap_array` | the ring, reused in place; knows no counter |
//! | `metric_bucket` | what happened in one bucket |
//! | `occupy` | borrowing from buckets to come |
//! | `metric` | sums, rates and details; views of a coarser window over a finer ring |
//! | `node` | one resource's statistics: second and minute windows, calls in flight |
//! | `tree` | the nodes of all resources and the tree of calls |
//! | `rule` | rules, whose parts check themselves when they are made |
//! | `tally` | a rule's two running counts, and the ring of what they were |
//! | `control` | what a rule decides at its threshold |
//! | `engine` | resources, the order of checks, replacing rules |
//! | [`config`] | a document in, rules out |
//!
//! What holds for all of them: nothing reads a clock, sleeps, logs, or keeps global state; nothing is `unsafe`; nothing
//! allocates once a resource, its context and its origin are known; nothing panics on input. JSON appears in `config` alone.
//!
//! # Deliberate differences from Sentinel
//!
//! Each has a test of the name given. [`FlowRule::sentinel`] (in a document `"compat": "sentinel"`) decides as Sentinel does.
//!
//! | Sentinel | Here | Test |
//! |---|---|---|
//! | a window admits up to twice its count in an interval | never more than the count | `differs_from_sentinel_strict_windows_never_admit_twice` |
//! | a clock that steps back freezes sums, or nothing is limited until it has caught up | the newest bucket goes on; far back, what counted counts one interval longer | `differs_from_sentinel_a_clock_that_steps_back_is_no_amnesty` |
//! | the bucket before the current one, in a ring of one, is the current one (issue 3309) | there is none | `differs_from_sentinel_a_ring_of_one_has_no_previous_bucket` |
//! | the bucket before the clock's first one is an error | there is none | `differs_from_sentinel_there_is_nothing_before_zero` |
//! | a bucket aged exactly one interval counts for a millisecond, where nothing has refreshed the ring | it does not | `differs_from_sentinel_a_bucket_aged_one_interval_does_not_count` |
//! | lists are in the order of slots | oldest first | `differs_from_sentinel_lists_are_in_the_order_of_time` |
//! | a fraction of the sum of passes per second is cut off before it is compared | it is compared | `differs_from_sentinel_rates_are_not_cut` |
//! | rules are charged one by one | all, or none | `differs_from_sentinel_a_refusal_charges_no_rule` |
//! | `occupiedPassQps` is always 0 | what was lent in the last second | `differs_from_sentinel_occupied_pass_qps_is_told` |
//! | a borrowed pass in whose bucket nothing happens is lost | it counts | `differs_from_sentinel_an_untouched_loan_counts` |
//! | a metric item's concurrency is always 0 (issue 2430) | the most calls in flight | `differs_from_sentinel_concurrency_is_told` |
//! | a resource beyond the 6000th is not checked at all | further ones share a window | `differs_from_sentinel_resources_beyond_the_bound_are_limited` |
//! | calls in flight can become fewer than none | never | `differs_from_sentinel_calls_in_flight_are_never_negative` |

#![forbid(unsafe_code)]

pub mod config;
mod control;
mod engine;
mod leap_array;
mod metric;
mod metric_bucket;
mod node;
mod occupy;
mod rule;
mod tally;
mod time;
mod tree;
mod window;

pub use control::Controller;
pub use engine::{
    Blocked, Decision, Engine, Entry, Local, MAX_RESOURCES, MAX_RULES_PER_RESOURCE, Outcome,
    Policy, Request, Resource, RulesError, StateKey, Store, Tallies,
};
pub use leap_array::{Bucket, LeapArray, WindowWrap};
pub use metric::{ArrayMetric, Metric, MetricNode, SlidingWindowMetric, View, ViewError};
pub use metric_bucket::{MetricBucket, MetricEvent};
pub use node::{
    ClusterNode, DefaultNode, EntranceNode, MAX_ORIGINS, Node, OCCUPY_TIMEOUT_MS, StatisticNode,
};
pub use occupy::{BucketLeapArray, FutureBucketLeapArray, OccupiableBucketLeapArray, Untouched};
pub use rule::{
    Count, Counting, DEFAULT_SAMPLE_COUNT, FlowRule, Grade, LimitApp, MAX_NAME, MAX_SAMPLE_COUNT,
    Mode, RuleError, RuleGeometry, RuleId, Rules, Target,
};
pub use tally::{LocalTally, Past, RuleWindow, Snapshots, Tally};
pub use time::Timestamp;
pub use tree::{DEFAULT_CONTEXT, MAX_CONTEXTS, NodeTree};
pub use window::{Window, WindowError};

/// The code in the README compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
