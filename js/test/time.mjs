// Virtual time, for `setTimeout`, `Date` and the clocks of the package: it moves only by `pass` and `until`.

export const settled = () => new Promise(setImmediate);

// `apis` are the timers of node:test that follow it; `Date` begins at `epoch`.
export function virtualTime(t, apis = ['setTimeout'], epoch = 0) {
  t.mock.timers.enable({ apis, now: epoch });
  const time = { ms: 0, now: () => time.ms };
  // Timers that are set. Only these are cleared: to clear one of an earlier test would clear another one of this test.
  const timers = new Set();
  const { setTimeout: set, clearTimeout: clear } = globalThis;
  globalThis.setTimeout = (then, ...args) => {
    const timer = set((...given) => (timers.delete(timer), then(...given)), ...args);
    timers.add(timer);
    return timer;
  };
  globalThis.clearTimeout = (timer) => timers.delete(timer) && clear(timer);
  t.after(() => Object.assign(globalThis, { setTimeout: set, clearTimeout: clear }));
  Object.defineProperty(time, 'timers', { get: () => timers.size });
  const step = async () => {
    await settled();
    time.ms++;
    t.mock.timers.tick(1);
  };
  time.pass = async (ms) => {
    for (const end = time.ms + ms; time.ms < end; ) await step();
    await settled();
  };
  // Passes until a promise settles, and returns it.
  time.until = async (promise, most = 200_000) => {
    let isOver = false;
    const over = () => (isOver = true);
    promise.then(over, over);
    await settled();
    for (const end = time.ms + most; !isOver; ) {
      if (time.ms >= end) throw new Error(`nothing has settled within ${most} ms`);
      await step();
    }
    return promise;
  };
  return time;
}
