/**
 * Limits for Hono, wherever it runs.
 *
 * ```js
 * import { getConnInfo } from '@hono/node-server/conninfo';
 * import { leapgate } from 'leapgate/hono';
 *
 * app.use(leapgate({ limit: 100, windowMs: 60_000, getConnInfo }));
 * ```
 *
 * @module
 */
import type { Context, Env, MiddlewareHandler } from 'hono';
import type { ByKey, Common, EngineLike, Limits, Property, Result } from './adapter.js';

export type { EngineLike, EntryLike, Refusal, Reply, Result } from './adapter.js';

/**
 * The limits, and the key: `key`, or the address by `getConnInfo` of your runtime (from `@hono/node-server/conninfo`,
 * `hono/cloudflare-workers`, `hono/bun` or `hono/deno`). One of them is required, unless an engine's rules have no key.
 */
export type LeapgateOptions<E extends Env = any> = Limits<[c: Context<E>]> &
  Property &
  Common<[c: Context<E>], Response, (c: Context<E>, result: Result) => Response | Promise<Response>> &
  (ByAddress | (ByKey<[c: Context<E>]> & { getConnInfo?: undefined }) | { engine: EngineLike; getConnInfo?: undefined; key?: undefined });

interface ByAddress {
  getConnInfo: (c: Context) => { remote: { address?: string | undefined } };
  key?: undefined;
}

/**
 * A middleware that answers refused requests itself. `c.get('rateLimit')` is the decision, or another `requestPropertyName`. With an
 * engine, the entry of a request ends with the response; for clients that leave in Workers, see `leapgate/fetch`.
 */
export function leapgate<E extends Env = any, Name extends string = 'rateLimit'>(
  options: LeapgateOptions<E> & { requestPropertyName?: Name | undefined },
): MiddlewareHandler<{ Variables: { [name in Name]: Result } }>;
