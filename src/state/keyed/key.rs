//! A key, and where its state was found.

use super::siphash;
use siphasher::sip::SipHasher13;
use std::hash::Hasher;

/// Whether the usual hash, search and the usual decision have short ways of their own, which are more code: not in WebAssembly, whose
/// modules are loaded over a network or compiled for each worker.
pub(super) const HAS_SHORT_WAYS: bool = !cfg!(any(feature = "small", target_family = "wasm"));

/// A key: a hash of values that are limited separately, such as a client's address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Key(pub(super) u64);

impl Key {
    /// The key with this hash. It should be as hard to guess as those of [`Key::of_parts`].
    pub const fn from_hash(hash: u64) -> Key {
        Key(hash)
    }

    /// The key made of these parts, in order. A part that is missing (`None`) is a value of its own, other than an empty one.
    ///
    /// The hash is SipHash-1-3. A client that finds a collision can spend another client's quota; this hash is fast and made to
    /// withstand that search while the seed is secret. Each part goes into it with its length before it; a key of one part, the
    /// common case, has a seed of its own instead.
    #[inline]
    pub fn of_parts<'a>(seed: [u64; 2], parts: impl IntoIterator<Item = Option<&'a [u8]>>) -> Key {
        let mut parts = parts.into_iter();
        match (parts.next(), parts.next()) {
            (Some(Some(only)), None) => Key::of_one(seed, only),
            (first, second) => {
                Key::of_many(seed, [first, second].into_iter().flatten().chain(parts))
            }
        }
    }

    #[inline]
    pub(super) fn of_one([k0, k1]: [u64; 2], only: &[u8]) -> Key {
        if HAS_SHORT_WAYS {
            return Key(siphash::of([k0, !k1], only));
        }
        Key(SipHasher13::new_with_keys(k0, !k1).hash(only))
    }

    pub(super) fn of_many<'a>(
        [k0, k1]: [u64; 2],
        parts: impl Iterator<Item = Option<&'a [u8]>>,
    ) -> Key {
        let mut hasher = SipHasher13::new_with_keys(k0, k1);
        for part in parts {
            match part {
                None => hasher.write_u64(0),
                Some(bytes) => {
                    hasher.write_u64(bytes.len() as u64 + 1);
                    hasher.write(bytes);
                }
            }
        }
        Key(hasher.finish())
    }

    /// The hash.
    pub const fn hash(self) -> u64 {
        self.0
    }

    /// The tag of the key: from 1 to 255, and independent of [`Key::home`].
    #[inline]
    pub(super) fn tag(self) -> u8 {
        (self.0 as u8).max(1)
    }

    /// Where the search for this key begins among `slots`, which are fewer than 2^32.
    #[inline]
    pub(super) fn home(self, slots: usize) -> usize {
        ((self.0 >> 32).wrapping_mul(slots as u64) >> 32) as usize
    }
}

/// In a handle: the state has not been searched for yet. No table has this many slots.
const NOWHERE: u32 = u32::MAX;

/// A key of a request, and where its state was found, so that later steps of a decision need no search.
///
/// It is made of the key alone; each step notes where it has found the state, and looks there first the next time. A
/// reservation's handle stays valid until the reservation is released, has ended or has left the window, whatever happens to
/// other keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyHandle {
    pub(super) key: Key,
    /// Where the state was found: a slot, a page or a bucket, as its states say. It may have moved since.
    pub(super) at: u32,
    pub(super) is_shared: bool,
}

impl KeyHandle {
    /// The handle of a key whose state has not been searched for.
    pub const fn of(key: Key) -> KeyHandle {
        KeyHandle {
            key,
            at: NOWHERE,
            is_shared: false,
        }
    }

    /// Whether the state has not been searched for.
    pub const fn is_new(self) -> bool {
        self.at == NOWHERE
    }

    /// This handle, with the state found at `at`, such as a page.
    pub const fn found_at(self, at: u32) -> KeyHandle {
        KeyHandle { at, ..self }
    }

    /// Where the state was found.
    pub const fn at(self) -> u32 {
        self.at
    }

    pub(super) fn own(key: Key, slot: usize) -> KeyHandle {
        KeyHandle {
            key,
            at: slot as u32,
            is_shared: false,
        }
    }

    pub(crate) fn shared(key: Key) -> KeyHandle {
        KeyHandle {
            key,
            at: NOWHERE,
            is_shared: true,
        }
    }

    /// The key.
    pub const fn key(self) -> Key {
        self.key
    }

    /// Whether the key has no state of its own, but shares with others because the table was full.
    pub const fn is_shared(self) -> bool {
        self.is_shared
    }
}
