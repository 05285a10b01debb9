//! Where the counts of a rule are kept, so that the limit holds for the process.
//!
//! A rule has two gauges of Envoy's, `tickets` and `admitted`: numbers that all worker threads share. Where gauges do not
//! work (a stats matcher can silence them: then they read 0 for ever), the two numbers stand in shared data and are changed by
//! compare-and-swap. Where that does not work either, or where the scope is the worker, they are this virtual machine's own.
//!
//! Names of gauges hold the root id, the rule's id and the window's geometry, and are the same only for the same window.

use crate::breakers::BreakerPlace;
use crate::host::{Host, Kind, Level, MetricId, Put};
use crate::inbound::Numbers;
use crate::pages::{KeyStates, Place};
use crate::ring;
use leapgate::{
    BreakerKey, ControlBehavior, Controller, Grade, Key, KeyedGeometry, KeyedPages, LocalInstant,
    LocalTally, Past, RuleWindow, SharedInstant, StateKey, Strategy, Tallies, Tally, Timestamp,
    Window,
};
use once_cell::unsync::OnceCell;
use std::cell::{Cell, RefCell};
use std::fmt::Write;
use std::rc::Rc;
use std::time::Duration;

/// How often a compare-and-swap is tried before the request is refused.
const MAX_SWAPS: u32 = 32;

/// The version of what stands in pages of keys: another one has other pages.
const LAYOUT: u32 = 2;

/// Makes the counts of rules.
pub struct Counts<H> {
    host: H,
    /// The beginning of every name: `leapgate`, and the root id, if it is another.
    prefix: String,
    /// Whether the limit holds for the process.
    shared: bool,
    /// What all requests together do; counted where a system rule has asked for it.
    inbound: OnceCell<Option<Rc<Numbers<H>>>>,
    /// What keys are hashed with in the whole process; `None` where shared data does not work.
    seed: OnceCell<Option<[u64; 2]>>,
}

impl<H: Host> Counts<H> {
    /// The counts of the plugin with that root id.
    pub fn new(host: H, root_id: &str, shared: bool) -> Counts<H> {
        let mut prefix = String::from("leapgate");
        if !root_id.is_empty() && root_id != "leapgate" {
            prefix.push('.');
            exact(&mut prefix, root_id);
        }
        Counts {
            host,
            prefix,
            shared,
            inbound: OnceCell::new(),
            seed: OnceCell::new(),
        }
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

    /// The name of `what` is no rule's. (Those begin with the prefix and a dot, and have no colon.)
    pub(crate) fn key_as(&self, what: &str) -> String {
        [&self.prefix, ":", what].concat()
    }

    /// Two running counts of `what` is no rule's, called `names`, and what is known of the past of a `window` over them.
    pub(crate) fn open_as(
        &self,
        what: &str,
        names: [&str; 2],
        window: Option<Window>,
    ) -> (RuleCounts<H>, Past) {
        let name = self.key_as(what);
        let readable_name = name.clone();
        self.open_called(name, readable_name, names, window, ControlBehavior::Reject)
    }

    /// The host.
    pub(crate) fn host(&self) -> &H {
        &self.host
    }

    /// The prefix and the parts, each as `part` writes it, with a dot between them.
    fn name<'a>(
        &self,
        parts: impl IntoIterator<Item = &'a str>,
        part: impl Fn(&mut String, &str),
    ) -> String {
        let mut name = self.prefix.clone();
        for text in parts {
            name.push('.');
            part(&mut name, text);
        }
        name
    }

    /// The name of what has these parts: no others have the same.
    pub(crate) fn exact_name_of(&self, parts: &[&str]) -> String {
        self.name(parts.iter().copied(), exact)
    }

    /// The same, as it reads well in Prometheus.
    pub(crate) fn readable_name_of(&self, parts: &[&str]) -> String {
        self.name(parts.iter().copied(), readable)
    }

    /// The name of what `key` counts: no two keys have the same.
    fn exact_name(&self, key: &StateKey) -> String {
        let mut name = self.name(parts(key), exact);
        if let Grade::Qps { window, .. } = key.grade {
            let window = window.window();
            // Writing to a string cannot fail.
            let _ = write!(
                name,
                ".{}ms_{}",
                window.interval_ms(),
                window.sample_count()
            );
        }
        match key.behavior {
            ControlBehavior::Reject => {}
            ControlBehavior::WarmUp => name.push_str(".warm_up"),
            ControlBehavior::Throttle => name.push_str(".throttle"),
            ControlBehavior::WarmUpThrottle => name.push_str(".warm_up_throttle"),
        }
        match &key.strategy {
            Strategy::Direct => {}
            Strategy::Relate(measured) => {
                name.push_str(".relate.");
                exact(&mut name, measured);
            }
            Strategy::Chain(context) => {
                name.push_str(".chain.");
                exact(&mut name, context);
            }
        }
        if key.compat {
            name.push_str(".compat");
        }
        name
    }

    fn counters(&self, name: String) -> Counters<H> {
        Counters {
            host: self.host.clone(),
            name,
            counters: OnceCell::new(),
            told: Cell::new([0; 3]),
        }
    }

    fn gauges(&self, name: &str, [first, second]: [&str; 2]) -> Option<Keeper<H>> {
        let gauge = |what| {
            self.host
                .define_metric(Kind::Gauge, &format!("{name}.{what}"))
        };
        let tickets = gauge(first)?;
        let admitted = if second == first {
            tickets
        } else {
            gauge(second)?
        };
        // A gauge that a stats matcher has silenced takes everything and reads 0. Tickets may be too many for a moment;
        // `admitted` must not, since one that falls is taken for a reset.
        let reads = |n: u64| self.host.read(tickets).is_some_and(|tickets| tickets >= n);
        if !reads(1) {
            let works = self.host.add(tickets, 1) && reads(1);
            self.host.add(tickets, -1);
            if !works {
                return None;
            }
        }
        Some(Keeper::Gauges {
            host: self.host.clone(),
            tickets,
            admitted,
        })
    }

    fn shared_data(&self, name: &str) -> Option<Keeper<H>> {
        let key = format!("{name}.counts");
        self.host.share(&key, &pair(0, 0), Put::IfAbsent);
        let place = Swapped {
            host: self.host.clone(),
            key,
            owed: Cell::new((0, 0)),
        };
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
            let place = format!("{}.seed", self.prefix);
            if self.host.shared(&place).is_none() {
                self.host.share(&place, &self.random(), Put::IfAbsent);
            }
            unpair(&self.host.shared(&place)?.bytes).map(|(first, second)| [first, second])
        })
    }

    /// What the names of the pages of a rule's keys begin with. It is as short for all, since there may be many of them; no
    /// two rules have the same, and none has that of another number of pages.
    fn name_of_pages(&self, key: &StateKey, geometry: &KeyedGeometry) -> String {
        let mut name = self.exact_name(key);
        for part in key.parts.iter() {
            name.push('.');
            exact(&mut name, &part.to_string());
        }
        let _ = write!(name, ".{}.{LAYOUT}", geometry.max_keys);
        let hash = Key::of_parts([0; 2], [Some(name.as_bytes())]).hash();
        format!("{}.keys.{hash:016x}.", self.prefix)
    }

    /// How far the turns of a rule reach that behaves so, if it takes turns.
    fn latest(&self, name: &str, behavior: ControlBehavior) -> Latest<H> {
        if !self.shared || !behavior.is_paced() {
            return Latest::Local(LocalInstant::default());
        }
        let key = format!("{name}.latest");
        self.host.share(&key, &[0; 8], Put::IfAbsent);
        let place = SharedNanos {
            host: self.host.clone(),
            key,
            seen: Cell::new(None),
        };
        if place.read().is_some() {
            return Latest::Shared(place);
        }
        let line = format!(
            "leapgate: {name}: shared data does not work here: it paces each worker thread alone"
        );
        self.host.log(Level::Warn, &line);
        Latest::Local(LocalInstant::default())
    }

    /// What the names of all metrics begin with.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Where two running counts are kept; as gauges they are called `names`, and are one if these are the same.
    pub(crate) fn keeper(&self, name: &str, names: [&str; 2]) -> Keeper<H> {
        if !self.shared {
            return Keeper::Local(LocalTally::default());
        }
        if let Some(gauges) = self.gauges(name, names) {
            return gauges;
        }
        match self.shared_data(name) {
            Some(shared_data) => {
                let why = "gauges do not work here (does a stats_matcher exclude `wasmcustom`?)";
                let now = "its limit holds for the process by compare-and-swap on shared data, and refuses where that is contended";
                self.host
                    .log(Level::Warn, &format!("leapgate: {name}: {why}: {now}"));
                shared_data
            }
            None => {
                let now = "its limit holds for each worker thread alone";
                self.host.log(
                    Level::Warn,
                    &format!("leapgate: {name}: neither gauges nor shared data work here: {now}"),
                );
                Keeper::Local(LocalTally::default())
            }
        }
    }
}

/// What tells the state of one rule from others.
fn parts(key: &StateKey) -> impl Iterator<Item = &str> {
    let parts = [
        Some(key.rule.as_str()),
        key.resource.as_deref(),
        key.origin.as_deref(),
    ];
    parts.into_iter().flatten()
}

/// Appends `part` so that no two parts read the same, whatever stands around them.
fn exact(name: &mut String, part: &str) {
    for c in part.chars() {
        match c {
            '.' | ':' | '%' | '\0'..=' ' => {
                let _ = write!(name, "%{:02X}", c as u32);
            }
            c => name.push(c),
        }
    }
}

/// Appends `part` as it reads well in Prometheus.
fn readable(name: &mut String, part: &str) {
    for c in part.chars() {
        match c {
            '*' => name.push_str("each"),
            c if c.is_ascii_alphanumeric() || c == '-' => name.push(c),
            _ => name.push('_'),
        }
    }
}

/// The counts of one rule.
pub struct RuleCounts<H> {
    keeper: Keeper<H>,
    host: H,
    /// Under which the ring is published; `None` where nobody else could go on with it.
    ring_key: Option<String>,
    /// How far the turns of a throttle reach.
    latest: Latest<H>,
    /// Where workers tell one another how warm the rule is, if it warms up.
    warmth_key: Option<String>,
    /// What was published last: when, and after how many passed requests.
    published: Cell<Option<(Timestamp, u64)>>,
    counters: Counters<H>,
    /// How often it has made a request wait.
    waited: Late,
}

/// What stands in the log and the dashboards of one rule: made when there is something to write there.
pub(crate) struct Counters<H> {
    host: H,
    name: String,
    counters: OnceCell<[MetricId; 3]>,
    told: Cell<[u64; 3]>,
}

/// One more counter of a rule, made when there is something to count.
#[derive(Default)]
pub(crate) struct Late {
    counter: OnceCell<MetricId>,
    told: Cell<u64>,
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
        let (names, window) = match key.grade {
            Grade::Concurrency => (["in_flight"; 2], None),
            Grade::Qps { window, .. } => (["tickets", "admitted"], Some(window.window())),
        };
        let readable_name = self.name(parts(key), readable);
        self.open_called(
            self.exact_name(key),
            readable_name,
            names,
            window,
            key.behavior,
        )
    }

    fn open_keyed(&self, key: &StateKey, geometry: &KeyedGeometry) -> KeyStates<H> {
        let place = |seed: Option<[u64; 2]>| {
            Some((
                seed?,
                Place::shared(self.host.clone(), self.name_of_pages(key, geometry)),
            ))
        };
        let shared = self.shared.then(|| self.seed()).and_then(place);
        if self.shared && shared.is_none() {
            let now = "the limit of each key holds for each worker thread alone";
            let name = self.exact_name(key);
            let line = format!("leapgate: {name}: shared data does not work here: {now}");
            self.host.log(Level::Warn, &line);
        }
        let (seed, place) = shared.unwrap_or_else(|| {
            let (first, second) = unpair(&self.random()).unwrap_or_default();
            ([first, second], Place::Local(RefCell::default()))
        });
        let counters = self.counters(self.name(parts(key), readable));
        KeyStates::new(KeyedPages::new(geometry, seed), place, counters)
    }

    fn open_breaker(&self, key: &BreakerKey) -> BreakerPlace<H> {
        BreakerPlace::open(self, key)
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
                let second = host.read(*admitted)?;
                Some((host.read(*tickets)?, second))
            }
            Keeper::SharedData(place) => place.read(),
            Keeper::Local(_) => None,
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
    fn open_called(
        &self,
        name: String,
        readable_name: String,
        names: [&str; 2],
        window: Option<Window>,
        behavior: ControlBehavior,
    ) -> (RuleCounts<H>, Past) {
        // A throttle has turns, and counts nothing.
        let keeper = if window.is_some() && behavior == ControlBehavior::Throttle {
            Keeper::Local(LocalTally::default())
        } else {
            self.keeper(&name, names)
        };
        let mut counts = RuleCounts {
            keeper,
            host: self.host.clone(),
            ring_key: None,
            latest: self.latest(&name, behavior),
            warmth_key: (self.shared && behavior.warms_up()).then(|| format!("{name}.warmth")),
            published: Cell::new(None),
            counters: self.counters(readable_name),
            waited: Late::default(),
        };
        let past = match (window, counts.admitted()) {
            (Some(window), Some(admitted)) => {
                let ring_key = format!("{name}.ring");
                let past = ring::find(&self.host, &ring_key, window, admitted);
                counts.ring_key = Some(ring_key);
                past
            }
            _ => Past::Fresh,
        };
        (counts, past)
    }
}

impl<H: Host> Counters<H> {
    /// Tells the host what has passed, was blocked, and would have been, since the last time.
    pub(crate) fn tell(&self, now: [u64; 3]) {
        if self.counters.get().is_some() && self.told.get() == now {
            return;
        }
        let counters = self.counters.get_or_try_init(|| {
            let counter = |what| {
                self.host
                    .define_metric(Kind::Counter, &format!("{}.{what}", self.name))
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
            let name = format!("{}.{what}", self.name);
            self.host.define_metric(Kind::Counter, &name).ok_or(())
        });
        let Ok(counter) = counter else { return false };
        self.host.add(*counter, more as i64);
        late.told.set(now);
        told == 0
    }
}

impl<H: Host> RuleCounts<H> {
    /// Tells the host's counters what has happened since the last time.
    pub fn tell(&self, state: &Controller<RuleCounts<H>>) {
        self.counters
            .tell_late(&self.waited, "waited", state.waited());
        self.counters
            .tell([state.passed(), state.blocked(), state.shadow_blocked()]);
    }

    /// Publishes the ring, for a virtual machine that is born without one, if requests have passed here since the last time
    /// and that is a bucket ago.
    pub fn publish(&self, state: &Controller<RuleCounts<H>>, now: Timestamp) {
        if let Some(window) = state.window() {
            self.publish_window(window, state.passed(), now);
        }
    }

    /// The same, of a window after so many `passed` here.
    pub(crate) fn publish_window(&self, window: &RuleWindow<Self>, passed: u64, now: Timestamp) {
        let Some(key) = &self.ring_key else { return };
        let due = self.published.get().is_none_or(|(at, after)| {
            after != passed
                && now.since(at)
                    >= window
                        .window()
                        .bucket_length()
                        .max(Duration::from_millis(1))
        });
        if due && passed > 0 {
            self.published.set(Some((now, passed)));
            if let Some(snapshots) = window.snapshots() {
                ring::publish(&self.host, key, window.window(), &snapshots);
            }
        }
    }
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

    #[inline]
    fn admitted(&self) -> Option<u64> {
        match &self.keeper {
            Keeper::Gauges { host, admitted, .. } => host.read(*admitted),
            Keeper::SharedData(place) => place.read().map(|(_, admitted)| admitted),
            Keeper::Local(_) => None,
        }
    }

    #[inline]
    fn tickets(&self) -> u64 {
        match &self.keeper {
            // What cannot be read counts as full.
            Keeper::Gauges { host, tickets, .. } => host.read(*tickets).unwrap_or(u64::MAX),
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
                let taken = host.read(*tickets);
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
