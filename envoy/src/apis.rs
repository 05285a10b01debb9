//! The APIs that a request belongs to besides its route: by its path, which is read of each request if the document defines APIs
//! that have rules, and by what else their items name.

use crate::backend::EnvoyBackend;
use crate::host::{Host, Level};
use crate::keys::{self, WrongTypes};
use crate::vm::Vm;
use leapgate::api::ApiMatcher;
use leapgate::rule::{ApiDefinition, KeyPart};
use leapgate::{Engine, Resource};
use std::cell::Cell;
use std::rc::Rc;

/// The APIs of a configuration.
pub(crate) struct Apis {
    matcher: ApiMatcher,
    /// Whether the log says that a request was refused because of them.
    has_told: Cell<bool>,
}

impl Apis {
    /// Those of the definitions that have rules; `None` if none has any.
    pub(crate) fn new<H: Host>(
        definitions: &[ApiDefinition],
        engine: &Engine<EnvoyBackend<H>>,
    ) -> Option<Apis> {
        let has_rules = |api: &&ApiDefinition| engine.has_api(api.name());
        let matcher = ApiMatcher::new(definitions.iter().filter(has_rules));
        (!matcher.is_empty()).then(|| Apis {
            matcher,
            has_told: Cell::new(false),
        })
    }

    /// The resource of the request at hand: that of its `route` and of its APIs.
    #[inline(never)]
    pub(crate) fn join<H: Host>(
        &self,
        vm: &Vm<H>,
        engine: &Engine<EnvoyBackend<H>>,
        route: &Rc<Resource<EnvoyBackend<H>>>,
    ) -> Rc<Resource<EnvoyBackend<H>>> {
        let host = vm.host();
        let path = host.request_header(":path").unwrap_or_default();
        let read = |part: &KeyPart| {
            keys::read(vm, &WrongTypes::default(), std::slice::from_ref(part)).into_first()?
        };
        let found = self.matcher.find(&path, &read);
        let resource = engine.resource_with(route, found.names());
        if resource.is_over() && !self.has_told.replace(true) {
            let name = found.names().first().copied().unwrap_or_default();
            let because = "leapgate: a request is refused because it belongs to more than 16 APIs with rules, or to APIs with more than \
                           64 rules together; make them overlap less, as `";
            host.log(Level::Warn, &[because, name, "` and others do"].concat());
        }
        resource
    }
}
