//! The calls that virtual machines send on the host in memory, and the answers that tests give to them.

use leapgate::Timestamp;
use leapgate_envoy::host::{GrpcCall, HttpCall, NotSent};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;

/// A call that was sent.
#[derive(Clone, Debug, Default)]
pub(super) struct Call {
    pub(super) token: u32,
    pub(super) cluster: String,
    /// The headers of an HTTP call; of a gRPC call, `service` and `method`.
    pub(super) headers: HashMap<String, String>,
    pub(super) body: Vec<u8>,
    pub(super) timeout_ms: u32,
}

impl From<&HttpCall<'_>> for Call {
    fn from(call: &HttpCall<'_>) -> Call {
        let pairs = call.headers.iter();
        Call {
            token: 0,
            cluster: call.cluster.into(),
            headers: pairs
                .map(|(name, value)| (name.to_string(), value.to_string()))
                .collect(),
            body: call.body.into(),
            timeout_ms: call.timeout_ms,
        }
    }
}

impl From<&GrpcCall<'_>> for Call {
    fn from(call: &GrpcCall<'_>) -> Call {
        let pairs = [("service", call.service), ("method", call.method)];
        Call {
            token: 0,
            cluster: call.cluster.into(),
            headers: pairs
                .map(|(name, value)| (name.into(), value.into()))
                .into(),
            body: call.message.into(),
            timeout_ms: call.timeout_ms,
        }
    }
}

/// The calls of a process, and the answer at hand.
#[derive(Default)]
pub(super) struct Calls {
    sent: RefCell<Vec<Call>>,
    tokens: Cell<u32>,
    /// Why no call is sent, if none is.
    pub(super) fault: Cell<Option<NotSent>>,
    /// How far the wall clock is ahead of the monotonic one, in milliseconds.
    pub(super) wall_ahead: Cell<i64>,
    answer: RefCell<Option<(Option<String>, Vec<u8>)>>,
}

impl Calls {
    pub(super) fn send(&self, call: Call) -> Result<u32, NotSent> {
        if let Some(fault) = self.fault.get() {
            return Err(fault);
        }
        let token = self.tokens.get() + 1;
        self.tokens.set(token);
        self.sent.borrow_mut().push(Call { token, ..call });
        Ok(token)
    }

    pub(super) fn wall(&self, millis: u64) -> Option<Timestamp> {
        let ahead = 1_700_000_000_000 + self.wall_ahead.get();
        Some(Timestamp::from_millis(millis.wrapping_add_signed(ahead)))
    }

    pub(super) fn header(&self, name: &str) -> Option<Vec<u8>> {
        assert_eq!(name, ":status");
        let answer = self.answer.borrow();
        let (status, _) = answer.as_ref()?;
        Some(status.clone()?.into_bytes())
    }

    pub(super) fn bytes(&self, size: usize) -> Option<Vec<u8>> {
        let answer = self.answer.borrow();
        let (_, body) = answer.as_ref()?;
        // Envoy returns no bytes of an empty body.
        let bytes: Vec<u8> = body.iter().copied().take(size).collect();
        Some(bytes).filter(|bytes| !bytes.is_empty())
    }

    /// Another context is attended to.
    pub(super) fn leave_answer(&self) {
        self.answer.take();
    }

    /// How many calls have been sent since they were taken.
    pub(super) fn sent(&self) -> usize {
        self.sent.borrow().len()
    }

    /// The calls that have been sent since this was asked before.
    pub(super) fn take(&self) -> Vec<Call> {
        self.sent.take()
    }

    /// From now on this is the answer at hand.
    pub(super) fn set_answer(&self, status: Option<u32>, body: &[u8]) {
        let status = status.map(|status| status.to_string());
        self.answer.replace(Some((status, body.into())));
    }
}
