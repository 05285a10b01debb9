//! What the rules of one resource ask of a request.

use crate::rule::KeyPart;

/// The parts of a request that the rules of one resource read, each part once: requests bring the values in this order.
#[derive(Default)]
pub(crate) struct KeyParts(pub(crate) Vec<KeyPart>);

impl KeyParts {
    /// Where the part stands here; a new one is added.
    pub(crate) fn place_of(&mut self, part: &KeyPart) -> usize {
        let known = self.0.iter().position(|known| known == part);
        known.unwrap_or_else(|| {
            self.0.push(part.clone());
            self.0.len() - 1
        })
    }
}
