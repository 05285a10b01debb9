// What the suites of opossum and cockatiel ask of circuit breakers, asked of `run`: written anew. docs/peers.md has what remains. Time
// is mocked.

import assert from 'node:assert/strict';
import test from 'node:test';
import { Engine } from 'leapgate/engine';

const settled = () => new Promise(setImmediate);
const codes = { open: 'ERR_LEAPGATE_BLOCKED', late: 'ERR_LEAPGATE_TIMEOUT' };

// A breaker as opossum's by default: more than half of the calls of the last 10 s, and a probe when its time is over.
function breakerOf(t, rule = {}, flowRules = []) {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  let ms = 0;
  const breaker = { resource: 'call', id: 'breaker', grade: 'errorRatio', count: 0.5, minRequestAmount: 1, statIntervalMs: 10_000, timeWindow: 0.1, ...rule };
  const rules = { flowRules, degradeRules: [breaker] };
  const engine = new Engine(rules, { now: () => ms });
  t.after(() => engine.free());
  const events = [];
  engine.on('breaker', ({ to }) => events.push(to));
  engine.on('refused', ({ result }) => events.push(`refused by ${result.cause}`));
  return {
    engine,
    events,
    rules,
    get state() {
      return engine.stats('call').breakers[0].state;
    },
    pass: async (by) => ((ms += by), t.mock.timers.tick(by), settled()),
    fire: (call, options = {}) => engine.run('call', options, call),
    // Whether the call succeeds, else the error.
    fires: async (call, options) => engine.run('call', options ?? {}, call).then(() => true, (error) => error.code ?? error.message),
  };
}

const fails = async () => {
  throw new Error('failed');
};
const works = async () => 'done';
const failsWith = (statusCode) => async () => {
  throw Object.assign(new Error(`status ${statusCode}`), { statusCode });
};
const takes = (ms, then = works) => () => new Promise((resolve) => setTimeout(resolve, ms)).then(then);

test('opossum: opens after failures, refuses, and resets after its time', async (t) => {
  const breaker = breakerOf(t);
  assert.deepEqual([await breaker.fires(fails), breaker.state], ['failed', 'open']);
  assert.equal(await breaker.fires(() => assert.fail('it is open')), codes.open);
  await breaker.pass(99);
  assert.equal(await breaker.fires(works), codes.open);
  await breaker.pass(1);
  assert.deepEqual([await breaker.fires(works), breaker.state], [true, 'closed']);
  const refused = 'refused by degrade';
  assert.deepEqual(breaker.events, ['open', refused, refused, 'halfOpen', 'closed']);
});

test('opossum: half open, one request is let through, and its failure opens the circuit again', async (t) => {
  const breaker = breakerOf(t);
  await breaker.fires(fails);
  await breaker.pass(150);
  const probe = breaker.fires(takes(50, fails));
  assert.equal(breaker.state, 'halfOpen');
  assert.equal(await breaker.fires(works), codes.open);
  await breaker.pass(50);
  assert.deepEqual([await probe, breaker.state, await breaker.fires(works)], ['failed', 'open', codes.open]);
});

test('opossum: half open, an error that is filtered closes the circuit', async (t) => {
  const breaker = breakerOf(t);
  const isError = ({ statusCode }) => statusCode >= 500;
  assert.equal(await breaker.fires(failsWith(500), { isError }), 'status 500');
  assert.equal(breaker.state, 'open');
  await breaker.pass(100);
  assert.equal(await breaker.fires(failsWith(400), { isError }), 'status 400');
  assert.equal(breaker.state, 'closed');
});

test('opossum: an error filter makes an error a success, gets the error, and the caller does, too', async (t) => {
  const breaker = breakerOf(t);
  const seen = [];
  const isError = (error) => (seen.push(error.statusCode), error.statusCode >= 500);
  assert.equal(await breaker.fires(failsWith(400), { isError }), 'status 400');
  const { successQps, exceptionQps } = breaker.engine.stats('call');
  assert.deepEqual([seen, successQps, exceptionQps, breaker.state], [[400], 1, 0, 'closed']);
  await breaker.pass(12_000);
  assert.equal(await breaker.fires(failsWith(500), { isError }), 'status 500');
  assert.deepEqual([seen, breaker.engine.stats('call').exceptionQps, breaker.state], [[400, 500], 1, 'open']);
  assert.equal(await breaker.fires(failsWith(500), { isError }), codes.open);
  assert.deepEqual(seen, [400, 500], 'a refusal is no error of the call');
});

test('opossum: without a filter each error counts', async (t) => {
  const breaker = breakerOf(t);
  assert.deepEqual([await breaker.fires(failsWith(404)), breaker.state], ['status 404', 'open']);
});

test('opossum: open, an earlier call that succeeds does not close the circuit', async (t) => {
  const breaker = breakerOf(t, { count: 0.01, timeWindow: 60 });
  const earlier = breaker.fires(takes(100));
  await breaker.fires(fails);
  assert.equal(breaker.state, 'open');
  await breaker.pass(100);
  assert.deepEqual([await earlier, breaker.state], [true, 'open']);
});

test('opossum: a volume threshold holds the circuit closed until it is reached, and means nothing to probes', async (t) => {
  const breaker = breakerOf(t, { count: 0.01, minRequestAmount: 3 });
  for (const state of ['closed', 'closed', 'open']) {
    await breaker.fires(fails);
    assert.equal(breaker.state, state);
  }
  await breaker.pass(100);
  assert.deepEqual([await breaker.fires(fails), breaker.state], ['failed', 'open']);
});

test('opossum: a call that takes too long is rejected, aborted, and a failure', async (t) => {
  const breaker = breakerOf(t);
  let signal;
  const slow = breaker.fires((entry, own) => ((signal = own), takes(500)()), { timeoutMs: 10 });
  await breaker.pass(10);
  assert.deepEqual([await slow, signal.aborted, breaker.state], [codes.late, true, 'open']);
  // Its result comes to nothing.
  await breaker.pass(490);
  assert.deepEqual([breaker.state, breaker.engine.stats().concurrency], ['open', 0]);
});

test('opossum: a call in time is not aborted, and one without a time-out takes as long as it takes', async (t) => {
  const breaker = breakerOf(t);
  let signal;
  const quick = breaker.fires((entry, own) => ((signal = own), takes(5)()), { timeoutMs: 10 });
  const long = breaker.fires(takes(60_000));
  await breaker.pass(5);
  await breaker.pass(60_000);
  assert.deepEqual([await quick, await long, signal.aborted, breaker.state], [true, true, false, 'closed']);
});

test('opossum: functions that return no promise, throw, or call back', async (t) => {
  const breaker = breakerOf(t);
  assert.equal(await breaker.fire(() => 7), 7);
  assert.equal(await breaker.fire(() => new Promise((resolve) => process.nextTick(resolve, 8))), 8);
  const sync = () => {
    throw new Error('at once');
  };
  assert.equal(await breaker.fires(sync), 'at once');
  await assert.rejects(breaker.fire(undefined), { code: 'ERR_LEAPGATE_ARGUMENT' });
});

test('opossum: a fallback is the catch of the promise', async (t) => {
  const breaker = breakerOf(t);
  const fallback = (error) => (error.code === codes.open ? 'open' : error.message);
  assert.deepEqual([await breaker.fire(fails).catch(fallback), await breaker.fire(works).catch(fallback)], ['failed', 'open']);
});

test('opossum: a capacity, which is given back', async (t) => {
  const breaker = breakerOf(t, {}, [{ resource: 'call', id: 'capacity', grade: 'concurrency', count: 1 }]);
  const first = breaker.fires(takes(100));
  const error = await breaker.fire(works).catch((error) => error);
  assert.deepEqual([error.code, error.result.rule, breaker.engine.stats('call').concurrency], [codes.open, 'capacity', 1]);
  assert.deepEqual(breaker.events, ['refused by flow']);
  await breaker.pass(100);
  assert.deepEqual([await first, await breaker.fires(works), breaker.state], [true, true, 'closed']);
  // Waiting for it, with a time-out.
  const second = breaker.fires(takes(100));
  const waits = [20, 200].map((maxWaitMs) => breaker.engine.acquire('call', { maxWaitMs }).then((entry) => entry.exit(), ({ code }) => code));
  await breaker.pass(20);
  await breaker.pass(80);
  assert.deepEqual([await second, await Promise.all(waits)], [true, [codes.open, undefined]]);
});

test('opossum: looking at the state and at the status changes neither', async (t) => {
  const breaker = breakerOf(t);
  await breaker.fires(fails);
  await breaker.pass(100);
  for (let i = 0; i < 20; i++) assert.equal(breaker.state, 'open', 'until a call comes');
  await breaker.fires(works);
  const { passQps, successQps, exceptionQps, blockQps } = breaker.engine.stats('call');
  assert.deepEqual({ passQps, successQps, exceptionQps, blockQps }, { passQps: 2, successQps: 2, exceptionQps: 1, blockQps: 0 });
});

test('opossum: a circuit is forced open, closed and disabled by its rules, and keeps its counts', async (t) => {
  const { rules, ...breaker } = breakerOf(t, { minRequestAmount: 2 });
  const { engine } = breaker;
  await breaker.fires(fails);
  const isolated = { resource: 'call', id: 'isolated', count: 0 };
  engine.replace({ ...rules, flowRules: [isolated] });
  const error = await breaker.fire(works).catch((error) => error);
  assert.equal(error.result.rule, 'isolated');
  engine.replace(rules);
  await breaker.fires(fails);
  assert.equal(engine.stats('call').breakers[0].state, 'open');
  engine.replace({ ...rules, mode: 'shadow' });
  assert.equal(await breaker.fires(works), true);
});

test('cockatiel: opens at its threshold, and tells once', async (t) => {
  const breaker = breakerOf(t, { grade: 'errorCount', count: 2, comparison: 'atLeast', timeWindow: 1 });
  assert.equal(await breaker.fire(() => 42), 42);
  for (const state of ['closed', 'open']) {
    await breaker.fires(fails);
    assert.equal(breaker.state, state);
  }
  assert.equal(await breaker.fires(() => assert.fail('it is open')), codes.open);
  assert.deepEqual(breaker.events, ['open', 'refused by degrade']);
});

test('cockatiel: only errors of one kind count', async (t) => {
  class Mine extends Error {}
  const breaker = breakerOf(t);
  const isError = (error) => error instanceof Mine;
  for (let i = 0; i < 5; i++) await breaker.fires(fails, { isError });
  assert.equal(breaker.state, 'closed');
  for (let i = 0; i < 6; i++) await breaker.fires(() => Promise.reject(new Mine('mine')), { isError });
  assert.equal(breaker.state, 'open');
});

test('cockatiel: half open, further calls wait for the probe, and pass when it has succeeded', async (t) => {
  const breaker = breakerOf(t);
  await breaker.fires(fails);
  await breaker.pass(100);
  const probe = breaker.fires(takes(10));
  const waiting = breaker.engine.acquire('call', { maxWaitMs: 5000 });
  await breaker.pass(9);
  assert.equal(breaker.engine.stats('call').waiting, 1);
  await breaker.pass(1);
  (await waiting).exit();
  assert.deepEqual([await probe, breaker.state], [true, 'closed']);
});

test('cockatiel: half open, calls that wait for the probe go on waiting if it fails', async (t) => {
  const breaker = breakerOf(t);
  await breaker.fires(fails);
  await breaker.pass(100);
  const probe = breaker.fires(takes(10, fails));
  const short = breaker.engine.acquire('call', { maxWaitMs: 20 }).catch(({ code }) => code);
  await breaker.pass(10);
  assert.deepEqual([await probe, breaker.state], ['failed', 'open']);
  await breaker.pass(10);
  assert.equal(await short, codes.open);
});

test('cockatiel: several probes have to succeed', async (t) => {
  const breaker = breakerOf(t, { probes: 3 });
  await breaker.fires(fails);
  await breaker.pass(100);
  for (const state of ['halfOpen', 'halfOpen', 'closed']) {
    await breaker.fires(works);
    assert.equal(breaker.state, state);
  }
  assert.deepEqual(breaker.events, ['open', 'halfOpen', 'closed']);
});

test('cockatiel: the signal of the caller reaches the function, beside its time-out', async (t) => {
  const breaker = breakerOf(t);
  const controller = new AbortController();
  const aborted = (entry, signal) => new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)));
  const own = breaker.fire(aborted, { signal: controller.signal, timeoutMs: 100, isError: () => false }).catch((reason) => reason);
  const late = breaker.fires(aborted, { signal: controller.signal, timeoutMs: 10 });
  await breaker.pass(10);
  assert.equal(await late, codes.late);
  controller.abort('stop');
  assert.equal(await own, 'stop');
  await assert.rejects(breaker.fire(works, { signal: AbortSignal.abort('gone') }), (reason) => reason === 'gone');
});

test('cockatiel: a bulkhead with a queue, its state, and its limit', async (t) => {
  const breaker = breakerOf(t, {}, [{ resource: 'call', id: 'bulkhead', grade: 'concurrency', count: 2 }]);
  const { engine } = breaker;
  const open = [await engine.acquire('call'), await engine.acquire('call')];
  const controller = new AbortController();
  const waiting = [engine.acquire('call', { signal: controller.signal }).catch((reason) => reason), engine.acquire('call')];
  assert.deepEqual(engine.stats(), { concurrency: 2, waiting: 2 });
  controller.abort('gone');
  assert.equal(await waiting[0], 'gone');
  open[0].exit();
  open.push(await waiting[1]);
  assert.deepEqual(engine.stats(), { concurrency: 2, waiting: 0 });
});
