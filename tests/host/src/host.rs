//! The process: what all its VMs share.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::abi::{MetricKind, Status};

/// One line that a module logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// The VM's name ([`crate::Plugin::vm`]).
    pub vm: String,
    /// 0 trace, 1 debug, 2 info, 3 warn, 4 error, 5 critical.
    pub level: u32,
    /// The text.
    pub text: String,
}

/// A host call that is about to be carried out.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The VM's name ([`crate::Plugin::vm`]).
    pub vm: &'a str,
    /// The call's name without its module, `proxy_get_metric` for one.
    pub name: &'a str,
    /// The fuel that the module has burnt since the callback began: it shows where, between two calls, its time goes.
    pub fuel: u64,
}

type Probe = Rc<dyn Fn(Call<'_>)>;

/// By VM id and key: the value and its compare-and-swap number.
type SharedData = BTreeMap<(String, Vec<u8>), (Vec<u8>, u32)>;

/// A proxy's process: the clock, the metrics, the shared data and the log of all its VMs.
pub struct Host {
    monotonic_ns: Cell<u64>,
    /// Wall clock minus monotonic clock.
    wall_offset_ns: Cell<u64>,
    metrics: RefCell<BTreeMap<(MetricKind, String), u64>>,
    silenced: RefCell<Vec<String>>,
    shared: RefCell<SharedData>,
    latest_cas: Cell<u32>,
    swaps_to_refuse: Cell<u32>,
    log: RefCell<Vec<LogLine>>,
    log_level: Cell<u32>,
    probe: RefCell<Option<Probe>>,
}

/// A machine that booted some days ago.
const START_NS: u64 = 1_000_000_000_000_000;

impl Host {
    /// A fresh process: no metrics, no shared data, log level info.
    pub fn new() -> Rc<Self> {
        Rc::new(Self {
            monotonic_ns: Cell::new(START_NS),
            wall_offset_ns: Cell::new(1_800_000_000_000_000_000 - START_NS),
            metrics: RefCell::default(),
            silenced: RefCell::default(),
            shared: RefCell::default(),
            latest_cas: Cell::new(0),
            swaps_to_refuse: Cell::new(0),
            log: RefCell::default(),
            log_level: Cell::new(2),
            probe: RefCell::default(),
        })
    }

    /// The monotonic clock, in nanoseconds.
    pub fn now_ns(&self) -> u64 {
        self.monotonic_ns.get()
    }

    /// Sets the monotonic clock; it may go back. The wall clock keeps its distance.
    pub fn set_now_ns(&self, now: u64) {
        self.monotonic_ns.set(now);
    }

    /// Lets both clocks run on.
    pub fn advance_ns(&self, by: u64) {
        self.monotonic_ns
            .set(self.monotonic_ns.get().saturating_add(by));
    }

    /// Lets both clocks run on.
    pub fn advance_ms(&self, by: u64) {
        self.advance_ns(by.saturating_mul(1_000_000));
    }

    /// The wall clock, in nanoseconds since 1970.
    pub fn wall_ns(&self) -> u64 {
        self.monotonic_ns
            .get()
            .wrapping_add(self.wall_offset_ns.get())
    }

    /// Moves the wall clock alone, as an administrator or NTP does.
    pub fn set_wall_ns(&self, wall: u64) {
        self.wall_offset_ns
            .set(wall.wrapping_sub(self.monotonic_ns.get()));
    }

    /// A counter's or gauge's value, signed as a module reads a gauge. `None` if it is not defined.
    pub fn metric(&self, name: &str) -> Option<i64> {
        let metrics = self.metrics.borrow();
        [MetricKind::Gauge, MetricKind::Counter]
            .into_iter()
            .find_map(|kind| metrics.get(&(kind, name.to_owned())))
            .map(|value| *value as i64)
    }

    /// All counters and gauges by name.
    pub fn metrics(&self) -> BTreeMap<String, i64> {
        let metrics = self.metrics.borrow();
        metrics
            .iter()
            .filter(|((kind, _), _)| *kind != MetricKind::Histogram)
            .map(|((_, name), value)| (name.clone(), *value as i64))
            .collect()
    }

    /// Sets a gauge from outside, as a hot restart may. It is made where it is missing.
    pub fn set_gauge(&self, name: &str, value: i64) {
        let mut metrics = self.metrics.borrow_mut();
        metrics.insert((MetricKind::Gauge, name.to_owned()), value as u64);
    }

    /// Silences metrics whose names start with `prefix`, as a stats matcher does: every call
    /// succeeds, and reads give 0.
    pub fn silence_metrics(&self, prefix: &str) {
        self.silenced.borrow_mut().push(prefix.to_owned());
    }

    /// The shared data of the VMs with this id, and its compare-and-swap number.
    pub fn shared_data(&self, vm_id: &str, key: &str) -> Option<(Vec<u8>, u32)> {
        self.read_shared(vm_id, key.as_bytes())
    }

    /// Puts shared data as another VM would, regardless of its compare-and-swap number.
    pub fn put_shared_data(&self, vm_id: &str, key: &str, value: &[u8]) {
        self.write_shared(vm_id, key.as_bytes(), value, 0);
    }

    /// The keys of the shared data of the VMs with this id.
    pub fn shared_keys(&self, vm_id: &str) -> Vec<String> {
        let shared = self.shared.borrow();
        let of_vm = shared.keys().filter(|(id, _)| id == vm_id);
        of_vm
            .map(|(_, key)| String::from_utf8_lossy(key).into_owned())
            .collect()
    }

    /// Lets the next `count` compare-and-swaps fail, as if other workers had been faster.
    pub fn refuse_swaps(&self, count: u32) {
        self.swaps_to_refuse.set(count);
    }

    /// What was logged so far.
    pub fn log(&self) -> Vec<LogLine> {
        self.log.borrow().clone()
    }

    /// What was logged since the last such call.
    pub fn take_log(&self) -> Vec<LogLine> {
        self.log.take()
    }

    /// Lines below this level are dropped (0 trace … 5 critical). The level is reported to modules that ask.
    pub fn set_log_level(&self, level: u32) {
        self.log_level.set(level);
    }

    /// Runs `probe` before each host call of every VM: it may move the clock, or run *another* VM, which is how two workers are
    /// interleaved at will.
    pub fn before_each_call(&self, probe: impl Fn(Call<'_>) + 'static) {
        *self.probe.borrow_mut() = Some(Rc::new(probe));
    }

    /// Ends what [`Host::before_each_call`] began.
    pub fn no_probe(&self) {
        *self.probe.borrow_mut() = None;
    }

    pub(crate) fn probe(&self, call: Call<'_>) {
        // Cloned, so that the probe may take itself out.
        let probe = self.probe.borrow().clone();
        if let Some(probe) = probe {
            probe(call);
        }
    }

    pub(crate) fn log_level(&self) -> u32 {
        self.log_level.get()
    }

    pub(crate) fn write_log(&self, vm: &str, level: u32, text: String) {
        if level >= self.log_level.get() {
            let vm = vm.to_owned();
            self.log.borrow_mut().push(LogLine { vm, level, text });
        }
    }

    pub(crate) fn define_metric(&self, kind: MetricKind, name: &str) {
        if !self.is_silenced(name) {
            self.metrics
                .borrow_mut()
                .entry((kind, name.to_owned()))
                .or_insert(0);
        }
    }

    pub(crate) fn increment_metric(&self, kind: MetricKind, name: &str, offset: i64) -> Status {
        match kind {
            MetricKind::Histogram => return Status::BadArgument,
            MetricKind::Counter if offset <= 0 => return Status::BadArgument,
            _ => self.change(kind, name, |value| value.wrapping_add_signed(offset)),
        }
        Status::Ok
    }

    pub(crate) fn record_metric(&self, kind: MetricKind, name: &str, value: u64) {
        match kind {
            MetricKind::Counter => self.change(kind, name, |old| old.wrapping_add(value)),
            MetricKind::Gauge => self.change(kind, name, |_| value),
            // Tests need only how often something was recorded.
            MetricKind::Histogram => self.change(kind, name, |old| old.wrapping_add(1)),
        }
    }

    /// `None` where the ABI has no answer: a histogram.
    pub(crate) fn read_metric(&self, kind: MetricKind, name: &str) -> Option<u64> {
        if kind == MetricKind::Histogram {
            return None;
        }
        let metrics = self.metrics.borrow();
        Some(metrics.get(&(kind, name.to_owned())).copied().unwrap_or(0))
    }

    fn change(&self, kind: MetricKind, name: &str, new: impl FnOnce(u64) -> u64) {
        if let Some(value) = self.metrics.borrow_mut().get_mut(&(kind, name.to_owned())) {
            *value = new(*value);
        }
    }

    fn is_silenced(&self, name: &str) -> bool {
        let silenced = self.silenced.borrow();
        silenced
            .iter()
            .any(|prefix| name.starts_with(prefix.as_str()))
    }

    pub(crate) fn read_shared(&self, vm_id: &str, key: &[u8]) -> Option<(Vec<u8>, u32)> {
        let shared = self.shared.borrow();
        shared.get(&(vm_id.to_owned(), key.to_owned())).cloned()
    }

    pub(crate) fn write_shared(&self, vm_id: &str, key: &[u8], value: &[u8], cas: u32) -> Status {
        let mut shared = self.shared.borrow_mut();
        let key = (vm_id.to_owned(), key.to_owned());
        if cas != 0 {
            let refusals = self.swaps_to_refuse.get();
            self.swaps_to_refuse.set(refusals.saturating_sub(1));
            // An absent key is written with any number: two first writers both succeed, as in Envoy.
            let stale = shared.get(&key).is_some_and(|(_, current)| *current != cas);
            if stale || refusals > 0 {
                return Status::CasMismatch;
            }
        }
        let next = self.latest_cas.get() + 1;
        self.latest_cas.set(next);
        shared.insert(key, (value.to_owned(), next));
        Status::Ok
    }
}
