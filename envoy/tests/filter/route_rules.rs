//! Rules that routes have of their own, in their metadata.

use super::{Process, Vm, process};
use leapgate::config::Value;
use leapgate_envoy::metadata;

const METADATA: &str = "xds\0route_metadata";

/// A document with a limit of 10 requests a minute for the route `login`, where routes may have rules of their own.
const TEN: &str = r#"{"flowRules": [{"resource": "login", "count": 10, "intervalMs": 60000}],
    "envoy": {"allowRouteRules": {"maxCount": 1000, "maxRules": 4}}}"#;

const THREE: &str = r#"[{"count": 3, "intervalMs": 60000}]"#;

/// A serialized field: its tag, and its content behind its length.
fn field(tag: u8, content: &[u8]) -> Vec<u8> {
    let (mut bytes, mut length) = (vec![tag], content.len());
    while length >= 0x80 {
        bytes.push(length as u8 | 0x80);
        length >>= 7;
    }
    bytes.push(length as u8);
    bytes.extend(content);
    bytes
}

/// A serialized item of a map.
fn item(key: &str, value: &[u8]) -> Vec<u8> {
    field(
        0x0a,
        &[field(0x0a, key.as_bytes()), field(0x12, value)].concat(),
    )
}

/// A value as protobuf has it.
fn serialized(value: &Value) -> Vec<u8> {
    match value {
        Value::Null => vec![0x08, 0],
        Value::Number(number) => [&[0x11][..], &number.to_le_bytes()].concat(),
        Value::String(text) => field(0x1a, text.as_bytes()),
        Value::Bool(value) => vec![0x20, u8::from(*value)],
        Value::Object(entries) => {
            let items = entries
                .iter()
                .map(|(key, value)| item(key, &serialized(value)));
            field(0x2a, &items.collect::<Vec<_>>().concat())
        }
        Value::Array(list) => {
            let items = list.iter().map(|value| field(0x0a, &serialized(value)));
            field(0x32, &items.collect::<Vec<_>>().concat())
        }
    }
}

/// The metadata of a route whose `flowRules` are this value, after another filter's, which has a null.
fn metadata_of(rules: &Value) -> Vec<u8> {
    let other = item("else", &item("flowRules", &serialized(&Value::Null)));
    let further = item("rev", &serialized(&Value::Number(7.0)));
    let own = [further, item("flowRules", &serialized(rules))].concat();
    [other, item("leapgate", &own)].concat()
}

/// The same, from JSON.
fn list(rules: &str) -> Vec<u8> {
    metadata_of(&Value::from_json(rules.as_bytes()).unwrap())
}

/// The same, with the rules as JSON text.
fn text(rules: &str) -> Vec<u8> {
    metadata_of(&Value::String(rules.into()))
}

impl Process {
    /// The metadata of the route of the requests from now on; if empty, it has none.
    fn route_has(&self, metadata: Vec<u8>) {
        self.properties
            .borrow_mut()
            .insert(METADATA.into(), metadata);
    }

    fn later(&self, millis: u64) {
        self.millis.set(self.millis.get() + millis);
    }

    /// How often the metadata of a route has been read since it was last asked.
    fn metadata_reads(&self) -> usize {
        let asked = self.asked.take();
        asked.iter().filter(|path| *path == METADATA).count()
    }
}

#[test]
fn a_request_passes_the_rules_of_the_document_and_those_of_its_route_or_none_is_charged() {
    for own in [list(THREE), text(THREE)] {
        let process = process();
        let vm = Vm::born(&process, TEN);
        process.route_has(own);
        assert_eq!(vm.passes("login", 20), 3);
        let (_, details, headers, _) = process.replies.borrow()[0].clone();
        assert_eq!(details, "leapgate{rule=route:login/60s}");
        let policy = headers.iter().find(|(name, _)| name == "ratelimit-policy");
        assert_eq!(
            policy.unwrap().1,
            r#""login/60s";q=10;w=60, "route:login/60s";q=3;w=60"#
        );
        // What its own rule has refused has charged no other.
        process.route_has(Vec::new());
        process.later(1000);
        assert_eq!(vm.passes("login", 20), 7);
    }
}

#[test]
fn a_route_without_a_rule_in_the_document_has_its_own() {
    let process = process();
    let vm = Vm::born(&process, TEN);
    process.route_has(list(
        r#"[{"count": 2, "intervalMs": 60000, "key": [{"header": "x-user"}]}, {"count": 3}]"#,
    ));
    for (user, passes) in [("a", 2), ("b", 1), ("c", 0)] {
        let mut headers = process.request_headers.borrow_mut();
        headers.insert("x-user".into(), user.into());
        drop(headers);
        assert_eq!(vm.passes("checkout", 9), passes, "{user}");
    }
}

#[test]
fn metadata_is_read_at_most_once_a_second_for_each_route_and_an_update_is_seen_then() {
    let process = process();
    let vm = Vm::born(&process, TEN);
    process.route_has(list(THREE));
    assert_eq!(vm.passes("login", 2), 2);
    process.route_has(list(r#"[{"count": 4, "intervalMs": 60000}]"#));
    process.later(999);
    assert_eq!(vm.passes("login", 5), 1);
    assert_eq!(process.metadata_reads(), 1);
    process.later(1);
    // The window goes on, with the new count.
    assert_eq!(vm.passes("login", 5), 1);
    assert_eq!(process.metadata_reads(), 1);
    vm.passes("checkout", 5);
    assert_eq!(process.metadata_reads(), 1);
}

#[test]
fn metadata_is_not_read_unless_the_settings_allow_rules_of_routes() {
    let process = process();
    let vm = Vm::born(&process, super::TEN);
    process.route_has(list(THREE));
    assert_eq!(vm.passes("login", 20), 10);
    assert_eq!(process.metadata_reads(), 0);
}

#[test]
fn a_rule_goes_on_where_it_is_while_others_of_its_route_change() {
    for scope in ["process", "worker"] {
        let process = process();
        let document = TEN.replace(
            r#""envoy": {"#,
            &format!(r#""envoy": {{"scope": "{scope}", "#),
        );
        let vm = Vm::born(&process, &document);
        process.route_has(list(THREE));
        assert_eq!(vm.passes("login", 2), 2);
        for others in [
            r#"{"count": 9}"#,
            r#"{"count": 9, "id": "x"}, {"count": 8, "intervalMs": 5}"#,
        ] {
            process.later(1000);
            process.route_has(text(&format!(
                r#"[{others}, {{"count": 3, "intervalMs": 60000}}]"#
            )));
            assert_eq!(vm.passes("login", 0), 0);
        }
        process.later(1000);
        assert_eq!(vm.passes("login", 9), 1, "{scope}");
    }
}

#[test]
fn a_rule_that_comes_and_goes_admits_its_limit_over_four_workers() {
    let process = process();
    let document = TEN.replace("login", "other");
    let vms: Vec<Vm> = (0..4).map(|_| Vm::born(&process, &document)).collect();
    process.route_has(list(THREE));
    let passes: usize = vms.iter().map(|vm| vm.passes("login", 5)).sum();
    assert_eq!(passes, 3);
    for round in 0..5 {
        for (own, passes) in [("[]", 9), (THREE, 0)] {
            process.route_has(list(own));
            process.later(1000);
            for vm in &vms {
                vm.filter.on_tick();
                assert_eq!(vm.passes("login", 9), passes, "round {round}");
            }
        }
    }
    process.later(120_000);
    let passes: usize = vms.iter().map(|vm| vm.passes("login", 5)).sum();
    assert_eq!(passes, 3);
}

#[test]
fn no_interval_holds_more_than_the_limit_of_a_route_over_four_workers() {
    let process = process();
    let vms: Vec<Vm> = (0..4).map(|_| Vm::born(&process, TEN)).collect();
    process.route_has(list(r#"[{"count": 10}]"#));
    let mut random = fastrand::Rng::with_seed(12);
    let mut admitted = Vec::new();
    for _ in 0..20_000 {
        process.later(random.u64(0..4));
        let vm = &vms[random.usize(0..4)];
        if random.u8(0..8) == 0 {
            vm.filter.on_tick();
        }
        if vm.request("checkout").is_some() {
            admitted.push(process.millis.get());
        }
    }
    for window in admitted.windows(11) {
        assert!(window[10] - window[0] >= 1000, "{window:?}");
    }
    let allowed = (admitted[admitted.len() - 1] - admitted[0]) / 100;
    assert!(
        admitted.len() as u64 * 100 >= allowed * 90,
        "{} of {allowed}",
        admitted.len()
    );
}

#[test]
fn no_route_shares_a_window_with_another_whatever_its_owner_calls_its_rules() {
    let process = process();
    let vm = Vm::born(&process, TEN);
    let cases = [
        (
            "a",
            r#"[{"count": 1, "intervalMs": 60000, "id": "b/c"}]"#,
            "a/b.c",
        ),
        (
            "a/b",
            r#"[{"count": 1, "intervalMs": 60000, "id": "c"}]"#,
            "a/b/c",
        ),
        (
            "ab",
            r#"[{"count": 1, "intervalMs": 60000, "id": "abc"}]"#,
            "ab/abc",
        ),
        (
            "b",
            r#"[{"count": 1, "intervalMs": 60000, "id": "login/60s"}]"#,
            "b/login.60s",
        ),
    ];
    for (route, own, id) in cases {
        process.route_has(list(own));
        assert_eq!(vm.passes(route, 3), 1, "{route}");
        let replies = process.replies.borrow();
        assert_eq!(
            replies.last().unwrap().1,
            format!("leapgate{{rule=route:{id}}}")
        );
    }
}

#[test]
fn an_api_and_its_route_with_rules_of_its_own_admit_a_request_together_or_not_at_all() {
    let document = r#"{"apiDefinitions": [{"apiName": "v1", "predicateItems": [{"pattern": "/v1/**", "matchStrategy": 1}]}],
        "flowRules": [{"resource": "v1", "count": 5, "intervalMs": 60000}],
        "envoy": {"allowRouteRules": {"maxCount": 1000}}}"#;
    let process = process();
    let vm = Vm::born(&process, document);
    let path = |path: &str| {
        let mut headers = process.request_headers.borrow_mut();
        headers.insert(":path".into(), path.into());
    };
    path("/v1/a");
    process.route_has(list(THREE));
    assert_eq!(vm.passes("login", 9), 3);
    process.route_has(Vec::new());
    assert_eq!(vm.passes("checkout", 9), 2);
    path("/");
    assert_eq!(vm.passes("login", 9), 0);
}

#[test]
fn rules_of_a_route_refuse_nothing_where_the_document_is_in_shadow_mode() {
    let process = process();
    let vm = Vm::born(&process, &TEN.replacen('{', r#"{"mode": "shadow", "#, 1));
    process.route_has(list(THREE));
    assert_eq!(vm.passes("login", 20), 20);
    vm.filter.on_tick();
    assert_eq!(
        process.metric("leapgate.shadow_blocked;rule=route:login/60s;;3a2f"),
        Some(17)
    );
}

/// What is wrong, in rules of the route `login` that are not in force.
fn wrong_rules() -> Vec<(Vec<u8>, String)> {
    let mut deep = Value::Number(1.0);
    for _ in 0..16 {
        deep = Value::Array(vec![deep]);
    }
    let cases = [
        (
            list(r#"[{"count": 5}, {"count": -1, "intervalMs": 5}]"#),
            "flowRules[1].count: `-1` is not a valid count; use a number from 0 to 9007199254740992",
        ),
        (
            list(r#"[{"count": "5"}]"#),
            "flowRules[0].count: `5` is a string; use a number",
        ),
        (
            text(r#"[{"count": 1e400}]"#),
            "document: `[{\"count\": 1e400` goes wrong on line 1, column 16 (number out of range); correct it there",
        ),
        (
            list(r#"[{"count": 5, "resource": "pay"}]"#),
            "flowRules[0]: `resource` is always that of the route; leave it out",
        ),
        (
            list(r#"[{"count": 1001}]"#),
            "flowRules[0].count: `1001` is more than a route may have; use at most 1000",
        ),
        (
            list(r#"[{"count": 5, "key": ["path"], "keyItems": [{"value": "/", "count": 1001}]}]"#),
            "flowRules[0].count: `1001` is more than a route may have; use at most 1000",
        ),
        (
            list(r#"[{"count": 5, "key": ["path"], "burst": 996}]"#),
            "flowRules[0].count: `1001` is more than a route may have; use at most 1000",
        ),
        (
            list(r#"[{"count": 5, "key": ["path"], "maxKeys": 100001}]"#),
            "flowRules[0].maxKeys: `100001` is more than a route may have; use at most 100000",
        ),
        (
            list(r#"[{"count": 1}, {"count": 2}, {"count": 3}, {"count": 4}, {"count": 5}]"#),
            "flowRules: `5` is more than a route may have; use at most 4",
        ),
        (
            list(r#"[{"count": 1}, {"count": 2}]"#),
            "flowRules[1].id: `route:login/1s` is the id of an earlier rule; give one of them another `id`",
        ),
        (
            list(r#"[{"count": 1, "controlBehavior": "throttle"}]"#),
            "flowRules[0]: `controlBehavior` is not possible in metadata of a route; use `reject`",
        ),
        (
            list(r#"[{"count": 1, "strategy": "relate", "refResource": "pay"}]"#),
            "flowRules[0]: `strategy` is not possible in metadata of a route; use `direct`",
        ),
        (
            list(r#"[{"count": 1, "key": [{"arg": 0}]}]"#),
            "flowRules[0].key: `arg:0` is an argument, which requests in Envoy do not have; use `clientIp`, a header or another part of the request",
        ),
        (list("5"), "flowRules: `5` is a number; use an array"),
        (list("[5]"), "flowRules[0]: `5` is a number; use an object"),
        (
            list("[null]"),
            "flowRules[0]: `null` is not a value; use an object",
        ),
        (
            text(r#"[{"count": 5}"#),
            "document: `[{\"count\": 5}` breaks off on line 1, column 13 (EOF while parsing a list); close what is open",
        ),
        (
            metadata_of(&deep),
            "flowRules: `…` is nested too deeply; use a list of rules",
        ),
        (
            text(&" ".repeat(20_000)),
            "flowRules: `20004` bytes are too many; use at most 16384",
        ),
    ];
    cases
        .into_iter()
        .map(|(metadata, fault)| (metadata, fault.to_string()))
        .collect()
}

#[test]
fn what_is_wrong_is_told_once_and_counted_and_the_rules_of_the_document_hold() {
    for (wrong, fault) in wrong_rules() {
        let process = process();
        let vm = Vm::born(&process, TEN);
        process.route_has(wrong);
        assert_eq!(vm.passes("login", 20), 10, "{fault}");
        process.later(5000);
        assert_eq!(vm.passes("login", 20), 0, "{fault}");
        let told =
            format!("leapgate: the rules in the metadata of route login are not in force: {fault}");
        assert_eq!(process.warnings(), [told]);
        assert_eq!(process.metric("leapgate.route_rules_rejected"), Some(1));
        // Another fault is told, too, and one that was told before it.
        process.route_has(list(r#"[{"count": "x"}]"#));
        process.later(1000);
        vm.passes("login", 1);
        assert_eq!(process.metric("leapgate.route_rules_rejected"), Some(2));
        process.route_has(list(THREE));
        process.later(60_000);
        assert_eq!(vm.passes("login", 20), 3, "{fault}");
    }
}

#[test]
fn no_rules_are_the_same_as_an_empty_list_and_as_null() {
    for none in [
        list("null"),
        list("[]"),
        text("[]"),
        text("null"),
        Vec::new(),
        item("leapgate", b""),
    ] {
        let process = process();
        let vm = Vm::born(&process, TEN);
        process.route_has(none);
        assert_eq!(vm.passes("login", 20), 10);
        assert!(process.warnings().is_empty(), "{:?}", process.warnings());
    }
}

#[test]
fn ten_thousand_routes_with_and_without_rules_do_not_end_the_window_of_one_that_has_some() {
    let process = process();
    let document = TEN.replace(r#""envoy": {"#, r#""envoy": {"scope": "worker", "#);
    let vm = Vm::born(&process, &document);
    process.route_has(list(THREE));
    assert_eq!(vm.passes("login", 20), 3);
    process.route_has(Vec::new());
    for route in 0..10_500 {
        assert_eq!(vm.passes(&format!("route-{route}"), 1), 1);
    }
    process.route_has(list(THREE));
    assert_eq!(vm.passes("login", 20), 0);
    process.later(1000);
    assert_eq!(vm.passes("login", 20), 0);
}

#[test]
fn bytes_that_are_not_metadata_are_never_a_panic() {
    let mut random = fastrand::Rng::with_seed(1200);
    let whole = list(
        r#"[{"count": 3, "key": [{"header": "x"}], "id": null}, {"count": 1.5, "mode": "shadow", "x": true}]"#,
    );
    for round in 0..200_000 {
        let mut bytes: Vec<u8> = match round % 2 {
            0 => (0..random.usize(0..40)).map(|_| random.u8(..)).collect(),
            _ => whole.clone(),
        };
        for _ in 0..random.usize(0..4) {
            if let Some(byte) = random.choice(&mut bytes) {
                *byte = random.u8(..);
            }
        }
        bytes.truncate(random.usize(0..=bytes.len()));
        metadata::value(&bytes);
        let own = metadata::find(&bytes, "leapgate");
        own.and_then(|own| metadata::find(own, "flowRules"))
            .map(metadata::value);
    }
    // A length beyond the end, a number without an end, and the deepest value that there is room for.
    for bytes in [
        &b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"[..],
        &[0xff; 64],
        &[0x32; 16 * 1024],
    ] {
        assert_eq!(metadata::value(bytes), None);
        assert_eq!(metadata::find(bytes, "leapgate"), None);
    }
    let process = process();
    let vm = Vm::born(&process, TEN);
    for _ in 0..5000 {
        let mut bytes = whole.clone();
        for _ in 0..random.usize(1..4) {
            if let Some(byte) = random.choice(&mut bytes) {
                *byte = random.u8(..);
            }
        }
        process.later(1000);
        process.route_has(bytes);
        vm.request("checkout");
    }
}

#[test]
fn a_value_is_read_as_it_was_written() {
    let json = r#"[null, true, false, -0.5, 1e300, "größer", {"a": [], "b": {}, "": [[1]]}]"#;
    let value = Value::from_json(json.as_bytes()).unwrap();
    assert_eq!(metadata::value(&serialized(&value)), Some(value));
    assert_eq!(metadata::value(b""), Some(Value::Null));
}
