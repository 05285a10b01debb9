//! How full each limit is, at its fullest within the last `holdMs`: a gauge that falls by itself.
//!
//! A limit is looked at on ticks, so that requests pay nothing, and a request that the rule has refused since the last look
//! means 100. Time is divided in slots of an eighth of `holdMs`, and of each slot the peak is kept for `holdMs` after its end. All
//! workers keep the same peaks, in shared data: a word for each of nine slots, with the percentage in its upper bits and in its lower ones
//! the millisecond at which it ends. So of two words that have not ended the larger one is right, whichever worker has written it, and
//! the largest of all is what the gauge shows, and until when. Each worker that has looked sets a tick at that instant, and
//! looks again; so a worker that dies leaves no peak standing that another one knows of, and one that starts takes up what it
//! finds.

use crate::host::{Host, Kind, MetricId, Put};
use crate::names::named;
use crate::shared::{SharedCell, Try, swap};
use crate::vm::Vm;
use once_cell::unsync::OnceCell;
use std::cell::Cell;

/// The slots of `holdMs`, and one more: that of the present moment.
const SLOTS: usize = 9;

/// How far the percentage is shifted in a word.
const PERCENT: u32 = 48;

/// How full one limit was.
pub(crate) struct Peaks<H: Host> {
    host: H,
    labels: String,
    gauge: OnceCell<MetricId>,
    cell: SharedCell<H>,
    words: Cell<[u64; SLOTS]>,
    /// The slot of the last comparison with what other workers have kept.
    compared: Cell<u64>,
}

/// When a word ends, in milliseconds.
fn end(word: u64) -> u64 {
    word % (1 << PERCENT)
}

fn most(words: [u64; SLOTS]) -> u64 {
    words.into_iter().fold(0, u64::max)
}

impl<H: Host> Peaks<H> {
    /// The peaks of the rule with these labels.
    pub(crate) fn new(vm: &Vm<H>, labels: &str) -> Peaks<H> {
        let host = vm.host().clone();
        Peaks {
            cell: SharedCell::new(&host, vm.name("peaks", labels)),
            host,
            labels: [vm.root(), labels].concat(),
            gauge: OnceCell::new(),
            words: Cell::default(),
            compared: Cell::new(0),
        }
    }

    /// Whether the limit is to be looked at though no request has come: a slot has begun.
    pub(crate) fn is_due(&self, vm: &Vm<H>, now: u64) -> bool {
        self.compared.get() != vm.slot(now)
    }

    /// Records that the limit is full by this part at the millisecond `now`. If the worker is about to sleep, it learns what others
    /// have kept, and when it has to look again.
    pub(crate) fn keep(&self, vm: &Vm<H>, part: f64, now: u64, sleeps: bool) {
        let slot = vm.slot(now);
        let percent = (part * 100.0) as u64; // rounded down: 100 is full
        let ends = vm.slot_start(slot + SLOTS as u64);
        let mut own = self.words.get();
        let mut has_risen = false;
        if percent > 0
            && let Some(word) = own.get_mut(slot as usize % SLOTS)
        {
            let peak = percent.min(0xffff) << PERCENT | ends;
            has_risen = end(*word) <= now || *word < peak;
            if has_risen {
                *word = peak;
            }
        }
        if has_risen || sleeps || self.compared.replace(slot) != slot {
            own = self.compare(own, now);
        }
        self.words.set(own);
        if most(own) > 0 {
            vm.look_at(end(most(own)));
        }
    }

    /// The peaks that have not ended, those of other workers among them: the gauge shows them.
    #[inline(never)]
    fn compare(&self, own: [u64; SLOTS], now: u64) -> [u64; SLOTS] {
        let Ok(gauge) = self.gauge.get_or_try_init(|| {
            let name = named("utilization_percent", &[&self.labels]);
            self.host.define_metric(Kind::Gauge, &name).ok_or(())
        }) else {
            return own;
        };
        let live = |words: [u64; SLOTS]| words.map(|word| if end(word) > now { word } else { 0 });
        let own = live(own);
        if most(own) == 0 && self.host.read(*gauge) == Some(0) {
            return own;
        }
        let all = swap(|| {
            let found = self.cell.read();
            let (found, put) = found.map_or(([0; SLOTS], Put::IfAbsent), |(words, version)| {
                (words, Put::IfVersion(version))
            });
            let mut all = live(found);
            for (word, own) in all.iter_mut().zip(own) {
                *word = own.max(*word);
            }
            if all == found || self.cell.put(all, put) {
                return Try::Done(all);
            }
            Try::Overtaken
        });
        let all = all.unwrap_or(own);
        self.host.record(*gauge, most(all) >> PERCENT);
        all
    }
}

/// The rule is gone, here at least. A worker that still has it shows its peaks again with its next comparison.
impl<H: Host> Drop for Peaks<H> {
    fn drop(&mut self) {
        if let Some(gauge) = self.gauge.get().filter(|_| most(self.words.get()) > 0) {
            self.host.record(*gauge, 0);
        }
    }
}
