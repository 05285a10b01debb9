//! Calls that a module sends to clusters, and the answers that a test gives to them.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};

use crate::abi::{Headers, Status};
use crate::vm::{State, Vm};

/// A call that a module has sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outgoing {
    /// By this the module knows its answer.
    pub token: u32,
    /// The cluster.
    pub cluster: String,
    /// The headers of an HTTP call.
    pub headers: Headers,
    /// The service and the method of a gRPC call.
    pub grpc: Option<[String; 2]>,
    /// The body, or the message.
    pub body: Vec<u8>,
    /// The time-out.
    pub timeout_ms: u32,
    pub(crate) root: u32,
}

/// What comes of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The response to an HTTP call: headers, `:status` among them, and the body. No headers: the connection ended first.
    Http(Headers, Vec<u8>),
    /// The message that answers a gRPC call.
    Grpc(Vec<u8>),
    /// The status with which a gRPC call has failed.
    GrpcFailed(u32),
}

impl Answer {
    /// A response of this status and body.
    pub fn http(status: u32, body: &str) -> Self {
        Self::Http(
            vec![(":status".to_owned(), status.to_string())],
            body.into(),
        )
    }
}

/// The calls of a VM.
#[derive(Default)]
pub(crate) struct Calls {
    waiting: BTreeMap<u32, Outgoing>,
    tokens: u32,
    /// The status with which each call fails at once, if it does.
    fault: Option<Status>,
    answer: Option<AtHand>,
}

/// The answer that the module hears of.
pub(crate) struct AtHand {
    root: u32,
    pub(crate) headers: Headers,
    pub(crate) body: Vec<u8>,
}

impl State {
    /// Sends a call, in the name of the root context as in Envoy, whichever context makes it.
    pub(crate) fn send(&mut self, call: Outgoing) -> std::result::Result<u32, Status> {
        if let Some(status) = self.outgoing.fault {
            return Err(status);
        }
        let root = self.root_of(self.context());
        self.outgoing.tokens += 1;
        let token = self.outgoing.tokens;
        let call = Outgoing {
            token,
            root,
            ..call
        };
        self.outgoing.waiting.insert(token, call);
        Ok(token)
    }

    /// The answer that the present context hears of.
    pub(crate) fn answer_at_hand(&mut self) -> Option<&mut AtHand> {
        let context = self.context();
        let answer = self.outgoing.answer.as_mut();
        answer.filter(|answer| answer.root == context)
    }
}

impl Vm {
    /// The calls that have no answer yet, oldest first.
    pub fn outgoing(&self) -> Vec<Outgoing> {
        self.store
            .data()
            .outgoing
            .waiting
            .values()
            .cloned()
            .collect()
    }

    /// From now on each call fails at once with this status: `BadArgument` as of an unknown cluster, `InternalFailure` as of one
    /// without hosts. `None`: calls are sent.
    pub fn fail_calls(&mut self, status: Option<Status>) {
        self.store.data_mut().outgoing.fault = status;
    }

    /// Answers a call. An answer whose root context has ended is dropped, as in Envoy.
    pub fn answer(&mut self, token: u32, answer: Answer) -> Result<()> {
        let state = self.store.data_mut();
        let call = state.outgoing.waiting.remove(&token);
        let root = call.with_context(|| format!("no call {token}"))?.root;
        if !state.roots.contains(&root) {
            return Ok(());
        }
        let (callback, rest, headers, body) = match answer {
            Answer::Http(headers, body) => {
                let sizes = vec![token, headers.len() as u32, body.len() as u32, 0];
                ("proxy_on_http_call_response", sizes, headers, body)
            }
            Answer::Grpc(message) => {
                let sizes = vec![token, message.len() as u32];
                ("proxy_on_grpc_receive", sizes, Headers::new(), message)
            }
            Answer::GrpcFailed(status) => {
                let rest = vec![token, status];
                ("proxy_on_grpc_close", rest, Headers::new(), Vec::new())
            }
        };
        state.outgoing.answer = Some(AtHand {
            root,
            headers,
            body,
        });
        let outcome = self.callback(callback, root, &rest);
        self.store.data_mut().outgoing.answer = None;
        outcome.map(|_| ())
    }
}
