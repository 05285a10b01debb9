//! Some limits on each of many keys, and nothing else: the short form of an [`Engine`](crate::Engine) with keyed rules.

pub(crate) mod snapshot;

use crate::rule::{Count, Counting, Grade, RuleGeometry, RuleId};
use crate::state::keyed::{Blocks, Charges, Key, KeyHandle, KeyedGeometry, KeyedWindows};
use crate::time::Timestamp;
use std::cell::{Cell, RefCell, RefMut};
use std::fmt;
use std::time::Duration;

/// How much of a key may pass in a window.
#[derive(Clone, PartialEq, Debug)]
pub struct Limit {
    /// The limit's id.
    pub id: RuleId,
    /// How much passes in the window.
    pub count: Count,
    /// The geometry of the window. Buckets cost memory here.
    pub window: RuleGeometry,
    /// What counts in it.
    pub counting: Counting,
}

/// Why a limiter cannot be made.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LimiterError {
    /// There is no limit, or there are more than [`Limiter::MAX_LIMITS`].
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
                    "`{limits}` limits are not possible; use 1 to {}",
                    Limiter::MAX_LIMITS
                )
            }
            LimiterError::SameId { id, .. } => {
                write!(f, "`{id}` is the id of another limit; use one of its own")
            }
        }
    }
}

impl std::error::Error for LimiterError {}

/// The status of a limit for a key.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Left {
    /// Which of the limits it is, from 0.
    pub index: usize,
    /// How much may pass in its window.
    pub count: Count,
    /// Whole passes that are left now.
    pub remaining: u64,
    /// How long until quota comes back: a whole pass if none is left, else any. Zero if none is used.
    pub reset: Duration,
    /// Until then only calls for this key change what is left: the end of the bucket. A shell may let that much of the key pass
    /// without asking, and tells [`Limiter::catch_up`] before its next call for the key. It also does that for all keys before the
    /// first call after the clock has stepped back, and before a block. `None` if other calls may change it: in a weighted window, where keys share,
    /// while something is held, and while any key is blocked.
    pub steady_until: Option<Timestamp>,
}

/// The decision about a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// All limits let it pass.
    Pass,
    /// It is refused, and no limit was charged.
    Block {
        /// The first of the limits that refuses; `None` if the key is blocked, or the limiter closed.
        index: Option<usize>,
        /// How long until it would pass, if no other request came; `None` if it never can.
        retry_after: Option<Duration>,
    },
}

/// Limits on each of many keys. A request passes if every limit lets it pass, and else no limit is charged.
///
/// The windows of each limit are [`KeyedWindows`]; its page says how much memory they take and what a flood of keys does.
///
/// ```
/// use leapgate::{Limit, Limiter, Timestamp, Verdict};
/// use leapgate::rule::{Count, Counting, RuleGeometry, RuleId};
///
/// let limit = |id: &str, count, interval_ms| {
///     let window = RuleGeometry::new(interval_ms, Some(20))?;
///     let (id, count) = (RuleId::new(id)?, Count::new(count)?);
///     Ok::<_, leapgate::rule::RuleError>(Limit { id, count, window, counting: Counting::Strict })
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
    /// Whether any key is blocked: most limiters never block.
    is_blocked: Cell<bool>,
    blocks: RefCell<Option<Blocks>>,
    holds: RefCell<OpenHolds>,
    max_keys: usize,
}

/// What a request holds of a key until its cost is known ([`Limiter::hold`]). Two numbers, which a shell can pass on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Hold {
    /// Its place among the limiter's open holds, which later holds use again.
    pub index: u32,
    /// Which of the holds at this place it is.
    pub sequence: u32,
}

/// An open hold, or a place for one.
struct OpenHold {
    /// The key, and where the first limit holds.
    handle: KeyHandle,
    amount: u64,
    /// Odd while the hold is open.
    sequence: u32,
    /// By limit, a bit: the key shares the entry that holds.
    shared: u8,
}

/// The open holds by place, and the free places.
#[derive(Default)]
struct OpenHolds {
    places: Vec<OpenHold>,
    free: Vec<u32>,
}

impl OpenHolds {
    fn add(&mut self, handle: KeyHandle, amount: u64, shared: u8) -> Hold {
        let mut new = OpenHold {
            handle,
            amount,
            sequence: 1,
            shared,
        };
        if let Some(index) = self.free.pop()
            && let Some(place) = self.places.get_mut(index as usize)
        {
            new.sequence = place.sequence.wrapping_add(1);
            let sequence = new.sequence;
            *place = new;
            return Hold { index, sequence };
        }
        self.places.push(new);
        Hold {
            index: (self.places.len() - 1) as u32,
            sequence: 1,
        }
    }

    fn take(&mut self, hold: Hold) -> Option<&OpenHold> {
        let place = self.places.get_mut(hold.index as usize)?;
        if place.sequence != hold.sequence || hold.sequence.is_multiple_of(2) {
            return None;
        }
        place.sequence = place.sequence.wrapping_add(1);
        self.free.push(hold.index);
        Some(place)
    }
}

impl Limiter {
    /// How many limits there may be on a key.
    pub const MAX_LIMITS: usize = 8;

    /// No keys yet, and room for `max_keys` of them: at least one, at most [`MAX_KEYS`](crate::rule::MAX_KEYS).
    ///
    /// A client that knows `seed` can make keys that share a window or crowd the table: take random numbers, and keep them
    /// secret.
    ///
    /// # Errors
    ///
    /// If there is no limit, or more than [`Limiter::MAX_LIMITS`], or two have the same id.
    #[inline(never)]
    pub fn new(
        limits: Vec<Limit>,
        max_keys: usize,
        seed: [u64; 2],
    ) -> Result<Limiter, LimiterError> {
        Limiter::check(&limits)?;
        let open = |limit: Limit| {
            let windows = KeyedWindows::new(geometry(&limit, max_keys), seed);
            (limit, windows)
        };
        Ok(Limiter {
            limits: limits.into_iter().map(open).collect(),
            is_blocked: Cell::new(false),
            blocks: RefCell::default(),
            holds: RefCell::default(),
            max_keys,
        })
    }

    /// Checks that these limits make a limiter.
    ///
    /// # Errors
    ///
    /// As [`Limiter::new`].
    #[inline(never)]
    pub fn check(limits: &[Limit]) -> Result<(), LimiterError> {
        if limits.is_empty() || limits.len() > Limiter::MAX_LIMITS {
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

    /// The key made of these parts ([`KeyedWindows::key`]).
    #[inline]
    pub fn key<'a>(&self, parts: impl IntoIterator<Item = Option<&'a [u8]>>) -> Key {
        match self.limits.first() {
            Some((_, windows)) => windows.key(parts),
            None => Key::from_hash(0),
        }
    }

    /// Decides about a request of `key` that costs `cost`, and charges it if it passes. A `count` replaces that of each limit.
    /// `report` is called with the status of each limit afterwards.
    #[inline]
    pub fn limit(
        &self,
        key: Key,
        cost: u64,
        count: Option<Count>,
        now: Timestamp,
        report: impl FnMut(Left),
    ) -> Verdict {
        self.decide(key, (cost, count), Charges::AtOnce, now, report)
            .0
    }

    /// What [`Limiter::limit`] would decide. Charges nothing, and opens no window.
    pub fn peek(
        &self,
        key: Key,
        cost: u64,
        count: Option<Count>,
        now: Timestamp,
        report: impl FnMut(Left),
    ) -> Verdict {
        self.decide(key, (cost, count), Charges::Nothing, now, report)
            .0
    }

    /// Decides about a request of `key` whose cost will be known when it ends, and holds an `estimate` of it if it passes: all limits
    /// count that in full until the hold is settled, however long that takes. A `count` replaces that of each limit. `report` is
    /// called with the status of each limit afterwards.
    ///
    /// If each estimate is an upper bound and limits do not fall, no interval of a strict window's length has more than its limit
    /// of the cost of requests that ran in it. A request that only holds keep from passing may try again after 1 s: no time tells
    /// when a hold is settled.
    ///
    /// Open holds take 36 bytes each; a limiter that never holds has none. A hold that is not settled is held for good.
    ///
    /// # Errors
    ///
    /// The refusal, a [`Verdict::Block`]. Nothing is held then.
    #[inline]
    pub fn hold(
        &self,
        key: Key,
        estimate: u64,
        count: Option<Count>,
        now: Timestamp,
        report: impl FnMut(Left),
    ) -> Result<Hold, Verdict> {
        match self.decide(key, (estimate, count), Charges::WhenSettled, now, report) {
            (Verdict::Pass, handle, shared) => {
                Ok(self.holds.borrow_mut().add(handle, estimate, shared))
            }
            (refused, ..) => Err(refused),
        }
    }

    /// Ends a hold: each limit gets back what was held, and is charged the `actual` cost at `now`. More than was held is charged
    /// all the same: beyond the limit it refuses further requests until it has left the window. Returns how much more that is.
    /// `None` if the hold has been settled already: nothing changes then.
    #[inline(never)]
    pub fn settle(&self, hold: Hold, actual: u64, now: Timestamp) -> Option<u64> {
        let mut holds = self.holds.borrow_mut();
        let open = holds.take(hold)?;
        let (mut handle, key) = (open.handle, open.handle.key());
        for (index, (_, windows)) in self.limits.iter().enumerate() {
            if index > 0 {
                handle = match open.shared >> index & 1 {
                    1 => KeyHandle::shared(key),
                    _ => KeyHandle::of(key),
                };
            }
            windows.settle_at(handle, open.amount, actual, now);
        }
        Some(actual.saturating_sub(open.amount))
    }

    /// Ends a hold whose request costs nothing: [`Limiter::settle`] with 0. Returns whether it was open.
    pub fn cancel(&self, hold: Hold, now: Timestamp) -> bool {
        self.settle(hold, 0, now).is_some()
    }

    fn decide(
        &self,
        key: Key,
        (cost, count): (u64, Option<Count>),
        mut charges: Charges,
        now: Timestamp,
        mut report: impl FnMut(Left),
    ) -> (Verdict, KeyHandle, u8) {
        let blocked = self.blocked(key, now);
        let fits = |(limit, windows): &(Limit, KeyedWindows)| {
            let count = count.unwrap_or(limit.count);
            windows.count(key, count, cost, Charges::Nothing, now).0
        };
        // A single limit is checked and charged in one step.
        let is_one = self.limits.len() == 1;
        if blocked.is_some()
            || !(is_one || charges == Charges::Nothing || self.limits.iter().all(fits))
        {
            charges = Charges::Nothing;
        }
        let (mut refuses, mut wait) = (None, Some(Duration::ZERO));
        let (mut first, mut shared) = (KeyHandle::of(key), 0);
        for (index, (limit, windows)) in self.limits.iter().enumerate() {
            let count = count.unwrap_or(limit.count);
            let (fits, standing, place) = windows.count(key, count, cost, charges, now);
            shared |= u8::from(place.is_shared()) << index;
            if index == 0 {
                first = place;
            }
            if !fits {
                refuses = refuses.or(Some(index));
                // A refused request of cost 1 waits until quota comes back.
                let own = if cost == 1 && count.whole() > 0 {
                    Some(standing.reset)
                } else {
                    windows.wait(key, count, cost, now)
                };
                wait = wait.zip(own).map(|(wait, own)| wait.max(own));
            }
            report(Left {
                index,
                count,
                remaining: standing.remaining,
                reset: standing.reset,
                steady_until: if self.is_blocked.get() {
                    None
                } else {
                    windows.steady_until(place)
                },
            });
        }
        let verdict = match (blocked, refuses) {
            (None, None) => Verdict::Pass,
            (None, index) => Verdict::Block {
                index,
                retry_after: wait,
            },
            (retry_after, _) => Verdict::Block {
                index: None,
                retry_after,
            },
        };
        (verdict, first, shared)
    }

    /// Charges what a shell has let pass of `key` without asking. Until [`Left::steady_until`] it came in the same bucket as the
    /// last call for the key, and is charged there; nothing is if that has left since, and its window was reused. What may have come later is
    /// charged at `late`, over the limit if need be.
    #[inline(never)]
    pub fn catch_up(&self, key: Key, cost: u64, late: Option<Timestamp>) {
        for (_, windows) in &self.limits {
            match late {
                None => windows.catch_up(key, cost),
                Some(now) => windows.settle_at(KeyHandle::of(key), 0, cost, now),
            }
        }
    }

    /// Gives back the `cost` that `key` was charged at `charged` ([`KeyedWindows::refund`]).
    #[inline(never)]
    pub fn refund(&self, key: Key, cost: u64, charged: Timestamp, now: Timestamp) {
        for (_, windows) in &self.limits {
            windows.refund(key, cost, charged, now);
        }
    }

    /// Empties the windows of `key` ([`KeyedWindows::reset`]), and ends its block. What its requests hold stays until it is settled.
    #[inline(never)]
    pub fn reset(&self, key: Key) {
        if let Some(blocks) = &mut *self.blocks.borrow_mut() {
            blocks.unblock(key);
        }
        for (_, windows) in &self.limits {
            windows.reset(key);
        }
    }

    /// Refuses all requests of `key` for this long from now; zero ends a block. Returns whether it is blocked: there may be as
    /// many blocked keys as there is room for keys. If the clock steps back, a key is blocked for at most the longest block's
    /// length.
    #[inline(never)]
    pub fn block(&self, key: Key, length: Duration, now: Timestamp) -> bool {
        let blocks = self.blocks();
        blocks.is_some_and(|mut blocks| blocks.block(key, length, now))
    }

    /// Counts all windows as used up now: for a caller that has lost their counts.
    #[inline(never)]
    pub fn close(&self, now: Timestamp) {
        let longest = |(limit, _): &(Limit, KeyedWindows)| {
            let window = limit.window.window();
            window.interval() + window.bucket_length()
        };
        let longest = self.limits.iter().map(longest).max().unwrap_or_default();
        if let Some(mut blocks) = self.blocks() {
            blocks.block_all(longest, now);
        }
    }

    /// The blocks, made if there were none.
    #[inline(never)]
    fn blocks(&self) -> Option<RefMut<'_, Blocks>> {
        let (limit, _) = self.limits.first()?;
        self.is_blocked.set(true);
        let blocks = RefMut::map(self.blocks.borrow_mut(), |blocks| {
            if blocks.is_none() {
                *blocks = Some(Blocks::new(geometry(limit, self.max_keys)));
            }
            blocks
        });
        RefMut::filter_map(blocks, Option::as_mut).ok()
    }

    /// How many keys have a window, in the limit with the most.
    pub fn len(&self) -> usize {
        self.fill().0
    }

    /// How many keys have a window, and how many requests have been charged to shared windows ([`KeyedWindows::shared`]): each
    /// in the limit with the most.
    #[inline(never)]
    pub fn fill(&self) -> (usize, u64) {
        let mut most = (0, 0);
        for (_, windows) in &self.limits {
            let (keys, shared) = windows.fill();
            most = (keys.max(most.0), shared.max(most.1));
        }
        most
    }

    /// Whether no key has a window.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How long `key` stays blocked, whatever its windows count.
    #[inline]
    fn blocked(&self, key: Key, now: Timestamp) -> Option<Duration> {
        if self.is_blocked.get() {
            self.blocked_for(key, now)
        } else {
            None
        }
    }

    #[cold]
    fn blocked_for(&self, key: Key, now: Timestamp) -> Option<Duration> {
        let blocks = &mut *self.blocks.borrow_mut();
        let blocks = blocks.as_mut()?;
        let left = blocks.left(key, now);
        self.is_blocked.set(!blocks.are_over(now));
        (!left.is_zero()).then_some(left)
    }
}

fn geometry(limit: &Limit, max_keys: usize) -> KeyedGeometry {
    let grade = Grade::Qps {
        window: limit.window,
        counting: limit.counting,
    };
    KeyedGeometry::new(grade, max_keys)
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids = self.limits.iter().map(|(limit, _)| limit.id.as_str());
        f.debug_list().entries(ids).finish()
    }
}
