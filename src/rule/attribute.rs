//! Attributes: what a proxy knows of a request besides its head and body, such as metadata that an earlier filter has written.

use super::parts::{MAX_NAME, RuleError};
use crate::text::decimal;
use std::fmt;

/// How many names the path of an attribute may have.
pub const MAX_PATH: usize = 8;

/// The namespace in which Envoy's filter for JSON web tokens leaves their claims.
const JWT_NAMESPACE: &str = "envoy.filters.http.jwt_authn";

/// The payload in which the claims of a token are unless a document names another.
pub(crate) const JWT_PAYLOAD: &str = "jwt_payload";

/// Where an attribute is kept.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AttributeSource {
    /// The request's dynamic metadata. Envoy: `filter_metadata`, where numbers are 64-bit floating-point numbers.
    Metadata,
    /// The request's dynamic metadata that is a message of a known type. Envoy: `typed_filter_metadata`; numbers are read as
    /// unsigned 64-bit integers.
    TypedMetadata,
    /// The metadata of the request's route. Envoy: `xds.route_metadata`, the `filter_metadata` in it.
    RouteMetadata,
    /// An object of the filter state, as text.
    FilterState,
}

/// One attribute of a request: where it is kept, and its path there.
///
/// ```
/// use leapgate::rule::{Attribute, AttributeSource, KeyPart};
///
/// let tenant = Attribute::new(AttributeSource::Metadata, &["plans", "tenant"])?.as_number();
/// assert_eq!(KeyPart::Attribute(tenant).to_string(), "metadata:plans/tenant");
/// let subject = Attribute::jwt_claim("jwt_payload", &["sub"])?;
/// assert_eq!(KeyPart::Attribute(subject).to_string(), "jwtClaim:sub");
/// # Ok::<(), leapgate::rule::RuleError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Attribute {
    source: AttributeSource,
    /// The names, with a zero byte between them.
    path: Box<str>,
    is_number: bool,
}

impl Attribute {
    /// The text at this path. In metadata the path is a namespace and 1 to 7 keys, where the key of an item in a list is its index
    /// from 0; in the filter state it is one name.
    ///
    /// # Errors
    ///
    /// If there are fewer or more names, or one of them is empty, has a zero byte or is longer than [`MAX_NAME`] bytes.
    pub fn new(source: AttributeSource, path: &[&str]) -> Result<Attribute, RuleError> {
        Attribute::at(source, None, path).ok_or_else(|| RuleError::BadPath {
            path: path.join("/"),
        })
    }

    /// The claim at this path in a JSON web token whose claims Envoy's filter `jwt_authn` leaves in this `payload`.
    ///
    /// # Errors
    ///
    /// If there are no names or more than 6, or one of them is empty, has a zero byte or is longer than [`MAX_NAME`] bytes.
    pub fn jwt_claim(payload: &str, path: &[&str]) -> Result<Attribute, RuleError> {
        let claim = Attribute::at(AttributeSource::Metadata, Some(payload), path);
        claim.ok_or_else(|| RuleError::BadPath {
            path: path.join("/"),
        })
    }

    /// The attribute at this path, or at this path in a payload of claims; `None` if the path is not valid.
    pub(crate) fn at(
        source: AttributeSource,
        payload: Option<&str>,
        path: &[&str],
    ) -> Option<Attribute> {
        let before = payload.map(|payload| [JWT_NAMESPACE, payload]);
        let before = before.as_ref().map_or(&[][..], |before| before);
        let (least, most) = match source {
            AttributeSource::FilterState => (1, 1),
            _ => (2, MAX_PATH),
        };
        let mut joined = String::new();
        let length = before.len() + path.len();
        let mut is_path = (least..=most).contains(&length) && !path.is_empty();
        for name in before.iter().chain(path) {
            is_path &= (1..=MAX_NAME).contains(&name.len()) && !name.contains('\0');
            if !joined.is_empty() {
                joined.push('\0');
            }
            joined.push_str(name);
        }
        is_path.then(|| Attribute {
            source,
            path: joined.into(),
            is_number: false,
        })
    }

    /// The same attribute, which is a number there. It is handed in as text all the same: see [`number_text`].
    #[must_use]
    pub fn as_number(mut self) -> Attribute {
        self.is_number = true;
        self
    }

    /// Where it is kept.
    pub fn source(&self) -> AttributeSource {
        self.source
    }

    /// The names of its path, with a zero byte between each two, as Envoy expects the path of a property.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Whether it is a number there.
    pub fn is_number(&self) -> bool {
        self.is_number
    }
}

/// The attribute as it stands in an id, with a slash between each two names; a claim of another payload than `jwt_payload` has that
/// payload behind an `@`.
impl fmt::Display for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let claim = self.path.strip_prefix(JWT_NAMESPACE);
        let claim = claim.and_then(|claim| claim.strip_prefix('\0')?.split_once('\0'));
        let (kind, payload, path) = match self.source {
            AttributeSource::Metadata => match claim {
                Some((JWT_PAYLOAD, path)) => ("jwtClaim:", "", path),
                Some((payload, path)) => ("jwtClaim:", payload, path),
                None => ("metadata:", "", &*self.path),
            },
            AttributeSource::TypedMetadata => ("typedMetadata:", "", &*self.path),
            AttributeSource::RouteMetadata => ("routeMetadata:", "", &*self.path),
            AttributeSource::FilterState => ("filterState:", "", &*self.path),
        };
        let at = if payload.is_empty() { "" } else { "@" };
        f.write_str(&[kind, &path.replace('\0', "/"), at, payload].concat())
    }
}

/// The text in which the value of an attribute is handed in that is a number: up to 15 digits, or all of a whole number below 2^53.
pub fn number_text(number: f64) -> String {
    decimal(number)
}

/// The number that a request's value is: decimal digits, perhaps with a point and digits behind it, an exponent, and space around
/// it all. `None` if it is anything else, such as a negative or an infinite number, or one above 0 and below 10^-15.
///
/// ```
/// use leapgate::rule::number_of;
///
/// assert_eq!(["1500", "0.5"].map(|text| number_of(text.as_bytes())), [Some(1500.0), Some(0.5)]);
/// assert_eq!(["", "-1", "1e400", "NaN", "many"].map(|text| number_of(text.as_bytes())), [None; 5]);
/// ```
// The standard library's parser would be some ten kilobytes of a small module.
pub fn number_of(text: &[u8]) -> Option<f64> {
    let mut rest = text.trim_ascii();
    let (mut number, mut exponent) = (0.0_f64, 0_i32);
    let (mut is_fraction, mut has_digit) = (false, false);
    while let [byte, others @ ..] = rest {
        rest = others;
        match byte {
            // Further digits change nothing.
            b'0'..=b'9' if exponent <= -15 => {}
            b'0'..=b'9' => {
                has_digit = true;
                number = number * 10.0 + f64::from(byte - b'0');
                exponent -= i32::from(is_fraction);
            }
            b'.' if has_digit && !is_fraction => (is_fraction, has_digit) = (true, false),
            b'e' | b'E' if has_digit => {
                let more: i32 = std::str::from_utf8(rest).ok()?.parse().ok()?;
                exponent += more.clamp(-400, 400);
                break;
            }
            _ => return None,
        }
    }
    let scale = (0..exponent.abs()).fold(1.0, |scale, _| scale * 10.0);
    let number = if exponent < 0 {
        number / scale
    } else {
        number * scale
    };
    // Eight digits that a host has read as a number are one near zero.
    let is_likely = number == 0.0 || number >= 1e-15;
    (has_digit && is_likely && number.is_finite()).then_some(number)
}
