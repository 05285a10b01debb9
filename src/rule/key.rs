//! Keys: the parts of a request by which a rule distinguishes clients, each of which is limited separately.

use super::attribute::Attribute;
use super::behavior::ControlBehavior;
use super::count_from::CountFrom;
use super::network::Cidr;
use super::parts::{Count, Grade, Ratio, RuleError};
use std::fmt;
use std::net::IpAddr;
use std::rc::Rc;

/// How many parts a key may have.
pub const MAX_KEY_PARTS: usize = 8;

/// How many keys one rule keeps apart by default.
pub const DEFAULT_MAX_KEYS: usize = 100_000;

/// The most keys of one rule that can be kept apart.
pub const MAX_KEYS: usize = 1 << 24;

/// How many keys of one rule a request may have. A request with more is refused.
pub const MAX_KEYS_OF_REQUEST: usize = 256;

/// The largest program that a regular expression may be compiled to, in bytes.
#[cfg(feature = "regex")]
const MAX_PROGRAM: usize = 1 << 18;

/// A part of a request by which clients differ.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum KeyPart {
    /// The client's address, as text, with or without a port; only its first bits count. A text that
    /// is not an address counts as it is written.
    ClientIp {
        /// Of an IPv4 address, at most 32. An IPv4 address in the notation of IPv6 counts as IPv4.
        v4: u8,
        /// Of an IPv6 address, at most 128.
        v6: u8,
    },
    /// The value of the header of this name, in lower case.
    Header(Box<str>),
    /// The value of the parameter of this name in the query.
    Query(Box<str>),
    /// The value of the cookie of this name.
    Cookie(Box<str>),
    /// The path, without the query.
    Path,
    /// The method.
    Method,
    /// The requested host, in lower case.
    Host,
    /// The value that the caller passes at this index, from 0; a negative index counts from the end, where -1 is the last
    /// value.
    ///
    /// Sentinel: `ParamFlowRule.paramIdx`, where the first call makes a negative index a positive one, for good.
    #[doc(alias = "paramIdx")]
    Arg(i32),
    /// What a proxy knows of the request, such as metadata that an earlier filter has written: see [`Attribute`].
    Attribute(Attribute),
    /// The identity in the peer's certificate: its URI (in Istio its SPIFFE id), or else its subject.
    Peer,
}

impl KeyPart {
    /// A client's address: all of an IPv4 address, and the first 64 bits of an IPv6 address, which is what a provider commonly
    /// gives one customer.
    pub const CLIENT_IP: KeyPart = KeyPart::ClientIp { v4: 32, v6: 64 };

    /// The position of `index` among `len` values; a negative index counts from the end. `None` if it is outside.
    pub fn arg_of(index: i32, len: usize) -> Option<usize> {
        let from_end = || len.checked_sub(index.unsigned_abs() as usize);
        let place = usize::try_from(index).ok().or_else(from_end)?;
        (place < len).then_some(place)
    }
}

/// The part as it stands in an id.
impl fmt::Display for KeyPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            &KeyPart::CLIENT_IP => f.write_str("clientIp"),
            KeyPart::ClientIp { v4, v6 } => write!(f, "clientIp:{v4}:{v6}"),
            KeyPart::Header(name) => write!(f, "header:{name}"),
            KeyPart::Query(name) => write!(f, "query:{name}"),
            KeyPart::Cookie(name) => write!(f, "cookie:{name}"),
            KeyPart::Path => f.write_str("path"),
            KeyPart::Method => f.write_str("method"),
            KeyPart::Host => f.write_str("host"),
            KeyPart::Arg(index) => write!(f, "arg:{index}"),
            KeyPart::Attribute(attribute) => attribute.fmt(f),
            KeyPart::Peer => f.write_str("peer"),
        }
    }
}

/// A request's value of a part.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum KeyValue<'a> {
    /// The request lacks the part. This is a value of its own, different from the empty one.
    #[default]
    Missing,
    /// One value.
    One(&'a [u8]),
    /// Several values. The request counts for each and passes only if each admits it. An empty list is the same as missing.
    Each(&'a [&'a [u8]]),
}

impl<'a> KeyValue<'a> {
    pub(crate) fn len(self) -> usize {
        match self {
            KeyValue::Missing | KeyValue::One(_) => 1,
            KeyValue::Each(values) => values.len().max(1),
        }
    }

    pub(crate) fn get(self, index: usize) -> Option<&'a [u8]> {
        match self {
            KeyValue::Missing => None,
            KeyValue::One(value) => Some(value),
            KeyValue::Each(values) => values.get(index).copied(),
        }
    }
}

/// Which values a rule is for.
///
/// Sentinel: `SentinelGatewayConstants.PARAM_MATCH_STRATEGY_*`. (Its prefix is declared and was never written.)
#[derive(Clone, PartialEq, Debug)]
pub enum KeyMatch {
    /// This value.
    Exact(Box<str>),
    /// Values with this prefix.
    Prefix(Box<str>),
    /// Values that the expression matches as a whole.
    Regex(Regex),
    /// Values that contain this text.
    Contains(Box<str>),
}

impl KeyMatch {
    /// Whether the rule is for `value`.
    pub fn matches(&self, value: &[u8]) -> bool {
        match self {
            KeyMatch::Exact(text) => value == text.as_bytes(),
            KeyMatch::Prefix(text) => value.starts_with(text.as_bytes()),
            KeyMatch::Contains(text) => {
                text.is_empty()
                    || value
                        .windows(text.len())
                        .any(|part| part == text.as_bytes())
            }
            KeyMatch::Regex(regex) => regex.matches(value),
        }
    }
}

impl fmt::Display for KeyMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyMatch::Exact(text) => write!(f, "={text}"),
            KeyMatch::Prefix(text) => write!(f, "^{text}"),
            KeyMatch::Regex(regex) => write!(f, "~{}", regex.as_str()),
            KeyMatch::Contains(text) => write!(f, "*{text}"),
        }
    }
}

/// A regular expression for a whole value: Java's syntax as far as `regex-lite` has it. It needs the feature `regex`.
#[derive(Clone, Debug)]
pub struct Regex {
    text: Box<str>,
    #[cfg(feature = "regex")]
    whole: regex_lite::Regex,
}

impl Regex {
    /// The expression `text`.
    ///
    /// # Errors
    ///
    /// If it is not valid, or too large.
    #[cfg(feature = "regex")]
    pub fn new(text: &str) -> Result<Regex, RuleError> {
        // Compiled alone first: `a)(b` must not become valid by the group around it.
        let compile = |text: &str| {
            regex_lite::RegexBuilder::new(text)
                .size_limit(MAX_PROGRAM)
                .build()
        };
        let whole = compile(text).and_then(|_| compile(&[r"\A(?:", text, r")\z"].concat()));
        whole
            .map(|whole| Regex {
                text: text.into(),
                whole,
            })
            .map_err(|error| RuleError::BadRegex {
                regex: text.into(),
                reason: error.to_string(),
            })
    }

    /// The expression `text`: an error, because the feature `regex` is off.
    ///
    /// # Errors
    ///
    /// Always: the feature `regex` is off.
    #[cfg(not(feature = "regex"))]
    pub fn new(text: &str) -> Result<Regex, RuleError> {
        Err(RuleError::NoRegex { regex: text.into() })
    }

    /// The expression as it was given.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    #[cfg(feature = "regex")]
    pub(crate) fn matches(&self, value: &[u8]) -> bool {
        std::str::from_utf8(value).is_ok_and(|value| self.whole.is_match(value))
    }

    #[cfg(not(feature = "regex"))]
    fn matches(&self, _: &[u8]) -> bool {
        false
    }
}

impl PartialEq for Regex {
    fn eq(&self, other: &Regex) -> bool {
        self.text == other.text
    }
}

/// Another count for one combination of values.
///
/// Sentinel: `ParamFlowItem`.
#[doc(alias = "ParamFlowItem")]
#[derive(Clone, PartialEq, Debug)]
pub struct KeyItem {
    /// A value for each part, in order. `None` means that the part is missing. If the only part is the client's address, the
    /// value may be a network ([`Cidr`]): each of its keys has this count, unless another item is for the key or for a longer
    /// prefix.
    pub values: Box<[Option<Box<str>>]>,
    /// The count for this key, instead of the rule's.
    pub count: Count,
}

/// The parts that make a key, and the bounds of the rule's table of keys: each combination of values has its own window.
///
/// ```
/// use leapgate::rule::{FlowRule, KeyPart, KeyedBy};
///
/// let clients = FlowRule::new("login", 5.0)?.keyed(KeyedBy::new([KeyPart::CLIENT_IP])?)?;
/// let tenants = KeyedBy::new([KeyPart::Header("x-tenant".into()), KeyPart::Path])?.with_burst(10);
/// let tenants = FlowRule::new("api", 100.0)?.keyed(tenants.with_max_keys(5000)?)?.per(60_000, None)?;
/// let ids = [clients.id(), tenants.id()];
/// assert_eq!(ids.map(|id| id.to_string()), ["login/key=clientIp", "api/60s/key=header:x-tenant,path/keys=5000"]);
/// # Ok::<(), leapgate::rule::RuleError>(())
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct KeyedBy {
    parts: Rc<[KeyPart]>,
    matching: Option<KeyMatch>,
    items: Rc<[KeyItem]>,
    max_keys: usize,
    burst: u64,
    enforced: Ratio,
    count_from: Option<Rc<CountFrom>>,
}

impl KeyedBy {
    /// By these parts: from 1 to [`MAX_KEY_PARTS`].
    ///
    /// # Errors
    ///
    /// If there are none, or more.
    pub fn new(parts: impl Into<Vec<KeyPart>>) -> Result<KeyedBy, RuleError> {
        let parts: Vec<KeyPart> = parts.into();
        within(parts.len(), 1, MAX_KEY_PARTS)?;
        Ok(KeyedBy {
            parts: parts.into(),
            max_keys: DEFAULT_MAX_KEYS,
            ..KeyedBy::nothing()
        })
    }

    /// No parts: all requests have the same key.
    pub(crate) fn nothing() -> KeyedBy {
        KeyedBy {
            parts: Rc::new([]),
            matching: None,
            items: Rc::new([]),
            max_keys: 1,
            burst: 0,
            enforced: Ratio::WHOLE,
            count_from: None,
        }
    }

    /// The rule applies only to requests whose first part exists and matches.
    #[must_use]
    pub fn matching(mut self, matching: KeyMatch) -> KeyedBy {
        self.matching = Some(matching);
        self
    }

    /// Other counts for some keys. If two items are for one key, or for one network, the later item counts.
    ///
    /// # Errors
    ///
    /// If an item has fewer or more values than there are parts, or if its network is not valid or is narrower than the
    /// networks that are the keys.
    #[doc(alias = "paramFlowItemList")]
    pub fn with_items(mut self, items: impl Into<Vec<KeyItem>>) -> Result<KeyedBy, RuleError> {
        let items: Vec<KeyItem> = items.into();
        for item in &items {
            within(item.values.len(), self.parts.len(), self.parts.len())?;
            self.network_of(item)?;
        }
        self.items = items.into();
        Ok(self)
    }

    /// The network of addresses that an item is for, if it is not for one key.
    pub(crate) fn network_of(&self, item: &KeyItem) -> Result<Option<Cidr>, RuleError> {
        let ([KeyPart::ClientIp { v4, v6 }], [Some(text)]) = (&*self.parts, &*item.values) else {
            return Ok(None);
        };
        // The client of a Unix socket is a path, which has slashes, too.
        let address = text.split_once('/').map(|(address, _)| address);
        if address.is_none_or(|address| address.parse::<IpAddr>().is_err()) {
            return Ok(None);
        }
        let cidr = Cidr::new(text)?;
        let longest = if cidr.network().is_v4() { v4 } else { v6 };
        if cidr.prefix_length() > *longest {
            return Err(RuleError::BadCidr {
                cidr: text.as_ref().into(),
                fault: "is narrower than the networks that the key tells apart; use a shorter prefix here, or a longer one in the key",
            });
        }
        Ok(Some(cidr))
    }

    /// How many keys are kept apart, from 1 to [`MAX_KEYS`]. While all of them are in use, further keys share windows.
    ///
    /// # Errors
    ///
    /// If it is out of this range.
    pub fn with_max_keys(mut self, max_keys: usize) -> Result<KeyedBy, RuleError> {
        within(max_keys, 1, MAX_KEYS)?;
        self.max_keys = max_keys;
        Ok(self)
    }

    /// How much each key may pass in addition to the count. A throttle has no bursts.
    #[doc(alias = "burstCount")]
    #[must_use]
    pub fn with_burst(mut self, burst: u64) -> KeyedBy {
        self.burst = burst;
        self
    }

    /// Only this share of the keys is refused, chosen by their hash; for the others the rule is in shadow mode. A larger share has
    /// all keys of a smaller one. The hash is seeded: the share is the same wherever the seed is.
    #[must_use]
    pub fn enforced_for(mut self, share: Ratio) -> KeyedBy {
        self.enforced = share;
        self
    }

    /// Each request brings the count of its key along; the rule's count is for requests that do not. [`KeyItem`]s come before it. A
    /// key goes on with what it has counted, whatever count its requests bring.
    #[must_use]
    pub fn with_count_from(mut self, from: CountFrom) -> KeyedBy {
        self.count_from = Some(Rc::new(from));
        self
    }

    /// The parts.
    pub fn parts(&self) -> &[KeyPart] {
        &self.parts
    }

    pub(crate) fn shared_parts(&self) -> Rc<[KeyPart]> {
        Rc::clone(&self.parts)
    }

    /// The values of the first part that the rule applies to; `None` for all.
    pub fn pattern(&self) -> Option<&KeyMatch> {
        self.matching.as_ref()
    }

    /// The keys with a count of their own.
    pub fn items(&self) -> &[KeyItem] {
        &self.items
    }

    /// How many keys are kept apart.
    pub fn max_keys(&self) -> usize {
        self.max_keys
    }

    /// Where the count of a key is found in a request; `None` if it is the rule's.
    pub fn count_from(&self) -> Option<&CountFrom> {
        self.count_from.as_deref()
    }

    /// Which share of the keys is refused.
    pub fn enforced_share(&self) -> Ratio {
        self.enforced
    }

    /// The count of a key with what may burst, under a rule of this grade and behaviour. What admits nothing has no bursts, and neither
    /// have a throttle and a limit on calls in flight.
    ///
    /// Sentinel: `ParamFlowChecker.passDefaultLocalCheck`, which is the only one of its three checks that looks at the burst.
    pub(crate) fn bursting(
        &self,
        count: Count,
        (grade, behavior): (Grade, ControlBehavior),
    ) -> Count {
        if count.get() == 0.0 || grade == Grade::Concurrency || behavior.is_paced() {
            return count;
        }
        Count::nearest(count.get() + self.burst() as f64)
    }

    /// How much is admitted in addition to the count.
    pub fn burst(&self) -> u64 {
        self.burst
    }
}

/// The part as it stands in an id.
impl fmt::Display for KeyedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, part) in self.parts.iter().enumerate() {
            let separator = if i == 0 { "" } else { "," };
            write!(f, "{separator}{part}")?;
            if let (0, Some(matching)) = (i, &self.matching) {
                write!(f, "{matching}")?;
            }
        }
        Ok(())
    }
}

pub(super) fn within(number: usize, least: usize, most: usize) -> Result<(), RuleError> {
    if (least..=most).contains(&number) {
        return Ok(());
    }
    let [number, least, most] = [number, least, most].map(|number| number as u64);
    Err(RuleError::OutOfRange {
        number,
        least,
        most,
    })
}
