// The decision about a request.

import { INSPECT, bounded, inspected } from './errors.js';

// What is seldom read is computed when it is read: of the fields, a decision only stores what these need.
export class LimitResult {
  #epoch;
  #resetMs;
  #rule;
  #policies;

  // `epoch` is the time of day of the decision, and `rule` the id and the window of the limit that decided; null if the key is blocked.
  // Without `policies` it is the only one.
  constructor(success, limit, remaining, retryAfterMs, epoch, resetMs, rule, policies) {
    this.success = success;
    this.limit = limit;
    this.remaining = remaining;
    this.retryAfterMs = retryAfterMs;
    this.#epoch = epoch;
    this.#resetMs = resetMs;
    this.#rule = rule;
    this.#policies = policies;
  }

  get reset() {
    return Math.ceil(this.#epoch + (this.success ? this.#resetMs : this.retryAfterMs));
  }

  get rule() {
    return this.#rule && this.#rule.id;
  }

  get policies() {
    if (this.#policies === undefined) {
      const { limit, remaining } = this;
      const { id, windowMs } = this.#rule;
      this.#policies = [{ id, limit, remaining, windowMs, resetMs: this.#resetMs }];
    }
    return this.#policies;
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
