//! A request as it is held until its time has come: what the rules ask for, copied out of its line.

use super::agents::Agent;
use super::fields::{Fields, Slot};
use super::format::Format;
use super::site::Site;
use leapgate::backend::Backend;
use leapgate::rule::{KeyPart, KeyValue};
use leapgate_envoy::keys;
use std::rc::Rc;

/// A request that is held.
pub(crate) struct Held<S: Backend> {
    pub(crate) site: Option<Rc<Site<S>>>,
    /// The hash of its client's address.
    pub(crate) client: Option<u64>,
    pub(crate) agent: Agent,
    pub(crate) status: u16,
    pub(crate) millis: u32,
    pub(crate) is_prioritized: bool,
    pub(crate) is_exempt: bool,
    /// The client's address, the origin, and the values of the resource's key parts.
    pub(crate) values: Values,
}

impl<S: Backend> Default for Held<S> {
    fn default() -> Held<S> {
        Held {
            site: None,
            client: None,
            agent: Agent::default(),
            status: 0,
            millis: 0,
            is_prioritized: false,
            is_exempt: false,
            values: Values::default(),
        }
    }
}

/// Values in a row: each with its length before it.
#[derive(Default)]
pub(crate) struct Values(Vec<u8>);

/// The length that stands for a missing value.
const MISSING: u16 = u16::MAX;

impl Values {
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn push(&mut self, value: Option<&[u8]>) {
        match value {
            Some(value) => {
                // A line is no longer than 64 KiB.
                let value = value.get(..usize::from(MISSING - 1)).unwrap_or(value);
                self.0
                    .extend_from_slice(&(value.len() as u16).to_le_bytes());
                self.0.extend_from_slice(value);
            }
            None => self.0.extend_from_slice(&MISSING.to_le_bytes()),
        }
    }

    pub(crate) fn iter(&self) -> ValuesIter<'_> {
        ValuesIter(&self.0)
    }
}

pub(crate) struct ValuesIter<'a>(&'a [u8]);

impl<'a> Iterator for ValuesIter<'a> {
    type Item = KeyValue<'a>;

    #[inline]
    fn next(&mut self) -> Option<KeyValue<'a>> {
        let (length, rest) = self.0.split_first_chunk()?;
        let length = u16::from_le_bytes(*length);
        if length == MISSING {
            self.0 = rest;
            return Some(KeyValue::Missing);
        }
        let (value, rest) = rest.split_at_checked(length.into())?;
        self.0 = rest;
        Some(KeyValue::One(value))
    }
}

/// Where a part of a request is read in a line.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    Client,
    /// As it stands.
    Slot(usize),
    /// One of an object of headers.
    Headers(Box<str>),
    Query(Box<str>),
    /// A cookie, in the slot of its header or in the object of headers.
    Cookie(Box<str>, Option<usize>),
    Path,
    Host,
    /// The log does not have it.
    None,
}

impl Source {
    /// Where that part is in lines of that format.
    pub(crate) fn of(part: &KeyPart, format: &Format) -> Source {
        let has = |slot| format.has_slot(slot);
        let header = |name: &str| match format.header(name) {
            Some(slot) => Source::Slot(slot),
            None if has(Slot::Headers) => Source::Headers(name.into()),
            None => Source::None,
        };
        match part {
            KeyPart::ClientIp { .. } if has(Slot::Client) || has(Slot::Forwarded) => Source::Client,
            KeyPart::Header(name) => header(name),
            KeyPart::Query(name) if has(Slot::Path) => Source::Query(name.clone()),
            KeyPart::Path if has(Slot::Path) => Source::Path,
            KeyPart::Method if has(Slot::Method) => Source::Slot(Slot::Method as usize),
            KeyPart::Host if has(Slot::Host) => Source::Host,
            KeyPart::Cookie(name) => match header("cookie") {
                Source::Slot(slot) => Source::Cookie(name.clone(), Some(slot)),
                Source::Headers(_) => Source::Cookie(name.clone(), None),
                _ => Source::None,
            },
            _ => Source::None,
        }
    }
}

/// A line, to be asked for parts.
pub(crate) struct Line<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) fields: &'a Fields,
}

impl<'a> Line<'a> {
    pub(crate) fn get(&self, slot: Slot) -> Option<&'a [u8]> {
        self.fields.get(self.bytes, slot as usize)
    }

    /// The client's address, without a port. Where the log has none, the last one that the request was forwarded for: a proxy
    /// appends that of its own client.
    pub(crate) fn client(&self) -> Option<&'a [u8]> {
        let address = match self.get(Slot::Client) {
            Some(address) => address,
            None => {
                let all = self.get(Slot::Forwarded)?;
                all.rsplit(|byte| *byte == b',').next()?.trim_ascii()
            }
        };
        Some(without_port(address)).filter(|address| !address.is_empty())
    }

    /// Calls `with` with the value of a part; a missing or empty one is `None`, as in the filter.
    #[inline]
    pub(crate) fn read(&self, source: &Source, with: &mut dyn FnMut(Option<&[u8]>)) {
        let owned = match source {
            Source::Client => return with(self.client()),
            Source::Slot(slot) => return with(self.fields.get(self.bytes, *slot)),
            Source::None => return with(None),
            Source::Headers(name) => self.header(name),
            Source::Query(name) => self
                .get(Slot::Path)
                .and_then(|path| keys::query(path, name)),
            Source::Cookie(name, slot) => {
                let header = match slot {
                    Some(slot) => self.fields.get(self.bytes, *slot).map(<[u8]>::to_vec),
                    None => self.header("cookie"),
                };
                header.and_then(|header| keys::cookie(&header, name))
            }
            Source::Path => self.get(Slot::Path).map(keys::path),
            Source::Host => self
                .get(Slot::Host)
                .map(|host| keys::authority(host.to_vec())),
        };
        with(owned.as_deref().filter(|value| !value.is_empty()));
    }

    /// A header in the object of headers, whose names have any case.
    fn header(&self, name: &str) -> Option<Vec<u8>> {
        let object = self.get(Slot::Headers)?;
        super::json::member(object, name)
    }
}

/// `1.2.3.4` of `1.2.3.4:5678`, `::1` of `[::1]:5678`.
fn without_port(address: &[u8]) -> &[u8] {
    if let Some(rest) = address.strip_prefix(b"[") {
        let end = rest.iter().position(|byte| *byte == b']');
        return rest.get(..end.unwrap_or(rest.len())).unwrap_or_default();
    }
    let mut colons = memchr::memchr_iter(b':', address);
    match (colons.next(), colons.next()) {
        (Some(at), None) => address.get(..at).unwrap_or_default(),
        _ => address,
    }
}
