// The instance of the wasm module: its memory, the keys that have a number, and its restart after a trap.

import * as glue from './leapgate_bg.js';
// The module's only import. Using the namespace instead would keep all exported names in each bundle.
import { __wbindgen_init_externref_table } from './leapgate_bg.js';
import { fault, wrong } from './errors.js';
import { flattenTexts } from './tree.js';

// The longest key, in UTF-16 units. Clients choose keys: memory must stay bounded.
export const MAX_KEY = 65536;

// The longest key that can get a number.
const MAX_REMEMBERED = 64;

// A key gets a number when it comes again before another key has taken its place among so many: a frequent key soon has one, and
// keys that come once leave nothing behind.
const SEEN = 4096;

let compile; // returns the module
let compiled;
let memory;
let text; // the module's text buffer
let area; // the results of decisions, in doubles
let slots; // how many keys can have a number
let next; // the next number
const seen = new Uint16Array(SEEN); // of recent keys without a number, a part of the hash
let isSeeded;
let seedWords;
const numbers = new Map();
const [encoder, decoder] = [new TextEncoder(), new TextDecoder()];

// The number of instances so far. Whatever was made in an earlier instance is gone.
export let generation = 0;

// Sets the source of the module, and the default clock.
export function link(source, clock) {
  compile = source;
  defaultClock = clock;
}

export let defaultClock;

// The time of day at an instant of the default clock, whose zero is arbitrary, in whole milliseconds. The two are compared once a
// second: reading a clock takes as long as the rest of a decision. What rounding changes is left out, so that instants do not flicker.
let [ahead, comparedAt] = [0, Infinity];
export function timeOfDay(now) {
  if (!(Math.abs(now - comparedAt) < 1000)) {
    const compared = Math.ceil(Date.now() - now);
    if (Math.abs(compared - ahead) > 1) ahead = compared;
    comparedAt = now;
  }
  return Math.floor(now) + ahead;
}

// Compares them at the next call: one of them has jumped.
export function forgetTimeOfDay() {
  comparedAt = Infinity;
}

// Instantiates the module, unless it is already.
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

// The Error for what the module threw. A trap leaves the instance in an unknown state: a new one replaces it.
export function crashed(error) {
  if (error?.code?.startsWith?.('ERR_LEAPGATE')) return error;
  start();
  const message =
    'leapgate: the wasm module stopped and was started again; all windows are counted as full until they have passed';
  return fault('ERR_LEAPGATE_CRASHED', message, Error, error);
}

// Recreates the views: growing memory detaches them, and a growing text buffer moves.
function refreshViews() {
  // Each of these calls may grow memory, too.
  const [textAt, textBytes, areaAt, areaLength] = [glue.text(), glue.text_bytes(), glue.results(), glue.results_len()];
  text = new Uint8Array(memory.buffer, textAt, textBytes);
  area = new Float64Array(memory.buffer, areaAt, areaLength);
}

// The results of the latest decision.
export function results() {
  if (area.length === 0) refreshViews();
  return area;
}

// The `length` doubles at `at`, valid until the next call of the module.
export const doubles = (at, length) => new Float64Array(memory.buffer, at, length);

// The text of so many bytes that the module has written into the buffer.
export const readText = (length) => decoder.decode(readBytes(length));

// The texts in so many bytes that the module has written into the buffer, each with its length before it.
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

// The bytes that the module has written into the buffer.
export function readBytes(length) {
  refreshViews();
  return text.slice(0, length);
}

function roomFor(bytes) {
  // A detached view has length 0.
  if (text.length > bytes) return;
  glue.text_reserve(bytes);
  refreshViews();
}

// Writes bytes into the buffer. Returns how many.
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

// Writes a text into the buffer, from byte `at` on. Returns its length in bytes.
export function putTextAt(string, at) {
  roomFor(at + 3 * string.length);
  return encoder.encodeInto(string, text.subarray(at)).written;
}

// Four random numbers of 32 bits. They are drawn late: Workers have none while a module is loaded.
export function randomWords() {
  const words = new Uint32Array(4);
  // Test environments may lack `crypto`; a weaker seed only makes colliding keys easier to find.
  if (globalThis.crypto?.getRandomValues) crypto.getRandomValues(words);
  else words.forEach((_, i) => (words[i] = Math.random() * 2 ** 32));
  return words;
}

// Seeds the hashes.
export function seed() {
  if (!isSeeded) plant(randomWords());
}

function plant(words) {
  glue.seed(...words);
  [seedWords, isSeeded] = [words, true];
}

// Makes `words` the seed, unless there is one. Returns whether they are the seed.
export function adoptSeed(words) {
  if (!isSeeded) plant(words);
  return words.every((word, i) => word === seedWords[i]);
}

// What `act` returns while `words` are the seed, if there are any.
export function underSeed(words, act) {
  seed();
  if (words === undefined) return act();
  glue.seed(...words);
  try {
    return act();
  } finally {
    glue.seed(...seedWords);
  }
}

// The number of a key, or 0 if it has none: then the key is in the module's buffer.
export function numberOf(key) {
  if (typeof key !== 'string') return otherNumberOf(key);
  return numbers.get(key) ?? assignNumber(key);
}

// The same under another seed, where no key has a number.
export function unnumbered(words, key) {
  return underSeed(words, () => {
    while (Array.isArray(key) && key.length === 1) [key] = key;
    if (isValue(key)) glue.key(0, putKey(String(key)), false);
    else otherNumberOf(key);
    return 0;
  });
}

function putKey(key) {
  if (key.length > MAX_KEY) {
    throw wrong('key', key, `has ${key.length} characters; use at most ${MAX_KEY}, or a hash of it`, RangeError, 'ERR_LEAPGATE_KEY');
  }
  return putText(key);
}

function assignNumber(key) {
  if (!isSeeded) seed();
  const bytes = putKey(key);
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

// The number of the key that has no parts.
export function noKey() {
  seed();
  glue.key(0, put(flattenTexts([])), true);
  return 0;
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
