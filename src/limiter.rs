//! Some limits on each of many keys, and nothing else: the short form of an [`Engine`](crate::Engine) with keyed rules.

use crate::keyed::{Key, KeyedGeometry, KeyedStates, KeyedTerms, KeyedWindows, MAX_KEYS};
use crate::rule::{Count, Counting, Grade, RuleGeometry, RuleId};
use crate::time::Timestamp;
use hashbrown::HashMap;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};
use std::time::Duration;

/// How many limits there may be on a key.
pub const MAX_LIMITS: usize = 8;

/// How many blocked keys there are at least before those that are blocked no more are looked for.
const FIRST_SWEEP: usize = 64;

/// How much of a key may pass in a window.
#[derive(Clone, PartialEq, Debug)]
pub struct Limit {
    /// What the limit is called.
    pub id: RuleId,
    /// How much passes.
    pub count: Count,
    /// The geometry of the window. Buckets cost memory here.
    pub window: RuleGeometry,
    /// What counts in it.
    pub counting: Counting,
}

/// Why a limiter cannot be made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LimiterError {
    /// There is no limit, or there are more than [`MAX_LIMITS`].
    LimitCount {
        /// How many there are.
        limits: usize,
    },
    /// Two limits have the same id.
    SameId {
        /// The id.
        id: RuleId,
        /// The second of them, from 0.
        index: usize,
    },
}

impl fmt::Display for LimiterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LimiterError::LimitCount { limits } => {
                write!(
                    f,
                    "`{limits}` limits are not possible; use 1 to {MAX_LIMITS}"
                )
            }
            LimiterError::SameId { id, .. } => {
                write!(f, "`{id}` is the id of another limit; use one of its own")
            }
        }
    }
}

impl std::error::Error for LimiterError {}

/// How a limit stands for a key.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Left {
    /// Which of the limits it is, from 0.
    pub index: usize,
    /// How much may pass in its window.
    pub count: Count,
    /// Whole passes that are left now.
    pub remaining: u64,
    /// How long until quota comes back: a whole pass where none is left, else any. Zero where none is used.
    pub reset: Duration,
}

/// What becomes of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// All limits let it pass.
    Pass,
    /// It is refused, and has been charged to none.
    Block {
        /// The first of the limits that refuses; `None` where the key is blocked, or the limiter closed.
        index: Option<usize>,
        /// In what time it would pass if nothing else came; `None` where it never can.
        retry_after: Option<Duration>,
    },
}

/// An instant until which nothing passes, and how far ahead it was when it was set.
#[derive(Clone, Copy)]
struct Until {
    instant: Timestamp,
    length: Duration,
}

impl Until {
    fn after(length: Duration, now: Timestamp) -> Until {
        let nanos = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        Until {
            instant: now.plus_nanos(nanos),
            length,
        }
    }

    /// What is left of it; `None` where nothing is. It never becomes longer than it was, even if the clock has stepped back.
    fn left(&mut self, now: Timestamp) -> Option<Duration> {
        if self.instant.since(now) > self.length {
            *self = Until::after(self.length, now);
        }
        let left = self.instant.since(now);
        (!left.is_zero()).then_some(left)
    }
}

/// A key is a hash, and hard to guess.
#[derive(Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes
            .iter()
            .fold(self.0, |hash, byte| hash << 8 | u64::from(*byte));
    }
}

type Blocked = HashMap<Key, Until, BuildHasherDefault<AsItIs>>;

/// Limits on each of many keys. A request passes if every limit lets it pass, and else it is charged to none.
///
/// The windows of each limit are [`KeyedWindows`], with all that is said there about memory and about floods of keys.
///
/// ```
/// use leapgate::{Count, Counting, Limit, Limiter, RuleGeometry, RuleId, Timestamp, Verdict};
///
/// let limit = |id: &str, count, interval_ms| {
///     let window = RuleGeometry::new(interval_ms, Some(20))?;
///     let (id, count) = (RuleId::new(id)?, Count::new(count)?);
///     Ok::<_, leapgate::RuleError>(Limit { id, count, window, counting: Counting::Strict })
/// };
/// let limits = vec![limit("1s", 2.0, 1000)?, limit("60s", 3.0, 60_000)?];
/// let limiter = Limiter::new(limits, 100_000, [17, 4])?; // random numbers, of the host
///
/// let client = limiter.key([Some(&b"10.0.0.1"[..])]);
/// let limit = |millis| limiter.limit(client, 1, None, Timestamp::from_millis(millis), |_| ());
/// assert_eq!([0, 0, 0, 1050, 1050].map(|millis| limit(millis) == Verdict::Pass), [true, true, false, true, false]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Limiter {
    limits: Box<[(Limit, KeyedWindows)]>,
    /// Whether anything is in the two below: most limiters are never asked to block.
    is_held: Cell<bool>,
    closed: Cell<Option<Until>>,
    blocked: RefCell<Blocked>,
    /// How many blocked keys there are when the next sweep is due.
    sweep_at: Cell<usize>,
    max_keys: usize,
}

impl Limiter {
    /// No keys yet, and room for `max_keys` of them: at least one, at most [`MAX_KEYS`].
    ///
    /// Who knows `seed` can make keys that share a window or crowd the table: take random numbers, and tell nobody.
    ///
    /// # Errors
    ///
    /// Where there is no limit, or more than [`MAX_LIMITS`], or two have the same id.
    pub fn new(
        limits: Vec<Limit>,
        max_keys: usize,
        seed: [u64; 2],
    ) -> Result<Limiter, LimiterError> {
        Limiter::check(&limits)?;
        let open = |limit: Limit| {
            let grade = Grade::Qps {
                window: limit.window,
                counting: limit.counting,
            };
            let windows = KeyedWindows::new(KeyedGeometry::new(grade, max_keys), seed);
            (limit, windows)
        };
        Ok(Limiter {
            limits: limits.into_iter().map(open).collect(),
            is_held: Cell::new(false),
            closed: Cell::new(None),
            blocked: RefCell::default(),
            sweep_at: Cell::new(FIRST_SWEEP),
            max_keys: max_keys.clamp(1, MAX_KEYS),
        })
    }

    /// Whether these limits make a limiter.
    ///
    /// # Errors
    ///
    /// As [`Limiter::new`].
    pub fn check(limits: &[Limit]) -> Result<(), LimiterError> {
        if limits.is_empty() || limits.len() > MAX_LIMITS {
            let limits = limits.len();
            return Err(LimiterError::LimitCount { limits });
        }
        for (index, limit) in limits.iter().enumerate() {
            if limits.iter().take(index).any(|other| other.id == limit.id) {
                let id = limit.id.clone();
                return Err(LimiterError::SameId { id, index });
            }
        }
        Ok(())
    }

    /// The key made of those parts ([`KeyedWindows::key`]).
    #[inline]
    pub fn key<'a>(&self, parts: impl IntoIterator<Item = Option<&'a [u8]>>) -> Key {
        match self.limits.first() {
            Some((_, windows)) => windows.key(parts),
            None => Key::from_hash(0),
        }
    }

    /// Decides about a request of `key` that costs `cost`, and charges it if it passes. A `count` stands in for that of each
    /// limit. `tell` hears how each limit stands afterwards.
    #[inline]
    pub fn limit(
        &self,
        key: Key,
        cost: u64,
        count: Option<Count>,
        now: Timestamp,
        tell: impl FnMut(Left),
    ) -> Verdict {
        let held = self.held(key, now);
        let verdict = match held {
            Some(wait) => Verdict::Block {
                index: None,
                retry_after: Some(wait),
            },
            None if self.charge(key, cost, count, now) => Verdict::Pass,
            None => {
                let (index, retry_after) = self.weigh(key, cost, count, now);
                Verdict::Block { index, retry_after }
            }
        };
        self.tell(key, count, now, tell);
        verdict
    }

    /// Charges all limits, if all let it pass.
    #[inline]
    fn charge(&self, key: Key, cost: u64, count: Option<Count>, now: Timestamp) -> bool {
        let terms = |limit: &Limit| KeyedTerms::of(count.unwrap_or(limit.count));
        if let [(limit, windows)] = &*self.limits {
            return windows.admit(key, &terms(limit), cost, now).is_some();
        }
        let mut taken = [None; MAX_LIMITS];
        let mut passes = true;
        for ((limit, windows), taken) in self.limits.iter().zip(&mut taken) {
            *taken = windows.reserve(key, &terms(limit), cost, now);
            if taken.is_none() {
                passes = false;
                break;
            }
        }
        for ((_, windows), reserved) in self.limits.iter().zip(taken.into_iter().flatten()) {
            if passes {
                windows.commit(reserved, cost);
            } else {
                windows.give_back(reserved, cost, now);
            }
        }
        passes
    }

    /// What [`Limiter::limit`] would decide. Charges nothing, and opens no window.
    pub fn peek(
        &self,
        key: Key,
        cost: u64,
        count: Option<Count>,
        now: Timestamp,
        tell: impl FnMut(Left),
    ) -> Verdict {
        let (index, wait) = self.weigh(key, cost, count, now);
        let held = self.held(key, now);
        self.tell(key, count, now, tell);
        match (held, wait) {
            (None, Some(Duration::ZERO)) => Verdict::Pass,
            (None, retry_after) => Verdict::Block { index, retry_after },
            (Some(held), _) => Verdict::Block {
                index: None,
                retry_after: Some(held),
            },
        }
    }

    /// Which limit refuses first, and in what time all would let it pass.
    fn weigh(
        &self,
        key: Key,
        cost: u64,
        count: Option<Count>,
        now: Timestamp,
    ) -> (Option<usize>, Option<Duration>) {
        let (mut first, mut longest) = (None, Some(Duration::ZERO));
        for (index, (limit, windows)) in self.limits.iter().enumerate() {
            let wait = windows.wait(key, count.unwrap_or(limit.count), cost, now);
            if wait != Some(Duration::ZERO) && first.is_none() {
                first = Some(index);
            }
            longest = longest.zip(wait).map(|(longest, wait)| longest.max(wait));
        }
        (first, longest)
    }

    #[inline]
    fn tell(&self, key: Key, count: Option<Count>, now: Timestamp, mut tell: impl FnMut(Left)) {
        for (index, (limit, windows)) in self.limits.iter().enumerate() {
            let count = count.unwrap_or(limit.count);
            let standing = windows.standing(key, &KeyedTerms::of(count), now);
            tell(Left {
                index,
                count,
                remaining: standing.remaining,
                reset: standing.reset,
            });
        }
    }

    /// Gives back `cost` that `key` was charged at the instant `charged` ([`KeyedWindows::refund`]).
    pub fn refund(&self, key: Key, cost: u64, charged: Timestamp, now: Timestamp) {
        for (_, windows) in &self.limits {
            windows.refund(key, cost, charged, now);
        }
    }

    /// Forgets what counts of `key` ([`KeyedWindows::reset`]), and that it is blocked.
    pub fn reset(&self, key: Key) {
        self.blocked.borrow_mut().remove(&key);
        for (_, windows) in &self.limits {
            windows.reset(key);
        }
    }

    /// Refuses all that `key` asks for so long from now on, and no longer: zero takes a block back. Whether it does: there
    /// may be as many blocked keys as there is room for keys.
    pub fn block(&self, key: Key, length: Duration, now: Timestamp) -> bool {
        let mut blocked = self.blocked.borrow_mut();
        if !blocked.contains_key(&key) && blocked.len() >= self.sweep_at.get().min(self.max_keys) {
            blocked.retain(|_, until| until.left(now).is_some());
            self.sweep_at.set((blocked.len() * 2).max(FIRST_SWEEP));
            if blocked.len() >= self.max_keys {
                return false;
            }
        }
        blocked.insert(key, Until::after(length, now));
        self.is_held.set(true);
        true
    }

    /// Counts all windows as used up now: of who has lost what they counted.
    pub fn close(&self, now: Timestamp) {
        let longest = |(limit, _): &(Limit, KeyedWindows)| {
            let window = limit.window.window();
            window.interval() + window.bucket_length()
        };
        let longest = self.limits.iter().map(longest).max().unwrap_or_default();
        self.closed.set(Some(Until::after(longest, now)));
        self.is_held.set(true);
    }

    /// How many keys have a window, in the limit where there are most.
    pub fn len(&self) -> usize {
        let lengths = self.limits.iter().map(|(_, windows)| windows.len());
        lengths.max().unwrap_or(0)
    }

    /// Whether no key has a window.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// For how long nothing of `key` passes, whatever its windows say.
    #[inline]
    fn held(&self, key: Key, now: Timestamp) -> Option<Duration> {
        if self.is_held.get() {
            self.held_for(key, now)
        } else {
            None
        }
    }

    #[cold]
    fn held_for(&self, key: Key, now: Timestamp) -> Option<Duration> {
        let mut blocked = self.blocked.borrow_mut();
        let mut closed = self.closed.get();
        let closed_for = closed.as_mut().and_then(|until| until.left(now));
        self.closed.set(closed.filter(|_| closed_for.is_some()));
        let blocked_for = blocked.get_mut(&key).and_then(|until| until.left(now));
        if blocked_for.is_none() {
            blocked.remove(&key);
        }
        self.is_held
            .set(closed_for.is_some() || !blocked.is_empty());
        closed_for.max(blocked_for)
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids = self.limits.iter().map(|(limit, _)| limit.id.as_str());
        f.debug_list().entries(ids).finish()
    }
}
