// A million keys, in the memory that is stated.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import v8 from 'node:v8';
import vm from 'node:vm';
import { Limiter } from 'leapgate';

const KEYS = 1_000_000;

// At the bound, as src/state/keyed.rs has it; wasm gives no memory back, so what the table has grown out of comes on top.
const BYTES_PER_KEY = 62;
const MOST = 1.25 * BYTES_PER_KEY * KEYS;
// And what further keys share.
const SHARED_BYTES_PER_KEY = 8;

v8.setFlagsFromString('--expose-gc');
const collect = vm.runInNewContext('gc');

// Of the heap and of wasm, which is outside of it.
function bytes() {
  collect();
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

test('a_million_keys_stay_inside_the_stated_memory', () => {
  let millis = 0;
  const limiter = new Limiter({ limit: 2, windowMs: 60_000, maxKeys: KEYS, now: () => millis });
  limiter.limit('first');
  const before = bytes();
  const fill = (name, keys = KEYS) => {
    let passed = 0;
    for (let i = 0; i < keys; i++) passed += limiter.limit(`${name} ${i}`).success;
    return passed;
  };
  assert.equal(fill('one'), KEYS);
  const filled = bytes() - before;
  assert.ok(filled <= MOST, `${filled / KEYS} bytes per key`);
  console.log(`${(filled / KEYS).toFixed(1)} bytes per key, of ${KEYS} keys`);
  // Each has a window of its own: it lets one more pass, and not two.
  for (let i = 0; i < KEYS; i += 997) {
    const [second, third] = [1, 2].map(() => limiter.limit(`one ${i}`).success);
    assert.deepEqual([second, third], [true, false]);
  }
  // As many others take their place when they have expired, and when they have not, they add nothing either.
  millis = 2 * 63_000;
  assert.equal(fill('other'), KEYS);
  const { shared } = limiter.stats();
  const more = fill('more', KEYS / 10);
  assert.equal(limiter.stats().shared - shared, more);
  assert.ok(more > 0.99 * (KEYS / 10), `${more} of ${KEYS / 10} further keys`);
  const after = bytes() - before;
  assert.ok(after <= MOST + 1.25 * SHARED_BYTES_PER_KEY * KEYS, `${after / KEYS} bytes per key`);
});
