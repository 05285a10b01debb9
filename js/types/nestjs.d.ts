/**
 * A storage for @nestjs/throttler 6: sliding windows, never more than the limit in any interval, and refused requests are not charged.
 *
 * ```ts
 * import { leapgate } from 'leapgate/nestjs';
 *
 * ThrottlerModule.forRoot({ throttlers: [{ limit: 100, ttl: 60_000 }], storage: leapgate() });
 * ```
 *
 * @module
 */
import type { LimitResult, LimiterSettings, WindowMode } from 'leapgate';
import type { Refusal } from './adapter.js';

export type { Refusal } from './adapter.js';

/** The settings of a storage. The limits are those of the throttlers. */
export interface StorageOptions extends LimiterSettings {
  /** What the windows guarantee; `strict` unless given. */
  window?: WindowMode | undefined;
  /** Reports a refusal, for logs and metrics: at most 10 calls in any second, and one for each key. */
  onRefused?: ((refusal: Refusal<LimitResult>) => unknown) | undefined;
}

/** What the guard reads. Times are in whole seconds. */
export interface Hits {
  /** How much of the limit is used, with this request; one more than the limit if it is refused. */
  totalHits: number;
  /** How long until quota comes back. */
  timeToExpire: number;
  /** Whether the request is refused. */
  isBlocked: boolean;
  /** If it is refused: how long until a request passes again. */
  timeToBlockExpire: number;
}

/** The storage that `ThrottlerModule` expects, with a window for each throttler and `ttl`. */
export interface Storage {
  /**
   * Decides about a request. `limit` may differ from request to request; there may be 64 windows, which differ in `throttlerName` or
   * `ttl` (whole milliseconds). After a refusal, the key is blocked for `blockDuration` milliseconds, or until its window has room if
   * that is later; at 0 it is not blocked. The guard says the `ttl` unless a throttler has a `blockDuration`.
   */
  increment(key: string, ttl: number, limit: number, blockDuration: number, throttlerName: string): Promise<Hits>;
  /** Frees the memory. Nest calls it if shutdown hooks are enabled. */
  onApplicationShutdown(): void;
}

/** Makes a storage. Throws an error with the code `ERR_LEAPGATE_OPTIONS` if an option is wrong. */
export function leapgate(options?: StorageOptions): Storage;
