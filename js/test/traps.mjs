// Makes the module trap. To be imported before the package.
import assert from 'node:assert/strict';

// The function that traps at its next call.
let next;
// The exports of the latest instance.
export let memory;
const { Instance } = WebAssembly;
WebAssembly.Instance = function (module, imports) {
  const { exports } = new Instance(module, imports);
  ({ memory } = exports);
  const trapping = ([name, value]) => {
    if (typeof value !== 'function') return [name, value];
    const call = (...args) => {
      if (next !== name) return value(...args);
      next = undefined;
      throw new WebAssembly.RuntimeError('unreachable');
    };
    return [name, call];
  };
  return { exports: Object.fromEntries(Object.entries(exports).map(trapping)) };
};

export function trap(name) {
  next = name;
}

// The error that `act` throws if the module's function `name` traps.
export function crash(name, act) {
  trap(name);
  assert.throws(act, (error) => {
    assert.equal(error.code, 'ERR_LEAPGATE_CRASHED');
    assert.equal(
      error.message,
      'leapgate: the wasm module stopped and was started again; all windows are counted as full until they have passed',
    );
    return error.cause instanceof WebAssembly.RuntimeError;
  });
  assert.equal(next, undefined, `${name} was called`);
}
