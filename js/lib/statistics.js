// The statistics alone: rings of buckets, sums and rates over them, nodes. The module counts; this file has the names.

import * as core from './leapgate_bg.js';
import * as wasm from './core.js';
import { beginAt, bounded, checkNumber, checkObject, checkOptions, fault, wrong } from './errors.js';
import * as layout from './layout.js';
import { flatten, flattenTexts } from './tree.js';

const EVENTS = ['pass', 'block', 'exception', 'success', 'rt', 'occupiedPass'];
const [PASS, BLOCK, EXCEPTION, SUCCESS, RT, OCCUPIED_PASS] = EVENTS.keys();

// The largest count per call: sums stay within the exact integers of a double.
const MAX_N = 2 ** 32 - 1;
const MAX_COUNT = 2 ** 53;
const MAX_RT_MS = 2 ** 53 - 1;

function guarded(call) {
  try {
    return call();
  } catch (error) {
    throw wasm.crashed(error);
  }
}

const checkN = (place, n) => checkNumber(place, n, MAX_N, true);
// The module rounds fractions down.
const checkRt = (rt) => checkNumber('rt', rt, MAX_RT_MS, false);

function checkTime(place, time, code) {
  if (typeof time === 'number' && time >= 0) return time;
  const Kind = typeof time === 'number' ? RangeError : TypeError;
  throw wrong(place, time, 'is not a valid time; use milliseconds, a number of at least 0', Kind, code);
}

function checkEvent(event) {
  const index = EVENTS.indexOf(event);
  if (index >= 0) return index;
  throw wrong('event', event, `is not a valid event; use one of ${EVENTS.join(', ')}`);
}

function checkPredicate(predicate) {
  if (typeof predicate === 'function') return predicate;
  throw wrong('predicate', predicate, 'is not a function; use one that takes the start of a bucket');
}

const MAYBE_NONE = ['shortestRt', 'maxRt'];
const orNull = (rt) => (rt < 0 ? null : rt);

// The latest rows of the module, `doubles` in all, as objects with these names.
function rows(doubles, names) {
  const values = wasm.doubles(core.stats_rows(), doubles);
  const rows = [];
  for (let at = 0; at < doubles; at += names.length) {
    const row = {};
    names.forEach((name, i) => (row[name] = values[at + i]));
    rows.push(row);
  }
  return rows;
}

// Frees objects that were garbage-collected.
const registry =
  typeof FinalizationRegistry === 'function'
    ? new FinalizationRegistry((at) => {
        if (at.generation === wasm.generation) core.stats_free(at.number);
      })
    : undefined;

// Calls the module with the number of an object.
let call;
// The same, with a time at the end: `now`, or else the time of its clock.
let callAt;

// An object with a number in the module: `open` returns it, and is called again for the next instance, after a trap.
class Held {
  #at = { number: -1, generation: 0 };
  #what;
  #open;
  #clock;

  constructor(what, open, clock, number = open()) {
    this.#at.number = number;
    this.#at.generation = wasm.generation;
    this.#what = what;
    this.#open = open;
    this.#clock = clock;
    registry?.register(this, this.#at, this.#at);
  }

  #number() {
    const at = this.#at;
    if (at.generation === wasm.generation) return at.number;
    if (at.generation < 0) {
      throw fault('ERR_LEAPGATE_FREED', `${this.#what}: it has been freed; make another one, or free it later`);
    }
    at.number = this.#open();
    at.generation = wasm.generation;
    return at.number;
  }

  static #free() {
    const at = this.#at;
    if (at.generation === wasm.generation) core.stats_free(at.number);
    at.generation = -1;
    registry?.unregister(at);
  }

  // Makes the objects of a class freeable: they belong to the user, not to an engine.
  static isOwned(Class) {
    const free = { value: Held.#free, writable: true, configurable: true };
    Object.defineProperty(Class.prototype, 'free', free);
    if (Symbol.dispose) Object.defineProperty(Class.prototype, Symbol.dispose, free);
  }

  static {
    call = (held, what, ...args) => {
      const number = held.#number();
      return guarded(() => what(number, ...args));
    };
    callAt = (held, now, what, ...args) => {
      const number = held.#number();
      const time = now === undefined ? held.#clock() : checkTime('now', now);
      return guarded(() => what(number, ...args, time));
    };
  }
}

const EXAMPLE = '`{ intervalMs: 1000, sampleCount: 2 }`';

// The arguments that a constructor with options passes on. `make` gets the number of bytes of the options.
function made(what, options, make, example = EXAMPLE) {
  const { now, ...rest } = checkObject('options', options, example);
  if (now !== undefined && typeof now !== 'function') {
    throw wrong('options.now', now, 'is not a function; use one that returns milliseconds, or leave it out');
  }
  const tree = flatten('options', rest);
  const open = () => opened(() => make(wasm.put(tree)));
  const clock = now === undefined ? wasm.defaultClock : () => checkTime('options.now()', now(), 'ERR_LEAPGATE_CLOCK');
  return [what, open, clock];
}

// The number of the object that `make` makes.
function opened(make) {
  wasm.ready();
  const number = guarded(make);
  // An error message is never empty.
  if (number < 0) throw fault('ERR_LEAPGATE_OPTIONS', wasm.readText(-number), RangeError);
  return number;
}

function add(held, event, n, now) {
  callAt(held, now, core.stats_add, event, checkN('n', n));
}

// Adds the methods that record in the current bucket.
const recording = (Base) =>
  class extends Base {
    addPass(n = 1, now) {
      add(this, PASS, n, now);
    }

    addBlock(n = 1, now) {
      add(this, BLOCK, n, now);
    }

    addException(n = 1, now) {
      add(this, EXCEPTION, n, now);
    }

    addSuccess(n = 1, now) {
      add(this, SUCCESS, n, now);
    }

    addOccupiedPass(n = 1, now) {
      add(this, OCCUPIED_PASS, n, now);
    }

    addRt(rt, now) {
      callAt(this, now, core.stats_add_rt, checkRt(rt));
    }

    updateConcurrency(inFlight, now) {
      callAt(this, now, core.stats_update_concurrency, checkN('inFlight', inFlight));
    }
  };

// Adds the geometry of the window.
const windowed = (Base) =>
  class extends Base {
    get intervalMs() {
      return this.#window().intervalMs;
    }

    get sampleCount() {
      return this.#window().sampleCount;
    }

    get windowLengthMs() {
      const { intervalMs, sampleCount } = this.#window();
      return intervalMs / sampleCount;
    }

    #window() {
      return rows(call(this, core.stats_window), layout.WINDOW)[0];
    }
  };

export class LeapArray extends recording(windowed(Held)) {
  constructor(options) {
    try {
      super(...made('array', options, core.array_new));
    } catch (error) {
      throw beginAt(LeapArray, error);
    }
  }

  #wraps(doubles) {
    const wraps = rows(doubles, layout.BUCKET);
    const windowLength = this.windowLengthMs;
    return wraps.map(({ start, ...value }) => {
      for (const name of MAYBE_NONE) value[name] = orNull(value[name]);
      return { windowStart: start, windowLength, value };
    });
  }

  #wrap(which, now) {
    return this.#wraps(callAt(this, now, core.array_bucket, which))[0] ?? null;
  }

  currentWindow(now) {
    return this.#wrap(layout.RING_CURRENT, now);
  }

  previousWindow(now) {
    return this.#wrap(layout.RING_PREVIOUS, now);
  }

  validHead(now) {
    return this.#wrap(layout.RING_VALID_HEAD, now);
  }

  windowValue(at) {
    const wrap = this.#wraps(call(this, core.array_bucket, layout.RING_OF, checkTime('at', at)));
    return wrap[0]?.value ?? null;
  }

  list(now) {
    return this.#wraps(callAt(this, now, core.array_list, false));
  }

  listAll() {
    return this.#wraps(call(this, core.array_list, true, 0));
  }

  values(now) {
    return this.list(now).map(({ value }) => value);
  }

  valuesConditional(predicate, now) {
    checkPredicate(predicate);
    const chosen = this.list(now).filter(({ windowStart }) => predicate(windowStart));
    return chosen.map(({ value }) => value);
  }

  isWindowDeprecated(wrap, now) {
    if (typeof wrap?.windowStart !== 'number') {
      throw wrong('wrap', wrap, 'is not a bucket of an array; use what `list` or `currentWindow` returns');
    }
    return !this.list(now).some(({ windowStart }) => windowStart === wrap.windowStart);
  }

  calculateTimeIdx(at) {
    return call(this, core.array_index, checkTime('at', at));
  }

  calculateWindowStart(at) {
    return call(this, core.array_start, checkTime('at', at));
  }
}

// The statistics of a window.
class Metric extends windowed(Held) {
  sum(event, now) {
    return callAt(this, now, core.metric_sum, checkEvent(event));
  }

  average(event, now) {
    return callAt(this, now, core.metric_average, checkEvent(event));
  }

  windowSum(event, at) {
    return call(this, core.metric_window_sum, checkEvent(event), checkTime('at', at));
  }

  pass(now) {
    return callAt(this, now, core.metric_sum, PASS);
  }

  block(now) {
    return callAt(this, now, core.metric_sum, BLOCK);
  }

  exception(now) {
    return callAt(this, now, core.metric_sum, EXCEPTION);
  }

  success(now) {
    return callAt(this, now, core.metric_sum, SUCCESS);
  }

  rt(now) {
    return callAt(this, now, core.metric_sum, RT);
  }

  occupiedPass(now) {
    return callAt(this, now, core.metric_sum, OCCUPIED_PASS);
  }

  previousWindowPass(now) {
    return callAt(this, now, core.metric_previous, PASS);
  }

  previousWindowBlock(now) {
    return callAt(this, now, core.metric_previous, BLOCK);
  }

  maxSuccess(now) {
    return callAt(this, now, core.metric_extreme, layout.EXTREME_MAX_SUCCESS);
  }

  minRt(now) {
    return callAt(this, now, core.metric_extreme, layout.EXTREME_MIN_RT);
  }

  shortestRt(now) {
    return orNull(callAt(this, now, core.metric_extreme, layout.EXTREME_SHORTEST_RT));
  }

  maxRt(now) {
    return orNull(callAt(this, now, core.metric_extreme, layout.EXTREME_MAX_RT));
  }

  maxConcurrency(now) {
    return callAt(this, now, core.metric_extreme, layout.EXTREME_MAX_CONCURRENCY);
  }

  details(now) {
    return rows(callAt(this, now, core.metric_details), layout.DETAIL);
  }

  detailsOnCondition(predicate, now) {
    checkPredicate(predicate);
    return this.details(now).filter(({ timestamp }) => predicate(timestamp));
  }
}

export class ArrayMetric extends recording(Metric) {
  #clock;

  constructor(options) {
    try {
      const [what, open, clock] = made('metric', options, core.metric_new);
      super(what, open, clock);
      this.#clock = clock;
    } catch (error) {
      throw beginAt(ArrayMetric, error);
    }
  }

  touch(now) {
    callAt(this, now, core.stats_touch);
  }

  addWaiting(at, n) {
    call(this, core.metric_add_waiting, checkTime('at', at), checkN('n', n));
  }

  waiting(now) {
    return callAt(this, now, core.metric_waiting);
  }

  view(options) {
    const tree = flatten('options', checkObject('options', options, EXAMPLE));
    const open = () => opened(() => call(this, core.metric_view, wasm.put(tree)));
    return new Metric('view', open, this.#clock);
  }
}

// The statistics of a resource.
class Node extends Held {
  static {
    for (const [i, name] of layout.VALUE.entries()) {
      const value = function (now) {
        return callAt(this, now, core.node_value, i);
      };
      Object.defineProperty(this.prototype, name, { value, writable: true, configurable: true });
    }
  }
}

// A node with records of its own.
class RecordedNode extends Node {
  #clock;
  #second;
  #minute;

  constructor(what, open, clock, number) {
    super(what, open, clock, number);
    this.#clock = clock;
  }

  #window(isMinute) {
    const open = () => call(this, core.node_window, isMinute);
    return new Metric(isMinute ? 'minute' : 'second', open, this.#clock);
  }

  second() {
    return (this.#second ??= this.#window(false));
  }

  minute() {
    return (this.#minute ??= this.#window(true));
  }

  metrics(now) {
    return rows(callAt(this, now, core.node_metrics, false), layout.DETAIL);
  }

  rawMetricsInMin(predicate, now) {
    checkPredicate(predicate);
    const seconds = rows(callAt(this, now, core.node_metrics, true), layout.DETAIL);
    return seconds.filter(({ timestamp }) => predicate(timestamp));
  }
}

export class StatisticNode extends RecordedNode {
  constructor(options = {}) {
    try {
      super(...made('node', options, core.node_new, "`{ untouched: 'lost' }`"));
    } catch (error) {
      throw beginAt(StatisticNode, error);
    }
  }

  addPassRequest(n = 1, now) {
    callAt(this, now, core.node_record, layout.RECORD_PASS_REQUEST, checkN('n', n), 0);
  }

  increaseBlockQps(n = 1, now) {
    callAt(this, now, core.node_record, layout.RECORD_BLOCK_QPS, checkN('n', n), 0);
  }

  increaseExceptionQps(n = 1, now) {
    callAt(this, now, core.node_record, layout.RECORD_EXCEPTION_QPS, checkN('n', n), 0);
  }

  addRtAndSuccess(rt, n = 1, now) {
    callAt(this, now, core.node_record, layout.RECORD_RT_AND_SUCCESS, checkRt(rt), checkN('n', n));
  }

  increaseThreadNum() {
    call(this, core.node_record, layout.RECORD_THREAD_MORE, 0, 0, 0);
  }

  decreaseThreadNum() {
    call(this, core.node_record, layout.RECORD_THREAD_LESS, 0, 0, 0);
  }

  addOccupiedPass(n = 1, now) {
    callAt(this, now, core.node_record, layout.RECORD_OCCUPIED_PASS, checkN('n', n), 0);
  }

  addWaitingRequest(at, n = 1) {
    call(this, core.node_record, layout.RECORD_WAITING_REQUEST, checkTime('at', at), checkN('n', n), 0);
  }

  tryOccupyNext(acquire, threshold, now) {
    checkN('acquire', acquire);
    checkNumber('threshold', threshold, MAX_COUNT, false);
    return callAt(this, now, core.node_try_occupy_next, acquire, threshold);
  }

  begin(n = 1, now) {
    callAt(this, now, core.node_record, layout.RECORD_BEGIN, checkN('n', n), 0);
  }

  complete(rt, outcome = {}, now) {
    const { n = 1, failed = false } = checkOptions('outcome', outcome, ['n', 'failed'], '`{ failed: true }`');
    if (typeof failed !== 'boolean') throw wrong('outcome.failed', failed, 'is not a boolean; use `true` or `false`');
    callAt(this, now, core.node_record, failed ? layout.RECORD_COMPLETE_FAILED : layout.RECORD_COMPLETE, checkRt(rt), checkN('outcome.n', n));
  }

  touch(now) {
    callAt(this, now, core.stats_touch);
  }
}

Object.entries({ LeapArray, ArrayMetric, StatisticNode }).forEach(([name, Class]) => {
  Held.isOwned(Class);
  bounded(Class, name);
});

const namesBelow = (node, kind) => wasm.readTexts(call(node, core.node_names, kind));

function checkName(place, name) {
  if (typeof name === 'string') return name;
  throw wrong(place, name, 'is not a string; use one');
}

// The nodes of an engine. Each is looked up once, and is the same object from then on.
export class NodeTree {
  #engine;
  #clock;
  #known = new Map();
  #generation = 0;

  // `engine` returns the engine's number, and `clock` its time.
  constructor(engine, clock) {
    this.#engine = engine;
    this.#clock = clock;
  }

  #find(Class, kind, ...names) {
    const engine = this.#engine();
    if (this.#generation !== wasm.generation) {
      this.#known.clear();
      this.#generation = wasm.generation;
    }
    const place = JSON.stringify([kind, ...names]);
    const known = this.#known.get(place);
    if (known !== undefined) return known;
    const texts = flattenTexts(names);
    const look = (engine) => guarded(() => core.tree_node(engine, kind, wasm.put(texts)));
    const number = look(engine);
    if (number < 0) return null;
    const open = () => {
      const number = look(this.#engine());
      if (number >= 0) return number;
      throw fault(
        'ERR_LEAPGATE_CRASHED',
        'node: nothing has been counted here since the wasm module was started again; ask `engine.nodes` for it',
      );
    };
    const node = new Class(this, names, open, this.#clock, number);
    this.#known.set(place, node);
    return node;
  }

  get root() {
    return this.#find(EntranceNode, layout.NODE_ROOT);
  }

  get inbound() {
    return this.#find(ClusterNode, layout.NODE_INBOUND);
  }

  entrance(context) {
    return this.#find(EntranceNode, layout.NODE_ENTRANCE, checkName('context', context));
  }

  defaultNode(context, resource) {
    return this.#find(DefaultNode, layout.NODE_DEFAULT, checkName('context', context), checkName('resource', resource));
  }

  cluster(resource) {
    return this.#find(ClusterNode, layout.NODE_CLUSTER, checkName('resource', resource));
  }

  clusters() {
    const engine = this.#engine();
    const names = wasm.readTexts(guarded(() => core.tree_resources(engine)));
    return names.sort(byName).map((name) => this.cluster(name));
  }

  static origin(tree, resource, origin) {
    return tree.#find(OriginNode, layout.NODE_ORIGIN, resource, origin);
  }
}

class EntranceNode extends Node {
  #tree;
  #isRoot;

  constructor(tree, [name], open, clock, number) {
    super('node', open, clock, number);
    this.#tree = tree;
    this.#isRoot = name === undefined;
    this.name = name ?? 'machine-root';
  }

  entrances() {
    return namesBelow(this, layout.BELOW_ENTRANCES).map((name) => this.#tree.entrance(name));
  }

  children() {
    if (this.#isRoot) return [];
    return namesBelow(this, layout.BELOW_RESOURCES).map((resource) => this.#tree.defaultNode(this.name, resource));
  }
}

class DefaultNode extends RecordedNode {
  #tree;

  constructor(tree, [context, resource], open, clock, number) {
    super('node', open, clock, number);
    this.#tree = tree;
    this.context = context;
    this.resource = resource;
  }

  cluster() {
    return this.#tree.cluster(this.resource);
  }

  children() {
    return namesBelow(this, layout.BELOW_RESOURCES).map((resource) => this.#tree.defaultNode(this.context, resource));
  }
}

class ClusterNode extends RecordedNode {
  #tree;

  constructor(tree, [resource], open, clock, number) {
    super('node', open, clock, number);
    this.#tree = tree;
    this.resource = resource ?? '__total_inbound_traffic__';
  }

  origin(origin) {
    return NodeTree.origin(this.#tree, this.resource, checkName('origin', origin));
  }

  origins() {
    return namesBelow(this, layout.BELOW_ORIGINS).sort(byName).map((origin) => this.origin(origin));
  }
}

class OriginNode extends RecordedNode {
  constructor(tree, [, origin], open, clock, number) {
    super('node', open, clock, number);
    this.origin = origin;
  }
}

Object.entries({ Metric, NodeTree, EntranceNode, DefaultNode, ClusterNode, OriginNode }).forEach(([name, Class]) => bounded(Class, name));

const byName = (one, other) => (one < other ? -1 : one > other ? 1 : 0);

// The rules of the engine with this number. At a time `now`, also how full their limits are, and the states of circuit breakers.
export function reports(engine, now) {
  const names = wasm.readTexts(guarded(() => core.engine_counters(engine, now)));
  const counted = rows((names.length / 5) * layout.COUNTERS.length, layout.COUNTERS);
  return counted.map((row, i) => {
    const [rule, resource, origin, kind, target] = names.slice(5 * i, 5 * i + 5);
    return { rule, resource, origin, kind, target, ...row };
  });
}

// The counters of the rules of the engine with this number.
export function counters(engine) {
  const all = new Map();
  reports(engine, -1).forEach(({ rule, resource, origin, kind, target, passed, waited, shared, defaulted, debt, inFlight, part, ...refused }) => {
    const place = JSON.stringify([rule, passed < 0, resource, origin]);
    const row = { rule, resource: resource || null, origin: origin || null, passed: orNull(passed), waited: orNull(waited), ...refused };
    Object.assign(row, { shared: orNull(shared), defaulted: orNull(defaulted), debt: orNull(debt) });
    const same = all.get(place);
    if (same === undefined) all.set(place, row);
    else layout.COUNTERS.forEach((count) => row[count] > 0 && (same[count] += row[count]));
  });
  return [...all].sort(([one], [other]) => byName(one, other)).map(([, row]) => row);
}

// The `n` hottest keys of each rule of the engine with this number.
export function top(engine, n, now) {
  const names = wasm.readTexts(guarded(() => core.engine_top(engine, n, now)));
  const hot = rows(names.length, layout.HOT_KEY).map(({ amount, isNamed }, i) => {
    return { rule: names[2 * i], key: isNamed ? names[2 * i + 1] : null, amount };
  });
  return hot.sort((one, other) => byName(one.rule, other.rule));
}
