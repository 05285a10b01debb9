//! How a refusal is answered: one table for all shells.

/// What a refusal means to the client.
///
/// | | HTTP | gRPC | Problem type |
/// |---|---|---|---|
/// | [`Limited`](RefusalKind::Limited) | 429 | `RESOURCE_EXHAUSTED` | `quota-exceeded` |
/// | [`Unavailable`](RefusalKind::Unavailable) | 503 | `UNAVAILABLE` | `temporary-reduced-capacity` |
/// | [`Forbidden`](RefusalKind::Forbidden) | 403 | `PERMISSION_DENIED` | none |
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RefusalKind {
    /// A quota is used up: of a flow rule, those on concurrency included, or `qps` of a system rule.
    Limited,
    /// The server cannot serve now: a breaker is open, or a system rule's other limits are exceeded.
    Unavailable,
    /// The origin may not enter: an authority rule.
    Forbidden,
}

impl RefusalKind {
    /// The HTTP status.
    pub fn status(self) -> u16 {
        match self {
            RefusalKind::Limited => 429,
            RefusalKind::Unavailable => 503,
            RefusalKind::Forbidden => 403,
        }
    }

    /// The gRPC status. Clients retry `UNAVAILABLE` (14) at once, so that limits are `RESOURCE_EXHAUSTED` (8).
    pub fn grpc_status(self) -> i32 {
        match self {
            RefusalKind::Limited => 8,
            RefusalKind::Unavailable => 14,
            RefusalKind::Forbidden => 7,
        }
    }

    /// The body, if none is configured.
    pub fn text(self) -> &'static str {
        match self {
            RefusalKind::Limited => "too many requests",
            RefusalKind::Unavailable => "service unavailable",
            RefusalKind::Forbidden => "forbidden",
        }
    }

    /// The title of a problem (RFC 9457).
    pub fn title(self) -> &'static str {
        match self {
            RefusalKind::Limited => "Quota exceeded",
            RefusalKind::Unavailable => "Temporary reduced capacity",
            RefusalKind::Forbidden => "Forbidden",
        }
    }

    /// The type of a problem, of draft-ietf-httpapi-ratelimit-headers-11; `None` if the status says it all.
    pub fn problem_type(self) -> Option<&'static str> {
        match self {
            RefusalKind::Limited => {
                Some("https://iana.org/assignments/http-problem-types#quota-exceeded")
            }
            RefusalKind::Unavailable => {
                Some("https://iana.org/assignments/http-problem-types#temporary-reduced-capacity")
            }
            RefusalKind::Forbidden => None,
        }
    }
}
