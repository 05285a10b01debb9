//! Rules. Their small types check what they are made from, once; after that a rule is right by construction.

pub(crate) mod authority;
pub(crate) mod degrade;
mod key;
pub(crate) mod lists;
pub(crate) mod system;

use crate::text::{decimal, escaped};
use crate::window::{Window, WindowError};
use std::fmt;
use std::rc::Rc;

pub use authority::{AuthorityRule, AuthorityStrategy, MAX_LISTED_ORIGINS};
pub use degrade::{
    Comparison, DEFAULT_DEGRADE_SAMPLE_COUNT, DEFAULT_MIN_REQUEST_AMOUNT, DegradeGrade,
    DegradeRule, MAX_PROBES,
};
pub(crate) use key::Network;
pub use key::{
    DEFAULT_MAX_KEYS, KeyItem, KeyMatch, KeyPart, KeyValue, KeyedBy, MAX_KEY_PARTS, MAX_KEYS,
    MAX_KEYS_OF_REQUEST, Regex,
};
pub use lists::{Rules, RulesError};
pub use system::{SystemLimit, SystemRule};

/// How many buckets a rule's window may have: more would cost memory and gain less than a thousandth.
pub const MAX_SAMPLE_COUNT: u32 = 1000;

/// How many buckets a rule's window has at most unless it says: 99 % of the limit in strict mode.
pub const DEFAULT_SAMPLE_COUNT: u32 = 100;

/// How many buckets a window per key has at most unless its rule says: there they cost memory.
pub const KEYED_SAMPLE_COUNT: u32 = 20;

/// The interval of a rule that names none.
const DEFAULT_INTERVAL_MS: u64 = 1000;

/// The longest name of a rule or a resource, in bytes.
pub const MAX_NAME: usize = 256;

/// How many rules may apply to one resource: each costs a decision per request.
pub const MAX_RULES_PER_RESOURCE: usize = 64;

/// How many system rules there may be: each request from outside is held against all of them.
pub const MAX_SYSTEM_RULES: usize = 64;

/// How many resources without rules of their own are kept apart; those that come later share one.
///
/// Sentinel: `Constants.MAX_SLOT_CHAIN_SIZE`, above which a resource is not checked at all.
pub const MAX_RESOURCES: usize = 6000;

/// Why a rule cannot be made.
#[derive(Clone, PartialEq, Debug)]
pub enum RuleError {
    /// The name of a resource or a rule is empty.
    EmptyName,
    /// The name is longer than [`MAX_NAME`] bytes.
    LongName {
        /// Its length in bytes.
        length: usize,
    },
    /// The id of a rule has a character that a header or a metric cannot carry: take printable ASCII.
    BadId {
        /// The id.
        id: String,
    },
    /// The count is negative, infinite, not a number, or above 2^53.
    BadCount {
        /// The count.
        count: f64,
    },
    /// The geometry is no window.
    Window(WindowError),
    /// More buckets than [`MAX_SAMPLE_COUNT`].
    ManyBuckets {
        /// The bucket count.
        sample_count: u32,
    },
    /// A warm-up takes from 1 to [`WarmUp::MAX`] seconds.
    BadPeriod {
        /// The period, in seconds.
        period_sec: u32,
    },
    /// A cold rule admits from a half of its count down to one part in [`WarmUp::MAX`].
    BadColdFactor {
        /// The factor.
        cold_factor: u32,
    },
    /// The queue is longer than [`MaxQueueing::MAX_MS`].
    LongQueue {
        /// How long a request may wait, in milliseconds.
        max_queueing_ms: u64,
    },
    /// The ratio is below 0, above 1, or not a number.
    BadRatio {
        /// The ratio.
        ratio: f64,
    },
    /// What does not go with a key: a warm-up, or another strategy than [`Strategy::Direct`].
    NotKeyed {
        /// What it is, as a document calls it.
        what: &'static str,
    },
    /// No regular expression that is known here, or one that is too large.
    BadRegex {
        /// The expression.
        regex: String,
        /// What is wrong in it.
        reason: String,
    },
    /// A regular expression, without the feature `regex`.
    NoRegex {
        /// The expression.
        regex: String,
    },
    /// A whole number that a rule cannot do with.
    OutOfRange {
        /// The number.
        number: u64,
        /// The least that it may be.
        least: u64,
        /// The most that it may be.
        most: u64,
    },
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RuleError::EmptyName => write!(f, "`` is no name; use at least one character"),
            RuleError::LongName { length } => write!(
                f,
                "`{length}` bytes are too long a name; use at most {MAX_NAME}"
            ),
            RuleError::BadId { id } => {
                write!(
                    f,
                    "`{}` cannot be written in a header; use printable ASCII",
                    escaped(id, usize::MAX)
                )
            }
            RuleError::BadCount { count } => write!(
                f,
                "`{}` is no count; use a number from 0 to 9007199254740992",
                decimal(*count)
            ),
            RuleError::Window(error) => error.fmt(f),
            RuleError::ManyBuckets { sample_count } => {
                write!(
                    f,
                    "`{sample_count}` is too many buckets; use at most {MAX_SAMPLE_COUNT}"
                )
            }
            RuleError::BadPeriod { period_sec } => write!(
                f,
                "`{period_sec}` is no warm-up period; use 1 to {} seconds",
                WarmUp::MAX
            ),
            RuleError::BadColdFactor { cold_factor } => write!(
                f,
                "`{cold_factor}` is no cold factor; use 2 to {}",
                WarmUp::MAX
            ),
            RuleError::LongQueue { max_queueing_ms } => write!(
                f,
                "`{max_queueing_ms}` ms is too long a queue; use at most {}",
                MaxQueueing::MAX_MS
            ),
            RuleError::BadRatio { ratio } => {
                write!(
                    f,
                    "`{}` is no ratio; use a number from 0 to 1",
                    decimal(*ratio)
                )
            }
            RuleError::NotKeyed { what } => {
                write!(
                    f,
                    "`{what}` does not go with a `key`; leave one of them out"
                )
            }
            RuleError::BadRegex { regex, reason } => write!(
                f,
                "`{}` is no regular expression ({reason}); correct it",
                escaped(regex, usize::MAX)
            ),
            RuleError::NoRegex { regex } => write!(
                f,
                "`{}` is a regular expression, which this build does not have; use another match strategy",
                escaped(regex, usize::MAX)
            ),
            RuleError::OutOfRange {
                number,
                least,
                most,
            } => write!(
                f,
                "`{number}` is not possible; use a whole number from {least} to {most}"
            ),
        }
    }
}

impl std::error::Error for RuleError {}

impl From<WindowError> for RuleError {
    fn from(error: WindowError) -> RuleError {
        RuleError::Window(error)
    }
}

pub(crate) fn checked_name(name: &str) -> Result<Rc<str>, RuleError> {
    match name.len() {
        0 => Err(RuleError::EmptyName),
        length if length > MAX_NAME => Err(RuleError::LongName { length }),
        _ => Ok(name.into()),
    }
}

/// What a rule is called in replies, logs and metrics: printable ASCII, 1 to [`MAX_NAME`] bytes.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct RuleId(Rc<str>);

impl RuleId {
    /// The id `id`.
    ///
    /// # Errors
    ///
    /// Where it is empty, too long, or has a character that is not printable ASCII.
    pub fn new(id: &str) -> Result<RuleId, RuleError> {
        let name = checked_name(id)?;
        if id.bytes().any(|b| !(b' '..=b'~').contains(&b)) {
            return Err(RuleError::BadId { id: id.into() });
        }
        Ok(RuleId(name))
    }

    /// What a rule in shadow mode is called that has the default id of one in force.
    pub(crate) fn in_shadow(&self) -> RuleId {
        RuleId::made_of(&[self.as_str(), "/shadow"].concat())
    }

    /// An id made of names that need not be printable: what is not becomes `_`, and what is too long is cut.
    pub(crate) fn made_of(text: &str) -> RuleId {
        let printable = text
            .chars()
            .map(|c| if (' '..='~').contains(&c) { c } else { '_' });
        RuleId(printable.take(MAX_NAME).collect::<String>().into())
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RuleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Which resource a rule is for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// The one of this name.
    Resource(Rc<str>),
    /// Each one that no other flow rule names, on a window of its own: `*`.
    Each,
}

impl Target {
    /// The resource called `name`, or each where that is `*`.
    ///
    /// # Errors
    ///
    /// Where the name is empty or too long.
    pub fn new(name: &str) -> Result<Target, RuleError> {
        Ok(if name == "*" {
            Target::Each
        } else {
            Target::Resource(checked_name(name)?)
        })
    }

    /// The name, or `*`.
    pub fn as_str(&self) -> &str {
        match self {
            Target::Resource(name) => name,
            Target::Each => "*",
        }
    }
}

/// How much a rule admits: finite, from 0 to 2^53. It may have a fraction.
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug)]
pub struct Count {
    count: f64,
    /// The most whole passes within it.
    whole: u64,
}

impl Count {
    /// The largest count: 2^53.
    pub const MAX: f64 = 9_007_199_254_740_992.0;

    /// The count `count`.
    ///
    /// # Errors
    ///
    /// Where it is negative, not finite, or above [`Count::MAX`].
    pub fn new(count: f64) -> Result<Count, RuleError> {
        if (0.0..=Count::MAX).contains(&count) {
            Ok(Count {
                count,
                whole: count as u64,
            })
        } else {
            Err(RuleError::BadCount { count })
        }
    }

    /// The count `count`, or the nearest one.
    #[inline]
    pub(crate) fn nearest(count: f64) -> Count {
        let count = count.clamp(0.0, Count::MAX);
        Count {
            count,
            whole: count as u64,
        }
    }

    /// The count as a number.
    pub fn get(self) -> f64 {
        self.count
    }

    /// The most whole passes that the count admits.
    #[inline]
    pub(crate) fn whole(self) -> u64 {
        self.whole
    }
}

/// A part of a whole: from 0 to 1.
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug)]
pub struct Ratio(f64);

impl Ratio {
    /// The ratio `ratio`.
    ///
    /// # Errors
    ///
    /// Where it is below 0, above 1, or not a number.
    pub fn new(ratio: f64) -> Result<Ratio, RuleError> {
        if (0.0..=1.0).contains(&ratio) {
            Ok(Ratio(ratio))
        } else {
            Err(RuleError::BadRatio { ratio })
        }
    }

    /// The ratio as a number.
    pub fn get(self) -> f64 {
        self.0
    }
}

/// What counts in a window, and so what it guarantees.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Counting {
    /// The current bucket and the n before it: never more than the count in any interval, at any alignment. At saturation
    /// n / (n + 1) of it passes in the long run.
    Strict,
    /// The current bucket and the n - 1 before it, as Sentinel counts: at most twice the count in any interval.
    Sentinel,
    /// As [`Counting::Sentinel`], and the bucket that is leaving, by what is left of it: at most twice the count in any
    /// interval, close to it on average.
    Weighted,
}

/// What a rule limits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Grade {
    /// Passes in a window: those in it and the cost of the request may be at most the count.
    Qps {
        /// The window's geometry: at most [`MAX_SAMPLE_COUNT`] buckets.
        window: RuleGeometry,
        /// What counts in it.
        counting: Counting,
    },
    /// Calls in flight: those and the cost of the request may be at most the count.
    Concurrency,
}

impl Grade {
    /// The grade as the state of a rule has it: how a window counts is no part of that, and is [`Counting::Strict`] there.
    pub(crate) fn of_state(self) -> Grade {
        match self {
            Grade::Qps { window, .. } => Grade::Qps {
                window,
                counting: Counting::Strict,
            },
            Grade::Concurrency => Grade::Concurrency,
        }
    }

    /// How the window counts. Calls in flight have none, and are counted strictly.
    pub(crate) fn counting(self) -> Counting {
        match self {
            Grade::Qps { counting, .. } => counting,
            Grade::Concurrency => Counting::Strict,
        }
    }
}

/// The geometry of a rule's window.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RuleGeometry(Window);

impl RuleGeometry {
    /// `sample_count` buckets in `interval_ms`; without a number, the interval's largest divisor up to
    /// [`DEFAULT_SAMPLE_COUNT`].
    ///
    /// # Errors
    ///
    /// As [`Window::new`], and where there are more than [`MAX_SAMPLE_COUNT`] buckets.
    pub fn new(interval_ms: u64, sample_count: Option<u32>) -> Result<RuleGeometry, RuleError> {
        let finest = || Window::finest_sample_count(interval_ms, DEFAULT_SAMPLE_COUNT);
        match sample_count.unwrap_or_else(finest) {
            sample_count if sample_count > MAX_SAMPLE_COUNT => {
                Err(RuleError::ManyBuckets { sample_count })
            }
            sample_count => Ok(RuleGeometry(Window::new(interval_ms, sample_count)?)),
        }
    }

    /// The window.
    pub fn window(self) -> Window {
        self.0
    }

    /// Whether it has as many buckets as it can have, up to `most`.
    fn is_finest(self, most: u32) -> bool {
        self.0.sample_count() == Window::finest_sample_count(self.0.interval_ms(), most)
    }
}

/// Whose requests a rule is for.
///
/// Sentinel: `limitApp`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LimitApp {
    /// Everybody's, together: `default`.
    Default,
    /// Each origin's that no other rule of the resource names, apart: `other`.
    Other,
    /// Those of the origin of this name.
    Origin(Rc<str>),
}

impl LimitApp {
    /// The origin called `name`, or what `default` and `other` stand for.
    ///
    /// # Errors
    ///
    /// Where the name is empty or too long.
    pub fn new(name: &str) -> Result<LimitApp, RuleError> {
        match name {
            "default" => Ok(LimitApp::Default),
            "other" => Ok(LimitApp::Other),
            name => checked_name(name).map(LimitApp::Origin),
        }
    }
}

/// What happens to a request at a rule's threshold.
///
/// Sentinel: `RuleConstant.CONTROL_BEHAVIOR_*`, in its order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum ControlBehavior {
    /// It is refused. One that is prioritized may borrow a pass of a bucket to come.
    #[default]
    Reject,
    /// It is refused; and the threshold is lower while the rule is cold, that is after a time of little use.
    WarmUp,
    /// It waits for its turn, so that requests pass one by one, evenly, at the rule's rate.
    #[doc(alias = "RateLimiter")]
    Throttle,
    /// It waits for its turn, and turns are further apart while the rule is cold.
    #[doc(alias = "WarmUpRateLimiter")]
    WarmUpThrottle,
}

impl ControlBehavior {
    /// Whether the rule can be cold.
    pub fn warms_up(self) -> bool {
        matches!(
            self,
            ControlBehavior::WarmUp | ControlBehavior::WarmUpThrottle
        )
    }

    /// Whether turns are taken.
    pub fn is_paced(self) -> bool {
        matches!(
            self,
            ControlBehavior::Throttle | ControlBehavior::WarmUpThrottle
        )
    }
}

/// How a cold rule warms up.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WarmUp {
    /// From 1 to [`WarmUp::MAX`].
    period_sec: u32,
    /// From 2 to [`WarmUp::MAX`].
    cold_factor: u32,
}

impl WarmUp {
    /// The longest period, in seconds, and the highest cold factor: Sentinel's type ends there.
    pub const MAX: u32 = i32::MAX as u32;

    /// From a `cold_factor`th of the count to all of it in `period_sec` seconds of full use.
    ///
    /// # Errors
    ///
    /// Where the period is zero, the factor below two, or either above [`WarmUp::MAX`].
    pub fn new(period_sec: u32, cold_factor: u32) -> Result<WarmUp, RuleError> {
        if !(1..=WarmUp::MAX).contains(&period_sec) {
            return Err(RuleError::BadPeriod { period_sec });
        }
        if !(2..=WarmUp::MAX).contains(&cold_factor) {
            return Err(RuleError::BadColdFactor { cold_factor });
        }
        Ok(WarmUp {
            period_sec,
            cold_factor,
        })
    }

    /// How long it takes, in seconds.
    pub fn period_sec(self) -> u32 {
        self.period_sec
    }

    /// Which part of the count a cold rule admits.
    pub fn cold_factor(self) -> u32 {
        self.cold_factor
    }
}

/// Ten seconds, from a third: Sentinel's.
impl Default for WarmUp {
    fn default() -> WarmUp {
        WarmUp {
            period_sec: 10,
            cold_factor: 3,
        }
    }
}

/// How long a request may wait for its turn; zero for not at all.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MaxQueueing {
    millis: u32,
}

impl MaxQueueing {
    /// The longest, in milliseconds: Sentinel's type ends there, after 24 days.
    pub const MAX_MS: u32 = i32::MAX as u32;

    /// At most `millis` milliseconds.
    ///
    /// # Errors
    ///
    /// Where that is more than [`MaxQueueing::MAX_MS`].
    pub fn from_millis(millis: u64) -> Result<MaxQueueing, RuleError> {
        match u32::try_from(millis) {
            Ok(millis) if millis <= MaxQueueing::MAX_MS => Ok(MaxQueueing { millis }),
            _ => Err(RuleError::LongQueue {
                max_queueing_ms: millis,
            }),
        }
    }

    /// In milliseconds.
    pub fn as_millis(self) -> u64 {
        self.millis.into()
    }

    pub(crate) fn as_nanos(self) -> u64 {
        self.as_millis() * 1_000_000
    }
}

/// Half a second: Sentinel's.
impl Default for MaxQueueing {
    fn default() -> MaxQueueing {
        MaxQueueing { millis: 500 }
    }
}

/// Whose requests a rule counts.
///
/// Sentinel: `RuleConstant.STRATEGY_*` and `refResource`.
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug)]
pub enum Strategy {
    /// Those that it is for.
    #[default]
    Direct,
    /// Those of this other resource, whoever they come from: the one that the rule is for gives way to it.
    Relate(Rc<str>),
    /// Those that come in by the context of this name; the rule is for no others.
    Chain(Rc<str>),
}

/// Whether a rule refuses.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Mode {
    /// It does.
    #[default]
    Enforce,
    /// It decides and counts, and lets everything through.
    Shadow,
}

/// A limit on a resource.
///
/// Sentinel: `FlowRule`.
///
/// ```
/// use leapgate::rule::{Counting, FlowRule, MaxQueueing, WarmUp};
///
/// let burst = FlowRule::new("login", 100.0)?;
/// let minute = FlowRule::new("login", 1000.0)?.per(60_000, None)?;
/// let gentle = FlowRule::new("search", 50.0)?.counting(Counting::Weighted);
/// let in_flight = FlowRule::new("report", 4.0)?.concurrency();
/// let ids = [burst.id(), minute.id(), gentle.id(), in_flight.id()];
/// assert_eq!(ids.map(|id| id.to_string()), ["login", "login/60s", "search", "report/concurrency"]);
///
/// let even = FlowRule::new("mail", 0.5)?.throttle(MaxQueueing::from_millis(10_000)?);
/// let careful = FlowRule::new("cache", 500.0)?.warm_up(WarmUp::default());
/// let polite = FlowRule::new("report", 20.0)?.relate("orders")?;
/// let ids = [even.id(), careful.id(), polite.id()];
/// assert_eq!(ids.map(|id| id.to_string()), ["mail/throttle/queue=10s", "cache/warmUp", "report/relate=orders"]);
/// # Ok::<(), leapgate::rule::RuleError>(())
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct FlowRule {
    id: Option<RuleId>,
    target: Target,
    count: Count,
    grade: Grade,
    limit_app: LimitApp,
    strategy: Strategy,
    behavior: ControlBehavior,
    /// The default where the behaviour does not warm up.
    warm_up: WarmUp,
    /// The default where the behaviour does not throttle.
    max_queueing: MaxQueueing,
    mode: Mode,
    compat: bool,
    /// `None` where it limits all requests together.
    keyed: Option<Rc<KeyedBy>>,
}

impl FlowRule {
    /// At most `count` passes a second for `resource` (`*`: each that no other rule names), in a strict window.
    ///
    /// # Errors
    ///
    /// Where the name or the count is none.
    pub fn new(resource: &str, count: f64) -> Result<FlowRule, RuleError> {
        let window = RuleGeometry::new(DEFAULT_INTERVAL_MS, None)?;
        Ok(FlowRule {
            id: None,
            target: Target::new(resource)?,
            count: Count::new(count)?,
            grade: Grade::Qps {
                window,
                counting: Counting::Strict,
            },
            limit_app: LimitApp::Default,
            strategy: Strategy::Direct,
            behavior: ControlBehavior::Reject,
            warm_up: WarmUp::default(),
            max_queueing: MaxQueueing::default(),
            mode: Mode::Enforce,
            compat: false,
            keyed: None,
        })
    }

    /// This rule, called `id`.
    #[must_use]
    pub fn with_id(self, id: RuleId) -> FlowRule {
        FlowRule {
            id: Some(id),
            ..self
        }
    }

    /// This rule over `interval_ms` in `sample_count` buckets ([`RuleGeometry::new`]; of a rule with a key, where buckets cost
    /// memory, by default the interval's largest divisor up to [`KEYED_SAMPLE_COUNT`]). A limit on concurrency has no window
    /// and stays as it is.
    ///
    /// # Errors
    ///
    /// Where that is no window.
    pub fn per(self, interval_ms: u64, sample_count: Option<u32>) -> Result<FlowRule, RuleError> {
        let finest = || Window::finest_sample_count(interval_ms, self.finest());
        let window = RuleGeometry::new(interval_ms, Some(sample_count.unwrap_or_else(finest)))?;
        let grade = match self.grade {
            Grade::Qps { counting, .. } => Grade::Qps { window, counting },
            Grade::Concurrency => Grade::Concurrency,
        };
        Ok(FlowRule { grade, ..self })
    }

    /// This rule, with another way to count. A limit on concurrency has no window and stays as it is.
    #[must_use]
    pub fn counting(self, counting: Counting) -> FlowRule {
        let grade = match self.grade {
            Grade::Qps { window, .. } => Grade::Qps { window, counting },
            Grade::Concurrency => Grade::Concurrency,
        };
        FlowRule { grade, ..self }
    }

    /// This rule, as a limit on calls in flight, which refuses what is more.
    #[must_use]
    pub fn concurrency(self) -> FlowRule {
        FlowRule {
            grade: Grade::Concurrency,
            ..self.behaving(
                ControlBehavior::Reject,
                WarmUp::default(),
                MaxQueueing::default(),
            )
        }
    }

    /// This rule, letting requests pass evenly, `count` in an interval: one after another, each for as long as it costs. One
    /// that would have to wait for longer than `max_queueing` is refused. A limit on concurrency stays as it is.
    ///
    /// The rate may be any, with a fraction or without; turns are told apart to the nanosecond. A request that costs more
    /// than the count, or than one where the count is less, never passes.
    #[doc(alias = "RateLimiter")]
    #[must_use]
    pub fn throttle(self, max_queueing: MaxQueueing) -> FlowRule {
        self.behaving(ControlBehavior::Throttle, WarmUp::default(), max_queueing)
    }

    /// This rule, admitting less while it is cold. A limit on concurrency stays as it is, as does one with a key.
    ///
    /// It begins cold. Where it is cold and its window is empty, a request passes whatever part of the count it costs.
    #[must_use]
    pub fn warm_up(self, warm_up: WarmUp) -> FlowRule {
        self.behaving(ControlBehavior::WarmUp, warm_up, MaxQueueing::default())
    }

    /// This rule, letting requests pass evenly, and less often while it is cold. A limit on concurrency stays as it is, as does
    /// one with a key.
    #[doc(alias = "WarmUpRateLimiter")]
    #[must_use]
    pub fn warm_up_throttle(self, warm_up: WarmUp, max_queueing: MaxQueueing) -> FlowRule {
        self.behaving(ControlBehavior::WarmUpThrottle, warm_up, max_queueing)
    }

    /// This rule, limiting each key for itself, in a window of its own. A key does not go with a warm-up, nor with another
    /// strategy than [`Strategy::Direct`].
    ///
    /// A request passes if it may as each of its keys ([`KeyValue`]); what it lacks is a value as any other.
    ///
    /// # Errors
    ///
    /// Where the rule has such a behaviour or strategy.
    ///
    /// Sentinel: `ParamFlowRule`.
    #[doc(alias = "ParamFlowRule")]
    pub fn keyed(self, by: KeyedBy) -> Result<FlowRule, RuleError> {
        let what = match (self.behavior, &self.strategy) {
            (ControlBehavior::WarmUp, _) => Some("warmUp"),
            (ControlBehavior::WarmUpThrottle, _) => Some("warmUpThrottle"),
            (_, Strategy::Relate(_)) => Some("relate"),
            (_, Strategy::Chain(_)) => Some("chain"),
            _ => None,
        };
        if let Some(what) = what {
            return Err(RuleError::NotKeyed { what });
        }
        let grade = match self.grade {
            Grade::Qps { window, counting } if window.is_finest(self.finest()) => {
                let interval_ms = window.window().interval_ms();
                let finest = Window::finest_sample_count(interval_ms, KEYED_SAMPLE_COUNT);
                let window = RuleGeometry::new(interval_ms, Some(finest))?;
                Grade::Qps { window, counting }
            }
            grade => grade,
        };
        Ok(FlowRule {
            grade,
            keyed: Some(Rc::new(by)),
            ..self
        })
    }

    /// How many buckets its window has at most unless it is said.
    fn finest(&self) -> u32 {
        match self.keyed {
            Some(_) => KEYED_SAMPLE_COUNT,
            None => DEFAULT_SAMPLE_COUNT,
        }
    }

    fn behaving(
        self,
        behavior: ControlBehavior,
        warm_up: WarmUp,
        max_queueing: MaxQueueing,
    ) -> FlowRule {
        let warms_up = matches!(
            behavior,
            ControlBehavior::WarmUp | ControlBehavior::WarmUpThrottle
        );
        if self.grade == Grade::Concurrency || self.keyed.is_some() && warms_up {
            return self;
        }
        FlowRule {
            behavior,
            warm_up,
            max_queueing,
            ..self
        }
    }

    /// This rule, measuring the requests of `resource` instead of those that it is for. (A throttle measures nothing: it
    /// paces those that it is for.)
    ///
    /// # Errors
    ///
    /// Where the name is empty or too long, or the rule has a key.
    pub fn relate(self, resource: &str) -> Result<FlowRule, RuleError> {
        self.checked_without_key("relate")?;
        let strategy = Strategy::Relate(checked_name(resource)?);
        Ok(FlowRule { strategy, ..self })
    }

    /// This rule, for requests that come in by `context`, and measuring those.
    ///
    /// # Errors
    ///
    /// Where the name is empty or too long, or the rule has a key.
    pub fn chain(self, context: &str) -> Result<FlowRule, RuleError> {
        self.checked_without_key("chain")?;
        let strategy = Strategy::Chain(checked_name(context)?);
        Ok(FlowRule { strategy, ..self })
    }

    fn checked_without_key(&self, what: &'static str) -> Result<(), RuleError> {
        match self.keyed {
            Some(_) => Err(RuleError::NotKeyed { what }),
            None => Ok(()),
        }
    }

    /// This rule, deciding as Sentinel does: two buckets in a second, of which the current one and the one before count.
    ///
    /// Of one with a key, a request that lacks a part passes, a call in flight counts one whatever it costs, turns are taken in
    /// whole milliseconds, and counts have no fraction. (Its window stays as it is: Sentinel's bucket of tokens, which lets
    /// nearly twice the count through at once, is not to be had.)
    #[must_use]
    pub fn sentinel(self) -> FlowRule {
        let grade = match self.grade {
            grade if self.keyed.is_some() => grade,
            Grade::Qps { .. } => Grade::Qps {
                window: RuleGeometry(Window::of_buckets(2, 500)),
                counting: Counting::Sentinel,
            },
            Grade::Concurrency => Grade::Concurrency,
        };
        FlowRule {
            grade,
            compat: true,
            ..self
        }
    }

    /// This rule, for those requests only.
    #[must_use]
    pub fn for_origin(self, limit_app: LimitApp) -> FlowRule {
        FlowRule { limit_app, ..self }
    }

    /// This rule, in that mode.
    #[must_use]
    pub fn in_mode(self, mode: Mode) -> FlowRule {
        FlowRule { mode, ..self }
    }

    /// The id; where none was given, one made of the resource and of what differs from the defaults. The count, the mode and how
    /// the window counts are no part of it: when they change, the rule goes on with what it has counted.
    pub fn id(&self) -> RuleId {
        self.id
            .clone()
            .unwrap_or_else(|| RuleId::made_of(&self.default_id()))
    }

    fn default_id(&self) -> String {
        let mut id = String::from(self.target.as_str());
        let mut part = |part: &str| {
            id.push('/');
            id.push_str(part);
        };
        match self.grade {
            Grade::Concurrency => part("concurrency"),
            Grade::Qps { .. } if self.compat && self.keyed.is_none() => {}
            Grade::Qps { window, .. } => {
                match window.window().interval_ms() {
                    DEFAULT_INTERVAL_MS => {}
                    millis => part(&span(millis)),
                }
                if !window.is_finest(self.finest()) {
                    part(&format!("{}buckets", window.window().sample_count()));
                }
            }
        }
        match self.behavior {
            ControlBehavior::Reject => {}
            ControlBehavior::WarmUp => part("warmUp"),
            ControlBehavior::Throttle => part("throttle"),
            ControlBehavior::WarmUpThrottle => part("warmUpThrottle"),
        }
        if self.warm_up.period_sec != WarmUp::default().period_sec {
            part(&format!("period={}s", self.warm_up.period_sec));
        }
        if self.warm_up.cold_factor != WarmUp::default().cold_factor {
            part(&format!("cold={}", self.warm_up.cold_factor));
        }
        if self.max_queueing != MaxQueueing::default() {
            part(&format!("queue={}", span(self.max_queueing.as_millis())));
        }
        if let Some(by) = self.keyed_by().filter(|by| !by.parts().is_empty()) {
            part(&format!("key={by}"));
            if by.max_keys() != DEFAULT_MAX_KEYS {
                part(&format!("keys={}", by.max_keys()));
            }
        }
        match &self.strategy {
            Strategy::Direct => {}
            Strategy::Relate(resource) => part(&format!("relate={resource}")),
            Strategy::Chain(context) => part(&format!("chain={context}")),
        }
        if self.compat {
            part("compat=sentinel");
        }
        match &self.limit_app {
            LimitApp::Default => {}
            LimitApp::Other => part("app=other"),
            LimitApp::Origin(name) => part(&format!("app={name}")),
        }
        id
    }

    /// Whether what it counts, and apart from what, is the same as of `other`.
    pub(crate) fn counts_as(&self, other: &FlowRule) -> bool {
        let key = |rule: &FlowRule| {
            let by = rule.keyed_by()?;
            Some((by.shared_parts(), by.pattern().cloned(), by.max_keys()))
        };
        self.target == other.target
            && self.grade.of_state() == other.grade.of_state()
            && self.limit_app == other.limit_app
            && self.strategy == other.strategy
            && self.behavior == other.behavior
            && self.compat == other.compat
            && key(self) == key(other)
    }

    /// Whether no id was given.
    pub(crate) fn has_default_id(&self) -> bool {
        self.id.is_none()
    }

    /// Which resource it is for.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// How much it admits.
    pub fn count(&self) -> Count {
        self.count
    }

    /// What it limits.
    pub fn grade(&self) -> Grade {
        self.grade
    }

    /// Whose requests it is for.
    pub fn limit_app(&self) -> &LimitApp {
        &self.limit_app
    }

    /// Whose requests it counts.
    pub fn strategy(&self) -> &Strategy {
        &self.strategy
    }

    /// What happens at the threshold.
    pub fn control_behavior(&self) -> ControlBehavior {
        self.behavior
    }

    /// How it warms up, where it does.
    pub fn warming_up(&self) -> WarmUp {
        self.warm_up
    }

    /// How long a request may wait for its turn, where it throttles.
    #[doc(alias = "maxQueueingTimeMs")]
    pub fn max_queueing(&self) -> MaxQueueing {
        self.max_queueing
    }

    /// By what it tells those apart whom it limits each for themselves; `None` where it limits all together.
    #[doc(alias = "paramItem")]
    pub fn keyed_by(&self) -> Option<&KeyedBy> {
        self.keyed.as_deref()
    }

    /// Whether it decides as Sentinel does.
    pub fn is_compat(&self) -> bool {
        self.compat
    }

    /// Whether it refuses.
    pub fn mode(&self) -> Mode {
        self.mode
    }
}

/// A span of time, in whole seconds where it can be.
pub(crate) fn span(millis: u64) -> String {
    if millis > 0 && millis.is_multiple_of(1000) {
        format!("{}s", millis / 1000)
    } else {
        format!("{millis}ms")
    }
}
