/// <reference lib="esnext.disposable" />

/** How a window counts: what it guarantees. */
export type WindowMode =
  /** Never more than the limit in any interval, at any alignment (the default). */
  | 'strict'
  /** At most twice the limit in an interval, as Sentinel counts. */
  | 'sentinel'
  /** As Sentinel, and the bucket that is leaving by what is left of it. */
  | 'weighted';

/** How much of a key may pass in a window. */
export interface Limit {
  /** How much passes: from 0 to 2^53. */
  limit: number;
  /** The length of the window, in whole milliseconds. */
  windowMs: number;
  /** How the window counts; `strict` unless given. */
  window?: WindowMode;
  /** Into how many buckets the window is cut: a divisor of `windowMs`. Its largest divisor up to 20 unless given. */
  sampleCount?: number;
  /** What the limit is called in results. The length of its window unless given, as in `60s`. */
  id?: string;
}

/** What all limiters have. */
export interface LimiterSettings {
  /** How many keys have a window of their own: 100,000 unless given. Further ones share what is left, which is stricter for them. */
  maxKeys?: number;
  /** The clock, in milliseconds. `performance.now()` unless given, `Date.now()` in Workers. */
  now?: () => number;
}

/** One limit, or several, all of which must let a request pass. */
export type LimiterOptions = LimiterSettings &
  ((Limit & { limits?: never }) | ({ limits: readonly Limit[] } & { [name in keyof Limit]?: never }));

/** Who is limited: a value, or several in a fixed order. Numbers are the same key as their text. */
export type Key = string | number | bigint | readonly (string | number | bigint)[];

/** How a limit stands for a key. */
export interface Policy {
  /** The limit's id. */
  id: string;
  /** How much passes in the window. */
  limit: number;
  /** Whole passes that are left. */
  remaining: number;
  /** The length of the window, in milliseconds. */
  windowMs: number;
  /** Milliseconds until quota comes back: a whole pass where none is left, else any; 0 where none is used. */
  resetMs: number;
}

/** What became of a request. A plain object, yours to keep. */
export interface LimitResult {
  /** Whether it passes. */
  success: boolean;
  /** The limit of `rule`. */
  limit: number;
  /** Whole passes that are left: of the limit that has the fewest. */
  remaining: number;
  /** Epoch milliseconds (in the clock given as `now`, if one is): of the next try if refused, else of when quota comes back. */
  reset: number;
  /** 0 if it passes; else in how many milliseconds it would pass if nothing else came; `Infinity` where it never can. */
  retryAfterMs: number;
  /** The limit that refuses, or else the one of which the least is left; null where the key is blocked. */
  rule: string | null;
  /** How each limit stands. */
  policies: Policy[];
}

/** What a request says about itself. */
export interface LimitOptions {
  /** What it costs: a whole number, 1 unless given. */
  cost?: number;
  /** Another limit than the limiter's, for this request; where there is one limit only. */
  limit?: number;
}

/** How full a limiter is. */
export interface LimiterStats {
  /** How many keys have a window of their own, those included that have expired and are not taken yet. */
  keys: number;
  /** How many requests have been charged to what keys share that find no window of their own. */
  shared: number;
}

/** Limits on each of many keys. */
export class Limiter {
  /** Throws an error with the code `ERR_LEAPGATE_OPTIONS` where an option is wrong. Reads neither clock nor randomness. */
  constructor(options: LimiterOptions);
  /** Decides about a request of `key`; if it passes, it is charged to all limits, else to none. */
  limit(key: Key, options?: LimitOptions): LimitResult;
  /** What `limit` would answer. Charges nothing. */
  peek(key: Key, options?: LimitOptions): LimitResult;
  /**
   * Gives back what a request was charged that turns out not to count. `at` is when it was charged, by `limiter.now()`: without
   * it, what was charged last is given back, and quota may come back too early.
   */
  refund(key: Key, cost?: number, options?: { at?: number }): void;
  /** Forgets what was charged to `key`, and that it is blocked. */
  reset(key: Key): void;
  /** Refuses all that `key` asks for, for so many milliseconds from now on; 0 ends it. */
  block(key: Key, ms: number): void;
  /** How full it is; of several limits, the one that is fullest. */
  stats(): LimiterStats;
  /** The limiter's clock. */
  now(): number;
  /** Gives its memory back. It cannot be used afterwards. */
  free(): void;
  [Symbol.dispose](): void;
}

/** The codes of errors that this package throws. */
export type LeapgateErrorCode =
  | 'ERR_LEAPGATE_ARGUMENT'
  | 'ERR_LEAPGATE_BLOCKED'
  | 'ERR_LEAPGATE_CLOCK'
  | 'ERR_LEAPGATE_CRASHED'
  | 'ERR_LEAPGATE_FREED'
  | 'ERR_LEAPGATE_FULL'
  | 'ERR_LEAPGATE_IP'
  | 'ERR_LEAPGATE_KEY'
  | 'ERR_LEAPGATE_NOT_READY'
  | 'ERR_LEAPGATE_OPEN'
  | 'ERR_LEAPGATE_OPTIONS'
  | 'ERR_LEAPGATE_RULES';
