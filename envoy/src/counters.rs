//! What has been decided by a rule, in counters of Envoy's.

use crate::host::{Host, Kind, MetricId};
use crate::names::named;
use crate::vm::Vm;
use once_cell::unsync::OnceCell;
use std::cell::Cell;

/// What stands in the log and the dashboards of one rule: made when there is something to write there.
pub(crate) struct Counters<H> {
    host: H,
    labels: String,
    counters: OnceCell<[MetricId; 3]>,
    told: Cell<[u64; 3]>,
}

/// One more counter of a rule, made when there is something to count.
#[derive(Default)]
pub(crate) struct Late {
    counter: OnceCell<MetricId>,
    told: Cell<u64>,
}

impl Late {
    /// Whether there is something to tell.
    pub(crate) fn is_behind(&self, now: u64) -> bool {
        self.told.get() != now
    }
}

impl<H: Host> Counters<H> {
    /// Of what has these labels.
    pub(crate) fn new(vm: &Vm<H>, labels: &str) -> Counters<H> {
        Counters {
            host: vm.host().clone(),
            labels: [vm.root(), labels].concat(),
            counters: OnceCell::new(),
            told: Cell::new([0; 3]),
        }
    }

    /// Whether there is something to tell; at first there is that it is nothing.
    pub(crate) fn is_behind(&self, now: [u64; 3]) -> bool {
        self.counters.get().is_none() || self.told.get() != now
    }

    /// Tells the host what has passed, was blocked, and would have been, since the last time.
    pub(crate) fn tell(&self, now: [u64; 3]) {
        if !self.is_behind(now) {
            return;
        }
        let counters = self.counters.get_or_try_init(|| {
            let counter = |what| {
                self.host
                    .define_metric(Kind::Counter, &named(what, &[&self.labels]))
                    .ok_or(())
            };
            Ok::<_, ()>([
                counter("passed")?,
                counter("blocked")?,
                counter("shadow_blocked")?,
            ])
        });
        // Where the host makes no metric now, it may the next time.
        let Ok(counters) = counters else { return };
        for ((counter, now), told) in counters.iter().zip(now).zip(self.told.get()) {
            let more = now.wrapping_sub(told) as i64;
            if more > 0 {
                self.host.add(*counter, more);
            }
        }
        self.told.set(now);
    }

    /// The same of a counter called `what`. Whether it has been told for the first time.
    pub(crate) fn tell_late(&self, late: &Late, what: &str, now: u64) -> bool {
        let told = late.told.get();
        let more = now.wrapping_sub(told);
        if more == 0 {
            return false;
        }
        let counter = late.counter.get_or_try_init(|| {
            let name = named(what, &[&self.labels]);
            self.host.define_metric(Kind::Counter, &name).ok_or(())
        });
        let Ok(counter) = counter else { return false };
        self.host.add(*counter, more as i64);
        late.told.set(now);
        told == 0
    }
}
