//! What happened in one bucket.

use crate::leap_array::Bucket;
use std::cell::Cell;
use std::fmt;

/// What is counted.
///
/// Sentinel: `MetricEvent`, in its order. `Success` is every completion, failed or not (sentinel-golang: `Complete`), and
/// `Exception` every failed one. `OccupiedPass` is a pass that was borrowed from a bucket to come.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum MetricEvent {
    /// Let in.
    Pass,
    /// Refused.
    Block,
    /// Completed with an error.
    #[doc(alias = "Error")]
    Exception,
    /// Completed, with an error or without.
    #[doc(alias = "Complete")]
    Success,
    /// Milliseconds that completed calls took, together.
    Rt,
    /// Let in on a pass of a bucket to come.
    OccupiedPass,
}

impl MetricEvent {
    /// All of them, in order.
    pub const ALL: [MetricEvent; 6] = [
        MetricEvent::Pass,
        MetricEvent::Block,
        MetricEvent::Exception,
        MetricEvent::Success,
        MetricEvent::Rt,
        MetricEvent::OccupiedPass,
    ];
}

/// One of the running counts of a ring: an event's, or that of the borrowed passes which came due.
#[derive(Clone, Copy)]
pub(crate) enum Series {
    Event(MetricEvent),
    Paid,
}

/// One for each event, and one for borrowed passes that came due.
type Counts = [Cell<u64>; 7];

#[inline]
fn cell(counts: &Counts, series: Series) -> &Cell<u64> {
    let [pass, block, exception, success, rt, occupied, paid] = counts;
    match series {
        Series::Event(MetricEvent::Pass) => pass,
        Series::Event(MetricEvent::Block) => block,
        Series::Event(MetricEvent::Exception) => exception,
        Series::Event(MetricEvent::Success) => success,
        Series::Event(MetricEvent::Rt) => rt,
        Series::Event(MetricEvent::OccupiedPass) => occupied,
        Series::Paid => paid,
    }
}

/// What happened in one bucket: a count of each event, the extremes of the response times and of the calls in flight.
///
/// It also remembers what the whole ring had counted before it, so that a sum over any run of buckets is a difference.
/// Counts wrap around after 2^64.
///
/// Sentinel: `MetricBucket`; the highest response time and concurrency are additions (the latter is sentinel-golang's).
#[derive(Clone)]
pub struct MetricBucket {
    counts: Counts,
    /// What the ring had counted when this bucket began.
    before: Counts,
    /// Shortest and longest response time, in milliseconds. In cells of their own, which stay in registers: while nothing has
    /// completed, the shortest is longer than the longest.
    min_rt: Cell<u64>,
    max_rt: Cell<u64>,
    max_concurrency: Cell<u64>,
}

impl Default for MetricBucket {
    fn default() -> MetricBucket {
        MetricBucket {
            counts: Counts::default(),
            before: Counts::default(),
            min_rt: Cell::new(u64::MAX),
            max_rt: Cell::new(0),
            max_concurrency: Cell::new(0),
        }
    }
}

impl MetricBucket {
    /// The shortest response time that Sentinel reports if nothing has completed, in milliseconds, and the highest that it ever
    /// reports as the shortest (`csp.sentinel.statistic.max.rt`).
    pub const STATISTIC_MAX_RT: u64 = 5000;

    /// How often `event` happened; for [`MetricEvent::Rt`], milliseconds together.
    pub fn get(&self, event: MetricEvent) -> u64 {
        self.of(Series::Event(event))
    }

    /// Counts `n` of `event`. To record a response time use [`MetricBucket::add_rt`].
    #[inline]
    pub fn add(&self, event: MetricEvent, n: u64) {
        increase(cell(&self.counts, Series::Event(event)), n);
    }

    /// Records one response time, in milliseconds. It is not clamped.
    ///
    /// Sentinel: `MetricBucket.addRT`.
    #[inline]
    pub fn add_rt(&self, rt: u64) {
        self.add(MetricEvent::Rt, rt);
        self.widen_rt(rt, rt);
    }

    #[inline]
    fn widen_rt(&self, min: u64, max: u64) {
        self.min_rt.set(self.min_rt.get().min(min));
        self.max_rt.set(self.max_rt.get().max(max));
    }

    /// Whether any response time has been recorded.
    fn has_rt(&self) -> bool {
        self.min_rt.get() <= self.max_rt.get()
    }

    /// Records how many calls are in flight, if that is a new maximum in this bucket.
    ///
    /// sentinel-golang: `MetricBucket.UpdateConcurrency`.
    #[inline]
    pub fn update_concurrency(&self, in_flight: u64) {
        self.max_concurrency
            .set(self.max_concurrency.get().max(in_flight));
    }

    /// The shortest response time in milliseconds; `None` while nothing has completed.
    pub fn shortest_rt(&self) -> Option<u64> {
        self.has_rt().then_some(self.min_rt.get())
    }

    /// The longest response time in milliseconds; `None` while nothing has completed.
    pub fn max_rt(&self) -> Option<u64> {
        self.has_rt().then_some(self.max_rt.get())
    }

    /// The shortest response time as Sentinel reports it: 5000 while nothing has completed, and never more.
    ///
    /// Sentinel: `MetricBucket.minRt`.
    pub fn min_rt(&self) -> u64 {
        self.shortest_rt()
            .unwrap_or(MetricBucket::STATISTIC_MAX_RT)
            .min(MetricBucket::STATISTIC_MAX_RT)
    }

    /// The most calls that were in flight.
    pub fn max_concurrency(&self) -> u64 {
        self.max_concurrency.get()
    }

    /// Counts `n` passes that were borrowed from this bucket before it began.
    pub(crate) fn pay(&self, n: u64) {
        increase(cell(&self.counts, Series::Paid), n);
    }

    #[inline]
    pub(crate) fn of(&self, series: Series) -> u64 {
        cell(&self.counts, series).get()
    }

    /// What the ring had counted when this bucket began.
    #[inline]
    pub(crate) fn before(&self, series: Series) -> u64 {
        cell(&self.before, series).get()
    }

    /// What the ring has counted by the end of this bucket, or by now, if it is the newest.
    #[inline]
    pub(crate) fn after(&self, series: Series) -> u64 {
        self.before(series).wrapping_add(self.of(series))
    }

    /// Forgets the response times and the concurrency, but not the counts.
    fn clear_extremes(&self) {
        self.min_rt.set(u64::MAX);
        self.max_rt.set(0);
        self.max_concurrency.set(0);
    }
}

#[inline]
fn increase(cell: &Cell<u64>, n: u64) {
    cell.set(cell.get().wrapping_add(n));
}

impl Bucket for MetricBucket {
    fn open(&self, previous: &MetricBucket) {
        for ((before, n), (earlier, more)) in self
            .before
            .iter()
            .zip(&self.counts)
            .zip(previous.before.iter().zip(&previous.counts))
        {
            before.set(earlier.get().wrapping_add(more.get()));
            n.set(0);
        }
        self.clear_extremes();
    }

    fn absorb(&self, older: &MetricBucket) {
        for ((n, before), more) in self.counts.iter().zip(&self.before).zip(&older.counts) {
            increase(n, more.get());
            before.set(before.get().wrapping_sub(more.get()));
        }
        self.widen_rt(older.min_rt.get(), older.max_rt.get());
        self.update_concurrency(older.max_concurrency());
    }

    fn precede(&self, next: &MetricBucket) {
        for ((before, n), end) in self.before.iter().zip(&self.counts).zip(&next.before) {
            before.set(end.get());
            n.set(0);
        }
        self.clear_extremes();
    }
}

impl fmt::Debug for MetricBucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for event in MetricEvent::ALL {
            if self.get(event) > 0 {
                write!(f, "{separator}{event:?}={}", self.get(event))?;
                separator = " ";
            }
        }
        f.write_str(if separator.is_empty() { "-" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_rt_is_5000_where_there_is_none_and_never_more() {
        let bucket = MetricBucket::default();
        assert_eq!(
            (bucket.min_rt(), bucket.shortest_rt(), bucket.max_rt()),
            (5000, None, None)
        );
        bucket.add_rt(9000);
        assert_eq!(
            (
                bucket.min_rt(),
                bucket.shortest_rt(),
                bucket.get(MetricEvent::Rt)
            ),
            (5000, Some(9000), 9000)
        );
        bucket.add_rt(7);
        assert_eq!(
            (
                bucket.min_rt(),
                bucket.max_rt(),
                bucket.get(MetricEvent::Rt)
            ),
            (7, Some(9000), 9007)
        );
    }

    #[test]
    fn a_bucket_remembers_what_was_counted_before_it() {
        let (first, second) = (MetricBucket::default(), MetricBucket::default());
        first.add(MetricEvent::Pass, 3);
        second.open(&first);
        second.add(MetricEvent::Pass, 4);
        let pass = Series::Event(MetricEvent::Pass);
        assert_eq!(second.after(pass) - first.before(pass), 7);
        assert_eq!(second.after(pass) - second.before(pass), 4);
    }

    #[test]
    fn a_bucket_may_follow_itself() {
        let bucket = MetricBucket::default();
        bucket.add(MetricEvent::Block, 3);
        bucket.open(&bucket);
        assert_eq!(bucket.get(MetricEvent::Block), 0);
        assert_eq!(bucket.before(Series::Event(MetricEvent::Block)), 3);
    }
}
