//! The statistics of one resource: the last second, the last minute, and the calls in flight.

use crate::stats::metric::{ArrayMetric, Metric, MetricNode, SlidingWindowMetric};
use crate::stats::metric_bucket::MetricEvent;
use crate::stats::occupy::{LoanRule, OCCUPY_TIMEOUT_MS};
use crate::stats::view::View;
use crate::time::Timestamp;
use crate::window::Window;
use std::cell::{Cell, OnceCell};
use std::fmt;
use std::rc::Rc;

/// The window of a node's rates: Sentinel's `SampleCountProperty` and `IntervalProperty`, 2 buckets of 500 ms.
pub(super) const SECOND: Window = Window::of_buckets(2, 500);
/// The window of a node's totals: 60 buckets of a second.
const MINUTE: Window = Window::of_buckets(60, 1000);
/// The one ring that both are views of.
const RING: Window = Window::of_buckets(120, 500);

/// The statistics of a resource, as rules and dashboards read them. Rates are per second.
///
/// Sentinel: `Node`. There reads open the current bucket; here they change nothing and say the same.
pub trait Node {
    /// Passes per second.
    fn pass_qps(&self, now: Timestamp) -> f64;
    /// Refusals per second.
    fn block_qps(&self, now: Timestamp) -> f64;
    /// Passes and refusals per second.
    fn total_qps(&self, now: Timestamp) -> f64;
    /// Completions per second, the failed ones included.
    fn success_qps(&self, now: Timestamp) -> f64;
    /// Failed completions per second.
    fn exception_qps(&self, now: Timestamp) -> f64;
    /// Borrowed passes per second, by when they were lent.
    fn occupied_pass_qps(&self, now: Timestamp) -> f64;
    /// The rate at which calls would complete if every bucket did as well as the best; never below one completion a bucket.
    fn max_success_qps(&self, now: Timestamp) -> f64;
    /// Average response time, in milliseconds; 0 if nothing has completed.
    fn avg_rt(&self, now: Timestamp) -> f64;
    /// Shortest response time, in milliseconds; 5000 if nothing has completed, at least 1.
    fn min_rt(&self, now: Timestamp) -> f64;
    /// Passes in the second before the current one.
    fn previous_pass_qps(&self, now: Timestamp) -> f64;
    /// Refusals in the second before the current one.
    fn previous_block_qps(&self, now: Timestamp) -> f64;
    /// Passes and refusals in the last minute.
    fn total_request(&self, now: Timestamp) -> u64;
    /// Passes in the last minute.
    fn total_pass(&self, now: Timestamp) -> u64;
    /// Completions in the last minute.
    fn total_success(&self, now: Timestamp) -> u64;
    /// Failed completions in the last minute.
    fn total_exception(&self, now: Timestamp) -> u64;
    /// Refusals in the last minute.
    fn block_request(&self, now: Timestamp) -> u64;
    /// Calls in flight.
    fn cur_thread_num(&self) -> u64;
    /// Borrowed passes that are still to come.
    fn waiting(&self, now: Timestamp) -> u64;
}

/// Second and minute windows and the number of calls in flight.
///
/// Both windows are views of one ring of 120 half seconds, so that an event is written once.
///
/// Sentinel: `StatisticNode`.
pub struct StatisticNode {
    ring: ArrayMetric,
    second: View,
    minute: View,
    threads: Cell<u64>,
    last_fetch: Cell<Option<Timestamp>>,
    /// Of the node of a resource: where its first context has statistics of its own, once they differ from these. `None` inside
    /// if they differed from the beginning.
    first: OnceCell<Option<Own>>,
}

/// The statistics of one context: none while they are those of all contexts together.
pub(super) type Own = Rc<OnceCell<StatisticNode>>;

impl Default for StatisticNode {
    fn default() -> StatisticNode {
        StatisticNode::new(LoanRule::Exact)
    }
}

impl StatisticNode {
    /// Nothing counted yet; `loan_rule` decides about loans in whose bucket nothing happens.
    pub fn new(loan_rule: LoanRule) -> StatisticNode {
        StatisticNode {
            ring: ArrayMetric::borrowing(RING, SECOND, loan_rule),
            second: const { View::of_ring(RING, SECOND) },
            minute: const { View::of_ring(RING, MINUTE).as_an_array_of_its_own() },
            threads: Cell::new(0),
            last_fetch: Cell::new(None),
            first: OnceCell::new(),
        }
    }

    /// These statistics, for a node that has recorded the same until now.
    pub(super) fn copy(&self) -> StatisticNode {
        StatisticNode {
            ring: self.ring.clone(),
            second: self.second,
            minute: self.minute,
            threads: self.threads.clone(),
            last_fetch: Cell::new(None),
            first: OnceCell::new(),
        }
    }

    /// The place for the statistics of a context that begins: it is empty if that is the first one, and nothing has been recorded
    /// here yet.
    pub(super) fn own(&self) -> Own {
        if self.first.get().is_none() {
            let own = Own::default();
            let _ = self.first.set(Some(Rc::clone(&own)));
            return own;
        }
        self.part();
        Rc::new(OnceCell::from(StatisticNode::default()))
    }

    /// From now on this records what the first context does not: that one gets statistics of its own.
    #[inline]
    pub(super) fn part(&self) -> &StatisticNode {
        if let Some(own) = self.first.get_or_init(|| None) {
            own.get_or_init(|| self.copy());
        }
        self
    }

    /// The statistics of the last second: `Metric` in full.
    pub fn second(&self) -> SlidingWindowMetric<'_> {
        self.ring.view(self.second)
    }

    /// The statistics of the last minute: `Metric` in full.
    pub fn minute(&self) -> SlidingWindowMetric<'_> {
        self.ring.view(self.minute)
    }

    /// Opens the current bucket, as each of Sentinel's reads of the last second does; a loan may depend on it
    /// ([`LoanRule::Sentinel`]).
    pub fn touch(&self, now: Timestamp) {
        self.part().ring.current(now);
    }

    /// Records `n` passes.
    #[doc(alias = "addPassRequest")]
    #[inline]
    pub fn add_pass_request(&self, n: u64, now: Timestamp) {
        self.part().ring.add(MetricEvent::Pass, n, now);
    }

    /// Records that a call has begun: `n` passes, and one call in flight.
    #[inline]
    pub fn begin(&self, n: u64, now: Timestamp) {
        self.part().record_begin(n, now);
    }

    /// The same, recorded for the first context, too, if it has no statistics of its own.
    #[inline]
    pub(super) fn record_begin(&self, n: u64, now: Timestamp) {
        let threads = self.threads.get().saturating_add(1);
        self.threads.set(threads);
        let bucket = self.ring.current(now);
        bucket.add(MetricEvent::Pass, n);
        bucket.update_concurrency(threads);
    }

    /// Records that a call has begun on `n` passes borrowed from the half second of `at`, which has not begun: the passes
    /// there, and one call in flight.
    pub(crate) fn begin_on_loan(&self, n: u64, at: Timestamp, now: Timestamp) {
        self.lend(n, at, now);
        self.begin_elsewhere(now);
    }

    /// Lends `n` passes of the half second of `at`. If that is too far ahead to be recorded, they are passes of now.
    pub(crate) fn lend(&self, n: u64, at: Timestamp, now: Timestamp) {
        if at.since(now) < SECOND.interval() - SECOND.bucket_length() {
            self.add_waiting_request(at, n);
            self.add_occupied_pass(n, now);
        } else {
            self.add_pass_request(n, now);
        }
    }

    /// Records one call in flight, whose pass is recorded elsewhere.
    pub(crate) fn begin_elsewhere(&self, now: Timestamp) {
        self.increase_thread_num();
        self.ring.update_concurrency(self.threads.get(), now);
    }

    /// Records that a call has ended: a response time in milliseconds, `n` successes, `n` failures if it failed, and one call
    /// fewer in flight.
    #[inline]
    pub fn complete(&self, rt: u64, n: u64, failed: bool, now: Timestamp) {
        self.part().record_complete(rt, n, failed, now);
    }

    /// The same, recorded for the first context, too, if it has no statistics of its own.
    #[inline]
    pub(super) fn record_complete(&self, rt: u64, n: u64, failed: bool, now: Timestamp) {
        let bucket = self.ring.current(now);
        bucket.add_rt(rt);
        bucket.add(MetricEvent::Success, n);
        if failed {
            bucket.add(MetricEvent::Exception, n);
        }
        self.record_end();
    }

    /// Records `n` refusals.
    #[doc(alias = "increaseBlockQps")]
    pub fn increase_block_qps(&self, n: u64, now: Timestamp) {
        self.part().record_block(n, now);
    }

    /// The same, recorded for the first context, too, if it has no statistics of its own.
    pub(super) fn record_block(&self, n: u64, now: Timestamp) {
        self.ring.add(MetricEvent::Block, n, now);
    }

    /// Records one call fewer in flight, for the first context, too, if it has no statistics of its own.
    #[inline]
    pub(super) fn record_end(&self) {
        self.threads.set(self.threads.get().saturating_sub(1));
    }

    /// Records `n` failed completions.
    #[doc(alias = "increaseExceptionQps")]
    pub fn increase_exception_qps(&self, n: u64, now: Timestamp) {
        self.part().ring.add(MetricEvent::Exception, n, now);
    }

    /// Records one response time in milliseconds and `n` completions.
    #[doc(alias = "addRtAndSuccess")]
    pub fn add_rt_and_success(&self, rt: u64, n: u64, now: Timestamp) {
        let bucket = self.part().ring.current(now);
        bucket.add_rt(rt);
        bucket.add(MetricEvent::Success, n);
    }

    /// Records one call more in flight.
    #[doc(alias = "increaseThreadNum")]
    pub fn increase_thread_num(&self) {
        self.part();
        self.threads.set(self.threads.get().saturating_add(1));
    }

    /// Records one call fewer in flight; there are never fewer than none.
    #[doc(alias = "decreaseThreadNum")]
    pub fn decrease_thread_num(&self) {
        self.part().record_end();
    }

    /// Records `n` borrowed passes where they count at once: in the minute.
    #[doc(alias = "addOccupiedPass")]
    pub fn add_occupied_pass(&self, n: u64, now: Timestamp) {
        self.part().ring.add_lent(n, now);
    }

    /// Borrows `n` passes from the half second of `at`, which has not begun.
    #[doc(alias = "addWaitingRequest")]
    pub fn add_waiting_request(&self, at: Timestamp, n: u64) {
        self.part().ring.add_waiting(at, n);
    }

    /// How many milliseconds a request for `acquire` has to wait until a future bucket can pay for it under `threshold` passes
    /// a second; [`OCCUPY_TIMEOUT_MS`] or more if none can.
    ///
    /// Passes of the bucket that leaves at the next boundary are lent now. Exactly at the start of a bucket nothing can be
    /// borrowed: the wait would be the whole timeout.
    ///
    /// Sentinel: `StatisticNode.tryOccupyNext`.
    #[doc(alias = "tryOccupyNext")]
    pub fn try_occupy_next(&self, acquire: u64, threshold: f64, now: Timestamp) -> u64 {
        let (interval, length) = (SECOND.interval_ms(), SECOND.bucket_nanos() / 1_000_000);
        let second = self.second();
        let max = threshold * interval as f64 / 1000.0;
        let borrowed = self.waiting(now);
        if borrowed as f64 >= max {
            return OCCUPY_TIMEOUT_MS;
        }
        let millis = now.as_millis();
        let mut earliest = (millis - millis % length + length).saturating_sub(interval);
        let mut pass = second.pass(now);
        let mut step = 0;
        while earliest < millis {
            let wait = step * length + length - millis % length;
            if wait >= OCCUPY_TIMEOUT_MS {
                break;
            }
            let leaving = second.window_sum(MetricEvent::Pass, Timestamp::from_millis(earliest));
            if (pass + borrowed + acquire).saturating_sub(leaving) as f64 <= max {
                return wait;
            }
            earliest += length;
            pass = pass.saturating_sub(leaving);
            step += 1;
        }
        OCCUPY_TIMEOUT_MS
    }

    /// The seconds before the current one that had any events and have not been reported yet, oldest first.
    ///
    /// Sentinel: `StatisticNode.metrics`, the source of its metric log.
    pub fn metrics(&self, now: Timestamp) -> Vec<MetricNode> {
        let (current, last) = (MINUTE.start(now), self.last_fetch.get());
        let mut news = self
            .minute()
            .details_on_condition(now, &|at| at < current && last.is_none_or(|last| at > last));
        news.retain(|node| !node.is_empty());
        if let Some(newest) = news.last() {
            self.last_fetch.set(Some(newest.timestamp));
        }
        news
    }

    /// The seconds of the last minute whose start satisfies `predicate`, oldest first.
    #[doc(alias = "rawMetricsInMin")]
    pub fn raw_metrics_in_min(
        &self,
        now: Timestamp,
        predicate: &dyn Fn(Timestamp) -> bool,
    ) -> Vec<MetricNode> {
        self.minute().details_on_condition(now, predicate)
    }
}

impl fmt::Debug for StatisticNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in flight, {:?}", self.threads.get(), self.ring)
    }
}

impl Node for StatisticNode {
    fn pass_qps(&self, now: Timestamp) -> f64 {
        self.second().average(MetricEvent::Pass, now)
    }

    fn block_qps(&self, now: Timestamp) -> f64 {
        self.second().average(MetricEvent::Block, now)
    }

    fn total_qps(&self, now: Timestamp) -> f64 {
        self.pass_qps(now) + self.block_qps(now)
    }

    fn success_qps(&self, now: Timestamp) -> f64 {
        self.second().average(MetricEvent::Success, now)
    }

    fn exception_qps(&self, now: Timestamp) -> f64 {
        self.second().average(MetricEvent::Exception, now)
    }

    fn occupied_pass_qps(&self, now: Timestamp) -> f64 {
        self.second().average(MetricEvent::OccupiedPass, now)
    }

    fn max_success_qps(&self, now: Timestamp) -> f64 {
        self.second().max_success(now) as f64 * f64::from(SECOND.sample_count())
            / SECOND.interval_seconds()
    }

    fn avg_rt(&self, now: Timestamp) -> f64 {
        match self.second().success(now) {
            0 => 0.0,
            completed => self.second().rt(now) as f64 / completed as f64,
        }
    }

    fn min_rt(&self, now: Timestamp) -> f64 {
        self.second().min_rt(now) as f64
    }

    fn previous_pass_qps(&self, now: Timestamp) -> f64 {
        self.minute().previous_window_pass(now) as f64
    }

    fn previous_block_qps(&self, now: Timestamp) -> f64 {
        self.minute().previous_window_block(now) as f64
    }

    fn total_request(&self, now: Timestamp) -> u64 {
        self.total_pass(now).wrapping_add(self.block_request(now))
    }

    fn total_pass(&self, now: Timestamp) -> u64 {
        self.minute().pass(now)
    }

    fn total_success(&self, now: Timestamp) -> u64 {
        self.minute().success(now)
    }

    fn total_exception(&self, now: Timestamp) -> u64 {
        self.minute().exception(now)
    }

    fn block_request(&self, now: Timestamp) -> u64 {
        self.minute().block(now)
    }

    fn cur_thread_num(&self) -> u64 {
        self.threads.get()
    }

    fn waiting(&self, now: Timestamp) -> u64 {
        self.ring.waiting(now)
    }
}
