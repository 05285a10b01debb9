/// <reference lib="esnext.disposable" />
/**
 * One limit for several processes, machines or isolates: never more than the limit in any interval, over all of them together.
 *
 * ```js
 * import { SharedLimiter } from 'leapgate/shared';
 * import { redis } from 'leapgate/shared/redis';
 *
 * const limiter = new SharedLimiter({ id: 'api', limit: 100, windowMs: 60_000, store: redis(client) });
 * const { success } = await limiter.limit('203.0.113.7');
 * ```
 *
 * @module
 */
import type { Key, LimitResult } from 'leapgate';

/** A store that processes share. */
export interface LeaseStore {
  /** Sends a request about a key, and returns the answer: the texts are leapgate's own. */
  lease(key: string, request: string): string | Promise<string>;
}

/** What decides while the store does not answer. */
export type WhenDown =
  /**
   * The process itself, by its part of the limit: the limit divided by the processes last seen. Over such a change an interval holds
   * at most twice the limit.
   */
  | 'local'
  /** Nothing passes without a permit: never more than the limit. */
  | 'refuse'
  /** Everything passes. */
  | 'pass';

/** The options of a shared limiter. */
export interface SharedLimiterOptions {
  /** The limit's name at the store: limiters with the same id, window and buckets share a count. It is `flowId` in documents. */
  id: string | number;
  /** How much passes in a window, everywhere together: a whole number from 0 to 2^53. */
  limit: number;
  /** The length of the window, in whole milliseconds. */
  windowMs: number;
  /**
   * The number of buckets in the window: a divisor of `windowMs`. The largest up to 20 unless given; if that is below 10, a warning
   * says so (`LEAPGATE_BUCKETS`): with `n` buckets as little as `n / (n + 1)` of the limit may pass.
   */
  sampleCount?: number | undefined;
  /** The store that the processes share. */
  store: LeaseStore;
  /** What decides while the store does not answer; `local` unless given. */
  whenDown?: WhenDown | undefined;
  /** How long an answer of the store may take, in milliseconds: 500 unless given. Then it counts as lost. */
  timeoutMs?: number | undefined;
  /** How many keys this process keeps apart: 100,000 unless given. Further keys take the places of others, whose permits are lost. */
  maxKeys?: number | undefined;
}

/** The properties of a request. */
export interface SharedLimitOptions {
  /** The cost: a whole number, 1 unless given. */
  cost?: number | undefined;
  /** In Workers, the context of the request: it keeps calls to the store alive when the response has been sent. */
  ctx?: { waitUntil(promise: Promise<unknown>): void };
}

/** What this process has done so far. */
export interface SharedLimiterStats {
  /** The permits that it has. */
  permits: number;
  /** The calls to the store. */
  asks: number;
  /** The permits that it was granted. */
  granted: number;
  /** The calls without an answer. */
  lost: number;
  /** For how many milliseconds the store did not answer, before it last did. */
  downMs: number;
  /** Whether the store does not answer now. */
  isDown: boolean;
  /** How many requests wait for an answer of the store. */
  waiting: number;
}

/**
 * Limits each of many keys, together with all other processes whose limiters have the same id, window and store. Permits are leased, a
 * few at a time: while there are some, a decision calls no store.
 */
export class SharedLimiter {
  /** Throws an error with the code `ERR_LEAPGATE_OPTIONS` if an option is wrong. Reads neither clock nor randomness. */
  constructor(options: SharedLimiterOptions);
  /**
   * Decides about a request with `key`; the key `[]` is that of all requests together. The promise is resolved already while there are permits, or while the store is known to have
   * none. Else it waits for the store, for each key first come, first served, and no longer than `timeoutMs`, at worst twice.
   *
   * Of a result, `remaining` is what is known here, and a request that passes has its quota back after `resetMs` at the latest.
   */
  limit(key: Key, options?: SharedLimitOptions): Promise<LimitResult>;
  /** The same, at once; null if the store has to be asked, which is done. */
  limitNow(key: Key, options?: SharedLimitOptions): LimitResult | null;
  /** Gives back what a request was charged that turns out not to count, unless the store has heard of it. */
  refund(key: Key, cost?: number): void;
  /** What this process has done so far. */
  stats(): SharedLimiterStats;
  /** Settles what was used, and gives back all other permits. The limiter cannot be used afterwards. */
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}
