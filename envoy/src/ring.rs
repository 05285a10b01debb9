//! How a virtual machine that is born late comes by the past of a window.
//!
//! The counts of a rule live in the process, but the ring of what they were lives in each virtual machine. One that serves
//! requests publishes its ring in shared data; one that is born (a new VM configuration, a reload after a failure) takes it
//! up there. What was admitted between the publication and now is not dated, and counts as admitted just now: too strict for
//! one interval at most, never an amnesty.

use crate::host::{Host, Put};
use leapgate::{Past, Snapshots, Timestamp, Window};

/// What is known of a window of which `admitted` requests have been let in so far.
pub fn find<H: Host>(host: &H, key: &str, window: Window, admitted: u64) -> Past {
    if admitted == 0 {
        // The process is fresh. So that the next to be born need not take the first requests for an unknown past, all
        // buckets are published as having begun at 0.
        let newest = window.start(host.now().unwrap_or(Timestamp::ZERO));
        let none = Snapshots {
            newest,
            at_start: vec![0; window.sample_count() as usize + 1],
            last: 0,
        };
        publish(host, key, window, &none);
        return Past::Fresh;
    }
    match host
        .shared(key)
        .and_then(|value| decoded(&value.bytes, window))
    {
        Some(kept) if kept.last <= admitted => Past::Kept(kept),
        _ => Past::Unknown { admitted },
    }
}

/// Publishes what a window has kept.
pub fn publish<H: Host>(host: &H, key: &str, window: Window, kept: &Snapshots) {
    // One that cannot be published is one that nobody finds: then the past is unknown, and counts as used.
    host.share(key, &encoded(kept, window), Put::Always);
}

/// The geometry, the newest start, the last count, then the counts, each in eight bytes.
fn encoded(kept: &Snapshots, window: Window) -> Vec<u8> {
    let head = [
        window.interval_ms(),
        window.sample_count().into(),
        kept.newest.as_nanos(),
        kept.last,
    ];
    head.iter()
        .chain(&kept.at_start)
        .flat_map(|n| n.to_le_bytes())
        .collect()
}

fn decoded(bytes: &[u8], window: Window) -> Option<Snapshots> {
    let mut numbers = bytes
        .chunks_exact(8)
        .filter_map(|n| Some(u64::from_le_bytes(n.try_into().ok()?)));
    let (interval_ms, sample_count) = (numbers.next()?, numbers.next()?);
    let (newest, last) = (Timestamp::from_nanos(numbers.next()?), numbers.next()?);
    let at_start: Vec<u64> = numbers.collect();
    let fits = interval_ms == window.interval_ms()
        && sample_count == u64::from(window.sample_count())
        && at_start.len() == window.sample_count() as usize + 1;
    fits.then_some(Snapshots {
        newest,
        at_start,
        last,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_comes_back_as_it_was_published_and_fits_no_other_window() {
        let window = Window::new(1000, 2).unwrap();
        let kept = Snapshots {
            newest: Timestamp::from_millis(1500),
            at_start: vec![1, 2, 3],
            last: 4,
        };
        assert_eq!(decoded(&encoded(&kept, window), window), Some(kept.clone()));
        assert_eq!(
            decoded(&encoded(&kept, window), Window::new(2000, 2).unwrap()),
            None
        );
        assert_eq!(decoded(&encoded(&kept, window)[..40], window), None);
    }
}
