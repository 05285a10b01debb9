//! Addresses of clients and the networks that they are in.

use super::parts::RuleError;
use std::net::{IpAddr, SocketAddr};

/// An address, cut to its first bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Network {
    /// The length of the address in bytes, then the address.
    bytes: [u8; 17],
}

impl Network {
    /// The network of an address with or without a port; `None` if `text` is not an address.
    pub(crate) fn of(text: &[u8], v4: u8, v6: u8) -> Option<Network> {
        let text = std::str::from_utf8(text).ok()?;
        let with_port = || text.parse().ok().map(|address: SocketAddr| address.ip());
        let address: Option<IpAddr> = text.parse().ok().or_else(with_port);
        let whole = Network::whole(address?);
        Some(whole.cut(if whole.is_v4() { v4 } else { v6 }))
    }

    fn whole(address: IpAddr) -> Network {
        let (bits, length) = match address.to_canonical() {
            IpAddr::V4(address) => (u128::from(address.to_bits()) << 96, 4),
            IpAddr::V6(address) => (address.to_bits(), 16),
        };
        Network::with_bits(length, bits)
    }

    fn with_bits(length: u8, bits: u128) -> Network {
        let mut bytes = [length; 17];
        for (byte, of_address) in bytes.iter_mut().skip(1).zip(bits.to_be_bytes()) {
            *byte = of_address;
        }
        Network { bytes }
    }

    /// The network of the first `length` bits.
    pub(crate) fn cut(&self, length: u8) -> Network {
        let [family, bits @ ..] = self.bytes;
        let most = if self.is_v4() { 32 } else { 128 };
        let unused = 128 - u32::from(length.min(most));
        let kept = u128::MAX.checked_shl(unused).unwrap_or(0);
        Network::with_bits(family, u128::from_be_bytes(bits) & kept)
    }

    /// The network of an address as text: its first address, and behind a slash how many bits count, unless all do. As
    /// `ipKey` of the npm package writes it.
    pub(crate) fn text_of(text: &[u8], v4: u8, v6: u8) -> Option<String> {
        let network = Network::of(text, v4, v6)?;
        let [_, bits @ ..] = network.bytes;
        let mut text = String::new();
        let (length, most) = if network.is_v4() {
            for (i, byte) in bits.iter().take(4).enumerate() {
                push_number(&mut text, if i == 0 { "" } else { "." }, *byte);
            }
            (v4, 32)
        } else {
            push_v6(&mut text, u128::from_be_bytes(bits));
            (v6, 128)
        };
        if length < most {
            push_number(&mut text, "/", length);
        }
        Some(text)
    }

    pub(crate) fn is_v4(&self) -> bool {
        self.bytes.first() == Some(&4)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

fn push_number(text: &mut String, before: &str, number: u8) {
    text.push_str(before);
    text.push_str(&number.to_string());
}

/// Adds an IPv6 address as RFC 5952 writes it. (The standard library's formatting of addresses is many times as long.)
fn push_v6(text: &mut String, bits: u128) {
    let group = |i: usize| (bits >> (112 - 16 * i)) as u16;
    // `::` is the longest run of at least two zeros, and the first of several that are equally long.
    let (mut start, mut length, mut run) = (0, 1, 0);
    for i in 0..8 {
        run = if group(i) == 0 { run + 1 } else { 0 };
        if run > length {
            (start, length) = (i + 1 - run, run);
        }
    }
    let zeros = if length > 1 {
        start..start + length
    } else {
        8..8
    };
    for i in 0..8 {
        if zeros.contains(&i) {
            text.push_str(if i == zeros.start { "::" } else { "" });
            continue;
        }
        if i > 0 && i != zeros.end {
            text.push(':');
        }
        let digits = [12, 8, 4, 0].map(|shift| u32::from(group(i) >> shift & 15));
        let leading = digits.iter().take(3).take_while(|digit| **digit == 0);
        let digits = digits.iter().skip(leading.count());
        text.extend(digits.filter_map(|digit| char::from_digit(*digit, 16)));
    }
}

/// A network of IPv4 or IPv6 addresses: `10.0.0.0/8`, `2001:db8::/32`, or one address.
///
/// ```
/// use leapgate::rule::Cidr;
///
/// let office = Cidr::new("203.0.113.0/24")?;
/// assert!(office.contains(b"203.0.113.7") && office.contains(b"[::ffff:203.0.113.7]:4711"));
/// assert!(!office.contains(b"203.0.114.7") && !office.contains(b"office"));
/// # Ok::<(), leapgate::rule::RuleError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cidr {
    network: Network,
    /// How many bits count: at most 32 of an IPv4 address, at most 128 of an IPv6 address.
    length: u8,
}

impl Cidr {
    /// The network `text`: its first address, a slash and the number of bits that count; or one address.
    ///
    /// # Errors
    ///
    /// If it is not a network, if a bit is set that does not count, or if it is a network of IPv4 in the notation of IPv6.
    pub fn new(text: &str) -> Result<Cidr, RuleError> {
        let bad = |fault| RuleError::BadCidr {
            cidr: text.into(),
            fault,
        };
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address = address.parse::<IpAddr>().ok();
        let digits = length.is_none_or(|length| length.bytes().all(|byte| byte.is_ascii_digit()));
        let Some(address) = address.filter(|_| digits) else {
            return Err(bad("is not a network; use one such as `10.0.0.0/8`"));
        };
        let most = if address.is_ipv4() { 32 } else { 128 };
        let length = length.map_or(Some(most), |length| length.parse().ok());
        let Some(length) = length.filter(|length| *length <= most) else {
            return Err(bad(
                "has no such prefix; use at most `/32` for IPv4 and at most `/128` for IPv6",
            ));
        };
        let whole = Network::whole(address);
        if whole.is_v4() && !address.is_ipv4() && length >= 96 {
            return Err(bad(
                "is IPv4 in the notation of IPv6; write it as IPv4, such as `10.0.0.0/8`",
            ));
        }
        let network = whole.cut(length);
        // An IPv4 address in the notation of IPv6 has more bits than 95.
        if network != whole || whole.is_v4() != address.is_ipv4() {
            return Err(bad(
                "has bits behind its prefix; use the first address of the network",
            ));
        }
        Ok(Cidr { network, length })
    }

    /// Whether it contains the address `text`, with or without a port. An IPv4 address in the notation of IPv6 is an IPv4
    /// address. A text that is not an address is in no network.
    pub fn contains(&self, text: &[u8]) -> bool {
        Network::of(text, u8::MAX, u8::MAX).is_some_and(|address| self.holds(&address))
    }

    pub(crate) fn holds(&self, address: &Network) -> bool {
        address.cut(self.length) == self.network
    }

    /// How many bits count.
    pub fn prefix_length(&self) -> u8 {
        self.length
    }

    pub(crate) fn network(&self) -> &Network {
        &self.network
    }
}
