/**
 * A store for express-rate-limit and hono-rate-limiter: sliding windows, in which what is refused is not charged, and never more
 * than the limit in any interval.
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
import type { LimiterSettings, WindowMode } from 'leapgate';

/** How the store counts. The limit and the window are for the middleware to say. */
export interface StoreOptions extends LimiterSettings {
  /** How the window counts; `strict` unless given. */
  window?: WindowMode;
  /** Into how many buckets the window is cut: a divisor of `windowMs`. */
  sampleCount?: number;
}

/** What both middlewares ask of a store. */
export interface Store {
  init(options: { limit: unknown; windowMs: number }): void;
  increment(key: string): Hits;
  decrement(key: string): void;
  get(key: string): Hits | undefined;
  resetKey(key: string): void;
  resetAll(): void;
  /** Gives its memory back. It cannot be used afterwards. */
  shutdown(): void;
  readonly localKeys: true;
}

/** What is counted of a key. A refusal has one hit more than the limit; with a limit of 0, every hit is counted. */
export interface Hits {
  totalHits: number;
  /** When it is worth trying again, or, of what has passed, when it has left the window. */
  resetTime: Date;
}

/** A store, for one middleware. The middleware's `limit` is a number: a store does not hear what a function answers. */
export function leapgate(options?: StoreOptions): Store;
