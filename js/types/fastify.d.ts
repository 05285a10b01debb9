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
import type { Costs } from 'leapgate/engine';
import type { FastifyInstance, FastifyPluginCallback, FastifyReply, FastifyRequest } from 'fastify';
import type { Common, LimiterNames, Limits, PerRequest, PerhapsByKey, Property, Reply as AnyReply, Result } from './adapter.js';

export type { EngineLike, EntryLike, Refusal, Result } from './adapter.js';

/** The response to a refused request. */
export interface Reply extends Omit<AnyReply, 'format'> {
  /**
   * `text` unless given; `json`; or `problem`, JSON with the problem type `quota-exceeded` (RFC 9457). `error` passes an error to
   * the error handler of the route (`setErrorHandler`), with `statusCode`, the code `ERR_LEAPGATE_BLOCKED`, `body` as its message,
   * and the decision as `result`. The headers are already set.
   */
  format?: AnyReply['format'] | 'error' | undefined;
}

type Args = [request: FastifyRequest, reply: FastifyReply];

type Shared = PerhapsByKey<Args> &
  Common<Args, FastifyReply, (request: FastifyRequest, reply: FastifyReply, result: Result) => unknown, Reply>;

type NoLimits = { [name in LimiterNames | 'limiter' | 'engine' | 'cost' | 'resource' | 'origin']?: undefined };

/**
 * The limits, and the key: `request.ip` unless `key` is given, which is called before the body is read. Without limits, only routes with
 * limits of their own are limited.
 */
export type LeapgateOptions = (Limits<Args> | NoLimits) & Shared & Property;

/**
 * The options of a route, over the options of the plugin. Limits of a route replace the common limits and count separately; a route
 * without limits of its own counts together with all others, also where it has a `cost` or a `key` of its own.
 * Fastify's types accept any `config`: a mistyped option throws when the route is added, or fails to compile with
 * `rateLimit: { … } satisfies RouteOptions`.
 */
export type RouteOptions = (Limits<Args> | (Omit<NoLimits, 'cost'> & { cost?: PerRequest<Args, Costs> })) & Shared;

/**
 * A plugin that limits all routes, including routes of plugins registered after it and requests without a route (404).
 * It sets `request.rateLimit`, or another `requestPropertyName`. Registered within another plugin, it limits the routes of that plugin.
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
    /** The options of `leapgate/fastify` for this route; false for no limit. Methods of one path share their limit. */
    rateLimit?: RouteOptions | false | undefined;
  }
  interface FastifyRequest {
    /** The decision of `leapgate/fastify`; null if the request is not limited. */
    rateLimit: Result | null;
  }
}
