// The decision about a request.

import * as wasm from './core.js';
import { INSPECT, bounded, inspected } from './errors.js';

// What is seldom read is computed when it is read: of the fields, a decision only stores what these need.
export class LimitResult {
  #resetAt;
  #resetMs;
  #of;

  // When to try again, or when quota comes back, by the limiter's clock, and how long until quota comes back. `of` has the id of the
  // limit that decided and the length of its window, or the policies of several limits; and whether the clock has no zero of its own.
  constructor(success, limit, remaining, retryAfterMs, resetAt, resetMs, of) {
    this.success = success;
    this.limit = limit;
    this.remaining = remaining;
    this.retryAfterMs = retryAfterMs;
    this.#resetAt = resetAt;
    this.#resetMs = resetMs;
    this.#of = of;
  }

  get reset() {
    if (this.#of.isUptime) {
      const now = wasm.defaultClock();
      this.#resetAt += wasm.timeOfDay(now) - Math.floor(now);
      this.#of = { ...this.#of, isUptime: false };
    }
    return this.#resetAt;
  }

  get rule() {
    return this.#of.id;
  }

  get policies() {
    const { limit, remaining } = this;
    const { id, windowMs, policies = [{ id, limit, remaining, windowMs, resetMs: this.#resetMs }] } = this.#of;
    return policies;
  }

  toJSON() {
    const { success, limit, remaining, reset, retryAfterMs, shadowBlocked, rule, policies } = this;
    return { success, limit, remaining, reset, retryAfterMs, ...(shadowBlocked && { shadowBlocked }), rule, policies };
  }

  [INSPECT](_, options, inspect) {
    return inspected(this.constructor.name, this.toJSON(), options, inspect);
  }

  static {
    bounded(this, 'LimitResult');
    // An own field where it is true.
    this.prototype.shadowBlocked = false;
  }
}
