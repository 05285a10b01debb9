//! What a request holds of a count until its cost is known.

/// A hold: an amount that counts in full until the request ends, and then gives way to what the request has cost.
#[derive(Clone, Copy)]
pub(crate) struct Held {
    /// What counts until then.
    pub(crate) amount: u64,
    /// The actual cost, once it is known.
    actual: Option<u64>,
}

impl Held {
    pub(crate) fn new(amount: u64) -> Held {
        Held {
            amount,
            actual: None,
        }
    }

    /// The actual cost is `n`. Returns by how much that is more than what is held: debt.
    pub(crate) fn settle(&mut self, n: u64) -> u64 {
        self.actual = Some(n);
        n.saturating_sub(self.amount)
    }

    /// What is charged at the end: an unknown cost is the estimate.
    pub(crate) fn cost(&self) -> u64 {
        self.actual.unwrap_or(self.amount)
    }
}
