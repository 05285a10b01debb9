//! A flow rule of an engine of such rules alone.

use crate::rule::{
    ControlBehavior, Counting, FlowRule, KeyPart, KeyedBy, MaxQueueing, REQUESTS, RuleError,
    RuleId, Unit, WarmUp,
};

/// A rule of a [`FlowEngine`](crate::flow::FlowEngine).
pub struct FlowLimit(pub(super) FlowRule);

/// What such a rule may say.
///
/// ```
/// use leapgate::flow::FlowTerms;
/// use leapgate::rule::ControlBehavior;
///
/// let mail = FlowTerms { count: 0.5, behavior: ControlBehavior::Throttle, ..FlowTerms::of("mail") };
/// assert_eq!(mail.limit()?.id().as_str(), "mail/throttle");
/// # Ok::<(), leapgate::rule::RuleError>(())
/// ```
pub struct FlowTerms<'a> {
    /// The name of the resource.
    pub resource: &'a str,
    /// The id; empty for the default one.
    pub id: &'a str,
    /// What it counts.
    pub unit: &'a str,
    /// How much passes.
    pub count: f64,
    /// The length of the window in milliseconds, and the number of its buckets, unless that is the default; `None` for a limit on calls
    /// in flight.
    pub window: Option<(u64, Option<u32>)>,
    /// How the window counts.
    pub counting: Counting,
    /// What happens at the threshold.
    pub behavior: ControlBehavior,
    /// How it warms up, if it does.
    pub warm_up: WarmUp,
    /// For how long requests wait at most, if they do.
    pub max_queueing: MaxQueueing,
    /// The parts of its key; none if it limits all requests together. Values are told apart as they are: an address is not cut to
    /// a network.
    pub key: Vec<KeyPart>,
    /// How many keys have states of their own, unless that is the default.
    pub max_keys: Option<usize>,
    /// What may burst beyond the count of each key.
    pub burst: u64,
}

impl<'a> FlowTerms<'a> {
    /// A limit of 1 a second on all requests for `resource`.
    pub fn of(resource: &'a str) -> FlowTerms<'a> {
        FlowTerms {
            resource,
            id: "",
            unit: REQUESTS,
            count: 1.0,
            window: Some((1000, None)),
            counting: Counting::Strict,
            behavior: ControlBehavior::Reject,
            warm_up: WarmUp::default(),
            max_queueing: MaxQueueing::default(),
            key: Vec::new(),
            max_keys: None,
            burst: 0,
        }
    }

    /// The rule.
    ///
    /// # Errors
    ///
    /// If it is not valid.
    pub fn limit(self) -> Result<FlowLimit, RuleError> {
        let mut rule = FlowRule::new(self.resource, self.count)?;
        if !self.id.is_empty() {
            rule.id = Some(RuleId::new(self.id)?);
        }
        match self.window {
            Some((interval_ms, sample_count)) => rule.set_window(interval_ms, sample_count)?,
            None => rule.set_concurrency(),
        }
        rule.set_counting(self.counting);
        if !self.key.is_empty() {
            let mut by = KeyedBy::new(self.key)?.with_burst(self.burst);
            if let Some(max_keys) = self.max_keys {
                by = by.with_max_keys(max_keys)?;
            }
            rule.set_key(by)?;
        }
        if self.behavior != ControlBehavior::Reject {
            rule.set_behavior(self.behavior, self.warm_up, self.max_queueing);
        }
        if self.unit != REQUESTS {
            rule.set_unit(Unit::new(self.unit)?);
        }
        Ok(FlowLimit(rule))
    }
}

impl FlowLimit {
    /// Its id; by default made of the resource and of what differs from the defaults.
    pub fn id(&self) -> RuleId {
        self.0.id()
    }
}
