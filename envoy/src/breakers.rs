//! Where a circuit breaker keeps its state, so that there is one for the process.
//!
//! Completions are two running counts, `completed` and `bad`, which all worker threads share (gauges, as a rule's counts
//! are). The state is a value in shared data that changes by compare-and-swap alone: of those who race for a probe one gets
//! it. A third gauge, `changes`, is raised by 1 after each change of the state: while it reads what it read before the state
//! was last looked up, a request pays for that one reading and no more. The three have exact names, geometry included, and
//! only rise: no other breaker, and no change of the configuration, can move them.
//!
//! `state`, which is for dashboards, has a readable name and is set. Nothing depends on it. Of several breakers with that
//! name, as when a rule's window is changed, it shows the one that was in use last.
//!
//! What a virtual machine knows of the state is as old as its latest request to the resource, or its latest tick.

use crate::gauges::{Silent, gauge};
use crate::host::{Host, Kind, MetricId, Put};
use crate::names::{label, label_of_name, window_of};
use crate::pair::Keeper;
use crate::ring::Published;
use crate::shared::SharedCell;
use crate::vm::Vm;
use leapgate::{
    Breaker, BreakerKey, BreakerStorage, LocalBreaker, Phase, Snapshots, State, Timestamp,
};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// What holds without [`Shared::changes`].
const EACH_LOOKS_UP: &str =
    "each request to its resource reads the state of the breaker from shared data";

/// How often what is shown is corrected where others change the state at the same time. The last of them shows theirs.
const MAX_SHOWN: u32 = 16;

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
    counts: Keeper<H>,
    /// Where the state stands in shared data.
    cell: Rc<SharedCell<H>>,
    /// How often the state has changed; `None` where gauges do not work, and each request looks the state up.
    changes: Option<MetricId>,
    /// What `changes` was before the state was last looked up because of it.
    known_at: Cell<Option<u64>>,
    /// What stood there when it was last looked up, and its version.
    known: Cell<(State, u32)>,
    shown: Rc<Shown<H>>,
    /// Where the ring of completions is published.
    ring: Published<H>,
}

/// A gauge for dashboards.
pub(crate) struct Shown<H> {
    name: String,
    gauge: Option<MetricId>,
    /// Where the state stands that it shows: of several breakers with this name, that of the one that was in use last.
    cell: RefCell<Rc<SharedCell<H>>>,
}

/// What is shown of a state: 0 closed, 1 open, 2 half-open.
fn number(state: State) -> u64 {
    match state.phase() {
        Phase::Closed => 0,
        Phase::Open { .. } => 1,
        Phase::HalfOpen { .. } => 2,
    }
}

/// The state that stands there, and its version.
#[inline(never)]
fn found<H: Host>(cell: &SharedCell<H>) -> Option<(State, u32)> {
    let (words, version) = cell.read()?;
    Some((State::unpack(words)?, version))
}

impl<H: Host> BreakerPlace<H> {
    /// The place of the breaker of `key`.
    pub(crate) fn open(
        vm: &Vm<H>,
        shown: &RefCell<Vec<Rc<Shown<H>>>>,
        key: &BreakerKey,
    ) -> BreakerPlace<H> {
        let mut exact = String::new();
        label(&mut exact, "rule", key.rule.as_str());
        let mut readable = exact.clone();
        label_of_name(&mut exact, ["resource", "place"], &key.resource, key.place);
        if key.each {
            // One that comes into a place of another name is shown with the further names.
            let is_reused = key.place.is_some_and(|place| place.is_reused);
            let shown = if is_reused { "" } else { &key.resource };
            label(&mut readable, "resource", shown);
        }
        let grade = key.geometry.grade();
        let mut window = [grade, "_", &window_of(key.geometry.window())].concat();
        if key.geometry.is_sentinel() {
            window.push_str("_compat");
        }
        label(&mut exact, "window", &window);
        let keeper = Keeper::open(vm, &exact, ["breaker_completed", "breaker_bad"]);
        if matches!(keeper, Keeper::Local(_)) {
            return BreakerPlace::Worker(LocalBreaker::default());
        }
        let cell = Rc::new(SharedCell::new(vm.host(), vm.name("breaker", &exact)));
        let changes = matches!(keeper, Keeper::Gauges { .. }).then(|| {
            let changes = gauge(vm, &exact, "breaker_changes");
            changes.map_err(|silent: Silent| silent.warn(vm, EACH_LOOKS_UP))
        });
        let shared = Shared {
            counts: keeper,
            changes: changes.and_then(Result::ok),
            known_at: Cell::new(None),
            ring: Published::new(vm, ["breaker_ring", &exact], key.geometry.window()),
            known: Cell::new((State::new(leapgate::Counts::default()), 0)),
            shown: Shown::find(vm, shown, vm.name("breaker_state", &readable), &cell),
            cell,
            host: vm.host().clone(),
        };
        let closed = State::new(shared.counts());
        shared.cell.put(closed.pack(), Put::IfAbsent);
        if !shared.look_up() {
            let why = "shared data does not work here: the breaker is each worker thread's own";
            vm.warn(&exact, why);
            return BreakerPlace::Worker(LocalBreaker::default());
        }
        shared.step_forward();
        BreakerPlace::Process(shared)
    }

    /// Shows the state, should the gauge show another: a thread whose configuration was another one may have set it. And if
    /// the breaker of the name that was shown is gone.
    pub fn keep_shown(&self) {
        let BreakerPlace::Process(shared) = self else {
            return;
        };
        let is_left = Rc::strong_count(&shared.shown.cell.borrow()) == 1;
        let gauge = shared.shown.gauge.filter(|_| is_left || shared.is_shown());
        if gauge.is_some_and(|gauge| shared.host.read(gauge) != Some(number(shared.known.get().0)))
        {
            shared.step_forward();
        }
    }
}

impl<H: Host> Shown<H> {
    /// The gauge of that name, made if need be for the state that stands in `cell`.
    fn find(
        vm: &Vm<H>,
        all: &RefCell<Vec<Rc<Shown<H>>>>,
        name: String,
        cell: &Rc<SharedCell<H>>,
    ) -> Rc<Shown<H>> {
        let mut all = all.borrow_mut();
        let index = all.partition_point(|shown| shown.name < name);
        if let Some(known) = all.get(index).filter(|shown| shown.name == name) {
            return Rc::clone(known);
        }
        let shown = Rc::new(Shown {
            gauge: vm.host().define_metric(Kind::Gauge, &name),
            name,
            cell: RefCell::new(Rc::clone(cell)),
        });
        all.insert(index, Rc::clone(&shown));
        shown
    }

    /// Shows the state of the breaker that was in use last, and looks again: of several workers that change it at once, the one that shows
    /// it last has seen what it is since.
    #[inline(never)]
    fn show(&self, host: &H) {
        let Some(gauge) = self.gauge else { return };
        let mut told = None;
        for _ in 0..MAX_SHOWN {
            let state = found(&self.cell.borrow()).map(|(state, _)| number(state));
            match state {
                Some(now) if state != told => host.record(gauge, now),
                _ => return,
            };
            told = state;
        }
    }
}

impl<H: Host> Shared<H> {
    /// Looks the state up. Whether that could be done; else what was known goes on.
    fn look_up(&self) -> bool {
        let found = found(&self.cell);
        if let Some(found) = found {
            self.known.set(found);
        }
        found.is_some()
    }

    fn counts(&self) -> leapgate::Counts {
        // Of the two, `bad` is read first and raised last: no ratio is higher than it is.
        let (total, bad) = self.counts.pair().unwrap_or_default();
        leapgate::Counts { total, bad }
    }

    fn reload(&self) {
        // In this order: a worker that changes the state after it was looked up raises the number that was read before.
        let changes = self.changes.and_then(|changes| self.host.read(changes));
        if (changes.is_none() || changes != self.known_at.get()) && self.look_up() {
            self.known_at.set(changes);
        }
    }

    fn replace(&self, current: State, next: State) -> bool {
        let (known, version) = self.known.get();
        // A host takes version 0 for any.
        let is_replaced =
            known == current && version != 0 && self.cell.put(next.pack(), Put::IfVersion(version));
        if let (true, Some(changes)) = (is_replaced, self.changes) {
            self.host.add(changes, 1);
        }
        self.look_up();
        if is_replaced && number(next) != number(current) && self.is_shown() {
            self.shown.show(&self.host);
        }
        is_replaced
    }

    /// Whether this breaker is the one of its name that is shown.
    fn is_shown(&self) -> bool {
        Rc::ptr_eq(&self.shown.cell.borrow(), &self.cell)
    }

    /// From now on this breaker is shown, and no other of its name.
    #[cold]
    #[inline(never)]
    fn step_forward(&self) {
        self.shown.cell.replace(Rc::clone(&self.cell));
        self.shown.show(&self.host);
    }

    fn add(&self, bad: bool) -> leapgate::Counts {
        self.counts.raise(1, bad.into());
        self.counts()
    }
}

/// A breaker whose completions may be those of the process.
type BreakerOf<H> = Breaker<BreakerPlace<H>>;

impl<H: Host> BreakerPlace<H> {
    /// Whether there may be something to be kept up to date, published or made good: while the breaker is asked, and after.
    pub(crate) fn is_moving(&self, breaker: &BreakerOf<H>) -> bool {
        match self {
            BreakerPlace::Process(Shared { ring, counts, .. }) => {
                ring.is_moving(breaker) || counts.owes()
            }
            BreakerPlace::Worker(_) => false,
        }
    }

    /// Tells the others what is known of the window, which has been moved to `now`, and makes good what is owed. Whether
    /// nothing is left, which it can only be `at_once`.
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
            && !shared.is_shown()
        {
            shared.step_forward();
        }
    }

    fn replace(&self, current: State, next: State) -> bool {
        match self {
            BreakerPlace::Process(shared) => shared.replace(current, next),
            BreakerPlace::Worker(local) => local.replace(current, next),
        }
    }

    fn counts(&self) -> leapgate::Counts {
        match self {
            BreakerPlace::Process(shared) => shared.counts(),
            BreakerPlace::Worker(local) => local.counts(),
        }
    }

    fn add(&self, bad: bool) -> leapgate::Counts {
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
