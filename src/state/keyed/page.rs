//! A table in pages: bytes that are read and swapped as a whole. For workers that can share bytes, but no memory.
//!
//! ```text
//!   key's hash ---> page   [ entry ][ entry ] ... at most 8   [ at most 3 that keys share which find the page full ]
//!
//!   entry     hash            8 bytes; of one that keys share, which of the 3 it is
//!             newest bucket   8 bytes, with three flags
//!             counters        1 byte per bucket, n + 1 of them, rounded up to 8 bytes; 8 bytes each, where one has outgrown its
//!                             byte. Of calls in flight it is what they cost; of turns there is only how far they reach
//!             room            none, or where the third flag is set n in 8 bytes and n words of 8 bytes, n <= 8: what requests
//!                             hold of a window (`room.rs`). So a key takes 16 bytes more while one worker holds, and 8 for
//!                             each further one. Of turns there is none
//! ```
//!
//! A worker keeps the words that it finds in the room and does not know, and reuses no entry while one of them is not zero: so an
//! entry is not reused while its key holds.
//!
//! An entry is reused only when nothing counts in it any more. If none can be reused, the key shares one of [`SHARED_PER_PAGE`]
//! entries, chosen by another part of its hash; a key that gets its own entry later continues from its shared one. A pacer that
//! can still delay an expensive request (see [`IdleTtl`]) is reused in a full page only, and how far it reached is kept in the
//! entry that its key shares; so a turn taken there is not given back.
//!
//! There is a page for every four keys of the table's bound. Seeded hashes spread keys at random (a Poisson distribution of
//! mean 4): at the bound, fewer than one key in a hundred finds its page full, and below it even fewer. With as many further
//! keys as the bound, of one request each, more than half of all pages are full, and of 1000 new clients 2 find a shared window
//! that has counted 5.
//!
//! A decision is one compare-and-swap: a worker reads the key's page, decides, and replaces the page if it has not changed; if
//! it has, it begins again. A refusal writes nothing. A reservation counts at once, so that one swap is enough.
//!
//! Workers that share pages share a clock that does not step back. If another worker wrote the page after this one read the
//! clock, this one uses the newer bucket of the page: decisions on a page are ordered by the time that they use, and each
//! request was there at the time that it uses.

use super::answers::{KeyStatus, KeyVerdict, Reserved, Turn};
use super::geometry::{KeyedGeometry, KeyedTerms};
use super::idle_ttl::{IdleTtl, reach, reach_word};
use super::key::{Key, KeyHandle};
use super::room::{self, MOST_ROOM, WORD, word};
use super::window::{BucketPos, FLAGS, LISTED, SHARES, Shape, Slab, StateMut, WIDE};
use crate::rule::{Counting, MAX_KEYS};
use crate::state::pacer::Spacing;
use crate::time::Timestamp;
use crate::window::Window;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::ops::Range;
use std::time::Duration;

/// How many keys a page keeps apart.
pub const KEYS_PER_PAGE: usize = 8;

/// How many entries of a page are shared by the keys that find it full. Each is made when it is needed.
const SHARED_PER_PAGE: u64 = 3;

pub(super) const MOST_ENTRIES: usize = KEYS_PER_PAGE + SHARED_PER_PAGE as usize;

/// How many keys of a table's bound there are for each page: half of [`KEYS_PER_PAGE`], since no hash spreads keys evenly.
const KEYS_AT_BOUND: usize = 4;

/// A flag beside the number of the newest bucket: room for other words follows the counters. (In a table this flag marks a
/// listed key.)
const ROOM: u64 = LISTED;

/// When to try again if a call in flight has to end first, which may be at any moment.
const A_CALL: Duration = Duration::from_millis(1);

/// The states of one rule's keys in pages, which the caller stores.
///
/// Their layout has the version [`KeyedPages::LAYOUT`], which has to be part of the name of each page.
pub struct KeyedPages {
    seed: [u64; 2],
    pub(super) shape: Shape,
    compat: bool,
    /// The time to live in a full page. Workers do not share the costs of their requests: it stays the shortest, so that a
    /// batch of more than the count may wait for other keys whose pacers were forgotten.
    idle_ttl: IdleTtl,
    pages: usize,
    /// The worker that holds.
    holder: Cell<u16>,
    /// The fullest limit of a key since [`KeyedPages::take_utilization`].
    fullest: Cell<f64>,
    pub(super) work: RefCell<Work>,
}

/// The entry of the present decision: the words of a [`KeyedWindows`]' state.
pub(super) struct Work {
    pub(super) words: Vec<u64>,
    pub(super) slab: Slab,
    /// The words behind its counters, and their number, as they lie in the page.
    pub(super) room: Vec<u8>,
    /// Windows count as set by the latest [`KeyedPages::count_as`].
    pub(super) shape: Shape,
}

/// Where the entry of a key is or will be in its page, and the entry that it continues from.
pub(super) struct Found {
    /// From byte to byte.
    pub(super) span: Range<usize>,
    pub(super) from: Option<Range<usize>>,
    pub(super) is_own: bool,
    pub(super) is_shared: bool,
    /// Where the shared entry is.
    pub(super) shared: Option<Range<usize>>,
    /// The key whose pacer is to be reused, and the pacer's word, if it can still delay a request.
    pub(super) forgotten: Option<(Key, u64)>,
    /// The bucket of the decision.
    pub(super) to: BucketPos,
}

impl Key {
    /// Which shared entry of its page the key uses.
    pub(super) fn shared(self) -> u64 {
        (self.0 >> 8) % SHARED_PER_PAGE
    }
}

impl KeyedPages {
    /// The version of the layout of pages. No code reads pages of another version.
    pub const LAYOUT: u32 = 3;

    /// Pages for the states of a rule. All workers that share them need the same `seed`, which is a secret.
    pub fn new(geometry: &KeyedGeometry, seed: [u64; 2]) -> KeyedPages {
        let shape = Shape::new(geometry.grade, geometry.is_paced);
        KeyedPages {
            seed,
            shape,
            compat: geometry.compat,
            idle_ttl: IdleTtl::new(&shape, geometry.compat),
            pages: geometry.max_keys.clamp(1, MAX_KEYS).div_ceil(KEYS_AT_BOUND),
            holder: Cell::new(room::holder_of(0)),
            fullest: Cell::new(0.0),
            work: RefCell::new(Work {
                words: vec![0; shape.stride],
                slab: Slab::new(1),
                room: Vec::new(),
                shape,
            }),
        }
    }

    /// How full the limit was of the key that was closest to it, of those that have reserved anything since the last call of this
    /// method, as [`Controller::utilization`](crate::backend::Controller::utilization) says it; the debt of a key is not seen.
    pub fn take_utilization(&self) -> f64 {
        self.fullest.take()
    }

    fn fill(&self, part: f64) {
        if part > self.fullest.get() {
            self.fullest.set(part.min(1.0));
        }
    }

    /// How many pages there are at most.
    pub fn pages(&self) -> usize {
        self.pages
    }

    /// Holds from now on as the worker with this id, which no other has had: what it holds is told apart, so that it can be
    /// settled when the worker is dead ([`KeyedPages::settle_dead`]). Without an id, it is not.
    pub fn hold_as(&self, id: Option<u64>) {
        self.holder.set(id.map_or(room::SEVERAL, room::holder_of));
    }

    /// The page of the key.
    pub fn page(&self, key: Key) -> usize {
        key.home(self.pages)
    }

    /// Whether calls in flight are counted.
    pub fn counts_calls(&self) -> bool {
        self.shape.window.is_none()
    }

    /// The length in bytes of the entry at `at` that begins with `head`; `None` if the bytes are not a valid page.
    #[inline]
    pub(super) fn size(&self, page: &[u8], at: usize, head: u64) -> Option<usize> {
        let size = self.size_without_room(head);
        if !self.has_room(head) {
            return Some(size);
        }
        let words = word(page, at + size).unwrap_or(0);
        let is_room = words <= MOST_ROOM as u64;
        is_room.then(|| size + (1 + words as usize) * WORD)
    }

    pub(super) fn has_room(&self, head: u64) -> bool {
        !self.shape.is_paced && head & ROOM != 0
    }

    fn size_without_room(&self, head: u64) -> usize {
        let counters = match self.shape.buckets {
            0 if self.shape.is_paced => 0,
            0 => 1,
            buckets if head & WIDE != 0 => buckets,
            buckets => buckets.div_ceil(8),
        };
        (2 + counters) * WORD
    }

    /// Whether nothing counts any more in the entry at `at` that begins with `head`.
    fn is_free(&self, page: &[u8], at: usize, head: u64, now: Timestamp, number: u64) -> bool {
        if self.has_room(head) && self.keeps_room(page, at, head) {
            return false;
        }
        match self.shape.buckets {
            0 if self.shape.is_paced => {
                reach(head).is_none_or(|latest| self.idle_ttl.is_over(latest, true, now))
            }
            0 => word(page, at + 2 * WORD) == Some(0),
            buckets => number.saturating_sub(head >> FLAGS) >= buckets as u64,
        }
    }

    /// The room of the entry at `at`: the number of its words, and the words.
    pub(super) fn room<'p>(&self, page: &'p [u8], at: usize, head: u64) -> &'p [u8] {
        let end = self.size(page, at, head).map(|size| at + size);
        let room = end.and_then(|end| page.get(at + self.size_without_room(head)..end));
        room.unwrap_or_default()
    }

    /// Whether any word in the room of the entry at `at` is not zero.
    #[cold]
    fn keeps_room(&self, page: &[u8], at: usize, head: u64) -> bool {
        let words = self.room(page, at, head).iter().skip(WORD);
        words.copied().any(|byte| byte != 0)
    }

    /// How much is held in the entry from byte to byte.
    fn held_in(&self, page: &[u8], span: &Range<usize>) -> u64 {
        let head = word(page, span.start + WORD).filter(|head| self.has_room(*head));
        head.map_or(0, |head| room::held(self.room(page, span.start, head)))
    }

    pub(super) fn find(&self, page: &[u8], key: Key, now: Timestamp) -> Found {
        let which = key.shared();
        let counted = self.shape.window.filter(|_| self.shape.buckets > 0);
        let number = counted.map_or(0, |(window, _)| window.number(now));
        let (mut own, mut free, mut shared) = (None, None, None);
        let (mut at, mut entries, mut newest) = (0, 0, number);
        while let (Some(hash), Some(head)) = (word(page, at), word(page, at + WORD)) {
            let Some(size) = self.size(page, at, head) else {
                return self.in_place_of(page, now);
            };
            let span = at..at + size;
            if counted.is_some() {
                newest = newest.max(head >> FLAGS);
            }
            (at, entries) = (span.end, entries + 1);
            if entries > KEYS_PER_PAGE {
                if hash == which {
                    shared = Some(span);
                }
                if entries == MOST_ENTRIES {
                    break;
                }
            } else if hash == key.0 {
                own = Some(span);
            } else if free.is_none() && self.is_free(page, span.start, head, now, number) {
                free = Some(span);
            }
        }
        let is_bucket =
            |(window, _): (Window, _)| newest.checked_mul(window.bucket_nanos()).is_some();
        // A pacer is reused in a full page only: how far it reached is kept in a shared entry, after the keys' own.
        let free = free.filter(|_| entries >= KEYS_PER_PAGE || !self.keeps_forgotten());
        let is_own = own.is_some();
        let is_shared = own.is_none() && free.is_none() && entries >= KEYS_PER_PAGE;
        let is_there = !is_shared || shared.is_some() || entries < MOST_ENTRIES;
        if !(counted.is_none_or(is_bucket) && is_there) {
            return self.in_place_of(page, now);
        }
        let reused = free.as_ref().filter(|_| !is_own && self.keeps_forgotten());
        let forgotten = reused.and_then(|span| {
            let hash = word(page, span.start)?;
            Some((Key(hash), word(page, span.start + WORD)?))
        });
        let span = own.or(free).or(shared.clone().filter(|_| is_shared));
        let counter = (newest % self.shape.buckets.max(1) as u64) as usize;
        Found {
            from: span.clone().filter(|_| is_own).or(shared.clone()),
            span: span.unwrap_or(at..at),
            is_own,
            is_shared,
            shared,
            forgotten,
            to: BucketPos {
                number: newest,
                counter,
            },
        }
    }

    /// The first entry of a new page, in place of bytes that are not a valid page.
    #[cold]
    fn in_place_of(&self, page: &[u8], now: Timestamp) -> Found {
        Found {
            span: 0..page.len(),
            ..self.find(&[], Key(0), now)
        }
    }

    /// Loads the entry that `key` continues from. Returns how many calls in the shared entry may be the key's besides, or how much
    /// of what is held there.
    pub(super) fn load(
        &self,
        work: &mut Work,
        page: &[u8],
        key: Key,
        now: Timestamp,
        found: &Found,
    ) -> u64 {
        let Work {
            words, slab, room, ..
        } = work;
        words.fill(0);
        room.clear();
        slab.clear();
        let from = found.from.clone().and_then(|from| page.get(from));
        let mut head = from.and_then(|from| word(from, WORD)).unwrap_or(0);
        let mut counters = from
            .and_then(|from| from.get(2 * WORD..))
            .unwrap_or_default();
        if self.has_room(head) {
            let size = self.size_without_room(head) - 2 * WORD;
            let (kept, behind) = counters.split_at(size.min(counters.len()));
            counters = kept;
            // The key's own entry, not part of a shared one that it continues from.
            let is_same = found.from.as_ref().map(|from| from.start) == Some(found.span.start);
            if is_same && !behind.is_empty() {
                room.extend_from_slice(behind);
            } else {
                head &= !ROOM;
            }
        }
        let mut kept = counters
            .chunks_exact(WORD)
            .filter_map(|chunk| word(chunk, 0));
        if let [hash, second, ..] = words.as_mut_slice() {
            *hash = if found.is_shared { key.shared() } else { key.0 };
            *second = head;
        }
        let Some(mut held) = StateMut::of(words, slab, &self.shape) else {
            return 0; // a pacer
        };
        if self.shape.buckets > 0 {
            held.restore(head, kept.by_ref());
            if from.is_none() {
                held.set_number(found.to.number);
            }
            held.advance(now, found.to);
            *held.used = held.used.saturating_add(room::held(room));
        }
        let shared = found.shared.as_ref().filter(|_| !found.is_shared);
        let elsewhere = shared.map_or(0, |span| match self.shape.buckets {
            0 => word(page, span.start + 2 * WORD).unwrap_or(0),
            _ => self.held_in(page, span),
        });
        let shares = elsewhere > 0 && (!found.is_own || held.has(SHARES));
        if self.shape.buckets > 0 {
            held.unset(SHARES);
            if shares {
                held.set(SHARES);
            }
            return if shares { elsewhere } else { 0 };
        }
        if found.is_own || found.is_shared {
            *held.used = kept.next().unwrap_or(0);
        }
        *held.newest = if shares { SHARES } else { 0 } | head & ROOM;
        if shares { elsewhere } else { 0 }
    }

    /// The page with the entry as it is now.
    pub(super) fn store(&self, work: &mut Work, page: &mut Vec<u8>, span: &Range<usize>) {
        let Work {
            words, slab, room, ..
        } = work;
        if let [_, head, ..] = words.as_mut_slice()
            && !self.shape.is_paced
        {
            *head = if room.is_empty() {
                *head & !ROOM
            } else {
                *head | ROOM
            };
        }
        let [hash, head, ..] = **words else { return };
        let mut held = StateMut::of(words, slab, &self.shape);
        let counters = match &mut held {
            None => &[],
            Some(held) if self.shape.buckets == 0 => std::slice::from_ref(&*held.used),
            Some(held) => held.counters(),
        };
        let length = (2 + counters.len()) * WORD + room.len();
        // Most entries are there, and keep their length.
        if span.len() != length || span.end > page.len() {
            let end = span.end.min(page.len());
            page.splice(span.start.min(end)..end, std::iter::repeat_n(0, length));
        }
        let entry = page.get_mut(span.start..).unwrap_or_default();
        let entry = entry.split_at_mut_checked(length - room.len());
        let (entry, behind) = entry.unwrap_or_default();
        let words = [hash, head].into_iter().chain(counters.iter().copied());
        for (place, word) in entry.as_chunks_mut().0.iter_mut().zip(words) {
            *place = word.to_le_bytes();
        }
        for (place, byte) in behind.iter_mut().zip(&**room) {
            *place = *byte;
        }
    }

    /// Whether a pacer can still delay a request when its entry is reused (see [`IdleTtl`]).
    pub(super) fn keeps_forgotten(&self) -> bool {
        self.shape.is_paced && self.compat
    }

    /// Makes the entry that `key` shares in a full page reach as far as the key's pacer did, whose entry was reused.
    fn keep_forgotten(&self, work: &mut Work, page: &mut Vec<u8>, key: Key, pacer: u64) {
        let which = key.shared();
        let mut shared = (KEYS_PER_PAGE..MOST_ENTRIES).map(|entry| 2 * WORD * entry);
        let is_it = |at: &usize| word(page, *at).is_none_or(|hash| hash == which);
        let Some(at) = shared.find(is_it) else {
            return; // these bytes are no page
        };
        if let [hash, reach] = work.words.as_mut_slice() {
            *hash = which;
            *reach = word(page, at + WORD).unwrap_or(0).max(pacer);
        }
        self.store(work, page, &(at..at + 2 * WORD));
    }

    /// The spacing of a turn. The clock does not step back: however far turns reach, they were taken.
    fn pace(&self, terms: &KeyedTerms, cost: u64, now: Timestamp) -> Option<Spacing> {
        let (window, _) = self.shape.window?;
        let pace = if self.compat {
            Spacing::of_hot_parameter
        } else {
            Spacing::evenly
        };
        let queue = (terms.max_queueing_ns, u64::MAX);
        pace(window.interval_nanos(), terms.count, queue, cost, now)
    }

    /// The key made of these parts, in order: [`Key::of_parts`] with the seed of these pages.
    pub fn key<'a>(&self, parts: impl IntoIterator<Item = Option<&'a [u8]>>) -> Key {
        Key::of_parts(self.seed, parts)
    }

    /// [`KeyedStates::count_as`](crate::backend::KeyedStates::count_as) for all pages.
    pub fn count_as(&self, counting: Counting) {
        self.work.borrow_mut().shape.count_as(counting);
    }

    /// [`KeyedStates::ask`](crate::backend::KeyedStates::ask) for the key's page.
    pub fn ask(
        &self,
        page: &[u8],
        key: Key,
        terms: &KeyedTerms,
        cost: u64,
        now: Timestamp,
    ) -> KeyVerdict {
        let work = &mut *self.work.borrow_mut();
        let found = self.find(page, key, now);
        let elsewhere = self.load(work, page, key, now, &found);
        let Some(mut held) = StateMut::of(&mut work.words, &mut work.slab, &work.shape) else {
            if cost == 0 {
                return KeyVerdict::Pass;
            }
            let Some(pace) = self.pace(terms, cost, now) else {
                return KeyVerdict::Block { retry_after: None };
            };
            let latest = work.pacer();
            return match pace.wait(latest) {
                Some(0) => KeyVerdict::Pass,
                Some(wait) => KeyVerdict::Wait(wait),
                None => KeyVerdict::Block {
                    retry_after: Some(pace.time_to_queue(latest, now)),
                },
            };
        };
        let (limit, needed) = (terms.count, cost.saturating_add(elsewhere));
        if held.fits(limit, needed, now, found.to) {
            return KeyVerdict::Pass;
        }
        let wait = || {
            let wait = held.time_to_fit(limit, (cost, elsewhere), now, found.to);
            wait.unwrap_or(A_CALL)
        };
        KeyVerdict::Block {
            retry_after: (cost as f64 <= limit.get()).then(wait),
        }
    }

    /// [`KeyedStates::reserve_later`](crate::backend::KeyedStates::reserve_later) in the key's page, charged or held at once: if
    /// it succeeds, the caller has to swap the changed page in.
    pub fn reserve(
        &self,
        page: &mut Vec<u8>,
        key: Key,
        terms: &KeyedTerms,
        cost: u64,
        wait: u64,
        now: Timestamp,
    ) -> Option<Reserved> {
        let work = &mut *self.work.borrow_mut();
        let found = self.find(page, key, now);
        let elsewhere = self.load(work, page, key, now, &found);
        let place = KeyHandle {
            key,
            at: found.to.number as u32,
            is_shared: found.is_shared,
        };
        let mut reserved = Reserved::at_once(place);
        if let Some(mut held) = StateMut::of(&mut work.words, &mut work.slab, &work.shape) {
            let needed = cost.saturating_add(elsewhere);
            if !held.fits(terms.count, needed, now, found.to) {
                return None;
            }
            self.fill(held.used.saturating_add(needed) as f64 / terms.count.get());
            if terms.holds && self.shape.buckets > 0 {
                // The handle tells in whose word it is held: one that holds is in no bucket.
                reserved.handle.at = room::hold(&mut work.room, self.holder.get(), cost)?.into();
                reserved.is_held = true;
            } else {
                *held.used = held.used.saturating_add(cost);
                held.admit(cost, found.to);
            }
        } else if cost > 0 {
            let pace = self.pace(terms, cost, now)?;
            let from = work.pacer();
            let own = pace.wait(from)?;
            self.fill(own as f64 / terms.max_queueing_ns.max(1) as f64);
            let wait = own.max(wait);
            let to = pace.reach_after(wait);
            work.set_line(Some(to));
            (reserved.wait, reserved.turn) = (wait, Some(Turn { from, to }));
        }
        self.store(work, page, &found.span);
        if let Some((key, pacer)) = found.forgotten {
            self.keep_forgotten(work, page, key, pacer);
        }
        Some(reserved)
    }

    /// [`KeyedStates::status`](crate::backend::KeyedStates::status) for the key's page.
    pub fn status(&self, page: &[u8], key: Key, terms: &KeyedTerms, now: Timestamp) -> KeyStatus {
        let work = &mut *self.work.borrow_mut();
        let found = self.find(page, key, now);
        let elsewhere = self.load(work, page, key, now, &found);
        let Some(mut held) = StateMut::of(&mut work.words, &mut work.slab, &work.shape) else {
            let latest = work.pacer();
            let status = |pace: Spacing| KeyStatus {
                remaining: u64::from(pace.wait(latest) == Some(0)),
                reset: pace.time_to_pass(latest, now),
            };
            return self.pace(terms, 1, now).map(status).unwrap_or_default();
        };
        held.advance(now, found.to);
        if let Some(status) = held.status(terms.count, elsewhere, now, found.to) {
            return status;
        }
        let in_flight = held.used.saturating_add(elsewhere);
        let remaining = terms.count.whole().saturating_sub(in_flight);
        let reset = match remaining {
            0 if terms.count.whole() > 0 => A_CALL,
            _ => Duration::ZERO,
        };
        KeyStatus { remaining, reset }
    }
}

impl Work {
    /// How far the turns of a pacer reach.
    pub(super) fn pacer(&self) -> Option<Timestamp> {
        self.words.get(1).copied().and_then(reach)
    }

    pub(super) fn set_line(&mut self, to: Option<Timestamp>) {
        if let Some(pacer) = self.words.get_mut(1) {
            *pacer = reach_word(to);
        }
    }
}

impl fmt::Debug for KeyedPages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedPages")
            .field("pages", &self.pages)
            .finish_non_exhaustive()
    }
}
