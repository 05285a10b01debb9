//! The labels of the hottest keys.

use super::key::Key;
use std::cell::Cell;

/// How many labels are kept for one rule.
pub const MAX_LABELS: usize = 64;

/// How long a label is at most, in bytes.
pub const MAX_LABEL: usize = 128;

/// Whether labels are kept.
pub(super) const ARE_KEPT: bool = cfg!(feature = "sentinel");

/// A key that counts less is never hot.
const COOL: u64 = 2;

/// One of the hottest keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HotKey {
    /// The key.
    pub key: Key,
    /// Its parts as text, separated by `, `, with `-` for a missing part, cut off after [`MAX_LABEL`] bytes. `None` if it is
    /// not known.
    pub label: Option<Box<str>>,
    /// Its whole passes in the window, or its calls in flight; for a throttle, how far its turns reach ahead, in nanoseconds.
    pub amount: u64,
}

/// The listed keys, whose labels are kept or will be when the keys come again.
pub(super) struct Labels {
    listed: Vec<(Key, Option<Box<str>>)>,
    /// The heat from which a key may be listed: below it, no search for the coolest key is needed.
    floor: u64,
}

impl Default for Labels {
    fn default() -> Labels {
        Labels {
            listed: Vec::new(),
            floor: COOL,
        }
    }
}

impl Labels {
    #[inline]
    pub(super) fn floor(&self) -> u64 {
        self.floor
    }

    /// A key takes the place of the coolest listed key if it is a quarter hotter, so that equally hot keys do not keep
    /// replacing each other.
    pub(super) fn set_coolest(&mut self, heat: u64) {
        self.floor = heat.saturating_add(heat / 4 + 1).max(COOL);
    }

    /// Lowers the floor: `buckets` have passed.
    pub(super) fn cool(&mut self, buckets: u64) {
        for _ in 0..buckets.min(256) {
            self.floor = self.floor.saturating_sub(self.floor / 8 + 1).max(COOL);
        }
    }

    /// A listed key has at most this heat.
    #[inline]
    pub(super) fn cool_to(&mut self, heat: u64) {
        self.floor = self.floor.min(heat.max(COOL));
    }

    pub(super) fn has(&self, key: Key) -> bool {
        self.listed.iter().any(|(listed, _)| *listed == key)
    }

    pub(super) fn label(&self, key: Key) -> Option<Box<str>> {
        let (_, label) = self.listed.iter().find(|(listed, _)| *listed == key)?;
        label.clone()
    }

    pub(super) fn is_full(&self) -> bool {
        self.listed.len() >= MAX_LABELS
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = Key> {
        self.listed.iter().map(|(key, _)| *key)
    }

    pub(super) fn push(&mut self, key: Key) {
        if self.listed.capacity() == 0 {
            self.listed.reserve_exact(MAX_LABELS);
        }
        self.listed.push((key, None));
    }

    pub(super) fn remove(&mut self, at: usize) {
        if at < self.listed.len() {
            self.listed.swap_remove(at);
        }
    }

    /// Stores the label of `key`, if it is listed without one.
    pub(super) fn store_label(&mut self, key: Key, parts: &[Option<&[u8]>]) {
        if let Some((_, unknown @ None)) = self.listed.iter_mut().find(|(listed, _)| *listed == key)
        {
            *unknown = Some(text(parts).into());
        }
    }

    pub(super) fn bytes(&self) -> usize {
        let labels = self.listed.iter().filter_map(|(_, label)| label.as_ref());
        let text: usize = labels.map(|label| label.len()).sum();
        text + self.listed.capacity() * size_of::<(Key, Option<Box<str>>)>()
    }

    fn unlabelled(&self) -> impl Iterator<Item = Key> {
        let unknown = self.listed.iter().filter(|(_, label)| label.is_none());
        unknown.map(|(key, _)| *key)
    }
}

/// The most bytes that labels take, with their list.
pub(super) const LABEL_BYTES: usize =
    MAX_LABELS * (MAX_LABEL + size_of::<(Key, Option<Box<str>>)>());

fn text(parts: &[Option<&[u8]>]) -> String {
    let mut text = String::new();
    for (number, part) in parts.iter().enumerate() {
        if number > 0 {
            text.push_str(", ");
        }
        // Bytes that do not fit are not read.
        let part = part.map_or(&b"-"[..], |part| part.get(..MAX_LABEL).unwrap_or(part));
        text.push_str(&String::from_utf8_lossy(part));
    }
    let fits = |at: &usize| text.is_char_boundary(*at);
    let end = (0..=MAX_LABEL.min(text.len())).rev().find(fits);
    text.truncate(end.unwrap_or(0));
    text
}

/// A 256-bit Bloom filter with one hash: the listed keys whose label is not known yet. A key that is not in it costs one
/// lookup, a false hit a search of the list.
#[derive(Default)]
pub(super) struct UnlabelledFilter([Cell<u64>; 4]);

impl UnlabelledFilter {
    #[inline]
    pub(super) fn may_be(&self, key: Key) -> bool {
        let [word, bit] = UnlabelledFilter::place(key);
        let word = self.0.get(word as usize).filter(|_| ARE_KEPT);
        word.is_some_and(|word| word.get() >> bit & 1 == 1)
    }

    pub(super) fn set(&self, labels: &Labels) {
        self.0.iter().for_each(|word| word.set(0));
        for key in labels.unlabelled() {
            let [word, bit] = UnlabelledFilter::place(key);
            if let Some(word) = self.0.get(word as usize) {
                word.set(word.get() | 1 << bit);
            }
        }
    }

    #[inline]
    fn place(key: Key) -> [u64; 2] {
        [key.hash() >> 6 & 3, key.hash() & 63]
    }
}
