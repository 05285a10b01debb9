//! The protocol of envoyproxy/ratelimit: `hits_addend` of a request is the size of a lease.

use super::{Fault, Moment, Question};

/// Calls `send` with the service, the method and the message that ask a question. Returns the token of its answer.
pub(super) fn request(
    _question: &Question,
    send: &mut dyn FnMut(&str, &str, &[u8]) -> Result<u32, Fault>,
) -> Result<u32, Fault> {
    send(
        "envoy.service.ratelimit.v3.RateLimitService",
        "ShouldRateLimit",
        &[],
    )
}

/// The text that a node expects as the answer, made of the message that has come `now` to what was asked at `sent`.
pub(super) fn answer(
    _question: &Question,
    _message: &[u8],
    _sent: Moment,
    _now: Moment,
) -> Result<String, Fault> {
    Err(Fault::Nonsense(String::new()))
}
