//! Requests that wait: each is paused, and resumed on a tick at its own instant.
//!
//! ```text
//!   throttle, 40 a second   a passes    b paused ...... resumed    c paused ............... resumed
//!   next tick                           25 ms                       25 ms
//! ```
//!
//! While requests wait, the next tick is set to the instant at which the first of them is due, and not to every few
//! milliseconds: so they continue one by one, at their instants, and a tick costs no more than there is to do. A host keeps
//! such a time to a millisecond at best; Envoy in a kernel that counts 250 ticks a second, to 4. No request continues too
//! early, nor later than by this much.

use crate::host::{Host, Kind, Level, LocalReply, MetricId, NO_PAIRS};
use crate::names::named;
use leapgate::Timestamp;
use once_cell::unsync::OnceCell;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

const NANOS_PER_MILLI: u64 = 1_000_000;

const GRPC_UNAVAILABLE: i32 = 14;

/// The requests that wait in one virtual machine, under one configuration.
pub struct Waiting<H> {
    host: H,
    max: usize,
    /// In the order in which they are due; requests due at the same instant, in the order in which they came.
    queue: RefCell<VecDeque<Waiter>>,
    /// The milliseconds between two ticks while no request waits.
    period_ms: u64,
    /// When windows are next brought up to date while requests wait, in nanoseconds of the clock.
    upkeep: Cell<u64>,
    /// When the store is to be seen to, which is not a request's turn.
    store_due: Cell<Option<Timestamp>>,
    /// Whether the next tick is set to the request that is due next, or to the store.
    is_tight: Cell<bool>,
    /// The label of the root id, which the names of the metrics have.
    root: String,
    metrics: OnceCell<(MetricId, MetricId)>,
}

#[derive(Clone, Copy)]
struct Waiter {
    release: Timestamp,
    since: Timestamp,
    context: u32,
}

/// A waiting request's slot in the queue.
pub struct Slot<H: Host> {
    waiting: Rc<Waiting<H>>,
    release: Timestamp,
    context: u32,
}

/// Resumes the request that is paused in this context. If the host does not, it is answered, so that it does not wait for ever;
/// it releases what it holds when it ends.
pub(crate) fn resume<H: Host>(host: &H, context: u32) -> bool {
    let resumed = host.resume(context);
    if !resumed {
        cannot_resume(host);
    }
    resumed
}

#[cold]
fn cannot_resume<H: Host>(host: &H) {
    let line = "leapgate: the host did not resume a request that has waited (may the module call `proxy_set_effective_context` and `proxy_continue_stream`?)";
    host.log(Level::Warn, line);
    host.reply(&LocalReply {
        status: 503,
        grpc_status: GRPC_UNAVAILABLE,
        details: "leapgate{not resumed}",
        headers: &NO_PAIRS,
        body: "",
    });
}

impl<H: Host> Waiting<H> {
    /// An empty queue for at most `max` requests. Ticks come every `period_ms` milliseconds unless a request is due before.
    pub fn new(host: H, root: &str, max: usize, period_ms: u64) -> Rc<Waiting<H>> {
        Rc::new(Waiting {
            host,
            max,
            queue: RefCell::default(),
            period_ms,
            upkeep: Cell::new(0),
            store_due: Cell::new(None),
            is_tight: Cell::new(false),
            root: root.into(),
            metrics: OnceCell::new(),
        })
    }

    /// Starts the ticks.
    pub fn ask_for_ticks(&self) {
        self.host.set_tick_period(self.period_ms as u32);
    }

    /// How many ticks there are in so many milliseconds, at least one.
    pub fn ticks_in(&self, millis: u64) -> u32 {
        millis.checked_div(self.period_ms).unwrap_or(1).max(1) as u32
    }

    /// Whether this is before the instant at which the store is to be seen to.
    #[inline]
    pub(crate) fn is_before_store_due(&self, due: Option<Timestamp>) -> bool {
        let set = self.store_due.get();
        due.is_some_and(|due| set.is_none_or(|set| due < set))
    }

    /// From now on the store is to be seen to at that instant.
    pub(crate) fn set_store_due(&self, due: Option<Timestamp>, now: Timestamp) {
        let is_sooner = self.is_before_store_due(due);
        self.store_due.set(due);
        if is_sooner {
            self.tighten(now);
        }
    }

    /// Sets the next tick to what is due next.
    fn tighten(&self, now: Timestamp) {
        if !self.is_tight.replace(true) {
            self.upkeep_is_due(now);
        }
        self.arm(now);
    }

    /// Whether nothing is due, and nothing was at the latest tick.
    pub fn is_empty(&self) -> bool {
        !self.is_tight.get()
    }

    /// Whether no other request may wait.
    pub fn is_full(&self) -> bool {
        self.queue.borrow().len() >= self.max
    }

    /// Queues the request that is paused in this context at `now`, until it is resumed at `release`.
    pub fn hold(self: &Rc<Self>, context: u32, release: Timestamp, now: Timestamp) -> Slot<H> {
        let waiter = Waiter {
            release,
            since: now,
            context,
        };
        let index = {
            let mut queue = self.queue.borrow_mut();
            let index = queue.partition_point(|other| other.release <= release);
            queue.insert(index, waiter);
            index
        };
        if let Some((waiting, _)) = self.metrics() {
            self.host.add(waiting, 1);
        }
        if index == 0 {
            self.tighten(now);
        }
        Slot {
            waiting: Rc::clone(self),
            release,
            context,
        }
    }

    /// Resumes the requests that are due. Returns whether this tick is to bring windows up to date.
    pub fn on_tick(&self) -> bool {
        if !self.is_tight.get() {
            return true;
        }
        let now = self.host.now();
        // Without a clock it is not known which requests are due: all of them continue.
        let is_due = |waiter: &Waiter| now.is_none_or(|now| waiter.release <= now);
        loop {
            let due = {
                let mut queue = self.queue.borrow_mut();
                let is_due = queue.front().is_some_and(is_due);
                if is_due { queue.pop_front() } else { None }
            };
            let Some(waiter) = due else { break };
            let resumed = resume(&self.host, waiter.context);
            self.record_end(waiter.since, now.filter(|_| resumed));
        }
        let Some(now) = now else { return true };
        let upkeep_is_due = self.upkeep_is_due(now);
        self.arm(now);
        upkeep_is_due
    }

    /// Whether windows are to be brought up to date now. If so, sets the next time.
    fn upkeep_is_due(&self, now: Timestamp) -> bool {
        let is_due = self.upkeep.get() <= now.as_nanos();
        if is_due {
            let period = self.period_ms.saturating_mul(NANOS_PER_MILLI);
            self.upkeep.set(now.as_nanos().saturating_add(period));
        }
        is_due
    }

    /// Sets the next tick: to when the next request is due, or windows are to be brought up to date.
    fn arm(&self, now: Timestamp) {
        let turn = self.queue.borrow().front().map(|waiter| waiter.release);
        let next = turn.into_iter().chain(self.store_due.get()).min();
        self.is_tight.set(next.is_some());
        let millis = match next {
            None => self.period_ms,
            Some(next) => {
                let until = next.as_nanos().min(self.upkeep.get());
                let nanos = until.saturating_sub(now.as_nanos());
                nanos.div_ceil(NANOS_PER_MILLI).max(1)
            }
        };
        self.host.set_tick_period(millis as u32);
    }

    /// Records that a request which has waited since `since` waits no more; and for how long, if it was resumed `now`.
    fn record_end(&self, since: Timestamp, now: Option<Timestamp>) {
        let Some((waiting, waited_ms)) = self.metrics() else {
            return;
        };
        self.host.add(waiting, -1);
        if let Some(now) = now {
            let waited = now.as_millis().saturating_sub(since.as_millis());
            self.host.record(waited_ms, waited);
        }
    }

    /// The gauge of how many requests wait in the process, and the histogram of how long they have waited.
    fn metrics(&self) -> Option<(MetricId, MetricId)> {
        let define = |kind, what| {
            let name = named(what, &[&self.root]);
            self.host.define_metric(kind, &name).ok_or(())
        };
        let metrics = self.metrics.get_or_try_init(|| {
            Ok::<_, ()>((
                define(Kind::Gauge, "waiting")?,
                define(Kind::Histogram, "waited_ms")?,
            ))
        });
        metrics.ok().copied()
    }
}

impl<H: Host> Slot<H> {
    /// Leaves the queue. Returns whether the request was still in it.
    pub fn leave(&self) -> bool {
        let waiter = {
            let mut queue = self.waiting.queue.borrow_mut();
            let first = queue.partition_point(|other| other.release < self.release);
            let same = queue
                .iter()
                .skip(first)
                .take_while(|other| other.release == self.release);
            let index = same
                .enumerate()
                .find(|(_, other)| other.context == self.context)
                .map(|(index, _)| first + index);
            index.and_then(|index| queue.remove(index))
        };
        if let Some(waiter) = waiter {
            self.waiting.record_end(waiter.since, None);
        }
        waiter.is_some()
    }
}
