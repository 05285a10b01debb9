// The instance of the wasm module: where its memory is, which keys it knows by number, and what becomes of it after a trap.

import * as glue from './leapgate_bg.js';
// All that the module imports. The namespace itself would keep the names of all that it exports in each bundle.
import { __wbindgen_init_externref_table } from './leapgate_bg.js';
import { fault, wrong } from './errors.js';
import { flattenTexts } from './tree.js';

// A key is at most so long, in UTF-16 units: what clients choose must not make memory grow without end.
export const MAX_KEY = 65536;

// Only keys up to this length are remembered.
const MAX_REMEMBERED = 64;

// A key gets a number when it comes again before another one has taken its place among so many: a key that is asked about
// often soon has one, and keys that are asked about once leave nothing behind.
const SEEN = 4096;

let compile; // gives the module
let compiled;
let memory;
let text; // where texts are put: all of it
let area; // the results of decisions, in doubles
let slots; // how many keys can have a number
let next; // the next number
const seen = new Uint16Array(SEEN); // of keys that had none, a part of the hash
let isSeeded;
const numbers = new Map();
const [encoder, decoder] = [new TextEncoder(), new TextDecoder()];

// How many instances there have been. What was made in an earlier one is gone.
export let generation = 0;

// Says where the module comes from, and which clock is used where none is given.
export function link(source, clock) {
  compile = source;
  defaultClock = clock;
}

export let defaultClock;

// The time of day at an instant of that clock, which may begin anywhere. They are compared once a second: to look at a clock
// takes as long as the rest of a decision.
let [ahead, comparedAt] = [0, Infinity];
export function timeOfDay(now) {
  if (!(Math.abs(now - comparedAt) < 1000)) [ahead, comparedAt] = [Date.now() - now, now];
  return now + ahead;
}

// Instantiates the module, if it is not yet.
export function ready() {
  if (generation === 0) start();
}

function start() {
  compiled ??= compile();
  const { exports } = new WebAssembly.Instance(compiled, { './leapgate_bg.js': { __wbindgen_init_externref_table } });
  glue.__wbg_set_wasm(exports);
  exports.__wbindgen_start?.();
  memory = exports.memory;
  slots = glue.key_slots();
  numbers.clear();
  [next, isSeeded] = [1, false];
  refreshViews();
  generation++;
}

// What was thrown out of the module, as an Error: a trap leaves the instance in an unknown state, and another takes its place.
export function crashed(error) {
  if (error?.code?.startsWith?.('ERR_LEAPGATE')) return error;
  start();
  const message =
    'leapgate: the wasm module stopped and was started again; all windows are counted as full until they have passed';
  return fault('ERR_LEAPGATE_CRASHED', message, Error, error);
}

// Makes the views anew: when memory grows they are detached, and a text buffer that grows moves.
function refreshViews() {
  // Asking may make it grow, too.
  const [textAt, textBytes, areaAt, areaLength] = [glue.text(), glue.text_bytes(), glue.results(), glue.results_len()];
  text = new Uint8Array(memory.buffer, textAt, textBytes);
  area = new Float64Array(memory.buffer, areaAt, areaLength);
}

// The results of the latest decision.
export function results() {
  if (area.length === 0) refreshViews();
  return area;
}

// So many doubles that lie there, until the module is called again.
export const doubles = (at, length) => new Float64Array(memory.buffer, at, length);

// The text of so many bytes that the module has put there.
export function readText(bytes) {
  refreshViews();
  return decoder.decode(text.slice(0, bytes));
}

// The texts of so many bytes that it has put there, each with its length before it.
export function readTexts(bytes) {
  refreshViews();
  const lengths = new DataView(memory.buffer, text.byteOffset, bytes);
  const texts = [];
  for (let at = 0; at < bytes; ) {
    const end = at + 4 + lengths.getUint32(at, true);
    texts.push(decoder.decode(text.slice(at + 4, end)));
    at = end;
  }
  return texts;
}

function roomFor(bytes) {
  // Where memory has grown, it has no length any more.
  if (text.length > bytes) return;
  glue.text_reserve(bytes);
  refreshViews();
}

// Puts bytes there.
export function put(bytes) {
  roomFor(bytes.length);
  text.set(bytes);
  return bytes.length;
}

function putText(string) {
  const { length } = string;
  roomFor(3 * length);
  if (length < 24) {
    let i = 0;
    for (; i < length; i++) {
      const unit = string.charCodeAt(i);
      if (unit > 127) break;
      text[i] = unit;
    }
    if (i === length) return length;
  }
  return encoder.encodeInto(string, text).written;
}

// Puts a text behind so many bytes. How long it is.
export function putTextAt(string, at) {
  roomFor(at + 3 * string.length);
  return encoder.encodeInto(string, text.subarray(at)).written;
}

// Hashes begin with random numbers. They are drawn late: Workers have none while a module is loaded.
export function seed() {
  if (isSeeded) return;
  const words = new Uint32Array(4);
  // Test environments may lack it; without it, keys that collide could be looked for.
  if (globalThis.crypto?.getRandomValues) crypto.getRandomValues(words);
  else words.forEach((_, i) => (words[i] = Math.random() * 2 ** 32));
  glue.seed(...words);
  isSeeded = true;
}

// The number of a key, or 0 if it has none: then it is in the module's buffer.
export function numberOf(key) {
  if (typeof key !== 'string') return otherNumberOf(key);
  return numbers.get(key) ?? assignNumber(key);
}

function assignNumber(key) {
  if (key.length > MAX_KEY) {
    throw wrong('key', key, `has ${key.length} characters; use at most ${MAX_KEY}, or a hash of it`, RangeError, 'ERR_LEAPGATE_KEY');
  }
  if (!isSeeded) seed();
  const bytes = putText(key);
  const hash = glue.key(0, bytes, false);
  if (key.length > MAX_REMEMBERED) return 0;
  const place = hash % SEEN;
  const part = hash >>> 16;
  if (seen[place] !== part) {
    seen[place] = part;
    return 0;
  }
  if (next === slots) {
    numbers.clear();
    next = 1;
  }
  numbers.set(key, next);
  glue.key(next, bytes, false);
  return next++;
}

export const isValue = (key) => typeof key === 'string' || typeof key === 'bigint' || Number.isFinite(key);

function otherNumberOf(key) {
  if (isValue(key)) return numberOf(String(key));
  if (!Array.isArray(key) || key.length === 0) {
    throw wrong('key', key, 'is not a valid key; use a string, a number, a bigint, or an array of these', TypeError, 'ERR_LEAPGATE_KEY');
  }
  if (key.length === 1) return numberOf(key[0]);
  key.forEach((part, i) => {
    if (isValue(part)) return;
    throw wrong(`key[${i}]`, part, 'is not a valid part of a key; use a string, a number or a bigint', TypeError, 'ERR_LEAPGATE_KEY');
  });
  const bytes = flattenTexts(key.map(String));
  if (bytes.length > 3 * MAX_KEY) {
    throw wrong('key', key, `has ${bytes.length} bytes; use at most ${3 * MAX_KEY}, or a hash of it`, RangeError, 'ERR_LEAPGATE_KEY');
  }
  seed();
  glue.key(0, put(bytes), true);
  return 0;
}
