//! Which requests the rules of a resource leave alone.

use crate::engine::key_parts::KeyParts;
use crate::rule::{FlowRule, KeyPart, KeyValue};

/// Where the values stand among those of a request by which a rule leaves requests alone. `None` if it leaves none alone.
#[derive(Default)]
pub(crate) struct Exempted(Option<Box<[usize]>>);

impl Exempted {
    /// Those of `rule`. To be made when the keys of all rules are among the `parts`: a client's address is handed in whole,
    /// whatever part of it is a key.
    pub(crate) fn of(rule: &FlowRule, parts: &mut KeyParts) -> Exempted {
        let place = |part: &KeyPart| {
            let is_address = |part: &KeyPart| matches!(part, KeyPart::ClientIp { .. });
            let address = parts.0.iter().position(is_address);
            let address = address.filter(|_| is_address(part));
            address.unwrap_or_else(|| parts.place_of(part))
        };
        Exempted(
            rule.exempt()
                .map(|exempt| exempt.parts().iter().map(place).collect()),
        )
    }

    /// Whether it leaves none alone.
    pub(crate) fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// Whether `rule` leaves a request of that origin alone that has these values.
    #[inline]
    pub(crate) fn holds(&self, rule: &FlowRule, values: &[KeyValue<'_>], origin: &str) -> bool {
        let places = self.0.as_deref();
        places.is_some_and(|places| {
            let at = |part| values.get(*places.get(part)?).copied();
            let exempt = rule.exempt();
            exempt.is_some_and(|exempt| exempt.holds(&|part| at(part).unwrap_or_default(), origin))
        })
    }
}
