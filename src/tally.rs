//! Where a rule's window keeps its two running counts, and the ring of what they were.
//!
//! A window is not a sum of buckets here but a difference of two running counts:
//!
//! ```text
//!   admitted so far          17     23     23     31         now 34
//!   at the start of bucket  [ 4 ]  [ 5 ]  [ 6 ]  [ 7 ]
//!                             ^                            strict, 3 buckets: 34 - 17 = 17 since bucket 4 began
//!                                    ^                     as Sentinel counts: 34 - 23 = 11 since bucket 5 began
//! ```
//!
//! So a decision costs the same with 2 buckets and with 600, and a window can be shared by several virtual machines that
//! have nothing in common but two counters: each keeps its own ring of what `admitted` was. `tickets` is raised before a
//! request is let in and lowered if it is not, so it is never behind the truth; `admitted` is raised after, so it is never
//! ahead of it. Whoever takes a ticket and then finds at most the limit between the two may pass, and no two who race can
//! both be wrong.
//!
//! Of a shared window, `admitted` has to be read *before* the clock ([`RuleWindow::observe`]): a value that was read late
//! and filed under an early bucket would forget what was admitted in between.

use crate::leap_array::{Bucket, LeapArray};
use crate::rule::{Count, Counting};
use crate::time::Timestamp;
use crate::window::Window;
use std::cell::Cell;
use std::fmt;
use std::time::Duration;

/// Two running counts of one rule. They wrap around after 2^64.
pub trait Tally {
    /// How much has been admitted so far; never ahead of the truth. `None` where the count is this window's own affair.
    fn admitted(&self) -> Option<u64>;

    /// How many tickets have been taken and not given back; never behind the truth.
    fn tickets(&self) -> u64;

    /// Takes `n` tickets and says how many have been taken in all, these and those of racing takers included. `None` where
    /// that could not be done.
    fn take(&self, n: u64) -> Option<u64>;

    /// Gives `n` tickets back.
    fn give_back(&self, n: u64);

    /// Turns `n` tickets into admissions.
    fn commit(&self, n: u64);
}

/// Counts that nobody shares.
#[derive(Default, Debug)]
pub struct LocalTally {
    tickets: Cell<u64>,
}

impl Tally for LocalTally {
    #[inline]
    fn admitted(&self) -> Option<u64> {
        None
    }

    #[inline]
    fn tickets(&self) -> u64 {
        self.tickets.get()
    }

    #[inline]
    fn take(&self, n: u64) -> Option<u64> {
        self.tickets.set(self.tickets.get().wrapping_add(n));
        Some(self.tickets.get())
    }

    #[inline]
    fn give_back(&self, n: u64) {
        self.tickets.set(self.tickets.get().wrapping_sub(n));
    }

    #[inline]
    fn commit(&self, _: u64) {}
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

/// What `admitted` was at each bucket start of a window: enough to go on with it elsewhere.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Snapshots {
    /// When the newest bucket starts.
    pub newest: Timestamp,
    /// What `admitted` was at the start of each bucket, oldest first; the newest bucket's is last.
    pub at_start: Vec<u64>,
    /// What `admitted` was last known to be.
    pub last: u64,
}

/// More than any count: what is counted as used where the past is unknown.
const FULL: u64 = 1 << 62;

/// What `admitted` was when a bucket began.
#[derive(Default)]
struct Snapshot(Cell<u64>);

impl Bucket for Snapshot {
    fn open(&self, previous: &Snapshot) {
        self.0.set(previous.0.get());
    }

    fn absorb(&self, older: &Snapshot) {
        if self.0.get().wrapping_sub(older.0.get()) < 1 << 63 {
            self.0.set(older.0.get());
        }
    }

    fn precede(&self, next: &Snapshot) {
        self.0.set(next.0.get());
    }
}

/// How much of the passes of the leaving bucket still counts at `now`, in the bucket that starts at `start`: as much of them
/// as there is left of the bucket. A clock behind the bucket stands at its start.
#[inline]
fn kept_part(leaving: u64, start: Timestamp, now: Timestamp, window: Window) -> f64 {
    let elapsed = now.as_nanos().saturating_sub(start.as_nanos());
    leaving as f64 * (window.bucket_nanos() - elapsed) as f64 / window.bucket_nanos() as f64
}

/// The newest bucket of a window.
#[derive(Clone, Copy)]
struct Current {
    start: Timestamp,
    /// What `admitted` was when the oldest bucket began that counts in full.
    base: u64,
    /// How much was admitted in the bucket before that one.
    leaving: u64,
}

/// The window of one rule.
pub struct RuleWindow<T> {
    counting: Counting,
    /// One bucket more than the window: the one that is leaving.
    ring: LeapArray<Snapshot>,
    /// What `admitted` was when last observed, and what has been committed here since.
    last: Cell<u64>,
    /// What was observed and has no time yet.
    seen: Cell<Option<u64>>,
    /// What the ring says of the newest bucket, so that a decision need not ask it.
    current: Cell<Option<Current>>,
    /// What `admitted` is taken to have been before the ring begins.
    initial: u64,
    tally: T,
}

impl<T: Tally> RuleWindow<T> {
    /// A window over the counts of `tally`.
    pub fn new(window: Window, counting: Counting, tally: T, past: Past) -> RuleWindow<T> {
        let ring = LeapArray::<Snapshot>::with_one_more(window);
        let (initial, last) = match &past {
            Past::Fresh => (0, 0),
            Past::Unknown { admitted } => (admitted.wrapping_sub(FULL), *admitted),
            Past::Kept(kept) => (kept.last.wrapping_sub(FULL), kept.last),
        };
        ring.fill(|snapshot| snapshot.0.set(initial));
        if let Past::Kept(kept) = past {
            ring.restore(kept.newest, |snapshot, behind| {
                let index = kept.at_start.len().checked_sub(behind + 1);
                if let Some(at_start) = index.and_then(|i| kept.at_start.get(i)) {
                    snapshot.0.set(*at_start);
                }
            });
        }
        RuleWindow {
            counting,
            ring,
            last: Cell::new(last),
            seen: Cell::new(None),
            current: Cell::new(None),
            initial,
            tally,
        }
    }

    /// The geometry.
    pub fn window(&self) -> Window {
        self.ring.window()
    }

    /// The counts.
    pub fn tally(&self) -> &T {
        &self.tally
    }

    /// Reads what has been admitted. To be called before the clock is read for the next call here that takes a time.
    #[inline]
    pub fn observe(&self) {
        self.seen.set(self.tally.admitted());
    }

    /// Brings the ring up to `now` and files what was observed before.
    #[inline]
    pub fn advance(&self, now: Timestamp) {
        match self.current.get() {
            Some(current) if self.ring.window().contains(current.start, now) => {}
            _ => self.move_to(now),
        }
        if let Some(seen) = self.seen.take() {
            if seen.wrapping_sub(self.last.get()) >= 1 << 63 {
                self.forget(seen);
            }
            self.last.set(seen);
        }
    }

    #[cold]
    #[inline(never)]
    fn move_to(&self, now: Timestamp) {
        // Whatever was committed or observed before this call was so before `now`: it is what the new buckets begin with. The
        // very first one had begun before this window: as the ones before it, it begins with what the past is taken to be.
        let has_begun = self.ring.newest_start().is_some();
        self.ring.current_window_with(now, |snapshot, _| {
            if has_begun {
                snapshot.0.set(self.last.get());
            }
        });
        self.refresh();
    }

    /// `admitted` has fallen to `seen`: somebody has reset it, and nobody knows what was admitted before. Until an interval
    /// has passed, the whole window counts as used.
    #[cold]
    #[inline(never)]
    fn forget(&self, seen: u64) {
        self.ring
            .fill(|snapshot| snapshot.0.set(seen.wrapping_sub(FULL)));
        self.refresh();
    }

    /// Asks the ring for what a decision needs of it.
    fn refresh(&self) {
        let n = self.ring.window().sample_count() as usize;
        let at = |behind| {
            self.ring
                .newest_and_oldest(behind)
                .map_or(0, |(_, oldest)| oldest.0.get())
        };
        let base = at(if self.counting == Counting::Strict {
            n
        } else {
            n - 1
        });
        let current = |start| Current {
            start,
            base,
            leaving: base.wrapping_sub(at(n)),
        };
        self.current.set(self.ring.newest_start().map(current));
    }

    /// How much counts at `now`. Changes nothing.
    pub fn sum(&self, now: Timestamp) -> f64 {
        let now = self.ring.reading_time(now);
        let window = self.ring.window();
        let start = window.start(now);
        let (last, n) = (self.last.get(), u64::from(window.sample_count()));
        let base = |buckets| self.admitted_before(start, buckets);
        match self.counting {
            Counting::Strict => last.wrapping_sub(base(n)) as f64,
            Counting::Sentinel => last.wrapping_sub(base(n - 1)) as f64,
            Counting::Weighted => {
                let leaving = base(n - 1).wrapping_sub(base(n));
                last.wrapping_sub(base(n - 1)) as f64 + kept_part(leaving, start, now, window)
            }
        }
    }

    /// What `admitted` was when the bucket began that lies `buckets`, at most as many as the window has, before the one that
    /// starts at `start`, which is the newest one or will come after it.
    fn admitted_before(&self, start: Timestamp, buckets: u64) -> u64 {
        let newest = self.ring.newest_start().unwrap_or(start);
        let ahead = (start.as_nanos() - newest.as_nanos()) / self.ring.window().bucket_nanos();
        match buckets.checked_sub(ahead) {
            None => self.last.get(),
            Some(behind) => self
                .ring
                .newest_and_oldest(behind as usize)
                .map_or(self.initial, |(_, oldest)| oldest.0.get()),
        }
    }

    /// Whether `cost` more would be within `limit`, of a window that has been advanced to `now`. Takes nothing.
    #[inline]
    pub fn has_room(&self, limit: Count, cost: u64, now: Timestamp) -> bool {
        self.fits(self.last.get(), limit, cost, now)
    }

    /// Whether `counted`, with `cost` more, is within the limit.
    #[inline]
    fn fits(&self, counted: u64, limit: Count, cost: u64, now: Timestamp) -> bool {
        let Some(current) = self.current.get() else {
            return false;
        };
        let sum = counted.wrapping_sub(current.base);
        match self.counting {
            Counting::Weighted => {
                let kept = kept_part(current.leaving, current.start, now, self.ring.window());
                sum as f64 + kept + cost as f64 <= limit.get()
            }
            _ => sum.saturating_add(cost) <= limit.whole(),
        }
    }

    /// Takes tickets for `cost`, if that is within `limit`; else, or where it could not be counted, takes none. Of a window
    /// that has been advanced to `now`.
    #[inline]
    pub fn reserve(&self, limit: Count, cost: u64, now: Timestamp) -> bool {
        let Some(taken) = self.tally.take(cost) else {
            return false;
        };
        let fits = self.fits(taken, limit, 0, now);
        if !fits {
            self.tally.give_back(cost);
        }
        fits
    }

    /// Gives back tickets that were reserved.
    pub fn give_back(&self, cost: u64) {
        self.tally.give_back(cost);
    }

    /// Turns tickets that were reserved into admissions.
    #[inline]
    pub fn commit(&self, cost: u64) {
        self.tally.commit(cost);
        self.seen.set(None); // it is older than this
        self.last.set(self.last.get().wrapping_add(cost));
    }

    /// How long after `now` a `cost` would fit into `limit` if nothing else came, of a window that has been advanced to
    /// `now`: the first instant at which it does. `None` where it never can.
    pub fn time_to_room(&self, limit: Count, cost: u64, now: Timestamp) -> Option<Duration> {
        if cost as f64 > limit.get() {
            return None;
        }
        Some(self.time_until(now, |sum| sum + cost as f64 <= limit.get()))
    }

    /// How long after `now` quota next comes back if nothing else came: zero where none is used.
    pub fn time_to_more(&self, now: Timestamp) -> Duration {
        let used = self.sum(now);
        self.time_until(now, |sum| sum < used || used == 0.0)
    }

    /// How long after `asked` the sum first satisfies `fits`, which it does in the end, since it only falls.
    fn time_until(&self, asked: Timestamp, fits: impl Fn(f64) -> bool) -> Duration {
        let now = self.ring.reading_time(asked);
        let window = self.ring.window();
        let start = window.start(now);
        let n = u64::from(window.sample_count());
        let fits_at = |at: Timestamp| fits(self.sum(at));
        let boundary = |ahead: u64| start.plus_nanos(ahead.saturating_mul(window.bucket_nanos()));
        if fits_at(now) {
            return Duration::ZERO;
        }
        // What counts only falls from here on, and n + 1 boundaries on nothing is left of it.
        let (mut full, mut fits) = (0, n + 1);
        while fits - full > 1 {
            let middle = full.midpoint(fits);
            if fits_at(boundary(middle)) {
                fits = middle
            } else {
                full = middle
            }
        }
        let mut at = boundary(fits);
        if self.counting == Counting::Weighted {
            at = self.first_fit_within(boundary(full).max(now), at, &fits_at);
        }
        at.since(asked)
    }

    /// The first whole millisecond in `(full, fits]` at which `fits_at` holds; it does at the end.
    fn first_fit_within(
        &self,
        full: Timestamp,
        fits: Timestamp,
        fits_at: &impl Fn(Timestamp) -> bool,
    ) -> Timestamp {
        let (mut full, mut fits) = (full.as_millis(), fits.as_millis());
        while fits.saturating_sub(full) > 1 {
            let middle = full.midpoint(fits);
            if fits_at(Timestamp::from_millis(middle)) {
                fits = middle
            } else {
                full = middle
            }
        }
        Timestamp::from_millis(fits)
    }

    /// What another window over the same counts needs to go on with this one; `None` while this one has not begun.
    pub fn snapshots(&self) -> Option<Snapshots> {
        let newest = self.ring.newest_start()?;
        let n = self.ring.window().sample_count() as usize;
        let at = |behind| {
            self.ring
                .newest_and_oldest(behind)
                .map_or(0, |(_, oldest)| oldest.0.get())
        };
        Some(Snapshots {
            newest,
            at_start: (0..=n).rev().map(at).collect(),
            last: self.last.get(),
        })
    }
}

impl<T: Tally> fmt::Debug for RuleWindow<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let window = self.ring.window();
        write!(
            f,
            "{:?} window of {} x {:?}: ",
            self.counting,
            window.sample_count(),
            window.bucket_length()
        )?;
        match self.snapshots() {
            None => f.write_str("not begun"),
            Some(kept) => write!(
                f,
                "{:?} at starts up to {}, now {}",
                kept.at_start,
                kept.newest.as_millis(),
                kept.last
            ),
        }
    }
}
