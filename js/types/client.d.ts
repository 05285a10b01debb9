/**
 * `fetch` that keeps to limits: its own, and what upstreams say of theirs.
 *
 * ```js
 * import { limitedFetch } from 'leapgate/client';
 *
 * const limited = limitedFetch(fetch, { limit: 10, windowMs: 1000, concurrency: 5 }); // for each origin
 * const response = await limited('https://api.example.com/items');
 * ```
 *
 * @module
 */
import type { WindowMode } from 'leapgate';

/** How many requests with one key are sent in a window. */
export interface ClientLimit {
  /** How many requests are sent in a window: from 0 to 2^53; `Infinity` for no limit. */
  limit: number;
  /** The length of the window, in whole milliseconds. */
  windowMs: number;
  /** What the window guarantees; `strict` unless given. */
  window?: WindowMode;
  /** The number of buckets in the window: a divisor of `windowMs`. The largest up to 20 unless given. */
  sampleCount?: number;
  /** The limit's name in errors. The length of its window unless given, as in `60s`. */
  id?: string;
}

/** What is known of a request before it is sent. */
export interface RequestLike {
  /** The absolute URL, if it can be known. */
  url: string;
  /** In upper case. */
  method: string;
  headers: Headers;
}

interface Common {
  /** How many requests with one key may be in flight: from when they are sent until their headers arrive. Unlimited unless given. */
  concurrency?: number;
  /**
   * What requests are told apart by: those with one key share limits, a line, and what their upstream says. The origin of the URL unless
   * given. Null for a request that is passed on unlimited. At most 1024 characters.
   */
  key?: (request: RequestLike) => string | number | bigint | null;
  /**
   * How many keys have windows of their own, and how many upstreams are remembered: 10,000 unless given. Further keys share windows,
   * which is stricter for them; of an upstream the one that was asked least recently is forgotten.
   */
  maxKeys?: number;
  /** How long a request waits in all, for its turns and between attempts, in milliseconds: unlimited unless given. */
  maxWaitMs?: number;
  /** How many requests may wait: 1000 unless given. Further ones reject: `ERR_LEAPGATE_FULL`. */
  maxWaiting?: number;
  /**
   * The longest pause that an upstream can cause, in milliseconds, whatever it says: an hour unless given. With 0, what upstreams
   * say of times and counts is ignored.
   */
  maxPauseMs?: number;
  /** How often a request is sent again at most: 2 unless given; up to 100. */
  retries?: number;
  /** The clock, in milliseconds: for tests. */
  now?: () => number;
}

/** The limits of `limitedFetch`: one, several or none, which keeps to what upstreams say only. */
export type LimitedFetchOptions =
  | (Common & ClientLimit & { limits?: never })
  | (Common & { limits?: readonly ClientLimit[] } & { [K in keyof ClientLimit]?: never });

/**
 * Returns a function that does what `fetch` does, but waits before: for its turn, first come, first served for each key, until all rules
 * admit the request and its upstream is not known to refuse it. A request that has to wait longer than `maxWaitMs` rejects with a
 * `BlockedError` of `leapgate/flow`, at once if that is known; its rule is `upstream` if the upstream makes it wait. The request's
 * signal ends the wait, too: the function rejects with its reason.
 *
 * **What upstreams say** makes it stricter, never looser: a key pauses while its upstream has nothing left, has no more requests in
 * flight than are left, and after a pause sends one request before the others. It reads `Retry-After` of 429, 503 and 403, `RateLimit` and
 * `RateLimit-Policy` of drafts 6 to 11, `X-RateLimit-*` (with a reset in seconds, epoch seconds or epoch milliseconds), and the headers
 * of GitHub, OpenAI and Anthropic. Times of day are compared with the upstream's own `Date`. What is malformed, contradictory or longer than
 * 2048 characters is ignored. After a redirect, what the last server says holds for the key of the request. In browsers, only headers
 * that a server exposes can be read.
 *
 * **Retries**: a request that the upstream has refused (429, or 503 with `Retry-After`, or 403 with it or with nothing left, as GitHub
 * answers), and one that has failed, is sent again if it is idempotent (GET, HEAD, OPTIONS, PUT, DELETE, or any with an
 * `Idempotency-Key`) and its body can be sent again, which a stream cannot. Each attempt counts as a request. If the upstream has not
 * said when, the pause is random, up to 1 s, and doubles with each attempt, up to a minute. If the wait would exceed `maxWaitMs`, the refusal is returned. The
 * result is always a response of `fetch` itself, or its error; the bodies of others are cancelled.
 */
export function limitedFetch<F extends (input: any, init?: any) => Promise<any>>(fetch: F, options?: LimitedFetchOptions): F;
