/// <reference lib="esnext.disposable" />
/**
 * The statistics by themselves, with Sentinel's names: rings of buckets, sums and rates over them, and the nodes of resources.
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
 * `now` is the time in milliseconds, of any clock as long as it is one. It is the last argument everywhere and may be left out:
 * then it is that of the clock given with the options, of the engine, or else `performance.now()`, `Date.now()` in Workers. Reads
 * change nothing. The clock may step back: while it is less than one interval behind, everything happens in the newest bucket.
 *
 * Should the wasm module ever stop and be started again (`ERR_LEAPGATE_CRASHED`), statistics begin anew.
 *
 * @module
 */

/** What is counted. `success` is each completion, failed or not, `exception` those that failed, `rt` their milliseconds together. */
export type MetricEvent = 'pass' | 'block' | 'exception' | 'success' | 'rt' | 'occupiedPass';

/** How an interval is cut into buckets, which are aligned to the clock's zero. */
export interface WindowOptions {
  /** The interval, in whole milliseconds: up to ten years. */
  intervalMs: number;
  /** Into how many buckets it is cut: a divisor of `intervalMs`, at most 1000. Its largest divisor up to 100 unless given. */
  sampleCount?: number;
}

/** The clock of what is made. */
export interface Clock {
  /** The clock, in milliseconds. `performance.now()` unless given, `Date.now()` in Workers. */
  now?: () => number;
}

/** What becomes of borrowed passes. */
export interface Borrowing {
  /** What becomes of a borrowed pass in whose bucket nothing happens: it counts (`kept`, the default), or not, as in Sentinel. */
  untouched?: 'kept' | 'lost';
}

/** What happened in one bucket. */
export interface MetricBucket {
  /** Let in. */
  pass: number;
  /** Refused. */
  block: number;
  /** Completed with an error. */
  exception: number;
  /** Completed, with an error or without. */
  success: number;
  /** Response times together, in milliseconds. */
  rt: number;
  /** Let in on a pass of a bucket to come. */
  occupiedPass: number;
  /** The shortest response time as Sentinel tells it: 5000 where nothing has completed, and never more. */
  minRt: number;
  /** The shortest response time in milliseconds; null where nothing has completed. */
  shortestRt: number | null;
  /** The longest response time in milliseconds; null where nothing has completed. */
  maxRt: number | null;
  /** The most calls that were in flight. */
  maxConcurrency: number;
}

/** A bucket and when it starts, as it was when it was asked for. A plain object, yours to keep. */
export interface WindowWrap {
  /** When the bucket starts, in milliseconds. */
  windowStart: number;
  /** How long it is, in milliseconds. */
  windowLength: number;
  /** What happened in it. */
  value: MetricBucket;
}

/** What happened in one bucket of a metric. */
export interface MetricNode {
  /** When the bucket starts, in milliseconds. */
  timestamp: number;
  /** Passes, with the borrowed ones. */
  pass: number;
  /** Refusals. */
  block: number;
  /** Completions, with the failed ones. */
  success: number;
  /** Failed completions. */
  exception: number;
  /** The average response time in whole milliseconds, rounded down; their sum where nothing completed. */
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
  /** Into how many buckets it is cut. */
  readonly sampleCount: number;
  /** How long one is, in milliseconds. */
  readonly windowLengthMs: number;
}

/** What is recorded in the current bucket, which is opened if need be. `n` is a whole number up to 2^32 - 1. */
export interface Recording {
  /** `n` passes: 1 unless given. */
  addPass(n?: number, now?: number): void;
  /** `n` refusals. */
  addBlock(n?: number, now?: number): void;
  /** `n` failed completions. */
  addException(n?: number, now?: number): void;
  /** `n` completions. */
  addSuccess(n?: number, now?: number): void;
  /** `n` passes that were borrowed from a bucket to come. */
  addOccupiedPass(n?: number, now?: number): void;
  /** A response time in milliseconds; a fraction of one is cut off. */
  addRt(rt: number, now?: number): void;
  /** How many calls are in flight: the most of them is kept. */
  updateConcurrency(inFlight: number, now?: number): void;
}

/**
 * A ring of buckets that covers one interval and is reused in place.
 *
 * Sentinel: `LeapArray` of `MetricBucket`s. Lists are in the order of time.
 */
export class LeapArray {
  /** Throws an error with the code `ERR_LEAPGATE_OPTIONS` where an option is wrong. */
  constructor(options: WindowOptions & Clock);
  /** The bucket of `now`, opened if need be. */
  currentWindow(now?: number): WindowWrap;
  /** The bucket before the current one; null where nothing came in its time, and in a ring of one bucket. */
  previousWindow(now?: number): WindowWrap | null;
  /** The oldest bucket that may still count: the one whose place is taken next. Null where nothing came in its time. */
  validHead(now?: number): WindowWrap | null;
  /** What the bucket of `at` holds, while it is there: for two buckets' time longer than it counts. */
  windowValue(at: number): MetricBucket | null;
  /** The buckets that count, of those in whose time something came, oldest first. */
  list(now?: number): WindowWrap[];
  /** All buckets that are still there, oldest first. */
  listAll(): WindowWrap[];
  /** What the buckets hold that count, oldest first. */
  values(now?: number): MetricBucket[];
  /** The same, of those whose start satisfies `predicate`. */
  valuesConditional(predicate: (windowStart: number) => boolean, now?: number): MetricBucket[];
  /** Whether a bucket that this ring has told does not count at `now`, any more or yet. */
  isWindowDeprecated(wrap: Pick<WindowWrap, 'windowStart'>, now?: number): boolean;
  /** Which place of a ring of `sampleCount` the bucket of `at` takes. */
  calculateTimeIdx(at: number): number;
  /** When the bucket of `at` starts. */
  calculateWindowStart(at: number): number;
  /** Gives its memory back. It cannot be used afterwards. */
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
  /** How often `event` happened in the bucket of `at`; 0 where the ring does not reach. */
  windowSum(event: MetricEvent, at: number): number;
  /** Passes, the borrowed ones included when they are due. */
  pass(now?: number): number;
  /** Refusals. */
  block(now?: number): number;
  /** Failed completions. */
  exception(now?: number): number;
  /** Completions, the failed ones included. */
  success(now?: number): number;
  /** Response times together, in milliseconds. */
  rt(now?: number): number;
  /** Passes borrowed from a later bucket. */
  occupiedPass(now?: number): number;
  /** Passes in the bucket before the current one: a count, not a rate. 0 in a window of one bucket. */
  previousWindowPass(now?: number): number;
  /** Refusals in the bucket before the current one: a count, not a rate. 0 in a window of one bucket. */
  previousWindowBlock(now?: number): number;
  /** The most completions that any bucket has, at least 1. */
  maxSuccess(now?: number): number;
  /** The shortest response time as Sentinel tells it: 5000 where nothing has completed and never more, at least 1. */
  minRt(now?: number): number;
  /** The shortest response time in milliseconds; null where nothing has completed. */
  shortestRt(now?: number): number | null;
  /** The longest response time in milliseconds; null where nothing has completed. */
  maxRt(now?: number): number | null;
  /** The most calls that were in flight. */
  maxConcurrency(now?: number): number;
  /** The buckets that count, of those in whose time something came, oldest first. */
  details(now?: number): MetricNode[];
  /** The same, of those whose start satisfies `predicate`. */
  detailsOnCondition(predicate: (timestamp: number) => boolean, now?: number): MetricNode[];
}

/**
 * A coarser window over a finer ring, read-only: its passes are those of the ring.
 *
 * sentinel-golang: `SlidingWindowMetric`.
 */
export type SlidingWindowMetric = Metric;

/**
 * Sums and rates over a ring of buckets, from which passes may be borrowed before they begin. A sum costs the same whatever
 * the number of buckets.
 *
 * Sentinel: `ArrayMetric`.
 */
export class ArrayMetric {
  /** Throws an error with the code `ERR_LEAPGATE_OPTIONS` where an option is wrong. */
  constructor(options: WindowOptions & Borrowing & Clock);
  /** Opens the current bucket, as each of Sentinel's reads does; a loan may depend on it (`untouched`). */
  touch(now?: number): void;
  /** Borrows `n` passes, 1 unless given, from the bucket of `at`, which has not begun and is less than one interval ahead. */
  addWaiting(at: number, n?: number): void;
  /** How many borrowed passes are still to come. */
  waiting(now?: number): number;
  /** This ring, seen through a window that is no longer and whose buckets are made of whole buckets of the ring. */
  view(options: WindowOptions): SlidingWindowMetric;
  /** Gives its memory back. It cannot be used afterwards. */
  free(): void;
  [Symbol.dispose](): void;
}
export interface ArrayMetric extends Metric, Recording {}

/**
 * The statistics of a resource, as rules and dashboards read them: rates over the last second in two buckets, totals over the
 * last minute.
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
  /** Completions per second, the failed ones included. */
  successQps(now?: number): number;
  /** Failed completions per second. */
  exceptionQps(now?: number): number;
  /** Borrowed passes per second, by when they were lent. */
  occupiedPassQps(now?: number): number;
  /** The rate at which calls would complete if every bucket did as well as the best; never below one completion a bucket. */
  maxSuccessQps(now?: number): number;
  /** Average response time, in milliseconds; 0 where nothing has completed. */
  avgRt(now?: number): number;
  /** Shortest response time, in milliseconds; 5000 where nothing has completed, at least 1. */
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
  /** Borrowed passes that are still to come. */
  waiting(now?: number): number;
}

/** A node at which something is recorded. */
export interface RecordedNode extends Node {
  /** The last second, in full. */
  second(): SlidingWindowMetric;
  /** The last minute, in full. */
  minute(): SlidingWindowMetric;
  /** The seconds before the current one in which something happened and that have not been told yet, oldest first. */
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
  /** Throws an error with the code `ERR_LEAPGATE_OPTIONS` where an option is wrong. */
  constructor(options?: Borrowing & Clock);
  /** Records `n` passes: 1 unless given. */
  addPassRequest(n?: number, now?: number): void;
  /** Records `n` refusals. */
  increaseBlockQps(n?: number, now?: number): void;
  /** Records `n` failed completions. */
  increaseExceptionQps(n?: number, now?: number): void;
  /** Records a response time in milliseconds, of which a fraction is cut off, and `n` completions. */
  addRtAndSuccess(rt: number, n?: number, now?: number): void;
  /** Records one call more in flight. */
  increaseThreadNum(): void;
  /** Records one call fewer in flight; there are never fewer than none. */
  decreaseThreadNum(): void;
  /** Records `n` borrowed passes where they count at once: in the minute. */
  addOccupiedPass(n?: number, now?: number): void;
  /** Borrows `n` passes from the half second of `at`, which has not begun. */
  addWaitingRequest(at: number, n?: number): void;
  /**
   * In how many milliseconds a bucket to come can pay for a request that costs `acquire` under `threshold` passes a second; 500
   * or more for no.
   */
  tryOccupyNext(acquire: number, threshold: number, now?: number): number;
  /** Records that a call has begun: `n` passes, and one call in flight. */
  begin(n?: number, now?: number): void;
  /** Records that a call has ended: its response time, `n` completions, as many failures if it failed, and one call fewer in flight. */
  complete(rt: number, outcome?: { n?: number; failed?: boolean }, now?: number): void;
  /** Opens the current bucket, as each of Sentinel's reads of the last second does; a loan may depend on it (`untouched`). */
  touch(now?: number): void;
  /** Gives its memory back. It cannot be used afterwards. */
  free(): void;
  [Symbol.dispose](): void;
}
export interface StatisticNode extends RecordedNode {}

/**
 * The nodes of an engine: `engine.nodes`. Those that are not there yet are null; the same one is always the same object.
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
  /** All calls that came from outside, whatever the resource: Sentinel's `__total_inbound_traffic__`. */
  readonly inbound: ClusterNode;
  /** The entrance of a context; that of calls which name none is `sentinel_default_context`. */
  entrance(context: string): EntranceNode | null;
  /** A resource in one context. */
  defaultNode(context: string, resource: string): DefaultNode | null;
  /** A resource in all contexts. */
  cluster(resource: string): ClusterNode | null;
  /** Every resource in all contexts, by name. */
  clusters(): ClusterNode[];
}

/**
 * A context, or the root above them all. It counts nothing itself and adds up what is below it: rates of passes, refusals and
 * completions, totals, calls in flight, and the average response time. The other values are those of a node at which nothing
 * happens, as in Sentinel.
 */
export interface EntranceNode extends Node {
  /** The context's name, or `machine-root`. */
  readonly name: string;
  /** The entrances below the root; none below an entrance. */
  entrances(): EntranceNode[];
  /** The resources that were first entered in this context outside any other. */
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
  /** The resources that were first entered, in this context, within this one. */
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

/** How a rule has decided. */
export interface RuleCounters {
  /** The rule's id. */
  rule: string;
  /** The resource, of a rule that applies to each on a window of its own. */
  resource: string | null;
  /** The origin, of a rule that applies to each on a window of its own. */
  origin: string | null;
  /** Requests that the rule has let pass and that passed; null of rules that count only refusals. */
  passed: number | null;
  /** Requests, of those, that the rule has made wait, or would have, had it not been in shadow mode; null as above. */
  waited: number | null;
  /** Requests that the rule was the first to refuse. */
  blocked: number;
  /** Requests that the rule would have refused, had it not been in shadow mode. */
  shadowBlocked: number;
  /** Requests, of those that passed, charged to what keys share beyond the rule's `maxKeys`; null of rules without a key. */
  shared: number | null;
}

/** A key that is asked about often. */
export interface HotKey {
  /** The id of the rule that counts it. */
  rule: string;
  /** The key's parts as text, `, ` between them and `-` for one that is missing; null until it has come again. */
  key: string | null;
  /** Its passes in the window; its calls in flight; of a throttle, how far its turns reach ahead, in milliseconds. */
  amount: number;
}
