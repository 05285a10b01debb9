// Errors: each is an Error (a TypeError or RangeError if an argument is wrong) with a `code`, and one sentence that names the
// place, the value and the cure.

export function fault(code, message, Kind = Error, cause) {
  const error = cause === undefined ? new Kind(message) : new Kind(message, { cause });
  return Object.assign(error, { code });
}

// Makes the stack of an error of this package begin at the call of the public function `call`: frames within it mean nothing to
// users. JavaScript engines without `captureStackTrace` keep the whole stack.
export function beginAt(call, error) {
  if (error?.code?.startsWith?.('ERR_LEAPGATE')) Error.captureStackTrace?.(error, call);
  return error;
}

// As `fault`, with a stack that begins at the call of `call`. For frequent errors: capturing a stack is slow, and this does it once.
export function faultAt(call, code, message) {
  const { captureStackTrace, stackTraceLimit } = Error;
  if (captureStackTrace === undefined) return fault(code, message);
  Reflect.set(Error, 'stackTraceLimit', 0);
  const error = fault(code, message);
  Reflect.set(Error, 'stackTraceLimit', stackTraceLimit);
  captureStackTrace(error, call);
  return error;
}

// Makes a public function of `call`: the stacks of its errors begin at its call.
export function outermost(name, call, isOwn) {
  const outer = {
    [name](...args) {
      try {
        return call.apply(this, args);
      } catch (error) {
        throw beginAt(outer, isOwn?.(Object(this)) === false ? detached(name, error) : error);
      }
    },
  }[name];
  return outer;
}

const detached = (name, error) =>
  fault('ERR_LEAPGATE_ARGUMENT', `${name}: it was called without its object; call it as a method, or bind it`, TypeError, error);

// Restores the name of a class, which the bundler has shortened, and makes its methods public functions, including inherited ones.
// `isOwn` tells whether an object is one of the class, for errors of methods that were called without theirs.
export function bounded(Class, name, isOwn) {
  Object.defineProperty(Class, 'name', { value: name });
  const methods = {};
  for (let from = Class.prototype; from !== Object.prototype; from = Object.getPrototypeOf(from)) {
    for (const [name, { value }] of Object.entries(Object.getOwnPropertyDescriptors(from))) {
      if (typeof value === 'function' && name !== 'constructor') methods[name] ??= value;
    }
  }
  for (const [name, method] of Object.entries(methods)) {
    Object.defineProperty(Class.prototype, name, { value: outermost(name, method, isOwn), writable: true, configurable: true });
  }
}

// The consoles of Node, Bun and Deno call this method of an object and show the result.
export const INSPECT = Symbol.for('nodejs.util.inspect.custom');
export const inspected = (name, parts, options, inspect) => (inspect === undefined ? parts : `${name} ${inspect(parts, options)}`);

// A value as error messages show it: the same as in the core's.
export function shown(value) {
  switch (typeof value) {
    case 'string':
      return value.length > 64 ? `${value.slice(0, 64)}…` : value;
    case 'function':
      return 'a function';
    case 'symbol':
      return 'a symbol';
    case 'object':
      if (value !== null) return Array.isArray(value) ? '[…]' : '{…}';
  }
  return String(value);
}

// An error about `value`, given as `place`: `why` has the reason, a semicolon, and the cure.
export function wrong(place, value, why, Kind = TypeError, code = codeOf(place)) {
  return fault(code, `${place}: \`${shown(value)}\` ${why}`, Kind);
}

// Wrong options have the same code in constructors and in calls.
const codeOf = (place) =>
  /^(options|settings|request|outcome|gauges|config)\b/.test(place) ? 'ERR_LEAPGATE_OPTIONS' : 'ERR_LEAPGATE_ARGUMENT';

// The kind of an error about a value that should be another number.
export const kindOf = (value) => (typeof value === 'number' ? RangeError : TypeError);

// Returns `value` if it is a number from 0 to `most`, else throws.
export function checkNumber(place, value, most, isWhole) {
  if (typeof value === 'number' && value >= 0 && value <= most && (!isWhole || Number.isInteger(value))) return value;
  const kind = typeof value;
  const why = /^(s|b)/.test(kind) ? `is a ${kind}` : 'is not possible';
  throw wrong(place, value, `${why}; use a ${isWhole ? 'whole ' : ''}number from 0 to ${most}`, kindOf(value));
}

// The latest time of a clock: the modules can count on from it.
const MAX_TIME = 1e13;

// Returns what a clock has returned if it is a time, else throws.
export function checkClock(place, now) {
  if (typeof now === 'number' && now >= 0 && now <= MAX_TIME) return now;
  throw wrong(place, now, `is not a valid time; return milliseconds, a number from 0 to ${MAX_TIME}`, TypeError, 'ERR_LEAPGATE_CLOCK');
}

// Throws if there is a `value` that is not a function.
export function checkFunction(place, value, cure) {
  if (value !== undefined && typeof value !== 'function') throw wrong(place, value, `is not a function; ${cure}`);
}

// Returns `value` if it is an object, else throws; `cure` begins with an example.
export function checkObject(place, value, cure) {
  if (typeof value === 'object' && value !== null) return value;
  throw wrong(place, value, `is not an object; use one, as in ${cure}`);
}

// Returns `options` if all names are known, else throws. Decisions call this: looping over names is faster than listing them.
export function checkOptions(place, options, known, cure) {
  checkObject(place, options, cure);
  for (const name in options) if (!known.includes(name)) checkAbsent(place, options, name, known);
  return options;
}

// Throws for an unknown name, unless its value is undefined, as in JSON, or inherited.
function checkAbsent(place, options, name, known) {
  const value = options[name];
  if (value === undefined || !Object.hasOwn(options, name)) return;
  const peer = PEERS.find(([ours, theirs]) => known.includes(ours) && theirs.test(name));
  let cure = known.length > 1 ? `one of ${listed(known)}` : listed(known);
  if (peer !== undefined) cure = listed([peer[0]]) + (peer[2] ?? '');
  throw wrong(`${place}.${name}`, value, `means nothing here; use ${cure}`);
}

export const listed = (names) => names.map((name) => `\`${name}\``).join(', ');

// Our options, and their names in other packages. The first match that is known in this place is suggested.
export const PEERS = [
  ['cost', /^(rate|points|weight|tokens)$/],
  ['limit', /^(max|points|rate|tokensPerInterval)$/],
  ['windowMs', /^(duration|timeWindow|interval)$/, ', in milliseconds'],
  ['key', /^(keys|keyGenerator)$/],
  ['timeoutMs', /^timeout$/, ', in milliseconds'],
  ['isError', /^errorFilter$/, ', which is its opposite'],
];
