// rate-limiter-flexible's own tests of RateLimiterMemory, RateLimiterUnion and RateLimiterQueue, as claims about `Limiter` and `acquire`. Their
// cases are written anew; docs/peers.md has those that are not met.

import assert from 'node:assert/strict';
import test from 'node:test';
import { Limiter } from 'leapgate';
import { Engine } from 'leapgate/engine';
import { virtualTime } from './time.mjs';

const claim = (name, run) => test(`rate-limiter-flexible: ${name}`, run);

// A limiter on a clock that begins at 0.
function made(options) {
  const clock = { ms: 0 };
  return { clock, limiter: new Limiter({ limit: 2, windowMs: 5000, now: () => clock.ms, ...options }) };
}

// What `penalty` does there: it charges a key even beyond its limit, and a debt blocks until it has left the window.
const penalise = (limiter, key, points) => limiter.hold(key, 0).settle(points);

claim('a point is consumed, and the time until it comes back is told', () => {
  const { limiter } = made();
  const { success, remaining, policies } = limiter.limit('a');
  assert.deepEqual([success, remaining, policies[0].resetMs], [true, 1, 5250]);
});

claim('no more points are consumed than there are', () => {
  const { limiter } = made();
  const { success, remaining, retryAfterMs } = limiter.limit('a', { cost: 3 });
  assert.deepEqual([success, remaining, retryAfterMs], [false, 2, Infinity]);
  assert.equal(limiter.limit('a', { cost: 2 }).success, true);
  assert.equal(limiter.limit('a').success, false);
});

claim('a penalty is charged, also beyond the limit, and a reward is given back', () => {
  const { limiter } = made();
  limiter.limit('a');
  penalise(limiter, 'a', 1);
  assert.equal(limiter.peek('a').remaining, 0);
  limiter.refund('a');
  assert.equal(limiter.peek('a').remaining, 1);
  assert.equal(penalise(limiter, 'a', 5), 5);
  limiter.refund('a', 4);
  assert.equal(limiter.peek('a').success, false, 'a debt of one is left');
});

claim('keys with a prefix are others', () => {
  const { limiter } = made({ limit: 1 });
  assert.deepEqual([limiter.limit(['login', 'a']).success, limiter.limit(['mail', 'a']).success], [true, true]);
});

claim('a key that consumes too much is blocked, no longer by what it consumes meanwhile', () => {
  const { clock, limiter } = made();
  const consume = () => {
    const result = limiter.limit('a', { cost: 3 });
    // A blocked key is refused by no rule.
    if (!result.success && result.rule !== null) limiter.block('a', 9000);
    return limiter.peek('a').retryAfterMs;
  };
  assert.equal(consume(), 9000);
  clock.ms = 8000;
  assert.equal(consume(), 1000);
  clock.ms = 9000;
  assert.equal(limiter.peek('a').success, true);
});

claim('a key of choice is blocked, for a time or for ever', () => {
  const { clock, limiter } = made();
  limiter.block('a', 2000);
  assert.equal(limiter.limit('a').retryAfterMs, 2000);
  limiter.block('b', Infinity);
  clock.ms = 1e12;
  assert.deepEqual([limiter.limit('a').success, limiter.limit('b').success], [true, false]);
});

claim('a key is read without charging it, and one that was never charged has all its points', () => {
  const { limiter } = made();
  limiter.limit('a');
  for (let i = 0; i < 3; i++) assert.equal(limiter.peek('a').remaining, 1);
  assert.equal(limiter.peek('b').remaining, 2);
});

claim('a key is deleted, also one that was never charged', () => {
  const { limiter } = made();
  limiter.limit('a', { cost: 2 });
  limiter.reset('a');
  limiter.reset('b');
  assert.equal(limiter.peek('a').remaining, 2);
});

claim('the points of a key are set', () => {
  const { limiter } = made({ limit: 10 });
  limiter.limit('a', { cost: 9 });
  limiter.reset('a');
  penalise(limiter, 'a', 4);
  assert.equal(limiter.peek('a').remaining, 6);
});

claim('the points come back when the window has passed', () => {
  const { clock, limiter } = made();
  limiter.limit('a', { cost: 2 });
  clock.ms = 5249;
  assert.equal(limiter.limit('a').success, false);
  clock.ms = 5250;
  assert.equal(limiter.limit('a').success, true);
});

claim('without points nothing is consumed', () => assert.equal(made({ limit: 0 }).limiter.limit('a').success, false));

const UNION = { limit: undefined, windowMs: undefined, limits: [{ limit: 1, windowMs: 1000, id: 'one' }, { limit: 2, windowMs: 5000, id: 'two' }] };

claim('a union consumes from all of its limits', () => {
  const { limiter } = made(UNION);
  assert.deepEqual(limiter.limit('a').policies.map(({ id, remaining }) => [id, remaining]), [['one', 0], ['two', 1]]);
});

claim('a union refuses where one limit does, and consumes nothing then', () => {
  const { clock, limiter } = made(UNION);
  limiter.limit('a');
  const { success, rule, policies } = limiter.limit('a');
  assert.deepEqual([success, rule, policies[1].remaining], [false, 'one', 1]);
  clock.ms = 2000;
  assert.equal(limiter.limit('a').success, true);
  clock.ms = 4000;
  assert.equal(limiter.limit('a').rule, 'two');
});

// A queue of a limit by key.
function queue(t, rule, settings) {
  const time = virtualTime(t);
  const engine = new Engine({ flowRules: [{ resource: 'q', count: 2, intervalMs: 1000, window: 'sentinel', sampleCount: 1, key: ['path'], ...rule }] }, { now: time.now, ...settings });
  const take = (cost = 1, key = 'a') => engine.acquire('q', { key: [key], cost, maxWaitMs: 2_000_000 }).then((entry) => (entry.exit(), time.ms));
  return { time, engine, take, left: (key = 'a') => engine.policies('q', { key: [key] })[0].remaining };
}

claim('a queue gives tokens at once while there are some, and tells how many are left', async (t) => {
  const { take, left } = queue(t);
  assert.equal(left(), 2, 'of a key that never came');
  assert.equal(await take(), 0);
  assert.equal(left(), 1);
  assert.equal(await take(), 0);
  assert.equal(left(), 0);
  assert.equal(await take(2, 'b'), 0, 'another key');
});

claim('a queue lets requests wait, in their order', async (t) => {
  const { time, take } = queue(t);
  const order = [];
  const all = [1, 2, 3, 4, 5].map((i) => take().then((ms) => order.push([i, ms])));
  await time.until(Promise.all(all));
  assert.deepEqual(order.map(([i]) => i), [1, 2, 3, 4, 5]);
  assert.deepEqual(order.map(([, ms]) => Math.floor(ms / 1000)), [0, 0, 1, 1, 2]);
});

claim('a queue refuses more tokens than there can be', async (t) => {
  const { take } = queue(t);
  await assert.rejects(take(3), { code: 'ERR_LEAPGATE_BLOCKED' });
});

claim('a queue has a longest length, 1000 unless given', async (t) => {
  for (const [settings, most] of [[{ maxWaiting: 2 }, 2], [{}, 1000]]) {
    const { engine, take } = queue(t, { count: 1 }, settings);
    const waiting = Array.from({ length: most + 1 }, () => take());
    await assert.rejects(take(), { code: 'ERR_LEAPGATE_FULL' });
    engine.free();
    assert.deepEqual((await Promise.allSettled(waiting)).map(({ status }) => status).lastIndexOf('fulfilled'), 0);
    t.mock.timers.reset();
  }
});

claim('a queue with even spacing waits no longer than its turn', async (t) => {
  const { time, take } = queue(t, { count: 4, window: undefined, sampleCount: undefined, controlBehavior: 'throttle', maxQueueingTimeMs: 5000 });
  assert.deepEqual(await time.until(Promise.all([take(), take(), take()])), [0, 250, 500]);
});
