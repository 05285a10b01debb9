//! APIs, plans, exempt requests and costs at the end in one document.

use super::*;

const DOCUMENT: &str = r#"{
  "apiDefinitions": [
    {"apiName": "login", "predicateItems": [{"pattern": "/login", "method": "POST"}, {"pattern": "/v2/session/**", "matchStrategy": 1}]},
    {"apiName": "chat", "predicateItems": [{"pattern": "/v1/chat/completions", "host": "llm.example.com"}]}
  ],
  "flowRules": [
    {"resource": "login", "count": 5, "intervalMs": 60000, "key": ["clientIp"],
     "cost": {"actual": {"status": ["401", "403"]}}, "exempt": [{"clientIp": "10.0.0.0/8"}]},
    {"resource": "chat", "count": 60, "intervalMs": 60000, "key": [{"jwtClaim": "sub"}]},
    {"resource": "chat", "unit": "tokens", "count": {"metadata": ["plans", "tokens_per_minute"], "default": 20000, "atMost": 1000000},
     "intervalMs": 60000, "key": [{"jwtClaim": "sub"}],
     "cost": {"estimate": {"header": "x-max-tokens", "default": 2000, "atMost": "50%"},
              "actual": {"typedMetadata": ["envoy.ai.token_usage", "total_tokens"]}, "missing": "estimate"}}
  ],
  "envoy": {"resource": {"from": {"routeMetadata": ["leapgate", "resource"]}}, "exempt": [{"header": "x-probe", "value": "1"}],
            "allowRouteRules": {"maxCount": 1000, "maxRules": 4}}
}"#;

const SUB: &str = "metadata\0filter_metadata\0envoy.filters.http.jwt_authn\0jwt_payload\0sub";
const PLAN: &str = "metadata\0filter_metadata\0plans\0tokens_per_minute";
const USAGE: &str = "metadata\0typed_filter_metadata\0envoy.ai.token_usage\0total_tokens";

impl Vm {
    /// A request with these headers and properties that an upstream answers with this status. Whether it passed.
    fn sends(&self, headers: &[(&str, &str)], properties: &[(&str, &[u8])], status: u64) -> bool {
        let process = &self.host.0;
        let headers = headers.iter();
        let headers = headers.map(|(name, value)| (name.to_string(), value.to_string()));
        process.request_headers.replace(headers.collect());
        let reached = ("upstream\0local_address", b"127.0.0.1:40000".as_slice());
        let properties = properties.iter().copied().chain([reached]);
        let properties = properties.map(|(path, value)| (path.into(), value.to_vec()));
        process.properties.replace(properties.collect());
        let Some(mut passed) = self.request("default") else {
            return false;
        };
        process.response.set(Some((status, 0)));
        self.filter.on_response(&passed, true);
        self.filter.on_end(&mut passed);
        true
    }

    fn logs_in(&self, client: &str, status: u64) -> bool {
        let headers = [
            (":path", "/login"),
            (":method", "POST"),
            ("source.address", client),
        ];
        self.sends(&headers, &[], status)
    }

    /// A chat of that user, whose plan has so many tokens; it costs so many.
    fn chats(&self, user: &str, plan: f64, tokens: u64) -> bool {
        let (plan, tokens) = (plan.to_le_bytes(), tokens.to_le_bytes());
        let headers = [
            (":path", "/v1/chat/completions"),
            (":method", "POST"),
            (":authority", "llm.example.com"),
        ];
        self.sends(
            &headers,
            &[(SUB, user.as_bytes()), (PLAN, &plan), (USAGE, &tokens)],
            200,
        )
    }
}

#[test]
fn wrong_passwords_count_and_right_ones_are_free() {
    let vm = Vm::born(&process(), DOCUMENT);
    for status in [200, 401, 200, 401, 403, 401, 302, 401] {
        assert!(vm.logs_in("192.0.2.1:1234", status), "{status}");
    }
    assert!(!vm.logs_in("192.0.2.1:1234", 200), "five were wrong");
    assert!(vm.logs_in("192.0.2.2:1234", 401), "another client");
    assert!(
        (0..20).all(|_| vm.logs_in("10.1.2.3:1234", 401)),
        "an exempt network"
    );
    let client = ("source.address", "192.0.2.1:1234");
    let headers = |method| [(":path", "/login"), (":method", method), client];
    assert!(vm.sends(&headers("GET"), &[], 200), "no API");
    let probe = [
        (":path", "/login"),
        (":method", "POST"),
        client,
        ("x-probe", "1"),
    ];
    assert!(vm.sends(&probe, &[], 200), "exempt from all rules");
    assert!(!vm.sends(&headers("POST"), &[], 200));
}

#[test]
fn a_users_tokens_are_those_of_the_plan_and_requests_are_limited_besides() {
    let vm = Vm::born(&process(), DOCUMENT);
    assert!((0..60).all(|_| vm.chats("ada", 50_000.0, 10)));
    assert!(!vm.chats("ada", 50_000.0, 10), "the sixty-first request");
    // 5000 tokens, of which a request may hold half: 2000 are held, and 2500 settled.
    assert!(vm.chats("bob", 5000.0, 2500));
    assert!(vm.chats("bob", 5000.0, 2500));
    assert!(!vm.chats("bob", 5000.0, 1));
    assert!(vm.chats("bob", 50_000.0, 1), "another plan");
    // More than was held is debt, which blocks.
    assert!(vm.chats("eve", 5000.0, 90_000));
    assert!(!vm.chats("eve", 50_000.0, 1));
}
