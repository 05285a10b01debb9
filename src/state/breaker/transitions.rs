//! The three states of a breaker, and the transitions between them.

use crate::rule::degrade::DegradeRule;
use crate::snapshots::serial_since;
use crate::state::history::RunningCount;
use crate::time::Timestamp;

/// Two running counts of completed calls. They wrap around after 2^64.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CallCounts {
    /// All of them.
    pub total: u64,
    /// The calls that count against the resource: the slow ones, or the failed ones.
    pub bad: u64,
}

impl CallCounts {
    /// These counts and one more call.
    #[must_use]
    pub fn plus_one(self, bad: bool) -> CallCounts {
        CallCounts {
            total: self.total.wrapping_add(1),
            bad: self.bad.wrapping_add(bad.into()),
        }
    }

    /// The calls after `earlier`; none if that is later.
    pub(crate) fn since(self, earlier: CallCounts) -> CallCounts {
        CallCounts {
            total: serial_since(self.total, earlier.total).unwrap_or(0),
            bad: serial_since(self.bad, earlier.bad).unwrap_or(0),
        }
    }

    /// The later of the two.
    pub(crate) fn later(self, other: CallCounts) -> CallCounts {
        let later = |a: u64, b: u64| if a.is_behind(b) { b } else { a };
        CallCounts {
            total: later(self.total, other.total),
            bad: later(self.bad, other.bad),
        }
    }
}

impl RunningCount for CallCounts {
    fn is_behind(self, other: CallCounts) -> bool {
        self.later(other) != self
    }
}

/// Whether a breaker lets calls through.
///
/// Sentinel: `CircuitBreaker.State`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// All of them.
    Closed,
    /// None.
    Open {
        /// When it lets the first probe through.
        retry_at: Timestamp,
    },
    /// Probes only.
    HalfOpen {
        /// How many probes are out and may still decide.
        out: u8,
        /// How many probes have succeeded.
        succeeded: u8,
        /// When the probes that are out may be replaced: [`DegradeRule::time_window_ms`] after the last of them was let
        /// through.
        expires_at: Timestamp,
    },
}

/// All that a breaker remembers besides its window: small and plain, so that several virtual machines can keep one together,
/// by compare-and-swap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct State {
    phase: Phase,
    /// Distinguishes the probes that may still decide from earlier ones. Wraps around after 2^32.
    round: u32,
    /// The counts when the breaker last closed: what came before them is forgotten.
    since: CallCounts,
}

/// How a breaker let a call in. It is returned once: [`Breaker::complete`](crate::backend::Breaker::complete), or
/// [`Breaker::give_back`](crate::backend::Breaker::give_back).
#[must_use]
#[derive(PartialEq, Eq, Debug)]
pub enum Admission {
    /// As one of many.
    Normal,
    /// As a probe: its own completion decides.
    Probe(Ticket),
}

/// The round of a probe: probes of an earlier half-open time, and expired ones, decide nothing.
#[derive(PartialEq, Eq, Debug)]
pub struct Ticket {
    pub(super) round: u32,
    /// The state before the probe was let through, and after.
    pub(super) step: Box<(State, State)>,
}

impl Admission {
    pub(super) fn is_probe_of(&self, round: u32) -> bool {
        matches!(self, Admission::Probe(ticket) if ticket.round == round)
    }
}

/// What happens to a breaker.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// A request comes.
    Asked,
    /// A call that decides nothing while half-open has completed; `trips`: the window is over the threshold.
    Completed { trips: bool },
    /// A probe has succeeded; the counts include it.
    Succeeded { counts: CallCounts },
    /// A probe has failed.
    Failed,
    /// A probe was given back without an outcome.
    GivenBack,
}

impl State {
    /// Closed, counting what comes after `since`.
    pub const fn new(since: CallCounts) -> State {
        State {
            phase: Phase::Closed,
            round: 0,
            since,
        }
    }

    /// Whether calls are let through.
    pub const fn phase(&self) -> Phase {
        self.phase
    }

    /// The counts when the breaker last closed.
    pub const fn since(&self) -> CallCounts {
        self.since
    }

    pub(crate) const fn round(&self) -> u32 {
        self.round
    }

    /// The state as four words.
    pub const fn pack(self) -> [u64; 4] {
        let (tag, out, succeeded, instant) = match self.phase {
            Phase::Closed => (0, 0, 0, Timestamp::ZERO),
            Phase::Open { retry_at } => (1, 0, 0, retry_at),
            Phase::HalfOpen {
                out,
                succeeded,
                expires_at,
            } => (2, out, succeeded, expires_at),
        };
        let head = tag | (out as u64) << 8 | (succeeded as u64) << 16 | (self.round as u64) << 32;
        [head, instant.as_nanos(), self.since.total, self.since.bad]
    }

    /// The state packed into these words; `None` if they are not a state.
    pub const fn unpack([head, instant, total, bad]: [u64; 4]) -> Option<State> {
        let instant = Timestamp::from_nanos(instant);
        let phase = match head & 0xff {
            0 => Phase::Closed,
            1 => Phase::Open { retry_at: instant },
            2 => Phase::HalfOpen {
                out: (head >> 8) as u8,
                succeeded: (head >> 16) as u8,
                expires_at: instant,
            },
            _ => return None,
        };
        Some(State {
            phase,
            round: (head >> 32) as u32,
            since: CallCounts { total, bad },
        })
    }

    /// This state under a clock that may have stepped back: no instant lies further ahead than the rule could have set it.
    pub(crate) fn pulled_back(self, rule: &DegradeRule, now: Timestamp) -> State {
        let furthest = now.plus_nanos(rule.time_window_nanos());
        let phase = match self.phase {
            Phase::Closed => Phase::Closed,
            Phase::Open { retry_at } => Phase::Open {
                retry_at: retry_at.min(furthest),
            },
            Phase::HalfOpen {
                out,
                succeeded,
                expires_at,
            } => Phase::HalfOpen {
                out,
                succeeded,
                expires_at: expires_at.min(furthest),
            },
        };
        State { phase, ..self }
    }

    /// Whether the completion of a call with this admission decides about a half-open breaker.
    pub(crate) fn is_decided_by(&self, admission: &Admission, rule: &DegradeRule) -> bool {
        let half_open = matches!(self.phase, Phase::HalfOpen { .. });
        half_open && (rule.is_sentinel() || admission.is_probe_of(self.round))
    }

    /// The transition table: the state after `event`; `None` if nothing changes. A request that changes the state of a breaker
    /// that is not closed is let through, as a probe.
    ///
    /// The table is quoted in the documentation of [`Breaker`](crate::backend::Breaker).
    pub(crate) fn next(self, event: Event, rule: &DegradeRule, now: Timestamp) -> Option<State> {
        let later = now.plus_nanos(rule.time_window_nanos());
        let open = |retry_at| Some(self.anew(Phase::Open { retry_at }));
        match (self.phase, event) {
            (Phase::Closed, Event::Completed { trips: true }) => open(later),

            (Phase::Open { retry_at }, Event::Asked) if now >= retry_at => {
                // Sentinel's probe never expires, and leaves the retry time where it was.
                let expires_at = if rule.is_sentinel() { retry_at } else { later };
                let (out, succeeded) = (1, 0);
                Some(self.anew(Phase::HalfOpen {
                    out,
                    succeeded,
                    expires_at,
                }))
            }

            (
                Phase::HalfOpen {
                    out,
                    succeeded,
                    expires_at,
                },
                event,
            ) => {
                let half_open = |out, succeeded, expires_at| Phase::HalfOpen {
                    out,
                    succeeded,
                    expires_at,
                };
                match event {
                    Event::Asked if rule.is_sentinel() => None,
                    Event::Asked if out == 0 || out.saturating_add(succeeded) < rule.probes() => {
                        Some(self.with(half_open(out.saturating_add(1), succeeded, later)))
                    }
                    Event::Asked if now >= expires_at => {
                        Some(self.anew(half_open(1, succeeded, later)))
                    }
                    Event::Failed => open(later),
                    Event::Succeeded { counts } if succeeded.saturating_add(1) >= rule.probes() => {
                        Some(State {
                            since: counts,
                            ..self.anew(Phase::Closed)
                        })
                    }
                    Event::Succeeded { .. } => Some(self.with(half_open(
                        out.saturating_sub(1),
                        succeeded.saturating_add(1),
                        expires_at,
                    ))),
                    Event::GivenBack if rule.is_sentinel() => open(expires_at),
                    Event::GivenBack if out <= 1 && succeeded == 0 => open(later),
                    Event::GivenBack => {
                        Some(self.with(half_open(out.saturating_sub(1), succeeded, expires_at)))
                    }
                    Event::Asked | Event::Completed { .. } => None,
                }
            }

            (Phase::Closed | Phase::Open { .. }, _) => None,
        }
    }

    fn with(self, phase: Phase) -> State {
        State { phase, ..self }
    }

    /// The state in that phase, with no probe out from before.
    fn anew(self, phase: Phase) -> State {
        State {
            phase,
            round: self.round.wrapping_add(1),
            ..self
        }
    }
}
