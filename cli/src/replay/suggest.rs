//! The smallest limit by which a rule alone would have refused fewer than a share of its requests.
//!
//! The times and keys of the requests that come to a rule are kept, and when all have come, the engine is asked with one limit
//! after the other. So the answer is exact: the limit refuses less than the share, and one less does not.

use super::report::Suggestion;
use leapgate::backend::{Local, Store};
use leapgate::rule::{
    ControlBehavior, Count, FlowRule, Grade, KeyPart, KeyValue, KeyedBy, LimitApp, REQUESTS,
    Strategy,
};
use leapgate::{Decision, Engine, Request, Rules, Timestamp};
use std::rc::Rc;

/// How many requests are kept for all rules together: 48 MB.
pub(crate) const MAX_KEPT: usize = 4_000_000;

/// Requests are kept in pieces, so that none is ever copied to grow.
const PIECE: usize = 1 << 16;

/// How many cells keys are counted in.
const CELLS: usize = 1 << 20;

fn cell(key: u64) -> usize {
    key as usize % CELLS
}

/// The requests that came to a rule.
pub(crate) struct Trace {
    rule: FlowRule,
    most: usize,
    start_ms: u64,
    times: Vec<Vec<u32>>,
    keys: Vec<Vec<u64>>,
    kept: usize,
    is_cut: bool,
}

/// Why a rule's limit cannot be tried out by itself.
pub(crate) fn why_not(rule: &FlowRule) -> Option<&'static str> {
    if rule.grade() == Grade::Concurrency {
        return Some("it limits calls in flight");
    }
    if rule.control_behavior() != ControlBehavior::Reject {
        return Some("it does not only reject");
    }
    if rule.unit() != REQUESTS || rule.cost().is_some() {
        return Some("it counts something else than requests");
    }
    if *rule.strategy() != Strategy::Direct || *rule.limit_app() != LimitApp::Default {
        return Some("it is not for all requests of its resource");
    }
    if rule.is_compat() {
        return Some("it decides as Sentinel does");
    }
    if rule.target().as_str() == "*" {
        return Some("it limits each of many resources");
    }
    let by = rule.keyed_by()?;
    if !by.items().is_empty() || by.pattern().is_some() || by.count_from().is_some() {
        return Some("its count is not the same for all keys");
    }
    None
}

impl Trace {
    /// For a rule that has no reason [not to](why_not), at most so many requests.
    pub(crate) fn new(rule: &FlowRule, most: usize) -> Trace {
        Trace {
            rule: rule.clone(),
            most,
            start_ms: 0,
            times: Vec::new(),
            keys: Vec::new(),
            kept: 0,
            is_cut: false,
        }
    }

    /// Keeps a request. They come in order.
    pub(crate) fn add(&mut self, at_ms: u64, key: u64) {
        if self.kept == 0 {
            self.start_ms = at_ms;
        }
        let since = u32::try_from(at_ms - self.start_ms.min(at_ms));
        let Some(since) = since.ok().filter(|_| self.kept < self.most && !self.is_cut) else {
            self.is_cut = true;
            return;
        };
        if self.kept.is_multiple_of(PIECE) {
            self.times.push(Vec::with_capacity(PIECE.min(self.most)));
            self.keys.push(Vec::with_capacity(if self.is_keyed() {
                PIECE.min(self.most)
            } else {
                0
            }));
        }
        if let Some(piece) = self.times.last_mut() {
            piece.push(since);
        }
        let is_keyed = self.is_keyed();
        if let Some(piece) = self.keys.last_mut().filter(|_| is_keyed) {
            piece.push(key);
        }
        self.kept += 1;
    }

    fn is_keyed(&self) -> bool {
        self.rule.keyed_by().is_some()
    }

    /// The smallest limit that refuses fewer than `percent` of the requests.
    pub(crate) fn suggest(mut self, percent: f64) -> Option<Suggestion> {
        let requests = self.kept as u64;
        // Fewer than so many may be refused.
        let bound = (requests as f64 * percent / 100.0).ceil() as u64;
        if requests == 0 || bound == 0 {
            return None;
        }
        let counts = self.counts();
        let (mut least, mut most) = (None, None);
        let mut next = (self.rule.count().get() as u64).clamp(1, requests);
        loop {
            // A limit of all its requests refuses none.
            let refused = match next >= requests {
                true => Some(0),
                false => self.refused_by(next, bound),
            };
            match refused {
                Some(refused) => most = Some((next, refused)),
                None => {
                    least = Some(next);
                    self.leave_out_rare(&counts, next);
                }
            }
            next = match (least, most) {
                (Some(least), Some((most, _))) if most - least <= 1 => break,
                (Some(least), Some((most, _))) => least + (most - least) / 2,
                (Some(least), None) => least.saturating_mul(2).min(requests),
                (None, Some((0, _))) => break,
                (None, Some((most, _))) => most / 2,
                (None, None) => return None,
            };
        }
        let (count, refused) = most?;
        Some(Suggestion {
            refuse_less_than: percent,
            count,
            refused,
            refused_with_one_less: count
                .checked_sub(1)
                .and_then(|less| self.refused_by(less, u64::MAX)),
            requests,
            of_first: self.is_cut,
        })
    }

    /// How many requests keys have, at least: those of one cell together.
    fn counts(&self) -> Vec<u32> {
        let mut counts = vec![0_u32; CELLS];
        for key in self.keys.iter().flatten() {
            if let Some(count) = counts.get_mut(cell(*key)) {
                *count += 1;
            }
        }
        counts
    }

    /// Leaves out keys that have no more requests than `limit`: no limit above it refuses any of them.
    fn leave_out_rare(&mut self, counts: &[u32], limit: u64) {
        if !self.is_keyed() {
            return;
        }
        let is_kept = |key: &u64| {
            counts
                .get(cell(*key))
                .is_none_or(|count| u64::from(*count) > limit)
        };
        for (times, keys) in self.times.iter_mut().zip(&mut self.keys) {
            let mut of_times = keys.iter();
            times.retain(|_| of_times.next().is_none_or(is_kept));
            keys.retain(is_kept);
        }
    }

    /// How many requests the rule refuses with that limit; `None` if as many as `bound`.
    fn refused_by(&self, limit: u64, bound: u64) -> Option<u64> {
        let engine = self.engine(limit)?;
        let resource = engine.resource("r");
        let mut refused = 0;
        let no_keys = Vec::new();
        for (i, times) in self.times.iter().enumerate() {
            let keys = self.keys.get(i).unwrap_or(&no_keys);
            for (j, since) in times.iter().enumerate() {
                let key = keys.get(j).copied().unwrap_or_default().to_le_bytes();
                let values = [KeyValue::One(&key)];
                let request = Request::new("r").keys(&values);
                let now = Timestamp::from_millis(self.start_ms + u64::from(*since));
                if let Decision::Block(_) = engine.enter_resource(&resource, &request, now) {
                    refused += 1;
                    if refused >= bound {
                        return None;
                    }
                }
            }
        }
        Some(refused)
    }

    /// An engine with this rule alone, with that limit. A key is one value.
    fn engine(&self, limit: u64) -> Option<Engine> {
        let Grade::Qps { window, counting } = self.rule.grade() else {
            return None;
        };
        let window = window.window();
        let mut rule = FlowRule::new("r", (limit as f64).min(Count::MAX)).ok()?;
        rule = rule
            .per(window.interval_ms(), Some(window.sample_count()))
            .ok()?;
        rule = rule.counting(counting);
        if let Some(by) = self.rule.keyed_by() {
            let key = KeyedBy::new([KeyPart::Arg(0)]).ok()?;
            let key = key
                .with_max_keys(by.max_keys())
                .ok()?
                .with_burst(by.burst());
            rule = rule.keyed(key).ok()?;
        }
        let rules = Rules {
            flow: vec![rule],
            ..Rules::default()
        };
        Engine::with_store(Rc::new(Store::without_statistics(Local)), rules).ok()
    }
}
