//! envoyproxy/ratelimit as a store: a lease is one gRPC call that takes several hits at once (`hits_addend`).
//!
//! The service counts in fixed windows of its own clock, such as the minutes of the hour, and takes nothing back: permits that are
//! not used by the end of their window are lost. How far that end is, it tells in whole seconds, rounded up.

use crate::metadata::next;
use leapgate::Timestamp;
use leapgate::lease::{Answer, Message, Moment, Request};

/// The service.
pub const SERVICE: &str = "envoy.service.ratelimit.v3.RateLimitService";

/// Its method.
pub const METHOD: &str = "ShouldRateLimit";

/// The service's windows of 10 s and more: the length in milliseconds, the number in its messages, the name in its configuration.
const UNITS: [(u64, u64, &str); 6] = [
    (60_000, 2, "minute"),
    (3_600_000, 3, "hour"),
    (86_400_000, 4, "day"),
    (604_800_000, 7, "week"),
    (2_592_000_000, 5, "month"),
    (31_536_000_000, 6, "year"),
];

/// The codes of a response.
const OK: u64 = 1;
const OVER_LIMIT: u64 = 2;

/// What resets are rounded up to, in milliseconds.
const SECOND: u64 = 1000;

/// By how much clocks may run apart: one part in so many.
const DRIFT: u64 = 1000;

/// A rule at the service, as one node knows it.
#[derive(Debug)]
pub struct Service {
    domain: Box<str>,
    rule: Box<str>,
    parts: Vec<Box<str>>,
    unit_ms: u64,
    unit: u64,
    unit_name: &'static str,
    end: End,
    /// Whether it was said that the limit is another one there.
    is_told: bool,
}

/// What an answer of the service means.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Heard {
    /// The answer of the store. Its permits are as many as were wanted.
    pub answer: Answer,
    /// Until when they may be spent, in milliseconds after the request was sent.
    pub expires_ms: u64,
    /// What should be said, once.
    pub warning: Option<String>,
}

impl Service {
    /// The rule with this id, whose keys have parts of these names. `None` if the service has no windows of that length, or only
    /// too short ones: it has minutes, hours, days, weeks, and 30 and 365 days.
    pub fn new(
        domain: &str,
        rule: &str,
        parts: Vec<Box<str>>,
        interval_ms: u64,
    ) -> Option<Service> {
        let (unit_ms, unit, unit_name) = *UNITS.iter().find(|unit| unit.0 == interval_ms)?;
        Some(Service {
            domain: domain.into(),
            rule: rule.into(),
            parts,
            unit_ms,
            unit,
            unit_name,
            end: End::default(),
            is_told: false,
        })
    }

    /// The gRPC message that a message of a node is.
    ///
    /// # Errors
    ///
    /// The answer, if nothing is to be sent: while the window may have ended, and may not, there are no permits. A service that
    /// `is_down` is asked all the same: only its own answer says that it is back.
    pub fn ask(&self, message: &Message, is_down: bool, now: Moment) -> Result<Vec<u8>, Answer> {
        let now_ms = now.monotonic.as_millis();
        let hits = Request::parse(&message.text).map_or(0, |request| {
            // A report of what was admitted without the service takes hits, too, but for what was in earlier windows. Nothing else
            // is ever settled.
            let age_ms = self.end.age_ms(now_ms, self.unit_ms);
            let reports = request.settlements.iter().flat_map(|of| &of.used);
            let recent = reports.filter(|used| used.age_ms < age_ms);
            recent.fold(request.want, |sum, used| sum.saturating_add(used.n))
        });
        let retry_ms = self.end.doubt_ms(now_ms);
        match u32::try_from(hits) {
            Ok(hits) if is_down => Ok(self.message(&message.key, hits.max(1))),
            Ok(hits) if hits > 0 && retry_ms == 0 => Ok(self.message(&message.key, hits)),
            _ => Err(refusal(retry_ms)),
        }
    }

    fn message(&self, key: &[u8], hits: u32) -> Vec<u8> {
        let (mut message, mut entries) = (Vec::new(), Vec::new());
        entry(&mut entries, "rule", &self.rule);
        // A message is text. The first three fields of a key are the name of its window; the others are its parts, in which a colon
        // is `%3A`. (A percent sign stays `%25`, since a part that the request lacks is `%`.)
        let key = String::from_utf8_lossy(key);
        for (name, value) in self.parts.iter().zip(key.split(':').skip(3)) {
            entry(&mut entries, name, &with_colons(value));
        }
        field(&mut message, 1, self.domain.as_bytes());
        field(&mut message, 2, &entries);
        message.push(3 << 3);
        varint(&mut message, hits.into());
        message
    }

    /// What the response to a message means for a node with this limit; the message was sent and answered at these times.
    ///
    /// # Errors
    ///
    /// What is wrong, in one sentence: then the answer is lost.
    pub fn heard(
        &mut self,
        response: &[u8],
        limit: u64,
        sent: Moment,
        received: Moment,
    ) -> Result<Heard, String> {
        let Some(response) = Response::read(response) else {
            return Err(
                "the answer is not one of envoyproxy/ratelimit; correct `cluster` or `protocol`"
                    .into(),
            );
        };
        let reset_ms = response.reset.saturating_mul(SECOND);
        // Without a reset are rules that are unlimited there, and those in quota mode that are over.
        if response.unit != self.unit || !(SECOND..=self.unit_ms).contains(&reset_ms) {
            return Err(self.lacks(limit));
        }
        let is_other = response.limit != limit && self.parts.is_empty();
        let warning = (is_other && !self.is_told).then(|| self.lacks(limit));
        self.is_told = is_other;

        let is_of_window = self.end.learn(sent, received, reset_ms, self.unit_ms);
        let [sent, received] = [sent, received].map(|of| of.monotonic.as_millis());
        let expires_ms = self.end.first.saturating_sub(sent);
        let quiet = self.end.is_over_at().saturating_sub(received);
        let answer = if !is_of_window {
            // A second after its beginning a window can be told from the one before.
            refusal((quiet + SECOND).saturating_sub(self.unit_ms))
        } else if response.is_ok && received < self.end.first {
            Answer {
                granted: u64::MAX,
                remaining: response.remaining,
                ..Answer::default()
            }
        } else {
            refusal(quiet)
        };
        Ok(Heard {
            answer,
            expires_ms,
            warning,
        })
    }

    /// What its configuration lacks.
    #[cold]
    fn lacks(&self, limit: u64) -> String {
        let limit = limit.to_string();
        let mut sentence = [
            "envoyproxy/ratelimit has no limit of ",
            &limit,
            " per ",
            self.unit_name,
            " in the domain `",
            &self.domain,
            "` for `rule: ",
            &self.rule,
        ]
        .concat();
        for part in &self.parts {
            sentence.push_str(", ");
            sentence.push_str(part);
        }
        sentence.push_str("`; add it to its configuration");
        sentence
    }
}

/// A part of a key with its colons as they were. (The search for a text within another would be two kilobytes of the module.)
fn with_colons(part: &str) -> String {
    let mut pieces = part.split('%');
    let mut text = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let rest = piece.strip_prefix("3A");
        text.push(if rest.is_some() { ':' } else { '%' });
        text.push_str(rest.unwrap_or(piece));
    }
    text
}

/// There are no permits for so many milliseconds.
fn refusal(retry_ms: u64) -> Answer {
    Answer {
        retry_ms: retry_ms.max(1),
        ..Answer::default()
    }
}

/// When the window in force ends, in milliseconds of a node's monotonic clock: after `first`, and not after `last`.
///
/// A response bounds it: the service has reckoned the reset between `sent` and `received`. Responses in one window bound the same
/// end, and what they say together is closer.
#[derive(Default, Debug)]
struct End {
    first: u64,
    last: u64,
    /// When the message was sent that last said so.
    at: Option<Moment>,
    /// By when the window in force had begun, as far as that was known before.
    begun: u64,
}

impl End {
    /// Takes up what a response says. Returns whether it was charged to the window in force.
    ///
    /// The service picks the window before it asks Redis, and reckons the reset after that: what it has charged to the window before
    /// may be told as of this one. It was not if this window had begun before the message was sent, or if the message took less time
    /// than this window is old.
    fn learn(&mut self, sent: Moment, received: Moment, reset_ms: u64, unit_ms: u64) -> bool {
        let [sent_ms, received_ms] = [sent, received].map(|of| of.monotonic.as_millis());
        let (first, last) = (
            (sent_ms + reset_ms).saturating_sub(SECOND),
            received_ms + reset_ms + 1,
        );
        if let Some(at) = self.at {
            let [shortest, longest] = passed(at, sent);
            let drift = longest - shortest + longest / DRIFT + 1;
            self.first = self.first.saturating_sub(drift);
            self.last = self.last.saturating_add(drift);
        }
        self.at = Some(sent);
        if self.first <= last && first <= self.last {
            self.first = self.first.max(first);
            self.last = self.last.min(last);
        } else {
            let is_next = first > self.last && first.saturating_sub(unit_ms) < self.last;
            self.begun = if is_next { self.last } else { u64::MAX };
            (self.first, self.last) = (first, last);
        }
        let [_, took] = passed(sent, received);
        took + took / DRIFT < unit_ms - reset_ms || sent_ms >= self.begun
    }

    /// When the window in force is over, even as it will be seen then: if clocks have run apart meanwhile.
    fn is_over_at(&self) -> u64 {
        let ahead = self.at.map_or(0, |at| {
            let ahead = self.last.saturating_sub(at.monotonic.as_millis());
            2 * ahead / DRIFT + 3
        });
        self.last + ahead
    }

    /// How long ago the window in force began, at most.
    fn age_ms(&self, now_ms: u64, unit_ms: u64) -> u64 {
        if now_ms < self.first {
            (now_ms + unit_ms).saturating_sub(self.first)
        } else {
            unit_ms
        }
    }

    /// For how many milliseconds more the window may have ended, and may not.
    fn doubt_ms(&self, now_ms: u64) -> u64 {
        if now_ms < self.first {
            0
        } else {
            self.is_over_at().saturating_sub(now_ms)
        }
    }
}

/// How many milliseconds have passed, by the clock that says less and by the one that says more.
fn passed(earlier: Moment, later: Moment) -> [u64; 2] {
    let passed = |earlier: Timestamp, later: Timestamp| {
        let nanos = later.as_nanos().saturating_sub(earlier.as_nanos());
        nanos.div_ceil(1_000_000)
    };
    let one = passed(earlier.monotonic, later.monotonic);
    let other = passed(earlier.wall, later.wall);
    [one.min(other), one.max(other)]
}

/// A response of the service to one descriptor.
struct Response {
    is_ok: bool,
    limit: u64,
    unit: u64,
    remaining: u64,
    /// In seconds.
    reset: u64,
}

impl Response {
    /// `envoy.service.ratelimit.v3.RateLimitResponse`; `None` if the bytes are not one.
    fn read(message: &[u8]) -> Option<Response> {
        let [(code, _), (_, status), ..] = fields(message)?;
        let [_, (_, limit), (remaining, _), (_, until_reset)] = fields(status)?;
        let [(limit, _), (unit, _), ..] = fields(limit)?;
        let [(reset, _), ..] = fields(until_reset)?;
        matches!(code, OK | OVER_LIMIT).then_some(Response {
            is_ok: code == OK,
            limit,
            unit,
            remaining,
            reset,
        })
    }
}

/// The fields 1 to 4 of a message: each as a number, and as bytes.
fn fields(mut message: &[u8]) -> Option<[(u64, &[u8]); 4]> {
    let mut fields = [(0, &[][..]); 4];
    while !message.is_empty() {
        let (tag, number, content) = next(&mut message)?;
        let index = usize::try_from(tag >> 3).ok()?.checked_sub(1)?;
        if let Some(field) = fields.get_mut(index) {
            *field = (number, content);
        }
    }
    Some(fields)
}

/// Adds an entry of a descriptor.
fn entry(entries: &mut Vec<u8>, name: &str, value: &str) {
    let mut entry = Vec::new();
    field(&mut entry, 1, name.as_bytes());
    field(&mut entry, 2, value.as_bytes());
    field(entries, 1, &entry);
}

/// Adds a field of bytes.
fn field(message: &mut Vec<u8>, number: u8, content: &[u8]) {
    message.push(number << 3 | 2);
    varint(message, content.len() as u64);
    message.extend_from_slice(content);
}

/// Adds a number, the lowest seven bits first.
fn varint(message: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        message.push(number as u8 | 0x80);
        number >>= 7;
    }
    message.push(number as u8);
}
