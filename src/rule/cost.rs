//! What a rule counts of a request, and a cost that is known only when the request ends.

use super::actual::Actual;
use super::attribute::number_of;
use super::key::KeyPart;
use super::parts::{Count, Ratio, RuleError, printable_name};
use std::rc::Rc;

/// What a rule counts by default.
pub const REQUESTS: &str = "requests";

/// What a rule counts: a request has a cost for each unit.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Unit(Rc<str>);

impl Unit {
    /// The unit called `name`.
    ///
    /// # Errors
    ///
    /// If the name is empty, too long, or has a character that is not printable ASCII: headers tell it.
    pub fn new(name: &str) -> Result<Unit, RuleError> {
        printable_name(name).map(Unit)
    }

    /// Its name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The most that one request may hold of a count.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum AtMost {
    /// So much.
    Amount(u64),
    /// This share of the count.
    Share(Ratio),
}

impl AtMost {
    /// In units of `count`: whole, at least 1, and never more than a `count` of 1 or more.
    fn of(self, count: Count) -> u64 {
        let most = match self {
            AtMost::Amount(most) => most,
            AtMost::Share(share) => (share.get() * count.get()) as u64,
        };
        most.min(count.whole()).max(1)
    }
}

/// A cost that is known only when a request ends. Until then the request holds an estimate, which counts in full; then the
/// actual cost counts from that instant on, and what is held beyond it is given back.
///
/// ```
/// use leapgate::rule::{AtMost, Cost, FlowRule, KeyPart, Ratio, Unit};
///
/// let cost = Cost::estimated(2000).read_from(KeyPart::Header("x-max-tokens".into())).at_most(AtMost::Share(Ratio::new(0.5)?));
/// let tokens = FlowRule::new("chat", 20_000.0)?.per(60_000, None)?.in_unit(Unit::new("tokens")?).costing(cost)?;
/// assert_eq!(tokens.id().to_string(), "chat/60s/unit=tokens/cost");
/// # Ok::<(), leapgate::rule::RuleError>(())
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct Cost {
    pub(crate) estimate: Option<u64>,
    pub(crate) part: Option<KeyPart>,
    pub(crate) at_most: Option<AtMost>,
    pub(crate) actual: Option<Actual>,
}

impl Cost {
    /// Without an estimate: a request holds what its caller says it costs ([`Request::cost_of`](crate::Request::cost_of)), or
    /// 1.
    pub fn at_end() -> Cost {
        Cost {
            estimate: None,
            part: None,
            at_most: None,
            actual: None,
        }
    }

    /// A request holds `estimate`, if neither it nor its caller says anything else.
    pub fn estimated(estimate: u64) -> Cost {
        Cost {
            estimate: Some(estimate),
            ..Cost::at_end()
        }
    }

    /// This cost, whose estimate is that part of the request: a number, rounded up. Where it is missing or not a number from 0
    /// to 2^53, the other estimate holds.
    #[must_use]
    pub fn read_from(self, part: KeyPart) -> Cost {
        Cost {
            part: Some(part),
            ..self
        }
    }

    /// This cost, of which a request holds `at_most` so much; by default half of the count. A larger estimate would let a
    /// first large request never pass. What a request costs beyond it is charged when it ends.
    #[must_use]
    pub fn at_most(self, at_most: AtMost) -> Cost {
        Cost {
            at_most: Some(at_most),
            ..self
        }
    }

    /// This cost, which a proxy reads there when the request ends. Without it, what the caller settles counts
    /// ([`Entry::settle`](crate::Entry::settle)).
    #[must_use]
    pub fn settled_at(self, actual: Actual) -> Cost {
        Cost {
            actual: Some(actual),
            ..self
        }
    }

    /// Where a proxy reads it when the request ends.
    pub fn actual(&self) -> Option<&Actual> {
        self.actual.as_ref()
    }

    /// Whether the rule itself says how to estimate it.
    pub(crate) fn estimates(&self) -> bool {
        self.estimate.is_some() || self.part.is_some()
    }

    /// The part of a request that estimates its cost.
    pub fn part(&self) -> Option<&KeyPart> {
        self.part.as_ref()
    }

    /// How much a request holds of a `count`: at least 1. `said` is the cost that its caller says, `read` what the part says.
    pub(crate) fn held(&self, said: Option<u64>, read: Option<u64>, count: Count) -> u64 {
        let at_most = self
            .at_most
            .map_or_else(|| (count.whole() / 2).max(1), |at_most| at_most.of(count));
        let estimate = said.or(read).or(self.estimate);
        estimate.map_or(1, |estimate| estimate.clamp(1, at_most))
    }
}

/// The number that `text` is: decimal, from 0 to 2^53, rounded up. `None` for anything else.
pub(crate) fn amount(text: &[u8]) -> Option<u64> {
    let number: f64 = number_of(text)?;
    (0.0..=Count::MAX)
        .contains(&number)
        .then(|| number.ceil() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_is_a_number_that_a_count_can_be() {
        let rows: [(&str, Option<u64>); 14] = [
            ("0", Some(0)),
            ("412", Some(412)),
            (" 7 ", Some(7)),
            ("0.1", Some(1)),
            ("1e3", Some(1000)),
            ("9007199254740992", Some(1 << 53)),
            ("9007199254740994", None),
            ("1e400", None),
            ("-1", None),
            ("NaN", None),
            ("inf", None),
            ("", None),
            ("many", None),
            ("1,000", None),
        ];
        for (text, expected) in rows {
            assert_eq!(amount(text.as_bytes()), expected, "{text}");
        }
        assert_eq!(amount(b"\xff"), None);
    }

    #[test]
    fn what_is_held_is_bounded_by_a_share_of_the_count_and_never_less_than_1() {
        let share = |share| AtMost::Share(Ratio::new(share).unwrap());
        let plain = Cost::estimated(2000);
        let rows = [
            // cost, said, read, count, held
            (plain.clone(), None, None, 10_000.0, 2000),
            (plain.clone(), None, Some(300), 10_000.0, 300),
            (plain.clone(), Some(40), Some(300), 10_000.0, 40),
            (plain.clone(), None, Some(9000), 10_000.0, 5000),
            (plain.clone(), None, Some(0), 10_000.0, 1),
            (plain.clone(), None, None, 1.0, 1),
            (plain.clone(), None, None, 0.0, 1),
            (
                plain.clone().at_most(share(0.1)),
                None,
                None,
                10_000.0,
                1000,
            ),
            (plain.clone().at_most(share(0.0)), None, None, 10_000.0, 1),
            (
                plain.clone().at_most(share(1.0)),
                None,
                Some(99_999),
                10_000.0,
                10_000,
            ),
            (
                plain.clone().at_most(AtMost::Amount(700)),
                None,
                None,
                10_000.0,
                700,
            ),
            (
                plain.clone().at_most(AtMost::Amount(70_000)),
                None,
                Some(99_999),
                10_000.0,
                10_000,
            ),
            (
                plain.clone().at_most(AtMost::Amount(0)),
                None,
                None,
                10_000.0,
                1,
            ),
            (Cost::at_end(), None, None, 10_000.0, 1),
            (Cost::at_end(), Some(80), None, 100.0, 50),
        ];
        for (cost, said, read, count, held) in rows {
            let count = Count::new(count).unwrap();
            assert_eq!(
                cost.held(said, read, count),
                held,
                "{cost:?} {said:?} {read:?} {count:?}"
            );
        }
    }
}
