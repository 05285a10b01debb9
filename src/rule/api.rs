//! APIs: requests that rules name together, whatever their routes.

use super::key::{KeyPart, Regex};
use super::parts::{RuleError, Target, checked_name};
use std::rc::Rc;

/// How many APIs a document may define.
pub const MAX_API_DEFINITIONS: usize = 10_000;

/// How many items an API may have.
pub const MAX_PREDICATE_ITEMS: usize = 1000;

/// How many conditions an item may have besides its pattern.
pub const MAX_CONDITIONS: usize = 16;

/// The longest pattern of paths, in bytes.
pub const MAX_PATTERN: usize = 1024;

/// Requests that rules name together, whatever their routes: those that match at least one of the items.
///
/// Sentinel: `ApiDefinition`.
#[derive(Clone, PartialEq, Debug)]
pub struct ApiDefinition {
    name: Rc<str>,
    items: Vec<PredicateItem>,
}

impl ApiDefinition {
    /// The API called `name`, of the requests that one of the `items` matches. Without items there are none.
    ///
    /// # Errors
    ///
    /// If the name is empty, too long or `*`, or there are more items than [`MAX_PREDICATE_ITEMS`].
    #[doc(alias = "apiName")]
    pub fn new(
        name: &str,
        items: impl Into<Vec<PredicateItem>>,
    ) -> Result<ApiDefinition, RuleError> {
        let (name, items) = (checked_name(name)?, items.into());
        if Target::new(&name)? == Target::Each {
            return Err(RuleError::EmptyName);
        }
        if items.len() > MAX_PREDICATE_ITEMS {
            return Err(RuleError::OutOfRange {
                number: items.len() as u64,
                least: 0,
                most: MAX_PREDICATE_ITEMS as u64,
            });
        }
        Ok(ApiDefinition { name, items })
    }

    /// The name that rules have as their resource.
    pub fn name(&self) -> &Rc<str> {
        &self.name
    }

    /// The items.
    #[doc(alias = "predicateItems")]
    pub fn items(&self) -> &[PredicateItem] {
        &self.items
    }
}

/// Which paths an item matches.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum PathMatch {
    /// This path.
    Exact(Box<str>),
    /// This path, and all below it.
    Prefix(Box<str>),
    /// Those that the expression matches as a whole.
    Regex(Regex),
}

/// Requests with paths of one pattern, which meet further conditions.
///
/// Which spellings of a path are the same path is said in [`api`](crate::api).
///
/// Sentinel: `ApiPathPredicateItem`, which has no conditions.
///
/// ```
/// use leapgate::rule::{KeyPart, PredicateItem};
///
/// let login = PredicateItem::exact("/login")?.with(KeyPart::Method, Some("POST"))?;
/// let products = PredicateItem::prefix("/product/**")?;
/// # Ok::<(), leapgate::rule::RuleError>(())
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct PredicateItem {
    pub(crate) path: PathMatch,
    pub(crate) conditions: Vec<(KeyPart, Option<Box<str>>)>,
}

impl PredicateItem {
    /// Requests with this path: `/login`.
    ///
    /// # Errors
    ///
    /// If it is not a path: it begins with `/`, has no query, no parameters and no wildcards, and at most [`MAX_PATTERN`] bytes.
    pub fn exact(path: &str) -> Result<PredicateItem, RuleError> {
        Ok(PredicateItem::of(PathMatch::Exact(checked(path, path)?)))
    }

    /// Requests with this path or one below it: of `/product/**`, also `/product`.
    ///
    /// # Errors
    ///
    /// If it is not a path with `/**` behind it.
    pub fn prefix(pattern: &str) -> Result<PredicateItem, RuleError> {
        let path = pattern
            .strip_suffix("**")
            .filter(|path| path.ends_with('/'));
        let path = checked(path.unwrap_or_default(), pattern)?;
        Ok(PredicateItem::of(PathMatch::Prefix(path)))
    }

    /// Requests whose path the expression matches as a whole, in its shortest spelling. Capitals are capitals to it.
    pub fn regex(regex: Regex) -> PredicateItem {
        PredicateItem::of(PathMatch::Regex(regex))
    }

    fn of(path: PathMatch) -> PredicateItem {
        PredicateItem {
            path,
            conditions: Vec::new(),
        }
    }

    /// This item, for requests with that `value` of the `part`; `None`: with any value. Capitals are small letters in methods and
    /// hosts alone.
    ///
    /// # Errors
    ///
    /// If it has [`MAX_CONDITIONS`] already.
    pub fn with(mut self, part: KeyPart, value: Option<&str>) -> Result<PredicateItem, RuleError> {
        if self.conditions.len() == MAX_CONDITIONS {
            return Err(RuleError::OutOfRange {
                number: MAX_CONDITIONS as u64 + 1,
                least: 0,
                most: MAX_CONDITIONS as u64,
            });
        }
        self.conditions.push((part, value.map(Into::into)));
        Ok(self)
    }
}

/// `path`, of that `pattern`, if it is one.
fn checked(path: &str, pattern: &str) -> Result<Box<str>, RuleError> {
    let is_special = |byte: u8| b"*?#;\\{}".contains(&byte);
    if !path.starts_with('/') || pattern.len() > MAX_PATTERN || path.bytes().any(is_special) {
        return Err(RuleError::BadPattern {
            pattern: pattern.into(),
        });
    }
    Ok(path.into())
}
