/// <reference lib="esnext.disposable" />

/**
 * Rules of all kinds: limits that reject, throttle or warm up, for all or for each key; circuit breakers, limits on all that
 * comes from outside, and who may enter.
 *
 * ```js
 * import { Engine } from 'leapgate/engine';
 *
 * const engine = new Engine({ flowRules: [{ resource: 'login', count: 5, intervalMs: 60_000, key: ['clientIp'] }] });
 * const { success, retryAfterMs } = engine.limit('login', { key: '10.0.0.1' });
 * ```
 *
 * @module
 */

import type { Key, LeapgateErrorCode, WindowMode } from 'leapgate';
import type { HotKey, NodeTree, RuleCounters } from './stats.js';

export type { HotKey, Key, LeapgateErrorCode, NodeTree, RuleCounters, WindowMode };

/** Whether a rule refuses, or only decides and counts. */
export type Mode = 'enforce' | 'shadow';

/** Fields that Sentinel writes and that mean nothing here. */
export interface SentinelLeftovers {
  clusterMode?: unknown;
  clusterConfig?: unknown;
  gmtCreate?: unknown;
  gmtModified?: unknown;
  app?: unknown;
  ip?: unknown;
  port?: unknown;
}

/** What rules of all kinds have. */
export interface AnyRule extends SentinelLeftovers {
  /** What the rule is called in results: printable ASCII, up to 256 bytes, or a whole number. Made of what it says unless given. */
  id?: string | number;
  /** `enforce` unless given. */
  mode?: Mode;
  /** Resources are names, never patterns. */
  regex?: false;
}

/** `sentinel`: decides as Sentinel does. */
export type Compat = 'sentinel';

/** What is limited: passes in a window, or calls in flight. Numbers are Sentinel's. */
export type Grade = 'qps' | 'concurrency' | 0 | 1;

/** What happens at the threshold. Numbers are Sentinel's. */
export type ControlBehavior = 'reject' | 'warmUp' | 'throttle' | 'warmUpThrottle' | 0 | 1 | 2 | 3;

/** Parts of a key that have an argument. */
export interface NamedParts {
  /** The client's address, of whose bits the first so many count: 32 of IPv4 and 64 of IPv6 unless given. */
  clientIp: { v4?: number; v6?: number };
  /** The header of this name. */
  header: string;
  /** The parameter of this name in the query. */
  query: string;
  /** The cookie of this name. */
  cookie: string;
  /** A value that the caller hands in; below 0 counted from the end, of which -1 is the last one. */
  arg: number;
}

type OneOf<T> = { [K in keyof T]: { [P in K]: T[P] } & { [P in Exclude<keyof T, K>]?: never } }[keyof T];

/** By what a rule tells requests apart. The caller says what a request has for it, as `key`. */
export type KeyPart = 'clientIp' | 'path' | 'method' | 'host' | OneOf<NamedParts>;

/** Another count for one key. */
export interface KeyItem {
  /** The value; of several parts, or of one, an array of one for each, in which null is a part that is missing. */
  value: string | readonly (string | null)[];
  count: number;
}

/** A limit on a resource. */
export interface FlowRule extends AnyRule {
  /** What is limited; `*` is each resource that no other flow rule names, on a window of its own. */
  resource: string;
  /** How much is admitted. It may have a fraction. */
  count: number;
  /** `qps` unless given. */
  grade?: Grade;
  /** The length of the window: 1000 ms unless given. */
  intervalMs?: number;
  /** Into how many buckets the window is cut: a divisor of `intervalMs`. Its largest up to 100 unless given, 20 with a `key`. */
  sampleCount?: number;
  /** How the window counts; `strict` unless given. */
  window?: WindowMode;
  /** `reject` unless given. */
  controlBehavior?: ControlBehavior;
  /** How long it takes to warm up: 10 seconds unless given. */
  warmUpPeriodSec?: number;
  /** Which part of the count a cold rule admits: a third (3) unless given. */
  coldFactor?: number;
  /** How long a request may wait where a rule throttles: 500 ms unless given; 0 is not at all. */
  maxQueueingTimeMs?: number;
  /** Whose requests: `default` for all, an origin, or `other` for each origin that no rule of the resource names. */
  limitApp?: string;
  /** `direct`; `relate` measures the resource of `refResource`; `chain` is for requests of the context of that name. */
  strategy?: 'direct' | 'relate' | 'chain' | 0 | 1 | 2;
  /** The resource or the context that `strategy` is about. */
  refResource?: string;
  /** Limits each combination of values for itself: up to 8 parts. */
  key?: readonly KeyPart[];
  /** Keys with another count. */
  keyItems?: readonly KeyItem[];
  /** How many keys are kept apart: 100,000 unless given. Further ones share windows, which is stricter for them. */
  maxKeys?: number;
  /** How much more than the count each key may have: 0 unless given. Nothing to a throttle and to a limit on concurrency. */
  burst?: number;
  compat?: Compat;
}

/** Sentinel's limit on the values of a parameter. */
export interface ParamFlowRule extends AnyRule {
  resource: string;
  /** Which of the values that the caller hands in: the part `arg:0` of a key, and so on; below 0 counted from the end. */
  paramIdx: number;
  count: number;
  grade?: Grade;
  /** The length of the window: 1 second unless given. */
  durationInSec?: number;
  /** How much more than the count each value may have: 0 unless given. */
  burstCount?: number;
  controlBehavior?: 'reject' | 'throttle' | 0 | 2;
  /** How long a request may wait where a rule throttles: not at all unless given. */
  maxQueueingTimeMs?: number;
  /** Values with another count. They are compared as text. */
  paramFlowItemList?: readonly { object: string; count: number; classType?: string }[];
  compat?: Compat;
  limitApp?: unknown;
  hotItems?: unknown;
}

/** Which values Sentinel's limit of a gateway tells apart. */
export interface GatewayParamItem {
  parseStrategy: 'clientIp' | 'host' | 'header' | 'urlParam' | 'cookie' | 0 | 1 | 2 | 3 | 4;
  /** Of a header, a parameter or a cookie. */
  fieldName?: string;
  /** Only values that match it; all unless given. */
  pattern?: string;
  /** `exact` unless given; a regular expression has to match all of the value. */
  matchStrategy?: 'exact' | 'prefix' | 'regex' | 'contains' | 0 | 1 | 2 | 3;
  index?: unknown;
}

/** Sentinel's limit of a gateway. */
export interface GatewayFlowRule extends Omit<AnyRule, 'regex'> {
  resource: string;
  /** All the same here. */
  resourceMode?: 'route' | 'customApiName' | 0 | 1;
  count: number;
  grade?: Grade;
  /** The length of the window: 1 second unless given. */
  intervalSec?: number;
  /** How much more than the count each value may have: 0 unless given. */
  burst?: number;
  controlBehavior?: 'reject' | 'throttle' | 0 | 2;
  /** How long a request may wait where a rule throttles: 500 ms unless given. */
  maxQueueingTimeoutMs?: number;
  /** Without one, all requests have one window together. */
  paramItem?: GatewayParamItem;
  compat?: Compat;
  limitApp?: unknown;
  gatewayId?: unknown;
}

/** A circuit breaker. */
export interface DegradeRule extends AnyRule {
  /** What it guards; `*` is each resource that no other degrade rule names. */
  resource: string;
  /** `slowRatio` unless given. Numbers are Sentinel's. */
  grade?: 'slowRatio' | 'errorRatio' | 'errorCount' | 0 | 1 | 2;
  /** Above which response time a call is slow, in ms; or the ratio of errors; or their number. */
  count: number;
  /** The ratio of slow calls: 1 unless given. */
  slowRatioThreshold?: number;
  /** For how many seconds the circuit stays broken. */
  timeWindow: number;
  /** Fewer calls in the window break nothing: 5 unless given. */
  minRequestAmount?: number;
  /** The length of the window: 1000 ms unless given. */
  statIntervalMs?: number;
  /** Its buckets: the interval's largest divisor up to 10 unless given. */
  sampleCount?: number;
  /** How many calls must then succeed: 1 unless given. */
  probes?: number;
  /** `atLeast`: the threshold itself is too much. `above` unless given. */
  comparison?: 'above' | 'atLeast';
  compat?: Compat;
  limitApp?: unknown;
  passCount?: unknown;
  cut?: unknown;
  rtSlowRequestAmount?: unknown;
}

/** A limit on all requests that come from outside (`inbound`), together. A threshold that is negative is none. */
export interface SystemRule extends AnyRule {
  /** Passes per second. */
  qps?: number;
  /** Calls in flight. */
  maxThread?: number;
  /** The mean response time, in ms. */
  avgRt?: number;
  /** The load average of the last minute, as `setGauges` tells it: above it, calls are held to what the machine works off. */
  highestSystemLoad?: number;
  /** How busy the processors are, as `setGauges` tells it: from 0 to 1. */
  highestCpuUsage?: number;
  /** Holds calls in flight to what the machine is estimated to work off. */
  bbr?: boolean;
  compat?: Compat;
  resource?: unknown;
  limitApp?: unknown;
}

/** Which origins may enter a resource. */
export interface AuthorityRule extends AnyRule {
  /** What is guarded; `*` is each resource that no other authority rule names. */
  resource: string;
  /** Origins, with commas between. */
  limitApp: string;
  /** `white`: only those (unless given); `black`: all but those. */
  strategy?: 'white' | 'black' | 0 | 1;
}

/** After so many refusals of a key, by flow rules and authority rules of the resource, the key is refused for a time. */
export interface BanRule extends Pick<AnyRule, 'id' | 'mode'> {
  /** What is guarded; `*` is each resource that no other ban rule names. */
  resource: string;
  /** What clients are told apart by, as in `FlowRule`. */
  key: FlowRule['key'] & {};
  /** How many keys are kept apart: 100,000 unless given. */
  maxKeys?: number;
  /** How many refusals within the interval ban a key, from 1. */
  count: number;
  /** The interval: 1000 ms unless given. */
  intervalMs?: number;
  /** For how many seconds the key is refused then. */
  banSec: number;
}

/** A rules document, with Sentinel's names: the one of the filter for Envoy and of the Rust library. */
export interface RulesDocument {
  /** Limits, asked in order. */
  flowRules?: readonly FlowRule[];
  /** Sentinel's limits on the values of a parameter. They stand before `flowRules`. */
  paramFlowRules?: readonly ParamFlowRule[];
  /** Those of Sentinel's gateways. They stand before `paramFlowRules`. */
  gatewayFlowRules?: readonly GatewayFlowRule[];
  /** Circuit breakers. */
  degradeRules?: readonly DegradeRule[];
  /** Limits on all that comes from outside. */
  systemRules?: readonly SystemRule[];
  /** Who may enter. */
  authorityRules?: readonly AuthorityRule[];
  /** Bans on clients that are refused too often. */
  banRules?: readonly BanRule[];
  /** `shadow`: no rule refuses. */
  mode?: Mode;
  /** The settings of the filter for Envoy: not read here. */
  envoy?: unknown;
}

/** What an engine has beside its rules. */
export interface EngineSettings {
  /** The clock, in milliseconds. `performance.now()` unless given, `Date.now()` in Workers. */
  now?: () => number;
  /** How many may wait at once, in `acquire` and `run` together: 1000 unless given. Others are rejected: `ERR_LEAPGATE_FULL`. */
  maxWaiting?: number;
}

/** A value of a part of a key. Numbers are the same as their text. */
export type KeyValue = string | number | bigint;

/**
 * Values by part, as ids write parts: `clientIp`, `header:x-api-key`, `query:user`, `cookie:sid`, `path`, `method`, `host`,
 * `arg:0`. Null where the request has none; several in an array: the request passes if it may as each of them. Parts that no
 * rule of the resource asks for are not read.
 */
export type KeyRecord = Readonly<Record<string, KeyValue | readonly KeyValue[] | null>>;

/** What a request says about itself. */
export interface RequestOptions {
  /** Who is limited: one value, or an array in the order of the resource's key parts, or values by part. */
  key?: Key | null | readonly (KeyValue | null)[] | KeyRecord;
  /** Who asks, for rules with `limitApp`. */
  origin?: string;
  /** What it costs: a whole number, 1 unless given. */
  cost?: number;
  /** Where a window has no room it may borrow from what comes, and waits for less than 500 ms. */
  prioritized?: boolean;
  /** By which entrance it comes in: for rules of the strategy `chain`, and statistics. */
  context?: string;
  /** Whether it comes from outside: system rules limit those that do. */
  inbound?: boolean;
}

/** What a call says about itself. */
export interface EnterOptions extends RequestOptions {
  /** Whether it waits where a rule says so: see `waitMs`. Else it is refused there. */
  canWait?: boolean;
  /** The open call within which it is made. */
  within?: Entry;
}

/** What a call says that waits to be let in. */
export interface AcquireOptions extends RequestOptions {
  /** The open call within which it is made. */
  within?: Entry;
  /** For how many milliseconds it waits at most; without end unless given. */
  maxWaitMs?: number;
  /** Ends the waiting: it is rejected with the signal's reason, and what was held is given back. */
  signal?: AbortSignal;
}

/** Why `run` or `acquire` has let nobody in. */
export interface BlockedError extends Error {
  code: 'ERR_LEAPGATE_BLOCKED';
  /** The refusal. */
  result: EngineResult;
}

/** How a rule stands. */
export interface EnginePolicy {
  /** The rule's id. */
  id: string;
  /** How much it lets pass: of a rule with a key, what that key has. */
  limit: number;
  /** Whole passes that are left. */
  remaining: number;
  /** The length of the window, in milliseconds; null of a limit on calls in flight. */
  windowMs: number | null;
  /** Milliseconds until quota comes back: a whole pass where none is left, else any; 0 where none is used or it is unknown. */
  resetMs: number;
}

/** What became of a request. A plain object, yours to keep. */
export interface EngineResult {
  /** Whether it passes. */
  success: boolean;
  /** The limit of `rule`; `Infinity` where there is none. */
  limit: number;
  /** Whole passes that are left: of the rule that has the fewest; `Infinity` where there is none. */
  remaining: number;
  /** Epoch milliseconds (in the clock given as `now`, if one is): of the next try if refused, else of when quota comes back. */
  reset: number;
  /** 0 if it passes; else in how many milliseconds it would pass if nothing else came; `Infinity` where it never can. */
  retryAfterMs: number;
  /** The first rule that refuses, or else the one of which the least is left; null where the resource has none. */
  rule: string | null;
  /** Of which kind the rule is that refuses; null where none does. */
  cause: 'flow' | 'degrade' | 'system' | 'authority' | 'ban' | null;
  /** The HTTP status of the refusal: 429 of a limit, 503 of a breaker or an overloaded system, 403 of an authority rule; null if it passes. */
  status: 429 | 503 | 403 | null;
  /** How each flow rule stands that is for requests of no origin and no context in particular. */
  policies: EnginePolicy[];
}

/** How a call ended. */
export interface Outcome {
  /** What went wrong. Undefined, null and false are no error. */
  error?: unknown;
  /** Whether the call turns out not to count: what windows were charged for it goes back. */
  refund?: boolean;
  /**
   * Whether nobody has waited for the answer: breakers learn nothing of such a call, but that it was slow if it was already. `refund`
   * comes before it, and it before `error`.
   */
  unanswered?: boolean;
}

/** A call in flight, or its refusal. What has been let in is ended once: by `exit`, or where it never began, by `cancel`. */
export interface Entry extends EngineResult {
  /** For how long the call has to wait before it begins; 0 unless it asked with `canWait`. */
  waitMs: number;
  /** Ends the call. What has ended already, or was refused, stays as it is. */
  exit(outcome?: Outcome): void;
  /** Gives the call up. While it has to wait, it gives back its turn, if no later one was taken, or what it has borrowed. */
  cancel(): void;
  /** As `exit()`. */
  [Symbol.dispose](): void;
}

/** Rules, applied to requests. Its windows are its own. */
export class Engine {
  /** Throws an error with the code `ERR_LEAPGATE_RULES` where a rule is wrong. Reads neither clock nor randomness. */
  constructor(rules: RulesDocument, settings?: EngineSettings);
  /**
   * Decides about a request that is over at once; where a rule would make it wait it is refused. Where the resource has rules that
   * look at how calls end, limits on concurrency and circuit breakers, it throws: `ERR_LEAPGATE_OPEN`.
   */
  limit(resource: string, request?: RequestOptions): EngineResult;
  /** Decides about a call, which is open until its `exit` if it is let in. */
  enter(resource: string, request?: EnterOptions): Entry;
  /**
   * Calls `call` with an entry, and ends that with what becomes of it: a call that throws or rejects ended with an error, which is
   * rethrown. Where a rule makes it wait, it waits before. What is refused rejects with a `BlockedError`, and is not called.
   */
  run<T>(resource: string, call: (entry: Entry) => T | Promise<T>): Promise<T>;
  run<T>(
    resource: string,
    request: RequestOptions & Pick<AcquireOptions, 'within' | 'signal'>,
    call: (entry: Entry) => T | Promise<T>,
  ): Promise<T>;
  /**
   * Waits to be let in: for its turn, for what it borrows, or until others have left. The entry is ended by whoever has it.
   *
   * Those who ask for one resource with one key come in in the order in which they have asked; `enter`, `limit` and `run` do not
   * stand in that queue. Statistics count each time that the first of them is refused again. It rejects with a `BlockedError` where
   * it can never come in, or not within `maxWaitMs`: at once, where that is known.
   *
   * No timer is set for a call that waits for others to end: they tell it. In Workers, where a request must not wake another, each
   * asks for itself, at least every 50 ms.
   */
  acquire(resource: string, request?: AcquireOptions): Promise<Entry>;
  /**
   * Tells how the machine does, for system rules with `highestSystemLoad` or `highestCpuUsage`: the load average of the last
   * minute (`os.loadavg()[0]`), and how busy its processors are, from 0 to 1. What is not told is unknown, and refuses nothing.
   */
  setGauges(gauges: { load?: number; cpu?: number }): void;
  /** How the flow rules of a resource stand. Charges nothing. */
  policies(resource: string, request?: Pick<RequestOptions, 'key'>): EnginePolicy[];
  /**
   * Puts other rules in force: all, or none, and then it throws as the constructor does. Rules with the id and the geometry of one
   * that is in force go on with its counts; calls end on the rules that they began with.
   */
  replace(rules: RulesDocument): void;
  /** The statistics of all resources, contexts and origins. */
  readonly nodes: NodeTree;
  /** How each rule has decided since it began, by id; one that is for each resource or origin, for each that has been there. */
  counters(): RuleCounters[];
  /** The `n` hottest keys, 10 unless given, of each rule that has keys, hottest first. It looks at all keys: some nanoseconds each. */
  top(n?: number): HotKey[];
  /** The engine's clock. */
  now(): number;
  /** Gives its memory back. It cannot be used afterwards; calls in flight may still end. */
  free(): void;
  [Symbol.dispose](): void;
}
