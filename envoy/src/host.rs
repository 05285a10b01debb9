//! The host calls that the filter makes. Every one of them is named here, and nowhere else.
//!
//! The calls are declared here rather than taken from the SDK, which panics on a status that it does not expect. Here each
//! status is a value.

use leapgate::Timestamp;
use std::borrow::Cow;

/// How much a log line matters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Debug)]
pub enum Level {
    /// Good to know.
    Info = 2,
    /// A guarantee has changed.
    Warn = 3,
    /// The configuration is refused.
    Error = 4,
}

/// What the filter reads of a request or of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Property {
    /// The name of the route that was chosen.
    RouteName,
    /// The name of the virtual host that was chosen.
    VirtualHostName,
    /// The root id of the plugin.
    RootId,
    /// The status of the response: eight bytes, little-endian. None where there has been no response.
    ResponseCode,
    /// Envoy's flags of how the request ended, a bit for each: eight bytes, little-endian.
    ResponseFlags,
    /// The URI that the peer's certificate names as its subject's alternative name: in Istio, its SPIFFE id.
    PeerUri,
    /// The subject of the peer's certificate.
    PeerSubject,
    /// The client's address, from the sources that Envoy's configuration trusts: `ip:port`.
    SourceAddress,
    /// This end of the connection to the upstream: `ip:port`. None where there was none in the last try.
    UpstreamLocalAddress,
    /// The bytes of the request's body: eight bytes, little-endian.
    RequestSize,
    /// The bytes of the response's body that were sent: eight bytes, little-endian.
    ResponseSize,
}

/// What a metric does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// It only rises.
    Counter = 0,
    /// It rises and falls: one number for the whole process.
    Gauge = 1,
    /// How often which numbers were recorded.
    Histogram = 2,
}

/// A metric of the host's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MetricId(pub u32);

/// What stood in a place of shared data, and the number to replace it by.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SharedValue {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The number of this version.
    pub cas: u32,
}

/// How a value is put in its place in shared data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Put {
    /// Whatever stood there.
    Always,
    /// If nothing stood there.
    IfAbsent,
    /// If what stands there is still that version.
    IfVersion(u32),
}

/// A reply that the filter gives itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LocalReply<'a> {
    /// The HTTP status; a gRPC request gets its own.
    pub status: u16,
    /// The gRPC status.
    pub grpc_status: i32,
    /// What the access log shows as the response code details.
    pub details: &'a str,
    /// The headers, names in lower case, as [`pairs`] writes them.
    pub headers: &'a [u8],
    /// The body; for a gRPC request, the message.
    pub body: &'a str,
}

/// Pairs of which there are none.
pub const NO_PAIRS: [u8; 4] = [0; 4];

/// Pairs as the ABI wants them: their number, the length of each name and value, then each of them with a zero byte.
pub fn pairs(pairs: &[(&str, Cow<'_, str>)]) -> Vec<u8> {
    let texts = || pairs.iter().flat_map(|(name, value)| [*name, value]);
    let mut bytes = Vec::with_capacity(4 + texts().map(|text| text.len() + 5).sum::<usize>());
    bytes.extend_from_slice(&(pairs.len() as u32).to_le_bytes());
    texts().for_each(|text| bytes.extend_from_slice(&(text.len() as u32).to_le_bytes()));
    for text in texts() {
        bytes.extend_from_slice(text.as_bytes());
        bytes.push(0);
    }
    bytes
}

/// An HTTP request that the filter sends itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HttpCall<'a> {
    /// The cluster that it goes to.
    pub cluster: &'a str,
    /// The headers, `:method`, `:path` and `:authority` among them.
    pub headers: &'a [(&'a str, Cow<'a, str>)],
    /// The body.
    pub body: &'a [u8],
    /// After so many milliseconds its answer is the status 504.
    pub timeout_ms: u32,
}

/// A gRPC request with one message and one answer that the filter sends itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GrpcCall<'a> {
    /// The cluster that it goes to.
    pub cluster: &'a str,
    /// The full name of the service.
    pub service: &'a str,
    /// The method.
    pub method: &'a str,
    /// The message, as protobuf writes it.
    pub message: &'a [u8],
    /// After so many milliseconds it has failed with the status 14.
    pub timeout_ms: u32,
}

/// Why a call was not sent. There will be no answer to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotSent {
    /// There is no cluster of that name.
    UnknownCluster,
    /// The cluster has no host, or as many requests as its circuit breaker allows; or the module may not make such calls.
    Refused,
}

/// What has come of a call. A call is answered once, by the token that it was given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The response to an HTTP call, whose body has so many bytes. It has no header `:status` where the connection ended first.
    Http(usize),
    /// The message that answers a gRPC call has so many bytes.
    Grpc(usize),
    /// A gRPC call has failed with this status.
    GrpcFailed(u32),
}

/// A proxy that runs the filter. `None` and `false` mean that the host did not do it.
pub trait Host: Clone + 'static {
    /// The value of a property; `None` where there is none.
    fn property(&self, property: Property) -> Option<Vec<u8>>;
    /// The value of the property at this path, whose names have a zero byte between each two; `None` where there is none, and
    /// where the host cannot serialize it (a struct with a null in it).
    fn property_at(&self, path: &str) -> Option<Vec<u8>>;
    /// The first `size` bytes of the plugin's configuration.
    fn configuration(&self, size: usize) -> Option<Vec<u8>>;
    /// The first value of a request header, or of a pseudo header (`:path`); `None` where it is empty, too.
    fn request_header(&self, name: &str) -> Option<Vec<u8>>;
    /// The first value of a response header.
    fn response_header(&self, name: &str) -> Option<Vec<u8>>;
    /// The first value of a response trailer.
    fn response_trailer(&self, name: &str) -> Option<Vec<u8>>;
    /// Adds a header to the response.
    fn add_response_header(&self, name: &str, value: &str) -> bool;
    /// From now on until the callback returns, calls are about the request in that context; `false` where there is none any more.
    fn attend(&self, context: u32) -> bool;
    /// Lets the request go on that was paused in that context; `false` where there is none any more. From then on until the
    /// callback returns, calls are about that request.
    fn resume(&self, context: u32) -> bool;
    /// Answers the request.
    fn reply(&self, reply: &LocalReply<'_>) -> bool;
    /// A clock that never steps back, the same on all threads; `None` where there is none.
    fn now(&self) -> Option<Timestamp>;
    /// The time since 1970, as the machine's administrator sets it; `None` where there is no such clock.
    fn wall(&self) -> Option<Timestamp>;
    /// Sixteen bytes that no client can guess; `None` if there are none.
    fn random(&self) -> Option<[u8; 16]>;
    /// Sets the milliseconds between two ticks; 0 ends them.
    fn set_tick_period(&self, millis: u32) -> bool;
    /// The metric of that name, made if need be.
    fn define_metric(&self, kind: Kind, name: &str) -> Option<MetricId>;
    /// Adds to a metric.
    fn add(&self, metric: MetricId, n: i64) -> bool;
    /// Records a number in a histogram.
    fn record(&self, metric: MetricId, value: u64) -> bool;
    /// Reads a metric.
    fn read(&self, metric: MetricId) -> Option<u64>;
    /// What stands in a place of shared data; `None` where nothing does.
    fn shared(&self, key: &str) -> Option<SharedValue>;
    /// Puts bytes in a place of shared data.
    fn share(&self, key: &str, bytes: &[u8], put: Put) -> bool;
    /// Sends an HTTP request in the name of the plugin: whatever becomes of the request at hand, its answer comes. Returns the
    /// call's token.
    fn call_http(&self, call: &HttpCall<'_>) -> Result<u32, NotSent>;
    /// The same of a gRPC request. No two calls have one token, of either kind.
    fn call_grpc(&self, call: &GrpcCall<'_>) -> Result<u32, NotSent>;
    /// The first value of a header of the answer at hand; `None` once another context is attended to, as of the two below.
    fn answer_header(&self, name: &str) -> Option<Vec<u8>>;
    /// The first `size` bytes of the body of the answer at hand.
    fn answer_body(&self, size: usize) -> Option<Vec<u8>>;
    /// The first `size` bytes of the gRPC message at hand.
    fn answer_message(&self, size: usize) -> Option<Vec<u8>>;
    /// Writes a line to the log.
    fn log(&self, level: Level, line: &str);
}

#[cfg(all(target_arch = "wasm32", feature = "plugin"))]
pub use calls::Proxy;
#[cfg(all(target_arch = "wasm32", feature = "plugin"))]
pub(crate) use calls::callbacks;

#[cfg(all(target_arch = "wasm32", feature = "plugin"))]
#[allow(unsafe_code, reason = "the host is reached through pointers")]
mod calls;
