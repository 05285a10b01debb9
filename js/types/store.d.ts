/**
 * A store for express-rate-limit and hono-rate-limiter: sliding windows, never more than the limit in any interval, and refused
 * requests are not charged.
 *
 * ```js
 * import { leapgate } from 'leapgate/store';
 *
 * app.use(rateLimit({ limit: 100, windowMs: 60_000, store: leapgate() }));
 * ```
 *
 * It also counts for express-slow-down, which delays requests instead of refusing them.
 *
 * @module
 */
import type { LimitResult, LimiterSettings, WindowMode } from 'leapgate';
import type { Refusal } from './adapter.js';

export type { Refusal } from './adapter.js';

/** The settings of a store. The limit and the window are options of the middleware. */
export interface StoreOptions extends LimiterSettings {
  /** What the window guarantees; `strict` unless given. */
  window?: WindowMode | undefined;
  /** The number of buckets in the window: a divisor of `windowMs`. */
  sampleCount?: number | undefined;
  /** Reports a refusal, for logs and metrics: at most 10 calls in any second, and one for each key. */
  onRefused?: ((refusal: Refusal<LimitResult>) => unknown) | undefined;
}

/** The store that both middlewares expect. */
export interface Store {
  init(options: { limit: unknown; windowMs: number }): void;
  increment(key: string): Hits;
  decrement(key: string): void;
  get(key: string): Hits | undefined;
  resetKey(key: string): void;
  resetAll(): void;
  /** Frees the memory. The store cannot be used afterwards. */
  shutdown(): void;
  readonly localKeys: true;
}

/** The hits of a key. A refusal has one hit more than the limit; with a limit of 0, every hit is counted. */
export interface Hits {
  totalHits: number;
  /** When to try again if refused, else when all hits will have left the window: by `Date.now()`, as middlewares read it. */
  resetTime: Date;
}

/** Makes a store for one middleware, whose `limit` has to be a number: a store never learns what a function returns. */
export function leapgate(options?: StoreOptions): Store;
