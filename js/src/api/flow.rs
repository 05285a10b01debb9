//! What JavaScript calls for engines of flow rules alone: the functions of `api/engine.rs`, as far as there is anything to do.

use crate::flow::Call;
use crate::keys::Form;
use crate::layout::*;
use crate::shell::shell;
use crate::texts::Texts;
use crate::time::instant;
use crate::tree;
use leapgate::RefusalKind;
use wasm_bindgen::prelude::wasm_bindgen;

/// As `api/engine.rs` describes, like all functions here.
#[wasm_bindgen]
pub fn engine_new(bytes: usize) -> f64 {
    shell(|shell| {
        let made = shell.flows.add(shell.buffer.bytes(bytes));
        made.map_or_else(
            |error| -shell.buffer.write_text(&error.to_string()),
            f64::from,
        )
    })
}

/// Puts the rules in the buffer in force.
#[wasm_bindgen]
pub fn engine_replace(engine: u32, bytes: usize) -> f64 {
    shell(|shell| {
        let replaced = shell.flows.replace(engine, shell.buffer.bytes(bytes));
        replaced.map_or_else(
            |error| -shell.buffer.write_text(&error.to_string()),
            |()| 0.0,
        )
    })
}

/// Drops an engine.
#[wasm_bindgen]
pub fn engine_free(engine: u32) {
    shell(|shell| shell.flows.free(engine));
}

/// Counts all windows of an engine as used up, until they have passed.
#[wasm_bindgen]
pub fn engine_close(engine: u32, now: f64) {
    shell(|shell| shell.flows.close(engine, instant(now)));
}

/// Gives a number to the resource whose name is in the buffer.
#[wasm_bindgen]
pub fn engine_resource(engine: u32, number: u32, bytes: usize) -> f64 {
    shell(|shell| {
        let name = tree::parts(shell.buffer.bytes(bytes)).next();
        let name = std::str::from_utf8(name.unwrap_or_default()).unwrap_or_default();
        let registered = shell.flows.register(engine, number, name);
        registered.unwrap_or(NONE)
    })
}

/// Writes the name of one part of the resource's keys into the buffer.
#[wasm_bindgen]
pub fn engine_part(engine: u32, resource: u32, index: usize) -> f64 {
    shell(|shell| {
        let name = shell.flows.part(engine, resource, index);
        name.map_or(NONE, |name| shell.buffer.write_text(&name))
    })
}

/// Writes what the rules of the resource count into the buffer.
#[wasm_bindgen]
pub fn engine_units(engine: u32, resource: u32) -> f64 {
    shell(|shell| {
        let mut texts = Texts::default();
        let units = shell.flows.units(engine, resource);
        units.iter().for_each(|unit| texts.add(unit));
        shell.buffer.write(texts.bytes())
    })
}

/// Describes a rule that a decision named.
#[wasm_bindgen]
pub fn engine_rule(engine: u32, resource: u32, rule: usize) -> f64 {
    shell(|shell| {
        let Some((id, unit, interval_ms)) = shell.flows.rule(engine, resource, rule) else {
            return NONE;
        };
        if let Some(to) = shell.buffer.results.last_chunk_mut::<RULE_LEN>() {
            to[RULE_WINDOW] = interval_ms.map_or(NONE, |interval| interval as f64);
            to[RULE_STATUS] = RefusalKind::Limited.status().into();
        }
        let mut texts = Texts::default();
        [id.as_str(), "flow", unit]
            .iter()
            .for_each(|text| texts.add(text));
        shell.buffer.write(texts.bytes())
    })
}

/// Takes the key in the buffer, for the next call.
#[wasm_bindgen]
pub fn key_lists(bytes: usize) {
    shell(|shell| {
        let text = shell.buffer.bytes(bytes);
        shell.flows.put_key(0, text, Form::Lists);
    });
}

/// Decides about a call, which has no origin, no context and none around it.
#[wasm_bindgen]
#[allow(clippy::too_many_arguments)] // those of the engine
pub fn engine_enter(
    engine: u32,
    resource: u32,
    key: u32,
    flags: u32,
    _within: u32,
    _origin_bytes: usize,
    _context_bytes: usize,
    now: f64,
) -> f64 {
    shell(|shell| {
        let call = Call {
            engine,
            resource,
            key,
            flags,
            now: instant(now),
        };
        let decided = shell
            .flows
            .enter(&call, shell.seed, &mut shell.buffer.results);
        decided.unwrap_or(REFUSED)
    })
}

/// Nothing is held whose cost could be said.
#[wasm_bindgen]
pub fn engine_settle(_entry: u32) {}

/// Ends a call. Returns that it held no estimate of its cost.
#[wasm_bindgen]
pub fn engine_exit(entry: u32, how: u32, now: f64) -> bool {
    shell(|shell| shell.flows.exit(entry, how, instant(now)));
    false
}

/// No breaker is to be told.
#[wasm_bindgen]
pub fn engine_fail(_entry: u32, _now: f64) {}

/// Ends a call that turns out not to count.
#[wasm_bindgen]
pub fn engine_refund(entry: u32, _key: u32, _flags: u32, _failed: bool, now: f64) {
    shell(|shell| shell.flows.refund(entry, instant(now)));
}
