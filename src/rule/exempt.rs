//! Requests that rules leave alone.

use super::key::{KeyPart, KeyValue, within};
use super::network::{Cidr, Network};
use super::parts::{RuleError, checked_name};
use std::rc::Rc;

/// How many exemptions a list may have: a request is compared with each.
pub const MAX_EXEMPTIONS: usize = 256;

/// What exempts a request.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Exemption {
    /// The client's address is in this network.
    ClientIp(Cidr),
    /// The header of this name, in lower case, has this value, or any value. Any client can send it.
    Header {
        /// The name.
        name: Box<str>,
        /// `None` for any value.
        value: Option<Box<str>>,
    },
    /// The request has this origin.
    Origin(Box<str>),
}

/// Which requests are exempt from a rule, or from all flow rules and system rules: those that one of the exemptions holds for. They
/// are neither refused nor counted.
///
/// ```
/// use leapgate::rule::{Cidr, Exempt, Exemption, FlowRule};
///
/// let office = Exempt::new([Exemption::ClientIp(Cidr::new("203.0.113.0/24")?)])?;
/// let login = FlowRule::new("login", 5.0)?.exempting(office);
/// # Ok::<(), leapgate::rule::RuleError>(())
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct Exempt {
    /// What the exemptions ask of a request, each part once: the client's address first.
    parts: Rc<[KeyPart]>,
    networks: Rc<[Cidr]>,
    /// Which of the parts, and its value.
    headers: Rc<[(usize, Option<Box<str>>)]>,
    origins: Rc<[Box<str>]>,
}

impl Exempt {
    /// The requests that one of these exemptions holds for.
    ///
    /// # Errors
    ///
    /// If there are more than [`MAX_EXEMPTIONS`], or the name of an origin is empty or too long.
    pub fn new(exemptions: impl Into<Vec<Exemption>>) -> Result<Exempt, RuleError> {
        let exemptions: Vec<Exemption> = exemptions.into();
        within(exemptions.len(), 0, MAX_EXEMPTIONS)?;
        let (mut networks, mut origins) = (Vec::new(), Vec::new());
        let (mut parts, mut headers) = (Vec::new(), Vec::new());
        if exemptions
            .iter()
            .any(|of| matches!(of, Exemption::ClientIp(_)))
        {
            parts.push(KeyPart::CLIENT_IP);
        }
        for exemption in exemptions {
            match exemption {
                Exemption::ClientIp(network) => networks.push(network),
                Exemption::Header { name, value } => {
                    let part = KeyPart::Header(name);
                    let known = parts.iter().position(|known| *known == part);
                    headers.push((known.unwrap_or(parts.len()), value));
                    if known.is_none() {
                        parts.push(part);
                    }
                }
                Exemption::Origin(name) => {
                    checked_name(&name)?;
                    origins.push(name);
                }
            }
        }
        Ok(Exempt {
            parts: parts.into(),
            networks: networks.into(),
            headers: headers.into(),
            origins: origins.into(),
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty() && self.origins.is_empty()
    }

    /// What a shell has to read of a request for [`Exempt::holds_for`], in this order.
    pub fn parts(&self) -> &[KeyPart] {
        &self.parts
    }

    /// Whether an exemption is for an origin.
    pub fn is_by_origin(&self) -> bool {
        !self.origins.is_empty()
    }

    /// The origins that are exempt.
    pub fn origins(&self) -> impl Iterator<Item = &str> {
        self.origins.iter().map(|name| &**name)
    }

    /// Whether a request of that origin is exempt that has these values for the [`Exempt::parts`]. If a part has several values,
    /// an exemption has to hold for each of them.
    pub fn holds_for(&self, values: &[KeyValue<'_>], origin: &str) -> bool {
        self.holds(
            &|part| values.get(part).copied().unwrap_or_default(),
            origin,
        )
    }

    /// The same, with the values by part.
    pub(crate) fn holds<'v>(&self, value: &dyn Fn(usize) -> KeyValue<'v>, origin: &str) -> bool {
        let each = |part, holds: &dyn Fn(&[u8]) -> bool| {
            let value = value(part);
            (0..value.len()).all(|number| value.get(number).is_some_and(holds))
        };
        let is_near = |text: &[u8]| {
            let address = Network::of(text, u8::MAX, u8::MAX);
            let contains = |address| self.networks.iter().any(|cidr| cidr.holds(address));
            address.as_ref().is_some_and(contains)
        };
        let has = |text: &[u8], wanted: &Option<Box<str>>| match wanted {
            Some(wanted) => text == wanted.as_bytes(),
            None => !text.is_empty(),
        };
        self.origins.iter().any(|name| **name == *origin)
            || !self.networks.is_empty() && each(0, &is_near)
            || (self.headers.iter()).any(|(part, value)| each(*part, &|text| has(text, value)))
    }
}
