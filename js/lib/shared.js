// One limit for several processes: permits are leased from a store that they share, and spent here without asking it again.

import * as core from './leapgate_bg.js';
import * as wasm from './core.js';
import { Calls, nameOf } from './calls.js';
import { INSPECT, beginAt, bounded, checkNumber, checkOptions, fault, inspected, wrong } from './errors.js';
import * as layout from './layout.js';
import { warn } from './warn.js';

const MAX_COST = 2 ** 32 - 1;
const MAX_COUNT = 2 ** 53;
const MAX_WINDOW_MS = 315_360_000_000;
const MAX_SAMPLES = 1000;
const MAX_KEYS = 1 << 24;
const MAX_TIMEOUT_MS = 60_000;

const OPTIONS = ['id', 'limit', 'windowMs', 'sampleCount', 'store', 'whenDown', 'timeoutMs', 'maxKeys'];
const EXAMPLE = "`{ id: 'api', limit: 100, windowMs: 60_000, store }`";
const REQUEST = ['cost', 'ctx'];
const REQUEST_EXAMPLE = '`{ cost: 2 }`, or leave it out';

// What a message to the store can hold, and so a key: clients choose keys.
const MAX_KEY = 1024;

// Adapters decide by this method: it returns a result, or a promise of one.
const DECIDE = Symbol.for('leapgate.decide');

// Frees limiters that were garbage-collected: what they have leased counts as used.
const registry =
  typeof FinalizationRegistry === 'function'
    ? new FinalizationRegistry((at) => {
        if (at.generation === wasm.generation) core.shared_free(at.number);
      })
    : undefined;

function checkWhole(name, value, most, least = 1) {
  if (Number.isInteger(value) && value >= least && value <= most) return;
  const Kind = typeof value === 'number' ? RangeError : TypeError;
  throw wrong(`options.${name}`, value, `is not possible; use a whole number from ${least} to ${most}`, Kind);
}

// The largest divisor of the window up to 20, as rules of the Envoy filter have.
function samplesOf(windowMs) {
  let samples = 20;
  while (windowMs % samples !== 0) samples--;
  if (samples < 10 && windowMs > 20) {
    const cure = `use \`${Math.ceil(windowMs / 20) * 20}\``;
    const what = `has no divisor from 10 to 20, so may pass only ${samples}/${samples + 1} of the limit`;
    warn('LEAPGATE_BUCKETS', `leapgate: options.windowMs: \`${windowMs}\` ${what}; ${cure}`);
  }
  return samples;
}

// All requests together have the key without parts: so has a rule of the Envoy filter without a key.
const slotOf = (key) => (Array.isArray(key) && key.length === 0 ? wasm.noKey() : wasm.numberOf(key));

export class SharedLimiter {
  #at = { number: -1, generation: 0 };
  #options;
  // Milliseconds until all that is used now has left the window.
  #spanMs;
  #calls;

  constructor(options) {
    try {
      this.#make(options);
    } catch (error) {
      throw beginAt(SharedLimiter, error);
    }
  }

  #make(options) {
    checkOptions('options', options, OPTIONS, EXAMPLE);
    for (const name of ['id', 'limit', 'windowMs', 'store']) {
      if (options[name] === undefined) throw fault('ERR_LEAPGATE_OPTIONS', `options: \`${name}\` is missing; add it`, TypeError);
    }
    const { limit, windowMs, store, whenDown = 'local', timeoutMs = 500, maxKeys = 100_000 } = options;
    const id = String(options.id);
    if (!/^[ -~]{1,256}$/.test(id)) throw wrong('options.id', id, 'is not a valid id; use 1 to 256 characters of printable ASCII', RangeError);
    checkWhole('limit', limit, MAX_COUNT, 0);
    checkWhole('windowMs', windowMs, MAX_WINDOW_MS);
    const { sampleCount = samplesOf(windowMs) } = options;
    checkWhole('sampleCount', sampleCount, MAX_SAMPLES);
    if (windowMs % sampleCount !== 0) {
      throw wrong('options.sampleCount', sampleCount, `does not divide the ${windowMs} ms of the window; use a divisor of it`, RangeError);
    }
    if (typeof store?.lease !== 'function') {
      throw wrong('options.store', store, 'is not a store; use one, as in `redis(client)` of leapgate/shared/redis');
    }
    if (!layout.WHEN_DOWN.includes(whenDown)) {
      throw wrong('options.whenDown', whenDown, "is not a way to decide; use 'local', 'refuse' or 'pass'");
    }
    checkWhole('timeoutMs', timeoutMs, MAX_TIMEOUT_MS);
    checkWhole('maxKeys', maxKeys, MAX_KEYS);
    this.#options = { id, limit, windowMs, sampleCount, store, whenDown, timeoutMs, maxKeys };
    this.#spanMs = windowMs + windowMs / sampleCount;
    this.#calls = new Calls(this.#at, this.#options, ({ key, cost, ctx }, waits) => this.#ask(key, cost, ctx, waits));
    wasm.ready();
    registry?.register(this, this.#at, this.#at);
  }

  // The number of the limiter's node in the module. It is made at the first decision: Workers have no randomness before.
  #number() {
    const at = this.#at;
    if (at.generation === wasm.generation) return at.number;
    if (at.generation < 0) {
      throw fault('ERR_LEAPGATE_FREED', 'limiter: it has been closed; make another one, or close it later');
    }
    // What an earlier instance had leased counts as used: this is another node.
    wasm.seed();
    const { id, limit, windowMs, sampleCount, whenDown, maxKeys } = this.#options;
    const down = layout.WHEN_DOWN.indexOf(whenDown);
    const [high, low] = wasm.randomWords();
    const random = (high >>> 11) * 2 ** 32 + low;
    at.number = core.shared_new(wasm.putTextAt(id, 0), limit, windowMs, sampleCount, down, maxKeys, random);
    at.generation = wasm.generation;
    this.#calls.restart();
    return at.number;
  }

  // Decides about a request. Returns its result; null if the store has been asked and has not answered; undefined if it has answered at
  // once, so that it can be decided again.
  #take(key, cost, ctx, waits) {
    if ((typeof key === 'string' ? key : Array.isArray(key) ? nameOf(key) : '').length > MAX_KEY) {
      throw wrong('key', key, `is too long for a store; use at most ${MAX_KEY} characters, or a hash of it`, RangeError, 'ERR_LEAPGATE_KEY');
    }
    const number = this.#number();
    const [now, wall] = [wasm.defaultClock(), Date.now()];
    let code;
    try {
      code = core.shared_take(number, slotOf(key), cost, now, wall, waits);
    } catch (error) {
      throw wasm.crashed(error);
    }
    const value = wasm.results()[layout.TAKEN_VALUE];
    const isAnswered = code >= layout.TAKEN_MESSAGE && this.#calls.send(now, ctx);
    switch (code % layout.TAKEN_MESSAGE) {
      case layout.TAKEN_PASS:
        return this.#result(true, value, 0, wall);
      case layout.TAKEN_REFUSE:
        return this.#result(false, 0, value < 0 ? Infinity : value, wall);
    }
    return isAnswered ? undefined : null;
  }

  #result(success, remaining, retryAfterMs, wall) {
    const { id, limit, windowMs } = this.#options;
    const resetMs = success || retryAfterMs === Infinity ? this.#spanMs : retryAfterMs;
    const reset = Math.ceil(wall + (success ? resetMs : retryAfterMs));
    return { success, limit, remaining, reset, retryAfterMs, rule: id, policies: [{ id, limit, remaining, windowMs, resetMs }] };
  }

  // The result, or null if the store has been asked.
  #ask(key, cost, ctx, waits) {
    // A store in this process answers at once, and may have to be asked twice.
    for (let tries = waits ? 3 : 0; tries > 0; tries--) {
      const result = this.#take(key, cost, ctx, true);
      if (result !== undefined) return result;
    }
    return this.#take(key, cost, ctx, false);
  }

  // The result, or, if the store has been asked, the request.
  #decide(key, options) {
    let [cost, ctx] = [1, undefined];
    if (options !== undefined) {
      checkOptions('options', options, REQUEST, REQUEST_EXAMPLE);
      if (options.cost !== undefined) cost = checkNumber('options.cost', options.cost, MAX_COST, true);
      ctx = options.ctx;
      if (ctx !== undefined && typeof ctx?.waitUntil !== 'function') {
        throw wrong('options.ctx', ctx, 'is not a context; use the one that the runtime hands to `fetch`, or leave it out');
      }
    }
    const calls = this.#calls;
    calls.latest = undefined;
    const isBehind = calls.waiting > 0 && calls.isBehind(key, cost);
    return (isBehind ? null : this.#ask(key, cost, ctx, true)) ?? { key, cost, ctx };
  }

  // A result, or a promise of it.
  [DECIDE](key, options) {
    const result = this.#decide(key, options);
    return result.success === undefined ? this.#calls.wait(result) : result;
  }

  limit(key, options) {
    try {
      return Promise.resolve(this[DECIDE](key, options));
    } catch (error) {
      return Promise.reject(beginAt(SharedLimiter.prototype.limit, error));
    }
  }

  limitNow(key, options) {
    const result = this.#decide(key, options);
    return result.success === undefined ? null : result;
  }

  refund(key, cost = 1) {
    checkNumber('cost', cost, MAX_COST, true);
    const number = this.#number();
    try {
      core.shared_give_back(number, slotOf(key), cost);
    } catch (error) {
      throw wasm.crashed(error);
    }
  }

  async close() {
    const at = this.#at;
    if (at.generation === wasm.generation) {
      // Answers that arrive meanwhile grant more.
      for (let rounds = 0; rounds < 3; rounds++) {
        core.shared_close(at.number);
        this.#calls.settle();
        const pending = this.#calls.pending();
        if (pending.length === 0) break;
        await Promise.all(pending);
      }
      if (at.generation === wasm.generation) core.shared_free(at.number);
    }
    this.#calls.stop();
    at.generation = -1;
    registry?.unregister(at);
  }

  stats() {
    core.shared_figures(this.#number());
    const results = wasm.results();
    const figures = Object.fromEntries(layout.FIGURES.map((name, i) => [name, results[i]]));
    return { ...figures, isDown: figures.isDown > 0, waiting: this.#calls.waiting };
  }

  // For `leapgate/metrics`.
  [Symbol.for('leapgate.metrics')]() {
    return [{ kind: 'lease', rule: this.#options.id, ...this.stats() }];
  }

  [INSPECT](_, options, inspect) {
    const { id, limit, windowMs, whenDown } = this.#options;
    return inspected('SharedLimiter', { id, limit, windowMs, whenDown }, options, inspect);
  }

  static {
    bounded(this, 'SharedLimiter', (it) => #at in it);
    if (Symbol.asyncDispose) this.prototype[Symbol.asyncDispose] = this.prototype.close;
  }
}
