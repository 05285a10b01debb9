/// <reference lib="esnext.disposable" />

/**
 * Flow rules alone: limits on rates and on calls in flight, for a resource or for each key, throttles and warm-ups. The engine of
 * `leapgate/engine` decides alike, takes all other rules, too, and is more than three times as large.
 *
 * ```js
 * import { Engine } from 'leapgate/flow';
 *
 * const engine = new Engine({ flowRules: [{ resource: 'upstream', count: 10, controlBehavior: 'throttle', maxQueueingTimeMs: 1000 }] });
 * const body = await engine.run('upstream', () => fetch('https://example.com'));
 * ```
 *
 * @module
 */

import type { Key, LeapgateErrorCode, WindowMode } from 'leapgate';
import type {
  AcquireOptions as AnyAcquireOptions,
  BlockedError,
  ControlBehavior,
  Costs,
  EngineEvents,
  EnginePolicy,
  EngineResult,
  EngineSettings,
  EngineStats,
  EnterOptions as AnyEnterOptions,
  Entry,
  FlowRule as AnyFlowRule,
  Grade,
  KeyRecord,
  KeyValue,
  Outcome,
  Refusal,
  RequestOptions as AnyRequestOptions,
  RunOptions as AnyRunOptions,
} from './engine.js';

export type {
  BlockedError,
  ControlBehavior,
  Costs,
  EnginePolicy,
  EngineResult,
  EngineSettings,
  EngineStats,
  Entry,
  Grade,
  Key,
  KeyRecord,
  KeyValue,
  LeapgateErrorCode,
  Outcome,
  Refusal,
  WindowMode,
};

/** A property of requests by which a rule distinguishes them. The caller passes its values as `key`, and they are compared as they are. */
export type KeyPart =
  | 'path'
  | 'method'
  | 'host'
  | { header: string; query?: never; cookie?: never; arg?: never }
  | { query: string; header?: never; cookie?: never; arg?: never }
  | { cookie: string; header?: never; query?: never; arg?: never }
  | { arg: number; header?: never; query?: never; cookie?: never };

/** A limit on a resource. */
export interface FlowRule
  extends Pick<
    AnyFlowRule,
    | 'id'
    | 'unit'
    | 'grade'
    | 'intervalMs'
    | 'sampleCount'
    | 'window'
    | 'controlBehavior'
    | 'warmUpPeriodSec'
    | 'coldFactor'
    | 'maxQueueingTimeMs'
    | 'maxKeys'
    | 'burst'
  > {
  /** The resource to limit, by its name. */
  resource: string;
  /** How much is admitted; may have a fraction. */
  count: number;
  /** Limits each combination of values separately: up to 8 parts. */
  key?: readonly KeyPart[] | undefined;
}

/** The rules of an engine. What other rules and other fields a rules document may have is refused, unless it is empty or a default. */
export interface FlowDocument {
  /** Up to 1000 limits. All of those on a resource must admit a request. */
  flowRules?: readonly FlowRule[] | undefined;
  /** The address of `leapgate/config.schema.json`, for editors: ignored here. */
  $schema?: string | undefined;
}

type LeftOut = 'origin' | 'prioritized' | 'context' | 'inbound' | 'exempt' | 'apis' | 'within';

/** A request. */
export interface RequestOptions extends Omit<AnyRequestOptions, LeftOut> {}

/** A request for `enter`. */
export interface EnterOptions extends Omit<AnyEnterOptions, LeftOut> {}

/** A request for `acquire`. */
export interface AcquireOptions extends Omit<AnyAcquireOptions, LeftOut> {}

/** A request for `run`. */
export interface RunOptions extends Omit<AnyRunOptions, LeftOut> {}

/** Applies flow rules to requests. Engines share no windows. */
export class Engine {
  /** Throws an error with the code `ERR_LEAPGATE_RULES` if a rule is wrong. Reads neither clock nor randomness. */
  constructor(rules: FlowDocument, settings?: EngineSettings);
  /**
   * Decides about a request that ends at once; a request that would have to wait is refused. Throws `ERR_LEAPGATE_OPEN` if a rule of
   * the resource limits calls in flight.
   */
  limit(resource: string, request?: RequestOptions): EngineResult;
  /** Decides about a call. If admitted, it is in flight until its `exit`. */
  enter(resource: string, request?: EnterOptions): Entry;
  /** As `run` of the engine of `leapgate/engine`. */
  run<T>(resource: string, call: (entry: Entry) => T | Promise<T>): Promise<T>;
  run<T>(resource: string, request: RunOptions & { timeoutMs: number }, call: (entry: Entry, signal: AbortSignal) => T | Promise<T>): Promise<T>;
  run<T>(resource: string, request: RunOptions, call: (entry: Entry, signal?: AbortSignal) => T | Promise<T>): Promise<T>;
  /** Waits until the call is admitted, as `acquire` of the engine of `leapgate/engine`. The caller ends the entry. */
  acquire(resource: string, request?: AcquireOptions): Promise<Entry>;
  /** The state of the rules of a resource. Charges nothing. */
  policies(resource: string, request?: Pick<RequestOptions, 'key'>): EnginePolicy[];
  /**
   * Replaces all rules, or throws as the constructor does and replaces none. A rule with the id and the geometry of a rule in
   * force keeps its counts; calls end on the rules under which they began.
   */
  replace(rules: FlowDocument): void;
  /** How many calls are in flight, and how many requests wait, of all resources; with a resource, how many wait for it. */
  stats(): EngineStats;
  stats(resource: string): Pick<EngineStats, 'waiting'>;
  /** Calls `listener` at each refusal, within the call that causes it. Returns a function that removes it. */
  on(event: 'refused', listener: (what: EngineEvents['refused']) => unknown): () => void;
  /**
   * Resolves when no call is in flight and no request waits. New requests are admitted as before: stop their source first, as in
   * `server.close()`.
   */
  drain(): Promise<void>;
  /** The engine's clock. */
  now(): number;
  /** Frees the memory. The engine cannot be used afterwards; calls in flight may still end. */
  free(): void;
  [Symbol.dispose](): void;
}
