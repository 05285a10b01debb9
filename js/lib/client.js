// `fetch` that keeps to limits: its own rules, and what upstreams say, which only ever makes it stricter.

import { Engine } from 'leapgate/flow';
import { checkNumber, checkOptions, fault, outermost, wrong } from './errors.js';
import { after, nothing, onAbort } from './timers.js';
import { read } from './upstream.js';

const LIMIT = ['limit', 'windowMs', 'window', 'sampleCount', 'id'];
const OPTIONS = [...LIMIT, 'limits', 'concurrency', 'key', 'maxKeys', 'maxWaitMs', 'maxWaiting', 'maxPauseMs', 'retries', 'now'];
const LIMIT_EXAMPLE = '`{ limit: 10, windowMs: 1000 }`';
const EXAMPLE = `${LIMIT_EXAMPLE}, or leave it out`;

const MAX_KEYS = 10_000;
const MAX_MAX_KEYS = 2 ** 24;
const MAX_KEY = 1024;
const HOUR_MS = 3_600_000;
// The longest delay of setTimeout.
const MAX_TIMEOUT_MS = 2 ** 31 - 1;

// The most limits of an upstream that are remembered for a key, beside what `Retry-After` says, which is no other limit's id.
const MAX_QUOTAS = 16;
const RETRY_AFTER = null;

// When a limit of an upstream is over, one request is sent at a time until an answer tells what is left, but not for longer than this:
// else all that wait would be sent at once.
const PROBE_MS = 5000;

// An answer that is late by less than this may be of an earlier request.
const LATE_MS = 2000;

// A pause is longer by a random part of this share, up to a second: other clients of the upstream have been told the same.
const JITTER = 0.1;
const MAX_JITTER_MS = 1000;

// The longest pause before the first retry, if the upstream says nothing, and the longest of all. It doubles with each.
const BACKOFF_MS = 1000;
const MAX_BACKOFF_MS = 60_000;

const MAX_RETRIES = 100;

const IDEMPOTENT = ['GET', 'HEAD', 'OPTIONS', 'PUT', 'DELETE'];
const REPLAYABLE = ['String', 'URLSearchParams', 'FormData', 'Blob', 'File', 'ArrayBuffer'];

// The engine of own rules, which also refuses while an upstream's limits do.
class Outbound extends Engine {
  // By key: how many requests are in flight, and `quotas`, the limits of the upstream by id: each has how many requests are `left`, and
  // `until` when. The keys of the latest requests come last.
  #upstreams = new Map();
  #epoch;
  #maxKeys;
  #maxPauseMs;

  constructor(rules, settings, maxKeys, maxPauseMs) {
    super(rules, settings);
    this.#epoch = settings.now ?? (() => Date.now());
    this.#maxKeys = maxKeys;
    this.#maxPauseMs = maxPauseMs;
  }

  // `acquire` calls it for the first request of each line.
  enter(resource, request, isChecked) {
    const pause = this.pause(request.key);
    // A rule refuses: what waits for an engine needs an entry of the engine.
    if (pause > 0) {
      const reset = Math.ceil(this.#epoch() + pause);
      return Object.assign(super.enter('upstream', {}, isChecked), { retryAfterMs: pause, reset });
    }
    const entry = super.enter(resource, request, isChecked);
    if (entry.success) this.#sent(request.key);
    return entry;
  }

  // How long the upstream keeps a request back, in whole milliseconds; 1 while requests in flight do.
  pause(key) {
    const upstream = this.#upstreams.get(key);
    if (upstream === undefined) return 0;
    const now = this.now();
    let pause = 0;
    for (const { left, until } of upstream.quotas.values()) {
      if (left === 0 && now < until) pause = Math.max(pause, Math.ceil(until - now));
      else if (upstream.inFlight >= Math.max(left, 1) && now < until + PROBE_MS) pause = Math.max(pause, 1);
    }
    return pause;
  }

  #sent(key) {
    const upstream = this.#upstreams.get(key) ?? { inFlight: 0, quotas: new Map() };
    upstream.inFlight++;
    this.#keep(key, upstream);
  }

  #keep(key, upstream) {
    this.#upstreams.delete(key);
    if (this.#upstreams.size >= this.#maxKeys) this.#upstreams.delete(this.#upstreams.keys().next().value);
    this.#upstreams.set(key, upstream);
  }

  // To be called when a request has been answered, or without a response if it has failed. Returns whether the upstream has refused the
  // request, and whether it has said for how long.
  answered(key, response) {
    const upstream = this.#upstreams.get(key) ?? { inFlight: 0, quotas: new Map() };
    upstream.inFlight = Math.max(0, upstream.inFlight - 1);
    const { quotas } = upstream;
    const now = this.now();
    for (const [id, { until }] of quotas) if (until <= now) quotas.delete(id);
    const status = response?.status;
    // What stands for `fetch` may return anything.
    const said = typeof response?.headers?.[Symbol.iterator] === 'function' ? read(response.headers) : { quotas: [] };
    const waits = said.retryAfterMs > 0 && [429, 503, 403].includes(status);
    // `Retry-After` takes precedence over a reset.
    if (waits) this.#learn(quotas, now, RETRY_AFTER, 0, said.retryAfterMs);
    for (const { id, left, resetMs } of said.quotas) if (left > 0 || !waits) this.#learn(quotas, now, id, left, resetMs);
    if (upstream.inFlight > 0 || quotas.size > 0) this.#keep(key, upstream);
    else this.#upstreams.delete(key);
    const isExhausted = said.quotas.some(({ left }) => left === 0);
    const isTold = (waits || isExhausted) && this.#maxPauseMs > 0;
    return { isRefused: status === 429 || waits || (status === 403 && isExhausted), isTold };
  }

  #learn(quotas, now, id, left, ms) {
    if (this.#maxPauseMs === 0) return;
    const jitter = left > 0 ? 0 : Math.random() * Math.min(JITTER * ms, MAX_JITTER_MS);
    const until = now + Math.min(ms + jitter, this.#maxPauseMs);
    const known = quotas.get(id);
    if (known === undefined && quotas.size >= MAX_QUOTAS && id !== RETRY_AFTER) return;
    // What is left only falls until there is more: a higher number is of an earlier answer that came late.
    if (known?.left < left && until < known.until + LATE_MS) return;
    quotas.set(id, { left, until: known?.left === left ? Math.max(known.until, until) : until });
  }
}

// The rules of the options, and for each rule the option it comes from and the names of its numbers there.
function rulesOf({ limits, concurrency = Infinity, ...single }, maxKeys) {
  const given = LIMIT.find((name) => single[name] !== undefined);
  if (limits !== undefined) {
    if (!Array.isArray(limits)) throw wrong('options.limits', limits, 'is not an array; use one of limits');
    if (given !== undefined) throw wrong(`options.${given}`, single[given], 'stands beside `limits`; put it into one of them');
  }
  const flowRules = [{ id: 'upstream', resource: 'upstream', count: 0 }];
  const sources = [{}];
  const add = (place, count, rule) => {
    if (rule.count === Infinity) return;
    flowRules.push({ resource: 'fetch', key: ['host'], maxKeys, ...rule });
    sources.push({ place, count, intervalMs: 'windowMs' });
  };
  (limits ?? (given === undefined ? [] : [single])).forEach((limit, i) => {
    const place = limits === undefined ? 'options' : `options.limits[${i}]`;
    if (limits !== undefined) checkOptions(place, limit, LIMIT, LIMIT_EXAMPLE);
    const { limit: count, windowMs: intervalMs, window, sampleCount, id = nameOf(intervalMs) } = limit;
    if (intervalMs === undefined) throw fault('ERR_LEAPGATE_OPTIONS', `${place}: \`windowMs\` is missing; add it`, TypeError);
    add(place, 'limit', { id, count, intervalMs, window, sampleCount });
  });
  add('options', 'concurrency', { id: 'concurrency', count: concurrency, grade: 'concurrency' });
  return { flowRules, sources };
}

// The name of a limit without an `id`, as a `Limiter` names it.
const nameOf = (ms) => (ms % 1000 === 0 ? `${ms / 1000}s` : `${ms}ms`);

// Makes the engine. Errors about its rules name the options.
function outboundOf(options, { maxWaiting, now }, maxKeys, maxPauseMs) {
  const { flowRules, sources } = rulesOf(options, maxKeys);
  try {
    return new Outbound({ flowRules }, { maxWaiting, now }, maxKeys, maxPauseMs);
  } catch (error) {
    let source = {};
    const message = String(error.message)
      .replace(/^(?:document\.)?flowRules\[(\d+)\]/, (_, i) => (source = sources[i]).place)
      .replace(/([.`])(count|intervalMs)\b/, (all, before, name) => (name in source ? before + source[name] : all))
      .replace(/^settings\b/, 'options');
    throw error.code === undefined ? error : fault('ERR_LEAPGATE_OPTIONS', message, error.constructor);
  }
}

// What `key` sees of a request.
function requestOf(input, init) {
  const from = typeof input?.url === 'string' ? input : undefined;
  let url = from?.url ?? String(input);
  let origin = '';
  try {
    ({ href: url, origin } = new URL(url, globalThis.location?.href));
  } catch {
    // `fetch` may know what it is relative to, or reports it.
  }
  const headers = () => new Headers(init?.headers ?? from?.headers);
  const method = String(init?.method ?? from?.method ?? 'GET').toUpperCase();
  const signal = (init?.signal === undefined ? from?.signal : init.signal) ?? undefined;
  return { url, origin, method, headers, signal, from, body: init?.body ?? from?.body ?? null };
}

// The key of a request, as text; null if it is not limited.
function keyOf({ url, origin, method, headers }, choose) {
  const key = choose === undefined ? origin : choose({ url, method, get headers() { return headers(); } });
  if (key === null) return null;
  if (typeof key !== 'string' && typeof key !== 'bigint' && !Number.isFinite(key)) {
    throw wrong('options.key()', key, 'is not a valid key; return a string, a number, a bigint, or null for no limit', TypeError, 'ERR_LEAPGATE_KEY');
  }
  const text = String(key);
  if (text.length <= MAX_KEY) return text;
  throw wrong('options.key()', key, `has ${text.length} characters; use at most ${MAX_KEY}, or a hash of it`, RangeError, 'ERR_LEAPGATE_KEY');
}

// Whether a request may be sent again: that changes nothing, and its body is still there. A stream has been read by then.
function isRepeatable({ method, headers, from, body }) {
  const kind = Object.prototype.toString.call(body).slice(8, -1);
  // Not all browsers have the body of a Request.
  if (from?.bodyUsed || (body !== null && !REPLAYABLE.includes(kind) && !ArrayBuffer.isView(body))) return false;
  return IDEMPOTENT.includes(method) || headers().has('idempotency-key');
}

function sleep(ms, signal) {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const cancel = after(ms, () => (forget(), resolve()));
    const forget = onAbort(signal, () => (cancel(), forget(), reject(signal.reason)));
  });
}

// Gives back the connection of a response that is not returned.
const cancel = async (response) => response?.body?.cancel?.();

export const limitedFetch = outermost('limitedFetch', (fetch, options = {}) => {
  if (typeof fetch !== 'function') throw wrong('fetch', fetch, 'is not a function; use `fetch` itself, or one that is like it');
  checkOptions('options', options, OPTIONS, EXAMPLE);
  const { key: choose, maxKeys = MAX_KEYS, maxWaitMs = Infinity, maxPauseMs = HOUR_MS, retries = 2, maxWaiting, now, ...rules } = options;
  if (choose !== undefined && typeof choose !== 'function') throw wrong('options.key', choose, 'is not a function; use one of a request, or leave it out');
  if (maxWaitMs !== Infinity) checkNumber('options.maxWaitMs', maxWaitMs, Number.MAX_VALUE, false);
  checkNumber('options.maxKeys', maxKeys, MAX_MAX_KEYS, true);
  checkNumber('options.maxPauseMs', maxPauseMs, MAX_TIMEOUT_MS, false);
  checkNumber('options.retries', retries, MAX_RETRIES, true);
  const outbound = outboundOf(rules, { maxWaiting, now }, maxKeys, maxPauseMs);

  return async (input, init) => {
    const request = requestOf(input, init);
    const { origin, signal } = request;
    const key = keyOf(request, choose);
    if (key === null) return fetch(input, init);
    let left = maxWaitMs;
    const waited = async (wait) => {
      const since = outbound.now();
      const result = await wait;
      left = Math.max(0, left - (outbound.now() - since));
      return result;
    };
    for (let attempt = 0; ; attempt++) {
      const entry = await waited(outbound.acquire('fetch', { key, maxWaitMs: left, signal }));
      let response;
      let failure;
      try {
        response = await fetch(input, init);
      } catch (error) {
        failure = { error };
      }
      const { isRefused, isTold } = outbound.answered(key, response);
      entry.exit();
      // Without an origin it has not come to the network.
      const hasFailed = failure !== undefined && origin !== '' && !signal?.aborted;
      const isRepeated = attempt < retries && (isRefused || hasFailed) && isRepeatable(request);
      const backoff = isTold ? 0 : Math.min(BACKOFF_MS * 2 ** attempt, MAX_BACKOFF_MS) * (0.5 + Math.random() / 2);
      if (!isRepeated || Math.max(backoff, outbound.pause(key)) > left) {
        if (failure !== undefined) throw failure.error;
        return response;
      }
      cancel(response).catch(nothing);
      if (backoff > 0) await waited(sleep(backoff, signal));
    }
  };
});
