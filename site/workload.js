// Requests to a service behind an engine, in virtual time. Pure: the package's `Engine` is an argument, so that Node and the page run the
// same.
import { random } from './traces.js';
import { World } from './world.js';

// What is counted together, and how many of these are kept.
export const BIN_MS = 500;
const BINS = 1200;

// Bursts come every so often, and take so long. A ramp leads from nothing to twice the rate and back. In each period of the last the
// service has an outage, from one time to another.
const BURSTS = { everyMs: 4000, takeMs: 200 };
const RAMP_MS = 40_000;
const OUTAGES = { everyMs: 30_000, from: 10_000, to: 20_000 };

export const SHAPES = ['random', 'steady', 'bursts', 'ramp'];
export const FAILURES = ['always', 'outages'];

export const isOutage = (now) => now % OUTAGES.everyMs >= OUTAGES.from && now % OUTAGES.everyMs < OUTAGES.to;

// When requests come, in whole milliseconds; so many a second.
export function* arrivals(shape, rate, next) {
  const gapMs = 1000 / rate;
  if (shape === 'bursts') {
    const count = Math.max(1, Math.round((rate * BURSTS.everyMs) / 1000));
    for (let from = 500; ; from += BURSTS.everyMs) for (let i = 0; i < count; i++) yield Math.floor(from + (i * BURSTS.takeMs) / count);
  }
  for (let at = 0; ; ) {
    if (shape === 'steady') at += gapMs;
    else if (shape === 'random') at -= Math.log(1 - next()) * gapMs;
    else {
      const part = (at % RAMP_MS) / RAMP_MS;
      const factor = part < 0.5 ? 4 * part : 4 - 4 * part;
      at += Math.min(gapMs / Math.max(factor, 0.02), 1000);
    }
    yield Math.floor(at);
  }
}

// The resources that a document has rules for, without the one for all others.
export function resourcesOf(rules) {
  const lists = Object.values(rules ?? {}).filter(Array.isArray);
  const names = lists.flat().map((rule) => rule?.resource);
  return [...new Set(names.filter((name) => typeof name === 'string' && name !== '*'))];
}

// A client's address stands for each part of a key, whatever rules have.
const addressOf = (client) => `10.0.0.${client + 1}`;
const keyOf = (client) => {
  const address = addressOf(client);
  return new Proxy({ clientIp: address }, { get: () => address });
};

export class Workload {
  sent = 0;
  passed = 0;
  // Of those that passed, how many have waited, and the longest wait.
  waited = 0;
  longestMs = 0;
  refused = 0;
  failed = 0;
  // Calls of the service; the engine counts those that wait for their turn, too.
  inFlight = 0;
  // By the rule's id, or by the sentence of the engine about a request that it does not take, as where too many wait.
  byRule = new Map();
  // By client: `{ name, passed, refused }`.
  clients;
  // Counts by time, the oldest first: `{ at, sent, passed, refused, waiting, inFlight }`.
  bins = [];
  // By circuit breaker: `{ rule, changes: [{ at, state }] }`.
  breakers;
  #engine;
  #world;
  #settings;
  #isOver = false;
  #bin;
  #arrivals;
  #clientRandom;
  #serviceRandom;

  // Settings: `resource`; `rate`, a second, and `shape` of the requests; of how many `clients`; how long they wait at most, `waitMs`; the
  // service's mean `latencyMs`; how many of its calls fail, `failPercent`, and when, `failures`; and the `seed`. Throws what the engine
  // throws for rules that are wrong.
  constructor(Engine, rules, settings) {
    const { resource, shape, rate, clients, seed } = settings;
    // The module draws the seed of its hashes once, at the first key, which is no part of a run.
    new World(0);
    const first = new Engine({ flowRules: [{ resource: 'any', count: 1, key: ['path'] }] }, { now: () => 0 });
    first.limit('any', { key: '/' });
    first.free();
    // The one before it goes on until this one is made: while rules are wrong, the rules before them stay.
    const world = new World(seed);
    this.#engine = new Engine(rules, { now: () => world.now });
    this.#world = world;
    this.#settings = settings;
    this.clients = Array.from({ length: clients }, (_, i) => ({ name: addressOf(i), passed: 0, refused: 0 }));
    this.#arrivals = arrivals(shape, rate, random(seed));
    this.#clientRandom = random(seed + 1);
    this.#serviceRandom = random(seed + 2);
    this.breakers = this.#engine.stats(resource).breakers.map(({ rule, state }) => ({ rule, changes: [{ at: 0, state }] }));
    this.#engine.on('breaker', ({ rule, resource: name, from, to }) => {
      if (name !== resource) return;
      let breaker = this.breakers.find((one) => one.rule === rule);
      // A rule for all resources has none before the first call.
      if (breaker === undefined) this.breakers.push((breaker = { rule, changes: [{ at: 0, state: from }] }));
      breaker.changes.push({ at: world.now, state: to });
    });
    this.#begin(0);
    this.#plan();
  }

  until(end) {
    return this.#world.until(end);
  }

  get warnings() {
    return this.#engine.warnings;
  }

  get waiting() {
    return this.#engine.stats().waiting;
  }

  // The numbers that the page shows.
  numbers() {
    const { sent, passed, waited, longestMs, refused, failed, waiting, inFlight } = this;
    const breakers = this.breakers.map(({ rule, changes }) => ({ rule, state: changes.at(-1).state, changes: changes.length - 1 }));
    return { sent, passed, waited, longestMs, refused, failed, waiting, inFlight, byRule: Object.fromEntries(this.byRule), breakers };
  }

  free() {
    this.#isOver = true;
    this.#world.end();
    this.#engine.free();
  }

  #plan() {
    const { value } = this.#arrivals.next();
    this.#world.after(value - this.#world.now, () => {
      this.#send();
      this.#plan();
    });
  }

  #begin(at) {
    this.#bin = { at, sent: 0, passed: 0, refused: 0, waiting: this.waiting, inFlight: this.inFlight };
    this.bins.push(this.#bin);
    if (this.bins.length > BINS) this.bins.shift();
    for (const breaker of this.breakers) if (breaker.changes[1]?.at < this.bins[0].at) breaker.changes.shift();
    this.#world.after(BIN_MS, () => this.#begin(at + BIN_MS));
  }

  #send() {
    const { resource, waitMs, clients } = this.#settings;
    // The first clients send the most.
    const client = this.clients[Math.floor(clients * this.#clientRandom() ** 2)];
    const request = { key: keyOf(this.clients.indexOf(client)), inbound: true };
    const at = this.#world.now;
    this.sent += 1;
    this.#bin.sent += 1;
    const refuse = (error) => this.#isOver || this.#refuse(error.result?.rule ?? error.message, client);
    if (waitMs > 0) {
      this.#engine.acquire(resource, { ...request, maxWaitMs: waitMs }).then((entry) => this.#isOver || this.#serve(entry, client, at), refuse);
      return;
    }
    try {
      const entry = this.#engine.enter(resource, request);
      if (entry.success) this.#serve(entry, client, at);
      else this.#refuse(entry.rule ?? entry.cause, client);
    } catch (error) {
      refuse(error);
    }
  }

  #serve(entry, client, at) {
    const { latencyMs, failPercent, failures } = this.#settings;
    const { now } = this.#world;
    this.passed += 1;
    this.inFlight += 1;
    this.#bin.passed += 1;
    client.passed += 1;
    if (now > at) this.waited += 1;
    this.longestMs = Math.max(this.longestMs, Math.round(now - at));
    // From half the mean to one and a half of it.
    const takes = Math.round(latencyMs * (0.5 + this.#serviceRandom()));
    const isBad = this.#serviceRandom() * 100 < failPercent && (failures === 'always' || isOutage(now));
    this.#world.after(takes, () => {
      this.inFlight -= 1;
      if (isBad) this.failed += 1;
      entry.exit(isBad ? { error: true } : undefined);
    });
  }

  #refuse(rule, client) {
    this.refused += 1;
    this.#bin.refused += 1;
    client.refused += 1;
    this.byRule.set(rule, (this.byRule.get(rule) ?? 0) + 1);
  }
}
