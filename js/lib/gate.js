// Shared by the adapters: how they decide about a request, what a refusal says, and when a charge is refunded.

import { Limiter } from 'leapgate';
import { PEERS, checkFunction, checkObject, checkOptions, fault, kindOf, shown, wrong } from './errors.js';
import { checkDraft, headersOf, retryAfterSeconds } from './headers.js';
import { V4, V6, keyOfAddress } from './ip.js';
import { sampled } from './refused.js';
import { allOf, tell } from './told.js';
import { warn } from './warn.js';

export { warn };

const PROBLEMS = 'https://iana.org/assignments/http-problem-types';

// The options of all adapters, beside the options of a Limiter.
const SHARED = ['key', 'cost', 'skip', 'countIf', 'onRefused', 'draft', 'reply', 'engine', 'resource', 'origin', 'limiter'];
const LIMITS = ['limit', 'windowMs', 'window', 'sampleCount', 'id', 'limits', 'maxKeys', 'mode', 'clock', 'now'];

const MAX_COUNT = 2 ** 53;
const MAX_COST = 2 ** 32 - 1;

const FORMATS = { text: 'text/plain; charset=utf-8', json: 'application/json', problem: 'application/problem+json' };

PEERS.push(
  ['skip', /^allowList$/],
  ['countIf', /^(skip(Failed|Successful)Requests|requestWasSuccessful)$/],
  ['draft', /^(standard|legacy)Headers$/],
  ['status', /^(code|statusCode)$/],
  ['reply', /^(message|statusCode|handler|errorResponseBuilder)$/],
  ['onRefused', /^(onLimitReached|onExceeded)$/],
);
// In calls of a limiter these are costs.
PEERS.unshift(['limit', /^(points|rate)$/]);

export const isObject = (value) => typeof value === 'object' && value !== null;

// Shared limiters decide by this method: it returns a result, or a promise of one.
const DECIDE = Symbol.for('leapgate.decide');

const isPromise = (value) => typeof value?.then === 'function';

// Calls `then` with `value`: at once, unless it is a promise.
export const whenKnown = (value, then) => (isPromise(value) ? value.then(then) : then(value));

// The same with the value of an option, which may be a function of the request.
const whenRead = (option, args, then) => (typeof option === 'function' ? whenKnown(option(...args), then) : then(option));

function notEnded(error) {
  warn('LEAPGATE_END', `leapgate: what a request had taken could not be given back: ${error?.message ?? error}`);
}

// Checks the names of an adapter's options; `own` are the names that only this adapter has.
export function checkAdapter(options, own = []) {
  checkOptions('options', options, [...SHARED, ...own, ...LIMITS], '`{ limit: 100, windowMs: 60_000 }`');
}

// The option of adapters that tell the decision to handlers, and its value: the name under which they do.
export const PROPERTY = ['requestPropertyName'];
export function propertyOf({ requestPropertyName: name = 'rateLimit' }) {
  if (typeof name === 'string' && name !== '') return name;
  throw wrong('options.requestPropertyName', name, "is not a valid name; use one as in 'rateLimit'");
}

// Whether the options have limits: their own, a limiter or an engine.
export const hasLimits = (options) =>
  ['limit', 'limits', 'windowMs', 'limiter', 'engine'].some((name) => options[name] !== undefined);

// The engine or the limiter that decides, a new limiter unless one is given; and the limit and the cost of a request, if they are
// its own.
export function decider(options) {
  const given = ['engine', 'limiter'].find((name) => options[name] !== undefined);
  const limits = LIMITS.filter((name) => options[name] !== undefined);
  for (const name of ['resource', 'origin']) {
    if (options[name] === undefined || options.engine !== undefined) continue;
    const cure = options.limiter === undefined ? 'add `engine`, or leave it out' : 'use `engine`, or leave it out';
    throw wrong(`options.${name}`, options[name], `is for the rules of an engine; ${cure}`);
  }
  const { engine, limiter, resource, origin, limit, cost } = options;
  if (cost !== undefined && typeof cost !== 'function') checkCost('options.cost', cost, engine, 'use');
  if (given === undefined) {
    const own = Object.fromEntries(limits.map((name) => [name, options[name]]));
    if (typeof limit !== 'function') return { limiter: new Limiter(own), cost };
    if (own.limits !== undefined) throw wrong('options.limit', limit, 'stands beside `limits`; leave one of them out');
    // Each request brings its limit.
    return { limiter: new Limiter({ ...own, limit: 0 }), limit, cost };
  }
  const others = limiter === undefined ? limits : limits.filter((name) => name !== 'limit');
  if (others.length > 0) {
    const [name] = others;
    const cure = name === 'limit' ? 'leave it out, or have rules read their `count` from metadata' : 'leave it out';
    throw wrong(`options.${name}`, options[name], `stands beside \`${given}\`, which has its own; ${cure}`);
  }
  if (engine === undefined) {
    if (typeof limiter?.refund !== 'function')
      throw wrong('options.limiter', limiter, 'is not a Limiter; use one, or the limits themselves');
    if (limit !== undefined && limiter[DECIDE] !== undefined) {
      throw wrong('options.limit', limit, 'stands beside a shared limiter, whose limit all processes share; leave it out');
    }
    if (limit !== undefined && typeof limit !== 'function') checkLimit('options.limit', limit, 'use');
    return { limiter, limit, cost };
  }
  if (limiter !== undefined) throw wrong('options.limiter', limiter, 'stands beside `engine`; leave one of them out');
  if (typeof engine?.enter !== 'function')
    throw wrong('options.engine', engine, 'is not an Engine; use one, or the limits themselves');
  if (typeof resource !== 'function')
    throw wrong('options.resource', resource, "is not a function; use one that names what is limited, as in `() => 'login'`");
  checkFunction('options.origin', origin, 'use one that names the caller, as in `(request) => …`');
  return { engine, resource, origin, cost };
}

function checkLimit(place, limit, use) {
  if (limit === Infinity || (typeof limit === 'number' && limit >= 0 && limit <= MAX_COUNT)) return;
  throw wrong(place, limit, `is not a valid limit; ${use} a number from 0 to ${MAX_COUNT}, or Infinity for no limit`, kindOf(limit));
}

function checkCost(place, cost, engine, use) {
  // An engine checks the cost of each unit.
  if (engine !== undefined && isObject(cost)) return;
  if (Number.isInteger(cost) && cost >= 0 && cost <= MAX_COST) return;
  const units = engine === undefined ? '' : ', or an object with one for each unit';
  throw wrong(place, cost, `is not a valid cost; ${use} a whole number from 0 to ${MAX_COST}${units}`, kindOf(cost));
}

function checkReply(reply, formats) {
  if (typeof reply === 'function') return;
  if (!isObject(reply))
    throw wrong('options.reply', reply, "is not a valid reply; use a function, or an object as in `{ format: 'json' }`");
  const { status = 429, format = 'text', body = '', headers = {} } = reply;
  checkOptions('options.reply', reply, ['status', 'format', 'body', 'headers']);
  if (!Number.isInteger(status) || status < 400 || status > 599) {
    throw wrong('options.reply.status', status, 'is not a valid status of a refusal; use 429, or another from 400 to 599', kindOf(status));
  }
  if (!formats.includes(format))
    throw wrong('options.reply.format', format, `is not a valid format; use one of ${formats.map((format) => `'${format}'`).join(', ')}`);
  if (typeof body !== 'string') throw wrong('options.reply.body', body, 'is not a string; use one');
  checkObject('options.reply.headers', headers, "`{ 'X-Limited-By': 'leapgate' }`");
}

// Returns a function from addresses to keys. All clients without a valid address share one key: hiding an address must not evade
// a limit.
export function addressKeys(cure) {
  let isWarned = false;
  return (address) => {
    const key = keyOfAddress(address, V4, V6);
    if (key !== undefined) return key;
    if (!isWarned) {
      isWarned = true;
      const all = 'and all clients without one share their limit';
      warn('LEAPGATE_ADDRESS', `leapgate: \`${shown(address)}\` is not a client's address, ${all}; ${cure}`);
    }
    return 'unknown';
  };
}

const isMissing = (value) => value === undefined || value === null;

// `key` is the key function if the options have none; `formats` are the reply formats that only this adapter has; `contextOf` returns
// what keeps a runtime from stopping after a request, if the runtime has that; `requestOf` returns the runtime's own request.
export function makeGate(options, key, formats = [], contextOf = () => undefined, requestOf = (request) => request) {
  const { skip, countIf, onRefused, draft = 11, reply = {} } = options;
  const { engine, resource, origin, limiter, limit, cost } = decider(options);
  checkFunction('options.key', options.key, 'use one that returns whom to limit, as in `(request) => ipKey(address)`');
  checkFunction('options.skip', skip, 'use one that returns whether a request is not to be limited');
  checkFunction('options.countIf', countIf, 'use one that returns whether a request counts');
  if (draft !== false) checkDraft('options.draft', draft, "use 11, 7, 6, 'legacy', or false for none");
  checkReply(reply, [...Object.keys(FORMATS), ...formats]);
  const keyOf = options.key ?? key;
  const report = sampled(onRefused);
  if (keyOf === undefined && limiter !== undefined) {
    throw fault(
      'ERR_LEAPGATE_OPTIONS',
      'options.key: nothing says whom to limit; use a function that does, as in `(request) => …`',
      TypeError,
    );
  }

  // Requests for which `key` returns nothing share one key: by omitting a header, a client must neither evade a limit nor cause an
  // error. An engine takes null for a missing part.
  const nothing = engine === undefined ? '' : null;
  let isWarned = false;
  function known(key) {
    if (typeof key === 'string') return key;
    const isRecord = engine !== undefined && isObject(key) && !Array.isArray(key);
    const parts = isRecord || Array.isArray(key) ? Object.values(key) : [key];
    if (!parts.some(isMissing)) return key;
    // For an engine, a missing part is ordinary.
    if (!isWarned && (key === undefined || engine === undefined)) {
      isWarned = true;
      const all = 'and all requests without a key share one limit';
      warn('LEAPGATE_KEY', `leapgate: \`key\` has returned \`${shown(key)}\`, ${all}; return a key for them, or \`skip\` them`);
    }
    const whole = (part) => part ?? nothing;
    if (isRecord) return Object.fromEntries(Object.entries(key).map(([name, value]) => [name, whole(value)]));
    return Array.isArray(key) ? key.map(whole) : nothing;
  }

  // Whether a request counts. An error here has no caller to reach, so it becomes a warning.
  async function counts(request, response) {
    try {
      return Boolean(await countIf(request, response));
    } catch (error) {
      warn('LEAPGATE_COUNT_IF', `leapgate: \`countIf\` has thrown, and the request counts: ${error?.message ?? error}`);
      return true;
    }
  }

  function contextFor(args) {
    const ctx = contextOf(...args);
    return typeof ctx?.waitUntil === 'function' ? ctx : undefined;
  }

  function ask(key, args) {
    return whenRead(limit, args, (own) => {
      if (typeof limit === 'function') checkLimit('options.limit()', own, 'return');
      return whenRead(cost, args, (costs) => {
        if (typeof cost === 'function') checkCost('options.cost()', costs, engine, 'return');
        if (engine === undefined) return charge(key, own, costs, args);
        return whenKnown(origin?.(...args), (origin) => enter(key, origin, costs, args));
      });
    });
  }

  function charge(key, limit, cost, args) {
    let request;
    if (limit !== undefined) request = { limit };
    if (cost !== undefined) request = { ...request, cost };
    // Read before the charge: a refund as of an earlier instant does not come back too early.
    const at = countIf === undefined ? 0 : limiter.now?.();
    const answer = (result) => {
      const isCharged = result.success && !result.shadowBlocked && result.limit < Infinity;
      if (!isCharged || countIf === undefined) return { result, end: undefined };
      return { result, end: (outcome) => refund(key, cost, at, args[0], outcome).catch(notEnded) };
    };
    if (limiter[DECIDE] === undefined) return answer(limiter.limit(key, request));
    const ctx = contextFor(args);
    if (ctx !== undefined) request = { ...request, ctx };
    return whenKnown(limiter[DECIDE](key, request), answer);
  }

  function enter(key, origin, cost, args) {
    const request = { inbound: true };
    if (key !== undefined) request.key = key;
    if (cost !== undefined) request.cost = cost;
    if (origin !== undefined && origin !== null) request.origin = origin;
    const entry = engine.enter(resource(...args), request);
    return { result: entry, end: entry.success ? (outcome) => exit(entry, args[0], outcome).catch(notEnded) : undefined };
  }

  // Each decision is told in the headers, beside those of other gates, and refusals are reported.
  function noted(key, decision, args) {
    const { result } = decision;
    if (draft !== false) decision.told = tell(requestOf(args[0]), gate, result);
    const reported = report?.(key, result);
    if (reported !== undefined) contextFor(args)?.waitUntil(reported);
    return decision;
  }

  async function refund(key, cost, at, request, { response }) {
    if (!(await counts(request, response))) limiter.refund(key, cost, { at });
  }

  // `error` is undefined if the client has left: that says nothing about the server.
  async function exit(entry, request, { response, error }) {
    const refund = countIf !== undefined && response !== undefined && !(await counts(request, response));
    if (refund) entry.exit(error ? { error, refund } : { refund });
    else if (error === undefined) entry.exit({ unanswered: true });
    else entry.exit(error ? { error } : {});
  }

  function decide(args) {
    const decided = (key) => whenKnown(ask(key, args), (decision) => noted(key, decision, args));
    return keyOf === undefined ? decided(undefined) : whenKnown(keyOf(...args), (key) => decided(known(key)));
  }

  const gate = {
    // Decides about a request: a decision, or a promise of it; undefined if the request is skipped. A decision has a `result`. If it
    // has an `end`, call it once with `{ response, error }` when the request ends.
    decide: (...args) =>
      skip === undefined ? decide(args) : whenKnown(skip(...args), (skips) => (skips ? undefined : decide(args))),
    // Whether entries stay open until the response has ended.
    isOpen: engine !== undefined,
    // The headers of all responses: the limits of all gates that have decided so far.
    headers: ({ told }) => (draft === false ? {} : headersOf(allOf(told), draft)),
    // The user's function that answers refused requests, if given; and the refusal without it, whose status and headers also go
    // with its answer.
    reply: typeof reply === 'function' ? reply : undefined,
    isError: reply.format === 'error',
    refusal: (decision) => refusal(gate, decision, draft, reply),
  };
  return gate;
}

// The text of a refusal, by status: tests compare it with the core's table (src/refusal.rs).
const REFUSALS = {
  429: { status: 429, body: 'too many requests', type: `${PROBLEMS}#quota-exceeded`, title: 'Quota exceeded' },
  503: {
    status: 503,
    body: 'service unavailable',
    type: `${PROBLEMS}#temporary-reduced-capacity`,
    title: 'Temporary reduced capacity',
  },
  403: { status: 403, body: 'forbidden', title: 'Forbidden' },
};

// The status, headers and body of a refusal; a function writes its own body.
function refusal(gate, { result, told }, draft, reply) {
  const rule = told === undefined ? result.rule : told.find((one) => one.gate === gate).rule;
  const { format = 'text', headers } = reply;
  let text = REFUSALS[result.status ?? 429];
  if (text.status === 429) {
    const { status = text.status, body = text.body } = reply;
    text = { ...text, status, body, policies: rule === null ? undefined : [rule] };
  }
  const wait = retryAfterSeconds(result);
  return {
    status: text.status,
    headers: {
      // RFC 6585, section 4: a 429 must not be stored.
      'Cache-Control': 'no-store',
      ...(typeof reply === 'function' || format === 'error' ? {} : { 'Content-Type': FORMATS[format] }),
      ...(wait === undefined ? {} : { 'Retry-After': String(wait) }),
      ...gate.headers({ told }),
      ...headers,
    },
    body: write(format, text, rule, wait),
  };
}

function write(format, { status, body, type, title, policies }, rule, wait) {
  switch (format) {
    case 'json':
      return JSON.stringify({ status, error: body, rule, retryAfterSeconds: wait });
    case 'problem':
      return JSON.stringify({ type, title, status, detail: body, 'violated-policies': policies });
    default:
      return body;
  }
}
