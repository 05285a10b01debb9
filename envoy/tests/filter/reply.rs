//! Replies to refused requests, and the headers about limits on admitted ones.

use super::*;
use leapgate::RefusalKind;

/// The value of a header.
fn of<'h>(headers: &'h [(String, String)], name: &str) -> Option<&'h str> {
    let mut headers = headers.iter();
    let found = headers.find(|(known, _)| known == name)?;
    Some(found.1.as_str())
}

#[test]
fn a_policy_has_the_count_of_the_key_with_its_items_and_its_burst() {
    let cases = [
        (r#""burst": 2"#, "other", 7),
        (r#""keyItems": [{"value": "gold", "count": 9}]"#, "gold", 9),
        (r#""keyItems": [{"value": "gold", "count": 9}]"#, "other", 5),
        (
            r#""burst": 2, "keyItems": [{"value": "gold", "count": 9}]"#,
            "gold",
            11,
        ),
    ];
    for (fields, tier, count) in cases {
        for form in ["draft", "legacy"] {
            let process = process();
            let document = format!(
                r#"{{"flowRules": [{{"resource": "api", "id": "tier", "count": 5, "key": [{{"header": "x-tier"}}], {fields}}}],
                     "envoy": {{"rateLimitHeadersOn": "all", "rateLimitHeaders": "{form}"}}}}"#
            );
            let vm = Vm::born(&process, &document);
            process
                .request_headers
                .borrow_mut()
                .insert("x-tier".into(), tier.into());
            let passed = vm.request("api").unwrap();
            vm.filter.on_response(&passed, false);
            assert_eq!(vm.passes("api", count + 3), count - 1);
            let (_, _, refused, _) = process.replies.borrow()[0].clone();
            let passed = process.response_headers.take();
            for (headers, left) in [(passed, count - 1), (refused, 0)] {
                let (limit, remaining) = if form == "draft" {
                    let limits = of(&headers, "ratelimit").unwrap();
                    let remaining = limits.split(";t=").next().unwrap();
                    (of(&headers, "ratelimit-policy").unwrap(), remaining)
                } else {
                    let of = |name| of(&headers, name).unwrap();
                    (of("x-ratelimit-limit"), of("x-ratelimit-remaining"))
                };
                let expected = match form {
                    "draft" => (
                        format!(r#""tier";q={count};w=1"#),
                        format!(r#""tier";r={left}"#),
                    ),
                    _ => (count.to_string(), left.to_string()),
                };
                assert_eq!(
                    (limit, remaining),
                    (&*expected.0, &*expected.1),
                    "{fields} {tier} {form}"
                );
            }
        }
    }
}

/// Documents whose rules refuse the second request for `a`, at once or when the first has taken 100 ms, and how.
const REFUSALS: [(&str, RefusalKind); 8] = [
    (
        r#""flowRules": [{"resource": "a", "count": 1}]"#,
        RefusalKind::Limited,
    ),
    (
        r#""flowRules": [{"resource": "a", "count": 1, "grade": "concurrency"}]"#,
        RefusalKind::Limited,
    ),
    (
        r#""flowRules": [{"resource": "a", "count": 1, "key": ["method"]}]"#,
        RefusalKind::Limited,
    ),
    (r#""systemRules": [{"qps": 1}]"#, RefusalKind::Limited),
    (
        r#""systemRules": [{"maxThread": 1}]"#,
        RefusalKind::Unavailable,
    ),
    (
        r#""systemRules": [{"avgRt": 50}]"#,
        RefusalKind::Unavailable,
    ),
    (
        r#""degradeRules": [{"resource": "a", "count": 1, "minRequestAmount": 1, "timeWindow": 1, "slowRatioThreshold": 0}]"#,
        RefusalKind::Unavailable,
    ),
    (
        r#""authorityRules": [{"resource": "a", "limitApp": "eve", "strategy": "black"}]"#,
        RefusalKind::Forbidden,
    ),
];

/// The first refusal of each document, under these settings of the reply.
fn refusals(reply: &str) -> Vec<(RefusalKind, Sent)> {
    let refusal = |(rules, kind): (&str, RefusalKind)| {
        let process = process();
        let envoy = format!(r#""envoy": {{"origin": {{"header": "x-app"}}, "reply": {reply}}}"#);
        let vm = Vm::born(&process, &format!("{{{rules}, {envoy}}}"));
        let mut first = vm.request("a").unwrap();
        if rules.contains("avgRt") || rules.contains("degradeRules") {
            process.millis.set(process.millis.get() + 100);
            process.response.set(Some((200, 0)));
            vm.filter.on_response(&first, true);
            vm.filter.on_end(&mut first);
        }
        let mut headers = process.request_headers.borrow_mut();
        headers.insert("x-app".into(), "eve".into());
        drop(headers);
        assert!(vm.request("a").is_none(), "{rules}");
        let first = process.replies.borrow().first().cloned();
        (kind, first.unwrap())
    };
    REFUSALS.into_iter().map(refusal).collect()
}

#[test]
fn each_kind_of_refusal_is_answered_as_the_table_for_all_shells_says() {
    for (kind, (status, _, headers, body)) in refusals("{}") {
        assert_eq!((status, body.as_str()), (kind.status(), kind.text()));
        assert_eq!(of(&headers, "content-type"), None);
    }
    for (kind, (status, _, headers, body)) in refusals(r#"{"format": "problem"}"#) {
        let problem: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!(
            (problem["status"].as_u64(), status),
            (Some(status.into()), kind.status())
        );
        assert_eq!(problem["type"].as_str(), kind.problem_type());
        assert_eq!(problem["title"].as_str(), Some(kind.title()));
        assert_eq!(problem["detail"].as_str(), Some(kind.text()));
        assert_eq!(
            problem["violated-policies"].is_array(),
            kind == RefusalKind::Limited
        );
        assert_eq!(
            of(&headers, "content-type"),
            Some("application/problem+json")
        );
    }
    for (kind, (status, _, headers, body)) in refusals(r#"{"format": "json"}"#) {
        let problem: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!(problem["status"].as_u64(), Some(status.into()));
        assert_eq!(problem["error"].as_str(), Some(kind.text()));
        assert!(problem["rule"].is_string());
        assert_eq!(of(&headers, "content-type"), Some("application/json"));
    }
}

#[test]
fn what_the_operator_says_of_breakers_stands_for_the_limits_of_the_system_too() {
    let reply = r#"{"status": 420, "body": "slowly", "breaker": {"status": 500, "body": "later"}}"#;
    for (kind, (status, _, _, body)) in refusals(reply) {
        let expected = match kind {
            RefusalKind::Limited => (420, "slowly"),
            RefusalKind::Unavailable => (500, "later"),
            RefusalKind::Forbidden => (403, "forbidden"),
        };
        assert_eq!((status, body.as_str()), expected);
    }
}

#[test]
fn a_grpc_client_gets_the_status_of_its_kind_of_refusal() {
    let (_, settings) = config::parse(br#"{"envoy": {"reply": {"status": 420}}}"#).unwrap();
    let statuses = |kind| leapgate_envoy::reply::statuses(&settings.reply, kind);
    assert_eq!(statuses(RefusalKind::Limited), (420, 8));
    assert_eq!(statuses(RefusalKind::Unavailable), (503, 14));
    assert_eq!(statuses(RefusalKind::Forbidden), (403, 7));
}

#[test]
fn a_policy_tells_its_unit_and_what_is_held() {
    let process = process();
    let document = r#"{"flowRules": [
          {"resource": "chat", "id": "requests", "count": 60, "intervalMs": 60000},
          {"resource": "chat", "id": "tokens", "unit": "tokens", "count": 1000, "intervalMs": 60000, "cost": {"estimate": 300}},
          {"resource": "chat", "id": "bytes", "unit": "bytes", "count": 5000, "cost": {"estimate": 2000}}],
        "envoy": {"rateLimitHeadersOn": "all"}}"#;
    let vm = Vm::born(&process, document);
    let passed = vm.request("chat").unwrap();
    vm.filter.on_response(&passed, false);
    let headers = process.response_headers.take();
    assert_eq!(
        (of(&headers, "ratelimit-policy"), of(&headers, "ratelimit")),
        (
            Some(
                r#""requests";q=60;w=60, "tokens";q=1000;qu="tokens";w=60, "bytes";q=5000;qu="content-bytes";w=1"#
            ),
            Some(r#""requests";r=59;t=61, "tokens";r=700, "bytes";r=3000"#)
        )
    );
}
