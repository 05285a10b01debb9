import type { Key, LimitResult, Limiter, LimiterOptions } from 'leapgate';
import type { HeadersDraft } from './http.js';

/** What is limited: the options of a `Limiter`, a limiter, or an engine. */
export type Limits<Args extends unknown[]> = OwnLimits | GivenLimiter | GivenEngine<Args>;

/** Limits of this adapter alone. */
export type OwnLimits = LimiterOptions & { limiter?: never; engine?: never; resource?: never };

type NoLimits = { [name in 'limit' | 'windowMs' | 'window' | 'sampleCount' | 'id' | 'limits' | 'maxKeys' | 'now']?: never };

/** A limiter that others use too: `reset` and `block` clients by it. */
export interface GivenLimiter extends NoLimits {
  limiter: Limiter;
  engine?: never;
  resource?: never;
}

/** An engine, with rules of all kinds. What a request has entered ends with its response. */
export interface GivenEngine<Args extends unknown[]> extends NoLimits {
  engine: EngineLike;
  /** Names what a request is for, as the engine's rules do. */
  resource: (...request: Args) => string;
  limiter?: never;
}

/** What a refusal says. */
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

/** What all adapters have. `Args` is what a request is here, and `Response` what `countIf` sees of the answer. */
export interface Common<Args extends unknown[], Response, ReplyFunction> {
  /** Who is limited. */
  key?: (...request: Args) => Key | Promise<Key>;
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
  reply?: Reply | ReplyFunction;
}

/** What became of a request. */
export type Result = LimitResult;

/** What an adapter asks of an engine. */
export interface EngineLike {
  enter(resource: string, options: { key?: Key }): EntryLike;
}

/** What has entered, or was refused: what has entered is ended once. */
export interface EntryLike extends LimitResult {
  /** `error` where the answer is one of the server, 500 and above; `refund` where `countIf` says that it does not count. */
  exit(outcome: { error?: unknown; refund?: boolean }): void;
}
