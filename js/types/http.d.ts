/**
 * Helpers for servers of any kind, without the wasm module.
 *
 * @module
 */
import type { Result } from './adapter.js';

/** The form of the rate limit headers. */
export type HeadersDraft =
  /** `RateLimit-Policy` and `RateLimit`, as in draft-ietf-httpapi-ratelimit-headers since version 8. */
  | 11
  /** `RateLimit-Policy`, and `RateLimit` with `limit=`, `remaining=` and `reset=`, as in version 7. */
  | 7
  /** `RateLimit-Policy`, `-Limit`, `-Remaining` and `-Reset`, as in version 6. */
  | 6
  /** `X-RateLimit-Limit`, `-Remaining` and `-Reset`. */
  | 'legacy';

/**
 * The rate limit headers of a decision, by name: for `new Headers()`, `response.set()`, `reply.headers()`.
 *
 * Draft 11 reports all limits; the older forms have room for one, and report the limit with the fewest passes left. Times are
 * seconds from now, rounded up, never an instant. A refusal has `Retry-After`: whole seconds, rounded up, at least 1; absent if
 * waiting does not help.
 *
 * ```js
 * rateLimitHeaders(limiter.limit(ip));
 * // { 'RateLimit-Policy': '"60s";q=100;w=60', RateLimit: '"60s";r=0;t=12', 'Retry-After': '12' }
 * ```
 */
export function rateLimitHeaders(
  result: Pick<Result, 'success' | 'retryAfterMs' | 'policies'>,
  options?: { draft?: HeadersDraft | undefined },
): Record<string, string>;

/**
 * A client's address as a key: the client's network, in one spelling (RFC 5952). `v4` and `v6` are the length of its prefix in
 * bits: 32 unless given, the whole address, and 64, since an IPv6 client usually has a whole /64; some providers give a client a
 * /56 or a /48.
 *
 * Brackets, a port and a zone are removed, and an IPv4-mapped address (`::ffff:203.0.113.7`) becomes the IPv4 address. Anything else
 * throws an error with the code `ERR_LEAPGATE_IP`.
 *
 * ```js
 * ipKey('203.0.113.7'); // '203.0.113.7'
 * ipKey('[2001:db8:1:2:3:4:5:6]:443'); // '2001:db8:1:2::/64'
 * ```
 */
export function ipKey(ip: string, options?: { v4?: number | undefined; v6?: number | undefined }): string;
