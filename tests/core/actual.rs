//! The actual cost of a request: what is read at its end, and what that comes to.

use crate::support::at;
use leapgate::config::{Value, read};
use leapgate::rule::{
    Actual, Attribute, AttributeSource, Cost, CostSource, MAX_WEIGHT, Missing, KeyPart, KeyValue, RuleError, Statuses,
    Weights,
};
use leapgate::{Decision, Engine, Request};
use std::cell::RefCell;

const USAGE: [&str; 2] = ["envoy.ai.token_usage", "total_tokens"];

fn metadata(source: AttributeSource) -> CostSource {
    CostSource::Attribute(Attribute::new(source, &USAGE).unwrap().as_number())
}

fn header() -> CostSource {
    CostSource::Header("x-cost".into())
}

/// What a rule is settled at if its one source has `value`, as shells hand it in.
fn amount(source: &CostSource, value: Option<&str>) -> Option<u64> {
    let actual = Actual::of(vec![source.clone()]);
    actual.amount(&mut |asked| {
        assert_eq!(asked, source);
        asked.number(value?.as_bytes())
    })
}

#[test]
fn a_cost_is_a_number_rounded_up() {
    let rows = [
        ("412", Some(412)),
        ("0.1", Some(1)),
        ("9007199254740992", Some(1 << 53)),
        ("9007199254740994", None),
        ("1e400", None),
        ("-1", None),
        ("NaN", None),
        ("Infinity", None),
        ("4.7e-38", None), // digits in eight bytes, read as a number
        ("", None),
        ("many", None),
        ("1,000", None),
    ];
    let sources = [
        metadata(AttributeSource::Metadata),
        metadata(AttributeSource::TypedMetadata),
        header(),
        CostSource::Trailer("x-cost".into()),
    ];
    for source in sources {
        for (value, expected) in rows {
            assert_eq!(amount(&source, Some(value)), expected, "{source:?} {value}");
        }
        assert_eq!(amount(&source, None), None, "{source:?}");
    }
}

#[test]
fn a_cost_of_0_is_unset_in_typed_metadata_alone() {
    assert_eq!(amount(&metadata(AttributeSource::TypedMetadata), Some("0")), None);
    assert_eq!(amount(&metadata(AttributeSource::Metadata), Some("0")), Some(0));
    assert_eq!(amount(&header(), Some("0")), Some(0));
}

#[test]
fn bytes_are_those_of_the_bodies() {
    let (received, sent) = (CostSource::BytesReceived, CostSource::BytesSent);
    let read = |source: &CostSource| {
        Some(match *source == CostSource::BytesReceived {
            true => 1000.0,
            false => 69.0,
        })
    };
    let rows = [
        (vec![received.clone()], 1000),
        (vec![sent.clone()], 69),
        (vec![received, sent], 1069),
    ];
    for (sources, bytes) in rows {
        assert_eq!(Actual::of(sources).amount(&mut { read }), Some(bytes));
    }
}

#[test]
fn a_listed_status_counts_1_and_others_0() {
    let failed = Statuses::new(vec![[401, 401], [403, 403], [500, 599]]).unwrap();
    let rows = [
        (Some(401.0), Some(1)),
        (Some(402.0), Some(0)),
        (Some(403.0), Some(1)),
        (Some(599.0), Some(1)),
        (Some(200.0), Some(0)),
        (Some(f64::NAN), None),
        (None, None), // the client left before any answer
    ];
    for (status, expected) in rows {
        let actual = Actual::listed(failed.clone());
        let found = actual.amount(&mut |source| {
            assert_eq!(*source, CostSource::Status);
            status
        });
        assert_eq!(found, expected, "{status:?}");
    }
}

#[test]
fn a_list_of_statuses_has_a_bound() {
    assert!(Statuses::new(vec![[401, 401]; 32]).is_ok());
    let error = Statuses::new(vec![[401, 401]; 33]).unwrap_err();
    assert_eq!(error.to_string(), "`33` is not possible; use a whole number from 0 to 32");
}

fn weights(input: Option<f64>, cached: Option<f64>, output: Option<f64>) -> Weights {
    Weights {
        input,
        cached,
        output,
    }
}

/// What weighted tokens come to, by the last name of their paths.
fn weighed(weights: Weights, counts: [Option<u64>; 3]) -> Option<u64> {
    let path = &["envoy.ai.token_usage"];
    let actual = Actual::weighted(AttributeSource::TypedMetadata, path, weights).unwrap();
    actual.amount(&mut |source| {
        let CostSource::Attribute(attribute) = source else {
            panic!("{source:?}")
        };
        let names = ["input_tokens", "cached_tokens", "output_tokens"];
        let of = names.iter().position(|name| attribute.path().ends_with(&format!("\0{name}")));
        source.number(counts[of.unwrap()]?.to_string().as_bytes())
    })
}

#[test]
fn cached_tokens_are_a_part_of_the_input_and_cost_their_own_weight_instead() {
    let all = weights(Some(1.0), Some(0.1), Some(4.0));
    let rows = [
        (all, [Some(100), Some(30), Some(50)], Some(273)),
        (all, [Some(100), None, Some(50)], Some(300)),
        (all, [Some(100), Some(0), Some(50)], Some(300)),
        (all, [Some(100), Some(100), Some(0)], Some(10)),
        (all, [Some(1), Some(1), Some(0)], Some(1)), // a tenth, rounded up
        (weights(Some(1.0), None, Some(4.0)), [Some(100), Some(30), Some(50)], Some(300)),
        (weights(None, Some(0.5), None), [Some(100), Some(30), Some(50)], Some(15)),
        (weights(None, None, Some(2.5)), [Some(100), Some(30), Some(51)], Some(128)),
        (weights(Some(0.0), Some(1.0), None), [Some(100), Some(30), None], Some(30)),
        // More is cached than there is: no credit.
        (weights(Some(1.0), Some(0.0), None), [Some(10), Some(30), None], Some(0)),
        // An embedding has no output.
        (all, [Some(100), None, None], Some(100)),
        (all, [None, None, None], None),
        (all, [Some(0), Some(0), Some(0)], None), // an unset record
        (all, [Some(100), None, Some(u64::MAX)], None),
        (weights(Some(MAX_WEIGHT), None, None), [Some(1 << 53), None, None], None),
    ];
    for (weights, counts, expected) in rows {
        assert_eq!(weighed(weights, counts), expected, "{weights:?} {counts:?}");
    }
}

#[test]
fn a_weighted_cost_has_no_error_of_rounding() {
    // Sums of tenths as floating-point numbers are a little above or below: rounded up that would be one more.
    for tokens in 1..2000 {
        let tenths = weights(Some(0.1), None, Some(0.7));
        let expected = (8_u64 * tokens).div_ceil(10);
        assert_eq!(weighed(tenths, [Some(tokens), None, Some(tokens)]), Some(expected), "{tokens}");
    }
}

#[test]
fn weights_are_checked() {
    let bad = [-0.1, f64::NAN, f64::INFINITY, MAX_WEIGHT + 1.0];
    for weight in bad {
        let made = Actual::weighted(
            AttributeSource::Metadata,
            &["io.envoy.ai_gateway"],
            weights(None, Some(weight), None),
        );
        assert!(matches!(made, Err(RuleError::BadCount { .. })), "{weight}");
    }
    let path = ["a"; 8];
    let all = weights(Some(1.0), None, None);
    assert!(Actual::weighted(AttributeSource::Metadata, &path, all).is_err());
    assert!(Actual::weighted(AttributeSource::Metadata, &[], all).is_err());
}

#[test]
fn what_is_missing_costs_what_the_rule_says() {
    let sent = |bytes: Option<f64>| {
        move |source: &CostSource| {
            assert_eq!(*source, CostSource::BytesSent);
            bytes
        }
    };
    let rows = [
        (Missing::Estimate, Some(401.0), None),
        (Missing::Bytes, Some(401.0), Some(101)),
        (Missing::Bytes, Some(0.0), Some(0)),
        (Missing::Bytes, None, None),
        (Missing::Zero, Some(401.0), Some(0)),
    ];
    for (missing, bytes, expected) in rows {
        let actual = Actual::of(vec![header()]).or(missing);
        assert_eq!(actual.substitute(&mut sent(bytes)), expected, "{missing:?} {bytes:?}");
    }
}

#[test]
fn each_source_is_asked_once() {
    let path = &["envoy.ai.token_usage"];
    let all = weights(Some(1.0), Some(0.5), Some(2.0));
    let tokens = Actual::weighted(AttributeSource::TypedMetadata, path, all).unwrap();
    let asked = RefCell::new(Vec::new());
    tokens.amount(&mut |source| {
        asked.borrow_mut().push(source.clone());
        None
    });
    assert_eq!(*asked.borrow(), tokens.sources().cloned().collect::<Vec<_>>());
    let names = |source: &CostSource| match source {
        CostSource::Attribute(attribute) => attribute.path().replace('\0', "/"),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        tokens.sources().map(names).collect::<Vec<_>>(),
        [
            "envoy.ai.token_usage/input_tokens",
            "envoy.ai.token_usage/input_token_details/cached_tokens",
            "envoy.ai.token_usage/output_tokens",
        ]
    );
}

/// A document of one rule with this cost.
fn one_rule(cost: &str) -> String {
    format!(r#"{{"flowRules": [{{"resource": "chat", "count": 100, "cost": {cost}}}]}}"#)
}

#[test]
fn each_source_is_read_from_a_document() {
    let typed = AttributeSource::TypedMetadata;
    let usage = |source| {
        let attribute = Attribute::new(source, &USAGE).unwrap();
        Actual::of(vec![CostSource::Attribute(attribute.as_number())])
    };
    let listed = |statuses| Actual::listed(Statuses::new(statuses).unwrap());
    let tokens = |weights| Actual::weighted(typed, &USAGE[..1], weights).unwrap();
    let path = r#"["envoy.ai.token_usage", "total_tokens"]"#;
    let (received, sent) = (CostSource::BytesReceived, CostSource::BytesSent);
    let cases = [
        (format!(r#"{{"typedMetadata": {path}}}"#), usage(typed)),
        (
            format!(r#"{{"metadata": {path}, "header": null}}"#),
            usage(AttributeSource::Metadata),
        ),
        (r#"{"header": "X-Cost"}"#.into(), Actual::of(vec![header()])),
        (
            r#"{"trailer": "X-Cost"}"#.into(),
            Actual::of(vec![CostSource::Trailer("x-cost".into())]),
        ),
        (r#"{"bytes": "received"}"#.into(), Actual::of(vec![received.clone()])),
        (r#"{"bytes": "sent"}"#.into(), Actual::of(vec![sent.clone()])),
        (r#"{"bytes": "total"}"#.into(), Actual::of(vec![received, sent])),
        (
            r#"{"status": ["401", 403, "4xx", "5xx"]}"#.into(),
            listed(vec![[401, 401], [403, 403], [400, 499], [500, 599]]),
        ),
        (
            r#"{"typedMetadata": ["envoy.ai.token_usage"], "weights": {"input": 1, "cached": 0.1, "output": 4}}"#.into(),
            tokens(weights(Some(1.0), Some(0.1), Some(4.0))),
        ),
        (
            r#"{"typedMetadata": ["envoy.ai.token_usage"], "weights": {"output": 1000000, "input": null}}"#.into(),
            tokens(weights(None, None, Some(1e6))),
        ),
    ];
    let missing = [
        ("", Missing::Estimate),
        (r#", "missing": "estimate""#, Missing::Estimate),
        (r#", "missing": "bytes""#, Missing::Bytes),
        (r#", "missing": 0"#, Missing::Zero),
    ];
    for (actual, expected) in cases {
        for (suffix, missing) in missing {
            let json = one_rule(&format!(r#"{{"actual": {actual}{suffix}}}"#));
            let document = Value::from_json(&json).unwrap();
            let rules = read(&document).unwrap_or_else(|error| panic!("{json}: {error}"));
            let cost = Cost::at_end().settled_at(expected.clone().or(missing));
            assert_eq!(rules.rules.flow[0].cost(), Some(&cost), "{json}");
        }
    }
}

#[test]
fn each_mistake_in_a_source_has_its_sentence() {
    let names = |count: usize| format!("[{}]", vec![r#""a""#; count].join(", "));
    let statuses = format!(r#"{{"actual": {{"status": [{}401]}}}}"#, "401, ".repeat(32));
    let long_path = format!(r#"{{"actual": {{"metadata": {}}}}}"#, names(9));
    let rows = [
        (r#"{"missing": 0}"#, ".missing: `0` means nothing without an `actual`; add one, or leave it out"),
        (r#"{"actual": "header"}"#, ".actual: `header` is a string; use an object"),
        (
            r#"{"actual": {}}"#,
            ".actual: `{…}` does not name one source; use one of `metadata`, `typedMetadata`, `header`, `trailer`, `bytes`, `status`",
        ),
        (
            r#"{"actual": {"header": "x", "trailer": "x"}}"#,
            ".actual: `{…}` does not name one source; use one of `metadata`, `typedMetadata`, `header`, `trailer`, `bytes`, `status`",
        ),
        (r#"{"actual": {"headers": "x"}}"#, ".actual: `headers` is not a known key; use `header`, or one of `metadata`, `typedMetadata`, `trailer`, `bytes`, `status`, `weights`"),
        (r#"{"actual": {"header": ""}}"#, ".actual.header: `` is not a valid name; use 1 to 256 bytes"),
        (r#"{"actual": {"trailer": 7}}"#, ".actual.trailer: `7` is a number; use a string"),
        (r#"{"actual": {"bytes": "both"}}"#, ".actual.bytes: `both` is not a valid value; use one of `received`, `sent`, `total`"),
        (r#"{"actual": {"status": 401}}"#, ".actual.status: `401` is a number; use an array"),
        (r#"{"actual": {"status": ["1xx"]}}"#, ".actual.status[0]: `1xx` is not a valid status; use `5xx`, `4xx` or a number"),
        (r#"{"actual": {"status": ["600"]}}"#, ".actual.status[0]: `600` is not a valid status; use `5xx`, `4xx` or a number"),
        (r#"{"actual": {"status": [600]}}"#, ".actual.status[0]: `600` is not possible; use a whole number from 200 to 599"),
        (&statuses, ".actual.status: `[…]` has too many statuses; use at most 32"),
        (r#"{"actual": {"metadata": "tokens"}}"#, ".actual.metadata: `tokens` is a string; use an array"),
        (r#"{"actual": {"metadata": ["tokens"]}}"#, ".actual.metadata: `[…]` is not a valid path; use a namespace and 1 to 7 keys, for a claim 1 to 6 names, for the filter state one, each of 1 to 256 bytes without a zero byte"),
        (&long_path, ".actual.metadata: `[…]` is not a valid path; use a namespace and 1 to 7 keys, for a claim 1 to 6 names, for the filter state one, each of 1 to 256 bytes without a zero byte"),
        (r#"{"actual": {"typedMetadata": ["a", 7]}}"#, ".actual.typedMetadata[1]: `7` is a number; use a string"),
        (r#"{"actual": {"typedMetadata": [], "weights": {"input": 1}}}"#, ".actual.typedMetadata: `[…]` is not a valid path; use 1 to 6 names of 1 to 256 bytes without a zero byte"),
        (r#"{"actual": {"header": "x", "weights": {"input": 1}}}"#, ".actual.weights: `{…}` goes with metadata alone; leave it out"),
        (r#"{"actual": {"metadata": ["a"], "weights": {}}}"#, ".actual.weights: `{…}` weighs nothing; use `input`, `cached` or `output`"),
        (r#"{"actual": {"metadata": ["a"], "weights": {"input": -1}}}"#, ".actual.weights.input: `-1` is not a valid weight; use a number from 0 to 1000000"),
        (r#"{"actual": {"metadata": ["a"], "weights": {"output": 1000001}}}"#, ".actual.weights.output: `1000001` is not a valid weight; use a number from 0 to 1000000"),
        (r#"{"actual": {"metadata": ["a"], "weights": {"cached": "all"}}}"#, ".actual.weights.cached: `all` is a string; use a number"),
        (r#"{"actual": {"header": "x"}, "missing": "none"}"#, ".missing: `none` is not a valid value; use `estimate`, `bytes` or 0"),
        (r#"{"actual": {"header": "x"}, "missing": 1}"#, ".missing: `1` is not a valid value; use `estimate`, `bytes` or 0"),
    ];
    for (cost, sentence) in rows {
        let document = Value::from_json(one_rule(cost)).unwrap();
        let error = read(&document).expect_err(cost);
        assert_eq!(error.to_string(), format!("flowRules[0].cost{sentence}"));
    }
}

#[test]
fn a_refusal_tells_what_the_request_would_have_held() {
    for key in ["", r#", "key": [{"header": "x-client"}]"#] {
        let json = format!(
            r#"{{"flowRules": [{{"resource": "chat", "unit": "tokens", "count": 1000{key},
                "cost": {{"estimate": {{"header": "x-max-tokens", "default": 300}}}}}}]}}"#
        );
        let document = Value::from_json(&json).unwrap();
        let engine = Engine::new(read(&document).unwrap().rules).unwrap();
        let parts = engine.resource("chat").key_parts().to_vec();
        let enter = |max_tokens: &[u8]| {
            let of_max = KeyPart::Header("x-max-tokens".into());
            let value = |part: &KeyPart| if *part == of_max { max_tokens } else { b"alice" };
            let values: Vec<_> = parts.iter().map(|part| KeyValue::One(value(part))).collect();
            engine.enter(&Request::new("chat").keys(&values), at(5))
        };
        let held = [enter(b"500"), enter(b"500")];
        assert!(held.iter().all(|decision| matches!(decision, Decision::Pass(_))));
        for (max_tokens, cost) in [("42", 42), ("many", 300), ("9000", 500)] {
            let Decision::Block(blocked) = enter(max_tokens.as_bytes()) else {
                panic!("{max_tokens} passes")
            };
            assert_eq!(blocked.cost(), Some(cost), "{max_tokens}{key}");
        }
    }
}
