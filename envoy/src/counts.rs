//! Where the counts of a rule are kept, so that the limit holds for the process.
//!
//! A rule has two gauges of Envoy's, `tickets` and `admitted`: numbers that all worker threads share. Where gauges do not
//! work (a stats matcher can silence them: then they read 0 for ever), the two numbers stand in shared data and are changed by
//! compare-and-swap. Where that does not work either, or where the scope is the worker, they are this virtual machine's own.
//!
//! Names of gauges hold the root id, the rule's id and the window's geometry, and are the same only for the same window.

use crate::host::{Host, Kind, Level, MetricId, Put};
use crate::ring;
use leapgate::{
    ControlBehavior, Controller, Grade, LocalInstant, LocalTally, Past, SharedInstant, StateKey,
    Strategy, Tallies, Tally, Timestamp,
};
use once_cell::unsync::OnceCell;
use std::cell::Cell;
use std::fmt::Write;
use std::time::Duration;

/// How often a compare-and-swap is tried before the request is refused.
const MAX_SWAPS: u32 = 32;

/// Makes the counts of rules.
pub struct Counts<H> {
    host: H,
    /// The beginning of every name: `leapgate`, and the root id, if it is another.
    prefix: String,
    /// Whether the limit holds for the process.
    shared: bool,
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
        }
    }

    /// The prefix and the parts of `key`, each as `part` writes it, with a dot between them.
    fn name(&self, key: &StateKey, part: impl Fn(&mut String, &str)) -> String {
        let mut name = self.prefix.clone();
        let parts = [
            Some(key.rule.as_str()),
            key.resource.as_deref(),
            key.origin.as_deref(),
        ];
        for text in parts.into_iter().flatten() {
            name.push('.');
            part(&mut name, text);
        }
        name
    }

    /// The name of what `key` counts: no two keys have the same.
    fn exact_name(&self, key: &StateKey) -> String {
        let mut name = self.name(key, exact);
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

    fn gauges(&self, name: &str, grade: Grade) -> Option<Keeper<H>> {
        let gauge = |what| {
            self.host
                .define_metric(Kind::Gauge, &format!("{name}.{what}"))
        };
        let tickets = gauge(if grade == Grade::Concurrency {
            "in_flight"
        } else {
            "tickets"
        })?;
        let admitted = if grade == Grade::Concurrency {
            tickets
        } else {
            gauge("admitted")?
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

    fn keeper(&self, name: &str, grade: Grade) -> Keeper<H> {
        if !self.shared {
            return Keeper::Local(LocalTally::default());
        }
        if let Some(gauges) = self.gauges(name, grade) {
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
    /// The turns of a throttle: this virtual machine's own.
    latest: LocalInstant,
    /// What was published last: when, and after how many passed requests.
    published: Cell<Option<(Timestamp, u64)>>,
    readable_name: String,
    /// What stands in the log and the dashboards; made when there is something to write there.
    counters: OnceCell<[MetricId; 3]>,
    told: Cell<[u64; 3]>,
}

enum Keeper<H> {
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

    fn open(&self, key: &StateKey) -> (RuleCounts<H>, Past) {
        let name = self.exact_name(key);
        let keeper = self.keeper(&name, key.grade);
        let mut counts = RuleCounts {
            keeper,
            host: self.host.clone(),
            ring_key: None,
            latest: LocalInstant::default(),
            published: Cell::new(None),
            readable_name: self.name(key, readable),
            counters: OnceCell::new(),
            told: Cell::new([0; 3]),
        };
        let past = match (key.grade, counts.admitted()) {
            (Grade::Qps { window, .. }, Some(admitted)) => {
                let ring_key = format!("{name}.ring");
                let past = ring::find(&self.host, &ring_key, window.window(), admitted);
                counts.ring_key = Some(ring_key);
                past
            }
            _ => Past::Fresh,
        };
        (counts, past)
    }
}

impl<H: Host> RuleCounts<H> {
    /// Tells the host's counters what has happened since the last time.
    pub fn tell(&self, state: &Controller<RuleCounts<H>>) {
        let now = [state.passed(), state.blocked(), state.shadow_blocked()];
        if self.counters.get().is_some() && self.told.get() == now {
            return;
        }
        let counters = self.counters.get_or_try_init(|| {
            let counter = |what| {
                self.host
                    .define_metric(Kind::Counter, &format!("{}.{what}", self.readable_name))
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

    /// Publishes the ring, for a virtual machine that is born without one, if requests have passed here since the last time
    /// and that is a bucket ago.
    pub fn publish(&self, state: &Controller<RuleCounts<H>>, now: Timestamp) {
        let (Some(key), Some(window)) = (&self.ring_key, state.window()) else {
            return;
        };
        let passed = state.passed();
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
    fn latest(&self) -> &impl SharedInstant {
        &self.latest
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

/// Two numbers in a place of shared data, changed by compare-and-swap.
struct Swapped<H> {
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
