//! Engines on several nodes whose rules lease from one store: both halves of a lease, and Sentinel's documents about clusters.

use leapgate::backend::{
    Backend, BreakerKey, KeyedGeometry, KeyedWindows, Leased, Leasing, Local, LocalBreaker,
    LocalCounter, NotLeased, Past, StateKey, Store,
};
use leapgate::config::{Value, read};
use leapgate::lease::{self, Message, Moment, Node, Taken, WhenDown};
use leapgate::{Decision, Engine, Request, Timestamp};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// A store that answers at once, and how often it was asked.
#[derive(Clone, Default)]
struct Cluster(Rc<Asked>);

#[derive(Default)]
struct Asked {
    store: RefCell<lease::Store>,
    asks: Cell<u64>,
    nodes: Cell<u64>,
    names: RefCell<Vec<String>>,
}

/// The permits of one rule on one node.
struct OfNode(Cluster, RefCell<Node>);

fn moment(now: Timestamp) -> Moment {
    Moment {
        monotonic: now,
        wall: now,
    }
}

impl OfNode {
    fn ask(&self, message: &Message, now: Timestamp) {
        let Cluster(asked) = &self.0;
        asked.asks.set(asked.asks.get() + 1);
        let key = String::from_utf8(message.key.clone()).unwrap();
        let millis = 1_000_000 + now.as_millis();
        let mut store = asked.store.borrow_mut();
        let answer = store.lease(&key, &message.text, millis, millis).unwrap();
        let change = self.1.borrow_mut().answered(message.token, &answer, moment(now));
        change.unwrap();
    }
}

impl Leased for OfNode {
    fn take(&self, key: &[u8], cost: u64, now: Timestamp, waits: bool) -> Taken {
        assert!(waits);
        loop {
            let (taken, message) = self.1.borrow_mut().take(key, cost, moment(now));
            message.iter().for_each(|message| self.ask(message, now));
            if taken != Taken::Wait {
                return taken;
            }
        }
    }

    fn give_back(&self, key: &[u8], cost: u64, _: Timestamp) {
        self.1.borrow_mut().give_back(key, cost);
    }

    fn change(&self, limit: u64, _: Option<WhenDown>) {
        self.1.borrow_mut().set_limit(limit);
    }
}

impl Backend for Cluster {
    type Counter = LocalCounter;
    type Keyed = KeyedWindows;
    type Breaker = LocalBreaker;
    const LEASES: bool = true;

    fn open(&self, key: &StateKey) -> (LocalCounter, Past) {
        Local.open(key)
    }

    fn open_keyed(&self, key: &StateKey, geometry: &KeyedGeometry) -> KeyedWindows {
        Local.open_keyed(key, geometry)
    }

    fn open_breaker(&self, key: &BreakerKey) -> LocalBreaker {
        Local.open_breaker(key)
    }

    fn lease(&self, _: &StateKey, leasing: &Leasing<'_>) -> Result<Rc<dyn Leased>, NotLeased> {
        let Leasing { name, terms, when_down, max_keys } = *leasing;
        let number = self.0.nodes.get() + 1;
        self.0.nodes.set(number);
        let (interval, buckets) = (terms.interval_ms(), terms.buckets());
        self.0.names.borrow_mut().push(format!("{name}:{interval}:{buckets}, {when_down:?}"));
        let when_down = when_down.unwrap_or(WhenDown::Refuse);
        let node = Node::new(number, name, terms, when_down, max_keys, [number; 2]);
        Ok(Rc::new(OfNode(self.clone(), RefCell::new(node))))
    }
}

impl Cluster {
    /// A node with the rule that these fields describe, as Sentinel's dashboard writes them.
    fn node(&self, config: &str) -> Engine<Cluster> {
        let json = format!(
            r#"{{"flowRules": [{{"app": "shop", "ip": "10.0.0.7", "port": 8719, "limitApp": "default", "resource": "api", "grade": 1,
                "count": 100.0, "strategy": 0, "refResource": "", "controlBehavior": 0, "warmUpPeriodSec": null, "clusterMode": true,
                "maxQueueingTimeMs": null, "regex": false, "id": "17", "clusterConfig": {config}}}]}}"#
        );
        let document = Value::from_json(json).unwrap();
        let rules = read(&document).unwrap().rules;
        Engine::with_store(Rc::new(Store::new(self.clone())), rules).unwrap()
    }

    fn names(&self) -> Vec<String> {
        self.0.names.borrow().clone()
    }
}

/// A configuration of a rule in a cluster, with the fields that the dashboard writes besides.
fn cluster_config(fields: &str) -> String {
    format!(
        r#"{{{fields}, "strategy": 0, "sampleCount": 10, "windowIntervalMs": 5000, "resourceTimeout": 2000,
            "resourceTimeoutStrategy": 0, "acquireRefuseStrategy": 0, "clientOfflineTime": 2000}}"#
    )
}

/// How many of the requests pass that come to these nodes in turn, so many in each millisecond up to `until`.
fn passes(nodes: &[Engine<Cluster>], per_milli: usize, until: u64) -> Vec<u64> {
    let mut passed = Vec::new();
    for now in 0..until {
        for (i, node) in nodes.iter().cycle().take(per_milli).enumerate() {
            let at = Timestamp::from_nanos(now * 1_000_000 + i as u64);
            if let Decision::Pass(_) = node.enter(&Request::new("api"), at) {
                passed.push(now);
            }
        }
    }
    passed
}

#[test]
fn differs_from_sentinel_permits_are_leased() {
    let cluster = Cluster::default();
    let config = cluster_config(r#""flowId": 7, "thresholdType": 1, "fallbackToLocalWhenFail": true"#);
    let nodes = [(); 3].map(|()| cluster.node(&config));
    let passed = passes(&nodes, 3, 5000);
    for (i, from) in passed.iter().enumerate() {
        let within = passed[i..].iter().take_while(|at| *at - from < 1000).count();
        assert!(within <= 100, "{within} from {from} on");
    }
    assert!(passed.len() >= 450, "{}", passed.len());
    let asks = cluster.0.asks.get();
    assert!(asks <= 15_000 / 10, "{asks} for 15000 requests");
}

#[test]
fn differs_from_sentinel_a_threshold_of_each_node_asks_no_store() {
    let cluster = Cluster::default();
    let config = cluster_config(r#""flowId": 7, "thresholdType": 0, "fallbackToLocalWhenFail": true"#);
    let nodes = [(); 3].map(|()| cluster.node(&config));
    assert_eq!(passes(&nodes, 900, 1).len(), 300);
    assert_eq!((cluster.0.asks.get(), cluster.names()), (0, Vec::new()));
    assert_eq!(nodes[0].warnings(), [""; 0]);
}

#[test]
fn differs_from_sentinel_a_limit_of_all_machines_has_the_rules_own_window() {
    let cluster = Cluster::default();
    cluster.node(&cluster_config(r#""flowId": 7, "thresholdType": 1, "fallbackToLocalWhenFail": false"#));
    assert_eq!(cluster.names(), ["7:1000:100, Some(Pass)"]);
}

#[test]
fn differs_from_sentinel_a_limit_of_all_machines_needs_no_flow_id() {
    let cluster = Cluster::default();
    cluster.node(&cluster_config(r#""flowId": null, "thresholdType": 1"#));
    assert_eq!(cluster.names(), ["17:1000:100, None"]);
}
