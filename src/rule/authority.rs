//! Authority rules: the origins that may use a resource.

use super::parts::{Mode, RuleError, RuleId, Target, checked_name};
use std::rc::Rc;

/// How many origins an authority rule may list.
pub const MAX_LISTED_ORIGINS: usize = 10_000;

/// What an authority rule's list of origins means.
///
/// Sentinel: `strategy` 0 and 1.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AuthorityStrategy {
    /// The origins that may pass: `white`.
    #[doc(alias = "AUTHORITY_WHITE")]
    White,
    /// The origins that may not pass: `black`.
    #[doc(alias = "AUTHORITY_BLACK")]
    Black,
}

/// Which origins may use a resource.
///
/// Origins are compared as they are, every byte of them; `default` and `other` are names like any other here. A request
/// without an origin passes whatever the list says, as in Sentinel: if a white list is to refuse such requests, the caller
/// gives them an origin.
///
/// Of several rules for a resource, all apply.
///
/// Sentinel: `AuthorityRule`.
///
/// ```
/// use leapgate::rule::{AuthorityRule, AuthorityStrategy};
///
/// let rule = AuthorityRule::new("admin", "ops, ci", AuthorityStrategy::White)?;
/// assert_eq!(["ops", "ci", "app", ""].map(|origin| rule.admits(origin)), [true, true, false, true]);
/// assert_eq!(rule.id().as_str(), "admin/white");
/// # Ok::<(), leapgate::rule::RuleError>(())
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
    /// A rule for `resource` (`*`: each resource that no other authority rule names) about the origins in `limit_app`, separated
    /// by commas. Space around a name is not part of it; empty names are skipped.
    ///
    /// # Errors
    ///
    /// If the resource's name is not valid, if there are no origins or more than [`MAX_LISTED_ORIGINS`], or if an origin's name
    /// is too long.
    pub fn new(
        resource: &str,
        limit_app: &str,
        strategy: AuthorityStrategy,
    ) -> Result<AuthorityRule, RuleError> {
        let names = limit_app.split(',').map(str::trim);
        let names = names.filter(|name| !name.is_empty());
        let number = names.clone().count();
        if number == 0 {
            return Err(RuleError::EmptyName);
        }
        if number > MAX_LISTED_ORIGINS {
            return Err(RuleError::OutOfRange {
                number: number as u64,
                least: 1,
                most: MAX_LISTED_ORIGINS as u64,
            });
        }
        let mut origins = names.map(checked_name).collect::<Result<Vec<_>, _>>()?;
        sort(&mut origins);
        origins.dedup();
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
    pub fn with_id(mut self, id: RuleId) -> AuthorityRule {
        self.id = Some(id);
        self
    }

    /// This rule, in this mode.
    #[must_use]
    pub fn in_mode(mut self, mode: Mode) -> AuthorityRule {
        self.mode = mode;
        self
    }

    /// The id; by default, the resource and the strategy.
    pub fn id(&self) -> RuleId {
        self.id.clone().unwrap_or_else(|| {
            let strategy = match self.strategy {
                AuthorityStrategy::White => "white",
                AuthorityStrategy::Black => "black",
            };
            RuleId::made_of(&format!("{}/{strategy}", self.target.as_str()))
        })
    }

    /// Its mode, its id, and whether the id was given.
    pub(crate) fn called(&self) -> (Mode, RuleId, bool) {
        (self.mode, self.id(), self.id.is_some())
    }

    /// Which resource it is for.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// What its list means.
    pub fn strategy(&self) -> AuthorityStrategy {
        self.strategy
    }

    /// Its list, in ascending order.
    #[doc(alias = "limitApp")]
    pub fn origins(&self) -> impl Iterator<Item = &str> {
        self.origins.iter().map(|origin| &**origin)
    }

    /// Whether it refuses requests.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Whether a request of `origin` may pass; an empty `origin` means that the request has none.
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

/// A heapsort: O(n log n) comparisons. (The standard library's sort would add three kilobytes to a module.)
fn sort<T: Ord>(items: &mut [T]) {
    // Heapify from the middle down, then move the greatest item to the end of the heap, one by one.
    let (mut root, mut end) = (items.len() / 2, items.len());
    while end > 1 {
        if root > 0 {
            root -= 1;
        } else {
            end -= 1;
            items.swap(0, end);
        }
        let heap = items.get_mut(..end).unwrap_or_default();
        let mut parent = root;
        loop {
            let left = 2 * parent + 1;
            let child = left + usize::from(is_less(heap, left, left + 1));
            if !is_less(heap, parent, child) {
                break;
            }
            heap.swap(parent, child);
            parent = child;
        }
    }
}

/// Whether the item at `one` is less than the item at `other`; false if there is no item at `other`.
#[inline(never)]
fn is_less<T: Ord>(items: &[T], one: usize, other: usize) -> bool {
    items.get(one) < items.get(other)
}

#[cfg(test)]
mod tests {
    use super::sort;
    use std::cell::Cell;
    use std::cmp::Ordering;

    /// A number that counts how often it is compared.
    #[derive(Debug)]
    struct Compared<'a>(u64, &'a Cell<u64>);

    impl Ord for Compared<'_> {
        fn cmp(&self, other: &Self) -> Ordering {
            self.1.set(self.1.get() + 1);
            self.0.cmp(&other.0)
        }
    }

    impl PartialOrd for Compared<'_> {
        fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
            Some(self.cmp(other))
        }
    }

    impl PartialEq for Compared<'_> {
        fn eq(&self, other: &Self) -> bool {
            self.cmp(other).is_eq()
        }
    }

    impl Eq for Compared<'_> {}

    #[test]
    fn names_are_sorted_in_a_number_of_steps_that_grows_as_n_log_n() {
        let orders: [fn(u64, u64) -> u64; 5] = [
            |i, _| i,
            |i, n| n - i,
            |i, _| i % 7,
            |_, _| 3,
            |i, n| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) % n,
        ];
        for n in [0_u64, 1, 2, 3, 4, 5, 100, 1000, 100_000] {
            for order in orders {
                let compared = Cell::new(0);
                let mut items: Vec<_> = (0..n).map(|i| Compared(order(i, n), &compared)).collect();
                sort(&mut items);
                let most = 3 * n * u64::from(u64::BITS - n.leading_zeros());
                assert!(compared.get() <= most, "{n}: {} steps", compared.get());
                assert!(items.is_sorted());
                assert_eq!(items.len() as u64, n);
            }
        }
    }
}
