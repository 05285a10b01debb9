// Timers and signals of requests.

// The longest delay of setTimeout.
const MAX_TIMEOUT_MS = 2 ** 31 - 1;

export const nothing = () => {};

// Calls `then` after `ms`, which may exceed the longest delay of setTimeout. Returns a function that cancels the call.
export function after(ms, then) {
  let timer;
  const wait = (left) => {
    const part = Math.min(left, MAX_TIMEOUT_MS);
    timer = setTimeout(() => (part < left ? wait(left - part) : then()), part);
  };
  wait(Math.ceil(ms));
  return () => clearTimeout(timer);
}

// What is to be done when a signal aborts. Each signal has one listener: Node warns of many on one.
const signals = new WeakMap();

// Calls `then` when the signal, if there is one, aborts. Returns a function that cancels the call.
export function onAbort(signal, then) {
  if (signal === undefined) return nothing;
  let known = signals.get(signal);
  if (known === undefined) {
    const all = new Set();
    known = { all, listener: () => [...all].forEach((each) => each.then()) };
    signals.set(signal, known);
  }
  const { all, listener } = known;
  const own = { then };
  if (all.size === 0) signal.addEventListener('abort', listener);
  all.add(own);
  return () => {
    if (all.delete(own) && all.size === 0) signal.removeEventListener('abort', listener);
  };
}
