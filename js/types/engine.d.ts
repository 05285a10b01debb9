/// <reference lib="esnext.disposable" />

/**
 * An engine applies rules of all kinds to requests; `RulesDocument` lists the kinds.
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

/** Whether a rule refuses requests, or only decides and counts. */
export type Mode = 'enforce' | 'shadow';

/** Fields of Sentinel's rules that are accepted and ignored. */
export interface SentinelLeftovers {
  clusterMode?: unknown;
  clusterConfig?: unknown;
  gmtCreate?: unknown;
  gmtModified?: unknown;
  app?: unknown;
  ip?: unknown;
  port?: unknown;
}

/** Sentinel's settings of a rule in a cluster. Its other fields are accepted and ignored. */
export interface ClusterConfig {
  /** 0: the count is that of each node; 1: of all nodes together, where there is a store. 0 unless given. */
  thresholdType?: 0 | 1 | undefined;
  /** The number that the rule's count has at the store, from 1; by default the rule's id names it. */
  flowId?: number | null | undefined;
  /** Without an answer of the store: `true` limits each node by itself, `false` lets everything pass. */
  fallbackToLocalWhenFail?: boolean | undefined;
  strategy?: unknown;
  sampleCount?: unknown;
  windowIntervalMs?: unknown;
  resourceTimeout?: unknown;
  resourceTimeoutStrategy?: unknown;
  acquireRefuseStrategy?: unknown;
  clientOfflineTime?: unknown;
}

/** The fields of rules that can have one limit for all machines. An engine has no store, and says so in its `warnings`. */
export interface ClusterFields {
  /** `true`: as `clusterConfig` says. */
  clusterMode?: boolean | undefined;
  clusterConfig?: ClusterConfig | null | undefined;
}

/** The fields that rules of all kinds have. */
export interface AnyRule extends SentinelLeftovers {
  /** The rule's name in results: printable ASCII, up to 256 bytes, or a whole number. Derived from the rule's fields unless given. */
  id?: string | number | undefined;
  /** `enforce` unless given. */
  mode?: Mode | undefined;
  /** Resources are names, never patterns. */
  regex?: false | undefined;
}

/** `sentinel`: decides as Sentinel does. */
export type Compat = 'sentinel';

/** What a rule limits: passes in a window, or calls in flight. Numbers are Sentinel's. */
export type Grade = 'qps' | 'concurrency' | 0 | 1;

/** What happens at the threshold. Numbers are Sentinel's. */
export type ControlBehavior = 'reject' | 'warmUp' | 'throttle' | 'warmUpThrottle' | 0 | 1 | 2 | 3;

/** Metadata of a request: what a proxy knows of it. A path is a namespace and 1 to 7 keys; the key of an item in a list is its index. */
export interface MetadataParts {
  /** The claim with this name in the request's JSON web token; an array is the path to a nested one. */
  jwtClaim: string | readonly string[];
  /** Dynamic metadata. */
  metadata: readonly string[];
  /** Dynamic metadata that is a message of a known type. */
  typedMetadata: readonly string[];
  /** Metadata of the request's route. */
  routeMetadata: readonly string[];
}

/** Parts of a key that take an argument. */
export interface NamedParts extends MetadataParts {
  /** The first bits of the client's address: 32 of IPv4 and 64 of IPv6 unless given. */
  clientIp: { v4?: number; v6?: number };
  /** The header with this name. */
  header: string;
  /** The query parameter with this name. */
  query: string;
  /** The cookie with this name. */
  cookie: string;
  /** The value with this index among the caller's arguments; a negative index counts from the end, and -1 is the last value. */
  arg: number;
  /** The object of the filter state with this name. */
  filterState: string;
}

/** What a part may say besides its name. */
export interface PartFields<K> {
  /** What the value is in metadata; `string` unless given. The filter reads it so; here a number is the same as its text. */
  type?: K extends keyof MetadataParts ? 'string' | 'number' : never;
  /** Where the claims of a token are; `jwt_payload` unless given. */
  payload?: K extends 'jwtClaim' ? string : never;
}

type OneOf<T> = {
  [K in keyof T]: { [P in K]: T[P] } & { [P in Exclude<keyof T, K>]?: never } & PartFields<K>;
}[keyof T];

/** A property of requests by which a rule distinguishes them. The caller passes its values as `key`. */
export type KeyPart = 'clientIp' | 'path' | 'method' | 'host' | 'peer' | OneOf<NamedParts>;

/** The count of one key, in place of the rule's. */
export interface KeyItem {
  /**
   * The key: a value, or an array with a value for each part, where null means that the part is missing. If `clientIp` is the only
   * part, a network, such as `10.0.0.0/8`: each client in it has this count, and the longest prefix decides.
   */
  value: string | readonly (string | null)[];
  count: number;
}

type NoPart = { [part in keyof NamedParts]?: never } & { type?: never; payload?: never };

/** How much of a count a request holds at most. */
export interface EstimateBounds {
  /** Where the part of the request is missing or not a number from 0 to 2^53; 1 unless given. */
  default?: number | undefined;
  /** A number, or a share of the count: `50%` unless given. */
  atMost?: number | `${number}%`;
}

/** Where a proxy reads what a request has cost. Here the caller says it: `entry.exit({ cost })`. */
export interface ActualSources {
  metadata: readonly string[];
  typedMetadata: readonly string[];
  header: string;
  trailer: string;
  bytes: 'received' | 'sent' | 'total';
  status: readonly (string | number)[];
}

/** A cost that is known only when a request ends: until then the request holds an estimate. */
export interface Cost {
  /** What a request holds if its caller does not say: a number, or what a part of the request says, which the caller passes in `key`. */
  estimate?: number | ((OneOf<NamedParts> | NoPart) & EstimateBounds) | undefined;
  /** Read by proxies. */
  actual?: {
    [K in keyof ActualSources]: { [S in K]: ActualSources[S] } & { [S in Exclude<keyof ActualSources, K>]?: never } & {
      weights?: K extends 'metadata' | 'typedMetadata' ? { input?: number; cached?: number; output?: number } : never;
    };
  }[keyof ActualSources];
  /** Read by proxies. */
  missing?: 'estimate' | 'bytes' | 0 | undefined;
}

/**
 * Where the count of a key is found in a request: in a part that the caller passes in `key`, as a number or its digits, and that
 * clients do not choose. In typed metadata 0 is a number that is not set.
 */
export type CountFrom = OneOf<MetadataParts> & {
  /** The count of a request that brings none along, or one that is not valid. */
  default: number;
  /** The highest count that is taken from a request; unlimited unless given. */
  atMost?: number | undefined;
};

/** What exempts a request. */
export type Exemption =
  | { /** The client's address is in this network: `10.0.0.0/8`, or one address. */ clientIp: string }
  | { /** The request has this header. Any client can send it. */ header: string; /** Its value; any unless given. */ value?: string }
  | { /** The request has this origin. */ origin: string };

/** A limit on a resource. */
export interface FlowRule extends Omit<AnyRule, keyof ClusterFields>, ClusterFields {
  /** The resource to limit; `*` means each resource that no other flow rule names, each with a window of its own. */
  resource: string;
  /** How much is admitted; may have a fraction. With a `key`, each request may bring along the count of its key. */
  count: number | CountFrom;
  /** What it counts: `requests` unless given. A request has a cost in each unit. */
  unit?: string | undefined;
  /** If the cost is known only when a request ends: how much the request holds until then. */
  cost?: Cost | undefined;
  /** `qps` unless given. */
  grade?: Grade | undefined;
  /** The length of the window: 1000 ms unless given. */
  intervalMs?: number | undefined;
  /** The number of buckets in the window: a divisor of `intervalMs`. The largest up to 100 unless given; up to 20 with a `key`. */
  sampleCount?: number | undefined;
  /** What the window guarantees; `strict` unless given. */
  window?: WindowMode | undefined;
  /** `reject` unless given. */
  controlBehavior?: ControlBehavior | undefined;
  /** How long the warm-up takes: 10 seconds unless given. */
  warmUpPeriodSec?: number | undefined;
  /** A cold rule admits the count divided by this factor: 3 unless given. */
  coldFactor?: number | undefined;
  /** How long a throttled request may wait: 500 ms unless given; 0 for not at all. */
  maxQueueingTimeMs?: number | undefined;
  /** The origin of the requests to limit: `default` for all, a name, or `other` for each origin that no rule of the resource names. */
  limitApp?: string | undefined;
  /** `direct` unless given; `relate` counts the resource `refResource`; `chain` limits only requests in the context `refResource`. */
  strategy?: 'direct' | 'relate' | 'chain' | 0 | 1 | 2 | undefined;
  /** The resource or the context that `strategy` refers to. */
  refResource?: string | undefined;
  /** Limits each combination of values separately: up to 8 parts. */
  key?: readonly KeyPart[] | undefined;
  /** Keys with a count of their own. */
  keyItems?: readonly KeyItem[] | undefined;
  /** How many keys have a window of their own: 100,000 unless given. Further keys share windows, which is stricter for them. */
  maxKeys?: number | undefined;
  /** How much each key may have beyond the count: 0 unless given. Throttles and limits on concurrency ignore it. */
  burst?: number | undefined;
  /**
   * The share of keys that is refused, from 0 to 100, chosen by their hash: 100 unless given. For the other keys the rule is in
   * shadow mode. A higher percentage has all keys of a lower one, while the engine exists.
   */
  enforcePercent?: number | undefined;
  /** Requests that the rule leaves alone: they are neither refused nor counted. Up to 256. */
  exempt?: readonly Exemption[] | undefined;
  compat?: Compat | undefined;
}

/** Sentinel's limit on each value of a parameter. */
export interface ParamFlowRule extends Omit<AnyRule, keyof ClusterFields>, ClusterFields {
  resource: string;
  /** The index of the value among the caller's arguments, as of the key part `arg`; a negative index counts from the end. */
  paramIdx: number;
  count: number;
  grade?: Grade | undefined;
  /** The length of the window: 1 second unless given. */
  durationInSec?: number | undefined;
  /** How much each value may have beyond the count: 0 unless given. */
  burstCount?: number | undefined;
  controlBehavior?: 'reject' | 'throttle' | 0 | 2 | undefined;
  /** How long a throttled request may wait: not at all unless given. */
  maxQueueingTimeMs?: number | undefined;
  /** Values with a count of their own. They are compared as text. */
  paramFlowItemList?: readonly { object: string; count: number; classType?: string }[];
  compat?: Compat | undefined;
  limitApp?: unknown;
  hotItems?: unknown;
}

/** The values by which Sentinel's gateway rule distinguishes requests. */
export interface GatewayParamItem {
  parseStrategy: 'clientIp' | 'host' | 'header' | 'urlParam' | 'cookie' | 0 | 1 | 2 | 3 | 4;
  /** The name of the header, the parameter or the cookie. */
  fieldName?: string | undefined;
  /** Limits only values that match it; all unless given. */
  pattern?: string | undefined;
  /** `exact` unless given; a regular expression has to match the whole value. */
  matchStrategy?: 'exact' | 'prefix' | 'regex' | 'contains' | 0 | 1 | 2 | 3 | undefined;
  index?: unknown;
}

/** Sentinel's gateway rule. */
export interface GatewayFlowRule extends Omit<AnyRule, 'regex' | keyof ClusterFields>, ClusterFields {
  resource: string;
  /** Which one the rule is for, where `apiDefinitions` has an API of that name; else it has no effect. */
  resourceMode?: 'route' | 'customApiName' | 0 | 1 | undefined;
  count: number;
  grade?: Grade | undefined;
  /** The length of the window: 1 second unless given. */
  intervalSec?: number | undefined;
  /** How much each value may have beyond the count: 0 unless given. */
  burst?: number | undefined;
  controlBehavior?: 'reject' | 'throttle' | 0 | 2 | undefined;
  /** How long a throttled request may wait: 500 ms unless given. */
  maxQueueingTimeoutMs?: number | undefined;
  /** Without it, all requests share one window. */
  paramItem?: GatewayParamItem | undefined;
  compat?: Compat | undefined;
  limitApp?: unknown;
  gatewayId?: unknown;
}

/** Which requests belong to an API: all that is given must hold. */
export interface PredicateItem {
  /** A path; of a prefix, with `/**` behind it; or a regular expression for the whole path. */
  pattern: string;
  /** `exact` unless given. */
  matchStrategy?: 'exact' | 'prefix' | 'regex' | 0 | 1 | 2 | undefined;
  method?: string | undefined;
  /** The requested host, without a port. */
  host?: string | undefined;
  /** The values of headers; `true` is any. */
  headers?: Record<string, string | true> | undefined;
  /** The values of query parameters; `true` is any. */
  query?: Record<string, string | true> | undefined;
}

/** Sentinel's API group: requests that rules name together. */
export interface ApiDefinition extends SentinelLeftovers {
  /** The name, which rules have as their resource. */
  apiName: string;
  /** Alternatives. */
  predicateItems?: readonly PredicateItem[] | undefined;
  id?: unknown;
}

/** A circuit breaker. */
export interface DegradeRule extends AnyRule {
  /** The resource to guard; `*` means each resource that no other degrade rule names. */
  resource: string;
  /** `slowRatio` unless given. Numbers are Sentinel's. */
  grade?: 'slowRatio' | 'errorRatio' | 'errorCount' | 0 | 1 | 2 | undefined;
  /** The threshold: the response time above which a call is slow, in ms; the ratio of errors; or their number. */
  count: number;
  /** The threshold of the ratio of slow calls: 1 unless given. */
  slowRatioThreshold?: number | undefined;
  /** How long the circuit stays open, in seconds, from 0.001. */
  timeWindow: number;
  /** With fewer calls in the window, the circuit stays closed: 5 unless given. */
  minRequestAmount?: number | undefined;
  /** The length of the window: 1000 ms unless given. */
  statIntervalMs?: number | undefined;
  /** The number of buckets in the window: the largest divisor of the interval up to 10 unless given. */
  sampleCount?: number | undefined;
  /** How many probes must succeed before the circuit closes: 1 unless given. */
  probes?: number | undefined;
  /** `atLeast`: the circuit opens at the threshold itself. `above` unless given. */
  comparison?: 'above' | 'atLeast' | undefined;
  compat?: Compat | undefined;
  limitApp?: unknown;
  passCount?: unknown;
  cut?: unknown;
  rtSlowRequestAmount?: unknown;
}

/** A limit on all inbound requests together. A negative threshold is not checked. */
export interface SystemRule extends AnyRule {
  /** Passes per second. */
  qps?: number | undefined;
  /** Calls in flight. */
  maxThread?: number | undefined;
  /** The mean response time, in ms. */
  avgRt?: number | undefined;
  /** The load average of the last minute, from `setGauges`, above which calls in flight are limited to the machine's estimated capacity. */
  highestSystemLoad?: number | undefined;
  /** The highest use of the processors, from `setGauges`: from 0 to 1. */
  highestCpuUsage?: number | undefined;
  /** Limits calls in flight to the machine's estimated capacity. */
  bbr?: boolean | undefined;
  compat?: Compat | undefined;
  resource?: unknown;
  limitApp?: unknown;
}

/** Which origins may enter a resource. */
export interface AuthorityRule extends AnyRule {
  /** The resource to guard; `*` means each resource that no other authority rule names. */
  resource: string;
  /** Origins, separated by commas. */
  limitApp: string;
  /** `white` admits only these origins; `black` admits all others. `white` unless given. */
  strategy?: 'white' | 'black' | 0 | 1 | undefined;
}

/** After so many refusals of a key, by flow rules and authority rules of the resource, the key is refused for a time. */
export interface BanRule extends Pick<AnyRule, 'id' | 'mode'> {
  /** What is guarded; `*` is each resource that no other ban rule names. */
  resource: string;
  /** What clients are told apart by, as in `FlowRule`. */
  key: FlowRule['key'] & {};
  /** How many keys are kept apart: 100,000 unless given. */
  maxKeys?: number | undefined;
  /** How many refusals within the interval ban a key, from 1. */
  count: number;
  /** The interval: 1000 ms unless given. */
  intervalMs?: number | undefined;
  /** For how many seconds the key is refused then. */
  banSec: number;
}

/**
 * A rules document, with Sentinel's names, as the Envoy filter and the Rust library read it. TypeScript takes the values of a JSON import
 * for any strings: pass them on `as RulesDocument`; the engine checks them.
 */
export interface RulesDocument {
  /** Limits, checked in order. */
  flowRules?: readonly FlowRule[] | undefined;
  /** Sentinel's limits on each value of a parameter. They are checked before `flowRules`. */
  paramFlowRules?: readonly ParamFlowRule[] | undefined;
  /** Sentinel's gateway rules. They are checked before `paramFlowRules`. */
  gatewayFlowRules?: readonly GatewayFlowRule[] | undefined;
  /** Circuit breakers. */
  degradeRules?: readonly DegradeRule[] | undefined;
  /** Limits on all inbound requests. */
  systemRules?: readonly SystemRule[] | undefined;
  /** Origins that may enter. */
  authorityRules?: readonly AuthorityRule[] | undefined;
  /** Bans on clients that are refused too often. */
  banRules?: readonly BanRule[] | undefined;
  /** The APIs that requests may belong to besides their resource. Callers find them and name them in `apis`: the engine sees no paths. */
  apiDefinitions?: readonly ApiDefinition[] | undefined;
  /** `shadow`: no rule refuses. */
  mode?: Mode | undefined;
  /** The settings of the Envoy filter: ignored here. */
  envoy?: unknown;
  /** The address of `leapgate/config.schema.json`, for editors: ignored here. */
  $schema?: string | undefined;
}

/** The settings of an engine beside its rules. */
export interface EngineSettings {
  /**
   * The clock, in milliseconds. `performance.now()` unless given, `Date.now()` in Workers; while a test fakes `Date`, the fake is followed.
   * A clock by `Date` is `() => Date.now()`: the function itself would stay the real one.
   */
  now?: (() => number) | undefined;
  /** How many requests may wait in `acquire` and `run` together: 1000 unless given; may be `Infinity`. Further ones reject: `ERR_LEAPGATE_FULL`. */
  maxWaiting?: number | undefined;
}

/** A value of a key part. A number is the same as its text. */
export type KeyValue = string | number | bigint;

/**
 * Values by the name of the part: `clientIp`, `header:x-api-key`, `query:user`, `cookie:sid`, `path`, `method`, `host`, `arg:0`,
 * `peer`, `jwtClaim:sub`, `jwtClaim:org/id@payload`, `metadata:namespace/key`, `typedMetadata:…`, `routeMetadata:…`, `filterState:name`.
 * Null if the request has no value; an array if it has several: it passes if each of them may pass. Parts that no rule of the
 * resource uses are ignored.
 */
export type KeyRecord = Readonly<Record<string, KeyValue | readonly KeyValue[] | null>>;

/**
 * What a request costs: a number of requests, or a whole number for each unit. Units that no rule of the resource counts are
 * ignored; what is undefined is not said.
 */
export type Costs = number | Readonly<Record<string, number | undefined>>;

/** The properties of a request. */
export interface RequestOptions {
  /** The key to limit: one value, an array in the order of the resource's key parts, or values by part. */
  key?: Key | null | readonly (KeyValue | null)[] | KeyRecord;
  /** The caller, for rules with `limitApp`. */
  origin?: string | undefined;
  /** The cost: 1 in each unit unless given. Under a rule with a `cost`, this is the estimate that the request holds. */
  cost?: Costs | undefined;
  /** Where the window is full, the request may borrow a pass from a later bucket, and waits for it less than 500 ms. */
  prioritized?: boolean | undefined;
  /** The entrance of the request, for rules with the strategy `chain` and for statistics. */
  context?: string | undefined;
  /** Whether the request comes from outside: system rules limit only inbound requests. */
  inbound?: boolean | undefined;
  /**
   * Whether limits leave the request alone, such as a health check: flow rules, system rules and bans neither refuse nor count it.
   * Circuit breakers and authority rules hold for it.
   */
  exempt?: boolean | undefined;
  /**
   * The names of the APIs that the request enters besides its resource: all admit it, or none is charged. Up to 16. A name that no
   * rule is for makes no difference. `key` has the parts of all of them.
   */
  apis?: readonly string[] | undefined;
}

/** The properties of a call. */
export interface EnterOptions extends RequestOptions {
  /** Whether the caller can wait where a rule requires it: see `waitMs`. Otherwise such a call is refused. */
  canWait?: boolean | undefined;
  /** The open call within which this call is made. */
  within?: Entry | undefined;
}

/** The properties of a call that may have to wait. */
export interface WaitOptions extends RequestOptions {
  /** The open call within which this call is made. */
  within?: Entry | undefined;
  /** Ends the wait: `acquire` or `run` rejects with the signal's reason, and what the request has reserved is released. */
  signal?: AbortSignal | undefined;
  /**
   * Of the requests that wait for one resource with one key, and for turns also at one cost, the highest priority is admitted
   * first; 0 unless given, finite. Within one priority it is first come, first served. None starves: after 7 requests in a row that
   * were admitted before one that had come earlier, the one that has waited longest is next. In Workers turns are not exchanged.
   */
  priority?: number | undefined;
}

/** The properties of a call that waits to be admitted. */
export interface AcquireOptions extends WaitOptions {
  /** The longest wait, in milliseconds; `Infinity` unless given. */
  maxWaitMs?: number | undefined;
}

/** The properties of a call that `run` makes. */
export interface RunOptions extends WaitOptions {
  /** Whether what the function has thrown counts as an error; everything does unless given. `run` rejects with it all the same. */
  isError?: ((error: unknown) => boolean) | undefined;
  /**
   * How long the function may take, in milliseconds; `Infinity` unless given. After that `run` rejects with `ERR_LEAPGATE_TIMEOUT`,
   * circuit breakers count an error, and the function's signal aborts. The call is in flight until the function ends.
   */
  timeoutMs?: number | undefined;
}

/** A change of a circuit breaker. */
export interface BreakerChange {
  /** The resource; null for all that share a state, since there are too many. */
  resource: string | null;
  /** The rule's id. */
  rule: string;
  from: BreakerState;
  to: BreakerState;
}

/** `closed`: calls pass. `open`: none does. `halfOpen`: probes do. */
export type BreakerState = 'closed' | 'open' | 'halfOpen';

/** A refusal. */
export interface Refusal {
  resource: string;
  /** What `limit` or `enter` has returned, or what is `result` of the error. */
  result: EngineResult;
}

/** What an engine tells listeners. */
export interface EngineEvents {
  /** A circuit breaker has changed its state. */
  breaker: BreakerChange;
  /** A request was refused for good: a refusal after which `acquire` goes on waiting is not told. */
  refused: Refusal;
}

/** How many calls are in flight, and how many requests wait. */
export interface EngineStats {
  /** Calls in flight, whatever they cost: admitted, and not ended. */
  concurrency: number;
  /** Requests that wait in `acquire` and `run`. */
  waiting: number;
}

/** What an engine knows of a resource. */
export interface ResourceStats extends EngineStats {
  /** Requests that passed in the last second, per second, and so on, as `engine.nodes.cluster(resource)` tells them; 0 if there were none. */
  passQps: number;
  blockQps: number;
  /** Calls that have ended, as Sentinel counts them: with an error or without. */
  successQps: number;
  exceptionQps: number;
  /** The average response time in the last second, in milliseconds. */
  avgRt: number;
  /** The items of `counters()` about rules for the resource: flow rules, circuit breakers, authority rules and bans. */
  rules: RuleCounters[];
  /** The states of its circuit breakers, in the order of the rules. An open one stays open until a request comes after its `timeWindow`. */
  breakers: { rule: string; state: BreakerState }[];
}

/** What `run` and `acquire` reject with when a call is refused. */
export interface BlockedError extends Error {
  code: 'ERR_LEAPGATE_BLOCKED';
  /** The refusal. */
  result: EngineResult;
}

/** The state of a rule. */
export interface EnginePolicy {
  /** The rule's id. */
  id: string;
  /** The rule's limit; of a rule with a key, the limit of this key. */
  limit: number;
  /** The whole passes left. */
  remaining: number;
  /** What the rule counts: `requests`, unless its `unit` says otherwise. */
  unit: string;
  /** The length of the window, in milliseconds; null for a limit on calls in flight. */
  windowMs: number | null;
  /** Milliseconds until quota comes back: a whole pass if none is left, else any part of it; 0 if none is used or if it is unknown. */
  resetMs: number;
}

/** The decision about a request. A plain object, yours to keep. */
export interface EngineResult {
  /** Whether the request passes. */
  success: boolean;
  /** The limit of `rule`; `Infinity` without a limit. */
  limit: number;
  /** The whole passes left, of the rule with the fewest; `Infinity` without a limit. */
  remaining: number;
  /** When to try again if refused, else when quota comes back: in epoch milliseconds, or in the time of the given `now`. */
  reset: number;
  /** 0 if the request passes; else the milliseconds until it would pass if no other came; `Infinity` if it never can. */
  retryAfterMs: number;
  /** The first rule that refuses, else the rule with the fewest passes left; null if the resource has no rule. */
  rule: string | null;
  /** The kind of the refusing rule, `api` if a request's resource and `apis` have too many rules together; null if the request passes. */
  cause: 'flow' | 'degrade' | 'system' | 'authority' | 'ban' | 'api' | null;
  /** The HTTP status of the refusal, which depends on the kind of rule; null if the request passes. */
  status: 429 | 503 | 403 | null;
  /** The state of each flow rule that is not for a particular origin or context. */
  policies: EnginePolicy[];
}

/** How a call ended. */
export interface Outcome {
  /** The error. Undefined, null and false mean success. */
  error?: unknown;
  /** What the call has cost, for rules with a `cost`: without it, the estimate that the call holds. */
  cost?: Costs | undefined;
  /** Whether the call turns out not to count: its charge is refunded to the windows, and it has no `cost`. */
  refund?: boolean | undefined;
  /**
   * Whether the client has left before the answer. Circuit breakers then count the call only if it was slow already. `refund`
   * overrides `unanswered`, and `unanswered` overrides `error`.
   */
  unanswered?: boolean | undefined;
}

/** A call in flight, or a refusal. End an admitted call once: with `exit`, or, if it never began, with `cancel`. */
export interface Entry extends EngineResult {
  /** How long the call has to wait before it begins, in milliseconds; 0 without `canWait`. */
  waitMs: number;
  /**
   * Ends the call. Does nothing if the call was refused or has ended. A call that is never ended ends some time after its entry has
   * been garbage-collected, where the runtime tells that: what it holds is settled at its estimate.
   */
  exit(outcome?: Outcome): void;
  /** Cancels the call, which has cost nothing if it is still waiting, else its estimate. If it is still waiting, its turn (unless a later one is taken) or its borrowed passes are released. */
  cancel(): void;
  /** The same as `exit()`. */
  [Symbol.dispose](): void;
}

/** Applies rules to requests. Engines share no windows. */
export class Engine {
  /** Throws an error with the code `ERR_LEAPGATE_RULES` if a rule is wrong. Reads neither clock nor randomness. */
  constructor(rules: RulesDocument, settings?: EngineSettings);
  /**
   * Decides about a request that ends at once; a request that would have to wait is refused. Under a rule with a `cost` it has cost
   * what `request.cost` says, else its estimate. Throws `ERR_LEAPGATE_OPEN` if a rule of the resource depends on when or how calls
   * end.
   */
  limit(resource: string, request?: RequestOptions): EngineResult;
  /** Decides about a call. If admitted, it is in flight until its `exit`. */
  enter(resource: string, request?: EnterOptions): Entry;
  /**
   * Calls `call` with an entry, first waiting if a rule requires it, and ends the entry with the outcome. If `call` throws or
   * rejects, the outcome is that error, which is rethrown. A refused call is not made: `run` rejects with a `BlockedError`.
   *
   * With `timeoutMs`, `call` gets a signal that aborts when the time is over or the request's signal aborts; else the request's
   * signal, if it has one.
   */
  run<T>(resource: string, call: (entry: Entry) => T | Promise<T>): Promise<T>;
  run<T>(resource: string, request: RunOptions & { timeoutMs: number }, call: (entry: Entry, signal: AbortSignal) => T | Promise<T>): Promise<T>;
  run<T>(resource: string, request: RunOptions, call: (entry: Entry, signal?: AbortSignal) => T | Promise<T>): Promise<T>;
  /**
   * Waits until the call is admitted: for its turn, for borrowed passes, or until other calls end. The caller ends the entry.
   *
   * Requests for one resource, and the same `apis`, with one key are admitted by their `priority`, and then in order of arrival; `enter`, `limit` and `run` do not join this queue.
   * Statistics count each retry of the first waiting request that is refused. Rejects with a `BlockedError` if the request can
   * never pass, or not within `maxWaitMs`: at once, if that is known.
   *
   * A request that waits for other calls to end sets no timer: their `exit` wakes it, also if it waits for what they hold. In Workers, where a request must not wake
   * another, each one retries by itself, at least every 50 ms.
   */
  acquire(resource: string, request?: AcquireOptions): Promise<Entry>;
  /**
   * Sets the load of the machine, for system rules with `highestSystemLoad` or `highestCpuUsage`: the load average of the last
   * minute (`os.loadavg()[0]`), and the use of the processors, from 0 to 1. A gauge that is not set is unknown and refuses nothing.
   */
  setGauges(gauges: { load?: number; cpu?: number }): void;
  /** The state of the flow rules of a resource. Charges nothing. */
  policies(resource: string, request?: Pick<RequestOptions, 'key' | 'apis'>): EnginePolicy[];
  /**
   * Replaces all rules, or throws as the constructor does and replaces none. A rule with the id and the geometry of a rule in
   * force keeps its counts; calls end on the rules under which they began.
   */
  replace(rules: RulesDocument): void;
  /**
   * Why rules in force do not do what they ask for, a sentence each. An engine has no store: a rule with `clusterMode` that asks for
   * one limit for all machines limits this process alone. `SharedLimiter` of `leapgate/shared` has a store. And a strict window whose
   * `intervalMs` has no divisor from 10 to 20 (100 without a `key`) has so few buckets that much less than the count may pass.
   */
  readonly warnings: string[];
  /**
   * How many calls are in flight, and how many requests wait, of all resources. With a resource, all that is known of it: its rates,
   * what its rules have decided, and the states of its breakers. Changes nothing, and makes nothing for a resource that is not known.
   */
  stats(): EngineStats;
  stats(resource: string): ResourceStats;
  /**
   * Calls `listener` at each event, in order, within the call that causes it. Returns a function that removes it. What a listener
   * throws or rejects with is a warning (`LEAPGATE_LISTENER`), once for each listener.
   */
  on<E extends keyof EngineEvents>(event: E, listener: (what: EngineEvents[E]) => unknown): () => void;
  /**
   * Resolves when no call is in flight and no request waits. New requests are admitted as before: stop their source first, as in
   * `server.close()`.
   */
  drain(): Promise<void>;
  /** The statistics of all resources, contexts and origins. */
  readonly nodes: NodeTree;
  /** What each rule has decided since it came into force, ordered by id; a rule for each resource or origin has an item for each. */
  counters(): RuleCounters[];
  /** The `n` hottest keys of each rule with keys, hottest first; 10 unless given. Reads all keys, at some nanoseconds each. */
  top(n?: number): HotKey[];
  /** The engine's clock. */
  now(): number;
  /** Frees the memory. The engine cannot be used afterwards; calls in flight may still end. */
  free(): void;
  [Symbol.dispose](): void;
}
