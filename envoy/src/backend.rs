//! The engine's backend in Envoy: opens the counts of rules, keys and breakers, and the lists of names.

use crate::breakers::{BreakerPlace, StateGauge};
use crate::counts::RuleCounts;
use crate::gauges::{SilentGauge, gauge};
use crate::holds::{Counts, Holder, Holds};
use crate::host::{Host, MetricId};
use crate::inbound::Numbers;
use crate::leases::Leases;
use crate::names::{exact_labels, label, label_of_name, labels};
use crate::pages::{KeyStates, Pages};
use crate::places::ProcessPlaces;
use crate::vm::Vm;
use leapgate::backend::{
    Backend, BreakerKey, Key, KeyedGeometry, KeyedPages, Leased, Leasing, NamePlace, NotLeased,
    Past, Places, StateKey,
};
use leapgate::rule::Grade;
use once_cell::unsync::OnceCell;
use std::cell::RefCell;
use std::fmt::Write;
use std::rc::Rc;

/// The version of the layout of pages of keys: another layout has other pages.
const LAYOUT: u32 = KeyedPages::LAYOUT;

/// What holds if the gauge of changes to lists of names does not work.
const EACH_READS_LIST: &str =
    "each request of a name that no rule knows reads the list of such names from shared data";

/// Opens what the engine counts in.
pub struct EnvoyBackend<H: Host> {
    vm: Rc<Vm<H>>,
    /// What this virtual machine holds, and its watch over others.
    holder: Rc<Holder<H>>,
    /// What is leased from the store.
    leases: Rc<Leases<H>>,
    /// What all requests together do; opened by the first system rule.
    inbound: OnceCell<Option<Rc<Numbers<H>>>>,
    /// The gauge of changes to lists of names; `None` if gauges do not work.
    changes: OnceCell<Option<MetricId>>,
    /// The list of resources.
    resources: OnceCell<Option<Rc<dyn Places>>>,
    /// The gauges of breakers' states, sorted by name.
    state_gauges: RefCell<Vec<Rc<StateGauge<H>>>>,
}

impl<H: Host> EnvoyBackend<H> {
    /// The backend of the plugins with this root id; its counts are the process's if `shared`.
    pub fn new(host: H, root_id: &str, shared: bool) -> EnvoyBackend<H> {
        let vm = Rc::new(Vm::new(host, root_id, shared));
        EnvoyBackend {
            holder: Rc::new(Holder::new(&vm)),
            leases: Leases::new(&vm),
            vm,
            inbound: OnceCell::new(),
            changes: OnceCell::new(),
            resources: OnceCell::new(),
            state_gauges: RefCell::default(),
        }
    }

    /// The virtual machine.
    pub(crate) fn vm(&self) -> &Vm<H> {
        &self.vm
    }

    /// What this virtual machine holds, and its watch over others.
    pub(crate) fn holder(&self) -> &Holder<H> {
        &self.holder
    }

    /// What is leased from the store.
    pub(crate) fn leases(&self) -> &Rc<Leases<H>> {
        &self.leases
    }

    /// What all requests together do.
    pub(crate) fn inbound(&self) -> Option<Rc<Numbers<H>>> {
        let open = || Numbers::new(&self.vm, &self.holder).map(Rc::new);
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
            let warn = |silent: SilentGauge| silent.warn(&self.vm, EACH_READS_LIST);
            gauge.map_err(warn).ok()
        });
        let key = self.vm.name("names", &labels);
        let places = ProcessPlaces::new(self.vm.host(), key, seed, *changes);
        Some(Rc::new(places))
    }

    /// The prefix of the names of a rule's pages. It is short, since there may be many pages, and differs between rules,
    /// layouts and numbers of pages.
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

impl<H: Host> Backend for EnvoyBackend<H> {
    type Counter = RuleCounts<H>;
    type Keyed = KeyStates<H>;
    type Breaker = BreakerPlace<H>;
    const STATISTICS: bool = false;
    const LEASES: bool = true;

    fn lease(&self, key: &StateKey, leasing: &Leasing<'_>) -> Result<Rc<dyn Leased>, NotLeased> {
        let permits = self.leases.open(key, leasing, labels(key))?;
        Ok(permits)
    }

    fn opens_late(&self) -> bool {
        // What other workers have admitted by then is in the ring that they publish, if shared data works.
        !self.vm.is_shared() || self.vm.seed().is_some()
    }

    fn is_open_elsewhere(&self, key: &StateKey) -> bool {
        // Gauges go with the last virtual machine that has defined them, and then the ring is of no use.
        let ring = || self.vm.name("ring", &exact_labels(key));
        self.vm.is_shared() && self.vm.host().shared(&ring()).is_some()
    }

    fn open(&self, key: &StateKey) -> (RuleCounts<H>, Past) {
        if key.is_beside {
            return (RuleCounts::local(&self.vm, labels(key)), Past::Fresh);
        }
        let (names, window, counts) = match key.grade {
            Grade::Concurrency => (["in_flight"; 2], None, Counts::InFlight),
            Grade::Qps { window, .. } => {
                let window = Some(window.window());
                (["tickets", "admitted"], window, Counts::Admitted)
            }
        };
        let labels = [exact_labels(key), labels(key)];
        let holds = Holds::new(&self.holder, counts, &labels[0]);
        let (counts, past) = RuleCounts::open(&self.vm, labels, names, window, key.behavior);
        (counts.holding(holds), past)
    }

    fn open_keyed(&self, key: &StateKey, geometry: &KeyedGeometry) -> KeyStates<H> {
        let place = |seed| {
            let name = self.name_of_pages(key, geometry);
            (seed, Pages::shared(self.vm.host().clone(), name))
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
            shared.unwrap_or_else(|| (self.vm.random(), Pages::Local(RefCell::default())));
        KeyStates::new(
            KeyedPages::new(geometry, seed),
            place,
            (&self.vm, &labels(key)),
            &self.holder,
        )
    }

    fn open_breaker(&self, key: &BreakerKey) -> BreakerPlace<H> {
        BreakerPlace::open(&self.vm, &self.state_gauges, key)
    }

    const PLACES: bool = true;

    fn places(&self, of: Option<(&str, Option<NamePlace>)>) -> Option<Rc<dyn Places>> {
        if of.is_some() {
            return self.open_list(of);
        }
        self.resources.get_or_init(|| self.open_list(of)).clone()
    }
}
