//! What is read of a request besides its resource and its keys: its origin, whether it may borrow and whether it is exempt. Only
//! if a rule or a setting needs it.

use crate::host::Host;
use crate::keys::{self, WrongTypes};
use crate::settings::{OriginFrom, Settings};
use crate::vm::Vm;
use leapgate::Resource;
use leapgate::backend::Backend;
use leapgate::rule::{Exempt, MAX_NAME};

/// The sender of a request.
#[derive(Default)]
pub struct Caller {
    /// Empty if the request has no origin.
    pub origin: String,
    /// Whether its requests may borrow.
    pub prioritized: bool,
    /// Whether flow rules and system rules leave them alone.
    pub exempt: bool,
}

impl Caller {
    /// The sender of the current request, which is for `resource`.
    pub fn read<H: Host, S: Backend>(
        vm: &Vm<H>,
        settings: &Settings,
        resource: &Resource<S>,
    ) -> Caller {
        if !resource.has_rules() {
            return Caller::default();
        }
        let (host, exempt) = (vm.host(), settings.exempt.as_ref());
        let is_by_origin = resource.by_origin() || exempt.is_some_and(Exempt::is_by_origin);
        let origin = match &settings.origin {
            Some(from) if is_by_origin => origin(host, from),
            _ => String::new(),
        };
        let prioritized = settings.prioritized.as_ref().is_some_and(|prioritized| {
            let value = host.request_header(&prioritized.header);
            value.is_some_and(|value| match &prioritized.value {
                Some(wanted) => *wanted.as_bytes() == *value,
                None => true,
            })
        });
        let exempt = exempt.is_some_and(|exempt| {
            let read = keys::read(vm, &WrongTypes::default(), exempt.parts());
            exempt.holds_for(&keys::values(&read), &origin)
        });
        Caller {
            origin,
            prioritized,
            exempt,
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
