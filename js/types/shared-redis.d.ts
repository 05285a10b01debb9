/**
 * Redis and Valkey as the store of shared limiters, over the client that you have.
 *
 * @module
 */
import type { LeaseStore } from './shared.js';

/** Runs a script of Redis, by `EVAL`. */
export type Eval = (script: string, keys: string[], args: string[]) => unknown;

/** A client of ioredis, iovalkey, node-redis or @upstash/redis, or how to run a script. */
export type RedisClient =
  | Eval
  | { evalSha: (...args: any[]) => any; eval: (...args: any[]) => any }
  | { evalsha: (...args: any[]) => any; eval: (...args: any[]) => any }
  | { eval: Eval };

/**
 * A store: one script with one key for each call, so that it works in a cluster. Keys begin with `keyPrefix`, `leapgate:` unless given.
 */
export function redis(client: RedisClient, options?: { keyPrefix?: string }): LeaseStore;
