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
use leapgate::Resource;
use leapgate::backend::Backend;
use leapgate::rule::MAX_NAME;
use std::cell::RefCell;
use std::rc::Rc;

/// What Envoy Gateway has made a route from: the first of the resources that it lists.
const ENVOY_GATEWAY: &str = "xds\0route_metadata\0filter_metadata\0envoy-gateway\0resources\x000\0";

const ISTIO: &str = "xds\0route_metadata\0filter_metadata\0istio\0config";

/// How many names are remembered: a power of two.
const REMEMBERED: usize = 64;

/// A name, and the resource that it stands for.
type Named<S> = (Vec<u8>, Rc<Resource<S>>);

/// The resources of the names that came last. A request for one of them needs neither a look at the table of resources nor a check
/// that its name is text. Only a resource that stands for its name for good ([`Resource::is_certain`]) is remembered.
pub(crate) struct Remembered<S: Backend>([RefCell<Option<Named<S>>>; REMEMBERED]);

impl<S: Backend> Remembered<S> {
    pub(crate) fn new() -> Remembered<S> {
        Remembered([const { RefCell::new(None) }; REMEMBERED])
    }

    /// Where the name is remembered, in place of all others that are there.
    #[inline]
    fn place(&self, name: &[u8]) -> Option<&RefCell<Option<Named<S>>>> {
        let end = match name.last_chunk() {
            Some(end) => u64::from_le_bytes(*end),
            None => name.iter().fold(0, |end, byte| end << 8 | u64::from(*byte)),
        };
        // The golden ratio: it spreads neighbours over all bits.
        let hash = (end ^ name.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0.get((hash >> (64 - REMEMBERED.ilog2())) as usize)
    }

    /// The resource of that name, if it is remembered.
    #[inline]
    pub(crate) fn find(&self, name: &[u8]) -> Option<Rc<Resource<S>>> {
        let place = self.place(name)?.borrow();
        let (known, resource) = place.as_ref()?;
        (known == name).then(|| Rc::clone(resource))
    }

    /// Remembers the resource of that name, if it stays.
    #[inline(never)]
    pub(crate) fn remember(&self, name: Vec<u8>, resource: &Rc<Resource<S>>) {
        if resource.is_certain()
            && !resource.is_further()
            && name.len() <= MAX_NAME
            && let Some(place) = self.place(&name)
        {
            place.replace(Some((name, Rc::clone(resource))));
        }
    }
}

/// The name of the resource of the current request. Requests without any name, as when no route matches, share the empty one.
#[inline]
pub(crate) fn name<H: Host>(vm: &Vm<H>, wrong: &WrongTypes, from: &ResourceFrom) -> Vec<u8> {
    let read = |property| {
        let name = vm.host().property(property);
        name.filter(|name| !name.is_empty())
    };
    let name = match from {
        ResourceFrom::Route => None,
        ResourceFrom::Fixed(name) => return name.as_bytes().to_vec(),
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
