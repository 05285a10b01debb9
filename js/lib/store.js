// A store for express-rate-limit and hono-rate-limiter: their own store charges refused requests, and admits twice the limit at
// the boundary of two fixed windows.

import { Limiter } from 'leapgate';
import { INSPECT, bounded, checkObject, checkOptions, fault, inspected, outermost, shown, wrong } from './errors.js';
import { sampled } from './refused.js';

const KNOWN = ['window', 'sampleCount', 'maxKeys', 'onRefused', 'mode', 'clock', 'now'];

// The limit for a middleware whose own limit is 0. It needs all hits counted: it refuses all itself, or delays, as express-slow-down
// does.
const ENDLESS = 2 ** 53;

// How many keys may have refusals that the middleware has not decremented yet.
const MAX_OWED = 10_000;

// Whether the middleware will decrement for refused requests, which have not been charged.
function takesBackRefusals({ skipFailedRequests, skipSuccessfulRequests, statusCode = 429, requestStorePropertyName }) {
  // hono-rate-limiter asks about a refusal before there is a response, and judges by the blank one, a 200.
  const isSuccess = requestStorePropertyName !== undefined || statusCode < 400;
  return Boolean(isSuccess ? skipSuccessfulRequests : skipFailedRequests);
}

// Of today, whatever clock the store has: middlewares compare it with `Date.now()`.
const timeIn = (ms) => new Date(Date.now() + ms);

const EXAMPLE = "`{ window: 'weighted' }`, or leave it out";

function checkStore(options) {
  checkObject('options', options, EXAMPLE);
  for (const name of ['limit', 'windowMs']) {
    if (options[name] === undefined) continue;
    throw wrong(`options.${name}`, options[name], 'is for the middleware to say; move it there');
  }
  checkOptions('options', options, KNOWN, EXAMPLE);
}

class Store {
  // Stores share no keys: this one is in memory.
  localKeys = true;
  #options;
  #report;
  #limiter;
  #limit;
  #windowMs;
  #error = fault(
    'ERR_LEAPGATE_NOT_READY',
    'store: no middleware has said its limit; pass the store to one, as in `rateLimit({ store })`',
  );
  #takesBackRefusals;
  #owed = new Map();

  constructor({ onRefused, ...options }) {
    this.#options = options;
    this.#report = sampled(onRefused);
  }

  // express-rate-limit only logs an error thrown here: so it is thrown again for each request.
  init(theirs) {
    try {
      this.#init(theirs);
      this.#error = undefined;
    } catch (error) {
      this.#error = error;
      throw error;
    }
  }

  #init(theirs) {
    const { limit, windowMs } = theirs;
    if (this.#limiter !== undefined) {
      throw fault(
        'ERR_LEAPGATE_OPTIONS',
        'store: it has a middleware already, whose windows it keeps; give each middleware a store of its own',
      );
    }
    if (typeof limit === 'function') {
      throw fault(
        'ERR_LEAPGATE_OPTIONS',
        `limit: \`${shown(limit)}\` is asked for each request, and a store does not hear the answer; use a number, or the middleware of leapgate/express or leapgate/hono`,
        TypeError,
      );
    }
    const counted = limit === 0 ? ENDLESS : limit;
    this.#limiter = new Limiter({ ...this.#options, limit: counted, windowMs });
    this.#limit = Math.floor(counted);
    this.#windowMs = windowMs;
    this.#takesBackRefusals = takesBackRefusals(theirs);
  }

  // Forgets all counts and frees their memory.
  shutdown() {
    this.#limiter?.free();
    this.#owed.clear();
    this.#error = fault('ERR_LEAPGATE_FREED', 'store: it has been shut down; make another one, or shut it down later');
  }

  [INSPECT](_, options, inspect) {
    return inspected('Store', { limiter: this.#limiter ?? null }, options, inspect);
  }

  #ready() {
    if (this.#error !== undefined) throw this.#error;
    return this.#limiter;
  }

  #passed({ remaining }) {
    // When all hits will have left the window: until then the middleware may decrement them.
    return { totalHits: this.#limit - remaining, resetTime: timeIn(this.#windowMs) };
  }

  #refused({ retryAfterMs }) {
    const wait = Math.ceil(Math.min(retryAfterMs, this.#windowMs));
    return { totalHits: this.#limit + 1, resetTime: timeIn(wait) };
  }

  increment(key) {
    const result = this.#ready().limit(key);
    this.#report?.(key, result);
    if (result.success) return this.#passed(result);
    if (this.#takesBackRefusals) this.#owe(key);
    return this.#refused(result);
  }

  #owe(key) {
    const owed = this.#owed.get(key) ?? 0;
    if (owed === 0 && this.#owed.size === MAX_OWED) this.#owed.delete(this.#owed.keys().next().value);
    this.#owed.set(key, owed + 1);
  }

  decrement(key) {
    const limiter = this.#ready();
    const owed = this.#owed.get(key) ?? 0;
    if (owed > 1) this.#owed.set(key, owed - 1);
    else this.#owed.delete(key);
    if (owed > 0) return;
    // The middleware does not say which request to refund. The oldest charge is refunded, which never admits more: the others then
    // count at least as long as they should.
    const now = limiter.now();
    const [{ resetMs }] = limiter.peek(key).policies;
    // A strict window keeps a bucket until its end is so long ago, other windows until its start is.
    const end = (this.#options.window ?? 'strict') === 'strict' ? 1 : 0;
    limiter.refund(key, 1, { at: Math.max(0, now + resetMs - this.#windowMs - end) });
  }

  get(key) {
    const result = this.#ready().peek(key);
    if (!result.success) return this.#refused(result);
    return result.remaining === this.#limit ? undefined : this.#passed(result);
  }

  resetKey(key) {
    this.#ready().reset(key);
  }

  resetAll() {
    this.#ready().free();
    this.#owed.clear();
    this.#limiter = new Limiter({ ...this.#options, limit: this.#limit, windowMs: this.#windowMs });
  }
}
bounded(Store, 'Store');

export const leapgate = outermost('leapgate', (options = {}) => {
  checkStore(options);
  return new Store(options);
});
