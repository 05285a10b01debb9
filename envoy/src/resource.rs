//! What a request's resource is called.
//!
//! | `from` | The name |
//! |---|---|
//! | `"route"` | the route's name, or else its virtual host's |
//! | `"virtualHost"` | the virtual host's name |
//! | an attribute | its value |
//! | `"envoyGateway"` | `httproute/shop/checkout`: kind, namespace and name of what Envoy Gateway has made the route from |
//! | `"istio"` | `virtual-service/shop/checkout`: the same of Istio |
//!
//! With `section`, the name of the rule within that object stands behind it, if it has one. All of this is read anew for each
//! request: Envoy does not tell a filter that metadata of a route has changed. Where there is none, the name is the route's.

use crate::host::{Host, Property};
use crate::keys::{self, WrongTypes};
use crate::settings::ResourceFrom;
use crate::vm::Vm;

/// What Envoy Gateway has made a route from: the first of the resources that it lists.
const ENVOY_GATEWAY: &str = "xds\0route_metadata\0filter_metadata\0envoy-gateway\0resources\x000\0";

const ISTIO: &str = "xds\0route_metadata\0filter_metadata\0istio\0config";

/// The name of the resource of the current request. Requests without any name, as when no route matches, share the empty one.
#[inline]
pub(crate) fn name<H: Host>(vm: &Vm<H>, wrong: &WrongTypes, from: &ResourceFrom) -> Vec<u8> {
    let read = |property| {
        let name = vm.host().property(property);
        name.filter(|name| !name.is_empty())
    };
    let name = match from {
        ResourceFrom::Route => None,
        ResourceFrom::VirtualHost => return read(Property::VirtualHostName).unwrap_or_default(),
        from => of_metadata(vm, wrong, from),
    };
    name.or_else(|| read(Property::RouteName))
        .or_else(|| read(Property::VirtualHostName))
        .unwrap_or_default()
}

#[inline(never)]
fn of_metadata<H: Host>(vm: &Vm<H>, wrong: &WrongTypes, from: &ResourceFrom) -> Option<Vec<u8>> {
    let host = vm.host();
    let (mut name, rule) = match from {
        ResourceFrom::Attribute(attribute) => return keys::attribute(vm, wrong, attribute),
        ResourceFrom::EnvoyGateway { section } => {
            let read = |key| host.property_at(&[ENVOY_GATEWAY, key].concat());
            let mut name = Vec::new();
            for key in ["kind", "namespace", "name"] {
                append(&mut name, &read(key)?);
            }
            name.make_ascii_lowercase();
            (name, section.then(|| read("sectionName")).flatten())
        }
        ResourceFrom::Istio { section } => {
            let rule = section.then(|| host.property(Property::RouteName));
            let rule = rule.flatten().filter(|rule| rule != b"default");
            (of_istio(&host.property_at(ISTIO)?)?, rule)
        }
        _ => return None,
    };
    append(&mut name, &rule.unwrap_or_default());
    keys::is_text(&name).then_some(name)
}

/// The name from `/apis/<group>/<version>/namespaces/<namespace>/<kind>/<name>`.
fn of_istio(config: &[u8]) -> Option<Vec<u8>> {
    let mut steps = config.rsplit(|byte| *byte == b'/');
    let (object, kind, namespace) = (steps.next()?, steps.next()?, steps.next()?);
    if steps.next() != Some(b"namespaces") {
        return None;
    }
    let mut name = Vec::new();
    for step in [kind, namespace, object] {
        append(&mut name, step);
    }
    Some(name)
}

/// Appends one more step to a name, unless it is empty.
fn append(name: &mut Vec<u8>, step: &[u8]) {
    if !name.is_empty() && !step.is_empty() {
        name.push(b'/');
    }
    name.extend_from_slice(step);
}
