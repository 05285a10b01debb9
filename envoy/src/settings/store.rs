//! The store of `envoy.store`, which permits are leased from.

use super::{NO_FIELD_VALUE, is_field_value};
use leapgate::config::{ConfigError, Located};
use leapgate::lease::WhenDown;
use std::fmt;

/// The longest time-out, in milliseconds, and the longest wait.
const MAX_MS: u64 = 60_000;

/// The longest prefix of keys, in bytes.
const MAX_PREFIX: usize = 128;

/// The store that permits are leased from, and how it is asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoreSettings {
    /// The cluster in Envoy's configuration.
    pub cluster: String,
    /// What it speaks.
    pub protocol: Protocol,
    /// The host that requests to it name.
    pub authority: String,
    /// What requests to it prove their right by.
    pub token: Option<Secret>,
    /// What the names of keys begin with.
    pub key_prefix: String,
    /// After so many milliseconds an answer is lost.
    pub timeout_ms: u32,
    /// How many milliseconds a request waits for an answer before `when_down` decides on it.
    pub max_wait_ms: u32,
    /// What decides while the store does not answer.
    pub when_down: WhenDown,
}

/// What a store speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// That of webdis, an HTTP server in front of Redis or Valkey.
    Webdis,
    /// Upstash's REST form of Redis commands.
    Upstash,
    /// That of envoyproxy/ratelimit, over gRPC.
    Rls,
}

/// A text that no log shows.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The text, to be sent.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

pub(super) fn store(at: &Located<'_>) -> Result<StoreSettings, ConfigError> {
    let fields = at.object(&[
        "cluster",
        "protocol",
        "authority",
        "token",
        "keyPrefix",
        "timeoutMs",
        "maxWaitMs",
        "whenDown",
    ])?;
    let text = |name, default: &str, max: usize| match fields.get(name) {
        None => Ok(default.to_owned()),
        Some(value) if value.string()?.is_empty() || value.string()?.len() > max => {
            Err(value.error(&format!("is not possible; use 1 to {max} bytes")))
        }
        Some(value) if is_field_value(value.string()?) => Ok(value.string()?.to_owned()),
        Some(value) => Err(value.error(NO_FIELD_VALUE)),
    };
    let millis = |name, default| match fields.get(name) {
        None => Ok(default),
        Some(value) => value
            .integer(u64::from(name == "timeoutMs")..=MAX_MS)
            .map(|millis| millis as u32),
    };
    fields.need("cluster")?.string()?;
    let cluster = text("cluster", "", MAX_PREFIX)?;
    let protocol = fields.need("protocol")?.one_of(&[
        ("webdis", Protocol::Webdis),
        ("upstash", Protocol::Upstash),
        ("rls", Protocol::Rls),
    ])?;
    let unasked = ["authority", "token"].into_iter();
    let mut unasked = unasked.filter(|_| protocol == Protocol::Rls);
    if let Some(field) = unasked.find(|name| fields.get(name).is_some()) {
        let fault = "does not go with the protocol `rls`; leave it out";
        return Err(ConfigError::new(&at.to_string(), field, fault));
    }
    let token = token(at, &fields.get("token"), protocol)?;
    Ok(StoreSettings {
        authority: text("authority", &cluster, MAX_PREFIX)?,
        cluster,
        protocol,
        token,
        key_prefix: text("keyPrefix", "leapgate:", MAX_PREFIX)?,
        timeout_ms: millis("timeoutMs", 50)?,
        max_wait_ms: millis("maxWaitMs", 20)?,
        when_down: match fields.get("whenDown") {
            None => WhenDown::Refuse,
            Some(value) => value.one_of(&[
                ("refuse", WhenDown::Refuse),
                ("local", WhenDown::Local),
                ("pass", WhenDown::Pass),
            ])?,
        },
    })
}

/// The token. No error shows it.
fn token(
    store: &Located<'_>,
    at: &Option<Located<'_>>,
    protocol: Protocol,
) -> Result<Option<Secret>, ConfigError> {
    let wrong = |fault| ConfigError::new(&store.to_string(), "token", fault);
    let token = match at {
        None if protocol == Protocol::Upstash => {
            return Err(wrong("is missing; use the token of the REST interface"));
        }
        None => return Ok(None),
        Some(at) => at
            .string()
            .map_err(|_| wrong("is not a valid token; use a string"))?,
    };
    if token.is_empty() || !is_field_value(token) {
        return Err(wrong(NO_FIELD_VALUE));
    }
    if protocol == Protocol::Webdis && !token.contains(':') {
        return Err(wrong(
            "is not a user and a password; use what webdis has as `http_basic_auth`: `user:password`",
        ));
    }
    Ok(Some(Secret(token.to_owned())))
}
