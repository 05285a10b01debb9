//! The host calls that a module may import, each with Envoy's answer.

use wasmi::{AsContext as _, AsContextMut as _, Caller, Error, Val};

use crate::abi::{Headers, MetricKind, Status, pairs_from_bytes, pairs_to_bytes};
use crate::outgoing::Outgoing;
use crate::vm::{LocalReply, State};

/// The arguments of one call, by position.
pub(crate) struct Args<'a>(pub(crate) &'a [Val]);

impl Args<'_> {
    fn u32(&self, at: usize) -> Result<u32, Error> {
        match self.0.get(at) {
            Some(Val::I32(value)) => Ok(*value as u32),
            other => Err(Error::new(format!(
                "argument {at} should be an i32 and is {other:?}"
            ))),
        }
    }

    fn u64(&self, at: usize) -> Result<u64, Error> {
        match self.0.get(at) {
            Some(Val::I64(value)) => Ok(*value as u64),
            other => Err(Error::new(format!(
                "argument {at} should be an i64 and is {other:?}"
            ))),
        }
    }
}

type HostCall = fn(&mut Caller<'_, State>, &Args<'_>) -> Result<Status, Error>;

/// The function behind an import, if this host has it.
pub(crate) fn find(module: &str, name: &str) -> Option<HostCall> {
    Some(match (module, name) {
        ("wasi_snapshot_preview1", "clock_time_get") => clock_time_get,
        ("wasi_snapshot_preview1", "random_get") => random_get,
        ("env", name) => match name {
            "proxy_log" => log,
            "proxy_get_log_level" => get_log_level,
            "proxy_get_current_time_nanoseconds" => get_current_time,
            "proxy_set_tick_period_milliseconds" => set_tick_period,
            "proxy_get_property" => get_property,
            "proxy_set_property" => set_property,
            "proxy_get_buffer_bytes" => get_buffer_bytes,
            "proxy_define_metric" => define_metric,
            "proxy_increment_metric" => increment_metric,
            "proxy_record_metric" => record_metric,
            "proxy_get_metric" => get_metric,
            "proxy_get_shared_data" => get_shared_data,
            "proxy_set_shared_data" => set_shared_data,
            "proxy_get_header_map_value" => get_header_map_value,
            "proxy_get_header_map_pairs" => get_header_map_pairs,
            "proxy_add_header_map_value" => add_header_map_value,
            "proxy_replace_header_map_value" => replace_header_map_value,
            "proxy_remove_header_map_value" => remove_header_map_value,
            "proxy_send_local_response" => send_local_response,
            "proxy_continue_stream" => continue_stream,
            "proxy_close_stream" => close_stream,
            "proxy_set_effective_context" => set_effective_context,
            "proxy_http_call" => http_call,
            "proxy_grpc_call" => grpc_call,
            "proxy_done" => done,
            _ => return None,
        },
        _ => return None,
    })
}

// --- memory -------------------------------------------------------------------------------------

/// The module's bytes at `at`, or `None` where they lie outside its memory.
fn bytes(caller: &Caller<'_, State>, at: u32, size: u32) -> Option<Vec<u8>> {
    let memory = caller.data().memory?;
    let end = (at as usize).checked_add(size as usize)?;
    memory
        .data(caller.as_context())
        .get(at as usize..end)
        .map(<[u8]>::to_vec)
}

fn text(caller: &Caller<'_, State>, at: u32, size: u32) -> Option<String> {
    bytes(caller, at, size).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

fn write(caller: &mut Caller<'_, State>, at: u32, bytes: &[u8]) -> Status {
    let Some(memory) = caller.data().memory else {
        return Status::InvalidMemoryAccess;
    };
    match memory.write(caller.as_context_mut(), at as usize, bytes) {
        Ok(()) => Status::Ok,
        Err(_) => Status::InvalidMemoryAccess,
    }
}

/// Gives `bytes` to the module in memory that it allocates itself. No bytes are a null pointer,
/// without an allocation.
fn give(
    caller: &mut Caller<'_, State>,
    bytes: &[u8],
    pointer_at: u32,
    size_at: u32,
) -> Result<Status, Error> {
    let mut pointer = 0_u32;
    if !bytes.is_empty() {
        let state = caller.data_mut();
        let Some((name, allocate)) = state.allocate.clone() else {
            return Ok(Status::InvalidMemoryAccess);
        };
        state.cost.calls_with_bytes += 1;
        let before = caller.get_fuel()?;
        let mut result = [Val::I32(0)];
        allocate.call(
            caller.as_context_mut(),
            &[Val::I32(bytes.len() as i32)],
            &mut result,
        )?;
        let burnt = before - caller.get_fuel()?;
        // It is an entry of its own, inside that of the callback.
        let state = caller.data_mut();
        state.nested_fuel += burnt;
        state.cost.count_entry(&name, burnt);
        let [Val::I32(address)] = result else {
            return Ok(Status::InvalidMemoryAccess);
        };
        pointer = address as u32;
        if pointer == 0 || write(caller, pointer, bytes) != Status::Ok {
            return Ok(Status::InvalidMemoryAccess);
        }
    }
    let statuses = [
        write(caller, pointer_at, &pointer.to_le_bytes()),
        write(caller, size_at, &(bytes.len() as u32).to_le_bytes()),
    ];
    Ok(statuses
        .into_iter()
        .find(|status| *status != Status::Ok)
        .unwrap_or(Status::Ok))
}

// --- time, log, ticks ---------------------------------------------------------------------------

fn clock_time_get(caller: &mut Caller<'_, State>, args: &Args<'_>) -> Result<Status, Error> {
    let host = &caller.data().host;
    let now = match args.u32(0)? {
        0 => host.wall_ns(),
        1 => host.now_ns(),
        // WASI's own numbers: 58 is ENOTSUP. Only zero and not zero matter to a caller.
        _ => return Ok(Status::BadArgument),
    };
    Ok(write(caller, args.u32(2)?, &now.to_le_bytes()))
}

/// The same bytes every time: what a test counts must not depend on them.
fn random_get(caller: &mut Caller<'_, State>, args: &Args<'_>) -> Result<Status, Error> {
    let size = args.u32(1)?.min(64 * 1024);
    let bytes: Vec<u8> = (0..size).map(|at| (at * 151 + 89) as u8).collect();
    Ok(write(caller, args.u32(0)?, &bytes))
}

fn get_current_time(caller: &mut Caller<'_, State>, args: &Args<'_>) -> Result<Status, Error> {
    let now = caller.data().host.wall_ns();
    Ok(write(caller, args.u32(0)?, &now.to_le_bytes()))
}

fn log(caller: &mut Caller<'_, State>, args: &Args<'_>) -> Result<Status, Error> {
    let level = args.u32(0)?;
    let Some(line) = text(caller, args.u32(1)?, args.u32(2)?) else {
        return Ok(Status::InvalidMemoryAccess);
    };
    if level > 5 {
        return Ok(Status::BadArgument);
    }
    let state = caller.data();
    state.host.write_log(&state.plugin.vm, level, line);
    Ok(Status::Ok)
}

fn get_log_level(caller: &mut Caller<'_, State>, args: &Args<'_>) -> Result<Status, Error> {
    let level = caller.data().host.log_level();
    Ok(write(caller, args.u32(0)?, &level.to_le_bytes()))
}

fn set_tick_period(caller: &mut Caller<'_, State>, args: &Args<'_>) -> Result<Status, Error> {
    let period = args.u32(0)?;
    let state = caller.data_mut();
    let root = state.root_of(state.context());
    state.tick_periods.insert(root, period);
    Ok(Status::Ok)
}

// --- properties and buffers ---------------------------------------------------------------------

fn get_property(caller: &mut Caller<'_, State>, args: &Args<'_>) -> Result<Status, Error> {
    let Some(path) = bytes(caller, args.u32(0)?, args.u32(1)?) else {
        return Ok(Status::InvalidMemoryAccess);
    };
    match caller.data().property(&path) {
        Some(value) => give(caller, &value, args.u32(2)?, args.u32(3)?),
        None => Ok(Status::NotFound),
    }
}

fn set_property(caller: &mut Caller<'_, State>, args: &Args<'_>) -> Result<Status, Error> {
    let path = text(caller, args.u32(0)?, args.u32(1)?);
    let value = bytes(caller, args.u32(2)?, args.u32(3)?);
    let (Some(path), Some(value)) = (path, value) else {
        return Ok(Status::InvalidMemoryAccess);
    };
    match caller.data_mut().stream() {
        Some(stream) => {
            stream.filter_state.insert(path, value);
            Ok(Status::Ok)
        }
        None => Ok(Status::NotFound),
    }
}

const CALL_BODY: u32 = 4;
const GRPC_MESSAGE: u32 = 5;
const VM_CONFIGURATION: u32 = 6;
const PLUGIN_CONFIGURATION: u32 = 7;

fn get_buffer_bytes(caller: &mut Caller<'_, State>, args: &Args<'_>) -> Result<Status, Error> {
    let state = caller.data_mut();
    let buffer = match args.u32(0)? {
        VM_CONFIGURATION => Some(state.plugin.vm_configuration.clone()),
        // Envoy holds it for the length of `proxy_on_configure` only.
        PLUGIN_CONFIGURATION => state.configuration.clone(),
        // Of a call that the module has sent, while it hears of the answer.
        CALL_BODY | GRPC_MESSAGE => state.answer_at_hand().map(|answer| answer.body.clone()),
        _ => None,
    };
    let Some(buffer) = buffer else {
        return Ok(Status::NotFound);
    };
    let start = args.u32(1)? as usize;
    let end = start
        .saturating_add(args.u32(2)? as usize)
        .min(buffer.len());
    match buffer.get(start..end) {
        Some(part) if !part.is_empty() => give(caller, part, args.u32(3)?, args.u32(4)?),
        Some(_) => Ok(Status::Ok),
        None => Ok(Status::BadArgument),
    }
}

// --- metrics and shared data --------------------------------------------------------------------

fn define_metric(caller: &mut Caller<'_, State>, args: &Args<'_>) -> Result<Status, Error> {
    let Some(name) = text(caller, args.u32(1)?, args.u32(2)?) else {
        return Ok(Status::InvalidMemoryAccess);
    };
    let Some(kind) = MetricKind::from_number(args.u32(0)?) else {
        return Ok(Status::BadArgument);
    };
    let state = caller.data_mut();
    state.host.define_metric(kind, &name);
    // An id belongs to the VM, is never the same twice, and carries the kind in its lowest bits.
    let id = ((state.metrics.len() as u32 + 1) << 2) | kind as u32;
    state.metrics.push((kind, name));
    Ok(write(caller, args.u32(3)?, &id.to_le_bytes()))
}

fn increment_metric(caller: &mut Caller<'_, State>, args: &Args<'_>) -> Result<Status, Error> {
    let offset = args.u64(1)? as i64;
    let state = caller.data();
    Ok(match state.metric(args.u32(0)?) {
        Some((kind, name)) => state.host.increment_metric(kind, name, offset),
        None => Status::NotFound,
    })
}

fn record_metric(caller: &mut Caller<'_, State>, args: &Args<'_>) -> Result<Status, Error> {
    let value = args.u64(1)?;
    let state = caller.data();
    match state.metric(args.u32(0)?) {
        Some((kind, name)) => state.host.record_metric(kind, name, value),
        None => return Ok(Status::NotFound),
    }
    Ok(Status::Ok)
}

fn get_metric(caller: &mut Caller<'_, State>, args: &Args<'_>) -> Result<Status, Error> {
    let state = caller.data();
    let Some((kind, name)) = state.metric(args.u32(0)?) else {
        return Ok(Status::NotFound);
    };
    match state.host.read_metric(kind, name) {
        Some(value) => Ok(write(caller, args.u32(1)?, &value.to_le_bytes())),
        None => Ok(Status::BadArgument),
    }
}

fn get_shared_data(caller: &mut Caller<'_, State>, args: &Args<'_>) -> Result<Status, Error> {
    let Some(key) = bytes(caller, args.u32(0)?, args.u32(1)?) else {
        return Ok(Status::InvalidMemoryAccess);
    };
    let state = caller.data();
    let Some((value, cas)) = state.host.read_shared(&state.plugin.vm_id, &key) else {
        return Ok(Status::NotFound);
    };
    match give(caller, &value, args.u32(2)?, args.u32(3)?)? {
        Status::Ok => Ok(write(caller, args.u32(4)?, &cas.to_le_bytes())),
        status => Ok(status),
    }
}

fn set_shared_data(caller: &mut Caller<'_, State>, args: &Args<'_>) -> Result<Status, Error> {
    let key = bytes(caller, args.u32(0)?, args.u32(1)?);
    let value = bytes(caller, args.u32(2)?, args.u32(3)?);
    let (Some(key), Some(value)) = (key, value) else {
        return Ok(Status::InvalidMemoryAccess);
    };
    let cas = args.u32(4)?;
    let state = caller.data();
    Ok(state
        .host
        .write_shared(&state.plugin.vm_id, &key, &value, cas))
}

// --- headers ------------------------------------------------------------------------------------

const CALL_HEADERS: u32 = 6;

/// The header map with this number, where the present context has one.
fn headers<'a>(caller: &'a mut Caller<'_, State>, map: u32) -> Option<&'a mut Headers> {
    if map == CALL_HEADERS {
        return caller
            .data_mut()
            .answer_at_hand()
            .map(|answer| &mut answer.headers);
    }
    let stream = caller.data_mut().stream()?;
    match map {
        0 => Some(&mut stream.request_headers),
        2 => Some(&mut stream.response_headers),
        _ => None,
    }
}

fn get_header_map_value(caller: &mut Caller<'_, State>, args: &Args<'_>) -> Result<Status, Error> {
    let Some(name) = text(caller, args.u32(1)?, args.u32(2)?) else {
        return Ok(Status::InvalidMemoryAccess);
    };
    let Some(map) = headers(caller, args.u32(0)?) else {
        return Ok(Status::BadArgument);
    };
    // The first of several: Envoy's answer.
    let found = map
        .iter()
        .find(|(other, _)| other.eq_ignore_ascii_case(&name));
    match found.map(|(_, value)| value.clone()) {
        Some(value) => give(caller, value.as_bytes(), args.u32(3)?, args.u32(4)?),
        None => Ok(Status::NotFound),
    }
}

fn get_header_map_pairs(caller: &mut Caller<'_, State>, args: &Args<'_>) -> Result<Status, Error> {
    let Some(map) = headers(caller, args.u32(0)?).cloned() else {
        return Ok(Status::BadArgument);
    };
    let packed = if map.is_empty() {
        Vec::new()
    } else {
        pairs_to_bytes(&map)
    };
    give(caller, &packed, args.u32(1)?, args.u32(2)?)
}

fn change_header(
    caller: &mut Caller<'_, State>,
    args: &Args<'_>,
    change: fn(&mut Headers, String, String),
) -> Result<Status, Error> {
    let name = text(caller, args.u32(1)?, args.u32(2)?);
    let value = match args.0.len() {
        3 => Some(String::new()),
        _ => text(caller, args.u32(3)?, args.u32(4)?),
    };
    let (Some(name), Some(value)) = (name, value) else {
        return Ok(Status::InvalidMemoryAccess);
    };
    match headers(caller, args.u32(0)?) {
        Some(map) => {
            change(map, name.to_ascii_lowercase(), value);
            Ok(Status::Ok)
        }
        None => Ok(Status::BadArgument),
    }
}

fn add_header_map_value(caller: &mut Caller<'_, State>, args: &Args<'_>) -> Result<Status, Error> {
    change_header(caller, args, |map, name, value| map.push((name, value)))
}

fn replace_header_map_value(
    caller: &mut Caller<'_, State>,
    args: &Args<'_>,
) -> Result<Status, Error> {
    change_header(caller, args, |map, name, value| {
        map.retain(|(other, _)| *other != name);
        map.push((name, value));
    })
}

fn remove_header_map_value(
    caller: &mut Caller<'_, State>,
    args: &Args<'_>,
) -> Result<Status, Error> {
    change_header(caller, args, |map, name, _| {
        map.retain(|(other, _)| *other != name)
    })
}

// --- streams ------------------------------------------------------------------------------------

fn send_local_response(caller: &mut Caller<'_, State>, args: &Args<'_>) -> Result<Status, Error> {
    let details = text(caller, args.u32(1)?, args.u32(2)?);
    let body = bytes(caller, args.u32(3)?, args.u32(4)?);
    let packed = bytes(caller, args.u32(5)?, args.u32(6)?);
    let (Some(details), Some(body), Some(packed)) = (details, body, packed) else {
        return Ok(Status::InvalidMemoryAccess);
    };
    let Some(headers) = pairs_from_bytes(&packed) else {
        // Envoy would send no headers at all: in a test that is a fault to be seen.
        return Err(Error::new("proxy_send_local_response: malformed headers"));
    };
    let reply = LocalReply {
        status: args.u32(0)?,
        details,
        body,
        headers,
        grpc_status: args.u32(7)? as i32,
    };
    if let Some(stream) = caller.data_mut().stream() {
        // Two in one callback: the first wins.
        stream.reply.get_or_insert(reply);
    }
    Ok(Status::Ok)
}

fn continue_stream(caller: &mut Caller<'_, State>, args: &Args<'_>) -> Result<Status, Error> {
    if args.u32(0)? > 3 {
        return Ok(Status::BadArgument);
    }
    if let Some(stream) = caller.data_mut().stream() {
        stream.paused = false;
    }
    Ok(Status::Ok)
}

fn close_stream(_: &mut Caller<'_, State>, args: &Args<'_>) -> Result<Status, Error> {
    // A reset has no effect that a limiter could see: the test ends the stream.
    Ok(if args.u32(0)? > 3 {
        Status::BadArgument
    } else {
        Status::Ok
    })
}

fn set_effective_context(caller: &mut Caller<'_, State>, args: &Args<'_>) -> Result<Status, Error> {
    let id = args.u32(0)?;
    let state = caller.data_mut();
    if !state.streams.contains_key(&id) && !state.roots.contains(&id) {
        return Ok(Status::BadArgument);
    }
    state.effective = Some(id);
    Ok(Status::Ok)
}

// --- calls to clusters --------------------------------------------------------------------------

fn http_call(caller: &mut Caller<'_, State>, args: &Args<'_>) -> Result<Status, Error> {
    let cluster = text(caller, args.u32(0)?, args.u32(1)?);
    let headers = bytes(caller, args.u32(2)?, args.u32(3)?);
    let body = bytes(caller, args.u32(4)?, args.u32(5)?);
    let (Some(cluster), Some(headers), Some(body)) = (cluster, headers, body) else {
        return Ok(Status::InvalidMemoryAccess);
    };
    let Some(headers) = pairs_from_bytes(&headers) else {
        return Err(Error::new("proxy_http_call: malformed headers"));
    };
    let has = |name: &str| headers.iter().any(|(other, _)| other == name);
    if ![":method", ":path", ":authority"].into_iter().all(has) {
        return Ok(Status::BadArgument);
    }
    let call = Outgoing {
        cluster,
        headers,
        body,
        timeout_ms: args.u32(8)?,
        ..Outgoing::default()
    };
    send(caller, call, Status::BadArgument, args.u32(9)?)
}

fn grpc_call(caller: &mut Caller<'_, State>, args: &Args<'_>) -> Result<Status, Error> {
    let cluster = text(caller, args.u32(0)?, args.u32(1)?);
    let service = text(caller, args.u32(2)?, args.u32(3)?);
    let method = text(caller, args.u32(4)?, args.u32(5)?);
    let body = bytes(caller, args.u32(8)?, args.u32(9)?);
    let (Some(cluster), Some(service), Some(method), Some(body)) = (cluster, service, method, body)
    else {
        return Ok(Status::InvalidMemoryAccess);
    };
    let call = Outgoing {
        cluster,
        grpc: Some([service, method]),
        body,
        timeout_ms: args.u32(10)?,
        ..Outgoing::default()
    };
    send(caller, call, Status::ParseFailure, args.u32(11)?)
}

fn send(
    caller: &mut Caller<'_, State>,
    call: Outgoing,
    unknown_cluster: Status,
    token_at: u32,
) -> Result<Status, Error> {
    Ok(match caller.data_mut().send(call) {
        Ok(token) => write(caller, token_at, &token.to_le_bytes()),
        Err(Status::BadArgument) => unknown_cluster,
        Err(status) => status,
    })
}

fn done(_: &mut Caller<'_, State>, _: &Args<'_>) -> Result<Status, Error> {
    Ok(Status::Ok)
}
