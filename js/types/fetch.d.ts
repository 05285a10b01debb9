/**
 * Limits for handlers that answer a `Request` with a `Response`: Workers, Deno, Bun, Next.js.
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

export type { EngineLike, EntryLike, Refusal, Reply, Result } from './adapter.js';

/** The source of a client's address. */
export type IpSource<Args extends unknown[]> =
  /** The header `CF-Connecting-IP`, which Cloudflare sets. */
  | 'cloudflare'
  /**
   * A header to which each proxy appends the address of its client: `hops` is how many of your proxies a request passes, 1 unless
   * given. (Clients can forge the addresses before these.)
   */
  | { header: string; hops?: number | undefined }
  /** A function that gets the address from the runtime. */
  | ((...request: Args) => string | null | undefined);

/** The limits, and the key: `ip` or `key` is required, unless an engine's rules have no key. */
export type LeapgateOptions<Args extends [Request, ...unknown[]] = [request: Request, ...rest: any[]]> = Limits<Args> &
  Common<Args, Response, (request: Args[0], result: Result) => Response | Promise<Response>> &
  (ByAddress<Args> | (ByKey<Args> & { ip?: undefined }) | { engine: EngineLike; ip?: undefined; key?: undefined });

interface ByAddress<Args extends unknown[]> {
  ip: IpSource<Args>;
  key?: undefined;
}

/**
 * Returns a function that wraps handlers: refused requests do not reach them. All handlers wrapped by one function share its limit.
 * If a handler returns something other than a response, it is passed on unchanged: in Bun, nothing after `server.upgrade(request)`.
 *
 * With an engine, the entry of a request ends when the response has been read or cancelled, or when the request's signal is
 * aborted. Workers abort the signal when a client leaves if the flag `enable_request_signal` is set. Without it, the entry ends
 * when more of the body is to be sent (if the handler is given `ctx`, as in Workers), or else when the rest of the request is
 * garbage-collected.
 */
export function leapgate<Args extends [Request, ...unknown[]] = [request: Request, ...rest: any[]]>(
  options: LeapgateOptions<Args>,
): <Rest extends Args, Answer extends Response | undefined | void = Response>(
  handler: (...request: Rest) => Answer | Promise<Answer>,
) => (...request: Rest) => Promise<Response | Answer>;
