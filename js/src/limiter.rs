//! The limiters behind the numbers.

use crate::buffer::KEYS;
use crate::layout::*;
use crate::slab::Slab;
use crate::time::{ceiled, instant};
use crate::tree;
use leapgate::backend::Key;
use leapgate::config::{LimiterOptions, read_limiter};
use leapgate::rule::Count;
use leapgate::{Left, Limit, Limiter, RestoreError, Timestamp, Verdict};
use std::time::Duration;

/// How snapshots begin.
const MARK: [u8; 4] = *b"LGS\n";

const NANOS_PER_MILLI: f64 = 1e6;

/// It tells bytes that have changed (FNV-1a).
#[inline(never)]
fn hash_of(bytes: &[u8]) -> u64 {
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, mix)
}

/// A limiter and its limits.
struct Slot {
    limits: Vec<Limit>,
    limiter: Limiter,
}

/// The limiters, by number.
pub(crate) struct Limiters {
    slots: Slab<Slot>,
    keys: Vec<Key>,
}

impl Default for Limiters {
    fn default() -> Limiters {
        Limiters {
            slots: Slab::default(),
            keys: vec![Key::from_hash(0); KEYS],
        }
    }
}

/// A question about a key.
pub(crate) struct Ask {
    pub(crate) limiter: u32,
    pub(crate) slot: u32,
    pub(crate) cost: f64,
    pub(crate) count: f64,
    pub(crate) now: f64,
    /// `LOOK`, `CHARGE` or `HOLD`.
    pub(crate) how: u32,
}

impl Limiters {
    /// The number of the limiter with the options in `bytes`.
    ///
    /// # Errors
    ///
    /// A sentence that names the wrong option, its value and the cure.
    pub(crate) fn add(&mut self, bytes: &[u8]) -> Result<u32, String> {
        let options = read_limiter(&tree::read(bytes)).map_err(|error| error.to_string())?;
        let LimiterOptions { limits, max_keys } = options;
        // The shell hashes keys, with its own seed: the limiter hashes none.
        let limiter = Limiter::new(limits.clone(), max_keys, [0; 2]);
        let limiter = limiter.map_err(|error| error.to_string())?;
        Ok(self.slots.add(Slot { limits, limiter }))
    }

    pub(crate) fn free(&mut self, limiter: u32) {
        drop(self.slots.take(limiter));
    }

    pub(crate) fn about(&self, limiter: u32, index: usize) -> Option<&Limit> {
        self.slots.get(limiter)?.limits.get(index)
    }

    #[inline]
    pub(crate) fn get(&self, limiter: u32) -> Option<&Limiter> {
        Some(&self.slots.get(limiter)?.limiter)
    }

    /// Appends a snapshot of a limiter whose keys have that seed: [`MARK`], the seed, what the limiter writes, and the hash of all that.
    pub(crate) fn snapshot(&self, limiter: u32, seed: [u64; 2], now: f64, out: &mut Vec<u8>) {
        out.extend(MARK);
        out.extend(seed.map(u64::to_le_bytes).as_flattened());
        if let Some(limiter) = self.get(limiter) {
            limiter.snapshot(instant(now), out);
        }
        out.extend(hash_of(out).to_le_bytes());
    }

    /// Restores a snapshot. Its keys have the seed that stands in it.
    ///
    /// # Errors
    ///
    /// A sentence.
    pub(crate) fn restore(
        &self,
        limiter: u32,
        bytes: &[u8],
        elapsed: f64,
        now: f64,
    ) -> Result<(), RestoreError> {
        let broken = RestoreError::NotASnapshot;
        let (all, hash) = bytes.split_last_chunk().ok_or(broken)?;
        let body = all.strip_prefix(&MARK).ok_or(broken)?;
        let (_, body) = body.split_at_checked(size_of::<[u64; 2]>()).ok_or(broken)?;
        if hash_of(all).to_le_bytes() != *hash {
            return Err(broken);
        }
        let limiter = self.get(limiter).ok_or(broken)?;
        let elapsed = Duration::from_nanos((elapsed * NANOS_PER_MILLI) as u64);
        limiter.restore(body, elapsed, instant(now))
    }

    pub(crate) fn name_key(&mut self, slot: u32, key: Key) {
        if let Some(to) = self.keys.get_mut(slot as usize) {
            *to = key;
        }
    }

    #[inline]
    pub(crate) fn key(&self, slot: u32) -> Key {
        let key = self.keys.get(slot as usize);
        key.copied().unwrap_or(Key::from_hash(0))
    }

    #[inline]
    pub(crate) fn ask(&self, ask: &Ask, results: &mut [f64; RESULTS_LEN]) -> bool {
        let (key, now) = (self.key(ask.slot), instant(ask.now));
        let (cost, count) = (ask.cost as u64, Count::new(ask.count).ok());
        let Some(open) = self.get(ask.limiter) else {
            return false;
        };
        let Some((verdict_row, limits)) = results.split_first_chunk_mut::<VERDICT_LEN>() else {
            return false;
        };
        let write = |left: Left| {
            let limits = limits.as_chunks_mut::<LIMIT_LEN>().0;
            if let Some(limit) = limits.get_mut(left.index) {
                limit[LIMIT_COUNT] = left.count.get();
                limit[LIMIT_REMAINING] = left.remaining as f64;
                limit[LIMIT_RESET] = ceiled(left.reset);
                let steady = left.steady_until.map_or(0, Timestamp::as_millis);
                limit[LIMIT_STEADY] = steady as f64;
            }
        };
        let hash = key.hash();
        verdict_row[VERDICT_KEY_LOW] = f64::from(hash as u32);
        verdict_row[VERDICT_KEY_HIGH] = f64::from((hash >> 32) as u32);
        let verdict = match ask.how {
            LOOK => open.peek(key, cost, count, now, write),
            HOLD => match open.hold(key, cost, count, now, write) {
                Ok(hold) => {
                    verdict_row[VERDICT_HOLD] = hold.index.into();
                    verdict_row[VERDICT_SEQUENCE] = hold.sequence.into();
                    return true;
                }
                Err(refused) => refused,
            },
            CHARGE => open.limit(key, cost, count, now, write),
            _ => return false,
        };
        let Verdict::Block { index, retry_after } = verdict else {
            return true;
        };
        verdict_row[VERDICT_REFUSING] = index.map_or(NONE, |index| index as f64);
        verdict_row[VERDICT_RETRY_AFTER] = retry_after.map_or(NONE, ceiled);
        false
    }
}
