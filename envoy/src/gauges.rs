//! Envoy's gauges as counters: numbers that all worker threads share and that rise and fall.

use crate::host::{Host, Kind, Level, MetricId};
use crate::vm::Vm;

/// Added to a gauge that reads 0, and taken away again, to see whether the gauge works. Counts are the bits below it
/// ([`count`]): a worker that reads the gauge in between sees the right count, and no count reaches 2^48.
const PROBE: u64 = 1 << 48;

/// The name of a gauge that does not work.
pub(crate) struct SilentGauge(String);

impl SilentGauge {
    /// Logs that the gauge does not work, and what holds `now`.
    pub(crate) fn warn<H: Host>(&self, vm: &Vm<H>, now: &str) {
        let why = "` does not count (does a stats_matcher exclude it?): ";
        let line = ["leapgate: the gauge `wasmcustom.", &self.0, why, now].concat();
        vm.host().log(Level::Warn, &line);
    }
}

/// The count of a gauge.
#[inline(always)]
pub(crate) fn count<H: Host>(host: &H, gauge: MetricId) -> Option<u64> {
    host.read(gauge).map(|n| n % PROBE)
}

/// The gauge called `what` with these labels, if it works.
pub(crate) fn gauge<H: Host>(
    vm: &Vm<H>,
    labels: &str,
    what: &str,
) -> Result<MetricId, SilentGauge> {
    let name = vm.name(what, labels);
    let gauge = vm.host().define_metric(Kind::Gauge, &name);
    gauge
        .filter(|gauge| works(vm.host(), *gauge))
        .ok_or(SilentGauge(name))
}

/// Whether a gauge works: one that a stats matcher excludes accepts all changes and reads 0.
fn works<H: Host>(host: &H, gauge: MetricId) -> bool {
    let counts = || host.read(gauge).is_some_and(|n| n > 0);
    counts() || {
        let works = host.add(gauge, PROBE as i64) && counts();
        host.add(gauge, -(PROBE as i64));
        works
    }
}
