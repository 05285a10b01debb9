//! The states of the keys of one rule, in a table of this process.

use super::answers::{KeyStatus, KeyVerdict, Reserved, Turn};
use super::geometry::{KeyedGeometry, KeyedTerms};
use super::hottest::{ARE_KEPT, HotKey, MAX_LABELS, UnlabelledFilter};
use super::idle_ttl::reach_word;
use super::key::{Key, KeyHandle};
use super::saved::{Restoring, put, take};
use super::states::KeyedStates;
use super::table::Table;
use super::window::{LISTED, Shape};
use crate::compat::AsSentinel;
use crate::rule::{Count, Counting};
use crate::state::pacer::Spacing;
use crate::time::Timestamp;
use std::cell::RefCell;
use std::fmt;
use std::time::Duration;

/// How many parts of a key its label shows.
const LABELLED_PARTS: usize = 8;

/// The states of the keys of one rule in a table of fixed bounds.
///
/// The terms are an argument of each call, so that they can change, and differ for some keys. A single rule decides in one step
/// ([`KeyedWindows::admit_now`]), several rules in the steps of [`KeyedStates`].
///
/// Sentinel: `ParameterMetric`, which forgets the least recently used value when it is full, and with it that value's count.
///
/// ```
/// use leapgate::Timestamp;
/// use leapgate::backend::{KeyedGeometry, KeyedTerms, KeyedWindows};
/// use leapgate::rule::{Count, Counting, Grade, RuleGeometry};
///
/// let grade = Grade::Qps { window: RuleGeometry::new(1000, Some(20))?, counting: Counting::Strict };
/// let clients = KeyedWindows::new(KeyedGeometry::new(grade, 100_000), [17, 4]); // random numbers, of the host
/// let terms = KeyedTerms::of(Count::new(1.0)?);
/// let admits = |client: &str, at| {
///     let key = clients.key([Some(client.as_bytes())]);
///     clients.admit_now(key, &terms, 1, Timestamp::from_millis(at)).is_some()
/// };
/// assert!(admits("10.0.0.1", 5));
/// assert!(!admits("10.0.0.1", 1000));
/// assert!(admits("10.0.0.2", 1000));
/// # Ok::<(), leapgate::rule::RuleError>(())
/// ```
#[doc(alias = "ParameterMetric")]
#[doc(alias = "CacheMap")]
pub struct KeyedWindows {
    seed: [u64; 2],
    geometry: KeyedGeometry,
    pub(super) shape: Shape,
    pub(super) table: RefCell<Table>,
    unlabelled: UnlabelledFilter,
}

impl KeyedWindows {
    /// No keys yet.
    ///
    /// A client that knows `seed` can make keys that share a state or crowd the table: take random numbers, and keep them secret.
    #[inline(never)]
    pub fn new(geometry: KeyedGeometry, seed: [u64; 2]) -> KeyedWindows {
        let shape = Shape::new(geometry.grade, geometry.is_paced);
        KeyedWindows {
            seed,
            geometry,
            shape,
            table: RefCell::new(Table::new(shape, geometry.compat, geometry.keys())),
            unlabelled: UnlabelledFilter::default(),
        }
    }

    /// The key made of these parts, in order: [`Key::of_parts`] with this table's seed.
    #[inline]
    pub fn key<'a>(&self, parts: impl IntoIterator<Item = Option<&'a [u8]>>) -> Key {
        let mut parts = parts.into_iter();
        match (parts.next(), parts.next()) {
            (Some(Some(only)), None) => {
                let key = Key::of_one(self.seed, only);
                if self.unlabelled.may_be(key) {
                    self.store_label(key, &[Some(only)]);
                }
                key
            }
            (first, second) => self.key_of_many([first, second].into_iter().flatten().chain(parts)),
        }
    }

    #[inline(never)]
    fn key_of_many<'a>(&self, parts: impl Iterator<Item = Option<&'a [u8]>>) -> Key {
        let mut noted = [None; LABELLED_PARTS];
        let mut count = 0;
        let key = Key::of_many(
            self.seed,
            parts.inspect(|part| {
                if let Some(place) = noted.get_mut(count) {
                    *place = *part;
                    count += 1;
                }
            }),
        );
        if self.unlabelled.may_be(key) {
            self.store_label(key, noted.get(..count).unwrap_or_default());
        }
        key
    }

    /// Stores the label of `key` if the filter hit was true: it is listed without one.
    #[cold]
    #[inline(never)]
    fn store_label(&self, key: Key, parts: &[Option<&[u8]>]) {
        let table = &mut *self.table.borrow_mut();
        table.labels().store_label(key, parts);
        self.unlabelled.set(table.labels());
    }

    /// Lists a hot key that is not listed yet.
    #[cold]
    #[inline(never)]
    pub(super) fn list(&self, table: &mut Table, place: KeyHandle, heat: u64, now: Timestamp) {
        if !ARE_KEPT {
            return;
        }
        table.list(place, heat, now);
        self.unlabelled.set(table.labels());
    }

    /// The whole decision of a single rule whose requests do not wait: charges `cost` if it is within the terms.
    /// [`KeyedStates::reserve`] and [`KeyedStates::admit`] in one search.
    #[inline]
    pub fn admit_now(
        &self,
        key: Key,
        terms: &KeyedTerms,
        cost: u64,
        now: Timestamp,
    ) -> Option<Reserved> {
        let table = &mut *self.table.borrow_mut();
        let floor = table.floor();
        table.bucket(now);
        let Some((slot, mut usual)) = table.usual(key, true) else {
            return self.admit_unusual(table, key, terms, cost, now);
        };
        let heat = usual.used.saturating_add(cost);
        if heat > terms.count.whole() {
            return None;
        }
        if !usual.charge(cost) {
            return self.admit_unusual(table, key, terms, cost, now);
        }
        *usual.used = heat;
        let place = KeyHandle::own(key, slot);
        if heat >= floor && !usual.is_listed {
            self.list(table, place, heat, now);
        }
        Some(Reserved::at_once(place))
    }

    /// The spacing of a turn.
    #[inline]
    fn pace(
        &self,
        table: &Table,
        terms: &KeyedTerms,
        cost: u64,
        now: Timestamp,
    ) -> Option<Spacing> {
        let (window, _) = self.shape.window?;
        let queue = (
            terms.max_queueing_ns,
            table.longest_wait().max(terms.max_queueing_ns),
        );
        let (interval, count) = (window.interval_nanos(), terms.count);
        if AsSentinel::of(self.geometry.compat).is_some() {
            Spacing::of_hot_parameter(interval, count, queue, cost, now)
        } else {
            Spacing::evenly(interval, count, queue, cost, now)
        }
    }

    /// [`KeyedWindows::admit_now`] for a key that shares.
    #[cold]
    #[inline(never)]
    pub(super) fn admit_shared(
        &self,
        table: &mut Table,
        place: KeyHandle,
        count: Count,
        cost: u64,
        now: Timestamp,
    ) -> Option<Reserved> {
        let at_once = KeyedTerms::of(count);
        let reserved = self.reserve_shared(table, place, &at_once, cost, 0, now)?;
        table.charge_shared(&reserved, cost);
        Some(reserved)
    }

    /// Reserves for a key that shares.
    #[cold]
    #[inline(never)]
    pub(super) fn reserve_shared(
        &self,
        table: &mut Table,
        place: KeyHandle,
        terms: &KeyedTerms,
        cost: u64,
        wait: u64,
        now: Timestamp,
    ) -> Option<Reserved> {
        let mut reserved = Reserved::at_once(place);
        let amount = if !self.shape.is_paced {
            let fits = table.shared_fits(place.key, terms.count, cost, now);
            reserved.is_held = terms.holds && self.shape.window.is_some();
            fits.then_some(cost)?
        } else if cost > 0 {
            let pace = self.pace(table, terms, cost, now)?;
            let (wait, from, to) = table.shared_turn(place.key, &pace, wait)?;
            (reserved.wait, reserved.turn) = (wait, Some(Turn { from, to }));
            reach_word(Some(to))
        } else {
            return Some(reserved); // it needs no turn
        };
        let is_noted = table.sketch().reserve(place.key, amount);
        is_noted.then_some(reserved)
    }

    #[inline(never)]
    pub(super) fn take_turn(
        &self,
        table: &mut Table,
        place: KeyHandle,
        terms: &KeyedTerms,
        cost: u64,
        wait: u64,
        now: Timestamp,
    ) -> Option<Reserved> {
        if cost == 0 {
            return Some(Reserved::at_once(place)); // it needs none
        }
        let pace = self.pace(table, terms, cost, now)?;
        let (wait, from, to) = table.take_turn(place, &pace, wait)?;
        let heat = to.since(now).as_nanos() as u64;
        if wait > 0 && heat >= table.floor() {
            self.list(table, place, heat, now);
        }
        Some(Reserved {
            handle: place,
            wait,
            turn: Some(Turn { from, to }),
            is_held: false,
        })
    }

    /// The decision about a request whose key has no window of its own: it takes turns, or shares.
    #[inline(never)]
    fn ask_without_window(
        &self,
        table: &mut Table,
        place: KeyHandle,
        terms: &KeyedTerms,
        cost: u64,
        now: Timestamp,
    ) -> KeyVerdict {
        if !self.shape.is_paced {
            if table.shared_fits(place.key, terms.count, cost, now) {
                return KeyVerdict::Pass;
            }
            let retry_after = table.time_to_room(place, terms.count, cost, now);
            return KeyVerdict::Block { retry_after };
        }
        if cost == 0 {
            return KeyVerdict::Pass;
        }
        let Some(pace) = self.pace(table, terms, cost, now) else {
            return KeyVerdict::Block { retry_after: None };
        };
        let latest = table.reach_within(place, &pace);
        match pace.wait(latest) {
            Some(0) => KeyVerdict::Pass,
            Some(wait) => KeyVerdict::Wait(wait),
            None => KeyVerdict::Block {
                retry_after: Some(pace.time_to_queue(latest, now)),
            },
        }
    }

    /// How much counts at `now` in the window of `key`, or how many of its calls are in flight, reservations included. Changes
    /// nothing.
    pub fn sum(&self, key: Key, now: Timestamp) -> f64 {
        let table = &mut *self.table.borrow_mut();
        let place = table.look_up(key);
        self.sum_at(table, place, now)
    }

    fn sum_at(&self, table: &mut Table, place: KeyHandle, now: Timestamp) -> f64 {
        let (known, elsewhere) = (table.known(), table.elsewhere(place));
        let held = if place.is_shared {
            table.shared(place.key, known)
        } else {
            table.held(place).map(|held| (held, known))
        };
        let Some((mut held, known)) = held else {
            return table.calls_at(place) as f64;
        };
        let in_flight = held.used.saturating_add(elsewhere);
        held.future(known).map_or(in_flight as f64, |mut future| {
            future.go_to(now);
            future.sum(now) + elsewhere as f64
        })
    }

    /// How long after `now` a `cost` of `key` first fits into `limit`, if no other request came; `None` if it never does. Opens
    /// no window.
    pub fn wait(&self, key: Key, limit: Count, cost: u64, now: Timestamp) -> Option<Duration> {
        let table = &mut *self.table.borrow_mut();
        let place = table.look_up(key);
        table.time_to_room(place, limit, cost, now)
    }

    /// Where the state of `key` is, if it has one of its own. Changes nothing.
    pub fn find(&self, key: Key) -> Option<KeyHandle> {
        let slot = self.table.borrow().find(key)?;
        Some(KeyHandle::own(key, slot))
    }

    /// The geometry.
    pub fn geometry(&self) -> KeyedGeometry {
        self.geometry
    }

    /// How many keys have a state, including expired states that have not been reused yet.
    pub fn len(&self) -> usize {
        self.table.borrow().len()
    }

    /// Whether no key has a state.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many keys can have a state of their own.
    pub fn max_keys(&self) -> usize {
        self.geometry.keys()
    }

    /// How many requests have been charged to the sketch, because the table was full.
    pub fn shared(&self) -> u64 {
        self.table.borrow().charged_to_shared()
    }

    /// Appends what the windows count, by age.
    pub(crate) fn save(&self, now: Timestamp, out: &mut Vec<u8>) {
        let table = &mut *self.table.borrow_mut();
        table.bucket(now);
        put(out, now.since(table.known_start()).as_nanos() as u64);
        table.save(now, out);
        table.save_sketch(now, out);
    }

    /// Takes what [`KeyedWindows::save`] has written off the front, and counts it unless `at` is `None`. `None` if the bytes are
    /// not such.
    pub(crate) fn restore(&self, bytes: &mut &[u8], at: Option<Restoring>) -> Option<()> {
        let table = &mut *self.table.borrow_mut();
        let offset = take(bytes)?;
        table.restore(bytes, offset, at)?;
        table.restore_sketch(bytes, at)
    }

    /// [`KeyedWindows::len`] and [`KeyedWindows::shared`].
    pub(crate) fn fill(&self) -> (usize, u64) {
        let table = self.table.borrow();
        (table.len(), table.charged_to_shared())
    }

    /// How many states have been reused because nothing counted in them any more.
    pub fn reclaimed(&self) -> u64 {
        self.table.borrow().reclaimed()
    }

    /// How many windows have wide counters.
    pub fn wide(&self) -> usize {
        self.table.borrow().wide()
    }

    /// How many bytes are allocated.
    pub fn bytes(&self) -> usize {
        self.table.borrow().bytes()
    }
}

impl KeyedStates for KeyedWindows {
    fn key(&self, parts: &mut dyn Iterator<Item = Option<&[u8]>>) -> Key {
        self.key(parts)
    }

    #[inline]
    fn ask(
        &self,
        key: &mut KeyHandle,
        terms: &KeyedTerms,
        cost: u64,
        now: Timestamp,
    ) -> KeyVerdict {
        let table = &mut *self.table.borrow_mut();
        let now_in = table.bucket(now);
        let slot = table.slot_of(*key);
        let (place, elsewhere, held) = table.enter(key.key, slot, now, now_in);
        *key = place;
        let Some(mut held) = held else {
            return self.ask_without_window(table, place, terms, cost, now);
        };
        if held.fits(terms.count, cost.saturating_add(elsewhere), now, now_in) {
            return KeyVerdict::Pass;
        }
        let retry_after = table.time_to_room(place, terms.count, cost, now);
        KeyVerdict::Block { retry_after }
    }

    #[inline]
    fn reserve(
        &self,
        key: &mut KeyHandle,
        terms: &KeyedTerms,
        cost: u64,
        now: Timestamp,
    ) -> Option<Reserved> {
        self.reserve_later(key, terms, cost, 0, now)
    }

    #[inline]
    fn reserve_later(
        &self,
        key: &mut KeyHandle,
        terms: &KeyedTerms,
        cost: u64,
        wait: u64,
        now: Timestamp,
    ) -> Option<Reserved> {
        let table = &mut *self.table.borrow_mut();
        table.bucket(now);
        match table.usual(key.key, true) {
            Some((slot, usual)) if !terms.holds => {
                *key = KeyHandle::own(key.key, slot);
                let used = usual.used.saturating_add(cost);
                if used > terms.count.whole() {
                    return None;
                }
                *usual.used = used;
                Some(Reserved::at_once(*key))
            }
            _ => self.reserve_unusual(table, key, terms, (cost, wait), now),
        }
    }

    fn release(&self, reserved: Reserved, cost: u64, _now: Timestamp) {
        let table = &mut *self.table.borrow_mut();
        if reserved.handle.is_shared {
            let turn = reserved.turn.map(|turn| reach_word(Some(turn.to)));
            table
                .sketch()
                .take_back(reserved.handle.key, turn.unwrap_or(cost));
        } else if let Some(turn) = reserved.turn {
            table.release_turn(reserved.handle, turn.from, turn.to);
        } else if let Some(mut held) = table.held(reserved.handle) {
            held.release(cost);
        }
    }

    #[inline]
    fn admit(&self, reserved: Reserved, cost: u64) -> bool {
        let table = &mut *self.table.borrow_mut();
        let (known, floor, KeyHandle { key, is_shared, .. }) =
            (table.known(), table.floor(), reserved.handle);
        if !reserved.is_held
            && !is_shared
            && let Some((slot, mut usual)) = table.usual(key, false)
            && usual.charge(cost)
        {
            let (heat, is_listed) = (*usual.used, usual.is_listed);
            if heat >= floor && !is_listed {
                let now = table.known_start();
                self.list(table, KeyHandle::own(key, slot), heat, now);
            }
            return false;
        }
        let Some(mut held) = table.held(reserved.handle) else {
            return table.charge_shared(&reserved, cost);
        };
        if !reserved.is_held {
            held.admit(cost, known);
        }
        let heat = *held.used;
        if heat >= floor && !held.has(LISTED) {
            let now = table.known_start();
            self.list(table, reserved.handle, heat, now);
        }
        reserved.is_held || self.shape.window.is_none()
    }

    fn leave(&self, reserved: Reserved, cost: u64) {
        if self.shape.window.is_some() {
            return;
        }
        let table = &mut *self.table.borrow_mut();
        if let Some(mut held) = table.held(reserved.handle) {
            held.release(cost);
            let heat = held.has(LISTED).then_some(*held.used);
            if let Some(heat) = heat {
                table.labels().cool_to(heat);
            }
        } else if reserved.handle.is_shared {
            table.sketch().leave(reserved.handle.key, cost);
        }
    }

    fn settle(&self, held: Reserved, cost: u64, actual: u64, now: Timestamp) {
        self.settle_at(held.handle, cost, actual, now);
    }

    fn refund(&self, key: Key, cost: u64, charged: Timestamp, now: Timestamp) {
        KeyedWindows::refund(self, key, cost, charged, now);
    }

    fn count_as(&self, counting: Counting) {
        self.table.borrow_mut().count_as(counting);
    }

    fn shared(&self) -> u64 {
        KeyedWindows::shared(self)
    }

    fn status(&self, key: Key, terms: &KeyedTerms, now: Timestamp) -> KeyStatus {
        let table = &mut *self.table.borrow_mut();
        let place = table.look_up(key);
        if self.shape.is_paced {
            let pace = self.pace(table, terms, 1, now);
            let latest = table.reach(place, now);
            let at = |pace: Spacing| (pace, latest.map(|latest| pace.clamped(latest)));
            return pace
                .map(at)
                .map_or(KeyStatus::default(), |(pace, latest)| KeyStatus {
                    remaining: u64::from(pace.wait(latest) == Some(0)),
                    reset: pace.time_to_pass(latest, now),
                });
        }
        if let Some(status) = table.status(place, terms.count, now) {
            return status;
        }
        let remaining = (terms.count.get() - self.sum_at(table, place, now)) as u64;
        let reset = match remaining {
            0 => table.time_to_room(place, terms.count, 1, now),
            _ => None,
        };
        KeyStatus {
            remaining,
            reset: reset.unwrap_or_default(),
        }
    }

    /// Exact for the keys that have a state of their own; keys that share are left out. A key that has become hot is listed,
    /// and gets its label when it comes again; at most [`MAX_LABELS`] are listed. Reads the whole table: some nanoseconds per
    /// key.
    fn top(&self, n: usize, now: Timestamp) -> Vec<HotKey> {
        let table = &mut *self.table.borrow_mut();
        let top = table.top(n, now);
        for (heat, key) in top.iter().take(MAX_LABELS) {
            if !table.labels().has(*key) {
                let place = table.look_up(*key);
                self.list(table, place, *heat, now);
            }
        }
        let hot = |(amount, key)| HotKey {
            key,
            label: table.labels().label(key),
            amount,
        };
        top.into_iter().map(hot).collect()
    }
}

impl fmt::Debug for KeyedWindows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table = self.table.borrow();
        f.debug_struct("KeyedWindows")
            .field("geometry", &self.geometry)
            .field("keys", &table.len())
            .field("shared", &table.charged_to_shared())
            .finish_non_exhaustive()
    }
}
