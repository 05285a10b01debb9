//! Answers to refused requests, and which of them are repeated.

use super::Filter;
use crate::backend::EnvoyBackend;
use crate::host::{Host, Level, LocalReply, pairs};
use crate::refusals::Asked;
use crate::reply::{self, ReadsSame};
use crate::settings::Format;
use leapgate::rule::KeyValue;
use leapgate::{Blocked, Repeat, Request, Resource, Timestamp};
use std::rc::Rc;
use std::time::Duration;

/// A request with a longer key than this, in bytes, is decided on each time.
const MAX_KEY: usize = 256;

/// A refusal is repeated for so long at most.
const LONGEST: Duration = Duration::from_secs(1);

/// A refusal that may be repeated, and its answer.
pub(super) struct Kept<H: Host> {
    repeat: Repeat<EnvoyBackend<H>>,
    is_grpc: bool,
    reply: Reply,
}

/// An answer that is ready to be sent again.
struct Reply {
    status: u16,
    grpc_status: i32,
    details: String,
    headers: Vec<u8>,
    body: String,
}

/// A request for a resource: all that a decision on it depends on, unless it may borrow, is exempt or does not wait.
pub(super) struct Like<'a, H: Host> {
    pub(super) resource: &'a Rc<Resource<EnvoyBackend<H>>>,
    pub(super) name: &'a str,
    pub(super) origin: &'a str,
    pub(super) keys: &'a [KeyValue<'a>],
}

impl<H: Host> Like<'_, H> {
    /// Its name, origin and keys, each with its length before it; `None` if that is too long.
    fn key(&self) -> Option<Vec<u8>> {
        let mut key = Vec::new();
        let mut add = |part: Option<&[u8]>| {
            let length = part.map_or(0, |part| part.len() + 1);
            let fits = key.len() + length < MAX_KEY;
            if fits {
                key.extend_from_slice(&(length as u16).to_le_bytes());
                key.extend_from_slice(part.unwrap_or_default());
            }
            fits
        };
        let names = [self.name, self.origin];
        if self.keys.is_empty() && names == [""; 2] {
            return Some(key);
        }
        let fit = names.iter().all(|name| add(Some(name.as_bytes())))
            && self.keys.iter().all(|value| match value {
                KeyValue::Missing => add(None),
                KeyValue::One(value) => add(Some(value)),
                KeyValue::Each(_) => false,
            });
        fit.then_some(key)
    }
}

impl<H: Host> Filter<H> {
    /// Answers a refused request, with headers about its limits.
    #[inline(never)]
    pub(super) fn refuse(
        &self,
        blocked: &Blocked,
        like: &Like<'_, H>,
        request: &Request<'_>,
        now: Timestamp,
    ) {
        let (is_grpc, mut reads_same) = (self.is_grpc(), ReadsSame(LONGEST));
        let policies = &mut like.resource.policies_for(request, now);
        let headers = reply::headers(&self.settings, blocked, policies, is_grpc, &mut reads_same);
        let (status, grpc_status) = reply::statuses(&self.settings.reply, blocked.cause().kind());
        let (details, headers) = (reply::details(blocked), pairs(&headers));
        let body = reply::body(&self.settings.reply, blocked, is_grpc);
        self.send(&LocalReply {
            status,
            grpc_status,
            details: &details,
            headers: &headers,
            body: &body,
        });
        let Some(key) = like.key() else { return };
        let asked = Asked {
            resource: like.resource,
            key: &key,
        };
        if !self.kept.note(&asked) {
            return;
        }
        let store = self.engine.store();
        let repeat = like.resource.repeat(store, request, blocked, now);
        let Some(repeat) = repeat else { return };
        let reads_same = reads_same.0.as_nanos() as u64;
        let until = Timestamp::from_nanos(now.as_nanos().saturating_add(reads_same));
        let until = until.min(repeat.until());
        let bytes = details.len() + headers.len() + body.len();
        let reply = Reply {
            status,
            grpc_status,
            details,
            headers,
            body: body.into_owned(),
        };
        let kept = Kept {
            repeat,
            is_grpc,
            reply,
        };
        self.kept.keep(&asked, (kept, bytes), until, now);
    }

    /// Whether the request is refused since one like it was, a short while ago. Then it has been answered.
    #[inline]
    pub(super) fn refuses_again(&self, like: &Like<'_, H>) -> bool {
        !self.kept.is_empty() && self.repeats(like)
    }

    #[inline(never)]
    fn repeats(&self, like: &Like<'_, H>) -> bool {
        let Some(key) = like.key() else { return false };
        let asked = Asked {
            resource: like.resource,
            key: &key,
        };
        if !self.kept.has(&asked) || !self.is_current(like.resource, like.name, like.origin) {
            return false;
        }
        let now = self.host.now();
        let kept = now.and_then(|now| self.kept.get(&asked, now));
        let Some(kept) = kept.filter(|kept| kept.is_grpc == self.is_grpc()) else {
            return false;
        };
        if !kept.repeat.refuse() {
            return false;
        }
        self.engine.store().backend().vm().count_repeated();
        let reply = &kept.reply;
        self.send(&LocalReply {
            status: reply.status,
            grpc_status: reply.grpc_status,
            details: &reply.details,
            headers: &reply.headers,
            body: &reply.body,
        });
        true
    }

    fn send(&self, reply: &LocalReply<'_>) {
        if !self.host.reply(reply) {
            self.host.log(
                Level::Warn,
                "leapgate: the host did not send a reply to a limited request",
            );
        }
    }

    /// Whether replies have another form for this request than for others, since it is of gRPC.
    fn is_grpc(&self) -> bool {
        self.settings.reply.format != Format::Text
            && self
                .host
                .request_header("content-type")
                .is_some_and(|value| value.starts_with(b"application/grpc"))
    }
}
