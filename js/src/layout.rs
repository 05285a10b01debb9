//! Positions in memory and numbers of things, shared with `js/lib/layout.js`, which has the same names and values:
//! `js/test/sources.test.mjs` compares them. A name at index 2 of a list `X` there is `X_NAME = 2` here.

#[cfg(any(feature = "engine", feature = "flow"))]
use leapgate::rule::MAX_RULES_PER_RESOURCE;

// ---- values in the buffer: the byte before each ----

pub(crate) const TAG_NULL: u8 = 0;
pub(crate) const TAG_FALSE: u8 = 1;
pub(crate) const TAG_TRUE: u8 = 2;
/// Eight bytes follow.
pub(crate) const TAG_NUMBER: u8 = 3;
/// Its length follows, and its bytes.
pub(crate) const TAG_TEXT: u8 = 4;
/// Its length follows, and its items.
pub(crate) const TAG_ARRAY: u8 = 5;
/// Its length follows, and its keys and values in turn.
pub(crate) const TAG_OBJECT: u8 = 6;

// ---- results of a limiter, in doubles ----

/// Which limit refuses; negative where the key is blocked or the limiter closed.
pub(crate) const VERDICT_REFUSING: usize = 0;
/// When to try again, in milliseconds; negative for never.
pub(crate) const VERDICT_RETRY_AFTER: usize = 1;
/// The hash of the key: its low half, and its high one.
pub(crate) const VERDICT_KEY_LOW: usize = 2;
pub(crate) const VERDICT_KEY_HIGH: usize = 3;
pub(crate) const VERDICT_LEN: usize = 4;
/// Where a request that passes holds its estimate: the two numbers of the hold.
pub(crate) const VERDICT_HOLD: usize = 0;
pub(crate) const VERDICT_SEQUENCE: usize = 1;

/// What `limiter_ask` does with a request that passes.
pub(crate) const LOOK: u32 = 0;
pub(crate) const CHARGE: u32 = 1;
pub(crate) const HOLD: u32 = 2;

/// For each limit, after the verdict: its count.
pub(crate) const LIMIT_COUNT: usize = 0;
/// Whole passes left.
pub(crate) const LIMIT_REMAINING: usize = 1;
/// When quota comes back, in milliseconds from now.
pub(crate) const LIMIT_RESET: usize = 2;
/// Until when only calls for this key change that, in milliseconds; 0 if others may.
pub(crate) const LIMIT_STEADY: usize = 3;
pub(crate) const LIMIT_LEN: usize = 4;

// ---- results of an engine, in doubles ----

/// How many policies follow.
pub(crate) const DECISION_POLICIES: usize = 0;
/// How many rules of the resource have been in results so far.
pub(crate) const DECISION_RULES: usize = 1;
/// Which of these rules refuses; negative for none.
pub(crate) const DECISION_REFUSING: usize = 2;
/// The count of the refusing rule; negative if it has none.
pub(crate) const DECISION_COUNT: usize = 3;
/// When to try again, in milliseconds; negative for never.
pub(crate) const DECISION_RETRY_AFTER: usize = 4;
/// How long to wait, in milliseconds, before the call begins.
pub(crate) const DECISION_WAIT: usize = 5;
pub(crate) const DECISION_LEN: usize = 6;

/// For each policy, after the decision: the index of its rule.
pub(crate) const POLICY_RULE: usize = 0;
/// The count of the policy.
pub(crate) const POLICY_COUNT: usize = 1;
/// Whole passes left.
pub(crate) const POLICY_REMAINING: usize = 2;
/// When quota comes back, in milliseconds from now.
pub(crate) const POLICY_RESET: usize = 3;
pub(crate) const POLICY_LEN: usize = 4;

/// For a rule, at the end of the area, which no decision reaches: its window in milliseconds, negative if it has none.
pub(crate) const RULE_WINDOW: usize = 0;
/// The HTTP status of its refusals.
pub(crate) const RULE_STATUS: usize = 1;
pub(crate) const RULE_LEN: usize = 2;

/// The costs of a request or of a call that ends, which JavaScript puts there: for each unit, negative where it is not said. Each
/// rule of a resource has one unit at most.
pub(crate) const COSTS: usize = 6;

/// How many doubles results take.
#[cfg(any(feature = "engine", feature = "flow"))]
pub(crate) const RESULTS_LEN: usize = DECISION_LEN + POLICY_LEN * MAX_RULES_PER_RESOURCE + RULE_LEN;
#[cfg(not(any(feature = "engine", feature = "flow")))]
pub(crate) const RESULTS_LEN: usize = VERDICT_LEN + LIMIT_LEN * leapgate::Limiter::MAX_LIMITS;

// ---- shared limiters ----

/// What `shared_take` answers.
pub(crate) const TAKEN_PASS: u32 = 0;
pub(crate) const TAKEN_REFUSE: u32 = 1;
pub(crate) const TAKEN_WAIT: u32 = 2;
/// Added if there is a message to send.
pub(crate) const TAKEN_MESSAGE: u32 = 4;
/// What remains of a limit if the request passes, else in how many milliseconds to try again.
pub(crate) const TAKEN_VALUE: usize = 0;
/// The message: its number, and the lengths of its key and its text, which are in the buffer.
pub(crate) const MESSAGE_TOKEN: usize = 1;
pub(crate) const MESSAGE_KEY: usize = 2;
pub(crate) const MESSAGE_TEXT: usize = 3;
/// What an answer, or the lack of one, changes.
pub(crate) const CHANGE_NONE: u32 = 0;
pub(crate) const CHANGE_DOWN: u32 = 1;
pub(crate) const CHANGE_UP: u32 = 2;
/// Added if it is not an answer.
pub(crate) const CHANGE_ERROR: u32 = 4;
/// What decides while the store does not answer.
pub(crate) const WHEN_DOWN: [&str; 3] = ["local", "refuse", "pass"];
/// What a node has done so far, in its order.
pub(crate) const FIGURES: [&str; 6] = ["permits", "asks", "granted", "lost", "downMs", "isDown"];

// ---- engines ----

/// The numbers of a rule of an engine of flow rules alone.
pub(crate) const FLOW_RULE: [&str; 11] = [
    "count",
    "intervalMs",
    "sampleCount",
    "window",
    "controlBehavior",
    "warmUpPeriodSec",
    "coldFactor",
    "maxQueueingTimeMs",
    "maxKeys",
    "burst",
    "parts",
];

/// The flags of a request: one bit each.
pub(crate) const PRIORITIZED: u32 = 1;
pub(crate) const INBOUND: u32 = 2;
/// The caller waits if a rule requires it. Without this flag, such a request is refused.
pub(crate) const CAN_WAIT: u32 = 4;
/// The call ends at once.
pub(crate) const ENDS: u32 = 8;
/// The request has a key, which JavaScript has put.
pub(crate) const KEYED: u32 = 16;
/// The request only reads the policies, and charges nothing.
pub(crate) const LOOKS: u32 = 32;
/// Limits leave the request alone.
pub(crate) const EXEMPT: u32 = 64;
/// JavaScript has put the costs of the request.
pub(crate) const COSTED: u32 = 128;

/// What is known of a resource: one bit each.
pub(crate) const HAS_RULES: u8 = 1;
/// A rule needs to know how calls end.
pub(crate) const IS_OPEN: u8 = 2;
/// A rule knows the cost of a request only when it ends.
pub(crate) const HOLDS: u8 = 4;

/// Results of `engine_enter` other than an entry.
pub(crate) const REFUSED: f64 = -1.0;
pub(crate) const ENDED: f64 = -2.0;

/// A number that is missing.
pub(crate) const NONE: f64 = -1.0;

/// The ways in which a call ends.
pub(crate) const EXIT: u32 = 0;
pub(crate) const EXIT_WITH_ERROR: u32 = 1;
pub(crate) const CANCEL: u32 = 2;
/// The outcome is unknown.
pub(crate) const DROP: u32 = 3;
pub(crate) const UNANSWERED: u32 = 4;

// ---- statistics: the columns of rows ----

pub(crate) const WINDOW: [&str; 2] = ["intervalMs", "sampleCount"];
/// In the middle all events, in the order of `MetricEvent::ALL`.
pub(crate) const BUCKET: [&str; 11] = [
    "start",
    "pass",
    "block",
    "exception",
    "success",
    "rt",
    "occupiedPass",
    "minRt",
    "shortestRt",
    "maxRt",
    "maxConcurrency",
];
pub(crate) const DETAIL: [&str; 8] = [
    "timestamp",
    "pass",
    "block",
    "success",
    "exception",
    "rt",
    "occupiedPass",
    "concurrency",
];
pub(crate) const COUNTERS: [&str; 9] = [
    "passed",
    "waited",
    "blocked",
    "shadowBlocked",
    "shared",
    "defaulted",
    "debt",
    "inFlight",
    "part",
];
pub(crate) const HOT_KEY: [&str; 2] = ["amount", "isNamed"];

// ---- statistics: choices ----

/// The values of `node_value`.
pub(crate) const VALUE_PASS_QPS: u32 = 0;
pub(crate) const VALUE_BLOCK_QPS: u32 = 1;
pub(crate) const VALUE_TOTAL_QPS: u32 = 2;
pub(crate) const VALUE_SUCCESS_QPS: u32 = 3;
pub(crate) const VALUE_EXCEPTION_QPS: u32 = 4;
pub(crate) const VALUE_OCCUPIED_PASS_QPS: u32 = 5;
pub(crate) const VALUE_MAX_SUCCESS_QPS: u32 = 6;
pub(crate) const VALUE_AVG_RT: u32 = 7;
pub(crate) const VALUE_MIN_RT: u32 = 8;
pub(crate) const VALUE_PREVIOUS_PASS_QPS: u32 = 9;
pub(crate) const VALUE_PREVIOUS_BLOCK_QPS: u32 = 10;
pub(crate) const VALUE_TOTAL_REQUEST: u32 = 11;
pub(crate) const VALUE_TOTAL_PASS: u32 = 12;
pub(crate) const VALUE_TOTAL_SUCCESS: u32 = 13;
pub(crate) const VALUE_TOTAL_EXCEPTION: u32 = 14;
pub(crate) const VALUE_BLOCK_REQUEST: u32 = 15;
pub(crate) const VALUE_CUR_THREAD_NUM: u32 = 16;
pub(crate) const VALUE_WAITING: u32 = 17;

/// The records of `node_record`.
pub(crate) const RECORD_PASS_REQUEST: u32 = 0;
pub(crate) const RECORD_BLOCK_QPS: u32 = 1;
pub(crate) const RECORD_EXCEPTION_QPS: u32 = 2;
pub(crate) const RECORD_OCCUPIED_PASS: u32 = 3;
pub(crate) const RECORD_BEGIN: u32 = 4;
pub(crate) const RECORD_RT_AND_SUCCESS: u32 = 5;
pub(crate) const RECORD_COMPLETE: u32 = 6;
pub(crate) const RECORD_COMPLETE_FAILED: u32 = 7;
pub(crate) const RECORD_WAITING_REQUEST: u32 = 8;
pub(crate) const RECORD_THREAD_MORE: u32 = 9;
pub(crate) const RECORD_THREAD_LESS: u32 = 10;

/// The values of `metric_extreme`.
pub(crate) const EXTREME_MAX_SUCCESS: u32 = 0;
pub(crate) const EXTREME_MIN_RT: u32 = 1;
pub(crate) const EXTREME_SHORTEST_RT: u32 = 2;
pub(crate) const EXTREME_MAX_RT: u32 = 3;
pub(crate) const EXTREME_MAX_CONCURRENCY: u32 = 4;

/// The buckets of a leap array.
pub(crate) const RING_CURRENT: u32 = 0;
pub(crate) const RING_PREVIOUS: u32 = 1;
pub(crate) const RING_VALID_HEAD: u32 = 2;
pub(crate) const RING_OF: u32 = 3;

/// The kinds of nodes of an engine.
pub(crate) const NODE_ROOT: u32 = 0;
pub(crate) const NODE_INBOUND: u32 = 1;
pub(crate) const NODE_ENTRANCE: u32 = 2;
pub(crate) const NODE_DEFAULT: u32 = 3;
pub(crate) const NODE_CLUSTER: u32 = 4;
pub(crate) const NODE_ORIGIN: u32 = 5;

/// The kinds of nodes below a node.
pub(crate) const BELOW_RESOURCES: u32 = 0;
pub(crate) const BELOW_ENTRANCES: u32 = 1;
pub(crate) const BELOW_ORIGINS: u32 = 2;

// ---- the command line ----

/// What is wrong with a file: a document or a log cannot be read, a page cannot be written, a log is broken off.
pub(crate) const FAULT_DOCUMENT: u32 = 0;
pub(crate) const FAULT_LOG: u32 = 1;
pub(crate) const FAULT_PAGE: u32 = 2;
pub(crate) const FAULT_BROKEN_OFF: u32 = 3;

/// What the program says: on standard output, on standard error, in the page.
pub(crate) const SAID_OUT: u32 = 0;
pub(crate) const SAID_ERR: u32 = 1;
pub(crate) const SAID_PAGE: u32 = 2;
