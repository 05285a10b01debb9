//! `leapgate check` says what the filter says: the same documents go through the module that ships and through the command line.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use leapgate_cli::check::{Target, check, summary};
use leapgate_host::{Host, Module, Plugin, Vm};
use std::path::Path;

fn root(path: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// What the module logs about a document, and whether it accepts it.
fn filter_says(module: &Module, document: &[u8]) -> (bool, Vec<String>) {
    let host = Host::new();
    let mut vm = Vm::start(&host, module, Plugin::default()).unwrap();
    host.take_log();
    let accepted = vm.configure(document).unwrap();
    (
        accepted,
        host.take_log().into_iter().map(|line| line.text).collect(),
    )
}

/// What the command line says.
fn cli_says(document: &[u8]) -> (bool, Vec<String>) {
    match check(document, Target::Envoy) {
        Ok(checked) => {
            let lines = checked.warnings.iter();
            (
                true,
                lines.map(|line| format!("leapgate: {line}")).collect(),
            )
        }
        Err(error) => (false, vec![format!("leapgate: {error}")]),
    }
}

#[test]
fn the_sentence_is_the_one_that_the_filter_logs() {
    let module = Module::built().unwrap();
    let documents = [
        "",
        "{}",
        "[]",
        "{",
        "{\"flowRules\": 5}",
        r#"{"flowRule": []}"#,
        r#"{"flowRules": [{"resource": "login"}]}"#,
        r#"{"flowRules": [{"resource": "login", "count": 5}]}"#,
        r#"{"flowRules": [{"resource": "login", "count": -5}]}"#,
        r#"{"flowRules": [{"resource": "a", "count": 5}, {"resource": "a", "count": 6}]}"#,
        r#"{"flowRules": [{"resource": "a", "count": 5, "sampleCount": 7}]}"#,
        // Warnings: a coarse window, and a limit for all machines without a store.
        r#"{"flowRules": [{"resource": "a", "count": 5, "intervalMs": 997}]}"#,
        r#"{"flowRules": [{"resource": "a", "count": 5, "clusterMode": true, "clusterConfig": {"thresholdType": 1}}]}"#,
        // What no request in Envoy has.
        r#"{"paramFlowRules": [{"resource": "a", "count": 5, "paramIdx": 0}]}"#,
        r#"{"flowRules": [{"resource": "a", "count": 5, "key": [{"arg": 0}]}]}"#,
        r#"{"flowRules": [{"resource": "a", "count": 5, "strategy": "chain", "refResource": "b"}]}"#,
        r#"{"flowRules": [{"resource": "a", "count": 5, "limitApp": "app"}]}"#,
        r#"{"flowRules": [{"resource": "a", "count": 5, "limitApp": "app"}], "envoy": {"origin": {"header": "x-app"}}}"#,
        r#"{"systemRules": [{"highestCpuUsage": 0.5}]}"#,
        r#"{"systemRules": [{"qps": 5}]}"#,
        // The filter's own settings.
        r#"{"envoy": {"scope": "thread"}}"#,
        r#"{"envoy": {"reply": {"status": 200}}}"#,
        r#"{"envoy": {"store": {"cluster": "a"}}}"#,
        r#"{"envoy": {"resource": {"from": {"header": "x"}}}}"#,
        // Regular expressions, which the filter is built without: first by themselves, then behind and before another fault.
        r#"{"gatewayFlowRules": [{"resource": "a", "count": 5, "paramItem": {"parseStrategy": 0, "pattern": "1.*", "matchStrategy": 2}}]}"#,
        r#"{"gatewayFlowRules": [{"resource": "a", "count": 5, "paramItem": {"parseStrategy": 0, "pattern": "", "matchStrategy": 2}}]}"#,
        r#"{"apiDefinitions": [{"apiName": "a", "predicateItems": [{"pattern": "/a"}, {"pattern": "/[", "matchStrategy": "regex"}]}]}"#,
        r#"{"apiDefinitions": [{"apiName": "a", "predicateItems": [{"pattern": "/x+", "matchStrategy": 2}]}], "flowRules": [{}]}"#,
        r#"{"apiDefinitions": [{"apiName": ""}, {"apiName": "a", "predicateItems": [{"pattern": "/x+", "matchStrategy": 2}]}]}"#,
        r#"{"gatewayFlowRules": [{"resource": "a", "count": 5, "paramItem": {"parseStrategy": 0, "pattern": "1.*", "matchStrategy": 2}}], "apiDefinitions": [{}]}"#,
        r#"{"gatewayFlowRules": [{"resource": "a", "count": 5, "paramItem": {"parseStrategy": 0, "pattern": "1.*", "matchStrategy": 2}}], "unknown": 1}"#,
        &format!(
            r#"{{"apiDefinitions": [{{"apiName": "a", "predicateItems": [{{"pattern": "/\\d\u00e9{}", "matchStrategy": 2}}]}}]}}"#,
            "x".repeat(100)
        ),
    ];
    for document in documents {
        let (cli, filter) = (
            cli_says(document.as_bytes()),
            filter_says(&module, document.as_bytes()),
        );
        assert_eq!(cli, filter, "{document}");
    }
}

#[test]
fn the_rule_files_of_users_are_read_as_the_filter_reads_them() {
    let module = Module::built().unwrap();
    let mut files = 0;
    for entry in std::fs::read_dir(root("tests/rules")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "json") {
            let document = std::fs::read(&path).unwrap();
            assert_eq!(
                cli_says(&document),
                filter_says(&module, &document),
                "{}",
                path.display()
            );
            files += 1;
        }
    }
    assert!(files > 3, "only {files} files");
}

#[test]
fn a_target_without_envoy_takes_what_only_envoy_refuses() {
    let document = br#"{"paramFlowRules": [{"resource": "a", "count": 5, "paramIdx": 0}], "systemRules": [{"highestCpuUsage": 0.5}]}"#;
    for target in [Target::Js, Target::Rust] {
        let checked = check(document, target).unwrap();
        assert_eq!(
            summary(&checked.rules),
            "1 hot-parameter rule, 1 system rule"
        );
    }
    assert_eq!(
        check(document, Target::Envoy).unwrap_err().to_string(),
        "systemRules[0]: `highestCpuUsage` is not known in Envoy, where a filter cannot see the machine; use `bbr`, `maxThread` or `avgRt`"
    );
}

#[test]
fn a_configuration_of_envoy_is_not_a_document() {
    let yaml = b"# Envoy\nstatic_resources:\n  listeners:\n";
    assert_eq!(
        check(yaml, Target::Envoy).unwrap_err().to_string(),
        "document: `static_resources:` looks like YAML; give the rules alone, the JSON that Envoy's configuration has under `configuration.value`"
    );
}
#[test]
fn a_schema_of_another_version_is_told() {
    let document = |schema: &str| format!(r#"{{"$schema": "{schema}", "flowRules": []}}"#);
    let schema = |text: &str| {
        check(document(text).as_bytes(), Target::Envoy)
            .unwrap()
            .schema
    };
    let own = env!("CARGO_PKG_VERSION");
    assert_eq!(
        schema("https://leapgate.example/v9.2.1/config.schema.json").unwrap(),
        format!(
            "$schema: `9.2.1` is another version of leapgate than this one, {own}; what the two accept may differ"
        )
    );
    assert_eq!(
        schema(&format!(
            "https://leapgate.example/{own}/config.schema.json"
        )),
        None
    );
    assert_eq!(schema("./config.schema.json"), None);
}
