// Warnings, which are not errors: callers give each of them once.

export function warn(code, message) {
  if (typeof globalThis.process?.emitWarning === 'function') process.emitWarning(message, { type: 'LeapgateWarning', code });
  else console.warn(`${code}: ${message}`);
}
