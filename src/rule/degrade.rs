//! Degrade rules: when a circuit breaks, and for how long.

use super::parts::{Count, Mode, Ratio, RuleError, RuleGeometry, RuleId, Target};
use crate::window::Window;

/// How many buckets a breaker's window has at most by default.
pub const DEFAULT_DEGRADE_SAMPLE_COUNT: u32 = 10;

/// How many calls must have completed in a breaker's window by default.
pub const DEFAULT_MIN_REQUEST_AMOUNT: u64 = 5;

/// The most probes that a rule may let through while half-open.
pub const MAX_PROBES: u8 = 100;

/// A breaker's interval by default.
const DEFAULT_STAT_INTERVAL_MS: u64 = 1000;

/// What opens a breaker.
///
/// Sentinel: `grade` 0, 1 and 2, with `count` and `slowRatioThreshold`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum DegradeGrade {
    /// The ratio of slow calls: `slowRatio`.
    #[doc(alias = "DEGRADE_GRADE_RT")]
    #[doc(alias = "SlowRequestRatio")]
    SlowRatio {
        /// A call that took more than this many milliseconds is slow, whether it failed or not.
        max_rt_ms: Count,
        /// The threshold.
        ratio: Ratio,
    },
    /// The ratio of failed calls: `errorRatio`.
    #[doc(alias = "DEGRADE_GRADE_EXCEPTION_RATIO")]
    ErrorRatio {
        /// The threshold.
        ratio: Ratio,
    },
    /// The number of failed calls: `errorCount`.
    #[doc(alias = "DEGRADE_GRADE_EXCEPTION_COUNT")]
    ErrorCount {
        /// The threshold.
        count: Count,
    },
}

/// What a breaker counts against a resource.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Kind {
    SlowRatio,
    ErrorRatio,
    ErrorCount,
}

impl Kind {
    fn as_str(self) -> &'static str {
        match self {
            Kind::SlowRatio => "slowRatio",
            Kind::ErrorRatio => "errorRatio",
            Kind::ErrorCount => "errorCount",
        }
    }
}

/// What a threshold means.
///
/// A breaker never opens unless a call was bad, whatever its threshold.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Comparison {
    /// The breaker opens above it (`>`), and at a ratio of 1, since no ratio is above 1.
    ///
    /// The default, and Sentinel's: rules that are carried over mean what they meant. There a ratio of 1 is reached by slow
    /// calls alone, and a breaker with an error ratio of 1 never opens.
    #[default]
    Above,
    /// The breaker opens at it (`>=`), as in sentinel-golang and sentinel-rust.
    AtLeast,
}

/// The identity of a breaker's state, besides its rule's id: with the same geometry the state goes on, whatever else of the
/// rule changes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BreakerGeometry {
    pub(crate) kind: Kind,
    pub(crate) window: Window,
    pub(crate) compat: bool,
}

impl BreakerGeometry {
    /// The window whose completions are counted.
    pub fn window(self) -> Window {
        self.window
    }

    /// What is counted: `slowRatio`, `errorRatio` or `errorCount`.
    pub fn grade(self) -> &'static str {
        self.kind.as_str()
    }

    /// Whether the rule decides as Sentinel does.
    pub fn is_sentinel(self) -> bool {
        self.compat
    }

    /// How many buckets before the current one count: the buckets of the window and the one that is leaving it; none if the
    /// rule decides as Sentinel does.
    pub(crate) fn buckets_before(self) -> u64 {
        if self.compat {
            0
        } else {
            self.window.sample_count().into()
        }
    }
}

/// A circuit breaker on a resource.
///
/// Sentinel: `DegradeRule`.
///
/// ```
/// use leapgate::rule::{DegradeGrade, DegradeRule};
///
/// let slow = DegradeRule::new("pay", DegradeGrade::slow_ratio(200.0, 0.5)?, 10_000)?;
/// let errors = DegradeRule::new("pay", DegradeGrade::error_count(20.0)?, 5_000)?.per(60_000, None)?.with_probes(3)?;
/// let ids = [slow.id(), errors.id()];
/// assert_eq!(ids.map(|id| id.to_string()), ["pay/slowRatio", "pay/errorCount/60s"]);
/// # Ok::<(), leapgate::rule::RuleError>(())
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct DegradeRule {
    id: Option<RuleId>,
    target: Target,
    grade: DegradeGrade,
    time_window_ms: u64,
    min_request_amount: u64,
    window: RuleGeometry,
    probes: u8,
    comparison: Comparison,
    mode: Mode,
    compat: bool,
}

impl DegradeGrade {
    /// The ratio of calls that took more than `max_rt_ms`.
    ///
    /// # Errors
    ///
    /// If the time is not a valid count, or the ratio is not valid.
    pub fn slow_ratio(max_rt_ms: f64, ratio: f64) -> Result<DegradeGrade, RuleError> {
        Ok(DegradeGrade::SlowRatio {
            max_rt_ms: Count::new(max_rt_ms)?,
            ratio: Ratio::new(ratio)?,
        })
    }

    /// The ratio of failed calls.
    ///
    /// # Errors
    ///
    /// If the ratio is not valid.
    pub fn error_ratio(ratio: f64) -> Result<DegradeGrade, RuleError> {
        Ratio::new(ratio).map(|ratio| DegradeGrade::ErrorRatio { ratio })
    }

    /// The number of failed calls.
    ///
    /// # Errors
    ///
    /// If the count is not valid.
    pub fn error_count(count: f64) -> Result<DegradeGrade, RuleError> {
        Count::new(count).map(|count| DegradeGrade::ErrorCount { count })
    }

    fn kind(self) -> Kind {
        match self {
            DegradeGrade::SlowRatio { .. } => Kind::SlowRatio,
            DegradeGrade::ErrorRatio { .. } => Kind::ErrorRatio,
            DegradeGrade::ErrorCount { .. } => Kind::ErrorCount,
        }
    }
}

fn whole_number(number: u64, least: u64, most: u64) -> Result<u64, RuleError> {
    if (least..=most).contains(&number) {
        Ok(number)
    } else {
        Err(RuleError::OutOfRange {
            number,
            least,
            most,
        })
    }
}

fn geometry(interval_ms: u64, sample_count: Option<u32>) -> Result<RuleGeometry, RuleError> {
    let finest = || Window::finest_sample_count(interval_ms, DEFAULT_DEGRADE_SAMPLE_COUNT);
    RuleGeometry::new(interval_ms, Some(sample_count.unwrap_or_else(finest)))
}

impl DegradeRule {
    /// A breaker on `resource` (`*`: on each resource that no other degrade rule names) that stays open for `time_window_ms`.
    ///
    /// It counts the calls that completed within a second, needs at least 5 of them, and closes after one successful probe.
    ///
    /// # Errors
    ///
    /// If the name is not valid, or the time is zero or longer than [`Window::MAX_INTERVAL_MS`].
    pub fn new(
        resource: &str,
        grade: DegradeGrade,
        time_window_ms: u64,
    ) -> Result<DegradeRule, RuleError> {
        Ok(DegradeRule {
            id: None,
            target: Target::new(resource)?,
            grade,
            time_window_ms: whole_number(time_window_ms, 1, Window::MAX_INTERVAL_MS)?,
            min_request_amount: DEFAULT_MIN_REQUEST_AMOUNT,
            window: geometry(DEFAULT_STAT_INTERVAL_MS, None)?,
            probes: 1,
            comparison: Comparison::default(),
            mode: Mode::Enforce,
            compat: false,
        })
    }

    /// This rule, called `id`.
    #[must_use]
    pub fn with_id(mut self, id: RuleId) -> DegradeRule {
        self.id = Some(id);
        self
    }

    /// This rule, counting the calls that completed within `stat_interval_ms`, in `sample_count` buckets; by default the
    /// interval's largest divisor up to [`DEFAULT_DEGRADE_SAMPLE_COUNT`]. A rule that decides as Sentinel does has one bucket.
    ///
    /// # Errors
    ///
    /// As [`RuleGeometry::new`].
    pub fn per(
        mut self,
        stat_interval_ms: u64,
        sample_count: Option<u32>,
    ) -> Result<DegradeRule, RuleError> {
        self.window = geometry(stat_interval_ms, sample_count)?;
        Ok(self)
    }

    /// This rule, opening only if the window has at least `min_request_amount` calls.
    ///
    /// # Errors
    ///
    /// If that is zero, or more than 2^53.
    pub fn needing(mut self, min_request_amount: u64) -> Result<DegradeRule, RuleError> {
        self.min_request_amount = whole_number(min_request_amount, 1, Count::MAX as u64)?;
        Ok(self)
    }

    /// This rule, letting `probes` calls through while half-open, all of which must succeed. A rule that decides as Sentinel
    /// does has one probe.
    ///
    /// # Errors
    ///
    /// If that is zero, or more than [`MAX_PROBES`].
    pub fn with_probes(mut self, probes: u32) -> Result<DegradeRule, RuleError> {
        let probes = whole_number(probes.into(), 1, MAX_PROBES.into())?;
        self.probes = probes as u8;
        Ok(self)
    }

    /// This rule, with another meaning of its threshold. A rule that decides as Sentinel does has [`Comparison::Above`].
    #[must_use]
    pub fn comparing(mut self, comparison: Comparison) -> DegradeRule {
        self.comparison = comparison;
        self
    }

    /// This rule, in this mode.
    #[must_use]
    pub fn in_mode(mut self, mode: Mode) -> DegradeRule {
        self.mode = mode;
        self
    }

    /// This rule, deciding as Sentinel does: one bucket, which starts again with each interval; above the threshold; one
    /// probe, and the first call that completes while the breaker is half-open decides.
    #[must_use]
    pub fn sentinel(mut self) -> DegradeRule {
        self.compat = true;
        self
    }

    /// The id; by default made of the resource, the grade and the geometry. Values that can change while the state goes on are
    /// not part of it.
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
        part(self.grade.kind().as_str());
        let window = self.window.window();
        match window.interval_ms() {
            DEFAULT_STAT_INTERVAL_MS => {}
            millis if millis.is_multiple_of(1000) => part(&format!("{}s", millis / 1000)),
            millis => part(&format!("{millis}ms")),
        }
        let finest =
            Window::finest_sample_count(window.interval_ms(), DEFAULT_DEGRADE_SAMPLE_COUNT);
        if self.compat {
            part("compat=sentinel");
        } else if window.sample_count() != finest {
            part(&format!("{}buckets", window.sample_count()));
        }
        id
    }

    /// Its mode, its id, and whether the id was given.
    pub(crate) fn called(&self) -> (Mode, RuleId, bool) {
        (self.mode, self.id(), self.id.is_some())
    }

    /// Which resource it is for.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// What opens it.
    pub fn grade(&self) -> DegradeGrade {
        self.grade
    }

    /// How long it stays open before it lets a probe through, in milliseconds; also how long it waits for a probe.
    #[doc(alias = "timeWindow")]
    #[doc(alias = "RetryTimeoutMs")]
    pub fn time_window_ms(&self) -> u64 {
        self.time_window_ms
    }

    pub(crate) fn time_window_nanos(&self) -> u64 {
        self.time_window_ms * 1_000_000
    }

    /// How many calls must be in the window.
    pub fn min_request_amount(&self) -> u64 {
        self.min_request_amount
    }

    /// How many probes it lets through while half-open.
    #[doc(alias = "ProbeNum")]
    pub fn probes(&self) -> u8 {
        if self.compat { 1 } else { self.probes }
    }

    /// What its threshold means.
    pub fn comparison(&self) -> Comparison {
        if self.compat {
            Comparison::Above
        } else {
            self.comparison
        }
    }

    /// Whether it refuses requests.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Whether it decides as Sentinel does.
    pub fn is_sentinel(&self) -> bool {
        self.compat
    }

    /// The identity of its state, besides the rule's id.
    pub fn geometry(&self) -> BreakerGeometry {
        let window = self.window.window();
        BreakerGeometry {
            kind: self.grade.kind(),
            window: if self.compat {
                Window::new(window.interval_ms(), 1).unwrap_or(window)
            } else {
                window
            },
            compat: self.compat,
        }
    }

    /// Whether a call that took `rt_ms` milliseconds and `failed` or not counts against the resource.
    pub(crate) fn is_bad(&self, rt_ms: u64, failed: bool) -> bool {
        match self.grade {
            // Sentinel rounds the threshold to a whole millisecond, halves up.
            DegradeGrade::SlowRatio { max_rt_ms, .. } if self.compat => {
                rt_ms as f64 > (max_rt_ms.get() + 0.5).floor()
            }
            DegradeGrade::SlowRatio { max_rt_ms, .. } => rt_ms as f64 > max_rt_ms.get(),
            DegradeGrade::ErrorRatio { .. } | DegradeGrade::ErrorCount { .. } => failed,
        }
    }

    /// Whether `total` completed calls, of which `bad` count against the resource, open the breaker.
    pub(crate) fn is_tripped_by(&self, total: u64, bad: u64) -> bool {
        if total < self.min_request_amount || bad == 0 {
            return false;
        }
        // Sentinel opens at a ratio of 1 for slow calls only.
        let at_one = |ratio: Ratio, forgotten| ratio.get() >= 1.0 && !(self.compat && forgotten);
        let ratio = || bad as f64 / total as f64;
        let (measured, threshold, reached) = match self.grade {
            DegradeGrade::SlowRatio { ratio: most, .. } => {
                (ratio(), most.get(), at_one(most, false))
            }
            DegradeGrade::ErrorRatio { ratio: most } => (ratio(), most.get(), at_one(most, true)),
            DegradeGrade::ErrorCount { count } => (bad as f64, count.get(), false),
        };
        if reached || self.comparison() == Comparison::AtLeast {
            measured >= threshold
        } else {
            measured > threshold
        }
    }
}
