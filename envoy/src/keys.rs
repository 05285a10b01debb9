//! The parts of a request that keyed rules name, each read once.
//!
//! | Part | What it is here |
//! |---|---|
//! | client address | `source.address`; the rule says which of its bits count. The client of a Unix socket is the socket's path |
//! | header | the first value, as it stands |
//! | query parameter | the first of that name, decoded |
//! | cookie | the first of that name, decoded, without quotes around it |
//! | path | up to the query, decoded |
//! | method | as it stands |
//! | host | in lower case, without the port and without a dot at the end |
//! | peer | the URI in the certificate of the peer, or else its subject |
//! | dynamic metadata, metadata of the route | a string; with `"type": "number"` a double, in decimal digits |
//! | typed metadata | a string; with `"type": "number"` an unsigned integer, in decimal digits |
//! | filter state | the object as text |
//!
//! The type of a value in metadata comes from the document and not from its bytes, which tell too little: eight bytes may be a
//! string or a number. A value of another type (Envoy serializes lists and structs) counts as missing; it is counted and logged.
//!
//! Values are compared after decoding, so that another encoding is not another client. A missing or empty value is a value of
//! its own: requests without the part are limited together.
//!
//! Which `source.address` Envoy trusts is a matter of its configuration (`use_remote_address`, `xff_num_trusted_hops`): with
//! the defaults, clients choose the address by a header.

use crate::host::{Host, Property};
use crate::vm::Vm;
use leapgate::rule::{Attribute, AttributeSource, KeyPart, KeyValue, number_text};
use std::cell::{Cell, OnceCell};
use std::ops::Deref;

/// Whether a configuration has met an attribute of a wrong type.
#[derive(Default)]
pub struct WrongTypes(Cell<bool>);

/// A list of which most have one item, which then needs no allocation.
pub enum Few<T> {
    /// The only item.
    One(T),
    /// Any number of them.
    Many(Vec<T>),
}

impl<T> Few<T> {
    /// What `make` makes of each of these.
    #[inline]
    fn of<'a, S>(all: &'a [S], make: impl Fn(&'a S) -> T) -> Few<T> {
        match all {
            [only] => Few::One(make(only)),
            all => Few::Many(all.iter().map(make).collect()),
        }
    }

    /// The first item.
    pub(crate) fn into_first(self) -> Option<T> {
        match self {
            Few::One(only) => Some(only),
            Few::Many(all) => all.into_iter().next(),
        }
    }
}

impl<T> Default for Few<T> {
    fn default() -> Few<T> {
        Few::Many(Vec::new())
    }
}

impl<T> Deref for Few<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        match self {
            Few::One(only) => std::slice::from_ref(only),
            Few::Many(all) => all,
        }
    }
}

/// Reads these parts of the request.
pub fn read<H: Host>(vm: &Vm<H>, wrong: &WrongTypes, parts: &[KeyPart]) -> Few<Option<Vec<u8>>> {
    let host = vm.host();
    let path = once(|| host.request_header(":path"));
    let cookies = once(|| host.request_header("cookie"));
    let part = |part: &KeyPart| match part {
        KeyPart::ClientIp { .. } => host.property(Property::SourceAddress),
        KeyPart::Header(name) => host.request_header(name),
        KeyPart::Query(name) => query(path.get()?, name),
        KeyPart::Cookie(name) => cookie(cookies.get()?, name),
        KeyPart::Path => Some(self::path(path.get()?)),
        KeyPart::Method => host.request_header(":method"),
        KeyPart::Host => Some(authority(host.request_header(":authority")?)),
        KeyPart::Peer => peer(host),
        KeyPart::Attribute(of) => attribute(vm, wrong, of),
        // The configuration has refused rules with a part that is not read here: see `is_read`.
        _ => None,
    };
    Few::of(parts, |name| part(name).filter(|value| !value.is_empty()))
}

/// The values that were read, as the engine takes them.
pub fn values(keys: &[Option<Vec<u8>>]) -> Few<KeyValue<'_>> {
    Few::of(keys, |key| {
        key.as_deref().map_or(KeyValue::Missing, KeyValue::One)
    })
}

/// Whether [`read`] knows the part. The caller's own values are unknown: requests in Envoy have none.
pub fn is_read(part: &KeyPart) -> bool {
    matches!(
        part,
        KeyPart::ClientIp { .. }
            | KeyPart::Header(_)
            | KeyPart::Query(_)
            | KeyPart::Cookie(_)
            | KeyPart::Path
            | KeyPart::Method
            | KeyPart::Host
            | KeyPart::Peer
            | KeyPart::Attribute(_)
    )
}

/// The peer's identity.
pub(crate) fn peer<H: Host>(host: &H) -> Option<Vec<u8>> {
    let read = |property| host.property(property).filter(|name| !name.is_empty());
    read(Property::PeerUri).or_else(|| read(Property::PeerSubject))
}

/// The value of an attribute as text, unless it is empty. A value of a wrong type is missing, too, and is counted; the first one
/// is logged.
pub(crate) fn attribute<H: Host>(
    vm: &Vm<H>,
    wrong: &WrongTypes,
    attribute: &Attribute,
) -> Option<Vec<u8>> {
    typed(vm, wrong, attribute)
        .flatten()
        .filter(|value| !value.is_empty())
}

/// The same, where it has any value: `None` for one of a wrong type.
pub(crate) fn typed<H: Host>(
    vm: &Vm<H>,
    wrong: &WrongTypes,
    attribute: &Attribute,
) -> Option<Option<Vec<u8>>> {
    let place = match attribute.source() {
        AttributeSource::Metadata => "metadata\0filter_metadata\0",
        AttributeSource::TypedMetadata => "metadata\0typed_filter_metadata\0",
        AttributeSource::RouteMetadata => "xds\0route_metadata\0filter_metadata\0",
        AttributeSource::FilterState => "filter_state\0",
    };
    let value = vm.host().property_at(&[place, attribute.path()].concat())?;
    let value = text(attribute, value);
    if value.is_none() {
        warn(vm, wrong, attribute);
    }
    Some(value)
}

/// The value of an attribute as text; `None` if it has another type.
fn text(attribute: &Attribute, value: Vec<u8>) -> Option<Vec<u8>> {
    if attribute.is_number() {
        let bytes = value.try_into().ok()?;
        let number = match attribute.source() {
            AttributeSource::TypedMetadata => u64::from_le_bytes(bytes).to_string(),
            _ => number_text(f64::from_le_bytes(bytes)),
        };
        return Some(number.into_bytes());
    }
    is_text(&value).then_some(value)
}

/// Whether a value can be text. Serialized lists and structs begin with their length in four bytes, the last of which is 0; almost
/// every number has such a byte, too, or is not UTF-8.
pub(crate) fn is_text(value: &[u8]) -> bool {
    std::str::from_utf8(value).is_ok_and(|text| !text.bytes().any(|byte| byte.is_ascii_control()))
}

/// Counts a value of a wrong type.
#[cold]
fn warn<H: Host>(vm: &Vm<H>, wrong: &WrongTypes, attribute: &Attribute) {
    vm.count("wrong_type");
    if !wrong.0.replace(true) {
        let what = match attribute.is_number() {
            true => "its value is not a number; such requests count as requests without it",
            false => {
                "its value is not a string (for a number, add `\"type\": \"number\"`); such requests count as requests without it"
            }
        };
        vm.warn(&[" ", &attribute.to_string()].concat(), what);
    }
}

/// A header that several parts are read from, read once.
struct Once<F> {
    value: OnceCell<Option<Vec<u8>>>,
    read: F,
}

fn once<F: Fn() -> Option<Vec<u8>>>(read: F) -> Once<F> {
    let value = OnceCell::new();
    Once { value, read }
}

impl<F: Fn() -> Option<Vec<u8>>> Once<F> {
    fn get(&self) -> Option<&[u8]> {
        self.value.get_or_init(&self.read).as_deref()
    }
}

/// The bytes before the first `at` and, if there is one, the bytes after it.
fn split(bytes: &[u8], at: u8) -> (&[u8], Option<&[u8]>) {
    let mut parts = bytes.splitn(2, |byte| *byte == at);
    (parts.next().unwrap_or_default(), parts.next())
}

/// The path up to the query, decoded.
pub fn path(path: &[u8]) -> Vec<u8> {
    decoded(split(path, b'?').0, false)
}

/// The value of a parameter in the query of a path; empty if the parameter has no value.
pub fn query(path: &[u8], name: &str) -> Option<Vec<u8>> {
    split(path, b'?')
        .1?
        .split(|byte| *byte == b'&')
        .find_map(|parameter| {
            let (key, value) = split(parameter, b'=');
            let is_it = key == name.as_bytes()
                || key.iter().any(|byte| matches!(byte, b'%' | b'+'))
                    && decoded(key, true) == name.as_bytes();
            is_it.then(|| decoded(value.unwrap_or_default(), true))
        })
}

/// The value of a cookie in the header.
pub fn cookie(header: &[u8], name: &str) -> Option<Vec<u8>> {
    header.split(|byte| *byte == b';').find_map(|cookie| {
        let (key, value) = split(cookie, b'=');
        let value = value
            .filter(|_| key.trim_ascii() == name.as_bytes())?
            .trim_ascii();
        let quoted = value
            .strip_prefix(b"\"")
            .and_then(|value| value.strip_suffix(b"\""));
        Some(decoded(quoted.unwrap_or(value), false))
    })
}

/// A host in lower case, without its port.
pub fn authority(mut host: Vec<u8>) -> Vec<u8> {
    host.make_ascii_lowercase();
    let address = host.iter().position(|byte| *byte == b']').unwrap_or(0);
    let port = host.iter().skip(address).position(|byte| *byte == b':');
    if let Some(port) = port {
        host.truncate(address + port);
    }
    if host.last() == Some(&b'.') {
        host.pop();
    }
    host
}

/// Decodes percent-encoded bytes; invalid sequences stay. In a query `+` is a space.
fn decoded(bytes: &[u8], is_query: bool) -> Vec<u8> {
    let digit = |at: usize| char::from(*bytes.get(at)?).to_digit(16);
    let (mut decoded, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while let Some(byte) = bytes.get(at) {
        let (byte, length) = match byte {
            b'%' => match (digit(at + 1), digit(at + 2)) {
                (Some(high), Some(low)) => ((high * 16 + low) as u8, 3),
                _ => (b'%', 1),
            },
            b'+' if is_query => (b' ', 1),
            byte => (*byte, 1),
        };
        decoded.push(byte);
        at += length;
    }
    decoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn is(found: Option<Vec<u8>>, expected: Option<&str>) {
        let found = found.map(|value| String::from_utf8(value).unwrap());
        assert_eq!(found.as_deref(), expected);
    }

    #[test]
    fn a_parameter_is_the_first_of_its_name_however_it_is_encoded() {
        let cases = [
            ("/a?user=7", Some("7")),
            ("/a?x=1&user=7&user=8", Some("7")),
            ("/a?u%73er=%37", Some("7")),
            ("/a?user=a+b%20c", Some("a b c")),
            ("/a?user=%3d%26=", Some("=&=")),
            ("/a?user=%zz%4", Some("%zz%4")),
            ("/a?user=a?b", Some("a?b")),
            ("/a?user", Some("")),
            ("/a?user=", Some("")),
            ("/a?users=7&USER=7", None),
            ("/a?", None),
            ("/user=7", None),
        ];
        for (path, expected) in cases {
            is(query(path.as_bytes(), "user"), expected);
        }
    }

    #[test]
    fn a_cookie_is_the_first_of_its_name() {
        let cases = [
            ("sid=1; sid=2", Some("1")),
            ("a=b;sid = \"x=y\" ", Some("x=y")),
            ("sid=%61+b", Some("a+b")),
            ("sid=", Some("")),
            ("sid", None),
            ("SID=1; xsid=2", None),
        ];
        for (header, expected) in cases {
            is(cookie(header.as_bytes(), "sid"), expected);
        }
    }

    #[test]
    fn a_host_has_no_case_and_no_port() {
        let cases = [
            ("Shop.Example:8080", "shop.example"),
            ("shop.example.", "shop.example"),
            ("[2001:DB8::1]:80", "[2001:db8::1]"),
            ("[2001:db8::1]", "[2001:db8::1]"),
            ("", ""),
        ];
        for (host, expected) in cases {
            is(Some(authority(host.into())), Some(expected));
        }
    }

    #[test]
    fn a_plus_is_a_space_in_a_query_alone() {
        is(Some(decoded(b"/a+b%2Fc", false)), Some("/a+b/c"));
        is(Some(decoded(b"a+b", true)), Some("a b"));
    }
}
