// What goes wrong is told as an Error (a TypeError or RangeError where an argument is to blame) with a `code`: one sentence
// with the place, the value and the cure.

export function fault(code, message, Kind = Error, cause) {
  const error = cause === undefined ? new Kind(message) : new Kind(message, { cause });
  return Object.assign(error, { code });
}

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
export function wrong(place, value, why, Kind = TypeError, code = 'ERR_LEAPGATE_ARGUMENT') {
  return fault(code, `${place}: \`${shown(value)}\` ${why}`, Kind);
}

// A number in that range, or what is wrong.
export function checkNumber(place, value, most, isWhole) {
  if (typeof value === 'number' && value >= 0 && value <= most && (!isWhole || Number.isInteger(value))) return value;
  const Kind = typeof value === 'number' ? RangeError : TypeError;
  throw wrong(place, value, `is not possible; use a ${isWhole ? 'whole ' : ''}number from 0 to ${most}`, Kind);
}

// The options of a call: an object, or nothing.
export function checkOptions(place, options) {
  if (typeof options === 'object' && options !== null) return options;
  throw wrong(place, options, 'is no object; use one, as in `{ cost: 2 }`, or leave it out');
}
