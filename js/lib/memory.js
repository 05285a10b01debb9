// A store in the memory of this process: a cluster's primary serves one, and a Durable Object holds one.

import * as core from './leapgate_bg.js';
import * as wasm from './core.js';
import { INSPECT, bounded, fault, inspected } from './errors.js';

// Frees stores that were garbage-collected.
const registry =
  typeof FinalizationRegistry === 'function'
    ? new FinalizationRegistry((at) => {
        if (at.generation === wasm.generation) core.store_free(at.number);
      })
    : undefined;

function guarded(call) {
  try {
    return call();
  } catch (error) {
    throw wasm.crashed(error);
  }
}

export class MemoryStore {
  #at = { number: -1, generation: 0 };
  // Since when the store has known all that it has leased: for ever, as its nodes are not older than it.
  #since = -Infinity;

  constructor() {
    registry?.register(this, this.#at);
  }

  #ready() {
    wasm.ready();
    const at = this.#at;
    if (at.generation === wasm.generation) return at.number;
    // What an earlier instance knew is lost: each key counts as full until nothing of it can count any more.
    if (at.generation > 0) this.#since = Date.now();
    [at.number, at.generation] = [core.store_new(), wasm.generation];
    return at.number;
  }

  // The instance of the module that the store is in: what an earlier one knew is lost.
  get generation() {
    this.#ready();
    return this.#at.generation;
  }

  lease(key, request) {
    const number = this.#ready();
    const now = Date.now();
    const keyBytes = wasm.putTextAt(String(key), 0);
    const requestBytes = wasm.putTextAt(String(request), keyBytes);
    const length = guarded(() => core.store_lease(number, keyBytes, requestBytes, now, Math.max(0, now - this.#since)));
    const text = wasm.readText(Math.abs(length));
    if (length < 0) throw fault('ERR_LEAPGATE_ARGUMENT', `request: ${text}`, TypeError);
    return text;
  }

  // All that is known of a key: `{ text, overAt }`, or undefined. Nothing of it counts from `overAt` on.
  snapshot(key) {
    const number = this.#ready();
    const keyBytes = wasm.putTextAt(key, 0);
    const length = guarded(() => core.store_snapshot(number, keyBytes));
    return length < 0 ? undefined : { overAt: wasm.results()[0], text: wasm.readText(length) };
  }

  // Knows of a key what `snapshot` has told. Returns whether the text is one.
  restore(key, { text, overAt }) {
    const number = this.#ready();
    const keyBytes = wasm.putTextAt(key, 0);
    const textBytes = wasm.putTextAt(text, keyBytes);
    return guarded(() => core.store_restore(number, keyBytes, textBytes, overAt));
  }

  [INSPECT](_, options, inspect) {
    return inspected('MemoryStore', {}, options, inspect);
  }

  static {
    bounded(this, 'MemoryStore');
  }
}
