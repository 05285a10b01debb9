import type { Key, LimitResult, Limiter, LimiterOptions, Policy } from 'leapgate';
import type { SharedLimiter } from 'leapgate/shared';
import type { EngineResult, RequestOptions } from 'leapgate/engine';
import type { HeadersDraft } from './http.js';

/** The limits: the options of a `Limiter`, a limiter, or an engine. */
export type Limits<Args extends unknown[]> = OwnLimits | GivenLimiter | GivenEngine<Args>;

/** Limits that belong to this adapter alone. */
export type OwnLimits = LimiterOptions & { limiter?: never; engine?: never; resource?: never; origin?: never };

type NoLimits = { [name in 'limit' | 'windowMs' | 'window' | 'sampleCount' | 'id' | 'limits' | 'maxKeys' | 'now']?: never };

/** A limiter that you share with other code, to `reset` and `block` clients, or one that other processes share. */
export interface GivenLimiter extends NoLimits {
  limiter: Limiter | SharedLimiter;
  engine?: never;
  resource?: never;
  origin?: never;
}

/**
 * An engine (`leapgate/engine`), with rules of all kinds. A request's entry ends with the response, as an error if the status is
 * 500 or above. All requests are inbound. No request waits: one that would have to is refused.
 */
export interface GivenEngine<Args extends unknown[]> extends NoLimits {
  engine: EngineLike;
  /** Returns the resource of a request, as the engine's rules name it. */
  resource: (...request: Args) => string;
  /** Returns the caller of a request, for rules by origin. A client must not be free to choose it. */
  origin?: (...request: Args) => string | null | undefined | Promise<string | null | undefined>;
  limiter?: never;
}

/**
 * The response to a refused request. With an engine, `status` and `body` apply to refusals with status 429. A refusal with 503 says
 * `service unavailable`, with the problem type `temporary-reduced-capacity`; a refusal with 403 says `forbidden`.
 */
export interface Reply {
  /** 429 unless given. */
  status?: number;
  /** `text` unless given; `json`; or `problem`, JSON with the problem type `quota-exceeded` (RFC 9457). */
  format?: 'text' | 'json' | 'problem';
  /** The message: `too many requests` unless given. */
  body?: string;
  /** Further headers. */
  headers?: Record<string, string>;
}

type KeyOf<Args extends unknown[], K> = (...request: Args) => K | Promise<K>;

/**
 * The function that returns the key to limit; for an engine, it may return values by key part. Requests without a key share one
 * limit, and a warning says so once.
 */
export type ByKey<Args extends unknown[]> =
  | { engine?: never; key: KeyOf<Args, Key> }
  | { engine: EngineLike; key: KeyOf<Args, NonNullable<RequestOptions['key']>> };

/** The same, or the adapter's own key. */
export type PerhapsByKey<Args extends unknown[]> = ByKey<Args> | { key?: never };

/** The options of all adapters. `Args` are the arguments of a request, and `Response` is the response that `countIf` gets. */
export interface Common<Args extends unknown[], Response, ReplyFunction, Refusal = Reply> {
  /** Whether a request is neither limited nor counted. */
  skip?: (...request: Args) => boolean | Promise<boolean>;
  /**
   * Whether a passed request counts, called when its response is there; if not, the charge is refunded. Until then it counts, and a
   * request whose handler fails without a response counts.
   */
  countIf?: (request: Args[0], response: Response) => boolean | Promise<boolean>;
  /** The form of the rate limit headers on all responses: 11 unless given; false for none. `Retry-After` is sent in any case. */
  draft?: HeadersDraft | false;
  /** The response to a refused request, or a function that answers it; status and headers are set in both cases. */
  reply?: Refusal | ReplyFunction;
}

/** The decision about a request. */
export interface Result extends Omit<LimitResult, 'policies'> {
  /** The state of each limit. */
  policies: (Omit<Policy, 'windowMs'> & { windowMs: number | null })[];
  /** With an engine: the kind of the refusing rule; null if the request passes. */
  cause?: EngineResult['cause'];
  /** With an engine: the HTTP status of the refusal; null if the request passes. */
  status?: EngineResult['status'];
}

/** What an adapter needs of an engine. */
export interface EngineLike {
  enter(resource: string, request: { key?: any; origin?: string; inbound?: boolean }): EntryLike;
}

/** A call in flight, or a refusal. An admitted call is ended once. */
export interface EntryLike extends Result {
  /**
   * `error` if the status is 500 or above; `refund` if `countIf` returns false; `unanswered` if the client has left before the
   * answer.
   */
  exit(outcome: { error?: unknown; refund?: boolean; unanswered?: boolean }): void;
}
