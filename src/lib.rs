//! Sentinel's sliding windows and flow control for the edge: single-threaded, with time as an argument.
//!
//! ```
//! use leapgate::{Decision, Engine, Outcome, Request, Rules, Timestamp};
//! use leapgate::rule::FlowRule;
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
//! | loan | a pass of a bucket to come, for a request that waits for it | occupied pass | – |
//! | turn | when a request passes that a throttle paces | – | – |
//! | key | what a rule tells requests apart by, each limited for itself: [`KeyedBy`] | hot parameter | same |
//! | entry | a call in flight: [`Entry`] | `Entry` | `SentinelEntry` |
//! | shadow | decides and counts, refuses nothing | – | – |
//!
//! # Modules
//!
//! A module uses only those above it.
//!
//! | Module | Owns |
//! |---|---|
//! | `text` | values as sentences show them |
//! | `inline_vec` | a list without an allocation while it is short |
//! | `time` | [`Timestamp`] |
//! | `window` | geometry: which bucket, which slot, what still counts; every inclusive or exclusive decision |
//! | `leap_array` | the ring, reused in place; knows no counter |
//! | `snapshots` | what a running count was at each bucket's start |
//! | [`stats`] | Sentinel's statistics: sums and rates of one resource, the nodes of all, the tree of calls |
//! | [`rule`] | the kinds of rules, whose parts check themselves when they are made |
//! | `places` | which names have windows of their own, where engines share their counts |
//! | `refusal` | how a refusal is answered: the table of statuses for all shells |
//! | `state` | what rules remember: windows, pacers, breakers, tables of keys |
//! | `engine` | resources, the order of checks, replacing rules |
//! | [`backend`] | what a shell needs that keeps counts elsewhere |
//! | `limiter` | some limits on each of many keys: the short form |
//! | [`config`] | a document in, rules out |
//!
//! What holds for all of them: nothing reads a clock, sleeps, logs, or keeps global state; nothing is `unsafe`; nothing
//! allocates once a resource, its context, its origin and its keys are known, but for the first loans of a window, a call in
//! flight that counts for a key, and a request of more than four keys; nothing panics on input. JSON appears in `config`
//! alone.
//!
//! # Deliberate differences from Sentinel
//!
//! Each has a test of the name given. [`FlowRule::sentinel`] and its like (in a document `"compat": "sentinel"`) decide as
//! Sentinel does.
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
//! | a loan is what leaves at the next half second: with what came just before, up to twice the limit in an interval | it is what has left the window by then, and counts from the moment it is made | `differs_from_sentinel_a_loan_never_exceeds_the_limit` |
//! | exactly at the start of a half second nobody can borrow | one can | `differs_from_sentinel_one_can_borrow_at_the_start_of_a_bucket` |
//! | a borrowed pass is recorded on the rule's own node | on all nodes | `differs_from_sentinel_a_loan_is_recorded_on_all_nodes` |
//! | a request that borrows is not asked about by the rules that come after | it is; so with `compat`, too | `differs_from_sentinel_a_priority_wait_skips_no_rule` |
//! | a throttle paces in whole milliseconds, where its count divides a second | in nanoseconds | `differs_from_sentinel_pacing_is_to_the_nanosecond` |
//! | a throttle of a count below one half is a division by zero | it paces | `differs_from_sentinel_a_throttle_below_one_half_paces` |
//! | a throttle without a queue is dropped | it is kept | `differs_from_sentinel_a_throttle_without_a_queue_is_kept` |
//! | a batch that finds the line of a throttle idle costs those behind it nothing | they wait for as long as it costs; one that costs more than the count never passes | `differs_from_sentinel_a_batch_costs_those_behind_it` |
//! | values of a hot parameter are paced in whole milliseconds and by the whole part of the count: at 3000 a second none waits | in nanoseconds, by all of it | `differs_from_sentinel_hot_values_are_paced_to_the_nanosecond` |
//! | where values of a hot parameter are paced, a request may wait for less than the queue | for as long as it, as everywhere | `differs_from_sentinel_a_hot_value_may_wait_as_long_as_the_queue` |
//! | a value of a hot parameter that is pushed out by new ones is forgotten with its limit | new ones share windows while all are in use; so with `compat`, too | `differs_from_sentinel_a_flood_of_values_is_no_amnesty` |
//! | a rule that warms up to a count below its cold factor admits nothing, ever | one at a time, and gets warm | `differs_from_sentinel_a_count_below_the_cold_factor_warms_up` |
//! | a clock that starts at 0 starts warm | cold; so with `compat`, too | `differs_from_sentinel_a_clock_that_starts_at_zero_starts_cold` |
//! | warming up, time brings tokens for all of itself and takes the passes of one second (issue 953) | it takes all of them | `differs_from_sentinel_what_was_used_is_taken_as_what_time_brings` |
//! | a rule whose tokens stand at the line gets no more of them, and never cold | it gets cold | `differs_from_sentinel_a_rule_at_the_line_gets_cold` |
//! | a rule that refuses most of what comes, in large batches, never gets warm | who is held back shows that it is used | `differs_from_sentinel_who_is_held_back_shows_that_a_rule_is_used` |
//! | the rate of a short warm-up to a small count is not a number, and nothing passes | it is one | `differs_from_sentinel_a_short_warm_up_is_a_number` |
//! | a rule that is loaded again begins with an empty queue | what stands in it stays | `differs_from_sentinel_a_reload_keeps_queues` |
//! | a rule that is loaded again begins cold | it is as warm as it was | `differs_from_sentinel_a_reload_keeps_how_warm_a_rule_is` |
//! | a throttle for `other` origins is one for all of them | each has its own | `differs_from_sentinel_a_throttle_for_others_is_one_for_each` |
//! | of rules that refuse, one for `default` is told last | the first in the list is told; so with `compat`, too | `differs_from_sentinel_rules_are_asked_in_the_order_of_the_list` |
//! | what relates to a resource that was never entered passes, whatever it costs | that resource's window is empty | `differs_from_sentinel_a_resource_never_entered_has_a_window` |
//! | a resource beyond the 6000th is not checked at all | further ones share a window | `differs_from_sentinel_resources_beyond_the_bound_are_limited` |
//! | a context beyond the 2000th is neither checked nor counted | it is both | `differs_from_sentinel_contexts_beyond_the_bound_are_limited` |
//! | origins are kept without a bound | further ones share a window | `differs_from_sentinel_origins_are_bounded` |
//! | a response time is negative where the clock steps back | it is zero | `differs_from_sentinel_a_response_time_is_never_negative` |
//! | calls in flight can become fewer than none | never | `differs_from_sentinel_calls_in_flight_are_never_negative` |
//! | a breaker's window tumbles: failures on both sides of its edge are not seen together (issue 3130) | it slides | `differs_from_sentinel_breaker_windows_slide` |
//! | whatever completes first decides what becomes of a half-open breaker, however old | a probe's own completion | `differs_from_sentinel_only_a_probe_decides` |
//! | a probe that never comes back keeps a breaker half-open for good (issue 3363) | it expires | `differs_from_sentinel_a_lost_probe_expires` |
//! | a probe that another rule refuses leaves the retry time where it was (issue 1638) | the breaker opens with a retry time of its own; a rule that refuses beforehand takes no probe | `differs_from_sentinel_a_refused_probe_has_a_retry_time` |
//! | breakers are asked after all other rules | before limits, so that nothing is taken for what they refuse | `differs_from_sentinel_breakers_are_asked_before_limits` |
//! | a breaker whose rule has changed, or that is for each resource, begins anew when rules are loaded | it goes on | `differs_from_sentinel_a_reload_keeps_breakers` |
//! | one probe | a stated number, all of which must succeed | `differs_from_sentinel_several_probes_must_succeed` |
//! | a breaker with an error ratio of 1 never opens | it opens when all calls fail | `differs_from_sentinel_an_error_ratio_of_one_can_be_reached` |
//! | the slow threshold is rounded to a millisecond | it is not | `differs_from_sentinel_slow_is_above_the_threshold` |
//! | hot parameters are counted in buckets of tokens, of which nearly twice the count is let in at once: 19 within 2 ms of 10 a second | in windows: never more than the count in any interval | `differs_from_sentinel_hot_parameters_are_counted_in_windows` |
//! | a request without the parameter passes | what is missing is a value of its own, unless with `compat` | `differs_from_sentinel_a_missing_value_is_limited` |
//! | a negative place of a parameter is made one from the front by the first call, for good | each call's are counted from its own end | `differs_from_sentinel_a_negative_index_is_of_each_call` |
//! | of a list that is refused, the values before that one stay charged | none is | `differs_from_sentinel_a_refused_list_charges_nothing` |
//! | a limit on a parameter's calls in flight does not look at what a call costs | it does, unless with `compat` | `differs_from_sentinel_a_call_in_flight_of_a_key_costs_what_it_costs` |
//! | a gateway rule with a prefix is for every value | for those that begin so | `differs_from_sentinel_a_prefix_is_matched` |
//! | gateway rules of both resource modes under one name switch each other off | all apply | `differs_from_sentinel_gateway_rules_of_both_modes_apply` |
//! | a limit on all inbound calls in flight lets one more in | the one that asks is counted | `differs_from_sentinel_system_concurrency_counts_the_request` |
//! | calls in flight are held to the machine's estimate only above a load, and never for the processor's sake (issue 1206) | with `bbr`, for either, and where neither is known | `differs_from_sentinel_bbr_needs_no_load` |
//! | a last system rule without a threshold switches all of them off | it limits nothing | `differs_from_sentinel_an_empty_system_rule_switches_nothing_off` |
//! | a refusal by a system rule names no rule (issue 3138) | it does | `differs_from_sentinel_a_system_refusal_names_its_rule` |
//! | a second authority rule for a resource is ignored | all apply | `differs_from_sentinel_all_authority_rules_apply` |
//! | space around a name in an authority rule is part of it | it is not | `differs_from_sentinel_names_in_authority_rules_are_trimmed` |
//! | a rule that is wrong is left out | it refuses the whole document | `differs_from_sentinel_a_wrong_rule_refuses_the_document` |
//! | rules that differ in their count alone all apply | one of them needs an id | `differs_from_sentinel_rules_that_differ_in_their_count_alone_need_ids` |

#![forbid(unsafe_code)]

pub mod backend;
pub mod config;
mod engine;
mod inline_vec;
mod leap_array;
mod limiter;
mod places;
mod refusal;
pub mod rule;
mod snapshots;
mod state;
pub mod stats;
mod text;
mod time;
mod window;

pub use engine::{Blocked, Cause, Decision, Engine, Entry, Outcome, Policy, Request, Resource};
pub use limiter::{Left, Limit, Limiter, LimiterError, Verdict};
pub use refusal::RefusalKind;
pub use rule::{Rules, RulesError};
pub use time::Timestamp;

/// The code in the README compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
