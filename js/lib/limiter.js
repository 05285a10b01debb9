import * as core from './leapgate_bg.js';
import * as wasm from './core.js';
import { INSPECT, beginAt, bounded, checkClock, checkNumber, checkOptions, fault, inspected, wrong } from './errors.js';
import * as layout from './layout.js';
import { LimitResult } from './result.js';
import { restore, save } from './snapshot.js';
import { flatten } from './tree.js';
import { warn } from './warn.js';

const MAX_COST = 2 ** 32 - 1;
const MAX_COUNT = 2 ** 53;
const MAX_KEYS = 100_000;
const MAX_BLOCK_MS = 1e13;

// The options of the constructor, and of calls.
const LIMIT = ['limit', 'windowMs', 'window', 'sampleCount', 'id'];
const OPTIONS = [...LIMIT, 'limits', 'maxKeys', 'mode', 'now'];
const REQUEST = ['cost', 'limit'];
const EXAMPLE = '`{ cost: 2 }`, or leave it out';

const HOLD = ['limit'];

// Checks whether keys share windows each time so many keys without a number have come, as in a flood of new keys.
const UNREMEMBERED = 64;

// For how many calls of `hold` a batch is. The holds of a batch are settled together once all of them have been garbage-collected:
// registering each hold would take longer than the rest of it.
const BATCH = 64;

// Of each hold, a batch has two numbers and the estimate.
const HOLD_LEN = 3;

// Frees limiters that were garbage-collected.
const registry =
  typeof FinalizationRegistry === 'function'
    ? new FinalizationRegistry((at) => {
        if (at.generation === wasm.generation) core.limiter_free(at.number);
      })
    : undefined;


const timeOf = (clock) => checkClock('options.now()', clock());

// A key that is blocked for good is so until the end of the module's time.
const waitOf = (retry) => (retry < 0 || retry > MAX_BLOCK_MS ? Infinity : retry);

// The module has the largest count for a limit that is infinite.
const finite = (options) => (options?.limit === Infinity ? { ...options, limit: MAX_COUNT } : options);

export class Limiter {
  #at = { number: -1, generation: 0 };
  #tree;
  #now;
  #policies = [];
  #limits;
  // No limit is finite.
  #isUnlimited;
  #isShadow;
  #shadowBlocked = 0;
  // The seed of the keys if they were restored and have another one than the module.
  #seed;
  #maxKeys;
  #unremembered = 0;
  #sharing = false;
  // For the latest holds.
  #asked = 0;
  #token;
  #batch;

  constructor(options) {
    try {
      this.#make(options);
    } catch (error) {
      throw beginAt(Limiter, error);
    }
  }

  #make(options) {
    const { now, mode = 'enforce', ...rest } = checkOptions('options', options, OPTIONS, '`{ limit: 100, windowMs: 60_000 }`');
    if (Array.isArray(rest.limits)) {
      // The core reports an item that is not an object.
      rest.limits.forEach((limit, i) => Object(limit) === limit && checkOptions(`options.limits[${i}]`, limit, LIMIT));
    }
    if (now !== undefined && typeof now !== 'function') {
      throw wrong('options.now', now, 'is not a function; use one that returns milliseconds, or leave it out');
    }
    if (mode !== 'enforce' && mode !== 'shadow') {
      throw wrong('options.mode', mode, "is not a mode; use 'enforce' or 'shadow'", RangeError);
    }
    this.#isShadow = mode === 'shadow';
    this.#now = now;
    wasm.ready();
    this.#limits = [rest.limits ?? rest].flat().map((limit) => ({ ...limit }));
    this.#isUnlimited = this.#limits.every(({ limit }) => limit === Infinity);
    const { limits } = rest;
    this.#tree = flatten('options', Array.isArray(limits) ? { ...rest, limits: limits.map(finite) } : finite(rest));
    this.#open();
    this.#maxKeys = rest.maxKeys ?? MAX_KEYS;
    registry?.register(this, this.#at, this.#at);
  }

  // Makes the limiter in the module, and reads back the defaults.
  #open() {
    const number = core.limiter_new(wasm.put(this.#tree));
    // An error message is never empty.
    if (number < 0) throw fault('ERR_LEAPGATE_OPTIONS', wasm.readText(-number), RangeError);
    this.#at.number = number;
    this.#at.generation = wasm.generation;
    this.#policies = [];
    for (let i = 0, bytes; (bytes = core.limiter_about(number, i)) >= 0; i++) {
      // The window in the module may be a few milliseconds longer, so that its buckets are equal.
      this.#policies.push({ id: wasm.readText(bytes), windowMs: this.#limits[i].windowMs });
    }
  }

  // The limiter's number in the module.
  #ready() {
    const at = this.#at;
    if (at.generation === wasm.generation) return at.number;
    if (at.generation < 0) {
      throw fault('ERR_LEAPGATE_FREED', 'limiter: it has been freed; make another one, or free it later');
    }
    // The counts of an earlier instance are lost: nothing passes until its windows would have passed.
    const now = this.now();
    this.#open();
    core.limiter_close(at.number, now);
    return at.number;
  }

  now() {
    return this.#now === undefined ? wasm.defaultClock() : timeOf(this.#now);
  }

  limit(key, options) {
    return this.#ask(key, options, REQUEST, layout.CHARGE);
  }

  peek(key, options) {
    return this.#ask(key, options, REQUEST, layout.LOOK);
  }

  hold(key, estimate = 1, options = undefined) {
    checkNumber('estimate', estimate, MAX_COST, true);
    const hold = this.#ask(key, options, HOLD, layout.HOLD, estimate, Hold);
    // Refused ones begin batches, too: a forgotten hold may be what refuses them.
    if (++this.#asked % BATCH === 1 || this.#batch.generation !== wasm.generation) {
      [this.#token, this.#batch] = [{}, { at: this.#at, generation: wasm.generation, clock: this.#now ?? wasm.defaultClock, holds: [] }];
      batches?.register(this.#token, this.#batch);
    }
    // What passes without a limit holds nothing.
    if (!hold.success || hold.shadowBlocked || hold.limit === Infinity) return hold;
    const { holds } = this.#batch;
    const results = wasm.results();
    holds.push(results[layout.VERDICT_HOLD], results[layout.VERDICT_SEQUENCE], estimate);
    return Hold.open(hold, this.#token, this.#batch, holds.length - HOLD_LEN);
  }

  // Whatever else reads or changes what a key counts calls this first: it charges what has passed without the module.
  #flush(_key) {}

  // The same for all keys.
  #flushAll() {}

  #ask(key, options, names, how, cost = 1, Result = LimitResult) {
    const number = this.#ready();
    let [count, isUnlimited] = [-1, this.#isUnlimited];
    if (options !== undefined) {
      checkOptions('options', options, names, EXAMPLE);
      if (options.cost !== undefined) cost = checkNumber('options.cost', options.cost, MAX_COST, true);
      if (options.limit === Infinity) isUnlimited = true;
      else if (options.limit !== undefined) count = this.#count(options.limit);
    }
    const now = this.now();
    let passes;
    try {
      this.#flush(key);
      const slot = this.#slotOf(key);
      if (slot === 0 && ++this.#unremembered % UNREMEMBERED === 0 && !this.#sharing) this.#checkSharing();
      passes = core.limiter_ask(number, slot, cost, count, now, isUnlimited ? layout.LOOK : how);
    } catch (error) {
      throw wasm.crashed(error);
    }
    const result = isUnlimited ? this.#answerUnlimited(passes, now, Result) : this.#answer(passes, now, Result);
    return this.#isShadow && !result.success ? this.#shadow(result, how) : result;
  }

  // The number of the key in the module.
  #slotOf(key) {
    return this.#seed === undefined ? wasm.numberOf(key) : wasm.unnumbered(this.#seed, key);
  }

  // Lets a refused request pass.
  #shadow(result, how) {
    if (how !== layout.LOOK) this.#shadowBlocked++;
    return Object.assign(result, { success: true, shadowBlocked: true });
  }

  // Only blocked keys are refused.
  #answerUnlimited(passes, now, Result) {
    const { [layout.VERDICT_REFUSING]: refuses, [layout.VERDICT_RETRY_AFTER]: retry } = wasm.results();
    const isBlocked = !passes && refuses < 0;
    const remaining = isBlocked ? 0 : Infinity;
    return new Result(!isBlocked, Infinity, remaining, isBlocked ? waitOf(retry) : 0, this.#epoch(now), 0, isBlocked ? null : this.#policies[0], []);
  }

  #epoch(now) {
    return this.#now === undefined ? wasm.timeOfDay(now) : now;
  }

  // Warns once that keys share windows.
  #checkSharing() {
    this.#sharing = this.stats().shared > 0;
    if (!this.#sharing) return;
    const ids = this.#policies.map(({ id }) => `\`${id}\``).join(', ');
    const what = 'more keys count than it keeps apart; some share, which is stricter for them';
    warn('LEAPGATE_MAX_KEYS', `leapgate: limiter ${ids}: ${what}: raise \`maxKeys\``);
  }

  stats() {
    this.#flushAll();
    core.limiter_stats(this.#ready());
    const [keys, shared] = wasm.results();
    return { keys, shared, shadowBlocked: this.#shadowBlocked };
  }

  #count(limit) {
    if (this.#policies.length > 1) {
      throw wrong('options.limit', limit, 'could be that of any of `limits`; leave it out', TypeError);
    }
    return checkNumber('options.limit', limit, MAX_COUNT, false);
  }

  #answer(success, now, Result) {
    const results = wasm.results();
    const epoch = this.#epoch(now);
    const refuses = success ? 0 : results[layout.VERDICT_REFUSING];
    const retry = success ? 0 : results[layout.VERDICT_RETRY_AFTER];
    const retryAfterMs = waitOf(retry);
    if (this.#policies.length === 1 && refuses === 0) {
      const at = layout.VERDICT_LEN;
      const [count, remaining, resetMs] = [results[at + layout.LIMIT_COUNT], results[at + layout.LIMIT_REMAINING], results[at + layout.LIMIT_RESET]];
      return new Result(success, count, remaining, retryAfterMs, epoch, resetMs, this.#policies[0]);
    }
    const policies = new Array(this.#policies.length);
    let scarcest = 0;
    for (let i = 0; i < policies.length; i++) {
      const { id, windowMs } = this.#policies[i];
      const at = layout.VERDICT_LEN + layout.LIMIT_LEN * i;
      policies[i] = {
        id,
        limit: results[at + layout.LIMIT_COUNT],
        remaining: results[at + layout.LIMIT_REMAINING],
        windowMs,
        resetMs: results[at + layout.LIMIT_RESET],
      };
      if (policies[i].remaining < policies[scarcest].remaining) scarcest = i;
    }
    const { remaining, resetMs } = policies[scarcest];
    const rule = success ? scarcest : refuses;
    const { limit } = policies[rule] ?? policies[0];
    const told = policies.filter((_, i) => this.#limits[i].limit < Infinity);
    return new Result(success, limit, rule < 0 ? 0 : remaining, retryAfterMs, epoch, resetMs, this.#policies[rule] ?? null, told);
  }

  refund(key, cost = 1, options = {}) {
    const number = this.#ready();
    checkNumber('cost', cost, MAX_COST, true);
    const { at } = checkOptions('options', options, ['at'], '`{ at: limiter.now() }`, or leave it out');
    const now = this.now();
    const charged = at === undefined ? now : checkNumber('options.at', at, Number.MAX_VALUE, false);
    this.#flush(key);
    this.#guarded(() => core.limiter_refund(number, this.#slotOf(key), cost, charged, now));
  }

  reset(key) {
    const number = this.#ready();
    this.#flush(key);
    this.#guarded(() => core.limiter_reset(number, this.#slotOf(key)));
  }

  block(key, ms) {
    const number = this.#ready();
    if (ms !== Infinity) checkNumber('ms', ms, Number.MAX_SAFE_INTEGER, false);
    const now = this.now();
    this.#flush(key);
    if (this.#guarded(() => core.limiter_block(number, this.#slotOf(key), ms, now))) return;
    throw fault('ERR_LEAPGATE_FULL', 'limiter: as many keys are blocked as `maxKeys` allows; raise it, or block for less long');
  }

  snapshot() {
    const [number, now] = [this.#ready(), this.now()];
    this.#flushAll();
    return this.#guarded(() => save(number, this.#seed, now));
  }

  restore(bytes, options = {}) {
    const number = this.#ready();
    const { elapsedMs = 0 } = checkOptions('options', options, ['elapsedMs'], '`{ elapsedMs: 1000 }`, or leave it out');
    checkNumber('options.elapsedMs', elapsedMs, Number.MAX_VALUE, false);
    const now = this.now();
    this.#flushAll();
    this.#seed = this.#guarded(() => restore(number, bytes, elapsedMs, now));
  }

  #guarded(call) {
    try {
      return call();
    } catch (error) {
      throw wasm.crashed(error);
    }
  }

  free() {
    const at = this.#at;
    if (at.generation === wasm.generation) core.limiter_free(at.number);
    at.generation = -1;
    registry?.unregister(at);
  }

  [INSPECT](_, options, inspect) {
    const limits = this.#policies.map(({ id, windowMs }, i) => ({ id, limit: this.#limits[i].limit, windowMs }));
    return inspected('Limiter', { limits, maxKeys: this.#maxKeys }, options, inspect);
  }

  static {
    bounded(this, 'Limiter', (it) => #at in it);
    if (Symbol.dispose) this.prototype[Symbol.dispose] = this.prototype.free;
  }
}

// Ends the hold at this place of a batch: at its estimate, unless its cost is known. Returns by how much the cost is more than that.
function settle({ at, generation, clock, holds }, place, actual = holds[place + 2]) {
  // The holds of an earlier instance are lost.
  if (generation !== wasm.generation || generation !== at.generation) return 0;
  const now = timeOf(clock);
  try {
    return core.limiter_settle(at.number, holds[place], holds[place + 1], actual, now);
  } catch (error) {
    throw wasm.crashed(error);
  }
}

// Settles the holds of a batch that are still open.
const batches =
  typeof FinalizationRegistry === 'function'
    ? new FinalizationRegistry((batch) => {
        for (let place = 0; place < batch.holds.length; place += HOLD_LEN) settle(batch, place);
      })
    : undefined;

// What a request holds until its cost is known; or a refusal.
class Hold extends LimitResult {
  // Its batch is registered for this object.
  #token;
  #batch;
  #place;

  // The hold of a request that passes, which is at this place of its batch.
  static open(hold, token, batch, place) {
    hold.#token = token;
    hold.#batch = batch;
    hold.#place = place;
    return hold;
  }

  settle(actual) {
    if (actual !== undefined) checkNumber('actual', actual, MAX_COST, true);
    const debt = this.#batch === undefined ? 0 : settle(this.#batch, this.#place, actual);
    this.#batch = undefined;
    return debt;
  }

  cancel() {
    this.settle(0);
  }

  static {
    bounded(this, 'Hold', (it) => #batch in it);
    if (Symbol.dispose) this.prototype[Symbol.dispose] = this.prototype.settle;
  }
}
