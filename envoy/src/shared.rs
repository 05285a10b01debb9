//! A cell in shared data: words of 64 bits under a key, which all workers read and replace by compare-and-swap.

use crate::host::{Host, Put};

/// How often a compare-and-swap is tried. A try fails only if another worker has replaced the words since they were read: as
/// many workers as this can change one cell at the same moment, and Envoy runs one worker for each processor.
const MAX_SWAPS: u32 = 32;

/// How one try has ended.
pub(crate) enum Try<T> {
    /// With this result, which may be a failure that another try does not change.
    Done(T),
    /// Another worker has replaced the words since they were read.
    Overtaken,
}

/// Tries until it is done; `None` if other workers have been faster each time.
pub(crate) fn swap<T>(mut attempt: impl FnMut() -> Try<T>) -> Option<T> {
    (0..MAX_SWAPS).find_map(|_| match attempt() {
        Try::Done(result) => Some(result),
        Try::Overtaken => None,
    })
}

/// Words in shared data, in little-endian order.
pub(crate) struct SharedCell<H> {
    host: H,
    key: String,
}

impl<H: Host> SharedCell<H> {
    /// The cell under `key`, which may be empty.
    pub(crate) fn new(host: &H, key: String) -> SharedCell<H> {
        let host = host.clone();
        SharedCell { host, key }
    }

    /// The cell under `key`. If it is empty, it gets these words.
    pub(crate) fn with<const N: usize>(host: &H, key: String, words: [u64; N]) -> SharedCell<H> {
        let cell = SharedCell::new(host, key);
        cell.put(words, Put::IfAbsent);
        cell
    }

    /// The words and their version; `None` if the cell is empty or has another number of words.
    #[inline]
    pub(crate) fn read<const N: usize>(&self) -> Option<([u64; N], u32)> {
        let mut words = [0; N];
        let version = self.read_to(&mut words)?;
        Some((words, version))
    }

    #[inline(never)]
    fn read_to(&self, words: &mut [u64]) -> Option<u32> {
        let value = self.host.shared(&self.key)?;
        decode(&value.bytes, words).then_some(value.cas)
    }

    /// Replaces the words. Returns whether that was done.
    #[inline]
    pub(crate) fn put<const N: usize>(&self, words: [u64; N], put: Put) -> bool {
        let bytes = words.map(u64::to_le_bytes);
        self.host.share(&self.key, bytes.as_flattened(), put)
    }

    /// Replaces the words by what `change` makes of them, and returns the new ones; `None` if that could not be done.
    pub(crate) fn change<const N: usize>(
        &self,
        change: impl Fn([u64; N]) -> [u64; N],
    ) -> Option<[u64; N]> {
        let changed = swap(|| {
            let Some((words, version)) = self.read() else {
                return Try::Done(None);
            };
            let changed = change(words);
            if changed == words || self.put(changed, Put::IfVersion(version)) {
                return Try::Done(Some(changed));
            }
            Try::Overtaken
        });
        changed.flatten()
    }

    /// The words of a cell with any number of them, and how they may be replaced.
    pub(crate) fn read_all(&self) -> (Option<Vec<u64>>, Put) {
        let Some(value) = self.host.shared(&self.key) else {
            return (None, Put::IfAbsent);
        };
        let words = value.bytes.as_chunks().0.iter();
        let words = words.map(|word| u64::from_le_bytes(*word)).collect();
        (Some(words), Put::IfVersion(value.cas))
    }

    /// Replaces the words of a cell with any number of them. Returns whether that was done.
    pub(crate) fn put_all(&self, words: &[u64], put: Put) -> bool {
        self.host.share(&self.key, &encoded(words), put)
    }
}

/// The words as bytes.
pub(crate) fn encoded(words: &[u64]) -> Vec<u8> {
    let bytes = words.iter().map(|word| word.to_le_bytes());
    bytes.collect::<Vec<_>>().into_flattened()
}

/// Reads `words` from bytes. Returns whether there are exactly as many.
fn decode(bytes: &[u8], words: &mut [u64]) -> bool {
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    bytes.len() == words.len() * 8
}

#[cfg(test)]
pub(crate) fn decoded<const N: usize>(bytes: &[u8]) -> Option<[u64; N]> {
    let mut words = [0; N];
    decode(bytes, &mut words).then_some(words)
}
