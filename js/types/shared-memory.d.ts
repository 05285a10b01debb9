/**
 * A store in the memory of one process: for tests, and for stores of your own.
 *
 * @module
 */
import type { LeaseStore } from './shared.js';

/** A store in memory. */
export class MemoryStore implements LeaseStore {
  /** Answers at once. Throws an error with the code `ERR_LEAPGATE_ARGUMENT` if `request` is not a request. */
  lease(key: string, request: string): string;
  /** All that is known of a key, or undefined. Nothing of it counts from `overAt` on, in epoch milliseconds. */
  snapshot(key: string): KeySnapshot | undefined;
  /** Knows of a key what `snapshot` has returned. Returns false, and changes nothing, if it is not that. */
  restore(key: string, known: KeySnapshot): boolean;
  /** Changes when the store has forgotten everything, since its module has crashed. */
  readonly generation: number;
}

/** What a store knows of a key. */
export interface KeySnapshot {
  text: string;
  overAt: number;
}
