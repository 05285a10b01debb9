//! Where an engine's counts are kept.

use crate::changes::{Changes, ToldBreaker};
use leapgate::backend::{
    Backend, BreakerKey, KeyedGeometry, KeyedWindows, Leased, Leasing, Local, LocalCounter,
    NotLeased, Past, Seeded, StateKey,
};
use std::cell::Cell;
use std::rc::Rc;

/// The random seed of the key hashes, shared by all engines. An engine is made without it, since Workers have no randomness while
/// a module is loaded; it is set before the first key is hashed.
#[derive(Clone, Default)]
pub(crate) struct LateSeed {
    seed: Rc<Cell<[u64; 2]>>,
    /// What the engine's breakers have done.
    pub(crate) changes: Rc<Changes>,
}

impl LateSeed {
    pub(crate) fn set(&self, seed: [u64; 2]) {
        self.seed.set(seed);
    }

    /// The same for another engine.
    pub(crate) fn for_engine(&self) -> LateSeed {
        LateSeed {
            seed: Rc::clone(&self.seed),
            changes: Rc::default(),
        }
    }
}

impl Backend for LateSeed {
    type Counter = LocalCounter;
    type Keyed = KeyedWindows;
    type Breaker = ToldBreaker;

    fn open(&self, key: &StateKey) -> (LocalCounter, Past) {
        Local.open(key)
    }

    fn open_keyed(&self, key: &StateKey, geometry: &KeyedGeometry) -> KeyedWindows {
        Seeded(self.seed.get()).open_keyed(key, geometry)
    }

    fn open_breaker(&self, key: &BreakerKey) -> ToldBreaker {
        ToldBreaker::new(key, Rc::clone(&self.changes))
    }

    fn lease(&self, _: &StateKey, _: &Leasing<'_>) -> Result<Rc<dyn Leased>, NotLeased> {
        Err(NotLeased {
            why: "needs a store, which `Engine` does not have",
            cure: "use `SharedLimiter` of `leapgate/shared`, or leave it out",
        })
    }
}
