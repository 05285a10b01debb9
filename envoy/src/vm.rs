//! One virtual machine, as the plugins with one root id see it: its host, the names of what it shares with others, the seed
//! of its hashes, and whether it sleeps.

use crate::host::{Host, Kind, Level, MetricId, Put};
use crate::names::{label, named};
use crate::shared::SharedCell;
use once_cell::unsync::OnceCell;
use std::cell::Cell;
use std::rc::Rc;

/// A virtual machine, as the plugins with one root id see it.
pub struct Vm<H> {
    host: H,
    /// The label of the root id; empty if that is `leapgate`, as it is for a filter without one.
    root: String,
    /// Whether limits hold for the process, and not for this virtual machine alone.
    shared: bool,
    /// The seed of the hashes of keys and names in the whole process; `None` if shared data does not work.
    seed: OnceCell<Option<[u64; 2]>>,
    /// How often this virtual machine has woken.
    wakes: Rc<Cell<u32>>,
    /// Whether it must not sleep, because it could not read what other workers publish meanwhile.
    stays_awake: Cell<bool>,
    /// Whether the end of a call may leave changes that are owed.
    may_owe: Cell<bool>,
    /// For how many milliseconds peaks of how full limits are are kept.
    hold_ms: Cell<u64>,
    /// When a peak ends next, in milliseconds.
    look: Cell<u64>,
    /// How many refusals have been repeated since that was exported, and the counter of them.
    repeated: Cell<u64>,
    repeated_counter: OnceCell<MetricId>,
}

impl<H: Host> Vm<H> {
    /// The virtual machine as the plugins with this root id see it.
    pub(crate) fn new(host: H, root_id: &str, shared: bool) -> Vm<H> {
        let mut root = String::new();
        if !root_id.is_empty() && root_id != "leapgate" {
            label(&mut root, "root", root_id);
        }
        Vm {
            host,
            root,
            shared,
            seed: OnceCell::new(),
            wakes: Rc::default(),
            stays_awake: Cell::new(false),
            may_owe: Cell::new(false),
            hold_ms: Cell::new(60_000),
            look: Cell::new(u64::MAX),
            repeated: Cell::new(0),
            repeated_counter: OnceCell::new(),
        }
    }

    /// The host.
    pub(crate) fn host(&self) -> &H {
        &self.host
    }

    /// The label that the names of all metrics have, if any.
    pub fn root(&self) -> &str {
        &self.root
    }

    /// Whether limits hold for the process, and not for this virtual machine alone.
    pub(crate) fn is_shared(&self) -> bool {
        self.shared
    }

    /// The name of `what` with this root id and these labels.
    pub(crate) fn name(&self, what: &str, labels: &str) -> String {
        named(what, &[&self.root, labels])
    }

    /// A seed that no client can guess.
    pub(crate) fn random(&self) -> [u64; 2] {
        let Some(bytes) = self.host.random() else {
            let now = "a client can choose keys that share a window";
            let line = ["leapgate: the host has no random numbers: ", now].concat();
            self.host.log(Level::Warn, &line);
            return [0; 2];
        };
        let number = u128::from_le_bytes(bytes);
        [number as u64, (number >> 64) as u64]
    }

    /// The seed of the process. The first worker that needs it draws it for all.
    pub(crate) fn seed(&self) -> Option<[u64; 2]> {
        *self.seed.get_or_init(|| {
            let cell = SharedCell::new(&self.host, self.name("seed", ""));
            let seed = cell.read().or_else(|| {
                cell.put(self.random(), Put::IfAbsent);
                cell.read()
            });
            seed.map(|(seed, _)| seed)
        })
    }

    /// Counts something that is wrong, in the counter of that name.
    #[cold]
    pub(crate) fn count(&self, what: &str) {
        let metric = self.host.define_metric(Kind::Counter, &self.name(what, ""));
        if let Some(metric) = metric {
            self.host.add(metric, 1);
        }
    }

    /// A refusal has been repeated.
    pub(crate) fn count_repeated(&self) {
        self.repeated.set(self.repeated.get().wrapping_add(1));
    }

    /// Adds to its counter how many refusals have been repeated.
    pub(crate) fn export_repeated(&self) {
        if self.repeated.get() == 0 {
            return;
        }
        let name = || self.name("repeated_refusals", "");
        let define = || self.host.define_metric(Kind::Counter, &name()).ok_or(());
        // If the host does not define a metric now, it may the next time.
        if let Ok(counter) = self.repeated_counter.get_or_try_init(define) {
            self.host.add(*counter, self.repeated.take() as i64);
        }
    }

    /// Logs what does not work for the rule with these labels.
    pub(crate) fn warn(&self, labels: &str, what: &str) {
        let labels = labels.get(1..).unwrap_or("system rules");
        self.host
            .log(Level::Warn, &format!("leapgate: {labels}: {what}"));
    }

    /// How often this virtual machine has woken.
    pub(crate) fn wakes(&self) -> Rc<Cell<u32>> {
        Rc::clone(&self.wakes)
    }

    /// This virtual machine wakes. It takes up what other workers have published with the next request that needs it.
    pub(crate) fn wake(&self) {
        self.wakes.set(self.wakes.get().wrapping_add(1));
    }

    /// Whether this virtual machine may sleep.
    pub(crate) fn may_sleep(&self) -> bool {
        !self.stays_awake.get()
    }

    /// From now on this virtual machine does not sleep.
    pub(crate) fn stay_awake(&self) {
        self.stays_awake.set(true);
    }

    /// From now on the end of a call may leave changes that are owed.
    pub(crate) fn expect_owed(&self) {
        self.may_owe.set(true);
    }

    /// Whether the end of a call may leave changes that are owed.
    pub(crate) fn may_owe(&self) -> bool {
        self.may_owe.get()
    }

    /// From now on peaks are kept for so many milliseconds.
    pub(crate) fn hold_for(&self, hold_ms: u64) {
        self.hold_ms.set(hold_ms);
    }

    /// The slot of a millisecond, of those in which peaks are kept: an eighth of the time for which they are kept.
    pub(crate) fn slot(&self, now: u64) -> u64 {
        now / (self.hold_ms.get() / 8)
    }

    /// When that slot begins.
    pub(crate) fn slot_start(&self, slot: u64) -> u64 {
        slot * (self.hold_ms.get() / 8)
    }

    /// Limits are to be looked at again at the millisecond `at`, if not before.
    pub(crate) fn look_at(&self, at: u64) {
        self.look.set(self.look.get().min(at));
    }

    /// When limits are to be looked at again; the end of time if they need not.
    pub(crate) fn look(&self) -> u64 {
        self.look.get()
    }

    /// Limits are looked at now.
    pub(crate) fn forget_look(&self) {
        self.look.set(u64::MAX);
    }

    /// Sets the gauge of the version of this module: 1 while it runs.
    pub(crate) fn show_version(&self, n: u64) {
        let mut version = String::new();
        label(&mut version, "version", env!("CARGO_PKG_VERSION"));
        let gauge = self
            .host
            .define_metric(Kind::Gauge, &self.name("info", &version));
        if let Some(gauge) = gauge {
            self.host.record(gauge, n);
        }
    }
}
