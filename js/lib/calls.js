// The calls of a shared limiter to its store, and the requests that wait for an answer, for each key first come, first served.

import * as core from './leapgate_bg.js';
import * as wasm from './core.js';
import { shown } from './errors.js';
import { isIsolated } from './isolated.js';
import * as layout from './layout.js';
import { warn } from './warn.js';

// The most requests that wait. Further ones are decided about as if the store did not answer.
const MAX_WAITING = 10_000;

// The longest part of an answer, or of an error message, that is looked at.
const MAX_TEXT = 200;

// So many leases are settled in one turn of the event loop.
const MAX_SETTLED = 256;

// A warning of the same cause comes again after so long.
const QUIET_MS = 60_000;
const MAX_CAUSES = 8;

// Where requests must not wait for each other: how often one looks for its turn at most, and when one is taken for gone.
const MAX_PAUSE_MS = 50;
const MAX_SILENCE_MS = 500;
// And for how long what a request keeps alive settles leases: the runtime ends it after 30 s.
const MAX_SETTLING_MS = 20_000;

const DECIDES = {
  local: 'until it does, this process decides by its part of the limit',
  refuse: 'until it does, requests are refused',
  pass: 'until it does, requests pass',
};

const isPromise = (value) => typeof value?.then === 'function';
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// A key as the store names it, behind the name of the limit.
const escaped = (part) => String(part).toWellFormed().replace(/[%:]/g, (sign) => (sign === '%' ? '%25' : '%3A'));
export const nameOf = (key) => (Array.isArray(key) ? key : [key]).map((part) => `:${escaped(part)}`).join('');

export class Calls {
  #at;
  #options;
  #decide;
  #prefix;
  // By key: `call`, the one in flight, and `waiters`, in their order.
  #lines = new Map();
  #timer;
  #timerAt = -1;
  #isIsolated = isIsolated();
  // Until when a request that settles leases is taken to be there.
  #settledUntil = -Infinity;
  // When each cause was last warned of, and whether the latest was.
  #causes = new Map();
  #isWarned = false;
  // How many requests wait.
  waiting = 0;
  // Whether the store does not answer.
  isDown = false;
  // The latest call.
  latest;

  // `at` is where the limiter's node is; `decide` decides about a request: it returns a result, or null if the store has to be asked.
  constructor(at, options, decide) {
    this.#at = at;
    this.#options = options;
    this.#decide = decide;
    this.#prefix = `${nameOf(options.id).slice(1)}:${options.windowMs}:${options.sampleCount}`.length;
  }

  // Sends the message that is in the module's memory. Returns whether the store has answered at once.
  send(now, ctx) {
    const results = wasm.results();
    const [token, textBytes] = [results[layout.MESSAGE_TOKEN], results[layout.MESSAGE_TEXT]];
    // The request is ASCII, whatever the key is.
    const all = wasm.readText(results[layout.MESSAGE_KEY] + textBytes);
    const [key, text] = [all.slice(0, -textBytes), all.slice(-textBytes)];
    const name = key.slice(this.#prefix);
    let line = this.#lines.get(name);
    if (line === undefined) this.#lines.set(name, (line = { name, call: undefined, waiters: new Set() }));
    const call = { token, line, at: now, generation: wasm.generation, ctx, timer: undefined, ended: undefined, end: undefined };
    this.latest = line.call = call;
    let answer;
    try {
      answer = this.#options.store.lease(key, text);
    } catch (error) {
      this.#end(call, undefined, error);
      return true;
    }
    if (!isPromise(answer)) {
      this.#end(call, answer);
      return true;
    }
    call.ended = new Promise((resolve) => (call.end = resolve));
    call.timer = setTimeout(() => this.#over(call, undefined, this.#late), this.#options.timeoutMs);
    answer.then(
      (answer) => this.#over(call, answer),
      (error) => this.#over(call, undefined, error ?? 'it has failed'),
    );
    ctx?.waitUntil(call.ended);
    return false;
  }

  get #late() {
    return `no answer within ${this.#options.timeoutMs} ms`;
  }

  #over(call, answer, error) {
    clearTimeout(call.timer);
    this.#end(call, answer, error, call.ctx);
    call.end();
    this.#wake(call.line);
  }

  // Hands in the answer to a call, or why there is none, unless it is over already.
  #end(call, answer, error, ctx) {
    const { line } = call;
    if (line.call !== call) return;
    line.call = undefined;
    if (call.generation === wasm.generation && this.#at.generation === wasm.generation) {
      try {
        this.#hear(call.token, answer, error);
      } catch (error) {
        warn('LEAPGATE_CRASHED', wasm.crashed(error).message);
      }
      if (!this.#isIsolated) this.#schedule();
      else if (ctx !== undefined) this.#settleWith(ctx);
    }
    if (line.waiters.size === 0) this.#lines.delete(line.name);
  }

  #hear(token, answer, error) {
    const [now, wall] = [wasm.defaultClock(), Date.now()];
    let change;
    let cause;
    if (error === undefined) {
      const text = typeof answer === 'string' ? answer : shown(answer);
      change = core.shared_answered(this.#at.number, token, wasm.putTextAt(text.slice(0, MAX_TEXT), 0), now, wall);
      if (change >= layout.CHANGE_ERROR) {
        cause = wasm.readText(wasm.results()[0]);
        change -= layout.CHANGE_ERROR;
      }
    } else {
      cause = String(error?.message || error?.code || error);
      change = core.shared_lost(this.#at.number, token, now, wall);
    }
    if (change === layout.CHANGE_DOWN || (cause !== undefined && this.isDown)) this.#warnOf(cause.slice(0, MAX_TEXT), now);
    this.isDown = change === layout.CHANGE_DOWN || (this.isDown && change !== layout.CHANGE_UP);
    if (change === layout.CHANGE_UP && this.#isWarned) {
      this.#isWarned = false;
      warn('LEAPGATE_STORE_UP', `leapgate: limiter \`${this.#options.id}\`: the store answers again`);
    }
  }

  #warnOf(cause, now) {
    if (now - this.#causes.get(cause) < QUIET_MS) return;
    if (this.#causes.size === MAX_CAUSES) this.#causes.clear();
    this.#causes.set(cause, now);
    this.#isWarned = true;
    const { id, whenDown } = this.#options;
    warn('LEAPGATE_STORE_DOWN', `leapgate: limiter \`${id}\`: the store does not answer: ${cause.replace(/\s+/g, ' ')}; ${DECIDES[whenDown]}`);
  }

  // Whether earlier requests with this key wait, so that permits are theirs first. For a cost as high as theirs the node knows that there
  // are none, if waiting requests are decided about as soon as there are some.
  isBehind(key, cost) {
    const [first] = this.#lines.get(nameOf(key))?.waiters ?? [];
    return first !== undefined && (this.#isIsolated || cost < first.cost);
  }

  // Waits for an answer about the key of a request, and returns a promise of the request's result.
  wait(request) {
    const line = this.#lines.get(nameOf(request.key));
    const { key, cost, ctx } = request;
    const waiter = { key, cost, ctx, since: wasm.defaultClock(), seen: 0, result: undefined, resolve: undefined, reject: undefined };
    // Without a call in flight, or a request before it, nothing would wake it.
    if ((line?.call ?? line?.waiters.values().next().value) === undefined || this.waiting >= MAX_WAITING) {
      return new Promise((resolve) => resolve(this.#decide(request, false)));
    }
    line.waiters.add(waiter);
    this.waiting++;
    if (this.#isIsolated) return this.#turn(waiter, line, line.call === this.latest ? this.latest?.ended : undefined);
    return new Promise((resolve, reject) => Object.assign(waiter, { resolve, reject }));
  }

  // Decides about waiting requests, in their order, until one has to wait for another answer.
  #wake(line) {
    if (this.#isIsolated || line.call !== undefined) return;
    for (const waiter of line.waiters) {
      try {
        const result = this.#retry(waiter, line);
        if (result === null) return;
        waiter.resolve(result);
      } catch (error) {
        waiter.reject(error);
      }
      this.#leave(waiter, line);
    }
  }

  // The result, or null if a call is in flight again.
  #retry(waiter, line) {
    const waits = wasm.defaultClock() - waiter.since <= this.#options.timeoutMs;
    const result = this.#decide(waiter, waits);
    return result === null && line.call === undefined ? this.#decide(waiter, false) : result;
  }

  #leave(waiter, line) {
    if (!line.waiters.delete(waiter)) return;
    this.waiting--;
    if (line.waiters.size === 0 && line.call === undefined && this.#lines.get(line.name) === line) this.#lines.delete(line.name);
  }

  // Where no request can wake another: waits for its own call, or looks now and then whether it is first and the call of another
  // request is over, or has died with that request.
  async #turn(waiter, line, own) {
    const { ctx } = waiter;
    try {
      for (let pause = 1; ; pause = Math.min(2 * pause, MAX_PAUSE_MS)) {
        if (own === undefined) await sleep(pause);
        else {
          // Until then it is not silent.
          waiter.seen = wasm.defaultClock() + this.#options.timeoutMs;
          await Promise.race([own, sleep(this.#options.timeoutMs)]);
          own = undefined;
        }
        if (waiter.result !== undefined) return waiter.result;
        const now = wasm.defaultClock();
        waiter.seen = now;
        const { call } = line;
        if (now - call?.at > this.#options.timeoutMs) this.#end(call, undefined, this.#late, ctx);
        for (const other of line.waiters) {
          if (other === waiter) break;
          if (now - Math.max(other.seen, other.since) > MAX_SILENCE_MS) this.#leave(other, line);
        }
        const [first] = line.waiters;
        const isLate = now - waiter.since > 2 * this.#options.timeoutMs;
        const isTurn = (first === waiter && line.call === undefined) || !line.waiters.has(waiter);
        if (!isTurn && !isLate) continue;
        this.latest = undefined;
        const result = isLate ? this.#decide(waiter, false) : this.#retry(waiter, line);
        if (result !== null) {
          this.#leave(waiter, line);
          this.#decideOthers(line, ctx);
          return result;
        }
        if (line.call !== undefined && line.call === this.latest) own = line.call.ended;
      }
    } finally {
      this.#leave(waiter, line);
    }
  }

  // Decides about the requests behind one, which will find their results, unless a call for them could die with that one.
  #decideOthers(line, ctx) {
    if (ctx === undefined) return;
    for (const waiter of line.waiters) {
      if (line.call !== undefined) return;
      const result = this.#decide({ ...waiter, ctx }, true);
      if (result === null) return;
      waiter.result = result;
      this.#leave(waiter, line);
    }
  }

  // Calls the store about leases that are to be given back, in time, unless that keeps the process alive.
  #schedule() {
    if (this.#isIsolated) return;
    const due = core.shared_next_due(this.#at.number);
    if (due === this.#timerAt) return;
    clearTimeout(this.#timer);
    this.#timerAt = due;
    if (due < 0) return;
    this.#timer = setTimeout(
      () => {
        this.#timerAt = -1;
        if (this.#at.generation !== wasm.generation) return;
        this.settle();
        this.#schedule();
      },
      Math.max(1, Math.ceil(due - wasm.defaultClock())),
    );
    if (typeof this.#timer.unref === 'function') this.#timer.unref();
    else globalThis.Deno?.unrefTimer?.(this.#timer);
  }

  // Settles what is due. Returns the calls that do.
  settle(ctx) {
    const calls = [];
    const [now, wall] = [wasm.defaultClock(), Date.now()];
    try {
      while (calls.length < MAX_SETTLED && core.shared_due(this.#at.number, now, wall)) {
        this.send(now, ctx);
        calls.push(this.latest.ended);
      }
    } catch (error) {
      warn('LEAPGATE_CRASHED', wasm.crashed(error).message);
    }
    return calls;
  }

  // Settles leases while a request keeps the runtime from stopping: one request at a time.
  #settleWith(ctx) {
    if (wasm.defaultClock() >= this.#settledUntil) ctx.waitUntil(this.#settleLater(ctx));
  }

  async #settleLater(ctx) {
    const end = wasm.defaultClock() + MAX_SETTLING_MS;
    for (;;) {
      const [due, now] = [core.shared_next_due(this.#at.number), wasm.defaultClock()];
      if (due < 0 || now > end || this.#at.generation !== wasm.generation) break;
      // If it is not back by then, it has been stopped.
      this.#settledUntil = Math.max(due, now) + 2 * MAX_SILENCE_MS;
      await sleep(Math.max(1, Math.ceil(due - now)));
      await Promise.all(this.settle(ctx));
    }
    this.#settledUntil = -Infinity;
  }

  // The calls in flight.
  pending() {
    return Array.from(this.#lines.values(), ({ call }) => call?.ended).filter((ended) => ended !== undefined);
  }

  // Nothing is left of the calls of an earlier instance of the module: what they ask for counts as used. Requests that wait ask again.
  restart() {
    for (const line of this.#lines.values()) {
      const { call } = line;
      if (call === undefined || call.generation === wasm.generation) continue;
      line.call = undefined;
      queueMicrotask(() => this.#wake(line));
    }
  }

  stop() {
    clearTimeout(this.#timer);
  }
}
