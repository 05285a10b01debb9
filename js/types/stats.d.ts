/// <reference lib="esnext.disposable" />
/**
 * The statistics alone, with Sentinel's names: rings of buckets, sums and rates over them, and the nodes of resources.
 *
 * ```js
 * import { StatisticNode } from 'leapgate/stats';
 *
 * const node = new StatisticNode();
 * node.addPassRequest();
 * node.addRtAndSuccess(12);
 * node.passQps(); // 1
 * ```
 *
 * `now` is the time in milliseconds, always by the same clock. It is the last argument everywhere and may be omitted: then it is
 * read from the clock given with the options, from the engine's, or else from `performance.now()`, `Date.now()` in Workers. Reads
 * change nothing. The clock may step back: while it is less than one interval behind, everything counts in the newest bucket.
 *
 * If the wasm module stops and is started again (`ERR_LEAPGATE_CRASHED`), statistics begin anew.
 *
 * @module
 */

/** The events. `success` counts all completions, `exception` the failed ones; `rt` sums the response times, in milliseconds. */
export type MetricEvent = 'pass' | 'block' | 'exception' | 'success' | 'rt' | 'occupiedPass';

/** The buckets of an interval, aligned to the clock's zero. */
export interface WindowOptions {
  /** The interval, in whole milliseconds: up to ten years. */
  intervalMs: number;
  /** The number of buckets: a divisor of `intervalMs`, at most 1000. The largest up to 100 unless given. */
  sampleCount?: number | undefined;
}

/** An option for the clock. */
export interface Clock {
  /**
   * The clock, in milliseconds. `performance.now()` unless given, `Date.now()` in Workers; while a test fakes `Date`, the fake is followed.
   * A clock by `Date` is `() => Date.now()`: the function itself would stay the real one.
   */
  now?: (() => number) | undefined;
}

/** An option for borrowed passes. */
export interface Borrowing {
  /** Whether a borrowed pass counts if nothing else happens in its bucket: `kept` (the default) if so, `lost` as in Sentinel. */
  untouched?: 'kept' | 'lost' | undefined;
}

/** The counts of one bucket. */
export interface MetricBucket {
  /** Admitted. */
  pass: number;
  /** Refused. */
  block: number;
  /** Completed with an error. */
  exception: number;
  /** Completed, with an error or without. */
  success: number;
  /** The sum of the response times, in milliseconds. */
  rt: number;
  /** Admitted with a pass borrowed from a later bucket. */
  occupiedPass: number;
  /** The shortest response time as Sentinel reports it: at most 5000, and 5000 if nothing has completed. */
  minRt: number;
  /** The shortest response time in milliseconds; null if nothing has completed. */
  shortestRt: number | null;
  /** The longest response time in milliseconds; null if nothing has completed. */
  maxRt: number | null;
  /** The most calls in flight. */
  maxConcurrency: number;
}

/** A copy of a bucket, with its start. A plain object, yours to keep. */
export interface WindowWrap {
  /** When the bucket starts, in milliseconds. */
  windowStart: number;
  /** The length of the bucket, in milliseconds. */
  windowLength: number;
  /** The counts of the bucket. */
  value: MetricBucket;
}

/** The counts of one bucket of a metric. */
export interface MetricNode {
  /** When the bucket starts, in milliseconds. */
  timestamp: number;
  /** Passes, including borrowed ones. */
  pass: number;
  /** Refusals. */
  block: number;
  /** Completions, including failed ones. */
  success: number;
  /** Failed completions. */
  exception: number;
  /** The average response time in whole milliseconds, rounded down; the sum of response times if nothing completed. */
  rt: number;
  /** Passes borrowed from a later bucket. */
  occupiedPass: number;
  /** The most calls in flight. */
  concurrency: number;
}

/** The geometry of a window. */
export interface Geometry {
  /** The interval, in milliseconds. */
  readonly intervalMs: number;
  /** The number of buckets. */
  readonly sampleCount: number;
  /** The length of a bucket, in milliseconds. */
  readonly windowLengthMs: number;
}

/** Records events in the current bucket, opening it if needed. `n` is a whole number up to 2^32 - 1. */
export interface Recording {
  /** `n` passes: 1 unless given. */
  addPass(n?: number, now?: number): void;
  /** `n` refusals. */
  addBlock(n?: number, now?: number): void;
  /** `n` failed completions. */
  addException(n?: number, now?: number): void;
  /** `n` completions. */
  addSuccess(n?: number, now?: number): void;
  /** `n` passes borrowed from a later bucket. */
  addOccupiedPass(n?: number, now?: number): void;
  /** A response time in milliseconds, rounded down. */
  addRt(rt: number, now?: number): void;
  /** The number of calls in flight: the bucket keeps the maximum. */
  updateConcurrency(inFlight: number, now?: number): void;
}

/**
 * A ring of buckets that covers one interval and is reused in place.
 *
 * Sentinel: `LeapArray` of `MetricBucket`s. Lists are in the order of time.
 */
export class LeapArray {
  /** Throws an error with the code `ERR_LEAPGATE_OPTIONS` if an option is wrong. */
  constructor(options: WindowOptions & Clock);
  /** The bucket of `now`, opened if needed. */
  currentWindow(now?: number): WindowWrap;
  /** The bucket before the current one; null if nothing was recorded in its time, and in a ring of one bucket. */
  previousWindow(now?: number): WindowWrap | null;
  /** The oldest bucket that may still count, whose place is reused next; null if nothing was recorded in its time. */
  validHead(now?: number): WindowWrap | null;
  /** The counts of the bucket of `at`, while the ring keeps it: the length of two buckets longer than it counts. */
  windowValue(at: number): MetricBucket | null;
  /** The recorded buckets that count, oldest first. */
  list(now?: number): WindowWrap[];
  /** All recorded buckets that the ring keeps, oldest first. */
  listAll(): WindowWrap[];
  /** The counts of the recorded buckets that count, oldest first. */
  values(now?: number): MetricBucket[];
  /** The same, only for buckets whose start satisfies `predicate`. */
  valuesConditional(predicate: (windowStart: number) => boolean, now?: number): MetricBucket[];
  /** Whether a bucket that this ring has returned no longer counts at `now`, or not yet. */
  isWindowDeprecated(wrap: Pick<WindowWrap, 'windowStart'>, now?: number): boolean;
  /** The place of the bucket of `at`, in a ring with `sampleCount` places. */
  calculateTimeIdx(at: number): number;
  /** The start of the bucket of `at`. */
  calculateWindowStart(at: number): number;
  /** Frees the memory. The object cannot be used afterwards. */
  free(): void;
  [Symbol.dispose](): void;
}
export interface LeapArray extends Geometry, Recording {}

/**
 * The statistics of a window at an instant.
 *
 * Sentinel: `Metric`.
 */
export interface Metric extends Geometry {
  /** How often `event` happened in the window. */
  sum(event: MetricEvent, now?: number): number;
  /** The same per second: the sum over the interval in seconds. */
  average(event: MetricEvent, now?: number): number;
  /** How often `event` happened in the bucket of `at`; 0 if the ring does not have it. */
  windowSum(event: MetricEvent, at: number): number;
  /** Passes, including borrowed ones when they are due. */
  pass(now?: number): number;
  /** Refusals. */
  block(now?: number): number;
  /** Failed completions. */
  exception(now?: number): number;
  /** Completions, including failed ones. */
  success(now?: number): number;
  /** The sum of the response times, in milliseconds. */
  rt(now?: number): number;
  /** Passes borrowed from a later bucket. */
  occupiedPass(now?: number): number;
  /** Passes in the bucket before the current one: a count, not a rate. 0 in a window of one bucket. */
  previousWindowPass(now?: number): number;
  /** Refusals in the bucket before the current one: a count, not a rate. 0 in a window of one bucket. */
  previousWindowBlock(now?: number): number;
  /** The most completions in any bucket, at least 1. */
  maxSuccess(now?: number): number;
  /** The shortest response time as Sentinel reports it: from 1 to 5000, and 5000 if nothing has completed. */
  minRt(now?: number): number;
  /** The shortest response time in milliseconds; null if nothing has completed. */
  shortestRt(now?: number): number | null;
  /** The longest response time in milliseconds; null if nothing has completed. */
  maxRt(now?: number): number | null;
  /** The most calls in flight. */
  maxConcurrency(now?: number): number;
  /** The recorded buckets that count, oldest first. */
  details(now?: number): MetricNode[];
  /** The same, only for buckets whose start satisfies `predicate`. */
  detailsOnCondition(predicate: (timestamp: number) => boolean, now?: number): MetricNode[];
}

/**
 * A coarser, read-only window over a finer ring: it counts the passes of the ring.
 *
 * sentinel-golang: `SlidingWindowMetric`.
 */
export type SlidingWindowMetric = Metric;

/**
 * Sums and rates over a ring of buckets. Passes may be borrowed from buckets that have not begun. A sum costs the same for any
 * number of buckets.
 *
 * Sentinel: `ArrayMetric`.
 */
export class ArrayMetric {
  /** Throws an error with the code `ERR_LEAPGATE_OPTIONS` if an option is wrong. */
  constructor(options: WindowOptions & Borrowing & Clock);
  /** Opens the current bucket, as every read does in Sentinel; whether a borrowed pass counts may depend on it (`untouched`). */
  touch(now?: number): void;
  /** Borrows `n` passes, 1 unless given, from the bucket of `at`, which must not have begun and be less than one interval ahead. */
  addWaiting(at: number, n?: number): void;
  /** The number of borrowed passes that are not due yet. */
  waiting(now?: number): number;
  /** A window over this ring: at most as long, with buckets that each span whole buckets of the ring. */
  view(options: WindowOptions): SlidingWindowMetric;
  /** Frees the memory. The object cannot be used afterwards. */
  free(): void;
  [Symbol.dispose](): void;
}
export interface ArrayMetric extends Metric, Recording {}

/**
 * The statistics of a resource, for rules and dashboards: rates over the last second in two buckets, totals over the last minute.
 *
 * Sentinel: `Node`.
 */
export interface Node {
  /** Passes per second. */
  passQps(now?: number): number;
  /** Refusals per second. */
  blockQps(now?: number): number;
  /** Passes and refusals per second. */
  totalQps(now?: number): number;
  /** Completions per second, including failed ones. */
  successQps(now?: number): number;
  /** Failed completions per second. */
  exceptionQps(now?: number): number;
  /** Borrowed passes per second, counted when they were borrowed. */
  occupiedPassQps(now?: number): number;
  /** Completions per second if every bucket were as good as the best, which counts as at least one completion. */
  maxSuccessQps(now?: number): number;
  /** Average response time, in milliseconds; 0 if nothing has completed. */
  avgRt(now?: number): number;
  /** Shortest response time, in milliseconds, at least 1; 5000 if nothing has completed. */
  minRt(now?: number): number;
  /** Passes in the second before the current one. */
  previousPassQps(now?: number): number;
  /** Refusals in the second before the current one. */
  previousBlockQps(now?: number): number;
  /** Passes and refusals in the last minute. */
  totalRequest(now?: number): number;
  /** Passes in the last minute. */
  totalPass(now?: number): number;
  /** Completions in the last minute. */
  totalSuccess(now?: number): number;
  /** Failed completions in the last minute. */
  totalException(now?: number): number;
  /** Refusals in the last minute. */
  blockRequest(now?: number): number;
  /** Calls in flight. */
  curThreadNum(): number;
  /** Borrowed passes that are not due yet. */
  waiting(now?: number): number;
}

/** A node with records of its own. */
export interface RecordedNode extends Node {
  /** The last second, in full. */
  second(): SlidingWindowMetric;
  /** The last minute, in full. */
  minute(): SlidingWindowMetric;
  /** The seconds before the current one with events that no earlier call has returned, oldest first. */
  metrics(now?: number): MetricNode[];
  /** The seconds of the last minute whose start satisfies `predicate`, oldest first. */
  rawMetricsInMin(predicate: (timestamp: number) => boolean, now?: number): MetricNode[];
}

/**
 * Second and minute windows and the number of calls in flight.
 *
 * Sentinel: `StatisticNode`.
 */
export class StatisticNode {
  /** Throws an error with the code `ERR_LEAPGATE_OPTIONS` if an option is wrong. */
  constructor(options?: Borrowing & Clock);
  /** Records `n` passes: 1 unless given. */
  addPassRequest(n?: number, now?: number): void;
  /** Records `n` refusals. */
  increaseBlockQps(n?: number, now?: number): void;
  /** Records `n` failed completions. */
  increaseExceptionQps(n?: number, now?: number): void;
  /** Records a response time in milliseconds, rounded down, and `n` completions. */
  addRtAndSuccess(rt: number, n?: number, now?: number): void;
  /** Records one more call in flight. */
  increaseThreadNum(): void;
  /** Records one call fewer in flight; the number never falls below 0. */
  decreaseThreadNum(): void;
  /** Records `n` borrowed passes in the minute, where they count at once. */
  addOccupiedPass(n?: number, now?: number): void;
  /** Borrows `n` passes from the half second of `at`, which must not have begun. */
  addWaitingRequest(at: number, n?: number): void;
  /**
   * The milliseconds until a later bucket has room for a request that costs `acquire`, at `threshold` passes per second; 500 or more
   * if none has.
   */
  tryOccupyNext(acquire: number, threshold: number, now?: number): number;
  /** Records the start of a call: `n` passes, and one more call in flight. */
  begin(n?: number, now?: number): void;
  /** Records the end of a call: its response time, `n` completions, as many failures if it failed, and one call fewer in flight. */
  complete(rt: number, outcome?: { n?: number; failed?: boolean }, now?: number): void;
  /** Opens the current bucket, as every read of the last second does in Sentinel; borrowed passes may depend on it (`untouched`). */
  touch(now?: number): void;
  /** Frees the memory. The object cannot be used afterwards. */
  free(): void;
  [Symbol.dispose](): void;
}
export interface StatisticNode extends RecordedNode {}

/**
 * The nodes of an engine: `engine.nodes`. A node that does not exist yet is null; a node is always the same object.
 *
 * ```text
 * root
 *   EntranceNode "web"                  one for each context
 *     DefaultNode "orders"              one for each resource and context, below the call that first entered it there
 *       DefaultNode "stock"  ----.
 *   EntranceNode "job"            >--   ClusterNode "stock": all contexts together,
 *     DefaultNode "stock"  ------'        and one node for each origin
 * ```
 */
export interface NodeTree {
  /** The node above all contexts. */
  readonly root: EntranceNode;
  /** All inbound calls, of any resource: Sentinel's `__total_inbound_traffic__`. */
  readonly inbound: ClusterNode;
  /** The entrance of a context; calls without a context have `sentinel_default_context`. */
  entrance(context: string): EntranceNode | null;
  /** A resource in one context. */
  defaultNode(context: string, resource: string): DefaultNode | null;
  /** A resource in all contexts. */
  cluster(resource: string): ClusterNode | null;
  /** Every resource in all contexts, by name. */
  clusters(): ClusterNode[];
}

/**
 * A context, or the root above all contexts. It records nothing itself and adds up the nodes below it: rates of passes, refusals
 * and completions, totals, calls in flight, and the average response time. Its other values are as of an idle node, as in
 * Sentinel.
 */
export interface EntranceNode extends Node {
  /** The context's name, or `machine-root`. */
  readonly name: string;
  /** The entrances below the root; empty for an entrance. */
  entrances(): EntranceNode[];
  /** The resources first entered in this context outside any other resource. */
  children(): DefaultNode[];
}

/** One resource in one context: a call in the tree, with the calls below it. */
export interface DefaultNode extends RecordedNode {
  /** The context's name. */
  readonly context: string;
  /** The resource's name. */
  readonly resource: string;
  /** The resource in all contexts. */
  cluster(): ClusterNode;
  /** The resources first entered, in this context, within this resource. */
  children(): DefaultNode[];
}

/** One resource, all contexts together. */
export interface ClusterNode extends RecordedNode {
  /** The resource's name. */
  readonly resource: string;
  /** The calls of one origin. */
  origin(origin: string): OriginNode | null;
  /** The calls of each origin, by name. Origins beyond the thousandth share a node without a name. */
  origins(): OriginNode[];
}

/** The calls of one origin to one resource. */
export interface OriginNode extends RecordedNode {
  /** The origin's name. */
  readonly origin: string;
}

/** The decisions of a rule. */
export interface RuleCounters {
  /** The rule's id. */
  rule: string;
  /** The resource, if the rule applies to each resource separately. */
  resource: string | null;
  /** The origin, if the rule applies to each origin separately. */
  origin: string | null;
  /** Requests that the rule has admitted and that passed; null for rules that count only refusals. */
  passed: number | null;
  /** Passed requests that the rule has made wait, or would have in enforce mode; null for rules that count only refusals. */
  waited: number | null;
  /** Requests that the rule was the first to refuse. */
  blocked: number;
  /** Requests that the rule, in shadow mode, would have refused. */
  shadowBlocked: number;
  /** Passed requests charged to the windows that keys beyond `maxKeys` share; null for rules without a key. */
  shared: number | null;
  /** Requests that did not bring a valid count along and were decided by the rule's own; null for rules without a key. */
  defaulted: number | null;
  /** How much more calls have cost than they held: charged over the limit, if need be. Null for rules that count only refusals. */
  debt: number | null;
}

/** A hot key. */
export interface HotKey {
  /** The id of the rule that counts it. */
  rule: string;
  /** The key's parts as text, separated by `, `, with `-` for a missing part; null until the key is seen again. */
  key: string | null;
  /** The key's passes in the window, or its calls in flight; for a throttle, how far its turns reach ahead, in milliseconds. */
  amount: number;
}
