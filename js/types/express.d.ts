/**
 * Limits for Express 4 and 5, Connect and `node:http`.
 *
 * ```js
 * import { leapgate } from 'leapgate/express';
 *
 * app.set('trust proxy', 1); // behind one proxy
 * app.use(leapgate({ limit: 100, windowMs: 60_000 }));
 * ```
 *
 * @module
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
// @ts-ignore Connect and node:http do without these types: requests are then `any` unless the type arguments name others.
import type { Request, Response } from 'express';
import type { Common, Limits, PerhapsByKey, Property, Result } from './adapter.js';

export type { EngineLike, EntryLike, Refusal, Reply, Result } from './adapter.js';

/**
 * The limits, and the key. By default, the key is `request.ip`, or the socket's address without Express; for a `key` of your own,
 * `ipKey` of `leapgate/http` makes a key from an address. Behind a proxy, configure Express to trust it.
 */
export type LeapgateOptions<Req extends IncomingMessage = Request, Res extends ServerResponse = Response> = Limits<
  [request: Req, response: Res]
> &
  Property &
  PerhapsByKey<[request: Req, response: Res]> &
  Common<[request: Req, response: Res], Res, (request: Req, response: Res, result: Result) => void>;

/**
 * A middleware that answers refused requests itself. It sets `request.rateLimit` on all requests, or another `requestPropertyName`.
 *
 * For `node:http`, use `leapgate<IncomingMessage, ServerResponse>(…)`, then `limit(request, response, (error) => …)`.
 */
export function leapgate<Req extends IncomingMessage = Request, Res extends ServerResponse = Response>(
  options: LeapgateOptions<Req, Res>,
): (request: Req, response: Res, next: (error?: any) => void) => void;

declare global {
  namespace Express {
    interface Request {
      /** The decision of `leapgate/express`. */
      rateLimit?: Result | undefined;
    }
  }
}
