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
// @ts-ignore Connect and node:http do without its types; requests are `any` then, where they are not said to be others.
import type { Request, Response } from 'express';
import type { Common, Limits, PerhapsByKey, Result } from './adapter.js';

export type { EngineLike, EntryLike, Reply, Result } from './adapter.js';

/**
 * What is limited, and for whom: by `request.ip`, or the socket's address where there is no Express, unless `key` says otherwise
 * (`ipKey` of `leapgate/http` makes a key of an address). Behind a proxy, tell Express to trust it.
 */
export type LeapgateOptions<Req extends IncomingMessage = Request, Res extends ServerResponse = Response> = Limits<[Req, Res]> &
  PerhapsByKey<[request: Req, response: Res]> &
  Common<[request: Req, response: Res], Res, (request: Req, response: Res, result: Result) => void>;

/**
 * A middleware that answers what is refused itself. What passes, and what does not, has `request.rateLimit`.
 *
 * For `node:http`, say so: `leapgate<IncomingMessage, ServerResponse>(…)`, then `limit(request, response, (error) => …)`.
 */
export function leapgate<Req extends IncomingMessage = Request, Res extends ServerResponse = Response>(
  options: LeapgateOptions<Req, Res>,
): (request: Req, response: Res, next: (error?: any) => void) => void;

declare global {
  namespace Express {
    interface Request {
      /** What `leapgate/express` has found. */
      rateLimit?: Result;
    }
  }
}
