// What goes wrong is told as an Error (a TypeError or RangeError where an argument is to blame) with a `code`: one sentence
// with the place, the value and the cure.

export function fault(code, message, Kind = Error, cause) {
  const error = cause === undefined ? new Kind(message) : new Kind(message, { cause });
  return Object.assign(error, { code });
}

// Makes the stack of an error of ours begin at the call of the public function `call`: frames within it mean nothing to users. Engines
// without `captureStackTrace` keep the whole stack.
export function beginAt(call, error) {
  if (error?.code?.startsWith?.('ERR_LEAPGATE')) Error.captureStackTrace?.(error, call);
  return error;
}

// An error whose stack begins there, for errors that are frequent: capturing a stack is slow, and this captures it once.
export function faultAt(call, code, message) {
  const { captureStackTrace, stackTraceLimit } = Error;
  if (captureStackTrace === undefined) return fault(code, message);
  Reflect.set(Error, 'stackTraceLimit', 0);
  const error = fault(code, message);
  Reflect.set(Error, 'stackTraceLimit', stackTraceLimit);
  captureStackTrace(error, call);
  return error;
}

// A public function that does what `call` does: stacks of its errors begin at its call.
export function outermost(name, call) {
  const outer = {
    [name](...args) {
      try {
        return call.apply(this, args);
      } catch (error) {
        throw beginAt(outer, error);
      }
    },
  }[name];
  return outer;
}

// Names a class, whose name the bundler has shortened, and makes its methods public functions, including inherited ones.
export function bounded(Class, name) {
  Object.defineProperty(Class, 'name', { value: name });
  const methods = {};
  for (let from = Class.prototype; from !== Object.prototype; from = Object.getPrototypeOf(from)) {
    for (const [name, { value }] of Object.entries(Object.getOwnPropertyDescriptors(from))) {
      if (typeof value === 'function' && name !== 'constructor') methods[name] ??= value;
    }
  }
  for (const [name, method] of Object.entries(methods)) {
    Object.defineProperty(Class.prototype, name, { value: outermost(name, method), writable: true, configurable: true });
  }
}

// The consoles of Node, Bun and Deno call this method of an object, and show what it returns.
export const INSPECT = Symbol.for('nodejs.util.inspect.custom');
export const inspected = (name, parts, options, inspect) => (inspect === undefined ? parts : `${name} ${inspect(parts, options)}`);

// How a sentence shows a value: as the core's sentences do.
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

// That `value`, given as `place`, is wrong: `why` says why, and the cure after a semicolon.
export function wrong(place, value, why, Kind = TypeError, code = codeOf(place)) {
  return fault(code, `${place}: \`${shown(value)}\` ${why}`, Kind);
}

// Wrong options have one code, in constructors and in calls.
const codeOf = (place) =>
  /^(options|settings|request|outcome|gauges|config)\b/.test(place) ? 'ERR_LEAPGATE_OPTIONS' : 'ERR_LEAPGATE_ARGUMENT';

// A number in that range, or what is wrong.
export function checkNumber(place, value, most, isWhole) {
  if (typeof value === 'number' && value >= 0 && value <= most && (!isWhole || Number.isInteger(value))) return value;
  const Kind = typeof value === 'number' ? RangeError : TypeError;
  throw wrong(place, value, `is not possible; use a ${isWhole ? 'whole ' : ''}number from 0 to ${most}`, Kind);
}

// An object; `cure` begins with one.
export function checkObject(place, value, cure) {
  if (typeof value === 'object' && value !== null) return value;
  throw wrong(place, value, `is not an object; use one, as in ${cure}`);
}

// Options that have only known names. Decisions come here: looping over names is faster than listing them.
export function checkOptions(place, options, known, cure) {
  checkObject(place, options, cure);
  for (const name in options) if (!known.includes(name)) checkAbsent(place, options, name, known);
  return options;
}

// A value of undefined is no option, as in JSON; nor is a property that the object inherits.
function checkAbsent(place, options, name, known) {
  const value = options[name];
  if (value === undefined || !Object.hasOwn(options, name)) return;
  const peer = PEERS.find(([ours, theirs]) => known.includes(ours) && theirs.test(name));
  let cure = known.length > 1 ? `one of ${listed(known)}` : listed(known);
  if (peer !== undefined) cure = listed([peer[0]]) + (peer[2] ?? '');
  throw wrong(`${place}.${name}`, value, `means nothing here; use ${cure}`);
}

export const listed = (names) => names.map((name) => `\`${name}\``).join(', ');

// What other packages call our options. Of several, the first one counts that is known in this place.
export const PEERS = [
  ['cost', /^(rate|points|weight|tokens)$/],
  ['limit', /^(max|points|rate|tokensPerInterval)$/],
  ['windowMs', /^(duration|timeWindow|interval)$/, ', in milliseconds'],
  ['key', /^(keys|keyGenerator)$/],
];
