//! Counts with bounds: how many are different, which are the most, and a series over time.

use hashbrown::{HashMap, HashSet};
use serde::Serialize;
use std::hash::{DefaultHasher, Hasher};

/// A hash that is the same in each run.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

/// How many are counted exactly; beyond that, by HyperLogLog.
const EXACT: usize = 1 << 16;

/// 2^14 registers: an error of 0.8 % in two of three cases.
const REGISTER_BITS: u32 = 14;

/// How many different hashes came by.
#[derive(Default)]
pub(crate) struct Distinct {
    exact: HashSet<u64, Plain>,
    registers: Vec<u8>,
}

/// How many there were.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Number {
    /// The number.
    pub count: u64,
    /// Whether it is estimated (by HyperLogLog, to about 1 %): above 65,536.
    pub estimated: bool,
}

impl Distinct {
    pub(crate) fn add(&mut self, hash: u64) {
        if self.registers.is_empty() {
            self.exact.insert(hash);
            if self.exact.len() > EXACT {
                self.registers = vec![0; 1 << REGISTER_BITS];
                let known = std::mem::take(&mut self.exact);
                known.into_iter().for_each(|hash| self.register(hash));
            }
            return;
        }
        self.register(hash);
    }

    fn register(&mut self, hash: u64) {
        let place = (hash >> (64 - REGISTER_BITS)) as usize;
        let rank = ((hash << REGISTER_BITS) | 1 << (REGISTER_BITS - 1)).leading_zeros() + 1;
        if let Some(register) = self.registers.get_mut(place) {
            *register = (*register).max(rank as u8);
        }
    }

    pub(crate) fn number(&self) -> Number {
        if self.registers.is_empty() {
            return Number {
                count: self.exact.len() as u64,
                estimated: false,
            };
        }
        let m = self.registers.len() as f64;
        let sum: f64 = self
            .registers
            .iter()
            .map(|rank| 0.5_f64.powi((*rank).into()))
            .sum();
        // Above 65,536 of 16,384 registers the raw estimate has no bias to correct that matters beside its error.
        let estimate = 0.7213 / (1.0 + 1.079 / m) * m * m / sum;
        Number {
            count: estimate.round() as u64,
            estimated: true,
        }
    }
}

/// Hashes are hashes already.
#[derive(Clone, Copy, Default)]
pub(crate) struct Plain;

impl std::hash::BuildHasher for Plain {
    type Hasher = PlainHasher;
    fn build_hasher(&self) -> PlainHasher {
        PlainHasher(0)
    }
}

pub(crate) struct PlainHasher(u64);

impl Hasher for PlainHasher {
    fn write(&mut self, _: &[u8]) {}
    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
    fn finish(&self) -> u64 {
        self.0
    }
}

/// How many keys are counted.
const COUNTED: usize = 4096;

/// The keys that came by most (space saving): exact while there were no more than 4096; beyond that, a key may be counted too
/// often by what the least of them had when it came.
#[derive(Default)]
pub(crate) struct Top {
    by_hash: HashMap<u64, Counted, Plain>,
    /// The smallest count among them when the table was last full.
    floor: u64,
}

#[derive(Clone)]
struct Counted {
    rule: u32,
    text: Box<[u8]>,
    count: u64,
    over: u64,
}

/// A key that was refused.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Refused {
    pub(crate) rule: u32,
    pub(crate) text: Vec<u8>,
    pub(crate) count: u64,
    /// By how much the count may be too high.
    pub(crate) over: u64,
}

/// The longest key that is kept as text.
const MAX_TEXT: usize = 128;

impl Top {
    pub(crate) fn add(&mut self, rule: u32, text: &[u8]) {
        let hash = hash(text) ^ u64::from(rule).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        if let Some(known) = self.by_hash.get_mut(&hash) {
            known.count += 1;
            return;
        }
        if self.by_hash.len() >= 2 * COUNTED {
            self.shrink();
        }
        let text = text.get(..MAX_TEXT).unwrap_or(text).into();
        let (count, over) = (self.floor + 1, self.floor);
        self.by_hash.insert(
            hash,
            Counted {
                rule,
                text,
                count,
                over,
            },
        );
    }

    /// Keeps the greater half. What was dropped had at most the new floor.
    fn shrink(&mut self) {
        let mut counts: Vec<u64> = self.by_hash.values().map(|known| known.count).collect();
        let middle = counts.len() / 2;
        let (_, median, _) = counts.select_nth_unstable(middle);
        self.floor = (*median).max(self.floor);
        let floor = self.floor;
        self.by_hash.retain(|_, known| known.count > floor);
    }

    pub(crate) fn first(&self, n: usize) -> Vec<Refused> {
        let mut all: Vec<&Counted> = self.by_hash.values().collect();
        all.sort_by(|a, b| (b.count, a.rule, &a.text).cmp(&(a.count, b.rule, &b.text)));
        let refused = |known: &Counted| Refused {
            rule: known.rule,
            text: known.text.to_vec(),
            count: known.count,
            over: known.over,
        };
        all.into_iter().take(n).map(refused).collect()
    }
}

/// How many bins a series has at most.
const BINS: usize = 240;

/// Requests over time, in at most 240 bins: when there would be more, each is twice as long.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Series {
    /// When the first bin begins, in milliseconds since 1970.
    pub start_ms: u64,
    /// How long a bin is.
    pub width_ms: u64,
    /// All requests, by bin.
    pub requests: Vec<u64>,
    /// Those that would have been refused.
    pub refused: Vec<u64>,
    /// Those that would have waited for their turn.
    pub waited: Vec<u64>,
}

impl Series {
    /// Adds a request, which is not before the first one.
    pub(crate) fn add(&mut self, at_ms: u64, is_refused: bool, waits: bool) {
        if self.width_ms == 0 {
            self.width_ms = 1000;
            self.start_ms = at_ms - at_ms % 1000;
        }
        let since = at_ms.saturating_sub(self.start_ms);
        while since / self.width_ms >= BINS as u64 {
            self.width_ms *= 2;
            for bins in [&mut self.requests, &mut self.refused, &mut self.waited] {
                *bins = bins.chunks(2).map(|pair| pair.iter().sum()).collect();
            }
        }
        let bin = (since / self.width_ms) as usize;
        if self.requests.len() <= bin {
            for bins in [&mut self.requests, &mut self.refused, &mut self.waited] {
                bins.resize(bin + 1, 0);
            }
        }
        let counted = [
            (&mut self.requests, true),
            (&mut self.refused, is_refused),
            (&mut self.waited, waits),
        ];
        for (bins, counts) in counted {
            if let Some(bin) = bins.get_mut(bin) {
                *bin += u64::from(counts);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinct_is_exact_up_to_a_bound_and_then_close() {
        let mut distinct = Distinct::default();
        for i in 0..EXACT as u64 * 2 {
            distinct.add(hash(&(i % EXACT as u64).to_le_bytes()));
        }
        assert_eq!(
            distinct.number(),
            Number {
                count: EXACT as u64,
                estimated: false
            }
        );
        for i in 0..1_000_000_u64 {
            distinct.add(hash(&i.to_le_bytes()));
        }
        let number = distinct.number();
        assert!(
            number.estimated && number.count.abs_diff(1_000_000) < 30_000,
            "{number:?}"
        );
    }

    #[test]
    fn the_most_refused_are_kept_however_many_others_come() {
        let mut top = Top::default();
        for i in 0..200_000_u32 {
            top.add(0, format!("once {i}").as_bytes());
            if i % 10 == 0 {
                top.add(0, b"often");
            }
        }
        let first = &top.first(10)[0];
        assert_eq!(first.text, b"often");
        assert!(
            first.count - first.over <= 20_000 && first.count >= 20_000,
            "{first:?}"
        );
    }

    #[test]
    fn a_series_doubles_its_bins_and_loses_nothing() {
        let mut series = Series::default();
        for i in 0..100_000_u64 {
            series.add(1_000_500 + i * 100, i % 4 == 0, i % 5 == 0);
        }
        assert_eq!((series.start_ms, series.width_ms), (1_000_000, 64_000));
        assert!(series.requests.len() <= BINS);
        let sums = [&series.requests, &series.refused, &series.waited]
            .map(|bins| bins.iter().sum::<u64>());
        assert_eq!(sums, [100_000, 25_000, 20_000]);
    }
}
