//! APIs: requests that rules name together, whatever their routes.

use super::*;

const LOGIN: &str = r#"{
    "apiDefinitions": [
        {"apiName": "login", "predicateItems": [{"pattern": "/login"}, {"pattern": "/v2/session/**", "matchStrategy": 1}]},
        {"apiName": "unused", "predicateItems": [{"pattern": "/**", "matchStrategy": 1, "method": "GET", "headers": {"x-app": true}}]}
    ],
    "flowRules": [{"resource": "login", "count": 10}]
}"#;

impl Vm {
    /// A request with this path, and with these headers, by that route.
    fn request_to(&self, route: &str, path: &str, headers: &[(&str, &str)]) -> bool {
        let process = &self.host.0;
        let mut of_request = process.request_headers.borrow_mut();
        of_request.clear();
        let path = (":path".to_string(), path.to_string());
        let headers = headers
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_string()));
        of_request.extend(headers.chain([path]));
        drop(of_request);
        process.asked.borrow_mut().clear();
        self.request(route).is_some()
    }

    fn asked_for_apis(&self) -> Vec<String> {
        self.host.0.asked.borrow().clone()
    }

    fn details(&self) -> String {
        self.host.0.replies.borrow().last().unwrap().1.clone()
    }
}

#[test]
fn an_api_has_one_limit_for_all_routes_workers_and_spellings() {
    let process = process();
    let vms: Vec<Vm> = (0..4).map(|_| Vm::born(&process, LOGIN)).collect();
    let spellings = [
        "/login",
        "/%6Cogin?next=/",
        "//login/",
        "/login;x=1",
        "/x/../LOGIN",
        "/v2/session",
        "/v2/session/7",
        "/v2%2Fsession/a/../../../x",
    ];
    let mut passes = 0;
    for i in 0..40 {
        let route = ["web", "mobile", "login", "default"][i % 4];
        passes += usize::from(vms[i / 2 % 4].request_to(route, spellings[i % 8], &[]));
    }
    assert_eq!(passes, 10);
    assert_eq!(vms[0].details(), "leapgate{rule=login}");
    assert!(vms[0].request_to("web", "/login/x", &[]));
    assert!(vms[0].request_to("web", "/", &[]));
}

#[test]
fn no_more_of_a_request_is_read_than_its_apis_ask_for() {
    let process = process();
    let plain = Vm::born(&process, TEN);
    assert!(plain.request_to("login", "/login", &[]));
    assert_eq!(plain.asked_for_apis(), [""; 0]);
    // Of an API without rules, nothing.
    let unused = LOGIN.replace(r#""resource": "login""#, r#""resource": "web""#);
    let unused = Vm::born(&process, &unused);
    assert!(unused.request_to("web", "/login", &[]));
    assert_eq!(unused.asked_for_apis(), [""; 0]);
    let path = Vm::born(&process, LOGIN);
    assert!(path.request_to("web", "/login", &[]));
    assert_eq!(path.asked_for_apis(), [":path"]);
    let more = r#"{"apiDefinitions": [
        {"apiName": "a", "predicateItems": [{"pattern": "/a", "method": "POST", "host": "shop.example.com"}]},
        {"apiName": "b", "predicateItems": [{"pattern": "/a", "method": "GET", "headers": {"x-app": "ios"}}]}
    ], "flowRules": [{"resource": "a", "count": 1, "id": "a"}, {"resource": "b", "count": 0, "id": "b"}]}"#;
    let more = Vm::born(&process, more);
    assert!(more.request_to("web", "/b", &[]));
    assert_eq!(more.asked_for_apis(), [":path"]);
    let host = (":authority", "Shop.Example.com:8443");
    assert!(more.request_to("web", "/a", &[host, (":method", "POST")]));
    assert_eq!(more.asked_for_apis(), [":path", ":method", ":authority"]);
    assert!(!more.request_to("web", "/a", &[host, (":method", "POST")]));
    assert_eq!(more.details(), "leapgate{rule=a}");
    assert!(more.request_to("web", "/a", &[(":authority", "other"), (":method", "POST")]));
    assert!(!more.request_to("web", "/a", &[(":method", "GET"), ("x-app", "ios")]));
    assert_eq!(more.details(), "leapgate{rule=b}");
    assert!(more.request_to("web", "/a", &[(":method", "GET"), ("x-app", "")]));
}

#[test]
fn a_refusal_by_an_api_charges_neither_it_nor_its_route() {
    let process = process();
    let vm = Vm::born(
        &process,
        r#"{"apiDefinitions": [{"apiName": "login", "predicateItems": [{"pattern": "/login"}]}],
            "flowRules": [{"resource": "web", "count": 4}, {"resource": "login", "count": 2, "key": [{"header": "x-user"}], "id": "users"},
                {"resource": "*", "count": 3, "id": "each"}]}"#,
    );
    let user = |name| [("x-user", name)];
    let passes = |route: &str, name| {
        (0..9)
            .filter(|_| vm.request_to(route, "/login", &user(name)))
            .count()
    };
    assert_eq!(passes("web", "a"), 2);
    assert_eq!(vm.details(), "leapgate{rule=users}");
    assert_eq!(passes("web", "b"), 2);
    assert_eq!(passes("web", "c"), 0);
    assert_eq!(vm.details(), "leapgate{rule=web}");
    // The rule for each is for the route alone.
    assert_eq!(passes("other", "c"), 2);
    assert_eq!(passes("other", "d"), 1);
    assert_eq!(vm.details(), "leapgate{rule=each}");
    // Headers tell of the rules of both.
    let replies = process.replies.borrow();
    let policy = &replies
        .last()
        .unwrap()
        .2
        .iter()
        .find(|(name, _)| name == "ratelimit-policy")
        .unwrap()
        .1;
    assert_eq!(policy, r#""users";q=2;w=1, "each";q=3;w=1"#);
}

#[test]
fn origins_of_an_api_have_one_window_in_all_workers() {
    let document = r#"{"apiDefinitions": [{"apiName": "login", "predicateItems": [{"pattern": "/login"}]}],
        "flowRules": [{"resource": "login", "count": 6, "limitApp": "other"}, {"resource": "*", "count": 9, "limitApp": "other", "id": "each"}],
        "envoy": {"origin": {"header": "x-app"}, "maxResources": 2}}"#;
    let process = process();
    let vms: Vec<Vm> = (0..2).map(|_| Vm::born(&process, document)).collect();
    let app = |name| [("x-app", name)];
    for name in ["a", "b"] {
        let mut passes = 0;
        for i in 0..40 {
            let route = ["r1", "r2", "r3", "r4"][i / 2 % 4];
            passes += usize::from(vms[i % 2].request_to(route, "/login", &app(name)));
        }
        assert_eq!(passes, 6, "{name}");
        assert_eq!(vms[0].details(), "leapgate{rule=login/app=other}");
    }
    // Each route has a window for an origin, too: what the API refused was not counted there.
    let passes: usize = (0..40)
        .filter(|i| vms[i % 2].request_to("r1", "/", &app("a")))
        .count();
    assert_eq!(passes, 9 - 2);
}

#[test]
fn a_request_of_too_many_apis_is_refused_counted_and_told_once() {
    let apis: Vec<String> = (0..17)
        .map(|i| format!(r#"{{"apiName": "a{i}", "predicateItems": [{{"pattern": "/**", "matchStrategy": 1}}]}}"#))
        .collect();
    let rules: Vec<String> = (0..17)
        .map(|i| format!(r#"{{"resource": "a{i}", "count": 5}}"#))
        .collect();
    let document = format!(
        r#"{{"apiDefinitions": [{}], "flowRules": [{}]}}"#,
        apis.join(","),
        rules.join(",")
    );
    let process = process();
    let vm = Vm::born(&process, &document);
    vm.filter.on_tick();
    assert_eq!(process.metric("leapgate.api_blocked;rule=apis"), Some(0));
    for _ in 0..3 {
        assert!(!vm.request_to("web", "/", &[]));
    }
    assert_eq!(
        (vm.details().as_str(), process.replies.borrow()[0].0),
        ("leapgate{rule=apis}", 503)
    );
    let warnings = process.warnings();
    let [told] = &warnings[..] else {
        panic!("{warnings:?}")
    };
    assert!(
        told.starts_with("leapgate: a request is refused because it belongs to more than 16 APIs with rules, or to APIs with more than 64 rules together; make them overlap less, as `a"),
        "{told}"
    );
    process.millis.set(5100);
    vm.filter.on_tick();
    assert_eq!(process.metric("leapgate.api_blocked;rule=apis"), Some(3));
}

#[test]
fn limits_of_an_api_on_calls_in_flight_and_its_breakers_see_the_end() {
    let process = process();
    let vm = Vm::born(
        &process,
        r#"{"apiDefinitions": [{"apiName": "pay", "predicateItems": [{"pattern": "/pay"}]}],
            "flowRules": [{"resource": "pay", "count": 1, "grade": "concurrency"}],
            "degradeRules": [{"resource": "pay", "grade": "errorCount", "count": 1, "timeWindow": 10, "minRequestAmount": 1, "id": "breaker"}]}"#,
    );
    let headers = [(":path".to_string(), "/pay".to_string())];
    process.request_headers.borrow_mut().extend(headers);
    for _ in 0..2 {
        let mut passed = vm.request("web").unwrap();
        assert!(vm.request("mobile").is_none());
        assert_eq!(vm.details(), "leapgate{rule=pay/concurrency}");
        process.response.set(Some((500, 0)));
        vm.filter.on_response(&passed, true);
        vm.filter.on_end(&mut passed);
    }
    assert!(vm.request("web").is_none());
    assert_eq!(vm.details(), "leapgate{rule=breaker}");
    assert!(vm.request_to("web", "/", &[]));
}
