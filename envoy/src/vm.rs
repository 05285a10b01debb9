//! What all that one virtual machine keeps for a root id has in common: its host, the names of what it shares with others,
//! the seed of its hashes, and its sleep.

use crate::host::{Host, Level, Put};
use crate::names::{label, named};
use crate::shared::SharedCell;
use once_cell::unsync::OnceCell;
use std::cell::Cell;
use std::rc::Rc;

/// A virtual machine, as the plugins with one root id have it.
pub struct Vm<H> {
    host: H,
    /// The label of the root id; empty where that is `leapgate`, as it is for a filter without one.
    root: String,
    /// Whether the limit holds for the process.
    shared: bool,
    /// What keys are hashed with in the whole process; `None` where shared data does not work.
    seed: OnceCell<Option<[u64; 2]>>,
    /// How often this virtual machine has woken.
    wakes: Rc<Cell<u32>>,
    /// Whether what others publish cannot be read: who slept would not know what it has missed.
    stays_awake: Cell<bool>,
    /// Whether the end of a call may leave something to be made good.
    may_owe: Cell<bool>,
}

impl<H: Host> Vm<H> {
    /// The virtual machine as the plugins with that root id have it.
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

    /// Whether the limit holds for the process.
    pub(crate) fn is_shared(&self) -> bool {
        self.shared
    }

    /// The name of `what` of this root id, with these labels besides.
    pub(crate) fn name(&self, what: &str, labels: &str) -> String {
        named(what, &[&self.root, labels])
    }

    /// Two numbers that no client can guess.
    pub(crate) fn random(&self) -> [u64; 2] {
        let Some(bytes) = self.host.random() else {
            let now = "whoever knows this filter can make keys that share a window";
            let line = ["leapgate: the host has no random numbers: ", now].concat();
            self.host.log(Level::Warn, &line);
            return [0; 2];
        };
        let number = u128::from_le_bytes(bytes);
        [number as u64, (number >> 64) as u64]
    }

    /// What keys are hashed with: drawn by the first that needs it, for all.
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

    /// Says in the log what is missing, of what has these labels.
    pub(crate) fn warn(&self, labels: &str, what: &str) {
        let labels = labels.get(1..).unwrap_or("system rules");
        self.host
            .log(Level::Warn, &format!("leapgate: {labels}: {what}"));
    }

    /// How often this virtual machine has woken.
    pub(crate) fn wakes(&self) -> Rc<Cell<u32>> {
        Rc::clone(&self.wakes)
    }

    /// This virtual machine wakes: what others have published meanwhile is taken up with the next request for it.
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

    /// From now on the end of a call may leave something to be made good.
    pub(crate) fn expect_debts(&self) {
        self.may_owe.set(true);
    }

    /// Whether the end of a call may leave something to be made good.
    pub(crate) fn may_owe(&self) -> bool {
        self.may_owe.get()
    }
}
