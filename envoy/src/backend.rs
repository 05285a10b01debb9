//! Where the engine has its counts: what opens them.

use crate::breakers::{BreakerPlace, Shown};
use crate::counters::Counters;
use crate::counts::RuleCounts;
use crate::gauges::{Silent, gauge};
use crate::host::{Host, MetricId};
use crate::inbound::Numbers;
use crate::names::{exact_labels, label, label_of_name, labels};
use crate::pages::{KeyStates, Place};
use crate::places::ProcessPlaces;
use crate::vm::Vm;
use leapgate::{
    BreakerKey, Grade, Key, KeyedGeometry, KeyedPages, NamePlace, Past, Places, StateKey, Tallies,
};
use once_cell::unsync::OnceCell;
use std::cell::RefCell;
use std::fmt::Write;
use std::rc::Rc;

/// The version of what stands in pages of keys: another one has other pages.
const LAYOUT: u32 = 2;

/// What holds without the gauge that says how often lists of names have changed.
const EACH_READS_LIST: &str =
    "each request of a name that no rule knows reads the list of such names from shared data";

/// Opens the counts of rules, of breakers and of names.
pub struct Counts<H> {
    vm: Vm<H>,
    /// What all requests together do; counted where a system rule has asked for it.
    inbound: OnceCell<Option<Rc<Numbers<H>>>>,
    /// How often lists of names have changed; `None` where gauges do not work.
    changes: OnceCell<Option<MetricId>>,
    /// The list of resources.
    resources: OnceCell<Option<Rc<dyn Places>>>,
    /// The gauges that show breakers, by their names.
    shown_breakers: RefCell<Vec<Rc<Shown<H>>>>,
}

impl<H: Host> Counts<H> {
    /// The counts of the plugin with that root id.
    pub fn new(host: H, root_id: &str, shared: bool) -> Counts<H> {
        Counts {
            vm: Vm::new(host, root_id, shared),
            inbound: OnceCell::new(),
            changes: OnceCell::new(),
            resources: OnceCell::new(),
            shown_breakers: RefCell::default(),
        }
    }

    /// The virtual machine.
    pub(crate) fn vm(&self) -> &Vm<H> {
        &self.vm
    }

    /// What all requests together do.
    pub(crate) fn inbound(&self) -> Option<Rc<Numbers<H>>> {
        let open = || Numbers::new(&self.vm).map(Rc::new);
        self.inbound.get_or_init(open).clone()
    }

    /// The list of resources, or of the origins of a resource.
    fn open_list(&self, of: Option<(&str, Option<NamePlace>)>) -> Option<Rc<dyn Places>> {
        let seed = self.vm.is_shared().then(|| self.vm.seed()).flatten()?;
        let mut labels = String::new();
        if let Some((resource, place)) = of {
            label_of_name(&mut labels, ["resource", "place"], resource, place);
        }
        let changes = self.changes.get_or_init(|| {
            let gauge = gauge(&self.vm, "", "names_changes");
            let warn = |silent: Silent| silent.warn(&self.vm, EACH_READS_LIST);
            gauge.map_err(warn).ok()
        });
        let key = self.vm.name("names", &labels);
        let places = ProcessPlaces::new(self.vm.host(), key, seed, *changes);
        Some(Rc::new(places))
    }

    /// What the names of the pages of a rule's keys begin with. It is as short for all, since there may be many of them; no
    /// two rules have the same, and none has that of another number of pages.
    fn name_of_pages(&self, key: &StateKey, geometry: &KeyedGeometry) -> String {
        let mut labels = [self.vm.root(), &exact_labels(key)].concat();
        for part in key.parts.iter() {
            label(&mut labels, "key", &part.to_string());
        }
        let _ = write!(labels, ";pages={}.{LAYOUT}", geometry.max_keys);
        let hash = Key::of_parts([0; 2], [Some(labels.as_bytes())]).hash();
        format!("leapgate.keys.{hash:016x}.")
    }
}

impl<H: Host> Tallies for Counts<H> {
    type Tally = RuleCounts<H>;
    type Keyed = KeyStates<H>;

    fn open(&self, key: &StateKey) -> (RuleCounts<H>, Past) {
        if key.is_beside {
            return (RuleCounts::deciding(&self.vm, labels(key)), Past::Fresh);
        }
        let (names, window) = match key.grade {
            Grade::Concurrency => (["in_flight"; 2], None),
            Grade::Qps { window, .. } => (["tickets", "admitted"], Some(window.window())),
        };
        let labels = [exact_labels(key), labels(key)];
        RuleCounts::open(&self.vm, labels, names, window, key.behavior)
    }

    fn open_keyed(&self, key: &StateKey, geometry: &KeyedGeometry) -> KeyStates<H> {
        let place = |seed| {
            let name = self.name_of_pages(key, geometry);
            (seed, Place::shared(self.vm.host().clone(), name))
        };
        let shared = self
            .vm
            .is_shared()
            .then(|| self.vm.seed())
            .flatten()
            .map(place);
        if self.vm.is_shared() && shared.is_none() {
            let now = "the limit of each key holds for each worker thread alone";
            let why = format!("shared data does not work here: {now}");
            self.vm.warn(&exact_labels(key), &why);
        }
        let (seed, place) =
            shared.unwrap_or_else(|| (self.vm.random(), Place::Local(RefCell::default())));
        let counters = Counters::new(&self.vm, &labels(key));
        KeyStates::new(KeyedPages::new(geometry, seed), place, counters)
    }

    fn open_breaker(&self, key: &BreakerKey) -> BreakerPlace<H> {
        BreakerPlace::open(&self.vm, &self.shown_breakers, key)
    }

    fn places(&self, of: Option<(&str, Option<NamePlace>)>) -> Option<Rc<dyn Places>> {
        if of.is_some() {
            return self.open_list(of);
        }
        self.resources.get_or_init(|| self.open_list(of)).clone()
    }
}
