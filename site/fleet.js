// Ten nodes that share one limit, their store, and the ways between them, in virtual time. Pure: the package's `SharedLimiter` and
// `MemoryStore` are arguments, so that Node and the page run the same.
import { Worst } from './contest.js';
import { random } from './traces.js';
import { World, cancel } from './world.js';

export const NODES = 10;
export const SPREADS = ['even', 'one'];

// All requests share one key.
const KEY = [];

// What is plugged in and out, and when: `4:off:3 9.5:on:3 12:off:store`, in seconds.
const ACT = /^(\d{1,4}(?:\.\d{1,3})?):(on|off):(store|10|[1-9])$/;
export const MOST_ACTS = 100;

// Reads acts: `{ at, isOn, what }`, where `what` is a node's index, or 'store'. Throws one sentence.
export function readActs(text) {
  const words = text.split(/\s+/).filter((word) => word !== '');
  if (words.length > MOST_ACTS) throw new Error(`There are ${words.length} acts; use at most ${MOST_ACTS}.`);
  const acts = words.map((word) => {
    const [, seconds, how, what] = ACT.exec(word) ?? [];
    if (seconds === undefined) throw new Error(`“${word.slice(0, 20)}” is not an act; use seconds, on or off, and a node or the store, as in 4:off:3.`);
    return { at: Math.round(seconds * 1000), isOn: how === 'on', what: what === 'store' ? what : what - 1 };
  });
  return acts.sort((one, other) => one.at - other.at);
}

export const writeActs = (acts) => acts.map(({ at, isOn, what }) => `${at / 1000}:${isOn ? 'on' : 'off'}:${what === 'store' ? what : what + 1}`).join(' ');

export class Fleet {
  sent = 0;
  passed = 0;
  refused = 0;
  // What passed over all nodes, in any interval of a window's length.
  worst;
  // Each has `limiter`, undefined while it is unplugged; what has `passed` and was `refused`; how many requests `wait` for the store; and
  // what it has passed in the last window, `recent`.
  nodes;
  isStoreOn = true;
  #modules;
  #world;
  #settings;
  #store;
  // The timers of acts that have not happened.
  #planned = new Set();
  #arrivals;
  #ways;
  // Of limiters that were unplugged.
  #before = { asks: 0, granted: 0, lost: 0 };

  // Settings: `limit`, `windowMs` and `whenDown` of the limiters; `load`, in percent of the limit; `spread`, over all nodes or half of it to
  // one; `latencyMs`, there and back, and `lossPercent` of messages; `acts`; `seed`.
  constructor(modules, settings) {
    this.#modules = modules;
    this.#settings = settings;
    // The module draws the seed of its hashes once, which is no part of a run.
    this.#world = new World(0);
    this.#limiterOf({}).stats();
    this.#world = new World(settings.seed);
    this.#store = new modules.MemoryStore();
    this.#arrivals = random(settings.seed);
    this.#ways = random(settings.seed + 1);
    this.worst = new Worst(settings.windowMs);
    this.nodes = Array.from({ length: NODES }, () => ({ limiter: undefined, passed: 0, refused: 0, waiting: 0, recent: new Worst(settings.windowMs) }));
    for (const node of this.nodes) node.limiter = this.#limiterOf(node);
    for (const act of settings.acts) this.#schedule(act);
    this.#plan();
  }

  until(end) {
    return this.#world.until(end);
  }

  // Plugs something in or out, now, and returns the act. It happens half a millisecond later: all else happens in whole milliseconds,
  // so that it comes between the same events when a link plays it again.
  act(isOn, what) {
    const act = { at: Math.floor(this.#world.now), isOn, what };
    this.#schedule(act);
    this.#world.until(act.at + 0.5);
    return act;
  }

  // Forgets the acts that have not happened.
  forget() {
    for (const timer of this.#planned) cancel(timer);
  }

  // Of all limiters so far: the calls to the store, those without an answer, and the permits that were granted; and those that are out.
  totals() {
    const totals = { ...this.#before, permits: 0 };
    for (const { limiter } of this.nodes) if (limiter !== undefined) add(totals, limiter.stats());
    return totals;
  }

  // The numbers that the page shows.
  numbers() {
    const { sent, passed, refused, isStoreOn, worst } = this;
    const nodes = this.nodes.map(({ limiter, passed, refused, waiting }) => ({ isOn: limiter !== undefined, passed, refused, waiting }));
    return { sent, passed, refused, worst: worst.most, isStoreOn, ...this.totals(), nodes };
  }

  free() {
    this.#world.end();
    this.nodes = [];
  }

  #limiterOf(node) {
    const { limit, windowMs, whenDown } = this.#settings;
    const { SharedLimiter } = this.#modules;
    const limiter = new SharedLimiter({ id: 'fleet', limit, windowMs, whenDown, store: { lease: (key, request) => this.#lease(node, limiter, key, request) } });
    return limiter;
  }

  // A message to the store, and its answer: each may be lost, and is, while one of the two is unplugged.
  #lease(node, limiter, key, request) {
    const { latencyMs, lossPercent } = this.#settings;
    const isOpen = () => this.isStoreOn && node.limiter === limiter;
    return new Promise((resolve) => {
      const travel = (then) => {
        const ms = Math.max(1, Math.round((latencyMs / 2) * (0.5 + this.#ways())));
        const isLost = this.#ways() * 100 < lossPercent;
        this.#world.after(ms, () => isOpen() && !isLost && then());
      };
      travel(() => {
        const answer = this.#store.lease(key, request);
        travel(() => resolve(answer));
      });
    });
  }

  #schedule({ at, isOn, what }) {
    const timer = this.#world.after(at + 0.5 - this.#world.now, () => {
      this.#planned.delete(timer);
      if (what === 'store') this.isStoreOn = isOn;
      else if (isOn !== (this.nodes[what].limiter !== undefined)) this.#plug(this.nodes[what], isOn);
    });
    this.#planned.add(timer);
  }

  // A node that is unplugged is gone, and so is what it knows; plugged in again it is another one.
  #plug(node, isOn) {
    if (isOn) {
      node.limiter = this.#limiterOf(node);
      return;
    }
    const { limiter } = node;
    add(this.#before, limiter.stats());
    node.limiter = undefined;
    node.refused += node.waiting;
    this.refused += node.waiting;
    node.waiting = 0;
    // What it says to the store is lost.
    limiter.close();
  }

  #plan() {
    const { limit, windowMs, load } = this.#settings;
    const gapMs = windowMs / ((limit * load) / 100);
    let at = 0;
    const next = () => {
      at -= Math.log(1 - this.#arrivals()) * gapMs;
      this.#world.after(Math.floor(at) - this.#world.now, () => {
        this.#send();
        next();
      });
    };
    next();
  }

  // A request comes to one of the nodes that are there.
  #send() {
    this.sent += 1;
    const alive = this.nodes.filter(({ limiter }) => limiter !== undefined);
    const toFirst = this.#arrivals() < 0.5 && this.#settings.spread === 'one';
    const node = toFirst ? alive[0] : alive[Math.floor(this.#arrivals() * alive.length)];
    if (node === undefined) {
      this.refused += 1;
      return;
    }
    const { limiter } = node;
    node.waiting += 1;
    limiter.limit(KEY).then(({ success }) => {
      // It went with its node.
      if (node.limiter !== limiter) return;
      node.waiting -= 1;
      const { now } = this.#world;
      const counts = success ? 'passed' : 'refused';
      node[counts] += 1;
      this[counts] += 1;
      if (!success) return;
      this.worst.add(now);
      node.recent.add(now);
    });
  }
}

function add(totals, stats) {
  for (const name of Object.keys(totals)) totals[name] += stats[name];
}
