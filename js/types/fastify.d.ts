/**
 * Limits for Fastify 5.
 *
 * ```js
 * import { leapgate } from 'leapgate/fastify';
 *
 * await app.register(leapgate({ limit: 100, windowMs: 60_000 })); // before routes and other plugins
 * app.post('/login', { config: { rateLimit: { limit: 5, windowMs: 60_000 } } }, login);
 * app.get('/health', { config: { rateLimit: false } }, health);
 * ```
 *
 * @module
 */
import type { FastifyPluginCallback, FastifyReply, FastifyRequest } from 'fastify';
import type { Common, Limits, PerhapsByKey, Result } from './adapter.js';

export type { EngineLike, EntryLike, Reply, Result } from './adapter.js';

type Args = [request: FastifyRequest, reply: FastifyReply];

type Shared = PerhapsByKey<Args> &
  Common<Args, FastifyReply, (request: FastifyRequest, reply: FastifyReply, result: Result) => unknown>;

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
 * `request.rateLimit` is what was found.
 */
export function leapgate(options?: LeapgateOptions): FastifyPluginCallback;

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
