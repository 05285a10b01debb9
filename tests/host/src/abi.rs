//! Numbers and byte layouts of proxy-wasm ABI 0.2.1.

/// The status of a host call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[allow(missing_docs, reason = "the ABI's own names")]
pub enum Status {
    Ok = 0,
    NotFound = 1,
    BadArgument = 2,
    ParseFailure = 4,
    InvalidMemoryAccess = 6,
    CasMismatch = 8,
    InternalFailure = 10,
    Unimplemented = 12,
}

/// The three kinds of metric, by their number in the ABI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
#[allow(missing_docs, reason = "the ABI's own names")]
pub enum MetricKind {
    Counter = 0,
    Gauge = 1,
    Histogram = 2,
}

impl MetricKind {
    pub(crate) fn from_number(number: u32) -> Option<Self> {
        match number {
            0 => Some(Self::Counter),
            1 => Some(Self::Gauge),
            2 => Some(Self::Histogram),
            _ => None,
        }
    }
}

/// Header names and values in order; names may repeat.
pub type Headers = Vec<(String, String)>;

/// A property's path as it crosses the ABI: its segments joined by NUL.
///
/// ```
/// assert_eq!(leapgate_host::path(&["xds", "route_name"]), b"xds\0route_name");
/// ```
pub fn path(segments: &[&str]) -> Vec<u8> {
    segments.join("\0").into_bytes()
}

/// A header map as it crosses the ABI: count, the sizes, then each name and value with a NUL behind
/// it.
pub(crate) fn pairs_to_bytes(pairs: &Headers) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend((pairs.len() as u32).to_le_bytes());
    for (name, value) in pairs {
        bytes.extend((name.len() as u32).to_le_bytes());
        bytes.extend((value.len() as u32).to_le_bytes());
    }
    for (name, value) in pairs {
        for text in [name, value] {
            bytes.extend(text.as_bytes());
            bytes.push(0);
        }
    }
    bytes
}

/// The inverse of [`pairs_to_bytes`]; `None` if sizes and bytes do not agree. No bytes mean no headers.
pub(crate) fn pairs_from_bytes(bytes: &[u8]) -> Option<Headers> {
    if bytes.is_empty() {
        return Some(Headers::new());
    }
    let word = |at: usize| {
        let slice = bytes.get(at..at.checked_add(4)?)?;
        Some(u32::from_le_bytes(slice.try_into().ok()?) as usize)
    };
    let count = word(0)?;
    let mut at = count.checked_mul(8)?.checked_add(4)?;
    let mut text = |size: usize| {
        let slice = bytes.get(at..at.checked_add(size)?)?;
        if bytes.get(at + size) != Some(&0) {
            return None;
        }
        at += size + 1;
        Some(String::from_utf8_lossy(slice).into_owned())
    };
    (0..count)
        .map(|i| Some((text(word(4 + 8 * i)?)?, text(word(8 + 8 * i)?)?)))
        .collect()
}
