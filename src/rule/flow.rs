//! Flow rules: how much of a resource may pass, and what happens at the threshold.

use super::behavior::{ControlBehavior, MaxQueueing, Strategy, WarmUp};
use super::cluster::ClusterConfig;
use super::cost::{Cost, REQUESTS, Unit};
use super::exempt::Exempt;
use super::key::{DEFAULT_MAX_KEYS, KeyedBy};
use super::parts::{
    Count, Counting, DEFAULT_INTERVAL_MS, DEFAULT_SAMPLE_COUNT, Grade, KEYED_SAMPLE_COUNT,
    LimitApp, Mode, RuleError, RuleGeometry, RuleId, Target, checked_name, span,
};
use crate::window::Window;
use std::rc::Rc;

/// What kind of resource a rule is for, where a route and an API have one name.
///
/// Sentinel: `SentinelGatewayConstants.RESOURCE_MODE_*`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ResourceMode {
    /// The route of that name, or whatever else a request is for by itself.
    Route,
    /// The API of that name.
    #[doc(alias = "customApiName")]
    Api,
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
    pub(crate) id: Option<RuleId>,
    target: Target,
    count: Count,
    grade: Grade,
    pub(crate) limit_app: LimitApp,
    strategy: Strategy,
    behavior: ControlBehavior,
    /// The default if the behaviour does not warm up.
    warm_up: WarmUp,
    /// The default if the behaviour does not throttle.
    max_queueing: MaxQueueing,
    pub(crate) mode: Mode,
    compat: bool,
    /// `None` if the rule limits all requests together.
    keyed: Option<Rc<KeyedBy>>,
    /// `None` if it leaves no requests alone.
    exempt: Option<Exempt>,
    /// `None` for requests.
    unit: Option<Unit>,
    /// `None` if the cost is known when a request begins.
    cost: Option<Rc<Cost>>,
    /// Of a route and an API with the name of its resource, the one that it is for; `None` for both.
    resource_mode: Option<ResourceMode>,
    /// `None` if its limit is each machine's own.
    pub(crate) cluster: Option<ClusterConfig>,
}

impl FlowRule {
    /// At most `count` passes a second for `resource` (`*`: each resource that no other rule names), in a strict window.
    ///
    /// # Errors
    ///
    /// If the name or the count is not valid.
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
            exempt: None,
            unit: None,
            cost: None,
            resource_mode: None,
            cluster: None,
        })
    }

    /// This rule, called `id`.
    #[must_use]
    pub fn with_id(mut self, id: RuleId) -> FlowRule {
        self.id = Some(id);
        self
    }

    /// This rule over `interval_ms` in `sample_count` buckets ([`RuleGeometry::new`]; of a rule with a key, where buckets cost
    /// memory, by default the interval's largest divisor up to [`KEYED_SAMPLE_COUNT`]). A limit on concurrency has no window
    /// and stays as it is.
    ///
    /// # Errors
    ///
    /// If that is not a valid window.
    pub fn per(
        mut self,
        interval_ms: u64,
        sample_count: Option<u32>,
    ) -> Result<FlowRule, RuleError> {
        self.set_window(interval_ms, sample_count)?;
        Ok(self)
    }

    /// What [`FlowRule::per`] does, in place: a document's reader changes a rule many times, and a rule is large.
    pub(crate) fn set_window(
        &mut self,
        interval_ms: u64,
        sample_count: Option<u32>,
    ) -> Result<(), RuleError> {
        let finest = || Window::finest_sample_count(interval_ms, self.finest());
        let window = RuleGeometry::new(interval_ms, Some(sample_count.unwrap_or_else(finest)))?;
        if let Grade::Qps { window: old, .. } = &mut self.grade {
            *old = window;
        }
        Ok(())
    }

    /// This rule, with another way to count. A limit on concurrency has no window and stays as it is.
    #[must_use]
    pub fn counting(mut self, counting: Counting) -> FlowRule {
        self.set_counting(counting);
        self
    }

    pub(crate) fn set_counting(&mut self, counting: Counting) {
        if let Grade::Qps { counting: old, .. } = &mut self.grade {
            *old = counting;
        }
    }

    /// This rule, as a limit on calls in flight, which refuses further calls. Each counts as what it costs in requests: the rule
    /// has no unit and no cost at the end.
    #[must_use]
    pub fn concurrency(mut self) -> FlowRule {
        self.set_concurrency();
        self
    }

    pub(crate) fn set_concurrency(&mut self) {
        self.set_behavior(
            ControlBehavior::Reject,
            WarmUp::default(),
            MaxQueueing::default(),
        );
        self.grade = Grade::Concurrency;
        self.unit = None;
        self.cost = None;
    }

    /// This rule, letting requests pass evenly, `count` in an interval: each delays later ones in proportion to its cost. A
    /// request that would have to wait for longer than `max_queueing` is refused. A limit on concurrency stays as it is.
    ///
    /// The rate may have a fraction; turns have a resolution of one nanosecond. A request that costs more than the count, or
    /// more than one if the count is below one, never passes.
    #[doc(alias = "RateLimiter")]
    #[must_use]
    pub fn throttle(self, max_queueing: MaxQueueing) -> FlowRule {
        self.behaving(ControlBehavior::Throttle, WarmUp::default(), max_queueing)
    }

    /// This rule, admitting less while it is cold. A limit on concurrency stays as it is, as does one with a key.
    ///
    /// It begins cold. While it is cold and its window is empty, a request passes whatever part of the count it costs.
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
    /// A request passes if it may for each of its keys ([`KeyValue`](super::KeyValue)); a missing part is a value like any
    /// other.
    ///
    /// # Errors
    ///
    /// If the rule has such a behaviour or strategy.
    ///
    /// Sentinel: `ParamFlowRule`.
    #[doc(alias = "ParamFlowRule")]
    pub fn keyed(mut self, by: KeyedBy) -> Result<FlowRule, RuleError> {
        self.set_key(by)?;
        Ok(self)
    }

    pub(crate) fn set_key(&mut self, by: KeyedBy) -> Result<(), RuleError> {
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
        self.grade = grade;
        self.keyed = Some(Rc::new(by));
        Ok(())
    }

    /// How many buckets its window has at most by default.
    fn finest(&self) -> u32 {
        match self.keyed {
            Some(_) => KEYED_SAMPLE_COUNT,
            None => DEFAULT_SAMPLE_COUNT,
        }
    }

    fn behaving(
        mut self,
        behavior: ControlBehavior,
        warm_up: WarmUp,
        max_queueing: MaxQueueing,
    ) -> FlowRule {
        self.set_behavior(behavior, warm_up, max_queueing);
        self
    }

    pub(crate) fn set_behavior(
        &mut self,
        behavior: ControlBehavior,
        warm_up: WarmUp,
        max_queueing: MaxQueueing,
    ) {
        let ignores = self.keyed.is_some() && behavior.warms_up()
            || self.cost.is_some() && behavior != ControlBehavior::Reject;
        if self.grade != Grade::Concurrency && !ignores {
            self.behavior = behavior;
            self.warm_up = warm_up;
            self.max_queueing = max_queueing;
        }
    }

    /// This rule, measuring the requests of `resource` instead of its own. (A throttle measures nothing: it
    /// paces its own resource.)
    ///
    /// # Errors
    ///
    /// If the name is empty or too long, or the rule has a key.
    pub fn relate(mut self, resource: &str) -> Result<FlowRule, RuleError> {
        self.set_strategy("relate", Strategy::Relate, resource)?;
        Ok(self)
    }

    /// This rule, applying only to requests that come in by `context`, and measuring these.
    ///
    /// # Errors
    ///
    /// If the name is empty or too long, or the rule has a key.
    pub fn chain(mut self, context: &str) -> Result<FlowRule, RuleError> {
        self.set_strategy("chain", Strategy::Chain, context)?;
        Ok(self)
    }

    pub(crate) fn set_strategy(
        &mut self,
        what: &'static str,
        strategy: fn(Rc<str>) -> Strategy,
        name: &str,
    ) -> Result<(), RuleError> {
        match (&self.keyed, &self.cost) {
            (Some(_), _) => return Err(RuleError::NotKeyed { what }),
            (None, Some(_)) => return Err(RuleError::NotHeld { what }),
            (None, None) => {}
        }
        self.strategy = strategy(checked_name(name)?);
        Ok(())
    }

    /// This rule, counting that unit. A limit on concurrency counts calls, and stays as it is.
    #[must_use]
    pub fn in_unit(mut self, unit: Unit) -> FlowRule {
        self.set_unit(unit);
        self
    }

    pub(crate) fn set_unit(&mut self, unit: Unit) {
        if self.grade != Grade::Concurrency {
            self.unit = Some(unit).filter(|unit| unit.as_str() != REQUESTS);
        }
    }

    /// This rule, whose cost is known only when a request ends: it holds an estimate until then.
    ///
    /// # Errors
    ///
    /// If the rule limits concurrency, makes requests wait, warms up, measures another resource or a context, or decides as
    /// Sentinel does.
    pub fn costing(mut self, cost: Cost) -> Result<FlowRule, RuleError> {
        self.set_cost(cost)?;
        Ok(self)
    }

    pub(crate) fn set_cost(&mut self, cost: Cost) -> Result<(), RuleError> {
        let what = match (self.grade, self.behavior, &self.strategy) {
            (Grade::Concurrency, ..) => Some("concurrency"),
            (_, ControlBehavior::WarmUp, _) => Some("warmUp"),
            (_, ControlBehavior::Throttle, _) => Some("throttle"),
            (_, ControlBehavior::WarmUpThrottle, _) => Some("warmUpThrottle"),
            (_, _, Strategy::Relate(_)) => Some("relate"),
            (_, _, Strategy::Chain(_)) => Some("chain"),
            _ if self.compat => Some("compat"),
            _ => None,
        };
        if let Some(what) = what {
            return Err(RuleError::NotHeld { what });
        }
        self.cost = Some(Rc::new(cost));
        Ok(())
    }

    /// This rule, deciding as Sentinel does: two buckets in a second, of which the current one and the previous one count. A call
    /// in flight counts as one, whatever it costs.
    ///
    /// With a key, a request that lacks a part passes, turns are in whole milliseconds, and counts have no fraction. (Its
    /// window stays as it is: Sentinel's bucket of tokens, which lets nearly twice the count through at once, is not available.)
    /// It has no cost at the end.
    #[must_use]
    pub fn sentinel(mut self) -> FlowRule {
        self.set_sentinel();
        self
    }

    pub(crate) fn set_sentinel(&mut self) {
        self.grade = match self.grade {
            grade if self.keyed.is_some() => grade,
            Grade::Qps { .. } => Grade::Qps {
                window: RuleGeometry(Window::of_buckets(2, 500)),
                counting: Counting::Sentinel,
            },
            Grade::Concurrency => Grade::Concurrency,
        };
        self.compat = true;
        self.cost = None;
    }

    /// This rule, applying only to requests of `limit_app`.
    #[must_use]
    pub fn for_origin(mut self, limit_app: LimitApp) -> FlowRule {
        self.limit_app = limit_app;
        self
    }

    /// This rule, for the route or for the API with the name of its resource alone.
    #[must_use]
    pub fn for_resource_mode(mut self, resource_mode: ResourceMode) -> FlowRule {
        self.resource_mode = Some(resource_mode);
        self
    }

    /// This rule, with one limit for all machines where there is a store ([`Engine::warnings`](crate::Engine::warnings)).
    #[must_use]
    pub fn in_cluster(mut self, cluster: ClusterConfig) -> FlowRule {
        self.cluster = Some(cluster);
        self
    }

    /// This rule, in this mode.
    #[must_use]
    pub fn in_mode(mut self, mode: Mode) -> FlowRule {
        self.mode = mode;
        self
    }

    /// This rule, which neither refuses nor counts the requests that are exempt.
    #[must_use]
    pub fn exempting(mut self, exempt: Exempt) -> FlowRule {
        self.set_exempt(exempt);
        self
    }

    pub(crate) fn set_exempt(&mut self, exempt: Exempt) {
        self.exempt = Some(exempt).filter(|exempt| !exempt.is_empty());
    }

    /// The id; by default made of the resource and of all that differs from the defaults. The count, the mode and how the window
    /// counts are not part of it: when they change, the rule goes on with its counts.
    pub fn id(&self) -> RuleId {
        let made = || RuleId::made_for(&self.target, &self.default_id());
        self.id.clone().unwrap_or_else(made)
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
        if self.warm_up.period_sec() != WarmUp::default().period_sec() {
            part(&format!("period={}s", self.warm_up.period_sec()));
        }
        if self.warm_up.cold_factor() != WarmUp::default().cold_factor() {
            part(&format!("cold={}", self.warm_up.cold_factor()));
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
        if let Some(unit) = &self.unit {
            part(&format!("unit={}", unit.as_str()));
        }
        if self.cost.is_some() {
            part("cost");
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
        if self.resource_mode == Some(ResourceMode::Api) {
            part("api");
        }
        id
    }

    /// Whether it counts the same requests as `other`, in the same windows.
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
            && self.exempt == other.exempt
            && self.unit == other.unit
            && self.cost == other.cost
            && self.resource_mode == other.resource_mode
            && key(self) == key(other)
    }

    /// Whether the id is the default.
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

    /// How it warms up, if it does.
    pub fn warming_up(&self) -> WarmUp {
        self.warm_up
    }

    /// How long a request may wait for its turn, if the rule throttles.
    #[doc(alias = "maxQueueingTimeMs")]
    pub fn max_queueing(&self) -> MaxQueueing {
        self.max_queueing
    }

    /// The key; `None` if it limits all requests together.
    #[doc(alias = "paramItem")]
    pub fn keyed_by(&self) -> Option<&KeyedBy> {
        self.keyed.as_deref()
    }

    /// The requests that it leaves alone.
    pub fn exempt(&self) -> Option<&Exempt> {
        self.exempt.as_ref()
    }

    /// What it counts: [`REQUESTS`] by default.
    pub fn unit(&self) -> &str {
        self.unit.as_ref().map_or(REQUESTS, Unit::as_str)
    }

    /// How much a request holds until it ends; `None` if its cost is known when it begins.
    pub fn cost(&self) -> Option<&Cost> {
        self.cost.as_deref()
    }

    /// Whether it is for routes or for APIs alone; `None` if it is for both.
    pub fn resource_mode(&self) -> Option<ResourceMode> {
        self.resource_mode
    }

    /// How its limit is to be one for all machines; `None` if it is each machine's own.
    pub fn cluster(&self) -> Option<&ClusterConfig> {
        self.cluster.as_ref()
    }

    /// Whether it decides as Sentinel does.
    pub fn is_compat(&self) -> bool {
        self.compat
    }

    /// Whether it refuses requests.
    pub fn mode(&self) -> Mode {
        self.mode
    }
}
