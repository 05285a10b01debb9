//! Counts that requests bring along, such as those of plans.

use super::attribute::{Attribute, AttributeSource, number_of};
use super::parts::Count;

/// Where a rule with a key finds the count of a request's key: in an attribute, which clients do not choose.
///
/// ```
/// use leapgate::rule::{Attribute, AttributeSource, Count, CountFrom, FlowRule, KeyPart, KeyedBy};
///
/// let plan = Attribute::new(AttributeSource::Metadata, &["plans", "requests"])?.as_number();
/// let plan = CountFrom::new(plan).at_most(Count::new(10_000.0)?);
/// let by = KeyedBy::new([KeyPart::Header("x-api-key".into())])?.with_count_from(plan);
/// let api = FlowRule::new("api", 100.0)?.keyed(by)?; // 100 for a request without a plan
/// # Ok::<(), leapgate::rule::RuleError>(())
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct CountFrom {
    attribute: Attribute,
    at_most: Count,
}

impl CountFrom {
    /// The number that this attribute is. If a request lacks it, or it is not a valid count, the rule's own count holds. In typed
    /// metadata 0 is the same as a number that is not set, and is missing.
    pub fn new(attribute: Attribute) -> CountFrom {
        CountFrom {
            attribute,
            at_most: Count::nearest(Count::MAX),
        }
    }

    /// The same, but never more than `most`.
    #[must_use]
    pub fn at_most(self, most: Count) -> CountFrom {
        CountFrom {
            at_most: most,
            ..self
        }
    }

    /// The attribute that is read.
    pub fn attribute(&self) -> &Attribute {
        &self.attribute
    }

    /// The highest count that is taken from a request.
    pub fn most(&self) -> Count {
        self.at_most
    }

    /// The count that a request brings along as this value of the attribute; `None` if it is not valid.
    pub(crate) fn read(&self, value: &[u8]) -> Option<Count> {
        let number = number_of(value)?;
        let can_be_unset = self.attribute.source() == AttributeSource::TypedMetadata;
        if number > Count::MAX || can_be_unset && number == 0.0 {
            return None;
        }
        Some(Count::nearest(number.min(self.at_most.get())))
    }
}
