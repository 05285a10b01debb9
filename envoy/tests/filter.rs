//! The filter on a host in memory: one process, several virtual machines, a clock that is set by hand.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

#[path = "filter/together.rs"]
mod together;
#[path = "filter/waiting.rs"]
mod waiting;

use leapgate::Timestamp;
use leapgate::backend::Key;
use leapgate_envoy::config;
use leapgate_envoy::filter::{Filter, FilterStore, new_store};
use leapgate_envoy::host::{
    GrpcCall, Host, HttpCall, Kind, Level, LocalReply, MetricId, NotSent, Property, Put,
    SharedValue,
};
use leapgate_envoy::passed::Passed;
use leapgate_envoy::settings::Scope;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;

#[path = "filter/ahead.rs"]
mod ahead;
#[path = "filter/apis.rs"]
mod apis;
#[path = "filter/attributes.rs"]
mod attributes;
#[path = "filter/breaker.rs"]
mod breaker;
#[path = "filter/calls.rs"]
mod calls;
#[path = "filter/cost.rs"]
mod cost;
#[path = "filter/deaths.rs"]
mod deaths;
#[path = "filter/exempt.rs"]
mod exempt;
#[path = "filter/holds.rs"]
mod holds;
#[path = "filter/key_holds.rs"]
mod key_holds;
#[path = "filter/names.rs"]
mod names;
#[path = "filter/peaks.rs"]
mod peaks;
#[path = "filter/places.rs"]
mod places;
#[path = "filter/repeats.rs"]
mod repeats;
#[path = "filter/reply.rs"]
mod reply;
#[path = "filter/rollout.rs"]
mod rollout;
#[path = "filter/route_rules.rs"]
mod route_rules;
#[path = "filter/sleep.rs"]
mod sleep;
#[path = "filter/store.rs"]
mod store;
#[path = "filter/store_down.rs"]
mod store_down;
#[path = "filter/system.rs"]
mod system;

/// What the virtual machines of a process share, and what the host does not do.
#[derive(Default)]
struct Process {
    millis: Cell<u64>,
    metrics: RefCell<Vec<(Kind, String, i64)>>,
    shared: RefCell<HashMap<String, (Vec<u8>, u32)>>,
    versions: Cell<u32>,
    log: RefCell<Vec<(Level, String)>>,
    replies: RefCell<Vec<Sent>>,
    route: RefCell<String>,
    response_headers: RefCell<Vec<(String, String)>>,
    content_type: RefCell<String>,
    /// Headers of the request, and pseudo headers.
    request_headers: RefCell<HashMap<String, String>>,
    /// The parts of the request that have been read.
    asked: RefCell<Vec<String>>,
    silent_gauges: Cell<bool>,
    /// Metrics whose names end with this accept all changes and read 0, as under a `stats_matcher` that excludes them.
    excluded: RefCell<Option<String>>,
    no_shared_data: Cell<bool>,
    no_clock: Cell<bool>,
    /// How often the clock was read.
    clock_reads: Cell<u32>,
    /// How often shared data was read.
    reads: Cell<u32>,
    /// How many compare-and-swaps are lost to others.
    contention: Cell<u32>,
    /// The response, if there is any: its status and Envoy's flags.
    response: Cell<Option<(u64, u64)>>,
    grpc_status: RefCell<String>,
    /// What another virtual machine does after this many more host calls, as seen from here.
    meanwhile: RefCell<Option<Meanwhile>>,
    peer: RefCell<Option<(Property, String)>>,
    /// Further properties, by their paths.
    properties: RefCell<HashMap<String, Vec<u8>>>,
    contexts: Cell<u32>,
    /// Which requests were resumed, and when.
    resumed: RefCell<Vec<(u64, u32)>>,
    recorded: RefCell<Vec<u64>>,
    resumes_nobody: Cell<bool>,
    /// Streams that have ended: no call can be about them.
    gone: RefCell<Vec<u32>>,
    calls: calls::Calls,
    /// Run before each call about data that machines share.
    probe: RefCell<Option<Rc<dyn Fn()>>>,
    /// What another virtual machine does between a read of shared data and the swap that follows.
    before_swap: RefCell<Option<Box<dyn FnMut()>>>,
}

/// After how many host calls, and what.
type Meanwhile = (u32, Box<dyn FnOnce()>);

/// The metrics of the filter by the table of the documents, without what all their names begin with.
fn documented() -> Vec<(String, Kind)> {
    let table = include_str!("../../docs/metrics.md").lines();
    let rows = table.filter(|line| line.starts_with("| `leapgate_"));
    let cells = rows.map(|row| row.split(" | ").collect::<Vec<_>>());
    let of_filter = cells.filter(|cells| ["filter", "both"].contains(&cells[2]));
    let names = of_filter.flat_map(|cells| {
        let kind = match cells[1] {
            "counter" => Kind::Counter,
            "gauge" => Kind::Gauge,
            "histogram" => Kind::Histogram,
            other => panic!("{other} is no kind of metric"),
        };
        let names = cells[0].split('`').skip(1).step_by(2);
        names.map(move |name| (name.strip_prefix("leapgate_").unwrap().to_owned(), kind))
    });
    names.collect()
}

/// That each metric which a test here defines is in the table is asserted where it is defined.
#[test]
fn each_metric_of_the_table_is_one_that_the_filter_defines() {
    let mut sources = String::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => sources += &std::fs::read_to_string(path).unwrap(),
            }
        }
    }
    let is_literal = |text: &str| sources.contains(&format!("\"{text}\""));
    let documented = documented();
    assert!(documented.len() > 40, "{documented:?}");
    for (name, _) in documented {
        let kinds = ["authority", "ban", "system", "breaker", "api"];
        let of_kind = kinds.iter().find_map(|kind| name.strip_prefix(kind));
        assert!(
            is_literal(&name) || of_kind.is_some_and(is_literal),
            "{name} is not defined"
        );
    }
}

/// A reply: status, details, headers, body.
type Sent = (u16, String, Vec<(String, String)>, String);

/// The host of one virtual machine, and its ticks.
#[derive(Clone)]
struct Fake(Rc<Process>, Rc<Ticks>);

/// When the next tick is due, and how long it is from one to the next.
#[derive(Default)]
struct Ticks {
    next: Cell<u64>,
    period: Cell<u32>,
    /// After how many more host calls the machine dies; `None` if it lives on.
    life: Cell<Option<u32>>,
}

/// Reads what [`leapgate_envoy::host::pairs`] writes.
fn read_pairs(bytes: &[u8]) -> Vec<(String, String)> {
    let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let mut at = 4 + 8 * number(0);
    let mut text = |length: usize| {
        let text = String::from_utf8(bytes[at..at + length].to_vec()).unwrap();
        at += length + 1;
        text
    };
    let pairs = (0..number(0)).map(|i| (text(number(4 + 8 * i)), text(number(8 + 8 * i))));
    let pairs = pairs.collect();
    assert_eq!(at, bytes.len());
    pairs
}

impl Host for Fake {
    fn property(&self, property: Property) -> Option<Vec<u8>> {
        match property {
            Property::RouteName => Some(self.0.route.borrow().clone().into_bytes()),
            Property::VirtualHostName => Some(b"shop".to_vec()),
            Property::RootId => Some(b"leapgate".to_vec()),
            Property::ResponseCode => Some(self.0.response.get()?.0.to_le_bytes().to_vec()),
            Property::ResponseFlags => Some(self.0.response.get()?.1.to_le_bytes().to_vec()),
            Property::PeerUri | Property::PeerSubject => {
                self.0.asked.borrow_mut().push("peer".into());
                let peer = self.0.peer.borrow();
                let (has, name) = peer.as_ref()?;
                (*has == property).then(|| name.clone().into_bytes())
            }
            Property::SourceAddress => self.request_header("source.address"),
            Property::UpstreamLocalAddress => self.property_at("upstream\0local_address"),
            Property::RequestSize => self.property_at("request\0size"),
            Property::ResponseSize => self.property_at("response\0size"),
        }
    }

    fn property_at(&self, path: &str) -> Option<Vec<u8>> {
        self.0.asked.borrow_mut().push(path.into());
        self.0.properties.borrow().get(path).cloned()
    }

    fn configuration(&self, _: usize) -> Option<Vec<u8>> {
        None
    }

    fn request_header(&self, name: &str) -> Option<Vec<u8>> {
        if name == "content-type" {
            return Some(self.0.content_type.borrow().clone().into_bytes());
        }
        self.0.asked.borrow_mut().push(name.into());
        let headers = self.0.request_headers.borrow();
        headers.get(name).map(|value| value.clone().into_bytes())
    }

    fn response_header(&self, name: &str) -> Option<Vec<u8>> {
        if name != "grpc-status" {
            return self.property_at(&["header ", name].concat());
        }
        let status = self.0.grpc_status.borrow();
        (!status.is_empty()).then(|| status.clone().into_bytes())
    }

    fn response_trailer(&self, name: &str) -> Option<Vec<u8>> {
        match name {
            "grpc-status" => self.response_header(name),
            _ => self.property_at(&["trailer ", name].concat()),
        }
    }

    fn add_response_header(&self, name: &str, value: &str) -> bool {
        self.0
            .response_headers
            .borrow_mut()
            .push((name.into(), value.into()));
        true
    }

    fn reply(&self, reply: &LocalReply<'_>) -> bool {
        let sent = (
            reply.status,
            reply.details.into(),
            read_pairs(reply.headers),
            reply.body.into(),
        );
        self.0.replies.borrow_mut().push(sent);
        true
    }

    fn now(&self) -> Option<Timestamp> {
        self.0.clock_reads.set(self.0.clock_reads.get() + 1);
        let works = !self.is_dead() && !self.0.no_clock.get();
        works.then(|| Timestamp::from_millis(self.0.millis.get()))
    }

    fn set_tick_period(&self, millis: u32) -> bool {
        if self.is_dead() {
            return false;
        }
        self.1.period.set(millis);
        self.1.next.set(self.0.millis.get() + u64::from(millis));
        true
    }

    fn wall(&self) -> Option<Timestamp> {
        self.0.calls.wall(self.0.millis.get())
    }

    fn call_http(&self, call: &HttpCall<'_>) -> Result<u32, NotSent> {
        self.0.calls.send(call.into())
    }

    fn call_grpc(&self, call: &GrpcCall<'_>) -> Result<u32, NotSent> {
        self.0.calls.send(call.into())
    }

    fn answer_header(&self, name: &str) -> Option<Vec<u8>> {
        self.0.calls.header(name)
    }

    fn answer_body(&self, size: usize) -> Option<Vec<u8>> {
        self.0.calls.bytes(size)
    }

    fn answer_message(&self, size: usize) -> Option<Vec<u8>> {
        self.0.calls.bytes(size)
    }

    fn attend(&self, context: u32) -> bool {
        self.0.calls.leave_answer();
        !self.0.gone.borrow().contains(&context)
    }

    fn resume(&self, context: u32) -> bool {
        let now = self.0.millis.get();
        if !self.0.resumes_nobody.get() {
            self.0.resumed.borrow_mut().push((now, context));
        }
        !self.0.resumes_nobody.get()
    }

    fn record(&self, metric: MetricId, value: u64) -> bool {
        if self.is_dead() {
            return false;
        }
        self.0.step();
        self.interrupted();
        let mut metrics = self.0.metrics.borrow_mut();
        match metrics.get_mut(metric.0 as usize) {
            Some((Kind::Gauge, name, _)) if self.0.is_silent(name) => {}
            Some((Kind::Gauge, _, set)) => *set = value as i64,
            _ => self.0.recorded.borrow_mut().push(value),
        }
        true
    }

    fn random(&self) -> Option<[u8; 16]> {
        self.0.versions.set(self.0.versions.get() + 1);
        Some([self.0.versions.get() as u8; 16])
    }

    fn define_metric(&self, kind: Kind, name: &str) -> Option<MetricId> {
        let documented = documented();
        let base = name.strip_prefix("leapgate.").unwrap();
        let base = base.split(';').next().unwrap();
        let row = documented.iter().find(|(of, _)| of == base);
        assert_eq!(
            row.map(|(_, kind)| kind),
            Some(&kind),
            "the row of {base} in docs/metrics.md"
        );
        let mut metrics = self.0.metrics.borrow_mut();
        let known = metrics.iter().position(|(_, known, _)| known == name);
        let id = known.unwrap_or_else(|| {
            metrics.push((kind, name.into(), 0));
            metrics.len() - 1
        });
        Some(MetricId(id as u32))
    }

    fn add(&self, metric: MetricId, n: i64) -> bool {
        if self.is_dead() {
            return false;
        }
        self.0.step();
        self.interrupted();
        let mut metrics = self.0.metrics.borrow_mut();
        let Some((kind, name, value)) = metrics.get_mut(metric.0 as usize) else {
            return false;
        };
        if *kind == Kind::Counter && n <= 0 {
            return false;
        }
        if *kind == Kind::Counter || !self.0.is_silent(name) {
            *value += n;
        }
        true
    }

    fn read(&self, metric: MetricId) -> Option<u64> {
        if self.is_dead() {
            return None;
        }
        self.0.step();
        self.interrupted();
        self.0
            .metrics
            .borrow()
            .get(metric.0 as usize)
            .map(|(_, _, value)| *value as u64)
    }

    fn shared(&self, key: &str) -> Option<SharedValue> {
        if self.is_dead() {
            return None;
        }
        self.0.step();
        self.interrupted();
        self.0.reads.set(self.0.reads.get() + 1);
        let shared = self.0.shared.borrow();
        // Envoy returns no bytes for an empty value.
        let (bytes, cas) = shared.get(key).filter(|(bytes, _)| !bytes.is_empty())?;
        Some(SharedValue {
            bytes: bytes.clone(),
            cas: *cas,
        })
    }

    fn share(&self, key: &str, bytes: &[u8], put: Put) -> bool {
        if self.is_dead() {
            return false;
        }
        self.0.step();
        self.interrupted();
        if self.0.no_shared_data.get() {
            return false;
        }
        let interrupt = match put {
            Put::Always => None,
            _ => self.0.before_swap.take(),
        };
        if let Some(mut interrupt) = interrupt {
            interrupt();
        }
        let mut shared = self.0.shared.borrow_mut();
        let allowed = match (put, shared.get(key)) {
            (Put::Always, _) | (Put::IfAbsent, None) => true,
            (Put::IfVersion(_), Some(_)) if self.0.contention.get() > 0 => {
                self.0.contention.set(self.0.contention.get() - 1);
                false
            }
            (Put::IfVersion(version), Some((_, cas))) => version == *cas,
            (Put::IfAbsent, Some(_)) => false,
            (Put::IfVersion(_), None) => true,
        };
        if allowed {
            self.0.versions.set(self.0.versions.get() + 1);
            shared.insert(key.into(), (bytes.to_vec(), self.0.versions.get()));
        }
        allowed
    }

    fn log(&self, level: Level, line: &str) {
        if self.is_dead() {
            return;
        }
        self.0.log.borrow_mut().push((level, line.into()));
    }
}

impl Fake {
    /// Whether the machine has died, or dies with this host call: then no call has an effect any more.
    fn is_dead(&self) -> bool {
        let life = self.1.life.get();
        self.1.life.set(life.map(|calls| calls.saturating_sub(1)));
        life == Some(0)
    }

    /// Another worker has the processor before the call is made.
    fn interrupted(&self) {
        let probe = self.0.probe.take();
        if let Some(probe) = probe {
            probe();
            self.0.probe.replace(Some(probe));
        }
    }
}

/// A virtual machine: what it keeps over configurations, and the one in force.
struct Vm {
    store: Rc<FilterStore<Fake>>,
    filter: Filter<Fake>,
    host: Fake,
}

impl Vm {
    #[track_caller]
    fn born(process: &Rc<Process>, document: &str) -> Vm {
        let host = Fake(Rc::clone(process), Rc::default());
        let (rules, settings) = config::parse(document.as_bytes()).unwrap();
        let store = new_store(&host, "leapgate", settings.scope);
        let filter = Filter::new(host.clone(), Rc::clone(&store), rules, settings).unwrap();
        Vm {
            store,
            filter,
            host,
        }
    }

    #[track_caller]
    fn configure(&mut self, document: &str) {
        let (rules, settings) = config::parse(document.as_bytes()).unwrap();
        self.filter =
            Filter::new(self.host.clone(), Rc::clone(&self.store), rules, settings).unwrap();
    }

    fn request(&self, route: &str) -> Option<Passed<Fake>> {
        self.host.0.route.replace(route.into());
        let contexts = &self.host.0.contexts;
        contexts.set(contexts.get() + 1);
        self.filter.on_request(contexts.get())
    }

    /// What a request that passes has asked the host for, in order.
    fn asked(&self, route: &str) -> Vec<String> {
        self.host.0.asked.take();
        assert!(self.request(route).is_some());
        self.host.0.asked.take()
    }

    /// How many of `n` requests, which end at once, pass.
    fn passes(&self, route: &str, n: usize) -> usize {
        (0..n).filter(|_| self.request(route).is_some()).count()
    }
}

impl Process {
    /// A host call begins: others may have been here before.
    fn step(&self) {
        let due = match &mut *self.meanwhile.borrow_mut() {
            Some((0, _)) => true,
            Some((calls, _)) => {
                *calls -= 1;
                false
            }
            None => false,
        };
        if due {
            let meanwhile = self.meanwhile.take();
            meanwhile.into_iter().for_each(|(_, act)| act());
        }
    }

    /// Whether a gauge of that name accepts all changes and reads 0.
    fn is_silent(&self, name: &str) -> bool {
        let excluded = self.excluded.borrow();
        self.silent_gauges.get() || excluded.as_ref().is_some_and(|part| name.contains(part))
    }

    /// The value of the metric of that name, or if there is none, of the one that also says which resource the rule is for.
    fn metric(&self, name: &str) -> Option<i64> {
        let metrics = self.metrics.borrow();
        let (exact, of_resource) = (name.to_owned(), [name, ";resource="].concat());
        let is_exact = |known: &str| known == exact;
        let is_of_resource = |known: &str| known.starts_with(&of_resource);
        let find = |is_meant: &dyn Fn(&str) -> bool| {
            let mut found = metrics.iter().filter(|(_, known, _)| is_meant(known));
            let value = found.next()?.2;
            assert!(found.next().is_none(), "{name} is not one metric");
            Some(value)
        };
        find(&is_exact).or_else(|| find(&is_of_resource))
    }

    /// The number in a place of shared data.
    fn shared(&self, key: &str) -> u64 {
        let shared = self.shared.borrow();
        let (bytes, _) = shared.get(key).unwrap();
        u64::from_le_bytes(bytes.clone().try_into().unwrap())
    }

    fn warnings(&self) -> Vec<String> {
        let log = self.log.borrow();
        log.iter()
            .filter(|(level, _)| *level == Level::Warn)
            .map(|(_, line)| line.clone())
            .collect()
    }
}

const TEN: &str = r#"{"flowRules": [{"resource": "login", "count": 10}]}"#;

fn process() -> Rc<Process> {
    let process = Process::default();
    process.millis.set(5000);
    Rc::new(process)
}

#[test]
fn four_workers_admit_the_limit_together() {
    let process = process();
    let vms: Vec<Vm> = (0..4).map(|_| Vm::born(&process, TEN)).collect();
    let passes: usize = (0..20)
        .flat_map(|_| &vms)
        .map(|vm| vm.passes("login", 1))
        .sum();
    assert_eq!(passes, 10);
    for (later, more) in [(1000, 0), (1009, 0), (1010, 10), (2019, 0), (2020, 10)] {
        process.millis.set(5000 + later);
        let passes: usize = vms.iter().map(|vm| vm.passes("login", 20)).sum();
        assert_eq!(passes, more, "after {later} ms");
    }
}

#[test]
fn no_interval_over_four_workers_holds_more_than_the_limit() {
    let process = process();
    let vms: Vec<Vm> = (0..4).map(|_| Vm::born(&process, TEN)).collect();
    let mut random = fastrand::Rng::with_seed(7);
    let mut admitted = Vec::new();
    for _ in 0..20_000 {
        process.millis.set(process.millis.get() + random.u64(0..4));
        let vm = &vms[random.usize(0..4)];
        if random.u8(0..8) == 0 {
            vm.filter.on_tick();
        }
        if vm.request("login").is_some() {
            admitted.push(process.millis.get());
        }
    }
    for window in admitted.windows(11) {
        assert!(
            window[10] - window[0] >= 1000,
            "11 within {} ms: {window:?}",
            window[10] - window[0]
        );
    }
    let allowed = (admitted[admitted.len() - 1] - admitted[0]) / 100;
    assert!(
        admitted.len() as u64 * 100 >= allowed * 95,
        "{} of {allowed}",
        admitted.len()
    );
}

#[test]
fn silenced_gauges_are_noticed_and_shared_data_holds_the_limit() {
    let process = process();
    process.silent_gauges.set(true);
    let vms: Vec<Vm> = (0..4).map(|_| Vm::born(&process, TEN)).collect();
    assert_eq!(vms[0].passes("login", 1), 1);
    assert_eq!(
        process.warnings()[0],
        "leapgate: the gauge `wasmcustom.leapgate.tickets;rule=login;window=1000ms_100` does not count (does a stats_matcher exclude it?): \
         what it counts stands in shared data, changed by compare-and-swap, and requests are refused where that is contended"
    );
    let passes: usize = (0..20)
        .flat_map(|_| &vms)
        .map(|vm| vm.passes("login", 1))
        .sum();
    assert_eq!(passes, 9);
    process.millis.set(6010);
    let passes: usize = vms.iter().map(|vm| vm.passes("login", 20)).sum();
    assert_eq!(passes, 10);
}

impl Process {
    /// What the log says of a gauge that does not count, once for each of so many machines.
    #[track_caller]
    fn warned_of(&self, gauge: &str, machines: usize, now: &str) {
        let line = format!(
            "leapgate: the gauge `wasmcustom.{gauge}` does not count (does a stats_matcher exclude it?): {now}"
        );
        assert_eq!(self.warnings(), vec![line; machines]);
    }
}

const IN_SHARED_DATA: &str = "what it counts stands in shared data, changed by compare-and-swap, \
                              and requests are refused where that is contended";

#[test]
fn whichever_gauge_of_a_window_is_silent_the_limit_holds_and_the_log_names_it() {
    for gauge in ["tickets", "admitted"] {
        let process = process();
        process.excluded.replace(Some(format!("leapgate.{gauge};")));
        let vms = [0; 4].map(|_| Vm::born(&process, TEN));
        for (later, passes) in [(0, 10), (1000, 0), (1010, 10), (2020, 10)] {
            process.millis.set(5000 + later);
            let round = || vms.iter().map(|vm| vm.passes("login", 1)).sum::<usize>();
            let passed: usize = (0..20).map(|_| round()).sum();
            assert_eq!(passed, passes, "without {gauge}, after {later} ms");
        }
        process.warned_of(
            &format!("leapgate.{gauge};rule=login;window=1000ms_100"),
            4,
            IN_SHARED_DATA,
        );
    }
}

#[test]
fn where_the_gauge_of_calls_in_flight_is_silent_the_limit_holds_and_the_log_names_it() {
    let process = process();
    process.excluded.replace(Some("leapgate.in_flight".into()));
    let document = r#"{"flowRules": [{"resource": "report", "count": 2, "grade": "concurrency"}]}"#;
    let vms = [0; 2].map(|_| Vm::born(&process, document));
    let passed: Vec<_> = vms
        .iter()
        .cycle()
        .take(8)
        .filter_map(|vm| vm.request("report"))
        .collect();
    assert_eq!(passed.len(), 2);
    let gauge = "leapgate.in_flight;rule=report/concurrency;;2f";
    process.warned_of(gauge, 2, IN_SHARED_DATA);
    drop(passed);
    assert!(vms.iter().all(|vm| vm.request("report").is_some()));
}

/// A machine that is first asked for a resource checks whether gauges count. Whatever another machine does between two of its
/// host calls, it sees all that was counted, and no gauge that falls.
#[test]
fn a_machine_that_serves_while_another_one_is_first_asked_admits_the_limit() {
    for calls in 0.. {
        let process = process();
        let vm = Rc::new(Vm::born(&process, TEN));
        let (weak, passed) = (Rc::downgrade(&vm), Rc::new(Cell::new(None)));
        let others_pass = Rc::clone(&passed);
        process.meanwhile.replace(Some((
            calls,
            Box::new(move || others_pass.set(Some(weak.upgrade().unwrap().passes("login", 20)))),
        )));
        let other = Vm::born(&process, TEN);
        let first = other.passes("login", 1);
        if process.meanwhile.take().is_some() {
            assert!(calls > 15, "it came between {calls} times");
            return;
        }
        assert_eq!(passed.get(), Some(10 - first), "after {calls} calls");
        assert_eq!(
            vm.passes("login", 20) + other.passes("login", 20),
            0,
            "after {calls} calls"
        );
        process.millis.set(6010);
        assert_eq!(
            vm.passes("login", 5) + other.passes("login", 20),
            10,
            "after {calls} calls"
        );
        for gauge in ["tickets", "admitted"] {
            let name = format!("leapgate.{gauge};rule=login;window=1000ms_100");
            assert_eq!(process.metric(&name), Some(20), "after {calls} calls");
        }
    }
}

#[test]
fn a_swap_that_fails_too_often_refuses_and_what_is_owed_is_made_good() {
    let process = process();
    process.silent_gauges.set(true);
    let vm = Vm::born(&process, TEN);
    process.contention.set(1000);
    assert_eq!(vm.passes("login", 1), 0, "no ticket could be taken");
    process.contention.set(0);
    assert_eq!(vm.passes("login", 4), 4);
    // Ten lost swaps after the reservation, the admission is owed and made with the next change.
    let other = Vm::born(&process, TEN);
    assert_eq!(other.passes("login", 20), 6);
}

#[test]
fn where_nothing_is_shared_the_limit_holds_for_the_worker_and_the_log_says_so() {
    let process = process();
    process.silent_gauges.set(true);
    process.no_shared_data.set(true);
    let vms: Vec<Vm> = (0..2).map(|_| Vm::born(&process, TEN)).collect();
    assert_eq!(
        process.warnings()[0],
        "leapgate: rule=login;window=1000ms_100: neither gauges nor shared data work here: \
         its limit holds for each worker thread alone"
    );
    assert_eq!(
        vms.iter().map(|vm| vm.passes("login", 20)).sum::<usize>(),
        20
    );
}

#[test]
fn the_scope_of_a_worker_is_the_worker() {
    let process = process();
    let document =
        r#"{"flowRules": [{"resource": "login", "count": 10}], "envoy": {"scope": "worker"}}"#;
    let vms: Vec<Vm> = (0..2).map(|_| Vm::born(&process, document)).collect();
    assert_eq!(
        vms.iter().map(|vm| vm.passes("login", 20)).sum::<usize>(),
        20
    );
    assert_eq!(process.warnings(), Vec::<String>::new());
}

#[test]
fn a_machine_born_late_goes_on_with_the_ring_that_another_has_published() {
    let process = process();
    let old = Vm::born(&process, TEN);
    assert_eq!(old.passes("login", 6), 6);
    process.millis.set(5500);
    assert_eq!(old.passes("login", 2), 2);
    old.filter.on_tick();
    process.millis.set(5600);
    let new = Vm::born(&process, TEN);
    assert_eq!(new.passes("login", 20), 2, "eight of ten are used");
    process.millis.set(6010);
    assert_eq!(new.passes("login", 20), 6, "what passed at 5000 has left");
}

#[test]
fn a_machine_born_late_without_a_ring_counts_the_window_as_used() {
    let process = process();
    let old = Vm::born(&process, TEN);
    assert_eq!(old.passes("login", 1), 1);
    process.shared.borrow_mut().clear();
    let new = Vm::born(&process, TEN);
    for (now, passes) in [(5000, 0), (5999, 0), (6010, 10)] {
        process.millis.set(now);
        assert_eq!(new.passes("login", 20), passes, "at {now}");
    }
}

#[test]
fn the_machines_of_a_fresh_process_do_not_take_each_other_for_an_unknown_past() {
    let process = process();
    let first = Vm::born(&process, TEN);
    assert_eq!(first.passes("login", 3), 3);
    let second = Vm::born(&process, TEN);
    assert_eq!(second.passes("login", 20), 7);
}

#[test]
fn a_count_that_has_fallen_counts_as_used() {
    let process = process();
    let vm = Vm::born(&process, TEN);
    assert_eq!(vm.passes("login", 5), 5);
    for (_, name, value) in process.metrics.borrow_mut().iter_mut() {
        if name.contains("admitted") || name.contains("tickets") {
            *value = 0;
        }
    }
    for (now, passes) in [(5000, 0), (5990, 0), (6010, 10)] {
        process.millis.set(now);
        assert_eq!(vm.passes("login", 20), passes, "at {now}");
    }
}

#[test]
fn a_configuration_in_the_same_machine_keeps_counts_and_a_new_geometry_is_a_new_window() {
    let process = process();
    let mut vm = Vm::born(&process, TEN);
    assert_eq!(vm.passes("login", 20), 10);
    vm.configure(
        r#"{"flowRules": [{"resource": "api", "count": 3}, {"resource": "login", "count": 12}]}"#,
    );
    assert_eq!(vm.passes("login", 20), 2);
    vm.configure(
        r#"{"flowRules": [{"resource": "login", "count": 5, "id": "login", "intervalMs": 2000}]}"#,
    );
    assert_eq!(vm.passes("login", 20), 5);
}

#[test]
fn each_route_has_a_window_of_its_own_under_a_star() {
    let process = process();
    let document =
        r#"{"flowRules": [{"resource": "*", "count": 2}, {"resource": "api", "count": 3}]}"#;
    let vms: Vec<Vm> = (0..2).map(|_| Vm::born(&process, document)).collect();
    for (route, limit) in [("a", 2), ("b", 2), ("api", 3), ("a", 0)] {
        assert_eq!(
            vms.iter().map(|vm| vm.passes(route, 9)).sum::<usize>(),
            limit,
            "{route}"
        );
    }
}

#[test]
fn beyond_the_bound_routes_share_one_window() {
    let process = process();
    let document =
        r#"{"flowRules": [{"resource": "*", "count": 2}], "envoy": {"maxResources": 2}}"#;
    let vm = Vm::born(&process, document);
    let passes = ["a", "b", "c", "d", "e"].map(|route| vm.passes(route, 9));
    assert_eq!(passes, [2, 2, 2, 0, 0]);
}

#[test]
fn calls_in_flight_are_counted_for_the_process_and_given_back() {
    let process = process();
    let document = r#"{"flowRules": [{"resource": "report", "count": 2, "grade": "concurrency"}]}"#;
    let vms: Vec<Vm> = (0..2).map(|_| Vm::born(&process, document)).collect();
    let first = vms[0].request("report");
    let second = vms[1].request("report");
    assert!(first.is_some() && second.is_some());
    assert_eq!(vms[0].passes("report", 1), 0);
    assert_eq!(
        process.metric("leapgate.in_flight;rule=report/concurrency;;2f"),
        Some(2)
    );
    drop(first);
    assert_eq!(vms[1].passes("report", 1), 1);
    drop(second);
    assert_eq!(
        process.metric("leapgate.in_flight;rule=report/concurrency;;2f"),
        Some(0)
    );
}

#[test]
fn a_refusal_says_which_rule_and_how_long() {
    let process = process();
    let vm = Vm::born(
        &process,
        r#"{"flowRules": [{"resource": "login", "count": 1, "id": "burst"}]}"#,
    );
    assert_eq!(vm.passes("login", 2), 1);
    let (status, details, headers, body) = process.replies.borrow()[0].clone();
    assert_eq!(
        (status, details.as_str(), body.as_str()),
        (429, "leapgate{rule=burst}", "too many requests")
    );
    let headers: Vec<String> = headers
        .iter()
        .map(|(name, value)| format!("{name}: {value}"))
        .collect();
    assert_eq!(
        headers,
        [
            "cache-control: no-store",
            "retry-after: 2",
            "ratelimit-policy: \"burst\";q=1;w=1",
            "ratelimit: \"burst\";r=0;t=2"
        ]
    );
}

#[test]
fn a_body_is_a_problem_but_for_grpc_a_message() {
    let process = process();
    let document = r#"{"flowRules": [{"resource": "login", "count": 0, "id": "none"}],
                       "envoy": {"reply": {"format": "problem"}}}"#;
    let vm = Vm::born(&process, document);
    assert_eq!(vm.passes("login", 1), 0);
    process
        .content_type
        .replace("application/grpc+proto".into());
    assert_eq!(vm.passes("login", 1), 0);
    let bodies: Vec<String> = process
        .replies
        .borrow()
        .iter()
        .map(|reply| reply.3.clone())
        .collect();
    assert_eq!(
        bodies,
        [
            "{\"type\":\"https://iana.org/assignments/http-problem-types#quota-exceeded\",\"title\":\"Quota exceeded\",\
             \"status\":429,\"detail\":\"too many requests\",\"violated-policies\":[\"none\"]}",
            "too many requests"
        ]
    );
}

#[test]
fn counters_are_published_on_a_tick_under_readable_names() {
    let process = process();
    let document = r#"{"flowRules": [{"resource": "login", "count": 3},
                                     {"resource": "login", "count": 2, "mode": "shadow", "intervalMs": 60000}]}"#;
    let vm = Vm::born(&process, document);
    assert_eq!(vm.passes("login", 5), 3);
    vm.filter.on_tick();
    let metric = |name: &str| process.metric(name);
    assert_eq!(metric("leapgate.passed;rule=login"), Some(3));
    assert_eq!(metric("leapgate.blocked;rule=login"), Some(2));
    assert_eq!(metric("leapgate.passed;rule=login/60s;;2f"), Some(2));
    assert_eq!(
        metric("leapgate.shadow_blocked;rule=login/60s;;2f"),
        Some(3)
    );
    assert_eq!(metric("leapgate.blocked;rule=login/60s;;2f"), Some(0));
}

#[test]
fn admitted_responses_carry_the_limits_if_configured() {
    let process = process();
    let document = r#"{"flowRules": [{"resource": "login", "count": 5}, {"resource": "login", "count": 9, "intervalMs": 60000}],
                       "envoy": {"rateLimitHeadersOn": "all", "rateLimitHeaders": "legacy"}}"#;
    let vm = Vm::born(&process, document);
    let passed = vm.request("login").unwrap();
    vm.filter.on_response(&passed, false);
    let headers: Vec<String> = process
        .response_headers
        .borrow()
        .iter()
        .map(|(name, value)| format!("{name}: {value}"))
        .collect();
    assert_eq!(
        headers,
        [
            "x-ratelimit-limit: 5",
            "x-ratelimit-remaining: 4",
            "x-ratelimit-reset: 2"
        ]
    );
}

#[test]
fn a_host_that_can_do_nothing_is_no_panic() {
    #[derive(Clone)]
    struct Nothing;
    impl Host for Nothing {
        fn property(&self, _: Property) -> Option<Vec<u8>> {
            None
        }
        fn property_at(&self, _: &str) -> Option<Vec<u8>> {
            None
        }
        fn configuration(&self, _: usize) -> Option<Vec<u8>> {
            None
        }
        fn request_header(&self, _: &str) -> Option<Vec<u8>> {
            None
        }
        fn response_header(&self, _: &str) -> Option<Vec<u8>> {
            None
        }
        fn response_trailer(&self, _: &str) -> Option<Vec<u8>> {
            None
        }
        fn add_response_header(&self, _: &str, _: &str) -> bool {
            false
        }
        fn reply(&self, _: &LocalReply<'_>) -> bool {
            false
        }
        fn now(&self) -> Option<Timestamp> {
            None
        }
        fn random(&self) -> Option<[u8; 16]> {
            None
        }
        fn set_tick_period(&self, _: u32) -> bool {
            false
        }
        fn wall(&self) -> Option<Timestamp> {
            None
        }
        fn attend(&self, _: u32) -> bool {
            false
        }
        fn call_http(&self, _: &HttpCall<'_>) -> Result<u32, NotSent> {
            Err(NotSent::Refused)
        }
        fn call_grpc(&self, _: &GrpcCall<'_>) -> Result<u32, NotSent> {
            Err(NotSent::Refused)
        }
        fn answer_header(&self, _: &str) -> Option<Vec<u8>> {
            None
        }
        fn answer_body(&self, _: usize) -> Option<Vec<u8>> {
            None
        }
        fn answer_message(&self, _: usize) -> Option<Vec<u8>> {
            None
        }
        fn resume(&self, _: u32) -> bool {
            false
        }
        fn record(&self, _: MetricId, _: u64) -> bool {
            false
        }
        fn define_metric(&self, _: Kind, _: &str) -> Option<MetricId> {
            None
        }
        fn add(&self, _: MetricId, _: i64) -> bool {
            false
        }
        fn read(&self, _: MetricId) -> Option<u64> {
            None
        }
        fn shared(&self, _: &str) -> Option<SharedValue> {
            None
        }
        fn share(&self, _: &str, _: &[u8], _: Put) -> bool {
            false
        }
        fn log(&self, _: Level, _: &str) {}
    }
    let (rules, settings) =
        config::parse(br#"{"flowRules": [{"resource": "*", "count": 1}]}"#).unwrap();
    let filter = Filter::new(
        Nothing,
        new_store(&Nothing, "", Scope::Process),
        rules,
        settings,
    )
    .unwrap();
    filter.on_tick();
    assert!(filter.on_request(1).is_some());
    assert!(
        filter.on_request(2).is_none(),
        "time stands still, and the window is full"
    );
}

const PER_CLIENT: &str = r#"{"flowRules": [
    {"resource": "api", "count": 3, "key": [{"header": "x-api-key"}], "maxKeys": 40}
]}"#;

impl Vm {
    /// A request of a client's to the route `api`.
    fn client(&self, client: &str) -> Option<Passed<Fake>> {
        let header = ("x-api-key".into(), client.into());
        self.host.0.request_headers.replace([header].into());
        self.request("api")
    }

    fn client_passes(&self, client: &str, n: usize) -> usize {
        (0..n).filter(|_| self.client(client).is_some()).count()
    }
}

#[test]
fn four_workers_admit_the_limit_of_each_client_together() {
    let process = process();
    let vms: Vec<Vm> = (0..4).map(|_| Vm::born(&process, PER_CLIENT)).collect();
    for (later, more) in [(0, 3), (1000, 0), (1049, 0), (1050, 3), (2100, 3)] {
        process.millis.set(5000 + later);
        for client in ["a", "b"] {
            let passes: usize = vms.iter().map(|vm| vm.client_passes(client, 5)).sum();
            assert_eq!(passes, more, "{client} after {later} ms");
        }
    }
    assert_eq!(process.warnings(), Vec::<String>::new());
}

#[test]
fn no_interval_over_four_workers_holds_more_than_the_limit_of_a_client() {
    let process = process();
    let vms: Vec<Vm> = (0..4).map(|_| Vm::born(&process, PER_CLIENT)).collect();
    let mut random = fastrand::Rng::with_seed(7);
    let mut admitted: HashMap<u8, Vec<u64>> = HashMap::new();
    for _ in 0..20_000 {
        process.millis.set(process.millis.get() + random.u64(0..8));
        // Most of sixty clients find their page full: there are ten pages for forty.
        let client = random.u8(0..60);
        if vms[random.usize(0..4)]
            .client(&client.to_string())
            .is_some()
        {
            let admitted = admitted.entry(client).or_default();
            admitted.push(process.millis.get());
        }
    }
    assert_eq!(admitted.len(), 60);
    for (client, admitted) in admitted {
        for four in admitted.windows(4) {
            assert!(four[3] - four[0] >= 1000, "client {client}: {four:?}");
        }
    }
}

#[test]
fn a_worker_overtaken_between_read_and_swap_decides_again() {
    let process = process();
    let (first, second) = (
        Vm::born(&process, PER_CLIENT),
        Rc::new(Vm::born(&process, PER_CLIENT)),
    );
    assert_eq!(first.client_passes("a", 1), 1);
    // The second one takes all that is left while the first one has decided and not swapped.
    let other = Rc::clone(&second);
    let passed = Rc::new(Cell::new(0));
    let counted = Rc::clone(&passed);
    process.before_swap.replace(Some(Box::new(move || {
        counted.set(other.client_passes("a", 5))
    })));
    assert_eq!(first.client_passes("a", 5), 0);
    assert_eq!(passed.get(), 2);
    // Two workers write a page first: one finds that the page is no longer absent.
    let other = Rc::clone(&second);
    process.before_swap.replace(Some(Box::new(move || {
        assert_eq!(other.client_passes("b", 2), 2)
    })));
    assert_eq!(first.client_passes("b", 5), 1);
}

#[test]
fn a_swap_of_a_page_that_fails_too_often_refuses() {
    let process = process();
    let vm = Vm::born(&process, PER_CLIENT);
    assert_eq!(vm.client_passes("a", 1), 1);
    process.contention.set(30);
    assert_eq!(vm.client_passes("a", 1), 1, "a late try succeeds");
    process.contention.set(1000);
    assert_eq!(vm.client_passes("a", 1), 0);
    assert!(
        process.contention.get() > 900,
        "{} are left of a thousand tries",
        process.contention.get()
    );
    process.contention.set(0);
    assert_eq!(vm.client_passes("a", 5), 1);
}

#[test]
fn a_refusal_of_a_client_writes_nothing() {
    let process = process();
    let vm = Vm::born(&process, PER_CLIENT);
    assert_eq!(vm.client_passes("a", 5), 3);
    let before = (process.versions.get(), process.reads.get());
    assert_eq!(vm.client_passes("a", 100), 0);
    let after = (process.versions.get(), process.reads.get());
    assert_eq!(after, before, "and repeated, reads no page");
    assert_eq!(vm.client_passes("b", 3), 3);
    let before = (process.versions.get(), process.reads.get());
    assert_eq!(vm.client_passes("b", 1), 0);
    let after = (process.versions.get(), process.reads.get());
    assert_eq!(after, (before.0, before.1 + 1), "and reads its page once");
    let replies = process.replies.borrow();
    let (status, details, headers, _) = replies.last().unwrap();
    assert_eq!(
        (*status, details.as_str()),
        (429, "leapgate{rule=api/key=header:x-api-key/keys=40}")
    );
    let of = |name| {
        headers
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    };
    assert_eq!(of("retry-after"), Some("2"));
    assert_eq!(
        of("ratelimit"),
        Some(r#""api/key=header:x-api-key/keys=40";r=0;t=2"#)
    );
}

#[test]
fn a_flood_of_clients_takes_no_more_than_its_pages() {
    let process = process();
    let vm = Vm::born(&process, PER_CLIENT);
    assert_eq!(vm.client_passes("limited", 5), 3);
    for client in 0..5_000 {
        vm.client(&client.to_string());
        if client % 100 == 0 {
            assert_eq!(vm.client_passes("limited", 1), 0, "after {client} others");
        }
    }
    let shared = process.shared.borrow();
    let mut names: Vec<&str> = shared.keys().map(String::as_str).collect();
    names.sort_unstable();
    // The seed, and a page for each four of forty.
    assert_eq!(names.len(), 11);
    assert_eq!(names[10], "leapgate.seed");
    let common = names[0].trim_end_matches('0');
    assert!(
        common.starts_with("leapgate.keys.") && common.len() < 40,
        "{common}"
    );
    for (page, name) in names[..10].iter().enumerate() {
        assert_eq!(**name, format!("{common}{page}"));
        assert!(shared[*name].0.len() <= 11 * 40);
    }
}

#[test]
fn pages_of_an_earlier_layout_are_not_read() {
    let process = process();
    let rule = ";rule=api/key=header:x-api-key/keys=40;;2f3d3a2d2d2f3d;window=1000ms_20;key=header:x-api-key;;3a2d2d";
    let page = |layout: u32, number: u32| {
        let labels = format!("{rule};pages=40.{layout}");
        let hash = Key::of_parts([0; 2], [Some(labels.as_bytes())]).hash();
        format!("leapgate.keys.{hash:016x}.{number}")
    };
    let pages = |layout| (0..10).map(move |number| page(layout, number));
    for name in [1, 2].into_iter().flat_map(pages) {
        process.shared.borrow_mut().insert(name, (vec![7; 320], 1));
    }
    let vm = Vm::born(&process, PER_CLIENT);
    assert_eq!(vm.client_passes("a", 5), 3);
    let shared = process.shared.borrow();
    for name in [1, 2].into_iter().flat_map(pages) {
        assert_eq!(shared[&name], (vec![7; 320], 1), "{name}");
    }
    assert_eq!(pages(3).filter(|name| shared.contains_key(name)).count(), 1);
}

#[test]
fn of_100_new_clients_95_pass_after_a_flood_of_as_many_as_the_bound() {
    let process = process();
    let document = PER_CLIENT.replace(r#""count": 3"#, r#""id": "per", "count": 5"#);
    let document = document.replace(r#""maxKeys": 40"#, r#""maxKeys": 2000"#);
    let vms: Vec<Vm> = (0..2).map(|_| Vm::born(&process, &document)).collect();
    for client in 0..4000 {
        vms[client % 2].client(&client.to_string());
    }
    let is_new = |client: &usize| vms[client % 2].client(&format!("new {client}")).is_some();
    let passed = (0..1000).filter(is_new).count();
    assert!(passed >= 950, "{passed} of 1000");
}

#[test]
fn requests_of_keys_that_share_are_counted_and_the_log_says_so_once_in_the_process() {
    let process = process();
    let document = PER_CLIENT.replace(r#""count": 3"#, r#""id": "per", "count": 3"#);
    let vms: Vec<Vm> = (0..2).map(|_| Vm::born(&process, &document)).collect();
    let shared = || {
        vms.iter().for_each(|vm| vm.filter.on_tick());
        process.metric("leapgate.shared;rule=per")
    };
    let passes = |client: usize| vms[client % 2].client_passes(&client.to_string(), 1);
    assert_eq!((0..10).map(passes).sum::<usize>(), 10);
    assert_eq!(shared(), None, "each has a window of its own");
    let passed: usize = (10..1000).map(passes).sum();
    // Ten pages for forty keys have eighty windows of their own.
    assert_eq!(shared(), Some(passed as i64 - 70));
    let line = "leapgate: rule `per`: more keys count than it keeps apart; some share a window, which is stricter for them: raise \
                `maxKeys`";
    assert_eq!(process.warnings(), [line]);
    process.millis.set(60_000);
    assert_eq!((0..1000).map(passes).sum::<usize>(), passed + 10);
    assert_eq!(shared(), Some(2 * (passed as i64 - 70)));
    assert_eq!(process.warnings(), [line], "once");
}

#[test]
fn without_shared_data_a_client_has_its_limit_with_each_worker_and_the_log_says_so() {
    let process = process();
    process.no_shared_data.set(true);
    let vms: Vec<Vm> = (0..2).map(|_| Vm::born(&process, PER_CLIENT)).collect();
    let passes: usize = vms.iter().map(|vm| vm.client_passes("a", 5)).sum();
    assert_eq!(passes, 6);
    assert_eq!(
        process.warnings()[0],
        "leapgate: rule=api/key=header:x-api-key/keys=40;;2f3d3a2d2d2f3d;window=1000ms_20: shared data does not work here: \
         the limit of each key holds for each worker thread alone"
    );
}

#[test]
fn the_limit_of_a_client_holds_for_the_worker_where_that_is_the_scope() {
    let process = process();
    let document = PER_CLIENT.replacen('{', r#"{"envoy": {"scope": "worker"}, "#, 1);
    let vms: Vec<Vm> = (0..2).map(|_| Vm::born(&process, &document)).collect();
    let passes: usize = vms.iter().map(|vm| vm.client_passes("a", 5)).sum();
    assert_eq!((passes, process.warnings().len()), (6, 0));
    assert!(process.shared.borrow().is_empty());
}

#[test]
fn a_change_of_the_count_keeps_what_a_client_has_used_and_one_of_the_window_does_not() {
    let process = process();
    let mut vm = Vm::born(&process, PER_CLIENT);
    assert_eq!(vm.client_passes("a", 5), 3);
    vm.configure(&PER_CLIENT.replace("\"count\": 3", "\"count\": 5"));
    assert_eq!(vm.client_passes("a", 5), 2);
    let born_later = Vm::born(&process, PER_CLIENT);
    assert_eq!(born_later.client_passes("a", 5), 0);
    vm.configure(&PER_CLIENT.replace("\"count\": 3", "\"count\": 3, \"intervalMs\": 2000"));
    assert_eq!(vm.client_passes("a", 5), 3);
}

#[test]
fn calls_in_flight_of_a_client_are_given_back_even_where_swaps_fail() {
    let document = PER_CLIENT.replace("\"count\": 3", "\"count\": 3, \"grade\": \"concurrency\"");
    let process = process();
    let vms: Vec<Vm> = (0..2).map(|_| Vm::born(&process, &document)).collect();
    let mut calls: Vec<_> = vms
        .iter()
        .flat_map(|vm| [vm.client("a"), vm.client("a")])
        .collect();
    assert_eq!(calls.iter().flatten().count(), 3);
    assert_eq!(vms[1].client_passes("b", 5), 5);
    calls[0] = None;
    assert!(vms[1].client("a").is_some(), "it has ended at once");
    process.contention.set(1000);
    calls[1] = None;
    process.contention.set(0);
    assert_eq!(
        vms[1].client_passes("a", 2),
        2,
        "two are in flight, as far as anybody knows"
    );
    drop(calls);
    vms[0].filter.on_tick();
    let held: Vec<_> = (0..5).map(|_| vms[0].client("a")).collect();
    assert_eq!(held.iter().flatten().count(), 3);
}

#[test]
fn each_part_is_asked_for_once_and_only_where_a_rule_wants_it() {
    let process = process();
    let document = r#"{"flowRules": [
        {"resource": "api", "id": "1", "count": 9, "key": [{"header": "x-api-key"}, "path"]},
        {"resource": "api", "id": "2", "count": 9, "key": ["path", {"query": "user"}, {"query": "app"}]},
        {"resource": "api", "id": "3", "count": 9, "key": [{"cookie": "a"}, {"cookie": "b"}, "clientIp", "method", "host"]},
        {"resource": "login", "count": 9}
    ]}"#;
    let vm = Vm::born(&process, document);
    assert_eq!(vm.asked("login"), [""; 0]);
    let mut asked = vm.asked("api");
    asked.sort_unstable();
    assert_eq!(
        asked,
        [
            ":authority",
            ":method",
            ":path",
            "cookie",
            "source.address",
            "x-api-key"
        ]
    );
}

#[test]
fn a_keyed_rule_in_shadow_mode_lets_all_pass_and_counts() {
    let process = process();
    let vm = Vm::born(
        &process,
        &PER_CLIENT.replace(
            "\"count\": 3",
            "\"count\": 3, \"id\": \"per\", \"mode\": \"shadow\"",
        ),
    );
    assert_eq!(vm.client_passes("a", 5), 5);
    vm.filter.on_tick();
    let counts = ["passed", "blocked", "shadow_blocked"]
        .map(|what| process.metric(&format!("leapgate.{what};rule=per")));
    assert_eq!(counts, [Some(3), Some(0), Some(2)]);
}
