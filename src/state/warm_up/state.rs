//! Warming up: a rule with little recent use admits a part of its count, and more the more it is used.
//!
//! ```text
//!   rate
//!   count   |------------.                     coldness 0: in full use
//!           |             '.                            w: the rate begins to fall here
//!           |               '-.                         1: not used for long
//!   count/c |                  '---
//!           +------------|---------|
//!           0            w         1  coldness
//! ```
//!
//! The curve is Guava's `SmoothWarmingUp`, as in Sentinel's `WarmUpController`: with a period of `P` intervals and a cold
//! factor of `c`, `P * count / (c - 1)` tokens lie below `w` and `2 * P * count / (1 + c)` above it; each pass takes a token,
//! and time brings `count` of them an interval. Here tokens are a fraction of their maximum, so that the state goes on when the
//! count or the period changes.
//!
//! Workers that share the counts share the tokens: the first worker with a request in a bucket (with `compat`: in a second)
//! publishes their number, and the others continue from it. So a worker that was idle neither counts tokens as used that no
//! request has used, nor stays warm while the others are cold.
//!
//! Time brings tokens only if no request was held back for an interval, and above `w` only while less passes than a cold rule
//! admits: else the rule would never get warm. (Sentinel looks only at the passes, which in full use can be fewer than
//! allowed.)

use crate::compat::AsSentinel;
use crate::rule::{Count, WarmUp};
use crate::snapshots::serial_since;
use crate::state::counter::Counter;
use crate::state::terms::Terms;
use crate::state::window::RuleWindow;
use crate::time::Timestamp;
use std::cell::Cell;

/// How cold a rule is.
pub(super) enum WarmUpState {
    Exact(Coldness),
    Sentinel(AsSentinel, Tokens),
}

impl WarmUpState {
    pub(super) fn new(compat: bool) -> WarmUpState {
        match AsSentinel::of(compat) {
            Some(compat) => WarmUpState::Sentinel(compat, Tokens::default()),
            None => WarmUpState::Exact(Coldness::default()),
        }
    }

    /// Whether tokens are counted as in Sentinel.
    pub(super) fn is_sentinel(&self) -> bool {
        matches!(self, WarmUpState::Sentinel(..))
    }

    /// To be called after the window has been advanced to `now`.
    pub(super) fn advance<T: Counter>(&self, window: &RuleWindow<T>, now: Timestamp) {
        if let WarmUpState::Sentinel(_, tokens) = self {
            tokens.roll(window.admitted(), now);
        }
    }

    /// Records that the rule holds a request back.
    pub(super) fn note_held_back(&self, now: Timestamp) {
        if let WarmUpState::Exact(coldness) = self {
            coldness.held_back.set(Some(now));
        }
    }

    /// How much passes in an interval at `now`.
    #[inline]
    pub(super) fn rate<T: Counter>(
        &self,
        terms: &Terms,
        window: &RuleWindow<T>,
        now: Timestamp,
    ) -> f64 {
        match self {
            WarmUpState::Exact(coldness) => {
                coldness.sync(terms, window, now);
                rate_at(terms, coldness.coldness.get())
            }
            WarmUpState::Sentinel(_, tokens) => {
                tokens.sync(terms, window.counter(), window.admitted(), now);
                Curve::new(terms).rate(tokens.tokens.get())
            }
        }
    }

    /// How much will pass in an interval at `at`, if no request comes until then.
    pub(super) fn rate_then<T: Counter>(
        &self,
        terms: &Terms,
        window: &RuleWindow<T>,
        at: Timestamp,
    ) -> f64 {
        match self {
            WarmUpState::Exact(coldness) => rate_at(terms, coldness.at(terms, window, at)),
            WarmUpState::Sentinel(_, tokens) => {
                Curve::new(terms).rate(tokens.at(terms, window.admitted(), at))
            }
        }
    }

    /// How much can pass in an interval at most, if no request comes from now on.
    pub(super) fn fastest_then<T: Counter>(&self, terms: &Terms, window: &RuleWindow<T>) -> f64 {
        match self {
            WarmUpState::Exact(coldness) => rate_at(terms, coldness.least(terms, window)),
            WarmUpState::Sentinel(..) => terms.count.get(),
        }
    }

    /// How much the window may hold, a request of that cost included, at `rate`.
    pub(super) fn limit<T: Counter>(
        &self,
        terms: &Terms,
        window: &RuleWindow<T>,
        rate: f64,
        cost: u64,
        now: Timestamp,
    ) -> Option<Count> {
        match self {
            WarmUpState::Sentinel(..) if rate.is_nan() => None,
            WarmUpState::Sentinel(..) => Some(Count::nearest(rate)),
            // A request into an empty window passes, whatever part of the count it costs: else the rule would stay cold for
            // ever.
            WarmUpState::Exact(_)
                if cost as f64 > rate
                    && cost as f64 <= terms.count.get()
                    && window.has_room(Count::nearest(0.0), 0, now) =>
            {
                Some(Count::nearest(cost as f64))
            }
            WarmUpState::Exact(_) if cost == 0 => Some(terms.count),
            WarmUpState::Exact(_) => Some(Count::nearest(rate)),
        }
    }

    /// Whether a request of that cost fits into a window that holds `sum`, at `rate`.
    pub(super) fn fits(&self, terms: &Terms, rate: f64, sum: f64, cost: u64) -> bool {
        let cost = cost as f64;
        sum + cost <= rate
            || matches!(self, WarmUpState::Exact(_)) && sum == 0.0 && cost <= terms.count.get()
    }
}

/// Where the rate begins to fall, as a fraction of all tokens.
fn warning(warm_up: WarmUp) -> f64 {
    let c = f64::from(warm_up.cold_factor());
    (c + 1.0) / (3.0 * c - 1.0)
}

/// How many nanoseconds without a request it takes a rule in full use to get cold.
fn nanos_to_cold(warm_up: WarmUp) -> f64 {
    let c = f64::from(warm_up.cold_factor());
    f64::from(warm_up.period_sec()) * 1e9 * (3.0 * c - 1.0) / ((c - 1.0) * (c + 1.0))
}

/// How much passes in an interval.
fn rate_at(terms: &Terms, coldness: f64) -> f64 {
    let warning = warning(terms.warm_up);
    let above = ((coldness - warning) / (1.0 - warning)).max(0.0);
    terms.count.get() / (1.0 + (f64::from(terms.warm_up.cold_factor()) - 1.0) * above)
}

/// The tokens as a fraction of their maximum: 0 in full use, 1 when not used for long.
pub(super) struct Coldness {
    /// From 0 to 1; it begins with 1, whatever the time.
    coldness: Cell<f64>,
    /// The time of the latest sync, and `admitted` then.
    synced: Cell<Option<(Timestamp, u64)>>,
    /// When the rule last held a request back.
    held_back: Cell<Option<Timestamp>>,
}

impl Default for Coldness {
    fn default() -> Coldness {
        Coldness {
            coldness: Cell::new(1.0),
            synced: Cell::new(None),
            held_back: Cell::new(None),
        }
    }
}

impl Coldness {
    /// Once in a bucket. A clock that has stepped back starts again from there.
    fn sync<T: Counter>(&self, terms: &Terms, window: &RuleWindow<T>, now: Timestamp) {
        let start = window.window().start(now);
        let is_synced = || self.synced.get().is_some_and(|(then, _)| then == start);
        if is_synced() {
            return;
        }
        self.listen(window.counter(), start);
        if !is_synced() {
            self.coldness.set(self.at(terms, window, now));
            self.synced.set(Some((start, window.admitted())));
            self.publish(window.counter());
        }
    }

    /// Takes over what another worker has published, if it is later, but not later than the bucket starting at `start`.
    fn listen(&self, counter: &impl Counter, start: Timestamp) {
        let Some([coldness, then, admitted, held_back]) = counter.warm_up() else {
            return;
        };
        let then = Timestamp::from_nanos(then);
        let held_back = (held_back > 0).then(|| Timestamp::from_nanos(held_back));
        let is_later = self.synced.get().is_none_or(|(own, _)| own < then);
        let coldness = f64::from_bits(coldness);
        if !is_later || then > start || !(0.0..=1.0).contains(&coldness) {
            return;
        }
        self.coldness.set(coldness);
        self.synced.set(Some((then, admitted)));
        if self.held_back.get() > held_back {
            self.publish(counter); // the other workers do not know yet that a request was held back
        } else {
            self.held_back.set(held_back);
        }
    }

    fn publish(&self, counter: &impl Counter) {
        let nanos = |at: Timestamp| at.as_nanos();
        if let Some((then, admitted)) = self.synced.get() {
            let held_back = self.held_back.get().map_or(0, nanos);
            counter.publish_warm_up([
                self.coldness.get().to_bits(),
                nanos(then),
                admitted,
                held_back,
            ]);
        }
    }

    /// The coldness left by the passes since the latest sync: `admitted` now, less `before`. Another worker may have counted
    /// more before than this one knows.
    fn left(&self, terms: &Terms, admitted: u64, before: u64) -> f64 {
        let passes = serial_since(admitted, before).unwrap_or(0);
        // With a count of zero nothing passes.
        let count = terms.count.get().max(f64::MIN_POSITIVE);
        let used = passes as f64 * terms.interval as f64 / count;
        (self.coldness.get() - used / nanos_to_cold(terms.warm_up)).max(0.0)
    }

    /// The least coldness that is possible, if no request comes from now on.
    fn least<T: Counter>(&self, terms: &Terms, window: &RuleWindow<T>) -> f64 {
        match self.synced.get() {
            None => self.coldness.get(),
            Some((_, admitted)) => self.left(terms, window.admitted(), admitted),
        }
    }

    /// The coldness at `at`, if no request comes until then.
    fn at<T: Counter>(&self, terms: &Terms, window: &RuleWindow<T>, at: Timestamp) -> f64 {
        let coldness = self.coldness.get();
        let start = window.window().start(at);
        let Some((then, admitted)) = self.synced.get().filter(|(then, _)| *then != start) else {
            return coldness;
        };
        let nanos_to_cold = nanos_to_cold(terms.warm_up);
        let left = self.left(terms, window.admitted(), admitted);
        let held_back = self.held_back.get();
        let since_then = held_back.map(|then| at.as_nanos().abs_diff(then.as_nanos()));
        let most = if since_then.is_some_and(|since| since < terms.interval) {
            left
        } else if window.sum(at) < terms.slowest.floor().max(1.0) {
            1.0
        } else {
            left.max(warning(terms.warm_up))
        };
        let elapsed = start.as_nanos().saturating_sub(then.as_nanos()) as f64;
        (left + elapsed / nanos_to_cold).min(most)
    }
}

/// Sentinel's tokens, and the passes of the second before the current one.
///
/// Sentinel: `WarmUpController`, whose `int`s and `long`s these are.
#[derive(Default)]
pub(super) struct Tokens {
    tokens: Cell<i64>,
    /// The maximum when they were counted.
    max: Cell<i64>,
    /// The second in which they were counted.
    filled: Cell<Option<u64>>,
    second: Cell<Option<Second>>,
}

/// A second of the clock.
#[derive(Clone, Copy)]
struct Second {
    number: u64,
    /// `admitted` when the second began.
    before: u64,
    /// Admissions in the second before it.
    previous: u64,
}

fn second_of(at: Timestamp) -> u64 {
    at.as_millis() / 1000
}

/// The curve of a rule's count, period and cold factor.
struct Curve {
    count: f64,
    warning: i64,
    max: i64,
    slope: f64,
}

impl Curve {
    /// Sentinel: `WarmUpController.construct`.
    fn new(terms: &Terms) -> Curve {
        let (count, period) = (terms.count.get(), f64::from(terms.warm_up.period_sec()));
        let cold_factor = f64::from(terms.warm_up.cold_factor());
        let warning = (period * count) as i32 / (terms.warm_up.cold_factor() as i32 - 1);
        let max = warning.wrapping_add((2.0 * period * count / (1.0 + cold_factor)) as i32);
        Curve {
            count,
            warning: warning.into(),
            max: max.into(),
            slope: (cold_factor - 1.0) / count / f64::from(max.wrapping_sub(warning)),
        }
    }

    /// Sentinel: `WarmUpController.canPass`. Not a number if there are no tokens above the warning line: then nothing passes.
    fn rate(&self, tokens: i64) -> f64 {
        if tokens < self.warning {
            return self.count;
        }
        let above = (tokens - self.warning) as f64;
        (1.0 / (above * self.slope + 1.0 / self.count)).next_up()
    }
}

impl Tokens {
    fn roll(&self, admitted: u64, now: Timestamp) {
        let number = second_of(now);
        let previous = match self.second.get() {
            Some(second) if second.number == number => return,
            Some(second) if second.number + 1 == number => admitted.wrapping_sub(second.before),
            _ => 0,
        };
        self.second.set(Some(Second {
            number,
            before: admitted,
            previous,
        }));
    }

    /// Admissions in the second before second `number`.
    fn previous(&self, admitted: u64, number: u64) -> i64 {
        let passes = match self.second.get() {
            Some(second) if second.number == number => second.previous,
            Some(second) if second.number + 1 == number => admitted.wrapping_sub(second.before),
            _ => 0,
        };
        i64::try_from(passes).unwrap_or(i64::MAX)
    }

    /// Sentinel: `WarmUpController.syncToken`. There a clock that has stepped back changes nothing until it has caught up.
    fn sync(&self, terms: &Terms, counter: &impl Counter, admitted: u64, now: Timestamp) {
        let number = second_of(now);
        if self.filled.get() == Some(number) {
            return;
        }
        if let Some([tokens, max, filled, before]) = counter.warm_up()
            && filled <= number
            && self.filled.get().is_none_or(|own| own < filled)
        {
            self.tokens.set(tokens as i64);
            self.max.set(max as i64);
            self.filled.set(Some(filled));
            if before > 0 {
                self.listen(before - 1, filled, number);
            }
        }
        if self.filled.get() != Some(number) {
            self.tokens.set(self.at(terms, admitted, now));
            self.max.set(Curve::new(terms).max);
            self.filled.set(Some(number));
            let (tokens, max) = (self.tokens.get() as u64, self.max.get() as u64);
            // Stored plus one: 0 means that nothing is published.
            let before = self
                .second
                .get()
                .map_or(0, |second| second.before.wrapping_add(1));
            counter.publish_warm_up([tokens, max, number, before]);
        }
    }

    /// Takes over what another worker has published: the admissions `before` the second in which it `filled` up tokens, if that
    /// is the previous second. A worker without a request in it does not know what passed in it.
    fn listen(&self, before: u64, filled: u64, number: u64) {
        if let Some(second) = self.second.get().filter(|_| filled + 1 == number) {
            let previous = serial_since(second.before, before).unwrap_or(second.previous);
            self.second.set(Some(Second { previous, ..second }));
        }
    }

    /// How many tokens there are at `at`, if no request comes until then.
    ///
    /// Sentinel: `WarmUpController.coolDownTokens`.
    fn at(&self, terms: &Terms, admitted: u64, at: Timestamp) -> i64 {
        let (curve, number) = (Curve::new(terms), second_of(at));
        let Some(filled) = self.filled.get() else {
            // In Sentinel tokens begin at none, and the time since 1970 fills them, if any lie below the warning line.
            return if curve.warning > 0 { curve.max } else { 0 };
        };
        let mut tokens = self.tokens.get();
        if number <= filled {
            return tokens;
        }
        if self.max.get() > 0 && self.max.get() != curve.max {
            // Both have 31 bits. (Published words that are not valid may have more, and mean nothing anyway.)
            tokens = tokens.wrapping_mul(curve.max) / self.max.get();
        }
        let previous = self.previous(admitted, number);
        let is_used_little =
            previous < i64::from(curve.count as i32 / terms.warm_up.cold_factor() as i32);
        if tokens < curve.warning || tokens > curve.warning && is_used_little {
            let elapsed_ms = ((number - filled) * 1000) as f64;
            tokens = (tokens as f64 + elapsed_ms * curve.count / 1000.0) as i64;
        }
        tokens.min(curve.max).saturating_sub(previous).max(0)
    }
}
