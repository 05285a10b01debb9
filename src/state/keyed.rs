//! A bounded set of states, one per key, for one rule: windows, calls in flight or turns.
//!
//! A key (a client's address, a header, a combination of such) is known by a seeded 64-bit hash of its parts. Two keys of one
//! hash share a state: stricter for both, never more than the limit for either. The states lie in a table of fixed bounds:
//!
//! ```text
//!   tags      [ 3f ][    ][ a1 ][ 07 ][    ]  one byte per slot, none where the slot is empty: a search reads only these
//!   states    [ .. ][    ][ .. ][ .. ][    ]  of each slot:
//!                |
//!                +-- hash              8 bytes
//!                    newest bucket     8 bytes, with three flags
//!                    what counts       8 bytes: the running sum; of a limit on concurrency, the calls in flight
//!                    counters          1 byte per bucket, n + 1 of them, rounded up to 8 bytes
//!                or, of a throttle:
//!                +-- hash              8 bytes
//!                    how far its turns reach
//!                                      8 bytes
//! ```
//!
//! # Memory
//!
//! | State | Bytes | Bytes per key at the bound |
//! |---|---|---|
//! | a window of 20 buckets, the default | 48 | **62** |
//! | a window of 60 buckets | 88 | 112 |
//! | calls in flight | 24 | 32 |
//! | turns | 16 | 22 |
//!
//! At most four slots of five are taken, and each has its tag. Beside them lies what keys share once the table is full (8 bytes
//! more per key; 4 for calls in flight and for turns), and the labels (both below): [`KeyedGeometry::max_bytes`] is the sum. A
//! table begins small and doubles; from an eighth of `max_keys` it goes there at once, and never past. While it grows, both
//! are there.
//!
//! A bucket that counts more than 255 does not fit its byte: the counters of that key then *widen* into a block of 8 bytes
//! per bucket in a slab beside the table (172 bytes more for 20 buckets), which goes back when the whole window has left. The
//! slab doubles as needed, and has at most as many blocks as there are windows ([`KeyedGeometry::max_bytes_wide`]). Widening
//! saves what is counted, exactly. What keys share widens in the same way, by 44 bytes.
//!
//! # When the table is full
//!
//! A state in which nothing counts any more is free to be taken: a window whose passes have left it, a key without calls in
//! flight, a line whose latest turn is over (with `compat`, where a request waits for its own cost, for as long as the dearest
//! one has to; `IdleTtl` in `table.rs` says why that is enough). Such are looked for only when a key comes that is not known: in
//! the slots where it would be searched for, and in a few more where a hand stands that goes round the table. There is no timer.
//! While each of the `max_keys` states counts something, new keys share a count-min sketch with conservative update: for each key
//! a cell in each of two rows, of which the lesser count is an upper bound. So a flood of keys makes limits stricter for the keys
//! that come with it; it takes no state from a key that has one, and no memory beyond the bound.
//!
//! - *Windows.* A row has a cell for every two keys of `max_keys`, and 256 at least. After `f` times `max_keys` further keys of one
//!   request each, a row's cells have counted 2 `f` each on average, by chance (Poisson's distribution), and a new client is
//!   refused at a limit of `n` if both of its own have counted `n`: at 5 and `f` = 1, 1 in 360, and fewer since an update is
//!   conservative. Tests find that of 1000 new clients 1000 pass at `f` = 1, 990 at 2, 920 at 3, 710 at 4. The sketch counts
//!   strictly, whatever the mode of the rule, in coarse buckets: the interval in four, and the current one. So in the long run a
//!   key that shares has four fifths of its limit.
//! - *Calls in flight.* They are added to both cells and taken off both when they end; there are as many cells.
//! - *Turns.* Both cells reach as far as the furthest turn that was taken in them; there are half as many cells. A crowd that
//!   takes turns all at once leaves few cells free until those turns are over: new clients wait for so long, or are refused. With
//!   `compat` the turns of a key that shares reach at least as far as the lines did that were forgotten.
//!
//! What is reserved and given back before it is charged is free again. What has been charged stays, since others may have raised
//! the cell as far: a refund, a forgotten key or a turn given up gives nothing back there. A key that gets a state of its own
//! later goes on from what its cells tell, each count dated no earlier than it can be; a key without a state of its own has none
//! beside its cells. So no key has its limit twice.
//!
//! # The hottest keys
//!
//! [`KeyedStates::top`] looks at all states, so that no decision has to keep an order. What the table does not know is what a
//! key is called. So up to [`MAX_LABELS`] keys are *listed*: a decision compares what now counts with a floor, and a key that
//! is not listed and reaches it takes the place of the coolest one, if it is a quarter hotter. The floor sinks with time. A
//! listed key is named when it comes the next time, and its label, at most [`MAX_LABEL`] bytes, is kept while it is listed:
//! together 10 kB at most, none before something is hot. What may be missing is the label of a key that has been hot for a
//! moment only, or that is about as hot as more than [`MAX_LABELS`] others; amounts are exact. What keys share belongs to none
//! of them and is not shown.
//!
//! # Time
//!
//! Each window follows the clock as a [`crate::backend::RuleWindow`] does. One sum is kept, of all buckets, and a bucket that leaves is
//! subtracted from it: each bucket once, so that a decision costs the same with 2 buckets and with 60. Turns follow it as those
//! of a throttle for all: what reaches further ahead than a turn of its rule can was taken before the clock stepped back, and is
//! pulled back to there.
//!
//! Of a clock that has stepped back by an interval or more, a state hears when its key comes next; in a full table, also when
//! a new key looks at it, so that the keys of a time that may never come again do not hold the table. What had expired and was
//! taken does not come back with the clock.

mod blocks;
mod count;
mod hottest;
mod left;
mod page;
mod refund;
mod sketch;
mod table;
mod window;

pub(crate) use blocks::Blocks;
pub use hottest::{HotKey, MAX_LABEL, MAX_LABELS};
pub use page::{KEYS_PER_PAGE, KeyedPages};

use crate::rule::{Count, Counting, Grade, MAX_KEYS};
use crate::state::pacer::Spacing;
use crate::time::Timestamp;
use hottest::{LABEL_BYTES, Wanted};
use siphasher::sip::SipHasher13;
use sketch::Sketch;
use std::cell::RefCell;
use std::fmt;
use std::hash::Hasher;
use std::time::Duration;
use table::{Table, slots};
use window::{LISTED, Shape};

/// As many parts of a key are named in its label.
const LABELLED_PARTS: usize = 8;

/// Who is limited, as far as a table of keys is concerned: a hash.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Key(u64);

impl Key {
    /// The key that has this hash. It should be as hard to guess as those of [`Key::of_parts`].
    pub const fn from_hash(hash: u64) -> Key {
        Key(hash)
    }

    /// The key made of those parts, in order. A part that is missing (`None`) is a value of its own, other than an empty one.
    ///
    /// The hash is SipHash-1-3: whoever finds two parts of one hash can spend another one's quota, and this is the one of the
    /// fast hashes that was made to withstand those who look for them, as long as the seed is secret. Each part goes into it
    /// with its length before it; a key of one part, the common case, has a seed of its own instead.
    #[inline]
    pub fn of_parts<'a>(seed: [u64; 2], parts: impl IntoIterator<Item = Option<&'a [u8]>>) -> Key {
        let mut parts = parts.into_iter();
        match (parts.next(), parts.next()) {
            (Some(Some(only)), None) => Key::of_one(seed, only),
            (first, second) => {
                Key::of_many(seed, [first, second].into_iter().flatten().chain(parts))
            }
        }
    }

    #[inline]
    fn of_one([k0, k1]: [u64; 2], only: &[u8]) -> Key {
        Key(SipHasher13::new_with_keys(k0, !k1).hash(only))
    }

    fn of_many<'a>([k0, k1]: [u64; 2], parts: impl Iterator<Item = Option<&'a [u8]>>) -> Key {
        let mut hasher = SipHasher13::new_with_keys(k0, k1);
        for part in parts {
            match part {
                None => hasher.write_u64(0),
                Some(bytes) => {
                    hasher.write_u64(bytes.len() as u64 + 1);
                    hasher.write(bytes);
                }
            }
        }
        Key(hasher.finish())
    }

    /// The hash.
    pub const fn hash(self) -> u64 {
        self.0
    }

    /// One of 255, never 0, and independent of [`Key::home`].
    #[inline]
    fn tag(self) -> u8 {
        (self.0 as u8).max(1)
    }

    /// Where the search for this key begins among `slots`, which are fewer than 2^32.
    #[inline]
    fn home(self, slots: usize) -> usize {
        (((self.0 >> 32) * slots as u64) >> 32) as usize
    }
}

/// Where the state of a key is. From a reservation until that is given back, has ended or has left the window, it stays good
/// whatever happens to other keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    key: Key,
    /// Where it was when it was told. It may have moved since.
    at: u32,
    is_shared: bool,
}

impl Place {
    /// Of a key, wherever its state is: of states that are found by their key alone.
    pub const fn of(key: Key) -> Place {
        Place {
            key,
            at: 0,
            is_shared: false,
        }
    }

    fn own(key: Key, slot: usize) -> Place {
        Place {
            key,
            at: slot as u32,
            is_shared: false,
        }
    }

    fn shared(key: Key) -> Place {
        Place {
            key,
            at: 0,
            is_shared: true,
        }
    }

    /// The key.
    pub const fn key(self) -> Key {
        self.key
    }

    /// Whether the key has no state of its own, but shares with others because the table was full.
    pub const fn is_shared(self) -> bool {
        self.is_shared
    }
}

/// What the states of one rule are: fixed for their life.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct KeyedGeometry {
    /// What is limited.
    pub grade: Grade,
    /// Whether requests take turns, spaced evenly over the interval of the grade, and nothing is counted: a throttle per key.
    /// Calls in flight cannot.
    pub is_paced: bool,
    /// How many keys have a state of their own: at least one, at most [`MAX_KEYS`].
    pub max_keys: usize,
    /// Whether turns are those of Sentinel's hot parameters.
    pub compat: bool,
}

impl KeyedGeometry {
    /// For windows or calls in flight of `max_keys` keys.
    pub const fn new(grade: Grade, max_keys: usize) -> KeyedGeometry {
        KeyedGeometry {
            grade,
            is_paced: false,
            max_keys,
            compat: false,
        }
    }

    /// For turns.
    pub const fn paced(self) -> KeyedGeometry {
        KeyedGeometry {
            is_paced: true,
            ..self
        }
    }

    /// For decisions as Sentinel makes them.
    pub const fn sentinel(self) -> KeyedGeometry {
        KeyedGeometry {
            compat: true,
            ..self
        }
    }

    fn keys(&self) -> usize {
        self.max_keys.clamp(1, MAX_KEYS)
    }

    /// The most bytes that [`KeyedWindows`] of this geometry have allocated between two calls, while no counter has widened.
    pub fn max_bytes(&self) -> usize {
        let (shape, keys) = (Shape::new(self.grade, self.is_paced), self.keys());
        let state = shape.stride * size_of::<u64>();
        slots(keys) * (state + 1) + Sketch::max_bytes(&shape, keys) + LABEL_BYTES
    }

    /// The same if those of all windows have.
    pub fn max_bytes_wide(&self) -> usize {
        let (shape, keys) = (Shape::new(self.grade, self.is_paced), self.keys());
        let block = shape.buckets * size_of::<u64>();
        let own = keys
            * if block > 0 {
                block + size_of::<u32>()
            } else {
                0
            };
        self.max_bytes() + own + Sketch::max_bytes_more_if_wide(&shape, keys)
    }
}

/// What a rule asks of a key: it can change while the state goes on.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct KeyedTerms {
    /// How much the key may have: where it is an exception, its own count.
    pub count: Count,
    /// Of turns: for how long a request waits at most, in nanoseconds.
    pub max_queueing_ns: u64,
}

impl KeyedTerms {
    /// A count, and nobody waits.
    pub const fn of(count: Count) -> KeyedTerms {
        KeyedTerms {
            count,
            max_queueing_ns: 0,
        }
    }
}

/// What would become of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asked {
    /// It would pass at once.
    Pass,
    /// It would have to wait for so long, in nanoseconds.
    Wait(u64),
    /// It would be refused.
    Block {
        /// How long until it would not be, if nothing else came: the first instant at which it passes, or may wait. `None` where
        /// it never does. A call in flight may end at any moment: for those it is a millisecond.
        retry_after: Option<Duration>,
    },
}

/// A turn that was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Turn {
    /// How far turns reached before; `None` where there was none.
    pub from: Option<Timestamp>,
    /// How far they reach with it.
    pub to: Timestamp,
}

/// What was taken for a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reserved {
    /// Where the state of its key is.
    pub place: Place,
    /// For how long it has to wait, in nanoseconds: 0 passes at once.
    pub wait: u64,
    /// Its turn, where turns are taken.
    pub turn: Option<Turn>,
}

impl Reserved {
    /// Of a request that passes at once, where no turns are taken.
    pub const fn at_once(place: Place) -> Reserved {
        Reserved {
            place,
            wait: 0,
            turn: None,
        }
    }
}

/// How a key stands.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Standing {
    /// How much is left: whole passes, rounded down. Where turns are taken, one if it would pass at once.
    pub remaining: u64,
    /// How long until one passes at once, or where one does, until quota next comes back, if nothing else came: zero where none
    /// is used or, of calls in flight that leave room, unknown.
    pub reset: Duration,
}

/// The states of one rule, one per key: windows, calls in flight or turns.
///
/// Several rules decide together in three steps, as those of a [`crate::backend::Controller`]: [`KeyedStates::ask`] each; if all would
/// let the request pass, [`KeyedStates::reserve`] of each; if all could, [`KeyedStates::commit`], else
/// [`KeyedStates::give_back`]. A rule that is alone need not be asked.
pub trait KeyedStates {
    /// The key of these values, in the order of the rule's parts. A value that is missing (`None`) is one of its own.
    fn key(&self, parts: &mut dyn Iterator<Item = Option<&[u8]>>) -> Key;

    /// What would become of a request of that cost. Takes nothing.
    fn ask(&self, key: Key, terms: &KeyedTerms, cost: u64, now: Timestamp) -> Asked;

    /// Takes what the request needs, if it is there, else nothing.
    fn reserve(&self, key: Key, terms: &KeyedTerms, cost: u64, now: Timestamp) -> Option<Reserved>;

    /// The same for a request that another rule makes wait for `wait` nanoseconds: it has its turn then, if that is later than
    /// it would be. (Without this a turn lies where it would without the other rule.)
    fn reserve_later(
        &self,
        key: Key,
        terms: &KeyedTerms,
        cost: u64,
        _wait: u64,
        now: Timestamp,
    ) -> Option<Reserved> {
        self.reserve(key, terms, cost, now)
    }

    /// Gives back what was reserved, because another rule refused. A turn, also one that was committed, if the request is given
    /// up before it passes: the turn is free again if no later one was taken.
    fn give_back(&self, reserved: Reserved, cost: u64, now: Timestamp);

    /// The request passes: charges what was reserved. Whether the call is in flight from now on ([`KeyedStates::leave`]).
    fn commit(&self, reserved: Reserved, cost: u64) -> bool;

    /// A call in flight has ended: once for each commit that said so.
    fn leave(&self, reserved: Reserved);

    /// Gives back `cost` that a window was charged at the instant `charged`. Nothing where windows are shared.
    fn refund(&self, _key: Key, _cost: u64, _charged: Timestamp, _now: Timestamp) {}

    /// Has windows count in this way from now on: what has been counted stays.
    fn count_as(&self, counting: Counting);

    /// How many requests have been charged to what keys share that find no state of their own to be free.
    fn shared(&self) -> u64 {
        0
    }

    /// How a key stands. Charges nothing; a window may follow the clock to `now`, as it does in a decision.
    fn standing(&self, key: Key, terms: &KeyedTerms, now: Timestamp) -> Standing;

    /// The `n` hottest keys, hottest first: those with the most passes in their window, the most calls in flight or the turns
    /// that reach furthest. None where nobody keeps them.
    fn top(&self, _n: usize, _now: Timestamp) -> Vec<HotKey> {
        Vec::new()
    }
}

/// The states of the keys of one rule in a table of fixed bounds.
///
/// The terms are no part of it and an argument of each call, so that they can change, and be others for some keys. A rule that
/// is alone decides in one step ([`KeyedWindows::admit`]), several in those of [`KeyedStates`].
///
/// Sentinel: `ParameterMetric`, which forgets the least recently used value when it is full, and so its limit.
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
///     clients.admit(key, &terms, 1, Timestamp::from_millis(at)).is_some()
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
    shape: Shape,
    table: RefCell<Table>,
    wanted: Wanted,
}

impl KeyedWindows {
    /// No keys yet.
    ///
    /// Who knows `seed` can make keys that share a state or crowd the table: take random numbers, and tell nobody.
    #[inline(never)]
    pub fn new(geometry: KeyedGeometry, seed: [u64; 2]) -> KeyedWindows {
        let shape = Shape::new(geometry.grade, geometry.is_paced);
        KeyedWindows {
            seed,
            geometry,
            shape,
            table: RefCell::new(Table::new(shape, geometry.compat, geometry.keys())),
            wanted: Wanted::default(),
        }
    }

    /// The key made of those parts, in order: [`Key::of_parts`] with this table's seed.
    #[inline]
    pub fn key<'a>(&self, parts: impl IntoIterator<Item = Option<&'a [u8]>>) -> Key {
        let mut parts = parts.into_iter();
        let (first, second) = match (parts.next(), parts.next()) {
            (Some(Some(only)), None) => {
                let key = Key::of_one(self.seed, only);
                if self.wanted.may_be(key) {
                    self.learn(key, &[Some(only)]);
                }
                return key;
            }
            others => others,
        };
        let mut noted = [None; LABELLED_PARTS];
        let mut count = 0;
        let parts = [first, second].into_iter().flatten().chain(parts);
        let key = Key::of_many(
            self.seed,
            parts.inspect(|part| {
                if let Some(place) = noted.get_mut(count) {
                    *place = *part;
                    count += 1;
                }
            }),
        );
        if self.wanted.may_be(key) {
            self.learn(key, noted.get(..count).unwrap_or_default());
        }
        key
    }

    /// A key came that is listed without a label, perhaps.
    #[cold]
    #[inline(never)]
    fn learn(&self, key: Key, parts: &[Option<&[u8]>]) {
        let table = &mut *self.table.borrow_mut();
        table.labels().learn(key, parts);
        self.wanted.set(table.labels());
    }

    /// A key is hot that is not listed.
    #[cold]
    #[inline(never)]
    fn list(&self, table: &mut Table, place: Place, heat: u64, now: Timestamp) {
        table.list(place, heat, now);
        self.wanted.set(table.labels());
    }

    /// The whole decision of a rule that is alone, if it need not wait: takes `cost` if that is within the terms, and charges
    /// it. As [`KeyedStates::reserve`] and [`KeyedStates::commit`], in one search.
    #[inline]
    pub fn admit(
        &self,
        key: Key,
        terms: &KeyedTerms,
        cost: u64,
        now: Timestamp,
    ) -> Option<Reserved> {
        let table = &mut *self.table.borrow_mut();
        let (floor, now_in) = (table.floor(), table.bucket(now));
        let (place, elsewhere, held) = table.enter(key, now, now_in);
        let Some(mut held) = held else {
            if place.is_shared {
                return self.admit_shared(table, place, terms.count, cost, now);
            }
            let at_once = KeyedTerms::of(terms.count);
            return self.take_turn(table, place, &at_once, cost, 0, now);
        };
        if !held.fits(terms.count, cost.saturating_add(elsewhere), now, now_in) {
            return None;
        }
        *held.used += cost;
        held.commit(cost, now_in);
        let heat = *held.used;
        if heat >= floor && !held.has(LISTED) {
            self.list(table, place, heat, now);
        }
        Some(Reserved::at_once(place))
    }

    /// What a turn is worth.
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
        if self.geometry.compat {
            Spacing::of_hot_parameter(interval, count, queue, cost, now)
        } else {
            Spacing::evenly(interval, count, queue, cost, now)
        }
    }

    /// [`KeyedWindows::admit`] of a key that shares.
    #[cold]
    #[inline(never)]
    fn admit_shared(
        &self,
        table: &mut Table,
        place: Place,
        count: Count,
        cost: u64,
        now: Timestamp,
    ) -> Option<Reserved> {
        let at_once = KeyedTerms::of(count);
        let reserved = self.reserve_shared(table, place, &at_once, cost, 0, now)?;
        table.commit_shared(&reserved, cost);
        Some(reserved)
    }

    /// Reserves for a key that shares.
    #[cold]
    #[inline(never)]
    fn reserve_shared(
        &self,
        table: &mut Table,
        place: Place,
        terms: &KeyedTerms,
        cost: u64,
        wait: u64,
        now: Timestamp,
    ) -> Option<Reserved> {
        let mut reserved = Reserved::at_once(place);
        let amount = if !self.shape.is_paced {
            let fits = table.shared_fits(place.key, terms.count, cost, now);
            fits.then_some(cost)?
        } else if cost > 0 {
            let pace = self.pace(table, terms, cost, now)?;
            let (wait, from, to) = table.shared_turn(place.key, &pace, wait)?;
            (reserved.wait, reserved.turn) = (wait, Some(Turn { from, to }));
            table::reach_word(Some(to))
        } else {
            return Some(reserved); // it needs no turn
        };
        let is_noted = table.sketch().reserve(place.key, amount);
        is_noted.then_some(reserved)
    }

    #[inline(never)]
    fn take_turn(
        &self,
        table: &mut Table,
        place: Place,
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
            place,
            wait,
            turn: Some(Turn { from, to }),
        })
    }

    /// What would become of a request of a key that has no window of its own: it takes turns, or shares.
    #[inline(never)]
    fn ask_without_window(
        &self,
        table: &mut Table,
        place: Place,
        terms: &KeyedTerms,
        cost: u64,
        now: Timestamp,
    ) -> Asked {
        if !self.shape.is_paced {
            if table.shared_fits(place.key, terms.count, cost, now) {
                return Asked::Pass;
            }
            let retry_after = table.time_to_room(place, terms.count, cost, now);
            return Asked::Block { retry_after };
        }
        if cost == 0 {
            return Asked::Pass;
        }
        let Some(pace) = self.pace(table, terms, cost, now) else {
            return Asked::Block { retry_after: None };
        };
        let latest = table.reach_within(place, &pace);
        match pace.wait(latest) {
            Some(0) => Asked::Pass,
            Some(wait) => Asked::Wait(wait),
            None => Asked::Block {
                retry_after: Some(pace.time_to_queue(latest, now)),
            },
        }
    }

    /// How much counts at `now` in the window of `key`, or how many of its calls are in flight, what is reserved included.
    /// Changes nothing.
    pub fn sum(&self, key: Key, now: Timestamp) -> f64 {
        let table = &mut *self.table.borrow_mut();
        let place = table.look_up(key);
        self.sum_at(table, place, now)
    }

    fn sum_at(&self, table: &mut Table, place: Place, now: Timestamp) -> f64 {
        let (known, elsewhere) = (table.known(), table.in_flight_elsewhere(place));
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
            future.sum(now)
        })
    }

    /// Where the state of `key` is, if it has one of its own. Changes nothing.
    pub fn find(&self, key: Key) -> Option<Place> {
        let slot = self.table.borrow().find(key)?;
        Some(Place::own(key, slot))
    }

    /// What it was made for.
    pub fn geometry(&self) -> KeyedGeometry {
        self.geometry
    }

    /// How many keys have a state, those included that have expired and are not taken yet.
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

    /// How many requests have been charged to what keys share, because the table was full.
    pub fn shared(&self) -> u64 {
        self.table.borrow().charged_to_shared()
    }

    /// [`KeyedWindows::len`] and [`KeyedWindows::shared`].
    pub(crate) fn fill(&self) -> (usize, u64) {
        let table = self.table.borrow();
        (table.len(), table.charged_to_shared())
    }

    /// How many states have been taken from keys in which nothing counted any more.
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
    fn ask(&self, key: Key, terms: &KeyedTerms, cost: u64, now: Timestamp) -> Asked {
        let table = &mut *self.table.borrow_mut();
        let now_in = table.bucket(now);
        let (place, elsewhere, held) = table.enter(key, now, now_in);
        let Some(mut held) = held else {
            return self.ask_without_window(table, place, terms, cost, now);
        };
        if held.fits(terms.count, cost.saturating_add(elsewhere), now, now_in) {
            return Asked::Pass;
        }
        let retry_after = table.time_to_room(place, terms.count, cost, now);
        Asked::Block { retry_after }
    }

    #[inline]
    fn reserve(&self, key: Key, terms: &KeyedTerms, cost: u64, now: Timestamp) -> Option<Reserved> {
        self.reserve_later(key, terms, cost, 0, now)
    }

    #[inline]
    fn reserve_later(
        &self,
        key: Key,
        terms: &KeyedTerms,
        cost: u64,
        wait: u64,
        now: Timestamp,
    ) -> Option<Reserved> {
        let table = &mut *self.table.borrow_mut();
        let now_in = table.bucket(now);
        let (place, elsewhere, held) = table.enter(key, now, now_in);
        let Some(mut held) = held else {
            if place.is_shared {
                return self.reserve_shared(table, place, terms, cost, wait, now);
            }
            return self.take_turn(table, place, terms, cost, wait, now);
        };
        if !held.fits(terms.count, cost.saturating_add(elsewhere), now, now_in) {
            return None;
        }
        *held.used += cost;
        Some(Reserved::at_once(place))
    }

    fn give_back(&self, reserved: Reserved, cost: u64, _now: Timestamp) {
        let table = &mut *self.table.borrow_mut();
        if reserved.place.is_shared {
            let turn = reserved.turn.map(|turn| table::reach_word(Some(turn.to)));
            table
                .sketch()
                .take_back(reserved.place.key, turn.unwrap_or(cost));
        } else if let Some(turn) = reserved.turn {
            table.give_turn_back(reserved.place, turn.from, turn.to);
        } else if let Some(mut held) = table.held(reserved.place) {
            held.give_back(cost);
        }
    }

    #[inline]
    fn commit(&self, reserved: Reserved, cost: u64) -> bool {
        let table = &mut *self.table.borrow_mut();
        let (known, floor) = (table.known(), table.floor());
        let Some(mut held) = table.held(reserved.place) else {
            return table.commit_shared(&reserved, cost);
        };
        held.commit(cost, known);
        let heat = *held.used;
        if heat >= floor && !held.has(LISTED) {
            let now = table.known_start();
            self.list(table, reserved.place, heat, now);
        }
        self.shape.window.is_none()
    }

    fn leave(&self, reserved: Reserved) {
        if self.shape.window.is_some() {
            return;
        }
        let table = &mut *self.table.borrow_mut();
        if let Some(mut held) = table.held(reserved.place) {
            held.give_back(1);
            let heat = held.has(LISTED).then_some(*held.used);
            if let Some(heat) = heat {
                table.labels().cool_to(heat);
            }
        } else if reserved.place.is_shared {
            table.sketch().leave(reserved.place.key);
        }
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

    fn standing(&self, key: Key, terms: &KeyedTerms, now: Timestamp) -> Standing {
        let table = &mut *self.table.borrow_mut();
        let place = table.look_up(key);
        if self.shape.is_paced {
            let pace = self.pace(table, terms, 1, now);
            let latest = table.reach(place, now);
            let at = |pace: Spacing| (pace, latest.map(|latest| pace.clamped(latest)));
            return pace
                .map(at)
                .map_or(Standing::default(), |(pace, latest)| Standing {
                    remaining: u64::from(pace.wait(latest) == Some(0)),
                    reset: pace.time_to_pass(latest, now),
                });
        }
        if let Some(standing) = table.standing(place, terms.count, now) {
            return standing;
        }
        let remaining = (terms.count.get() - self.sum_at(table, place, now)) as u64;
        let reset = match remaining {
            0 => table.time_to_room(place, terms.count, 1, now),
            _ => None,
        };
        Standing {
            remaining,
            reset: reset.unwrap_or_default(),
        }
    }

    /// Exact for the keys that have a state of their own; what keys share because the table was full is nobody's. A key that
    /// has become hot is listed, and gets its label when it comes again; at most [`MAX_LABELS`] are listed. It looks at the
    /// whole table: some nanoseconds per key.
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
