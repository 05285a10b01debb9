//! What refused requests, and those that pass, are told of the limits.

use super::*;

/// The value of a header.
fn of<'h>(headers: &'h [(String, String)], name: &str) -> Option<&'h str> {
    let mut headers = headers.iter();
    let found = headers.find(|(known, _)| known == name)?;
    Some(found.1.as_str())
}

#[test]
fn a_policy_tells_the_count_of_the_key_with_its_items_and_its_burst() {
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
