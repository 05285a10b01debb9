//! What is left in a window that has been brought up to date, and when more will be: only the next buckets to leave are read.

use super::answers::KeyStatus;
use super::window::{BucketPos, MAY_HOLD, NARROW, StateMut, WIDE, kept_part};
use crate::rule::{Count, Counting};
use crate::time::Timestamp;
use crate::window::Window;
use std::time::Duration;

/// Counters per word.
const BYTES: usize = size_of::<u64>();

/// What is held may end at any moment, or much later: a request that only this keeps from passing tries again no sooner.
const A_HOLD: Duration = Duration::from_secs(1);

/// What counts in a window.
struct Counted {
    window: Window,
    /// The count of whole buckets. In a weighted window the leaving one is included.
    used: u64,
    /// What is held besides.
    held: u64,
    /// What a weighted window counts.
    weighted: Option<f64>,
    /// The counters of the newest bucket, and of the oldest one in `used`.
    newest: usize,
    oldest: usize,
}

impl StateMut<'_> {
    /// `None` for calls in flight.
    #[inline]
    fn count_at(&mut self, elsewhere: u64, now: Timestamp, to: BucketPos) -> Option<Counted> {
        let (window, counting) = self.shape.window?;
        let newest = self.newest_counter(to);
        let next = self.shape.after(newest, 1);
        let (mut oldest, mut used, mut weighted) = (next, *self.used, None);
        let mut held = elsewhere;
        if self.has(MAY_HOLD) {
            used = self.counted();
            held = held.saturating_add(self.used.saturating_sub(used));
        }
        if counting != Counting::Strict {
            let leaving = self.counter(next);
            let full = used.saturating_sub(leaving);
            if counting == Counting::Sentinel {
                (oldest, used) = (self.shape.after(next, 1), full);
            } else {
                let start = self.number().wrapping_mul(window.bucket_nanos());
                let elapsed = now.as_nanos().saturating_sub(start);
                weighted = Some(full as f64 + kept_part(leaving, elapsed, window));
            }
        }
        Some(Counted {
            window,
            used,
            held,
            weighted,
            newest,
            oldest,
        })
    }

    /// The status of the window, of whose key so much is held elsewhere; `None` for calls in flight.
    #[inline]
    pub(super) fn status(
        &mut self,
        limit: Count,
        elsewhere: u64,
        now: Timestamp,
        to: BucketPos,
    ) -> Option<KeyStatus> {
        let of = self.count_at(elsewhere, now, to)?;
        let remaining = match of.weighted {
            None => limit
                .whole()
                .saturating_sub(of.used)
                .saturating_sub(of.held),
            Some(sum) => (limit.get() - sum - of.held as f64) as u64,
        };
        // How much has to leave, and how much a weighted window may count then.
        let (over, most) = match remaining {
            0 if limit.whole() == 0 => (0, (0.0, 0)),
            0 => (
                (of.used + 1).saturating_sub(limit.whole()),
                (limit.get(), 1),
            ),
            _ => match of.weighted {
                None => (of.used.min(1), (0.0, 0)),
                Some(0.0) => (0, (0.0, 0)),
                Some(sum) => (
                    (of.used + 1).saturating_sub(sum.ceil() as u64),
                    (sum.next_down(), 0),
                ),
            },
        };
        let mut reset = match over {
            0 => Duration::ZERO,
            over => self.time_to_leave(&of, over, most, now),
        };
        if of.held > 0 && remaining == 0 && limit.whole() > 0 {
            reset = reset.max(A_HOLD);
        }
        Some(KeyStatus { remaining, reset })
    }

    /// How long it is until `cost`, at most `limit`, fits, if what is held were given back: 1 s at least while that is needed, since
    /// no time tells when. `elsewhere` is held elsewhere. `None` for calls in flight.
    pub(super) fn time_to_fit(
        &mut self,
        limit: Count,
        (cost, elsewhere): (u64, u64),
        now: Timestamp,
        to: BucketPos,
    ) -> Option<Duration> {
        let of = self.count_at(elsewhere, now, to)?;
        let fits = |held: u64| {
            let used = of.used.saturating_add(held).saturating_add(cost);
            let sum = of.weighted.unwrap_or(of.used as f64) + held as f64;
            used <= limit.whole() || sum + cost as f64 <= limit.get()
        };
        if fits(of.held) {
            return Some(Duration::ZERO);
        }
        let over = of.used.saturating_add(cost).saturating_sub(limit.whole());
        let ring = match fits(0) {
            true => Duration::ZERO,
            false => self.time_to_leave(&of, over, (limit.get(), cost), now),
        };
        Some(if of.held > 0 { ring.max(A_HOLD) } else { ring })
    }

    /// How long after `now` `over` of whole buckets will have left; in a weighted window, enough that its count with a cost is
    /// at most `most`: there the first millisecond, else the first instant.
    #[inline]
    fn time_to_leave(
        &mut self,
        of: &Counted,
        over: u64,
        most: (f64, u64),
        now: Timestamp,
    ) -> Duration {
        // For most keys, and often for frequent ones, only the newest bucket counts anything.
        let newest = self.counter(of.newest);
        let older = of.used.saturating_sub(newest);
        let (steps, before) = if older < over {
            (self.shape.steps(of.oldest, of.newest), older)
        } else {
            self.buckets_to_leave(of.oldest, over)
        };
        let length = of.window.bucket_nanos();
        // Neither a timestamp nor the buckets of a window wrap. (Saturating arithmetic would take 128 bits.)
        let starts = self.number().wrapping_mul(length);
        let starts = starts.saturating_add(length.wrapping_mul(steps as u64));
        let starts = Timestamp::from_nanos(starts);
        let ends = starts.plus_nanos(length);
        if of.weighted.is_none() {
            return ends.since(now);
        }
        let leaving = self.counter(self.shape.after(of.oldest, steps));
        let full = of.used.saturating_sub(before).saturating_sub(leaving);
        within(of.window, (full, leaving), (starts, ends), most, now).since(now)
    }

    /// How many buckets after the oldest, whose counter this is, the running sum reaches `over`, and the sum before that
    /// bucket.
    fn buckets_to_leave(&mut self, oldest: usize, over: u64) -> (usize, u64) {
        let (shape, is_wide) = (self.shape, self.has(WIDE));
        let buckets = shape.buckets;
        let counters = self.counters();
        let (mut before, mut steps, mut counter) = (0, 0, oldest);
        while steps < buckets {
            let counted = if is_wide {
                counters.get(counter).copied().unwrap_or(0)
            } else {
                let word = counters.get(counter / BYTES).copied().unwrap_or(0);
                // Most buckets of most keys are empty: the empty rest of a word is skipped.
                let rest = word >> (counter % BYTES * 8);
                if rest == 0 {
                    let empty = (BYTES - counter % BYTES).min(buckets - counter);
                    steps += empty;
                    counter = shape.after(counter, empty);
                    continue;
                }
                rest & NARROW
            };
            if before + counted >= over {
                break;
            }
            before += counted;
            steps += 1;
            counter = shape.after(counter, 1);
        }
        (steps, before)
    }
}

/// The first millisecond in a bucket, not before `now`, at which the count of a weighted window, with a cost, is at most
/// `most`; it is at the bucket's end.
#[inline(never)]
fn within(
    window: Window,
    (full, leaving): (u64, u64),
    (starts, ends): (Timestamp, Timestamp),
    (most, cost): (f64, u64),
    now: Timestamp,
) -> Timestamp {
    let fits = |millis| {
        let elapsed = Timestamp::from_millis(millis).since(starts).as_nanos() as u64;
        full as f64 + kept_part(leaving, elapsed, window) + cost as f64 <= most
    };
    let (mut over, mut first) = (starts.max(now).as_millis(), ends.as_millis());
    while first.saturating_sub(over) > 1 {
        let middle = over.midpoint(first);
        if fits(middle) {
            first = middle;
        } else {
            over = middle;
        }
    }
    Timestamp::from_millis(first)
}
