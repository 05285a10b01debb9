//! Which APIs a request belongs to: by its path, and by conditions on its method, host, headers and query.
//!
//! A shell hands in the path as it came, and the other parts where they are asked for:
//!
//! ```
//! use leapgate::api::ApiMatcher;
//! use leapgate::rule::{ApiDefinition, KeyPart, PredicateItem};
//!
//! let login = PredicateItem::exact("/login")?.with(KeyPart::Method, Some("POST"))?;
//! let matcher = ApiMatcher::new(&[
//!     ApiDefinition::new("login", [login])?,
//!     ApiDefinition::new("shop", [PredicateItem::prefix("/product/**")?])?,
//! ]);
//! let read = |part: &KeyPart| (*part == KeyPart::Method).then(|| b"POST".to_vec());
//! assert_eq!(matcher.find(b"/login?next=/", &read).names(), ["login"]);
//! assert_eq!(matcher.find(b"/product", &read).names(), ["shop"]);
//! # Ok::<(), leapgate::rule::RuleError>(())
//! ```
//!
//! # Which paths are the same
//!
//! One path has many spellings, and a client chooses among them. What any common server takes for the same path is the same
//! path here: a match too many makes limits stricter, and a match too few would be a way around them.
//!
//! | Spelling | Meaning |
//! |---|---|
//! | `/login?next=/`, `/login#top` | `/login`: the path ends before the first `?` or `#` |
//! | `/%6Cogin` | `/login`: escapes are decoded, once; an invalid one (`%zz`) stays as it is |
//! | `/v2%2Flogin`, `/v2\login` | `/v2/login` |
//! | `//login`, `/login/` | `/login` |
//! | `/login;x=1`, `/;x/login` | `/login`: a segment ends before its parameters (RFC 3986, 3.3) |
//! | `/./login`, `/a/../login`, `/a/%2e%2e/login` | `/login` |
//! | `/LOGIN` | `/login`: of the letters A to Z, also in patterns |
//! | `/%256Cogin`, `/login.json`, `/login%20` | other paths |
//!
//! A path that enters a prefix and leaves it by `..` belongs to it all the same: a server that does not resolve `..` serves it
//! there.
//!
//! # What it costs
//!
//! One look-up for each segment of the path, whatever the number of definitions; one more for the host, where items of that path
//! name hosts. Items with the same path and host are tried one after the other, and so are regular expressions. Each part of the
//! request is read once, when the first item asks for it.

use crate::rule::path::{Step, Steps};
use crate::rule::{ApiDefinition, KeyPart, PathMatch, PredicateItem, Regex};
use std::cell::{Cell, OnceCell};
use std::rc::Rc;

/// How many APIs a request may belong to. A request that belongs to more is refused.
pub const MAX_APIS: usize = 16;

/// No node, or no item.
const NONE: u32 = u32::MAX;

/// The APIs of a document, to be looked up by requests.
pub struct ApiMatcher {
    /// A tree of paths: its root, and below each node the segments that follow. Below a node stand the hosts of its items, too,
    /// each with a `/` before it, which no segment has.
    nodes: Vec<Node>,
    /// By hash: the first node of a list.
    buckets: Box<[u32]>,
    items: Vec<Item>,
    /// The host, and what else the conditions name, each part once.
    parts: Vec<KeyPart>,
    expressions: Vec<(Regex, u32)>,
    /// How often was asked.
    asked: Cell<u64>,
}

struct Node {
    parent: u32,
    name: Box<[u8]>,
    hash: u32,
    /// The next node of the same bucket.
    next: u32,
    /// The first items whose path ends here.
    exact: u32,
    /// The first items for this path and all below it.
    prefix: u32,
    /// Whether items of its prefix name hosts, and whether those of the path that ends here do.
    has_hosts: [bool; 2],
    /// When the items of its prefix were last tried, as a number of `asked`: a path may come by several times.
    tried: Cell<u64>,
}

struct Item {
    api: Rc<str>,
    /// The next item of the same path.
    next: u32,
    /// The numbers of parts, and their values.
    conditions: Box<[(usize, Option<Box<str>>)]>,
}

/// The APIs that a request belongs to.
#[derive(Clone, Copy, Debug)]
pub struct Found<'a> {
    names: [&'a str; MAX_APIS + 1],
    count: usize,
}

impl<'a> Found<'a> {
    /// Their names, each once, in no particular order. There are more than [`MAX_APIS`] names if there are too many APIs; then
    /// some may be left out.
    pub fn names(&self) -> &[&'a str] {
        self.names.get(..self.count).unwrap_or_default()
    }

    fn has(&self, api: &str) -> bool {
        // A name is in one place.
        self.names().iter().any(|name| std::ptr::eq(*name, api))
    }

    fn push(&mut self, api: &'a str) {
        if let Some(place) = self.names.get_mut(self.count) {
            *place = api;
            self.count += 1;
        }
    }
}

/// A part of a request: not read, or read, and perhaps missing.
type Value = OnceCell<Option<Vec<u8>>>;

/// A request, and what has been read of it.
struct Asked<'a> {
    read: &'a dyn Fn(&KeyPart) -> Option<Vec<u8>>,
    /// By part; made when the first part is asked for.
    values: OnceCell<Box<[Value]>>,
}

impl ApiMatcher {
    /// The APIs of these definitions, whose names differ.
    pub fn new<'a>(definitions: impl IntoIterator<Item = &'a ApiDefinition>) -> ApiMatcher {
        let definitions: Vec<&ApiDefinition> = definitions.into_iter().collect();
        let items = || {
            let all = definitions.iter();
            all.flat_map(|api| api.items().iter().map(move |item| (api.name(), item)))
        };
        let nodes = items().map(|(_, item)| match &item.path {
            // One for each `/`, and one for the host.
            PathMatch::Exact(path) | PathMatch::Prefix(path) => {
                1 + path
                    .bytes()
                    .filter(|byte| matches!(byte, b'/' | b'%'))
                    .count()
            }
            PathMatch::Regex(_) => 0,
        });
        let buckets = nodes.sum::<usize>().next_power_of_two();
        let mut matcher = ApiMatcher {
            nodes: vec![Node::new(NONE, 0, Box::default(), NONE)],
            buckets: vec![NONE; buckets].into(),
            items: Vec::new(),
            parts: vec![KeyPart::Host],
            expressions: Vec::new(),
            asked: Cell::new(0),
        };
        for (api, item) in items() {
            matcher.add(api, item);
        }
        matcher
    }

    /// Whether no request belongs to any API.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    fn add(&mut self, api: &Rc<str>, item: &PredicateItem) {
        let number = self.items.len() as u32;
        let (path, is_exact) = match &item.path {
            PathMatch::Exact(path) => (path, true),
            PathMatch::Prefix(path) => (path, false),
            PathMatch::Regex(regex) => {
                self.expressions.push((regex.clone(), number));
                let conditions = self.conditions(item, None);
                return self.items.push(Item {
                    api: Rc::clone(api),
                    next: NONE,
                    conditions,
                });
            }
        };
        let mut at = 0;
        for step in Steps::of(path.as_bytes()) {
            at = match step {
                Step::Into(segment) => self.node(at, &segment),
                Step::Back => self.nodes.get(at as usize).map_or(0, Node::parent),
            };
        }
        let mut conditions = item.conditions.iter();
        let host = conditions.find_map(|(part, value)| match (part, value) {
            (KeyPart::Host, Some(host)) => Some(&**host),
            _ => None,
        });
        let conditions = self.conditions(item, host);
        if let Some(host) = host {
            if let Some(node) = self.nodes.get_mut(at as usize) {
                let [prefix, exact] = &mut node.has_hosts;
                *(if is_exact { exact } else { prefix }) = true;
            }
            at = self.node(at, &below_hosts(host.as_bytes()));
        }
        if let Some(node) = self.nodes.get_mut(at as usize) {
            let first = if is_exact {
                &mut node.exact
            } else {
                &mut node.prefix
            };
            let next = std::mem::replace(first, number);
            self.items.push(Item {
                api: Rc::clone(api),
                next,
                conditions,
            });
        }
    }

    /// The conditions of an item but for its `host`.
    fn conditions(
        &mut self,
        item: &PredicateItem,
        host: Option<&str>,
    ) -> Box<[(usize, Option<Box<str>>)]> {
        let is_host = |part: &KeyPart, value: Option<&str>| {
            host.is_some() && *part == KeyPart::Host && value == host
        };
        let all = item.conditions.iter();
        let others = all.filter(|(part, value)| !is_host(part, value.as_deref()));
        others
            .map(|(part, value)| (self.number(part), value.clone()))
            .collect()
    }

    /// The number of a part, which is new or known.
    fn number(&mut self, part: &KeyPart) -> usize {
        let known = self.parts.iter().position(|known| known == part);
        known.unwrap_or_else(|| {
            self.parts.push(part.clone());
            self.parts.len() - 1
        })
    }

    /// The node of that name below `parent`, made if need be.
    fn node(&mut self, parent: u32, name: &[u8]) -> u32 {
        let known = self.child(parent, name);
        known.unwrap_or_else(|| {
            let hash = hash(parent, name);
            let number = self.nodes.len() as u32;
            let mask = self.buckets.len() - 1;
            if let Some(first) = self.buckets.get_mut(hash as usize & mask) {
                let next = std::mem::replace(first, number);
                self.nodes.push(Node::new(parent, hash, name.into(), next));
            }
            number
        })
    }

    /// The node of that name below `parent`.
    fn child(&self, parent: u32, name: &[u8]) -> Option<u32> {
        let hash = hash(parent, name);
        let mut at = *self.buckets.get(hash as usize & (self.buckets.len() - 1))?;
        loop {
            let node = self.nodes.get(at as usize)?;
            if node.hash == hash && node.parent == parent && node.name.eq_ignore_ascii_case(name) {
                return Some(at);
            }
            at = node.next;
        }
    }

    /// The APIs to which a request with that `path` belongs: the target as it came, with its query. The other parts are `read`
    /// where an item asks for them; of a host, the port does not count.
    pub fn find(&self, path: &[u8], read: &dyn Fn(&KeyPart) -> Option<Vec<u8>>) -> Found<'_> {
        let asked = Asked {
            read,
            values: OnceCell::new(),
        };
        let mut found = Found {
            names: [""; MAX_APIS + 1],
            count: 0,
        };
        self.asked.set(self.asked.get() + 1);
        // Where the path has come to in the tree, and how many segments outside of it.
        let (mut at, mut outside) = (0, 0_u32);
        self.enter(at, &asked, &mut found);
        for step in Steps::of(path) {
            match step {
                Step::Back if outside == 0 => {
                    at = self.nodes.get(at as usize).map_or(0, Node::parent);
                }
                Step::Back => outside -= 1,
                Step::Into(_) if outside > 0 => outside += 1,
                Step::Into(segment) => match self.child(at, &segment) {
                    Some(child) => {
                        at = child;
                        self.enter(at, &asked, &mut found);
                    }
                    None => outside = 1,
                },
            }
        }
        if outside == 0 {
            self.end(at, &asked, &mut found);
        }
        self.express(path, &asked, &mut found);
        found
    }

    /// The path comes by this node.
    #[inline]
    fn enter<'a>(&'a self, at: u32, asked: &Asked<'_>, found: &mut Found<'a>) {
        if let Some(node) = self.nodes.get(at as usize)
            && let [by_host, _] = node.has_hosts
            && (node.prefix != NONE || by_host)
            && node.tried.replace(self.asked.get()) != self.asked.get()
        {
            self.try_each(node.prefix, asked, found);
            if let Some(of_host) = self.of_host(at, by_host, asked) {
                self.try_each(of_host.prefix, asked, found);
            }
        }
    }

    /// The path ends at this node.
    #[inline]
    fn end<'a>(&'a self, at: u32, asked: &Asked<'_>, found: &mut Found<'a>) {
        if let Some(node) = self.nodes.get(at as usize) {
            let [_, by_host] = node.has_hosts;
            self.try_each(node.exact, asked, found);
            if let Some(of_host) = self.of_host(at, by_host, asked) {
                self.try_each(of_host.exact, asked, found);
            }
        }
    }

    /// The node of the request's host below a node, if items there name any.
    fn of_host(&self, at: u32, by_host: bool, asked: &Asked<'_>) -> Option<&Node> {
        if !by_host {
            return None;
        }
        let host = asked.value(self, 0)?;
        self.nodes.get(self.child(at, &below_hosts(host))? as usize)
    }

    /// Adds the APIs of the items from `first` on that match.
    fn try_each<'a>(&'a self, first: u32, asked: &Asked<'_>, found: &mut Found<'a>) {
        let mut at = first;
        while let Some(item) = self.items.get(at as usize) {
            if found.count > MAX_APIS {
                return;
            }
            if !found.has(&item.api) && self.holds(item, asked) {
                found.push(&item.api);
            }
            at = item.next;
        }
    }

    /// Whether the request meets the conditions of the item.
    fn holds(&self, item: &Item, asked: &Asked<'_>) -> bool {
        item.conditions.iter().all(|(part, wanted)| {
            let (Some(value), Some(name)) = (asked.value(self, *part), self.parts.get(*part))
            else {
                return false;
            };
            let Some(wanted) = wanted else { return true };
            match name {
                KeyPart::Method => value.eq_ignore_ascii_case(wanted.as_bytes()),
                KeyPart::Host => {
                    without_port(value).eq_ignore_ascii_case(without_port(wanted.as_bytes()))
                }
                _ => value == wanted.as_bytes(),
            }
        })
    }

    /// Adds the APIs of regular expressions that match.
    #[cfg(feature = "regex")]
    fn express<'a>(&'a self, path: &[u8], asked: &Asked<'_>, found: &mut Found<'a>) {
        if self.expressions.is_empty() {
            return;
        }
        let path = crate::rule::path::plain(path);
        for (regex, item) in &self.expressions {
            let Some(item) = self.items.get(*item as usize) else {
                continue;
            };
            if !found.has(&item.api) && regex.matches(&path) && self.holds(item, asked) {
                found.push(&item.api);
            }
        }
    }

    /// There are no regular expressions.
    #[cfg(not(feature = "regex"))]
    fn express<'a>(&'a self, _: &[u8], _: &Asked<'_>, _: &mut Found<'a>) {}
}

impl Node {
    fn new(parent: u32, hash: u32, name: Box<[u8]>, next: u32) -> Node {
        Node {
            parent,
            name,
            hash,
            next,
            exact: NONE,
            prefix: NONE,
            has_hosts: [false; 2],
            tried: Cell::new(0),
        }
    }

    /// The node above it; of the root, the root.
    fn parent(&self) -> u32 {
        if self.parent == NONE { 0 } else { self.parent }
    }
}

impl Asked<'_> {
    /// The request's value of a part, read if it has not been.
    fn value(&self, matcher: &ApiMatcher, part: usize) -> Option<&[u8]> {
        let make = || matcher.parts.iter().map(|_| OnceCell::new()).collect();
        let value = self.values.get_or_init(make).get(part)?;
        let read = || (self.read)(matcher.parts.get(part)?);
        value.get_or_init(read).as_deref()
    }
}

/// FNV-1a, from the parent on. Clients choose paths, but not what is in the table: they cannot make its lists longer.
#[inline]
fn hash(parent: u32, name: &[u8]) -> u32 {
    const PRIME: u32 = 0x0100_0193;
    let start = (0x811c_9dc5 ^ parent).wrapping_mul(PRIME);
    let hash = name.iter().fold(start, |hash, byte| {
        (hash ^ u32::from(byte.to_ascii_lowercase())).wrapping_mul(PRIME)
    });
    hash ^ hash >> 15 // the mask takes the lowest bits
}

/// The name of the node of a host.
fn below_hosts(host: &[u8]) -> Vec<u8> {
    [b"/", without_port(host)].concat()
}

/// A host without its port, and without a dot at the end.
pub(crate) fn without_port(host: &[u8]) -> &[u8] {
    let address = host.iter().position(|byte| *byte == b']').unwrap_or(0);
    let port = host.iter().skip(address).position(|byte| *byte == b':');
    let host = port
        .and_then(|port| host.get(..address + port))
        .unwrap_or(host);
    host.strip_suffix(b".").unwrap_or(host)
}
