//! Authority rules: who may ask for a resource at all.

use crate::rule::{Mode, RuleError, RuleId, Target, checked_name};
use std::rc::Rc;

/// What an authority rule's list of origins is.
///
/// Sentinel: `strategy` 0 and 1.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AuthorityStrategy {
    /// Those who may: `white`.
    #[doc(alias = "AUTHORITY_WHITE")]
    White,
    /// Those who may not: `black`.
    #[doc(alias = "AUTHORITY_BLACK")]
    Black,
}

/// Which origins may ask for a resource.
///
/// Origins are compared as they are, every byte of them; `default` and `other` are names like any other here. A request of
/// no origin in particular passes, whatever the list, as in Sentinel: where a list of those who may is to keep out whoever
/// does not say who it is, the caller has to name an origin for those.
///
/// Of several rules for a resource, all apply.
///
/// Sentinel: `AuthorityRule`.
///
/// ```
/// use leapgate::{AuthorityRule, AuthorityStrategy};
///
/// let rule = AuthorityRule::new("admin", "ops, ci", AuthorityStrategy::White)?;
/// assert_eq!(["ops", "ci", "app", ""].map(|origin| rule.admits(origin)), [true, true, false, true]);
/// assert_eq!(rule.id().as_str(), "admin/white");
/// # Ok::<(), leapgate::RuleError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AuthorityRule {
    id: Option<RuleId>,
    target: Target,
    strategy: AuthorityStrategy,
    /// In ascending order.
    origins: Rc<[Rc<str>]>,
    mode: Mode,
}

impl AuthorityRule {
    /// A rule for `resource` (`*`: each that no other authority rule names) about the origins in `limit_app`, which are
    /// separated by commas; space around a name is no part of it, and an empty name is none.
    ///
    /// # Errors
    ///
    /// Where the name of the resource is none, where there is no origin at all, and where the name of one is too long.
    pub fn new(
        resource: &str,
        limit_app: &str,
        strategy: AuthorityStrategy,
    ) -> Result<AuthorityRule, RuleError> {
        // In order, each once. (To sort them would be three kilobytes of a module.)
        let mut origins = Vec::new();
        let names = limit_app.split(',').map(str::trim);
        for name in names.filter(|name| !name.is_empty()) {
            let name = checked_name(name)?;
            if let Err(place) = origins.binary_search(&name) {
                origins.insert(place, name);
            }
        }
        if origins.is_empty() {
            return Err(RuleError::EmptyName);
        }
        Ok(AuthorityRule {
            id: None,
            target: Target::new(resource)?,
            strategy,
            origins: origins.into(),
            mode: Mode::Enforce,
        })
    }

    /// This rule, called `id`.
    #[must_use]
    pub fn with_id(self, id: RuleId) -> AuthorityRule {
        AuthorityRule {
            id: Some(id),
            ..self
        }
    }

    /// This rule, in that mode.
    #[must_use]
    pub fn in_mode(self, mode: Mode) -> AuthorityRule {
        AuthorityRule { mode, ..self }
    }

    /// The id; where none was given, the resource and the strategy.
    pub fn id(&self) -> RuleId {
        self.id.clone().unwrap_or_else(|| {
            let strategy = match self.strategy {
                AuthorityStrategy::White => "white",
                AuthorityStrategy::Black => "black",
            };
            RuleId::made_of(&format!("{}/{strategy}", self.target.as_str()))
        })
    }

    /// Its mode, its id, and whether that was given.
    pub(crate) fn called(&self) -> (Mode, RuleId, bool) {
        (self.mode, self.id(), self.id.is_some())
    }

    /// Which resource it is for.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// What its list is.
    pub fn strategy(&self) -> AuthorityStrategy {
        self.strategy
    }

    /// Its list, in ascending order.
    #[doc(alias = "limitApp")]
    pub fn origins(&self) -> impl Iterator<Item = &str> {
        self.origins.iter().map(|origin| &**origin)
    }

    /// Whether it refuses.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Whether a request of that origin, empty for none in particular, may pass.
    ///
    /// Sentinel: `AuthorityRuleChecker.passCheck`.
    #[doc(alias = "passCheck")]
    #[inline]
    pub fn admits(&self, origin: &str) -> bool {
        origin.is_empty() || self.lists(origin) == (self.strategy == AuthorityStrategy::White)
    }

    fn lists(&self, origin: &str) -> bool {
        self.origins
            .binary_search_by(|listed| (**listed).cmp(origin))
            .is_ok()
    }
}
