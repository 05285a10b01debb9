import * as core from './leapgate_bg.js';
import * as wasm from './core.js';
import { INSPECT, beginAt, bounded, checkClock, checkNumber, checkOptions, fault, inspected, wrong } from './errors.js';
import { HotKeys } from './hot.js';
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
const OPTIONS = [...LIMIT, 'limits', 'maxKeys', 'mode', 'now', 'clock'];
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
  #tree;
  #now;
  #hot = new HotKeys();
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
    const { now, clock, mode = 'enforce', ...rest } = checkOptions('options', options, OPTIONS, '`{ limit: 100, windowMs: 60_000 }`');
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
    this.#hot.clock = () => this.now();
    wasm.ready();
    this.#limits = [rest.limits ?? rest].flat().map((limit) => ({ ...limit }));
    this.#isUnlimited = this.#limits.every(({ limit }) => limit === Infinity);
    const { limits } = rest;
    this.#tree = flatten('options', Array.isArray(limits) ? { ...rest, limits: limits.map(finite) } : finite(rest));
    this.#open();
    this.#maxKeys = rest.maxKeys ?? MAX_KEYS;
    if (clock !== undefined) this.#hot.skips = this.#skips(clock, rest);
    registry?.register(this, this.#hot.at, this.#hot);
  }

  // How often a hot key does without the clock: what that makes too strict is at most a hundredth of the limit.
  #skips(clock, { limit, window }) {
    if (clock !== 'sparse') throw wrong('options.clock', clock, "means nothing here; use 'sparse', or leave it out");
    if (limit >= 200 && window !== 'weighted') return Math.min(16, Math.floor(limit / 100) - 1);
    throw wrong('options.clock', clock, 'needs a single `limit` of at least 200, and a window that is not weighted; leave it out', RangeError);
  }

  // Makes the limiter in the module, and reads back the defaults.
  #open() {
    const number = core.limiter_new(wasm.put(this.#tree));
    // An error message is never empty.
    if (number < 0) throw fault('ERR_LEAPGATE_OPTIONS', wasm.readText(-number), RangeError);
    this.#policies = [];
    for (let i = 0, bytes; (bytes = core.limiter_about(number, i)) >= 0; i++) {
      // The window in the module may be a few milliseconds longer, so that its buckets are equal.
      this.#policies.push({ id: wasm.readText(bytes), windowMs: this.#limits[i].windowMs, isUptime: this.#now === undefined });
    }
    this.#hot.begin(number, this.#policies[0]);
  }

  // The limiter's number in the module.
  #ready() {
    const { at } = this.#hot;
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
    const hot = this.#hot;
    const line = options === undefined ? hot.find(key) : undefined;
    const taken = line === undefined ? undefined : (hot.skip(line) ?? hot.take(line, this.now()));
    return taken ?? this.#ask(key, options, REQUEST, layout.CHARGE);
  }

  peek(key, options) {
    return this.#ask(key, options, REQUEST, layout.LOOK);
  }

  hold(key, estimate = 1, options = undefined) {
    checkNumber('estimate', estimate, MAX_COST, true);
    const hold = this.#ask(key, options, HOLD, layout.HOLD, estimate, Hold);
    // Refused ones begin batches, too: a forgotten hold may be what refuses them.
    if (++this.#asked % BATCH === 1 || this.#batch.generation !== wasm.generation) {
      [this.#token, this.#batch] = [{}, { hot: this.#hot, generation: wasm.generation, clock: this.#now ?? wasm.defaultClock, holds: [] }];
      batches?.register(this.#token, this.#batch);
    }
    // What passes without a limit holds nothing.
    if (!hold.success || hold.shadowBlocked || hold.limit === Infinity) return hold;
    const { holds } = this.#batch;
    const results = wasm.results();
    holds.push(results[layout.VERDICT_HOLD], results[layout.VERDICT_SEQUENCE], estimate);
    return Hold.open(hold, this.#token, this.#batch, holds.length - HOLD_LEN);
  }

  // Whatever else reads or changes what a key counts calls this first: it charges what has passed without the module. Returns the number of
  // the key.
  #flush(key, now) {
    const slot = this.#slotOf(key);
    this.#hot.flush(key, now);
    return slot;
  }

  // The same for all keys.
  #flushAll() {
    this.#hot.flushAll();
  }

  #ask(key, options, names, how, cost = 1, Result = LimitResult) {
    const number = this.#ready();
    let [count, isUnlimited] = [-1, this.#isUnlimited];
    if (options !== undefined) {
      checkOptions('options', options, names, EXAMPLE);
      if (options.cost !== undefined) cost = checkNumber('options.cost', options.cost, MAX_COST, true);
      if (options.limit !== undefined) isUnlimited = options.limit === Infinity;
      if (options.limit !== undefined && !isUnlimited) count = this.#count(options.limit);
    }
    const now = this.now();
    let passes;
    try {
      const slot = this.#flush(key, now);
      this.#hot.follow(now);
      if (slot === 0 && ++this.#unremembered % UNREMEMBERED === 0 && !this.#sharing) this.#checkSharing();
      passes = core.limiter_ask(number, slot, cost, count, now, isUnlimited ? layout.LOOK : how);
      // Keys with a number have come again.
      const isPlain = how === layout.CHARGE && count < 0 && !isUnlimited && this.#policies.length === 1;
      if (passes && slot > 0 && typeof key === 'string' && isPlain) this.#hot.note(key, now);
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
    const [remaining, retryAfterMs] = isBlocked ? [0, waitOf(retry)] : [Infinity, 0];
    const { id, isUptime } = this.#policies[0];
    const of = { id: isBlocked ? null : id, isUptime, policies: [] };
    return new Result(!isBlocked, Infinity, remaining, retryAfterMs, Math.floor(now) + retryAfterMs, 0, of);
  }

  // Warns once that keys share windows.
  #checkSharing() {
    core.limiter_stats(this.#hot.at.number);
    this.#sharing = wasm.results()[1] > 0;
    if (!this.#sharing) return;
    const ids = this.#policies.map(({ id }) => `\`${id}\``).join(', ');
    const what = 'more keys count than it keeps apart; some share, which is stricter for them';
    warn('LEAPGATE_MAX_KEYS', `leapgate: limiter ${ids}: ${what}: raise \`maxKeys\``);
  }

  stats() {
    const number = this.#ready();
    this.#flushAll();
    core.limiter_stats(number);
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
    const refuses = success ? 0 : results[layout.VERDICT_REFUSING];
    const retry = success ? 0 : results[layout.VERDICT_RETRY_AFTER];
    const retryAfterMs = waitOf(retry);
    const from = Math.floor(now);
    if (this.#policies.length === 1 && refuses === 0) {
      const at = layout.VERDICT_LEN;
      const [count, remaining, resetMs] = [results[at + layout.LIMIT_COUNT], results[at + layout.LIMIT_REMAINING], results[at + layout.LIMIT_RESET]];
      return new Result(success, count, remaining, retryAfterMs, from + (success ? resetMs : retryAfterMs), resetMs, this.#policies[0]);
    }
    const policies = this.#policies.map(({ id, windowMs }, i) => {
      const at = layout.VERDICT_LEN + layout.LIMIT_LEN * i;
      const [limit, remaining, resetMs] = [results[at + layout.LIMIT_COUNT], results[at + layout.LIMIT_REMAINING], results[at + layout.LIMIT_RESET]];
      return { id, limit, remaining, windowMs, resetMs };
    });
    const scarcest = policies.reduce((scarcest, policy) => (policy.remaining < scarcest.remaining ? policy : scarcest));
    const told = policies.filter((_, i) => this.#limits[i].limit < Infinity);
    const { id, limit } = success ? scarcest : (policies[refuses] ?? { id: null, limit: told[0].limit });
    const remaining = refuses < 0 ? 0 : scarcest.remaining;
    const { isUptime } = this.#policies[0];
    return new Result(success, limit, remaining, retryAfterMs, from + (success ? scarcest.resetMs : retryAfterMs), 0, { id, isUptime, policies: told });
  }

  refund(key, cost = 1, options = {}) {
    const number = this.#ready();
    checkNumber('cost', cost, MAX_COST, true);
    const { at } = checkOptions('options', options, ['at'], '`{ at: limiter.now() }`, or leave it out');
    const now = this.now();
    const charged = at === undefined ? now : checkNumber('options.at', at, Number.MAX_VALUE, false);
    this.#guarded(() => core.limiter_refund(number, this.#flush(key), cost, charged, now));
  }

  reset(key) {
    const number = this.#ready();
    this.#guarded(() => core.limiter_reset(number, this.#flush(key)));
  }

  block(key, ms) {
    const number = this.#ready();
    if (ms !== Infinity) checkNumber('ms', ms, Number.MAX_SAFE_INTEGER, false);
    const now = this.now();
    this.#flushAll();
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
    const { at } = this.#hot;
    if (at.generation === wasm.generation) core.limiter_free(at.number);
    this.#hot.begin(-1);
    at.generation = -1;
    registry?.unregister(this.#hot);
  }

  [INSPECT](_, options, inspect) {
    const limits = this.#policies.map(({ id, windowMs }, i) => ({ id, limit: this.#limits[i].limit, windowMs }));
    return inspected('Limiter', { limits, maxKeys: this.#maxKeys }, options, inspect);
  }

  static {
    bounded(this, 'Limiter', (it) => #hot in it);
    if (Symbol.dispose) this.prototype[Symbol.dispose] = this.prototype.free;
  }
}

// Ends the hold at this place of a batch: at its estimate, unless its cost is known. Returns by how much the cost is more than that.
function settle({ hot, generation, clock, holds }, place, actual = holds[place + 2]) {
  const { at } = hot;
  // The holds of an earlier instance are lost.
  if (generation !== wasm.generation || generation !== at.generation) return 0;
  const now = timeOf(clock);
  try {
    hot.follow(now);
    // Its window, which nothing held, may have been reused since.
    if (holds[place + 2] === 0) hot.flushAll();
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
