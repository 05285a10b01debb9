// A function that runs within an entry, and ends it with the outcome.

import { fail } from './entry.js';
import { faultAt } from './errors.js';
import { after, onAbort } from './timers.js';

async function carryOut(entry, call, isError, signal) {
  let result;
  try {
    result = await call(entry, signal);
  } catch (error) {
    let isOne = true;
    try {
      if (isError !== undefined) isOne = isError(error);
    } finally {
      try {
        // A falsy value that was thrown is an error, too.
        entry.exit({ error: isOne && (error || true) });
      } catch {
        // The first error is the one reported.
      }
    }
    throw error;
  }
  entry.exit();
  return result;
}

// Calls `call`, which has `timeoutMs`. One that is late is an error to breakers at once, but is in flight until it ends: its
// signal tells it to.
export function runWithin(entry, call, { resource, isError, timeoutMs, signal }, run) {
  if (timeoutMs === Infinity) return carryOut(entry, call, isError, signal);
  const controller = new AbortController();
  const ignore = onAbort(signal, () => controller.abort(signal.reason));
  return new Promise((resolve, reject) => {
    const cancel = after(timeoutMs, () => {
      const error = faultAt(run, 'ERR_LEAPGATE_TIMEOUT', `${resource}: no result within ${timeoutMs} ms; raise \`timeoutMs\`, or try again later`);
      reject(error);
      controller.abort(error);
      try {
        fail(entry);
      } catch {
        // The clock fails: the call's end reports that.
      }
    });
    const end = (settle) => (value) => {
      cancel();
      ignore();
      settle(value);
    };
    carryOut(entry, call, isError, controller.signal).then(end(resolve), end(reject));
  });
}
