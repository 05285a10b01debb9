/**
 * Limits for what answers a `Request` with a `Response`: Workers, Deno, Bun, Next.js.
 *
 * ```js
 * import { leapgate } from 'leapgate/fetch';
 *
 * const limited = leapgate({ limit: 100, windowMs: 60_000, ip: 'cloudflare' });
 * export default { fetch: limited((request, env, ctx) => new Response('hello')) };
 *
 * const ofBun = leapgate({ limit: 100, windowMs: 60_000, ip: (request, server) => server.requestIP(request)?.address });
 * Bun.serve({ fetch: ofBun((request) => new Response('hello')) });
 *
 * const ofDeno = leapgate({ limit: 100, windowMs: 60_000, ip: (request, info) => info.remoteAddr.hostname });
 * Deno.serve(ofDeno((request) => new Response('hello')));
 * ```
 *
 * @module
 */
import type { ByKey, Common, EngineLike, Limits, Result } from './adapter.js';

export type { EngineLike, EntryLike, Reply, Result } from './adapter.js';

/** Where the address of a client is found. */
export type IpSource<Args extends unknown[]> =
  /** In `CF-Connecting-IP`, which Cloudflare sets. */
  | 'cloudflare'
  /**
   * In a header to which each proxy adds whom it has seen, at its end: `hops` is how many of your proxies a request passes, 1
   * unless given. (What stands before that, clients can write themselves.)
   */
  | { header: string; hops?: number }
  /** As the runtime tells it. */
  | ((...request: Args) => string | null | undefined);

/** What is limited, and for whom: `ip` or `key` has to say, but where an engine's rules have no key. */
export type LeapgateOptions<Args extends [Request, ...unknown[]] = [request: Request, ...rest: any[]]> = Limits<Args> &
  Common<Args, Response, (request: Args[0], result: Result) => Response | Promise<Response>> &
  (ByAddress<Args> | (ByKey<Args> & { ip?: never }) | { engine: EngineLike; ip?: never; key?: never });

interface ByAddress<Args extends unknown[]> {
  ip: IpSource<Args>;
  key?: never;
}

/**
 * A function that puts the limit before a handler: what is refused does not reach it. Handlers of one limit share it. A handler may
 * return something other than a response, which is passed on unchanged: in Bun, nothing after `server.upgrade(request)`.
 *
 * With an engine, what a request has entered ends when its response has been read, or left, or the request's signal is aborted.
 * Workers tell of a client that has gone at once with the flag `enable_request_signal`. Without it, what that client held comes
 * back when more of a body is to be sent (where the handler is given `ctx`, as Workers do), or else when what was left of its
 * request is collected as garbage.
 */
export function leapgate<Args extends [Request, ...unknown[]] = [request: Request, ...rest: any[]]>(
  options: LeapgateOptions<Args>,
): <Rest extends Args, Answer extends Response | undefined | void = Response>(
  handler: (...request: Rest) => Answer | Promise<Answer>,
) => (...request: Rest) => Promise<Response | Answer>;
