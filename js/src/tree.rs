//! A value of JavaScript, flat in the buffer: `js/lib/tree.js` writes it.
//!
//! Each begins with a byte that says what it is: 0 null, 1 false, 2 true, 3 a number and its eight bytes, 4 a text, 5 an array
//! and its items, 6 an object and its keys and values in turn. Texts, arrays and objects have their length, in four bytes,
//! before what they hold. All is little-endian.

use crate::layout::*;
use leapgate::config::Value;

/// How deep a tree may be. JavaScript refuses deeper ones with an error.
const MAX_DEPTH: usize = 64;

/// The tree; null if the bytes are not valid.
pub(crate) fn read(bytes: &[u8]) -> Value {
    value(&mut { bytes }, MAX_DEPTH).unwrap_or(Value::Null)
}

/// The parts of a key, each with its length before it.
pub(crate) fn parts(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || take_text(&mut bytes))
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*taken)
}

fn take_length(bytes: &mut &[u8]) -> Option<usize> {
    take(bytes).map(|bytes| u32::from_le_bytes(bytes) as usize)
}

fn take_text<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = take_length(bytes)?;
    let (taken, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(taken)
}

/// The next number of a flat list.
#[cfg(feature = "flow")]
pub(crate) fn take_number(bytes: &mut &[u8]) -> Option<f64> {
    take(bytes).map(f64::from_le_bytes)
}

/// The next text of a flat list.
#[cfg(feature = "flow")]
pub(crate) fn take_str<'a>(bytes: &mut &'a [u8]) -> Option<&'a str> {
    std::str::from_utf8(take_text(bytes)?).ok()
}

fn string(bytes: &mut &[u8]) -> Option<String> {
    String::from_utf8(take_text(bytes)?.to_vec()).ok()
}

fn value(bytes: &mut &[u8], depth: usize) -> Option<Value> {
    let depth = depth.checked_sub(1)?;
    Some(match take(bytes)? {
        [TAG_NULL] => Value::Null,
        [TAG_FALSE] => Value::Bool(false),
        [TAG_TRUE] => Value::Bool(true),
        [TAG_NUMBER] => Value::Number(f64::from_le_bytes(take(bytes)?)),
        [TAG_TEXT] => Value::String(string(bytes)?),
        [TAG_ARRAY] => {
            let items = (0..take_length(bytes)?).map(|_| value(bytes, depth));
            Value::Array(items.collect::<Option<_>>()?)
        }
        [TAG_OBJECT] => {
            let entries = 0..take_length(bytes)?;
            let entry = |_| Some((string(bytes)?, value(bytes, depth)?));
            Value::Object(entries.map(entry).collect::<Option<_>>()?)
        }
        _ => return None,
    })
}

/// The values of the parts of a key: each part has the number of its values before them, and each value its length.
#[cfg(any(feature = "engine", feature = "flow"))]
pub(crate) fn lists(mut bytes: &[u8]) -> Vec<Vec<&[u8]>> {
    let list = || {
        let values = 0..take_length(&mut bytes)?;
        values.map(|_| take_text(&mut bytes)).collect()
    };
    std::iter::from_fn(list).collect()
}
