//! How a call has ended: what its answer means to a circuit breaker.
//!
//! | What happened | Outcome |
//! |---|---|
//! | a status, or a gRPC status, that the settings name | error |
//! | Envoy answered for the upstream (refused, reset, timed out): 503, 504 | by that status |
//! | the upstream broke off in its answer | error |
//! | any other answer, also to a client that left in the middle of it | success |
//! | the client left before there was any | none: the call did not take place; but one that was slow by then was slow |
//!
//! A call has taken as long as it lasted, to the last byte; one that became a tunnel (101) as long as its upgrade.

use crate::host::{Host, Property};
use leapgate::config::{ConfigError, Located, read_statuses};
use leapgate::rule::Statuses;
use leapgate::{Outcome, Timestamp};
use std::cell::Cell;

const SWITCHING_PROTOCOLS: u64 = 101;

/// Response flags of Envoy's (`CoreResponseFlag`, as the bits of `response.flags`) that say that the upstream broke off an answer.
const BROKEN_OFF: u64 = 0x4 // UpstreamRequestTimeout, after the answer began
    | 0x8 // LocalReset
    | 0x10 // UpstreamRemoteReset
    | 0x20 // UpstreamConnectionFailure
    | 0x40 // UpstreamConnectionTermination
    | 0x8_0000 // UpstreamMaxStreamDurationReached
    | 0x80_0000; // UpstreamProtocolError

/// Which answers count against a resource.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Errors {
    statuses: Statuses,
    /// A bit for each gRPC status.
    grpc: u64,
}

impl Default for Errors {
    fn default() -> Errors {
        Errors {
            statuses: Statuses::server_errors(),
            // UNKNOWN, DEADLINE_EXCEEDED, INTERNAL, UNAVAILABLE, DATA_LOSS.
            grpc: 1 << 2 | 1 << 4 | 1 << 13 | 1 << 14 | 1 << 15,
        }
    }
}

impl Errors {
    /// Reads the section `errors`.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong in it.
    pub fn read(at: &Located<'_>) -> Result<Errors, ConfigError> {
        let fields = at.object(&["status", "grpcStatus"])?;
        let mut errors = Errors::default();
        if let Some(statuses) = fields.get("status") {
            errors.statuses = read_statuses(&statuses)?;
        }
        if let Some(statuses) = fields.get("grpcStatus") {
            errors.grpc = 0;
            for status in statuses.array()? {
                errors.grpc |= 1 << status.integer(1..=16)?;
            }
        }
        Ok(errors)
    }

    /// Whether a status of HTTP counts.
    pub fn counts(&self, status: u64) -> bool {
        self.statuses.contains(status)
    }
}

/// What has been seen so far of the answer to a call.
#[derive(Default, Debug)]
pub struct Answer {
    /// When it began.
    began: Cell<Option<Timestamp>>,
    grpc_status: Cell<Option<u8>>,
}

impl Answer {
    /// The headers have come; nothing follows them if that `is_all`.
    pub fn begins(&self, host: &impl Host, is_all: bool) {
        self.began.set(host.now());
        if is_all {
            // A gRPC answer that is only an error has its status in the headers.
            self.record_grpc_status(host.response_header("grpc-status"));
        }
    }

    /// The trailers have come.
    pub fn ends(&self, host: &impl Host) {
        self.record_grpc_status(host.response_trailer("grpc-status"));
    }

    fn record_grpc_status(&self, grpc_status: Option<Vec<u8>>) {
        let status = grpc_status.and_then(|status| std::str::from_utf8(&status).ok()?.parse().ok());
        self.grpc_status.set(status);
    }

    /// How the call has ended, and when it was answered, now that all of it is over; `None` where it has no outcome.
    pub fn outcome(
        &self,
        host: &impl Host,
        errors: &Errors,
        now: Timestamp,
    ) -> Option<(Outcome, Timestamp)> {
        let number = |property| {
            let bytes = host.property(property)?;
            Some(u64::from_le_bytes(bytes.try_into().ok()?))
        };
        let code = number(Property::ResponseCode)?;
        if code == SWITCHING_PROTOCOLS {
            return Some((Outcome::Success, self.began.get().unwrap_or(now)));
        }
        let is_named = |grpc_status| {
            1_u64
                .checked_shl(grpc_status)
                .is_some_and(|bit| errors.grpc & bit != 0)
        };
        let is_broken_off =
            || number(Property::ResponseFlags).is_some_and(|flags| flags & BROKEN_OFF != 0);
        let is_error = errors.statuses.contains(code)
            || self
                .grpc_status
                .get()
                .is_some_and(|status| is_named(status.into()))
            || is_broken_off();
        let outcome = if is_error {
            Outcome::Error
        } else {
            Outcome::Success
        };
        Some((outcome, now))
    }
}
