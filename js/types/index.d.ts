/// <reference lib="esnext.disposable" />

/** What a window guarantees. */
export type WindowMode =
  /** Never more than the limit in any interval, at any alignment (the default). */
  | 'strict'
  /** At most twice the limit in any interval, as Sentinel counts. */
  | 'sentinel'
  /** As `sentinel`, and the bucket that is leaving counts in proportion to what is left of it. */
  | 'weighted';

/** How much a key may have in a window. */
export interface Limit {
  /** How much passes in a window: from 0 to 2^53; `Infinity` limits nothing, and has no policy in results. */
  limit: number;
  /** The length of the window, in whole milliseconds. */
  windowMs: number;
  /** What the window guarantees; `strict` unless given. */
  window?: WindowMode | undefined;
  /**
   * The number of buckets in the window: a divisor of `windowMs`. The largest up to 20 unless given; if that is below 10, the
   * limiter decides by a window that is up to 20 ms longer and has up to 20 buckets.
   */
  sampleCount?: number | undefined;
  /** The limit's name in results. The length of its window unless given, as in `60s`. */
  id?: string | undefined;
}

/** The settings of all limiters. */
export interface LimiterSettings {
  /** How many keys have a window of their own: 100,000 unless given. Further keys share windows, which is stricter for them. */
  maxKeys?: number | undefined;
  /**
   * `shadow`: requests that would be refused, also those of blocked keys, pass and are charged nothing; their results have
   * `shadowBlocked`, and `stats()` counts them. `enforce` unless given.
   */
  mode?: 'enforce' | 'shadow' | undefined;
  /**
   * The clock, in milliseconds. `performance.now()` unless given, `Date.now()` in Workers; while a test fakes `Date`, the fake is followed.
   * A clock by `Date` is `() => Date.now()`: the function itself would stay the real one.
   */
  now?: (() => number) | undefined;
}

/** How often the clock is read. */
export interface SparseClock {
  /**
   * `'sparse'`: only for every few requests of a key that comes often, as many as a hundredth of the limit and at most 17. What passes
   * without is charged when the clock is next read: later than it came, so that no interval has more than the limit, and at most a
   * hundredth of it is too strict. Until then, `reset` is as of the latest reading. Only for a `limit` of at least 200 in a window that is not
   * weighted. For each request unless given.
   */
  clock?: 'sparse';
}

/** One limit, or several: a request passes if all of them admit it. */
export type LimiterOptions = LimiterSettings &
  ((Limit & SparseClock & { limits?: never }) | ({ limits: readonly Limit[] } & { [name in keyof (Limit & SparseClock)]?: never }));

/** The key to limit: a value, or several in a fixed order. A number is the same key as its text. */
export type Key = string | number | bigint | readonly (string | number | bigint)[];

/** The state of a limit for a key. */
export interface Policy {
  /** The limit's id. */
  id: string;
  /** How much passes in a window. */
  limit: number;
  /** The whole passes left. */
  remaining: number;
  /** The length of the window, in milliseconds. */
  windowMs: number;
  /** Milliseconds until quota comes back: a whole pass if none is left, else any part of it; 0 if none is used. */
  resetMs: number;
}

/**
 * The decision about a request. It is yours to keep: no later request changes it. What a `Limiter` returns has `reset`, `rule` and
 * `policies` as getters: `{ ...result }` and `Object.assign` leave them out; `JSON.stringify` and consoles show all.
 */
export interface LimitResult {
  /** Whether the request passes. */
  success: boolean;
  /** The limit of `rule`. */
  limit: number;
  /** The whole passes left, of the limit with the fewest. */
  remaining: number;
  /** When to try again if refused, else when quota comes back: in epoch milliseconds, or in the time of the given `now`. */
  readonly reset: number;
  /**
   * 0 if the request passes, unless only shadow mode lets it; else the milliseconds until it would pass if no other came; `Infinity` if it
   * never can, which JSON writes as `null`.
   */
  retryAfterMs: number;
  /** Of a `Limiter`: whether the request passes in shadow mode alone. */
  shadowBlocked?: boolean | undefined;
  /** The limit that refuses, else the limit with the fewest passes left; null if the key is blocked. */
  readonly rule: string | null;
  /** The state of each limit. */
  readonly policies: Policy[];
}

/** The properties of a request. */
export interface LimitOptions {
  /** The cost: a whole number, 1 unless given. */
  cost?: number | undefined;
  /**
   * A limit for this request, in place of the limiter's; only for a limiter with one limit. `Infinity`, for a limiter with several, too: unless
   * the key is blocked, the request passes, is charged nothing and holds nothing.
   */
  limit?: number | undefined;
}

/**
 * What a request holds until its cost is known, or a refusal: the decision, and how to end the hold. A refused request holds
 * nothing, and ending it does nothing.
 */
export interface Hold extends LimitResult {
  /**
   * Ends the hold: the actual cost counts from now on, and the rest is given back; the estimate unless given. More than was held is
   * charged all the same, over the limit if need be. Returns how much more that is, 0 if the hold has ended before.
   */
  settle(actual?: number): number;
  /** Ends the hold of a request that has cost nothing. */
  cancel(): void;
  /** The same as `settle()`. */
  [Symbol.dispose](): void;
}

/** How full a limiter is. */
export interface LimiterStats {
  /** How many keys have a window of their own, including expired keys whose place is not reused yet. */
  keys: number;
  /** How many requests have been charged to the windows that further keys share. */
  shared: number;
  /** How many requests have passed in shadow mode alone. */
  shadowBlocked: number;
}

/** Limits each of many keys. */
export class Limiter {
  /** Throws an error with the code `ERR_LEAPGATE_OPTIONS` if an option is wrong. Reads neither clock nor randomness. */
  constructor(options: LimiterOptions);
  /** Decides about a request with `key`. If it passes, it is charged to all limits, else to none. */
  limit(key: Key, options?: LimitOptions): LimitResult;
  /** What `limit` would return. Charges nothing. */
  peek(key: Key, options?: LimitOptions): LimitResult;
  /**
   * Decides as `limit` does about a request whose cost will be known when it ends. If it passes, it holds `estimate` (1 unless given):
   * that counts in full, for however long, until `settle` or `cancel`. A hold that is forgotten is settled at its estimate some
   * time after it and up to 63 later ones have been garbage-collected, where the runtime tells that.
   *
   * A request that only holds keep out gets a `retryAfterMs` of at least 1000: when they end is unknown. An estimate above the
   * limit never passes.
   */
  hold(key: Key, estimate?: number, options?: Pick<LimitOptions, 'limit'>): Hold;
  /**
   * Refunds the charge of a request that turns out not to count. `at` is when it was charged, by `limiter.now()`: without it, the
   * latest charge is refunded, and quota may come back too early.
   */
  refund(key: Key, cost?: number, options?: { at?: number | undefined }): void;
  /** Forgets all charges of `key`, and that it is blocked. What is held stays. */
  reset(key: Key): void;
  /** Refuses all requests with `key` for the next `ms` milliseconds; 0 ends it, `Infinity` never ends. */
  block(key: Key, ms: number): void;
  /** How full the limiter is; of several limits, the fullest. */
  stats(): LimiterStats;
  /**
   * What all keys count, and which are blocked, as bytes for `restore`. They have ages and no instants, so that the clock of another process
   * can go on. What is held is in them as used. They contain the secret that keys are hashed with: a client that reads it can make
   * keys that share windows. Takes time and bytes in proportion to the keys that count something, some 15 bytes each.
   */
  snapshot(): Uint8Array;
  /**
   * Goes on from a snapshot that another limiter has taken, in this process or another one: before the first request, and with as many
   * limits, the same `windowMs`, `window`, `sampleCount` and `maxKeys`. Each `limit` may be another one. `elapsedMs` is how long ago it was
   * taken; unless given, no time has passed. What has passed since the snapshot is not known: take it when no more requests come. Buckets
   * are dated at their ends, so that quota may come back up to a bucket later, and never earlier; all that keys beyond `maxKeys` have shared
   * counts for a whole window more. Throws an error with the code `ERR_LEAPGATE_ARGUMENT` if the bytes are truncated, of another version or of
   * other limits, or if the limiter has been used; nothing is restored then.
   *
   * A limiter that is restored with another hash than the first one of the process hashes each key anew, which takes some 200 ns more.
   */
  restore(bytes: Uint8Array, options?: { elapsedMs?: number | undefined }): void;
  /** The limiter's clock. */
  now(): number;
  /** Frees the memory. The limiter cannot be used afterwards. */
  free(): void;
  [Symbol.dispose](): void;
}

/** The codes of the errors that this package throws. */
export type LeapgateErrorCode =
  | 'ERR_LEAPGATE_ARGUMENT'
  | 'ERR_LEAPGATE_BLOCKED'
  | 'ERR_LEAPGATE_CLOCK'
  | 'ERR_LEAPGATE_CRASHED'
  | 'ERR_LEAPGATE_FREED'
  | 'ERR_LEAPGATE_FULL'
  | 'ERR_LEAPGATE_TIMEOUT'
  | 'ERR_LEAPGATE_IP'
  | 'ERR_LEAPGATE_KEY'
  | 'ERR_LEAPGATE_NOT_READY'
  | 'ERR_LEAPGATE_OPEN'
  | 'ERR_LEAPGATE_OPTIONS'
  | 'ERR_LEAPGATE_RULES';
