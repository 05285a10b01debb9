//! The circuit breaker: three states, one transition table, and a sliding window of what completed.

mod storage;
mod transitions;

pub use storage::{BreakerStorage, LocalBreaker};
pub use transitions::{Admission, CallCounts, Phase, State, Ticket};

use crate::rule::degrade::{BreakerGeometry, DegradeRule};
use crate::snapshots::Snapshots;
use crate::state::history::History;
use crate::time::Timestamp;
use std::cell::Cell;
use std::fmt;
use std::time::Duration;
use transitions::Event;

/// How often a compare-and-swap of the state is tried. A try fails only if another worker's change succeeded: only 16 such
/// changes in one moment use up all tries.
const TRIES: u32 = 16;

/// The refusal of a breaker that is not closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refused {
    /// How long until the breaker would let a request through, as a probe, if nothing else happened.
    pub retry_after: Duration,
}

/// The state of a degrade rule on one resource.
///
/// # Transitions
///
/// | State | What happens | Next |
/// |---|---|---|
/// | closed | a call completes, and the window is over the threshold | open, to be retried one `timeWindow` from now |
/// | open | a request comes, at the retry time or later | half-open; the request is let through, the first probe |
/// | half-open | a request comes; none is out, or fewer than `probes` are out or have succeeded | half-open; it is let through, a probe |
/// | half-open | a request comes, one `timeWindow` or more after the last probe was let through | half-open; it is let through, a probe; earlier probes that are still out decide nothing any more |
/// | half-open | a probe fails (or is slow) | open, to be retried one `timeWindow` from now |
/// | half-open | a probe succeeds, the last that was needed | closed; all completions until now are forgotten |
/// | half-open | a probe succeeds, and more are needed | half-open |
/// | half-open | a probe is given back; no other is out or has succeeded | open, to be retried one `timeWindow` from now |
/// | half-open | a probe is given back; others are out or have succeeded | half-open; another request may take its place |
/// | any | anything else | the same; a request is let through if the state is closed, else refused |
///
/// Every completion is counted, whatever the state. If the rule decides as Sentinel does, there is one probe; it never expires;
/// any call that completes while half-open decides as if it were the probe; and a probe that is given back leaves the retry
/// time as it was.
///
/// # The window
///
/// Completions are counted in the current bucket and the n before it: at least the interval, so that calls completed within any
/// one interval are always seen together, and at most one bucket more. (A breaker's window guards a threshold from above, as a
/// strict flow rule's does: the other choice, n buckets, would miss failures on both sides of an edge.)
///
/// # Deciding
///
/// In three steps, like a flow rule's [`Controller`](crate::backend::Controller), so that several rules decide together:
/// [`Breaker::advance`] and [`Breaker::check`], which reserves nothing; [`Breaker::reserve`], which may take a probe; then,
/// once, [`Breaker::complete`] when the call has ended or [`Breaker::give_back`] if it did not take place. The rule is an
/// argument, so that it can change while the state goes on.
///
/// A rule in shadow mode is checked likewise. Calls that it would have refused are not recorded.
///
/// ```
/// use leapgate::Timestamp;
/// use leapgate::backend::{Breaker, Phase};
/// use leapgate::rule::{DegradeGrade, DegradeRule};
///
/// let at = Timestamp::from_millis;
/// let rule = DegradeRule::new("pay", DegradeGrade::error_ratio(0.5)?, 10_000)?.needing(2)?;
/// let breaker = Breaker::new(rule.geometry());
/// for now in [0, 10] {
///     let admission = breaker.reserve(&rule, at(now)).unwrap();
///     breaker.complete(admission, &rule, 3, true, at(now + 3));
/// }
/// assert_eq!(breaker.phase(), Phase::Open { retry_at: at(10_013) });
/// assert_eq!(breaker.check(&rule, at(20)).unwrap_err().retry_after.as_millis(), 9_993);
///
/// let probe = breaker.reserve(&rule, at(10_013)).unwrap();
/// assert!(breaker.reserve(&rule, at(10_014)).is_none());
/// breaker.complete(probe, &rule, 3, false, at(10_016));
/// assert_eq!(breaker.phase(), Phase::Closed);
/// # Ok::<(), leapgate::rule::RuleError>(())
/// ```
///
/// Sentinel: `CircuitBreaker`, `AbstractCircuitBreaker`, `ExceptionCircuitBreaker`, `ResponseTimeCircuitBreaker`.
#[doc(alias = "CircuitBreaker")]
#[doc(alias = "ExceptionCircuitBreaker")]
#[doc(alias = "ResponseTimeCircuitBreaker")]
pub struct Breaker<S = LocalBreaker> {
    geometry: BreakerGeometry,
    /// The latest known counts, and their past.
    history: History<CallCounts>,
    /// When [`Breaker::is_idle`] was first called.
    watched_since: Cell<Option<Timestamp>>,
    storage: S,
}

impl Breaker {
    /// A closed breaker that is not shared.
    pub fn new(geometry: BreakerGeometry) -> Breaker {
        Breaker::with_storage(geometry, LocalBreaker::default())
    }
}

impl<S: BreakerStorage> Breaker<S> {
    /// A breaker over the state and counts in `storage`. Earlier counts are in its window only if another breaker has published
    /// them.
    pub fn with_storage(geometry: BreakerGeometry, storage: S) -> Breaker<S> {
        let counts = storage.counts();
        let breaker = Breaker {
            geometry,
            history: History::new(geometry.window(), counts, counts),
            watched_since: Cell::new(None),
            storage,
        };
        if let Some(kept) = breaker.storage.published() {
            breaker.history.restore(kept.newest);
            breaker.take_up(&kept);
        }
        breaker
    }

    /// What the state belongs to.
    pub fn geometry(&self) -> BreakerGeometry {
        self.geometry
    }

    /// Where the state is kept.
    pub fn storage(&self) -> &S {
        &self.storage
    }

    /// The state.
    #[inline]
    pub fn state(&self) -> State {
        self.storage.load()
    }

    /// Whether calls are let through.
    #[doc(alias = "currentState")]
    #[inline]
    pub fn phase(&self) -> Phase {
        self.state().phase()
    }

    /// The counts in the window at `now`, as of the last reading. Changes nothing.
    pub fn counts(&self, now: Timestamp) -> CallCounts {
        let now = self.history.reading_time(now);
        let start = self.history.window().start(now);
        let before = self.history.before(start, self.geometry.buckets_before());
        self.counts_since(self.state(), before)
    }

    /// The counts in a window before whose oldest bucket there were so many.
    #[inline]
    fn counts_since(&self, state: State, before: CallCounts) -> CallCounts {
        self.history.last.get().since(before.later(state.since()))
    }

    /// Whether the counts in that window open a closed breaker.
    #[inline]
    fn trips(&self, state: State, before: CallCounts, rule: &DegradeRule) -> bool {
        let counts = self.counts_since(state, before);
        rule.is_tripped_by(counts.total, counts.bad)
    }

    /// Whether it is closed, and has counted nothing in the window at `now`. Other workers' counts since the last reading
    /// count, and their counts from before this breaker was made may: so it is never idle within one window of the first call.
    pub(crate) fn is_idle(&self, now: Timestamp) -> bool {
        self.storage.reload();
        let since = self.watched_since.get().unwrap_or(now);
        self.watched_since.set(Some(since));
        let window = self.geometry.window();
        let seen = now.as_nanos().saturating_sub(since.as_nanos());
        seen > window
            .interval_nanos()
            .saturating_add(window.bucket_nanos())
            && self.phase() == Phase::Closed
            && self.storage.counts() == self.history.last.get()
            && self.counts(now) == CallCounts::default()
    }

    /// Reads the shared state and counts. To be called now and then, before the clock is read for [`Breaker::move_to`]: later
    /// counts of other workers are dated as late as the next call here.
    #[inline]
    pub fn observe(&self) {
        self.storage.reload();
        self.history.seen.set(Some(self.storage.counts()));
    }

    /// Brings window and instants up to `now`.
    #[inline]
    pub fn advance(&self, rule: &DegradeRule, now: Timestamp) {
        self.move_to(now);
        let state = self.storage.load();
        if state.phase() == Phase::Closed {
            return; // it has no instants
        }
        // If another worker changes the state at the same time, that worker's instants hold.
        let pulled_back = state.pulled_back(rule, now);
        if pulled_back != state {
            self.storage.replace(state, pulled_back);
        }
    }

    /// Reads the shared state, but not the counts. To be called before a request is decided on.
    #[inline]
    pub fn reload(&self) {
        self.storage.in_use();
        self.storage.reload();
    }

    /// Brings the ring up to `now` and files what was observed before.
    #[inline]
    pub fn move_to(&self, now: Timestamp) {
        if !self.history.is_current(now) {
            self.begin_bucket(now);
        }
        if let Some(seen) = self.history.seen.get() {
            self.history.seen.set(None);
            self.history.last.set(seen);
        }
    }

    #[cold]
    #[inline(never)]
    fn begin_bucket(&self, now: Timestamp) {
        self.history.move_to(now);
        if let Some(kept) = self.storage.published() {
            self.take_up(&kept);
        }
    }

    /// Takes over what another breaker over the same counts has published, and keeps all that was known here.
    fn take_up(&self, kept: &Snapshots) {
        self.history.take_up(|start, window| {
            Some(CallCounts {
                total: kept.at(0, start, window)?,
                bad: kept.at(1, start, window)?,
            })
        });
    }

    /// All that another breaker over the same counts needs to continue this one: total calls, then bad ones. `None` before the
    /// first bucket.
    pub fn snapshots(&self) -> Option<Snapshots> {
        self.history
            .snapshots(&[|counts| counts.total, |counts| counts.bad])
    }

    /// The running counts, as far as this breaker knows them.
    pub fn counted(&self) -> CallCounts {
        self.history.last.get()
    }

    /// Whether a request would be let through. Reserves nothing.
    #[inline]
    pub fn check(&self, rule: &DegradeRule, now: Timestamp) -> Result<(), Refused> {
        let state = self.storage.load();
        if state.phase() == Phase::Closed {
            return Ok(());
        }
        let state = state.pulled_back(rule, now);
        if state.next(Event::Asked, rule, now).is_some() {
            return Ok(());
        }
        Err(Refused {
            retry_after: match state.phase() {
                Phase::Closed => Duration::ZERO,
                Phase::Open { retry_at } => retry_at.since(now),
                // The probe may come back at any moment.
                Phase::HalfOpen { .. } if rule.is_sentinel() => Duration::from_millis(1),
                Phase::HalfOpen { expires_at, .. } => expires_at.since(now),
            },
        })
    }

    /// Lets a request through, as a probe if need be; `None` if it is refused.
    ///
    /// Sentinel: `AbstractCircuitBreaker.tryPass`.
    #[doc(alias = "tryPass")]
    #[inline]
    pub fn reserve(&self, rule: &DegradeRule, now: Timestamp) -> Option<Admission> {
        for _ in 0..TRIES {
            let state = self.storage.load();
            if state.phase() == Phase::Closed {
                return Some(Admission::Normal);
            }
            let next = state.pulled_back(rule, now).next(Event::Asked, rule, now)?;
            if self.storage.replace(state, next) {
                return Some(Admission::Probe(Ticket {
                    round: next.round(),
                    step: Box::new((state, next)),
                }));
            }
        }
        None
    }

    /// Undoes an admission, because another rule refuses the request. If the breaker has not changed since, its state is
    /// restored; else the admission is given back.
    pub fn undo(&self, admission: Admission, rule: &DegradeRule, now: Timestamp) {
        if let Admission::Probe(ticket) = &admission {
            let (before, after) = *ticket.step;
            if self.storage.replace(after, before) {
                return;
            }
        }
        self.give_back(admission, rule, now);
    }

    /// Takes back an admission whose call did not take place: another rule refused it, or it ended without an outcome.
    pub fn give_back(&self, admission: Admission, rule: &DegradeRule, now: Timestamp) {
        if let Admission::Probe(_) = &admission {
            self.storage.reload();
            self.change(|state| {
                let event = admission
                    .is_probe_of(state.round())
                    .then_some(Event::GivenBack)?;
                state.next(event, rule, now)
            });
        }
    }

    /// Records that a call has completed after `rt_ms` milliseconds, and decides what follows.
    ///
    /// Sentinel: `CircuitBreaker.onRequestComplete`.
    #[doc(alias = "onRequestComplete")]
    pub fn complete(
        &self,
        admission: Admission,
        rule: &DegradeRule,
        rt_ms: u64,
        failed: bool,
        now: Timestamp,
    ) {
        self.move_to(now);
        let bad = rule.is_bad(rt_ms, failed);
        let counts = self.storage.add(bad);
        self.history.last.set(counts);
        // The clock has been moved to the newest bucket.
        let before = || {
            self.history
                .before_bucket(self.geometry.buckets_before(), 0)
        };
        // Most calls complete while it is closed, and change nothing.
        let state = self.state();
        if admission == Admission::Normal
            && state.phase() == Phase::Closed
            && !self.trips(state, before(), rule)
        {
            return;
        }
        if let Admission::Probe(_) = &admission {
            self.storage.reload(); // no other call can decide in its place
        }
        self.change(|state| {
            let event = match state.is_decided_by(&admission, rule) {
                true if bad => Event::Failed,
                true => Event::Succeeded { counts },
                false => Event::Completed {
                    trips: state.phase() == Phase::Closed && self.trips(state, before(), rule),
                },
            };
            state.next(event, rule, now)
        });
    }

    /// Replaces the state by the result of `next`, if there is one.
    #[inline]
    fn change(&self, next: impl Fn(State) -> Option<State>) {
        for _ in 0..TRIES {
            let state = self.storage.load();
            match next(state) {
                Some(next) if !self.storage.replace(state, next) => {}
                _ => return,
            }
        }
    }
}

impl<S: BreakerStorage> fmt::Debug for Breaker<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?}, {:?} counted, window of {} x {:?}",
            self.state(),
            self.history.last.get(),
            self.geometry.window().sample_count(),
            self.geometry.window().bucket_length()
        )
    }
}
