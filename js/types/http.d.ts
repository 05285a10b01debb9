/**
 * What servers of any kind need beside a limiter: without the wasm module.
 *
 * @module
 */
import type { Result } from './adapter.js';

/** How headers tell limits. */
export type HeadersDraft =
  /** `RateLimit-Policy` and `RateLimit`, as draft-ietf-httpapi-ratelimit-headers has them since its version 8. */
  | 11
  /** `RateLimit-Policy`, and `RateLimit` with `limit=`, `remaining=` and `reset=`: its version 7. */
  | 7
  /** `RateLimit-Policy`, `-Limit`, `-Remaining` and `-Reset`: its version 6. */
  | 6
  /** `X-RateLimit-Limit`, `-Remaining` and `-Reset`. */
  | 'legacy';

/**
 * The headers that tell a client how it stands, by name: for `new Headers()`, `response.set()`, `reply.headers()`.
 *
 * 11 tells all limits; the older forms have room for one, and tell that of which the least is left. Times are seconds from now,
 * rounded up, never an instant. `Retry-After` is there on a refusal: whole seconds, rounded up, at least 1; absent where waiting
 * does not help.
 *
 * ```js
 * rateLimitHeaders(limiter.limit(ip));
 * // { 'RateLimit-Policy': '"60s";q=100;w=60', RateLimit: '"60s";r=0;t=12', 'Retry-After': '12' }
 * ```
 */
export function rateLimitHeaders(
  result: Pick<Result, 'success' | 'retryAfterMs' | 'policies'>,
  options?: { draft?: HeadersDraft },
): Record<string, string>;

/**
 * A client's address as a key: the network that one client has, in one spelling (RFC 5952). `v4` and `v6` are the bits of it:
 * 32 unless given, which is the address, and 64, since a client of IPv6 has at least so many addresses; some providers give
 * a client 56 or 48.
 *
 * Brackets, a port and a zone are left out, and an IPv4 address within IPv6 (`::ffff:203.0.113.7`) is that IPv4 address. Anything
 * else throws an error with the code `ERR_LEAPGATE_IP`.
 *
 * ```js
 * ipKey('203.0.113.7'); // '203.0.113.7'
 * ipKey('[2001:db8:1:2:3:4:5:6]:443'); // '2001:db8:1:2::/64'
 * ```
 */
export function ipKey(ip: string, options?: { v4?: number; v6?: number }): string;
