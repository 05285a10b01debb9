//! Sums and rates over a ring of buckets, and coarser views of a finer ring.
//!
//! Every read takes the time and changes nothing. A sum is the difference of two running counts, whatever the number of
//! buckets; values that are not differences (the lowest response time, the most successes of a bucket) are looked up bucket by
//! bucket.

use crate::stats::metric_bucket::{MetricBucket, MetricEvent, Series};
use crate::stats::occupy::{LoanRule, OccupiableBucketLeapArray};
use crate::stats::view::{Loans, View};
use crate::time::Timestamp;
use crate::window::Window;
use std::fmt;

/// What happened in one bucket of a metric, by value.
///
/// Sentinel: `MetricNode`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MetricNode {
    /// When the bucket starts.
    pub timestamp: Timestamp,
    /// Passes, with the borrowed ones.
    pub pass: u64,
    /// Refusals.
    pub block: u64,
    /// Completions, with the failed ones.
    pub success: u64,
    /// Failed completions.
    pub exception: u64,
    /// Average response time in whole milliseconds, rounded down; the sum of response times if nothing completed.
    pub rt: u64,
    /// Passes borrowed from a later bucket.
    pub occupied_pass: u64,
    /// The most calls in flight. (Sentinel never fills it in: issue 2430.)
    pub concurrency: u64,
}

/// The statistics of a window at an instant.
///
/// Sentinel: `Metric`. There, most reads first open the current bucket; here reads change nothing and say the same.
pub trait Metric {
    /// The geometry.
    #[doc(alias = "getSampleCount")]
    #[doc(alias = "getWindowIntervalInSec")]
    fn window(&self) -> Window;

    /// How often `event` happened in the window; for [`MetricEvent::Rt`], milliseconds together.
    #[doc(alias = "getSum")]
    #[doc(alias = "getCurrentCount")]
    fn sum(&self, event: MetricEvent, now: Timestamp) -> u64;

    /// The most successes that any bucket has, at least 1.
    #[doc(alias = "maxSuccess")]
    fn max_success(&self, now: Timestamp) -> u64;

    /// The shortest response time in milliseconds; `None` if nothing has completed.
    fn shortest_rt(&self, now: Timestamp) -> Option<u64>;

    /// The longest response time in milliseconds; `None` if nothing has completed.
    fn max_rt(&self, now: Timestamp) -> Option<u64>;

    /// The most calls that were in flight.
    ///
    /// sentinel-golang: `SlidingWindowMetric.MaxConcurrency`.
    fn max_concurrency(&self, now: Timestamp) -> u64;

    /// How often `event` happened in the bucket of `at`, 0 beyond the ring.
    #[doc(alias = "getWindowPass")]
    fn window_sum(&self, event: MetricEvent, at: Timestamp) -> u64;

    /// The touched buckets that count at `now` and whose start satisfies `predicate`, oldest first.
    #[doc(alias = "detailsOnCondition")]
    fn details_on_condition(
        &self,
        now: Timestamp,
        predicate: &dyn Fn(Timestamp) -> bool,
    ) -> Vec<MetricNode>;

    /// The touched buckets that count at `now`, oldest first.
    fn details(&self, now: Timestamp) -> Vec<MetricNode> {
        self.details_on_condition(now, &|_| true)
    }

    /// Events per second: the sum over the interval in seconds.
    #[doc(alias = "getAvg")]
    #[doc(alias = "GetQPS")]
    fn average(&self, event: MetricEvent, now: Timestamp) -> f64 {
        self.sum(event, now) as f64 / self.window().interval_seconds()
    }

    /// Passes, the borrowed ones included.
    fn pass(&self, now: Timestamp) -> u64 {
        self.sum(MetricEvent::Pass, now)
    }

    /// Refusals.
    fn block(&self, now: Timestamp) -> u64 {
        self.sum(MetricEvent::Block, now)
    }

    /// Completions, the failed ones included.
    fn success(&self, now: Timestamp) -> u64 {
        self.sum(MetricEvent::Success, now)
    }

    /// Failed completions.
    fn exception(&self, now: Timestamp) -> u64 {
        self.sum(MetricEvent::Exception, now)
    }

    /// Response times, together, in milliseconds.
    fn rt(&self, now: Timestamp) -> u64 {
        self.sum(MetricEvent::Rt, now)
    }

    /// Passes borrowed from a later bucket.
    fn occupied_pass(&self, now: Timestamp) -> u64 {
        self.sum(MetricEvent::OccupiedPass, now)
    }

    /// The shortest response time as Sentinel reports it: 5000 if nothing has completed and never more, at least 1.
    #[doc(alias = "minRt")]
    fn min_rt(&self, now: Timestamp) -> u64 {
        self.shortest_rt(now)
            .map_or(MetricBucket::STATISTIC_MAX_RT, |rt| {
                rt.clamp(1, MetricBucket::STATISTIC_MAX_RT)
            })
    }

    /// Passes in the bucket before the current one: a count, not a rate. 0 in a window of one bucket.
    #[doc(alias = "previousWindowPass")]
    fn previous_window_pass(&self, now: Timestamp) -> u64 {
        self.previous_window_sum(MetricEvent::Pass, now)
    }

    /// Refusals in the bucket before the current one: a count, not a rate. 0 in a window of one bucket.
    #[doc(alias = "previousWindowBlock")]
    fn previous_window_block(&self, now: Timestamp) -> u64 {
        self.previous_window_sum(MetricEvent::Block, now)
    }

    /// How often `event` happened in the bucket before the current one. 0 in a window of one bucket.
    fn previous_window_sum(&self, event: MetricEvent, now: Timestamp) -> u64;
}

/// The statistics over one ring.
///
/// Sentinel: `ArrayMetric`.
#[derive(Clone)]
pub struct ArrayMetric {
    array: OccupiableBucketLeapArray,
}

impl ArrayMetric {
    /// A ring from whose buckets passes may be borrowed up to one interval ahead.
    ///
    /// Sentinel: `ArrayMetric(sampleCount, intervalInMs)`; an array without borrowing is this one with nothing borrowed.
    pub fn new(window: Window) -> ArrayMetric {
        ArrayMetric::borrowing(window, window, LoanRule::Exact)
    }

    /// A ring from whose buckets passes may be borrowed less than one `ahead` in advance; `loan_rule` decides about loans in
    /// whose bucket nothing happens.
    pub fn borrowing(window: Window, ahead: Window, loan_rule: LoanRule) -> ArrayMetric {
        ArrayMetric {
            array: OccupiableBucketLeapArray::new(window, ahead, loan_rule),
        }
    }

    /// The current bucket, opened if need be: all events are recorded there.
    #[doc(alias = "currentWindow")]
    #[inline]
    pub fn current(&self, now: Timestamp) -> &MetricBucket {
        self.array.current_window(now)
    }

    /// Records `n` of `event`. To record a response time use [`MetricBucket::add_rt`] on the current bucket.
    #[doc(alias = "addPass")]
    #[doc(alias = "addBlock")]
    #[doc(alias = "addSuccess")]
    #[doc(alias = "addException")]
    #[doc(alias = "addOccupiedPass")]
    #[inline]
    pub fn add(&self, event: MetricEvent, n: u64, now: Timestamp) {
        self.current(now).add(event, n);
    }

    /// Records `n` passes that were lent: in the current bucket, which is not thereby touched ([`LoanRule`]).
    pub(crate) fn add_lent(&self, n: u64, now: Timestamp) {
        self.array
            .open_window(now)
            .add(MetricEvent::OccupiedPass, n);
    }

    /// Records how many calls are in flight: in the current bucket, which is not thereby touched ([`LoanRule`]).
    pub(crate) fn update_concurrency(&self, in_flight: u64, now: Timestamp) {
        self.array.open_window(now).update_concurrency(in_flight);
    }

    /// Borrows `n` passes from the bucket of `at`, which has not begun.
    #[doc(alias = "addWaiting")]
    pub fn add_waiting(&self, at: Timestamp, n: u64) {
        self.array.add_waiting(at, n);
    }

    /// How many borrowed passes are still to come at `now`.
    pub fn waiting(&self, now: Timestamp) -> u64 {
        self.array.waiting(now)
    }

    /// This ring, seen through a coarser window.
    #[inline]
    pub fn view(&self, view: View) -> SlidingWindowMetric<'_> {
        SlidingWindowMetric { array: self, view }
    }

    /// This ring, seen through its own window.
    fn whole(&self) -> SlidingWindowMetric<'_> {
        let window = self.array.main().window();
        self.view(View {
            window,
            aligned_to: window,
            loans: Loans::WhenDue,
        })
    }

    /// What had been counted at `start`, the start of one of the ring's buckets; if the oldest bucket starts later, at its
    /// start.
    #[inline]
    fn counted_before(&self, series: Series, start: Timestamp) -> u64 {
        let main = self.array.main();
        match main.bucket_at(start) {
            Some(wrap) => wrap.value().before(series),
            None if main.newest_start().is_some_and(|newest| start > newest) => {
                self.counted(series, Timestamp::from_nanos(start.as_nanos() - 1))
            }
            None => main.oldest().map_or(0, |oldest| oldest.before(series)),
        }
    }

    /// What has been counted at `now`, ever.
    #[inline]
    fn counted(&self, series: Series, now: Timestamp) -> u64 {
        let counted = self
            .array
            .main()
            .newest()
            .map_or(0, |newest| newest.after(series));
        match series {
            Series::Paid => counted.wrapping_add(self.array.due(now)),
            Series::Event(_) => counted,
        }
    }
}

impl fmt::Debug for ArrayMetric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.array.main().fmt(f)
    }
}

/// A read-only view of a window over a ring whose buckets are as fine or finer.
///
/// sentinel-golang: `SlidingWindowMetric`.
#[derive(Clone, Copy, Debug)]
pub struct SlidingWindowMetric<'a> {
    array: &'a ArrayMetric,
    view: View,
}

impl<'a> SlidingWindowMetric<'a> {
    /// What was counted from `first` up to, not including, `end`; both start a bucket of the ring.
    fn between(&self, series: Series, first: Timestamp, end: Timestamp) -> u64 {
        self.array
            .counted_before(series, end)
            .wrapping_sub(self.array.counted_before(series, first))
    }

    /// Passes are the ones admitted at once, plus the borrowed ones once they count.
    #[inline]
    fn count(&self, event: MetricEvent, of: impl Fn(Series) -> u64) -> u64 {
        let own = of(Series::Event(event));
        match (event, self.view.loans) {
            (MetricEvent::Pass, Loans::WhenDue) => own.wrapping_add(of(Series::Paid)),
            (MetricEvent::Pass, Loans::WhenMade) => {
                own.wrapping_add(of(Series::Event(MetricEvent::OccupiedPass)))
            }
            _ => own,
        }
    }

    /// The buckets of the ring that count at `now`, touched ones only, oldest first.
    fn buckets(
        &self,
        now: Timestamp,
    ) -> impl Iterator<Item = (Timestamp, &'a MetricBucket)> + use<'a> {
        let main = self.array.array.main();
        let now = main.reading_time(now);
        let (first, length) = (
            self.view.first_start(now).as_nanos(),
            main.window().bucket_nanos(),
        );
        let last = main.window().start(now).as_nanos();
        (0..=(last - first) / length).filter_map(move |i| {
            let start = Timestamp::from_nanos(first + i * length);
            main.window_value(start).map(|bucket| (start, bucket))
        })
    }
}

impl Metric for SlidingWindowMetric<'_> {
    fn window(&self) -> Window {
        self.view.window
    }

    #[inline]
    fn sum(&self, event: MetricEvent, now: Timestamp) -> u64 {
        let now = self.array.array.main().reading_time(now);
        let first = self.view.first_start(now);
        let bucket = self.array.array.main().bucket_at(first);
        self.count(event, |series| {
            let before = match bucket {
                Some(wrap) => wrap.value().before(series),
                None => self.array.counted_before(series, first),
            };
            self.array.counted(series, now).wrapping_sub(before)
        })
    }

    fn max_success(&self, now: Timestamp) -> u64 {
        self.buckets(now)
            .map(|(_, bucket)| bucket.get(MetricEvent::Success))
            .max()
            .unwrap_or(0)
            .max(1)
    }

    fn shortest_rt(&self, now: Timestamp) -> Option<u64> {
        self.buckets(now)
            .filter_map(|(_, bucket)| bucket.shortest_rt())
            .min()
    }

    fn max_rt(&self, now: Timestamp) -> Option<u64> {
        self.buckets(now)
            .filter_map(|(_, bucket)| bucket.max_rt())
            .max()
    }

    fn max_concurrency(&self, now: Timestamp) -> u64 {
        self.buckets(now)
            .map(|(_, bucket)| bucket.max_concurrency())
            .max()
            .unwrap_or(0)
    }

    fn window_sum(&self, event: MetricEvent, at: Timestamp) -> u64 {
        let start = self.view.window.start(at);
        let end = start.plus_nanos(self.view.window.bucket_nanos());
        self.count(event, |series| self.between(series, start, end))
    }

    fn previous_window_sum(&self, event: MetricEvent, now: Timestamp) -> u64 {
        let window = self.view.window;
        let now = window
            .start(self.array.array.main().reading_time(now))
            .as_nanos();
        match now.checked_sub(window.bucket_nanos()) {
            Some(before) if window.sample_count() > 1 => {
                self.window_sum(event, Timestamp::from_nanos(before))
            }
            _ => 0,
        }
    }

    fn details_on_condition(
        &self,
        now: Timestamp,
        predicate: &dyn Fn(Timestamp) -> bool,
    ) -> Vec<MetricNode> {
        let mut nodes: Vec<MetricNode> = Vec::new();
        for (start, bucket) in self.buckets(now) {
            let timestamp = self.view.window.start(start);
            let node = MetricNode {
                timestamp,
                pass: self.count(MetricEvent::Pass, |series| bucket.of(series)),
                block: bucket.get(MetricEvent::Block),
                success: bucket.get(MetricEvent::Success),
                exception: bucket.get(MetricEvent::Exception),
                rt: bucket.get(MetricEvent::Rt),
                occupied_pass: bucket.get(MetricEvent::OccupiedPass),
                concurrency: bucket.max_concurrency(),
            };
            match nodes.last_mut() {
                Some(last) if last.timestamp == timestamp => last.add(&node),
                _ if predicate(timestamp) => nodes.push(node),
                _ => {}
            }
        }
        for node in &mut nodes {
            node.rt = node.rt.checked_div(node.success).unwrap_or(node.rt);
        }
        nodes
    }
}

impl MetricNode {
    /// Adds a further bucket of the same time; response times are still a sum.
    fn add(&mut self, more: &MetricNode) {
        self.pass = self.pass.wrapping_add(more.pass);
        self.block = self.block.wrapping_add(more.block);
        self.success = self.success.wrapping_add(more.success);
        self.exception = self.exception.wrapping_add(more.exception);
        self.rt = self.rt.wrapping_add(more.rt);
        self.occupied_pass = self.occupied_pass.wrapping_add(more.occupied_pass);
        self.concurrency = self.concurrency.max(more.concurrency);
    }

    /// Whether nothing at all happened.
    ///
    /// Sentinel: `StatisticNode.isValidMetricNode`.
    pub fn is_empty(&self) -> bool {
        [
            self.pass,
            self.block,
            self.success,
            self.exception,
            self.rt,
            self.occupied_pass,
        ]
        .iter()
        .all(|n| *n == 0)
    }
}

impl Metric for ArrayMetric {
    fn window(&self) -> Window {
        self.array.main().window()
    }

    fn sum(&self, event: MetricEvent, now: Timestamp) -> u64 {
        self.whole().sum(event, now)
    }

    fn max_success(&self, now: Timestamp) -> u64 {
        self.whole().max_success(now)
    }

    fn shortest_rt(&self, now: Timestamp) -> Option<u64> {
        self.whole().shortest_rt(now)
    }

    fn max_rt(&self, now: Timestamp) -> Option<u64> {
        self.whole().max_rt(now)
    }

    fn max_concurrency(&self, now: Timestamp) -> u64 {
        self.whole().max_concurrency(now)
    }

    fn window_sum(&self, event: MetricEvent, at: Timestamp) -> u64 {
        self.whole().window_sum(event, at)
    }

    fn previous_window_sum(&self, event: MetricEvent, now: Timestamp) -> u64 {
        self.whole().previous_window_sum(event, now)
    }

    fn details_on_condition(
        &self,
        now: Timestamp,
        predicate: &dyn Fn(Timestamp) -> bool,
    ) -> Vec<MetricNode> {
        self.whole().details_on_condition(now, predicate)
    }
}
