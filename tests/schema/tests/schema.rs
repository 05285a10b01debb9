//! The schema by itself, beside the readers: documents of this repository, and documents made from a few by changing them.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

use leapgate_schema::config::{KEYS, Value};
use leapgate_schema::{REASONS, SCHEMA, agrees, by_readers, by_schema};
use serde_json::{Map, Value as Json, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// What the readers make of a document, which the schema must agree with.
#[track_caller]
fn ask(document: &Json) -> bool {
    let tree = Value::from_json(document.to_string()).unwrap();
    let read = by_readers(&tree);
    agrees(document, read.as_ref().err());
    read.is_ok()
}

#[test]
fn it_is_a_schema() {
    jsonschema::meta::validate(&SCHEMA).unwrap();
}

// ---- documents of this repository ----

#[track_caller]
fn text(path: &str) -> String {
    let path = format!("{ROOT}/{path}");
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The files with such names below a folder, but for what is installed, built or recorded.
fn files(folder: &Path, endings: &[&str], found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let is_other = name.starts_with('.')
            || name.starts_with("target")
            || ["dist", "vectors", "node_modules"].contains(&name);
        if path.is_dir() && !is_other {
            files(&path, endings, found);
        } else if endings.iter().any(|ending| name.ends_with(ending)) {
            found.push(path);
        }
    }
}

/// The JSON objects in a text, outermost first.
fn objects(text: &str) -> Vec<Map<String, Json>> {
    let (mut found, mut from) = (Vec::new(), 0);
    while let Some(start) = text[from..].find('{').map(|start| from + start) {
        let mut json = serde_json::Deserializer::from_str(&text[start..]).into_iter();
        from = match json.next() {
            Some(Ok(Json::Object(object))) => {
                found.push(object);
                start + json.byte_offset()
            }
            _ => start + 1,
        };
    }
    found
}

#[test]
fn documents_in_the_documentation_and_in_configurations_are_accepted() {
    let mut paths = Vec::new();
    files(Path::new(ROOT), &[".md", ".yaml", ".rs"], &mut paths);
    let (mut documents, mut rules) = (0, 0);
    for path in paths {
        let is_code = path.extension().is_some_and(|extension| extension == "rs");
        for object in objects(&std::fs::read_to_string(&path).unwrap()) {
            let is_document = !object.is_empty() && object.keys().all(|key| KEYS.contains(&&**key));
            let is_rule = object.contains_key("resource") && object.contains_key("count");
            let document = match is_document {
                true => Json::Object(object),
                false if is_rule => json!({ "flowRules": [object] }),
                false => continue,
            };
            // Tests have wrong documents, too.
            assert!(
                ask(&document) || is_code || is_rule,
                "{}: {document}",
                path.display()
            );
            documents += usize::from(is_document);
            rules += usize::from(is_rule);
        }
    }
    assert!(
        documents > 100 && rules > 10,
        "only {documents} and {rules}"
    );
}

#[test]
fn rules_that_sentinel_its_dashboard_and_its_users_have_written_are_accepted() {
    let mut paths = Vec::new();
    files(&Path::new(ROOT).join("tests/rules"), &[".json"], &mut paths);
    for path in &paths {
        let name = path.file_stem().unwrap().to_str().unwrap();
        let lists = [
            ("api_definitions", "apiDefinitions"),
            ("authority", "authorityRules"),
            ("degrade", "degradeRules"),
            ("gateway", "gatewayFlowRules"),
            ("param_flow", "paramFlowRules"),
            ("system", "systemRules"),
            ("flow", "flowRules"),
        ];
        let (_, list) = lists.iter().find(|(part, _)| name.contains(part)).unwrap();
        let rules: Json = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        assert!(ask(&json!({ *list: rules })), "{name}");
    }
    assert!(paths.len() >= 20);
}

#[test]
fn scenarios_are_accepted() {
    let mut paths = Vec::new();
    files(
        &Path::new(ROOT).join("tests/scenarios"),
        &[".json"],
        &mut paths,
    );
    for path in &paths {
        let scenario: Json = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let later = scenario["steps"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|step| step.get("rules"));
        for rules in later.chain([&scenario["rules"]]) {
            assert!(ask(rules), "{}", path.display());
        }
    }
    assert!(paths.len() >= 20);
}

#[test]
fn each_field_is_in_the_documents() {
    let documents = text("docs/configuration.md");
    let mut names = BTreeSet::new();
    names_of(&SCHEMA, &mut names);
    let missing: Vec<_> = names
        .iter()
        .filter(|name| {
            let named =
                ["`{}`", ".{}`", "`{}.", ".{}.", "\"{}\""].map(|form| form.replace("{}", name));
            !named.iter().any(|named| documents.contains(named))
        })
        .collect();
    assert!(
        missing.is_empty(),
        "docs/configuration.md does not name {missing:?}"
    );
}

/// The names of all properties in a schema.
fn names_of(schema: &Json, names: &mut BTreeSet<String>) {
    if let Some(properties) = schema.get("properties").and_then(Json::as_object) {
        names.extend(properties.keys().cloned());
    }
    for part in schema
        .as_object()
        .into_iter()
        .flat_map(Map::values)
        .chain(schema.as_array().into_iter().flatten())
    {
        names_of(part, names);
    }
}

// ---- reasons ----

#[test]
fn each_reason_to_refuse_more_than_the_schema_is_needed() {
    for (reason, document) in REASONS.iter() {
        let tree = Value::from_json(document).unwrap();
        let refused = leapgate_filter_says(&tree, document);
        assert!(refused.contains(reason), "{reason}: {refused}");
        let json = serde_json::from_str(document).unwrap();
        assert_eq!(by_schema(&json), Ok(()), "{reason}");
    }
}

/// What the filter says, and else the readers of the core.
fn leapgate_filter_says(tree: &Value, text: &str) -> String {
    match by_readers(tree) {
        Err(error) => error.to_string(),
        Ok(_) => leapgate_schema::config::parse(text.as_bytes())
            .unwrap_err()
            .to_string(),
    }
}

// ---- documents made from a few ----

/// Documents in which each field of the schema stands.
fn samples() -> Vec<Json> {
    let text = include_str!("samples.json");
    serde_json::from_str(text).unwrap()
}

/// The fields of a document: the place of each in the schema, its place in the document, and its schema.
fn fields_of(document: &Json) -> Vec<(String, String, &'static Json)> {
    let mut found = Vec::new();
    walk(&SCHEMA, "#", document, "", &mut found);
    found
}

#[test]
fn each_field_stands_in_a_sample() {
    let mut seen = BTreeSet::new();
    for sample in samples() {
        assert!(ask(&sample), "{sample}");
        seen.extend(fields_of(&sample).into_iter().map(|(field, ..)| field));
    }
    let mut all = BTreeSet::new();
    fields(&SCHEMA, "#", &mut all);
    let unseen: Vec<_> = all.difference(&seen).collect();
    assert!(unseen.is_empty(), "stand in no sample: {unseen:#?}");
}

#[test]
fn a_default_that_is_written_down_changes_nothing() {
    let (mut written, mut all) = (BTreeSet::new(), BTreeSet::new());
    let read = |document: &Json| by_readers(&Value::from_json(document.to_string()).unwrap());
    for sample in samples() {
        for (object, fields) in objects_of(&sample) {
            for (at, field) in fields {
                let (_, name) = at.rsplit_once('/').unwrap();
                let (field, at) = resolved(field, &at);
                let Some(default) = field.get("default") else {
                    continue;
                };
                all.insert(at.clone());
                let with = |value: Option<&Json>| {
                    let mut changed = sample.clone();
                    let to = changed.pointer_mut(&object).and_then(Json::as_object_mut);
                    match (to.unwrap(), value) {
                        (to, Some(value)) => drop(to.insert(name.into(), value.clone())),
                        (to, None) => drop(to.remove(name)),
                    }
                    changed
                };
                let (without, changed) = (with(None), with(Some(default)));
                if ask(&without) && ask(&changed) {
                    // A rule remembers whether this share was written down.
                    let is_equal = read(&changed) == read(&without)
                        || at.ends_with("/estimate/properties/atMost");
                    assert!(is_equal, "{at}: {changed}");
                    written.insert(at);
                }
            }
        }
    }
    let unwritten: Vec<_> = all.difference(&written).collect();
    assert!(unwritten.is_empty() && written.len() > 30, "{unwritten:#?}");
}

#[test]
fn a_value_of_another_type_or_out_of_range_is_refused_by_the_readers_too() {
    let (mut claims, mut refused) = (BTreeSet::new(), BTreeSet::new());
    let long = "x".repeat(257);
    let others = [
        json!(null),
        json!(true),
        json!(false),
        json!(0),
        json!(1),
        json!(2),
        json!(-1),
        json!(0.5),
        json!(101),
        json!(1e300),
        json!(""),
        json!("x"),
        json!("*"),
        json!("a b"),
        json!("10.0.0.1"),
        json!("0%"),
        json!("100.5%"),
        json!("/a/**"),
        json!("é\n"),
        json!("\u{0}"),
        json!(long),
        json!([]),
        json!([null]),
        json!([5]),
        json!(["x"]),
        json!(["x", "x"]),
        json!(["x", "y", "z", "x", "y", "z", "x", "y", "z"]),
        json!([[]]),
        json!([{}]),
        json!({}),
        json!({"x": "y"}),
    ];
    for sample in samples() {
        for (field, place, schema) in fields_of(&sample) {
            let schema = resolved(schema, "").0;
            if schema
                .as_object()
                .unwrap()
                .keys()
                .any(|key| !["description", "default"].contains(&&**key))
            {
                claims.insert(field.clone());
            }
            let bounds = ["minimum", "maximum", "exclusiveMaximum"]
                .iter()
                .filter_map(|bound| schema.get(bound)?.as_f64());
            let bounds = bounds
                .flat_map(|bound| {
                    [
                        bound - 1.0,
                        bound - 0.0001,
                        bound,
                        bound + 0.0001,
                        bound + 1.0,
                    ]
                })
                .map(Json::from);
            for other in others.iter().cloned().chain(bounds) {
                let mut changed = sample.clone();
                *changed.pointer_mut(&place).unwrap() = other;
                if !ask(&changed) {
                    refused.insert(field.clone());
                }
            }
            let (object, name) = place.rsplit_once('/').unwrap();
            let mut changed = sample.clone();
            changed
                .pointer_mut(object)
                .unwrap()
                .as_object_mut()
                .unwrap()
                .remove(name);
            ask(&changed);
            if let Some(object) = sample.pointer(&place).and_then(Json::as_object) {
                let mut object = object.clone();
                object.insert("unknown".into(), json!(1));
                let mut changed = sample.clone();
                *changed.pointer_mut(&place).unwrap() = Json::Object(object);
                ask(&changed);
            }
        }
    }
    let unheld: Vec<_> = claims.difference(&refused).collect();
    assert!(
        unheld.is_empty() && claims.len() > 150,
        "the schema has bounds where the readers have none: {unheld:#?}"
    );
}

/// Fields that go together, and those that do not.
#[test]
fn fields_of_several_rules_in_one_are_accepted_or_refused_by_both() {
    let mut rng = fastrand::Rng::with_seed(15);
    let mut pools: BTreeMap<String, Vec<(String, Json)>> = BTreeMap::new();
    for (list, rules) in samples()
        .iter()
        .flat_map(|sample| sample.as_object().unwrap())
    {
        let rules = rules
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Json::as_object);
        let pool = pools.entry(list.clone()).or_default();
        pool.extend(
            rules
                .flatten()
                .map(|(name, value)| (name.clone(), value.clone())),
        );
    }
    let more = [
        ("controlBehavior", json!("warmUp")),
        ("controlBehavior", json!("warmUpThrottle")),
        ("controlBehavior", json!(2)),
        ("controlBehavior", json!(1)),
        ("grade", json!(0)),
        ("strategy", json!("chain")),
        ("strategy", json!(1)),
        ("compat", json!("sentinel")),
        ("burst", json!(0)),
        ("window", json!("sentinel")),
        ("intervalMs", json!(1000)),
        ("sampleCount", json!(2)),
        ("key", json!(null)),
        ("cost", json!({})),
        ("cost", json!(null)),
        ("warmUpPeriodSec", json!(10)),
        ("warmUpPeriodSec", json!(0)),
        ("coldFactor", json!(3)),
        ("coldFactor", json!(1)),
        ("maxQueueingTimeMs", json!(500)),
        ("refResource", json!(null)),
        ("clusterMode", json!(false)),
        ("clusterConfig", json!({"thresholdType": 1, "flowId": 0})),
    ];
    pools
        .get_mut("flowRules")
        .unwrap()
        .extend(more.map(|(name, value)| (name.into(), value)));
    for list in [
        "flowRules",
        "degradeRules",
        "paramFlowRules",
        "gatewayFlowRules",
        "banRules",
        "systemRules",
        "authorityRules",
        "apiDefinitions",
    ] {
        let (pool, mut accepted) = (&pools[list], 0);
        let trials = if list == "flowRules" { 6000 } else { 500 };
        for _ in 0..trials {
            let mut rule = Map::new();
            for name in [
                "resource",
                "count",
                "timeWindow",
                "paramIdx",
                "limitApp",
                "banSec",
                "key",
                "apiName",
            ] {
                let needed = pool
                    .iter()
                    .filter(|(known, _)| known == name)
                    .collect::<Vec<_>>();
                if list != "flowRules" && !needed.is_empty()
                    || ["resource", "count"].contains(&name) && !needed.is_empty()
                {
                    rule.insert(name.into(), rng.choice(needed).unwrap().1.clone());
                }
            }
            for _ in 0..rng.usize(0..6) {
                let (name, value) = rng.choice(pool).unwrap();
                rule.insert(name.clone(), value.clone());
            }
            accepted += usize::from(ask(&json!({ list: [rule] })));
        }
        assert!(accepted > trials / 20, "{list}: {accepted} of {trials}");
    }
}

/// The schema that a `$ref` leads to, and its place.
fn resolved(schema: &'static Json, at: &str) -> (&'static Json, String) {
    match schema.get("$ref").and_then(Json::as_str) {
        Some(to) => (SCHEMA.pointer(&to[1..]).unwrap(), to.into()),
        None => (schema, at.into()),
    }
}

/// The places in the schema of all fields, except those that may only be `null`.
fn fields(schema: &Json, at: &str, all: &mut BTreeSet<String>) {
    for (key, part) in schema.as_object().into_iter().flatten() {
        match (key.as_str(), part) {
            ("properties" | "definitions", Json::Object(parts)) => {
                for (name, part) in parts {
                    let at = format!("{at}/{key}/{name}");
                    fields(part, &at, all);
                    if key == "properties" && part.get("doNotSuggest").is_none() {
                        all.insert(at);
                    }
                }
            }
            ("anyOf", Json::Array(parts)) => {
                for (i, part) in parts
                    .iter()
                    .enumerate()
                    .filter(|(_, part)| part.get("type").is_some())
                {
                    fields(part, &format!("{at}/{key}/{i}"), all);
                }
            }
            _ => {}
        }
    }
}

/// The objects of a document: the place of each, and the places and schemas of the fields that it may have.
fn objects_of(document: &Json) -> BTreeMap<String, BTreeMap<String, &'static Json>> {
    let mut objects: BTreeMap<String, BTreeMap<String, &'static Json>> = BTreeMap::new();
    for (field, place, _) in fields_of(document) {
        let (object, _) = place.rsplit_once('/').unwrap();
        let (known, _) = field.rsplit_once('/').unwrap();
        for (name, schema) in SCHEMA.pointer(&known[1..]).unwrap().as_object().unwrap() {
            let fields = objects.entry(object.into()).or_default();
            fields.insert(format!("{known}/{name}"), schema);
        }
    }
    objects
}

/// Finds the fields of a value of this schema, which has that place in it.
fn walk(
    schema: &'static Json,
    at: &str,
    value: &Json,
    place: &str,
    found: &mut Vec<(String, String, &'static Json)>,
) {
    let (schema, at) = resolved(schema, at);
    for (name, value) in value.as_object().into_iter().flatten() {
        if let Some(field) = schema.get("properties").and_then(|fields| fields.get(name)) {
            let (at, place) = (format!("{at}/properties/{name}"), format!("{place}/{name}"));
            walk(field, &at, value, &place, found);
            found.push((at, place, field));
        }
    }
    for (i, item) in value.as_array().into_iter().flatten().enumerate() {
        if let Some(items) = schema.get("items") {
            walk(
                items,
                &format!("{at}/items"),
                item,
                &format!("{place}/{i}"),
                found,
            );
        }
    }
    for kind in ["anyOf", "allOf"] {
        for (i, part) in schema
            .get(kind)
            .and_then(Json::as_array)
            .into_iter()
            .flatten()
            .enumerate()
        {
            walk(part, &format!("{at}/{kind}/{i}"), value, place, found);
        }
    }
    if let Some(then) = schema.get("then") {
        walk(then, &format!("{at}/then"), value, place, found);
    }
}
