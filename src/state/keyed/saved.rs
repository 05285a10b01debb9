//! What saved states consist of: numbers of seven bits a byte, the lowest first (LEB128), and words of eight bytes.

use crate::time::Timestamp;

/// Appends a number.
#[inline(never)]
pub(crate) fn put(out: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Takes a number off the front; `None` if there is none.
#[inline(never)]
pub(crate) fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if *byte < 0x80 {
            return Some(number);
        }
    }
    None
}

/// Takes a word off the front.
pub(crate) fn take_word(bytes: &mut &[u8]) -> Option<u64> {
    let (word, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u64::from_le_bytes(*word))
}

/// When bytes are restored: how long ago they were saved, in nanoseconds, and now.
#[derive(Clone, Copy)]
pub(crate) struct Restoring {
    pub(crate) elapsed: u64,
    pub(crate) now: Timestamp,
}

/// How long from `now` until `end`; the end of time stays where it is.
pub(crate) fn left(end: Timestamp, now: Timestamp) -> u64 {
    match end {
        Timestamp::MAX => u64::MAX,
        _ => end.since(now).as_nanos() as u64,
    }
}
