// `run` with `isError` and `timeoutMs`: what counts as an error, and what happens to a call that takes too long. Time is mocked.

import assert from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import test from 'node:test';
import { Engine } from 'leapgate/engine';

const settled = () => new Promise(setImmediate);

// An engine in mocked time, with a limit of 2 on calls in flight and a breaker that opens at two errors.
function engineOf(t, more = {}) {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const time = { ms: 0, pass: async (ms) => ((time.ms += ms), t.mock.timers.tick(ms), settled()) };
  const rules = {
    flowRules: [{ resource: 'pay', id: 'in flight', count: 2, grade: 'concurrency' }],
    degradeRules: [{ resource: 'pay', id: 'breaker', grade: 'errorCount', count: 1, minRequestAmount: 1, timeWindow: 10, ...more }],
  };
  const engine = new Engine(rules, { now: () => time.ms });
  t.after(() => engine.free());
  const state = () => engine.stats('pay').breakers[0].state;
  return { engine, time, state };
}

const late = (ms) => ({ name: 'Error', code: 'ERR_LEAPGATE_TIMEOUT', message: `pay: no result within ${ms} ms; raise \`timeoutMs\`, or try again later` });

test('an error that isError does not count is a success to breakers, and is thrown all the same', async (t) => {
  const { engine, state } = engineOf(t);
  const thrown = [new TypeError('yours'), undefined, null, 'text'];
  const seen = [];
  for (const value of thrown) {
    const isError = (error) => (seen.push(error), false);
    const running = engine.run('pay', { isError }, () => Promise.reject(value));
    assert.equal(await running.then(assert.fail, (error) => error), value);
  }
  assert.deepEqual([seen, state(), engine.stats('pay').exceptionQps], [thrown, 'closed', 0]);
  const isError = (error) => error instanceof RangeError;
  for (const error of [new RangeError('ours'), new TypeError('yours'), new RangeError('ours')]) {
    assert.equal(state(), 'closed');
    await assert.rejects(engine.run('pay', { isError }, () => Promise.reject(error)), error);
  }
  assert.equal(state(), 'open');
  assert.equal(engine.stats().concurrency, 0);
});

test('a probe whose error does not count closes the breaker', async (t) => {
  const { engine, time, state } = engineOf(t);
  for (let i = 0; i < 2; i++) engine.enter('pay').exit({ error: new Error('ours') });
  await time.pass(10_000);
  await assert.rejects(engine.run('pay', { isError: () => false }, () => Promise.reject(new Error('yours'))), { message: 'yours' });
  assert.equal(state(), 'closed');
});

test('what isError throws is what run rejects with, and the call counts as an error', async (t) => {
  const { engine, state } = engineOf(t);
  const isError = () => {
    throw new TypeError('a mistake');
  };
  for (let i = 0; i < 2; i++) {
    await assert.rejects(engine.run('pay', { isError }, () => Promise.reject(new Error('broken'))), { message: 'a mistake' });
  }
  assert.deepEqual([state(), engine.stats().concurrency], ['open', 0]);
});

test('a call that takes too long is rejected, an error at once, and in flight until it ends', async (t) => {
  const { engine, time, state } = engineOf(t);
  const ends = [];
  const signals = [];
  const slow = (entry, signal) => new Promise((resolve, reject) => (signals.push(signal), ends.push(entry.success ? resolve : reject)));
  const results = [1, 2].map(() => engine.run('pay', { timeoutMs: 100, isError: () => false }, slow).catch((error) => error));
  await time.pass(99);
  assert.deepEqual([signals.map(({ aborted }) => aborted), state()], [[false, false], 'closed']);
  await time.pass(1);
  const [error, other] = await Promise.all(results);
  const { code, message, name } = error;
  assert.deepEqual({ name, code, message }, late(100));
  assert.deepEqual([signals[0].reason, signals[1].reason], [error, other]);
  assert.equal(state(), 'open');
  assert.equal(engine.stats('pay').concurrency, 2, 'they are running');
  await time.pass(10_000);
  assert.deepEqual([engine.enter('pay').rule, engine.enter('pay').retryAfterMs], ['in flight', 1]);
  ends[0]('late');
  await settled();
  assert.equal(engine.stats('pay').concurrency, 1);
  assert.equal(state(), 'open', 'how it ended is nothing to the breaker');
  ends[1]('late');
  await settled();
  const probe = engine.enter('pay');
  assert.deepEqual([probe.success, state(), engine.stats('pay').concurrency], [true, 'halfOpen', 1]);
});

test('a late probe opens the breaker again at once', async (t) => {
  const { engine, time, state } = engineOf(t);
  for (let i = 0; i < 2; i++) engine.enter('pay').exit({ error: new Error('broken') });
  await time.pass(10_000);
  const changes = [];
  engine.on('breaker', ({ to }) => changes.push(to));
  const running = engine.run('pay', { timeoutMs: 50 }, () => new Promise(() => {}));
  running.catch(() => {});
  await time.pass(50);
  await assert.rejects(running, late(50));
  assert.deepEqual([changes, state()], [['halfOpen', 'open'], 'open']);
});

test('a late call is slow to a breaker on slow calls', async (t) => {
  const { engine, time, state } = engineOf(t, { grade: 'slowRatio', count: 80, slowRatioThreshold: 0.5 });
  for (const [timeoutMs, expected] of [[80, 'closed'], [81, 'closed'], [81, 'open']]) {
    const running = engine.run('pay', { timeoutMs }, (entry, signal) => new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason))));
    running.catch(() => {});
    await time.pass(timeoutMs);
    await assert.rejects(running, late(timeoutMs));
    assert.equal(state(), expected);
  }
  assert.equal(engine.stats().concurrency, 0);
});

test('a call in time leaves no timer and no listener', async (t) => {
  const { engine, time, state } = engineOf(t);
  const { signal } = new AbortController();
  let own;
  const request = { timeoutMs: 100, signal };
  assert.equal(await engine.run('pay', request, async (entry, signal) => ((own = signal), 7)), 7);
  await assert.rejects(engine.run('pay', request, () => Promise.reject(new Error('quick'))), { message: 'quick' });
  assert.equal(getEventListeners(signal, 'abort').length, 0);
  await time.pass(1000);
  assert.deepEqual([own.aborted, state()], [false, 'closed']);
  assert.equal(await engine.run('pay', { timeoutMs: Infinity }, (entry, signal) => signal), undefined);
});

test('the signal of a request reaches the function', async (t) => {
  const { engine } = engineOf(t);
  for (const timeoutMs of [undefined, 100]) {
    const controller = new AbortController();
    const aborted = (entry, signal) => new Promise((resolve) => signal.addEventListener('abort', () => resolve(signal.reason)));
    const running = engine.run('pay', { signal: controller.signal, timeoutMs }, aborted);
    await settled();
    controller.abort('enough');
    assert.equal(await running, 'enough');
  }
});

test('the time to wait for a turn is no part of timeoutMs', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  let ms = 0;
  const engine = new Engine({ flowRules: [{ resource: 'mail', count: 1, controlBehavior: 'throttle', maxQueueingTimeMs: 5000 }] }, { now: () => ms });
  t.after(() => engine.free());
  await engine.run('mail', () => {});
  const running = engine.run('mail', { timeoutMs: 10 }, () => 'done');
  ms += 1000;
  t.mock.timers.tick(1000);
  assert.equal(await running, 'done');
});

test('a function may end its entry before it is late', async (t) => {
  const { engine, time, state } = engineOf(t);
  for (let i = 0; i < 2; i++) {
    const running = engine.run('pay', { timeoutMs: 10 }, (entry) => (entry.exit(), new Promise(() => {})));
    running.catch(() => {});
    await time.pass(10);
    await assert.rejects(running, late(10));
  }
  assert.deepEqual([state(), engine.stats().concurrency], ['closed', 0]);
});
