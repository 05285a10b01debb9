//! Instants and spans, as JavaScript has them: milliseconds, as doubles.

use leapgate::Timestamp;
use std::time::Duration;

const NANOS_PER_MILLI: u64 = 1_000_000;

/// The last whole millisecond that a timestamp can hold.
const LAST_MILLI: f64 = (u64::MAX / NANOS_PER_MILLI) as f64;

/// The instant `millis` milliseconds after the zero of JavaScript's clock. Whole milliseconds are exact.
#[inline]
pub(crate) fn instant(millis: f64) -> Timestamp {
    if millis >= LAST_MILLI {
        return Timestamp::MAX;
    }
    let whole = millis as u64;
    let nanos = ((millis - whole as f64) * NANOS_PER_MILLI as f64) as u64;
    // Below `LAST_MILLI` the product does not wrap; a checked one would need 128 bits.
    Timestamp::from_nanos(whole.wrapping_mul(NANOS_PER_MILLI).saturating_add(nanos))
}

/// `span` in whole milliseconds, rounded up: it has passed after so many.
#[inline]
pub(crate) fn ceiled(span: Duration) -> f64 {
    let part = span.subsec_nanos().div_ceil(NANOS_PER_MILLI as u32);
    span.as_secs() as f64 * 1000.0 + f64::from(part)
}

/// So many milliseconds, rounded up to whole ones.
#[cfg(feature = "limiter")]
pub(crate) fn millis(millis: f64) -> Duration {
    Duration::from_millis(millis.ceil() as u64)
}
