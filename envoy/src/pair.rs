//! A pair of running counts, `tickets` and `admitted`, which all worker threads share.
//!
//! They are two of Envoy's gauges. Where gauges do not work (a stats matcher can silence them: then they read 0 for ever), they
//! are words in shared data, changed by compare-and-swap. Where shared data does not work either, or where the scope is the
//! worker, they are this virtual machine's own.

use crate::gauges::{SilentGauge, count, gauge};
use crate::host::{Host, MetricId};
use crate::shared::SharedCell;
use crate::vm::Vm;
use leapgate::backend::{Counter, LocalCounter};
use std::cell::Cell;

/// A pair of running counts.
pub(crate) enum PairCell<H> {
    /// Two gauges, or twice the same one.
    Gauges {
        host: H,
        tickets: MetricId,
        admitted: MetricId,
    },
    /// Two words in shared data.
    SharedData(CasPair<H>),
    /// This virtual machine's own.
    Local(LocalCounter),
}

impl<H: Host> PairCell<H> {
    /// Opens the pair with these labels. As gauges they are called `names`; equal names are one gauge.
    pub(crate) fn open(vm: &Vm<H>, labels: &str, names: [&str; 2]) -> PairCell<H> {
        if !vm.is_shared() {
            return PairCell::Local(LocalCounter::default());
        }
        let silent = match PairCell::gauges(vm, labels, names) {
            Ok(gauges) => return gauges,
            Err(silent) => silent,
        };
        match PairCell::shared_data(vm, labels, names) {
            Some(shared_data) => {
                let now = "what it counts stands in shared data, changed by compare-and-swap, and requests are refused where that is contended";
                silent.warn(vm, now);
                shared_data
            }
            None => {
                let now = "its limit holds for each worker thread alone";
                vm.warn(
                    labels,
                    &format!("neither gauges nor shared data work here: {now}"),
                );
                PairCell::Local(LocalCounter::default())
            }
        }
    }

    fn gauges(
        vm: &Vm<H>,
        labels: &str,
        [first, second]: [&str; 2],
    ) -> Result<PairCell<H>, SilentGauge> {
        let tickets = gauge(vm, labels, first)?;
        let admitted = if second == first {
            tickets
        } else {
            gauge(vm, labels, second)?
        };
        Ok(PairCell::Gauges {
            host: vm.host().clone(),
            tickets,
            admitted,
        })
    }

    fn shared_data(vm: &Vm<H>, labels: &str, [first, _]: [&str; 2]) -> Option<PairCell<H>> {
        let key = vm.name(&[first, "_counts"].concat(), labels);
        let pair = CasPair::new(SharedCell::with(vm.host(), key, [0; 2]));
        vm.expect_owed();
        pair.read().map(|_| PairCell::SharedData(pair))
    }

    /// Both counts, of which the second is read first; `None` if they cannot be read.
    pub(crate) fn pair(&self) -> Option<(u64, u64)> {
        match self {
            PairCell::Gauges {
                host,
                tickets,
                admitted,
            } => {
                let second = count(host, *admitted)?;
                Some((count(host, *tickets)?, second))
            }
            PairCell::SharedData(pair) => pair.read(),
            PairCell::Local(_) => None,
        }
    }

    /// Whether changes are owed: they could not be made yet.
    pub(crate) fn owes(&self) -> bool {
        matches!(self, PairCell::SharedData(pair) if pair.owes())
    }

    /// Makes changes that are owed. Returns whether none is left.
    pub(crate) fn settle(&self) -> bool {
        match self {
            PairCell::SharedData(pair) if self.owes() => pair.change(0, 0).is_some(),
            _ => true,
        }
    }

    /// Raises both counts, the first one first.
    pub(crate) fn raise(&self, first: i64, second: i64) {
        match self {
            PairCell::Gauges {
                host,
                tickets,
                admitted,
            } => {
                host.add(*tickets, first);
                if second != 0 {
                    host.add(*admitted, second);
                }
            }
            PairCell::SharedData(pair) => pair.change_or_owe(first, second),
            PairCell::Local(_) => {}
        }
    }

    #[inline]
    pub(crate) fn admitted(&self) -> Option<u64> {
        match self {
            PairCell::Gauges { host, admitted, .. } => count(host, *admitted),
            PairCell::SharedData(pair) => pair.read().map(|(_, admitted)| admitted),
            PairCell::Local(_) => None,
        }
    }

    #[inline]
    pub(crate) fn reserved(&self) -> u64 {
        match self {
            // A count that cannot be read counts as full.
            PairCell::Gauges { host, tickets, .. } => count(host, *tickets).unwrap_or(u64::MAX),
            PairCell::SharedData(pair) => pair.read().map_or(u64::MAX, |(tickets, _)| tickets),
            PairCell::Local(counter) => counter.reserved(),
        }
    }

    #[inline]
    pub(crate) fn reserve(&self, n: u64) -> Option<u64> {
        match self {
            PairCell::Gauges { host, tickets, .. } => {
                if !host.add(*tickets, n as i64) {
                    return None;
                }
                let taken = count(host, *tickets);
                if taken.is_none() {
                    host.add(*tickets, -(n as i64));
                }
                taken
            }
            PairCell::SharedData(pair) => pair.change(n as i64, 0),
            PairCell::Local(counter) => counter.reserve(n),
        }
    }

    pub(crate) fn release(&self, n: u64) {
        match self {
            PairCell::Gauges { host, tickets, .. } => {
                host.add(*tickets, -(n as i64));
            }
            PairCell::SharedData(pair) => pair.change_or_owe(-(n as i64), 0),
            PairCell::Local(counter) => counter.release(n),
        }
    }

    #[inline]
    pub(crate) fn admit(&self, n: u64) {
        match self {
            PairCell::Gauges { host, admitted, .. } => {
                // A limit on calls in flight has no second gauge to raise.
                host.add(*admitted, n as i64);
            }
            PairCell::SharedData(pair) => pair.change_or_owe(0, n as i64),
            PairCell::Local(counter) => counter.admit(n),
        }
    }
}

/// Two numbers in shared data, changed by compare-and-swap.
pub(crate) struct CasPair<H> {
    cell: SharedCell<H>,
    /// Changes of both numbers that could not be made yet. The next change includes them.
    owed: Cell<(i64, i64)>,
}

impl<H: Host> CasPair<H> {
    fn new(cell: SharedCell<H>) -> CasPair<H> {
        let owed = Cell::new((0, 0));
        CasPair { cell, owed }
    }

    /// Whether changes are owed: they could not be made yet.
    fn owes(&self) -> bool {
        self.owed.get() != (0, 0)
    }

    fn read(&self) -> Option<(u64, u64)> {
        let ([tickets, admitted], _) = self.cell.read()?;
        Some((tickets, admitted))
    }

    /// Changes both numbers. Returns the tickets after it; `None` if it could not be made.
    fn change(&self, tickets: i64, admitted: i64) -> Option<u64> {
        let (tickets, admitted) = self.with_owed(tickets, admitted);
        let [tickets, _] = self.cell.change(|[old_tickets, old_admitted]| {
            [
                old_tickets.wrapping_add_signed(tickets),
                old_admitted.wrapping_add_signed(admitted),
            ]
        })?;
        self.owed.set((0, 0));
        Some(tickets)
    }

    fn change_or_owe(&self, tickets: i64, admitted: i64) {
        if self.change(tickets, admitted).is_none() {
            self.owed.set(self.with_owed(tickets, admitted));
        }
    }

    fn with_owed(&self, tickets: i64, admitted: i64) -> (i64, i64) {
        let (owed_tickets, owed_admitted) = self.owed.get();
        (
            tickets.wrapping_add(owed_tickets),
            admitted.wrapping_add(owed_admitted),
        )
    }
}
