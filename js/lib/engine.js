import * as core from './leapgate_bg.js';
import * as wasm from './core.js';
import { checkCosts, putCosts } from './costs.js';
import { INSPECT, beginAt, bounded, checkNumber, checkObject, checkOptions, fault, inspected, listed, wrong } from './errors.js';
import * as layout from './layout.js';
import { NodeTree, counters, top } from './statistics.js';
import { flatten, flattenLists, flattenTexts } from './tree.js';
import { EXAMPLE, REQUEST, Waiting } from './waiting.js';

// No entry has this number.
const NO_ENTRY = 2 ** 32 - 1;

// The longest name. Clients may choose names: memory must stay bounded.
const MAX_NAME = 1024;

// How many APIs a request may name.
const MAX_APIS = 16;

// The most keys that `top` returns.
const MAX_TOP = 10_000;

// How many resources have a number at a time, with or without APIs.
const MAX_RESOURCES = 4096;

// Frees engines and entries that were garbage-collected.
const registryOf = (drop) =>
  typeof FinalizationRegistry === 'function'
    ? new FinalizationRegistry((at) => {
        if (at.generation === wasm.generation) drop(at.number);
        if (at.names !== undefined) notifyWaiting(at.engine, at.names);
      })
    : undefined;
const engines = registryOf((number) => core.engine_free(number));
const entries = registryOf((number) => core.engine_exit(number, layout.DROP, 0));

// The options of `enter`.
const ENTER = [...REQUEST, 'canWait', 'within'];

// How many requests may wait for an engine, by default.
const MAX_WAITING = 1000;

// Notifies the requests that wait for an engine that a call has ended.
let notifyWaiting;

export class Engine {
  #at = { number: -1, generation: 0 };
  #tree;
  // For the console.
  #about;
  #now;
  #resources = new Map();
  // Resources together with APIs, by the names of all in JSON.
  #combined = new Map();
  #maxWaiting;
  #gauges;
  // Set by the first `run` or `acquire`.
  #waiting;

  constructor(rules, settings = {}) {
    try {
      this.#make(rules, settings);
    } catch (error) {
      throw beginAt(Engine, error);
    }
  }

  #make(rules, settings) {
    this.#tree = treeOf(rules);
    checkOptions('settings', settings, ['now', 'maxWaiting'], '`{ now: () => Date.now() }`, or leave it out');
    const { now, maxWaiting = MAX_WAITING } = settings;
    if (now !== undefined && typeof now !== 'function') {
      throw wrong('settings.now', now, 'is not a function; use one that returns milliseconds, or leave it out');
    }
    this.#now = now;
    this.#maxWaiting = checkNumber('settings.maxWaiting', maxWaiting, Number.MAX_SAFE_INTEGER, true);
    wasm.ready();
    this.#open();
    this.#about = aboutOf(rules);
    engines?.register(this, this.#at, this.#at);
  }

  // Makes the engine in the module.
  #open() {
    const number = this.#guarded(() => core.engine_new(wasm.put(this.#tree)));
    // An error message is never empty.
    if (number < 0) throw fault('ERR_LEAPGATE_RULES', wasm.readText(-number), RangeError);
    this.#at.number = number;
    this.#at.generation = wasm.generation;
    this.#forget();
  }

  // The engine's number in the module.
  #ready() {
    const at = this.#at;
    if (at.generation === wasm.generation) return at.number;
    if (at.generation < 0) {
      throw freed();
    }
    // The counts of an earlier instance are lost: nothing passes until its windows would have passed.
    const now = this.now();
    this.#open();
    core.engine_close(at.number, now);
    if (this.#gauges !== undefined) core.engine_gauges(at.number, ...this.#gauges);
    return at.number;
  }

  now() {
    if (this.#now === undefined) return wasm.defaultClock();
    const now = this.#now();
    if (typeof now === 'number' && now >= 0) return now;
    throw wrong('settings.now()', now, 'is not a valid time; return milliseconds, a number of at least 0', TypeError, 'ERR_LEAPGATE_CLOCK');
  }

  replace(rules) {
    const number = this.#ready();
    const tree = treeOf(rules);
    const wrongs = this.#guarded(() => core.engine_replace(number, wasm.put(tree)));
    if (wrongs < 0) throw fault('ERR_LEAPGATE_RULES', wasm.readText(-wrongs), RangeError);
    this.#tree = tree;
    this.#about = aboutOf(rules);
    this.#forget();
    this.#waiting?.replaced();
  }

  setGauges(gauges) {
    const number = this.#ready();
    const { load, cpu } = checkOptions('gauges', gauges, ['load', 'cpu'], '`{ load: os.loadavg()[0] }`');
    const known = (name, value) => (value === undefined ? -1 : checkNumber(`gauges.${name}`, value, Number.MAX_VALUE, false));
    this.#gauges = [known('load', load), known('cpu', cpu)];
    this.#guarded(() => core.engine_gauges(number, ...this.#gauges));
    this.#waiting?.replaced();
  }

  limit(resource, request) {
    const number = this.#ready();
    const known = this.#resource(number, resource, request?.apis);
    if (known.isOpen) {
      throw wrong('resource', resource, 'has rules that look at how calls end; use `enter` or `run`', Error, 'ERR_LEAPGATE_OPEN');
    }
    const now = this.now();
    const decided = this.#decide(number, known, request, REQUEST, layout.ENDS, NO_ENTRY, now);
    return this.#answer({}, decided !== layout.REFUSED, known, now);
  }

  // `isChecked`: `run` and `acquire` have checked the names of the options.
  enter(resource, request, isChecked = false) {
    const number = this.#ready();
    const known = this.#resource(number, resource, request?.apis);
    let flags = 0;
    let within = NO_ENTRY;
    if (request !== undefined) {
      checkObject('request', request, EXAMPLE);
      if (request.canWait !== undefined && checkBoolean('request.canWait', request.canWait)) flags = layout.CAN_WAIT;
      if (request.within !== undefined) within = numberOf(request.within, this);
    }
    const now = this.now();
    const decided = this.#decide(number, known, request, isChecked ? undefined : ENTER, flags, within, now);
    const entry = new Entry(this, decided, known, request);
    this.#answer(entry, decided >= 0, known, now);
    if (decided >= 0) entry.waitMs = wasm.results()[layout.DECISION_WAIT];
    return entry;
  }

  run(resource, request, call) {
    return this.#waiters().run(resource, request, call);
  }

  acquire(resource, request) {
    return this.#waiters().acquire(resource, request);
  }

  #waiters() {
    return (this.#waiting ??= new Waiting(this, this.#maxWaiting, isKeptOutByHolds));
  }

  policies(resource, request) {
    const number = this.#ready();
    const known = this.#resource(number, resource, request?.apis);
    this.#decide(number, known, request, ENTER, layout.LOOKS, NO_ENTRY, this.now());
    return this.#policies(known);
  }

  // The number, key parts, units and rules of a resource, or of a resource together with APIs.
  #resource(number, name, apis) {
    if (apis !== undefined) return this.#withApis(number, name, apis);
    const known = this.#resources.get(name);
    if (known !== undefined) return known;
    return this.#register(number, this.#resources, checkResource(name), [name]);
  }

  #withApis(number, name, apis) {
    if (checkApis(apis).length === 0) return this.#resource(number, name);
    const key = JSON.stringify([checkResource(name), ...apis]);
    return this.#combined.get(key) ?? this.#register(number, this.#combined, key, [...new Set([name, ...apis])]);
  }

  #forget() {
    this.#resources.clear();
    this.#combined.clear();
  }

  #register(number, among, key, names) {
    const count = () => this.#resources.size + this.#combined.size;
    if (count() === MAX_RESOURCES) this.#forget();
    const place = count();
    const known = { names, number: place, isOpen: false, holds: false, parts: [], units: [], rules: [] };
    this.#guarded(() => {
      const about = core.engine_resource(number, place, wasm.put(flattenTexts(names)));
      known.isOpen = (about & layout.IS_OPEN) !== 0;
      known.holds = (about & layout.HOLDS) !== 0;
      known.units = wasm.readTexts(core.engine_units(number, place));
      for (let i = 0, bytes; (bytes = core.engine_part(number, place, i)) >= 0; i++) known.parts.push(wasm.readText(bytes));
    });
    among.set(key, known);
    return known;
  }

  // Decides. Returns the number of the entry, or a negative one.
  #decide(number, known, request, names, flags, within, now) {
    if (request === undefined) request = {};
    else if (names !== undefined) checkOptions('request', request, names, EXAMPLE);
    const { key, origin, cost, prioritized, context, inbound, exempt } = request;
    const costs = cost === undefined ? undefined : checkCosts('request.cost', cost, known.units);
    if (prioritized !== undefined && checkBoolean('request.prioritized', prioritized)) flags |= layout.PRIORITIZED;
    if (inbound !== undefined && checkBoolean('request.inbound', inbound)) flags |= layout.INBOUND;
    if (exempt !== undefined && checkBoolean('request.exempt', exempt)) flags |= layout.EXEMPT;
    if (origin !== undefined) checkName('request.origin', origin);
    if (context !== undefined) checkName('request.context', context);
    const { parts } = known;
    const values = parts.length > 0 ? valuesOf(parts, key) : undefined;
    let [slot, originBytes, contextBytes] = [0, 0, 0];
    // Errors below come from the module, not from the caller's arguments.
    try {
      if (values !== undefined) {
        slot = numberOfKey(parts, values);
        flags |= layout.KEYED;
      }
      // The module has read the key from the same place before.
      if (origin !== undefined) originBytes = wasm.putTextAt(origin, 0);
      if (context !== undefined) contextBytes = wasm.putTextAt(context, originBytes);
      if (costs !== undefined) {
        putCosts(costs, known.units);
        flags |= layout.COSTED;
      }
      return core.engine_enter(number, known.number, slot, flags, within, originBytes, contextBytes, now);
    } catch (error) {
      throw wasm.crashed(error);
    }
  }

  // The policies in the results of the latest decision.
  #policies(known) {
    const many = wasm.results()[layout.DECISION_RULES];
    if (known.rules.length < many) this.#guarded(() => this.#learn(known, many));
    const results = wasm.results();
    const policies = new Array(results[layout.DECISION_POLICIES]);
    for (let i = 0; i < policies.length; i++) {
      const at = layout.DECISION_LEN + layout.POLICY_LEN * i;
      const { id, unit, windowMs } = known.rules[results[at + layout.POLICY_RULE]];
      const [limit, remaining] = [results[at + layout.POLICY_COUNT], results[at + layout.POLICY_REMAINING]];
      policies[i] = { id, limit, remaining, unit, windowMs, resetMs: results[at + layout.POLICY_RESET] };
    }
    return policies;
  }

  // Fills `result` from the results of the latest decision.
  #answer(result, success, known, now) {
    const policies = this.#policies(known);
    const results = wasm.results();
    let scarcest = policies[0];
    for (const policy of policies) if (policy.remaining < scarcest.remaining) scarcest = policy;
    const epoch = this.#now === undefined ? Date.now() : now;
    result.success = success;
    if (success) {
      result.limit = scarcest?.limit ?? Infinity;
      result.remaining = scarcest?.remaining ?? Infinity;
      result.reset = Math.ceil(epoch + (scarcest?.resetMs ?? 0));
      result.retryAfterMs = 0;
      result.rule = scarcest?.id ?? null;
      result.cause = null;
      result.status = null;
    } else {
      const refuses = results[layout.DECISION_REFUSING];
      const limit = results[layout.DECISION_COUNT];
      const retry = results[layout.DECISION_RETRY_AFTER];
      const rule = known.rules[refuses];
      const ruleAt = layout.DECISION_LEN + layout.POLICY_RULE;
      const refusing = policies.find((_, i) => results[ruleAt + layout.POLICY_LEN * i] === refuses);
      result.limit = refusing?.limit ?? (limit < 0 ? (scarcest?.limit ?? Infinity) : limit);
      result.remaining = refusing === undefined ? 0 : scarcest.remaining;
      result.retryAfterMs = retry < 0 ? Infinity : retry;
      result.reset = Math.ceil(epoch + result.retryAfterMs);
      result.rule = rule?.id ?? null;
      result.cause = rule?.cause ?? null;
      result.status = rule?.status ?? 429;
    }
    result.policies = policies;
    return result;
  }

  // Fetches the rules of a resource that decisions have named, up to `many`.
  #learn(known, many) {
    while (known.rules.length < many) {
      const bytes = core.engine_rule(this.#at.number, known.number, known.rules.length);
      const [id, cause, unit] = wasm.readTexts(bytes);
      const info = wasm.results().subarray(-layout.RULE_LEN);
      const [windowMs, status] = [info[layout.RULE_WINDOW], info[layout.RULE_STATUS]];
      known.rules.push({ id, unit, windowMs: windowMs < 0 ? null : windowMs, cause, status });
    }
  }

  #guarded(call) {
    try {
      return call();
    } catch (error) {
      throw wasm.crashed(error);
    }
  }

  #nodes;

  get nodes() {
    return (this.#nodes ??= new NodeTree(() => this.#ready(), () => this.now()));
  }

  get warnings() {
    const number = this.#ready();
    return this.#guarded(() => wasm.readTexts(core.engine_warnings(number)));
  }

  counters() {
    return counters(this.#ready());
  }

  top(n = 10) {
    const number = this.#ready();
    checkNumber('n', n, MAX_TOP, true);
    return top(number, n, this.now());
  }

  free() {
    const at = this.#at;
    if (at.generation === wasm.generation) core.engine_free(at.number);
    at.generation = -1;
    engines?.unregister(at);
    this.#waiting?.end(freed());
  }

  [INSPECT](_, options, inspect) {
    return inspected('Engine', this.#about, options, inspect);
  }

  static {
    notifyWaiting = (engine, ...ended) => engine.#waiting?.ended(...ended);
    bounded(this, 'Engine');
    if (Symbol.dispose) this.prototype[Symbol.dispose] = this.prototype.free;
  }
}

// The number of an open entry of an engine.
let numberOf;

// When a request may try again that only the holds of other requests keep out: their end is unknown.
const HOLD_RETRY_MS = 1000;

// Whether a refused request may pass earlier than its `retryAfterMs` says, because a hold ends.
let isKeptOutByHolds;

// A call in flight, or a refusal.
class Entry {
  #engine;
  #at;
  #known;
  #key;
  #request;
  waitMs = 0;

  constructor(engine, number, known, request) {
    this.#engine = engine;
    this.#known = known;
    if (number < 0) return;
    this.#request = request;
    // A copy: the caller may change the original.
    if (known.parts.length > 0) this.#key = [...valuesOf(known.parts, request?.key)];
    this.#at = { number, generation: wasm.generation, engine, names: known.names };
    entries?.register(this, this.#at, this.#at);
  }

  exit(outcome = {}) {
    checkOptions('outcome', outcome, ['error', 'cost', 'refund', 'unanswered'], '`{ error }`, or leave it out');
    const { error, cost, refund, unanswered } = outcome;
    const { units } = this.#known;
    const costs = cost === undefined ? undefined : checkCosts('outcome.cost', cost, units);
    const failed = error !== undefined && error !== null && error !== false;
    if (refund) return this.#end((number, now) => this.#refund(number, failed, now), true);
    let how = failed ? layout.EXIT_WITH_ERROR : layout.EXIT;
    if (unanswered) how = layout.UNANSWERED;
    this.#end((number, now) => {
      if (costs !== undefined) {
        putCosts(costs, units);
        core.engine_settle(number);
      }
      return core.engine_exit(number, how, now);
    });
  }

  cancel() {
    this.#end((number, now) => core.engine_exit(number, layout.CANCEL, now), true);
  }

  [INSPECT](_, options, inspect) {
    return inspected('Entry', { ...this }, options, inspect);
  }

  #refund(number, failed, now) {
    const { parts } = this.#known;
    if (parts.length === 0) core.engine_refund(number, 0, 0, failed, now);
    else core.engine_refund(number, numberOfKey(parts, this.#key), layout.KEYED, failed, now);
  }

  // `how` returns whether the call held an estimate of its cost.
  #end(how, hasGivenBack = false) {
    const at = this.#at;
    if (at === undefined) return;
    const now = this.#engine.now();
    this.#at = undefined;
    entries?.unregister(at);
    let held = false;
    try {
      if (at.generation === wasm.generation) held = how(at.number, now);
    } catch (error) {
      throw wasm.crashed(error);
    } finally {
      notifyWaiting(this.#engine, this.#known.names, this.#request, hasGivenBack || held);
    }
  }

  static {
    numberOf = (entry, engine) => {
      if (typeof entry !== 'object' || entry === null || !(#at in entry) || entry.#engine !== engine) {
        throw wrong('request.within', entry, 'is not an entry of this engine; use what its `enter` returned');
      }
      const at = entry.#at;
      if (at === undefined) throw wrong('request.within', entry, 'is not open; use one that was let in and has not ended');
      return at.generation === wasm.generation ? at.number : NO_ENTRY;
    };
    isKeptOutByHolds = (entry) => entry.#known.holds && entry.retryAfterMs === HOLD_RETRY_MS;
    bounded(this, 'Entry');
    if (Symbol.dispose) {
      this.prototype[Symbol.dispose] = function () {
        this.exit();
      };
    }
  }
}

const freed = () => fault('ERR_LEAPGATE_FREED', 'engine: it has been freed; make another one, or free it later');

function treeOf(rules) {
  if (typeof rules !== 'object' || rules === null) {
    const cure = "use a rules document, as in `{ flowRules: [{ resource: 'login', count: 5 }] }`";
    throw wrong('rules', rules, `is not an object; ${cure}`, TypeError, 'ERR_LEAPGATE_RULES');
  }
  try {
    return flatten('document', rules);
  } catch (error) {
    throw Object.assign(error, { code: 'ERR_LEAPGATE_RULES' });
  }
}

// For the console: the resources of the rules, by list. A rule without a resource is shown itself.
const aboutOf = (rules) =>
  Object.fromEntries(
    Object.entries(rules)
      .filter(([, list]) => Array.isArray(list))
      .map(([kind, list]) => [kind, list.map((rule) => rule.resource ?? rule)]),
  );

function checkBoolean(place, value) {
  if (typeof value === 'boolean') return value;
  throw wrong(place, value, 'is neither true nor false; use one of them, or leave it out');
}

function checkName(place, name) {
  if (typeof name !== 'string') throw wrong(place, name, 'is not a string; use one');
  if (name.length <= MAX_NAME) return name;
  throw wrong(place, name, `has ${name.length} characters; use at most ${MAX_NAME}`, RangeError);
}

function checkResource(name) {
  if (checkName('resource', name) !== '') return name;
  throw wrong('resource', name, 'is not a valid resource; use a name, as rules do', RangeError);
}

function checkApis(apis) {
  const cure = `use an array of at most ${MAX_APIS} names`;
  if (!Array.isArray(apis)) throw wrong('request.apis', apis, `is not a list of APIs; ${cure}`);
  if (apis.length > MAX_APIS) throw wrong('request.apis', apis, `has ${apis.length} names; ${cure}`, RangeError);
  for (let i = 0; i < apis.length; i++) checkName(`request.apis[${i}]`, apis[i]);
  return apis;
}

const keyFault = (place, value, why, Kind = TypeError) => wrong(place, value, why, Kind, 'ERR_LEAPGATE_KEY');

// The key's value for each part.
function valuesOf(parts, key) {
  let values = [key];
  if (key === null) values = parts.map(() => null);
  else if (Array.isArray(key)) values = key;
  else if (typeof key === 'object') values = parts.map((part) => key[part]);
  if (values.length > parts.length) {
    throw keyFault('request.key', key, `has ${values.length} values; use one for each of ${listed(parts)}`);
  }
  const missing = parts.findIndex((_, i) => values[i] === undefined);
  if (missing < 0) return values;
  throw keyFault('request.key', key, `does not say \`${parts[missing]}\`; add it, or null if there is none`);
}

// The number of the key with these values, or 0: then the key is in the module's buffer.
function numberOfKey(parts, values) {
  if (values.every(wasm.isValue)) return wasm.numberOf(values.length === 1 ? values[0] : values);
  const lists = values.map((value, i) => {
    if (wasm.isValue(value)) return [String(value)];
    if (value === null) return [];
    if (Array.isArray(value) && value.every(wasm.isValue)) return value.map(String);
    throw keyFault(
      `request.key['${parts[i]}']`,
      value,
      'is not a valid value; use a string, a number, a bigint, several of these in an array, or null',
    );
  });
  const bytes = flattenLists(lists);
  const most = 3 * wasm.MAX_KEY;
  if (bytes.length > most) {
    throw keyFault('request.key', values, `has ${bytes.length} bytes; use at most ${most}, or a hash of it`, RangeError);
  }
  wasm.seed();
  core.key_lists(wasm.put(bytes));
  return 0;
}
