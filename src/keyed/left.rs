//! What is left of a window that has been brought up to date, and when more is: by looking only at what leaves next.

use super::table::Table;
use super::window::{Bucket, Held, WIDE};
use super::{Key, KeyedWindows, Place, Standing};
use crate::rule::{Count, Counting};
use crate::time::Timestamp;
use crate::window::Window;
use std::time::Duration;

/// Counters per word.
const BYTES: usize = size_of::<u64>();

/// What counts, where that is a sum of whole buckets.
struct Sum {
    window: Window,
    used: u64,
    /// The counter of the oldest bucket that counts.
    oldest: usize,
}

impl Held<'_> {
    #[inline]
    fn whole_sum(&mut self, to: Bucket) -> Option<Sum> {
        let (window, counting) = self.shape.window?;
        if self.number() != to.number {
            return None;
        }
        let leaving = self.shape.after(to.counter, 1);
        let (left_out, oldest) = match counting {
            Counting::Strict => (0, leaving),
            Counting::Sentinel => (self.counter(leaving), self.shape.after(leaving, 1)),
            Counting::Weighted => return None,
        };
        Some(Sum {
            window,
            used: self.used.saturating_sub(left_out),
            oldest,
        })
    }

    /// How the window stands, if that is easy to say.
    #[inline]
    pub(super) fn standing(
        &mut self,
        limit: Count,
        now: Timestamp,
        to: Bucket,
    ) -> Option<Standing> {
        let sum = self.whole_sum(to)?;
        let remaining = limit.whole().saturating_sub(sum.used);
        let needed = match (remaining, sum.used) {
            (0, _) if limit.whole() == 0 => None,
            (0, used) => Some(used - limit.whole() + 1),
            (_, 0) => None,
            _ => Some(1),
        };
        let reset = needed.map(|needed| self.time_to_leave(&sum, needed, now));
        Some(Standing {
            remaining,
            reset: reset.unwrap_or_default(),
        })
    }

    /// How long after `now` at least `needed` will have left: the first instant.
    #[inline]
    fn time_to_leave(&mut self, sum: &Sum, needed: u64, now: Timestamp) -> Duration {
        let steps = self.buckets_to_leave(sum.oldest, needed) as u64;
        let start = self.number().saturating_add(steps + 1);
        Timestamp::from_nanos(start.saturating_mul(sum.window.bucket_nanos())).since(now)
    }

    /// How many buckets after the oldest, whose counter this is, the one comes with which `needed` are reached.
    #[inline]
    fn buckets_to_leave(&mut self, oldest: usize, needed: u64) -> usize {
        let (buckets, is_narrow) = (self.shape.buckets, !self.has(WIDE));
        let (mut left, mut steps, mut counter) = (needed, 0, oldest);
        while steps < buckets {
            // Most buckets of most keys are empty.
            let ends = counter + BYTES <= buckets && steps + BYTES <= buckets;
            if is_narrow
                && ends
                && counter.is_multiple_of(BYTES)
                && self.counters.get(counter / BYTES) == Some(&0)
            {
                steps += BYTES;
                counter = self.shape.after(counter, BYTES);
                continue;
            }
            let counted = self.counter(counter);
            if counted >= left {
                return steps;
            }
            left -= counted;
            steps += 1;
            counter = self.shape.after(counter, 1);
        }
        buckets
    }
}

impl Table {
    /// How the window at `place` stands, if that is easy to say.
    #[inline]
    pub(super) fn standing(
        &mut self,
        place: Place,
        limit: Count,
        now: Timestamp,
    ) -> Option<Standing> {
        let to = self.bucket(now);
        self.held(place)?.standing(limit, now, to)
    }

    /// How long it is until `cost`, at most `limit`, fits into the window at `place`, if that is easy to say.
    #[inline]
    pub(super) fn time_to_fit(
        &mut self,
        place: Place,
        limit: Count,
        cost: u64,
        now: Timestamp,
    ) -> Option<Duration> {
        let to = self.bucket(now);
        let mut held = self.held(place)?;
        let sum = held.whole_sum(to)?;
        let over = sum.used.saturating_add(cost).saturating_sub(limit.whole());
        Some(match over {
            0 => Duration::ZERO,
            needed => held.time_to_leave(&sum, needed, now),
        })
    }
}

impl KeyedWindows {
    /// How long after `now` a `cost` of `key` would fit into `limit` if nothing else came: the first instant at which it does.
    /// `None` where it never can. Opens no window.
    pub fn wait(&self, key: Key, limit: Count, cost: u64, now: Timestamp) -> Option<Duration> {
        let table = &mut *self.table.borrow_mut();
        let place = table.look_up(key);
        self.time_to_room(table, place, limit, cost, now)
    }
}
