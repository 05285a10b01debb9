// What engines of all kinds do with requests.

import * as core from './leapgate_bg.js';
import * as wasm from './core.js';
import { checkCosts, putCosts } from './costs.js';
import { Entry, InFlight, NO_ENTRY, numberOf, numberOfKey, registryOf, valuesOf } from './entry.js';
import { INSPECT, beginAt, checkClock, checkNumber, checkObject, checkOptions, fault, inspected, wrong } from './errors.js';
import { Events } from './events.js';
import * as layout from './layout.js';
import { flattenTexts } from './tree.js';
import { EXAMPLE, REQUEST, Waiting } from './waiting.js';

// The longest name. Clients may choose names: memory must stay bounded.
const MAX_NAME = 1024;

// How many resources have a number at a time, with or without APIs.
const MAX_RESOURCES = 4096;

// Frees engines that were garbage-collected.
const engines = registryOf(({ number, generation }) => {
  if (generation === wasm.generation) core.engine_free(number);
});

// The options of `enter`.
const ENTER = [...REQUEST, 'canWait', 'within'];

// How many requests may wait for an engine, by default.
const MAX_WAITING = 1000;

// What a kind of engine needs of this one: its number in the module, which `ready` makes and `numberOf` only looks up; its events;
// and a function to be called when a rule may admit more than before. `reopened` is called with the number of an engine that has
// been made anew, since the module has been started again.
export let insideOf;

// Whether an object is an engine.
export let isEngine;

export class BaseEngine {
  // The bundler shortens names.
  static name = 'BaseEngine';
  #at = { number: -1, generation: 0 };
  #kind;
  #tree;
  // For the console.
  #about;
  #reopened;
  #now;
  #resources = new Map();
  // Resources together with APIs, by the names of all in JSON.
  #combined = new Map();
  #maxWaiting;
  #events = new Events();
  #inFlight = new InFlight(this.#events);

  // `kind` is what kinds of engines differ in: `flat` writes rules into bytes as the module reads them; `namesOf` returns the names of
  // a resource and of APIs, undefined if there are none.
  constructor(rules, settings = {}, kind) {
    try {
      this.#kind = kind;
      this.#make(rules, settings);
    } catch (error) {
      throw beginAt(new.target, error);
    }
  }

  #make(rules, settings) {
    this.#tree = treeOf(rules, this.#kind.flat);
    checkOptions('settings', settings, ['now', 'maxWaiting'], '`{ now: () => Date.now() }`, or leave it out');
    const { now, maxWaiting = MAX_WAITING } = settings;
    if (now !== undefined && typeof now !== 'function') {
      throw wrong('settings.now', now, 'is not a function; use one that returns milliseconds, or leave it out');
    }
    this.#now = now;
    if (maxWaiting !== Infinity) checkNumber('settings.maxWaiting', maxWaiting, Number.MAX_SAFE_INTEGER, true);
    this.#maxWaiting = maxWaiting;
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
    this.#reopened?.(at.number);
    return at.number;
  }

  now() {
    if (this.#now === undefined) return wasm.defaultClock();
    return checkClock('settings.now()', this.#now());
  }

  replace(rules) {
    const number = this.#ready();
    const tree = treeOf(rules, this.#kind.flat);
    const wrongs = this.#guarded(() => core.engine_replace(number, wasm.put(tree)));
    if (wrongs < 0) throw fault('ERR_LEAPGATE_RULES', wasm.readText(-wrongs), RangeError);
    this.#tree = tree;
    this.#about = aboutOf(rules);
    this.#forget();
    this.#inFlight.waiting?.replaced();
  }

  limit(resource, request) {
    const number = this.#ready();
    const known = this.#resource(number, resource, request?.apis);
    if (known.isOpen) {
      throw wrong('resource', resource, 'has rules that look at how calls end; use `enter` or `run`', Error, 'ERR_LEAPGATE_OPEN');
    }
    const now = this.now();
    const decided = this.#decide(number, known, request, REQUEST, layout.ENDS, NO_ENTRY, now);
    return this.#told(resource, this.#answer({}, decided !== layout.REFUSED, known, now));
  }

  // `isChecked`: `run` and `acquire` have checked the names of the options, and tell of refusals.
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
    const entry = new Entry(this, this.#inFlight, decided, known, request);
    this.#answer(entry, decided >= 0, known, now);
    if (decided >= 0) entry.waitMs = wasm.results()[layout.DECISION_WAIT];
    this.#events.look();
    return isChecked ? entry : this.#told(resource, entry);
  }

  #told(resource, result) {
    if (!result.success) this.#events.tell('refused', { resource, result });
    return result;
  }

  run(resource, request, call) {
    return this.#waiters().run(resource, request, call);
  }

  acquire(resource, request) {
    return this.#waiters().acquire(resource, request);
  }

  #waiters() {
    const refused = (resource, result) => this.#told(resource, result);
    return (this.#inFlight.waiting ??= new Waiting(this, this.#maxWaiting, this.#inFlight, refused));
  }

  policies(resource, request) {
    const number = this.#ready();
    const known = this.#resource(number, resource, request?.apis);
    this.#decide(number, known, request, ENTER, layout.LOOKS, NO_ENTRY, this.now());
    return this.#policies(known);
  }

  // The number, key parts, units and rules of a resource, or of a resource together with APIs.
  #resource(number, name, apis) {
    const names = apis === undefined ? undefined : this.#kind.namesOf(checkResource(name), apis);
    if (names === undefined) {
      return this.#resources.get(name) ?? this.#register(number, this.#resources, checkResource(name), [name]);
    }
    const key = JSON.stringify(names);
    return this.#combined.get(key) ?? this.#register(number, this.#combined, key, [...new Set(names)]);
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

  // How many calls are in flight, and how many requests wait: of all resources, or of one, as far as it is known here.
  stats(resource) {
    this.#ready();
    const { count, waiting } = this.#inFlight;
    if (resource === undefined) return { concurrency: count, waiting: waiting?.count ?? 0 };
    checkResource(resource);
    return { waiting: waiting?.countOf(resource) ?? 0 };
  }

  on(event, listener) {
    this.#ready();
    return this.#events.on(event, listener);
  }

  drain() {
    return this.#inFlight.drained();
  }

  free() {
    const at = this.#at;
    if (at.generation === wasm.generation) core.engine_free(at.number);
    at.generation = -1;
    engines?.unregister(at);
    this.#inFlight.waiting?.end(freed());
  }

  [INSPECT](_, options, inspect) {
    return inspected('Engine', this.#about, options, inspect);
  }

  static {
    isEngine = (it) => #at in it;
    insideOf = (engine, reopened) => {
      engine.#reopened = reopened;
      const at = engine.#at;
      return {
        ready: () => engine.#ready(),
        numberOf: () => (at.generation === wasm.generation ? at.number : undefined),
        events: engine.#events,
        replaced: () => engine.#inFlight.waiting?.replaced(),
      };
    };
    if (Symbol.dispose) this.prototype[Symbol.dispose] = this.prototype.free;
  }
}

const freed = () => fault('ERR_LEAPGATE_FREED', 'engine: it has been freed; make another one, or free it later');

function treeOf(rules, flat) {
  if (typeof rules !== 'object' || rules === null) {
    const cure = "use a rules document, as in `{ flowRules: [{ resource: 'login', count: 5 }] }`";
    throw wrong('rules', rules, `is not an object; ${cure}`, TypeError, 'ERR_LEAPGATE_RULES');
  }
  try {
    return flat('document', rules);
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

export function checkName(place, name) {
  if (typeof name !== 'string') throw wrong(place, name, 'is not a string; use one');
  if (name.length <= MAX_NAME) return name;
  throw wrong(place, name, `has ${name.length} characters; use at most ${MAX_NAME}`, RangeError);
}

function checkResource(name) {
  if (checkName('resource', name) !== '') return name;
  throw wrong('resource', name, 'is not a valid resource; use a name, as rules do', RangeError);
}
