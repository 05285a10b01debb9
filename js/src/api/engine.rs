//! What JavaScript calls for engines.

use crate::buffer::text_at;
use crate::changes::name_of;
use crate::engine::Call;
use crate::keys::Form;
use crate::layout::*;
use crate::shell::shell;
use crate::texts::Texts;
use crate::time::instant;
use crate::tree;
use leapgate::backend::Gauges;
use wasm_bindgen::prelude::wasm_bindgen;

/// Makes an engine with the rules in the buffer. Returns its number; if a rule is wrong, minus the length of the error message,
/// which is in the buffer.
#[wasm_bindgen]
pub fn engine_new(bytes: usize) -> f64 {
    shell(|shell| {
        let made = shell.engines.add(shell.buffer.bytes(bytes));
        shell.buffer.said(made)
    })
}

/// Puts the rules in the buffer in force, and forgets the numbers of resources. Returns 0; if a rule is wrong, minus the length of
/// the error message, which is in the buffer: the rules in force stay.
#[wasm_bindgen]
pub fn engine_replace(engine: u32, bytes: usize) -> f64 {
    shell(|shell| {
        let text = shell.buffer.bytes(bytes);
        let replaced = shell.engines.replace(engine, text);
        shell.buffer.said(replaced.map(|()| 0))
    })
}

/// Writes why rules in force do not do what they ask for into the buffer, each sentence with its length before it, and returns the
/// length of all.
#[wasm_bindgen]
pub fn engine_warnings(engine: u32) -> f64 {
    shell(|shell| {
        let mut texts = Texts::default();
        if let Some(open) = shell.engines.get(engine) {
            open.for_each_warning(|text| texts.add(text));
        }
        shell.buffer.write(texts.bytes())
    })
}

/// Drops an engine. Calls in flight go on.
#[wasm_bindgen]
pub fn engine_free(engine: u32) {
    shell(|shell| shell.engines.free(engine));
}

/// Counts all windows of an engine as used up, until they have passed.
#[wasm_bindgen]
pub fn engine_close(engine: u32, now: f64) {
    shell(|shell| shell.engines.close(engine, instant(now)));
}

/// Sets the load of the machine and how busy its processors are, for system rules. A negative value is unknown.
#[wasm_bindgen]
pub fn engine_gauges(engine: u32, load: f64, cpu: f64) {
    let known = |number: f64| (number >= 0.0).then_some(number);
    let (load, cpu) = (known(load), known(cpu));
    shell(|shell| {
        if let Some(open) = shell.engines.get(engine) {
            open.store().set_gauges(Gauges { load, cpu });
        }
    });
}

/// Gives the number `number` to the resource whose name is in the buffer, together with the APIs whose names follow, each name with
/// its length before it: the next free number, or 0, and then all other resources lose theirs. Returns the bits `HAS_RULES`, `IS_OPEN` and `HOLDS` of `layout`.
#[wasm_bindgen]
pub fn engine_resource(engine: u32, number: u32, bytes: usize) -> f64 {
    shell(|shell| {
        let names = tree::parts(shell.buffer.bytes(bytes));
        let names: Vec<_> = names
            .map(|name| std::str::from_utf8(name).unwrap_or_default())
            .collect();
        let registered = shell.engines.register(engine, number, &names);
        registered.unwrap_or(NONE)
    })
}

/// Writes the name of one part of the resource's keys into the buffer and returns its length. Negative if there is no such part.
#[wasm_bindgen]
pub fn engine_part(engine: u32, resource: u32, index: usize) -> f64 {
    shell(|shell| {
        let known = shell.engines.known(engine, resource);
        let part = known.and_then(|known| known.resource.key_parts().get(index));
        let name = part.map(ToString::to_string);
        name.map_or(NONE, |name| shell.buffer.write_text(&name))
    })
}

/// Writes what the rules of the resource count into the buffer, each unit with its length before it, and returns the length of all.
#[wasm_bindgen]
pub fn engine_units(engine: u32, resource: u32) -> f64 {
    shell(|shell| {
        let mut texts = Texts::default();
        if let Some(known) = shell.engines.known(engine, resource) {
            known.units.iter().for_each(|unit| texts.add(unit));
        }
        shell.buffer.write(texts.bytes())
    })
}

/// Describes a rule that a decision named: writes its id, its kind and its unit into the buffer, each with its length before it, and
/// returns the length of all; for the results see `RULE_…` of `layout`. Negative if there is no such rule.
#[wasm_bindgen]
pub fn engine_rule(engine: u32, resource: u32, rule: usize) -> f64 {
    shell(|shell| {
        let known = shell.engines.known(engine, resource);
        let Some(info) = known.and_then(|known| known.rules.get(rule)) else {
            return NONE;
        };
        if let Some(to) = shell.buffer.results.last_chunk_mut::<RULE_LEN>() {
            to[RULE_WINDOW] = info.interval_ms.map_or(NONE, |interval| interval as f64);
            to[RULE_STATUS] = info.status.into();
        }
        let mut texts = Texts::default();
        texts.add(info.id.as_str());
        texts.add(info.cause);
        texts.add(&info.unit);
        shell.buffer.write(texts.bytes())
    })
}

/// Takes the key in the buffer, for the next call, as number 0. For each part, the number of its values comes first, in four bytes;
/// each value has its length before it.
#[wasm_bindgen]
pub fn key_lists(bytes: usize) {
    shell(|shell| {
        let text = shell.buffer.bytes(bytes);
        shell.engines.put_key(0, text, Form::Lists);
    });
}

/// Decides about a call. The origin is in the buffer, followed by the context. For the results see `DECISION_…` and `POLICY_…` of
/// `layout`.
///
/// Returns the number of the entry, `REFUSED` or `ENDED`.
#[wasm_bindgen]
#[allow(clippy::too_many_arguments)] // each is a number that JavaScript has at hand
pub fn engine_enter(
    engine: u32,
    resource: u32,
    key: u32,
    flags: u32,
    within: u32,
    origin_bytes: usize,
    context_bytes: usize,
    now: f64,
) -> f64 {
    shell(|shell| {
        let call = Call {
            engine,
            resource,
            key,
            flags,
            within,
            origin: text_at(&shell.buffer.text, 0, origin_bytes),
            context: text_at(&shell.buffer.text, origin_bytes, context_bytes),
            now: instant(now),
        };
        let decided = shell.engines.enter(&call, &mut shell.buffer.results);
        decided.unwrap_or(REFUSED)
    })
}

/// Says what a call has cost, before it ends: in the results at `COSTS` of `layout`.
#[wasm_bindgen]
pub fn engine_settle(entry: u32) {
    shell(|shell| shell.engines.settle(entry, &shell.buffer.results));
}

/// Ends a call; `how` is one of `EXIT`, `EXIT_WITH_ERROR`, `CANCEL`, `DROP` and `UNANSWERED` of `layout`. Returns whether it held
/// an estimate of its cost.
#[wasm_bindgen]
pub fn engine_exit(entry: u32, how: u32, now: f64) -> bool {
    shell(|shell| shell.engines.exit(entry, how, instant(now)))
}

/// Tells the breakers that a call has failed, while it goes on.
#[wasm_bindgen]
pub fn engine_fail(entry: u32, now: f64) {
    shell(|shell| shell.engines.fail(entry, instant(now)));
}

/// Writes what the breakers have done since the last call into the buffer, and returns the length of all: for each change the
/// resource, the rule, the state before it and the state after it, each with its length before it. Later changes are kept for the
/// next call if `are_kept`.
#[wasm_bindgen]
pub fn engine_changes(engine: u32, are_kept: bool) -> f64 {
    shell(|shell| {
        let mut texts = Texts::default();
        if let Some(open) = shell.engines.get(engine) {
            open.store().backend().changes.take(are_kept, &mut texts);
        }
        shell.buffer.write(texts.bytes())
    })
}

/// Writes the ids of the rules of the resource whose name is in the buffer into the buffer, each with its length before it, and
/// behind each the state of a breaker, or an empty text; returns the length of all. None if neither rules nor requests have named
/// the resource.
#[wasm_bindgen]
pub fn engine_about(engine: u32, bytes: usize) -> f64 {
    shell(|shell| {
        let mut texts = Texts::default();
        let name = text_at(&shell.buffer.text, 0, bytes);
        let engine = shell.engines.get(engine);
        if let Some(resource) = engine.and_then(|engine| engine.known_resource(name)) {
            resource.for_each_rule(&mut |id, phase| {
                texts.add(id.as_str());
                texts.add(phase.map_or("", name_of));
            });
        }
        shell.buffer.write(texts.bytes())
    })
}

/// Ends a call that turns out not to count, with an error or without one. `flags` has `KEYED` if the call has a key.
#[wasm_bindgen]
pub fn engine_refund(entry: u32, key: u32, flags: u32, failed: bool, now: f64) {
    shell(|shell| {
        let engines = &mut shell.engines;
        engines.refund(entry, (key, flags), failed, instant(now));
    });
}
