//! One worker's instance of the module, and the requests that pass through it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::rc::Rc;

use anyhow::{Context as _, Result, anyhow, bail};
use wasmi::{
    AsContext as _, Caller, CompilationMode, Config, Engine, Func, Linker, Memory, Store, Val,
};

use crate::abi::{Headers, MetricKind, Status, path};
use crate::calls::{self, Args};
use crate::cost::Cost;
use crate::host::{Call, Host};
use crate::outgoing::Calls;

/// A compiled module; VMs of it start quickly.
pub struct Module {
    engine: Engine,
    module: wasmi::Module,
}

impl Module {
    /// Validates and translates a `.wasm` file.
    pub fn compile(wasm: &[u8]) -> Result<Self> {
        let mut config = Config::default();
        // Eagerly, so that no callback pays for the translation of what it calls first.
        config
            .consume_fuel(true)
            .compilation_mode(CompilationMode::Eager);
        let engine = Engine::new(&config);
        let module = wasmi::Module::new(&engine, wasm).context("the module is not valid")?;
        Ok(Self { engine, module })
    }

    /// The filter as `./build.sh wasm` has made it.
    pub fn built() -> Result<Self> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist/leapgate.wasm");
        let wasm = std::fs::read(&path).with_context(|| {
            let path = path.display();
            format!("{path} is missing; make it with `./build.sh wasm`")
        })?;
        Self::compile(&wasm)
    }

    /// The imports, as `module.name`, in the order of the file.
    pub fn imports(&self) -> Vec<String> {
        self.module
            .imports()
            .map(|i| format!("{}.{}", i.module(), i.name()))
            .collect()
    }

    /// The names of what is exported, in the order of the file.
    pub fn exports(&self) -> Vec<String> {
        self.module
            .exports()
            .map(|export| export.name().to_owned())
            .collect()
    }
}

/// How a VM is set up: Envoy's `PluginConfig` and `VmConfig`, without the plugin's configuration.
#[derive(Clone, Debug)]
pub struct Plugin {
    /// What this VM is called in the log and by probes; Envoy has no such name.
    pub vm: String,
    /// `name`.
    pub name: String,
    /// `root_id`.
    pub root_id: String,
    /// `vm_config.vm_id`: the namespace of shared data.
    pub vm_id: String,
    /// `vm_config.configuration`.
    pub vm_configuration: Vec<u8>,
    /// Properties that every context of this VM sees, by [`path`].
    pub properties: BTreeMap<Vec<u8>, Vec<u8>>,
    /// `capability_restriction_config.allowed_capabilities`: other callbacks are not called, other
    /// host calls fail. `None`: all are allowed.
    pub allowed: Option<BTreeSet<String>>,
    /// What one callback may burn before it counts as an endless loop and traps.
    pub fuel_per_callback: u64,
    /// Imports (by bare name) that this host has not and that shall answer "unimplemented", as
    /// lesser hosts do.
    pub unimplemented: BTreeSet<String>,
}

impl Default for Plugin {
    fn default() -> Self {
        Self {
            vm: "worker".to_owned(),
            name: "leapgate".to_owned(),
            root_id: "leapgate".to_owned(),
            vm_id: "leapgate".to_owned(),
            vm_configuration: Vec::new(),
            properties: BTreeMap::new(),
            allowed: None,
            // Some seconds of the interpreter: more than any honest configuration takes.
            fuel_per_callback: 5_000_000_000,
            unimplemented: BTreeSet::new(),
        }
    }
}

impl Plugin {
    /// The default plugin in a VM of this name.
    pub fn in_vm(vm: &str) -> Self {
        Self {
            vm: vm.to_owned(),
            ..Self::default()
        }
    }
}

/// A request as the filter meets it.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Request headers, pseudo-headers included.
    pub headers: Headers,
    /// Properties of the stream, by [`path`].
    pub properties: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Request {
    /// A `GET /` that Envoy has matched to the route of this name, in the virtual host `vh`. An
    /// empty name is an unnamed route.
    pub fn to_route(name: &str) -> Self {
        let headers = [
            (":authority", "example.com"),
            (":path", "/"),
            (":method", "GET"),
            (":scheme", "http"),
        ];
        Self {
            headers: headers
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .to_vec(),
            ..Self::default()
        }
        .property(&["xds", "route_name"], name)
        .property(&["xds", "virtual_host_name"], "vh")
    }

    /// This request, for that path.
    #[must_use]
    pub fn path(mut self, path: &str) -> Self {
        self.headers.retain(|(name, _)| name != ":path");
        self.header(":path", path)
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets a property.
    #[must_use]
    pub fn property(mut self, segments: &[&str], value: impl AsRef<[u8]>) -> Self {
        self.properties
            .insert(path(segments), value.as_ref().to_vec());
        self
    }
}

/// A reply that the module sent in place of the upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalReply {
    /// The HTTP status.
    pub status: u32,
    /// `%RESPONSE_CODE_DETAILS%` of the access log.
    pub details: String,
    /// The body.
    pub body: Vec<u8>,
    /// Headers beside the status.
    pub headers: Headers,
    /// The status for gRPC requests; -1: none.
    pub grpc_status: i32,
}

impl LocalReply {
    /// The first header of this name.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self
            .headers
            .iter()
            .find(|(other, _)| other.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }
}

/// A request on its way through a VM.
#[derive(Clone, Debug, Default)]
pub struct Exchange {
    id: u32,
    root: u32,
    properties: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The module's own reply, if it sent one.
    pub reply: Option<LocalReply>,
    /// The module stopped the request and has not let it go on.
    pub paused: bool,
    /// Request headers as the module left them.
    pub request_headers: Headers,
    /// Response headers as the module left them.
    pub response_headers: Headers,
    /// What the module set as properties, by path.
    pub filter_state: BTreeMap<String, Vec<u8>>,
}

/// What host calls see and change.
pub(crate) struct State {
    pub(crate) host: Rc<Host>,
    pub(crate) plugin: Plugin,
    pub(crate) memory: Option<Memory>,
    /// The export that gives memory, by name.
    pub(crate) allocate: Option<(String, Func)>,
    pub(crate) cost: Cost,
    /// The metrics that this VM has defined; an id is a position in this list and a kind.
    pub(crate) metrics: Vec<(MetricKind, String)>,
    /// The plugin's configuration, while it is being configured.
    pub(crate) configuration: Option<Vec<u8>>,
    pub(crate) streams: BTreeMap<u32, Exchange>,
    pub(crate) roots: BTreeSet<u32>,
    pub(crate) tick_periods: BTreeMap<u32, u32>,
    current: u32,
    /// What allocations have burnt during the present callback.
    pub(crate) nested_fuel: u64,
    pub(crate) effective: Option<u32>,
    pub(crate) outgoing: Calls,
}

impl State {
    /// The context that host calls act on.
    pub(crate) fn context(&self) -> u32 {
        self.effective.unwrap_or(self.current)
    }

    pub(crate) fn stream(&mut self) -> Option<&mut Exchange> {
        let id = self.context();
        self.streams.get_mut(&id)
    }

    pub(crate) fn root_of(&self, context: u32) -> u32 {
        self.streams
            .get(&context)
            .map_or(context, |stream| stream.root)
    }

    pub(crate) fn metric(&self, id: u32) -> Option<(MetricKind, &str)> {
        let (kind, name) = self.metrics.get((id >> 2).checked_sub(1)? as usize)?;
        (id & 3 == *kind as u32).then_some((*kind, name.as_str()))
    }

    pub(crate) fn property(&self, path: &[u8]) -> Option<Vec<u8>> {
        let of_stream = self
            .streams
            .get(&self.context())
            .and_then(|stream| stream.properties.get(path));
        if let Some(value) = of_stream.or_else(|| self.plugin.properties.get(path)) {
            return Some(value.clone());
        }
        let plugin = &self.plugin;
        let of_plugin = match path {
            b"plugin_name" => &plugin.name,
            b"plugin_root_id" => &plugin.root_id,
            b"plugin_vm_id" => &plugin.vm_id,
            _ => return None,
        };
        Some(of_plugin.clone().into_bytes())
    }

    fn allows(&self, capability: &str) -> bool {
        self.plugin
            .allowed
            .as_ref()
            .is_none_or(|allowed| allowed.contains(capability))
    }
}

/// One VM: what an Envoy worker has of a filter.
pub struct Vm {
    pub(crate) store: Store<State>,
    exports: BTreeMap<String, Func>,
    next_context: u32,
    /// The root context that new requests belong to.
    root: u32,
    /// `proxy_on_configure` has been called on `root`.
    configured: bool,
}

impl Vm {
    /// Makes an instance and starts it, down to `proxy_on_vm_start`.
    pub fn start(host: &Rc<Host>, module: &Module, plugin: Plugin) -> Result<Self> {
        let linker = link(module, &plugin)?;
        let state = State {
            host: Rc::clone(host),
            plugin,
            memory: None,
            allocate: None,
            cost: Cost::default(),
            metrics: Vec::new(),
            configuration: None,
            streams: BTreeMap::new(),
            roots: BTreeSet::new(),
            tick_periods: BTreeMap::new(),
            current: 0,
            nested_fuel: 0,
            effective: None,
            outgoing: Calls::default(),
        };
        let mut store = Store::new(&module.engine, state);
        store.set_fuel(store.data().plugin.fuel_per_callback)?;
        let instance = linker.instantiate_and_start(&mut store, &module.module)?;

        let exports: BTreeMap<String, Func> = instance
            .exports(&store)
            .filter_map(|export| Some((export.name().to_owned(), export.into_func()?)))
            .collect();
        let memory = instance.get_memory(&store, "memory");
        store.data_mut().memory = Some(memory.context("the module exports no `memory`")?);
        store.data_mut().allocate = ["proxy_on_memory_allocate", "malloc"]
            .into_iter()
            .find_map(|name| Some((name.to_owned(), *exports.get(name)?)));
        if !exports.contains_key("proxy_abi_version_0_2_1") {
            bail!("the module does not export `proxy_abi_version_0_2_1`");
        }

        let mut vm = Self {
            store,
            exports,
            next_context: 1,
            root: 0,
            configured: false,
        };
        if vm.exports.contains_key("_initialize") {
            vm.enter("_initialize", 0, &[])?;
        } else if vm.exports.contains_key("_start") {
            vm.enter("_start", 0, &[])?;
        }
        vm.start_root()?;
        Ok(vm)
    }

    /// Hands a plugin configuration to the module; `false` where it is refused.
    ///
    /// A second configuration gets a root context of its own, as in Envoy: what the VM's memory
    /// holds stays, requests that have begun stay where they are, new ones belong to the new root,
    /// and the old root goes on ticking until [`Vm::retire_old_roots`]. A refused one leaves the
    /// old root in charge.
    pub fn configure(&mut self, configuration: &[u8]) -> Result<bool> {
        let before = self.root;
        if self.configured {
            self.start_root()?;
        }
        let root = self.root;
        self.store.data_mut().configuration = Some(configuration.to_vec());
        let answer = self.callback("proxy_on_configure", root, &[configuration.len() as u32]);
        self.store.data_mut().configuration = None;
        let accepted = answer?.is_none_or(|answer| answer != 0);
        if accepted {
            self.configured = true;
        } else if self.configured {
            self.end_root(root)?;
            self.root = before;
        }
        Ok(accepted)
    }

    /// Ends the root contexts that later configurations replaced.
    pub fn retire_old_roots(&mut self) -> Result<()> {
        let old: Vec<u32> = self
            .store
            .data()
            .roots
            .iter()
            .copied()
            .filter(|root| *root != self.root)
            .collect();
        for root in old {
            self.end_root(root)?;
        }
        Ok(())
    }

    /// Ticks each root context that asked for ticks.
    pub fn tick(&mut self) -> Result<()> {
        let ticking: Vec<u32> = self
            .store
            .data()
            .tick_periods
            .iter()
            .filter_map(|(root, period)| (*period > 0).then_some(*root))
            .collect();
        for root in ticking {
            self.callback("proxy_on_tick", root, &[])?;
        }
        Ok(())
    }

    /// The tick period that the newest root context asked for, in milliseconds; 0: none.
    pub fn tick_period_ms(&self) -> u32 {
        self.store
            .data()
            .tick_periods
            .get(&self.root)
            .copied()
            .unwrap_or(0)
    }

    /// Lets a request in, up to the module's answer to its headers. A local reply passes through
    /// the module's response callback at once.
    pub fn begin(&mut self, request: &Request) -> Result<Exchange> {
        let id = self.new_context();
        let root = self.root;
        let stream = Exchange {
            id,
            root,
            properties: request.properties.clone(),
            request_headers: request.headers.clone(),
            ..Exchange::default()
        };
        self.store.data_mut().streams.insert(id, stream);
        self.callback("proxy_on_context_create", id, &[root])?;
        let answer = self.callback(
            "proxy_on_request_headers",
            id,
            &[request.headers.len() as u32, 1],
        )?;

        let stream = self.stream(id)?;
        stream.paused = answer.is_some_and(|action| action != 0) && stream.reply.is_none();
        if let Some(reply) = stream.reply.clone() {
            let mut headers = vec![(":status".to_owned(), reply.status.to_string())];
            headers.extend(reply.headers);
            self.response_headers(id, headers)?;
        }
        Ok(self.stream(id)?.clone())
    }

    /// Ends a request: the upstream's answer, where the module has not replied itself, then the
    /// callbacks of the stream's end.
    pub fn end(&mut self, exchange: Exchange, upstream: Headers) -> Result<Exchange> {
        if exchange.reply.is_none() {
            self.response_headers(exchange.id, upstream)?;
        }
        self.abort(exchange)
    }

    /// Ends a request that got no answer.
    pub fn abort(&mut self, exchange: Exchange) -> Result<Exchange> {
        let id = exchange.id;
        for callback in ["proxy_on_log", "proxy_on_done", "proxy_on_delete"] {
            self.callback(callback, id, &[])?;
        }
        let ended = self.store.data_mut().streams.remove(&id);
        ended.with_context(|| format!("stream {id} had ended before"))
    }

    /// A whole request; the upstream answers 200 where the module lets it through.
    pub fn request(&mut self, request: &Request) -> Result<Exchange> {
        let exchange = self.begin(request)?;
        self.end(exchange, vec![(":status".to_owned(), "200".to_owned())])
    }

    /// A request as the module has it now: one that was paused may have been resumed or answered by
    /// a tick.
    pub fn look_at(&mut self, exchange: &Exchange) -> Result<Exchange> {
        Ok(self.stream(exchange.id)?.clone())
    }

    /// What this VM has cost since it was made.
    pub fn cost(&self) -> Cost {
        self.store.data().cost.clone()
    }

    /// The size of the VM's memory, in bytes.
    pub fn memory_size(&self) -> usize {
        let memory = self.store.data().memory;
        memory.map_or(0, |memory| memory.data(self.store.as_context()).len())
    }

    fn stream(&mut self, id: u32) -> Result<&mut Exchange> {
        let stream = self.store.data_mut().streams.get_mut(&id);
        stream.with_context(|| format!("stream {id} has ended"))
    }

    fn response_headers(&mut self, id: u32, headers: Headers) -> Result<()> {
        let count = headers.len() as u32;
        self.stream(id)?.response_headers = headers;
        self.callback("proxy_on_response_headers", id, &[count, 0])?;
        Ok(())
    }

    fn new_context(&mut self) -> u32 {
        let id = self.next_context;
        self.next_context += 1;
        id
    }

    fn start_root(&mut self) -> Result<()> {
        let root = self.new_context();
        self.root = root;
        self.store.data_mut().roots.insert(root);
        self.callback("proxy_on_context_create", root, &[0])?;
        let size = self.store.data().plugin.vm_configuration.len() as u32;
        match self.callback("proxy_on_vm_start", root, &[size])? {
            Some(0) => Err(anyhow!("proxy_on_vm_start refused")),
            _ => Ok(()),
        }
    }

    fn end_root(&mut self, root: u32) -> Result<()> {
        self.callback("proxy_on_done", root, &[])?;
        self.callback("proxy_on_delete", root, &[])?;
        let state = self.store.data_mut();
        state.roots.remove(&root);
        state.tick_periods.remove(&root);
        Ok(())
    }

    /// Calls a callback, if the module exports it and may have it.
    pub(crate) fn callback(
        &mut self,
        name: &str,
        context: u32,
        rest: &[u32],
    ) -> Result<Option<i32>> {
        if !self.exports.contains_key(name) || !self.store.data().allows(name) {
            return Ok(None);
        }
        let mut arguments = vec![context];
        arguments.extend(rest);
        self.enter(name, context, &arguments)
    }

    fn enter(&mut self, name: &str, context: u32, arguments: &[u32]) -> Result<Option<i32>> {
        let function = *self
            .exports
            .get(name)
            .with_context(|| format!("no export `{name}`"))?;
        let arguments: Vec<Val> = arguments
            .iter()
            .map(|value| Val::I32(*value as i32))
            .collect();
        let mut results = vec![Val::I32(0); function.ty(&self.store).results().len()];

        let budget = self.store.data().plugin.fuel_per_callback;
        self.store.set_fuel(budget)?;
        let state = self.store.data_mut();
        state.current = context;
        state.nested_fuel = 0;
        let outcome = function.call(&mut self.store, &arguments, &mut results);
        let left = self.store.get_fuel()?;
        let state = self.store.data_mut();
        state
            .cost
            .count_entry(name, budget - left - state.nested_fuel);
        // Both hold for one callback only.
        state.current = 0;
        state.effective = None;

        outcome
            .with_context(|| format!("`{name}` of VM `{}` trapped", self.store.data().plugin.vm))?;
        Ok(results.first().and_then(|value| match value {
            Val::I32(value) => Some(*value),
            _ => None,
        }))
    }
}

/// Every import gets the host's function of that name, wrapped in what is common to all of them.
fn link(module: &Module, plugin: &Plugin) -> Result<Linker<State>> {
    let mut linker = Linker::new(&module.engine);
    for import in module.module.imports() {
        let (namespace, name) = (import.module(), import.name().to_owned());
        let Some(ty) = import.ty().func().cloned() else {
            bail!("the module imports `{namespace}.{name}`, which is not a function");
        };
        let known = calls::find(namespace, &name);
        if known.is_none() && !plugin.unimplemented.contains(&name) {
            bail!("the module imports `{namespace}.{name}`, which this host does not have");
        }
        let import_name = name.clone();
        linker.func_new(
            namespace,
            &import_name,
            ty,
            move |mut caller: Caller<'_, State>, arguments, results| {
                let state = caller.data_mut();
                *state.cost.calls.entry(name.clone()).or_default() += 1;
                let host = Rc::clone(&state.host);
                let vm = state.plugin.vm.clone();
                let fuel = state
                    .plugin
                    .fuel_per_callback
                    .saturating_sub(caller.get_fuel()?);
                host.probe(Call {
                    vm: &vm,
                    name: &name,
                    fuel,
                });

                let status = match known {
                    _ if !caller.data().allows(&name) => Status::InternalFailure,
                    Some(call) => call(&mut caller, &Args(arguments))?,
                    None => Status::Unimplemented,
                };
                if let Some(result) = results.first_mut() {
                    *result = Val::I32(status as i32);
                }
                Ok(())
            },
        )?;
    }
    Ok(linker)
}
