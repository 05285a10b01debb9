//! Costs that are known only at the end: read then, and told to the rules that hold an estimate.

use super::*;

const USAGE: &str = "metadata\0typed_filter_metadata\0envoy.ai.token_usage\0total_tokens";

/// 1000 tokens a minute, of which a request holds 100.
fn tokens(cost: &str) -> String {
    format!(
        r#"{{"flowRules": [{{"resource": "chat", "id": "tokens", "unit": "tokens", "count": 1000, "intervalMs": 60000,
            "cost": {{"estimate": 100, {cost}}}}}]}}"#
    )
}

const TYPED: &str = r#""actual": {"typedMetadata": ["envoy.ai.token_usage", "total_tokens"]}"#;

impl Process {
    /// What the host has of the response, by path: numbers are eight bytes, text is text.
    fn has(&self, all: &[(&str, Value<'_>)]) {
        let bytes = |value: &Value<'_>| match value {
            Value::Whole(number) => number.to_le_bytes().to_vec(),
            Value::Float(number) => number.to_le_bytes().to_vec(),
            Value::Text(text) => text.as_bytes().to_vec(),
        };
        let all = all.iter();
        self.properties.replace(
            all.map(|(path, value)| ((*path).into(), bytes(value)))
                .collect(),
        );
    }

    /// What counts of a rule, and what is held beside it.
    #[track_caller]
    fn counted(&self, rule: &str) -> (i64, i64) {
        let count = |what| {
            let name = format!("leapgate.{what};rule={rule};window=60000ms_100");
            self.metric(&name).unwrap_or_else(|| panic!("no {name}"))
        };
        (count("admitted"), count("tickets") - count("admitted"))
    }
}

#[derive(Clone)]
enum Value<'a> {
    Whole(u64),
    Float(f64),
    Text(&'a str),
}

use Value::{Float, Text, Whole};

const UPSTREAM: (&str, Value<'_>) = ("upstream\0local_address", Text("127.0.0.1:40000"));

impl Vm {
    /// A request to the route is answered so, and ends.
    #[track_caller]
    fn ask(&self, route: &str, status: u64, all: &[(&str, Value<'_>)]) {
        let mut passed = self.request(route).expect("it passes");
        self.host.0.has(all);
        self.host.0.response.set(Some((status, 0)));
        self.filter.on_response(&passed, false);
        self.filter.on_trailers(&passed);
        self.host.0.asked.borrow_mut().clear();
        self.host.0.clock_reads.set(0);
        self.filter.on_end(&mut passed);
    }

    /// What the only rule of a document charges a request that is answered so.
    #[track_caller]
    fn charges(document: &str, status: u64, all: &[(&str, Value<'_>)]) -> (i64, Option<i64>) {
        let process = process();
        let vm = Vm::born(&process, document);
        vm.ask("chat", status, all);
        let (settled, held) = process.counted("tokens");
        assert_eq!(held, 0, "{document}");
        (settled, process.metric("leapgate.cost_missing;rule=tokens"))
    }
}

#[test]
fn each_source_is_read_when_the_host_has_it() {
    let metadata = r#""actual": {"metadata": ["io.envoy.ai_gateway", "llm_total_token"]}"#;
    let weighted = r#""actual": {"typedMetadata": ["envoy.ai.token_usage"], "weights": {"input": 1, "cached": 0.1, "output": 4}}"#;
    let read = |name| format!("metadata\0typed_filter_metadata\0envoy.ai.token_usage\0{name}");
    let (input, output) = (read("input_tokens"), read("output_tokens"));
    let cached = read("input_token_details\0cached_tokens");
    let sizes = || [("request\0size", Whole(40)), ("response\0size", Whole(300))];
    let failed = r#""actual": {"status": ["401", "5xx"]}"#;
    let rows = [
        (TYPED, 200, vec![(USAGE, Whole(412))], 412),
        (
            metadata,
            200,
            vec![(
                "metadata\0filter_metadata\0io.envoy.ai_gateway\0llm_total_token",
                Float(41.5),
            )],
            42,
        ),
        (
            weighted,
            200,
            vec![
                (&*input, Whole(100)),
                (&*cached, Whole(30)),
                (&*output, Whole(50)),
            ],
            273,
        ),
        (
            r#""actual": {"header": "X-Cost"}"#,
            200,
            vec![("header x-cost", Text("17"))],
            17,
        ),
        (
            r#""actual": {"trailer": "x-cost"}"#,
            200,
            vec![("trailer x-cost", Text("18.2"))],
            19,
        ),
        (
            r#""actual": {"bytes": "received"}"#,
            200,
            sizes().into(),
            40,
        ),
        (r#""actual": {"bytes": "sent"}"#, 200, sizes().into(), 300),
        (r#""actual": {"bytes": "total"}"#, 200, sizes().into(), 340),
        (failed, 401, vec![], 1),
        (failed, 503, vec![], 1),
        (failed, 200, vec![], 0),
    ];
    for (actual, status, mut all, expected) in rows {
        all.push(UPSTREAM);
        assert_eq!(
            Vm::charges(&tokens(actual), status, &all),
            (expected, None),
            "{actual}"
        );
    }
}

#[test]
fn a_trailer_of_an_answer_without_a_body_stands_among_its_headers() {
    let process = process();
    let vm = Vm::born(&process, &tokens(r#""actual": {"trailer": "x-cost"}"#));
    let mut passed = vm.request("chat").unwrap();
    process.has(&[("header x-cost", Text("18")), UPSTREAM]);
    vm.filter.on_response(&passed, true);
    process.has(&[UPSTREAM]);
    vm.filter.on_end(&mut passed);
    assert_eq!(process.counted("tokens"), (18, 0));
}

#[test]
fn a_missing_or_wrong_cost_is_what_the_rule_says_and_is_counted() {
    let rows: [(&str, &[(&str, Value<'_>)]); 6] = [
        (TYPED, &[]),
        (TYPED, &[(USAGE, Whole(0))]), // an unset count
        (TYPED, &[(USAGE, Whole(u64::MAX))]),
        (TYPED, &[(USAGE, Text("many"))]),
        (
            r#""actual": {"header": "x-cost"}"#,
            &[("header x-cost", Text("1e400"))],
        ),
        (
            r#""actual": {"header": "x-cost"}"#,
            &[("header x-cost", Text("-1"))],
        ),
    ];
    let missing = [
        ("", 100),
        (r#", "missing": "estimate""#, 100),
        (r#", "missing": "bytes""#, 76),
        (r#", "missing": 0"#, 0),
    ];
    for (actual, all) in rows {
        for (suffix, expected) in missing {
            let document = tokens(&[actual, suffix].concat());
            let process = process();
            let vm = Vm::born(&process, &document);
            let all: Vec<_> = all
                .iter()
                .map(|(path, value)| (*path, value.clone()))
                .collect();
            let more = [("response\0size", Whole(301)), UPSTREAM];
            vm.ask(
                "chat",
                200,
                &all.into_iter().chain(more).collect::<Vec<_>>(),
            );
            assert_eq!(process.counted("tokens"), (expected, 0), "{document}");
            let counted = process.metric("leapgate.cost_missing;rule=tokens");
            assert_eq!(counted, Some(1), "{document}");
        }
    }
}

#[test]
fn a_request_that_has_not_reached_an_upstream_costs_nothing() {
    let sources = [
        TYPED,
        r#""actual": {"status": ["503"]}"#,
        r#""actual": {"bytes": "sent"}"#,
        r#""actual": {"header": "x-cost"}"#,
        r#""actual": {"typedMetadata": ["a", "b"]}, "missing": "bytes""#,
    ];
    for actual in sources {
        let all = [
            (USAGE, Whole(412)),
            ("response\0size", Whole(98)),
            ("header x-cost", Text("17")),
        ];
        assert_eq!(
            Vm::charges(&tokens(actual), 503, &all),
            (0, None),
            "{actual}"
        );
    }
}

#[test]
fn a_rule_without_a_source_charges_its_estimate() {
    let document = tokens(r#""actual": null"#);
    assert_eq!(
        Vm::charges(&document, 200, &[(USAGE, Whole(412)), UPSTREAM]),
        (100, None)
    );
    assert_eq!(Vm::charges(&document, 503, &[]), (0, None));
}

#[test]
fn what_a_request_costs_beyond_its_estimate_is_charged_blocks_and_is_counted() {
    let process = process();
    let vm = Vm::born(&process, &tokens(TYPED));
    vm.ask("chat", 200, &[(USAGE, Whole(60)), UPSTREAM]);
    assert_eq!(process.metric("leapgate.debt;rule=tokens"), None);
    vm.ask("chat", 200, &[(USAGE, Whole(1500)), UPSTREAM]);
    assert_eq!(process.counted("tokens"), (1560, 0));
    assert_eq!(process.metric("leapgate.debt;rule=tokens"), Some(1400));
    for (after, passes) in [(0, 0), (60_399, 0), (60_400, 1)] {
        process.millis.set(5000 + after);
        assert_eq!(vm.passes("chat", 1), passes, "after {after} ms");
    }
}

#[test]
fn what_is_held_counts_for_all_workers_until_its_request_ends() {
    let process = process();
    let vms: Vec<Vm> = (0..2).map(|_| Vm::born(&process, &tokens(TYPED))).collect();
    let held: Vec<_> = (0..10)
        .map(|i| vms[i % 2].request("chat").unwrap())
        .collect();
    process.millis.set(5000 + 3_600_000);
    assert_eq!(process.counted("tokens"), (0, 1000));
    assert!(vms.iter().all(|vm| vm.request("chat").is_none()));
    process.has(&[(USAGE, Whole(20)), UPSTREAM]);
    for (i, mut passed) in held.into_iter().enumerate() {
        vms[i % 2].filter.on_end(&mut passed);
    }
    assert_eq!(process.counted("tokens"), (200, 0));
    // Settled late, it counts from then on: 8 more fit in, for both workers.
    let more: Vec<_> = (0..20).filter_map(|i| vms[i % 2].request("chat")).collect();
    assert_eq!(more.len(), 8);
}

#[test]
fn a_worker_that_settles_late_dates_what_others_admitted_before_then() {
    let process = process();
    let vms: Vec<Vm> = (0..2).map(|_| Vm::born(&process, &tokens(TYPED))).collect();
    let mut late = vms[0].request("chat").unwrap();
    vms[1].ask("chat", 200, &[(USAGE, Whole(900)), UPSTREAM]);
    process.millis.set(5000 + 30_000);
    process.has(&[(USAGE, Whole(50)), UPSTREAM]);
    vms[0].filter.on_end(&mut late);
    // It counts the 900 from its settling on at the latest: they leave with the 50, and not after them.
    process.millis.set(5000 + 30_000 + 60_600);
    let passed: Vec<_> = (0..11).filter_map(|_| vms[0].request("chat")).collect();
    assert_eq!(passed.len(), 10);
}

#[test]
fn rules_of_one_unit_may_have_sources_of_their_own_and_each_source_is_read_once() {
    let process = process();
    let vm = Vm::born(
        &process,
        &format!(
            r#"{{"flowRules": [
                {{"resource": "chat", "id": "all", "unit": "tokens", "count": 1000, "intervalMs": 60000, "cost": {{{TYPED}}}}},
                {{"resource": "*", "id": "again", "unit": "tokens", "count": 5000, "intervalMs": 60000, "cost": {{{TYPED}}}}},
                {{"resource": "chat", "id": "header", "unit": "tokens", "count": 1000, "intervalMs": 60000,
                  "cost": {{"actual": {{"header": "x-cost"}}}}}},
                {{"resource": "chat", "id": "failed", "count": 5, "intervalMs": 60000, "cost": {{"actual": {{"status": ["401"]}}}}}},
                {{"resource": "chat", "id": "requests", "count": 60, "intervalMs": 60000}}
            ]}}"#
        ),
    );
    vm.ask(
        "chat",
        401,
        &[(USAGE, Whole(412)), ("header x-cost", Text("17")), UPSTREAM],
    );
    let rules = ["all", "header", "failed", "requests"].map(|rule| process.counted(rule));
    assert_eq!(rules, [(412, 0), (17, 0), (1, 0), (1, 0)]);
    // At the end: one property for each source, one for how the request ended, and the clock once.
    assert_eq!(process.asked.take(), ["upstream\0local_address", USAGE]);
    assert_eq!(process.clock_reads.get(), 1);
}

#[test]
fn a_document_without_costs_reads_nothing_at_the_end() {
    let process = process();
    let vm = Vm::born(
        &process,
        r#"{"flowRules": [{"resource": "chat", "id": "plain", "unit": "tokens", "count": 10, "intervalMs": 60000}],
            "authorityRules": [{"resource": "chat", "strategy": "black", "limitApp": "mallory"}], "envoy": {"origin": {"header": "x-app"}}}"#,
    );
    vm.ask("chat", 200, &[(USAGE, Whole(412)), UPSTREAM]);
    assert_eq!(process.counted("plain"), (1, 0));
    assert_eq!(*process.asked.borrow(), [""; 0]);
    assert_eq!(process.clock_reads.get(), 0);
}

#[test]
fn the_access_log_names_the_rule_and_what_a_refused_request_would_have_held() {
    let process = process();
    let vm = Vm::born(
        &process,
        r#"{"flowRules": [{"resource": "chat", "id": "tokens", "unit": "tokens", "count": 0, "cost": {"estimate": 100}},
            {"resource": "files", "id": "bytes", "unit": "bytes", "count": 0},
            {"resource": "plain", "id": "plain", "count": 0}]}"#,
    );
    for route in ["chat", "files", "plain"] {
        assert!(vm.request(route).is_none());
    }
    let replies = process.replies.borrow();
    let details: Vec<_> = replies
        .iter()
        .map(|(_, details, ..)| details.as_str())
        .collect();
    assert_eq!(
        details,
        [
            "leapgate{rule=tokens,cost=1}",
            "leapgate{rule=bytes,cost=1}",
            "leapgate{rule=plain}"
        ]
    );
}
