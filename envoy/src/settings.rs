//! The filter's own settings: the section `envoy` of its configuration, which [`crate::config`] shows.

mod store;

pub use store::{Protocol, Secret, StoreSettings};

use crate::outcome::Errors;
use leapgate::RefusalKind;
use leapgate::config::{ConfigError, Fields, Located, Value, read_exempt, read_part};
use leapgate::rule::{Attribute, AttributeSource, Count, Exempt, KeyPart, MAX_NAME, Target};
use std::rc::Rc;

/// The longest body of a reply, in bytes: one slice of Envoy's buffers.
const MAX_BODY: usize = 16 * 1024;

/// How many headers a reply may be given: a third of what Envoy accepts by default (`max_headers_count`).
const MAX_HEADERS: usize = 32;

/// The longest value of a header, in bytes: half of the 8 KiB that many clients accept for all headers together.
const MAX_HEADER_VALUE: usize = 4096;

const NO_HEADER_NAME: &str = "is not a valid header name; use letters, digits and hyphens";

const NO_FIELD_VALUE: &str =
    "is not a valid header value; use up to 4096 printable ASCII characters, no space around them";

/// How many resources may be kept apart: each has counters of its own in Envoy.
const MAX_RESOURCES: u64 = 10_000;

/// How many rules a route may have of its own: each costs a decision per request.
const MAX_ROUTE_RULES: u64 = 16;

/// For how long the gauges of how full limits are may keep their peaks, in milliseconds: from a second to an hour.
const HOLD_MS: std::ops::RangeInclusive<u64> = 1000..=3_600_000;

/// How many requests may wait at once in one worker thread: each holds what has come of its body.
const MAX_WAITING: u64 = 10_000;

/// Where names of resources come from, as the document calls it.
const SOURCES: [(&str, u8); 4] = [
    ("route", 0),
    ("virtualHost", 1),
    ("envoyGateway", 2),
    ("istio", 3),
];

/// How the filter is set up.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// Where requests are counted.
    pub scope: Scope,
    /// What a request's resource is.
    pub resource: ResourceFrom,
    /// How many resources without rules of their own are kept apart.
    pub max_resources: usize,
    /// How a request's origin is found, if rules need it.
    pub origin: Option<OriginFrom>,
    /// Which requests may borrow.
    pub prioritized: Option<Prioritized>,
    /// Which requests flow rules and system rules leave alone.
    pub exempt: Option<Exempt>,
    /// What rules a route may have of its own, in its metadata; `None`: they are not read.
    pub allow_route_rules: Option<AllowedRules>,
    /// How many requests may wait at once.
    pub max_waiting: usize,
    /// For how many milliseconds the gauges of how full limits are keep their peaks.
    pub hold_ms: u64,
    /// The store that limits of several machines are leased from.
    pub store: Option<StoreSettings>,
    /// The reply to a refused request.
    pub reply: Reply,
    /// Which answers count against a resource.
    pub errors: Errors,
    /// The form of the headers about limits.
    pub rate_limit_headers: RateLimitHeaders,
    /// Whether they are on passing responses too.
    pub on_passed: bool,
}

/// What rules a route may have of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AllowedRules {
    /// The highest count.
    pub max_count: u64,
    /// How many there may be.
    pub max_rules: usize,
}

/// Where requests are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// By all workers together.
    Process,
    /// By each worker alone.
    Worker,
}

/// What a request's resource is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ResourceFrom {
    /// The name of its route.
    Route,
    /// The name of its virtual host.
    VirtualHost,
    /// Always this.
    Fixed(Rc<str>),
    /// What an attribute says, such as the metadata of its route.
    Attribute(Attribute),
    /// What Envoy Gateway has made its route from: `httproute/<namespace>/<name>`.
    EnvoyGateway {
        /// Whether the rule of that object belongs to the name, too, if it has a name.
        section: bool,
    },
    /// What Istio has made its route from: `virtual-service/<namespace>/<name>`.
    Istio {
        /// Whether the rule of that object belongs to the name, too, if it has a name.
        section: bool,
    },
}

/// What a request's origin is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OriginFrom {
    /// The value of the header of that name.
    Header(String),
    /// The peer's identity in its certificate: the URI (in Istio its SPIFFE id), or else the subject.
    Peer,
}

/// The header that marks a request that may borrow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Prioritized {
    /// Its name.
    pub header: String,
    /// Its value; `None`: any.
    pub value: Option<String>,
}

/// The reply to a refused request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reply {
    /// The status: 400 to 599.
    pub status: u16,
    /// What the body is.
    pub format: Format,
    /// The text in the body.
    pub body: String,
    /// More headers than the filter writes itself, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The status of a refusal by a breaker, or by a system rule but for its `qps`: 400 to 599.
    pub breaker_status: u16,
    /// The text in its body.
    pub breaker_body: String,
}

/// What a reply's body is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// The text alone.
    Text,
    /// A JSON object.
    Json,
    /// `application/problem+json`.
    Problem,
}

/// The form of the headers about limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RateLimitHeaders {
    /// `ratelimit` and `ratelimit-policy`.
    Draft,
    /// `x-ratelimit-limit`, `x-ratelimit-remaining` and `x-ratelimit-reset`.
    Legacy,
    /// None.
    Off,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            scope: Scope::Process,
            resource: ResourceFrom::Route,
            max_resources: 1000,
            origin: None,
            prioritized: None,
            exempt: None,
            allow_route_rules: None,
            max_waiting: 1000,
            hold_ms: 60_000,
            store: None,
            reply: Reply {
                status: RefusalKind::Limited.status(),
                format: Format::Text,
                body: RefusalKind::Limited.text().into(),
                headers: Vec::new(),
                breaker_status: RefusalKind::Unavailable.status(),
                breaker_body: RefusalKind::Unavailable.text().into(),
            },
            errors: Errors::default(),
            rate_limit_headers: RateLimitHeaders::Draft,
            on_passed: false,
        }
    }
}
fn origin_from(at: &Located<'_>) -> Result<OriginFrom, ConfigError> {
    let fields = at.object(&["from", "header"])?;
    match (fields.get("from"), fields.get("header")) {
        (Some(from), None) => from.one_of(&[("peer", ())]).map(|()| OriginFrom::Peer),
        (None, Some(header)) => Ok(OriginFrom::Header(header_name(&header)?)),
        (Some(_), Some(header)) => {
            Err(header.error("does not go with `from`; keep one of the two"))
        }
        (None, None) => Err(at.error(r#"names no origin; use `{"header": "x-app"}`"#)),
    }
}

fn prioritized(at: &Located<'_>) -> Result<Prioritized, ConfigError> {
    let fields = at.object(&["header", "value"])?;
    let Some(header) = fields.get("header") else {
        return Err(at.error(r#"names no header; use `{"header": "x-priority"}`"#));
    };
    let value = match fields.get("value") {
        Some(value) if is_field_value(value.string()?) => Some(value.string()?.into()),
        Some(value) => return Err(value.error(NO_FIELD_VALUE)),
        None => None,
    };
    Ok(Prioritized {
        header: header_name(&header)?,
        value,
    })
}

/// The name of a header, in lower case.
fn header_name(at: &Located<'_>) -> Result<String, ConfigError> {
    let name = at.string()?.to_ascii_lowercase();
    if is_token(&name) {
        Ok(name)
    } else {
        Err(at.error(NO_HEADER_NAME))
    }
}

pub(crate) fn settings(at: &Located<'_>) -> Result<Settings, ConfigError> {
    let keys = [
        "scope",
        "resource",
        "origin",
        "prioritized",
        "exempt",
        "allowRouteRules",
        "maxWaiting",
        "maxResources",
        "metrics",
        "store",
        "reply",
        "errors",
        "rateLimitHeaders",
        "rateLimitHeadersOn",
    ];
    let fields = at.object(&keys)?;
    let mut settings = Settings::default();
    if let Some(scope) = fields.get("scope") {
        settings.scope = scope.one_of(&[("process", Scope::Process), ("worker", Scope::Worker)])?;
    }
    if let Some(resource) = fields.get("resource") {
        settings.resource = resource_from(&resource)?;
    }
    if let Some(origin) = fields.get("origin") {
        settings.origin = Some(origin_from(&origin)?);
    }
    if let Some(at) = fields.get("prioritized") {
        settings.prioritized = Some(prioritized(&at)?);
    }
    if let Some(at) = fields.get("exempt") {
        settings.exempt = Some(read_exempt(&at)?);
    }
    if let Some(at) = fields.get("allowRouteRules") {
        settings.allow_route_rules = Some(allowed_rules(&at, &settings.resource)?);
    }
    if let Some(max) = fields.get("maxWaiting") {
        settings.max_waiting = max.integer(0..=MAX_WAITING)? as usize;
    }
    if let Some(max) = fields.get("maxResources") {
        settings.max_resources = max.integer(1..=MAX_RESOURCES)? as usize;
    }
    if let Some(at) = fields.get("metrics")
        && let Some(hold) = at.object(&["holdMs"])?.get("holdMs")
    {
        settings.hold_ms = hold.integer(HOLD_MS)?;
    }
    if let Some(at) = fields.get("store") {
        settings.store = Some(store::store(&at)?);
    }
    if let Some(at) = fields.get("reply") {
        reply(&at, &mut settings.reply)?;
    }
    if let Some(at) = fields.get("errors") {
        settings.errors = Errors::read(&at)?;
    }
    if let Some(headers) = fields.get("rateLimitHeaders") {
        settings.rate_limit_headers = headers.one_of(&[
            ("draft", RateLimitHeaders::Draft),
            ("legacy", RateLimitHeaders::Legacy),
            ("off", RateLimitHeaders::Off),
        ])?;
    }
    if let Some(on) = fields.get("rateLimitHeadersOn") {
        settings.on_passed = on.one_of(&[("refused", false), ("all", true)])?;
    }
    Ok(settings)
}

/// What rules a route may have of its own, where each has a resource of its own, or shares one with routes of the same owner.
fn allowed_rules(at: &Located<'_>, resource: &ResourceFrom) -> Result<AllowedRules, ConfigError> {
    let is_of_route = match resource {
        ResourceFrom::Route | ResourceFrom::EnvoyGateway { .. } | ResourceFrom::Istio { .. } => {
            true
        }
        ResourceFrom::Attribute(attribute) => attribute.source() == AttributeSource::RouteMetadata,
        ResourceFrom::VirtualHost | ResourceFrom::Fixed(_) => false,
    };
    if !is_of_route {
        return Err(at.error(
            r#"needs resources that belong to routes; use `"resource": {"from": "route"}`, or their metadata"#,
        ));
    }
    let fields = at.object(&["maxCount", "maxRules"])?;
    Ok(AllowedRules {
        max_count: fields.need("maxCount")?.integer(0..=Count::MAX as u64)?,
        max_rules: match fields.get("maxRules") {
            Some(max) => max.integer(1..=MAX_ROUTE_RULES)? as usize,
            None => 4,
        },
    })
}

fn resource_from(at: &Located<'_>) -> Result<ResourceFrom, ConfigError> {
    let fields = at.object(&["from", "fixed", "section"])?;
    let section = match fields.get("section") {
        Some(section) => section.boolean()?,
        None => false,
    };
    let from = match (fields.get("from"), fields.get("fixed")) {
        (Some(from), None) => named_resource(&from, section)?,
        (None, Some(fixed)) => match Target::new(fixed.string()?) {
            Ok(Target::Resource(name)) => ResourceFrom::Fixed(name),
            _ => {
                return Err(fixed.error(&format!(
                    "is not the name of one resource; use 1 to {MAX_NAME} bytes, and not `*`"
                )));
            }
        },
        (Some(_), Some(fixed)) => {
            return Err(fixed.error("does not go with `from`; keep one of the two"));
        }
        (None, None) => return Err(at.error(r#"names no resource; use `{"from": "route"}`"#)),
    };
    match (fields.get("section"), &from) {
        (None, _) | (_, ResourceFrom::EnvoyGateway { .. } | ResourceFrom::Istio { .. }) => Ok(from),
        (Some(section), _) => {
            Err(section.error("means something only with `envoyGateway` and `istio`; leave it out"))
        }
    }
}

/// Where the name of a resource comes from.
fn named_resource(from: &Located<'_>, section: bool) -> Result<ResourceFrom, ConfigError> {
    if let Value::Object(_) = from.value() {
        return match read_part(from)? {
            KeyPart::Attribute(attribute) => Ok(ResourceFrom::Attribute(attribute)),
            _ => Err(from.error(
                r#"is chosen by clients; use metadata: `{"routeMetadata": ["leapgate", "resource"]}`"#,
            )),
        };
    }
    Ok(match from.one_of(&SOURCES)? {
        0 => ResourceFrom::Route,
        1 => ResourceFrom::VirtualHost,
        2 => ResourceFrom::EnvoyGateway { section },
        _ => ResourceFrom::Istio { section },
    })
}

fn reply(at: &Located<'_>, reply: &mut Reply) -> Result<(), ConfigError> {
    let fields = at.object(&["status", "format", "body", "headers", "breaker"])?;
    answer(&fields, &mut reply.status, &mut reply.body)?;
    if let Some(breaker) = fields.get("breaker") {
        let fields = breaker.object(&["status", "body"])?;
        answer(&fields, &mut reply.breaker_status, &mut reply.breaker_body)?;
    }
    if let Some(format) = fields.get("format") {
        reply.format = format.one_of(&[
            ("text", Format::Text),
            ("json", Format::Json),
            ("problem", Format::Problem),
        ])?;
    }
    if let Some(headers) = fields.get("headers") {
        for (name, value) in headers.entries()? {
            let name = name.to_ascii_lowercase();
            let wrong = |fault: &str| Err(ConfigError::new(&headers.to_string(), &name, fault));
            if !is_token(&name) {
                return wrong(NO_HEADER_NAME);
            }
            if is_taken(&name) {
                return wrong("is written by the filter or by Envoy; leave it out");
            }
            if reply.headers.iter().any(|(earlier, _)| *earlier == name) {
                return wrong("is given twice; keep one of the two");
            }
            if reply.headers.len() == MAX_HEADERS {
                return wrong(&format!(
                    "is one header too many; use at most {MAX_HEADERS}"
                ));
            }
            let text = value.string()?;
            if !is_field_value(text) {
                return Err(value.error(NO_FIELD_VALUE));
            }
            reply.headers.push((name, text.into()));
        }
    }
    Ok(())
}

/// Reads a status and a body.
fn answer(fields: &Fields<'_>, status: &mut u16, body: &mut String) -> Result<(), ConfigError> {
    if let Some(code) = fields.get("status") {
        *status = code.integer(400..=599)? as u16;
    }
    if let Some(text) = fields.get("body") {
        *body = text.string()?.into();
        if body.len() > MAX_BODY {
            return Err(text.error(&format!("is too long; use at most {MAX_BODY} bytes")));
        }
    }
    Ok(())
}

/// Whether `name`, in lower case, can be the name of a header (RFC 9110, 5.6.2).
fn is_token(name: &str) -> bool {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(is_token)
}

/// Whether the filter writes the header itself, or Envoy frames the response by it.
fn is_taken(name: &str) -> bool {
    const TAKEN: [&str; 15] = [
        "cache-control",
        "connection",
        "content-length",
        "content-type",
        "grpc-message",
        "grpc-status",
        "keep-alive",
        "proxy-connection",
        "ratelimit",
        "ratelimit-policy",
        "retry-after",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    TAKEN.contains(&name) || name.starts_with("x-ratelimit-")
}

fn is_field_value(value: &str) -> bool {
    let is_visible = |byte: u8| matches!(byte, b' '..=b'~' | b'\t');
    value.len() <= MAX_HEADER_VALUE
        && value.bytes().all(is_visible)
        && value.trim_ascii().len() == value.len()
}
