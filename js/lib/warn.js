// What is told once, and is no error.

export function warn(code, message) {
  if (typeof globalThis.process?.emitWarning === 'function') process.emitWarning(message, { type: 'LeapgateWarning', code });
  else console.warn(`${code}: ${message}`);
}
