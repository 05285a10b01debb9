/**
 * A Durable Object as the store of shared limiters, for Workers.
 *
 * ```js
 * import { durableObject } from 'leapgate/shared/durable-object';
 * export { LeaseStore } from 'leapgate/shared/durable-object';
 *
 * const store = durableObject(env.LEASES);
 * ```
 *
 * @module
 */
import type { LeaseStore as Store } from './shared.js';

/** The Durable Object: export it from your Worker. */
export class LeaseStore {
  constructor(state: { storage: any }, env?: unknown);
  fetch(request: Request): Promise<Response>;
  alarm(): Promise<void>;
}

/** A binding of Durable Objects. */
export interface Namespace {
  idFromName(name: string): any;
  get(id: any): any;
}

/** A store with an object for each key, whose name begins with `keyPrefix`, `leapgate:` unless given. */
export function durableObject(namespace: Namespace, options?: { keyPrefix?: string }): Store;
