//! What is behind the numbers.

#[cfg(feature = "engine")]
use crate::engine::{AREA, Engines};
#[cfg(not(feature = "engine"))]
use crate::limiter::AREA;
#[cfg(feature = "limiter")]
use crate::limiter::Limiters;
use crate::tree;
use leapgate::Timestamp;
use leapgate::backend::Key;
use std::time::Duration;

/// How many keys have a number. JavaScript remembers their texts.
pub(crate) const KEYS: usize = 4096;

/// Room for most keys.
const TEXT: usize = 1024;

const NANOS_PER_MILLI: u64 = 1_000_000;

/// The last millisecond that a timestamp can tell.
const LAST_MILLI: f64 = (u64::MAX / NANOS_PER_MILLI) as f64;

/// The instant `millis` milliseconds after the zero of JavaScript's clock. Whole milliseconds are exact.
#[inline]
pub(crate) fn instant(millis: f64) -> Timestamp {
    if millis >= LAST_MILLI {
        return Timestamp::MAX;
    }
    let whole = millis as u64;
    let nanos = ((millis - whole as f64) * NANOS_PER_MILLI as f64) as u64;
    // So it does not wrap, and to ask whether it does would take 128 bits.
    Timestamp::from_nanos(whole.wrapping_mul(NANOS_PER_MILLI).saturating_add(nanos))
}

/// `span` in milliseconds, rounded up to whole ones: after so many it is over.
#[inline]
pub(crate) fn ceiled(span: Duration) -> f64 {
    let part = span.subsec_nanos().div_ceil(NANOS_PER_MILLI as u32);
    span.as_secs() as f64 * 1000.0 + f64::from(part)
}

pub(crate) struct Shell {
    pub(crate) text: Vec<u8>,
    pub(crate) area: [f64; AREA],
    seed: [u64; 2],
    #[cfg(feature = "limiter")]
    pub(crate) keys: Vec<Key>,
    #[cfg(feature = "limiter")]
    pub(crate) limiters: Limiters,
    #[cfg(feature = "engine")]
    pub(crate) engines: Engines,
}

impl Default for Shell {
    fn default() -> Shell {
        Shell {
            text: vec![0; TEXT],
            area: [0.0; AREA],
            seed: [0; 2],
            #[cfg(feature = "limiter")]
            keys: vec![Key::from_hash(0); KEYS],
            #[cfg(feature = "limiter")]
            limiters: Limiters::default(),
            #[cfg(feature = "engine")]
            engines: Engines::default(),
        }
    }
}

impl Shell {
    pub(crate) fn reserve(&mut self, bytes: usize) {
        if self.text.len() < bytes {
            self.text.resize(bytes, 0);
        }
    }

    pub(crate) fn seed(&mut self, a: u32, b: u32, c: u32, d: u32) {
        let word = |high, low| u64::from(high) << 32 | u64::from(low);
        self.seed = [word(a, b), word(c, d)];
        #[cfg(feature = "limiter")]
        (self.limiters.seed = self.seed);
        #[cfg(feature = "engine")]
        (self.engines.seed = self.seed);
    }

    /// Puts `text` where JavaScript reads it. How long it is.
    pub(crate) fn say(&mut self, text: &str) -> f64 {
        self.tell(text.as_bytes())
    }

    /// The same, of several texts, each with its length before it, or of anything else.
    pub(crate) fn tell(&mut self, bytes: &[u8]) -> f64 {
        self.reserve(bytes.len());
        for (to, from) in self.text.iter_mut().zip(bytes) {
            *to = *from;
        }
        bytes.len() as f64
    }

    pub(crate) fn name_key(&mut self, slot: u32, bytes: usize, parts: bool) -> u32 {
        let text = self.text.get(..bytes).unwrap_or_default();
        let key = if parts {
            Key::of_parts(self.seed, tree::parts(text).map(Some))
        } else {
            Key::of_parts(self.seed, [Some(text)])
        };
        #[cfg(feature = "limiter")]
        if let Some(to) = self.keys.get_mut(slot as usize) {
            *to = key;
        }
        #[cfg(feature = "engine")]
        self.engines.name_key(slot, text, parts);
        key.hash() as u32
    }
}
