//! Metadata, filter state and the peer as parts of keys, and metadata of routes as names of resources.

use super::{Process, Vm, process};
use leapgate_envoy::host::Property;
use std::rc::Rc;

const JWT: &str = "metadata/filter_metadata/envoy.filters.http.jwt_authn/jwt_payload/";
const EG: &str = "xds/route_metadata/filter_metadata/envoy-gateway/resources/0/";
const ISTIO: &str = "xds/route_metadata/filter_metadata/istio/config";

impl Process {
    /// Sets a property, and removes it if it has no value.
    fn set(&self, path: &str, value: Option<&[u8]>) {
        let path = path.replace('/', "\0");
        let mut properties = self.properties.borrow_mut();
        match value {
            Some(value) => properties.insert(path, value.to_vec()),
            None => properties.remove(&path),
        };
    }
}

/// A document with a limit of one request for each value of a part, and of 5 for the value in `keyItems`.
fn one_for_each(part: &str, item: &str) -> String {
    format!(
        r#"{{"flowRules": [{{"resource": "api", "count": 1, "key": [{part}], "keyItems": [{{"value": {item}, "count": 5}}]}}]}}"#
    )
}

#[test]
fn each_attribute_is_read_from_where_envoy_has_it_and_as_the_type_that_the_document_says() {
    let cases: [(&str, &str, &[u8], &str); 11] = [
        (
            r#"{"jwtClaim": "sub"}"#,
            &[JWT, "sub"].concat(),
            b"alice",
            "alice",
        ),
        (
            r#"{"jwtClaim": ["org", "id"], "payload": "pl", "type": "number"}"#,
            "metadata/filter_metadata/envoy.filters.http.jwt_authn/pl/org/id",
            &9_007_199_254_740_991.0_f64.to_le_bytes(),
            "9007199254740991",
        ),
        (
            r#"{"metadata": ["plans", "tier"]}"#,
            "metadata/filter_metadata/plans/tier",
            "größer".as_bytes(),
            "größer",
        ),
        // Eight bytes are a string unless the document says that they are a number, and the other way round.
        (
            r#"{"metadata": ["plans", "tier"]}"#,
            "metadata/filter_metadata/plans/tier",
            b"claude-x",
            "claude-x",
        ),
        (
            r#"{"metadata": ["plans", "n"], "type": "number"}"#,
            "metadata/filter_metadata/plans/n",
            &42.0_f64.to_le_bytes(),
            "42",
        ),
        (
            r#"{"metadata": ["plans", "n"], "type": "number"}"#,
            "metadata/filter_metadata/plans/n",
            &(-0.5_f64).to_le_bytes(),
            "-0.5",
        ),
        (
            r#"{"typedMetadata": ["envoy.ai.token_usage", "total_tokens"], "type": "number"}"#,
            "metadata/typed_filter_metadata/envoy.ai.token_usage/total_tokens",
            &u64::MAX.to_le_bytes(),
            "18446744073709551615",
        ),
        (
            r#"{"typedMetadata": ["envoy.ai.request_info", "model"]}"#,
            "metadata/typed_filter_metadata/envoy.ai.request_info/model",
            b"claude-x",
            "claude-x",
        ),
        (
            r#"{"routeMetadata": ["leapgate", "plans", "0"]}"#,
            "xds/route_metadata/filter_metadata/leapgate/plans/0",
            b"gold",
            "gold",
        ),
        (
            r#"{"filterState": "my.key"}"#,
            "filter_state/my.key",
            b"blue",
            "blue",
        ),
        (r#"{"filterState": "n"}"#, "filter_state/n", b"\t", "gone"),
    ];
    for (part, path, bytes, text) in cases {
        let process = process();
        let vm = Vm::born(&process, &one_for_each(part, &format!("{text:?}")));
        process.set(path, Some(bytes));
        let passes = if text == "gone" { 1 } else { 5 };
        assert_eq!(vm.passes("api", 9), passes, "{part}");
        process.set(path, None);
        // A missing value and one of a wrong type are one and the same.
        assert_eq!(vm.passes("api", 9), usize::from(text != "gone"), "{part}");
    }
}

#[test]
fn the_peer_is_a_part_of_keys_and_is_its_uri_or_else_its_subject() {
    let process = process();
    let vm = Vm::born(
        &process,
        &one_for_each(r#""peer""#, r#""spiffe://mesh/ns/shop""#),
    );
    let cases = [
        (Some((Property::PeerUri, "spiffe://mesh/ns/shop")), 5),
        (Some((Property::PeerSubject, "CN=ops")), 1),
        (Some((Property::PeerUri, "spiffe://mesh/ns/other")), 1),
        (None, 1),
    ];
    for (peer, passes) in cases {
        process
            .peer
            .replace(peer.map(|(property, name)| (property, name.into())));
        assert_eq!(vm.passes("api", 9), passes, "{peer:?}");
    }
    assert_eq!(vm.asked("elsewhere"), [""; 0], "no rule asks for it");
}

/// A list of one string, as Envoy serializes it.
const LIST: &[u8] = b"\x01\0\0\0\x04\0\0\0\0\0\0\0gold\0\0";

#[test]
fn a_value_of_a_wrong_type_is_missing_and_counted_and_logged_once() {
    let says = |part: &str, cure: &str| {
        format!(
            "leapgate: {part}: its value is not {cure}; such requests count as requests without it"
        )
    };
    let path = "metadata/filter_metadata/plans/tier";
    let string = r#"{"metadata": ["plans", "tier"]}"#;
    let number = r#"{"metadata": ["plans", "tier"], "type": "number"}"#;
    let [no_string, no_number] = [
        r#"a string (for a number, add `"type": "number"`)"#,
        "a number",
    ]
    .map(|cure| says("metadata:plans/tier", cure));
    let cases: [(&str, &[u8], &str); 10] = [
        (string, LIST, &no_string),
        (string, b"\0\0\0\0", &no_string),
        (string, &7.0_f64.to_le_bytes(), &no_string),
        (
            string,
            &9_007_199_254_740_991.0_f64.to_le_bytes(),
            &no_string,
        ),
        (string, b"\x01", &no_string),
        (string, b"\xff", &no_string),
        (number, LIST, &no_number),
        (number, b"7", &no_number),
        (number, b"\x01", &no_number),
        (number, b"123456789", &no_number),
    ];
    for (part, bytes, line) in cases {
        let process = process();
        let vm = Vm::born(&process, &one_for_each(part, "[null]"));
        process.set(path, Some(bytes));
        assert_eq!(vm.passes("api", 3), 3, "{part} {bytes:?}");
        assert_eq!(process.warnings(), [line], "{bytes:?}");
        assert_eq!(process.metric("leapgate.wrong_type"), Some(3));
        process.set(path, None);
        assert_eq!(vm.passes("api", 9), 2, "{part} {bytes:?}");
        assert_eq!(
            process.metric("leapgate.wrong_type"),
            Some(3),
            "nothing is wrong there"
        );
    }
}

#[test]
fn each_attribute_is_asked_for_once_and_only_where_a_rule_wants_it() {
    let process = process();
    let document = r#"{"flowRules": [
        {"resource": "api", "id": "1", "count": 9, "key": [{"jwtClaim": "sub"}, {"routeMetadata": ["a", "b"]}]},
        {"resource": "api", "id": "2", "count": 9, "key": [{"jwtClaim": "sub"}, {"filterState": "c"}]},
        {"resource": "api", "id": "3", "count": 9, "key": [{"metadata": ["envoy.filters.http.jwt_authn", "jwt_payload", "sub"]}]},
        {"resource": "login", "count": 9}
    ]}"#;
    let vm = Vm::born(&process, document);
    assert_eq!(vm.asked("login"), [""; 0]);
    let asked = vm.asked("api").join("\n").replace('\0', "/");
    let asked: Vec<&str> = asked.lines().collect();
    let subject = [JWT, "sub"].concat();
    let route = "xds/route_metadata/filter_metadata/a/b";
    assert_eq!(asked, [&subject, route, "filter_state/c"]);
}

// === Names of resources ===

/// A filter whose resources come from there, with one request for each.
fn named(process: &Rc<Process>, from: &str) -> Vm {
    let document = format!(
        r#"{{"flowRules": [{{"resource": "*", "count": 1, "id": "each"}}], "envoy": {{"resource": {from}}}}}"#
    );
    Vm::born(process, &document)
}

/// The names of the resources that have been entered, except the further ones.
fn entered(process: &Process) -> Vec<String> {
    let metrics = process.metrics.borrow();
    let names = metrics.iter().filter_map(|(_, name, _)| {
        let (_, name) = name.split_once("leapgate.passed;rule=each;resource=")?;
        Some(name.split(";;").next().unwrap().to_string())
    });
    names.filter(|name| !name.is_empty()).collect()
}

#[test]
fn the_owner_of_a_route_names_its_resource_and_an_update_is_seen_at_once() {
    let process = process();
    let vm = named(
        &process,
        r#"{"from": {"routeMetadata": ["leapgate", "resource"]}}"#,
    );
    let path = "xds/route_metadata/filter_metadata/leapgate/resource";
    for (name, passes) in [
        (Some(&b"checkout"[..]), 1),
        (Some(b"search"), 1),
        (Some(b"checkout"), 0),
        (None, 1),
        (Some(b""), 0),
        (Some(LIST), 0),
    ] {
        process.set(path, name);
        assert_eq!(vm.passes("default", 3), passes, "{name:?}");
    }
    vm.filter.on_tick();
    assert_eq!(entered(&process), ["checkout", "search", "default"]);
    let line = "leapgate: routeMetadata:leapgate/resource: its value is not a string (for a number, add `\"type\": \"number\"`); \
                such requests count as requests without it";
    assert_eq!(process.warnings(), [line]);
}

#[test]
fn a_resource_is_called_as_the_object_that_envoy_gateway_has_made_its_route_from() {
    let route = "httproute/shop/checkout/rule/0/match/0/shop_example";
    for (from, expected) in [
        (
            r#"{"from": "envoyGateway"}"#,
            ["httproute/shop/checkout"; 2],
        ),
        (
            r#"{"from": "envoyGateway", "section": true}"#,
            ["httproute/shop/checkout/pay", "httproute/shop/checkout"],
        ),
    ] {
        let process = process();
        let vm = named(&process, from);
        let fields = [
            ("kind", "HTTPRoute"),
            ("namespace", "shop"),
            ("name", "checkout"),
        ];
        for (key, value) in fields {
            process.set(&[EG, key].concat(), Some(value.as_bytes()));
        }
        let section = [EG, "sectionName"].concat();
        process.set(&section, Some(b"pay"));
        assert!(vm.request(route).is_some());
        process.set(&section, None);
        assert_eq!(vm.request(route).is_some(), expected[0] != expected[1]);
        process.set(&[EG, "namespace"].concat(), None);
        assert!(vm.request(route).is_some(), "another name");
        vm.filter.on_tick();
        let mut expected = expected.to_vec();
        expected.dedup();
        expected.push(route);
        assert_eq!(entered(&process), expected, "{from}");
    }
}

#[test]
fn a_resource_is_called_as_the_object_that_istio_has_made_its_route_from() {
    let object = b"/apis/networking.istio.io/v1alpha3/namespaces/shop/virtual-service/checkout";
    let named_rule = [
        "virtual-service/shop/checkout",
        "virtual-service/shop/checkout/pay.fast",
    ];
    for (from, expected) in [
        (r#"{"from": "istio", "section": false}"#, &named_rule[..1]),
        (r#"{"from": "istio", "section": true}"#, &named_rule[..]),
    ] {
        let process = process();
        let vm = named(&process, from);
        process.set(ISTIO, Some(object));
        let passes = ["default", "pay.fast", ""].map(|route| vm.passes(route, 3));
        assert_eq!(passes, [1, expected.len() - 1, 0]);
        for other in [
            None,
            Some(&b"checkout"[..]),
            Some(b"/apis/x/namespaces/shop"),
            Some(b"\xff"),
        ] {
            process.set(ISTIO, other);
            vm.request("inbound");
        }
        vm.filter.on_tick();
        assert_eq!(
            entered(&process),
            [expected, &["inbound"]].concat(),
            "{from}"
        );
    }
}
