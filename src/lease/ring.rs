//! A strict window that keeps only the buckets in which something was used.

use super::terms::Terms;

/// What was used, by bucket.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Ring {
    /// The number of each bucket and what was used in it, in ascending order; at most one more than the window has.
    buckets: Vec<(u64, u64)>,
    sum: u64,
}

/// The sum of two numbers, at most the highest that a text can have.
pub(super) fn add(a: u64, b: u64) -> u64 {
    a.saturating_add(b).min(Terms::MAX_LIMIT)
}

impl Ring {
    /// Of these buckets, in ascending order.
    pub(super) fn of(buckets: &[[u64; 2]]) -> Ring {
        let buckets: Vec<_> = buckets.iter().map(|&[at, n]| (at, n)).collect();
        Ring {
            sum: buckets.iter().map(|(_, n)| *n).fold(0, add),
            buckets,
        }
    }

    /// Adds what was used at a time, unless its bucket counts no more at `now`.
    pub(super) fn add(&mut self, terms: &Terms, at_ms: u64, n: u64, now_ms: u64) {
        let number = terms.number(at_ms.min(now_ms));
        if n == 0 || number < terms.oldest(now_ms) {
            return;
        }
        self.sum = add(self.sum, n);
        let place = self.buckets.partition_point(|(other, _)| *other < number);
        match self.buckets.get_mut(place) {
            Some((other, used)) if *other == number => *used = add(*used, n),
            _ => self.buckets.insert(place, (number, n)),
        }
    }

    /// Takes back what was added at a time, as far as its bucket still counts.
    pub(super) fn take_back(&mut self, terms: &Terms, at_ms: u64, n: u64) {
        let number = terms.number(at_ms);
        if let Some((_, used)) = self.buckets.iter_mut().find(|(other, _)| *other == number) {
            let n = n.min(*used);
            *used -= n;
            self.sum -= n;
        }
    }

    /// Forgets the buckets that count no more.
    pub(super) fn forget(&mut self, terms: &Terms, now_ms: u64) {
        let (oldest, newest) = (terms.oldest(now_ms), terms.number(now_ms));
        let counts = |(number, _): &(u64, u64)| (oldest..=newest).contains(number);
        // Buckets to come are of another window, by a node that mistook the key: they would stay for ever.
        if !self.buckets.first().is_none_or(counts) || !self.buckets.last().is_none_or(counts) {
            self.buckets.retain(counts);
            // Not the difference: a sum that has met the highest number is not exact.
            self.sum = self.buckets.iter().map(|(_, n)| *n).fold(0, add);
        }
    }

    /// What counts, after [`Ring::forget`].
    pub(super) fn sum(&self) -> u64 {
        self.sum
    }

    pub(super) fn is_empty(&self) -> bool {
        self.buckets.is_empty()
    }

    pub(super) fn buckets(&self) -> &[(u64, u64)] {
        &self.buckets
    }

    /// From when on at most `most` count, if nothing is added: a time in milliseconds; zero if that is so now.
    pub(super) fn falls_to(&self, terms: &Terms, most: u64) -> u64 {
        let mut left = self.sum;
        if left <= most {
            return 0;
        }
        for (number, n) in &self.buckets {
            left = left.saturating_sub(*n);
            if left <= most {
                return terms.leaves(*number);
            }
        }
        0
    }
}
