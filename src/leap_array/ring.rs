//! A ring of slots, reused in place: which one is the newest, and what happens to the others when the clock moves.

use crate::time::Timestamp;
use crate::window::Window;
use std::cell::Cell;

/// A slot of a [`Ring`].
pub(crate) trait Slot: Default {
    /// Empties this slot: its bucket now follows that of `previous` in time. In a ring of one slot `previous` is this slot.
    fn open(&self, previous: &Self);

    /// Adds the content of `older`, a bucket before this one.
    fn absorb(&self, older: &Self);

    /// Empties this slot: its bucket now ends where that of `next` begins.
    fn precede(&self, next: &Self);

    /// Records that this is the current bucket, which starts at `start`.
    #[inline]
    fn touch(&self, _start: Timestamp) {}
}

/// The newest bucket of a ring.
#[derive(Clone, Copy)]
struct Newest {
    start: Timestamp,
    slot: usize,
}

/// What a move of the clock asks for: the newest bucket is the last of those to be opened.
struct Moved {
    /// The slot of the bucket that was the newest one; `None` if there was none.
    previous: Option<usize>,
    /// How many buckets are to be opened.
    opening: usize,
}

/// A ring of slots that covers one interval.
#[derive(Clone)]
pub(crate) struct Ring<S> {
    window: Window,
    slots: Box<[S]>,
    /// How many of the slots count: the newest one and the ones before it. The others have just left.
    counting: usize,
    /// Where the newest bucket is. In cells of their own: what each decision looks at stays in registers.
    newest_start: Cell<u64>,
    newest_slot: Cell<usize>,
    /// [`Window::length_from`] its start; 0 while there is no bucket, so that no instant lies in it.
    newest_length: Cell<u64>,
}

impl<S: Slot> Ring<S> {
    /// An empty ring of so many slots, at least one; `counting` of them count.
    pub(crate) fn new(window: Window, counting: u32, slots: u32) -> Ring<S> {
        Ring {
            window,
            slots: (0..slots).map(|_| S::default()).collect(),
            counting: counting as usize,
            newest_start: Cell::new(0),
            newest_slot: Cell::new(0),
            newest_length: Cell::new(0),
        }
    }

    /// The geometry.
    #[inline]
    pub(crate) fn window(&self) -> Window {
        self.window
    }

    /// Every slot, in no order of time.
    pub(crate) fn slots(&self) -> &[S] {
        &self.slots
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "a slot is always taken modulo the number of slots, which is not zero"
    )]
    #[inline]
    fn slot(&self, slot: usize) -> &S {
        &self.slots[slot]
    }

    #[inline]
    fn after(&self, slot: usize) -> usize {
        if slot + 1 == self.slots.len() {
            0
        } else {
            slot + 1
        }
    }

    /// The slot `behind` slots before `slot`, at most once around.
    #[inline]
    fn before(&self, slot: usize, behind: usize) -> usize {
        let before = slot + self.slots.len() - behind.min(self.slots.len());
        if before >= self.slots.len() {
            before - self.slots.len()
        } else {
            before
        }
    }

    #[inline]
    fn place(&self) -> Option<Newest> {
        (self.newest_length.get() > 0).then(|| Newest {
            start: Timestamp::from_nanos(self.newest_start.get()),
            slot: self.newest_slot.get(),
        })
    }

    fn set_newest(&self, start: Timestamp, slot: usize) {
        self.newest_start.set(start.as_nanos());
        self.newest_slot.set(slot);
        self.newest_length.set(self.window.length_from(start));
    }

    /// Whether `now` lies in the newest bucket. One comparison: a clock behind the bucket wraps around to beyond it
    /// ([`Window::length_from`]).
    #[inline]
    pub(crate) fn is_current(&self, now: Timestamp) -> bool {
        now.as_nanos().wrapping_sub(self.newest_start.get()) < self.newest_length.get()
    }

    /// The bucket of `now`, opened if need be; `opened` is called with each bucket opened on the way and its start, oldest
    /// first.
    #[inline]
    pub(crate) fn current_with(&self, now: Timestamp, opened: impl Fn(&S, Timestamp)) -> &S {
        if !self.is_current(now) {
            self.move_to(now, opened);
        }
        self.slot(self.newest_slot.get())
    }

    #[cold]
    #[inline(never)]
    fn move_to(&self, now: Timestamp, opened: impl Fn(&S, Timestamp)) {
        let Moved { previous, opening } = self.move_newest(now);
        let (newest, length) = (self.newest_start.get(), self.window.bucket_nanos());
        let mut previous = previous;
        let mut at = self.before(self.newest_slot.get(), opening);
        for ahead in (0..opening as u64).rev() {
            at = self.after(at);
            let slot = self.slot(at);
            if let Some(previous) = previous {
                slot.open(self.slot(previous));
            }
            opened(slot, Timestamp::from_nanos(newest - ahead * length));
            previous = Some(at);
        }
        self.touch_newest();
    }

    /// Opens each bucket up to that of `now`, all with the same content: `fill` is called with their slots, which it has to
    /// overwrite, a whole run at a time. It is not called for the very first bucket.
    #[inline]
    pub(crate) fn fill_to(&self, now: Timestamp, fill: impl Fn(&[S])) {
        if self.is_current(now) {
            return;
        }
        let moved = self.move_newest(now);
        if moved.opening > 0 && moved.previous.is_some() {
            let last = self.newest_slot.get();
            let first = self.after(self.before(last, moved.opening));
            if first <= last {
                fill(self.slots.get(first..=last).unwrap_or_default());
            } else {
                fill(self.slots.get(first..).unwrap_or_default());
                fill(self.slots.get(..=last).unwrap_or_default());
            }
        }
        self.touch_newest();
    }

    /// Moves the newest bucket to that of `now`, and what it holds along where the clock has stepped back by an interval or more.
    #[cold]
    #[inline(never)]
    fn move_newest(&self, now: Timestamp) -> Moved {
        let number = self.window.number(now);
        let start = Timestamp::from_nanos(number * self.window.bucket_nanos());
        let slots = self.slots.len() as u64;
        let slot = (number % slots) as usize;
        let newest = self.place();
        let previous = newest.map(|newest| newest.slot);
        let opening = match newest {
            Some(newest) if now < newest.start => {
                let behind = newest.start.as_nanos() - now.as_nanos();
                if behind < self.window.interval_nanos() {
                    return Moved {
                        previous,
                        opening: 0,
                    };
                }
                self.move_back(newest.slot, slot);
                0
            }
            Some(newest) => {
                let since = start.as_nanos() - newest.start.as_nanos();
                (since / self.window.bucket_nanos()).min(slots) as usize
            }
            None => 1,
        };
        self.set_newest(start, slot);
        Moved { previous, opening }
    }

    fn touch_newest(&self) {
        let start = Timestamp::from_nanos(self.newest_start.get());
        self.slot(self.newest_slot.get()).touch(start);
    }

    /// Gathers everything that counts into `target`, the current bucket after the clock has stepped back by an interval or
    /// more.
    fn move_back(&self, newest: usize, target: usize) {
        let (gathered, kept) = (self.slot(newest), self.slot(target));
        (1..self.counting)
            .for_each(|behind| gathered.absorb(self.slot(self.before(newest, behind))));
        if target != newest {
            kept.open(gathered);
            kept.absorb(gathered);
        }
        for (_, slot) in self
            .slots
            .iter()
            .enumerate()
            .filter(|&(slot, _)| slot != target)
        {
            slot.precede(kept);
        }
    }

    /// The instant that stands for `now` when reading: the newest bucket's start while the clock is behind it.
    #[inline]
    pub(crate) fn reading_time(&self, now: Timestamp) -> Timestamp {
        // Without a newest bucket its start is zero.
        now.max(Timestamp::from_nanos(self.newest_start.get()))
    }

    /// When the newest bucket starts; `None` while there is none.
    #[inline]
    pub(crate) fn newest_start(&self) -> Option<Timestamp> {
        self.place().map(|newest| newest.start)
    }

    /// The newest bucket.
    #[inline]
    pub(crate) fn newest(&self) -> Option<&S> {
        self.place().map(|newest| self.slot(newest.slot))
    }

    /// The bucket `behind` slots before the newest one, at most once around: the hot path of a ring that has just been moved.
    #[cfg_attr(not(feature = "small"), inline(always))] // where code is to be small, too
    pub(crate) fn before_newest(&self, behind: usize) -> Option<&S> {
        self.place()
            .map(|newest| self.slot(self.before(newest.slot, behind)))
    }

    /// The bucket before which nothing is known.
    pub(crate) fn oldest(&self) -> Option<&S> {
        self.place()
            .map(|newest| self.slot(self.after(newest.slot)))
    }

    /// The bucket that starts at `start`; `None` outside the ring: after its newest bucket, or too far back.
    #[inline]
    pub(crate) fn bucket_at(&self, start: Timestamp) -> Option<&S> {
        let newest = self.place()?;
        let since = newest.start.as_nanos().checked_sub(start.as_nanos())?;
        let behind = since / self.window.bucket_nanos();
        (behind < self.slots.len() as u64)
            .then(|| self.slot(self.before(newest.slot, behind as usize)))
    }

    /// Calls `each` with every slot and the start of its bucket, newest first. A start before the clock's zero wraps around.
    pub(crate) fn for_each_start(&self, mut each: impl FnMut(&S, Timestamp)) {
        let Some(newest) = self.place() else {
            return;
        };
        for behind in 0..self.slots.len() {
            let since = self.window.bucket_nanos().wrapping_mul(behind as u64);
            let start = newest.start.as_nanos().wrapping_sub(since);
            each(
                self.slot(self.before(newest.slot, behind)),
                Timestamp::from_nanos(start),
            );
        }
    }

    /// Every slot in the order of time, oldest first; in the order of the slots while there is no bucket.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = &S> {
        let first = self.place().map_or(0, |newest| self.after(newest.slot));
        let (before, from) = self.slots.split_at(first.min(self.slots.len()));
        from.iter().chain(before)
    }

    /// Restores a ring that was kept elsewhere: its newest bucket starts at `start`.
    pub(crate) fn restore(&self, start: Timestamp) {
        let number = self.window.number(start);
        self.set_newest(
            self.window.start(start),
            (number % self.slots.len() as u64) as usize,
        );
        self.touch_newest();
    }
}
