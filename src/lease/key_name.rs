//! What a key is called at the store.

use super::request::push_decimal;
use super::terms::Terms;

/// The name of a window: `ID:INTERVAL:BUCKETS`, so that rules with another geometry have other counts. The limit is not in it.
pub fn window_name(id: &str, terms: &Terms) -> String {
    let mut name = String::with_capacity(id.len() + 16);
    for sign in id.chars() {
        match sign {
            '%' => name.push_str("%25"),
            ':' => name.push_str("%3A"),
            other => name.push(other),
        }
    }
    for n in [terms.interval_ms(), terms.buckets()] {
        name.push(':');
        push_decimal(&mut name, n);
    }
    name
}

/// Writes a part of a key behind the name of its window: a colon and the value, in which `%` is `%25` and `:` is `%3A`. A part that
/// a request lacks is `%`, which no value is.
pub fn escape_part(out: &mut Vec<u8>, part: Option<&[u8]>) {
    out.push(b':');
    match part {
        None => out.push(b'%'),
        Some(value) => escape(out, value),
    }
}

fn escape(out: &mut Vec<u8>, value: &[u8]) {
    for byte in value {
        match byte {
            b'%' => out.extend_from_slice(b"%25"),
            b':' => out.extend_from_slice(b"%3A"),
            other => out.push(*other),
        }
    }
}
