//! Requests that wait: each is paused, and resumed on a tick at its own instant.
//!
//! ```text
//!   throttle, 40 a second   a passes    b paused ...... resumed    c paused ............... resumed
//!   next tick                           25 ms                       25 ms
//! ```
//!
//! While anybody waits, the next tick is asked for when the first of them is due, and not at every few milliseconds: so they
//! go on one by one, as they were told, and a tick costs no more than there is to do. A host keeps such a time to a
//! millisecond at best; Envoy in a kernel that counts 250 ticks a second, to 4. Nobody goes on too early, nor later than by
//! that.

use crate::host::{Host, Kind, Level, LocalReply, MetricId};
use crate::names::named;
use leapgate::Timestamp;
use once_cell::unsync::OnceCell;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

const NANOS_PER_MILLI: u64 = 1_000_000;

const GRPC_UNAVAILABLE: i32 = 14;

/// Whoever waits in one virtual machine, under one configuration.
pub struct Waiting<H> {
    host: H,
    max: usize,
    /// In the order in which they are due; of those due at once, in the order in which they came.
    queue: RefCell<VecDeque<Waiter>>,
    /// Where nobody waits, so many milliseconds lie between two ticks.
    period_ms: u64,
    /// When windows are to be brought up to date, if somebody waits until then.
    /// In nanoseconds of the clock.
    upkeep: Cell<u64>,
    /// Whether ticks are asked for by who is due next.
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

/// The place of one who waits. Dropped, it is free again.
pub struct Place<H: Host> {
    waiting: Rc<Waiting<H>>,
    release: Timestamp,
    context: u32,
}

impl<H: Host> Waiting<H> {
    /// Nobody yet, and at most `max`. Ticks come every `period_ms` milliseconds unless somebody is due before.
    pub fn new(host: H, root: &str, max: usize, period_ms: u64) -> Rc<Waiting<H>> {
        Rc::new(Waiting {
            host,
            max,
            queue: RefCell::default(),
            period_ms,
            upkeep: Cell::new(0),
            is_tight: Cell::new(false),
            root: root.into(),
            metrics: OnceCell::new(),
        })
    }

    /// Asks for ticks, where there are none.
    pub fn ask_for_ticks(&self) {
        self.host.set_tick_period(self.period_ms as u32);
    }

    /// How many ticks there are in so many milliseconds, at least one.
    pub fn ticks_in(&self, millis: u64) -> u32 {
        millis.checked_div(self.period_ms).unwrap_or(1).max(1) as u32
    }

    /// Whether no request waits, nor has a moment ago.
    pub fn is_empty(&self) -> bool {
        !self.is_tight.get()
    }

    /// Whether nobody more may wait.
    pub fn is_full(&self) -> bool {
        self.queue.borrow().len() >= self.max
    }

    /// A place for the request that is paused in that context at `now`, until it is resumed at `release`.
    pub fn hold(self: &Rc<Self>, context: u32, release: Timestamp, now: Timestamp) -> Place<H> {
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
            if !self.is_tight.replace(true) {
                self.upkeep_is_due(now);
            }
            self.arm(now);
        }
        Place {
            waiting: Rc::clone(self),
            release,
            context,
        }
    }

    /// Resumes those that are due. Whether windows are to be brought up to date in this tick.
    pub fn on_tick(&self) -> bool {
        if !self.is_tight.get() {
            return true;
        }
        let now = self.host.now();
        // Without a clock nobody could say who is due: all of them go on.
        let is_due = |waiter: &Waiter| now.is_none_or(|now| waiter.release <= now);
        loop {
            let due = {
                let mut queue = self.queue.borrow_mut();
                let is_due = queue.front().is_some_and(is_due);
                if is_due { queue.pop_front() } else { None }
            };
            let Some(waiter) = due else { break };
            let resumed = self.host.resume(waiter.context);
            if !resumed {
                self.cannot_resume();
            }
            self.leaves(waiter.since, now.filter(|_| resumed));
        }
        let Some(now) = now else { return true };
        let upkeep_is_due = self.upkeep_is_due(now);
        self.arm(now);
        upkeep_is_due
    }

    /// A request that the host does not let go on is not to wait for ever. What it holds it gives back when it has ended.
    #[cold]
    fn cannot_resume(&self) {
        let line = "leapgate: the host did not resume a request that has waited (may the module call `proxy_set_effective_context` and `proxy_continue_stream`?)";
        self.host.log(Level::Warn, line);
        self.host.reply(&LocalReply {
            status: 503,
            grpc_status: GRPC_UNAVAILABLE,
            details: "leapgate{not resumed}",
            headers: &[],
            body: "",
        });
    }

    /// Whether windows are to be brought up to date. If so, the next time is set.
    fn upkeep_is_due(&self, now: Timestamp) -> bool {
        let is_due = self.upkeep.get() <= now.as_nanos();
        if is_due {
            let period = self.period_ms.saturating_mul(NANOS_PER_MILLI);
            self.upkeep.set(now.as_nanos().saturating_add(period));
        }
        is_due
    }

    /// Asks for the next tick: when the next one is due, or windows are to be brought up to date.
    fn arm(&self, now: Timestamp) {
        let next = self.queue.borrow().front().map(|waiter| waiter.release);
        self.is_tight.set(next.is_some());
        let millis = match next {
            None => self.period_ms,
            Some(release) => {
                let until = release.as_nanos().min(self.upkeep.get());
                let nanos = until.saturating_sub(now.as_nanos());
                nanos.div_ceil(NANOS_PER_MILLI).max(1)
            }
        };
        self.host.set_tick_period(millis as u32);
    }

    /// Tells the metrics that one who has waited since then does not wait any more, and has been resumed, if it was, `now`.
    fn leaves(&self, since: Timestamp, now: Option<Timestamp>) {
        let Some((waiting, waited_ms)) = self.metrics() else {
            return;
        };
        self.host.add(waiting, -1);
        if let Some(now) = now {
            let waited = now.as_millis().saturating_sub(since.as_millis());
            self.host.record(waited_ms, waited);
        }
    }

    /// How many wait, in the whole process, and for how long they have waited.
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

impl<H: Host> Place<H> {
    /// Leaves the queue. Whether it was still waiting there.
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
            self.waiting.leaves(waiter.since, None);
        }
        waiter.is_some()
    }
}
