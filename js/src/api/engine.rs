//! What JavaScript calls for engines.

use crate::buffer::text_at;
use crate::engine::{Call, Form};
use crate::layout::*;
use crate::shell::shell;
use crate::texts::Texts;
use crate::time::instant;
use leapgate::Gauges;
use wasm_bindgen::prelude::wasm_bindgen;

/// Makes an engine of the rules in the buffer. Its number; or, negative, how long the sentence in the buffer is that says what
/// is wrong.
#[wasm_bindgen]
pub fn engine_new(bytes: usize) -> f64 {
    shell(|shell| {
        let made = shell.engines.add(shell.buffer.bytes(bytes));
        made.map_or_else(|error| -shell.buffer.say(&error.to_string()), f64::from)
    })
}

/// Puts the rules in the buffer in force, and forgets the numbers of resources. 0; or, negative, how long the sentence in the
/// buffer is that says what is wrong: then the rules in force stay.
#[wasm_bindgen]
pub fn engine_replace(engine: u32, bytes: usize) -> f64 {
    shell(|shell| {
        let text = shell.buffer.bytes(bytes);
        let replaced = shell.engines.replace(engine, text);
        replaced.map_or_else(|error| -shell.buffer.say(&error.to_string()), |()| 0.0)
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

/// Tells the load of the machine and how busy its processor is, for system rules: negative where nobody knows.
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

/// Gives the number `number`, the next one, to the resource whose name is in the buffer; with 0 those that had one lose it. A bit
/// for what there is to know: 1, whether it has rules; 2, whether any of them has to be told how calls end.
#[wasm_bindgen]
pub fn engine_resource(engine: u32, number: u32, bytes: usize) -> f64 {
    shell(|shell| {
        let name = text_at(&shell.buffer.text, 0, bytes);
        shell.engines.meet(engine, number, name).unwrap_or(NONE)
    })
}

/// Tells the part of the resource's keys at this place: how long its name is, in the buffer. Negative where there is none.
#[wasm_bindgen]
pub fn engine_part(engine: u32, resource: u32, index: usize) -> f64 {
    shell(|shell| {
        let met = shell.engines.met(engine, resource);
        let part = met.and_then(|met| met.resource.key_parts().get(index));
        let name = part.map(ToString::to_string);
        name.map_or(NONE, |name| shell.buffer.say(&name))
    })
}

/// Tells about a rule that a decision has named: how long its id and its kind are, in the buffer, each with its length before it; last in the area, its window in
/// milliseconds, negative where it has none, and the HTTP status of its refusals.
#[wasm_bindgen]
pub fn engine_rule(engine: u32, resource: u32, rule: usize) -> f64 {
    shell(|shell| {
        let met = shell.engines.met(engine, resource);
        let Some(told) = met.and_then(|met| met.rules.get(rule)) else {
            return NONE;
        };
        if let Some(to) = shell.buffer.area.last_chunk_mut::<RULE_LEN>() {
            to[RULE_WINDOW] = told.interval_ms.map_or(NONE, |interval| interval as f64);
            to[RULE_STATUS] = told.status.into();
        }
        let mut texts = Texts::default();
        texts.add(told.id.as_str());
        texts.add(told.cause);
        shell.buffer.tell(texts.bytes())
    })
}

/// Takes the key in the buffer, for the next call, as number 0: for each part how many values it has, and these, each number in
/// four bytes and each value with its length before it.
#[wasm_bindgen]
pub fn key_lists(bytes: usize) {
    shell(|shell| {
        let text = shell.buffer.bytes(bytes);
        shell.engines.put_key(0, text, Form::Lists);
    });
}

/// Decides. In the buffer lie the origin and, behind it, the context. Tells in the area: how many policies; how many rules of the
/// resource have been named; where it refuses, by which rule, negative for none, of which count, and when to try again in
/// milliseconds, negative for never; where it does not, how long to wait. Then for each policy its rule, its count, what is
/// left, and when quota comes back in milliseconds from now.
///
/// The number of the entry; -1 where it is refused; -2 where it has ended.
#[wasm_bindgen]
#[allow(clippy::too_many_arguments)] // JavaScript has them all at hand
pub fn engine_enter(
    engine: u32,
    resource: u32,
    key: u32,
    cost: u32,
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
            cost,
            flags,
            within,
            origin: text_at(&shell.buffer.text, 0, origin_bytes),
            context: text_at(&shell.buffer.text, origin_bytes, context_bytes),
            now: instant(now),
        };
        let decided = shell.engines.enter(&call, &mut shell.buffer.area);
        decided.unwrap_or(REFUSED)
    })
}

/// Ends a call: 0, as it should; 1, with an error; 2, it is given up; 3, nobody knows when or how; 4, nobody has waited for its
/// answer.
#[wasm_bindgen]
pub fn engine_exit(entry: u32, how: u32, now: f64) {
    shell(|shell| shell.engines.exit(entry, how, instant(now)));
}

/// Ends a call that turns out not to count, with an error or without one. `flags` says whether it has that key.
#[wasm_bindgen]
pub fn engine_refund(entry: u32, key: u32, flags: u32, failed: bool, now: f64) {
    shell(|shell| {
        let engines = &mut shell.engines;
        engines.refund(entry, (key, flags), failed, instant(now));
    });
}
