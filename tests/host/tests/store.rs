//! Permits from a store, in the module that ships: the callbacks for answers are there, and permits cost hardly more than a window
//! of the process.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests are tests"
)]

use leapgate_host::{Answer, Cost, Exchange, Host, Module, Outgoing, Plugin, Request, Status, Vm};
use std::rc::Rc;
use std::sync::LazyLock;

const STORE: &str =
    r#""envoy": {"store": {"cluster": "webdis", "protocol": "webdis", "whenDown": "pass"}}"#;

fn document(count: u32, leased: bool) -> Vec<u8> {
    let cluster = r#", "clusterMode": true, "clusterConfig": {"thresholdType": 1}"#;
    let (cluster, store) = if leased {
        (cluster, STORE)
    } else {
        ("", r#""envoy": {}"#)
    };
    let rule = format!(r#"{{"resource": "r", "count": {count}, "intervalMs": 60000{cluster}}}"#);
    format!(r#"{{"flowRules": [{rule}], {store}}}"#).into_bytes()
}

/// Compiled once: in a debug build it takes seconds.
static MODULE: LazyLock<Module> = LazyLock::new(|| Module::built().unwrap());

fn worker(host: &Rc<Host>, document: &[u8]) -> Vm {
    let mut vm = Vm::start(host, &MODULE, Plugin::default()).unwrap();
    assert!(vm.configure(document).unwrap());
    vm
}

/// The store grants what is wanted; the text says how much that is at most.
fn grant(vm: &mut Vm, n: u32) -> Vec<Outgoing> {
    let calls = vm.outgoing();
    for call in &calls {
        let id = 1000 + call.token;
        let asked = String::from_utf8_lossy(&call.body).into_owned();
        let (_, text) = asked.rsplit_once('/').unwrap();
        let numbers: Vec<u64> = text.split('-').map(|n| n.parse().unwrap()).collect();
        let echo = (numbers[1] + numbers[2]) % (1 << 53);
        let body = format!(r#"{{"EVALSHA":"1-{echo}-{id}-{n}-0-{n}-1"}}"#);
        vm.answer(call.token, Answer::http(200, &body)).unwrap();
    }
    calls
}

fn end(vm: &mut Vm, exchange: Exchange) {
    vm.end(exchange, vec![(":status".into(), "200".into())])
        .unwrap();
}

#[test]
fn a_paused_request_goes_on_with_the_answer() {
    let host = Host::new();
    let mut vm = worker(&host, &document(1000, true));
    let exchange = vm.begin(&Request::to_route("r")).unwrap();
    assert!(exchange.paused);
    let calls = grant(&mut vm, 1);
    assert_eq!(
        (calls.len(), calls[0].cluster.as_str(), calls[0].timeout_ms),
        (1, "webdis", 50)
    );
    let exchange = vm.look_at(&exchange).unwrap();
    assert!(!exchange.paused && exchange.reply.is_none());
    end(&mut vm, exchange);
}

#[test]
fn an_answer_without_headers_and_an_unknown_cluster_are_failures() {
    let host = Host::new();
    let mut vm = worker(&host, &document(1000, true));
    let exchange = vm.begin(&Request::to_route("r")).unwrap();
    // The request that goes on asks once more, since the store may be back.
    for _ in 0..2 {
        let call = vm.outgoing().remove(0);
        vm.answer(call.token, Answer::Http(Vec::new(), Vec::new()))
            .unwrap();
    }
    let exchange = vm.look_at(&exchange).unwrap();
    assert!(
        !exchange.paused && exchange.reply.is_none(),
        "`pass` decides"
    );
    end(&mut vm, exchange);
    host.advance_ms(1000);
    vm.fail_calls(Some(Status::BadArgument));
    assert!(vm.request(&Request::to_route("r")).unwrap().reply.is_none());
    let log: Vec<String> = host.take_log().into_iter().map(|line| line.text).collect();
    let lines = [
        "`webdis` ends connections without an answer; look at its log",
        "`webdis` is not a cluster; add it to Envoy's clusters or correct `cluster`",
    ];
    let lines = lines
        .map(|line| format!("leapgate: envoy.store: {line}; until it answers, `whenDown` decides"));
    assert_eq!(log, lines);
}

/// What a hundred admitted requests cost, after many others.
fn cost(leased: bool) -> Cost {
    let host = Host::new();
    let mut vm = worker(&host, &document(1_000_000, leased));
    let mut ask = |n: u32| {
        let before = vm.cost();
        for _ in 0..n {
            let exchange = vm.begin(&Request::to_route("r")).unwrap();
            grant(&mut vm, 100);
            let exchange = vm.look_at(&exchange).unwrap();
            assert!(!exchange.paused && exchange.reply.is_none());
            end(&mut vm, exchange);
            host.advance_ms(1);
        }
        vm.cost().since(&before)
    };
    ask(1000);
    ask(1000)
}

#[test]
fn an_admitted_request_costs_hardly_more_with_leases_of_a_hundred() {
    let [local, leased] = [false, true].map(cost);
    let ratio = leased.estimated_instructions() / local.estimated_instructions();
    assert!(ratio <= 1.1, "{ratio}: {local:?} {leased:?}");
    let asked = leased.calls["proxy_http_call"];
    assert!(asked <= 12, "{asked}");
}
