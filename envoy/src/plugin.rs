//! The proxy-wasm contexts.

use crate::config;
use crate::filter::{Filter, FilterStore, new_store};
use crate::host::{Answer, Host, Level, Property, Proxy, on_answer};
use crate::passed::Passed;
use crate::settings::Scope;
use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::{Action, ContextType};
use std::cell::RefCell;
use std::rc::{Rc, Weak};

proxy_wasm::main! {{
    on_answer(answered);
    proxy_wasm::set_root_context(|_| Box::new(Root { filter: None }));
}}

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

/// A call has been answered: an answer of the store belongs to all configurations with that store.
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

struct Root {
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

    fn create_http_context(&self, id: u32) -> Option<Box<dyn HttpContext>> {
        Some(Box::new(Stream {
            id,
            filter: self.filter.clone(),
            passed: None,
        }))
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
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
