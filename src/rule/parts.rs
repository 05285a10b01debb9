//! What rules are made of: bounds, names, counts, and why a rule cannot be made.

use crate::text::{decimal, escaped};
use crate::window::{Window, WindowError};
use std::fmt;
use std::rc::Rc;

/// How many buckets a rule's window may have: more would cost memory and gain less than a thousandth.
pub const MAX_SAMPLE_COUNT: u32 = 1000;

/// How many buckets a rule's window has at most by default: 99 % of the limit in strict mode.
pub const DEFAULT_SAMPLE_COUNT: u32 = 100;

/// How many buckets a window per key has at most by default: each costs memory for each key.
pub const KEYED_SAMPLE_COUNT: u32 = 20;

/// A rule's interval by default.
pub(super) const DEFAULT_INTERVAL_MS: u64 = 1000;

/// The longest name of a rule or a resource, in bytes.
pub const MAX_NAME: usize = 256;

/// The largest number of Sentinel's type `int`.
pub(super) const MAX_INT: u32 = i32::MAX as u32;

/// What is wrong with a path of an attribute.
pub(crate) const BAD_PATH: &str = "is not a valid path; use a namespace and 1 to 7 keys, for a claim 1 to 6 names, for the filter state \
     one, each of 1 to 256 bytes without a zero byte";

/// How many rules may apply to one resource: each costs a decision per request.
pub const MAX_RULES_PER_RESOURCE: usize = 64;

/// How many system rules there may be: each request from outside is held against all of them.
pub const MAX_SYSTEM_RULES: usize = 64;

/// How many resources without rules of their own are kept apart; further ones share one window.
///
/// Sentinel: `Constants.MAX_SLOT_CHAIN_SIZE`, above which a resource is not checked at all.
pub const MAX_RESOURCES: usize = 6000;

/// Why a rule cannot be made.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
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
    /// The geometry does not make a window.
    Window(WindowError),
    /// More buckets than [`MAX_SAMPLE_COUNT`].
    ManyBuckets {
        /// The bucket count.
        sample_count: u32,
    },
    /// A warm-up takes from 1 to [`WarmUp::MAX`](super::WarmUp::MAX) seconds.
    BadPeriod {
        /// The period, in seconds.
        period_sec: u32,
    },
    /// A cold rule admits from a half of its count down to one part in [`WarmUp::MAX`](super::WarmUp::MAX).
    BadColdFactor {
        /// The factor.
        cold_factor: u32,
    },
    /// The queue is longer than [`MaxQueueing::MAX_MS`](super::MaxQueueing::MAX_MS).
    LongQueue {
        /// How long a request may wait, in milliseconds.
        max_queueing_ms: u64,
    },
    /// The ratio is below 0, above 1, or not a number.
    BadRatio {
        /// The ratio.
        ratio: f64,
    },
    /// A warm-up does not go with a key, nor does another strategy than [`Strategy::Direct`](super::Strategy::Direct).
    NotKeyed {
        /// The setting, as a document calls it.
        what: &'static str,
    },
    /// A cost that is known only at the end does not go with this setting: it needs a window, and requests that do not wait.
    NotHeld {
        /// The setting, as a document calls it.
        what: &'static str,
    },
    /// The regular expression is not valid, has syntax that is not supported, or is too large.
    BadRegex {
        /// The expression.
        regex: String,
        /// What is wrong in it.
        reason: String,
    },
    /// A regular expression needs the feature `regex`.
    NoRegex {
        /// The expression.
        regex: String,
    },
    /// The text is not a network of addresses, or not one that can be used here.
    BadCidr {
        /// The text.
        cidr: String,
        /// What is wrong with it, and the cure.
        fault: &'static str,
    },
    /// The path of an attribute has too few or too many names, or one that is empty, too long or has a zero byte.
    BadPath {
        /// The names, with slashes between them.
        path: String,
    },
    /// The pattern is not one of paths: a path, or, for a prefix, one with `/**` behind it.
    BadPattern {
        /// The pattern.
        pattern: String,
    },
    /// A whole number is out of range.
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
            RuleError::EmptyName => write!(f, "`` is not a valid name; use at least one character"),
            RuleError::LongName { length } => write!(
                f,
                "`{length}` bytes are too many for a name; use at most {MAX_NAME}"
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
                "`{}` is not a valid count; use a number from 0 to 9007199254740992",
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
                "`{period_sec}` is not a valid warm-up period; use 1 to {MAX_INT} seconds"
            ),
            RuleError::BadColdFactor { cold_factor } => {
                write!(
                    f,
                    "`{cold_factor}` is not a valid cold factor; use 2 to {MAX_INT}"
                )
            }
            RuleError::LongQueue { max_queueing_ms } => write!(
                f,
                "`{max_queueing_ms}` ms is too long for a queue; use at most {MAX_INT}"
            ),
            RuleError::BadRatio { ratio } => {
                write!(
                    f,
                    "`{}` is not a valid ratio; use a number from 0 to 1",
                    decimal(*ratio)
                )
            }
            RuleError::NotHeld { what } => write!(
                f,
                "`{what}` does not go with a `cost`; use `reject` and a window"
            ),
            RuleError::NotKeyed { what } => {
                write!(
                    f,
                    "`{what}` does not go with a `key`; leave one of them out"
                )
            }
            RuleError::BadRegex { regex, reason } => write!(
                f,
                "`{}` is not a valid regular expression ({reason}); correct it",
                escaped(regex, usize::MAX)
            ),
            RuleError::NoRegex { regex } => write!(
                f,
                "`{}` is a regular expression, which this build does not support; use another match strategy",
                escaped(regex, usize::MAX)
            ),
            RuleError::BadCidr { cidr, fault } => {
                write!(f, "`{}` {fault}", escaped(cidr, usize::MAX))
            }
            RuleError::BadPath { path } => {
                write!(f, "`{}` {BAD_PATH}", escaped(path, usize::MAX))
            }
            RuleError::BadPattern { pattern } => write!(
                f,
                "`{}` is not a pattern of paths; use one such as `/login`, or `/product/**` with `matchStrategy` 1",
                escaped(pattern, 64)
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

/// A name of printable ASCII: a header or a metric can carry it.
pub(super) fn printable_name(name: &str) -> Result<Rc<str>, RuleError> {
    if !is_printable(name) {
        return Err(RuleError::BadId { id: name.into() });
    }
    checked_name(name)
}

fn is_printable(name: &str) -> bool {
    name.bytes().all(|b| (b' '..=b'~').contains(&b))
}

pub(super) fn checked_name(name: &str) -> Result<Rc<str>, RuleError> {
    match name.len() {
        0 => Err(RuleError::EmptyName),
        length if length > MAX_NAME => Err(RuleError::LongName { length }),
        _ => Ok(name.into()),
    }
}

/// The name of a rule in replies, logs and metrics: printable ASCII, 1 to [`MAX_NAME`] bytes.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct RuleId(Rc<str>);

impl RuleId {
    /// The id `id`.
    ///
    /// # Errors
    ///
    /// If it is empty, too long, or has a character that is not printable ASCII.
    pub fn new(id: &str) -> Result<RuleId, RuleError> {
        printable_name(id).map(RuleId)
    }

    /// The same as [`RuleId::made_of`]. It shares its text with the resource if it is the name of that.
    pub(crate) fn made_for(target: &Target, text: &str) -> RuleId {
        match target {
            Target::Resource(name) if **name == *text && is_printable(text) => {
                RuleId(Rc::clone(name))
            }
            _ => RuleId::made_of(text),
        }
    }

    pub(crate) fn shared(&self) -> &Rc<str> {
        &self.0
    }

    /// The id of a rule in shadow mode whose default id is that of a rule in force.
    pub(crate) fn in_shadow(&self) -> RuleId {
        RuleId::made_of(&[self.as_str(), "/shadow"].concat())
    }

    /// An id made of any text: other characters than printable ASCII become `_`, and the id is cut at [`MAX_NAME`].
    pub(crate) fn made_of(text: &str) -> RuleId {
        if let Ok(id) = RuleId::new(text) {
            return id;
        }
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
    /// The resource of this name.
    Resource(Rc<str>),
    /// Each resource that no other rule of this kind names, in a window of its own: `*`.
    Each,
}

impl Target {
    /// The resource called `name`, or each if `name` is `*`.
    ///
    /// # Errors
    ///
    /// If the name is empty or too long.
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
    /// If it is negative, not finite, or above [`Count::MAX`].
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

    /// The valid count nearest to `count`.
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

    /// How many whole passes the count admits.
    #[inline]
    pub(crate) fn whole(self) -> u64 {
        self.whole
    }
}

/// A part of a whole: from 0 to 1.
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug)]
pub struct Ratio(f64);

impl Ratio {
    /// All of it.
    pub(crate) const WHOLE: Ratio = Ratio(1.0);

    /// The ratio `ratio`.
    ///
    /// # Errors
    ///
    /// If it is below 0, above 1, or not a number.
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

/// Which buckets count in a window. This decides what the window guarantees.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Counting {
    /// The current bucket and the n before it: never more than the count in any interval, at any alignment. At saturation
    /// n / (n + 1) of it passes in the long run.
    Strict,
    /// The current bucket and the n - 1 before it, as Sentinel counts: at most twice the count in any interval.
    Sentinel,
    /// As [`Counting::Sentinel`], plus the part of the leaving bucket that is still inside the interval: at most twice the count in any
    /// interval, close to it on average.
    Weighted,
}

/// What a rule limits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Grade {
    /// Passes in a window: the passes in it plus the cost of the request may be at most the count.
    Qps {
        /// The window's geometry: at most [`MAX_SAMPLE_COUNT`] buckets.
        window: RuleGeometry,
        /// What counts in it.
        counting: Counting,
    },
    /// Calls in flight: their number plus the cost of the request may be at most the count.
    Concurrency,
}

impl Grade {
    /// The grade as part of the state's identity. How a window counts is not part of it: it is always [`Counting::Strict`].
    pub(crate) fn of_state(self) -> Grade {
        match self {
            Grade::Qps { window, .. } => Grade::Qps {
                window,
                counting: Counting::Strict,
            },
            Grade::Concurrency => Grade::Concurrency,
        }
    }

    /// How the window counts. Calls in flight have no window and are counted strictly.
    pub(crate) fn counting(self) -> Counting {
        match self {
            Grade::Qps { counting, .. } => counting,
            Grade::Concurrency => Counting::Strict,
        }
    }
}

/// The geometry of a rule's window.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RuleGeometry(pub(super) Window);

impl RuleGeometry {
    /// `sample_count` buckets in `interval_ms`; without a number, the interval's largest divisor up to
    /// [`DEFAULT_SAMPLE_COUNT`].
    ///
    /// # Errors
    ///
    /// As [`Window::new`], and if there are more than [`MAX_SAMPLE_COUNT`] buckets.
    pub fn new(interval_ms: u64, sample_count: Option<u32>) -> Result<RuleGeometry, RuleError> {
        let finest = || Window::finest_sample_count(interval_ms, DEFAULT_SAMPLE_COUNT);
        match sample_count.unwrap_or_else(finest) {
            sample_count if sample_count > MAX_SAMPLE_COUNT => {
                Err(RuleError::ManyBuckets { sample_count })
            }
            sample_count => Ok(RuleGeometry(Window::new(interval_ms, sample_count)?)),
        }
    }

    /// A window for `interval_ms` that is not coarse for want of a divisor: of its largest divisor up to [`KEYED_SAMPLE_COUNT`], or, if
    /// that is below 10, of a few buckets more in a window that is up to 20 ms longer. What holds in any interval of its length
    /// holds in any of `interval_ms`.
    ///
    /// # Errors
    ///
    /// If the interval is zero or longer than [`Window::MAX_INTERVAL_MS`].
    pub fn covering(interval_ms: u64) -> Result<RuleGeometry, RuleError> {
        let window = Window::covering(interval_ms, KEYED_SAMPLE_COUNT)?;
        Ok(RuleGeometry(window))
    }

    /// The window.
    pub fn window(self) -> Window {
        self.0
    }

    /// Whether it has as many buckets as it can have, up to `most`.
    pub(super) fn is_finest(self, most: u32) -> bool {
        self.0.sample_count() == Window::finest_sample_count(self.0.interval_ms(), most)
    }
}

/// The origins that a rule applies to.
///
/// Sentinel: `limitApp`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LimitApp {
    /// All origins, together: `default`.
    Default,
    /// Each origin that no other rule of the resource names, separately: `other`.
    Other,
    /// The origin of this name.
    Origin(Rc<str>),
}

impl LimitApp {
    /// The origin called `name`, or what `default` and `other` stand for.
    ///
    /// # Errors
    ///
    /// If the name is empty or too long.
    pub fn new(name: &str) -> Result<LimitApp, RuleError> {
        match name {
            "default" => Ok(LimitApp::Default),
            "other" => Ok(LimitApp::Other),
            name => checked_name(name).map(LimitApp::Origin),
        }
    }
}

/// Whether a rule refuses requests.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Mode {
    /// It refuses them.
    #[default]
    Enforce,
    /// It decides and counts, and lets everything through.
    Shadow,
}

/// A span of time, in whole seconds if possible.
pub(crate) fn span(millis: u64) -> String {
    if millis > 0 && millis.is_multiple_of(1000) {
        format!("{}s", millis / 1000)
    } else {
        format!("{millis}ms")
    }
}
