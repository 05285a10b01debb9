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
    match from {
        ResourceFrom::Attribute(attribute) => keys::attribute(vm, wrong, attribute),
        ResourceFrom::EnvoyGateway { section } => of_envoy_gateway(host, *section),
        ResourceFrom::Istio { section } => {
            let mut name = of_istio(&host.property_at(ISTIO)?)?;
            let rule = || host.property(Property::RouteName);
            let rule = section.then(rule).flatten();
            if let Some(rule) = rule.filter(|rule| rule != b"default") {
                append(&mut name, &rule);
            }
            Some(name)
        }
        _ => None,
    }
}

fn of_envoy_gateway<H: Host>(host: &H, section: bool) -> Option<Vec<u8>> {
    let read = |key| {
        let value = host.property_at(&[ENVOY_GATEWAY, key].concat())?;
        keys::is_text(&value).then_some(value)
    };
    let mut name = read("kind")?;
    name.make_ascii_lowercase();
    append(&mut name, &read("namespace")?);
    append(&mut name, &read("name")?);
    if section && let Some(section) = read("sectionName") {
        append(&mut name, &section);
    }
    Some(name)
}

/// The name from `/apis/<group>/<version>/namespaces/<namespace>/<kind>/<name>`.
fn of_istio(config: &[u8]) -> Option<Vec<u8>> {
    let config = std::str::from_utf8(config).ok()?;
    let (_, object) = config.split_once("/namespaces/")?;
    let (namespace, object) = object.split_once('/')?;
    let (kind, object) = object.split_once('/')?;
    Some([kind, "/", namespace, "/", object].concat().into_bytes())
}

/// Appends one more step to a name, unless it is empty.
fn append(name: &mut Vec<u8>, step: &[u8]) {
    if !step.is_empty() {
        name.push(b'/');
        name.extend_from_slice(step);
    }
}
