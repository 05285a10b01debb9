// Requests that wait for an engine: `acquire` until it is admitted, `run` where a rule requires it. Requests for one resource, and
// the same APIs, with one key form a queue, of which only the first retries: after its `retryAfterMs`, or when a call ends.

import { isKeptOutByHolds } from './entry.js';
import { beginAt, checkNumber, checkOptions, fault, faultAt, wrong } from './errors.js';
import { isIsolated } from './isolated.js';
import { Line } from './line.js';
import { runWithin } from './running.js';
import { after, nothing, onAbort } from './timers.js';

// The `retryAfterMs` of a refusal that may end at any moment.
const ANY_MOMENT_MS = 1;

// A refusal that may end at any moment is retried with pauses that double, up to this.
const MAX_PAUSE_MS = 50;

// A request that retries by itself is taken for gone after it has been silent for so long, in several checks: in a busy process it
// may be late once.
const [MAX_SILENCE_MS, MAX_SILENCES] = [500, 3];

// So many of the requests that retry by themselves check for their turn as often as the first one.
const NEXT = 16;

// A timer may fire early by less than this.
const EARLY_MS = 2;

// The options of all requests, of `run`, and of `acquire`.
export const REQUEST = ['key', 'origin', 'cost', 'prioritized', 'context', 'inbound', 'exempt', 'apis'];
const ACQUIRE = [...REQUEST, 'within', 'signal', 'priority', 'maxWaitMs'];
const RUN = [...REQUEST, 'within', 'signal', 'priority', 'isError', 'timeoutMs'];
export const EXAMPLE = '`{ cost: 2 }`, or leave it out';

function refused(call, resource, result) {
  const { rule, retryAfterMs } = result;
  const why = rule === null ? 'nothing is let in' : `\`${rule}\` refuses`;
  const cure = retryAfterMs === Infinity ? 'it never lets this request pass' : `try again in ${retryAfterMs} ms`;
  return Object.assign(faultAt(call, 'ERR_LEAPGATE_BLOCKED', `${resource}: ${why}; ${cure}`), { result });
}

function checkSignal(signal) {
  if (signal === undefined) return;
  if (typeof signal?.aborted !== 'boolean' || typeof signal.addEventListener !== 'function')
    throw wrong('request.signal', signal, 'is not an AbortSignal; use that of an AbortController, or leave it out');
  if (signal.aborted) throw signal.reason;
}

// Returns `ms`, which may be Infinity.
function checkMs(place, ms) {
  return ms === Infinity ? ms : checkNumber(place, ms, Number.MAX_VALUE, false);
}

function checkPriority(priority) {
  if (Number.isFinite(priority)) return priority;
  const Kind = typeof priority === 'number' ? RangeError : TypeError;
  throw wrong('request.priority', priority, 'is not a valid priority; use a number, a higher one to be admitted earlier', Kind);
}

// Whether the waiter is among the first `count` of the waiters.
function isAmong(count, waiter, waiters) {
  let i = 0;
  for (const other of waiters) {
    if (other === waiter) return true;
    if (++i === count) return false;
  }
  return false;
}

// The name of the queue of a request: requests with the same key and the same rules share one.
function nameOf(resource, { key, origin, context, prioritized, inbound, exempt, apis = [] } = {}) {
  const text = (value) => (Array.isArray(value) ? value.map(String) : String(value));
  const isRecord = typeof key === 'object' && key !== null && !Array.isArray(key);
  const parts = isRecord ? Object.entries(key).map(([part, value]) => [part, text(value)]) : text(key);
  if (isRecord) parts.sort(([a], [b]) => (a < b ? -1 : 1));
  const flags = [prioritized, inbound, exempt].map((flag) => flag === true);
  return JSON.stringify([resource, text(apis), isRecord, parts, text(origin), text(context), ...flags]);
}

export class Waiting {
  // How many requests wait, for any reason, in all and by resource.
  count = 0;
  #counts = new Map();
  #engine;
  #most;
  #inFlight;
  #tellRefused;
  // The queues of refused requests, by resource and each API, and then by name. A queue has `names`, of its resource and APIs;
  // `waiters`, a line; the latest `refusal` of its first waiter;
  // `at`, when the first waiter retries, Infinity until a call ends; and `cancel`, which cancels that retry.
  #queues = new Map();
  // Admitted requests that wait for a turn, by name: requests that are alike exchange turns. `waiters`, a line, and as many `turns`.
  #turns = new Map();
  #isShared;
  #isAsking = false;
  #cancelRound;

  // `tellRefused` is called with each refusal that a request ends with.
  constructor(engine, most, inFlight, tellRefused) {
    this.#engine = engine;
    this.#most = most;
    this.#inFlight = inFlight;
    this.#tellRefused = tellRefused;
    this.#isShared = isIsolated();
  }

  countOf(resource) {
    return this.#counts.get(resource) ?? 0;
  }

  async run(resource, request, call) {
    if (typeof request === 'function' && call === undefined) [request, call] = [{}, request];
    const { run } = this.#engine;
    let entry;
    let turn;
    let options;
    try {
      if (typeof call !== 'function') throw wrong('fn', call, 'is not a function; use the one that is to be called');
      const { signal, priority = 0, isError, timeoutMs = Infinity, ...rest } = checkOptions('request', request, RUN, EXAMPLE);
      checkSignal(signal);
      checkPriority(priority);
      if (isError !== undefined && typeof isError !== 'function') {
        throw wrong('request.isError', isError, 'is not a function; use one that takes what was thrown, or leave it out');
      }
      options = { resource, isError, timeoutMs: checkMs('request.timeoutMs', timeoutMs), signal };
      entry = this.#engine.enter(resource, { ...rest, canWait: true }, true);
      if (entry.success && entry.waitMs > 0) {
        turn = new Promise((resolve, fail) => {
          const reject = (error) => fail(beginAt(run, error));
          this.#takeTurn({ resource, request: rest, signal, priority, until: Infinity, resolve, reject }, entry);
        });
      }
    } catch (error) {
      throw beginAt(run, error);
    }
    if (!entry.success) {
      this.#tellRefused(resource, entry);
      throw refused(run, resource, entry);
    }
    if (turn !== undefined) entry = await turn;
    return runWithin(entry, call, options, run);
  }

  acquire(resource, request = {}) {
    const { acquire } = this.#engine;
    return new Promise((resolve, fail) => {
      const reject = (error) => fail(beginAt(acquire, error));
      try {
        const { signal, priority = 0, maxWaitMs = Infinity, ...rest } = checkOptions('request', request, ACQUIRE, EXAMPLE);
        checkMs('request.maxWaitMs', maxWaitMs);
        checkSignal(signal);
        checkPriority(priority);
        const until = maxWaitMs === Infinity ? Infinity : this.#engine.now() + maxWaitMs;
        const refuse = (result) => {
          this.#tellRefused(resource, result);
          fail(refused(acquire, resource, result));
        };
        this.#arrive({ resource, request: rest, signal, priority, until, resolve, reject, refuse });
      } catch (error) {
        reject(error);
      }
    });
  }

  // Handles the first attempt of a request.
  #arrive(waiter) {
    const { resource, request } = waiter;
    const name = nameOf(resource, request);
    let queue = this.#queues.get(resource)?.get(name);
    // The queue's retry is overdue.
    if (queue?.at <= this.#engine.now() && !this.#isShared) this.#advance(queue);
    if (queue !== undefined && !queue.waiters.wouldBeFirst(waiter.priority)) {
      // Throws at once if the request is not valid.
      this.#engine.policies(resource, request);
      if (!this.#isHopeless(waiter, queue)) this.#join(waiter, queue);
      return;
    }
    const refusal = this.#ask(waiter, queue);
    if (refusal === undefined) return;
    if (queue?.waiters.size > 0) {
      if (this.#join(waiter, queue)) {
        queue.cancel();
        this.#pause(queue, refusal);
      }
      return;
    }
    const names = new Set([resource, ...(request.apis ?? [])]);
    queue = { names, name, waiters: new Line(), pauses: 0, cancel: nothing };
    this.#pause(queue, refusal);
    if (!this.#join(waiter, queue)) return queue.cancel();
    this.#putLast(queue);
  }

  // Whether a request would wait in vain, because the first waiter retries only after its deadline. Such a request is refused here.
  #isHopeless({ until, refuse }, { at, refusal }) {
    const isHopeless = at < Infinity && at > until && !isKeptOutByHolds(refusal);
    if (isHopeless) refuse(refusal);
    return isHopeless;
  }

  #waitsInVain(waiter, refusal) {
    const { retryAfterMs } = refusal;
    if (retryAfterMs === Infinity) return true;
    const left = this.#left(waiter);
    return retryAfterMs > left && !(left > 0 && isKeptOutByHolds(refusal));
  }

  // How much longer a request waits at most, in whole milliseconds, like `retryAfterMs`.
  #left({ until }) {
    return until === Infinity ? Infinity : Math.ceil(until - this.#engine.now());
  }

  // The engine's time; NaN if its clock fails: the next attempt reports the error.
  #now() {
    try {
      return this.#engine.now();
    } catch {
      return NaN;
    }
  }

  // Makes an attempt for a request of a queue, if there is one. Returns the refusal if the request goes on waiting; else the
  // request is settled.
  #ask(waiter, queue) {
    const { resource, request } = waiter;
    this.#isAsking = true;
    try {
      let entry = this.#engine.enter(resource, { ...request, canWait: true }, true);
      if (entry.success && entry.waitMs > 0) {
        if (entry.waitMs <= this.#left(waiter)) {
          queue?.waiters.admit(waiter);
          this.#leave(waiter);
          this.#takeTurn(waiter, entry);
          return undefined;
        }
        entry.cancel();
        entry = this.#engine.enter(resource, request, true);
      }
      if (!entry.success && !this.#waitsInVain(waiter, entry)) return entry;
      if (entry.success) queue?.waiters.admit(waiter);
      this.#leave(waiter);
      if (entry.success) waiter.resolve(entry);
      else waiter.refuse(entry);
    } catch (error) {
      this.#leave(waiter);
      waiter.reject(error);
    } finally {
      this.#isAsking = false;
    }
    return undefined;
  }

  // Makes an attempt for each request from the front, until one is refused.
  #advance(queue) {
    queue.cancel();
    for (let waiter; (waiter = queue.waiters.first) !== undefined; ) {
      const refusal = this.#ask(waiter, queue);
      if (refusal !== undefined) return this.#pause(queue, refusal);
      queue.pauses = 0;
    }
  }

  #drop(queue) {
    queue.cancel();
    for (const name of queue.names) {
      const queues = this.#queues.get(name);
      queues?.delete(queue.name);
      if (queues?.size === 0) this.#queues.delete(name);
    }
  }

  // Puts a queue behind all others of its resource and APIs.
  #putLast(queue) {
    for (const name of queue.names) {
      const queues = this.#queues.get(name) ?? new Map();
      queues.delete(queue.name);
      this.#queues.set(name, queues.set(queue.name, queue));
    }
  }

  // Has a queue wait until its first waiter retries.
  #pause(queue, refusal) {
    const { rule, cause, policies, retryAfterMs } = refusal;
    const isShort = retryAfterMs <= ANY_MOMENT_MS;
    queue.refusal = refusal;
    queue.pauses = isShort ? queue.pauses + 1 : 0;
    const isInFlight = ({ id, windowMs }) => id === rule && windowMs === null;
    if (!this.#isShared && isShort && policies.some(isInFlight)) {
      [queue.at, queue.cancel] = [Infinity, nothing];
      return;
    }
    let pause = isShort ? Math.min(2 ** (queue.pauses - 1), MAX_PAUSE_MS) : retryAfterMs;
    // A probe may close a breaker at any moment, and nothing announces it.
    if (this.#isShared && cause === 'degrade') pause = Math.min(pause, MAX_PAUSE_MS);
    queue.at = this.#now() + pause;
    if (!this.#isShared) queue.cancel = after(pause, () => this.#advance(queue));
  }

  #join(waiter, queue) {
    const isFirst = () => queue.waiters.first === waiter;
    const leave = () => {
      const wasFirst = isFirst();
      this.#leave(waiter);
      if (wasFirst && !this.#isShared) this.#advance(queue);
    };
    if (!this.#begin(waiter, queue.waiters, leave, () => this.#drop(queue))) return false;
    if (this.#isShared) this.#beat(waiter, queue);
    if (this.#isShared || waiter.until === Infinity) return true;
    waiter.cancel = after(waiter.until - this.#now(), () => {
      // The request may pass exactly now.
      if (isFirst() || queue.at <= waiter.until) this.#advance(queue);
      if (!queue.waiters.has(waiter)) return;
      waiter.refuse(queue.refusal);
      leave();
    });
    return true;
  }

  // Called by each request for itself, again and again: the first of a queue retries. A silent one is gone: its request has ended.
  #beat(waiter, queue, silences = 0) {
    if (!queue.waiters.has(waiter)) return this.#arriveLate(waiter);
    const now = this.#now();
    waiter.heardOf = now;
    const { first } = queue.waiters;
    if (first === waiter && queue.at <= now) {
      const refusal = this.#ask(waiter, queue);
      if (refusal === undefined) return void (queue.pauses = 0);
      this.#pause(queue, refusal);
    } else if (waiter.until <= now) {
      waiter.refuse(queue.refusal);
      return this.#leave(waiter);
    }
    const isSilent = first.heardOf + MAX_SILENCE_MS < now;
    if (isSilent && silences === MAX_SILENCES) this.#takeOut(first);
    // The waiters in front keep pace with the first, to take over at once; the others need not.
    const next = first === waiter || isAmong(NEXT, waiter, queue.waiters) ? Math.min(queue.at, waiter.until) : waiter.until;
    const pause = Math.min(Math.max(1, next - now), MAX_PAUSE_MS);
    waiter.cancel = after(pause, () => this.#beat(waiter, queue, isSilent ? silences + 1 : 0));
  }

  // Handles a request that was taken for gone, and was only late.
  #arriveLate(waiter) {
    try {
      this.#arrive(waiter);
    } catch (error) {
      waiter.reject(error);
    }
  }

  // Has an admitted request wait for its turn. When a turn comes, it goes to the first of those that are alike.
  #takeTurn(waiter, entry) {
    const { resource, request, until } = waiter;
    // A request must not wake another in Workers, nor can it be exchanged for one that is made within a call.
    const isAlone = this.#isShared || request.within !== undefined;
    const name = isAlone ? waiter : JSON.stringify([nameOf(resource, request), request.cost]);
    const alike = this.#turns.get(name) ?? { waiters: new Line(), turns: [] };
    const giveUp = () => {
      this.#leave(waiter);
      // Those behind it move up.
      const last = alike.turns.pop();
      last.cancel();
      last.entry.cancel();
    };
    if (!this.#begin(waiter, alike.waiters, giveUp, () => this.#turns.delete(name))) return entry.cancel();
    this.#turns.set(name, alike);
    const begun = this.#now();
    const turn = { entry };
    alike.turns.push(turn);
    const done = () => {
      alike.turns.splice(alike.turns.indexOf(turn), 1);
      const { first } = alike.waiters;
      alike.waiters.admit(first);
      this.#leave(first);
      first.resolve(entry);
    };
    turn.cancel = after(entry.waitMs, () => {
      const early = begun + entry.waitMs - this.#now();
      if (early > 0 && early < EARLY_MS) turn.cancel = after(early, done);
      else done();
    });
    // Requests of a higher priority may take its turn.
    if (until === Infinity || isAlone) return;
    waiter.cancel = after(until - begun, () => {
      giveUp();
      this.#ask({ ...waiter, until: 0 });
    });
  }

  // Adds a waiter to `among`, unless too many wait; `leave` is called when its signal aborts.
  #begin(waiter, among, leave, whenEmpty = nothing) {
    if (this.count >= this.#most) {
      const many = `engine: ${this.count} wait already, as many as \`maxWaiting\` allows; raise it, or ask again later`;
      waiter.reject(fault('ERR_LEAPGATE_FULL', many));
      return false;
    }
    const { resource, signal } = waiter;
    const ignore = onAbort(signal, () => {
      waiter.reject(signal.reason);
      leave();
    });
    this.count++;
    this.#counts.set(resource, this.countOf(resource) + 1);
    among.add(waiter);
    waiter.cancel = nothing;
    waiter.leave = () => {
      ignore();
      const left = this.countOf(resource) - 1;
      if (left === 0) this.#counts.delete(resource);
      else this.#counts.set(resource, left);
      among.delete(waiter);
      if (among.size === 0) whenEmpty();
    };
    return true;
  }

  #leave(waiter) {
    if (waiter.leave === undefined) return;
    waiter.cancel();
    this.#takeOut(waiter);
  }

  #takeOut(waiter) {
    waiter.leave();
    waiter.leave = undefined;
    if (--this.count > 0) return;
    this.#callOffRound();
    this.#inFlight.check();
  }

  // To be called when a call of a resource and APIs, by `names`, with `request` has ended; `hasGivenBack` says whether its charge was refunded, or an
  // estimate that it held. Retries the first waiter of each queue that this may admit. If the same rule has just refused the first
  // waiter of another queue, the retry is left to the next round: the two may wait for different keys.
  ended(names, request, hasGivenBack) {
    if (this.#queues.size === 0) return;
    const waited = names.map((name) => this.#queues.get(name)).filter((queues) => queues !== undefined);
    const queues = new Set(waited.flatMap((queues) => [...queues.values()]));
    if (this.#isShared) {
      if (hasGivenBack) queues.forEach((queue) => (queue.at = 0));
      return;
    }
    if (this.#isAsking) return this.#planRound();
    const own = nameOf(names[0], request);
    const refusing = new Set();
    let isWhole = this.#queues.size === waited.length;
    for (const queue of queues) {
      const { rule, cause, retryAfterMs } = queue.refusal;
      if (!hasGivenBack && retryAfterMs > ANY_MOMENT_MS && cause !== 'degrade') continue;
      if (queue.name !== own && refusing.has(rule)) {
        isWhole = false;
        continue;
      }
      const { size } = queue.waiters;
      this.#advance(queue);
      if (queue.waiters.size === 0) continue;
      refusing.add(queue.refusal.rule);
      // Queues take turns.
      if (queue.waiters.size < size) this.#putLast(queue);
    }
    if (!isWhole) this.#planRound();
  }

  // Soon retries all queues that wait for a call to end, of any resource: a rule may measure another resource than its own.
  #planRound() {
    this.#cancelRound ??= after(MAX_PAUSE_MS, () => {
      this.#cancelRound = undefined;
      this.#round((queue) => queue.at === Infinity);
    });
  }

  #callOffRound() {
    this.#cancelRound?.();
    this.#cancelRound = undefined;
  }

  #round(isMeant) {
    this.#each((queue) => queue.waiters.size > 0 && isMeant(queue) && this.#advance(queue));
  }

  #each(act) {
    const all = [...this.#queues.values()].flatMap((queues) => [...queues.values()]);
    new Set(all).forEach(act);
  }

  // To be called when rules were replaced.
  replaced() {
    if (this.#isShared) this.#each((queue) => (queue.at = 0));
    else this.#round(() => true);
  }

  // To be called when the engine is freed: rejects all waiters.
  end(error) {
    // Requests that retry by themselves get the error from the engine.
    if (this.#isShared) return this.replaced();
    const waiters = [];
    this.#each((queue) => waiters.push(...queue.waiters));
    for (const alike of this.#turns.values()) {
      waiters.push(...alike.waiters);
      alike.turns.forEach((turn) => turn.cancel());
    }
    for (const waiter of waiters) {
      this.#leave(waiter);
      waiter.reject(error);
    }
  }
}
