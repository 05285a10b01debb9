//! A running count and its value at each bucket's start: the count within a window is a difference of the two.

use crate::leap_array::{Ring, Slot};
use crate::snapshots::{Snapshots, serial_since};
use crate::time::Timestamp;
use crate::window::Window;
use std::cell::Cell;

/// A count that only rises, and wraps around after 2^64; or several counts that are read together.
pub(super) trait RunningCount: Copy + Default {
    /// Whether it is behind `other`.
    fn is_behind(self, other: Self) -> bool;
}

impl RunningCount for u64 {
    #[inline]
    fn is_behind(self, other: u64) -> bool {
        serial_since(self, other).is_none()
    }
}

/// The value of a running count when a bucket began.
#[derive(Default)]
struct AtStart<C>(Cell<C>);

impl<C: RunningCount> Slot for AtStart<C> {
    fn open(&self, previous: &AtStart<C>) {
        self.0.set(previous.0.get());
    }

    fn absorb(&self, older: &AtStart<C>) {
        if !self.0.get().is_behind(older.0.get()) {
            self.0.set(older.0.get());
        }
    }

    fn precede(&self, next: &AtStart<C>) {
        self.0.set(next.0.get());
    }
}

/// Lets each of these buckets begin with `count`.
fn fill<C: RunningCount>(run: &[AtStart<C>], count: C) {
    run.iter().for_each(|at_start| at_start.0.set(count));
}

/// A running count and its past.
pub(super) struct History<C> {
    /// One bucket more than the window: the one that is leaving.
    ring: Ring<AtStart<C>>,
    /// The count when it was last observed, plus what this worker has added since.
    pub(super) last: Cell<C>,
    /// A count that was observed and has no time yet.
    pub(super) seen: Cell<Option<C>>,
    /// The assumed count before the ring begins.
    initial: C,
}

impl<C: RunningCount> History<C> {
    /// The history of a count that is `last` now and was `initial` for as long as the window reaches back.
    pub(super) fn new(window: Window, initial: C, last: C) -> History<C> {
        let buckets = window.sample_count().saturating_add(1);
        let history = History {
            ring: Ring::new(window, buckets, buckets),
            last: Cell::new(last),
            seen: Cell::new(None),
            initial,
        };
        history.reset(initial);
        history
    }

    /// The geometry.
    #[inline]
    pub(super) fn window(&self) -> Window {
        self.ring.window()
    }

    /// Whether `now` lies in the newest bucket.
    #[inline]
    pub(super) fn is_current(&self, now: Timestamp) -> bool {
        self.ring.is_current(now)
    }

    /// When the newest bucket starts; `None` while there is none.
    #[inline]
    pub(super) fn newest_start(&self) -> Option<Timestamp> {
        self.ring.newest_start()
    }

    /// The instant that stands for `now`: the start of the newest bucket while the clock is behind it.
    #[inline]
    pub(super) fn reading_time(&self, now: Timestamp) -> Timestamp {
        self.ring.reading_time(now)
    }

    /// Sets the count at every bucket's start to `count`.
    pub(super) fn reset(&self, count: C) {
        fill(self.ring.slots(), count);
    }

    /// Opens each bucket up to that of `now`: it begins with the count as it is known then. (The very first bucket had begun
    /// before this history: as the ones before it, it begins with the initial count.)
    #[inline]
    pub(super) fn move_to(&self, now: Timestamp) {
        self.ring.fill_to(now, |run| fill(run, self.last.get()));
    }

    /// As [`History::move_to`], but `open` is called for each bucket, in the order of time, with its start and its count. It has
    /// to pass the count to [`History::begin`], and may add to the history before that and after it.
    ///
    /// One closure, and not one for what comes before and one for what comes after: with two, a new bucket costs a fifteenth
    /// more instructions.
    #[inline]
    pub(super) fn move_to_with(&self, now: Timestamp, open: impl Fn(Timestamp, Option<&Cell<C>>)) {
        let is_first = self.newest_start().is_none();
        self.ring.current_with(now, move |at_start, start| {
            open(start, (!is_first).then_some(&at_start.0));
        });
    }

    /// Sets the count with which a bucket begins; `None` stands for the very first bucket, whose count is set already.
    #[inline]
    pub(super) fn begin(&self, began: Option<&Cell<C>>) {
        if let Some(began) = began {
            began.set(self.last.get());
        }
    }

    /// The count when the bucket `behind` before the newest one began; `None` while there is no bucket.
    #[cfg_attr(not(feature = "small"), inline(always))] // a search for the first fit asks for it over and over
    pub(super) fn at_start(&self, behind: usize) -> Option<&Cell<C>> {
        Some(&self.ring.before_newest(behind)?.0)
    }

    /// The count at the start of the bucket that lies `buckets` (at most as many as the window has) before the bucket `ahead`
    /// of the newest.
    #[cfg_attr(not(feature = "small"), inline(always))] // a search for the first fit asks for it over and over
    pub(super) fn before_bucket(&self, buckets: u64, ahead: u64) -> C {
        match buckets.checked_sub(ahead) {
            None => self.last.get(),
            Some(behind) => self
                .at_start(behind as usize)
                .map_or(self.initial, Cell::get),
        }
    }

    /// The count at the start of the bucket that lies `buckets` (at most as many as the window has) before the bucket starting
    /// at `start`, which is the newest or a later one.
    #[inline]
    pub(super) fn before(&self, start: Timestamp, buckets: u64) -> C {
        let newest = self.newest_start().unwrap_or(start);
        let since = start.as_nanos().saturating_sub(newest.as_nanos());
        self.before_bucket(buckets, since / self.window().bucket_nanos())
    }

    /// Continues a ring that was kept elsewhere, whose newest bucket starts at `newest`.
    pub(super) fn restore(&self, newest: Timestamp) {
        self.ring.restore(newest);
    }

    /// Takes over the `known` count at the start of each bucket, as far as it is known.
    pub(super) fn take_up(&self, known: impl Fn(Timestamp, Window) -> Option<C>) {
        let window = self.window();
        self.ring.for_each_start(|at_start, start| {
            if let Some(count) = known(start, window) {
                at_start.0.set(count);
            }
        });
    }

    /// All that another history of the same counts needs to continue this one; `None` before the first bucket. Each of `parts`
    /// reads one of the counts.
    pub(super) fn snapshots(&self, parts: &[fn(C) -> u64]) -> Option<Snapshots> {
        let newest = self.newest_start()?;
        let mut counts = Vec::new();
        for part in parts {
            counts.push(part(self.last.get()));
            self.ring
                .for_each_start(|at_start, _| counts.push(part(at_start.0.get())));
        }
        Some(Snapshots { newest, counts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers by Marsaglia's xorshift: unit tests of the core use no crate.
    fn random(state: &mut u64) -> u64 {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *state
    }

    #[test]
    fn a_leap_leaves_each_bucket_as_opening_them_one_by_one_does() {
        let mut seed = 0x9e37_79b9_7f4a_7c15;
        for buckets in [1, 2, 3, 7, 20, 60] {
            let window = Window::new(u64::from(buckets) * 10, buckets).unwrap();
            let length = window.bucket_nanos();
            let (filled, opened) = (History::new(window, 5, 9), History::new(window, 5, 9));
            let mut now = 1_000 * window.interval_nanos();
            for step in 0..4_000 {
                let n = u64::from(buckets);
                let leap = [0, 1, 2, n - 1, n, n + 1, n + 2, 2 * n + 3, 1_000_000];
                let choice = random(&mut seed) as usize % (leap.len() + 3);
                now = match leap.get(choice) {
                    Some(leap) => now + leap * length + random(&mut seed) % length,
                    // The clock steps back: by less than an interval, by about one, far.
                    None => now.saturating_sub(match choice - leap.len() {
                        0 => random(&mut seed) % (n * length),
                        1 => n * length + random(&mut seed) % (2 * length),
                        _ => 1_000 * n * length,
                    }),
                };
                let at = Timestamp::from_nanos(now);
                filled.move_to(at);
                opened.move_to_with(at, |_, began| opened.begin(began));
                let parts: [fn(u64) -> u64; 1] = [|count| count];
                assert_eq!(
                    filled.snapshots(&parts),
                    opened.snapshots(&parts),
                    "{buckets} buckets, step {step}, at {now}"
                );
                for history in [&filled, &opened] {
                    history.last.set(history.last.get() + now % 3);
                }
            }
        }
    }
}
