// A ThrottlerStorage for @nestjs/throttler: never more than the limit in any window, and memory is bounded.

import { Limiter } from 'leapgate';
import { INSPECT, bounded, checkOptions, fault, inspected, kindOf, outermost, wrong } from './errors.js';
import { sampled } from './refused.js';

const KNOWN = ['window', 'maxKeys', 'onRefused', 'mode', 'clock', 'now'];

// How many windows there may be, by throttler and length. A `ttl` that is computed for each request has no window to count in.
const MAX_LIMITERS = 64;

const seconds = (ms) => Math.ceil(ms / 1000);

class Storage {
  #options;
  #report;
  #limiters = new Map();
  #isFreed = false;

  constructor({ onRefused, ...options }) {
    // Checks them now, and not at the first request.
    new Limiter({ ...options, limit: 0, windowMs: 1000 }).free();
    this.#options = options;
    this.#report = sampled(onRefused);
  }

  // The limiter of a throttler, with the limit that it was made with.
  #limiter(name, ttl, limit) {
    if (this.#isFreed) throw fault('ERR_LEAPGATE_FREED', 'storage: it has been shut down; make another one, or shut it down later');
    const id = `${name} ${ttl}`;
    const found = this.#limiters.get(id);
    if (found !== undefined) return found;
    if (!Number.isInteger(ttl) || ttl < 1) throw wrong('ttl', ttl, 'is not a valid window; use whole milliseconds from 1', kindOf(ttl));
    if (this.#limiters.size === MAX_LIMITERS) {
      throw fault(
        'ERR_LEAPGATE_FULL',
        `storage: \`ttl\` has had ${MAX_LIMITERS} values, and each is a window of its own; use fewer, or a \`limit\` that varies instead`,
      );
    }
    const usual = limit === Infinity ? 0 : limit;
    const made = { limiter: new Limiter({ ...this.#options, limit: usual, windowMs: ttl }), limit: usual };
    this.#limiters.set(id, made);
    return made;
  }

  async increment(key, ttl, limit, blockDuration, throttlerName) {
    const { limiter, limit: usual } = this.#limiter(throttlerName, ttl, limit);
    const result = limiter.limit(key, limit === usual ? undefined : { limit });
    this.#report?.(key, result);
    // Without a limit, there is no policy, and nothing counts.
    const [{ remaining, resetMs } = { remaining: limit, resetMs: 0 }] = result.policies;
    const [most, timeToExpire] = [Math.floor(limit), seconds(resetMs)];
    if (result.success) return { totalHits: most === remaining ? 0 : most - remaining, timeToExpire, isBlocked: false, timeToBlockExpire: 0 };
    const timeToBlockExpire = seconds(block(limiter, key, result, ttl, blockDuration));
    return { totalHits: most + 1, timeToExpire: Math.max(timeToExpire, timeToBlockExpire), isBlocked: true, timeToBlockExpire };
  }

  onApplicationShutdown() {
    this.#isFreed = true;
    for (const { limiter } of this.#limiters.values()) limiter.free();
    this.#limiters.clear();
  }

  [INSPECT](_, options, inspect) {
    return inspected('Storage', { limiters: Array.from(this.#limiters.values(), ({ limiter }) => limiter) }, options, inspect);
  }
}
bounded(Storage, 'Storage');

// Blocks a key that has been refused, and returns for how many milliseconds: at least until its window has room, so that a client that
// waits so long is not blocked again.
function block(limiter, key, { rule, retryAfterMs }, ttl, blockDuration) {
  // It can never pass.
  if (retryAfterMs === Infinity) return Math.max(ttl, blockDuration);
  const isBlocked = rule === null;
  if (isBlocked || !(blockDuration > 0)) return retryAfterMs;
  const ms = Math.max(blockDuration, retryAfterMs);
  try {
    limiter.block(key, ms);
    return ms;
  } catch (error) {
    if (error.code !== 'ERR_LEAPGATE_FULL') throw error;
    // Its window refuses it all the same.
    return retryAfterMs;
  }
}

export const leapgate = outermost('leapgate', (options = {}) => {
  checkOptions('options', options, KNOWN, '`{ maxKeys: 10_000 }`, or leave it out');
  return new Storage(options);
});
