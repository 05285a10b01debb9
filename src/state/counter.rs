//! Where a rule's two running counts are kept, and the instant of its throttle.
//!
//! `reserved` is raised before a request is let in and lowered if it is not, so it is never behind the truth; `admitted` is
//! raised after, so it is never ahead of it. A request reserves first and passes if it then finds at most the limit between
//! the two counts: of two requests that race for the last place, at most one does.

use crate::snapshots::Snapshots;
use crate::time::Timestamp;
use std::cell::Cell;

/// Two running counts of one rule, which wrap around after 2^64, and the instant that a throttle keeps.
pub trait Counter {
    /// How much has been admitted so far; never ahead of the truth. `None` where the count is this window's own affair.
    fn admitted(&self) -> Option<u64>;

    /// How much has been reserved so far and not released; never behind the truth.
    fn reserved(&self) -> u64;

    /// Reserves `n` and says how much is reserved in all, with these and with what racing requests reserve. `None` where
    /// nothing could be reserved.
    fn reserve(&self, n: u64) -> Option<u64>;

    /// Releases `n` that were reserved and are not admitted.
    fn release(&self, n: u64);

    /// Turns `n` that were reserved into admissions.
    fn admit(&self, n: u64);

    /// How far the turns of a throttle reach.
    fn latest(&self) -> &impl SharedInstant;

    /// How warm the rule is, as another worker that shares these counts has published last; `None` where none has, or where the
    /// counts are not shared.
    fn warm_up(&self) -> Option<[u64; 4]> {
        None
    }

    /// Publishes how warm the rule is to the workers that share these counts.
    fn publish_warm_up(&self, _: [u64; 4]) {}

    /// What is known of the past where the window may have missed something, since it was neither asked for nor kept up to
    /// date; `None` where it goes on with what it knows. Called when a bucket begins, and after [`RuleWindow::rest`](crate::backend::RuleWindow::rest).
    fn published(&self) -> Option<Past> {
        None
    }

    /// `admitted` has fallen: whatever is known of the past is of no use.
    fn fallen(&self) {}
}

/// An instant that several workers may share. It moves by compare-and-swap alone: a worker that was overtaken reads it again.
pub trait SharedInstant {
    /// The instant; `None` where there has been none yet.
    fn get(&self) -> Option<Timestamp>;

    /// Puts `to` in the place of `from`. Whether that was done: not where it is not `from` any more, and not where it could
    /// not be done at all.
    fn swap(&self, from: Option<Timestamp>, to: Option<Timestamp>) -> bool;
}

/// An instant of one worker alone.
#[derive(Default, Debug)]
pub struct LocalInstant(Cell<Option<Timestamp>>);

impl SharedInstant for LocalInstant {
    #[inline]
    fn get(&self) -> Option<Timestamp> {
        self.0.get()
    }

    #[inline]
    fn swap(&self, from: Option<Timestamp>, to: Option<Timestamp>) -> bool {
        let is_from = self.0.get() == from;
        if is_from {
            self.0.set(to);
        }
        is_from
    }
}

/// Counts of one worker alone.
#[derive(Default, Debug)]
pub struct LocalCounter {
    reserved: Cell<u64>,
    latest: LocalInstant,
}

impl Counter for LocalCounter {
    #[inline]
    fn admitted(&self) -> Option<u64> {
        None
    }

    #[inline]
    fn reserved(&self) -> u64 {
        self.reserved.get()
    }

    #[inline]
    fn reserve(&self, n: u64) -> Option<u64> {
        self.reserved.set(self.reserved.get().wrapping_add(n));
        Some(self.reserved.get())
    }

    #[inline]
    fn release(&self, n: u64) {
        self.reserved.set(self.reserved.get().wrapping_sub(n));
    }

    #[inline]
    fn admit(&self, _: u64) {}

    fn latest(&self) -> &impl SharedInstant {
        &self.latest
    }
}

/// What a window knows of the time before it was made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Past {
    /// Nothing has been admitted, ever.
    Fresh,
    /// Much may have been: until an interval has passed, all of it counts as used.
    Unknown {
        /// What `admitted` is now.
        admitted: u64,
    },
    /// What another window over the same counts has kept.
    Kept(Snapshots),
}
