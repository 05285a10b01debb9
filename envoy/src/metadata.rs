//! The values in a route's metadata, as Envoy serializes it: an `envoy.config.core.v3.Metadata`, whose values have types.
//!
//! A single list or struct in it comes without the types of its values, and not at all if it has a `null` in it; so the
//! metadata is read as a whole.

use leapgate::config::Value;

/// How deep lists and structs may stand in one another.
const MAX_DEPTH: u32 = 16;

/// Tags: the number of a field and how it is written. Of a map and of a list, the items; of an item of a map, its two parts.
const ITEM: u64 = 1 << 3 | LENGTH;
const KEY: u64 = 1 << 3 | LENGTH;
const VALUE: u64 = 2 << 3 | LENGTH;

/// The kinds of a `google.protobuf.Value`. Those that are not here are null.
const NUMBER: u64 = 2 << 3 | FIXED64;
const STRING: u64 = 3 << 3 | LENGTH;
const BOOL: u64 = 4 << 3 | VARINT;
const STRUCT: u64 = 5 << 3 | LENGTH;
const LIST: u64 = 6 << 3 | LENGTH;

const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const LENGTH: u64 = 2;
const FIXED32: u64 = 5;

/// The serialized item called `name` of a map: of metadata, the struct of a filter; of a struct, a value.
pub fn find<'a>(mut map: &'a [u8], name: &str) -> Option<&'a [u8]> {
    loop {
        let (tag, _, item) = next(&mut map)?;
        if tag == ITEM
            && let Some((key, value)) = entry(item)
            && key == name.as_bytes()
        {
            return Some(value);
        }
    }
}

/// A serialized value; `None` if it is not one, or deeper than 16 levels.
pub fn value(bytes: &[u8]) -> Option<Value> {
    value_at(bytes, MAX_DEPTH)
}

fn value_at(mut bytes: &[u8], depth: u32) -> Option<Value> {
    let depth = depth.checked_sub(1)?;
    let mut value = Value::Null;
    while !bytes.is_empty() {
        let (tag, number, mut content) = next(&mut bytes)?;
        value = match tag {
            NUMBER => Value::Number(f64::from_le_bytes(content.try_into().ok()?)),
            STRING => Value::String(text(content)?),
            BOOL => Value::Bool(number != 0),
            STRUCT => {
                let mut object = Vec::new();
                while !content.is_empty() {
                    let (_, _, item) = next(&mut content)?;
                    let (key, value) = entry(item)?;
                    object.push((text(key)?, value_at(value, depth)?));
                }
                Value::Object(object)
            }
            LIST => {
                let mut list = Vec::new();
                while !content.is_empty() {
                    let (_, _, item) = next(&mut content)?;
                    list.push(value_at(item, depth)?);
                }
                Value::Array(list)
            }
            _ => Value::Null,
        };
    }
    Some(value)
}

fn text(bytes: &[u8]) -> Option<String> {
    String::from_utf8(bytes.to_vec()).ok()
}

/// The two parts of an item of a map; one that is left out is empty.
fn entry(mut item: &[u8]) -> Option<(&[u8], &[u8])> {
    let (mut key, mut value) = (&[][..], &[][..]);
    while !item.is_empty() {
        match next(&mut item)? {
            (KEY, _, content) => key = content,
            (VALUE, _, content) => value = content,
            _ => {}
        }
    }
    Some((key, value))
}

/// Takes the next field: its tag, and its number or its content.
pub(crate) fn next<'a>(bytes: &mut &'a [u8]) -> Option<(u64, u64, &'a [u8])> {
    let tag = varint(bytes)?;
    let length = match tag & 7 {
        VARINT => return Some((tag, varint(bytes)?, &[])),
        FIXED64 => 8,
        LENGTH => usize::try_from(varint(bytes)?).ok()?,
        FIXED32 => 4,
        _ => return None,
    };
    let (content, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some((tag, 0, content))
}

/// Takes a number of at most ten bytes, the lowest seven bits first.
fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if *byte < 0x80 {
            return Some(number);
        }
    }
    None
}
