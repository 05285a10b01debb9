//! System rules: limits on all inbound calls together, whatever their resource.

use super::parts::{Count, Mode, Ratio, RuleError, RuleId};
use crate::stats::node::Node;
use crate::time::Timestamp;

/// A limit of a system rule, in the order of checks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum SystemLimit {
    /// Inbound passes per second.
    Qps,
    /// Inbound calls in flight.
    Thread,
    /// The average response time.
    Rt,
    /// The machine's load, and more calls in flight than it is estimated to handle.
    Load,
    /// More calls in flight than the machine is estimated to handle, at any load.
    Bbr,
    /// How busy the processor is.
    Cpu,
}

impl SystemLimit {
    /// All limits, in the order of checks.
    pub const ALL: [SystemLimit; 6] = [
        SystemLimit::Qps,
        SystemLimit::Thread,
        SystemLimit::Rt,
        SystemLimit::Load,
        SystemLimit::Bbr,
        SystemLimit::Cpu,
    ];

    /// The limit by Sentinel's name; `bbr` is ours.
    ///
    /// Sentinel: `SystemBlockException.getLimitType`.
    pub fn as_str(self) -> &'static str {
        match self {
            SystemLimit::Qps => "qps",
            SystemLimit::Thread => "thread",
            SystemLimit::Rt => "rt",
            SystemLimit::Load => "load",
            SystemLimit::Bbr => "bbr",
            SystemLimit::Cpu => "cpu",
        }
    }
}

/// The numbers of all inbound calls that system rules look at.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Inbound {
    /// Passes per second.
    pub pass_qps: f64,
    /// Calls in flight, without the one to be decided.
    pub threads: u64,
    /// Average response time in milliseconds.
    pub avg_rt: f64,
    /// The rate at which calls would complete if every bucket did as well as the best. Read only where
    /// [`SystemRule::estimates`].
    pub max_success_qps: f64,
    /// Shortest response time in milliseconds. Read only where [`SystemRule::estimates`].
    pub min_rt: f64,
}

impl Inbound {
    /// The numbers of a node.
    ///
    /// Sentinel: `Constants.ENTRY_NODE`.
    pub fn of(node: &impl Node, now: Timestamp) -> Inbound {
        Inbound {
            pass_qps: node.pass_qps(now),
            threads: node.cur_thread_num(),
            avg_rt: node.avg_rt(now),
            max_success_qps: node.max_success_qps(now),
            min_rt: node.min_rt(now),
        }
    }

    /// As [`Inbound::of`], but only the numbers in `reads`; the others are 0.
    #[inline]
    pub(crate) fn read(node: &impl Node, reads: Reads, now: Timestamp) -> Inbound {
        let threads = node.cur_thread_num();
        let number = |is_read: bool, read: &dyn Fn() -> f64| if is_read { read() } else { 0.0 };
        // One call in flight never is too many: the estimate is a walk through the buckets.
        let estimates = reads.estimate && threads > 1;
        Inbound {
            pass_qps: number(reads.pass_qps, &|| node.pass_qps(now)),
            threads,
            avg_rt: number(reads.avg_rt, &|| node.avg_rt(now)),
            max_success_qps: number(estimates, &|| node.max_success_qps(now)),
            min_rt: number(estimates, &|| node.min_rt(now)),
        }
    }

    /// Whether more calls are in flight than the machine is estimated to handle: its best rate times its shortest response
    /// time (Little's law). One call in flight never is too many.
    ///
    /// The estimate is low when there is little traffic: its floors are one completion a bucket and one millisecond.
    ///
    /// Sentinel: `SystemRuleManager.checkBbr`, negated.
    #[doc(alias = "checkBbr")]
    pub fn exceeds_estimate(&self) -> bool {
        self.threads > 1 && self.threads as f64 > self.max_success_qps * self.min_rt / 1000.0
    }
}

/// Which of the numbers in [`Inbound`] rules look at. (All look at the calls in flight.)
#[derive(Clone, Copy, Default)]
pub(crate) struct Reads {
    pass_qps: bool,
    avg_rt: bool,
    estimate: bool,
}

impl Reads {
    /// Those that `rules` look at.
    pub(crate) fn of<'a>(rules: impl Iterator<Item = &'a SystemRule>) -> Reads {
        rules.fold(Reads::default(), |reads, rule| Reads {
            pass_qps: reads.pass_qps || rule.qps.is_some(),
            avg_rt: reads.avg_rt || rule.avg_rt.is_some(),
            estimate: reads.estimate || rule.estimates(),
        })
    }
}

/// What the host knows about its machine; a host in a sandbox knows nothing.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Gauges {
    /// The load average of the last minute.
    pub load: Option<f64>,
    /// How busy the processor is, from 0 to 1.
    pub cpu: Option<f64>,
}

/// A limit on all inbound calls together.
///
/// A negative threshold means no threshold, as in Sentinel. If there are several rules, each applies: the lowest threshold of
/// each kind counts.
///
/// With [`SystemRule::bbr`], load and processor are no limits by themselves: above their threshold, calls are held to what the
/// machine is estimated to handle ([`Inbound::exceeds_estimate`]). If a rule has neither threshold, or the host knows neither
/// value, the estimate always holds. Without [`SystemRule::bbr`] they mean the same as in Sentinel: the load triggers the
/// estimate, the processor refuses by itself, and a value that the host does not know is never exceeded.
///
/// Sentinel: `SystemRule`.
///
/// ```
/// use leapgate::backend::{Gauges, Inbound};
/// use leapgate::rule::{SystemLimit, SystemRule};
///
/// let rule = SystemRule::new().with_qps(5000.0)?.with_max_thread(800.0)?;
/// let busy = Inbound { pass_qps: 120.0, threads: 800, ..Inbound::default() };
/// let exceeded = SystemRule::first_exceeded([&rule], &busy, &Gauges::default(), 1);
/// assert_eq!(exceeded.map(|(limit, rule)| (limit, rule.id().to_string())), Some((SystemLimit::Thread, "system/qps/maxThread".into())));
/// # Ok::<(), leapgate::rule::RuleError>(())
/// ```
#[derive(Clone, PartialEq, Debug, Default)]
pub struct SystemRule {
    id: Option<RuleId>,
    qps: Option<Count>,
    max_thread: Option<Count>,
    avg_rt: Option<Count>,
    highest_system_load: Option<Count>,
    highest_cpu_usage: Option<Ratio>,
    bbr: bool,
    mode: Mode,
    compat: bool,
}

/// A negative number means no threshold.
fn threshold<T>(
    number: f64,
    new: impl Fn(f64) -> Result<T, RuleError>,
) -> Result<Option<T>, RuleError> {
    if number < 0.0 {
        Ok(None)
    } else {
        new(number).map(Some)
    }
}

impl SystemRule {
    /// A rule that limits nothing yet.
    pub fn new() -> SystemRule {
        SystemRule::default()
    }

    /// This rule, called `id`.
    #[must_use]
    pub fn with_id(mut self, id: RuleId) -> SystemRule {
        self.id = Some(id);
        self
    }

    /// This rule: at most so many inbound passes per second, the cost of the request included.
    ///
    /// # Errors
    ///
    /// If that is not a valid count.
    pub fn with_qps(mut self, qps: f64) -> Result<SystemRule, RuleError> {
        self.qps = threshold(qps, Count::new)?;
        Ok(self)
    }

    /// This rule: at most so many inbound calls in flight, the request included. A rule that decides as Sentinel does leaves the
    /// request out: one more gets in.
    ///
    /// # Errors
    ///
    /// If that is not a valid count.
    pub fn with_max_thread(mut self, max_thread: f64) -> Result<SystemRule, RuleError> {
        self.max_thread = threshold(max_thread, Count::new)?;
        Ok(self)
    }

    /// This rule: no call while the average response time of inbound calls is above so many milliseconds.
    ///
    /// # Errors
    ///
    /// If that is not a valid count.
    pub fn with_avg_rt(mut self, avg_rt: f64) -> Result<SystemRule, RuleError> {
        self.avg_rt = threshold(avg_rt, Count::new)?;
        Ok(self)
    }

    /// This rule: above this load, no more calls in flight than the machine is estimated to handle.
    ///
    /// # Errors
    ///
    /// If that is not a valid count.
    pub fn with_highest_system_load(mut self, load: f64) -> Result<SystemRule, RuleError> {
        self.highest_system_load = threshold(load, Count::new)?;
        Ok(self)
    }

    /// This rule: no call while the processor is busier than this part of the time, from 0 to 1.
    ///
    /// # Errors
    ///
    /// If that is not a valid ratio. (Sentinel ignores a ratio above 1.)
    pub fn with_highest_cpu_usage(mut self, cpu: f64) -> Result<SystemRule, RuleError> {
        self.highest_cpu_usage = threshold(cpu, Ratio::new)?;
        Ok(self)
    }

    /// This rule, holding calls in flight to the number that the machine is estimated to handle, whether or not the host knows
    /// its load.
    ///
    /// sentinel-golang: `Strategy: BBR`.
    #[must_use]
    pub fn bbr(mut self) -> SystemRule {
        self.bbr = true;
        self
    }

    /// This rule, in this mode.
    #[must_use]
    pub fn in_mode(mut self, mode: Mode) -> SystemRule {
        self.mode = mode;
        self
    }

    /// This rule, deciding as Sentinel does.
    #[must_use]
    pub fn sentinel(mut self) -> SystemRule {
        self.compat = true;
        self
    }

    /// The id; by default `system` and the names of its limits.
    pub fn id(&self) -> RuleId {
        self.id
            .clone()
            .unwrap_or_else(|| RuleId::made_of(&self.default_id()))
    }

    fn default_id(&self) -> String {
        let mut id = String::from("system");
        let parts = [
            (self.qps.is_some(), "/qps"),
            (self.max_thread.is_some(), "/maxThread"),
            (self.avg_rt.is_some(), "/avgRt"),
            (self.highest_system_load.is_some(), "/load"),
            (self.highest_cpu_usage.is_some(), "/cpu"),
            (self.bbr, "/bbr"),
            (self.compat, "/compat=sentinel"),
        ];
        parts
            .iter()
            .filter(|(has, _)| *has)
            .for_each(|(_, part)| id.push_str(part));
        id
    }

    /// Its mode, its id, and whether the id was given.
    pub(crate) fn called(&self) -> (Mode, RuleId, bool) {
        (self.mode, self.id(), self.id.is_some())
    }

    /// Whether it refuses requests.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Whether it has no threshold at all.
    pub fn is_empty(&self) -> bool {
        let counts = [
            self.qps,
            self.max_thread,
            self.avg_rt,
            self.highest_system_load,
        ];
        counts.iter().all(Option::is_none) && self.highest_cpu_usage.is_none() && !self.bbr
    }

    /// Whether it has this limit.
    pub fn limits(&self, limit: SystemLimit) -> bool {
        match limit {
            SystemLimit::Qps => self.qps.is_some(),
            SystemLimit::Thread => self.max_thread.is_some(),
            SystemLimit::Rt => self.avg_rt.is_some(),
            SystemLimit::Load => self.highest_system_load.is_some(),
            SystemLimit::Bbr => self.bbr,
            SystemLimit::Cpu => self.highest_cpu_usage.is_some(),
        }
    }

    /// Whether it needs the estimate of what the machine can handle, that is [`Inbound::max_success_qps`] and [`Inbound::min_rt`].
    pub fn estimates(&self) -> bool {
        self.bbr || self.highest_system_load.is_some()
    }

    /// The first limit, in the order of [`SystemLimit`], that a request of this cost would exceed, and the first rule with that
    /// limit; `None` if the request may pass. Only inbound calls are held to system rules.
    ///
    /// Sentinel: `SystemRuleManager.checkSystem`.
    #[doc(alias = "checkSystem")]
    pub fn first_exceeded<'a>(
        rules: impl IntoIterator<Item = &'a SystemRule, IntoIter: Clone>,
        inbound: &Inbound,
        gauges: &Gauges,
        cost: u64,
    ) -> Option<(SystemLimit, &'a SystemRule)> {
        let rules = rules.into_iter();
        SystemLimit::ALL.into_iter().find_map(|limit| {
            rules
                .clone()
                .find(|rule| rule.exceeded(limit, inbound, gauges, cost))
                .map(|rule| (limit, rule))
        })
    }

    /// Whether a request of this cost would exceed any of its limits.
    #[inline]
    pub(crate) fn refuses(&self, inbound: &Inbound, gauges: &Gauges, cost: u64) -> bool {
        let exceeds = |limit| self.exceeded(limit, inbound, gauges, cost);
        SystemLimit::ALL.into_iter().any(exceeds)
    }

    #[inline]
    fn exceeded(&self, limit: SystemLimit, inbound: &Inbound, gauges: &Gauges, cost: u64) -> bool {
        let above = |number: f64, most: Option<Count>| most.is_some_and(|most| number > most.get());
        let load = gauges
            .load
            .zip(self.highest_system_load)
            .map(|(load, highest)| load > highest.get());
        let cpu = gauges
            .cpu
            .zip(self.highest_cpu_usage)
            .map(|(cpu, highest)| cpu > highest.get());
        match limit {
            SystemLimit::Qps => above(inbound.pass_qps + cost as f64, self.qps),
            SystemLimit::Thread if self.compat => above(inbound.threads as f64, self.max_thread),
            SystemLimit::Thread => above(inbound.threads as f64 + 1.0, self.max_thread),
            SystemLimit::Rt => above(inbound.avg_rt, self.avg_rt),
            SystemLimit::Load => load == Some(true) && inbound.exceeds_estimate(),
            SystemLimit::Bbr => {
                self.bbr && load.is_none() && cpu.is_none() && inbound.exceeds_estimate()
            }
            SystemLimit::Cpu => cpu == Some(true) && (!self.bbr || inbound.exceeds_estimate()),
        }
    }
}
