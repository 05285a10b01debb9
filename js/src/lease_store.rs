//! The stores behind the numbers.

use crate::buffer::Buffer;
use crate::slab::Slab;
use leapgate::lease::Store;

/// The stores, by number.
#[derive(Default)]
pub(crate) struct Stores(Slab<Store>);

impl Stores {
    pub(crate) fn add(&mut self) -> u32 {
        self.0.add(Store::default())
    }

    pub(crate) fn free(&mut self, store: u32) {
        drop(self.0.take(store));
    }

    /// Answers the request behind the key in the buffer. Returns the length of the answer; of a request that is not one, minus the length
    /// of the error message.
    pub(crate) fn lease(&mut self, ask: &Ask, buffer: &mut Buffer) -> f64 {
        let Some(store) = self.0.get_mut(ask.store) else {
            return NOTHING;
        };
        let (key, request) = buffer.two_texts(ask.key_bytes, ask.text_bytes);
        let answer = store.lease(key, request, ask.now_ms as u64, ask.uptime_ms as u64);
        match answer {
            Ok(answer) => buffer.write_text(&answer),
            Err(error) => -buffer.write_text(&error.message()),
        }
    }

    /// Writes what is known of a key into the buffer, and when it is over into the results. Returns its length, negative if there is
    /// nothing.
    pub(crate) fn snapshot(&self, store: u32, key_bytes: usize, buffer: &mut Buffer) -> f64 {
        let (key, _) = buffer.two_texts(key_bytes, 0);
        let known = self.0.get(store).and_then(|store| store.snapshot(key));
        let Some((text, over_at)) = known else {
            return NOTHING;
        };
        let [to, ..] = &mut buffer.results;
        *to = over_at as f64;
        buffer.write_text(&text)
    }

    /// Knows the text behind the key in the buffer.
    pub(crate) fn restore(&mut self, ask: &Ask, over_at: f64, buffer: &Buffer) -> bool {
        let (key, text) = buffer.two_texts(ask.key_bytes, ask.text_bytes);
        let store = self.0.get_mut(ask.store);
        store.is_some_and(|store| store.restore(key, text, over_at as u64))
    }
}

const NOTHING: f64 = -1.0;

/// A key and a text behind it in the buffer, for a store. Times are in milliseconds.
pub(crate) struct Ask {
    pub(crate) store: u32,
    pub(crate) key_bytes: usize,
    pub(crate) text_bytes: usize,
    pub(crate) now_ms: f64,
    pub(crate) uptime_ms: f64,
}
