// @upstash/ratelimit's own tests, as claims about `Limiter`, `SharedLimiter` and `acquire`. Their cases are written anew; docs/peers.md has
// those that are not met.

import assert from 'node:assert/strict';
import test from 'node:test';
import { Limiter } from 'leapgate';
import { Engine } from 'leapgate/engine';
import { SharedLimiter } from 'leapgate/shared';
import { MemoryStore } from 'leapgate/shared/memory';
import { mostInAny } from './http.mjs';
import { virtualTime } from './time.mjs';

const claim = (name, run) => test(`@upstash/ratelimit: ${name}`, run);
const made = (options) => new Limiter({ limit: 10, windowMs: 60_000, now: () => 0, ...options });

for (const window of ['strict', 'sentinel', 'weighted']) {
  for (const load of [0.9, 1.2, 1.7]) {
    claim(`a ${window} window under ${load} times its limit passes what it should`, () => {
      let ms = 0;
      const limiter = made({ window, limit: 100, windowMs: 1000, now: () => ms });
      const passed = [];
      for (; ms < 60_000; ms += 10 / load) if (limiter.limit('a').success) passed.push(ms);
      const expected = 60 * 100 * Math.min(load, 1);
      assert.ok(passed.length > 0.94 * expected && passed.length <= expected + 100, `${passed.length} of ${expected}`);
      assert.ok(mostInAny(1000, passed) <= (window === 'strict' ? 100 : 200));
    });
  }
}

claim('a result tells whether it passes, the limit, what is left and when it comes back', () => {
  const { success, limit, remaining, reset } = made().limit('a');
  assert.deepEqual([success, limit, remaining, reset], [true, 10, 9, 63_000]);
});

claim('a request may cost more than one, or nothing', () => {
  const limiter = made();
  assert.equal(limiter.limit('a', { cost: 4 }).remaining, 6);
  assert.equal(limiter.limit('a', { cost: 0 }).remaining, 6);
  assert.equal(limiter.limit('a', { cost: 7 }).success, false);
  assert.equal(limiter.peek('a').remaining, 6);
});

claim('what is left is read without charging, and `reset` is the same as that of the decision', () => {
  const limiter = new Limiter({ limit: 10, windowMs: 60_000 });
  const { remaining, reset } = limiter.limit('a');
  const left = limiter.peek('a');
  assert.deepEqual([left.remaining, left.reset], [remaining, reset]);
});

claim('what was used is reset', () => {
  const limiter = made();
  limiter.limit('a', { cost: 10 });
  limiter.reset('a');
  assert.equal(limiter.peek('a').remaining, 10);
});

claim('charges are refunded, several in a row, also when none is left or after a refusal', () => {
  const limiter = made();
  limiter.limit('a', { cost: 10 });
  assert.equal(limiter.limit('a', { cost: 3 }).success, false);
  limiter.refund('a', 3);
  limiter.refund('a', 2);
  assert.equal(limiter.peek('a').remaining, 5);
});

claim('a limit changes from request to request, and what is used stays', () => {
  const limiter = made();
  limiter.limit('a', { cost: 10 });
  assert.equal(limiter.limit('a').success, false);
  assert.equal(limiter.limit('a', { limit: 20 }).remaining, 9);
  assert.equal(limiter.limit('a', { limit: 5 }).success, false);
});

// A queue of 5 in 5 s.
function queue(t) {
  const time = virtualTime(t);
  const engine = new Engine({ flowRules: [{ resource: 'q', count: 5, intervalMs: 5000, key: ['path'] }] }, { now: time.now });
  return { time, wait: (maxWaitMs) => engine.acquire('q', { key: ['a'], maxWaitMs }) };
}

claim('a request waits until it passes', async (t) => {
  const { time, wait } = queue(t);
  for (let i = 0; i < 5; i++) await wait(0);
  await time.until(wait(10_000));
  assert.equal(time.ms, 5250);
});

claim('a request that cannot pass in time is refused, at once', async (t) => {
  const { time, wait } = queue(t);
  for (let i = 0; i < 5; i++) await wait(0);
  await assert.rejects(wait(1000), { code: 'ERR_LEAPGATE_BLOCKED' });
  assert.equal(time.ms, 0);
});

claim('a key that is known to be refused reaches no store', async () => {
  const memory = new MemoryStore();
  let asks = 0;
  const store = { lease: async (...args) => (asks++, memory.lease(...args)) };
  const limiter = new SharedLimiter({ id: 'api', limit: 5, windowMs: 60_000, store });
  const passed = [];
  for (let i = 0; i < 10; i++) passed.push((await limiter.limit('a')).success);
  const before = asks;
  assert.deepEqual([passed.filter(Boolean).length, (await limiter.limit('a')).success, asks], [5, false, before]);
  await limiter.close();
});

claim('where the store does not answer in time, requests pass if that is wanted', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const store = { lease: () => new Promise(() => {}) };
  const limiter = new SharedLimiter({ id: 'api', limit: 5, windowMs: 60_000, store, timeoutMs: 100, whenDown: 'pass' });
  const decided = limiter.limit('a');
  t.mock.timers.tick(100);
  assert.equal((await decided).success, true);
});
