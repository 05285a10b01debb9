//! How virtual machines publish the past of a window to one another.
//!
//! The counts of a rule live in the process, but their ring lives in each virtual machine. A virtual machine that serves
//! requests publishes its ring in shared data; one that has slept, or that starts (a new VM configuration, a reload after a
//! failure), takes it up there. A published ring is replaced by a virtual machine with later counts. Requests admitted since
//! the publication have no date, and count as just admitted: too strict for a tick, or for one interval after a start, and
//! never too lenient.

use crate::host::{Host, Put};
use crate::shared::SharedCell;
use crate::vm::Vm;
use leapgate::Timestamp;
use leapgate::backend::{Breaker, BreakerStorage, Counter, RuleWindow, Snapshots};
use leapgate::stats::Window;
use std::cell::Cell;
use std::rc::Rc;

/// A ring of a running count, or of two that are observed together; of one, both numbers are the same.
pub(crate) trait Ring {
    /// The counts, with what all workers have counted; `None` if they cannot be read.
    fn counts(&self) -> Option<[u64; 2]>;

    /// The counts as this virtual machine knows them.
    fn known(&self) -> [u64; 2];

    /// The ring to publish; `None` if it has not begun.
    fn snapshots(&self) -> Option<Snapshots>;
}

impl<T: Counter> Ring for RuleWindow<T> {
    fn counts(&self) -> Option<[u64; 2]> {
        Some([self.counter().admitted()?; 2])
    }

    fn known(&self) -> [u64; 2] {
        [self.admitted(); 2]
    }

    fn snapshots(&self) -> Option<Snapshots> {
        self.snapshots()
    }
}

impl<S: BreakerStorage> Ring for Breaker<S> {
    fn counts(&self) -> Option<[u64; 2]> {
        let counts = self.storage().counts();
        Some([counts.total, counts.bad])
    }

    fn known(&self) -> [u64; 2] {
        let counted = self.counted();
        [counted.total, counted.bad]
    }

    fn snapshots(&self) -> Option<Snapshots> {
        self.snapshots()
    }
}

/// Where one ring is published.
pub(crate) struct Published<H> {
    host: H,
    cell: SharedCell<H>,
    window: Window,
    /// How often this virtual machine has woken.
    wakes: Rc<Cell<u32>>,
    /// The value of `wakes` when the published ring was last taken up.
    taken_up: Cell<u32>,
    /// The bucket in which this ring was published last, if it was, and the counts then.
    published: Cell<Option<(Timestamp, [u64; 2])>>,
    /// Whether the published ring is wrong, because the counts have fallen since.
    is_void: Cell<bool>,
}

impl<H: Host> Published<H> {
    /// The place called `what` of the ring with these labels. The published ring is taken up when it is first needed.
    pub(crate) fn new(vm: &Vm<H>, [what, labels]: [&str; 2], window: Window) -> Published<H> {
        Published {
            host: vm.host().clone(),
            cell: SharedCell::new(vm.host(), vm.name(what, labels)),
            window,
            wakes: vm.wakes(),
            taken_up: Cell::new(vm.wakes().get().wrapping_sub(1)),
            published: Cell::new(None),
            is_void: Cell::new(false),
        }
    }

    /// Publishes a ring of a count that was always 0, if none is published: so the next virtual machine that starts does not
    /// take the first requests for an unknown past. If the past `is_unknown`, the ring has no counts. Returns whether a ring is
    /// published now.
    pub(crate) fn begin(&self, is_unknown: bool) -> bool {
        let length = self.window.sample_count() as usize + 2;
        let now = self.host.now().unwrap_or(Timestamp::ZERO);
        let begun = Snapshots {
            newest: self.window.start(now),
            counts: vec![0; if is_unknown { 0 } else { length }],
        };
        self.put(&begun, Put::IfAbsent);
        self.cell.read_all().0.is_some()
    }

    /// The published ring, and how it may be replaced. It is empty if its counts are above `now`, which is called after the
    /// read: then the counts have fallen since.
    fn read(&self, now: &dyn Fn() -> Option<[u64; 2]>) -> (Option<Snapshots>, Put) {
        let (words, put) = self.cell.read_all();
        let mut kept = words.and_then(|words| self.decoded(words));
        if let Some(kept) = &mut kept
            && (self.is_void.get() || now().is_none_or(|now| is_later(self.lasts(kept), now)))
        {
            kept.counts.clear();
        }
        (kept, put)
    }

    /// The latest counts in a ring.
    fn lasts(&self, kept: &Snapshots) -> [u64; 2] {
        let first = kept.last(0, self.window).unwrap_or(0);
        [first, kept.last(1, self.window).unwrap_or(first)]
    }

    /// The counts have fallen: the published ring is replaced, and not taken up.
    pub(crate) fn invalidate(&self) {
        self.taken_up.set(self.wakes.get());
        self.published.set(None);
        self.is_void.set(true);
    }

    /// Whether the ring has been needed since this virtual machine last woke: then it is kept up to date.
    pub(crate) fn is_awake(&self) -> bool {
        self.taken_up.get() == self.wakes.get()
    }

    /// The ring that other workers have published, if this one was asleep; this one wakes. Empty if the counts have fallen.
    pub(crate) fn wake(&self, now: &dyn Fn() -> Option<[u64; 2]>) -> Option<Snapshots> {
        if self.is_awake() {
            return None;
        }
        self.taken_up.set(self.wakes.get());
        self.read(now).0
    }

    /// Whether a tick has to observe or to publish this ring.
    pub(crate) fn is_moving(&self, ring: &dyn Ring) -> bool {
        self.is_awake()
            || self
                .published
                .get()
                .is_none_or(|(_, published)| published != ring.known())
    }

    /// Publishes the ring if its counts have changed, at most once in a bucket unless `at_once`. Returns whether other workers
    /// can read all of it.
    pub(crate) fn publish(&self, ring: &dyn Ring, now: Timestamp, at_once: bool) -> bool {
        let (known, start) = (ring.known(), self.window.start(now));
        match self.published.get() {
            Some((_, published)) if published == known => return true,
            Some((then, _)) if then == start && !at_once => return false,
            _ => {}
        }
        let (found, put) = self.read(&|| ring.counts());
        let Some(own) = ring.snapshots() else {
            return true;
        };
        let found = found.filter(|found| !found.counts.is_empty());
        let then = match found.map(|found| self.lasts(&found)) {
            Some(found) if found == known => Timestamp::ZERO,
            // Another worker has later counts: by the next tick this one has them, too.
            Some(found) if is_later(found, known) => return false,
            _ if self.put(&own, put) => start,
            _ => return false,
        };
        self.published.set(Some((then, known)));
        self.is_void.set(false);
        true
    }

    /// Publishes the geometry, the newest start and the counts. Returns whether that was done.
    fn put(&self, kept: &Snapshots, put: Put) -> bool {
        let mut words = Vec::with_capacity(3 + kept.counts.len());
        words.push(self.window.interval_ms());
        words.push(self.window.sample_count().into());
        words.push(kept.newest.as_nanos());
        words.extend_from_slice(&kept.counts);
        self.cell.put_all(&words, put)
    }

    fn decoded(&self, mut counts: Vec<u64>) -> Option<Snapshots> {
        let [interval_ms, sample_count, newest, ..] = *counts else {
            return None;
        };
        counts.drain(..3);
        let fits = interval_ms == self.window.interval_ms()
            && sample_count == u64::from(self.window.sample_count())
            && !counts.is_empty()
            && counts
                .len()
                .is_multiple_of(self.window.sample_count() as usize + 2);
        fits.then(|| Snapshots {
            newest: Timestamp::from_nanos(newest),
            counts,
        })
    }
}

/// Whether either running count is ahead of the other pair's.
fn is_later(one: [u64; 2], other: [u64; 2]) -> bool {
    let is_later = |one: u64, other: u64| other.wrapping_sub(one) >= 1 << 63;
    let ([first, second], [other_first, other_second]) = (one, other);
    is_later(first, other_first) || is_later(second, other_second)
}
