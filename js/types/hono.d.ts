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
import type { ByKey, Common, EngineLike, Limits, Result } from './adapter.js';

export type { EngineLike, EntryLike, Reply, Result } from './adapter.js';

/**
 * What is limited, and for whom: `getConnInfo` of your runtime (of `@hono/node-server/conninfo`, `hono/cloudflare-workers`,
 * `hono/bun` or `hono/deno`) gives the address, or `key` says; one of them has to, but where an engine's rules have no key.
 */
export type LeapgateOptions<E extends Env = any> = Limits<[c: Context<E>]> &
  Common<[c: Context<E>], Response, (c: Context<E>, result: Result) => Response | Promise<Response>> &
  (ByAddress | (ByKey<[c: Context<E>]> & { getConnInfo?: never }) | { engine: EngineLike; getConnInfo?: never; key?: never });

interface ByAddress {
  getConnInfo: (c: Context) => { remote: { address?: string | undefined } };
  key?: never;
}

/**
 * A middleware that answers what is refused itself. `c.get('rateLimit')` is what was found. With an engine, what a request has
 * entered ends with its response; of clients that leave Workers, `leapgate/fetch` says more.
 */
export function leapgate<E extends Env = any>(
  options: LeapgateOptions<E>,
): MiddlewareHandler<{ Variables: { rateLimit: Result } }>;
