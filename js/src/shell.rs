//! What is behind the numbers.

use crate::tree;
use leapgate::config::{LimiterOptions, read_limiter};
use leapgate::{Count, Key, Left, Limiter, MAX_LIMITS, Timestamp, Verdict};
use std::cell::OnceCell;
use std::time::Duration;

/// How many keys have a number. JavaScript remembers their texts.
pub(crate) const KEYS: usize = 4096;

/// Room for most keys.
const TEXT: usize = 1024;

/// What is told first: which limit refuses, and when to try again.
const TOLD: usize = 2;

/// What is told of each limit: its count, what is left, when quota comes back.
const PER_LIMIT: usize = 3;

const NANOS_PER_MILLI: u64 = 1_000_000;

/// The instant `millis` milliseconds after the zero of JavaScript's clock. Whole milliseconds are exact.
#[inline]
pub(crate) fn instant(millis: f64) -> Timestamp {
    let whole = millis as u64;
    let nanos = ((millis - whole as f64) * NANOS_PER_MILLI as f64) as u64;
    Timestamp::from_nanos(whole.saturating_mul(NANOS_PER_MILLI).saturating_add(nanos))
}

/// So many milliseconds, rounded up to whole ones.
pub(crate) fn millis(millis: f64) -> Duration {
    Duration::from_millis(millis.ceil() as u64)
}

/// `span` in milliseconds, rounded up to whole ones: after so many it is over.
#[inline]
fn ceiled(span: Duration) -> f64 {
    let part = span.subsec_nanos().div_ceil(NANOS_PER_MILLI as u32);
    span.as_secs() as f64 * 1000.0 + f64::from(part)
}

/// A limiter, which opens with its first key: only then is there a seed.
struct Slot {
    options: LimiterOptions,
    open: OnceCell<Option<Limiter>>,
}

/// The limiters, by number.
#[derive(Default)]
struct Limiters {
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    seed: [u64; 2],
}

impl Limiters {
    fn add(&mut self, slot: Slot) -> u32 {
        if let Some(free) = self.free.pop()
            && let Some(place) = self.slots.get_mut(free as usize)
        {
            *place = Some(slot);
            return free;
        }
        self.slots.push(Some(slot));
        (self.slots.len() - 1) as u32
    }

    #[inline]
    fn slot(&self, limiter: u32) -> Option<&Slot> {
        self.slots.get(limiter as usize)?.as_ref()
    }

    #[inline]
    fn open(&self, limiter: u32) -> Option<&Limiter> {
        let slot = self.slot(limiter)?;
        slot.open.get_or_init(|| self.limiter_of(slot)).as_ref()
    }

    #[cold]
    fn limiter_of(&self, slot: &Slot) -> Option<Limiter> {
        let LimiterOptions { limits, max_keys } = &slot.options;
        // The options have been read: they make a limiter.
        Limiter::new(limits.clone(), *max_keys, self.seed).ok()
    }
}

pub(crate) struct Shell {
    pub(crate) text: Vec<u8>,
    pub(crate) area: [f64; TOLD + PER_LIMIT * MAX_LIMITS],
    keys: Vec<Key>,
    limiters: Limiters,
}

impl Default for Shell {
    fn default() -> Shell {
        Shell {
            text: vec![0; TEXT],
            area: [0.0; TOLD + PER_LIMIT * MAX_LIMITS],
            keys: vec![Key::from_hash(0); KEYS],
            limiters: Limiters::default(),
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
        self.limiters.seed = [word(a, b), word(c, d)];
    }

    /// Puts `text` where JavaScript reads it. How long it is.
    fn say(&mut self, text: &str) -> f64 {
        self.reserve(text.len());
        for (to, from) in self.text.iter_mut().zip(text.bytes()) {
            *to = from;
        }
        text.len() as f64
    }

    pub(crate) fn limiter_new(&mut self, bytes: usize) -> f64 {
        let tree = tree::read(self.text.get(..bytes).unwrap_or_default());
        match read_limiter(&tree) {
            Ok(options) => {
                let open = OnceCell::new();
                self.limiters.add(Slot { options, open }).into()
            }
            Err(error) => -self.say(&error.to_string()),
        }
    }

    pub(crate) fn limiter_free(&mut self, limiter: u32) {
        if let Some(slot) = self.limiters.slots.get_mut(limiter as usize)
            && slot.take().is_some()
        {
            self.limiters.free.push(limiter);
        }
    }

    pub(crate) fn limiter_about(&mut self, limiter: u32, index: usize) -> f64 {
        let slot = self.limiters.slot(limiter);
        let Some(limit) = slot.and_then(|slot| slot.options.limits.get(index)) else {
            return -1.0;
        };
        let (id, interval_ms) = (limit.id.clone(), limit.window.window().interval_ms());
        let [to, ..] = &mut self.area;
        *to = interval_ms as f64;
        self.say(id.as_str())
    }

    pub(crate) fn with<R>(&self, limiter: u32, act: impl FnOnce(&Limiter) -> R) -> Option<R> {
        self.limiters.open(limiter).map(act)
    }

    #[inline]
    pub(crate) fn key(&self, slot: u32) -> Key {
        let key = self.keys.get(slot as usize);
        key.copied().unwrap_or(Key::from_hash(0))
    }

    pub(crate) fn name_key(&mut self, slot: u32, bytes: usize, parts: bool) {
        let text = self.text.get(..bytes).unwrap_or_default();
        let seed = self.limiters.seed;
        let key = if parts {
            Key::of_parts(seed, tree::parts(text).map(Some))
        } else {
            Key::of_parts(seed, [Some(text)])
        };
        if let Some(to) = self.keys.get_mut(slot as usize) {
            *to = key;
        }
    }

    #[inline]
    pub(crate) fn ask(
        &mut self,
        limiter: u32,
        slot: u32,
        (cost, count): (f64, f64),
        now: f64,
        charges: bool,
    ) -> bool {
        let (key, now) = (self.key(slot), instant(now));
        let (cost, count) = (cost as u64, Count::new(count).ok());
        let Some(open) = self.limiters.open(limiter) else {
            return false;
        };
        let (told, limits) = self.area.split_at_mut(TOLD);
        let tell = |left: Left| {
            let place = limits.get_mut(PER_LIMIT * left.index..).unwrap_or_default();
            if let [count, remaining, reset, ..] = place {
                *count = left.count.get();
                *remaining = left.remaining as f64;
                *reset = ceiled(left.reset);
            }
        };
        let verdict = if charges {
            open.limit(key, cost, count, now, tell)
        } else {
            open.peek(key, cost, count, now, tell)
        };
        let Verdict::Block { index, retry_after } = verdict else {
            return true;
        };
        if let [refuses, retry] = told {
            *refuses = index.map_or(-1.0, |index| index as f64);
            *retry = retry_after.map_or(-1.0, ceiled);
        }
        false
    }
}
