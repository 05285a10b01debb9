import type { Key, LimitResult, Limiter, LimiterOptions, Policy } from 'leapgate';
import type { EngineResult, RequestOptions } from 'leapgate/engine';
import type { HeadersDraft } from './http.js';

/** What is limited: the options of a `Limiter`, a limiter, or an engine. */
export type Limits<Args extends unknown[]> = OwnLimits | GivenLimiter | GivenEngine<Args>;

/** Limits of this adapter alone. */
export type OwnLimits = LimiterOptions & { limiter?: never; engine?: never; resource?: never; origin?: never };

type NoLimits = { [name in 'limit' | 'windowMs' | 'window' | 'sampleCount' | 'id' | 'limits' | 'maxKeys' | 'now']?: never };

/** A limiter that others use too: `reset` and `block` clients by it. */
export interface GivenLimiter extends NoLimits {
  limiter: Limiter;
  engine?: never;
  resource?: never;
  origin?: never;
}

/**
 * An engine (`leapgate/engine`), with rules of all kinds. What a request has entered ends with its response: with an error where
 * that is one of the server, 500 and above. All requests count as coming from outside. None waits: what would have to is refused.
 */
export interface GivenEngine<Args extends unknown[]> extends NoLimits {
  engine: EngineLike;
  /** Names what a request is for, as the engine's rules do. */
  resource: (...request: Args) => string;
  /** Names who asks, for rules that look at that. A client must not be free to choose it. */
  origin?: (...request: Args) => string | null | undefined | Promise<string | null | undefined>;
  limiter?: never;
}

/**
 * What a refusal says. Of an engine, status and body are those of refusals with 429; the kinds of rules that answer 503 say `service
 * unavailable`, with the problem type `temporary-reduced-capacity`, and those that answer 403 `forbidden`.
 */
export interface Reply {
  /** 429 unless given. */
  status?: number;
  /** Text unless given; or JSON; or JSON of the problem type `quota-exceeded` (RFC 9457). */
  format?: 'text' | 'json' | 'problem';
  /** What has happened, in words: `too many requests` unless given. */
  body?: string;
  /** Further headers. */
  headers?: Record<string, string>;
}

type KeyOf<Args extends unknown[], K> = (...request: Args) => K | Promise<K>;

/**
 * Who is limited; for an engine, it may be said by the names of the parts of its rules' keys. Requests for which the function returns
 * nothing share one limit, and a warning says so once.
 */
export type ByKey<Args extends unknown[]> =
  | { engine?: never; key: KeyOf<Args, Key> }
  | { engine: EngineLike; key: KeyOf<Args, NonNullable<RequestOptions['key']>> };

/** The same, or as the adapter knows it. */
export type PerhapsByKey<Args extends unknown[]> = ByKey<Args> | { key?: never };

/** What all adapters have. `Args` is what a request is here, and `Response` what `countIf` sees of the answer. */
export interface Common<Args extends unknown[], Response, ReplyFunction, Refusal = Reply> {
  /** Whether a request is not limited, and not counted. */
  skip?: (...request: Args) => boolean | Promise<boolean>;
  /**
   * Whether a request that has passed counts, asked when its response is there; if not, what it was charged is given back. Until
   * then it counts, and a request whose handler has failed without a response counts.
   */
  countIf?: (request: Args[0], response: Response) => boolean | Promise<boolean>;
  /** In which form all responses tell the limits: 11 unless given; false for not at all. `Retry-After` is told in any case. */
  draft?: HeadersDraft | false;
  /** What a refusal says, or a function that answers instead; status and headers are set then, of what it answers too. */
  reply?: Refusal | ReplyFunction;
}

/** What became of a request. */
export interface Result extends Omit<LimitResult, 'policies'> {
  /** How each limit stands. */
  policies: (Omit<Policy, 'windowMs'> & { windowMs: number | null })[];
  /** Of an engine: by which kind of rule it was refused; null if it passes. */
  cause?: EngineResult['cause'];
  /** Of an engine: the HTTP status of the refusal; null if it passes. */
  status?: EngineResult['status'];
}

/** What an adapter asks of an engine. */
export interface EngineLike {
  enter(resource: string, request: { key?: any; origin?: string; inbound?: boolean }): EntryLike;
}

/** What has entered, or was refused: what has entered is ended once. */
export interface EntryLike extends Result {
  /**
   * `error` where the answer is one of the server, 500 and above; `refund` where `countIf` says that it does not count;
   * `unanswered` where the client has left before.
   */
  exit(outcome: { error?: unknown; refund?: boolean; unanswered?: boolean }): void;
}
