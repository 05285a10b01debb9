import type { Key, Limit, LimitResult, Limiter, LimiterSettings, Policy } from 'leapgate';
import type { SharedLimiter } from 'leapgate/shared';
import type { Costs, EngineResult, RequestOptions } from 'leapgate/engine';
import type { HeadersDraft } from './http.js';

/** The limits: the options of a `Limiter`, a limiter, or an engine. */
export type Limits<Args extends unknown[]> = OwnLimits<Args> | GivenLimiter<Args> | GivenEngine<Args>;

/**
 * A value, or a function that returns it, or a promise of it, for each request. A function that throws, or returns something else,
 * fails the request.
 */
export type PerRequest<Args extends unknown[], Value> = Value | ((...request: Args) => Value | Promise<Value>);

/** What a request is charged. */
interface Charged<Args extends unknown[]> {
  /** The cost of a request: a whole number from 0, 1 unless given. `countIf` refunds the same. */
  cost?: PerRequest<Args, number> | undefined;
  engine?: undefined;
  resource?: undefined;
  origin?: undefined;
}

/** Limits that belong to this adapter alone. */
export type OwnLimits<Args extends unknown[]> = LimiterSettings & Charged<Args> & { limiter?: undefined } & (
    | (Omit<Limit, 'limit'> & {
        /**
         * How much passes in a window: from 0 to 2^53. What a function returns is the limit of this request; at `Infinity`, the request
         * passes, is charged nothing, and its headers have no limit.
         */
        limit: PerRequest<Args, number>;
        limits?: undefined;
      })
    | ({ limits: readonly Limit[] } & { [name in keyof Limit]?: undefined })
  );

/** The names of the options of a limiter. */
export type LimiterNames = keyof Limit | keyof LimiterSettings | 'limits';

type NoLimits<Name extends LimiterNames = never> = { [name in Exclude<LimiterNames, Name>]?: undefined };

/** A limiter that you share with other code, to `reset` and `block` clients, or one that other processes share. */
export type GivenLimiter<Args extends unknown[]> = Charged<Args> & NoLimits<'limit'> &
  (
    | { limiter: Limiter | SharedLimiter; limit?: undefined }
    | {
        limiter: Limiter;
        /** The limit of a request in place of the limiter's, for a limiter with one limit. */
        limit?: PerRequest<Args, number> | undefined;
      }
  );

/**
 * An engine (`leapgate/engine`), with rules of all kinds. A request's entry ends with the response, as an error if the status is
 * 500 or above. All requests are inbound. No request waits: one that would have to is refused.
 */
export interface GivenEngine<Args extends unknown[]> extends NoLimits {
  engine: EngineLike;
  /** Returns the resource of a request, as the engine's rules name it. */
  resource: (...request: Args) => string;
  /** Returns the caller of a request, for rules by origin. A client must not be free to choose it. */
  origin?: ((...request: Args) => string | null | undefined | Promise<string | null | undefined>) | undefined;
  /** The cost of a request, as the engine's calls take it. */
  cost?: PerRequest<Args, Costs> | undefined;
  limiter?: undefined;
}

/**
 * The response to a refused request. With an engine, `status` and `body` apply to refusals with status 429. A refusal with 503 says
 * `service unavailable`, with the problem type `temporary-reduced-capacity`; a refusal with 403 says `forbidden`.
 */
export interface Reply {
  /** 429 unless given. */
  status?: number | undefined;
  /** `text` unless given; `json`; or `problem`, JSON with the problem type `quota-exceeded` (RFC 9457). */
  format?: 'text' | 'json' | 'problem' | undefined;
  /** The message: `too many requests` unless given. */
  body?: string | undefined;
  /** Further headers. */
  headers?: Record<string, string> | undefined;
}

type KeyOf<Args extends unknown[], K> = (...request: Args) => K | Promise<K>;

/**
 * The function that returns the key to limit; for an engine, it may return values by key part. Requests without a key share one
 * limit, and a warning says so once.
 */
export type ByKey<Args extends unknown[]> =
  | { engine?: undefined; key: KeyOf<Args, Key> }
  | { engine: EngineLike; key: KeyOf<Args, NonNullable<RequestOptions['key']>> };

/** The same, or the adapter's own key. */
export type PerhapsByKey<Args extends unknown[]> = ByKey<Args> | { key?: undefined };

/** A refusal, as `onRefused` gets it. */
export interface Refusal<Decision = Result> {
  /** The key of the request; undefined if an engine is asked without one. */
  key: unknown;
  /** The decision. */
  result: Decision;
  /** How many refusals have not been reported since the last call. */
  suppressed: number;
}

/** The options of all adapters. `Args` are the arguments of a request, and `Response` is the response that `countIf` gets. */
export interface Common<Args extends unknown[], Response, ReplyFunction, ReplyObject = Reply> {
  /** Whether a request is neither limited nor counted. */
  skip?: ((...request: Args) => boolean | Promise<boolean>) | undefined;
  /**
   * Whether a passed request counts, called when its response is there; if not, the charge is refunded. Until then it counts, and a
   * request whose handler fails without a response counts.
   */
  countIf?: ((request: Args[0], response: Response) => boolean | Promise<boolean>) | undefined;
  /**
   * Reports a refusal, for logs and metrics; also one that a limiter in shadow mode lets pass. At most 10 calls in any second, and one
   * for each key: a flood of requests is no flood of logs. What it throws becomes a warning (`LEAPGATE_ON_REFUSED`).
   */
  onRefused?: ((refusal: Refusal) => unknown) | undefined;
  /** The form of the rate limit headers on all responses: 11 unless given; false for none. `Retry-After` is sent in any case. */
  draft?: HeadersDraft | false | undefined;
  /** The response to a refused request, or a function that answers it; status and headers are set in both cases. */
  reply?: ReplyObject | ReplyFunction | undefined;
}

/** The option of adapters that tell the decision to handlers. */
export interface Property {
  /**
   * The name under which handlers find the decision: `rateLimit` unless given. If several limits of a request have one name, handlers
   * find the latest decision.
   */
  requestPropertyName?: string | undefined;
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
  enter(resource: string, request: { key?: any; origin?: string; cost?: Costs; inbound?: boolean }): EntryLike;
}

/** A call in flight, or a refusal. An admitted call is ended once. */
export interface EntryLike extends Result {
  /**
   * `error` if the status is 500 or above; `refund` if `countIf` returns false; `unanswered` if the client has left before the
   * answer.
   */
  exit(outcome: { error?: unknown; refund?: boolean; unanswered?: boolean }): void;
}
