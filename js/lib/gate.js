// Shared by the adapters: how they decide about a request, what a refusal says, and when a charge is refunded.

import { Limiter } from 'leapgate';
import { PEERS, checkObject, checkOptions, fault, shown, wrong } from './errors.js';
import { checkDraft, rateLimitHeaders, retryAfterSeconds } from './headers.js';
import { V4, V6, keyOfAddress } from './ip.js';
import { warn } from './warn.js';

export { warn };

const PROBLEMS = 'https://iana.org/assignments/http-problem-types';

// The options of all adapters, beside the options of a Limiter.
const SHARED = ['key', 'skip', 'countIf', 'draft', 'reply', 'engine', 'resource', 'origin', 'limiter'];
const LIMITS = ['limit', 'windowMs', 'window', 'sampleCount', 'id', 'limits', 'maxKeys', 'now'];

const FORMATS = { text: 'text/plain; charset=utf-8', json: 'application/json', problem: 'application/problem+json' };

PEERS.push(
  ['skip', /^allowList$/],
  ['countIf', /^(skip(Failed|Successful)Requests|requestWasSuccessful)$/],
  ['draft', /^(standard|legacy)Headers$/],
  ['status', /^(code|statusCode)$/],
  ['reply', /^(message|statusCode|handler|errorResponseBuilder)$/],
);

export const isObject = (value) => typeof value === 'object' && value !== null;

// Shared limiters decide by this method: it returns a result, or a promise of one.
const DECIDE = Symbol.for('leapgate.decide');

const isPromise = (value) => typeof value?.then === 'function';

// Calls `then` with `value`: at once, unless it is a promise.
export const whenKnown = (value, then) => (isPromise(value) ? value.then(then) : then(value));

function notEnded(error) {
  warn('LEAPGATE_END', `leapgate: what a request had taken could not be given back: ${error?.message ?? error}`);
}

export function checkFunction(place, value, cure) {
  if (value !== undefined && typeof value !== 'function') throw wrong(place, value, `is not a function; ${cure}`);
}

// Checks the names of an adapter's options; `own` are the names that only this adapter has.
export function checkAdapter(options, own = []) {
  checkOptions('options', options, [...SHARED, ...own, ...LIMITS], '`{ limit: 100, windowMs: 60_000 }`');
}

// Whether the options have limits: their own, a limiter or an engine.
export const hasLimits = (options) =>
  ['limit', 'limits', 'windowMs', 'limiter', 'engine'].some((name) => options[name] !== undefined);

// The engine or the limiter that decides; a new limiter unless one is given.
function decider(options) {
  const given = ['engine', 'limiter'].find((name) => options[name] !== undefined);
  const limits = LIMITS.filter((name) => options[name] !== undefined);
  for (const name of ['resource', 'origin']) {
    if (options[name] === undefined || options.engine !== undefined) continue;
    const cure = options.limiter === undefined ? 'add `engine`, or leave it out' : 'use `engine`, or leave it out';
    throw wrong(`options.${name}`, options[name], `is for the rules of an engine; ${cure}`);
  }
  if (given === undefined) {
    return { limiter: new Limiter(Object.fromEntries(limits.map((name) => [name, options[name]]))) };
  }
  const { engine, limiter, resource, origin } = options;
  if (limits.length > 0)
    throw wrong(`options.${limits[0]}`, options[limits[0]], `stands beside \`${given}\`, which has its own; leave it out`);
  if (engine === undefined) {
    if (typeof limiter?.refund !== 'function')
      throw wrong('options.limiter', limiter, 'is not a Limiter; use one, or the limits themselves');
    return { limiter };
  }
  if (limiter !== undefined) throw wrong('options.limiter', limiter, 'stands beside `engine`; leave one of them out');
  if (typeof engine?.enter !== 'function')
    throw wrong('options.engine', engine, 'is not an Engine; use one, or the limits themselves');
  if (typeof resource !== 'function')
    throw wrong('options.resource', resource, "is not a function; use one that names what is limited, as in `() => 'login'`");
  checkFunction('options.origin', origin, 'use one that names the caller, as in `(request) => …`');
  return { engine, resource, origin };
}

function checkReply(reply, formats) {
  if (typeof reply === 'function') return;
  if (!isObject(reply))
    throw wrong('options.reply', reply, "is not a valid reply; use a function, or an object as in `{ format: 'json' }`");
  const { status = 429, format = 'text', body = '', headers = {} } = reply;
  checkOptions('options.reply', reply, ['status', 'format', 'body', 'headers']);
  if (!Number.isInteger(status) || status < 400 || status > 599) {
    throw wrong('options.reply.status', status, 'is not a valid status of a refusal; use 429, or another from 400 to 599', RangeError);
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
// what keeps a runtime from stopping after a request, if the runtime has that.
export function makeGate(options, key, formats = [], contextOf = () => undefined) {
  const { skip, countIf, draft = 11, reply = {} } = options;
  const { engine, resource, origin, limiter } = decider(options);
  checkFunction('options.key', options.key, 'use one that returns whom to limit, as in `(request) => ipKey(address)`');
  checkFunction('options.skip', skip, 'use one that returns whether a request is not to be limited');
  checkFunction('options.countIf', countIf, 'use one that returns whether a request counts');
  if (draft !== false) checkDraft('options.draft', draft, "use 11, 7, 6, 'legacy', or false for none");
  checkReply(reply, [...Object.keys(FORMATS), ...formats]);
  const keyOf = options.key ?? key;
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

  function ask(key, args) {
    if (engine !== undefined) return whenKnown(origin?.(...args), (origin) => enter(key, origin, args));
    // Read before the charge: a refund as of an earlier instant does not come back too early.
    const at = countIf === undefined ? 0 : limiter.now?.();
    const answer = (result) => {
      if (!result.success || countIf === undefined) return { result, end: undefined };
      return { result, end: (outcome) => refund(key, at, args[0], outcome).catch(notEnded) };
    };
    if (limiter[DECIDE] === undefined) return answer(limiter.limit(key));
    const ctx = contextOf(...args);
    return whenKnown(limiter[DECIDE](key, typeof ctx?.waitUntil === 'function' ? { ctx } : undefined), answer);
  }

  function enter(key, origin, args) {
    const request = { inbound: true };
    if (key !== undefined) request.key = key;
    if (origin !== undefined && origin !== null) request.origin = origin;
    const entry = engine.enter(resource(...args), request);
    return { result: entry, end: entry.success ? (outcome) => exit(entry, args[0], outcome).catch(notEnded) : undefined };
  }

  async function refund(key, at, request, { response }) {
    if (!(await counts(request, response))) limiter.refund(key, 1, { at });
  }

  // `error` is undefined if the client has left: that says nothing about the server.
  async function exit(entry, request, { response, error }) {
    const refund = countIf !== undefined && response !== undefined && !(await counts(request, response));
    if (refund) entry.exit(error ? { error, refund } : { refund });
    else if (error === undefined) entry.exit({ unanswered: true });
    else entry.exit(error ? { error } : {});
  }

  const keyed = (args) =>
    keyOf === undefined ? ask(undefined, args) : whenKnown(keyOf(...args), (key) => ask(known(key), args));

  return {
    // Decides about a request: `{ result, end }` or a promise of it; undefined if it is skipped. If there is an `end`, call it once
    // with `{ response, error }` when the request ends.
    decide: (...args) =>
      skip === undefined ? keyed(args) : whenKnown(skip(...args), (skips) => (skips ? undefined : keyed(args))),
    // Whether entries stay open until the response has ended.
    isOpen: engine !== undefined,
    // The headers of all responses.
    headers: (result) => (draft === false ? {} : rateLimitHeaders(result, { draft })),
    // The user's function that answers refused requests, if given; and the refusal without it, whose status and headers also go
    // with its answer.
    reply: typeof reply === 'function' ? reply : undefined,
    isError: reply.format === 'error',
    refusal: (result) => refusal(result, draft, reply),
  };
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
function refusal(result, draft, reply) {
  const { format = 'text', headers } = reply;
  let text = REFUSALS[result.status ?? 429];
  if (text.status === 429) {
    const { status = text.status, body = text.body } = reply;
    text = { ...text, status, body, policies: policiesOf(result) };
  }
  const wait = retryAfterSeconds(result);
  return {
    status: text.status,
    headers: {
      // RFC 6585, section 4: a 429 must not be stored.
      'Cache-Control': 'no-store',
      ...(typeof reply === 'function' || format === 'error' ? {} : { 'Content-Type': FORMATS[format] }),
      ...(wait === undefined ? {} : { 'Retry-After': String(wait) }),
      ...(draft === false ? {} : rateLimitHeaders(result, { draft })),
      ...headers,
    },
    body: write(format, text, result.rule, wait),
  };
}

const policiesOf = ({ rule }) => (rule === null ? undefined : [rule]);

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
