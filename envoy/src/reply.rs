//! The reply to a refused request, and the headers about limits on the responses to admitted ones.

use crate::settings::{Format, RateLimitHeaders, Reply, Settings};
use leapgate::rule::{FlowRule, Grade, REQUESTS};
use leapgate::{Blocked, Policy, RefusalKind};
use std::borrow::Cow;
use std::time::Duration;

/// Whole seconds, rounded up.
fn seconds(time: Duration) -> u64 {
    time.as_secs()
        .saturating_add(u64::from(time.subsec_nanos() > 0))
}

/// For how long a reply reads the same: its times are whole seconds, rounded up.
pub struct ReadsSame(pub Duration);

impl ReadsSame {
    /// Whole seconds, of which a reply now tells.
    fn seconds(&mut self, time: Duration) -> u64 {
        let seconds = seconds(time);
        if seconds > 0 {
            let next = Duration::from_secs(seconds - 1);
            self.0 = self.0.min(time.saturating_sub(next));
        }
        seconds
    }
}

/// Appends a number. (The standard formatting costs more than the decision.)
pub(crate) fn push_number(text: &mut String, mut n: u64) {
    let mut digits = [0u8; 20];
    let mut used = 0;
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (n % 10) as u8;
        n /= 10;
        used += 1;
        if n == 0 {
            break;
        }
    }
    let written = digits.get(digits.len() - used..).unwrap_or_default();
    text.extend(written.iter().map(|digit| char::from(*digit)));
}

fn number(n: u64) -> String {
    let mut text = String::with_capacity(20);
    push_number(&mut text, n);
    text
}

/// The HTTP status of a refusal, and the gRPC status.
pub fn statuses(reply: &Reply, kind: RefusalKind) -> (u16, i32) {
    let status = match kind {
        RefusalKind::Limited => reply.status,
        RefusalKind::Unavailable => reply.breaker_status,
        RefusalKind::Forbidden => kind.status(),
    };
    (status, kind.grpc_status())
}

/// What the access log shows as the response code details: the rule, and, where it counts more than requests, what the request
/// costs under it or would hold.
pub fn details(blocked: &Blocked) -> String {
    let mut details = ["leapgate{rule=", blocked.id().as_str()].concat();
    let flow = blocked.cause().flow_rule();
    let counts_more = |rule: &&FlowRule| rule.cost().is_some() || rule.unit() != REQUESTS;
    if let (Some(_), Some(cost)) = (flow.filter(counts_more), blocked.cost()) {
        details.push_str(",cost=");
        push_number(&mut details, cost);
    }
    details.push('}');
    details
}

/// The headers of a refusal. A gRPC request chooses its content type itself.
pub fn headers<'a, 'p>(
    settings: &'a Settings,
    blocked: &Blocked,
    policies: &mut dyn Iterator<Item = Policy<'p>>,
    is_grpc: bool,
    reads_same: &mut ReadsSame,
) -> Vec<(&'a str, Cow<'a, str>)> {
    let mut headers: Vec<(&str, Cow<'_, str>)> = Vec::with_capacity(8);
    // RFC 6585 section 4: a 429 must not be stored.
    headers.push(("cache-control", "no-store".into()));
    if let Some(wait) = blocked.retry_after() {
        headers.push((
            "retry-after",
            number(reads_same.seconds(wait).max(1)).into(),
        ));
    }
    match settings.reply.format {
        Format::Json if !is_grpc => headers.push(("content-type", "application/json".into())),
        Format::Problem if !is_grpc => {
            headers.push(("content-type", "application/problem+json".into()))
        }
        _ => {}
    }
    headers.extend(
        settings
            .reply
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str().into())),
    );
    rate_limit_headers(
        settings.rate_limit_headers,
        policies,
        (false, reads_same),
        &mut |name, value| headers.push((name, value.into())),
    );
    headers
}

/// The body of a refusal. For a gRPC request it becomes the message, and is text.
pub fn body<'a>(reply: &'a Reply, blocked: &Blocked, is_grpc: bool) -> Cow<'a, str> {
    let kind = blocked.cause().kind();
    let text = match kind {
        RefusalKind::Limited => reply.body.as_str(),
        RefusalKind::Unavailable => reply.breaker_body.as_str(),
        RefusalKind::Forbidden => kind.text(),
    };
    if is_grpc || reply.format == Format::Text {
        return text.into();
    }
    let (status, text) = (number(statuses(reply, kind).0.into()), quoted(text));
    let rule = quoted(blocked.id().as_str());
    let mut body = String::from("{");
    let mut add = |parts: &[&str]| parts.iter().for_each(|part| body.push_str(part));
    if reply.format == Format::Problem {
        if let Some(problem_type) = kind.problem_type() {
            add(&["\"type\":\"", problem_type, "\","]);
        }
        add(&["\"title\":\"", kind.title(), "\",\"status\":", &status]);
        add(&[",\"detail\":", &text]);
        if kind == RefusalKind::Limited {
            add(&[",\"violated-policies\":[", &rule, "]"]);
        }
    } else {
        add(&["\"status\":", &status, ",\"error\":", &text]);
        add(&[",\"rule\":", &rule]);
        if let Some(wait) = blocked.retry_after() {
            add(&[",\"retryAfterSeconds\":", &number(seconds(wait).max(1))]);
        }
    }
    body.push('}');
    body.into()
}

fn quoted(text: &str) -> String {
    // A string can always be written.
    serde_json::to_string(text).unwrap_or_default()
}

/// Calls `add` with the headers about limits, of a request that has `passed` or not.
///
/// draft-ietf-httpapi-ratelimit-headers-11: two lists whose items are the rules' ids. `w` is left out unless it is a whole
/// number of seconds; `qu` names the unit of other rules than those of requests; `t` is there only if quota will come back.
pub fn rate_limit_headers<'p>(
    form: RateLimitHeaders,
    policies: &mut dyn Iterator<Item = Policy<'p>>,
    (passed, reads_same): (bool, &mut ReadsSame),
    add: &mut dyn FnMut(&'static str, String),
) {
    match form {
        RateLimitHeaders::Off => {}
        RateLimitHeaders::Draft => {
            // Usually one allocation each.
            let (mut quotas, mut limits) = (String::with_capacity(96), String::with_capacity(96));
            for policy in policies {
                for list in [&mut quotas, &mut limits] {
                    list.push_str(if list.is_empty() { "" } else { ", " });
                    push_string_item(list, policy.id.as_str());
                }
                quotas.push_str(";q=");
                push_number(&mut quotas, policy.count.get() as u64);
                match policy.rule.grade() {
                    Grade::Qps { window, .. } => {
                        if policy.rule.unit() != REQUESTS {
                            quotas.push_str(";qu=");
                            push_string_item(&mut quotas, quota_unit(policy.rule.unit()));
                        }
                        let millis = window.window().interval_ms();
                        if millis.is_multiple_of(1000) {
                            quotas.push_str(";w=");
                            push_number(&mut quotas, millis / 1000);
                        }
                    }
                    Grade::Concurrency => quotas.push_str(";qu=\"concurrent-requests\""),
                }
                limits.push_str(";r=");
                push_number(&mut limits, policy.remaining);
                if passed || policy.remaining == 0 {
                    let reset = reads_same.seconds(policy.reset);
                    if reset > 0 {
                        limits.push_str(";t=");
                        push_number(&mut limits, reset);
                    }
                }
            }
            if !limits.is_empty() {
                add("ratelimit-policy", quotas);
                add("ratelimit", limits);
            }
        }
        RateLimitHeaders::Legacy => {
            // As Envoy's local rate limit filter writes it: one limit of requests, here the tightest, and the time to its reset in seconds.
            let requests = policies.filter(|policy| policy.rule.unit() == REQUESTS);
            if let Some(policy) = requests.min_by_key(|policy| policy.remaining) {
                add("x-ratelimit-limit", number(policy.count.get() as u64));
                add("x-ratelimit-remaining", number(policy.remaining));
                add(
                    "x-ratelimit-reset",
                    number(reads_same.seconds(policy.reset)),
                );
            }
        }
    }
}

/// What the draft calls a unit.
fn quota_unit(unit: &str) -> &str {
    match unit {
        "bytes" => "content-bytes",
        unit => unit,
    }
}

/// Appends a string of RFC 9651 (structured fields). An id is printable ASCII.
fn push_string_item(list: &mut String, text: &str) {
    list.push('"');
    if text.contains(['"', '\\']) {
        list.push_str(&text.replace('\\', "\\\\").replace('"', "\\\""));
    } else {
        list.push_str(text);
    }
    list.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_written_in_full() {
        for n in [0, 9, 10, 1000, u64::MAX] {
            assert_eq!(number(n), n.to_string());
        }
    }

    #[test]
    fn a_string_item_escapes_what_ends_it() {
        let mut list = String::new();
        push_string_item(&mut list, r#"a"b\c"#);
        assert_eq!(list, r#""a\"b\\c""#);
    }
}
