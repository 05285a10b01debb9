//! The host calls themselves, in a module of wasm.

use super::{
    GrpcCall, Host, HttpCall, Kind, Level, LocalReply, MetricId, NO_PAIRS, NotSent, Property, Put,
    SharedValue, pairs,
};
use leapgate::Timestamp;
use std::ptr::null_mut;

/// `WasmResult::Ok` of the ABI.
const OK: u32 = 0;
const BAD_ARGUMENT: u32 = 2;
const PARSE_FAILURE: u32 = 4;
const CALL_BODY: u32 = 4;
const GRPC_MESSAGE: u32 = 5;
const PLUGIN_CONFIGURATION: u32 = 7;
const REQUEST_HEADERS: u32 = 0;
const RESPONSE_HEADERS: u32 = 2;
const RESPONSE_TRAILERS: u32 = 3;
const CALL_HEADERS: u32 = 6;
const CLOCK_REALTIME: u32 = 0;
const CLOCK_MONOTONIC: u32 = 1;
const HTTP_REQUEST: u32 = 0;

// ABI 0.2.1. The host copies arguments during the call, and puts results in memory from this module's `malloc`.
#[link(wasm_import_module = "env")]
unsafe extern "C" {
    fn proxy_log(level: u32, data: *const u8, size: usize) -> u32;
    fn proxy_set_tick_period_milliseconds(millis: u32) -> u32;
    fn proxy_get_property(
        path: *const u8,
        size: usize,
        data: *mut *mut u8,
        data_size: *mut usize,
    ) -> u32;
    fn proxy_get_buffer_bytes(
        buffer: u32,
        at: usize,
        size: usize,
        data: *mut *mut u8,
        data_size: *mut usize,
    ) -> u32;
    fn proxy_get_header_map_value(
        map: u32,
        key: *const u8,
        size: usize,
        data: *mut *mut u8,
        data_size: *mut usize,
    ) -> u32;
    fn proxy_add_header_map_value(
        map: u32,
        key: *const u8,
        size: usize,
        value: *const u8,
        value_size: usize,
    ) -> u32;
    fn proxy_define_metric(kind: u32, name: *const u8, size: usize, id: *mut u32) -> u32;
    fn proxy_increment_metric(id: u32, offset: i64) -> u32;
    fn proxy_record_metric(id: u32, value: u64) -> u32;
    fn proxy_get_metric(id: u32, value: *mut u64) -> u32;
    fn proxy_get_shared_data(
        key: *const u8,
        size: usize,
        data: *mut *mut u8,
        data_size: *mut usize,
        cas: *mut u32,
    ) -> u32;
    fn proxy_set_shared_data(
        key: *const u8,
        size: usize,
        data: *const u8,
        data_size: usize,
        cas: u32,
    ) -> u32;
    fn proxy_set_effective_context(context: u32) -> u32;
    fn proxy_continue_stream(stream: u32) -> u32;
    fn proxy_send_local_response(
        status: u32,
        details: *const u8,
        details_size: usize,
        body: *const u8,
        body_size: usize,
        headers: *const u8,
        headers_size: usize,
        grpc_status: i32,
    ) -> u32;
    fn proxy_http_call(
        cluster: *const u8,
        cluster_size: usize,
        headers: *const u8,
        headers_size: usize,
        body: *const u8,
        body_size: usize,
        trailers: *const u8,
        trailers_size: usize,
        timeout_ms: u32,
        token: *mut u32,
    ) -> u32;
    fn proxy_grpc_call(
        cluster: *const u8,
        cluster_size: usize,
        service: *const u8,
        service_size: usize,
        method: *const u8,
        method_size: usize,
        metadata: *const u8,
        metadata_size: usize,
        message: *const u8,
        message_size: usize,
        timeout_ms: u32,
        token: *mut u32,
    ) -> u32;
}

#[link(wasm_import_module = "wasi_snapshot_preview1")]
unsafe extern "C" {
    fn clock_time_get(clock: u32, precision: u64, time: *mut u64) -> u32;
    fn random_get(data: *mut u8, size: usize) -> u32;
}

/// Exports functions, which `callbacks.wat` gives the names that the host calls.
#[cfg(feature = "plugin")]
macro_rules! callbacks {
    ($($(#[$doc:meta])* fn $name:ident($($argument:tt: $of:ty),*) $(-> $result:ty)? $body:block)*) => {$(
        $(#[$doc])*
        // SAFETY: no other function has such a name.
        #[unsafe(no_mangle)]
        extern "C" fn $name($($argument: $of),*) $(-> $result)? $body
    )*};
}
#[cfg(feature = "plugin")]
pub(crate) use callbacks;

/// The proxy that this module runs in.
#[derive(Clone, Copy, Debug)]
pub struct Proxy;

/// Takes over what a call has returned in memory of this module's.
fn returned(call: impl FnOnce(*mut *mut u8, *mut usize) -> u32) -> Option<Vec<u8>> {
    let (mut data, mut size) = (null_mut(), 0usize);
    if call(&mut data, &mut size) != OK || data.is_null() {
        return None;
    }
    // SAFETY: the host has got `data` from this module's `malloc` (a boxed slice of `size` bytes), has written all of it,
    // and keeps no pointer to it.
    Some(unsafe { Vec::from_raw_parts(data, size, size) })
}

fn header(map: u32, name: &str) -> Option<Vec<u8>> {
    // SAFETY: as of every call below.
    returned(|data, size| unsafe {
        proxy_get_header_map_value(map, name.as_ptr(), name.len(), data, size)
    })
}

fn buffer(buffer: u32, size: usize) -> Option<Vec<u8>> {
    returned(|data, length| unsafe { proxy_get_buffer_bytes(buffer, 0, size, data, length) })
}

fn clock(clock: u32) -> Option<Timestamp> {
    let mut nanos = 0;
    let status = unsafe { clock_time_get(clock, 0, &mut nanos) };
    (status == OK).then(|| Timestamp::from_nanos(nanos))
}

/// The token of a call with this status.
fn sent(status: u32, token: u32) -> Result<u32, NotSent> {
    match status {
        OK => Ok(token),
        BAD_ARGUMENT | PARSE_FAILURE => Err(NotSent::UnknownCluster),
        _ => Err(NotSent::Refused),
    }
}

// SAFETY of every call below: pointers and lengths are those of live slices, or of locals that outlive the call.
impl Host for Proxy {
    fn property(&self, property: Property) -> Option<Vec<u8>> {
        self.property_at(match property {
            Property::RouteName => "xds\0route_name",
            Property::VirtualHostName => "xds\0virtual_host_name",
            Property::RootId => "plugin_root_id",
            Property::ResponseCode => "response\0code",
            Property::ResponseFlags => "response\0flags",
            Property::PeerUri => "connection\0uri_san_peer_certificate",
            Property::PeerSubject => "connection\0subject_peer_certificate",
            Property::SourceAddress => "source\0address",
            Property::UpstreamLocalAddress => "upstream\0local_address",
            Property::RequestSize => "request\0size",
            Property::ResponseSize => "response\0size",
        })
    }

    fn property_at(&self, path: &str) -> Option<Vec<u8>> {
        returned(|data, size| unsafe { proxy_get_property(path.as_ptr(), path.len(), data, size) })
    }

    fn configuration(&self, size: usize) -> Option<Vec<u8>> {
        buffer(PLUGIN_CONFIGURATION, size)
    }

    fn request_header(&self, name: &str) -> Option<Vec<u8>> {
        header(REQUEST_HEADERS, name)
    }

    fn response_header(&self, name: &str) -> Option<Vec<u8>> {
        header(RESPONSE_HEADERS, name)
    }

    fn response_trailer(&self, name: &str) -> Option<Vec<u8>> {
        header(RESPONSE_TRAILERS, name)
    }

    fn add_response_header(&self, name: &str, value: &str) -> bool {
        let status = unsafe {
            proxy_add_header_map_value(
                RESPONSE_HEADERS,
                name.as_ptr(),
                name.len(),
                value.as_ptr(),
                value.len(),
            )
        };
        status == OK
    }

    fn attend(&self, context: u32) -> bool {
        unsafe { proxy_set_effective_context(context) == OK }
    }

    fn resume(&self, context: u32) -> bool {
        self.attend(context) && unsafe { proxy_continue_stream(HTTP_REQUEST) == OK }
    }

    fn reply(&self, reply: &LocalReply<'_>) -> bool {
        let status = unsafe {
            proxy_send_local_response(
                reply.status.into(),
                reply.details.as_ptr(),
                reply.details.len(),
                reply.body.as_ptr(),
                reply.body.len(),
                reply.headers.as_ptr(),
                reply.headers.len(),
                reply.grpc_status,
            )
        };
        status == OK
    }

    fn now(&self) -> Option<Timestamp> {
        clock(CLOCK_MONOTONIC)
    }

    fn wall(&self) -> Option<Timestamp> {
        clock(CLOCK_REALTIME)
    }

    fn random(&self) -> Option<[u8; 16]> {
        let mut bytes = [0; 16];
        let status = unsafe { random_get(bytes.as_mut_ptr(), bytes.len()) };
        (status == OK).then_some(bytes)
    }

    fn set_tick_period(&self, millis: u32) -> bool {
        unsafe { proxy_set_tick_period_milliseconds(millis) == OK }
    }

    fn define_metric(&self, kind: Kind, name: &str) -> Option<MetricId> {
        let mut id = 0;
        let status =
            unsafe { proxy_define_metric(kind as u32, name.as_ptr(), name.len(), &mut id) };
        (status == OK).then_some(MetricId(id))
    }

    fn add(&self, metric: MetricId, n: i64) -> bool {
        unsafe { proxy_increment_metric(metric.0, n) == OK }
    }

    fn record(&self, metric: MetricId, value: u64) -> bool {
        unsafe { proxy_record_metric(metric.0, value) == OK }
    }

    fn read(&self, metric: MetricId) -> Option<u64> {
        let mut value = 0;
        let status = unsafe { proxy_get_metric(metric.0, &mut value) };
        (status == OK).then_some(value)
    }

    fn shared(&self, key: &str) -> Option<SharedValue> {
        let mut cas = 0;
        let bytes = returned(|data, size| unsafe {
            proxy_get_shared_data(key.as_ptr(), key.len(), data, size, &mut cas)
        })?;
        Some(SharedValue { bytes, cas })
    }

    fn share(&self, key: &str, bytes: &[u8], put: Put) -> bool {
        // 0 is "whatever version"; a version that cannot be is put only where there is none.
        let cas = match put {
            Put::Always => 0,
            Put::IfAbsent => u32::MAX,
            Put::IfVersion(version) => version,
        };
        unsafe {
            proxy_set_shared_data(key.as_ptr(), key.len(), bytes.as_ptr(), bytes.len(), cas) == OK
        }
    }

    fn call_http(&self, call: &HttpCall<'_>) -> Result<u32, NotSent> {
        let headers = pairs(call.headers);
        let mut token = 0;
        let status = unsafe {
            proxy_http_call(
                call.cluster.as_ptr(),
                call.cluster.len(),
                headers.as_ptr(),
                headers.len(),
                call.body.as_ptr(),
                call.body.len(),
                NO_PAIRS.as_ptr(),
                NO_PAIRS.len(),
                call.timeout_ms,
                &mut token,
            )
        };
        sent(status, token)
    }

    fn call_grpc(&self, call: &GrpcCall<'_>) -> Result<u32, NotSent> {
        let mut token = 0;
        let status = unsafe {
            proxy_grpc_call(
                call.cluster.as_ptr(),
                call.cluster.len(),
                call.service.as_ptr(),
                call.service.len(),
                call.method.as_ptr(),
                call.method.len(),
                NO_PAIRS.as_ptr(),
                NO_PAIRS.len(),
                call.message.as_ptr(),
                call.message.len(),
                call.timeout_ms,
                &mut token,
            )
        };
        sent(status, token)
    }

    fn answer_header(&self, name: &str) -> Option<Vec<u8>> {
        header(CALL_HEADERS, name)
    }

    fn answer_body(&self, size: usize) -> Option<Vec<u8>> {
        buffer(CALL_BODY, size)
    }

    fn answer_message(&self, size: usize) -> Option<Vec<u8>> {
        buffer(GRPC_MESSAGE, size)
    }

    fn log(&self, level: Level, line: &str) {
        // If the host cannot log, there is nowhere to report it.
        let _ = unsafe { proxy_log(level as u32, line.as_ptr(), line.len()) };
    }
}
