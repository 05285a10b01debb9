//! What the tests share.

use leapgate::backend::{
    Backend, BreakerKey, KeyedGeometry, KeyedWindows, Local, LocalBreaker, LocalInstant, Past,
    SharedInstant, StateKey, Store, Counter,
};
use leapgate::rule::{Count, FlowRule, RuleId};
use leapgate::stats::Window;
use leapgate::{Blocked, Decision, Engine, Entry, Request, Rules, Timestamp};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

/// The instant `millis` milliseconds after the clock's zero.
pub(crate) fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis)
}

/// `sample_count` buckets of `bucket_ms`: worked examples name windows so, `2 x 500`.
#[track_caller]
pub(crate) fn buckets(sample_count: u32, bucket_ms: u64) -> Window {
    Window::new(u64::from(sample_count) * bucket_ms, sample_count).unwrap()
}

#[track_caller]
pub(crate) fn count(count: f64) -> Count {
    Count::new(count).unwrap()
}

/// A limit of `limit` passes a second in a strict window, called `id`.
#[track_caller]
pub(crate) fn rule(id: &str, resource: &str, limit: f64) -> FlowRule {
    FlowRule::new(resource, limit)
        .unwrap()
        .with_id(RuleId::new(id).unwrap())
}

pub(crate) fn rules(flow: impl Into<Vec<FlowRule>>) -> Rules {
    Rules {
        flow: flow.into(),
        ..Rules::default()
    }
}

#[track_caller]
pub(crate) fn engine(flow: impl Into<Vec<FlowRule>>) -> Engine {
    Engine::new(rules(flow)).unwrap()
}

/// Enters, and expects to pass.
#[track_caller]
pub(crate) fn pass<S: Backend>(engine: &Engine<S>, request: &Request<'_>, now: u64) -> Entry<S> {
    match engine.enter(request, at(now)) {
        Decision::Pass(entry) => entry,
        Decision::Wait(wait, _) => panic!("has to wait at {now} ms for {wait:?}"),
        Decision::Block(blocked) => panic!("refused at {now} ms: {blocked:?}"),
    }
}

/// Enters, and expects to wait for this many milliseconds.
#[track_caller]
pub(crate) fn wait<S: Backend>(
    engine: &Engine<S>,
    request: &Request<'_>,
    now: u64,
    expected: u64,
) -> Entry<S> {
    match engine.enter(request, at(now)) {
        Decision::Pass(entry) => panic!("let in at {now} ms: {entry:?}"),
        Decision::Wait(wait, entry) => {
            assert_eq!(wait, Duration::from_millis(expected), "at {now} ms");
            assert_eq!(entry.release(), at(now + expected));
            entry
        }
        Decision::Block(blocked) => panic!("refused at {now} ms: {blocked:?}"),
    }
}

/// Enters, and expects to be refused.
#[track_caller]
pub(crate) fn block<S: Backend>(engine: &Engine<S>, request: &Request<'_>, now: u64) -> Blocked {
    match engine.enter(request, at(now)) {
        Decision::Pass(entry) => panic!("let in at {now} ms: {entry:?}"),
        Decision::Wait(wait, _) => panic!("has to wait at {now} ms for {wait:?}"),
        Decision::Block(blocked) => blocked,
    }
}

/// How many of `tries` requests at one instant are let in.
#[track_caller]
pub(crate) fn admitted<S: Backend>(
    engine: &Engine<S>,
    request: &Request<'_>,
    tries: usize,
    now: u64,
) -> usize {
    (0..tries)
        .filter(|_| matches!(engine.enter(request, at(now)), Decision::Pass(_)))
        .count()
}

/// In how many milliseconds a refused request may try again.
pub(crate) fn retry_ms(blocked: &Blocked) -> Option<u64> {
    blocked.retry_after().map(|wait| {
        assert_eq!(
            wait.subsec_nanos() % 1_000_000,
            0,
            "{wait:?} is not whole milliseconds"
        );
        wait.as_millis() as u64
    })
}

/// Two counters that several windows share, as several workers of a process do.
#[derive(Clone, Default)]
pub(crate) struct Shared(Rc<Counters>);

#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) reserved: Cell<u64>,
    pub(crate) admitted: Cell<u64>,
    pub(crate) latest: LocalInstant,
    pub(crate) warmth: Cell<Option<[u64; 4]>>,
    /// Whether counting fails, as a host's call may.
    pub(crate) broken: Cell<bool>,
    /// How often either count was changed.
    pub(crate) changes: Cell<u64>,
}

impl Counters {
    fn change(&self, count: &Cell<u64>, to: u64) {
        count.set(to);
        self.changes.set(self.changes.get() + 1);
    }
}

impl std::ops::Deref for Shared {
    type Target = Counters;

    fn deref(&self) -> &Counters {
        &self.0
    }
}

impl Counter for Shared {
    fn admitted(&self) -> Option<u64> {
        Some(self.admitted.get())
    }

    fn reserved(&self) -> u64 {
        self.reserved.get()
    }

    fn reserve(&self, n: u64) -> Option<u64> {
        if self.broken.get() {
            return None;
        }
        self.change(&self.reserved, self.reserved.get().wrapping_add(n));
        Some(self.reserved.get())
    }

    fn release(&self, n: u64) {
        self.change(&self.reserved, self.reserved.get().wrapping_sub(n));
    }

    fn admit(&self, n: u64) {
        self.change(&self.admitted, self.admitted.get().wrapping_add(n));
    }

    fn latest(&self) -> &impl SharedInstant {
        &self.latest
    }

    fn warm_up(&self) -> Option<[u64; 4]> {
        self.warmth.get()
    }

    fn publish_warm_up(&self, warmth: [u64; 4]) {
        self.warmth.set(Some(warmth));
    }
}

/// Counts by rule and origin, for engines that share them as the workers of a process do.
#[derive(Clone, Default)]
pub(crate) struct Workers(Rc<RefCell<HashMap<StateKey, Shared>>>);

impl Workers {
    /// Another worker, whose windows continue those of the others: made before anything has passed.
    #[track_caller]
    pub(crate) fn engine(&self, flow: impl Into<Vec<FlowRule>>) -> Engine<Workers> {
        let store = Rc::new(Store::without_statistics(self.clone()));
        Engine::with_store(store, rules(flow)).unwrap()
    }

    /// The counts of the only rule.
    #[track_caller]
    pub(crate) fn only(&self) -> Shared {
        self.0.borrow().values().next().unwrap().clone()
    }
}

impl Backend for Workers {
    type Counter = Shared;
    type Keyed = KeyedWindows;
    type Breaker = LocalBreaker;

    fn open_keyed(&self, key: &StateKey, geometry: &KeyedGeometry) -> KeyedWindows {
        Local.open_keyed(key, geometry)
    }

    fn open_breaker(&self, _: &BreakerKey) -> LocalBreaker {
        LocalBreaker::default()
    }

    fn open(&self, key: &StateKey) -> (Shared, Past) {
        let mut shared = self.0.borrow_mut();
        let shared = shared.entry(key.clone()).or_default();
        (shared.clone(), Past::Fresh)
    }
}
