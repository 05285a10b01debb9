//! The proxy-wasm contexts: one root for each configuration, and one for each stream.
//!
//! They are contexts of the SDK; the callbacks find them here and not in its dispatcher, which boxes each, keeps three maps of them, and
//! drops the answer to a call with the context that made it.

use crate::config;
use crate::filter::{Filter, FilterStore, new_store};
use crate::host::{Answer, Host, Level, Property, Proxy, callbacks};
use crate::passed::Passed;
use crate::settings::Scope;
use hashbrown::HashMap;
use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::Action;
use std::cell::RefCell;
use std::hash::{BuildHasherDefault, Hasher};
use std::rc::{Rc, Weak};

/// What outlives a configuration, by root id and scope.
type Stores = Vec<(String, Scope, Rc<FilterStore<Proxy>>)>;

thread_local! {
    /// Listeners that share a root id share their windows.
    static STORES: RefCell<Stores> = const { RefCell::new(Vec::new()) };
}

thread_local! {
    /// The configurations that may have requests, old ones among them.
    static FILTERS: RefCell<Vec<Weak<Filter<Proxy>>>> = const { RefCell::new(Vec::new()) };
}

/// A call has been answered: an answer of the store belongs to all configurations with that store, and not to the context that
/// made the call, which may have ended.
fn answered(call: u32, answer: Answer) {
    let filters: Vec<_> = FILTERS.with_borrow(|all| all.iter().filter_map(Weak::upgrade).collect());
    let message = filters
        .iter()
        .find_map(|filter| filter.on_answer(call, answer));
    if let Some(message) = message {
        filters
            .iter()
            .for_each(|filter| filter.on_answered(message));
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

/// The plugin of a root context; empty until it is configured, and if its configuration is refused.
struct Root {
    id: u32,
    filter: Option<Rc<Filter<Proxy>>>,
}

impl Context for Root {}

impl RootContext for Root {
    fn on_configure(&mut self, size: usize) -> bool {
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
                let filter = Rc::new(filter);
                FILTERS.with_borrow_mut(|all| {
                    all.retain(|filter| filter.strong_count() > 0);
                    all.push(Rc::downgrade(&filter));
                });
                self.filter = Some(filter);
                true
            }
            Err(error) => {
                Proxy.log(Level::Error, &format!("leapgate: {error}"));
                false
            }
        }
    }

    fn on_tick(&mut self) {
        if let Some(filter) = &self.filter {
            filter.on_tick();
        }
    }
}

struct Stream {
    id: u32,
    filter: Option<Rc<Filter<Proxy>>>,
    passed: Option<Passed<Proxy>>,
}

impl Context for Stream {}

impl HttpContext for Stream {
    fn on_http_request_headers(&mut self, _: usize, _: bool) -> Action {
        let Some(filter) = &self.filter else {
            return Action::Continue;
        };
        #[cfg(feature = "trap")]
        if Proxy.request_header("x-trap").is_some() {
            core::arch::wasm32::unreachable();
        }
        self.passed = filter.on_request(self.id);
        match &self.passed {
            Some(passed) if !passed.is_held() => Action::Continue,
            _ => Action::Pause,
        }
    }

    fn on_http_response_headers(&mut self, _: usize, is_all: bool) -> Action {
        if let (Some(filter), Some(passed)) = (&self.filter, &mut self.passed) {
            passed.take_over();
            filter.on_response(passed, is_all);
        }
        Action::Continue
    }

    fn on_http_response_trailers(&mut self, _: usize) -> Action {
        if let (Some(filter), Some(passed)) = (&self.filter, &self.passed) {
            filter.on_trailers(passed);
        }
        Action::Continue
    }
}

/// The host deletes a stream once, however it ended; its properties can still be read then.
impl Drop for Stream {
    fn drop(&mut self) {
        if let (Some(filter), Some(passed)) = (&self.filter, &mut self.passed) {
            filter.on_end(passed);
        }
    }
}

/// The hash of the host's numbers of contexts, which it counts up: no client chooses them.
#[derive(Default)]
struct NumberHash(u64);

impl Hasher for NumberHash {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u32((*byte).into()));
    }

    fn write_u32(&mut self, number: u32) {
        // The golden ratio: it spreads neighbours over all bits.
        self.0 = (self.0 ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

type Streams = HashMap<u32, Stream, BuildHasherDefault<NumberHash>>;

thread_local! {
    /// A few: one for each configuration.
    static ROOTS: RefCell<Vec<Root>> = const { RefCell::new(Vec::new()) };
}

thread_local! {
    static STREAMS: RefCell<Streams> = const { RefCell::new(Streams::with_hasher(BuildHasherDefault::new())) };
}

fn with_root<R>(id: u32, with: impl FnOnce(&mut Root) -> R) -> Option<R> {
    ROOTS.with_borrow_mut(|roots| roots.iter_mut().find(|root| root.id == id).map(with))
}

fn with_stream(id: u32, with: impl FnOnce(&mut Stream) -> Action) -> u32 {
    let action = STREAMS.with_borrow_mut(|streams| streams.get_mut(&id).map(with));
    action.unwrap_or(Action::Continue) as u32
}

// As ABI 0.2.1 has them, under the host's names with `leapgate` for `proxy`. No host call that they make enters this module again, but
// for memory.
callbacks! {
    fn leapgate_on_vm_start(_: u32, _: usize) -> u32 {
        1
    }

    /// A root context has no parent.
    fn leapgate_on_context_create(id: u32, parent: u32) {
        if parent == 0 {
            let root = Root { id, filter: None };
            return ROOTS.with_borrow_mut(|roots| roots.push(root));
        }
        let filter = with_root(parent, |root| root.filter.clone()).flatten();
        let stream = Stream { id, filter, passed: None };
        STREAMS.with_borrow_mut(|streams| streams.insert(id, stream));
    }

    fn leapgate_on_configure(id: u32, size: usize) -> u32 {
        with_root(id, |root| root.on_configure(size)).unwrap_or_default().into()
    }

    fn leapgate_on_tick(id: u32) {
        with_root(id, RootContext::on_tick);
    }

    fn leapgate_on_request_headers(id: u32, headers: usize, is_all: u32) -> u32 {
        with_stream(id, |stream| stream.on_http_request_headers(headers, is_all != 0))
    }

    fn leapgate_on_response_headers(id: u32, headers: usize, is_all: u32) -> u32 {
        with_stream(id, |stream| stream.on_http_response_headers(headers, is_all != 0))
    }

    fn leapgate_on_response_trailers(id: u32, trailers: usize) -> u32 {
        with_stream(id, |stream| stream.on_http_response_trailers(trailers))
    }

    /// The end of a stream is decided on when it is not among the others any more.
    fn leapgate_on_delete(id: u32) {
        let stream = STREAMS.with_borrow_mut(|streams| streams.remove(&id));
        if stream.is_none() {
            let root = ROOTS.with_borrow_mut(|roots| {
                let at = roots.iter().position(|root| root.id == id);
                at.map(|at| roots.swap_remove(at))
            });
            drop(root);
        }
    }

    fn leapgate_on_http_call_response(_: u32, token: u32, _: u32, size: usize, _: u32) {
        answered(token, Answer::Http(size));
    }

    fn leapgate_on_grpc_receive(_: u32, token: u32, size: usize) {
        answered(token, Answer::Grpc(size));
    }

    fn leapgate_on_grpc_close(_: u32, token: u32, status: u32) {
        answered(token, Answer::GrpcFailed(status));
    }
}
