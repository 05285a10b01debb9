//! The settings of the store: `envoy.store` of a document.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use leapgate::lease::WhenDown;
use leapgate_envoy::config::parse;
use leapgate_envoy::settings::{Protocol, StoreSettings};

fn read(store: &str) -> Result<StoreSettings, String> {
    let document = format!(r#"{{"envoy": {{"store": {store}}}}}"#);
    let parsed = parse(document.as_bytes()).map_err(|error| error.to_string());
    parsed.map(|(_, settings)| settings.store.unwrap())
}

#[test]
fn only_the_cluster_and_the_protocol_are_needed() {
    let store = read(r#"{"cluster": "webdis", "protocol": "webdis"}"#).unwrap();
    let expected = StoreSettings {
        cluster: "webdis".into(),
        protocol: Protocol::Webdis,
        authority: "webdis".into(),
        token: None,
        key_prefix: "leapgate:".into(),
        timeout_ms: 50,
        max_wait_ms: 20,
        when_down: WhenDown::Refuse,
    };
    assert_eq!(store, expected);
}

#[test]
fn each_setting_does_what_it_says() {
    let document = r#"{"cluster": "up", "protocol": "upstash", "authority": "eu1.upstash.io", "token": "hush", "keyPrefix": "a",
                       "timeoutMs": 60000, "maxWaitMs": 0, "whenDown": "local"}"#;
    let store = read(document).unwrap();
    assert!(store.token.is_some());
    let expected = StoreSettings {
        cluster: "up".into(),
        protocol: Protocol::Upstash,
        authority: "eu1.upstash.io".into(),
        token: store.token.clone(),
        key_prefix: "a".into(),
        timeout_ms: 60_000,
        max_wait_ms: 0,
        when_down: WhenDown::Local,
    };
    assert_eq!(store, expected);
    let pass = r#"{"cluster": "limits", "protocol": "rls", "whenDown": "pass"}"#;
    let store = read(pass).unwrap();
    assert_eq!(
        (store.protocol, store.when_down),
        (Protocol::Rls, WhenDown::Pass)
    );
}

#[test]
fn what_is_wrong_is_said_in_one_sentence() {
    let value = "is not a valid header value; use up to 4096 printable ASCII characters, no space around them";
    let cases = [
        ("5", "envoy.store: `5` is a number; use an object".into()),
        ("{}", "envoy.store: `cluster` is missing; add it".into()),
        (r#"{"cluster": "a"}"#, "envoy.store: `protocol` is missing; add it".into()),
        (
            r#"{"url": "http://redis"}"#,
            "envoy.store: `url` is not a known key; use one of `cluster`, `protocol`, `authority`, `token`, `keyPrefix`, `timeoutMs`, `maxWaitMs`, `whenDown`".into(),
        ),
        (
            r#"{"cluster": null, "protocol": "webdis"}"#,
            "envoy.store.cluster: `null` is not a value; use a string".into(),
        ),
        (
            r#"{"cluster": "", "protocol": "webdis"}"#,
            "envoy.store.cluster: `` is not possible; use 1 to 128 bytes".into(),
        ),
        (
            r#"{"cluster": "a", "protocol": "redis"}"#,
            "envoy.store.protocol: `redis` is not a valid value; use one of `webdis`, `upstash`, `rls`".into(),
        ),
        (
            r#"{"cluster": "a", "protocol": "webdis", "authority": "a\nb"}"#,
            format!(r"envoy.store.authority: `a\nb` {value}"),
        ),
        (
            r#"{"cluster": "a", "protocol": "webdis", "keyPrefix": " a"}"#,
            format!("envoy.store.keyPrefix: ` a` {value}"),
        ),
        (
            r#"{"cluster": "a", "protocol": "webdis", "timeoutMs": 0}"#,
            "envoy.store.timeoutMs: `0` is not possible; use a whole number from 1 to 60000".into(),
        ),
        (
            r#"{"cluster": "a", "protocol": "webdis", "maxWaitMs": 60001}"#,
            "envoy.store.maxWaitMs: `60001` is not possible; use a whole number from 0 to 60000".into(),
        ),
        (
            r#"{"cluster": "a", "protocol": "webdis", "whenDown": "open"}"#,
            "envoy.store.whenDown: `open` is not a valid value; use one of `refuse`, `local`, `pass`".into(),
        ),
        (
            r#"{"cluster": "a", "protocol": "rls", "authority": "a"}"#,
            "envoy.store: `authority` does not go with the protocol `rls`; leave it out".into(),
        ),
        (
            r#"{"cluster": "a", "protocol": "rls", "token": "hush"}"#,
            "envoy.store: `token` does not go with the protocol `rls`; leave it out".into(),
        ),
        (
            r#"{"cluster": "a", "protocol": "upstash"}"#,
            "envoy.store: `token` is missing; use the token of the REST interface".into(),
        ),
    ];
    for (store, sentence) in cases {
        assert_eq!(read(store), Err(sentence), "{store}");
    }
}

#[test]
fn no_error_and_no_debug_text_shows_the_token() {
    let secrets = [
        ("webdis", r#""hush""#),
        ("webdis", r#""hush:\n""#),
        ("upstash", r#""hush ""#),
        ("upstash", r#"["hush"]"#),
        ("upstash", "4711"),
    ];
    for (protocol, token) in secrets {
        let store = format!(r#"{{"cluster": "a", "protocol": "{protocol}", "token": {token}}}"#);
        let error = read(&store).unwrap_err();
        assert!(
            error.starts_with("envoy.store: `token` is not a "),
            "{error}"
        );
        assert!(
            !error.contains("hush") && !error.contains("4711"),
            "{error}"
        );
    }
    let store = read(r#"{"cluster": "a", "protocol": "webdis", "token": "me:hush"}"#).unwrap();
    assert!(!format!("{store:?}").contains("hush"));
}
