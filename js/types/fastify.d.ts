/**
 * Limits for Fastify 5.
 *
 * ```js
 * import { leapgate } from 'leapgate/fastify';
 *
 * await app.register(leapgate, { limit: 100, windowMs: 60_000 }); // before routes and other plugins
 * app.post('/login', { config: { rateLimit: { limit: 5, windowMs: 60_000 } } }, login);
 * app.get('/health', { config: { rateLimit: false } }, health);
 * ```
 *
 * @module
 */
import type { FastifyInstance, FastifyPluginCallback, FastifyReply, FastifyRequest } from 'fastify';
import type { Common, Limits, PerhapsByKey, Reply as AnyReply, Result } from './adapter.js';

export type { EngineLike, EntryLike, Result } from './adapter.js';

/** What a refusal says. */
export interface Reply extends Omit<AnyReply, 'format'> {
  /**
   * Text unless given; or JSON; or JSON of the problem type `quota-exceeded` (RFC 9457). `error`: an error that goes to the error
   * handler of the route (`setErrorHandler`), with `statusCode`, the code `ERR_LEAPGATE_BLOCKED`, `body` as its message, and the
   * answer as `result`. The headers are set already.
   */
  format?: AnyReply['format'] | 'error';
}

type Args = [request: FastifyRequest, reply: FastifyReply];

type Shared = PerhapsByKey<Args> &
  Common<Args, FastifyReply, (request: FastifyRequest, reply: FastifyReply, result: Result) => unknown, Reply>;

type NoLimits = {
  [
    name in
      | 'limit'
      | 'windowMs'
      | 'window'
      | 'sampleCount'
      | 'id'
      | 'limits'
      | 'maxKeys'
      | 'now'
      | 'limiter'
      | 'engine'
      | 'resource'
      | 'origin'
  ]?: never;
};

/**
 * What is limited, and for whom: by `request.ip` unless `key` says otherwise. Without limits, only routes are limited that have
 * their own.
 */
export type LeapgateOptions = (Limits<Args> | NoLimits) & Shared;

/**
 * What a route says otherwise; limits of its own count apart from those of all, which then do not hold for it. Fastify's types
 * take any `config`: a mistyped option is told when the route is added, or by `rateLimit: { … } satisfies RouteOptions`.
 */
export type RouteOptions = LeapgateOptions;

/**
 * A plugin that limits all routes, those of plugins that are registered after it, and what has no route, a 404, too.
 * `request.rateLimit` is what was found. Registered within another plugin, it limits the routes of that plugin.
 */
export function leapgate(options?: LeapgateOptions): FastifyPluginCallback;
/** The plugin itself, for `app.register(leapgate, options)`. */
export function leapgate(
  instance: FastifyInstance,
  options: LeapgateOptions,
  done: (error?: Error) => void,
): void;
export default leapgate;

declare module 'fastify' {
  interface FastifyContextConfig {
    /** What `leapgate/fastify` limits here; false for nothing. Methods of one path share their limit. */
    rateLimit?: RouteOptions | false;
  }
  interface FastifyRequest {
    /** What `leapgate/fastify` has found; null where nothing is limited. */
    rateLimit: Result | null;
  }
}
