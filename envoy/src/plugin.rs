//! The callbacks of proxy-wasm (ABI 0.2.1): the host calls these functions by name.
//!
//! They are written here rather than taken from the SDK, whose dispatcher looks each context up in several tables and whose
//! traits keep code for every host call in the module. Only the callbacks that the filter needs exist: the host enters the
//! virtual machine, about 2,500 instructions, for each one that the module exports.

#![allow(
    unsafe_code,
    reason = "a function that a host calls by its name is exported"
)]

use crate::config;
use crate::filter::{Filter, FilterStore, new_store};
use crate::host::{Host, Level, Property, Proxy};
use crate::passed::Passed;
use crate::settings::Scope;
use hashbrown::HashMap;
use std::cell::RefCell;
use std::hash::{BuildHasherDefault, Hasher};
use std::rc::Rc;

/// `Action` of the ABI.
const CONTINUE: u32 = 0;
const PAUSE: u32 = 1;

/// What outlives a configuration, by root id and scope.
type Stores = Vec<(String, Scope, Rc<FilterStore<Proxy>>)>;

/// A configuration of the plugin, by the id of its root context; `None` until it has one that is accepted.
type Roots = Vec<(u32, Option<Rc<Filter<Proxy>>>)>;

thread_local! {
    /// Listeners that share a root id share their windows.
    static STORES: RefCell<Stores> = const { RefCell::new(Vec::new()) };
    static ROOTS: RefCell<Roots> = const { RefCell::new(Vec::new()) };
    /// The requests that have not ended, by the ids of their contexts.
    static STREAMS: RefCell<HashMap<u32, Stream, BuildHasherDefault<Spread>>> =
        const { RefCell::new(HashMap::with_hasher(BuildHasherDefault::new())) };
}

/// A request.
struct Stream {
    filter: Rc<Filter<Proxy>>,
    passed: Option<Passed<Proxy>>,
}

/// The hash of an id: the host counts contexts, so no client can choose them.
#[derive(Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u32((*byte).into()));
    }

    fn write_u32(&mut self, id: u32) {
        // 2^64 divided by the golden ratio: consecutive numbers lie far apart, in the upper bits, too.
        self.0 = (self.0 ^ u64::from(id)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

fn store(root_id: String, scope: Scope) -> Rc<FilterStore<Proxy>> {
    STORES.with_borrow_mut(|stores| {
        if let Some((_, _, store)) = stores
            .iter()
            .find(|(id, of, _)| *id == root_id && *of == scope)
        {
            return Rc::clone(store);
        }
        let store = new_store(&Proxy, &root_id, scope);
        stores.push((root_id, scope, Rc::clone(&store)));
        store
    })
}

/// The filter of that root context.
fn filter(root: u32) -> Option<Rc<Filter<Proxy>>> {
    ROOTS.with_borrow(|roots| {
        let (_, filter) = roots.iter().find(|(id, _)| *id == root)?;
        filter.clone()
    })
}

#[unsafe(no_mangle)]
extern "C" fn proxy_abi_version_0_2_1() {}

#[unsafe(no_mangle)]
extern "C" fn _initialize() {}

/// Memory for what a host call returns. [`crate::host`] takes it over as a `Vec` of exactly this capacity.
#[unsafe(export_name = "malloc")]
extern "C" fn allocate(size: usize) -> *mut u8 {
    Box::leak(Box::<[u8]>::new_uninit_slice(size))
        .as_mut_ptr()
        .cast()
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_vm_start(_: u32, _: usize) -> bool {
    true
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_context_create(id: u32, root: u32) {
    if root == 0 {
        ROOTS.with_borrow_mut(|roots| roots.push((id, None)));
    } else if let Some(filter) = filter(root) {
        let passed = None;
        STREAMS.with_borrow_mut(|streams| streams.insert(id, Stream { filter, passed }));
    }
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_configure(root: u32, size: usize) -> bool {
    let bytes = Proxy.configuration(size).unwrap_or_default();
    let root_id = Proxy.property(Property::RootId).unwrap_or_default();
    let mut root_id = String::from_utf8_lossy(&root_id).into_owned();
    if root_id.is_empty() {
        root_id.push_str("leapgate"); // they are one
    }
    let filter = config::parse(&bytes).and_then(|(rules, settings)| {
        let store = store(root_id, settings.scope);
        Filter::new(Proxy, store, rules, settings)
    });
    match filter {
        Ok(filter) => {
            let filter = Some(Rc::new(filter));
            ROOTS.with_borrow_mut(|roots| {
                let own = roots.iter_mut().filter(|(id, _)| *id == root);
                own.for_each(|(_, of)| of.clone_from(&filter));
            });
            true
        }
        Err(error) => {
            Proxy.log(Level::Error, &format!("leapgate: {error}"));
            false
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_tick(root: u32) {
    if let Some(filter) = filter(root) {
        filter.on_tick();
    }
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_request_headers(id: u32, _: usize, _: bool) -> u32 {
    with_stream(id, |stream| {
        stream.passed = stream.filter.on_request(id);
        match &stream.passed {
            Some(passed) if !passed.is_held() => CONTINUE,
            _ => PAUSE,
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_response_headers(id: u32, _: usize, is_all: bool) -> u32 {
    with_stream(id, |stream| {
        if let Some(passed) = &stream.passed {
            stream.filter.on_response(passed, is_all);
        }
        CONTINUE
    })
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_response_trailers(id: u32, _: usize) -> u32 {
    with_stream(id, |stream| {
        if let Some(passed) = &stream.passed {
            stream.filter.on_trailers(passed);
        }
        CONTINUE
    })
}

/// The host deletes a stream once, however it ended; its properties can still be read then.
#[unsafe(no_mangle)]
extern "C" fn proxy_on_delete(id: u32) {
    match STREAMS.with_borrow_mut(|streams| streams.remove(&id)) {
        Some(Stream { filter, passed }) => {
            if let Some(mut passed) = passed {
                filter.on_end(&mut passed);
            }
        }
        None => ROOTS.with_borrow_mut(|roots| roots.retain(|(root, _)| *root != id)),
    }
}

/// Lets `act` handle the request in this context. A context without a filter continues.
fn with_stream(id: u32, act: impl FnOnce(&mut Stream) -> u32) -> u32 {
    STREAMS.with_borrow_mut(|streams| streams.get_mut(&id).map_or(CONTINUE, act))
}
