/**
 * The process that has started others as the store of their shared limiters: `node:cluster`, child processes and worker threads.
 *
 * ```js
 * import cluster from 'node:cluster';
 * import { SharedLimiter } from 'leapgate/shared';
 * import { cluster as primary, serve } from 'leapgate/shared/cluster';
 *
 * if (cluster.isPrimary) {
 *   serve(cluster);
 *   cluster.fork();
 * } else {
 *   const limiter = new SharedLimiter({ id: 'api', limit: 100, windowMs: 60_000, store: primary() });
 * }
 * ```
 *
 * @module
 */
import type { LeaseStore } from './shared.js';

/** `cluster` of `node:cluster`, a child process with a channel, or a `Worker` of `node:worker_threads`. */
export type Workers = { on(event: 'message', listener: (...args: any[]) => void): any } & (
  | { fork: (...args: any[]) => any }
  | { send: (...args: any[]) => any }
  | { postMessage: (...args: any[]) => any }
);

/**
 * Answers the workers, from now on, and returns the store: one in the memory of this process unless given. Its workers end with the
 * process, so nothing that it forgets is missed.
 */
export function serve(workers: Workers, store?: LeaseStore): LeaseStore;

/** In a worker, the store that its parent serves. In a thread, pass `parentPort` of `node:worker_threads`. */
export function cluster(port?: { postMessage: (...args: any[]) => any } | null): LeaseStore;
