//! How much of a key is asked for, which sizes the next lease.

/// What was asked for in two spans of time, of which the first is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Demand {
    /// When the second span began, in milliseconds.
    since: u64,
    /// What was asked for in each.
    asked: [u64; 2],
}

impl Demand {
    pub(super) const fn new(now_ms: u64) -> Demand {
        Demand {
            since: now_ms,
            asked: [0; 2],
        }
    }

    /// `n` are asked for; a span lasts so many milliseconds.
    pub(super) fn add(&mut self, n: u64, now_ms: u64, span_ms: u64) {
        let passed = now_ms.saturating_sub(self.since);
        if passed >= span_ms {
            let last = if passed < 2 * span_ms {
                self.asked[1]
            } else {
                0
            };
            *self = Demand {
                since: now_ms,
                asked: [last, 0],
            };
        }
        self.asked[1] = self.asked[1].saturating_add(n);
    }

    /// How much will be asked for in so many milliseconds, if it goes on like that: nothing, if nothing was for two spans.
    pub(super) fn expected(&self, in_ms: u64, now_ms: u64, span_ms: u64) -> u64 {
        let passed = now_ms.saturating_sub(self.since);
        if passed >= 2 * span_ms {
            return 0;
        }
        let asked = self.asked[0].saturating_add(self.asked[1]);
        let span = span_ms.saturating_add(passed).max(1);
        // In two parts: a product of 128 bits would take more code than the rest.
        let whole = (asked / span).saturating_mul(in_ms);
        whole.saturating_add((asked % span).saturating_mul(in_ms) / span)
    }
}
