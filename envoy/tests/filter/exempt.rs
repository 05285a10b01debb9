//! Requests that limits leave alone, and counts that requests bring along.

use super::system::system;
use super::*;

impl Process {
    /// The headers of the next request; `source.address` is the client's address.
    fn sends(&self, headers: &[(&str, &str)]) {
        let headers = headers
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_string()));
        self.request_headers.replace(headers.collect());
    }

    fn property_is(&self, path: &str, value: Option<&[u8]>) {
        let path = path.replace('/', "\0");
        match value {
            Some(value) => drop(self.properties.borrow_mut().insert(path, value.to_vec())),
            None => drop(self.properties.borrow_mut().remove(&path)),
        }
    }

    /// The headers about limits of the response to an admitted request.
    fn told(&self, vm: &Vm, passed: &Passed<Fake>) -> String {
        self.response_headers.borrow_mut().clear();
        vm.filter.on_response(passed, false);
        let headers = self.response_headers.borrow();
        let policy = headers.iter().find(|(name, _)| name == "ratelimit-policy");
        policy.map_or(String::new(), |(_, value)| value.clone())
    }
}

#[test]
fn a_rule_leaves_alone_what_is_exempt_from_it() {
    let process = process();
    let document = r#"{"flowRules": [
        {"resource": "login", "count": 1, "exempt": [{"clientIp": "10.0.0.0/8"}, {"header": "X-Probe", "value": "1"}, {"origin": "batch"}]},
        {"resource": "login", "count": 5, "intervalMs": 60000, "id": "all"}
    ], "envoy": {"origin": {"header": "x-app"}, "rateLimitHeadersOn": "all"}}"#;
    let vm = Vm::born(&process, document);
    let rows: [(&[(&str, &str)], bool); 4] = [
        (&[("source.address", "10.0.0.1:443")], true),
        (
            &[("source.address", "11.0.0.1:443"), ("x-probe", "1")],
            true,
        ),
        (&[("x-app", "batch")], true),
        (
            &[
                ("source.address", "11.0.0.1:443"),
                ("x-probe", "2"),
                ("x-app", "shop"),
            ],
            false,
        ),
    ];
    for (headers, is_exempt) in rows {
        process.sends(headers);
        let passed = vm.request("login").unwrap();
        let told = process.told(&vm, &passed);
        let expected = match is_exempt {
            true => r#""all";q=5;w=60"#,
            false => r#""login";q=1;w=1, "all";q=5;w=60"#,
        };
        assert_eq!(told, expected, "{headers:?}");
    }
    assert!(vm.request("login").is_none(), "the last one was counted");
    process.sends(rows[0].0);
    assert_eq!(vm.passes("login", 9), 1, "`all` counts each");
}

#[test]
fn what_the_settings_exempt_is_counted_by_no_limit_and_told_none() {
    let process = process();
    let document = r#"{"flowRules": [{"resource": "*", "count": 1}, {"resource": "api", "count": 1, "key": ["clientIp"]}],
        "systemRules": [{"maxThread": 1}],
        "banRules": [{"resource": "api", "key": ["clientIp"], "count": 1, "banSec": 60}],
        "envoy": {"exempt": [{"header": "x-probe", "value": "1"}], "rateLimitHeadersOn": "all"}}"#;
    let vm = Vm::born(&process, document);
    let probe = [("source.address", "10.0.0.1:443"), ("x-probe", "1")];
    let mut open = Vec::new();
    for route in ["api", "web", "api", "web"] {
        process.sends(&probe);
        let passed = vm.request(route).unwrap();
        assert_eq!(process.told(&vm, &passed), "");
        open.push(passed);
    }
    process.sends(&probe[..1]);
    open.push(vm.request("api").unwrap());
    assert!(
        vm.request("web").is_none(),
        "one call is in flight for the system"
    );
    vm.ends(open.pop().unwrap(), 1);
    assert!(vm.request("api").is_none());
    let replies = process.replies.borrow().len();
    assert!(vm.request("api").is_none());
    assert!(
        process.replies.borrow()[replies].1.contains("/ban="),
        "it is banned now"
    );
    process.sends(&probe);
    assert!(vm.request("api").is_some());
}

#[test]
fn an_exempt_address_is_read_once_and_nothing_else_is() {
    let process = process();
    let document = r#"{"flowRules": [{"resource": "api", "count": 1, "key": ["path", "host"]}],
        "envoy": {"exempt": [{"clientIp": "10.0.0.0/8"}, {"origin": "batch"}], "origin": {"header": "x-app"}}}"#;
    let vm = Vm::born(&process, document);
    process.sends(&[("source.address", "10.0.0.1:443")]);
    process.asked.borrow_mut().clear();
    assert_eq!(vm.passes("api", 3), 3);
    let asked = process.asked.take();
    assert_eq!(asked, ["x-app", "source.address"].repeat(3));
    process.sends(&[("source.address", "11.0.0.1:443"), ("x-app", "batch")]);
    assert_eq!(vm.passes("api", 3), 3);
    process.asked.borrow_mut().clear();
    assert_eq!(vm.passes("none", 1), 1);
    assert!(process.asked.borrow().is_empty(), "no rule is for it");
}

#[test]
fn a_breaker_counts_an_exempt_call_and_refuses_it() {
    let process = process();
    let document = r#"{"degradeRules": [{"resource": "api", "grade": "errorCount", "count": 0, "timeWindow": 5, "minRequestAmount": 1}],
        "envoy": {"exempt": [{"header": "x-probe"}]}}"#;
    let vm = Vm::born(&process, document);
    process.sends(&[("x-probe", "any")]);
    let mut passed = vm.request("api").unwrap();
    process.response.set(Some((503, 0)));
    vm.filter.on_response(&passed, true);
    vm.filter.on_end(&mut passed);
    assert!(vm.request("api").is_none());
}

#[test]
fn an_exempt_call_is_none_of_the_systems() {
    let process = process();
    let document = system(r#"{"qps": 2}"#)
        .replace("]}", r#"], "envoy": {"exempt": [{"header": "x-probe"}]}}"#);
    let vms = [0; 2].map(|_| Vm::born(&process, &document));
    process.sends(&[("x-probe", "1")]);
    assert_eq!(vms.iter().map(|vm| vm.passes("a", 5)).sum::<usize>(), 10);
    process.sends(&[]);
    assert_eq!(vms.iter().map(|vm| vm.passes("a", 5)).sum::<usize>(), 2);
    process.sends(&[("x-probe", "1")]);
    assert_eq!(vms.iter().map(|vm| vm.passes("a", 5)).sum::<usize>(), 10);
}

const PLANS: &str = r#"{"flowRules": [{"resource": "api", "count": {"metadata": ["plans", "requests"], "default": 2, "atMost": 9},
    "intervalMs": 60000, "key": [{"header": "x-client"}], "id": "plans"}], "envoy": {"rateLimitHeadersOn": "all"}}"#;

#[test]
fn four_workers_admit_what_the_plan_of_a_request_says() {
    let process = process();
    let vms = [0; 4].map(|_| Vm::born(&process, PLANS));
    let path = "metadata/filter_metadata/plans/requests";
    let passes = |client: &str, plan: Option<&[u8]>| {
        process.sends(&[("x-client", client)]);
        process.property_is(path, plan);
        (0..5)
            .flat_map(|_| &vms)
            .map(|vm| vm.passes("api", 1))
            .sum::<usize>()
    };
    let number = |n: f64| n.to_le_bytes();
    assert_eq!(passes("a", Some(&number(5.0))), 5);
    assert_eq!(
        passes("a", Some(&number(7.0))),
        2,
        "it goes on in the plan's place"
    );
    assert_eq!(passes("b", Some(&number(1e15))), 9);
    assert_eq!(passes("c", Some(&number(0.0))), 0);
    let wrong: [(&str, Option<&[u8]>); 7] = [
        ("d", None),
        ("e", Some(&number(-1.0))),
        ("f", Some(&number(f64::INFINITY))),
        ("g", Some(&number(f64::NAN))),
        ("h", Some(b"gold")),
        ("i", Some(b"")),
        ("j", Some(&number(1e300))),
    ];
    for (client, plan) in wrong {
        assert_eq!(passes(client, plan), 2, "{plan:?}");
    }
    vms.iter().for_each(|vm| vm.filter.on_tick());
    let defaulted = process.metric("leapgate.defaulted;rule=plans");
    assert_eq!(defaulted, Some(7 * 20), "{:?}", process.metrics.borrow());
}

#[test]
fn a_response_tells_the_count_of_its_request() {
    let process = process();
    let vm = Vm::born(&process, PLANS);
    process.sends(&[("x-client", "a")]);
    for (plan, told) in [
        (Some(5.0_f64), 5),
        (None, 2),
        (Some(7.0), 7),
        (Some(99.0), 9),
    ] {
        let bytes = plan.map(f64::to_le_bytes);
        process.property_is(
            "metadata/filter_metadata/plans/requests",
            bytes.as_ref().map(|b| &b[..]),
        );
        let Some(passed) = vm.request("api") else {
            let replies = process.replies.borrow();
            panic!("refused with {:?}", replies.last());
        };
        assert_eq!(
            process.told(&vm, &passed),
            format!(r#""plans";q={told};w=60"#)
        );
    }
}
