//! The maps of names.

/// A map with a fast hash that is seeded.
#[cfg(not(feature = "small"))]
pub(crate) type HashMap<K, V> = hashbrown::HashMap<K, V>;

/// A map with the hash that keys have anyway, so that there is only one. It is not seeded: the names are bounded in number, and so
/// is what those cost that collide.
#[cfg(feature = "small")]
pub(crate) type HashMap<K, V> = hashbrown::HashMap<K, V, Hash>;

#[cfg(feature = "small")]
type Hash = std::hash::BuildHasherDefault<siphasher::sip::SipHasher13>;
