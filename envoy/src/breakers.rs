//! Where a circuit breaker keeps its state, so that there is one for the process.
//!
//! Completions are two running counts, `completed` and `bad`, which all worker threads share (gauges, as a rule's counts
//! are). The state is a value in shared data that changes by compare-and-swap alone: of the requests that race for a probe one
//! gets it. A third gauge, `changes`, is raised by 1 after each change of the state: while it reads what it read before the state
//! was last looked up, a request pays for that one reading and no more. The three have exact names, geometry included, and
//! only rise: no other breaker, and no change of the configuration, can move them.
//!
//! `state`, which is for dashboards, has a readable name and is set. Nothing depends on it. Of several breakers with that
//! name, as when a rule's window is changed, it shows the one that was in use last.
//!
//! What a virtual machine knows of the state is as old as its latest request to the resource, or its latest tick.

use crate::gauges::{SilentGauge, gauge};
use crate::host::{Host, Kind, MetricId, Put};
use crate::names::{label, label_of_name, window_of};
use crate::pair::PairCell;
use crate::ring::Published;
use crate::shared::SharedCell;
use crate::vm::Vm;
use leapgate::Timestamp;
use leapgate::backend::{
    Breaker, BreakerKey, BreakerStorage, LocalBreaker, Phase, Snapshots, State,
};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// What holds without [`Shared::changes`].
const EACH_LOOKS_UP: &str =
    "each request to its resource reads the state of the breaker from shared data";

/// How often the gauge is set again because another worker has changed the state meanwhile. The worker that changes it last
/// sets the gauge, too: the bound matters only if the state keeps changing.
const MAX_GAUGE_UPDATES: u32 = 16;

/// Where one breaker keeps its state and its counts.
pub enum BreakerPlace<H> {
    /// In the process.
    Process(Shared<H>),
    /// In this virtual machine.
    Worker(LocalBreaker),
}

/// A state that the process shares.
pub struct Shared<H> {
    host: H,
    counts: PairCell<H>,
    /// The state in shared data.
    cell: Rc<SharedCell<H>>,
    /// The gauge of changes to the state; `None` if gauges do not work, and each request reads the state.
    changes: Option<MetricId>,
    /// The value of `changes` before the state was last read because of it.
    known_at: Cell<Option<u64>>,
    /// The state when it was last read, and its version.
    known: Cell<(State, u32)>,
    state_gauge: Rc<StateGauge<H>>,
    /// Where the ring of completions is published.
    ring: Published<H>,
}

/// The gauge of a breaker's state, for dashboards.
pub(crate) struct StateGauge<H> {
    name: String,
    gauge: Option<MetricId>,
    /// The state that it shows: of several breakers with this name, the state of the one that was in use last.
    cell: RefCell<Rc<SharedCell<H>>>,
}

/// A state's number in its gauge: 0 closed, 1 open, 2 half-open.
fn number(state: State) -> u64 {
    match state.phase() {
        Phase::Closed => 0,
        Phase::Open { .. } => 1,
        Phase::HalfOpen { .. } => 2,
    }
}

/// The state in this cell, and its version.
#[inline(never)]
fn read_state<H: Host>(cell: &SharedCell<H>) -> Option<(State, u32)> {
    let (words, version) = cell.read()?;
    Some((State::unpack(words)?, version))
}

impl<H: Host> BreakerPlace<H> {
    /// Opens the place of the breaker of `key`.
    pub(crate) fn open(
        vm: &Vm<H>,
        gauges: &RefCell<Vec<Rc<StateGauge<H>>>>,
        key: &BreakerKey,
    ) -> BreakerPlace<H> {
        let mut exact = String::new();
        label(&mut exact, "rule", key.rule.as_str());
        let mut readable = exact.clone();
        label_of_name(&mut exact, ["resource", "place"], &key.resource, key.place);
        // A name in a reused place has the gauge of the further names.
        let is_reused = key.each && key.place.is_some_and(|place| place.is_reused);
        let name = if is_reused { "" } else { &key.resource };
        label(&mut readable, "resource", name);
        let grade = key.geometry.grade();
        let mut window = [grade, "_", &window_of(key.geometry.window())].concat();
        if key.geometry.is_sentinel() {
            window.push_str("_compat");
        }
        label(&mut exact, "window", &window);
        let counts = PairCell::open(vm, &exact, ["breaker_completed", "breaker_bad"]);
        if matches!(counts, PairCell::Local(_)) {
            return BreakerPlace::Worker(LocalBreaker::default());
        }
        let cell = Rc::new(SharedCell::new(vm.host(), vm.name("breaker", &exact)));
        let changes = matches!(counts, PairCell::Gauges { .. }).then(|| {
            let changes = gauge(vm, &exact, "breaker_changes");
            changes.map_err(|silent: SilentGauge| silent.warn(vm, EACH_LOOKS_UP))
        });
        let shared = Shared {
            counts,
            changes: changes.and_then(Result::ok),
            known_at: Cell::new(None),
            ring: Published::new(vm, ["breaker_ring", &exact], key.geometry.window()),
            known: Cell::new((State::new(leapgate::backend::CallCounts::default()), 0)),
            state_gauge: StateGauge::find(vm, gauges, vm.name("breaker_state", &readable), &cell),
            cell,
            host: vm.host().clone(),
        };
        let closed = State::new(shared.counts());
        shared.cell.put(closed.pack(), Put::IfAbsent);
        if !shared.refresh() {
            let why = "shared data does not work here: the breaker is each worker thread's own";
            vm.warn(&exact, why);
            return BreakerPlace::Worker(LocalBreaker::default());
        }
        shared.take_gauge();
        BreakerPlace::Process(shared)
    }

    /// Sets the gauge if it shows another state, as a thread with another configuration may have set it, or if it belonged to
    /// a breaker that is gone.
    pub fn refresh_gauge(&self) {
        let BreakerPlace::Process(shared) = self else {
            return;
        };
        let is_left = Rc::strong_count(&shared.state_gauge.cell.borrow()) == 1;
        let gauge = shared
            .state_gauge
            .gauge
            .filter(|_| is_left || shared.owns_gauge());
        if gauge.is_some_and(|gauge| shared.host.read(gauge) != Some(number(shared.known.get().0)))
        {
            shared.take_gauge();
        }
    }
}

impl<H: Host> StateGauge<H> {
    /// The gauge of this name, which is made for the state in `cell` if there is none.
    fn find(
        vm: &Vm<H>,
        all: &RefCell<Vec<Rc<StateGauge<H>>>>,
        name: String,
        cell: &Rc<SharedCell<H>>,
    ) -> Rc<StateGauge<H>> {
        let mut all = all.borrow_mut();
        let index = all.partition_point(|gauge| gauge.name < name);
        if let Some(known) = all.get(index).filter(|gauge| gauge.name == name) {
            return Rc::clone(known);
        }
        let gauge = Rc::new(StateGauge {
            gauge: vm.host().define_metric(Kind::Gauge, &name),
            name,
            cell: RefCell::new(Rc::clone(cell)),
        });
        all.insert(index, Rc::clone(&gauge));
        gauge
    }

    /// Sets the gauge to the state of the breaker that was in use last, and reads the state again: of several workers that
    /// change it at once, the one that sets the gauge last has read the latest state.
    #[inline(never)]
    fn show(&self, host: &H) {
        let Some(gauge) = self.gauge else { return };
        let mut set = None;
        for _ in 0..MAX_GAUGE_UPDATES {
            let state = read_state(&self.cell.borrow()).map(|(state, _)| number(state));
            match state {
                Some(now) if state != set => host.record(gauge, now),
                _ => return,
            };
            set = state;
        }
    }
}

impl<H: Host> Shared<H> {
    /// Reads the state. Returns whether that could be done; else the known state stays.
    fn refresh(&self) -> bool {
        let found = read_state(&self.cell);
        if let Some(found) = found {
            self.known.set(found);
        }
        found.is_some()
    }

    fn counts(&self) -> leapgate::backend::CallCounts {
        // `bad` is read first and raised last: no ratio appears higher than it is.
        let (total, bad) = self.counts.pair().unwrap_or_default();
        leapgate::backend::CallCounts { total, bad }
    }

    fn reload(&self) {
        // In this order: a worker that changes the state after this read also raises `changes` above what was read.
        let changes = self.changes.and_then(|changes| self.host.read(changes));
        if (changes.is_none() || changes != self.known_at.get()) && self.refresh() {
            self.known_at.set(changes);
        }
    }

    fn replace(&self, current: State, next: State) -> bool {
        let (known, version) = self.known.get();
        // The host replaces any version for version 0.
        let is_replaced =
            known == current && version != 0 && self.cell.put(next.pack(), Put::IfVersion(version));
        if let (true, Some(changes)) = (is_replaced, self.changes) {
            self.host.add(changes, 1);
        }
        self.refresh();
        if is_replaced && number(next) != number(current) && self.owns_gauge() {
            self.state_gauge.show(&self.host);
        }
        is_replaced
    }

    /// Whether the gauge shows this breaker, and not another one with the same name.
    fn owns_gauge(&self) -> bool {
        Rc::ptr_eq(&self.state_gauge.cell.borrow(), &self.cell)
    }

    /// From now on the gauge shows this breaker, and not another one with the same name.
    #[cold]
    #[inline(never)]
    fn take_gauge(&self) {
        self.state_gauge.cell.replace(Rc::clone(&self.cell));
        self.state_gauge.show(&self.host);
    }

    fn add(&self, bad: bool) -> leapgate::backend::CallCounts {
        self.counts.raise(1, bad.into());
        self.counts()
    }
}

/// A breaker with its state in a [`BreakerPlace`].
type BreakerOf<H> = Breaker<BreakerPlace<H>>;

impl<H: Host> BreakerPlace<H> {
    /// Whether a tick has work to do: dating what was observed, publishing, or making changes that are owed.
    pub(crate) fn is_moving(&self, breaker: &BreakerOf<H>) -> bool {
        match self {
            BreakerPlace::Process(Shared { ring, counts, .. }) => {
                ring.is_moving(breaker) || counts.owes()
            }
            BreakerPlace::Worker(_) => false,
        }
    }

    /// Publishes the window, which has been moved to `now`, to other workers, and makes changes that are owed. Returns whether
    /// nothing is left, which can only be so if `at_once`.
    pub(crate) fn settle(&self, breaker: &BreakerOf<H>, now: Timestamp, at_once: bool) -> bool {
        match self {
            BreakerPlace::Process(Shared { ring, counts, .. }) => {
                counts.settle() & ring.publish(breaker, now, at_once)
            }
            BreakerPlace::Worker(_) => true,
        }
    }
}

impl<H: Host> BreakerStorage for BreakerPlace<H> {
    #[inline]
    fn load(&self) -> State {
        match self {
            BreakerPlace::Process(shared) => shared.known.get().0,
            BreakerPlace::Worker(local) => local.load(),
        }
    }

    fn reload(&self) -> State {
        if let BreakerPlace::Process(shared) = self {
            shared.reload();
        }
        self.load()
    }

    fn in_use(&self) {
        if let BreakerPlace::Process(shared) = self
            && !shared.owns_gauge()
        {
            shared.take_gauge();
        }
    }

    fn replace(&self, current: State, next: State) -> bool {
        match self {
            BreakerPlace::Process(shared) => shared.replace(current, next),
            BreakerPlace::Worker(local) => local.replace(current, next),
        }
    }

    fn counts(&self) -> leapgate::backend::CallCounts {
        match self {
            BreakerPlace::Process(shared) => shared.counts(),
            BreakerPlace::Worker(local) => local.counts(),
        }
    }

    fn add(&self, bad: bool) -> leapgate::backend::CallCounts {
        match self {
            BreakerPlace::Process(shared) => shared.add(bad),
            BreakerPlace::Worker(local) => local.add(bad),
        }
    }

    fn published(&self) -> Option<Snapshots> {
        let BreakerPlace::Process(shared) = self else {
            return None;
        };
        let now = || {
            let counts = shared.counts();
            Some([counts.total, counts.bad])
        };
        shared.ring.wake(&now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::{decoded, encoded};
    use leapgate::Timestamp;

    fn packed(state: State) -> Vec<u8> {
        encoded(&state.pack())
    }

    fn unpacked(bytes: &[u8]) -> Option<State> {
        decoded(bytes).and_then(State::unpack)
    }

    #[test]
    fn a_state_comes_back_as_it_was_packed_and_nothing_else_is_one() {
        let retry_at = Timestamp::from_millis(1500).as_nanos();
        let open = State::unpack([1 | 7 << 32, retry_at, 3, 2]).unwrap();
        assert_eq!(unpacked(&packed(open)), Some(open));
        assert_eq!(unpacked(&packed(open)[..31]), None);
        assert_eq!(unpacked(&[9; 32]), None);
    }
}
