//! Which resource the requests of a line are for, and what is read of them.

use super::counts::hash;
use super::fields::Slot;
use super::request::{Line, Source};
use super::run::Run;
use leapgate::Resource;
use leapgate::backend::Backend;
use leapgate::rule::{Exempt, KeyPart};
use leapgate_envoy::settings::ResourceFrom;
use std::rc::Rc;

/// How many sites are remembered.
const MAX_SITES: usize = 1 << 14;

/// A resource, and what the replay does for its requests.
pub(crate) struct Site<S: Backend> {
    pub(super) name: String,
    pub(super) resource: Rc<Resource<S>>,
    /// Its rules, as places in the report.
    pub(super) rules: Box<[usize]>,
    pub(super) sources: Box<[Source]>,
    pub(super) traced: Box<[Traced]>,
}

/// A rule whose requests are kept.
pub(super) struct Traced {
    /// Its place in the report.
    pub(super) rule: usize,
    pub(super) parts: Box<[TracedPart]>,
    pub(super) exempt: Option<(Exempt, Box<[usize]>)>,
}

/// Where a part of a key is among those of a resource, and, of an address, how many bits of it count.
pub(super) type TracedPart = (usize, Option<(u8, u8)>);

impl<S: Backend + Clone> Run<S> {
    /// The name of the resource of a line, but for its APIs.
    pub(super) fn name<'a>(&'a self, line: &'a [u8]) -> &'a [u8] {
        if !self.routes.is_empty()
            && let Some(path) = self.fields.get(line, Slot::Path as usize)
        {
            let path = path
                .split(|byte| matches!(byte, b'?' | b'#'))
                .next()
                .unwrap_or_default();
            let is_for = |prefix: &[u8]| {
                let prefix = prefix.strip_suffix(b"/").unwrap_or(prefix);
                path.strip_prefix(prefix)
                    .is_some_and(|rest| rest.first().is_none_or(|byte| *byte == b'/'))
            };
            if let Some((_, name)) = self.routes.iter().find(|(prefix, _)| is_for(prefix)) {
                return name.as_bytes();
            }
        }
        match &self.settings.resource {
            ResourceFrom::Fixed(name) => name.as_bytes(),
            _ if !self.names_routes => b"?",
            from => {
                let route = self.fields.get(line, Slot::Route as usize).unwrap_or(b"?");
                match from {
                    // `httproute/<namespace>/<name>/rule/0/match/0/…`
                    ResourceFrom::EnvoyGateway { .. } => {
                        let mut slashes = memchr::memchr_iter(b'/', route);
                        route
                            .get(..slashes.nth(2).unwrap_or(route.len()))
                            .unwrap_or(route)
                    }
                    _ => route,
                }
            }
        }
    }

    pub(super) fn site(&mut self, line: &[u8]) -> Rc<Site<S>> {
        let name = self.name(line);
        let Some(matcher) = &self.matcher else {
            if let Some(site) = self.routes_met.get(name) {
                return Rc::clone(site);
            }
            let name: Box<[u8]> = name.into();
            let text = String::from_utf8_lossy(&name).into_owned();
            let resource = self.engine.resource(&text);
            let site = self.make(text, resource);
            if self.routes_met.len() >= MAX_SITES {
                self.routes_met.clear();
            }
            self.routes_met.insert(name, Rc::clone(&site));
            return site;
        };
        let text = String::from_utf8_lossy(name);
        let route = self.engine.resource(&text);
        let asked = Line {
            bytes: line,
            fields: &self.fields,
        };
        let path = asked.get(Slot::Path).unwrap_or_default();
        let read = |part: &KeyPart| {
            let mut found = None;
            asked.read(&Source::of(part, &self.format), &mut |value| {
                found = value.map(<[u8]>::to_vec)
            });
            found
        };
        let found = matcher.find(path, &read);
        let resource = self.engine.resource_with(&route, found.names());
        // A site keeps its resource, so that no other one has its place.
        let key = (Rc::as_ptr(&resource).addr(), hash(name));
        if let Some(site) = self.sites.get(&key) {
            return Rc::clone(site);
        }
        let site = self.make(text.into_owned(), resource);
        if self.sites.len() >= MAX_SITES {
            self.sites.clear();
        }
        self.sites.insert(key, Rc::clone(&site));
        site
    }

    pub(super) fn make(&self, name: String, resource: Rc<Resource<S>>) -> Rc<Site<S>> {
        let mut rules = Vec::new();
        resource.for_each_rule(&mut |id, _| {
            let places = self.rule_places.get(id.as_str()).into_iter().flatten();
            rules.extend(places.map(|(_, place)| *place));
        });
        let system = self.report.rules.iter().enumerate();
        rules.extend(system.filter_map(|(i, rule)| {
            (rule.kind == "system" && rule.not_replayed.is_none()).then_some(i)
        }));
        rules.sort_unstable();
        rules.dedup();
        let parts = resource.key_parts();
        let place = |part: &KeyPart| parts.iter().position(|known| known == part);
        let traced = |i: &usize| {
            self.traces.get(*i)?.as_ref()?;
            let report = self.report.rules.get(*i)?;
            let number = self.called.iter().position(|id| *id == report.id)?;
            let rule = self.flow.get(number)?;
            let of_key = rule.keyed_by().map_or(&[][..], |by| by.parts());
            let of_key = of_key.iter().map(|part| {
                let network = match part {
                    KeyPart::ClientIp { v4, v6 } => Some((*v4, *v6)),
                    _ => None,
                };
                Some((place(part)?, network))
            });
            let exempt = rule.exempt().map(|exempt| {
                let places = exempt.parts().iter().filter_map(place);
                (exempt.clone(), places.collect())
            });
            Some(Traced {
                rule: *i,
                parts: of_key.collect::<Option<_>>()?,
                exempt,
            })
        };
        Rc::new(Site {
            sources: parts
                .iter()
                .map(|part| Source::of(part, &self.format))
                .collect(),
            traced: rules.iter().filter_map(traced).collect(),
            rules: rules.into(),
            resource,
            name,
        })
    }
}
