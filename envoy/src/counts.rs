//! Where the counts of a rule are kept, so that the limit holds for the process.
//!
//! A rule has two gauges of Envoy's, `tickets` and `admitted`: numbers that all worker threads share. Where gauges do not
//! work (a stats matcher can silence them: then they read 0 for ever), the two numbers stand in shared data and are changed by
//! compare-and-swap. Where that does not work either, or where the scope is the worker, they are this virtual machine's own.
//!
//! Names of gauges ([`crate::names`]) hold the root id, the rule's id and the window's geometry, and are the same only for the
//! same window.

use crate::breakers::{BreakerPlace, Shown};
use crate::host::{Host, Kind, Level, MetricId, Put};
use crate::inbound::Numbers;
use crate::names::{label, named};
use crate::pages::{KeyStates, Pages};
use crate::places::ProcessPlaces;
use crate::ring::Published;
use leapgate::Timestamp;
use leapgate::backend::{
    BreakerKey, Controller, Key, KeyedGeometry, KeyedPages, LocalInstant, LocalTally, NamePlace,
    Past, Places, RuleWindow, SharedInstant, StateKey, Tallies, Tally,
};
use leapgate::rule::{ControlBehavior, Grade, Strategy};
use leapgate::stats::Window;
use once_cell::unsync::OnceCell;
use std::cell::{Cell, RefCell};
use std::fmt::Write;
use std::rc::Rc;

/// How often a compare-and-swap is tried before the request is refused.
const MAX_SWAPS: u32 = 32;

/// What is added to a gauge that reads 0, and taken away again, to see whether it counts: more than any count. Counts stand
/// in the bits below ([`count`]), so a worker that looks in between sees them as they are, and none that falls.
const PROBE: u64 = 1 << 48;

/// The version of what stands in pages of keys: another one has other pages.
const LAYOUT: u32 = KeyedPages::LAYOUT;

/// What holds without the gauge that says how often lists of names have changed.
const EACH_READS_LIST: &str =
    "each request of a name that no rule knows reads the list of such names from shared data";

/// A gauge that does not count, by its name.
pub(crate) struct Silent(String);

/// Makes the counts of rules.
pub struct Counts<H> {
    host: H,
    /// The label of the root id; empty where that is `leapgate`, as it is for a filter without one.
    root: String,
    /// Whether the limit holds for the process.
    shared: bool,
    /// What all requests together do; counted where a system rule has asked for it.
    inbound: OnceCell<Option<Rc<Numbers<H>>>>,
    /// What keys are hashed with in the whole process; `None` where shared data does not work.
    seed: OnceCell<Option<[u64; 2]>>,
    /// How often lists of names have changed; `None` where gauges do not work.
    changes: OnceCell<Option<MetricId>>,
    /// The list of resources.
    resources: OnceCell<Option<Rc<dyn Places>>>,
    /// The gauges that show breakers, by their names.
    shown_breakers: RefCell<Vec<Rc<Shown>>>,
    /// How often this virtual machine has woken.
    wakes: Rc<Cell<u32>>,
    /// Whether what others publish cannot be read: who slept would not know what it has missed.
    stays_awake: Cell<bool>,
    /// Whether the end of a call may leave something to be made good.
    may_owe: Cell<bool>,
}

impl<H: Host> Counts<H> {
    /// The counts of the plugin with that root id.
    pub fn new(host: H, root_id: &str, shared: bool) -> Counts<H> {
        let mut root = String::new();
        if !root_id.is_empty() && root_id != "leapgate" {
            label(&mut root, "root", root_id);
        }
        Counts {
            host,
            root,
            shared,
            inbound: OnceCell::new(),
            seed: OnceCell::new(),
            changes: OnceCell::new(),
            resources: OnceCell::new(),
            shown_breakers: RefCell::default(),
            wakes: Rc::default(),
            stays_awake: Cell::new(false),
            may_owe: Cell::new(false),
        }
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

    /// Whether the end of a call may leave something to be made good.
    pub(crate) fn may_owe(&self) -> bool {
        self.may_owe.get()
    }

    /// What all requests together do.
    pub(crate) fn inbound(&self) -> Option<Rc<Numbers<H>>> {
        let numbers = self.inbound.get_or_init(|| Numbers::new(self).map(Rc::new));
        numbers.clone()
    }

    /// Whether the limit holds for the process.
    pub(crate) fn is_shared(&self) -> bool {
        self.shared
    }

    /// The name of `what` of this root id, with these labels besides.
    pub(crate) fn name(&self, what: &str, labels: &str) -> String {
        named(what, &[&self.root, labels])
    }

    /// Two running counts that are not a rule's, called `names`, and what is known of the past of a `window` over them.
    pub(crate) fn open_as(
        &self,
        names: [&str; 2],
        window: Option<Window>,
    ) -> (RuleCounts<H>, Past) {
        let labels = [String::new(), String::new()];
        self.open_called(labels, names, window, ControlBehavior::Reject)
    }

    /// The gauges that show breakers, by their names.
    pub(crate) fn shown_breakers(&self) -> &RefCell<Vec<Rc<Shown>>> {
        &self.shown_breakers
    }

    /// The list of resources, or of the origins of a resource.
    fn open_list(&self, of: Option<(&str, Option<NamePlace>)>) -> Option<Rc<dyn Places>> {
        let seed = self.shared.then(|| self.seed()).flatten()?;
        let mut labels = String::new();
        if let Some((resource, place)) = of {
            label_of_name(&mut labels, ["resource", "place"], resource, place);
        }
        let changes = self.changes.get_or_init(|| {
            let gauge = self.gauge("", "names_changes");
            let silent = |silent| self.warn_of(silent, EACH_READS_LIST);
            gauge.map_err(silent).ok()
        });
        let key = self.name("names", &labels);
        let places = ProcessPlaces::new(self.host.clone(), key, seed, *changes);
        Some(Rc::new(places))
    }

    /// The host.
    pub(crate) fn host(&self) -> &H {
        &self.host
    }

    fn counters(&self, labels: String) -> Counters<H> {
        Counters {
            host: self.host.clone(),
            labels: [&self.root, labels.as_str()].concat(),
            counters: OnceCell::new(),
            told: Cell::new([0; 3]),
        }
    }

    fn gauges(&self, labels: &str, [first, second]: [&str; 2]) -> Result<Keeper<H>, Silent> {
        let tickets = self.gauge(labels, first)?;
        let admitted = if second == first {
            tickets
        } else {
            self.gauge(labels, second)?
        };
        Ok(Keeper::Gauges {
            host: self.host.clone(),
            tickets,
            admitted,
        })
    }

    /// The gauge called `what` of what has these labels, if it counts.
    pub(crate) fn gauge(&self, labels: &str, what: &str) -> Result<MetricId, Silent> {
        let name = self.name(what, labels);
        let gauge = self.host.define_metric(Kind::Gauge, &name);
        gauge.filter(|gauge| self.works(*gauge)).ok_or(Silent(name))
    }

    /// Says in the log that a gauge does not count, and what holds `now`.
    pub(crate) fn warn_of(&self, Silent(gauge): Silent, now: &str) {
        let why = "` does not count (does a stats_matcher exclude it?): ";
        let line = ["leapgate: the gauge `wasmcustom.", &gauge, why, now].concat();
        self.host.log(Level::Warn, &line);
    }

    /// Whether a gauge counts: one that a stats matcher excludes takes everything and reads 0.
    fn works(&self, gauge: MetricId) -> bool {
        let counts = || self.host.read(gauge).is_some_and(|n| n > 0);
        counts() || {
            let works = self.host.add(gauge, PROBE as i64) && counts();
            self.host.add(gauge, -(PROBE as i64));
            works
        }
    }

    fn shared_data(&self, labels: &str, [first, _]: [&str; 2]) -> Option<Keeper<H>> {
        let key = self.name(&[first, "_counts"].concat(), labels);
        self.host.share(&key, &pair(0, 0), Put::IfAbsent);
        let place = Swapped {
            host: self.host.clone(),
            key,
            owed: Cell::new((0, 0)),
        };
        self.may_owe.set(true);
        place.read().map(|_| Keeper::SharedData(place))
    }

    fn random(&self) -> [u8; 16] {
        self.host.random().unwrap_or_else(|| {
            let now = "whoever knows this filter can make keys that share a window";
            let line = format!("leapgate: the host has no random numbers: {now}");
            self.host.log(Level::Warn, &line);
            [0; 16]
        })
    }

    /// What keys are hashed with: drawn by the first that needs it, for all.
    fn seed(&self) -> Option<[u64; 2]> {
        *self.seed.get_or_init(|| {
            let place = self.name("seed", "");
            if self.host.shared(&place).is_none() {
                self.host.share(&place, &self.random(), Put::IfAbsent);
            }
            unpair(&self.host.shared(&place)?.bytes).map(|(first, second)| [first, second])
        })
    }

    /// What the names of the pages of a rule's keys begin with. It is as short for all, since there may be many of them; no
    /// two rules have the same, and none has that of another number of pages.
    fn name_of_pages(&self, key: &StateKey, geometry: &KeyedGeometry) -> String {
        let mut labels = self.root.clone() + &exact_labels(key);
        for part in key.parts.iter() {
            label(&mut labels, "key", &part.to_string());
        }
        let _ = write!(labels, ";pages={}.{LAYOUT}", geometry.max_keys);
        let hash = Key::of_parts([0; 2], [Some(labels.as_bytes())]).hash();
        format!("leapgate.keys.{hash:016x}.")
    }

    /// How far the turns of a rule reach that behaves so, if it takes turns.
    fn latest(&self, labels: &str, behavior: ControlBehavior) -> Latest<H> {
        if !self.shared || !behavior.is_paced() {
            return Latest::Local(LocalInstant::default());
        }
        let key = self.name("latest", labels);
        self.host.share(&key, &[0; 8], Put::IfAbsent);
        let place = SharedNanos {
            host: self.host.clone(),
            key,
            seen: Cell::new(None),
        };
        if place.read().is_some() {
            return Latest::Shared(place);
        }
        self.warn(
            labels,
            "shared data does not work here: it paces each worker thread alone",
        );
        Latest::Local(LocalInstant::default())
    }

    /// The label that the names of all metrics have, if any.
    pub fn root(&self) -> &str {
        &self.root
    }

    /// Says in the log what is missing, of what has these labels.
    pub(crate) fn warn(&self, labels: &str, what: &str) {
        let labels = labels.get(1..).unwrap_or("system rules");
        self.host
            .log(Level::Warn, &format!("leapgate: {labels}: {what}"));
    }

    /// Where two running counts are kept; as gauges they are called `names`, and are one if these are the same.
    pub(crate) fn keeper(&self, labels: &str, names: [&str; 2]) -> Keeper<H> {
        if !self.shared {
            return Keeper::Local(LocalTally::default());
        }
        let silent = match self.gauges(labels, names) {
            Ok(gauges) => return gauges,
            Err(silent) => silent,
        };
        match self.shared_data(labels, names) {
            Some(shared_data) => {
                let now = "what it counts stands in shared data, changed by compare-and-swap, and requests are refused where that is contended";
                self.warn_of(silent, now);
                shared_data
            }
            None => {
                let now = "its limit holds for each worker thread alone";
                self.warn(
                    labels,
                    &format!("neither gauges nor shared data work here: {now}"),
                );
                Keeper::Local(LocalTally::default())
            }
        }
    }
}

/// What a gauge has counted.
#[inline(always)]
fn count<H: Host>(host: &H, gauge: MetricId) -> Option<u64> {
    host.read(gauge).map(|n| n % PROBE)
}

/// The labels under which the decisions for `key` are shown: the rule, and what it counts apart. There are no more of them than
/// places: a name that comes into a place of another one is shown with the further names.
fn labels(key: &StateKey) -> String {
    let mut labels = String::new();
    label(&mut labels, "rule", key.rule.as_str());
    let shown = |name: &Option<Rc<str>>, place: Option<NamePlace>| match place {
        Some(place) if place.is_reused => Some("".into()),
        _ => name.clone(),
    };
    if let Some(resource) = shown(&key.resource, key.resource_place) {
        label(&mut labels, "resource", &resource);
    }
    if let Some(origin) = shown(&key.origin, key.origin_place) {
        label(&mut labels, "origin", &origin);
    }
    labels
}

/// Appends the label of a name, or, where it has one, of its place.
pub(crate) fn label_of_name(
    labels: &mut String,
    [name, place]: [&str; 2],
    value: &str,
    has_place: Option<NamePlace>,
) {
    match has_place {
        None => label(labels, name, value),
        Some(NamePlace { index, .. }) => label(labels, place, &index.to_string()),
    }
}

/// The labels of what `key` counts: no two keys have the same, but for names that have the same place in turn.
fn exact_labels(key: &StateKey) -> String {
    let mut labels = String::new();
    label(&mut labels, "rule", key.rule.as_str());
    if let Some(resource) = &key.resource {
        label_of_name(
            &mut labels,
            ["resource", "place"],
            resource,
            key.resource_place,
        );
    }
    if let Some(origin) = &key.origin {
        label_of_name(
            &mut labels,
            ["origin", "originplace"],
            origin,
            key.origin_place,
        );
    }
    match &key.strategy {
        Strategy::Direct => {}
        Strategy::Relate(measured) => label(&mut labels, "relate", measured),
        Strategy::Chain(context) => label(&mut labels, "chain", context),
    }
    let mut window = String::new();
    if let Grade::Qps { window: of, .. } = key.grade {
        window = window_of(of.window());
    }
    window.push_str(match key.behavior {
        ControlBehavior::Reject => "",
        ControlBehavior::WarmUp => "_warmUp",
        ControlBehavior::Throttle => "_throttle",
        ControlBehavior::WarmUpThrottle => "_warmUpThrottle",
    });
    if key.compat {
        window.push_str("_compat");
    }
    if !window.is_empty() {
        label(&mut labels, "window", window.trim_start_matches('_'));
    }
    labels
}

/// A geometry, as names have it.
pub(crate) fn window_of(window: Window) -> String {
    format!("{}ms_{}", window.interval_ms(), window.sample_count())
}

/// The counts of one rule.
pub struct RuleCounts<H> {
    keeper: Keeper<H>,
    host: H,
    /// Where the ring is published; `None` where no other virtual machine could go on with it.
    ring: Option<Published<H>>,
    /// How far the turns of a throttle reach.
    latest: Latest<H>,
    /// Where workers tell one another how warm the rule is, if it warms up.
    warmth_key: Option<String>,
    counters: Counters<H>,
    /// How often it has made a request wait.
    waited: Late,
}

/// What stands in the log and the dashboards of one rule: made when there is something to write there.
pub(crate) struct Counters<H> {
    host: H,
    labels: String,
    counters: OnceCell<[MetricId; 3]>,
    told: Cell<[u64; 3]>,
}

/// One more counter of a rule, made when there is something to count.
#[derive(Default)]
pub(crate) struct Late {
    counter: OnceCell<MetricId>,
    told: Cell<u64>,
}

impl Late {
    /// Whether there is something to tell.
    fn is_behind(&self, now: u64) -> bool {
        self.told.get() != now
    }
}

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

impl<H: Host> Tallies for Counts<H> {
    type Tally = RuleCounts<H>;
    type Keyed = KeyStates<H>;

    fn open(&self, key: &StateKey) -> (RuleCounts<H>, Past) {
        if key.is_beside {
            return (self.deciding(labels(key)), Past::Fresh);
        }
        let (names, window) = match key.grade {
            Grade::Concurrency => (["in_flight"; 2], None),
            Grade::Qps { window, .. } => (["tickets", "admitted"], Some(window.window())),
        };
        self.open_called(
            [exact_labels(key), labels(key)],
            names,
            window,
            key.behavior,
        )
    }

    fn open_keyed(&self, key: &StateKey, geometry: &KeyedGeometry) -> KeyStates<H> {
        let place = |seed: Option<[u64; 2]>| {
            Some((
                seed?,
                Pages::shared(self.host.clone(), self.name_of_pages(key, geometry)),
            ))
        };
        let shared = self.shared.then(|| self.seed()).and_then(place);
        if self.shared && shared.is_none() {
            let now = "the limit of each key holds for each worker thread alone";
            let why = format!("shared data does not work here: {now}");
            self.warn(&exact_labels(key), &why);
        }
        let (seed, place) = shared.unwrap_or_else(|| {
            let (first, second) = unpair(&self.random()).unwrap_or_default();
            ([first, second], Pages::Local(RefCell::default()))
        });
        let counters = self.counters(labels(key));
        KeyStates::new(KeyedPages::new(geometry, seed), place, counters)
    }

    fn open_breaker(&self, key: &BreakerKey) -> BreakerPlace<H> {
        BreakerPlace::open(self, key)
    }

    fn places(&self, of: Option<(&str, Option<NamePlace>)>) -> Option<Rc<dyn Places>> {
        if of.is_some() {
            return self.open_list(of);
        }
        self.resources.get_or_init(|| self.open_list(of)).clone()
    }
}

impl<H: Host> Keeper<H> {
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
        matches!(self, Keeper::SharedData(place) if place.owed.get() != (0, 0))
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
}

impl<H: Host> Counts<H> {
    /// Of a rule that has decisions to tell, and counts nothing that others share.
    fn deciding(&self, labels: String) -> RuleCounts<H> {
        RuleCounts {
            keeper: Keeper::Local(LocalTally::default()),
            host: self.host.clone(),
            ring: None,
            latest: Latest::Local(LocalInstant::default()),
            warmth_key: None,
            counters: self.counters(labels),
            waited: Late::default(),
        }
    }

    fn open_called(
        &self,
        [exact, readable]: [String; 2],
        names: [&str; 2],
        window: Option<Window>,
        behavior: ControlBehavior,
    ) -> (RuleCounts<H>, Past) {
        // A throttle has turns, and counts nothing.
        let keeper = if window.is_some() && behavior == ControlBehavior::Throttle {
            Keeper::Local(LocalTally::default())
        } else {
            self.keeper(&exact, names)
        };
        let mut counts = RuleCounts {
            keeper,
            latest: self.latest(&exact, behavior),
            warmth_key: (self.shared && behavior.warms_up()).then(|| self.name("warmth", &exact)),
            ..self.deciding(readable)
        };
        let past = match (window, counts.admitted()) {
            (Some(window), Some(admitted)) => {
                let ring = Published::new(self, ["ring", &exact], window);
                let kept = ring.wake(&|| Some([admitted; 2]));
                if kept.is_none() && !ring.begin(admitted > 0) {
                    self.stays_awake.set(true);
                }
                counts.ring = Some(ring);
                match kept.filter(|kept| !kept.counts.is_empty()) {
                    Some(kept) => Past::Kept(kept),
                    None if admitted == 0 => Past::Fresh,
                    None => Past::Unknown { admitted },
                }
            }
            _ => Past::Fresh,
        };
        (counts, past)
    }
}

impl<H: Host> Counters<H> {
    /// Whether there is something to tell; at first there is that it is nothing.
    fn is_behind(&self, now: [u64; 3]) -> bool {
        self.counters.get().is_none() || self.told.get() != now
    }

    /// Tells the host what has passed, was blocked, and would have been, since the last time.
    pub(crate) fn tell(&self, now: [u64; 3]) {
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
        // Where the host makes no metric now, it may the next time.
        let Ok(counters) = counters else { return };
        for ((counter, now), told) in counters.iter().zip(now).zip(self.told.get()) {
            let more = now.wrapping_sub(told) as i64;
            if more > 0 {
                self.host.add(*counter, more);
            }
        }
        self.told.set(now);
    }

    /// The same of a counter called `what`. Whether it has been told for the first time.
    pub(crate) fn tell_late(&self, late: &Late, what: &str, now: u64) -> bool {
        let told = late.told.get();
        let more = now.wrapping_sub(told);
        if more == 0 {
            return false;
        }
        let counter = late.counter.get_or_try_init(|| {
            let name = named(what, &[&self.labels]);
            self.host.define_metric(Kind::Counter, &name).ok_or(())
        });
        let Ok(counter) = counter else { return false };
        self.host.add(*counter, more as i64);
        late.told.set(now);
        told == 0
    }
}

impl<H: Host> RuleCounts<H> {
    /// Whether there may be something to be kept up to date, told or made good: while its window is asked for, and after.
    pub fn is_moving(&self, state: &Controller<RuleCounts<H>>) -> bool {
        let is_behind = |window: &RuleWindow<Self>| {
            let ring = self.ring.as_ref();
            window.lends() || ring.is_some_and(|ring| ring.is_moving(window))
        };
        self.counters.is_behind(decisions(state))
            || self.waited.is_behind(state.waited())
            || self.keeper.owes()
            || state.window().is_some_and(is_behind)
    }

    /// Tells the host's counters what has happened since the last time, and the others what is known of the window, which has
    /// been advanced to `now`; makes good what is owed. Whether nothing is left, which it can only be `at_once`.
    pub fn settle(&self, state: &Controller<RuleCounts<H>>, now: Timestamp, at_once: bool) -> bool {
        self.counters
            .tell_late(&self.waited, "waited", state.waited());
        self.counters.tell(decisions(state));
        let is_told = state
            .window()
            .is_none_or(|window| self.publish(window, now, at_once) && !window.lends());
        self.keeper.settle() && is_told
    }

    /// Tells the others what is known of the window; if `at_once`, so that it can rest. Whether they know all by now.
    pub(crate) fn publish(&self, window: &RuleWindow<Self>, now: Timestamp, at_once: bool) -> bool {
        let Some(ring) = &self.ring else { return true };
        let is_told = ring.publish(window, now, at_once);
        if at_once {
            window.rest();
        }
        is_told
    }

    /// Makes good what is owed. Whether nothing is any more.
    pub(crate) fn pay(&self) -> bool {
        self.keeper.settle()
    }
}

/// How often a rule has let pass, refused, and would have refused.
fn decisions<T: Tally>(state: &Controller<T>) -> [u64; 3] {
    [state.passed(), state.blocked(), state.shadow_blocked()]
}

impl<H: Host> Tally for RuleCounts<H> {
    const STATISTICS: bool = false;
    type Breaker = BreakerPlace<H>;

    fn latest(&self) -> &impl SharedInstant {
        &self.latest
    }

    fn warmth(&self) -> Option<[u64; 4]> {
        let bytes = self.host.shared(self.warmth_key.as_deref()?)?.bytes;
        let (numbers, rest) = bytes.as_chunks::<8>();
        let mut warmth = [0; 4];
        if numbers.len() != warmth.len() || !rest.is_empty() {
            return None;
        }
        for (number, bytes) in warmth.iter_mut().zip(numbers) {
            *number = u64::from_le_bytes(*bytes);
        }
        Some(warmth)
    }

    fn tell_warmth(&self, warmth: [u64; 4]) {
        if let Some(key) = &self.warmth_key {
            // Where that fails, the others go by what they see themselves.
            let bytes = warmth.map(u64::to_le_bytes);
            self.host.share(key, bytes.as_flattened(), Put::Always);
        }
    }

    fn published(&self) -> Option<Past> {
        let now = || Some([self.admitted()?; 2]);
        let kept = self.ring.as_ref()?.wake(&now)?;
        Some(match kept.counts.is_empty() {
            true => Past::Unknown { admitted: 0 },
            false => Past::Kept(kept),
        })
    }

    fn fallen(&self) {
        self.ring.iter().for_each(Published::invalidate);
    }

    #[inline]
    fn admitted(&self) -> Option<u64> {
        match &self.keeper {
            Keeper::Gauges { host, admitted, .. } => count(host, *admitted),
            Keeper::SharedData(place) => place.read().map(|(_, admitted)| admitted),
            Keeper::Local(_) => None,
        }
    }

    #[inline]
    fn tickets(&self) -> u64 {
        match &self.keeper {
            // What cannot be read counts as full.
            Keeper::Gauges { host, tickets, .. } => count(host, *tickets).unwrap_or(u64::MAX),
            Keeper::SharedData(place) => place.read().map_or(u64::MAX, |(tickets, _)| tickets),
            Keeper::Local(tally) => tally.tickets(),
        }
    }

    #[inline]
    fn take(&self, n: u64) -> Option<u64> {
        match &self.keeper {
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

    fn give_back(&self, n: u64) {
        match &self.keeper {
            Keeper::Gauges { host, tickets, .. } => {
                host.add(*tickets, -(n as i64));
            }
            Keeper::SharedData(place) => place.change_or_owe(-(n as i64), 0),
            Keeper::Local(tally) => tally.give_back(n),
        }
    }

    #[inline]
    fn commit(&self, n: u64) {
        match &self.keeper {
            Keeper::Gauges { host, admitted, .. } => {
                // A limit on calls in flight has no second gauge to raise.
                host.add(*admitted, n as i64);
            }
            Keeper::SharedData(place) => place.change_or_owe(0, n as i64),
            Keeper::Local(tally) => tally.commit(n),
        }
    }
}

/// How far the turns of a throttle reach.
enum Latest<H> {
    /// For the process.
    Shared(SharedNanos<H>),
    /// In this virtual machine alone, or for a rule without turns.
    Local(LocalInstant),
}

impl<H: Host> SharedInstant for Latest<H> {
    fn get(&self) -> Option<Timestamp> {
        match self {
            Latest::Shared(place) => place.get(),
            Latest::Local(instant) => instant.get(),
        }
    }

    fn swap(&self, from: Option<Timestamp>, to: Option<Timestamp>) -> bool {
        match self {
            Latest::Shared(place) => place.swap(from, to),
            Latest::Local(instant) => instant.swap(from, to),
        }
    }
}

/// An instant in a place of shared data: its nanoseconds, in eight bytes; 0 where there is none yet.
struct SharedNanos<H> {
    host: H,
    key: String,
    /// What was read last, and its version: what stands there in that version is that. A swap needs no look of its own.
    seen: Cell<Option<(u64, u32)>>,
}

impl<H: Host> SharedNanos<H> {
    fn read(&self) -> Option<(u64, u32)> {
        let value = self.host.shared(&self.key)?;
        let nanos = u64::from_le_bytes(value.bytes.try_into().ok()?);
        Some((nanos, value.cas))
    }
}

impl<H: Host> SharedInstant for SharedNanos<H> {
    fn get(&self) -> Option<Timestamp> {
        let seen = self.read();
        self.seen.set(seen);
        // What cannot be read is as far off as can be: nobody has a turn.
        let nanos = seen.map_or(u64::MAX, |(nanos, _)| nanos);
        (nanos > 0).then(|| Timestamp::from_nanos(nanos))
    }

    fn swap(&self, from: Option<Timestamp>, to: Option<Timestamp>) -> bool {
        let nanos = |instant: Option<Timestamp>| instant.map_or(0, Timestamp::as_nanos);
        let Some((seen, version)) = self.seen.take().or_else(|| self.read()) else {
            return false;
        };
        let bytes = nanos(to).to_le_bytes();
        seen == nanos(from) && self.host.share(&self.key, &bytes, Put::IfVersion(version))
    }
}

/// Two numbers in a place of shared data, changed by compare-and-swap.
pub(crate) struct Swapped<H> {
    host: H,
    key: String,
    /// Changes of tickets and of admissions that could not be made yet: made with the next one.
    owed: Cell<(i64, i64)>,
}

fn pair(tickets: u64, admitted: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    let (first, second) = bytes.split_at_mut(8);
    first.copy_from_slice(&tickets.to_le_bytes());
    second.copy_from_slice(&admitted.to_le_bytes());
    bytes
}

fn unpair(bytes: &[u8]) -> Option<(u64, u64)> {
    let (first, second) = bytes.split_at_checked(8)?;
    Some((
        u64::from_le_bytes(first.try_into().ok()?),
        u64::from_le_bytes(second.try_into().ok()?),
    ))
}

impl<H: Host> Swapped<H> {
    fn read(&self) -> Option<(u64, u64)> {
        unpair(&self.host.shared(&self.key)?.bytes)
    }

    /// The tickets after the change; `None` where it could not be made.
    fn change(&self, tickets: i64, admitted: i64) -> Option<u64> {
        let owed = self.owed.get();
        for _ in 0..MAX_SWAPS {
            let value = self.host.shared(&self.key)?;
            let (old_tickets, old_admitted) = unpair(&value.bytes)?;
            let new_tickets = old_tickets.wrapping_add_signed(tickets.wrapping_add(owed.0));
            let new_admitted = old_admitted.wrapping_add_signed(admitted.wrapping_add(owed.1));
            if self.host.share(
                &self.key,
                &pair(new_tickets, new_admitted),
                Put::IfVersion(value.cas),
            ) {
                self.owed.set((0, 0));
                return Some(new_tickets);
            }
        }
        None
    }

    fn change_or_owe(&self, tickets: i64, admitted: i64) {
        if self.change(tickets, admitted).is_none() {
            let (owed_tickets, owed_admitted) = self.owed.get();
            self.owed.set((
                owed_tickets.wrapping_add(tickets),
                owed_admitted.wrapping_add(admitted),
            ));
        }
    }
}
