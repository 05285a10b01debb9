//! Gauges: numbers of Envoy's that all worker threads share.

use crate::host::{Host, Kind, Level, MetricId};
use crate::vm::Vm;

/// What is added to a gauge that reads 0, and taken away again, to see whether it counts: more than any count. Counts stand
/// in the bits below ([`count`]), so a worker that looks in between sees them as they are, and none that falls.
const PROBE: u64 = 1 << 48;

/// A gauge that does not count, by its name.
pub(crate) struct Silent(String);

impl Silent {
    /// Says in the log that the gauge does not count, and what holds `now`.
    pub(crate) fn warn<H: Host>(&self, vm: &Vm<H>, now: &str) {
        let why = "` does not count (does a stats_matcher exclude it?): ";
        let line = ["leapgate: the gauge `wasmcustom.", &self.0, why, now].concat();
        vm.host().log(Level::Warn, &line);
    }
}

/// What a gauge has counted.
#[inline(always)]
pub(crate) fn count<H: Host>(host: &H, gauge: MetricId) -> Option<u64> {
    host.read(gauge).map(|n| n % PROBE)
}

/// The gauge called `what` of what has these labels, if it counts.
pub(crate) fn gauge<H: Host>(vm: &Vm<H>, labels: &str, what: &str) -> Result<MetricId, Silent> {
    let name = vm.name(what, labels);
    let gauge = vm.host().define_metric(Kind::Gauge, &name);
    gauge
        .filter(|gauge| works(vm.host(), *gauge))
        .ok_or(Silent(name))
}

/// Whether a gauge counts: one that a stats matcher excludes takes everything and reads 0.
fn works<H: Host>(host: &H, gauge: MetricId) -> bool {
    let counts = || host.read(gauge).is_some_and(|n| n > 0);
    counts() || {
        let works = host.add(gauge, PROBE as i64) && counts();
        host.add(gauge, -(PROBE as i64));
        works
    }
}
