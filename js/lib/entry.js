// Calls in flight, and refusals.

import * as core from './leapgate_bg.js';
import * as wasm from './core.js';
import { checkCosts, putCosts } from './costs.js';
import { INSPECT, bounded, checkOptions, inspected, listed, wrong } from './errors.js';
import * as layout from './layout.js';
import { flattenLists } from './tree.js';

// No entry has this number.
export const NO_ENTRY = 2 ** 32 - 1;

// The calls of an engine that are in flight, and what their ends concern.
export class InFlight {
  count = 0;
  // The requests that wait, if any ever did.
  waiting;
  #events;
  #drains = [];

  constructor(events) {
    this.#events = events;
  }

  // To be called when a call has ended; for the arguments see `Waiting.ended`.
  ended(...args) {
    this.count--;
    this.#events.look();
    this.waiting?.ended(...args);
    this.check();
  }

  // A breaker may have learned something.
  look() {
    this.#events.look();
  }

  // Tells who waits for it when nothing is in flight, and nothing waits.
  check() {
    if (this.count + (this.waiting?.count ?? 0) > 0) return;
    for (const resolve of this.#drains.splice(0)) resolve();
  }

  drained() {
    return new Promise((resolve) => {
      this.#drains.push(resolve);
      this.check();
    });
  }
}

// Calls `drop` with what is registered beside an object that was garbage-collected.
export const registryOf = (drop) => (typeof FinalizationRegistry === 'function' ? new FinalizationRegistry(drop) : undefined);

const entries = registryOf(({ number, generation, inFlight, names }) => {
  if (generation === wasm.generation) core.engine_exit(number, layout.DROP, 0);
  inFlight.ended(names);
});

// When a request may try again that only the holds of other requests keep out: their end is unknown.
const HOLD_RETRY_MS = 1000;

// Whether a refused request may pass earlier than its `retryAfterMs` says, because a hold ends.
export let isKeptOutByHolds;

// The number of an open entry of an engine.
export let numberOf;

// Tells breakers that a call has failed, while it goes on.
export let fail;

// A call in flight, or a refusal.
export class Entry {
  #engine;
  #inFlight;
  #at;
  #known;
  #key;
  #request;
  waitMs = 0;

  constructor(engine, inFlight, number, known, request) {
    this.#engine = engine;
    this.#inFlight = inFlight;
    this.#known = known;
    if (number < 0) return;
    inFlight.count++;
    this.#request = request;
    // A copy: the caller may change the original.
    if (known.parts.length > 0) this.#key = [...valuesOf(known.parts, request?.key)];
    this.#at = { number, generation: wasm.generation, inFlight, names: known.names };
    entries?.register(this, this.#at, this.#at);
  }

  exit(outcome = {}) {
    checkOptions('outcome', outcome, ['error', 'cost', 'refund', 'unanswered'], '`{ error }`, or leave it out');
    const { error, cost, refund, unanswered } = outcome;
    const { units } = this.#known;
    const costs = cost === undefined ? undefined : checkCosts('outcome.cost', cost, units);
    const failed = error !== undefined && error !== null && error !== false;
    if (refund) return this.#end((number, now) => this.#refund(number, failed, now), true);
    let how = failed ? layout.EXIT_WITH_ERROR : layout.EXIT;
    if (unanswered) how = layout.UNANSWERED;
    this.#end((number, now) => {
      if (costs !== undefined) {
        putCosts(costs, units);
        core.engine_settle(number);
      }
      return core.engine_exit(number, how, now);
    });
  }

  cancel() {
    this.#end((number, now) => core.engine_exit(number, layout.CANCEL, now), true);
  }

  [INSPECT](_, options, inspect) {
    return inspected('Entry', { ...this }, options, inspect);
  }

  #refund(number, failed, now) {
    const { parts } = this.#known;
    if (parts.length === 0) core.engine_refund(number, 0, 0, failed, now);
    else core.engine_refund(number, numberOfKey(parts, this.#key), layout.KEYED, failed, now);
  }

  // `how` returns whether the call held an estimate of its cost.
  #end(how, hasGivenBack = false) {
    const at = this.#at;
    if (at === undefined) return;
    const now = this.#engine.now();
    this.#at = undefined;
    entries?.unregister(at);
    let held = false;
    try {
      if (at.generation === wasm.generation) held = how(at.number, now);
    } catch (error) {
      throw wasm.crashed(error);
    } finally {
      this.#inFlight.ended(this.#known.names, this.#request, hasGivenBack || held);
    }
  }

  static {
    numberOf = (entry, engine) => {
      if (typeof entry !== 'object' || entry === null || !(#at in entry) || entry.#engine !== engine) {
        throw wrong('request.within', entry, 'is not an entry of this engine; use what its `enter` returned');
      }
      const at = entry.#at;
      if (at === undefined) throw wrong('request.within', entry, 'is not open; use one that was let in and has not ended');
      return at.generation === wasm.generation ? at.number : NO_ENTRY;
    };
    isKeptOutByHolds = (entry) => entry.#known.holds && entry.retryAfterMs === HOLD_RETRY_MS;
    fail = (entry) => {
      const at = entry.#at;
      if (at?.generation !== wasm.generation) return;
      try {
        core.engine_fail(at.number, entry.#engine.now());
      } catch (error) {
        throw wasm.crashed(error);
      }
      entry.#inFlight.look();
    };
    bounded(this, 'Entry');
    if (Symbol.dispose) {
      this.prototype[Symbol.dispose] = function () {
        this.exit();
      };
    }
  }
}

const keyFault = (place, value, why, Kind = TypeError) => wrong(place, value, why, Kind, 'ERR_LEAPGATE_KEY');

// The key's value for each part.
export function valuesOf(parts, key) {
  let values = [key];
  if (key === null) values = parts.map(() => null);
  else if (Array.isArray(key)) values = key;
  else if (typeof key === 'object') values = parts.map((part) => key[part]);
  if (values.length > parts.length) {
    throw keyFault('request.key', key, `has ${values.length} values; use one for each of ${listed(parts)}`);
  }
  const missing = parts.findIndex((_, i) => values[i] === undefined);
  if (missing < 0) return values;
  throw keyFault('request.key', key, `does not say \`${parts[missing]}\`; add it, or null if there is none`);
}

// The number of the key with these values, or 0: then the key is in the module's buffer.
export function numberOfKey(parts, values) {
  if (values.every(wasm.isValue)) return wasm.numberOf(values.length === 1 ? values[0] : values);
  const lists = values.map((value, i) => {
    if (wasm.isValue(value)) return [String(value)];
    if (value === null) return [];
    if (Array.isArray(value) && value.every(wasm.isValue)) return value.map(String);
    throw keyFault(
      `request.key['${parts[i]}']`,
      value,
      'is not a valid value; use a string, a number, a bigint, several of these in an array, or null',
    );
  });
  const bytes = flattenLists(lists);
  const most = 3 * wasm.MAX_KEY;
  if (bytes.length > most) {
    throw keyFault('request.key', values, `has ${bytes.length} bytes; use at most ${most}, or a hash of it`, RangeError);
  }
  wasm.seed();
  core.key_lists(wasm.put(bytes));
  return 0;
}
