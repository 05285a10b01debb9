//! The counters that Envoy exports for each rule.

use crate::host::{Host, Kind, MetricId};
use crate::names::named;
use crate::vm::Vm;
use once_cell::unsync::OnceCell;
use std::cell::{Cell, RefCell};

/// The counters of one rule's decisions. They are defined when the first decision is exported.
pub(crate) struct Counters<H> {
    host: H,
    labels: String,
    counters: OnceCell<[MetricId; 3]>,
    /// The numbers that have been exported: passed, blocked, blocked in shadow.
    exported: Cell<[u64; 3]>,
}

/// One more counter of a rule, defined when it is first above zero.
#[derive(Default)]
pub(crate) struct LazyCounter {
    counter: OnceCell<MetricId>,
    exported: Cell<u64>,
}

impl LazyCounter {
    /// Whether `now` has not been exported yet.
    pub(crate) fn is_behind(&self, now: u64) -> bool {
        self.exported.get() != now
    }
}

impl<H: Host> Counters<H> {
    /// The counters that have these labels.
    pub(crate) fn new(vm: &Vm<H>, labels: &str) -> Counters<H> {
        Counters {
            host: vm.host().clone(),
            labels: [vm.root(), labels].concat(),
            counters: OnceCell::new(),
            exported: Cell::new([0; 3]),
        }
    }

    /// Whether `now` has not been exported yet. A new rule is behind: its counters are to appear as zeros.
    pub(crate) fn is_behind(&self, now: [u64; 3]) -> bool {
        self.counters.get().is_none() || self.exported.get() != now
    }

    /// Whether any request was blocked, or would have been, since the last export.
    pub(crate) fn has_refused(&self, now: [u64; 3]) -> bool {
        self.exported.get()[1..] != now[1..]
    }

    /// Adds to the host's counters what has passed, was blocked and would have been blocked since the last export.
    pub(crate) fn export(&self, now: [u64; 3]) {
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
        // If the host does not define a metric now, it may the next time.
        let Ok(counters) = counters else { return };
        for ((counter, now), exported) in counters.iter().zip(now).zip(self.exported.get()) {
            let more = now.wrapping_sub(exported) as i64;
            if more > 0 {
                self.host.add(*counter, more);
            }
        }
        self.exported.set(now);
    }

    /// The same for the counter called `what`. Returns whether this was its first export.
    pub(crate) fn export_lazy(&self, lazy: &LazyCounter, what: &str, now: u64) -> bool {
        let exported = lazy.exported.get();
        let more = now.wrapping_sub(exported);
        if more == 0 {
            return false;
        }
        let counter = lazy.counter.get_or_try_init(|| {
            let name = named(what, &[&self.labels]);
            self.host.define_metric(Kind::Counter, &name).ok_or(())
        });
        let Ok(counter) = counter else { return false };
        self.host.add(*counter, more as i64);
        lazy.exported.set(now);
        exported == 0
    }
}

/// The counters `blocked` and `shadow_blocked` of each rule that is not a flow rule, and the numbers exported to them.
#[derive(Default)]
pub(crate) struct Refusals(RefCell<Vec<Exported>>);

/// `None` until the host has defined the counters.
type Exported = (Option<[MetricId; 2]>, [u64; 2]);

impl Refusals {
    /// Adds to the counters of the rule with this index, kind and labels what it has refused since the last export.
    pub(crate) fn export<H: Host>(
        &self,
        vm: &Vm<H>,
        rule: usize,
        (kind, labels): (&str, &dyn Fn() -> String),
        now: [u64; 2],
    ) {
        let mut all = self.0.borrow_mut();
        if rule == all.len() {
            all.push((None, [0; 2]));
        }
        let Some((counters, exported)) = all.get_mut(rule) else {
            return;
        };
        if counters.is_none() {
            *counters = define(vm, kind, &labels());
        }
        let Some(counters) = counters else { return };
        for ((counter, now), exported) in counters.iter().zip(now).zip(exported) {
            let more = now.wrapping_sub(*exported) as i64;
            if more > 0 {
                vm.host().add(*counter, more);
            }
            *exported = now;
        }
    }
}

fn define<H: Host>(vm: &Vm<H>, kind: &str, labels: &str) -> Option<[MetricId; 2]> {
    let counter = |what: &str| {
        let name = vm.name(&[kind, what].concat(), labels);
        vm.host().define_metric(Kind::Counter, &name)
    };
    Some([counter("_blocked")?, counter("_shadow_blocked")?])
}
