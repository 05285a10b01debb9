//! How a store is asked for permits, and what its answers mean: the texts of a node's messages in the form of a protocol.
//!
//! | Protocol | Request | Answer |
//! |---|---|---|
//! | webdis | `POST /`, `EVALSHA/<sha1>/1/<key>/<text>`, each part escaped | `{"EVALSHA": "<text>"}`; an error is `[false, "<words>"]` |
//! | Upstash | `POST /`, `["EVALSHA", "<sha1>", "1", "<key>", "<text>"]` | `{"result": "<text>"}` or `{"error": "<words>"}` |
//!
//! The third one is that of [`rls`](crate::rls). If Redis does not know the script, the same message goes with the whole script, by `EVAL`.

use crate::host::{Host, HttpCall, NotSent};
use crate::settings::{Protocol, StoreSettings};
use leapgate::config::{ConfigError, Value};
use leapgate::lease::{Answer, Message, REDIS_SCRIPT, REDIS_SCRIPT_SHA1};
use std::borrow::Cow;

/// How much of an answer is read, in bytes. A right one is shorter by far.
const MAX_ANSWER: usize = 4096;

/// Why there is no answer of the script's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// Redis does not know the script.
    UnknownScript,
    /// It was not sent.
    NotSent(NotSent),
    /// The status of HTTP, or below 100 that of gRPC.
    Status(u32),
    /// The connection ended before there was an answer.
    Cut,
    /// The store's own words.
    Error(String),
    /// What is wrong, as a sentence.
    Wrong(String),
    /// An answer of another kind.
    Nonsense(String),
}

impl Fault {
    /// A bit for each cause, so that each is logged once.
    pub(crate) fn cause(&self) -> u32 {
        let cause = match self {
            Fault::UnknownScript | Fault::Error(_) | Fault::Wrong(_) => 0,
            Fault::NotSent(NotSent::UnknownCluster) => 1,
            Fault::NotSent(NotSent::Refused) => 2,
            Fault::Status(503 | 14) => 3,
            Fault::Status(504) => 4,
            Fault::Status(401 | 403) => 5,
            Fault::Status(_) => 6,
            Fault::Cut => 7,
            Fault::Nonsense(_) => 8,
        };
        1 << cause
    }

    /// The cause and its cure, in one sentence.
    pub(crate) fn sentence(&self, store: &StoreSettings) -> String {
        let cluster = store.cluster.as_str();
        let number;
        let (value, fault) = match self {
            Fault::UnknownScript => (
                "NOSCRIPT",
                "is the store's answer to the whole script; use Redis or Valkey",
            ),
            Fault::NotSent(NotSent::UnknownCluster) => (
                cluster,
                "is not a cluster; add it to Envoy's clusters or correct `cluster`",
            ),
            Fault::NotSent(NotSent::Refused) => (
                cluster,
                "takes no request; give it a host, a wider circuit breaker, and the module the right to make calls",
            ),
            Fault::Status(503 | 14) => (
                cluster,
                "cannot be reached or has no Redis behind it; start both",
            ),
            Fault::Status(504) => (
                cluster,
                "does not answer in time; look at its load and at `timeoutMs`",
            ),
            Fault::Status(401 | 403) => (
                cluster,
                "refuses the request; correct `token` and allow EVAL and EVALSHA",
            ),
            Fault::Status(status) => {
                number = status.to_string();
                (
                    number.as_str(),
                    "is the status of the store's answer; look at its log",
                )
            }
            Fault::Cut => (
                cluster,
                "ends connections without an answer; look at its log",
            ),
            Fault::Wrong(sentence) => return ["envoy.store: ", sentence].concat(),
            Fault::Error(words) => (words.as_str(), "is the store's error; look at its settings"),
            Fault::Nonsense(words) => (
                words.as_str(),
                "is not an answer about permits; use the same version of Leapgate everywhere, and `cluster` and `protocol` of one store",
            ),
        };
        let has = |token: &str| value.contains(token);
        let reveals = store
            .token
            .as_ref()
            .is_some_and(|token| has(token.reveal()));
        let value = if reveals { "…" } else { value };
        ConfigError::new("envoy.store", value, fault).to_string()
    }
}

/// Sends a message over HTTP, and the whole script with it if need be. Returns the token of its answer.
pub(crate) fn send<H: Host>(
    host: &H,
    store: &StoreSettings,
    with_script: bool,
    message: &Message,
    timeout_ms: u32,
) -> Result<u32, Fault> {
    let (command, script) = match with_script {
        false => ("EVALSHA", REDIS_SCRIPT_SHA1),
        true => ("EVAL", REDIS_SCRIPT),
    };
    let key = [store.key_prefix.as_bytes(), &message.key].concat();
    let is_webdis = store.protocol == Protocol::Webdis;
    let body = if is_webdis {
        for_webdis(&[
            command.as_bytes(),
            script.as_bytes(),
            b"1",
            &key,
            message.text.as_bytes(),
        ])
    } else {
        // JSON is text: keys that are not, and look alike as text, share a count. A list of strings can always be written.
        let key = String::from_utf8_lossy(&key);
        serde_json::to_string(&[command, script, "1", &key, &message.text]).unwrap_or_default()
    };
    let mut headers: Vec<(&str, Cow<'_, str>)> = vec![
        (":method", "POST".into()),
        (":path", "/".into()),
        (":authority", store.authority.as_str().into()),
    ];
    if let Some(token) = &store.token {
        let right = if is_webdis {
            ["Basic ", &base64(token.reveal().as_bytes())].concat()
        } else {
            ["Bearer ", token.reveal()].concat()
        };
        headers.push(("authorization", right.into()));
    }
    let call = HttpCall {
        cluster: &store.cluster,
        headers: &headers,
        body: body.as_bytes(),
        timeout_ms,
    };
    host.call_http(&call).map_err(Fault::NotSent)
}

/// What the response at hand, with a body of so many bytes, has answered.
pub(crate) fn read<H: Host>(host: &H, size: usize) -> Result<Answer, Fault> {
    let status = host.answer_header(":status").ok_or(Fault::Cut)?;
    let body = host.answer_body(size.min(MAX_ANSWER)).unwrap_or_default();
    let is_right = status == b"200";
    match text(&body) {
        Some(Ok(text)) if is_right => Answer::parse(&text).map_err(|_| Fault::Nonsense(text)),
        Some(Err(words)) if words.starts_with("NOSCRIPT") => Err(Fault::UnknownScript),
        Some(Err(words)) => Err(Fault::Error(words)),
        None if is_right => Err(Fault::Nonsense(String::from_utf8_lossy(&body).into())),
        _ => {
            let status = std::str::from_utf8(&status).ok();
            let status = status.and_then(|status| status.parse().ok());
            Err(Fault::Status(status.unwrap_or(0)))
        }
    }
}

/// The text in a body, or the words of the error in it.
fn text(body: &[u8]) -> Option<Result<String, String>> {
    let Value::Object(fields) = Value::from_json(body).ok()? else {
        return None;
    };
    let (name, value) = fields.into_iter().next()?;
    match value {
        Value::String(words) if name == "error" => Some(Err(words)),
        Value::String(text) => Some(Ok(text)),
        Value::Array(items) => match items.as_slice() {
            [Value::Bool(false), Value::String(words)] => Some(Err(words.clone())),
            _ => None,
        },
        _ => None,
    }
}

/// A command as webdis reads it. All but letters, digits, `_` and `-` is escaped: it would end a part, or be taken for a format.
fn for_webdis(parts: &[&[u8]]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let mut body = String::new();
    for (i, part) in parts.iter().enumerate() {
        if i > 0 {
            body.push('/');
        }
        for byte in part.iter().copied() {
            if byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-' {
                body.push(char::from(byte));
                continue;
            }
            body.push('%');
            for digit in [byte >> 4, byte & 15] {
                body.extend(DIGITS.get(usize::from(digit)).copied().map(char::from));
            }
        }
    }
    body
}

/// RFC 4648, section 4.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let at = |i: usize| u32::from(group.get(i).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for i in 0..4 {
            let digit = DIGITS.get((bits >> (18 - 6 * i) & 63) as usize);
            let digit = digit.filter(|_| i <= group.len());
            text.push(char::from(digit.copied().unwrap_or(b'=')));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_command_is_one_part_for_webdis() {
        let parts = [
            &b"EVALSHA"[..],
            b"a_1-Z",
            b"leapgate:login:1000:100:%",
            b"x/y.raw?\xFF\0",
        ];
        let body = "EVALSHA/a_1-Z/leapgate%3Alogin%3A1000%3A100%3A%25/x%2Fy%2Eraw%3F%FF%00";
        assert_eq!(for_webdis(&parts), body);
    }

    #[test]
    fn base64_is_that_of_rfc_4648() {
        let rows = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foobar", "Zm9vYmFy"),
            ("user:p\u{e4}ss>?", "dXNlcjpww6Rzcz4/"),
        ];
        for (bytes, text) in rows {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }

    #[test]
    fn an_answer_is_one_text_or_the_words_of_an_error() {
        let rows = [
            (r#"{"EVALSHA":"1-5"}"#, Some(Ok("1-5"))),
            (r#"{"result":"1-5"}"#, Some(Ok("1-5"))),
            (r#"{"error":"ERR no"}"#, Some(Err("ERR no"))),
            (r#"{"EVAL":[false,"ERR no"]}"#, Some(Err("ERR no"))),
            (r#"{"EVAL":[true,"OK"]}"#, None),
            (r#"{"EVAL":null}"#, None),
            (r#"{"EVAL":5}"#, None),
            (r#"{}"#, None),
            (r#""1-5""#, None),
            ("", None),
            ("upstream connect error", None),
        ];
        for (body, expected) in rows {
            let found = text(body.as_bytes());
            let found = found.as_ref().map(|found| match found {
                Ok(text) => Ok(text.as_str()),
                Err(words) => Err(words.as_str()),
            });
            assert_eq!(found, expected, "{body}");
        }
    }
}
