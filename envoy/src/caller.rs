//! What is read of a request besides its resource: its origin, and whether it may borrow. Only if a rule needs it.

use crate::host::Host;
use crate::keys;
use crate::settings::{OriginFrom, Settings};
use leapgate::Resource;
use leapgate::backend::Backend;
use leapgate::rule::MAX_NAME;

/// The sender of a request.
#[derive(Default)]
pub struct Caller {
    /// Empty if the request has no origin.
    pub origin: String,
    /// Whether its requests may borrow.
    pub prioritized: bool,
}

impl Caller {
    /// The sender of the current request, which is for `resource`.
    pub fn read<H: Host, S: Backend>(
        host: &H,
        settings: &Settings,
        resource: &Resource<S>,
    ) -> Caller {
        if !resource.has_rules() {
            return Caller::default();
        }
        let origin = match &settings.origin {
            Some(from) if resource.by_origin() => origin(host, from),
            _ => String::new(),
        };
        let prioritized = settings.prioritized.as_ref().is_some_and(|prioritized| {
            let value = host.request_header(&prioritized.header);
            value.is_some_and(|value| match &prioritized.value {
                Some(wanted) => *wanted.as_bytes() == *value,
                None => true,
            })
        });
        Caller {
            origin,
            prioritized,
        }
    }
}

fn origin<H: Host>(host: &H, from: &OriginFrom) -> String {
    let name = match from {
        OriginFrom::Header(name) => host.request_header(name),
        OriginFrom::Peer => keys::peer(host),
    };
    let mut name = name.unwrap_or_default();
    // No rule names a longer origin. One more byte is kept, so that it does not equal a name in a rule.
    name.truncate(MAX_NAME + 1);
    match String::from_utf8(name) {
        Ok(name) => name,
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
    }
}
