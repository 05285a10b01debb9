//! Two running counts that all worker threads share, or that are this virtual machine's own.

use crate::gauges::{Silent, count, gauge};
use crate::host::{Host, MetricId};
use crate::shared::SharedCell;
use crate::vm::Vm;
use leapgate::{LocalTally, Tally};
use std::cell::Cell;

/// Where two running counts are kept.
pub(crate) enum Keeper<H> {
    Gauges {
        host: H,
        tickets: MetricId,
        admitted: MetricId,
    },
    SharedData(Swapped<H>),
    Local(LocalTally),
}

impl<H: Host> Keeper<H> {
    /// Where two running counts are kept; as gauges they are called `names`, and are one if these are the same.
    pub(crate) fn open(vm: &Vm<H>, labels: &str, names: [&str; 2]) -> Keeper<H> {
        if !vm.is_shared() {
            return Keeper::Local(LocalTally::default());
        }
        let silent = match Keeper::gauges(vm, labels, names) {
            Ok(gauges) => return gauges,
            Err(silent) => silent,
        };
        match Keeper::shared_data(vm, labels, names) {
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
                Keeper::Local(LocalTally::default())
            }
        }
    }

    fn gauges(vm: &Vm<H>, labels: &str, [first, second]: [&str; 2]) -> Result<Keeper<H>, Silent> {
        let tickets = gauge(vm, labels, first)?;
        let admitted = if second == first {
            tickets
        } else {
            gauge(vm, labels, second)?
        };
        Ok(Keeper::Gauges {
            host: vm.host().clone(),
            tickets,
            admitted,
        })
    }

    fn shared_data(vm: &Vm<H>, labels: &str, [first, _]: [&str; 2]) -> Option<Keeper<H>> {
        let key = vm.name(&[first, "_counts"].concat(), labels);
        let place = Swapped::new(SharedCell::with(vm.host(), key, [0; 2]));
        vm.expect_debts();
        place.read().map(|_| Keeper::SharedData(place))
    }

    /// The two counts, the second of them read first; `None` where they cannot be read.
    pub(crate) fn pair(&self) -> Option<(u64, u64)> {
        match self {
            Keeper::Gauges {
                host,
                tickets,
                admitted,
            } => {
                let second = count(host, *admitted)?;
                Some((count(host, *tickets)?, second))
            }
            Keeper::SharedData(place) => place.read(),
            Keeper::Local(_) => None,
        }
    }

    /// Whether changes are owed that could not be made.
    pub(crate) fn owes(&self) -> bool {
        matches!(self, Keeper::SharedData(place) if place.owes())
    }

    /// Makes changes that are owed. Whether none is any more.
    pub(crate) fn settle(&self) -> bool {
        match self {
            Keeper::SharedData(place) if self.owes() => place.change(0, 0).is_some(),
            _ => true,
        }
    }

    /// Raises the two counts, the first of them first.
    pub(crate) fn raise(&self, first: i64, second: i64) {
        match self {
            Keeper::Gauges {
                host,
                tickets,
                admitted,
            } => {
                host.add(*tickets, first);
                if second != 0 {
                    host.add(*admitted, second);
                }
            }
            Keeper::SharedData(place) => place.change_or_owe(first, second),
            Keeper::Local(_) => {}
        }
    }

    #[inline]
    pub(crate) fn admitted(&self) -> Option<u64> {
        match self {
            Keeper::Gauges { host, admitted, .. } => count(host, *admitted),
            Keeper::SharedData(place) => place.read().map(|(_, admitted)| admitted),
            Keeper::Local(_) => None,
        }
    }

    #[inline]
    pub(crate) fn tickets(&self) -> u64 {
        match self {
            // What cannot be read counts as full.
            Keeper::Gauges { host, tickets, .. } => count(host, *tickets).unwrap_or(u64::MAX),
            Keeper::SharedData(place) => place.read().map_or(u64::MAX, |(tickets, _)| tickets),
            Keeper::Local(tally) => tally.tickets(),
        }
    }

    #[inline]
    pub(crate) fn take(&self, n: u64) -> Option<u64> {
        match self {
            Keeper::Gauges { host, tickets, .. } => {
                if !host.add(*tickets, n as i64) {
                    return None;
                }
                let taken = count(host, *tickets);
                if taken.is_none() {
                    host.add(*tickets, -(n as i64));
                }
                taken
            }
            Keeper::SharedData(place) => place.change(n as i64, 0),
            Keeper::Local(tally) => tally.take(n),
        }
    }

    pub(crate) fn give_back(&self, n: u64) {
        match self {
            Keeper::Gauges { host, tickets, .. } => {
                host.add(*tickets, -(n as i64));
            }
            Keeper::SharedData(place) => place.change_or_owe(-(n as i64), 0),
            Keeper::Local(tally) => tally.give_back(n),
        }
    }

    #[inline]
    pub(crate) fn commit(&self, n: u64) {
        match self {
            Keeper::Gauges { host, admitted, .. } => {
                // A limit on calls in flight has no second gauge to raise.
                host.add(*admitted, n as i64);
            }
            Keeper::SharedData(place) => place.change_or_owe(0, n as i64),
            Keeper::Local(tally) => tally.commit(n),
        }
    }
}

/// Two numbers in shared data.
pub(crate) struct Swapped<H> {
    cell: SharedCell<H>,
    /// Changes of tickets and of admissions that could not be made yet: made with the next one.
    owed: Cell<(i64, i64)>,
}

impl<H: Host> Swapped<H> {
    fn new(cell: SharedCell<H>) -> Swapped<H> {
        let owed = Cell::new((0, 0));
        Swapped { cell, owed }
    }

    /// Whether changes are owed that could not be made.
    fn owes(&self) -> bool {
        self.owed.get() != (0, 0)
    }

    fn read(&self) -> Option<(u64, u64)> {
        let ([tickets, admitted], _) = self.cell.read()?;
        Some((tickets, admitted))
    }

    /// The tickets after the change; `None` where it could not be made.
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
