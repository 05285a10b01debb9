//! The limiters behind the numbers.

use crate::shell::{Shell, ceiled, instant};
use crate::{shell, tree};
use leapgate::backend::Key;
use leapgate::config::{LimiterOptions, read_limiter};
use leapgate::rule::Count;
use leapgate::{Left, Limiter, Verdict};
use std::cell::OnceCell;
use std::time::Duration;
use wasm_bindgen::prelude::wasm_bindgen;

/// What is told first: which limit refuses, and when to try again.
const TOLD: usize = 2;

/// What is told of each limit: its count, what is left, when quota comes back.
const PER_LIMIT: usize = 3;

/// What a decision tells, in doubles.
#[cfg(not(feature = "engine"))]
pub(crate) const AREA: usize = TOLD + PER_LIMIT * Limiter::MAX_LIMITS;

/// So many milliseconds, rounded up to whole ones.
fn millis(millis: f64) -> Duration {
    Duration::from_millis(millis.ceil() as u64)
}

/// A limiter, which opens with its first key: only then is there a seed.
struct Slot {
    options: LimiterOptions,
    open: OnceCell<Option<Limiter>>,
}

/// The limiters, by number.
#[derive(Default)]
pub(crate) struct Limiters {
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    pub(crate) seed: [u64; 2],
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

impl Shell {
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

    pub(crate) fn limiter_stats(&mut self, limiter: u32) {
        // One that has seen no key yet is not opened: there may be no seed.
        let open = self.limiters.slot(limiter).and_then(|slot| slot.open.get());
        let (keys, charged) = match open {
            Some(Some(open)) => open.fill(),
            _ => (0, 0),
        };
        let [to, shared, ..] = &mut self.area;
        (*to, *shared) = (keys as f64, charged as f64);
    }

    #[inline]
    pub(crate) fn key(&self, slot: u32) -> Key {
        let key = self.keys.get(slot as usize);
        key.copied().unwrap_or(Key::from_hash(0))
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

/// Makes a limiter of the options in the buffer. Its number; or, negative, how long the sentence in the buffer is that says
/// what is wrong.
#[wasm_bindgen]
pub fn limiter_new(bytes: usize) -> f64 {
    shell(|shell| shell.limiter_new(bytes))
}

/// Drops a limiter.
#[wasm_bindgen]
pub fn limiter_free(limiter: u32) {
    shell(|shell| shell.limiter_free(limiter));
}

/// Tells about a limit: how long its id is, in the buffer; its window, in milliseconds, first in the area. Negative
/// where there is none.
#[wasm_bindgen]
pub fn limiter_about(limiter: u32, index: usize) -> f64 {
    shell(|shell| shell.limiter_about(limiter, index))
}

/// Tells, in the area, how many keys have a window of their own, and how many requests were charged to what others share.
#[wasm_bindgen]
pub fn limiter_stats(limiter: u32) {
    shell(|shell| shell.limiter_stats(limiter));
}

/// Counts all windows of a limiter as used up.
#[wasm_bindgen]
pub fn limiter_close(limiter: u32, now: f64) {
    shell(|shell| shell.with(limiter, |open| open.close(instant(now))));
}

/// Decides and tells; charges if it passes and `charges` says so. A `count` that is no count is that of each limit. Whether it
/// passes.
#[wasm_bindgen]
pub fn limiter_ask(
    limiter: u32,
    slot: u32,
    cost: f64,
    count: f64,
    now: f64,
    charges: bool,
) -> bool {
    shell(|shell| shell.ask(limiter, slot, (cost, count), now, charges))
}

/// Gives back what a key was charged.
#[wasm_bindgen]
pub fn limiter_refund(limiter: u32, slot: u32, cost: f64, charged: f64, now: f64) {
    shell(|shell| {
        let key = shell.key(slot);
        let (charged, now) = (instant(charged), instant(now));
        shell.with(limiter, |open| open.refund(key, cost as u64, charged, now));
    });
}

/// Forgets a key.
#[wasm_bindgen]
pub fn limiter_reset(limiter: u32, slot: u32) {
    shell(|shell| {
        let key = shell.key(slot);
        shell.with(limiter, |open| open.reset(key));
    });
}

/// Refuses all that a key asks for, for so many milliseconds. Whether there was room for that.
#[wasm_bindgen]
pub fn limiter_block(limiter: u32, slot: u32, millis: f64, now: f64) -> bool {
    shell(|shell| {
        let (key, length) = (shell.key(slot), crate::limiter::millis(millis));
        let block = |open: &leapgate::Limiter| open.block(key, length, instant(now));
        shell.with(limiter, block).unwrap_or(false)
    })
}
