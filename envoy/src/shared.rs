//! A cell in shared data: words of 64 bits under a key, which all workers read and replace by compare-and-swap.

use crate::host::{Host, Put};

/// How often a compare-and-swap is tried. It fails only where another worker's has succeeded since the cell was read: so it
/// takes as many workers that all change one cell at this moment. Envoy runs one for each processor.
const MAX_SWAPS: u32 = 32;

/// How one try has ended.
pub(crate) enum Try<T> {
    /// There is a result, and no need to try again.
    Done(T),
    /// Another worker has replaced the words since they were read.
    Overtaken,
}

/// Tries until it is done; `None` where other workers have been faster each time.
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

    /// The same, with these words if it is empty.
    pub(crate) fn with<const N: usize>(host: &H, key: String, words: [u64; N]) -> SharedCell<H> {
        let cell = SharedCell::new(host, key);
        cell.put(words, Put::IfAbsent);
        cell
    }

    /// The words and their version; `None` where there are none, or not so many.
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

    /// Replaces the words. Whether that was done.
    #[inline]
    pub(crate) fn put<const N: usize>(&self, words: [u64; N], put: Put) -> bool {
        let bytes = words.map(u64::to_le_bytes);
        self.host.share(&self.key, bytes.as_flattened(), put)
    }

    /// Replaces the words by what `change` makes of them, which are the result; `None` where that could not be done.
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

    /// All words, of which there may be any number, and how they may be replaced.
    pub(crate) fn read_all(&self) -> (Option<Vec<u64>>, Put) {
        let Some(value) = self.host.shared(&self.key) else {
            return (None, Put::IfAbsent);
        };
        let words = value.bytes.as_chunks().0.iter();
        let words = words.map(|word| u64::from_le_bytes(*word)).collect();
        (Some(words), Put::IfVersion(value.cas))
    }

    /// Replaces all words. Whether that was done.
    pub(crate) fn put_all(&self, words: &[u64], put: Put) -> bool {
        self.host.share(&self.key, &encoded(words), put)
    }
}

/// The bytes of words.
pub(crate) fn encoded(words: &[u64]) -> Vec<u8> {
    let bytes = words.iter().map(|word| word.to_le_bytes());
    bytes.collect::<Vec<_>>().into_flattened()
}

/// Reads all of `words`; whether that is what stands in the bytes.
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
