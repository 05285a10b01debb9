//! Ban rules: a client that is refused too often is refused for a while.

use super::behavior::MaxQueueing;
use super::flow::FlowRule;
use super::key::KeyedBy;
use super::parts::{Grade, Mode, RuleError, RuleId, Target, span};

/// Once a key has been refused so often within an interval, it is refused for a time.
///
/// Refusals by flow rules and authority rules of the same resource count. What breakers and system rules refuse says nothing of
/// the client, and refusals by bans prolong no ban. The interval is that of a strict window: refusals may count for up to one
/// bucket, a twentieth of it, longer. A key that is refused again after its ban, while the earlier refusals still count, is
/// banned again at once.
///
/// ```
/// use leapgate::rule::{BanRule, FlowRule, KeyPart, KeyedBy, Mode};
/// use leapgate::Rules;
///
/// let client = || KeyedBy::new([KeyPart::CLIENT_IP]);
/// let rules = Rules {
///     flow: vec![FlowRule::new("login", 5.0)?.keyed(client()?)?],
///     ban: vec![BanRule::new("login", client()?, 10, 60_000, 600_000)?], // 10 refusals in a minute: ten minutes
///     ..Rules::default()
/// };
/// assert_eq!(rules.ban[0].id().as_str(), "login/60s/key=clientIp/ban=600s");
/// # Ok::<(), leapgate::rule::RuleError>(())
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct BanRule {
    id: Option<RuleId>,
    mode: Mode,
    ban_ms: u64,
    /// Counts refusals: the rule admits as many as make a ban.
    refusals: FlowRule,
    /// Paces bans, one in the time that a ban lasts (GCRA): a key is banned while the next one would have to wait.
    bans: FlowRule,
}

impl BanRule {
    /// A ban on `resource` (`*`: on each that no other ban rule names): after `refusals` of a key within `interval_ms`, for
    /// `ban_ms`.
    ///
    /// # Errors
    ///
    /// If the name, the number of refusals (from 1) or one of the times is not valid.
    pub fn new(
        resource: &str,
        by: KeyedBy,
        refusals: u32,
        interval_ms: u64,
        ban_ms: u64,
    ) -> Result<BanRule, RuleError> {
        if refusals == 0 {
            return Err(RuleError::OutOfRange {
                number: 0,
                least: 1,
                most: u32::MAX.into(),
            });
        }
        let counts = FlowRule::new(resource, refusals.into())?;
        let paces = FlowRule::new(resource, 1.0)?.throttle(MaxQueueing::from_millis(0)?);
        Ok(BanRule {
            id: None,
            mode: Mode::Enforce,
            ban_ms,
            refusals: counts.keyed(by.clone())?.per(interval_ms, None)?,
            bans: paces.keyed(by)?.per(ban_ms, Some(1))?,
        })
    }

    /// This rule, called `id`.
    #[must_use]
    pub fn with_id(mut self, id: RuleId) -> BanRule {
        self.id = Some(id);
        self
    }

    /// This rule, in this mode. In shadow mode it refuses nothing, and counts what it would have refused.
    #[must_use]
    pub fn in_mode(mut self, mode: Mode) -> BanRule {
        self.mode = mode;
        self
    }

    /// The id; by default the resource, the interval, the key and the length of the ban.
    pub fn id(&self) -> RuleId {
        let default = || format!("{}/ban={}", self.refusals.id(), span(self.ban_ms));
        self.id
            .clone()
            .unwrap_or_else(|| RuleId::made_of(&default()))
    }

    /// Its mode, its id, and whether the id was given.
    pub(crate) fn called(&self) -> (Mode, RuleId, bool) {
        (self.mode, self.id(), self.id.is_some())
    }

    /// Which resource it is for.
    pub fn target(&self) -> &Target {
        self.refusals.target()
    }

    /// How many refusals of a key ban it.
    pub fn count(&self) -> u64 {
        self.refusals.count().get() as u64
    }

    /// Within which time, in milliseconds.
    pub fn interval_ms(&self) -> u64 {
        match self.refusals.grade() {
            Grade::Qps { window, .. } => window.window().interval_ms(),
            Grade::Concurrency => 0,
        }
    }

    /// For how long, in milliseconds.
    pub fn ban_ms(&self) -> u64 {
        self.ban_ms
    }

    /// What it tells clients apart by.
    pub fn keyed_by(&self) -> Option<&KeyedBy> {
        self.refusals.keyed_by()
    }

    /// Whether it refuses.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The rule that counts refusals.
    pub(crate) fn refusals(&self) -> &FlowRule {
        &self.refusals
    }

    /// The rule that paces bans.
    pub(crate) fn bans(&self) -> &FlowRule {
        &self.bans
    }
}
