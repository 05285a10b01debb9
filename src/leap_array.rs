//! The leap array: a ring of buckets, reused in place.
//!
//! ```text
//!                      newest
//!                        |
//!   slots   [ 5 ]  [ 6 ] [ 7 ] [ 4 ]         bucket numbers; 4 is the oldest that still counts
//!                              ^
//!             the next bucket, 8, takes this slot: it is opened as the successor of 7, and 4 is forgotten
//! ```
//!
//! The ring knows no counter. A slot holds a [`Bucket`]; the ring only calls it when the slot is reused.
//!
//! The ring has no gaps: if the clock leaps over buckets, they are opened too (at most all of them), though no call has touched
//! them. So a [`crate::stats::MetricBucket`] can remember what had been counted before it, and a sum over any run of buckets is
//! one subtraction. Sentinel's ring has gaps; lists show only touched buckets, as Sentinel's do.

mod ring;

pub(crate) use ring::{Ring, Slot};

use crate::time::Timestamp;
use crate::window::Window;
use std::cell::Cell;
use std::fmt;

/// The content of a ring's slot, which can be reused.
pub trait Bucket: Default {
    /// Empties this bucket: it now follows `previous` in time. In a ring of one slot `previous` is this bucket.
    fn open(&self, previous: &Self);

    /// Adds the content of `older`, a bucket before this one.
    fn absorb(&self, older: &Self);

    /// Empties this bucket: it now ends where `next` begins.
    fn precede(&self, next: &Self);
}

/// One slot of a ring: a bucket and when it starts.
///
/// Sentinel: `WindowWrap`.
#[doc(alias = "BucketWrap")]
#[derive(Clone, Default)]
pub struct WindowWrap<T> {
    /// `None` while no call has touched the bucket.
    start: Cell<Option<Timestamp>>,
    value: T,
}

impl<T> WindowWrap<T> {
    /// When the bucket starts; `None` if no call has touched it.
    #[doc(alias = "windowStart")]
    pub fn start(&self) -> Option<Timestamp> {
        self.start.get()
    }

    /// What the bucket holds.
    pub fn value(&self) -> &T {
        &self.value
    }
}

impl<T: Bucket> Slot for WindowWrap<T> {
    fn open(&self, previous: &WindowWrap<T>) {
        self.value.open(&previous.value);
        self.start.set(None);
    }

    fn absorb(&self, older: &WindowWrap<T>) {
        self.value.absorb(&older.value);
    }

    fn precede(&self, next: &WindowWrap<T>) {
        self.value.precede(&next.value);
        self.start.set(None);
    }

    fn touch(&self, start: Timestamp) {
        self.start.set(Some(start));
    }
}

/// A ring of buckets that covers one interval and is reused in place.
///
/// The clock may step back. While `now` lies less than one interval behind the newest bucket, everything happens in that
/// bucket. One interval or more behind, the ring moves to the new time, and all that it held is counted in the newest bucket
/// there: too strict for a moment, never too lenient. (Sentinel writes to a bucket that is never read, until the clock has
/// caught up.)
///
/// ```
/// use leapgate::Timestamp;
/// use leapgate::stats::{LeapArray, MetricBucket, MetricEvent, Window};
///
/// let array = LeapArray::<MetricBucket>::new(Window::new(1000, 2)?);
/// let at = Timestamp::from_millis;
/// array.current_window(at(1188)).value().add(MetricEvent::Pass, 3);
/// array.current_window(at(1700)).value().add(MetricEvent::Pass, 4);
/// let passes = |now| array.values(now).map(|b| b.get(MetricEvent::Pass)).collect::<Vec<_>>();
/// assert_eq!(passes(at(1999)), [3, 4]);
/// assert_eq!(passes(at(2000)), [4]);
/// # Ok::<(), leapgate::stats::WindowError>(())
/// ```
#[derive(Clone)]
pub struct LeapArray<T> {
    ring: Ring<WindowWrap<T>>,
}

impl<T: Bucket> LeapArray<T> {
    /// An empty ring.
    pub fn new(window: Window) -> LeapArray<T> {
        // Two more buckets than count: the latest to leave can still be read ([`LeapArray::window_value`]).
        let counting = window.sample_count();
        LeapArray {
            ring: Ring::new(window, counting, counting.saturating_add(2)),
        }
    }

    /// The geometry.
    pub fn window(&self) -> Window {
        self.ring.window()
    }

    /// The bucket of `now`, opened if need be.
    ///
    /// Sentinel: `LeapArray.currentWindow(long)`.
    #[doc(alias = "currentWindow")]
    #[inline]
    pub fn current_window(&self, now: Timestamp) -> &WindowWrap<T> {
        self.current_window_with(now, |_, _| {})
    }

    /// As [`LeapArray::current_window`]; `opened` is called with each bucket opened on the way and its start, oldest first.
    #[inline]
    pub(crate) fn current_window_with(
        &self,
        now: Timestamp,
        opened: impl Fn(&T, Timestamp),
    ) -> &WindowWrap<T> {
        self.ring
            .current_with(now, |wrap, start| opened(&wrap.value, start))
    }

    /// See [`Ring::reading_time`].
    #[inline]
    pub(crate) fn reading_time(&self, now: Timestamp) -> Timestamp {
        self.ring.reading_time(now)
    }

    /// When the newest bucket starts.
    pub(crate) fn newest_start(&self) -> Option<Timestamp> {
        self.ring.newest_start()
    }

    /// The newest bucket.
    #[inline]
    pub(crate) fn newest(&self) -> Option<&T> {
        self.ring.newest().map(WindowWrap::value)
    }

    /// The bucket before which nothing is known.
    pub(crate) fn oldest(&self) -> Option<&T> {
        self.ring.oldest().map(WindowWrap::value)
    }

    /// The bucket that starts at `start`, touched or not; `None` outside the ring: after its newest bucket, or too far back.
    #[inline]
    pub(crate) fn bucket_at(&self, start: Timestamp) -> Option<&WindowWrap<T>> {
        self.ring.bucket_at(start)
    }

    /// The content of the bucket of `at`; `None` if no call has touched it, or if a later bucket with the same slot has been
    /// touched.
    ///
    /// Nothing is opened. A bucket that no longer counts can still be read for the time of two buckets.
    ///
    /// Sentinel: `LeapArray.getWindowValue`.
    #[doc(alias = "getWindowValue")]
    pub fn window_value(&self, at: Timestamp) -> Option<&T> {
        let start = self.window().start(at);
        self.touched(start)
            .filter(|_| !self.is_replaced(start))
            .map(WindowWrap::value)
    }

    /// Whether a later bucket with the slot of the bucket starting at `start` has been touched.
    fn is_replaced(&self, start: Timestamp) -> bool {
        let later = |at: &Timestamp| Some(at.plus_nanos(self.window().interval_nanos()));
        let mut successors = std::iter::successors(later(&start), later)
            .take_while(|at| self.bucket_at(*at).is_some());
        successors.any(|at| self.touched(at).is_some())
    }

    /// The bucket before the current one; `None` if no call has touched it, and in a ring of one bucket.
    ///
    /// Sentinel: `LeapArray.getPreviousWindow(long)`, which answers with the current bucket in a ring of one (issue 3309).
    #[doc(alias = "getPreviousWindow")]
    pub fn previous_window(&self, now: Timestamp) -> Option<&WindowWrap<T>> {
        let before = self
            .window()
            .start(self.reading_time(now))
            .as_nanos()
            .checked_sub(self.window().bucket_nanos())?;
        self.touched(Timestamp::from_nanos(before))
            .filter(|_| self.window().sample_count() > 1)
    }

    /// The oldest bucket that may still count at `now`: its slot is used next. `None` if no call has touched it.
    ///
    /// Sentinel: `LeapArray.getValidHead`.
    #[doc(alias = "getValidHead")]
    pub fn valid_head(&self, now: Timestamp) -> Option<&WindowWrap<T>> {
        self.touched(self.window().oldest_start(self.reading_time(now)))
    }

    fn touched(&self, start: Timestamp) -> Option<&WindowWrap<T>> {
        self.bucket_at(start)
            .filter(|wrap| wrap.start.get().is_some())
    }

    /// Whether `wrap` does not count at `now`. A bucket that no call has touched never counts.
    ///
    /// Sentinel: `LeapArray.isWindowDeprecated`.
    #[doc(alias = "isWindowDeprecated")]
    pub fn is_window_deprecated(&self, now: Timestamp, wrap: &WindowWrap<T>) -> bool {
        wrap.start
            .get()
            .is_none_or(|start| self.window().is_deprecated(start, self.reading_time(now)))
    }

    /// The touched buckets that count at `now`, oldest first.
    ///
    /// Sentinel: `LeapArray.list`, whose order is that of the slots.
    pub fn list(&self, now: Timestamp) -> impl Iterator<Item = &WindowWrap<T>> {
        self.list_all()
            .filter(move |wrap| !self.is_window_deprecated(now, wrap))
    }

    /// Every touched bucket that can still be read ([`LeapArray::window_value`]), oldest first.
    ///
    /// Sentinel: `LeapArray.listAll`.
    #[doc(alias = "listAll")]
    pub fn list_all(&self) -> impl Iterator<Item = &WindowWrap<T>> {
        self.ring.in_order().filter(|wrap| {
            wrap.start
                .get()
                .is_some_and(|start| !self.is_replaced(start))
        })
    }

    /// The content of the buckets that count at `now`, oldest first.
    ///
    /// Sentinel: `LeapArray.values`.
    pub fn values(&self, now: Timestamp) -> impl Iterator<Item = &T> {
        self.list(now).map(WindowWrap::value)
    }

    /// The content of the buckets that count at `now` and whose start satisfies `predicate`, oldest first.
    ///
    /// sentinel-golang: `LeapArray.ValuesConditional`.
    #[doc(alias = "ValuesConditional")]
    pub fn values_conditional(
        &self,
        now: Timestamp,
        predicate: impl Fn(Timestamp) -> bool,
    ) -> impl Iterator<Item = &T> {
        self.list(now)
            .filter(move |wrap| wrap.start.get().is_some_and(&predicate))
            .map(WindowWrap::value)
    }
}

/// The ring as a picture: each touched bucket with its start in milliseconds, oldest first.
impl<T: Bucket + fmt::Debug> fmt::Debug for LeapArray<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "ring of {} x {:?}:",
            self.window().sample_count(),
            self.window().bucket_length()
        )?;
        for wrap in self.list_all() {
            let start = wrap.start.get().map_or(0, Timestamp::as_millis);
            write!(f, " [ {start}.. {:?} ]", wrap.value)?;
        }
        Ok(())
    }
}
