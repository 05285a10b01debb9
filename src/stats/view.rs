//! The geometry of a coarser view of a finer ring.

use crate::time::Timestamp;
use crate::window::Window;
use std::fmt;

/// When a view counts a pass that was borrowed from a later bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Loans {
    /// In the bucket that pays: Sentinel's second window.
    WhenDue,
    /// At once: Sentinel's minute window.
    WhenMade,
}

/// The geometry of a view over a finer ring, checked once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct View {
    pub(super) window: Window,
    /// Which buckets the view's range is aligned to: its own, or the buckets of the ring below.
    pub(super) aligned_to: Window,
    pub(super) loans: Loans,
}

/// Why a window does not fit over a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ViewError {
    /// The view's buckets are not made of whole buckets of the ring: take a multiple.
    Misaligned {
        /// The view's bucket length, in milliseconds.
        bucket_ms: u64,
        /// The ring's bucket length, in milliseconds.
        ring_bucket_ms: u64,
    },
    /// The view is longer than the ring: take a shorter one.
    TooLong {
        /// The view's interval, in milliseconds.
        interval_ms: u64,
        /// The ring's interval, in milliseconds.
        ring_interval_ms: u64,
    },
}

impl fmt::Display for ViewError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            ViewError::Misaligned {
                bucket_ms,
                ring_bucket_ms,
            } => {
                let below = bucket_ms / ring_bucket_ms * ring_bucket_ms;
                write!(
                    f,
                    "buckets of `{bucket_ms}` ms are not made of whole buckets of {ring_bucket_ms} ms; use "
                )?;
                if below > 0 {
                    write!(f, "{below} or ")?;
                }
                write!(f, "{} ms", below.saturating_add(ring_bucket_ms))
            }
            ViewError::TooLong {
                interval_ms,
                ring_interval_ms,
            } => {
                write!(
                    f,
                    "`{interval_ms}` ms is more than the ring of {ring_interval_ms} ms holds; use at most that"
                )
            }
        }
    }
}

impl std::error::Error for ViewError {}

impl View {
    /// A view of `window` over a ring of geometry `ring`.
    ///
    /// A geometry fits if its buckets are made of whole buckets of the ring and if it is not longer than the ring. The buckets
    /// from `end - interval + length` to `end` count at `now`, where `end` and `length` are the start and the length of the
    /// ring's bucket at `now`.
    ///
    /// sentinel-golang: `SlidingWindowMetric.getBucketStartRange`; its `CheckValidityForReuseStatistic` also wants the
    /// ring's interval to be a multiple of the view's, which nothing needs.
    ///
    /// # Errors
    ///
    /// If the geometry does not fit.
    pub const fn sliding(ring: Window, window: Window) -> Result<View, ViewError> {
        if !window.bucket_nanos().is_multiple_of(ring.bucket_nanos()) {
            return Err(ViewError::Misaligned {
                bucket_ms: window.bucket_nanos() / 1_000_000,
                ring_bucket_ms: ring.bucket_nanos() / 1_000_000,
            });
        }
        if window.interval_nanos() > ring.interval_nanos() {
            return Err(ViewError::TooLong {
                interval_ms: window.interval_ms(),
                ring_interval_ms: ring.interval_ms(),
            });
        }
        Ok(View {
            window,
            aligned_to: ring,
            loans: Loans::WhenDue,
        })
    }

    /// A view that is known to fit.
    pub(crate) const fn of_ring(ring: Window, window: Window) -> View {
        debug_assert!(View::sliding(ring, window).is_ok());
        View {
            window,
            aligned_to: ring,
            loans: Loans::WhenDue,
        }
    }

    /// This view, with its range aligned to its own buckets and borrowed passes counted when they are lent: as a separate array
    /// that records loans at once.
    pub(crate) const fn as_an_array_of_its_own(self) -> View {
        View {
            window: self.window,
            aligned_to: self.window,
            loans: Loans::WhenMade,
        }
    }

    /// The geometry of the view.
    pub const fn window(&self) -> Window {
        self.window
    }

    /// When the ring's oldest bucket still counting at `now` starts.
    pub(super) const fn first_start(&self, now: Timestamp) -> Timestamp {
        let end = self.aligned_to.start(now).as_nanos();
        Timestamp::from_nanos(
            end.saturating_sub(self.window.interval_nanos() - self.aligned_to.bucket_nanos()),
        )
    }
}
