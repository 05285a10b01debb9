//! The usual decision, in few instructions: a strict window of the key's own, whose counters fit a byte, that was asked for in
//! this bucket or in the one before. All others are decided as [`StateMut`](crate::state::keyed::window::StateMut) does.

use super::Table;
use crate::rule::Counting;
use crate::state::keyed::key::{HAS_SHORT_WAYS, Key};
use crate::state::keyed::window::{FLAGS, LISTED, NARROW};

/// No word of a newest bucket.
const NONE: u64 = u64::MAX;

/// A usual window that is up to date.
pub(crate) struct Usual<'a> {
    /// The sum of all buckets, with reservations.
    pub(crate) used: &'a mut u64,
    /// The word with the counter of the newest bucket.
    word: &'a mut u64,
    /// How far it is shifted there.
    shift: usize,
    pub(crate) is_listed: bool,
}

impl Table {
    /// The word of the newest bucket of a usual window in the bucket of the latest call; [`NONE`] if no window here is usual.
    #[inline]
    pub(super) fn usual_word(&self) -> u64 {
        match self.shape.window {
            Some((_, Counting::Strict)) if !self.shape.is_paced => self.known.number << FLAGS,
            _ => NONE,
        }
    }

    /// The window of `key` and its slot, if it is usual, that is, none of its flags but [`LISTED`] is set, if it is found at once, and
    /// if it is in the bucket of the latest call, or brought there in one step, where it `may_step`.
    #[cfg_attr(not(feature = "small"), inline(always))]
    pub(crate) fn usual(&mut self, key: Key, may_step: bool) -> Option<(usize, Usual<'_>)> {
        if !HAS_SHORT_WAYS {
            return None;
        }
        let slot = self.first_with_tag(key)?;
        let first = slot.wrapping_mul(self.shape.stride);
        let words = self.words.get_mut(first..)?;
        let ([hash, newest, used], counters) = words.split_first_chunk_mut()?;
        let counter = self.known.counter;
        let (word, shift) = (counters.get_mut(counter / 8)?, counter % 8 * 8);
        if *hash != key.0 {
            return None;
        }
        let (number, listed) = (*newest & !LISTED, *newest & LISTED);
        if number != self.usual {
            if !may_step || number.wrapping_add(1 << FLAGS) != self.usual {
                return None;
            }
            // The counter is that of the bucket that leaves.
            let left = *word >> shift & NARROW;
            *used = used.saturating_sub(left);
            *word ^= left << shift;
            *newest = self.usual | listed;
        }
        let usual = Usual {
            used,
            word,
            shift,
            is_listed: listed != 0,
        };
        Some((slot, usual))
    }
}

impl Usual<'_> {
    /// Charges `cost` to the newest bucket, if its counter has room for that.
    #[cfg_attr(not(feature = "small"), inline(always))]
    pub(crate) fn charge(&mut self, cost: u64) -> bool {
        let fits = (*self.word >> self.shift & NARROW).saturating_add(cost) <= NARROW;
        if fits {
            *self.word = self.word.wrapping_add(cost << self.shift);
        }
        fits
    }
}
